//! What a backup needs of a log that is being written: segments that stay, and one moment of all streams.
//!
//! At that moment no writer is in the middle of a batch. The log up to the places of the moment is what a crash would
//! have left then, without a torn batch. `docs/internals/backup.md` has the argument.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_format::{BLOCK_BYTES, BatchHeader};
use millrace_manifest::StreamRecord;

use crate::batch::Batch;
use crate::layout::{segment_path, stream_directory};
use crate::segments::Segments;

/// Where a stream ends: after its last whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenSegment {
    pub(crate) stream: u64,
    /// The number of the segment that takes batches.
    pub(crate) number: u64,
    /// Where the next batch goes.
    pub(crate) offset: u64,
    /// The number of the last batch.
    pub(crate) last_batch: u64,
    /// Binds batches to this use of the file.
    pub(crate) salt: u64,
}

impl OpenSegment {
    /// The number of the batch that closes a copy of the stream.
    fn closing_number(&self) -> u64 {
        self.last_batch + 1
    }

    /// The bytes that close a copy of the stream, behind its last batch. A stream that ends with them ends as by a
    /// clean stop, so a reader notices if any of it is missing. All batches of the copy have to be durable with them.
    fn closing_bytes(&self) -> Vec<u8> {
        let header = BatchHeader {
            stream: self.stream,
            segment: self.number,
            salt: self.salt,
            number: self.closing_number(),
            synced: self.last_batch,
            payload_bytes: 0,
            entry_count: 0,
            is_closing: true,
            has_zeros: false,
            is_doubtful: false,
        };
        let bytes = Batch::new().with_image(&header, <[u8]>::to_vec);
        debug_assert_eq!(bytes.len(), BLOCK_BYTES, "a batch without entries is one block");
        bytes
    }
}

/// A segment of a copy of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentCopy {
    /// Its file.
    pub path: String,
    /// How many of its bytes count; `None`: all.
    pub bytes: Option<u64>,
    /// What comes behind them.
    pub end: Vec<u8>,
}

/// The segments of a copy that ends at one moment, in order. `open` is what [`Segments::at_one_moment`] has shown, and
/// `streams` what the manifest listed then. It lists the copy afterwards: all of its streams are closed.
pub fn copy_at(streams: &mut BTreeMap<u64, StreamRecord>, open: Vec<OpenSegment>) -> Vec<SegmentCopy> {
    let mut open: BTreeMap<u64, OpenSegment> = open.into_iter().map(|open| (open.stream, open)).collect();
    let mut copies = Vec::new();
    for (stream, record) in streams {
        let last = open.remove(stream);
        if let Some(open) = &last {
            // Behind it there are only segments that were prepared.
            record.last = open.number;
            record.closed = Some(open.closing_number());
        }
        for number in record.first..=record.last {
            let path = segment_path(&stream_directory(*stream), number);
            let (bytes, end) = match &last {
                Some(open) if open.number == number => (Some(open.offset), open.closing_bytes()),
                _ => (None, Vec::new()),
            };
            copies.push(SegmentCopy { path, bytes, end });
        }
    }
    copies
}

/// Where a writer stands. The writer holds the lock while it appends: who has it has a writer between two batches.
pub(crate) type WriterPosition = Mutex<Option<OpenSegment>>;

pub(crate) fn lock(place: &WriterPosition) -> MutexGuard<'_, Option<OpenSegment>> {
    // A writer that panicked has not moved its place: what it says is still right.
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it lives, no segment is deleted or overwritten.
pub struct LogHold {
    segments: Segments,
}

impl Drop for LogHold {
    fn drop(&mut self) {
        self.segments.release();
    }
}

impl Segments {
    /// Keeps all segments until the hold is dropped. Waits for a deletion that is under way.
    #[must_use]
    pub fn hold(&self) -> LogHold {
        self.retain();
        LogHold { segments: self.clone() }
    }

    /// Stops all writers between two batches, calls `look` with their places, and lets them go on. Whatever was
    /// acknowledged before this call is in front of the places. Takes as long as the batches that are being written.
    pub fn at_one_moment<T>(&self, look: impl FnOnce(&[OpenSegment]) -> T) -> T {
        let places: Vec<Arc<WriterPosition>> =
            self.state().values().filter_map(|stream| stream.place.clone()).collect();
        let locked: Vec<_> = places.iter().map(|place| lock(place)).collect();
        let open: Vec<OpenSegment> = locked.iter().filter_map(|place| **place).collect();
        look(&open)
    }
}
