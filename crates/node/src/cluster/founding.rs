//! Makes the data directory of a node that stands alone that of a cluster's first node. The node does not run meanwhile.
//!
//! A log of a node that stands alone has no replicas in it. So its entries go to the checkpoint, all of them, and its segments
//! are deleted. Then the log begins anew. Each shard gets a replica set of this node alone. The meta shard gets a guidance that
//! names the cluster's nodes, the apps, and the users of S3. The next start finds a cluster whose first node has everything.
//! The others come as nodes that have joined.
//!
//! Promises: every entry that a start would have found is kept. Must be given a copy: after an error or a crash the
//! directory may be neither the one nor the other.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use millrace_api::is_built_in;
use millrace_base::{Error, Lsn, ShardId, UnixMillis};
use millrace_format::Write;
use millrace_guidance::{AppEntry, Guidance, KeptApp, NodeEntry};
use millrace_log::{Batch, LogError, RecoveredReplica};
use millrace_replica::{NodeId, ReplicaSet};
use millrace_store::{Checkpoint, Store, StoreError};

use super::guide::BUILT_IN_DEPLOYMENTS;
use super::rescue::{append, founding, founding_time};
use super::{Member, rows};
use crate::apps::{AppStore, archive, version_of};
use crate::directory::{DataDirectory, S3_USERS_FILE, S3_USERS_TABLE};
use crate::node::{StartError, pinned_apps};
use crate::options::NodeOptions;
use crate::recovery::{Recovery, recover};

/// Memory for replaying the log.
const MEMORY_BYTES: usize = 256 << 20;

/// Bytes of a chunk that is written to the checkpoint.
const CHUNK_BYTES: usize = 4 << 20;

/// What a directory has that the other nodes of its cluster need.
#[derive(Clone, PartialEq, Eq)]
pub struct Founded {
    /// Its shards.
    pub shards: u16,
    /// The apps that were deployed.
    pub apps: Vec<String>,
    /// What its keys are derived from.
    pub secret: [u8; 32],
    /// The key of the names of results.
    pub result_key: [u8; 16],
}

// Without what is secret.
impl fmt::Debug for Founded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shards, apps, .. } = self;
        formatter.debug_struct("Founded").field("shards", shards).field("apps", apps).finish_non_exhaustive()
    }
}

/// Why a directory cannot be that of a cluster's node.
#[derive(Debug)]
pub enum FoundError {
    /// It cannot be opened, or what is in it cannot be read.
    Start(StartError),
    /// An app in it cannot be read.
    App(Error),
    /// A version from before 0.2 has made it, and nodes could not agree on the names of its results.
    PlainNames,
    /// The checkpoint or the log cannot be written.
    Write(String),
}

impl fmt::Display for FoundError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FoundError::Start(error) => error.fmt(formatter),
            FoundError::App(error) => error.fmt(formatter),
            FoundError::PlainNames => formatter.write_str(
                "an early version has made this data directory, and the nodes of a cluster cannot agree on the names of its \
                 results",
            ),
            FoundError::Write(what) => formatter.write_str(what),
        }
    }
}

impl std::error::Error for FoundError {}

impl From<StartError> for FoundError {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

impl From<StoreError> for FoundError {
    fn from(error: StoreError) -> Self {
        Self::Start(StartError::Store(error))
    }
}

impl From<LogError> for FoundError {
    fn from(error: LogError) -> Self {
        Self::Write(error.to_string())
    }
}

impl From<std::io::Error> for FoundError {
    fn from(error: std::io::Error) -> Self {
        Self::Start(StartError::Io(error))
    }
}

/// Makes a data directory that of the node `me`, the only one of `members` that has anything yet. `replicas` nodes are to
/// hold each shard.
///
/// # Errors
/// [`FoundError`]. What the directory is then is not said: give a copy.
pub fn found(path: &Path, me: NodeId, members: &[Member], replicas: u16) -> Result<Founded, FoundError> {
    let mut directory = DataDirectory::open(path, None).map_err(StartError::Directory)?;
    let Some(result_key) = directory.result_key() else { return Err(FoundError::PlainNames) };
    let secret = DataDirectory::secret(path, directory.manifest())?;
    let kept = AppStore::open(path, directory.manifest().clone())?;
    let apps = kept.load().map_err(FoundError::App)?;
    let options = NodeOptions { memory_bytes: MEMORY_BYTES, ..NodeOptions::new(path.to_owned()) };
    let mut recovery = recover(&options, &mut directory)?;
    let pinned = pinned_apps(&kept, &apps, &mut recovery.stores)?;
    move_log_to_checkpoint(&mut recovery)?;
    let shards = directory.shard_count();
    let mut guidance = first_guidance(members, me, shards, replicas);
    let mut entries = Vec::new();
    for (app, is_served) in apps.iter().map(|app| (app, true)).chain(pinned.iter().map(|pinned| (&pinned.app, false))) {
        let (name, content) = (app.name.to_string(), format!("{:016x}", version_of(app)));
        entries.extend(rows::writes_of_app(&name, &content, &archive(app)?));
        guidance.last_deployment += 1;
        let deployment = guidance.last_deployment;
        if is_served {
            guidance.apps.insert(name, AppEntry { deployment, content, version: 1, next: None });
        } else {
            guidance.keep_from_start(KeptApp { app: name, deployment, content });
        }
    }
    if let Some(users) = directory.manifest().read_file(S3_USERS_FILE)? {
        entries.extend(rows::writes_of_table(S3_USERS_TABLE, 1, &users));
        guidance.tables.insert(S3_USERS_TABLE.to_owned(), 1);
    }
    let batches = first_batches(&recovery.stores, &guidance, me, &entries);
    append(path, recovery, batches)?;
    let deployed = apps.iter().map(|app| app.name.to_string()).filter(|name| !is_built_in(name));
    Ok(Founded { shards, apps: deployed.collect(), secret, result_key })
}

/// Has the checkpoint hold all that the log does, and deletes the log.
fn move_log_to_checkpoint(recovery: &mut Recovery) -> Result<(), FoundError> {
    let checkpoint = &*recovery.checkpoint;
    for store in &mut recovery.stores {
        flush(store, checkpoint)?;
    }
    let stores = &recovery.stores;
    let covered = |shard: ShardId| stores.get(usize::from(shard.0)).map_or(Lsn::ZERO, Store::checkpoint_lsn);
    recovery.segments.delete_covered(&covered, checkpoint.mark()?)?;
    match recovery.segments.closed_bytes() {
        0 => Ok(()),
        left => Err(FoundError::Write(format!("{left} bytes of the log could not be moved to the checkpoint"))),
    }
}

/// Has the checkpoint hold all that a store does.
pub(super) fn flush(store: &mut Store, checkpoint: &dyn Checkpoint) -> Result<(), StoreError> {
    let shard = store.shard();
    store.begin_flush();
    while let Some(chunk) = store.next_flush_chunk(CHUNK_BYTES) {
        checkpoint.write(shard, &chunk)?;
        store.confirm_flush_chunk(&chunk);
    }
    Ok(())
}

/// A cluster in which one node has everything. The others are such as have joined and were never heard.
fn first_guidance(members: &[Member], me: NodeId, shards: u16, replicas: u16) -> Guidance {
    let entry = |member: &Member| {
        let (http, peer, rack) = (member.http.clone(), member.peer.clone(), member.rack.clone());
        (member.node.0, NodeEntry { http, peer, rack, is_alive: member.node == me, ..NodeEntry::default() })
    };
    let mut guidance = Guidance::first(members.iter().map(entry).collect(), shards, replicas);
    for place in &mut guidance.shards {
        place.replicas = vec![me.0];
    }
    guidance.last_deployment = BUILT_IN_DEPLOYMENTS;
    guidance
}

/// The log's first records: all that the checkpoint holds is committed.
fn first_batches(stores: &[Store], guidance: &Guidance, me: NodeId, entries: &[Vec<Write>]) -> Vec<Batch> {
    let replica = |lsn: Lsn| {
        // An entry of a node that stood alone is of no epoch; of the first one it may be.
        let last = (u64::from(lsn > Lsn::ZERO), lsn);
        RecoveredReplica {
            promised: (0, 0),
            base: last,
            set_lsn: lsn,
            set: ReplicaSet::of([me]).encode(),
            committed: lsn,
            last,
            runs: Vec::new(),
            sets: Vec::new(),
            tail: Vec::new(),
            is_whole: true,
            needs_reset: false,
        }
    };
    let mut replicas: BTreeMap<ShardId, RecoveredReplica> =
        stores.iter().map(|store| (store.shard(), replica(store.lsn()))).collect();
    replicas.insert(ShardId(guidance.shards.len().try_into().unwrap_or(u16::MAX)), replica(Lsn::ZERO));
    founding((&replicas, founding_time(UnixMillis(0))), guidance, me, entries)
}
