//! Log streams: which segments must be there.
//!
//! A stream stays on the list until a recovery finds no file of it: what a crash left of a removal is not unknown.
//!
//! A segment is listed after it is on disk and before a batch is written to it. It is taken off the
//! list before it is removed. So a listed segment that is missing was lost. A segment with batches that is not listed
//! means that the manifest is older than the log.

use std::collections::BTreeMap;
use std::io;

use crate::Manifest;
use crate::contents::StreamRecord;

impl Manifest {
    /// The streams that must be there; `None` when nothing has listed them yet.
    #[must_use]
    pub fn streams(&self) -> Option<BTreeMap<u64, StreamRecord>> {
        self.state().streams.clone()
    }

    /// Replaces the list: recovery has read and closed all that there is.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn set_streams(&self, streams: BTreeMap<u64, StreamRecord>) -> io::Result<()> {
        self.change(|contents| contents.streams = Some(streams))
    }

    /// Forgets the list. The next recovery takes what it finds: for a repair that has accepted a loss.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn forget_streams(&self) -> io::Result<()> {
        self.change(|contents| contents.streams = None)
    }

    /// A segment is on disk and may get batches from now on. Before a recovery has made the list, nothing is listed.
    ///
    /// # Errors
    /// What the file system answers; the segment must not be used then.
    pub fn add_segment(&self, stream: u64, segment: u64, is_synced: bool) -> io::Result<()> {
        self.change(|contents| {
            if let Some(streams) = contents.streams.as_mut() {
                let fresh = StreamRecord { first: segment, last: segment, is_synced, closed: None };
                let record = streams.entry(stream).or_insert(fresh);
                record.last = record.last.max(segment);
            }
        })
    }

    /// The checkpoint covers a stream up to the segment `through`, with so many flushes; it may be removed
    /// once this returns.
    ///
    /// # Errors
    /// What the file system answers; nothing may be removed then.
    pub fn remove_segments(&self, covered: &[(u64, u64)], checkpoint_mark: u64) -> io::Result<()> {
        self.change(|contents| {
            if let Some(streams) = contents.streams.as_mut() {
                for (stream, through) in covered {
                    if let Some(record) = streams.get_mut(stream) {
                        record.first = record.first.max(through + 1);
                    }
                }
            }
            if let Some(checkpoint) = contents.checkpoint.as_mut() {
                checkpoint.mark = checkpoint.mark.max(checkpoint_mark);
            }
        })
    }

    /// The stream has its closing batch, in the segment `last`; those behind it hold nothing.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn close_stream(&self, stream: u64, last: u64, closing_batch: u64) -> io::Result<()> {
        self.change(|contents| {
            if let Some(record) = contents.streams.as_mut().and_then(|streams| streams.get_mut(&stream)) {
                record.last = last;
                record.closed = Some(closing_batch);
            }
        })
    }
}
