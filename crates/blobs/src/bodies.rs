//! The store: what is where, and how bodies come and go.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_base::ShardId;
use millrace_io::Disk;

use crate::error::BlobError;
use crate::index::State;
use crate::lane::Lane;
use crate::numbers::Numbers;
use crate::reader::BodyReader;
use crate::recover::{self, Recovered};
use crate::writer::{BodyWriter, Unsettled, Written};

/// Where segments lie.
pub(crate) const SEGMENTS: &str = "segments";
/// Where bodies with files of their own lie.
pub(crate) const FILES: &str = "files";

/// Names a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BodyName {
    /// The shard of what it belongs to.
    pub shard: ShardId,
    /// Never given twice in one directory, nor in others that hold the same bodies.
    pub number: u64,
}

impl fmt::Display for BodyName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{:x}", self.shard.0, self.number)
    }
}

/// How bodies are kept.
#[derive(Clone, Copy, Debug)]
pub struct BodyOptions {
    /// Lanes of writers: one for each core.
    pub lanes: usize,
    /// Bodies up to this go to segments. A file of its own costs two more syncs and an inode; a segment that large bodies
    /// leave has to be copied together again.
    pub segment_body_bytes: u64,
    /// A segment that would grow past this is closed.
    pub segment_bytes: u64,
    /// Whether bodies are synced. Without it a power cut loses what was acknowledged.
    pub is_synced: bool,
    /// Bytes of the disk that new bodies leave free: for the log, which notes deletions.
    pub reserve_bytes: u64,
    /// Numbers are from ranges behind this one, of 2³² numbers each. Directories that hold each other's bodies have each
    /// another one, 2²⁴ apart, so that no two of them give the same number. 0: the directory is alone.
    pub ranges_behind: u32,
}

impl Default for BodyOptions {
    fn default() -> Self {
        Self {
            lanes: 1,
            segment_body_bytes: 4 << 20,
            segment_bytes: 256 << 20,
            is_synced: true,
            reserve_bytes: 0,
            ranges_behind: 0,
        }
    }
}

/// What a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bodies.
    pub bodies: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes of segments, also those that nobody needs any more.
    pub segment_bytes: u64,
    /// Syncs since the start.
    pub syncs: u64,
    /// Damaged blocks that were come upon since the start.
    pub rot: u64,
}

/// What all handles share.
pub(crate) struct Shared {
    pub disk: Arc<dyn Disk>,
    pub options: BodyOptions,
    state: Mutex<State>,
    pub lanes: Vec<Lane>,
    pub numbers: Numbers,
    /// Why names cannot be made durable any more. All lanes have theirs in the same directories.
    names: Mutex<Option<String>>,
    /// Held by who writes indexes and copies bodies together: two of them would write the same files.
    pub tidying: Mutex<()>,
    pub syncs: AtomicU64,
    pub rot: AtomicU64,
    /// Bodies that could not be read once, and may be still there.
    suspects: Mutex<BTreeSet<BodyName>>,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // Every change is whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses so many bytes of a new body that would leave less of the disk than the reserve.
    pub(crate) fn check_room(&self, bytes: u64) -> Result<(), BlobError> {
        let reserve_bytes = self.options.reserve_bytes;
        if reserve_bytes == 0 {
            return Ok(());
        }
        // Where the disk does not say, it refuses itself.
        let available_bytes = self.disk.available_bytes().unwrap_or(u64::MAX);
        if available_bytes < reserve_bytes.saturating_add(bytes) { Err(BlobError::Full) } else { Ok(()) }
    }

    /// A sync failed that all lanes depend on.
    pub(crate) fn fail_all(&self, error: &io::Error) -> BlobError {
        for lane in &self.lanes {
            lane.fatal(error);
        }
        BlobError::Failed(error.to_string())
    }

    /// Makes the names in a directory durable: those of all files that were made or renamed before this call.
    pub(crate) fn sync_names(&self, directory: &str) -> Result<(), BlobError> {
        if self.options.is_synced { self.sync_names_always(directory) } else { Ok(()) }
    }

    pub(crate) fn sync_names_always(&self, directory: &str) -> Result<(), BlobError> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(what) = &*names {
            return Err(BlobError::Failed(what.clone()));
        }
        self.disk.sync_directory(directory).map_err(|error| {
            *names = Some(error.to_string());
            self.fail_all(&error)
        })
    }

    /// The file of a body that has one of its own.
    pub(crate) fn own_path(name: BodyName) -> String {
        format!("{FILES}/{:04x}-{:016x}", name.shard.0, name.number)
    }

    /// The same while it is being written. It gets its name when all of it is durable.
    pub(crate) fn new_own_path(name: BodyName) -> String {
        Self::own_path(name) + ".new"
    }

    pub(crate) fn segment_path(id: u32) -> String {
        format!("{SEGMENTS}/{id:08x}.seg")
    }

    pub(crate) fn index_path(id: u32) -> String {
        format!("{SEGMENTS}/{id:08x}.idx")
    }

    /// Takes a body away. Its file, or its segment if it was the last, goes, too; whoever reads it goes on.
    pub(crate) fn free(&self, name: BodyName) {
        let removed = self.state().remove(name);
        let Some((location, emptied)) = removed else { return };
        if location.segment.is_none() {
            self.remove_file(&Self::own_path(name));
        }
        if let Some(id) = emptied {
            self.remove_segment(id);
        }
    }

    /// A file that stays is found by the next start, and freed again.
    pub(crate) fn remove_file(&self, path: &str) {
        let _ = self.disk.remove(path);
    }

    pub(crate) fn remove_segment(&self, id: u32) {
        let is_gone = {
            let mut state = self.state();
            let is_removable = state.segments.get(&id).is_some_and(crate::index::Segment::is_removable);
            if is_removable {
                state.segments.remove(&id);
            }
            is_removable
        };
        if is_gone {
            recover::remove_segment(&*self.disk, id);
        }
    }

    pub(crate) fn note_rot(&self, name: BodyName) {
        self.rot.fetch_add(1, Ordering::Relaxed);
        self.suspect(name);
    }

    /// A body could not be read.
    pub(crate) fn suspect(&self, name: BodyName) {
        self.suspects().insert(name);
    }

    pub(crate) fn suspects(&self) -> MutexGuard<'_, BTreeSet<BodyName>> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bodies in a directory. See the crate's documentation.
pub struct Bodies {
    pub(crate) shared: Arc<Shared>,
}

impl Bodies {
    /// Opens the bodies in a directory, which `disk` has as its root, or makes it.
    ///
    /// # Errors
    /// The file system's.
    pub fn open(disk: Arc<dyn Disk>, options: BodyOptions) -> io::Result<(Self, Recovered)> {
        let (state, recovered) = recover::open(&*disk, &options)?;
        let shared = Shared {
            disk,
            options,
            state: Mutex::new(state),
            lanes: (0..options.lanes.max(1)).map(|_| Lane::default()).collect(),
            numbers: Numbers::default(),
            names: Mutex::new(None),
            tidying: Mutex::new(()),
            syncs: AtomicU64::new(0),
            rot: AtomicU64::new(0),
            suspects: Mutex::default(),
        };
        Ok((Self { shared: Arc::new(shared) }, recovered))
    }

    /// Begins a body. Nothing is written before its first bytes come. `length` decides where it goes; without it, it has
    /// a file of its own.
    ///
    /// # Errors
    /// [`BlobError::Failed`] on a lane that has failed; [`BlobError::Full`] where no number can be noted; [`BlobError::Misuse`] for an owner that is too long.
    pub fn begin(
        &self,
        lane: usize,
        shard: ShardId,
        owner: &[u8],
        length: Option<u64>,
    ) -> Result<BodyWriter, BlobError> {
        let name = BodyName { shard, number: self.shared.numbers.next(&self.shared)? };
        BodyWriter::new(&self.shared, lane, name, owner, length)
    }

    /// Begins a body that another directory has named.
    ///
    /// # Errors
    /// As for [`Bodies::begin`]; [`BlobError::Misuse`] for a body that is here.
    pub fn begin_named(&self, lane: usize, name: BodyName, owner: &[u8], length: u64) -> Result<BodyWriter, BlobError> {
        if self.has(name) {
            return Err(BlobError::Misuse("a body of this name is here already"));
        }
        BodyWriter::new(&self.shared, lane, name, owner, Some(length))
    }

    /// Whether a body is here.
    #[must_use]
    pub fn has(&self, name: BodyName) -> bool {
        self.shared.state().bodies.contains_key(&name)
    }

    /// Whether a body is here whose writer has yet to say what became of it.
    #[must_use]
    pub fn is_unsettled(&self, name: BodyName) -> bool {
        self.shared.state().unsettled.contains(&name)
    }

    /// The names of the next bodies behind this one, at most `limit`, and whether there are more.
    #[must_use]
    pub fn names_behind(&self, name: BodyName, limit: usize) -> (Vec<BodyName>, bool) {
        let state = self.shared.state();
        let mut behind = state.bodies.range((Bound::Excluded(name), Bound::Unbounded)).map(|(name, _)| *name);
        let names = behind.by_ref().take(limit).collect();
        (names, behind.next().is_some())
    }

    /// Makes bodies of a lane durable with one sync for those in its segment, and gives them.
    ///
    /// # Errors
    /// For each: [`BlobError::Failed`].
    pub fn sync(&self, lane: usize, written: Vec<Written>) -> Vec<Result<Unsettled, BlobError>> {
        crate::writer::sync(&self.shared, lane, written)
    }

    /// A body to read.
    ///
    /// # Errors
    /// [`BlobError::Gone`]; [`BlobError::Rot`] where its header or footer was damaged at the start; or the file system's.
    pub fn read(&self, name: BodyName) -> Result<BodyReader, BlobError> {
        if self.shared.state().damaged.contains(&name) {
            self.shared.note_rot(name);
            return Err(BlobError::Rot(name, "its header or footer".to_owned()));
        }
        self.reader(name)
    }

    pub(crate) fn reader(&self, name: BodyName) -> Result<BodyReader, BlobError> {
        let (location, file) = {
            let state = self.shared.state();
            let location = *state.bodies.get(&name).ok_or(BlobError::Gone(name))?;
            let file = location.segment.and_then(|id| state.segments.get(&id)).map(|segment| Arc::clone(&segment.file));
            (location, file)
        };
        let file = match (file, location.segment) {
            (Some(file), _) => file,
            (None, Some(_)) => return Err(BlobError::Gone(name)),
            (None, None) => match self.shared.disk.open(&Shared::own_path(name)) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(BlobError::Gone(name)),
                Err(error) => return Err(BlobError::unreadable(&error)),
            },
        };
        Ok(BodyReader::new(Arc::clone(&self.shared), name, location, file))
    }

    /// Nothing refers to a body any more. Those who read it go on.
    pub fn free(&self, name: BodyName) {
        self.shared.free(name);
    }

    /// What is there.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let state = self.shared.state();
        Counts {
            bodies: state.bodies.len() as u64,
            live_bytes: state.live_bytes,
            segments: state.segments.len() as u64,
            segment_bytes: state.segments.values().map(|segment| segment.bytes).sum(),
            syncs: self.shared.syncs.load(Ordering::Relaxed),
            rot: self.shared.rot.load(Ordering::Relaxed),
        }
    }
}
