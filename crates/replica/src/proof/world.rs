//! A cluster of one shard: nodes with disks and clocks, and the messages between them.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Deref;
use std::rc::Rc;

use bytes::Bytes;
use millrace_base::Lsn;

use super::checker::{Checker, Waiting};
use super::disk::Disk;
use crate::event::{Command, Event, Write};
use crate::ids::{Epoch, NodeId};
use crate::message::Message;
use crate::nomination::Nomination;
use crate::replica::Replica;
use crate::replica_set::{Change, ReplicaSet};
use crate::settings::{Bug, Settings};
use crate::shard_log::{Leaving, ShardLog};

/// A message on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Letter {
    pub from: NodeId,
    pub to: NodeId,
    pub message: Message,
}

/// A fingerprint of a state, the same in every run.
pub(super) fn fingerprint(value: &impl Hash) -> u64 {
    foldhash::quality::FixedState::default().hash_one(value)
}

/// A part of a state that successors share until one of them changes it. Its fingerprint is computed once.
#[derive(Clone, Debug)]
pub(super) struct Shared<T> {
    inner: Rc<T>,
    fingerprint: Cell<Option<u64>>,
}

impl<T: Clone + Hash> Shared<T> {
    pub fn new(inner: T) -> Self {
        Self { inner: Rc::new(inner), fingerprint: Cell::new(None) }
    }

    pub fn change(&mut self) -> &mut T {
        self.fingerprint.set(None);
        Rc::make_mut(&mut self.inner)
    }

    pub fn fingerprint(&self) -> u64 {
        let fingerprint = self.fingerprint.get().unwrap_or_else(|| fingerprint(&*self.inner));
        self.fingerprint.set(Some(fingerprint));
        fingerprint
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: Clone + Hash> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.fingerprint());
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    /// `None` while the node is down.
    pub replica: Option<Replica>,
    pub nomination: Nomination,
    /// What survives a power cut.
    pub disk: Disk,
    /// What the running node reads: the disk with the writes on their way to it.
    image: Disk,
    pub unsynced: VecDeque<(u64, Write)>,
    pub waiting: Vec<Waiting>,
    /// Its clock's rate in thousandths.
    pub rate: u64,
    starts: u64,
    /// The shard in memory has to be forgotten.
    has_to_reopen: bool,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct World {
    pub nodes: BTreeMap<NodeId, Shared<Node>>,
    pub letters: Vec<Shared<Letter>>,
    /// Real time.
    pub now: u64,
    pub checker: Checker,
    pub settings: Settings,
    payloads: u64,
    /// Writes reach the disk at once.
    pub is_synced_at_once: bool,
    /// The highest epoch that anybody was refused in favour of.
    pub taken: Epoch,
    /// Who should be appointed, if somebody said so.
    pub instead: Option<NodeId>,
    pub caught_up: Vec<NodeId>,
}

pub(super) fn id(node: u16) -> NodeId {
    NodeId(node)
}

impl World {
    /// Nodes 1 to `count`, of which the first `voters` hold the shard.
    pub fn new(count: u16, voters: u16, settings: Settings) -> Self {
        let set = ReplicaSet::of((1..=voters).map(NodeId));
        let node = |_| Node {
            replica: None,
            nomination: Nomination::default(),
            disk: Disk::new(set.clone()),
            image: Disk::new(set.clone()),
            unsynced: VecDeque::new(),
            waiting: Vec::new(),
            rate: 1000,
            starts: 0,
            has_to_reopen: false,
        };
        let mut world = Self {
            nodes: (1..=count).map(|number| (NodeId(number), Shared::new(node(number)))).collect(),
            letters: Vec::new(),
            now: 0,
            checker: Checker::default(),
            settings,
            payloads: 0,
            is_synced_at_once: false,
            taken: Epoch::NONE,
            instead: None,
            caught_up: Vec::new(),
        };
        for number in 1..=count {
            world.start(NodeId(number));
        }
        world
    }

    /// Plants a bug in every node.
    pub fn plant(&mut self, bug: Bug) {
        self.settings.planted = Some(bug);
        for node in self.nodes.values_mut() {
            if let Some(replica) = &mut node.change().replica {
                replica.plant(bug);
            }
        }
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[&id]
    }

    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("a node of this world").change()
    }

    pub fn replica(&self, id: NodeId) -> Option<&Replica> {
        self.node(id).replica.as_ref()
    }

    fn local_now(&self, id: NodeId) -> u64 {
        self.now * self.node(id).rate / 1000
    }

    pub fn start(&mut self, id: NodeId) {
        let (now, settings) = (self.local_now(id), self.settings.clone());
        let node = self.node_mut(id);
        node.starts += 1;
        let nonce = node.starts * 1000 + u64::from(id.0);
        node.nomination = Nomination::default();
        node.replica = Some(Replica::start(id, settings, now, nonce, node.disk.recover()));
    }

    /// The node stops. Of the writes on their way, the first `kept` reach the disk.
    pub fn crash(&mut self, id: NodeId, kept: usize) {
        let node = self.node_mut(id);
        node.replica = None;
        for (_, write) in node.unsynced.drain(..).take(kept) {
            node.disk.write(&write);
        }
        node.image = node.disk.clone();
        node.waiting.clear();
        node.has_to_reopen = false;
    }

    /// A node that is down has lost the end of its log, and its promise.
    pub fn lose_disk(&mut self, id: NodeId, kept: usize) {
        let node = self.node_mut(id);
        node.disk.lose(kept);
        node.image = node.disk.clone();
    }

    pub fn handle(&mut self, id: NodeId, event: Event) {
        self.with_replica(id, |replica, _, now, out| replica.handle(now, event, out));
    }

    /// Runs a replica, obeys its commands, and lets replies leave.
    fn with_replica(&mut self, id: NodeId, run: impl FnOnce(&mut Replica, &mut Nomination, u64, &mut Vec<Command>)) {
        let now = self.local_now(id);
        if self.node(id).replica.is_none() {
            return;
        }
        let node = self.node_mut(id);
        let Some(replica) = &mut node.replica else { return };
        let mut out = Vec::new();
        run(replica, &mut node.nomination, now, &mut out);
        // What comes of a command comes after all commands.
        let later: Vec<Event> = out.into_iter().filter_map(|command| self.obey(id, command)).collect();
        for event in later {
            self.handle(id, event);
        }
        if self.is_synced_at_once {
            self.sync(id, usize::MAX);
        }
        self.leave(id);
    }

    fn obey(&mut self, id: NodeId, command: Command) -> Option<Event> {
        let node = self.nodes.get_mut(&id).expect("a node of this world").change();
        match command {
            Command::Send { to, message } => {
                self.checker.says(id, &message, &node.disk);
                self.checker.fits(id, &message, self.settings.message.1);
                self.letters.push(Shared::new(Letter { from: id, to, message }));
            }
            Command::Write { number, write } => {
                if let Write::Append(entries) = &write {
                    self.checker.appended(node.image.last(), entries);
                }
                node.image.write(&write);
                node.unsynced.push_back((number, write));
            }
            Command::Committed { lsn } => self.checker.commits(id, &node.image, lsn),
            Command::Serve { epoch, .. } => self.checker.serves(id, epoch, &node.image),
            Command::GiveUp { .. } => {
                node.waiting.clear();
                node.has_to_reopen = true;
            }
            Command::ReadLog { to, after, bytes } => {
                let (mut entries, mut size) = (Vec::new(), 0);
                let mut lsn = after.lsn.next();
                while let Some(entry) = node.image.entry(lsn).filter(|_| entries.is_empty() || size < bytes) {
                    size += entry.bytes.len();
                    entries.push(entry.clone());
                    lsn = lsn.next();
                }
                return Some(Event::LogRead { to, after, entries });
            }
            Command::ShipSnapshot { to, at_least } => {
                let committed = node.replica.as_ref().map_or(Lsn::ZERO, |replica| replica.log().committed());
                let at = if committed.0.is_multiple_of(2) { committed } else { at_least };
                return Some(Event::SnapshotShipped { to, at });
            }
            Command::EpochTaken { promised } => self.taken = self.taken.max(promised.epoch),
            Command::AppointInstead { best } => self.instead = Some(best),
            Command::CaughtUp { learner } => self.caught_up.push(learner),
            Command::Whole => {
                node.disk.is_whole = true;
                node.image.is_whole = true;
            }
            Command::Confirmed { .. } | Command::Released { .. } => {}
            Command::Broken { reason } => {
                self.checker.broken.get_or_insert_with(|| format!("node {id}: {reason}"));
            }
        }
        None
    }

    /// Forgets what is on its way and will never have an effect: an answer to an epoch that its receiver has promised away,
    /// and the news of an epoch that its receiver knows.
    pub fn forget_the_void(&mut self) {
        let nodes = &self.nodes;
        self.letters.retain(|letter| {
            let known = nodes[&letter.to].disk.promised.epoch;
            match letter.message {
                Message::Ack { epoch, .. }
                | Message::Lacks { epoch, .. }
                | Message::Promise { epoch, .. }
                | Message::Entries { epoch, .. } => epoch >= known,
                Message::Refusal { promised } => promised.epoch >= known,
                _ => true,
            }
        });
    }

    /// The first `count` writes reach the disk.
    pub fn sync(&mut self, id: NodeId, count: usize) {
        let count = count.min(self.node(id).unsynced.len());
        if count == 0 {
            return;
        }
        let node = self.node_mut(id);
        let Some((up_to, _)) = count.checked_sub(1).map(|last| node.unsynced[last].clone()) else { return };
        for (_, write) in node.unsynced.drain(..count) {
            node.disk.write(&write);
        }
        self.handle(id, Event::Written { up_to });
    }

    /// Delivers a letter that is no longer on its way.
    pub fn deliver(&mut self, letter: &Letter) {
        let Letter { from, to, message } = letter.clone();
        if let Message::PreVoteReply { epoch, is_granted } = message {
            self.with_replica(to, |replica, nomination, now, out| {
                nomination.replied(now, from, epoch, is_granted, replica, out);
            });
        } else {
            self.handle(to, Event::Received { from, message });
        }
    }

    pub fn tick(&mut self, id: NodeId, nominates: Option<u64>) {
        self.handle(id, Event::Tick);
        if let Some(random) = nominates {
            self.with_replica(id, |replica, nomination, now, out| nomination.tick(now, random, replica, out));
        }
    }

    pub fn is_serving(&self, id: NodeId) -> bool {
        self.replica(id).is_some_and(Replica::is_serving)
    }

    fn next_lsn(&self, id: NodeId) -> Lsn {
        self.node(id).image.last().lsn.next()
    }

    /// A client writes at the owner.
    pub fn submit(&mut self, id: NodeId) {
        self.payloads += 1;
        let (lsn, bytes) = (self.next_lsn(id), Bytes::from(self.payloads.to_le_bytes().to_vec()));
        self.handle(id, Event::Submit { lsn, bytes });
        let node = self.node_mut(id);
        let saw = node.image.last();
        if let Some(replica) = &node.replica {
            let proof = replica.entry_proof();
            node.waiting.push(Waiting { saw, proof, floor: Lsn::ZERO });
        }
    }

    /// A client reads at the owner.
    pub fn read(&mut self, id: NodeId) {
        let floor = self.checker.acknowledged;
        let node = self.node_mut(id);
        let Some(replica) = &node.replica else { return };
        let (saw, proof) = (node.image.last(), replica.read_proof());
        node.waiting.push(Waiting { saw, proof, floor });
        if self.leave(id) {
            self.with_replica(id, |replica, _, now, out| replica.confirm(now, out));
        }
    }

    pub fn may_change(&self, id: NodeId, change: Change) -> bool {
        self.replica(id).is_some_and(|replica| replica.may_change(change))
    }

    pub fn change(&mut self, id: NodeId, change: Change) {
        let lsn = self.next_lsn(id);
        self.handle(id, Event::ChangeSet { lsn, change });
        self.handle(id, Event::RoundEnded);
    }

    pub fn trim(&mut self, id: NodeId, lsn: Lsn) {
        let node = self.node_mut(id);
        let Some(replica) = &mut node.replica else { return };
        replica.handle(0, Event::Trim { up_to: lsn }, &mut Vec::new());
        let base = replica.log().base().lsn;
        node.image.trim(base);
        // What has reached the disk may be less than what was trimmed in memory only by writes that cut.
        if node.unsynced.is_empty() {
            node.disk.trim(base);
        }
    }

    /// Lets replies leave that may, and ends those that never will. Says whether one waits for a confirmation.
    pub fn leave(&mut self, id: NodeId) -> bool {
        let now = self.local_now(id);
        if self.node(id).waiting.is_empty() {
            return false;
        }
        let node = self.nodes.get_mut(&id).expect("a node of this world").change();
        let Some(replica) = &node.replica else { return false };
        let mut still = Vec::new();
        let mut needs_proof = false;
        for waiting in node.waiting.drain(..) {
            let leaving = replica.may_leave(now, waiting.saw.lsn, waiting.proof);
            self.checker.leaves(id, &waiting, leaving);
            needs_proof |= leaving == Leaving::AfterConfirmation;
            if matches!(leaving, Leaving::AfterCommit | Leaving::AfterConfirmation) {
                still.push(waiting);
            }
        }
        node.waiting = still;
        needs_proof
    }

    /// The shards that were given up are forgotten.
    pub fn reopen(&mut self, id: NodeId) {
        if self.node(id).has_to_reopen {
            self.node_mut(id).has_to_reopen = false;
            self.handle(id, Event::Reopened);
        }
    }
}
