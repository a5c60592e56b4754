//! The inputs of a core beside requests, and the end of a round.

use millrace_base::Lsn;
use millrace_log::{Committed, ShardRange, Space};
use millrace_shard::{Input, Sequence, Shard};

use crate::core::Core;
use crate::message::{CoreMessage, Destination, ShardMail};
use crate::platform::{DriverBug, Platform};
use crate::queue::ROUND_NS;
use crate::replicated::Replicated;

impl<P: Platform> Core<P> {
    /// Ends a round. The core runs a slice of the queue, carries what shards say to each other, and hands the batch to the
    /// log. So one batch takes the effects of all inputs of the round. Says whether there is more to do at once.
    pub fn end_round(&mut self) -> bool {
        let has_queued = self.run_queue();
        let began_ns = self.platform.monotonic_ns();
        self.handle_events_until(began_ns + ROUND_NS);
        // Work that nobody waits for shares one round.
        let has_due = self.run_due_shards(began_ns + ROUND_NS / 2);
        self.carry_mail_until(began_ns + ROUND_NS);
        self.hand_on();
        self.end_replicas_round();
        self.commit();
        self.queue.end_round();
        let has_to_flush = self.flush_step();
        has_queued || has_due || has_to_flush || !self.events.is_empty() || !self.mail.is_empty()
    }

    /// Hands the batch to the log, if the log has none of this core.
    pub fn commit(&mut self) {
        if self.is_committing || !self.has_unwritten() {
            return;
        }
        let next = self.spare_batch.take().unwrap_or_default();
        self.is_committing = true;
        if let Some(replicated) = &mut self.replicated {
            replicated.writes.begin_commit();
        }
        self.platform.commit(std::mem::replace(&mut self.batch, next));
    }

    /// Whether anything waits for the log.
    pub(crate) fn has_unwritten(&self) -> bool {
        let has_writes = |replicated: &Replicated| !replicated.writes.is_empty();
        !self.batch.is_empty() || self.replicated.as_deref().is_some_and(has_writes)
    }

    /// Takes messages of others for as long as a round may last. The rest stays in the iterator.
    pub fn handle_for_a_round<M>(&mut self, messages: &mut impl Iterator<Item = M>, handle: fn(&mut Self, M)) {
        self.read_clock();
        let until_ns = self.platform.monotonic_ns() + ROUND_NS;
        for message in messages {
            handle(self, message);
            self.handle_events();
            if self.platform.monotonic_ns() >= until_ns {
                break;
            }
        }
    }

    /// Takes a message of another core.
    pub fn handle(&mut self, message: CoreMessage) {
        match message {
            CoreMessage::Request { from, token, job, since_ns } => self.accept(from, token, job, since_ns),
            CoreMessage::Reply { token, result } if self.platform.has_planted(DriverBug::MisdirectReplies) => {
                let other = self.pending.unanswered_by_others().into_iter().find(|other| *other != token);
                self.hand_over(other.unwrap_or(token), result);
            }
            CoreMessage::Reply { token, result } => self.hand_over(token, result),
            CoreMessage::Peer { to, message } => self.accept_peer(to, message),
            CoreMessage::NotHere { token, job, since_ns } => self.come_back(token, job, since_ns),
            CoreMessage::Opened { shard, epoch, owner } => self.hear_opened(shard, epoch, owner),
            CoreMessage::Detour { node, nodes_left, to, message } => {
                self.pass_detour(node, nodes_left, (to, message));
            }
            CoreMessage::OpenedDetour { node, shard, epoch, owner } => {
                self.platform.send_node(node, Destination::Every, CoreMessage::Opened { shard, epoch, owner });
            }
        }
    }

    /// Takes mail to the shard of this core that it is for.
    pub fn handle_mail(&mut self, mail: ShardMail) {
        if self.is_replicated() { self.accept_mail_of_cluster(mail) } else { self.hand_mail(mail) }
    }

    pub(crate) fn hand_mail(&mut self, mail: ShardMail) {
        match mail {
            ShardMail::Message { to, delivery } => self.give(to, Input::Deliver(delivery)),
            ShardMail::Arrived { to, from, sequence } => {
                let sequence = if self.platform.has_planted(DriverBug::AcknowledgeTooMuch) {
                    Sequence { lsn: Lsn(u64::MAX >> 1), ..sequence }
                } else {
                    sequence
                };
                self.give(to, Input::Acknowledged { from, sequence });
            }
        }
    }

    /// Carries mail between this core's shards until the round has lasted long enough.
    fn carry_mail_until(&mut self, until_ns: u64) {
        while let Some(mail) = self.mail.pop_front() {
            self.handle_mail(mail);
            self.handle_events();
            if self.platform.monotonic_ns() >= until_ns {
                break;
            }
        }
    }

    /// What became of the batch that the log has.
    pub fn committed(&mut self, news: Committed) {
        match news {
            Committed::Durable { mut batch, report } => {
                self.is_committing = false;
                self.metrics.committed(&report);
                self.set_read_only(report.space == Space::Low);
                if self.is_replicated() {
                    self.replicas_written();
                } else {
                    for range in batch.committed() {
                        let last = self.durable_up_to(range);
                        self.give(range.shard, Input::Durable(last));
                    }
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

    fn durable_up_to(&mut self, range: &ShardRange) -> Lsn {
        if self.platform.has_planted(DriverBug::CountNewEntriesAsDurable) {
            return self.shard_mut(range.shard).map_or(range.last, |shard| shard.store().lsn());
        }
        range.last
    }

    fn set_read_only(&mut self, is_read_only: bool) {
        if self.is_read_only == is_read_only {
            return;
        }
        self.is_read_only = is_read_only;
        self.platform.read_only_changed(is_read_only);
        let core = self.options.index;
        if is_read_only {
            tracing::warn!(core, "the disk is full: reading goes on, writes are refused until space returns");
        } else {
            tracing::info!(core, "there is space again: writes are taken");
        }
    }

    /// The log of this core cannot be trusted any more: its shards stop for good.
    fn log_failed(&mut self, reason: &str) {
        let core = self.options.index;
        tracing::error!(core, reason, "the log failed; this core's shards are stopped until a restart");
        self.stop_replicas();
        for id in self.local_shards() {
            if self.shard_mut(id).is_some_and(|shard| !shard.is_stopped()) {
                self.count_stopped(None);
                self.give(id, Input::Stop(reason.to_owned()));
            }
        }
        self.batch.clear();
    }

    /// The last batch of a core that ends: what is not durable yet.
    pub fn take_batch(&mut self) -> millrace_log::Batch {
        std::mem::take(&mut self.batch)
    }

    /// Whether nothing is under way but timers: what the queue, the shards' mail and the batch hold is done with.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.cold_reads.is_empty()
            && self.events.is_empty()
            && self.mail.is_empty()
            && self.open_offloads == 0
            && !self.has_unwritten()
            && self.replicated.as_ref().is_none_or(|replicated| replicated.is_idle())
            && !self.is_committing
    }

    /// Whether a shard of this core has stopped: the node needs a restart.
    #[must_use]
    pub fn has_stopped_shard(&self) -> bool {
        self.shards().any(Shard::is_stopped)
    }
}
