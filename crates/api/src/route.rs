//! Requests to the routes that services export, free of any HTTP library.

use std::sync::Arc;

use bytes::Bytes;
use millrace_base::IdempotencyKey;

/// Names that no service may have, because fronts have operations of their own where the routes of a service of this
/// name would be. In alphabetical order.
pub const RESERVED_SERVICES: [&str; 25] = [
    "apps",
    "backup",
    "call",
    "cluster",
    "compatibility",
    "config",
    "console",
    "dead-letters",
    "delschema",
    "errors",
    "healthz",
    "invocations",
    "metrics",
    "mode",
    "ping",
    "putschema",
    "readyz",
    "records",
    "s3",
    "schedules",
    "schemas",
    "send",
    "state",
    "subjects",
    "workers",
];

/// A request's headers, read where the front keeps them, so that no request copies headers no
/// function asks for.
pub trait HeaderSource: Send + Sync {
    /// The first value of the header `name` (lower case), when it is there and is visible ASCII
    /// or UTF-8.
    fn get(&self, name: &str) -> Option<&str>;

    /// Calls `visit` with every (lower-case name, value); values that are not text are passed over.
    fn each(&self, visit: &mut dyn FnMut(&str, &str));
}

/// A request to a route of a service.
pub struct RouteRequest {
    /// The app, when the request names one.
    pub app: Option<String>,
    /// The service whose routes are asked.
    pub service: String,
    /// The method, upper case.
    pub method: String,
    /// The path below the service, starting with `/`, still percent-encoded.
    pub path: String,
    /// What follows `?`, still percent-encoded.
    pub query: Option<String>,
    /// The headers.
    pub headers: Arc<dyn HeaderSource>,
    /// The whole body, within the front's limit.
    pub body: Bytes,
    /// The `Idempotency-Key`, if the caller sent one.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// What a route answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteReply {
    /// The status that the route chose, 200 to 599.
    pub status: u16,
    /// Headers to send; names are lower case and valid, values hold no control characters.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}
