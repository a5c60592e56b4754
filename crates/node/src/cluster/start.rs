//! What a start of a node in a cluster finds, made into what its cores host.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use millrace_base::{Lsn, ShardId};
use millrace_driver::{Hosted, apply_entry};
use millrace_guidance::{Guidance, first_replicas};
use millrace_io::{Clock, Disk, Random, RealRandom};
use millrace_log::{RecoveredReplica, RecoveredReplicas, ReplicaEntryRef, ShardCheckpoint, recover_replicas};
use millrace_manifest::Manifest;
use millrace_peers::{Config, Links, Timing, listens_at};
use millrace_replica::{EntryId, Epoch, LogView, NodeId, Promised, Recovered, Replica, ReplicaSet, Settings};
use millrace_shard::ShardOptions;
use millrace_store::{Checkpoint, ImportState, Store, StoreError};

use super::inbound::Inbound;
use super::records::{entry_of, kind_of_record};
use super::{Cluster, ClusterOptions};
use crate::core::Shared;
use crate::directory::{DataDirectory, sync_folder_of, write_durably};
use crate::node::StartError;
use crate::recovery::of_no_shard;

/// Replays the log of replicas over the stores.
///
/// # Errors
/// [`StartError`] for a log that is damaged, or of a node that stands alone.
pub(crate) fn replay(
    disk: &Arc<dyn Disk>,
    manifest: &Manifest,
    stores: &mut [Store],
    checkpoint: &dyn Checkpoint,
) -> Result<RecoveredReplicas, StartError> {
    let found = |store: &Store| {
        let ImportState { is_resetting, snapshot } = checkpoint.import_state(store.shard())?;
        Ok(ShardCheckpoint { lsn: store.checkpoint_lsn(), is_resetting, snapshot })
    };
    let checkpoints: Vec<ShardCheckpoint> =
        stores.iter().map(found).collect::<Result<_, StoreError>>().map_err(StartError::Store)?;
    let checkpoint_of = |shard: ShardId| checkpoints.get(usize::from(shard.0)).cloned().unwrap_or_default();
    let mut failed = None;
    let recovered = recover_replicas(disk, manifest, &checkpoint_of, &mut |shard, entry| {
        let replayed = match stores.get_mut(usize::from(shard.0)) {
            Some(store) => replay_one(store, entry),
            None => Err(of_no_shard(shard)),
        };
        if let Err(error) = replayed {
            failed.get_or_insert(error);
        }
    })
    .map_err(StartError::Recover)?;
    match failed {
        Some(error) => Err(StartError::Store(error)),
        None => Ok(recovered),
    }
}

/// Applies a committed entry of the log.
///
/// # Errors
/// As [`apply_entry`].
pub(crate) fn replay_one(store: &mut Store, entry: ReplicaEntryRef<'_>) -> Result<(), StoreError> {
    apply_entry(store, entry.lsn, kind_of_record(entry.kind), entry.bytes)
}

/// What a start has found of the shards: their states, their replicas, and those whose replicas are lost.
pub(crate) type Found<'a> = (Vec<Store>, BTreeMap<ShardId, RecoveredReplica>, &'a BTreeSet<ShardId>);

/// The replicas of all shards, the meta shard's last. There is a state for each.
///
/// # Errors
/// A log that cannot be of a replica.
pub(crate) fn hosted(
    cluster: &Cluster,
    (stores, mut found, given_up): Found<'_>,
    shard_options: &ShardOptions,
    (clock, random): (&dyn Clock, &dyn Random),
) -> Result<Vec<Hosted>, StartError> {
    let options = &cluster.options;
    let meta = stores.len() - 1;
    let mut hosted = Vec::new();
    for (index, store) in stores.into_iter().enumerate() {
        let shard = ShardId(u16::try_from(index).expect("shards are few"));
        let found = found.remove(&shard);
        let tail = found.iter().flat_map(|found| found.tail.iter().cloned().map(entry_of)).collect();
        let recovered = match found {
            Some(found) => {
                let recovered = recovered_of(&found).ok_or_else(|| wrong(shard))?;
                cluster.begin_anew(shard, found);
                recovered
            }
            None => {
                let is_whole = !cluster.is_emptied && !given_up.contains(&shard);
                new_replica(first_set(options, shard, index == meta), is_whole)
            }
        };
        let nonce = random.next_u64();
        let replica = Replica::start(options.node, Settings::default(), clock.monotonic_ns(), nonce, recovered);
        let options = (index != meta).then(|| ShardOptions { shard, ..shard_options.clone() });
        hosted.push(Hosted { shard, replica, store, tail, options });
    }
    Ok(hosted)
}

/// Who held a shard's log before its first entry, as far as this node knows. One that has joined counts itself to nobody's,
/// and knows whom it may ask.
fn first_set(options: &ClusterOptions, shard: ShardId, is_meta: bool) -> ReplicaSet {
    let members = options.members.iter().map(|member| member.node.0);
    if options.has_joined {
        return ReplicaSet::of_learners(members.map(NodeId));
    }
    let count = if is_meta { 0 } else { options.replicas };
    ReplicaSet::of(first_replicas(&members.collect::<Vec<_>>(), count, shard.0).into_iter().map(NodeId))
}

fn wrong(shard: ShardId) -> StartError {
    let what = format!("what the log says of the replica of shard {} cannot be", shard.0);
    StartError::Store(StoreError::Corrupt(what))
}

/// A replica of a shard that has no entry yet.
fn new_replica(set: ReplicaSet, is_whole: bool) -> Recovered {
    let promised = Promised { epoch: Epoch::NONE, to: NodeId(0) };
    Recovered { promised, log: LogView::new(EntryId::ZERO, Lsn::ZERO, set), is_whole }
}

fn recovered_of(found: &RecoveredReplica) -> Option<Recovered> {
    let set = ReplicaSet::decode(&found.set).ok()?;
    let base = EntryId::new(Epoch(found.base.0), found.base.1);
    let mut log = LogView::new(base, found.set_lsn, set);
    let mut sets = found.sets.iter().peekable();
    let mut runs = found.runs.iter().peekable();
    let mut epoch = base.epoch;
    for lsn in (base.lsn.0 + 1..=found.last.1.0).map(Lsn) {
        if let Some((next, _)) = runs.next_if(|(_, first)| *first == lsn) {
            epoch = Epoch(*next);
        }
        let set = match sets.next_if(|(at, _)| *at == lsn) {
            Some((_, bytes)) => Some(ReplicaSet::decode(bytes).ok()?),
            None => None,
        };
        if !log.recover(EntryId::new(epoch, lsn), set) {
            return None;
        }
    }
    log.recover_committed(found.committed);
    let promised = Promised { epoch: Epoch(found.promised.0), to: NodeId(found.promised.1) };
    Some(Recovered { promised, log, is_whole: found.is_whole })
}

/// The file that counts the starts of a node.
const INCARNATION: &str = "incarnation";

/// The number of this start: higher than that of every start before.
///
/// # Errors
/// The file that holds the last one cannot be read or written.
pub(crate) fn next_incarnation(data: &Path, clock: &dyn Clock) -> io::Result<u64> {
    let path = data.join(INCARNATION);
    let last = match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse::<u64>().map_err(|error| {
            let what =
                format!("{}: {error}; give the node another data directory and let it join anew", path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?,
        // Of an earlier directory nobody knows how often its node has started. It was not once a second.
        Err(error) if error.kind() == io::ErrorKind::NotFound && DataDirectory::is_emptied(data) => clock.now() / 1_000,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    count_up(data, last + 1)?;
    Ok(last + 1)
}

/// A file whose space is the next count's. Without it a node could not start while its disk is full.
const SPARE: &str = "incarnation.spare";
const SPARE_BYTES: usize = 4096;

/// Writes the number of this start, so that after a power cut it is there whole, or the last one is.
fn count_up(data: &Path, number: u64) -> io::Result<()> {
    let (path, spare) = (data.join(INCARNATION), data.join(SPARE));
    let text = format!("{number}\n");
    match fs::OpenOptions::new().write(true).open(&spare) {
        Ok(mut file) => {
            // Its blocks are there: shortening it takes no space.
            file.write_all(text.as_bytes())?;
            file.set_len(text.len() as u64)?;
            file.sync_all()?;
            fs::rename(&spare, &path)?;
            sync_folder_of(&path)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => write_durably(&path, text.as_bytes())?,
        Err(error) => return Err(error),
    }
    // A short one would take space when it is written. This start does not depend on it.
    let made = write_durably(&spare, &[b'\n'; SPARE_BYTES]);
    if let Err(error) = made {
        let _ = fs::remove_file(spare.with_extension("new"));
        tracing::warn!(%error, "no space is kept for the number of the next start");
    }
    Ok(())
}

/// Links this node to the others.
///
/// # Errors
/// Its own address cannot be listened at, or its certificate is not one.
pub(crate) fn link(shared: &Arc<Shared>, cluster: &Arc<Cluster>) -> Result<(), StartError> {
    let options = &cluster.options;
    let failed = |what: String| StartError::Io(io::Error::other(what));
    let own = options.members.iter().find(|member| member.node == options.node);
    let own = own.ok_or_else(|| failed(format!("node {} is not among the members", options.node)))?;
    let listen = listens_at(&own.peer).map_err(failed)?;
    let config = Config {
        cluster: options.id,
        node: options.node,
        incarnation: cluster.incarnation,
        listen,
        identity: options.identity.clone(),
        timing: Timing::default(),
    };
    // The guide adds those that it reads of.
    let peers = cluster.others(&Guidance::default());
    let inbound = Arc::new(Inbound::new(Arc::clone(shared), Arc::clone(cluster)));
    inbound.begin();
    let links = Links::start(config, &peers, Arc::new(RealRandom), inbound);
    cluster.connect(links.map_err(|error| failed(error.to_string()))?);
    Ok(())
}
