//! Reads a response, within its limit.

use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use millrace_base::{ByteBudget, limits};
use millrace_func::FetchResponse;

use crate::fetcher::describe;

/// Headers about the connection. The function does not need them, and they would be wrong if it passed the response on.
const OF_THE_CONNECTION: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

/// Why a response is not read whose bytes the budget does not have. Errors that say so end with it.
pub const NO_ROOM: &str = "the responses that are held together are too large";

/// How much is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room<'a> {
    /// Of this response's body.
    pub(crate) limit_bytes: usize,
    /// Of the bodies of this one and others.
    pub(crate) budget: &'a ByteBudget,
}

/// Reads it to its end.
///
/// # Errors
/// A sentence: the server broke off, broke the protocol, or sent more than there is room for.
pub(crate) async fn read(response: Response<Incoming>, room: Room<'_>) -> Result<FetchResponse, String> {
    let Room { limit_bytes, budget } = room;
    let (head, mut body) = response.into_parts();
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err("the server switched to another protocol without being asked".to_owned());
    }
    // Over HTTP/1.1 the parser counts them.
    if head.headers.len() > limits::FETCH_RESPONSE_HEADERS {
        return Err(format!("the response has more than {} headers", limits::FETCH_RESPONSE_HEADERS));
    }
    let too_large = || format!("the response's body has more than {limit_bytes} bytes, the limit of this fetch");
    // The length that `content-length` announces; for a chunked body, 0.
    if body.size_hint().lower() > limit_bytes as u64 {
        return Err(too_large());
    }
    let mut collected = budget.buffer();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("the response broke off: {}", describe(&error)))?;
        // Trailers come after the body; functions do not see them.
        let Ok(data) = frame.into_data() else { continue };
        if collected.size_bytes() + data.len() > limit_bytes {
            return Err(too_large());
        }
        if !collected.extend(&data) {
            return Err(NO_ROOM.to_owned());
        }
    }
    Ok(FetchResponse { status: head.status.as_u16(), headers: texts(&head.headers), body: collected.freeze() })
}

fn texts(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        let value = std::str::from_utf8(value.as_bytes()).ok()?;
        (!OF_THE_CONNECTION.contains(&name.as_str())).then(|| (name.as_str().to_owned(), value.to_owned()))
    };
    headers.iter().filter_map(text).collect()
}
