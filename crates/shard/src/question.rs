//! What a shard is asked beside calls, sends and routes. Each question is a type, and so is its reply.

use bytes::Bytes;
use millrace_api::{Intervention, StateFields};
use millrace_base::{EntityKey, IdempotencyKey, UnixMillis};
use millrace_format::DeadLetterRecord;

use crate::request::{InvocationId, ListedWorkflow, Sequence, Token};
use crate::typed_reply::{DeadLetter, EntityState, FoundInvocation, Listed, ReplyTo, TypedReply};

/// A question that one shard answers.
pub trait Ask: Into<Question> {
    /// What it is answered with.
    type Reply: TypedReply;

    /// Whoever waits under a token, as one who waits for this reply.
    fn asker(&self, token: Token) -> ReplyTo<Self::Reply> {
        ReplyTo::of(token)
    }
}

/// What became of an invocation?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadInvocation {
    /// The invocation's place in its shard.
    pub sequence: Sequence,
    /// Whether the journal of a workflow is wanted too.
    pub has_journal: bool,
}

/// Step in on a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intervene {
    /// The workflow's place in its shard.
    pub sequence: Sequence,
    /// How.
    pub intervention: Intervention,
}

/// Give a workflow a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// The workflow's place in its shard.
    pub sequence: Sequence,
    /// The signal's name.
    pub name: Box<str>,
    /// JSON text.
    pub payload: Bytes,
    /// Makes the signal come once.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// Start a workflow under an id that the caller chose, unless it has been started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartWorkflow {
    /// The id. Its shard is the one that is asked.
    pub id: Box<str>,
    /// The app.
    pub app: Box<str>,
    /// The service.
    pub service: Box<str>,
    /// The handler.
    pub handler: Box<str>,
    /// The key.
    pub key: Box<[u8]>,
    /// JSON text.
    pub input: Bytes,
    /// How much later it is to begin.
    pub delay_ms: u64,
}

/// Which workflows are there?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListWorkflows {
    /// The last one of the page before: whether it had ended, and its place.
    pub after: Option<(bool, Sequence)>,
    /// At most so many.
    pub limit: usize,
    /// Leaves out those that have ended.
    pub is_live_only: bool,
}

/// Which dead letters are there?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListDeadLetters {
    /// The field of the last one of the page before.
    pub after: Option<Box<[u8]>>,
    /// At most so many.
    pub limit: usize,
}

/// Which messages failed and wait for their next attempt?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListFailingMessages {
    /// The field of the last one of the page before.
    pub after: Option<Box<[u8]>>,
    /// At most so many.
    pub limit: usize,
}

/// What is this dead letter?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDeadLetter {
    /// The field that the letter is kept under.
    pub field: Box<[u8]>,
}

/// Retry or drop a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndDeadLetter {
    /// The field that the letter is kept under.
    pub field: Box<[u8]>,
    /// Retry it; else drop it.
    pub is_retried: bool,
}

/// What does an entity hold?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadState {
    /// The entity.
    pub entity: EntityKey,
    /// Which of its fields.
    pub fields: StateFields,
}

/// Has a service any entity?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HasEntities {
    /// The app.
    pub app: Box<str>,
    /// The service.
    pub service: Box<str>,
}

/// A schedule that is declared, as its shard is asked about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedSchedule {
    /// The app.
    pub app: String,
    /// The service.
    pub service: String,
    /// The schedule's name.
    pub name: String,
    /// What is declared now: a row that was computed from another text is out of date.
    pub cron: String,
}

/// When are these schedules due?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListSchedules {
    /// Which schedules.
    pub asked: Vec<AskedSchedule>,
}

macro_rules! questions {
    ($($question:ident => $reply:ty),* $(,)?) => {
        /// Any of the questions, as it waits and travels.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each is named for the question that it holds")]
        pub enum Question {
            $($question($question),)*
        }

        $(impl From<$question> for Question {
            fn from(question: $question) -> Self {
                Question::$question(question)
            }
        }

        impl Ask for $question {
            type Reply = $reply;
        })*
    };
}

questions!(
    ReadInvocation => FoundInvocation,
    Signal => (),
    ListWorkflows => Listed<ListedWorkflow>,
    ListDeadLetters => Listed<DeadLetter>,
    ReadDeadLetter => Box<DeadLetterRecord>,
    EndDeadLetter => (),
    ReadState => EntityState,
    HasEntities => bool,
    ListSchedules => Vec<Option<UnixMillis>>,
    Intervene => (),
    ListFailingMessages => Listed<DeadLetter>,
    StartWorkflow => InvocationId,
);

impl Question {
    /// Whether answering it may write.
    #[must_use]
    pub fn may_write(&self) -> bool {
        matches!(
            self,
            Question::Intervene(_) | Question::Signal(_) | Question::EndDeadLetter(_) | Question::StartWorkflow(_)
        )
    }
}
