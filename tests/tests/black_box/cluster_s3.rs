//! Objects over S3 in a cluster: every node answers, and a node may be lost.

use std::path::Path;
use std::process::Command;

use millrace_tests::{Output, has_programs, millrace, wait_until};

use crate::cluster::Demo;
use crate::s3_objects::KEYS;

/// A status and a body.
type Reply = (u16, String);

/// Asks a node over S3. A node that is not there has no status.
fn curl(demo: &Demo, node: u16, arguments: &[&str], path: &str) -> Reply {
    let curl = Command::new("curl")
        .args(["-sS", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &KEYS.join(":")])
        .args(["-H", "x-amz-content-sha256:UNSIGNED-PAYLOAD", "-w", "\n%{http_code}"])
        .args(arguments)
        .arg(format!("http://127.0.0.1:{}{path}", demo.s3_base + node - 1))
        .output()
        .expect("curl is there");
    let text = String::from_utf8_lossy(&curl.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').unwrap_or(("", "0"));
    (status.parse().unwrap_or(0), body.to_owned())
}

fn ask(demo: &Demo, node: u16, method: &str, path: &str) -> Reply {
    curl(demo, node, &["-X", method], path)
}

/// Asks until the node does it: shards may be on their way.
fn done(demo: &Demo, node: u16, arguments: &[&str], path: &str) -> String {
    let mut answer = String::new();
    wait_until("the node does it", || {
        let (status, body) = curl(demo, node, arguments, path);
        assert!([200, 204, 500, 503, 0].contains(&status), "{path}: {status} {body}");
        answer = body;
        (200..300).contains(&status)
    });
    answer
}

fn put(demo: &Demo, node: u16, path: &str, body: &str) {
    done(demo, node, &["-X", "PUT", "--data-binary", body, "-H", "content-type:"], path);
}

fn user(demo: &Demo, node: u16, arguments: &[&str]) -> Output {
    let url = format!("http://127.0.0.1:{}", demo.http_base + node - 1);
    millrace(&[&["s3"], arguments, &["--url", &url]].concat())
}

fn add_ann(demo: &Demo, node: u16) {
    let added = user(demo, node, &["user", "add", "ann", "--access-key", KEYS[0], "--secret-key", KEYS[1]]);
    assert_eq!(added.code, Some(0), "{}", added.err);
}

#[test]
fn small_objects_and_users_are_the_same_at_every_node() {
    if !has_programs(&["curl"]) {
        return;
    }
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path().join("demo");
    let mut demo = Demo::with_s3(&folder);
    assert_eq!(ask(&demo, 2, "PUT", "/photos").0, 403, "nobody is known");
    add_ann(&demo, 1);
    for node in 1..=3 {
        let listed = user(&demo, node, &["user", "list"]);
        assert!(listed.out.contains("\"ann\""), "node {node}: {} {}", listed.out, listed.err);
    }
    done(&demo, 3, &["-X", "PUT"], "/photos");
    for node in 1..=3 {
        put(&demo, node, &format!("/photos/{node}"), &"x".repeat(usize::from(node) * 100));
    }
    for node in 1..=3 {
        for object in 1..=3_usize {
            assert_eq!(done(&demo, node, &[], &format!("/photos/{object}")).len(), object * 100, "at node {node}");
        }
        let listed = done(&demo, node, &[], "/photos?list-type=2");
        assert_eq!(listed.matches("<Key>").count(), 3, "{listed}");
    }
    // Whoever has the files of a node finds no secret in them.
    assert!(!has_secret(&folder), "secrets are encrypted");
    demo.kill(2);
    put(&demo, 1, "/photos/4", "more");
    assert_eq!(user(&demo, 1, &["user", "add", "ben"]).code, Some(0));
    let mut again = demo.revive(2);
    wait_until("it is back, listens where it did, and knows ann", || {
        ask(&demo, 2, "GET", "/photos/4") == (200, "more".to_owned())
    });
    assert!(user(&demo, 2, &["user", "list"]).out.contains("\"ben\""));
    assert_eq!(user(&demo, 3, &["key", "revoke", "ann", KEYS[0]]).code, Some(0));
    for node in 1..=3 {
        wait_until("the key is refused", || ask(&demo, node, "GET", "/photos/4").0 == 403);
    }
    demo.command.interrupt();
    assert!(demo.command.ended().success(), "{}", demo.command.err());
    again.interrupt();
    again.ended();
}

fn has_secret(folder: &Path) -> bool {
    let found = Command::new("grep").args(["-rqa", KEYS[1]]).arg(folder).status().expect("grep is there");
    found.success()
}
