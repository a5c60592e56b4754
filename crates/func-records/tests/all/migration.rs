//! New schemas and new indexes while records are there, and while they change.

use crate::common;

use crate::common::{World, person, put};
use millrace_api::{Form, RecordChange, RecordOperation, RecordQuery, RecordWrite};
use millrace_base::ErrorCode;
use proptest::prelude::*;
use serde_json::{Value, json};

/// `person` with one more field, and its age a long.
fn taller() -> Value {
    let mut schema = person();
    schema["fields"][1]["type"] = json!("long");
    let fields = schema["fields"].as_array_mut().expect("fields");
    fields.insert(0, json!({ "name": "height", "type": ["null", "double"], "default": null }));
    schema
}

/// `taller` without its additions. Either can read the other.
fn shorter() -> Value {
    let mut schema = taller();
    schema["fields"].as_array_mut().expect("fields").remove(0);
    schema
}

/// An entirely different schema.
fn stranger() -> Value {
    json!({ "type": "record", "name": "PersonInfo", "fields": [{ "name": "needed", "type": "bytes" }] })
}

#[test]
fn records_are_read_with_the_present_schema_and_brought_to_it() {
    let mut world = World::with("t", json!({ "schema": person(), "indexes": [{ "name": "by_age", "path": ".age" }] }));
    for number in 0..250 {
        world.put(&format!("r{number}"), &json!({ "age": number }).to_string()).expect("puts");
    }
    let old_tag = world.run("t", b"r7", &RecordOperation::Get { form: Form::Json }).expect("reads").tag;
    world.switch("t", json!({ "schema": taller() })).expect("loads");
    let migrated = r#"{"height":null,"name":"","age":7,"gender":"Unknown","emails":[]}"#;
    let stored = world.stored.clone();
    assert_eq!(world.get("r7").as_deref(), Ok(migrated));
    let tag = world.run("t", b"r7", &RecordOperation::Get { form: Form::Json }).expect("reads").tag;
    assert_ne!(tag, old_tag, "another schema");
    assert_eq!(world.set("r7", ".age", "7").expect("changes nothing").tag, tag);
    assert_eq!(world.stored, stored, "reading writes nothing");
    world.sweep("t");
    world.settle(60_000);
    assert_ne!(world.stored, stored);
    assert_eq!(world.get("r7").as_deref(), Ok(migrated));
    let after = world.run("t", b"r7", &RecordOperation::Get { form: Form::Json }).expect("reads").tag;
    assert_eq!(after, tag, "the sweep is not seen");
    world.check_rows("t");
    let swept = world.stored.clone();
    world.sweep("t");
    world.settle(60_000);
    assert_eq!(world.stored, swept, "there is nothing left to do");
}

#[test]
fn what_cannot_be_read_says_so_and_can_be_read_again_later() {
    let mut world = World::with(
        "t",
        json!({ "schema": person(), "compatibility": "NONE",
        "indexes": [{ "name": "by_age", "path": ".age" }], "changes": { "retention_ms": 1_000_000 } }),
    );
    world.put("old", r#"{"age":5}"#).expect("puts");
    world.put_type("t", json!({ "schema": stranger(), "indexes": [] }));
    world.put("new", r#"{"needed":""}"#).expect("puts");
    let error = world.get("old").expect_err("another schema");
    assert_eq!(error.code, ErrorCode::WrongType);
    assert!(error.message.contains("version 1 ") && error.message.contains("version 2 "), "{error}");
    assert_eq!(world.set("old", ".needed", "\"\"").expect_err("another").code, ErrorCode::WrongType);
    let page = world.query(RecordQuery::default()).expect("finds");
    let query = RecordQuery { predicate: ".needed === \"\"", ..RecordQuery::default() };
    assert_eq!(world.ids(&query).expect("finds").0, ["new"]);
    let codes: Vec<&Value> =
        page["records"].as_array().expect("records").iter().map(|record| &record["error"]["code"]).collect();
    assert_eq!(codes, [&Value::Null, &json!("wrong-type")]);
    world.put_type("t", json!({ "schema": taller(), "indexes": [{ "name": "by_age", "path": ".age" }] }));
    assert!(world.get("old").expect("reads").contains("\"age\":5"));
    world.put("new", "{}").expect("what cannot be read can be put");
    world.check_rows("t");
    world.put_type("t", json!({ "schema": stranger(), "indexes": [] }));
    world.delete("new").expect("or deleted");
    world.put_type("t", json!({ "schema": taller(), "indexes": [{ "name": "by_age", "path": ".age" }] }));
    world.check_rows("t");
    let (ids, _) = world.ids(&RecordQuery { predicate: ".age == 5", ..RecordQuery::default() }).expect("finds");
    assert_eq!(ids, ["old"]);
}

/// Two numbers that only their order tells apart in binary.
fn pair(first: &str, second: &str) -> Value {
    let field = |name: &str| json!({ "name": name, "type": "long", "default": 0 });
    json!({ "type": "record", "name": "Pair", "fields": [field(first), field(second)] })
}

#[test]
fn bytes_are_read_with_the_schema_that_they_are_said_to_be_written_with() {
    let mut world = World::with("t", json!({ "schema": pair("a", "b") }));
    let old_bytes = b"\x02\x04";
    let put = |world: &mut World, schema_id, value: &[u8]| {
        let change = RecordChange::PutWritten { schema_id, value };
        world.write("1", RecordWrite { change, answer: Some(Form::Json), ..RecordWrite::default() }).map(common::text)
    };
    let old = world.run(
        "t",
        b"0",
        &RecordOperation::Write(RecordWrite { change: common::put("{}"), ..RecordWrite::default() }),
    );
    let old = old.expect("puts").schema_id.expect("a schema");
    assert_eq!(put(&mut world, old, old_bytes).as_deref(), Ok(r#"{"a":1,"b":2}"#));
    world.put_type("t", json!({ "schema": pair("b", "a") }));
    let reply = world.put("0", r#"{"a":7}"#).expect("puts");
    let new = reply.schema_id.expect("a schema");
    assert_ne!(old, new);
    assert_eq!(put(&mut world, old, old_bytes).as_deref(), Ok(r#"{"b":2,"a":1}"#));
    assert_eq!(world.get("1").as_deref(), Ok(r#"{"b":2,"a":1}"#), "and it is stored so");
    assert_eq!(put(&mut world, new, old_bytes).as_deref(), Ok(r#"{"b":1,"a":2}"#));
    for (id, bytes, code) in [
        (new + 1, &b"\x02\x04"[..], ErrorCode::UnknownSchema),
        (0, b"\x02\x04", ErrorCode::UnknownSchema),
        (old, b"\x02", ErrorCode::WrongType),
        (old, b"\x02\x04\x06", ErrorCode::WrongType),
    ] {
        assert_eq!(put(&mut world, id, bytes).expect_err("refused").code, code, "{id} {bytes:?}");
    }
    assert_eq!(world.get("1").as_deref(), Ok(r#"{"b":1,"a":2}"#), "what is refused changes nothing");
}

#[test]
fn records_of_another_logical_type_say_so_instead_of_meaning_something_else() {
    let at = |logical: &str| {
        json!({ "type": "record", "name": "T", "fields": [
        { "name": "at", "type": { "type": "long", "logicalType": logical }, "default": 0 }] })
    };
    let mut world = World::with("t", json!({ "schema": at("timestamp-millis"), "compatibility": "NONE" }));
    world.put("1", r#"{"at":"2026-01-02T03:04:05.000Z"}"#).expect("puts");
    world.put("2", "{}").expect("puts");
    // Versions that only an earlier rule, or no rule at all, allows.
    world.put_type("t", json!({ "schema": at("timestamp-micros") }));
    let error = world.get("1").expect_err("microseconds");
    assert_eq!(error.code, ErrorCode::WrongType);
    for part in ["version 1 ", "version 2 ", ".at: ", "long (timestamp-millis)", "long (timestamp-micros)"] {
        assert!(error.message.contains(part), "{part}: {error}");
    }
    world.put("2", r#"{"at":"2026-01-02T03:04:05.000006Z"}"#).expect("it may be put anew");
    assert!(world.get("2").expect("reads").contains("05.000006Z"));
    world.put_type("t", json!({ "schema": at("timestamp-millis") }));
    assert_eq!(world.get("1").as_deref(), Ok(r#"{"at":"2026-01-02T03:04:05.000Z"}"#), "it is still there");
}

#[test]
fn rows_of_indexes_that_are_gone_go() {
    let mut world = World::with(
        "t",
        json!({ "schema": person(), "changes": { "retention_ms": 1_000_000 }, "indexes": [
        { "name": "by_age", "path": ".age" }, { "name": "by_email", "path": ".emails[*]" }, { "name": "by_name", "path": ".name" }] }),
    );
    for number in 0..300 {
        let json = json!({ "age": number, "emails": ["a", "b", number.to_string()] });
        world.put(&number.to_string(), &json.to_string()).expect("puts");
    }
    world.check_rows("t");
    world.put_type("t", json!({ "indexes": [{ "name": "by_name", "path": ".name" }] }));
    world.check_rows("t");
    assert_eq!(world.shard_fields("t", b'i').len(), 300);
    assert_eq!(world.shard_fields("t", b'b').len(), 3);
    world.put_type("t", json!({ "changes": null }));
    world.put_type("t", json!({ "indexes": [] }));
    assert!(world.shard_fields("t", b'i').is_empty() && world.shard_fields("t", b'c').is_empty());
    world.put_type("t", json!({ "indexes": [{ "name": "by_email", "path": ".emails[*]", "ignore_case": true }] }));
    world.check_rows("t");
}

#[test]
fn an_index_that_was_not_built_is_not_used() {
    let mut world = World::with("t", json!({ "schema": person() }));
    world.put("1", r#"{"age":5}"#).expect("puts");
    world.switch("t", json!({ "indexes": [{ "name": "by_age", "path": ".age" }] })).expect("loads");
    let query = RecordQuery { predicate: ".age == 5", ..RecordQuery::default() };
    assert_eq!(world.ids(&query).expect("finds").0, ["1"]);
    world.sweep("t");
    while world.run_message(0) {}
    assert_eq!(world.shard_fields("t", b'b').len(), 0, "it waits for what still runs in the version before");
    assert_eq!(world.ids(&query).expect("finds").0, ["1"]);
    world.settle(60_000);
    assert_eq!(world.shard_fields("t", b'b').len(), 3);
    assert_eq!(world.ids(&query).expect("finds").0, ["1"]);
}

#[test]
fn what_is_too_much_for_an_index_is_found_without_it() {
    let mut world = World::with("t", json!({ "schema": person() }));
    let emails: Vec<String> = (0..1001).map(|number| number.to_string()).collect();
    let large = json!({ "emails": emails }).to_string();
    world.put("large", &large).expect("puts");
    world.put("small", r#"{"emails":["7"]}"#).expect("puts");
    world.put_type(
        "t",
        json!({ "indexes": [{ "name": "by_email", "path": ".emails[*]" }, { "name": "by_age", "path": ".age" }] }),
    );
    let query = RecordQuery { predicate: ".emails[*] === \"7\"", ..RecordQuery::default() };
    assert_eq!(world.ids(&query).expect("finds").0, ["large", "small"]);
    assert_eq!(world.set("large", ".age", "1").expect_err("too many").code, ErrorCode::TooLarge);
    assert_eq!(world.put("more", &large).expect_err("too many").code, ErrorCode::TooLarge);
    world.set("large", ".emails", "[]").expect("fits");
    world.check_rows("t");
    assert_eq!(world.ids(&query).expect("finds").0, ["small"]);
}

#[test]
fn a_sweep_that_another_overtakes_ends() {
    let mut world = World::with("t", json!({ "schema": person() }));
    for number in 0..400 {
        world.put(&number.to_string(), "{}").expect("puts");
    }
    world.switch("t", json!({ "schema": taller() })).expect("loads");
    for _ in 0..5 {
        world.sweep("t");
        while world.run_message(0) {}
        world.now += 3_000;
    }
    let mut steps = 0;
    while world.run_message(60_000) {
        steps += 1;
    }
    assert!(steps < 60, "{steps} steps for 400 records");
    let current = world.registry.record_type("t").expect("a type").schema_id() as u8;
    let records = world.stored.iter().filter(|(place, _)| place.0 == "t");
    assert!(records.clone().count() == 400 && records.into_iter().all(|(_, value)| value.content()[1] == current));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Writes come between any two steps of the sweeps that follow switches of schema and indexes.
    #[test]
    fn writes_between_the_steps_of_a_sweep(
        actions in proptest::collection::vec((0_u8..9, 0_u32..40, 0_i64..9), 1..120), first in 0_u32..300,
    ) {
        let mut world = World::with("t", json!({ "schema": person(), "indexes": [{ "name": "by_name", "path": ".name" }] }));
        let json = |value: i64| json!({ "name": value.to_string(), "age": value, "emails": vec!["m"; value as usize % 3] }).to_string();
        for number in 0..first {
            world.put(&number.to_string(), &json(i64::from(number % 9))).expect("puts");
        }
        let settings = [
            json!({ "schema": taller(), "indexes": [{ "name": "by_age", "path": ".age" }] }),
            json!({ "indexes": [{ "name": "by_age", "path": ".age" }, { "name": "by_email", "path": ".emails[*]" }] }),
            json!({ "schema": shorter(), "indexes": [{ "name": "by_name", "path": ".name" }] }),
        ];
        let mut next = settings.iter().cycle();
        let (mut old, mut switched) = (world.find("t", "_write").expect("a handler"), world.now);
        world.switch("t", next.next().expect("settings").clone()).expect("loads");
        world.sweep("t");
        for (action, id, value) in actions {
            let id = (id * 7).to_string();
            match action {
                0 => { world.put(&id, &json(value)).expect("puts"); }
                1 => { let _ = world.set(&id, ".age", &value.to_string()); }
                2 => { let _ = world.set(&id, ".emails", &json!(vec![value.to_string(); 2]).to_string()); }
                3 => { let _ = world.delete(&id); }
                4 if value == 0 => {
                    (old, switched) = (world.find("t", "_write").expect("a handler"), world.now);
                    world.switch("t", next.next().expect("settings").clone()).expect("loads");
                    world.sweep("t");
                }
                5 if world.now < switched + 10_000 => {
                    // It was begun before the switch.
                    let text = json(value);
                    let write = RecordWrite { change: put(&text), ..RecordWrite::default() };
                    let input = RecordOperation::Write(write).to_bytes();
                    world.transaction(old, id.as_bytes(), &input).expect("puts");
                }
                4 => world.now += 5_000,
                _ => { world.run_message(20_000); }
            }
        }
        world.settle(1_000_000);
        world.check_rows("t");
        let complete = world.shard_fields("t", b'b').len();
        prop_assert_eq!(complete, 3 * world.registry.record_type("t").expect("a type").indexes().count());
    }
}

#[test]
fn an_index_of_a_type_that_was_not_there_before_is_complete_at_once() {
    let mut world = World::with("other", json!({ "schema": person() }));
    let settings = json!({ "schema": person(), "indexes": [{ "name": "by_age", "path": ".age" }] });
    world.switch("t", settings).expect("loads");
    // A writer was quicker than the sweep: nothing of the version before knows this type.
    world.put("a", r#"{"age":1}"#).expect("puts");
    world.sweep("t");
    world.settle(0);
    let query = RecordQuery { predicate: ".age === 1", explain: true, ..RecordQuery::default() };
    assert_eq!(world.query(query).expect("explains")["plan"], "index");
    world.check_rows("t");
}

#[test]
fn how_far_an_index_is_can_be_asked() {
    let mut world = World::with("t", json!({ "schema": person(), "indexes": [{ "name": "by_age", "path": ".age" }] }));
    world.put("a", r#"{"age":1}"#).expect("puts");
    let two = json!([{ "name": "by_age", "path": ".age" }, { "name": "by_name", "path": ".name" }]);
    world.switch("t", json!({ "indexes": two })).expect("loads");
    world.sweep("t");
    let of = |world: &mut World| -> Value {
        let reply = world.run("t", b"0", &RecordOperation::Indexes).expect("answers");
        serde_json::from_slice(&reply.body).expect("JSON")
    };
    let far = |complete: u16| json!({ "complete_shards": complete, "shards": 3 });
    assert_eq!(of(&mut world), json!({ "": far(0), "by_age": far(3), "by_name": far(0) }));
    world.settle(60_000);
    assert_eq!(of(&mut world), json!({ "": far(3), "by_age": far(3), "by_name": far(3) }));
    // After a new schema, records are written again, whatever indexes there are.
    let mut wider = person();
    wider["fields"].as_array_mut().expect("fields").push(json!({ "name": "new", "type": "int", "default": 7 }));
    world.switch("t", json!({ "schema": wider })).expect("loads");
    assert_eq!(of(&mut world), json!({ "": far(0), "by_age": far(3), "by_name": far(3) }));
    world.sweep("t");
    world.settle(60_000);
    assert_eq!(of(&mut world)[""], far(3));
}

#[test]
fn only_the_run_that_is_named_is_hastened() {
    let index = |name: &str, path: &str| json!({ "indexes": [{ "name": name, "path": path }] });
    let mut world = World::with("t", json!({ "schema": person() }));
    for number in 0..30 {
        world.put(&number.to_string(), r#"{"age":1}"#).expect("puts");
    }
    let query = RecordQuery { predicate: ".age === 1", explain: true, ..RecordQuery::default() };
    world.switch("t", index("by_age", ".age")).expect("loads");
    assert_eq!(world.hasten("t", None), ["null"; 3], "none has begun");
    world.sweep("t");
    world.settle(0);
    let first = world.hasten("t", None);
    // Other settings, and the same again: what is known of the first time says nothing of the second one.
    for settings in [index("by_name", ".name"), index("by_age", ".age")] {
        world.switch("t", settings).expect("loads");
        world.sweep("t");
        world.settle(0);
    }
    let second = world.hasten("t", None);
    assert_ne!(first, second);
    for (runs, plan) in [(first, "scan"), (second, "index")] {
        world.hasten("t", Some(&runs));
        world.settle(0);
        assert_eq!(world.query(query.clone()).expect("explains")["plan"], plan);
    }
    assert_eq!(world.hasten("t", None), ["true"; 3]);
    world.settle(60_000);
    assert!(world.messages.is_empty(), "the one that waited has ended");
    world.check_rows("t");
}

#[test]
fn a_sweep_that_knows_to_be_alone_does_not_wait() {
    for is_under_way in [true, false] {
        let mut world =
            World::with("t", json!({ "schema": person(), "indexes": [{ "name": "old", "path": ".name" }] }));
        for number in 0..300 {
            world.put(&number.to_string(), r#"{"age":1}"#).expect("puts");
        }
        world.switch("t", json!({ "indexes": [{ "name": "by_age", "path": ".age" }] })).expect("loads");
        let query = RecordQuery { predicate: ".age === 1", explain: true, ..RecordQuery::default() };
        if is_under_way {
            world.sweep("t");
            world.settle(0);
            assert_eq!(world.query(query.clone()).expect("explains")["plan"], "scan");
        }
        world.sweep_alone("t");
        world.settle(0);
        assert_eq!(world.query(query).expect("explains")["plan"], "index");
        world.check_rows("t");
        world.settle(60_000);
        assert!(world.messages.is_empty(), "the one that waited has ended");
        world.check_rows("t");
    }
}
