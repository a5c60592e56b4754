//! A disk on which removed files can stay for a while: for a copy of a directory whose files come and go.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{DirectoryEntry, Disk, DiskFile};

/// Another disk, whose removals can be put off.
///
/// While somebody holds it, a removed file keeps its name and its bytes. Only when the last hold ends it goes. A power
/// cut before that leaves the file. So this is only for whoever finds and removes such files at its next start, and
/// never gives a name twice.
pub struct HeldDisk {
    inner: Arc<dyn Disk>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    holds: usize,
    /// In the order of their removals.
    removed: Vec<String>,
}

/// While it lives, removed files stay.
pub struct DiskHold {
    disk: Arc<HeldDisk>,
}

impl Drop for DiskHold {
    fn drop(&mut self) {
        self.disk.release();
    }
}

impl HeldDisk {
    /// The same disk, which nobody holds yet.
    #[must_use]
    pub fn new(inner: Arc<dyn Disk>) -> Arc<Self> {
        Arc::new(Self { inner, held: Mutex::default() })
    }

    /// Keeps removed files until the hold is dropped. What was removed before is gone.
    #[must_use]
    pub fn hold(self: &Arc<Self>) -> DiskHold {
        self.held().holds += 1;
        DiskHold { disk: Arc::clone(self) }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Every change is one push or one number.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self) {
        let removed = {
            let mut held = self.held();
            held.holds = held.holds.saturating_sub(1);
            if held.holds > 0 {
                return;
            }
            std::mem::take(&mut held.removed)
        };
        for path in removed {
            // A file that stays is found by the next start. Each removal is durable before the next, in case their order
            // matters.
            let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
            let _ = self.inner.remove(&path).and_then(|()| self.inner.sync_directory(directory));
        }
    }
}

impl Disk for HeldDisk {
    fn create_directory(&self, path: &str) -> io::Result<()> {
        self.inner.create_directory(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirectoryEntry>> {
        self.inner.list(path)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.inner.open(path)
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.inner.create(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut held = self.held();
        if held.holds == 0 {
            // A hold that begins now does not keep this file.
            drop(held);
            return self.inner.remove(path);
        }
        if !self.inner.exists(path)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        held.removed.push(path.to_owned());
        Ok(())
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        self.inner.sync_directory(path)
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn available_bytes(&self) -> io::Result<u64> {
        self.inner.available_bytes()
    }

    fn capacity_bytes(&self) -> io::Result<u64> {
        self.inner.capacity_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealDisk;

    #[test]
    fn removed_files_stay_as_long_as_somebody_holds_the_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = HeldDisk::new(Arc::new(RealDisk::new(folder.path())));
        for name in ["a", "b", "c"] {
            disk.create(name).expect("made");
        }
        disk.remove("a").expect("removed");
        assert!(!disk.exists("a").expect("known"));
        let (first, second) = (disk.hold(), disk.hold());
        disk.remove("b").expect("removed");
        assert_eq!(disk.remove("x").expect_err("not there").kind(), io::ErrorKind::NotFound);
        drop(first);
        assert!(disk.exists("b").expect("known"), "the second hold is left");
        drop(second);
        assert!(!disk.exists("b").expect("known"));
        assert!(disk.exists("c").expect("known"));
    }
}
