//! Calls, messages, signals and records.

use millrace_format::worker::{FrameResult, FrameValue, TargetFrame, WorkerFrame};
use serde_json::{Value, json};

use crate::Case;
use crate::bench::Bench;
use crate::scene::{Course, Fields, Scene, error, json as result, no_answer, same};

/// The answer to every call: what `answer` says of its target.
fn to_calls(
    answer: impl Fn(&TargetFrame) -> FrameResult,
) -> impl FnMut(&WorkerFrame, &mut Fields) -> Option<FrameResult> {
    move |frame, _| match frame {
        WorkerFrame::Call { target, .. } => Some(answer(target)),
        _ => None,
    }
}

fn told(target: &TargetFrame) -> (String, Vec<u8>, String, Value) {
    let input = serde_json::from_slice(&target.input).unwrap_or_default();
    (target.service.clone(), target.key.to_vec(), target.handler.clone(), input)
}

fn ben() -> (String, Vec<u8>, String, Value) {
    ("shop".to_owned(), b"ben".to_vec(), "pay".to_owned(), json!({"n": 5}))
}

fn call<'b, 't>(bench: &'b Bench<'t>, handler: &str) -> Scene<'b, 't> {
    Scene::new(bench, handler, &json!(["shop", "ben", "pay", {"n": 5}]))
}

/// The handler `both`, whose calls give their keys, by each course.
fn both(bench: &Bench<'_>, course: Course) -> Result<(), String> {
    let scene = Scene::new(bench, "both", &json!(["x", "y"])).course(course);
    let done = scene.run(&mut to_calls(|target| result(&json!(String::from_utf8_lossy(&target.key)))))?;
    done.gives(&json!(["x", "y"]))
}

/// The handler `call_then_show`, whose callee sets `count` of this entity to 9.
fn changed(bench: &Bench<'_>, set: impl Fn(&mut Scene<'_, '_>), after: &Value) -> Result<(), String> {
    let mut scene = call(bench, "call_then_show").field("count", &json!(1));
    set(&mut scene);
    let expected = json!([1, after]);
    let value = after.clone();
    let done = scene.run(&mut |frame, fields| {
        let WorkerFrame::Call { .. } = frame else { return None };
        if value == json!(0) {
            fields.remove(&b"count"[..]);
        } else {
            fields.insert(bytes::Bytes::from_static(b"count"), FrameValue::Json(value.to_string().into()));
        }
        Some(result(&Value::Null))
    })?;
    done.gives(&expected)
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "calls/call",
        expected: "CALL names service, key, handler and input; its RESULT is what the handler gets",
        run: |bench| {
            let done = call(bench, "call").run(&mut to_calls(|_| result(&json!({"ok": [1]}))))?;
            let called = done.only("CALL", |frame| match frame {
                WorkerFrame::Call { target, .. } => Some(told(target)),
                _ => None,
            });
            same("the call", &called?, &ben())?;
            done.gives(&json!({"ok": [1]}))
        },
    },
    Case {
        name: "calls/writes-first",
        expected: "writes that were made before a call leave before it",
        run: |bench| {
            let done = call(bench, "call").run(&mut to_calls(|_| result(&Value::Null)))?;
            let place = |wanted: fn(&WorkerFrame) -> bool| done.frames.iter().position(wanted);
            let set = place(|frame| matches!(frame, WorkerFrame::Set { .. }));
            let called = place(|frame| matches!(frame, WorkerFrame::Call { .. }));
            same("whether it is so", &(set.is_some() && set < called), &true)
        },
    },
    Case {
        name: "calls/error-caught",
        expected: "a callee's error has its code and its message where the handler catches it",
        run: |bench| {
            let done = call(bench, "caught").run(&mut to_calls(|_| error("overloaded", "later", "")))?;
            let output = done.output()?;
            same("the code", &output["code"], &json!("overloaded"))?;
            same("the message", &output["message"], &json!("later"))
        },
    },
    Case {
        name: "calls/abort-caught",
        expected: "a callee's Abort is caught, with the code `aborted` and its message",
        run: |bench| {
            let done = call(bench, "caught").run(&mut to_calls(|_| error("aborted", "no", "{\"n\":1}")))?;
            done.gives(&json!({"code": "aborted", "message": "no"}))
        },
    },
    Case {
        name: "calls/error-passed-on",
        expected: "an error that the handler does not catch keeps its code",
        run: |bench| {
            let done = call(bench, "call").run(&mut to_calls(|_| error("overloaded", "later", "")))?;
            same("the message", &done.fails("overloaded")?.error.message.as_str(), &"later")
        },
    },
    Case {
        name: "calls/abort-passed-on",
        expected: "an Abort that the handler does not catch keeps its message and its payload",
        run: |bench| {
            let done = call(bench, "call").run(&mut to_calls(|_| error("aborted", "no", "{\"n\":1}")))?;
            let failure = done.fails("aborted")?;
            same("the message", &failure.error.message.as_str(), &"no")?;
            same("the detail", &serde_json::from_slice::<Value>(&failure.error.detail).ok(), &Some(json!({"n": 1})))
        },
    },
    Case {
        name: "calls/two-at-once",
        expected: "two calls that are awaited together leave in one turn",
        run: |bench| {
            let scene = Scene::new(bench, "both", &json!(["x", "y"]));
            same("the turns", &scene.run(&mut to_calls(|_| result(&json!(1))))?.turns, &2)
        },
    },
    Case {
        name: "calls/one-by-one",
        expected: "their results may come one at a time",
        run: |bench| both(bench, Course::OneByOne),
    },
    Case {
        name: "calls/reversed",
        expected: "their results may come in the opposite order",
        run: |bench| both(bench, Course::Reversed),
    },
    Case {
        name: "calls/own-entity",
        expected: "what a callee wrote to the caller's own entity comes as FIELDS, and is what the caller then reads",
        run: |bench| changed(bench, |_| {}, &json!(9)),
    },
    Case {
        name: "calls/own-entity-void",
        expected: "the same with FIELDS that void all else",
        run: |bench| changed(bench, |scene| scene.voids = true, &json!(9)),
    },
    Case {
        name: "calls/own-entity-removed",
        expected: "a field that the callee has removed is not set any more",
        run: |bench| changed(bench, |_| {}, &json!(0)),
    },
    Case {
        name: "calls/own-entity-anew",
        expected: "FIELDS are taken where they came, when the handler runs again",
        run: |bench| changed(bench, |scene| scene.course = Course::Anew, &json!(9)),
    },
    Case {
        name: "calls/send",
        expected: "SEND names service, key, handler, input and delay",
        run: |bench| {
            let input = json!(["shop", "ben", "pay", {"n": 5}, 1500]);
            let done = Scene::new(bench, "send", &input).run(&mut |frame, _| match frame {
                WorkerFrame::Send { .. } => Some(result(&Value::Null)),
                _ => None,
            })?;
            let sent = done.only("SEND", |frame| match frame {
                WorkerFrame::Send { target, delay_ms, .. } => Some((told(target), *delay_ms)),
                _ => None,
            });
            same("the message", &sent?, &(ben(), 1500))?;
            done.gives(&Value::Null)
        },
    },
    Case {
        name: "calls/send-id",
        expected: "the RESULT of SEND is the id of the workflow it starts",
        run: |bench| {
            let done = call(bench, "send_id").run(&mut |frame, _| match frame {
                WorkerFrame::Send { delay_ms: 0, .. } => Some(result(&json!("inv-1"))),
                _ => None,
            })?;
            done.gives(&json!("inv-1"))
        },
    },
    Case {
        name: "calls/send-as",
        expected: "from version 2 on, SEND has the id that the workflow is to have",
        run: |bench| {
            let input = json!(["shop", "ben", "pay", {"n": 5}, "order-17"]);
            let done = Scene::new(bench, "send_as", &input).run(&mut |frame, _| match frame {
                WorkerFrame::Send { id, .. } => Some(result(&json!(id))),
                _ => None,
            })?;
            let sent = done.only("SEND", |frame| match frame {
                WorkerFrame::Send { target, delay_ms, id, .. } => Some((told(target), *delay_ms, id.clone())),
                _ => None,
            });
            same("the message", &sent?, &(ben(), 0, Some("order-17".to_owned())))?;
            done.gives(&json!("order-17"))
        },
    },
    Case {
        name: "calls/signal",
        expected: "SIGNAL names invocation, name and payload",
        run: |bench| {
            let done = Scene::new(bench, "signal", &json!(["inv-1", "paid", {"n": 5}])).run(&mut no_answer)?;
            let sent = done.only("SIGNAL", |frame| match frame {
                WorkerFrame::Signal { invocation, name, payload } => {
                    Some((invocation.clone(), name.clone(), serde_json::from_slice::<Value>(payload).ok()))
                }
                _ => None,
            });
            same("the signal", &sent?, &("inv-1".to_owned(), "paid".to_owned(), Some(json!({"n": 5}))))
        },
    },
    Case {
        name: "calls/record",
        expected: "RECORD names type and id and says `get`; the handler gets the body",
        run: |bench| {
            let done = Scene::new(bench, "record", &json!(["person", "ann"])).run(&mut |frame, _| match frame {
                WorkerFrame::Record { .. } => Some(result(&json!({"body": {"name": "Ann"}}))),
                _ => None,
            })?;
            let asked = done.only("RECORD", |frame| match frame {
                WorkerFrame::Record { type_name, id, request, .. } => {
                    let request = serde_json::from_slice::<Value>(request).unwrap_or_default();
                    Some((type_name.clone(), id.to_vec(), request["op"].clone()))
                }
                _ => None,
            });
            same("the operation", &asked?, &("person".to_owned(), b"ann".to_vec(), json!("get")))?;
            done.gives(&json!({"name": "Ann"}))
        },
    },
    Case {
        name: "calls/record-missing",
        expected: "a record that there is not is null",
        run: |bench| {
            let scene = Scene::new(bench, "record", &json!(["person", "ann"]));
            let done = scene.run(&mut |frame, _| match frame {
                WorkerFrame::Record { .. } => Some(error("unknown-record", "there is none", "")),
                _ => None,
            })?;
            done.gives(&Value::Null)
        },
    },
];
