//! Attempts that have a stream each.

use bytes::Bytes;
use millrace_base::hex;
use millrace_format::worker::{FrameError, FrameHeader, FrameValue, ServerFrame, WorkerFrame, is_heartbeat};
use serde_json::{Value, json};

use crate::Case;
use crate::bench::{Bench, Envelope};
use crate::scene::{Course, Run, Scene, json as result, no_answer, same};
use crate::transport::Talk;

fn on_stream<'b, 't>(bench: &'b Bench<'t>, handler: &str, input: &Value) -> Scene<'b, 't> {
    Scene::new(bench, handler, input).course(Course::Stream)
}

fn echo(bench: &Bench<'_>) -> Result<(), String> {
    on_stream(bench, "echo", &json!(7)).run(&mut no_answer)?.gives(&json!(7))
}

fn a_call() -> Value {
    json!(["check", "ben", "echo", 1])
}

/// A handler that waits for its call.
fn waiting<'b, 't>(bench: &'b Bench<'t>) -> Result<Run<'b, 't>, String> {
    let mut run = Run::new(on_stream(bench, "call", &a_call()))?;
    let frames = run.turn()?;
    match run.take(frames)? {
        None => Ok(run),
        Some(end) => Err(format!("it ends before its call has: {end:?}")),
    }
}

fn frame(frame: &ServerFrame) -> Bytes {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes.into()
}

/// Reads a stream to its end, which may be a reset. Says whether anything but heartbeats came.
fn is_void(talk: &mut dyn Talk) -> Result<(), String> {
    let mut came = Vec::new();
    loop {
        match talk.next() {
            Ok(Some(bytes)) => came.extend_from_slice(&bytes),
            Err(error) if error.starts_with("nothing came") => return Err(format!("the stream goes on: {error}")),
            Ok(None) | Err(_) => break,
        }
    }
    let is_quiet = |header: FrameHeader| is_heartbeat(header.kind);
    match FrameHeader::read(&came) {
        Ok(header) if header.is_none_or(is_quiet) => Ok(()),
        _ => Err("something comes of an attempt that is void".to_owned()),
    }
}

/// Begins a stream whose envelope is changed, and gives its status.
fn status(bench: &Bench<'_>, change: impl FnOnce(Envelope) -> Envelope) -> Result<u16, String> {
    let mut run = Run::new(on_stream(bench, "echo", &json!(7)))?;
    let attempt = run.scene.start.attempt;
    let start = run.request();
    Ok(bench.open(change(bench.begin(attempt, &start)), start.into())?.status())
}

/// What waits gets its result, and ends.
fn goes_on_to_its_end(run: &mut Run<'_, '_>, who: &str) -> Result<(), String> {
    run.answer(&mut |_, _| Some(result(&json!(9))))?;
    let frames = run.turn()?;
    same(&format!("whether {who} ends"), &run.take(frames)?.is_some(), &true)
}

pub(super) const CASES: &[Case] = &[
    Case { name: "stream/output", expected: "OUTPUT comes while the request goes on", run: echo },
    Case {
        name: "stream/call",
        expected: "a RESULT on the same stream goes on with the handler, without RESUMED",
        run: |bench| {
            let done = on_stream(bench, "call", &a_call()).run(&mut |_, _| Some(result(&json!(9))))?;
            same("the turns", &done.turns, &2)?;
            done.has("count", Some(&json!(1)))?;
            done.gives(&json!(9))
        },
    },
    Case {
        name: "stream/once",
        expected: "the handler runs once, however many turns it takes",
        run: |bench| {
            let input = json!(["check", "ben", "echo"]);
            let runs = |frame: &WorkerFrame| match frame {
                WorkerFrame::Call { target, .. } => serde_json::from_slice::<Value>(&target.input).ok()?.as_u64(),
                _ => None,
            };
            let ran = || -> Result<u64, String> {
                on_stream(bench, "unsteady", &input).run(&mut |_, _| Some(result(&json!(1))))?.only("CALL", runs)
            };
            let (first, second) = (ran()?, ran()?);
            same("how often it has run the second time", &second, &(first + 1))
        },
    },
    Case {
        name: "stream/reads",
        expected: "fields that START does not have are asked for, and come on the stream",
        run: |bench| {
            let mut scene = on_stream(bench, "add", &json!(2)).field("count", &json!(5));
            scene.is_too_large = true;
            let done = scene.run(&mut no_answer)?;
            done.has("count", Some(&json!(7)))?;
            done.gives(&json!(7))
        },
    },
    Case {
        name: "stream/fields",
        expected: "FIELDS before a RESULT is what others have changed",
        run: |bench| {
            let scene =
                on_stream(bench, "call_then_show", &json!(["check", "ann", "add", 2])).field("count", &json!(1));
            let done = scene.run(&mut |_, fields| {
                fields.insert(Bytes::from_static(b"count"), FrameValue::Json(Bytes::from_static(b"3")));
                Some(result(&json!(3)))
            })?;
            done.gives(&json!([1, 3]))
        },
    },
    Case {
        name: "stream/both",
        expected: "two calls at once, whose RESULTs come together",
        run: |bench| {
            let scene = on_stream(bench, "both", &json!(["ben", "cal"]));
            scene.run(&mut |_, _| Some(result(&json!(4))))?.gives(&json!([4, 4]))
        },
    },
    Case {
        name: "stream/ping",
        expected: "PING, which may come in two parts, is answered with HEARTBEAT, also while the handler waits",
        run: |bench| {
            let mut run = waiting(bench)?;
            let mut first = frame(&ServerFrame::Ping);
            let second = first.split_off(5);
            run.talk()?.send(first);
            run.talk()?.send(second);
            let came = run.talk()?.next()?.unwrap_or_default();
            let header = FrameHeader::read(&came).map_err(|error| error.to_string())?;
            same("whether it is HEARTBEAT", &header.is_some_and(|header| is_heartbeat(header.kind)), &true)?;
            goes_on_to_its_end(&mut run, "the handler")
        },
    },
    Case {
        name: "stream/end",
        expected: "once the server has ended its side after OUTPUT, the worker ends its own",
        run: |bench| {
            let mut run = Run::new(on_stream(bench, "echo", &json!(7)))?;
            let frames = run.turn()?;
            run.take(frames)?;
            let talk = run.talk()?;
            talk.finish();
            while let Some(bytes) = talk.next()? {
                if !bytes.is_empty() {
                    return Err("more comes behind OUTPUT".to_owned());
                }
            }
            Ok(())
        },
    },
    Case {
        name: "stream/ended-early",
        expected: "if the server ends its side while the handler waits, the worker ends its own without OUTPUT",
        run: |bench| {
            let mut run = waiting(bench)?;
            run.talk()?.finish();
            is_void(run.talk()?)?;
            echo(bench)
        },
    },
    Case {
        name: "stream/no-frames",
        expected: "bytes that are not frames end the attempt, and no other",
        run: |bench| {
            let mut run = waiting(bench)?;
            run.talk()?.send(Bytes::from_static(&[0xFF; 12]));
            is_void(run.talk()?)?;
            echo(bench)
        },
    },
    Case {
        name: "stream/given-up",
        expected: "CANCEL, and a reset, end an attempt and no other",
        run: |bench| {
            let (mut cancelled, mut kept, reset) = (waiting(bench)?, waiting(bench)?, waiting(bench)?);
            let error = FrameError { code: "cancelled".to_owned(), message: "over".to_owned(), detail: Bytes::new() };
            cancelled.talk()?.send(frame(&ServerFrame::Cancel(error)));
            drop((cancelled, reset));
            goes_on_to_its_end(&mut kept, "the other")
        },
    },
    Case {
        name: "stream/many",
        expected: "as many as 50 attempts wait on one connection, and each gets its own RESULT",
        run: |bench| {
            let mut runs = (0..50).map(|_| waiting(bench)).collect::<Result<Vec<_>, String>>()?;
            for (number, run) in runs.iter_mut().enumerate() {
                run.answer(&mut |_, _| Some(result(&json!(number))))?;
                let frames = run.turn()?;
                let Some(Ok(FrameValue::Json(output))) = run.take(frames)? else {
                    return Err(format!("attempt {number} does not end with OUTPUT"));
                };
                same("its output", &String::from_utf8_lossy(&output).into_owned(), &number.to_string())?;
            }
            Ok(())
        },
    },
    Case {
        name: "stream/other-attempt",
        expected: "a header millrace-attempt that names another attempt than START: status 400 or 401",
        run: |bench| {
            let other = Some(hex(&bench.token()));
            let status = status(bench, |envelope| Envelope { attempt: other, ..envelope })?;
            same("whether it is refused", &matches!(status, 400 | 401), &true)
        },
    },
    Case {
        name: "stream/version",
        expected: "a version that the worker does not speak: status 400",
        run: |bench| {
            let version = Some("99".to_owned());
            same("the status", &status(bench, |envelope| Envelope { version, ..envelope })?, &400)
        },
    },
    Case {
        name: "stream/signature",
        expected: "START is what is signed: with a secret, a signature of other bytes gives status 401",
        run: |bench| {
            if bench.signer().is_none() {
                return Ok(());
            }
            let attempt = bench.token();
            let of_others = bench.begin(attempt, b"others").signature;
            same("the status", &status(bench, |envelope| Envelope { signature: of_others, ..envelope })?, &401)
        },
    },
];
