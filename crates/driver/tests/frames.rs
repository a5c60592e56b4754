//! The bytes of frames: golden ones for every kind of message, and what becomes of damaged ones.
//!
//! `golden/frames.txt` is the truth for peers of other builds. A new kind of message adds a line. A line that changes goes to
//! `golden/earlier_frames.txt`, and is understood for as long as its version is read.

#![allow(clippy::disallowed_methods, reason = "tests use real files")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use millrace_api::{Intervention, StateFields};
use millrace_base::{
    EntityKey, Error, ErrorCode, IdempotencyKey, Lsn, Name, ShardId, TransactionId, UnixMillis, Value, ValueKind,
};
use millrace_driver::question::{
    EndDeadLetter, HasEntities, Intervene, ListDeadLetters, ListFailingMessages, ListSchedules, ListWorkflows,
    ReadDeadLetter, ReadInvocation, ReadState, Signal, StartWorkflow,
};
use millrace_driver::{CoreAddress, CoreMessage, Frame, Job, Question, ShardMail};
use millrace_format::{
    DeadLetterRecord, DecodeError, FailureRecord, InvocationResult, JournalRow, MessageRecord, ResultState, StepKind,
    WorkflowRecord,
};
use millrace_func::{HandlerId, HeaderSource, NestedCall, Program, RouteId, RouteMatch, RouteReply};
use millrace_replica::{Epoch, NodeId};
use millrace_shard::{
    AskedSchedule, AwaitedResult, Begin, Delivery, FromParticipation, InvocationId, Invoke, ListedWorkflow, PeerBody,
    PeerCall, PeerMessage, Reply, RequestInfo, ResultQuestion, RouteCall, Sequence, ToCoordinator, ToParticipation,
    Token, WorkflowView,
};

const SEQUENCE: Sequence = Sequence { lsn: Lsn(5), index: 6 };
const HANDLER: HandlerId = HandlerId { program: Program(7), service: 8, handler: 9 };
const TIME: UnixMillis = UnixMillis(0x1122);

struct Headers;

impl HeaderSource for Headers {
    fn get(&self, _name: &str) -> Option<&str> {
        None
    }

    fn each(&self, visit: &mut dyn FnMut(&str, &str)) {
        visit("accept", "text/html");
        visit("x-id", "7");
    }
}

fn idempotency_key(text: &str) -> IdempotencyKey {
    IdempotencyKey::new(text.as_bytes()).expect("short and visible").kept()
}

fn info() -> RequestInfo {
    RequestInfo { time: TIME, began_ms: 0, nonce: 3, idempotency_key: Some(idempotency_key("key")) }
}

fn invoke() -> Invoke {
    let input = Bytes::from_static(b"{}");
    Invoke { info: info(), handler: HANDLER, key: (*b"alice").into(), input }
}

fn error() -> Error {
    Error { code: ErrorCode::Aborted, message: "no".to_owned(), detail: Some("1".to_owned()) }
}

fn entity() -> EntityKey {
    let name = |text| Name::new(text).expect("a name");
    EntityKey::new(&name("app"), &name("note"), b"k")
}

fn jobs() -> Vec<(&'static str, Job)> {
    let route = RouteCall {
        info: info(),
        route: RouteMatch {
            id: RouteId { program: Program(7), service: 8, route: 2 },
            parameters: vec![("id".to_owned(), "4".to_owned())],
        },
        method: "GET".into(),
        path: "/a".into(),
        query: "b=c".into(),
        headers: Arc::new(Headers),
        body: Bytes::from_static(b"body"),
        known: vec![Ok(Bytes::from_static(b"1")), Err(error())],
        scope: Some((*b"scope").into()),
    };
    vec![
        ("invoke", Job::Invoke(ShardId(4), invoke())),
        ("send", Job::Send { shard: ShardId(4), invoke: invoke(), delay_ms: 50 }),
        ("route", Job::Route(route)),
    ]
}

fn questions() -> Vec<(&'static str, Question)> {
    let sequence = SEQUENCE;
    let asked = AskedSchedule { app: "a".into(), service: "s".into(), name: "n".into(), cron: "@daily".into() };
    let page = StateFields::Page { prefix: (*b"p").into(), after: None, limit: 3 };
    let state = |fields| ReadState { entity: entity(), fields }.into();
    vec![
        ("read-invocation", ReadInvocation { sequence, has_journal: true }.into()),
        ("list-failing-messages", ListFailingMessages { after: Some((*b"f").into()), limit: 3 }.into()),
        ("intervene", Intervene { sequence, intervention: Intervention::Kill }.into()),
        (
            "intervene-restart",
            Intervene { sequence, intervention: Intervention::Restart { from: Some("pick".into()), on_newest: true } }
                .into(),
        ),
        (
            "signal",
            Signal {
                sequence,
                name: "go".into(),
                payload: Bytes::from_static(b"1"),
                idempotency_key: Some(idempotency_key("k")),
            }
            .into(),
        ),
        ("list-workflows", ListWorkflows { after: Some((true, sequence)), limit: 9, is_live_only: false }.into()),
        ("list-dead-letters", ListDeadLetters { after: Some((*b"f").into()), limit: 9 }.into()),
        ("read-dead-letter", ReadDeadLetter { field: (*b"f").into() }.into()),
        ("end-dead-letter", EndDeadLetter { field: (*b"f").into(), is_retried: true }.into()),
        ("read-state-all", state(StateFields::All)),
        ("read-state-one", state(StateFields::One((*b"f").into()))),
        ("read-state-page", state(page)),
        ("has-entities", HasEntities { app: "a".into(), service: "s".into() }.into()),
        ("list-schedules", ListSchedules { asked: vec![asked] }.into()),
        (
            "start-workflow",
            StartWorkflow {
                id: "order-17".into(),
                app: "a".into(),
                service: "s".into(),
                handler: "h".into(),
                key: (*b"k").into(),
                input: Bytes::from_static(b"1"),
                delay_ms: 50,
            }
            .into(),
        ),
    ]
}

fn message() -> MessageRecord {
    MessageRecord {
        keeps_invocation_result: true,
        invocation: None,
        chosen_id: None,
        is_signal: false,
        was_set_aside: false,
        attempts: 2,
        due: TIME,
        app: "a".into(),
        service: "s".into(),
        handler: "h".into(),
        key: b"k".to_vec(),
        input: Bytes::from_static(b"null"),
    }
}

fn replies() -> Vec<(&'static str, Result<Reply, Error>)> {
    let invocation_result = InvocationResult { expires: TIME, fingerprint: 2, result: ResultState::Pending };
    let record = WorkflowRecord {
        has_ended: false,
        is_cancelled: true,
        began: TIME,
        chosen_id: None,
        runs: Vec::new(),
        version: 3,
        app: "a".into(),
        service: "s".into(),
        handler: "h".into(),
        key: b"k".to_vec(),
        input: Bytes::from_static(b"null"),
    };
    let row = JournalRow {
        kind: StepKind::Call,
        operation: 1,
        ended: TIME,
        name: "s.h".into(),
        result: Ok(Bytes::from_static(b"1")),
    };
    let view =
        WorkflowView { record: record.clone(), due: Some(TIME), journal: vec![row], waits_for: vec!["sleep".into()] };
    let failures = Vec::new();
    let listed =
        ListedWorkflow { id: SEQUENCE, record, due: None, invocation_result: invocation_result.clone(), failures };
    let failure = FailureRecord {
        kind: Some(StepKind::Call),
        operation: 3,
        attempts: 4,
        failed: TIME,
        next_try: None,
        name: "n".to_owned(),
        error: error(),
    };
    let dead_letter = DeadLetterRecord { error: Some(error()), message: message() };
    let reply =
        RouteReply { status: 201, headers: vec![("a".to_owned(), "b".to_owned())], body: Bytes::from_static(b"body") };
    let value = Value::new(ValueKind::Json, b"1");
    vec![
        ("value", Ok(Reply::Value(Bytes::from_static(b"1")))),
        ("route", Ok(Reply::Route(reply))),
        ("sent", Ok(Reply::Sent(InvocationId { shard: ShardId(4), sequence: SEQUENCE }))),
        ("invocation", Ok(Reply::Invocation(invocation_result.clone(), Some(Box::new(view.clone()))))),
        (
            "failing-invocation",
            Ok(Reply::FailingInvocation(invocation_result, Some(Box::new(view)), vec![failure.clone()])),
        ),
        ("workflows", Ok(Reply::Workflows(vec![listed.clone()], true))),
        ("failing-workflows", Ok(Reply::FailingWorkflows(vec![listed], true, vec![(0, failure)]))),
        ("dead-letters", Ok(Reply::DeadLetters(vec![((*b"f").into(), dead_letter)], false))),
        ("schedules", Ok(Reply::Schedules(vec![Some(TIME), None]))),
        ("done", Ok(Reply::Done)),
        ("fields", Ok(Reply::Fields(vec![((*b"f").into(), value.clone())]))),
        ("field", Ok(Reply::Field(value))),
        ("dead-letter", Ok(Reply::DeadLetter(Box::new(DeadLetterRecord { error: Some(error()), message: message() })))),
        ("has-entities", Ok(Reply::HasEntities(true))),
        ("error", Err(error())),
    ]
}

fn call() -> PeerCall {
    let call = NestedCall { handler: HANDLER, key: b"bob".to_vec(), input: Bytes::from_static(b"2") };
    PeerCall { number: 11, depth: 2, call, once: Some((*b"once").into()), callers: None }
}

/// One that tells its callers.
fn nested_call() -> PeerCall {
    PeerCall { once: None, callers: Some(vec![13, 14]), ..call() }
}

fn of_coordinator() -> Vec<(&'static str, ToParticipation)> {
    let begin = Begin { program: Program(7), time: TIME, age: (1, 2), seed: 3 };
    vec![
        ("reserve", ToParticipation::Reserve { begin, entity: entity(), is_exclusive: true }),
        ("call", ToParticipation::Call(begin, call())),
        ("call-nested", ToParticipation::Call(begin, nested_call())),
        ("result", ToParticipation::Result(11, Ok(Bytes::from_static(b"1")))),
        ("take-back", ToParticipation::TakeBack(11)),
        ("taken-back", ToParticipation::TakenBack),
        (
            "prepare",
            ToParticipation::Prepare { participation_id: 12, is_delegated: true, hold_ms: Some(16), is_query: false },
        ),
    ]
}

fn of_participant() -> Vec<(&'static str, ToCoordinator)> {
    vec![
        ("reserved", ToCoordinator::Reserved),
        ("call", ToCoordinator::Call(call())),
        ("call-nested", ToCoordinator::Call(nested_call())),
        ("lingers", ToCoordinator::Lingers(11)),
        ("over", ToCoordinator::Over(11)),
        ("result", ToCoordinator::Result(11, Err(error()))),
        ("take-back", ToCoordinator::TakeBack(11)),
        ("taken-back", ToCoordinator::TakenBack),
        ("died", ToCoordinator::Died { entity: entity(), is_exclusive: false }),
        ("failed", ToCoordinator::Failed(error())),
        ("prepared", ToCoordinator::Prepared),
        ("read-only", ToCoordinator::ReadOnly { has_let_go: true, hold_ms: Some(15) }),
        ("committed", ToCoordinator::Committed),
        ("spent", ToCoordinator::Spent(17)),
    ]
}

fn peer_bodies() -> Vec<(String, PeerBody)> {
    let to_participation =
        of_coordinator().into_iter().map(|(name, said)| (format!("home-{name}"), PeerBody::ToParticipation(1, said)));
    let from_participation =
        |message| PeerBody::ToCoordinator(2, FromParticipation { participation_id: 12, incarnation: 13, message });
    let to_coordinator =
        of_participant().into_iter().map(|(name, said)| (format!("participant-{name}"), from_participation(said)));
    let rest = [
        ("commit", PeerBody::Commit),
        ("abort", PeerBody::Abort { is_answered: true, heard: Some(14) }),
        ("ended", PeerBody::Ended),
        ("inquire", PeerBody::Inquire),
        ("lost", PeerBody::Lost(error())),
        ("forget", PeerBody::Forget((*b"once").into())),
        ("recall", PeerBody::Recall),
        ("committed-alone", PeerBody::CommittedAlone),
        ("heard", PeerBody::Heard),
        (
            "await-result",
            PeerBody::AwaitResult(ResultQuestion { of: SEQUENCE, app: "a".into(), asker: SEQUENCE, operation: 6 }),
        ),
        (
            "awaited-result",
            PeerBody::AwaitedResult(AwaitedResult {
                of: SEQUENCE,
                asker: SEQUENCE,
                operation: 6,
                result: Some(Err(error())),
            }),
        ),
        (
            "awaited-result-unknown",
            PeerBody::AwaitedResult(AwaitedResult { of: SEQUENCE, asker: SEQUENCE, operation: 6, result: None }),
        ),
    ];
    to_participation.chain(to_coordinator).chain(rest.map(|(name, body)| (name.to_owned(), body))).collect()
}

fn core(node: u16) -> CoreAddress {
    CoreAddress { node: NodeId(node), core: 1 }
}

/// A frame of each kind, with a name.
fn frames() -> Vec<(String, Frame)> {
    let request = |job| Frame::Message(CoreMessage::Request { from: core(0), token: Token(2), job, since_ns: 3 });
    let ask = |question| request(Job::Ask { shard: ShardId(4), question });
    let reply = |result| Frame::Message(CoreMessage::Reply { token: Token(2), result });
    let transaction = TransactionId { coordinator: ShardId(1), incarnation: 2, number: 3 };
    let cluster = [
        (
            "other-node",
            CoreMessage::Request {
                from: core(2),
                token: Token(2),
                job: Job::Invoke(ShardId(4), invoke()),
                since_ns: 3,
            },
        ),
        ("not-here", CoreMessage::NotHere { token: Token(2), job: Job::Invoke(ShardId(4), invoke()), since_ns: 3 }),
        ("opened", CoreMessage::Opened { shard: ShardId(4), epoch: Epoch(5), owner: NodeId(6) }),
        (
            "detour",
            CoreMessage::Detour {
                node: NodeId(6),
                nodes_left: 2,
                to: ShardId(4),
                message: PeerMessage { from: ShardId(1), transaction, body: PeerBody::Inquire },
            },
        ),
        (
            "opened-detour",
            CoreMessage::OpenedDetour { node: NodeId(3), shard: ShardId(4), epoch: Epoch(5), owner: NodeId(6) },
        ),
    ];
    let cluster = cluster.map(|(name, message)| (format!("cluster-{name}"), Frame::Message(message)));
    let peer = |body| {
        Frame::Message(CoreMessage::Peer {
            to: ShardId(4),
            message: PeerMessage { from: ShardId(1), transaction, body },
        })
    };
    let delivery = Delivery {
        from: ShardId(1),
        sequence: SEQUENCE,
        after: Sequence::default(),
        message: message().encode().into(),
    };
    let arrived = ShardMail::Arrived { to: ShardId(1), from: ShardId(4), sequence: SEQUENCE };
    let jobs = jobs().into_iter().map(|(name, job)| (format!("request-{name}"), request(job)));
    let questions = questions().into_iter().map(|(name, question)| (format!("ask-{name}"), ask(question)));
    let replies = replies().into_iter().map(|(name, result)| (format!("reply-{name}"), reply(result)));
    let peers = peer_bodies().into_iter().map(|(name, body)| (format!("peer-{name}"), peer(body)));
    let mail = [
        ("mail-message".to_owned(), Frame::Mail(ShardMail::Message { to: ShardId(4), delivery })),
        ("mail-arrived".to_owned(), Frame::Mail(arrived)),
    ];
    jobs.chain(questions).chain(replies).chain(peers).chain(mail).chain(cluster).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hex")).collect()
}

#[test]
fn every_frame_has_its_golden_bytes_and_decodes_from_them() {
    let lines = frames().into_iter().map(|(name, frame)| format!("{name} {}\n", hex(&frame.encode())));
    let written: String = lines.collect();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/frames.txt");
    let known = fs::read_to_string(golden).unwrap_or_default();
    if written != known {
        let beside = Path::new(env!("CARGO_TARGET_TMPDIR")).join("frames.txt");
        fs::write(&beside, &written).expect("written");
        panic!("frames have other bytes than their golden ones: see {}", beside.display());
    }
    for line in known.lines() {
        let (name, text) = line.split_once(' ').expect("a name and bytes");
        let frame = Frame::decode(&unhex(text)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(hex(&frame.encode()), text, "{name}");
    }
}

/// Programs that put a token into a request's info, and asked for a cancellation by a question of its own.
#[test]
fn what_earlier_programs_write_is_understood() {
    let earlier = include_str!("golden/earlier_frames.txt");
    let known: BTreeMap<String, Frame> = frames().into_iter().collect();
    let sequence = SEQUENCE;
    let question = Intervene { sequence, intervention: Intervention::Cancel }.into();
    let job = Job::Ask { shard: ShardId(4), question };
    let cancel = Frame::Message(CoreMessage::Request { from: core(0), token: Token(2), job, since_ns: 3 });
    for line in earlier.lines() {
        let (name, text) = line.split_once(' ').expect("a name and bytes");
        let frame = Frame::decode(&unhex(text)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let meant = if name == "ask-cancel" { &cancel } else { &known[name] };
        assert_eq!(hex(&frame.encode()), hex(&meant.encode()), "{name}");
    }
}

#[test]
fn calls_leave_their_callers_out_for_programs_that_do_not_know_them() {
    let known: BTreeMap<String, Frame> = frames().into_iter().collect();
    let nested: Vec<&String> = known.keys().filter(|name| name.ends_with("call-nested")).collect();
    assert!(nested.len() > 1, "{:?}", known.keys());
    for (name, frame) in &known {
        let left = frame.without_callers();
        assert_eq!(left.is_some(), nested.contains(&name), "{name}");
        if let Some(left) = left {
            let whole = frame.encode();
            let list = [&[0][..], &whole[whole.len() - 20..]].concat();
            assert_eq!(
                left.encode(),
                [&whole[..whole.len() - list.len()], &[0]].concat(),
                "{name}: an option that is empty"
            );
        }
    }
}

#[test]
fn a_frame_of_another_version_is_refused_as_such() {
    for version in [0, 1, 3] {
        let mut bytes = frames()[0].1.encode();
        bytes[0] = version;
        assert!(matches!(Frame::decode(&bytes), Err(DecodeError::Version(found)) if found == version));
    }
}

#[test]
fn damaged_frames_are_refused_or_mean_something() {
    for (name, frame) in frames() {
        let bytes = frame.encode();
        for length in 0..bytes.len() {
            assert!(Frame::decode(&bytes[..length]).is_err(), "{name}: the first {length} bytes are no frame");
        }
        assert!(Frame::decode(&[&bytes[..], b"\0"].concat()).is_err(), "{name}: a frame ends where it ends");
        for at in 0..bytes.len() {
            for flipped in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flipped;
                if let Ok(frame) = Frame::decode(&damaged) {
                    let again = frame.encode();
                    assert!(Frame::decode(&again).is_ok_and(|frame| frame.encode() == again), "{name}, byte {at}");
                }
            }
        }
    }
}
