//! A body from its first byte until something refers to it: [`BodyWriter`], [`Written`], [`Unsettled`].

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use millrace_io::DiskFile;

use crate::BodyName;
use crate::bodies::{FILES, Shared};
use crate::error::BlobError;
use crate::format::{
    BLOCK_BYTES, FOOTER_BYTES, Footer, Header, OWNER_BYTES, RunningCrc, UNKNOWN_LENGTH, crc, record_bytes,
};
use crate::index::Location;

/// Bytes of a body after which it is asked again whether the disk has room.
const CHECKED_BYTES: u64 = 8 << 20;

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
    /// A copy stays in segments, however large: only those can take the place of another.
    is_copy: bool,
    target: Option<Target>,
    length: u64,
    /// How long it was when there was room last.
    checked_bytes: u64,
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
            is_copy: false,
            target: None,
            length: 0,
            checked_bytes: 0,
            block: RunningCrc::new(),
            block_bytes: 0,
            table: Vec::new(),
        })
    }

    /// A writer of another copy of a body, in a segment.
    pub(crate) fn copy(
        shared: &Arc<Shared>,
        lane: usize,
        name: BodyName,
        owner: &[u8],
        length: u64,
    ) -> Result<Self, BlobError> {
        let mut writer = Self::new(shared, lane, name, owner, Some(length))?;
        writer.is_copy = true;
        Ok(writer)
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
        self.shared.lanes[self.lane].check()?;
        if self.target.is_none() {
            self.target = Some(self.begin()?);
        }
        // Other bodies may have taken what was there for this one.
        if self.checked_bytes + CHECKED_BYTES <= self.length && !self.is_copy {
            self.checked_bytes = self.length;
            self.shared.check_room(0)?;
        }
        self.target.as_ref().ok_or(BlobError::Misuse("a body has no place"))
    }

    fn begin(&self) -> Result<Target, BlobError> {
        let front = self.header.encode(&self.owner);
        // A copy takes the place of another, and then there is more room than before.
        if !self.is_copy {
            let known = Some(self.header.length).filter(|length| *length != UNKNOWN_LENGTH);
            self.shared.check_room(known.unwrap_or_default())?;
        }
        if (self.is_copy || self.header.length <= self.shared.options.segment_body_bytes)
            && let Some(bytes) = record_bytes(front.len(), self.header.length)
        {
            let place = self.shared.lanes[self.lane].reserve(&self.shared, bytes, &front)?;
            return Ok(Target { file: place.file, segment: Some(place.segment), offset: place.offset });
        }
        let path = Shared::new_own_path(self.name);
        let file = self.shared.disk.create(&path).map_err(|error| BlobError::not_made(&error))?;
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
        shared.remove_file(&Shared::new_own_path(name));
        // It has its name already where that could not be made durable.
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
    /// This copy of a body, which is durable, takes the place of `from`, if that is still where it lies. Gives the segment
    /// that is empty then.
    pub(crate) fn take_place_of(mut self, from: Location) -> Option<u32> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        if state.bodies.get(&self.name) != Some(&from) {
            // It was freed meanwhile: the copy goes with the drop of this.
            return None;
        }
        self.file = None;
        if let Some(segment) = self.location.segment.and_then(|id| state.segments.get_mut(&id)) {
            segment.writers -= 1;
            segment.live += 1;
            segment.live_bytes += self.location.record_bytes();
        }
        state.bodies.insert(self.name, self.location);
        state.left(&from)
    }

    /// It is there from now on, for its writer to say what became of it.
    fn show(mut self) -> Unsettled {
        self.file = None;
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        if let Some(segment) = self.location.segment.and_then(|id| state.segments.get_mut(&id)) {
            segment.writers -= 1;
        }
        state.add(self.name, self.location);
        state.unsettled.insert(self.name);
        drop(state);
        Unsettled { shared, name: self.name, length: self.location.length, is_open: true }
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            abandon(&self.shared, self.name, self.location.segment);
        }
    }
}

/// Makes the bytes of bodies durable, with one sync for those in a segment; gives for each whether they are. A body with
/// a file of its own gets its name after that: so whatever has a name at the next start is whole.
pub(crate) fn sync_bytes(shared: &Shared, lane: usize, written: &[Written]) -> Vec<Result<(), BlobError>> {
    let lane = &shared.lanes[lane % shared.lanes.len()];
    let mut segments: BTreeMap<u32, Result<(), BlobError>> = BTreeMap::new();
    let sync_one = |body: &Written| -> Result<(), BlobError> {
        let file = body.file.as_ref().ok_or(BlobError::Misuse("a body has no place"))?;
        match body.location.segment {
            Some(id) => segments.entry(id).or_insert_with(|| lane.sync_segment(shared, id, &**file)).clone(),
            None => {
                lane.sync_file(shared, &**file)?;
                let renamed = shared.disk.rename(&Shared::new_own_path(body.name), &Shared::own_path(body.name));
                renamed.map_err(|error| BlobError::not_made(&error))
            }
        }
    };
    written.iter().map(sync_one).collect()
}

/// Makes bodies of a lane durable, each with its name.
pub(crate) fn sync(shared: &Shared, lane: usize, written: Vec<Written>) -> Vec<Result<Unsettled, BlobError>> {
    let synced = sync_bytes(shared, lane, &written);
    let has_file =
        |(body, synced): (&Written, &Result<(), BlobError>)| body.location.segment.is_none() && synced.is_ok();
    let names = if written.iter().zip(&synced).any(has_file) { shared.sync_names(FILES) } else { Ok(()) };
    let end = |(body, synced): (Written, Result<(), BlobError>)| {
        synced?;
        if body.location.segment.is_none() {
            names.clone()?;
        }
        Ok(body.show())
    };
    written.into_iter().zip(synced).map(end).collect()
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
