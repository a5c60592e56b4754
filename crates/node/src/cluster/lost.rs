//! Nodes that have lost their data, and what cannot be served any more for want of a majority that has not.
//!
//! A replica that has lost what it knew counts in nothing before it has asked the others. Where so many have that the rest is no
//! majority, it asks in vain: nobody knows what was acknowledged. That does not mend itself, so it gets a name.

use millrace_guidance::ShardPlacement;
use millrace_replica::NodeId;

use super::{Cluster, locked};

/// What a node has lost and not got again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostData {
    pub guidance: bool,
    /// Ascending.
    pub shards: Vec<u16>,
}

/// Whether too few are left of so many to ask.
pub(super) fn are_too_few_left(all: usize, lost: usize) -> bool {
    lost > 0 && (all - lost) * 2 <= all
}

impl Cluster {
    /// What this node has lost.
    pub(super) fn lost_here(&self) -> LostData {
        let cores = locked(&self.cores);
        let mut lost = LostData::default();
        for core in cores.values() {
            lost.guidance |= core.lost.guidance;
            lost.shards.extend(&core.lost.shards);
        }
        lost.shards.sort_unstable();
        lost
    }

    fn lost_at(&self, node: NodeId) -> LostData {
        if node == self.me() {
            return self.lost_here();
        }
        locked(&self.others).get(&node).map_or_else(LostData::default, |other| other.lost.clone())
    }

    /// Whether a node's replica of the guidance knows nothing, as the node has said last.
    pub(super) fn has_lost_guidance(&self, node: NodeId) -> bool {
        if node == self.me() {
            return locked(&self.cores).values().any(|core| core.lost.guidance);
        }
        locked(&self.others).get(&node).is_some_and(|other| other.lost.guidance)
    }

    /// Whether so many nodes have lost the guidance that nobody can agree on one again.
    pub(crate) fn is_guidance_lost(&self) -> bool {
        let voters = self.voters();
        are_too_few_left(voters.len(), voters.iter().filter(|node| self.has_lost_guidance(**node)).count())
    }

    /// The shards that so many of their replicas have lost that nobody serves them again.
    pub(super) fn lost_shards(&self) -> Vec<u16> {
        let guidance = self.guidance();
        let known: Vec<(u16, LostData)> =
            guidance.nodes.keys().map(|node| (*node, self.lost_at(NodeId(*node)))).collect();
        let has_lost = |node: u16, shard: u16| {
            known.iter().any(|(other, lost)| *other == node && lost.shards.binary_search(&shard).is_ok())
        };
        let is_lost = |(shard, place): &(u16, &ShardPlacement)| {
            let lost = place.replicas.iter().filter(|node| has_lost(**node, *shard)).count();
            are_too_few_left(place.replicas.len(), lost)
        };
        (0_u16..).zip(&guidance.shards).filter(is_lost).map(|(shard, _)| shard).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_that_has_lost_nothing_can_be_asked() {
        let cases = (1..=5).flat_map(|all| (0..=all).map(move |lost| (all, lost)));
        let too_few: Vec<(usize, usize)> = cases.filter(|(all, lost)| are_too_few_left(*all, *lost)).collect();
        let expected = [(1, 1), (2, 1), (2, 2), (3, 2), (3, 3), (4, 2), (4, 3), (4, 4), (5, 3), (5, 4), (5, 5)];
        assert_eq!(too_few, expected);
    }
}
