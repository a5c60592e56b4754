//! The simulated machine around one core of a cluster.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use millrace_base::{Lsn, ShardId};
use millrace_driver::{CoreMessage, Destination, DriverBug, Platform, ShardMail, TransferJob};
use millrace_func::{FetchRequest, Offload, Program, WorkerTurn};
use millrace_io::Net;
use millrace_log::Batch;
use millrace_replica::{
    EntryId, EntryKind, LogEntry, LogView, Message, NodeId, Promised, Recovered, Replica, ReplicaSet, RoleName, Write,
};
use millrace_shard::OffloadTicket;
use millrace_store::{ColdRead, FlushChunk};

use super::ClusterBug;
use super::links::Links;
use crate::net::SimNet;
use crate::platform::SimWaiter;
use crate::reads::Reads;

/// The time of all nodes, in nanoseconds. Each look at a clock takes some.
pub type Now = Rc<Cell<u64>>;

const LOOK_NS: u64 = 500;

/// How a node's clocks differ from the time of all nodes.
#[derive(Clone, Copy, Debug)]
pub struct NodeClock {
    /// Its rate, in thousandths.
    pub rate: u64,
    /// By how much its time of day is ahead.
    pub ahead_ms: u64,
}

/// The log of one shard on one disk, as a start would read it.
#[derive(Clone, Debug, Default)]
pub struct ShardDisk {
    pub promised: Promised,
    pub entries: Vec<LogEntry>,
    pub committed: Lsn,
    /// The entry before the first one.
    pub base: EntryId,
    /// The replica set before the first entry, if it is not the one that the shard began with, and the entry that made it.
    pub set: Option<(Lsn, ReplicaSet)>,
    /// It may lack what was acknowledged.
    pub is_partial: bool,
}

impl ShardDisk {
    /// # Panics
    /// When a write leaves a gap.
    pub fn write(&mut self, write: &Write) {
        match write {
            Write::Append(entries) => {
                for entry in entries {
                    assert_eq!(entry.id.lsn, self.last().next(), "the log has no gaps");
                    self.entries.push(entry.clone());
                }
            }
            Write::Cut { after } => {
                assert!(*after >= self.base.lsn, "what was trimmed is committed");
                self.entries.truncate(self.index_of(*after));
            }
            Write::Promise(promised) => self.promised = *promised,
            Write::CommitNote(lsn) => self.committed = *lsn,
            Write::Reset { at, set, .. } if at.lsn == Lsn::ZERO => self.forget(set.clone()),
            Write::Reset { at, set_lsn, set } => self.reset(*at, (*set_lsn, set.clone())),
        }
    }

    /// The log begins anew behind a snapshot.
    pub fn reset(&mut self, at: EntryId, set: (Lsn, ReplicaSet)) {
        self.entries.clear();
        (self.base, self.committed, self.set) = (at, at.lsn, Some(set));
    }

    /// The position of the last entry.
    #[must_use]
    pub fn last(&self) -> Lsn {
        Lsn(self.base.lsn.0 + self.entries.len() as u64)
    }

    /// How many of the entries that are left come up to there.
    fn index_of(&self, lsn: Lsn) -> usize {
        usize::try_from(lsn.0.saturating_sub(self.base.lsn.0)).expect("a small log").min(self.entries.len())
    }

    /// Entries up to there are not needed any more. Gives them.
    ///
    /// # Panics
    /// When the bytes of a replica set are none.
    pub fn trim(&mut self, up_to: Lsn) -> Vec<LogEntry> {
        let gone: Vec<LogEntry> = self.entries.drain(..self.index_of(up_to)).collect();
        if let Some(last) = gone.last() {
            self.base = last.id;
        }
        if let Some(change) = gone.iter().rev().find(|entry| entry.kind == EntryKind::ReplicaSet) {
            self.set = Some((change.id.lsn, ReplicaSet::decode(&change.bytes).expect("a set")));
        }
        gone
    }

    /// Nothing of it counts any more but its promise.
    pub fn forget(&mut self, set: ReplicaSet) {
        self.reset(EntryId::ZERO, (Lsn::ZERO, set));
        self.is_partial = true;
    }

    /// The replica set of the last entry that changes it.
    ///
    /// # Panics
    /// When its bytes are none.
    #[must_use]
    pub fn newest_set(&self, first: &ReplicaSet) -> ReplicaSet {
        let changes = self.entries.iter().rev().find(|entry| entry.kind == EntryKind::ReplicaSet);
        let of_entry = changes.map(|entry| ReplicaSet::decode(&entry.bytes).expect("a set"));
        let of_base = || self.set.as_ref().map(|(_, set)| set.clone());
        of_entry.or_else(of_base).unwrap_or_else(|| first.clone())
    }

    /// What a start finds, if the checkpoint reflects everything up to `checkpointed`.
    ///
    /// # Panics
    /// When the entries do not follow each other.
    #[must_use]
    pub fn recover(&self, set: &ReplicaSet, checkpointed: Lsn) -> Recovered {
        let (set_lsn, set) = self.set.clone().unwrap_or_else(|| (Lsn::ZERO, set.clone()));
        let mut log = LogView::new(self.base, set_lsn, set);
        for entry in &self.entries {
            let is_change = entry.kind == EntryKind::ReplicaSet;
            let change = is_change.then(|| ReplicaSet::decode(&entry.bytes).expect("a set"));
            assert!(log.recover(entry.id, change), "the disk holds a log");
        }
        log.recover_committed(self.committed.max(checkpointed));
        Recovered { promised: self.promised, log, is_whole: !self.is_partial }
    }

    #[must_use]
    pub fn after(&self, after: Lsn, bytes: usize) -> Vec<LogEntry> {
        if after < self.base.lsn {
            return Vec::new();
        }
        let skipped = self.index_of(after);
        let mut left = bytes;
        let fits = |entry: &&LogEntry| {
            let fits = left > 0;
            left = left.saturating_sub(entry.bytes.len());
            fits
        };
        self.entries[skipped..].iter().take_while(fits).cloned().collect()
    }
}

/// All shards' logs of one node.
pub type Disks = BTreeMap<ShardId, ShardDisk>;

/// What a core has asked for and a step of the world does.
pub enum Wanted {
    ReadLog(ShardId, NodeId, EntryId, usize),
    Reopen(ShardId, Lsn),
    /// The checkpoint has everything up to there.
    Trim(ShardId, Lsn),
    Transfer(TransferJob),
}

/// See the module's documentation.
pub struct ClusterPlatform {
    pub node: NodeId,
    /// Which core of it.
    pub index: usize,
    /// The number of the node's process.
    pub process: u64,
    pub now: Now,
    pub clock: NodeClock,
    pub net: SimNet,
    pub links: Links,
    pub bug: Option<ClusterBug>,
    pub is_awake: Cell<bool>,
    /// Records of the batch that is being filled, and of the one on its way.
    pub filling: Vec<(ShardId, Write)>,
    pub in_flight: Option<(Batch, Vec<(ShardId, Write)>)>,
    /// What the node reads while it runs: the disk with the writes on their way to it.
    pub image: Rc<RefCell<Disks>>,
    pub offloads: Vec<OffloadTicket>,
    pub reads: Reads,
    pub chunks: VecDeque<(ShardId, FlushChunk)>,
    pub wanted: VecDeque<Wanted>,
    /// Shards that were opened here, and how often each epoch was taken.
    pub opened: Vec<(ShardId, u64)>,
    pub taken: Vec<(ShardId, Promised)>,
    /// Who should have been appointed.
    pub instead: Vec<(ShardId, NodeId)>,
    /// A shard is being broken on purpose.
    pub is_breaking: bool,
}

impl Net<CoreMessage> for ClusterPlatform {
    fn send(&self, peer: usize, frame: CoreMessage) -> bool {
        Net::send(&self.net, peer, frame)
    }
}

impl Net<ShardMail> for ClusterPlatform {
    fn send(&self, peer: usize, frame: ShardMail) -> bool {
        Net::send(&self.net, peer, frame)
    }
}

impl Platform for ClusterPlatform {
    type Waiter = SimWaiter;

    fn now_ms(&self) -> u64 {
        1_000_000_000 + self.clock.ahead_ms + self.now.get() / 1_000_000
    }

    fn monotonic_ns(&self) -> u64 {
        self.now.set(self.now.get() + LOOK_NS);
        u64::try_from(u128::from(self.now.get()) * u128::from(self.clock.rate) / 1_000).expect("a short run")
    }

    fn wake(&self) {
        self.is_awake.set(true);
    }

    fn commit(&mut self, batch: Batch) {
        assert!(self.in_flight.is_none(), "one batch of a core is under way at a time");
        self.in_flight = Some((batch, std::mem::take(&mut self.filling)));
    }

    fn offload(&mut self, ticket: OffloadTicket, _work: Offload) {
        self.offloads.push(ticket);
    }

    fn fetch(&mut self, ticket: OffloadTicket, _request: FetchRequest) {
        self.offloads.push(ticket);
    }

    fn exchange(&mut self, ticket: OffloadTicket, _turn: WorkerTurn) {
        self.offloads.push(ticket);
    }

    fn read_rows(&mut self, read: ColdRead) {
        self.reads.ask(read);
    }

    fn write_chunk(&mut self, shard: ShardId, chunk: FlushChunk) {
        self.chunks.push_back((shard, chunk));
    }

    fn checkpointed(&mut self, shard: ShardId, lsn: Lsn) {
        self.wanted.push_back(Wanted::Trim(shard, lsn));
    }

    fn closed_log_bytes(&self) -> u64 {
        0
    }

    fn unloaded(&mut self, _programs: &[Program]) {}

    fn shard_stopped(&mut self, broken: Option<&str>) {
        assert!(self.is_breaking, "a shard has stopped: {broken:?}");
    }

    fn read_only_changed(&mut self, _is_read_only: bool) {}

    fn node(&self) -> NodeId {
        self.node
    }

    fn send_node(&mut self, to: NodeId, destination: Destination, message: CoreMessage) -> bool {
        self.links.send((self.node, self.process), to, destination, message);
        true
    }

    fn send_node_mail(&mut self, to: NodeId, mail: ShardMail) {
        self.links.send_mail(self.node, to, mail);
    }

    fn send_replica(&mut self, to: NodeId, shard: ShardId, message: Message) {
        let mut bytes = Vec::new();
        message.encode(shard, &mut bytes);
        let decoded = Message::decode(&bytes.into()).expect("messages decode");
        assert_eq!(decoded, (shard, message), "a message means the same behind the network");
        self.links.send_replica(self.node, to, shard, decoded.1);
    }

    fn write_replica(&mut self, _batch: &mut Batch, shard: ShardId, write: &Write) {
        self.image.borrow_mut().entry(shard).or_default().write(write);
        self.filling.push((shard, write.clone()));
    }

    fn read_log(&mut self, shard: ShardId, to: NodeId, after: EntryId, bytes: usize) {
        self.wanted.push_back(Wanted::ReadLog(shard, to, after, bytes));
    }

    fn reopen(&mut self, shard: ShardId, up_to: Lsn) {
        self.chunks.retain(|(flushed, _)| *flushed != shard);
        self.wanted.push_back(Wanted::Reopen(shard, up_to));
    }

    fn whole(&mut self, shard: ShardId) {
        self.wanted.push_back(Wanted::Transfer(TransferJob::Whole { shard }));
    }

    fn ship_snapshot(&mut self, shard: ShardId, to: NodeId, at_least: Lsn) {
        let job = TransferJob::Ship { core: self.index, shard, to, at_least };
        self.wanted.push_back(Wanted::Transfer(job));
    }

    fn role_changed(&mut self, shard: ShardId, role: RoleName, epoch: millrace_replica::Epoch) {
        if role == RoleName::Owner {
            self.opened.push((shard, epoch.0));
        }
    }

    fn write_base(&mut self, _batch: &mut Batch, _shard: ShardId, _replica: &Replica) {}

    fn epoch_taken(&mut self, shard: ShardId, promised: Promised) {
        self.taken.push((shard, promised));
    }

    fn appoint_instead(&mut self, shard: ShardId, best: NodeId) {
        self.instead.push((shard, best));
    }

    fn has_planted(&self, bug: DriverBug) -> bool {
        self.bug.and_then(ClusterBug::of_driver) == Some(bug)
    }
}
