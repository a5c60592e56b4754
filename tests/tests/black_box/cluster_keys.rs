//! API keys of a cluster: its nodes agree on them.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use millrace_tests::{Connection, Foreground, Output, binary, millrace, wait_until};

use crate::cluster::bases;

/// How soon each node refuses a key that was revoked.
const SOON: Duration = Duration::from_secs(1);

struct Cluster {
    http_base: u16,
    peer_base: u16,
    nodes: Vec<Foreground>,
}

fn start(folder: &Path, node: u16) -> Foreground {
    let mut serve = Command::new(binary());
    serve.args(["serve", "--cores", "1", "--cluster-data"]).arg(folder.join(format!("n{node}")));
    Foreground::start(&mut serve)
}

/// Makes a key, and gives it.
fn made(output: &Output) -> String {
    assert_eq!(output.code, Some(0), "{}", output.err);
    output.out.trim().to_owned()
}

impl Cluster {
    /// A cluster that begins with one key, and the key.
    fn begin(data: &Path) -> (Self, String) {
        let [http_base, peer_base, _] = bases();
        let file = data.join("keys.json");
        let file = file.to_str().expect("text");
        let key = made(&millrace(&["keys", "--keys", file, "add", "--role", "admin", "operator"]));
        let at = |base: u16| (base..base + 3).map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",");
        let folder = data.join("shop");
        let text = folder.to_str().expect("text");
        let (http, peer) = (at(http_base), at(peer_base));
        let init =
            ["cluster", "init", "--shards", "6", "--data", text, "--http", &http, "--peer", &peer, "--keys", file];
        let output = millrace(&init);
        assert_eq!(output.code, Some(0), "{}", output.err);
        let nodes = (1..=3).map(|node| start(&folder, node)).collect();
        let cluster = Self { http_base, peer_base, nodes };
        for node in 1..=3 {
            wait_until("the node knows the key", || cluster.status(node, &key) == Some(200));
        }
        (cluster, key)
    }

    /// What a node answers who brings a key. Only an administrator may see metrics.
    fn status(&self, node: u16, key: &str) -> Option<u16> {
        let address = ([127, 0, 0, 1], self.http_base + node - 1).into();
        let header = format!("Authorization: Bearer {key}");
        let asked = |path| {
            let reply = Connection::open(address).and_then(|mut at| at.request("GET", path, &[&header], b""));
            reply.ok().map(|reply| reply.status)
        };
        // A node that does not follow the cluster yet says so.
        asked("/cluster").filter(|status| *status == 200).and_then(|_| asked("/metrics")).or_else(|| asked("/cluster"))
    }

    fn keys(&self, node: u16, key: &str, arguments: &[&str]) -> Output {
        let url = format!("http://127.0.0.1:{}", self.http_base + node - 1);
        millrace(&[&["keys", "--url", &url, "--api-key", key], arguments].concat())
    }
}

#[test]
fn keys_are_made_and_revoked_on_all_nodes_at_once() {
    let data = tempfile::tempdir().expect("a folder");
    let (mut cluster, operator) = Cluster::begin(data.path());
    let ann = made(&cluster.keys(1, &operator, &["add", "--role", "admin", "ann"]));
    let ben = made(&cluster.keys(2, &ann, &["add", "--role", "admin", "ben"]));
    for node in 1..=3 {
        assert_eq!([&operator, &ann, &ben].map(|key| cluster.status(node, key)), [Some(200); 3], "at node {node}");
        let listed = cluster.keys(node, &ben, &["list"]);
        assert_eq!(listed.out.lines().count(), 3, "{} {}", listed.out, listed.err);
    }
    assert_eq!(cluster.keys(3, &ben, &["revoke", "ann"]).code, Some(0));
    let revoked = Instant::now();
    for node in 1..=3 {
        wait_until("the key is refused", || cluster.status(node, &ann) == Some(401));
    }
    assert!(revoked.elapsed() < SOON, "{:?}", revoked.elapsed());
    assert_ne!(cluster.keys(1, &ann, &["list"]).code, Some(0));
    // A node that is away hears of it when it is back.
    cluster.nodes[1].interrupt();
    cluster.nodes[1].ended();
    wait_until("the others can change keys", || cluster.keys(1, &ben, &["revoke", "operator"]).code == Some(0));
    cluster.nodes[1] = start(&data.path().join("shop"), 2);
    wait_until("it is back", || cluster.status(2, &ben) == Some(200));
    assert_eq!(cluster.status(2, &operator), Some(401), "and knows what was revoked");
    // One that joins asks for keys from its first request on.
    let at = |base: u16| format!("127.0.0.1:{}", base + 3);
    let (http, peer) = (at(cluster.http_base), at(cluster.peer_base));
    let url = format!("http://127.0.0.1:{}", cluster.http_base);
    let [authority, fourth] = ["authority", "n4"].map(|name| data.path().join("shop").join(name).display().to_string());
    let join = ["cluster", "join", "--authority", &authority, "--data", &fourth, "--http", &http, "--peer", &peer];
    made(&millrace(&[&join[..], &["--url", &url, "--api-key", &ben]].concat()));
    cluster.nodes.push(start(&data.path().join("shop"), 4));
    wait_until("it knows the key", || cluster.status(4, &ben) == Some(200));
    assert_eq!(cluster.status(4, &operator), Some(401));
    let last = cluster.keys(2, &ben, &["revoke", "ben"]);
    assert!(last.code != Some(0) && last.err.contains("admin"), "{}", last.err);
    for node in &mut cluster.nodes {
        node.interrupt();
        node.ended();
    }
}
