//! A worker's process: it runs scripts, over what the server has sent of an attempt.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use millrace_base::Name;
use millrace_format::worker::{
    AttemptKind, AttemptToken, FailureFrame, FrameHeader, FrameValue, ServerFrame, StartFrame, TurnReader,
    WORKER_FRAME_HEADER_BYTES, WorkerFrame,
};
use millrace_func::{
    ActivationId, App, Base64Alphabet, Engine, HandlerId, HttpRequest, Limits, Output, Program, RouteId, Start,
    TurnResult, base64_decode, base64_encode,
};
use serde_json::{Value as Json, json};

use super::document::numbers;
use super::host::{FrameHost, as_frame};
use crate::engine::ScriptEngine;
use crate::rig::NoHeaders;

const PROGRAM: Program = Program(1);
const ACTIVATION: ActivationId = ActivationId(0);

/// Runs scripts. All processes are alike: what code finds outside is the same for all.
pub(super) struct Process {
    engine: ScriptEngine,
    /// The attempt that came by a mark first. To it the code that looks is always new, so that it does the same again.
    marks: RefCell<BTreeMap<String, AttemptToken>>,
}

/// What the server has sent of an attempt.
pub(super) struct Received {
    pub start: StartFrame,
    pub inputs: Vec<ServerFrame>,
}

/// The frames of a turn, encoded one by one.
pub(super) type Frames = Vec<Vec<u8>>;

/// Frames that a server has written.
pub(super) fn server_frames(bytes: &Bytes) -> Vec<(u32, ServerFrame)> {
    let mut rest = bytes.clone();
    let mut frames = Vec::new();
    while let Some(header) = FrameHeader::read(&rest).expect("a server's frames can be read") {
        let whole = rest.split_to(header.frame_bytes());
        let frame = ServerFrame::decode(header, whole.slice(WORKER_FRAME_HEADER_BYTES..));
        frames.push((header.stream, frame.expect("a server's frames can be read")));
    }
    frames
}

pub(super) fn encoded(frame: &WorkerFrame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

impl Received {
    /// Of a request: everything that the server has sent so far.
    pub(super) fn of_request(content: &Bytes) -> Self {
        let mut frames = server_frames(content).into_iter().map(|(_, frame)| frame);
        let Some(ServerFrame::Start(start)) = frames.next() else { panic!("a request begins with START") };
        Self { start: *start, inputs: frames.collect() }
    }
}

impl Process {
    pub(super) fn new() -> Self {
        let engine = ScriptEngine::default();
        let app = App { limits: Limits::default(), ..App::new(Name::new("worker").expect("a name")) };
        engine.load(PROGRAM, &app).expect("it loads");
        Self { engine, marks: RefCell::default() }
    }

    /// The frames of an attempt up to where it waits, from its beginning on. The last one ends the turn.
    pub(super) fn run(&self, received: &Received) -> Vec<WorkerFrame> {
        let attempt = received.start.attempt;
        let mut marks = self.marks.borrow_mut();
        let others = marks.iter().filter(|(_, first)| **first != attempt).map(|(mark, _)| mark.clone());
        let before: BTreeSet<String> = others.collect();
        self.engine.set_marks(before.clone());
        let frames = self.frames(received);
        for mark in self.engine.set_marks(BTreeSet::new()).difference(&before) {
            marks.entry(mark.clone()).or_insert(attempt);
        }
        frames
    }

    fn frames(&self, received: &Received) -> Vec<WorkerFrame> {
        let mut host = FrameHost::new(&received.start, &received.inputs);
        let mut step = self.begin(&received.start, &mut host);
        let last = loop {
            match step {
                TurnResult::Done(_) if host.missing.is_some() => {
                    break WorkerFrame::Suspend { operations: host.suspended() };
                }
                TurnResult::Done(Ok(output)) => break WorkerFrame::Output(FrameValue::Json(json_of(output))),
                TurnResult::Done(Err(error)) => {
                    let (error, trace) = (as_frame(error), String::new());
                    break WorkerFrame::Failure(FailureFrame { is_terminal: false, error, trace });
                }
                TurnResult::Waiting => match host.next_result() {
                    Some((operation, result)) => step = self.engine.resume(ACTIVATION, operation, result, &mut host),
                    None => {
                        self.engine.cancel(ACTIVATION);
                        break WorkerFrame::Suspend { operations: host.suspended() };
                    }
                },
            }
        };
        host.frames.push(last);
        host.frames
    }

    fn begin(&self, start: &StartFrame, host: &mut FrameHost<'_>) -> TurnResult {
        let (service, handler) = numbers(&start.service, &start.handler);
        if start.kind != AttemptKind::Route {
            let id = HandlerId { program: PROGRAM, service, handler };
            return self.engine.start(ACTIVATION, Start::Handler { id, key: &start.key, input: &start.input }, host);
        }
        let asked: Json = serde_json::from_slice(&start.input).expect("a route's input is JSON");
        let body = asked["body"].as_str().and_then(|body| base64_decode(body.as_bytes())).expect("base64");
        let request = HttpRequest {
            method: "POST",
            path: "/run",
            query: "",
            parameters: &[],
            headers: Arc::new(NoHeaders),
            body: body.into(),
        };
        let id = RouteId { program: PROGRAM, service, route: 0 };
        self.engine.start(ACTIVATION, Start::Route { id, request }, host)
    }

    /// The turn that answers a request.
    pub(super) fn answer(&self, received: &Received) -> Frames {
        let frames = self.run(received);
        // A frame that came twice on the way has been counted twice: then the server has seen more than there is.
        let seen = (received.start.seen as usize).min(frames.len() - 1);
        let behind = frames[seen..].iter().map(encoded);
        if received.start.seen == 0 {
            return behind.collect();
        }
        std::iter::once(encoded(&resumed(&frames[..seen]))).chain(behind).collect()
    }
}

/// What RESUMED says of these frames, none of which ends a turn.
fn resumed(frames: &[WorkerFrame]) -> WorkerFrame {
    let end = WorkerFrame::Suspend { operations: Vec::new() };
    let bytes: Vec<u8> = frames.iter().chain([&end]).flat_map(encoded).collect();
    let mut reader = TurnReader::new(bytes.into());
    while reader.next_frame().expect("they were just encoded").is_some() {}
    WorkerFrame::Resumed { frames: reader.frames(), checksum: reader.checksum() }
}

fn json_of(output: Output) -> Bytes {
    match output {
        Output::Value(json) => json,
        Output::Response(reply) => {
            let body = base64_encode(&reply.body, Base64Alphabet::Standard);
            json!({ "status": reply.status, "headers": reply.headers, "body": body }).to_string().into()
        }
    }
}
