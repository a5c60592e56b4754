//! [`Disk`] on the machine's file system.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

use crate::direct::Direct;
use crate::{DirectoryEntry, Disk, DiskFile};

/// If a file system cannot allocate, zeros are written in pieces of this size.
const ZERO_BYTES: usize = 1 << 20;

/// A directory of the machine's file system and what lies below it.
#[derive(Clone, Debug)]
pub struct RealDisk {
    root: PathBuf,
}

impl RealDisk {
    /// The tree below `root`. The directory need not exist yet: `create_directory("")` makes it.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory that paths are relative to.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Refuses paths that would leave the tree, so that a bug above cannot reach other files.
    fn resolve(&self, path: &str) -> io::Result<PathBuf> {
        let relative = Path::new(path);
        if relative.components().all(|component| matches!(component, Component::Normal(_))) {
            return Ok(self.root.join(relative));
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("not a path inside the data directory: {path}")))
    }
}

impl Disk for RealDisk {
    fn create_directory(&self, path: &str) -> io::Result<()> {
        std::fs::create_dir_all(self.resolve(path)?)
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(self.resolve(path)?)? {
            let entry = entry?;
            // All our names are UTF-8, so any other name is a stranger's file.
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(DirectoryEntry { name, is_directory: entry.file_type()?.is_dir() });
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.resolve(path)?)?;
        Ok(Arc::new(RealFile::new(file)))
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(self.resolve(path)?)?;
        Ok(Arc::new(RealFile::new(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.resolve(from)?, self.resolve(to)?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let path = self.resolve(path)?;
        if std::fs::symlink_metadata(&path)?.is_dir() { std::fs::remove_dir(path) } else { std::fs::remove_file(path) }
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        File::open(self.resolve(path)?)?.sync_all()
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        self.resolve(path)?.try_exists()
    }

    fn available_bytes(&self) -> io::Result<u64> {
        let status = statvfs(&self.root)?;
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }

    fn capacity_bytes(&self) -> io::Result<u64> {
        let status = statvfs(&self.root)?;
        Ok(status.f_blocks.saturating_mul(status.f_frsize))
    }
}

struct RealFile {
    file: File,
    direct: Mutex<Direct>,
}

impl DiskFile for RealFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn write_blocks_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        // After a panic in the middle of a write, the memory may hold anything. The next write fills it anew.
        let is_written =
            self.direct.lock().unwrap_or_else(PoisonError::into_inner).write_at(&self.file, bytes, offset)?;
        if is_written { Ok(()) } else { self.write_at(bytes, offset) }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        loop {
            match fallocate(&self.file, FallocateFlags::empty(), offset, length) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return self.write_zeros_where_missing(offset, length),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

impl RealFile {
    fn new(file: File) -> Self {
        Self { file, direct: Mutex::default() }
    }

    /// Replaces allocation: writes zeros past the file's end. The bytes before it exist already, because nothing here
    /// makes holes.
    fn write_zeros_where_missing(&self, offset: u64, length: u64) -> io::Result<()> {
        let zeros = vec![0; ZERO_BYTES];
        let mut at = offset.max(self.length()?);
        while at < offset + length {
            let count = (offset + length - at).min(ZERO_BYTES as u64);
            // At most ZERO_BYTES, so it fits.
            self.file.write_all_at(&zeros[..count as usize], at)?;
            at += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_exactly_at;

    fn disk() -> (tempfile::TempDir, RealDisk) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = RealDisk::new(directory.path());
        (directory, disk)
    }

    #[test]
    fn files_are_read_and_written_at_offsets() -> io::Result<()> {
        let (_directory, disk) = disk();
        disk.create_directory("a/b")?;
        let file = disk.create("a/b/c")?;
        file.write_at(b"world", 6)?;
        file.write_at(b"hello ", 0)?;
        file.sync_data()?;
        let mut bytes = [0; 20];
        assert_eq!(file.read_at(&mut bytes, 0)?, 11);
        assert_eq!(&bytes[..11], b"hello world");
        assert_eq!(file.read_at(&mut bytes, 11)?, 0);
        assert_eq!(read_exactly_at(&*file, &mut bytes, 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        file.truncate(5)?;
        assert_eq!(disk.open("a/b/c")?.length()?, 5);
        Ok(())
    }

    #[test]
    fn blocks_written_past_the_cache_are_read_with_what_went_through_it() -> io::Result<()> {
        let (_directory, disk) = disk();
        let file = disk.create("a")?;
        let mut expected = vec![0; 3 << 20];
        file.allocate(0, expected.len() as u64)?;
        let mut byte = 0;
        for (offset, length) in
            [(0, 2 << 20), (4096, 4096), (100, 5000), (8192, (1 << 20) + 4096), (12_000, 4096), (4096, 10)]
        {
            byte += 1;
            expected[offset..offset + length].fill(byte);
            // Read first, so that the cache holds the bytes that the write changes.
            let mut bytes = vec![0; expected.len()];
            read_exactly_at(&*file, &mut bytes, 0)?;
            file.write_blocks_at(&expected[offset..offset + length], offset as u64)?;
            read_exactly_at(&*file, &mut bytes, 0)?;
            assert!(bytes == expected, "after {length} bytes at {offset}");
        }
        disk.rename("a", "b")?;
        file.write_blocks_at(&[9; 4096], 0)?;
        file.sync_data()?;
        let mut bytes = [0; 5000];
        disk.open("b")?.read_at(&mut bytes, 0)?;
        assert!(bytes[..4096] == [9; 4096] && bytes[4096..] == expected[4096..5000]);
        Ok(())
    }

    #[test]
    fn allocated_bytes_read_as_zero_and_keep_what_was_written() -> io::Result<()> {
        let (_directory, disk) = disk();
        disk.create_directory("")?;
        for by_writing in [false, true] {
            let file = RealFile::new(tempfile::tempfile()?);
            file.write_at(b"kept", 0)?;
            if by_writing {
                file.write_zeros_where_missing(0, 3 << 20)?;
            } else {
                file.allocate(0, 3 << 20)?;
            }
            assert_eq!(file.length()?, 3 << 20);
            let mut bytes = vec![1; 3 << 20];
            read_exactly_at(&file, &mut bytes, 0)?;
            assert_eq!(&bytes[..4], b"kept");
            assert!(bytes[4..].iter().all(|byte| *byte == 0));
        }
        Ok(())
    }

    #[test]
    fn names_are_listed_in_order_renamed_and_removed() -> io::Result<()> {
        let (_directory, disk) = disk();
        disk.create_directory("d")?;
        disk.create_directory("d")?;
        for name in ["d/z", "d/a", "d/m"] {
            disk.create(name)?;
        }
        disk.create_directory("d/sub")?;
        disk.rename("d/z", "d/b")?;
        disk.rename("d/m", "d/a")?;
        disk.sync_directory("d")?;
        let names: Vec<_> = disk.list("d")?.into_iter().map(|entry| (entry.name, entry.is_directory)).collect();
        assert_eq!(names, [("a".into(), false), ("b".into(), false), ("sub".into(), true)]);
        disk.remove("d/b")?;
        assert!(disk.remove("d").is_err(), "not empty");
        disk.remove("d/a")?;
        disk.remove("d/sub")?;
        disk.remove("d")?;
        assert!(!disk.exists("d")?);
        assert_eq!(disk.list("d").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!((1..=disk.capacity_bytes()?).contains(&disk.available_bytes()?));
        Ok(())
    }

    #[test]
    fn paths_cannot_leave_the_tree() {
        let (_directory, disk) = disk();
        for path in ["../x", "/etc/passwd", "a/../../x"] {
            assert_eq!(disk.create(path).err().map(|error| error.kind()), Some(io::ErrorKind::InvalidInput), "{path}");
        }
    }
}
