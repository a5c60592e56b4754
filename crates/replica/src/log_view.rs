//! What a replica knows of its own log without reading it: which epoch made which entry, what is durable, what is committed,
//! and the replica sets in it.
//!
//! Writes are numbered and become durable in the order of their numbers, so one number says what is durable. What is cut off
//! before it was durable never counts as durable.

use std::collections::VecDeque;

use millrace_base::Lsn;

use crate::ids::{EntryId, Epoch, Promised};
use crate::replica_set::ReplicaSet;

/// The log of one shard at one replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogView {
    /// The entry before the first one that can be read.
    base: EntryId,
    /// First entry of each epoch after the base, ascending.
    runs: VecDeque<EntryId>,
    last: EntryId,
    durable: Lsn,
    committed: Lsn,
    /// Replica sets and the positions of their entries, ascending. The first is committed.
    sets: Vec<(Lsn, ReplicaSet)>,
    next_write: u64,
    pending: VecDeque<(u64, Pending)>,
}

/// A write on its way to the disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Pending {
    /// Entries up to this position, less what was cut off meanwhile.
    Entries(Lsn),
    Promise(Promised),
    Other,
}

impl LogView {
    /// A log whose entries up to `base` are in a checkpoint, with the newest replica set up to there.
    #[must_use]
    pub fn new(base: EntryId, set_lsn: Lsn, set: ReplicaSet) -> Self {
        Self {
            base,
            runs: VecDeque::new(),
            last: base,
            durable: base.lsn,
            committed: base.lsn,
            sets: vec![(set_lsn, set)],
            next_write: 1,
            pending: VecDeque::new(),
        }
    }

    /// Takes the next entry that recovery has read. Says whether it follows the one before.
    pub fn recover(&mut self, id: EntryId, set: Option<ReplicaSet>) -> bool {
        let follows = self.follows(id);
        if follows {
            self.push(id, set);
            self.durable = id.lsn;
        }
        follows
    }

    /// Takes what recovery knows to be committed.
    pub fn recover_committed(&mut self, lsn: Lsn) {
        self.commit(lsn.min(self.last.lsn));
    }

    /// The entry before the first that can be read.
    #[must_use]
    pub fn base(&self) -> EntryId {
        self.base
    }

    /// The last entry, durable or not.
    #[must_use]
    pub fn last(&self) -> EntryId {
        self.last
    }

    /// Everything up to here is on this replica's disk.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// Everything up to here is known to be committed.
    #[must_use]
    pub fn committed(&self) -> Lsn {
        self.committed
    }

    /// The first entry of each epoch that can be read, ascending.
    pub fn runs(&self) -> impl Iterator<Item = EntryId> + '_ {
        self.runs.iter().copied()
    }

    /// The replica set in force: that of the newest entry, committed or not.
    #[must_use]
    pub fn set(&self) -> &ReplicaSet {
        &self.newest_set().1
    }

    /// Position of the newest replica set, committed or not, and the set.
    #[must_use]
    pub fn newest_set(&self) -> &(Lsn, ReplicaSet) {
        self.sets.last().expect("a log has a replica set from its beginning")
    }

    /// Position of the newest replica set that is committed, and the set.
    #[must_use]
    pub fn committed_set(&self) -> &(Lsn, ReplicaSet) {
        self.sets.first().expect("a log has a replica set from its beginning")
    }

    /// The epoch that made the entry at `lsn`, if this log still knows it.
    fn epoch_at(&self, lsn: Lsn) -> Option<Epoch> {
        match lsn {
            Lsn::ZERO => Some(Epoch::NONE),
            lsn if lsn == self.base.lsn => Some(self.base.epoch),
            lsn if lsn < self.base.lsn || lsn > self.last.lsn => None,
            lsn => self.runs.iter().rev().find(|run| run.lsn <= lsn).map(|run| run.epoch),
        }
    }

    /// The entry at `lsn`, if this log still knows it.
    pub(crate) fn id_at(&self, lsn: Lsn) -> Option<EntryId> {
        self.epoch_at(lsn).map(|epoch| EntryId::new(epoch, lsn))
    }

    /// Whether this log holds that entry, and so everything before it.
    pub(crate) fn holds(&self, id: EntryId) -> bool {
        self.epoch_at(id.lsn) == Some(id.epoch)
    }

    /// The last entry of this log that is not after `id`, by position and by epoch. Another log's last common entry with
    /// this one is not after it.
    pub(crate) fn meet(&self, id: EntryId) -> EntryId {
        let mut lsn = id.lsn.min(self.last.lsn);
        for run in self.runs.iter().rev() {
            if run.lsn <= lsn && run.epoch <= id.epoch {
                return EntryId::new(run.epoch, lsn);
            }
            lsn = lsn.min(Lsn(run.lsn.0 - 1));
        }
        if lsn >= self.base.lsn && self.base.epoch <= id.epoch { self.base } else { EntryId::ZERO }
    }

    fn follows(&self, id: EntryId) -> bool {
        id.lsn == self.last.lsn.next() && id.epoch >= self.last.epoch && id.epoch > Epoch::NONE
    }

    /// Adds an entry whose write has begun.
    pub(crate) fn push(&mut self, id: EntryId, set: Option<ReplicaSet>) {
        assert!(self.follows(id), "entries are appended in order");
        if self.runs.is_empty() || id.epoch > self.last.epoch {
            self.runs.push_back(id);
        }
        self.last = id;
        if let Some(set) = set {
            self.sets.push((id.lsn, set));
        }
    }

    /// Cuts off everything after `lsn`, which is at or after the committed position.
    pub(crate) fn cut_after(&mut self, lsn: Lsn) {
        assert!(lsn >= self.committed, "a committed entry is never cut off");
        let last = self.id_at(lsn).expect("what is not committed is in the log");
        self.runs.retain(|run| run.lsn <= lsn);
        self.sets.retain(|(at, _)| *at <= lsn);
        self.last = last;
        self.durable = self.durable.min(lsn);
        for (_, pending) in &mut self.pending {
            if let Pending::Entries(up_to) = pending {
                *up_to = lsn.min(*up_to);
            }
        }
    }

    /// The log begins anew after a snapshot that holds everything up to `at`.
    pub(crate) fn reset(&mut self, at: EntryId, set_lsn: Lsn, set: ReplicaSet) {
        assert!(at.lsn > self.committed, "a snapshot goes further than the log");
        self.pending.iter_mut().for_each(|(_, pending)| {
            if let Pending::Entries(_) = pending {
                *pending = Pending::Other;
            }
        });
        self.base = at;
        self.runs.clear();
        self.last = at;
        self.durable = self.durable.min(self.committed);
        self.committed = at.lsn;
        self.sets = vec![(set_lsn, set)];
    }

    /// Entries up to `lsn` can be read no more.
    pub(crate) fn trim(&mut self, lsn: Lsn) {
        let lsn = lsn.min(self.committed).min(self.durable);
        let Some(base) = self.id_at(lsn).filter(|id| id.lsn > self.base.lsn) else { return };
        self.base = base;
        while self.runs.get(1).is_some_and(|next| next.lsn <= lsn.next()) {
            self.runs.pop_front();
        }
        match self.runs.front_mut() {
            Some(run) if self.last.lsn > lsn => run.lsn = run.lsn.max(lsn.next()),
            _ => self.runs.clear(),
        }
    }

    /// Raises the committed position. Says whether it rose.
    pub(crate) fn commit(&mut self, lsn: Lsn) -> bool {
        assert!(lsn <= self.last.lsn, "only what is in the log is committed");
        let rises = lsn > self.committed;
        self.committed = self.committed.max(lsn);
        while self.sets.get(1).is_some_and(|(at, _)| *at <= self.committed) {
            self.sets.remove(0);
        }
        rises
    }

    /// Whether an entry that changes the replica set is not committed yet.
    pub(crate) fn is_set_changing(&self) -> bool {
        self.sets.len() > 1
    }

    fn write(&mut self, pending: Pending) -> u64 {
        let number = self.next_write;
        self.next_write += 1;
        self.pending.push_back((number, pending));
        number
    }

    /// Numbers the write of the entries up to the last one.
    pub(crate) fn write_entries(&mut self) -> u64 {
        self.write(Pending::Entries(self.last.lsn))
    }

    pub(crate) fn write_promise(&mut self, promised: Promised) -> u64 {
        self.write(Pending::Promise(promised))
    }

    pub(crate) fn write_other(&mut self) -> u64 {
        self.write(Pending::Other)
    }

    /// All writes up to this number are durable. Gives back the last promise among them.
    pub(crate) fn written(&mut self, up_to: u64) -> Option<Promised> {
        let mut promised = None;
        while self.pending.front().is_some_and(|(number, _)| *number <= up_to) {
            match self.pending.pop_front() {
                Some((_, Pending::Entries(lsn))) => self.durable = lsn,
                Some((_, Pending::Promise(made))) => promised = Some(made),
                _ => {}
            }
        }
        promised
    }

    /// Whether everything that was written is durable.
    pub(crate) fn is_all_durable(&self) -> bool {
        self.pending.is_empty()
    }
}
