//! Typed records over their native URLs: content negotiation, conditions, patches, expiry, schemas that change,
//! indexes, triggers.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use millrace_tests::{Client, Load, Random, Reply, Server, ServerOptions, TestApp, assert_problem, wait_until};
use serde_json::{Value, json};

fn server() -> Server {
    Server::start(ServerOptions::examples(&[]))
}

fn send(server: &Server, method: &str, path: &str, headers: &[&str], body: &Value) -> Reply {
    server.request(method, path, headers, body.to_string().as_bytes())
}

fn put_type(server: &Server, name: &str, settings: &Value) {
    let reply = send(server, "PUT", &format!("/schemas/{name}"), &[], settings);
    assert!([200, 201].contains(&reply.status), "{name}: {} {}", reply.status, reply.text());
}

fn fields(fields: &Value) -> Value {
    json!({ "type": "record", "name": "Item", "fields": fields })
}

fn item_schema() -> Value {
    fields(&json!([
        { "name": "name", "type": "string", "default": "" },
        { "name": "count", "type": "int", "default": 0 },
        { "name": "tags", "type": { "type": "array", "items": "string" }, "default": [] },
        { "name": "size", "type": ["null", "long"], "default": null },
    ]))
}

#[test]
fn a_record_is_put_read_changed_and_deleted() {
    let server = server();
    put_type(&server, "item", &json!({ "schema": item_schema() }));
    assert_problem(&server.request("GET", "/records/item/a", &[], b""), 404, "unknown-record");
    let made = send(&server, "PUT", "/records/item/a", &[], &json!({ "name": "bolt", "count": 3 }));
    assert_eq!(made.status, 201, "{}", made.text());
    let tag = made.header("etag").expect("an ETag").to_owned();
    let read = server.request("GET", "/records/item/a", &[], b"");
    assert_eq!(read.json(), json!({ "name": "bolt", "count": 3, "tags": [], "size": null }));
    assert_eq!(read.header("etag"), Some(&*tag));
    assert_eq!(read.header("content-type"), Some("application/json"));
    let same = server.request("GET", "/records/item/a", &[&format!("If-None-Match: {tag}")], b"");
    assert_eq!((same.status, same.body.len()), (304, 0));
    let patch = json!([
        { "op": "test", "path": ".count", "value": 3 },
        { "op": "increment", "path": ".count", "value": 4 },
        { "op": "append-unique", "path": ".tags", "value": "m8" },
        { "op": "append-unique", "path": ".tags", "value": "m8" },
        { "op": "insert-all", "path": ".tags", "value": ["zinc", "steel"] },
        { "op": "delete", "path": ".tags[1]" },
        { "op": "set", "path": ".size", "value": 12 },
    ]);
    let patched = send(&server, "PATCH", "/records/item/a", &["Prefer: return=representation"], &patch);
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(patched.json(), json!({ "name": "bolt", "count": 7, "tags": ["m8", "steel"], "size": 12 }));
    assert_ne!(patched.header("etag"), Some(&*tag));
    // The tag is that of the record before, so nothing changes.
    let stale = send(&server, "PUT", "/records/item/a", &[&format!("If-Match: {tag}")], &json!({ "name": "nut" }));
    assert_problem(&stale, 412, "precondition-failed");
    let exists = send(&server, "PUT", "/records/item/a", &["If-None-Match: *"], &json!({ "name": "nut" }));
    assert_problem(&exists, 412, "precondition-failed");
    assert_eq!(server.get("/records/item/a")["name"], "bolt");
    let gone = server.request("DELETE", "/records/item/a", &[], b"");
    assert_eq!(gone.status, 204, "{}", gone.text());
    assert_problem(&server.request("GET", "/records/item/a", &[], b""), 404, "unknown-record");
    assert_problem(&server.request("DELETE", "/records/item/a", &[], b""), 404, "unknown-record");
}

#[test]
fn binary_and_json_are_two_forms_of_one_record() {
    let server = server();
    put_type(&server, "item", &json!({ "schema": item_schema() }));
    // The name "ab", count 3, tags ["x"] and size 5 as Avro writes them.
    let encoded = b"\x04ab\x06\x02\x02x\x00\x02\x0a";
    let made = server.request("PUT", "/records/item/b", &["Content-Type: avro/binary"], encoded);
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(server.get("/records/item/b"), json!({ "name": "ab", "count": 3, "tags": ["x"], "size": 5 }));
    let read = server.request("GET", "/records/item/b", &["Accept: avro/binary"], b"");
    assert_eq!((read.header("content-type"), &*read.body), (Some("avro/binary"), &encoded[..]));
    let tagged = server.request("GET", "/records/item/b", &["Accept: application/avro+json"], b"");
    assert_eq!(tagged.json()["size"], json!({ "long": 5 }));
    for wrong in [
        &b"\x04a"[..],
        b"\x04ab\x06\x02\x02x\x00\x02\x0a\x00",
        b"\x04ab\x06\x02\x02x\x00\x06\x0a",
        b"\x02\xff\x06\x00\x00",
    ] {
        let reply = server.request("PUT", "/records/item/b", &["Content-Type: avro/binary"], wrong);
        assert_problem(&reply, 422, "wrong-type");
    }
    let reply = server.request("PUT", "/records/item/b", &["Content-Type: text/xml"], b"<a/>");
    assert_problem(&reply, 415, "unsupported-media-type");
}

#[test]
fn bytes_are_read_with_the_schema_that_the_request_names() {
    let server = server();
    let pair = |first: &str, second: &str| {
        let field = |name: &str| json!({ "name": name, "type": "long", "default": 0 });
        json!({ "schema": fields(&json!([field(first), field(second)])) })
    };
    let binary = "Content-Type: avro/binary";
    put_type(&server, "pair", &pair("a", "b"));
    assert_eq!(server.request("PUT", "/records/pair/1", &[binary], b"\x02\x04").status, 201);
    let read = server.request("GET", "/records/pair/1", &["Accept: avro/binary"], b"");
    let named = format!("Millrace-Schema-Id: {}", read.header("millrace-schema-id").expect("an id"));
    put_type(&server, "pair", &pair("b", "a"));
    let put = |headers: &[&str], body: &[u8]| server.request("PUT", "/records/pair/1", headers, body);
    assert_eq!(put(&[binary, &named], &read.body).status, 200);
    assert_eq!(server.get("/records/pair/1"), json!({ "a": 1, "b": 2 }), "what was read is put back");
    assert_eq!(put(&[binary], &read.body).status, 200);
    assert_eq!(server.get("/records/pair/1"), json!({ "a": 2, "b": 1 }), "without it, the current schema counts");
    put_type(&server, "other", &json!({ "schema": item_schema() }));
    let other = server.get("/schemas/other")["schema_id"].clone();
    for id in [other, json!(0), json!(4_000_000_000_u32)] {
        assert_problem(&put(&[binary, &format!("Millrace-Schema-Id: {id}")], &read.body), 404, "unknown-schema");
    }
    assert_problem(&put(&[binary, "Millrace-Schema-Id: latest"], &read.body), 400, "bad-request");
    assert_problem(&put(&["Content-Type: application/json", &named], b"{}"), 400, "bad-request");
    assert_eq!(server.get("/records/pair/1"), json!({ "a": 2, "b": 1 }), "what is refused changes nothing");
}

#[test]
fn a_keyed_write_happens_once() {
    let server = server();
    put_type(&server, "item", &json!({ "schema": item_schema(), "create": "touch" }));
    let patch = json!([{ "op": "increment", "path": ".count", "value": 1 }]);
    let first = send(&server, "PATCH", "/records/item/k", &["Idempotency-Key: one"], &patch);
    assert_eq!(first.status, 200, "{}", first.text());
    for _ in 0..3 {
        let again = send(&server, "PATCH", "/records/item/k", &["Idempotency-Key: one"], &patch);
        assert_eq!((again.status, again.header("etag")), (200, first.header("etag")));
    }
    assert_eq!(server.get("/records/item/k")["count"], 1);
    let other = json!([{ "op": "increment", "path": ".count", "value": 2 }]);
    let mismatch = send(&server, "PATCH", "/records/item/k", &["Idempotency-Key: one"], &other);
    assert_problem(&mismatch, 422, "idempotency-mismatch");
}

#[test]
fn records_vanish_when_their_time_is_over() {
    let server = server();
    put_type(&server, "item", &json!({ "schema": item_schema() }));
    assert_eq!(
        send(&server, "PUT", "/records/item/t", &["Millrace-TTL: 60000"], &json!({ "name": "long" })).status,
        201
    );
    assert!(server.request("GET", "/records/item/t", &[], b"").header("millrace-expires").is_some());
    assert_eq!(send(&server, "PUT", "/records/item/s", &["Millrace-TTL: 50"], &json!({ "name": "short" })).status, 201);
    wait_until("the record has expired", || server.request("GET", "/records/item/s", &[], b"").status == 404);
    assert_eq!(server.get("/records/item/t")["name"], "long");
    // A type is deleted only when nothing of it is stored any more, visible or not.
    put_type(&server, "brief", &json!({ "schema": item_schema(), "ttl_ms": 1_500 }));
    assert_eq!(send(&server, "PUT", "/records/brief/s", &[], &json!({})).status, 201);
    assert_problem(&server.request("DELETE", "/schemas/brief", &[], b""), 409, "type-in-use");
    wait_until("it is collected", || server.request("DELETE", "/schemas/brief", &[], b"").status == 204);
    assert_problem(&server.request("DELETE", "/schemas/item", &[], b""), 409, "type-in-use");
}

/// Moves one from the count of one record to that of another, in one transaction.
const MOVER: &str = "import { service } from 'millrace';
    export default service({
      async move(ctx, to) {
        const add = (id, value) => ctx.record('item', id).patch([{ op: 'increment', path: '.count', value }]);
        await add(ctx.key, -1);
        await add(to, 1);
      },
    });";

#[test]
fn a_batch_over_many_shards_sees_one_state() {
    const RECORDS: u64 = 12;
    const STATES: u64 = 21;
    let server = server();
    put_type(&server, "item", &json!({ "schema": item_schema() }));
    let app = TestApp::with("mover.ts", MOVER).and("millrace.toml", "[records]\ntypes = [\"item\"]\n");
    assert_eq!(app.deploy(&server, "mover").status, 201);
    let ids: Vec<String> = (0..RECORDS).map(|number| format!("i{number}")).collect();
    for id in &ids {
        assert_eq!(send(&server, "PUT", &format!("/records/item/{id}"), &[], &json!({ "count": 100 })).status, 201);
    }
    let movers = Load::start(&server, 4, |number, shared| {
        let (mut client, mut random) = (Client::new(shared), Random::of(number + 1));
        while !client.stops() {
            let from = random.below(RECORDS);
            let to = (from + 1 + random.below(RECORDS - 1)) % RECORDS;
            let moved = client.until_answered("POST", &format!("/call/mover/i{from}/move"), &[], &format!("\"i{to}\""));
            assert_eq!(moved.status, 200, "{}", moved.text());
            client.acknowledged();
        }
    });
    let body = json!({ "ids": ids }).to_string();
    let readers = Load::start(&server, 2, move |_, shared| {
        let (mut client, mut states) = (Client::new(shared), BTreeSet::new());
        while !client.stops() {
            let batch = client.until_answered("POST", "/records/item/batch", &[], &body);
            assert_eq!(batch.status, 200, "{}", batch.text());
            let counts: Vec<i64> = batch.json()["records"]
                .as_array()
                .expect("records")
                .iter()
                .map(|found| found["record"]["count"].as_i64().expect("a count"))
                .collect();
            assert_eq!(counts.iter().sum::<i64>(), 100 * RECORDS as i64, "torn: {counts:?}");
            // Each counts as many new states as it has to see.
            if states.insert(counts) && states.len() as u64 <= STATES {
                client.acknowledged();
            }
        }
        states.len() as u64
    });
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) || movers.acknowledged() < 100 || readers.acknowledged() < 2 * STATES
    {
        assert!(began.elapsed() < Duration::from_secs(60), "nobody gets on");
        std::thread::sleep(Duration::from_millis(10));
    }
    let moves = movers.acknowledged();
    let states = readers.finish();
    movers.finish();
    println!("{moves} moves, {states:?} different states");
    assert!(states.iter().all(|states| *states >= STATES), "they saw {states:?} states: too few to say anything");
}

#[test]
fn schemas_evolve_and_records_follow_on_touch_and_in_the_background() {
    let mut server = server();
    put_type(&server, "item", &json!({ "schema": item_schema() }));
    for id in 0..300 {
        assert_eq!(
            send(&server, "PUT", &format!("/records/item/{id}"), &[], &json!({ "name": format!("n{id}") })).status,
            201
        );
    }
    let wider = fields(&json!([
        { "name": "title", "aliases": ["name"], "type": "string", "default": "" },
        { "name": "count", "type": "long", "default": 0 },
        { "name": "tags", "type": { "type": "array", "items": "string" }, "default": [] },
        { "name": "colour", "type": "string", "default": "grey" },
    ]));
    put_type(&server, "item", &json!({ "schema": wider, "indexes": [{ "name": "title", "path": ".title" }] }));
    assert_eq!(server.get("/records/item/7"), json!({ "title": "n7", "count": 0, "tags": [], "colour": "grey" }));
    server.kill();
    server.restart();
    assert_eq!(server.get("/records/item/8")["title"], "n8");
    let swept = || {
        let progress = server.get("/schemas/item")["sweep_progress"].clone();
        assert!(progress["shards"].as_u64().is_some_and(|shards| shards > 0), "{progress}");
        progress["complete_shards"] == progress["shards"]
    };
    wait_until("all records are written with the new schema", swept);
    let plan = "/records/item?explain=true&where=.title%3D%3D%3D%22n17%22";
    wait_until("the index is complete", || server.get(plan).to_string().contains("\"index\""));
    let found = server.get("/records/item?where=.title%3D%3D%3D%22n17%22");
    assert_eq!(found["records"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(found["records"][0]["id"], "17");
}

#[test]
fn queries_use_indexes_and_agree_with_a_scan() {
    let server = server();
    let indexes = json!([
        { "name": "count", "path": ".count" },
        { "name": "tags", "path": ".tags[*]" },
        { "name": "name", "path": ".name", "ignore_case": true },
    ]);
    put_type(&server, "item", &json!({ "schema": item_schema(), "indexes": indexes }));
    put_type(&server, "bare", &json!({ "schema": item_schema() }));
    for id in 0..200 {
        let tags: Vec<String> = (0..id % 4).map(|tag| format!("t{tag}")).collect();
        let body = json!({ "name": format!("Name{}", id % 10), "count": id % 50, "tags": tags });
        for of in ["item", "bare"] {
            assert_eq!(send(&server, "PUT", &format!("/records/{of}/{id:03}"), &[], &body).status, 201);
        }
    }
    let ids = |of: &str, filter: &str, limit: usize| -> Vec<String> {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = server.get(&format!("/records/{of}?limit={limit}&{filter}{cursor}"));
            let records = page["records"].as_array().unwrap_or_else(|| panic!("{page}"));
            assert!(records.len() <= limit);
            all.extend(records.iter().map(|record| record["id"].as_str().expect("an id").to_owned()));
            match page["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return all,
            }
        }
    };
    let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    for predicate in [
        ".count==7",
        ".count>45",
        ".count>=10&&.count<12",
        ".tags[*]==\"t2\"",
        ".name==\"NAME3\"",
        ".name===\"NAME3\"",
        ".count==7||.count==8",
        ".count<0",
        "!(.count<49)",
    ] {
        let filter = format!("where={}", encode(predicate));
        let mut expected = ids("bare", &filter, 1000);
        expected.sort();
        for limit in [7, 1000] {
            let mut found = ids("item", &filter, limit);
            found.sort();
            assert_eq!(found, expected, "{predicate} in pages of {limit}");
        }
    }
    let ordered = ids("item", &format!("order=-.count&where={}", encode(".count>=40")), 9);
    let counts: Vec<u64> = ordered.iter().map(|id| id.parse::<u64>().expect("a number") % 50).collect();
    assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
    assert_eq!(counts.len(), 40);
    let listed = ids("item", "ids_only=true", 33);
    assert!(listed.is_sorted() && listed.len() == 200, "{} ids", listed.len());
    assert_eq!(ids("item", "prefix=01", 4), (10..20).map(|id| format!("{id:03}")).collect::<Vec<_>>());
    let many = send(&server, "POST", "/records/item/batch", &[], &json!({ "ids": ["001", "nothing", "002"] }));
    let many = many.json();
    assert_eq!(many["records"][0]["record"]["count"], 1, "{many}");
    assert_eq!(many["records"][1]["error"]["code"], "unknown-record", "{many}");
}

#[test]
fn triggers_veto_before_and_follow_after_the_commit() {
    let server = server();
    let triggers = json!([
        { "name": "floor", "path": ".count", "when": "before",
          "source": "import { Abort } from 'millrace'; export default (ctx, { record }) => { if (record.count < 0) throw new Abort('none left'); };" },
        { "name": "tell", "path": ".count",
          "source": "export default (ctx, { record, before, changes }) => { ctx.send('listener/told', ctx.key, 'tell', [before?.count ?? null, record?.count ?? null, changes[0].path]); };" },
    ]);
    let listener = "import { service, query } from 'millrace';
        export default service({
          tell(ctx, what) { ctx.set('told', [...(ctx.get('told') ?? []), what]); },
          told: query((ctx) => ctx.get('told') ?? []),
          async reach(ctx) { await ctx.call('other/told', ctx.key, 'tell', 1); },
        });";
    assert_eq!(TestApp::with("told.ts", listener).deploy(&server, "listener").status, 201);
    put_type(&server, "item", &json!({ "schema": item_schema(), "triggers": triggers }));
    assert_eq!(send(&server, "PUT", "/records/item/a", &[], &json!({ "count": 1 })).status, 201);
    let add = |value: i32| {
        send(
            &server,
            "PATCH",
            "/records/item/a",
            &[],
            &json!([{ "op": "increment", "path": ".count", "value": value }]),
        )
    };
    assert_eq!(add(-1).status, 200);
    let vetoed = add(-1);
    assert_problem(&vetoed, 409, "aborted");
    assert!(vetoed.text().contains("none left"));
    assert_eq!(server.get("/records/item/a")["count"], 0);
    let rename = json!([{ "op": "set", "path": ".name", "value": "not watched" }]);
    assert_eq!(send(&server, "PATCH", "/records/item/a", &[], &rename).status, 200);
    let told = || server.value("told/a/told", "");
    wait_until("both changes were told", || told().as_array().is_some_and(|told| told.len() == 2));
    assert_eq!(told()[1], json!([1, 0, ".count"]));
    // Triggers may do this, but apps may not: apps see nothing of each other.
    assert_problem(&server.call("told/a/reach", ""), 403, "forbidden");
}

#[test]
fn functions_touch_records_in_their_own_transaction() {
    let server = server();
    put_type(&server, "item", &json!({ "schema": item_schema(), "create": "touch" }));
    let source = "import { service, query, Abort } from 'millrace';
        export default service({
          async move(ctx, [to, count]) {
            await ctx.record('item', ctx.key).patch([{ op: 'increment', path: '.count', value: -count }]);
            await ctx.record('item', to).patch([{ op: 'increment', path: '.count', value: count }]);
            const left = await ctx.record('item', ctx.key).get();
            if (left.count < 0) throw new Abort('not enough');
            ctx.set('moved', (ctx.get('moved') ?? 0) + count);
            return left.count;
          },
          async reset(ctx, count) {
            const places = await ctx.record('item', ctx.key).update('.count', count);
            if (count < 0) throw new Abort('less than nothing');
            return places;
          },
          look: query(async (ctx) => (await ctx.record('item', ctx.key).select('.count'))[0]),
        });";
    let toml = "[records]\ntypes = [\"item\"]\n";
    let app = TestApp::with("mover.ts", source).and("millrace.toml", toml);
    assert_eq!(app.deploy(&server, "mover").status, 201);
    assert_eq!(send(&server, "PUT", "/records/item/a", &[], &json!({ "count": 5 })).status, 201);
    assert_eq!(server.value("mover/a/move", r#"["b", 3]"#), json!(2));
    assert_eq!(server.value("mover/b/look", ""), json!(3));
    assert_problem(&server.call("mover/a/move", r#"["c", 3]"#), 409, "aborted");
    assert_eq!(
        (server.get("/records/item/a")["count"].clone(), server.get("/records/item/c")["count"].clone()),
        (json!(2), json!(0))
    );
    assert_problem(&server.call("mover/c/reset", "-1"), 409, "aborted");
    assert_eq!(server.value("mover/c/look", ""), json!(0));
    assert_eq!(
        (server.value("mover/c/reset", "9"), server.get("/records/item/c")["count"].clone()),
        (json!(1), json!(9))
    );
    let unnamed = TestApp::with("mover.ts", source);
    assert_eq!(unnamed.deploy(&server, "mover").status, 200);
    assert_problem(&server.call("mover/a/move", r#"["b", 1]"#), 403, "forbidden");
}

/// The plan of a query for `.count == 7`.
fn explained(server: &Server) -> Value {
    server.get("/records/item?explain=true&where=.count%3D%3D7")
}

#[test]
fn an_index_that_is_added_is_built_without_a_restart() {
    let server = server();
    put_type(&server, "item", &json!({ "schema": item_schema() }));
    let mut connection = server.connect();
    for id in 0..500 {
        let body = json!({ "count": id % 50 }).to_string();
        let put = connection.request("PUT", &format!("/records/item/{id}"), &[], body.as_bytes());
        assert_eq!(put.expect("a reply").status, 201);
    }
    put_type(&server, "item", &json!({ "indexes": [{ "name": "count", "path": ".count" }] }));
    let began = Instant::now();
    // The index is built though nobody asks for anything meanwhile. It takes no longer than a transaction of before may run.
    std::thread::sleep(Duration::from_secs(1));
    while explained(&server)["plan"] != "index" {
        assert!(began.elapsed() < Duration::from_secs(30), "{}", explained(&server));
        std::thread::sleep(Duration::from_millis(100));
    }
    let progress = server.get("/schemas/item")["index_progress"]["count"].clone();
    assert_eq!(progress["complete_shards"], progress["shards"], "{progress}");
    assert!(progress["shards"].as_u64().is_some_and(|shards| shards > 0), "{progress}");
    let found = server.get("/records/item?where=.count%3D%3D7");
    assert_eq!(found["records"].as_array().map(Vec::len), Some(10), "{found}");
}

#[test]
fn the_index_of_a_new_type_is_used_at_once() {
    let server = server();
    for name in ["first", "item"] {
        let indexes = json!([{ "name": "count", "path": ".count" }]);
        put_type(&server, name, &json!({ "schema": item_schema(), "indexes": indexes }));
        let began = Instant::now();
        let explain = format!("/records/{name}?explain=true&where=.count%3D%3D7");
        while server.get(&explain)["plan"] != "index" {
            assert!(began.elapsed() < Duration::from_secs(1), "{name}: {}", server.get(&explain));
        }
    }
    // The index finds the record that is there by now.
    assert_eq!(send(&server, "PUT", "/records/item/a", &[], &json!({ "count": 7 })).status, 201);
    assert_eq!(explained(&server)["plan"], "index");
    assert_eq!(server.get("/records/item?where=.count%3D%3D7")["records"][0]["id"], "a");
}

#[test]
fn a_trigger_that_writes_its_own_record_for_ever_is_stopped() {
    let server = server();
    let again = json!([{ "name": "again", "path": ".count",
        "source": "export default async (ctx) => { await ctx.record('item', ctx.key).patch([{ op: 'increment', path: '.count', value: 1 }]); };" }]);
    put_type(&server, "item", &json!({ "schema": item_schema(), "triggers": again }));
    assert_eq!(send(&server, "PUT", "/records/item/a", &[], &json!({ "count": 1 })).status, 201);
    let letters = || server.get("/dead-letters")["dead_letters"].clone();
    wait_until("it is stopped", || letters().as_array().is_some_and(|letters| letters.len() == 1));
    let letter = letters()[0].to_string();
    for part in ["depth-limit", "again", "item"] {
        assert!(letter.contains(part), "{letter}");
    }
    assert_eq!(server.get("/records/item/a")["count"], 17);
    // A write by a client begins a new chain.
    assert_eq!(send(&server, "PUT", "/records/item/b", &[], &json!({ "count": 1 })).status, 201);
    wait_until("both are stopped", || letters().as_array().is_some_and(|letters| letters.len() == 2));
    assert_eq!(server.get("/records/item/b")["count"], 17);
}

#[test]
fn a_cursor_does_not_lead_over_changes_that_nobody_kept() {
    let server = server();
    put_type(&server, "item", &json!({ "schema": item_schema(), "changes": {} }));
    let put = |id: &str| assert_eq!(send(&server, "PUT", &format!("/records/item/{id}"), &[], &json!({})).status, 201);
    put("a");
    let first = server.get("/records/item/changes");
    assert_eq!(first["changes"].as_array().map(Vec::len), Some(1), "{first}");
    let since = |page: &Value| {
        let cursor = page["cursor"].as_str().expect("a cursor");
        server.request("GET", &format!("/records/item/changes?cursor={cursor}"), &[], b"")
    };
    put_type(&server, "item", &json!({ "changes": null }));
    put("b");
    put_type(&server, "item", &json!({ "changes": {} }));
    assert_problem(&since(&first), 400, "bad-request");
    let second = server.get("/records/item/changes?cursor=now");
    put("c");
    assert_eq!(since(&second).json()["changes"][0]["id"], "c");
    assert_eq!(server.request("DELETE", "/schemas/item?force=true", &[], b"").status, 204);
    put_type(&server, "item", &json!({ "schema": item_schema(), "changes": {} }));
    for page in [&first, &second] {
        assert_problem(&since(page), 400, "bad-request");
    }
}
