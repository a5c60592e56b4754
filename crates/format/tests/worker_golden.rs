//! The frames of `sdk/protocol/golden`, which programs in other languages test themselves against. To write the files
//! anew, run the test `the_golden_files_are_these_frames` with `MILLRACE_WRITE_GOLDEN=1`.

#![allow(clippy::disallowed_methods, reason = "a test reads and writes files")]

use std::path::PathBuf;

use bytes::Bytes;
use millrace_format::worker::{
    AttemptKind, FailureFrame, FrameError, FrameHeader, FrameResult, FrameValue, ServerFrame, StartFrame, TargetFrame,
    WORKER_FRAME_HEADER_BYTES, WorkerFrame,
};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../sdk/protocol/golden")
}

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn field(name: &'static str, value: FrameValue) -> (Bytes, FrameValue) {
    (bytes(name), value)
}

fn json_value(text: &'static str) -> FrameValue {
    FrameValue::Json(bytes(text))
}

fn aborted() -> FrameError {
    FrameError { code: "aborted".into(), message: "insufficient funds".into(), detail: bytes("{\"missing\":5}") }
}

fn target() -> TargetFrame {
    TargetFrame {
        service: "account".into(),
        key: bytes("bob"),
        handler: "deposit".into(),
        input: bytes("{\"amount\":5}"),
    }
}

fn start(kind: AttemptKind) -> StartFrame {
    StartFrame {
        attempt: *b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f",
        kind,
        deadline_ms: 10_000,
        seen: 0,
        service: "account".into(),
        handler: "deposit".into(),
        key: bytes("alice"),
        invocation: String::new(),
        now_ms: 1_700_000_000_123,
        seed: [0xA5; 16],
        input: bytes("{\"amount\":5}"),
        is_whole: true,
        has_declared: true,
        fields: vec![field("balance", json_value("10")), field("photo", FrameValue::Raw(bytes("\x00\x01")))],
    }
}

fn from_server() -> Vec<(&'static str, ServerFrame)> {
    let result = |operation, is_set, result| ServerFrame::Result { operation, is_set, result };
    let workflow = StartFrame {
        invocation: "inv_000000000000000000010000".into(),
        seen: 3,
        input: Bytes::new(),
        is_whole: false,
        has_declared: false,
        fields: vec![],
        ..start(AttemptKind::Workflow)
    };
    let route = StartFrame {
        handler: "GET /login/:user".into(),
        key: Bytes::new(),
        input: bytes(
            "{\"method\":\"GET\",\"path\":\"/login/ä\",\"query\":\"\",\"params\":{\"user\":\"ä\"},\"headers\":[],\"body\":\"\"}",
        ),
        is_whole: false,
        fields: vec![],
        ..start(AttemptKind::Route)
    };
    vec![
        ("start-transaction", ServerFrame::Start(Box::new(start(AttemptKind::Transaction)))),
        ("start-query", ServerFrame::Start(Box::new(StartFrame { is_whole: false, ..start(AttemptKind::Query) }))),
        ("start-workflow", ServerFrame::Start(Box::new(workflow))),
        ("start-route", ServerFrame::Start(Box::new(route))),
        ("result-json", result(1, false, Ok(json_value("{\"balance\":15}")))),
        ("result-field-set", result(2, true, Ok(FrameValue::Raw(bytes("\x00\x7f"))))),
        ("result-field-not-set", result(2, false, Ok(json_value("null")))),
        ("result-error", result(4_294_967_295, false, Err(aborted()))),
        ("result-empty", result(3, false, Ok(FrameValue::Raw(Bytes::new())))),
        ("cancel", ServerFrame::Cancel(FrameError { detail: Bytes::new(), ..aborted() })),
        ("ping", ServerFrame::Ping),
        (
            "fields",
            ServerFrame::Fields {
                is_rest_void: false,
                fields: vec![(bytes("balance"), Some(json_value("12"))), (bytes("photo"), None)],
            },
        ),
        ("fields-rest-void", ServerFrame::Fields { is_rest_void: true, fields: vec![] }),
        ("ready", ServerFrame::Ready("bank-0000000000000001".into())),
    ]
}

fn from_worker() -> Vec<(&'static str, WorkerFrame)> {
    let failure = |is_terminal, error, trace: &str| {
        WorkerFrame::Failure(FailureFrame { is_terminal, error, trace: trace.into() })
    };
    let mut frames = operations();
    frames.extend([
        ("output-json", WorkerFrame::Output(json_value("15"))),
        ("output-raw", WorkerFrame::Output(FrameValue::Raw(bytes("\x00\x01\x02")))),
        ("failure-terminal", failure(true, aborted(), "")),
        (
            "failure",
            failure(
                false,
                FrameError { code: "function-failed".into(), message: "KeyError: 'x'".into(), detail: Bytes::new() },
                "bank.py, line 3, in deposit",
            ),
        ),
        ("suspend", WorkerFrame::Suspend { operations: vec![1, 2, 65_536] }),
        ("suspend-nothing", WorkerFrame::Suspend { operations: vec![] }),
        ("heartbeat", WorkerFrame::Heartbeat),
        ("drain", WorkerFrame::Drain),
        ("resumed", WorkerFrame::Resumed { frames: 3, checksum: 0xCBF4_3926 }),
        ("hello", WorkerFrame::Hello { discovery: bytes("{\"protocol\":{\"min\":1,\"max\":1},\"services\":[]}") }),
    ]);
    frames
}

fn operations() -> Vec<(&'static str, WorkerFrame)> {
    vec![
        ("get", WorkerFrame::Get { operation: 1, field: bytes("balance") }),
        ("scan", WorkerFrame::Scan { operation: 2, prefix: bytes("seat/"), after: Some(bytes("seat/12")), limit: 100 }),
        ("scan-from-start", WorkerFrame::Scan { operation: 2, prefix: Bytes::new(), after: None, limit: 1 }),
        ("set-json", WorkerFrame::Set { field: bytes("balance"), value: json_value("15") }),
        ("set-raw", WorkerFrame::Set { field: bytes("photo"), value: FrameValue::Raw(bytes("\x00\x7f")) }),
        ("delete", WorkerFrame::Delete { field: bytes("ä") }),
        ("call", WorkerFrame::Call { operation: 3, target: target(), policy: Bytes::new() }),
        ("call-with", WorkerFrame::Call { operation: 3, target: target(), policy: bytes("{\"attempts\":3}") }),
        ("send", WorkerFrame::Send { operation: 4, target: target(), delay_ms: 60_000, id: None }),
        ("send-as", WorkerFrame::Send { operation: 4, target: target(), delay_ms: 0, id: Some("order-17".into()) }),
        (
            "signal",
            WorkerFrame::Signal {
                invocation: "inv_000000000000000000010000".into(),
                name: "paid".into(),
                payload: bytes("true"),
            },
        ),
        (
            "fetch",
            WorkerFrame::Fetch {
                operation: 5,
                request: bytes(
                    "{\"method\":\"GET\",\"url\":\"http://example.com/\",\"headers\":[[\"a\",\"b\"]],\"body\":\"\",\"timeout_ms\":1000,\"retries\":0}",
                ),
            },
        ),
        ("sleep", WorkerFrame::Sleep { operation: 6, delay_ms: 1_099_511_627_776 }),
        ("wait", WorkerFrame::Wait { operation: 7, name: "paid".into(), timeout_ms: None }),
        ("wait-limited", WorkerFrame::Wait { operation: 7, name: "paid".into(), timeout_ms: Some(5000) }),
        ("await", WorkerFrame::Await { operation: 7, invocation: "order-17".into(), timeout_ms: None }),
        ("await-limited", WorkerFrame::Await { operation: 7, invocation: "order-17".into(), timeout_ms: Some(5000) }),
        ("step", WorkerFrame::Step { operation: 8, name: "charge".into(), policy: bytes("{\"attempts\":3}") }),
        ("step-end", WorkerFrame::StepEnd { operation: 8, result: Ok(json_value("{\"id\":1}")) }),
        ("step-end-error", WorkerFrame::StepEnd { operation: 8, result: Err(aborted()) }),
        ("compensate", WorkerFrame::Compensate { target: target() }),
        (
            "record",
            WorkerFrame::Record {
                operation: 9,
                type_name: "person".into(),
                id: bytes("7"),
                request: bytes("{\"op\":\"get\"}"),
            },
        ),
        (
            "object",
            WorkerFrame::Object {
                operation: 10,
                bucket: "pages".into(),
                key: "posts/first.html".into(),
                request: bytes("{\"op\":\"put\",\"content_type\":\"text/html\"}"),
                body: bytes("<p>Hello</p>"),
            },
        ),
        ("log", WorkerFrame::Log { level: 1, line: "Grüße".into() }),
    ]
}

/// What is refused, and why.
fn wrong() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let get = encoded(|out| WorkerFrame::Get { operation: 1, field: bytes("balance") }.encode(out));
    let changed = |at: usize, to: u8| {
        let mut bytes = get.clone();
        bytes[at] = to;
        bytes
    };
    let mut left_over = changed(3, get[3] + 1);
    left_over.push(0);
    let too_short = {
        let mut bytes = changed(3, get[3] - 1);
        bytes.pop();
        bytes
    };
    vec![
        ("wrong-type", changed(4, 0x7F), "an unknown type"),
        ("wrong-flag", changed(5, 0x01), "a flag without a meaning"),
        ("wrong-reserved", changed(7, 0x01), "a reserved byte is not zero"),
        ("wrong-left-over", left_over, "a byte behind the last field"),
        ("wrong-short", too_short, "a length that goes beyond the payload"),
        ("wrong-too-large", changed(0, 0x01), "a payload over 8 MiB"),
        ("wrong-text", encoded(log_that_is_no_text), "a text that is not UTF-8"),
        ("wrong-form", wrong_form(), "a value of an unknown kind"),
    ]
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn log_that_is_no_text(out: &mut Vec<u8>) {
    WorkerFrame::Log { level: 1, line: "x".into() }.encode(out);
    *out.last_mut().expect("a byte") = 0xFF;
}

fn wrong_form() -> Vec<u8> {
    let mut bytes = encoded(|out| WorkerFrame::Output(json_value("1")).encode(out));
    bytes[WORKER_FRAME_HEADER_BYTES] = 2;
    bytes
}

fn of_bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => json!({ "text": text }),
        _ => json!({ "hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() }),
    }
}

fn of_value(value: &FrameValue) -> Value {
    match value {
        FrameValue::Json(text) => json!({ "kind": "json", "content": of_bytes(text) }),
        FrameValue::Raw(raw) => json!({ "kind": "raw", "content": of_bytes(raw) }),
    }
}

fn of_error(error: &FrameError) -> Value {
    json!({ "code": error.code, "message": error.message, "detail": of_bytes(&error.detail) })
}

fn of_result(result: &FrameResult) -> Value {
    match result {
        Ok(value) => json!({ "value": of_value(value) }),
        Err(error) => json!({ "error": of_error(error) }),
    }
}

fn of_target(target: &TargetFrame) -> Value {
    json!({ "service": target.service, "key": of_bytes(&target.key), "handler": target.handler, "input": of_bytes(&target.input) })
}

fn of_start(start: &StartFrame) -> Value {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let fields: Vec<Value> =
        start.fields.iter().map(|(name, value)| json!([of_bytes(name), of_value(value)])).collect();
    json!({
        "attempt": hex(&start.attempt), "kind": start.kind as u8, "deadline_ms": start.deadline_ms, "seen": start.seen,
        "service": start.service, "handler": start.handler, "key": of_bytes(&start.key),
        "invocation": start.invocation, "now_ms": start.now_ms, "seed": hex(&start.seed),
        "input": of_bytes(&start.input), "whole": start.is_whole, "declared": start.has_declared, "fields": fields,
    })
}

fn of_server_frame(frame: &ServerFrame) -> (&'static str, Value) {
    match frame {
        ServerFrame::Start(start) => ("START", of_start(start)),
        ServerFrame::Result { operation, is_set, result } => {
            ("RESULT", json!({ "operation": operation, "set": is_set, "result": of_result(result) }))
        }
        ServerFrame::Cancel(error) => ("CANCEL", json!({ "error": of_error(error) })),
        ServerFrame::Ping => ("PING", json!({})),
        ServerFrame::Fields { is_rest_void, fields } => {
            let field =
                |(name, value): &(Bytes, Option<FrameValue>)| json!([of_bytes(name), value.as_ref().map(of_value)]);
            let fields: Vec<Value> = fields.iter().map(field).collect();
            ("FIELDS", json!({ "rest_void": is_rest_void, "fields": fields }))
        }
        ServerFrame::Ready(deployment) => ("READY", json!({ "deployment": deployment })),
    }
}

fn of_operation(frame: &WorkerFrame) -> Option<(&'static str, Value)> {
    Some(match frame {
        WorkerFrame::Get { operation, field } => ("GET", json!({ "operation": operation, "field": of_bytes(field) })),
        WorkerFrame::Scan { operation, prefix, after, limit } => {
            let after = after.as_ref().map(|after| of_bytes(after));
            ("SCAN", json!({ "operation": operation, "prefix": of_bytes(prefix), "after": after, "limit": limit }))
        }
        WorkerFrame::Call { operation, target, policy } => {
            let mut said = json!({ "operation": operation, "target": of_target(target) });
            if !policy.is_empty() {
                said["policy"] = of_bytes(policy);
            }
            ("CALL", said)
        }
        WorkerFrame::Send { operation, target, delay_ms, id } => {
            let mut said = json!({ "operation": operation, "target": of_target(target), "delay_ms": delay_ms });
            said.as_object_mut().expect("it is one").extend(id.iter().map(|id| ("id".to_owned(), json!(id))));
            ("SEND", said)
        }
        WorkerFrame::Fetch { operation, request } => {
            ("FETCH", json!({ "operation": operation, "request": of_bytes(request) }))
        }
        WorkerFrame::Sleep { operation, delay_ms } => {
            ("SLEEP", json!({ "operation": operation, "delay_ms": delay_ms }))
        }
        WorkerFrame::Wait { operation, name, timeout_ms } => {
            ("WAIT", json!({ "operation": operation, "name": name, "timeout_ms": timeout_ms }))
        }
        WorkerFrame::Await { operation, invocation, timeout_ms } => {
            ("AWAIT", json!({ "operation": operation, "invocation": invocation, "timeout_ms": timeout_ms }))
        }
        WorkerFrame::Step { operation, name, policy } => {
            ("STEP", json!({ "operation": operation, "name": name, "policy": of_bytes(policy) }))
        }
        WorkerFrame::Record { operation, type_name, id, request } => {
            let (id, request) = (of_bytes(id), of_bytes(request));
            ("RECORD", json!({ "operation": operation, "type": type_name, "id": id, "request": request }))
        }
        WorkerFrame::Object { operation, bucket, key, request, body } => {
            let (request, body) = (of_bytes(request), of_bytes(body));
            (
                "OBJECT",
                json!({ "operation": operation, "bucket": bucket, "key": key, "request": request, "body": body }),
            )
        }
        _ => return None,
    })
}

fn of_worker_frame(frame: &WorkerFrame) -> (&'static str, Value) {
    match frame {
        WorkerFrame::Set { field, value } => ("SET", json!({ "field": of_bytes(field), "value": of_value(value) })),
        WorkerFrame::Delete { field } => ("DELETE", json!({ "field": of_bytes(field) })),
        WorkerFrame::Signal { invocation, name, payload } => {
            ("SIGNAL", json!({ "invocation": invocation, "name": name, "payload": of_bytes(payload) }))
        }
        WorkerFrame::StepEnd { operation, result } => {
            ("STEP_END", json!({ "operation": operation, "result": of_result(result) }))
        }
        WorkerFrame::Compensate { target } => ("COMPENSATE", json!({ "target": of_target(target) })),
        WorkerFrame::Log { level, line } => ("LOG", json!({ "level": level, "line": line })),
        WorkerFrame::Output(value) => ("OUTPUT", json!({ "value": of_value(value) })),
        WorkerFrame::Failure(FailureFrame { is_terminal, error, trace }) => {
            ("FAILURE", json!({ "terminal": is_terminal, "error": of_error(error), "trace": trace }))
        }
        WorkerFrame::Suspend { operations } => ("SUSPEND", json!({ "operations": operations })),
        WorkerFrame::Heartbeat => ("HEARTBEAT", json!({})),
        WorkerFrame::Drain => ("DRAIN", json!({})),
        WorkerFrame::Resumed { frames, checksum } => ("RESUMED", json!({ "frames": frames, "crc32": checksum })),
        WorkerFrame::Hello { discovery } => ("HELLO", json!({ "discovery": of_bytes(discovery) })),
        operation => of_operation(operation).expect("every frame has a description"),
    }
}

/// Name, bytes and description of each file.
fn files() -> Vec<(&'static str, Vec<u8>, Value)> {
    let mut files = Vec::new();
    for (name, frame) in from_server() {
        let (kind, fields) = of_server_frame(&frame);
        files.push((
            name,
            encoded(|out| frame.encode(out)),
            json!({ "from": "server", "frame": kind, "fields": fields }),
        ));
    }
    for (name, frame) in from_worker() {
        let (kind, fields) = of_worker_frame(&frame);
        files.push((
            name,
            encoded(|out| frame.encode(out)),
            json!({ "from": "worker", "frame": kind, "fields": fields }),
        ));
    }
    let refused = |why| json!({ "from": "worker", "refused": why });
    files.extend(wrong().into_iter().map(|(name, bytes, why)| (name, bytes, refused(why))));
    files
}

#[test]
fn the_golden_files_are_these_frames() {
    let (folder, is_writing) = (folder(), std::env::var_os("MILLRACE_WRITE_GOLDEN").is_some());
    for (name, bytes, description) in files() {
        let (binary, text) = (folder.join(format!("{name}.bin")), folder.join(format!("{name}.json")));
        let description = format!("{description:#}\n");
        if is_writing {
            std::fs::write(&binary, &bytes).expect("written");
            std::fs::write(&text, &description).expect("written");
        }
        assert_eq!(std::fs::read(&binary).expect(name), bytes, "{name}");
        assert_eq!(std::fs::read_to_string(&text).expect(name), description, "{name}");
    }
    let known = std::fs::read_dir(&folder).expect("a folder").count();
    assert_eq!(known, files().len() * 2, "each file has a frame here");
}

#[test]
fn the_golden_files_are_read_back() {
    let read = |bytes: &[u8]| {
        let header = FrameHeader::read(bytes)?.expect("a whole header");
        Ok((header, Bytes::copy_from_slice(&bytes[WORKER_FRAME_HEADER_BYTES..])))
    };
    for (name, frame) in from_server() {
        let bytes = encoded(|out| frame.encode(out));
        let frame_read = read(&bytes).and_then(|(header, payload)| ServerFrame::decode(header, payload));
        assert_eq!(frame_read, Ok(frame), "{name}");
    }
    for (name, frame) in from_worker() {
        let bytes = encoded(|out| frame.encode(out));
        let frame_read = read(&bytes).and_then(|(header, payload)| WorkerFrame::decode(header, payload));
        assert_eq!(frame_read, Ok(frame), "{name}");
    }
    for (name, bytes, _) in wrong() {
        let frame_read = read(&bytes).and_then(|(header, payload)| WorkerFrame::decode(header, payload));
        assert!(frame_read.is_err(), "{name}: {frame_read:?}");
    }
}
