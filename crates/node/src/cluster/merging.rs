//! A backup in which no node holds all shards has a data directory of each of several nodes. Before a cluster is founded with one
//! of them, this one gets what only the others hold: rows, entries, bodies of objects.
//!
//! All of these directories are of one moment. Of a shard, the log with the highest last entry has all that its owner had.
//!
//! Promises: nothing of another node is read twice for a shard that this one holds already; a merge that was broken off is
//! done again from its beginning.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use millrace_base::{Lsn, ShardId, limits};
use millrace_blobs::{BlobError, Bodies, BodyName};
use millrace_driver::apply_entry;
use millrace_format::ReplicaRecord;
use millrace_log::RecoveredReplica;
use millrace_store::{Export, Import, StoreError};

use super::ClusterOptions;
use super::founding::flush;
use super::records::kind_of_record;
use super::rescue::{MEMORY_BYTES, RescueError};
use crate::backup::NODES;
use crate::directory::{DataDirectory, sync_folder_of};
use crate::node::StartError;
use crate::objects::{BODIES, open_bodies};
use crate::options::NodeOptions;
use crate::recovery::{Recovery, recover};

/// Where copies are that are merged, while they are removed.
const MERGED: &str = "nodes.merged";

/// Bodies that are listed at a time.
const NAMES: usize = 1024;

/// Bytes of a body that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// What other nodes hold in the same backup.
pub(super) struct Others {
    nodes: Vec<(DataDirectory, NodeOptions, Recovery)>,
    /// Of each shard that is taken of one of them: which.
    taken: BTreeMap<ShardId, usize>,
}

fn failed(error: io::Error) -> RescueError {
    RescueError::Start(StartError::Io(error))
}

fn store_failed(error: StoreError) -> RescueError {
    RescueError::Start(StartError::Store(error))
}

/// The directories of other nodes, in order. None where the directory is not of such a backup.
fn directories(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(path.join(NODES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Removes what has been merged. It has another name before any of it is gone: half of it is never taken for a copy.
pub(super) fn forget(path: &Path) -> io::Result<()> {
    let (copies, merged) = (path.join(NODES), path.join(MERGED));
    let unless_gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    unless_gone(fs::remove_dir_all(&merged))?;
    unless_gone(fs::rename(copies, &merged))?;
    sync_folder_of(&merged)?;
    unless_gone(fs::remove_dir_all(merged))
}

impl Others {
    /// Opens what other nodes hold.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub(super) fn open(path: &Path, cluster: &ClusterOptions) -> Result<Self, RescueError> {
        let mut nodes = Vec::new();
        for path in directories(path).map_err(failed)? {
            let mut directory = DataDirectory::open(&path, None).map_err(StartError::Directory)?;
            let cluster = Some(cluster.clone());
            let options = NodeOptions { cluster, memory_bytes: MEMORY_BYTES, ..NodeOptions::new(path) };
            let recovery = recover(&options, &mut directory)?;
            nodes.push((directory, options, recovery));
        }
        Ok(Self { nodes, taken: BTreeMap::new() })
    }

    /// Of these shards those of which another node has more than this one, or this one has all though guidance does not count it.
    /// Both are replicas of which a rescue may make use. Shards that no node holds are left out.
    pub(super) fn choose(
        &mut self,
        shards: impl Iterator<Item = ShardId>,
        (own, lacking): (&BTreeMap<ShardId, RecoveredReplica>, &[ShardId]),
    ) -> BTreeMap<ShardId, RecoveredReplica> {
        let mut chosen = BTreeMap::new();
        for shard in shards.filter(|_| !self.nodes.is_empty()) {
            let is_lacking = lacking.contains(&shard);
            let replicas = self.nodes.iter().enumerate();
            let others =
                replicas.filter_map(|(node, (.., recovery))| Some((Some(node), recovery.replicas.get(&shard)?)));
            let all = others.chain(own.get(&shard).map(|found| (None, found)));
            let all = all.filter(|(_, found)| found.last.1 > Lsn::ZERO);
            // Of those that have as much it is this node's own, if guidance counts it.
            let best = all.max_by_key(|(node, found)| (found.last, node.is_none() != is_lacking));
            if let Some((node, found)) = best.filter(|(node, _)| node.is_some() || is_lacking) {
                self.taken.extend(node.map(|node| (shard, node)));
                chosen.insert(shard, found.clone());
            }
        }
        chosen
    }

    /// Puts what was chosen into this node's checkpoint, and its bodies beside this node's. Gives its replicas as they are then.
    ///
    /// # Errors
    /// What cannot be read or written.
    pub(super) fn merge_into(
        &mut self,
        (directory, options): (&DataDirectory, &NodeOptions),
        recovery: &Recovery,
    ) -> Result<BTreeMap<ShardId, RecoveredReplica>, RescueError> {
        // Once the rows are here, the next attempt may find that this node has as much.
        self.merge_bodies((directory, options)).map_err(failed)?;
        let mut merged = BTreeMap::new();
        for (shard, node) in &self.taken {
            let (.., other) = &mut self.nodes[*node];
            merged.insert(*shard, merge_rows(*shard, other, recovery).map_err(store_failed)?);
        }
        Ok(merged)
    }

    /// Copies the bodies of the shards that are taken. Those that are there already stay.
    fn merge_bodies(&self, (directory, options): (&DataDirectory, &NodeOptions)) -> io::Result<()> {
        let mut opened = BTreeMap::new();
        for (node, (of, of_options, _)) in self.nodes.iter().enumerate() {
            if of.path().join(BODIES).exists()
                && let (Some(store), threads) = open_bodies(of_options, of)?
            {
                opened.insert(node, (store, threads));
            }
        }
        if opened.is_empty() {
            return Ok(());
        }
        let options = NodeOptions { keeps_objects: true, ..options.clone() };
        let (to, to_threads) = open_bodies(&options, directory)?;
        let to = to.ok_or_else(|| io::Error::other("the directory keeps no bodies"))?;
        let bodies = opened.iter().map(|(node, (store, _))| (*node, &*store.bodies)).collect();
        let copied = self.taken.iter().try_for_each(|(shard, node)| copy_bodies(*shard, *node, &bodies, &to.bodies));
        drop(bodies);
        opened.into_values().for_each(|(store, threads)| store.stop(threads));
        to.stop(to_threads);
        copied
    }
}

/// Replaces a shard's rows by those of another node, with all entries of its log. The log begins behind them.
fn merge_rows(shard: ShardId, other: &mut Recovery, recovery: &Recovery) -> Result<RecoveredReplica, StoreError> {
    let missing = || StoreError::Corrupt(format!("shard {shard} is not in the copy any more"));
    let found = other.replicas.get(&shard).ok_or_else(missing)?;
    let store = other.stores.get_mut(usize::from(shard.0)).ok_or_else(missing)?;
    for entry in &found.tail {
        apply_entry(store, entry.lsn, kind_of_record(entry.kind), &entry.bytes)?;
    }
    flush(store, &*other.checkpoint)?;
    let mut export = Export::begin(Arc::clone(&other.checkpoint), shard)?;
    let mut import = Import::begin(Arc::clone(&recovery.checkpoint), shard)?;
    while let Some(chunk) = export.next_chunk(limits::SNAPSHOT_PART_BYTES)? {
        import.add(&chunk)?;
    }
    let (set_lsn, set) = found.sets.last().cloned().unwrap_or_else(|| (found.set_lsn, found.set.clone()));
    let (at_epoch, at_lsn) = found.last;
    let mut note = Vec::new();
    ReplicaRecord::Reset { at_epoch, at_lsn, set_lsn, set: &set }.encode(shard, &mut note);
    import.finish(at_lsn, &note)?;
    Ok(RecoveredReplica {
        base: found.last,
        set_lsn,
        set,
        committed: at_lsn,
        runs: Vec::new(),
        sets: Vec::new(),
        tail: Vec::new(),
        needs_reset: true,
        ..found.clone()
    })
}

/// Copies what one node has of a shard. What is damaged there another one may have.
fn copy_bodies(shard: ShardId, node: usize, all: &BTreeMap<usize, &Bodies>, to: &Bodies) -> io::Result<()> {
    let Some(from) = all.get(&node) else { return Ok(()) };
    let others = all.iter().filter(|(other, _)| **other != node).map(|(_, bodies)| *bodies);
    let sources: Vec<&Bodies> = [*from].into_iter().chain(others).collect();
    let mut behind = BodyName { shard, number: 0 };
    loop {
        let (names, has_more) = from.names_behind(behind, NAMES);
        for name in names.iter().filter(|name| name.shard == shard && !to.has(**name)) {
            copy_first(*name, &sources, to)?;
        }
        match names.last() {
            Some(last) if has_more && last.shard == shard => behind = *last,
            _ => return Ok(()),
        }
    }
}

/// Copies a body of the first of these nodes that can read it. The backup has named one that none can read, and to read it is an
/// error as before.
fn copy_first(name: BodyName, sources: &[&Bodies], to: &Bodies) -> io::Result<()> {
    for from in sources.iter().filter(|from| from.has(name)) {
        match copy_body(name, from, to) {
            Ok(()) => break,
            Err(error @ (BlobError::Rot(..) | BlobError::Gone(_) | BlobError::Unreadable(_))) => {
                tracing::warn!(%error, "a content of an object is damaged in a copy");
            }
            Err(error) => return Err(io::Error::other(format!("the body {name}: {error}"))),
        }
    }
    Ok(())
}

fn copy_body(name: BodyName, from: &Bodies, to: &Bodies) -> Result<(), BlobError> {
    let reader = from.read(name)?;
    let mut writer = to.begin_named(0, name, &reader.owner()?, reader.length())?;
    let mut piece = vec![0; PIECE_BYTES.min(reader.length() as usize)];
    let mut offset = 0;
    while offset < reader.length() {
        let bytes = (reader.length() - offset).min(PIECE_BYTES as u64) as usize;
        reader.read_at(offset, &mut piece[..bytes])?;
        writer.append(&piece[..bytes])?;
        offset += bytes as u64;
    }
    let written = writer.finish()?;
    for synced in to.sync(0, vec![written]) {
        synced?.settle();
    }
    Ok(())
}
