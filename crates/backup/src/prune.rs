//! Giving up old backups: their documents first, then the chunks that no other one names.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use crate::repository::{CHUNKS, SNAPSHOTS};
use crate::{BackupError, Repository, Snapshot};

/// What was given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneReport {
    /// Ids of the backups that are gone, oldest first.
    pub removed: Vec<String>,
    /// Backups that are left.
    pub kept: usize,
    /// Chunks that are gone, also those that backups which broke off had left.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Repository {
    /// Keeps the newest `keep` backups of each data directory. Waits for backups that are under way.
    ///
    /// A crash leaves chunks that nobody needs; the next call removes them.
    ///
    /// # Errors
    /// [`BackupError::Damaged`] if a snapshot cannot be read: nobody knows which chunks it needs, so nothing is removed.
    pub fn prune(&self, keep: NonZeroUsize) -> Result<PruneReport, BackupError> {
        let _lock = self.lock(true)?;
        let snapshots = self.snapshots()?;
        let (old, kept) = divide(&snapshots, keep);
        for snapshot in &old {
            let name = format!("{SNAPSHOTS}/{}", snapshot.id);
            self.place.remove(&name).map_err(|error| self.failed(&name, error))?;
        }
        // No document may come back whose chunks are gone.
        self.place.sync().map_err(|error| self.failed(SNAPSHOTS, error))?;
        let mut report = PruneReport {
            removed: old.iter().map(|snapshot| snapshot.id.clone()).collect(),
            kept: kept.len(),
            ..PruneReport::default()
        };
        let needed: BTreeSet<&str> = kept
            .iter()
            .flat_map(|snapshot| &snapshot.files)
            .flat_map(|file| &file.chunks)
            .map(|name| name.as_str())
            .collect();
        self.remove_chunks(&needed, &mut report)?;
        Ok(report)
    }

    fn remove_chunks(&self, needed: &BTreeSet<&str>, report: &mut PruneReport) -> Result<(), BackupError> {
        for folder in self.place.list(CHUNKS, true).map_err(|error| self.failed(CHUNKS, error))? {
            let folder = format!("{CHUNKS}/{folder}");
            for file in self.place.list(&folder, true).map_err(|error| self.failed(&folder, error))? {
                if needed.contains(file.as_str()) {
                    continue;
                }
                let name = format!("{folder}/{file}");
                let failed = |error| self.failed(&name, error);
                report.bytes += self.place.length(&name).map_err(failed)?.unwrap_or_default();
                report.chunks += 1;
                self.place.remove(&name).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// The backups to give up and those to keep.
fn divide(snapshots: &[Snapshot], keep: NonZeroUsize) -> (Vec<&Snapshot>, Vec<&Snapshot>) {
    let mut newer: BTreeMap<&str, usize> = BTreeMap::new();
    let mut old = Vec::new();
    let mut kept = Vec::new();
    for snapshot in snapshots.iter().rev() {
        let newer = newer.entry(&snapshot.identity).or_default();
        *newer += 1;
        if *newer > keep.get() { old.push(snapshot) } else { kept.push(snapshot) }
    }
    old.reverse();
    (old, kept)
}
