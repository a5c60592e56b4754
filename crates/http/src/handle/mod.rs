//! From a request to an operation and back.

mod cold;
mod headers;
mod refusals;

use std::borrow::Cow;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use millrace_api::{Begun, CallRequest, Calls, HeaderSource, Principal, RECORDS_APP, RouteRequest};
use millrace_base::{Error, ErrorCode, IdempotencyKey};
use millrace_records::{Family, RequestFacts, idempotency_key};

use crate::auth::{self, Otherwise};
use crate::backend::Backend;
use crate::body::{self, LARGE_BYTES, ReplyBody, RequestBody};
use crate::connection::{ConnectionState, InFlight};
use crate::cors::Reader;
use crate::local::Local;
use crate::operations::{Access, Kind, Operation, Parameter};
use crate::pending_reply::{PendingReply, Progress};
use crate::router::{self, Captures, Found};
use crate::{metrics, path, problem, records, reply};
use cold::{cold_dispatch, public, state};
use headers::{check_host, look_at_headers};
use refusals::{answer_nothing, is_framed_plainly, refuse_framing, refuse_route, unknown_route};

/// One connection's way to the node. Cheap to clone, as each request that comes through hyper has its own.
pub(crate) struct Session<B> {
    pub(crate) backend: Rc<B>,
    pub(crate) state: Rc<ConnectionState>,
}

impl<B> Clone for Session<B> {
    fn clone(&self) -> Self {
        Self { backend: Rc::clone(&self.backend), state: Rc::clone(&self.state) }
    }
}

/// A request and what its path means. References only: this is handed down several levels, and
/// whatever a future holds by value is copied at each of them.
pub(crate) struct Input<'a> {
    pub(crate) uri: &'a Uri,
    pub(crate) captures: &'a Captures<'a>,
    /// Without its URI, which is borrowed above.
    pub(crate) request: &'a mut Request<RequestBody>,
    pub(crate) seen: RequestFacts,
}

impl<'a> Input<'a> {
    fn capture(&self, parameter: Parameter) -> &'a str {
        self.captures.get(parameter).unwrap_or_default()
    }

    pub(crate) fn name(&self, parameter: Parameter) -> Result<Cow<'a, str>, Error> {
        path::decode_text(self.capture(parameter))
    }

    fn app(&self) -> Result<Option<Cow<'a, str>>, Error> {
        self.captures.get(Parameter::App).map(path::decode_text).transpose()
    }

    /// What follows `?`; for operations of the server's own it has been checked.
    pub(crate) fn query(&self) -> Option<&'a str> {
        self.uri.query()
    }

    /// The request's headers, to be kept or to be reused for the reply.
    pub(crate) fn take_headers(&mut self) -> HeaderMap {
        std::mem::take(self.request.headers_mut())
    }

    pub(crate) fn idempotency_key(&self) -> Result<Option<IdempotencyKey<&str>>, Error> {
        if self.seen.idempotency_key { idempotency_key(self.request.headers()) } else { Ok(None) }
    }

    pub(crate) async fn body(&mut self, state: &ConnectionState) -> Result<Bytes, Error> {
        body::collect(self.request.body_mut(), state, state.local.front.options.limits.body_bytes).await
    }
}

pub(crate) type Reply = Result<Response<ReplyBody>, Error>;

/// What a client may have sent before it sees that it was refused.
const DISCARDED_BYTES: usize = 64 << 10;

/// A request that has begun; it is in flight until it ends.
pub(crate) struct OpenRequest<'a> {
    kind: Kind,
    is_anonymous: bool,
    reader: Option<Box<Reader>>,
    began_ns: u64,
    in_flight: InFlight<'a>,
}

/// Answers one request.
pub(crate) async fn handle<B: Backend>(
    session: &Session<B>,
    request: &mut Request<RequestBody>,
) -> Response<ReplyBody> {
    let state = &*session.state;
    if !is_framed_plainly(request.headers()) {
        return refuse_framing();
    }
    let (asked, step) = begin(session, request).await;
    let mut response = match step {
        Progress::Done(response) => response,
        Progress::PendingReply(waits) => asked.reply(&state.local, waits).await,
    };
    let is_refused = response.status().is_client_error() && !response.headers().contains_key(header::CONNECTION);
    if is_refused && (!request.body().has_arrived() || state.refused_body().is_some()) {
        // Boxed, with the reply: this is rare, and must not make every request's future larger.
        response = Box::pin(discard(response, request.body_mut(), state)).await;
    }
    if state.is_http2() && *request.method() == Method::HEAD {
        response = without_body(response);
    }
    asked.end(state, response)
}

/// Begins one request, which runs as far as it comes without the disk.
///
/// Boxed: most requests have begun at the first poll, in memory that the request before has just used. The future of the
/// connection would hold memory of its own for it, which has left the core's cache when the next request comes.
pub(crate) fn begin<'a, B: Backend>(
    session: &'a Session<B>,
    request: &mut Request<RequestBody>,
) -> Pin<Box<impl Future<Output = (OpenRequest<'a>, Progress)>>> {
    Box::pin(run(session, request))
}

async fn run<'a, B: Backend>(
    session: &'a Session<B>,
    request: &mut Request<RequestBody>,
) -> (OpenRequest<'a>, Progress) {
    let began_ns = metrics::now_ns();
    let local = &session.state.local;
    local.begins(began_ns);
    let in_flight = session.state.request_begins();
    let uri = std::mem::take(request.uri_mut());
    let (kind, CallerFacts { is_anonymous, reader }, step) = begin_operation(session, &uri, request).await;
    if matches!(step, Progress::PendingReply(_)) {
        local.put_back(std::mem::take(request.headers_mut()));
    }
    (OpenRequest { kind, is_anonymous, reader, began_ns, in_flight }, step)
}

impl OpenRequest<'_> {
    /// The reply of one that waits.
    pub(crate) async fn reply(&self, local: &Local, waits: PendingReply) -> Response<ReplyBody> {
        waits.reply(local, self.kind, self.is_anonymous).await
    }

    /// Its reply is there.
    pub(crate) fn end(self, state: &ConnectionState, mut response: Response<ReplyBody>) -> Response<ReplyBody> {
        if response.body().len() > LARGE_BYTES {
            hold_room(state, self.kind, &mut response);
        }
        if let Some(reader) = self.reader {
            reader.allow(&mut response);
        }
        if state.is_http2() {
            state.watch_reply(response.body_mut());
        }
        drop(self.in_flight);
        let ended_ns = metrics::now_ns();
        state.local.answered(ended_ns);
        state.local.metrics.count_request(self.kind, response.status().as_u16(), ended_ns - self.began_ns);
        response
    }
}

/// The reply to a HEAD says how long its body would be. Over HTTP/1 hyper leaves the body out by itself.
fn without_body(reply: Response<ReplyBody>) -> Response<ReplyBody> {
    let (mut head, body) = reply.into_parts();
    if body.len() > 0 {
        head.headers.entry(header::CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(body.len()));
    }
    Response::from_parts(head, ReplyBody::new(Bytes::new()))
}

/// Reads what is left of the body of a request that was refused before. Over HTTP/1 no other request can follow
/// without; over HTTP/2 some clients never see the reply if their stream is reset while they still send. If it is
/// much, the reply says that the connection closes, where it can say so.
async fn discard(
    mut reply: Response<ReplyBody>,
    body: &mut RequestBody,
    state: &ConnectionState,
) -> Response<ReplyBody> {
    let has_come = body::collect(body, state, DISCARDED_BYTES).await.is_ok() && state.refused_body().is_none();
    if !has_come && !state.is_http2() {
        reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    reply
}

/// Counts a large reply against the core's room until it has left.
fn hold_room(state: &ConnectionState, kind: Kind, response: &mut Response<ReplyBody>) {
    match state.local.reserve(response.body().len()) {
        Some(reservation) => response.body_mut().hold(reservation),
        None => {
            let message = "too many large replies are leaving; the request took effect, ask again for its reply";
            let is_registrys = matches!(kind, Kind::Records(operation) if operation.family() == Family::Registry);
            *response = records::refuse(kind, &Error::new(ErrorCode::Overloaded, message), is_registrys);
        }
    }
}

/// What is seen of who asks while an operation begins.
#[derive(Default)]
struct CallerFacts {
    is_anonymous: bool,
    /// The page that may read the reply.
    reader: Option<Box<Reader>>,
}

async fn begin_operation<B: Backend>(
    session: &Session<B>,
    uri: &Uri,
    request: &mut Request<RequestBody>,
) -> (Kind, CallerFacts, Progress) {
    let mut noticed = CallerFacts::default();
    match router::find(request.method(), uri.path()) {
        Found::Operation(row, captures) => {
            let is_route = records::is_route(&*session.backend, row.kind, &row.path[0], &captures);
            let row = if is_route { router::ROUTE } else { row };
            let is_registrys = records::is_registrys(row.kind, uri, request.headers());
            let input = Input { uri, captures: &captures, request: &mut *request, seen: RequestFacts::default() };
            let step = operate(session, row, input, is_registrys, &mut noticed).await;
            let step = step.unwrap_or_else(|error| {
                Progress::Done(match row.kind {
                    Kind::Route => refuse_route(session, &captures, request.method(), uri.path(), &error),
                    kind => records::refuse(kind, &error, is_registrys),
                })
            });
            (row.kind, noticed, step)
        }
        found => {
            noticed.reader = reader_of(&session.state.local, uri, request);
            let hosts = request.headers().get_all(header::HOST).iter().count();
            let host = request.headers().get(header::HOST);
            let step = Progress::Done(match check_host(request.version(), uri, host, hosts) {
                Ok(()) => answer_nothing(&found, uri.path(), request.method()),
                Err(error) => problem::respond(&error, None),
            });
            (Kind::None, noticed, step)
        }
    }
}

fn reader_of(local: &Local, uri: &Uri, request: &Request<RequestBody>) -> Option<Box<Reader>> {
    local.cors.reader(local.guard.as_ref(), request.method(), uri, request.headers())
}

async fn operate<B: Backend>(
    session: &Session<B>,
    row: &'static Operation,
    mut input: Input<'_>,
    is_registrys: bool,
    noticed: &mut CallerFacts,
) -> Result<Progress, Error> {
    let local = &session.state.local;
    let is_from_page;
    (input.seen, is_from_page) = look_at_headers(local, row, &input)?;
    if is_from_page {
        noticed.reader = reader_of(local, input.uri, input.request);
    }
    if row.access == Access::Public {
        return public(session, row.kind, &input).map(Progress::Done);
    }
    let otherwise = match row.kind {
        Kind::Route => Otherwise::Ignored,
        _ if is_registrys => Otherwise::Basic,
        _ => Otherwise::Refused,
    };
    let caller = auth::caller(&local.access, input.request.headers(), otherwise)?;
    noticed.is_anonymous = caller.is_anonymous;
    if row.kind == Kind::Route && local.access.asks_for_keys() && !caller.is_anonymous {
        // Whoever may deploy a route would collect the keys of those who ask it, an admin's among them.
        input.request.headers_mut().remove(header::AUTHORIZATION);
    }
    if row.access == Access::AnyKey && caller.is_anonymous && !caller.principal.may_read_something_of(RECORDS_APP) {
        return Err(auth::no_key());
    }
    // Who may do nothing at all is not told what there is, by an error of one kind or another.
    if caller.may_only_bring_a_key() {
        // A client of the Schema Registry, with its key as a password, asks for more than there is, and takes a 404.
        let is_known = row.kind == Kind::Route && auth::has_key_as_password(&local.access, input.request.headers());
        if !is_known {
            return Err(auth::no_key());
        }
    }
    // Passed over, a misspelt parameter would do what nobody asked for. Routes have their own,
    // and records look at theirs themselves.
    if !matches!(row.kind, Kind::Route | Kind::Records(_)) && input.query().is_some() {
        path::check_query(input.query(), |name| row.query.iter().any(|known| known.name == name))?;
    }
    let who = &caller.principal;
    let step = match row.kind {
        Kind::Call => call(session, who, input).await,
        Kind::Route => route(session, who, input).await,
        Kind::State => state(session, who, input).await.map(Progress::Done),
        Kind::Records(operation) if operation.is_read() => {
            records::read(session, who, operation, input).await.map(Progress::Done)
        }
        Kind::Records(operation) if operation.is_write() => records::write(session, who, operation, input).await,
        // Boxed: rare operations must not make every request's future larger.
        _ => Box::pin(cold_dispatch(session, who, row, input)).await.map(Progress::Done),
    };
    step.map_err(|error| auth::ask_for_key(error, caller.is_anonymous))
}

async fn call<B: Calls>(session: &Session<B>, who: &Principal, mut input: Input<'_>) -> Result<Progress, Error> {
    let (app, service, handler) = (input.app()?, input.name(Parameter::Service)?, input.name(Parameter::Handler)?);
    let key = path::decode_key(input.capture(Parameter::Key))?;
    let body = input.body(&session.state).await?;
    let idempotency_key = input.idempotency_key()?;
    let request = CallRequest {
        app: app.as_deref(),
        service: &service,
        key: &key,
        handler: &handler,
        input: body,
        idempotency_key,
    };
    Ok(match session.backend.call(who, request) {
        Begun::Ended(output) => Progress::Done(reply::json(input.take_headers(), output?)),
        Begun::PendingReply(waiting) => Progress::PendingReply(PendingReply::Call(waiting)),
    })
}

/// A request's headers, where they were put first.
struct RequestHeaders(HeaderMap);

impl HeaderSource for RequestHeaders {
    fn get(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.0.get(name)?.as_bytes()).ok()
    }

    fn each(&self, visit: &mut dyn FnMut(&str, &str)) {
        for (name, value) in &self.0 {
            if let Ok(value) = std::str::from_utf8(value.as_bytes()) {
                visit(name.as_str(), value);
            }
        }
    }
}

async fn route<B: Calls>(session: &Session<B>, who: &Principal, mut input: Input<'_>) -> Result<Progress, Error> {
    let body = input.body(&session.state).await?;
    let headers = Arc::new(RequestHeaders(input.take_headers()));
    let request = route_request(&input, body, &headers)?;
    let begun = session.backend.route(who, request);
    // Free again, unless the route still has it.
    let map = Arc::into_inner(headers).map(|headers| headers.0).unwrap_or_default();
    Ok(match begun {
        Begun::Ended(answer) => Progress::Done(reply::route(map, answer?)?),
        Begun::PendingReply(waiting) => {
            *input.request.headers_mut() = map;
            Progress::PendingReply(PendingReply::Route(waiting))
        }
    })
}

fn route_request(input: &Input<'_>, body: Bytes, headers: &Arc<RequestHeaders>) -> Result<RouteRequest, Error> {
    let idempotency_key = if input.seen.idempotency_key { idempotency_key(&headers.0)? } else { None };
    let (app, service) = (input.app()?, input.name(Parameter::Service)?);
    if matches!(service, Cow::Owned(_)) && router::is_reserved(&service) {
        return Err(unknown_route(input.uri.path()));
    }
    // A HEAD is a GET whose body stays here; routes need not know it.
    let method = input.request.method();
    let method = if *method == Method::HEAD { Method::GET.as_str() } else { method.as_str() };
    Ok(RouteRequest {
        app: app.map(Cow::into_owned),
        service: service.into_owned(),
        method: method.to_owned(),
        path: input.capture(Parameter::Path).to_owned(),
        query: input.uri.query().map(str::to_owned),
        headers: Arc::clone(headers) as Arc<dyn HeaderSource>,
        body,
        idempotency_key: idempotency_key.map(IdempotencyKey::kept),
    })
}

#[cfg(test)]
mod at_once;
#[cfg(test)]
mod tests;
