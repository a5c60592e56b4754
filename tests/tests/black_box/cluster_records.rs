//! Typed records in a cluster: any node answers, all nodes know the same types, and a node may be lost.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use millrace_tests::{Reply, StopOnDrop, wait_until};
use serde_json::{Value, json};

use crate::cluster::Demo;

fn item() -> Value {
    json!({ "type": "record", "name": "Item", "fields": [
        { "name": "name", "type": "string", "default": "" },
        { "name": "count", "type": "int", "default": 0 },
    ] })
}

fn send(demo: &Demo, node: u16, method: &str, path: &str, body: &Value) -> Reply {
    demo.request(node, method, path, &[], body.to_string().as_bytes()).expect("the node lives")
}

/// Sends it to the nodes again and again until one has done it.
fn done(demo: &Demo, nodes: &[u16], method: &str, path: &str, body: &Value) {
    let mut nodes = nodes.iter().cycle();
    wait_until("some node does it", || {
        let node = *nodes.next().expect("some node");
        let reply = demo.request(node, method, path, &[], body.to_string().as_bytes());
        let status = reply.as_ref().map_or(503, |reply| reply.status);
        assert!(status < 300 || status == 503, "{method} {path}: {status} {}", reply.expect("a reply").text());
        status < 300
    });
}

fn get(demo: &Demo, node: u16, path: &str) -> Value {
    let mut found = Value::Null;
    wait_until("the node answers", || {
        let reply = send(demo, node, "GET", path, &Value::Null);
        assert!([200, 503].contains(&reply.status), "{path}: {} {}", reply.status, reply.text());
        found = reply.json();
        reply.status == 200
    });
    found
}

/// The ids of all records, read page by page.
fn ids(demo: &Demo, node: u16) -> Vec<String> {
    let (mut ids, mut after) = (Vec::new(), String::new());
    loop {
        let page = get(demo, node, &format!("/records/item?limit=7&ids_only{after}"));
        let records = page["records"].as_array().expect("a list");
        ids.extend(records.iter().map(|record| record["id"].as_str().expect("an id").to_owned()));
        match page["cursor"].as_str() {
            Some(cursor) => after = format!("&cursor={cursor}"),
            None => return ids,
        }
    }
}

#[test]
fn any_node_serves_records_and_their_types() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    let made = send(&demo, 1, "PUT", "/schemas/item", &json!({ "schema": item(), "changes": {} }));
    assert_eq!(made.status, 201, "{}", made.text());
    // Of a type that is new, all nodes know at once.
    for number in 0..40_u16 {
        let (node, path) = (number % 3 + 1, format!("/records/item/{number:02}"));
        let made = send(&demo, node, "PUT", &path, &json!({ "name": format!("n{number}"), "count": number }));
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let all: Vec<String> = (0..40).map(|number| format!("{number:02}")).collect();
    for node in 1..=3 {
        for id in &all {
            let read = get(&demo, node, &format!("/records/item/{id}"));
            assert_eq!(read["count"], id.parse::<u16>().expect("a number"));
        }
        assert_eq!(ids(&demo, node), all, "at node {node}, in order");
        let large = get(&demo, node, "/records/item?where=.count%20%3E%3D%2035&ids_only");
        assert_eq!(large["records"].as_array().map(Vec::len), Some(5), "{large}");
    }
    let changes = get(&demo, 2, "/records/item/changes?limit=1000");
    assert_eq!(changes["changes"].as_array().map(Vec::len), Some(40), "all shards have told their changes");
    let patch = json!([{ "op": "increment", "path": ".count", "value": 100 }]);
    assert_eq!(send(&demo, 3, "PATCH", "/records/item/07", &patch).status, 200);
    assert_eq!(get(&demo, 1, "/records/item/07")["count"], 107);
    let indexed = json!({ "indexes": [{ "name": "by_count", "path": ".count" }] });
    assert_eq!(send(&demo, 2, "PUT", "/schemas/item", &indexed).status, 200);
    let plan = "/records/item?where=.count%20%3D%3D%3D%20107&explain=true";
    let began = std::time::Instant::now();
    wait_until("the index is complete on all shards", || get(&demo, 3, plan)["plan"] == "index");
    let took = began.elapsed();
    assert!(took < std::time::Duration::from_secs(6), "nothing else is under way, and it took {took:?}");
    assert_eq!(get(&demo, 3, "/records/item?where=.count%20%3D%3D%3D%20107")["records"][0]["id"], "07");
}

#[test]
fn changes_of_types_at_all_nodes_at_once_are_all_made() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    std::thread::scope(|threads| {
        for node in 1..=3_u16 {
            let demo = &demo;
            threads.spawn(move || {
                for number in 0..4 {
                    let body = json!({ "schema": item().to_string() });
                    let path = format!("/subjects/s{node}-{number}/versions");
                    done(demo, &[node], "POST", &path, &body);
                }
            });
        }
    });
    for node in 1..=3 {
        assert_eq!(get(&demo, node, "/subjects").as_array().map(Vec::len), Some(12), "at node {node}");
    }
}

#[test]
fn a_type_with_records_stays_and_one_without_goes_on_all_nodes() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    done(&demo, &[1], "PUT", "/schemas/item", &json!({ "schema": item() }));
    done(&demo, &[2], "PUT", "/records/item/a", &json!({ "name": "bolt" }));
    let refused = send(&demo, 3, "DELETE", "/schemas/item", &Value::Null);
    assert_eq!((refused.status, refused.code()), (409, "type-in-use".to_owned()), "{}", refused.text());
    done(&demo, &[2], "PUT", "/records/item/b", &json!({ "name": "it is open again" }));
    for id in ["a", "b"] {
        done(&demo, &[1], "DELETE", &format!("/records/item/{id}"), &Value::Null);
    }
    assert_eq!(send(&demo, 3, "DELETE", "/schemas/item", &Value::Null).status, 204);
    for node in 1..=3 {
        assert_eq!(send(&demo, node, "GET", "/records/item/a", &Value::Null).status, 404);
        assert_eq!(send(&demo, node, "PUT", "/records/item/a", &json!({})).status, 404, "at node {node}");
    }
}

#[test]
fn a_node_killed_while_records_are_written_loses_none() {
    let data = tempfile::tempdir().expect("a folder");
    let demo = Demo::start(&data.path().join("demo"));
    done(&demo, &[1], "PUT", "/schemas/item", &json!({ "schema": item() }));
    let (is_over, next, written) = (AtomicBool::new(false), AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
    let client = || {
        while !is_over.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let (id, node) = (format!("{number:05}"), (number % 3 + 1) as u16);
            let body = json!({ "name": id, "count": number }).to_string();
            let reply = demo.request(node, "PUT", &format!("/records/item/{id}"), &[], body.as_bytes());
            if reply.is_some_and(|reply| reply.status == 201) {
                written.lock().expect("no client panics").insert(id);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    std::thread::scope(|threads| {
        let over = StopOnDrop(&is_over);
        let clients: Vec<_> = (0..4).map(|_| threads.spawn(client)).collect();
        std::thread::sleep(Duration::from_millis(500));
        demo.kill(2);
        std::thread::sleep(Duration::from_millis(2_500));
        drop(over);
        clients.into_iter().for_each(|client| client.join().expect("it writes"));
    });
    let written = written.into_inner().expect("no client panicked");
    assert!(written.len() > 50, "{} were written", written.len());
    // Types go on changing without the lost node, which hears of it when it is back.
    done(&demo, &[1, 3], "PUT", "/schemas/later", &json!({ "schema": item() }));
    let mut again = demo.revive(2);
    wait_until("it is back", || demo.is_alive(2));
    for node in 1..=3 {
        let found: BTreeSet<String> = ids(&demo, node).into_iter().collect();
        let lost: Vec<&String> = written.difference(&found).collect();
        assert!(lost.is_empty(), "node {node} lacks {lost:?}");
        done(&demo, &[node], "PUT", &format!("/records/later/{node}"), &json!({ "count": 1 }));
    }
    again.interrupt();
    again.ended();
}
