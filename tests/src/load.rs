//! Clients that work while the server is killed and restarted, and know what they were told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{Connection, Reply, Server, wait_until};

/// What the clients and the test share.
pub struct Shared {
    address: SocketAddr,
    stops: AtomicBool,
    acknowledged: AtomicU64,
}

impl Shared {
    /// Whether the clients are to stop.
    #[must_use]
    pub fn stops(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    /// Where the server listens, whenever there is one.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counts an acknowledged call.
    pub fn acknowledge(&self) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}

/// Tells threads of a scope to stop once what they run beside has ended, be it with a panic: the scope waits for them.
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Clients that run until they are told to stop.
pub struct Load<T> {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<T>>,
}

impl<T: Send + 'static> Load<T> {
    /// Starts so many clients, numbered from 0.
    pub fn start(server: &Server, clients: u64, client: impl Fn(u64, &Shared) -> T + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared {
            address: server.address(),
            stops: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
        });
        let client = Arc::new(client);
        let one = |number| {
            let (shared, client) = (Arc::clone(&shared), Arc::clone(&client));
            spawn(move || client(number, &shared))
        };
        Self { clients: (0..clients).map(one).collect(), shared }
    }

    /// Acknowledged calls so far.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.shared.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits until so many more calls are acknowledged.
    ///
    /// # Panics
    /// When a client has ended, or nothing happens for half a minute.
    pub fn wait_for(&self, more: u64) {
        let enough = self.acknowledged() + more;
        wait_until("the clients get on", || {
            assert!(!self.clients.iter().any(JoinHandle::is_finished), "a client has ended early");
            self.acknowledged() >= enough
        });
    }

    /// Kills and restarts the server so often, each time at a random moment after so many acknowledged calls, as
    /// many as there are after the last time, too. `before_restart` may change its options.
    pub fn kill_at_random(
        &self,
        server: &mut Server,
        times: u64,
        calls: u64,
        random: &mut Random,
        before_restart: impl Fn(&mut Server, u64),
    ) {
        for life in 0..times {
            self.wait_for(calls);
            sleep(Duration::from_micros(random.below(120_000)));
            server.kill();
            before_restart(server, life);
            server.restart();
        }
        self.wait_for(calls);
    }

    /// Tells the clients to stop, and waits for what they have to tell.
    ///
    /// # Panics
    /// When one of them saw something wrong.
    pub fn finish(self) -> Vec<T> {
        self.shared.stops.store(true, Ordering::Relaxed);
        self.clients.into_iter().map(|client| client.join().expect("the client saw nothing wrong")).collect()
    }
}

/// One client's connection, made anew whenever it broke.
pub struct Client<'a> {
    shared: &'a Shared,
    connection: Option<Connection>,
}

impl<'a> Client<'a> {
    /// Not connected yet.
    #[must_use]
    pub fn new(shared: &'a Shared) -> Self {
        Self { shared, connection: None }
    }

    /// Whether to stop.
    #[must_use]
    pub fn stops(&self) -> bool {
        self.shared.stops()
    }

    /// Counts an acknowledged call.
    pub fn acknowledged(&self) {
        self.shared.acknowledge();
    }

    /// Connects if need be; waits while there is no server.
    fn connect(&mut self) -> &mut Connection {
        while self.connection.is_none() {
            match Connection::open(self.shared.address) {
                Ok(connection) => self.connection = Some(connection),
                Err(_) => sleep(Duration::from_millis(2)),
            }
        }
        self.connection.as_mut().expect("connected above")
    }

    /// Sends once. `None`: no answer came, so whether it took effect is unknown.
    pub fn once(&mut self, method: &str, path: &str, headers: &[&str], body: &str) -> Option<Reply> {
        let reply = self.connect().request(method, path, headers, body.as_bytes());
        if reply.is_err() {
            self.connection = None;
        }
        reply.ok()
    }

    /// Sends until an answer comes that is not "try again".
    pub fn until_answered(&mut self, method: &str, path: &str, headers: &[&str], body: &str) -> Reply {
        loop {
            match self.once(method, path, headers, body) {
                Some(reply) if reply.status == 503 => sleep(Duration::from_millis(2)),
                Some(reply) => return reply,
                None => {}
            }
        }
    }

    /// Calls until an answer comes, which must be 200; its JSON.
    ///
    /// # Panics
    /// For any other answer.
    pub fn value(&mut self, path: &str, input: &str) -> serde_json::Value {
        let reply = self.until_answered("POST", path, &[], input);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()
    }
}

/// Numbers that need only be different each time.
pub struct Random(u64);

impl Random {
    /// From `MILLRACE_TEST_SEED`, or from the time; prints which. The same seed gives the same numbers, though
    /// not the same interleaving of clients.
    ///
    /// # Panics
    /// When the variable holds no number.
    #[must_use]
    pub fn new() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = usize::try_from(since_1970.as_nanos() % 1_000_000_007).unwrap_or_default();
        let seed = crate::number_from_env("MILLRACE_TEST_SEED", time) as u64;
        println!("MILLRACE_TEST_SEED={seed}");
        Self(seed)
    }

    /// A sequence of its own for each number, the same in each run.
    #[must_use]
    pub fn of(number: u64) -> Self {
        Self(number.wrapping_mul(0xA076_1D64_78BD_642F))
    }

    /// The next number below `end` (splitmix64).
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::new()
    }
}
