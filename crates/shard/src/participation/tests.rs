//! One participation, and what a shard remembers of all, alone.

use bytes::Bytes;
use millrace_base::{UnixMillis, Value, ValueKind};
use millrace_format::{Prepared, Write};
use millrace_func::{HandlerId, NestedCall, Program};

use super::*;
use crate::peer::Begin;
use crate::testing::Bench;

const COORDINATOR: ShardId = ShardId(1);
const ID: TransactionId = TransactionId { coordinator: COORDINATOR, incarnation: 3, number: 4 };
const BEGIN: Begin = Begin { program: Program(1), time: UnixMillis(1), age: (1, 1), seed: 1 };

fn participation() -> Box<Participation> {
    Participation::new(ID, 9, ShardId(0), Ordered::default())
}

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

fn entity() -> EntityKey {
    EntityKey::internal("x", b"1")
}

fn prepared() -> Prepared {
    let value = Some(Value::new(ValueKind::Bytes, b"1"));
    Prepared {
        writes: vec![Write { entity: entity(), field: (*b"f").into(), value }],
        messages: Vec::new(),
        reads: Vec::new(),
    }
}

fn told(bench: &mut Bench) -> Vec<ToCoordinator> {
    let said = std::mem::take(&mut bench.outputs.peers).into_iter().map(|(to, message)| match message.body {
        PeerBody::ToCoordinator(_, FromParticipation { participation_id: 9, message, .. }) if to == COORDINATOR => {
            message
        }
        other => unreachable!("{other:?}"),
    });
    said.collect()
}

#[test]
fn it_votes_only_if_it_is_the_one_that_is_asked() {
    let mut one = participation();
    let prepare = |participation_id| ToParticipation::Prepare {
        participation_id,
        is_delegated: true,
        hold_ms: None,
        is_query: false,
    };
    assert!(matches!(one.act_on(prepare(8)), Told::NothingToDo) && one.vote_request().is_none());
    assert!(matches!(one.act_on(prepare(9)), Told::NothingToDo));
    assert!(one.vote_request() == Some(VoteRequest { is_delegated: true, hold_ms: None, is_query: false }));
    let mut bench = Bench::new(2);
    one.vote_read_only(false, &bench.rows);
    assert!(one.vote_request().is_none());
    one.given_up(&mut bench.context());
    assert_eq!(told(&mut bench), [], "its vote stands");
    participation().given_up(&mut bench.context());
    assert!(matches!(told(&mut bench)[..], [ToCoordinator::Failed(_)]));
}

#[test]
fn messages_are_acted_on_in_order() {
    let mut one = participation();
    one.hear(2, ToParticipation::Call(BEGIN, call(2)));
    assert!(one.next().is_none());
    one.hear(1, ToParticipation::Call(BEGIN, call(1)));
    for number in [1, 2] {
        let next = one.next().expect("it is its turn");
        assert!(matches!(one.act_on(next), Told::Call(call) if call.number == number));
    }
}

#[test]
fn a_call_that_lingers_is_over_when_nothing_runs_for_it() {
    let (mut one, mut bench) = (participation(), Bench::new(2));
    let value = || Ok(Bytes::from_static(b"1"));
    one.keep_at(1, (*b"here").into());
    one.answer(1, value(), true, &mut bench.context());
    assert_eq!(told(&mut bench), [ToCoordinator::Lingers(1), ToCoordinator::Result(1, value())]);
    one.report_over(|_| true, &mut bench.context());
    assert!(told(&mut bench).is_empty() && one.is_lingering());
    one.report_over(|_| false, &mut bench.context());
    assert_eq!((told(&mut bench), one.is_lingering()), (vec![ToCoordinator::Over(1)], false));
    assert_eq!(one.take_kept(), Some(((*b"here").into(), Bytes::from_static(b"1"))));
}

#[test]
fn nothing_goes_on_while_something_is_taken_back_elsewhere() {
    let (mut one, mut bench) = (participation(), Bench::new(2));
    one.take_back(1, &mut bench.context());
    one.take_back(2, &mut bench.context());
    assert_eq!(told(&mut bench), [ToCoordinator::TakeBack(1), ToCoordinator::TakeBack(2)]);
    assert!(matches!(one.act_on(ToParticipation::TakenBack), Told::NothingToDo) && one.is_taking_back());
    assert!(matches!(one.act_on(ToParticipation::TakenBack), Told::TakenBack) && !one.is_taking_back());
}

#[test]
fn a_later_message_waits_for_the_first_but_not_for_ever() {
    let mut bench = Bench::new(2);
    let mut all = Participations::recover(&mut bench.rows).expect("no rows");
    let later = || ToParticipation::Call(BEGIN, call(2));
    let first = || ToParticipation::Call(BEGIN, call(1));
    assert!(matches!(all.first_message(ID, 2, later()), FirstMessage::None));
    all.inquire(&mut bench.context());
    let FirstMessage::Call(BEGIN, begun, mut heard) = all.first_message(ID, 1, first()) else {
        unreachable!("the first one begins it")
    };
    assert_eq!((begun.number, heard.next().is_some()), (1, true), "what came before it goes with it");
    assert!(matches!(all.first_message(ID, 2, later()), FirstMessage::None));
    all.inquire(&mut bench.context());
    all.inquire(&mut bench.context());
    let FirstMessage::Call(_, _, mut heard) = all.first_message(ID, 1, first()) else {
        unreachable!("the first one begins it")
    };
    assert!(heard.next().is_none(), "what came two ticks before is forgotten");
    let reserve = ToParticipation::Reserve { begin: BEGIN, entity: entity(), is_exclusive: true };
    assert!(matches!(all.first_message(ID, 1, reserve), FirstMessage::Reserve(..)));
}

#[test]
fn what_is_prepared_is_held_over_a_start_until_it_is_decided() {
    let mut bench = Bench::new(2);
    let mut all = Participations::recover(&mut bench.rows).expect("no rows");
    let row = all.row(ID, &prepared());
    bench.context().append(vec![row]);
    all.prepared(ID, Undecided { nonce: 5, held: entities_of(&prepared()), prepared: prepared() });
    let mut recovered = Participations::recover(&mut bench.rows).expect("as written");
    for one in [&all, &recovered] {
        assert_eq!((one.unfinished(), one.is_undecided(ID)), (1, true));
        assert_eq!(one.held().map(|(held, ..)| held.clone()).collect::<Vec<_>>(), [entity()]);
        assert_eq!(one.undecided_writes().collect::<Vec<_>>(), [&entity()]);
    }
    let (undecided, deletion) = all.committed(ID).expect("it was prepared");
    assert_eq!((undecided.nonce, deletion.value, all.unfinished()), (5, None, 0));
    assert!(recovered.aborted(ID).is_some());
    bench.is_read_only = true;
    recovered.delete_leftover_rows(&mut bench.context());
    assert_eq!(Participations::recover(&mut bench.rows).expect("it is left").unfinished(), 1);
    bench.is_read_only = false;
    recovered.delete_leftover_rows(&mut bench.context());
    assert_eq!(Participations::recover(&mut bench.rows).expect("no rows").unfinished(), 0);
}

#[test]
fn whoever_waits_is_told_that_the_shard_has_stopped() {
    let mut bench = Bench::new(2);
    let mut all = Participations::recover(&mut bench.rows).expect("no rows");
    all.begin(ID, 1);
    let error = Error::new(ErrorCode::ShardStopped, "stopped");
    all.report_lost(&error, &mut bench.context());
    let told: Vec<PeerBody> = bench.outputs.peers.iter().map(|(_, message)| message.body.clone()).collect();
    assert_eq!(told, [PeerBody::Lost(error)]);
    assert_eq!(all.nonce_of(ID), None);
}
