//! Walks one stream from its first batch to its end, and judges why it ends there.
//!
//! Recovery walks strictly: the first damage ends the walk as an error. Inspection and repair walk on behind damage and
//! deliver what can still be read.

use std::collections::VecDeque;
use std::io;

use millrace_base::{Lsn, ShardId};
use millrace_format::{
    BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, BodyHead, BodyKind, FRAME_HEADER_BYTES, SegmentHeaderError,
    body_head, read_frame,
};
use millrace_io::Disk;

use crate::decision::{Decision, Facts, Found, Later, decide};
use crate::error::{Damage, DamageKind, RecoverError};
use crate::layout::StreamFiles;
use crate::positions::{Bases, Positions};
use crate::segment_reader::{Read, SegmentReader};
use crate::torn::{SECTOR_BYTES, has_zero_sector};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Takes the entries of a walk, in order.
pub(crate) trait Sink {
    /// One intact entry.
    fn entry(&mut self, place: &EntryPlace<'_>, body: &[u8]) -> Result<(), RecoverError>;

    /// Whether it matters if the stream may have lost its last acknowledged batch.
    fn is_replicated(&self) -> bool {
        false
    }
}

/// Where an entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPlace<'a> {
    /// The segment file, relative to the data directory.
    pub file: &'a str,
    /// The offset of the entry's frame in it.
    pub offset: u64,
    /// The stream.
    pub stream: u64,
    /// The batch's number in the stream.
    pub batch: u64,
    /// The entry's shard.
    pub shard: ShardId,
    /// The entry's position in the shard's log. Zero for a record that has none.
    pub lsn: Lsn,
    /// What it is.
    pub kind: BodyKind,
}

/// What was read of one segment.
#[derive(Default)]
pub(crate) struct SegmentScan {
    pub(crate) used_bytes: u64,
    pub(crate) batches: u64,
    pub(crate) entries: u64,
    pub(crate) positions: Positions,
    pub(crate) bases: Bases,
}

impl SegmentScan {
    fn note(&mut self, head: &BodyHead) {
        self.entries += 1;
        match head.kind {
            BodyKind::WriteSet | BodyKind::ReplicaEntry => self.positions.note(head.shard, head.lsn),
            BodyKind::ReplicaState => self.positions.touch(head.shard),
            BodyKind::ReplicaBase => {
                self.positions.touch(head.shard);
                self.bases.note(head.shard, head.lsn);
            }
        }
    }
}

/// A batch's place in a stream: the index of its segment, and the offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchPlace {
    pub(crate) segment: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) number: u64,
}

/// What was read of one stream.
#[derive(Default)]
pub(crate) struct StreamScan {
    /// For each file of the stream.
    pub(crate) segments: Vec<SegmentScan>,
    pub(crate) is_closed: bool,
    /// Where the accepted part ends: the index of the segment, and the offset there. `None` if the stream has no
    /// readable segment at all.
    pub(crate) end: Option<(usize, u64)>,
    /// Whether a batch follows the end that was begun and never acknowledged.
    pub(crate) is_torn: bool,
    /// Whether an acknowledged batch may have followed the end. Told only to a sink of replicated shards.
    pub(crate) is_doubtful: bool,
    pub(crate) last_batch: u64,
    /// Accepted batches that no later batch knows to be durable.
    pub(crate) unsynced: VecDeque<BatchPlace>,
    pub(crate) damage: Vec<Damage>,
}

/// What lies ahead of a place where no batch could be read.
#[derive(Default)]
struct Ahead {
    first: Option<(usize, u64, u64)>,
    is_known_synced: bool,
    /// A later segment that is not as it was made, and how it differs.
    broken: Option<(usize, DamageKind)>,
}

enum Continuation {
    Continue(usize, u64),
    End,
}

struct Scanner<'a> {
    disk: &'a dyn Disk,
    files: &'a StreamFiles,
    is_older_run: bool,
    is_tolerant: bool,
    sink: &'a mut dyn Sink,
    scan: StreamScan,
    /// The next batch's number. Unknown if the stream's beginning has been deleted.
    expected: Option<u64>,
    window: Vec<u8>,
    reader: Option<(usize, SegmentReader)>,
}

/// Walks one stream. `is_older_run` says that a later start of the node made streams after this one.
///
/// # Errors
/// Damage, unless `is_tolerant`. Formats that this build does not know. Errors of the sink and the disk.
pub(crate) fn scan_stream(
    disk: &dyn Disk,
    files: &StreamFiles,
    is_older_run: bool,
    is_tolerant: bool,
    window: &mut Vec<u8>,
    sink: &mut dyn Sink,
) -> Result<StreamScan, RecoverError> {
    let starts_at_the_beginning = files.segments.first().is_some_and(|segment| segment.number == 1);
    let mut scanner = Scanner {
        disk,
        files,
        is_older_run,
        is_tolerant,
        sink,
        scan: StreamScan::default(),
        expected: starts_at_the_beginning.then_some(1),
        window: std::mem::take(window),
        reader: None,
    };
    scanner.scan.segments.resize_with(files.segments.len(), SegmentScan::default);
    let result = scanner.run();
    scanner.close_reader();
    *window = std::mem::take(&mut scanner.window);
    result.map(|()| scanner.scan)
}

impl Scanner<'_> {
    fn run(&mut self) -> Result<(), RecoverError> {
        self.check_headers()?;
        let mut at = (0, BLOCK);
        if self.files.segments.first().is_some_and(|segment| segment.header.is_err()) {
            let ahead = self.look_ahead(0, BLOCK, 0)?;
            match self.judge_unreadable_segment(0, ahead)? {
                Continuation::Continue(segment, offset) => at = (segment, offset),
                Continuation::End => return Ok(()),
            }
        }
        while at.0 < self.files.segments.len() {
            match self.step(at.0, at.1)? {
                Continuation::Continue(segment, offset) => at = (segment, offset),
                Continuation::End => break,
            }
        }
        Ok(())
    }

    fn check_headers(&mut self) -> Result<(), RecoverError> {
        for segment in &self.files.segments {
            if let Err(error @ SegmentHeaderError::Version(_)) = &segment.header {
                let (file, what) = (segment.path.clone(), error.to_string());
                return Err(RecoverError::Unknown { file, offset: 0, what });
            }
        }
        for index in 0..self.files.segments.len() {
            if let Some((stream, number)) = self.files.segments[index].other {
                self.damage(index, 0, DamageKind::OtherSegment { stream, number })?;
            }
        }
        for index in 1..self.files.segments.len() {
            let before = self.files.segments[index - 1].number;
            if self.files.segments[index].number != before + 1 {
                self.damage(index, 0, DamageKind::MissingSegment(before + 1))?;
            }
        }
        Ok(())
    }

    fn step(&mut self, segment: usize, offset: u64) -> Result<Continuation, RecoverError> {
        match self.io(segment, |reader| reader.batch_at(offset))? {
            Read::Batch { header, binding, is_whole: true } if self.is_next(&header) => {
                self.deliver(segment, offset, &header, binding)
            }
            Read::Batch { header, binding, .. } if self.is_next(&header) => {
                let after = offset.saturating_add(header.total_bytes().unwrap_or(BLOCK));
                let ahead = self.look_ahead(segment, after, header.number)?;
                let step = self.judge(segment, offset, Found::BadBatch, ahead)?;
                if self.is_tolerant && self.scan.end.is_none_or(|end| end != (segment, offset)) {
                    // It is damage and not a torn tail: these are the rest of an acknowledged batch.
                    self.entries(segment, offset, &header, binding)?;
                }
                Ok(step)
            }
            // A batch of this segment that is not the next one counts as a later one.
            Read::Batch { .. } | Read::NoBatch => {
                if offset > BLOCK && self.next_segment_goes_on(segment)? {
                    return Ok(Continuation::Continue(segment + 1, BLOCK));
                }
                let ahead = self.look_ahead(segment, offset, self.expected.unwrap_or(0))?;
                self.judge(segment, offset, Found::NoBatch, ahead)
            }
        }
    }

    fn is_next(&self, header: &BatchHeader) -> bool {
        self.expected.is_none_or(|expected| header.number == expected)
    }

    /// The segment is full: the next segment begins with the next batch.
    fn next_segment_goes_on(&mut self, segment: usize) -> Result<bool, RecoverError> {
        let Some(next) = self.files.segments.get(segment + 1) else { return Ok(false) };
        if next.header.is_err() || next.number != self.files.segments[segment].number + 1 {
            return Ok(false);
        }
        let found = self.io(segment + 1, |reader| reader.header_at(BLOCK))?;
        Ok(found.is_some_and(|(header, _)| Some(header.number) == self.expected))
    }

    fn deliver(
        &mut self,
        segment: usize,
        offset: u64,
        header: &BatchHeader,
        binding: u32,
    ) -> Result<Continuation, RecoverError> {
        let bytes = header.total_bytes().unwrap_or(BLOCK);
        self.entries(segment, offset, header, binding)?;
        self.expected = Some(header.number.saturating_add(1));
        self.scan.last_batch = header.number;
        self.scan.segments[segment].batches += 1;
        self.scan.segments[segment].used_bytes = offset + bytes;
        while self.scan.unsynced.front().is_some_and(|batch| batch.number <= header.synced) {
            self.scan.unsynced.pop_front();
        }
        if header.is_closing {
            self.scan.is_closed = true;
            self.scan.is_doubtful = header.is_doubtful;
            self.scan.end = Some((segment, offset + bytes));
            // Nothing is ever written after a closing batch: whatever follows is older.
            return Ok(Continuation::End);
        }
        self.scan.unsynced.push_back(BatchPlace { segment, offset, bytes, number: header.number });
        Ok(Continuation::Continue(segment, offset + bytes))
    }

    /// Gives the intact entries to the sink. If the batch was checked, these are all entries.
    fn entries(&mut self, segment: usize, offset: u64, header: &BatchHeader, binding: u32) -> Result<(), RecoverError> {
        self.open_reader(segment)?;
        let Some((_, reader)) = self.reader.as_mut() else { return Ok(()) };
        let file = &self.files.segments[segment].path;
        let payload = reader.payload(offset, header).map_err(RecoverError::io(file))?;
        let total = &mut self.scan.segments[segment];
        let mut rest = payload;
        let mut at = offset + BATCH_HEADER_BYTES as u64;
        for _ in 0..header.entry_count {
            // A checked batch is not checked again, because these passes bound the walk's speed.
            let Some((body, is_valid)) = split_frame(rest, !self.is_tolerant, binding) else { break };
            if is_valid {
                let head = body_head(body).map_err(|error| RecoverError::undecodable(file, at, &error))?;
                let BodyHead { shard, kind, lsn } = head;
                let place =
                    EntryPlace { file, offset: at, stream: self.files.stream, batch: header.number, shard, lsn, kind };
                self.sink.entry(&place, body)?;
                total.note(&head);
            }
            let length = FRAME_HEADER_BYTES + body.len();
            rest = &rest[length..];
            at += length as u64;
        }
        Ok(())
    }

    /// Looks at everything from a place to the end of the stream. `missing` is the number of the batch that should be
    /// there, or 0 if that is unknown.
    fn look_ahead(&mut self, segment: usize, offset: u64, missing: u64) -> Result<Ahead, RecoverError> {
        let mut ahead = Ahead::default();
        for index in segment..self.files.segments.len() {
            let file = &self.files.segments[index];
            let from = if index == segment { offset } else { BLOCK };
            let mut holds_batches = false;
            self.io(index, |reader| {
                reader.find_header(from, &mut |at, header| {
                    holds_batches = true;
                    // If the numbering is unknown, the missing batch is taken to be the one just before this one.
                    let missing = if missing == 0 { header.number.saturating_sub(1) } else { missing };
                    ahead.is_known_synced |= header.number == missing || header.synced >= missing;
                    ahead.first.get_or_insert((index, at, header.number));
                    true
                })
            })?;
            if index == segment {
                continue;
            }
            let broken = match &file.header {
                Err(_) => (file.length < BLOCK || holds_batches).then_some(DamageKind::SegmentHeader),
                // Segments have their full length until they are closed.
                Ok(header) => (file.length < header.segment_bytes && !holds_batches).then_some(DamageKind::CutShort),
            };
            ahead.broken = ahead.broken.or(broken.map(|kind| (index, kind)));
        }
        Ok(ahead)
    }

    /// Decides what a place without a readable batch means.
    fn judge(&mut self, segment: usize, offset: u64, found: Found, ahead: Ahead) -> Result<Continuation, RecoverError> {
        let file = &self.files.segments[segment];
        let Ok(header) = &file.header else {
            return self.judge_unreadable_segment(segment, ahead);
        };
        let later = match (&ahead.first, ahead.is_known_synced) {
            (None, _) => Later::None,
            (Some(_), false) => Later::Unsynced,
            (Some(_), true) => Later::Synced,
        };
        let facts = Facts {
            found,
            later,
            was_closed: self.is_older_run || file.length < header.segment_bytes,
            is_lone_block: file.length == offset + BLOCK,
        };
        let decision = decide(facts);
        if let Some((index, kind)) = ahead.broken.clone() {
            self.damage(index, 0, kind)?;
        } else if decision == Decision::Damage {
            let kind = match (found, later) {
                (Found::NoBatch, Later::None | Later::Unsynced) => DamageKind::CutShort,
                (Found::NoBatch, Later::Synced) => DamageKind::Batch,
                (Found::BadBatch, _) => DamageKind::Entry,
            };
            self.damage(segment, offset, kind)?;
        } else {
            self.scan.end = Some((segment, offset));
            self.scan.is_torn = found == Found::BadBatch || later != Later::None;
            if self.sink.is_replicated() {
                // Where a closing batch has decayed, nobody knows what it said.
                self.scan.is_doubtful = facts.was_closed || !self.is_proved_unacknowledged(segment, offset, found)?;
            }
            return Ok(Continuation::End);
        }
        Ok(self.behind_damage(ahead))
    }

    /// Whether what lies behind the end proves that no acknowledged batch was there (see `torn.rs`).
    fn is_proved_unacknowledged(&mut self, segment: usize, offset: u64, found: Found) -> Result<bool, RecoverError> {
        if found == Found::BadBatch {
            return self.io(segment, |reader| {
                let Some((header, _)) = reader.header_at(offset)? else { return Ok(false) };
                let length = header.payload_bytes.saturating_add(BATCH_HEADER_BYTES as u64);
                let image = reader.view(offset, length)?;
                Ok(!header.has_zeros && image.len() as u64 == length && has_zero_sector(image, false))
            });
        }
        // A batch that did not fit into the segment began the next one.
        let places = [(segment, offset), (segment + 1, BLOCK)];
        for (segment, offset) in places.into_iter().filter(|(segment, _)| *segment < self.files.segments.len()) {
            let is_untouched =
                self.io(segment, |reader| Ok(reader.view(offset, SECTOR_BYTES as u64)?.iter().all(|byte| *byte == 0)))?;
            if !is_untouched {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Judges a segment whose header is lost, and whose first batch cannot be read either.
    fn judge_unreadable_segment(&mut self, segment: usize, ahead: Ahead) -> Result<Continuation, RecoverError> {
        if ahead.first.is_some() || self.files.segments[segment].length < BLOCK || self.is_older_run {
            self.damage(segment, 0, DamageKind::SegmentHeader)?;
            return Ok(self.behind_damage(ahead));
        }
        // A spare segment that never held anything.
        Ok(Continuation::End)
    }

    fn behind_damage(&mut self, ahead: Ahead) -> Continuation {
        match ahead.first {
            Some((segment, offset, number)) => {
                self.expected = Some(number);
                Continuation::Continue(segment, offset)
            }
            None => Continuation::End,
        }
    }

    fn damage(&mut self, segment: usize, offset: u64, kind: DamageKind) -> Result<(), RecoverError> {
        let damage = Damage { file: self.files.segments[segment].path.clone(), offset, kind };
        if !self.is_tolerant {
            return Err(RecoverError::Damaged(damage));
        }
        self.scan.damage.push(damage);
        Ok(())
    }

    fn io<R>(
        &mut self,
        segment: usize,
        read: impl FnOnce(&mut SegmentReader) -> io::Result<R>,
    ) -> Result<R, RecoverError> {
        self.open_reader(segment)?;
        let path = &self.files.segments[segment].path;
        match self.reader.as_mut() {
            Some((_, reader)) => read(reader).map_err(RecoverError::io(path)),
            None => Err(RecoverError::Io { file: path.clone(), error: io::ErrorKind::NotFound.into() }),
        }
    }

    fn open_reader(&mut self, segment: usize) -> Result<(), RecoverError> {
        if self.reader.as_ref().is_some_and(|(index, _)| *index == segment) {
            return Ok(());
        }
        self.close_reader();
        let file = &self.files.segments[segment];
        let reader = SegmentReader::open(self.disk, self.files.stream, file, std::mem::take(&mut self.window));
        self.reader = Some((segment, reader.map_err(RecoverError::io(&file.path))?));
        Ok(())
    }

    fn close_reader(&mut self) {
        if let Some((_, reader)) = self.reader.take() {
            self.window = reader.into_window();
        }
    }
}

/// The body of the frame at the start of `rest`, and whether it is intact. It is not checked again if it `was_checked`.
fn split_frame(rest: &[u8], was_checked: bool, binding: u32) -> Option<(&[u8], bool)> {
    if !was_checked {
        return read_frame(rest, binding);
    }
    let length: [u8; 4] = rest.get(4..FRAME_HEADER_BYTES)?.try_into().ok()?;
    let body = rest.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + u32::from_le_bytes(length) as usize)?;
    Some((body, true))
}
