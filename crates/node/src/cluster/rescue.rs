//! A cluster that has lost a majority of its nodes for good goes on with what one node has. The node does not run meanwhile.
//!
//! What the node has on its disk becomes the truth. Its log gets a replica set of this node alone for each shard, in an epoch
//! above all that it knows. It also gets a guidance without the other nodes. The next start finds a cluster of one node.
//!
//! Promises: nothing is written before the caller accepts the loss; nothing that this node has is dropped; no number of a
//! node that was lost is given again. What only the lost nodes had acknowledged is gone.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

use millrace_base::{Lsn, ShardId, UnixMillis};
use millrace_driver::apply_entry;
use millrace_format::{Entry, ReplicaEntryKind, ReplicaRecord, Write};
use millrace_guidance::{Guidance, ShardPlacement};
use millrace_io::{Clock as _, RealClock, RealDisk, RealRandom};
use millrace_log::{Batch, Durability, Environment, LogError, RecoveredReplica, Writer, WriterOptions};
use millrace_replica::{NodeId, ReplicaSet};
use millrace_store::Store;

use super::merging::{self, Others};
use super::records::kind_of_record;
use super::{ClusterOptions, rows};
use crate::backup::OF_BACKUP;
use crate::directory::{DataDirectory, sync_folder_of};
use crate::node::StartError;
use crate::options::NodeOptions;
use crate::recovery::{Recovery, recover};

/// Epochs that are left out: the lost nodes may have begun some that this one has not heard of.
const EPOCHS_LEFT_OUT: u64 = 1 << 20;

/// Bytes of entries in one batch of the log, beside the last one. A rescue has none, so what it writes is one batch.
const BATCH_BYTES: usize = 8 << 20;

/// Memory for reading the checkpoint.
pub(super) const MEMORY_BYTES: usize = 256 << 20;

/// What a rescue keeps, or would keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// For each shard, by number, the position up to which its log is kept.
    pub shards: Vec<Lsn>,
    /// The same for the guidance.
    pub guidance: Lsn,
    /// Shards whose log here may lack something that this node itself had acknowledged.
    pub doubtful: Vec<ShardId>,
    /// The nodes that are none of the cluster from then on.
    pub lost: Vec<NodeId>,
}

/// Why a node cannot be what a cluster goes on with.
#[derive(Debug)]
pub enum RescueError {
    /// Its directory cannot be opened, or what is in it cannot be read.
    Start(StartError),
    /// It does not know the cluster: it has lost its data, or has never followed.
    NoGuidance,
    /// It does not hold these shards, so all that is in them would be lost.
    Missing(Vec<ShardId>),
    /// The log cannot be written. Repeat the command.
    Log(LogError),
}

impl fmt::Display for RescueError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RescueError::Start(error) => error.fmt(formatter),
            RescueError::NoGuidance => {
                formatter.write_str("this node has no data of the cluster: it was emptied, or has never followed it")
            }
            RescueError::Missing(shards) => {
                let first: Vec<String> = shards.iter().take(8).map(ToString::to_string).collect();
                let more = if shards.len() > first.len() { ", …" } else { "" };
                write!(
                    formatter,
                    "this node does not hold {} of the shards ({}{more}), and what several nodes have cannot be put together: \
                     take a node that holds all shards, or restore a backup",
                    shards.len(),
                    first.join(", "),
                )
            }
            RescueError::Log(error) => write!(formatter, "{error}; repeat the command"),
        }
    }
}

impl std::error::Error for RescueError {}

impl From<StartError> for RescueError {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

/// Makes what a node has the truth, if the loss is accepted. Otherwise only says what it would keep.
///
/// # Errors
/// [`RescueError`]. The directory is as after a start then.
pub fn rescue(path: &Path, cluster: ClusterOptions, is_accepted: bool) -> Result<Kept, RescueError> {
    let me = cluster.node;
    let mut directory = DataDirectory::open(path, None).map_err(StartError::Directory)?;
    let options =
        NodeOptions { cluster: Some(cluster.clone()), memory_bytes: MEMORY_BYTES, ..NodeOptions::new(path.to_owned()) };
    let mut recovery = recover(&options, &mut directory)?;
    let meta = ShardId(directory.shard_count());
    let guidance = newest_guidance(&mut recovery, meta)?.ok_or(RescueError::NoGuidance)?;
    let mut others = Others::open(path, &cluster)?;
    let shards = (0_u16..).map(ShardId).take(guidance.shards.len());
    let lacking = lacking(&recovery.replicas, &guidance, me);
    let mut chosen = others.choose(shards, (&recovery.replicas, &lacking));
    let kept = kept((&recovery.replicas, &chosen), &guidance, me)?;
    if is_accepted {
        chosen = others.merge_into((&directory, &options), &recovery)?;
        drop(others);
        recovery.replicas.extend(chosen);
        let latest = recovery.stores.get(usize::from(meta.0)).map_or(UnixMillis(0), Store::time);
        let batches = founding((&recovery.replicas, founding_time(latest)), &alone(&guidance, me), me, &[]);
        append(path, recovery, batches).map_err(RescueError::Log)?;
        forget_backup(path).map_err(StartError::Io)?;
    }
    Ok(kept)
}

/// The directory is that of a node again, though it was restored from a backup.
fn forget_backup(path: &Path) -> io::Result<()> {
    merging::forget(path)?;
    let file = path.join(OF_BACKUP);
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => sync_folder_of(&file),
    }
}

/// What this node has heard of last, committed or not.
pub(super) fn newest_guidance(recovery: &mut Recovery, meta: ShardId) -> Result<Option<Guidance>, StartError> {
    let (Some(store), Some(found)) = (recovery.stores.get_mut(usize::from(meta.0)), recovery.replicas.get(&meta))
    else {
        return Ok(None);
    };
    for entry in &found.tail {
        let applied = apply_entry(store, entry.lsn, kind_of_record(entry.kind), &entry.bytes);
        applied.map_err(StartError::Store)?;
    }
    rows::guidance(store).map_err(|error| StartError::Io(io::Error::other(error)))
}

/// The shards that this node does not hold.
fn lacking(replicas: &BTreeMap<ShardId, RecoveredReplica>, guidance: &Guidance, me: NodeId) -> Vec<ShardId> {
    // Rows that were being replaced when the node stopped are those of no position.
    let holds = |shard: ShardId, place: &ShardPlacement| {
        place.replicas.contains(&me.0) && replicas.get(&shard).is_some_and(|found| found.last.1 > Lsn::ZERO)
    };
    let places = (0_u16..).map(ShardId).zip(&guidance.shards);
    places.filter(|(shard, place)| !holds(*shard, place)).map(|(shard, _)| shard).collect()
}

/// What is kept of this node's replicas, and of those that were chosen of others.
fn kept(
    (replicas, chosen): (&BTreeMap<ShardId, RecoveredReplica>, &BTreeMap<ShardId, RecoveredReplica>),
    guidance: &Guidance,
    me: NodeId,
) -> Result<Kept, RescueError> {
    let lacking = lacking(replicas, guidance, me);
    let missing: Vec<ShardId> = lacking.into_iter().filter(|shard| !chosen.contains_key(shard)).collect();
    if !missing.is_empty() {
        return Err(RescueError::Missing(missing));
    }
    let found = |shard: ShardId| chosen.get(&shard).or_else(|| replicas.get(&shard));
    let last = |shard: ShardId| found(shard).map_or(Lsn::ZERO, |found| found.last.1);
    let meta = u16::try_from(guidance.shards.len()).unwrap_or(u16::MAX);
    let others = guidance.nodes.keys().copied().filter(|node| *node != me.0);
    Ok(Kept {
        shards: (0..meta).map(|shard| last(ShardId(shard))).collect(),
        guidance: last(ShardId(meta)),
        doubtful: (0..=meta).map(ShardId).filter(|shard| found(*shard).is_some_and(|found| !found.is_whole)).collect(),
        lost: others.map(NodeId).collect(),
    })
}

/// The time of entries that follow one of that time: it never goes back, though the machine's clock may be behind.
pub(super) fn founding_time(latest: UnixMillis) -> UnixMillis {
    UnixMillis(RealClock.now()).max(latest)
}

/// The records with which a cluster begins in which one node has everything. The entries are of the meta shard and of this time,
/// and come before the guidance.
pub(super) fn founding(
    (replicas, time): (&BTreeMap<ShardId, RecoveredReplica>, UnixMillis),
    guidance: &Guidance,
    me: NodeId,
    entries: &[Vec<Write>],
) -> Vec<Batch> {
    let of_places = guidance.shards.iter().map(|place| place.epoch + 1);
    let known = replicas.values().flat_map(|found| [found.promised.0, found.last.0]).chain(of_places);
    let epoch = known.max().unwrap_or_default() + EPOCHS_LEFT_OUT;
    let set = ReplicaSet::of([me]).encode();
    let (mut batches, mut batch) = (Vec::new(), Batch::new());
    for (shard, found) in replicas {
        let last = found.last.1;
        // All of it counts from now on, though the nodes are gone that could say so.
        let found = RecoveredReplica { promised: (epoch, me.0), committed: last, is_whole: true, ..found.clone() };
        found.opening().iter().for_each(|record| batch.push_record(*shard, record));
        let (mut lsn, kind) = (last.next(), ReplicaEntryKind::ReplicaSet);
        batch.push_record(*shard, &ReplicaRecord::Entry { epoch, lsn, kind, bytes: &set });
        if usize::from(shard.0) == guidance.shards.len() {
            let owned = [rows::write_of(&owned_by(guidance, replicas, (epoch, me)))];
            for writes in entries.iter().map(Vec::as_slice).chain([&owned[..]]) {
                let mut bytes = Vec::new();
                lsn = lsn.next();
                Entry { shard: *shard, lsn, time, writes }.encode(&mut bytes);
                let kind = ReplicaEntryKind::Data;
                if batch.payload_bytes() >= BATCH_BYTES {
                    batches.push(std::mem::take(&mut batch));
                }
                batch.push_record(*shard, &ReplicaRecord::Entry { epoch, lsn, kind, bytes: &bytes });
            }
            batch.push_record(*shard, &ReplicaRecord::CommitNote { lsn });
        }
    }
    batches.push(batch);
    batches
}

/// The guidance of a cluster of one node.
fn alone(guidance: &Guidance, me: NodeId) -> Guidance {
    let mut alone = guidance.clone();
    // A lost node that comes back is told that it was removed, and no other one ever has its number.
    alone.last_removed = guidance.nodes.keys().copied().max().unwrap_or(0).max(guidance.last_removed);
    alone.nodes.retain(|node, _| *node == me.0);
    for entry in alone.nodes.values_mut() {
        (entry.is_alive, entry.is_draining) = (true, false);
    }
    alone
}

/// The next guidance, in which one node owns all shards and nobody else holds any.
fn owned_by(
    guidance: &Guidance,
    replicas: &BTreeMap<ShardId, RecoveredReplica>,
    (epoch, me): (u64, NodeId),
) -> Guidance {
    let mut owned = Guidance { epoch: guidance.epoch + 1, ..guidance.clone() };
    for (shard, place) in (0_u16..).map(ShardId).zip(&mut owned.shards) {
        let agreed = replicas.get(&shard).map_or(Lsn::ZERO, |found| found.last.1.next());
        *place =
            ShardPlacement { epoch, owner: me.0, replicas: vec![me.0], agreed: agreed.0, ..ShardPlacement::default() };
    }
    owned
}

/// Writes a run of the log of its own, durably.
pub(super) fn append(path: &Path, recovery: Recovery, batches: Vec<Batch>) -> Result<(), LogError> {
    let environment =
        Environment { disk: Arc::new(RealDisk::new(path)), clock: Arc::new(RealClock), random: Arc::new(RealRandom) };
    let (run, durability) = (recovery.next_run, Durability::Fsync);
    let options = WriterOptions { run, durability, is_replicated: true, ..WriterOptions::default() };
    let mut writer = Writer::open(environment, recovery.segments, options)?;
    for mut batch in batches {
        writer.append(&mut batch)?;
    }
    writer.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rescue_on_a_machine_whose_clock_is_behind_does_not_set_the_time_of_guidance_back() {
        let ahead = UnixMillis(RealClock.now() + 60_000);
        assert_eq!(founding_time(ahead), ahead);
        assert!(founding_time(UnixMillis(1)) > UnixMillis(1));
    }
}
