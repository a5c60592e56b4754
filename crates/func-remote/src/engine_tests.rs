//! The engine on its own: what a worker is told, and that what breaks the protocol voids the attempt.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use millrace_api::objects::{Content, ObjectInfo, ObjectReply, ObjectRequest, Refusal};
use millrace_base::{Error, ErrorCode, Name, UnixMillis, Value, ValueKind, limits};
use millrace_format::worker::{
    FrameHeader, FrameValue, ServerFrame, TargetFrame, WORKER_FRAME_HEADER_BYTES, WorkerFrame,
};
use millrace_func::{
    ActivationId, App, AttemptToken, BuiltInCall, Discovery, Engine, FetchRequest, FieldRows, Flow, HandlerId, Host,
    LogLevel, Message, NestedCall, Offload, OperationId, Program, RequestSigning, RetryOptions, ScanRequest, Start,
    StepStart, TurnResult, WORKER_FILE, WorkerAddress, WorkerDocument, WorkerHost, WorkerTurn,
};

use super::RemoteEngine;

const PROGRAM: Program = Program(1);
const ACTIVATION: ActivationId = ActivationId(0);
const TRANSACTION: u16 = 0;
const WORKFLOW: u16 = 1;

/// The world of one handler: the test ends what it asks for.
#[derive(Default)]
struct World {
    reads: usize,
    fields: BTreeMap<Vec<u8>, Value>,
    changes: u64,
    operations: u32,
    sent: Vec<WorkerTurn>,
    exchange: Option<OperationId>,
    ended_steps: Vec<Result<Bytes, Error>>,
    /// Operations on built-in apps: app, handler, input.
    asked: Vec<(String, String, Bytes)>,
    is_workflow: bool,
}

impl World {
    fn next(&mut self) -> OperationId {
        self.operations += 1;
        OperationId(self.operations)
    }
}

fn json(value: &str) -> Value {
    Value::new(ValueKind::Json, value.as_bytes())
}

fn refused<T>() -> Result<T, Error> {
    Err(Error::new(ErrorCode::Forbidden, "not in this test"))
}

impl Host for World {
    fn get(&mut self, field: &[u8]) -> Result<Option<&Value>, Error> {
        self.reads += 1;
        Ok(self.fields.get(field))
    }

    fn set(&mut self, field: &[u8], value: Value) -> Result<(), Error> {
        self.changes += 1;
        self.fields.insert(field.to_vec(), value);
        Ok(())
    }

    fn delete(&mut self, field: &[u8]) -> Result<bool, Error> {
        self.changes += 1;
        Ok(self.fields.remove(field).is_some())
    }

    fn scan(&mut self, _: &ScanRequest) -> Result<FieldRows, Error> {
        refused()
    }

    fn keys(&mut self, _: u16, _: &[u8], _: Option<&[u8]>, _: usize) -> Result<Vec<Vec<u8>>, Error> {
        refused()
    }

    fn operate(&mut self, call: BuiltInCall<'_>) -> Result<OperationId, Error> {
        self.asked.push((call.app.to_owned(), call.handler.to_owned(), call.input));
        Ok(self.next())
    }

    fn call(&mut self, _: NestedCall) -> Result<OperationId, Error> {
        Ok(self.next())
    }

    fn send(&mut self, _: Message) -> Result<Option<String>, Error> {
        refused()
    }

    fn signal(&mut self, _: &str, _: &str, _: Bytes) -> Result<(), Error> {
        refused()
    }

    fn offload(&mut self, _: Offload) -> Result<OperationId, Error> {
        refused()
    }

    fn fetch(&mut self, _: FetchRequest) -> Result<OperationId, Error> {
        refused()
    }

    fn worker(&mut self) -> Result<&mut dyn WorkerHost, Error> {
        Ok(self)
    }

    fn flow(&mut self) -> Option<&mut dyn Flow> {
        if self.is_workflow { Some(self) } else { None }
    }

    fn now(&self) -> UnixMillis {
        UnixMillis(1)
    }

    fn random(&mut self) -> u64 {
        7
    }

    fn log(&mut self, _: LogLevel, _: &str) {}
}

impl WorkerHost for World {
    fn exchange(&mut self, turn: WorkerTurn) -> Result<OperationId, Error> {
        assert_eq!(self.exchange, None, "one turn at a time");
        let operation = self.next();
        (self.exchange, _) = (Some(operation), self.sent.push(turn));
        Ok(operation)
    }

    fn attempt(&mut self) -> AttemptToken {
        [1; 16]
    }

    fn left_ms(&mut self, timeout_ms: u64) -> u64 {
        timeout_ms
    }

    fn entity_changes(&self) -> u64 {
        self.changes
    }

    fn whole(&mut self, _: usize) -> Result<Option<FieldRows>, Error> {
        Ok(Some(self.fields.clone().into_iter().collect()))
    }
}

impl Flow for World {
    fn sleep(&mut self, _: u64) -> Result<OperationId, Error> {
        Ok(self.next())
    }

    fn wait(&mut self, _: &str, _: Option<u64>) -> Result<OperationId, Error> {
        refused()
    }

    fn result(&mut self, _: &str, _: Option<u64>) -> Result<OperationId, Error> {
        refused()
    }

    fn retry_next(&mut self, _: RetryOptions) {}

    fn begin_step(&mut self, name: &str) -> Result<StepStart, Error> {
        let operation = self.next();
        Ok(if name == "known" { StepStart::Known(operation) } else { StepStart::Run(operation) })
    }

    fn end_step(&mut self, _: OperationId, result: Result<Bytes, Error>) -> Result<(), Error> {
        self.ended_steps.push(result);
        Ok(())
    }

    fn within_step(&mut self, _: Option<OperationId>) {}

    fn compensate(&mut self, _: NestedCall) -> Result<(), Error> {
        refused()
    }

    fn invocation(&self) -> String {
        "inv_1".to_owned()
    }
}

/// One attempt on a worker.
struct Attempt {
    engine: RemoteEngine,
    given_up: Rc<RefCell<usize>>,
    world: World,
    last: TurnResult,
}

impl Attempt {
    /// On a worker that has dialled in.
    fn begin(handler: u16, fields: &[(&str, &str)]) -> Self {
        Self::begin_at(WorkerAddress::DialIn, handler, fields)
    }

    /// On one that the server dials, with the mode `stream`.
    fn begin_on_stream(handler: u16) -> Self {
        Self::begin_at(WorkerAddress::Url("h2c://127.0.0.1:1".to_owned()), handler, &[])
    }

    fn begin_at(address: WorkerAddress, handler: u16, fields: &[(&str, &str)]) -> Self {
        let given_up = Rc::new(RefCell::new(0));
        let count = Rc::clone(&given_up);
        let engine = RemoteEngine::new(move |_, _| *count.borrow_mut() += 1, |_| None);
        let discovery =
            br#"{"protocol":{"min":1,"max":3},"mode":"stream","services":[{"name":"account","whole_up_to_bytes":1000,
            "handlers":[{"name":"run","kind":"transaction"},{"name":"flow","kind":"workflow"}]}]}"#;
        let discovery = Discovery::from_json(discovery).expect("valid");
        let document =
            WorkerDocument { address, signing: RequestSigning::default(), discovery, replaces: vec![], settings: None };
        let mut app = App::new(Name::new("bank").expect("a name"));
        app.files.insert(WORKER_FILE.into(), document.to_json());
        engine.load(PROGRAM, &app).expect("it loads");
        let fields = fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), json(value))).collect();
        let mut world = World { fields, is_workflow: handler == WORKFLOW, ..World::default() };
        let id = HandlerId { program: PROGRAM, service: 0, handler };
        let last = engine.start(ACTIVATION, Start::Handler { id, key: b"ann", input: b"" }, &mut world);
        Self { engine, given_up, world, last }
    }

    fn resume(&mut self, operation: OperationId, result: Result<Bytes, Error>) {
        self.last = self.engine.resume(ACTIVATION, operation, result, &mut self.world);
    }

    /// The worker's turn comes.
    fn turn(&mut self, frames: &[WorkerFrame]) {
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.encode(&mut bytes));
        let operation = self.world.exchange.take().expect("a turn is awaited");
        self.resume(operation, Ok(bytes.into()));
    }

    /// What was sent last.
    fn sent(&self) -> Vec<ServerFrame> {
        let mut rest = self.world.sent.last().expect("something").content.clone();
        let mut frames = Vec::new();
        while let Some(header) = FrameHeader::read(&rest).expect("frames") {
            let payload = rest.split_to(header.frame_bytes()).slice(WORKER_FRAME_HEADER_BYTES..);
            frames.push(ServerFrame::decode(header, payload).expect("a frame"));
        }
        frames
    }

    /// The fields that the worker was told of last.
    fn told(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let fields = |frame: ServerFrame| match frame {
            ServerFrame::Fields { fields, .. } => Some(fields),
            _ => None,
        };
        let fields = self.sent().into_iter().find_map(fields).expect("FIELDS");
        let content = |value: Option<FrameValue>| value.expect("it is set").content().to_vec();
        fields.into_iter().map(|(name, value)| (name.to_vec(), content(value))).collect()
    }

    fn error(&self) -> Option<ErrorCode> {
        match &self.last {
            TurnResult::Done(Err(error)) => Some(error.code),
            _ => None,
        }
    }
}

fn call(operation: u32) -> WorkerFrame {
    let (service, handler) = ("account".to_owned(), "run".to_owned());
    let target = TargetFrame { service, key: Bytes::from_static(b"ben"), handler, input: Bytes::new() };
    WorkerFrame::Call { operation, target, policy: Bytes::new() }
}

fn set(field: &'static str, value: &'static str) -> WorkerFrame {
    WorkerFrame::Set { field: field.into(), value: FrameValue::Json(value.into()) }
}

fn suspend(operations: &[u32]) -> WorkerFrame {
    WorkerFrame::Suspend { operations: operations.to_vec() }
}

fn get(operation: u32) -> WorkerFrame {
    WorkerFrame::Get { operation, field: Bytes::from_static(b"large") }
}

fn row(name: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
    (name.into(), value.into())
}

const NULL: Bytes = Bytes::from_static(b"null");

/// The host's operations: 1 is the first turn, 2 and 3 are the calls, 4 is the second turn.
fn with_two_calls() -> Attempt {
    let mut attempt = Attempt::begin(TRANSACTION, &[("a", "1"), ("b", "1")]);
    attempt.turn(&[call(1), call(2), suspend(&[1, 2])]);
    attempt.resume(OperationId(3), Ok(NULL));
    assert_eq!(attempt.world.exchange, Some(OperationId(4)), "the worker has the turn");
    attempt
}

#[test]
fn a_worker_is_not_told_a_field_as_it_was_before_its_own_write_that_is_on_its_way() {
    let mut attempt = with_two_calls();
    // The first call has led back to the entity, and ends while the worker writes beside it.
    attempt.world.set(b"b", json("2")).expect("it is set");
    attempt.resume(OperationId(2), Ok(NULL));
    attempt.turn(&[set("a", "5"), suspend(&[1])]);
    assert_eq!(attempt.told(), BTreeMap::from([row("a", "5"), row("b", "2")]));
}

#[test]
fn a_worker_hears_what_a_call_has_written_before_the_worker_had_its_turn() {
    let mut attempt = with_two_calls();
    // The first call has written by now, and goes on.
    attempt.world.set(b"b", json("2")).expect("it is set");
    attempt.turn(&[set("a", "5"), suspend(&[1])]);
    assert_eq!(attempt.world.exchange, None, "it waits");
    attempt.resume(OperationId(2), Ok(NULL));
    assert_eq!(attempt.told(), BTreeMap::from([row("a", "5"), row("b", "2")]));
}

#[test]
fn what_only_the_worker_has_written_it_is_not_told() {
    let mut attempt = with_two_calls();
    attempt.turn(&[set("a", "5"), suspend(&[1])]);
    attempt.resume(OperationId(2), Ok(NULL));
    assert!(!attempt.sent().iter().any(|frame| matches!(frame, ServerFrame::Fields { .. })));
}

fn step(operation: u32, name: &str) -> WorkerFrame {
    WorkerFrame::Step { operation, name: name.to_owned(), policy: Bytes::new() }
}

fn step_end(operation: u32) -> WorkerFrame {
    WorkerFrame::StepEnd { operation, result: Ok(FrameValue::Json(NULL)) }
}

#[test]
fn a_step_ends_once_and_only_if_its_code_was_to_run() {
    let mut attempt = Attempt::begin(WORKFLOW, &[]);
    attempt.turn(&[step(1, "one"), suspend(&[1])]);
    attempt.turn(&[step_end(1), step_end(1), suspend(&[1])]);
    assert_eq!((attempt.error(), attempt.world.ended_steps.len()), (Some(ErrorCode::WorkerFailed), 1));
    assert_eq!(*attempt.given_up.borrow(), 1, "the attempt is void");

    let mut attempt = Attempt::begin(WORKFLOW, &[]);
    attempt.turn(&[step(1, "known"), step_end(1), suspend(&[1])]);
    assert_eq!((attempt.error(), attempt.world.ended_steps.len()), (Some(ErrorCode::WorkerFailed), 0));
}

#[test]
fn an_attempt_on_a_stream_is_sent_what_is_new_and_a_workflow_all_of_it() {
    for (handler, is_request) in [(TRANSACTION, false), (WORKFLOW, true)] {
        let mut attempt = Attempt::begin_on_stream(handler);
        attempt.turn(&[call(1), suspend(&[1])]);
        attempt.resume(OperationId(2), Ok(NULL));
        let is_start = |frame: &ServerFrame| matches!(frame, ServerFrame::Start(_));
        let [first, second] = &attempt.world.sent[..] else { panic!("two turns") };
        assert_eq!([first.is_request, second.is_request], [is_request; 2]);
        assert!(first.start_bytes == first.content.len() && (second.start_bytes > 0) == is_request);
        assert_eq!(attempt.sent().iter().any(is_start), is_request);
        assert_eq!(attempt.sent().iter().filter(|frame| !is_start(frame)).count(), 1, "the result");
    }
}

fn object(operation: u32, request: &'static str, body: &'static [u8]) -> WorkerFrame {
    let (bucket, key) = ("photos".to_owned(), "a".to_owned());
    WorkerFrame::Object { operation, bucket, key, request: request.into(), body: Bytes::from_static(body) }
}

/// What the worker was told of its operations.
fn results(attempt: &Attempt) -> Vec<Result<FrameValue, String>> {
    let result = |frame: ServerFrame| match frame {
        ServerFrame::Result { result, .. } => Some(result.map_err(|error| error.code)),
        _ => None,
    };
    attempt.sent().into_iter().filter_map(result).collect()
}

fn stored(content: &[u8]) -> Bytes {
    let info = ObjectInfo { size_bytes: content.len() as u64, etag: "e".to_owned(), ..ObjectInfo::default() };
    ObjectReply::Object { info: Box::new(info), content: Content::Inline }.to_bytes(content)
}

#[test]
fn an_object_is_asked_for_in_the_name_of_the_app_and_comes_with_its_content() {
    let mut attempt = Attempt::begin(TRANSACTION, &[]);
    let get = r#"{"op":"get"}"#;
    attempt.turn(&[object(1, get, b""), object(2, get, b""), object(3, get, b""), suspend(&[1, 2, 3])]);
    let (app, _, input) = attempt.world.asked[0].clone();
    let asked = ObjectRequest::from_bytes(&input).expect("a request");
    assert_eq!(
        (app.as_str(), asked.requester.app(), asked.bucket, asked.key),
        ("objects", Some("bank"), "photos", "a")
    );
    // Only that there is no such object is no error.
    let refused = |refusal: Refusal| Err(refusal.error("no"));
    attempt.resume(OperationId(2), refused(Refusal::NoSuchKey));
    assert_eq!(results(&attempt), [Ok(FrameValue::Json(NULL))]);
    attempt.turn(&[suspend(&[2])]);
    attempt.resume(OperationId(3), refused(Refusal::NoSuchBucket));
    assert_eq!(results(&attempt), [Err("object-refused".to_owned())]);
    attempt.turn(&[suspend(&[3])]);
    attempt.resume(OperationId(4), Ok(stored(b"\xff\x00")));
    let [Ok(FrameValue::Raw(raw))] = &results(&attempt)[..] else { panic!("raw bytes") };
    let (length, rest) = raw.split_first_chunk::<4>().expect("a length");
    let (info, content) = rest.split_at(u32::from_be_bytes(*length) as usize);
    let info: serde_json::Value = serde_json::from_slice(info).expect("JSON");
    let expected = serde_json::json!({
        "size_bytes": 2, "etag": "e", "modified_ms": 0, "content_type": "binary/octet-stream", "metadata": {}, "version": null,
    });
    assert_eq!((info, content), (expected, &b"\xff\x00"[..]));
}

#[test]
fn what_no_bucket_can_do_is_the_handlers_error_and_what_is_no_request_the_workers() {
    for (request, body, code) in [
        (r#"{"op":"put","metadata":{"a b":"c"}}"#, &b"x"[..], "invalid-input"),
        (r#"{"op":"put","content_type":"a\r\nb: c"}"#, b"x", "invalid-input"),
        (r#"{"op":"list","limit":0}"#, b"", "invalid-input"),
        (r#"{"op":"put"}"#, &[0; limits::OBJECT_WRITE_BYTES + 1], "size-limit"),
    ] {
        let mut attempt = Attempt::begin(TRANSACTION, &[]);
        attempt.turn(&[object(1, request, body), suspend(&[1])]);
        assert_eq!(results(&attempt), [Err(code.to_owned())], "{request}");
        assert!(attempt.world.asked.is_empty());
    }
    for (request, body) in [
        ("", &b""[..]),
        ("null", b""),
        (r#"{"op":"copy"}"#, b""),
        (r#"{"op":"get","if_match":"e"}"#, b""),
        (r#"{"op":"get"}"#, b"x"),
    ] {
        let mut attempt = Attempt::begin(TRANSACTION, &[]);
        attempt.turn(&[object(1, request, body), suspend(&[1])]);
        assert_eq!(attempt.error(), Some(ErrorCode::WorkerFailed), "{request}");
    }
}

#[test]
fn a_worker_is_given_no_more_objects_than_an_attempt_holds() {
    // Whether it waits for all of them, or has the turn while they come.
    for has_the_turn in [false, true] {
        let mut attempt = Attempt::begin(TRANSACTION, &[]);
        let mut asked: Vec<WorkerFrame> = (1..=40).map(|number| object(number, r#"{"op":"get"}"#, b"")).collect();
        asked.extend([call(41), suspend(&[41])]);
        attempt.turn(&asked);
        if has_the_turn {
            attempt.resume(OperationId(42), Ok(NULL));
        }
        let content: &[u8] = &[0; 4 << 20];
        let object = stored(content);
        let given = (2..=41).take_while(|number| {
            attempt.resume(OperationId(*number), Ok(object.clone()));
            attempt.error().is_none()
        });
        assert_eq!(given.count(), limits::WORKER_ATTEMPT_BYTES / content.len() - 1, "{has_the_turn}");
        assert_eq!(attempt.error(), Some(ErrorCode::SizeLimit));
    }
}

const MIB: usize = 1 << 20;

/// A value of 6 MiB.
fn large() -> Value {
    json(&format!("\"{}\"", "x".repeat(6 * MIB)))
}

#[test]
fn what_one_turn_asks_for_is_not_read_once_it_is_too_large() {
    let mut attempt = Attempt::begin(TRANSACTION, &[]);
    attempt.world.set(b"large", large()).expect("it is set");
    attempt.turn(&(1..=1000).map(get).chain([suspend(&[1])]).collect::<Vec<_>>());
    assert_eq!(attempt.error(), Some(ErrorCode::SizeLimit));
    assert_eq!(attempt.world.reads, limits::WORKER_ATTEMPT_BYTES / (6 * MIB) + 1);
}

#[test]
fn attempts_of_an_app_are_told_no_more_together_than_a_core_holds() {
    let mut attempt = Attempt::begin(TRANSACTION, &[]);
    let others = limits::WORKER_ATTEMPTS_BYTES / (60 * MIB);
    let mut begin = |number: usize| {
        let id = HandlerId { program: PROGRAM, service: 0, handler: TRANSACTION };
        let activation = ActivationId(1 + u32::try_from(number).expect("small"));
        attempt.world.exchange = None;
        attempt.engine.start(activation, Start::Handler { id, key: b"ann", input: b"" }, &mut attempt.world);
        attempt.world.fields.insert(b"large".to_vec(), large());
        let mut bytes = Vec::new();
        (1..=10).map(get).chain([suspend(&[1])]).for_each(|frame| frame.encode(&mut bytes));
        let operation = attempt.world.exchange.take().expect("a turn is awaited");
        let step = attempt.engine.resume(activation, operation, Ok(bytes.into()), &mut attempt.world);
        attempt.world.fields.clear();
        match step {
            TurnResult::Done(Err(error)) => Some(error.code),
            _ => None,
        }
    };
    (0..others).for_each(|number| assert_eq!(begin(number), None));
    assert_eq!(begin(others), Some(ErrorCode::WorkerUnavailable), "it is told to come again");
    assert_eq!(*attempt.given_up.borrow(), 1);
}

/// Which operations the worker waits for after each part of the results of three.
const PARTS: [[&[u32]; 3]; 4] = [
    [&[1, 2, 3], &[2, 3], &[3]],
    // It awaits one after the other.
    [&[1], &[2], &[3]],
    // The second is not awaited any more, but its result begins a turn.
    [&[1, 2, 3], &[3], &[3]],
    // Another one is open meanwhile.
    [&[1, 2, 3, 4], &[3, 4], &[3, 4]],
];

#[test]
fn a_worker_that_gets_results_in_parts_has_a_turn_for_each_part() {
    for begin in [|| Attempt::begin(TRANSACTION, &[]), || Attempt::begin_on_stream(TRANSACTION)] {
        for [first, second, third] in PARTS {
            let mut attempt = begin();
            let mut asked = vec![get(1), get(2), get(3)];
            asked.extend(first.contains(&4).then(|| call(4)));
            asked.push(suspend(first));
            attempt.turn(&asked);
            assert_eq!(attempt.sent().len(), 3, "all at once");
            for left in [second, third] {
                attempt.turn(&[suspend(left)]);
                assert_eq!(attempt.error(), None, "{left:?} are on their way");
                assert!(attempt.sent().is_empty() && attempt.world.exchange.is_some(), "its next turn is awaited");
            }
            attempt.turn(&[suspend(third)]);
            assert_eq!(attempt.error(), Some(ErrorCode::WorkerFailed), "it has got all, and waits all the same");
            assert_eq!(attempt.world.exchange, None);
        }
    }
}

#[test]
fn a_step_that_the_worker_has_yet_to_hear_of_is_awaited_and_one_that_has_ended_is_not() {
    let mut attempt = Attempt::begin(WORKFLOW, &[]);
    attempt.turn(&[step(1, "charge"), step(2, "book"), suspend(&[1, 2])]);
    assert_eq!(attempt.sent().len(), 2, "it is to run their code");
    let ended = |operation| WorkerFrame::StepEnd { operation, result: Ok(FrameValue::Json(NULL)) };
    attempt.turn(&[ended(1), suspend(&[1, 2])]);
    assert!(attempt.sent().is_empty() && attempt.world.exchange.is_some(), "it has not heard of the second");
    attempt.turn(&[ended(2), suspend(&[1, 2])]);
    assert_eq!((attempt.error(), attempt.world.exchange), (None, None), "both have yet to be noted");
}
