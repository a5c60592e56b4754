//! FETCH: from what a worker writes to a request to a server outside.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, limits};
use millrace_func::{FetchRequest, base64_decode};
use serde::Deserialize;

use crate::attempt::broken;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FetchParameters {
    #[serde(default = "get")]
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default)]
    body: String,
    timeout_ms: Option<u64>,
    retries: Option<u32>,
}

fn get() -> String {
    "GET".to_owned()
}

/// Reads a request. An inner error is the handler's to see.
///
/// # Errors
/// `worker-failed` for what is not one.
pub(crate) fn fetch_request(json: &[u8], is_route: bool) -> Result<Result<FetchRequest, Error>, Error> {
    let asked: FetchParameters =
        serde_json::from_slice(json).map_err(|error| broken(format_args!("a fetch: {error}")))?;
    let body = base64_decode(asked.body.as_bytes()).ok_or_else(|| broken("a fetch's body is not base64"))?;
    if body.len() > limits::FETCH_REQUEST_BYTES {
        let message = format!("an outside request has at most {} bytes", limits::FETCH_REQUEST_BYTES);
        return Ok(Err(Error::new(ErrorCode::SizeLimit, message)));
    }
    // A route's request is sent once.
    let retries = if is_route { 0 } else { asked.retries.unwrap_or(limits::FETCH_RETRIES) };
    Ok(Ok(FetchRequest {
        method: asked.method.to_ascii_uppercase(),
        url: asked.url,
        headers: asked.headers,
        body: Bytes::from(body),
        timeout_ms: asked.timeout_ms.unwrap_or(limits::FETCH_TIMEOUT_MS).clamp(1, limits::FETCH_LONGEST_MS),
        response_bytes: limits::FETCH_RESPONSE_BYTES,
        retries: retries.min(limits::FETCH_MOST_RETRIES),
    }))
}
