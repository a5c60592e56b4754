//! Bounds on the core's time for requests about records. Other clients are served meanwhile, whatever is asked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millrace_tests::{Server, ServerOptions, StopOnDrop, assert_problem};
use serde_json::{Value, json};

/// Far above the time for which a core is held (some 10 ms), even on a busy machine. Far below the time without
/// bounds.
const BEARABLE: Duration = Duration::from_secs(5);

fn server() -> Server {
    let server = Server::start(ServerOptions::examples(&[]));
    let schema = json!({ "type": "record", "name": "R", "fields": [
        { "name": "n", "type": { "type": "array", "items": "int" }, "default": [] },
        { "name": "id", "type": { "type": "string", "logicalType": "uuid" } },
    ]});
    let made = send(&server, "PUT", "/schemas/r", &json!({ "schema": schema, "create": "touch" }));
    assert_eq!(made, 201);
    server
}

fn send(server: &Server, method: &str, path: &str, body: &Value) -> u16 {
    server.request(method, path, &[], body.to_string().as_bytes()).status
}

/// Runs `work` while records are read, one after the other. Returns the longest time of a read.
fn longest_read(server: &Server, work: impl FnOnce()) -> Duration {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = StopOnDrop(&is_done);
        let reader = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            for number in (0..40).cycle() {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                let start = Instant::now();
                let reply = server.request("GET", &format!("/records/r/small{number}"), &[], b"");
                assert_eq!(reply.status, 200);
                longest = longest.max(start.elapsed());
                std::thread::sleep(Duration::from_millis(2));
            }
            longest
        });
        work();
        drop(done);
        reader.join().expect("reads")
    })
}

#[test]
fn a_query_that_looks_at_everything_comes_in_pages_and_holds_up_nobody() {
    let server = server();
    let numbers: Vec<u32> = (0..150_000).map(|number| number % 60).collect();
    let body = json!({ "n": numbers });
    for number in 0..120 {
        assert_eq!(send(&server, "PUT", &format!("/records/r/{number}"), &body), 201);
    }
    assert_eq!(send(&server, "PUT", "/records/r/7", &json!({ "n": [61] })), 200);
    let (mut pages, mut found, mut cursor) = (0, Vec::new(), String::new());
    let longest = longest_read(&server, || {
        loop {
            let path = format!("/records/r?where=.n%7B.%20%3D%3D%3D%2061%7D&ids_only&cursor={cursor}");
            let start = Instant::now();
            let page = server.get(&path);
            assert!(start.elapsed() < BEARABLE, "a page took {:?}", start.elapsed());
            pages += 1;
            let records = page["records"].as_array().expect("records");
            found.extend(records.iter().map(|record| record["id"].as_str().expect("an id").to_owned()));
            match page["cursor"].as_str() {
                Some(next) => next.clone_into(&mut cursor),
                None => break,
            }
        }
    });
    assert_eq!(found, ["7"]);
    assert!((3..=120).contains(&pages), "{pages} pages");
    assert!(longest < BEARABLE, "a read took {longest:?}");
    println!("{pages} pages, the longest read meanwhile {longest:?}");
    // An order without an index would have to look at every record.
    let sorted = server.request("GET", "/records/r?where=.n%7B.%3D%3D%3D61%7D&order=.id", &[], b"");
    assert_problem(&sorted, 400, "bad-request");
    assert!(sorted.text().contains("declare an index on .id"), "{}", sorted.text());
}

#[test]
fn a_patch_of_many_operations_is_refused_before_it_holds_up_others() {
    let server = server();
    let numbers: Vec<u32> = (0..90_000).collect();
    assert_eq!(send(&server, "PUT", "/records/r/a", &json!({ "n": numbers })), 201);
    let tag = |reply: millrace_tests::Reply| reply.header("etag").map(str::to_owned);
    let before = tag(server.request("GET", "/records/r/a", &[], b""));
    for operation in [
        json!({ "op": "test", "path": ".{!(.n === -1)}" }),
        json!({ "op": "append-unique", "path": ".n", "value": 89_999 }),
        json!({ "op": "insert-all", "path": ".n", "value": [1, 2, 3] }),
    ] {
        let mut operations = vec![json!({ "op": "set", "path": ".n[0]", "value": 5 })];
        operations.resize(1000, operation.clone());
        let longest = longest_read(&server, || {
            let body = Value::from(operations).to_string();
            let reply = server.request("PATCH", "/records/r/a", &[], body.as_bytes());
            assert_problem(&reply, 400, "invalid-path");
            let text = reply.text();
            assert!(text.contains("operation ") && text.contains("the patch"), "{text}");
        });
        assert!(longest < BEARABLE, "{operation}: a read took {longest:?}");
        println!("{operation}: the longest read meanwhile {longest:?}");
    }
    assert_eq!(tag(server.request("GET", "/records/r/a", &[], b"")), before);
}

#[test]
fn an_array_is_no_object_in_any_body() {
    let server = server();
    assert_eq!(send(&server, "PUT", "/records/r/1", &json!({ "n": [1] })), 201);
    for (method, path, body) in [
        ("PATCH", "/records/r/1", json!([["set", ".n", [7]]])),
        ("PATCH", "/records/r/1", json!({ "operations": [["set", ".n", [7]]] })),
        ("POST", "/records/r/batch", json!([["1"]])),
        ("POST", "/records/r/batch", json!({ "ids": [["MQ=="]] })),
        ("PUT", "/schemas/r", json!({ "indexes": [["by_id", ".id"]] })),
        ("PUT", "/schemas/r", json!({ "changes": [5] })),
        ("PUT", "/schemas/r", json!({ "triggers": [["t", ".", "before", "1"]] })),
        ("PUT", "/schemas/r", json!({ "references": [["A", "a", 1]] })),
    ] {
        let reply = server.request(method, path, &[], body.to_string().as_bytes());
        assert_problem(&reply, 400, "bad-request");
    }
    assert_eq!(send(&server, "POST", "/subjects/s/versions", &json!(["\"int\""])), 400);
    assert_eq!(server.get("/records/r/1")["n"], json!([1]));
    let kind = server.get("/schemas/r");
    assert_eq!((&kind["indexes"], &kind["triggers"], &kind["changes"]), (&json!([]), &json!([]), &Value::Null));
}

#[test]
fn ids_and_uuids_are_checked() {
    let server = server();
    assert_eq!(send(&server, "PUT", &format!("/records/r/{}", "x".repeat(512)), &json!({})), 201);
    let long = server.request("PUT", &format!("/records/r/{}", "x".repeat(513)), &[], b"{}");
    assert!([400, 413].contains(&long.status) && long.text().contains("512"), "{}", long.text());
    for wrong in ["", "any text", "{550e8400-e29b-41d4-a716-446655440000}"] {
        let body = json!({ "id": wrong }).to_string();
        let reply = server.request("PUT", "/records/r/u", &[], body.as_bytes());
        assert_problem(&reply, 422, "wrong-type");
        assert!(reply.text().contains(".id"), "{}", reply.text());
    }
    let binary = server.request("PUT", "/records/r/u", &["Content-Type: avro/binary"], b"\x00\x04no");
    assert_problem(&binary, 422, "wrong-type");
    assert_eq!(server.get("/records/r/untouched")["id"], "00000000-0000-0000-0000-000000000000");
    assert_eq!(send(&server, "PUT", "/records/r/u", &json!({ "id": "550e8400-e29b-41d4-a716-446655440000" })), 201);
}
