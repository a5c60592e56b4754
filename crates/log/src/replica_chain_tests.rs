//! The table of `docs/internals/recovery.md`: what each record does to what is known.

use super::*;

const SHARD: ShardId = ShardId(3);

/// What is known before the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// Entries 5 to 7 of epoch 2, and no base: the beginning was deleted.
    NoBase,
    /// Base 4 of epoch 1, entries 5 to 7 of epoch 2, committed up to 5.
    Base,
}

const BEFORE: [Before; 3] = [Before::Nothing, Before::NoBase, Before::Base];

fn entry(epoch: u64, lsn: u64) -> ReplicaRecord<'static> {
    ReplicaRecord::Entry { epoch, lsn: Lsn(lsn), kind: ReplicaEntryKind::Data, bytes: b"data" }
}

fn base(epoch: u64, lsn: u64) -> ReplicaRecord<'static> {
    ReplicaRecord::Base {
        promised_epoch: 2,
        promised_node: 1,
        base_epoch: epoch,
        base_lsn: Lsn(lsn),
        set_lsn: Lsn::ZERO,
        set: b"set",
        committed: Lsn(lsn),
        is_whole: true,
    }
}

fn cut(after: u64) -> ReplicaRecord<'static> {
    ReplicaRecord::Cut { after: Lsn(after) }
}

fn chain(before: Before) -> ReplicaChain {
    let records: Vec<_> = match before {
        Before::Nothing => Vec::new(),
        Before::NoBase => (5..8).map(|lsn| entry(2, lsn)).collect(),
        Before::Base => {
            let note = ReplicaRecord::CommitNote { lsn: Lsn(5) };
            [base(1, 4)].into_iter().chain((5..8).map(|lsn| entry(2, lsn))).chain([note]).collect()
        }
    };
    let mut chain = ReplicaChain::new(SHARD, Lsn(4));
    for record in &records {
        chain.take(record, &mut |_| {}).expect("a valid beginning");
    }
    chain
}

/// The last entry afterwards, or the damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Last(u64),
    Gap,
    Order,
    Epoch,
    CommittedCut,
}

fn take(before: Before, record: &ReplicaRecord<'_>) -> After {
    let mut chain = chain(before);
    match chain.take(record, &mut |_| {}) {
        Ok(()) => {
            let of_base = chain.base.as_ref().map(|base| base.lsn);
            After::Last(chain.next.map(|next| next.0 - 1).or(of_base.map(|lsn| lsn.0)).expect("something is known"))
        }
        Err(DamageKind::Gap { .. }) => After::Gap,
        Err(DamageKind::Order { .. }) => After::Order,
        Err(DamageKind::Epoch { .. }) => After::Epoch,
        Err(DamageKind::CommittedCut { .. }) => After::CommittedCut,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn each_record_does_what_the_table_says() {
    use After::{CommittedCut, Epoch, Gap, Last, Order};
    let reset = ReplicaRecord::Reset { at_epoch: 9, at_lsn: Lsn(90), set_lsn: Lsn(1), set: b"set" };
    // For each record: with nothing known, without a base, with a base.
    let table = [
        (entry(2, 8), [Last(8), Last(8), Last(8)]),
        (entry(3, 8), [Last(8), Last(8), Last(8)]),
        (entry(1, 8), [Last(8), Epoch, Epoch]),
        (entry(2, 9), [Last(9), Gap, Gap]),
        (entry(2, 7), [Last(7), Order, Order]),
        (entry(0, 8), [Epoch, Epoch, Epoch]),
        (base(2, 6), [Last(6), Last(7), Last(7)]),
        (base(2, 7), [Last(7), Last(7), Last(7)]),
        (base(3, 6), [Last(6), Epoch, Epoch]),
        (base(1, 4), [Last(4), Last(7), Last(7)]),
        (base(1, 2), [Last(2), Last(7), Last(7)]),
        (base(2, 8), [Last(8), Gap, Gap]),
        (reset, [Last(90), Last(90), Last(90)]),
    ];
    for (record, expected) in table {
        assert_eq!(BEFORE.map(|before| take(before, &record)), expected, "{record:?}");
    }
    for (after, expected) in [(9, [Last(7), Last(7)]), (6, [Last(6), Last(6)]), (4, [Last(4), CommittedCut])] {
        let known = [Before::NoBase, Before::Base];
        assert_eq!(known.map(|before| take(before, &cut(after))), expected, "cut after {after}");
    }
}

fn checkpoint(lsn: u64) -> ShardCheckpoint {
    ShardCheckpoint { lsn: Lsn(lsn), ..ShardCheckpoint::default() }
}

fn snapshot(epoch: u64, lsn: u64) -> ShardCheckpoint {
    let mut bytes = Vec::new();
    let record = ReplicaRecord::Reset { at_epoch: epoch, at_lsn: Lsn(lsn), set_lsn: Lsn(1), set: b"of the snapshot" };
    record.encode(SHARD, &mut bytes);
    ShardCheckpoint { snapshot: Some(bytes), ..checkpoint(lsn) }
}

fn finish(before: Before, checkpoint: &ShardCheckpoint) -> Result<Option<RecoveredReplica>, DamageKind> {
    chain(before).finish(checkpoint, &mut |_| {})
}

/// A base whose first entries are deleted, as a later base does not need them.
#[test]
fn entries_may_be_missing_behind_a_base_that_another_one_replaces() {
    let mut old = chain(Before::Nothing);
    for record in [base(1, 2), entry(2, 5), entry(2, 6)] {
        old.take(&record, &mut |_| {}).expect("what is missing may be deleted");
    }
    assert_eq!(
        old.take(&entry(2, 8), &mut |_| {}),
        Err(DamageKind::Gap { shard: SHARD, expected: Lsn(7), found: Lsn(8) })
    );
    old.take(&base(2, 5), &mut |_| {}).expect("a later base");
    let replica = old.finish(&checkpoint(5), &mut |_| {}).expect("no damage").expect("a base");
    assert_eq!((replica.base, replica.last), ((2, Lsn(5)), (2, Lsn(6))));
    let mut early = chain(Before::Nothing);
    early.take(&base(1, 2), &mut |_| {}).expect("valid");
    let order = DamageKind::Order { shard: SHARD, after: Lsn(2), found: Lsn(2) };
    assert_eq!(early.take(&entry(1, 2), &mut |_| {}), Err(order));
}

#[test]
fn the_checkpoint_decides_where_a_replica_begins() {
    let whole = |checkpoint: &ShardCheckpoint| {
        let replica = finish(Before::Base, checkpoint).expect("no damage").expect("a base");
        (replica.base, replica.last, replica.committed.0, replica.is_whole, replica.needs_reset)
    };
    // It is behind what the log knows to be committed, or ahead of that.
    assert_eq!(whole(&checkpoint(4)), ((1, Lsn(4)), (2, Lsn(7)), 5, true, false));
    assert_eq!(whole(&checkpoint(7)), ((1, Lsn(4)), (2, Lsn(7)), 7, true, false));
    // A snapshot that the log knows, one that it does not, and one that is not the newest flush.
    assert_eq!(whole(&snapshot(2, 6)), ((1, Lsn(4)), (2, Lsn(7)), 6, true, false));
    assert_eq!(whole(&snapshot(3, 9)), ((3, Lsn(9)), (3, Lsn(9)), 9, true, true));
    assert_eq!(whole(&snapshot(3, 6)), ((3, Lsn(6)), (3, Lsn(6)), 6, false, true), "entry 7 may be missed");
    assert_eq!(whole(&ShardCheckpoint { lsn: Lsn(7), ..snapshot(3, 6) }), ((1, Lsn(4)), (2, Lsn(7)), 7, true, false));
    // A snapshot was being put into the checkpoint: the rows are lost, and the replica asks the others.
    let resetting = ShardCheckpoint { is_resetting: true, ..checkpoint(6) };
    assert_eq!(whole(&resetting), ((0, Lsn(0)), (0, Lsn(0)), 0, false, true));
    let replica = finish(Before::Base, &resetting).expect("no damage").expect("a base");
    assert_eq!((&replica.set[..], replica.promised, replica.opening().len()), (&b"set"[..], (2, 1), 2));
}

#[test]
fn what_checkpoint_and_log_contradict_is_damage() {
    let (shard, checkpoint_at) = (SHARD, |lsn| Lsn(lsn));
    let missing = DamageKind::RowsMissing { shard, base: Lsn(4), checkpoint: checkpoint_at(3) };
    assert_eq!(finish(Before::Base, &checkpoint(3)), Err(missing));
    let lost = DamageKind::TailLost { shard, last: Lsn(7), checkpoint: checkpoint_at(8) };
    assert_eq!(finish(Before::Base, &checkpoint(8)), Err(lost));
    assert_eq!(finish(Before::NoBase, &checkpoint(7)), Ok(None), "given up");
    // The base says that entry 3 can be read, and the first one is entry 5.
    let mut behind = chain(Before::NoBase);
    behind.take(&base(1, 2), &mut |_| {}).expect("a later base may follow");
    let gap = DamageKind::Gap { shard, expected: Lsn(3), found: Lsn(5) };
    assert_eq!(behind.finish(&checkpoint(5), &mut |_| {}), Err(gap));
}

#[test]
fn entries_are_delivered_once_they_are_known_to_be_committed() {
    let mut delivered = Vec::new();
    let mut chain = chain(Before::Base);
    let mut deliver = |entry: ReplicaEntryRef<'_>| delivered.push(entry.lsn.0);
    for record in [cut(6), entry(3, 7), ReplicaRecord::CommitNote { lsn: Lsn(6) }, entry(3, 8)] {
        chain.take(&record, &mut deliver).expect("valid");
    }
    let replica = chain.finish(&checkpoint(4), &mut deliver).expect("no damage").expect("a base");
    assert_eq!(delivered, [6], "entry 5 was delivered before");
    assert_eq!(replica.runs, [(2, Lsn(5)), (3, Lsn(7))]);
    assert_eq!(replica.tail.iter().map(|entry| (entry.epoch, entry.lsn.0)).collect::<Vec<_>>(), [(3, 7), (3, 8)]);
}
