//! A simulated node: the shipped driver of each core, with a stream of the real log. Each shard has a store over a
//! checkpoint. A network connects the cores.
//!
//! It does what the threads of the real node do, one step at a time and on one thread. Whoever drives it says which step
//! comes next. A step that meets a crash of the disk leaves the node useless; the caller asks the disk after every step.

mod alone;
mod beside;
mod on_workers;
mod quiet;
mod rest;
#[cfg(test)]
mod times;

use millrace_shard::Input;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millrace_base::{Lsn, ShardId, UnixMillis};
use millrace_driver::{
    Core, CoreMessage, CoreMetrics, CoreOptions, CoreParts, FlushPolicy, Frame, Job, Placement, ShardMail, Submitted,
    first_nonce,
};
use millrace_format::EntryRef;
use millrace_func::{Catalog, Limits};
use millrace_io::{Clock, Disk, Random};
use millrace_log::{
    AppendReport, Batch, Committed, Durability, Environment, LogError, RecoverError, Segments, Space, Writer,
    WriterOptions, recover,
};
use millrace_manifest::{Manifest, ManifestError};
use millrace_shard::{PeerBody, PeerMessage, Reply, ResultNames, Shard, ShardOptions, ToCoordinator, Token};
use millrace_store::{Checkpoint, MemoryCheckpoint, Store, StoreError};

use crate::bugs::{BuggyDisk, Late, PlantedBug};
use crate::core::{LoggedEntry, SimEntropy};
use crate::disk::SimDisk;
use crate::engine::ScriptEngine;
use crate::happened::{Happened, Thing};
use crate::net::{Fate, Received, SimNet};
use crate::platform::{SimPlatform, SimWaiter, WorkTime};
use crate::reads::Reads;
use crate::rig::APP;
use crate::workers::{WorkerPlan, Workers};
use crate::workload;
use alone::News;
pub use alone::Unwritten;

/// Log segments are small, so that they fill, roll and go within a short run.
const FIRST_SEGMENT_BYTES: u64 = 16 << 10;
const SEGMENT_BYTES: u64 = 32 << 10;

/// How long a request may wait for its core.
const QUEUE_MS: u64 = 500;

/// More than a run fills.
const MEMORY_BYTES: usize = 64 << 20;

/// The number of the only deployment.
const DEPLOYMENT: u32 = 1;

/// How long the reply to a request with an idempotency key is kept.
pub const RETENTION_MS: u64 = 24 * HOUR_MS;

pub const HOUR_MS: u64 = 60 * 60 * 1_000;

fn retention_ms(bug: Option<PlantedBug>) -> u64 {
    match bug {
        Some(PlantedBug::ForgetKeysTooEarly) => RETENTION_MS / 24,
        Some(PlantedBug::KeepKeysTooLong) => RETENTION_MS * 24,
        _ => RETENTION_MS,
    }
}

/// The world below a node: what outlives it.
#[derive(Clone)]
pub struct Machine {
    pub disk: SimDisk,
    pub checkpoint: Arc<MemoryCheckpoint>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub shard_count: u16,
    pub result_names: ResultNames,
    /// If the app's handlers run in workers.
    pub workers: Option<WorkerPlan>,
    pub bug: Option<PlantedBug>,
}

/// Why a node did not start.
#[derive(Debug)]
pub enum StartError {
    Log(RecoverError),
    Manifest(ManifestError),
    Writer(LogError),
    Store(StoreError),
}

impl Machine {
    fn manifest(&self) -> Result<Manifest, StartError> {
        let disk = self.log_disk();
        Ok(Manifest::open(&disk).map_err(StartError::Manifest)?.unwrap_or_else(|| Manifest::new(&disk, [7; 16])))
    }

    fn log_disk(&self) -> Arc<dyn Disk> {
        Arc::new(BuggyDisk { disk: Arc::new(self.disk.clone()), bug: self.bug })
    }

    /// The stores as a start would find them, and what recovery says beside.
    ///
    /// # Errors
    /// [`StartError`] when the log or the checkpoint refuses.
    pub fn recover_stores(&self) -> Result<(BTreeMap<ShardId, Store>, u64, Segments), StartError> {
        self.recover_stores_keeping(&mut |_| {})
    }

    /// The same; `keep` gets every entry that is replayed.
    fn recover_stores_keeping(
        &self,
        keep: &mut dyn FnMut(&EntryRef<'_>),
    ) -> Result<(BTreeMap<ShardId, Store>, u64, Segments), StartError> {
        let checkpoint: Arc<dyn Checkpoint> = self.checkpoint.clone();
        let mut stores = BTreeMap::new();
        let mut checkpointed = BTreeMap::new();
        for shard in (0..self.shard_count).map(ShardId) {
            let store = millrace_shard::open_store(shard, Arc::clone(&checkpoint), 1).map_err(StartError::Store)?;
            checkpointed.insert(shard, store.checkpoint_lsn());
            stores.insert(shard, store);
        }
        let mut refused = None;
        let recovered = recover(&self.log_disk(), &self.manifest()?, &|shard| checkpointed[&shard], &mut |entry| {
            let store = stores.get_mut(&entry.shard).expect("only known shards are logged");
            keep(&entry);
            if let Err(error) = store.replay(&entry) {
                refused.get_or_insert(error);
            }
        });
        match (recovered, refused) {
            (_, Some(error)) => Err(StartError::Store(error)),
            (Ok(recovered), None) => Ok((stores, recovered.next_run, recovered.segments)),
            (Err(RecoverError::Damaged(_)), None) if self.bug == Some(PlantedBug::IgnoreDamage) => {
                Ok((stores, 1_000, Segments::new(self.log_disk(), self.manifest()?)))
            }
            (Err(error), None) => Err(StartError::Log(error)),
        }
    }
}

/// A request whose connection waits to be called before it is read.
struct Unread {
    token: Token,
    job: Job,
    admission: Option<millrace_api::Admission>,
    waiter: SimWaiter,
}

/// One core, and what is around it.
struct Driven {
    core: Core<SimPlatform>,
    engine: Rc<ScriptEngine>,
    metrics: Arc<CoreMetrics>,
    /// Of the requests that were refused, how many are noted.
    noted_shed: u64,
    writer: Option<Writer>,
    /// The batch in flight found the disk full.
    is_full: bool,
    /// The last round left something to do.
    has_more: bool,
    unread: VecDeque<Unread>,
    /// Requests that wait for their reply: the core's token, the client's token, and who is woken.
    waiting: Vec<(Token, Token, SimWaiter)>,
}

type Replied = (Token, Result<Reply, millrace_base::Error>);

/// What came out of a step.
#[derive(Default)]
pub struct StepOutput {
    pub replies: Vec<Replied>,
    pub entries: Vec<LoggedEntry>,
    pub happened: Happened,
}

/// How the cores of a node are set up, drawn for each start.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub cores: usize,
    /// What each look at the clock takes.
    pub look_ns: u64,
    /// Requests that are read though they have to wait.
    pub read_ahead: usize,
    /// How soon changes are checkpointed, and in chunks of which size.
    pub flush_after_ms: u64,
    pub chunk_bytes: usize,
    /// Makes nonces differ from those of earlier starts, as if another node had started.
    pub first_nonce: u64,
    /// Shards may fail alone, and promise to hold their locks for so long.
    pub hold_ms: Option<u64>,
}

/// The node.
pub struct Node {
    machine: Machine,
    placement: Arc<Placement>,
    net: SimNet,
    workers: Option<Workers>,
    cores: Vec<Driven>,
    segments: Segments,
    /// Each shard's LSN after recovery, by the shard's number.
    recovered: Vec<Lsn>,
    setup: Setup,
    /// If shards may fail alone: the durable entries of each that no checkpoint covered at the start.
    logged: BTreeMap<ShardId, Vec<LoggedEntry>>,
    /// Shards that have failed alone and are not opened yet.
    lost: BTreeSet<ShardId>,
    /// In the order in which the shards were opened.
    news: VecDeque<News>,
    pub output: StepOutput,
}

impl Node {
    /// Recovers what the machine holds and starts.
    ///
    /// # Errors
    /// [`StartError`]; also when the disk crashes meanwhile.
    pub fn start(machine: &Machine, setup: Setup) -> Result<Self, StartError> {
        let mut logged: BTreeMap<ShardId, Vec<LoggedEntry>> = BTreeMap::new();
        let mut keep = |entry: &EntryRef<'_>| {
            if setup.hold_ms.is_some() {
                logged.entry(entry.shard).or_default().push(LoggedEntry::of(entry));
            }
        };
        let (mut stores, run, segments) = machine.recover_stores_keeping(&mut keep)?;
        let placement = Arc::new(Placement::in_turn(machine.shard_count, setup.cores));
        let mut node = Self {
            machine: machine.clone(),
            net: SimNet::new(setup.cores),
            workers: machine.workers.clone().map(|plan| Workers::new(plan, machine.bug, machine.passed_ms())),
            placement,
            cores: Vec::new(),
            segments,
            recovered: stores.values().map(Store::lsn).collect(),
            setup,
            logged,
            lost: BTreeSet::new(),
            news: VecDeque::new(),
            output: StepOutput::default(),
        };
        let work_time = WorkTime::new(setup.look_ns);
        for index in 0..setup.cores {
            let mut shards: Vec<Option<Shard>> = node.placement.shards().map(|_| None).collect();
            let log_mates: Arc<BTreeSet<ShardId>> = Arc::new(node.placement.shards_of(index).collect());
            for shard in log_mates.iter().copied() {
                let store = stores.remove(&shard).expect("every shard has a store");
                // What is durable with one shard's entry need not be with another's, if either can be lost alone.
                let mates =
                    if setup.hold_ms.is_some() { Arc::new(BTreeSet::from([shard])) } else { Arc::clone(&log_mates) };
                let options = ShardOptions { hold_ms: setup.hold_ms, ..shard_options(machine, shard, mates) };
                shards[usize::from(shard.0)] = Some(Shard::new(options, store).map_err(StartError::Store)?);
            }
            let driven = node.start_core((index, run), setup, shards, work_time.clone())?;
            node.cores.push(driven);
        }
        for index in 0..setup.cores {
            node.tick_core(index);
            while node.end_round(index) {}
        }
        Ok(node)
    }

    fn start_core(
        &self,
        (index, run): (usize, u64),
        setup: Setup,
        shards: Vec<Option<Shard>>,
        work_time: WorkTime,
    ) -> Result<Driven, StartError> {
        let Machine { clock, random, bug, .. } = &self.machine;
        let environment =
            Environment { disk: self.machine.log_disk(), clock: Arc::clone(clock), random: Arc::clone(random) };
        let options = WriterOptions {
            run,
            core: index as u64,
            durability: Durability::Fsync,
            first_segment_bytes: FIRST_SEGMENT_BYTES,
            segment_bytes: SEGMENT_BYTES,
            reserve_bytes: 0,
            is_replicated: false,
        };
        let mut writer = Writer::open(environment, self.segments.clone(), options).map_err(StartError::Writer)?;
        let engine = Rc::new(ScriptEngine::of_schedules(workload::schedules(self.machine.shard_count)));
        engine.works.set(true);
        let platform = SimPlatform {
            clock: Arc::clone(clock),
            work_time,
            net: self.net.clone(),
            placement: Arc::clone(&self.placement),
            segments: self.segments.clone(),
            bug: *bug,
            late: Late::default(),
            is_awake: Cell::new(true),
            entries: Vec::new(),
            in_flight: None,
            unwritten: setup.hold_ms.is_some().then(Unwritten::default),
            has_lost: false,
            offloads: Vec::new(),
            exchanges: Vec::new(),
            reads: Reads::default(),
            chunks: VecDeque::new(),
            happened: Happened::default(),
        };
        let metrics = Arc::new(CoreMetrics::default());
        let mut core = Core::new(CoreParts {
            options: self.core_options(index, setup),
            shards,
            engine: self.engine(&engine),
            entropy: Box::new(SimEntropy(7)),
            metrics: Arc::clone(&metrics),
            platform,
        });
        let app = self.app(ScriptEngine::app(APP, Limits::default()));
        core.load(DEPLOYMENT, (&app, 1), |_, _, _| Ok(())).expect("every app loads");
        core.activate(DEPLOYMENT);
        if writer.space() == Space::Low {
            core.committed(Committed::Space(Space::Low));
        }
        Ok(Driven {
            core,
            engine,
            metrics,
            noted_shed: 0,
            writer: Some(writer),
            is_full: false,
            has_more: true,
            unread: VecDeque::new(),
            waiting: Vec::new(),
        })
    }

    fn core_options(&self, index: usize, setup: Setup) -> CoreOptions {
        let is_flushed_by_hand = self.machine.bug == Some(PlantedBug::FlushBeforeDurable);
        let flush_after_ms = if is_flushed_by_hand { u64::MAX } else { setup.flush_after_ms };
        let chunk_bytes = setup.chunk_bytes;
        CoreOptions {
            index,
            placement: Arc::clone(&self.placement),
            queue_ms: QUEUE_MS,
            read_ahead: setup.read_ahead,
            memory_bytes: MEMORY_BYTES,
            flush: FlushPolicy { log_bytes: u64::MAX, flush_after_ms, chunk_bytes, gather_bytes: chunk_bytes / 2 },
            has_log: true,
            first_nonce: match self.machine.bug {
                Some(PlantedBug::ShareNonces) => setup.first_nonce,
                _ => first_nonce(setup.first_nonce, index),
            },
        }
    }

    /// How many cores it has.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    fn index_of(&self, shard: ShardId) -> usize {
        self.placement.core_of(shard)
    }

    /// The core that has a shard.
    pub fn core_of(&mut self, shard: ShardId) -> &mut Core<SimPlatform> {
        let index = self.index_of(shard);
        self.core(index)
    }

    /// A core by its number.
    pub fn core(&mut self, index: usize) -> &mut Core<SimPlatform> {
        &mut self.cores[index].core
    }

    /// What names mean.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.cores[0].core.programs.catalog
    }

    /// A shard.
    ///
    /// # Panics
    /// When there is no such shard.
    pub fn shard(&mut self, shard: ShardId) -> &mut Shard {
        self.core_of(shard).shard_mut(shard).expect("every shard is somewhere")
    }

    /// A shard's state.
    ///
    /// # Panics
    /// When there is no such shard.
    pub fn store(&mut self, shard: ShardId) -> &mut Store {
        self.shard(shard).store()
    }

    /// A shard's LSN as recovery left it.
    #[must_use]
    pub fn recovered_lsn(&self, shard: ShardId) -> Lsn {
        self.recovered[usize::from(shard.0)]
    }

    /// The highest LSN of a shard that counts as durable.
    pub fn durable_lsn(&mut self, shard: ShardId) -> Lsn {
        self.shard(shard).durable_lsn()
    }

    pub fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.cores.iter().flat_map(|driven| driven.core.shards())
    }

    /// Whether a shard has stopped: the node needs a restart.
    #[must_use]
    pub fn needs_restart(&self) -> bool {
        self.shards().any(Shard::is_stopped)
    }

    /// Workflows that have not ended.
    #[must_use]
    pub fn workflows(&self) -> usize {
        self.shards().map(|shard| shard.figures().workflows).sum()
    }

    /// How often transactions had to start again because an older one held what they wanted.
    #[must_use]
    pub fn started_again(&self) -> u64 {
        self.shards().map(|shard| shard.figures().restarts).sum()
    }

    /// What each of them waits for, for people.
    #[must_use]
    pub fn waiting_workflows(&self) -> Vec<String> {
        self.shards().flat_map(Shard::workflows_wait_for).collect()
    }

    /// A client's request comes to a core, under the client's token.
    pub fn request(&mut self, index: usize, token: Token, job: Job) {
        let unread = Unread { token, job, admission: None, waiter: SimWaiter::default() };
        self.read(index, unread);
        self.finish_step(index);
    }

    /// Hands a request over, if the core wants it to be read.
    fn read(&mut self, index: usize, mut unread: Unread) {
        let Driven { core, unread: line, waiting, .. } = &mut self.cores[index];
        if !core.is_admitted(&mut unread.admission, &unread.waiter) {
            self.output.happened.note(Thing::RequestLeftUnread);
            return line.push_back(unread);
        }
        let Unread { token, mut job, waiter, .. } = unread;
        let arrival = core.enter();
        match &mut job {
            Job::Invoke(_, invoke) | Job::Send { invoke, .. } => core.begins_now(&mut invoke.info),
            Job::Route(call) => core.begins_now(&mut call.info),
            Job::Ask { .. } => {}
        }
        match core.submit(job, arrival) {
            Submitted::Answered(result) => self.output.replies.push((token, result)),
            Submitted::Pending(asked) => match core.poll_reply(asked, &waiter) {
                Some(result) => self.output.replies.push((token, result)),
                None => waiting.push((asked, token, waiter)),
            },
        }
    }

    /// Takes what a core has made, and wakes whom it woke.
    fn finish_step(&mut self, index: usize) {
        if self.machine.bug == Some(PlantedBug::ReplyBeforeDurable) {
            for shard in self.placement.shards_of(index).collect::<Vec<_>>() {
                let core = &mut self.cores[index].core;
                if let Some(lsn) = core.shard_mut(shard).map(|shard| shard.store().lsn()) {
                    core.give(shard, Input::Durable(lsn));
                }
            }
        }
        let Driven { core, waiting, metrics, noted_shed, .. } = &mut self.cores[index];
        let shed = metrics.shed.get();
        self.output.happened.note_many(Thing::RequestShed, shed - std::mem::replace(noted_shed, shed));
        self.output.entries.append(&mut core.platform.entries);
        self.output.happened.add(&std::mem::take(&mut core.platform.happened));
        let replies = &mut self.output.replies;
        waiting.retain(|(asked, token, waiter)| {
            let reply = if waiter.take() { core.poll_reply(*asked, waiter) } else { None };
            let is_open = reply.is_none();
            replies.extend(reply.map(|reply| (*token, reply)));
            is_open
        });
        self.hand_to_workers(index);
        let Driven { unread, .. } = &mut self.cores[index];
        let (called, left): (VecDeque<Unread>, _) =
            std::mem::take(unread).into_iter().partition(|unread| unread.waiter.take());
        *unread = left;
        let is_anyone_called = !called.is_empty();
        for unread in called {
            self.read(index, unread);
        }
        if is_anyone_called {
            self.finish_step(index);
        }
    }

    /// Ends a core's round, if there is anything to do. Says whether there is more.
    pub fn end_round(&mut self, index: usize) -> bool {
        let driven = &mut self.cores[index];
        let is_awake = driven.core.platform.is_awake.take();
        if !is_awake && !driven.has_more {
            return false;
        }
        driven.has_more = driven.core.end_round();
        if self.machine.bug == Some(PlantedBug::ReplyAtWrongLsn) {
            let in_flight = driven.core.platform.in_flight.as_ref();
            for range in in_flight.map(|batch| batch.positions().to_vec()).unwrap_or_default() {
                driven.core.give(range.shard, Input::Durable(range.last));
            }
        }
        self.finish_step(index);
        self.cores[index].has_more
    }

    /// A core receives a frame. Says whether there was one.
    pub fn receive(&mut self, index: usize, fate: Fate) -> bool {
        let Some(received) = self.net.receive(index, fate) else {
            return false;
        };
        self.note_way(&received);
        let Received { frame, is_lost, is_doubled, .. } = received;
        if is_lost {
            return true;
        }
        match frame {
            Frame::Message(CoreMessage::Peer { to, message }) => self.receive_peer(index, to, message, is_doubled),
            Frame::Message(message) => self.hand_over(index, message, Core::handle),
            Frame::Mail(mail) => {
                self.acknowledge_early(&mail);
                if is_doubled {
                    self.hand_over(index, mail.clone(), Core::handle_mail);
                }
                self.hand_over(index, mail, Core::handle_mail);
            }
        }
        self.finish_step(index);
        true
    }

    fn hand_over<M>(&mut self, index: usize, message: M, handle: fn(&mut Core<SimPlatform>, M)) {
        self.cores[index].core.handle_for_a_round(&mut std::iter::once(message), handle);
    }

    fn acknowledge_early(&mut self, mail: &ShardMail) {
        if let (Some(PlantedBug::AcknowledgeOnDelivery), ShardMail::Message { to, delivery }) = (self.machine.bug, mail)
        {
            let arrived = ShardMail::Arrived { to: delivery.from, from: *to, sequence: delivery.sequence };
            self.net.send(self.index_of(delivery.from), &Frame::Mail(arrived));
        }
    }

    fn note_way(&mut self, received: &Received) {
        let &Received { has_overtaken, is_lost, is_doubled, .. } = received;
        let things = match &received.frame {
            Frame::Message(CoreMessage::Peer { message, .. }) => {
                let is_committed_alone = said(message) == Some(&ToCoordinator::Committed);
                self.output.happened.note_many(Thing::Delegated, u64::from(is_committed_alone));
                [(Thing::PeerOvertakes, has_overtaken), (Thing::PeerDoubled, is_doubled)]
            }
            Frame::Message(_) => [(Thing::RequestPassedOn, true), (Thing::RequestOvertakes, has_overtaken)],
            Frame::Mail(ShardMail::Message { .. }) if is_lost => {
                [(Thing::DeliveryLost, true), (Thing::DeliveryDoubled, false)]
            }
            Frame::Mail(ShardMail::Message { .. }) => {
                [(Thing::DeliveryOvertakes, has_overtaken), (Thing::DeliveryDoubled, is_doubled)]
            }
            Frame::Mail(ShardMail::Arrived { .. }) => {
                [(Thing::AcknowledgementOvertakes, has_overtaken && !is_lost), (Thing::AcknowledgementLost, is_lost)]
            }
        };
        for (thing, has_happened) in things {
            self.output.happened.note_many(thing, u64::from(has_happened));
        }
    }

    fn receive_peer(&mut self, index: usize, to: ShardId, message: PeerMessage, is_doubled: bool) {
        let (from, transaction) = (message.from, message.transaction);
        let forged = match (self.machine.bug, &message.body) {
            (Some(PlantedBug::ConfirmUnappliedCommit), PeerBody::Commit) => Some(PeerBody::Ended),
            (Some(PlantedBug::AbortInDoubt), PeerBody::Inquire) => {
                Some(PeerBody::Abort { is_answered: false, heard: None })
            }
            _ => None,
        };
        let is_swallowed = matches!(forged, Some(PeerBody::Ended));
        for _ in usize::from(is_swallowed)..=usize::from(is_doubled) {
            self.hand_over(index, CoreMessage::Peer { to, message: message.clone() }, Core::handle);
        }
        if let Some(body) = forged {
            let message = PeerMessage { from: to, transaction, body };
            self.net.send(self.index_of(from), &Frame::Message(CoreMessage::Peer { to: from, message }));
        }
    }

    /// Some work of a core ends: the `choice`-th. Says whether there was any.
    pub fn finish_offload(&mut self, index: usize, choice: u64) -> bool {
        let core = &mut self.cores[index].core;
        let open = &mut core.platform.offloads;
        if open.is_empty() {
            return false;
        }
        let ticket = open.swap_remove(usize::try_from(choice % open.len() as u64).expect("below a usize"));
        core.offloaded(ticket, Ok(Bytes::from_static(b"null")));
        self.finish_step(index);
        true
    }

    /// Looks after what depends on time, and does what is due. Says whether messages were due.
    pub fn run_due(&mut self, index: usize) -> bool {
        let core = &self.cores[index].core;
        let (now, monotonic_ms) = (UnixMillis(self.machine.clock.now()), self.monotonic_ms());
        let is_due = |shard: &Shard| shard.is_due(now, monotonic_ms);
        let has_due = core.shards().any(is_due);
        self.tick_core(index);
        has_due
    }

    /// What the cores' monotonic clock shows.
    fn monotonic_ms(&self) -> u64 {
        millrace_driver::Platform::monotonic_ns(&self.cores[0].core.platform) / 1_000_000
    }

    fn tick_core(&mut self, index: usize) {
        self.cores[index].core.tick();
        self.end_round(index);
    }

    /// Time has passed everywhere.
    pub fn tick(&mut self) {
        self.workers_pass_time();
        for index in 0..self.cores.len() {
            self.tick_core(index);
        }
    }

    /// The batch on its way is written and synced, or fails.
    pub fn end_commit(&mut self, index: usize) {
        let bug = self.machine.bug;
        let Driven { core, writer: Some(writer), is_full, .. } = &mut self.cores[index] else {
            return;
        };
        let Some(mut batch) = core.platform.in_flight.take() else {
            return;
        };
        match writer.append(&mut batch) {
            Ok(report) => {
                *is_full = false;
                core.platform.note_written(&mut self.logged);
                core.committed(Committed::Durable { batch, report });
            }
            Err(LogError::OutOfSpace) => {
                self.output.happened.note(Thing::DiskFull);
                *is_full = true;
                if bug == Some(PlantedBug::ForgetBatchWhenFull) {
                    for range in batch.positions().to_vec() {
                        core.give(range.shard, Input::Durable(range.last));
                    }
                    let space = Space::Low;
                    let report =
                        AppendReport { bytes: 0, entries: 0, write_us: 0, sync_us: 0, space, began_segment: false };
                    core.committed(Committed::Durable { batch: Batch::new(), report });
                } else {
                    core.platform.in_flight = Some(batch);
                }
                core.committed(Committed::OutOfSpace);
            }
            // After a power cut nobody is left to be told.
            Err(LogError::Failed(_)) if self.machine.disk.has_crashed() => return,
            Err(error) => {
                self.output.happened.note(Thing::LogFailed);
                core.committed(Committed::Failed { batch, error });
            }
        }
        self.finish_step(index);
    }

    /// The log's own work beside appending.
    pub fn run_log_jobs(&mut self, index: usize) {
        let Driven { core, writer: Some(writer), is_full, .. } = &mut self.cores[index] else {
            return;
        };
        if let Some(job) = writer.job() {
            job.run();
        }
        let is_low = *is_full || writer.space() == Space::Low;
        core.committed(Committed::Space(if is_low { Space::Low } else { Space::Enough }));
    }

    /// The flusher writes a core's chunk.
    pub fn write_chunk(&mut self, index: usize) {
        let bug = self.machine.bug;
        let core = &mut self.cores[index].core;
        let Some((shard, chunk)) = core.platform.chunks.pop_front() else {
            return;
        };
        let may_write = self.machine.disk.foreign_operation(true);
        // A crash during the write may leave the chunk written or not; nobody hears of it.
        let is_written = may_write.is_ok() || (self.machine.disk.has_crashed() && chunk.row_count() % 2 == 0);
        let is_left_out = bug == Some(PlantedBug::ConfirmUnwrittenChunk) && chunk.advances_to().is_none();
        if is_written && !is_left_out {
            self.machine.checkpoint.write(shard, &chunk).expect("memory does not fail");
        }
        if self.machine.disk.has_crashed() {
            return;
        }
        self.output.happened.note(Thing::ChunkWritten);
        core.flushed(shard, &chunk, may_write.map_err(|error| error.to_string()));
        self.finish_step(index);
    }

    /// Writes a chunk of a shard without waiting for the log, if that bug is planted.
    pub fn flush_early(&mut self, shard: ShardId, max_bytes: usize) {
        if self.machine.bug != Some(PlantedBug::FlushBeforeDurable)
            || self.machine.disk.foreign_operation(true).is_err()
        {
            return;
        }
        let checkpoint = Arc::clone(&self.machine.checkpoint);
        let store = self.store(shard);
        store.begin_flush();
        if let Some(chunk) = store.next_flush_chunk(max_bytes) {
            checkpoint.write(shard, &chunk).expect("memory does not fail");
            store.confirm_flush_chunk(&chunk);
            while store.settle(usize::MAX) {}
        }
    }

    /// Deletes the segments that checkpoints cover.
    pub fn delete_covered(&mut self) {
        let checkpoint = Arc::clone(&self.machine.checkpoint);
        let bug = self.machine.bug;
        let covered = |shard: ShardId| match bug {
            Some(PlantedBug::DeleteTooEarly) => Lsn(u64::MAX),
            _ => checkpoint.lsn(shard).expect("memory does not fail"),
        };
        // What could not be deleted is tried again by the next call.
        let mark = self.machine.checkpoint.mark().expect("memory does not fail");
        let _ = self.segments.delete_covered(&covered, mark);
    }

    /// Ends every stream, as the threads of the real node do; a stream that cannot be ended is left as it is. Gives the
    /// entries that were made meanwhile.
    pub fn close(mut self) -> Vec<LoggedEntry> {
        for index in 0..self.cores.len() {
            self.cores[index].core.commit();
            self.end_commit(index);
            let Driven { core, writer, .. } = &mut self.cores[index];
            if let Some(mut writer) = writer.take() {
                let rest = core.take_batch();
                let in_flight = core.platform.in_flight.take();
                let mut rest = core.platform.without_lost(rest);
                let is_written = in_flight.is_none() && (rest.is_empty() || writer.append(&mut rest).is_ok());
                if is_written {
                    // Recovery closes a stream that is not.
                    let _ = writer.close();
                }
            }
        }
        self.output.entries
    }
}

fn said(message: &PeerMessage) -> Option<&ToCoordinator> {
    match &message.body {
        PeerBody::ToCoordinator(_, said) => Some(&said.message),
        _ => None,
    }
}

fn shard_options(machine: &Machine, shard: ShardId, log_mates: Arc<BTreeSet<ShardId>>) -> ShardOptions {
    ShardOptions {
        log_mates,
        shard,
        shard_count: machine.shard_count,
        retention_ms: retention_ms(machine.bug),
        result_names: machine.result_names,
        is_durable_at_once: false,
        incarnation: match machine.bug {
            Some(PlantedBug::ReuseIncarnation) => 1,
            _ => machine.random.next_u64(),
        },
        hold_ms: None,
    }
}
