//! Clients of the bundled examples that work through `kill -9`. Afterwards the test judges three things: what each
//! client asked and was told, repeated calls, and that the server holds no lock at rest.
//!
//! `MILLRACE_TEST_KILLS` is the number of kills in each test (4 in a normal run). `MILLRACE_TEST_SEED` chooses the
//! moments.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use millrace_history::{Access, Fact, Found, Recorder, verdict};
use serde_json::Value;

use crate::{Client, Load, Random, Reply, Server, ServerOptions, Shared, number_from_env};

/// The clients of one test.
pub const CLIENTS: u64 = 8;

/// The least number of calls that are acknowledged between two kills.
const CALLS_PER_LIFE: u64 = 50;

/// The average number of those calls that are in the history. The checkers have no word for some calls.
const RECORDED_PER_LIFE: u64 = 20;

/// How often a test kills its server.
#[must_use]
pub fn kills() -> u64 {
    number_from_env("MILLRACE_TEST_KILLS", 4) as u64
}

/// Serves one example.
#[must_use]
pub fn start(example: &str) -> Server {
    Server::start(ServerOptions::examples(&[example]))
}

/// Restarts a server with another number of cores.
pub fn other_cores(server: &mut Server, life: u64) {
    server.options().set("--cores", ["1", "3", "2", "4"][life as usize % 4]);
}

/// A call with a key, and its reply.
pub struct Kept {
    path: String,
    key: String,
    body: String,
    status: u16,
    text: String,
}

/// Whether the service has a reason to refuse a call. If it has no reason, a refusal is the server's fault.
struct MayRefuse(bool);

/// One client, whose calls are recorded. Most clients send keys and repeat a call until it is answered. The others
/// record an unanswered call as unknown.
pub struct Caller<'a> {
    /// Clients whose number is divisible by this send no keys.
    pub without_key: u64,
    /// Sends calls that are not recorded.
    pub client: Client<'a>,
    /// Records the calls that `client` sends.
    pub history: millrace_history::Client,
    /// The random choices of this client.
    pub random: Random,
    /// The client's number, from 0.
    pub number: u64,
    /// Recorded and keyed calls so far.
    pub calls: u64,
    kept: Vec<Kept>,
}

impl<'a> Caller<'a> {
    fn new(number: u64, shared: &'a Shared, recorder: &Recorder) -> Self {
        let (client, history) = (Client::new(shared), recorder.client());
        Self { without_key: 2, client, history, random: Random::of(number), number, calls: 0, kept: Vec::new() }
    }

    /// Whether the client has to stop.
    #[must_use]
    pub fn stops(&self) -> bool {
        self.client.stops()
    }

    /// The kind of one client.
    pub fn pick<'n>(&mut self, names: &[&'n str]) -> &'n str {
        names[self.random.below(names.len() as u64) as usize]
    }

    /// Posts a call that the service has no reason to refuse. Returns the reply's JSON if the status is 200 or 201.
    ///
    /// # Panics
    /// For any other answer but 503, which promises that nothing has happened.
    pub fn post(
        &mut self,
        steps: impl IntoIterator<Item = Access>,
        path: &str,
        body: &Value,
        found: impl FnOnce(&Value) -> Vec<Found>,
    ) -> Option<Value> {
        self.exchange(steps, path, body.to_string(), MayRefuse(false), found)
    }

    /// Like [`Caller::post`], but the service may refuse with 409 and `aborted`, which promise the same.
    ///
    /// # Panics
    /// For any other answer.
    pub fn post_or_be_refused(
        &mut self,
        steps: impl IntoIterator<Item = Access>,
        path: &str,
        body: &Value,
        found: impl FnOnce(&Value) -> Vec<Found>,
    ) -> Option<Value> {
        self.exchange(steps, path, body.to_string(), MayRefuse(true), found)
    }

    /// Like [`Caller::post`], with a body that is not JSON.
    ///
    /// # Panics
    /// Like [`Caller::post`].
    pub fn post_text(
        &mut self,
        steps: impl IntoIterator<Item = Access>,
        path: &str,
        body: String,
        found: impl FnOnce(&Value) -> Vec<Found>,
    ) -> Option<Value> {
        self.exchange(steps, path, body, MayRefuse(false), found)
    }

    fn exchange(
        &mut self,
        steps: impl IntoIterator<Item = Access>,
        path: &str,
        body: String,
        MayRefuse(may_refuse): MayRefuse,
        found: impl FnOnce(&Value) -> Vec<Found>,
    ) -> Option<Value> {
        self.calls += 1;
        let call = self.history.invoke(steps);
        let key = format!("{}-{}", self.number, self.calls);
        let reply = if !self.number.is_multiple_of(self.without_key) {
            let header = format!("Idempotency-Key: {key}");
            let reply = self.client.until_answered("POST", path, &[&header], &body);
            let (status, text) = (reply.status, reply.text());
            self.kept.push(Kept { path: path.to_owned(), key, body, status, text });
            Some(reply)
        } else {
            self.client.once("POST", path, &[], &body)
        };
        match reply {
            Some(reply) if [200, 201].contains(&reply.status) => {
                call.ok(found(&reply.json()));
                self.client.acknowledged();
                return Some(reply.json());
            }
            // Both statuses promise that nothing has happened.
            Some(reply) if reply.status == 503 => call.fail(reply.code()),
            Some(reply) if may_refuse && reply.status == 409 && reply.code() == "aborted" => call.fail(reply.code()),
            // The server itself begins a transaction again that gives way to another. So the client was told the
            // reason of every other refusal. No call reaches the limit on waiting here, unless a lock is never
            // released.
            Some(reply) => panic!("{path} {}: {}", reply.status, reply.text()),
            None => call.unknown("no answer"),
        }
        None
    }

    /// Posts with a key until an answer comes. The call is not recorded.
    pub fn surely(&mut self, path: &str, body: &Value) -> Reply {
        self.calls += 1;
        let header = format!("Idempotency-Key: {}-{}", self.number, self.calls);
        let reply = self.client.until_answered("POST", path, &[&header], &body.to_string());
        self.client.acknowledged();
        reply
    }

    /// Reads a value that must exist.
    ///
    /// # Panics
    /// For any other answer but 503.
    pub fn get(
        &mut self,
        steps: impl IntoIterator<Item = Access>,
        path: &str,
        found: impl FnOnce(&Value) -> Vec<Found>,
    ) {
        self.look("GET", steps, path, found);
    }

    /// Like [`Caller::get`], by a call of a query. The server keeps nothing of its reply.
    ///
    /// # Panics
    /// Like [`Caller::get`].
    pub fn query(
        &mut self,
        steps: impl IntoIterator<Item = Access>,
        path: &str,
        found: impl FnOnce(&Value) -> Vec<Found>,
    ) {
        self.look("POST", steps, path, found);
    }

    fn look(
        &mut self,
        method: &str,
        steps: impl IntoIterator<Item = Access>,
        path: &str,
        found: impl FnOnce(&Value) -> Vec<Found>,
    ) {
        let call = self.history.invoke(steps);
        match self.client.once(method, path, &[], "") {
            Some(reply) if reply.status == 200 => call.ok(found(&reply.json())),
            Some(reply) if reply.status == 503 => call.fail(reply.code()),
            Some(reply) => panic!("{path} {}: {}", reply.status, reply.text()),
            // A read has no effect, answered or not.
            None => call.fail("no answer"),
        }
    }
}

/// A number in a reply.
///
/// # Panics
/// When the reply is not a number.
#[must_use]
pub fn number(value: &Value) -> Found {
    Found::Number(value.as_i64().unwrap_or_else(|| panic!("{value} is not a number")))
}

/// A list in a reply.
///
/// # Panics
/// When the reply is not a list.
#[must_use]
pub fn list(value: &Value) -> Found {
    Found::list(value.as_array().unwrap_or_else(|| panic!("{value} is not a list")))
}

/// Runs clients through all kills. Returns what they kept, in the order of their numbers.
///
/// # Panics
/// Like [`run_through`].
pub fn run<T: Send + 'static>(
    server: &mut Server,
    recorder: &Recorder,
    clients: u64,
    client: impl Fn(&mut Caller<'_>) -> T + Send + Sync + 'static,
) -> (Vec<Kept>, Vec<T>) {
    run_through(kills(), server, recorder, clients, client)
}

/// Like [`run`], through this number of kills.
///
/// # Panics
/// When the clients have done too little to prove anything.
pub fn run_through<T: Send + 'static>(
    kills: u64,
    server: &mut Server,
    recorder: &Recorder,
    clients: u64,
    client: impl Fn(&mut Caller<'_>) -> T + Send + Sync + 'static,
) -> (Vec<Kept>, Vec<T>) {
    let shared = recorder.clone();
    let load = Load::start(server, clients, move |number, stops| {
        let mut caller = Caller::new(number, stops, &shared);
        let told = client(&mut caller);
        (caller.kept, told)
    });
    load.kill_at_random(server, kills, CALLS_PER_LIFE, &mut Random::new(), other_cores);
    let (kept, told): (Vec<_>, Vec<_>) = load.finish().into_iter().unzip();
    let (ok, ..) = recorder.history().outcomes();
    let least = (kills + 1) * RECORDED_PER_LIFE;
    assert!(ok as u64 >= least, "too few calls to prove anything: {ok} of {least}");
    // One more restart, so that the check at rest sees what a start makes of the data.
    server.kill();
    server.restart();
    (kept.into_iter().flatten().collect(), told)
}

/// Repeated calls get their first reply, and the server holds nothing at rest.
///
/// # Panics
/// When a repeated call gets another reply.
pub fn settle(server: &Server, recorder: &Recorder, kept: &[Kept]) {
    let mut connection = server.connect();
    let step = kept.len().div_ceil(200).max(1);
    for Kept { path, key, body, status, text } in kept.iter().rev().step_by(step) {
        let header = format!("Idempotency-Key: {key}");
        let reply = connection.request("POST", path, &[&header], body.as_bytes()).expect("a reply");
        assert_eq!((reply.status, &reply.text()), (*status, text), "{path} {key} got another reply when repeated");
    }
    // The server sets its gauges at a tick, so a held lock shows at the next tick at the latest.
    for what in ["waiting_transactions", "locked_entities", "unfinished_commits"] {
        let count = || server.metric(&format!("millrace_{what}"));
        // What is still held then is noted.
        let deadline = Instant::now() + Duration::from_secs(30);
        while count() != 0.0 && Instant::now() < deadline {
            sleep(Duration::from_millis(10));
        }
        recorder.note(Fact::AtRest { what: what.replace('_', " "), count: count() as i64 });
    }
}

/// Runs all checkers over the history. A history that is not sound is kept in `folder`.
///
/// # Panics
/// When the history is not sound.
pub fn judge(recorder: &Recorder, name: &str, folder: &str) {
    let history = recorder.history();
    let path = Path::new(folder).join(format!("{name}.jsonl"));
    if let Err(anomalies) = history.check_or_keep(&path) {
        panic!("{name}: {anomalies}");
    }
    println!("{name}: {}", verdict(&history));
}

/// Every entity can be written at once: no lock is left on it.
///
/// # Panics
/// When a write neither succeeds nor is refused.
pub fn is_free(server: &Server, path: &str, body: &Value) -> Reply {
    let reply = server.request("POST", path, &[], body.to_string().as_bytes());
    assert!([200, 409].contains(&reply.status), "{path} {body}: {}", reply.text());
    reply
}
