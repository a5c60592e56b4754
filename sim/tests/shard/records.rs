//! Operations on records: calls of the built-in app inside a transaction of another one.

use millrace_shard::Input;
use millrace_shard::question::HasEntities;
use millrace_shard::{Reply, Token};

use crate::*;

/// A rig whose apps may use records of the type `note`, and none of the type `counter`.
fn rig(shard_count: u16) -> Rig {
    let mut rig = Rig::new(shard_count);
    rig.add_records();
    rig
}

fn add() -> Script {
    s().add("n", 1)
}

#[test]
fn they_join_the_transaction() {
    let mut rig = rig(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    for id in [&here, &there] {
        let token = rig.run("note", &here, add().record("write", "note", id, add()));
        let failed = rig.run("note", &here, add().record("write", "note", id, add()).fail("no"));
        let read = rig.read("note", &here, s().record("read", "note", id, s().get("n")));
        rig.run_to_rest();
        assert_eq!((rig.value(token), rig.value(read)), (json!(1), json!(1)));
        assert_eq!(rig.error(failed), ErrorCode::FunctionFailed);
        assert_eq!(rig.record_field("note", id, "n"), json!(1), "the one that failed took nothing");
    }
    assert_eq!(rig.field("note", &here, "n"), json!(2));
    assert_eq!(rig.field("note", &there, "n"), Json::Null, "a record is no entity of the caller's app");
    rig.assert_at_rest();
}

#[test]
fn only_what_the_app_may_use_and_what_there_is() {
    let mut rig = rig(1);
    let mut code = |what: &str, type_name: &str| {
        let token = rig.run("note", "a", s().record(what, type_name, "7", s().get("n")));
        rig.error(token)
    };
    assert_eq!(code("read", "counter"), ErrorCode::Forbidden);
    assert_eq!(code("find", "counter"), ErrorCode::Forbidden);
    assert_eq!(code("read", "missing"), ErrorCode::UnknownType);
    assert_eq!(code("read", "note--shard"), ErrorCode::Forbidden);
    let written = rig.read("note", "a", s().record("write", "note", "7", add()));
    assert_eq!(rig.error(written), ErrorCode::FunctionFailed, "a query writes nothing");
    let empty = rig.run("note", "a", s().record("read", "note", "", s().get("n")));
    assert_eq!(rig.error(empty), ErrorCode::BadRequest);
    let mut without = Rig::new(1);
    let token = without.run("note", "a", s().record("read", "note", "7", s().get("n")));
    assert_eq!(without.error(token), ErrorCode::UnknownType, "no records at all");
}

#[test]
fn what_runs_there_is_of_the_built_in_app() {
    let mut rig = rig(1);
    rig.run("note", "own", add());
    let inner = s().call(run("counter", "c", add())).send(run("counter", "c", add()), 0).keys(1, "", None, 10);
    let token = rig.run("note", "a", s().record("write", "note", "7", inner));
    rig.run_to_rest();
    assert_eq!(rig.value(token), json!(["c"]), "its keys are those of its own app");
    assert_eq!(rig.record_field("counter", "c", "n"), json!(2), "so are its calls and messages");
    assert_eq!(rig.field("counter", "c", "n"), Json::Null);
    // A trigger that reaches other records needs nobody's leave.
    let inner = s().record("write", "account", "x", add());
    let token = rig.run("note", "a", s().record("write", "note", "7", inner));
    rig.run_to_rest();
    assert_eq!(rig.value(token), json!(1));
    rig.assert_at_rest();
}

#[test]
fn it_sends_no_signals_in_the_callers_name() {
    let mut rig = rig(1);
    let id = rig.flow("w", s().wait("go", None));
    let signal = s().signal(Some(&id.to_string()), "go", 1);
    let token = rig.run("note", "a", s().record("write", "note", "7", signal));
    assert_eq!(rig.error(token), ErrorCode::FunctionFailed);
}

#[test]
fn about_a_type_they_run_beside_the_caller() {
    let mut rig = rig(4);
    for shard in 0..4 {
        let key = rig.key_in(shard, "a");
        let token = rig.read("note", &key, s().record("find", "note", "", s().keys(2, "", None, 10)));
        assert_eq!(rig.value(token), json!([]), "without a word to another shard");
        assert!(rig.peers.is_empty());
    }
    let route = rig.route(s().record("find", "note", "", s().keys(2, "", None, 10)), Some("key"));
    rig.run_to_rest();
    assert_eq!(rig.value(route), json!([]));
    let again = rig.route(s().record("find", "note", "", s().abort("another reply")), Some("key"));
    rig.run_to_rest();
    assert!(rig.reply(again).is_some());
    rig.assert_at_rest();
}

#[test]
fn workflows_note_them() {
    let mut rig = rig(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let script = s().record("write", "note", &there, add()).record("write", "note", &here, add()).sleep(10).record(
        "find",
        "note",
        "",
        s().returns("found"),
    );
    let id = rig.flow(&here, script);
    rig.run_to_rest();
    rig.tick(10);
    rig.run_to_rest();
    assert_eq!(rig.output(id), json!("found"));
    assert_eq!(rig.record_field("note", &there, "n"), json!(1));
    let names: Vec<String> = rig.noted(id).into_iter().map(|row| row.2).collect();
    let expected = [
        format!("note/{there}/_write"),
        format!("note/{here}/_write"),
        "10 ms".to_owned(),
        format!("note/{here}/_read"),
    ];
    assert_eq!(names, expected);
    let forbidden = rig.flow(&here, s().record("read", "counter", "7", add()));
    rig.run_to_rest();
    assert!(
        matches!(rig.invocation_result(forbidden), ResultState::Error(error) if error.code == ErrorCode::Forbidden)
    );
    rig.assert_no_leftovers();
}

#[test]
fn the_version_that_a_caller_waits_for_is_needed() {
    let mut rig = rig(1);
    let (first, _) = rig.core.catalog.service(Some("records"), "note").expect("deployed");
    let token = rig.run("note", "a", s().record("write", "note", "7", s().hash().add("n", 1)));
    let shard = &rig.core.shards[&ShardId(0)];
    assert!(shard.needs_program(first), "a frame of it waits");
    rig.add_records();
    let (second, _) = rig.core.catalog.service(Some("records"), "note").expect("deployed again");
    assert!(!rig.core.shards[&ShardId(0)].needs_program(second));
    rig.run_to_rest();
    assert_eq!(rig.value(token), json!(1));
    assert!(!rig.core.shards[&ShardId(0)].needs_program(first));
}

fn has_entities(rig: &mut Rig, shard: u16) -> serde_json::Value {
    let token = Token(1 << 60 | rig.replies.len() as u64);
    let asked = HasEntities { app: "records".into(), service: "note".into() };
    rig.core.give(ShardId(shard), Input::Ask(token, asked.into()));
    rig.make_durable();
    match rig.reply(token) {
        Some(Ok(Reply::HasEntities(is_any))) => json!(is_any),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_asks_for_records_hears_of_those_under_way() {
    let mut rig = rig(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    assert_eq!(has_entities(&mut rig, 0), json!(false));
    // It has written and waits, on its own shard or on another one.
    for (id, shard) in [(&here, 0), (&there, 1)] {
        let waits = s().record("write", "note", id, add()).hash().fail("in the end it writes nothing");
        let token = rig.run("note", &here, waits);
        rig.carry_peers();
        assert_eq!(has_entities(&mut rig, shard), json!(true), "{id}");
        rig.run_to_rest();
        assert_eq!(rig.error(token), ErrorCode::FunctionFailed);
        assert_eq!(has_entities(&mut rig, shard), json!(false), "{id}");
    }
    let token = rig.run("note", &here, s().record("write", "note", &there, add()));
    rig.run_to_rest();
    assert_eq!(rig.value(token), json!(1));
    assert_eq!((has_entities(&mut rig, 0), has_entities(&mut rig, 1)), (json!(false), json!(true)));
    rig.assert_at_rest();
}
