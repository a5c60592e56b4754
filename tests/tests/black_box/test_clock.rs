//! A node that was started with a clock for tests: an administrator moves it ahead, and what is due happens. It never goes
//! back, and no other node has such a clock.

use millrace_tests::{Server, ServerOptions, TestApp, assert_problem, wait_until};
use serde_json::json;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

const APP: &str = r#"
import { service, query, workflow } from "millrace";

export default service({
  ring(ctx) {
    ctx.set("rung", [...(ctx.get("rung") ?? []), ctx.now()]);
    return ctx.get("rung").length;
  },
  rung: query((ctx) => ctx.get("rung") ?? []),
  time(ctx) {
    ctx.set("at", ctx.now());
    return ctx.now();
  },
  rest: workflow(async (ctx, ms) => {
    const before = ctx.now();
    await ctx.sleep(ms);
    return ctx.now() - before;
  }),
  patient: workflow((ctx, timeoutMs) => ctx.wait("go", { timeoutMs })),
});

export const schedules = { hourly: { cron: "0 * * * *", key: "tower", handler: "ring" } };
"#;

fn start(arguments: &[&str]) -> Server {
    let server = Server::start(ServerOptions::examples(&[]).with(arguments));
    assert_eq!(TestApp::with("bell.ts", APP).deploy(&server, "bell").status, 201);
    server
}

fn advance(server: &Server, by_ms: u64) -> u64 {
    let body = json!({ "advance_ms": by_ms }).to_string();
    let reply = server.request("POST", "/clock.json", &[], body.as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["ahead_ms"].as_u64().expect("a number")
}

fn time(server: &Server) -> u64 {
    server.value("bell/clock/time", "").as_u64().expect("a time")
}

#[test]
fn what_is_due_after_the_clock_was_moved_happens_at_once() {
    let server = start(&["--test-clock"]);
    let (rest, patient) = (server.send("bell/a/rest", &DAY_MS.to_string()), server.send("bell/b/patient", "600000"));
    let later = server.request("POST", "/send/bell/c/ring?delay_ms=7200000", &[], b"");
    assert_eq!(later.status, 202, "{}", later.text());
    let keyed = || server.request("POST", "/call/bell/d/ring", &["Idempotency-Key: once"], b"").text();
    assert_eq!((keyed(), keyed()), ("1".to_owned(), "1".to_owned()));
    let waits =
        |id: &str| server.get(&format!("/invocations/{id}"))["waits_for"].as_array().is_some_and(|on| !on.is_empty());
    wait_until("both wait", || waits(&rest) && waits(&patient));
    let before = time(&server);

    assert_eq!(advance(&server, 0), 0);
    assert_eq!(advance(&server, 10 * MINUTE_MS), 10 * MINUTE_MS);
    assert_eq!(server.ended(&patient)["error"]["code"], "wait-limit", "its ten minutes are over");
    assert!(time(&server) >= before + 10 * MINUTE_MS);
    assert_eq!(server.value("bell/c/rung", ""), json!([]), "not yet");

    assert_eq!(advance(&server, 2 * HOUR_MS), 130 * MINUTE_MS);
    wait_until("the message comes", || server.value("bell/c/rung", "").as_array().is_some_and(|rung| rung.len() == 1));
    wait_until("the schedule is done", || !server.value("bell/tower/rung", "").as_array().is_none_or(Vec::is_empty));
    assert_eq!(keyed(), "1", "the key is kept for a day");

    advance(&server, DAY_MS);
    let slept = server.ended(&rest)["output"].as_u64().expect("a time");
    assert!((DAY_MS..2 * DAY_MS).contains(&slept), "{slept}");
    wait_until("the key is forgotten", || keyed() != "1");
}

/// Otherwise a time would be missed that comes within a second of a deployment, and that `GET /schedules` had announced.
#[test]
fn a_schedule_begins_before_its_deployment_is_answered() {
    let server = start(&["--test-clock"]);
    let announced = server.get("/schedules")["schedules"][0]["due_ms"].as_u64().expect("a time");
    advance(&server, HOUR_MS);
    wait_until("it is called", || server.value("bell/tower/rung", "").as_array().is_some_and(|rung| rung.len() == 1));
    assert!(server.value("bell/tower/rung", "")[0].as_u64().is_some_and(|rung| rung >= announced));
}

#[test]
fn time_stays_ahead_over_a_restart() {
    let mut server = start(&["--test-clock"]);
    advance(&server, DAY_MS);
    let (before, rest) = (time(&server), server.send("bell/a/rest", &DAY_MS.to_string()));
    server.kill();
    server.options().arguments.retain(|argument| argument != "--test-clock");
    server.options().arguments.push(format!("--test-clock={DAY_MS}"));
    server.restart();
    assert!((before..before + HOUR_MS).contains(&time(&server)));
    assert_eq!(advance(&server, DAY_MS), 2 * DAY_MS);
    assert!(server.ended(&rest)["output"].as_u64().is_some_and(|slept| slept >= DAY_MS));

    // The machine's clock is two days behind then. The time of a key goes on from where it was.
    let last = time(&server);
    assert!(last >= before + DAY_MS);
    server.kill();
    server.options().arguments.retain(|argument| !argument.starts_with("--test-clock"));
    server.restart();
    assert!((last..last + HOUR_MS).contains(&time(&server)));
    assert_problem(&server.request("POST", "/clock.json", &[], b"{\"advance_ms\":1}"), 404, "unknown-route");
}

#[test]
fn the_clock_of_a_node_is_moved_on_purpose_only() {
    let server = start(&[]);
    assert_problem(&server.request("POST", "/clock.json", &[], b"{\"advance_ms\":1}"), 404, "unknown-route");
    assert_eq!(server.request("GET", "/readyz", &[], b"").text(), "ok\n");
    assert!(!server.errors().contains("TEST CLOCK"));
    drop(server);

    let server = start(&["--test-clock"]);
    assert_eq!(server.request("GET", "/readyz", &[], b"").text(), "ok, with a clock that tests move\n");
    assert!(server.errors().contains("TEST CLOCK"), "{}", server.errors());
    let too_far = json!({ "advance_ms": u64::MAX }).to_string();
    for wrong in
        ["", "1", "[]", "{}", r#"{"advance_ms":-1}"#, r#"{"advance_ms":1.5}"#, r#"{"advance_ms":1,"x":1}"#, &too_far]
    {
        assert_problem(&server.request("POST", "/clock.json", &[], wrong.as_bytes()), 400, "bad-request");
    }
    assert_eq!(advance(&server, 0), 0, "what is refused moves nothing");
}
