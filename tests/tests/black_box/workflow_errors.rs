//! What fails of a workflow is tried again, and nothing is compensated before somebody wants it. After the last attempt the
//! workflow is paused, over `kill -9` too, until it is resumed, cancelled or killed.

use std::time::Duration;

use millrace_tests::{MovedClock, Server, ServerOptions, TestApp, assert_problem, millrace, wait_until};
use serde_json::{Value, json};

/// What workflows call. `mended` goes in where a mistake is.
const WORK: &str = r#"
import { service, query } from "millrace";

export default service({
  note(ctx, text) {
    ctx.set("notes", [...(ctx.get("notes") ?? []), text]);
    return text;
  },
  notes: query((ctx) => ctx.get("notes") ?? []),
  mistaken(ctx, text) {
    ctx.set("notes", [...(ctx.get("notes") ?? []), text]);
    return /*mended*/ ctx.get("nothing").length;
  },
});
"#;

const STEPS: &str = r#"
import { service, workflow, Abort } from "millrace";

class Declined extends Abort {}
let tries = 0;

export default service({
  calls: workflow(async (ctx) => {
    ctx.compensate("work", ctx.key, "note", "undone");
    await ctx.call("work", ctx.key, "note", "before");
    const found = await ctx.call("work", ctx.key, "mistaken", "between");
    await ctx.call("work", ctx.key, "note", "behind");
    return found;
  }),

  steps: workflow(async (ctx) => {
    ctx.compensate("work", ctx.key, "note", "undone");
    await ctx.call("work", ctx.key, "note", "before");
    const got = await ctx.step("third time lucky", async () => {
      await ctx.call("work", ctx.key, "note", "within");
      tries += 1;
      if (tries < 3) throw new TypeError(`try ${tries}`);
      return tries;
    });
    await ctx.call("work", ctx.key, "note", "behind");
    return got;
  }),

  own: workflow(async (ctx) => {
    await ctx.call("work", ctx.key, "note", "before");
    tries.toFixed(1000);
  }),

  declined: workflow(async (ctx) => {
    try {
      await ctx.step("pay", () => { throw new Declined("no cover", { left: 3 }); });
    } catch (error: any) {
      return [error instanceof Abort, error.message, error.payload];
    }
  }),
});
"#;

fn app(is_mended: bool) -> TestApp {
    let work = if is_mended { WORK.replace("/*mended*/", "17; //") } else { WORK.to_owned() };
    TestApp::with("work.ts", &work).and("steps.ts", STEPS)
}

fn start_with(options: ServerOptions) -> Server {
    let server = Server::start(options);
    let reply = app(false).deploy(&server, "steps");
    assert_eq!(reply.status, 201, "{}", reply.text());
    server
}

fn notes(server: &Server, key: &str) -> Value {
    server.value(&format!("work/{key}/notes"), "")
}

/// Waits until something of a workflow has failed so often.
fn failed(server: &Server, id: &str, attempts: u64) -> Value {
    let mut found = Value::Null;
    wait_until("it has failed", || {
        found = server.get(&format!("/invocations/{id}"));
        found["failures"][0]["attempts"].as_u64().is_some_and(|seen| seen >= attempts)
    });
    found
}

/// Moves the clock until a workflow is paused.
fn paused(server: &Server, clock: &mut MovedClock, id: &str) -> Value {
    let mut found = Value::Null;
    wait_until("it is paused", || {
        clock.forward(Duration::from_secs(60));
        found = server.get(&format!("/invocations/{id}"));
        found["status"] == "paused"
    });
    found
}

fn order(server: &Server, order: &str, ids: &[&str]) {
    let url = server.url();
    let done = millrace(&[&["invocations", order], ids, &["--url", &url]].concat());
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(ids.iter().all(|id| done.out.contains(id)), "{}", done.out);
}

#[test]
fn a_mistake_in_a_callee_is_in_sight_and_costs_nothing_once_it_is_mended() {
    let mut server = start_with(ServerOptions::examples(&[]));
    let id = server.send("steps/k/calls", "");
    let seen = failed(&server, &id, 2);
    let failure = &seen["failures"][0];
    assert_eq!((&seen["status"], &failure["kind"]), (&json!("running"), &json!("call")), "{seen}");
    assert_eq!((&failure["operation"], &failure["name"]), (&json!(2), &json!("work/k/mistaken")), "{seen}");
    assert_eq!(failure["error"]["code"], "function-failed", "{seen}");
    assert!(failure["error"]["detail"].as_str().is_some_and(|text| text.contains("TypeError")), "{seen}");
    assert!(failure["next_try_ms"].as_u64() >= failure["failed_ms"].as_u64(), "{seen}");
    server.kill();
    server.restart();
    failed(&server, &id, 3);
    assert_eq!(app(true).deploy(&server, "steps").status, 200);
    order(&server, "resume", &[&id]);
    let ended = server.ended(&id);
    assert_eq!((&ended["status"], &ended["output"]), (&json!("succeeded"), &json!(17)), "{ended}");
    assert_eq!((&ended["failures"], notes(&server, "k")), (&Value::Null, json!(["before", "between", "behind"])));
    let late = server.request("POST", &format!("/invocations/{id}/resume"), &[], b"");
    assert_problem(&late, 409, "workflow-ended");
}

#[test]
fn code_of_a_step_runs_again_and_what_it_has_called_is_not_called_again() {
    let server = start_with(ServerOptions::examples(&[]));
    let id = server.send("steps/k/steps", "");
    let ended = server.ended(&id);
    assert_eq!((&ended["status"], &ended["output"]), (&json!("succeeded"), &json!(3)), "{ended}");
    assert_eq!(notes(&server, "k"), json!(["before", "within", "behind"]), "{ended}");
    let declined = server.ended(&server.send("steps/k/declined", ""));
    assert_eq!(declined["output"], json!([true, "no cover", { "left": 3 }]), "{declined}");
}

#[test]
fn after_the_last_attempt_it_waits_for_somebody() {
    let Some(mut clock) = MovedClock::new() else { return };
    let mut options = ServerOptions::examples(&[]);
    clock.give(&mut options);
    let mut server = start_with(options);
    let start = |key: &str, handler: &str| server.send(&format!("steps/{key}/{handler}"), "");
    let (resumed, cancelled, killed, own) =
        (start("r", "calls"), start("c", "calls"), start("k", "calls"), start("o", "own"));
    for id in [&resumed, &cancelled, &killed, &own] {
        let seen = paused(&server, &mut clock, id);
        assert_eq!(seen["failures"][0]["attempts"], 16, "{seen}");
    }
    assert_eq!(server.get(&format!("/invocations/{own}"))["failures"][0]["kind"], "code");
    server.kill();
    server.restart();
    let listed = server.invocations("status=paused", 10);
    assert_eq!(listed.len(), 4, "{listed:?}");
    assert!(listed.iter().all(|one| one["failures"][0]["error"]["code"] == "function-failed"), "{listed:?}");
    assert_eq!(app(true).deploy(&server, "steps").status, 200);
    order(&server, "resume", &[&resumed]);
    order(&server, "cancel", &[&cancelled]);
    order(&server, "kill", &[&killed, &own]);
    assert_eq!(server.ended(&resumed)["output"], 17);
    for id in [&cancelled, &killed, &own] {
        let ended = server.ended(id);
        assert_eq!((&ended["status"], &ended["failures"]), (&json!("cancelled"), &Value::Null), "{ended}");
    }
    assert_eq!(notes(&server, "r"), json!(["before", "between", "behind"]));
    assert_eq!(notes(&server, "c"), json!(["before", "undone"]));
    assert_eq!(notes(&server, "k"), json!(["before"]));
    wait_until("none is left", || server.metric("millrace_workflows") == 0.0);
}
