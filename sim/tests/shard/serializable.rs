//! Calls take effect as if one after the other, however they wait in the middle; and nobody waits
//! for ever.

use millrace_sim::random::Rng;

use crate::*;

#[test]
fn increments_that_wait_in_the_middle_are_not_lost() {
    let mut rig = Rig::new(1);
    let tokens: Vec<_> = (0..5).map(|_| rig.run("counter", "c", s().get("n").hash().add("n", 1))).collect();
    rig.run_to_rest();
    let values: Vec<Json> = tokens.into_iter().map(|token| rig.value(token)).collect();
    assert_eq!(values, [1, 2, 3, 4, 5], "the queue is fair");
    rig.assert_at_rest();
}

#[test]
fn a_query_does_not_wait_for_a_suspended_writer() {
    let mut rig = Rig::new(1);
    rig.run("counter", "c", s().set("n", 1));
    rig.make_durable();
    let writer = rig.run("counter", "c", s().add("n", 1).hash());
    let query = rig.read("counter", "c", s().get("n"));
    assert_eq!(rig.value(query), json!(1));
    rig.run_to_rest();
    assert!(rig.reply(writer).is_some());
    let query = rig.read("counter", "c", s().get("n"));
    assert_eq!(rig.value(query), json!(2));
    rig.assert_at_rest();
}

#[test]
fn a_query_that_waits_sees_one_state() {
    let mut rig = Rig::new(1);
    let both = |n: i64| s().set("n", n).hash().call(run("note", "b", s().set("n", n)));
    rig.run("note", "a", both(1));
    rig.run_to_rest();
    rig.run("note", "a", both(2));
    let sum =
        s().all([read("note", "a", s().get("n").hash().get("n")), read("note", "b", s().get("n").hash().get("n"))]);
    let query = rig.read("note", "x", sum);
    while !rig.offloads.is_empty() {
        rig.finish_offload();
    }
    rig.make_durable();
    let seen = rig.value(query);
    assert!(seen == json!([1, 1]) || seen == json!([2, 2]), "{seen}");
    rig.assert_at_rest();
}

#[test]
fn who_has_looked_without_a_lock_does_not_wait_and_look_again() {
    // The route is older than the writer, so it might wait for it; but it has read beside it.
    let mut rig = Rig::new(1);
    let both = [read("note", "a", s().get("n")), run("note", "a", s().get("n"))];
    let route = rig.route(s().hash().all(both), None);
    rig.run("note", "a", s().set("n", 1).hash());
    let hash_of_writer = rig.offloads.pop_back().expect("the writer waits");
    let hash_of_route = rig.offloads.pop_back().expect("the route waits");
    rig.finish(hash_of_route, Ok("null".into()));
    rig.finish(hash_of_writer, Ok("null".into()));
    rig.run_to_rest();
    assert_eq!(rig.value(route), json!([1, 1]));
    rig.assert_at_rest();
}

#[test]
fn a_transaction_that_starts_again_still_owns_its_own_entity() {
    // 2 dies because 1, which is older, holds `b`; while it waits for `b`, 3 takes 2's own entity.
    // When `b` is free, 2 must not run beside 3.
    let mut rig = Rig::new(1);
    rig.run("note", "b", s().hash());
    let dies = rig.run("counter", "c", s().add("n", 1).call(run("note", "b", s().add("n", 1))));
    let takes = rig.run("counter", "c", s().add("n", 1).hash());
    assert_eq!(rig.offloads.len(), 2, "3 runs: nobody holds its entity");
    rig.run_to_rest();
    assert!(rig.reply(dies).is_some_and(Result::is_ok) && rig.reply(takes).is_some_and(Result::is_ok));
    assert_eq!((rig.field("counter", "c", "n"), rig.field("note", "b", "n")), (json!(2), json!(1)));
    rig.assert_at_rest();
}

#[test]
fn parallel_waits_do_not_close_a_circle() {
    // 1 holds `b`, 2 holds `a`. 3 wants both at once and holds neither; when it gets `a` it would
    // wait for 1 while 1 waits for it.
    let mut rig = Rig::new(1);
    let first = rig.run("note", "b", s().hash().call(run("note", "a", s().add("n", 1))));
    rig.run("note", "a", s().hash());
    let both = s().all([run("note", "a", s().add("n", 1)), run("note", "b", s().add("n", 1))]);
    let third = rig.route(both, None);
    let hash_of_2 = rig.offloads.pop_back().expect("2 waits");
    rig.finish(hash_of_2, Ok("null".into()));
    rig.run_to_rest();
    assert!(rig.reply(first).is_some_and(Result::is_ok) && rig.reply(third).is_some_and(Result::is_ok));
    assert_eq!((rig.field("note", "a", "n"), rig.field("note", "b", "n")), (json!(2), json!(1)));
    rig.assert_at_rest();
}

#[test]
fn who_queues_behind_an_older_one_gets_hold_of_nothing_meanwhile() {
    // 1 holds `a` and will want `b`. 2 holds nothing, so it may queue for `a`; would it get `b` in
    // parallel, each would wait for the other.
    for shards in [1, 2] {
        let mut rig = Rig::new(shards);
        let (a, b) = (rig.key_in(0, "a"), rig.key_in(shards - 1, "b"));
        let first = rig.run("note", &a, s().add("n", 1).hash().call(run("note", &b, s().add("n", 1))));
        let both = s().all([run("note", &a, s().add("n", 1)), run("note", &b, s().add("n", 1))]);
        let second = rig.route(both, None);
        rig.carry_peers();
        rig.run_to_rest();
        assert_eq!((rig.value(first), rig.value(second)), (json!(1), json!([2, 2])));
        rig.assert_at_rest();
    }
}

#[test]
fn a_reader_that_becomes_a_writer_passes_the_queue() {
    // 1 and 2 share `a`; 3 queues for it alone; then 1 wants it alone. 3 waits for 1, so 1 must
    // not wait behind 3.
    let mut rig = Rig::new(1);
    let upgrade = s().call(read("note", "a", s().get("n"))).hash().call(run("note", "a", s().add("n", 1)));
    let first = rig.run("note", "x", upgrade);
    let second = rig.read("note", "a", s().get("n").hash());
    let third = rig.run("note", "a", s().add("n", 1));
    rig.finish_offload();
    rig.run_to_rest();
    for token in [first, second, third] {
        assert!(rig.reply(token).is_some_and(Result::is_ok), "{token:?}");
    }
    assert_eq!(rig.field("note", "a", "n"), json!(2));
    rig.assert_at_rest();
}

#[test]
fn who_wants_it_to_read_and_to_write_waits_to_write() {
    // The oldest one queues for `a` twice, behind a reader: it must not be woken beside the reader
    // because it wants to read, and then write.
    let mut rig = Rig::new(1);
    let add = || s().add("n", 1);
    let calls = [run("note", "y", add()), read("note", "a", s().get("n")), run("note", "a", add())];
    let oldest = rig.route(s().hash().all(calls), None);
    let holder = rig.run("note", "a", add().hash());
    let reader = rig.run("note", "x", add().call(read("note", "a", s().get("n").hash())));
    assert_eq!(rig.offloads.len(), 2);
    rig.finish_offload();
    rig.finish_offload();
    rig.run_to_rest();
    for token in [holder, reader] {
        assert!(rig.reply(token).is_some_and(Result::is_ok), "{token:?}");
    }
    assert_eq!(rig.value(oldest), json!([1, 1, 2]));
    rig.assert_at_rest();
}

#[test]
fn readers_woken_together_may_want_it_alone() {
    // A writer leaves; two readers behind it go on; the first one upgrades at once.
    let mut rig = Rig::new(1);
    rig.run("note", "a", s().hash());
    let reader = |then: Script| s().set("mine", 1).call(read("note", "a", s().get("n"))).call(run("note", "a", then));
    let second = rig.run("note", "x", reader(s().add("n", 1).hash()));
    let third = rig.run("note", "y", reader(s().add("n", 1).hash()));
    rig.run_to_rest();
    assert!(rig.reply(second).is_some_and(Result::is_ok) && rig.reply(third).is_some_and(Result::is_ok));
    assert_eq!(rig.field("note", "a", "n"), json!(2));
    rig.assert_at_rest();
}

#[test]
fn a_result_for_an_earlier_start_is_dropped() {
    let mut rig = Rig::new(1);
    rig.run("note", "b", s().hash());
    // 2 has work outside when it dies, and the same work again when it has started again.
    let both = s().all([run("note", "c", s().hash().add("n", 1)), run("note", "b", s().hash().add("n", 1))]);
    let token = rig.run("note", "a", both);
    let stale = rig.offloads.remove(1).expect("2 had work outside before it died");
    rig.finish_offload();
    assert_eq!(rig.offloads.len(), 2, "2 has started again");
    rig.finish(stale, Err(millrace_base::Error::new(ErrorCode::Internal, "too late")));
    rig.run_to_rest();
    assert_eq!(rig.value(token), json!([1, 1]));
    rig.assert_at_rest();
}

#[test]
fn who_waits_too_long_is_answered_and_lets_go() {
    let mut rig = Rig::new(1);
    let holder = rig.run("note", "a", s().set("n", 1).hash());
    let behind = rig.run("note", "a", s().set("n", 2));
    rig.tick(9_999);
    assert!(rig.reply(holder).is_none() && rig.reply(behind).is_none());
    rig.tick(1);
    assert_eq!((rig.error(holder), rig.error(behind)), (ErrorCode::WaitLimit, ErrorCode::WaitLimit));
    rig.assert_at_rest();
    rig.finish_offload();
    let next = rig.run("note", "a", s().set("n", 3));
    rig.make_durable();
    assert_eq!(rig.value(next), json!(3));
    assert_eq!(rig.log.len(), 1);
}

#[test]
fn starting_again_does_not_start_the_waiting_time_again() {
    let mut rig = Rig::new(1);
    rig.run("note", "b", s().hash());
    let dies = rig.run("note", "a", s().hash().call(run("note", "b", s().add("n", 1))).hash());
    rig.tick(9_000);
    let hash_of_2 = rig.offloads.pop_back().expect("2 waits");
    rig.finish(hash_of_2, Ok("null".into()));
    assert!(rig.reply(dies).is_none());
    rig.tick(1_000);
    assert_eq!(rig.error(dies), ErrorCode::WaitLimit);
}

const ACCOUNTS: [&str; 4] = ["a", "b", "c", "d"];
const EACH: i64 = 100;

fn transfer(rng: &mut Rng) -> (&'static str, Script) {
    let (from, to) = (ACCOUNTS[rng.index(4)], ACCOUNTS[rng.index(4)]);
    let pause = |rng: &mut Rng, script: Script| if rng.chance(1, 2) { script.hash() } else { script };
    let amount = rng.below(20) as i64;
    let mut script = s();
    if rng.chance(1, 3) {
        script = script.call(read("account", to, s().get("n")));
    }
    if rng.chance(1, 4) {
        script = script.try_call(run("account", ACCOUNTS[rng.index(4)], s().add("n", 1_000).hash().fail("no")));
    }
    script = pause(rng, script).at_least("n", amount).add("n", -amount);
    script = pause(rng, script);
    let deposit = pause(rng, s()).add("n", amount);
    script = if rng.chance(1, 5) {
        script.start(run("account", to, deposit))
    } else {
        script.call(run("account", to, deposit))
    };
    (from, pause(rng, script))
}

fn audit(rng: &mut Rng) -> Script {
    let look = |rng: &mut Rng| if rng.chance(1, 2) { s().get("n").hash().get("n") } else { s().get("n") };
    let mut looks: Vec<Callee> = ACCOUNTS.iter().map(|key| read("account", key, look(rng))).collect();
    if rng.chance(1, 2) {
        looks.reverse();
    }
    if rng.chance(1, 2) { s().all(looks) } else { looks.into_iter().fold(s(), Script::call) }
}

/// Transfers, audits and routes that wait at random places, their work ending in random order.
fn random_bank(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut rig = Rig::new(1);
    for key in ACCOUNTS {
        rig.run("account", key, s().set("n", EACH));
    }
    let mut audits = Vec::new();
    let mut tokens = Vec::new();
    for _ in 0..60 {
        match rng.below(8) {
            0..=1 => {
                let (from, script) = transfer(&mut rng);
                tokens.push(rig.run("account", from, script));
            }
            2 => {
                let (from, script) = transfer(&mut rng);
                tokens.push(rig.route(s().call(run("account", from, script)), None));
            }
            3 => {
                let looks = ACCOUNTS.map(|key| read("account", key, s().get("n").hash().get("n")));
                audits.push(rig.read("account", "x", s().all(looks)));
                let script = audit(&mut rng);
                tokens.push(rig.route(script, None));
            }
            4 => rig.make_durable(),
            _ if !rig.offloads.is_empty() => {
                let ticket = rig.offloads.remove(rng.index(rig.offloads.len())).expect("within");
                rig.finish(ticket, Ok("null".into()));
            }
            _ => {}
        }
    }
    while !rig.offloads.is_empty() {
        let ticket = rig.offloads.remove(rng.index(rig.offloads.len())).expect("within");
        rig.finish(ticket, Ok("null".into()));
    }
    rig.make_durable();
    rig.assert_at_rest();
    for token in tokens {
        if let Some(Err(error)) = rig.reply(token) {
            assert_eq!(error.code, ErrorCode::Aborted, "seed {seed}: {error}");
        }
        assert!(rig.reply(token).is_some(), "seed {seed}: a call was never answered");
    }
    for audit in audits {
        let total: i64 = rig.value(audit).as_array().expect("four balances").iter().filter_map(Json::as_i64).sum();
        assert_eq!(total, 4 * EACH, "seed {seed}: a query saw a transfer in the middle");
    }
    let total: i64 = ACCOUNTS.iter().filter_map(|key| rig.field("account", key, "n").as_i64()).sum();
    assert_eq!(total, 4 * EACH, "seed {seed}: money was made or lost");
}

#[test]
fn no_order_of_waits_makes_or_loses_money_or_leaves_anybody_waiting() {
    for seed in 0..3_000 {
        random_bank(seed);
    }
}
