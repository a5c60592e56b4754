//! Workflows, dead letters and schedules: listed, looked at, cancelled, signalled, retried, dropped.

use crate::support::{Client, Server, patient, wait_until};
use millrace_access::KeyFile;
use millrace_api::Role;
use millrace_base::limits;
use millrace_http::Options;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn asked(server: &Server) -> Vec<String> {
    std::mem::take(&mut *server.backend.shared.asked.lock().expect("no panic"))
}

/// Asks for what must be refused, and what the message must say.
fn refuse(client: &mut Client, request: &str, body: &str, code: &str, words: &str) {
    let document = client.ask(request, body.as_bytes()).assert_problem(code);
    let detail = document["detail"].as_str().expect("text");
    assert!(detail.contains(words), "{request} {body}: {detail}");
}

#[test]
fn a_workflow_is_shown_with_its_journal() {
    let server = Server::start(patient());
    let shown = server.ask("GET /invocations/running", b"").json();
    let expected = json!({
        "id": "running", "status": "running", "app": "trips", "service": "trip", "key": "ann", "handler": "book",
        "began_ms": 1_700_000_000_000_u64, "input": {"room": 7}, "waits_for": ["signal confirmed"],
        "journal": [
            {"operation": 1, "kind": "call", "name": "room/7/hold", "ended_ms": 1_700_000_000_001_u64, "error": {
                "type": "/errors/aborted", "title": "The function refused the call",
                "status": 409, "detail": "no room", "code": "aborted", "payload": {"left": 0},
            }},
            {"operation": 3, "kind": "step", "name": "choose", "ended_ms": 1_700_000_000_003_u64, "output": [8]},
            {"operation": 2, "kind": "sleep", "name": "", "ended_ms": 1_700_000_000_002_u64, "output": null},
        ],
    });
    assert_eq!(shown, expected);
    let head = server.ask("HEAD /invocations/running", b"");
    assert_eq!(head.status, 200);
}

#[test]
fn who_waits_for_an_end_is_answered_when_it_has_come() {
    let server = Server::start(patient());
    let ended = server.ask("GET /invocations/soon?wait_ms=60000", b"").json();
    assert_eq!((&ended["status"], ended["journal"].as_array().map(Vec::len)), (&json!("succeeded"), Some(3)));
    let look = |has_journal| format!("soon, journal: {has_journal}");
    assert_eq!(asked(&server), [look(false), look(false), look(false), look(false), look(true)]);
    // What has ended is not waited for.
    server.ask("GET /invocations/soon?wait_ms=60000", b"");
    assert_eq!(asked(&server), [look(false), look(true)]);
}

#[test]
fn who_waits_in_vain_is_told_how_far_it_is() {
    let server = Server::start(patient());
    let began = Instant::now();
    let shown = server.ask("GET /invocations/running?wait_ms=30", b"").json();
    assert!(began.elapsed() >= Duration::from_millis(30));
    assert_eq!((&shown["status"], shown["journal"].as_array().map(Vec::len)), (&json!("running"), Some(3)));
    assert!(asked(&server).len() > 2, "it has looked again");
    let mut client = server.connect();
    refuse(&mut client, "GET /invocations/running?wait_ms=60001", "", "bad-request", "wait_ms");
    refuse(&mut client, "GET /invocations/nothing?wait_ms=60000", "", "unknown-invocation", "nothing");
    assert_eq!(asked(&server), [""; 0]);
}

#[test]
fn a_server_that_stops_answers_who_waits_for_an_end() {
    let mut server = Server::start(patient());
    let mut waiting = server.connect();
    waiting.send(Client::request("GET /invocations/running?wait_ms=60000", b""));
    let asked = || server.backend.shared.asked.lock().expect("no panic").len();
    wait_until(|| asked() > 1, || "it does not wait".to_owned());
    server.join();
    assert_eq!(waiting.read_reply(true).json()["status"], "running");
}

#[test]
fn a_journal_of_large_results_makes_a_bounded_reply() {
    let server = Server::start(patient());
    let reply = server.ask("GET /invocations/long", b"");
    assert!(reply.body.len() < limits::PAGE_BYTES + 10_000, "{}", reply.body.len());
    let steps = reply.json()["journal"].as_array().expect("steps").clone();
    assert_eq!(steps.len(), 9);
    assert_eq!(steps[3]["output"].as_str().map(str::len), Some(4_000_000));
    assert_eq!((steps[8].get("output"), &steps[8]["output_bytes"]), (None, &json!(4_000_002)));
}

#[test]
fn workflows_are_listed_page_by_page() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let page = client.ask("GET /invocations", b"").json();
    assert_eq!(page["next"], Value::Null);
    let summary = json!({
        "id": "w/1", "status": "running", "app": "trips", "service": "trip", "key": "ann", "handler": "book",
        "began_ms": 1_700_000_000_000_u64,
    });
    assert_eq!(page["invocations"][0], summary, "no input, no journal");
    let error = &page["invocations"][1]["error"];
    assert_eq!((&error["code"], error.get("payload")), (&json!("aborted"), None));
    assert_eq!(page["invocations"].as_array().map(Vec::len), Some(2));
    let filtered = "GET /invocations?app=trips&service=trip&key=a%FF&handler=book&status=running&after=3%3A16&limit=2";
    assert_eq!(client.ask(filtered, b"").json()["next"], "3:17");
    let said = asked(&server);
    assert!(
        said[0].contains("app: None, service: None, key: None, handler: None, status: None, after: None, limit: 50"),
        "{said:?}"
    );
    for words in [
        r#"app: Some("trips"), service: Some("trip"), key: Some([97, 255]), handler: Some("book"),"#,
        r#"status: Some(Running), after: Some("3:16"), limit: 2"#,
    ] {
        assert!(said[1].contains(words), "{said:?}");
    }
}

#[test]
fn a_list_that_is_asked_for_wrongly_says_what_is_wrong() {
    let server = Server::start(patient());
    let mut client = server.connect();
    for (query, words) in [
        ("limit=0", "from 1 to 1000"),
        ("limit=1001", "from 1 to 1000"),
        ("limit=many", "from 1 to 1000"),
        ("limit=1&limit=2", "limit occurs twice"),
        ("after=", "after is empty"),
        ("key=", "key"),
        ("handler=no/name", "handler"),
        ("after=%f", "two hexadecimal digits"),
    ] {
        for list in ["invocations", "dead-letters", "schedules"] {
            refuse(&mut client, &format!("GET /{list}?{query}"), "", "bad-request", words);
        }
    }
    for (query, words) in [
        ("invocations?status=done", "expected one of `pending`"),
        ("invocations?status=", "expected one of"),
        ("invocations?status=Running", "expected one of"),
        ("invocations?service=a/b", "service: \"a/b\" is not a name"),
        ("invocations?app=", "app: \"\" is not a name"),
        ("invocations?state=running", "\"state\" means nothing here"),
        ("dead-letters?service=trip", "\"service\" means nothing here"),
        ("schedules?service=a/b", "service: \"a/b\" is not a name"),
        ("schedules?status=running", "\"status\" means nothing here"),
    ] {
        refuse(&mut client, &format!("GET /{query}"), "", "bad-request", words);
    }
    assert_eq!(asked(&server), Vec::<String>::new(), "nothing malformed reaches the node");
}

#[test]
fn what_failed_of_a_workflow_is_shown() {
    let server = Server::start(patient());
    let paused = server.ask("GET /invocations/paused", b"").json();
    assert_eq!(paused["status"], "paused");
    let failures = &paused["failures"];
    let error = &failures[0]["error"];
    assert_eq!((&error["code"], &error["payload"]), (&json!("aborted"), &Value::Null));
    let first = json!({
        "operation": 4, "kind": "call", "name": "room/7/hold", "attempts": 16, "failed_ms": 1_700_000_000_001_u64,
        "next_try_ms": 1_700_000_000_009_u64, "error": error,
    });
    assert_eq!(failures[0], first);
    assert_eq!((&failures[1]["kind"], &failures[1]["next_try_ms"]), (&json!("step"), &Value::Null));
    assert_eq!(server.ask("GET /invocations/running", b"").json()["failures"], Value::Null, "there are none");
}

#[test]
fn messages_that_are_tried_again_are_a_list_of_their_own() {
    let server = Server::start(patient());
    let waiting = server.ask("GET /dead-letters?waiting=true", b"").json();
    assert_eq!(waiting["dead_letters"][0]["next_try_ms"], 1_700_000_000_009_u64, "{waiting}");
    for query in ["", "?waiting=false"] {
        let dead = server.ask(&format!("GET /dead-letters{query}"), b"").json();
        assert_eq!(dead["dead_letters"][0]["next_try_ms"], Value::Null, "{dead}");
    }
    assert_eq!(server.ask("GET /dead-letters?waiting=perhaps", b"").status, 400);
}

#[test]
fn a_workflow_is_cancelled_and_signalled() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let cancelled = client.ask("POST /invocations/w%2F1/cancel", b"");
    assert_eq!((cancelled.status, cancelled.header("content-length")), (202, Some("0")));
    for order in ["kill", "resume"] {
        assert_eq!(client.ask(&format!("POST /invocations/w1/{order}"), b"").status, 202);
    }
    let body = br#"{"name": "confirmed", "payload": {"by" : 1}}"#;
    let signalled = client.ask("POST /invocations/w1/signal\nidempotency-key: k-1", body);
    assert_eq!((signalled.status, signalled.body.len(), signalled.header("location")), (202, 0, None));
    assert_eq!(client.ask("POST /invocations/w1/signal", br#"{"name":"go"}"#).status, 202);
    assert_eq!(
        asked(&server),
        ["Cancel w/1", "Kill w1", "Resume w1", r#"signal w1 confirmed {"by" : 1} k-1"#, "signal w1 go null -"],
        "a payload is passed on as it was written"
    );
    for order in ["cancel", "kill", "resume"] {
        let request = format!("POST /invocations/other/{order}");
        refuse(&mut client, &request, "", "unknown-invocation", "other");
    }
    refuse(&mut client, "POST /invocations/other/signal", r#"{"name":"go"}"#, "unknown-invocation", "other");
}

#[test]
fn a_signal_that_is_wrong_says_what_is_wrong() {
    let mut options = patient();
    options.limits.body_bytes = 1000;
    let server = Server::start(options);
    let mut client = server.connect();
    let mut refuse = |body: &str, code: &str, words: &str| {
        refuse(&mut client, "POST /invocations/w1/signal", body, code, words);
    };
    refuse("", "invalid-input", "EOF");
    refuse("confirmed", "invalid-input", "column 1");
    refuse("{}", "bad-request", "missing field `name`");
    refuse(r#"{"name":""}"#, "bad-request", "0 bytes");
    refuse(r#"{"name":"a","pay":1}"#, "bad-request", "unknown field `pay`");
    refuse(&format!(r#"{{"name":"{}"}}"#, "ä".repeat(129)), "bad-request", "258 bytes");
    let mut client = server.connect();
    let bad_key = "POST /invocations/w1/signal\nidempotency-key: a b";
    client.ask(bad_key, br#"{"name":"go"}"#).assert_problem("bad-request");
    client.ask("POST /invocations/%ff/signal", br#"{"name":"go"}"#).assert_problem("bad-request");
    client.ask("POST /invocations/w1/signal", &[b' '; 1001]).assert_problem("too-large");
    assert_eq!(asked(&server), Vec::<String>::new());
}

#[test]
fn dead_letters_are_listed_retried_and_dropped() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let page = client.ask("GET /dead-letters?after=d-0&limit=7", b"").json();
    assert_eq!(page["next"], Value::Null);
    let first = &page["dead_letters"][0];
    assert_eq!(first["error"]["detail"], "it threw");
    assert_eq!(
        (&first["key"], &first["input"], &first["attempts"]),
        (&json!({"base64": "/w=="}), &json!([1]), &json!(16))
    );
    let silent = json!({
        "id": "d-2", "app": "trips", "service": "trip", "key": {"base64": "/w=="}, "handler": "book", "input": null,
        "attempts": 16,
    });
    assert_eq!(page["dead_letters"][1], silent);
    assert_eq!(client.ask("POST /dead-letters/d-1/retry", b"").status, 202);
    assert_eq!(client.ask("DELETE /dead-letters/d-1", b"").status, 204);
    assert_eq!(asked(&server), [r#"dead letters Some("d-0") 7"#, "retry d-1", "drop d-1"]);
    refuse(&mut client, "DELETE /dead-letters/other", "", "unknown-invocation", "other");
    refuse(&mut client, "POST /dead-letters/d-1/drop", "", "unknown-route", "/dead-letters/{id}");
    client.ask("GET /dead-letters/d-1", b"").assert_problem("method-not-allowed");
    client.ask("POST /dead-letters", b"").assert_problem("method-not-allowed");
    client.ask("GET /dead-letters/d-1/x/y", b"").assert_problem("unknown-route");
}

#[test]
fn schedules_are_listed_page_by_page() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let expected = json!({"schedules": [
        {"app": "trips", "service": "trip", "name": "nightly", "key": "all", "handler": "book", "cron": "30 3 * * *",
         "due_ms": 1_700_000_000_000_u64},
        {"app": "trips", "service": "trip", "name": "odd", "key": {"base64": "/w=="}, "handler": "book",
         "cron": "30 3 * * *"},
    ], "next": null});
    assert_eq!(client.ask("GET /schedules", b"").json(), expected);
    let filtered = "GET /schedules?app=trips&service=trip&after=trips.trip.a&limit=2";
    assert_eq!(client.ask(filtered, b"").json()["next"], "trips.trip.odd");
    assert_eq!(client.ask("HEAD /schedules", b"").status, 200);
    let [all, some] = &asked(&server)[..2] else { panic!("two lists") };
    assert!(all.ends_with("{ app: None, service: None, after: None, limit: 50 }"), "{all}");
    let words = r#"{ app: Some("trips"), service: Some("trip"), after: Some("trips.trip.a"), limit: 2 }"#;
    assert!(some.ends_with(words), "{some}");
    client.ask("POST /schedules", b"").assert_problem("method-not-allowed");
    client.ask("GET /schedules/nightly", b"").assert_problem("unknown-route");
}

#[test]
fn the_node_decides_who_may_do_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    let mut file = KeyFile::default();
    let role = |text: &str| [Role::parse(text).expect("a role")];
    let trips = file.add("trips", &[1; 32], &role("call:trips/trip"), 0).expect("new");
    let other = file.add("other", &[2; 32], &role("call:shop/*"), 0).expect("new");
    file.save(&path).expect("saved");
    let server = Server::start(Options { keys: Some(path), ..patient() });
    let ask = |request: &str, body: &[u8], token: &str| {
        server.ask(&format!("{request}\nauthorization: Bearer {token}"), body)
    };
    for (request, body, status) in [
        ("POST /invocations/w/cancel", "", 202),
        ("POST /invocations/w/kill", "", 202),
        ("POST /invocations/w/resume", "", 202),
        ("POST /invocations/w/signal", r#"{"name":"go"}"#, 202),
        ("GET /dead-letters", "", 200),
        ("POST /dead-letters/d/retry", "", 202),
        ("DELETE /dead-letters/d", "", 204),
    ] {
        assert_eq!(ask(request, body.as_bytes(), &trips).status, status, "{request}");
        ask(request, body.as_bytes(), &other).assert_problem("forbidden");
        server.ask(request, body.as_bytes()).assert_problem("unauthorized");
    }
    assert_eq!(ask("GET /invocations", b"", &other).json(), json!({"invocations": [], "next": null}));
    assert_eq!(ask("GET /schedules", b"", &other).json(), json!({"schedules": [], "next": null}));
    assert_eq!(ask("GET /schedules", b"", &trips).json()["schedules"].as_array().map(Vec::len), Some(2));
    server.ask("GET /schedules", b"").assert_problem("unauthorized");
}
