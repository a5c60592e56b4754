//! What was said in one run of a transaction, or in one opening of its coordinator, means nothing in another. A run is
//! named by its coordinator, by that opening's incarnation, which is drawn at random, and by a number. The number
//! begins anew with each opening.

use millrace_shard::{FromParticipation, PeerBody, PeerMessage, ToCoordinator, ToParticipation, Token};

use crate::*;

fn add() -> Script {
    s().add("n", 1)
}

fn keys(rig: &Rig) -> [String; 2] {
    [rig.key_in(0, "a"), rig.key_in(1, "b")]
}

/// A transfer, whose first message, a call, is on its way.
fn begin(rig: &mut Rig) -> Token {
    let [here, there] = keys(rig);
    rig.run("note", &here, add().call(run("note", &there, add())))
}

/// A run that comes as far as `until` says of a message that its coordinator sends, and whose time is up then. Gives
/// the coordinator's abort; it has been heard.
fn give_up(rig: &mut Rig, until: impl Fn(&PeerMessage) -> bool) -> PeerMessage {
    let token = begin(rig);
    while !rig.peers.iter().any(|(to, message)| *to == ShardId(1) && until(message)) {
        assert!(rig.carry_peer(), "it never comes so far");
    }
    rig.carry_peer();
    rig.tick(20_000);
    let is_abort = |message: &PeerMessage| matches!(message.body, PeerBody::Abort { .. });
    let abort = rig.peers.iter().find(|(_, message)| is_abort(message)).expect("it is given up").1.clone();
    rig.settle();
    assert_eq!(rig.error(token), ErrorCode::WaitLimit);
    rig.assert_at_rest();
    abort
}

fn is_call(message: &PeerMessage) -> bool {
    matches!(message.body, PeerBody::ToParticipation(_, ToParticipation::Call(..)))
}

fn is_prepare(message: &PeerMessage) -> bool {
    matches!(message.body, PeerBody::ToParticipation(_, ToParticipation::Prepare { .. }))
}

/// How far the later run has come when the abort of the earlier one comes again.
const STAGES: [&str; 5] = ["call", "result", "prepare", "prepared, durably", "vote"];

fn an_abort_comes_again(
    is_another_participation_id: bool,
    until: fn(&PeerMessage) -> bool,
    stage: usize,
    is_answered: bool,
) {
    let place =
        format!("another life: {is_another_participation_id}, after {}, answered: {is_answered}", STAGES[stage]);
    let mut rig = Rig::new(2);
    let [here, there] = keys(&rig);
    let abort = give_up(&mut rig, until);
    if is_another_participation_id {
        rig.crash();
        rig.settle();
    }
    let token = begin(&mut rig);
    let run = rig.peers.front().expect("the call").1.transaction;
    assert_eq!(
        run.number == abort.transaction.number,
        is_another_participation_id,
        "numbers begin anew with each life"
    );
    for step in 0..=stage {
        if step == 3 {
            rig.make_durable_in(ShardId(1));
        } else {
            assert!(rig.carry_peer(), "{place}");
        }
    }
    rig.peer(ShardId(1), PeerMessage { body: PeerBody::Abort { is_answered, heard: None }, ..abort });
    rig.settle();
    assert!(rig.reply(token).is_some_and(Result::is_ok), "{place}: {:?}", rig.reply(token));
    assert_eq!([&here, &there].map(|key| rig.field("note", key, "n")), [json!(1), json!(1)], "{place}");
    rig.assert_at_rest();
}

#[test]
fn an_abort_of_an_earlier_run_that_comes_again_does_not_end_a_later_one() {
    for is_another_participation_id in [false, true] {
        for until in [is_call, is_prepare] {
            for (stage, is_answered) in (0..STAGES.len()).flat_map(|stage| [false, true].map(|is_it| (stage, is_it))) {
                an_abort_comes_again(is_another_participation_id, until, stage, is_answered);
            }
        }
    }
}

#[test]
fn a_part_that_outlives_its_coordinator_is_not_taken_for_one_of_the_coordinators_next_participation_id() {
    // The row of the first opening's run is there still when the second opening's first run comes.
    let mut rig = Rig::new(2);
    let [here, there] = keys(&rig);
    begin(&mut rig);
    (0..3).for_each(|_| assert!(rig.carry_peer()));
    rig.make_durable_in(ShardId(1));
    rig.is_unstarted = true;
    rig.crash();
    assert_eq!(rig.bookkeeping_rows("prepared"), 1);
    let token = begin(&mut rig);
    rig.settle();
    assert!(rig.reply(token).is_some_and(Result::is_ok), "{:?}", rig.reply(token));
    assert_eq!([&here, &there].map(|key| rig.field("note", key, "n")), [json!(1), json!(1)]);
    rig.assert_at_rest();
}

/// Carries the first message of which `is_it` says so, and gives it.
fn carry(rig: &mut Rig, is_it: impl Fn(&PeerMessage) -> bool) -> PeerMessage {
    let place = rig.peers.iter().position(|(_, message)| is_it(message)).expect("it is on its way");
    let (to, message) = rig.peers.remove(place).expect("it is there");
    rig.peer(to, message.clone());
    message
}

#[test]
fn what_a_second_participation_of_a_run_says_is_not_taken_for_what_the_first_has_said() {
    let mut rig = Rig::new(3);
    let [here, there, far] = [rig.key_in(0, "a"), rig.key_in(1, "b"), rig.key_in(2, "c")];
    let [wanted, other] = [rig.key_in(1, "wanted"), rig.key_in(2, "other")];
    let older = rig.run("note", &wanted, add().call(run("note", &other, add())));
    let (_, away) = rig.peers.pop_front().expect("the older one waits for another shard");
    let all = [&far, &wanted, &other].map(|key| run("note", key, add()));
    let token = rig.run("note", &here, add().call(run("note", &there, add().all(all))));
    let is_from = |shard: u16| move |message: &PeerMessage| message.from == ShardId(shard);

    // The first participation passes a call on, and dies of what the older one holds: its second message.
    let call = carry(&mut rig, is_from(0));
    carry(&mut rig, is_from(1));
    let died = rig.peers.remove(0).expect("its last word").1;
    assert!(
        matches!(&died.body, PeerBody::ToCoordinator(2, FromParticipation { message: ToCoordinator::Died { .. }, .. })),
        "{died:?}"
    );

    // That ends. A second copy begins a second participation, whose second message is there first.
    rig.peer(ShardId(2), away);
    while rig.reply(older).is_none() {
        let is_of_it = |message: &PeerMessage| message.transaction.coordinator == ShardId(1);
        rig.make_durable();
        carry(&mut rig, is_of_it);
    }
    rig.peer(ShardId(1), call);
    let is_second = |message: &PeerMessage| {
        matches!(message.body, PeerBody::ToCoordinator(2, FromParticipation { message: ToCoordinator::Call(..), .. }))
    };
    carry(&mut rig, is_second);
    rig.peer(ShardId(0), died);
    rig.settle();
    assert!(rig.reply(token).is_some_and(Result::is_ok), "{:?}", rig.reply(token));
    let counts = [&here, &there, &far, &wanted, &other].map(|key| rig.field("note", key, "n"));
    assert_eq!(counts, [1, 1, 1, 2, 2].map(|count| json!(count)));
    rig.assert_at_rest();
}
