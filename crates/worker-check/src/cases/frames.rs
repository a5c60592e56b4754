//! Bytes that are not what the protocol says. The worker refuses the request, and goes on with others.

use bytes::Bytes;
use millrace_base::limits;
use millrace_format::worker::{
    FrameError, FrameResult, FrameValue, ServerFrame, StartFrame, WORKER_FRAME_HEADER_BYTES, WorkerFrame,
};
use serde_json::json;

use crate::Case;
use crate::bench::Bench;
use crate::scene::{Scene, no_answer, same};

/// Where the kind of START is, behind header and token.
const KIND_AT: usize = WORKER_FRAME_HEADER_BYTES + 16;
/// Where the service's text begins: behind kind, deadline, `seen` and its length.
const SERVICE_AT: usize = KIND_AT + 1 + 4 + 4 + 4;
/// Where the form of a RESULT is, behind the operation.
const FORM_AT: usize = WORKER_FRAME_HEADER_BYTES + 4;
const TYPE_AT: usize = 4;
const FLAGS_AT: usize = 5;
const RESERVED_AT: usize = 6;
const STREAM_AT: usize = 8;

/// A request whose START a case has changed.
fn start(bench: &Bench<'_>, change: impl FnOnce(&mut Vec<u8>)) -> Result<(), String> {
    refused(bench, |start| {
        let mut body = encoded(&ServerFrame::Start(Box::new(start)));
        change(&mut body);
        body
    })
}

/// A request whose second frame a case has changed.
fn second(bench: &Bench<'_>, frame: &ServerFrame, change: impl FnOnce(&mut Vec<u8>)) -> Result<(), String> {
    refused(bench, |start| {
        let mut second = encoded(frame);
        change(&mut second);
        let mut body = encoded(&ServerFrame::Start(Box::new(start)));
        body.extend(second);
        body
    })
}

fn result(result: FrameResult) -> ServerFrame {
    ServerFrame::Result { operation: 1, is_set: false, result }
}

fn one() -> FrameResult {
    Ok(FrameValue::Json(Bytes::from_static(b"1")))
}

fn encoded(frame: &ServerFrame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

/// A request with the body that `make` makes of a START: status 400, and the next request is served.
fn refused(bench: &Bench<'_>, make: impl FnOnce(StartFrame) -> Vec<u8>) -> Result<(), String> {
    let start = Scene::new(bench, "echo", &json!(1)).start;
    let attempt = start.attempt;
    let reply = bench.invoke(attempt, make(start))?;
    same("the status", &reply.status, &400)?;
    Scene::new(bench, "echo", &json!("still there")).run(&mut no_answer)?.gives(&json!("still there"))
}

pub(super) const CASES: &[Case] = &[
    Case { name: "frames/nothing", expected: "an empty body: status 400", run: |bench| refused(bench, |_| Vec::new()) },
    Case {
        name: "frames/no-frames",
        expected: "a body that is not frames: status 400",
        run: |bench| refused(bench, |_| b"{\"handler\":\"echo\"}".to_vec()),
    },
    Case {
        name: "frames/header-cut-off",
        expected: "five bytes of a header behind START: status 400",
        run: |bench| start(bench, |body| body.extend_from_slice(&[0; 5])),
    },
    Case {
        name: "frames/payload-cut-off",
        expected: "a START without its last byte: status 400",
        run: |bench| {
            start(bench, |body| {
                body.pop();
            })
        },
    },
    Case {
        name: "frames/too-large",
        expected: "a length over 8 MiB: status 400, without waiting for so many bytes",
        run: |bench| {
            start(bench, |body| {
                let length = u32::try_from(limits::WORKER_FRAME_BYTES + 1).unwrap_or(u32::MAX);
                body[..4].copy_from_slice(&length.to_be_bytes());
            })
        },
    },
    Case {
        name: "frames/unknown-type",
        expected: "the type 0x7F: status 400",
        run: |bench| second(bench, &result(one()), |frame| frame[TYPE_AT] = 0x7f),
    },
    Case {
        name: "frames/type-zero",
        expected: "the type 0: status 400",
        run: |bench| start(bench, |body| body[TYPE_AT] = 0),
    },
    Case {
        name: "frames/reserved",
        expected: "a reserved byte that is not zero: status 400",
        run: |bench| start(bench, |body| body[RESERVED_AT + 1] = 1),
    },
    Case {
        name: "frames/stream",
        expected: "another stream than 0 in a request: status 400",
        run: |bench| start(bench, |body| body[STREAM_AT + 3] = 1),
    },
    Case {
        name: "frames/start-flag",
        expected: "an unknown flag of START: status 400",
        run: |bench| start(bench, |body| body[FLAGS_AT] |= 0x80),
    },
    Case {
        name: "frames/result-flag",
        expected: "an unknown flag of RESULT: status 400",
        run: |bench| second(bench, &result(one()), |frame| frame[FLAGS_AT] |= 2),
    },
    Case {
        name: "frames/fields-flag",
        expected: "an unknown flag of FIELDS: status 400",
        run: |bench| {
            let fields = ServerFrame::Fields { is_rest_void: false, fields: Vec::new() };
            second(bench, &fields, |frame| frame[FLAGS_AT] |= 2)
        },
    },
    Case {
        name: "frames/no-start",
        expected: "a RESULT without START: status 400",
        run: |bench| refused(bench, |_| encoded(&result(one()))),
    },
    Case {
        name: "frames/two-starts",
        expected: "a second START: status 400",
        run: |bench| refused(bench, |start| encoded(&ServerFrame::Start(Box::new(start))).repeat(2)),
    },
    Case {
        name: "frames/ping",
        expected: "PING in a request: status 400",
        run: |bench| second(bench, &ServerFrame::Ping, |_| {}),
    },
    Case {
        name: "frames/ready",
        expected: "READY in a request: status 400",
        run: |bench| second(bench, &ServerFrame::Ready("d".to_owned()), |_| {}),
    },
    Case {
        name: "frames/cancel",
        expected: "CANCEL in a request: status 400",
        run: |bench| {
            let error = FrameError { code: "cancelled".to_owned(), message: String::new(), detail: Bytes::new() };
            second(bench, &ServerFrame::Cancel(error), |_| {})
        },
    },
    Case {
        name: "frames/workers-own",
        expected: "a frame that only workers send: status 400",
        run: |bench| {
            refused(bench, |start| {
                let mut body = encoded(&ServerFrame::Start(Box::new(start)));
                WorkerFrame::Output(FrameValue::Json(Bytes::from_static(b"1"))).encode(&mut body);
                body
            })
        },
    },
    Case {
        name: "frames/start-kind",
        expected: "an unknown kind of handler: status 400",
        run: |bench| start(bench, |body| body[KIND_AT] = 4),
    },
    Case {
        name: "frames/start-text",
        expected: "a service that is not UTF-8: status 400",
        run: |bench| start(bench, |body| body[SERVICE_AT] = 0xff),
    },
    Case {
        name: "frames/start-left-over",
        expected: "a byte left over in START: status 400",
        run: |bench| {
            start(bench, |body| {
                body.push(0);
                body[3] += 1;
            })
        },
    },
    Case {
        name: "frames/start-count",
        expected: "more fields announced than there are: status 400",
        run: |bench| {
            start(bench, |body| {
                let count = body.len() - 4;
                body[count..].copy_from_slice(&u32::MAX.to_be_bytes());
            })
        },
    },
    Case {
        name: "frames/start-value",
        expected: "a field's value of an unknown kind: status 400",
        run: |bench| {
            refused(bench, |mut start| {
                start.fields = vec![(Bytes::from_static(b"count"), FrameValue::Json(Bytes::from_static(b"1")))];
                let mut body = encoded(&ServerFrame::Start(Box::new(start)));
                // Behind it are the length and the one byte of the value.
                let kind = body.len() - 6;
                body[kind] = 2;
                body
            })
        },
    },
    Case {
        name: "frames/result-form",
        expected: "a RESULT that is neither value nor error: status 400",
        run: |bench| second(bench, &result(one()), |frame| frame[FORM_AT] = 2),
    },
    Case {
        name: "frames/result-value",
        expected: "a RESULT's value of an unknown kind: status 400",
        run: |bench| second(bench, &result(one()), |frame| frame[FORM_AT + 1] = 9),
    },
    Case {
        name: "frames/result-text",
        expected: "an error's code that is not UTF-8: status 400",
        run: |bench| {
            let error = FrameError { code: "x".to_owned(), message: String::new(), detail: Bytes::new() };
            second(bench, &result(Err(error)), |frame| frame[FORM_AT + 1 + 4] = 0xff)
        },
    },
    Case {
        name: "frames/result-left-over",
        expected: "a byte left over in RESULT: status 400",
        run: |bench| {
            second(bench, &result(one()), |frame| {
                frame.push(0);
                frame[3] += 1;
            })
        },
    },
    Case {
        name: "frames/other-attempt",
        expected: "a header that names another attempt than START: status 400",
        run: |bench| {
            let start = Scene::new(bench, "echo", &json!(1)).start;
            let other = bench.token();
            let reply = bench.invoke(other, encoded(&ServerFrame::Start(Box::new(start))))?;
            same("the status", &reply.status, &400)
        },
    },
    Case {
        name: "frames/attempt-missing",
        expected: "no header that names the attempt: a status from 400 on",
        run: |bench| {
            let start = Scene::new(bench, "echo", &json!(1)).start;
            let attempt = start.attempt;
            let body = encoded(&ServerFrame::Start(Box::new(start)));
            let mut envelope = bench.envelope("POST", "/invoke", attempt, &body);
            envelope.attempt = None;
            let status = bench.ask("POST", "/invoke", envelope, body.into())?.status;
            if status >= 400 { Ok(()) } else { Err(format!("the status is {status}")) }
        },
    },
];
