//! Nodes that are removed, and changes of the nodes that cannot be: each is told by name.

use std::process::Command;
use std::time::{Duration, Instant};

use millrace_tests::{Foreground, Output, assert_problem, binary, millrace, wait_until};

use crate::cluster::{Demo, bases};
use crate::cluster_elastic::{cluster, join};

fn url(demo: &Demo, node: u16) -> String {
    format!("http://127.0.0.1:{}", demo.http_base + node - 1)
}

/// Runs a command of `millrace cluster` at a node.
fn cluster_at(demo: &Demo, node: u16, arguments: &[&str]) -> Output {
    millrace(&[&["cluster"], arguments, &["--url", &url(demo, node)]].concat())
}

fn is_removed(demo: &Demo, node: u16) -> bool {
    demo.request(node, "GET", "/readyz", &[], b"").is_some_and(|reply| reply.status == 421)
}

fn assert_says_that_it_was_removed(demo: &Demo, node: u16, process: &Foreground) {
    let ready = demo.request(node, "GET", "/readyz", &[], b"").expect("it lives");
    assert_problem(&ready, 421, "node-removed");
    assert_problem(&demo.request(node, "GET", "/cluster", &[], b"").expect("it lives"), 421, "node-removed");
    let status = cluster_at(demo, node, &["status"]);
    assert_eq!(status.code, Some(1), "{}", status.out);
    assert!(status.err.contains("node-removed") && status.err.contains("millrace cluster join"), "{}", status.err);
    let line = "was removed from its cluster";
    wait_until("it is in the log", || process.err().contains(line));
    assert_eq!(process.err().matches(line).count(), 1, "it is said once: {}", process.err());
    assert!(!process.err().contains("was that node rescued"), "nobody disputes it: {}", process.err());
}

#[test]
fn a_node_that_was_removed_says_so() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    // It dials nobody: all others have lower numbers.
    let mut last = join(&demo, 4);
    wait_until("it owns shards", || demo.owns(4));
    cluster(&demo, &["drain", "4"]);
    cluster(&demo, &["remove", "4"]);
    wait_until("it knows", || is_removed(&demo, 4));
    assert_says_that_it_was_removed(&demo, 4, &last);
    last.interrupt();
    last.ended();
    let again = demo.revive(4);
    wait_until("it knows after a start, too", || is_removed(&demo, 4));
    assert_says_that_it_was_removed(&demo, 4, &again);
    assert_eq!(demo.request(1, "GET", "/readyz", &[], b"").map(|reply| reply.status), Some(200));
}

#[test]
fn without_a_majority_no_node_goes_and_the_log_says_why() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    let log = || std::fs::read_to_string(demo.folder.join("n1/log.txt")).expect("it logs");
    assert!(!log().contains("a majority of the nodes"), "{}", log());
    demo.kill(2);
    demo.kill(3);
    wait_until("node 1 notices", || log().contains("hears no majority"));
    for arguments in [["remove", "2"], ["drain", "2"]] {
        let began = Instant::now();
        let refused = cluster_at(&demo, 1, &arguments);
        assert_eq!(refused.code, Some(1), "{}", refused.out);
        assert!(refused.err.contains("majority"), "{}", refused.err);
        assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    }
    let _again = demo.revive(2);
    wait_until("node 1 hears it", || log().contains("hears a majority of the nodes again"));
    for line in ["hears no majority", "hears a majority of the nodes again"] {
        assert_eq!(log().matches(line).count(), 1, "{}", log());
    }
}

#[test]
fn an_authority_of_another_cluster_makes_no_node() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    let [http, peer, _] = bases().map(|base| (base..base + 3).map(|port| format!("127.0.0.1:{port}")));
    let (http, peer) = (http.collect::<Vec<_>>().join(","), peer.collect::<Vec<_>>().join(","));
    let other = data.path().join("other");
    let mut init = Command::new(binary());
    init.args(["cluster", "init", "--http", &http, "--peer", &peer, "--data"]).arg(&other);
    assert!(init.output().expect("started").status.success());
    let [authority, directory] =
        [other.join("authority"), demo.folder.join("n4")].map(|path| path.display().to_string());
    let arguments = ["join", "--authority", &authority, "--data", &directory];
    let refused = cluster_at(&demo, 1, &[&arguments[..], &["--http", "127.0.0.1:1", "--peer", "127.0.0.1:2"]].concat());
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    assert!(refused.err.contains("foreign authority"), "{}", refused.err);
    assert!(!demo.folder.join("n4").exists(), "no directory is made");
    assert!(!cluster_at(&demo, 1, &["status"]).out.contains("joining"), "the cluster has not heard of it");
}
