//! A backup of a running node shows one moment: what was acknowledged before it is there, and no transaction in part. It is
//! whole or not there, the next one keeps only what is new, and nothing is restored but what was backed up.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_tests::{
    Client, Load, Output, Random, Server, ServerOptions, Shared, TestApp, assert_problem, binary, has_programs,
    millrace, wait_until,
};
use serde_json::{Value, json};

use crate::disk_full::SmallDisk;
use crate::s3_objects::{KEYS, S3, add_ann};

const ACCOUNTS: u64 = 40;
const OPENED: u64 = 1_000;
const CLIENTS: u64 = 6;

/// A place of backups, and folders to restore to.
struct Backups(tempfile::TempDir);

impl Backups {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("text").to_owned()
    }

    fn place(&self) -> String {
        self.path("place")
    }

    fn backup(&self, server: &Server) -> Output {
        millrace(&["backup", &self.place(), "--url", &server.url()])
    }

    fn must_back_up(&self, server: &Server) -> Output {
        let output = self.backup(server);
        assert_eq!(output.code, Some(0), "{}", output.err);
        output
    }

    /// The backups that are there.
    fn list(&self) -> Vec<Value> {
        let output = millrace(&["backup", "list", &self.place(), "--json"]);
        assert_eq!(output.code, Some(0), "{}", output.err);
        output.out.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }

    fn verify(&self) -> Output {
        millrace(&["backup", "verify", &self.place()])
    }

    /// Restores into `folder/data`, where a server of that folder looks for it.
    fn restore(&self, folder: &str, backup: Option<&str>) -> Output {
        let data = format!("{}/data", self.path(folder));
        let mut arguments = vec!["restore", self.0.path().to_str().expect("text"), "--data", &data];
        let place = self.place();
        arguments[1] = &place;
        arguments.extend(backup.iter().flat_map(|id| ["--backup", id]));
        millrace(&arguments)
    }

    /// A server on what was restored.
    fn start_restored(&self, folder: &str, backup: Option<&str>, mut options: ServerOptions) -> Server {
        let output = self.restore(folder, backup);
        assert_eq!(output.code, Some(0), "{}", output.err);
        options.folder = Some(self.0.path().join(folder));
        Server::start(options)
    }

    fn chunks(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let folders = std::fs::read_dir(self.0.path().join("place").join("chunks"));
        for folder in folders.into_iter().flatten() {
            let folder = folder.expect("an entry").path();
            found.extend(std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").path()));
        }
        found
    }

    fn chunk_bytes(&self) -> u64 {
        let length = |chunk: &PathBuf| std::fs::metadata(chunk).map_or(0, |found| found.len());
        self.chunks().iter().map(length).sum()
    }
}

fn new_bytes(output: &Output) -> u64 {
    let words: Vec<&str> = output.out.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "of").expect("of them new");
    words[at - 1].parse().expect("a number")
}

/// What each client was told so far: the value of its own counter.
type Told = Arc<Vec<AtomicU64>>;

/// Transfers between any two accounts, relays to two others, and counts itself.
fn transfer(number: u64, shared: &Shared, told: &Told) {
    let mut client = Client::new(shared);
    let mut random = Random::of(number);
    let mut calls = 0u64;
    while !client.stops() {
        let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
        let header = format!("Idempotency-Key: t-{number}-{calls}");
        let body = json!({ "to": format!("a{to}"), "amount": random.below(50) }).to_string();
        if from != to {
            let reply = client.until_answered("POST", &format!("/call/ledger/a{from}/transfer"), &[&header], &body);
            assert!([200, 409].contains(&reply.status), "{}", reply.text());
        }
        let header = format!("Idempotency-Key: r-{number}-{calls}");
        let to = json!([format!("m{}", random.below(ACCOUNTS)), format!("m{}", random.below(ACCOUNTS))]).to_string();
        let path = format!("/call/ledger/c{number}/relay");
        let reply = client.until_answered("POST", &path, &[&header], &to);
        assert_eq!(reply.status, 200, "{}", reply.text());
        calls += 1;
        assert_eq!(reply.json(), calls, "a relay was lost or made twice");
        told[number as usize].store(calls, Ordering::Release);
        client.acknowledged();
    }
}

const WAITING: &str = r#"
import { service, query, workflow } from "millrace";
export default service({
  rest: workflow(async (ctx, ms: number) => {
    await ctx.call("sleeper", ctx.key, "begin", null);
    await ctx.sleep(ms);
    return await ctx.call("sleeper", ctx.key, "end", null);
  }),
  begin(ctx) { ctx.set("begun", (ctx.get("begun") ?? 0) + 1); },
  end(ctx) { ctx.set("ended", (ctx.get("ended") ?? 0) + 1); return "rested"; },
  seen: query((ctx) => [ctx.get("begun") ?? 0, ctx.get("ended") ?? 0]),
});"#;

fn options() -> ServerOptions {
    ServerOptions::examples(&["counter"]).and_test_apps(&["ledger"])
}

fn open_accounts(server: &Server) {
    for account in 0..ACCOUNTS {
        assert_eq!(server.value(&format!("ledger/a{account}/open"), &OPENED.to_string()), OPENED);
    }
}

/// The restored server has all of what was told before, the sums are right, and every message arrives once.
fn audit(server: &Server, told_before: &[u64]) {
    let total: u64 = (0..ACCOUNTS)
        .map(|account| server.value(&format!("ledger/a{account}/balance"), "null").as_u64().expect("no debts"))
        .sum();
    assert_eq!(total, ACCOUNTS * OPENED, "a transfer is there in part");
    let mut sent = 0;
    for (client, told) in told_before.iter().enumerate() {
        let found = server.get(&format!("/state/ledger/c{client}"))["sent"].as_u64().unwrap_or_default();
        assert!(found >= *told, "client {client} was told {told} before the backup, and it has {found}");
        sent += 2 * found;
    }
    wait_until("all messages have arrived", || {
        let seen = |key| server.value(&format!("ledger/m{key}/seen"), "null").as_u64().expect("a number");
        let arrived: u64 = (0..ACCOUNTS).map(seen).sum();
        assert!(arrived <= sent, "a message arrived twice");
        arrived == sent
    });
    assert!(server.dead_letters().is_empty());
}

#[test]
fn a_backup_under_load_shows_one_moment() {
    let place = Backups::new();
    let server = Server::start(options());
    open_accounts(&server);
    assert!([200, 201].contains(&TestApp::with("sleeper.ts", WAITING).deploy(&server, "naps").status));
    let told: Told = Arc::new((0..CLIENTS).map(|_| AtomicU64::new(0)).collect());
    let clients = Arc::clone(&told);
    let load = Load::start(&server, CLIENTS, move |number, shared| transfer(number, shared, &clients));
    let naps: Vec<String> = (0..20).map(|nap| server.send(&format!("sleeper/n{nap}/rest"), "8000")).collect();
    wait_until("the naps have begun", || (0..20).all(|nap| server.value(&format!("sleeper/n{nap}/seen"), "")[0] == 1));
    let mut snapshots = Vec::new();
    for _ in 0..4 {
        load.wait_for(60);
        let before: Vec<u64> = told.iter().map(|told| told.load(Ordering::Acquire)).collect();
        place.must_back_up(&server);
        snapshots.push(before);
    }
    load.finish();
    let listed = place.list();
    assert_eq!(listed.len(), snapshots.len());
    drop(server);
    assert_eq!(place.verify().code, Some(0), "{}", place.verify().out);
    for (number, (listed, before)) in listed.iter().zip(&snapshots).enumerate() {
        let id = listed["id"].as_str().expect("an id");
        let restored = place.start_restored(&format!("r{number}"), Some(id), options());
        audit(&restored, before);
        for (nap, id) in naps.iter().enumerate() {
            assert_eq!(restored.ended(id)["output"], "rested");
            assert_eq!(restored.value(&format!("sleeper/n{nap}/seen"), ""), json!([1, 1]));
        }
        assert!(!restored.errors().contains("not closed"), "it is as after a clean stop: {}", restored.errors());
    }
}

/// Bytes that differ everywhere.
fn noise(path: &Path, bytes: u64) -> String {
    let file = path.join(format!("noise{bytes}"));
    let mut random = Random::of(bytes);
    let words: Vec<u8> = (0..bytes / 8).flat_map(|_| random.below(u64::MAX).to_le_bytes()).collect();
    std::fs::write(&file, words).expect("written");
    file.to_str().expect("text").to_owned()
}

fn put_file(s3: &S3, key: &str, file: &str) {
    assert_eq!(s3.curl(&["-T", file], &format!("/photos/{key}")).expect("a reply").0, 200);
}

/// An object of S3 is what this file holds.
fn same(s3: &S3, folder: &Path, key: &str, file: &str) -> bool {
    let got = folder.join("got");
    let status = s3.curl(&["-o", got.to_str().expect("text")], &format!("/photos/{key}")).expect("a reply").0;
    status == 200 && std::fs::read(&got).expect("read") == std::fs::read(file).expect("read")
}

#[test]
fn records_objects_users_and_apps_come_back_and_bodies_stay_while_they_are_sent() {
    if !has_programs(&["curl"]) {
        return;
    }
    let place = Backups::new();
    let (options, s3) = S3::listen(options());
    let server = Server::start(options.clone());
    add_ann(&server);
    assert_eq!(s3.ask("PUT", "/photos").0, 200);
    let files: Vec<(String, String)> = [800u64, 200_000, 3 << 20, 24 << 20]
        .iter()
        .map(|bytes| (format!("k{bytes}"), noise(place.0.path(), *bytes)))
        .collect();
    for (key, file) in &files {
        put_file(&s3, key, file);
    }
    let schema =
        json!({ "schema": { "type": "record", "name": "Item", "fields": [{ "name": "count", "type": "int" }] } });
    assert_eq!(server.request("PUT", "/schemas/item", &[], schema.to_string().as_bytes()).status, 201);
    let json = ["Content-Type: application/json"];
    assert!(server.request("PUT", "/records/item/a", &json, br#"{"count":7}"#).status < 300);
    assert!(TestApp::example("echo").deploy(&server, "echoed").status < 300);

    // One backup is read so slowly that the node has to keep for it what is deleted meanwhile.
    let mut slow = TcpStream::connect(server.address()).expect("the server accepts");
    slow.write_all(b"POST /backup HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    let mut archive = vec![0; 100];
    slow.read_exact(&mut archive).expect("the head and some bytes");
    assert_problem(&server.request("POST", "/backup", &[], b""), 503, "overloaded");
    for (key, _) in &files[1..] {
        assert_eq!(s3.ask("DELETE", &format!("/photos/{key}")).0, 204);
    }
    std::thread::sleep(Duration::from_millis(300));
    slow.read_to_end(&mut archive).expect("the rest");
    let archive = without_chunks(&archive);
    let has = |text: &[u8]| archive.windows(text.len()).any(|part| part == text);
    assert!(has(b"backup.json") && !has(b"backup-broken"), "it came to its end");
    let body = std::fs::read(&files[3].1).expect("read");
    assert!(has(&body[..4096]) && has(&body[(20 << 20)..(20 << 20) + 4096]), "the deleted body is in it");
    wait_until("the body is deleted", || {
        std::fs::read_dir(server.data().join("bodies/files")).expect("a folder").next().is_none()
    });
    assert!(!server.data().join("backup.held").exists());

    for (key, file) in &files {
        put_file(&s3, key, file);
    }
    place.must_back_up(&server);
    drop(server);
    let restored = place.start_restored("r", None, options);
    for (key, file) in &files {
        assert!(same(&s3, place.0.path(), key, file), "{key}");
    }
    assert_eq!(restored.get("/records/item/a")["count"], 7);
    assert!(restored.request("GET", "/apps", &[], b"").text().contains("echoed"));
    let secret = std::fs::metadata(restored.data().join("secret")).expect("it is there").permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&secret) & 0o777, 0o600);
}

#[test]
fn a_content_that_is_known_to_be_damaged_is_named() {
    if !has_programs(&["curl"]) {
        return;
    }
    let place = Backups::new();
    let (options, s3) = S3::listen(options());
    let server = Server::start(options);
    add_ann(&server);
    assert_eq!(s3.ask("PUT", "/photos").0, 200);
    let [whole, damaged] = [200_000, 5 << 20].map(|bytes| noise(place.0.path(), bytes));
    put_file(&s3, "whole", &whole);
    put_file(&s3, "damaged", &damaged);
    assert_eq!(place.backup(&server).code, Some(0));
    let file = std::fs::read_dir(server.data().join("bodies/files")).expect("a folder").next().expect("a file");
    let file = file.expect("an entry").path();
    let mut bytes = std::fs::read(&file).expect("read");
    bytes[1 << 20] ^= 1;
    std::fs::write(&file, bytes).expect("changed");
    let read = s3.curl(&["-o", &place.path("got")], "/photos/damaged");
    assert!(read.is_err(), "it breaks off: {read:?}");
    let taken = place.backup(&server);
    assert_eq!(taken.code, Some(3), "{} {}", taken.out, taken.err);
    assert!(taken.out.contains("missing: content of photos/damaged (shard "), "{}", taken.out);
    let missing: Vec<usize> =
        place.list().iter().map(|backup| backup["missing"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!(missing, [0, 1]);
    assert_eq!(place.restore("r", None).code, Some(3));
    // A backup does not come back to it once the object is gone.
    assert_eq!(s3.ask("DELETE", "/photos/damaged").0, 204);
    wait_until("the body is freed, and the backup is whole", || place.backup(&server).code == Some(0));
}

/// The body of a reply that came in chunks. Where one ends depends on how fast the reader was.
fn without_chunks(reply: &[u8]) -> Vec<u8> {
    let line_end = |from: usize| from + reply[from..].windows(2).position(|two| two == b"\r\n").expect("a line");
    let mut at = reply.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let mut body = Vec::new();
    loop {
        let end = line_end(at);
        let digits = std::str::from_utf8(&reply[at..end]).expect("a size");
        let size = usize::from_str_radix(digits, 16).expect("a size");
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&reply[end + 2..end + 2 + size]);
        at = end + 2 + size + 2;
    }
}

/// Puts objects of so many MiB in all.
fn with_objects(mebibytes: u64, place: &Backups) -> (Server, S3, ServerOptions) {
    let (options, s3) = S3::listen(options());
    let server = Server::start(options.clone());
    add_ann(&server);
    assert_eq!(s3.ask("PUT", "/photos").0, 200);
    for number in 0..mebibytes / 32 {
        let file = noise(place.0.path(), (32 << 20) + number * 8);
        put_file(&s3, &format!("k{number}"), &file);
        std::fs::remove_file(file).expect("removed");
    }
    (server, s3, options)
}

fn spawn_backup(place: &Backups, server: &Server) -> Child {
    Command::new(binary())
        .args(["backup", &place.place(), "--url", &server.url()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started")
}

#[test]
fn a_killed_backup_leaves_no_backup_and_the_next_one_goes_on() {
    if !has_programs(&["curl"]) {
        return;
    }
    let place = Backups::new();
    let (mut server, _s3, options) = with_objects(192, &place);
    assert_eq!(server.value("counter/k/add", "5"), 5);

    // The command is killed.
    let mut command = spawn_backup(&place, &server);
    wait_until("some chunks are there", || place.chunk_bytes() > 40 << 20);
    command.kill().expect("killed");
    command.wait().expect("it ends");
    assert!(place.list().is_empty(), "it had no time to end");
    let held = server.data().join("backup.held");
    wait_until("the node lets go", || !held.exists());

    // The node is killed.
    let mut command = spawn_backup(&place, &server);
    wait_until("the backup has begun", || {
        let ended = command.try_wait().expect("it is ours");
        // The node takes the next one a moment after the folder is gone.
        if ended.is_some_and(|status| !status.success()) {
            command = spawn_backup(&place, &server);
        }
        held.exists() || ended.is_some_and(|status| status.success())
    });
    server.kill();
    let status = command.wait().expect("it ends");
    let mut errors = String::new();
    command.stderr.take().expect("piped").read_to_string(&mut errors).expect("text");
    // On a quick machine the first one may have come to its end.
    let ended = usize::from(status.success());
    assert_eq!(place.list().len(), ended, "{errors}");
    assert!(status.success() || errors.starts_with("millrace: "), "{errors}");
    server.restart();
    assert!(!held.exists(), "a start removes what was left");

    let before = place.chunk_bytes();
    let output = place.must_back_up(&server);
    let grown = place.chunk_bytes() - before;
    assert!(new_bytes(&output).abs_diff(grown) < 1 << 20, "it uses what is there: {} of {grown}", output.out);
    assert!(grown < (192 - 24) << 20, "{grown}");
    let again = place.must_back_up(&server);
    assert!(new_bytes(&again) < 24 << 20, "only what is new: {}", again.out);
    assert_eq!(place.verify().code, Some(0), "{}", place.verify().out);
    drop(server);
    let restored = place.start_restored("r", None, options);
    assert_eq!(restored.value("counter/k/value", "null"), 5);
}

#[test]
fn a_damaged_chunk_is_named_and_nothing_is_restored() {
    let place = Backups::new();
    let server = Server::start(options());
    assert_eq!(server.value("counter/k/add", "1"), 1);
    place.must_back_up(&server);
    place.must_back_up(&server);
    let pruned = millrace(&["backup", "prune", &place.place(), "--keep", "1"]);
    assert_eq!((pruned.code, place.list().len()), (Some(0), 1), "{}", pruned.err);
    let chunks = place.chunks();
    let chunk = chunks.iter().max_by_key(|chunk| std::fs::metadata(chunk).map_or(0, |found| found.len()));
    let chunk = chunk.expect("there are some");
    let good = std::fs::read(chunk).expect("read");
    let mut bad = good.clone();
    bad[0] ^= 1;
    std::fs::write(chunk, &bad).expect("changed");
    let name = chunk.file_name().and_then(|name| name.to_str()).expect("text");
    let output = place.verify();
    assert_eq!(output.code, Some(1));
    assert!(output.out.contains(name), "{}", output.out);
    let output = place.restore("r", None);
    assert_eq!(output.code, Some(1));
    assert!(output.err.contains(name), "{}", output.err);
    let data = place.0.path().join("r").join("data");
    assert!(std::fs::read_dir(&data).expect("a folder").next().is_none(), "nothing is left in it");
    std::fs::write(chunk, &good).expect("mended");
    assert_eq!(place.verify().code, Some(0));
    let restored = place.start_restored("r", None, options());
    assert_eq!(restored.value("counter/k/value", "null"), 1);
}

#[test]
fn a_full_disk_leaves_no_backup_and_the_earlier_ones_whole() {
    let Some(disk) = SmallDisk::new() else { return };
    if !has_programs(&["curl"]) {
        return;
    }
    let noises = Backups::new();
    let (server, s3, _) = with_objects(192, &noises);
    let place = disk.mount.join("place").to_str().expect("text").to_owned();
    let run = |arguments: &[&str]| {
        let wrapper = disk.wrapper();
        let output = Command::new(&wrapper[0]).args(&wrapper[1..]).arg(binary()).args(arguments).output().expect("run");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Output { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    };
    let backup = || run(&["backup", &place, "--url", &server.url()]);
    let first = backup();
    assert_eq!(first.code, Some(0), "{}", first.err);
    for number in 10..16 {
        let file = noise(noises.0.path(), (32 << 20) + number * 8);
        put_file(&s3, &format!("k{number}"), &file);
    }
    let full = backup();
    assert_eq!(full.code, Some(1), "{}", full.out);
    assert!(full.err.contains("No space left"), "{}", full.err);
    assert_eq!(run(&["backup", "list", &place, "--json"]).out.lines().count(), 1);
    let verified = run(&["backup", "verify", &place]);
    assert_eq!(verified.code, Some(0), "{} {}", verified.out, verified.err);
    assert_eq!(server.value("counter/k/add", "1"), 1, "the node serves");
}

#[test]
fn what_cannot_be_a_place_or_a_target_is_refused() {
    let place = Backups::new();
    let server = Server::start(options());
    let inside = server.data().join("backups");
    let output = millrace(&["backup", inside.to_str().expect("text"), "--url", &server.url()]);
    assert_eq!(output.code, Some(1));
    assert!(output.err.contains("inside the data directory"), "{}", output.err);
    assert!(!inside.exists());

    let other = place.path("other");
    std::fs::create_dir(&other).expect("made");
    std::fs::write(Path::new(&other).join("letter"), b"x").expect("written");
    let output = millrace(&["backup", &other, "--url", &server.url()]);
    assert!(output.code == Some(1) && output.err.contains("is not empty"), "{}", output.err);
    let output = millrace(&["backup", "list", &other]);
    assert!(output.code == Some(1) && output.err.contains("holds no backups"), "{}", output.err);

    place.must_back_up(&server);
    let output = millrace(&["restore", &place.place(), "--data", &other]);
    assert!(output.code == Some(1) && output.err.contains("is not empty"), "{}", output.err);
    let output = millrace(&["restore", &place.place(), "--data", server.data().to_str().expect("text")]);
    assert!(output.code == Some(1) && output.err.contains("is not empty"), "{}", output.err);
    let output = place.restore("r", Some("1999-01-01T00-00-00.000Z"));
    assert!(output.code == Some(1) && output.err.contains("1999-01-01"), "{}", output.err);

    // A node does not open what was restored in part.
    let folder = place.0.path().join("part");
    std::fs::create_dir_all(folder.join("data")).expect("made");
    std::fs::write(folder.join("data").join("restore.unfinished"), b"").expect("written");
    let refusal = Server::refuses(ServerOptions { folder: Some(folder), ..options() });
    assert!(refusal.contains("millrace restore"), "{refusal}");
}

#[test]
fn one_backup_may_follow_another_at_once() {
    let server = Server::start(options());
    for number in 1..=50 {
        let reply = server.request("POST", "/backup", &[], b"");
        assert_eq!(reply.status, 200, "backup {number}: {}", reply.text());
    }
}

#[test]
fn a_backup_needs_the_role_admin_and_a_node_that_keeps_its_own_log() {
    let place = Backups::new();
    let keys = place.path("keys.json");
    let key = |role: &str| {
        let output = millrace(&["keys", "--keys", &keys, "add", &role.replace([':', '*', '/'], "-"), "--role", role]);
        assert_eq!(output.code, Some(0), "{}", output.err);
        output.out.trim().to_owned()
    };
    let (admin, deploy) = (key("admin"), key("deploy"));
    let server = Server::start(options().with(&["--keys", &keys]));
    assert_problem(&server.request("POST", "/backup", &[], b""), 401, "unauthorized");
    let header = format!("Authorization: Bearer {deploy}");
    assert_problem(&server.request("POST", "/backup", &[&header], b""), 403, "forbidden");
    let backup = |key| millrace(&["backup", &place.place(), "--url", &server.url(), "--api-key", key]);
    let output = backup(&deploy);
    assert!(output.code == Some(1) && output.err.contains("admin"), "{}", output.err);
    let output = backup(&admin);
    assert_eq!(output.code, Some(0), "{}", output.err);
    drop(server);

    let server = Server::start(options().with(&["--durability", "none"]));
    assert_problem(&server.request("POST", "/backup", &[], b""), 501, "not-yet-supported");
    assert_eq!(place.list().len(), 1);
}

#[test]
fn a_node_goes_on_after_many_backups_and_restarts_with_other_cores() {
    let place = Backups::new();
    let mut server = Server::start(options());
    for life in 1..=4 {
        assert_eq!(server.value("counter/k/add", "1"), life);
        place.must_back_up(&server);
        assert_eq!(server.value("counter/other/add", "1"), life);
        if life % 2 == 0 {
            server.kill()
        } else {
            assert!(server.stop())
        }
        server.options().set("--cores", ["1", "3", "2", "4"][life as usize % 4]);
        server.restart();
    }
    drop(server);
    for (number, listed) in (1..).zip(place.list()) {
        let mut options = options();
        options.set("--cores", ["3", "1"][number % 2]);
        let restored = place.start_restored(&format!("r{number}"), listed["id"].as_str(), options);
        assert_eq!(restored.value("counter/k/value", "null"), number);
        assert_eq!(restored.value("counter/other/value", "null"), number - 1);
    }
}

#[test]
fn backups_are_kept_in_a_bucket_of_s3() {
    if !has_programs(&["curl"]) {
        return;
    }
    let (options_of_store, s3) = S3::listen(options());
    let store = Server::start(options_of_store);
    add_ann(&store);
    assert_eq!(s3.ask("PUT", "/backups").0, 200);
    let server = Server::start(options());
    let url = server.url();
    let run = |arguments: &[&str], secret: &str| {
        let bucket = ["--s3-endpoint", s3.endpoint(), "--s3-access-key", KEYS[0], "--s3-secret-key", secret];
        millrace(&[arguments, &bucket].concat())
    };
    let runs = |arguments: &[&str]| {
        let output = run(arguments, KEYS[1]);
        assert_eq!(output.code, Some(0), "{arguments:?}: {}", output.err);
        output.out
    };
    let refuses = |arguments: &[&str], secret: &str, reason: &str| {
        let output = run(arguments, secret);
        assert!(output.code == Some(1) && output.err.contains(reason), "{arguments:?}: {}", output.err);
    };
    for value in 1..=3 {
        assert_eq!(server.value("counter/k/add", "1"), value);
        runs(&["backup", "s3://backups/of/shop", "--url", &url]);
    }
    let list = |place: &str| runs(&["backup", "list", place, "--json"]).lines().count();
    assert_eq!(list("s3://backups/of/shop/"), 3);
    let keys =
        |prefix: &str| s3.ask("GET", &format!("/backups?list-type=2&prefix={prefix}")).1.matches("<Key>").count();
    let chunks = keys("of%2Fshop%2Fchunks%2F");
    runs(&["backup", "verify", "s3://backups/of/shop"]);
    runs(&["backup", "prune", "s3://backups/of/shop", "--keep", "2"]);
    assert_eq!(list("s3://backups/of/shop"), 2);
    assert!(keys("of%2Fshop%2Fchunks%2F") < chunks, "what only the first one needed is gone");

    let place = Backups::new();
    let restore = |folder: &str| {
        let data = place.0.path().join(folder).join("data");
        run(&["restore", "s3://backups/of/shop", "--data", data.to_str().expect("text")], KEYS[1])
    };
    assert_eq!(restore("r").code, Some(0));
    let restored = Server::start(ServerOptions { folder: Some(place.0.path().join("r")), ..options() });
    assert_eq!(restored.value("counter/k/value", "null"), 3);

    let listed = s3.ask("GET", "/backups?list-type=2&prefix=of%2Fshop%2Fchunks%2F").1;
    let keys: Vec<&str> = listed.split("<Key>").skip(1).filter_map(|rest| rest.split('<').next()).collect();
    let damage = |chunk: &str| assert_eq!(s3.put(&format!("/backups/{chunk}"), "x").0, 200);
    for chunk in &keys {
        damage(chunk);
        let name = chunk.rsplit('/').next().expect("a name");
        let verified = run(&["backup", "verify", "s3://backups/of/shop"], KEYS[1]);
        assert!(verified.code == Some(1) && verified.out.contains(name), "{}", verified.out);
    }
    // What was found damaged is gone, and refused all the same.
    let damaged = restore("damaged");
    assert!(damaged.code == Some(1) && damaged.err.contains("is missing"), "{}", damaged.err);
    keys.iter().for_each(|chunk| damage(chunk));
    let damaged = restore("damaged");
    assert!(damaged.code == Some(1) && damaged.err.contains("has other bytes"), "{}", damaged.err);

    refuses(&["backup", "s3://backups/of", "--url", &url], KEYS[1], "is not empty");
    refuses(&["backup", "list", "s3://backups/none"], KEYS[1], "holds no backups");
    refuses(&["backup", "list", "s3://none/of"], KEYS[1], "NoSuchBucket");
    refuses(&["backup", "list", "s3://backups/of/shop"], "wrongsecret", "SignatureDoesNotMatch");
    refuses(&["backup", "list", "s3://"], KEYS[1], "s3://BUCKET");
    let output = millrace(&["backup", "list", "s3://backups/of/shop", "--s3-endpoint", s3.endpoint()]);
    assert!(output.code == Some(1) && output.err.contains("AWS_ACCESS_KEY_ID"), "{}", output.err);
}
