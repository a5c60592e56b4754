//! What a start finds: the checkpoint and the log, compared with the manifest, and the stores made of both.
//!
//! Promises: whatever is missing, damaged or older than the manifest knows is an error that names it. Must not know cores.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use millrace_base::{Lsn, ShardId};
use millrace_io::{Clock, Random, RealClock, RealRandom, is_out_of_space};
use millrace_log::{Recovered, RecoveredReplica, Segments, Tail};
use millrace_manifest::CheckpointRecord;
use millrace_shard::{empty_store, open_store};
use millrace_store::{Checkpoint, FjallCheckpoint, Store, StoreError};

use crate::cluster;
use crate::directory::{DataDirectory, DirectoryError};
use crate::node::{CHECKPOINT_CACHE_SHARE, StartError};
use crate::options::NodeOptions;

/// The stores, what lies below them, and the log.
pub(crate) struct Recovery {
    /// One for each shard, by number; in a cluster also one for the meta shard.
    pub stores: Vec<Store>,
    pub checkpoint: Arc<dyn Checkpoint>,
    pub next_run: u64,
    pub segments: Segments,
    /// Whether the last run closed its log, so that nothing of it can be missing unnoticed.
    pub is_log_closed: bool,
    /// In a cluster: what the log says of each replica.
    pub replicas: BTreeMap<ShardId, RecoveredReplica>,
    /// In a cluster: shards whose replicas the log knows, but not what they are.
    pub given_up: BTreeSet<ShardId>,
}

/// Opens the checkpoint and replays the log over it.
pub(crate) fn recover(options: &NodeOptions, directory: &mut DataDirectory) -> Result<Recovery, StartError> {
    let cache_bytes = options.memory_bytes / CHECKPOINT_CACHE_SHARE;
    let checkpoint = checkpoint_of(directory, cache_bytes)?;
    let hash_seed = RealRandom.next_u64();
    let mut stores = Vec::new();
    // In a cluster the last one is the meta shard.
    let last = directory.shard_count() + u16::from(options.cluster.is_some());
    for shard in 0..last {
        let shard = ShardId(shard);
        // A snapshot that did not come whole: the others have what was acknowledged here.
        let is_resetting = checkpoint.import_state(shard).map_err(StartError::Store)?.is_resetting;
        let store = if is_resetting && options.cluster.is_some() {
            empty_store(&checkpoint, shard, hash_seed)
        } else {
            open_store(shard, Arc::clone(&checkpoint), hash_seed)
        };
        stores.push(store.map_err(StartError::Store)?);
    }
    let disk = directory.disk("");
    if options.cluster.is_some() {
        let recovered = cluster::replay(&disk, directory.manifest(), &mut stores, &*checkpoint)?;
        recovered.unclosed.iter().for_each(|tail| warn_of_tail(tail, Lsn::ZERO));
        adopt(directory)?;
        let is_log_closed = recovered.unclosed.is_empty();
        let (next_run, segments) = (recovered.next_run, recovered.segments);
        let (replicas, given_up) = (recovered.replicas, recovered.given_up);
        return Ok(Recovery { stores, checkpoint, next_run, segments, is_log_closed, replicas, given_up });
    }
    let checkpoints: Vec<Lsn> = stores.iter().map(Store::checkpoint_lsn).collect();
    let lsn_of = |shard: ShardId| checkpoints.get(usize::from(shard.0)).copied().unwrap_or_default();
    let mut failed = None;
    let began_ns = RealClock.monotonic_ns();
    let mut replayed = 0u64;
    let recovered = millrace_log::recover(&disk, directory.manifest(), &lsn_of, &mut |entry| {
        replayed += 1;
        let replay = match stores.get_mut(usize::from(entry.shard.0)) {
            Some(store) => store.replay(&entry),
            None => Err(of_no_shard(entry.shard)),
        };
        if let Err(error) = replay {
            failed.get_or_insert(error);
        }
    })
    .map_err(StartError::Recover)?;
    if let Some(error) = failed {
        return Err(StartError::Store(error));
    }
    for tail in &recovered.unclosed {
        warn_of_tail(tail, recovered.last.values().max().copied().unwrap_or_default());
    }
    if replayed > 0 {
        let took_ms = (RealClock.monotonic_ns() - began_ns) / 1_000_000;
        tracing::info!(entries = replayed, took_ms, "replayed the log");
    }
    adopt(directory)?;
    let is_log_closed = recovered.unclosed.is_empty();
    let Recovered { next_run, segments, .. } = recovered;
    Ok(Recovery {
        stores,
        checkpoint,
        next_run,
        segments,
        is_log_closed,
        replicas: BTreeMap::new(),
        given_up: BTreeSet::new(),
    })
}

/// Gives a directory that has no manifest yet its first one.
fn adopt(directory: &mut DataDirectory) -> Result<(), StartError> {
    match directory.adopt_earlier_version() {
        // A full disk keeps no node from starting; the next start lists the files.
        Err(DirectoryError::Io(_, error)) if is_out_of_space(&error) => Ok(()),
        adopted => adopted.map_err(StartError::Directory),
    }
}

/// Opens the checkpoint and compares it with the manifest. From its first start on, the manifest lists the files
/// without which the checkpoint's library would begin an empty one.
fn checkpoint_of(directory: &DataDirectory, cache_bytes: usize) -> Result<Arc<dyn Checkpoint>, StartError> {
    let manifest = directory.manifest();
    let path = directory.path().join(CHECKPOINT);
    let checkpoint = FjallCheckpoint::open(&path, cache_bytes).map_err(StartError::Store)?;
    let is_own = match checkpoint.belongs_to(manifest.identity()) {
        Err(StoreError::DiskFull(_)) => true,
        known => known.map_err(StartError::Store)?,
    };
    if !is_own {
        let what = "checkpoint/ is of another data directory: restore the whole directory from one backup";
        return Err(StartError::Store(StoreError::Corrupt(what.to_owned())));
    }
    manifest.check_checkpoint(checkpoint.mark().map_err(StartError::Store)?).map_err(StartError::Manifest)?;
    let files = files_to_expect(&path).map_err(StartError::Io)?;
    let mark = manifest.contents().checkpoint.map_or(0, |known| known.mark);
    match manifest.set_checkpoint(CheckpointRecord { mark, files }) {
        Err(error) if !is_out_of_space(&error) => return Err(StartError::Io(error)),
        _ => {}
    }
    Ok(Arc::new(checkpoint))
}

pub(crate) const CHECKPOINT: &str = "checkpoint";

/// Without the first, the library makes a new database. Without a keyspace's `current`, it drops the keyspace.
fn files_to_expect(path: &Path) -> io::Result<Vec<String>> {
    let mut files = vec![format!("{CHECKPOINT}/version")];
    for entry in std::fs::read_dir(path.join("keyspaces"))? {
        if let Some(number) = entry?.file_name().to_str() {
            files.push(format!("{CHECKPOINT}/keyspaces/{number}/current"));
        }
    }
    files.sort();
    Ok(files)
}

/// What stood behind a stream's last batch was never acknowledged, unless somebody has changed the file: nothing on
/// disk can tell. So the operator is told where the stream ends.
fn warn_of_tail(tail: &Tail, last: Lsn) {
    tracing::warn!(
        file = tail.file,
        offset = tail.offset,
        is_torn = tail.is_torn,
        last_lsn = last.0,
        "the log was not closed by a clean stop; it ends here"
    );
}

/// Passed over, what was done there would be lost.
pub(crate) fn of_no_shard(shard: ShardId) -> StoreError {
    StoreError::Corrupt(format!(
        "the log holds entries of shard {}, and node.json says that there are fewer: restore it from a backup",
        shard.0
    ))
}
