//! One attempt and its decisions, alone: what is said to participants, and what their messages mean.

use bytes::Bytes;
use millrace_base::{ErrorCode, UnixMillis};
use millrace_func::{HandlerId, NestedCall, Program};

use super::*;
use crate::testing::Bench;

const A: ShardId = ShardId(1);
const B: ShardId = ShardId(2);
const BEGIN: Begin = Begin { program: Program(1), time: UnixMillis(1), age: (1, 1), seed: 1 };

fn call(number: u64) -> PeerCall {
    let handler = HandlerId { program: Program(1), service: 0, handler: 0 };
    PeerCall {
        number,
        depth: 1,
        call: NestedCall { handler, key: b"k".to_vec(), input: Bytes::new() },
        once: None,
        callers: None,
    }
}

fn value() -> Result<Bytes, Error> {
    Ok(Bytes::from_static(b"1"))
}

fn failure() -> Error {
    Error::new(ErrorCode::Internal, "failed")
}

struct Rig {
    bench: Bench,
    coordinator: Coordinator,
    coordination: Box<Coordination>,
    said: BTreeMap<(ShardId, u64), u32>,
}

impl Rig {
    fn new() -> Self {
        let mut bench = Bench::new(3);
        let mut coordinator = Coordinator::recover(&mut bench.rows).expect("no rows");
        let coordination = coordinator.begin(7, &bench.rows);
        Self { bench, coordinator, coordination, said: BTreeMap::new() }
    }

    /// What a participant says, as its participation `life`.
    fn hear(&mut self, from: ShardId, participation_id: u64, message: ToCoordinator) -> Option<Heard> {
        let number = self.said.entry((from, participation_id)).or_default();
        *number += 1;
        let early =
            self.coordination.hear(from, *number, FromParticipation { participation_id, incarnation: 1, message });
        let next = self.coordination.next(from);
        early.or_else(|| next.map(|message| self.coordination.act_on(from, message, &mut self.bench.context())))
    }

    fn told(&mut self) -> Vec<(ShardId, PeerBody)> {
        std::mem::take(&mut self.bench.outputs.peers).into_iter().map(|(to, it)| (to, it.body)).collect()
    }
}

#[test]
fn a_call_is_open_until_it_and_all_it_started_have_ended() {
    let mut rig = Rig::new();
    rig.coordination.call(A, BEGIN, call(1), &mut rig.bench.context());
    assert!(rig.coordination.is_waiting());
    let heard = rig.coordination.act_on(A, ToCoordinator::Lingers(1), &mut rig.bench.context());
    assert!(matches!(heard, Heard::NothingToDo));
    let heard = rig.coordination.act_on(A, ToCoordinator::Result(1, value()), &mut rig.bench.context());
    assert!(matches!(heard, Heard::Ended(1, Ok(_))) && rig.coordination.is_waiting());
    rig.coordination.act_on(A, ToCoordinator::Over(1), &mut rig.bench.context());
    assert!(!rig.coordination.is_waiting());
}

#[test]
fn a_participants_call_is_passed_on_and_its_result_passed_back() {
    let mut rig = Rig::new();
    rig.coordination.call(A, BEGIN, call(1), &mut rig.bench.context());
    assert!(rig.coordination.pass_on(A, B, BEGIN, call(2), &mut rig.bench.context()).is_none());
    let here = rig.coordination.pass_on(A, ShardId(0), BEGIN, call(3), &mut rig.bench.context());
    assert_eq!(here, Some(call(3)));
    rig.told();
    let heard = rig.coordination.act_on(B, ToCoordinator::Result(2, value()), &mut rig.bench.context());
    assert!(matches!(heard, Heard::NothingToDo));
    rig.coordination.answer(3, Err(failure()), &mut rig.bench.context());
    let expected = [
        (A, PeerBody::ToParticipation(2, ToParticipation::Result(2, value()))),
        (A, PeerBody::ToParticipation(3, ToParticipation::Result(3, Err(failure())))),
    ];
    assert_eq!(rig.told(), expected);
}

#[test]
#[should_panic(expected = "a call that is answered to another shard came from one")]
fn an_answer_that_nobody_waits_for_cannot_be() {
    let mut rig = Rig::new();
    rig.coordination.answer(3, value(), &mut rig.bench.context());
}

#[test]
fn what_is_taken_back_is_taken_back_once_and_whoever_waits_is_told() {
    let mut rig = Rig::new();
    rig.coordination.call(A, BEGIN, call(1), &mut rig.bench.context());
    rig.coordination.pass_on(A, B, BEGIN, call(2), &mut rig.bench.context());
    rig.told();
    let heard = rig.coordination.act_on(A, ToCoordinator::TakeBack(2), &mut rig.bench.context());
    assert!(matches!(heard, Heard::TakeBack(2)));
    assert!(matches!(rig.coordination.take_back(2, &mut rig.bench.context()), Effects::Elsewhere));
    assert!(matches!(rig.coordination.take_back(2, &mut rig.bench.context()), Effects::Gone));
    assert!(!rig.coordination.is_taken_back(&mut rig.bench.context()));
    let heard = rig.coordination.act_on(B, ToCoordinator::TakenBack, &mut rig.bench.context());
    assert!(matches!(heard, Heard::TakenBack) && rig.coordination.is_taken_back(&mut rig.bench.context()));
    let expected = [
        (B, PeerBody::ToParticipation(2, ToParticipation::TakeBack(2))),
        (A, PeerBody::ToParticipation(2, ToParticipation::TakenBack)),
    ];
    assert_eq!(rig.told(), expected);
}

#[test]
fn everybody_votes_before_it_ends() {
    let mut rig = Rig::new();
    rig.coordination.call(A, BEGIN, call(1), &mut rig.bench.context());
    rig.coordination.call(B, BEGIN, call(2), &mut rig.bench.context());
    let output = Ok(Output::Value(Bytes::new()));
    rig.coordination.ask_for_votes(output, (true, false), &mut rig.bench.context());
    assert!(rig.coordination.is_ending() && !rig.coordination.is_delegated(), "two cannot decide alone");
    rig.coordination.act_on(A, ToCoordinator::Prepared, &mut rig.bench.context());
    assert!(rig.coordination.take_ending(&mut rig.bench.context()).is_none());
    rig.coordination.act_on(B, ToCoordinator::ReadOnly { has_let_go: false, hold_ms: None }, &mut rig.bench.context());
    assert!(matches!(rig.coordination.take_ending(&mut rig.bench.context()), Some(Ending::Commit { .. })));
    assert_eq!(rig.coordination.voted(Vote::Prepared).collect::<Vec<_>>(), [A]);
    assert_eq!(rig.coordination.voted(Vote::ReadOnly).collect::<Vec<_>>(), [B]);
    // What comes after its vote changes nothing.
    assert!(matches!(rig.coordination.failed(A, failure()), Heard::NothingToDo));
}

#[test]
fn an_attempt_that_fails_waits_until_everybody_has_ended() {
    let mut rig = Rig::new();
    rig.coordination.call(A, BEGIN, call(1), &mut rig.bench.context());
    rig.coordination.ask_for_votes(Err(failure()), (false, false), &mut rig.bench.context());
    assert_eq!(rig.told().last(), Some(&(A, PeerBody::Abort { is_answered: true, heard: None })));
    assert!(rig.hear(A, 1, ToCoordinator::Result(1, value())).is_none(), "it means nothing any more");
    assert!(rig.coordination.take_ending(&mut rig.bench.context()).is_none());
    rig.coordination.heard_ended(A);
    assert!(matches!(rig.coordination.take_ending(&mut rig.bench.context()), Some(Ending::Fail(_))));
}

#[test]
fn another_participation_counts_only_when_it_has_died_or_failed() {
    let mut rig = Rig::new();
    rig.coordination.call(A, BEGIN, call(1), &mut rig.bench.context());
    assert!(matches!(rig.hear(A, 1, ToCoordinator::Result(1, value())), Some(Heard::Ended(..))));
    assert!(rig.hear(A, 2, ToCoordinator::Prepared).is_none());
    assert!(matches!(rig.hear(A, 2, ToCoordinator::Failed(failure())), Some(Heard::Failed(_))));
    let died = ToCoordinator::Died { entity: EntityKey::internal("x", b"1"), is_exclusive: true };
    assert!(matches!(rig.hear(A, 2, died), Some(Heard::Died(A, _, true))));
    assert!(rig.hear(B, 1, ToCoordinator::Prepared).is_none(), "it was not asked for anything");
}

#[test]
fn a_decision_is_told_again_until_it_is_confirmed_and_then_forgotten() {
    let mut rig = Rig::new();
    let id = rig.coordination.id();
    rig.coordinator.end(&rig.coordination);
    let write = rig.coordinator.decision_write(id, &[A, B]);
    let lsn = rig.bench.context().append(vec![write]);
    rig.coordinator.decided(id, &[A, B], lsn, &mut rig.bench.context());
    rig.coordinator.answer_inquiry(A, id, &mut rig.bench.context());
    assert_eq!(rig.told(), [], "it is not durable");
    rig.bench.sync();
    assert_eq!(rig.told(), [(A, PeerBody::Commit), (B, PeerBody::Commit)]);
    rig.coordinator.look_after_decisions(&mut rig.bench.context());
    assert!(rig.coordinator.confirmed(A, id));
    // As after a start.
    let mut recovered = Coordinator::recover(&mut rig.bench.rows).expect("as written");
    assert_eq!((recovered.unconfirmed(), rig.coordinator.unconfirmed()), (1, 1));
    assert!(recovered.confirmed(A, id));
    for coordinator in [&mut rig.coordinator, &mut recovered] {
        coordinator.look_after_decisions(&mut rig.bench.context());
        assert!(coordinator.confirmed(B, id) && !coordinator.confirmed(B, id));
    }
    assert_eq!(rig.told(), [(B, PeerBody::Commit), (B, PeerBody::Commit)]);
    rig.coordinator.look_after_decisions(&mut rig.bench.context());
    let forgotten = Coordinator::recover(&mut rig.bench.rows).expect("no rows are left");
    assert_eq!(forgotten.unconfirmed(), 0);
}

#[test]
fn an_inquiry_about_what_neither_runs_nor_is_committed_is_answered_with_its_abort() {
    let mut rig = Rig::new();
    let id = rig.coordination.id();
    rig.coordinator.answer_inquiry(A, id, &mut rig.bench.context());
    assert_eq!(rig.told(), [], "it runs");
    assert_eq!(rig.coordinator.nonce_of(id, &rig.bench.rows), Some(7));
    rig.coordination.call(A, BEGIN, call(1), &mut rig.bench.context());
    rig.told();
    rig.coordinator.abandon(&rig.coordination, &mut rig.bench.context());
    rig.coordinator.answer_inquiry(A, id, &mut rig.bench.context());
    assert_eq!(
        rig.told(),
        [
            (A, PeerBody::Abort { is_answered: false, heard: None }),
            (A, PeerBody::Abort { is_answered: false, heard: None })
        ]
    );
    let earlier = TransactionId { incarnation: id.incarnation + 1, ..id };
    assert_eq!(rig.coordinator.nonce_of(earlier, &rig.bench.rows), None);
}
