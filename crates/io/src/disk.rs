//! A directory tree and its files, with durability made explicit.

use std::io;
use std::sync::Arc;

/// A directory tree addressed by relative paths with `/` between names; `""` is its root.
///
/// What survives a power cut: a file's bytes once [`DiskFile::sync_data`] has returned after they were written. A name
/// (created, renamed, removed) once [`Disk::sync_directory`] of its directory has returned. Anything else may be there
/// or missing. Bytes may be there in part and in any order.
pub trait Disk: Send + Sync {
    /// Makes a directory and those above it. An existing one is fine.
    ///
    /// # Errors
    /// The file system's error.
    fn create_directory(&self, path: &str) -> io::Result<()>;

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory.
    fn list(&self, path: &str) -> io::Result<Vec<DirectoryEntry>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Makes an empty file for reading and writing. Empties an existing one.
    ///
    /// # Errors
    /// The file system's error.
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file or directory. Atomically replaces a file that already has the new name. Open files stay open.
    ///
    /// # Errors
    /// The file system's error.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file or an empty directory.
    ///
    /// # Errors
    /// `NotFound` if there is none. The file system's error if a directory is not empty.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// The file system's error. After an error nobody knows what is durable.
    fn sync_directory(&self, path: &str) -> io::Result<()>;

    /// Whether a file or directory has this name.
    ///
    /// # Errors
    /// The file system's error, except `NotFound`.
    fn exists(&self, path: &str) -> io::Result<bool>;

    /// Bytes that new files could still take.
    ///
    /// # Errors
    /// The file system's error.
    fn available_bytes(&self) -> io::Result<u64>;

    /// Bytes that the whole disk has.
    ///
    /// # Errors
    /// The file system's error.
    fn capacity_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryEntry {
    /// The name, without the directory.
    pub name: String,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// An open file, read and written at given offsets.
pub trait DiskFile: Send + Sync {
    /// Reads up to `bytes.len()` bytes; fewer only where the file ends.
    ///
    /// # Errors
    /// The file system's error.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes`, and lengthens the file if needed. After an error any part may be written.
    ///
    /// # Errors
    /// The file system's error; see [`is_out_of_space`].
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// As [`DiskFile::write_at`], but past the kernel's page cache if two things hold. The file system supports it, and
    /// `bytes` are whole blocks of 4 KiB at a block's place. Use it for bytes that are synced right after and not read
    /// soon: it waits for the device.
    ///
    /// # Errors
    /// The file system's error; see [`is_out_of_space`].
    fn write_blocks_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(bytes, offset)
    }

    /// Makes everything written so far durable, with the length. After an error nobody knows what is durable, and a
    /// second call that succeeds proves nothing.
    ///
    /// # Errors
    /// The file system's error.
    fn sync_data(&self) -> io::Result<()>;

    /// Reserves space for `offset..offset + length`, so that a write there cannot run out of space, and lengthens the
    /// file to hold it. Reserved bytes that were never written read as zero.
    ///
    /// # Errors
    /// The file system's error; see [`is_out_of_space`].
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Sets the file's length, cutting it or lengthening it with zeros.
    ///
    /// # Errors
    /// The file system's error.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// The file's length in bytes.
    ///
    /// # Errors
    /// The file system's error.
    fn length(&self) -> io::Result<u64>;
}

/// Whether an error means that the disk, or the user's share of it, is full. Only this kind of failed write may succeed
/// later without losing anything.
#[must_use]
pub fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Reads exactly `bytes.len()` bytes.
///
/// # Errors
/// `UnexpectedEof` if the file ends before; otherwise the file system's error.
pub fn read_exactly_at(file: &dyn DiskFile, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    if file.read_at(bytes, offset)? < bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}
