//! A route is one transaction, wherever its first call leads it.

use crate::*;

#[test]
fn a_route_that_calls_nothing_needs_no_shard() {
    let mut rig = Rig::new(2);
    let token = rig.route(s().returns(7), Some("k"));
    assert_eq!(rig.value(token), json!(7));
    let failed = rig.route(s().fail("no"), None);
    assert_eq!(rig.error(failed), ErrorCode::FunctionFailed);
    assert!(rig.log.is_empty());
    rig.assert_at_rest();
}

#[test]
fn a_route_has_no_fields() {
    let mut rig = Rig::new(1);
    for script in
        [s().get("n"), s().set("n", 1), s().delete("n"), s().scan("", 1), s().call(run("note", "a", s())).get("n")]
    {
        let token = rig.route(script, None);
        assert_eq!(rig.error(token), ErrorCode::FunctionFailed);
    }
    rig.assert_at_rest();
}

#[test]
fn a_route_goes_where_its_first_call_leads() {
    let mut rig = Rig::new(2);
    for shard in 0..2 {
        let (key, tagged) = (rig.key_in(shard, "a"), rig.key_in(shard, "b"));
        let script =
            s().hash().call(run("note", &key, s().add("n", 1))).hash().call(run("note", &tagged, s().add("n", 1)));
        let token = rig.route(script, None);
        rig.run_to_rest();
        assert_eq!(rig.value(token), json!(1));
        assert_eq!((rig.field("note", &key, "n"), rig.field("note", &tagged, "n")), (json!(1), json!(1)));
    }
    assert_eq!(rig.log.len(), 2);
    rig.assert_at_rest();
}

#[test]
fn a_route_reaches_into_two_shards() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let calls = || [run("note", &here, s().add("n", 1)), run("note", &there, s().add("n", 1))];
    let [first, second] = calls();
    let sequential = rig.route(s().call(first).call(second), None);
    let parallel = rig.route(s().all(calls()), None);
    rig.run_to_rest();
    assert_eq!((rig.value(sequential), rig.value(parallel)), (json!(1), json!([2, 2])));
    assert_eq!((rig.field("note", &here, "n"), rig.field("note", &there, "n")), (json!(2), json!(2)));
    rig.assert_at_rest();
}

#[test]
fn a_route_that_only_sends_is_exactly_once_too() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let script = s().send(run("note", &here, s().add("n", 1)), 0).send(run("note", &there, s().add("n", 1)), 0);
    for _ in 0..2 {
        rig.route(script.clone(), Some("k"));
        rig.run_to_rest();
    }
    assert_eq!((rig.field("note", &here, "n"), rig.field("note", &there, "n")), (json!(1), json!(1)));
    rig.assert_at_rest();
}

#[test]
fn work_begun_before_the_first_call_comes_back_to_the_shard() {
    let mut rig = Rig::new(1);
    let token = rig.route(s().start_hash().call(run("note", "a", s().add("n", 1))).returns("ok"), None);
    assert!(rig.reply(token).is_none());
    rig.run_to_rest();
    assert_eq!(rig.value(token), json!("ok"));
    rig.assert_at_rest();
}

#[test]
fn a_route_that_dies_begins_again_with_the_same_random_numbers() {
    let mut rig = Rig::new(1);
    rig.run("note", "b", s().hash());
    let callee = run("note", "a", s().random().hash().call(run("note", "b", s().add("n", 1))).random());
    let token = rig.route(s().hash().call(callee), None);
    // The route's first work ends: it calls `a`, waits there, and dies for `b` that an older one holds.
    let first = rig.offloads.pop_back().expect("the route waits");
    rig.finish(first, Ok("null".into()));
    let second = rig.offloads.pop_back().expect("the callee waits");
    rig.finish(second, Ok("null".into()));
    assert!(rig.reply(token).is_none());
    rig.run_to_rest();
    assert_eq!(rig.field("note", "b", "n"), json!(1));
    assert!(rig.reply(token).is_some_and(Result::is_ok));
    rig.assert_at_rest();
}
