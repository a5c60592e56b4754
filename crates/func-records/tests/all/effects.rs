//! The effects of writes: changes, triggers, expiry.

use crate::common;

use crate::common::{World, person, put, text};
use millrace_api::{Form, RecordOperation, RecordWrite, Ttl};
use millrace_base::{ErrorCode, limits};
use serde_json::{Value, json};

fn with(settings: Value) -> World {
    let mut all = json!({ "schema": person(), "create": "touch" });
    all.as_object_mut().expect("an object").extend(settings.as_object().expect("an object").clone());
    World::with("t", all)
}

fn ttl(json: &str, ttl: Ttl) -> RecordWrite<'_> {
    RecordWrite { change: put(json), ttl: Some(ttl), ..RecordWrite::default() }
}

#[test]
fn changes_come_in_order_and_once() {
    let mut world = with(json!({ "changes": { "retention_ms": 1_000_000 } }));
    let (none, start) = world.changes("now", 10).expect("changes");
    assert!(none.is_empty());
    for id in ["a", "b", "c", "d"] {
        world.put(id, r#"{"age":1}"#).expect("puts");
        world.set(id, ".age", "2").expect("updates");
        world.set(id, ".age", "2").expect("changes nothing");
        world.delete(id).expect("deletes");
    }
    world.check_changes();
    let (mut all, mut cursor) = (Vec::new(), start.clone());
    loop {
        let (changes, next) = world.changes(&cursor, 1).expect("changes");
        if changes.is_empty() {
            break;
        }
        all.extend(changes);
        cursor = next;
    }
    for id in ["a", "b", "c", "d"] {
        let kinds: Vec<&Value> = all.iter().filter(|change| change["id"] == id).map(|change| &change["kind"]).collect();
        assert_eq!(kinds, ["create", "update", "delete"]);
    }
    let update = all.iter().find(|change| change["kind"] == "update").expect("an update");
    assert_eq!(update["changes"], json!([{ "path": ".age", "kind": "set", "value": 2 }]));
    assert_eq!(update["record"]["age"], 2);
    assert!(update["sequence"].is_u64() && update["at_ms"].is_u64() && update["etag"].is_string());
    let (same, _) = world.changes(&start, 100).expect("changes");
    assert_eq!(same.len(), 12);
    for (index, change) in same.iter().enumerate() {
        let behind = change["cursor"].as_str().expect("the cursor behind it");
        let (rest, _) = world.changes(behind, 100).expect("changes");
        assert_eq!(rest, same[index + 1..], "a reader may stop at any change");
    }
    assert!(world.changes(&cursor, 0).expect("changes").0.is_empty());
    for cursor in ["x", "later", &start[1..]] {
        assert_eq!(world.changes(cursor, 1).expect_err("no cursor").code, ErrorCode::BadRequest);
    }
}

#[test]
fn large_changes_are_written_read_and_let_go_however_many_there_are() {
    let schema = json!({ "type": "record", "name": "R", "fields": [{ "name": "text", "type": "string" }] });
    let mut world = World::with("t", json!({ "schema": schema, "changes": {} }));
    for number in 0..100 {
        let json = json!({ "text": number.to_string().repeat(100_000) }).to_string();
        world.put("a", &json).expect("however much of its changes is kept");
    }
    let (mut read, mut cursor) = (0, String::new());
    loop {
        let (changes, next) = world.changes(&cursor, 1000).expect("a page is as long as it may be");
        if changes.is_empty() {
            break;
        }
        (read, cursor) = (read + changes.len(), next);
    }
    assert_eq!(read, 100);
    world.put_type("t", json!({ "schema": schema, "changes": null }));
    world.settle(1_000_000);
    assert!(world.shard_fields("t", b'c').is_empty(), "a sweep takes them away");
}

#[test]
fn old_changes_go_and_a_reader_who_missed_them_hears_of_it() {
    let mut world = with(json!({ "changes": { "retention_ms": 10_000, "retention_count": 40 } }));
    let (_, start) = world.changes("now", 1).expect("changes");
    for number in 1..=1000 {
        world.set("a", ".age", &number.to_string()).expect("updates");
    }
    let kept = world.shard_fields("t", b'c').len();
    assert!((40..=40 + 16).contains(&kept), "{kept} changes are kept");
    let error = world.changes(&start, 10).expect_err("lost");
    assert_eq!(error.code, ErrorCode::BadRequest);
    assert!(error.message.contains("not kept any more") && error.message.contains("\"now\""), "{error}");
    let (oldest, _) = world.changes("", 1).expect("changes");
    assert_eq!(oldest[0]["sequence"], 1000 - kept as u64 + 1);
    let (_, cursor) = world.changes("", 1000).expect("changes");
    world.now += 20_000;
    for number in 1..=32 {
        world.set("a", ".age", &number.to_string()).expect("updates");
    }
    let kept = world.shard_fields("t", b'c').len();
    assert!(kept <= 32, "{kept} changes are kept");
    assert_eq!(world.changes(&cursor, 1000).map(|(changes, _)| changes.len()), Ok(32), "none of these is lost");
    let error = with(json!({})).changes("", 1).expect_err("keeps none");
    assert!(error.message.contains("keeps no changes"), "{error}");
}

#[test]
fn a_large_record_s_change_is_kept_without_it() {
    let mut world = with(json!({ "changes": { "retention_ms": 10_000 } }));
    let large = format!(r#"{{"name":"{}"}}"#, "\\u0001".repeat(900_000));
    world.put("a", &large).expect("puts");
    let (changes, _) = world.changes("", 10).expect("changes");
    assert!(changes[0].get("record").is_none() && changes[0]["etag"].is_string());
}

fn trigger(name: &str, path: &str, when: &str, source: &str) -> Value {
    json!({ "name": name, "path": path, "when": when, "source": source })
}

#[test]
fn triggers_fire_for_their_path() {
    let mut world = with(json!({ "triggers": [
        trigger("age", ".age", "before", "nothing"),
        trigger("any", ".", "after", "nothing"),
        trigger("mails", ".emails[*]", "after", "export default nothing"),
    ] }));
    let runs = |world: &mut World| -> Vec<(String, Value)> {
        world.settle(0);
        let runs = std::mem::take(&mut *world.engine.inner().runs.borrow_mut());
        runs.into_iter().map(|(path, input)| (path, serde_json::from_str(&input).expect("JSON"))).collect()
    };
    world.put("1", r#"{"age":1}"#).expect("puts");
    let first = runs(&mut world);
    let names: Vec<&str> = first.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(names, ["triggers/t/age.js", "triggers/t/any.js"]);
    assert_eq!(first[0].1["before"], Value::Null);
    assert_eq!(first[0].1["record"]["age"], 1);
    assert_eq!(first[0].1["changes"][0]["kind"], "insert");
    world.set("1", ".name", "\"x\"").expect("updates");
    let second = runs(&mut world);
    assert_eq!(second.len(), 1);
    assert_eq!(second[0].1["changes"], json!([{ "path": ".name", "kind": "set", "value": "x" }]));
    assert_eq!(second[0].1["before"]["name"], "");
    world.set("1", ".name", "\"x\"").expect("changes nothing");
    assert!(runs(&mut world).is_empty());
    world.set("1", ".emails", "[\"a\"]").expect("updates");
    let paths: Vec<String> = runs(&mut world).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["triggers/t/any.js", "triggers/t/mails.js"]);
    world.delete("1").expect("deletes");
    let last = runs(&mut world);
    assert_eq!(last.len(), 3);
    assert_eq!((&last[0].1["record"], &last[0].1["before"]["age"]), (&Value::Null, &json!(1)));
}

#[test]
fn a_trigger_may_refuse_and_then_nothing_has_happened() {
    let mut world = with(json!({
        "triggers": [trigger("guard", ".age", "before", "veto too old"), trigger("any", ".", "after", "count")],
        "changes": { "retention_ms": 1000 },
        "indexes": [{ "name": "by_age", "path": ".age" }],
    }));
    let stored = world.stored.clone();
    let error = world.put("1", r#"{"age":1}"#).expect_err("vetoed");
    assert_eq!((error.code, error.message.as_str()), (ErrorCode::Aborted, "too old"));
    assert!(world.stored == stored && world.messages.is_empty());
    // The path `.age` of an untouched record is 0 before and after.
    world.set("1", ".name", "\"x\"").expect_err("the record is new, and so is its age");
}

#[test]
fn a_trigger_may_write_the_record_it_is_about() {
    let mut world = with(json!({
        "triggers": [trigger("names", ".age", "before", "set .name \"by trigger\"\ncount")],
        "changes": { "retention_ms": 1_000_000 },
        "indexes": [{ "name": "by_name", "path": ".name" }, { "name": "by_age", "path": ".age" }],
    }));
    let write = RecordWrite { change: put(r#"{"age":1}"#), answer: Some(Form::Json), ..RecordWrite::default() };
    let reply = world.write("1", write).expect("puts");
    let tag = reply.tag;
    assert!(text(reply).contains(r#""name":"by trigger","age":1"#));
    assert_eq!(world.run("t", b"1", &RecordOperation::Get { form: Form::Json }).expect("reads").tag, tag);
    world.check_rows("t");
    world.check_changes();
}

#[test]
fn messages_of_triggers_reach_triggers() {
    let mut world = with(json!({ "triggers": [trigger("echo", ".", "after", "send\ncount")] }));
    world.put("1", "{}").expect("puts");
    world.settle(10);
    assert_eq!(world.engine.inner().runs.borrow().len(), 2);
    assert!(world.find("t--triggers", "_echo").is_some());
    assert!(world.find("t--triggers", "echo").is_none(), "nobody outside may call it");
}

#[test]
fn errors_in_triggers_name_the_place() {
    let mut world = World::default();
    let broken = |source: &str| json!({ "schema": person(), "triggers": [trigger("hook", ".", "before", source)] });
    let error = world.switch("t", broken("good();\n  broken here")).expect_err("refused");
    assert_eq!(error.code, ErrorCode::AppRefused);
    assert!(error.message.starts_with("trigger \"hook\" of the type \"t\": triggers/t/hook.js:1:"), "{error}");
    let error = world.switch("t", broken("broken")).expect_err("refused");
    assert!(error.message.contains("triggers/t/hook.js:1:1: unexpected"), "{error}");
    world.switch("t", broken("throw up")).expect("loads");
    let error = world.put("1", "{}").expect_err("thrown");
    assert_eq!(error.code, ErrorCode::FunctionFailed);
    assert!(error.message.ends_with("up at triggers/t/hook.js:1:1"), "{error}");
}

#[test]
fn an_expired_record_is_absent_from_that_moment() {
    let mut world = World::with(
        "t",
        json!({ "schema": person(), "changes": { "retention_ms": 1_000_000 },
        "indexes": [{ "name": "by_age", "path": ".age" }] }),
    );
    let too_long = ttl(r#"{"age":1}"#, Ttl::Milliseconds(limits::TTL_MS + 1));
    assert_eq!(world.write("1", too_long).expect_err("too long").code, ErrorCode::BadRequest);
    let reply = world.write("1", ttl(r#"{"age":1}"#, Ttl::Milliseconds(1000))).expect("puts");
    assert_eq!(reply.expires_ms, Some(world.now + 1000));
    world.now += 999;
    assert!(world.get("1").is_ok());
    world.now += 1;
    assert_eq!(world.get("1").expect_err("expired").code, ErrorCode::UnknownRecord);
    assert!(world.ids(&millrace_api::RecordQuery::default()).expect("finds").0.is_empty());
    assert_eq!(world.shard_fields("t", b'i').len(), 1, "the timer has not come");
    world.settle(0);
    assert!(world.shard_fields("t", b'i').is_empty() && world.records("t").is_empty());
    world.check_changes();
    let (changes, _) = world.changes("", 10).expect("changes");
    assert_eq!(changes[1]["kind"], "expire");
}

#[test]
fn what_is_put_in_the_place_of_an_expired_record_is_new() {
    let mut world = World::with(
        "t",
        json!({ "schema": person(), "changes": { "retention_ms": 1_000_000 },
        "indexes": [{ "name": "by_age", "path": ".age" }] }),
    );
    world.write("1", ttl(r#"{"age":1}"#, Ttl::Milliseconds(1000))).expect("puts");
    world.now += 5000;
    assert!(world.put("1", r#"{"age":2}"#).expect("puts").created);
    world.check_rows("t");
    world.check_changes();
    world.settle(10_000);
    assert!(world.get("1").is_ok(), "the timer of the one before does not concern it");
    world.check_changes();
    let kinds: Vec<Value> =
        world.changes("", 10).expect("changes").0.into_iter().map(|change| change["kind"].clone()).collect();
    assert_eq!(kinds, ["create", "expire", "create"]);
}

#[test]
fn triggers_see_an_expiry_that_a_write_has_come_before_the_timer_of() {
    let mut world = with(json!({ "triggers": [
        trigger("any", ".", "after", "nothing"),
        trigger("mails", ".emails[*]", "after", "nothing"),
        trigger("refuses", ".", "before", "nothing"),
    ] }));
    world.write("1", ttl(r#"{"age":1}"#, Ttl::Milliseconds(1000))).expect("puts");
    world.settle(0);
    world.engine.inner().runs.borrow_mut().clear();
    world.now += 5000;
    assert!(world.put("1", r#"{"age":2}"#).expect("puts").created);
    world.settle(10_000);
    let runs = std::mem::take(&mut *world.engine.inner().runs.borrow_mut());
    let ages: Vec<(&str, Value, Value)> = runs
        .iter()
        .map(|(path, input)| {
            let input: Value = serde_json::from_str(input).expect("JSON");
            (path.as_str(), input["before"]["age"].clone(), input["record"]["age"].clone())
        })
        .collect();
    let (any, refuses) = ("triggers/t/any.js", "triggers/t/refuses.js");
    assert_eq!(
        ages,
        [(refuses, Value::Null, json!(2)), (any, json!(1), Value::Null), (any, Value::Null, json!(2))],
        "nobody refuses an expiry, and what does not concern a path does not run its trigger"
    );
}

#[test]
fn a_time_to_live_that_is_put_off_takes_one_more_message() {
    let mut world = with(json!({}));
    world.write("1", ttl("{}", Ttl::Milliseconds(1000))).expect("puts");
    for _ in 0..50 {
        world.now += 100;
        world.write("1", ttl("{}", Ttl::Milliseconds(1000))).expect("puts");
        assert_eq!(world.messages.len(), 1);
        world.settle(0);
    }
    world.write("1", ttl("{}", Ttl::Milliseconds(10))).expect("puts");
    assert_eq!(world.messages.len(), 2, "an earlier one needs its own");
    world.write("1", ttl("{}", Ttl::Forever)).expect("puts");
    world.settle(100_000);
    assert!(world.messages.is_empty());
    assert_eq!(world.records("t").len(), 1);
    world.write("1", ttl("{}", Ttl::Milliseconds(10))).expect("puts");
    world.settle(100);
    assert!(world.records("t").is_empty());
}

#[test]
fn the_type_s_time_to_live_begins_anew_with_each_write() {
    let mut world = with(json!({ "ttl_ms": 1000 }));
    world.put("idle", "{}").expect("puts");
    world.write("said", ttl("{}", Ttl::Milliseconds(5000))).expect("puts");
    world.write("kept", ttl("{}", Ttl::Forever)).expect("puts");
    let start = world.now;
    world.now += 900;
    for id in ["idle", "said", "kept"] {
        world.set(id, ".age", "1").expect("updates");
    }
    let mut expires =
        |id: &str| world.run("t", id.as_bytes(), &RecordOperation::Get { form: Form::Json }).expect("reads").expires_ms;
    assert_eq!([expires("idle"), expires("said"), expires("kept")], [Some(start + 1900), Some(start + 5000), None]);
    world.settle(100_000);
    assert_eq!(world.records("t").keys().collect::<Vec<_>>(), [b"kept"]);
}

#[test]
fn triggers_are_unloaded_with_the_last_program_that_has_them() {
    use millrace_func::Engine;
    let mut world = with(json!({ "triggers": [trigger("any", ".", "after", "count")] }));
    assert_eq!(world.engine.inner().loaded(), [world.program]);
    world.engine.unload(world.program);
    assert_eq!(*world.engine.inner().unloaded.borrow(), [world.program]);
    assert!(world.engine.services(world.program).is_empty());
    // The wrapped engine knows the same number: no call of records goes there.
    assert_eq!(world.put("1", "{}").expect_err("unloaded").code, ErrorCode::Internal);
    assert_eq!(world.load(&common::app_of(&world.registry)), Ok(millrace_func::Program(world.program.0 + 1)));
}

fn lost(world: &mut World, cursor: &str) -> String {
    let error = world.changes(cursor, 10).expect_err("not all changes since are there");
    assert_eq!(error.code, ErrorCode::BadRequest);
    assert!(error.message.contains("\"now\""), "{error}");
    error.message
}

#[test]
fn no_cursor_leads_over_a_time_without_changes() {
    let kept = json!({ "changes": { "retention_ms": 1_000_000 } });
    let off = json!({ "changes": null });
    for is_swept in [true, false] {
        let mut world = with(kept.clone());
        world.put("a", r#"{"age":1}"#).expect("puts");
        let (_, first) = world.changes("now", 10).expect("changes");
        let switch = |world: &mut World, settings: &Value| {
            if is_swept {
                world.put_type("t", settings.clone());
            } else {
                world.switch("t", settings.clone()).expect("loads");
            }
        };
        switch(&mut world, &off);
        world.put("b", r#"{"age":1}"#).expect("puts, and nobody is told");
        switch(&mut world, &kept);
        lost(&mut world, &first);
        // The rest of the earlier stream does not belong to this one.
        let (none, second) = world.changes("", 10).expect("changes");
        assert!(none.is_empty(), "{none:?}");
        assert_eq!(world.changes("now", 10).expect("changes").1, second);
        world.put("c", r#"{"age":1}"#).expect("puts");
        let (all, _) = world.changes("", 10).expect("changes");
        assert_eq!(all.iter().map(|change| &change["id"]).collect::<Vec<_>>(), ["c"]);
        assert_eq!(world.changes(&second, 10).expect("changes").0, all);
        let behind = all[0]["cursor"].as_str().expect("a cursor");
        assert!(world.changes(behind, 10).expect("changes").0.is_empty());
        lost(&mut world, &first);
        // Other settings leave the stream as it is.
        switch(&mut world, &json!({ "changes": { "retention_ms": 2_000_000 }, "ttl_ms": 1_000_000 }));
        assert_eq!(world.changes(&second, 10).expect("changes").0, all);
    }
}

#[test]
fn no_cursor_leads_from_a_deleted_type_to_one_of_its_name() {
    let settings = json!({ "schema": person(), "changes": { "retention_ms": 1_000_000 } });
    let mut world = World::with("t", settings.clone());
    world.put("a", r#"{"age":1}"#).expect("puts");
    let (_, first) = world.changes("now", 10).expect("changes");
    world.registry.delete_type("t", true, true).expect("deleted");
    world.put_type("t", settings);
    lost(&mut world, &first);
    assert!(world.changes("", 10).expect("changes").0.is_empty());
    assert!(world.shard_fields("t", b'c').is_empty(), "they were swept away");
}

#[test]
fn changes_that_are_kept_no_more_are_swept_away_without_a_look_at_the_records() {
    let mut world = with(json!({ "changes": { "retention_ms": 1_000_000 } }));
    for number in 0..50 {
        world.put(&number.to_string(), r#"{"age":1}"#).expect("puts");
    }
    assert_eq!(world.shard_fields("t", b'c').len(), 50);
    world.switch("t", json!({ "changes": null })).expect("loads");
    world.sweep("t");
    let mut calls = 0;
    while world.run_message(60_000) {
        calls += world.calls;
    }
    assert!(world.shard_fields("t", b'c').is_empty());
    assert!(calls < 20, "{calls} calls");
}

#[test]
fn a_trigger_that_leads_to_itself_is_stopped() {
    let mut world = with(json!({ "triggers": [trigger("again", ".age", "after", "add .age 1")] }));
    world.set("1", ".age", "1").expect("updates");
    let mut runs = 0;
    let error = loop {
        let message = world.messages.pop().expect("each run leads to the next");
        let id = world.find(&message.service, &message.handler).expect("the trigger");
        if let Err(error) = world.transaction(id, &message.key, &message.input) {
            break error;
        }
        runs += 1;
        let input: Value = serde_json::from_slice(&message.input).expect("JSON");
        assert_eq!(input["depth"], runs);
        assert!(runs < 100, "nothing stops it");
    };
    assert_eq!((error.code, runs), (ErrorCode::DepthLimit, limits::TRIGGER_DEPTH.into()));
    assert!(error.message.contains("\"again\"") && error.message.contains("\"t\""), "{error}");
    assert!(world.get("1").expect("reads").contains("\"age\":17"), "all but the last have taken effect");
    // Another client's write begins anew.
    world.set("1", ".age", "5").expect("updates");
    let input: Value = serde_json::from_slice(&world.messages[0].input).expect("JSON");
    assert_eq!(input["depth"], 1);
}

#[test]
fn what_has_to_be_swept_for_is_told_from_other_changes() {
    use millrace_func::Engine;
    let mut world = with(json!({}));
    let mut is_other = |settings: Value| {
        let before = world.engine.sweeps(world.program);
        world.switch("t", settings).expect("loads");
        let after = world.engine.sweeps(world.program);
        assert_eq!((after.len(), after[0].0.as_str()), (1, "t--shard"));
        before != after
    };
    assert!(is_other(json!({ "indexes": [{ "name": "by_age", "path": ".age" }] })));
    assert!(!is_other(json!({ "triggers": [trigger("any", ".", "after", "count")] })));
    assert!(!is_other(json!({ "ttl_ms": 5, "changes": { "retention_ms": 5 } })));
    assert!(!is_other(json!({ "changes": { "retention_ms": 6 } })));
    assert!(is_other(json!({ "changes": null })), "what is left of them goes");
    assert!(is_other(json!({ "indexes": [] })));
    assert!(world.engine.sweeps(millrace_func::Program(0)).is_empty(), "the wrapped engine's programs have none");
}

#[test]
fn a_users_app_of_the_built_in_name_is_told_from_a_damaged_one() {
    let world = World::default();
    let mut app = common::app_of(&world.registry);
    app.files = [("counter.ts".to_owned(), b"export default 1".to_vec())].into();
    let error = world.load(&app).expect_err("refused");
    assert_eq!(error.code, ErrorCode::AppRefused);
    assert!(error.message.contains("a user's own") && error.message.contains("another name"), "{error}");
}
