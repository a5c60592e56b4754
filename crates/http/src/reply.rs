//! Replies of operations as HTTP responses.

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use millrace_api::{RouteReply, StateReply};
use millrace_base::{Error, ErrorCode, limits};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::body::ReplyBody;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BINARY: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Everything but what RFC 3986 calls unreserved.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A reply with one content type. `headers` is the request's map, reused: emptying it and adding
/// one header costs less than a new map.
pub(crate) fn with_type(
    mut headers: HeaderMap,
    status: StatusCode,
    kind: HeaderValue,
    body: Bytes,
) -> Response<ReplyBody> {
    headers.clear();
    headers.insert(header::CONTENT_TYPE, kind);
    let mut response = Response::new(ReplyBody::new(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// 200 with JSON text.
pub(crate) fn json(headers: HeaderMap, body: Bytes) -> Response<ReplyBody> {
    with_type(headers, StatusCode::OK, JSON, body)
}

/// A status with a value written as JSON.
pub(crate) fn json_value(status: StatusCode, value: &impl Serialize) -> Result<Response<ReplyBody>, Error> {
    let text = serde_json::to_vec(value).map_err(|error| internal(format!("the reply cannot be written: {error}")))?;
    Ok(with_type(HeaderMap::new(), status, JSON, text.into()))
}

pub(crate) fn empty(status: StatusCode) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::new(Bytes::new()));
    *response.status_mut() = status;
    response
}

fn internal(message: String) -> Error {
    Error::new(ErrorCode::Internal, message)
}

/// The reply to `send`.
pub(crate) fn accepted(id: &str) -> Result<Response<ReplyBody>, Error> {
    let mut response = json_value(StatusCode::ACCEPTED, &serde_json::json!({ "id": id }))?;
    let location = format!("/invocations/{}", utf8_percent_encode(id, ENCODED));
    if let Ok(value) = HeaderValue::try_from(location) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    Ok(response)
}

/// An entity's state.
pub(crate) fn state(headers: HeaderMap, reply: StateReply) -> Response<ReplyBody> {
    match reply {
        StateReply::Entity(text) | StateReply::Json(text) => json(headers, text),
        StateReply::Binary(bytes) => with_type(headers, StatusCode::OK, BINARY, bytes),
    }
}

/// A route's reply. `headers` is the request's map, reused where nobody holds it any more.
pub(crate) fn route(mut headers: HeaderMap, reply: RouteReply) -> Result<Response<ReplyBody>, Error> {
    let status = StatusCode::from_u16(reply.status)
        .ok()
        .filter(|status| (200..600).contains(&status.as_u16()))
        .ok_or_else(|| internal(format!("the route answered status {}, which is none", reply.status)))?;
    headers.clear();
    let mut header_bytes = 0;
    for (name, value) in reply.headers {
        header_bytes += name.len() + value.len() + 4;
        if headers.len() >= limits::HTTP_REPLY_HEADERS || header_bytes > limits::HTTP_REPLY_HEADER_BYTES {
            let message = format!(
                "the route's headers exceed {} headers or {} bytes",
                limits::HTTP_REPLY_HEADERS,
                limits::HTTP_REPLY_HEADER_BYTES
            );
            return Err(Error::new(ErrorCode::SizeLimit, message));
        }
        // The one header that nearly every reply has is not looked up.
        let name = if name == "content-type" {
            header::CONTENT_TYPE
        } else {
            HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| internal(format!("the route set a header named {name:?}, which cannot be sent")))?
        };
        if is_ours(&name) {
            continue;
        }
        let value = HeaderValue::try_from(value)
            .map_err(|_| internal(format!("the route set the header {name} to a value that cannot be sent")))?;
        headers.append(name, value);
    }
    let mut response = Response::new(ReplyBody::new(reply.body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Headers about the connection and the framing belong to the front; a route cannot set them.
fn is_ours(name: &HeaderName) -> bool {
    // `keep-alive` has no constant.
    *name == header::CONTENT_LENGTH
        || *name == header::TRANSFER_ENCODING
        || *name == header::CONNECTION
        || *name == header::UPGRADE
        || *name == header::TE
        || *name == header::TRAILER
        || name.as_str() == "keep-alive"
}
