//! What is known of bodies and segments in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_io::DiskFile;

use crate::BodyName;
use crate::format::{HEADER_BYTES, record_bytes};

/// Where a body lies. 32 bytes, and the name before it 16: with what the map takes beside, some 60 bytes a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// The segment; `None`: a file of its own.
    pub segment: Option<u32>,
    pub owner_bytes: u16,
    /// Where its header begins.
    pub offset: u64,
    pub length: u64,
}

impl Location {
    pub(crate) fn front_bytes(&self) -> usize {
        HEADER_BYTES + usize::from(self.owner_bytes) + 4
    }

    pub(crate) fn record_bytes(&self) -> u64 {
        record_bytes(self.front_bytes(), self.length).unwrap_or(u64::MAX)
    }
}

/// A segment.
pub(crate) struct Segment {
    pub file: Arc<dyn DiskFile>,
    /// Bytes that writers have been given.
    pub bytes: u64,
    /// Bytes of bodies that are there.
    pub live_bytes: u64,
    pub live: u64,
    /// Writers that have not ended, and bodies that are not durable yet.
    pub writers: u64,
    /// No writer is given more of it.
    pub is_closed: bool,
    /// Its index is on the disk.
    pub has_index: bool,
    /// Bodies that the index lists. More than there are: some were freed since.
    pub indexed: u64,
}

/// Everything that changes together.
#[derive(Default)]
pub(crate) struct State {
    pub bodies: BTreeMap<BodyName, Location>,
    /// Bodies whose writers have yet to say whether something refers to them.
    pub unsettled: BTreeSet<BodyName>,
    /// Bodies with files of their own whose header or footer was damaged at the start. Nothing of them is served.
    pub damaged: BTreeSet<BodyName>,
    pub segments: BTreeMap<u32, Segment>,
    pub next_segment: u32,
    pub live_bytes: u64,
}

impl State {
    /// A body is there from now on.
    pub(crate) fn add(&mut self, name: BodyName, location: Location) {
        self.live_bytes += location.length;
        if let Some(segment) = location.segment.and_then(|id| self.segments.get_mut(&id)) {
            segment.live += 1;
            segment.live_bytes += location.record_bytes();
        }
        self.bodies.insert(name, location);
    }

    /// A body is gone from now on. Gives its place, and its segment if nothing else is in it.
    pub(crate) fn remove(&mut self, name: BodyName) -> Option<(Location, Option<u32>)> {
        let location = self.bodies.remove(&name)?;
        self.unsettled.remove(&name);
        self.damaged.remove(&name);
        self.live_bytes -= location.length;
        Some((location, self.left(&location)))
    }

    /// A body left a place. Gives the segment if it can be removed now.
    pub(crate) fn left(&mut self, location: &Location) -> Option<u32> {
        let id = location.segment?;
        let segment = self.segments.get_mut(&id)?;
        segment.live -= 1;
        segment.live_bytes -= location.record_bytes();
        segment.is_removable().then_some(id)
    }
}

impl Segment {
    pub(crate) fn is_removable(&self) -> bool {
        self.is_closed && self.live == 0 && self.writers == 0
    }
}
