//! Promises about objects that only show in many rounds, or with much data. Each has a short form here, and a long one
//! that `cargo test -- --ignored` runs.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millrace_tests::{Server, ServerOptions, StopOnDrop, has_programs, wait_until};

use crate::s3_objects::{S3, add_ann, inbox};

/// Writers that begin at the same time.
const WRITERS: usize = 4;

fn served() -> (Server, S3) {
    let (options, s3) = S3::listen(ServerOptions::examples(&["counter"]));
    let server = Server::start(options);
    add_ann(&server);
    assert_eq!(s3.ask("PUT", "/photos").0, 200);
    (server, s3)
}

/// The statuses of writers that put an object under one condition, each with a content of its own.
fn race(s3: &S3, path: &str, condition: &str) -> Vec<(u16, String)> {
    let put = |writer: usize| {
        // Content that was there before would have the ETag that it had.
        let body = format!("{condition}, writer {writer}");
        let arguments = ["-X", "PUT", "--data-binary", &body, "-H", "content-type:", "-H", condition];
        (s3.curl(&arguments, path).expect("a reply").0, body)
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || put(writer))).collect();
        writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
    })
}

/// Of several writers with one condition exactly one wins: first the one that makes the object, then the one that
/// replaces it.
fn one_writer_wins(rounds: usize) {
    if !has_programs(&["curl"]) {
        return;
    }
    let (_server, s3) = served();
    let won = |path: &str, condition: &str| {
        let replies = race(&s3, path, condition);
        let winners: Vec<&String> = replies.iter().filter(|(status, _)| *status == 200).map(|(_, body)| body).collect();
        // 409: another request was under way. 412: it had ended.
        assert!(replies.iter().all(|(status, _)| [200, 409, 412].contains(status)), "{condition}: {replies:?}");
        assert_eq!(winners.len(), 1, "{condition}: {replies:?}");
        assert_eq!(&s3.ask("GET", path).1, winners[0]);
    };
    for round in 0..rounds {
        let path = format!("/photos/{round}");
        won(&path, "if-none-match: *");
        let (_, head) = s3.curl(&["-I"], &path).expect("a reply");
        let etag = head.lines().find_map(|line| line.strip_prefix("etag: ")).expect("an etag").trim().to_owned();
        won(&path, &format!("if-match: {etag}"));
    }
}

#[test]
fn of_conditional_writers_one_wins() {
    one_writer_wins(8);
}

#[test]
#[ignore = "takes a minute"]
fn of_conditional_writers_one_wins_a_thousand_times() {
    one_writer_wins(1_000);
}

/// Puts objects until it is told to stop; gives the keys that were answered, and the one that was not.
fn put_until(s3: &S3, stop: &AtomicBool, round: usize) -> (Vec<String>, Option<String>) {
    let mut answered = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("{round}-{number}");
        match s3.curl(&["-X", "PUT", "--data-binary", "x", "-H", "content-type:"], &format!("/photos/{key}")) {
            Ok((200, _)) => answered.push(key),
            _ => return (answered, Some(key)),
        }
    }
    (answered, None)
}

/// What was put is told exactly once, whenever the node is killed.
fn told_once(kills: usize) {
    if !has_programs(&["curl"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let app = inbox(folder.path(), r#"["photos"]"#);
    let (options, s3) = S3::listen(ServerOptions::examples(&["counter"]).with(&["--app", &app]));
    let mut server = Server::start(options);
    add_ann(&server);
    assert_eq!(s3.ask("PUT", "/photos").0, 200);
    let rule = "<NotificationConfiguration><CloudFunctionConfiguration>\
                <CloudFunction>arn:millrace:function:inbox:mail:arrived</CloudFunction><Event>s3:ObjectCreated:*</Event>\
                </CloudFunctionConfiguration></NotificationConfiguration>";
    assert_eq!(s3.put("/photos?notification=", rule).0, 200);
    let (mut answered, mut unknown) = (Vec::new(), Vec::new());
    for round in 0..kills {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let told = StopOnDrop(&stop);
            let putting = scope.spawn(|| put_until(&s3, &stop, round));
            // Not a wait for anything: the kill comes at another place each time.
            thread::sleep(Duration::from_millis(100 + (round as u64 * 37) % 150));
            server.kill();
            drop(told);
            let (more, open) = putting.join().expect("no panic");
            answered.extend(more);
            unknown.extend(open);
        });
        server.restart();
    }
    assert!(answered.len() >= kills / 2, "{}", answered.len());
    let told = |key: &String| server.value(&format!("mail/{key}/events"), "").as_u64().expect("a number");
    wait_until("everything is told", || answered.iter().all(|key| told(key) >= 1));
    for key in &answered {
        assert_eq!(told(key), 1, "{key}");
    }
    for key in &unknown {
        let is_there = u64::from(s3.ask("GET", &format!("/photos/{key}")).0 == 200);
        wait_until("it is told if it is there", || told(key) >= is_there);
        assert_eq!(told(key), is_there, "{key}");
    }
    println!("{} answered, {} unknown, {kills} kills", answered.len(), unknown.len());
}

#[test]
fn notifications_come_once_over_kills() {
    told_once(2);
}

#[test]
#[ignore = "takes minutes"]
fn notifications_come_once_over_a_hundred_kills() {
    told_once(100);
}

/// A large object goes in and comes out, and the node's memory does not grow with it.
fn large(size_bytes: u64, growth_kib: u64) {
    if !has_programs(&["curl", "cmp", "mkfifo"]) {
        return;
    }
    let (server, s3) = served();
    let folder = tempfile::tempdir_in(server.data()).expect("a folder");
    let file_of = |name: &str, size_bytes: u64| {
        let file = folder.path().join(name);
        std::fs::File::create(&file).and_then(|file| file.set_len(size_bytes)).expect("a file with a hole");
        file
    };
    // What every object needs is there once.
    assert_eq!(put_file(&s3, &file_of("first", 16 << 20), "/photos/first"), 200);
    let file = file_of("large", size_bytes);
    let before_kib = server.status_kib("VmRSS");
    let began = Instant::now();
    assert_eq!(put_file(&s3, &file, "/photos/large"), 200);
    let put_s = began.elapsed().as_secs_f64();
    // Compared as it comes, so that it is on the disk only once.
    let pipe = folder.path().join("pipe");
    let pipe = pipe.to_str().expect("text");
    assert!(Command::new("mkfifo").arg(pipe).status().expect("run").success());
    let mut comparing = Command::new("cmp").args([file.to_str().expect("text"), pipe]).spawn().expect("run");
    let began = Instant::now();
    assert_eq!(s3.curl(&["-o", pipe], "/photos/large").expect("a reply").0, 200);
    let get_s = began.elapsed().as_secs_f64();
    assert!(comparing.wait().expect("it ends").success(), "it came back as another one");
    let peak_kib = server.status_kib("VmHWM");
    let grown_kib = peak_kib.saturating_sub(before_kib);
    println!("{size_bytes} bytes: put {put_s:.1} s, get {get_s:.1} s, {grown_kib} KiB more at the peak");
    assert!(grown_kib < growth_kib, "{grown_kib} KiB");
}

fn put_file(s3: &S3, file: &Path, path: &str) -> u16 {
    let arguments = ["-T", file.to_str().expect("text"), "-H", "content-type:"];
    s3.curl(&arguments, path).expect("a reply").0
}

#[test]
fn memory_does_not_grow_with_an_object() {
    large(96 << 20, 48 << 10);
}

#[test]
#[ignore = "takes 5 GB of disk and minutes"]
fn memory_does_not_grow_with_an_object_of_5_gb() {
    large(5_000_000_000, 64 << 10);
}
