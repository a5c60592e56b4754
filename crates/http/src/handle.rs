//! From a request to an operation and back.

use std::borrow::Cow;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use millrace_api::{
    AppInfo, Backend, Begun, CallRequest, HeaderSource, Permission, Principal, RECORDS_APP, RouteRequest, SendRequest,
    StateFields, StateRequest,
};
use millrace_base::{Error, ErrorCode};
use millrace_records::{Family, IDEMPOTENCY_KEY, RequestFacts, idempotency_key};
use serde::Serialize;

use crate::auth::{self, Otherwise};
use crate::body::{self, LARGE_BYTES, ReplyBody, RequestBody};
use crate::connection::{ConnectionState, InFlight};
use crate::cors::Reader;
use crate::local::Local;
use crate::operations::{Access, Kind, Operation, Parameter};
use crate::origin::Source;
use crate::pending_reply::{PendingReply, Step};
use crate::router::{self, Captures, Found};
use crate::{Limits, archive, manage, metrics, path, problem, records, reply, users};

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

    pub(crate) fn idempotency_key(&self) -> Result<Option<&str>, Error> {
        if self.seen.idempotency_key { idempotency_key(self.request.headers()) } else { Ok(None) }
    }

    pub(crate) async fn body(&mut self, state: &ConnectionState) -> Result<Bytes, Error> {
        body::collect(self.request.body_mut(), state, state.local.front.options.limits.body_bytes).await
    }
}

pub(crate) type Reply = Result<Response<ReplyBody>, Error>;

/// What a client may have sent before it sees that it was refused.
const DISCARDED_BYTES: usize = 64 << 10;

static FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
static FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// A request that has begun; it is in flight until it ends.
pub(crate) struct Asked<'a> {
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
        Step::Done(response) => response,
        Step::PendingReply(waits) => asked.reply(&state.local, waits).await,
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

/// Whether a body that is in chunks is that once and nothing else. hyper passes a `gzip, chunked` on without unpacking it, and takes
/// `chunked, chunked`, which a proxy before this server may have framed in another way (RFC 9112, 6.1).
fn is_framed_plainly(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = |line: &HeaderValue| line.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    lines.next().is_none_or(is_chunked) && lines.next().is_none()
}

#[cold]
fn refuse_framing() -> Response<ReplyBody> {
    let message = "the only Transfer-Encoding that is understood is chunked, once";
    let mut reply = problem::respond(&Error::new(ErrorCode::BadRequest, message), None);
    reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    reply
}

/// Begins one request, which runs as far as it comes without the disk.
///
/// Boxed: most have begun at the first poll, in memory that the request before has just used. In the future of its connection
/// it would be memory of each connection's own, out of the core's cache by the time it is used again.
pub(crate) fn begin<'a, B: Backend>(
    session: &'a Session<B>,
    request: &mut Request<RequestBody>,
) -> Pin<Box<impl Future<Output = (Asked<'a>, Step)>>> {
    Box::pin(run(session, request))
}

async fn run<'a, B: Backend>(session: &'a Session<B>, request: &mut Request<RequestBody>) -> (Asked<'a>, Step) {
    let began_ns = metrics::now_ns();
    let local = &session.state.local;
    local.begins(began_ns);
    let in_flight = session.state.request_begins();
    let uri = std::mem::take(request.uri_mut());
    let (kind, CallerFacts { is_anonymous, reader }, step) = begin_operation(session, &uri, request).await;
    if matches!(step, Step::PendingReply(_)) {
        local.put_back(std::mem::take(request.headers_mut()));
    }
    (Asked { kind, is_anonymous, reader, began_ns, in_flight }, step)
}

impl Asked<'_> {
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
) -> (Kind, CallerFacts, Step) {
    let mut noticed = CallerFacts::default();
    match router::find(request.method(), uri.path()) {
        Found::Operation(row, captures) => {
            let is_route = records::is_route(&*session.backend, row.kind, &row.path[0], &captures);
            let row = if is_route { router::ROUTE } else { row };
            let is_registrys = records::is_registrys(row.kind, uri, request.headers());
            let input = Input { uri, captures: &captures, request: &mut *request, seen: RequestFacts::default() };
            let step = operate(session, row, input, is_registrys, &mut noticed).await;
            let step = step.unwrap_or_else(|error| {
                Step::Done(match row.kind {
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
            let step = Step::Done(match check_host(request.version(), uri, host, hosts) {
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

/// The reply where a service's route refused a request, or there is no such service.
fn refuse_route<B: Backend>(
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

/// The reply where there is no operation.
fn answer_nothing(found: &Found<'_>, path: &str, method: &Method) -> Response<ReplyBody> {
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

/// What whoever sends `POST` to a list means to do.
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

fn unknown_route(path: &str) -> Error {
    let hint = match path.split('/').nth(1) {
        Some("call" | "send") => ": calls go to /call/{service}/{key}/{handler}",
        Some("state") => ": state is at /state/{service}/{key} and /state/{service}/{key}/{field}",
        Some("apps") => ": an app is at /apps/{app}, its services at /apps/{app}/{service}/…",
        Some("records") => ": a record is at /records/{type}/{id}, a type's list at /records/{type}",
        Some("schemas") => ": a type is at /schemas/{type}, a schema at /schemas/ids/{id}",
        Some("subjects") => ": a subject's versions are at /subjects/{subject}/versions/{version}",
        Some("invocations") => ": an invocation is at /invocations/{id}, with POST …/cancel and …/signal",
        Some("dead-letters") => ": a dead letter is at /dead-letters/{id}, with POST …/retry and DELETE",
        _ => "; /openapi.json lists what there is",
    };
    let shown: String = path.chars().take(200).collect();
    Error::new(ErrorCode::UnknownRoute, format!("nothing is mounted at {shown:?}{hint}"))
}

async fn operate<B: Backend>(
    session: &Session<B>,
    row: &'static Operation,
    mut input: Input<'_>,
    is_registrys: bool,
    noticed: &mut CallerFacts,
) -> Result<Step, Error> {
    let local = &session.state.local;
    let is_from_page;
    (input.seen, is_from_page) = look_at_headers(local, row, &input)?;
    if is_from_page {
        noticed.reader = reader_of(local, input.uri, input.request);
    }
    if row.access == Access::Public {
        return public(session, row.kind, &input).map(Step::Done);
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
        Kind::State => state(session, who, input).await.map(Step::Done),
        Kind::Records(operation) if operation.is_read() => {
            records::read(session, who, operation, input).await.map(Step::Done)
        }
        Kind::Records(operation) if operation.is_write() => records::write(session, who, operation, input).await,
        // Boxed: rare operations must not make every request's future larger.
        _ => Box::pin(cold_dispatch(session, who, row, input)).await.map(Step::Done),
    };
    step.map_err(|error| auth::ask_for_key(error, caller.is_anonymous))
}

/// Whether a request is let in for what its headers say, which of those that mean something it has, and whether a page sent it.
fn look_at_headers(local: &Local, row: &Operation, input: &Input<'_>) -> Result<(RequestFacts, bool), Error> {
    let headers = input.request.headers();
    let noted = read_headers(input.uri, headers, &local.front.options.limits)?;
    check_host(input.request.version(), input.uri, noted.source.host, noted.hosts)?;
    let is_from_page = noted.source.origin.is_some();
    if row.access == Access::Public {
        return Ok((noted.seen, is_from_page));
    }
    let changes = row.kind.is_get_that_changes();
    if changes && *input.request.method() == Method::HEAD {
        let message = "HEAD promises to change nothing, and this changes something: use GET";
        let allowed = r#"["GET", "OPTIONS"]"#.to_owned();
        return Err(Error { detail: Some(allowed), ..Error::new(ErrorCode::MethodNotAllowed, message) });
    }
    if let Some(guard) = &local.guard {
        let is_navigation = noted.source.site.is_some() && headers.get(&FETCH_MODE).is_some_and(|it| it == "navigate");
        guard.check(input.uri, Source { is_navigation, ..noted.source }, changes)?;
    }
    Ok((noted.seen, is_from_page))
}

/// What one pass over the headers finds; looking up each of them would cost more.
#[derive(Default)]
struct HeaderFacts<'a> {
    source: Source<'a>,
    hosts: usize,
    seen: RequestFacts,
}

/// Checks that a request names one host. Of two, a proxy before this server may have gone by the other (RFC 9112, 3.2;
/// RFC 9113, 8.3.1).
fn check_host(version: Version, uri: &Uri, host: Option<&HeaderValue>, count: usize) -> Result<(), Error> {
    match count {
        0 if version == Version::HTTP_11 => {
            Err(Error::new(ErrorCode::BadRequest, "a request of HTTP/1.1 has a Host header, and this has none"))
        }
        1 if version == Version::HTTP_2 => match (uri.authority(), host) {
            (Some(authority), Some(host)) if !authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes()) => {
                Err(Error::new(ErrorCode::BadRequest, "the Host header names another host than :authority"))
            }
            _ => Ok(()),
        },
        0 | 1 => Ok(()),
        _ => Err(Error::new(ErrorCode::BadRequest, "Host came more than once: a request has one")),
    }
}

/// Checks the headers' number and size.
fn read_headers<'a>(uri: &Uri, headers: &'a HeaderMap, limits: &Limits) -> Result<HeaderFacts<'a>, Error> {
    let mut noted = HeaderFacts::default();
    let mut bytes = uri.path_and_query().map_or(0, |target| target.as_str().len());
    for (name, value) in headers {
        // 4 for the colon, the space and the line's end.
        bytes += name.as_str().len() + value.len() + 4;
        if *name == header::HOST {
            noted.source.host = Some(value);
            noted.hosts += 1;
        } else if *name == header::ORIGIN {
            noted.source.origin = Some(value);
        } else if *name == IDEMPOTENCY_KEY {
            noted.seen.idempotency_key = true;
        } else if *name == header::ACCEPT {
            noted.seen.accept = true;
        } else if *name == header::IF_MATCH || *name == header::IF_NONE_MATCH {
            noted.seen.condition = true;
        } else if *name == FETCH_SITE {
            noted.source.site = Some(value);
        }
    }
    if bytes > limits.header_bytes || headers.len() > limits.headers {
        let message =
            format!("the request line and headers exceed {} bytes or {} headers", limits.header_bytes, limits.headers);
        return Err(Error::new(ErrorCode::HeadersTooLarge, message));
    }
    Ok(noted)
}

async fn call<B: Backend>(session: &Session<B>, who: &Principal, mut input: Input<'_>) -> Result<Step, Error> {
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
        Begun::Ended(output) => Step::Done(reply::json(input.take_headers(), output?)),
        Begun::PendingReply(waiting) => Step::PendingReply(PendingReply::Call(waiting)),
    })
}

async fn send<B: Backend>(session: &Session<B>, who: &Principal, mut input: Input<'_>) -> Reply {
    let (app, service, handler) = (input.app()?, input.name(Parameter::Service)?, input.name(Parameter::Handler)?);
    let key = path::decode_key(input.capture(Parameter::Key))?;
    let delay_ms = path::delay_ms(input.query())?;
    let body = input.body(&session.state).await?;
    let idempotency_key = input.idempotency_key()?;
    let call = CallRequest {
        app: app.as_deref(),
        service: &service,
        key: &key,
        handler: &handler,
        input: body,
        idempotency_key,
    };
    reply::accepted(&session.backend.send(who, SendRequest { call, delay_ms }).await?)
}

async fn state<B: Backend>(session: &Session<B>, who: &Principal, mut input: Input<'_>) -> Reply {
    let (app, service) = (input.app()?, input.name(Parameter::Service)?);
    let key = path::decode_key(input.capture(Parameter::Key))?;
    let fields = match input.captures.get(Parameter::Field) {
        Some(field) => StateFields::One(path::decode_field(field)?.into()),
        None => path::state_fields(input.query())?,
    };
    let request = StateRequest { app: app.as_deref(), service: &service, key: &key, fields };
    let found = session.backend.state(who, request).await?;
    Ok(reply::state(input.take_headers(), found))
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

async fn route<B: Backend>(session: &Session<B>, who: &Principal, mut input: Input<'_>) -> Result<Step, Error> {
    let body = input.body(&session.state).await?;
    let headers = Arc::new(RequestHeaders(input.take_headers()));
    let request = route_request(&input, body, &headers)?;
    let begun = session.backend.route(who, request);
    // Free again, unless the route still has it.
    let map = Arc::into_inner(headers).map(|headers| headers.0).unwrap_or_default();
    Ok(match begun {
        Begun::Ended(answer) => Step::Done(reply::route(map, answer?)?),
        Begun::PendingReply(waiting) => {
            *input.request.headers_mut() = map;
            Step::PendingReply(PendingReply::Route(waiting))
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
        idempotency_key: idempotency_key.map(str::to_owned),
    })
}

async fn cold_dispatch<B: Backend>(session: &Session<B>, who: &Principal, row: &Operation, input: Input<'_>) -> Reply {
    let backend = &*session.backend;
    match row.kind {
        Kind::Records(operation) => records::operate(session, who, operation, input).await,
        Kind::Send => send(session, who, input).await,
        Kind::Invocation => manage::invocation(session, who, input).await,
        Kind::Invocations => manage::invocations(backend, who, input.query()).await,
        Kind::Cancel => manage::cancel(backend, who, input).await,
        Kind::Signal => manage::signal(session, who, input).await,
        Kind::DeadLetters => manage::dead_letters(backend, who, input.query()).await,
        Kind::RetryDeadLetter => manage::retry_dead_letter(backend, who, input).await,
        Kind::DropDeadLetter => manage::drop_dead_letter(backend, who, input).await,
        Kind::Schedules => manage::schedules(backend, who, input.query()).await,
        Kind::Apps => reply::json_value(StatusCode::OK, &backend.apps(who).await?),
        Kind::Deploy => deploy(session, who, input).await,
        Kind::RemoveApp => {
            backend.remove_app(who, &input.name(Parameter::App)?).await?;
            Ok(reply::empty(StatusCode::NO_CONTENT))
        }
        Kind::Metrics => metrics_text(session, who),
        kind if users::manages(kind) => users::manage(session, who, kind, input).await,
        _ => Err(unknown_route(input.uri.path())),
    }
}

/// The app as lists show it, and what is to be said of this deployment alone.
#[derive(Serialize)]
struct DeployedReply<'a> {
    #[serde(flatten)]
    app: &'a AppInfo,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

async fn deploy<B: Backend>(session: &Session<B>, who: &Principal, input: Input<'_>) -> Reply {
    // Asked here too, so that nobody without the right makes the server read megabytes.
    if !who.may(Permission::Deploy) {
        return Err(Error::new(ErrorCode::Forbidden, "deploying needs the role deploy"));
    }
    let app = input.name(Parameter::App)?;
    if let Err(error) = millrace_base::Name::new(&app) {
        return Err(Error::new(ErrorCode::BadRequest, error.to_string()));
    }
    let state = &session.state;
    let limit_bytes = state.local.front.options.limits.archive_bytes;
    let body = body::collect(input.request.body_mut(), state, limit_bytes).await?;
    let files = archive::read(&body)?;
    drop(body);
    let deployed = session.backend.deploy(who, &app, files).await?;
    let status = if deployed.is_new { StatusCode::CREATED } else { StatusCode::OK };
    reply::json_value(status, &DeployedReply { app: &deployed.app, warnings: &deployed.warnings })
}

fn metrics_text<B: Backend>(session: &Session<B>, who: &Principal) -> Reply {
    const TEXT: HeaderValue = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    if !who.may(Permission::Admin) {
        return Err(Error::new(ErrorCode::Forbidden, "metrics need the role admin"));
    }
    let text = session.state.local.front.metrics_text();
    let text = text.map_err(|_| Error::new(ErrorCode::Internal, "the metrics cannot be written"))?;
    Ok(reply::with_type(HeaderMap::new(), StatusCode::OK, TEXT, text.into()))
}

/// What `GET /` answers: clients of the Schema Registry look only whether it is an object, people look for more.
const ROOT: &str = r#"{"openapi":"/openapi.json","health":"/healthz"}"#;

fn public<B: Backend>(session: &Session<B>, kind: Kind, input: &Input<'_>) -> Reply {
    const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
    const MARKDOWN: HeaderValue = HeaderValue::from_static("text/markdown; charset=utf-8");
    let text = |kind, text: &'static str| {
        reply::with_type(HeaderMap::new(), StatusCode::OK, kind, Bytes::from_static(text.as_bytes()))
    };
    match kind {
        Kind::Records(millrace_records::Operation::RegistryRoot) => Ok(text(millrace_records::REGISTRY_MEDIA, ROOT)),
        Kind::Records(_) => Ok(text(TEXT, "pong")),
        Kind::OpenApi => Ok(reply::json(HeaderMap::new(), session.state.local.front.openapi())),
        Kind::ErrorPage => {
            let code = input.capture(Parameter::Code);
            let known = ErrorCode::parse(code).ok_or_else(|| unknown_route(input.uri.path()))?;
            Ok(text(MARKDOWN, crate::error_page(known)))
        }
        _ => {
            let health = session.backend.health();
            if !health.is_serving {
                return Err(Error::new(ErrorCode::ShuttingDown, "the node does not serve: it is starting or stopping"));
            }
            if kind == Kind::Readyz && !health.is_ready {
                let message = "the node serves, but a shard has stopped or the disk is full; its log says which";
                return Err(Error::new(ErrorCode::ReadOnly, message));
            }
            Ok(text(TEXT, "ok\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_api::{
        AppFile, AppInfo, DeadLetter, Deployed, Health, Invocation, InvocationsRequest, Page, RouteReply, Schedule,
        SchedulesRequest, StateReply,
    };

    /// Answers nothing, so that its futures have no size.
    #[derive(Clone)]
    struct Nothing;

    fn nothing<T>() -> Result<T, Error> {
        Err(Error::new(ErrorCode::Internal, ""))
    }

    impl Backend for Nothing {
        fn call(&self, _: &Principal, _: CallRequest<'_>) -> Begun<Bytes> {
            nothing().into()
        }

        async fn send(&self, _: &Principal, _: SendRequest<'_>) -> Result<String, Error> {
            nothing()
        }

        async fn invocation(&self, _: &Principal, _: &str, _: bool) -> Result<Invocation, Error> {
            nothing()
        }

        async fn invocations(&self, _: &Principal, _: InvocationsRequest<'_>) -> Result<Page<Invocation>, Error> {
            nothing()
        }

        async fn cancel(&self, _: &Principal, _: &str) -> Result<(), Error> {
            nothing()
        }

        async fn signal(&self, _: &Principal, _: &str, _: &str, _: Bytes, _: Option<&str>) -> Result<(), Error> {
            nothing()
        }

        async fn dead_letters(&self, _: &Principal, _: Option<&str>, _: usize) -> Result<Page<DeadLetter>, Error> {
            nothing()
        }

        async fn retry_dead_letter(&self, _: &Principal, _: &str) -> Result<(), Error> {
            nothing()
        }

        async fn drop_dead_letter(&self, _: &Principal, _: &str) -> Result<(), Error> {
            nothing()
        }

        async fn schedules(&self, _: &Principal, _: SchedulesRequest<'_>) -> Result<Page<Schedule>, Error> {
            nothing()
        }

        fn route(&self, _: &Principal, _: RouteRequest) -> Begun<RouteReply> {
            nothing().into()
        }

        async fn state(&self, _: &Principal, _: StateRequest<'_>) -> Result<StateReply, Error> {
            nothing()
        }

        async fn deploy(&self, _: &Principal, _: &str, _: Vec<AppFile>) -> Result<Deployed, Error> {
            nothing()
        }

        async fn remove_app(&self, _: &Principal, _: &str) -> Result<(), Error> {
            nothing()
        }

        async fn apps(&self, _: &Principal) -> Result<Vec<AppInfo>, Error> {
            nothing()
        }

        fn health(&self) -> Health {
            Health { is_serving: true, is_ready: true }
        }
    }

    fn output_size<'a, F: Future>(_: impl Fn(&'a Session<Nothing>, &'a mut Request<RequestBody>) -> F) -> usize {
        size_of::<F>()
    }

    /// hyper moves the future of every request into place, so its size is paid for each time; and whoever waits keeps it.
    #[test]
    fn a_requests_future_is_small() {
        let (whole, beginning) = (output_size(handle::<Nothing>), output_size(run::<Nothing>));
        assert!(whole <= 640 && beginning <= 1024, "{whole} and {beginning} bytes");
    }
}
