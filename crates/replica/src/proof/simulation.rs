//! Long random runs. One seed decides everything: which faults there are in a run, and when. At the end all faults stop, and
//! the cluster has to serve again and to become equal.

use std::collections::{BTreeMap, BTreeSet};

use millrace_base::Lsn;

use super::world::{World, id};
use crate::event::Event;
use crate::ids::{Epoch, NodeId};
use crate::replica_set::Change;
use crate::settings::{Bug, Settings};

const HEARTBEAT: u64 = 100;

/// A generator of numbers that a seed decides (xorshift64*).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        // Neighbouring seeds give unlike runs.
        Self(super::world::fingerprint(&seed) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// True once in `times`; never for 0.
    fn once_in(&mut self, times: usize) -> bool {
        times > 0 && self.below(times) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.below(from.len())).copied()
    }
}

/// How often things happen in one run: once in so many chances, or never for 0.
struct Faults {
    loss: usize,
    duplicate: usize,
    reorder: bool,
    crash: usize,
    lost_disk: usize,
    cut_link: usize,
    pause: usize,
    appoint: usize,
    hand_over: usize,
    change: usize,
    trim: usize,
}

impl Faults {
    /// Each kind is in a part of the runs only, so that rare ones are not drowned.
    fn draw(random: &mut Random) -> Self {
        // Takeovers that follow each other closely leave entries of many epochs behind.
        let hurry = [80, 80, 12][random.below(3)];
        let mut sometimes = |times: usize| if random.below(3) > 0 { times } else { 0 };
        Self {
            loss: sometimes(15),
            duplicate: sometimes(20),
            reorder: sometimes(1) > 0,
            crash: sometimes(150),
            lost_disk: sometimes(4),
            cut_link: sometimes(120),
            pause: sometimes(200),
            appoint: sometimes(hurry),
            hand_over: sometimes(150),
            change: sometimes(100),
            trim: sometimes(60),
        }
    }
}

/// What has happened in many runs.
#[derive(Debug, Default)]
struct Happened(BTreeMap<&'static str, u64>);

impl Happened {
    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
}

struct Run<'a> {
    world: World,
    random: Random,
    faults: Faults,
    /// Links that carry nothing now, from and to.
    cut: BTreeSet<(NodeId, NodeId)>,
    paused: BTreeMap<NodeId, u64>,
    next_tick: BTreeMap<NodeId, u64>,
    /// Who is to own the shard. `None`: replicas nominate themselves.
    guidance: Option<(NodeId, Epoch)>,
    happened: &'a mut Happened,
}

impl<'a> Run<'a> {
    fn new(seed: u64, planted: Option<Bug>, happened: &'a mut Happened) -> Self {
        let mut random = Random::new(seed);
        let faults = Faults::draw(&mut random);
        let has_leases = random.below(2) == 0;
        let window = [(1 << 20, 100), (64, 3)][random.below(2)];
        let settings = Settings {
            heartbeat_ns: HEARTBEAT,
            lease_ns: if has_leases { 6 * HEARTBEAT } else { 0 },
            silence_ns: 6 * HEARTBEAT,
            window,
            message: (1 << 10, 1 + random.below(4)),
            cache_bytes: [1 << 20, 400][random.below(2)],
            join_lag: 3,
            planted,
            ..Settings::default()
        };
        let voters = [3, 3, 5][random.below(3)];
        let mut world = World::new(6, voters, settings);
        let nodes: Vec<NodeId> = world.nodes.keys().copied().collect();
        for node in &nodes {
            world.node_mut(*node).rate = 990 + random.below(21) as u64;
        }
        let guidance = (random.below(4) > 0).then_some((id(1), Epoch(1)));
        let next_tick = nodes.iter().map(|node| (*node, 0)).collect();
        world.now = 10 * HEARTBEAT;
        Self { world, random, faults, cut: BTreeSet::new(), paused: BTreeMap::new(), next_tick, guidance, happened }
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.world.nodes.keys().copied().collect()
    }

    fn running(&self) -> Vec<NodeId> {
        let runs = |node: &NodeId| self.world.replica(*node).is_some() && !self.paused.contains_key(node);
        self.world.nodes.keys().copied().filter(runs).collect()
    }

    fn serving(&self) -> Vec<NodeId> {
        self.running().into_iter().filter(|node| self.world.is_serving(*node)).collect()
    }

    fn tick(&mut self) {
        for node in self.running() {
            if self.world.now < self.next_tick[&node] {
                continue;
            }
            let wait = HEARTBEAT / 3 + self.random.below(HEARTBEAT as usize / 3) as u64;
            self.next_tick.insert(node, self.world.now + wait);
            let nominates = self.guidance.is_none().then(|| self.random.next());
            self.world.tick(node, nominates);
            self.world.reopen(node);
            if let Some((owner, epoch)) = self.guidance
                && owner == node
            {
                self.world.handle(node, Event::Appoint { epoch });
            }
        }
    }

    fn appoint(&mut self, node: NodeId) {
        if let Some((_, epoch)) = self.guidance {
            let epoch = Epoch(epoch.0.max(self.world.taken.0) + 1);
            self.guidance = Some((node, epoch));
            self.happened.count("appointment");
        }
    }

    fn carry(&mut self) {
        if self.world.letters.is_empty() {
            return;
        }
        let reach = if self.faults.reorder { self.world.letters.len().min(20) } else { 1 };
        let at = self.random.below(reach);
        let to = self.world.letters[at].to;
        if self.paused.contains_key(&to) && self.world.letters.len() < 200 {
            return;
        }
        let letter = self.world.letters.remove(at);
        if self.random.once_in(self.faults.loss) || self.cut.contains(&(letter.from, to)) {
            self.happened.count("lost message");
            return;
        }
        if self.random.once_in(self.faults.duplicate) {
            self.happened.count("duplicate message");
            let behind = self.random.below(self.world.letters.len() + 1);
            self.world.letters.insert(behind, letter.clone());
        }
        self.world.deliver(&letter);
    }

    fn work(&mut self) {
        let Some(node) = self.random.pick(&self.running()) else { return };
        let writes = self.world.node(node).unsynced.len();
        let count = if self.random.below(3) == 0 { self.random.below(writes + 1) } else { writes };
        self.world.sync(node, count);
        let Some(owner) = self.random.pick(&self.serving()) else { return };
        match self.random.below(4) {
            0 => {
                for _ in 0..=self.random.below(3) {
                    self.world.submit(owner);
                }
                self.world.handle(owner, Event::RoundEnded);
                self.happened.count("write");
            }
            1 => {
                self.world.read(owner);
                self.happened.count("read");
            }
            _ => {}
        }
    }

    fn fault(&mut self) {
        let nodes = self.nodes();
        let Some(node) = self.random.pick(&nodes) else { return };
        if self.random.once_in(self.faults.crash) {
            self.crash(node);
        }
        if self.world.replica(node).is_none() && self.random.once_in(20) {
            self.world.start(node);
        }
        if self.random.once_in(self.faults.cut_link) {
            let other = self.random.pick(&nodes).unwrap_or(node);
            self.cut.insert((node, other));
            if self.random.below(2) == 0 {
                self.cut.insert((other, node));
            }
            self.happened.count("cut link");
        }
        if self.random.once_in(60) {
            self.cut.clear();
        }
        if self.random.once_in(self.faults.pause) {
            let length = self.random.below(10 * HEARTBEAT as usize) as u64;
            self.paused.insert(node, self.world.now + length);
            self.happened.count("pause");
        }
        let now = self.world.now;
        self.paused.retain(|_, until| now < *until);
        if self.random.once_in(self.faults.appoint) || self.world.instead.is_some() {
            let best = self.world.instead.take();
            self.appoint(best.unwrap_or(node));
        }
        let committed = self.world.checker.committed().0;
        if self.random.once_in(self.faults.trim) {
            self.world.trim(node, Lsn(self.random.below(committed as usize + 1) as u64));
        }
        let Some(owner) = self.random.pick(&self.serving()) else { return };
        if self.random.once_in(self.faults.hand_over) {
            self.world.handle(owner, Event::HandOver);
            self.appoint(node);
            self.happened.count("handover");
        }
        if self.random.once_in(self.faults.change) {
            self.change(owner, node);
        }
    }

    fn crash(&mut self, node: NodeId) {
        let unsynced = self.world.node(node).unsynced.len();
        let kept = self.random.below(unsynced + 1);
        self.world.crash(node, kept);
        self.happened.count(if kept < unsynced { "crash with loss" } else { "crash" });
        // More than one lost disk at a time may lose what was promised.
        let are_whole = self.world.nodes.values().all(|node| node.disk.is_whole);
        if are_whole && self.random.once_in(self.faults.lost_disk) {
            let kept = self.random.below(self.world.node(node).disk.entries.len() + 1);
            self.world.lose_disk(node, kept);
            self.happened.count("lost disk");
        }
    }

    fn change(&mut self, owner: NodeId, node: NodeId) {
        let voters = self.world.replica(owner).map_or(0, |replica| replica.log().set().voters().count());
        let change = match self.random.below(3) {
            0 => Change::AddLearner(node),
            1 => Change::Promote(node),
            _ if voters > 3 => Change::Remove(node),
            _ => return,
        };
        if self.world.may_change(owner, change) {
            self.world.change(owner, change);
            self.happened.count("change of the replica set");
        }
    }

    fn step(&mut self) {
        self.world.now += self.random.below(6) as u64;
        self.tick();
        for _ in 0..=self.random.below(4) {
            self.carry();
        }
        self.work();
        self.fault();
        if self.world.letters.len() > 400 {
            self.world.letters.drain(..200);
        }
    }

    /// Everything works from now on.
    fn heal(&mut self) {
        self.cut.clear();
        self.paused.clear();
        for node in self.nodes() {
            if self.world.replica(node).is_none() {
                self.world.start(node);
            }
        }
    }

    /// Time passes without faults.
    fn calm(&mut self) {
        self.world.now += 5;
        self.tick();
        for node in self.nodes() {
            self.world.sync(node, usize::MAX);
        }
        for letter in std::mem::take(&mut self.world.letters) {
            self.world.deliver(&letter);
        }
    }

    /// Serves again, takes a write, and all members become equal. Says what does not happen.
    fn recovers(&mut self) -> Result<(), String> {
        self.heal();
        // An owner may be deposed by an appointment from before.
        self.serves_and_equals().or_else(|_| self.serves_and_equals())
    }

    fn serves_and_equals(&mut self) -> Result<(), String> {
        let nodes = self.nodes();
        let mut waited = 0;
        while self.serving_now().is_none() {
            waited += 1;
            if waited > 4000 {
                return Err(format!("nobody serves after all faults: {:?} {:?}", self.guidance, self.positions()));
            }
            if waited % 400 == 0 {
                let node = self.world.instead.take().unwrap_or(nodes[waited / 400 % nodes.len()]);
                self.appoint(node);
            }
            self.calm();
            self.broken()?;
        }
        let owner = self.serving_now().expect("just looked");
        self.world.submit(owner);
        self.world.handle(owner, Event::RoundEnded);
        let last = self.world.replica(owner).map_or(Lsn::ZERO, |replica| replica.log().last().lsn);
        for _ in 0..2000 {
            self.calm();
            self.broken()?;
            let set = self.world.replica(owner).map(|replica| replica.log().set().clone()).unwrap_or_default();
            let is_equal = |node| self.world.replica(node).is_some_and(|replica| replica.log().committed() >= last);
            if set.members().all(is_equal) && self.world.checker.acknowledged >= last {
                return Ok(());
            }
        }
        Err(format!("the members do not become equal: {:?}", self.positions()))
    }

    fn positions(&self) -> Vec<String> {
        let position = |node: &NodeId| {
            let replica = self.world.replica(*node).expect("all run");
            let log = replica.log();
            format!(
                "{node} {:?} {:?} last {:?} durable {} committed {} base {} waiting {:?}",
                replica.role(),
                replica.promised(),
                log.last(),
                log.durable(),
                log.committed(),
                log.base().lsn,
                self.world.node(*node).waiting.len()
            )
        };
        self.nodes().iter().map(position).collect()
    }

    /// The owner of the highest epoch, if it serves.
    fn serving_now(&self) -> Option<NodeId> {
        let epoch = |node: NodeId| self.world.replica(node).map(|replica| replica.promised().epoch);
        let highest = self.nodes().into_iter().filter_map(epoch).max();
        self.serving().into_iter().find(|node| epoch(*node) == highest)
    }

    fn broken(&self) -> Result<(), String> {
        self.world.checker.broken.clone().map_or(Ok(()), Err)
    }
}

/// One run. Says which promise was broken.
fn run(seed: u64, planted: Option<Bug>, happened: &mut Happened) -> Result<(), String> {
    let mut run = Run::new(seed, planted, happened);
    for _ in 0..1500 {
        run.step();
        run.broken()?;
    }
    run.recovers()
}

/// `MILLRACE_REPLICA_SEEDS`: how many runs.
#[allow(clippy::disallowed_methods, reason = "the size of a test is chosen by who runs it")]
fn seeds() -> u64 {
    std::env::var("MILLRACE_REPLICA_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(200)
}

#[test]
fn no_random_run_breaks_a_promise_and_each_recovers() {
    let mut happened = Happened::default();
    for seed in 0..seeds() {
        if let Err(what) = run(seed, None, &mut happened) {
            panic!("seed {seed}: {what}");
        }
    }
    println!("{happened:#?}");
}

/// What breaks in the run of this seed with the bug.
pub(super) fn found_by_run(bug: Bug, seed: u64) -> Option<String> {
    run(seed, Some(bug), &mut Happened::default()).err()
}
