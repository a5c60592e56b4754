//! What clients asked for and what they were told, and when.
//!
//! Most operations leave a mark of their own: a field `op<id>` of each entity they write, counting how
//! often they took effect there. So whatever happened, the state itself says which operations took
//! effect, how often, and whether as a whole. Whether what clients were told fits together is
//! for `judge` to say.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, IdempotencyKey, UnixMillis};
use millrace_history::{Access, Time};
use millrace_shard::{Reply, Token};

use crate::node::RETENTION_MS;
use crate::script::{Callee, Script};

/// What an operation does.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Adds to a counter.
    Add { key: String },
    /// Moves money between two accounts of a bank, and notes it on a third one, if any; refuses
    /// when the first has too little. Gives what the first has then.
    Transfer { bank: String, from: String, to: String, amount: i64, via: Option<String> },
    /// Notes here and sends a message that notes there.
    Message { from: String, to: String, delay_ms: u64 },
    /// Has a call noted later.
    Send { to: String },
    /// Starts a workflow that moves money between two accounts in two steps, and notes on a third
    /// one what it does beside; what it did is compensated if it fails or is cancelled.
    Saga { from: String, to: String, amount: i64, via: String },
    /// Starts a workflow that notes on one entity, and behind a step on another one. It may be restarted, from its beginning
    /// or from that step; then it notes again.
    Again { from: String, to: String },
    /// Reads a counter.
    Read { key: String },
    /// Looks at every account of a bank.
    Audit { bank: String },
    /// Looks at lists, registers or counters, or puts something into them. Leaves no mark. `is_bare`: the
    /// entity it begins with only calls others, so a route can do the same.
    Steps { root: String, is_bare: bool, is_query: bool, steps: Vec<Access> },
}

impl Kind {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_query(&self) -> bool {
        matches!(self, Kind::Read { .. } | Kind::Audit { .. } | Kind::Steps { is_query: true, .. })
    }
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

/// How often a workflow has been restarted in one way: for certain, and perhaps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Restarts {
    pub certain: i64,
    pub in_doubt: i64,
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
    /// When it was first sent, and when it was first answered that it took effect.
    pub begin: Option<Time>,
    pub end: Option<Time>,
    /// What the clock has shown since it was first sent: its key is kept from no earlier on, and, while an
    /// attempt was open, from no later on.
    earliest: UnixMillis,
    latest: UnixMillis,
    /// Its key may have been forgotten, so it is never sent again.
    pub is_expired: bool,
    /// Another operation has come under its key.
    pub is_key_used_again: bool,
    /// Restarts of the workflow that it started, from the beginning and from its step.
    pub restarts: [Restarts; 2],
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
            Kind::Again { from, .. } => ("note", from, "flow"),
            Kind::Read { key } => ("counter", key, "read"),
            Kind::Audit { bank } => ("account", bank, "read"),
            Kind::Steps { root, is_query: true, .. } => ("note", root, "read"),
            Kind::Steps { root, .. } => ("note", root, "run"),
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
        matches!(self.kind, Kind::Send { .. } | Kind::Saga { .. } | Kind::Again { .. })
    }

    /// Whether it leaves a mark before it is answered.
    #[must_use]
    pub fn has_mark(&self) -> bool {
        !self.kind.is_query() && !self.is_sent() && !matches!(self.kind, Kind::Steps { .. })
    }

    /// Whether it may be sent again without knowing what became of it: not once its key may have been
    /// forgotten, since it would run again.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        self.idempotency_key.is_some() && !self.is_expired
    }

    /// The key that makes it take effect once, as requests carry it.
    ///
    /// # Panics
    /// When no front would take it.
    #[must_use]
    pub fn kept_key(&self) -> Option<IdempotencyKey> {
        let key = |text: &String| IdempotencyKey::new(text.as_bytes()).expect("short and visible").kept();
        self.idempotency_key.as_ref().map(key)
    }

    fn note_time(&mut self, now: UnixMillis) {
        self.earliest = self.earliest.min(now);
        if self.open > 0 {
            self.latest = self.latest.max(now);
        }
    }

    /// Whether its key is kept at `now`, however late its invocation result was written. Half a day more, since the
    /// clock may be set back.
    #[must_use]
    pub fn keeps_key(&self, now: UnixMillis) -> bool {
        self.open > 0 || now <= self.latest.plus(RETENTION_MS + RETENTION_MS / 2)
    }
}

/// All operations of a run.
#[derive(Clone, Default)]
pub struct Ledger {
    pub operations: Vec<Operation>,
    waiting: BTreeMap<Token, usize>,
    next_token: u64,
    /// Sendings and replies so far: the time of the history.
    moment: Time,
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
            begin: None,
            end: None,
            earliest: UnixMillis(u64::MAX),
            latest: UnixMillis(0),
            is_expired: false,
            is_key_used_again: false,
            restarts: Default::default(),
        });
        id
    }

    /// It is being sent; the token its reply will come with.
    pub fn sending(&mut self, id: usize, now: UnixMillis) -> Token {
        self.next_token += 1;
        let token = Token(self.next_token);
        self.moment += 1;
        let operation = &mut self.operations[id];
        operation.begin.get_or_insert(self.moment);
        operation.attempts += 1;
        operation.open += 1;
        operation.note_time(now);
        self.waiting.insert(token, id);
        token
    }

    /// The clock shows `now`, perhaps not in the way that time passes, and no shard a later time than `latest`. Gives how many
    /// keys may be too old from now on.
    pub fn clock_shows(&mut self, now: UnixMillis, latest: UnixMillis) -> u64 {
        let mut expired = 0;
        for operation in self.operations.iter_mut().filter(|operation| operation.attempts > 0) {
            operation.note_time(now);
            if operation.is_repeatable() && operation.earliest.plus(RETENTION_MS) <= latest {
                operation.is_expired = true;
                expired += 1;
            }
        }
        expired
    }

    /// The latest time that the clock may jump to, `before_ms` before the key of a request under way expires. Clients
    /// may not assume anything of a request that is on its way for a day.
    #[must_use]
    pub fn latest_jump(&self, before_ms: u64) -> UnixMillis {
        let is_open = |operation: &&Operation| operation.open > 0 && operation.idempotency_key.is_some();
        let expires = |operation: &Operation| operation.earliest.plus(RETENTION_MS - before_ms);
        self.operations.iter().filter(is_open).map(expires).min().unwrap_or(UnixMillis(u64::MAX))
    }

    /// The server is gone: nobody who waits will be answered.
    pub fn server_died(&mut self) {
        for (_, id) in std::mem::take(&mut self.waiting) {
            let operation = &mut self.operations[id];
            operation.open -= 1;
            operation.is_in_doubt = true;
        }
    }

    /// A part of a cluster is gone: nobody will be answered who waits under this token.
    pub fn lost(&mut self, token: Token) {
        if let Some(id) = self.waiting.remove(&token) {
            let operation = &mut self.operations[id];
            operation.open -= 1;
            operation.is_in_doubt = true;
        }
    }

    /// A reply has come. Checks that it is the first one, or agrees with it; the operation's number.
    ///
    /// # Errors
    /// What is wrong with the reply.
    pub fn replied(&mut self, token: Token, result: &Result<Reply, Error>) -> Result<usize, String> {
        let Some(id) = self.waiting.remove(&token) else {
            return Err(format!("{token:?} was answered twice, or never asked"));
        };
        self.operations[id].open -= 1;
        self.moment += 1;
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
            Known::Done(first) if *first != reply => {
                return Err(format!("op{id} was answered {first:?} first and {reply:?} later"));
            }
            Known::Refused => return Err(format!("op{id} was refused for good, and took effect later")),
            _ => {}
        }
        operation.known = Known::Done(reply);
        operation.end.get_or_insert(self.moment);
        Ok(())
    }

    fn failed(&mut self, id: usize, error: &Error) -> Result<(), String> {
        let operation = &mut self.operations[id];
        let is_known_done = matches!(operation.known, Known::Done(_));
        match error.code {
            ErrorCode::Aborted if is_known_done => Err(format!("op{id} took effect, and was refused later")),
            ErrorCode::Aborted if operation.idempotency_key.is_some() => {
                operation.known = Known::Refused;
                Ok(())
            }
            code if matches!(
                code,
                ErrorCode::Aborted | ErrorCode::ReadOnly | ErrorCode::WaitLimit | ErrorCode::Overloaded
            ) || code.is_lost_attempt() =>
            {
                if !is_known_done && operation.known != Known::Refused {
                    operation.known = Known::Failed;
                }
                Ok(())
            }
            ErrorCode::ShardStopped | ErrorCode::ResultUnknown => {
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

    /// How often an operation may have taken effect, at least and at most.
    #[must_use]
    pub fn bounds(&self, operation: &Operation) -> (i64, i64) {
        match operation.known {
            Known::Done(_) => (1, 1),
            Known::Refused => (0, 0),
            Known::Failed if !operation.is_in_doubt && operation.open == 0 => (0, 0),
            Known::Failed | Known::Unknown if operation.attempts == 0 => (0, 0),
            Known::Failed | Known::Unknown => (0, 1),
        }
    }
}
