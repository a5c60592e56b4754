//! One request to a worker, and what its answer means.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use millrace_base::{ByteBudget, Error, ErrorCode, hex, limits};
use millrace_fetch::{Failure, HttpFetcher};
use millrace_func::{AttemptToken, FetchRequest, FetchResponse};

use crate::deployment::WorkerUrl;
use crate::signature::{Signed, signature};

/// The media type of frames.
pub(crate) const FRAMES: &str = "application/vnd.millrace.worker";

/// How long a request may be under way until a worker takes it, clocks that differ included.
const EXPIRES_AFTER: Duration = Duration::from_secs(60);

/// What is asked of a worker.
pub(crate) struct WorkerRequest<'a> {
    pub method: &'static str,
    pub path: &'static str,
    pub protocol: u32,
    pub attempt: AttemptToken,
    pub body: Bytes,
    pub secret: Option<&'a str>,
    pub timeout_ms: u64,
    pub response_bytes: usize,
    /// What the answers of all workers of the app count for.
    pub budget: &'a ByteBudget,
}

/// The headers that say who asks.
fn headers(
    protocol: u32,
    secret: Option<&str>,
    (method, path): (&str, &str),
    attempt: AttemptToken,
    signed: &[u8],
) -> Vec<(String, String)> {
    let header = |name: &str, value: String| (name.to_owned(), value);
    let mut headers =
        vec![header("millrace-worker-protocol", protocol.to_string()), header("millrace-attempt", hex(&attempt))];
    if let Some(secret) = secret {
        let expires = SystemTime::now() + EXPIRES_AFTER;
        let expires = expires.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let signature = signature(secret, &Signed { method, path, expires, attempt, body: signed });
        headers.push(header("millrace-expires", expires.to_string()));
        headers.push(header("millrace-signature", signature));
    }
    headers
}

pub(crate) fn lost(code: ErrorCode, url: &WorkerUrl, what: &str) -> Error {
    Error::new(code, format!("the worker at {}: {what}", url.text()))
}

/// Sends a request.
///
/// # Errors
/// `worker-unavailable`, `worker-failed`, `worker-timeout`.
pub(crate) async fn ask(fetcher: &HttpFetcher, url: &WorkerUrl, request: WorkerRequest<'_>) -> Result<Bytes, Error> {
    let WorkerRequest { method, path, protocol, attempt, body, secret, timeout_ms, response_bytes, budget } = request;
    let (target, path) = url.below(path);
    let mut headers = headers(protocol, secret, (method, &path), attempt, &body);
    if !body.is_empty() {
        headers.push(("content-type".to_owned(), FRAMES.to_owned()));
    }
    let request =
        FetchRequest { method: method.to_owned(), url: target, headers, body, timeout_ms, response_bytes, retries: 0 };
    let exchanged = if url.is_http2() {
        fetcher.exchange_http2(request, budget).await
    } else {
        fetcher.exchange(request, budget).await
    };
    match exchanged {
        Ok(response) => body_of(url, response),
        Err(Failure { error, is_late, is_unsent }) => {
            let what = error.message.split_once(": ").map_or(&*error.message, |(_, what)| what);
            let code = match (is_late, is_unsent) {
                (_, true) => ErrorCode::WorkerUnavailable,
                (true, false) => ErrorCode::WorkerTimeout,
                (false, false) => ErrorCode::WorkerFailed,
            };
            Err(lost(code, url, what))
        }
    }
}

fn body_of(url: &WorkerUrl, response: FetchResponse) -> Result<Bytes, Error> {
    let code = match response.status {
        200 => return Ok(response.body),
        // It is there, and takes nothing now; or a proxy before it says that it is not there.
        429 | 502..=504 => ErrorCode::WorkerUnavailable,
        _ => ErrorCode::WorkerFailed,
    };
    let hint = if response.status == 401 { ": has it another secret?" } else { "" };
    let text: String = String::from_utf8_lossy(&response.body).chars().take(200).collect();
    let said = if text.is_empty() { String::new() } else { format!(" and {text:?}") };
    Err(lost(code, url, &format!("it answered with status {}{said}{hint}", response.status)))
}

/// As many bytes as one turn may have.
pub(crate) const TURN_BYTES: usize = limits::WORKER_ATTEMPT_BYTES;

/// What the answers of an app's workers count for.
pub(crate) fn turns_budget() -> ByteBudget {
    ByteBudget::new(limits::WORKER_ATTEMPTS_BYTES, limits::WORKER_UNCOUNTED_BYTES)
}
