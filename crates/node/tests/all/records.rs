//! The built-in app of records on a whole node, over an engine that stands in for the real one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use millrace_api::{
    AppFile, CallRequest, Calls, Deployments, Form, Permission, Principal, RecordChange, RecordOperation, RecordQuery,
    RecordReply, RecordRequest, RecordWrite, Records, Role, StateFields, StateRequest,
};
use millrace_base::{Error, ErrorCode, Name, Value, ValueKind, fingerprint};
use millrace_func::{
    ActivationId, App, Engine, FetchRequest, Fetcher, Fetching, HandlerKind, Host, OperationId, Output, Program,
    Service, Start, TurnResult,
};
use millrace_node::{CoreHandle, Fronts, Node, NodeMetrics, NodeOptions, StartError, app_from_files};

/// Each file `{type}` of the app is a type whose records are one field; one named `broken` is refused. What a
/// type is swept to is its file's content.
#[derive(Default)]
struct FakeEngine {
    programs: RefCell<BTreeMap<Program, Vec<Service>>>,
    sweeps: RefCell<BTreeMap<Program, Vec<(Name, u64)>>>,
}

/// How often each service was swept, on all nodes of these tests, and told that nothing else runs.
static SWEPT: Mutex<BTreeMap<String, (usize, usize)>> = Mutex::new(BTreeMap::new());

fn swept(service: &str) -> (usize, usize) {
    SWEPT.lock().expect("not poisoned").get(service).copied().unwrap_or_default()
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn run(service: &Service, handler: &str, input: &[u8], host: &mut dyn Host) -> Result<Bytes, Error> {
    if handler == "_sweep" {
        host.set(b"swept", Value::new(ValueKind::Json, b"true"))?;
        let is_alone = input.windows(5).any(|part| part == b"alone");
        let mut swept = SWEPT.lock().expect("not poisoned");
        let (all, alone) = swept.entry(service.name.to_string()).or_default();
        (*all, *alone) = (*all + usize::from(!is_alone), *alone + usize::from(is_alone));
        return Ok(Bytes::from_static(b"null"));
    }
    let mut reply = RecordReply::default();
    match RecordOperation::from_bytes(input)? {
        RecordOperation::Write(RecordWrite { change: RecordChange::Put { value, .. }, .. }) => {
            host.set(b"r", Value::new(ValueKind::Json, value))?;
        }
        RecordOperation::Write(_) => reply.matched = u32::from(host.delete(b"r")?),
        // Says where it ran, by what is there.
        RecordOperation::Find(_) => {
            let index = if service.name.as_str() == "note" { 0 } else { 2 };
            reply.matched = host.keys(index, b"", None, 100)?.len() as u32;
        }
        _ => {
            let unknown = || Error::new(ErrorCode::UnknownRecord, "no such record");
            reply.body = Bytes::copy_from_slice(host.get(b"r")?.ok_or_else(unknown)?.content());
        }
    }
    Ok(reply.to_bytes())
}

impl Engine for FakeEngine {
    fn load(&self, program: Program, app: &App) -> Result<(), Error> {
        let mut services = Vec::new();
        for path in app.files.keys() {
            if path == "broken" {
                return Err(Error::new(ErrorCode::AppRefused, "broken"));
            }
            let handlers = vec![(name("_read"), HandlerKind::Query), (name("_write"), HandlerKind::Transaction)];
            let sweep = vec![(name("_sweep"), HandlerKind::Transaction)];
            for (text, handlers) in [(path.clone(), handlers), (format!("{path}--shard"), sweep)] {
                services.push(Service { name: name(&text), handlers, routes: Vec::new(), schedules: Vec::new() });
            }
        }
        let sweep = |(path, content): (&String, &Vec<u8>)| (name(&format!("{path}--shard")), fingerprint(&[content]));
        self.sweeps.borrow_mut().insert(program, app.files.iter().map(sweep).collect());
        self.programs.borrow_mut().insert(program, services);
        Ok(())
    }

    fn services(&self, program: Program) -> Vec<Service> {
        self.programs.borrow()[&program].clone()
    }

    fn sweeps(&self, program: Program) -> Vec<(Name, u64)> {
        self.sweeps.borrow()[&program].clone()
    }

    fn unload(&self, _: Program) {}

    fn start(&self, _: ActivationId, start: Start<'_>, host: &mut dyn Host) -> TurnResult {
        let Start::Handler { id, input, .. } = start else { panic!("no routes") };
        let service = self.programs.borrow()[&id.program][usize::from(id.service)].clone();
        let handler = service.handlers[usize::from(id.handler)].0.clone();
        TurnResult::Done(run(&service, handler.as_str(), input, host).map(Output::Value))
    }

    fn resume(&self, _: ActivationId, _: OperationId, _: Result<Bytes, Error>, _: &mut dyn Host) -> TurnResult {
        panic!("nothing waits")
    }

    fn cancel(&self, _: ActivationId) {}
}

struct NoFetcher;

impl Fetcher for NoFetcher {
    fn fetch(&self, _: FetchRequest) -> Fetching {
        panic!("nothing is fetched")
    }
}

type Work = Box<dyn FnOnce(CoreHandle) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Starts a node of two cores, runs `work` on its second core, and stops it.
fn with_node<F: Future<Output = ()> + 'static>(
    data: &Path,
    work: impl FnOnce(CoreHandle) -> F + Send + 'static,
) -> Result<(), StartError> {
    let work: Work = Box::new(move |handle| Box::pin(work(handle)));
    let work = Mutex::new(Some(work));
    let (done, has_ended) = std::sync::mpsc::channel();
    let done = Mutex::new(done);
    let fronts: Fronts = Arc::new(move |handle: CoreHandle, mut drain| {
        let work = (handle.index() == 1).then(|| work.lock().expect("not poisoned").take()).flatten();
        let done = done.lock().expect("not poisoned").clone();
        Box::pin(async move {
            if let Some(work) = work {
                work(handle).await;
                done.send(()).expect("somebody waits");
            }
            let _ = drain.wait_for(|is_draining| *is_draining).await;
        })
    });
    let options = NodeOptions { cores: 2, shards: Some(4), memory_bytes: 64 << 20, ..NodeOptions::new(data.into()) };
    let metrics = NodeMetrics::new(2);
    let engine = Arc::new(|shard_count| {
        assert_eq!(shard_count, 4);
        Box::new(FakeEngine::default()) as Box<dyn Engine>
    });
    let node = Node::start(options, Vec::new(), engine, Arc::new(NoFetcher), fronts, metrics)?;
    has_ended.recv_timeout(Duration::from_secs(60)).expect("the work ends");
    node.stop()
}

fn files(types: &[&str]) -> Vec<AppFile> {
    types.iter().map(|path| AppFile { path: (*path).to_owned(), content: b"{}".to_vec() }).collect()
}

fn anybody() -> Principal {
    Principal::unrestricted()
}

fn with_role(role: &str) -> Principal {
    Principal::with_roles(vec![Role::parse(role).expect("a role")])
}

async fn record(node: &CoreHandle, id: &str, operation: RecordOperation<'_>) -> Result<RecordReply, Error> {
    let request = RecordRequest { type_name: "note", id: Some(id.as_bytes()), operation, idempotency_key: None };
    node.record(&anybody(), request).reply().await
}

fn put(value: &str) -> RecordOperation<'_> {
    let change = RecordChange::Put { form: Form::Json, value: value.as_bytes() };
    RecordOperation::Write(RecordWrite { change, ..RecordWrite::default() })
}

const GET: RecordOperation<'_> = RecordOperation::Get { form: Form::Json };

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorCode {
    result.expect_err("refused").code
}

#[test]
fn records_are_written_read_and_found_again_after_a_restart() {
    let data = tempfile::tempdir().expect("a folder");
    with_node(data.path(), |node| async move {
        let all = anybody();
        assert_eq!(code(record(&node, "7", GET).await), ErrorCode::UnknownType, "no types at first");
        assert_eq!(
            node.replace_system_app(&all, "records", 0, files(&["note"])).await.map(|version| version > 0),
            Ok(true)
        );
        assert_eq!(node.has_records(&all, "note").await, Ok(false));
        for id in 0..20 {
            let id = id.to_string();
            record(&node, &id, put(&format!("[{id}]"))).await.expect("written");
            assert_eq!(record(&node, &id, GET).await.expect("there").body, format!("[{id}]"));
        }
        assert_eq!(node.has_records(&all, "note").await, Ok(true));
        assert_eq!(node.has_records(&all, "other").await, Ok(false));
        assert_eq!(code(record(&node, "x", GET).await), ErrorCode::UnknownRecord);
        let find = RecordOperation::Find(RecordQuery::default());
        let request = RecordRequest { type_name: "note", id: None, operation: find, idempotency_key: None };
        let found = node.record(&all, request).reply().await.expect("found").matched;
        assert!(found > 0 && found < 20, "{found}: one shard answers");
        let request = RecordRequest { type_name: "note", id: None, operation: GET, idempotency_key: None };
        assert_eq!(code(node.record(&all, request).reply().await), ErrorCode::BadRequest);
    })
    .expect("runs");
    with_node(data.path(), |node| async move {
        assert_eq!(record(&node, "7", GET).await.expect("there").body, "[7]");
        for id in 0..20 {
            let delete = RecordOperation::Write(RecordWrite::default());
            record(&node, &id.to_string(), delete).await.expect("deleted");
        }
        assert_eq!(node.has_records(&anybody(), "note").await, Ok(false));
    })
    .expect("runs");
}

#[test]
fn the_app_is_replaced_by_who_has_seen_its_present_version() {
    let data = tempfile::tempdir().expect("a folder");
    with_node(data.path(), |node| async move {
        let all = anybody();
        let before = node.system_app(&all, "records").await.expect("empty");
        assert_eq!((before.version, before.files.len()), (0, 0));
        let first = node.replace_system_app(&all, "records", 0, files(&["note"])).await.expect("replaced");
        let late = node.replace_system_app(&all, "records", 0, files(&["other"])).await;
        assert_eq!(code(late), ErrorCode::PreconditionFailed);
        let broken = node.replace_system_app(&all, "records", first, files(&["broken", "note"])).await;
        assert_eq!(code(broken), ErrorCode::AppRefused);
        let now = node.system_app(&all, "records").await.expect("there");
        assert_eq!((now.version, &now.files[..]), (first, &files(&["note"])[..]), "nothing changed");
        let second =
            node.replace_system_app(&all, "records", first, files(&["note", "other"])).await.expect("replaced");
        assert_ne!(first, second);
        assert_eq!(code(node.system_app(&all, "shop").await), ErrorCode::UnknownApp);
        assert_eq!(code(node.replace_system_app(&all, "shop", 0, files(&["note"])).await), ErrorCode::UnknownApp);
    })
    .expect("runs");
    with_node(data.path(), |node| async move {
        let all = anybody();
        let kept = node.system_app(&all, "records").await.expect("kept");
        assert_eq!(&kept.files[..], &files(&["note", "other"])[..]);
        let again = node.replace_system_app(&all, "records", kept.version, files(&["note"])).await;
        assert!(again.is_ok(), "its version is the same after a restart");
        let (one, two) = (node.system_app(&all, "records").await.expect("there").version, kept.version);
        assert_ne!(one, two);
    })
    .expect("runs");
}

#[test]
fn of_two_replacements_at_once_one_takes_effect() {
    let data = tempfile::tempdir().expect("a folder");
    with_node(data.path(), |node| async move {
        let all = anybody();
        let one = node.replace_system_app(&all, "records", 0, files(&["note"]));
        let two = node.replace_system_app(&all, "records", 0, files(&["other"]));
        let (one, two) = tokio::join!(one, two);
        assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
        assert_eq!(code(one.and(two)), ErrorCode::PreconditionFailed);
    })
    .expect("runs");
}

#[test]
fn a_sweep_reaches_every_shard_once_asked_and_after_a_start() {
    let data = tempfile::tempdir().expect("a folder");
    let swept = |node: CoreHandle| async move {
        // Its rows are nobody's business from outside; that they are there shows it has run.
        for _ in 0..1000 {
            if node.has_records(&anybody(), "note--shard").await == Ok(true) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        false
    };
    with_node(data.path(), move |node| async move {
        let all = anybody();
        assert_eq!(code(node.record_sweep(&all, "note").await), ErrorCode::UnknownType);
        node.replace_system_app(&all, "records", 0, files(&["note"])).await.expect("replaced");
    })
    .expect("runs");
    with_node(data.path(), move |node| async move {
        assert!(swept(node.clone()).await, "after a start");
        assert_eq!(node.record_sweep(&anybody(), "note").await, Ok(()));
        assert_eq!(code(node.record_sweep(&with_role("call:records/*"), "note").await), ErrorCode::Forbidden);
    })
    .expect("runs");
}

#[test]
fn a_replacement_has_every_shard_swept_of_what_it_changes() {
    let data = tempfile::tempdir().expect("a folder");
    let typed = |types: &[(&str, &str)]| -> Vec<AppFile> {
        let file =
            |(path, content): &(&str, &str)| AppFile { path: (*path).to_owned(), content: content.as_bytes().to_vec() };
        types.iter().map(file).collect()
    };
    with_node(data.path(), move |node| async move {
        let all = anybody();
        // Each message runs once, so that more of them would be seen later than now.
        let is_swept = async |moved: usize, still: usize| {
            for _ in 0..1000 {
                if (swept("moved--shard"), swept("still--shard")) == ((moved, moved), (still, still)) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!((swept("moved--shard"), swept("still--shard")), ((moved, moved), (still, still)));
        };
        let first = typed(&[("moved", "1"), ("still", "1")]);
        let version = node.replace_system_app(&all, "records", 0, first).await.expect("replaced");
        is_swept(4, 4).await;
        let second = typed(&[("moved", "2"), ("still", "1")]);
        let version = node.replace_system_app(&all, "records", version, second).await.expect("replaced");
        is_swept(8, 4).await;
        // Whoever asked for it need not wait for the end.
        let third = typed(&[("moved", "3"), ("still", "1")]);
        let replacing = node.replace_system_app(&all, "records", version, third);
        let _ = tokio::time::timeout(Duration::from_micros(1), replacing).await;
        is_swept(12, 4).await;
    })
    .expect("runs");
}

#[test]
fn it_is_no_users_app() {
    let data = tempfile::tempdir().expect("a folder");
    with_node(data.path(), |node| async move {
        let all = anybody();
        node.replace_system_app(&all, "records", 0, files(&["note", "metrics"]))
            .await
            .expect("reserved names are free");
        assert_eq!(code(node.deploy(&all, "records", files(&["note"])).await), ErrorCode::AppRefused);
        assert_eq!(code(node.remove_app(&all, "records").await), ErrorCode::AppRefused);
        assert_eq!(node.apps(&all).await, Ok(Vec::new()));
        for app in [None, Some("records")] {
            let input = GET.to_bytes();
            let call = |handler| CallRequest {
                app,
                service: "note",
                key: b"7",
                handler,
                input: input.clone(),
                idempotency_key: None,
            };
            assert!(node.call(&all, call("_read")).reply().await.is_err(), "{app:?}");
            let state = StateRequest { app, service: "note", key: b"7", fields: StateFields::All };
            assert!(matches!(code(node.state(&all, state).await), ErrorCode::UnknownService | ErrorCode::UnknownApp));
        }
        let mine = with_role("call:records/note");
        assert!(mine.may(Permission::Call { app: "records", service: "note" }));
        let request =
            |type_name| RecordRequest { type_name, id: Some(b"7"), operation: put("1"), idempotency_key: None };
        assert!(node.record(&mine, request("note")).reply().await.is_ok());
        assert_eq!(code(node.record(&mine, request("metrics")).reply().await), ErrorCode::Forbidden);
        let reader = with_role("read:records/note");
        let read = |type_name| RecordRequest { type_name, id: Some(b"7"), operation: GET, idempotency_key: None };
        assert!(node.record(&reader, read("note")).reply().await.is_ok());
        assert_eq!(code(node.record(&reader, request("note")).reply().await), ErrorCode::Forbidden);
        assert_eq!(code(node.record(&reader, read("metrics")).reply().await), ErrorCode::Forbidden);
        assert!(node.system_app(&reader, "records").await.is_ok());
        for hidden in ["note--shard", "nothing", "a b", ""] {
            assert_eq!(code(node.record(&all, request(hidden)).reply().await), ErrorCode::UnknownType, "{hidden}");
        }
        assert!(node.system_app(&mine, "records").await.is_ok());
        assert_eq!(code(node.replace_system_app(&mine, "records", 0, files(&[])).await), ErrorCode::Forbidden);
        assert_eq!(code(node.system_app(&with_role("call:shop/*"), "records").await), ErrorCode::Forbidden);
    })
    .expect("runs");
    let given = app_from_files("records", files(&["note"])).expect("an app");
    let options = NodeOptions { cores: 1, ..NodeOptions::new(data.path().into()) };
    let engine = Arc::new(|_| Box::new(FakeEngine::default()) as Box<dyn Engine>);
    let fronts: Fronts = Arc::new(|_, _| Box::pin(async {}));
    let started = Node::start(options, vec![given], engine, Arc::new(NoFetcher), fronts, NodeMetrics::new(1));
    let error = started.err().expect("refused").to_string();
    assert!(error.contains("is built in"), "{error}");
}
