//! A body from its first byte until something refers to it: [`BodyWriter`], [`Written`], [`Unsettled`].

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_io::DiskFile;

use crate::BodyName;
use crate::bodies::{FILES, Shared};
use crate::error::BlobError;
use crate::format::{
    BLOCK_BYTES, FOOTER_BYTES, Footer, Header, OWNER_BYTES, RunningCrc, UNKNOWN_LENGTH, crc, record_bytes,
};
use crate::index::Location;

/// Where a body is written to.
struct Target {
    file: Arc<dyn DiskFile>,
    segment: Option<u32>,
    offset: u64,
}

/// A body that is being written. Dropping it leaves nothing that anybody could read.
pub struct BodyWriter {
    shared: Arc<Shared>,
    lane: usize,
    name: BodyName,
    owner: Vec<u8>,
    header: Header,
    target: Option<Target>,
    length: u64,
    block: RunningCrc,
    block_bytes: usize,
    table: Vec<u8>,
}

impl BodyWriter {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        lane: usize,
        name: BodyName,
        owner: &[u8],
        length: Option<u64>,
    ) -> Result<Self, BlobError> {
        let lane = lane % shared.lanes.len();
        shared.lanes[lane].check()?;
        let owner_bytes = u16::try_from(owner.len()).ok().filter(|_| owner.len() <= OWNER_BYTES);
        let owner_bytes = owner_bytes.ok_or(BlobError::Misuse("the owner of a body is too long"))?;
        Ok(Self {
            shared: Arc::clone(shared),
            lane,
            name,
            owner: owner.to_vec(),
            header: Header { name, owner_bytes, length: length.unwrap_or(UNKNOWN_LENGTH) },
            target: None,
            length: 0,
            block: RunningCrc::new(),
            block_bytes: 0,
            table: Vec::new(),
        })
    }

    /// The name that the body will have.
    #[must_use]
    pub fn name(&self) -> BodyName {
        self.name
    }

    fn failed(&self, error: &io::Error) -> BlobError {
        self.shared.lanes[self.lane].failed(error)
    }

    /// Where it goes: found when its first bytes come.
    fn target(&mut self) -> Result<&Target, BlobError> {
        if self.target.is_none() {
            self.target = Some(self.begin()?);
        }
        self.target.as_ref().ok_or(BlobError::Misuse("a body has no place"))
    }

    fn begin(&self) -> Result<Target, BlobError> {
        let front = self.header.encode(&self.owner);
        if self.header.length <= self.shared.options.segment_body_bytes
            && let Some(bytes) = record_bytes(front.len(), self.header.length)
        {
            let place = self.shared.lanes[self.lane].reserve(&self.shared, bytes, &front)?;
            return Ok(Target { file: place.file, segment: Some(place.segment), offset: place.offset });
        }
        self.shared.lanes[self.lane].check()?;
        let path = Shared::own_path(self.name);
        let file = self.shared.disk.create(&path).map_err(|error| self.failed(&error))?;
        if let Err(error) = file.write_at(&front, 0) {
            self.shared.remove_file(&path);
            return Err(self.failed(&error));
        }
        Ok(Target { file, segment: None, offset: 0 })
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`BlobError::Full`], [`BlobError::Failed`]; [`BlobError::Misuse`] for more bytes than were said.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), BlobError> {
        let length = self.length + bytes.len() as u64;
        if length > self.header.length {
            return Err(BlobError::Misuse("a body has more bytes than were said"));
        }
        let at = self.header.front_bytes() as u64 + self.length;
        let target = self.target()?;
        let written = target.file.write_at(bytes, target.offset + at);
        written.map_err(|error| self.failed(&error))?;
        self.length = length;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(BLOCK_BYTES - self.block_bytes));
            self.block.update(now);
            self.block_bytes += now.len();
            rest = later;
            if self.block_bytes == BLOCK_BYTES {
                self.end_block();
            }
        }
        Ok(())
    }

    fn end_block(&mut self) {
        self.table.extend_from_slice(&self.block.take().to_le_bytes());
        self.block_bytes = 0;
    }

    /// The body is whole. It is not durable before [`crate::Bodies::sync`].
    ///
    /// # Errors
    /// As for [`BodyWriter::append`]; [`BlobError::Misuse`] for fewer bytes than were said.
    pub fn finish(mut self) -> Result<Written, BlobError> {
        if self.header.length != UNKNOWN_LENGTH && self.header.length != self.length {
            return Err(BlobError::Misuse("a body has fewer bytes than were said"));
        }
        if self.block_bytes > 0 {
            self.end_block();
        }
        let footer = Footer { number: self.name.number, length: self.length, table_crc: crc(&self.table) };
        let mut end = std::mem::take(&mut self.table);
        end.reserve(FOOTER_BYTES);
        end.extend_from_slice(&footer.encode());
        let at = self.header.front_bytes() as u64 + self.length;
        let target = self.target()?;
        let written = target.file.write_at(&end, target.offset + at);
        written.map_err(|error| self.failed(&error))?;
        let Some(target) = self.target.take() else { return Err(BlobError::Misuse("a body has no place")) };
        let location = Location {
            segment: target.segment,
            owner_bytes: self.header.owner_bytes,
            offset: target.offset,
            length: self.length,
        };
        Ok(Written { shared: Arc::clone(&self.shared), name: self.name, location, file: Some(target.file) })
    }
}

impl Drop for BodyWriter {
    fn drop(&mut self) {
        if let Some(target) = self.target.take() {
            abandon(&self.shared, self.name, target.segment);
        }
    }
}

/// A place is not used after all. In a segment it stays empty until that is copied together.
fn abandon(shared: &Shared, name: BodyName, segment: Option<u32>) {
    let Some(id) = segment else {
        return shared.remove_file(&Shared::own_path(name));
    };
    if let Some(segment) = shared.state().segments.get_mut(&id) {
        segment.writers -= 1;
    }
    shared.remove_segment(id);
}

/// A body that is whole and not durable yet. Dropping it leaves nothing that anybody could read.
pub struct Written {
    shared: Arc<Shared>,
    pub(crate) name: BodyName,
    pub(crate) location: Location,
    file: Option<Arc<dyn DiskFile>>,
}

impl Written {
    /// This copy of a body takes the place of `from`, if that is still where it lies. Gives the segment that is empty
    /// then.
    pub(crate) fn move_to(mut self, lane: usize, from: Location) -> Result<Option<u32>, BlobError> {
        let Some(file) = self.file.clone() else { return Ok(None) };
        sync_file(&self.shared, &self.shared.lanes[lane % self.shared.lanes.len()], &*file)?;
        let mut state = self.shared.state();
        if state.bodies.get(&self.name) != Some(&from) {
            // It was freed meanwhile: the copy goes with the drop of this.
            drop(state);
            return Ok(None);
        }
        self.file = None;
        if let Some(segment) = self.location.segment.and_then(|id| state.segments.get_mut(&id)) {
            segment.writers -= 1;
            segment.live += 1;
            segment.live_bytes += self.location.record_bytes();
        }
        state.bodies.insert(self.name, self.location);
        Ok(state.left(&from))
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            abandon(&self.shared, self.name, self.location.segment);
        }
    }
}

/// Syncs what bodies of a lane were written to.
pub(crate) fn sync(shared: &Arc<Shared>, lane: usize, written: Vec<Written>) -> Vec<Result<Unsettled, BlobError>> {
    let lane = &shared.lanes[lane % shared.lanes.len()];
    let mut segments: BTreeMap<u32, Result<(), BlobError>> = BTreeMap::new();
    let mut own_names: Option<Result<(), BlobError>> = None;
    let mut results = Vec::with_capacity(written.len());
    for mut body in written {
        let Some(file) = body.file.clone() else { continue };
        let synced = match body.location.segment {
            Some(id) => segments.entry(id).or_insert_with(|| sync_file(shared, lane, &*file)).clone(),
            None => sync_file(shared, lane, &*file),
        };
        let synced = synced.and_then(|()| match body.location.segment {
            Some(_) => Ok(()),
            None => own_names.get_or_insert_with(|| sync_names(shared, lane)).clone(),
        });
        results.push(synced.map(|()| {
            body.file = None;
            let mut state = shared.state();
            if let Some(segment) = body.location.segment.and_then(|id| state.segments.get_mut(&id)) {
                segment.writers -= 1;
            }
            state.add(body.name, body.location);
            state.unsettled.insert(body.name);
            drop(state);
            Unsettled { shared: Arc::clone(shared), name: body.name, length: body.location.length, is_open: true }
        }));
    }
    results
}

fn sync_file(shared: &Shared, lane: &crate::lane::Lane, file: &dyn DiskFile) -> Result<(), BlobError> {
    // What another has found out counts for all: after a failed sync a second one proves nothing.
    lane.check()?;
    if !shared.options.is_synced {
        return Ok(());
    }
    shared.syncs.fetch_add(1, Ordering::Relaxed);
    file.sync_data().map_err(|error| fatal(lane, &error))
}

/// The names of files that were made since. One sync for all of them that come together: names that are made
/// meanwhile belong to bodies that are synced later.
fn sync_names(shared: &Shared, lane: &crate::lane::Lane) -> Result<(), BlobError> {
    if !shared.options.is_synced {
        return Ok(());
    }
    shared.disk.sync_directory(FILES).map_err(|error| fatal(lane, &error))
}

/// A sync that fails for want of space has lost as much as any other.
fn fatal(lane: &crate::lane::Lane, error: &io::Error) -> BlobError {
    lane.failed(&io::Error::other(error.to_string()))
}

/// A durable body of which its writer has yet to say what became of it. No look at all bodies frees it before that.
pub struct Unsettled {
    shared: Arc<Shared>,
    name: BodyName,
    length: u64,
    is_open: bool,
}

impl Unsettled {
    /// The body.
    #[must_use]
    pub fn name(&self) -> BodyName {
        self.name
    }

    /// Its bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Something refers to it, durably. Or nobody knows: then a later look at all bodies finds out.
    pub fn settle(mut self) {
        self.end();
    }

    /// Nothing refers to it.
    pub fn discard(mut self) {
        self.end();
        self.shared.free(self.name);
    }

    fn end(&mut self) {
        self.is_open = false;
        self.shared.state().unsettled.remove(&self.name);
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        if self.is_open {
            self.end();
        }
    }
}
