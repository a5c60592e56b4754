//! Workflows: what is journalled, and code that runs in the worker.

use bytes::Bytes;
use millrace_format::worker::{FrameResult, FrameValue, TargetFrame, WorkerFrame};
use serde_json::{Value, json};

use crate::Case;
use crate::bench::Bench;
use crate::scene::{Course, Done, Fields, Scene, error, json as result, no_answer, same};

/// "Run the step's code."
fn run_it() -> FrameResult {
    Ok(FrameValue::Raw(Bytes::new()))
}

/// A noted result, as the RESULT of STEP has it.
fn noted(text: &FrameResult) -> FrameResult {
    let mut bytes = Vec::new();
    WorkerFrame::StepEnd { operation: 0, result: text.clone() }.encode(&mut bytes);
    // Behind the header and the operation.
    Ok(FrameValue::Raw(bytes.split_off(16).into()))
}

/// Notes what each step's code gave; calls give 1, 2, 3, ….
fn notes() -> impl FnMut(&WorkerFrame, &mut Fields) -> Option<FrameResult> {
    let mut calls = 0;
    move |frame, _| match frame {
        WorkerFrame::Step { .. } => Some(run_it()),
        WorkerFrame::StepEnd { result, .. } => Some(result.clone()),
        WorkerFrame::Call { .. } => {
            calls += 1;
            Some(result(&json!(calls)))
        }
        _ => None,
    }
}

fn step_end(done: &Done) -> Result<FrameResult, String> {
    done.only("STEP_END", |frame| match frame {
        WorkerFrame::StepEnd { result, .. } => Some(result.clone()),
        _ => None,
    })
}

/// The waits of a workflow: name and time limit.
fn wait(bench: &Bench<'_>, timeout_ms: Option<u64>) -> Result<(), String> {
    let scene = Scene::workflow(bench, "flow_wait", &json!(["paid", timeout_ms]));
    let done =
        scene.run(&mut |frame, _| matches!(frame, WorkerFrame::Wait { .. }).then(|| result(&json!({"n": 5}))))?;
    let waited = done.only("WAIT", |frame| match frame {
        WorkerFrame::Wait { name, timeout_ms, .. } => Some((name.clone(), *timeout_ms)),
        _ => None,
    });
    same("the wait", &waited?, &("paid".to_owned(), timeout_ms))?;
    done.gives(&json!({"n": 5}))
}

/// What a workflow asks for that waits for another one: its id and time limit.
fn awaited(bench: &Bench<'_>, timeout_ms: Option<u64>) -> Result<(), String> {
    let scene = Scene::workflow(bench, "flow_result", &json!(["order-17", timeout_ms]));
    let done =
        scene.run(&mut |frame, _| matches!(frame, WorkerFrame::Await { .. }).then(|| result(&json!({"n": 5}))))?;
    let asked = done.only("AWAIT", |frame| match frame {
        WorkerFrame::Await { invocation, timeout_ms, .. } => Some((invocation.clone(), *timeout_ms)),
        _ => None,
    });
    same("the question", &asked?, &("order-17".to_owned(), timeout_ms))?;
    done.gives(&json!({"n": 5}))
}

fn steps(bench: &Bench<'_>, course: Course) -> Result<(), String> {
    let done = Scene::workflow(bench, "flow_steps", &Value::Null).course(course).run(&mut notes())?;
    done.gives(&json!(["a", "b", 1]))
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "workflow/id",
        expected: "a workflow knows its id",
        run: |bench| {
            Scene::workflow(bench, "flow_id", &Value::Null).run(&mut no_answer)?.gives(&json!("inv-of-a-check"))
        },
    },
    Case {
        name: "workflow/step",
        expected: "STEP names the step; an empty RESULT runs its code; STEP_END has what the code gave",
        run: |bench| {
            let done = Scene::workflow(bench, "flow_step", &Value::Null).run(&mut notes())?;
            let name = done.only("STEP", |frame| match frame {
                WorkerFrame::Step { name, .. } => Some(name.clone()),
                _ => None,
            });
            same("the name", &name?, &"one".to_owned())?;
            let Ok(given) = step_end(&done)? else { return Err("STEP_END has an error".to_owned()) };
            let given: Value = serde_json::from_slice(given.content()).unwrap_or_default();
            same("whether the code ran", &given["runs"].is_u64(), &true)?;
            done.gives(&given)
        },
    },
    Case {
        name: "workflow/step-noted",
        expected: "a RESULT with a noted result: the step's code does not run, and the workflow gets that result",
        run: |bench| {
            let kept = json!({"runs": "noted"});
            let scene = Scene::workflow(bench, "flow_step", &Value::Null);
            let done = scene.run(&mut |frame, _| {
                matches!(frame, WorkerFrame::Step { .. }).then(|| noted(&result(&json!({"runs": "noted"}))))
            })?;
            same("whether a STEP_END came", &step_end(&done).is_ok(), &false)?;
            done.gives(&kept)
        },
    },
    Case {
        name: "workflow/step-noted-error",
        expected: "a noted error is thrown where the step is",
        run: |bench| {
            let scene = Scene::workflow(bench, "flow_step_fails", &json!("unused"));
            let done = scene.run(&mut |frame, _| {
                let is_step = matches!(frame, WorkerFrame::Step { .. });
                is_step.then(|| noted(&error("function-failed", "as it was noted", "")))
            })?;
            same("the message", &done.output()?["message"], &json!("as it was noted"))
        },
    },
    Case {
        name: "workflow/step-fails",
        expected: "a step whose code fails: STEP_END has the error, which the workflow may catch once it is noted",
        run: |bench| {
            let done = Scene::workflow(bench, "flow_step_fails", &json!("no such luck")).run(&mut notes())?;
            let Err(failed) = step_end(&done)? else { return Err("STEP_END has no error".to_owned()) };
            same("the code", &failed.code.as_str(), &"function-failed")?;
            same("whether the message says it", &failed.message.contains("no such luck"), &true)?;
            same("the code that is caught", &done.output()?["code"], &json!("function-failed"))
        },
    },
    Case {
        name: "workflow/step-once",
        expected: "in a run over again, the code of a step whose second RESULT has come along does not run again",
        run: |bench| {
            let done = Scene::workflow(bench, "flow_step", &Value::Null).course(Course::Anew).run(&mut notes())?;
            let Ok(given) = step_end(&done)? else { return Err("STEP_END has an error".to_owned()) };
            done.gives(&serde_json::from_slice(given.content()).unwrap_or_default())?;
            // Nothing but this counts the runs, so the next one's number is one more.
            let next = Scene::workflow(bench, "flow_step", &Value::Null).run(&mut notes())?.output()?;
            let of = |output: &Value| output["runs"].as_u64().unwrap_or_default();
            same("how often the code ran until the next workflow", &of(&next), &(of(&done.output()?) + 1))
        },
    },
    Case {
        name: "workflow/steps",
        expected: "steps and calls one after the other",
        run: |bench| steps(bench, Course::Same),
    },
    Case {
        name: "workflow/steps-anew",
        expected: "a workflow that begins again in each turn asks for the same in the same order",
        run: |bench| steps(bench, Course::Anew),
    },
    Case {
        name: "workflow/sleep",
        expected: "SLEEP has the delay in milliseconds",
        run: |bench| {
            let done = Scene::workflow(bench, "flow_sleep", &json!(1500))
                .run(&mut |frame, _| matches!(frame, WorkerFrame::Sleep { .. }).then(|| result(&Value::Null)))?;
            let slept = done.only("SLEEP", |frame| match frame {
                WorkerFrame::Sleep { delay_ms, .. } => Some(*delay_ms),
                _ => None,
            });
            same("the delay", &slept?, &1500)?;
            done.gives(&Value::Null)
        },
    },
    Case {
        name: "workflow/wait",
        expected: "WAIT names the signal; the workflow gets its payload",
        run: |bench| wait(bench, None),
    },
    Case {
        name: "workflow/wait-limited",
        expected: "WAIT has the time limit in milliseconds",
        run: |bench| wait(bench, Some(2500)),
    },
    Case {
        name: "workflow/wait-in-vain",
        expected: "a wait that nobody answered throws `wait-limit`, which keeps its code",
        run: |bench| {
            let scene = Scene::workflow(bench, "flow_wait", &json!(["paid", 10]));
            let done = scene.run(&mut |frame, _| {
                matches!(frame, WorkerFrame::Wait { .. }).then(|| error("wait-limit", "no signal came", ""))
            })?;
            done.fails("wait-limit").map(|_| ())
        },
    },
    Case {
        name: "workflow/result",
        expected: "from version 2 on, AWAIT names the other workflow; the workflow gets its output",
        run: |bench| awaited(bench, None),
    },
    Case {
        name: "workflow/result-limited",
        expected: "AWAIT has the time limit in milliseconds",
        run: |bench| awaited(bench, Some(2500)),
    },
    Case {
        name: "workflow/result-fails",
        expected: "the error of a workflow that was awaited is thrown, and keeps its code",
        run: |bench| {
            let scene = Scene::workflow(bench, "flow_result", &json!(["order-17", null]));
            let done = scene.run(&mut |frame, _| {
                matches!(frame, WorkerFrame::Await { .. }).then(|| error("aborted", "no such luck", ""))
            })?;
            done.fails("aborted").map(|_| ())
        },
    },
    Case {
        name: "workflow/calls",
        expected: "calls of a workflow, one after the other, by workers that know nothing of each other",
        run: |bench| {
            let scene = Scene::workflow(bench, "flow_call", &json!("ben")).course(Course::Anew);
            scene.run(&mut notes())?.gives(&json!([1, 2]))
        },
    },
    Case {
        name: "workflow/compensate",
        expected: "COMPENSATE names service, key, handler and input",
        run: |bench| {
            let scene = Scene::workflow(bench, "flow_compensate", &json!(["shop", "ben", "refund", {"n": 5}]));
            let done = scene.run(&mut no_answer)?;
            let target = done.only("COMPENSATE", |frame| match frame {
                WorkerFrame::Compensate { target } => Some(target.clone()),
                _ => None,
            })?;
            let TargetFrame { service, key, handler, input } = target;
            same("it", &(&*service, &key[..], &*handler), &("shop", &b"ben"[..], "refund"))?;
            same("the input", &serde_json::from_slice::<Value>(&input).ok(), &Some(json!({"n": 5})))
        },
    },
    Case {
        name: "workflow/fetch",
        expected: "FETCH has method, URL, headers and body; the workflow gets status and body",
        run: |bench| {
            let scene = Scene::workflow(bench, "flow_fetch", &json!("http://example.org/a?b"));
            let done = scene.run(&mut |frame, _| {
                let reply = json!({"status": 418, "headers": [["x-a", "1"]], "body": "aGk="});
                matches!(frame, WorkerFrame::Fetch { .. }).then(|| result(&reply))
            })?;
            let request = done.only("FETCH", |frame| match frame {
                WorkerFrame::Fetch { request, .. } => serde_json::from_slice::<Value>(request).ok(),
                _ => None,
            })?;
            same("the method", &request["method"], &json!("GET"))?;
            same("the URL", &request["url"], &json!("http://example.org/a?b"))?;
            done.gives(&json!([418, "hi"]))
        },
    },
    Case {
        name: "workflow/fetch-fails",
        expected: "a fetch that failed throws its error, which keeps its code",
        run: |bench| {
            let scene = Scene::workflow(bench, "flow_fetch", &json!("http://example.org/"));
            let done = scene.run(&mut |frame, _| {
                matches!(frame, WorkerFrame::Fetch { .. }).then(|| error("fetch-failed", "nobody there", ""))
            })?;
            done.fails("fetch-failed").map(|_| ())
        },
    },
];
