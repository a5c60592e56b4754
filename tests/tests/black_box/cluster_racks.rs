//! Racks: each shard is held in as many as there are, whichever node comes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;

use millrace_tests::{Connection, Foreground, Output, binary, millrace, wait_until};
use serde_json::Value;

use crate::cluster::bases;

fn init(data: &str, [http_base, peer_base]: [u16; 2], racks: &str) -> Output {
    let row = |base: u16| {
        let addresses: Vec<String> = (0..3).map(|node| format!("127.0.0.1:{}", base + node)).collect();
        addresses.join(",")
    };
    let (http, peer) = (row(http_base), row(peer_base));
    millrace(&["cluster", "init", "--data", data, "--http", &http, "--peer", &peer, "--rack", racks, "--shards", "6"])
}

fn guidance(http_base: u16) -> Value {
    let address = SocketAddr::from(([127, 0, 0, 1], http_base));
    let reply = Connection::open(address).and_then(|mut connection| connection.request("GET", "/cluster", &[], b""));
    reply.ok().filter(|reply| reply.status == 200).map(|reply| reply.json()).unwrap_or_default()
}

/// In how many racks the shard is that is in the fewest. 0 while shards are on their way.
fn fewest_racks(guidance: &Value) -> usize {
    let rack = |node: &Value| guidance["nodes"][node.to_string()]["rack"].as_str().unwrap_or_default();
    let racks = |place: &Value| {
        let holders = place["replicas"].as_array().into_iter().flatten();
        let racks: BTreeSet<&str> = holders.map(rack).collect();
        if place["wanted"].is_array() || place["owner"] == 0 { 0 } else { racks.len() }
    };
    guidance["shards"].as_array().into_iter().flatten().map(racks).min().unwrap_or(0)
}

#[test]
fn shards_move_to_a_rack_that_comes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join("shop").join(name).display().to_string();
    let [http_base, peer_base, _] = bases();
    let data = folder.path().join("shop").display().to_string();
    for (racks, what) in [("east,west", "--rack needs one name for each node"), ("a,b,c/d", "--rack c/d")] {
        let refused = init(&data, [http_base, peer_base], racks);
        assert!(refused.code == Some(1) && refused.err.contains(what), "{}", refused.err);
    }
    let made = init(&data, [http_base, peer_base], "east,east,west");
    assert_eq!(made.code, Some(0), "{}", made.err);
    let start = |node: u16| {
        let directory = path(&format!("n{node}"));
        Foreground::start(Command::new(binary()).args(["serve", "--cores", "1", "--cluster-data", &directory]))
    };
    let _nodes = [start(1), start(2), start(3)];
    wait_until("each shard is in two racks", || fewest_racks(&guidance(http_base)) == 2);
    let url = format!("http://127.0.0.1:{http_base}");
    let (http, peer) = (format!("127.0.0.1:{}", http_base + 3), format!("127.0.0.1:{}", peer_base + 3));
    let join = |rack: &str| {
        millrace(&[
            "cluster",
            "join",
            "--url",
            &url,
            "--authority",
            &path("authority"),
            "--data",
            &path("n4"),
            "--http",
            &http,
            "--peer",
            &peer,
            "--rack",
            rack,
        ])
    };
    let refused = join("so/uth");
    assert!(refused.err.contains("a rack's name"), "{}", refused.err);
    // All nodes say first that they know racks.
    wait_until("a node joins", || join("south").code == Some(0));
    let _fourth = start(4);
    wait_until("each shard is in three racks", || fewest_racks(&guidance(http_base)) == 3);
    let status = millrace(&["cluster", "status", "--url", &url]);
    assert!(status.out.contains("rack") && status.out.contains("south"), "{}", status.out);
}
