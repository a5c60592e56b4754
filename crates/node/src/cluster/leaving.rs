//! A node that is about to stop has others own its shards first.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use millrace_guidance::NodeEntry;
use millrace_replica::NodeId;

use super::{Cluster, locked};
use crate::core::Shared;

/// How long that may take. Then the node stops all the same, and the others find out.
const LONGEST: Duration = Duration::from_secs(5);

/// How often is looked whether it is so.
const LOOK: Duration = Duration::from_millis(20);

impl Cluster {
    /// Has others own what this node owns, and waits until they do. Called from a thread that may wait.
    pub(crate) fn leave(&self, shared: &Shared) {
        let until = Instant::now() + LONGEST;
        self.is_leaving.store(true, Ordering::Relaxed);
        self.speak_soon();
        let owns = || self.guidance().shards.iter().any(|place| place.owner == self.me().0);
        // Where all stop, nobody takes anything.
        let has_others = || {
            let (guidance, others) = (self.guidance(), locked(&self.others));
            let is_leaving = |node: u16| others.get(&NodeId(node)).is_none_or(|other| other.is_leaving);
            let stays = |node: u16, entry: &NodeEntry| entry.is_alive && !entry.is_draining && !is_leaving(node);
            guidance.nodes.iter().any(|(node, entry)| *node != self.me().0 && stays(*node, entry))
        };
        while self.is_guided() && owns() && has_others() && self.hears_majority(shared.clock.monotonic_ns()) {
            if Instant::now() >= until {
                tracing::warn!("this node stops though it owns shards: no other node has taken them");
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}
