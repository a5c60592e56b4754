//! The checkpoint in fjall, an LSM library. Only this file knows fjall.
//!
//! Our log is the truth, but a confirmed chunk leaves the store's memory, so each chunk is synced. Chunks are
//! megabytes, so there is one sync for thousands of rows. A large chunk is written as a table at once. A small one goes
//! through fjall's journal and its sorted table in memory, which turns many small flushes of many shards into few large
//! tables.
//!
//! A failed write (disk full, I/O error) poisons a fjall database: it refuses all writes until it is opened again,
//! while reads go on. The next write here opens it again first. Its journal brings back what fjall had accepted before.

use std::error::Error as StdError;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use fjall::compaction::Leveled;
use fjall::config::PartitioningPolicy;
use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode};
use millrace_base::{Lsn, ShardId};

use crate::checkpoint::is_range;
use crate::checkpoint_files;
use crate::snapshot::{ImportState, ImportStep};
use crate::{Checkpoint, FlushChunk, RowVisitor, StoreError};

/// Bytes of rows that are gathered in memory before they become a table. Two kinds of full ones count beside it: those
/// that wait for the background worker, and those that fjall frees only when the next one is full.
const MEMTABLE_BYTES: u64 = 8 << 20;

/// The same for the shards' LSNs. fjall keeps each LSN ever written until they become a table.
const LSN_MEMTABLE_BYTES: u64 = 64 << 10;

/// A write waits for the background worker if more full ones than this wait. At four fjall itself would wait, and never
/// check whether the worker is still alive.
const FULL_MEMTABLES: usize = 1;

/// Chunks of at least this size become a table of their own at once. That costs some six syncs. It avoids writing
/// everything twice, sorting it again, and reading it back at a restart.
const TABLE_BYTES: usize = 2 << 20;

/// The most tables that are not yet merged with older ones. Above this, a write waits for the background worker,
/// because a scan has to look at every such table.
const NEW_TABLES: usize = 16;

/// Bytes of a table, as compressed, after which a merge begins the next one. The memory of a merge grows with it: see
/// [`row_options`]. fjall does one merge for each table that is added. So each added table has to be a quarter of this
/// at most, or merges fall behind for good.
const TABLE_TARGET_BYTES: u64 = 4 * MEMTABLE_BYTES;

/// How often a waiting write checks again.
const WAIT: Duration = Duration::from_millis(1);

/// Bytes of journals. Above this, fjall writes out everything that still needs the oldest one.
const JOURNAL_BYTES: u64 = 128 << 20;

/// One background thread. With two or more, fjall 3.1 keeps one from compacting. That one passes compactions on in a
/// busy loop for as long as another runs.
const WORKERS: usize = 1;

/// Open table files.
const OPEN_FILES: usize = 256;

/// The key of a row that every batch of rows also writes and nothing deletes. It sorts before all others, and belongs
/// to no shard.
///
/// At a restart fjall takes what its journal holds for written if a table has a newer row. Tables that are written at
/// once are not in the journal: were all their rows deleted and merged away, older batches of the journal would come
/// back, and nothing would delete them again. With this row some table has one as new as any batch that became a table.
///
/// Its value is the checkpoint's mark, which counts chunks.
const NEWEST: &[u8] = &[0];

/// The same count among the shards' LSNs, written after the rows of its chunk. If the rows show a lower count, a file of
/// the rows was lost or put back. A replay from these LSNs would miss what the file held.
const MARK: &[u8] = b"mark";

/// Which version of the rows' tables there was at the last chunk, among the shards' LSNs. The library numbers versions and
/// opens the one that a file names. An older one would lack tables that the journal does not hold any more.
const TABLES: &[u8] = b"tables";

/// Whose checkpoint it is, among the shards' LSNs.
const IDENTITY: &[u8] = b"identity";

/// With a shard's number behind it: an import into the shard has begun and not ended.
const RESETTING: &[u8] = b"resetting";

/// With a shard's number behind it: the note of the last import that ended.
const SNAPSHOT: &[u8] = b"snapshot";

const ROWS: &str = "rows";
const SHARDS: &str = "shards";

/// Rows of all shards of a node in one fjall database.
pub struct FjallCheckpoint {
    path: PathBuf,
    cache_bytes: usize,
    /// `None` after a failed attempt to open it again; the next use tries anew.
    open: RwLock<Option<Open>>,
    /// One write at a time: the check before a write must hold during it.
    writing: Mutex<()>,
}

/// Fields are dropped in order. The database comes last, because it waits for its threads.
struct Open {
    rows: Keyspace,
    shards: Keyspace,
    database: Database,
}

impl FjallCheckpoint {
    /// Opens the database in the folder `path`, creating it if there is none. `cache_bytes` bounds the cache of table
    /// blocks. The rows on their way to disk take up to 48 MiB beside it.
    ///
    /// # Errors
    /// [`StoreError`] if the folder cannot be written, is in use, or holds damaged files.
    pub fn open(path: &Path, cache_bytes: usize) -> Result<Self, StoreError> {
        checkpoint_files::check(path)?;
        let open = Open::new(path, cache_bytes).map_err(|error| refused(path, error))?;
        let (found, known) = (open.rows.tree.current_version().id(), mark_of(&open.shards, TABLES).map_err(translate)?);
        if found < known {
            let what = format!(
                "the rows of the checkpoint are of version {found}, and its positions know version {known}: a file in \
                 checkpoint/ is older than the rest; restore the whole data directory from a backup"
            );
            return Err(StoreError::Corrupt(what));
        }
        Ok(Self { path: path.to_owned(), cache_bytes, open: RwLock::new(Some(open)), writing: Mutex::new(()) })
    }

    /// Says whose checkpoint this is, from now on; false if it is another's already.
    ///
    /// # Errors
    /// [`StoreError`] when the checkpoint cannot be read or written.
    pub fn belongs_to(&self, identity: [u8; 16]) -> Result<bool, StoreError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.with(|open| match open.shards.get(IDENTITY)? {
            Some(known) => Ok(*known == identity),
            None => {
                let mut batch = open.batch(1);
                batch.insert(&open.shards, IDENTITY, identity);
                batch.commit()?;
                Ok(true)
            }
        })
    }

    /// Runs `operation` on the open database, opening it if an earlier attempt failed.
    fn with<T>(&self, operation: impl Fn(&Open) -> fjall::Result<T>) -> Result<T, StoreError> {
        loop {
            if let Some(open) = self.open.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
                return operation(open).map_err(translate);
            }
            self.reopen(false)?;
        }
    }

    /// Changes the database, one caller at a time. Opens it again first if an earlier write failed.
    fn change(&self, operation: impl Fn(&Open) -> fjall::Result<()>) -> Result<(), StoreError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let poisoned = self.with(|open| match open.database.persist(PersistMode::Buffer) {
            Err(fjall::Error::Poisoned) => Ok(true),
            other => other.map(|()| false),
        })?;
        if poisoned {
            tracing::warn!(path = %self.path.display(), "opening the checkpoint again after a failed write");
            self.reopen(true)?;
        }
        self.with(operation)
    }

    /// Opens the database again: always if `anyway`, else only if it is closed.
    fn reopen(&self, anyway: bool) -> Result<(), StoreError> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if open.is_none() || anyway {
            // The old one must release the folder's lock before the new one takes it.
            *open = None;
            *open = Some(Open::new(&self.path, self.cache_bytes).map_err(translate)?);
        }
        Ok(())
    }
}

impl Open {
    fn new(path: &Path, cache_bytes: usize) -> fjall::Result<Self> {
        let database = Database::builder(path)
            .cache_size(cache_bytes as u64)
            .worker_threads(WORKERS)
            .max_cached_files(Some(OPEN_FILES))
            .max_journaling_size(JOURNAL_BYTES)
            .manual_journal_persist(true)
            .open()?;
        let rows = database.keyspace(ROWS, row_options)?;
        let shards = database.keyspace(SHARDS, KeyspaceCreateOptions::default)?;
        Ok(Self { rows, shards, database })
    }

    fn write(&self, shard: ShardId, chunk: &FlushChunk) -> fjall::Result<()> {
        self.wait_for_room()?;
        let mark = mark_of(&self.rows, NEWEST)? + 1;
        if chunk.size_bytes() >= TABLE_BYTES {
            return self.write_table(shard, chunk, mark);
        }
        let mut batch = self.batch(chunk.row_count() + 3);
        batch.insert(&self.rows, NEWEST, mark.to_le_bytes());
        for (row, value) in chunk.rows() {
            match value {
                Some(value) => batch.insert(&self.rows, row, value),
                None => batch.remove(&self.rows, row),
            }
        }
        self.commit(batch, shard, chunk, mark)
    }

    /// Writes the rows as a table, for which they have to be in order.
    fn write_table(&self, shard: ShardId, chunk: &FlushChunk, mark: u64) -> fjall::Result<()> {
        let mut table = self.rows.start_ingestion()?;
        table.write(NEWEST, mark.to_le_bytes())?;
        for (row, value) in chunk.ordered_rows() {
            match value {
                Some(value) => table.write(row, value)?,
                None => table.write_tombstone(row)?,
            }
        }
        // Synced when this returns, so the LSN never comes before the rows.
        table.finish()?;
        self.commit(self.batch(2), shard, chunk, mark)
    }

    fn batch(&self, capacity: usize) -> OwnedWriteBatch {
        OwnedWriteBatch::with_capacity(self.database.clone(), capacity).durability(Some(PersistMode::SyncData))
    }

    fn commit(&self, mut batch: OwnedWriteBatch, shard: ShardId, chunk: &FlushChunk, mark: u64) -> fjall::Result<()> {
        batch.insert(&self.shards, MARK, mark.to_le_bytes());
        batch.insert(&self.shards, TABLES, self.rows.tree.current_version().id().to_le_bytes());
        if let Some(lsn) = chunk.advances_to() {
            batch.insert(&self.shards, shard.0.to_be_bytes(), lsn.0.to_le_bytes());
        }
        batch.commit()?;
        // fjall would leave this to its worker, which may be in a merge for seconds.
        for (keyspace, full_bytes) in [(&self.rows, MEMTABLE_BYTES), (&self.shards, LSN_MEMTABLE_BYTES)] {
            if keyspace.tree.active_memtable().size() >= full_bytes {
                keyspace.rotate_memtable()?;
            }
        }
        Ok(())
    }

    /// Waits until the background worker has caught up, or fails if it has died. It does not use fjall's own count of
    /// the bytes in memory. That count never learns of rows that went along with the writing of a table.
    #[expect(clippy::disallowed_methods, reason = "a checkpoint is written on a thread of its own, never a shard's")]
    fn wait_for_room(&self) -> fjall::Result<()> {
        let is_behind = |keyspace: &Keyspace| keyspace.sealed_memtable_count() > FULL_MEMTABLES;
        while is_behind(&self.rows) || is_behind(&self.shards) || self.rows.l0_table_count() > NEW_TABLES {
            // Cheap, and refused once the database is poisoned.
            self.database.persist(PersistMode::Buffer)?;
            std::thread::sleep(WAIT);
        }
        Ok(())
    }
}

/// How tables of rows are made. fjall keeps this with the database: an older database stays as it was made.
///
/// While a table is being written, fjall remembers the last key of each of its blocks for the index. In a merge such a
/// key may hold on to the block it was read from, uncompressed. With rows of a block's size, and if the whole state
/// fits one table once compressed, that is the whole state. An index in parts of 4 KiB keeps only one key of each part.
/// A lookup also reads and caches less. The same goes for the filters.
fn row_options() -> KeyspaceCreateOptions {
    // From level 1 on: those of level 0 are small and stay in memory.
    let in_parts = PartitioningPolicy::new([false, true]);
    KeyspaceCreateOptions::default()
        .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(TABLE_TARGET_BYTES)))
        .index_block_partitioning_policy(in_parts.clone())
        .filter_block_partitioning_policy(in_parts)
}

impl Checkpoint for FjallCheckpoint {
    fn lsn(&self, shard: ShardId) -> Result<Lsn, StoreError> {
        let Some(bytes) = self.with(|open| open.shards.get(shard.0.to_be_bytes()))? else {
            return Ok(Lsn::ZERO);
        };
        match <[u8; 8]>::try_from(&*bytes) {
            Ok(bytes) => Ok(Lsn(u64::from_le_bytes(bytes))),
            Err(_) => Err(StoreError::Corrupt(format!("the checkpoint's LSN of shard {shard} is not 8 bytes"))),
        }
    }

    fn get(&self, row: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.with(|open| open.rows.get(row))?.map(|value| value.to_vec()))
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, visit: &mut RowVisitor<'_>) -> Result<(), StoreError> {
        if !is_range(from, to) {
            return Ok(());
        }
        let visit = std::cell::RefCell::new(visit);
        self.with(|open| {
            for row in open.rows.range::<&[u8], _>((from, to)) {
                let (row, value) = row.into_inner()?;
                if (visit.borrow_mut())(&row, &value).is_break() {
                    break;
                }
            }
            Ok(())
        })
    }

    fn write(&self, shard: ShardId, chunk: &FlushChunk) -> Result<(), StoreError> {
        self.change(|open| open.write(shard, chunk))
    }

    fn mark(&self) -> Result<u64, StoreError> {
        let (rows, lsns) = self.with(|open| Ok((mark_of(&open.rows, NEWEST)?, mark_of(&open.shards, MARK)?)))?;
        if rows < lsns {
            let what = format!(
                "the checkpoint's rows hold {rows} flushes and its positions {lsns}: a file in checkpoint/ is missing \
                 or older than the rest; restore the whole data directory from a backup"
            );
            return Err(StoreError::Corrupt(what));
        }
        Ok(lsns)
    }

    fn import_state(&self, shard: ShardId) -> Result<ImportState, StoreError> {
        self.with(|open| {
            let is_resetting = open.shards.contains_key(of_shard(RESETTING, shard))?;
            let snapshot = open.shards.get(of_shard(SNAPSHOT, shard))?.map(|note| note.to_vec());
            Ok(ImportState { is_resetting, snapshot })
        })
    }

    fn record_import(&self, shard: ShardId, step: ImportStep<'_>) -> Result<(), StoreError> {
        self.change(|open| {
            let mut batch = open.batch(3);
            match step {
                ImportStep::Begun => batch.insert(&open.shards, of_shard(RESETTING, shard), b"1"),
                ImportStep::Ended { lsn, note } => {
                    batch.remove(&open.shards, of_shard(RESETTING, shard));
                    batch.insert(&open.shards, of_shard(SNAPSHOT, shard), note);
                    batch.insert(&open.shards, shard.0.to_be_bytes(), lsn.0.to_le_bytes());
                }
            }
            batch.commit()
        })
    }
}

/// The key of what is known of one shard.
fn of_shard(name: &[u8], shard: ShardId) -> Vec<u8> {
    [name, &shard.0.to_be_bytes()].concat()
}

/// A checkpoint of an earlier version has no count yet: 0.
fn mark_of(keyspace: &Keyspace, key: &[u8]) -> fjall::Result<u64> {
    let value = keyspace.get(key)?;
    Ok(value.and_then(|value| <[u8; 8]>::try_from(&*value).ok()).map_or(0, u64::from_le_bytes))
}

/// Why the database does not open, with the file where the library means one.
fn refused(path: &Path, error: fjall::Error) -> StoreError {
    let file = |name: &str| path.join(name).display().to_string();
    match error {
        fjall::Error::InvalidVersion(_) => StoreError::Corrupt(format!(
            "{}: the file is damaged, or of another version of the database; restore the data directory from a backup",
            file("version")
        )),
        fjall::Error::Locked => {
            StoreError::Checkpoint(format!("{}: another process has the checkpoint open", file("lock")))
        }
        error => match translate(error) {
            StoreError::Checkpoint(what) => StoreError::Checkpoint(format!("{}: {what}", path.display())),
            other => other,
        },
    }
}

fn translate(error: fjall::Error) -> StoreError {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
    while let Some(current) = cause {
        if let Some(io_error) = current.downcast_ref::<io::Error>()
            && matches!(
                io_error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
            )
        {
            return StoreError::DiskFull(io_error.to_string());
        }
        cause = current.source();
    }
    StoreError::Checkpoint(error.to_string())
}

#[cfg(test)]
#[path = "fjall_checkpoint_tests.rs"]
mod tests;
