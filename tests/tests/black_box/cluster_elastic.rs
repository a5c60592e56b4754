//! Nodes that lose everything under load and come back, and nodes that come and go: no transfer is lost, and none is made
//! twice.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use millrace_tests::{StopOnDrop, binary, wait_until};

use crate::cluster::Demo;

pub(crate) const ACCOUNTS: usize = 12;
pub(crate) const OPENED_WITH: i64 = 1_000_000;

/// Calls an account at one node after the other, with a key, until it has done it.
pub(crate) fn call(demo: &Demo, nodes: &[u16], (account, handler): (usize, &str), key: &str, input: &str) {
    let (header, path) = (format!("Idempotency-Key: {key}"), format!("/call/account/{account}/{handler}"));
    let mut tries = nodes.iter().cycle();
    wait_until("some node takes the call", || {
        let node = *tries.next().expect("some node");
        let reply = demo.request(node, "POST", &path, &[&header], input.as_bytes());
        let is_done = reply.as_ref().is_some_and(|reply| reply.status == 200);
        if let Some(reply) = reply.filter(|reply| reply.status != 200) {
            assert_eq!(reply.status, 503, "{}", reply.text());
            std::thread::sleep(Duration::from_millis(20));
        }
        is_done
    });
}

/// The amount of a transfer, which tells it from others.
pub(crate) fn transfer(demo: &Demo, nodes: &[u16], number: usize) {
    let (from, to) = (number % ACCOUNTS, (number * 7 + 1) % ACCOUNTS);
    if from != to {
        let input = format!(r#"{{"to":"{to}","amount":{}}}"#, number % 100 + 1);
        call(demo, nodes, (from, "transfer"), &format!("transfer-{number}"), &input);
    }
}

pub(crate) fn balance(demo: &Demo, node: u16, account: usize) -> Option<i64> {
    let reply = demo.request(node, "POST", &format!("/call/account/{account}/balance"), &[], b"null")?;
    (reply.status == 200).then(|| reply.json().as_i64()).flatten()
}

/// What each account holds after so many transfers.
fn expected(transfers: usize) -> Vec<i64> {
    let mut balances = vec![OPENED_WITH; ACCOUNTS];
    for number in 0..transfers {
        let (from, to) = (number % ACCOUNTS, (number * 7 + 1) % ACCOUNTS);
        let amount = i64::try_from(number % 100 + 1).expect("small");
        balances[from] -= amount;
        balances[to] += amount;
    }
    balances
}

/// Runs a command of `millrace cluster`, which must succeed.
pub(crate) fn cluster(demo: &Demo, arguments: &[&str]) -> String {
    let mut command = Command::new(binary());
    command.arg("cluster").args(arguments).args(["--url", &format!("http://127.0.0.1:{}", demo.http_base)]);
    let output = command.output().expect("started");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes and starts one more node.
pub(crate) fn join(demo: &Demo, node: u16) -> millrace_tests::Foreground {
    let address = |base: u16| format!("127.0.0.1:{}", base + node - 1);
    let (http, peer) = (address(demo.http_base), address(demo.peer_base));
    let [authority, data] =
        ["authority".to_owned(), format!("n{node}")].map(|name| demo.folder.join(name).display().to_string());
    let arguments = ["join", "--authority", &authority, "--data", &data, "--http", &http, "--peer", &peer];
    assert!(cluster(demo, &arguments).contains(&data));
    assert!(cluster(demo, &["status"]).contains("joining"));
    demo.revive(node)
}

#[test]
fn a_node_comes_and_another_goes_under_load() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::with_app(&data.path().join("demo"), "examples/bank");
    for account in 0..ACCOUNTS {
        call(&demo, &[1, 2, 3], (account, "deposit"), "open", &OPENED_WITH.to_string());
    }
    let (is_over, next) = (AtomicBool::new(false), AtomicUsize::new(0));
    let client = || {
        while !is_over.load(Ordering::Relaxed) {
            transfer(&demo, &[1, 3], next.fetch_add(1, Ordering::Relaxed));
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let sorted = |mut held: Vec<usize>| {
        held.sort_unstable();
        held
    };
    let _fourth = std::thread::scope(|threads| {
        let over = StopOnDrop(&is_over);
        let clients: Vec<_> = (0..4).map(|_| threads.spawn(client)).collect();
        let fourth = join(&demo, 4);
        wait_until("the node holds its share", || demo.holds().map(sorted) == Some(vec![4, 4, 5, 5]));
        wait_until("it owns shards", || demo.owns(4));
        cluster(&demo, &["drain", "2"]);
        assert_eq!(demo.holds(), Some(vec![6, 0, 6, 6]));
        assert!(cluster(&demo, &["status"]).contains("drained"));
        cluster(&demo, &["remove", "2"]);
        demo.kill(2);
        assert!(!cluster(&demo, &["status"]).contains("\n2 "));
        drop(over);
        clients.into_iter().for_each(|client| client.join().expect("it calls"));
        fourth
    });
    let expected: Vec<_> = expected(next.into_inner()).into_iter().map(Some).collect();
    for node in [1, 3, 4] {
        wait_until("the node answers", || (0..ACCOUNTS).all(|account| balance(&demo, node, account).is_some()));
        let found: Vec<_> = (0..ACCOUNTS).map(|account| balance(&demo, node, account)).collect();
        assert_eq!(found, expected, "at node {node}");
    }
}

#[test]
fn what_would_leave_too_few_nodes_is_refused() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    let refused = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.arg("cluster").args(arguments).args(["--url", &format!("http://127.0.0.1:{}", demo.http_base)]);
        let output = command.output().expect("started");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(&["drain", "2"]).contains("3 nodes have to stay"));
    assert!(refused(&["drain", "9"]).contains("no node 9"));
    assert!(refused(&["remove", "2"]).contains("drain it first"));
    let taken = format!("127.0.0.1:{}", demo.http_base);
    let authority = demo.folder.join("authority").display().to_string();
    let data = demo.folder.join("n4").display().to_string();
    let join = ["join", "--authority", &authority, "--data", &data, "--peer", "127.0.0.1:1", "--http"];
    assert!(refused(&[&join[..], &[&taken]].concat()).contains("node 1 has this address"));
    assert!(refused(&[&join[..], &["nowhere"]].concat()).contains("an IP address or a host name, and a port"));
    assert!(!demo.folder.join("n4").exists());
}

#[test]
fn each_node_in_turn_loses_everything_under_load() {
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path().join("demo");
    let demo = Demo::with_app(&folder, "examples/bank");
    for account in 0..ACCOUNTS {
        call(&demo, &[1, 2, 3], (account, "deposit"), "open", &OPENED_WITH.to_string());
    }
    let (is_over, next) = (AtomicBool::new(false), AtomicUsize::new(0));
    let client = || {
        while !is_over.load(Ordering::Relaxed) {
            transfer(&demo, &[1, 2, 3], next.fetch_add(1, Ordering::Relaxed));
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let mut again = Vec::new();
    std::thread::scope(|threads| {
        let over = StopOnDrop(&is_over);
        let clients: Vec<_> = (0..4).map(|_| threads.spawn(client)).collect();
        for node in 1..=3 {
            demo.kill(node);
            let directory = folder.join(format!("n{node}"));
            let reset = Command::new(binary()).args(["cluster", "reset"]).arg(&directory).output().expect("started");
            assert!(reset.status.success(), "{}", String::from_utf8_lossy(&reset.stderr));
            assert!(!directory.join("log").exists() && !directory.join("checkpoint").exists());
            wait_until("others own its shards", || !demo.owns(node));
            again.push(demo.revive(node));
            // It is given shards once it lacks little. Before that, no other node may lose its data.
            wait_until("it owns shards again", || demo.owns(node));
        }
        drop(over);
        clients.into_iter().for_each(|client| client.join().expect("it calls"));
    });
    let expected = expected(next.into_inner());
    for node in 1..=3 {
        wait_until("the node answers", || (0..ACCOUNTS).all(|account| balance(&demo, node, account).is_some()));
        let found: Vec<_> = (0..ACCOUNTS).map(|account| balance(&demo, node, account)).collect();
        let expected: Vec<_> = expected.iter().copied().map(Some).collect();
        assert_eq!(found, expected, "at node {node}");
    }
}

#[test]
fn what_is_no_directory_of_a_node_is_not_emptied() {
    let data = tempfile::tempdir().expect("a folder");
    let precious = data.path().join("log");
    std::fs::write(&precious, "mine").expect("written");
    let reset = Command::new(binary()).args(["cluster", "reset"]).arg(data.path()).output().expect("started");
    assert_eq!(reset.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&reset.stderr).contains("cluster.json"));
    assert_eq!(std::fs::read_to_string(precious).expect("it is there"), "mine");
}
