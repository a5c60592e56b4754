//! A lane of writers and its open segment. Places in it are given in order; what is written there is written by each
//! writer alone.

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
}

/// A place in a segment.
pub(crate) struct Place {
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

    /// A write or sync failed. A full disk is none of the lane's; after anything else nobody knows what is on the disk.
    pub(crate) fn failed(&self, error: &std::io::Error) -> BlobError {
        if is_out_of_space(error) {
            return BlobError::Full;
        }
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let what = failed.get_or_insert_with(|| error.to_string());
        BlobError::Failed(what.clone())
    }

    /// A place for so many bytes in the open segment. `front` is written there before anybody gets a place behind: so
    /// whoever walks over the segment can step over what was not finished.
    pub(crate) fn reserve(&self, shared: &Shared, bytes: u64, front: &[u8]) -> Result<Place, BlobError> {
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
            None => *open.insert(self.new_segment(shared)?),
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
        Ok(Place { segment: id, file, offset })
    }

    fn new_segment(&self, shared: &Shared) -> Result<u32, BlobError> {
        let id = {
            let mut state = shared.state();
            state.next_segment += 1;
            state.next_segment
        };
        let failed = |error| self.failed(&error);
        let file = shared.disk.create(&Shared::segment_path(id)).map_err(failed)?;
        if shared.options.is_synced {
            shared.disk.sync_directory(SEGMENTS).map_err(failed)?;
        }
        let segment =
            Segment { file, bytes: 0, live_bytes: 0, live: 0, writers: 0, is_closed: false, has_index: false };
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
