//! Transactions that want the same entities of several shards in any order all come to their end. None of them waits
//! until its time is up. They start again a bounded number of times.

use millrace_sim::random::Rng;

use crate::layouts::LAYOUTS;
use crate::*;

/// Hands over the oldest message between two shards, drawn at random among those that have one.
fn carry_any(rig: &mut Rig, rng: &mut Rng) {
    let (to, from) = {
        let (to, message) = &rig.peers[rng.index(rig.peers.len())];
        (*to, message.from)
    };
    let oldest = rig.peers.iter().position(|(other, message)| (*other, message.from) == (to, from));
    let (to, message) = rig.peers.remove(oldest.expect("just seen")).expect("within");
    rig.peer(to, message);
}

/// Lets everything happen in random order until nothing is left, and no time pass.
fn random_rest(rig: &mut Rig, rng: &mut Rng, shard_count: u64) {
    for _ in 0..1_000_000 {
        match rng.below(6) {
            0 => rig.make_durable_in(ShardId(u16::try_from(rng.below(shard_count)).expect("small"))),
            1 if !rig.offloads.is_empty() => {
                let ticket = rig.offloads.remove(rng.index(rig.offloads.len())).expect("within");
                rig.finish(ticket, Ok("null".into()));
            }
            _ if !rig.peers.is_empty() => carry_any(rig, rng),
            _ if rig.offloads.is_empty() => {
                rig.make_durable();
                if rig.peers.is_empty() {
                    return;
                }
            }
            _ => {}
        }
    }
    panic!("it never comes to rest");
}

fn restarts(rig: &Rig) -> u64 {
    rig.core.shards.values().map(|shard| shard.figures().restarts).sum()
}

/// Which shards share a log is another one from seed to seed.
fn some_logs(seed: u64) -> &'static [u16] {
    LAYOUTS[usize::try_from(seed).expect("small") % LAYOUTS.len()]
}

/// `count` transactions, each adding to some of `hot` entities. Gives how often any started again.
fn crowd(seed: u64, count: usize, hot: usize) -> u64 {
    let mut rng = Rng::new(seed);
    let mut rig = Rig::with_logs(some_logs(seed));
    let keys: Vec<String> = (0..hot).map(|index| rig.key_in((index % 3) as u16, &format!("hot{index}-"))).collect();
    let mut tokens = Vec::new();
    let mut expected = vec![0; hot];
    for _ in 0..count {
        let order: Vec<usize> = (0..4).map(|_| rng.index(hot)).collect();
        order[1..].iter().for_each(|index| expected[*index] += 1);
        let callee = |rng: &mut Rng, index: usize| {
            let script = s().add("n", 1);
            run("note", &keys[index], if rng.chance(1, 4) { script.hash() } else { script })
        };
        let callees: Vec<Callee> = order[1..].iter().map(|index| callee(&mut rng, *index)).collect();
        let script = match rng.below(4) {
            0 => s().all(callees),
            1 => s().call(read("note", &keys[order[1]], s().get("n"))).all(callees),
            _ => callees.into_iter().fold(s(), Script::call),
        };
        let token =
            if rng.chance(1, 3) { rig.route(script, None) } else { rig.run("counter", &keys[order[0]], script) };
        tokens.push(token);
        for _ in 0..rng.below(6) {
            rig.carry_peer();
        }
    }
    random_rest(&mut rig, &mut rng, 3);
    for token in tokens {
        let reply = rig.reply(token);
        assert!(reply.is_some_and(Result::is_ok), "seed {seed}: {reply:?}");
    }
    for (key, expected) in keys.iter().zip(expected) {
        assert_eq!(rig.field("note", key, "n").as_i64().unwrap_or(0), expected, "seed {seed}: {key}");
    }
    rig.assert_at_rest();
    restarts(&rig)
}

#[test]
fn any_order_over_hot_entities_comes_to_its_end_without_the_wait_limit() {
    let (mut total, mut most) = (0, 0);
    let (seeds, count) = (800, 24);
    for seed in 0..seeds {
        let restarts = crowd(seed, count, 5);
        (total, most) = (total + restarts, most.max(restarts));
    }
    println!("restarts: {total} in {seeds} runs of {count} transactions, at most {most} in one");
    // Somebody older is behind every restart, and each has so many who are older.
    let bound = (count * (count - 1) / 2 * 2) as u64;
    assert!(most <= bound, "{most} restarts of {count} transactions");
}

#[test]
fn two_that_want_what_the_other_has_are_both_done() {
    for logs in [[0, 1], [0, 0]] {
        let mut rig = Rig::with_logs(&logs);
        let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
        let add = |key: &str| run("note", key, s().add("n", 1));
        let tokens = [rig.run("note", &here, s().call(add(&there))), rig.run("note", &there, s().call(add(&here)))];
        rig.run_to_rest();
        assert!(tokens.iter().all(|token| rig.reply(*token).is_some_and(Result::is_ok)));
        assert_eq!(restarts(&rig), 1);
        rig.assert_at_rest();
    }
}

#[test]
fn parallel_calls_wait_together_for_the_first_entity() {
    let mut rig = Rig::new(1);
    let older = rig.run("note", "a", s().add("n", 1).hash());
    let add = |key| run("note", key, s().add("n", 10));
    let waiting = rig.route(s().all([add("a"), add("b"), add("a")]), None);
    let meanwhile = rig.run("note", "b", s().add("n", 1));
    rig.make_durable();
    assert_eq!(rig.value(meanwhile), json!(1), "who waits for its first entity holds nothing");
    assert!(rig.reply(older).is_none() && rig.reply(waiting).is_none());
    rig.finish_offload();
    rig.run_to_rest();
    assert!(rig.reply(waiting).is_some_and(Result::is_ok));
    assert_eq!((rig.field("note", "a", "n"), rig.field("note", "b", "n")), (json!(21), json!(11)));
    assert_eq!(restarts(&rig), 0);
    rig.assert_at_rest();
}

#[test]
fn a_younger_one_waits_for_one_whose_votes_are_asked_for() {
    for is_at_coordinator in [true, false] {
        let mut rig = Rig::new(2);
        let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
        let add = |key: &str| run("note", key, s().add("n", 1));
        let older = rig.run("note", &here, s().add("n", 1).call(add(&there)));
        // Call, Result, Prepare; the vote waits for the disk.
        (0..3).for_each(|_| assert!(rig.carry_peer()));
        rig.core.now = rig.core.now.plus(1);
        let (coordinator, wanted) = if is_at_coordinator { (1, &here) } else { (0, &there) };
        let own = rig.key_in(coordinator, "own");
        let younger = rig.run("note", &own, s().add("n", 1).call(add(wanted)));
        while rig.carry_peer() {}
        assert!(rig.reply(older).is_none() && rig.reply(younger).is_none());
        rig.run_to_rest();
        assert!([older, younger].iter().all(|token| rig.reply(*token).is_some_and(Result::is_ok)));
        assert_eq!(restarts(&rig), 0);
        assert_eq!(rig.field("note", wanted, "n"), json!(2));
        rig.assert_at_rest();
    }
}

#[test]
fn the_oldest_never_starts_again() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut rig = Rig::with_logs(some_logs(seed));
        let keys: Vec<String> = (0..3).map(|shard| rig.key_in(shard, "k")).collect();
        let all = || s().random().all(keys.iter().map(|key| run("note", key, s().add("n", 1).hash())));
        let oldest = rig.run("counter", &keys[0], all());
        for _ in 0..6 {
            rig.core.now = rig.core.now.plus(1);
            let key = rng.index(3);
            rig.run("counter", &keys[key], all());
        }
        let mut turns = 0;
        while rig.reply(oldest).is_none() && turns < 10_000 {
            turns += 1;
            rig.make_durable_in(ShardId((turns % 3) as u16));
            if !rig.offloads.is_empty() && rng.chance(1, 3) {
                rig.finish_offload();
            }
            if !rig.peers.is_empty() {
                carry_any(&mut rig, &mut rng);
            }
        }
        assert!(rig.reply(oldest).is_some_and(Result::is_ok), "seed {seed}");
        random_rest(&mut rig, &mut rng, 3);
        assert_eq!(rig.field("note", &keys[2], "n"), json!(7));
        rig.assert_at_rest();
    }
}
