//! One shard fails alone, is opened again from what its log had made durable, and the others run on. What it has promised
//! them holds; what it did is learnt from its log; and nobody waits for what it has forgotten.

use millrace_shard::{OffloadTicket, PeerBody, PeerMessage, ToCoordinator, ToParticipation};
use millrace_sim::rig_logs::OnItsWay;

use crate::*;

const CALLER: ShardId = ShardId(0);
const OTHER: ShardId = ShardId(1);

/// How long shards hold what they have locked.
const HOLD_MS: u64 = 100;

fn add() -> Script {
    s().add("n", 1)
}

fn rig() -> (Rig, String, String) {
    let rig = Rig::failing_alone(2, HOLD_MS);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    (rig, here, there)
}

/// Carries messages up to the first that `is_it`, which stays in the queue.
fn carry_up_to(rig: &mut Rig, is_it: impl Fn(&PeerMessage) -> bool) {
    loop {
        rig.make_durable();
        match rig.peers.front() {
            Some((_, message)) if is_it(message) => return,
            Some(_) => drop(rig.carry_peer()),
            None => panic!("nobody says it"),
        }
    }
}

fn is_said(message: &PeerMessage, is_it: impl Fn(&ToCoordinator) -> bool) -> bool {
    matches!(&message.body, PeerBody::ToCoordinator(_, said) if is_it(&said.message))
}

fn is_prepare(message: &PeerMessage) -> bool {
    matches!(message.body, PeerBody::ToParticipation(_, ToParticipation::Prepare { .. }))
}

fn opens(rig: &mut Rig, shard: ShardId) {
    rig.open(shard);
    rig.tell_opened(shard);
}

#[test]
fn what_a_lost_shard_had_read_is_not_written_before_its_vote_has_lapsed() {
    let (mut rig, y, x) = rig();
    // 1 reads `x` and changes `y`. Its vote about `x` is on its way when the shard of `x` fails.
    let first = rig.run("note", &y, s().call(read("note", &x, s().get("n"))).add("n", 1));
    rig.run("note", &x, s().set("m", 1));
    carry_up_to(&mut rig, |message| is_said(message, |said| matches!(said, ToCoordinator::ReadOnly { .. })));
    let vote = rig.peers.pop_front().expect("the vote");
    rig.lose(OTHER, 0);
    rig.open(OTHER);
    // 2 changes `x`. As long as 1 may still be committed, 2 must not be answered.
    let second = rig.run("note", &x, s().set("n", 9));
    rig.tick(HOLD_MS - 1);
    rig.run_to_rest();
    assert!(rig.reply(second).is_none(), "1 may be committed after it");
    let look = rig.read("note", &x, s().get("n"));
    assert!(rig.reply(look).is_some_and(Result::is_ok), "reading goes on");
    rig.tick(HOLD_MS);
    rig.run_to_rest();
    assert!(rig.reply(second).is_some_and(Result::is_ok), "the time is over");
    // The vote has lapsed: the coordinator must not decide by it.
    rig.peers.push_back(vote);
    rig.run_to_rest();
    let seen = rig.read("note", &y, s().get("n"));
    rig.run_to_rest();
    assert_eq!(rig.value(seen), Json::Null, "2 was answered before, and 1 read what 2 has changed");
    rig.tell_opened(OTHER);
    rig.settle();
    assert!(rig.reply(first).is_some_and(Result::is_ok));
    assert_eq!(rig.field("note", &y, "n"), json!(1), "it has started again");
    rig.assert_at_rest();
}

#[test]
fn a_shard_that_held_nothing_when_it_was_handed_on_writes_at_once() {
    let (mut rig, y, x) = rig();
    // It holds `x` for a transaction that has voted to read it, and nothing after that.
    let first = rig.run("note", &y, s().call(read("note", &x, s().get("n"))).add("n", 1));
    carry_up_to(&mut rig, |message| is_said(message, |said| matches!(said, ToCoordinator::ReadOnly { .. })));
    assert!(!rig.core.shards[&OTHER].holds_nothing(), "its vote counts");
    rig.settle();
    assert!(rig.reply(first).is_some_and(Result::is_ok) && rig.core.shards[&OTHER].holds_nothing());
    for is_handed_on in [false, true] {
        let written = rig.run("note", &x, s().add("n", 1));
        rig.settle();
        assert!(rig.reply(written).is_some_and(Result::is_ok));
        rig.lose(OTHER, 0);
        opens(&mut rig, OTHER);
        assert!(!rig.core.shards[&OTHER].holds_nothing(), "what an earlier opening has held is not known");
        if is_handed_on {
            rig.core.shards.get_mut(&OTHER).expect("it is open").inherits_nothing();
        }
        let written = rig.run("note", &x, s().add("n", 1));
        rig.run_to_rest();
        assert_eq!(rig.reply(written).is_some_and(Result::is_ok), is_handed_on);
        rig.tick(2 * HOLD_MS);
        rig.settle();
    }
    rig.assert_at_rest();
}

#[test]
fn a_vote_that_has_lapsed_is_asked_for_again_of_a_shard_that_lives() {
    let mut rig = Rig::failing_alone(3, HOLD_MS);
    let keys = [0, 1, 2].map(|shard| rig.key_in(shard, "k"));
    let calls = [read("note", &keys[1], s().get("n")), run("note", &keys[2], add())];
    let token = rig.run("note", &keys[0], add().all(calls));
    carry_up_to(&mut rig, is_prepare);
    // The reader votes at once, the writer later than that vote holds.
    while rig.peers.iter().any(|(_, message)| is_prepare(message)) {
        rig.carry_peer();
    }
    rig.make_durable_in(OTHER);
    rig.carry_peers();
    rig.core.now = rig.core.now.plus(HOLD_MS);
    rig.make_durable();
    let asked_again = |(to, message): &(ShardId, PeerMessage)| *to == OTHER && is_prepare(message);
    while !rig.peers.iter().any(asked_again) {
        assert!(rig.carry_peer(), "the vote has lapsed");
    }
    assert!(rig.reply(token).is_none());
    rig.run_to_rest();
    assert!(rig.reply(token).is_some_and(Result::is_ok), "the second vote counts");
    rig.settle();
    rig.assert_at_rest();
}

#[test]
fn what_a_prepared_part_has_read_stays_locked_when_its_shard_is_opened_again() {
    let mut rig = Rig::failing_alone(2, HOLD_MS);
    let (here, written) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let seen = rig.key_in(1, "c");
    let look = s().all([read("note", &seen, s().get("n")), run("note", &written, add())]);
    let token = rig.run("note", &here, add().call(run("note", &rig.key_in(1, "d"), look)));
    carry_up_to(&mut rig, |message| is_said(message, |said| *said == ToCoordinator::Prepared));
    let vote = rig.peers.pop_front().expect("the vote");
    rig.lose(OTHER, 0);
    rig.open(OTHER);
    rig.tick(2 * HOLD_MS);
    let write = rig.run("note", &seen, s().set("n", 9));
    rig.make_durable();
    assert!(rig.reply(write).is_none(), "what it has read is held until it is decided");
    rig.peers.push_back(vote);
    rig.settle();
    assert!(rig.reply(token).is_some_and(Result::is_ok) && rig.reply(write).is_some_and(Result::is_ok));
    rig.assert_at_rest();
}

#[test]
fn a_delegated_commit_is_learnt_from_the_log_of_the_shard_that_made_it() {
    for is_committed in [true, false] {
        let (mut rig, here, there) = rig();
        let token = rig.run("note", &here, s().call(run("note", &there, add())));
        carry_up_to(&mut rig, is_prepare);
        if is_committed {
            rig.carry_peer();
            rig.make_durable();
        }
        let now = rig.core.now;
        rig.fail_over(OTHER);
        rig.run_to_rest();
        rig.core.now = rig.core.now.plus(2 * HOLD_MS);
        opens_gate(&mut rig);
        assert!(rig.reply(token).is_some_and(Result::is_ok), "committed {is_committed}");
        assert!(rig.core.now.0 - now.0 < 1_000, "at once");
        rig.settle();
        assert_eq!(rig.field("note", &there, "n"), json!(1), "once, whatever was lost");
        assert_eq!(rig.bookkeeping_rows("delegated"), 0);
        rig.assert_at_rest();
    }
}

/// Lets shards that were opened look at the clock.
fn opens_gate(rig: &mut Rig) {
    rig.tick(0);
    rig.run_to_rest();
}

#[test]
fn a_delegated_commit_whose_news_are_lost_without_a_failure_is_told_again() {
    let (mut rig, here, there) = rig();
    let token = rig.run("note", &here, s().call(run("note", &there, add())));
    carry_up_to(&mut rig, |message| is_said(message, |said| *said == ToCoordinator::Committed));
    rig.peers.pop_front();
    rig.settle();
    assert!(rig.reply(token).is_some_and(Result::is_ok));
    assert_eq!(rig.bookkeeping_rows("delegated"), 0);
    rig.assert_at_rest();
}

#[test]
fn a_decision_that_comes_too_late_is_not_made_by_the_other_shard() {
    // 1 reads `y` here, and leaves it to the other shard to change `x`. Meanwhile the coordinator of `y` fails.
    let (mut rig, y, x) = rig();
    rig.run("note", &y, s().set("n", 1));
    rig.make_durable();
    rig.run("note", &y, s().get("n").call(run("note", &x, s().set("seen", 1))));
    carry_up_to(&mut rig, is_prepare);
    let prepare = rig.peers.pop_front().expect("the request");
    rig.lose(CALLER, 0);
    rig.open(CALLER);
    rig.tick(2 * HOLD_MS);
    let second = rig.run("note", &y, s().set("n", 2));
    rig.make_durable();
    assert!(rig.reply(second).is_some_and(Result::is_ok));
    rig.peer(prepare.0, prepare.1);
    rig.make_durable();
    let seen = rig.read("note", &x, s().get("seen"));
    rig.tell_opened(CALLER);
    rig.run_to_rest();
    assert_eq!(rig.value(seen), Json::Null, "2 was answered, and came after 1");
    rig.settle();
    rig.assert_at_rest();
}

#[test]
fn who_waits_for_a_lost_shard_is_told_at_once() {
    // At every stage of several kinds of transactions: without any time passing but what a shard waits before it writes.
    for (kind, lost) in (0..4).flat_map(|kind| [CALLER, OTHER].map(|shard| (kind, shard))) {
        for step in 0..24 {
            let (mut rig, here, there) = rig();
            let script = match kind {
                0 => s().call(run("note", &there, add())),
                1 => add().call(run("note", &there, add())),
                2 => add().call(read("note", &there, s().get("n"))),
                _ => add().call(run("note", &there, s().fail("planned"))),
            };
            let token = rig.run("note", &here, script);
            for step in 0..step {
                match step % 3 {
                    0 => drop(rig.carry_peer()),
                    shard => rig.make_durable_in(ShardId(shard - 1)),
                }
            }
            rig.fail_over(lost);
            rig.run_to_rest();
            rig.tick(2 * HOLD_MS);
            rig.run_to_rest();
            let context = format!("kind {kind}, {lost} fails at {step}");
            if lost == OTHER {
                assert!(rig.reply(token).is_some(), "{context}: nobody is answered");
            }
            for shard in rig.core.shards.values() {
                assert_eq!(shard.figures().waiting, 0, "{context}");
            }
            rig.settle();
            rig.assert_at_rest();
        }
    }
}

#[test]
fn a_reservation_that_is_lost_is_made_again_at_once() {
    let (mut rig, here, there) = rig();
    rig.run("note", &there, s().hash());
    let token = rig.run("note", &here, add().call(run("note", &there, add())));
    let is_reserve =
        |message: &PeerMessage| matches!(message.body, PeerBody::ToParticipation(_, ToParticipation::Reserve { .. }));
    while !rig.peers.front().is_some_and(|(_, message)| is_reserve(message)) {
        assert!(rig.carry_peer());
    }
    rig.carry_peer();
    rig.fail_over(OTHER);
    rig.tick(2 * HOLD_MS);
    rig.run_to_rest();
    assert!(rig.reply(token).is_some_and(Result::is_ok));
    rig.settle();
    rig.assert_at_rest();
}

#[test]
fn an_error_never_tells_what_a_lost_shard_has_forgotten() {
    let (mut rig, here, there) = rig();
    // `n` is 5, and that is lost with its shard. The call that has read it must not say so.
    rig.run("note", &there, s().set("n", 5));
    let token = rig.run("note", &here, s().call(read("note", &there, s().at_least("n", 5))).abort("it has 5"));
    rig.carry_peer();
    rig.carry_peer();
    let is_abort = |message: &PeerMessage| matches!(message.body, PeerBody::Abort { is_answered: true, .. });
    assert!(rig.peers.iter().any(|(_, message)| is_abort(message)), "{:?}", rig.peers);
    let lost = rig.lose(OTHER, 0);
    rig.open(OTHER);
    for message in lost {
        rig.hand_over(message);
    }
    rig.carry_peers();
    assert!(rig.reply(token).is_none(), "{:?}", rig.reply(token));
    rig.tell_opened(OTHER);
    rig.settle();
    assert!(!rig.reply(token).is_some_and(|reply| reply.as_ref().is_err_and(|error| error.message == "it has 5")));
    rig.assert_at_rest();
}

#[test]
fn a_workflow_whose_shard_was_lost_does_not_make_a_call_twice() {
    let (mut rig, here, there) = rig();
    let call = run("note", &there, s().hash().add("n", 1));
    let started = rig.send(("account", &here, "flow"), s().call(call), 0, None);
    rig.make_durable();
    assert!(rig.reply(started).is_some_and(Result::is_ok));
    rig.run_due();
    rig.make_durable();
    carry_first_call(&mut rig);
    // The first call has run, and the request to commit it is on its way when the workflow's shard fails.
    rig.finish_offload();
    carry_up_to(&mut rig, is_prepare);
    let late = rig.lose(CALLER, 0);
    // The clock is set back: the second call is the older one, so it waits for the first and does not give way.
    rig.core.now.0 -= 50;
    rig.open(CALLER);
    rig.run_due();
    rig.make_durable();
    rig.carry_peers();
    assert_eq!(rig.core.shards[&OTHER].figures().waiting, 2, "both calls are there");
    // It has made the call again, which waits for the first one, and that is committed only now.
    for message in late {
        if matches!(&message, OnItsWay::Peer(to, _) if *to == OTHER) {
            rig.hand_over(message);
        }
    }
    assert_eq!(rig.field("note", &there, "n"), json!(1), "the first one is committed");
    rig.run_to_rest();
    rig.tell_opened(CALLER);
    for _ in 0..8 {
        rig.tick(1_000);
        rig.run_to_rest();
    }
    assert_eq!(rig.field("note", &there, "n"), json!(1));
    assert_eq!(rig.core.shards.values().map(|shard| shard.figures().workflows).sum::<usize>(), 0, "it has ended");
    rig.settle();
    rig.assert_at_rest();
}

fn carry_first_call(rig: &mut Rig) {
    while rig.offloads.is_empty() {
        assert!(rig.carry_peer(), "the workflow calls");
    }
}

#[test]
fn work_for_a_lost_shard_that_ends_late_means_nothing() {
    let (mut rig, here, _) = rig();
    rig.run("note", &here, s().hash().add("n", 1));
    let ticket: OffloadTicket = rig.offloads[0];
    rig.fail_over(CALLER);
    rig.tick(2 * HOLD_MS);
    let second = rig.run("note", &here, s().hash().add("n", 1));
    rig.finish(ticket, Ok("null".into()));
    rig.make_durable();
    assert!(rig.reply(second).is_none(), "its own work has not ended");
    rig.settle();
    assert_eq!(rig.field("note", &here, "n"), json!(1));
    rig.assert_at_rest();
}

#[test]
fn a_shard_that_was_never_used_writes_at_once() {
    let (mut rig, here, _) = rig();
    rig.fail_over(CALLER);
    let token = rig.run("note", &here, add());
    rig.make_durable();
    assert!(rig.reply(token).is_some_and(Result::is_ok));
    opens(&mut rig, OTHER);
}

/// Carries so many messages; what is written is durable before each. Says whether there were so many.
fn carry(rig: &mut Rig, count: usize) -> bool {
    (0..count).all(|_| {
        rig.make_durable();
        rig.carry_peer()
    })
}

#[test]
fn what_is_held_up_on_its_way_makes_nobody_wait_once_there_is_a_detour() {
    let scripts: [fn(&str) -> Script; 3] = [
        |there| add().call(run("note", there, add())),
        |there| s().call(run("note", there, add())),
        |there| add().call(read("note", there, s().get("n"))),
    ];
    for (kind, script) in scripts.iter().enumerate() {
        for count in 0.. {
            let (mut rig, here, there) = rig();
            let token = rig.run("note", &here, script(&there));
            if !carry(&mut rig, count) {
                assert!(count >= 4, "no transaction over two shards is shorter");
                break;
            }
            rig.make_durable();
            let held_up = rig.take_detour(CALLER, OTHER);
            rig.run_to_rest();
            let reply = rig.reply(token);
            assert!(reply.is_some_and(Result::is_ok), "kind {kind} after {count} messages, without a tick: {reply:?}");
            rig.peers.extend(held_up);
            rig.settle();
            let written = if kind == 2 { &here } else { &there };
            assert_eq!(rig.field("note", written, "n"), json!(1), "kind {kind} after {count} messages: once");
            rig.assert_at_rest();
        }
    }
}
