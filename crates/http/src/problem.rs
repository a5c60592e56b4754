//! Errors as RFC 9457 problem documents.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use millrace_base::{Error, ErrorCode};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::body::ReplyBody;
use crate::status::status_of;

/// `{"type", "title", "status", "detail", "code", "payload"?}`. The type is a reference relative to
/// the server, where `GET /errors/<code>` answers the page about it.
#[derive(Serialize)]
pub(crate) struct Problem<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    detail: Cow<'a, str>,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
}

impl<'a> Problem<'a> {
    /// Without what it may carry for a program, which may be long.
    pub(crate) fn without_payload(error: &'a Error) -> Self {
        Self {
            kind: format!("/errors/{}", error.code.as_str()),
            title: error.code.title(),
            status: status_of(error.code).as_u16(),
            detail: detail_of(error),
            code: error.code.as_str(),
            payload: None,
        }
    }

    pub(crate) fn new(error: &'a Error) -> Self {
        let payload = error.detail.as_ref().map(|detail| {
            // A detail that is no JSON text (a fault of whoever made it) is shown as a string.
            RawValue::from_string(detail.clone())
                .unwrap_or_else(|_| serde_json::value::to_raw_value(detail).unwrap_or_default())
        });
        Self { payload, ..Self::without_payload(error) }
    }
}

/// What the error says, and what to do about it over HTTP.
fn detail_of(error: &Error) -> Cow<'_, str> {
    match error.code {
        ErrorCode::AmbiguousService => format!("{}, as in /apps/{{app}}/…", error.message).into(),
        _ => Cow::Borrowed(&error.message),
    }
}

/// The problem document of `error`, as it is sent.
#[must_use]
pub fn problem_json(error: &Error) -> Vec<u8> {
    // Serializing strings and numbers to memory cannot fail; an empty body would still carry the status.
    serde_json::to_vec(&Problem::new(error)).unwrap_or_default()
}

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const BEARER: HeaderValue = HeaderValue::from_static("Bearer");

/// When to try again, in seconds: soon where load passes by itself, later where somebody has to
/// act first.
fn retry_after(code: ErrorCode) -> HeaderValue {
    HeaderValue::from_static(match code {
        ErrorCode::ReadOnly | ErrorCode::ShardStopped => "10",
        ErrorCode::ShuttingDown => "2",
        _ => "1",
    })
}

/// `allow` is the list of methods that a 405 must name; for other codes it is not looked at.
pub(crate) fn respond(error: &Error, allow: Option<String>) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::new(problem_json(error).into()));
    let status = status_of(error.code);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, PROBLEM_JSON);
    add_headers(error, status, allow, headers);
    response
}

fn add_headers(error: &Error, status: StatusCode, allow: Option<String>, headers: &mut HeaderMap) {
    match status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(header::WWW_AUTHENTICATE, BEARER);
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(header::RETRY_AFTER, retry_after(error.code));
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            let allow = allow.or_else(|| allow_from_detail(error)).unwrap_or_default();
            if let Ok(value) = HeaderValue::try_from(allow) {
                headers.insert(header::ALLOW, value);
            }
        }
        // The rest of the request is not read, so the connection cannot serve another one. HTTP/2
        // has no such header and drops it.
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        _ => {}
    }
}

/// A node that refuses a route's method names the others as a JSON array of strings.
fn allow_from_detail(error: &Error) -> Option<String> {
    let methods: Vec<String> = serde_json::from_str(error.detail.as_ref()?).ok()?;
    Some(methods.join(", "))
}

/// A whole HTTP/1.1 reply for a connection that is closed before hyper could answer.
pub(crate) fn raw_reply(error: &Error) -> Vec<u8> {
    let body = problem_json(error);
    let status = status_of(error.code);
    let retry = if status == StatusCode::SERVICE_UNAVAILABLE { "retry-after: 1\r\n" } else { "" };
    let mut reply = format!(
        "HTTP/1.1 {} {}\r\ncontent-type: application/problem+json\r\n{retry}connection: close\r\ncontent-length: {}\r\n\r\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        body.len()
    )
    .into_bytes();
    reply.extend_from_slice(&body);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(error: &Error) -> serde_json::Value {
        serde_json::from_slice(&problem_json(error)).expect("JSON")
    }

    #[test]
    fn every_code_makes_a_whole_document() {
        for code in ErrorCode::all() {
            let document = parsed(&Error::new(code, "what \"happened\"\n"));
            assert_eq!(document["type"], format!("/errors/{}", code.as_str()));
            assert_eq!(document["status"], status_of(code).as_u16());
            let advice = if code == ErrorCode::AmbiguousService { ", as in /apps/{app}/…" } else { "" };
            assert_eq!(document["detail"], format!("what \"happened\"\n{advice}"));
            assert_eq!(document["code"], code.as_str());
            assert!(document.get("payload").is_none());
            assert!(crate::error_page(code).contains(code.as_str()));
        }
    }

    #[test]
    fn a_payload_is_json_and_never_breaks_the_document() {
        let mut error = Error::new(ErrorCode::Aborted, "insufficient funds");
        error.detail = Some(r#"{"balance":3}"#.to_owned());
        assert_eq!(parsed(&error)["payload"]["balance"], 3);
        error.detail = Some("}{".to_owned());
        assert_eq!(parsed(&error)["payload"], "}{");
    }

    #[test]
    fn a_method_refused_by_the_node_names_the_others() {
        let mut error = Error::new(ErrorCode::MethodNotAllowed, "no");
        error.detail = Some(r#"["GET","POST"]"#.to_owned());
        assert_eq!(respond(&error, None).headers()[header::ALLOW], "GET, POST");
    }
}
