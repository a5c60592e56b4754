//! Snapshots of one shard: its rows as chunks, from one checkpoint into another.
//!
//! An export needs no frozen view of the rows. Any row may be newer than the LSN that the export names, never older.
//! Whoever imports it applies the entries after that LSN before the shard is served. So a node exports while it goes on.
//!
//! ```text
//! chunk (version 1)
//! offset  bytes  meaning
//!  0      1      version = 1
//!  1      …      rows in order, each: 4  key length, 4  value length, then the key without its shard, the value
//! ```

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use millrace_base::{Lsn, ShardId};

use crate::row::{SHARD_BYTES, prefix_end, row_key, successor};
use crate::store::upper;
use crate::{Checkpoint, FlushChunk, Store, StoreError};

const VERSION: u8 = 1;
const LENGTHS_BYTES: usize = 8;

/// The checkpoint's library takes keys of two bytes more.
const KEY_BYTES: usize = u16::MAX as usize - SHARD_BYTES;

/// Bytes of rows removed at a time.
const REMOVED_BYTES: usize = 1 << 20;

/// What a checkpoint knows of the snapshots that a shard was replaced by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportState {
    /// An import began and did not end: the rows are those of no position.
    pub is_resetting: bool,
    /// The note of the last import that ended.
    pub snapshot: Option<Vec<u8>>,
}

/// A step of an import that the checkpoint makes durable at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportStep<'a> {
    /// From now on the rows are those of no position.
    Begun,
    /// The rows hold everything up to `lsn`.
    Ended {
        /// The shard's LSN.
        lsn: Lsn,
        /// What the next start wants to know of the snapshot.
        note: &'a [u8],
    },
}

/// The rows of a shard, in chunks.
pub struct Export {
    checkpoint: Arc<dyn Checkpoint>,
    lsn: Lsn,
    /// The rows to come are in this range.
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    is_done: bool,
}

impl Export {
    /// Begins to export the rows that the checkpoint holds of `shard`.
    ///
    /// # Errors
    /// [`StoreError`] if the checkpoint cannot be read, or if an import into the shard did not end.
    pub fn begin(checkpoint: Arc<dyn Checkpoint>, shard: ShardId) -> Result<Self, StoreError> {
        refuse_resetting(&*checkpoint, shard)?;
        // The rows are read later, so they are never older.
        let lsn = checkpoint.lsn(shard)?;
        let from = row_key(shard, b"", b"");
        let to = prefix_end(&from);
        Ok(Self { checkpoint, lsn, from, to, is_done: false })
    }

    /// The rows hold everything up to here, and perhaps more. Entries after it have to be applied over them.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// The next chunk: at most `max_bytes`, or a single row that is larger. `None` after the last one.
    ///
    /// # Errors
    /// [`StoreError`] if the checkpoint cannot be read. The same chunk may be asked for again.
    pub fn next_chunk(&mut self, max_bytes: usize) -> Result<Option<Vec<u8>>, StoreError> {
        if self.is_done {
            return Ok(None);
        }
        let mut chunk = vec![VERSION];
        let mut last = None;
        let mut is_full = false;
        self.checkpoint.scan(Bound::Included(&self.from), upper(self.to.as_deref()), &mut |row, value| {
            let key = row.get(SHARD_BYTES..).unwrap_or_default();
            is_full = chunk.len() > 1 && chunk.len() + LENGTHS_BYTES + key.len() + value.len() > max_bytes;
            if is_full {
                return ControlFlow::Break(());
            }
            let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("limits keep rows below 4 GiB").to_le_bytes();
            chunk.extend_from_slice(&length(key));
            chunk.extend_from_slice(&length(value));
            chunk.extend_from_slice(key);
            chunk.extend_from_slice(value);
            last = Some(row.to_vec());
            ControlFlow::Continue(())
        })?;
        self.is_done = !is_full;
        match last {
            Some(row) => {
                self.from = successor(&row);
                Ok(Some(chunk))
            }
            None => Ok(None),
        }
    }
}

/// Replaces the rows of a shard by those of an export. No store of the shard may be open. If it does not end, the next
/// start finds [`ImportState::is_resetting`], and the import begins anew.
pub struct Import {
    checkpoint: Arc<dyn Checkpoint>,
    shard: ShardId,
}

impl Import {
    /// Marks the shard and removes its rows.
    ///
    /// # Errors
    /// [`StoreError`] if the checkpoint cannot be read or written.
    pub fn begin(checkpoint: Arc<dyn Checkpoint>, shard: ShardId) -> Result<Self, StoreError> {
        checkpoint.record_import(shard, ImportStep::Begun)?;
        let prefix = row_key(shard, b"", b"");
        let end = prefix_end(&prefix);
        loop {
            let mut removed = FlushChunk::new(0, Lsn::ZERO);
            checkpoint.scan(Bound::Included(&prefix), upper(end.as_deref()), &mut |row, _| {
                removed.push(shard, row.get(SHARD_BYTES..).unwrap_or_default(), b"", None);
                if removed.size_bytes() < REMOVED_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            if removed.row_count() == 0 {
                return Ok(Self { checkpoint, shard });
            }
            checkpoint.write(shard, &removed)?;
        }
    }

    /// Removes the rows of a shard and gives an empty store over them, at no entry. The mark stays: until
    /// [`Import::end_empty`], each start begins anew.
    ///
    /// # Errors
    /// [`StoreError`] if the checkpoint cannot be read or written.
    pub fn empty(checkpoint: &Arc<dyn Checkpoint>, shard: ShardId, hash_seed: u64) -> Result<Store, StoreError> {
        Self::begin(Arc::clone(checkpoint), shard)?;
        let mut position = FlushChunk::new(0, Lsn::ZERO);
        position.advances_to = Some(Lsn::ZERO);
        checkpoint.write(shard, &position)?;
        Store::open_any(shard, Arc::clone(checkpoint), hash_seed)
    }

    /// The rows of a shard that was emptied have been made again, by entries from the first on.
    ///
    /// # Errors
    /// [`StoreError`] if the checkpoint cannot be read or written.
    pub fn end_empty(checkpoint: &dyn Checkpoint, shard: ShardId) -> Result<(), StoreError> {
        if checkpoint.import_state(shard)?.is_resetting {
            let lsn = checkpoint.lsn(shard)?;
            checkpoint.record_import(shard, ImportStep::Ended { lsn, note: b"" })?;
        }
        Ok(())
    }

    /// Adds the rows of a chunk. Chunks may come in any order, and more than once.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for bytes that are not a chunk; others if the checkpoint cannot be written.
    pub fn add(&mut self, chunk: &[u8]) -> Result<(), StoreError> {
        let mut rows = FlushChunk::new(0, Lsn::ZERO);
        let mut rest = match chunk.split_first() {
            Some((&VERSION, rest)) => rest,
            Some((version, _)) => {
                return Err(StoreError::Corrupt(format!("a snapshot of version {version} is not known to this build")));
            }
            None => return Err(cut_short()),
        };
        let mut last: &[u8] = b"";
        while !rest.is_empty() {
            let (key, value);
            (key, value, rest) = split_row(rest).ok_or_else(cut_short)?;
            if key <= last || key.len() > KEY_BYTES {
                return Err(StoreError::Corrupt("a chunk of a snapshot has keys that are no rows in order".to_owned()));
            }
            last = key;
            rows.push(self.shard, key, b"", Some(value));
        }
        self.checkpoint.write(self.shard, &rows)
    }

    /// All rows are here: the shard is at `lsn` from now on. `note` is kept with that.
    ///
    /// # Errors
    /// [`StoreError`] if the checkpoint cannot be written.
    pub fn finish(self, lsn: Lsn, note: &[u8]) -> Result<(), StoreError> {
        self.checkpoint.record_import(self.shard, ImportStep::Ended { lsn, note })
    }
}

/// Refuses to read rows that are those of no position.
pub(crate) fn refuse_resetting(checkpoint: &dyn Checkpoint, shard: ShardId) -> Result<(), StoreError> {
    if checkpoint.import_state(shard)?.is_resetting {
        let what = format!("a snapshot of shard {shard} was not installed whole: it has to be installed again");
        return Err(StoreError::Corrupt(what));
    }
    Ok(())
}

fn cut_short() -> StoreError {
    StoreError::Corrupt("a chunk of a snapshot is cut short".to_owned())
}

/// Key and value of the first row, and the rest. An empty value would be a deletion, which no snapshot has.
fn split_row(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (lengths, rest) = bytes.split_first_chunk::<LENGTHS_BYTES>()?;
    let [a, b, c, d, e, f, g, h] = *lengths;
    let (key, rest) = rest.split_at_checked(u32::from_le_bytes([a, b, c, d]) as usize)?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes([e, f, g, h]) as usize)?;
    (!value.is_empty()).then_some((key, value, rest))
}
