//! A backend without a node, a server on a thread of its own, and a client that says exactly what
//! it is told to.
#![allow(dead_code, reason = "each program uses a part of it")]

pub mod records;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use millrace_api::{
    Admission, AppFile, AppInfo, Begun, CallRequest, Calls, DeadLetter, Deployed, Deployments, Error, ErrorCode,
    Health, Invocation, InvocationStatus, Invocations, InvocationsRequest, JournalStep, Page, Permission, Principal,
    RecordReply, RecordRequest, Records, RouteReply, RouteRequest, Schedule, SchedulesRequest, SendRequest, Serving,
    StateFields, StateReply, StateRequest, SystemApp, Target, WorkflowState,
};
use millrace_http::{Front, Options, Timeouts, serve, status_of};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

/// How long a test waits for something that must happen; far longer than it takes.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Answers by the names it is asked for.
#[derive(Clone, Default)]
pub struct MockBackend {
    pub shared: Arc<MockShared>,
}

#[derive(Default)]
pub struct MockShared {
    pub is_down: AtomicBool,
    pub is_read_only: AtomicBool,
    pub calls: AtomicU64,
    /// `wait` handlers say here that they began…
    pub began: Notify,
    /// …and wait for this.
    pub gate: Notify,
    pub deployed: Mutex<Vec<(String, Vec<AppFile>)>>,
    /// What the operations on workflows, dead letters and schedules were asked, one line each.
    pub asked: Mutex<Vec<String>>,
    pub records: records::MockRecords,
    pub admissions: Mutex<MockAdmissions>,
}

/// Has no time for what comes while it is busy.
#[derive(Default)]
pub struct MockAdmissions {
    pub is_busy: bool,
    /// How many wait.
    pub held: u64,
    wakers: Vec<Waker>,
}

impl MockAdmissions {
    pub fn call_all(&mut self) {
        self.is_busy = false;
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

impl MockShared {
    fn note(&self, line: String) {
        self.asked.lock().expect("no panic").push(line);
    }
}

/// The workflow that the mock knows, with every kind of thing in its journal.
fn workflow(id: &str, status: InvocationStatus) -> Invocation {
    let step = |operation, kind, name: &str, result| JournalStep {
        operation,
        kind,
        name: name.to_owned(),
        ended_ms: 1_700_000_000_000 + u64::from(operation),
        result,
    };
    let refused =
        Error { code: ErrorCode::Aborted, message: "no room".to_owned(), detail: Some("{\"left\":0}".to_owned()) };
    Invocation {
        id: id.to_owned(),
        status,
        output: None,
        error: (status == InvocationStatus::Failed).then(|| refused.clone()),
        workflow: Some(WorkflowState {
            target: mock_target(b"ann"),
            input: Bytes::from_static(b"{\"room\": 7}"),
            began_ms: Some(1_700_000_000_000),
            due_ms: None,
            journal: vec![
                step(1, "call", "room/7/hold", Err(refused)),
                step(3, "step", "choose", Ok(Bytes::from_static(b"[8]"))),
                step(2, "sleep", "", Ok(Bytes::new())),
            ],
            waits_for: vec!["signal confirmed".to_owned()],
        }),
    }
}

fn mock_target(key: &[u8]) -> Target {
    Target { app: "trips".to_owned(), service: "trip".to_owned(), key: key.to_vec(), handler: "book".to_owned() }
}

fn unknown(id: &str) -> Error {
    Error::new(ErrorCode::UnknownInvocation, format!("no invocation {id}"))
}

fn authorize_target(who: &Principal) -> Result<(), Error> {
    authorize(who, Some("trips"), "trip")
}

fn authorize(who: &Principal, app: Option<&str>, service: &str) -> Result<(), Error> {
    if who.may(Permission::Call { app: app.unwrap_or("main"), service }) {
        return Ok(());
    }
    Err(Error::new(ErrorCode::Forbidden, "not this one"))
}

fn text(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

impl MockBackend {
    fn answer(&self, who: &Principal, request: CallRequest<'_>) -> Result<Bytes, Error> {
        authorize(who, request.app, request.service)?;
        self.shared.calls.fetch_add(1, Ordering::SeqCst);
        if let Some(code) = request.handler.strip_prefix("error-") {
            return Err(Error::new(ErrorCode::parse(code).expect("a code"), "as asked"));
        }
        match request.handler {
            "echo" => Ok(if request.input.is_empty() { Bytes::from_static(b"null") } else { request.input }),
            "abort" => Err(Error {
                code: ErrorCode::Aborted,
                message: "insufficient funds".to_owned(),
                detail: Some(r#"{"balance":3}"#.to_owned()),
            }),
            "large" => {
                let bytes: usize = std::str::from_utf8(&request.input).expect("a number").parse().expect("a number");
                Ok(Bytes::from(vec![b'1'; bytes]))
            }
            "show" => Ok(text(&json!({
                "app": request.app,
                "service": request.service,
                "key": request.key,
                "idempotency_key": request.idempotency_key,
                "input_bytes": request.input.len(),
            }))),
            other => Err(Error::new(ErrorCode::UnknownHandler, format!("no handler {other}"))),
        }
    }
}

fn answer_route(who: &Principal, request: &RouteRequest) -> Result<RouteReply, Error> {
    authorize(who, request.app.as_deref(), &request.service)?;
    if request.service == "personinfo" {
        return Err(Error::new(ErrorCode::UnknownService, "no app has it"));
    }
    let reply = |status, headers: &[(&str, &str)], body: Bytes| {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Ok(RouteReply { status, headers, body })
    };
    match request.path.as_str() {
        "/bad-header" => reply(200, &[("bad header", "x")], Bytes::new()),
        "/bad-value" => reply(200, &[("x-bad", "a\r\nset-cookie: b")], Bytes::new()),
        "/bad-status" => reply(99, &[], Bytes::new()),
        "/many-headers" => reply(200, &vec![("x-many", "v"); 100], Bytes::new()),
        "/own-framing" => {
            reply(200, &[("content-length", "99"), ("connection", "close"), ("x-a", "1"), ("x-a", "2")], "hi".into())
        }
        "/only-get" => Err(Error {
            code: ErrorCode::MethodNotAllowed,
            message: "only GET".to_owned(),
            detail: Some(r#"["GET"]"#.to_owned()),
        }),
        "/own-cors" => {
            let headers = [("access-control-allow-origin", "https://own.test"), ("access-control-max-age", "5")];
            reply(200, &headers, Bytes::new())
        }
        "/missing" => Err(Error::new(ErrorCode::UnknownRoute, "no such route")),
        _ => {
            let mut count = 0;
            request.headers.each(&mut |_, _| count += 1);
            let shown = json!({
                "app": request.app,
                "service": request.service,
                "method": request.method,
                "path": request.path,
                "query": request.query,
                "x-test": request.headers.get("x-test"),
                "authorization": request.headers.get("authorization"),
                "headers": count,
                "body": String::from_utf8_lossy(&request.body),
                "idempotency_key": request.idempotency_key,
            });
            reply(200, &[("content-type", "application/json"), ("x-route", "yes")], text(&shown))
        }
    }
}

impl Calls for MockBackend {
    fn call(&self, who: &Principal, request: CallRequest<'_>) -> Begun<Bytes> {
        if request.handler == "wait" && authorize(who, request.app, request.service).is_ok() {
            self.shared.calls.fetch_add(1, Ordering::SeqCst);
            let shared = Arc::clone(&self.shared);
            return Begun::waits(async move {
                shared.began.notify_one();
                shared.gate.notified().await;
                Ok(Bytes::from_static(b"\"waited\""))
            });
        }
        self.answer(who, request).into()
    }

    async fn send(&self, who: &Principal, request: SendRequest<'_>) -> Result<String, Error> {
        authorize(who, request.call.app, request.call.service)?;
        Ok(format!("{}/{} {}", request.call.handler, request.delay_ms, request.call.idempotency_key.unwrap_or("-")))
    }

    fn route(&self, who: &Principal, request: RouteRequest) -> Begun<RouteReply> {
        answer_route(who, &request).into()
    }

    async fn state(&self, who: &Principal, request: StateRequest<'_>) -> Result<StateReply, Error> {
        authorize(who, request.app, request.service)?;
        let StateFields::One(field) = request.fields else {
            let all = json!({ "app": request.app, "key": request.key });
            let page = Value::String(format!("{:?}", request.fields));
            return Ok(StateReply::Entity(text(if request.fields == StateFields::All { &all } else { &page })));
        };
        match &*field {
            b"json" => Ok(StateReply::Json(Bytes::from_static(b"17"))),
            b"bytes/" => Ok(StateReply::Binary(Bytes::from_static(b"\x00\xff"))),
            _ => Err(Error::new(ErrorCode::UnknownState, "no such field")),
        }
    }
}

impl Invocations for MockBackend {
    async fn invocation(&self, _: &Principal, id: &str, has_journal: bool) -> Result<Invocation, Error> {
        let invocation =
            |status, output, error| Invocation { id: id.to_owned(), status, output, error, workflow: None };
        match id {
            "done" => Ok(invocation(InvocationStatus::Succeeded, Some(Bytes::from_static(b"[1,2]")), None)),
            "failed" => Ok(invocation(InvocationStatus::Failed, None, Some(Error::new(ErrorCode::Aborted, "no")))),
            "pending" => Ok(invocation(InvocationStatus::Pending, None, None)),
            "running" | "soon" => {
                self.shared.note(format!("{id}, journal: {has_journal}"));
                let has_ended = id == "soon" && self.shared.calls.fetch_add(1, Ordering::SeqCst) >= 3;
                let status = if has_ended { InvocationStatus::Succeeded } else { InvocationStatus::Running };
                Ok(workflow(id, status))
            }
            "long" => {
                let mut long = workflow(id, InvocationStatus::Running);
                let state = long.workflow.as_mut().expect("a workflow");
                let large = Bytes::from(format!("\"{}\"", "x".repeat(4_000_000)));
                let step = JournalStep { result: Ok(large), ..state.journal[1].clone() };
                state.journal.extend(std::iter::repeat_n(step, 6));
                Ok(long)
            }
            other => Err(unknown(other)),
        }
    }

    async fn invocations(&self, who: &Principal, request: InvocationsRequest<'_>) -> Result<Page<Invocation>, Error> {
        self.shared.note(format!("{request:?}"));
        if authorize_target(who).is_err() {
            return Ok(Page { items: Vec::new(), next: None });
        }
        let items = vec![workflow("w/1", InvocationStatus::Running), workflow("w2", InvocationStatus::Failed)];
        Ok(Page { items, next: (request.limit < 3).then(|| "3:17".to_owned()) })
    }

    async fn cancel(&self, who: &Principal, id: &str) -> Result<(), Error> {
        authorize_target(who)?;
        self.shared.note(format!("cancel {id}"));
        if id == "other" { Err(unknown(id)) } else { Ok(()) }
    }

    async fn signal(
        &self,
        who: &Principal,
        id: &str,
        name: &str,
        payload: Bytes,
        idempotency_key: Option<&str>,
    ) -> Result<(), Error> {
        authorize_target(who)?;
        let payload = String::from_utf8_lossy(&payload).into_owned();
        self.shared.note(format!("signal {id} {name} {payload} {}", idempotency_key.unwrap_or("-")));
        if id == "other" { Err(unknown(id)) } else { Ok(()) }
    }

    async fn dead_letters(
        &self,
        who: &Principal,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<DeadLetter>, Error> {
        authorize_target(who)?;
        self.shared.note(format!("dead letters {after:?} {limit}"));
        let dead_letter = DeadLetter {
            id: "d-1".to_owned(),
            target: mock_target(b"\xff"),
            input: Bytes::from_static(b"[1]"),
            attempts: 16,
            error: Some(Error::new(ErrorCode::FunctionFailed, "it threw")),
        };
        let silent = DeadLetter { id: "d-2".to_owned(), error: None, input: Bytes::new(), ..dead_letter.clone() };
        Ok(Page { items: vec![dead_letter, silent], next: None })
    }

    async fn retry_dead_letter(&self, who: &Principal, id: &str) -> Result<(), Error> {
        authorize_target(who)?;
        self.shared.note(format!("retry {id}"));
        if id == "other" { Err(unknown(id)) } else { Ok(()) }
    }

    async fn drop_dead_letter(&self, who: &Principal, id: &str) -> Result<(), Error> {
        authorize_target(who)?;
        self.shared.note(format!("drop {id}"));
        if id == "other" { Err(unknown(id)) } else { Ok(()) }
    }

    async fn schedules(&self, who: &Principal, request: SchedulesRequest<'_>) -> Result<Page<Schedule>, Error> {
        self.shared.note(format!("{request:?}"));
        if authorize_target(who).is_err() {
            return Ok(Page { items: Vec::new(), next: None });
        }
        let nightly = Schedule {
            name: "nightly".to_owned(),
            target: mock_target(b"all"),
            cron: "30 3 * * *".to_owned(),
            due_ms: Some(1_700_000_000_000),
        };
        let never = Schedule { name: "odd".to_owned(), target: mock_target(b"\xff"), due_ms: None, ..nightly.clone() };
        Ok(Page { items: vec![nightly, never], next: (request.limit < 3).then(|| "trips.trip.odd".to_owned()) })
    }
}

impl Deployments for MockBackend {
    async fn deploy(&self, who: &Principal, app: &str, files: Vec<AppFile>) -> Result<Deployed, Error> {
        if !who.may(Permission::Deploy) {
            return Err(Error::new(ErrorCode::Forbidden, "not you"));
        }
        let mut deployed = self.shared.deployed.lock().expect("no panic");
        deployed.push((app.to_owned(), files));
        let is_new = deployed.iter().filter(|(name, _)| name == app).count() == 1;
        let warnings = if app == "second" { vec!["another has it too".to_owned()] } else { Vec::new() };
        Ok(Deployed { app: AppInfo { name: app.to_owned(), version: 0xabc, services: Vec::new() }, is_new, warnings })
    }

    async fn remove_app(&self, who: &Principal, app: &str) -> Result<(), Error> {
        if !who.may(Permission::Deploy) {
            return Err(Error::new(ErrorCode::Forbidden, "not you"));
        }
        if app == "missing" { Err(Error::new(ErrorCode::UnknownApp, "no such app")) } else { Ok(()) }
    }

    async fn apps(&self, who: &Principal) -> Result<Vec<AppInfo>, Error> {
        if !who.may(Permission::Deploy) {
            return Err(Error::new(ErrorCode::Forbidden, "not you"));
        }
        Ok(vec![AppInfo { name: "main".to_owned(), version: 3, services: Vec::new() }])
    }

    async fn system_app(&self, _: &Principal, app: &str) -> Result<SystemApp, Error> {
        assert_eq!(app, millrace_api::RECORDS_APP);
        Ok(self.shared.records.system_app())
    }

    async fn replace_system_app(
        &self,
        who: &Principal,
        _: &str,
        expected_version: u64,
        files: Vec<AppFile>,
    ) -> Result<u64, Error> {
        assert!(who.may(Permission::Deploy), "the front has seen to it");
        self.shared.records.replace(expected_version, files)
    }
}

impl Records for MockBackend {
    fn record(&self, who: &Principal, request: RecordRequest<'_>) -> Begun<RecordReply> {
        self.shared.note(records::line(&request));
        self.shared.records.record(who, request).into()
    }

    async fn record_sweep(&self, _: &Principal, type_name: &str) -> Result<(), Error> {
        self.shared.note(format!("sweep {type_name}"));
        Ok(())
    }

    async fn has_records(&self, _: &Principal, type_name: &str) -> Result<bool, Error> {
        Ok(type_name == "used")
    }

    fn is_record_type(&self, name: &str) -> bool {
        ["personinfo", "account", "none"].contains(&name)
    }
}

impl Serving for MockBackend {
    fn poll_admission(&self, admission: &mut Option<Admission>, context: &mut Context<'_>) -> Poll<()> {
        let mut admissions = self.shared.admissions.lock().expect("no panic");
        if admissions.is_busy {
            if admission.is_none() {
                *admission = Some(Admission { number: 0, since_ns: 0 });
                admissions.held += 1;
            }
            admissions.wakers.push(context.waker().clone());
            return Poll::Pending;
        }
        admissions.held -= u64::from(admission.take().is_some());
        Poll::Ready(())
    }

    fn withdraw(&self, _: Admission) {
        self.shared.admissions.lock().expect("no panic").held -= 1;
    }

    fn health(&self) -> Health {
        Health {
            is_serving: !self.shared.is_down.load(Ordering::SeqCst),
            is_ready: !self.shared.is_read_only.load(Ordering::SeqCst),
        }
    }
}

/// A server of one core, stopped when dropped.
pub struct Server {
    pub address: SocketAddr,
    pub backend: MockBackend,
    pub front: Arc<Front>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Options whose timeouts no test reaches by accident, and which know the hosts that tests name.
pub fn patient() -> Options {
    let timeouts = Timeouts { drain: PATIENCE, ..Timeouts::default() };
    let allowed_hosts = ["test", "x"].map(str::to_owned).to_vec();
    Options { timeouts, allowed_hosts, ..Options::default() }
}

impl Server {
    pub fn start(options: Options) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").expect("a free port"), options)
    }

    pub fn start_on(listener: TcpListener, options: Options) -> Self {
        let address = listener.local_addr().expect("bound");
        let front = Front::new(options, Registry::default()).expect("usable options");
        let backend = MockBackend::default();
        let (stop, stopped) = oneshot::channel::<()>();
        let (on_core, front_of_core) = (backend.clone(), Arc::clone(&front));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let shutdown = async {
                let _ = stopped.await;
            };
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, serve(listener, on_core, front_of_core, shutdown)).expect("served");
        });
        Self { address, backend, front, stop: Some(stop), thread: Some(thread) }
    }

    /// What the backend was asked since the last time.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.backend.shared.asked.lock().expect("no panic"))
    }

    /// The only thing the backend was asked since the last time.
    pub fn asked_one(&self) -> String {
        let asked = self.asked();
        assert_eq!(asked.len(), 1, "{asked:?}");
        asked.into_iter().next().unwrap_or_default()
    }

    pub fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).expect("connected"))
    }

    /// One request on a connection of its own.
    pub fn ask(&self, request: &str, body: &[u8]) -> Reply {
        self.connect().ask(request, body)
    }

    /// Begins to drain; [`Server::join`] waits for its end.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    pub fn join(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic on the core");
        }
    }

    /// The value of a metric's line that starts with `name`, summed over all such lines.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.front.metrics_text().expect("metrics");
        text.lines()
            .filter(|line| line.starts_with(name))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Waits until a metric has reached `value`.
    pub fn wait_for_metric(&self, name: &str, value: f64) {
        wait_until(|| self.metric(name) >= value, || format!("{name} is {}, not {value}", self.metric(name)));
    }
}

/// Waits for something that must come true.
pub fn wait_until(is_true: impl Fn() -> bool, or_else: impl Fn() -> String) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_true() {
        assert!(std::time::Instant::now() < deadline, "{}", or_else());
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Handlers that still wait must not hold up the drain of a test that is over.
        for _ in 0..64 {
            self.backend.shared.gate.notify_one();
            self.backend.shared.gate.notify_waiters();
        }
        self.stop();
        if !std::thread::panicking() {
            self.join();
        }
    }
}

/// A reply, taken apart.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// Checks that this is a whole problem document with this code.
    pub fn assert_problem(&self, code: &str) -> Value {
        let expected = ErrorCode::parse(code).expect("a code");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let document = self.json();
        assert_eq!(document["code"], code, "{document}");
        assert_eq!(self.status, status_of(expected).as_u16(), "{document}");
        assert_eq!(document["status"], self.status);
        assert_eq!(document["type"], format!("/errors/{code}"));
        assert_eq!(document["title"], expected.title());
        assert!(document["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
        assert_eq!(self.header("retry-after").is_some(), self.status == 503);
        assert_eq!(self.header("www-authenticate"), (self.status == 401).then_some("Bearer"));
        assert_eq!(self.header("allow").is_some(), self.status == 405);
        document
    }
}

/// A connection that sends what it is told and reads one reply at a time.
pub struct Client {
    pub stream: BufReader<TcpStream>,
}

impl Client {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("settable");
        stream.set_write_timeout(Some(PATIENCE)).expect("settable");
        Self { stream: BufReader::new(stream) }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).expect("sent");
    }

    /// `request` is the request line without the version, then header lines, each ended by `\n`.
    pub fn request(request: &str, body: &[u8]) -> Vec<u8> {
        let (line, headers) = request.split_once('\n').unwrap_or((request, ""));
        let mut text = format!("{line} HTTP/1.1\r\nhost: test\r\n");
        for header in headers.lines() {
            text.push_str(header);
            text.push_str("\r\n");
        }
        if !body.is_empty() {
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(body);
        bytes
    }

    pub fn ask(&mut self, request: &str, body: &[u8]) -> Reply {
        self.send(Self::request(request, body));
        self.read_reply(!request.starts_with("HEAD"))
    }

    pub fn read_reply(&mut self, has_body: bool) -> Reply {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a status line");
        let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no status line: {line:?}"));
        let status = status.parse().expect("a status");
        let mut headers = Vec::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).expect("a header");
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            headers.push((name.to_owned(), value.trim_start().to_owned()));
        }
        let mut reply = Reply { status, headers, body: Vec::new() };
        let length: usize = reply.header("content-length").map_or(0, |length| length.parse().expect("a length"));
        if has_body {
            reply.body.resize(length, 0);
            self.stream.read_exact(&mut reply.body).expect("the body");
        }
        reply
    }

    /// Waits until the server has closed; what it sent before that.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => rest,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => rest,
            Err(error) => panic!("the server did not close: {error}"),
        }
    }
}
