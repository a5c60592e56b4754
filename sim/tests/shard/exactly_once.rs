//! A call with an idempotency key takes effect once, and later sendings get the first reply.

use crate::*;

fn add() -> Script {
    s().add("n", 1)
}

#[test]
fn a_repeated_call_gets_the_first_reply_also_after_a_crash() {
    let mut rig = Rig::new(1);
    let first = rig.run_keyed("counter", "c", add(), "k1");
    rig.make_durable();
    let second = rig.run_keyed("counter", "c", add(), "k1");
    let other = rig.run_keyed("counter", "c", add(), "k2");
    rig.make_durable();
    assert_eq!((rig.value(first), rig.value(second), rig.value(other)), (json!(1), json!(1), json!(2)));
    rig.crash();
    let third = rig.run_keyed("counter", "c", add(), "k1");
    assert_eq!(rig.value(third), json!(1));
    assert_eq!(rig.field("counter", "c", "n"), json!(2));
    rig.assert_at_rest();
}

#[test]
fn a_key_belongs_to_its_entity() {
    let mut rig = Rig::new(1);
    let one = rig.run_keyed("counter", "c", add(), "k");
    let other = rig.run_keyed("counter", "d", add().get("n"), "k");
    rig.make_durable();
    assert!(rig.reply(one).is_some_and(Result::is_ok) && rig.reply(other).is_some_and(Result::is_ok));
}

#[test]
fn a_duplicate_of_a_waiting_call_waits_for_its_reply() {
    let mut rig = Rig::new(1);
    let first = rig.run_keyed("counter", "c", add().hash().get("n"), "k");
    let second = rig.run_keyed("counter", "c", add().hash().get("n"), "k");
    let different = rig.run_keyed("counter", "c", add(), "k");
    assert_eq!(rig.offloads.len(), 1, "the second sending does not run");
    rig.finish_offload();
    assert!(rig.reply(first).is_none() && rig.reply(second).is_none(), "not before it is durable");
    rig.make_durable();
    assert_eq!((rig.value(first), rig.value(second)), (json!(1), json!(1)));
    assert_eq!(rig.error(different), ErrorCode::IdempotencyMismatch);
    rig.assert_at_rest();
}

#[test]
fn a_duplicate_of_a_waiting_route_takes_no_effect() {
    let mut rig = Rig::new(1);
    let script = s().call(run("note", "a", s().hash().add("n", 1))).hash();
    let elsewhere = s().call(run("note", "a", s().add("n", 1)));
    let first = rig.route(script.clone(), Some("k"));
    let second = rig.route(script, Some("k"));
    rig.run_to_rest();
    assert_eq!(rig.field("note", "a", "n"), json!(1));
    assert_eq!(rig.value(first), rig.value(second));
    // Two sendings that meet nowhere: each waits before it has called anything.
    let before = s().hash().call(run("note", "b", s().add("n", 1)));
    let third = rig.route(before.clone(), Some("k3"));
    let fourth = rig.route(before, Some("k3"));
    rig.run_to_rest();
    assert_eq!((rig.value(third), rig.value(fourth)), (json!(1), json!(1)));
    assert_eq!(rig.field("note", "b", "n"), json!(1));
    let different = rig.route(elsewhere, Some("k"));
    rig.run_to_rest();
    assert_eq!(rig.error(different), ErrorCode::IdempotencyMismatch);
    rig.assert_at_rest();
}

#[test]
fn two_sendings_of_a_route_that_share_no_lock_take_effect_once() {
    // Both have only read when they wait, and both would write something different.
    let mut rig = Rig::new(1);
    let script = || s().call(read("note", "a", s().get("n"))).hash().call(run("note", "b", s().add("n", 1)));
    let tokens = [rig.route(script(), Some("k")), rig.route(script(), Some("k"))];
    rig.run_to_rest();
    assert_eq!(rig.field("note", "b", "n"), json!(1));
    assert_eq!(rig.value(tokens[0]), rig.value(tokens[1]));
    rig.assert_at_rest();
}

#[test]
fn aborts_are_kept_and_other_errors_are_not() {
    let mut rig = Rig::new(1);
    let withdraw = s().at_least("n", 5).add("n", -5);
    let first = rig.run_keyed("account", "a", withdraw.clone(), "k");
    assert!(rig.reply(first).is_none(), "the abort is kept, so it waits for the disk");
    rig.run("account", "a", s().set("n", 100));
    let again = rig.run_keyed("account", "a", withdraw, "k");
    rig.make_durable();
    assert_eq!((rig.error(first), rig.error(again)), (ErrorCode::Aborted, ErrorCode::Aborted));
    let failing = rig.run_keyed("account", "a", s().fail("no"), "k2");
    assert_eq!(rig.error(failing), ErrorCode::FunctionFailed);
    let other = rig.run_keyed("account", "a", s().get("n"), "k2");
    rig.make_durable();
    assert_eq!(rig.value(other), json!(100));
}

#[test]
fn outcomes_expire_and_are_collected() {
    let mut rig = Rig::new(1);
    for number in 0..600 {
        rig.run_keyed("counter", "c", add(), &format!("k{number}"));
    }
    rig.make_durable();
    assert_eq!(rig.bookkeeping_rows("outcome"), 600);
    rig.tick(59_999);
    let kept = rig.run_keyed("counter", "c", add(), "k0");
    rig.make_durable();
    assert_eq!(rig.value(kept), json!(1));
    rig.core.now = rig.core.now.plus(1);
    let expired = rig.run_keyed("counter", "c", add(), "k599");
    rig.make_durable();
    assert_eq!(rig.value(expired), json!(601), "expired counts as absent even before it is collected");
    for _ in 0..6 {
        rig.tick(1_000);
    }
    rig.make_durable();
    assert_eq!(rig.bookkeeping_rows("outcome"), 1);
    rig.assert_at_rest();
}

/// 600 keyed calls whose outcomes are in the checkpoint and not in memory, by `forget`.
fn outcomes_only_on_disk(forget: impl Fn(&mut Rig)) {
    let mut rig = Rig::new(1);
    for number in 0..600 {
        rig.run_keyed("counter", "c", add(), &format!("k{number}"));
    }
    rig.checkpoint();
    forget(&mut rig);
    rig.run_keyed("counter", "c", add(), "new");
    let kept = rig.run_keyed("counter", "c", add(), "k7");
    let different = rig.run_keyed("counter", "c", add().get("n"), "k8");
    rig.make_durable();
    assert_eq!((rig.value(kept), rig.error(different)), (json!(8), ErrorCode::IdempotencyMismatch));
    for _ in 0..59 {
        rig.tick(1_000);
    }
    assert_eq!(rig.bookkeeping_rows("outcome"), 601, "nothing is forgotten before its time");
    for _ in 0..40 {
        rig.tick(1_000);
    }
    rig.make_durable();
    assert_eq!(rig.bookkeeping_rows("outcome"), 0);
    let again = rig.run_keyed("counter", "c", add(), "k7");
    rig.make_durable();
    assert_eq!(rig.value(again), json!(602));
    rig.assert_at_rest();
}

#[test]
fn outcomes_of_before_a_restart_are_found_and_collected() {
    outcomes_only_on_disk(Rig::crash);
}

#[test]
fn evicted_outcomes_are_found_and_collected() {
    outcomes_only_on_disk(|rig| {
        let store = rig.core.shards.get_mut(&ShardId(0)).expect("there").store();
        store.evict(0);
        assert_eq!(store.resident_bytes(), 0);
    });
}

#[test]
fn a_clock_that_jumps_ahead_and_back_keeps_no_outcome_for_ever() {
    let mut rig = Rig::new(1);
    let now = rig.core.now;
    rig.core.now = now.plus(10_000_000);
    rig.run_keyed("counter", "c", add(), "k1");
    rig.core.now = now;
    rig.run_keyed("counter", "c", add(), "k2");
    rig.checkpoint();
    for _ in 0..62 {
        rig.tick(1_000);
    }
    assert_eq!(rig.bookkeeping_rows("outcome"), 1, "one made ahead of time does not hold up those behind it");
    rig.tick(10_000_000);
    for _ in 0..40 {
        rig.tick(1_000);
    }
    rig.make_durable();
    assert_eq!(rig.bookkeeping_rows("outcome"), 0);
}

#[test]
fn a_query_keeps_no_outcome() {
    let mut rig = Rig::new(1);
    rig.invoke(("counter", "c", "read"), &s().get("n"), Some("k"));
    rig.invoke(("counter", "c", "read"), &s().abort("no"), Some("k"));
    assert!(rig.log.is_empty());
}

/// What a route calls may depend on what it reads: that it has only called queries this time does
/// not keep another sending of the same request from taking effect.
#[test]
fn a_route_that_was_refused_after_queries_only_stays_refused() {
    let look = || read("counter", "c", s().at_least("n", 1));
    let add_there = || run("counter", "c", s().add("n", 1));
    let thrown = s().call(look()).call(add_there());
    // The same, with a refusal that is a reply like any other.
    let caught = s().try_call(look()).when(1, s().call(add_there()));
    for (route, shards) in [(&thrown, 1), (&thrown, 2), (&caught, 1), (&caught, 2)] {
        let mut rig = Rig::new(shards);
        let first = rig.route(route.clone(), Some("k"));
        rig.settle();
        let first = rig.reply(first).cloned().expect("answered");
        assert!(first.as_ref().is_err_and(|error| error.code == ErrorCode::Aborted) || first.is_ok());
        rig.run("counter", "c", s().set("n", 1));
        rig.make_durable();
        rig.crash();
        let again = rig.route(route.clone(), Some("k"));
        rig.settle();
        assert_eq!(rig.reply(again), Some(&first));
        assert_eq!(rig.field("counter", "c", "n"), json!(1), "nothing was added");
    }
}

#[test]
fn a_repeated_send_gets_the_first_id() {
    let mut rig = Rig::new(1);
    let target = ("counter", "c", "run");
    let first = rig.send(target, add(), 0, Some("k"));
    let second = rig.send(target, add(), 0, Some("k"));
    assert!(rig.reply(first).is_none() && rig.reply(second).is_none(), "not before it is durable");
    rig.make_durable();
    assert_eq!(rig.sent(first), rig.sent(second));
    let called = rig.run_keyed("counter", "c", add(), "k");
    let later = rig.send(target, add(), 1_000, Some("k"));
    rig.make_durable();
    assert_eq!(rig.error(called), ErrorCode::IdempotencyMismatch);
    assert_eq!(rig.error(later), ErrorCode::IdempotencyMismatch, "another delay is another request");
    assert_eq!(rig.field("counter", "c", "n"), json!(1));
}
