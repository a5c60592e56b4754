//! Invocations: what was sent, workflows, dead letters, schedules.

use std::future::Future;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Error, IdempotencyKey, Principal};

/// What became of a sent invocation.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum InvocationStatus {
    /// Waits for its time or its turn.
    Pending,
    /// A workflow under way.
    Running,
    /// A workflow of which something failed too often: it waits for somebody to resume, cancel or kill it.
    Paused,
    /// Took effect.
    Succeeded,
    /// Was refused by the function, or failed too often. A call took no effect then; of a workflow,
    /// what it had done has been compensated as far as it said how.
    Failed,
    /// A workflow that was cancelled, and has been compensated as far as it said how.
    Cancelled,
}

impl InvocationStatus {
    /// Whether nothing more becomes of it.
    #[must_use]
    pub fn is_end(self) -> bool {
        match self {
            InvocationStatus::Pending | InvocationStatus::Running | InvocationStatus::Paused => false,
            InvocationStatus::Succeeded | InvocationStatus::Failed | InvocationStatus::Cancelled => true,
        }
    }
}

/// A sent call or a workflow, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// As returned by [`Calls::send`](crate::Calls::send).
    pub id: String,
    /// What became of it.
    pub status: InvocationStatus,
    /// The function's output (JSON text), once succeeded.
    pub output: Option<Bytes>,
    /// Why it failed, once failed or cancelled.
    pub error: Option<Error>,
    /// What of it failed and is tried again, or waits for somebody.
    pub failures: Vec<Failure>,
    /// What more is known of a workflow.
    pub workflow: Option<WorkflowState>,
}

/// What failed of an invocation and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The number of the operation, in the order in which the workflow asked; 0 is the workflow's own code.
    pub operation: u32,
    /// As of a [`JournalStep`], or `code`.
    pub kind: &'static str,
    /// The target of a call or the name of a step.
    pub name: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When the last attempt failed, Unix milliseconds.
    pub failed_ms: u64,
    /// When it is tried again, Unix milliseconds; `None` if it waits for somebody.
    pub next_try_ms: Option<u64>,
    /// Why the last attempt failed.
    pub error: Error,
}

/// How somebody steps in on a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intervention {
    /// It goes no further, undoes what it said how to undo, and ends. One that has ended stays as it is.
    Cancel,
    /// It ends here and now, and nothing is undone. One that has ended stays as it is.
    Kill,
    /// What failed of it is tried again now, from the first attempt.
    Resume,
    /// It begins again, if it has ended or is paused.
    Restart {
        /// From the first step of this name; otherwise from its beginning.
        from: Option<Box<str>>,
        /// In the newest version of the app, rather than in its own.
        on_newest: bool,
    },
}

/// What is known of a workflow beside its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowState {
    /// What runs.
    pub target: Target,
    /// Its input: JSON text.
    pub input: Bytes,
    /// When it began, Unix milliseconds, if it has.
    pub began_ms: Option<u64>,
    /// When it is to begin, Unix milliseconds, while it is pending.
    pub due_ms: Option<u64>,
    /// What it has done so far, in the order in which it ended. Empty in lists.
    pub journal: Vec<JournalStep>,
    /// Operations it waits for now, as far as it is in memory. Empty in lists.
    pub waits_for: Vec<String>,
}

/// A handler of an entity, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The app.
    pub app: String,
    /// The service.
    pub service: String,
    /// The entity's key.
    pub key: Vec<u8>,
    /// The handler.
    pub handler: String,
}

/// One thing a workflow has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalStep {
    /// The number of the operation, in the order in which the workflow asked for them, from 1.
    pub operation: u32,
    /// `call`, `step`, `sleep`, `fetch`, `wait`, `hash`, `send`, `signal`, `cancel`, `compensation`.
    pub kind: &'static str,
    /// Which one: the target of a call, the name of a step or signal, the URL of a fetch.
    pub name: String,
    /// When it ended, Unix milliseconds.
    pub ended_ms: u64,
    /// JSON text, or why it failed.
    pub result: Result<Bytes, Error>,
}

/// Which workflows to list. They come by shard, there those first that have not ended, each in the order of their ids.
#[derive(Clone, Debug, Default)]
pub struct InvocationsRequest<'a> {
    /// Only this app's.
    pub app: Option<&'a str>,
    /// Only this service's.
    pub service: Option<&'a str>,
    /// Only those of entities with this key.
    pub key: Option<&'a [u8]>,
    /// Only those of this handler.
    pub handler: Option<&'a str>,
    /// Only those with this status.
    pub status: Option<InvocationStatus>,
    /// Only those after this one, as the last page said.
    pub after: Option<&'a str>,
    /// At most so many.
    pub limit: usize,
}

/// One page of a list, and where the next one begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// To be given as `after`; `None` when this was the last page.
    pub next: Option<String>,
}

/// A message that failed too often, and waits for somebody to look at it; or one that failed and is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Names it.
    pub id: String,
    /// What it was to run.
    pub target: Target,
    /// Its input: JSON text.
    pub input: Bytes,
    /// How often it was tried.
    pub attempts: u32,
    /// When it is tried again, Unix milliseconds; `None` if it waits for somebody.
    pub next_try_ms: Option<u64>,
    /// Why the last attempt failed, where that is known.
    pub error: Option<Error>,
}

/// Which schedules to list. They come by app, service and name.
#[derive(Clone, Debug, Default)]
pub struct SchedulesRequest<'a> {
    /// Only this app's.
    pub app: Option<&'a str>,
    /// Only this service's.
    pub service: Option<&'a str>,
    /// Only those after this one, as the last page said.
    pub after: Option<&'a str>,
    /// At most so many.
    pub limit: usize,
}

/// A call that a deployed service declares to be made again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Its name, unique within the service.
    pub name: String,
    /// What it calls.
    pub target: Target,
    /// When: the text that the service declares.
    pub cron: String,
    /// When it is due next, Unix milliseconds; `None` if no time comes that a number can say.
    pub due_ms: Option<u64>,
}

/// What was sent or runs for long, as people look at it and step in.
pub trait Invocations: Clone + 'static {
    /// What became of a sent invocation. Without the journal, which may be long, if that is not asked for.
    fn invocation(
        &self,
        principal: &Principal,
        id: &str,
        has_journal: bool,
    ) -> impl Future<Output = Result<Invocation, Error>>;

    /// The workflows that the principal may see.
    fn invocations(
        &self,
        principal: &Principal,
        request: InvocationsRequest<'_>,
    ) -> impl Future<Output = Result<Page<Invocation>, Error>>;

    /// Steps in on a workflow; answered once that is durable.
    fn intervene(
        &self,
        principal: &Principal,
        id: &str,
        intervention: Intervention,
    ) -> impl Future<Output = Result<(), Error>>;

    /// Sends a signal to a workflow; `payload` is JSON text. Answered once it is durable.
    fn signal(
        &self,
        principal: &Principal,
        id: &str,
        name: &str,
        payload: Bytes,
        idempotency_key: Option<IdempotencyKey<&str>>,
    ) -> impl Future<Output = Result<(), Error>>;

    /// The dead letters of the apps that the principal may call, or the messages that failed and are tried again: they may
    /// become some. `after` as the last page said.
    fn dead_letters(
        &self,
        principal: &Principal,
        is_waiting: bool,
        after: Option<&str>,
        limit: usize,
    ) -> impl Future<Output = Result<Page<DeadLetter>, Error>>;

    /// Tries a dead letter again, from its first attempt.
    fn retry_dead_letter(&self, principal: &Principal, id: &str) -> impl Future<Output = Result<(), Error>>;

    /// Drops a dead letter.
    fn drop_dead_letter(&self, principal: &Principal, id: &str) -> impl Future<Output = Result<(), Error>>;

    /// The schedules of the services that the principal may call.
    fn schedules(
        &self,
        principal: &Principal,
        request: SchedulesRequest<'_>,
    ) -> impl Future<Output = Result<Page<Schedule>, Error>>;
}
