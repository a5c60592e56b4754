//! What clients asked for, what they were told, and what must therefore be true.
//!
//! Every operation leaves its own mark: a field `op<id>` of each entity it writes, counting how
//! often it took effect there. So whatever happened, the state itself says which operations took
//! effect, how often, and whether as a whole.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_shard::{Reply, Token};
use serde_json::Value as Json;

use crate::script::{Callee, Script};

/// What an operation does.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Adds to a counter.
    Add { key: String },
    /// Moves money between two accounts of one bank, and notes it on a third one, if any; refuses
    /// when the first has too little.
    Transfer { from: String, to: String, amount: i64, via: Option<String> },
    /// Notes here and sends a message that notes there.
    Message { from: String, to: String, delay_ms: u64 },
    /// Has a call noted later.
    Send { to: String },
    /// Starts a workflow that moves money between two accounts in two steps, and notes on a third
    /// one what it does beside; what it did is compensated if it fails or is cancelled.
    Saga { from: String, to: String, amount: i64, via: String },
    /// Reads a counter.
    Read { key: String },
    /// Sums up a bank.
    Audit { bank: String },
}

/// What a client knows of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// Nothing: it waits, or lost its server.
    Unknown,
    /// It took effect; the reply.
    Done(Bytes),
    /// It was refused for good.
    Refused,
    /// Some attempts failed without effect, and none is open.
    Failed,
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Operation {
    pub id: usize,
    pub kind: Kind,
    pub script: Script,
    pub idempotency_key: Option<String>,
    pub is_route: bool,
    pub known: Known,
    /// Sendings so far, and how many of them may still be answered.
    pub attempts: usize,
    pub open: usize,
    /// An attempt ended without an answer that tells whether it took effect.
    pub is_in_doubt: bool,
    /// What the counter was known to be when it was first sent.
    pub floor: i64,
}

impl Operation {
    /// The field that says how often it took effect.
    #[must_use]
    pub fn mark(&self) -> String {
        format!("op{}", self.id)
    }

    /// The entity that its call goes to: service, key, handler.
    #[must_use]
    pub fn target(&self) -> (&str, &str, &str) {
        match &self.kind {
            Kind::Add { key } => ("counter", key, "run"),
            Kind::Transfer { from, .. } => ("account", from, "run"),
            Kind::Message { from, .. } => ("note", from, "run"),
            Kind::Send { to } => ("note", to, "run"),
            Kind::Saga { from, .. } => ("account", from, "flow"),
            Kind::Read { key } => ("counter", key, "read"),
            Kind::Audit { bank } => ("account", bank, "read"),
        }
    }

    /// The same as a callee, for a route to call.
    #[must_use]
    pub fn callee(&self) -> Callee {
        let (service, key, handler) = self.target();
        if handler == "run" {
            Callee::run(service, key, self.script.clone())
        } else {
            Callee::read(service, key, self.script.clone())
        }
    }

    /// Whether it is answered before it has run.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        matches!(self.kind, Kind::Send { .. } | Kind::Saga { .. })
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_query(&self) -> bool {
        matches!(self.kind, Kind::Read { .. } | Kind::Audit { .. })
    }

    /// Whether it may be sent again without knowing what became of it.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        self.idempotency_key.is_some()
    }
}

/// All operations of a run.
#[derive(Default)]
pub struct Ledger {
    pub operations: Vec<Operation>,
    waiting: BTreeMap<Token, usize>,
    /// The highest value of each counter that a client was told.
    pub seen: BTreeMap<String, i64>,
    added: BTreeMap<String, BTreeSet<i64>>,
    next_token: u64,
}

fn json_of(result: &Reply) -> Option<&Bytes> {
    match result {
        Reply::Value(bytes) => Some(bytes),
        Reply::Route(reply) => Some(&reply.body),
        _ => None,
    }
}

impl Ledger {
    /// Notes a new operation; its number.
    pub fn add(&mut self, kind: Kind, script: Script, idempotency_key: Option<String>, is_route: bool) -> usize {
        let id = self.operations.len();
        let floor = match &kind {
            Kind::Add { key } | Kind::Read { key } => self.seen.get(key).copied().unwrap_or(0),
            _ => 0,
        };
        self.operations.push(Operation {
            id,
            kind,
            script,
            idempotency_key,
            is_route,
            known: Known::Unknown,
            attempts: 0,
            open: 0,
            is_in_doubt: false,
            floor,
        });
        id
    }

    /// It is being sent; the token its reply will come with.
    pub fn sending(&mut self, id: usize) -> Token {
        self.next_token += 1;
        let token = Token(self.next_token);
        let operation = &mut self.operations[id];
        operation.attempts += 1;
        operation.open += 1;
        self.waiting.insert(token, id);
        token
    }

    /// The server is gone: nobody who waits will be answered.
    pub fn server_died(&mut self) {
        for (_, id) in std::mem::take(&mut self.waiting) {
            let operation = &mut self.operations[id];
            operation.open -= 1;
            operation.is_in_doubt = true;
        }
    }

    /// A reply has come. Checks what can be checked at once; the operation's number.
    ///
    /// # Errors
    /// What is wrong with the reply.
    pub fn replied(&mut self, token: Token, result: &Result<Reply, Error>) -> Result<usize, String> {
        let Some(id) = self.waiting.remove(&token) else {
            return Err(format!("{token:?} was answered twice, or never asked"));
        };
        self.operations[id].open -= 1;
        match result {
            Ok(Reply::Sent(invocation)) => self.done(id, Bytes::from(invocation.to_string()))?,
            Ok(reply) => {
                let Some(bytes) = json_of(reply) else {
                    return Err(format!("op{id} was answered with {reply:?}"));
                };
                self.done(id, bytes.clone())?;
            }
            Err(error) => self.failed(id, error)?,
        }
        Ok(id)
    }

    fn done(&mut self, id: usize, reply: Bytes) -> Result<(), String> {
        let operation = &mut self.operations[id];
        match &operation.known {
            Known::Done(first) if *first != reply && !operation.is_query() => {
                return Err(format!("op{id} was answered {first:?} first and {reply:?} later"));
            }
            Known::Refused => return Err(format!("op{id} was refused for good, and took effect later")),
            _ => {}
        }
        let is_first = !matches!(operation.known, Known::Done(_));
        operation.known = Known::Done(reply.clone());
        let operation = operation.clone();
        let json: Json = serde_json::from_slice(&reply).unwrap_or(Json::Null);
        match &operation.kind {
            Kind::Add { key } if is_first => self.counted(key, &operation, json.as_i64().unwrap_or(0)),
            Kind::Read { key } => {
                let value = json.as_i64().unwrap_or(0);
                if value < operation.floor {
                    return Err(format!("op{id} read {key} as {value}, known to be at least {}", operation.floor));
                }
                self.see(key, value);
                Ok(())
            }
            Kind::Audit { bank } => {
                let total: i64 = json.as_array().into_iter().flatten().filter_map(Json::as_i64).sum();
                if total == 0 { Ok(()) } else { Err(format!("op{id} saw bank {bank} sum up to {total}: {json}")) }
            }
            _ => Ok(()),
        }
    }

    fn see(&mut self, key: &str, value: i64) {
        let seen = self.seen.entry(key.to_owned()).or_default();
        *seen = value.max(*seen);
    }

    fn counted(&mut self, key: &str, operation: &Operation, value: i64) -> Result<(), String> {
        let id = operation.id;
        if !self.added.entry(key.to_owned()).or_default().insert(value) {
            return Err(format!("op{id} made counter {key} {value}, as another one did"));
        }
        if value <= operation.floor {
            return Err(format!("op{id} made counter {key} {value}, known to be {} before it began", operation.floor));
        }
        self.see(key, value);
        Ok(())
    }

    fn failed(&mut self, id: usize, error: &Error) -> Result<(), String> {
        let operation = &mut self.operations[id];
        let is_known_done = matches!(operation.known, Known::Done(_));
        match error.code {
            ErrorCode::Aborted if is_known_done => Err(format!("op{id} took effect, and was refused later")),
            ErrorCode::Aborted if operation.is_repeatable() => {
                operation.known = Known::Refused;
                Ok(())
            }
            ErrorCode::Aborted | ErrorCode::ReadOnly | ErrorCode::WaitLimit | ErrorCode::Overloaded => {
                if !is_known_done && operation.known != Known::Refused {
                    operation.known = Known::Failed;
                }
                Ok(())
            }
            ErrorCode::ShardStopped => {
                operation.is_in_doubt = true;
                Ok(())
            }
            code => Err(format!("op{id} failed with {}: {}", code.as_str(), error.message)),
        }
    }

    /// Whether an operation is to be sent again until it is known what became of it.
    #[must_use]
    pub fn is_unsettled(&self, id: usize) -> bool {
        let operation = &self.operations[id];
        operation.is_repeatable() && matches!(operation.known, Known::Unknown | Known::Failed)
    }

    /// How often an operation may have taken effect, at least and at most. `is_final`: nothing is
    /// under way any more.
    #[must_use]
    pub fn bounds(&self, operation: &Operation) -> (i64, i64) {
        if operation.is_query() {
            return (0, 0);
        }
        match operation.known {
            Known::Done(_) => (1, 1),
            Known::Refused => (0, 0),
            Known::Failed if !operation.is_in_doubt && operation.open == 0 => (0, 0),
            Known::Failed | Known::Unknown if operation.attempts == 0 => (0, 0),
            Known::Failed | Known::Unknown => (0, 1),
        }
    }
}
