//! Requests about records: handed over to `millrace_records`, and its replies back.

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use millrace_api::{Begun, Deployments, Principal, Records};
use millrace_base::Error;
use millrace_records::{ChangeStream, Family, Operation, Request};

use crate::body::ReplyBody;
use crate::handle::{Input, Reply, Session};
use crate::operations::{Kind, Parameter, Segment};
use crate::pending_reply::{PendingReply, Progress};
use crate::router::{self, Captures};
use crate::{events, path, problem, reply};

pub(crate) fn respond(reply: millrace_records::Reply) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::new(reply.body));
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    response
}

/// What of a path is a part of the operation, and what means the record.
fn request<'a>(input: &mut Input<'a>, body: Bytes) -> Request<'a> {
    let headers = input.take_headers();
    let captures = input.captures;
    let get = |parameter| captures.get(parameter);
    let script = get(Parameter::Script);
    let field = get(Parameter::Field);
    let item = get(Parameter::RecordId).or(get(Parameter::Version)).or(get(Parameter::SchemaId));
    Request {
        name: get(Parameter::Type).or(get(Parameter::Subject)).unwrap_or_default(),
        item: item.or(script.and(field)).unwrap_or_default(),
        part: script.or(field).unwrap_or_default(),
        query: input.uri.query(),
        headers,
        seen: input.seen,
        body,
    }
}

/// One record is read: the shortest way.
pub(crate) async fn read<B: Records>(
    session: &Session<B>,
    who: &Principal,
    operation: Operation,
    mut input: Input<'_>,
) -> Reply {
    let records = &session.state.local.records;
    let (begun, read, seen, headers) = {
        let request = request(&mut input, Bytes::new());
        let (begun, read) = records.begin_read(&*session.backend, who, operation, &request)?;
        (begun, read, request.seen, request.headers)
    };
    // Nearly always at once. Its headers may hold conditions, so they stay.
    let answer = begun.reply().await?;
    records.end_read(read, (seen, headers), answer).map(respond)
}

/// One record is changed: as short.
pub(crate) async fn write<B: Records>(
    session: &Session<B>,
    who: &Principal,
    operation: Operation,
    mut input: Input<'_>,
) -> Result<Progress, Error> {
    let body = input.body(&session.state).await?;
    let request = request(&mut input, body);
    let local = &session.state.local;
    let (begun, write) = local.records.begin_write(&*session.backend, who, operation, &request)?;
    Ok(match begun {
        Begun::Ended(answer) => Progress::Done(respond(local.records.end_write(write, request.headers, answer?))),
        Begun::PendingReply(waiting) => {
            *input.request.headers_mut() = request.headers;
            Progress::PendingReply(PendingReply::Write(waiting, write))
        }
    })
}

/// Everything else.
pub(crate) async fn operate<B: Deployments + Records>(
    session: &Session<B>,
    who: &Principal,
    operation: Operation,
    mut input: Input<'_>,
) -> Reply {
    let backend = &*session.backend;
    let is_head = *input.request.method() == Method::HEAD;
    let body = input.body(&session.state).await?;
    let request = request(&mut input, body);
    if operation == Operation::RecordChanges && input.seen.accept && millrace_records::wants_events(&request.headers) {
        let stream = ChangeStream::open(backend, who, &request)?;
        return events::begin(&session.state, stream, is_head).await;
    }
    session.state.local.records.answer(backend, who, operation, request).await.map(respond)
}

/// Whether a request comes from a client of the Schema Registry. Two things depend on it: what the client is told, and
/// how it may say who it is.
pub(crate) fn is_registrys(kind: Kind, uri: &Uri, headers: &HeaderMap) -> bool {
    match kind {
        Kind::Records(Operation::Schemas) => millrace_records::is_registry_list(uri.query(), headers),
        Kind::Records(operation) => operation.family() == Family::Registry,
        _ => false,
    }
}

/// An error, in the words of those whose URL it is about.
pub(crate) fn refuse(kind: Kind, error: &Error, is_registrys: bool) -> Response<ReplyBody> {
    if is_registrys {
        return refuse_registrys(error, None);
    }
    let mut response = problem::respond(error, None);
    if matches!(kind, Kind::Records(_)) {
        millrace_records::error_headers(error, response.headers_mut());
    }
    response
}

/// An error in the words of the Schema Registry.
pub(crate) fn refuse_registrys(error: &Error, allow: Option<String>) -> Response<ReplyBody> {
    let mut response = problem::respond(error, allow);
    let (status, kind, body) = millrace_records::registry_error(error, response.status());
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    *response.body_mut() = ReplyBody::new(body);
    response
}

/// What the Schema Registry answers to everybody, for URLs that an app's service may have as well.
pub(crate) fn constant(method: &Method, path: &str) -> Option<Response<ReplyBody>> {
    let (kind, body) = millrace_records::registry_constant(path)?;
    matches!(*method, Method::GET | Method::HEAD)
        .then(|| reply::with_type(HeaderMap::new(), StatusCode::OK, kind, body))
}

/// Whether a classic URL means an app's route, because the type in it is none, or has the name of
/// a service.
pub(crate) fn is_route<B: Records>(backend: &B, kind: Kind, first: &Segment, captures: &Captures<'_>) -> bool {
    matches!(kind, Kind::Records(_))
        && *first == Segment::Variable(Parameter::Type)
        && !is_record_type(backend, captures.get(Parameter::Type).unwrap_or_default())
}

fn is_record_type<B: Records>(backend: &B, name: &str) -> bool {
    path::decode_text(name).is_ok_and(|name| backend.is_record_type(&name))
}

/// The methods of the classic operation that a request to an app's route was probably meant for.
pub(crate) fn classic_methods<B: Records>(backend: &B, captures: &Captures<'_>) -> Option<router::Rows> {
    if captures.get(Parameter::App).is_some() {
        return None;
    }
    let rows = router::classic_methods(captures.get(Parameter::Path)?)?;
    is_record_type(backend, captures.get(Parameter::Service)?).then_some(rows)
}

#[cfg(test)]
mod tests {
    use millrace_base::ErrorCode;

    use super::*;
    use crate::status::status_of;

    #[test]
    fn the_registrys_errors_have_the_status_of_all_errors() {
        for code in ErrorCode::all() {
            let reply = refuse_registrys(&Error::new(code, "x"), None);
            assert_eq!(reply.status(), status_of(code), "{}", code.as_str());
        }
    }
}
