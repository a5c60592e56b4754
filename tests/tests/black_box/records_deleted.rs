//! Types that are deleted while something is under way for them. Their sweeps and the timers of their records end
//! without a word. A type of the same name that is made later finds what they would have done. The attempts of
//! messages take minutes; a clock that the test moves makes them moments.

use std::sync::Barrier;
use std::time::Duration;

use millrace_tests::{Connection, MovedClock, Random, Server, ServerOptions, assert_problem, wait_until};
use rustix::process::{Pid, Signal, kill_process};
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
        // The request wakes every shard.
        let _ = server.get("/dead-letters");
        // Time for one attempt.
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
    // A sweep may be done before the type is gone, but not each time.
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
    // Each type is swept as a whole when it is there again, and its index is then used.
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
    // Only its name tells this type from the one before.
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

/// The statuses of three puts and of a deletion; `None` where no answer came.
type Raced = ([Option<u16>; 3], Option<u16>);

/// Deletes a type, and puts three records of it in the milliseconds that this takes. Does something else meanwhile.
fn race(server: &Server, name: &str, random: &mut Random, meanwhile: impl FnOnce()) -> Raced {
    let (barrier, address) = (&Barrier::new(5), server.address());
    let status = move |method: &str, path: String, body: &str, delay_us: u64| {
        let connection = Connection::open(address);
        barrier.wait();
        std::thread::sleep(Duration::from_micros(delay_us));
        connection.and_then(|mut open| open.request(method, &path, &[], body.as_bytes())).ok().map(|reply| reply.status)
    };
    std::thread::scope(|scope| {
        let puts = [1, 2, 3].map(|id| {
            let (body, delay_us) = (json!({ "count": id }).to_string(), random.below(4_000));
            scope.spawn(move || status("PUT", format!("/records/{name}/{id}"), &body, delay_us))
        });
        let deleted = scope.spawn(move || status("DELETE", format!("/schemas/{name}"), "", 0));
        barrier.wait();
        meanwhile();
        (puts.map(|put| put.join().expect("no panic")), deleted.join().expect("no panic"))
    })
}

/// Either the records came first, and the type is there. Or the type was gone, and none of them is there.
fn judge(server: &Server, name: &str, (puts, deleted): Raced) {
    let shown = format!("{name}: PUT {puts:?}, DELETE {deleted:?}");
    let is_there = server.request("GET", &format!("/schemas/{name}"), &[], b"").status == 200;
    match deleted {
        Some(204) => assert!(!is_there, "{shown}"),
        Some(409) => assert!(is_there, "{shown}"),
        None => {}
        _ => panic!("{shown}"),
    }
    for (put, id) in puts.iter().zip(1..) {
        // A record that comes in the moment between is told to try again.
        assert!(matches!(put, Some(201 | 404 | 503) | None), "{shown}");
        assert!(is_there || *put != Some(201), "the type is gone, its record was acknowledged: {shown}");
        if is_there && put.is_some() {
            let found = server.request("GET", &format!("/records/{name}/{id}"), &[], b"").status == 200;
            assert_eq!(found, *put == Some(201), "{shown}");
        }
    }
    if !is_there {
        send(server, "PUT", &format!("/schemas/{name}"), &json!({ "schema": schema() }));
        assert_eq!(server.get(&format!("/records/{name}"))["records"], json!([]), "out of reach: {shown}");
    }
    // Nothing under way is left: the type takes records, and goes once it has none.
    for id in 1..=3 {
        send(server, "PUT", &format!("/records/{name}/{id}"), &json!({}));
        send(server, "DELETE", &format!("/records/{name}/{id}"), &Value::Null);
    }
    assert_eq!(send(server, "DELETE", &format!("/schemas/{name}"), &Value::Null), 204);
}

#[test]
fn a_type_is_deleted_before_its_records_are_written_or_not_at_all() {
    let server = Server::start(ServerOptions::examples(&[]));
    let (mut deleted, mut random) = (0, Random::new());
    for round in 0..60 {
        let name = format!("race{round}");
        send(&server, "PUT", &format!("/schemas/{name}"), &json!({ "schema": schema() }));
        let raced = race(&server, &name, &mut random, || {});
        deleted += usize::from(raced.1 == Some(204));
        judge(&server, &name, raced);
    }
    println!("{deleted} times deleted, {} times in use", 60 - deleted);
}

#[test]
fn a_kill_while_a_type_is_deleted_leaves_the_type_or_takes_it_away() {
    let mut server = Server::start(ServerOptions::examples(&[]));
    let mut random = Random::new();
    for round in 0..15 {
        let name = format!("race{round}");
        send(&server, "PUT", &format!("/schemas/{name}"), &json!({ "schema": schema() }));
        let pid = Pid::from_raw(server.pid().cast_signed()).expect("a process");
        let kill_us = random.below(10_000);
        let raced = race(&server, &name, &mut random, || {
            std::thread::sleep(Duration::from_micros(kill_us));
            kill_process(pid, Signal::KILL).expect("it runs");
        });
        server.kill();
        server.restart();
        judge(&server, &name, raced);
    }
}
