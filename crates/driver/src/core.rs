//! One core: its shards, engine, log batch and pending replies.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use millrace_api::Admission;
use millrace_base::{Error, ErrorCode, ShardId, UnixMillis};
use millrace_func::Engine;
use millrace_log::Batch;
use millrace_shard::{
    ActivationIds, Entropy, Figures, Input, Reply, ReplyTo, RequestInfo, Shard, Token, TypedReply, UnplacedRoute, World,
};

use crate::cold_reads::ColdReads;
use crate::message::ShardMail;
use crate::metrics::CoreMetrics;
use crate::outputs::{ClusterOutputs, CoreOutputs, Event};
use crate::password_checks::PasswordChecks;
use crate::pending::PendingReplies;
use crate::placement::Placement;
use crate::platform::{DriverBug, Platform};
use crate::programs::Programs;
use crate::queue::Queue;
use crate::replicated::{ALONE, Replicated};
use crate::typed_request::typed;
use crate::upkeep::{FlushPolicy, Upkeep};

/// How a core runs.
#[derive(Clone, Debug)]
pub struct CoreOptions {
    /// The core's number.
    pub index: usize,
    /// Which core has which shard.
    pub placement: Arc<Placement>,
    /// How long a request may wait before new ones are refused.
    pub queue_ms: u64,
    /// Requests that are read though they have to wait; [`READ_AHEAD`](crate::READ_AHEAD) but for tests.
    pub read_ahead: usize,
    /// Memory for entities of this core.
    pub memory_bytes: usize,
    /// When checkpoints are written.
    pub flush: FlushPolicy,
    /// Whether entries go to a log: not with `durability = "none"`.
    pub has_log: bool,
    /// The first nonce of an invocation that begins here, as [`first_nonce`] gives it.
    pub first_nonce: u64,
}

/// The first nonce of a core. Nonces tell the transactions of all nodes and cores apart, so each names its node and its core:
/// 8 bits for the node, 10 for the core, then 46 that the core counts: two years of a million requests a second.
///
/// # Panics
/// When there are more than 256 nodes, or 1,024 cores of one.
#[must_use]
pub fn first_nonce(node: u64, core: usize) -> u64 {
    let core = core as u64;
    assert!(node < 1 << 8 && core < 1 << 10, "node {node} and core {core} have too large a number");
    node << 56 | core << 46
}

/// What a core is made of; the rest starts empty.
pub struct CoreParts<P> {
    /// How it runs.
    pub options: CoreOptions,
    /// By shard number; `None` for other cores' shards.
    pub shards: Vec<Option<Shard>>,
    /// Runs functions.
    pub engine: Box<dyn Engine>,
    /// Unpredictable bits.
    pub entropy: Box<dyn Entropy>,
    /// What it counts.
    pub metrics: Arc<CoreMetrics>,
    /// The machine around it.
    pub platform: P,
}

/// See the crate's documentation.
pub struct Core<P: Platform> {
    /// The machine around it.
    pub platform: P,
    /// The apps that are loaded.
    pub programs: Programs,
    pub(crate) options: CoreOptions,
    pub(crate) metrics: Arc<CoreMetrics>,
    /// By shard number; `None` for other cores' shards.
    pub(crate) shards: Vec<Option<Shard>>,
    pub(crate) engine: Box<dyn Engine>,
    activations: ActivationIds,
    pub(crate) entropy: Box<dyn Entropy>,
    pub(crate) next_nonce: u64,
    pub(crate) pending: PendingReplies<P::Waiter>,
    /// Routes without a shard: they await offloaded work before their first call. By nonce, each with the monotonic
    /// millisecond at which it has waited too long.
    pub(crate) unplaced: BTreeMap<u64, (UnplacedRoute, u64)>,
    /// Routes that a shard adopted while they awaited offloaded work, by nonce.
    pub(crate) adopted: BTreeMap<u64, ShardId>,
    pub(crate) events: VecDeque<Event>,
    /// Mail between this core's shards.
    pub(crate) mail: VecDeque<ShardMail>,
    pub(crate) open_offloads: usize,
    /// Those of them that workers do.
    pub(crate) open_exchanges: usize,
    pub(crate) password_checks: PasswordChecks,
    pub(crate) batch: Batch,
    pub(crate) spare_batch: Option<Batch>,
    pub(crate) is_committing: bool,
    pub(crate) is_read_only: bool,
    /// Three quarters of the memory hold what is not checkpointed yet: writes are refused.
    pub(crate) is_memory_low: bool,
    /// Half of the memory holds what is not checkpointed yet: messages and workflows wait.
    pub(crate) is_memory_half_dirty: bool,
    pub(crate) queue: Queue<P::Waiter>,
    pub(crate) cold_reads: ColdReads,
    pub(crate) upkeep: Upkeep,
    /// CPU time of all turns of transactions so far.
    pub(crate) turns_ns: u64,
    /// `None` for a node that stands alone.
    pub(crate) replicated: Option<Box<Replicated>>,
    now: UnixMillis,
    /// What the monotonic clock showed then.
    now_monotonic_ms: u64,
}

impl<P: Platform> Core<P> {
    /// A core without apps.
    #[must_use]
    pub fn new(parts: CoreParts<P>) -> Self {
        let CoreParts { options, shards, engine, entropy, metrics, platform } = parts;
        Self {
            programs: Programs::default(),
            metrics,
            shards,
            engine,
            activations: ActivationIds::default(),
            entropy,
            next_nonce: options.first_nonce,
            pending: PendingReplies::default(),
            unplaced: BTreeMap::new(),
            adopted: BTreeMap::new(),
            events: VecDeque::new(),
            mail: VecDeque::new(),
            open_offloads: 0,
            open_exchanges: 0,
            password_checks: PasswordChecks::default(),
            batch: Batch::new(),
            spare_batch: Some(Batch::new()),
            is_committing: false,
            is_read_only: false,
            is_memory_low: false,
            is_memory_half_dirty: false,
            queue: Queue::new(options.queue_ms, options.read_ahead),
            cold_reads: ColdReads::default(),
            upkeep: Upkeep::new(options.placement.shard_count()),
            turns_ns: 0,
            replicated: (platform.node() != ALONE).then(|| Box::new(Replicated::new(platform.node()))),
            now: UnixMillis(platform.now_ms()),
            now_monotonic_ms: platform.monotonic_ns() / 1_000_000,
            options,
            platform,
        }
    }

    /// The core's number.
    #[must_use]
    pub fn index(&self) -> usize {
        self.options.index
    }

    /// Which core has which shard.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        &self.options.placement
    }

    /// The machine's time as of the last reading of the clock. A shard's own may be [later](Shard::look_at_clock).
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        self.now
    }

    /// For intervals: the wall clock may be set back.
    pub(crate) fn monotonic_ms(&self) -> u64 {
        self.platform.monotonic_ns() / 1_000_000
    }

    pub(crate) fn read_clock(&mut self) {
        self.now = UnixMillis(self.platform.now_ms());
        self.now_monotonic_ms = self.monotonic_ms();
    }

    /// The last reading of both clocks.
    pub(crate) fn clocks(&self) -> (UnixMillis, u64) {
        (self.now, self.now_monotonic_ms)
    }

    /// A request begins now: its times are the last reading of the clocks.
    pub fn begins_now(&self, info: &mut RequestInfo) {
        (info.time, info.began_ms) = (self.now, self.now_monotonic_ms);
    }

    /// Whether a shard of this core has something to do.
    pub(crate) fn is_due(&self, id: ShardId) -> bool {
        let shard = self.shards.get(usize::from(id.0)).and_then(Option::as_ref);
        shard.is_some_and(|shard| shard.is_due(self.now, self.now_monotonic_ms))
    }

    /// A nonce for a request that comes in here.
    pub fn take_nonce(&mut self) -> u64 {
        let nonce = self.next_nonce;
        self.next_nonce += 1;
        nonce
    }

    /// A shard of this core, to look at it. Inputs go by [`Core::give`].
    pub fn shard_mut(&mut self, id: ShardId) -> Option<&mut Shard> {
        self.shards.get_mut(usize::from(id.0)).and_then(Option::as_mut)
    }

    /// This core's shards.
    pub fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().flatten()
    }

    /// This core's shards' numbers.
    pub(crate) fn local_shards(&self) -> Vec<ShardId> {
        let is_local = |(_, shard): &(u16, &Option<Shard>)| shard.is_some();
        (0u16..).zip(&self.shards).filter(is_local).map(|(index, _)| ShardId(index)).collect()
    }

    /// Whether no request and no transaction is under way here. Messages that another core had sent here before this is asked
    /// are handled by then. A transaction that others have yet to hear of has not ended where it began.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let is_idle = |shard: &Shard| {
            let Figures { waiting, locked_entities, unfinished, .. } = shard.figures();
            waiting + locked_entities + unfinished == 0
        };
        self.queue.read_count() + self.pending.len() + self.unplaced.len() + self.events.len() == 0
            && self.cold_reads.is_empty()
            && !self.has_given_up_lately()
            && self.shards().all(is_idle)
    }

    /// Whether a request that has come should be read now. If not, `waiter` is woken when it should.
    pub fn is_admitted(&mut self, admission: &mut Option<Admission>, waiter: &P::Waiter) -> bool {
        let is_admitted = self.queue.is_admitted(admission, waiter, || self.platform.monotonic_ns());
        if !is_admitted {
            self.platform.wake();
        }
        is_admitted
    }

    /// Who asked for this admission has gone.
    pub fn withdraw(&mut self, admission: &Admission) {
        self.queue.withdraw(admission);
    }

    /// The reply to a request, once; or `waiter` is woken when it is there.
    pub fn poll_typed<T: TypedReply>(&mut self, to: ReplyTo<T>, waiter: &P::Waiter) -> Option<Result<T, Error>> {
        self.poll_reply(to.token(), waiter).map(|result| result.and_then(typed))
    }

    /// As [`Core::poll_typed`], for whoever keeps replies of all kinds together.
    pub fn poll_reply(&mut self, token: Token, waiter: &P::Waiter) -> Option<Result<Reply, Error>> {
        let fetched = self.pending.fetch(token);
        if fetched.is_none() {
            self.pending.wait(token, waiter);
        }
        fetched
    }

    /// Nobody waits for this reply any more. The request goes on.
    pub fn abandon(&mut self, token: Token) {
        self.pending.abandon(token);
    }

    /// Gives one of this core's shards an input, with everything a shard needs around it.
    ///
    /// A panic stops that shard, not the process: its log is intact, and a restart recovers it.
    pub fn give(&mut self, id: ShardId, input: Input) {
        if let Err(reason) = self.try_give(id, input) {
            self.stop_shard(id, &reason);
        }
    }

    fn try_give(&mut self, id: ShardId, input: Input) -> Result<(), String> {
        self.with_world(Some(id), |shard, world| {
            if let Some(shard) = shard {
                shard.handle(input, world);
            }
        })
    }

    /// As [`Core::give`], for what happens outside any shard, or leaves a shard as it is.
    pub(crate) fn with_world<T>(
        &mut self,
        id: Option<ShardId>,
        input: impl FnOnce(Option<&mut Shard>, &mut World<'_>) -> T,
    ) -> Result<T, String> {
        let is_behind = self.messages_wait();
        let mut shard = id.and_then(|id| self.shards.get_mut(usize::from(id.0))).and_then(Option::as_mut);
        let reads_clock = shard.as_ref().is_some_and(|shard| shard.reads_monotonic_clock());
        let monotonic_ms = if reads_clock { self.platform.monotonic_ns() / 1_000_000 } else { self.now_monotonic_ms };
        let now = match &mut shard {
            Some(_) if self.platform.has_planted(DriverBug::UnclampedTime) => self.now,
            Some(shard) => shard.look_at_clock(self.now, self.now_monotonic_ms),
            None => self.now,
        };
        let cluster = match (id, self.replicated.as_deref_mut()) {
            (id, Some(Replicated { guide, seats, writes, .. })) => {
                let seat = id.and_then(|id| seats.get_mut(&id));
                Some(ClusterOutputs { guide, seat, writes })
            }
            (_, None) => None,
        };
        let mut outputs = CoreOutputs {
            cluster,
            batch: self.options.has_log.then_some(&mut self.batch),
            pending: &mut self.pending,
            events: &mut self.events,
            mail: &mut self.mail,
            upkeep: &mut self.upkeep,
            cold_reads: &mut self.cold_reads,
            core: self.options.index,
            placement: &self.options.placement,
            platform: &mut self.platform,
            metrics: &self.metrics,
        };
        let mut world = World {
            engine: &*self.engine,
            catalog: &self.programs.catalog,
            activations: &mut self.activations,
            entropy: &*self.entropy,
            next_nonce: &mut self.next_nonce,
            outputs: &mut outputs,
            now,
            monotonic_ms,
            is_read_only: self.is_read_only,
            is_behind,
            written_bytes: 0,
            cpu_ns: 0,
        };
        let result = catch_unwind(AssertUnwindSafe(|| input(shard, &mut world)));
        self.turns_ns = self.turns_ns.wrapping_add(world.cpu_ns);
        if let (Some(id), Some(_)) = (id, &self.replicated) {
            self.after_input(id);
        }
        result.map_err(|panic| panic_text(&*panic))
    }

    /// One more shard has stopped for good, of itself or with the log.
    pub(crate) fn count_stopped(&mut self, broken: Option<&str>) {
        self.metrics.stopped_shards.increment();
        self.platform.shard_stopped(broken);
    }

    /// Activations of functions that are live here.
    #[must_use]
    pub fn live_activations(&self) -> usize {
        self.activations.live()
    }

    /// Requests not answered yet: those of this core's connections and those that other cores have passed on.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.pending.len()
    }

    /// Routes that wait without a shard.
    #[must_use]
    pub fn unplaced_routes(&self) -> usize {
        self.unplaced.len()
    }

    /// Whether writes are refused because the disk is full.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Stops a shard whose invariant broke.
    pub fn stop_shard(&mut self, id: ShardId, reason: &str) {
        tracing::error!(shard = id.0, reason, "an invariant of the shard broke; it is stopped until a restart");
        self.count_stopped(Some(reason));
        self.note_stopped(id);
        if let Err(reason) = self.try_give(id, Input::Stop(reason.to_owned())) {
            // Not even its bookkeeping works: nothing can be asked of it any more.
            tracing::error!(shard = id.0, reason, "the stopped shard is dropped");
            self.shards[usize::from(id.0)] = None;
        }
        // A shard answers every request it knows of when it stops. It has forgotten the one it was handling when it broke.
        self.close_gate(id);
        let goes_on = self.is_replicated();
        for token in self.pending.unanswered_by(id) {
            self.answer(token, Err(if goes_on { broke_here() } else { broke() }));
        }
    }
}

pub(crate) fn broke() -> Error {
    let message = "the shard broke at this call and stopped; the call may or may not have taken effect, repeat \
                   it with its Idempotency-Key after a restart";
    Error::new(ErrorCode::Internal, message)
}

/// In a cluster the shard goes on at another node.
fn broke_here() -> Error {
    let message = "the shard broke at this call and stopped here; the call may or may not have taken effect: repeat it \
                   with its Idempotency-Key, at any node";
    Error::new(ErrorCode::ResultUnknown, message)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a text".to_owned())
}
