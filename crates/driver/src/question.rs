//! What one shard is asked beside calls, sends and routes. Each question is a type, and so is its reply.

use bytes::Bytes;
use millrace_api::{Intervention, StateFields};
use millrace_base::{EntityKey, IdempotencyKey, UnixMillis};
use millrace_format::DeadLetterRecord;
use millrace_shard::{
    AskedSchedule, DeadLetter, EntityState, FoundInvocation, Listed, ListedWorkflow, ReplyTo, Sequence, Shard, Token,
    TypedReply, World,
};

/// A question that one shard answers.
pub trait Ask: Into<Question> {
    /// What it is answered with.
    type Reply: TypedReply;

    /// Asks a shard.
    fn ask(self, shard: &mut Shard, to: ReplyTo<Self::Reply>, world: &mut World<'_>);
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

/// When are these schedules due?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListSchedules {
    /// Which schedules.
    pub asked: Vec<AskedSchedule>,
}

impl Ask for ReadInvocation {
    type Reply = FoundInvocation;

    fn ask(self, shard: &mut Shard, to: ReplyTo<Self::Reply>, world: &mut World<'_>) {
        shard.read_invocation(to, self.sequence, self.has_journal, world);
    }
}

impl Ask for Intervene {
    type Reply = ();

    fn ask(self, shard: &mut Shard, to: ReplyTo<Self::Reply>, world: &mut World<'_>) {
        shard.intervene(to, self.sequence, self.intervention, world);
    }
}

impl Ask for Signal {
    type Reply = ();

    fn ask(self, shard: &mut Shard, to: ReplyTo<Self::Reply>, world: &mut World<'_>) {
        shard.signal(to, self.sequence, (&self.name, &self.payload), self.idempotency_key.as_ref(), world);
    }
}

impl Ask for ListWorkflows {
    type Reply = Listed<ListedWorkflow>;

    fn ask(self, shard: &mut Shard, to: ReplyTo<Self::Reply>, world: &mut World<'_>) {
        shard.list_workflows(to, self.after, (self.limit, self.is_live_only), world);
    }
}

impl Ask for ListDeadLetters {
    type Reply = Listed<DeadLetter>;

    fn ask(self, shard: &mut Shard, to: ReplyTo<Self::Reply>, world: &mut World<'_>) {
        shard.list_dead_letters(to, self.after.as_deref(), self.limit, world);
    }
}

impl Ask for ListFailingMessages {
    type Reply = Listed<DeadLetter>;

    fn ask(self, shard: &mut Shard, to: ReplyTo<Self::Reply>, world: &mut World<'_>) {
        shard.list_failing_messages(to, self.after.as_deref(), self.limit, world);
    }
}

impl Ask for ReadDeadLetter {
    type Reply = Box<DeadLetterRecord>;

    fn ask(self, shard: &mut Shard, to: ReplyTo<Self::Reply>, world: &mut World<'_>) {
        shard.read_dead_letter(to, &self.field, world);
    }
}

impl Ask for EndDeadLetter {
    type Reply = ();

    fn ask(self, shard: &mut Shard, to: ReplyTo<Self::Reply>, world: &mut World<'_>) {
        shard.end_dead_letter(to, &self.field, self.is_retried, world);
    }
}

impl Ask for ReadState {
    type Reply = EntityState;

    fn ask(self, shard: &mut Shard, to: ReplyTo<Self::Reply>, world: &mut World<'_>) {
        shard.read_state(to, &self.entity, self.fields, world);
    }
}

impl Ask for HasEntities {
    type Reply = bool;

    fn ask(self, shard: &mut Shard, to: ReplyTo<Self::Reply>, world: &mut World<'_>) {
        shard.has_entities(to, &self.app, &self.service, world);
    }
}

impl Ask for ListSchedules {
    type Reply = Vec<Option<UnixMillis>>;

    fn ask(self, shard: &mut Shard, to: ReplyTo<Self::Reply>, world: &mut World<'_>) {
        shard.list_schedules(to, &self.asked, world);
    }
}

macro_rules! questions {
    ($($question:ident),* $(,)?) => {
        /// Any of the questions, as it waits and travels.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each is named for the question that it holds")]
        pub enum Question {
            $($question($question),)*
        }

        impl Question {
            /// Asks a shard under a token.
            pub(crate) fn ask(self, shard: &mut Shard, token: Token, world: &mut World<'_>) {
                match self {
                    $(Question::$question(question) => question.ask(shard, ReplyTo::of(token), world),)*
                }
            }
        }

        $(impl From<$question> for Question {
            fn from(question: $question) -> Self {
                Question::$question(question)
            }
        })*
    };
}

questions!(
    ReadInvocation,
    Signal,
    ListWorkflows,
    ListDeadLetters,
    ReadDeadLetter,
    EndDeadLetter,
    ReadState,
    HasEntities,
    ListSchedules,
    Intervene,
    ListFailingMessages,
);

impl Question {
    /// Whether answering it may write.
    #[must_use]
    pub fn may_write(&self) -> bool {
        matches!(self, Question::Intervene(_) | Question::Signal(_) | Question::EndDeadLetter(_))
    }
}
