//! Records under `kill -9`: an update, its index rows, its change in the stream and its trigger happen
//! together and once; a reader of the stream who goes on where it was misses and repeats nothing.
//!
//! `MILLRACE_TEST_RECORD_KILLS` is how often the server is killed under load (20 in a normal run).

use std::collections::BTreeMap;

use millrace_tests::{Client, Load, Random, Server, ServerOptions, Shared, TestApp, number_from_env, wait_until};
use serde_json::{Value, json};

/// Records that the clients change; each client has those of its own, so that it knows what they are.
const CLIENTS: u64 = 6;
const RECORDS_PER_CLIENT: u64 = 4;

fn settings() -> Value {
    let source = "export default (ctx, { record, before }) => {
        ctx.send('listener/tally', ctx.key, 'step', record.count - (before?.count ?? 0));
    };";
    json!({
        "schema": { "type": "record", "name": "Tally", "fields": [
            { "name": "count", "type": "long", "default": 0 },
            { "name": "colour", "type": "string", "default": "grey" },
        ]},
        "create": "touch",
        "indexes": [{ "name": "colour", "path": ".colour" }, { "name": "count", "path": ".count" }],
        "triggers": [{ "name": "steps", "path": ".count", "source": source }],
        "changes": { "retention_ms": 3_600_000 },
    })
}

/// Counts what the triggers tell.
const LISTENER: &str = "import { service, query } from 'millrace';
    export default service({
      step(ctx, by) { ctx.set('steps', (ctx.get('steps') ?? 0) + by); },
      steps: query((ctx) => ctx.get('steps') ?? 0),
    });";

fn server() -> Server {
    let server = Server::start(ServerOptions::examples(&[]));
    assert_eq!(TestApp::with("tally.ts", LISTENER).deploy(&server, "listener").status, 201);
    let reply = server.request("PUT", "/schemas/tally", &[], settings().to_string().as_bytes());
    assert!(reply.status < 300, "{}", reply.text());
    server
}

/// Adds to its records, each time under a key of its own, and tells what they must be.
fn client(number: u64, shared: &Shared) -> BTreeMap<String, (u64, u64)> {
    let mut client = Client::new(shared);
    let mut random = Random::new();
    let mut known: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut request = 0;
    while !client.stops() {
        let id = format!("r{number}-{}", random.below(RECORDS_PER_CLIENT));
        let colour = random.below(3);
        let patch = json!([
            { "op": "increment", "path": ".count", "value": 1 },
            { "op": "set", "path": ".colour", "value": format!("c{colour}") },
        ]);
        request += 1;
        let key = format!("Idempotency-Key: {number}-{request}");
        let reply = client.until_answered("PATCH", &format!("/records/tally/{id}"), &[&key], &patch.to_string());
        assert_eq!(reply.status, 200, "{}", reply.text());
        let entry = known.entry(id).or_default();
        *entry = (entry.0 + 1, colour);
        client.acknowledged();
    }
    known
}

/// Follows the stream page by page, from cursor to cursor, through every restart.
fn reader(shared: &Shared) -> Vec<Value> {
    let mut client = Client::new(shared);
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let stops = client.stops();
        let path = format!("/records/tally/changes?limit=100&cursor={cursor}");
        let reply = client.until_answered("GET", &path, &[], "");
        assert_eq!(reply.status, 200, "{}", reply.text());
        let page = reply.json();
        let changes = page["changes"].as_array().expect("changes").clone();
        page["cursor"].as_str().expect("a cursor").clone_into(&mut cursor);
        let is_empty = changes.is_empty();
        seen.extend(changes);
        if stops && is_empty {
            return seen;
        }
    }
}

#[test]
fn update_index_trigger_and_change_happen_together_through_every_kill() {
    let mut server = server();
    let kills = number_from_env("MILLRACE_TEST_RECORD_KILLS", 20) as u64;
    let mut random = Random::new();
    let readers = Load::start(&server, 1, |_, shared| reader(shared));
    let writers = Load::start(&server, CLIENTS, client);
    writers.kill_at_random(&mut server, kills, &mut random, |_, _| {});
    let known: BTreeMap<String, (u64, u64)> = writers.finish().into_iter().flatten().collect();
    let changes = readers.finish().into_iter().next().expect("one reader");
    judge(&server, &known, &changes);
}

fn judge(server: &Server, known: &BTreeMap<String, (u64, u64)>, changes: &[Value]) {
    let mut streamed: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for change in changes {
        let id = change["id"].as_str().expect("an id").to_owned();
        streamed.entry(id).or_default().push(change["record"]["count"].as_u64().expect("a count"));
    }
    for (id, (count, colour)) in known {
        let record = server.get(&format!("/records/tally/{id}"));
        assert_eq!(record, json!({ "count": count, "colour": format!("c{colour}") }), "{id}");
        // Every state once, in order: nothing missed, nothing repeated.
        assert_eq!(streamed.get(id), Some(&(1..=*count).collect()), "the stream of {id}");
        let steps = || server.value(&format!("tally/{id}/steps"), "");
        wait_until("every trigger has run", || steps() == json!(count));
    }
    for colour in 0..3 {
        let expected: Vec<&String> =
            known.iter().filter(|(_, (_, known))| *known == colour).map(|(id, _)| id).collect();
        let found = server.get(&format!("/records/tally?limit=1000&where=.colour%3D%3D%3D%22c{colour}%22"));
        let mut ids: Vec<String> = found["records"]
            .as_array()
            .expect("records")
            .iter()
            .map(|record| record["id"].as_str().expect("an id").to_owned())
            .collect();
        ids.sort();
        assert_eq!(ids.iter().collect::<Vec<_>>(), expected, "the index of c{colour}");
    }
}

#[test]
fn a_reader_through_a_hundred_restarts_misses_and_repeats_nothing() {
    let mut server = server();
    let restarts = number_from_env("MILLRACE_TEST_STREAM_RESTARTS", 100) as u64;
    let (mut cursor, mut seen) = (String::new(), Vec::new());
    let patch = json!([{ "op": "increment", "path": ".count", "value": 1 }]).to_string();
    for restart in 0..restarts {
        for _ in 0..2 {
            let reply = server.request("PATCH", "/records/tally/one", &[], patch.as_bytes());
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
        // Half of what there is, so that a restart falls between two pages as well.
        let page = server.get(&format!("/records/tally/changes?limit=1&cursor={cursor}"));
        page["cursor"].as_str().expect("a cursor").clone_into(&mut cursor);
        seen.extend(
            page["changes"].as_array().expect("changes").iter().map(|change| change["record"]["count"].clone()),
        );
        if restart % 2 == 0 {
            server.kill();
        } else {
            assert!(server.stop());
        }
        server.restart();
    }
    loop {
        let page = server.get(&format!("/records/tally/changes?limit=1000&cursor={cursor}"));
        let changes = page["changes"].as_array().expect("changes");
        if changes.is_empty() {
            break;
        }
        seen.extend(changes.iter().map(|change| change["record"]["count"].clone()));
        page["cursor"].as_str().expect("a cursor").clone_into(&mut cursor);
    }
    assert_eq!(seen, (1..=restarts * 2).map(|count| json!(count)).collect::<Vec<_>>());
}
