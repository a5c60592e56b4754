//! A workflow that has ended, or is paused, begins again when somebody wants it to: once, over `kill -9` too.

use millrace_tests::{Reply, Server, ServerOptions, TestApp, assert_problem, millrace, wait_until};
use serde_json::{Value, json};

const WORK: &str = r#"
import { service, query, Abort } from "millrace";

export default service({
  note(ctx, text) {
    ctx.set("notes", [...(ctx.get("notes") ?? []), text]);
  },
  notes: query((ctx) => ctx.get("notes") ?? []),
  open(ctx) { ctx.set("is_open", true); },
  fail(ctx) {
    if (!ctx.get("is_open")) throw new TypeError("it is closed");
  },
  pass(ctx) {
    if (!ctx.get("is_open")) throw new Abort("it is closed");
    return "passed";
  },
});
"#;

const STEPS: &str = r#"
import { service, workflow } from "millrace";

export default service({
  plain: workflow(async (ctx) => {
    const drawn = ctx.uuid();
    await ctx.call("work", ctx.key, "note", "before");
    await ctx.step("pick", () => 1);
    await ctx.call("work", ctx.key, "note", "behind");
    return [drawn, await ctx.call("work", "gate", "pass")];
  }),
  saga: workflow(async (ctx) => {
    ctx.compensate("work", ctx.key, "note", "undone");
    await ctx.call("work", ctx.key, "note", "done");
    return ctx.call("work", "gate", "pass");
  }),
  waits: workflow((ctx) => ctx.wait("go")),
  pauses: workflow(async (ctx) => {
    await ctx.call("work", "gate", "fail", null, { retry: { attempts: 1 } });
    return 1;
  }),
});
"#;

fn deploy(server: &Server, steps: &str) {
    let reply = TestApp::with("work.ts", WORK).and("steps.ts", steps).deploy(server, "steps");
    assert!([200, 201].contains(&reply.status), "{}", reply.text());
}

fn start() -> Server {
    let server = Server::start(ServerOptions::examples(&[]));
    deploy(&server, STEPS);
    server
}

fn notes(server: &Server, key: &str) -> Value {
    server.value(&format!("work/{key}/notes"), "")
}

fn restart(server: &Server, arguments: &[&str]) -> String {
    let url = server.url();
    let done = millrace(&[&["invocations", "restart"], arguments, &["--url", &url]].concat());
    assert_eq!(done.code, Some(0), "{}", done.err);
    done.out
}

fn asked(server: &Server, id: &str, query: &str) -> Reply {
    server.request("POST", &format!("/invocations/{id}/restart{query}"), &[], b"")
}

#[test]
fn each_restart_counts_once_whenever_the_server_is_killed() {
    let mut server = start();
    let id = server.send("steps/k/plain", "");
    assert_eq!(server.ended(&id)["status"], "failed");
    assert_eq!(notes(&server, "k"), json!(["before", "behind"]));
    let mut expected = vec!["before", "behind"];
    for _ in 0..3 {
        restart(&server, &[&id, "--from", "pick"]);
        server.kill();
        server.restart();
        let ended = server.ended(&id);
        assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("aborted")), "{ended}");
        expected.push("behind");
        assert_eq!(notes(&server, "k"), json!(expected));
    }
    restart(&server, &[&id]);
    server.kill();
    server.restart();
    assert_eq!(server.ended(&id)["status"], "failed");
    expected.extend(["before", "behind"]);
    assert_eq!(notes(&server, "k"), json!(expected));
    assert_eq!(server.value("work/gate/open", ""), Value::Null);
    restart(&server, &[&id, "--from", "work/gate/pass"]);
    let first = server.ended(&id);
    assert_eq!((&first["status"], &first["output"][1]), (&json!("succeeded"), &json!("passed")), "{first}");
    assert_eq!(notes(&server, "k"), json!(expected), "nothing before that step is done again");
    restart(&server, &[&id]);
    let second = server.ended(&id);
    expected.extend(["before", "behind"]);
    assert_eq!((&second["status"], notes(&server, "k")), (&json!("succeeded"), json!(expected)));
    assert_ne!(first["output"][0], second["output"][0], "another run draws something else");
}

#[test]
fn what_is_undone_is_done_again_from_the_beginning_and_what_runs_is_refused() {
    let server = start();
    let ids = ["a", "b"].map(|key| server.send(&format!("steps/{key}/saga"), ""));
    for (id, key) in ids.iter().zip(["a", "b"]) {
        assert_eq!(server.ended(id)["status"], "failed");
        assert_eq!(notes(&server, key), json!(["done", "undone"]));
    }
    assert_problem(&asked(&server, &ids[0], "?from=work%2Fgate%2Fpass"), 400, "bad-request");
    assert_problem(&asked(&server, &ids[0], "?from="), 400, "bad-request");
    assert_problem(&asked(&server, &ids[0], "?on_newest=perhaps"), 400, "bad-request");
    let waiting = server.send("steps/w/waits", "");
    assert_problem(&asked(&server, &waiting, ""), 409, "workflow-running");
    let pending = server.request("POST", "/send/steps/w/waits?delay_ms=60000", &[], b"");
    let pending = pending.json()["id"].as_str().expect("an id").to_owned();
    assert_problem(&asked(&server, &pending, ""), 409, "workflow-running");
    let unknown = waiting.replace(|digit: char| digit.is_ascii_digit(), "0");
    assert_problem(&asked(&server, &unknown, ""), 404, "unknown-invocation");

    assert_eq!(server.value("work/gate/open", ""), Value::Null);
    let told = restart(&server, &["--status", "failed", "--service", "steps", "--handler", "saga"]);
    assert!(ids.iter().all(|id| told.contains(id.as_str())) && !told.contains(waiting.as_str()), "{told}");
    for (id, key) in ids.iter().zip(["a", "b"]) {
        let ended = server.ended(id);
        assert_eq!((&ended["status"], &ended["output"]), (&json!("succeeded"), &json!("passed")), "{ended}");
        assert_eq!(notes(&server, key), json!(["done", "undone", "done"]));
    }
    let cancelled = server.request("POST", &format!("/invocations/{waiting}/cancel"), &[], b"");
    assert_eq!(cancelled.status, 202);
    assert_eq!(server.ended(&waiting)["status"], "cancelled");
    assert_eq!(asked(&server, &waiting, "").status, 202);
    assert_eq!(server.get(&format!("/invocations/{waiting}"))["status"], "running");
}

#[test]
fn it_runs_in_its_own_version_or_in_the_newest() {
    let server = start();
    let ids = ["own", "newest"].map(|key| server.send(&format!("steps/{key}/pauses"), ""));
    for id in &ids {
        wait_until("it is paused", || server.get(&format!("/invocations/{id}"))["status"] == "paused");
    }
    deploy(&server, &STEPS.replace("return 1;", "return 2;"));
    assert_eq!(server.value("work/gate/open", ""), Value::Null);
    restart(&server, &[&ids[0], "--from", "work/gate/fail"]);
    restart(&server, &[&ids[1], "--on-newest"]);
    assert_eq!(ids.map(|id| server.ended(&id)["output"].clone()), [json!(1), json!(2)]);
}
