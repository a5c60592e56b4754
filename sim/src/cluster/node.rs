//! One node of a simulated cluster: its disk and checkpoint, which outlive it, and its cores while it runs.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millrace_base::{Lsn, ShardId, UnixMillis};
use millrace_driver::{
    Carrier, Core, CoreMetrics, CoreOptions, CoreParts, Destination, FlushPolicy, Frame, Hosted, Job, Placement,
    SnapshotPart, Standing, Submitted, TransferJob, Transfers, first_nonce,
};
use millrace_func::Limits;
use millrace_log::{AppendReport, Committed, Space};
use millrace_replica::{Epoch, LogEntry, Message, NodeId, Replica, ReplicaSet, Settings};
use millrace_shard::{Reply, ResultNames, Shard, ShardOptions, Token};
use millrace_store::{Checkpoint, MemoryCheckpoint, Store};

use super::ClusterBug;
use super::carrier::{SimCarrier, SnapshotFates};
use super::links::{Links, Loose, Received};
use super::platform::{ClusterPlatform, Disks, NodeClock, Now, Wanted};
use crate::core::SimEntropy;
use crate::engine::ScriptEngine;
use crate::net::{Fate, SimNet};
use crate::node::RETENTION_MS;
use crate::platform::SimWaiter;
use crate::random::Rng;
use crate::reads::Reads;
use crate::rig::APP;

/// The number of the only deployment.
const DEPLOYMENT: u32 = 1;

const QUEUE_MS: u64 = 5_000;
const MEMORY_BYTES: usize = 64 << 20;

/// How long shards promise to hold their locks.
const HOLD_MS: u64 = 300;

/// What all nodes share.
#[derive(Clone)]
pub struct Shared {
    pub now: Now,
    pub links: Links,
    /// Who holds each shard at first.
    pub sets: Vec<ReplicaSet>,
    pub shard_count: u16,
    pub bug: Option<ClusterBug>,
}

/// Who owns a shard and is to have it next, in which epoch, and who is to hold its log.
pub type News = (ShardId, (NodeId, Option<NodeId>), Epoch, Vec<NodeId>);

/// What replicas have said of their roles.
#[derive(Default)]
pub struct RoleNews {
    /// Shards with the epochs in which they were opened.
    pub opened: Vec<(ShardId, u64)>,
    /// Shards with what was promised instead of an appointment.
    pub taken: Vec<(ShardId, millrace_replica::Promised)>,
    /// Shards with who should have been appointed.
    pub instead: Vec<(ShardId, NodeId)>,
}

/// One core, and who waits for it.
pub struct Driven {
    pub core: Core<ClusterPlatform>,
    engine: Rc<ScriptEngine>,
    has_more: bool,
    /// The core's token, the client's, and who is woken.
    waiting: Vec<(Token, Token, SimWaiter)>,
}

/// The process of a node.
pub struct Process {
    pub cores: Vec<Driven>,
    transfers: Transfers,
    carrier: SimCarrier,
    net: SimNet,
    placement: Arc<Placement>,
}

/// See the module's documentation.
pub struct Node {
    pub id: NodeId,
    pub clock: NodeClock,
    disks: Disks,
    checkpoint: Arc<MemoryCheckpoint>,
    pub process: Option<Process>,
    /// How often it has started.
    pub starts: u64,
    /// It stands still until then.
    pub paused_until_ns: u64,
    /// One step in so many is its own.
    pub slowness: u64,
    pub next_tick_ns: u64,
    /// What guidance has decided and this node has not heard.
    pub news: VecDeque<News>,
    /// So many pieces of that it hears slowly.
    pub hears_slowly: u16,
    pub replies: Vec<(Token, Result<Reply, millrace_base::Error>)>,
    pub lost_records: u64,
    /// Whether its log is trimmed.
    pub trims: bool,
    /// What was trimmed since the last look.
    pub trimmed: Vec<(ShardId, LogEntry)>,
    /// What has become of snapshots.
    pub fates: Rc<SnapshotFates>,
}

impl Node {
    #[must_use]
    pub fn new(id: NodeId, clock: NodeClock) -> Self {
        Self {
            id,
            clock,
            disks: Disks::new(),
            checkpoint: Arc::new(MemoryCheckpoint::new()),
            process: None,
            starts: 0,
            paused_until_ns: 0,
            slowness: 1,
            next_tick_ns: 0,
            news: VecDeque::new(),
            hears_slowly: 0,
            replies: Vec::new(),
            lost_records: 0,
            trims: true,
            trimmed: Vec::new(),
            fates: Rc::default(),
        }
    }

    /// A node whose disk holds that, and whose checkpoint nothing.
    #[must_use]
    pub fn of_disks(id: NodeId, (clock, starts): (NodeClock, u64), disks: Disks) -> Self {
        Self { disks, starts, ..Self::new(id, clock) }
    }

    /// What its disk would hold after a power cut.
    #[must_use]
    pub fn disks(&self) -> Disks {
        self.disks.clone()
    }

    /// Has all cores stand still; gives the shards that are open here.
    pub fn stand_still(&mut self, for_ns: u64) -> Vec<Standing> {
        let cores = self.process.iter_mut().flat_map(|process| &mut process.cores);
        cores.flat_map(|driven| driven.core.stand_still(for_ns)).collect()
    }

    /// Has all cores go on.
    pub fn go_on(&mut self) {
        let cores = self.process.iter_mut().flat_map(|process| &mut process.cores);
        cores.for_each(|driven| driven.core.go_on());
    }

    /// Whether its disk has all of that.
    #[must_use]
    pub fn holds_all(&self, standing: &[Standing]) -> bool {
        self.process.as_ref().is_some_and(|process| process.cores.iter().all(|driven| driven.core.holds_all(standing)))
    }

    /// The number of its process, or 0 while it is down.
    #[must_use]
    pub fn process_number(&self) -> u64 {
        if self.process.is_some() { self.starts } else { 0 }
    }

    /// Recovers what the disk holds.
    ///
    /// # Panics
    /// When that cannot be read.
    pub fn start(&mut self, shared: &Shared, rng: &mut Rng) {
        self.starts += 1;
        let core_count = 1 + rng.index(2);
        let placement = Arc::new(Placement::in_turn(shared.shard_count, core_count));
        let net = SimNet::new(core_count);
        let mut hosted: Vec<Hosted> = placement.shards().map(|shard| self.recover(shard, shared, rng)).collect();
        let image = Rc::new(RefCell::new(self.disks.clone()));
        let mut cores = Vec::new();
        for index in 0..core_count {
            let platform = self.platform((index, shared), &net, &image);
            let mut driven = self.core(index, &placement, platform);
            let own = hosted.extract_if(.., |hosted| placement.core_of(hosted.shard) == index);
            own.for_each(|hosted| driven.core.host(hosted));
            cores.push(driven);
        }
        let carrier = SimCarrier {
            node: self.id,
            checkpoint: Arc::clone(&self.checkpoint),
            now: Rc::clone(&shared.now),
            links: shared.links.clone(),
            bug: shared.bug,
            rng: RefCell::new(Rng::new(rng.draw())),
            news: RefCell::default(),
            fates: Rc::clone(&self.fates),
        };
        self.process = Some(Process { cores, transfers: Transfers::default(), carrier, net, placement });
    }

    fn platform(&self, (index, shared): (usize, &Shared), net: &SimNet, image: &Rc<RefCell<Disks>>) -> ClusterPlatform {
        ClusterPlatform {
            node: self.id,
            index,
            process: self.starts,
            now: Rc::clone(&shared.now),
            clock: self.clock,
            net: net.clone(),
            links: shared.links.clone(),
            bug: shared.bug,
            is_awake: Cell::new(true),
            filling: Vec::new(),
            in_flight: None,
            image: Rc::clone(image),
            offloads: Vec::new(),
            reads: Reads::default(),
            chunks: VecDeque::new(),
            wanted: VecDeque::new(),
            opened: Vec::new(),
            taken: Vec::new(),
            instead: Vec::new(),
            is_breaking: false,
        }
    }

    fn core(&self, index: usize, placement: &Arc<Placement>, platform: ClusterPlatform) -> Driven {
        let engine = Rc::new(ScriptEngine::of_schedules(Vec::new()));
        let flush = FlushPolicy { log_bytes: u64::MAX, flush_after_ms: 200, chunk_bytes: 4096, gather_bytes: 1024 };
        let mut core = Core::new(CoreParts {
            options: CoreOptions {
                index,
                placement: Arc::clone(placement),
                queue_ms: QUEUE_MS,
                read_ahead: 64,
                memory_bytes: MEMORY_BYTES,
                flush,
                has_log: true,
                // Numbers of 8 bits: no run has so many starts.
                first_nonce: first_nonce(u64::from(self.id.0) << 5 | (self.starts & 31), index),
            },
            shards: placement.shards().map(|_| None).collect(),
            engine: Box::new(Rc::clone(&engine)),
            entropy: Box::new(SimEntropy(7)),
            metrics: Arc::new(CoreMetrics::default()),
            platform,
        });
        let app = ScriptEngine::app(APP, Limits::default());
        core.load(DEPLOYMENT, (&app, 1), |_, _, _| Ok(())).expect("every app loads");
        core.activate(DEPLOYMENT);
        Driven { core, engine, has_more: true, waiting: Vec::new() }
    }

    fn recover(&mut self, shard: ShardId, shared: &Shared, rng: &mut Rng) -> Hosted {
        let set = &shared.sets[usize::from(shard.0)];
        let mut disk = self.disks.get(&shard).cloned().unwrap_or_default();
        let checkpoint: Arc<dyn Checkpoint> = self.checkpoint.clone();
        let is_resetting = checkpoint.import_state(shard).expect("memory does not fail").is_resetting;
        let store = if is_resetting {
            disk.forget(disk.newest_set(set));
            millrace_shard::empty_store(&checkpoint, shard, 1)
        } else {
            millrace_shard::open_store(shard, Arc::clone(&checkpoint), 1)
        };
        let store = store.expect("memory does not fail");
        if !is_resetting {
            super::carrier::follow_snapshot(&mut disk, &*checkpoint, shard);
        }
        let recovered = disk.recover(set, store.lsn());
        let tail = disk.after(store.lsn(), usize::MAX);
        self.disks.insert(shard, disk);
        let now_ns =
            u64::try_from(u128::from(shared.now.get()) * u128::from(self.clock.rate) / 1_000).expect("a short run");
        let planted = shared.bug.and_then(ClusterBug::of_replica);
        let settings = Settings { planted, ..Settings::default() };
        let replica = Replica::start(self.id, settings, now_ns, rng.draw(), recovered);
        let options = ShardOptions {
            shard,
            shard_count: shared.shard_count,
            retention_ms: RETENTION_MS,
            result_names: ResultNames::Hashed([7; 16]),
            incarnation: 0,
            log_mates: Arc::new(BTreeSet::from([shard])),
            hold_ms: Some(HOLD_MS),
            is_durable_at_once: false,
        };
        Hosted { shard, replica, store, tail, options: Some(options) }
    }

    /// The process ends. Of the records on their way to the disk a first part is left. Gives the clients' tokens that nobody
    /// answers any more.
    pub fn crash(&mut self, rng: &mut Rng) -> Vec<Token> {
        let Some(mut process) = self.process.take() else { return Vec::new() };
        self.fates.note_crash(&process.transfers);
        for driven in &mut process.cores {
            let platform = &mut driven.core.platform;
            if let Some((_, records)) = platform.in_flight.take() {
                let kept = rng.index(records.len() + 1);
                self.lost_records += (records.len() - kept) as u64;
                self.write_down(&records[..kept]);
            }
            self.lost_records += driven.core.platform.filling.len() as u64;
        }
        self.news.clear();
        let waiting = process.cores.iter().flat_map(|driven| &driven.waiting);
        waiting.map(|(_, token, _)| *token).chain(self.replies.drain(..).map(|(token, _)| token)).collect()
    }

    /// A node that is down loses all that it had on disk. It knows that it was one of the cluster: its replicas may lack what they
    /// had acknowledged.
    pub fn lose_disk(&mut self, sets: &[ReplicaSet]) {
        self.disks.keys().copied().collect::<Vec<_>>().into_iter().for_each(|shard| self.note_gone(shard));
        self.checkpoint = Arc::new(MemoryCheckpoint::new());
        self.disks.clear();
        for (shard, set) in (0..).map(ShardId).zip(sets) {
            self.disks.entry(shard).or_default().forget(set.clone());
        }
    }

    /// Whether its replica of a shard may lack what it had acknowledged, or would after a crash: a snapshot comes.
    #[must_use]
    pub fn is_partial(&self, shard: ShardId) -> bool {
        let is_resetting = || self.checkpoint.import_state(shard).expect("memory does not fail").is_resetting;
        self.disks.get(&shard).is_some_and(|disk| disk.is_partial) || is_resetting()
    }

    fn write_down(&mut self, records: &[(ShardId, millrace_replica::Write)]) {
        for (shard, write) in records {
            self.disks.entry(*shard).or_default().write(write);
        }
    }

    /// A client's request comes to a core, under the client's token.
    pub fn request(&mut self, index: usize, token: Token, job: impl FnOnce(&mut Core<ClusterPlatform>) -> Job) {
        let Some(process) = &mut self.process else { return };
        let index = index % process.cores.len();
        let driven = &mut process.cores[index];
        let arrival = driven.core.enter();
        let job = job(&mut driven.core);
        match driven.core.submit(job, arrival) {
            Submitted::Answered(result) => self.replies.push((token, result)),
            Submitted::Pending(asked) => {
                let waiter = SimWaiter::default();
                match driven.core.poll_reply(asked, &waiter) {
                    Some(result) => self.replies.push((token, result)),
                    None => driven.waiting.push((asked, token, waiter)),
                }
            }
        }
        self.collect();
    }

    /// Takes the replies that are there.
    fn collect(&mut self) {
        let Some(process) = &mut self.process else { return };
        for Driven { core, waiting, .. } in &mut process.cores {
            let replies = &mut self.replies;
            waiting.retain(|(asked, token, waiter)| {
                let reply = if waiter.take() { core.poll_reply(*asked, waiter) } else { None };
                let is_open = reply.is_none();
                replies.extend(reply.map(|reply| (*token, reply)));
                is_open
            });
        }
    }

    /// Something has come from another node.
    ///
    /// # Panics
    /// When a frame does not decode.
    pub fn receive(&mut self, from: NodeId, received: Received) {
        if let Received::Loose(Loose::Snapshot(shard, _, SnapshotPart::Offer { .. })) = &received {
            self.note_gone(*shard);
        }
        let Some(process) = &mut self.process else { return };
        match received {
            // The rows that it is about have to be installed first.
            Received::Loose(Loose::Replica(shard, message @ Message::Snapshot { .. })) => {
                process.transfers.handle(&process.carrier, TransferJob::Finish { shard, from, message });
            }
            Received::Loose(Loose::Snapshot(shard, transfer, SnapshotPart::Offer { at })) => {
                let core = &mut process.cores[process.placement.core_of(shard)].core;
                match core.snapshot_offered(shard, (from, transfer, at)) {
                    Some(job) => {
                        core.platform.chunks.retain(|(flushed, _)| *flushed != shard);
                        process.transfers.handle(&process.carrier, job);
                    }
                    None => process.carrier.say(from, shard, transfer, SnapshotPart::Refused),
                }
            }
            Received::Loose(Loose::Snapshot(shard, transfer, part)) => {
                process.transfers.handle(&process.carrier, TransferJob::Heard { from, shard, transfer, part });
            }
            Received::Loose(Loose::Replica(shard, message)) => {
                let core = process.placement.core_of(shard);
                process.cores[core].core.receive(shard, from, message);
            }
            Received::Loose(Loose::Mail(bytes)) => {
                if let Frame::Mail(mail) = Frame::decode(&bytes).expect("frames decode") {
                    let core = process.placement.core_of(mail.shard());
                    hand_over(&mut process.cores[core].core, mail, Core::handle_mail);
                }
            }
            Received::Firm(destination, bytes) => {
                let Frame::Message(message) = Frame::decode(&bytes).expect("frames decode") else { return };
                let cores = match destination {
                    Destination::Shard(shard) => process.placement.core_of(shard)..process.placement.core_of(shard) + 1,
                    Destination::Core(core) => core..core + 1,
                    Destination::Every => 0..process.cores.len(),
                };
                for core in cores {
                    // A reply for a core that an earlier process had.
                    if let Some(driven) = process.cores.get_mut(core) {
                        hand_over(&mut driven.core, message.clone(), Core::handle);
                    }
                }
            }
        }
        self.collect();
    }

    /// The process of another node is a new one, or the node is dead by guidance.
    pub fn peer_is_new(&mut self, other: NodeId, is_lost: bool) {
        let Some(process) = &mut self.process else { return };
        for driven in &mut process.cores {
            if is_lost { driven.core.peer_lost(other) } else { driven.core.peer_restarted(other) }
        }
        self.collect();
    }

    /// Hears the next of what guidance has decided.
    pub fn hear_news(&mut self) {
        let (Some(process), Some(news)) = (&mut self.process, self.news.pop_front()) else { return };
        self.hears_slowly = self.hears_slowly.saturating_sub(1);
        let (shard, owner, epoch, holders) = news;
        for driven in &mut process.cores {
            driven.core.guided(shard, owner, epoch, &holders);
        }
        self.collect();
    }

    /// Time has passed.
    pub fn tick(&mut self) {
        let Some(process) = &mut self.process else { return };
        for driven in &mut process.cores {
            for (other, is_linked) in driven.core.platform.links.others(self.id) {
                let core = &mut driven.core;
                if is_linked { core.peer_linked(other) } else { core.peer_unlinked(other) }
            }
            driven.core.tick();
        }
        process.transfers.tick(&process.carrier);
        self.collect();
    }

    /// Does some of what the cores want done; all of it, if it is not at random.
    pub fn work(&mut self, rng: &mut Rng, is_random: bool) {
        let Some(process) = &mut self.process else { return };
        for index in 0..process.cores.len() {
            let is_chosen = |rng: &mut Rng, of: u64| !is_random || rng.chance(1, of);
            let Some(process) = &mut self.process else { return };
            for _ in 0..8 {
                let fate = if is_random { rng.index(4) } else { 0 };
                let fate = Fate { overtaken_by: fate, is_lost: is_random && rng.chance(1, 12), is_doubled: false };
                let Some(received) = process.net.receive(index, fate) else { break };
                if !received.is_lost {
                    let core = &mut process.cores[index].core;
                    match received.frame {
                        Frame::Message(message) => hand_over(core, message, Core::handle),
                        Frame::Mail(mail) => hand_over(core, mail, Core::handle_mail),
                    }
                }
            }
            let driven = &mut process.cores[index];
            if is_chosen(rng, 2) && (driven.core.platform.is_awake.take() || driven.has_more) {
                driven.has_more = driven.core.end_round();
            }
            while is_chosen(rng, 3) && !driven.core.platform.offloads.is_empty() {
                let choice = rng.index(driven.core.platform.offloads.len());
                let ticket = driven.core.platform.offloads.swap_remove(choice);
                driven.core.offloaded(ticket, Ok(Bytes::from_static(b"null")));
            }
            while is_chosen(rng, 3) && driven.core.platform.reads.count() > 0 {
                if let Some(rows) = driven.core.platform.reads.go_on(rng.draw()) {
                    driven.core.rows_read(rows);
                }
            }
            if is_chosen(rng, 3) {
                self.end_commit(index);
            }
            if is_chosen(rng, 4) {
                self.do_wanted(index);
                self.write_chunk(index);
                self.hear_of_snapshots(rng.draw());
            }
        }
        self.collect();
    }

    fn end_commit(&mut self, index: usize) {
        let Some(process) = &mut self.process else { return };
        let Some((batch, records)) = process.cores[index].core.platform.in_flight.take() else { return };
        self.write_down(&records);
        let Some(process) = &mut self.process else { return };
        let report =
            AppendReport { bytes: 0, entries: 0, write_us: 0, sync_us: 0, space: Space::Enough, began_segment: false };
        process.cores[index].core.committed(Committed::Durable { batch, report });
    }

    fn do_wanted(&mut self, index: usize) {
        let Some(process) = &mut self.process else { return };
        let core = &mut process.cores[index].core;
        match core.platform.wanted.pop_front() {
            Some(Wanted::ReadLog(shard, to, after, bytes)) => {
                let entries = core
                    .platform
                    .image
                    .borrow()
                    .get(&shard)
                    .map(|disk| disk.after(after.lsn, bytes))
                    .unwrap_or_default();
                core.log_read(shard, to, after, entries);
            }
            Some(Wanted::Reopen(shard, up_to)) => {
                let checkpoint: Arc<dyn Checkpoint> = self.checkpoint.clone();
                // A snapshot may be on its way into the rows.
                let opened = millrace_shard::open_store(shard, checkpoint, 1);
                let Ok(mut store) = opened else { return core.reopen_failed(shard, "its rows are being replaced") };
                let entries = core.platform.image.borrow().get(&shard).map(|disk| disk.after(store.lsn(), usize::MAX));
                for entry in entries.into_iter().flatten().filter(|entry| entry.id.lsn <= up_to) {
                    super::world::apply(&mut store, &entry);
                }
                core.reopened(shard, store);
            }
            Some(Wanted::Trim(shard, lsn)) => self.trim(index, shard, lsn),
            Some(Wanted::Transfer(job)) => {
                if let TransferJob::Whole { shard } = job {
                    let mut image = core.platform.image.borrow_mut();
                    let disks = [image.get_mut(&shard), self.disks.get_mut(&shard)];
                    disks.into_iter().flatten().for_each(|disk| disk.is_partial = false);
                }
                process.transfers.handle(&process.carrier, job);
            }
            None => {}
        }
    }

    /// The log goes up to where the checkpoint and the replica have let go of it.
    fn trim(&mut self, index: usize, shard: ShardId, lsn: Lsn) {
        let Some(process) = &mut self.process else { return };
        let is_resetting = self.checkpoint.import_state(shard).expect("memory does not fail").is_resetting;
        if is_resetting || !self.trims {
            return;
        }
        let core = &mut process.cores[index].core;
        let now_ns = process.carrier.monotonic_ns();
        let up_to = core.trimmed(shard, lsn.min(process.transfers.floor(shard, now_ns)));
        if let Some(disk) = core.platform.image.borrow_mut().get_mut(&shard) {
            disk.trim(up_to);
        }
        if let Some(disk) = self.disks.get_mut(&shard) {
            self.trimmed.extend(disk.trim(up_to).into_iter().map(|entry| (shard, entry)));
        }
    }

    /// The log of a shard will be gone. Somebody may have got a snapshot instead of its entries.
    fn note_gone(&mut self, shard: ShardId) {
        let lsn = self.checkpoint.lsn(shard).expect("memory does not fail");
        let entries = self.disks.get(&shard).into_iter().flat_map(|disk| &disk.entries);
        let gone = entries.filter(|entry| entry.id.lsn <= lsn).map(|entry| (shard, entry.clone()));
        self.trimmed.extend(gone);
    }

    /// Cores hear what has become of snapshots.
    fn hear_of_snapshots(&mut self, nonce: u64) {
        let Some(process) = &mut self.process else { return };
        for (core, news) in process.carrier.news.take() {
            process.cores[core].core.hear_of_snapshot(news, nonce);
        }
    }

    /// Since the entry `agreed` of its log the node holds a shard no more. Says whether it had something to forget.
    pub fn forget(&mut self, shard: ShardId, agreed: Lsn) -> bool {
        self.note_gone(shard);
        let Some(core) = self.core_of(shard) else { return false };
        let has_begun = core.begin_forget(shard, agreed);
        if has_begun {
            core.platform.chunks.retain(|(flushed, _)| *flushed != shard);
            let core_index = core.platform.index;
            core.platform.wanted.push_back(Wanted::Transfer(TransferJob::Forget { core: core_index, shard }));
        }
        has_begun
    }

    /// Who holds the log of a shard that is open here in that epoch, and where in the log that was agreed on.
    pub fn held(&mut self, shard: ShardId, epoch: u64) -> Option<(Lsn, ReplicaSet)> {
        let core = self.core_of(shard)?;
        core.serving(shard).filter(|serving| serving.0 == epoch)?;
        core.replica(shard).map(|replica| replica.log().committed_set().clone())
    }

    fn write_chunk(&mut self, index: usize) {
        let Some(process) = &mut self.process else { return };
        let core = &mut process.cores[index].core;
        if let Some((shard, chunk)) = core.platform.chunks.pop_front() {
            self.checkpoint.write(shard, &chunk).expect("memory does not fail");
            core.flushed(shard, &chunk, Ok(()));
        }
    }

    /// The core of a shard, while the node runs.
    pub fn core_of(&mut self, shard: ShardId) -> Option<&mut Core<ClusterPlatform>> {
        let process = self.process.as_mut()?;
        let core = process.placement.core_of(shard);
        Some(&mut process.cores[core].core)
    }

    /// An invariant of a shard breaks, if it is open here. Says whether it was.
    pub fn break_shard(&mut self, shard: ShardId) -> bool {
        if self.serving(shard).is_none() {
            return false;
        }
        let Some(core) = self.core_of(shard) else { return false };
        core.platform.is_breaking = true;
        core.stop_shard(shard, "it was broken on purpose");
        core.platform.is_breaking = false;
        true
    }

    /// The epoch in which a shard is open here.
    pub fn serving(&mut self, shard: ShardId) -> Option<Epoch> {
        self.core_of(shard)?.serving(shard)
    }

    /// Shards that were opened here since the last look, and appointments that could not be followed.
    pub fn take_role_news(&mut self) -> RoleNews {
        let mut news = RoleNews::default();
        for driven in self.process.iter_mut().flat_map(|process| &mut process.cores) {
            news.opened.append(&mut driven.core.platform.opened);
            news.taken.append(&mut driven.core.platform.taken);
            news.instead.append(&mut driven.core.platform.instead);
        }
        news
    }

    /// The log of a shard as the node reads it.
    pub fn entries(&mut self, shard: ShardId) -> Vec<millrace_replica::LogEntry> {
        let core = self.core_of(shard);
        core.and_then(|core| core.platform.image.borrow().get(&shard).map(|disk| disk.entries.clone()))
            .unwrap_or_default()
    }

    /// The last entry of a shard's log, and the last one that its state reflects.
    pub fn position(&mut self, shard: ShardId) -> Option<(u64, u64)> {
        let core = self.core_of(shard)?;
        let logged = core.platform.image.borrow().get(&shard).map_or(0, |disk| disk.last().0);
        Some((logged, store_of(core, shard)?.lsn().0)).filter(|(logged, applied)| logged == applied)
    }

    /// Whether nothing is under way but timers.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_idle = |driven: &Driven| {
            let platform = &driven.core.platform;
            driven.core.is_idle() && !driven.has_more && platform.wanted.is_empty() && platform.in_flight.is_none()
        };
        let rests = |process: &Process| {
            process.net.is_empty() && !process.transfers.is_busy() && process.carrier.news.borrow().is_empty()
        };
        self.process.as_ref().is_none_or(|process| rests(process) && process.cores.iter().all(is_idle))
    }

    /// What should not be there when nothing is under way.
    #[must_use]
    pub fn left_at_rest(&self) -> Vec<(&'static str, usize)> {
        let Some(process) = &self.process else { return Vec::new() };
        let activations = |driven: &Driven| {
            driven.core.live_activations() + driven.engine.waiting_activations() + driven.core.unplaced_routes()
        };
        let sum =
            |count: fn(&Shard) -> usize| process.cores.iter().flat_map(|driven| driven.core.shards()).map(count).sum();
        vec![
            ("live frames", process.cores.iter().map(activations).sum()),
            ("waiting transactions", sum(|shard| shard.figures().waiting)),
            ("locked entities", sum(|shard| shard.figures().locked_entities)),
            ("held replies", sum(|shard| shard.figures().held_replies)),
            ("unfinished transactions", sum(|shard| shard.figures().unfinished)),
            ("unanswered requests", process.cores.iter().map(|driven| driven.core.open_requests()).sum()),
        ]
    }

    /// The time of day.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        self.process.as_ref().map_or(UnixMillis(0), |process| process.cores[0].core.now())
    }
}

/// The state of a shard, whether it is open here or not.
pub fn store_of(core: &mut Core<ClusterPlatform>, shard: ShardId) -> Option<&mut Store> {
    if core.shard_mut(shard).is_some() {
        return core.shard_mut(shard).map(Shard::store);
    }
    core.hosted_store(shard)
}

fn hand_over<M>(core: &mut Core<ClusterPlatform>, message: M, handle: fn(&mut Core<ClusterPlatform>, M)) {
    core.handle_for_a_round(&mut std::iter::once(message), handle);
}

/// All nodes by their number.
pub type Nodes = BTreeMap<NodeId, Node>;

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
