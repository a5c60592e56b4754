//! The operations themselves, as one trait that the node implements and every front uses.

use std::future::Future;
use std::task::{Context, Poll};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    AppFile, AppInfo, Begun, Deployed, Error, ErrorCode, Principal, RecordReply, RecordRequest, RouteReply,
    RouteRequest, SystemApp,
};

/// Which handler to call, and with what.
#[derive(Clone, Debug)]
pub struct CallRequest<'a> {
    /// The app, when the caller names one; needed only while several apps have such a service.
    pub app: Option<&'a str>,
    /// The service.
    pub service: &'a str,
    /// The entity's key, decoded.
    pub key: &'a [u8],
    /// The handler.
    pub handler: &'a str,
    /// JSON text; empty means `null`.
    pub input: Bytes,
    /// Makes the call take effect once however often it is sent.
    pub idempotency_key: Option<&'a str>,
}

/// A call that runs later, and is answered as soon as it is durable.
#[derive(Clone, Debug)]
pub struct SendRequest<'a> {
    /// What to run.
    pub call: CallRequest<'a>,
    /// How long to wait before it runs, at most [`millrace_base::limits::DELAY_MS`].
    pub delay_ms: u64,
}

/// What became of a sent invocation.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum InvocationStatus {
    /// Waits for its time or its turn.
    Pending,
    /// A workflow under way.
    Running,
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
            InvocationStatus::Pending | InvocationStatus::Running => false,
            InvocationStatus::Succeeded | InvocationStatus::Failed | InvocationStatus::Cancelled => true,
        }
    }
}

/// A sent call or a workflow, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// As returned by [`Backend::send`].
    pub id: String,
    /// What became of it.
    pub status: InvocationStatus,
    /// The function's output (JSON text), once succeeded.
    pub output: Option<Bytes>,
    /// Why it failed, once failed or cancelled.
    pub error: Option<Error>,
    /// What more is known of a workflow.
    pub workflow: Option<WorkflowState>,
}

/// What is known of a workflow beside its outcome.
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

/// A message that failed too often, and waits for somebody to look at it.
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

/// Which fields of which entity to read.
#[derive(Clone, Debug)]
pub struct StateRequest<'a> {
    /// The app, when the caller names one.
    pub app: Option<&'a str>,
    /// The service.
    pub service: &'a str,
    /// The entity's key, decoded.
    pub key: &'a [u8],
    /// Which fields.
    pub fields: StateFields,
}

/// Which of an entity's fields are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateFields {
    /// All; refused where they are too many for one reply.
    All,
    /// The one of this name.
    One(Box<[u8]>),
    /// Those with names that begin with `prefix`, behind the name `after`, in order, `limit` of them, or fewer where
    /// they are large. None are none, whether there is such an entity or not.
    Page {
        /// How the names begin.
        prefix: Box<[u8]>,
        /// The last name of the page before.
        after: Option<Box<[u8]>>,
        /// At most so many.
        limit: usize,
    },
}

/// An entity's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateReply {
    /// Fields as one JSON object (binary values as `{"base64": "…"}`).
    Entity(Bytes),
    /// One field holding JSON text.
    Json(Bytes),
    /// One field holding bytes.
    Binary(Bytes),
}

/// Of a request that waits to be read; see [`Backend::poll_admission`].
#[derive(Debug, PartialEq, Eq)]
pub struct Admission {
    /// Counts up.
    pub number: u64,
    /// The monotonic nanosecond since which it waits.
    pub since_ns: u64,
}

/// Whether the node serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Requests would be served: recovery is over and the node is not stopping.
    pub is_serving: bool,
    /// Writes would be served too: no shard stopped, the disk has space.
    pub is_ready: bool,
}

/// A node, seen from a front on the same core. Clones are handles to the same node. Every
/// method answers [`Error`] with a code that tells the caller what to do. Futures are not `Send`:
/// a front's connection stays on the core that accepted it. A backend that keeps no records need
/// not say so.
pub trait Backend: Clone + 'static {
    /// Runs a handler as one transaction; the output is JSON text.
    fn call(&self, principal: &Principal, request: CallRequest<'_>) -> Begun<Bytes>;

    /// Enqueues a call; answers its invocation id once that is durable.
    fn send(&self, principal: &Principal, request: SendRequest<'_>) -> impl Future<Output = Result<String, Error>>;

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

    /// Cancels a workflow; answered once the wish is durable. One that has ended stays as it is.
    fn cancel(&self, principal: &Principal, id: &str) -> impl Future<Output = Result<(), Error>>;

    /// Sends a signal to a workflow; `payload` is JSON text. Answered once it is durable.
    fn signal(
        &self,
        principal: &Principal,
        id: &str,
        name: &str,
        payload: Bytes,
        idempotency_key: Option<&str>,
    ) -> impl Future<Output = Result<(), Error>>;

    /// The dead letters of the apps that the principal may call. `after` as the last page said.
    fn dead_letters(
        &self,
        principal: &Principal,
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

    /// Runs a route.
    fn route(&self, principal: &Principal, request: RouteRequest) -> Begun<RouteReply>;

    /// Reads committed, durable state.
    fn state(
        &self,
        principal: &Principal,
        request: StateRequest<'_>,
    ) -> impl Future<Output = Result<StateReply, Error>>;

    /// Deploys or replaces an app, on all cores or not at all.
    fn deploy(
        &self,
        principal: &Principal,
        app: &str,
        files: Vec<AppFile>,
    ) -> impl Future<Output = Result<Deployed, Error>>;

    /// Removes an app; its state stays and comes back with the app.
    fn remove_app(&self, principal: &Principal, app: &str) -> impl Future<Output = Result<(), Error>>;

    /// The deployed apps, by name.
    fn apps(&self, principal: &Principal) -> impl Future<Output = Result<Vec<AppInfo>, Error>>;

    /// Runs an operation on a record as one transaction.
    fn record(&self, _principal: &Principal, request: RecordRequest<'_>) -> Begun<RecordReply> {
        Begun::Ended(Err(unknown_type(request.type_name)))
    }

    /// A built-in app's files, for whoever may call something of it or deploy apps.
    fn system_app(&self, _principal: &Principal, app: &str) -> impl Future<Output = Result<SystemApp, Error>> {
        let error = unknown_app(app);
        async move { Err(error) }
    }

    /// Replaces a built-in app's files on all cores or on none, if its version still is
    /// `expected_version`; gives the new version. `precondition-failed` says that somebody else has
    /// replaced it meanwhile.
    fn replace_system_app(
        &self,
        _principal: &Principal,
        app: &str,
        _expected_version: u64,
        _files: Vec<AppFile>,
    ) -> impl Future<Output = Result<u64, Error>> {
        let error = unknown_app(app);
        async move { Err(error) }
    }

    /// Has every shard bring the records of a type up to its present definition, in the background.
    /// Answered once that is durably on its way.
    fn record_sweep(&self, _principal: &Principal, type_name: &str) -> impl Future<Output = Result<(), Error>> {
        let error = unknown_type(type_name);
        async move { Err(error) }
    }

    /// Whether any record of a type is there, or about to be.
    fn has_records(&self, _principal: &Principal, _type_name: &str) -> impl Future<Output = Result<bool, Error>> {
        async { Ok(false) }
    }

    /// Whether `name` is a type of records, and no deployed app has a service of this name: then a front may give
    /// short names to its records. Asked once a request, so it must be cheap.
    fn is_record_type(&self, _name: &str) -> bool {
        false
    }

    /// Waits until the node has time for a request that has come and is not read. A front that reads what it cannot hand
    /// over yet has it lie in memory, which those that run meanwhile could use.
    ///
    /// Where it has to wait, a request is given an `admission`, with which it asks again as soon as it is woken; or
    /// [`Backend::withdraw`] gives that back. Once this is ready there is none any more, and the request is to be read and
    /// handed over in the same poll.
    fn poll_admission(&self, _admission: &mut Option<Admission>, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// The request that this admission is for will not come, or does not wait.
    fn withdraw(&self, _admission: Admission) {}

    /// Whether the node serves.
    fn health(&self) -> Health;
}

fn unknown_type(name: &str) -> Error {
    Error::new(ErrorCode::UnknownType, format!("there is no type of records named {name:?}"))
}

fn unknown_app(name: &str) -> Error {
    Error::new(ErrorCode::UnknownApp, format!("no app {name:?} is built in"))
}
