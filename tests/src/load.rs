//! Clients that work while the server is killed and restarted, and remember what they were told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::{Connection, Reply, Server, wait_until};

/// A client that waits longer for an answer waits for a server that does not come back. A read of a connection may take
/// half of it.
const PATIENCE: Duration = Duration::from_secs(120);

/// The state that the clients and the test share.
pub struct Shared {
    address: SocketAddr,
    stops: AtomicBool,
    acknowledged: AtomicU64,
}

impl Shared {
    /// Whether the clients have to stop.
    #[must_use]
    pub fn stops(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    /// The server's address, whenever there is a server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counts an acknowledged call.
    pub fn acknowledge(&self) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}

/// Tells the threads of a scope to stop when the work beside them has ended, even by a panic. The scope waits for its
/// threads.
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Clients that run until the test tells them to stop.
pub struct Load<T> {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<T>>,
}

impl<T: Send + 'static> Load<T> {
    /// Starts this number of clients, numbered from 0.
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

    /// The number of acknowledged calls so far.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.shared.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits until this number of further calls is acknowledged.
    ///
    /// # Panics
    /// When a client has ended, or when nothing happens for half a minute.
    pub fn wait_for(&self, more: u64) {
        let enough = self.acknowledged() + more;
        wait_until("the clients get on", || {
            assert!(!self.clients.iter().any(JoinHandle::is_finished), "a client has ended early");
            self.acknowledged() >= enough
        });
    }

    /// Kills and restarts the server this often. Each kill comes at a random moment after a number of acknowledged
    /// calls. The same number of calls follows the last restart. `before_restart` may change the server's options.
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

    /// Tells the clients to stop, and waits for their results.
    ///
    /// # Panics
    /// When a client saw something wrong.
    pub fn finish(mut self) -> Vec<T> {
        self.shared.stops.store(true, Ordering::Relaxed);
        let clients = std::mem::take(&mut self.clients);
        clients.into_iter().map(|client| client.join().expect("the client saw nothing wrong")).collect()
    }
}

/// The clients of a test that failed do not go on beside the next ones.
impl<T> Drop for Load<T> {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Relaxed);
    }
}

/// One client's connection. It connects again whenever the connection breaks.
pub struct Client<'a> {
    shared: &'a Shared,
    connection: Option<Connection>,
}

impl<'a> Client<'a> {
    /// A client that has not connected yet.
    #[must_use]
    pub fn new(shared: &'a Shared) -> Self {
        Self { shared, connection: None }
    }

    /// Whether the client has to stop.
    #[must_use]
    pub fn stops(&self) -> bool {
        self.shared.stops()
    }

    /// Counts an acknowledged call.
    pub fn acknowledged(&self) {
        self.shared.acknowledge();
    }

    /// Connects if there is no connection, and waits while there is no server, until [`PATIENCE`] is over.
    fn connect(&mut self) -> &mut Connection {
        let deadline = Instant::now() + PATIENCE;
        while self.connection.is_none() {
            match Connection::open(self.shared.address) {
                Ok(connection) => self.connection = Some(connection),
                Err(_) => sleep(Duration::from_millis(2)),
            }
            assert!(Instant::now() < deadline || self.connection.is_some(), "no server for {PATIENCE:?}");
        }
        self.connection.as_mut().expect("connected above")
    }

    /// Sends once. `None` means that no answer came, so nobody knows whether the call took effect.
    pub fn once(&mut self, method: &str, path: &str, headers: &[&str], body: &str) -> Option<Reply> {
        let reply = self.connect().request(method, path, headers, body.as_bytes());
        if reply.is_err() {
            self.connection = None;
        }
        reply.ok()
    }

    /// Sends until an answer comes that does not say "try again".
    ///
    /// # Panics
    /// When none comes within [`PATIENCE`].
    pub fn until_answered(&mut self, method: &str, path: &str, headers: &[&str], body: &str) -> Reply {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.once(method, path, headers, body) {
                Some(reply) if reply.status == 503 => {
                    assert!(Instant::now() < deadline, "{path} is refused for {PATIENCE:?}: {}", reply.text());
                    sleep(Duration::from_millis(2));
                }
                Some(reply) => return reply,
                None => assert!(Instant::now() < deadline, "no answer to {path} for {PATIENCE:?}"),
            }
        }
    }

    /// Calls until an answer comes, which must be 200. Returns its JSON.
    ///
    /// # Panics
    /// For any other answer.
    pub fn value(&mut self, path: &str, input: &str) -> serde_json::Value {
        let reply = self.until_answered("POST", path, &[], input);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()
    }
}

/// Numbers that only have to differ each time.
pub struct Random(u64);

impl Random {
    /// Takes the seed from `MILLRACE_TEST_SEED`, or from the time, and prints it. The same seed gives the same
    /// numbers, but not the same interleaving of clients.
    ///
    /// # Panics
    /// When the variable is not a number.
    #[must_use]
    pub fn new() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = usize::try_from(since_1970.as_nanos() % 1_000_000_007).unwrap_or_default();
        let seed = crate::number_from_env("MILLRACE_TEST_SEED", time) as u64;
        println!("MILLRACE_TEST_SEED={seed}");
        Self(seed)
    }

    /// A separate sequence for each number, the same in each run.
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
