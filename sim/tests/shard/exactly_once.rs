//! A call with an idempotency key takes effect once, and later sendings get the first reply.

use millrace_base::limits;
use millrace_shard::Token;

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
fn a_key_that_is_empty_or_too_long_is_refused_whatever_it_comes_with() {
    let mut rig = Rig::new(1);
    let id = rig.flow("a", s().wait("go", None));
    let longest = "k".repeat(limits::IDEMPOTENCY_KEY_BYTES);
    for wrong in [String::new(), format!("{longest}k")] {
        let asked = [
            rig.run_keyed("counter", "c", add(), &wrong),
            rig.send(("counter", "c", "run"), add(), 0, Some(&wrong)),
            rig.route(s().call(run("counter", "c", add())), Some(&wrong)),
            rig.signal(id, "go", "1", Some(&wrong)),
        ];
        rig.run_to_rest();
        for token in asked {
            assert_eq!(rig.error(token), ErrorCode::BadRequest);
        }
    }
    let token = rig.run_keyed("counter", "c", add(), &longest);
    rig.make_durable();
    assert_eq!(rig.value(token), json!(1));
}

#[test]
fn a_key_belongs_to_its_entity() {
    let mut rig = Rig::new(1);
    let one = rig.run_keyed("counter", "c", add(), "k");
    let other = rig.run_keyed("counter", "d", add().get("n"), "k");
    rig.make_durable();
    assert!(rig.reply(one).is_some_and(Result::is_ok) && rig.reply(other).is_some_and(Result::is_ok));
}

type Requested = fn(&mut Rig) -> Token;

/// One request of each kind that all begin with `counter`/`c` and would each add one.
fn of_every_kind() -> [(&'static str, Requested); 5] {
    [
        ("call", |rig| rig.run_keyed("counter", "c", add(), "k")),
        ("send", |rig| rig.send(("counter", "c", "run"), add(), 0, Some("k"))),
        ("route", |rig| rig.route(s().call(run("counter", "c", add())), Some("k"))),
        ("route of another service", |rig| rig.route_of("note", s().call(run("counter", "c", add())), Some("k"))),
        ("route that sends", |rig| rig.route(s().send(run("counter", "c", add()), 0), Some("k"))),
    ]
}

#[test]
fn calls_sends_and_routes_share_the_keys_of_an_entity() {
    for shards in [1, 2] {
        for (one, first) in of_every_kind() {
            for (other, second) in of_every_kind().into_iter().filter(|(other, _)| *other != one) {
                let mut rig = Rig::new(shards);
                let first_token = first(&mut rig);
                rig.run_to_rest();
                let reply = rig.reply(first_token).cloned().expect("answered");
                for crashes in [false, true] {
                    if crashes {
                        rig.crash();
                    }
                    let refused = second(&mut rig);
                    rig.run_to_rest();
                    assert_eq!(rig.error(refused), ErrorCode::IdempotencyMismatch, "{one}, then {other}");
                    let again = first(&mut rig);
                    rig.run_to_rest();
                    assert_eq!(rig.reply(again), Some(&reply), "{one}, again after {other}");
                }
                assert_eq!(rig.field("counter", "c", "n"), json!(1), "{one}, then {other}");
                rig.assert_at_rest();
            }
        }
    }
}

#[test]
fn a_key_of_a_route_belongs_to_the_first_entity_it_calls() {
    // On one shard and on two: where entities lie decides nothing.
    for shards in [1, 2] {
        let mut rig = Rig::new(shards);
        let beginning = |key: &str| s().call(run("counter", key, add())).call(run("note", "all", add()));
        for key in ["c", "d", "e"] {
            for _ in 0..2 {
                let token = rig.route(beginning(key), Some("k"));
                rig.run_to_rest();
                assert!(rig.reply(token).is_some_and(Result::is_ok), "{key}: {:?}", rig.reply(token));
            }
        }
        // Of what it sends the first counts if it calls nothing, whatever it sends before it calls.
        let sending = s().send(run("note", "f", add()), 0).send(run("note", "g", add()), 0);
        let calling = s().send(run("note", "f", add()), 0).call(run("note", "g", add()));
        for (script, key) in [(&sending, "k"), (&calling, "k")] {
            let token = rig.route(script.clone(), Some(key));
            rig.run_to_rest();
            assert!(rig.reply(token).is_some_and(Result::is_ok), "{:?}", rig.reply(token));
        }
        let of_both = ["f", "g"].map(|key| rig.run_keyed("note", key, add(), "k"));
        rig.run_to_rest();
        assert_eq!(of_both.map(|token| rig.error(token)), [ErrorCode::IdempotencyMismatch; 2]);
        assert_eq!(rig.field("note", "all", "n"), json!(3));
        assert_eq!((rig.field("note", "f", "n"), rig.field("note", "g", "n")), (json!(2), json!(2)));
        rig.assert_at_rest();
    }
}

/// Whoever ends first has the key; the other one takes no effect, though nothing kept them apart.
#[test]
fn requests_of_different_kinds_that_run_at_once_take_effect_once() {
    let waiting: [Requested; 3] = [
        |rig| rig.run_keyed("counter", "c", s().hash().add("n", 1), "k"),
        |rig| rig.route(s().call(run("counter", "c", s().hash().add("n", 1))), Some("k")),
        |rig| {
            rig.route(s().call(read("counter", "c", s().get("n"))).hash().call(run("counter", "c", add())), Some("k"))
        },
    ];
    for shards in [1, 2] {
        for (index, first) in waiting.iter().enumerate() {
            for (kind, second) in of_every_kind() {
                let mut rig = Rig::new(shards);
                let tokens = [first(&mut rig), second(&mut rig)];
                rig.run_to_rest();
                let refused = tokens.map(|token| match rig.reply(token) {
                    Some(Ok(_)) => false,
                    Some(Err(error)) => {
                        assert_eq!(error.code, ErrorCode::IdempotencyMismatch);
                        true
                    }
                    None => panic!("unanswered"),
                });
                assert!(refused == [true, false] || refused == [false, true], "{index}, {kind}: {refused:?}");
                assert_eq!(rig.field("counter", "c", "n"), json!(1), "{index}, {kind}");
                rig.assert_at_rest();
            }
        }
    }
}

#[test]
fn a_route_that_dies_keeps_its_key() {
    let mut rig = Rig::new(1);
    rig.run("note", "b", s().hash());
    let script = s().call(run("note", "a", s().add("n", 1).hash().call(run("note", "b", s().add("n", 1)))));
    let first = rig.route(script.clone(), Some("k"));
    let second = rig.offloads.pop_back().expect("the callee waits");
    rig.finish(second, Ok("null".into()));
    assert!(rig.reply(first).is_none(), "it has died for `b`");
    rig.run_to_rest();
    let again = rig.route(script, Some("k"));
    let called = rig.run_keyed("note", "a", s().add("n", 1), "k");
    rig.run_to_rest();
    assert!(rig.reply(first).is_some_and(Result::is_ok));
    assert_eq!(rig.reply(again), rig.reply(first));
    assert_eq!(rig.error(called), ErrorCode::IdempotencyMismatch);
    assert_eq!((rig.field("note", "a", "n"), rig.field("note", "b", "n")), (json!(1), json!(1)));
    rig.assert_at_rest();
}

/// They were kept by service and shard once, before any release. Nothing reads them any more.
#[test]
fn results_of_routes_from_before_keys_were_the_entitys_are_collected() {
    for (is_flushed, shards) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let mut rig = Rig::new(shards);
        let script = s().call(run("counter", "c", add()));
        rig.write_old_route_invocation_result(rig.shard_of("c"), &script, "k", &json!("first"));
        if is_flushed {
            rig.checkpoint();
        }
        rig.crash();
        let again = rig.route(script.clone(), Some("k"));
        let repeated = rig.route(script, Some("k"));
        rig.run_to_rest();
        assert_eq!((rig.value(again), rig.value(repeated)), (json!(1), json!(1)), "flushed: {is_flushed}");
        for _ in 0..100 {
            rig.tick(1_000);
        }
        rig.make_durable();
        assert_eq!(rig.bookkeeping_rows("outcome"), 0);
        rig.assert_at_rest();
    }
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
fn invocation_results_expire_and_are_collected() {
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

/// 600 keyed calls whose invocation results are in the checkpoint and not in memory, by `forget`.
fn invocation_results_only_on_disk(forget: impl Fn(&mut Rig)) {
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
fn invocation_results_of_before_a_restart_are_found_and_collected() {
    invocation_results_only_on_disk(Rig::crash);
}

#[test]
fn evicted_invocation_results_are_found_and_collected() {
    invocation_results_only_on_disk(|rig| {
        let store = rig.core.shards.get_mut(&ShardId(0)).expect("there").store();
        store.evict(0);
        assert_eq!(store.resident_bytes(), 0);
    });
}

#[test]
fn a_clock_that_jumps_ahead_and_back_keeps_no_invocation_result_for_ever() {
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
fn a_query_keeps_no_invocation_result() {
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
