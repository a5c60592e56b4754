//! Plans that are about owners: owners that are lost while guidance gives shards to others, and a slow node that owns nothing.

use millrace_base::ShardId;
use millrace_replica::NodeId;

use super::world::{About, Checked, MS, World};

/// What a slow node says and hears is so late, at most.
const SLOW_NS: u64 = 400 * MS;

/// What an owner hears that is being lost is so late, at most.
const LATE_NS: u64 = 700 * MS;

/// An owner hears everything late for so long, and then nobody hears it.
const LATE_FOR_NS: u64 = 500 * MS;

/// Nobody hears an owner for so long at most before it hears nobody either. What was granted to it before may come meanwhile.
const UNHEARD_NS: u64 = 700 * MS;

/// Where one node is slow, who asks later than this finds all shards served.
const SERVED_NS: u64 = 2_500 * MS;

/// Where one node is slow, half of all clients wait no longer.
const LONGEST_MEDIAN_NS: u64 = 100 * MS;

/// How far an owner is that is being lost, and when it goes on.
pub enum Losing {
    Late(NodeId, u64),
    Unheard(NodeId, u64),
}

impl World {
    /// In a restless run: an owner hears everything late, then is heard by nobody, then is cut off.
    pub(super) fn lose_owners(&mut self) {
        let now_ns = self.now_ns();
        self.losing = match self.losing.take() {
            _ if self.plan.about != About::RestlessGuidance => None,
            None if self.heal_at_ns == 0 && self.looks.chance(1, 60) => {
                let shard = self.looks.below(u64::from(self.shared.shard_count));
                let id = self.oracle.owner(ShardId(u16::try_from(shard).expect("small")));
                self.slow_node_down(id, LATE_NS, 0);
                Some(Losing::Late(id, now_ns + LATE_FOR_NS))
            }
            Some(Losing::Late(id, at_ns)) if now_ns >= at_ns => {
                self.cut_from(id);
                self.heal_at_ns = now_ns + 1_000 * MS + self.looks.below(1_500 * MS);
                self.note(|| format!("nobody hears node {id}"));
                Some(Losing::Unheard(id, now_ns + self.looks.below(UNHEARD_NS)))
            }
            Some(Losing::Unheard(id, at_ns)) if now_ns >= at_ns => {
                self.shared.links.no_one_is_slow();
                self.cut_to(id);
                self.counts.note("owner lost", 1);
                self.note(|| format!("node {id} hears nobody"));
                None
            }
            losing => losing,
        };
    }

    /// What is said to a node, and what it says, is so late from now on, at most. All others are as quick as before.
    fn slow_node_down(&mut self, id: NodeId, to_ns: u64, from_ns: u64) {
        for other in &self.ids {
            self.shared.links.slow_down((*other, id), to_ns, u64::MAX);
            self.shared.links.slow_down((id, *other), from_ns, u64::MAX);
        }
    }

    fn cut_from(&mut self, id: NodeId) {
        for other in self.ids.iter().filter(|other| **other != id) {
            self.shared.links.cut(id, *other);
        }
    }

    fn cut_to(&mut self, id: NodeId) {
        for other in self.ids.iter().filter(|other| **other != id) {
            self.shared.links.cut(*other, id);
        }
    }

    /// One node is slow from now on, if the plan wants one: all that it says and hears is late, and it owns nothing.
    pub(super) fn slow_a_node_down(&mut self) {
        if self.plan.about != About::SlowNode {
            return;
        }
        let id = self.ids[self.looks.index(self.ids.len())];
        self.slow_node_down(id, SLOW_NS, SLOW_NS);
        let now_ns = self.now_ns();
        for shard in (0..self.shared.shard_count).map(ShardId) {
            if self.oracle.owner(shard) == id {
                let other = self.oracle.holders(shard).into_iter().find(|holder| *holder != id);
                other.into_iter().for_each(|other| self.oracle.appoint(shard, other, now_ns, &mut self.nodes));
            }
        }
        self.slow = Some(id);
        self.note(|| format!("node {id} is slow"));
    }

    /// Somebody was answered who had asked at that time.
    pub(super) fn note_wait(&mut self, sent_ns: u64) {
        if self.slow.is_some() && sent_ns >= SERVED_NS {
            self.waited_ns.push(self.now_ns() - sent_ns);
        }
    }

    /// Clients have not waited for the slow node.
    pub(super) fn look_for_those_who_waited(&mut self) -> Checked {
        let Some(slow) = self.slow else { return Ok(()) };
        self.waited_ns.sort_unstable();
        let median_ns = self.waited_ns.get(self.waited_ns.len() / 2).copied().unwrap_or_default();
        self.counts.note("waited for a median of milliseconds", median_ns / MS);
        if median_ns > LONGEST_MEDIAN_NS {
            return Err(format!("half of all clients waited for {} ms, as node {slow} is slow", median_ns / MS));
        }
        Ok(())
    }
}
