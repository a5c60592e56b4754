//! What the next guidance is: decided by the node that owns the meta shard, and true once the meta shard has committed it.
//!
//! A wrong guess about who is alive costs a moment's pause and never safety: replicas promise each epoch once, and leases are
//! waited out.

use std::collections::{BTreeMap, BTreeSet};

use crate::document::{Guidance, ShardPlacement};
use crate::placing;
use crate::status::{Obstacle, Status};

/// How patient a leader is. All in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A node that was not heard for so long is dead.
    pub dead_ns: u64,
    /// The same for a node whose connection is closed: a killed process closes its own.
    pub dead_unlinked_ns: u64,
    /// How long the first guidance waits for nodes that have not been heard.
    pub first_ns: u64,
    /// How long all is quiet before shards are moved for balance.
    pub settle_ns: u64,
    /// From one such move to the next.
    pub move_ns: u64,
    /// How long an owner may fail to serve a shard before another node is tried.
    pub stuck_ns: u64,
}

impl Default for Timing {
    fn default() -> Self {
        const MS: u64 = 1_000_000;
        Self {
            // Six heartbeats.
            dead_ns: 600 * MS,
            dead_unlinked_ns: 200 * MS,
            first_ns: 2_000 * MS,
            settle_ns: 3_000 * MS,
            move_ns: 200 * MS,
            // A takeover waits for a lease, and fetches entries: both take less, unless something is wrong.
            stuck_ns: 2_000 * MS,
        }
    }
}

/// What a node has heard of the others, whoever leads. A new leader begins with it, so it need not wait to find out again who is
/// dead: often the leader before it.
#[derive(Clone, Debug, Default)]
pub struct Audience {
    pub(crate) heard: BTreeMap<u16, Heard>,
}

impl Audience {
    /// A node has spoken.
    pub fn heard(&mut self, now_ns: u64, node: u16, status: Status) {
        self.heard.insert(node, Heard { at_ns: now_ns, status, is_unlinked: false });
    }

    /// The connection to a node was closed.
    pub fn unlinked(&mut self, node: u16) {
        if let Some(heard) = self.heard.get_mut(&node) {
            heard.is_unlinked = true;
        }
    }
}

/// What the owner of the meta shard knows of the nodes. It is made anew with each reign.
#[derive(Clone, Debug)]
pub struct Leader {
    me: u16,
    pub(crate) timing: Timing,
    since_ns: u64,
    pub(crate) audience: Audience,
    /// When a node or an owner last changed.
    changed_ns: u64,
    moved_ns: u64,
    /// Since when the owner of a shard's epoch says that it cannot serve it.
    stuck: BTreeMap<(u16, u64), u64>,
    /// Since when the owner of a shard's epoch is to hand it on.
    pub(crate) handing: BTreeMap<(usize, u64), u64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    at_ns: u64,
    pub status: Status,
    is_unlinked: bool,
}

impl Leader {
    /// A leader that knows of the others what it has heard so far.
    #[must_use]
    pub fn new(me: u16, timing: Timing, now_ns: u64, audience: Audience) -> Self {
        Self {
            me,
            timing,
            since_ns: now_ns,
            audience,
            changed_ns: now_ns,
            moved_ns: now_ns,
            stuck: BTreeMap::new(),
            handing: BTreeMap::new(),
        }
    }

    /// What it has heard, to be told more. The leader says of itself how it is as well.
    pub fn audience(&mut self) -> &mut Audience {
        &mut self.audience
    }

    /// The nodes that follow this guidance and its deployments, of those that are alive; and whether that is all of them.
    #[must_use]
    pub fn has_been_followed(&self, guidance: &Guidance) -> bool {
        let follows = |node: &u16| {
            self.audience.heard.get(node).is_some_and(|heard| {
                heard.status.guidance_epoch >= guidance.epoch
                    && heard.status.last_deployment >= guidance.last_deployment
            })
        };
        guidance.nodes.iter().filter(|(_, entry)| entry.is_alive).all(|(node, _)| follows(node))
    }

    /// The guidance that should follow `guidance`, if any. To be asked again once that is committed.
    pub fn decide(&mut self, now_ns: u64, guidance: &Guidance) -> Option<Guidance> {
        let mut next = guidance.clone();
        // What was handed on was decided before.
        self.note_handed_on(now_ns, &mut next);
        let begun = next.clone();
        let restarted = self.note_nodes(now_ns, &mut next);
        if guidance.epoch == 0 && !self.may_begin(now_ns, &next) {
            return None;
        }
        for place in &mut next.shards {
            // What it had in memory is gone, and nobody knows what it had promised to do.
            if restarted.contains(&place.owner) {
                place.appoint(place.owner);
            }
        }
        self.replace_owners(&mut next);
        self.overcome_obstacles(now_ns, guidance, &mut next);
        if next == begun {
            self.balance(now_ns, &mut next);
        } else {
            self.changed_ns = now_ns;
        }
        for (node, heard) in &self.audience.heard {
            heard.status.held.iter().for_each(|held| placing::note_held(&mut next, *node, held));
        }
        self.forget_versions(guidance, &mut next);
        let is_quiet = now_ns >= self.changed_ns + self.timing.settle_ns && self.has_been_followed(guidance);
        let stuck = self.stuck_shards(guidance);
        placing::place(&mut next, is_quiet, &stuck);
        (next != *guidance).then(|| {
            next.epoch += 1;
            next
        })
    }

    /// Notes who is alive, and who has started anew.
    fn note_nodes(&self, now_ns: u64, next: &mut Guidance) -> BTreeSet<u16> {
        let (mut restarted, used) = (BTreeSet::new(), next.feature_level);
        for (node, entry) in &mut next.nodes {
            entry.is_alive = self.is_alive(now_ns, *node).unwrap_or(entry.is_alive);
            let known = self.audience.heard.get(node).map(|heard| heard.status.feature_level);
            if entry.is_alive {
                // It was replaced by an earlier version: it would not understand the others.
                entry.is_alive = known.is_none_or(|known| known >= used);
                entry.feature_level = known.unwrap_or(entry.feature_level);
            }
            if let Some(heard) = self.audience.heard.get(node)
                && entry.is_alive
                && heard.status.incarnation != entry.incarnation
            {
                entry.incarnation = heard.status.incarnation;
                restarted.insert(*node);
            }
        }
        next.raise_level();
        restarted
    }

    /// `None`: this leader cannot know yet.
    fn is_alive(&self, now_ns: u64, node: u16) -> Option<bool> {
        let Timing { dead_ns, dead_unlinked_ns, .. } = self.timing;
        match self.audience.heard.get(&node) {
            _ if node == self.me => Some(true),
            Some(heard) => {
                let patience_ns = if heard.is_unlinked { dead_unlinked_ns } else { dead_ns };
                Some(now_ns < heard.at_ns + patience_ns)
            }
            None => (now_ns >= self.since_ns + dead_ns).then_some(false),
        }
    }

    /// The first owners are dealt out once all nodes are there, or a majority and some time has passed.
    fn may_begin(&self, now_ns: u64, next: &Guidance) -> bool {
        let heard = next.nodes.keys().filter(|node| self.is_alive(now_ns, **node) == Some(true)).count();
        heard == next.nodes.len() || now_ns >= self.since_ns + self.timing.first_ns && heard * 2 > next.nodes.len()
    }

    /// Whether a node is neither told to go nor about to stop.
    pub(crate) fn is_staying(&self, next: &Guidance, node: u16) -> bool {
        let is_stopping = self.audience.heard.get(&node).is_some_and(|heard| heard.status.is_leaving);
        !is_stopping && next.nodes.get(&node).is_none_or(|entry| !entry.is_draining)
    }

    pub(crate) fn is_caught_up(&self, node: u16) -> bool {
        self.audience.heard.get(&node).is_some_and(|heard| heard.status.is_caught_up)
    }

    /// Shards whose nodes cannot change for now. Some living node lacks bodies of theirs that nobody can read: no node may count in
    /// them newly, and none may go. Or they are quarantined: nobody serves them.
    fn stuck_shards(&self, guidance: &Guidance) -> BTreeSet<usize> {
        let alive = self.audience.heard.iter().filter(|(node, _)| guidance.is_alive(**node));
        let unreadable = alive.flat_map(|(_, heard)| heard.status.unreadable.iter().copied().map(usize::from));
        let places = guidance.shards.iter().enumerate();
        let quarantined = places.filter(|(shard, place)| self.is_quarantined(place, *shard)).map(|(shard, _)| shard);
        unreadable.chain(quarantined).collect()
    }

    fn is_quarantined(&self, place: &ShardPlacement, shard: usize) -> bool {
        place.is_quarantined(|node| self.has_stopped(node, shard))
    }

    /// Whether a node says that it does not serve a shard in an epoch in which it owns it.
    pub(crate) fn has_obstacle(&self, node: u16, shard: usize, epoch: u64) -> bool {
        let obstacles = self.audience.heard.get(&node).map(|heard| heard.status.obstacles.as_slice());
        let is_it = |obstacle: &Obstacle| (usize::from(obstacle.shard), obstacle.epoch) == (shard, epoch);
        obstacles.is_some_and(|obstacles| obstacles.iter().any(is_it))
    }

    /// Whether a shard broke at a node.
    pub(crate) fn has_stopped(&self, node: u16, shard: usize) -> bool {
        let stopped = self.audience.heard.get(&node).map(|heard| heard.status.stopped.as_slice());
        stopped.is_some_and(|stopped| stopped.iter().any(|one| usize::from(*one) == shard))
    }

    /// Shards whose owner is gone, or is to go, get another one, if there is one.
    fn replace_owners(&self, next: &mut Guidance) {
        for shard in 0..next.shards.len() {
            let place = &next.shards[shard];
            let is_draining = !self.is_staying(next, place.owner);
            let is_moving = !place.holders().contains(&place.owner);
            let are_ready = place.holders().iter().all(|node| place.replicas.contains(node));
            let is_leaving = is_draining || is_moving && are_ready;
            if next.is_alive(place.owner) && !is_leaving {
                continue;
            }
            // A node that is merely to go serves until another can, and hands the shard to that one. Not if the shard broke there.
            let hands_over = next.is_alive(place.owner) && !self.has_stopped(place.owner, shard);
            if !hands_over && self.is_quarantined(place, shard) {
                continue;
            }
            if hands_over && place.next != 0 {
                continue;
            }
            match self.best_owner(next, shard, hands_over, place.owner) {
                Some(owner) if hands_over => next.shards[shard].next = owner,
                Some(owner) => next.shards[shard].appoint(owner),
                None => {}
            }
        }
    }

    /// The living replica that should own the shard. What counts, in this order: the shard did not break there, its node stays,
    /// it has caught up, it is not to move, its node owns few shards. A shard without an owner goes to a node that is to go, too:
    /// nobody else may be left to serve it. It is handed to one where the first four hold, or not at all: an heir that does not count
    /// any more when its time comes cannot own it.
    fn best_owner(&self, next: &Guidance, shard: usize, hands_over: bool, other_than: u16) -> Option<u16> {
        let place = &next.shards[shard];
        let order = |node: u16| {
            let is_unfit = [self.has_stopped(node, shard), !self.is_staying(next, node), !self.is_caught_up(node)];
            (is_unfit, !place.holders().contains(&node), next.owned_by(node), node)
        };
        let others = place.replicas.iter().copied().filter(|node| next.is_alive(*node) && *node != other_than);
        let best = others.map(order).min();
        let may_own = |is_unfit: [bool; 3], is_to_move: bool| !hands_over || is_unfit == [false; 3] && !is_to_move;
        best.filter(|(is_unfit, is_to_move, ..)| may_own(*is_unfit, *is_to_move)).map(|(_, _, _, node)| node)
    }

    fn overcome_obstacles(&mut self, now_ns: u64, guidance: &Guidance, next: &mut Guidance) {
        let mut stuck = BTreeMap::new();
        for (node, heard) in &self.audience.heard {
            for obstacle in &heard.status.obstacles {
                let index = usize::from(obstacle.shard);
                // An answer to an earlier appointment, or one that is replaced just now.
                let is_current = guidance.shards.get(index) == next.shards.get(index)
                    && guidance.shards.get(index).is_some_and(|place| {
                        let is_its = (place.owner, place.epoch) == (*node, obstacle.epoch);
                        is_its && place.next == 0 && guidance.is_alive(*node)
                    });
                if !is_current {
                    continue;
                }
                let key = (obstacle.shard, obstacle.epoch);
                let since_ns = *stuck.entry(key).or_insert(self.stuck.get(&key).copied().unwrap_or(now_ns));
                let has_waited = now_ns >= since_ns + self.timing.stuck_ns;
                let mut place = next.shards[index].clone();
                place.epoch = place.epoch.max(obstacle.promised);
                let may_be_best = next.is_alive(obstacle.best) && !self.has_stopped(obstacle.best, index);
                if may_be_best && place.replicas.contains(&obstacle.best) {
                    place.appoint(obstacle.best);
                } else if obstacle.promised >= obstacle.epoch {
                    place.appoint(*node);
                } else if self.has_stopped(*node, index) {
                    if self.is_quarantined(&place, index) {
                        continue;
                    }
                    let other = self.best_owner(next, index, false, *node);
                    let Some(other) = other.filter(|other| !self.has_stopped(*other, index)) else { continue };
                    place.appoint(other);
                } else if has_waited
                    && let Some(other) = self.best_owner(next, index, false, *node)
                    && !self.has_stopped(other, index)
                {
                    place.appoint(other);
                } else {
                    continue;
                }
                next.shards[index] = place;
            }
        }
        self.stuck = stuck;
    }

    /// Moves one shard to the replica that owns the fewest in comparison with its owner.
    fn balance(&mut self, now_ns: u64, next: &mut Guidance) {
        let Timing { settle_ns, move_ns, .. } = self.timing;
        let is_quiet = now_ns >= self.changed_ns + settle_ns && now_ns >= self.moved_ns + move_ns;
        if !is_quiet || !self.has_been_followed(next) {
            return;
        }
        let mut best: Option<(usize, usize, u16)> = None;
        for (shard, place) in next.shards.iter().enumerate() {
            let may_own = |node: &u16| {
                let is_fit =
                    self.is_staying(next, *node) && self.is_caught_up(*node) && !self.has_stopped(*node, shard);
                next.is_alive(*node) && is_fit
            };
            if place.next != 0 {
                continue;
            }
            for to in place.holders().iter().filter(|node| place.replicas.contains(node) && may_own(node)) {
                let gain = next.owned_by(place.owner).saturating_sub(next.owned_by(*to));
                if gain >= 2 && best.is_none_or(|(most, ..)| gain > most) {
                    best = Some((gain, shard, *to));
                }
            }
        }
        if let Some((_, shard, to)) = best {
            next.shards[shard].next = to;
            self.moved_ns = now_ns;
        }
    }
}
