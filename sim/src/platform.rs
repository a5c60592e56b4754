//! The simulated machine around one core: what the core asked for waits here until a step of the world does it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use millrace_base::{Lsn, ShardId};
use millrace_driver::{CoreMessage, DriverBug, Frame, Placement, Platform, ShardMail, Waiter};
use millrace_format::{Entry, Write};
use millrace_func::{FetchRequest, Offload, Program, WorkerTurn};
use millrace_io::{Clock, Net};
use millrace_log::{Batch, Segments};
use millrace_shard::OffloadTicket;
use millrace_store::{ColdRead, FlushChunk};

use crate::bugs::{Late, PlantedBug};
use crate::core::LoggedEntry;
use crate::happened::{Happened, Thing};
use crate::net::SimNet;
use crate::node::Unwritten;
use crate::reads::Reads;

/// A client's connection, or whoever else waits: it notes that it was woken.
#[derive(Clone, Debug, Default)]
pub struct SimWaiter(Rc<Cell<bool>>);

impl SimWaiter {
    /// Whether it was woken since it was asked last.
    #[must_use]
    pub fn take(&self) -> bool {
        self.0.take()
    }
}

impl Waiter for SimWaiter {
    fn wake(self) {
        self.0.set(true);
    }

    fn will_wake(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

/// Time that passes while cores work, over all cores of a node: each look at the clock takes some.
#[derive(Clone, Debug)]
pub struct WorkTime {
    passed_ns: Rc<Cell<u64>>,
    look_ns: u64,
}

impl WorkTime {
    #[must_use]
    pub fn new(look_ns: u64) -> Self {
        Self { passed_ns: Rc::default(), look_ns }
    }

    fn look(&self) -> u64 {
        self.passed_ns.set(self.passed_ns.get() + self.look_ns);
        self.passed_ns.get()
    }
}

/// See the module's documentation.
pub struct SimPlatform {
    pub clock: Arc<dyn Clock>,
    pub work_time: WorkTime,
    pub net: SimNet,
    pub placement: Arc<Placement>,
    pub segments: Segments,
    pub bug: Option<PlantedBug>,
    pub late: Late,
    /// The core wants its round to be ended.
    pub is_awake: Cell<bool>,
    /// Entries that were made since the last step.
    pub entries: Vec<LoggedEntry>,
    /// The batch on its way to the disk.
    pub in_flight: Option<Batch>,
    /// The entries of both batches, if shards may fail alone.
    pub unwritten: Option<Unwritten>,
    /// A shard has failed while the batch was being filled.
    pub has_lost: bool,
    pub offloads: Vec<OffloadTicket>,
    /// Turns for workers.
    pub exchanges: Vec<(OffloadTicket, WorkerTurn)>,
    pub reads: Reads,
    pub chunks: VecDeque<(ShardId, FlushChunk)>,
    pub happened: Happened,
}

fn is_decision(write: &Write) -> bool {
    write.value.is_some() && write.entity.is_internal() && write.entity.parts().service == "decision"
}

impl Net<CoreMessage> for SimPlatform {
    fn send(&self, peer: usize, frame: CoreMessage) -> bool {
        Net::send(&self.net, peer, frame)
    }
}

impl Net<ShardMail> for SimPlatform {
    fn send(&self, peer: usize, frame: ShardMail) -> bool {
        Net::send(&self.net, peer, frame)
    }
}

impl Platform for SimPlatform {
    type Waiter = SimWaiter;

    fn now_ms(&self) -> u64 {
        self.clock.now()
    }

    fn monotonic_ns(&self) -> u64 {
        self.clock.monotonic_ns() + self.work_time.look()
    }

    fn wake(&self) {
        self.is_awake.set(true);
    }

    fn append(&mut self, batch: &mut Batch, entry: &Entry<'_>) {
        let Entry { shard, lsn, time, writes } = *entry;
        let entry = LoggedEntry { shard, lsn, time, writes: writes.to_vec() };
        let logged = self.late.log(self.bug, &entry);
        batch.push(&logged.as_entry());
        if let Some(unwritten) = &mut self.unwritten {
            unwritten.filling.push(logged);
        }
        for (to, message) in PlantedBug::early_commits(self.bug, &entry) {
            self.net.send(self.placement.core_of(to), &Frame::Message(CoreMessage::Peer { to, message }));
        }
        let decisions = entry.writes.iter().filter(|write| is_decision(write)).count();
        self.happened.note_many(Thing::Decided, decisions as u64);
        self.entries.push(entry);
    }

    fn commit(&mut self, batch: Batch) {
        assert!(self.in_flight.is_none(), "one batch of a core is under way at a time");
        self.in_flight = Some(self.without_lost(batch));
    }

    fn offload(&mut self, ticket: OffloadTicket, _work: Offload) {
        self.offloads.push(ticket);
    }

    fn fetch(&mut self, ticket: OffloadTicket, _request: FetchRequest) {
        self.offloads.push(ticket);
    }

    fn exchange(&mut self, ticket: OffloadTicket, turn: WorkerTurn) {
        self.exchanges.push((ticket, turn));
    }

    fn read_rows(&mut self, read: ColdRead) {
        self.reads.ask(read);
    }

    fn write_chunk(&mut self, shard: ShardId, chunk: FlushChunk) {
        self.chunks.push_back((shard, chunk));
    }

    /// The world deletes segments in steps of its own.
    fn checkpointed(&mut self, _shard: ShardId, _lsn: Lsn) {}

    fn closed_log_bytes(&self) -> u64 {
        self.segments.closed_bytes()
    }

    fn unloaded(&mut self, _programs: &[Program]) {}

    fn shard_stopped(&mut self, broken: Option<&str>) {
        match broken {
            // A broken assertion is a finding.
            Some(reason) => panic!("{reason}"),
            None => self.happened.note(Thing::ShardStopped),
        }
    }

    fn read_only_changed(&mut self, _is_read_only: bool) {}

    fn has_planted(&self, bug: DriverBug) -> bool {
        self.bug.and_then(PlantedBug::of_driver) == Some(bug)
    }
}
