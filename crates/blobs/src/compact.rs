//! Room that freed bodies leave in segments: a closed segment gets its index, and one with little left in it is copied
//! together with others.

use std::ops::Bound;
use std::sync::{Arc, PoisonError};

use millrace_io::DiskFile;

use crate::BodyName;
use crate::bodies::{Bodies, SEGMENTS, Shared};
use crate::error::BlobError;
use crate::format::segment_index::{self, Row};
use crate::index::Location;
use crate::writer::{BodyWriter, Written, sync_bytes};

/// A segment whose bodies take less than one part in so many of it is copied together with others. Then each byte is
/// copied at most once for two that are freed.
const LEAST_SHARE: u64 = 3;

/// Copies that are made durable by one sync.
const COPIES_AT_ONCE: usize = 64;

/// Bodies that are looked at before others may use what is known of them: a look at some takes some 100 µs.
const NAMES_AT_ONCE: usize = 4096;

/// A segment that stays while its index is written, though its last body is freed meanwhile. Else the index would be there
/// without its segment, as if that had been lost.
struct HeldSegment<'a> {
    shared: &'a Shared,
    id: u32,
}

impl<'a> HeldSegment<'a> {
    /// Holds a segment: with its file, and how many bytes writers were given. `None`: it is gone.
    fn hold(shared: &'a Shared, id: u32) -> Option<(Self, Arc<dyn DiskFile>, u64)> {
        let mut state = shared.state();
        let segment = state.segments.get_mut(&id)?;
        segment.writers += 1;
        Some((Self { shared, id }, Arc::clone(&segment.file), segment.bytes))
    }
}

impl Drop for HeldSegment<'_> {
    fn drop(&mut self) {
        if let Some(segment) = self.shared.state().segments.get_mut(&self.id) {
            segment.writers -= 1;
        }
        self.shared.remove_segment(self.id);
    }
}

impl Bodies {
    /// One step of what is to be done in the background, with `lane` as the writer. Says whether there may be more.
    ///
    /// # Errors
    /// [`BlobError::Full`], [`BlobError::Failed`]; damaged bodies stay where they are.
    pub fn tidy(&self, lane: usize) -> Result<bool, BlobError> {
        let _alone = self.shared.tidying.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = self.without_index() {
            self.write_index(lane, id)?;
            return Ok(true);
        }
        let Some(id) = self.sparse() else { return Ok(false) };
        self.copy_together(lane, id)?;
        Ok(true)
    }

    /// Closes the open segments: the next start reads their indexes and not their headers.
    ///
    /// # Errors
    /// As for [`Bodies::tidy`].
    pub fn close(&self) -> Result<(), BlobError> {
        for lane in &self.shared.lanes {
            lane.close(&self.shared);
        }
        let _alone = self.shared.tidying.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(id) = self.without_index() {
            self.write_index(0, id)?;
        }
        self.write_stale_indexes()
    }

    /// Notes durably which bodies of closed segments were freed: the next start does not find them again.
    ///
    /// # Errors
    /// As for [`Bodies::tidy`].
    pub fn note_freed(&self) -> Result<(), BlobError> {
        let _alone = self.shared.tidying.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_stale_indexes()
    }

    /// Indexes that list bodies which were freed since.
    fn write_stale_indexes(&self) -> Result<(), BlobError> {
        let stale: Vec<u32> = {
            let state = self.shared.state();
            let is_stale = |segment: &crate::index::Segment| {
                segment.is_closed && segment.has_index && segment.writers == 0 && segment.indexed > segment.live
            };
            state.segments.iter().filter(|(_, segment)| is_stale(segment)).map(|(id, _)| *id).collect()
        };
        stale.into_iter().try_for_each(|id| self.write_index(0, id))
    }

    fn without_index(&self) -> Option<u32> {
        let state = self.shared.state();
        let found =
            state.segments.iter().find(|(_, segment)| segment.is_closed && !segment.has_index && segment.writers == 0);
        found.map(|(id, _)| *id)
    }

    fn sparse(&self) -> Option<u32> {
        let state = self.shared.state();
        let is_sparse = |segment: &crate::index::Segment| {
            segment.is_closed
                && segment.writers == 0
                && segment.has_index
                && segment.live_bytes < segment.bytes / LEAST_SHARE
        };
        state.segments.iter().find(|(_, segment)| is_sparse(segment)).map(|(id, _)| *id)
    }

    /// The bodies in a closed segment.
    fn rows_of(&self, id: u32) -> Vec<(BodyName, Location)> {
        let (mut rows, mut from) = (Vec::new(), Bound::Unbounded);
        loop {
            let state = self.shared.state();
            let some = state.bodies.range((from, Bound::Unbounded)).take(NAMES_AT_ONCE);
            let mut last = None;
            for (name, location) in some {
                last = Some(*name);
                if location.segment == Some(id) {
                    rows.push((*name, *location));
                }
            }
            let Some(last) = last else { return rows };
            from = Bound::Excluded(last);
        }
    }

    fn write_index(&self, lane: usize, id: u32) -> Result<(), BlobError> {
        let shared = &*self.shared;
        let lane = &shared.lanes[lane % shared.lanes.len()];
        let Some((held, file, bytes)) = HeldSegment::hold(shared, id) else { return Ok(()) };
        let row = |(name, location): (BodyName, Location)| Row {
            name,
            offset: location.offset,
            length: location.length,
            owner_bytes: location.owner_bytes,
        };
        let rows: Vec<Row> = self.rows_of(id).into_iter().map(row).collect();
        let failed = |error| lane.failed(&error);
        // The place behind the last body was given and may never have been written to.
        let end = bytes.min(file.length().map_err(failed)?);
        let content = segment_index::encode(end, &rows);
        let new = format!("{SEGMENTS}/{id:08x}.new");
        let index = shared.disk.create(&new).map_err(|error| BlobError::not_made(&error))?;
        index.write_at(&content, 0).map_err(failed)?;
        lane.sync_file(shared, &*index)?;
        shared.disk.rename(&new, &Shared::index_path(id)).map_err(|error| BlobError::not_made(&error))?;
        shared.sync_names(SEGMENTS)?;
        if let Some(segment) = shared.state().segments.get_mut(&id) {
            segment.has_index = true;
            segment.indexed = rows.len() as u64;
        }
        drop(held);
        Ok(())
    }

    /// Copies what is left in a segment to the open one. Who reads the old place goes on: the file lives as long.
    fn copy_together(&self, lane: usize, id: u32) -> Result<(), BlobError> {
        for rows in self.rows_of(id).chunks(COPIES_AT_ONCE) {
            let (mut copies, mut places, mut failed) = (Vec::new(), Vec::new(), None);
            for (name, from) in rows {
                match self.copy(lane, *name, *from) {
                    Ok(copy) => {
                        copies.push(copy);
                        places.push(*from);
                    }
                    Err(error @ (BlobError::Full | BlobError::Failed(_))) => {
                        failed = Some(error);
                        break;
                    }
                    // Freed meanwhile, or damaged.
                    Err(_) => {}
                }
            }
            self.switch(lane, copies, &places)?;
            failed.map_or(Ok(()), Err)?;
        }
        if let Some(segment) = self.shared.state().segments.get_mut(&id) {
            // What is left is damaged. It is not tried again: who scrubs tells of it.
            segment.live_bytes = segment.live_bytes.max(segment.bytes / LEAST_SHARE);
        }
        self.shared.remove_segment(id);
        Ok(())
    }

    /// Copies take the places of what they are copies of.
    fn switch(&self, lane: usize, copies: Vec<Written>, places: &[Location]) -> Result<(), BlobError> {
        let synced = sync_bytes(&self.shared, lane, &copies);
        for ((copy, from), synced) in copies.into_iter().zip(places).zip(synced) {
            synced?;
            if let Some(id) = copy.take_place_of(*from) {
                self.shared.remove_segment(id);
            }
        }
        Ok(())
    }

    fn copy(&self, lane: usize, name: BodyName, from: Location) -> Result<Written, BlobError> {
        let reader = self.read(name)?;
        let owner = reader.owner()?;
        let mut content = vec![0; usize::try_from(from.length).map_err(|_| BlobError::Misuse("a body is too large"))?];
        reader.read_at(0, &mut content)?;
        let mut writer = BodyWriter::copy(&self.shared, lane, name, &owner, from.length)?;
        writer.append(&content)?;
        writer.finish()
    }
}
