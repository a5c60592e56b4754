//! `ctx.fetch`: an HTTP request to a server outside, as data; which of them an app may make; and
//! who performs it.
//!
//! Promises: there is one way to read a URL, [`FetchTarget::parse`]; the policy judges what it
//! gives, and a [`Fetcher`] connects to what it gives, so the two cannot disagree. Must not do I/O.

mod policy;
mod target;

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use millrace_api::Error;

pub use policy::{FetchPolicy, FetchRule};
pub use target::{FetchHost, FetchOrigin, FetchTarget};

/// A request to a server outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// Upper-case method.
    pub method: String,
    /// Absolute `http` or `https` URL.
    pub url: String,
    /// Names and values, in order.
    pub headers: Vec<(String, String)>,
    /// The body; empty means none.
    pub body: Bytes,
    /// How long the whole exchange may take.
    pub timeout_ms: u64,
    /// How large the response's body may be.
    pub response_bytes: usize,
    /// How often a workflow sends it again after it failed; a route sends it once.
    pub retries: u32,
}

/// What the server answered, whatever its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchResponse {
    /// HTTP status.
    pub status: u16,
    /// Lower-case names, and values, in order; values that are not UTF-8 are left out.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

impl FetchResponse {
    /// As the engine is resumed with it: JSON text
    /// `{"status":…,"headers":[[name,value]…],"body":"<base64>"}`.
    #[must_use]
    pub fn to_json(&self) -> Bytes {
        let body = crate::base64_encode(&self.body, crate::Base64Alphabet::Standard);
        let json = serde_json::json!({ "status": self.status, "headers": self.headers, "body": body });
        json.to_string().into()
    }
}

/// A fetch under way.
pub type Fetching = Pin<Box<dyn Future<Output = Result<FetchResponse, Error>> + Send>>;

/// Performs requests to servers outside. Shared by all cores.
pub trait Fetcher: Send + Sync {
    /// Sends a request. The future may be dropped at any time, which gives the request up; it
    /// needs a tokio runtime around it.
    ///
    /// # Errors
    /// `fetch-failed` when no response came (whether the server has acted on the request is
    /// unknown then); `fetch-refused` for a request that is not sent at all.
    fn fetch(&self, request: FetchRequest) -> Fetching;
}
