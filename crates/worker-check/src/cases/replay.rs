//! Attempts that run again, and those that are suspended.

use millrace_format::worker::{FrameResult, WorkerFrame};
use serde_json::{Value, json};

use crate::Case;
use crate::bench::Bench;
use crate::scene::{Course, Fields, Run, Scene, error, json as result, same};

fn null_to_calls(frame: &WorkerFrame, _: &mut Fields) -> Option<FrameResult> {
    matches!(frame, WorkerFrame::Call { .. }).then(|| result(&Value::Null))
}

/// The handler `both` by a course.
fn both(bench: &Bench<'_>, course: Course) -> Result<(), String> {
    let scene = Scene::new(bench, "both", &json!(["x", "y"])).course(course);
    let done = scene.run(&mut |frame, _| match frame {
        WorkerFrame::Call { target, .. } => Some(result(&json!(String::from_utf8_lossy(&target.key)))),
        _ => None,
    })?;
    done.gives(&json!(["x", "y"]))
}

/// A handler of which each run does something else: its second run, by another worker, must not look as if it had done
/// the same.
fn diverges(bench: &Bench<'_>, handler: &str) -> Result<(), String> {
    let mut scene = Scene::new(bench, handler, &json!(["shop", "ben", "pay"])).course(Course::Anew);
    scene.start.key = scene.start.attempt.iter().map(|byte| byte % 26 + b'a').collect();
    match scene.run(&mut null_to_calls) {
        Err(problem) if problem.contains("RESUMED has") => Ok(()),
        Err(problem) => Err(problem),
        Ok(_) => Err("RESUMED says that the same frames came again, and others did".to_owned()),
    }
}

/// Two attempts of which each waits while the other goes on.
fn interleaved(bench: &Bench<'_>) -> Result<(), String> {
    let begin = |name: &str| Run::new(Scene::new(bench, "both", &json!([format!("{name}1"), format!("{name}2")])));
    let mut runs = [begin("a")?, begin("b")?];
    for run in &mut runs {
        let frames = run.turn()?;
        run.take(frames)?;
    }
    let mut answer = |frame: &WorkerFrame, _: &mut Fields| match frame {
        WorkerFrame::Call { target, .. } => Some(result(&json!(String::from_utf8_lossy(&target.key)))),
        _ => None,
    };
    for (run, name) in runs.iter_mut().zip(["a", "b"]) {
        run.answer(&mut answer)?;
        let frames = run.turn()?;
        let end = run.take(frames)?.ok_or("the handler has not ended")?;
        let output = end.map_err(|failure| format!("FAILURE {}", failure.error.code))?;
        let output: Value = serde_json::from_slice(output.content()).unwrap_or_default();
        same("the output", &output, &json!([format!("{name}1"), format!("{name}2")]))?;
    }
    Ok(())
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "replay/same-attempt",
        expected: "a request that goes on with an attempt: RESUMED with the frames that the server has, then the rest",
        run: |bench| both(bench, Course::Same),
    },
    Case {
        name: "replay/another-worker",
        expected: "the same from a worker that knows nothing of the attempt: the same number and sum",
        run: |bench| both(bench, Course::Anew),
    },
    Case {
        name: "replay/writes",
        expected: "a handler that runs again sends no write again that the server has",
        run: |bench| {
            let scene = Scene::new(bench, "call", &json!(["shop", "ben", "pay", 1])).course(Course::Anew);
            let done = scene.run(&mut null_to_calls)?;
            let sets = done.frames.iter().filter(|frame| matches!(frame, WorkerFrame::Set { .. })).count();
            same("the number of SETs", &sets, &1)
        },
    },
    Case {
        name: "replay/lost-reply",
        expected: "the same request again gives the same reply again",
        run: |bench| both(bench, Course::Twice),
    },
    Case {
        name: "replay/error",
        expected: "a handler that runs again gets a noted error as it got it",
        run: |bench| {
            let scene = Scene::new(bench, "caught", &json!(["shop", "ben", "pay", 1])).course(Course::Anew);
            let done = scene.run(&mut |frame, _| {
                matches!(frame, WorkerFrame::Call { .. }).then(|| error("overloaded", "later", ""))
            })?;
            same("the code", &done.output()?["code"], &json!("overloaded"))
        },
    },
    Case {
        name: "replay/other-frames",
        expected: "a handler that sends other frames when it runs again: RESUMED has another sum",
        run: |bench| diverges(bench, "unsteady"),
    },
    Case {
        name: "replay/fewer-frames",
        expected: "a handler that sends fewer frames when it runs again: RESUMED has a lower number",
        run: |bench| diverges(bench, "fickle"),
    },
    Case {
        name: "replay/interleaved",
        expected: "attempts that are suspended do not meet: each goes on with its own results",
        run: interleaved,
    },
    Case {
        name: "replay/old-token",
        expected: "an attempt that has ended, asked for again from its beginning, runs again",
        run: |bench| {
            let scene = Scene::new(bench, "both", &json!(["x", "y"]));
            for _ in 0..2 {
                let mut answer = |frame: &WorkerFrame, _: &mut Fields| {
                    matches!(frame, WorkerFrame::Call { .. }).then(|| result(&json!(1)))
                };
                scene.clone().run(&mut answer)?.gives(&json!([1, 1]))?;
            }
            Ok(())
        },
    },
    Case {
        name: "replay/abandoned",
        expected: "an attempt that begins again with other results does not remember the old ones",
        run: |bench| {
            let scene = Scene::new(bench, "call", &json!(["shop", "ben", "pay", 1]));
            let mut first = Run::new(scene.clone())?;
            let frames = first.turn()?;
            first.take(frames)?;
            let mut answer = |frame: &WorkerFrame, _: &mut Fields| {
                matches!(frame, WorkerFrame::Call { .. }).then(|| result(&json!("new")))
            };
            scene.run(&mut answer)?.gives(&json!("new"))
        },
    },
];
