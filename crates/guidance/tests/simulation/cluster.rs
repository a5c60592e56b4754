//! The nodes, the links between them, the meta shard, and what happens to all of them.

use std::collections::{BTreeMap, BTreeSet};

use millrace_guidance::{Guidance, Leader, MetaStep, NodeEntry, Timing, meta_step};

use crate::logs::{Log, Run};
use crate::node::{Node, Opening, Reign};

const MS: u64 = 1_000_000;
const STEP_NS: u64 = 25 * MS;

/// How long a voter of the meta shard waits for its owner before another one takes over.
const ELECTION_NS: u64 = 700 * MS;

/// For how long nothing may change any more, once all is well and some time has passed.
const REST_MS: u64 = 20_000;

/// A log that moves and a shard that moves take less than a second each, one after the other.
const SETTLE_MS: u64 = 90_000;

#[derive(Clone, Copy, Debug)]
pub enum Event {
    Kill(usize),
    Start(usize),
    /// Links between nodes of two groups are cut.
    Split(u8),
    Heal,
    /// A node hears no status of others for a while.
    Deafen(usize),
    Drain(usize),
    Stay(usize),
    Join,
    Remove(usize),
    Leave(usize),
    DoNotLeave(usize),
    /// A shard breaks at its owner; or at each one, if it is poisoned.
    Break(usize, bool),
}

/// A change that somebody has asked the leader for.
#[derive(Clone, Copy, Debug)]
enum Change {
    Drain(u16, bool),
    Join,
    Remove(u16),
}

pub struct Cluster {
    now_ns: u64,
    seed: u64,
    nodes: BTreeMap<u16, Node>,
    /// Nodes of other groups are not reached.
    group: BTreeMap<u16, u8>,
    logs: Vec<Log>,
    poisoned: BTreeSet<usize>,
    meta: Log,
    meta_learners: BTreeSet<u16>,
    meta_epoch: u64,
    /// When the meta shard was last led by somebody who could commit.
    led_ns: u64,
    /// What the meta shard has committed.
    committed: Vec<Guidance>,
    asked: Vec<Change>,
    said_ns: u64,
    /// Each epoch of each shard, and its owner.
    reigns: BTreeMap<(usize, u64), u16>,
    /// Each epoch of each shard in which it was served, and who served it.
    served: BTreeMap<(usize, u64), Run>,
}

impl Cluster {
    pub fn new(nodes: u16, shards: u16, seed: u64) -> Self {
        let entry = |node: u16| {
            let (http, peer) = (format!("h{node}"), format!("p{node}"));
            (node, NodeEntry { http, peer, ..NodeEntry::default() })
        };
        let first = Guidance::first((1..=nodes).map(entry).collect(), shards, 3);
        let logs = first.shards.iter().map(|place| Log::of(place.replicas.iter().copied())).collect();
        let mut cluster = Self {
            now_ns: 1,
            seed,
            nodes: BTreeMap::new(),
            group: BTreeMap::new(),
            logs,
            poisoned: BTreeSet::new(),
            meta: Log::of(1..=nodes),
            meta_learners: BTreeSet::new(),
            meta_epoch: 0,
            led_ns: 0,
            committed: vec![first],
            asked: Vec::new(),
            said_ns: 0,
            reigns: BTreeMap::new(),
            served: BTreeMap::new(),
        };
        for node in 1..=nodes {
            cluster.nodes.entry(node).or_default().start(1);
        }
        cluster
    }

    /// A number below `bound`.
    fn draw(&mut self, bound: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % bound
    }

    fn present(&self) -> &Guidance {
        self.committed.last().expect("there is a first one")
    }

    fn up(&self) -> Vec<u16> {
        self.nodes.iter().filter(|(_, node)| node.is_up).map(|(id, _)| *id).collect()
    }

    /// The nodes that this one reaches, itself among them.
    fn reached(&self, from: u16) -> BTreeSet<u16> {
        let group = |node: u16| self.group.get(&node).copied().unwrap_or_default();
        self.up().into_iter().filter(|node| group(*node) == group(from)).collect()
    }

    fn pick(&self, index: usize) -> u16 {
        let all: Vec<u16> = self.nodes.keys().copied().collect();
        all[index % all.len()]
    }

    pub fn happens(&mut self, event: Event) {
        let now_ns = self.now_ns;
        match event {
            Event::Kill(index) => self.kill(self.pick(index)),
            Event::Start(index) => {
                let node = self.nodes.get_mut(&self.pick(index)).expect("it was picked");
                if !node.is_up {
                    node.start(now_ns);
                }
            }
            Event::Split(bits) => {
                let ids = self.nodes.keys().copied();
                self.group = ids.map(|node| (node, bits >> (node % 8) & 1)).collect();
            }
            Event::Heal => self.group.clear(),
            Event::Deafen(index) => {
                let node = self.nodes.get_mut(&self.pick(index)).expect("it was picked");
                node.deaf_until_ns = now_ns + 2_000 * MS;
            }
            Event::Drain(index) => self.asked.push(Change::Drain(self.pick(index), true)),
            Event::Stay(index) => self.asked.push(Change::Drain(self.pick(index), false)),
            Event::Join => self.asked.push(Change::Join),
            Event::Remove(index) => self.asked.push(Change::Remove(self.pick(index))),
            Event::Leave(index) | Event::DoNotLeave(index) => {
                let node = self.nodes.get_mut(&self.pick(index)).expect("it was picked");
                node.is_leaving = node.is_up && matches!(event, Event::Leave(_));
            }
            Event::Break(index, is_poisoned) => {
                let shard = index % self.logs.len();
                if is_poisoned {
                    self.poisoned.insert(shard);
                }
                for node in self.nodes.values_mut().filter(|node| node.open.contains_key(&shard)) {
                    node.open.remove(&shard);
                    node.stopped.insert(u16::try_from(shard).expect("few"));
                }
            }
        }
    }

    fn kill(&mut self, id: u16) {
        let reached = self.reached(id);
        self.nodes.get_mut(&id).expect("a node").kill();
        for (_, other) in self.nodes.iter_mut().filter(|(other, _)| reached.contains(other)) {
            match &mut other.reign {
                Some(reign) => reign.leader.audience().unlinked(id),
                None => other.audience.unlinked(id),
            }
        }
    }

    /// All nodes run, and reach each other.
    pub fn is_well(&mut self) {
        self.group.clear();
        self.poisoned.clear();
        let now_ns = self.now_ns;
        for node in self.nodes.values_mut() {
            node.is_leaving = false;
            if !node.is_up {
                node.start(now_ns);
            }
        }
    }

    pub fn run_ms(&mut self, ms: u64) {
        let until_ns = self.now_ns + ms * MS;
        while self.now_ns < until_ns {
            self.now_ns += STEP_NS;
            self.elect();
            self.lead();
            self.follow();
            self.serve();
            self.speak();
        }
    }

    /// The meta shard's replicas have one of them own it.
    fn elect(&mut self) {
        let commits = |id: u16, node: &Node| {
            node.reign.as_ref().is_some_and(|reign| self.meta.commits(&self.reached(id), reign.epoch))
        };
        if self.nodes.iter().any(|(id, node)| commits(*id, node)) {
            self.led_ns = self.now_ns;
        }
        let wait_ns = ELECTION_NS + self.draw(300) * MS;
        if self.now_ns < self.led_ns + wait_ns {
            return;
        }
        let voters: Vec<u16> = self.meta.voters.iter().copied().filter(|node| self.nodes[node].is_up).collect();
        if voters.is_empty() {
            return;
        }
        let id = voters[usize::try_from(self.draw(voters.len() as u64)).expect("few")];
        let reached = self.reached(id);
        let run = (id, self.nodes[&id].incarnation);
        if !self.meta.promise(&reached, self.meta_epoch + 1, run) {
            return;
        }
        self.meta_epoch += 1;
        self.led_ns = self.now_ns;
        let (now_ns, epoch) = (self.now_ns, self.meta_epoch);
        let node = self.nodes.get_mut(&id).expect("a node");
        let audience = match &mut node.reign {
            Some(reign) => std::mem::take(reign.leader.audience()),
            None => std::mem::take(&mut node.audience),
        };
        let leader = Leader::new(id, Timing::default(), now_ns, audience);
        node.reign = Some(Reign { epoch, leader, proposed: None });
    }

    /// Whoever believes that it leads decides. What it proposes is committed if a majority has promised nothing else.
    fn lead(&mut self) {
        for id in self.up() {
            let reached = self.reached(id);
            let Some(mut reign) = self.nodes.get_mut(&id).and_then(|node| node.reign.take()) else { continue };
            let run = (id, self.nodes[&id].incarnation);
            // One that does not count any more leads no more.
            if self.meta.highest(&reached, run) > reign.epoch || !self.meta.voters.contains(&id) {
                self.nodes.get_mut(&id).expect("a node").audience = std::mem::take(reign.leader.audience());
                continue;
            }
            self.decide(id, &mut reign, &reached);
            self.nodes.get_mut(&id).expect("a node").reign = Some(reign);
        }
    }

    fn decide(&mut self, id: u16, reign: &mut Reign, reached: &BTreeSet<u16>) {
        let commits = self.meta.commits(reached, reign.epoch);
        if let Some((guidance, due_ns)) = reign.proposed.take() {
            if !commits || self.now_ns < due_ns {
                reign.proposed = Some((guidance, due_ns));
                return;
            }
            self.commit(guidance);
        }
        let followed = &self.committed[self.nodes[&id].follows];
        let status = self.nodes[&id].status(id, self.now_ns, followed, &self.logs);
        reign.leader.audience().heard(self.now_ns, id, status);
        let mut present = self.present().clone();
        let next = reign.leader.decide(self.now_ns, &present).or_else(|| {
            let asked = (present.epoch > 0 && !self.asked.is_empty()).then(|| self.asked.remove(0))?;
            let epoch = present.epoch + 1;
            self.changed(&mut present, asked).then_some(Guidance { epoch, ..present.clone() })
        });
        if let Some(next) = next {
            let due_ns = self.now_ns + self.draw(60) * MS;
            reign.proposed = Some((next, due_ns));
        } else if commits {
            self.step_meta(reign.epoch, (id, self.nodes[&id].incarnation));
        }
    }

    fn changed(&self, next: &mut Guidance, asked: Change) -> bool {
        match asked {
            Change::Drain(node, is_draining) => next.drain_node(node, is_draining).is_ok(),
            Change::Join if next.nodes.len() >= 7 => false,
            Change::Join => {
                let number = next.epoch;
                next.add_node(&format!("h{number}+"), &format!("p{number}+"), "").is_ok()
            }
            Change::Remove(node) => !self.meta.voters.contains(&node) && next.remove_node(node).is_ok(),
        }
    }

    fn step_meta(&mut self, epoch: u64, run: Run) {
        match meta_step(self.present(), &self.meta.voters, &self.meta_learners) {
            Some(MetaStep::Add(node)) => drop(self.meta_learners.insert(node)),
            Some(MetaStep::Promote(node)) if self.nodes[&node].is_up => {
                self.meta_learners.remove(&node);
                self.meta.count(node, epoch, run);
            }
            Some(MetaStep::Remove(node)) => {
                if !self.meta_learners.remove(&node) {
                    self.meta.let_go(node);
                }
            }
            Some(MetaStep::Promote(_)) | None => {}
        }
    }

    /// # Panics
    /// When the guidance breaks a promise.
    fn commit(&mut self, next: Guidance) {
        let before = self.present().clone();
        assert_eq!(next.epoch, before.epoch + 1);
        assert_eq!(Guidance::decode(&next.encode()).as_ref(), Ok(&next), "all nodes can read it");
        for (shard, (before, after)) in before.shards.iter().zip(&next.shards).enumerate() {
            assert!(after.epoch >= before.epoch, "epochs only rise");
            assert!(after.next == 0 || after.holders().contains(&after.next), "an heir keeps the log: {after:?}");
            for (epoch, owner) in [(after.epoch, after.owner), (after.epoch + 1, after.next)] {
                if owner != 0 {
                    let first = *self.reigns.entry((shard, epoch)).or_insert(owner);
                    assert_eq!(first, owner, "epoch {epoch} of shard {shard} has one owner");
                }
            }
        }
        for node in next.nodes.keys() {
            self.nodes.entry(*node).or_insert_with(|| {
                let mut node = Node::default();
                node.start(self.now_ns);
                node
            });
        }
        self.nodes.retain(|node, _| next.nodes.contains_key(node));
        self.meta_learners.retain(|node| next.nodes.contains_key(node));
        self.committed.push(next);
        let now_ns = self.now_ns;
        for id in self.up() {
            let delay_ns = self.draw(150) * MS;
            self.nodes.get_mut(&id).expect("a node").follows_at_ns = now_ns + delay_ns;
        }
    }

    /// Nodes that reach a voter of the meta shard read what it has committed.
    fn follow(&mut self) {
        for id in self.up() {
            let reached = self.reached(id);
            let can_read = self.meta.commits(&reached, u64::MAX);
            let last = self.committed.len() - 1;
            let node = self.nodes.get_mut(&id).expect("a node");
            if can_read && self.now_ns >= node.follows_at_ns {
                node.follows = last;
            }
        }
    }

    /// Shards are opened where they should be, change their replicas, and are handed on.
    fn serve(&mut self) {
        for id in self.up() {
            let mut node = std::mem::take(self.nodes.get_mut(&id).expect("a node"));
            let guidance = self.committed[node.follows].clone();
            let reached = self.reached_by(id);
            for (shard, place) in guidance.shards.iter().enumerate() {
                let open = node.open.get(&shard).copied().unwrap_or_default();
                if open != 0 && (self.logs[shard].is_past(open) || open < place.epoch) {
                    node.open.remove(&shard);
                }
                let known = node.opening.get(&shard).map_or(0, |opening| opening.epoch);
                if place.owner == id && place.epoch > known.max(open) && !node.stopped.contains(&(shard as u16)) {
                    let due_ns = self.now_ns + (50 + self.draw(800)) * MS;
                    node.opening.insert(shard, Opening { epoch: place.epoch, due_ns, promised: 0 });
                }
                self.open(id, &mut node, shard, &reached);
                if place.owner == id && node.open.get(&shard) == Some(&place.epoch) {
                    self.change_replicas((id, node.incarnation), shard, place, &reached);
                    self.hand_on(&mut node, shard, place, &reached);
                }
            }
            *self.nodes.get_mut(&id).expect("a node") = node;
        }
    }

    /// As [`Cluster::reached`], of a node that is being served.
    fn reached_by(&self, id: u16) -> BTreeSet<u16> {
        let mut reached = self.reached(id);
        reached.insert(id);
        reached
    }

    fn open(&mut self, id: u16, node: &mut Node, shard: usize, reached: &BTreeSet<u16>) {
        let Some(opening) = node.opening.get_mut(&shard).filter(|opening| self.now_ns >= opening.due_ns) else {
            return;
        };
        let (epoch, log, run) = (opening.epoch, &mut self.logs[shard], (id, node.incarnation));
        if node.stopped.contains(&(shard as u16)) || !log.voters.contains(&id) || !log.promise(reached, epoch, run) {
            opening.promised =
                Some(log.highest(reached, run)).filter(|promised| *promised >= epoch).unwrap_or_default();
            return;
        }
        node.opening.remove(&shard);
        if self.poisoned.contains(&shard) {
            node.stopped.insert(shard as u16);
            return;
        }
        let server = *self.served.entry((shard, epoch)).or_insert(run);
        assert_eq!(server, run, "epoch {epoch} of shard {shard} is served once");
        node.open.insert(shard, epoch);
    }

    fn change_replicas(
        &mut self,
        run: Run,
        shard: usize,
        place: &millrace_guidance::ShardPlacement,
        reached: &BTreeSet<u16>,
    ) {
        let (now_ns, copied_ns) = (self.now_ns, self.now_ns + (100 + self.draw(500)) * MS);
        let log = &mut self.logs[shard];
        if !log.commits(reached, place.epoch) {
            return;
        }
        let holders: BTreeSet<u16> = place.holders().iter().copied().collect();
        log.learner = log.learner.filter(|(learner, _)| holders.contains(learner));
        match log.learner {
            Some((learner, due_ns)) if now_ns >= due_ns && reached.contains(&learner) => {
                log.learner = None;
                log.count(learner, place.epoch, run);
            }
            Some(_) => {}
            None if holders.is_subset(&log.voters) => {
                let gone = log.voters.iter().copied().find(|node| !holders.contains(node) && *node != run.0);
                gone.into_iter().for_each(|node| log.let_go(node));
            }
            None => log.learner = holders.difference(&log.voters).next().map(|node| (*node, copied_ns)),
        }
    }

    fn hand_on(
        &mut self,
        node: &mut Node,
        shard: usize,
        place: &millrace_guidance::ShardPlacement,
        reached: &BTreeSet<u16>,
    ) {
        if place.next == 0 {
            return;
        }
        let (now_ns, later_ns) = (self.now_ns, self.now_ns + self.draw(700) * MS);
        if now_ns < *node.handing.entry((shard, place.epoch)).or_insert(later_ns) {
            return;
        }
        node.open.remove(&shard);
        // What it says to the heir is lost if that is not reached.
        if let Some(heir) = self.nodes.get_mut(&place.next).filter(|_| reached.contains(&place.next)) {
            heir.opening.insert(shard, Opening { epoch: place.epoch + 1, due_ns: now_ns, promised: 0 });
        }
    }

    /// Nodes say how they are.
    fn speak(&mut self) {
        if self.now_ns < self.said_ns + 100 * MS {
            return;
        }
        self.said_ns = self.now_ns;
        for id in self.up() {
            let node = &self.nodes[&id];
            let status = node.status(id, self.now_ns, &self.committed[node.follows], &self.logs);
            for other in self.reached(id) {
                let hears = self.nodes.get_mut(&other).filter(|_| other != id);
                let Some(hears) = hears.filter(|hears| self.now_ns >= hears.deaf_until_ns) else { continue };
                match &mut hears.reign {
                    Some(reign) => reign.leader.audience().heard(self.now_ns, id, status.clone()),
                    None => hears.audience.heard(self.now_ns, id, status.clone()),
                }
            }
        }
    }

    /// # Panics
    /// When some shard is not served then, or lies where it should not, or something still changes.
    pub fn comes_to_rest(&mut self) {
        self.run_ms(SETTLE_MS);
        let epoch = self.present().epoch;
        self.run_ms(REST_MS);
        let guidance = self.present();
        assert_eq!(guidance.epoch, epoch, "something still changes: {guidance:?}");
        let staying: Vec<u16> =
            guidance.nodes.iter().filter(|(_, entry)| !entry.is_draining).map(|(node, _)| *node).collect();
        let wanted = guidance.replica_count().min(staying.len());
        for (shard, place) in guidance.shards.iter().enumerate() {
            let broke_at = |node: u16| self.nodes[&node].stopped.contains(&(shard as u16));
            assert!(place.next == 0 && place.wanted.is_empty() || place.is_quarantined(broke_at), "{shard}: {place:?}");
            if place.is_quarantined(broke_at) {
                continue;
            }
            assert_eq!(
                self.nodes[&place.owner].open.get(&shard),
                Some(&place.epoch),
                "shard {shard} is served: {place:?}"
            );
            assert_eq!(place.replicas, self.logs[shard].voters.iter().copied().collect::<Vec<_>>());
            assert_eq!(place.replicas.len(), wanted, "{shard}: {place:?}");
            assert!(place.replicas.iter().all(|node| staying.contains(node)), "{shard}: {place:?}");
        }
        if self.nodes.values().all(|node| node.stopped.is_empty()) {
            let held = |node: &u16| guidance.held_by(*node);
            let (most, fewest) = (staying.iter().map(held).max(), staying.iter().map(held).min());
            assert!(most <= fewest.map(|fewest| fewest + 1), "logs lie evenly: {guidance:?}");
        }
    }
}
