//! A node of a cluster whose disk is full: its work goes to the others, and it comes back when there is space.

use std::ops::Range;
use std::process::Command;
use std::time::{Duration, Instant};

use millrace_tests::{assert_problem, wait_until};

use crate::cluster::Demo;
use crate::disk_full::{SmallDisk, fill};

/// The node with the small disk.
const SMALL: u16 = 3;

/// What one send takes in the log of all nodes.
const LARGE: usize = 200_000;

fn is_ready(demo: &Demo, node: u16) -> bool {
    demo.request(node, "GET", "/readyz", &[], b"").is_some_and(|reply| reply.status == 200)
}

/// Counts all counters up so many times, and says how long the slowest call took.
fn count_up(demo: &Demo, numbers: Range<usize>) -> Duration {
    let mut slowest = Duration::ZERO;
    for (number, counter) in numbers.flat_map(|number| (0..6).map(move |counter| (number, counter))) {
        let began = Instant::now();
        demo.add(counter, number);
        slowest = slowest.max(began.elapsed());
    }
    slowest
}

/// Writes until the small disk is full, and until others own the node's shards.
fn write_until_full(demo: &Demo, round: usize) {
    let payload = format!("\"{}\"", "x".repeat(LARGE));
    let mut number = 0;
    wait_until("the small disk is full", || {
        number += 1;
        let header = format!("Idempotency-Key: large-{round}-{number}");
        for node in 1..=2 {
            // They fail when they run. That they are kept is what counts.
            let path = format!("/send/counter/large{}/add", number % 12);
            let _ = demo.request(node, "POST", &path, &[&header], payload.as_bytes());
        }
        !is_ready(demo, SMALL)
    });
    wait_until("others own what it owned", || !demo.owns(SMALL));
}

#[test]
fn a_full_disk_moves_the_work_and_the_node_comes_back_with_space() {
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path().join("demo");
    let Some(disk) = SmallDisk::at(&folder.join(format!("n{SMALL}"))) else { return };
    let mut demo = Demo::wrapped(&folder, &disk.wrapper());
    wait_until("it owns shards", || demo.owns(SMALL));
    count_up(&demo, 0..5);

    fill(&disk);
    write_until_full(&demo, 1);
    assert_problem(&demo.request(SMALL, "GET", "/readyz", &[], b"").expect("it answers"), 503, "read-only");
    let slowest = count_up(&demo, 5..15);
    println!("slowest call while the disk is full: {slowest:?}");
    assert!(slowest < Duration::from_secs(3), "the work goes on at the others: {slowest:?}");
    let values = demo.values(SMALL).expect("the node passes on what it cannot do itself");
    assert!(values.iter().all(|value| value.contains("15")), "{values:?}");

    // A crash meanwhile.
    let pid = std::fs::read_to_string(disk.inside("pid")).expect("it runs");
    assert!(Command::new("kill").args(["-9", pid.trim()]).status().expect("kill is there").success());
    let mut again = demo.revive_wrapped(SMALL, &disk.wrapper());
    wait_until("it serves again", || {
        assert!(again.is_running(), "{}", again.err());
        demo.values(SMALL).is_some()
    });
    count_up(&demo, 15..20);
    assert!(again.is_running(), "{}", again.err());

    std::fs::remove_file(disk.inside("ballast")).expect("removed");
    wait_until("it is ready", || is_ready(&demo, SMALL));
    wait_until("it owns shards again", || demo.owns(SMALL));
    count_up(&demo, 20..25);

    // Once more, without a crash.
    fill(&disk);
    write_until_full(&demo, 2);
    count_up(&demo, 25..30);
    std::fs::remove_file(disk.inside("ballast")).expect("removed");
    wait_until("it owns shards again", || is_ready(&demo, SMALL) && demo.owns(SMALL));

    // What it missed is there: with another node lost, it is one of a majority.
    demo.kill(1);
    count_up(&demo, 30..35);
    for node in [2, SMALL] {
        let values = demo.values(node).expect("they are read");
        assert!(values.iter().all(|value| value.contains("35")), "{values:?} at node {node}");
    }
    again.interrupt();
    demo.command.interrupt();
    again.ended();
    demo.command.ended();
}
