//! Workers that dial in, over time: which version of an app serves, how long a connection may last, and who waits for it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use millrace_tests::worker::DialledWorker;
use millrace_tests::{Server, ServerOptions, assert_problem, wait_until};
use serde_json::{Value, json};

/// What a version serves: documents that differ are versions that differ.
fn services(version: u64) -> Value {
    let handler = |name: &str, kind: &str| json!({ "name": name, "kind": kind, "timeout_ms": 10_000 + version });
    json!([{ "name": "account", "handlers": [handler("version", "transaction"), handler("long", "workflow")] }])
}

/// A worker that answers with its version.
fn connect(server: &Server, version: u64) -> DialledWorker {
    let (worker, ready) =
        DialledWorker::connect(server.address(), "bank", services(version), move |_| Ok(json!(version)));
    assert!(ready.is_ok(), "{ready:?}");
    worker
}

#[test]
fn a_replaced_version_serves_again_only_when_nobody_else_does() {
    let mut server = Server::start(ServerOptions::examples(&[]));
    let old = connect(&server, 1);
    assert_eq!(server.value("account/a/version", "null"), 1);
    let new = connect(&server, 2);
    assert_eq!(server.value("account/a/version", "null"), 2);

    // The old one loses its connection, and dials in again; so do both when the server comes back, the old one first.
    drop(old);
    let old = connect(&server, 1);
    assert_eq!(server.value("account/a/version", "null"), 2);
    drop((old, new));
    server.kill();
    server.restart();
    let _old = connect(&server, 1);
    assert_problem(&server.call("account/a/version", "null"), 503, "worker-unavailable");
    let new = connect(&server, 2);
    assert_eq!(server.value("account/a/version", "null"), 2);

    // Somebody goes back to the old version.
    drop(new);
    let began = Instant::now();
    wait_until("the old version serves", || server.call("account/a/version", "null").status == 200);
    assert_eq!(server.value("account/a/version", "null"), 1);
    assert!(began.elapsed() > Duration::from_secs(8), "a short absence changes nothing");
    let _new = connect(&server, 2);
    assert_eq!(server.value("account/a/version", "null"), 1, "now the other one stands by");
}

#[test]
fn workers_that_dial_in_have_settings_that_their_next_version_keeps() {
    let mut server = Server::start(ServerOptions::examples(&[]));
    let give = |server: &Server, settings: &str| {
        let body = json!({ "settings": settings }).to_string();
        server.request("PUT", "/apps/bank", &["content-type: application/json"], body.as_bytes())
    };
    let small = "[limits]\ninput_bytes = 10\n";
    let large_input = |server: &Server| server.call("account/a/version", "\"more than ten bytes\"");
    assert_problem(&give(&server, small), 422, "app-refused");
    let old = connect(&server, 1);
    assert_problem(&give(&server, "[limits]\ninput = 10\n"), 422, "app-refused");
    assert_problem(&give(&server, "[workers.services]\nno_service = 2\n"), 422, "app-refused");
    let without = server.request("PUT", "/apps/bank", &["content-type: application/json"], b"{}");
    assert_problem(&without, 400, "bad-request");
    assert_eq!(large_input(&server).status, 200, "what was refused changes nothing");
    let given = give(&server, small);
    assert_eq!(given.status, 200, "{}", given.text());
    assert_problem(&large_input(&server), 413, "too-large");
    assert_eq!(server.value("account/a/version", "null"), 1, "the same worker serves");

    drop(old);
    let old = connect(&server, 1);
    assert_problem(&large_input(&server), 413, "too-large");
    let new = connect(&server, 2);
    assert_eq!(server.value("account/a/version", "null"), 2);
    assert_problem(&large_input(&server), 413, "too-large");
    drop((old, new));
    server.kill();
    server.restart();
    let _new = connect(&server, 2);
    assert_problem(&large_input(&server), 413, "too-large");
    assert_eq!(give(&server, "").status, 200);
    assert_eq!(large_input(&server).status, 200);
}

#[test]
fn a_workflow_without_a_worker_shows_that_and_goes_on_when_one_is_back() {
    let server = Server::start(ServerOptions::examples(&[]));
    drop(connect(&server, 1));
    let workflow = server.send("account/w/long", "null");
    let status = || server.get(&format!("/invocations/{workflow}"));
    // Long enough for pauses that double to be longer than two seconds.
    wait_until("it was tried some times", || status()["failures"][0]["attempts"].as_u64() >= Some(6));
    let failure = status()["failures"][0].clone();
    assert_eq!(
        (&failure["kind"], &failure["error"]["code"]),
        (&json!("code"), &json!("worker-unavailable")),
        "{failure}"
    );
    let pause_ms = |failure: &Value| failure["next_try_ms"].as_u64().zip(failure["failed_ms"].as_u64());
    let (next_ms, failed_ms) = pause_ms(&failure).expect("both times");
    assert!(next_ms - failed_ms <= 2_000, "{failure}");
    let _worker = connect(&server, 1);
    let began = Instant::now();
    assert_eq!(server.ended(&workflow)["output"], 1);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(status()["failures"], Value::Null, "{}", status());
}

#[test]
fn a_connection_that_says_nothing_does_not_stay() {
    let server = Server::start(ServerOptions::examples(&[]));
    let mut silent = TcpStream::connect(server.address()).expect("the server listens");
    let head = format!(
        "GET /workers/connect HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: millrace-worker\r\n\
         millrace-worker-protocol: 1\r\nmillrace-app: bank\r\n\r\n",
        server.address()
    );
    silent.write_all(head.as_bytes()).expect("sent");
    silent.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    let mut told = Vec::new();
    silent.read_to_end(&mut told).expect("the server ends it");
    let told = String::from_utf8_lossy(&told);
    assert!(told.starts_with("HTTP/1.1 101 ") && told.contains("request-timeout"), "{told}");
}
