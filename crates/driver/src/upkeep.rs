//! What a core does between requests: timers, eviction, checkpoints, log truncation.
//!
//! One flush runs at a time per core. A flush keeps restarts quick and the log short. It starts for one of four
//! reasons ([`FlushPolicy`]):
//!
//! - Dirty entities take more than a quarter of the core's memory.
//! - The log has grown past `log_bytes`.
//! - A shard's oldest change is `flush_after_ms` old.
//! - Another node lacks rows of the shard, and the checkpoint does not have the entry that made it a replica.

use std::collections::{BTreeMap, VecDeque};

use millrace_base::{Lsn, ShardId};
use millrace_shard::{Figures, Input, Shard};
use millrace_store::{FlushChunk, Store, StoreError};

use crate::core::Core;
use crate::platform::Platform;

/// When checkpoints are written, and in which portions.
#[derive(Clone, Copy, Debug)]
pub struct FlushPolicy {
    /// Log kept before a checkpoint is made to shorten it.
    pub log_bytes: u64,
    /// A change is checkpointed at the latest after this long.
    pub flush_after_ms: u64,
    /// Bytes of one chunk: large enough that the checkpoint takes it without a journal of its own.
    pub chunk_bytes: usize,
    /// Bytes of a chunk gathered between two rounds, so that no request waits long for it.
    pub gather_bytes: usize,
}

impl Default for FlushPolicy {
    /// The log takes a few seconds to replay.
    fn default() -> Self {
        Self { log_bytes: 256 << 20, flush_after_ms: 60_000, chunk_bytes: 4 << 20, gather_bytes: 128 << 10 }
    }
}

/// Entities whose bookkeeping is finished between two rounds, after their chunk was written.
const SETTLE_ENTITIES: usize = 512;

/// Memory given back in one go.
const EVICT_BYTES: usize = 8 << 20;

/// After a failed checkpoint write, how long to wait.
const RETRY_MS: u64 = 1_000;

/// Every shard is ticked once in this time, a few at each of the core's ticks.
pub const SHARD_TICK_MS: u64 = 1_000;

pub(crate) struct Upkeep {
    /// The shard being flushed, and how far it is.
    flushing: Option<(ShardId, Flushing)>,
    /// A shard with confirmed chunks whose bookkeeping goes on between rounds.
    settling: Option<ShardId>,
    /// Look for something to flush at the next step; set by each tick and at each flush's end.
    looks_for_flush: bool,
    /// By shard: when its last flush began, and its last tick, in monotonic milliseconds.
    last_flush_ms: Vec<u64>,
    last_tick_ms: Vec<u64>,
    no_flush_before_ms: u64,
    /// How far the checkpoint of a shard has to be before its rows can be carried to another node that lacks them.
    wanted: BTreeMap<ShardId, Lsn>,
    /// Shards whose tick or due messages wait for their turn.
    due: VecDeque<ShardId>,
    /// The operator was told that the time of a shard is ahead of the machine's clock.
    is_ahead: bool,
}

/// From this lead of a shard's time on the operator is told. Clocks that are kept in time differ by far less.
const MUCH_AHEAD_MS: u64 = 5_000;

/// Where the present flush stands.
enum Flushing {
    /// The next chunk has yet to be begun.
    Next,
    /// A chunk is being gathered.
    Gathering(FlushChunk),
    /// A whole chunk waits until the log is durable up to what it holds.
    Waiting(FlushChunk),
    /// The flusher writes a chunk.
    Writing,
}

impl Upkeep {
    pub(crate) fn new(shard_count: u16) -> Self {
        // One more, which runs no functions, in a cluster.
        let shards = usize::from(shard_count) + 1;
        Self {
            looks_for_flush: true,
            due: VecDeque::new(),
            is_ahead: false,
            flushing: None,
            settling: None,
            last_flush_ms: vec![0; shards],
            last_tick_ms: vec![0; shards],
            no_flush_before_ms: 0,
            wanted: BTreeMap::new(),
        }
    }

    /// Another node waits for a checkpoint of the shard that is as far as that.
    pub(crate) fn want(&mut self, id: ShardId, at_least: Lsn) {
        self.wanted.insert(id, at_least);
        self.looks_for_flush = true;
    }

    /// A shard has something to do as soon as it has its turn.
    pub(crate) fn note_due(&mut self, id: ShardId) {
        if !self.due.contains(&id) {
            self.due.push_back(id);
        }
    }

    /// A shard is not here any more.
    pub(crate) fn forget(&mut self, id: ShardId) {
        self.flushing.take_if(|(flushed, _)| *flushed == id);
        self.settling.take_if(|settled| *settled == id);
        self.wanted.remove(&id);
        self.due.retain(|due| *due != id);
    }
}

impl<P: Platform> Core<P> {
    /// Looks after what depends on time; to be called some twenty times a second.
    pub fn tick(&mut self) {
        self.read_clock();
        let now_ms = self.monotonic_ms();
        for id in self.local_shards() {
            let index = usize::from(id.0);
            let is_turn = now_ms - self.upkeep.last_tick_ms[index] >= SHARD_TICK_MS;
            if is_turn || self.is_due(id) {
                self.upkeep.note_due(id);
            }
        }
        self.upkeep.looks_for_flush = true;
        self.look_after_memory();
        self.give_up_late_routes();
        self.unload_retired();
        self.tick_replicas();
        self.measure();
        self.platform.wake();
    }

    /// Lets each shard see at once what was deployed: its schedules begin now, not at its next turn up to a second later.
    pub fn see_deployed(&mut self) {
        self.read_clock();
        for id in self.local_shards() {
            self.tick_shard(id);
            self.handle_events();
        }
    }

    fn tick_shard(&mut self, id: ShardId) {
        self.upkeep.last_tick_ms[usize::from(id.0)] = self.monotonic_ms();
        self.give(id, Input::Tick);
    }

    /// Ticks due shards until the round has lasted long enough. Says whether some are left.
    pub(crate) fn run_due_shards(&mut self, until_ns: u64) -> bool {
        while let Some(id) = self.upkeep.due.pop_front() {
            if self.monotonic_ms() - self.upkeep.last_tick_ms[usize::from(id.0)] >= SHARD_TICK_MS {
                self.tick_shard(id);
            } else {
                self.give(id, Input::RunDue);
            }
            self.handle_events();
            // Else there is nothing that it may do; the next tick looks again.
            if !self.is_read_only && !self.messages_wait() && self.is_due(id) {
                self.upkeep.note_due(id);
            }
            if self.platform.monotonic_ns() >= until_ns {
                break;
            }
        }
        !self.upkeep.due.is_empty()
    }

    /// The sum over all states here, also those that no shard runs over.
    fn sum_stores(&mut self, mut of: impl FnMut(&mut Store) -> usize) -> usize {
        let hosted = self.replicated.iter_mut().flat_map(|replicated| replicated.stores()).map(&mut of).sum::<usize>();
        hosted + self.shards.iter_mut().flatten().map(|shard| of(shard.store())).sum::<usize>()
    }

    /// A shard's state, and up to where it is durable.
    fn store_of(&mut self, id: ShardId) -> Option<(&mut Store, Lsn)> {
        if let Some(Some(shard)) = self.shards.get_mut(usize::from(id.0)) {
            let durable = shard.durable_lsn();
            return Some((shard.store(), durable));
        }
        // Only what is committed and durable is applied where no shard runs.
        let store = self.replicated.as_mut()?.store(id)?;
        let lsn = store.lsn();
        Some((store, lsn))
    }

    /// The numbers of all states here.
    fn stored_shards(&self) -> Vec<ShardId> {
        let mut ids = self.local_shards();
        ids.extend(self.replicated.iter().flat_map(|replicated| replicated.stored()));
        ids
    }

    /// Evicts clean entities of every shard in proportion to what it holds.
    fn look_after_memory(&mut self) {
        let budget = self.options.memory_bytes;
        let resident = self.sum_stores(|store| store.resident_bytes());
        if resident <= budget {
            return;
        }
        // A tenth below the budget, so that not every tick has to evict a little; and no more at
        // once than takes a few milliseconds.
        let target = (budget / 10 * 9).max(resident.saturating_sub(EVICT_BYTES));
        let own = self.shards.iter_mut().flatten().map(Shard::store);
        for store in own.chain(self.replicated.iter_mut().flat_map(|replicated| replicated.stores())) {
            let share = store.resident_bytes() as u128 * target as u128 / resident as u128;
            store.evict(usize::try_from(share).unwrap_or(usize::MAX));
        }
    }

    /// Brings the gauges up to date, and decides whether memory is short.
    pub fn measure(&mut self) {
        let resident = self.sum_stores(|store| store.resident_bytes());
        let entities = self.sum_stores(|store| store.resident_entities());
        let dirty = self.sum_stores(|store| store.dirty_bytes());
        let figures: Vec<Figures> = self.shards().map(Shard::figures).collect();
        let sum = |of: fn(&Figures) -> usize| figures.iter().map(of).sum::<usize>() as u64;
        let failed_attempts: u64 = figures.iter().map(|one| one.failed_attempts).sum();
        let restarts: u64 = figures.iter().map(|one| one.restarts).sum();
        self.metrics.resident_bytes.set(resident as u64);
        self.metrics.resident_entities.set(entities as u64);
        self.metrics.dirty_bytes.set(dirty as u64);
        self.metrics.waiting_transactions.set(sum(|one| one.waiting));
        self.metrics.locked_entities.set(sum(|one| one.locked_entities));
        self.metrics.unfinished_commits.set(sum(|one| one.unfinished));
        self.metrics.workflows.set(sum(|one| one.workflows));
        self.metrics.pending_workflows.set(sum(|one| one.pending_workflows));
        self.metrics.paused_workflows.set(sum(|one| one.paused_workflows));
        self.metrics.failing_messages.set(sum(|one| one.failing_messages));
        self.metrics.dead_letters.set(sum(|one| one.dead_letters));
        let counted = &self.metrics.transaction_restarts;
        counted.add(restarts.saturating_sub(counted.get()));
        let counted = &self.metrics.failed_attempts;
        counted.add(failed_attempts.saturating_sub(counted.get()));
        for (index, counted) in self.metrics.workflows_ended.iter().enumerate() {
            let ended: u64 = figures.iter().map(|one| one.ended_workflows[index]).sum();
            counted.add(ended.saturating_sub(counted.get()));
        }
        self.metrics.queued_requests.set(self.queue.len() as u64);
        self.metrics.open_requests.set(self.pending.len() as u64);
        let memory_bytes = self.options.memory_bytes;
        self.is_memory_low = dirty > memory_bytes / 4 * 3;
        self.is_memory_half_dirty = dirty > memory_bytes / 2;
        self.measure_clocks();
    }

    /// By how much the times of shards are ahead of the machine's clock. The log has one line when that is much, and one when it
    /// has ended.
    fn measure_clocks(&mut self) {
        let (now, monotonic_ms) = self.clocks();
        let leads = self.shards().map(|shard| (shard.clock_lead_ms(now, monotonic_ms), shard.id()));
        let (lead_ms, shard) = leads.max().unwrap_or((0, ShardId(0)));
        self.metrics.clock_lead_ms.set(lead_ms);
        let is_ahead = lead_ms >= if self.upkeep.is_ahead { 1 } else { MUCH_AHEAD_MS };
        if self.upkeep.is_ahead == is_ahead {
            return;
        }
        self.upkeep.is_ahead = is_ahead;
        let core = self.options.index;
        if is_ahead {
            let ahead_s = lead_ms / 1_000;
            tracing::warn!(
                core,
                shard = shard.0,
                ahead_s,
                "the time of a shard is ahead of this machine's clock, which was set back or is behind: until the clock has caught \
                 up, the shard's time passes at half the pace"
            );
        } else {
            tracing::info!(core, "no shard's time is ahead of this machine's clock any more");
        }
    }

    /// Moves the flush on by a bounded step. Says whether more can be done at once.
    pub(crate) fn flush_step(&mut self) -> bool {
        if let Some(id) = self.upkeep.settling {
            let has_more = self.store_of(id).is_some_and(|(store, _)| store.settle(SETTLE_ENTITIES));
            self.upkeep.settling = has_more.then_some(id);
        }
        let (id, flushing) = match self.upkeep.flushing.take() {
            Some(flushing) => flushing,
            // What one shard's flush has left to settle comes first: there is one place to note it.
            None if self.upkeep.settling.is_some() => return true,
            None => match self.begin_flush() {
                Some(id) => (id, Flushing::Next),
                None => return false,
            },
        };
        let FlushPolicy { chunk_bytes, gather_bytes, .. } = self.options.flush;
        let Some((store, durable)) = self.store_of(id) else {
            return false;
        };
        let next = match flushing {
            Flushing::Next => match store.next_flush_chunk(gather_bytes) {
                Some(chunk) => Flushing::Gathering(chunk),
                None => return false,
            },
            Flushing::Gathering(mut chunk) => {
                let has_more = chunk.size_bytes() < chunk_bytes && store.extend_flush_chunk(&mut chunk, gather_bytes);
                if has_more { Flushing::Gathering(chunk) } else { Flushing::Waiting(chunk) }
            }
            Flushing::Waiting(chunk) if chunk.needs_durable() <= durable => {
                self.platform.write_chunk(id, chunk);
                Flushing::Writing
            }
            other => other,
        };
        let can_go_on = matches!(next, Flushing::Gathering(_)) || self.upkeep.settling.is_some();
        self.upkeep.flushing = Some((id, next));
        can_go_on
    }

    fn begin_flush(&mut self) -> Option<ShardId> {
        let now = self.monotonic_ms();
        if !std::mem::take(&mut self.upkeep.looks_for_flush) || now < self.upkeep.no_flush_before_ms {
            return None;
        }
        let dirty = self.sum_stores(|store| store.dirty_bytes());
        let is_large = dirty > self.options.memory_bytes / 4;
        let is_log_long = self.platform.closed_log_bytes() > self.options.flush.log_bytes;
        let mut best: Option<(usize, ShardId)> = None;
        for id in self.stored_shards() {
            let index = usize::from(id.0);
            if self.shards.get(index).is_some_and(|shard| shard.as_ref().is_some_and(Shard::is_stopped)) {
                continue;
            }
            let Some((store, _)) = self.store_of(id) else {
                continue;
            };
            let (checkpointed, lsn, dirty_bytes) = (store.checkpoint_lsn(), store.lsn(), store.dirty_bytes());
            let is_wanted = self.upkeep.wanted.get(&id).is_some_and(|at_least| checkpointed < *at_least);
            if !is_wanted {
                self.upkeep.wanted.remove(&id);
            }
            if checkpointed == lsn {
                self.upkeep.last_flush_ms[index] = now;
                continue;
            }
            let is_old = (now - self.upkeep.last_flush_ms[index]) > self.options.flush.flush_after_ms;
            if !is_large && !is_log_long && !is_old && !is_wanted {
                continue;
            }
            // The shard that has not been checkpointed for longest holds the log back, however
            // little it holds; among the others the largest frees most memory.
            let age_ms = usize::try_from(now - self.upkeep.last_flush_ms[index]).unwrap_or(usize::MAX);
            let weight = if is_wanted {
                usize::MAX
            } else if is_old || (is_log_long && !is_large) {
                age_ms.saturating_add(usize::MAX / 2)
            } else {
                dirty_bytes
            };
            if best.is_none_or(|(most, _)| weight > most) {
                best = Some((weight, id));
            }
        }
        let (_, id) = best?;
        self.upkeep.last_flush_ms[usize::from(id.0)] = now;
        let (store, _) = self.store_of(id)?;
        store.begin_flush().map(|_| id)
    }

    /// The flusher has written a chunk, or could not.
    pub fn flushed(&mut self, id: ShardId, chunk: &FlushChunk, result: Result<(), String>) {
        // A shard that was given up meanwhile has nothing to do with it any more.
        if self.upkeep.flushing.take_if(|(flushed, _)| *flushed == id).is_none() {
            return;
        }
        self.upkeep.looks_for_flush = true;
        let now_ms = self.monotonic_ms();
        let Some((store, _)) = self.store_of(id) else {
            return;
        };
        match result {
            Ok(()) => {
                let checkpointed = store.confirm_flush_chunk(chunk);
                self.metrics.checkpointed_bytes.add(chunk.size_bytes() as u64);
                self.upkeep.settling = Some(id);
                match checkpointed {
                    Some(lsn) => self.platform.checkpointed(id, lsn),
                    None => self.upkeep.flushing = Some((id, Flushing::Next)),
                }
            }
            Err(reason) => {
                tracing::warn!(shard = id.0, reason, "a checkpoint could not be written; it will be tried again");
                store.abandon_flush();
                self.upkeep.no_flush_before_ms = now_ms + RETRY_MS;
            }
        }
        self.platform.wake();
    }

    /// Gives everything that is dirty to `write`, chunk by chunk: the only way to keep state across a stop when there is no
    /// log. Chunks that were handed to the platform before must have been written or given up.
    ///
    /// # Errors
    /// What `write` answers.
    pub fn flush_everything(
        &mut self,
        mut write: impl FnMut(ShardId, &FlushChunk) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let chunk_bytes = self.options.flush.chunk_bytes;
        for id in self.stored_shards() {
            let Some((store, _)) = self.store_of(id) else {
                continue;
            };
            store.abandon_flush();
            store.begin_flush();
            while let Some(chunk) = store.next_flush_chunk(chunk_bytes) {
                write(id, &chunk)?;
                store.confirm_flush_chunk(&chunk);
            }
        }
        Ok(())
    }
}
