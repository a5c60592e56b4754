//! One run of a simulated cluster: clients, time and faults, all from one seed; then calm, and judgement.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use millrace_base::{EntityKey, Lsn, Name, ShardId, UnixMillis, shard_of_key};
use millrace_format::EntryRef;
use millrace_replica::{EntryKind, LogEntry, NodeId, ReplicaSet};
use millrace_shard::Token;
use millrace_store::{MemoryCheckpoint, Store};

use super::backup::Backups;
use super::faults::Faults;
use super::links::{Links, Weather};
use super::node::{Node, Nodes, RoleNews, Shared};
use super::oracle::Oracle;
use super::owners::Losing;
use super::platform::NodeClock;
use super::{ClusterBug, Counts};
use crate::disturb::Restarting;
use crate::judge::{AtRest, judge};
use crate::ledger::{Known, Ledger, Operation};
use crate::random::{Rng, mix};
use crate::rig::APP;
use crate::workload;

pub(super) const MS: u64 = 1_000_000;

/// How long somebody may wait after the last shard was opened: decisions are told again each second.
const LONGEST_WAIT_NS: u64 = 5_000 * MS;

/// How long somebody may wait while all that is wrong is that two nodes do not hear each other.
const LONGEST_WAIT_FOR_A_PAIR_NS: u64 = 2_500 * MS;

/// A node hears the next that guidance has decided once in so many steps.
const HEARS_EVERY: u64 = 10;

/// The same while it hears slowly.
const HEARS_SLOWLY_EVERY: u64 = 60;

/// Lines of trace kept.
const TRACE_LINES: usize = 600;

/// What goes wrong in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Everything.
    Everything,
    /// The only fault is that two nodes do not hear each other for most of the run. Then nobody may wait for long.
    OnePairCut,
    /// The only fault is that a node that owns nothing is slow. Nobody may wait for it.
    SlowNode,
    /// Guidance gives shards to other nodes all the time.
    RestlessGuidance,
    /// Guidance has shards handed on all the time, while links are late.
    HandingOn,
    /// Owners are replaced before they have done much, while messages are lost and links are cut.
    ShortReigns,
}

impl About {
    /// Whether all that takes long is due to one fault.
    pub(super) fn is_one_fault(self) -> bool {
        matches!(self, About::OnePairCut | About::SlowNode)
    }
}

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub steps: usize,
    pub bug: Option<ClusterBug>,
    pub is_traced: bool,
    pub about: About,
    /// Now and then, once in so many steps, a backup is taken; never for 0.
    pub backup_every: u64,
}

impl Plan {
    /// A usual run.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, steps: 1_500, bug: None, is_traced: false, about: About::Everything, backup_every: 0 }
    }

    /// A usual run in which backups are taken.
    #[must_use]
    pub fn of_backups(seed: u64) -> Self {
        Self { backup_every: 25, ..Self::new(seed) }
    }

    /// A run in which guidance gives shards to other nodes all the time.
    #[must_use]
    pub fn of_restless_guidance(seed: u64) -> Self {
        Self { steps: 3_000, about: About::RestlessGuidance, ..Self::new(seed) }
    }

    /// A run in which shards are handed on all the time, while links are late.
    #[must_use]
    pub fn of_handing_on(seed: u64) -> Self {
        Self { steps: 3_000, about: About::HandingOn, ..Self::new(seed) }
    }

    /// A run in which owners are replaced before they have done much.
    #[must_use]
    pub fn of_short_reigns(seed: u64) -> Self {
        Self { steps: 3_000, about: About::ShortReigns, ..Self::new(seed) }
    }

    /// A run in which one node is slow, and owns nothing.
    #[must_use]
    pub fn of_a_slow_node(seed: u64) -> Self {
        Self { about: About::SlowNode, ..Self::new(seed) }
    }

    /// A run in which two nodes do not hear each other, and all others hear both.
    #[must_use]
    pub fn of_one_pair_cut(seed: u64) -> Self {
        Self { steps: 2_500, about: About::OnePairCut, ..Self::new(seed) }
    }
}

/// A run that found something wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    pub what: String,
    pub trace: Vec<String>,
}

/// What a run that found nothing did.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub operations: usize,
    pub acknowledged: usize,
    /// Acknowledged ones in histories that were judged.
    pub judged: usize,
    pub counts: Counts,
}

/// See the module's documentation.
pub struct World {
    pub(super) plan: Plan,
    pub(super) rng: Rng,
    pub(super) shared: Shared,
    pub(super) ids: Vec<NodeId>,
    pub(super) nodes: Nodes,
    pub(super) oracle: Oracle,
    pub(super) ledger: Ledger,
    pub(super) backups: Backups,
    pub(super) faults: Faults,
    /// Draws what breaks, so that all else is drawn as it was before shards broke.
    pub(super) breaks: Rng,
    /// Draws what is done to workflows.
    pub(super) flows: Rng,
    pub(super) restarts: Restarting,
    /// When guidance looks for dead nodes next.
    next_look_ns: u64,
    pub(super) heal_at_ns: u64,
    pub(super) counts: Counts,
    last_owner: BTreeMap<ShardId, NodeId>,
    pub(super) losing: Option<Losing>,
    /// A node that is slower than the others.
    pub(super) slow: Option<NodeId>,
    /// How long clients have waited who were answered, in nanoseconds.
    pub(super) waited_ns: Vec<u64>,
    /// The count that a client was told of last, and when.
    pub(super) last_counted: Option<(String, u64)>,
    /// The shard that clients crowd around, and until when.
    pub(super) crowded: Option<(ShardId, u64)>,
    /// When a client was told last that it has put something into the list of a shard.
    pub(super) told_of_put: BTreeMap<ShardId, u64>,
    /// Draws who looks elsewhere.
    pub(super) looks: Rng,
    /// When the last shard was opened.
    opened_ns: u64,
    /// Operations that were open when the faults ended, and how often each had been sent.
    awaited: Vec<(usize, usize)>,
    /// When each request was sent that is not answered.
    pub(super) sent_ns: BTreeMap<Token, u64>,
    /// What was trimmed of each shard's log. It is the same at all nodes.
    trimmed: BTreeMap<ShardId, BTreeMap<Lsn, LogEntry>>,
    trace: Vec<String>,
}

pub(super) type Checked = Result<(), String>;

/// Applies an entry to a state.
///
/// # Panics
/// When it is not the next one.
pub fn apply(store: &mut Store, entry: &LogEntry) {
    match entry.kind {
        EntryKind::Data => store.replay(&EntryRef::decode(&entry.bytes).expect("entries decode")).expect("they replay"),
        _ => store.apply(entry.id.lsn, []).expect("it is the next one"),
    }
}

/// The times of a shard's entries never go back, whose clock ever made them. Gives the entry's.
fn time_goes_on(entry: &EntryRef<'_>, latest: UnixMillis) -> Result<UnixMillis, String> {
    let EntryRef { shard, lsn, time, .. } = entry;
    if *time < latest {
        return Err(format!("entry {} of shard {} is of {time:?}, after one of {latest:?}", lsn.0, shard.0));
    }
    Ok(*time)
}

impl World {
    fn new(plan: Plan) -> Self {
        let mut rng = Rng::new(plan.seed ^ 0xC1_05_7E_12);
        // Where there are as many replicas as nodes, nothing moves.
        let (count, replicas) = [(4, 3), (5, 3), (3, 3), (3, 3), (5, 5)][rng.index(5)];
        let ids: Vec<NodeId> = (1..=count).map(NodeId).collect();
        let links = Links::new(&ids, rng.fork());
        let shard_count = 2 + u16::try_from(rng.below(3)).expect("small");
        let first = |shard: u16| (0..replicas).map(move |step| NodeId((shard + step) % count + 1));
        let shared = Shared {
            now: Rc::new(Cell::new(1_000 * MS)),
            links,
            sets: (0..shard_count).map(|shard| ReplicaSet::of(first(shard))).collect(),
            shard_count,
            bug: plan.bug,
        };
        // Their times of day are seconds apart.
        let ahead_ms = |id: &NodeId| mix(plan.seed ^ mix(u64::from(id.0))) % 5_000;
        let clock = |id: &NodeId, rng: &mut Rng| NodeClock { rate: 990 + rng.below(21), ahead_ms: ahead_ms(id) };
        // A copy of a node is a copy of its log.
        let trims = plan.backup_every == 0;
        let mut nodes: Nodes = ids.iter().map(|id| (*id, Node::new(*id, clock(id, &mut rng)))).collect();
        nodes.values_mut().for_each(|node| node.trims = trims);
        let faults = Faults::of(&plan, &mut rng);
        let oracle = Oracle::new(&shared.sets);
        Self { rng, faults, ..Self::with(plan, shared, ids, nodes, oracle) }
    }

    /// A world without faults.
    pub(super) fn with(plan: Plan, shared: Shared, ids: Vec<NodeId>, nodes: Nodes, oracle: Oracle) -> Self {
        Self {
            rng: Rng::new(plan.seed),
            backups: Backups::new(plan.seed),
            oracle,
            breaks: Rng::new(plan.seed ^ 0xB4_EA_05),
            flows: Rng::new(plan.seed ^ 0xF1_03),
            looks: Rng::new(plan.seed ^ 0x10_0C),
            restarts: Restarting::default(),
            plan,
            shared,
            ids,
            nodes,
            ledger: Ledger::default(),
            faults: Faults::default(),
            next_look_ns: 0,
            heal_at_ns: 0,
            counts: Counts::default(),
            last_owner: BTreeMap::new(),
            losing: None,
            slow: None,
            waited_ns: Vec::new(),
            last_counted: None,
            crowded: None,
            told_of_put: BTreeMap::new(),
            opened_ns: 0,
            awaited: Vec::new(),
            sent_ns: BTreeMap::new(),
            trimmed: BTreeMap::new(),
            trace: Vec::new(),
        }
    }

    /// Runs a whole plan.
    ///
    /// # Errors
    /// What it found wrong, with the trace if the plan asked for one.
    pub fn run(plan: Plan) -> Result<Summary, Failure> {
        let mut world = World::new(plan);
        let result = world.live();
        let trace = std::mem::take(&mut world.trace);
        let judged = result.map_err(|what| Failure { what, trace })?;
        let is_done = |operation: &&Operation| matches!(operation.known, Known::Done(_));
        let (lost, lost_alone, doubled) = world.shared.links.fates();
        world.counts.note("message lost", lost);
        world.counts.note("frame lost while the link stands", lost_alone);
        world.counts.note("message doubled", doubled);
        world.note_snapshots();
        let lost_records = world.nodes.values().map(|node| node.lost_records).sum();
        world.counts.note("record lost in a crash", lost_records);
        Ok(Summary {
            operations: world.ledger.operations.len(),
            acknowledged: world.ledger.operations.iter().filter(is_done).count(),
            judged,
            counts: world.counts,
        })
    }

    /// Runs a plan and gives its trace, whatever it finds; also up to a broken assertion.
    #[must_use]
    pub fn trace(plan: Plan) -> Vec<String> {
        let mut world = World::new(Plan { is_traced: true, ..plan });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.live()));
        if let Ok(Err(what)) = result {
            world.trace.push(what);
        }
        world.trace
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if self.plan.is_traced {
            if self.trace.len() >= TRACE_LINES {
                self.trace.remove(0);
            }
            self.trace.push(format!("{:>6} ms  {}", self.now_ns() / MS, line()));
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.shared.now.get()
    }

    fn pass(&mut self, ns: u64) {
        self.shared.now.set(self.now_ns() + ns);
        self.shared.links.set_now(self.now_ns());
    }

    fn live(&mut self) -> Result<usize, String> {
        for id in self.ids.clone() {
            self.start(id);
        }
        self.new_weather();
        self.slow_a_node_down();
        let cut_at = if self.plan.about == About::OnePairCut { self.plan.steps / 5 } else { usize::MAX };
        for step in 0..self.plan.steps {
            let ns = self.rng.below(5 * MS);
            self.pass(ns);
            self.fault();
            self.lose_owners();
            if step == cut_at {
                self.cut_pair();
            }
            self.guide();
            self.issue();
            self.disturb_workflows();
            self.move_nodes(true)?;
            self.back_up()?;
            self.look_for_those_who_wait_for_a_pair()?;
        }
        self.look_for_those_who_waited()?;
        self.settle()
    }

    /// Whoever cannot be reached by one way is reached by another, or the client is told.
    fn look_for_those_who_wait_for_a_pair(&self) -> Checked {
        let is_late = |sent_ns: &u64| self.now_ns() - sent_ns > LONGEST_WAIT_FOR_A_PAIR_NS;
        let late = self.sent_ns.iter().find(|(_, sent_ns)| self.plan.about == About::OnePairCut && is_late(sent_ns));
        let Some((token, sent_ns)) = late else { return Ok(()) };
        let left: Vec<_> = self.nodes.values().map(Node::left_at_rest).collect();
        Err(format!(
            "{token:?}, sent at {} ms, waits though only two nodes do not hear each other: {left:?}",
            sent_ns / MS
        ))
    }

    pub(super) fn any_node(&mut self) -> NodeId {
        self.ids[self.rng.index(self.ids.len())]
    }

    /// What guidance does.
    fn guide(&mut self) {
        let now_ns = self.now_ns();
        for id in self.ids.clone() {
            let RoleNews { opened, taken, instead } =
                self.nodes.get_mut(&id).map(Node::take_role_news).unwrap_or_default();
            for (shard, best) in instead {
                self.oracle.instead(shard, (id, best), now_ns, &mut self.nodes);
            }
            for (shard, epoch) in opened {
                self.counts.note("shard opened", 1);
                self.opened_ns = now_ns;
                let last = self.last_owner.insert(shard, id);
                self.counts.note("failover", u64::from(last.is_some_and(|last| last != id)));
                self.note(|| format!("node {id} serves shard {} in epoch {epoch}", shard.0));
            }
            for (shard, promised) in taken {
                self.oracle.taken(shard, promised, now_ns, &mut self.nodes);
            }
        }
        if self.once_in(self.faults.appoint) {
            let shard = ShardId(u16::try_from(self.rng.below(u64::from(self.shared.shard_count))).expect("small"));
            let holders = self.oracle.holders(shard);
            let owner = holders[self.rng.index(holders.len())];
            self.oracle.appoint(shard, owner, now_ns, &mut self.nodes);
            self.counts.note("owner replaced without need", 1);
        }
        if self.once_in(self.faults.hand_on) {
            let shard = ShardId(u16::try_from(self.rng.below(u64::from(self.shared.shard_count))).expect("small"));
            // Load is what shards are handed on for.
            let shard = self.crowded.map_or(shard, |(crowded, _)| crowded);
            let begins = self.oracle.hand_on(shard, now_ns, &mut self.rng, &mut self.nodes);
            self.counts.note("shard to be handed on", u64::from(begins));
            if begins {
                self.attract(shard);
            }
        }
        if self.once_in(self.faults.move_log) {
            let shard = ShardId(u16::try_from(self.rng.below(u64::from(self.shared.shard_count))).expect("small"));
            let moves = self.oracle.move_log(shard, &mut self.rng, &mut self.nodes);
            self.counts.note("log to be moved", u64::from(moves));
        }
        let handed_on = self.oracle.look_at_heirs(now_ns, &mut self.nodes);
        self.counts.note("shard handed on", handed_on.len() as u64);
        handed_on.into_iter().for_each(|shard| self.put_into(shard));
        if now_ns >= self.next_look_ns {
            self.next_look_ns = now_ns + 100 * MS;
            let is_dead: BTreeMap<NodeId, bool> = self.ids.iter().map(|id| (*id, self.is_gone(*id))).collect();
            let replaced = self.oracle.look(now_ns, &is_dead, &mut self.rng, &mut self.nodes);
            self.counts.note("owner replaced", replaced);
            let (moved, forgotten) = self.oracle.look_at_holders(now_ns, &mut self.rng, &mut self.nodes);
            self.counts.note("replica set changed", moved);
            self.counts.note("log forgotten", forgotten);
            // Guidance may be wrong about that.
            let dead: Vec<NodeId> = is_dead.iter().filter(|(_, is_dead)| **is_dead).map(|(id, _)| *id).collect();
            for id in dead {
                if self.rng.chance(1, 8) {
                    self.nodes.values_mut().filter(|node| node.id != id).for_each(|node| node.peer_is_new(id, true));
                    self.counts.note("node declared dead", 1);
                }
            }
        }
    }

    /// Whether guidance hears nothing of a node.
    pub(super) fn is_gone(&self, id: NodeId) -> bool {
        let node = &self.nodes[&id];
        let is_still = node.paused_until_ns > self.now_ns();
        node.process.is_none() || is_still || !self.shared.links.hears_most(id, &self.ids)
    }

    /// What is on its way arrives, time passes at the nodes, and they work.
    fn move_nodes(&mut self, is_random: bool) -> Checked {
        let now_ns = self.now_ns();
        let process: BTreeMap<NodeId, u64> = self.nodes.values().map(|node| (node.id, node.process_number())).collect();
        self.greet(&process);
        for id in self.ids.clone() {
            let Some(node) = self.nodes.get_mut(&id) else { continue };
            let is_moving = node.process.is_some() && node.paused_until_ns <= now_ns;
            if !is_moving || (is_random && !self.rng.chance(1, node.slowness)) {
                continue;
            }
            for (from, received) in self.shared.links.receive(id, &process) {
                node.receive(from, received);
            }
            // Guidance is on the side of the majority.
            let hears_every = if node.hears_slowly > 0 { HEARS_SLOWLY_EVERY } else { HEARS_EVERY };
            let hears = !is_random && node.hears_slowly == 0 || self.rng.chance(1, hears_every);
            if hears && self.shared.links.hears_most(id, &self.ids) {
                node.hear_news();
            }
            if now_ns >= node.next_tick_ns {
                node.next_tick_ns = now_ns + 25 * MS + self.rng.below(25 * MS);
                node.tick();
            }
            node.work(&mut self.rng, is_random);
            let happened = node.fates.happened.take();
            for (shard, entry) in std::mem::take(&mut node.trimmed) {
                let known = self.trimmed.entry(shard).or_default().entry(entry.id.lsn).or_insert_with(|| entry.clone());
                if *known != entry {
                    return Err(format!("node {id} has trimmed another entry {:?} of shard {}", entry.id, shard.0));
                }
            }
            let replies = std::mem::take(&mut node.replies);
            happened.into_iter().for_each(|what| self.note(|| format!("node {id}: {what}")));
            for (token, result) in replies {
                self.replied(token, &result)?;
            }
        }
        Ok(())
    }

    fn greet(&mut self, process: &BTreeMap<NodeId, u64>) {
        for (one, first) in process.iter().filter(|(_, number)| **number > 0) {
            for (two, second) in process.iter().filter(|(two, number)| *two > one && **number > 0) {
                let Some((is_first_new, is_second_new)) = self.shared.links.greet((*one, *first), (*two, *second))
                else {
                    continue;
                };
                for (at, other, is_new) in [(two, one, is_first_new), (one, two, is_second_new)] {
                    if let Some(node) = self.nodes.get_mut(at).filter(|_| is_new) {
                        node.peer_is_new(*other, false);
                    }
                }
            }
        }
    }

    /// The faults are over: everything is answered, everybody has everything, and what clients saw fits together.
    pub(super) fn settle(&mut self) -> Result<usize, String> {
        self.restart_last();
        self.note(|| "the faults are over".to_owned());
        self.shared.links.heal();
        self.shared.links.no_one_is_slow();
        self.shared.links.lose_no_more();
        self.shared.links.set_weather(Weather { lost: 0, doubled: 0, late_ns: MS });
        self.faults = Faults::default();
        for id in self.ids.clone() {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.paused_until_ns = 0;
                node.slowness = 1;
                if node.process.is_none() {
                    self.start(id);
                }
            }
        }
        self.opened_ns = self.now_ns();
        let is_open = |operation: &&Operation| operation.open > 0;
        let open = self.ledger.operations.iter().filter(is_open);
        self.awaited = open.map(|operation| (operation.id, operation.attempts)).collect();
        // A workflow that has failed often under the faults tries again only after minutes.
        self.calm(600_000)?;
        let looks = workload::last_looks(&self.ledger, self.shared.shard_count);
        let first = self.ledger.operations.len();
        for (kind, script) in looks {
            let id = self.ledger.add(kind, script, None, false);
            let node = self.ids[id % self.ids.len()];
            self.send(id, node);
        }
        self.calm(40_000)?;
        let is_answered = |operation: &Operation| matches!(operation.known, Known::Done(_));
        if let Some(operation) = self.ledger.operations[first..].iter().find(|operation| !is_answered(operation)) {
            return Err(format!("a last look at everything was not answered: {operation:?}"));
        }
        self.compare()?;
        self.check_operations()?;
        let at_rest = self.at_rest();
        judge(&self.ledger, &at_rest, self.shared.shard_count)
    }

    /// Goes on until everything is answered and every shard is served.
    fn calm(&mut self, at_most_ms: u64) -> Checked {
        let until_ns = self.now_ns() + at_most_ms * MS;
        let (mut quiet, mut is_asleep) = (0, false);
        while quiet < 200 {
            self.pass(if is_asleep { 20 * MS } else { 2 * MS });
            self.guide();
            self.move_nodes(false)?;
            let is_open = |operation: &Operation| operation.open > 0;
            let unsettled: Vec<usize> = (0..self.ledger.operations.len())
                .filter(|id| self.ledger.is_unsettled(*id) && !is_open(&self.ledger.operations[*id]))
                .collect();
            if self.rng.chance(1, 20) {
                for id in &unsettled {
                    let node = self.ids[id % self.ids.len()];
                    self.send(*id, node);
                }
            }
            let is_busy = !unsettled.is_empty() || self.ledger.operations.iter().any(is_open);
            let is_rest = !is_busy
                && self.is_served()
                && self.oracle.has_moved_all()
                && self.nodes.values().all(Node::is_idle)
                && self.shared.links.is_empty()
                && self.nodes.values().all(|node| node.left_at_rest().iter().all(|(_, count)| *count == 0))
                && self.is_level();
            // Workflows sleep for seconds, and try again what failed.
            let left = if is_rest { self.under_way() } else { Vec::new() };
            is_asleep = left.iter().any(|(_, count)| *count > 0);
            let is_rest = is_rest && !is_asleep;
            quiet = if is_rest { quiet + 1 } else { 0 };
            self.look_for_those_who_wait()?;
            if self.now_ns() > until_ns {
                let served = self.is_served();
                let open: Vec<&Operation> = self.ledger.operations.iter().filter(|one| is_open(one)).collect();
                let left: Vec<_> = self.nodes.values().map(Node::left_at_rest).collect();
                let open: Vec<usize> = open.iter().map(|operation| operation.id).collect();
                let shards = self.oracle.describe(&mut self.nodes);
                let under_way = self.under_way();
                return Err(format!(
                    "it never comes to rest: served {served}, unsettled {unsettled:?}, {left:?}, open {open:?}, \
                     {under_way:?}, {shards}"
                ));
            }
        }
        Ok(())
    }

    /// Nobody who had asked before the faults were over waits for long after the last shard was opened.
    fn look_for_those_who_wait(&mut self) -> Checked {
        // A shard may have been opened since guidance heard of openings last.
        if !self.is_served() {
            self.opened_ns = self.now_ns();
        }
        if self.now_ns() < self.opened_ns + LONGEST_WAIT_NS {
            return Ok(());
        }
        let waits = |(id, attempts): &&(usize, usize)| {
            let operation = &self.ledger.operations[*id];
            operation.open > 0 && operation.attempts == *attempts
        };
        let waits: Vec<_> = self.awaited.iter().filter(waits).copied().collect();
        if waits.is_empty() {
            return Ok(());
        }
        let left: Vec<_> = self.nodes.values().map(Node::left_at_rest).collect();
        let shards = self.oracle.describe(&mut self.nodes);
        Err(format!("operations wait though every shard has been open for long: {waits:?}, {left:?}, {shards}"))
    }

    pub(super) fn is_served(&mut self) -> bool {
        (0..self.shared.shard_count).map(ShardId).all(|shard| {
            let owner = self.oracle.owner(shard);
            self.nodes.get_mut(&owner).is_some_and(|node| node.serving(shard).is_some())
        })
    }

    /// Whether all states reflect all entries.
    fn is_level(&mut self) -> bool {
        (0..self.shared.shard_count).map(ShardId).all(|shard| {
            let holders = self.oracle.holders(shard);
            let mut nodes = self.nodes.values_mut().filter(|node| holders.contains(&node.id));
            let first = nodes.next().map(|node| node.position(shard));
            nodes.all(|node| Some(node.position(shard)) == first)
        })
    }

    fn at_rest(&mut self) -> AtRest {
        let mut at_rest = AtRest::default();
        for node in self.nodes.values() {
            at_rest.left.extend(node.left_at_rest());
        }
        let name = |text: &str| Name::new(text).expect("a name");
        for key in workload::counters(&self.ledger) {
            let entity = EntityKey::new(&name(APP), &name("counter"), key.as_bytes());
            let shard = shard_of_key(key.as_bytes(), self.shared.shard_count);
            let owner = self.oracle.owner(shard);
            let core = self.nodes.get_mut(&owner).and_then(|node| node.core_of(shard));
            let found = core
                .and_then(|core| core.shard_mut(shard))
                .and_then(|shard| shard.store().get(&entity, b"n").expect("memory does not fail").cloned());
            let count = found.and_then(|value| serde_json::from_slice(value.content()).ok()).unwrap_or(0);
            at_rest.counters.insert(key, count);
        }
        at_rest
    }

    /// All replicas of a shard hold the same entries, and their states are what these entries make.
    fn compare(&mut self) -> Checked {
        for shard in (0..self.shared.shard_count).map(ShardId) {
            let owner = self.oracle.owner(shard);
            let mut log = self.trimmed.remove(&shard).unwrap_or_default();
            for id in self.oracle.holders(shard) {
                let held = self.nodes.get_mut(&id).map(|node| node.entries(shard)).unwrap_or_default();
                log.extend(held.into_iter().map(|entry| (entry.id.lsn, entry)));
            }
            let log: Vec<LogEntry> = log.into_values().collect();
            let checkpoint = std::sync::Arc::new(MemoryCheckpoint::new());
            let mut made = millrace_shard::open_store(shard, checkpoint, 1).expect("memory does not fail");
            let (mut rows, mut latest) = (BTreeSet::new(), UnixMillis(0));
            for entry in &log {
                apply(&mut made, entry);
                if entry.kind == EntryKind::Data {
                    let decoded = EntryRef::decode(&entry.bytes).expect("it was applied");
                    latest = time_goes_on(&decoded, latest)?;
                    rows.extend(decoded.writes.iter().map(|write| (write.entity.to_vec(), write.field.to_vec())));
                }
            }
            for id in self.oracle.holders(shard) {
                let Some(node) = self.nodes.get_mut(&id) else { continue };
                if !log.ends_with(&node.entries(shard)) {
                    return Err(format!("node {id} holds another log of shard {} than its owner {owner}", shard.0));
                }
                let Some(core) = node.core_of(shard) else { continue };
                let Some(store) = super::node::store_of(core, shard) else {
                    return Err(format!("node {id} has no state of shard {}", shard.0));
                };
                let mut is_same = |(entity, field): &(Vec<u8>, Vec<u8>)| {
                    let entity = EntityKey::split_from(entity).expect("a key").0;
                    let here = store.get(&entity, field).expect("memory does not fail").cloned();
                    here == made.get(&entity, field).expect("memory does not fail").cloned()
                };
                if let Some((entity, field)) = rows.iter().find(|row| !is_same(row)) {
                    let [entity, field] = [entity, field].map(|bytes| String::from_utf8_lossy(bytes));
                    let what = format!("{field:?} of {entity:?}, at entry {}", store.lsn().0);
                    return Err(format!("node {id} has another state of shard {}: {what}", shard.0));
                }
            }
        }
        Ok(())
    }
}
