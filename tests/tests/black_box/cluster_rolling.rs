//! Nodes that are restarted one after the other under load: they hand their shards on first, and clients hardly notice.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use millrace_tests::{StopOnDrop, wait_until};

use crate::cluster::Demo;

const COUNTERS: usize = 12;

/// What clients have met.
#[derive(Default)]
struct Met {
    longest: Duration,
    /// Answers that say that nobody knows.
    unknown: usize,
}

/// Counts up at one node after the other until one has done it.
fn add(demo: &Demo, number: usize, met: &Mutex<Met>) {
    let (header, path) =
        (format!("Idempotency-Key: call-{number}"), format!("/call/counter/{}/add", number % COUNTERS));
    let began = Instant::now();
    for node in (1..=3).cycle().skip(number) {
        let reply = demo.request(node, "POST", &path, &[&header], b"1");
        if reply.as_ref().is_some_and(|reply| reply.status == 200) {
            break;
        }
        if let Some(reply) = reply {
            assert_eq!(reply.status, 503, "{}", reply.text());
            met.lock().expect("nobody panics").unknown += usize::from(reply.code() == "result-unknown");
        }
        assert!(began.elapsed() < Duration::from_secs(20), "no node takes the call");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut met = met.lock().expect("nobody panics");
    met.longest = met.longest.max(began.elapsed());
}

#[test]
fn each_node_in_turn_is_restarted_and_no_call_fails() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    wait_until("all nodes own shards", || (1..=3).all(|node| demo.owns(node)));
    let (is_over, next, met) = (AtomicBool::new(false), AtomicUsize::new(0), Mutex::new(Met::default()));
    let client = || {
        while !is_over.load(Ordering::Relaxed) {
            add(&demo, next.fetch_add(1, Ordering::Relaxed), &met);
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let mut again = Vec::new();
    std::thread::scope(|threads| {
        let over = StopOnDrop(&is_over);
        let clients: Vec<_> = (0..4).map(|_| threads.spawn(client)).collect();
        for node in 1..=3 {
            std::thread::sleep(Duration::from_millis(300));
            demo.stop(node);
            assert!(!demo.owns(node), "it has handed on what it owned");
            again.push(demo.revive(node));
            wait_until("it owns shards again", || demo.owns(node));
        }
        drop(over);
        clients.into_iter().for_each(|client| client.join().expect("it calls"));
    });
    let met = met.into_inner().expect("nobody panics");
    println!("{} calls, the longest took {:?}, {} unknown", next.load(Ordering::Relaxed), met.longest, met.unknown);
    assert!(met.longest < Duration::from_secs(3), "a call took {:?}", met.longest);
    let value = |counter: usize| {
        let reply = demo.request(1, "POST", &format!("/call/counter/{counter}/value"), &[], b"null");
        reply.filter(|reply| reply.status == 200).and_then(|reply| reply.json().as_u64())
    };
    let mut sum = None;
    wait_until("all counters are read", || {
        sum = (0..COUNTERS).map(value).sum();
        sum.is_some()
    });
    assert_eq!(sum, Some(next.into_inner() as u64), "each call takes effect once");
}
