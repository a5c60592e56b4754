//! Guidance, played by the harness: it gives a shard's next epoch to a node that it believes to live.

use std::collections::{BTreeMap, BTreeSet};

use millrace_base::{Lsn, ShardId};
use millrace_replica::{Epoch, NodeId, Promised, ReplicaSet};

use super::node::{News, Nodes};
use crate::random::Rng;

/// How long a shard may be without an owner that serves before somebody else is asked.
const PATIENCE_NS: u64 = 1_500_000_000;

struct Guided {
    epoch: u64,
    owner: NodeId,
    /// Who is to have it in the next epoch.
    next: Option<NodeId>,
    /// Who is to hold the log.
    wanted: BTreeSet<NodeId>,
    /// Who does, as its owner has said last, and where in the log that was agreed on.
    held: BTreeSet<NodeId>,
    agreed: Lsn,
    /// Since when nobody serves in that epoch, as far as is known.
    since_ns: u64,
}

impl Guided {
    fn news(&self, shard: ShardId) -> News {
        (shard, (self.owner, self.next), Epoch(self.epoch), self.wanted.iter().copied().collect())
    }
}

/// See the module's documentation.
pub struct Oracle {
    guided: BTreeMap<ShardId, Guided>,
}

impl Oracle {
    /// Shards are dealt out in turn.
    #[must_use]
    pub fn new(sets: &[ReplicaSet]) -> Self {
        let guided = |(shard, set): (u16, &ReplicaSet)| {
            let held: BTreeSet<NodeId> = set.voters().collect();
            let owner = held.iter().copied().nth(usize::from(shard) % held.len()).expect("somebody holds it");
            let guided =
                Guided { epoch: 1, owner, next: None, wanted: held.clone(), held, agreed: Lsn::ZERO, since_ns: 0 };
            (ShardId(shard), guided)
        };
        Self { guided: (0..).zip(sets).map(guided).collect() }
    }

    /// A node has started: it hears everything, and gets new epochs for what it owned.
    pub fn started(&mut self, node: NodeId, now_ns: u64, nodes: &mut Nodes) {
        let own: Vec<ShardId> =
            self.guided.iter().filter(|(_, guided)| guided.owner == node).map(|(shard, _)| *shard).collect();
        for shard in own {
            self.appoint(shard, node, now_ns, nodes);
        }
        if let Some(started) = nodes.get_mut(&node) {
            started.news = self.guided.iter().map(|(shard, guided)| guided.news(*shard)).collect();
        }
    }

    /// A node gets the next epoch of a shard.
    pub fn appoint(&mut self, shard: ShardId, owner: NodeId, now_ns: u64, nodes: &mut Nodes) {
        let Some(guided) = self.guided.get_mut(&shard) else { return };
        // The next epoch is the heir's for ever.
        guided.epoch += 1 + u64::from(guided.next.take().is_some());
        (guided.owner, guided.since_ns) = (owner, now_ns);
        nodes.values_mut().for_each(|node| node.news.push_back(guided.news(shard)));
    }

    /// The owner of a shard is to hand it to another node.
    pub fn hand_on(&mut self, shard: ShardId, now_ns: u64, rng: &mut Rng, nodes: &mut Nodes) -> bool {
        let Some(guided) = self.guided.get_mut(&shard).filter(|guided| guided.next.is_none()) else { return false };
        let others: Vec<NodeId> = guided.held.iter().copied().filter(|node| *node != guided.owner).collect();
        (guided.next, guided.since_ns) = (Some(others[rng.index(others.len())]), now_ns);
        nodes.values_mut().for_each(|node| node.news.push_back(guided.news(shard)));
        true
    }

    /// Notes which shards were handed on, and gives them.
    pub fn look_at_heirs(&mut self, now_ns: u64, nodes: &mut Nodes) -> Vec<ShardId> {
        let mut handed_on = Vec::new();
        for (shard, guided) in &mut self.guided {
            let heir = guided.next.and_then(|next| nodes.get_mut(&next));
            if heir.is_some_and(|heir| heir.serving(*shard) == Some(Epoch(guided.epoch + 1))) {
                (guided.owner, guided.epoch) = (guided.next.take().expect("it serves"), guided.epoch + 1);
                guided.since_ns = now_ns;
                handed_on.push(*shard);
                nodes.values_mut().for_each(|node| node.news.push_back(guided.news(*shard)));
            }
        }
        handed_on
    }

    /// Another node is to hold the log of a shard instead of one that does.
    pub fn move_log(&mut self, shard: ShardId, rng: &mut Rng, nodes: &mut Nodes) -> bool {
        let Some(guided) = self.guided.get_mut(&shard) else { return false };
        let free: Vec<NodeId> = nodes.keys().copied().filter(|node| !guided.wanted.contains(node)).collect();
        let held: Vec<NodeId> = guided.wanted.iter().copied().collect();
        if free.is_empty() {
            return false;
        }
        guided.wanted.remove(&held[rng.index(held.len())]);
        guided.wanted.insert(free[rng.index(free.len())]);
        nodes.values_mut().for_each(|node| node.news.push_back(guided.news(shard)));
        true
    }

    /// Whether all shards could do without what a node holds: all others who hold a shard are whole, and nobody is to come or go.
    #[must_use]
    pub fn can_do_without(&self, id: NodeId, nodes: &Nodes) -> bool {
        let is_whole = |shard: ShardId, node: &NodeId| *node == id || !nodes[node].is_partial(shard);
        let can = |(shard, guided): (&ShardId, &Guided)| {
            guided.held == guided.wanted && guided.held.iter().all(|node| is_whole(*shard, node))
        };
        self.guided.iter().all(can)
    }

    /// Those who hold the log of a shard, as its owner has said last.
    #[must_use]
    pub fn holders(&self, shard: ShardId) -> Vec<NodeId> {
        self.guided[&shard].held.iter().copied().collect()
    }

    /// What is to be and what is, for people.
    pub fn describe(&self, nodes: &mut Nodes) -> String {
        let mut text = String::new();
        for (shard, Guided { epoch, owner, wanted, held, .. }) in &self.guided {
            text.push_str(&format!("\nshard {}: {owner} in epoch {epoch}, on {held:?}, to be on {wanted:?}", shard.0));
            for node in nodes.values_mut() {
                let id = node.id;
                let replica = node.core_of(*shard).and_then(|core| core.replica(*shard));
                let line = replica.map(|replica| {
                    let log = replica.log();
                    let (last, committed) = (log.last(), log.committed().0);
                    format!(
                        "{:?} {:?} {last:?} committed {committed} {:?}",
                        replica.role(),
                        replica.promised(),
                        log.set()
                    )
                });
                text.push_str(&format!("\n  {id}: {}", line.unwrap_or_default()));
            }
        }
        text
    }

    /// Whether all logs are where they are to be.
    #[must_use]
    pub fn has_moved_all(&self) -> bool {
        self.guided.values().all(|guided| guided.held == guided.wanted && guided.next.is_none())
    }

    /// Hears who holds which log, has others own what moves away, and has nodes forget what they hold no more.
    pub fn look_at_holders(&mut self, now_ns: u64, rng: &mut Rng, nodes: &mut Nodes) -> (u64, u64) {
        let (mut moved, mut forgotten) = (0, 0);
        for shard in self.guided.keys().copied().collect::<Vec<_>>() {
            let Some(guided) = self.guided.get_mut(&shard) else { continue };
            let owner = nodes.get_mut(&guided.owner);
            let Some((agreed, set)) = owner.and_then(|owner| owner.held(shard, guided.epoch)) else { continue };
            if agreed > guided.agreed {
                (guided.held, guided.agreed) = (set.voters().collect(), agreed);
                moved += 1;
            }
            let (held, wanted) = (guided.held.clone(), guided.wanted.clone());
            for node in nodes.values_mut().filter(|node| !held.contains(&node.id) && !wanted.contains(&node.id)) {
                forgotten += u64::from(rng.chance(1, 3) && node.forget(shard, agreed));
            }
            if !wanted.contains(&guided.owner) && wanted.is_subset(&held) && guided.next.is_none() {
                let next = wanted.iter().copied().nth(rng.index(wanted.len())).expect("somebody is to hold it");
                self.appoint(shard, next, now_ns, nodes);
            }
        }
        (moved, forgotten)
    }

    /// An appointment could not be followed.
    pub fn taken(&mut self, shard: ShardId, promised: Promised, now_ns: u64, nodes: &mut Nodes) {
        // What the heir has promised itself is its own.
        let is_taken = |guided: &&mut Guided| guided.epoch <= promised.epoch.0 && guided.next.is_none();
        let Some(guided) = self.guided.get_mut(&shard).filter(is_taken) else { return };
        guided.epoch = promised.epoch.0;
        let owner = guided.owner;
        self.appoint(shard, owner, now_ns, nodes);
    }

    /// A node was appointed, and another one should have been.
    pub fn instead(&mut self, shard: ShardId, (node, best): (NodeId, NodeId), now_ns: u64, nodes: &mut Nodes) {
        if self.guided[&shard].owner == node {
            self.appoint(shard, best, now_ns, nodes);
        }
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
            if is_served && guided.next.is_none() && !is_dead[&guided.owner] {
                guided.since_ns = now_ns;
            }
            let waited_ns = now_ns - guided.since_ns;
            if waited_ns > PATIENCE_NS || (is_dead[&guided.owner] && waited_ns > 100_000_000 && rng.chance(1, 4)) {
                let alive: Vec<NodeId> = guided.held.iter().copied().filter(|node| !is_dead[node]).collect();
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
