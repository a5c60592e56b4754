//! The machine around a core: channels to the other cores, the committer's and the flusher's threads, the runtime's.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use millrace_base::{Error, ErrorCode, Lsn, ShardId};
use millrace_blobs::BodyName;
use millrace_driver::{ALONE, CoreMessage, Destination, Frame, Platform, ShardMail, TransferJob};
use millrace_func::{FetchRequest, Offload, Program, WorkerTurn};
use millrace_io::Net;
use millrace_log::{Batch, Committer};
use millrace_peers::Lane;
use millrace_replica::{EntryId, Epoch, Message, NodeId, Promised, Replica, RoleName, Write};
use millrace_shard::OffloadTicket;
use millrace_store::{ColdRead, FlushChunk};
use tokio::sync::Notify;

use crate::cluster::{For, Hindrance, Word, records};
use crate::core::{NodeMessage, Shared};
use crate::flusher::FlushJob;
use crate::metrics::HandlerMetric;
use crate::objects::{obtain, read_whole};
use crate::versions;

/// See the module's documentation.
pub(crate) struct CorePlatform {
    pub index: usize,
    pub shared: Arc<Shared>,
    /// `None` with `durability = "none"`.
    pub committer: Option<Committer>,
    /// Wakes the pump: there is a batch to commit or a queue to run.
    pub pump: Rc<Notify>,
    /// Each program's numbers: by service, handlers first, then routes.
    pub numbers: BTreeMap<Program, Vec<Vec<Arc<HandlerMetric>>>>,
    /// Nodes for which messages wait until the round ends.
    unflushed: BTreeSet<NodeId>,
    /// A shard was opened here since the last round.
    pub has_opened: bool,
}

impl CorePlatform {
    pub(crate) fn new(index: usize, shared: Arc<Shared>) -> Self {
        Self {
            index,
            shared,
            committer: None,
            pump: Rc::default(),
            numbers: BTreeMap::new(),
            unflushed: BTreeSet::new(),
            has_opened: false,
        }
    }

    /// Sends a message to this core itself, from any thread.
    fn own_sender(&self) -> impl FnOnce(NodeMessage) + Send + use<> {
        let (shared, core) = (Arc::clone(&self.shared), self.index);
        move |message| {
            shared.send(core, message);
        }
    }

    /// Whether this node is one of a cluster.
    pub(crate) fn is_in_cluster(&self) -> bool {
        self.shared.cluster.is_some()
    }

    /// A message waits for the other node. One write takes all messages of the round.
    fn flush_after_round(&mut self, to: NodeId) {
        if self.unflushed.insert(to) {
            self.pump.notify_one();
        }
    }

    /// Writes what waits for other nodes.
    pub(crate) fn flush_links(&mut self) {
        let Some(cluster) = self.shared.cluster.as_ref().filter(|_| !self.unflushed.is_empty()) else { return };
        while let Some(to) = self.unflushed.pop_first() {
            cluster.flush(to);
        }
    }

    fn is_meta(&self, shard: ShardId) -> bool {
        shard.0 == self.shared.shard_count()
    }

    /// Programs were unloaded: what was kept for their sake, and that no other needs, goes.
    pub(crate) fn forget(&mut self, programs: &[Program]) {
        for program in programs {
            self.numbers.remove(program);
            self.shared.outside.workers.forget(*program);
        }
        self.shared.handlers.forget_unused();
        tokio::task::spawn_local(versions::forget(Arc::clone(&self.shared)));
    }
}

impl Net<CoreMessage> for CorePlatform {
    fn send(&self, peer: usize, message: CoreMessage) -> bool {
        self.shared.send(peer, NodeMessage::OfCore(message))
    }
}

/// Mail has its own channel: what requests and transactions wait for does not stand behind it.
impl Net<ShardMail> for CorePlatform {
    fn send(&self, peer: usize, mail: ShardMail) -> bool {
        self.shared.post(peer, mail)
    }
}

impl Platform for CorePlatform {
    type Waiter = Waker;

    fn now_ms(&self) -> u64 {
        self.shared.clock.now()
    }

    fn monotonic_ns(&self) -> u64 {
        self.shared.clock.monotonic_ns()
    }

    fn wake(&self) {
        self.pump.notify_one();
    }

    fn commit(&mut self, batch: Batch) {
        if let Some(committer) = &self.committer {
            committer.submit(batch);
        }
    }

    fn node(&self) -> NodeId {
        self.shared.cluster.as_ref().map_or(ALONE, |cluster| cluster.me())
    }

    fn send_node(&mut self, to: NodeId, destination: Destination, message: CoreMessage) -> bool {
        let word = Word::Frame(destination.into(), Frame::Message(message));
        let is_taken = self.shared.cluster.as_ref().is_some_and(|cluster| cluster.queue(to, Lane::Core, &word));
        self.flush_after_round(to);
        is_taken
    }

    fn send_node_mail(&mut self, to: NodeId, mail: ShardMail) {
        if let Some(cluster) = &self.shared.cluster {
            cluster.queue(to, Lane::Mail, &Word::Frame(For::Shard, Frame::Mail(mail)));
            self.flush_after_round(to);
        }
    }

    fn send_replica(&mut self, to: NodeId, shard: ShardId, message: Message) {
        if let Some(cluster) = &self.shared.cluster {
            cluster.queue(to, Lane::Replica, &Word::Replica(shard, message));
            self.flush_after_round(to);
        }
    }

    fn write_replica(&mut self, batch: &mut Batch, shard: ShardId, write: &Write) {
        if matches!(write, Write::Append(_)) || matches!(write, Write::Reset { at, .. } if at.lsn > Lsn::ZERO) {
            // Before the log has it.
            self.shared.note_emptied(shard, false);
        }
        records::push(batch, shard, write);
    }

    fn write_base(&mut self, batch: &mut Batch, shard: ShardId, replica: &Replica) {
        if let Some(cluster) = &self.shared.cluster {
            cluster.write_base(batch, shard, replica);
        }
    }

    fn read_log(&mut self, shard: ShardId, to: NodeId, after: EntryId, bytes: usize) {
        // It takes the replica to know what is in the log.
        self.shared.send(self.index, NodeMessage::ReadLog { shard, to, after, bytes });
    }

    fn reopen(&mut self, shard: ShardId, up_to: Lsn) {
        self.shared.send(self.index, NodeMessage::Reopen { shard, up_to });
    }

    fn ship_snapshot(&mut self, shard: ShardId, to: NodeId, at_least: Lsn) {
        self.shared.flusher.snapshot(TransferJob::Ship { core: self.index, shard, to, at_least });
    }

    fn whole(&mut self, shard: ShardId) {
        self.shared.flusher.snapshot(TransferJob::Whole { shard });
    }

    fn applied(&mut self, _shard: ShardId, _lsn: Lsn) {
        if let Some(cluster) = &self.shared.cluster {
            cluster.wake.notify_one();
        }
    }

    fn role_changed(&mut self, shard: ShardId, role: RoleName, epoch: Epoch) {
        let Some(cluster) = &self.shared.cluster else { return };
        if self.is_meta(shard) {
            cluster.set_meta_role(role, epoch);
        } else if role == RoleName::Owner {
            self.has_opened = true;
        }
    }

    fn epoch_taken(&mut self, shard: ShardId, promised: Promised) {
        if let Some(cluster) = &self.shared.cluster {
            cluster.hindered(shard, Hindrance::EpochTaken(promised.epoch));
        }
    }

    fn appoint_instead(&mut self, shard: ShardId, best: NodeId) {
        if let Some(cluster) = &self.shared.cluster {
            cluster.hindered(shard, Hindrance::AppointInstead(best));
        }
    }

    fn offload(&mut self, ticket: OffloadTicket, work: Offload) {
        let send = self.own_sender();
        if let Offload::ReadBodies { numbers } = work {
            let (bodies, carrier) = (self.shared.bodies.clone(), self.shared.carrier.clone());
            tokio::task::spawn_local(async move {
                obtain(carrier, ticket.shard, &numbers).await;
                let result = read_whole(bodies.as_ref(), ticket.shard, numbers).await;
                send(NodeMessage::Offloaded { ticket, result });
            });
            return;
        }
        // The runtime's blocking threads; their number is bounded where the runtime is built.
        tokio::task::spawn_blocking(move || {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work.run()));
            let failed = |_| Err(Error::new(ErrorCode::Internal, "the hash could not be computed"));
            send(NodeMessage::Offloaded { ticket, result: result.unwrap_or_else(failed) });
        });
    }

    /// The request is given up when the core ends.
    fn fetch(&mut self, ticket: OffloadTicket, request: FetchRequest) {
        let (send, fetching) = (self.own_sender(), self.shared.outside.fetcher.fetch(request));
        tokio::task::spawn_local(async move {
            let result = fetching.await.map(|response| response.to_json());
            send(NodeMessage::Offloaded { ticket, result });
        });
    }

    fn exchange(&mut self, ticket: OffloadTicket, turn: WorkerTurn) {
        let (send, exchanging) = (self.own_sender(), self.shared.outside.workers.exchange(turn));
        tokio::task::spawn_local(async move {
            let result = exchanging.await;
            send(NodeMessage::Exchanged { ticket, result });
        });
    }

    fn read_rows(&mut self, read: ColdRead) {
        let send = self.own_sender();
        self.shared.readers.read(read, move |rows| send(NodeMessage::RowsRead(rows)));
    }

    fn write_chunk(&mut self, shard: ShardId, chunk: FlushChunk) {
        self.shared.flusher.write(FlushJob { core: self.index, shard, chunk });
    }

    fn checkpointed(&mut self, shard: ShardId, lsn: Lsn) {
        self.shared.checkpointed[usize::from(shard.0)].store(lsn.0, Ordering::Release);
        self.shared.flusher.truncate_log();
    }

    fn have_bodies(&self, shard: ShardId, nodes: &BTreeSet<NodeId>) -> bool {
        self.shared.cluster.as_ref().is_none_or(|cluster| cluster.have_bodies(shard, nodes))
    }

    fn closed_log_bytes(&self) -> u64 {
        self.shared.segments.closed_bytes()
    }

    fn unloaded(&mut self, programs: &[Program]) {
        self.forget(programs);
    }

    fn release_body(&mut self, shard: ShardId, number: u64) {
        if let Some(bodies) = &self.shared.bodies {
            bodies.free(BodyName { shard, number });
        }
        if let Some(carrier) = &self.shared.carrier {
            carrier.freed(BodyName { shard, number });
        }
    }

    fn shard_stopped(&mut self, _broken: Option<&str>) {
        self.shared.stopped_shards.fetch_add(1, Ordering::Relaxed);
    }

    fn read_only_changed(&mut self, is_read_only: bool) {
        let cores = &self.shared.read_only_cores;
        if is_read_only {
            cores.fetch_add(1, Ordering::Relaxed)
        } else {
            cores.fetch_sub(1, Ordering::Relaxed)
        };
    }
}
