//! Deleted types: what was under way for them ends, and the next type of the name starts as it should.

use crate::common::{World, app_of, person, put};
use millrace_api::{RecordOperation, RecordWrite, Ttl};
use millrace_base::{ErrorCode, Name};
use millrace_func::Engine;
use serde_json::{Value, json};

fn put_for(world: &mut World, id: &str, ttl_ms: u64) {
    let write =
        RecordWrite { change: put(r#"{"age":1}"#), ttl: Some(Ttl::Milliseconds(ttl_ms)), ..RecordWrite::default() };
    world.write(id, write).expect("puts");
}

fn records(world: &World) -> Vec<String> {
    let keys = world.stored.keys().filter(|place| place.0 == "t");
    keys.map(|place| String::from_utf8(place.1.clone()).expect("UTF-8")).collect()
}

#[test]
fn what_was_to_come_of_a_type_that_is_gone_is_dropped_and_nothing_else() {
    let trigger = json!([{ "name": "any", "path": ".", "when": "after", "source": "count" }]);
    let mut world = World::with("t", json!({ "schema": person(), "triggers": trigger }));
    let drops = |world: &World, service: &str, handler: &str| world.engine.drops(world.program, service, handler);
    assert!(!drops(&world, "t", "_expire") && !drops(&world, "t--shard", "_sweep"), "they are there");
    put_for(&mut world, "a", 1000);
    world.switch("t", json!({ "indexes": [{ "name": "by_age", "path": ".age" }] })).expect("loads");
    world.sweep("t");
    world.delete_type("t");
    world.settle(60_000);
    assert!(world.messages.is_empty() && world.lost.is_empty(), "{:?}", world.lost);
    for (service, handler) in [("t", "_sweep"), ("t--shard", "_expire"), ("t", "_write")] {
        assert!(!drops(&world, service, handler), "{service}/{handler}");
    }
    assert!(
        !world.engine.drops(millrace_func::Program(u32::MAX), "t", "_expire"),
        "other apps have handlers of that name"
    );
}

#[test]
fn runs_of_triggers_that_are_gone_are_dropped_and_others_are_not() {
    let any = |name: &str| json!({ "name": name, "path": ".", "when": "after", "source": "count" });
    let mut world = World::with("t", json!({ "schema": person(), "triggers": [any("goes"), any("stays")] }));
    world.put("a", r#"{"age":1}"#).expect("puts");
    world.switch("t", json!({ "triggers": [any("stays")] })).expect("loads");
    world.settle(10);
    assert!(world.messages.is_empty() && world.lost.is_empty(), "{:?}", world.lost);
    assert_eq!(world.engine.inner().runs.borrow().len(), 1);
    assert!(world.engine.drops(world.program, "t--triggers", "_goes"));
    assert!(!world.engine.drops(world.program, "t--triggers", "_stays"));
}

#[test]
fn what_expired_while_there_was_no_type_goes_when_there_is_one_again() {
    for extra in [
        json!({}),
        json!({ "changes": { "retention_ms": 1_000_000 } }),
        json!({ "changes": { "retention_ms": 1_000_000 }, "indexes": [{ "name": "by_age", "path": ".age" }] }),
    ] {
        let mut settings = json!({ "schema": person() });
        settings.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        let mut world = World::with("t", settings.clone());
        for number in 0..150 {
            put_for(&mut world, &format!("gone{number}"), 1000);
        }
        put_for(&mut world, "later", 1000);
        put_for(&mut world, "later", 100_000);
        world.put("kept", r#"{"age":1}"#).expect("puts");
        world.delete_type("t");
        world.settle(2_000);
        world.now += 2_000;
        assert!(world.lost.is_empty() && world.messages.is_empty(), "all timers were dropped");
        world.switch("t", settings).expect("loads");
        world.sweep("t");
        world.settle(20_000);
        assert_eq!(records(&world), ["kept", "later"]);
        world.check_rows("t");
        if extra["changes"].is_object() {
            let (changes, _) = world.changes("", 1000).expect("changes");
            let expired = changes.iter().filter(|change| change["kind"] == "expire").count();
            assert_eq!((expired, changes.len()), (150, 150));
        }
        world.settle(200_000);
        assert_eq!(records(&world), ["kept"], "it has a timer again");
        world.check_rows("t");
    }
}

#[test]
fn a_sweep_takes_what_has_expired_in_steps_that_one_transaction_can_take() {
    let sources: Vec<Value> = (0..20)
        .map(|number| json!({ "name": format!("t{number}"), "path": ".", "when": "after", "source": "" }))
        .collect();
    let settings = json!({ "schema": person(), "triggers": sources });
    let mut world = World::with("t", settings.clone());
    for number in 0..300 {
        put_for(&mut world, &number.to_string(), 1000);
    }
    world.delete_type("t");
    world.settle(2_000);
    world.now += 2_000;
    world.switch("t", settings).expect("loads");
    world.sweep("t");
    let mut most = 0;
    loop {
        let before = world.messages.len();
        if !world.run_message(60_000) {
            break;
        }
        most = most.max((world.messages.len() + 1).saturating_sub(before));
    }
    assert!(records(&world).is_empty());
    assert!((200..500).contains(&most), "{most} messages of one transaction");
}

#[test]
fn a_record_that_cannot_be_taken_away_holds_up_no_sweep() {
    let any = json!([{ "name": "any", "path": ".", "when": "after", "source": "" }]);
    let mut world = World::with("t", json!({ "schema": person() }));
    // Six times as long in JSON: more than a trigger's input may have.
    let name = "\u{1}".repeat(900_000);
    for id in ["large", "small"] {
        let value = json!({ "name": if id == "large" { &name } else { "" } }).to_string();
        let write = RecordWrite { change: put(&value), ttl: Some(Ttl::Milliseconds(1000)), ..RecordWrite::default() };
        world.write(id, write).expect("puts");
    }
    world.delete_type("t");
    world.settle(2_000);
    world.now += 2_000;
    let index = json!([{ "name": "by_age", "path": ".age" }]);
    world.put_type("t", json!({ "schema": person(), "triggers": any, "indexes": index }));
    assert_eq!(world.shard_fields("t", b'b').len(), 3, "the index is complete in all shards");
    assert!(!records(&world).contains(&"small".to_owned()));
}

#[test]
fn triggers_are_loaded_once_for_all_programs_that_have_the_same() {
    let trigger = |source: &str| json!([{ "name": "any", "path": ".", "when": "after", "source": source }]);
    let mut world = World::with("t", json!({ "schema": person(), "triggers": trigger("count") }));
    let loads = |world: &World| *world.engine.inner().loads.borrow();
    let (first, loaded) = (world.program, loads(&world));
    assert_eq!(world.engine.inner().loaded(), [first], "under the number of the program that brought them");
    world.switch("t", json!({ "ttl_ms": 1_000_000 })).expect("loads");
    world
        .switch("other", json!({ "schema": person(), "indexes": [{ "name": "by_age", "path": ".age" }] }))
        .expect("loads");
    assert_eq!((loads(&world), world.engine.inner().loaded()), (loaded, vec![first]));
    world.engine.unload(first);
    assert!(world.engine.inner().unloaded.borrow().is_empty(), "others use it");
    world.put("1", r#"{"age":1}"#).expect("puts");
    world.settle(10);
    assert_eq!(world.engine.inner().runs.borrow().len(), 1);
    world.switch("t", json!({ "triggers": trigger("send") })).expect("loads");
    assert_eq!(loads(&world), loaded + 1);
    assert_eq!(world.engine.inner().loaded(), [first, world.program]);
    world.engine.unload(millrace_func::Program(first.0 + 1));
    assert!(world.engine.inner().unloaded.borrow().is_empty(), "one still uses it");
    world.engine.unload(millrace_func::Program(first.0 + 2));
    assert_eq!(*world.engine.inner().unloaded.borrow(), [first]);
    // The earlier triggers are no longer loaded.
    world.switch("t", json!({ "triggers": trigger("count") })).expect("loads");
    assert_eq!(loads(&world), loaded + 2);
}

#[test]
fn no_older_program_writes_records_of_a_type_that_is_being_deleted() {
    let mut world = World::with("t", json!({ "schema": person() }));
    world.put_type("other", json!({ "schema": person() }));
    let (older, types) = (world.program, world.registry.clone());
    let write = |world: &mut World| world.put("1", r#"{"age":1}"#).map(|_| ()).map_err(|error| error.code);
    let names = |names: Vec<Name>| names.iter().map(Name::to_string).collect::<Vec<_>>();
    let load = |world: &World, force: bool| {
        let mut registry = types.clone();
        registry.delete_type("t", force, force).expect("deleted");
        world.load(&app_of(&registry)).expect("loads")
    };
    // By force it is deleted, whatever records there are.
    let by_force = load(&world, true);
    assert!(world.engine.close(by_force).is_empty());
    world.engine.unload(by_force);
    assert_eq!(write(&mut world), Ok(()));
    let refused = load(&world, false);
    assert_eq!(names(world.engine.close(refused)), ["t"]);
    assert_eq!(write(&mut world), Err(ErrorCode::Overloaded));
    assert!(world.get("1").is_ok(), "it is read as ever");
    let other = RecordOperation::Write(RecordWrite { change: put("{}"), ..RecordWrite::default() });
    assert!(world.run("other", b"1", &other).is_ok());
    // There was a record, so it stays.
    world.engine.reopen(refused);
    world.engine.unload(refused);
    assert_eq!(write(&mut world), Ok(()));
    // It is deleted, and messages still on their way in the version before come too late for good.
    let next = load(&world, false);
    world.engine.close(next);
    // A later type of its name is another type, also while older activations still run.
    world.switch("t", json!({ "ttl_ms": 1_000_000 })).expect("loads");
    assert_eq!(write(&mut world), Ok(()));
    world.program = older;
    assert_eq!(write(&mut world), Err(ErrorCode::Overloaded));
}
