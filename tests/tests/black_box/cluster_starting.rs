//! A node that starts and reads its log: whoever connects is told at once, and does not wait.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use millrace_tests::{Connection, Reply, assert_problem, wait_until};

use crate::cluster::Demo;

/// Has the next start of a node wait where it counts its starts, until the file that it reads is written to.
struct HeldBack {
    pipe: std::path::PathBuf,
    count: String,
}

impl HeldBack {
    fn at(directory: &Path) -> Self {
        let pipe = directory.join("incarnation");
        let count = std::fs::read_to_string(&pipe).expect("it has started before");
        std::fs::remove_file(&pipe).expect("it does not run");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there").success());
        Self { pipe, count }
    }

    fn go_on(self) {
        std::fs::write(&self.pipe, self.count).expect("the node reads");
    }
}

fn ask(port: u16, method: &str, path: &str) -> Option<Reply> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    Connection::open(address).and_then(|mut connection| connection.request(method, path, &[], b"")).ok()
}

#[test]
fn a_node_that_starts_tells_its_clients_within_a_tenth_of_a_second() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::with_s3(&data.path().join("demo"));
    let (http, s3) = (demo.http_base + 1, demo.s3_base + 1);
    demo.stop(2);
    let held_back = HeldBack::at(&demo.folder.join("n2"));
    let _second = demo.revive(2);
    wait_until("it has its address", || ask(http, "GET", "/healthz").is_some());
    let mut fastest = Duration::MAX;
    for (method, path) in [("GET", "/readyz"), ("GET", "/healthz"), ("POST", "/call/counter/a/add")].repeat(4) {
        let began = Instant::now();
        let reply = ask(http, method, path).expect("an answer");
        fastest = fastest.min(began.elapsed());
        assert_problem(&reply, 503, "shutting-down");
        assert_eq!((reply.header("retry-after"), reply.header("connection")), (Some("1"), Some("close")));
        assert!(reply.text().contains("the node is starting"), "{}", reply.text());
    }
    assert!(fastest < Duration::from_millis(100), "{fastest:?}");
    let reply = ask(s3, "GET", "/bucket/key").expect("an answer");
    assert_eq!(reply.status, 503);
    assert!(reply.text().contains("<Code>ServiceUnavailable</Code>"), "{}", reply.text());
    held_back.go_on();
    wait_until("the node serves", || ask(http, "GET", "/readyz").is_some_and(|reply| reply.status == 200));
    assert_eq!(ask(s3, "GET", "/bucket/key").expect("an answer").status, 404, "S3 is served, too");
}
