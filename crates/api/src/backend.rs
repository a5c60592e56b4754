//! The operations themselves, as one trait that the node implements and every front uses.

use std::future::Future;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{AppFile, AppInfo, Error, Principal, RouteReply, RouteRequest};

/// `POST /call/{service}/{key}/{handler}`.
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

/// `POST /send/{service}/{key}/{handler}`: run later, answered as soon as it is durable.
#[derive(Clone, Debug)]
pub struct SendRequest<'a> {
    /// What to run.
    pub call: CallRequest<'a>,
    /// How long to wait before it runs.
    pub delay_ms: u64,
}

/// What became of a sent invocation.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum InvocationStatus {
    /// Waits for its time or its turn.
    Pending,
    /// Took effect.
    Succeeded,
    /// Was refused by the function, or failed too often; nothing took effect.
    Failed,
}

/// `GET /invocations/{id}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// As returned by [`Backend::send`].
    pub id: String,
    /// What became of it.
    pub status: InvocationStatus,
    /// The function's output (JSON text), once succeeded.
    pub output: Option<Bytes>,
    /// Why it failed, once failed.
    pub error: Option<Error>,
}

/// `GET /state/{service}/{key}` and `/{field}`.
#[derive(Clone, Debug)]
pub struct StateRequest<'a> {
    /// The app, when the caller names one.
    pub app: Option<&'a str>,
    /// The service.
    pub service: &'a str,
    /// The entity's key, decoded.
    pub key: &'a [u8],
    /// One field; `None` asks for all.
    pub field: Option<&'a [u8]>,
}

/// An entity's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateReply {
    /// All fields as one JSON object (binary values as `{"base64": "…"}`).
    Entity(Bytes),
    /// One field holding JSON text.
    Json(Bytes),
    /// One field holding bytes.
    Binary(Bytes),
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
/// a front's connection stays on the core that accepted it.
pub trait Backend: Clone + 'static {
    /// Runs a handler as one transaction; the output is JSON text.
    fn call(&self, principal: &Principal, request: CallRequest<'_>) -> impl Future<Output = Result<Bytes, Error>>;

    /// Enqueues a call; answers its invocation id once that is durable.
    fn send(&self, principal: &Principal, request: SendRequest<'_>) -> impl Future<Output = Result<String, Error>>;

    /// What became of a sent invocation.
    fn invocation(&self, principal: &Principal, id: &str) -> impl Future<Output = Result<Invocation, Error>>;

    /// Runs a route.
    fn route(&self, principal: &Principal, request: RouteRequest) -> impl Future<Output = Result<RouteReply, Error>>;

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
    ) -> impl Future<Output = Result<AppInfo, Error>>;

    /// Removes an app; its state stays and comes back with the app.
    fn remove_app(&self, principal: &Principal, app: &str) -> impl Future<Output = Result<(), Error>>;

    /// The deployed apps, by name.
    fn apps(&self, principal: &Principal) -> impl Future<Output = Result<Vec<AppInfo>, Error>>;

    /// Whether the node serves.
    fn health(&self) -> Health;
}
