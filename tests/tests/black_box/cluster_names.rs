//! Nodes of a cluster are reached by their names, which are looked up again whenever a node is dialled.

use std::path::Path;
use std::process::Command;

use millrace_tests::{Connection, Foreground, Output, binary, millrace, wait_until};

use crate::cluster::bases;

fn start(folder: &Path, node: u16) -> Foreground {
    let mut serve = Command::new(binary());
    serve.args(["serve", "--cores", "1", "--cluster-data"]).arg(folder.join(format!("n{node}")));
    Foreground::start(&mut serve)
}

fn init(folder: &Path, http: &str, peer: &str) -> Output {
    let text = folder.to_str().expect("text");
    millrace(&["cluster", "init", "--shards", "6", "--data", text, "--http", http, "--peer", peer])
}

fn is_ready(port: u16) -> bool {
    let reply =
        Connection::open(([127, 0, 0, 1], port).into()).and_then(|mut at| at.request("GET", "/readyz", &[], b""));
    reply.is_ok_and(|reply| reply.status == 200)
}

#[test]
fn a_cluster_of_names_serves_and_takes_a_node_with_a_name() {
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path().join("shop");
    let [http_base, peer_base, _] = bases();
    let at = |base: u16, count: u16| -> Vec<String> {
        (0..count).map(|node| format!("localhost:{}", base + node)).collect()
    };
    let (http, peer) = (at(http_base, 4), at(peer_base, 4));
    let made = init(&folder, &http[..3].join(","), &peer[..3].join(","));
    assert_eq!(made.code, Some(0), "{}", made.err);
    let mut nodes: Vec<Foreground> = (1..=3).map(|node| start(&folder, node)).collect();
    for node in 0..3 {
        wait_until("the node is ready", || is_ready(http_base + node));
    }
    let path = |name: &str| folder.join(name).to_str().expect("text").to_owned();
    let (authority, fourth, url) = (path("authority"), path("n4"), format!("http://localhost:{http_base}"));
    let place = ["--authority", &authority, "--data", &fourth, "--http", &http[3], "--peer", &peer[3]];
    let joined = millrace(&[&["cluster", "join", "--url", &url], &place[..]].concat());
    assert_eq!(joined.code, Some(0), "{}", joined.err);
    nodes.push(start(&folder, 4));
    wait_until("the fourth node is ready", || is_ready(http_base + 3));
    let status = millrace(&["cluster", "status", "--url", &format!("http://localhost:{}", http_base + 3)]);
    for address in &http {
        assert!(status.out.contains(address), "{address} is not in {}", status.out);
    }
    for node in &mut nodes {
        node.interrupt();
    }
    for node in &mut nodes {
        assert!(node.ended().success(), "{}", node.err());
    }
}

#[test]
fn what_is_no_address_is_refused_before_anything_is_made() {
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path().join("shop");
    let refused = init(&folder, "n1:80,n2:80,n3", "n1:70,n2:70,n3:70");
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    assert!(refused.err.contains("\"n3\" is no address: give an IP address or a host name"), "{}", refused.err);
    assert!(!folder.exists());
}
