//! The server under test.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::http::{Connection, Reply, until_taken};
use crate::{CpuUse, machine};

/// The built binary: `MILLRACE_BINARY`, or the one beside the test's own executable.
///
/// # Panics
/// When the binary has not been built.
#[must_use]
pub fn binary() -> PathBuf {
    machine::share();
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

/// Waits until `condition` holds. The limit only bounds the time of a failing test.
///
/// # Panics
/// When the condition does not hold within half a minute.
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    wait_at_most(Duration::from_secs(30), what, condition);
}

fn wait_at_most(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The options with which a server is started.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Apps: folders, relative to the repository or absolute.
    pub apps: Vec<PathBuf>,
    /// Further arguments of `millrace serve`.
    pub arguments: Vec<String>,
    /// Soft and hard limits of open files.
    pub descriptors: Option<u32>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
    /// The address to listen at; a free port of 127.0.0.1 by default.
    pub address: Option<SocketAddr>,
    /// The folder that holds the data directory, if the test brings its own.
    pub folder: Option<PathBuf>,
    /// A command that runs the server, such as `nsenter …`.
    pub wrapper: Vec<String>,
}

impl ServerOptions {
    /// Serves the named bundled examples on two cores.
    #[must_use]
    pub fn examples(names: &[&str]) -> Self {
        let apps = names.iter().map(|name| repository().join("examples").join(name)).collect();
        Self { apps, arguments: vec!["--cores".into(), "2".into(), "--log".into(), "warn".into()], ..Self::default() }
    }

    /// Serves the named apps of `tests/apps` too.
    #[must_use]
    pub fn and_test_apps(mut self, names: &[&str]) -> Self {
        self.apps.extend(names.iter().map(|name| repository().join("tests").join("apps").join(name)));
        self
    }

    /// Sets or replaces one argument that has a value.
    pub fn set(&mut self, flag: &str, value: &str) {
        match self.arguments.iter().position(|argument| argument == flag) {
            Some(index) => value.clone_into(&mut self.arguments[index + 1]),
            None => self.arguments.extend([flag.to_owned(), value.to_owned()]),
        }
    }

    /// Adds arguments.
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
    folder: Folder,
}

/// The file that has the server's standard output.
const GREETING: &str = "stdout";

/// The folder of the data directory and the captured output.
struct Folder {
    own: TempDir,
    data: PathBuf,
}

impl Folder {
    fn new(options: &ServerOptions) -> Self {
        let own = tempfile::tempdir().expect("a folder");
        let data = options.folder.clone().unwrap_or_else(|| own.path().to_owned()).join("data");
        Self { own, data }
    }
}

impl Server {
    /// Starts a server over a new data directory and waits until it serves.
    ///
    /// # Panics
    /// When the server does not start.
    #[must_use]
    pub fn start(options: ServerOptions) -> Self {
        let mut server = Self::spawn(options);
        server.wait_until_serving();
        server
    }

    /// Starts a server that speaks TLS, and waits until it says that it serves.
    ///
    /// # Panics
    /// When the server does not start.
    #[must_use]
    pub fn start_tls(options: ServerOptions) -> Self {
        let mut server = Self::spawn(options);
        wait_until("the server serves", || {
            assert!(server.is_running(), "{}", server.errors());
            std::fs::read_to_string(server.folder.own.path().join(GREETING))
                .is_ok_and(|said| said.contains("serves at"))
        });
        server
    }

    /// Starts a server that is expected to refuse, and returns its standard error.
    ///
    /// # Panics
    /// When the server starts, or ends without an error.
    #[must_use]
    pub fn refuses(options: ServerOptions) -> String {
        let mut server = Self::spawn(options);
        let mut status = None;
        wait_until("the server refuses to start", || {
            status = server.child.try_wait().expect("waited for");
            status.is_some()
        });
        let status = status.expect("waited for");
        assert!(!status.success(), "it ended without an error: {}", server.errors());
        server.errors()
    }

    /// Starts a server that may refuse: what it wrote to standard error then.
    ///
    /// # Errors
    /// The refusal.
    ///
    /// # Panics
    /// When it neither serves nor ends.
    pub fn start_or_refusal(options: ServerOptions) -> Result<Self, String> {
        let mut server = Self::spawn(options);
        let mut is_over = false;
        wait_until("the server serves or refuses to start", || {
            is_over = !server.is_running();
            is_over || server.is_healthy()
        });
        if is_over { Err(server.errors()) } else { Ok(server) }
    }

    fn spawn(options: ServerOptions) -> Self {
        let folder = Folder::new(&options);
        let address = options.address.unwrap_or_else(free_address);
        let child = spawn(&options, address, &folder).expect("started");
        Self { child, address, options, folder }
    }

    /// The options for the next start.
    pub fn options(&mut self) -> &mut ServerOptions {
        &mut self.options
    }

    fn is_healthy(&self) -> bool {
        let healthy = Connection::open(self.address).and_then(|mut c| c.request("GET", "/healthz", &[], b""));
        healthy.is_ok_and(|reply| reply.status == 200)
    }

    /// Starts the server again over the same data, after it has ended.
    ///
    /// # Panics
    /// When the server does not start, or has not ended: its replies would be taken for those of the next one.
    pub fn restart(&mut self) {
        assert!(!self.is_running(), "the server still runs");
        self.child = spawn(&self.options, self.address, &self.folder).expect("started");
        self.wait_until_serving();
    }

    /// Starts the server again over the same data and expects that it refuses; see [`Server::refuses`].
    ///
    /// # Panics
    /// When the server starts.
    #[must_use]
    pub fn restart_refuses(&mut self) -> String {
        self.child = spawn(&self.options, self.address, &self.folder).expect("started");
        let mut status = None;
        wait_until("the server refuses to start", || {
            status = self.child.try_wait().expect("waited for");
            status.is_some()
        });
        assert!(status.is_some_and(|status| !status.success()), "it started, or ended well: {}", self.errors());
        self.errors()
    }

    fn wait_until_serving(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the server ended with {status}: {}", self.errors());
            }
            if self.is_healthy() {
                return;
            }
            assert!(Instant::now() < deadline, "the server does not serve: {}", self.errors());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Makes the manifest list the files of the stopped server's directory as they are: a test has changed some.
    ///
    /// # Panics
    /// When the directory is in use.
    pub fn list_changed_files(&self) {
        let data = self.data();
        let repaired = crate::millrace(&["repair", "--accept-loss", "--data", data.to_str().expect("a path")]);
        assert_eq!(repaired.code, Some(0), "{}", repaired.err);
    }

    /// The server's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://address`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The server's data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.data.clone()
    }

    /// The server's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The standard error since the last start.
    #[must_use]
    pub fn errors(&self) -> String {
        std::fs::read_to_string(self.folder.own.path().join("stderr")).unwrap_or_default()
    }

    /// Opens a new connection.
    ///
    /// # Panics
    /// When the server refuses the connection.
    #[must_use]
    pub fn connect(&self) -> Connection {
        Connection::open(self.address).expect("the server accepts")
    }

    /// Sends one request on a connection of its own.
    ///
    /// # Panics
    /// When the connection fails.
    #[must_use]
    pub fn request(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Reply {
        self.connect().request(method, path, headers, body).expect("a reply")
    }

    /// Calls a handler: `POST /call/{path}`.
    #[must_use]
    pub fn call(&self, path: &str, input: &str) -> Reply {
        self.request("POST", &format!("/call/{path}"), &[], input.as_bytes())
    }

    /// Calls a handler, which must succeed: `POST /call/{path}`. Returns the reply's JSON.
    ///
    /// # Panics
    /// When the call does not succeed.
    #[must_use]
    pub fn value(&self, path: &str, input: &str) -> serde_json::Value {
        let reply = until_taken(|| self.call(path, input));
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()
    }

    /// Gets a path, which must succeed. Returns the reply's JSON.
    ///
    /// # Panics
    /// When the request does not succeed.
    #[must_use]
    pub fn get(&self, path: &str) -> serde_json::Value {
        let reply = until_taken(|| self.request("GET", path, &[], b""));
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()
    }

    /// Starts a workflow, or sends a call: `POST /send/{path}`. Returns its id.
    ///
    /// # Panics
    /// When the request does not succeed.
    #[must_use]
    pub fn send(&self, path: &str, input: &str) -> String {
        let reply = until_taken(|| self.request("POST", &format!("/send/{path}"), &[], input.as_bytes()));
        assert_eq!(reply.status, 202, "{path}: {}", reply.text());
        reply.json()["id"].as_str().expect("an id").to_owned()
    }

    /// Waits until an invocation has ended, and returns its result.
    ///
    /// # Panics
    /// When the invocation does not end within half a minute.
    #[must_use]
    pub fn ended(&self, id: &str) -> serde_json::Value {
        let mut found = serde_json::Value::Null;
        wait_until("the invocation has ended", || {
            found = self.get(&format!("/invocations/{id}?wait_ms=5000"));
            ["succeeded", "failed", "cancelled"].iter().any(|status| found["status"] == *status)
        });
        found
    }

    /// All workflows that pass a filter (such as `service=trip`), page by page.
    ///
    /// # Panics
    /// When the server refuses a page.
    #[must_use]
    pub fn invocations(&self, filter: &str, page: usize) -> Vec<serde_json::Value> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let found = self.get(&format!("/invocations?{filter}&limit={page}{after}"));
            let items = found["invocations"].as_array().expect("a list");
            assert!(items.len() <= page, "{} on a page of {page}", items.len());
            all.extend(items.iter().cloned());
            match found["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return all,
            }
        }
    }

    /// All dead letters. There must be no more than one page of them.
    ///
    /// # Panics
    /// When there are more.
    #[must_use]
    pub fn dead_letters(&self) -> Vec<serde_json::Value> {
        let page = self.get("/dead-letters?limit=1000");
        assert_eq!(page["next"], serde_json::Value::Null);
        page["dead_letters"].as_array().expect("a list").clone()
    }

    /// The sum of a metric's samples over all labels, or 0 without samples.
    #[must_use]
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.request("GET", "/metrics", &[], b"").text();
        let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
        let named = samples.filter(|(sample, _)| sample.split('{').next() == Some(name));
        named.map(|(_, value)| value.parse::<f64>().unwrap_or(f64::NAN)).sum()
    }

    /// One line of `/proc/{pid}/status`, in KiB.
    ///
    /// # Panics
    /// When there is no such line.
    #[must_use]
    pub fn status_kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("a known name");
        line.trim().trim_end_matches("kB").trim().parse().expect("a number")
    }

    /// The CPU time that all threads of the process have used so far, in steps of 10 ms.
    ///
    /// # Panics
    /// When the process has ended.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("the process runs");
        // proc_pid_stat(5): the program's name ends with `)`; the 12th and 13th field after it are user and
        // system time in ticks, of which Linux has 100 a second for every program.
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        let ticks = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number"));
        Duration::from_millis(ticks.sum::<u64>() * 10)
    }

    /// What the threads that run functions got of the CPUs so far, by core.
    ///
    /// # Panics
    /// When the process has ended, or when the kernel does not say.
    #[must_use]
    pub fn cpu_use(&self) -> Vec<CpuUse> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("the process runs");
        let named = threads.filter_map(|thread| {
            let path = thread.ok()?.path();
            let name = std::fs::read_to_string(path.join("comm")).ok()?;
            let core: usize = name.trim_end().strip_prefix("core-")?.parse().ok()?;
            Some((core, CpuUse::of_thread(&path)?))
        });
        let mut cores: Vec<(usize, CpuUse)> = named.collect();
        cores.sort_unstable_by_key(|(core, _)| *core);
        assert!(!cores.is_empty(), "no thread of the server is a core's");
        cores.into_iter().map(|(_, used)| used).collect()
    }

    /// Sends `kill -9`, and waits until the process is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM, waits until the server has drained, and says whether it ended well.
    ///
    /// # Panics
    /// When the server does not end.
    pub fn stop(&mut self) -> bool {
        self.terminate();
        self.ends_well()
    }

    /// Waits until the server has ended by itself, and says whether it ended well.
    ///
    /// # Panics
    /// When the server does not end.
    pub fn ends_well(&mut self) -> bool {
        let mut status = None;
        // It may drain for half a minute.
        wait_at_most(Duration::from_secs(90), "the server has ended", || {
            status = self.child.try_wait().expect("waited for");
            status.is_some()
        });
        status.is_some_and(|status| status.success())
    }

    /// Sends SIGTERM and does not wait.
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

/// A free port below those that the kernel gives to outgoing connections. So while a server restarts, no client can
/// get its port.
#[must_use]
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 12_000;
    const COUNT: u16 = 18_000;
    // Test programs that run at the same time begin at different ports.
    let begin = (std::process::id().wrapping_mul(97) % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let offset = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", FIRST + offset)) {
            return listener.local_addr().expect("bound");
        }
    }
    panic!("no port is free");
}

/// Listens at an address that was free. A program that another test starts at this moment inherits open sockets until
/// it runs. The port that was tried may be among them.
///
/// # Panics
/// When the address is taken for half a minute.
#[must_use]
pub fn listen(address: SocketAddr) -> TcpListener {
    let mut listener = None;
    wait_until("the port is free", || {
        listener = TcpListener::bind(address).ok();
        listener.is_some()
    });
    listener.expect("bound")
}

fn spawn(options: &ServerOptions, address: SocketAddr, folder: &Folder) -> io::Result<Child> {
    let mut words: Vec<OsString> = options.wrapper.iter().map(OsString::from).collect();
    if let Some(descriptors) = options.descriptors {
        let script = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
        words.extend(["sh".into(), "-c".into(), script.into()]);
    }
    words.push(binary().into());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command.arg("serve").arg("--http").arg(address.to_string()).arg("--data").arg(&folder.data);
    for app in &options.apps {
        command.arg("--app").arg(app);
    }
    command.args(&options.arguments).envs(options.environment.iter().cloned());
    let errors = File::create(folder.own.path().join("stderr"))?;
    let greeting = File::create(folder.own.path().join(GREETING))?;
    command.stdin(Stdio::null()).stdout(greeting).stderr(errors).spawn()
}
