//! Which nodes have all bodies of objects of the shards that they hold. Before the nodes that are to hold a shard do, its
//! owner lets none of them newly count in it, and no other one go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_base::ShardId;
use millrace_guidance::{BODIES_LEVEL, Guidance};
use millrace_replica::NodeId;

use super::{Cluster, locked};

/// What is known of the bodies on all nodes. A node says a guidance: see `bodies_epoch` of its status.
#[derive(Default)]
pub(super) struct Whole {
    here: AtomicU64,
    elsewhere: Mutex<BTreeMap<NodeId, u64>>,
    /// Who is to hold each shard, and the guidance that has said so first.
    holders: Mutex<Vec<(Vec<u16>, u64)>>,
}

impl Whole {
    pub(super) fn note_other(&self, node: NodeId, bodies_epoch: u64) {
        locked(&self.elsewhere).insert(node, bodies_epoch);
    }

    /// This node is about to follow a guidance.
    pub(super) fn follow(&self, guidance: &Guidance) {
        let mut known = locked(&self.holders);
        known.resize(guidance.shards.len(), Default::default());
        for ((holders, epoch), place) in known.iter_mut().zip(&guidance.shards) {
            if holders != place.holders() {
                (*holders, *epoch) = (place.holders().to_vec(), guidance.epoch);
            }
        }
    }
}

impl Cluster {
    /// The guidance of which this node says that it has all bodies.
    pub(super) fn bodies_epoch(&self) -> u64 {
        if self.guidance().feature_level < BODIES_LEVEL { 0 } else { self.whole.here.load(Ordering::Acquire) }
    }

    /// The guidance that this node follows, if all others follow it, too.
    pub(crate) fn followed_by_all(&self) -> Option<u64> {
        let epoch = self.guidance().epoch;
        self.do_all_follow(epoch).then_some(epoch)
    }

    /// This node has all bodies that were there when all nodes followed that guidance.
    pub(crate) fn note_bodies(&self, epoch: u64) {
        self.whole.here.fetch_max(epoch, Ordering::AcqRel);
        self.speak_soon();
    }

    /// Whether all of these nodes that are alive have said that they have all bodies of a shard, since guidance has them hold
    /// it. Those that are dead do not count: without a majority of living ones, no entry is committed.
    pub(crate) fn have_bodies(&self, shard: ShardId, nodes: &BTreeSet<NodeId>) -> bool {
        let guidance = self.guidance();
        if guidance.feature_level < BODIES_LEVEL {
            // Some node could not say.
            return true;
        }
        let wanted = locked(&self.whole.holders).get(usize::from(shard.0)).cloned();
        let Some((holders, epoch)) = wanted else { return false };
        if !nodes.iter().map(|node| node.0).eq(holders) {
            // The core has yet to hear of the newest guidance.
            return false;
        }
        let elsewhere = locked(&self.whole.elsewhere);
        let mut living = nodes.iter().filter(|node| guidance.is_alive(node.0));
        living.all(|node| {
            let said = if *node == self.me() { self.bodies_epoch() } else { elsewhere.get(node).copied().unwrap_or(0) };
            said >= epoch
        })
    }
}
