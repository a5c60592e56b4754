//! `millrace cluster init --from`: a cluster begins with what a node has that stood alone.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use millrace_tests::{
    Connection, Foreground, Output, Reply, Server, ServerOptions, TestApp, binary, has_programs, millrace, wait_until,
};
use serde_json::{Value, json};

use crate::cluster::bases;
use crate::s3_objects::KEYS;

const COUNTERS: usize = 6;

/// A workflow that waits until it is told how it ends.
fn waiting(answer: &str) -> TestApp {
    let source = format!(
        "import {{ service, workflow }} from \"millrace\";
export default service({{ wait: workflow(async (ctx) => {{ const said = await ctx.wait(\"end\"); return `{answer} ${{said}}`; }}) }});
"
    );
    TestApp::with("door.ts", &source)
}

/// The directories of a cluster's nodes, and where these listen.
struct Nodes {
    folder: PathBuf,
    http_base: u16,
    peer_base: u16,
    s3_base: u16,
}

impl Nodes {
    fn new(folder: PathBuf) -> Self {
        let [http_base, peer_base, s3_base] = bases();
        Self { folder, http_base, peer_base, s3_base }
    }

    /// Makes the directories of nodes that serve S3, too.
    fn init(&self, from: &Path, nodes: u16) -> Output {
        let addresses: Vec<String> = (0..nodes).map(|node| format!("127.0.0.1:{}", self.s3_base + node)).collect();
        self.init_with(from, nodes, &["--s3", &addresses.join(",")])
    }

    fn init_with(&self, from: &Path, nodes: u16, arguments: &[&str]) -> Output {
        let row = |base: u16| {
            let addresses: Vec<String> = (0..nodes).map(|node| format!("127.0.0.1:{}", base + node)).collect();
            addresses.join(",")
        };
        let (from, data) = (from.display().to_string(), self.folder.display().to_string());
        let (http, peer) = (row(self.http_base), row(self.peer_base));
        let usual = ["cluster", "init", "--from", &from, "--data", &data, "--http", &http, "--peer", &peer];
        millrace(&[&usual, arguments].concat())
    }

    fn start(&self, node: u16) -> Foreground {
        let mut command = Command::new(binary());
        command.args(["serve", "--cores", "1", "--cluster-data"]).arg(self.folder.join(format!("n{node}")));
        Foreground::start(&mut command)
    }

    fn request(&self, node: u16, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Option<Reply> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.http_base + node - 1));
        Connection::open(address).and_then(|mut connection| connection.request(method, path, headers, body)).ok()
    }

    /// What a node answers, once it serves what is asked for.
    fn answer(&self, node: u16, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Value {
        let mut answer = None;
        wait_until("the node answers", || {
            answer = self.request(node, method, path, headers, body).filter(|reply| reply.status < 300);
            answer.is_some()
        });
        answer.map_or(Value::Null, |reply| reply.json())
    }

    /// The bytes of an object, once the node has them.
    fn object(&self, node: u16, path: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        wait_until("the node has the object", || {
            bytes = s3(self.s3_base + node - 1, &["-f"], path);
            !bytes.is_empty()
        });
        bytes
    }

    /// For each node that holds shards, how many, as the first node sees it.
    fn held(&self) -> Vec<usize> {
        let guidance = self.request(1, "GET", "/cluster", &[], b"").map(|reply| reply.json()).unwrap_or_default();
        let shards = guidance["shards"].as_array().cloned().unwrap_or_default();
        let holds = |node: u64| {
            let has = |place: &Value| place["replicas"].as_array().is_some_and(|all| all.contains(&json!(node)));
            shards.iter().filter(|place| has(place)).count()
        };
        (1..=3).map(holds).collect()
    }
}

fn s3(port: u16, arguments: &[&str], path: &str) -> Vec<u8> {
    let curl = Command::new("curl")
        .args(["-sS", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &KEYS.join(":")])
        .args(["-H", "x-amz-content-sha256:UNSIGNED-PAYLOAD"])
        .args(arguments)
        .arg(format!("http://127.0.0.1:{port}{path}"))
        .output();
    curl.expect("curl is there").stdout
}

fn key(number: usize) -> String {
    format!("Idempotency-Key: before-{number}")
}

/// Bytes too long for the entry that names them.
fn large() -> Vec<u8> {
    (0..300_000_u32).flat_map(u32::to_le_bytes).collect()
}

/// A node by itself with counters, a record, objects, a workflow and a message that waits. Gives the workflow's id.
fn fill(server: &Server, s3_port: u16) -> String {
    let deployed = millrace(&["deploy", "../examples/counter", "--url", &server.url()]);
    assert_eq!(deployed.code, Some(0), "{}", deployed.err);
    assert!(waiting("heard").deploy(server, "doors").status < 300);
    for counter in 0..COUNTERS {
        let path = format!("/call/counter/{counter}/add");
        assert_eq!(server.request("POST", &path, &[&key(counter)], b"7").json(), 7);
    }
    let schema = json!({ "type": "record", "name": "Item", "fields": [{ "name": "name", "type": "string" }] });
    let made = server.request("PUT", "/schemas/item", &[], json!({ "schema": schema }).to_string().as_bytes());
    assert!(made.status < 300, "{}", made.text());
    let made = server.request("PUT", "/records/item/a", &[], br#"{"name":"bolt"}"#);
    assert!(made.status < 300, "{}", made.text());
    let added = ["s3", "user", "add", "ann", "--access-key", KEYS[0], "--secret-key", KEYS[1], "--url", &server.url()];
    let added = millrace(&added);
    assert_eq!(added.code, Some(0), "{}", added.err);
    s3(s3_port, &["-X", "PUT"], "/photos");
    s3(s3_port, &["-X", "PUT", "--data-binary", "little"], "/photos/small");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), large()).expect("written");
    let name = format!("@{}", file.path().display());
    s3(s3_port, &["-X", "PUT", "--data-binary", &name], "/photos/large");
    let _message = server.send("counter/later/add?delay_ms=4000", "5");
    server.send("door/a/wait", "null")
}

#[test]
fn a_cluster_begins_with_all_that_a_node_had_and_a_node_may_be_lost_then() {
    if !has_programs(&["curl"]) {
        return;
    }
    let data = tempfile::tempdir().expect("a folder");
    let nodes = Nodes::new(data.path().join("shop"));
    let s3_port = nodes.s3_base + 5;
    let address = format!("127.0.0.1:{s3_port}");
    let options = ServerOptions::examples(&[]).with(&["--shards", "6", "--s3", &address]);
    let mut server = Server::start(options);
    let workflow = fill(&server, s3_port);

    let running = nodes.init(&server.data(), 3);
    assert_eq!(running.code, Some(1), "a node that runs has its directory to itself");
    assert!(running.err.contains("is used by another millrace process"), "{}", running.err);
    server.kill();
    let without = nodes.init_with(&server.data(), 3, &[]);
    assert!(without.code == Some(1) && without.err.contains("keeps objects"), "{}", without.err);
    let made = nodes.init(&server.data(), 3);
    assert_eq!(made.code, Some(0), "{}", made.err);
    assert!(made.err.contains("the apps counter, doors"), "{}", made.err);
    let again = nodes.init(&server.data(), 3);
    assert!(again.err.contains("it is there already"), "{}", again.err);

    let first = nodes.start(1);
    for counter in 0..COUNTERS {
        let path = format!("/call/counter/{counter}/add");
        assert_eq!(nodes.answer(1, "POST", &path, &[&key(counter)], b"7"), 7, "it is known that this was done");
    }
    let _others = [nodes.start(2), nodes.start(3)];
    wait_until("all nodes hold all shards", || nodes.held() == [6, 6, 6]);
    for node in 2..=3 {
        assert_eq!(nodes.object(node, "/photos/small"), b"little");
        assert_eq!(nodes.object(node, "/photos/large"), large());
    }
    drop(first);
    for counter in 0..COUNTERS {
        let path = format!("/call/counter/{counter}/add");
        assert_eq!(nodes.answer(2, "POST", &path, &[&key(counter)], b"7"), 7, "the others know it, too");
        assert_eq!(nodes.answer(3, "POST", &path, &["Idempotency-Key: after"], b"1"), 8);
    }
    assert_eq!(nodes.answer(3, "GET", "/records/item/a", &[], b""), json!({ "name": "bolt" }));
    assert_eq!(nodes.object(3, "/photos/large"), large());
    wait_until("the message arrives", || {
        let reply = nodes.request(2, "GET", "/state/counter/later", &[], b"");
        reply.is_some_and(|reply| reply.status == 200 && reply.text().contains('5'))
    });
    let (path, signal) = (format!("/invocations/{workflow}/signal"), br#"{"name":"end","payload":"you"}"#);
    wait_until("the signal is taken", || {
        nodes.request(3, "POST", &path, &[], signal).is_some_and(|reply| reply.status == 202)
    });
    wait_until("the workflow ends", || {
        nodes.answer(2, "GET", &format!("/invocations/{workflow}"), &[], b"")["output"] == "heard you"
    });
}

#[test]
fn a_workflow_keeps_a_version_that_was_not_deployed_any_more() {
    let mut server = Server::start(ServerOptions::examples(&[]).with(&["--shards", "6"]));
    assert!(waiting("first").deploy(&server, "doors").status < 300);
    let workflow = server.send("door/a/wait", "null");
    wait_until("it has begun", || server.get(&format!("/invocations/{workflow}"))["status"] == "running");
    assert!(waiting("second").deploy(&server, "doors").status < 300);
    server.stop();
    let data = tempfile::tempdir().expect("a folder");
    let nodes = Nodes::new(data.path().join("shop"));
    let made = nodes.init(&server.data(), 1);
    assert_eq!(made.code, Some(0), "{}", made.err);
    let _node = nodes.start(1);
    let (path, signal) = (format!("/invocations/{workflow}/signal"), br#"{"name":"end","payload":"you"}"#);
    wait_until("the signal is taken", || {
        nodes.request(1, "POST", &path, &[], signal).is_some_and(|reply| reply.status == 202)
    });
    wait_until("it ends in its version", || {
        nodes.answer(1, "GET", &format!("/invocations/{workflow}"), &[], b"")["output"] == "first you"
    });
}

#[test]
fn what_cannot_become_a_cluster_is_refused_and_stays_as_it_is() {
    let mut server = Server::start(ServerOptions::examples(&["counter"]));
    server.stop();
    let plain = tempfile::tempdir().expect("a folder");
    let plain = Nodes::new(plain.path().join("shop"));
    let made = plain.init_with(&server.data(), 1, &[]);
    assert_eq!(made.code, Some(0), "it has no objects: {}", made.err);
    let files = || std::fs::read_dir(server.data()).expect("a folder").count();
    let before = files();
    for inside in [server.data(), server.data().join("shop"), server.data().join("bodies/../shop/x")] {
        let refused = Nodes::new(inside.clone()).init(&server.data(), 1);
        assert_eq!(refused.code, Some(1), "{}", inside.display());
        assert!(refused.err.contains("lies in"), "{}", refused.err);
    }
    assert_eq!(files(), before);
    server.restart();
}
