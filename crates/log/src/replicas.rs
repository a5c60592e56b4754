//! Recovers the log of replicated shards after a stop of any kind.
//!
//! It reads and seals the streams as `recover.rs` does. An entry may be cut off by a later record, so it is delivered only
//! once the log says that it is committed. A log that may lack an acknowledged entry is not refused: the replica asks the
//! others first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_base::{Lsn, ShardId};
use millrace_format::{BodyKind, ReplicaEntryKind, ReplicaRecord};
use millrace_io::Disk;
use millrace_manifest::Manifest;

use crate::error::{Damage, DamageKind, RecoverError};
use crate::layout::{LogFiles, StreamFiles, list_log};
use crate::listed;
use crate::recover::{Tail, check_for_unfinished_repair, conclude};
use crate::replica_chain::ReplicaChain;
use crate::scan::{EntryPlace, Sink, StreamScan, scan_stream};
use crate::segments::Segments;

/// What a checkpoint holds of a replicated shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardCheckpoint {
    /// The rows reflect everything up to here.
    pub lsn: Lsn,
    /// The rows were being replaced by a snapshot: they are those of no position.
    pub is_resetting: bool,
    /// The [`ReplicaRecord::Reset`] that belongs to the last snapshot, encoded.
    pub snapshot: Option<Vec<u8>>,
}

/// An entry of a replicated shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaEntry {
    /// The epoch whose owner made it.
    pub epoch: u64,
    /// Its position.
    pub lsn: Lsn,
    /// What its bytes are.
    pub kind: ReplicaEntryKind,
    /// Its payload.
    pub bytes: Vec<u8>,
}

/// As [`ReplicaEntry`], with bytes that lie elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaEntryRef<'a> {
    /// The epoch whose owner made it.
    pub epoch: u64,
    /// Its position.
    pub lsn: Lsn,
    /// What its bytes are.
    pub kind: ReplicaEntryKind,
    /// Its payload.
    pub bytes: &'a [u8],
}

impl ReplicaEntry {
    /// The entry, borrowed.
    #[must_use]
    pub fn as_ref(&self) -> ReplicaEntryRef<'_> {
        ReplicaEntryRef { epoch: self.epoch, lsn: self.lsn, kind: self.kind, bytes: &self.bytes }
    }
}

impl ReplicaEntryRef<'_> {
    /// An owned copy.
    #[must_use]
    pub fn to_owned(&self) -> ReplicaEntry {
        ReplicaEntry { epoch: self.epoch, lsn: self.lsn, kind: self.kind, bytes: self.bytes.to_vec() }
    }
}

/// What the log says of one replica. It has what a replica starts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredReplica {
    /// The last promise: an epoch and its owner.
    pub promised: (u64, u16),
    /// Epoch and position of the entry before the first that can be read.
    pub base: (u64, Lsn),
    /// Where the newest replica set stands that the base knows.
    pub set_lsn: Lsn,
    /// That replica set.
    pub set: Vec<u8>,
    /// All entries up to here are committed. They are delivered, or the checkpoint holds them.
    pub committed: Lsn,
    /// Epoch and position of the last entry; the base if there is none.
    pub last: (u64, Lsn),
    /// First entry of each epoch after the base, ascending.
    pub runs: Vec<(u64, Lsn)>,
    /// Replica sets behind the base's one, with the positions of their entries.
    pub sets: Vec<(Lsn, Vec<u8>)>,
    /// The entries after `committed`.
    pub tail: Vec<ReplicaEntry>,
    /// `false` if the log may lack an entry that was acknowledged or a promise that was made.
    pub is_whole: bool,
    /// The log on disk still has what does not count any more: the new stream begins with a reset.
    pub needs_reset: bool,
}

impl RecoveredReplica {
    /// The records with which the shard's part of a new stream begins.
    #[must_use]
    pub fn opening(&self) -> Vec<ReplicaRecord<'_>> {
        let ((promised_epoch, promised_node), (base_epoch, base_lsn)) = (self.promised, self.base);
        let (set_lsn, set) = (self.set_lsn, &self.set[..]);
        let reset = ReplicaRecord::Reset { at_epoch: base_epoch, at_lsn: base_lsn, set_lsn, set };
        let base = ReplicaRecord::Base {
            promised_epoch,
            promised_node,
            base_epoch,
            base_lsn,
            set_lsn,
            set,
            committed: self.committed,
            is_whole: self.is_whole,
        };
        let mut records = Vec::new();
        records.extend(self.needs_reset.then_some(reset));
        records.push(base);
        records
    }
}

/// A recovered log of replicated shards.
pub struct RecoveredReplicas {
    /// Every shard of which the log has a base.
    pub replicas: BTreeMap<ShardId, RecoveredReplica>,
    /// Shards of which the log has records and no base: this node had given them up.
    pub given_up: BTreeSet<ShardId>,
    /// As [`crate::Recovered::next_run`].
    pub next_run: u64,
    /// As [`crate::Recovered::segments`].
    pub segments: Segments,
    /// As [`crate::Recovered::bytes`].
    pub bytes: u64,
    /// As [`crate::Recovered::unclosed`].
    pub unclosed: Vec<Tail>,
}

/// Reads the whole log and gives each shard's committed entries above its checkpoint to `apply`: in order, without gaps,
/// once. Shards come interleaved. After an error, throw away what `apply` got.
///
/// Call it once, before any [`crate::Writer`] is opened. Nothing else may use the log meanwhile.
///
/// # Errors
/// [`RecoverError::ReplicasDamaged`] if the log contradicts itself or the checkpoint, [`RecoverError::OtherMode`] if it is
/// the log of a single node.
pub fn recover_replicas(
    disk: &Arc<dyn Disk>,
    manifest: &Manifest,
    checkpoint: &dyn Fn(ShardId) -> ShardCheckpoint,
    apply: &mut dyn FnMut(ShardId, ReplicaEntryRef<'_>),
) -> Result<RecoveredReplicas, RecoverError> {
    recover_all(disk, manifest, checkpoint, apply).map_err(|error| match error {
        RecoverError::Damaged(damage) => RecoverError::ReplicasDamaged(damage),
        other => other,
    })
}

fn recover_all(
    disk: &Arc<dyn Disk>,
    manifest: &Manifest,
    checkpoint: &dyn Fn(ShardId) -> ShardCheckpoint,
    apply: &mut dyn FnMut(ShardId, ReplicaEntryRef<'_>),
) -> Result<RecoveredReplicas, RecoverError> {
    let files = list_log(&**disk).map_err(|(file, error)| RecoverError::Io { file, error })?;
    check_for_unfinished_repair(&files)?;
    let listed = manifest.streams();
    if let Some(damage) = listed::missing(&files, listed.as_ref()).into_iter().next() {
        return Err(RecoverError::Damaged(damage));
    }
    let newest_run = files.streams.iter().filter_map(StreamFiles::run).max();
    let mut sink = Chains { checkpoint, apply, chains: BTreeMap::new(), run: 0, stream: 0, doubtful_run: None };
    let mut window = Vec::new();
    let mut scans = Vec::new();
    for stream in &files.streams {
        let is_older_run = stream.run().is_some() && stream.run() != newest_run;
        sink.begin(stream);
        let mut scan = scan_stream(&**disk, stream, is_older_run, false, &mut window, &mut sink)?;
        // How far the checkpoint is says nothing about this stream alone: a snapshot may be ahead of the log.
        if let Some(damage) = listed::difference(stream, &scan, listed.as_ref(), &|_| Lsn::ZERO) {
            return Err(RecoverError::Damaged(damage));
        }
        let record = listed.as_ref().and_then(|listed| listed.get(&stream.stream));
        scan.is_doubtful |= !scan.is_closed && record.is_some_and(|record| !record.is_synced);
        if scan.is_doubtful {
            sink.doubt();
        }
        scans.push(scan);
    }
    sink.end_run();
    let (replicas, given_up) = sink.finish().map_err(|kind| RecoverError::Damaged(at_the_end(&files, &scans, kind)))?;
    let bytes = scans.iter().flat_map(|scan| &scan.segments).map(|segment| segment.used_bytes).sum();
    let next_run = files.next_stream;
    let (segments, unclosed) = conclude(disk, manifest, &files, scans, listed.as_ref())?;
    Ok(RecoveredReplicas { replicas, given_up, next_run, segments, bytes, unclosed })
}

/// What the whole log contradicts is found where it ends.
fn at_the_end(files: &LogFiles, scans: &[StreamScan], kind: DamageKind) -> Damage {
    let ends = files.streams.iter().zip(scans).rev().find_map(|(stream, scan)| Some((stream, scan.end?)));
    let (file, offset) = match ends {
        Some((stream, (segment, offset))) => (stream.segments[segment].path.clone(), offset),
        None => (crate::layout::LOG_DIRECTORY.to_owned(), 0),
    };
    Damage { file, offset, kind }
}

/// A shard's chain, and the last stream and run that had a record of it.
struct Known {
    chain: ReplicaChain,
    run: u64,
    stream: u64,
}

struct Chains<'a> {
    checkpoint: &'a dyn Fn(ShardId) -> ShardCheckpoint,
    apply: &'a mut dyn FnMut(ShardId, ReplicaEntryRef<'_>),
    chains: BTreeMap<ShardId, Known>,
    run: u64,
    stream: u64,
    /// A stream of this run may lack its end, which may have been the first record of any shard.
    doubtful_run: Option<u64>,
}

impl Chains<'_> {
    fn begin(&mut self, stream: &StreamFiles) {
        let run = stream.run().unwrap_or(self.run);
        if run != self.run {
            self.end_run();
        }
        (self.run, self.stream) = (run, stream.stream);
    }

    /// The stream may lack an acknowledged batch at its end.
    fn doubt(&mut self) {
        self.chains.values_mut().filter(|known| known.stream == self.stream).for_each(|known| known.chain.doubt());
        self.doubtful_run = Some(self.run);
    }

    /// Nobody knows in which stream of a doubtful run a shard would have been that is in none of them.
    fn end_run(&mut self) {
        if let Some(run) = self.doubtful_run.take() {
            self.chains.values_mut().filter(|known| known.run != run).for_each(|known| known.chain.doubt());
        }
    }

    fn finish(self) -> Result<(BTreeMap<ShardId, RecoveredReplica>, BTreeSet<ShardId>), DamageKind> {
        let (mut replicas, mut given_up) = (BTreeMap::new(), BTreeSet::new());
        for (shard, known) in self.chains {
            let deliver = &mut |entry: ReplicaEntryRef<'_>| (self.apply)(shard, entry);
            match known.chain.finish(&(self.checkpoint)(shard), deliver)? {
                Some(replica) => drop(replicas.insert(shard, replica)),
                None => drop(given_up.insert(shard)),
            }
        }
        Ok((replicas, given_up))
    }
}

impl Sink for Chains<'_> {
    fn entry(&mut self, place: &EntryPlace<'_>, body: &[u8]) -> Result<(), RecoverError> {
        let EntryPlace { file, offset, shard, .. } = *place;
        if place.kind == BodyKind::WriteSet {
            return Err(RecoverError::OtherMode { file: file.to_owned(), offset, is_replicated: false });
        }
        let (_, record) =
            ReplicaRecord::decode(body).map_err(|error| RecoverError::undecodable(file, offset, &error))?;
        let known = self.chains.entry(shard).or_insert_with(|| {
            let checkpoint = (self.checkpoint)(shard);
            // Rows of no position take no entries.
            let covered = if checkpoint.is_resetting { Lsn(u64::MAX) } else { checkpoint.lsn };
            Known { chain: ReplicaChain::new(shard, covered), run: 0, stream: 0 }
        });
        (known.run, known.stream) = (self.run, self.stream);
        let deliver = &mut |entry: ReplicaEntryRef<'_>| (self.apply)(shard, entry);
        let taken = known.chain.take(&record, deliver);
        taken.map_err(|kind| RecoverError::Damaged(Damage { file: file.to_owned(), offset, kind }))
    }

    fn is_replicated(&self) -> bool {
        true
    }
}
