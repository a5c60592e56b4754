//! What goes wrong in a run, and when: crashes, lost disks, cuts, pauses, late and lost messages, shards that break.

use millrace_base::ShardId;
use millrace_replica::NodeId;

use super::links::Weather;
use super::world::{About, MS, Plan, World};
use crate::random::Rng;

/// What one node says to another is so late, at most. That is less than what a shard promises to hold its locks.
const LATE_NS: u64 = 250 * MS;

/// For how long, at most.
const LATE_FOR_NS: u64 = 1_000 * MS;

/// How often faults begin, once in so many steps; never for 0.
#[derive(Default)]
pub(super) struct Faults {
    crash: u64,
    cut: u64,
    pause: u64,
    late: u64,
    lose: u64,
    pub appoint: u64,
    pub move_log: u64,
    pub hand_on: u64,
}

impl Faults {
    /// The faults of a plan. Each one of three in four is in a usual run.
    pub(super) fn of(plan: &Plan, rng: &mut Rng) -> Self {
        let mut sometimes = |times: u64| if rng.chance(3, 4) { times } else { 0 };
        let usual = Self {
            crash: sometimes(250),
            cut: sometimes(200),
            pause: sometimes(350),
            late: sometimes(300),
            lose: sometimes(40),
            appoint: sometimes(250),
            move_log: sometimes(120),
            hand_on: sometimes(120),
        };
        match plan.about {
            About::Everything => usual,
            About::OnePairCut | About::SlowNode => Self::default(),
            About::RestlessGuidance => Self { late: 100, lose: 100, appoint: 600, hand_on: 60, ..Self::default() },
            About::HandingOn => Self { late: 40, lose: 100, hand_on: 15, ..Self::default() },
            About::ShortReigns => Self { late: 100, cut: 30, appoint: 5, ..Self::default() },
        }
    }
}

impl World {
    pub(super) fn start(&mut self, id: NodeId) {
        let now_ns = self.now_ns();
        if let Some(node) = self.nodes.get_mut(&id) {
            let is_slow = !self.plan.about.is_one_fault() && self.breaks.chance(1, 2);
            node.hears_slowly = if is_slow { self.shared.shard_count } else { 0 };
            self.counts.note("start of a node that hears slowly of guidance", u64::from(is_slow));
            node.start(&self.shared, &mut self.rng);
        }
        self.oracle.started(id, now_ns, &mut self.nodes);
        self.note(|| format!("node {id} starts"));
    }

    pub(super) fn new_weather(&mut self) {
        let rng = &mut self.rng;
        let weather = match rng.below(4) {
            0 => Weather { lost: 0, doubled: 0, late_ns: MS },
            1 => Weather { lost: 5, doubled: 5, late_ns: 5 * MS },
            2 => Weather { lost: 1, doubled: 1, late_ns: 60 * MS },
            _ => Weather { lost: 20, doubled: 10, late_ns: 20 * MS },
        };
        if self.plan.about == About::ShortReigns {
            return self.shared.links.set_weather(Weather { lost: 50, doubled: 5, late_ns: 30 * MS });
        }
        if matches!(self.plan.about, About::OnePairCut | About::SlowNode | About::RestlessGuidance | About::HandingOn) {
            return self.shared.links.set_weather(Weather { lost: 0, doubled: 5, late_ns: 3 * MS });
        }
        self.shared.links.set_weather(weather);
        for node in self.nodes.values_mut() {
            node.slowness = if rng.chance(1, 6) { 2 + rng.below(12) } else { 1 };
        }
    }

    /// Where everything goes wrong, the last of it may be that a process ends and another one begins at once. What is waited
    /// for then is not asked for once more because of something later.
    pub(super) fn restart_last(&mut self) {
        if self.plan.about == About::Everything && self.breaks.chance(3, 4) {
            let shard = self.breaks.below(u64::from(self.shared.shard_count));
            self.crash(self.oracle.owner(ShardId(u16::try_from(shard).expect("small"))));
        }
    }

    pub(super) fn once_in(&mut self, times: u64) -> bool {
        times > 0 && self.rng.chance(1, times)
    }

    pub(super) fn fault(&mut self) {
        let id = self.any_node();
        let now_ns = self.now_ns();
        let down: Vec<NodeId> = self.nodes.values().filter(|node| node.process.is_none()).map(|node| node.id).collect();
        if down.len() < self.ids.len() / 2 + 1 && !down.contains(&id) && self.once_in(self.faults.crash) {
            self.crash(id);
            if self.breaks.chance(1, 4) {
                self.lose_disk(id);
            }
        }
        if let Some(id) = down.first().copied().filter(|_| self.rng.chance(1, 80)) {
            self.start(id);
        }
        if self.once_in(self.faults.cut) {
            self.cut(id);
        }
        if self.once_in(self.faults.lose) {
            let lane = (id, self.any_node());
            let count = 1 + self.rng.below(2);
            self.shared.links.lose(lane, count);
        }
        if self.once_in(self.faults.late) {
            self.delay(id);
        }
        if now_ns >= self.heal_at_ns && self.heal_at_ns > 0 {
            self.shared.links.heal();
            self.heal_at_ns = 0;
            self.note(|| "links are whole again".to_owned());
        }
        if self.once_in(self.faults.pause) {
            let pause_ns = self.rng.below(1_500 * MS);
            if let Some(node) = self.nodes.get_mut(&id) {
                node.paused_until_ns = now_ns + pause_ns;
            }
            self.counts.note("pause", 1);
            self.counts.note("pause beyond the lease", u64::from(pause_ns > 600 * MS));
            self.note(|| format!("node {id} stands still for {} ms", pause_ns / MS));
        }
        if self.rng.chance(1, 200) {
            self.new_weather();
        }
        if !self.plan.about.is_one_fault() && self.breaks.chance(1, 600) {
            self.break_shard(id);
        }
    }

    fn break_shard(&mut self, id: NodeId) {
        let shard = ShardId(u16::try_from(self.breaks.below(u64::from(self.shared.shard_count))).expect("small"));
        let is_broken = self.nodes.get_mut(&id).is_some_and(|node| node.break_shard(shard));
        self.counts.note("shard broken", u64::from(is_broken));
        if is_broken {
            self.note(|| format!("shard {} breaks at node {id}", shard.0));
        }
    }

    fn crash(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        for token in node.crash(&mut self.rng) {
            self.ledger.lost(token);
            self.sent_ns.remove(&token);
        }
        self.counts.note("crash", 1);
        self.note(|| format!("node {id} crashes"));
    }

    /// A node that is down loses what it had on disk, if no shard is lost with that.
    fn lose_disk(&mut self, id: NodeId) {
        if !self.oracle.can_do_without(id, &self.nodes) {
            return;
        }
        if let Some(node) = self.nodes.get_mut(&id) {
            node.lose_disk(&self.shared.sets);
        }
        self.counts.note("disk lost", 1);
        self.note(|| format!("node {id} loses its disk"));
    }

    /// Cuts one direction, one link, or one node off, for some time.
    fn cut(&mut self, id: NodeId) {
        let other = self.any_node();
        let links = self.shared.links.clone();
        let kind = self.rng.below(5);
        match kind {
            0 => {
                links.cut(id, other);
                self.counts.note("link cut one way", 1);
            }
            1 => {
                links.cut(id, other);
                links.cut(other, id);
                self.counts.note("link cut", 1);
            }
            2 => {
                for other in self.ids.iter().filter(|other| **other != id) {
                    links.cut(id, *other);
                }
                self.counts.note("node unheard", 1);
            }
            3 => self.cut_pair(),
            _ => {
                for other in self.ids.iter().filter(|other| **other != id) {
                    links.cut(id, *other);
                    links.cut(*other, id);
                }
                self.counts.note("node cut off", 1);
            }
        }
        // Short ones flap.
        let most_ms = match kind {
            3 => 8_000,
            _ if self.rng.chance(1, 3) => 100,
            _ => 2_500,
        };
        self.heal_at_ns = self.now_ns() + self.rng.below(most_ms * MS) + 1;
        self.note(|| format!("links of node {id} are cut"));
    }

    /// Two nodes do not hear each other from now on.
    pub(super) fn cut_pair(&mut self) {
        let first = self.rng.index(self.ids.len());
        let second = (first + 1 + self.rng.index(self.ids.len() - 1)) % self.ids.len();
        let (one, two) = (self.ids[first], self.ids[second]);
        self.shared.links.cut(one, two);
        self.shared.links.cut(two, one);
        self.counts.note("pair cut for long", 1);
        self.note(|| format!("the nodes {one} and {two} do not hear each other"));
    }

    /// What one node says to another is late for some time, or all that it says, or all that it hears.
    fn delay(&mut self, id: NodeId) {
        let other = self.any_node();
        let (late_ns, until_ns) = (self.rng.below(LATE_NS), self.now_ns() + self.rng.below(LATE_FOR_NS));
        let (links, others) = (self.shared.links.clone(), self.ids.clone());
        let kind = self.rng.index(4);
        match kind {
            0 | 1 => others.into_iter().for_each(|other| links.slow_down((other, id), late_ns, until_ns)),
            2 => others.into_iter().for_each(|other| links.slow_down((id, other), late_ns, until_ns)),
            _ => links.slow_down((id, other), late_ns, until_ns),
        }
        self.counts.note(["node hears late", "node hears late", "node is heard late", "link late"][kind], 1);
        self.note(|| format!("links of node {id} are late by up to {} ms, until {} ms", late_ns / MS, until_ns / MS));
    }

    /// Counts what has become of snapshots.
    pub(super) fn note_snapshots(&mut self) {
        for node in self.nodes.values() {
            let fates = &node.fates;
            let counts = [
                ("snapshot shipped", &fates.shipped),
                ("snapshot installed", &fates.installed),
                ("snapshot failed", &fates.failed),
                ("snapshot not installed", &fates.not_installed),
                ("crash while a snapshot leaves", &fates.crashed_sending),
                ("crash while a snapshot comes", &fates.crashed_getting),
            ];
            counts.iter().for_each(|(what, times)| self.counts.note(what, times.get()));
        }
    }
}
