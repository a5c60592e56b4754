//! A seat by itself: what reaches the state of a shard, and when.

use std::sync::Arc;

use bytes::Bytes;
use millrace_base::{EntityKey, Lsn, ShardId, UnixMillis, Value};
use millrace_format::{Entry, Write as RowWrite};
use millrace_replica::{
    Command, EntryId, EntryKind, Epoch, Event, LogEntry, LogView, Message, NodeId, Promised, Recovered, Replica,
    ReplicaSet, Settings, Write,
};
use millrace_store::{MemoryCheckpoint, Store};

use super::seat::{Hosted, Seat};

const SHARD: ShardId = ShardId(3);

fn store() -> Store {
    millrace_shard::open_store(SHARD, Arc::new(MemoryCheckpoint::new()), 1).expect("memory does not fail")
}

fn follower() -> Seat {
    let set = ReplicaSet::of([1, 2, 3].map(NodeId));
    let log = LogView::new(EntryId::ZERO, Lsn::ZERO, set);
    let recovered = Recovered { promised: Promised::default(), log, is_whole: true };
    let replica = Replica::start(NodeId(2), Settings::default(), 0, 1, recovered);
    Seat::new(Hosted { shard: SHARD, replica, store: store(), tail: Vec::new(), options: None })
}

/// An entry that sets a field to its own position.
fn entry(epoch: u64, lsn: u64) -> LogEntry {
    let write = RowWrite {
        entity: EntityKey::internal("test", b"key"),
        field: (*b"at").into(),
        value: Some(Value::json(&format!("\"{epoch}/{lsn}\""))),
    };
    let mut bytes = Vec::new();
    Entry { shard: SHARD, lsn: Lsn(lsn), time: UnixMillis(0), writes: &[write] }.encode(&mut bytes);
    LogEntry { id: EntryId::new(Epoch(epoch), Lsn(lsn)), kind: EntryKind::Data, bytes: Bytes::from(bytes) }
}

/// The owner of an epoch sends entries. Gives the number of the last write.
fn append(seat: &mut Seat, epoch: u64, committed: u64, prev: EntryId, entries: Vec<LogEntry>) -> Option<u64> {
    let (epoch, committed) = (Epoch(epoch), Lsn(committed));
    let message = Message::Append { epoch, round: 1, asks_lease: false, committed, prev, entries };
    let mut commands = Vec::new();
    seat.replica.handle(1, Event::Received { from: NodeId(1), message }, &mut commands);
    let mut last = None;
    for command in commands {
        if let Command::Write { number, write } = command {
            seat.note_write(&write);
            last = Some(number);
        }
    }
    last
}

fn written(seat: &mut Seat, up_to: u64) {
    seat.replica.handle(2, Event::Written { up_to }, &mut Vec::new());
}

fn at(seat: &mut Seat) -> Option<String> {
    let store = seat.store.as_mut().expect("no shard runs over it");
    let value = store.get(&EntityKey::internal("test", b"key"), b"at").expect("memory does not fail");
    value.map(|value| String::from_utf8_lossy(value.content()).into_owned())
}

#[test]
fn an_entry_reaches_the_state_when_it_is_committed_and_durable_here() {
    let mut seat = follower();
    let number = append(&mut seat, 1, 0, EntryId::ZERO, vec![entry(1, 1), entry(1, 2)]).expect("a write");
    assert_eq!((seat.apply(), at(&mut seat)), (Ok(None), None), "neither");
    append(&mut seat, 1, 1, EntryId::new(Epoch(1), Lsn(2)), Vec::new());
    assert_eq!(seat.apply(), Ok(None), "committed only");
    written(&mut seat, number);
    assert_eq!(seat.apply(), Ok(Some(Lsn(1))), "the second entry is durable only");
    assert_eq!(at(&mut seat).as_deref(), Some("\"1/1\""));
}

#[test]
fn what_is_cut_off_never_reaches_the_state() {
    let mut seat = follower();
    let lost = append(&mut seat, 1, 0, EntryId::ZERO, vec![entry(1, 1), entry(1, 2)]).expect("a write");
    written(&mut seat, lost);
    let number = append(&mut seat, 2, 2, EntryId::new(Epoch(1), Lsn(1)), vec![entry(2, 2)]).expect("a write");
    written(&mut seat, number);
    assert_eq!(seat.apply(), Ok(Some(Lsn(2))));
    assert_eq!(at(&mut seat).as_deref(), Some("\"2/2\""));
}

#[test]
fn a_state_that_was_opened_again_goes_on_with_the_entries_that_wait() {
    let mut seat = follower();
    let number = append(&mut seat, 1, 1, EntryId::ZERO, vec![entry(1, 1), entry(1, 2)]).expect("a write");
    written(&mut seat, number);
    assert_eq!(seat.apply(), Ok(Some(Lsn(1))));
    let first = seat.store.take().expect("it is there");
    append(&mut seat, 1, 2, EntryId::new(Epoch(1), Lsn(2)), Vec::new());
    assert_eq!(seat.apply(), Ok(None), "there is no state to apply it to");
    assert!(!seat.take_store(store()), "the first entry is missing");
    assert!(seat.take_store(first));
    assert_eq!(seat.apply(), Ok(Some(Lsn(2))));
    seat.note_write(&Write::Append(vec![entry(1, 4)]));
    assert!(seat.apply().is_ok_and(|applied| applied.is_none()), "it is not committed");
}

#[test]
fn a_replica_whose_snapshot_did_not_come_whole_begins_as_one_that_has_lost_everything() {
    let mut seat = follower();
    let number = append(&mut seat, 4, 1, EntryId::ZERO, vec![entry(4, 1), entry(4, 2)]).expect("a write");
    written(&mut seat, number);
    seat.is_installing = true;
    let write = seat.begin_empty(store(), 3, 9);
    assert!(matches!(write, Write::Reset { at: EntryId::ZERO, .. }));
    assert!(!seat.is_installing && !seat.replica.is_whole());
    assert_eq!((seat.replica.log().last(), seat.replica.promised().epoch), (EntryId::ZERO, Epoch(4)));
    assert_eq!((seat.apply(), at(&mut seat)), (Ok(None), None));
}

#[test]
fn entries_from_before_a_snapshot_never_reach_the_state_after_it() {
    let mut seat = follower();
    let lost = append(&mut seat, 1, 0, EntryId::ZERO, vec![entry(1, 1), entry(1, 2), entry(1, 3)]).expect("a write");
    written(&mut seat, lost);
    let promise = append(&mut seat, 2, 0, EntryId::new(Epoch(9), Lsn(9)), Vec::new()).expect("a promise");
    written(&mut seat, promise);
    // The next owner's log begins behind its second entry.
    let mut rows = store();
    for entry in [entry(2, 1), entry(2, 2)] {
        super::apply_entry(&mut rows, entry.id.lsn, entry.kind, &entry.bytes).expect("it is the next one");
    }
    seat.store = Some(rows);
    let (end, set) = (EntryId::new(Epoch(2), Lsn(2)), ReplicaSet::of([1, 2, 3].map(NodeId)));
    let message = Message::Snapshot { epoch: Epoch(2), round: 1, at: end, set_lsn: Lsn::ZERO, set };
    let mut commands = Vec::new();
    seat.replica.handle(3, Event::Received { from: NodeId(1), message }, &mut commands);
    for command in commands {
        if let Command::Write { write, .. } = command {
            seat.note_write(&write);
        }
    }
    let number = append(&mut seat, 2, 3, end, vec![entry(2, 3)]).expect("a write");
    written(&mut seat, number);
    assert_eq!((seat.apply(), at(&mut seat).as_deref()), (Ok(Some(Lsn(3))), Some("\"2/3\"")));
}

#[test]
fn a_replica_holds_what_its_owner_has_once_that_is_on_its_disk() {
    let mut seat = follower();
    let number = append(&mut seat, 1, 0, EntryId::ZERO, vec![entry(1, 1), entry(1, 2)]).expect("a write");
    assert!(!seat.replica.holds_of(Epoch(1), Lsn(2)), "nothing is written");
    written(&mut seat, number);
    assert!(seat.replica.holds_of(Epoch(1), Lsn(2)) && !seat.replica.holds_of(Epoch(1), Lsn(3)));
    // The next owner has the first entry only, as far as this replica knows.
    let number = append(&mut seat, 2, 0, EntryId::new(Epoch(1), Lsn(1)), Vec::new()).expect("a promise");
    written(&mut seat, number);
    assert!(seat.replica.holds_of(Epoch(2), Lsn(1)) && !seat.replica.holds_of(Epoch(2), Lsn(2)));
    assert!(!seat.replica.holds_of(Epoch(1), Lsn(2)), "that owner has no say any more");
}

#[test]
fn entries_that_nobody_else_takes_wait_for_a_bounded_time() {
    const SECOND_NS: u64 = 1_000_000_000;
    let mut seat = follower();
    assert!(!(0..9).any(|_| seat.is_stuck(SECOND_NS)), "it has no entries");
    let number = append(&mut seat, 1, 0, EntryId::ZERO, vec![entry(1, 1), entry(1, 2)]).expect("a write");
    written(&mut seat, number);
    let waited = (1..9).find(|_| seat.is_stuck(SECOND_NS));
    assert_eq!(waited, Some(5), "not before, as a disk may be slow");
    append(&mut seat, 1, 1, EntryId::new(Epoch(1), Lsn(2)), Vec::new());
    assert!(!seat.is_stuck(SECOND_NS), "one of them is committed");
    assert!(seat.is_stuck(9 * SECOND_NS), "and the other is not");
    append(&mut seat, 1, 2, EntryId::new(Epoch(1), Lsn(2)), Vec::new());
    assert!(!seat.is_stuck(9 * SECOND_NS));
}
