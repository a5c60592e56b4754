//! The manifest: what a data directory must hold.
//!
//! A lost file must never pass for a file that was never there. Without the manifest, a data
//! directory whose log or checkpoint is gone looks like a new one, and the node would answer with
//! empty state. The manifest lists what must be there. A start compares the list with the
//! directory before it changes anything, and refuses by name what is missing or older.
//!
//! The file is replaced atomically, has a checksum, and costs two syncs a change. Changes are
//! rare: a new log segment, a removed one, a deployment. Its bytes are in
//! `docs/internals/format.md`, the argument in `docs/internals/recovery.md`.
//!
//! Promises: a change is durable when its method returns. After a crash at any instant the
//! directory agrees with the manifest. Must not know entries, keys or apps: it knows names,
//! numbers and fingerprints.

mod contents;
mod error;
mod files;
mod streams;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_io::{Disk, read_exactly_at};

pub use contents::{CheckpointRecord, Contents, StreamRecord};
pub use error::ManifestError;
pub use files::fingerprint_of;

/// The manifest's file, at the root of the data directory.
pub const MANIFEST_FILE: &str = "manifest";

/// The next manifest is written here. The file keeps its space, so that a full disk can still be
/// freed: removing a log segment needs a new manifest first.
const NEXT_FILE: &str = "manifest.new";

/// Space kept for the next manifest: some hundred apps and streams.
const SPACE_BYTES: u64 = 16 << 10;

/// A manifest larger than this was not written by us: ten thousand apps have room in it. A listed file may not be larger
/// either.
const MAX_BYTES: u64 = 16 << 20;

/// The manifest of one data directory. Clones share it.
#[derive(Clone)]
pub struct Manifest {
    shared: Arc<Shared>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    state: Mutex<Contents>,
}

impl Manifest {
    /// Reads the manifest of the directory that `disk` is; `None` when it has none.
    ///
    /// # Errors
    /// [`ManifestError`] when the file cannot be read or its bytes are not what was written.
    pub fn open(disk: &Arc<dyn Disk>) -> Result<Option<Self>, ManifestError> {
        let bytes = match read(&**disk, MANIFEST_FILE) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ManifestError::io(MANIFEST_FILE, error)),
        };
        let contents = Contents::decode(&bytes).map_err(ManifestError::Unreadable)?;
        Ok(Some(Self::with(disk, contents)))
    }

    /// A manifest that lists nothing yet. It is on disk from its first change on.
    #[must_use]
    pub fn new(disk: &Arc<dyn Disk>, identity: [u8; 16]) -> Self {
        Self::with(disk, Contents::new(identity))
    }

    fn with(disk: &Arc<dyn Disk>, contents: Contents) -> Self {
        Self { shared: Arc::new(Shared { disk: Arc::clone(disk), state: Mutex::new(contents) }) }
    }

    fn state(&self) -> MutexGuard<'_, Contents> {
        // The contents are replaced in one step, after they are on disk: a panic leaves them whole.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the manifest says now.
    #[must_use]
    pub fn contents(&self) -> Contents {
        self.state().clone()
    }

    /// Which directory it is of: drawn when the directory was made.
    #[must_use]
    pub fn identity(&self) -> [u8; 16] {
        self.state().identity
    }

    /// Records how the checkpoint has to be found. `files` are those without which it would be taken
    /// for a new one.
    ///
    /// # Errors
    /// What the file system answers; the manifest is as before then.
    pub fn set_checkpoint(&self, record: CheckpointRecord) -> io::Result<()> {
        self.change(|contents| contents.checkpoint = Some(record))
    }

    /// Makes one change durable. Nothing is written where nothing changes.
    fn change(&self, change: impl FnOnce(&mut Contents)) -> io::Result<()> {
        let mut state = self.state();
        let mut next = state.clone();
        change(&mut next);
        if next == *state {
            return Ok(());
        }
        next.generation += 1;
        write(&*self.shared.disk, &next.encode())?;
        *state = next;
        Ok(())
    }
}

fn read(disk: &dyn Disk, path: &str) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let length = file.length()?;
    if length > MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?];
    read_exactly_at(&*file, &mut bytes, 0)?;
    Ok(bytes)
}

fn write(disk: &dyn Disk, bytes: &[u8]) -> io::Result<()> {
    let length = bytes.len() as u64;
    let file = match disk.open(NEXT_FILE) {
        Ok(file) if file.length()? >= length => file,
        _ => {
            let file = disk.create(NEXT_FILE)?;
            file.allocate(0, length)?;
            file
        }
    };
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    disk.rename(NEXT_FILE, MANIFEST_FILE)?;
    disk.sync_directory("")?;
    keep_space(disk, length);
    Ok(())
}

/// The old manifest has just given its space back, so the next one is allocated now. Without room
/// the next change tries again.
fn keep_space(disk: &dyn Disk, length: u64) {
    if let Ok(file) = disk.create(NEXT_FILE)
        && file.allocate(0, length.next_multiple_of(SPACE_BYTES)).is_err()
    {
        let _ = disk.remove(NEXT_FILE);
    }
}

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;
