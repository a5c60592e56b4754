//! Workers that dial in to nodes of a cluster: each node has its own, and all know which versions are connected.

use std::time::{Duration, Instant};

use millrace_tests::wait_until;
use millrace_tests::worker::DialledWorker;
use serde_json::json;

use crate::cluster::Demo;

/// A worker that is connected to one node and answers with its version.
fn connect(demo: &Demo, node: u16, version: u64) -> DialledWorker {
    let handler = json!({ "name": "version", "kind": "transaction", "timeout_ms": 10_000 + version });
    let services = json!([{ "name": "account", "handlers": [handler] }]);
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], demo.http_base + node - 1));
    let (worker, ready) = DialledWorker::connect(address, "bank", services, move |_| Ok(json!(version)));
    assert!(ready.is_ok(), "{ready:?}");
    worker
}

/// What one node answers for entities of all shards: the version that serves, where a worker of it is connected to this node and
/// to the owner of the shard; else an error.
fn answers(demo: &Demo, node: u16) -> Vec<String> {
    let call = |key| demo.request(node, "POST", &format!("/call/account/{key}/version"), &[], b"null");
    (0..24).filter_map(call).map(|reply| reply.text()).collect()
}

fn serves(demo: &Demo, node: u16, version: u64) -> bool {
    answers(demo, node).contains(&version.to_string())
}

#[test]
fn an_old_version_stands_by_while_the_new_one_is_connected_to_another_node() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    wait_until("all nodes own shards", || (1..=3).all(|node| demo.owns(node)));
    let old = connect(&demo, 1, 1);
    wait_until("the old version serves", || serves(&demo, 1, 1));
    let new = connect(&demo, 2, 2);
    wait_until("the new version serves", || serves(&demo, 2, 2));
    drop(old);
    let refusals = answers(&demo, 1);
    assert!(refusals.iter().all(|said| said.contains("is connected to this node")), "{refusals:?}");

    let _old = connect(&demo, 1, 1);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(13) {
        assert!(!serves(&demo, 1, 1), "it has replaced a version that is connected");
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(serves(&demo, 2, 2));

    drop(new);
    wait_until("the old version serves once no other is connected", || serves(&demo, 1, 1));
}
