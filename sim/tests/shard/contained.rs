//! A function cannot outrun its limits, hold its core for ever, or leave anything behind.

use millrace_func::Limits;

use crate::*;

fn limited(limits: Limits, script: Script) -> ErrorCode {
    let mut rig = Rig::with_limits(1, limits);
    let token = rig.run("note", "a", script);
    rig.run_to_rest();
    assert!(rig.log.is_empty());
    rig.assert_at_rest();
    rig.error(token)
}

fn many(count: usize, one: impl Fn(Script, usize) -> Script) -> Script {
    (0..count).fold(s(), one)
}

#[test]
fn counts_and_sizes_are_bounded() {
    let limits = || Limits {
        writes_per_call: 3,
        messages_per_call: 3,
        value_bytes: 10,
        call_depth: 3,
        input_bytes: 2_000,
        ..Limits::default()
    };
    let add = |script: Script, n: usize| script.add(&n.to_string(), 1);
    assert_eq!(limited(limits(), many(4, add)), ErrorCode::OperationLimit);
    assert_eq!(
        limited(limits(), s().call(run("note", "b", many(2, add))).call(run("note", "c", many(2, add)))),
        ErrorCode::OperationLimit
    );
    assert_eq!(
        limited(limits(), many(4, |script, _| script.send(run("note", "b", s()), 0))),
        ErrorCode::OperationLimit
    );
    assert_eq!(limited(limits(), s().set("n", "x".repeat(9))), ErrorCode::SizeLimit);
    assert_eq!(limited(limits(), s().set(&"f".repeat(1_025), 1)), ErrorCode::SizeLimit);
    assert_eq!(limited(limits(), s().get(&"x".repeat(3_000))), ErrorCode::TooLarge);
    assert_eq!(limited(limits(), s().call(run("note", "", s()))), ErrorCode::BadRequest);
    assert_eq!(limited(limits(), s().call(run("note", &"k".repeat(1_025), s()))), ErrorCode::BadRequest);
    let deep = (0..4).fold(s(), |script, _| s().call(run("note", "b", script)));
    assert_eq!(limited(limits(), deep), ErrorCode::DepthLimit);
    assert_eq!(limited(limits(), s().call(Callee::unknown("note", "b"))), ErrorCode::UnknownHandler);
}

#[test]
fn one_transaction_writes_a_bounded_entry() {
    let limits = Limits { value_bytes: 6 << 20, input_bytes: 64 << 20, ..Limits::default() };
    let big = "x".repeat(5 << 20);
    let script = many(4, |script, n| script.set(&n.to_string(), big.as_str()));
    assert_eq!(limited(limits, script), ErrorCode::SizeLimit);
}

#[test]
fn messages_beyond_what_an_entry_can_number_are_refused() {
    let limits = Limits { messages_per_call: usize::MAX, input_bytes: 64 << 20, ..Limits::default() };
    let script = many(65_536, |script, _| script.send(run("note", "b", s()), 0));
    assert_eq!(limited(limits, script), ErrorCode::OperationLimit);
}

#[test]
fn calls_nobody_awaits_do_not_evade_the_depth() {
    let limits = Limits { call_depth: 3, ..Limits::default() };
    let deep = (0..4).fold(s(), |script, _| s().start(run("note", "b", script)));
    assert_eq!(limited(limits, deep), ErrorCode::DepthLimit);
}

#[test]
fn one_transaction_makes_a_bounded_number_of_calls() {
    // Each level calls the next eleven times: some 16,000 activations, were there no bound.
    let tree = (0..4).fold(s(), |script, _| s().settle((0..11).map(|_| read("note", "b", script.clone()))));
    let mut rig = Rig::new(1);
    let token = rig.run("note", "a", tree);
    rig.run_to_rest();
    // An activation that cannot make its calls fails, and its callers were told to bear that.
    assert!(rig.reply(token).is_some());
    assert!(rig.core.engine.turns() < 21_000, "{}", rig.core.engine.turns());
    rig.assert_at_rest();
}

#[test]
fn messages_that_send_messages_do_not_hold_the_core() {
    let mut rig = Rig::new(1);
    let chain = (0..11).fold(s().add("n", 1), |script, _| {
        s().add("n", 1).send(run("note", "a", script.clone()), 0).send(run("note", "a", script), 0)
    });
    rig.run("note", "a", chain);
    let turns = rig.core.engine.turns();
    assert!(turns <= 65, "one input started {turns} messages");
    let due = rig.core.with(ShardId(0), |shard, _| shard.next_due());
    assert!(due.is_some_and(|due| due <= rig.core.now), "the rest is due at once");
    rig.run_due();
    assert_eq!(rig.field("note", "a", "n"), json!(4_095));
}

#[test]
fn a_long_queue_sheds() {
    let mut rig = Rig::new(1);
    rig.run("note", "a", s().hash());
    let tokens: Vec<_> = (0..4_097).map(|_| rig.run("note", "a", s().add("n", 1))).collect();
    assert_eq!(rig.error(tokens[4_096]), ErrorCode::Overloaded);
    assert!(rig.reply(tokens[4_095]).is_none());
    rig.run_to_rest();
    assert_eq!(rig.field("note", "a", "n"), json!(4_096));
    rig.assert_at_rest();
}

#[test]
fn a_query_changes_nothing() {
    let mut rig = Rig::new(1);
    for script in
        [s().add("n", 1), s().delete("n"), s().send(run("note", "b", s()), 0), s().call(run("note", "b", s()))]
    {
        let token = rig.read("note", "a", script);
        assert_eq!(rig.error(token), ErrorCode::FunctionFailed);
    }
    assert!(rig.log.is_empty());
}

#[test]
fn scans_see_the_transactions_own_writes_in_order() {
    let mut rig = Rig::new(1);
    rig.run("note", "a", s().set("a1", 1).set("a2", 2).set("a3", 3).set("b", 4));
    let token = rig.run("note", "a", s().delete("a1").set("a25", 25).delete("a3").set("a0", 0).scan("a", 2));
    rig.make_durable();
    assert_eq!(rig.value(token), json!([["a0", 0], ["a2", 2]]));
    let token = rig.read("note", "a", s().scan("", 10));
    assert_eq!(rig.value(token), json!([["a0", 0], ["a2", 2], ["a25", 25], ["b", 4]]));
}

#[test]
fn a_long_idempotency_key_is_refused() {
    let mut rig = Rig::new(1);
    let key = "k".repeat(256);
    let called = rig.run_keyed("note", "a", s(), &key);
    let routed = rig.route(s(), Some(&key));
    assert_eq!((rig.error(called), rig.error(routed)), (ErrorCode::BadRequest, ErrorCode::BadRequest));
}

#[test]
fn the_cpu_time_of_a_transaction_is_that_of_all_its_handlers() {
    let limits = || Limits { cpu_ms: 100, ..Limits::default() };
    let callees = |callee: fn(usize) -> Callee| many(300, |script, n| script.call(callee(n)));
    assert_eq!(limited(limits(), callees(|_| run("note", "b", s().work(40)))), ErrorCode::CpuLimit);
    assert_eq!(limited(limits(), callees(|n| read("note", &n.to_string(), s().work(40)))), ErrorCode::CpuLimit);
    let deep = (0..4).fold(s(), |script, _| s().work(30).call(run("note", "b", script)));
    assert_eq!(limited(limits(), deep), ErrorCode::CpuLimit);
    // Nobody catches it, or the next one would begin with nothing used.
    let caught = many(300, |script, _| script.try_call(run("note", "b", s().work(40))));
    assert_eq!(limited(limits(), caught), ErrorCode::CpuLimit);
    assert_eq!(limited(limits(), s().settle((0..300).map(|_| run("note", "b", s().work(40))))), ErrorCode::CpuLimit);

    // In other shards as well.
    let mut rig = Rig::with_limits(8, limits());
    let keys: Vec<String> = (0..8).map(|shard| rig.key_in(shard, "b")).collect();
    let script = many(300, |script, n| script.call(run("note", &keys[n % 8], s().work(40))));
    let token = rig.run("note", "a", script);
    rig.run_to_rest();
    assert_eq!(rig.error(token), ErrorCode::CpuLimit);
    assert!(rig.core.engine.turns() <= 8, "{} turns", rig.core.engine.turns());
    rig.settle();
    rig.assert_at_rest();
}

#[test]
fn between_handlers_that_use_much_cpu_time_others_have_a_turn() {
    for key in ["b", "c"] {
        let mut rig = Rig::with_limits(1, Limits { cpu_ms: 1_000, ..Limits::default() });
        let heavy = many(10, |script, _| script.call(run("note", key, s().work(40).add("n", 1))));
        let heavy = rig.run("note", "a", heavy.get("n"));
        assert!(rig.core.engine.turns() <= 2, "one input ran {} turns", rig.core.engine.turns());
        // What it has touched is its own meanwhile.
        let (beside, behind) = (rig.run("note", "d", s().add("n", 1)), rig.run("note", key, s().add("n", 1)));
        rig.make_log_durable(0);
        assert_eq!(rig.value(beside), json!(1));
        assert!(rig.reply(behind).is_none(), "it is held");
        assert!(rig.reply(heavy).is_none(), "it has much to do yet");
        while rig.reply(heavy).is_none() {
            assert!(rig.go_on(), "it goes on by itself");
            rig.make_log_durable(0);
        }
        assert_eq!(rig.value(behind), json!(11));
        rig.assert_at_rest();
    }
}

#[test]
fn a_transaction_that_has_let_others_have_a_turn_ends_with_its_shard() {
    let mut rig = Rig::new(1);
    let script = s().call(run("note", "b", s().work(40))).call(run("note", "b", s()));
    let token = rig.run("note", "a", script);
    rig.stop(ShardId(0));
    assert_eq!(rig.error(token), ErrorCode::ShardStopped);
    assert_eq!(rig.core.with(ShardId(0), |shard, _| shard.next_due()), None, "a driver would spin");
}

/// It has asked the others to end it by then, and waits for their answers only.
#[test]
fn a_transaction_whose_time_is_up_while_others_have_a_turn_is_told_so() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let heavy = |key: &str| run("note", key, s().work(40));
    let script = s().call(run("note", &there, s().add("n", 1)));
    let script = (0..2).fold(script, |script, n| script.call(heavy(&rig.key_in(0, &format!("c{n}")))));
    let token = rig.run("note", &here, script);
    while rig.core.with(ShardId(0), |shard, _| shard.next_due()).is_none() {
        assert!(rig.carry_peer(), "it comes to let others have a turn");
    }
    rig.tick(10_000);
    rig.settle();
    assert_eq!(rig.error(token), ErrorCode::WaitLimit);
    rig.assert_at_rest();
}
