//! A backup of a simulated cluster while it runs: all nodes stand still, and one of them is copied, with others for the shards that
//! it does not hold. What the copy would be after a rescue is judged as a world of its own.
//!
//! The protocol is that of `crates/node/src/cluster/standstill.rs`, played by the harness; what the cores do for it is the
//! shipped code. `docs/internals/backup.md` has the argument that is tested here.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use millrace_base::{Lsn, ShardId};
use millrace_driver::Standing;
use millrace_replica::{EntryId, EntryKind, Epoch, LogEntry, NodeId, Promised, ReplicaSet};

use super::ClusterBug;
use super::links::Links;
use super::node::{Node, Shared};
use super::oracle::Oracle;
use super::platform::Disks;
use super::world::{Checked, MS, Plan, World};
use crate::ledger::Ledger;
use crate::random::Rng;

/// A node goes on by itself after this time.
const STILL_NS: u64 = 1_500 * MS;

/// By then all must be done.
const DONE_NS: u64 = 1_000 * MS;

/// Epochs that a rescue leaves out.
const EPOCHS_LEFT_OUT: u64 = 1 << 20;

/// Backups of a run that are restored and judged. That takes far longer than the backup.
const JUDGED: u64 = 4;

/// What nodes say to each other about it.
enum Word {
    Stand,
    /// It stands still, and owns these. Behind `GoOn`: it has stood still until now.
    Standing(Vec<Standing>),
    Busy,
    GoOn,
}

/// A word on its way between two processes.
struct Said {
    due_ns: u64,
    from: NodeId,
    to: NodeId,
    to_process: u64,
    number: u64,
    word: Word,
}

enum Phase {
    /// Nodes are to say that they stand still.
    Asking,
    /// Nodes that are copied lack something.
    Waiting(Vec<Standing>),
    /// The copy is there. Nodes are to say that they have stood still until then.
    Ending(Copy),
}

/// What a backup has, and what clients had been told at its moment.
struct Copy {
    disks: Disks,
    ledger: Ledger,
}

/// A node that is copied for some shards.
struct Source {
    process: u64,
    shards: BTreeSet<ShardId>,
    /// These shards, once it has all of them.
    copied: Option<Disks>,
}

/// The backup that is under way.
struct Backup {
    asker: NodeId,
    process: u64,
    /// The asker, and others for the shards that it does not hold.
    sources: BTreeMap<NodeId, Source>,
    number: u64,
    /// By the clock of the node that is copied.
    since_ns: u64,
    others: BTreeSet<NodeId>,
    silent: BTreeSet<NodeId>,
    newest: BTreeMap<ShardId, Standing>,
    phase: Phase,
}

/// The backups of a run.
pub struct Backups {
    /// Of its own: a run without backups draws the same numbers.
    rng: Rng,
    last: u64,
    judged: u64,
    under_way: Option<Backup>,
    words: Vec<Said>,
    /// For which backup a process stands still, and since when by its clock.
    standing: BTreeMap<(NodeId, u64), (u64, u64)>,
}

impl Backups {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed ^ 0xBA_C4_09),
            last: 0,
            judged: 0,
            under_way: None,
            words: Vec::new(),
            standing: BTreeMap::new(),
        }
    }
}

impl World {
    /// Begins a backup now and then, and goes on with the one that is under way.
    pub(super) fn back_up(&mut self) -> Checked {
        if self.plan.backup_every == 0 {
            return Ok(());
        }
        self.hear_words();
        if self.backups.under_way.is_some() {
            return self.go_on_with_backup();
        }
        if self.backups.judged < JUDGED && self.backups.rng.chance(1, self.plan.backup_every) {
            // Without all owners there is none; that is tried, too.
            if self.backups.rng.chance(1, 8) || self.is_served() {
                self.begin_backup();
            }
        }
        Ok(())
    }

    fn own_ns(&self, id: NodeId) -> u64 {
        self.now_ns() / 1_000 * self.nodes[&id].clock.rate
    }

    fn is_moving(&self, id: NodeId) -> bool {
        let node = &self.nodes[&id];
        node.process.is_some() && node.paused_until_ns <= self.now_ns()
    }

    /// The nodes that are copied, each for some shards: first of all the one that takes the backup. None, if nobody that is up
    /// holds a shard.
    fn sources(&self, asker: NodeId) -> Option<BTreeMap<NodeId, Source>> {
        let mut sources: BTreeMap<NodeId, Source> = BTreeMap::new();
        for shard in (0..self.shared.shard_count).map(ShardId) {
            let holders = self.oracle.holders(shard);
            let is_usable = |id: &NodeId| self.is_moving(*id) && holders.contains(id);
            let known = std::iter::once(asker).chain(sources.keys().copied()).find(is_usable);
            let node = known.or_else(|| holders.iter().copied().find(is_usable))?;
            let process = self.nodes[&node].process_number();
            let source =
                sources.entry(node).or_insert_with(|| Source { process, shards: BTreeSet::new(), copied: None });
            source.shards.insert(shard);
        }
        Some(sources)
    }

    fn begin_backup(&mut self) {
        let up: Vec<NodeId> = self.ids.iter().copied().filter(|id| self.is_moving(*id)).collect();
        if up.is_empty() {
            return;
        }
        let asker = up[self.backups.rng.index(up.len())];
        let Some(sources) = self.sources(asker) else { return };
        if sources.len() > 1 {
            self.counts.note("backup of several nodes begun", 1);
        }
        let others: BTreeSet<NodeId> =
            self.ids.iter().copied().filter(|id| *id != asker && !self.is_gone(*id)).collect();
        self.backups.last += 1;
        let number = self.backups.last;
        let process = self.nodes[&asker].process_number();
        let since_ns = self.own_ns(asker);
        for other in &others {
            self.say(asker, *other, number, Word::Stand);
        }
        let mut silent = others.clone();
        silent.insert(asker);
        let (newest, phase) = (BTreeMap::new(), Phase::Asking);
        self.backups.under_way =
            Some(Backup { asker, process, sources, number, since_ns, others, silent, newest, phase });
        let own = self.stand(asker, number).map_or(Word::Busy, Word::Standing);
        self.heard_of_backup(asker, number, own);
        self.counts.note("backup begun", 1);
        self.note(|| format!("node {asker} is to be copied, backup {number}"));
    }

    /// These words come late, wait while the link is cut, and are dropped with the process they are for.
    fn say(&mut self, from: NodeId, to: NodeId, number: u64, word: Word) {
        let late_ns = self.backups.rng.below(20 * MS);
        let (due_ns, to_process) = (self.now_ns() + late_ns, self.nodes[&to].process_number());
        self.backups.words.push(Said { due_ns, from, to, to_process, number, word });
    }

    fn hear_words(&mut self) {
        let now_ns = self.now_ns();
        for said in std::mem::take(&mut self.backups.words) {
            let Said { due_ns, from, to, to_process, number, .. } = said;
            if to_process == 0 || self.nodes[&to].process_number() != to_process {
                continue;
            }
            let is_linked = self.shared.links.others(from).contains(&(to, true));
            if due_ns > now_ns || !is_linked || !self.is_moving(to) {
                self.backups.words.push(said);
                continue;
            }
            match said.word {
                Word::Stand => {
                    let answer = self.stand(to, number).map_or(Word::Busy, Word::Standing);
                    self.say(to, from, number, answer);
                }
                Word::GoOn => {
                    let has_stood = self.go_on(to, number);
                    self.say(to, from, number, if has_stood { Word::Standing(Vec::new()) } else { Word::Busy });
                }
                answer => self.heard_of_backup(from, number, answer),
            }
        }
    }

    /// Has a node stand still. `None`: it does so for another backup.
    fn stand(&mut self, id: NodeId, number: u64) -> Option<Vec<Standing>> {
        let (own_ns, process) = (self.own_ns(id), self.nodes[&id].process_number());
        let known = self.backups.standing.get(&(id, process));
        if known.is_some_and(|(_, since_ns)| own_ns - since_ns < STILL_NS) {
            return None;
        }
        self.backups.standing.insert((id, process), (number, own_ns));
        self.nodes.get_mut(&id).map(|node| node.stand_still(STILL_NS))
    }

    /// Has a node go on. Says whether it has stood still until now, for this backup.
    fn go_on(&mut self, id: NodeId, number: u64) -> bool {
        let (own_ns, process) = (self.own_ns(id), self.nodes[&id].process_number());
        let Some((_, since_ns)) = self.backups.standing.get(&(id, process)).copied().filter(|(of, _)| *of == number)
        else {
            return false;
        };
        self.backups.standing.remove(&(id, process));
        if let Some(node) = self.nodes.get_mut(&id) {
            node.go_on();
        }
        own_ns - since_ns < STILL_NS
    }

    fn heard_of_backup(&mut self, from: NodeId, number: u64, word: Word) {
        let Some(backup) = self.backups.under_way.as_mut().filter(|backup| backup.number == number) else { return };
        let Word::Standing(standing) = word else { return self.give_up_backup("node does not stand still") };
        backup.silent.remove(&from);
        for one in standing {
            let known = backup.newest.entry(one.shard).or_insert(one);
            if known.epoch < one.epoch {
                *known = one;
            }
        }
    }

    fn give_up_backup(&mut self, why: &'static str) {
        let Some(backup) = self.backups.under_way.take() else { return };
        self.counts.note("backup given up", 1);
        self.counts.note(why, 1);
        self.note(|| format!("backup {} is given up: {why}", backup.number));
        self.tell_to_go_on(backup.asker, backup.number, &backup.others);
    }

    fn tell_to_go_on(&mut self, asker: NodeId, number: u64, others: &BTreeSet<NodeId>) {
        for other in others {
            self.say(asker, *other, number, Word::GoOn);
        }
        self.go_on(asker, number);
    }

    fn go_on_with_backup(&mut self) -> Checked {
        let Some(mut backup) = self.backups.under_way.take() else { return Ok(()) };
        if self.nodes[&backup.asker].process_number() != backup.process {
            // Nobody is there to tell the others: each goes on by itself.
            self.counts.note("node lost while it was copied", 1);
            return Ok(());
        }
        if !self.is_moving(backup.asker) {
            self.backups.under_way = Some(backup);
            return Ok(());
        }
        if self.own_ns(backup.asker) - backup.since_ns > DONE_NS {
            self.backups.under_way = Some(backup);
            self.give_up_backup("it takes too long");
            return Ok(());
        }
        let has_all_answers = backup.silent.is_empty();
        let is_served = |shard: u16| backup.newest.contains_key(&ShardId(shard));
        if has_all_answers && !(0..self.shared.shard_count).all(is_served) {
            self.backups.under_way = Some(backup);
            self.give_up_backup("nobody serves a shard");
            return Ok(());
        }
        let is_too_early = self.plan.bug == Some(ClusterBug::CopyTooEarly);
        backup.phase = match backup.phase {
            Phase::Asking if has_all_answers => Phase::Waiting(backup.newest.values().copied().collect()),
            Phase::Waiting(standing) if self.have_all(&mut backup.sources, &standing, is_too_early) => {
                let disks = backup.sources.values_mut().filter_map(|source| source.copied.take()).flatten().collect();
                let copy = Copy { disks, ledger: self.ledger.clone() };
                backup.silent.clone_from(&backup.others);
                self.tell_to_go_on(backup.asker, backup.number, &backup.others);
                Phase::Ending(copy)
            }
            Phase::Ending(copy) if has_all_answers => {
                self.counts.note("backup taken", 1);
                if backup.sources.len() > 1 {
                    self.counts.note("backup of several nodes taken", 1);
                }
                self.backups.judged += 1;
                return self.judge_copy(backup.asker, copy);
            }
            other => other,
        };
        self.backups.under_way = Some(backup);
        Ok(())
    }
}

impl World {
    /// Copies the nodes that have all that the owners of their shards have. Says whether that is done for all of them.
    fn have_all(&self, sources: &mut BTreeMap<NodeId, Source>, standing: &[Standing], is_too_early: bool) -> bool {
        for (id, source) in sources.iter_mut().filter(|(_, source)| source.copied.is_none()) {
            let node = &self.nodes[id];
            let own: Vec<Standing> = standing.iter().filter(|of| source.shards.contains(&of.shard)).copied().collect();
            // A node that was started anew holds nothing for the backup.
            let is_ready = node.process_number() == source.process && self.is_moving(*id);
            if is_ready && (is_too_early || node.holds_all(&own)) {
                let disks = node.disks().into_iter().filter(|(shard, _)| source.shards.contains(shard));
                source.copied = Some(disks.collect());
            }
        }
        sources.values().all(|source| source.copied.is_some())
    }
}

/// What a rescue makes of a copy: all of it counts, and the node is the only one that holds it.
fn rescued(disks: &Disks, first: &[ReplicaSet], me: NodeId) -> Disks {
    let mut disks = disks.clone();
    let known = disks
        .values()
        .flat_map(|disk| [disk.promised.epoch.0, disk.entries.last().map_or(0, |entry| entry.id.epoch.0)]);
    let epoch = Epoch(known.max().unwrap_or_default() + EPOCHS_LEFT_OUT);
    for (shard, disk) in &mut disks {
        disk.set.get_or_insert_with(|| (Lsn::ZERO, first[usize::from(shard.0)].clone()));
        (disk.promised, disk.is_partial) = (Promised { epoch, to: me }, false);
        disk.committed = disk.entries.last().map_or(Lsn::ZERO, |entry| entry.id.lsn);
        let id = EntryId::new(epoch, disk.committed.next());
        let bytes = ReplicaSet::of([me]).encode().into();
        disk.entries.push(LogEntry { id, kind: EntryKind::ReplicaSet, bytes });
    }
    disks
}

impl World {
    /// The copy is rescued, and clients go on with it who remember what they had been told at its moment. It is good if what they
    /// see from then on fits together with that.
    fn judge_copy(&self, me: NodeId, Copy { disks, mut ledger }: Copy) -> Checked {
        ledger.server_died();
        let links = Links::new(&[me], Rng::new(self.plan.seed));
        links.set_now(self.now_ns());
        let shared = Shared {
            now: Rc::new(std::cell::Cell::new(self.now_ns())),
            links,
            sets: vec![ReplicaSet::of([me]); usize::from(self.shared.shard_count)],
            shard_count: self.shared.shard_count,
            bug: None,
        };
        let copied = &self.nodes[&me];
        let node = Node::of_disks(me, (copied.clock, copied.starts), rescued(&disks, &self.shared.sets, me));
        let oracle = Oracle::new(&shared.sets);
        let plan = Plan { bug: None, backup_every: 0, ..self.plan.clone() };
        let mut alone = Self::with(plan, shared, vec![me], BTreeMap::from([(me, node)]), oracle);
        alone.ledger = ledger;
        alone.settle().map(drop).map_err(|what| format!("a copy of node {me} is not of one moment: {what}"))
    }
}
