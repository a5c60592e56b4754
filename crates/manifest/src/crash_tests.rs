//! The power fails at each disk operation of a file's replacement: the file is the old one or the new one, and listed.

#![allow(clippy::disallowed_methods, reason = "tests use real files")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millrace_io::{DirectoryEntry, Disk, DiskFile, RealDisk};

use crate::Manifest;

/// A disk that does so many operations that change something, half of the next write, and then nothing.
struct FailingDisk {
    disk: RealDisk,
    left: Arc<AtomicUsize>,
}

struct FailingFile {
    file: Arc<dyn DiskFile>,
    left: Arc<AtomicUsize>,
}

fn off() -> io::Error {
    io::Error::other("the power is off")
}

fn spend(left: &AtomicUsize) -> io::Result<()> {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).map(drop).map_err(|_| off())
}

impl FailingDisk {
    fn wrap(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(FailingFile { file, left: Arc::clone(&self.left) })
    }
}

impl Disk for FailingDisk {
    fn create_directory(&self, path: &str) -> io::Result<()> {
        spend(&self.left)?;
        self.disk.create_directory(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirectoryEntry>> {
        self.disk.list(path)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path).map(|file| self.wrap(file))
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        spend(&self.left)?;
        self.disk.create(path).map(|file| self.wrap(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        spend(&self.left)?;
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        spend(&self.left)?;
        self.disk.remove(path)
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        spend(&self.left)?;
        self.disk.sync_directory(path)
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn available_bytes(&self) -> io::Result<u64> {
        self.disk.available_bytes()
    }
}

impl DiskFile for FailingFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if spend(&self.left).is_err() {
            self.file.write_at(&bytes[..bytes.len() / 2], offset)?;
            return Err(off());
        }
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        spend(&self.left)?;
        self.file.sync_data()
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        spend(&self.left)?;
        self.file.allocate(offset, length)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        spend(&self.left)?;
        self.file.truncate(length)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

#[test]
fn a_file_is_the_old_or_the_new_one_wherever_the_power_fails() {
    for old in [None, Some(&b"the old table"[..])] {
        let (mut was_old, mut was_new) = (0, 0);
        for operations in 0.. {
            let folder = tempfile::tempdir().expect("a folder");
            let real: Arc<dyn Disk> = Arc::new(RealDisk::new(folder.path()));
            let manifest = Manifest::new(&real, [1; 16]);
            manifest.write_file("other", b"other").expect("written");
            if let Some(old) = old {
                manifest.write_file("table", old).expect("written");
            }
            let left = Arc::new(AtomicUsize::new(operations));
            let failing: Arc<dyn Disk> = Arc::new(FailingDisk { disk: RealDisk::new(folder.path()), left });
            let manifest = Manifest::open(&failing).expect("readable").expect("there");
            let changed = manifest.write_file("table", b"the new table, which is longer");
            let again = Manifest::open(&real).expect("readable").expect("there");
            again.check_files().expect("what a crash left is right");
            let found = again.read_file("table").expect("readable");
            let is_new = found.as_deref() == Some(b"the new table, which is longer");
            assert!(is_new || found.as_deref() == old, "after {operations} operations");
            if is_new {
                was_new += 1
            } else {
                was_old += 1
            }
            // The next change goes on from whichever it is.
            again.write_file("table", b"the third").expect("written");
            again.check_files().expect("right");
            if changed.is_ok() {
                assert!(is_new);
                std::fs::remove_file(folder.path().join("table")).expect("there");
                let error = again.check_files().expect_err("missed").to_string();
                assert!(error.contains("table"), "{error}");
                break;
            }
        }
        assert!(was_old >= 5 && was_new >= 3, "{was_old} old, {was_new} new");
    }
}
