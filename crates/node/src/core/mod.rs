//! One core: a thread's shards, engine, log batch and waiting requests.
//!
//! Everything here belongs to one thread and is reached through one `RefCell`, borrowed for the
//! length of one input. Other threads talk to a core by messages only.

mod admissions;
mod message;
mod outputs;
mod programs;
mod pump;
mod queue;
mod requests;
mod slots;
mod upkeep;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, RwLock};

use millrace_api::SystemApp;
use millrace_base::{Error, ErrorCode, Lsn, ShardId, UnixMillis};
use millrace_func::{Engine, Fetcher};
use millrace_io::Clock;
use millrace_log::{Batch, Committer, Segments};
use millrace_shard::{FrameIds, Shard, Unbound, World};
use millrace_store::Checkpoint;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use crate::apps::AppStore;
use crate::entropy::KeyedEntropy;
use crate::flusher::FlusherHandle;
use crate::metrics::{CoreMetrics, HandlerMetrics};
use crate::options::NodeOptions;
use crate::password_checks::PasswordChecks;

pub(crate) use message::{Carried, CoreMessage, Job, Question};
use outputs::{CoreOutputs, Event};
pub(crate) use programs::Programs;
pub(crate) use pump::{run_messages, run_pump, run_ticks};
use queue::Queue;
pub(crate) use slots::ReplyFuture;
use slots::Slots;
use upkeep::Upkeep;

/// What all cores of a node share. Written rarely, read without locks on a request's way.
pub(crate) struct Shared {
    pub options: NodeOptions,
    pub shard_count: u16,
    pub clock: Arc<dyn Clock>,
    pub cores: Vec<UnboundedSender<CoreMessage>>,
    pub carriers: Vec<UnboundedSender<Carried>>,
    pub flusher: FlusherHandle,
    pub checkpoint: Arc<dyn Checkpoint>,
    pub segments: Segments,
    /// Each shard's checkpointed LSN.
    pub checkpointed: Vec<AtomicU64>,
    pub apps: AppStore,
    /// Built-in apps as they are now. Read by what manages them only.
    pub system_apps: RwLock<BTreeMap<String, SystemApp>>,
    /// For each shard, a key that is placed there.
    pub shard_keys: Vec<Vec<u8>>,
    pub fetcher: Arc<dyn Fetcher>,
    /// One deployment at a time.
    pub deploying: tokio::sync::Mutex<DeployState>,
    pub is_serving: AtomicBool,
    pub is_stopping: AtomicBool,
    pub read_only_cores: AtomicUsize,
    pub stopped_shards: AtomicUsize,
    pub metrics: Vec<Arc<CoreMetrics>>,
    pub handlers: HandlerMetrics,
}

/// What the next deployment has to know.
#[derive(Debug, Default)]
pub(crate) struct DeployState {
    /// The number of the last deployment; each has its own.
    pub last_deployment: u32,
    /// How often each app was deployed since the start.
    pub versions: BTreeMap<String, u64>,
}

impl DeployState {
    /// The apps loaded at the start are deployments 1, 2, … and each app's first.
    pub(crate) fn after_start(apps: &[millrace_func::App], pinned: usize) -> Self {
        Self {
            last_deployment: u32::try_from(apps.len() + pinned).unwrap_or(u32::MAX),
            versions: apps.iter().map(|app| (app.name.to_string(), 1)).collect(),
        }
    }
}

impl Shared {
    pub(crate) fn core_of(&self, shard: ShardId) -> usize {
        usize::from(shard.0) % self.cores.len()
    }

    /// Sends to a core. A core that is gone is a node that is stopping; nobody waits for it then.
    /// Says whether the core is there.
    pub(crate) fn send(&self, core: usize, message: CoreMessage) -> bool {
        let is_sent = self.cores[core].send(message).is_ok();
        if !is_sent {
            tracing::debug!(core, "a message came after the core had stopped");
        }
        is_sent
    }

    /// Sends to a core what goes with messages.
    pub(crate) fn carry(&self, core: usize, carried: Carried) {
        if self.carriers[core].send(carried).is_err() {
            tracing::debug!(core, "a message came after the core had stopped");
        }
    }

    pub(crate) fn checkpointed_lsn(&self, shard: ShardId) -> Lsn {
        let lsn = self.checkpointed.get(usize::from(shard.0));
        Lsn(lsn.map_or(0, |lsn| lsn.load(std::sync::atomic::Ordering::Acquire)))
    }
}

/// See the module's documentation.
pub(crate) struct Core {
    pub index: usize,
    pub shared: Arc<Shared>,
    pub metrics: Arc<CoreMetrics>,
    /// By shard number; `None` for other cores' shards.
    pub shards: Vec<Option<Shard>>,
    pub engine: Box<dyn Engine>,
    pub programs: Programs,
    pub frames: FrameIds,
    pub entropy: KeyedEntropy,
    pub next_nonce: u64,
    pub slots: Slots,
    /// Routes that await offloaded work before their first call, by nonce.
    /// Each with the monotonic millisecond at which it has waited too long.
    pub unbound: BTreeMap<u64, (Unbound, u64)>,
    /// Routes that a shard adopted while they awaited offloaded work, by nonce.
    pub adopted: BTreeMap<u64, ShardId>,
    pub events: VecDeque<Event>,
    /// What is to be carried between this core's shards.
    pub carried: VecDeque<Carried>,
    pub open_offloads: usize,
    pub password_checks: PasswordChecks,
    pub batch: Batch,
    pub spare_batch: Option<Batch>,
    /// `None` with `durability = "none"`.
    pub committer: Option<Committer>,
    pub is_committing: bool,
    pub is_read_only: bool,
    /// Too much of the memory holds what is not checkpointed yet: writes are refused.
    pub is_memory_low: bool,
    /// So much does that messages and workflows wait.
    pub is_memory_half_dirty: bool,
    pub queue: Queue,
    pub upkeep: Upkeep,
    /// Wakes the pump: there is a batch to commit or a queue to run.
    pub pump: Rc<Notify>,
    now: UnixMillis,
}

/// What a core is made of; the rest starts empty.
pub(crate) struct CoreParts {
    pub index: usize,
    pub shared: Arc<Shared>,
    pub shards: Vec<Option<Shard>>,
    pub engine: Box<dyn Engine>,
    pub entropy: KeyedEntropy,
    pub committer: Option<Committer>,
}

/// Nonces of one core differ from those of the others in their upper bits, and from those of an
/// earlier process in starting at its start time.
const NONCE_CORE_SHIFT: u32 = 54;

impl Core {
    pub(crate) fn new(parts: CoreParts) -> Self {
        let CoreParts { index, shared, shards, engine, entropy, committer } = parts;
        let metrics = Arc::clone(&shared.metrics[index]);
        let now = UnixMillis(shared.clock.now());
        let (shard_count, queue_ms) = (shared.shard_count, shared.options.queue_ms);
        Self {
            index,
            metrics,
            shards,
            engine,
            programs: Programs::default(),
            frames: FrameIds::default(),
            entropy,
            next_nonce: (index as u64) << NONCE_CORE_SHIFT,
            slots: Slots::default(),
            unbound: BTreeMap::new(),
            adopted: BTreeMap::new(),
            events: VecDeque::new(),
            carried: VecDeque::new(),
            open_offloads: 0,
            password_checks: PasswordChecks::default(),
            batch: Batch::new(),
            spare_batch: Some(Batch::new()),
            committer,
            is_committing: false,
            is_read_only: false,
            is_memory_low: false,
            is_memory_half_dirty: false,
            queue: Queue::new(queue_ms),
            upkeep: Upkeep::new(shard_count),
            pump: Rc::new(Notify::new()),
            now,
            shared,
        }
    }

    /// The time as of the last reading.
    pub(crate) fn now(&self) -> UnixMillis {
        self.now
    }

    /// For intervals: the wall clock may be set back.
    pub(crate) fn monotonic_ms(&self) -> u64 {
        self.shared.clock.monotonic_ns() / 1_000_000
    }

    pub(crate) fn read_clock(&mut self) {
        self.now = UnixMillis(self.shared.clock.now());
    }

    /// Whether no request and no transaction is under way here. What another core had sent here before
    /// this is asked is handled by then, and what is still to be told of a transaction is a transaction
    /// that has not ended where it began.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_idle = |shard: &Shard| shard.waiting() + shard.locked_entities() + shard.unfinished() == 0;
        self.queue.read_count() + self.slots.len() + self.unbound.len() + self.events.len() == 0
            && self.shards.iter().flatten().all(is_idle)
    }

    /// The local shards' numbers.
    pub(crate) fn local_shards(&self) -> Vec<ShardId> {
        let is_local = |(_, shard): &(u16, &Option<Shard>)| shard.is_some();
        (0u16..).zip(&self.shards).filter(is_local).map(|(index, _)| ShardId(index)).collect()
    }

    /// Runs `input` on one of this core's shards with everything a shard needs around it.
    ///
    /// A panic stops that shard, not the process: its log is intact, and a restart recovers it.
    pub(crate) fn with_shard(&mut self, id: ShardId, input: impl FnOnce(&mut Shard, &mut World<'_>)) {
        let outcome = self.with_world(Some(id), |shard, world| {
            if let Some(shard) = shard {
                input(shard, world);
            }
        });
        if let Err(reason) = outcome {
            self.stop_shard(id, &reason);
        }
    }

    /// As [`Core::with_shard`], for what happens outside any shard.
    pub(crate) fn with_world<T>(
        &mut self,
        id: Option<ShardId>,
        input: impl FnOnce(Option<&mut Shard>, &mut World<'_>) -> T,
    ) -> Result<T, String> {
        let is_behind = self.messages_wait();
        let shard = id.and_then(|id| self.shards.get_mut(usize::from(id.0))).and_then(Option::as_mut);
        let mut outputs = CoreOutputs {
            batch: self.committer.is_some().then_some(&mut self.batch),
            slots: &mut self.slots,
            events: &mut self.events,
            carried: &mut self.carried,
            core: self.index,
            shared: &self.shared,
            metrics: &self.metrics,
        };
        let mut world = World {
            engine: &*self.engine,
            catalog: &self.programs.catalog,
            frames: &mut self.frames,
            entropy: &self.entropy,
            next_nonce: &mut self.next_nonce,
            outputs: &mut outputs,
            now: self.now,
            is_read_only: self.is_read_only,
            is_behind,
            written_bytes: 0,
        };
        catch_unwind(AssertUnwindSafe(|| input(shard, &mut world))).map_err(|panic| panic_text(&*panic))
    }

    /// One more shard has stopped for good.
    fn count_stopped(&self) {
        self.shared.stopped_shards.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.metrics.stopped_shards.increment();
    }

    /// Stops a shard whose invariant broke.
    fn stop_shard(&mut self, id: ShardId, reason: &str) {
        tracing::error!(shard = id.0, reason, "an invariant of the shard broke; it is stopped until a restart");
        self.count_stopped();
        let stopped = self.with_world(Some(id), |shard, world| {
            if let Some(shard) = shard {
                shard.stop(reason, world);
            }
        });
        if let Err(reason) = stopped {
            // Not even its bookkeeping works: without it nothing can be asked of it any more.
            tracing::error!(shard = id.0, reason, "the stopped shard is dropped");
            self.shards[usize::from(id.0)] = None;
        }
        // The shard answers everything it knows of when it stops. What it was at when it broke, it knows
        // no more.
        for token in self.slots.unanswered_by(id) {
            self.answer(token, Err(broke()));
        }
    }
}

fn broke() -> Error {
    let message = "the shard broke at this call and stopped; the call may or may not have taken effect, repeat \
                   it with its Idempotency-Key after a restart";
    Error::new(ErrorCode::Internal, message)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a text".to_owned())
}

/// A core as its own thread's tasks see it.
pub(crate) type SharedCore = Rc<RefCell<Core>>;
