//! A backup of a running cluster shows one moment of all shards. It is whole or not there, and the cluster goes on.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use millrace_tests::{Foreground, Output, StopOnDrop, binary, has_programs, millrace, repository, wait_until};

use crate::cluster::Demo;
use crate::cluster_elastic::{ACCOUNTS, OPENED_WITH, balance, call, join, transfer};
use crate::cluster_s3::{add_ann, damage_contents, done, put};

fn back_up(demo: &Demo, node: u16, place: &str) -> Output {
    millrace(&["backup", place, "--url", &format!("http://127.0.0.1:{}", demo.http_base + node - 1)])
}

fn balances(demo: &Demo, node: u16) -> Option<Vec<i64>> {
    (0..ACCOUNTS).map(|account| balance(demo, node, account)).collect()
}

/// Makes a deposit on each account while a node stands still, behind some megabytes that it has to catch up with first. Lets it
/// go on, and then does something. Gives the sum of the deposits that were acknowledged before, each another power of two.
fn deposits_while_stopped(demo: &Demo, node: u16, then: impl FnOnce()) -> i64 {
    let acknowledged = AtomicI64::new(0);
    let deposit = |account: usize| {
        let (path, amount) = (format!("/call/account/{account}/deposit"), 1_i64 << account);
        let header = format!("Idempotency-Key: while-stopped-{account}");
        let reply = demo.request(1, "POST", &path, &[&header], amount.to_string().as_bytes());
        if reply.is_some_and(|reply| reply.status == 200) {
            acknowledged.fetch_add(amount, Ordering::SeqCst);
        }
    };
    let fill = |entity: u32| {
        let fill = br#"{"keys":1024,"size":4096}"#;
        demo.request(1, "POST", &format!("/call/kv/{entity}/fill"), &[], fill)
    };
    demo.signal(node, "-STOP");
    std::thread::scope(|threads| {
        for entity in 0..4 {
            let fill = &fill;
            threads.spawn(move || fill(entity));
        }
        std::thread::sleep(Duration::from_millis(150));
        for account in 0..ACCOUNTS {
            let deposit = &deposit;
            threads.spawn(move || deposit(account));
        }
        // If it lasts, the shards of the node go to others meanwhile.
        wait_until("a deposit is acknowledged", || acknowledged.load(Ordering::SeqCst) > 0);
        std::thread::sleep(Duration::from_millis(100));
        let before = acknowledged.load(Ordering::SeqCst);
        demo.signal(node, "-CONT");
        then();
        before
    })
}

/// Takes backups of a cluster of so many nodes and shards at one node, while another one has to catch up. Gives the node that is
/// restored from the last one.
fn back_up_under_load(demo: &Demo, (nodes, asked, stopped): (u16, u16, u16), data: &Path) -> Foreground {
    let path = |name: &str| data.join(name).display().to_string();
    let (place, restored) = (path("place"), path("restored"));
    let all: Vec<u16> = (1..=nodes).collect();
    for account in 0..ACCOUNTS {
        call(demo, &all, (account, "deposit"), "open", &OPENED_WITH.to_string());
    }
    let kv = repository().join("examples/kv").display().to_string();
    let deployed = millrace(&["deploy", &kv, "--url", &format!("http://127.0.0.1:{}", demo.http_base)]);
    assert_eq!(deployed.code, Some(0), "{}", deployed.err);
    let (is_over, next) = (AtomicBool::new(false), AtomicUsize::new(0));
    let client = |node: u16| {
        while !is_over.load(Ordering::Relaxed) {
            transfer(demo, &[node, 1, 2, 3], next.fetch_add(1, Ordering::Relaxed));
        }
    };
    let (taken, acknowledged) = std::thread::scope(|threads| {
        let over = StopOnDrop(&is_over);
        let client = &client;
        let clients: Vec<_> = (1..=6).map(|number| threads.spawn(move || client(number % nodes + 1))).collect();
        std::thread::sleep(Duration::from_millis(500));
        let mut taken = Vec::new();
        for number in 0..3 {
            call(demo, &all, (number, "deposit"), &format!("before-{number}"), "7");
            taken.push(back_up(demo, asked, &place));
        }
        // The first one that is taken counts: it may have to wait for too much.
        let take = || wait_until("a backup is taken", || back_up(demo, asked, &place).code == Some(0));
        let acknowledged = deposits_while_stopped(demo, stopped, take);
        drop(over);
        clients.into_iter().for_each(|client| client.join().expect("it calls"));
        (taken, acknowledged)
    });
    for taken in taken {
        assert_eq!(taken.code, Some(0), "{}", taken.err);
    }
    assert_ne!(acknowledged, 0, "some shards are served without the node that stops");
    assert!(next.load(Ordering::Relaxed) > 100, "there was load");
    let restore = millrace(&["restore", &place, "--data", &restored]);
    assert_eq!(restore.code, Some(0), "{}", restore.err);
    assert!(restore.err.contains("cluster rescue"), "it says what comes next: {}", restore.err);
    all.iter().for_each(|node| demo.kill(*node));
    let serve = ["serve", "--cores", "1", "--cluster-data", &restored];
    let refused = millrace(&serve);
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    assert!(refused.err.contains("restored from a backup"), "{}", refused.err);
    let rescued = millrace(&["cluster", "rescue", &restored, "--accept-loss"]);
    assert_eq!(rescued.code, Some(0), "{}", rescued.err);
    // It listens where the node did that was asked.
    let node = Foreground::start(Command::new(binary()).args(serve));
    let opened = i64::try_from(ACCOUNTS).expect("few") * OPENED_WITH + 3 * 7;
    wait_until("all accounts are read", || balances(demo, asked).is_some());
    let sum = || balances(demo, asked).map(|all| all.iter().sum::<i64>());
    // Transfers that were under way are ended by now.
    std::thread::sleep(Duration::from_secs(2));
    let expected = sum().expect("it is read");
    let there = expected - opened;
    assert!((0..1 << ACCOUNTS).contains(&there), "a transfer in part, or a deposit twice: {there}");
    assert_eq!(there & acknowledged, acknowledged, "what was acknowledged before is there: {there:b}");
    // It takes calls, and knows those that it has made.
    call(demo, &[asked], (0, "deposit"), "before-0", "7");
    assert_eq!(sum(), Some(expected), "a key holds over a backup");
    call(demo, &[asked], (0, "deposit"), "new", "7");
    assert_eq!(sum(), Some(expected + 7));
    node
}

#[test]
fn a_backup_under_load_has_what_was_acknowledged_and_no_transfer_in_part() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::with_app(&data.path().join("demo"), "examples/bank");
    let _node = back_up_under_load(&demo, (3, 2, 2), data.path());
}

#[test]
fn a_backup_has_the_shards_that_only_other_nodes_hold() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::of(&data.path().join("demo"), "examples/bank", (5, 20));
    wait_until("all is placed", || demo.holds() == Some(vec![12; 5]));
    let _node = back_up_under_load(&demo, (5, 1, 2), data.path());
    let restored = data.path().join("restored");
    assert!(!restored.join("nodes").exists(), "what other nodes had is the node's own now");
    // The cluster grows from it.
    let expected = balances(&demo, 1);
    let _sixth = join(&demo, 6);
    wait_until("the node that joins holds all", || demo.holds() == Some(vec![20, 20]));
    assert_eq!(balances(&demo, 6), expected);
}

#[test]
fn a_backup_without_an_answer_of_a_node_is_none_and_the_cluster_goes_on() {
    let data = tempfile::tempdir().expect("a folder");
    let place = data.path().join("place").display().to_string();
    let demo = Demo::start(&data.path().join("demo"));
    // Not at node 3: it would not answer.
    let add_all = |number: u32| {
        for counter in 0..6 {
            let (path, header) =
                (format!("/call/counter/{counter}/add"), format!("Idempotency-Key: {counter}-{number}"));
            let add = |node| demo.request(node, "POST", &path, &[&header], b"1");
            wait_until("a node takes the call", || [1, 2].into_iter().filter_map(add).any(|reply| reply.status == 200));
        }
    };
    add_all(0);
    demo.signal(3, "-STOP");
    let began = Instant::now();
    let failed = back_up(&demo, 1, &place);
    // The others may have found out already that it is silent. Then its shards are on their way.
    if failed.code != Some(0) {
        assert!(failed.err.contains("overloaded") && failed.err.contains("try again"), "{}", failed.err);
    }
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    let began = Instant::now();
    add_all(1);
    assert!(began.elapsed() < Duration::from_secs(10), "nobody stands still for ever: {:?}", began.elapsed());
    demo.signal(3, "-CONT");
    wait_until("a backup is taken again", || back_up(&demo, 1, &place).code == Some(0));
    let verified = millrace(&["backup", "verify", &place]);
    assert_eq!(verified.code, Some(0), "{}", verified.err);
}

/// A content that is too long to lie in the log.
fn content(object: usize, round: usize) -> String {
    format!("{object} {round} ").repeat(20_000)
}

/// Objects that are overwritten while the backup is taken, and others that are not.
const OVERWRITTEN: usize = 6;
const OBJECTS: usize = 18;

/// Takes a backup at node 2 while objects are overwritten. Gives for each how often it had been before, and how often after.
fn back_up_while_overwritten(demo: &Demo, place: &str) -> [Vec<usize>; 2] {
    let (is_over, rounds) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; OVERWRITTEN]);
    let overwrite = |object: usize| {
        while !is_over.load(Ordering::Relaxed) {
            let round = rounds[object].load(Ordering::SeqCst) + 1;
            let node = 1 + 2 * (round % 2) as u16;
            put(demo, node, &format!("/photos/{object}"), &content(object, round));
            rounds[object].store(round, Ordering::SeqCst);
        }
    };
    let known = || rounds.iter().map(|round| round.load(Ordering::SeqCst)).collect::<Vec<_>>();
    std::thread::scope(|threads| {
        let over = StopOnDrop(&is_over);
        let overwrite = &overwrite;
        (0..OVERWRITTEN).for_each(|object| drop(threads.spawn(move || overwrite(object))));
        let mut before = known();
        wait_until("a backup is taken", || {
            before = known();
            back_up(demo, 2, place).code == Some(0)
        });
        drop(over);
        // Whoever is in the middle of it may have been seen.
        [before, known().iter().map(|round| round + 1).collect()]
    })
}

#[test]
fn a_backup_has_the_contents_of_all_objects_of_its_moment() {
    if !has_programs(&["curl"]) {
        return;
    }
    let data = tempfile::tempdir().expect("a folder");
    let path = |name: &str| data.path().join(name).display().to_string();
    let (place, restored) = (path("place"), path("restored"));
    let demo = Demo::with_s3(&data.path().join("demo"));
    add_ann(&demo, 1);
    done(&demo, 1, &["-X", "PUT"], "/photos");
    (0..OBJECTS / 2).for_each(|object| put(&demo, 2, &format!("/photos/{object}"), &content(object, 0)));
    // Node 2 lacks what is written while it is away.
    demo.kill(2);
    (OBJECTS / 2..OBJECTS).for_each(|object| put(&demo, 3, &format!("/photos/{object}"), &content(object, 0)));
    let second = demo.revive(2);
    let [before, after] = back_up_while_overwritten(&demo, &place);
    let restore = millrace(&["restore", &place, "--data", &restored]);
    assert_eq!(restore.code, Some(0), "{}", restore.err);
    (1..=3).for_each(|node| demo.kill(node));
    drop(second);
    let rescued = millrace(&["cluster", "rescue", &restored, "--accept-loss"]);
    assert_eq!(rescued.code, Some(0), "{}", rescued.err);
    let _node = Foreground::start(Command::new(binary()).args(["serve", "--cores", "1", "--cluster-data", &restored]));
    let read = |object: usize| done(&demo, 2, &[], &format!("/photos/{object}"));
    for object in OVERWRITTEN..OBJECTS {
        assert_eq!(read(object), content(object, 0), "object {object}");
    }
    for object in 0..OVERWRITTEN {
        let found = read(object);
        let round = (before[object]..=after[object]).find(|round| found == content(object, *round));
        let begins = found.get(..20).unwrap_or(&found);
        assert!(round.is_some(), "object {object}: {begins} is none of {}..={}", before[object], after[object]);
    }
    assert!(
        before.iter().zip(&after).any(|(before, after)| before + 1 < *after),
        "something was overwritten meanwhile"
    );
    put(&demo, 2, "/photos/new", &content(0, 0));
}

#[test]
fn a_backup_has_the_contents_of_objects_that_only_other_nodes_hold() {
    if !has_programs(&["curl"]) {
        return;
    }
    const BUCKETS: usize = 8;
    let data = tempfile::tempdir().expect("a folder");
    let path = |name: &str| data.path().join(name).display().to_string();
    let (place, restored) = (path("place"), path("restored"));
    let demo = Demo::with_s3_of(&data.path().join("demo"), (5, 10));
    wait_until("all is placed", || demo.holds() == Some(vec![6; 5]));
    add_ann(&demo, 1);
    for bucket in 0..BUCKETS {
        done(&demo, 1, &["-X", "PUT"], &format!("/bucket-{bucket}"));
        put(&demo, 3, &format!("/bucket-{bucket}/object"), &content(bucket, 0));
    }
    wait_until("a backup is taken", || back_up(&demo, 1, &place).code == Some(0));
    let [first, second] = [back_up(&demo, 1, &place), back_up(&demo, 1, &place)];
    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{} {}", first.err, second.err);
    let restore = millrace(&["restore", &place, "--data", &restored]);
    assert_eq!(restore.code, Some(0), "{}", restore.err);
    (1..=5).for_each(|node| demo.kill(node));
    let rescued = millrace(&["cluster", "rescue", &restored, "--accept-loss"]);
    assert_eq!(rescued.code, Some(0), "{}", rescued.err);
    let _node = Foreground::start(Command::new(binary()).args(["serve", "--cores", "1", "--cluster-data", &restored]));
    for bucket in 0..BUCKETS {
        assert_eq!(done(&demo, 1, &[], &format!("/bucket-{bucket}/object")), content(bucket, 0));
    }
    put(&demo, 1, "/bucket-0/new", &content(0, 1));
}

#[test]
fn a_content_that_no_node_can_read_is_named_and_all_else_is_there() {
    if !has_programs(&["curl"]) {
        return;
    }
    let data = tempfile::tempdir().expect("a folder");
    let path = |name: &str| data.path().join(name).display().to_string();
    let (place, restored, large) = (path("place"), path("restored"), path("large"));
    std::fs::write(&large, "x".repeat(5 << 20)).expect("written");
    let demo = Demo::with_s3(&data.path().join("demo"));
    add_ann(&demo, 1);
    done(&demo, 1, &["-X", "PUT"], "/photos");
    put(&demo, 1, "/photos/before", &content(1, 0));
    demo.kill(2);
    put(&demo, 1, "/photos/after", &content(2, 0));
    // It has a file of its own, on the two nodes that are left.
    done(&demo, 1, &["-T", &large], "/photos/large");
    [1, 3].into_iter().for_each(|node| damage_contents(&demo.folder, node, &["files"]));
    let second = demo.revive(2);
    let mut taken = back_up(&demo, 2, &place);
    wait_until("a backup is taken", || {
        let began = Instant::now();
        taken = back_up(&demo, 2, &place);
        assert!(began.elapsed() < Duration::from_secs(30), "it took {:?}", began.elapsed());
        // Until the node follows the cluster there is none.
        taken.code != Some(1)
    });
    assert_eq!(taken.code, Some(3), "{} {}", taken.out, taken.err);
    assert!(taken.out.contains("missing: content of photos/large (shard "), "{}", taken.out);
    assert_eq!(taken.out.matches("missing: ").count(), 1, "{}", taken.out);
    let listed = millrace(&["backup", "list", &place, "--json"]).out;
    assert!(listed.contains(r#""object":["photos","large"]"#), "{listed}");
    let restore = millrace(&["restore", &place, "--data", &restored]);
    assert_eq!(restore.code, Some(3), "{}", restore.err);
    assert!(restore.out.contains("missing: content of photos/large"), "it says so again: {}", restore.out);
    (1..=3).for_each(|node| demo.kill(node));
    drop(second);
    let rescued = millrace(&["cluster", "rescue", &restored, "--accept-loss"]);
    assert_eq!(rescued.code, Some(0), "{}", rescued.err);
    let _node = Foreground::start(Command::new(binary()).args(["serve", "--cores", "1", "--cluster-data", &restored]));
    assert_eq!(done(&demo, 2, &[], "/photos/before"), content(1, 0));
    assert_eq!(done(&demo, 2, &[], "/photos/after"), content(2, 0));
}
