//! What a handler is given, and how it ends.

use bytes::Bytes;
use millrace_format::worker::{AttemptKind, WorkerFrame};
use serde_json::{Value, json};

use crate::Case;
use crate::bench::Bench;
use crate::scene::{Scene, no_answer, same, shown};

fn echo(bench: &Bench<'_>, value: &Value) -> Result<(), String> {
    Scene::new(bench, "echo", value).run(&mut no_answer)?.gives(value)
}

/// What the handler `draws` gives: a time, two random numbers, a UUID.
fn draws(bench: &Bench<'_>, seed: [u8; 16], now_ms: u64) -> Result<Vec<Value>, String> {
    let mut scene = Scene::new(bench, "draws", &Value::Null);
    (scene.start.seed, scene.start.now_ms) = (seed, now_ms);
    let output = scene.run(&mut no_answer)?.output()?;
    match output.as_array() {
        Some(drawn) if drawn.len() == 4 => Ok(drawn.clone()),
        _ => Err(format!("the output is {}", shown(&output))),
    }
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "turn/output",
        expected: "OUTPUT has the handler's JSON",
        run: |bench| echo(bench, &json!({"list": [1, -2, 0.5, true, null], "text": "ü \u{1F600} \"\\\n", "empty": {}})),
    },
    Case {
        name: "turn/empty-input",
        expected: "an empty input is null",
        run: |bench| {
            let mut scene = Scene::new(bench, "echo", &Value::Null);
            scene.start.input = Bytes::new();
            scene.run(&mut no_answer)?.gives(&Value::Null)
        },
    },
    Case {
        name: "turn/large-input",
        expected: "an input of 1 MiB comes back whole",
        run: |bench| echo(bench, &json!("x".repeat(1 << 20))),
    },
    Case {
        name: "turn/output-too-large",
        expected: "an output over the limit of a frame: a failure, and not a frame over the limit",
        run: |bench| {
            let failed = Scene::new(bench, "long", &json!(9 << 20)).run(&mut no_answer)?;
            failed.fails("function-failed").map(|_| ())
        },
    },
    Case {
        name: "turn/one-turn",
        expected: "a handler that touches only its own entity takes one turn",
        run: |bench| same("the turns", &Scene::new(bench, "add", &json!(2)).run(&mut no_answer)?.turns, &1),
    },
    Case {
        name: "turn/key",
        expected: "a key may have any bytes of UTF-8, slashes too",
        run: |bench| {
            let mut scene = Scene::new(bench, "echo", &json!(1));
            scene.start.key = Bytes::from_static("a/b c%2F\u{e4}".as_bytes());
            scene.run(&mut no_answer)?.gives(&json!(1))
        },
    },
    Case {
        name: "turn/abort",
        expected: "an Abort: FAILURE `aborted`, terminal, with its message and its payload as detail",
        run: |bench| {
            let done = Scene::new(bench, "abort", &json!(["no money", {"balance": 3}])).run(&mut no_answer)?;
            let failure = done.fails("aborted")?;
            same("the message", &failure.error.message.as_str(), &"no money")?;
            same("the terminal flag", &failure.is_terminal, &true)?;
            let detail = serde_json::from_slice::<Value>(&failure.error.detail).unwrap_or_default();
            same("the detail", &detail, &json!({"balance": 3}))
        },
    },
    Case {
        name: "turn/abort-without-payload",
        expected: "an Abort without a payload: an empty detail, or null",
        run: |bench| {
            let done = Scene::new(bench, "abort", &json!(["no", null])).run(&mut no_answer)?;
            let detail = &done.fails("aborted")?.error.detail;
            if detail.is_empty() || &detail[..] == b"null" { Ok(()) } else { Err(format!("it is {}", shown(detail))) }
        },
    },
    Case {
        name: "turn/failure",
        expected: "another error: FAILURE `function-failed`, not terminal, whose message says which",
        run: |bench| {
            let done = Scene::new(bench, "fail", &json!("no such luck")).run(&mut no_answer)?;
            let failure = done.fails("function-failed")?;
            same("the terminal flag", &failure.is_terminal, &false)?;
            same("whether the message says it", &failure.error.message.contains("no such luck"), &true)
        },
    },
    Case {
        name: "turn/unknown-service",
        expected: "a service that the worker does not have: FAILURE",
        run: |bench| {
            let mut scene = Scene::new(bench, "echo", &json!(1));
            scene.start.service = "elsewhere".to_owned();
            fails_somehow(scene)
        },
    },
    Case {
        name: "turn/unknown-handler",
        expected: "a handler that the worker does not have: FAILURE",
        run: |bench| fails_somehow(Scene::new(bench, "nobody", &json!(1))),
    },
    Case {
        name: "turn/unknown-route",
        expected: "a route that the worker does not have: FAILURE",
        run: |bench| fails_somehow(Scene::of(bench, AttemptKind::Route, "GET /nowhere", &json!({"method": "GET"}))),
    },
    Case {
        name: "turn/other-kind",
        expected: "a transaction that is invoked as a query: FAILURE",
        run: |bench| fails_somehow(Scene::query(bench, "add", &json!(1))),
    },
    Case {
        name: "turn/time",
        expected: "the handler's time is START's",
        run: |bench| same("the time", &draws(bench, [1; 16], 1_234_567_890_123)?[0], &json!(1_234_567_890_123_u64)),
    },
    Case {
        name: "turn/seed",
        expected: "the same seed gives the same random numbers; another seed, and a second draw, give others",
        run: |bench| {
            let (first, again, other) =
                (draws(bench, [1; 16], 1)?, draws(bench, [1; 16], 1)?, draws(bench, [2; 16], 1)?);
            same("the second run's draws", &again, &first)?;
            let numbers: Vec<f64> = [&first[1], &first[2], &other[1]].map(|n| n.as_f64().unwrap_or(-1.0)).into();
            if numbers.iter().any(|number| !(0.0..1.0).contains(number)) {
                return Err(format!("random numbers are from 0 up to 1, not {numbers:?}"));
            }
            same("whether all differ", &(first[1] != first[2] && first[1] != other[1] && first[3] != other[3]), &true)
        },
    },
    Case {
        name: "turn/log",
        expected: "a line for the log: LOG, level 1",
        run: |bench| {
            let done = Scene::new(bench, "log", &json!("a line")).run(&mut no_answer)?;
            let logged = done.only("LOG", |frame| match frame {
                WorkerFrame::Log { level, line } => Some((*level, line.clone())),
                _ => None,
            });
            same("it", &logged?, &(1, "a line".to_owned()))
        },
    },
];

fn fails_somehow(scene: Scene<'_, '_>) -> Result<(), String> {
    match scene.run(&mut no_answer)?.end {
        Err(_) => Ok(()),
        Ok(output) => Err(format!("OUTPUT {}", shown(&output))),
    }
}
