//! One shard of the node fails alone: its memory is lost, and what its log had not made durable. The others go on. Later it
//! is opened again, on the same core, from its checkpoint and the durable part of its log.
//!
//! The log's files know nothing of that: the entries that a shard loses are taken out of the batch before it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_base::{Lsn, ShardId};
use millrace_format::EntryRef;
use millrace_log::Batch;
use millrace_shard::{Shard, ShardOptions};
use millrace_store::Checkpoint;

use super::{Driven, Node, shard_options};
use crate::bugs::PlantedBug;
use crate::core::LoggedEntry;
use crate::happened::Thing;
use crate::platform::SimPlatform;
use crate::random::Rng;

/// The entries of a core whose shards may fail alone, while they wait for the log.
#[derive(Default)]
pub struct Unwritten {
    /// Of the batch that is being filled.
    pub filling: Vec<LoggedEntry>,
    /// Of the batch on its way to the disk.
    pub in_flight: Vec<LoggedEntry>,
}

fn batch_of(entries: &[LoggedEntry]) -> Batch {
    let mut batch = Batch::new();
    entries.iter().for_each(|entry| batch.push(&entry.as_entry()));
    batch
}

impl SimPlatform {
    /// Takes a shard's entries out of what waits for the log. Gives how many there were.
    fn lose_unwritten(&mut self, shard: ShardId) -> usize {
        let Some(unwritten) = &mut self.unwritten else { return 0 };
        let before = unwritten.filling.len() + unwritten.in_flight.len();
        unwritten.filling.retain(|entry| entry.shard != shard);
        unwritten.in_flight.retain(|entry| entry.shard != shard);
        if self.in_flight.is_some() {
            self.in_flight = Some(batch_of(&unwritten.in_flight));
        }
        self.has_lost = true;
        self.chunks.retain(|(flushed, _)| *flushed != shard);
        before - unwritten.filling.len() - unwritten.in_flight.len()
    }

    /// The batch on its way is durable.
    pub(super) fn note_written(&mut self, logged: &mut BTreeMap<ShardId, Vec<LoggedEntry>>) {
        for entry in self.unwritten.iter_mut().flat_map(|unwritten| unwritten.in_flight.drain(..)) {
            logged.entry(entry.shard).or_default().push(entry);
        }
    }

    /// The batch that goes to the disk, without what was lost since its entries were made.
    pub(crate) fn without_lost(&mut self, batch: Batch) -> Batch {
        let Some(unwritten) = &mut self.unwritten else { return batch };
        unwritten.in_flight = std::mem::take(&mut unwritten.filling);
        if std::mem::take(&mut self.has_lost) { batch_of(&unwritten.in_flight) } else { batch }
    }
}

/// A core has yet to hear that a shard was opened.
pub(super) struct News {
    index: usize,
    shard: ShardId,
    incarnation: u64,
}

impl Node {
    /// Whether shards may fail alone in this start of the node.
    #[must_use]
    pub fn fails_alone(&self) -> bool {
        self.setup.hold_ms.is_some()
    }

    /// Whether a shard is there.
    #[must_use]
    pub fn has(&self, shard: ShardId) -> bool {
        !self.lost.contains(&shard)
    }

    /// Whether all shards are there.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty()
    }

    /// Transactions that wait in the middle or for their first entity.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shards().map(|shard| shard.figures().waiting).sum()
    }

    /// The shards that are away.
    #[must_use]
    pub fn lost(&self) -> Vec<ShardId> {
        self.lost.iter().copied().collect()
    }

    /// A shard fails alone. Gives its last entry that is left. `None`: it cannot fail now.
    pub fn lose(&mut self, shard: ShardId, rng: &mut Rng) -> Option<Lsn> {
        let index = self.index_of(shard);
        let Driven { core, is_full, .. } = &mut self.cores[index];
        let is_stopped = core.shards().any(Shard::is_stopped);
        if *is_full || is_stopped || self.setup.hold_ms.is_none() || self.lost.contains(&shard) {
            return None;
        }
        core.give_up_shard(shard);
        let lost_entries = core.platform.lose_unwritten(shard);
        let lost_frames = self.net.lose_frames_of(shard, rng);
        self.lost.insert(shard);
        self.output.happened.note(Thing::FailedAlone);
        self.output.happened.note_many(Thing::EntryLostAlone, lost_entries as u64);
        self.output.happened.note_many(Thing::MessageLostAlone, lost_frames as u64);
        self.finish_step(index);
        let checkpointed = self.machine.checkpoint.lsn(shard).expect("memory does not fail");
        Some(self.logged.get(&shard).and_then(|entries| entries.last()).map_or(checkpointed, |entry| entry.lsn))
    }

    /// A shard that failed alone is opened again.
    ///
    /// # Panics
    /// When its log does not replay.
    pub fn open(&mut self, shard: ShardId) {
        let checkpoint: Arc<dyn Checkpoint> = self.machine.checkpoint.clone();
        let mut store = millrace_shard::open_store(shard, checkpoint, 1).expect("memory does not fail");
        for entry in self.logged.get(&shard).into_iter().flatten() {
            let mut bytes = Vec::new();
            entry.as_entry().encode(&mut bytes);
            store.replay(&EntryRef::decode(&bytes).expect("just encoded")).expect("entries replay");
        }
        let options = shard_options(&self.machine, shard, Arc::new(BTreeSet::from([shard])));
        let options = ShardOptions { hold_ms: self.setup.hold_ms, ..options };
        let incarnation = options.incarnation;
        let index = self.index_of(shard);
        self.lost.remove(&shard);
        self.output.happened.note(Thing::OpenedAlone);
        self.cores[index].core.take_shard(Shard::new(options, store).expect("its rows can be read"));
        if self.machine.bug != Some(PlantedBug::OpeningUntold) {
            self.news.extend((0..self.cores.len()).map(|index| News { index, shard, incarnation }));
        }
        self.finish_step(index);
    }

    /// Whether a core has yet to hear that a shard was opened.
    #[must_use]
    pub fn has_news(&self, index: usize) -> bool {
        self.news.iter().any(|news| news.index == index)
    }

    /// A core hears of the first shard that was opened and that it has not heard of.
    pub fn hear_news(&mut self, index: usize) {
        let first = self.news.iter().position(|news| news.index == index);
        if let Some(News { shard, incarnation, .. }) = first.and_then(|at| self.news.remove(at)) {
            self.cores[index].core.peer_opened(shard, incarnation);
            self.finish_step(index);
        }
    }
}
