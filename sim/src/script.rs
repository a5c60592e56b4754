//! Scripts: what a handler does in the simulated world, as JSON that travels as its input.
//!
//! A script is an array of operations, each an array that starts with its name:
//!
//! ```text
//! ["get", field]                      ["set", field, value]        ["add", field, n]
//! ["delete", field]                   ["scan", prefix, limit]      ["at_least", field, n]
//! ["push", field, value]              ["tag", name]                ["keep"]  ["kept"]
//! ["keys", service, prefix, after or null, limit]
//! ["record", "read" or "write" or "find", type, id, script]
//! ["call", callee]                    ["try", callee]              ["start", callee]
//! ["all", [callee, …]]                ["settle", [callee, …]]
//! ["send", callee, delay_ms, id]      ["hash"]  ["start_hash"]
//! ["work", ms]                        ["random"]  ["now"]  ["log", text]  ["abort", text]  ["fail", text]  ["return", value]
//! ["flaky", n]                        ["retry", attempts or null, pause_ms]
//! callee = [service, key, handler, script]
//!
//! in workflows:
//! ["sleep", ms]                       ["wait", name, ms or null]   ["try_wait", name, ms]
//! ["result", id or null, ms or null]  ["try_result", id or null, ms or null]
//! ["step", name, value]               ["fail_step", name]          ["call_in_step", name, callee]
//! ["abort_step", name]                ["flaky_step", name, mark]
//! ["fetch", path]                     ["try_fetch", path]          ["compensate", callee]
//! ["signal", id or null, name, value] ["id"]  ["program"]  ["program_here"]
//! ["race", [operation, …]]            ["both", [operation, …]]     ["when", value, [operation, …]]
//! ["beside", operation, callee or null]
//! ["unless_again", text, [operation, …]]
//! ```
//!
//! `call` awaits its callee and fails with it; `try` goes on with `null`; `start` does not await.
//! `all` awaits several that run at the same time and fails as soon as one does; `settle` awaits
//! them all whatever they give. `hash` is work done outside the shard. `at_least` aborts when the
//! field holds less. `work` uses CPU time. `push` appends to a list and gives it. A script's output is the value of its last operation.
//!
//! `keep` sets the value of the last operation aside, `kept` gives the array of all that was; `tag` makes it an object with that
//! name. Keys and scripts of callees are computed where they hold `{"kept": [index, …]}`, a part of what is
//! kept, or `{"text": [part, …]}`, the parts as one text. Both are filled in by the script that calls, at whatever depth they stand.
//!
//! `race` gives the number of the operation that ends first and forgets the others, `both` awaits
//! them all whatever they give; `beside` awaits nothing, and calls when the operation has ended well. `when` goes on with more operations if the last one gave the value;
//! `retry` says how the next call or step is tried; without a number of attempts it is without end. `flaky` fails once in n times. `flaky_step` fails until the program has come by the mark.
//! `unless_again` with those instead of the rest if the program has come by it before. A `signal` or `result`
//! without an id is for the workflow that the script sent last.

use serde_json::{Value, json};

/// A script being written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script(Vec<Value>);

/// Which handler of which entity to call with which script.
#[derive(Clone, Debug, PartialEq)]
pub struct Callee(Value);

impl Callee {
    /// The handler that may write.
    #[must_use]
    pub fn run(service: &str, key: &str, script: Script) -> Self {
        Self(json!([service, key, "run", script.0]))
    }

    /// The query.
    #[must_use]
    pub fn read(service: &str, key: &str, script: Script) -> Self {
        Self(json!([service, key, "read", script.0]))
    }

    /// The workflow.
    #[must_use]
    pub fn flow(service: &str, key: &str, script: Script) -> Self {
        Self(json!([service, key, "flow", script.0]))
    }

    /// The handler that may write, of an entity whose key is computed.
    #[must_use]
    pub fn run_computed(service: &str, key: Value, script: Script) -> Self {
        Self(json!([service, key, "run", script.0]))
    }

    /// A handler that no service has.
    #[must_use]
    pub fn unknown(service: &str, key: &str) -> Self {
        Self(json!([service, key, "nothing", []]))
    }
}

impl Script {
    /// An empty script.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn then(mut self, operation: Value) -> Self {
        self.0.push(operation);
        self
    }

    #[must_use]
    pub fn get(self, field: &str) -> Self {
        self.then(json!(["get", field]))
    }

    #[must_use]
    pub fn set(self, field: &str, value: impl Into<Value>) -> Self {
        self.then(json!(["set", field, value.into()]))
    }

    #[must_use]
    pub fn work(self, cpu_ms: u64) -> Self {
        self.then(json!(["work", cpu_ms]))
    }

    #[must_use]
    pub fn add(self, field: &str, number: i64) -> Self {
        self.then(json!(["add", field, number]))
    }

    #[must_use]
    pub fn delete(self, field: &str) -> Self {
        self.then(json!(["delete", field]))
    }

    #[must_use]
    pub fn scan(self, prefix: &str, limit: usize) -> Self {
        self.then(json!(["scan", prefix, limit]))
    }

    #[must_use]
    pub fn keys(self, service: u16, prefix: &str, after: Option<&str>, limit: usize) -> Self {
        self.then(json!(["keys", service, prefix, after, limit]))
    }

    /// `what` is `read`, `write` or, about the type, `find`.
    #[must_use]
    pub fn record(self, what: &str, type_name: &str, id: &str, script: Script) -> Self {
        self.then(json!(["record", what, type_name, id, script.0]))
    }

    #[must_use]
    pub fn push(self, field: &str, value: impl Into<Value>) -> Self {
        self.then(json!(["push", field, value.into()]))
    }

    #[must_use]
    pub fn tag(self, name: &str) -> Self {
        self.then(json!(["tag", name]))
    }

    #[must_use]
    pub fn keep(self) -> Self {
        self.then(json!(["keep"]))
    }

    #[must_use]
    pub fn kept(self) -> Self {
        self.then(json!(["kept"]))
    }

    #[must_use]
    pub fn at_least(self, field: &str, number: i64) -> Self {
        self.then(json!(["at_least", field, number]))
    }

    #[must_use]
    pub fn call(self, callee: Callee) -> Self {
        self.then(json!(["call", callee.0]))
    }

    #[must_use]
    pub fn try_call(self, callee: Callee) -> Self {
        self.then(json!(["try", callee.0]))
    }

    #[must_use]
    pub fn start(self, callee: Callee) -> Self {
        self.then(json!(["start", callee.0]))
    }

    #[must_use]
    pub fn all(self, callees: impl IntoIterator<Item = Callee>) -> Self {
        let callees: Vec<Value> = callees.into_iter().map(|callee| callee.0).collect();
        self.then(json!(["all", callees]))
    }

    #[must_use]
    pub fn settle(self, callees: impl IntoIterator<Item = Callee>) -> Self {
        let callees: Vec<Value> = callees.into_iter().map(|callee| callee.0).collect();
        self.then(json!(["settle", callees]))
    }

    #[must_use]
    pub fn send(self, callee: Callee, delay_ms: u64) -> Self {
        self.then(json!(["send", callee.0, delay_ms]))
    }

    /// Starts a workflow under this id.
    #[must_use]
    pub fn send_as(self, callee: Callee, id: &str) -> Self {
        self.then(json!(["send", callee.0, 0, id]))
    }

    #[must_use]
    pub fn hash(self) -> Self {
        self.then(json!(["hash"]))
    }

    #[must_use]
    pub fn start_hash(self) -> Self {
        self.then(json!(["start_hash"]))
    }

    #[must_use]
    pub fn random(self) -> Self {
        self.then(json!(["random"]))
    }

    #[must_use]
    pub fn now(self) -> Self {
        self.then(json!(["now"]))
    }

    #[must_use]
    pub fn log(self, text: &str) -> Self {
        self.then(json!(["log", text]))
    }

    #[must_use]
    pub fn abort(self, text: &str) -> Self {
        self.then(json!(["abort", text]))
    }

    #[must_use]
    pub fn fail(self, text: &str) -> Self {
        self.then(json!(["fail", text]))
    }

    #[must_use]
    pub fn returns(self, value: impl Into<Value>) -> Self {
        self.then(json!(["return", value.into()]))
    }

    #[must_use]
    pub fn sleep(self, delay_ms: u64) -> Self {
        self.then(json!(["sleep", delay_ms]))
    }

    #[must_use]
    pub fn wait(self, name: &str, timeout_ms: Option<u64>) -> Self {
        self.then(json!(["wait", name, timeout_ms]))
    }

    /// The result of the workflow of this id, or of that which the script sent last.
    #[must_use]
    pub fn result(self, id: Option<&str>, timeout_ms: Option<u64>) -> Self {
        self.then(json!(["result", id, timeout_ms]))
    }

    /// The same, and `null` if it failed.
    #[must_use]
    pub fn try_result(self, id: Option<&str>, timeout_ms: Option<u64>) -> Self {
        self.then(json!(["try_result", id, timeout_ms]))
    }

    #[must_use]
    pub fn try_wait(self, name: &str, timeout_ms: u64) -> Self {
        self.then(json!(["try_wait", name, timeout_ms]))
    }

    #[must_use]
    pub fn step(self, name: &str, value: impl Into<Value>) -> Self {
        self.then(json!(["step", name, value.into()]))
    }

    #[must_use]
    pub fn fail_step(self, name: &str) -> Self {
        self.then(json!(["fail_step", name]))
    }

    #[must_use]
    pub fn abort_step(self, name: &str) -> Self {
        self.then(json!(["abort_step", name]))
    }

    #[must_use]
    pub fn flaky_step(self, name: &str, mark: &str) -> Self {
        self.then(json!(["flaky_step", name, mark]))
    }

    #[must_use]
    pub fn retry(self, attempts: Option<u32>, pause_ms: u64) -> Self {
        self.then(json!(["retry", attempts, pause_ms]))
    }

    #[must_use]
    pub fn flaky(self, n: u64) -> Self {
        self.then(json!(["flaky", n]))
    }

    #[must_use]
    pub fn call_in_step(self, name: &str, callee: Callee) -> Self {
        self.then(json!(["call_in_step", name, callee.0]))
    }

    #[must_use]
    pub fn fetch(self, path: &str) -> Self {
        self.then(json!(["fetch", path]))
    }

    #[must_use]
    pub fn try_fetch(self, path: &str) -> Self {
        self.then(json!(["try_fetch", path]))
    }

    #[must_use]
    pub fn compensate(self, callee: Callee) -> Self {
        self.then(json!(["compensate", callee.0]))
    }

    #[must_use]
    pub fn signal(self, id: Option<&str>, name: &str, payload: impl Into<Value>) -> Self {
        self.then(json!(["signal", id, name, payload.into()]))
    }

    #[must_use]
    pub fn id(self) -> Self {
        self.then(json!(["id"]))
    }

    #[must_use]
    pub fn program(self) -> Self {
        self.then(json!(["program"]))
    }

    #[must_use]
    pub fn program_here(self) -> Self {
        self.then(json!(["program_here"]))
    }

    #[must_use]
    pub fn race(self, operations: Script) -> Self {
        self.then(json!(["race", operations.0]))
    }

    /// Begins the one operation of a script; when it has ended, calls.
    #[must_use]
    pub fn beside(self, mut operation: Script, then: Option<Callee>) -> Self {
        let operation = operation.0.pop();
        self.then(json!(["beside", operation, then.map(|callee| callee.0)]))
    }

    #[must_use]
    pub fn both(self, operations: Script) -> Self {
        self.then(json!(["both", operations.0]))
    }

    #[must_use]
    pub fn when(self, value: impl Into<Value>, operations: Script) -> Self {
        self.then(json!(["when", value.into(), operations.0]))
    }

    #[must_use]
    pub fn unless_again(self, text: &str, operations: Script) -> Self {
        self.then(json!(["unless_again", text, operations.0]))
    }

    /// This one, and then the other.
    #[must_use]
    pub fn join(mut self, then: Script) -> Self {
        self.0.extend(then.0);
        self
    }

    /// The JSON text.
    #[must_use]
    pub fn json(&self) -> String {
        Value::Array(self.0.clone()).to_string()
    }
}
