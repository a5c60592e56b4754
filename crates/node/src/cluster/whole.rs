//! Which nodes have all bodies of objects of the shards that they hold. Before the nodes that are to hold a shard do, its
//! owner lets none of them newly count in it, and no other one go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use millrace_base::ShardId;
use millrace_blobs::BodyName;
use millrace_guidance::{BODIES_LEVEL, Guidance, Status, UNREADABLE_LEVEL};
use millrace_replica::NodeId;

use super::{Cluster, locked};

/// What a node has said of its bodies: see `bodies_epoch` and `unreadable` of its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    epoch: u64,
    /// Ascending.
    unreadable: Vec<u16>,
}

impl Said {
    /// Whether the node had all bodies of a shard when all nodes followed that guidance.
    fn has_all(&self, shard: ShardId, epoch: u64) -> bool {
        self.epoch >= epoch && self.unreadable.binary_search(&shard.0).is_err()
    }
}

/// What is known of the bodies on all nodes.
#[derive(Default)]
pub(super) struct Whole {
    here: Mutex<Said>,
    /// The bodies for which this node names shards, so that the log tells of each once.
    unreadable: Mutex<BTreeSet<BodyName>>,
    elsewhere: Mutex<BTreeMap<NodeId, Said>>,
    /// Who is to hold each shard, and the guidance that has said so first.
    holders: Mutex<Vec<(Vec<u16>, u64)>>,
}

impl Whole {
    pub(super) fn note_other(&self, node: NodeId, status: &Status) {
        let said = Said { epoch: status.bodies_epoch, unreadable: status.unreadable.clone() };
        locked(&self.elsewhere).insert(node, said);
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
        let (here, elsewhere) = (locked(&self.here), locked(&self.elsewhere));
        let said = |node: &NodeId| if *node == me { Some(&*here) } else { elsewhere.get(node) };
        let has_all = |node: &NodeId| said(node).is_some_and(|said| said.has_all(shard, epoch));
        nodes.iter().filter(|node| guidance.is_alive(node.0)).all(has_all)
    }
}

impl Cluster {
    /// The guidance of which this node says that it has all bodies, and the shards of which it lacks some all the same.
    pub(super) fn bodies_here(&self) -> (u64, Vec<u16>) {
        let Said { epoch, unreadable } = locked(&self.whole.here).clone();
        match self.guidance().feature_level {
            ..BODIES_LEVEL => (0, Vec::new()),
            // Nodes that do not know of such shards are not told of the others either.
            BODIES_LEVEL..UNREADABLE_LEVEL if !unreadable.is_empty() => (0, Vec::new()),
            _ => (epoch, unreadable),
        }
    }

    /// Whether all nodes understand that one lacks some bodies and has the others.
    pub(crate) fn names_unreadable(&self) -> bool {
        self.guidance().feature_level >= UNREADABLE_LEVEL
    }

    /// Shards with bodies that some living node lacks, and that no living node can read. Ascending.
    pub(super) fn unreadable_shards(&self) -> Vec<u16> {
        let guidance = self.guidance();
        let elsewhere = locked(&self.whole.elsewhere);
        let others = elsewhere.iter().filter(|(node, _)| guidance.is_alive(node.0)).map(|(_, said)| said);
        let mut shards: Vec<u16> = others.flat_map(|said| said.unreadable.iter().copied()).collect();
        drop(elsewhere);
        shards.extend(&locked(&self.whole.here).unreadable);
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    /// The guidance that this node follows, if all others follow it, too.
    pub(crate) fn followed_by_all(&self) -> Option<u64> {
        let epoch = self.guidance().epoch;
        self.do_all_follow(epoch).then_some(epoch)
    }

    /// This node has all bodies that were there when all nodes followed that guidance, but these. No living node can read them.
    pub(crate) fn note_bodies(&self, epoch: u64, unreadable: &BTreeSet<BodyName>) {
        let shards: BTreeSet<u16> = unreadable.iter().map(|name| name.shard.0).collect();
        *locked(&self.whole.here) = Said { epoch, unreadable: shards.into_iter().collect() };
        let before = std::mem::replace(&mut *locked(&self.whole.unreadable), unreadable.clone());
        for name in unreadable.difference(&before) {
            tracing::warn!(
                shard = name.shard.0,
                body = %name,
                "no living node can read a body of an object: the shard's replicas do not change before a node that can is \
                 back, or the object is deleted or uploaded again"
            );
        }
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

    fn said(epoch: u64, unreadable: &[u16]) -> Said {
        Said { epoch, unreadable: unreadable.to_vec() }
    }

    fn status(bodies_epoch: u64, unreadable: &[u16]) -> Status {
        Status { bodies_epoch, unreadable: unreadable.to_vec(), ..Status::default() }
    }

    #[test]
    fn a_body_that_nobody_can_read_holds_up_its_own_shard_only() {
        let me = NodeId(1);
        let mut guidance = guidance(5, &[1, 2, 3], &[]);
        guidance.shards.push(guidance.shards[0].clone());
        guidance.feature_level = UNREADABLE_LEVEL;
        let whole = Whole::default();
        whole.follow(&guidance);
        let set = [1, 2, 3].map(NodeId).into();
        let have = |shard| whole.have_said(&guidance, me, ShardId(shard), &set);
        *locked(&whole.here) = said(5, &[]);
        whole.note_other(NodeId(2), &status(5, &[]));
        whole.note_other(NodeId(3), &status(5, &[1]));
        assert!(have(0) && !have(1), "node 3 lacks a body of shard 1");
        *locked(&whole.here) = said(5, &[0]);
        assert!(!have(0), "so does this node, of shard 0");
        *locked(&whole.here) = said(5, &[]);
        whole.note_other(NodeId(3), &status(5, &[]));
        assert!(have(0) && have(1), "its object was deleted");
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
        *locked(&whole.here) = said(5, &[]);
        whole.note_other(NodeId(2), &status(5, &[]));
        assert!(!have(&first, &[1, 2, 3]), "node 3 has not");
        assert!(have(&guidance(5, &[1, 2, 3], &[3]), &[1, 2, 3]), "a dead node is not waited for");
        whole.note_other(NodeId(3), &status(6, &[]));
        assert!(have(&first, &[1, 2, 3]));
        // Another guidance that leaves the shard where it is asks nobody again.
        whole.follow(&guidance(7, &[1, 2, 3], &[]));
        assert!(have(&guidance(7, &[1, 2, 3], &[]), &[1, 2, 3]));
        // A newcomer is waited for, and what the others had at an earlier time does not count any more.
        let next = guidance(8, &[1, 2, 4], &[]);
        whole.follow(&next);
        whole.note_other(NodeId(4), &status(8, &[]));
        assert!(!have(&next, &[1, 2, 4]), "nodes 1 and 2 have said it of an earlier guidance");
        assert!(!have(&next, &[1, 2, 3]), "the core has yet to hear of the guidance");
        *locked(&whole.here) = said(8, &[]);
        whole.note_other(NodeId(2), &status(9, &[]));
        assert!(have(&next, &[1, 2, 4]));
        // A node that has started again says nothing at first.
        whole.note_other(NodeId(4), &status(0, &[]));
        assert!(!have(&next, &[1, 2, 4]));
        assert!(have(&Guidance { feature_level: BODIES_LEVEL - 1, ..next }, &[1, 2, 4]), "some node cannot say it");
    }
}
