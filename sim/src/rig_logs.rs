//! What becomes of a rig's entries: which shards share a log, what is durable, and what a crash leaves.
//!
//! The entries of the shards that share a log follow each other in it, in the order they were made. An
//! fsync makes a first part of what is there durable; after a crash a log is there up to some entry and no
//! further. What is not known to be durable is the log's *tail*.

use millrace_shard::Input;
use std::collections::BTreeMap;

use millrace_base::{Lsn, ShardId};
use millrace_shard::{Delivery, PeerMessage, Sequence};

use crate::core::LoggedEntry;
use crate::rig::Rig;

/// Something on its way between two shards.
#[derive(Clone)]
pub enum OnItsWay {
    Peer(ShardId, PeerMessage),
    Delivery(ShardId, Delivery),
    Acknowledgement(ShardId, ShardId, Sequence),
}

impl Rig {
    /// As [`Rig::new`], but all shards share one log, as those of a core do.
    #[must_use]
    pub fn with_one_log(shard_count: u16) -> Self {
        Self::with_logs(&vec![0; usize::from(shard_count)])
    }

    /// How many logs there are.
    #[must_use]
    pub fn log_count(&self) -> u16 {
        self.logs.iter().max().map_or(0, |last| last + 1)
    }

    fn log_of(&self, shard: ShardId) -> u16 {
        self.logs[usize::from(shard.0)]
    }

    /// The shards that write the same log as `shard`, itself included.
    pub(crate) fn log_mates(&self, shard: ShardId) -> impl Iterator<Item = ShardId> + use<> {
        self.shards_of(self.log_of(shard))
    }

    fn shards_of(&self, log: u16) -> impl Iterator<Item = ShardId> + use<> {
        let shards = (0..).map(ShardId).zip(self.logs.clone());
        shards.filter(move |(_, other)| *other == log).map(|(shard, _)| shard)
    }

    fn is_durable(&self, entry: &LoggedEntry) -> bool {
        // Of a shard that is away everything else is lost.
        self.core.shards.get(&entry.shard).is_none_or(|shard| entry.lsn <= shard.durable_lsn())
    }

    /// Of each log, how many entries are not known to be durable.
    ///
    /// # Panics
    /// When an entry is durable and one before it in its log is not: no disk does that.
    #[must_use]
    pub fn tails(&self) -> Vec<usize> {
        let mut tails = vec![0; usize::from(self.log_count())];
        for entry in &self.log {
            let tail = &mut tails[usize::from(self.log_of(entry.shard))];
            if !self.is_durable(entry) {
                *tail += 1;
            } else {
                assert_eq!(*tail, 0, "{} {} is durable without what comes before it", entry.shard, entry.lsn);
            }
        }
        tails
    }

    /// The process dies; entries that are not durable are lost, and so is everything in memory.
    pub fn crash(&mut self) {
        self.crash_keeping(|_| false);
    }

    /// As [`Rig::crash`], but the shards that `keeps_tail` names lose nothing: what was written and
    /// not yet known to be durable may be there afterwards or not, in each log by itself.
    ///
    /// # Panics
    /// When shards of one log are to keep and to lose it.
    pub fn crash_keeping(&mut self, keeps_tail: impl Fn(ShardId) -> bool) {
        let kept = |log: u16| {
            let mut shards = self.shards_of(log).map(&keeps_tail);
            let is_kept = shards.next().expect("every log has a shard");
            assert!(shards.all(|other| other == is_kept), "one log is there or it is not");
            if is_kept { usize::MAX } else { 0 }
        };
        let kept: Vec<usize> = (0..self.log_count()).map(kept).collect();
        self.crash_keeping_entries(&kept);
    }

    /// As [`Rig::crash`], but of each log's tail so many entries are there afterwards: the first ones.
    pub fn crash_keeping_entries(&mut self, kept: &[usize]) {
        let mut left = kept.to_vec();
        let mut survivors = std::mem::take(&mut self.log);
        survivors.retain(|entry| {
            let left = &mut left[usize::from(self.log_of(entry.shard))];
            let is_there = self.is_durable(entry) || *left > 0;
            *left = left.saturating_sub(usize::from(is_there && !self.is_durable(entry)));
            is_there
        });
        self.restart_from(survivors);
    }

    /// What is on its way between shards and may come late, even after both have started again. What
    /// shards of one log say to each other about transactions is not among it: that may be said before
    /// it is durable, and is lost with the core that carries it.
    #[must_use]
    pub fn on_their_way(&self) -> Vec<OnItsWay> {
        let peers = self.peers.iter().filter(|(to, message)| self.outlives_a_core(*to, message));
        let peers = peers.map(|(to, message)| OnItsWay::Peer(*to, message.clone()));
        let deliveries = self.deliveries.iter().map(|(to, delivery)| OnItsWay::Delivery(*to, delivery.clone()));
        let acknowledgements = self.acknowledgements.iter().copied();
        let acknowledgements = acknowledgements.map(|(to, from, last)| OnItsWay::Acknowledgement(to, from, last));
        peers.chain(deliveries).chain(acknowledgements).collect()
    }

    /// Whether a message between two shards may come after a crash.
    #[must_use]
    pub fn outlives_a_core(&self, to: ShardId, message: &PeerMessage) -> bool {
        self.log_of(to) != self.log_of(message.from)
    }

    /// Hands over something that was on its way before.
    pub fn hand_over(&mut self, what: OnItsWay) {
        match what {
            OnItsWay::Peer(to, message) => self.peer(to, message),
            OnItsWay::Delivery(to, delivery) => self.deliver(to, delivery),
            OnItsWay::Acknowledgement(to, from, last) => self.acknowledge((to, from, last)),
        }
    }

    /// Runs what is due, and gives every log to the disk.
    pub fn make_durable(&mut self) {
        self.run_due();
        for log in 0..self.log_count() {
            self.make_log_durable(log);
        }
    }

    /// Gives the log of a shard to the disk: all that is in it, its mates' entries too.
    pub fn make_durable_in(&mut self, shard: ShardId) {
        self.make_log_durable(self.log_of(shard));
    }

    /// Gives all of a log to the disk.
    pub fn make_log_durable(&mut self, log: u16) {
        // As it is now: what follows from this being durable is not durable with it.
        let shards: Vec<ShardId> = self.shards_of(log).filter(|shard| self.core.shards.contains_key(shard)).collect();
        let lsn = |rig: &mut Self, shard: ShardId| rig.core.shards.get_mut(&shard).expect("there").store().lsn();
        let ends: Vec<(ShardId, Lsn)> = shards.into_iter().map(|shard| (shard, lsn(self, shard))).collect();
        self.are_durable(ends);
    }

    /// Gives the first so many entries of a log's tail to the disk.
    pub fn make_entries_durable(&mut self, log: u16, count: usize) {
        let is_it = |entry: &&LoggedEntry| self.log_of(entry.shard) == log && !self.is_durable(entry);
        let ends: BTreeMap<ShardId, Lsn> =
            self.log.iter().filter(is_it).take(count).map(|entry| (entry.shard, entry.lsn)).collect();
        self.are_durable(ends);
    }

    /// A log that has failed takes nothing more.
    fn are_durable(&mut self, ends: impl IntoIterator<Item = (ShardId, Lsn)>) {
        for (shard, lsn) in ends {
            if !self.core.shards[&shard].is_stopped() {
                self.core.give(shard, Input::Durable(lsn));
            }
        }
        self.collect();
    }

    /// A shard's log has failed: it stops, and so do those that share the log.
    pub fn stop(&mut self, shard: ShardId) {
        for shard in self.log_mates(shard) {
            self.core.give(shard, Input::Stop("the disk failed".to_owned()));
        }
        self.collect();
    }
}
