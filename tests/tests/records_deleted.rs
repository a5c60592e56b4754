//! Types that are deleted while something is under way for them: their sweeps and the timers of their records
//! end without a word, and a type of the same name that is made later finds what they would have done. A clock
//! that the test moves makes the attempts of messages, which take minutes, moments.

use std::time::Duration;

use millrace_tests::{MovedClock, Server, ServerOptions, assert_problem, wait_until};
use serde_json::{Value, json};

fn send(server: &Server, method: &str, path: &str, body: &Value) -> u16 {
    let reply = server.request(method, path, &[], body.to_string().as_bytes());
    assert!(reply.status < 300, "{method} {path}: {} {}", reply.status, reply.text());
    reply.status
}

fn schema() -> Value {
    json!({ "type": "record", "name": "Item", "fields": [{ "name": "count", "type": "int", "default": 0 }] })
}

/// Lets a message that always fails go through all its attempts.
fn let_attempts_pass(server: &Server, clock: &mut MovedClock) {
    for _ in 0..60 {
        clock.forward(Duration::from_secs(60));
        // Asking wakes every shard.
        let _ = server.get("/dead-letters");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn assert_nothing_failed(server: &Server) {
    assert_eq!(server.metric("millrace_failed_attempts_total"), 0.0, "{}", server.errors());
    assert_eq!(server.get("/dead-letters")["dead_letters"], json!([]));
}

fn start() -> Option<(Server, MovedClock)> {
    let clock = MovedClock::new()?;
    let mut options = ServerOptions::examples(&[]);
    clock.give(&mut options);
    Some((Server::start(options), clock))
}

#[test]
fn a_type_deleted_right_after_a_change_leaves_no_failing_sweeps() {
    let Some((server, mut clock)) = start() else { return };
    // A sweep may be done before the type is gone; not each time.
    for round in 0..6 {
        let path = format!("/schemas/item{round}");
        send(&server, "PUT", &path, &json!({ "schema": schema() }));
        for id in 0..50 {
            send(&server, "PUT", &format!("/records/item{round}/{id}"), &json!({ "count": id }));
        }
        send(&server, "PUT", &path, &json!({ "indexes": [{ "name": "by_count", "path": ".count" }] }));
        assert_eq!(send(&server, "DELETE", &format!("{path}?force=true"), &Value::Null), 204);
    }
    let_attempts_pass(&server, &mut clock);
    assert_nothing_failed(&server);
    // Each is swept as a whole when it is there again, and its index then used.
    send(
        &server,
        "PUT",
        "/schemas/item0",
        &json!({ "schema": schema(), "indexes": [{ "name": "by_count", "path": ".count" }] }),
    );
    let query = "/records/item0?where=.count%20%3D%3D%3D%207&explain=true";
    wait_until("the index is used", || server.get(query)["plan"] == "index");
    assert_nothing_failed(&server);
}

#[test]
fn records_that_expired_without_their_type_go_soon_after_it_is_made_again() {
    let Some((server, mut clock)) = start() else { return };
    // Nothing but its name tells this type from the one before.
    let settings = json!({ "schema": schema(), "ttl_ms": 30_000 });
    send(&server, "PUT", "/schemas/item", &settings);
    for id in 0..100 {
        send(&server, "PUT", &format!("/records/item/{id}"), &json!({ "count": id }));
    }
    assert_problem(&server.request("DELETE", "/schemas/item", &[], b""), 409, "type-in-use");
    assert_eq!(send(&server, "DELETE", "/schemas/item?force=true", &Value::Null), 204);
    let_attempts_pass(&server, &mut clock);
    assert_nothing_failed(&server);
    send(&server, "PUT", "/schemas/item", &settings);
    wait_until("no record is left", || server.request("DELETE", "/schemas/item", &[], b"").status == 204);
    assert_nothing_failed(&server);
}
