//! The layer under a store: ordered rows on disk, and the LSN that each shard's rows reflect.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{Mutex, MutexGuard, PoisonError};

use millrace_base::{Lsn, ShardId};

use crate::StoreError;
use crate::snapshot::{ImportState, ImportStep};

/// Gets one row after another, key and value, and says whether to go on.
pub type RowVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Rows on disk, shared by a node's shards. Row keys start with the shard's number.
///
/// Any row may be newer than its shard's LSN, never older: see [`FlushChunk`].
pub trait Checkpoint: Send + Sync {
    /// The LSN up to which the shard's rows hold everything; [`Lsn::ZERO`] for an unknown shard.
    ///
    /// # Errors
    /// [`StoreError`] if the checkpoint cannot be read.
    fn lsn(&self, shard: ShardId) -> Result<Lsn, StoreError>;

    /// One row's value.
    ///
    /// # Errors
    /// [`StoreError`] if the checkpoint cannot be read.
    fn get(&self, row: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Visits rows in order until `visit` breaks. `visit` must not call the checkpoint.
    ///
    /// # Errors
    /// [`StoreError`] if the checkpoint cannot be read.
    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, visit: &mut RowVisitor<'_>) -> Result<(), StoreError>;

    /// Writes a chunk's rows and, with the last chunk, the shard's new LSN. When this returns, the chunk is durable,
    /// and the store will forget its own copy.
    ///
    /// Chunks of a shard are written in the order in which they were taken. Once one has failed, no later chunk of the
    /// same flush may be written: the last one would claim that the failed rows are here.
    ///
    /// # Errors
    /// [`StoreError`] if the chunk could not be made durable. Any part of it may have been written.
    fn write(&self, shard: ShardId, chunk: &FlushChunk) -> Result<(), StoreError>;

    /// How many chunks have been written, ever. A checkpoint that shows fewer than it once did has lost some.
    ///
    /// # Errors
    /// [`StoreError`] when the checkpoint cannot be read, or a part of it is older than the rest.
    fn mark(&self) -> Result<u64, StoreError>;

    /// Whether a snapshot is being imported into the shard, and the note of the last one that was.
    ///
    /// # Errors
    /// [`StoreError`] if the checkpoint cannot be read.
    fn import_state(&self, shard: ShardId) -> Result<ImportState, StoreError>;

    /// Records a step of an import. It is durable when this returns: see [`crate::Import`], which does the rest.
    ///
    /// # Errors
    /// [`StoreError`] if the step could not be made durable.
    fn record_import(&self, shard: ShardId, step: ImportStep<'_>) -> Result<(), StoreError>;
}

/// Rows taken from a store, which any thread may write to the checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushChunk {
    pub(crate) number: u64,
    pub(crate) needs_durable: Lsn,
    pub(crate) advances_to: Option<Lsn>,
    bytes: Vec<u8>,
    rows: Vec<RowEnds>,
    /// Whether some rows were added out of order.
    is_unordered: bool,
}

/// Where a row's key begins, and where key and value end, in the chunk's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowEnds {
    start: u32,
    key: u32,
    value: u32,
}

impl FlushChunk {
    pub(crate) fn new(number: u64, needs_durable: Lsn) -> Self {
        Self { number, needs_durable, ..Self::default() }
    }

    /// The log must be durable up to this LSN before the chunk is written. The chunk holds the effects of entries up to
    /// it, and the checkpoint must not hold what the log could lose.
    #[must_use]
    pub fn needs_durable(&self) -> Lsn {
        self.needs_durable
    }

    /// The shard's checkpoint LSN once this chunk is written. Only the last chunk of a flush has one.
    #[must_use]
    pub fn advances_to(&self) -> Option<Lsn> {
        self.advances_to
    }

    /// The rows: key, and value or `None` for a deletion. No key occurs twice.
    pub fn rows(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.rows.iter().map(|ends| self.row(ends))
    }

    /// The rows in the order of their keys. Those of an append-only map are sorted here, on the thread that writes them
    /// and not on the shard's.
    pub fn ordered_rows(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut rows = Vec::new();
        if self.is_unordered {
            rows.extend(self.rows());
            rows.sort_unstable_by_key(|(key, _)| *key);
        }
        let is_ordered = rows.is_empty();
        rows.into_iter().chain(self.rows().take(if is_ordered { self.rows.len() } else { 0 }))
    }

    fn row(&self, ends: &RowEnds) -> (&[u8], Option<&[u8]>) {
        let [start, key_end, value_end] = [ends.start, ends.key, ends.value].map(|end| end as usize);
        let value = &self.bytes[key_end..value_end];
        // An encoded value holds at least its kind byte, so empty can stand for a deletion.
        (&self.bytes[start..key_end], (!value.is_empty()).then_some(value))
    }

    /// Rows in the chunk.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of all rows.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a row made of parts. The caller keeps chunks below 4 GiB.
    pub(crate) fn push(&mut self, shard: ShardId, entity: &[u8], field: &[u8], value: Option<&[u8]>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&shard.0.to_be_bytes());
        self.bytes.extend_from_slice(entity);
        self.bytes.extend_from_slice(field);
        let key = self.bytes.len();
        self.bytes.extend_from_slice(value.unwrap_or_default());
        let end = |length: usize| u32::try_from(length).expect("a chunk is far below 4 GiB");
        self.rows.push(RowEnds { start: end(start), key: end(key), value: end(self.bytes.len()) });
    }

    /// Adds a row that need not come behind those before it.
    pub(crate) fn push_unordered(&mut self, shard: ShardId, entity: &[u8], field: &[u8], value: Option<&[u8]>) {
        self.is_unordered = true;
        self.push(shard, entity, field, value);
    }
}

/// A checkpoint in memory, for tests and the simulator.
#[derive(Default)]
pub struct MemoryCheckpoint {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    mark: u64,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    lsns: BTreeMap<ShardId, Lsn>,
    imports: BTreeMap<ShardId, ImportState>,
}

impl MemoryCheckpoint {
    /// An empty checkpoint.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while the lock was held cannot leave a map half changed.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Checkpoint for MemoryCheckpoint {
    fn lsn(&self, shard: ShardId) -> Result<Lsn, StoreError> {
        Ok(self.lock().lsns.get(&shard).copied().unwrap_or_default())
    }

    fn get(&self, row: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.lock().rows.get(row).cloned())
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, visit: &mut RowVisitor<'_>) -> Result<(), StoreError> {
        if !is_range(from, to) {
            return Ok(());
        }
        for (key, value) in self.lock().rows.range::<[u8], _>((from, to)) {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn write(&self, shard: ShardId, chunk: &FlushChunk) -> Result<(), StoreError> {
        let mut inner = self.lock();
        for (key, value) in chunk.rows() {
            match value {
                Some(value) => inner.rows.insert(key.to_vec(), value.to_vec()),
                None => inner.rows.remove(key),
            };
        }
        if let Some(lsn) = chunk.advances_to {
            inner.lsns.insert(shard, lsn);
        }
        inner.mark += 1;
        Ok(())
    }

    fn mark(&self) -> Result<u64, StoreError> {
        Ok(self.lock().mark)
    }

    fn import_state(&self, shard: ShardId) -> Result<ImportState, StoreError> {
        Ok(self.lock().imports.get(&shard).cloned().unwrap_or_default())
    }

    fn record_import(&self, shard: ShardId, step: ImportStep<'_>) -> Result<(), StoreError> {
        let mut inner = self.lock();
        match step {
            ImportStep::Begun => inner.imports.entry(shard).or_default().is_resetting = true,
            ImportStep::Ended { lsn, note } => {
                inner.imports.insert(shard, ImportState { is_resetting: false, snapshot: Some(note.to_vec()) });
                inner.lsns.insert(shard, lsn);
            }
        }
        Ok(())
    }
}

/// Whether a range may hold anything. Ordered maps panic on a range that runs backwards.
pub(crate) fn is_range(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Included(from), Bound::Included(to)) => from <= to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from < to,
    }
}
