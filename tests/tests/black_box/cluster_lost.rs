//! What clients see of a cluster while nodes are lost and come back: each call gets an answer soon, and one that says what to do.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use millrace_tests::{Connection, Foreground, StopOnDrop, assert_problem, binary, wait_until};

use crate::cluster::Demo;

/// A node that hears nobody answers within this time: two leases, the time for which a call may wait, and what a busy machine
/// adds.
const SOON: Duration = Duration::from_millis(5_000);

/// What a call came to.
struct Called {
    number: usize,
    took: Duration,
    /// Status and code; nothing for a connection that broke.
    answer: Option<(u16, String)>,
}

/// Counts up by itself, each time with another key.
fn add(demo: &Demo, node: u16, number: usize) -> Called {
    let (header, path) = (format!("Idempotency-Key: call-{number}"), format!("/call/counter/{}/add", number % 12));
    let began = Instant::now();
    let answer = demo.request(node, "POST", &path, &[&header], b"1").map(|reply| (reply.status, reply.code()));
    Called { number, took: began.elapsed(), answer }
}

/// Eight clients of a node count up until they are told to stop.
fn load(demo: &Demo, node: u16, while_it_runs: impl FnOnce()) -> Vec<Called> {
    let (is_over, next) = (AtomicBool::new(false), AtomicUsize::new(0));
    let client = || {
        let mut called = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            called.push(add(demo, node, next.fetch_add(1, Ordering::Relaxed)));
            std::thread::sleep(Duration::from_millis(10));
        }
        called
    };
    std::thread::scope(|threads| {
        let over = StopOnDrop(&is_over);
        let clients: Vec<_> = (0..8).map(|_| threads.spawn(client)).collect();
        std::thread::sleep(Duration::from_millis(500));
        while_it_runs();
        drop(over);
        clients.into_iter().flat_map(|client| client.join().expect("it calls")).collect()
    })
}

/// Each call was answered soon: it went well, nothing happened, or nobody knows.
fn assert_answered(called: &[Called]) {
    for Called { number, took, answer } in called {
        assert!(*took < SOON, "call {number} took {took:?}: {answer:?}");
        let (status, code) = answer.as_ref().expect("the node lives");
        let is_right = *status == 200 || *status == 503 && ["overloaded", "result-unknown"].contains(&code.as_str());
        assert!(is_right, "call {number}: {status} {code}");
    }
}

/// All calls that were ever made, made again with their keys, have taken effect once each.
fn assert_once_each(demo: &Demo, node: u16, calls: usize) {
    for number in 0..calls {
        wait_until("the call is made", || add(demo, node, number).answer.is_some_and(|(status, _)| status == 200));
    }
    let value = |counter: usize| {
        let reply = demo.request(node, "POST", &format!("/call/counter/{counter}/value"), &[], b"null");
        reply.filter(|reply| reply.status == 200).and_then(|reply| reply.json().as_u64())
    };
    let mut sum = None;
    wait_until("all counters are read", || {
        sum = (0..12).map(value).sum();
        sum.is_some()
    });
    assert_eq!(sum, Some(calls as u64), "each call takes effect once");
}

#[test]
fn a_node_that_hears_no_majority_says_so() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    let called = load(&demo, 3, || {
        // What the third node asks of them in this moment is under way when they are killed.
        [1, 2].into_iter().for_each(|node| demo.signal(node, "-STOP"));
        std::thread::sleep(Duration::from_millis(300));
        [1, 2].into_iter().for_each(|node| demo.kill(node));
        std::thread::sleep(Duration::from_millis(7_000));
    });
    assert_answered(&called);
    let answered =
        |wanted: &str| called.iter().filter(|call| call.answer.iter().any(|(_, code)| code == wanted)).count();
    assert!(answered("result-unknown") > 0, "some were under way");
    assert!(answered("overloaded") > 0, "some came later");
    let ready = demo.request(3, "GET", "/readyz", &[], b"").expect("it lives");
    assert_problem(&ready, 503, "overloaded");
    assert!(ready.text().contains("hears no majority"), "a load balancer sends nothing there: {}", ready.text());
    let cluster = demo.request(3, "GET", "/cluster", &[], b"").expect("it lives").json();
    assert_eq!(cluster["has_majority"], false);
    assert_eq!(
        (1..=3).map(|node: u8| cluster["nodes"][node.to_string()]["is_heard"] == true).collect::<Vec<_>>(),
        [false, false, true]
    );
    let url = format!("http://127.0.0.1:{}", demo.http_base + 2);
    let status = Command::new(binary()).args(["cluster", "status", "--url", &url]).output().expect("started");
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert_eq!(text.matches("not heard").count(), 2, "{text}");
    let _again = demo.revive(1);
    wait_until("two of three are enough", || {
        demo.request(3, "GET", "/readyz", &[], b"").is_some_and(|reply| reply.status == 200)
    });
    assert_once_each(&demo, 3, called.len());
}

/// Entries that other nodes lack, as the owners of shards know it.
fn lag(demo: &Demo, node: u16) -> Option<f64> {
    let text = demo.request(node, "GET", "/metrics", &[], b"")?.text();
    let lags = text.lines().filter(|line| line.starts_with("millrace_replication_lag_entries{"));
    lags.map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

/// They are read from the disk, as all nodes start anew, and have to come in messages that the node takes.
#[test]
fn a_node_that_lacks_thousands_of_small_entries_gets_them() {
    const CALLS: usize = 6_000;
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    demo.kill(3);
    let done = AtomicUsize::new(0);
    let client = || {
        let address = SocketAddr::from(([127, 0, 0, 1], demo.http_base));
        let mut connection = Connection::open(address).expect("the node listens");
        while done.load(Ordering::Relaxed) < CALLS {
            let reply = connection.request("POST", "/call/counter/hot/add", &[], b"1").expect("the node lives");
            done.fetch_add(usize::from(reply.status == 200), Ordering::Relaxed);
        }
    };
    std::thread::scope(|threads| (0..16).for_each(|_| drop(threads.spawn(client))));
    [1, 2].into_iter().for_each(|node| demo.kill(node));
    let _nodes: Vec<Foreground> = (1..=3).map(|node| demo.revive(node)).collect();
    wait_until("all nodes have all", || (1..=3).all(|node| demo.owns(node) && lag(&demo, node) == Some(0.0)));
    demo.kill(1);
    wait_until("the others go on", || {
        demo.request(2, "GET", "/state/counter/hot", &[], b"").is_some_and(|reply| reply.status == 200)
    });
}

#[test]
fn a_lost_node_reads_as_nothing_worse() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    let called = load(&demo, 1, || {
        demo.kill(2);
        std::thread::sleep(Duration::from_millis(2_500));
    });
    assert_answered(&called);
    assert_once_each(&demo, 1, called.len());
    wait_until("the others know", || !demo.is_alive(2));
    let epoch = |node| {
        let reply = demo.request(node, "GET", "/cluster", &[], b"")?;
        (reply.status == 200).then(|| reply.json()["epoch"].as_u64().expect("a number"))
    };
    let before = epoch(1).expect("it follows");
    let _again = demo.revive(2);
    let mut after = None;
    wait_until("it follows", || {
        after = epoch(2);
        after.is_some()
    });
    assert!(after >= Some(before), "a node that is back shows nothing old: {after:?} before {before}");
}

#[test]
fn a_demo_keeps_the_data_of_a_node_that_somebody_else_runs() {
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path().join("demo");
    let mut demo = Demo::start(&folder);
    demo.kill(2);
    let mut again = demo.revive(2);
    wait_until("it is back", || demo.is_alive(2));
    demo.command.interrupt();
    assert!(demo.command.ended().success(), "{}", demo.command.err());
    assert!(again.is_running(), "{}", again.err());
    assert!(folder.join("n2/lock").exists() && folder.join("n2/log").exists(), "it is in use");
    assert!(!folder.join("n1").exists() && !folder.join("n3").exists());
    assert!(demo.command.err().contains("n2"), "{}", demo.command.err());
    again.interrupt();
    again.ended();
}
