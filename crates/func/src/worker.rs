//! Handlers that run in a process of the user, a *worker*: what is known of it, and who talks to it.
//!
//! An app of this kind has one file of its own, [`WORKER_FILE`]: where its workers are, and what they serve. The engine
//! `func-remote` makes frames of what a handler needs; [`Workers`] carries them. Must not do I/O.

mod discovery;
mod document;
mod slots;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use millrace_api::{Error, ErrorCode, WorkerLine};

pub use discovery::{
    Discovery, ProtocolRange, WorkerHandler, WorkerKind, WorkerMode, WorkerRoute, WorkerSchedule, WorkerService,
    connections,
};
pub use document::{RequestSigning, WORKER_FILE, WorkerAddress, WorkerDocument, worker_http_url, worker_may_be_http2};
pub use slots::{Concurrency, WorkerSettings, WorkerSlot};

use crate::Program;

/// The newest version of the protocol that this server speaks. Version 2 has AWAIT, and ids in SEND. Version 3 has retry
/// policies in CALL. Version 4 has OBJECT. Version 5 has DRAIN.
pub const WORKER_PROTOCOL: u32 = 5;

/// The oldest. Requests that come before anything is known of a worker are of this version.
pub const OLDEST_WORKER_PROTOCOL: u32 = 1;

/// Names an attempt on a worker. No other attempt has the same, on any node.
pub type AttemptToken = [u8; 16];

/// Frames for a worker, whose turn comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerTurn {
    /// Whose workers.
    pub program: Program,
    /// The attempt.
    pub attempt: AttemptToken,
    /// What to send. On a stream: what has not been sent.
    pub content: Bytes,
    /// Bytes of START at the beginning of `content`; 0 where an attempt on a stream goes on.
    pub start_bytes: usize,
    /// The turn is a request of its own: `content` is all that was sent of the attempt.
    pub is_request: bool,
    /// How long the worker may take.
    pub timeout_ms: u64,
    /// It is for a query that was given all of its entity.
    pub needs_no_lock: bool,
    /// The service whose slot the turn takes while it is under way: a workflow holds none while it waits. Root transactions
    /// have theirs before they begin.
    pub slot: Option<u16>,
}

/// A turn under way.
pub type Exchanging = Pin<Box<dyn Future<Output = Result<Bytes, Error>>>>;

/// A root transaction that waits for its slot.
pub type Entering = Pin<Box<dyn Future<Output = Result<WorkerSlot, Error>>>>;

/// Talks to workers. Shared by all cores. Its futures stay on the core that asked for them, and need a tokio runtime
/// around them; one that is dropped gives its attempt up.
pub trait Workers: Send + Sync {
    /// From now on `program` is run by the workers that `document` tells of. To be called again is no harm.
    fn serve(&self, program: Program, app: &str, document: &WorkerDocument, concurrency: Concurrency);

    /// A program was unloaded.
    fn forget(&self, program: Program);

    /// Takes a slot for a root transaction of a service, before it takes a lock. Those that wait go in order.
    ///
    /// # Errors
    /// `worker-unavailable`: at once where no worker is there, and after a while where all slots stay taken.
    fn enter(&self, program: Program, service: u16) -> Entering;

    /// The same for those that come again by themselves, as messages do. `None`: not now.
    fn try_enter(&self, program: Program, service: u16) -> Option<WorkerSlot>;

    /// Sends frames to a worker, and gives its turn.
    ///
    /// # Errors
    /// `worker-unavailable`, `worker-failed`, `worker-timeout`: the attempt is lost.
    fn exchange(&self, turn: WorkerTurn) -> Exchanging;

    /// Nobody waits for this attempt any more.
    fn cancel(&self, program: Program, attempt: AttemptToken);

    /// A worker dials in.
    fn dial_in(&self) -> Arc<dyn WorkerDoor>;

    /// What has dialled in serves an app as `document` has it, until its connection ends.
    fn serve_by(&self, app: &str, document: &WorkerDocument, door: &Arc<dyn WorkerDoor>);

    /// Whether a worker of this version of the app has dialled in and is connected.
    fn has_dialled(&self, app: &str, version: u64) -> bool;

    /// All versions of apps that workers have dialled in with and are connected, in ascending order.
    fn dialled(&self) -> Vec<(String, u64)>;

    /// Asks a worker for its discovery document: JSON text, unchecked.
    ///
    /// # Errors
    /// `app-refused` for a URL that is not one of a worker; as for [`Workers::exchange`].
    fn discover(&self, app: &str, address: &WorkerAddress, signing: &RequestSigning) -> Exchanging;

    /// The public key that workers of an app verify requests with, if they are signed without a secret: 64 hex digits. `None`
    /// where there is no way to workers.
    fn public_key(&self, app: &str) -> Option<String>;
}

/// A worker that has dialled in, before it serves.
pub trait WorkerDoor: WorkerLine {
    /// Its discovery document, JSON text, unchecked; to be asked for once.
    fn poll_hello(&self, context: &mut Context<'_>) -> Poll<Result<Bytes, Error>>;

    /// It serves this deployment from now on.
    fn ready(&self, deployment: &str);

    /// It does not serve: the connection ends.
    fn refuse(&self, error: Error);

    /// Whether its connection goes on.
    fn is_open(&self) -> bool;
}

/// For nodes that have no way to workers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWorkers;

fn no_way() -> Error {
    Error::new(ErrorCode::WorkerUnavailable, "this node has no way to workers")
}

impl Workers for NoWorkers {
    fn serve(&self, _program: Program, _app: &str, _document: &WorkerDocument, _concurrency: Concurrency) {}

    fn forget(&self, _program: Program) {}

    fn enter(&self, _program: Program, _service: u16) -> Entering {
        Box::pin(async { Err(no_way()) })
    }

    fn try_enter(&self, _program: Program, _service: u16) -> Option<WorkerSlot> {
        None
    }

    fn exchange(&self, _turn: WorkerTurn) -> Exchanging {
        Box::pin(async { Err(no_way()) })
    }

    fn cancel(&self, _program: Program, _attempt: AttemptToken) {}

    fn dial_in(&self) -> Arc<dyn WorkerDoor> {
        Arc::new(NoDoor)
    }

    fn serve_by(&self, _app: &str, _document: &WorkerDocument, _door: &Arc<dyn WorkerDoor>) {}

    fn has_dialled(&self, _app: &str, _version: u64) -> bool {
        false
    }

    fn dialled(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    fn discover(&self, _app: &str, _address: &WorkerAddress, _signing: &RequestSigning) -> Exchanging {
        Box::pin(async { Err(no_way()) })
    }

    fn public_key(&self, _app: &str) -> Option<String> {
        None
    }
}

/// What leads nowhere.
struct NoDoor;

impl WorkerLine for NoDoor {
    fn receive(&self, _bytes: &[u8]) -> Result<(), Error> {
        Err(no_way())
    }

    fn poll_send(&self, _context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        Poll::Ready(None)
    }

    fn close(&self) {}
}

impl WorkerDoor for NoDoor {
    fn poll_hello(&self, _context: &mut Context<'_>) -> Poll<Result<Bytes, Error>> {
        Poll::Ready(Err(no_way()))
    }

    fn ready(&self, _deployment: &str) {}

    fn is_open(&self) -> bool {
        false
    }

    fn refuse(&self, _error: Error) {}
}
