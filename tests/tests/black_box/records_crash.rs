//! Records under `kill -9`. An update happens together with its index rows, its change in the stream, and its
//! triggers' writes and messages. All of it happens once, in one shard and over two. A reader of the stream who goes
//! on where it was misses and repeats nothing, with another number of cores at each start. Every acknowledged change
//! of types and schemas is there, and nothing that was deleted comes back.
//!
//! `MILLRACE_TEST_RECORD_KILLS` is the number of kills under load (20 in a normal run).
//! `MILLRACE_TEST_STREAM_RESTARTS` is the number under a reader (100).

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::thread::sleep;
use std::time::Duration;

use millrace_tests::crash::other_cores;
use millrace_tests::{
    Client, Connection, EventStream, Load, Random, Reply, Server, ServerOptions, Shared, TestApp, assert_problem,
    number_from_env, wait_until,
};
use serde_json::{Value, json};

/// Records that the clients change. Each client has its own records, so it knows their state.
const CLIENTS: u64 = 6;
const RECORDS_PER_CLIENT: u64 = 4;

/// The lifetime of the records that expire.
const BRIEF_MS: u64 = 200;

fn put_type(server: &Server, name: &str, settings: &Value) -> Reply {
    let reply = server.request("PUT", &format!("/schemas/{name}"), &[], settings.to_string().as_bytes());
    assert!(reply.status < 300, "{name}: {}", reply.text());
    reply
}

/// `double` follows `count` by a trigger before the commit. That trigger also adds to a record of another shard. The
/// trigger after the commit tells what has happened.
fn settings() -> Value {
    let derive = "export default async (ctx, { record, before }) => {
        if (!record) return;
        const double = { op: 'set', path: '.double', value: 2 * record.count };
        await ctx.record('tally', ctx.key).patch([double]);
        const value = record.count - (before?.count ?? 0);
        await ctx.record('sum', ctx.key.split('-')[0]).patch([{ op: 'increment', path: '.total', value }]);
    };";
    let tell = "export default (ctx, { record }) => {
        if (record) ctx.send('listener/tally', ctx.key, 'step', record.count);
        else ctx.send('listener/tally', ctx.key, 'gone');
    };";
    json!({
        "schema": { "type": "record", "name": "Tally", "fields": [
            { "name": "count", "type": "long", "default": 0 },
            { "name": "double", "type": "long", "default": 0 },
            { "name": "colour", "type": "string", "default": "grey" },
        ]},
        "create": "touch",
        "indexes": [
            { "name": "colour", "path": ".colour" },
            { "name": "count", "path": ".count" },
            { "name": "double", "path": ".double" },
        ],
        "triggers": [
            { "name": "derives", "path": ".count", "when": "before", "source": derive },
            { "name": "tells", "path": ".count", "source": tell },
        ],
        "changes": { "retention_ms": 3_600_000 },
    })
}

/// Counts how often it was told each thing.
const LISTENER: &str = "import { service, query } from 'millrace';
    export default service({
      step(ctx, count) {
        const told = ctx.get('steps') ?? [];
        told[count - 1] = (told[count - 1] ?? 0) + 1;
        ctx.set('steps', told);
      },
      gone(ctx) { ctx.set('gone', (ctx.get('gone') ?? 0) + 1); },
      told: query((ctx) => [ctx.get('steps') ?? [], ctx.get('gone') ?? 0]),
    });";

fn server() -> Server {
    let server = Server::start(ServerOptions::examples(&[]));
    assert_eq!(TestApp::with("tally.ts", LISTENER).deploy(&server, "listener").status, 201);
    let total = json!({ "name": "total", "type": "long", "default": 0 });
    let sum = json!({ "type": "record", "name": "Sum", "fields": [total] });
    put_type(&server, "sum", &json!({ "schema": sum, "create": "touch" }));
    put_type(&server, "tally", &settings());
    server
}

/// What a client knows.
#[derive(Default)]
struct Known {
    /// Count and colour of its records.
    records: BTreeMap<String, (u64, u64)>,
    /// The number of expiring records that it has made.
    brief: u64,
}

/// Adds to its records, each time under a key of its own, and returns their expected state. Now and then it makes a
/// record that expires.
fn client(number: u64, shared: &Shared) -> Known {
    let mut client = Client::new(shared);
    let mut random = Random::new();
    let mut known = Known::default();
    let mut request = 0;
    while !client.stops() {
        request += 1;
        let key = format!("Idempotency-Key: {number}-{request}");
        if request % 16 == 0 {
            known.brief += 1;
            let (path, ttl) =
                (format!("/records/tally/brief{number}-{}", known.brief), format!("Millrace-TTL: {BRIEF_MS}"));
            let reply = client.until_answered("PUT", &path, &[&key, &ttl], r#"{"count":1,"colour":"brief"}"#);
            assert_eq!(reply.status, 201, "{}", reply.text());
            client.acknowledged();
            continue;
        }
        let id = format!("r{number}-{}", random.below(RECORDS_PER_CLIENT));
        let colour = random.below(3);
        let patch = json!([
            { "op": "increment", "path": ".count", "value": 1 },
            { "op": "set", "path": ".colour", "value": format!("c{colour}") },
        ]);
        let reply = client.until_answered("PATCH", &format!("/records/tally/{id}"), &[&key], &patch.to_string());
        assert_eq!(reply.status, 200, "{}", reply.text());
        let entry = known.records.entry(id).or_default();
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
fn update_index_triggers_and_change_happen_together_through_every_kill() {
    let mut server = server();
    let kills = number_from_env("MILLRACE_TEST_RECORD_KILLS", 20) as u64;
    let mut random = Random::new();
    let readers = Load::start(&server, 1, |_, shared| reader(shared));
    let writers = Load::start(&server, CLIENTS, client);
    writers.kill_at_random(&mut server, kills, 20, &mut random, other_cores);
    let known = writers.finish();
    wait_until_all_are_told(&server, &known);
    let changes = readers.finish().into_iter().next().expect("one reader");
    judge_records(&server, &known);
    judge_changes(&known, &changes);
    judge_indexes(&server);
    // Everything that a restart might send a second time has come by now.
    server.kill();
    server.restart();
    sleep(Duration::from_millis(1_500));
    for (id, told) in expected_to_be_told(&known) {
        assert_eq!(server.value(&format!("tally/{id}/told"), ""), told, "{id}");
    }
}

/// For each record: how often its trigger has told each of its counts, and that it has gone.
fn expected_to_be_told(known: &[Known]) -> Vec<(String, Value)> {
    let steps = |count: u64| vec![1; usize::try_from(count).expect("few")];
    let mut all = Vec::new();
    for (number, known) in known.iter().enumerate() {
        all.extend(known.records.iter().map(|(id, (count, _))| (id.clone(), json!([steps(*count), 0]))));
        all.extend((1..=known.brief).map(|one| (format!("brief{number}-{one}"), json!([[1], 1]))));
    }
    all
}

fn wait_until_all_are_told(server: &Server, known: &[Known]) {
    let told = |id: &str| server.value(&format!("tally/{id}/told"), "");
    let steps =
        |told: &Value| told[0].as_array().map_or(0, |steps| steps.iter().filter(|step| !step.is_null()).count());
    for (id, expected) in expected_to_be_told(known) {
        // A later check sees counts above the expected ones.
        wait_until("every trigger has run", || {
            let told = told(&id);
            steps(&told) >= steps(&expected) && told[1].as_u64() >= expected[1].as_u64()
        });
    }
}

fn judge_records(server: &Server, known: &[Known]) {
    for (number, known) in known.iter().enumerate() {
        for (id, (count, colour)) in &known.records {
            let record = server.get(&format!("/records/tally/{id}"));
            let expected = json!({ "count": count, "double": 2 * count, "colour": format!("c{colour}") });
            assert_eq!(record, expected, "{id}");
        }
        let total: u64 = known.records.values().map(|(count, _)| count).sum();
        assert_eq!(server.get(&format!("/records/sum/r{number}"))["total"], total, "the other shard's part");
        if known.brief > 0 {
            assert_eq!(server.get(&format!("/records/sum/brief{number}"))["total"], known.brief);
        }
    }
}

/// Every state of every record once, in order: nothing missed, nothing repeated.
fn judge_changes(known: &[Known], changes: &[Value]) {
    let mut streamed: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for change in changes {
        let what = json!([change["kind"], change["record"]["count"], change["record"]["double"]]);
        streamed.entry(change["id"].as_str().expect("an id")).or_default().push(what);
    }
    let step = |count: u64| {
        let kind = if count == 1 { "create" } else { "update" };
        [json!([kind, count, 2 * count - 2]), json!(["update", count, 2 * count])]
    };
    for (number, known) in known.iter().enumerate() {
        for (id, (count, _)) in &known.records {
            let expected: Vec<Value> = (1..=*count).flat_map(step).collect();
            assert_eq!(streamed.remove(&**id), Some(expected), "the stream of {id}");
        }
        for one in 1..=known.brief {
            let id = format!("brief{number}-{one}");
            // The record is put whole, so `double` is as in the defaults at first.
            let mut expected = step(1).to_vec();
            expected.push(json!(["expire", null, null]));
            assert_eq!(streamed.remove(&*id), Some(expected), "the stream of {id}");
        }
    }
    assert!(streamed.is_empty(), "nobody has written {streamed:?}");
}

/// The ids of a list, page by page. Only the last page may be short.
fn ids(server: &Server, query: &str) -> Vec<String> {
    const PAGE: usize = 5;
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/records/tally?ids_only=true&limit={PAGE}&{query}{cursor}"));
        let records = page["records"].as_array().expect("records");
        all.extend(records.iter().map(|record| record["id"].as_str().expect("an id").to_owned()));
        match page["cursor"].as_str() {
            // A row of a record that is gone takes a place and shows nothing.
            Some(next) => {
                assert_eq!(records.len(), PAGE, "{query}: {page}");
                cursor = format!("&cursor={next}");
            }
            None => return all,
        }
    }
}

/// An index returns what a scan of every record returns. In the order of an index without a predicate, its rows are
/// taken as they are. A row that is left over shows twice, or as a gap.
fn judge_indexes(server: &Server) {
    let plan = |query: &str| {
        let explained = server.get(&format!("/records/tally?explain=true&{query}"));
        (explained["plan"].clone(), explained["index"].clone())
    };
    let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    let all = ids(server, "");
    assert!(all.iter().all(|id| id.starts_with('r')), "{all:?}");
    for index in ["colour", "count", "double"] {
        let (up, down) = (format!("order=.{index}"), format!("order=-.{index}"));
        for order in [&up, &down] {
            wait_until("the index is complete", || plan(order) == (json!("index"), json!(index)));
            assert_eq!(sorted(ids(server, order)), all, "{order}");
        }
        let mut reversed = ids(server, &down);
        reversed.reverse();
        assert_eq!(ids(server, &up), reversed, "{index}, the other way round");
    }
    let middle = server.get(&format!("/records/tally/{}", all[all.len() / 2]));
    let mut predicates: Vec<(&str, String)> =
        ["c0", "c1", "c2", "grey", "brief"].map(|colour| ("colour", format!(".colour === \"{colour}\""))).into();
    for index in ["count", "double"] {
        let value = &middle[index];
        predicates.extend(["===", "<=", ">"].map(|operator| (index, format!(".{index} {operator} {value}"))));
    }
    for (index, predicate) in predicates {
        // No index serves predicates joined by `||`.
        let by_index = format!("where={}", encoded(&predicate));
        let by_scan = format!("where={}", encoded(&format!("{predicate} || {predicate}")));
        assert_eq!(plan(&by_index), (json!("index"), json!(index)), "{predicate}");
        assert_eq!(plan(&by_scan).0, "scan", "{predicate}");
        let found = |query: &str| -> Vec<String> {
            let found = server.get(&format!("/records/tally?ids_only=true&limit=1000&{query}"));
            assert_eq!(found["cursor"], Value::Null, "{found}");
            let records = found["records"].as_array().expect("records").iter();
            sorted(records.map(|record| record["id"].as_str().expect("an id").to_owned()).collect())
        };
        assert_eq!(found(&by_index), found(&by_scan), "{predicate}");
    }
}

/// What happened to each record, in the order in which the stream told it: `create 1`, `update 2`, `delete`.
type Story = BTreeMap<String, Vec<String>>;

/// The place of a follower in a stream.
#[derive(Default)]
struct FollowerPosition {
    told: Story,
    /// For each tag, and so for each shard, the last sequence.
    sequences: BTreeMap<String, u64>,
    last: Option<String>,
}

impl FollowerPosition {
    /// Each event of a shard has the next sequence: none is missing, none is repeated, none comes late.
    fn note(&mut self, change: &Value) {
        let id = change["id"].as_str().expect("an id");
        let tag = id.split('}').next().expect("a tag").to_owned();
        let sequence = self.sequences.entry(tag).or_default();
        assert_eq!(change["sequence"], *sequence + 1, "missed or repeated: {change}");
        *sequence += 1;
        let kind = change["kind"].as_str().expect("a kind");
        let event = change["record"]["count"].as_u64().map_or(kind.to_owned(), |count| format!("{kind} {count}"));
        self.told.entry(id.to_owned()).or_default().push(event);
    }

    /// Opens the stream behind the events seen so far, by the browsers' header or by the parameter. `None` means that
    /// there is no server now.
    fn open(&self, connection: Connection, by_header: bool) -> Option<EventStream> {
        const PATH: &str = "/records/watched/changes";
        let opened = match &self.last {
            Some(last) if !by_header => EventStream::open(connection, &format!("{PATH}?cursor={last}"), None),
            last => EventStream::open(connection, PATH, last.as_deref()),
        };
        match opened {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                panic!("a place that was given is refused: {error}")
            }
            opened => opened.ok(),
        }
    }
}

/// Follows a stream of events from the last event it has seen, through every end of the server and some of its own.
/// Returns the events.
fn watcher(shared: &Shared) -> Story {
    let (mut random, mut place) = (Random::new(), FollowerPosition::default());
    loop {
        let stops = shared.stops();
        let Ok(connection) = Connection::open(shared.address()) else {
            sleep(Duration::from_millis(2));
            continue;
        };
        // When every event has come, the stream is silent for this long.
        connection.socket().set_read_timeout(Some(Duration::from_millis(700))).expect("set");
        let Some(stream) = place.open(connection, random.below(2) == 0) else {
            sleep(Duration::from_millis(2));
            continue;
        };
        // Half of the time it leaves with events on their way to it.
        let most = if random.below(2) == 0 { 1 + random.below(8) as usize } else { usize::MAX };
        let (mut changes, mut events) = (0, 0);
        for event in stream.take(most) {
            events += 1;
            place.last = Some(event.id.clone());
            // At first it only says where the stream begins.
            if event.data.is_empty() {
                continue;
            }
            changes += 1;
            assert_eq!(event.name, "", "{event:?}");
            place.note(&serde_json::from_str(&event.data).expect("JSON"));
        }
        if stops && changes == 0 && events < most {
            return place.told;
        }
    }
}

/// Makes, counts up, deletes and makes again records of its own, which lie in the shards of its tags. Returns what it
/// did to each.
fn changer(number: u64, tags: &[String], shared: &Shared) -> Story {
    let mut client = Client::new(shared);
    let mut random = Random::of(number + 1);
    let mut done = Story::new();
    let mut states: BTreeMap<String, (bool, u64)> = BTreeMap::new();
    let increment = json!([{ "op": "increment", "path": ".count", "value": 1 }]).to_string();
    for request in 0.. {
        if client.stops() {
            break;
        }
        let tag = &tags[random.below(tags.len() as u64) as usize];
        let id = format!("{{{tag}}}{number}-{}", random.below(RECORDS_PER_CLIENT));
        let (is_there, count) = states.entry(id.clone()).or_default();
        let (method, body, status, event) = if !*is_there {
            // The count goes on over the deletion, so that no state comes twice.
            *count += 1;
            ("PUT", json!({ "count": count }).to_string(), 201, format!("create {count}"))
        } else if random.below(4) == 0 {
            ("DELETE", String::new(), 204, "delete".to_owned())
        } else {
            *count += 1;
            ("PATCH", increment.clone(), 200, format!("update {count}"))
        };
        *is_there = method != "DELETE";
        let key = format!("Idempotency-Key: {number}-{request}");
        let path = format!("/records/watched/{}", id.replace('{', "%7B").replace('}', "%7D"));
        let reply = client.until_answered(method, &path, &[&key], &body);
        assert_eq!(reply.status, status, "{method} {id}: {}", reply.text());
        done.entry(id).or_default().push(event);
        client.acknowledged();
    }
    done
}

/// Tags of records that each lie in a shard of their own. Each is the first of its shard in the stream of another
/// type.
fn tags_of_shards(server: &Server, count: usize) -> Vec<String> {
    let schema = json!({ "type": "record", "name": "Probe", "fields": [] });
    put_type(server, "probe", &json!({ "schema": schema, "changes": {} }));
    for number in 0..4 * count {
        let path = format!("/records/probe/%7Bt{number}%7D");
        assert_eq!(server.request("PUT", &path, &[], b"{}").status, 201);
    }
    let page = server.get("/records/probe/changes?limit=1000");
    let changes = page["changes"].as_array().expect("changes").iter();
    let first = changes.filter(|change| change["sequence"] == 1);
    let tags = first.map(|change| change["id"].as_str().expect("an id").trim_matches(['{', '}']).to_owned());
    let tags: Vec<String> = tags.take(count).collect();
    assert_eq!(tags.len(), count, "{page}");
    tags
}

fn told_afterwards(server: &Server) -> Story {
    let (mut place, mut cursor) = (FollowerPosition::default(), String::new());
    loop {
        let page = server.get(&format!("/records/watched/changes?limit=100&cursor={cursor}"));
        page["cursor"].as_str().expect("a cursor").clone_into(&mut cursor);
        let changes = page["changes"].as_array().expect("changes");
        changes.iter().for_each(|change| place.note(change));
        if changes.is_empty() {
            return place.told;
        }
    }
}

#[test]
fn a_reader_through_a_hundred_restarts_misses_and_repeats_nothing() {
    let mut server = Server::start(ServerOptions::examples(&[]));
    let count = json!({ "name": "count", "type": "long", "default": 0 });
    let schema = json!({ "type": "record", "name": "Watched", "fields": [count] });
    put_type(&server, "watched", &json!({ "schema": schema, "changes": {} }));
    let tags = tags_of_shards(&server, 8);
    let restarts = number_from_env("MILLRACE_TEST_STREAM_RESTARTS", 100) as u64;
    let mut random = Random::new();
    let watchers = Load::start(&server, 2, |_, shared| watcher(shared));
    let changers = Load::start(&server, 2, move |number, shared| changer(number, &tags, shared));
    for restart in 0..restarts {
        changers.wait_for(4);
        sleep(Duration::from_micros(random.below(4_000)));
        if restart % 5 == 0 {
            assert!(server.stop());
        } else {
            server.kill();
        }
        other_cores(&mut server, restart);
        server.restart();
    }
    let done: Story = changers.finish().into_iter().flatten().collect();
    let counted = |what: &str| done.values().flatten().filter(|event| event.starts_with(what)).count();
    let (made, deleted) = (counted("create"), counted("delete"));
    assert!(deleted > 10 && made > done.len() + 4, "{made} made, {deleted} deleted of {} records", done.len());
    let mut stories = watchers.finish();
    // A follower that begins afterwards, page by page, is told the same.
    stories.push(told_afterwards(&server));
    for told in stories {
        assert_eq!(told, done);
    }
}

/// One change, the URL that shows it, the member to look at, and its expected value.
struct Said {
    request: &'static str,
    body: String,
    shown: &'static str,
    member: &'static str,
    expected: Value,
}

fn said(request: &'static str, body: Value, shown: &'static str, member: &'static str, expected: Value) -> Said {
    let body = match body {
        Value::Null => String::new(),
        // A body that is not JSON.
        Value::String(text) => text,
        body => body.to_string(),
    };
    Said { request, body, shown, member, expected }
}

fn schema(name: &str, fields: &[&str]) -> Value {
    let fields = fields.iter().map(|name| json!({ "name": name, "type": "long", "default": 0 }));
    json!({ "type": "record", "name": name, "fields": fields.collect::<Vec<_>>() })
}

fn version(fields: &[&str]) -> Value {
    json!({ "schema": schema("Item", fields).to_string() })
}

fn send(server: &Server, request: &str, body: &str) -> Reply {
    let (method, path) = request.split_once(' ').expect("a method and a path");
    server.request(method, path, &[], body.as_bytes())
}

/// Makes the changes one after the other, and kills the server after each. Then all changes so far are visible.
fn is_kept(server: &mut Server, steps: Vec<Said>) {
    let is_error = |member: &str| ["/code", "/error_code"].contains(&member);
    let mut known: BTreeMap<(&str, &str), Value> = BTreeMap::new();
    for Said { request, body, shown, member, expected } in steps {
        let reply = send(server, request, &body);
        server.kill();
        assert!(reply.status < 300, "{request}: {}", reply.text());
        server.restart();
        // Where there is an error, there is nothing else, and the reverse.
        let stays = |old: &str| is_error(old) == is_error(member) && !old.starts_with(member);
        known.retain(|(path, old), _| *path != shown || stays(old));
        known.insert((shown, member), expected);
        for ((shown, member), expected) in &known {
            let found = server.request("GET", shown, &[], b"").json();
            assert_eq!(found.pointer(member), Some(expected), "{shown} after {request} {body}: {found}");
        }
    }
}

#[test]
fn what_clients_of_the_registry_said_survives_a_kill_right_after_the_reply() {
    let (none, free, all) = (Value::Null, "/subjects/free/versions", "/subjects/free/versions?deleted=true");
    let level = |level: &str| json!({ "compatibility": level });
    let mode = |mode: &str| json!({ "mode": mode });
    let steps = vec![
        said("PUT /config", level("FULL"), "/config", "/compatibilityLevel", json!("FULL")),
        said("POST /subjects/free/versions", version(&["f"]), free, "", json!([1])),
        said("PUT /config/free", level("NONE"), "/config/free", "/compatibilityLevel", json!("NONE")),
        said("POST /subjects/free/versions", version(&["g"]), free, "", json!([1, 2])),
        said("POST /subjects/free/versions", version(&["h"]), free, "", json!([1, 2, 3])),
        said("DELETE /subjects/free/versions/2", none.clone(), free, "", json!([1, 3])),
        said("DELETE /subjects/free/versions/3", none.clone(), free, "", json!([1])),
        said("DELETE /subjects/free/versions/2?permanent=true", none.clone(), all, "", json!([1, 3])),
        said("DELETE /config/free", none.clone(), "/config/free", "/error_code", json!(40408)),
        said("PUT /mode", mode("READONLY_OVERRIDE"), "/mode", "/mode", json!("READONLY_OVERRIDE")),
        said("PUT /mode", mode("READWRITE"), "/mode", "/mode", json!("READWRITE")),
        said("PUT /mode", mode("READONLY"), "/mode", "/mode", json!("READONLY")),
        said("DELETE /mode", none.clone(), "/mode", "/mode", json!("READWRITE")),
        said("PUT /mode/free", mode("READONLY"), "/mode/free", "/mode", json!("READONLY")),
        said("DELETE /mode/free", none.clone(), "/mode/free", "/error_code", json!(40409)),
        said("DELETE /subjects/free", none.clone(), free, "/error_code", json!(40401)),
        said("DELETE /subjects/free?permanent=true", none.clone(), all, "/error_code", json!(40401)),
        said("DELETE /config", none, "/config", "/compatibilityLevel", json!("BACKWARD")),
    ];
    is_kept(&mut Server::start(ServerOptions::examples(&[])), steps);
}

#[test]
fn what_was_said_of_a_type_survives_a_kill_right_after_the_reply() {
    let (item, put, changes) = ("/schemas/item", "PUT /schemas/item", "/records/item/changes");
    let copy = "export default async (ctx, { record }) => {
        await ctx.record('copy', ctx.key).put({ a: record.a });
    };";
    let triggers = json!([{ "name": "copies", "path": ".a", "when": "before", "source": copy }]);
    let indexes = json!([{ "name": "by-b", "path": ".b" }]);
    let line = json!({ "type": "record", "name": "Line", "fields": [{ "name": "item", "type": "Item" }] });
    let references = json!([{ "name": "Item", "subject": "item", "version": 2 }]);
    let line = json!({ "schema": line, "references": references, "create": "touch" });
    let mut server = Server::start(ServerOptions::examples(&[]));
    let steps = vec![
        said(put, json!({ "schema": schema("Item", &["a"]) }), item, "/version", json!(1)),
        said("POST /subjects/item/versions", version(&["a", "b"]), item, "/version", json!(2)),
        said("DELETE /subjects/item/versions/1", Value::Null, "/subjects/item/versions", "", json!([2])),
        said(put, json!({ "compatibility": "NONE" }), item, "/compatibility", json!("NONE")),
        said(put, json!({ "compatibility": null }), item, "/compatibility", json!("BACKWARD")),
        said(put, json!({ "create": "touch" }), "/records/item/none", "", json!({ "a": 0, "b": 0 })),
        said(put, json!({ "create": "explicit" }), "/records/item/none", "/code", json!("unknown-record")),
        said(put, json!({ "ttl_ms": 3_600_000 }), item, "/ttl_ms", json!(3_600_000)),
        said(put, json!({ "ttl_ms": null }), item, "/ttl_ms", Value::Null),
        said(put, json!({ "changes": {} }), changes, "/changes", json!([])),
        said(put, json!({ "changes": null }), changes, "/code", json!("bad-request")),
        said(put, json!({ "changes": { "retention_count": 5 } }), changes, "/changes", json!([])),
        said("PUT /schemas/copy", json!({ "schema": schema("Copy", &["a"]) }), "/schemas/copy", "/version", json!(1)),
        said(put, json!({ "triggers": triggers }), item, "/triggers/0/name", json!("copies")),
        said(put, json!({ "indexes": indexes }), item, "/indexes/0/name", json!("by-b")),
        said("PUT /schemas/line", line, "/records/line/none", "/item", json!({ "a": 0, "b": 0 })),
    ];
    is_kept(&mut server, steps);
    // The trigger works and is not only listed. The same holds for the index, the stream and the reference.
    assert_eq!(send(&server, "PUT /records/item/x", r#"{"a":7,"b":8}"#).status, 201);
    assert_eq!(server.get("/records/copy/x"), json!({ "a": 7 }));
    let plan = |server: &Server| server.get("/records/item?explain=true&where=.b%3D%3D8")["plan"].clone();
    wait_until("the index is complete", || plan(&server) == "index");
    assert_eq!(server.get(item)["changes"]["retention_count"], 5);
    assert_eq!(server.get(changes)["changes"][0]["id"], "x");
    assert_problem(&send(&server, "DELETE /schemas/item?force=true", ""), 409, "type-in-use");
    assert_eq!(send(&server, "DELETE /records/copy/x", "").status, 204);
    let delete = |name: &'static str, shown| said(name, Value::Null, shown, "/code", json!("unknown-type"));
    let steps = vec![
        said(put, json!({ "triggers": [] }), item, "/triggers", json!([])),
        said(put, json!({ "indexes": [] }), item, "/indexes", json!([])),
        delete("DELETE /schemas/line", "/schemas/line"),
        delete("DELETE /schemas/copy", "/schemas/copy"),
    ];
    is_kept(&mut server, steps);
    assert_eq!(plan(&server), "scan");
    assert_eq!(send(&server, "PUT /records/item/x", r#"{"a":9}"#).status, 200, "no trigger reaches for the other type");
    is_kept(&mut server, vec![delete("DELETE /schemas/item?force=true", item)]);
}

#[test]
fn what_was_said_at_the_classic_urls_survives_a_kill_right_after_the_reply() {
    let person = |fields: &[&str]| schema("Person", fields);
    let (put, of) = ("POST /putschema/person", "/schemas/person");
    let steps = vec![
        said(put, person(&["age"]), "/person/get/1", "", json!({ "age": 0 })),
        said(put, person(&["age", "size"]), "/person/get/1", "", json!({ "age": 0, "size": 0 })),
        said(
            "POST /person/putscript/age/first",
            json!("ctx.log('1');"),
            of,
            "/triggers/0/source",
            json!("ctx.log('1');"),
        ),
        said(
            "POST /person/putscript/age/first",
            json!("ctx.log('2');"),
            of,
            "/triggers/0/source",
            json!("ctx.log('2');"),
        ),
        said("POST /person/putscript/age/other", json!("ctx.log('3');"), of, "/triggers/1/name", json!("other")),
    ];
    let mut server = Server::start(ServerOptions::examples(&[]));
    is_kept(&mut server, steps);
    assert_eq!(send(&server, "POST /person/update/1", ".age\n60").text(), "OK");
    let steps = vec![
        said("GET /person/delscript/age/first", Value::Null, of, "/triggers/0/name", json!("other")),
        said("GET /person/delscript/age/other", Value::Null, of, "/triggers", json!([])),
        said("GET /delschema/person?force=true", Value::Null, of, "/code", json!("unknown-type")),
    ];
    is_kept(&mut server, steps);
    // Its record was out of reach, and is there again.
    is_kept(&mut server, vec![said(put, person(&["age"]), "/person/get/1", "", json!({ "age": 60 }))]);
}
