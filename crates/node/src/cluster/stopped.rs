//! Shards that broke at a node, and those that broke at so many that no other one gets them.

use std::collections::BTreeMap;

use millrace_guidance::ShardPlacement;
use millrace_replica::NodeId;

use super::{Cluster, locked};

impl Cluster {
    /// Shards that broke at this node, ascending.
    pub(super) fn stopped_here(&self) -> Vec<u16> {
        let cores = locked(&self.cores);
        let mut stopped: Vec<u16> = cores.values().flat_map(|core| core.stopped.iter().copied()).collect();
        stopped.sort_unstable();
        stopped
    }

    /// Shards that broke at a node, as it has said last.
    pub(super) fn stopped_at(&self, node: NodeId) -> Vec<u16> {
        if node == self.me() {
            return self.stopped_here();
        }
        locked(&self.others).get(&node).map(|other| other.stopped.clone()).unwrap_or_default()
    }

    /// Shards that broke at one owner and at the next: whatever breaks them is not taken to a third.
    pub(super) fn quarantined_shards(&self) -> Vec<u16> {
        let guidance = self.guidance();
        let stopped: BTreeMap<u16, Vec<u16>> =
            guidance.nodes.keys().map(|node| (*node, self.stopped_at(NodeId(*node)))).collect();
        let is_quarantined = |(shard, place): &(u16, &ShardPlacement)| {
            place.is_quarantined(|node| stopped.get(&node).is_some_and(|stopped| stopped.contains(shard)))
        };
        (0_u16..).zip(&guidance.shards).filter(is_quarantined).map(|(shard, _)| shard).collect()
    }
}
