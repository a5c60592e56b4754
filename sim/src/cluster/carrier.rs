//! What the transfers of shards' rows find at a simulated node.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use millrace_base::{Lsn, ShardId};
use millrace_driver::{Carrier, DriverBug, Moved, SnapshotNews, SnapshotPart, Transfers};
use millrace_format::ReplicaRecord;
use millrace_replica::{EntryId, Epoch, NodeId, ReplicaSet};
use millrace_store::{Checkpoint, MemoryCheckpoint};

use super::ClusterBug;
use super::links::Links;
use super::platform::{Now, ShardDisk};
use crate::random::Rng;

/// What has become of the snapshots of a node.
#[derive(Default)]
pub struct SnapshotFates {
    pub shipped: Cell<u64>,
    pub installed: Cell<u64>,
    pub failed: Cell<u64>,
    pub not_installed: Cell<u64>,
    /// A process has ended in the middle of sending one, and of getting one.
    pub crashed_sending: Cell<u64>,
    pub crashed_getting: Cell<u64>,
    /// For a trace.
    pub happened: RefCell<Vec<String>>,
}

fn count(of: &Cell<u64>) {
    of.set(of.get() + 1);
}

impl SnapshotFates {
    /// A process ends.
    pub fn note_crash(&self, transfers: &Transfers) {
        let (sends, gets) = transfers.under_way();
        self.crashed_sending.set(self.crashed_sending.get() + u64::from(sends > 0));
        self.crashed_getting.set(self.crashed_getting.get() + u64::from(gets > 0));
    }

    fn note(&self, news: &SnapshotNews) {
        let (of, shard, what) = match news {
            SnapshotNews::Shipped { shard, to, at } => {
                (&self.shipped, shard, format!("reached node {to} up to {}", at.0))
            }
            SnapshotNews::Installed { shard, store, .. } => {
                (&self.installed, shard, format!("is here up to {}", store.lsn().0))
            }
            SnapshotNews::Failed { shard, to } => (&self.failed, shard, format!("did not reach node {to}")),
            SnapshotNews::NotInstalled { shard, .. } => (&self.not_installed, shard, "is empty here".to_owned()),
            SnapshotNews::Broken { reason, .. } => panic!("rows cannot be replaced: {reason}"),
        };
        count(of);
        self.happened.borrow_mut().push(format!("the snapshot of shard {} {what}", shard.0));
    }
}

/// See the module's documentation.
pub struct SimCarrier {
    pub node: NodeId,
    pub checkpoint: Arc<MemoryCheckpoint>,
    pub now: Now,
    pub links: Links,
    pub bug: Option<ClusterBug>,
    pub rng: RefCell<Rng>,
    /// What the cores have to hear.
    pub news: RefCell<Vec<(usize, SnapshotNews)>>,
    pub fates: Rc<SnapshotFates>,
}

impl Carrier for SimCarrier {
    fn checkpoint(&self) -> Arc<dyn Checkpoint> {
        self.checkpoint.clone()
    }

    fn monotonic_ns(&self) -> u64 {
        self.now.get()
    }

    fn draw(&self) -> u64 {
        self.rng.borrow_mut().draw()
    }

    /// Small, so that each snapshot has several.
    fn part_bytes(&self) -> usize {
        400
    }

    fn say(&self, to: NodeId, shard: ShardId, transfer: u64, part: SnapshotPart) {
        self.links.send_part(self.node, to, (shard, transfer), part);
    }

    fn tell(&self, core: usize, news: SnapshotNews) {
        self.fates.note(&news);
        self.news.borrow_mut().push((core, news));
    }

    fn note(&self, _moved: Moved) {}

    fn has_planted(&self, bug: DriverBug) -> bool {
        self.bug.and_then(ClusterBug::of_driver) == Some(bug)
    }
}

/// A snapshot was put into the checkpoint. If the log does not say so, the process ended just before: the log begins anew
/// behind the snapshot. `crates/log/src/replica_chain.rs` does the same.
pub fn follow_snapshot(disk: &mut ShardDisk, checkpoint: &dyn Checkpoint, shard: ShardId) {
    let state = checkpoint.import_state(shard).expect("memory does not fail");
    let record = state.snapshot.as_deref().and_then(|note| ReplicaRecord::decode(note).ok());
    let Some((_, ReplicaRecord::Reset { at_epoch, at_lsn, set_lsn, set })) = record else { return };
    let at = EntryId::new(Epoch(at_epoch), at_lsn);
    let is_known = disk.base == at || disk.entries.iter().any(|entry| entry.id == at);
    if checkpoint.lsn(shard).expect("memory does not fail") == at_lsn && at_lsn > Lsn::ZERO && !is_known {
        disk.reset(at, (set_lsn, ReplicaSet::decode(set).expect("a set")));
    }
}
