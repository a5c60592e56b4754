//! A simulated node: cores, each with its shards and one stream of the real log, a store of each
//! shard over a checkpoint, and messages between the cores.
//!
//! It does what the real node's drivers do, one step at a time and on one thread: whoever drives
//! it says which step comes next. A step that meets a crash of the disk leaves the node useless;
//! the caller asks the disk after every step.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use millrace_base::{Error, Lsn, ShardId, UnixMillis};
use millrace_format::Write;
use millrace_func::Limits;
use millrace_io::{Clock, Disk, Random};
use millrace_log::{
    Batch, Durability, Environment, LogError, RecoverError, Segments, Space, Writer, WriterOptions, recover,
};
use millrace_manifest::{Manifest, ManifestError};
use millrace_shard::{
    Delivery, Invoke, OffloadTicket, OutcomeNames, PeerBody, PeerMessage, Reply, RouteCall, Sequence, Shard,
    ShardOptions, ToHome, Token,
};
use millrace_store::{Checkpoint, FlushChunk, MemoryCheckpoint, Store, StoreError};

use crate::bugs::{BuggyDisk, Late, PlantedBug};
use crate::core::{Core, Event, LoggedEntry};
use crate::disk::SimDisk;
use crate::engine::ScriptEngine;
use crate::happened::{Happened, Thing};
use crate::rig::APP;
use crate::workload;

/// Log segments are small, so that they fill, roll and go within a short run.
const FIRST_SEGMENT_BYTES: u64 = 16 << 10;
const SEGMENT_BYTES: u64 = 32 << 10;

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
    pub outcome_names: OutcomeNames,
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
        let checkpoint: Arc<dyn Checkpoint> = self.checkpoint.clone();
        let mut stores = BTreeMap::new();
        let mut checkpointed = BTreeMap::new();
        for shard in (0..self.shard_count).map(ShardId) {
            let store = Store::open(shard, Arc::clone(&checkpoint), 1).map_err(StartError::Store)?;
            checkpointed.insert(shard, store.checkpoint_lsn());
            stores.insert(shard, store);
        }
        let mut refused = None;
        let recovered = recover(&self.log_disk(), &self.manifest()?, &|shard| checkpointed[&shard], &mut |entry| {
            let store = stores.get_mut(&entry.shard).expect("only known shards are logged");
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

/// What one core says to another.
enum CoreMessage {
    Deliver(ShardId, Delivery),
    Acknowledge { to: ShardId, from: ShardId, sequence: Sequence },
    Route(RouteCall),
    Peer(ShardId, PeerMessage),
}

struct Driver {
    core: Core,
    writer: Option<Writer>,
    /// Filled while the other one is on its way to the disk.
    batch: Batch,
    in_flight: Option<Batch>,
    /// The batch in flight found the disk full.
    is_full: bool,
    messages: VecDeque<CoreMessage>,
    offloads: Vec<OffloadTicket>,
    chunks: BTreeMap<ShardId, VecDeque<FlushChunk>>,
    late: Late,
}

fn is_decision(write: &Write) -> bool {
    write.value.is_some() && write.entity.is_internal() && write.entity.parts().service == "decision"
}

fn said(message: &PeerMessage) -> Option<&ToHome> {
    match &message.body {
        PeerBody::ToHome(_, said) => Some(&said.message),
        _ => None,
    }
}

/// What came out of a step.
#[derive(Default)]
pub struct Outcome {
    pub replies: Vec<(Token, Result<Reply, Error>)>,
    pub entries: Vec<LoggedEntry>,
    pub happened: Happened,
}

/// The node.
pub struct Node {
    machine: Machine,
    drivers: Vec<Driver>,
    segments: Segments,
    pub outcome: Outcome,
}

impl Node {
    /// Recovers what the machine holds and starts on `cores` cores.
    ///
    /// # Errors
    /// [`StartError`]; also when the disk crashes meanwhile.
    pub fn start(machine: &Machine, cores: usize, now: UnixMillis, first_nonce: u64) -> Result<Self, StartError> {
        let (stores, run, segments) = machine.recover_stores()?;
        let mut drivers = Vec::new();
        for index in 0..cores {
            let environment = Environment {
                disk: machine.log_disk(),
                clock: Arc::clone(&machine.clock),
                random: Arc::clone(&machine.random),
            };
            let options = WriterOptions {
                run,
                core: index as u64,
                durability: Durability::Fsync,
                first_segment_bytes: FIRST_SEGMENT_BYTES,
                segment_bytes: SEGMENT_BYTES,
                reserve_bytes: 0,
            };
            let mut writer = Writer::open(environment, segments.clone(), options).map_err(StartError::Writer)?;
            let schedules = workload::schedules(machine.shard_count);
            let (engine, catalog) = ScriptEngine::with_schedules(APP, Limits::default(), schedules);
            let nonce = first_nonce + ((index as u64) << 40);
            let mut core = Core::new(engine, catalog, machine.shard_count, nonce);
            core.now = now;
            core.is_read_only = writer.space() == Space::Low;
            drivers.push(Driver {
                core,
                writer: Some(writer),
                batch: Batch::new(),
                in_flight: None,
                is_full: false,
                messages: VecDeque::new(),
                offloads: Vec::new(),
                chunks: BTreeMap::new(),
                late: Late::default(),
            });
        }
        let mut node = Self { machine: machine.clone(), drivers, segments, outcome: Outcome::default() };
        for (shard, store) in stores {
            let mates = (0..machine.shard_count).map(ShardId);
            let mates = mates.filter(|mate| usize::from(mate.0) % cores == usize::from(shard.0) % cores);
            let options = ShardOptions {
                log_mates: Arc::new(mates.collect()),
                shard,
                shard_count: machine.shard_count,
                retention_ms: retention_ms(machine.bug),
                outcome_names: machine.outcome_names,
                is_durable_at_once: false,
                incarnation: machine.random.next_u64(),
            };
            let shard_state = Shard::new(options, store).map_err(StartError::Store)?;
            node.core_of(shard).shards.insert(shard, shard_state);
        }
        node.tick(now);
        Ok(node)
    }

    /// How many cores it has.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.drivers.len()
    }

    fn index_of(&self, shard: ShardId) -> usize {
        usize::from(shard.0) % self.drivers.len()
    }

    /// The core that has a shard.
    pub fn core_of(&mut self, shard: ShardId) -> &mut Core {
        let index = self.index_of(shard);
        &mut self.drivers[index].core
    }

    /// A core by its number.
    pub fn core(&mut self, index: usize) -> &mut Core {
        &mut self.drivers[index].core
    }

    /// A shard's state.
    ///
    /// # Panics
    /// When there is no such shard.
    pub fn store(&mut self, shard: ShardId) -> &mut Store {
        self.core_of(shard).shards.get_mut(&shard).expect("every shard is somewhere").store()
    }

    /// The highest LSN of a shard that counts as durable.
    pub fn durable_lsn(&mut self, shard: ShardId) -> Lsn {
        self.core_of(shard).shards[&shard].durable_lsn()
    }

    /// Whether a shard has stopped: the node needs a restart.
    #[must_use]
    pub fn needs_restart(&self) -> bool {
        self.drivers.iter().any(|driver| driver.core.shards.values().any(Shard::is_stopped))
    }

    /// Whether some core refuses writes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.drivers.iter().any(|driver| driver.core.is_read_only)
    }

    /// Takes what the shards of a core asked for.
    fn collect(&mut self, index: usize) {
        let bug = self.machine.bug;
        let mut early = Vec::new();
        loop {
            let driver = &mut self.drivers[index];
            for entry in std::mem::take(&mut driver.core.collected.entries) {
                driver.batch.push(&driver.late.log(bug, &entry).as_entry());
                early.extend(PlantedBug::early_commits(bug, &entry));
                let decisions = entry.writes.iter().filter(|write| is_decision(write)).count();
                self.outcome.happened.note_many(Thing::Decided, decisions as u64);
                self.outcome.entries.push(entry);
            }
            for (to, message) in early.drain(..) {
                self.pass_on(self.index_of(to), CoreMessage::Peer(to, message));
            }
            let driver = &mut self.drivers[index];
            let Some(event) = driver.core.collected.events.pop_front() else {
                return;
            };
            match event {
                Event::Reply(token, result) => self.outcome.replies.push((token, result)),
                Event::Offload(ticket, _) | Event::Fetch(ticket, _) => driver.offloads.push(ticket),
                Event::Deliver(to, delivery) => self.pass_on(self.index_of(to), CoreMessage::Deliver(to, delivery)),
                Event::Acknowledge { to, from, sequence } => {
                    self.pass_on(self.index_of(to), CoreMessage::Acknowledge { to, from, sequence });
                }
                Event::Route(shard, call) => self.pass_on(self.index_of(shard), CoreMessage::Route(call)),
                Event::Peer(to, message) => {
                    let is_committed_alone = said(&message) == Some(&ToHome::Committed);
                    self.outcome.happened.note_many(Thing::Delegated, u64::from(is_committed_alone));
                    self.pass_on(self.index_of(to), CoreMessage::Peer(to, message));
                }
            }
        }
    }

    fn pass_on(&mut self, index: usize, message: CoreMessage) {
        self.drivers[index].messages.push_back(message);
    }

    /// A client's call.
    pub fn invoke(&mut self, shard: ShardId, invoke: Invoke) {
        self.core_of(shard).with(shard, |shard, world| shard.invoke(invoke, world));
        self.finish_step(self.index_of(shard));
    }

    /// A client's send.
    pub fn send(&mut self, shard: ShardId, invoke: Invoke, delay_ms: u64) {
        self.core_of(shard).with(shard, |shard, world| shard.send(invoke, delay_ms, world));
        self.finish_step(self.index_of(shard));
    }

    /// A client's route, on the core that accepted it.
    pub fn route(&mut self, index: usize, call: RouteCall) {
        self.drivers[index].core.run_route(call);
        self.finish_step(index);
    }

    /// Any other input to a shard.
    pub fn input(&mut self, shard: ShardId, input: impl FnOnce(&mut Shard, &mut millrace_shard::World<'_>)) {
        self.core_of(shard).with(shard, input);
        self.finish_step(self.index_of(shard));
    }

    /// Workflows that have not ended.
    #[must_use]
    pub fn workflows(&self) -> usize {
        self.drivers.iter().flat_map(|driver| driver.core.shards.values()).map(Shard::workflows).sum()
    }

    /// How often transactions had to start again because an older one held what they wanted.
    #[must_use]
    pub fn started_again(&self) -> u64 {
        self.drivers.iter().flat_map(|driver| driver.core.shards.values()).map(Shard::restarts).sum()
    }

    /// What each of them waits for, for people.
    #[must_use]
    pub fn waiting_workflows(&self) -> Vec<String> {
        self.drivers.iter().flat_map(|driver| driver.core.shards.values()).flat_map(Shard::workflows_wait_for).collect()
    }

    fn finish_step(&mut self, index: usize) {
        self.collect(index);
        if self.machine.bug == Some(PlantedBug::ReplyBeforeDurable) {
            let driver = &mut self.drivers[index];
            let shards: Vec<ShardId> = driver.core.shards.keys().copied().collect();
            for shard in shards {
                driver.core.with(shard, |shard, world| {
                    let lsn = shard.store().lsn();
                    shard.durable(lsn, world);
                });
            }
            self.collect(index);
        }
    }

    /// Hands over the oldest message to a core, or the one that came `skipped` later; lost or doubled
    /// on the way if so asked. Says whether there was one.
    pub fn carry(&mut self, index: usize, skipped: usize, is_lost: bool, is_doubled: bool) -> bool {
        let messages = &mut self.drivers[index].messages;
        let at = if skipped < messages.len() { skipped } else { 0 };
        let Some(message) = messages.remove(at) else {
            return false;
        };
        self.note_way(&message, at > 0, is_lost, is_doubled);
        match message {
            CoreMessage::Peer(to, message) => self.carry_peer(index, to, &message, is_doubled),
            CoreMessage::Route(call) => self.drivers[index].core.run_route(call),
            CoreMessage::Deliver(..) | CoreMessage::Acknowledge { .. } if is_lost => {}
            CoreMessage::Deliver(to, delivery) => {
                let (from, sequence) = (delivery.from, delivery.sequence);
                for _ in 0..=usize::from(is_doubled) {
                    let delivery = delivery.clone();
                    self.drivers[index].core.with(to, |shard, world| shard.deliver(delivery, world));
                }
                if self.machine.bug == Some(PlantedBug::AcknowledgeOnDelivery) {
                    let acknowledgement = CoreMessage::Acknowledge { to: from, from: to, sequence };
                    self.pass_on(self.index_of(from), acknowledgement);
                }
            }
            CoreMessage::Acknowledge { to, from, sequence } => {
                self.drivers[index].core.with(to, |shard, world| shard.acknowledged(from, sequence, world));
            }
        }
        self.finish_step(index);
        true
    }

    fn note_way(&mut self, message: &CoreMessage, is_early: bool, is_lost: bool, is_doubled: bool) {
        let things = match message {
            CoreMessage::Peer(..) => [(Thing::PeerOvertakes, is_early), (Thing::PeerDoubled, is_doubled)],
            CoreMessage::Deliver(..) if is_lost => [(Thing::DeliveryLost, true), (Thing::DeliveryDoubled, false)],
            CoreMessage::Deliver(..) => [(Thing::DeliveryOvertakes, is_early), (Thing::DeliveryDoubled, is_doubled)],
            CoreMessage::Acknowledge { .. } => {
                [(Thing::AcknowledgementOvertakes, is_early && !is_lost), (Thing::AcknowledgementLost, is_lost)]
            }
            CoreMessage::Route(_) => return,
        };
        for (thing, has_happened) in things {
            self.outcome.happened.note_many(thing, u64::from(has_happened));
        }
    }

    fn carry_peer(&mut self, index: usize, to: ShardId, message: &PeerMessage, is_doubled: bool) {
        let (from, transaction) = (message.from, message.transaction);
        let forged = match (self.machine.bug, &message.body) {
            (Some(PlantedBug::ConfirmUnappliedCommit), PeerBody::Commit) => Some(PeerBody::Ended),
            (Some(PlantedBug::AbortInDoubt), PeerBody::Inquire) => Some(PeerBody::Abort { is_answered: false }),
            _ => None,
        };
        let is_swallowed = matches!(forged, Some(PeerBody::Ended));
        for _ in usize::from(is_swallowed)..=usize::from(is_doubled) {
            let message = message.clone();
            self.drivers[index].core.with(to, |shard, world| shard.peer(message, world));
        }
        if let Some(body) = forged {
            self.pass_on(self.index_of(from), CoreMessage::Peer(from, PeerMessage { from: to, transaction, body }));
        }
        if is_doubled {
            self.pass_on(index, CoreMessage::Peer(to, message.clone()));
        }
    }

    /// Some work of a core ends: the `choice`-th. Says whether there was any.
    pub fn finish_offload(&mut self, index: usize, choice: u64) -> bool {
        let open = &mut self.drivers[index].offloads;
        if open.is_empty() {
            return false;
        }
        let ticket = open.swap_remove(usize::try_from(choice % open.len() as u64).expect("below a usize"));
        self.drivers[index].core.offloaded(ticket, Ok(Bytes::from_static(b"null")));
        self.finish_step(index);
        true
    }

    /// Starts messages of a core that are due. Says whether there were any.
    pub fn run_due(&mut self, index: usize) -> bool {
        let core = &mut self.drivers[index].core;
        let now = core.now;
        let is_due = |shard: &Shard| shard.next_due().is_some_and(|due| due <= now);
        let due: Vec<ShardId> = core.shards.iter().filter(|(_, shard)| is_due(shard)).map(|(id, _)| *id).collect();
        for shard in &due {
            core.with(*shard, |shard, world| shard.run_due(world));
        }
        self.finish_step(index);
        !due.is_empty()
    }

    /// Time is `now` everywhere.
    pub fn tick(&mut self, now: UnixMillis) {
        for index in 0..self.drivers.len() {
            let core = &mut self.drivers[index].core;
            core.now = now;
            let shards: Vec<ShardId> = core.shards.keys().copied().collect();
            for shard in shards {
                core.with(shard, |shard, world| shard.tick(world));
            }
            self.finish_step(index);
        }
    }

    /// What was collected so far is on its way to the disk.
    pub fn begin_commit(&mut self, index: usize) {
        let driver = &mut self.drivers[index];
        if driver.in_flight.is_none() && !driver.batch.is_empty() {
            driver.in_flight = Some(std::mem::take(&mut driver.batch));
        }
        if self.machine.bug == Some(PlantedBug::ReplyAtWrongLsn) {
            let driver = &mut self.drivers[index];
            let ranges = driver.in_flight.as_ref().map(|batch| batch.positions().to_vec()).unwrap_or_default();
            for range in ranges {
                driver.core.with(range.shard, |shard, world| shard.durable(range.last, world));
            }
            self.collect(index);
        }
    }

    /// The batch on its way is written and synced, or fails.
    pub fn end_commit(&mut self, index: usize) {
        let bug = self.machine.bug;
        let driver = &mut self.drivers[index];
        let (Some(mut batch), Some(writer)) = (driver.in_flight.take(), driver.writer.as_mut()) else {
            return;
        };
        match writer.append(&mut batch) {
            Ok(report) => {
                driver.is_full = false;
                driver.core.is_read_only = report.space == Space::Low;
                let ranges = batch.committed().to_vec();
                for range in ranges {
                    driver.core.with(range.shard, |shard, world| shard.durable(range.last, world));
                }
            }
            Err(LogError::OutOfSpace) => {
                self.outcome.happened.note(Thing::DiskFull);
                driver.is_full = true;
                driver.core.is_read_only = true;
                if bug == Some(PlantedBug::ForgetBatchWhenFull) {
                    for range in batch.positions().to_vec() {
                        driver.core.with(range.shard, |shard, world| shard.durable(range.last, world));
                    }
                } else {
                    driver.in_flight = Some(batch);
                }
            }
            // After a power cut nobody is left to be told.
            Err(LogError::Failed(_)) if self.machine.disk.has_crashed() => return,
            Err(LogError::Failed(reason)) => {
                self.outcome.happened.note(Thing::LogFailed);
                driver.in_flight = Some(batch);
                let shards: Vec<ShardId> = driver.core.shards.keys().copied().collect();
                for shard in shards {
                    driver.core.with(shard, |shard, world| shard.stop(&reason, world));
                }
            }
        }
        self.finish_step(index);
    }

    /// The log's own work beside appending.
    pub fn run_log_jobs(&mut self, index: usize) {
        let driver = &mut self.drivers[index];
        let Some(writer) = driver.writer.as_mut() else {
            return;
        };
        if let Some(job) = writer.job() {
            job.run();
        }
        driver.core.is_read_only = driver.is_full || writer.space() == Space::Low;
    }

    /// Takes the next chunk of a shard's flush, beginning one if none is under way.
    pub fn take_chunk(&mut self, shard: ShardId, max_bytes: usize) {
        let index = self.index_of(shard);
        let store = self.store(shard);
        store.begin_flush();
        if let Some(chunk) = store.next_flush_chunk(max_bytes) {
            self.drivers[index].chunks.entry(shard).or_default().push_back(chunk);
        }
    }

    /// Writes the oldest chunk of a shard, if the log allows.
    pub fn write_chunk(&mut self, shard: ShardId) {
        let index = self.index_of(shard);
        let durable = self.durable_lsn(shard);
        let chunks = self.drivers[index].chunks.entry(shard).or_default();
        let bug = self.machine.bug;
        let is_early = chunks.front().is_some_and(|chunk| chunk.needs_durable() > durable);
        if is_early && bug != Some(PlantedBug::FlushBeforeDurable) {
            return;
        }
        let Some(chunk) = chunks.pop_front() else {
            return;
        };
        let may_write = self.machine.disk.foreign_operation(true);
        // A crash during the write may leave the chunk written or not; nobody hears of it.
        let is_written = may_write.is_ok() || (self.machine.disk.has_crashed() && chunk.row_count() % 2 == 0);
        if is_written && bug != Some(PlantedBug::ConfirmUnwrittenChunk) {
            self.machine.checkpoint.write(shard, &chunk).expect("memory does not fail");
        }
        if self.machine.disk.has_crashed() {
            return;
        }
        if may_write.is_ok() {
            if bug == Some(PlantedBug::ConfirmUnwrittenChunk) && chunk.advances_to().is_some() {
                self.machine.checkpoint.write(shard, &chunk).expect("memory does not fail");
            }
            self.store(shard).confirm_flush_chunk(&chunk);
        } else {
            self.drivers[index].chunks.remove(&shard);
            self.store(shard).abandon_flush();
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

    /// Ends every stream cleanly. Says whether all of them could be.
    pub fn close(mut self) -> bool {
        for index in 0..self.drivers.len() {
            self.begin_commit(index);
            self.end_commit(index);
        }
        let writers = self.drivers.iter_mut().filter_map(|driver| driver.writer.take());
        let failed = writers.filter_map(|writer| writer.close().err()).count();
        failed == 0
    }

    /// Whether nothing is under way anywhere but timers.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.drivers.iter().all(|driver| {
            driver.messages.is_empty()
                && driver.offloads.is_empty()
                && driver.batch.is_empty()
                && driver.in_flight.is_none()
        })
    }

    /// What should not be there when nothing is under way, and how many there are of it.
    #[must_use]
    pub fn left_at_rest(&self) -> [(&'static str, usize); 5] {
        let frames = |driver: &Driver| {
            driver.core.frames.live() + driver.core.engine.waiting_frames() + driver.core.unbound_routes()
        };
        let sum = |count: fn(&Shard) -> usize| {
            self.drivers.iter().flat_map(|driver| driver.core.shards.values()).map(count).sum()
        };
        [
            ("live frames", self.drivers.iter().map(frames).sum()),
            ("waiting transactions", sum(Shard::waiting)),
            ("locked entities", sum(Shard::locked_entities)),
            ("held replies", sum(Shard::held_replies)),
            ("unfinished transactions", sum(Shard::unfinished)),
        ]
    }
}
