//! Changes of a record's bytes, collected in any order and made in one pass.

use std::cmp::Reverse;
use std::ops::Range;

use millrace_base::limits;

use crate::UpdateError;

/// Ranges of the record, and the bytes that replace them. If another edit replaces a range around an edit, the inner
/// edit is dropped. Otherwise edits do not overlap.
#[derive(Default)]
pub(crate) struct Edits {
    edits: Vec<Edit>,
    bytes: Vec<u8>,
}

struct Edit {
    /// Position in the record.
    range: Range<usize>,
    /// Position in `bytes`.
    new: Range<usize>,
}

/// Bytes that take a step to copy, into fresh memory.
const COPIED_PER_STEP: usize = 32;

/// Bytes that edits may hold before they are made. This is more than a record may have, because an edit may be dropped
/// with another.
const MOST_BYTES: usize = 2 * limits::RECORD_BYTES;

impl Edits {
    /// Keeps bytes for one or several edits.
    pub(crate) fn keep<E: From<UpdateError>>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Range<usize>, E> {
        let start = self.bytes.len();
        write(&mut self.bytes)?;
        if self.bytes.len() > MOST_BYTES {
            return Err(UpdateError::TooLarge.into());
        }
        Ok(start..self.bytes.len())
    }

    pub(crate) fn kept(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Replaces a range with kept bytes.
    pub(crate) fn replace(&mut self, range: Range<usize>, new: Range<usize>) {
        self.edits.push(Edit { range, new });
    }

    pub(crate) fn remove(&mut self, range: Range<usize>) {
        self.replace(range, 0..0);
    }

    /// Steps that it takes to make the edits: to sort them, and to copy.
    pub(crate) fn cost(&self, record: &[u8]) -> usize {
        4 * self.edits.len() + (record.len() + self.bytes.len()) / COPIED_PER_STEP
    }

    /// The record with all edits made.
    pub(crate) fn apply(mut self, record: &[u8]) -> Result<Vec<u8>, UpdateError> {
        // The edit that replaces more comes first. The sort is stable, so of equal ranges the one given first comes
        // first.
        self.edits.sort_by_key(|edit| (edit.range.start, Reverse(edit.range.end)));
        let mut done = 0;
        self.edits.retain(|edit| {
            let is_free = edit.range.start >= done;
            done = done.max(edit.range.end);
            is_free
        });
        let size = self.edits.iter().fold(record.len(), |size, edit| size + edit.new.len() - edit.range.len());
        if size > limits::RECORD_BYTES {
            return Err(UpdateError::TooLarge);
        }
        let mut out = Vec::with_capacity(size);
        let mut done = 0;
        for edit in &self.edits {
            out.extend_from_slice(&record[done..edit.range.start]);
            out.extend_from_slice(&self.bytes[edit.new.clone()]);
            done = edit.range.end;
        }
        out.extend_from_slice(&record[done..]);
        Ok(out)
    }
}
