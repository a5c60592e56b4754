//! Every file of a data directory deleted, cut, swapped or put back as it was earlier: the node refuses and
//! names it, or has the same state. A directory of an earlier version gets its manifest and keeps it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use millrace_tests::{Server, ServerOptions};

use crate::s3_objects::{S3, add_ann};

/// Values of this size and number fill a quarter of the smallest memory: the checkpoint gets them, and the log behind it goes.
const VALUE_BYTES: usize = 100_000;
const VALUES: usize = 160;

fn options(folder: &Path) -> ServerOptions {
    let mut options = ServerOptions::examples(&["counter"]);
    for (flag, value) in [("--cores", "1"), ("--shards", "2"), ("--memory", "64MiB")] {
        options.set(flag, value);
    }
    options.folder = Some(folder.to_owned());
    options
}

fn value_of(round: usize, number: usize) -> String {
    format!("\"{}\"", format!("{round}/{number}/").repeat(VALUE_BYTES / 8))
}

/// Writes enough for the checkpoint to take it and for log segments to go.
fn write_round(server: &Server, round: usize) {
    let mut connection = server.connect();
    for number in 0..VALUES {
        let path = format!("/call/plain/{number}/put");
        let reply = connection.request("POST", &path, &[], value_of(round, number).as_bytes()).expect("a reply");
        assert!(reply.status == 200 || reply.status == 204, "{}", reply.text());
    }
    for number in 0..20 {
        let key = format!("Idempotency-Key: {round}-{number}");
        let reply = connection.request("POST", &format!("/call/counter/{number}/add"), &[&key], b"1").expect("a reply");
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

/// What a client can see of the state, an idempotency key used again included.
fn state(server: &Server) -> Vec<String> {
    let mut connection = server.connect();
    let mut seen = Vec::new();
    for number in 0..VALUES {
        let reply = connection.request("POST", &format!("/call/plain/{number}/get"), &[], b"").expect("a reply");
        let text = reply.text();
        seen.push(format!("{} {} {}", reply.status, text.len(), text.chars().take(12).collect::<String>()));
    }
    for number in 0..20 {
        let path = format!("/call/counter/{number}/value");
        seen.push(connection.request("POST", &path, &[], b"").expect("a reply").text());
        let key = format!("Idempotency-Key: 0-{number}");
        let again = connection.request("POST", &format!("/call/counter/{number}/add"), &[&key], b"1");
        seen.push(again.expect("a reply").text());
    }
    seen
}

/// A deployed app is kept in the directory: values of any size, and a workflow, whose version is kept too.
fn deploy(server: &Server) {
    let source = r#"import { service, query, workflow } from "millrace";
export default service({
  put(ctx, value) { ctx.set("value", value); },
  get: query((ctx) => ctx.get("value") ?? null),
  wait: workflow(async (ctx) => { await ctx.wait("never"); }),
});
"#;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("plain.ts"), source).expect("written");
    let archive =
        Command::new("tar").arg("-C").arg(folder.path()).args(["-cf", "-", "plain.ts"]).output().expect("tar");
    let reply = server.request("PUT", "/apps/plain", &["Content-Type: application/x-tar"], &archive.stdout);
    assert!(reply.status < 300, "{}", reply.text());
    let _ = server.send("plain/w/wait", "");
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["-a", "--sparse=always"]).arg(from).arg(to).status().expect("cp runs");
    assert!(copied.success());
}

fn files_below(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("below").to_str().expect("text").to_owned();
                files.insert(name, std::fs::read(&path).expect("read"));
            }
        }
    }
    files
}

/// A directory of two runs, as it was after the first and after the second.
struct History {
    own: tempfile::TempDir,
    state: Vec<String>,
}

impl History {
    fn make(stops_cleanly: bool) -> Self {
        let own = tempfile::tempdir().expect("a folder");
        let live = own.path().join("live");
        std::fs::create_dir(&live).expect("made");
        let mut server = Server::start(options(&live));
        deploy(&server);
        write_round(&server, 0);
        server.stop();
        copy(&live, &own.path().join("earlier"));
        server.restart();
        write_round(&server, 1);
        write_round(&server, 2);
        let state = state(&server);
        if stops_cleanly {
            server.stop();
        } else {
            server.kill();
        }
        drop(server);
        Self { own, state }
    }

    fn data(&self, name: &str) -> PathBuf {
        self.own.path().join(name).join("data")
    }

    /// Starts over a copy that `change` was made to. `names`: one of them is in the refusal.
    fn judge(&self, what: &str, names: &[&str], change: impl FnOnce(&Path)) {
        let folder = tempfile::tempdir().expect("a folder");
        copy(&self.data("live"), &folder.path().join("data"));
        change(&folder.path().join("data"));
        match Server::start_or_refusal(options(folder.path())) {
            Ok(server) => assert_eq!(state(&server), self.state, "{what}: it starts with another state"),
            Err(errors) => {
                let is_named = names.iter().any(|name| errors.contains(name) || errors.contains(part_of(name)));
                assert!(is_named, "{what}: the refusal names something else: {errors}");
            }
        }
    }
}

/// The library of the checkpoint has its own names for its files.
fn part_of(name: &str) -> &str {
    if name.starts_with("checkpoint/") { "checkpoint" } else { name }
}

/// Files that hold nothing: the lock, the process id, and space for the next manifest.
fn is_nothing(name: &str) -> bool {
    matches!(name, "lock" | "pid" | "manifest.new" | "checkpoint/lock")
}

#[test]
fn every_file_of_a_data_directory_is_missed_or_not_needed() {
    let history = History::make(true);
    let now = files_below(&history.data("live"));
    let earlier = files_below(&history.data("earlier"));
    assert!(now.keys().any(|name| name.starts_with("checkpoint/keyspaces/1/tables/")), "{:?}", now.keys());
    assert!(!now.contains_key("log/0000000001/0000000001.log"), "log segments went behind the checkpoint");
    history.judge("nothing", &[], |_| {});
    for (name, bytes) in now.iter().filter(|(name, _)| !is_nothing(name)) {
        let path = |data: &Path| data.join(name);
        history.judge(&format!("{name} deleted"), &[name], |data| {
            std::fs::remove_file(path(data)).expect("deleted");
        });
        history.judge(&format!("{name} cut"), &[name], |data| {
            let file = std::fs::OpenOptions::new().write(true).open(path(data)).expect("opened");
            file.set_len(bytes.len() as u64 / 2).expect("cut");
        });
        if let Some(old) = earlier.get(name).filter(|old| *old != bytes) {
            history.judge(&format!("{name} put back"), &[name, "manifest"], |data| {
                std::fs::write(path(data), old).expect("put back");
            });
        }
    }
    let names: Vec<&String> = now.keys().filter(|name| !is_nothing(name)).collect();
    for pair in names.windows(2).filter(|pair| Path::new(pair[0]).parent() == Path::new(pair[1]).parent()) {
        // Two segments in each other's place end their stream early: another file of its folder may be named.
        let folder = Path::new(pair[0]).parent().and_then(Path::to_str).filter(|folder| !folder.is_empty());
        let named = [pair[0], pair[1], folder.unwrap_or(pair[0])];
        history.judge(&format!("{} and {} swapped", pair[0], pair[1]), &named, |data| {
            std::fs::write(data.join(pair[0]), &now[pair[1]]).expect("written");
            std::fs::write(data.join(pair[1]), &now[pair[0]]).expect("written");
        });
    }
}

#[test]
fn a_whole_folder_is_missed_also_after_a_kill() {
    let history = History::make(false);
    history.judge("nothing", &[], |_| {});
    for folder in ["log", "checkpoint", "checkpoint/keyspaces", "checkpoint/keyspaces/1", "apps"] {
        history.judge(&format!("{folder} deleted"), &[folder], |data| {
            std::fs::remove_dir_all(data.join(folder)).expect("deleted");
        });
    }
    history.judge("log put back", &["log", "manifest"], |data| {
        std::fs::remove_dir_all(data.join("log")).expect("deleted");
        copy(&history.data("earlier").join("log"), &data.join("log"));
    });
    history.judge("checkpoint put back", &["checkpoint"], |data| {
        std::fs::remove_dir_all(data.join("checkpoint")).expect("deleted");
        copy(&history.data("earlier").join("checkpoint"), &data.join("checkpoint"));
    });
}

/// Whoever deletes the keys must not open the node to everybody.
#[test]
fn a_key_file_that_was_there_is_missed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(options(folder.path()));
    let keys = server.data().join("keys.json");
    server.stop();
    std::fs::write(&keys, r#"{"anonymous":["admin"],"keys":[]}"#).expect("written");
    server.restart();
    server.stop();
    std::fs::remove_file(&keys).expect("deleted");
    let errors = server.restart_refuses();
    assert!(errors.contains("keys.json"), "{errors}");
}

/// Objects of every kind that has a place of its own: in the entry, in a segment, in a file.
const OBJECTS: [(&str, usize); 4] = [("inline", 100), ("small", 40_000), ("other", 3_000_000), ("large", 6_000_000)];

fn content_of(name: &str, bytes: usize) -> String {
    name.repeat(bytes / name.len())
}

/// Every object is as it was, or is refused for damage.
fn check_objects(s3: &S3, what: &str) {
    for (name, bytes) in OBJECTS {
        let (status, body) = s3.ask("GET", &format!("/bodies/{name}"));
        let is_whole = status == 200 && body == content_of(name, bytes);
        assert!(is_whole || status == 500, "{what}: {name} is {status}, {} bytes", body.len());
    }
}

#[test]
fn bodies_of_objects_are_missed_and_never_mixed_up() {
    let own = tempfile::tempdir().expect("a folder");
    let live = own.path().join("live");
    std::fs::create_dir(&live).expect("made");
    let listen = |folder: &Path| S3::listen(ServerOptions { folder: Some(folder.to_owned()), ..options(folder) });
    let (start, s3) = listen(&live);
    let mut server = Server::start(start);
    add_ann(&server);
    assert_eq!(s3.ask("PUT", "/bodies").0, 200);
    for (name, bytes) in OBJECTS {
        let file = own.path().join(name);
        std::fs::write(&file, content_of(name, bytes)).expect("written");
        let put = s3.curl(&["-T", file.to_str().expect("text")], &format!("/bodies/{name}"));
        assert_eq!(put.expect("a reply").0, 200, "{name}");
    }
    server.stop();
    let bodies = files_below(&live.join("data/bodies"));
    let has = |end: &str| bodies.keys().any(|name| name.starts_with(end) || name.ends_with(end));
    assert!(has("files/") && has(".seg"), "{:?}", bodies.keys());
    let judge = |what: &str, is_missed: bool, change: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().expect("a folder");
        copy(&live.join("data"), &folder.path().join("data"));
        change(&folder.path().join("data/bodies"));
        let (start, s3) = listen(folder.path());
        match Server::start_or_refusal(start) {
            Ok(_server) => {
                assert!(!is_missed, "{what}: it starts");
                check_objects(&s3, what);
                // Without a count nobody knows which numbers are new.
                let written = if what == "start cut" { 503 } else { 200 };
                assert_eq!(s3.put("/bodies/new", &content_of("new", 30_000)).0, written, "{what}");
                check_objects(&s3, &format!("{what}, then a write"));
            }
            Err(errors) => assert!(errors.contains("bodies"), "{what}: the refusal names something else: {errors}"),
        }
    };
    for folder in ["", "segments", "files"] {
        judge(&format!("bodies/{folder} deleted"), true, &|bodies| {
            std::fs::remove_dir_all(bodies.join(folder)).expect("deleted");
        });
    }
    for (name, bytes) in &bodies {
        judge(&format!("{name} deleted"), name.ends_with(".seg"), &|bodies| {
            std::fs::remove_file(bodies.join(name)).expect("deleted");
        });
        judge(&format!("{name} cut"), name.ends_with(".seg"), &|bodies| {
            let file = std::fs::OpenOptions::new().write(true).open(bodies.join(name)).expect("opened");
            file.set_len(bytes.len() as u64 / 2).expect("cut");
        });
    }
}
