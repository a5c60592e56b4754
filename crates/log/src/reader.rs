//! Reads entries of replicated shards while the log is being written, for replicas that lack them.
//!
//! A log may hold entries that were cut off later. An epoch and a position name one entry for ever, so a reader that knows
//! its own log's epochs takes the right ones. It sees closed segments, and of the open one what is durable. Segments may be
//! deleted meanwhile: then it finds less.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, PoisonError};

use millrace_base::{Lsn, ShardId};
use millrace_format::{BLOCK_BYTES, BatchHeader, BodyKind, FRAME_HEADER_BYTES, ReplicaRecord, body_head, read_frame};

use crate::layout::read_segment_file;
use crate::replicas::{ReplicaEntry, ReplicaEntryRef};
use crate::segment_reader::{Read, SegmentReader};
use crate::segments::Segments;

/// Places remembered: one for each replica that is catching up, of some shards.
const PLACES: usize = 256;

/// A part of a segment that may be read.
pub(crate) struct Readable {
    pub(crate) stream: u64,
    pub(crate) number: u64,
    pub(crate) path: String,
    /// Where the durable part ends.
    pub(crate) end: u64,
}

/// Where the entry after `after` is looked for.
struct ReadPosition {
    shard: ShardId,
    after: (u64, Lsn),
    stream: u64,
    number: u64,
    offset: u64,
}

/// Reads entries of replicated shards, from any thread. A node has one.
pub struct LogReader {
    segments: Segments,
    places: Mutex<VecDeque<ReadPosition>>,
}

/// Entries of one log that are looked for, and those found.
struct Search<'a> {
    shard: ShardId,
    runs: &'a [(u64, Lsn)],
    next: Lsn,
    up_to: Lsn,
    bytes_left: usize,
    most: usize,
    found: Vec<ReplicaEntry>,
}

impl Search<'_> {
    fn is_full(&self) -> bool {
        let has_enough = self.bytes_left == 0 || self.found.len() >= self.most;
        self.next > self.up_to || has_enough && !self.found.is_empty()
    }

    /// Takes the body if it is the next entry. Says whether there is room for more.
    fn take(&mut self, body: &[u8]) -> bool {
        let is_next = |shard, lsn| shard == self.shard && lsn == self.next;
        let head = body_head(body).ok().filter(|head| head.kind == BodyKind::ReplicaEntry);
        if !head.is_some_and(|head| is_next(head.shard, head.lsn)) {
            return true;
        }
        let Ok((_, ReplicaRecord::Entry { epoch, lsn, kind, bytes })) = ReplicaRecord::decode(body) else {
            return true;
        };
        let wanted = self.runs.iter().rev().find(|(_, first)| *first <= lsn).map(|(epoch, _)| *epoch);
        if wanted != Some(epoch) {
            return true;
        }
        if bytes.len() > self.bytes_left && !self.found.is_empty() {
            self.bytes_left = 0;
            return false;
        }
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len());
        self.found.push(ReplicaEntryRef { epoch, lsn, kind, bytes }.to_owned());
        self.next = lsn.next();
        !self.is_full()
    }
}

impl LogReader {
    /// Reads the log whose segments these are.
    #[must_use]
    pub fn new(segments: Segments) -> Self {
        Self { segments, places: Mutex::default() }
    }

    /// Entries behind `after` (an epoch and a position) of the log that ends at `up_to` and whose epochs are `runs`: the
    /// first entry of each epoch, ascending, with that of the entry behind `after` among them. No more than `most` and than
    /// fit in `max_bytes`, and at least one. None if they are not durable yet, or deleted: then only a snapshot has them.
    ///
    /// The first read of a shard passes over a segment. One that goes on where an earlier one ended does not.
    ///
    /// # Errors
    /// What the disk answers.
    pub fn read_after(
        &self,
        shard: ShardId,
        after: (u64, Lsn),
        up_to: Lsn,
        runs: &[(u64, Lsn)],
        (max_bytes, most): (usize, usize),
    ) -> io::Result<Vec<ReplicaEntry>> {
        let next = after.1.next();
        let mut search = Search { shard, runs, next, up_to, bytes_left: max_bytes, most, found: Vec::new() };
        if search.is_full() {
            return Ok(search.found);
        }
        let from = self.place_of(shard, after);
        let mut ended = None;
        for part in self.segments.readable(shard, search.next) {
            let offset = match from {
                Some((stream, number, _)) if (part.stream, part.number) < (stream, number) => continue,
                Some((stream, number, offset)) if (part.stream, part.number) == (stream, number) => offset,
                _ => BLOCK_BYTES as u64,
            };
            match self.search_part(&part, offset, &mut search) {
                Ok(offset) => ended = Some((part.stream, part.number, offset)),
                // It was deleted meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            }
            if search.is_full() {
                break;
            }
        }
        if let (Some(last), Some((stream, number, offset))) = (search.found.last(), ended) {
            self.remember(ReadPosition { shard, after: (last.epoch, last.lsn), stream, number, offset });
        }
        Ok(search.found)
    }

    /// Searches one part. Gives back where a later search goes on: at the batch that it has not passed.
    fn search_part(&self, part: &Readable, mut offset: u64, search: &mut Search<'_>) -> io::Result<u64> {
        let disk = self.segments.disk();
        let file = read_segment_file(disk, part.stream, part.number, part.path.clone())?;
        let mut reader = SegmentReader::open(disk, part.stream, &file, Vec::new())?;
        while offset < part.end {
            let Read::Batch { header, binding, is_whole: true } = reader.batch_at(offset)? else { break };
            if !search_batch(reader.payload(offset, &header)?, &header, binding, search) {
                break;
            }
            offset = offset.saturating_add(header.total_bytes().unwrap_or(u64::MAX));
        }
        Ok(offset)
    }

    fn place_of(&self, shard: ShardId, after: (u64, Lsn)) -> Option<(u64, u64, u64)> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let found = places.iter().rfind(|place| (place.shard, place.after) == (shard, after));
        found.map(|place| (place.stream, place.number, place.offset))
    }

    fn remember(&self, place: ReadPosition) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= PLACES {
            places.pop_front();
        }
        places.push_back(place);
    }
}

/// Says whether to go on behind the batch.
fn search_batch(payload: &[u8], header: &BatchHeader, binding: u32, search: &mut Search<'_>) -> bool {
    let mut rest = payload;
    for _ in 0..header.entry_count {
        let Some((body, true)) = read_frame(rest, binding) else { return false };
        if !search.take(body) {
            return false;
        }
        rest = &rest[FRAME_HEADER_BYTES + body.len()..];
    }
    true
}
