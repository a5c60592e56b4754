//! Guidance, played by the harness: it gives a shard's next epoch to a node that it believes to live.

use std::collections::BTreeMap;

use millrace_base::ShardId;
use millrace_replica::{Epoch, NodeId, Promised};

use super::node::Nodes;
use crate::random::Rng;

/// How long a shard may be without an owner that serves before somebody else is asked.
const PATIENCE_NS: u64 = 1_500_000_000;

struct Guided {
    epoch: u64,
    owner: NodeId,
    /// Since when nobody serves in that epoch, as far as is known.
    since_ns: u64,
}

/// See the module's documentation.
pub struct Oracle {
    guided: BTreeMap<ShardId, Guided>,
}

impl Oracle {
    /// Shards are dealt out in turn.
    #[must_use]
    pub fn new(shard_count: u16, nodes: &[NodeId]) -> Self {
        let owner = |shard: u16| nodes[usize::from(shard) % nodes.len()];
        let guided = |shard| (ShardId(shard), Guided { epoch: 1, owner: owner(shard), since_ns: 0 });
        Self { guided: (0..shard_count).map(guided).collect() }
    }

    /// A node has started: it hears everything, and gets new epochs for what it owned.
    pub fn started(&mut self, node: NodeId, now_ns: u64, nodes: &mut Nodes) {
        let own: Vec<ShardId> =
            self.guided.iter().filter(|(_, guided)| guided.owner == node).map(|(shard, _)| *shard).collect();
        for shard in own {
            self.appoint(shard, node, now_ns, nodes);
        }
        if let Some(started) = nodes.get_mut(&node) {
            let all = self.guided.iter().map(|(shard, guided)| (*shard, guided.owner, Epoch(guided.epoch)));
            started.news = all.collect();
        }
    }

    /// A node gets the next epoch of a shard.
    pub fn appoint(&mut self, shard: ShardId, owner: NodeId, now_ns: u64, nodes: &mut Nodes) {
        let Some(guided) = self.guided.get_mut(&shard) else { return };
        *guided = Guided { epoch: guided.epoch + 1, owner, since_ns: now_ns };
        for node in nodes.values_mut() {
            node.news.push_back((shard, owner, Epoch(guided.epoch)));
        }
    }

    /// An appointment could not be followed.
    pub fn taken(&mut self, shard: ShardId, promised: Promised, now_ns: u64, nodes: &mut Nodes) {
        let Some(guided) = self.guided.get_mut(&shard).filter(|guided| guided.epoch <= promised.epoch.0) else {
            return;
        };
        guided.epoch = promised.epoch.0;
        let owner = guided.owner;
        self.appoint(shard, owner, now_ns, nodes);
    }

    #[must_use]
    pub fn owner(&self, shard: ShardId) -> NodeId {
        self.guided[&shard].owner
    }

    /// Replaces owners that do not serve for too long. Gives how many it replaced.
    pub fn look(&mut self, now_ns: u64, is_dead: &BTreeMap<NodeId, bool>, rng: &mut Rng, nodes: &mut Nodes) -> u64 {
        let mut replaced = 0;
        for shard in self.guided.keys().copied().collect::<Vec<_>>() {
            let Some(guided) = self.guided.get_mut(&shard) else { continue };
            let owner = nodes.get_mut(&guided.owner);
            let is_served = owner.is_some_and(|owner| owner.serving(shard) == Some(Epoch(guided.epoch)));
            if is_served && !is_dead[&guided.owner] {
                guided.since_ns = now_ns;
            }
            let waited_ns = now_ns - guided.since_ns;
            if waited_ns > PATIENCE_NS || (is_dead[&guided.owner] && waited_ns > 100_000_000 && rng.chance(1, 4)) {
                let alive: Vec<NodeId> =
                    is_dead.iter().filter(|(_, is_dead)| !**is_dead).map(|(node, _)| *node).collect();
                if !alive.is_empty() {
                    let next = alive[rng.index(alive.len())];
                    self.appoint(shard, next, now_ns, nodes);
                    replaced += 1;
                }
            }
        }
        replaced
    }
}
