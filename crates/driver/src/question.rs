//! What one shard is asked beside calls, sends and routes.

use bytes::Bytes;
use millrace_api::StateFields;
use millrace_base::EntityKey;
use millrace_shard::{AskedSchedule, Sequence, Shard, Token, World};

/// A question that one shard answers under a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// What became of an invocation? Answered by `Reply::Invocation`.
    ReadInvocation {
        /// The invocation's place in its shard.
        sequence: Sequence,
        /// Whether the journal of a workflow is wanted too.
        has_journal: bool,
    },
    /// Cancel a workflow. Answered by `Reply::Done`.
    Cancel {
        /// The workflow's place in its shard.
        sequence: Sequence,
    },
    /// Give a workflow a signal. Answered by `Reply::Done`.
    Signal {
        /// The workflow's place in its shard.
        sequence: Sequence,
        /// The signal's name.
        name: Box<str>,
        /// JSON text.
        payload: Bytes,
        /// Makes the signal come once.
        idempotency_key: Option<Box<str>>,
    },
    /// Which workflows are there? Answered by `Reply::Workflows`.
    ListWorkflows {
        /// The last one of the page before: whether it had ended, and its place.
        after: Option<(bool, Sequence)>,
        /// At most so many.
        limit: usize,
        /// Leaves out those that have ended.
        is_live_only: bool,
    },
    /// Which dead letters are there? Answered by `Reply::DeadLetters`.
    ListDeadLetters {
        /// The field of the last one of the page before.
        after: Option<Box<[u8]>>,
        /// At most so many.
        limit: usize,
    },
    /// What is this dead letter? Answered by `Reply::DeadLetters` with one.
    ReadDeadLetter {
        /// The field that the letter is kept under.
        field: Box<[u8]>,
    },
    /// Retry or drop a dead letter. Answered by `Reply::Done`.
    EndDeadLetter {
        /// The field that the letter is kept under.
        field: Box<[u8]>,
        /// Retry it; else drop it.
        is_retried: bool,
    },
    /// What does an entity hold? Answered by `Reply::Fields` or `Reply::Field`.
    ReadState {
        /// The entity.
        entity: EntityKey,
        /// Which of its fields.
        fields: StateFields,
    },
    /// Has a service any entity? Answered by `Reply::Value` with `true` or `false`.
    HasEntities {
        /// The app.
        app: Box<str>,
        /// The service.
        service: Box<str>,
    },
    /// When are these schedules due? Answered by `Reply::Schedules`.
    ListSchedules {
        /// Which schedules.
        asked: Vec<AskedSchedule>,
    },
}

impl Question {
    /// Whether answering it may write.
    #[must_use]
    pub fn may_write(&self) -> bool {
        matches!(self, Question::Cancel { .. } | Question::Signal { .. } | Question::EndDeadLetter { .. })
    }

    /// Asks a shard.
    pub(crate) fn ask(self, shard: &mut Shard, token: Token, world: &mut World<'_>) {
        match self {
            Question::ReadInvocation { sequence, has_journal } => {
                shard.read_invocation(token, sequence, has_journal, world);
            }
            Question::Cancel { sequence } => shard.cancel(token, sequence, world),
            Question::Signal { sequence, name, payload, idempotency_key } => {
                shard.signal(token, sequence, (&name, &payload), idempotency_key.as_deref(), world);
            }
            Question::ListWorkflows { after, limit, is_live_only } => {
                shard.list_workflows(token, after, (limit, is_live_only), world);
            }
            Question::ListDeadLetters { after, limit } => {
                shard.list_dead_letters(token, after.as_deref(), limit, world);
            }
            Question::ReadDeadLetter { field } => shard.read_dead_letter(token, &field, world),
            Question::EndDeadLetter { field, is_retried } => shard.end_dead_letter(token, &field, is_retried, world),
            Question::ReadState { entity, fields } => shard.read_state(token, &entity, fields, world),
            Question::HasEntities { app, service } => shard.has_entities(token, &app, &service, world),
            Question::ListSchedules { asked } => shard.list_schedules(token, &asked, world),
        }
    }
}
