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

/// Gives the app settings at one node. Those with a small limit let no input of more than ten bytes in.
fn give_settings(demo: &Demo, node: u16, is_small: bool) {
    let settings = format!("[limits]\ninput_bytes = {}\n", if is_small { 10 } else { 1_000 });
    let body = json!({ "settings": settings }).to_string();
    let given = demo.request(node, "PUT", "/apps/bank", &["content-type: application/json"], body.as_bytes());
    assert!(given.as_ref().is_some_and(|reply| reply.status == 200), "{:?}", given.map(|reply| reply.text()));
}

#[test]
fn settings_and_a_version_that_come_to_two_nodes_at_once_both_hold() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    wait_until("all nodes own shards", || (1..=3).all(|node| demo.owns(node)));
    let mut worker = connect(&demo, 1, 1);
    wait_until("the first version serves", || serves(&demo, 1, 1));
    for version in 2..=9 {
        let is_small = version % 2 == 0;
        let next = std::thread::scope(|threads| {
            let next = threads.spawn(|| connect(&demo, 1, version));
            give_settings(&demo, 2, is_small);
            next.join().expect("it dials in")
        });
        drop(std::mem::replace(&mut worker, next));
        wait_until("the version serves", || serves(&demo, 1, version));
        let input = json!("more than ten bytes").to_string();
        let reply = demo.request(1, "POST", "/call/account/a/version", &[], input.as_bytes());
        let is_refused = reply.is_some_and(|reply| reply.code() == "too-large");
        assert_eq!(is_refused, is_small, "version {version} has other settings");
    }
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
