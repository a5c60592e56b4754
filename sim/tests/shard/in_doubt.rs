//! Transactions over several shards whose messages come late, twice or in another order, and whose
//! shards stop or fill their disks in the middle: nothing takes effect twice or in part, nothing
//! that can be lost is seen, and nobody is left waiting.

use std::collections::VecDeque;

use millrace_shard::{PeerBody, PeerMessage, ToCoordinator, ToParticipation, Token};

use crate::layouts::LAYOUTS;
use crate::*;

/// Keys in three shards.
fn keys(rig: &Rig) -> [String; 3] {
    [0, 1, 2].map(|shard| rig.key_in(shard, "k"))
}

fn add() -> Script {
    s().add("n", 1)
}

/// Carries messages and makes entries durable until nothing is left; what was carried comes back.
fn rest_and_listen(rig: &mut Rig) -> Vec<(ShardId, PeerMessage)> {
    let mut delivered = Vec::new();
    loop {
        rig.make_durable();
        let Some((to, message)) = rig.peers.pop_front() else {
            return delivered;
        };
        delivered.push((to, message.clone()));
        rig.peer(to, message);
    }
}

/// Takes the messages out of the queue that `is_it`.
fn withhold(rig: &mut Rig, is_it: impl Fn(ShardId, &PeerMessage) -> bool) -> VecDeque<(ShardId, PeerMessage)> {
    let (taken, left) = std::mem::take(&mut rig.peers).into_iter().partition(|(to, message)| is_it(*to, message));
    rig.peers = left;
    taken
}

/// Two shards, each with a log of its own or with one for both.
const PAIRS: [[u16; 2]; 2] = [[0, 1], [0, 0]];

fn is_prepare(message: &PeerMessage) -> bool {
    matches!(message.body, PeerBody::ToParticipation(_, ToParticipation::Prepare { .. }))
}

#[test]
fn messages_that_come_again_after_the_end_take_no_effect() {
    for (is_coordinator_writing, logs) in [false, true].into_iter().flat_map(|is_it| PAIRS.map(|logs| (is_it, logs))) {
        let mut rig = Rig::with_logs(&logs);
        let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
        let script = s().call(run("note", &there, add()));
        let token = rig.run("note", &here, if is_coordinator_writing { script.add("n", 1) } else { script });
        let delivered = rest_and_listen(&mut rig);
        assert!(rig.reply(token).is_some_and(Result::is_ok));
        for _ in 0..2 {
            for (to, message) in delivered.clone() {
                rig.peer(to, message);
                rig.make_durable();
            }
            rig.settle();
        }
        assert_eq!(rig.field("note", &there, "n"), json!(1));
        assert_eq!(rig.bookkeeping_rows("prepared") + rig.bookkeeping_rows("decision"), 0);
        rig.assert_at_rest();
    }
}

#[test]
fn messages_that_come_again_before_everybody_has_confirmed_take_no_effect() {
    LAYOUTS.into_iter().for_each(messages_come_again_before_everybody_has_confirmed);
}

fn messages_come_again_before_everybody_has_confirmed(logs: &[u16]) {
    let mut rig = Rig::with_logs(logs);
    let [a, b, c] = keys(&rig);
    rig.run("note", &a, add().all([run("note", &b, add()), run("note", &c, add())]));
    let mut delivered = Vec::new();
    let mut late = VecDeque::new();
    loop {
        rig.make_durable();
        late.extend(withhold(&mut rig, |to, message| to == ShardId(2) && message.body == PeerBody::Commit));
        let Some((to, message)) = rig.peers.pop_front() else {
            break;
        };
        delivered.push((to, message.clone()));
        rig.peer(to, message);
    }
    assert_eq!(late.len(), 1, "the third shard has not heard of the commit");
    for (to, message) in delivered.into_iter().filter(|(to, _)| *to == ShardId(1)) {
        rig.peer(to, message);
        rig.make_durable();
    }
    rig.tick(1);
    late.extend(withhold(&mut rig, |to, _| to == ShardId(2)));
    rest_and_listen(&mut rig);
    rig.peers.extend(late);
    rig.settle();
    for key in [&a, &b, &c] {
        assert_eq!(rig.field("note", key, "n"), json!(1), "{key}");
    }
    rig.assert_at_rest();
}

#[test]
fn messages_out_of_order_over_a_tick_only_delay() {
    let mut rig = Rig::new(2);
    let here = rig.key_in(0, "a");
    let (b, c) = (rig.key_in(1, "b"), rig.key_in(1, "c"));
    let token = rig.run("note", &here, s().all([run("note", &b, add()), run("note", &c, add())]));
    rig.peers.make_contiguous().reverse();
    rig.carry_peer();
    rig.tick(1);
    rig.settle();
    assert_eq!(rig.value(token), json!([1, 1]));
    rig.assert_at_rest();
}

#[test]
fn a_commit_never_outlives_what_it_has_read_in_another_shard() {
    // The coordinator has only read, so it leaves the commit to the other shard. What it read is lost.
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    rig.run("note", &here, s().set("n", 5));
    rig.run("note", &here, s().at_least("n", 5).call(run("note", &there, s().set("seen", 5))));
    for _ in 0..10 {
        rig.carry_peers();
        rig.make_durable_in(ShardId(1));
    }
    rig.crash();
    rig.settle();
    assert_eq!(rig.field("note", &here, "n"), Json::Null, "it was never durable");
    assert_eq!(rig.field("note", &there, "seen"), Json::Null, "nobody can have seen it");
    rig.assert_at_rest();
}

#[test]
fn what_an_abort_left_behind_on_a_full_disk_does_not_keep_the_shard_from_starting() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let both = || add().call(run("note", &there, add()));
    let refused = rig.run("note", &here, both());
    rig.carry_peers();
    rig.make_durable_in(ShardId(1));
    rig.core.is_read_only = true;
    rig.carry_peers();
    assert_eq!(rig.error(refused), ErrorCode::ReadOnly);
    assert_eq!(rig.bookkeeping_rows("prepared"), 1, "its end cannot be noted now");
    rig.core.is_read_only = false;
    rig.run("note", &here, both());
    rig.carry_peers();
    rig.crash_keeping(|_| true);
    rig.settle();
    assert_eq!(rig.field("note", &there, "n"), Json::Null, "the home had not decided");
    assert_eq!(rig.bookkeeping_rows("prepared"), 0);
    rig.assert_at_rest();
}

#[test]
fn a_query_after_a_write_never_sees_what_came_before_its_readers() {
    // 1 reads `x`, then changes `y` in its coordinator. 2 changes `x` and is answered. A query begun after that must
    // see `y` as 1 leaves it: 1 came before 2.
    let mut rig = Rig::new(2);
    let (y, x) = (rig.key_in(0, "y"), rig.key_in(1, "x"));
    let first = rig.run("note", &y, s().call(read("note", &x, s().get("n"))).add("n", 1));
    while !rig.peers.iter().any(|(_, message)| is_prepare(message)) {
        rig.carry_peer();
    }
    rig.carry_peer();
    let vote = rig.peers.pop_front().expect("the other shard has voted");
    let second = rig.run("note", &x, s().set("n", 9));
    rig.make_durable_in(ShardId(1));
    if rig.reply(second).is_some() {
        let query = rig.read("note", &y, s().get("n"));
        rig.make_durable();
        assert_eq!(rig.value(query), json!(1), "2 is answered and came after 1, which is not to be seen");
    }
    rig.peers.push_front(vote);
    rig.settle();
    assert!(rig.reply(first).is_some_and(Result::is_ok) && rig.reply(second).is_some_and(Result::is_ok));
    rig.assert_at_rest();
}

#[test]
fn who_waits_for_a_shard_that_stops_is_answered() {
    // At every stage of three kinds of transactions.
    for (kind, stopping) in (0..3).flat_map(|kind| [0, 1].map(|shard| (kind, ShardId(shard)))) {
        for (step, logs) in (0..24).flat_map(|step| PAIRS.map(|logs| (step, logs))) {
            let mut rig = Rig::with_logs(&logs);
            let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
            let script = match kind {
                0 => s().call(run("note", &there, add())),
                1 => add().call(run("note", &there, add())),
                _ => add().call(read("note", &there, s().get("n"))),
            };
            let token = rig.run("note", &here, script);
            for step in 0..step {
                match step % 3 {
                    0 => drop(rig.carry_peer()),
                    shard => rig.make_durable_in(ShardId(shard - 1)),
                }
            }
            rig.stop(stopping);
            rig.settle();
            if rig.reply(token).is_some_and(Result::is_err) {
                assert_eq!(rig.error(token), ErrorCode::ShardStopped, "kind {kind}, {stopping} stops at {step}");
            }
            assert!(rig.reply(token).is_some(), "kind {kind}, {stopping} stops at {step}: nobody is answered");
            let answered_ok = rig.reply(token).is_some_and(Result::is_ok);
            rig.crash();
            rig.settle();
            let here_n = rig.field("note", &here, "n");
            let there_n = rig.field("note", &there, "n");
            match kind {
                0 => assert!(!answered_ok || there_n == json!(1)),
                1 => assert_eq!(here_n, there_n, "kind {kind}, {stopping} stops at {step}"),
                _ => assert!(!answered_ok || here_n == json!(1)),
            }
            rig.assert_at_rest();
        }
    }
}

#[test]
fn an_error_never_tells_what_a_stopped_shard_may_lose() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    rig.run("note", &there, s().set("n", 5));
    let token = rig.run("note", &here, s().call(read("note", &there, s().at_least("n", 5))).abort("it has 5"));
    rig.carry_peer();
    rig.carry_peer();
    rig.stop(ShardId(1));
    rig.settle();
    assert_eq!(rig.error(token), ErrorCode::ShardStopped);
}

#[test]
fn an_error_waits_until_what_it_tells_is_durable() {
    for script in [s().get("n"), s().get("n").start(run("note", "x", s().fail("unseen"))), s().get("n").hash()] {
        let mut rig = Rig::new(2);
        let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
        rig.run("note", &there, s().set("n", 5));
        let slow = run("note", &rig.key_in(1, "c"), script);
        let callees = [slow, run("note", &there, s().get("n").fail("it has 5"))];
        let token = rig.run("note", &here, s().all(callees));
        rig.carry_peers();
        rig.make_durable_in(ShardId(0));
        rig.carry_peers();
        assert!(rig.reply(token).is_none(), "what it has seen can still be lost");
        rig.settle();
        assert_eq!(rig.error(token), ErrorCode::FunctionFailed);
        rig.assert_at_rest();
    }
}

#[test]
fn a_stopped_coordinator_still_says_what_it_has_not_decided() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    rig.run("note", &here, add().call(run("note", &there, add())));
    let call = rig.peers.pop_front().expect("the call");
    rig.stop(ShardId(0));
    rig.carry_peers();
    rig.peers.push_back(call);
    rig.settle();
    assert_eq!(rig.core.shards[&ShardId(1)].figures().locked_entities, 0, "held for a transaction that never comes");
}

#[test]
fn a_full_disk_at_any_stage_leaves_nothing_half_done() {
    for is_coordinator_writing in [false, true] {
        for (step, logs) in (0..24).flat_map(|step| PAIRS.map(|logs| (step, logs))) {
            let mut rig = Rig::with_logs(&logs);
            let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
            let script = s().call(run("note", &there, add()));
            let token = rig.run("note", &here, if is_coordinator_writing { script.add("n", 1) } else { script });
            for step in 0..step {
                match step % 3 {
                    0 => drop(rig.carry_peer()),
                    shard => rig.make_durable_in(ShardId(shard - 1)),
                }
            }
            rig.core.is_read_only = true;
            rig.settle();
            assert!(rig.reply(token).is_some(), "step {step}: nobody is answered");
            let answered_ok = rig.reply(token).is_some_and(Result::is_ok);
            if !answered_ok {
                assert_eq!(rig.error(token), ErrorCode::ReadOnly);
            }
            rig.core.is_read_only = false;
            rig.settle();
            let expected = if answered_ok { json!(1) } else { Json::Null };
            assert_eq!(rig.field("note", &there, "n"), expected, "step {step}");
            if is_coordinator_writing {
                assert_eq!(rig.field("note", &here, "n"), expected, "step {step}");
            }
            assert_eq!(rig.bookkeeping_rows("prepared") + rig.bookkeeping_rows("decision"), 0);
            rig.assert_at_rest();
        }
    }
}

#[test]
fn a_wait_limit_at_any_stage_leaves_nothing_half_done() {
    for (step, logs) in (0..24).flat_map(|step| LAYOUTS.map(|logs| (step, logs))) {
        let mut rig = Rig::with_logs(logs);
        let [a, b, c] = keys(&rig);
        let token = rig.run("note", &a, add().all([run("note", &b, add()), run("note", &c, add())]));
        for step in 0..step {
            match step % 4 {
                0 => drop(rig.carry_peer()),
                shard => rig.make_durable_in(ShardId(shard - 1)),
            }
        }
        rig.tick(10_000);
        rig.settle();
        let is_done = rig.reply(token).expect("answered").is_ok();
        assert!(is_done || rig.error(token) == ErrorCode::WaitLimit);
        let expected = if is_done { json!(1) } else { Json::Null };
        for key in [&a, &b, &c] {
            assert_eq!(rig.field("note", key, "n"), expected, "step {step}");
        }
        rig.assert_at_rest();
    }
}

#[test]
fn a_read_of_state_waits_for_what_may_have_been_committed() {
    PAIRS.into_iter().for_each(reads_wait_for_what_may_have_been_committed);
}

fn reads_wait_for_what_may_have_been_committed(logs: [u16; 2]) {
    let mut rig = Rig::with_logs(&logs);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let token = rig.run("note", &here, add().call(run("note", &there, add())));
    let mut commits = VecDeque::new();
    while rig.reply(token).is_none() {
        rig.make_durable();
        commits.extend(withhold(&mut rig, |_, message| message.body == PeerBody::Commit));
        rig.carry_peer();
    }
    assert!(!commits.is_empty() || rig.peers.iter().any(|(_, message)| message.body == PeerBody::Commit));
    commits.extend(withhold(&mut rig, |_, message| message.body == PeerBody::Commit));
    let state = rig.state("note", &there, Some("n"));
    let query = rig.read("note", &there, s().get("n"));
    let nested = rig.read("note", &rig.key_in(1, "z"), s().call(read("note", &there, s().get("n"))));
    let across = rig.read("note", &here, s().all([&here, &there].map(|key| read("note", key, s().get("n")))));
    rig.run_to_rest();
    for token in [state, query, nested, across] {
        assert!(rig.reply(token).is_none(), "it would have to see what is not applied yet");
    }
    rig.peers.extend(commits);
    rig.settle();
    assert_eq!((rig.value(query), rig.value(nested), rig.value(across)), (json!(1), json!(1), json!([1, 1])));
    assert!(rig.reply(state).is_some_and(Result::is_ok));
    rig.assert_at_rest();
}

#[test]
fn a_participation_that_was_begun_twice_speaks_with_one_voice() {
    // The first participation dies for an older one; before that is heard, a second copy begins another.
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let other = rig.key_in(1, "c");
    rig.run("note", &there, s().hash());
    let token = rig.run("note", &here, add().call(run("note", &other, add().call(run("note", &there, add())))));
    let call = rig.peers.front().cloned().expect("the call");
    rig.carry_peer();
    let died = rig.peers.pop_front().expect("it has died");
    assert!(
        matches!(&died.1.body, PeerBody::ToCoordinator(1, said) if matches!(said.message, ToCoordinator::Died { .. }))
    );
    rig.finish_offload();
    rig.make_durable();
    rig.peer(call.0, call.1);
    rig.carry_peer();
    rig.peers.push_back(died);
    rig.settle();
    assert!(rig.reply(token).is_some_and(Result::is_ok));
    for key in [&here, &there, &other] {
        assert_eq!(rig.field("note", key, "n"), json!(1));
    }
    rig.assert_at_rest();
}

/// `here` calls `other` and `there` in the second shard, whose participation takes both calls and ends. Before anything
/// of that is heard, a second copy of the first call begins another participation. That one speaks first and never
/// hears of the second call.
fn begun_again_without_its_second_call(rig: &mut Rig, there: Script) -> Token {
    let keys = [rig.key_in(1, "c"), rig.key_in(1, "b")];
    let here = rig.key_in(0, "a");
    let token = rig.run("note", &here, add().all([run("note", &keys[0], add()), run("note", &keys[1], there)]));
    let again = rig.peers.front().cloned().expect("the first call");
    rig.carry_peer();
    rig.carry_peer();
    let late = std::mem::take(&mut rig.peers);
    let has_ended = |message: &PeerMessage| match &message.body {
        PeerBody::ToCoordinator(_, said) => {
            matches!(said.message, ToCoordinator::Died { .. } | ToCoordinator::Failed(_))
        }
        _ => false,
    };
    assert!(late.iter().any(|(_, message)| has_ended(message)));
    rig.peer(again.0, again.1);
    rig.carry_peer();
    rig.peers.extend(late);
    token
}

#[test]
fn what_a_participation_that_died_had_taken_is_not_waited_for_when_another_speaks_first() {
    let mut rig = Rig::new(2);
    let there = rig.key_in(1, "b");
    rig.run("note", &there, s().hash());
    let token = begun_again_without_its_second_call(&mut rig, add());
    rig.settle();
    assert_eq!(rig.value(token), json!([1, 1]));
    assert_eq!(rig.core.shards.values().map(|shard| shard.figures().restarts).sum::<u64>(), 1);
    rig.assert_at_rest();
}

#[test]
fn what_a_participation_that_failed_had_taken_is_not_waited_for_when_another_speaks_first() {
    let mut rig = Rig::new(2);
    let unseen = run("note", &rig.key_in(1, "x"), s().fail("unseen"));
    let token = begun_again_without_its_second_call(&mut rig, s().start(unseen));
    rig.settle();
    assert_eq!(rig.error(token), ErrorCode::FunctionFailed);
    rig.assert_at_rest();
}
