//! Shards that broke at a node, and those that broke at so many that no other one gets them.

use millrace_guidance::quarantined;
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
        quarantined(&guidance, |node| self.stopped_at(NodeId(node)))
    }
}
