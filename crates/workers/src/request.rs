//! One request to a worker, and what its answer means.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use millrace_base::{ByteBudget, Error, ErrorCode, hex, limits};
use millrace_fetch::{Duplex, Failure, HttpFetcher};
use millrace_func::{AttemptToken, FetchRequest, WorkerMode};
use tokio::time::timeout;

use crate::deployment::WorkerUrl;
use crate::signature::{Signed, Signer};

/// The media type of frames.
pub(crate) const FRAMES: &str = "application/vnd.millrace.worker";

/// How long a request may be under way until a worker takes it, clocks that differ included.
const EXPIRES_AFTER: Duration = Duration::from_secs(60);

/// How long is waited for the text of a refusal on a stream.
const REFUSAL: Duration = Duration::from_millis(500);

/// What is asked of a worker.
pub(crate) struct WorkerRequest<'a> {
    pub method: &'static str,
    pub path: &'static str,
    pub protocol: u32,
    pub attempt: AttemptToken,
    pub body: Bytes,
    /// How much of the body the signature is for.
    pub signed_bytes: usize,
    /// Of a request for the discovery document: what the server offers.
    pub mode: WorkerMode,
    pub signer: Option<&'a Signer>,
    pub timeout_ms: u64,
    pub response_bytes: usize,
    /// What the answers of all workers of the app count for.
    pub budget: &'a ByteBudget,
}

/// The headers that say who asks.
fn headers(
    protocol: u32,
    signer: Option<&Signer>,
    (method, path): (&str, &str),
    attempt: AttemptToken,
    signed: &[u8],
) -> Vec<(String, String)> {
    let header = |name: &str, value: String| (name.to_owned(), value);
    let mut headers =
        vec![header("millrace-worker-protocol", protocol.to_string()), header("millrace-attempt", hex(&attempt))];
    if let Some(signer) = signer {
        let expires = SystemTime::now() + EXPIRES_AFTER;
        let expires = expires.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let signature = signer.sign(&Signed { method, path, expires, attempt, body: signed });
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
    let budget = request.budget;
    let request = fetch_request(url, request);
    match fetcher.exchange(request, url.is_http2(), budget).await {
        Ok(response) if response.status == 200 => Ok(response.body),
        Ok(response) => Err(refused(url, response.status, &response.body)),
        Err(failure) => Err(failed(url, &failure)),
    }
}

/// Begins an exchange in both directions at once, whose first part is the request's body. Signed are its first bytes.
///
/// # Errors
/// As for [`ask`].
pub(crate) async fn open(fetcher: &HttpFetcher, url: &WorkerUrl, request: WorkerRequest<'_>) -> Result<Duplex, Error> {
    let opened = fetcher.open(fetch_request(url, request), url.is_http2()).await;
    let mut duplex = opened.map_err(|failure| failed(url, &failure))?;
    if duplex.status() == 200 {
        return Ok(duplex);
    }
    let said = timeout(REFUSAL, duplex.next()).await.ok().flatten();
    Err(refused(url, duplex.status(), &said.and_then(Result::ok).unwrap_or_default()))
}

fn fetch_request(url: &WorkerUrl, request: WorkerRequest<'_>) -> FetchRequest {
    let WorkerRequest { method, path, protocol, attempt, body, signed_bytes, mode, signer, .. } = request;
    let (target, path) = url.below(path);
    let mut headers = headers(protocol, signer, (method, &path), attempt, &body[..signed_bytes.min(body.len())]);
    if !body.is_empty() {
        headers.push(("content-type".to_owned(), FRAMES.to_owned()));
    }
    if mode == WorkerMode::Stream {
        headers.push(("millrace-worker-mode".to_owned(), "stream".to_owned()));
    }
    let WorkerRequest { timeout_ms, response_bytes, .. } = request;
    FetchRequest { method: method.to_owned(), url: target, headers, body, timeout_ms, response_bytes, retries: 0 }
}

fn failed(url: &WorkerUrl, failure: &Failure) -> Error {
    let Failure { error, is_late, is_unsent } = failure;
    let what = error.message.split_once(": ").map_or(&*error.message, |(_, what)| what);
    let code = match (is_late, is_unsent) {
        (_, true) => ErrorCode::WorkerUnavailable,
        (true, false) => ErrorCode::WorkerTimeout,
        (false, false) => ErrorCode::WorkerFailed,
    };
    lost(code, url, what)
}

/// What a status other than 200 means.
fn refused(url: &WorkerUrl, status: u16, body: &[u8]) -> Error {
    let code = match status {
        // It is there, and takes nothing now; or a proxy before it says that it is not there.
        429 | 502..=504 => ErrorCode::WorkerUnavailable,
        _ => ErrorCode::WorkerFailed,
    };
    let hint = if status == 401 { ": has it another secret, or the public key of another app?" } else { "" };
    let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
    let said = if text.is_empty() { String::new() } else { format!(" and {text:?}") };
    lost(code, url, &format!("it answered with status {status}{said}{hint}"))
}

/// As many bytes as one turn may have.
pub(crate) const TURN_BYTES: usize = limits::WORKER_ATTEMPT_BYTES;

/// What the answers of an app's workers count for.
pub(crate) fn turns_budget() -> ByteBudget {
    ByteBudget::new(limits::WORKER_ATTEMPTS_BYTES, limits::WORKER_UNCOUNTED_BYTES)
}
