//! The engine trait and the identities it hands out.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millrace_api::{Error, HeaderSource, RouteReply};

use crate::{Answer, App, Host, OperationId, Reader, WorkerSlot};

/// One loaded version of one app. Whoever loads it gives it the number, the same on all cores of the node. A number is
/// never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Program(pub u32);

/// A handler of a loaded app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandlerId {
    /// The app version it belongs to.
    pub program: Program,
    /// Index into [`App::services`].
    pub service: u16,
    /// Index into the service's handlers.
    pub handler: u16,
}

/// A route of a loaded app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteId {
    /// The app version it belongs to.
    pub program: Program,
    /// Index into [`App::services`].
    pub service: u16,
    /// Index into the service's routes.
    pub route: u16,
}

/// One running handler or route, named by the host. A number is reused only after the activation's
/// end (a [`TurnResult::Done`] or a [`Engine::cancel`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActivationId(pub u32);

/// What a route is given.
pub struct HttpRequest<'a> {
    /// Upper-case method.
    pub method: &'a str,
    /// The whole path as the client sent it, percent-encoded.
    pub path: &'a str,
    /// What follows `?`, percent-encoded; empty when absent.
    pub query: &'a str,
    /// Values of the `:name` parts of the route's path, decoded.
    pub parameters: &'a [(String, String)],
    /// The headers; an engine that lets code read them later keeps the `Arc`.
    pub headers: Arc<dyn HeaderSource>,
    /// The whole body.
    pub body: Bytes,
}

/// What to start.
pub enum Start<'a> {
    /// A handler with the entity's key and a JSON input.
    Handler {
        /// Which.
        id: HandlerId,
        /// The entity's key.
        key: &'a [u8],
        /// JSON text; empty means `null`.
        input: &'a [u8],
    },
    /// A route; it has no entity, so reading and writing fields is an error there.
    Route {
        /// Which.
        id: RouteId,
        /// The request.
        request: HttpRequest<'a>,
    },
}

impl Start<'_> {
    /// The app version it belongs to.
    #[must_use]
    pub fn program(&self) -> Program {
        match self {
            Start::Handler { id, .. } => id.program,
            Start::Route { id, .. } => id.program,
        }
    }
}

/// What a finished activation gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A handler's result: JSON text.
    Value(Bytes),
    /// A route's reply.
    Response(RouteReply),
}

/// Where an activation stands after a turn.
#[derive(Debug)]
pub enum TurnResult {
    /// It ended. The engine has forgotten the activation.
    Done(Result<Output, Error>),
    /// An operation that it got from the [`Host`] has not ended: it awaits one, or has returned, and
    /// what it started does more than to let time pass.
    Waiting,
}

/// Runs functions. One instance per core, holding every loaded app of that core.
///
/// An engine enforces the app's [`crate::Limits`] on CPU, memory, stack, sizes and open
/// operations, and turns every breach into [`TurnResult::Done`] with the fitting code. An activation that
/// waits for no operation and has not finished is `stalled`. User errors become
/// `function-failed` with the error's text and position, and a user's `Abort` becomes `aborted`
/// with its message and, as JSON detail, its payload.
pub trait Engine {
    /// Checks and loads an app's sources. All later calls name them by `program`.
    ///
    /// # Errors
    /// `app-refused`, naming file, line and column, in one of four cases: a source does not parse, an import does not
    /// resolve inside the app, a module throws while loading, or an export is malformed. `internal` where the number is
    /// taken.
    fn load(&self, program: Program, app: &App) -> Result<(), Error>;

    /// What [`Engine::load`] found in the app.
    fn services(&self, program: Program) -> Vec<crate::Service>;

    /// Services whose state a program brings to its definition in the background, by the handler that is
    /// called once in every shard; each with a fingerprint of what it brings it to. Where the program
    /// served before has the same, nothing is to be done.
    fn sweeps(&self, _program: Program) -> Vec<(millrace_base::Name, u64)> {
        Vec::new()
    }

    /// Whether a message for a service or handler that a program does not have is to be dropped: it kept in order
    /// what went with the service, and should the service come back, a sweep does what was missed; or nobody
    /// wants what it was to do any more. Other messages are tried again, and kept if that is in vain.
    fn drops(&self, _program: Program, _service: &str, _handler: &str) -> bool {
        false
    }

    /// The input of a message that failed for good and that somebody has tried again. What it counts of the messages
    /// that led to it begins anew: a person has broken the circle.
    fn begun_again(&self, _program: Program, _service: &str, input: Bytes) -> Bytes {
        input
    }

    /// How a message's failure is noted. A built-in app may say in its own words what failed. It may also say that an abort
    /// is a failure like any other, as nobody receives the answer.
    fn failure_of(&self, _program: Program, _service: &str, _handler: &str, error: Error) -> Error {
        error
    }

    /// Closes the services that `program` does not have any more and that go only while they have no entities,
    /// and says which. From now on no program loaded before `program` makes entities of these services. That holds
    /// whether the older program serves for a moment more or `program` takes its place.
    fn close(&self, _program: Program) -> Vec<millrace_base::Name> {
        Vec::new()
    }

    /// Opens again what was closed for `program`, which will not serve.
    fn reopen(&self, _program: Program) {}

    /// Bytes that a program holds in memory on this core.
    fn memory_bytes(&self, _program: Program) -> usize {
        0
    }

    /// A place for a root transaction that nobody waits for, such as a message, where only so many run at once. `None`: not
    /// now. It is taken before the first lock, and nested calls need none.
    fn enter(&self, _root: HandlerId) -> Option<WorkerSlot> {
        Some(WorkerSlot::default())
    }

    /// Forgets a program once its last activation has ended.
    fn unload(&self, program: Program);

    /// Answers a query at once if all it takes is fields of its own entity: no call, no wait, no activation.
    /// Gives exactly what running it would. `None`: it has to be run.
    fn answer(&self, _query: HandlerId, _input: &[u8], _reader: &mut dyn Reader) -> Option<Result<Answer, Error>> {
        None
    }

    /// Begins an activation and runs it until it ends or waits.
    fn start(&self, activation: ActivationId, start: Start<'_>, host: &mut dyn Host) -> TurnResult;

    /// Goes on with a waiting activation whose `operation` ended with `result` (JSON text, or an
    /// error, which the function sees as a thrown exception).
    fn resume(
        &self,
        activation: ActivationId,
        operation: OperationId,
        result: Result<Bytes, Error>,
        host: &mut dyn Host,
    ) -> TurnResult;

    /// Drops a waiting activation. Its code never runs again.
    fn cancel(&self, activation: ActivationId);
}

/// An engine that several others use: that of a built-in app may run users' code in the one of users' apps.
impl<E: Engine + ?Sized> Engine for Rc<E> {
    fn load(&self, program: Program, app: &App) -> Result<(), Error> {
        (**self).load(program, app)
    }

    fn services(&self, program: Program) -> Vec<crate::Service> {
        (**self).services(program)
    }

    fn sweeps(&self, program: Program) -> Vec<(millrace_base::Name, u64)> {
        (**self).sweeps(program)
    }

    fn drops(&self, program: Program, service: &str, handler: &str) -> bool {
        (**self).drops(program, service, handler)
    }

    fn begun_again(&self, program: Program, service: &str, input: Bytes) -> Bytes {
        (**self).begun_again(program, service, input)
    }

    fn failure_of(&self, program: Program, service: &str, handler: &str, error: Error) -> Error {
        (**self).failure_of(program, service, handler, error)
    }

    fn close(&self, program: Program) -> Vec<millrace_base::Name> {
        (**self).close(program)
    }

    fn reopen(&self, program: Program) {
        (**self).reopen(program);
    }

    fn memory_bytes(&self, program: Program) -> usize {
        (**self).memory_bytes(program)
    }

    fn unload(&self, program: Program) {
        (**self).unload(program);
    }

    fn answer(&self, query: HandlerId, input: &[u8], reader: &mut dyn Reader) -> Option<Result<Answer, Error>> {
        (**self).answer(query, input, reader)
    }

    fn start(&self, activation: ActivationId, start: Start<'_>, host: &mut dyn Host) -> TurnResult {
        (**self).start(activation, start, host)
    }

    fn resume(
        &self,
        activation: ActivationId,
        operation: OperationId,
        result: Result<Bytes, Error>,
        host: &mut dyn Host,
    ) -> TurnResult {
        (**self).resume(activation, operation, result, host)
    }

    fn cancel(&self, activation: ActivationId) {
        (**self).cancel(activation);
    }
}
