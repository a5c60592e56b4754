//! Promises 4 and 5. An acknowledged call is as durable as the setting says. Damage is told apart from a torn end.
//! Nothing is invented.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use millrace_tests::{Output, Server, ServerOptions, WatchedDisk, millrace, wait_until};

fn server(durability: &str) -> Server {
    let mut options = ServerOptions::examples(&["counter"]);
    options.set("--durability", durability);
    // One stream of the log, so that the test knows where its entries are.
    options.set("--cores", "1");
    Server::start(options)
}

fn add(server: &Server, times: u64) {
    let mut connection = server.connect();
    for _ in 0..times {
        let reply = connection.request("POST", "/call/counter/k/add", &[], b"1").expect("a reply");
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

fn value(server: &Server) -> u64 {
    server.value("counter/k/value", "").as_u64().expect("a number")
}

#[test]
fn with_fsync_every_acknowledged_write_has_had_one() {
    let server = server("fsync");
    let (syncs, entries) = ("millrace_fsync_seconds_count", "millrace_log_entries_total");
    let (syncs_before, entries_before) = (server.metric(syncs), server.metric(entries));
    // The calls follow each other, so none can share a sync with another.
    add(&server, 50);
    assert_eq!(server.metric(entries) - entries_before, 50.0);
    assert!(server.metric(syncs) - syncs_before >= 50.0);
    assert!(server.metric("millrace_fsync_seconds_sum") > 0.0, "the syncs took no time");
    let reads_before = server.metric(entries);
    for _ in 0..20 {
        assert_eq!(value(&server), 50);
    }
    assert_eq!(server.metric(entries), reads_before, "reading writes nothing");
}

/// Calls that come during a sync share the next one, whatever number of connections they come from.
#[test]
fn concurrent_calls_share_a_sync() {
    const CONNECTIONS: usize = 64;
    let Some(disk) = WatchedDisk::new() else { return };
    let mut options = ServerOptions::examples(&["counter"]);
    options.set("--cores", "1");
    disk.give(&mut options);
    let server = Server::start(options);
    add(&server, 3);
    let names = ["millrace_log_entries_total", "millrace_log_batches_total", "millrace_fsync_seconds_count"];
    let counts = || names.map(|name| server.metric(name)).into_iter().chain([f64::from(disk.syncs())]).collect();
    let before: Vec<f64> = counts();
    assert_eq!(before[3], before[2], "each sync is counted");
    let group_sum_before = server.metric("millrace_group_size_sum");

    disk.hold_syncs();
    let mut connections: Vec<_> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    let (first, others) = connections.split_first_mut().expect("some");
    first.send("POST", "/call/counter/k/add", &[], b"1").expect("sent");
    wait_until("its sync is under way", || disk.waiting_syncs() == 1);
    for (number, other) in others.iter_mut().enumerate() {
        other.send("POST", &format!("/call/counter/other{number}/add"), &[], b"1").expect("sent");
        // The calls come one by one. So they share because a sync is under way, not because they came together.
        let entries = before[0] + number as f64 + 2.0;
        wait_until("it has run", || server.metric(names[0]) == entries);
    }
    assert_eq!(counts()[1..], before[1..], "none of them is durable yet");
    disk.release_syncs();
    for connection in &mut connections {
        let reply = connection.receive(false).expect("a reply");
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let more: Vec<f64> = counts().iter().zip(&before).map(|(after, before)| after - before).collect();
    assert_eq!(
        more,
        [CONNECTIONS as f64, 2.0, 2.0, 2.0],
        "entries, batches and syncs: the first call's, and one for all others"
    );
    assert_eq!(server.metric("millrace_group_size_sum") - group_sum_before, CONNECTIONS as f64);
}

#[test]
fn with_os_a_killed_process_loses_nothing() {
    let mut server = server("os");
    for life in 1..=3 {
        add(&server, 200);
        server.kill();
        server.restart();
        assert_eq!(value(&server), 200 * life);
    }
}

#[test]
fn with_none_a_clean_stop_loses_nothing_and_a_crash_only_the_latest() {
    let mut server = server("none");
    add(&server, 200);
    assert_eq!(server.metric("millrace_log_bytes_total"), 0.0, "there is a log");
    assert!(server.stop(), "{}", server.errors());
    server.restart();
    assert_eq!(value(&server), 200);
    add(&server, 100);
    server.kill();
    server.restart();
    assert!((200..=300).contains(&value(&server)), "{}", value(&server));
    // The kept state goes on under another setting, and back.
    let kept = value(&server);
    assert!(server.stop());
    server.options().set("--durability", "fsync");
    server.restart();
    add(&server, 5);
    server.kill();
    server.restart();
    assert_eq!(value(&server), kept + 5);
}

/// The places of entries, as `millrace inspect --entries` prints them: file and offset.
fn places(data: &Path) -> Vec<(String, u64)> {
    let output = inspect(data, &["--entries"]);
    let place = |line: &str| {
        let (file, rest) = line.split_once(".log:")?;
        Some((format!("{file}.log"), rest.split(' ').next()?.parse().ok()?))
    };
    output.out.lines().filter_map(place).collect()
}

fn inspect(data: &Path, more: &[&str]) -> Output {
    millrace(&[&["inspect", "--data", data.to_str().expect("text")], more].concat())
}

fn repair(data: &Path, more: &[&str]) -> Output {
    millrace(&[&["repair", "--data", data.to_str().expect("text")], more].concat())
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("the segment");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("written");
}

/// Every file below a folder, with its content.
fn snapshot(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(snapshot(&path));
        } else {
            files.push((path.clone(), std::fs::read(&path).expect("read")));
        }
    }
    files.sort();
    files
}

#[test]
fn damage_in_the_middle_is_refused_named_and_repaired_only_on_demand() {
    const ADDS: u64 = 60;
    let mut server = server("fsync");
    add(&server, ADDS);
    assert!(server.stop(), "{}", server.errors());
    let data = server.data();
    let whole = inspect(&data, &[]);
    assert_eq!(whole.code, Some(0), "{}{}", whole.out, whole.err);
    assert!(whole.out.contains("no damage"), "{}", whole.out);
    let places = places(&data);
    assert!(places.len() as u64 >= ADDS, "{} entries", places.len());
    let (file, offset) = places[places.len() / 3].clone();
    flip(&data.join(&file), offset + 20);
    let log = snapshot(&data.join("log"));

    let errors = server.restart_refuses();
    println!("{errors}");
    let says = |text: &str, what: &str| assert!(text.contains(what), "no {what:?} in {text}");
    for what in [file.as_str(), " at byte ", "millrace inspect", "millrace repair", "--accept-loss"] {
        says(&errors, what);
    }
    let named = errors.split(" at byte ").nth(1).and_then(|rest| rest.split(':').next()).expect("an offset").to_owned();
    let named_offset: u64 = named.parse().expect("a number");
    assert!(named_offset <= offset + 20 && named_offset + 4096 > offset, "{named_offset} for {offset}");

    let inspected = inspect(&data, &[]);
    assert_eq!(inspected.code, Some(1));
    says(&inspected.out, &format!("{file} at byte {named}"));
    let tried = repair(&data, &[]);
    println!("{}{}", tried.out, tried.err);
    assert_eq!(tried.code, Some(1));
    says(&tried.out, &format!("{file} at byte {named}"));
    says(&tried.out, "lost:");
    says(&tried.out, "perhaps lost:");
    says(&tried.err, "--accept-loss");
    assert!(snapshot(&data.join("log")) == log, "a refused start, inspect or repair without the flag changed the log");
    let _ = server.restart_refuses();

    let repaired = repair(&data, &["--accept-loss"]);
    println!("{}", repaired.out);
    assert_eq!(repaired.code, Some(0), "{}", repaired.err);
    says(&repaired.out, "set aside");
    server.restart();
    let kept = value(&server);
    println!("{kept} of {ADDS} kept");
    assert_eq!(kept, places.len() as u64 / 3 - (places.len() as u64 - ADDS), "what precedes the damage is kept");
    add(&server, 3);
    server.kill();
    server.restart();
    assert_eq!(value(&server), kept + 3);
    assert!(server.stop());
    let again = repair(&data, &[]);
    assert_eq!(again.code, Some(0), "{}", again.err);
    says(&again.out, "nothing to repair");
}

/// The last segment of the last stream, and where its last batch ends.
fn end_of_log(data: &Path) -> (PathBuf, u64) {
    let output = inspect(data, &[]);
    assert_eq!(output.code, Some(0), "a crash is no damage: {}{}", output.out, output.err);
    let used = |line: &str| {
        let (file, rest) = line.trim().split_once("  ")?;
        Some((data.join(file), rest.split(' ').next()?.parse().ok()?))
    };
    output
        .out
        .lines()
        .filter(|line| line.contains(" bytes, "))
        .filter_map(used)
        .rfind(|(_, used)| *used > 0)
        .expect("a segment")
}

#[test]
fn a_torn_end_is_cut_off_silently() {
    let mut server = server("fsync");
    let mut expected = 0;
    // What a power cut may leave behind the last whole batch.
    let garbage: Vec<u8> = (0..3000u32).map(|n| (n * 31 % 251) as u8).collect();
    for (what, length) in [("nothing", 0), ("a few bytes", 5), ("a sector", 512), ("more", 3000)] {
        add(&server, 40);
        expected += 40;
        server.kill();
        let (segment, used) = end_of_log(&server.data());
        let file = OpenOptions::new().write(true).open(&segment).expect("the segment");
        file.write_all_at(&garbage[..length], used).expect("written");
        drop(file);
        server.restart();
        assert_eq!(value(&server), expected, "{what} behind the end");
        assert!(!server.errors().to_lowercase().contains("damage"), "{}", server.errors());
    }
    // Only the beginning of the last batch reached the disk. It counts as never written, because it cannot have been
    // acknowledged.
    add(&server, 40);
    server.kill();
    let (segment, used) = end_of_log(&server.data());
    let (_, last) = places(&server.data()).pop().expect("an entry");
    let file = OpenOptions::new().write(true).open(&segment).expect("the segment");
    let torn = last + (used - last) / 2;
    file.write_all_at(&vec![0; (used - torn) as usize], torn).expect("written");
    drop(file);
    server.restart();
    let found = value(&server);
    assert!((expected + 39..=expected + 40).contains(&found), "{found}");
    add(&server, 1);
    assert_eq!(value(&server), found + 1);
}
