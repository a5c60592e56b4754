//! Buckets that are spread over slices, over S3: as any other bucket, through kills, too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use millrace_tests::{Server, ServerOptions, assert_problem, has_programs};
use serde_json::Value;

use crate::s3_objects::{S3, add_ann, cli, lines};

/// A server with two cores and the bucket `photos` of so many slices.
fn served(slices: &str) -> Option<(Server, S3)> {
    if !has_programs(&["curl"]) {
        return None;
    }
    let mut options = ServerOptions::examples(&["counter"]);
    options.set("--cores", "2");
    let (options, s3) = S3::listen(options);
    let server = Server::start(options);
    add_ann(&server);
    assert_eq!(s3.ask("PUT", "/photos").0, 200);
    assert_eq!(cli(&server, &["bucket", "slices", "photos", slices]).code, Some(0));
    Some((server, s3))
}

/// The texts of all elements of this name.
fn texts<'x>(xml: &'x str, name: &str) -> Vec<&'x str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    xml.split(&open).skip(1).filter_map(|rest| rest.split(&close).next()).collect()
}

/// All keys of the bucket, page by page.
fn keys(s3: &S3) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let (status, page) = s3.ask("GET", &format!("/photos?list-type=2&max-keys=7&start-after={after}"));
        assert_eq!(status, 200, "{page}");
        let found = texts(&page, "Key");
        all.extend(found.iter().map(|key| (*key).to_owned()));
        if texts(&page, "IsTruncated") != ["true"] {
            return all;
        }
        after = found.last().expect("a page that is cut has keys").replace('/', "%2F");
    }
}

fn usage(server: &Server) -> Value {
    lines(server, &["bucket", "usage", "photos"]).remove(0)
}

#[test]
fn a_bucket_with_slices_is_like_any_other() {
    let Some((mut server, s3)) = served("5") else { return };
    assert_eq!(usage(&server)["slices"], 5);
    assert_eq!(lines(&server, &["bucket", "slices", "photos"])[0]["slices"], 5);
    // Those with a slash would be taken for other slices.
    for name in ["nope", "..%2Fx", "photos%2F2", "photos%2F9"] {
        let path = format!("/s3/buckets/{name}/slices");
        assert_problem(&server.request("PUT", &path, &[], br#"{"slices":3}"#), 404, "unknown-state");
    }
    let large = "x".repeat(20_000);
    let mut expected = BTreeMap::new();
    for number in 0..40 {
        let (key, body) =
            (format!("folder-{}/{number:02}", number % 3), if number % 4 == 0 { &large } else { "small" });
        assert_eq!(s3.put(&format!("/photos/{key}"), body).0, 200, "{key}");
        expected.insert(key, body);
    }
    server.kill();
    server.restart();
    // The first request for a large content after a start goes to the wrong slice, and its body moves.
    for number in 40..46 {
        let key = format!("folder-0/{number}");
        assert_eq!(s3.put(&format!("/photos/{key}"), &large).0, 200, "{key}");
        expected.insert(key, &large);
    }
    assert_eq!(keys(&s3), expected.keys().cloned().collect::<Vec<_>>());
    for (key, body) in &expected {
        assert_eq!(s3.ask("GET", &format!("/photos/{key}")), (200, (*body).to_owned()), "{key}");
    }
    let (_, folders) = s3.ask("GET", "/photos?delimiter=%2F&list-type=2");
    assert_eq!(texts(&folders, "Prefix"), ["", "folder-0/", "folder-1/", "folder-2/"], "{folders}");
    let bytes: usize = expected.values().map(|body| body.len()).sum();
    assert_eq!(
        (usage(&server)["objects"].as_u64(), usage(&server)["size_bytes"].as_u64()),
        (Some(46), Some(bytes as u64))
    );

    // The quota is of the whole bucket, wherever its bytes lie.
    assert_eq!(cli(&server, &["bucket", "quota", "photos", &(bytes + 5).to_string()]).code, Some(0));
    let fits = (0..20).filter(|number| s3.put(&format!("/photos/more/{number}"), "1").0 == 200).count();
    assert_eq!(fits, 5);
    assert_eq!(usage(&server)["size_bytes"].as_u64(), Some(bytes as u64 + 5));

    // Its slices change only while it is empty, and it goes only when all of them are.
    let refused = cli(&server, &["bucket", "slices", "photos", "2"]);
    assert!(refused.code == Some(1) && refused.err.contains("no objects"), "{}", refused.err);
    let all = keys(&s3);
    let (last, others) = all.split_last().expect("some");
    for key in others {
        assert_eq!(s3.ask("DELETE", &format!("/photos/{key}")).0, 204, "{key}");
    }
    assert_eq!(s3.ask("DELETE", "/photos").0, 409);
    assert_eq!(s3.ask("DELETE", &format!("/photos/{last}")).0, 204);
    assert_eq!(s3.ask("DELETE", "/photos").0, 204);
    assert_eq!(s3.ask("GET", &format!("/photos/{last}")).0, 404);
    // The same name again, with one slice: what the node knows is old.
    assert_eq!(s3.ask("PUT", "/photos").0, 200);
    assert_eq!(s3.put("/photos/again", &large).0, 200);
    assert_eq!(s3.ask("GET", "/photos/again"), (200, large));
}

#[test]
fn bodies_lie_where_their_objects_are_whatever_the_node_knew() {
    let Some((mut server, s3)) = served("4") else { return };
    for round in 0..4 {
        // It knows nothing of the bucket now, and learns of its slices while bodies are written.
        server.kill();
        server.restart();
        let body = |writer: usize| format!("{round}-{writer} ").repeat(3_000);
        thread::scope(|scope| {
            for writer in 0..12 {
                let s3 = &s3;
                scope.spawn(move || assert_eq!(s3.put(&format!("/photos/{round}-{writer}"), &body(writer)).0, 200));
            }
        });
        for writer in 0..12 {
            assert_eq!(s3.ask("GET", &format!("/photos/{round}-{writer}")), (200, body(writer)), "{round}-{writer}");
        }
    }
}

/// Writes objects until a request has no answer. Gives the keys that were acknowledged, and the one without an answer.
fn put_until(s3: &S3, stop: &AtomicBool, name: &str) -> (BTreeSet<String>, Option<String>) {
    let mut done = BTreeSet::new();
    for number in 0.. {
        let key = format!("{name}-{number:04}");
        let put = ["-X", "PUT", "--data-binary", &key, "-H", "content-type:", "--max-time", "20"];
        match s3.curl(&put, &format!("/photos/{key}")) {
            Ok((200, _)) => drop(done.insert(key)),
            Ok(other) => panic!("{key}: {other:?}"),
            Err(_) => return (done, Some(key)),
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    (done, None)
}

#[test]
fn slices_keep_what_they_acknowledged_through_kills() {
    let Some((mut server, s3)) = served("4") else { return };
    let (mut acknowledged, mut uncertain) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..4 {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let (s3, stop) = (&s3, &stop);
            let writers: Vec<_> =
                (0..4).map(|writer| scope.spawn(move || put_until(s3, stop, &format!("{round}-{writer}")))).collect();
            // Not a wait for anything: the kill comes at another place each time.
            thread::sleep(Duration::from_millis(400 + 150 * round));
            server.kill();
            stop.store(true, Ordering::Relaxed);
            for writer in writers {
                let (done, unknown) = writer.join().expect("no writer panics");
                acknowledged.extend(done);
                uncertain.extend(unknown);
            }
        });
        server.restart();
        let there: BTreeSet<String> = keys(&s3).into_iter().collect();
        assert!(acknowledged.is_subset(&there), "lost: {:?}", acknowledged.difference(&there));
        let more: BTreeSet<_> = there.difference(&acknowledged).cloned().collect();
        assert!(more.is_subset(&uncertain), "{more:?} {uncertain:?}");
        let bytes: usize = there.iter().map(String::len).sum();
        let usage = usage(&server);
        assert_eq!(
            (usage["objects"].as_u64(), usage["size_bytes"].as_u64()),
            (Some(there.len() as u64), Some(bytes as u64))
        );
    }
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());
}

#[test]
fn a_bucket_that_is_killed_while_it_goes_is_there_or_gone() {
    let Some((mut server, s3)) = served("8") else { return };
    let mut gone = 0;
    for round in 0..12_u64 {
        let is_there = s3.ask("GET", "/photos?list-type=2").0 == 200;
        if !is_there {
            assert_eq!(s3.ask("PUT", "/photos").0, 200);
            assert_eq!(cli(&server, &["bucket", "slices", "photos", "8"]).code, Some(0));
        }
        thread::scope(|scope| {
            let deletion = scope.spawn(|| s3.curl(&["-X", "DELETE", "--max-time", "20"], "/photos"));
            // Not a wait for anything: the kill comes at another place each time.
            thread::sleep(Duration::from_millis(4 + 3 * round));
            server.kill();
            drop(deletion.join());
        });
        server.restart();
        // All slices are there, or none: one that was left would keep its objects from being found.
        let (status, _) = s3.ask("GET", "/photos?list-type=2");
        let expected = match status {
            200 => 200,
            404 => {
                gone += 1;
                404
            }
            other => panic!("{other}"),
        };
        for number in 0..24 {
            assert_eq!(s3.put(&format!("/photos/{number}"), "v").0, expected, "round {round}, {number}");
            let deleted = s3.ask("DELETE", &format!("/photos/{number}")).0;
            assert_eq!(deleted, if expected == 200 { 204 } else { 404 });
        }
    }
    assert!(gone > 0, "no deletion took effect");
}
