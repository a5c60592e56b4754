//! The log of replicated shards: whatever the power cuts short, what comes back is what was durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::*;
use millrace_base::{Lsn, ShardId};
use millrace_format::{ReplicaEntryKind, ReplicaRecord};
use millrace_io::Disk;
use millrace_log::{
    Batch, Durability, LogReader, RecoverError, RecoveredReplica, RecoveredReplicas, ReplicaEntry, Segments,
    ShardCheckpoint, Writer, WriterOptions, recover, recover_replicas,
};
use millrace_manifest::Manifest;

const SHARDS: [ShardId; 2] = [ShardId(1), ShardId(4)];
const PATH: &str = "log/0000000001/0000000001.log";

/// A log of some size: several batches fit a segment, and batches of several blocks occur.
fn options() -> WriterOptions {
    WriterOptions { first_segment_bytes: 9 * 4096, segment_bytes: 12 * 4096, is_replicated: true, ..small() }
}

fn manifest_of(disk: &MemoryDisk) -> Manifest {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Manifest::open(&disk).expect("readable").unwrap_or_else(|| Manifest::new(&disk, [7; 16]))
}

/// What a shard's log says, as a plain list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Model {
    promised: (u64, u16),
    base: (u64, u64),
    set: (u64, Vec<u8>),
    entries: Vec<ReplicaEntry>,
    committed: u64,
    is_whole: bool,
}

type Delivered = BTreeMap<ShardId, Vec<ReplicaEntry>>;

impl Model {
    fn new() -> Self {
        let set = (0, b"first".to_vec());
        Self { promised: (0, 0), base: (0, 0), set, entries: Vec::new(), committed: 0, is_whole: true }
    }

    fn last(&self) -> (u64, u64) {
        self.entries.last().map_or(self.base, |entry| (entry.epoch, entry.lsn.0))
    }

    fn id_at(&self, lsn: u64) -> Option<(u64, u64)> {
        let entry = self.entries.iter().find(|entry| entry.lsn.0 == lsn).map(|entry| (entry.epoch, lsn));
        entry.or((self.base.1 == lsn).then_some(self.base))
    }

    fn take(&mut self, record: &ReplicaRecord<'_>) {
        match *record {
            ReplicaRecord::Entry { epoch, lsn, kind, bytes } => {
                self.entries.push(ReplicaEntry { epoch, lsn, kind, bytes: bytes.to_vec() });
            }
            ReplicaRecord::Promise { epoch, node } => self.promised = (epoch, node),
            ReplicaRecord::CommitNote { lsn } => self.committed = lsn.0,
            ReplicaRecord::Cut { after } => self.entries.retain(|entry| entry.lsn <= after),
            ReplicaRecord::Reset { at_epoch, at_lsn, set_lsn, set } => {
                self.base = (at_epoch, at_lsn.0);
                self.set = (set_lsn.0, set.to_vec());
                self.committed = at_lsn.0;
                self.entries.clear();
            }
            ReplicaRecord::Base { base_epoch, base_lsn, set_lsn, set, is_whole, .. } => {
                self.base = (base_epoch, base_lsn.0);
                self.set = (set_lsn.0, set.to_vec());
                self.entries.retain(|entry| entry.lsn > base_lsn);
                self.is_whole = is_whole;
            }
        }
    }

    /// What a start finds, and the entries that it applies.
    fn recovered(&self, checkpoint: &ShardCheckpoint) -> (RecoveredReplica, Vec<ReplicaEntry>) {
        let mut model = self.clone();
        let mut needs_reset = false;
        if let Some(Ok((_, reset))) = checkpoint.snapshot.as_deref().map(ReplicaRecord::decode)
            && let ReplicaRecord::Reset { at_epoch, at_lsn, .. } = reset
            && at_lsn == checkpoint.lsn
            && model.id_at(at_lsn.0) != Some((at_epoch, at_lsn.0))
        {
            model.is_whole &= model.last().1 <= at_lsn.0;
            model.take(&reset);
            needs_reset = true;
        }
        let committed = Lsn(model.committed.max(checkpoint.lsn.0));
        let runs = runs_of(&model.entries);
        let mut sets = Vec::new();
        for entry in &model.entries {
            if entry.kind == ReplicaEntryKind::ReplicaSet && entry.lsn.0 > model.set.0 {
                sets.push((entry.lsn, entry.bytes.clone()));
            }
        }
        let (last, base) = (model.last(), model.base);
        let (tail, known): (Vec<_>, Vec<_>) = model.entries.into_iter().partition(|entry| entry.lsn > committed);
        let replica = RecoveredReplica {
            promised: model.promised,
            base: (base.0, Lsn(base.1)),
            set_lsn: Lsn(model.set.0),
            set: model.set.1,
            committed,
            last: (last.0, Lsn(last.1)),
            runs,
            sets,
            tail,
            is_whole: model.is_whole,
            needs_reset,
        };
        (replica, known.into_iter().filter(|entry| entry.lsn > checkpoint.lsn).collect())
    }
}

/// A node with two replicas, and what it has written.
struct Node {
    dice: Dice,
    disk: MemoryDisk,
    models: BTreeMap<ShardId, Model>,
    checkpoints: BTreeMap<ShardId, ShardCheckpoint>,
    /// What the log wants forgotten.
    trimmed: BTreeMap<ShardId, Lsn>,
    /// No epoch makes two entries of one name.
    epoch: u64,
    deleted: u64,
    read: u64,
}

/// The first entry of each epoch.
fn runs_of(entries: &[ReplicaEntry]) -> Vec<(u64, Lsn)> {
    let mut runs: Vec<(u64, Lsn)> = Vec::new();
    for entry in entries {
        if runs.last().is_none_or(|(epoch, _)| *epoch != entry.epoch) {
            runs.push((entry.epoch, entry.lsn));
        }
    }
    runs
}

fn encoded(shard: ShardId, record: &ReplicaRecord<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(shard, &mut bytes);
    bytes
}

impl Node {
    fn new(seed: u64) -> Self {
        let models = SHARDS.map(|shard| (shard, Model::new())).into();
        let checkpoints = SHARDS.map(|shard| (shard, ShardCheckpoint::default())).into();
        let (disk, trimmed) = (MemoryDisk::default(), BTreeMap::new());
        Self { dice: Dice(seed), disk, models, checkpoints, trimmed, epoch: 1, deleted: 0, read: 0 }
    }

    /// A record that a replica could write now.
    fn record(&mut self, shard: ShardId) -> Vec<u8> {
        let (last, committed) = (self.models[&shard].last(), self.models[&shard].committed);
        let (node, spread) = (self.dice.below(3) as u16 + 1, self.dice.below(last.1 - committed + 1));
        match self.dice.below(20) {
            0 => {
                self.epoch += 1;
                encoded(shard, &ReplicaRecord::Promise { epoch: self.epoch, node })
            }
            1 | 2 => encoded(shard, &ReplicaRecord::CommitNote { lsn: Lsn(committed + spread) }),
            3 if last.1 > committed => {
                self.epoch += 1;
                encoded(shard, &ReplicaRecord::Cut { after: Lsn(committed + spread) })
            }
            4 => {
                self.epoch += 1;
                let at_lsn = Lsn(committed + spread + self.dice.below(2) + 1);
                let (at_epoch, set_lsn) = (self.epoch, Lsn(at_lsn.0 / 2));
                let record = encoded(shard, &ReplicaRecord::Reset { at_epoch, at_lsn, set_lsn, set: b"reset" });
                // The rows come first.
                let snapshot = Some(record.clone());
                self.checkpoints.insert(shard, ShardCheckpoint { lsn: at_lsn, is_resetting: false, snapshot });
                record
            }
            kind => {
                let length = if kind == 5 { 6000 } else { self.dice.below(300) as usize };
                let bytes = vec![self.dice.below(255) as u8 + 1; length];
                let kind = match kind {
                    6 => ReplicaEntryKind::ReplicaSet,
                    7 => ReplicaEntryKind::EpochStart,
                    _ => ReplicaEntryKind::Data,
                };
                let epoch = self.epoch.max(last.0);
                encoded(shard, &ReplicaRecord::Entry { epoch, lsn: Lsn(last.1 + 1), kind, bytes: &bytes })
            }
        }
    }

    /// Everything that is known, and no more of the log than the checkpoint needs.
    fn base(&self, shard: ShardId) -> Vec<u8> {
        let model = &self.models[&shard];
        let trimmed = self.trimmed.get(&shard).copied().unwrap_or_default();
        let base = model.id_at(trimmed.0.min(model.committed)).unwrap_or(model.base);
        let is_set = |entry: &&ReplicaEntry| {
            entry.kind == ReplicaEntryKind::ReplicaSet && entry.lsn.0 <= model.committed && entry.lsn.0 > model.set.0
        };
        let newest = model.entries.iter().rfind(is_set).map(|entry| (entry.lsn, entry.bytes.clone()));
        let (set_lsn, set) = newest.unwrap_or_else(|| (Lsn(model.set.0), model.set.1.clone()));
        let record = ReplicaRecord::Base {
            promised_epoch: model.promised.0,
            promised_node: model.promised.1,
            base_epoch: base.0,
            base_lsn: Lsn(base.1),
            set_lsn,
            set: &set,
            committed: Lsn(model.committed),
            is_whole: model.is_whole,
        };
        encoded(shard, &record)
    }

    /// Writes batches until the power fails, first the one with which the stream begins. Changes `durable` with each batch
    /// that is acknowledged.
    fn write(
        &mut self,
        (mut writer, segments): (Writer, Segments),
        mut first: Batch,
        batches: u64,
        durable: &mut BTreeMap<ShardId, Model>,
    ) {
        let reader = LogReader::new(segments.clone());
        for number in 0..batches {
            let mut batch = if number == 0 { std::mem::take(&mut first) } else { Batch::new() };
            for _ in 0..self.dice.below(6) + 1 {
                let shard = SHARDS[self.dice.below(2) as usize];
                let bytes = self.record(shard);
                self.push(&mut batch, &bytes);
            }
            let Ok(report) = writer.append(&mut batch) else { break };
            durable.clone_from(&self.models);
            if report.began_segment && number > 0 {
                for shard in SHARDS {
                    let bytes = self.base(shard);
                    self.push(&mut first, &bytes);
                }
                if writer.append(&mut first).is_err() {
                    break;
                }
                durable.clone_from(&self.models);
            }
            if let Some(job) = writer.job() {
                job.run();
            }
            self.flush(durable);
            self.read_back(&reader, durable);
            self.delete(&segments);
        }
    }

    fn push(&mut self, batch: &mut Batch, bytes: &[u8]) {
        let (shard, record) = ReplicaRecord::decode(bytes).expect("encoded here");
        batch.push_record(shard, &record);
        self.models.get_mut(&shard).expect("a shard").take(&record);
    }

    /// A checkpoint takes what is committed and durable.
    fn flush(&mut self, durable: &BTreeMap<ShardId, Model>) {
        for (shard, checkpoint) in &mut self.checkpoints {
            let committed = Lsn(durable[shard].committed);
            if committed > checkpoint.lsn && self.dice.below(8) == 0 {
                checkpoint.lsn = committed;
            }
        }
    }

    /// Everything that a replica may ask for can be read.
    fn read_back(&mut self, reader: &LogReader, durable: &BTreeMap<ShardId, Model>) {
        let shard = SHARDS[self.dice.below(2) as usize];
        let model = &durable[&shard];
        let after = model.id_at(model.base.1 + self.dice.below(model.last().1 - model.base.1 + 1)).expect("in the log");
        let expected: Vec<_> = model.entries.iter().filter(|entry| entry.lsn.0 > after.1).cloned().collect();
        let (mut after, mut found) = ((after.0, Lsn(after.1)), Vec::new());
        let (runs, up_to) = (runs_of(&model.entries), Lsn(model.last().1));
        let max_bytes = self.dice.below(2000) as usize;
        let most = 1 + max_bytes % 20;
        loop {
            let entries = reader.read_after(shard, after, up_to, &runs, (max_bytes, most)).expect("read");
            let Some(last) = entries.last() else { break };
            assert!(entries.len() <= most);
            assert!(entries.len() == 1 || entries.iter().map(|entry| entry.bytes.len()).sum::<usize>() <= max_bytes);
            after = (last.epoch, last.lsn);
            found.extend(entries);
        }
        assert!(found == expected, "{} of {} entries", found.len(), expected.len());
        self.read += found.len() as u64;
    }

    fn delete(&mut self, segments: &Segments) {
        let kept_bytes = self.dice.below(2) * 60_000;
        let limit = |shard: ShardId| Some(self.checkpoints[&shard].lsn);
        let deleted = segments.delete_behind_bases(&limit, kept_bytes, 0).map_or(0, |deleted| deleted.segments);
        assert!(deleted == 0 || segments.closed_bytes() >= kept_bytes);
        for (shard, lsn) in segments.trims(&limit, kept_bytes) {
            self.trimmed.insert(shard, lsn);
        }
        self.deleted += deleted;
    }

    fn recover(&self) -> Result<(RecoveredReplicas, Delivered), RecoverError> {
        recover_with(&self.disk, &|shard| self.checkpoints[&shard].clone())
    }
}

fn recover_with(
    disk: &MemoryDisk,
    checkpoint: &dyn Fn(ShardId) -> ShardCheckpoint,
) -> Result<(RecoveredReplicas, Delivered), RecoverError> {
    let mut delivered = Delivered::new();
    let manifest = manifest_of(disk);
    let dynamic: Arc<dyn Disk> = Arc::new(disk.clone());
    let recovered = recover_replicas(&dynamic, &manifest, checkpoint, &mut |shard, entry| {
        delivered.entry(shard).or_default().push(entry.to_owned());
    })?;
    Ok((recovered, delivered))
}

fn without(checkpoint: u64) -> impl Fn(ShardId) -> ShardCheckpoint {
    move |_| ShardCheckpoint { lsn: Lsn(checkpoint), ..ShardCheckpoint::default() }
}

/// The records with which a stream begins, and the batch with them.
fn opening(recovered: &RecoveredReplicas) -> Batch {
    let mut batch = Batch::new();
    for (shard, replica) in &recovered.replicas {
        replica.opening().iter().for_each(|record| batch.push_record(*shard, record));
    }
    batch
}

#[test]
fn whatever_the_power_cuts_short_what_was_durable_comes_back() {
    let (mut torn, mut in_flight, mut resets, mut deleted, mut read) = (0, 0, 0, 0, 0);
    for seed in 0..400 {
        let mut node = Node::new(seed);
        let mut durable = BTreeMap::new();
        for round in 0..4u64 {
            // The power may fail while the log is being recovered, too.
            if round > 0 && node.dice.below(3) == 0 {
                node.disk.cut_power_after(node.dice.below(12));
                let _ = node.recover();
                node.disk = node.disk.after_power_cut(&mut node.dice);
            }
            let (recovered, delivered) = node.recover().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            torn += recovered.unclosed.iter().filter(|tail| tail.is_torn).count();
            let found = |models: &BTreeMap<ShardId, Model>| {
                models.iter().all(|(shard, model)| {
                    let (replica, entries) = model.recovered(&node.checkpoints[shard]);
                    recovered.replicas.get(shard) == Some(&replica)
                        && delivered.get(shard).map_or(&[][..], |entries| entries) == entries
                })
            };
            let mut first = opening(&recovered);
            let mut is_new = false;
            if recovered.replicas.is_empty() {
                // Nothing was ever durable: the shards are new.
                assert!(durable.values().all(|model| *model == Model::new()), "seed {seed}");
                node.models = SHARDS.map(|shard| (shard, Model::new())).into();
                node.checkpoints = SHARDS.map(|shard| (shard, ShardCheckpoint::default())).into();
                is_new = true;
            } else {
                let is_in_flight = found(&node.models);
                in_flight += usize::from(is_in_flight && node.models != durable);
                assert!(is_in_flight || found(&durable), "seed {seed}, round {round}: {:#?}", recovered.replicas);
                if !is_in_flight {
                    node.models = durable;
                }
            }
            durable = node.models.clone();
            for shard in SHARDS {
                if is_new {
                    let bytes = node.base(shard);
                    node.push(&mut first, &bytes);
                    continue;
                }
                let (replica, model) = (&recovered.replicas[&shard], node.models.get_mut(&shard).expect("a shard"));
                resets += usize::from(replica.needs_reset);
                replica.opening().iter().for_each(|record| model.take(record));
                model.committed = replica.committed.0;
            }
            let options = WriterOptions { run: recovered.next_run, ..options() };
            let segments = recovered.segments;
            let writer = Writer::open(environment(&node.disk), segments.clone(), options).expect("a writer");
            let operations = node.dice.below(120);
            node.disk.cut_power_after(operations);
            node.write((writer, segments), first, 40, &mut durable);
            node.disk = node.disk.after_power_cut(&mut node.dice);
        }
        deleted += node.deleted;
        read += node.read;
    }
    assert!(deleted > 200 && read > 10_000, "{deleted} segments deleted, {read} entries read");
    assert!(torn > 30 && in_flight > 50 && resets > 20, "{torn} torn, {in_flight} in flight, {resets} resets");
}

/// A log of one stream with two batches: a base, and an entry of these bytes.
fn two_batches(options: WriterOptions, bytes: &[u8]) -> MemoryDisk {
    let disk = MemoryDisk::default();
    let (recovered, _) = recover_with(&disk, &without(0)).expect("an empty log");
    let options = WriterOptions { run: recovered.next_run, ..options };
    let mut writer = Writer::open(environment(&disk), recovered.segments, options).expect("a writer");
    let mut batch = Batch::new();
    batch.push_record(SHARDS[0], &first_base());
    assert!(writer.append(&mut batch).expect("appended").began_segment);
    let kind = ReplicaEntryKind::Data;
    batch.push_record(SHARDS[0], &ReplicaRecord::Entry { epoch: 1, lsn: Lsn(1), kind, bytes });
    assert!(!writer.append(&mut batch).expect("appended").began_segment);
    disk
}

fn first_base() -> ReplicaRecord<'static> {
    ReplicaRecord::Base {
        promised_epoch: 1,
        promised_node: 2,
        base_epoch: 0,
        base_lsn: Lsn::ZERO,
        set_lsn: Lsn::ZERO,
        set: b"set",
        committed: Lsn::ZERO,
        is_whole: true,
    }
}

/// Changes a file's bytes.
type Damage = dyn Fn(&mut Vec<u8>);

/// Where the second batch lies.
const SECOND: usize = 2 * 4096;

/// Whether the replica is whole, and its last entry.
fn found(disk: &MemoryDisk) -> (bool, u64) {
    let (recovered, _) = recover_with(disk, &without(0)).expect("recovered");
    let replica = &recovered.replicas[&SHARDS[0]];
    (replica.is_whole, replica.last.1.0)
}

#[test]
fn a_batch_that_was_never_acknowledged_costs_no_vote() {
    let cases: [(&str, &Damage); 4] = [
        ("all of it", &|_| {}),
        ("no header", &|bytes| bytes[SECOND..SECOND + 512].fill(0)),
        ("a sector within", &|bytes| bytes[SECOND + 512..SECOND + 1024].fill(0)),
        ("the last sector", &|bytes| bytes[SECOND + 1024..SECOND + 1536].fill(0)),
    ];
    for (what, change) in cases {
        let disk = two_batches(options(), &[5; 1400]);
        disk.change(PATH, change);
        let expected = if what == "all of it" { (true, 1) } else { (true, 0) };
        assert_eq!([found(&disk), found(&disk)], [expected; 2], "{what}");
    }
}

#[test]
fn a_batch_that_may_have_been_acknowledged_costs_the_vote_until_a_base_says_otherwise() {
    let flip = |at: usize| move |bytes: &mut Vec<u8>| bytes[at] ^= 1;
    let cases: [(&str, usize, &Damage); 4] = [
        ("a flipped bit in its entries", 1400, &flip(SECOND + 700)),
        ("a flipped bit in its header", 1400, &flip(SECOND + 20)),
        ("a small batch, which cannot be torn", 100, &flip(SECOND + 100)),
        ("another header in its place", 1400, &|bytes| bytes[SECOND..SECOND + 512].fill(9)),
    ];
    for (what, length, change) in cases {
        let disk = two_batches(options(), &vec![5; length]);
        disk.change(PATH, change);
        assert_eq!([found(&disk), found(&disk)], [(false, 0); 2], "{what}: the mark stays");
    }
    // A value of zeros looks like a sector that was not written.
    let disk = two_batches(options(), &[0; 1400]);
    disk.change(PATH, flip(SECOND + 1400));
    assert_eq!(found(&disk), (false, 0), "zeros of its own");
    // The replica has heard the others: its next base says that it is whole.
    let (recovered, _) = recover_with(&disk, &without(0)).expect("recovered");
    let mut batch = opening(&recovered);
    let options = WriterOptions { run: recovered.next_run, ..options() };
    let mut writer = Writer::open(environment(&disk), recovered.segments, options).expect("a writer");
    writer.append(&mut batch).expect("appended");
    assert_eq!(found(&disk.after_kill()), (false, 0));
    batch.push_record(SHARDS[0], &first_base());
    writer.append(&mut batch).expect("appended");
    assert_eq!(found(&disk.after_kill()), (true, 0));
}

#[test]
fn a_log_that_was_not_synced_is_whole_only_once_it_was_closed() {
    let unsynced = WriterOptions { durability: Durability::Os, ..options() };
    assert_eq!(found(&two_batches(unsynced, &[5; 100]).after_kill()), (false, 1));
    assert_eq!(found(&two_batches(options(), &[5; 100]).after_kill()), (true, 1));
}

#[test]
fn damage_before_the_last_batch_is_refused_by_its_place() {
    let disk = two_batches(options(), &[5; 1400]);
    disk.change(PATH, |bytes| bytes[4096 + 80] ^= 1);
    let before = disk.contents();
    let error = recover_with(&disk, &without(0)).map(|_| ()).expect_err("damaged");
    assert!(matches!(error, RecoverError::ReplicasDamaged(_)), "{error}");
    for part in [PATH, "byte 4096", "join again"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(disk.contents() == before, "a refused log is left alone");
}

#[test]
fn each_mode_refuses_the_other_ones_log_by_name() {
    let replicated = two_batches(options(), b"data");
    let dynamic: Arc<dyn Disk> = Arc::new(replicated.clone());
    let single = recover(&dynamic, &manifest_of(&replicated), &|_| Lsn::ZERO, &mut |_| {});
    let error = single.map(|_| ()).expect_err("of a cluster");
    assert!(matches!(error, RecoverError::OtherMode { is_replicated: true, .. }));
    assert!(error.to_string().contains("a node of a cluster"), "{error}");
    let repaired = millrace_log::repair(&environment(&replicated), &manifest_of(&replicated), &|_| Lsn::ZERO, true);
    assert!(repaired.expect_err("of a cluster").to_string().contains("a node of a cluster"));
    let disk = MemoryDisk::default();
    open(&disk, small()).append(&mut batch_of(&[(1, 1)])).expect("appended");
    let dynamic: Arc<dyn Disk> = Arc::new(disk.clone());
    let error = recover_replicas(&dynamic, &unlisted(), &without(0), &mut |_, _| {}).map(|_| ()).expect_err("single");
    assert!(matches!(error, RecoverError::OtherMode { is_replicated: false, .. }));
    assert!(error.to_string().contains("a single node"), "{error}");
}
