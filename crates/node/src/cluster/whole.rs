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

    fn have_said(&self, guidance: &Guidance, me: NodeId, shard: ShardId, nodes: &BTreeSet<NodeId>) -> bool {
        if guidance.feature_level < BODIES_LEVEL {
            // Some node could not say.
            return true;
        }
        let wanted = locked(&self.holders).get(usize::from(shard.0)).cloned();
        let Some((holders, epoch)) = wanted else { return false };
        if !nodes.iter().map(|node| node.0).eq(holders) {
            // The core has yet to hear of the newest guidance.
            return false;
        }
        let elsewhere = locked(&self.elsewhere);
        let said = |node: &NodeId| {
            if *node == me { self.here.load(Ordering::Acquire) } else { elsewhere.get(node).copied().unwrap_or(0) }
        };
        nodes.iter().filter(|node| guidance.is_alive(node.0)).all(|node| said(node) >= epoch)
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
        self.whole.have_said(&self.guidance(), self.me(), shard, nodes)
    }
}

#[cfg(test)]
mod tests {
    use millrace_guidance::{NodeEntry, ShardPlacement};

    use super::*;

    fn guidance(epoch: u64, holders: &[u16], dead: &[u16]) -> Guidance {
        let entry = |node| (node, NodeEntry { is_alive: !dead.contains(&node), ..NodeEntry::default() });
        let place = ShardPlacement { wanted: holders.to_vec(), ..ShardPlacement::default() };
        let nodes = (1..=4).map(entry).collect();
        Guidance { epoch, nodes, shards: vec![place], feature_level: BODIES_LEVEL, ..Guidance::default() }
    }

    #[test]
    fn a_shard_moves_only_to_nodes_that_have_said_so_since_they_are_to_hold_it() {
        let (me, shard) = (NodeId(1), ShardId(0));
        let set = |nodes: &[u16]| nodes.iter().copied().map(NodeId).collect::<BTreeSet<_>>();
        let whole = Whole::default();
        let first = guidance(5, &[1, 2, 3], &[]);
        whole.follow(&first);
        let have = |guidance: &Guidance, nodes: &[u16]| whole.have_said(guidance, me, shard, &set(nodes));
        assert!(!have(&first, &[1, 2, 3]), "nobody has said anything");
        whole.here.store(5, Ordering::Release);
        whole.note_other(NodeId(2), 5);
        assert!(!have(&first, &[1, 2, 3]), "node 3 has not");
        assert!(have(&guidance(5, &[1, 2, 3], &[3]), &[1, 2, 3]), "a dead node is not waited for");
        whole.note_other(NodeId(3), 6);
        assert!(have(&first, &[1, 2, 3]));
        // Another guidance that leaves the shard where it is asks nobody again.
        whole.follow(&guidance(7, &[1, 2, 3], &[]));
        assert!(have(&guidance(7, &[1, 2, 3], &[]), &[1, 2, 3]));
        // A newcomer is waited for, and what the others had at an earlier time does not count any more.
        let next = guidance(8, &[1, 2, 4], &[]);
        whole.follow(&next);
        whole.note_other(NodeId(4), 8);
        assert!(!have(&next, &[1, 2, 4]), "nodes 1 and 2 have said it of an earlier guidance");
        assert!(!have(&next, &[1, 2, 3]), "the core has yet to hear of the guidance");
        whole.here.store(8, Ordering::Release);
        whole.note_other(NodeId(2), 9);
        assert!(have(&next, &[1, 2, 4]));
        // A node that has started again says nothing at first.
        whole.note_other(NodeId(4), 0);
        assert!(!have(&next, &[1, 2, 4]));
        assert!(have(&Guidance { feature_level: BODIES_LEVEL - 1, ..next }, &[1, 2, 4]), "some node cannot say it");
    }
}
