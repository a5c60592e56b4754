//! What a front may ask of a node, and what it gets back: operations and their replies.
//!
//! A node implements one trait for each group of operations: [`Calls`], [`Invocations`], [`Deployments`], [`Records`]; and
//! [`Serving`], which every front needs. A front is generic over the traits that it uses. The operations of another built-in
//! app are one more trait.
//!
//! Promises: nothing here knows HTTP, RESP or storage; a front translates its protocol to these
//! operations and their results back, and holds no other logic. Must not depend on a front, on
//! the node or on the store.

mod app;
mod backups;
mod begun;
mod built_in;
mod calls;
mod deployments;
mod invocations;
mod object;
pub mod objects;
mod record;
mod records;
mod route;
mod serving;
mod worker_line;

pub use app::{
    AppFile, AppInfo, AppSchemas, AppVersion, Deployed, HandlerInfo, HandlerKind, HandlerSchemas, RouteInfo,
    ServiceInfo, SharedService, SystemApp, WorkerRegistration, WorkerSignature,
};
pub use backups::{BackupPieces, Backups};
pub use begun::{Begun, Waiting};
pub use built_in::{
    Allows, BUILT_IN_APPS, BuiltInApp, BuiltInFiles, BuiltInReply, Setting, built_in_app, is_built_in,
    no_built_in_service,
};
pub use calls::{CallRequest, Calls, SendRequest, StateFields, StateReply, StateRequest};
pub use deployments::Deployments;
pub use invocations::{
    DeadLetter, Failure, Intervention, Invocation, InvocationStatus, Invocations, InvocationsRequest, JournalStep,
    Page, Schedule, SchedulesRequest, Target, WorkflowState,
};
pub use millrace_access::{Permission, Principal, Role, RoleError};
pub use millrace_base::{Error, ErrorCode, IdempotencyKey};
pub use object::{Object, objects};
pub use record::{
    Condition, Form, PathOperation, PathOperationKind, READ_HANDLER, RECORDS_APP, RecordChange, RecordOperation,
    RecordQuery, RecordReply, RecordRequest, RecordWrite, SHARD_SERVICE, SWEEP_HANDLER, TRIGGERS_SERVICE, Ttl,
    WRITE_HANDLER,
};
pub use records::Records;
pub use route::{HeaderSource, RESERVED_SERVICES, RouteReply, RouteRequest};
pub use serving::{
    Admission, Health, Hindrance, MAJORITY_LOST, MovedTime, NodeChange, REMOVED, Serving, no_test_clock,
};
pub use worker_line::{SharedWorkerLine, WorkerLine};
