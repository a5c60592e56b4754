//! Clients of the bundled examples that work through `kill -9`, and what is judged afterwards: what each
//! asked and was told, replies that are asked for again, and that nothing is held at rest.
//!
//! `MILLRACE_TEST_KILLS` is how often in each test (4 in a normal run), `MILLRACE_TEST_SEED` chooses the moments.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use millrace_history::{Fact, Found, Recorder, Step, verdict};
use serde_json::Value;

use crate::{Client, Load, Random, Reply, Server, ServerOptions, Shared, number_from_env};

/// Clients of one test.
pub const CLIENTS: u64 = 8;

/// Calls that are acknowledged between two kills, at the least.
const CALLS_PER_LIFE: u64 = 50;

/// How many of those are in the history, on the average of all lives: some clients do what its checkers have no word for.
const RECORDED_PER_LIFE: u64 = 20;

/// How often a server is killed in one test.
#[must_use]
pub fn kills() -> u64 {
    number_from_env("MILLRACE_TEST_KILLS", 4) as u64
}

/// Serves one example.
#[must_use]
pub fn start(example: &str) -> Server {
    Server::start(ServerOptions::examples(&[example]))
}

/// Has a server come back with another number of cores than it had.
pub fn other_cores(server: &mut Server, life: u64) {
    server.options().set("--cores", ["1", "3", "2", "4"][life as usize % 4]);
}

/// A call with a key, and what became of it.
pub struct Kept {
    path: String,
    key: String,
    body: String,
    status: u16,
    text: String,
}

/// Whether the service has a reason to refuse a call: where it has none, a refusal is the server's fault.
struct MayRefuse(bool);

/// One client, whose calls are recorded. Most send keys, and ask until they are answered; the others
/// leave unknown what was not answered.
pub struct Caller<'a> {
    /// Clients whose number this divides send no keys.
    pub without_key: u64,
    /// Sends what is not recorded.
    pub client: Client<'a>,
    /// Records what `client` sends.
    pub history: millrace_history::Client,
    /// This client's choices.
    pub random: Random,
    /// From 0 on.
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

    /// Whether to stop.
    #[must_use]
    pub fn stops(&self) -> bool {
        self.client.stops()
    }

    /// One of them.
    pub fn pick<'n>(&mut self, names: &[&'n str]) -> &'n str {
        names[self.random.below(names.len() as u64) as usize]
    }

    /// Posts what the service has no reason to refuse; the reply's JSON if it is 200 or 201.
    ///
    /// # Panics
    /// For any other answer but 503, which promises that nothing has happened.
    pub fn post(
        &mut self,
        steps: impl IntoIterator<Item = Step>,
        path: &str,
        body: &Value,
        found: impl FnOnce(&Value) -> Vec<Found>,
    ) -> Option<Value> {
        self.exchange(steps, path, body.to_string(), MayRefuse(false), found)
    }

    /// As [`Caller::post`], where the service may refuse: with 409 and `aborted`, which promise the same.
    ///
    /// # Panics
    /// For any other answer.
    pub fn post_or_be_refused(
        &mut self,
        steps: impl IntoIterator<Item = Step>,
        path: &str,
        body: &Value,
        found: impl FnOnce(&Value) -> Vec<Found>,
    ) -> Option<Value> {
        self.exchange(steps, path, body.to_string(), MayRefuse(true), found)
    }

    /// As [`Caller::post`], with a body that is not JSON.
    ///
    /// # Panics
    /// As there.
    pub fn post_text(
        &mut self,
        steps: impl IntoIterator<Item = Step>,
        path: &str,
        body: String,
        found: impl FnOnce(&Value) -> Vec<Found>,
    ) -> Option<Value> {
        self.exchange(steps, path, body, MayRefuse(false), found)
    }

    fn exchange(
        &mut self,
        steps: impl IntoIterator<Item = Step>,
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
            // Both promise that nothing has happened.
            Some(reply) if reply.status == 503 => call.fail(reply.code()),
            Some(reply) if may_refuse && reply.status == 409 && reply.code() == "aborted" => call.fail(reply.code()),
            // A transaction that gives way to another is begun again by the server: whoever is refused
            // without a reason was told of that. A limit on waiting cannot be passed here, unless a lock is never given back.
            Some(reply) => panic!("{path} {}: {}", reply.status, reply.text()),
            None => call.unknown("no answer"),
        }
        None
    }

    /// Posts with a key until an answer comes, which is not recorded.
    pub fn surely(&mut self, path: &str, body: &Value) -> Reply {
        self.calls += 1;
        let header = format!("Idempotency-Key: {}-{}", self.number, self.calls);
        let reply = self.client.until_answered("POST", path, &[&header], &body.to_string());
        self.client.acknowledged();
        reply
    }

    /// Reads what must be there.
    ///
    /// # Panics
    /// For any other answer but 503.
    pub fn get(&mut self, steps: impl IntoIterator<Item = Step>, path: &str, found: impl FnOnce(&Value) -> Vec<Found>) {
        self.look("GET", steps, path, found);
    }

    /// As [`Caller::get`], by a call of a query, of whose reply nothing is kept.
    ///
    /// # Panics
    /// As there.
    pub fn query(
        &mut self,
        steps: impl IntoIterator<Item = Step>,
        path: &str,
        found: impl FnOnce(&Value) -> Vec<Found>,
    ) {
        self.look("POST", steps, path, found);
    }

    fn look(
        &mut self,
        method: &str,
        steps: impl IntoIterator<Item = Step>,
        path: &str,
        found: impl FnOnce(&Value) -> Vec<Found>,
    ) {
        let call = self.history.invoke(steps);
        match self.client.once(method, path, &[], "") {
            Some(reply) if reply.status == 200 => call.ok(found(&reply.json())),
            Some(reply) if reply.status == 503 => call.fail(reply.code()),
            Some(reply) => panic!("{path} {}: {}", reply.status, reply.text()),
            // Whoever reads has no effect, answered or not.
            None => call.fail("no answer"),
        }
    }
}

/// A number that a reply holds.
///
/// # Panics
/// When it is none.
#[must_use]
pub fn number(value: &Value) -> Found {
    Found::Number(value.as_i64().unwrap_or_else(|| panic!("{value} is not a number")))
}

/// A list that a reply holds.
///
/// # Panics
/// When it is none.
#[must_use]
pub fn list(value: &Value) -> Found {
    Found::list(value.as_array().unwrap_or_else(|| panic!("{value} is not a list")))
}

/// Runs clients through all kills; what they kept, in the order of their numbers.
///
/// # Panics
/// As [`run_through`].
pub fn run<T: Send + 'static>(
    server: &mut Server,
    recorder: &Recorder,
    clients: u64,
    client: impl Fn(&mut Caller<'_>) -> T + Send + Sync + 'static,
) -> (Vec<Kept>, Vec<T>) {
    run_through(kills(), server, recorder, clients, client)
}

/// As [`run`], through so many kills.
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
    // One more, so that what is checked at rest is what a start makes of it.
    server.kill();
    server.restart();
    (kept.into_iter().flatten().collect(), told)
}

/// Repeated calls get the reply they got before; nothing is held at rest.
///
/// # Panics
/// When one gets another reply.
pub fn settle(server: &Server, recorder: &Recorder, kept: &[Kept]) {
    let mut connection = server.connect();
    let step = kept.len().div_ceil(200).max(1);
    for Kept { path, key, body, status, text } in kept.iter().rev().step_by(step) {
        let header = format!("Idempotency-Key: {key}");
        let reply = connection.request("POST", path, &[&header], body.as_bytes()).expect("a reply");
        assert_eq!((reply.status, &reply.text()), (*status, text), "{path} {key} got another reply when repeated");
    }
    // Gauges are set at a tick: what is held shows, at the latest, at the next one.
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

/// Has all checkers look at the history; one that is not sound is kept in `folder`.
///
/// # Panics
/// When it is not sound.
pub fn judge(recorder: &Recorder, name: &str, folder: &str) {
    let history = recorder.history();
    let path = Path::new(folder).join(format!("{name}.jsonl"));
    if let Err(anomalies) = history.check_or_keep(&path) {
        panic!("{name}: {anomalies}");
    }
    println!("{name}: {}", verdict(&history));
}

/// Every entity can be written at once: nobody has left a lock on it.
///
/// # Panics
/// When it is neither done nor refused.
pub fn is_free(server: &Server, path: &str, body: &Value) -> Reply {
    let reply = server.request("POST", path, &[], body.to_string().as_bytes());
    assert!([200, 409].contains(&reply.status), "{path} {body}: {}", reply.text());
    reply
}
