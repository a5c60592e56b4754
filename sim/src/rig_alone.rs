//! Shards of a rig that fail alone, and are opened again while the others run on.

use std::collections::BTreeSet;

use millrace_base::ShardId;
use millrace_shard::{Input, PeerMessage};

use crate::rig::Rig;
use crate::rig_logs::OnItsWay;

impl Rig {
    /// As [`Rig::new`], but each shard may fail alone. What it holds locked stays as it is for `hold_ms`.
    #[must_use]
    pub fn failing_alone(shard_count: u16, hold_ms: u64) -> Self {
        let mut rig = Self::new(shard_count);
        rig.options.hold_ms = Some(hold_ms);
        rig.restart_from(Vec::new());
        rig
    }

    /// A shard fails: its memory is lost, and of its entries that are not durable all but the first `kept`. Gives what was
    /// on its way between it and the others; none of that arrives.
    pub fn lose(&mut self, shard: ShardId, kept: usize) -> Vec<OnItsWay> {
        let durable = self.core.shards[&shard].durable_lsn().0 + kept as u64;
        self.log.retain(|entry| entry.shard != shard || entry.lsn.0 <= durable);
        self.core.give_up(shard);
        self.offloads.retain(|ticket| ticket.shard != Some(shard));
        let is_of = |what: &OnItsWay| match what {
            OnItsWay::Peer(to, message) => *to == shard || message.from == shard,
            OnItsWay::Delivery(to, delivery) => *to == shard || delivery.from == shard,
            OnItsWay::Acknowledgement(to, from, _) => *to == shard || *from == shard,
        };
        let lost = self.on_their_way().into_iter().filter(is_of).collect();
        self.peers.retain(|(to, message)| *to != shard && message.from != shard);
        self.deliveries.retain(|(to, delivery)| *to != shard && delivery.from != shard);
        self.acknowledgements.retain(|(to, from, _)| *to != shard && *from != shard);
        lost
    }

    /// A shard that failed is opened again. The others do not know yet.
    pub fn open(&mut self, shard: ShardId) {
        self.options.incarnation += 1;
        let log = self.log.clone();
        self.start_shard(shard, &log);
        self.core.give(shard, Input::Tick);
        self.collect();
    }

    /// The others hear that a shard was opened last.
    pub fn tell_opened(&mut self, opened: ShardId) {
        let incarnation = self.options.incarnation;
        for shard in (0..self.options.shard_count).map(ShardId).filter(|shard| *shard != opened) {
            if self.core.shards.contains_key(&shard) {
                self.core.give(shard, Input::PeerOpened { shard: opened, incarnation });
                self.collect();
            }
        }
    }

    /// What is on its way between two shards does not arrive for long; what they say from now on does. Both hear of that.
    /// Gives what is held up.
    pub fn take_detour(&mut self, one: ShardId, two: ShardId) -> Vec<(ShardId, PeerMessage)> {
        let is_between = |to: ShardId, from: ShardId| [(one, two), (two, one)].contains(&(to, from));
        let held_up = self.peers.iter().filter(|(to, message)| is_between(*to, message.from)).cloned().collect();
        self.peers.retain(|(to, message)| !is_between(*to, message.from));
        for (here, there) in [(one, two), (two, one)] {
            self.core.give(here, Input::Detour(BTreeSet::from([there])));
            self.collect();
        }
        held_up
    }

    /// A shard fails, is opened again, and the others hear of it.
    pub fn fail_over(&mut self, shard: ShardId) -> Vec<OnItsWay> {
        let lost = self.lose(shard, 0);
        self.open(shard);
        self.tell_opened(shard);
        lost
    }
}
