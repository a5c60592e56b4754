//! Objects over S3 in a cluster: every node answers, and a node may be lost.

use std::path::{Path, PathBuf};
use std::process::Command;

use millrace_tests::{Foreground, Output, has_programs, millrace, wait_until};

use crate::cluster::Demo;
use crate::cluster_elastic::cluster;
use crate::s3_objects::KEYS;

/// A status and a body.
type Reply = (u16, String);

/// Asks a node over S3. A node that is not there has no status.
fn curl(demo: &Demo, node: u16, arguments: &[&str], path: &str) -> Reply {
    let curl = Command::new("curl")
        .args(["-sS", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &KEYS.join(":")])
        .args(["-H", "x-amz-content-sha256:UNSIGNED-PAYLOAD", "-w", "\n%{http_code}"])
        .args(arguments)
        .arg(format!("http://127.0.0.1:{}{path}", demo.s3_base + node - 1))
        .output()
        .expect("curl is there");
    let text = String::from_utf8_lossy(&curl.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').unwrap_or(("", "0"));
    (status.parse().unwrap_or(0), body.to_owned())
}

fn ask(demo: &Demo, node: u16, method: &str, path: &str) -> Reply {
    curl(demo, node, &["-X", method], path)
}

/// Asks until the node does it: shards may be on their way.
pub(crate) fn done(demo: &Demo, node: u16, arguments: &[&str], path: &str) -> String {
    let mut answer = String::new();
    wait_until("the node does it", || {
        let (status, body) = curl(demo, node, arguments, path);
        assert!([200, 204, 500, 503, 0].contains(&status), "{path}: {status} {body}");
        answer = body;
        (200..300).contains(&status)
    });
    answer
}

pub(crate) fn put(demo: &Demo, node: u16, path: &str, body: &str) {
    done(demo, node, &["-X", "PUT", "--data-binary", body, "-H", "content-type:"], path);
}

fn user(demo: &Demo, node: u16, arguments: &[&str]) -> Output {
    let url = format!("http://127.0.0.1:{}", demo.http_base + node - 1);
    millrace(&[&["s3"], arguments, &["--url", &url]].concat())
}

pub(crate) fn add_ann(demo: &Demo, node: u16) {
    let added = user(demo, node, &["user", "add", "ann", "--access-key", KEYS[0], "--secret-key", KEYS[1]]);
    assert_eq!(added.code, Some(0), "{}", added.err);
}

/// A bucket with slices, whose shards have different owners, is the same at every node.
fn slices_are_on_all_nodes(demo: &Demo) {
    done(demo, 1, &["-X", "PUT"], "/spread");
    let spread = user(demo, 2, &["bucket", "slices", "spread", "6"]);
    assert_eq!(spread.code, Some(0), "{}", spread.err);
    let content = |object: usize| format!("{object} ").repeat(if object < 6 { 1 } else { 5_000 });
    for object in 0..12 {
        put(demo, 1 + object as u16 % 3, &format!("/spread/{object:02}"), &content(object));
    }
    for node in 1..=3 {
        let listed = done(demo, node, &[], "/spread?list-type=2");
        let keys: Vec<usize> = listed.split("<Key>").skip(1).map(|key| key[..2].parse().expect("a number")).collect();
        assert_eq!(keys, (0..12).collect::<Vec<_>>(), "at node {node}");
        for object in 0..12 {
            assert_eq!(done(demo, node, &[], &format!("/spread/{object:02}")), content(object), "at node {node}");
        }
    }
}

#[test]
fn small_objects_and_users_are_the_same_at_every_node() {
    if !has_programs(&["curl"]) {
        return;
    }
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path().join("demo");
    let mut demo = Demo::with_s3(&folder);
    assert_eq!(ask(&demo, 2, "PUT", "/photos").0, 403, "nobody is known");
    add_ann(&demo, 1);
    for node in 1..=3 {
        let listed = user(&demo, node, &["user", "list"]);
        assert!(listed.out.contains("\"ann\""), "node {node}: {} {}", listed.out, listed.err);
    }
    done(&demo, 3, &["-X", "PUT"], "/photos");
    for node in 1..=3 {
        put(&demo, node, &format!("/photos/{node}"), &"x".repeat(usize::from(node) * 100));
    }
    for node in 1..=3 {
        for object in 1..=3_usize {
            assert_eq!(done(&demo, node, &[], &format!("/photos/{object}")).len(), object * 100, "at node {node}");
        }
        let listed = done(&demo, node, &[], "/photos?list-type=2");
        assert_eq!(listed.matches("<Key>").count(), 3, "{listed}");
    }
    // Whoever has the files of a node finds no secret in them.
    assert!(!has_secret(&folder), "secrets are encrypted");
    slices_are_on_all_nodes(&demo);
    demo.kill(2);
    put(&demo, 1, "/photos/4", "more");
    // If the node that was killed led the others, a change has to wait for the next leader.
    wait_until("ben is made", || user(&demo, 1, &["user", "add", "ben"]).code == Some(0));
    let mut again = demo.revive(2);
    wait_until("it is back, listens where it did, and knows ann", || {
        ask(&demo, 2, "GET", "/photos/4") == (200, "more".to_owned())
    });
    assert!(user(&demo, 2, &["user", "list"]).out.contains("\"ben\""));
    assert_eq!(user(&demo, 3, &["key", "revoke", "ann", KEYS[0]]).code, Some(0));
    for node in 1..=3 {
        wait_until("the key is refused", || ask(&demo, node, "GET", "/photos/4").0 == 403);
    }
    demo.command.interrupt();
    assert!(demo.command.ended().success(), "{}", demo.command.err());
    again.interrupt();
    again.ended();
}

fn has_secret(folder: &Path) -> bool {
    let found = Command::new("grep").args(["-rqa", KEYS[1]]).arg(folder).status().expect("grep is there");
    found.success()
}

/// A content of so many bytes in a file, and its ETag: the MD5 of it.
fn content(folder: &Path, name: &str, bytes: usize) -> (String, String) {
    let path = folder.join(name);
    let text: Vec<u8> = (0..bytes).map(|at| (at * 31 + at / 4_099 + name.len()) as u8).collect();
    std::fs::write(&path, text).expect("written");
    let md5 = Command::new("md5sum").arg(&path).output().expect("md5sum is there");
    let etag = String::from_utf8_lossy(&md5.stdout).chars().take(32).collect();
    (path.to_str().expect("text").to_owned(), etag)
}

fn put_file(demo: &Demo, node: u16, path: &str, file: &str) {
    done(demo, node, &["-T", file, "-H", "content-type:", "-H", "Expect:"], path);
}

/// Whether a node gives an object with this ETag and the bytes of a file.
fn has(demo: &Demo, node: u16, path: &str, (file, etag): &(String, String)) -> bool {
    let got = format!("{file}-of-{node}");
    let (status, head) = curl(demo, node, &["-o", &got, "-D", "-"], path);
    if status != 200 {
        return false;
    }
    assert!(head.to_ascii_lowercase().contains(&format!("etag: \"{etag}\"")), "{path} at node {node}: {head}");
    let same = Command::new("cmp").args([file, &got]).status().expect("cmp is there");
    assert!(same.success(), "{path} at node {node} has other bytes");
    std::fs::remove_file(&got).expect("it is there");
    true
}

fn assert_has(demo: &Demo, node: u16, path: &str, content: &(String, String)) {
    wait_until(&format!("node {node} gives {path}"), || has(demo, node, path, content));
}

/// Uploads a file in two parts, each at another node, and gives the ETag of the whole.
fn put_in_parts(demo: &Demo, nodes: [u16; 3], path: &str, parts: [&str; 2]) -> String {
    let begun = done(demo, nodes[0], &["-X", "POST"], &format!("{path}?uploads="));
    let (_, rest) = begun.split_once("<UploadId>").expect("an id");
    let (id, _) = rest.split_once("</UploadId>").expect("an end");
    let mut listed = String::new();
    for (number, (node, part)) in (1..).zip([nodes[0], nodes[1]].into_iter().zip(parts)) {
        let arguments = ["-T", part, "-D", "-", "-H", "content-type:", "-H", "Expect:"];
        let head = done(demo, node, &arguments, &format!("{path}?partNumber={number}&uploadId={id}"));
        let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("etag:")).expect("an ETag");
        let etag = line[5..].trim().trim_matches('"').to_owned();
        listed += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
    }
    let body = format!("<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>");
    let arguments = ["-X", "POST", "--data-binary", &body, "-H", "content-type:"];
    let completed = done(demo, nodes[2], &arguments, &format!("{path}?uploadId={id}"));
    let (_, rest) = completed.split_once("<ETag>").expect("an ETag");
    rest.split_once("</ETag>").expect("an end").0.replace("&quot;", "").trim_matches('"').to_owned()
}

/// The bytes of large contents on a node: each has a file of its own.
fn bytes_of_bodies(folder: &Path, node: u16) -> u64 {
    let size = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.and_then(|entry| entry.metadata()).map_or(0, |found| found.len())
    };
    let files = std::fs::read_dir(folder.join(format!("n{node}/bodies/files")));
    files.map_or(0, |entries| entries.map(size).sum())
}

/// What is put where, and what is to be read there.
type Expected = Vec<(String, (String, String))>;

/// Puts contents of several sizes at node 1, and one in parts, each at another node.
fn put_contents(demo: &Demo, folder: &Path) -> Expected {
    let sizes = [("tiny", 10), ("small", 100_000), ("large", 20 << 20)];
    let contents = sizes.map(|(name, bytes)| (format!("/photos/{name}"), content(folder, name, bytes)));
    for (path, (file, _)) in &contents {
        put_file(demo, 1, path, file);
    }
    let parts = [content(folder, "part-1", 6 << 20), content(folder, "part-2", 70_000)];
    let whole = folder.join("whole");
    let read = |part: &(String, String)| std::fs::read(&part.0).expect("it is there");
    std::fs::write(&whole, [read(&parts[0]), read(&parts[1])].concat()).expect("written");
    let etag = put_in_parts(demo, [1, 2, 1], "/photos/parts", [&parts[0].0, &parts[1].0]);
    assert!(etag.ends_with("-2"), "{etag}");
    let whole = whole.to_str().expect("text").to_owned();
    contents.into_iter().chain([("/photos/parts".to_owned(), (whole, etag))]).collect()
}

/// Empties a node that was killed, as its operator would, and brings it back.
fn revive_emptied(demo: &Demo, folder: &Path, node: u16) -> Foreground {
    let directory = folder.join(format!("n{node}"));
    let reset = millrace(&["cluster", "reset", directory.to_str().expect("text")]);
    assert_eq!(reset.code, Some(0), "{}", reset.err);
    wait_until("others own its shards", || !demo.owns(node));
    demo.revive(node)
}

/// A folder, that of a cluster in it, and the cluster. The cluster has a user and a bucket.
fn with_photos() -> Option<(tempfile::TempDir, PathBuf, Demo)> {
    if !has_programs(&["curl", "cmp", "md5sum"]) {
        return None;
    }
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path().join("demo");
    let demo = Demo::with_s3(&folder);
    add_ann(&demo, 1);
    done(&demo, 1, &["-X", "PUT"], "/photos");
    Some((data, folder, demo))
}

/// Changes some bytes in the middle of each file with contents.
pub(crate) fn damage_contents(folder: &Path, node: u16, kinds: &[&str]) {
    for kind in kinds {
        for entry in std::fs::read_dir(folder.join(format!("n{node}/bodies/{kind}"))).expect("a folder") {
            let path = entry.expect("read").path();
            let mut bytes = std::fs::read(&path).expect("read");
            let middle = bytes.len() / 2;
            bytes[middle..middle + 80].iter_mut().for_each(|byte| *byte ^= 0x55);
            std::fs::write(&path, bytes).expect("changed");
        }
    }
}

#[test]
fn what_is_damaged_on_one_node_is_read_from_another_and_mended() {
    let Some((data, folder, demo)) = with_photos() else { return };
    let sizes = [("small", 100_000), ("large", 20 << 20)];
    let contents = sizes.map(|(name, bytes)| (format!("/photos/{name}"), content(data.path(), name, bytes)));
    for (path, content) in &contents {
        put_file(&demo, 1, path, &content.0);
        assert_has(&demo, 2, path, content);
    }
    let names = |kind: &str| std::fs::read_dir(folder.join(format!("n2/bodies/{kind}"))).expect("a folder");
    let sizes = |kind: &str| names(kind).map(|entry| entry.and_then(|entry| entry.metadata()).map_or(0, |of| of.len()));
    let is_whole = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| !entry.file_name().to_string_lossy().ends_with(".new"))
    };
    wait_until("node 2 holds them", || names("files").any(is_whole) && sizes("segments").sum::<u64>() > 100_000);
    damage_contents(&folder, 2, &["segments", "files"]);
    for (path, content) in &contents {
        assert!(has(&demo, 2, path, content), "{path} is read from another node");
    }
    let is_mended = |log: String| log.matches("a damaged body was replaced").count() >= contents.len();
    let log = folder.join("n2").join("log.txt");
    wait_until("both are mended", || std::fs::read_to_string(&log).is_ok_and(is_mended));
    for (path, content) in &contents {
        assert!(has(&demo, 2, path, content));
    }
}

#[test]
fn contents_outlive_one_node_after_the_other() {
    let Some((data, folder, demo)) = with_photos() else { return };
    let mut expected = put_contents(&demo, data.path());
    let has_all = |node: u16, expected: &Expected| {
        expected.iter().for_each(|(path, content)| assert_has(&demo, node, path, content));
    };
    // Nobody has read anything elsewhere: a majority has it all the same.
    demo.kill(1);
    [2, 3].into_iter().for_each(|node| has_all(node, &expected));
    for (node, name, bytes) in [(2, "later-small", 90_000), (3, "later-large", 9 << 20)] {
        let (path, content) = (format!("/photos/{name}"), content(data.path(), name, bytes));
        put_file(&demo, node, &path, &content.0);
        expected.push((path, content));
    }
    let mut again = vec![demo.revive(1)];
    // It reads what it lacks from the others at once, and gets it in the background.
    has_all(1, &expected);
    wait_until("it owns shards again, which means that it has all contents", || demo.owns(1));
    demo.kill(3);
    [1, 2].into_iter().for_each(|node| has_all(node, &expected));
    again.push(demo.revive(3));
    wait_until("it owns shards again", || demo.owns(3));

    // A node that has lost everything gets all contents from the others.
    demo.kill(2);
    again.push(revive_emptied(&demo, &folder, 2));
    wait_until("it owns shards again", || demo.owns(2));
    let [lost, kept] = [2, 3].map(|node| bytes_of_bodies(&folder, node));
    assert!(lost == kept && kept > 20 << 20, "{lost} bytes came of {kept}");
    demo.kill(1);
    [2, 3].into_iter().for_each(|node| has_all(node, &expected));
    // What is deleted takes no space on any node.
    for (path, _) in &expected {
        done(&demo, 3, &["-X", "DELETE"], path);
    }
    for node in [2, 3] {
        wait_until("large contents go", || bytes_of_bodies(&folder, node) == 0);
    }
    for mut node in again {
        node.interrupt();
        node.ended();
    }
}

#[test]
fn a_content_that_is_replaced_while_it_travels_is_no_news() {
    if !has_programs(&["curl"]) {
        return;
    }
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::with_s3(&data.path().join("demo"));
    add_ann(&demo, 1);
    done(&demo, 1, &["-X", "PUT"], "/photos");
    // Longer than what goes along with the offer: the rest is asked for.
    let (file, _) = content(data.path(), "photo", 600_000);
    let arguments = ["-T", &file, "-m", "0.4", "-H", "content-type:", "-H", "Expect:"];
    // Node 3 is offered a content, and asks for the rest when it is gone.
    demo.signal(3, "-STOP");
    std::thread::scope(|threads| {
        for object in 0..8 {
            let (demo, arguments) = (&demo, &arguments);
            // Those whose shard node 3 owns are not answered.
            threads.spawn(move || (0..3).for_each(|_| drop(curl(demo, 1, arguments, &format!("/photos/{object}")))));
        }
    });
    demo.signal(3, "-CONT");
    for object in 0..8 {
        put_file(&demo, 3, &format!("/photos/{object}"), &file);
    }
    let log = |node| std::fs::read_to_string(demo.folder.join(format!("n{node}/log.txt"))).expect("it logs");
    std::thread::sleep(std::time::Duration::from_secs(3));
    for node in 1..=3 {
        assert!(!log(node).contains("could not be"), "node {node}: {}", log(node));
    }
}

/// Makes buckets until one is in the shard, and gives its name. A content this large has a file with the shard's number.
fn bucket_in_shard(demo: &Demo, data: &Path, shard: usize, holder: u16) -> String {
    let probe = content(data, "probe", 5 << 20);
    let is_its = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{shard:04x}-")))
    };
    for bucket in 0..100 {
        let path = format!("/drained-{bucket}");
        done(demo, holder, &["-X", "PUT"], &path);
        put_file(demo, holder, &format!("{path}/probe"), &probe.0);
        let mut files = std::fs::read_dir(demo.folder.join(format!("n{holder}/bodies/files"))).expect("a folder");
        if files.any(is_its) {
            return path;
        }
    }
    panic!("no bucket is in shard {shard}");
}

/// The shard of a large content, and the nodes that have it.
fn shard_of_only_content(demo: &Demo, nodes: u16) -> (usize, Vec<u16>) {
    let names = |node: u16| {
        let files = std::fs::read_dir(demo.folder.join(format!("n{node}/bodies/files"))).expect("a folder");
        files.map(|entry| entry.expect("read").file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let is_whole = |name: &String| !name.ends_with(".new");
    let holders = || (1..=nodes).filter(|node| names(*node).iter().any(is_whole)).collect::<Vec<_>>();
    wait_until("three nodes have it", || holders().len() == 3);
    let name = names(holders()[0]).pop().expect("it is there");
    (usize::from_str_radix(&name[..4], 16).expect("a shard"), holders())
}

#[test]
fn a_content_that_no_node_can_read_holds_up_its_own_shard_only() {
    if !has_programs(&["curl", "md5sum"]) {
        return;
    }
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::with_s3_of(&data.path().join("demo"), (4, 8));
    add_ann(&demo, 1);
    done(&demo, 1, &["-X", "PUT"], "/photos");
    let (file, _) = content(data.path(), "large", 5 << 20);
    put_file(&demo, 1, "/photos/large", &file);
    let (shard, holders) = shard_of_only_content(&demo, 4);
    holders.iter().for_each(|node| damage_contents(&demo.folder, *node, &["files"]));

    let leaving = holders[0];
    let drained = demo.request(leaving, "POST", &format!("/cluster/nodes/{leaving}/drain"), &[], b"");
    assert!(drained.as_ref().is_some_and(|reply| reply.status < 300), "{drained:?}");
    let held = || {
        let guidance = demo.guidance()?;
        let shards = guidance["shards"].as_array()?.iter().enumerate();
        let is_held = |(_, place): &(usize, &serde_json::Value)| {
            place["replicas"].as_array().is_some_and(|nodes| nodes.contains(&leaving.into()))
        };
        Some(shards.filter(is_held).map(|(shard, _)| shard).collect::<Vec<_>>())
    };
    wait_until("all other shards leave the node", || held() == Some(vec![shard]));
    let status = || cluster(&demo, &["status"]);
    let shown = format!("have a content that no living node can read, and stay on their nodes: shards {shard}\n");
    wait_until("the status names the shard", || status().contains(&shown));

    done(&demo, 1, &["-X", "DELETE"], "/photos/large");
    wait_until("the shard leaves the node once the object is deleted", || held() == Some(Vec::new()));
    wait_until("the status names no shard", || !status().contains("no living node can read"));
}

/// Nodes that leave take no content with them, though all that hold a shard are told to go at once: those that stay have got
/// all of them before.
#[test]
#[ignore = "two contents of 300 MB on six nodes: a minute, and 2 GB of disk; smaller ones travel before a node can leave"]
fn contents_outlive_nodes_that_are_drained_at_once() {
    if !has_programs(&["curl", "cmp", "md5sum"]) {
        return;
    }
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::with_s3_of(&data.path().join("demo"), (6, 6));
    add_ann(&demo, 1);
    let guidance = demo.guidance().expect("it is shown");
    let shards = guidance["shards"].as_array().expect("a list");
    let shard = shards.iter().position(|shard| shard["replicas"] == serde_json::json!([4, 5, 6]));
    let bucket = bucket_in_shard(&demo, data.path(), shard.expect("one is on these three"), 4);
    let mut expected = Expected::new();
    for (number, bytes) in [(0, 400_000), (1, 500_000), (2, 300 << 20), (3, 300 << 20)] {
        let content = content(data.path(), &format!("content-{number}"), bytes);
        let path = format!("{bucket}/{number}");
        put_file(&demo, 4, &path, &content.0);
        expected.push((path, content));
    }
    std::thread::scope(|threads| {
        for node in ["4", "5", "6"] {
            let demo = &demo;
            threads.spawn(move || cluster(demo, &["drain", node]));
        }
    });
    [4, 5, 6].into_iter().for_each(|node| demo.kill(node));
    for (path, content) in &expected {
        assert_has(&demo, 1, path, content);
    }
}
