//! A node at rest: whether it is, and what must not be left then.

use millrace_shard::Shard;

use super::{Driven, Node};
use crate::workers::Workers;

impl Node {
    /// Whether nothing is under way anywhere but timers.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_idle = |driven: &Driven| driven.core.is_idle() && driven.unread.is_empty() && !driven.has_more;
        self.net.is_empty() && self.has_idle_workers() && self.cores.iter().all(is_idle)
    }

    /// What should not be there when nothing is under way, and how many there are of it.
    #[must_use]
    pub fn left_at_rest(&self) -> [(&'static str, usize); 7] {
        let activations = |driven: &Driven| {
            driven.core.live_activations() + driven.engine.waiting_activations() + driven.core.unplaced_routes()
        };
        let sum = |count: fn(&Shard) -> usize| self.shards().map(count).sum();
        [
            ("live frames", self.cores.iter().map(activations).sum()),
            ("waiting transactions", sum(|shard| shard.figures().waiting)),
            ("locked entities", sum(|shard| shard.figures().locked_entities)),
            ("held replies", sum(|shard| shard.figures().held_replies)),
            ("unfinished transactions", sum(|shard| shard.figures().unfinished)),
            ("attempts on workers", self.workers.as_ref().map_or(0, Workers::attempts)),
            ("unanswered requests", self.cores.iter().map(|driven| driven.core.open_requests()).sum()),
        ]
    }
}
