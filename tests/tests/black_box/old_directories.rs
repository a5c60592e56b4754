//! A data directory that an earlier version left behind opens with everything in it. `tests/directories` holds them.

use std::path::PathBuf;
use std::process::Command;

use millrace_tests::{Reply, Server, ServerOptions, assert_problem, repository, wait_until};
use serde_json::json;

fn folder(version: &str) -> PathBuf {
    repository().join("tests/directories").join(version)
}

/// A copy of the directory, served by the server of today.
fn open(version: &str, copy: &tempfile::TempDir) -> Server {
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(folder(version).join("data.tar.gz")).arg("-C").arg(copy.path());
    assert!(unpack.status().expect("tar runs").success());
    let mut options = ServerOptions::examples(&[]);
    options.apps.push(folder(version).join("app"));
    options.folder = Some(copy.path().to_owned());
    // Results are kept for so long that the test's keys have not expired.
    Server::start(options.with(&["--retention-hours", "876000"]))
}

/// Uses the idempotency key once more.
fn add(server: &Server, key: &str, idempotency_key: &str, body: &str) -> Reply {
    let header = format!("Idempotency-Key: {idempotency_key}");
    server.request("POST", &format!("/call/counter/{key}/add"), &[&header], body.as_bytes())
}

#[test]
fn a_directory_of_version_0_1_opens_with_all_that_is_in_it() {
    let copy = tempfile::tempdir().expect("a folder");
    let mut server = open("v0.1", &copy);
    wait_until("the delayed message has come", || server.value("counter/sent/show", "null") == json!(5));
    for start in 0..2 {
        for (key, total) in [("a", 15), ("b", 1), ("other", 2), ("started", 1), ("sent", 5)] {
            assert_eq!(server.value(&format!("counter/{key}/show"), "null"), json!(total), "{key} at start {start}");
        }
        assert_eq!(server.get("/records/person/1"), json!({"name": "Ada", "age": 36}));
        assert_eq!(server.get("/records/person/2"), json!({"name": "Bob", "age": 7}));
        server.kill();
        server.restart();
    }
    for (key, name, body, first) in [("a", "k1", "4", "7"), ("b", "k2", "1", "1")] {
        assert_eq!(add(&server, key, name, body).text(), first, "the first reply comes again");
    }
    assert_problem(&add(&server, "a", "k1", "5"), 422, "idempotency-mismatch");
    let waits = server.invocations("status=running", 10);
    let id = waits[0]["id"].as_str().expect("an id").to_owned();
    let signal = json!({"name": "go", "payload": 5}).to_string();
    let reply = server.request("POST", &format!("/invocations/{id}/signal"), &[], signal.as_bytes());
    assert_eq!(reply.status, 202, "{}", reply.text());
    assert_eq!(server.ended(&id)["status"], "succeeded");
    assert_eq!(server.value("counter/finished/show", "null"), json!(5));
}
