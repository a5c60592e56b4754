//! The server under test.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::http::{Connection, Reply};

/// The built binary: `MILLRACE_BINARY`, or the one beside the test's own executable.
///
/// # Panics
/// When it has not been built.
#[must_use]
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("MILLRACE_BINARY") {
        return path.into();
    }
    let own = std::env::current_exe().expect("a test knows where it is");
    let folder = own.parent().and_then(Path::parent).expect("target/release/deps");
    let path = folder.join("millrace");
    assert!(path.exists(), "build the server first: cargo build --release -p millrace-server");
    path
}

/// The repository's root.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// Waits until `condition` holds; the limit only bounds how long a failing test takes.
///
/// # Panics
/// When it does not hold within half a minute.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a server is started with.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Apps: folders, relative to the repository or absolute.
    pub apps: Vec<PathBuf>,
    /// More arguments of `millrace serve`.
    pub arguments: Vec<String>,
    /// Soft and hard limit of open files.
    pub descriptors: Option<u32>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
}

impl ServerOptions {
    /// The named bundled examples, on two cores.
    #[must_use]
    pub fn examples(names: &[&str]) -> Self {
        let apps = names.iter().map(|name| repository().join("examples").join(name)).collect();
        Self { apps, arguments: vec!["--cores".into(), "2".into(), "--log".into(), "warn".into()], ..Self::default() }
    }

    /// More arguments.
    #[must_use]
    pub fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(ToString::to_string));
        self
    }
}

/// A running server. Dropping it kills it.
pub struct Server {
    child: Child,
    address: SocketAddr,
    options: ServerOptions,
    folder: TempDir,
}

impl Server {
    /// Starts a server over a new data directory and waits until it serves.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(options: ServerOptions) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let address = free_address();
        let child = spawn(&options, address, folder.path()).expect("started");
        let mut server = Self { child, address, options, folder };
        server.wait_until_serving();
        server
    }

    /// Starts it again over the same data, after it has ended.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self) {
        self.child = spawn(&self.options, self.address, self.folder.path()).expect("started");
        self.wait_until_serving();
    }

    fn wait_until_serving(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the server ended with {status}: {}", self.errors());
            }
            let healthy = Connection::open(self.address).and_then(|mut c| c.request("GET", "/healthz", &[], b""));
            if healthy.is_ok_and(|reply| reply.status == 200) {
                return;
            }
            assert!(Instant::now() < deadline, "the server does not serve: {}", self.errors());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://address`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to standard error since the last start.
    #[must_use]
    pub fn errors(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default()
    }

    /// A new connection.
    ///
    /// # Panics
    /// When it is refused.
    #[must_use]
    pub fn connect(&self) -> Connection {
        Connection::open(self.address).expect("the server accepts")
    }

    /// One request on a connection of its own.
    ///
    /// # Panics
    /// When the connection fails.
    #[must_use]
    pub fn request(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Reply {
        self.connect().request(method, path, headers, body).expect("a reply")
    }

    /// `POST /call/{path}`.
    #[must_use]
    pub fn call(&self, path: &str, input: &str) -> Reply {
        self.request("POST", &format!("/call/{path}"), &[], input.as_bytes())
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, and waits until it has drained; says whether it ended well.
    ///
    /// # Panics
    /// When it does not end.
    pub fn stop(&mut self) -> bool {
        self.terminate();
        let status = self.child.wait().expect("it ends");
        status.success()
    }

    /// SIGTERM only.
    pub fn terminate(&self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Whether the process still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound")
}

fn spawn(options: &ServerOptions, address: SocketAddr, folder: &Path) -> io::Result<Child> {
    let mut command = match options.descriptors {
        Some(descriptors) => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"")).arg(binary());
            shell
        }
        None => Command::new(binary()),
    };
    command.arg("serve").arg("--http").arg(address.to_string()).arg("--data").arg(folder.join("data"));
    for app in &options.apps {
        command.arg("--app").arg(app);
    }
    command.args(&options.arguments).envs(options.environment.iter().cloned());
    let errors = File::create(folder.join("stderr"))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn()
}
