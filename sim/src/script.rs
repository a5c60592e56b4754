//! Scripts: what a handler does in the simulated world, as JSON that travels as its input.
//!
//! A script is an array of operations, each an array that starts with its name:
//!
//! ```text
//! ["get", field]                      ["set", field, value]        ["add", field, n]
//! ["delete", field]                   ["scan", prefix, limit]      ["at_least", field, n]
//! ["call", callee]                    ["try", callee]              ["start", callee]
//! ["all", [callee, …]]                ["settle", [callee, …]]
//! ["send", callee, delay_ms]          ["hash"]  ["start_hash"]
//! ["random"]  ["now"]  ["log", text]  ["abort", text]  ["fail", text]  ["return", value]
//! callee = [service, key, handler, script]
//! ```
//!
//! `call` awaits its callee and fails with it; `try` goes on with `null`; `start` does not await.
//! `all` awaits several that run at the same time and fails as soon as one does; `settle` awaits
//! them all whatever they give. `hash` is work done outside the shard. `at_least` aborts when the
//! field holds less. A script's output is the value of its last operation.

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

    /// The JSON text.
    #[must_use]
    pub fn json(&self) -> String {
        Value::Array(self.0.clone()).to_string()
    }
}
