//! Messages between entities take effect exactly once, in their order, whatever is repeated,
//! lost on the way or interrupted by a crash.

use millrace_base::limits;
use millrace_format::ResultState;
use millrace_shard::{Delivery, Reply};
use millrace_sim::random::Rng;

use crate::*;

fn invocation_result(rig: &mut Rig, id: millrace_shard::InvocationId) -> ResultState {
    let token = rig.invocation(id);
    rig.make_durable();
    match rig.reply(token) {
        Some(Ok(Reply::Invocation(invocation_result, _) | Reply::FailingInvocation(invocation_result, ..))) => {
            invocation_result.result.clone()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_delayed_message_runs_when_it_is_due_also_after_a_crash() {
    let mut rig = Rig::new(1);
    rig.run("note", "a", s().send(run("note", "b", s().add("n", 1)), 5_000));
    rig.make_durable();
    rig.tick(4_999);
    assert_eq!(rig.field("note", "b", "n"), Json::Null);
    rig.crash();
    let due = rig.core.with(ShardId(0), |shard, _| shard.next_due());
    assert_eq!(due, Some(rig.core.now.plus(1)));
    rig.tick(1);
    assert_eq!(rig.field("note", "b", "n"), json!(1));
    rig.run_to_rest();
    assert_eq!((rig.bookkeeping_rows("inbox"), rig.core.with(ShardId(0), |shard, _| shard.next_due())), (0, None));
    rig.assert_at_rest();
}

#[test]
fn messages_arrive_once_and_in_order_whatever_happens_on_the_way() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut rig = Rig::new(2);
        let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
        let mut sent = 0;
        for _ in 0..60 {
            match rng.below(10) {
                0..=2 if !rig.core.is_read_only => {
                    let number = sent;
                    let receive = s().at_least("n", number).add("n", 1);
                    rig.run("note", &here, s().add("n", 1).send(run("note", &there, receive), 0));
                    rig.make_durable();
                    sent += 1;
                }
                3 => rig.tick(1_000),
                4..=6 if !rig.deliveries.is_empty() => {
                    let index = rng.index(rig.deliveries.len());
                    let (to, delivery) = rig.deliveries[index].clone();
                    match rng.below(4) {
                        0 => drop(rig.deliveries.remove(index)),
                        1 => rig.deliver(to, delivery),
                        _ => {
                            rig.deliveries.remove(index);
                            rig.deliver(to, delivery);
                        }
                    }
                }
                7 if !rig.acknowledgements.is_empty() => {
                    let index = rng.index(rig.acknowledgements.len());
                    let acknowledgement = rig.acknowledgements.remove(index).expect("within");
                    if rng.chance(2, 3) {
                        rig.acknowledge(acknowledgement);
                    }
                }
                8 => rig.core.is_read_only = rng.chance(1, 3),
                9 if rng.chance(1, 4) => {
                    rig.make_durable();
                    rig.core.is_read_only = false;
                    rig.crash();
                }
                _ => rig.make_durable(),
            }
            if rig.core.is_read_only && rng.chance(1, 2) {
                rig.core.is_read_only = false;
            }
        }
        rig.core.is_read_only = false;
        for _ in 0..4 {
            rig.run_to_rest();
            // Longer than it waits before it sends again, however often it had no answer.
            rig.tick(20_000);
        }
        rig.run_to_rest();
        let expected = rig.field("note", &here, "n");
        assert_eq!(rig.field("note", &there, "n"), expected, "seed {seed}: {sent} tried");
        assert_eq!((rig.bookkeeping_rows("outbox"), rig.bookkeeping_rows("dead")), (0, 0), "seed {seed}");
        rig.assert_at_rest();
    }
}

#[test]
fn a_message_lost_before_others_is_not_skipped() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let send = s().send(run("note", &there, s().add("n", 1)), 0);
    rig.run("note", &here, send.clone().send(run("note", &there, s().add("n", 1)), 0));
    rig.make_durable();
    let (to, second) = rig.deliveries.pop_back().expect("two");
    rig.deliveries.clear();
    rig.deliver(to, second);
    assert_eq!(rig.field("note", &there, "n"), Json::Null, "the first one has to come first");
    rig.tick(1_000);
    rig.run_to_rest();
    assert_eq!(rig.field("note", &there, "n"), json!(2));
}

#[test]
fn a_failing_message_is_tried_again_and_then_set_aside() {
    let mut rig = Rig::new(1);
    rig.options.retention_ms = 60 * 60_000;
    rig.crash();
    let sent = rig.send(("note", "b", "run"), s().set("n", 1).fail("always"), 0, None);
    rig.make_durable();
    let id = rig.sent(sent);
    assert_eq!(invocation_result(&mut rig, id), ResultState::Pending);
    for _ in 0..20 {
        rig.tick(60_000);
    }
    rig.make_durable();
    assert!(
        matches!(invocation_result(&mut rig, id), ResultState::Error(error) if error.code == ErrorCode::FunctionFailed)
    );
    assert_eq!((rig.bookkeeping_rows("dead"), rig.bookkeeping_rows("inbox")), (1, 0));
    assert_eq!(rig.core.engine.turns(), 16);
    rig.assert_at_rest();
}

#[test]
fn a_retry_waits_longer_each_time() {
    let mut rig = Rig::new(1);
    rig.run("note", "a", s().send(run("note", "b", s().fail("no")), 0));
    let mut waits = Vec::new();
    for _ in 0..6 {
        let due = rig.core.with(ShardId(0), |shard, _| shard.next_due()).expect("it waits");
        waits.push(due.0 - rig.core.now.0);
        rig.tick(due.0 - rig.core.now.0);
    }
    assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200]);
}

#[test]
fn an_abort_is_final_and_in_one_entry() {
    let mut rig = Rig::new(1);
    let sent = rig.send(("note", "b", "run"), s().abort("no"), 0, None);
    rig.make_durable();
    let id = rig.sent(sent);
    assert_eq!(rig.log.len(), 2, "its outcome and the end of its row belong together");
    assert!(matches!(invocation_result(&mut rig, id), ResultState::Error(error) if error.code == ErrorCode::Aborted));
    assert_eq!((rig.bookkeeping_rows("dead"), rig.bookkeeping_rows("inbox")), (0, 0));
}

#[test]
fn every_invocation_has_an_invocation_result_that_expires() {
    let mut rig = Rig::new(1);
    for (handler, script, value) in [("run", s().add("n", 1), "1"), ("read", s().returns("seen"), "\"seen\"")] {
        let sent = rig.send(("note", "b", handler), script, 0, None);
        rig.make_durable();
        let id = rig.sent(sent);
        assert_eq!(invocation_result(&mut rig, id), ResultState::Value(value.into()), "{handler}");
        rig.tick(60_000);
        let token = rig.invocation(id);
        rig.make_durable();
        assert_eq!(rig.error(token), ErrorCode::UnknownInvocation);
    }
    rig.tick(1_000);
    rig.make_durable();
    assert_eq!(rig.bookkeeping_rows("outcome"), 0);
}

#[test]
fn a_message_waits_its_turn_behind_a_suspended_call() {
    let mut rig = Rig::new(1);
    rig.run("counter", "c", s().add("n", 1).hash());
    rig.send(("counter", "c", "run"), s().add("n", 1).hash(), 0, None);
    assert_eq!(rig.offloads.len(), 1);
    rig.run_to_rest();
    assert_eq!(rig.field("counter", "c", "n"), json!(2));
    rig.assert_at_rest();
}

#[test]
fn a_crash_in_the_middle_of_a_message_runs_it_again_once() {
    let mut rig = Rig::new(1);
    rig.send(("counter", "c", "run"), s().add("n", 1).hash(), 0, None);
    rig.make_durable();
    rig.crash();
    assert_eq!(rig.offloads.len(), 1, "it starts again by itself");
    rig.run_to_rest();
    rig.crash();
    rig.run_to_rest();
    assert_eq!(rig.field("counter", "c", "n"), json!(1));
}

#[test]
fn more_messages_than_memory_keeps_are_all_run_in_order() {
    let mut rig = Rig::new(1);
    for round in 0..20 {
        let script = (0..500).fold(s(), |script, n| {
            let number = round * 500 + n;
            script.send(run("note", "b", s().at_least("n", number).add("n", 1)), 10)
        });
        rig.run("note", "a", script);
    }
    rig.tick(10);
    rig.make_durable();
    assert_eq!(rig.field("note", "b", "n"), json!(10_000));
    assert_eq!((rig.bookkeeping_rows("inbox"), rig.bookkeeping_rows("dead")), (0, 0));
}

/// Sends `count` messages from shard 0 to `to`, each of which adds one and is `content` long.
fn send_many(rig: &mut Rig, to: &str, count: usize, content: &str) {
    let here = rig.key_in(0, "a");
    for _ in 0..count {
        rig.run("note", &here, s().send(run("note", to, s().set("text", content).add("n", 1)), 0));
    }
    rig.make_durable();
}

/// What is on the way, in the order it was sent.
fn take_deliveries(rig: &mut Rig) -> Vec<(ShardId, Delivery)> {
    rig.deliveries.drain(..).collect()
}

#[test]
fn what_is_on_the_way_is_bounded_in_bytes_and_receivers_take_turns() {
    const LARGE_BYTES: usize = 1_000_000;
    let mut rig = Rig::new(3);
    let receivers = [rig.key_in(1, "b"), rig.key_in(2, "c")];
    for to in &receivers {
        send_many(&mut rig, to, 12, &"x".repeat(LARGE_BYTES));
    }
    let mut turns = Vec::new();
    loop {
        let deliveries = take_deliveries(&mut rig);
        let Some((to, _)) = deliveries.first() else { break };
        turns.push(*to);
        let bytes: usize = deliveries.iter().map(|(_, delivery)| delivery.message.len()).sum();
        assert!(bytes < limits::DELIVERY_BYTES / 3 + 2 * LARGE_BYTES, "{bytes} bytes at once");
        for (to, delivery) in deliveries {
            rig.deliver(to, delivery);
        }
        rig.make_durable();
        while let Some(acknowledgement) = rig.acknowledgements.pop_front() {
            rig.acknowledge(acknowledgement);
        }
    }
    let took_turns = turns.windows(2).all(|pair| pair[0] != pair[1]);
    assert!(took_turns && turns.len() >= 4, "{turns:?}");
    for to in &receivers {
        assert_eq!(rig.field("note", to, "n"), json!(12));
    }
    rig.tick(1_000);
    rig.run_to_rest();
    assert_eq!(rig.bookkeeping_rows("outbox"), 0);
    rig.assert_at_rest();
}

#[test]
fn who_is_silent_gets_one_message_less_and_less_often_and_holds_up_nobody() {
    let mut rig = Rig::new(3);
    let (silent, other) = (rig.key_in(1, "b"), rig.key_in(2, "c"));
    send_many(&mut rig, &silent, 2 * limits::DELIVERY_WINDOW, "");
    // Large enough to take all the room that there is.
    send_many(&mut rig, &silent, 10, &"x".repeat(1_000_000));
    assert_eq!(take_deliveries(&mut rig).len(), limits::DELIVERY_WINDOW);
    let mut again = Vec::new();
    for second in 1..=60 {
        rig.tick(1_000);
        let (lost, rest): (Vec<_>, Vec<_>) =
            take_deliveries(&mut rig).into_iter().partition(|(to, _)| *to == ShardId(1));
        assert!(lost.len() <= 1, "{} messages in second {second}", lost.len());
        again.extend(lost.iter().map(|_| second));
        rig.deliveries.extend(rest);
        send_many(&mut rig, &other, 1, "");
        rig.run_to_rest();
        assert_eq!(rig.field("note", &other, "n"), json!(second));
    }
    assert_eq!(again, [1, 3, 7, 15, 31, 47]);
    rig.tick(20_000);
    rig.run_to_rest();
    assert_eq!(rig.field("note", &silent, "n"), json!(2 * limits::DELIVERY_WINDOW + 10));
    rig.tick(1_000);
    rig.run_to_rest();
    assert_eq!(rig.bookkeeping_rows("outbox"), 0);
    rig.assert_at_rest();
}

#[test]
fn a_clock_set_back_does_not_keep_what_was_lost_from_being_sent_again() {
    let mut rig = Rig::new(2);
    rig.tick(3_600_000);
    let there = rig.key_in(1, "b");
    send_many(&mut rig, &there, 1, "");
    assert_eq!(take_deliveries(&mut rig).len(), 1);
    rig.core.set_back(3_600_000);
    rig.tick(0);
    rig.tick(1_000);
    assert_eq!(take_deliveries(&mut rig).len(), 1);
}

#[test]
fn large_messages_that_wait_for_their_receiver_keep_no_others_waiting() {
    let mut rig = Rig::new(1);
    let large = "x".repeat(3_900_000);
    for _ in 0..6 {
        rig.send(("note", "slow", "run"), s().hash().returns(large.as_str()), 10, None);
    }
    rig.send(("note", "b", "run"), s().set("n", 1), 10, None);
    rig.make_durable();
    // As after a start: what is in the inbox is not known yet.
    rig.crash();
    rig.tick(10);
    assert_eq!(rig.field("note", "b", "n"), json!(1));
    assert_eq!(rig.core.with(ShardId(0), |shard, _| shard.next_due()), None, "there is nothing to do meanwhile");
    rig.settle();
    assert_eq!(rig.bookkeeping_rows("inbox"), 0);
    rig.assert_at_rest();
}
