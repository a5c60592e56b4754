//! What comes in and goes out, as plain data.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use millrace_base::{Error, IdempotencyKey, Lsn, ShardId, UnixMillis, Value, check_chosen_id, hex, shard_of_key};
use millrace_format::{DeadLetterRecord, FailureRecord, InvocationResult, JournalRow, ResultState, WorkflowRecord};
use millrace_func::{ActivationId, HandlerId, HeaderSource, HttpRequest, OperationId, RouteMatch, RouteReply};
use sha2::{Digest, Sha256};

/// The driver's name for whoever waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What every request carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// When the request came: its `ctx.now()`, and with `nonce` its age in the order of
    /// transactions, kept through every retry.
    pub time: UnixMillis,
    /// When it came, by the monotonic clock of the machine that has it: the limits of its waiting count from here.
    pub began_ms: u64,
    /// Unique among the invocations of the node's process.
    pub nonce: u64,
    /// Makes the request take effect once.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// A call of a handler on an entity of this shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invoke {
    /// Who asks, when.
    pub info: RequestInfo,
    /// What to run.
    pub handler: HandlerId,
    /// The entity's key.
    pub key: Box<[u8]>,
    /// JSON text.
    pub input: Bytes,
}

/// A route to run. Cheap to clone: a route may have to run again.
#[derive(Clone)]
pub struct RouteCall {
    /// Who asks, when.
    pub info: RequestInfo,
    /// The route and the values of its `:name` parts.
    pub route: RouteMatch,
    /// Upper-case method.
    pub method: Box<str>,
    /// The path behind the service, percent-encoded.
    pub path: Box<str>,
    /// What follows `?`, percent-encoded.
    pub query: Box<str>,
    /// The headers.
    pub headers: Arc<dyn HeaderSource>,
    /// The body.
    pub body: Bytes,
    /// What work outside has given it when it ran before, in order: it is not done twice.
    pub known: Vec<Result<Bytes, Error>>,
    /// Whose idempotency key it is: set by the shard that adopts it, from its first call. A run that comes
    /// after that one keeps it. `None` wherever a route comes from.
    pub scope: Option<Box<[u8]>>,
}

impl RouteCall {
    /// What the route is given.
    pub(crate) fn request(&self) -> HttpRequest<'_> {
        HttpRequest {
            method: &self.method,
            path: &self.path,
            query: &self.query,
            parameters: &self.route.parameters,
            headers: self.headers.clone(),
            body: self.body.clone(),
        }
    }

    /// What tells a repeated request from another one beside method and path: query, body, and who
    /// asks.
    pub(crate) fn content(&self) -> [&[u8]; 4] {
        let header = |name| self.headers.get(name).unwrap_or_default().as_bytes();
        [self.query.as_bytes(), &self.body, header("authorization"), header("cookie")]
    }
}

/// What a request is answered with, as it travels. Each kind of request has one [`TypedReply`](crate::TypedReply).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A handler's output: JSON text.
    Value(Bytes),
    /// A route's reply.
    Route(RouteReply),
    /// The id of an enqueued invocation.
    Sent(InvocationId),
    /// What became of an invocation, and of a workflow what is known beside.
    Invocation(InvocationResult, Option<Box<WorkflowView>>),
    /// The same of one of which something failed and has not ended.
    FailingInvocation(InvocationResult, Option<Box<WorkflowView>>, Vec<FailureRecord>),
    /// Workflows, and whether there are more.
    Workflows(Vec<ListedWorkflow>, bool),
    /// The same, and what failed of some of them: the place in the page, and a failure.
    FailingWorkflows(Vec<ListedWorkflow>, bool, Vec<(u32, FailureRecord)>),
    /// Dead letters by the field they are kept under, and whether there are more.
    DeadLetters(Vec<(Box<[u8]>, DeadLetterRecord)>, bool),
    /// When each of the schedules that were asked about is due next, in that order.
    Schedules(Vec<Option<UnixMillis>>),
    /// It is done.
    Done,
    /// All fields of an entity, in order.
    Fields(Vec<(Box<[u8]>, Value)>),
    /// One field.
    Field(Value),
    /// A dead letter.
    DeadLetter(Box<DeadLetterRecord>),
    /// Whether a service has any entity.
    HasEntities(bool),
}

/// A workflow as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedWorkflow {
    /// Its place in its shard.
    pub id: Sequence,
    /// What it is.
    pub record: WorkflowRecord,
    /// When it is to begin, if it has yet to.
    pub due: Option<UnixMillis>,
    /// What became of it.
    pub invocation_result: InvocationResult,
    /// What of it failed and has not ended.
    pub failures: Vec<FailureRecord>,
}

impl ListedWorkflow {
    /// Bytes of its input and output, which are what may be large of it.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let output = if let ResultState::Value(output) = &self.invocation_result.result { output.len() } else { 0 };
        self.record.input.len() + output
    }
}

/// What is known of a workflow beside its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowView {
    /// What it is. One that never began has no version, and began at 0.
    pub record: WorkflowRecord,
    /// When it is to begin, if it has yet to.
    pub due: Option<UnixMillis>,
    /// What it has done.
    pub journal: Vec<JournalRow>,
    /// What it waits for, as far as its code is in memory.
    pub waits_for: Vec<String>,
}

/// Names a sent invocation: the shard that holds it, and its place in that shard's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvocationId {
    /// The shard whose inbox it went to.
    pub shard: ShardId,
    /// The entry that accepted it.
    pub sequence: Sequence,
}

const INVOCATION_PREFIX: &str = "inv_";

/// How ids of dead letters begin.
pub const DEAD_LETTER_PREFIX: &str = "dl_";

/// The id of what is at `field` of a shard's dead letters.
#[must_use]
pub fn dead_letter_id(shard: ShardId, field: &[u8]) -> String {
    format!("{DEAD_LETTER_PREFIX}{:04x}{}", shard.0, hex(field))
}

impl fmt::Display for InvocationId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sequence { lsn, index } = self.sequence;
        write!(formatter, "{INVOCATION_PREFIX}{:04x}{:016x}{index:04x}", self.shard.0, lsn.0)
    }
}

impl InvocationId {
    /// The place of a workflow whose caller chose this id. The id is all that anybody has to know to find it.
    ///
    /// # Errors
    /// `bad-request` for a text that no caller may choose.
    pub fn chosen(text: &str, shard_count: u16) -> Result<Self, Error> {
        check_chosen_id(text)?;
        let hash = Sha256::new_with_prefix(b"millrace workflow ").chain_update(text).finalize();
        let word = |at: usize| hash[at..at + 8].iter().fold(0, |word: u64, byte| word << 8 | u64::from(*byte));
        let sequence = Sequence::chosen([word(0), word(8)]);
        Ok(Self { shard: shard_of_key(text.as_bytes(), shard_count), sequence })
    }

    /// Reads an id as [`fmt::Display`] writes it, or one that a caller may choose; `None` for any other text, and for a
    /// shard that is not one of `shard_count`.
    #[must_use]
    pub fn parse(text: &str, shard_count: u16) -> Option<Self> {
        match text.strip_prefix(INVOCATION_PREFIX) {
            Some(digits) => Self::parse_digits(digits).filter(|id| id.shard.0 < shard_count),
            None => Self::chosen(text, shard_count).ok(),
        }
    }

    fn parse_digits(digits: &str) -> Option<Self> {
        if digits.len() != 24 || !digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        let shard = ShardId(u16::from_str_radix(&digits[..4], 16).ok()?);
        let lsn = Lsn(u64::from_str_radix(&digits[4..20], 16).ok()?);
        let index = u16::from_str_radix(&digits[20..], 16).ok()?;
        Some(Self { shard, sequence: Sequence { lsn, index } })
    }
}

/// A message's place in its sender's log: entry, and index within the entry. Grows strictly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence {
    /// The entry that sent it.
    pub lsn: Lsn,
    /// Which of the entry's messages.
    pub index: u16,
}

impl Sequence {
    /// A place that no log has: of an id that a caller chose. The bits above keep it apart from real ones and drawn ones.
    fn chosen(bits: [u64; 2]) -> Self {
        Self { lsn: Lsn(bits[0] >> 2 | 1 << 62), index: (bits[1] & 0xFFFF) as u16 }
    }

    /// A place that no log has: the id of an invocation that its sender drew. Its upper bit keeps
    /// it apart from real ones.
    pub(crate) fn drawn(bits: [u64; 2]) -> Self {
        Self { lsn: Lsn(bits[0] | 1 << 63), index: (bits[1] & 0xFFFF) as u16 }
    }

    /// Whether its sender drew or chose it: it may be known before its message has arrived.
    #[must_use]
    pub fn may_be_early(self) -> bool {
        self.lsn.0 >> 62 != 0
    }

    /// Big-endian, so that byte order is sequence order.
    #[must_use]
    pub fn encode(self) -> [u8; 10] {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&self.lsn.0.to_be_bytes());
        bytes[8..].copy_from_slice(&self.index.to_be_bytes());
        bytes
    }

    /// Reads what [`Sequence::encode`] wrote.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (lsn, index) = bytes.split_first_chunk::<8>()?;
        let index: [u8; 2] = index.try_into().ok()?;
        Some(Self { lsn: Lsn(u64::from_be_bytes(*lsn)), index: u16::from_be_bytes(index) })
    }
}

/// A message on its way between two shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The sending shard.
    pub from: ShardId,
    /// The message's place in the sender's log.
    pub sequence: Sequence,
    /// The place of the message before it to the same receiver, or an earlier one where that has
    /// surely arrived: a receiver that has not come so far has missed one and takes nothing.
    pub after: Sequence,
    /// An encoded `format::MessageRecord`.
    pub message: Bytes,
}

/// Where the result of offloaded work belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadTicket {
    /// The shard that waits; `None` while a route has no shard yet.
    pub shard: Option<ShardId>,
    /// The invocation.
    pub nonce: u64,
    /// The activation that waits.
    pub activation: ActivationId,
    /// Tells the activation from others that had its number: one is used again, also when the invocation starts again.
    pub instance: u64,
    /// What it waits for.
    pub operation: OperationId,
}

/// An operation of a workflow, as others know it who keep something for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OperationOf {
    pub workflow: Sequence,
    pub operation: u32,
    /// The run of the workflow that asked for it: another run that asks for this operation asks for another one.
    pub run: u64,
}

impl OperationOf {
    /// Where another shard keeps the result of such a call of a workflow of `shard`.
    pub(crate) fn once_field(self, shard: ShardId) -> Box<[u8]> {
        let Self { workflow, operation, run } = self;
        let run = run.to_be_bytes();
        let run = if run == [0; 8] { &[][..] } else { &run };
        [&b"s"[..], &shard.0.to_be_bytes(), &workflow.encode(), &operation.to_be_bytes(), run].concat().into()
    }
}
