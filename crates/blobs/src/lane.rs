//! A lane of writers and its open segment. Places in it are given in order; what is written there is written by each
//! writer alone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use millrace_io::{DiskFile, is_out_of_space};

use crate::bodies::{SEGMENTS, Shared};
use crate::error::BlobError;
use crate::index::Segment;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Lane {
    open: Mutex<Option<u32>>,
    /// Why it takes nothing any more.
    failed: Mutex<Option<String>>,
    /// Calls of [`Lane::sync_segment`] so far.
    asked: AtomicU64,
    synced: Mutex<Synced>,
}

/// The last sync: of this segment, for all calls up to this one.
#[derive(Default)]
struct Synced {
    segment: u32,
    up_to: u64,
}

/// A place in a segment.
pub(crate) struct SegmentPosition {
    pub segment: u32,
    pub file: Arc<dyn DiskFile>,
    pub offset: u64,
}

impl Lane {
    /// # Errors
    /// [`BlobError::Failed`], if something has failed.
    pub(crate) fn check(&self) -> Result<(), BlobError> {
        match &*self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(what) => Err(BlobError::Failed(what.clone())),
            None => Ok(()),
        }
    }

    /// A write failed. A full disk is none of the lane's; after anything else nobody knows what is on the disk.
    pub(crate) fn failed(&self, error: &std::io::Error) -> BlobError {
        if is_out_of_space(error) {
            return BlobError::Full;
        }
        self.fatal(error)
    }

    /// A sync failed. One that fails for want of space has lost as much as any other.
    pub(crate) fn fatal(&self, error: &std::io::Error) -> BlobError {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let what = failed.get_or_insert_with(|| error.to_string());
        BlobError::Failed(what.clone())
    }

    /// Makes durable what was written to a segment before this call. Calls that come during a sync share the next.
    pub(crate) fn sync_segment(&self, shared: &Shared, id: u32, file: &dyn DiskFile) -> Result<(), BlobError> {
        let mine = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        // One at a time: the system tells one caller that a sync failed, and the next that all is well.
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        if !shared.options.is_synced || (synced.segment == id && synced.up_to >= mine) {
            return Ok(());
        }
        let up_to = self.asked.load(Ordering::SeqCst);
        self.sync_file(shared, file)?;
        *synced = Synced { segment: id, up_to };
        Ok(())
    }

    /// Makes a file durable that nobody else writes to.
    pub(crate) fn sync_file(&self, shared: &Shared, file: &dyn DiskFile) -> Result<(), BlobError> {
        self.check()?;
        if !shared.options.is_synced {
            return Ok(());
        }
        shared.syncs.fetch_add(1, Ordering::Relaxed);
        file.sync_data().map_err(|error| self.fatal(&error))
    }

    /// A place for so many bytes in the open segment. `front` is written there before anybody gets a place behind: so
    /// whoever walks over the segment can step over what was not finished.
    pub(crate) fn reserve(&self, shared: &Shared, bytes: u64, front: &[u8]) -> Result<SegmentPosition, BlobError> {
        self.check()?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = *open {
            let is_full = {
                let mut state = shared.state();
                let segment = state.segments.get_mut(&id);
                segment.is_none_or(|segment| {
                    segment.is_closed |= segment.bytes + bytes > shared.options.segment_bytes && segment.bytes > 0;
                    segment.is_closed
                })
            };
            if is_full {
                *open = None;
                shared.remove_segment(id);
            }
        }
        let id = match *open {
            Some(id) => id,
            None => *open.insert(Self::new_segment(shared)?),
        };
        let (file, offset) = {
            let state = shared.state();
            let segment = state.segments.get(&id).ok_or(BlobError::Misuse("the open segment is gone"))?;
            (Arc::clone(&segment.file), segment.bytes)
        };
        file.write_at(front, offset).map_err(|error| self.failed(&error))?;
        if let Some(segment) = shared.state().segments.get_mut(&id) {
            segment.bytes += bytes;
            segment.writers += 1;
        }
        Ok(SegmentPosition { segment: id, file, offset })
    }

    fn new_segment(shared: &Shared) -> Result<u32, BlobError> {
        let id = {
            let mut state = shared.state();
            let next = state.next_segment.checked_add(1).ok_or(BlobError::Misuse("there are too many segments"))?;
            state.next_segment = next;
            next
        };
        let file = shared.disk.create(&Shared::segment_path(id)).map_err(|error| BlobError::not_made(&error))?;
        shared.sync_names(SEGMENTS)?;
        let segment = Segment {
            file,
            bytes: 0,
            live_bytes: 0,
            live: 0,
            writers: 0,
            is_closed: false,
            has_index: false,
            indexed: 0,
        };
        shared.state().segments.insert(id, segment);
        Ok(id)
    }

    /// Nobody writes to the open segment any more.
    pub(crate) fn close(&self, shared: &Shared) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = open.take() {
            if let Some(segment) = shared.state().segments.get_mut(&id) {
                segment.is_closed = true;
            }
            shared.remove_segment(id);
        }
    }
}
