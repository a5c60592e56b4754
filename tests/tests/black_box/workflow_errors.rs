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

  chosen: workflow((ctx) =>
    ctx.call("work", ctx.key, "mistaken", "x", { retry: { attempts: 3, firstMs: 1, longestMs: 1 } })),

  endless: workflow((ctx) => ctx.step("40th time lucky", () => {
    tries += 1;
    if (tries < 40) throw new TypeError(`try ${tries}`);
    return tries;
  }, { retry: { attempts: Infinity, firstMs: 1, longestMs: 2 } })),

  wrong: workflow(async (ctx) => {
    const told = [];
    for (const retry of [{ attempts: 0 }, { attempts: "many" }, { firstMs: 0 }, { first: 1 }, 3]) {
      try {
        await ctx.step("x", () => 1, { retry } as any);
      } catch (error: any) {
        told.push(error.name);
      }
    }
    return told;
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
    wait_until("they are counted", || server.metric("millrace_paused_workflows") == 4.0);
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
    wait_until("none is paused", || server.metric("millrace_paused_workflows") == 0.0);
}

const RETRY: &str = r#"
[retry]
attempts = 2
first_ms = 1
longest_ms = 5
resume_on_deploy = true

[retry.handlers."work/mistaken"]
attempts = 4
"#;

#[test]
fn how_often_is_up_to_the_app_the_handler_the_call_and_the_step() {
    let server = Server::start(ServerOptions::examples(&[]));
    let deploy = |is_mended: bool| app(is_mended).and("millrace.toml", RETRY).deploy(&server, "steps").status;
    assert_eq!(deploy(false), 201);
    let start = |key: &str, handler: &str| server.send(&format!("steps/{key}/{handler}"), "");
    let endless = server.ended(&start("e", "endless"));
    assert_eq!(endless["output"], 40, "{endless}");
    let wrong = server.ended(&start("w", "wrong"));
    assert_eq!(wrong["output"], json!(["TypeError", "TypeError", "TypeError", "TypeError", "TypeError"]), "{wrong}");
    let mut ids = Vec::new();
    for (handler, attempts) in [("own", 2), ("calls", 4), ("chosen", 3)] {
        let id = start(handler, handler);
        let mut seen = Value::Null;
        wait_until("it is paused", || {
            seen = server.get(&format!("/invocations/{id}"));
            seen["status"] == "paused"
        });
        assert_eq!(seen["failures"][0]["attempts"], attempts, "{seen}");
        ids.push(id);
    }
    let letter = server.send("work/m/mistaken", "1");
    wait_until("the message is a dead letter", || server.dead_letters().len() == 1);
    // Those that can go on do so by themselves.
    assert_eq!(deploy(true), 200);
    for id in &ids[1..] {
        assert_eq!(server.ended(id)["output"], 17);
    }
    wait_until("the message took effect", || server.dead_letters().is_empty());
    assert_eq!(server.ended(&letter)["output"], 17);
    // What still fails is given up, all at once.
    wait_until("it is paused again", || server.get(&format!("/invocations/{}", ids[0]))["status"] == "paused");
    let done = millrace(&["invocations", "kill", "--service", "steps", "--status", "paused", "--url", &server.url()]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(server.ended(&ids[0])["status"], "cancelled");
    let late = millrace(&["invocations", "cancel", &ids[1], "--url", &server.url()]);
    assert!(late.out.contains("had ended, and stays as it is: succeeded"), "{} {}", late.out, late.err);
}

#[test]
fn a_message_is_in_sight_from_its_first_failure_on_and_is_given_up_while_it_waits() {
    let server = start_with(ServerOptions::examples(&[]));
    let id = server.send("work/k/mistaken", "1");
    let seen = failed(&server, &id, 2);
    let failure = &seen["failures"][0];
    assert_eq!((&seen["status"], &failure["kind"]), (&json!("pending"), &json!("send")), "{seen}");
    assert_eq!(failure["name"], "work/k/mistaken", "{seen}");
    assert!(failure["next_try_ms"].as_u64() > failure["failed_ms"].as_u64(), "{seen}");
    let waiting = server.get("/dead-letters?waiting=true");
    let one = &waiting["dead_letters"][0];
    assert_eq!((&one["handler"], &one["error"]["code"]), (&json!("mistaken"), &json!("function-failed")), "{waiting}");
    assert!(one["next_try_ms"].as_u64().is_some(), "{waiting}");
    let url = server.url();
    let listed = millrace(&["dead-letters", "--waiting", "--url", &url]);
    assert!(listed.out.contains("NEXT TRY") && listed.out.contains("work/k/mistaken"), "{}{}", listed.out, listed.err);
    let other = server.send("work/other/mistaken", "1");
    failed(&server, &other, 2);
    wait_until("both are counted", || server.metric("millrace_failing_messages") == 2.0);
    let cancel = |id: &str| server.request("POST", &format!("/invocations/{id}/cancel"), &[], b"").status;
    wait_until("it is given up between two attempts", || cancel(&id) == 202);
    assert_eq!(server.ended(&id)["error"]["code"], "cancelled");
    let waiting = server.get("/dead-letters?waiting=true");
    let left = waiting["dead_letters"].as_array().expect("a list");
    assert_eq!(left.len(), 1, "{waiting}");
    let left = left[0]["id"].as_str().expect("an id").to_owned();
    // Its next try is seconds away then, so that it is not made before somebody asks for it.
    failed(&server, &other, 6);
    assert_eq!(app(true).deploy(&server, "steps").status, 200);
    let retried = millrace(&["dead-letters", "--retry", &left, "--url", &url]);
    assert_eq!(retried.code, Some(0), "{}", retried.err);
    assert_eq!(server.ended(&other)["output"], 17);
    assert_eq!((notes(&server, "k"), notes(&server, "other")), (json!([]), json!([1])));
    wait_until("none is left", || server.metric("millrace_failing_messages") == 0.0);
    assert_problem(&server.request("GET", "/dead-letters?waiting=perhaps", &[], b""), 400, "bad-request");
}
