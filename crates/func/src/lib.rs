//! What a function may do and what it may use: the contract between the shard, which owns state
//! and transactions, and an engine, which runs code.
//!
//! The shard starts an *activation* (one running handler or route) on an [`Engine`]; the engine runs it
//! until it finishes or waits. Whatever an activation awaits (a call to another entity, a password
//! hash) is an *operation*: the host names it, and later resumes the activation with its result. There
//! is no other way for a function to wait, so an engine never blocks and is never re-entered: no
//! method of [`Engine`] may be called while another one is running on the same core.
//!
//! Promises: nothing here runs code or keeps state. Must not contain an engine.

mod app;
mod built_in;
mod catalog;
mod cron;
mod crypto;
mod engine;
mod engines;
mod fetch;
mod grants;
mod host;
mod limits;
mod retry;
mod settings;
mod worker;

pub use app::{App, Handlers, Route, Schedule, Service};
pub use built_in::{Answer, BuiltInCall};
pub use catalog::{Catalog, Loaded, RouteMatch};
pub use cron::Cron;
pub use crypto::{
    Base64Alphabet, Offload, argon2id_hash, argon2id_verify, base64_decode, base64_encode, equal_in_constant_time,
    hmac_sha256, sha1, sha256,
};
pub use engine::{ActivationId, Engine, HandlerId, HttpRequest, Output, Program, RouteId, Start, TurnResult};
pub use engines::Engines;
pub use fetch::{
    FetchHost, FetchOrigin, FetchPolicy, FetchRequest, FetchResponse, FetchRule, FetchTarget, Fetcher, Fetching,
};
pub use grants::Grants;
pub use host::{
    BuiltInHost, EntityRows, EntityScan, EntityVisitor, FieldRows, Flow, Host, LogLevel, Message, NestedCall,
    OperationId, Reader, ScanRequest, StepStart, Visit, WorkerHost, not_built_in,
};
pub use limits::Limits;
pub use millrace_api::{Error, ErrorCode, HandlerKind, HeaderSource, RouteReply, WorkerLine};
pub use retry::{Attempts, RetryOptions, RetryPolicy, RetrySettings, Unlimited};
pub use settings::{AppSettings, SettingsError};
pub use worker::{
    AttemptToken, Concurrency, Discovery, Entering, Exchanging, NoWorkers, OLDEST_WORKER_PROTOCOL, ProtocolRange,
    RequestSigning, WORKER_FILE, WORKER_PROTOCOL, WorkerAddress, WorkerDocument, WorkerDoor, WorkerHandler, WorkerKind,
    WorkerMode, WorkerRoute, WorkerSchedule, WorkerService, WorkerSettings, WorkerSlot, WorkerTurn, Workers,
    connections, worker_http_url, worker_may_be_http2,
};
