//! What one shard promises holds over several: exactly once under a key, one entry and one order of
//! messages, re-entrance, and the program a transaction began in.

use millrace_sim::random::Rng;

use crate::layouts::LAYOUTS;
use crate::*;

fn add() -> Script {
    s().add("n", 1)
}

/// Keys in three shards.
fn keys(rig: &Rig) -> [String; 3] {
    [0, 1, 2].map(|shard| rig.key_in(shard, "k"))
}

#[test]
fn one_shard_costs_one_entry_and_no_lock() {
    let mut rig = Rig::new(3);
    let (a, b) = (rig.key_in(0, "a"), rig.key_in(0, "b"));
    let token = rig.run("note", &a, add().call(run("note", &b, add())));
    assert_eq!((rig.log.len(), rig.peers.len()), (1, 0));
    assert_eq!(rig.core.shards[&ShardId(0)].figures().locked_entities, 0);
    rig.make_durable();
    assert!(rig.reply(token).is_some_and(Result::is_ok));
}

/// Entries until the reply, entries in all, and messages of a transaction.
fn costs(script: impl Fn(&[String; 3]) -> Script) -> (usize, usize, usize) {
    let mut rig = Rig::new(3);
    let keys = keys(&rig);
    let token = rig.run("note", &keys[0], script(&keys));
    let (mut messages, mut at_reply) = (0, None);
    for _ in 0..6 {
        while rig.carry_peer() {
            messages += 1;
        }
        let entries = rig.log.len();
        rig.make_durable();
        if rig.reply(token).is_some() {
            at_reply.get_or_insert(entries);
        }
    }
    rig.core.now = rig.core.now.plus(1_000);
    rig.tick(0);
    rig.settle();
    rig.assert_at_rest();
    (at_reply.expect("answered"), rig.log.len(), messages)
}

#[test]
fn transactions_cost_what_is_documented() {
    let found = [
        ("one shard", costs(|[a, ..]| add().call(run("note", a, s().get("n"))))),
        ("two shards, the coordinator writes nothing", costs(|[_, b, _]| s().call(run("note", b, add())))),
        ("two shards", costs(|[_, b, _]| add().call(run("note", b, add())))),
        ("two shards, the other only reads", costs(|[_, b, _]| add().call(read("note", b, s().get("n"))))),
        ("three shards, a tree", costs(|[_, b, c]| add().all([run("note", b, add()), run("note", c, add())]))),
        ("three shards, a chain", costs(|[_, b, c]| add().call(run("note", b, add().call(run("note", c, add())))))),
        ("two shards, a query", costs(|[_, b, _]| s().call(read("note", b, s().get("n"))))),
    ];
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/internals/transactions.md");
    let document = std::fs::read_to_string(path).expect("the document is there");
    let row = |(kind, (at_reply, in_all, messages)): (&str, (usize, usize, usize))| {
        format!("| {kind} | {at_reply} | {in_all} | {messages} |")
    };
    let missing: Vec<String> = found.map(row).into_iter().filter(|row| !document.contains(row)).collect();
    assert!(missing.is_empty(), "the document lacks\n{}", missing.join("\n"));
}

#[test]
fn an_entity_reached_again_through_another_shard_is_the_same() {
    let mut rig = Rig::new(2);
    let (a, b) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let again = run("note", &a, add().call(run("note", &b, add().call(run("note", &a, add())))));
    let token = rig.run("note", &a, add().call(run("note", &b, add().call(again))).get("n"));
    rig.run_to_rest();
    assert_eq!(rig.value(token), json!(3));
    assert_eq!((rig.field("note", &a, "n"), rig.field("note", &b, "n")), (json!(3), json!(2)));
    assert_eq!(rig.core.shards.values().map(|shard| shard.figures().restarts).sum::<u64>(), 0);
    rig.assert_at_rest();
}

#[test]
fn sendings_under_one_key_take_effect_once_however_they_meet() {
    let mut amid_tails = 0;
    for seed in 0..1_200 {
        let mut rng = Rng::new(seed);
        let mut rig = Rig::with_logs(LAYOUTS[rng.index(LAYOUTS.len())]);
        let [a, b, c] = keys(&rig);
        let is_route = seed % 2 == 0;
        let script = || add().all([run("note", &b, add().hash()), run("note", &c, add())]);
        let send = |rig: &mut Rig| match is_route {
            true => rig.route(s().call(run("note", &a, script())).call(run("note", &b, s().get("n"))), Some("k")),
            false => rig.run_keyed("note", &a, script(), "k"),
        };
        let mut tokens = vec![send(&mut rig)];
        let crash_at = rng.index(120);
        for step in 0..400 {
            if step == crash_at {
                let tails = rig.tails();
                let kept: Vec<usize> = tails.iter().map(|tail| rng.index(tail + 1)).collect();
                amid_tails += usize::from(tails.iter().zip(&kept).any(|(tail, kept)| (1..*tail).contains(kept)));
                rig.crash_keeping_entries(&kept);
                tokens = vec![send(&mut rig)];
            }
            match rng.below(7) {
                0 if step < 160 => tokens.push(send(&mut rig)),
                1 => drop(rig.run("note", [&a, &b, &c][rng.index(3)], s().add("other", 1).hash())),
                2 if !rig.offloads.is_empty() => rig.finish_offload(),
                4 => rig.make_durable_in(ShardId(u16::try_from(rng.below(3)).expect("small"))),
                _ if !rig.peers.is_empty() => {
                    let (to, message) = rig.peers.remove(rng.index(rig.peers.len())).expect("within");
                    rig.peer(to, message);
                }
                _ => {}
            }
        }
        rig.settle();
        let first = rig.reply(tokens[0]).cloned();
        assert!(first.as_ref().is_some_and(Result::is_ok), "seed {seed}: {first:?}");
        assert!(tokens.iter().all(|token| rig.reply(*token) == first.as_ref()), "seed {seed}");
        for key in [&a, &b, &c] {
            assert_eq!(rig.field("note", key, "n"), json!(1), "seed {seed}");
        }
        rig.assert_at_rest();
    }
    assert!(amid_tails > 50, "only {amid_tails} crashes amid a tail");
}

#[test]
fn an_abort_is_kept_under_its_key_also_when_another_shard_says_it() {
    let mut rig = Rig::new(2);
    let (a, b) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let script = || add().call(run("note", &b, s().at_least("n", 1).add("n", 1)));
    let first = rig.run_keyed("note", &a, script(), "k");
    rig.settle();
    rig.run("note", &b, s().set("n", 5));
    let again = rig.run_keyed("note", &a, script(), "k");
    rig.settle();
    assert_eq!((rig.error(first), rig.error(again)), (ErrorCode::Aborted, ErrorCode::Aborted));
    assert_eq!((rig.field("note", &a, "n"), rig.field("note", &b, "n")), (Json::Null, json!(5)));
    rig.assert_at_rest();
}

#[test]
fn messages_of_a_participation_leave_if_and_when_it_commits_in_their_order() {
    for fails in [false, true] {
        let mut rig = Rig::new(3);
        let [a, b, c] = keys(&rig);
        let push = |n: i64| run("note", &c, s().set(&format!("m{n}"), n).set("last", n));
        let sends = s().send(push(1), 0).send(push(2), 0).send(run("note", &b, s().set("own", 1)), 0).add("n", 1);
        let script = add().call(run("note", &b, sends)).send(run("note", &c, s().set("root", 1)), 0);
        let script = if fails { script.fail("no") } else { script };
        let token = rig.run("note", &a, script);
        rig.carry_peers();
        assert!(rig.deliveries.is_empty(), "nothing leaves before the decision");
        rig.crash_keeping(|_| true);
        rig.settle();
        let found = ["m1", "m2", "last", "root"].map(|field| rig.field("note", &c, field));
        assert_eq!(found, [Json::Null, Json::Null, Json::Null, Json::Null], "prepared is not decided");
        let token = if rig.reply(token).is_none() {
            let sends = s().send(push(1), 0).send(push(2), 0).send(run("note", &b, s().set("own", 1)), 0);
            let script = add().call(run("note", &b, sends.add("n", 1))).send(run("note", &c, s().set("root", 1)), 0);
            rig.run("note", &a, if fails { script.fail("no") } else { script })
        } else {
            token
        };
        rig.settle();
        let found = ["m1", "m2", "last", "root"].map(|field| rig.field("note", &c, field));
        if fails {
            assert_eq!(rig.error(token), ErrorCode::FunctionFailed);
            assert_eq!(found, [Json::Null, Json::Null, Json::Null, Json::Null]);
        } else {
            assert_eq!(found, [json!(1), json!(2), json!(2), json!(1)]);
            assert_eq!(rig.field("note", &b, "own"), json!(1));
        }
        rig.assert_at_rest();
    }
}

#[test]
fn a_caught_failure_sends_nothing_from_any_shard() {
    let mut rig = Rig::new(3);
    let [a, b, c] = keys(&rig);
    let inner = run("note", &c, s().send(run("note", &c, add()), 0));
    let failing = run("note", &b, s().send(run("note", &b, add()), 0).call(inner).fail("no"));
    rig.run("note", &a, add().try_call(failing).send(run("note", &a, s().add("sent", 1)), 0));
    rig.settle();
    assert_eq!((rig.field("note", &b, "n"), rig.field("note", &c, "n")), (Json::Null, Json::Null));
    assert_eq!(rig.field("note", &a, "sent"), json!(1));
    rig.assert_at_rest();
}

#[test]
fn a_transaction_goes_on_in_the_program_it_began_in() {
    let mut rig = Rig::new(2);
    let (a, b) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let token = rig.run("note", &a, add().call(run("note", &b, add().hash())).call(run("note", &b, add())));
    rig.carry_peers();
    let old = rig.core.catalog.service(Some(millrace_sim::rig::APP), "note").expect("known").0;
    let core = &mut rig.core;
    core.engine.add_app(&mut core.catalog, millrace_sim::rig::APP, millrace_func::Limits::default());
    for shard in rig.core.shards.values() {
        assert!(shard.needs_program(old), "both shards still run it");
    }
    rig.settle();
    assert_eq!(rig.value(token), json!(2));
    assert!(rig.core.shards.values().all(|shard| !shard.needs_program(old)));
    rig.assert_at_rest();
}

#[test]
fn an_app_that_is_gone_from_the_other_shard_is_an_error_and_nothing_is_left() {
    let mut rig = Rig::new(2);
    let (a, b) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let token = rig.run("note", &a, add().hash().call(run("note", &b, add())));
    let program = rig.core.catalog.deactivate(millrace_sim::rig::APP).expect("it was there");
    rig.core.catalog.remove(program);
    rig.settle();
    assert_eq!(rig.error(token), ErrorCode::UnknownHandler);
    rig.assert_at_rest();
}
