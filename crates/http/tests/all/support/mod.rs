//! A backend without a node, a server on a thread of its own, and a client that says exactly what
//! it is told to.
#![allow(dead_code, reason = "each program uses a part of it")]

pub mod backend;
mod client;
pub mod records;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use millrace_http::{Front, Options, Timeouts, serve};
use prometheus_client::registry::Registry;
use tokio::sync::oneshot;

use backend::MockBackend;
pub use client::{Client, Reply};

/// How long a test waits for something that must happen; far longer than it takes.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A server of one core, stopped when dropped.
pub struct Server {
    pub address: SocketAddr,
    pub backend: MockBackend,
    pub front: Arc<Front>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Options whose timeouts no test reaches by accident, and which know the hosts that tests name.
pub fn patient() -> Options {
    let timeouts = Timeouts { drain: PATIENCE, ..Timeouts::default() };
    let allowed_hosts = ["test", "x"].map(str::to_owned).to_vec();
    Options { timeouts, allowed_hosts, ..Options::default() }
}

impl Server {
    pub fn start(options: Options) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").expect("a free port"), options)
    }

    pub fn start_on(listener: TcpListener, options: Options) -> Self {
        let address = listener.local_addr().expect("bound");
        let front = Front::new(options, Registry::default()).expect("usable options");
        let backend = MockBackend::default();
        let (stop, stopped) = oneshot::channel::<()>();
        let (on_core, front_of_core) = (backend.clone(), Arc::clone(&front));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let shutdown = async {
                let _ = stopped.await;
            };
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, serve(listener, on_core, front_of_core, shutdown)).expect("served");
        });
        Self { address, backend, front, stop: Some(stop), thread: Some(thread) }
    }

    /// What the backend was asked since the last time.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.backend.shared.asked.lock().expect("no panic"))
    }

    /// The only thing the backend was asked since the last time.
    pub fn asked_one(&self) -> String {
        let asked = self.asked();
        assert_eq!(asked.len(), 1, "{asked:?}");
        asked.into_iter().next().unwrap_or_default()
    }

    pub fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).expect("connected"))
    }

    /// One request on a connection of its own.
    pub fn ask(&self, request: &str, body: &[u8]) -> Reply {
        self.connect().ask(request, body)
    }

    /// Begins to drain; [`Server::join`] waits for its end.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    pub fn join(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic on the core");
        }
    }

    /// The value of a metric's line that starts with `name`, summed over all such lines.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.front.metrics_text().expect("metrics");
        text.lines()
            .filter(|line| line.starts_with(name))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Waits until a metric has reached `value`.
    pub fn wait_for_metric(&self, name: &str, value: f64) {
        wait_until(|| self.metric(name) >= value, || format!("{name} is {}, not {value}", self.metric(name)));
    }
}

/// Waits for something that must come true.
pub fn wait_until(is_true: impl Fn() -> bool, or_else: impl Fn() -> String) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_true() {
        assert!(std::time::Instant::now() < deadline, "{}", or_else());
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Handlers that still wait must not hold up the drain of a test that is over.
        for _ in 0..64 {
            self.backend.shared.gate.notify_one();
            self.backend.shared.gate.notify_waiters();
        }
        self.stop();
        if !std::thread::panicking() {
            self.join();
        }
    }
}
