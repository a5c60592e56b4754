//! Workflows whose callers chose their ids, and workflows that wait for others, while the server is killed.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use millrace_tests::{Random, Server, ServerOptions, TestApp, assert_problem, millrace};
use serde_json::{Value, json};

const ORDERS: &str = r#"
import { service, query, workflow, Abort } from "millrace";

export default service({
  note(ctx, text) {
    ctx.set("notes", [...(ctx.get("notes") ?? []), text]);
  },
  notes: query((ctx) => ctx.get("notes") ?? []),
  /** Starts one from a transaction. */
  start(ctx, { id, input }) {
    return ctx.send("orders", ctx.key, "order", input, { id });
  },
  waits(ctx) {
    return ctx.result("order-17");
  },
  order: workflow(async (ctx, { fails, sleepMs = 0 }) => {
    if (sleepMs > 0) await ctx.sleep(sleepMs);
    await ctx.call("orders", "all", "note", ctx.id);
    if (fails) throw new Abort("sold out", { left: 0 });
    return `${ctx.key} has ${ctx.id}`;
  }),
  go: workflow((ctx) => ctx.wait("go")),

  /** Waits for three that it starts. Notes when it is over. */
  family: workflow(async (ctx) => {
    const start = (child, input) => ctx.send("orders", child, "order", input, { id: `${ctx.id}-${child}` });
    start("a", { sleepMs: 40 });
    start("b", {});
    const own = ctx.send("orders", "c", "order", { fails: true });
    const outputs = await Promise.all(["a", "b"].map((child) => ctx.result(`${ctx.id}-${child}`)));
    outputs.push(await ctx.result(own).catch((error) => [error instanceof Abort, error.message, error.payload]));
    start("a", { sleepMs: 40 });
    await ctx.call("orders", ctx.key, "note", "over");
    return outputs;
  }),
  limited: workflow((ctx) => ctx.result("nobody-starts-it", { timeoutMs: 20 }).catch((error) => error.code)),
});
"#;

fn start() -> Server {
    let server = Server::start(ServerOptions::examples(&[]));
    let reply = TestApp::with("orders.ts", ORDERS).deploy(&server, "orders");
    assert_eq!(reply.status, 201, "{}", reply.text());
    server
}

fn notes(server: &Server, key: &str) -> Value {
    server.value(&format!("orders/{key}/notes"), "")
}

#[test]
fn it_starts_once_and_is_found_by_its_id() {
    let mut server = start();
    let path = "/send/orders/ann/order?id=order-17";
    for _ in 0..2 {
        let reply = server.request("POST", path, &[], b"{}");
        assert_eq!((reply.status, reply.json()["id"].as_str()), (202, Some("order-17")), "{}", reply.text());
        assert_eq!(reply.header("location"), Some("/invocations/order-17"));
    }
    let by_code = server.value("orders/ann/start", r#"{"id":"order-17","input":{}}"#);
    assert_eq!(by_code, "order-17");
    let by_command = ["call", "--send", "--id", "order-17", "orders/ann/order", "{}", "--url", &server.url()];
    let by_command = millrace(&by_command);
    assert_eq!((by_command.code, by_command.out.trim()), (Some(0), "order-17"), "{}", by_command.err);
    let ended = server.ended("order-17");
    assert_eq!((&ended["id"], &ended["output"]), (&json!("order-17"), &json!("ann has order-17")));
    server.kill();
    server.restart();
    assert_eq!(server.request("POST", path, &[], b"{}").status, 202);
    let other = server.request("POST", path, &[], br#"{"fails":true}"#);
    assert_problem(&other, 422, "idempotency-mismatch");
    assert_problem(
        &server.request("POST", "/send/orders/bob/order?id=order-17", &[], b"{}"),
        422,
        "idempotency-mismatch",
    );
    let not_one = server.request("POST", "/send/orders/bob/note?id=order-18", &[], b"{}");
    assert_problem(&not_one, 400, "bad-request");
    assert_eq!(notes(&server, "all"), json!(["order-17"]));
    let listed = server.invocations("service=orders&key=ann", 10);
    assert_eq!(listed.iter().map(|one| one["id"].clone()).collect::<Vec<_>>(), [json!("order-17")]);
    let reply = server.request("POST", "/call/orders/ann/waits", &[], b"null");
    assert_problem(&reply, 500, "function-failed");
}

#[test]
fn it_is_signalled_and_cancelled_by_its_id() {
    let server = start();
    for (id, how) in [("signalled", "signal"), ("cancelled", "cancel")] {
        assert_eq!(server.request("POST", &format!("/send/orders/k/go?id={id}"), &[], b"null").status, 202);
        let body = br#"{"name":"go","payload":7}"#;
        let body = if how == "signal" { &body[..] } else { b"" };
        assert_eq!(server.request("POST", &format!("/invocations/{id}/{how}"), &[], body).status, 202);
    }
    assert_eq!(server.ended("signalled")["output"], 7);
    assert_eq!(server.ended("cancelled")["status"], "cancelled");
    assert_problem(&server.request("GET", "/invocations/nobody", &[], b""), 404, "unknown-invocation");
}

#[test]
fn nobody_waits_longer_than_he_wants() {
    let server = start();
    assert_eq!(server.ended(&server.send("orders/k/limited", ""))["output"], "wait-limit");
}

#[test]
fn whoever_waits_gets_each_outcome_once_however_often_the_server_is_killed() {
    let mut server = start();
    let mut random = Random::of(7);
    let mut ids = Vec::new();
    for round in 0..6 {
        for number in 0..8 {
            let id = format!("family-{round}-{number}");
            let reply = server.request("POST", &format!("/send/orders/{id}/family?id={id}"), &[], b"null");
            assert_eq!(reply.status, 202, "{}", reply.text());
            ids.push(id);
        }
        // A moment at which some wait, some have ended, and some have yet to begin.
        sleep(Duration::from_millis(random.below(60)));
        server.kill();
        server.restart();
    }
    for id in &ids {
        let ended = server.ended(id);
        let outputs = json!([format!("a has {id}-a"), format!("b has {id}-b"), [true, "sold out", {"left": 0}]]);
        assert_eq!((&ended["status"], &ended["output"]), (&json!("succeeded"), &outputs), "{ended}");
        assert_eq!(notes(&server, id), json!(["over"]));
    }
    let noted = notes(&server, "all");
    let noted: Vec<&str> = noted.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(noted.len(), 3 * ids.len(), "each child did its work once");
    assert_eq!(noted.iter().collect::<BTreeSet<_>>().len(), noted.len());
}
