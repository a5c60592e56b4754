//! Calls: handlers, sends, routes, and the state that they left.

use std::future::Future;

use bytes::Bytes;

use crate::{Begun, Error, IdempotencyKey, Principal, RouteReply, RouteRequest};

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
    pub idempotency_key: Option<IdempotencyKey<&'a str>>,
}

/// A call that runs later, and is answered as soon as it is durable.
#[derive(Clone, Debug)]
pub struct SendRequest<'a> {
    /// What to run.
    pub call: CallRequest<'a>,
    /// How long to wait before it runs, at most [`millrace_base::limits::DELAY_MS`].
    pub delay_ms: u64,
    /// The id that the workflow is to have. It is started unless it has been, and the idempotency key is not looked at.
    pub id: Option<&'a str>,
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

/// Users' handlers and routes, as a front calls them.
pub trait Calls: Clone + 'static {
    /// Runs a handler as one transaction; the output is JSON text.
    fn call(&self, principal: &Principal, request: CallRequest<'_>) -> Begun<Bytes>;

    /// Enqueues a call; answers its invocation id once that is durable.
    fn send(&self, principal: &Principal, request: SendRequest<'_>) -> impl Future<Output = Result<String, Error>>;

    /// Runs a route.
    fn route(&self, principal: &Principal, request: RouteRequest) -> Begun<RouteReply>;

    /// Reads committed, durable state.
    fn state(
        &self,
        principal: &Principal,
        request: StateRequest<'_>,
    ) -> impl Future<Output = Result<StateReply, Error>>;
}
