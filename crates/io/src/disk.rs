//! A directory tree and its files, with durability made explicit.

use std::io;
use std::sync::Arc;

/// A directory tree addressed by relative paths with `/` between names; `""` is its root.
///
/// What survives a power cut: a file's bytes after its [`DiskFile::sync_data`] returned; a name
/// (created, renamed, removed) after [`Disk::sync_directory`] of the directory that holds it
/// returned. Anything else may be there, missing, or (bytes) there in part and in any order.
pub trait Disk: Send + Sync {
    /// Makes a directory and those above it. An existing one is fine.
    ///
    /// # Errors
    /// What the file system answers.
    fn create_directory(&self, path: &str) -> io::Result<()>;

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// `NotFound` when there is no such directory.
    fn list(&self, path: &str) -> io::Result<Vec<DirectoryEntry>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Makes an empty file for reading and writing, emptying one that is there.
    ///
    /// # Errors
    /// What the file system answers.
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file or directory; a file that has the new name already is replaced atomically.
    /// Open files stay open.
    ///
    /// # Errors
    /// What the file system answers.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file or an empty directory.
    ///
    /// # Errors
    /// `NotFound` when there is none; what the file system answers when a directory is not empty.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// What the file system answers. After an error nothing is known about what is durable.
    fn sync_directory(&self, path: &str) -> io::Result<()>;

    /// Whether a file or directory has this name.
    ///
    /// # Errors
    /// What the file system answers, except `NotFound`.
    fn exists(&self, path: &str) -> io::Result<bool>;

    /// Bytes that new files could still take.
    ///
    /// # Errors
    /// What the file system answers.
    fn available_bytes(&self) -> io::Result<u64>;
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
    /// What the file system answers.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes`, lengthening the file where needed. After an error any part may be written.
    ///
    /// # Errors
    /// What the file system answers; see [`is_out_of_space`].
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// As [`DiskFile::write_at`], and past the kernel's page cache where the file system has a way and `bytes` are whole
    /// blocks of 4 KiB at a block's place. For what is synced right after and not read soon: it waits for the device.
    ///
    /// # Errors
    /// What the file system answers; see [`is_out_of_space`].
    fn write_blocks_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(bytes, offset)
    }

    /// Makes everything written so far durable, with the length. After an error nothing is
    /// known about what is durable, and calling it again must not be taken as an answer.
    ///
    /// # Errors
    /// What the file system answers.
    fn sync_data(&self) -> io::Result<()>;

    /// Reserves space for `offset..offset + length`, so that writing there cannot run out of it,
    /// and lengthens the file to hold it. Reserved bytes never written read as zero.
    ///
    /// # Errors
    /// What the file system answers; see [`is_out_of_space`].
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Sets the file's length, cutting it or lengthening it with zeros.
    ///
    /// # Errors
    /// What the file system answers.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// The file's length in bytes.
    ///
    /// # Errors
    /// What the file system answers.
    fn length(&self) -> io::Result<u64>;
}

/// Whether an error means that the disk, or the user's share of it, is full: the one kind of
/// failed write that may succeed later without anything being lost.
#[must_use]
pub fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Reads exactly `bytes.len()` bytes.
///
/// # Errors
/// `UnexpectedEof` when the file ends before; otherwise what the file system answers.
pub fn read_exactly_at(file: &dyn DiskFile, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    if file.read_at(bytes, offset)? < bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}
