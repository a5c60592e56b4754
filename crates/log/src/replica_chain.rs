//! What one replicated shard's records say, read in order: the rules of `docs/internals/recovery.md`.
//!
//! A record changes what is known, or it contradicts what is known: that is damage. The beginning of a log may be deleted,
//! so nothing is known before the first record. Whatever was deleted is repeated by a later base.

use std::collections::VecDeque;

use millrace_base::{Lsn, ShardId};
use millrace_format::{ReplicaEntryKind, ReplicaRecord};

use crate::error::DamageKind;
use crate::replicas::{RecoveredReplica, ReplicaEntry, ReplicaEntryRef, ShardCheckpoint};

/// Takes committed entries, in order.
pub(crate) type Deliver<'a> = dyn FnMut(ReplicaEntryRef<'_>) + 'a;

/// The entry before the first that can be read, and the newest committed replica set.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Base {
    epoch: u64,
    lsn: Lsn,
    set_lsn: Lsn,
    set: Vec<u8>,
}

/// What the records of one shard have said so far.
pub(crate) struct ReplicaChain {
    shard: ShardId,
    /// Entries up to here are not wanted.
    checkpoint: Lsn,
    promised: (u64, u16),
    committed: Lsn,
    is_whole: bool,
    base: Option<Base>,
    /// First entry of each epoch among the entries that were read, ascending.
    runs: VecDeque<(u64, Lsn)>,
    /// The position after the last entry. `None` before the first entry or reset: of the entries behind a base, some may
    /// be deleted already if another base follows.
    next: Option<Lsn>,
    /// Replica sets behind the base's one.
    sets: Vec<(Lsn, Vec<u8>)>,
    /// Entries above the checkpoint that are not known to be committed.
    waiting: VecDeque<ReplicaEntry>,
}

impl ReplicaChain {
    /// Nothing is known yet. Entries up to `checkpoint` are not delivered.
    pub(crate) fn new(shard: ShardId, checkpoint: Lsn) -> Self {
        Self {
            shard,
            checkpoint,
            promised: (0, 0),
            committed: Lsn::ZERO,
            is_whole: true,
            base: None,
            runs: VecDeque::new(),
            next: None,
            sets: Vec::new(),
            waiting: VecDeque::new(),
        }
    }

    /// An acknowledged entry or a promise may be missing here.
    pub(crate) fn doubt(&mut self) {
        self.is_whole = false;
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// What the record contradicts.
    pub(crate) fn take(&mut self, record: &ReplicaRecord<'_>, deliver: &mut Deliver<'_>) -> Result<(), DamageKind> {
        match *record {
            ReplicaRecord::Entry { epoch, lsn, kind, bytes } => {
                self.entry(ReplicaEntryRef { epoch, lsn, kind, bytes }, deliver)?;
            }
            ReplicaRecord::Promise { epoch, node } => self.promised = (epoch, node),
            ReplicaRecord::CommitNote { lsn } => self.commit(lsn, deliver),
            ReplicaRecord::Cut { after } => self.cut(after)?,
            ReplicaRecord::Reset { at_epoch, at_lsn, set_lsn, set } => self.reset((at_epoch, at_lsn), set_lsn, set),
            ReplicaRecord::Base {
                promised_epoch,
                promised_node,
                base_epoch,
                base_lsn,
                set_lsn,
                set,
                committed,
                is_whole,
            } => {
                self.rebase(Base { epoch: base_epoch, lsn: base_lsn, set_lsn, set: set.to_vec() })?;
                self.promised = (promised_epoch, promised_node);
                self.is_whole = is_whole;
                self.commit(committed.max(base_lsn), deliver);
            }
        }
        Ok(())
    }

    fn entry(&mut self, entry: ReplicaEntryRef<'_>, deliver: &mut Deliver<'_>) -> Result<(), DamageKind> {
        let (shard, found) = (self.shard, entry.lsn);
        let of_base = self.base.as_ref().map(|base| base.lsn);
        match (self.next, of_base) {
            (None, Some(after)) if found <= after => return Err(DamageKind::Order { shard, after, found }),
            (Some(expected), _) if found > expected => return Err(DamageKind::Gap { shard, expected, found }),
            (Some(next), _) if found < next => return Err(DamageKind::Order { shard, after: Lsn(next.0 - 1), found }),
            _ => {}
        }
        let before = self.last_epoch();
        if entry.epoch < before || entry.epoch == 0 || found == Lsn::ZERO {
            return Err(DamageKind::Epoch { shard, lsn: found, expected: before, found: entry.epoch });
        }
        if self.runs.back().is_none_or(|(epoch, _)| *epoch < entry.epoch) {
            self.runs.push_back((entry.epoch, found));
        }
        self.next = Some(found.next());
        if entry.kind == ReplicaEntryKind::ReplicaSet {
            self.sets.push((found, entry.bytes.to_vec()));
        }
        if found <= self.checkpoint {
            return Ok(());
        }
        if found <= self.committed {
            deliver(entry);
        } else {
            self.waiting.push_back(entry.to_owned());
        }
        Ok(())
    }

    fn cut(&mut self, after: Lsn) -> Result<(), DamageKind> {
        if after < self.committed {
            return Err(DamageKind::CommittedCut { shard: self.shard, committed: self.committed, after });
        }
        if self.next.is_some_and(|next| after.next() < next) {
            self.next = Some(after.next());
            self.runs.retain(|(_, first)| *first <= after);
            self.sets.retain(|(lsn, _)| *lsn <= after);
            while self.waiting.pop_back_if(|entry| entry.lsn > after).is_some() {}
        }
        Ok(())
    }

    fn reset(&mut self, (epoch, lsn): (u64, Lsn), set_lsn: Lsn, set: &[u8]) {
        self.base = Some(Base { epoch, lsn, set_lsn, set: set.to_vec() });
        self.runs.clear();
        self.sets.clear();
        self.waiting.clear();
        self.next = Some(lsn.next());
        self.committed = lsn;
    }

    fn rebase(&mut self, base: Base) -> Result<(), DamageKind> {
        let shard = self.shard;
        let after = base.lsn.next();
        if let Some(next) = self.next.filter(|next| base.lsn >= *next) {
            return Err(DamageKind::Gap { shard, expected: next, found: after });
        }
        if let Some(known) = self.epoch_at(base.lsn)
            && known != base.epoch
        {
            return Err(DamageKind::Epoch { shard, lsn: base.lsn, expected: known, found: base.epoch });
        }
        while self.runs.get(1).is_some_and(|(_, first)| *first <= after) {
            self.runs.pop_front();
        }
        match self.runs.front_mut() {
            Some((_, first)) if self.next.is_some_and(|next| after < next) => *first = (*first).max(after),
            _ => self.runs.clear(),
        }
        self.sets.retain(|(lsn, _)| *lsn > base.lsn.max(base.set_lsn));
        self.base = Some(base);
        Ok(())
    }

    fn commit(&mut self, lsn: Lsn, deliver: &mut Deliver<'_>) {
        self.committed = self.committed.max(lsn);
        while let Some(entry) = self.waiting.pop_front_if(|entry| entry.lsn <= self.committed) {
            deliver(entry.as_ref());
        }
    }

    fn last_epoch(&self) -> u64 {
        let of_base = || self.base.as_ref().map(|base| base.epoch);
        self.runs.back().map(|(epoch, _)| *epoch).or_else(of_base).unwrap_or_default()
    }

    /// The epoch of the entry at `lsn`, if it is known.
    fn epoch_at(&self, lsn: Lsn) -> Option<u64> {
        let in_runs = self.runs.iter().rev().find(|(_, first)| *first <= lsn).map(|(epoch, _)| *epoch);
        let is_read = self.next.is_some_and(|next| lsn < next);
        let of_base = || self.base.as_ref().filter(|base| base.lsn == lsn).map(|base| base.epoch);
        in_runs.filter(|_| is_read).or_else(of_base)
    }

    /// All records have been read: what a replica begins with. `None` where no base is left: the shard was given up here.
    ///
    /// # Errors
    /// What the checkpoint contradicts.
    pub(crate) fn finish(
        mut self,
        checkpoint: &ShardCheckpoint,
        deliver: &mut Deliver<'_>,
    ) -> Result<Option<RecoveredReplica>, DamageKind> {
        let (shard, mut needs_reset) = (self.shard, false);
        if checkpoint.is_resetting {
            // The rows are those of no position. What was acknowledged is elsewhere.
            let Some(set) = self.newest_set() else { return Ok(None) };
            self.reset((0, Lsn::ZERO), Lsn::ZERO, &set);
            (self.is_whole, needs_reset) = (false, true);
        } else if let Some(snapshot) = checkpoint.snapshot.as_deref() {
            needs_reset = self.follow_snapshot(snapshot, checkpoint.lsn);
        }
        let Some(base) = self.base.clone() else { return Ok(None) };
        let next = self.next.unwrap_or_else(|| base.lsn.next());
        let last = Lsn(next.0 - 1);
        if let Some((_, first)) = self.runs.front().filter(|(_, first)| *first > base.lsn.next()) {
            return Err(DamageKind::Gap { shard, expected: base.lsn.next(), found: *first });
        }
        if !checkpoint.is_resetting {
            let lsn = checkpoint.lsn;
            if lsn < base.lsn {
                return Err(DamageKind::RowsMissing { shard, base: base.lsn, checkpoint: lsn });
            }
            if lsn > last {
                return Err(DamageKind::TailLost { shard, last, checkpoint: lsn });
            }
            // Only what is committed gets into a checkpoint.
            self.commit(lsn, deliver);
        }
        Ok(Some(RecoveredReplica {
            promised: self.promised,
            base: (base.epoch, base.lsn),
            set_lsn: base.set_lsn,
            set: base.set,
            committed: self.committed.min(last),
            last: (self.last_epoch(), last),
            runs: self.runs.into(),
            sets: self.sets,
            tail: self.waiting.into(),
            is_whole: self.is_whole,
            needs_reset,
        }))
    }

    fn newest_set(&self) -> Option<Vec<u8>> {
        let of_base = || self.base.as_ref().map(|base| base.set.clone());
        self.sets.last().map(|(_, set)| set.clone()).or_else(of_base)
    }

    /// A snapshot was put into the checkpoint. If the log does not say so, the power failed just before: the log begins
    /// anew behind the snapshot. Returns whether that is so.
    fn follow_snapshot(&mut self, record: &[u8], checkpoint: Lsn) -> bool {
        let Ok((_, ReplicaRecord::Reset { at_epoch, at_lsn, set_lsn, set })) = ReplicaRecord::decode(record) else {
            return false;
        };
        // A later position in the checkpoint proves that the log holds the reset, and entries behind it.
        if checkpoint != at_lsn || self.epoch_at(at_lsn) == Some(at_epoch) {
            return false;
        }
        // What the snapshot holds is committed. Of what lies behind it, something may have been acknowledged.
        if self.next.is_some_and(|next| next > at_lsn.next()) {
            self.is_whole = false;
        }
        self.reset((at_epoch, at_lsn), set_lsn, set);
        true
    }
}

#[cfg(test)]
#[path = "replica_chain_tests.rs"]
mod tests;
