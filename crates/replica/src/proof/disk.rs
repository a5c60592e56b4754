//! What is on a node's disk: what a start finds.

use millrace_base::Lsn;

use crate::event::Write;
use crate::ids::{EntryId, Promised};
use crate::log_view::LogView;
use crate::message::{EntryKind, LogEntry};
use crate::replica::Recovered;
use crate::replica_set::ReplicaSet;

/// A log as bytes would hold it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Disk {
    pub promised: Promised,
    pub base: EntryId,
    base_set: (Lsn, ReplicaSet),
    pub entries: Vec<LogEntry>,
    committed: Lsn,
    pub is_whole: bool,
}

impl Disk {
    pub fn new(set: ReplicaSet) -> Self {
        Self {
            promised: Promised::default(),
            base: EntryId::ZERO,
            base_set: (Lsn::ZERO, set),
            entries: Vec::new(),
            committed: Lsn::ZERO,
            is_whole: true,
        }
    }

    pub fn write(&mut self, write: &Write) {
        match write {
            Write::Append(entries) => {
                for entry in entries {
                    assert_eq!(entry.id.lsn, self.last().lsn.next(), "the log has no gaps");
                    self.entries.push(entry.clone());
                }
            }
            Write::Cut { after } => {
                let kept = usize::try_from(after.0 - self.base.lsn.0).expect("a small log");
                assert!(kept <= self.entries.len(), "a cut is within the log");
                self.entries.truncate(kept);
            }
            Write::Promise(promised) => self.promised = *promised,
            Write::CommitNote(lsn) => self.committed = *lsn,
            Write::Reset { at, set_lsn, set } => {
                self.base = *at;
                self.base_set = (*set_lsn, set.clone());
                self.entries.clear();
                self.committed = at.lsn;
            }
        }
    }

    pub fn last(&self) -> EntryId {
        self.entries.last().map_or(self.base, |entry| entry.id)
    }

    pub fn entry(&self, lsn: Lsn) -> Option<&LogEntry> {
        let index = usize::try_from(lsn.0.checked_sub(self.base.lsn.0 + 1)?).ok()?;
        self.entries.get(index)
    }

    /// Forgets everything up to `base`.
    pub fn trim(&mut self, base: Lsn) {
        while self.base.lsn < base {
            let entry = self.entries.remove(0);
            self.base = entry.id;
            if entry.kind == EntryKind::ReplicaSet {
                let set = ReplicaSet::decode(&entry.bytes).expect("written by a replica");
                self.base_set = (entry.id.lsn, set);
            }
        }
        self.committed = self.committed.max(base);
    }

    /// Loses the end of the log, and the promise.
    pub fn lose(&mut self, kept: usize) {
        self.entries.truncate(kept);
        self.promised = Promised::default();
        self.committed = self.committed.min(self.last().lsn);
        self.is_whole = false;
    }

    pub fn recover(&self) -> Recovered {
        let mut log = LogView::new(self.base, self.base_set.0, self.base_set.1.clone());
        for entry in &self.entries {
            let set = (entry.kind == EntryKind::ReplicaSet)
                .then(|| ReplicaSet::decode(&entry.bytes).expect("written by a replica"));
            assert!(log.recover(entry.id, set), "the disk holds a log");
        }
        log.recover_committed(self.committed);
        Recovered { promised: self.promised, log, is_whole: self.is_whole }
    }
}
