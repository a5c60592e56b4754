//! Which closed segments exist, what they hold, and their removal once checkpoints cover them.
//!
//! A stream's segments are removed from its beginning only, and each removal is durable before the next. So a crash
//! always leaves the stream's end without a hole, and a missing segment always means damage.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_base::{Lsn, ShardId};
use millrace_io::Disk;
use millrace_manifest::Manifest;

use crate::hold::WriterPosition;
use crate::layout::LOG_DIRECTORY;
use crate::positions::ShardRange;

/// All closed segments of a node's log. A node has one: recovery makes it, every writer adds to it, and the store
/// deletes through it, from any thread.
#[derive(Clone)]
pub struct Segments {
    shared: Arc<Shared>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    manifest: Manifest,
    state: Mutex<BTreeMap<u64, StreamSegments>>,
    /// Held while files are removed, so that two callers keep the order of removals. `state` is not held then, so that
    /// a writer that closes a segment never waits for the disk here.
    /// It counts those who want every segment to stay.
    deleting: Mutex<usize>,
}

#[derive(Default)]
pub(crate) struct StreamSegments {
    directory: String,
    /// Whether a writer still appends to it. If not, its directory goes with its last segment.
    is_live: bool,
    /// The size that makes a covered segment worth keeping for reuse.
    recycled_bytes: u64,
    pub(crate) closed: VecDeque<ClosedSegment>,
    /// The segment that takes batches, as far as it is durable. Only of replicated shards.
    pub(crate) open: Option<ClosedSegment>,
    recycled: Option<String>,
    /// Where the stream's writer stands, while there is one.
    pub(crate) place: Option<Arc<WriterPosition>>,
}

/// A segment that takes no more batches.
pub(crate) struct ClosedSegment {
    pub(crate) number: u64,
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) ranges: Box<[ShardRange]>,
    /// The newest base of each replicated shard in it.
    pub(crate) bases: Box<[(ShardId, Lsn)]>,
}

/// What [`Segments::delete_covered`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Segments removed, including those kept for reuse.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Segments {
    /// No segments yet.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, manifest: Manifest) -> Self {
        let shared = Shared { disk, manifest, state: Mutex::default(), deleting: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// What lists the segments.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.shared.manifest
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.shared.disk
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, BTreeMap<u64, StreamSegments>> {
        // Every change under the lock is a single push, pop or store, so a poisoned state is whole.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A writer begins to append. It keeps the place that this gives up to date.
    pub(crate) fn add_live_stream(&self, stream: u64, directory: &str, recycled_bytes: u64) -> Arc<WriterPosition> {
        let place = Arc::<WriterPosition>::default();
        let mut state = self.state();
        let known = state.entry(stream).or_default();
        directory.clone_into(&mut known.directory);
        known.is_live = true;
        known.recycled_bytes = recycled_bytes;
        known.place = Some(Arc::clone(&place));
        place
    }

    fn deleting(&self) -> MutexGuard<'_, usize> {
        self.shared.deleting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on every segment stays.
    pub(crate) fn retain(&self) {
        *self.deleting() += 1;
    }

    /// Ends what one [`Segments::retain`] began.
    pub(crate) fn release(&self) {
        let mut held = self.deleting();
        *held = held.saturating_sub(1);
    }

    pub(crate) fn add_ended_stream(&self, stream: u64, directory: &str, closed: Vec<ClosedSegment>) {
        let segments =
            StreamSegments { directory: directory.to_owned(), closed: closed.into(), ..StreamSegments::default() };
        self.state().insert(stream, segments);
    }

    pub(crate) fn push(&self, stream: u64, segment: ClosedSegment) {
        let mut state = self.state();
        let known = state.entry(stream).or_default();
        known.closed.push_back(segment);
        known.open = None;
    }

    /// A batch of the segment that takes batches is durable.
    pub(crate) fn advance(&self, stream: u64, segment: ClosedSegment) {
        self.state().entry(stream).or_default().open = Some(segment);
    }

    /// The writer is gone: it adds and reuses nothing any more.
    pub(crate) fn end_stream(&self, stream: u64) {
        if let Some(known) = self.state().get_mut(&stream) {
            known.open = None;
            known.is_live = false;
            known.recycled_bytes = 0;
            known.place = None;
        }
    }

    /// A file of `bytes` bytes whose content no longer counts.
    pub(crate) fn take_recycled(&self, stream: u64, bytes: u64) -> Option<String> {
        let mut state = self.state();
        let known = state.get_mut(&stream)?;
        if known.recycled_bytes == bytes { known.recycled.take() } else { None }
    }

    /// Bytes of all closed segments. [`Segments::delete_covered`] can free no more.
    #[must_use]
    pub fn closed_bytes(&self) -> u64 {
        self.state().values().flat_map(|stream| &stream.closed).map(|segment| segment.bytes).sum()
    }

    /// The shards that keep the oldest segment of each stream from being deleted: their checkpoint is behind what it
    /// holds. Checkpointing these frees space soonest.
    #[must_use]
    pub fn blockers(&self, checkpoint_lsn: &dyn Fn(ShardId) -> Lsn) -> Vec<ShardRange> {
        let state = self.state();
        let oldest = state.values().filter_map(|stream| stream.closed.front());
        let ranges = oldest.flat_map(|segment| segment.ranges.iter());
        ranges.filter(|range| range.last > checkpoint_lsn(range.shard)).copied().collect()
    }

    /// Deletes, from the beginning of each stream, the segments all of whose entries are at or before their shard's
    /// checkpoint. It may keep one of them for the stream's writer to reuse. The checkpoints must be durable, and
    /// `checkpoint_mark` is their count of flushes. Takes as long as the disk does; call it from a thread that may
    /// wait.
    ///
    /// The manifest forgets the segments first: one that it lists and that is missing was lost.
    ///
    /// Nothing is deleted while somebody holds the log ([`Segments::hold`]).
    ///
    /// # Errors
    /// What the disk answers; what could not be deleted is tried again by the next call.
    pub fn delete_covered(&self, checkpoint_lsn: &dyn Fn(ShardId) -> Lsn, checkpoint_mark: u64) -> io::Result<Deleted> {
        self.delete(&|segments| segments.covered(checkpoint_lsn), checkpoint_mark)
    }

    /// Deletes of each stream the segments up to the number that `choose` gives.
    pub(crate) fn delete(
        &self,
        choose: &dyn Fn(&Segments) -> Vec<(u64, u64)>,
        checkpoint_mark: u64,
    ) -> io::Result<Deleted> {
        let held = self.deleting();
        let mut deleted = Deleted::default();
        if *held > 0 {
            return Ok(deleted);
        }
        let covered = choose(self);
        if !covered.is_empty() {
            self.shared.manifest.remove_segments(&covered, checkpoint_mark)?;
        }
        for (stream, through) in covered {
            while let Some((directory, segment)) = self.pop_through(stream, through) {
                if let Err(error) = self.remove(stream, &directory, &segment) {
                    if let Some(known) = self.state().get_mut(&stream) {
                        known.closed.push_front(segment);
                    }
                    return Err(error);
                }
                deleted.segments += 1;
                deleted.bytes += segment.bytes;
            }
        }
        let streams: Vec<u64> = self.state().keys().copied().collect();
        for stream in streams {
            self.remove_if_done(stream)?;
        }
        Ok(deleted)
    }

    /// Of each stream that begins with covered segments, the number of the last of them.
    fn covered(&self, checkpoint_lsn: &dyn Fn(ShardId) -> Lsn) -> Vec<(u64, u64)> {
        let is_covered = |range: &ShardRange| range.last <= checkpoint_lsn(range.shard);
        let state = self.state();
        let last = |(stream, known): (&u64, &StreamSegments)| {
            let covered = known.closed.iter().take_while(|segment| segment.ranges.iter().all(is_covered));
            covered.last().map(|segment| (*stream, segment.number))
        };
        state.iter().filter_map(last).collect()
    }

    fn pop_through(&self, stream: u64, through: u64) -> Option<(String, ClosedSegment)> {
        let mut state = self.state();
        let known = state.get_mut(&stream)?;
        if known.closed.front()?.number > through {
            return None;
        }
        let segment = known.closed.pop_front()?;
        Some((known.directory.clone(), segment))
    }

    fn remove(&self, stream: u64, directory: &str, segment: &ClosedSegment) -> io::Result<()> {
        let disk = &*self.shared.disk;
        let is_wanted = |known: &StreamSegments| known.recycled.is_none() && known.recycled_bytes == segment.bytes;
        let is_recycled = self.state().get(&stream).is_some_and(is_wanted);
        let kept = segment.path.replace(".log", ".old");
        let removed = if is_recycled { disk.rename(&segment.path, &kept) } else { disk.remove(&segment.path) };
        match removed {
            // An earlier attempt got this far.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        disk.sync_directory(directory)?;
        if is_recycled && let Some(known) = self.state().get_mut(&stream) {
            known.recycled = Some(kept);
        }
        Ok(())
    }

    /// Removes the directory of an ended stream that has no segments left.
    fn remove_if_done(&self, stream: u64) -> io::Result<()> {
        let disk = &*self.shared.disk;
        let (directory, recycled) = match self.state().get_mut(&stream) {
            Some(known) if !known.is_live && known.closed.is_empty() => {
                (known.directory.clone(), known.recycled.take())
            }
            _ => return Ok(()),
        };
        if let Some(path) = recycled {
            disk.remove(&path)?;
        }
        match disk.remove(&directory) {
            Ok(()) => disk.sync_directory(LOG_DIRECTORY)?,
            // Somebody keeps a file of their own there, which is no reason to fail for ever.
            Err(error) => tracing::debug!(directory, %error, "an empty stream's directory stays"),
        }
        self.state().remove(&stream);
        Ok(())
    }
}
