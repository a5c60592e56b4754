//! What a front may ask of a node, and what it gets back: operations and their replies.
//!
//! Promises: nothing here knows HTTP, RESP or storage; a front translates its protocol to these
//! operations and their results back, and holds no other logic. Must not depend on a front, on
//! the node or on the store.

mod app;
mod backend;
mod begun;
mod object;
pub mod objects;
mod record;
mod route;

pub use app::{
    AppFile, AppInfo, BUILT_IN_APPS, Deployed, HandlerInfo, HandlerKind, RouteInfo, ServiceInfo, SystemApp, is_built_in,
};
pub use backend::{
    Admission, Backend, CallRequest, DeadLetter, Health, Invocation, InvocationStatus, InvocationsRequest, JournalStep,
    Page, Schedule, SchedulesRequest, SendRequest, StateFields, StateReply, StateRequest, Target, WorkflowState,
};
pub use begun::{Begun, Waiting};
pub use millrace_access::{Permission, Principal, Role, RoleError};
pub use millrace_base::{Error, ErrorCode};
pub use object::{Object, objects};
pub use record::{
    Condition, Form, PathOperation, PathOperationKind, READ_HANDLER, RECORDS_APP, RecordChange, RecordOperation,
    RecordQuery, RecordReply, RecordRequest, RecordWrite, SHARD_SERVICE, SWEEP_HANDLER, TRIGGERS_SERVICE, Ttl,
    WRITE_HANDLER,
};
pub use route::{HeaderSource, RESERVED_SERVICES, RouteReply, RouteRequest};
