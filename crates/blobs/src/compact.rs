//! Room that freed bodies leave in segments: a closed segment gets its index, and one with little left in it is copied
//! together with others.

use std::sync::Arc;

use crate::BodyName;
use crate::bodies::{Bodies, SEGMENTS, Shared};
use crate::error::BlobError;
use crate::format::segment_index::{self, Row};
use crate::index::Location;
use crate::reader::BodyReader;
use crate::writer::BodyWriter;

/// A segment whose bodies take less than one part in so many of it is copied together with others. Then each byte is
/// copied at most once for two that are freed.
const LEAST_SHARE: u64 = 3;

impl Bodies {
    /// One step of what is to be done in the background, with `lane` as the writer. Says whether there may be more.
    ///
    /// # Errors
    /// [`BlobError::Full`], [`BlobError::Failed`]; damaged bodies stay where they are.
    pub fn tidy(&self, lane: usize) -> Result<bool, BlobError> {
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
        while let Some(id) = self.without_index() {
            self.write_index(0, id)?;
        }
        Ok(())
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

    fn rows_of(&self, id: u32) -> Vec<(BodyName, Location)> {
        let state = self.shared.state();
        let of_it = state.bodies.iter().filter(|(_, location)| location.segment == Some(id));
        of_it.map(|(name, location)| (*name, *location)).collect()
    }

    fn write_index(&self, lane: usize, id: u32) -> Result<(), BlobError> {
        let shared = &*self.shared;
        let lane = &shared.lanes[lane % shared.lanes.len()];
        let Some((file, bytes)) =
            shared.state().segments.get(&id).map(|segment| (Arc::clone(&segment.file), segment.bytes))
        else {
            return Ok(());
        };
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
        let index = shared.disk.create(&new).map_err(failed)?;
        index.write_at(&content, 0).map_err(failed)?;
        if shared.options.is_synced {
            index.sync_data().map_err(failed)?;
        }
        shared.disk.rename(&new, &Shared::index_path(id)).map_err(failed)?;
        if shared.options.is_synced {
            shared.disk.sync_directory(SEGMENTS).map_err(failed)?;
        }
        if let Some(segment) = shared.state().segments.get_mut(&id) {
            segment.has_index = true;
        }
        Ok(())
    }

    /// Copies what is left in a segment to the open one. Who reads the old place goes on: the file lives as long.
    fn copy_together(&self, lane: usize, id: u32) -> Result<(), BlobError> {
        for (name, location) in self.rows_of(id) {
            let Ok(reader) = self.read(name) else { continue };
            match self.copy(lane, name, location, &reader) {
                Ok(()) | Err(BlobError::Rot(..)) => {}
                Err(error) => return Err(error),
            }
        }
        let mut state = self.shared.state();
        if let Some(segment) = state.segments.get_mut(&id) {
            // What is left is damaged. It is not tried again: who scrubs tells of it.
            segment.live_bytes = segment.live_bytes.max(segment.bytes / LEAST_SHARE);
        }
        Ok(())
    }

    fn copy(&self, lane: usize, name: BodyName, from: Location, reader: &BodyReader) -> Result<(), BlobError> {
        let owner = reader.owner()?;
        let mut content = vec![0; usize::try_from(from.length).unwrap_or(usize::MAX)];
        reader.read_at(0, &mut content)?;
        let mut writer = BodyWriter::new(&self.shared, lane, name, &owner, Some(from.length))?;
        writer.append(&content)?;
        let written = writer.finish()?;
        let emptied = written.move_to(lane, from)?;
        if let Some(id) = emptied {
            self.shared.remove_segment(id);
        }
        Ok(())
    }
}
