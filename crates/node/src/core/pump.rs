//! A core's own tasks: the pump between rounds, the messages of other threads, the clock.

use std::time::Duration;

use millrace_log::{Committed, Space};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::MissedTickBehavior;

use crate::core::queue::ROUND_NS;
use crate::core::{Core, CoreMessage, SharedCore};

/// How often timers, memory and the checkpoint are looked after.
const TICK_MS: u64 = 50;

/// Messages of other threads taken at once.
const MESSAGES_PER_TURN: usize = 256;

/// Ends each round: hands the batch to the committer and runs a slice of the queue. It is woken
/// by the round's first request and thus polled after every task that was ready then, so that
/// one batch takes the effects of all of them.
pub(crate) async fn run_pump(core: SharedCore) {
    let pump = core.borrow().pump.clone();
    loop {
        pump.notified().await;
        let has_more = core.borrow_mut().end_round();
        if has_more {
            // Lets the runtime read new input first, so that it can be refused in time.
            tokio::task::yield_now().await;
            pump.notify_one();
        }
    }
}

/// Handles what other threads say, until the node stops: as much as a round may take, then connections have their turn.
pub(crate) async fn run_messages<M>(core: SharedCore, mut messages: UnboundedReceiver<M>, handle: fn(&mut Core, M)) {
    let mut buffer = Vec::with_capacity(MESSAGES_PER_TURN);
    while messages.recv_many(&mut buffer, MESSAGES_PER_TURN).await > 0 {
        let mut rest = buffer.drain(..).peekable();
        while rest.peek().is_some() {
            core.borrow_mut().handle_for_a_round(&mut rest, handle);
            tokio::task::yield_now().await;
        }
    }
}

/// Looks after what depends on time.
pub(crate) async fn run_ticks(core: SharedCore) {
    let mut interval = tokio::time::interval(Duration::from_millis(TICK_MS));
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        core.borrow_mut().tick();
    }
}

impl Core {
    /// Says whether there is more to do at once.
    fn end_round(&mut self) -> bool {
        let has_queued = self.run_queue();
        let began_ns = self.shared.clock.monotonic_ns();
        self.handle_events_until(began_ns + ROUND_NS);
        // What nobody waits for shares a round.
        let has_due = self.run_due_shards(began_ns + ROUND_NS / 2);
        self.carry_until(began_ns + ROUND_NS);
        self.commit();
        self.queue.end_round();
        let has_to_flush = self.flush_step();
        has_queued || has_due || has_to_flush || !self.events.is_empty() || !self.carried.is_empty()
    }

    /// Hands the batch to the committer, if it has none of this core.
    pub(crate) fn commit(&mut self) {
        if self.is_committing || self.batch.is_empty() {
            return;
        }
        if let Some(committer) = &self.committer {
            let next = self.spare_batch.take().unwrap_or_default();
            self.is_committing = true;
            committer.submit(std::mem::replace(&mut self.batch, next));
        }
    }

    fn handle_for_a_round<M>(&mut self, messages: &mut impl Iterator<Item = M>, handle: fn(&mut Self, M)) {
        self.read_clock();
        let until_ns = self.shared.clock.monotonic_ns() + ROUND_NS;
        for message in messages {
            handle(self, message);
            self.handle_events();
            if self.shared.clock.monotonic_ns() >= until_ns {
                break;
            }
        }
    }

    pub(crate) fn handle(&mut self, message: CoreMessage) {
        match message {
            CoreMessage::Request { from, token, job, since_ns } => self.accept(from, token, job, since_ns),
            CoreMessage::Reply { token, result } => {
                if let Some(forward) = self.slots.reply(token, result) {
                    let reply = CoreMessage::Reply { token: forward.token, result: forward.result };
                    self.shared.send(forward.core, reply);
                }
            }
            CoreMessage::Peer { to, message } => self.accept_peer(to, message),
            CoreMessage::Offloaded { ticket, result } => self.offloaded(ticket, result),
            CoreMessage::Committed(news) => self.committed(news),
            CoreMessage::Flushed { shard, chunk, result } => self.flushed(shard, &chunk, result),
            CoreMessage::Prepare { deployment, app, done } => {
                // Nobody waiting any more means that the node is stopping.
                let _ = done.send(self.load(deployment, &app));
            }
            CoreMessage::Close { deployment, done } => {
                let _ = done.send(self.close(deployment));
            }
            CoreMessage::Activate { deployment, done } => {
                let _ = done.send(self.activate(deployment));
            }
            CoreMessage::IsQuiet { done } => {
                let _ = done.send(self.is_quiet());
            }
            CoreMessage::Versions { done } => {
                let _ = done.send(self.versions());
            }
            CoreMessage::Discard { deployment } => {
                self.discard(deployment);
                self.forget_unused();
            }
            CoreMessage::Remove { app, done } => {
                let _ = done.send(self.remove(&app));
            }
        }
    }

    fn committed(&mut self, news: Committed) {
        match news {
            Committed::Durable { mut batch, report } => {
                self.is_committing = false;
                self.metrics.committed(&report);
                self.set_read_only(report.space == Space::Low);
                for range in batch.committed() {
                    let last = range.last;
                    self.with_shard(range.shard, |shard, world| shard.durable(last, world));
                }
                batch.clear();
                self.spare_batch = Some(batch);
                self.handle_events();
            }
            Committed::OutOfSpace => self.set_read_only(true),
            Committed::Space(space) => self.set_read_only(space == Space::Low),
            Committed::Failed { error, .. } => self.log_failed(&error.to_string()),
        }
    }

    fn set_read_only(&mut self, is_read_only: bool) {
        if self.is_read_only == is_read_only {
            return;
        }
        self.is_read_only = is_read_only;
        let cores = &self.shared.read_only_cores;
        if is_read_only {
            cores.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tracing::warn!(
                core = self.index,
                "the disk is full: reading goes on, writes are refused until space returns"
            );
        } else {
            cores.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            tracing::info!(core = self.index, "there is space again: writes are taken");
        }
    }

    /// The log of this core cannot be trusted any more: its shards stop for good.
    fn log_failed(&mut self, reason: &str) {
        tracing::error!(core = self.index, reason, "the log failed; this core's shards are stopped until a restart");
        for id in self.local_shards() {
            let is_new = self.shards[usize::from(id.0)].as_ref().is_some_and(|shard| !shard.is_stopped());
            if is_new {
                self.count_stopped();
                self.with_shard(id, |shard, world| shard.stop(reason, world));
            }
        }
        self.batch.clear();
    }
}
