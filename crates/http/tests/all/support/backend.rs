//! A backend without a node: it answers by the names that it is asked for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use millrace_api::objects::{
    BucketInfo, ListPage, ObjectAdministration, ObjectOperation, ObjectReply, ObjectRequest, Refusal, Usage,
};
use millrace_api::{
    Admission, AppFile, AppInfo, AppVersion, Backups, Begun, CallRequest, Calls, DeadLetter, Deployed, Deployments,
    Error, ErrorCode, Failure, Health, Hindrance, IdempotencyKey, Intervention, Invocation, InvocationStatus,
    Invocations, InvocationsRequest, JournalStep, Page, Permission, Principal, RecordReply, RecordRequest, Records,
    RouteReply, RouteRequest, Schedule, SchedulesRequest, SendRequest, Serving, SharedService, StateFields, StateReply,
    StateRequest, SystemApp, Target, WorkflowState,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::records;

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
        failures: if status == InvocationStatus::Paused { failures(&refused) } else { Vec::new() },
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

/// One that is tried again, and one that waits for somebody.
fn failures(error: &Error) -> Vec<Failure> {
    let failure = |operation, kind, next_try_ms| Failure {
        operation,
        kind,
        name: "room/7/hold".to_owned(),
        attempts: 16,
        failed_ms: 1_700_000_000_001,
        next_try_ms,
        error: error.clone(),
    };
    vec![failure(4, "call", Some(1_700_000_000_009)), failure(5, "step", None)]
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
                "idempotency_key": request.idempotency_key.as_ref().map(IdempotencyKey::as_str),
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
                "idempotency_key": request.idempotency_key.as_ref().map(IdempotencyKey::as_str),
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
        if let Some(id) = request.id {
            return Ok(id.to_owned());
        }
        Ok(format!(
            "{}/{} {}",
            request.call.handler,
            request.delay_ms,
            request.call.idempotency_key.as_ref().map_or("-", IdempotencyKey::as_str)
        ))
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
        let invocation = |status, output, error| Invocation {
            id: id.to_owned(),
            status,
            output,
            error,
            failures: Vec::new(),
            workflow: None,
        };
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
            "paused" => Ok(workflow(id, InvocationStatus::Paused)),
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

    async fn intervene(&self, who: &Principal, id: &str, intervention: Intervention) -> Result<(), Error> {
        authorize_target(who)?;
        self.shared.note(format!("{intervention:?} {id}"));
        if id == "other" { Err(unknown(id)) } else { Ok(()) }
    }

    async fn signal(
        &self,
        who: &Principal,
        id: &str,
        name: &str,
        payload: Bytes,
        idempotency_key: Option<IdempotencyKey<&str>>,
    ) -> Result<(), Error> {
        authorize_target(who)?;
        let payload = String::from_utf8_lossy(&payload).into_owned();
        self.shared.note(format!(
            "signal {id} {name} {payload} {}",
            idempotency_key.as_ref().map_or("-", IdempotencyKey::as_str)
        ));
        if id == "other" { Err(unknown(id)) } else { Ok(()) }
    }

    async fn dead_letters(
        &self,
        who: &Principal,
        is_waiting: bool,
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
            next_try_ms: is_waiting.then_some(1_700_000_000_009),
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
        let shared = || SharedService { service: "account".to_owned(), apps: vec!["bank".to_owned(), app.to_owned()] };
        let shared_services = if app == "second" { vec![shared()] } else { Vec::new() };
        let app = AppInfo { name: app.to_owned(), version: 0xabc, services: Vec::new() };
        Ok(Deployed { app, is_new, shared_services })
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

    async fn app_versions(&self, _: &Principal, app: &str) -> Result<Vec<AppVersion>, Error> {
        if app == "missing" {
            return Err(Error::new(ErrorCode::UnknownApp, "no such app"));
        }
        let deployed = AppVersion { version: 3, is_deployed: true, ..AppVersion::default() };
        Ok(vec![deployed, AppVersion { version: 2, workflows: 7, ..AppVersion::default() }])
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

impl Backups for MockBackend {}

impl ObjectAdministration for MockBackend {
    fn administer(&self, request: ObjectRequest<'_>) -> Begun<ObjectReply> {
        assert!(request.requester.is_system);
        self.shared.note(format!("{:?} of {:?}", request.operation, request.bucket));
        Begun::Ended(match (&request.operation, request.bucket) {
            // Two pages.
            (ObjectOperation::ListBuckets(list), _) => {
                let name = if list.after.is_empty() { "a" } else { "b" };
                let owner = request.requester.id.unwrap_or_default().to_owned();
                let bucket = BucketInfo { name: name.to_owned(), created_ms: 7, owner, ..BucketInfo::default() };
                let next = list.after.is_empty().then(|| ("a".to_owned(), String::new()));
                Ok(ObjectReply::Buckets(ListPage { items: vec![bucket], common_prefixes: Vec::new(), next }))
            }
            (_, "missing") => Err(Refusal::NoSuchBucket.error("The specified bucket does not exist")),
            (ObjectOperation::HeadBucket, name) => Ok(ObjectReply::Bucket(BucketInfo {
                name: name.to_owned(),
                created_ms: 7,
                owner: "id".to_owned(),
                app: Some("shop".to_owned()),
                slices: 4,
                ..BucketInfo::default()
            })),
            (ObjectOperation::GetUsage, _) => {
                Ok(ObjectReply::Usage(Usage { objects: 3, size_bytes: 30, quota_bytes: Some(100) }))
            }
            _ => Ok(ObjectReply::Done),
        })
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
            hindrance: self.shared.is_read_only.load(Ordering::SeqCst).then_some(Hindrance::DiskFull),
            has_test_clock: false,
        }
    }
}
