//! Replies to requests that no operation takes.

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use millrace_api::Records;
use millrace_base::{Error, ErrorCode};

use super::Session;
use crate::body::ReplyBody;
use crate::router::{Captures, Found};
use crate::{problem, records, reply};

/// Whether `Transfer-Encoding`, if there is any, is `chunked`, once. hyper takes two others. It passes `gzip, chunked` on without
/// unpacking it. And a proxy before this server may frame `chunked, chunked` in another way (RFC 9112, 6.1).
pub(super) fn is_framed_plainly(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = |line: &HeaderValue| line.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    lines.next().is_none_or(is_chunked) && lines.next().is_none()
}

#[cold]
pub(super) fn refuse_framing() -> Response<ReplyBody> {
    let message = "the only Transfer-Encoding that is understood is chunked, once";
    let mut reply = problem::respond(&Error::new(ErrorCode::BadRequest, message), None);
    reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    reply
}

/// The reply if a service's route refuses a request, or if there is no such service.
pub(super) fn refuse_route<B: Records>(
    session: &Session<B>,
    captures: &Captures<'_>,
    method: &Method,
    path: &str,
    error: &Error,
) -> Response<ReplyBody> {
    if error.code == ErrorCode::UnknownService
        && let Some(response) = records::constant(method, path)
    {
        return response;
    }
    if matches!(error.code, ErrorCode::UnknownRoute | ErrorCode::UnknownService)
        && let Some(rows) = records::classic_methods(&*session.backend, captures)
    {
        let allow = rows.allow();
        let message = format!("this is an operation on records, which answers {allow}");
        return problem::respond(&Error::new(ErrorCode::MethodNotAllowed, message), Some(allow));
    }
    problem::respond(error, None)
}

/// The reply if no operation has this path, or none of them this method.
pub(super) fn answer_nothing(found: &Found<'_>, path: &str, method: &Method) -> Response<ReplyBody> {
    match found {
        Found::WrongMethod(rows) if *method == Method::OPTIONS => options(rows.allow()),
        Found::WrongMethod(rows) => {
            let allow = rows.allow();
            let hint = method_hint(path, method);
            let error = Error::new(ErrorCode::MethodNotAllowed, format!("{path} answers {allow}, not {method}{hint}"));
            match millrace_records::is_registry_path(path) {
                true => records::refuse_registrys(&error, Some(allow)),
                false => problem::respond(&error, Some(allow)),
            }
        }
        _ if *method == Method::OPTIONS && path == "*" => options("GET, HEAD, POST, PUT, DELETE, OPTIONS".to_owned()),
        _ if millrace_records::is_registry_path(path) => records::refuse_registrys(&unknown_route(path), None),
        _ => problem::respond(&unknown_route(path), None),
    }
}

/// Tells a client that sends `POST` to a list of records what it probably means to do.
fn method_hint(path: &str, method: &Method) -> &'static str {
    match path.strip_prefix("/records/") {
        Some(name) if *method == Method::POST && !name.contains('/') => {
            ": PUT /records/{type}/{id} makes a record, with an id that you choose"
        }
        _ => "",
    }
}

fn options(allow: String) -> Response<ReplyBody> {
    let mut response = reply::empty(StatusCode::NO_CONTENT);
    if let Ok(value) = HeaderValue::try_from(allow) {
        response.headers_mut().insert(header::ALLOW, value);
    }
    response
}

pub(super) fn unknown_route(path: &str) -> Error {
    let hint = match path.split('/').nth(1) {
        Some("call" | "send") => ": calls go to /call/{service}/{key}/{handler}",
        Some("state") => ": state is at /state/{service}/{key} and /state/{service}/{key}/{field}",
        Some("apps") => ": an app is at /apps/{app}, its services at /apps/{app}/{service}/…",
        Some("records") => ": a record is at /records/{type}/{id}, a type's list at /records/{type}",
        Some("schemas") => ": a type is at /schemas/{type}, a schema at /schemas/ids/{id}",
        Some("subjects") => ": a subject's versions are at /subjects/{subject}/versions/{version}",
        Some("invocations") => {
            ": an invocation is at /invocations/{id}, with POST …/cancel, …/kill, …/resume and …/signal"
        }
        Some("dead-letters") => ": a dead letter is at /dead-letters/{id}, with POST …/retry and DELETE",
        _ => "; /openapi.json lists what there is",
    };
    let shown: String = path.chars().take(200).collect();
    Error::new(ErrorCode::UnknownRoute, format!("nothing is mounted at {shown:?}{hint}"))
}
