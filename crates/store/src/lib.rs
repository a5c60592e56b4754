//! The state of one shard: entities' fields in memory over a checkpoint on disk.
//!
//! Memory holds every write that the checkpoint does not hold yet (the *overlay*: dirty fields, with deletions as
//! tombstones) and a cache of clean fields. The log is the truth. A [`Store`] that is lost can be restored from its
//! checkpoint and the log's entries after [`Store::checkpoint_lsn`].
//!
//! Promises: reads see every applied write, whether it is flushed, in flight or evicted. Nothing depends on hash order.
//! The work of one operation does not grow with the number of fields of an entity. The checkpoint never holds a write
//! that the log could lose, if the driver obeys [`FlushChunk::needs_durable`]. Must not know the network, the log's
//! files, or time.
//!
//! Reading order: `checkpoint` (the layer below), `fields` (one entity; `many`, `append_only_map`), `store` (reads and writes),
//! `cold_read`, `scan`, `entity_rows`, `flush`, `evict`. `docs/internals/store.md` argues why recovery is right.

mod append_only_map;
mod arena;
mod checkpoint;
mod checkpoint_files;
mod cold_read;
mod dirty;
mod entity_rows;
mod error;
mod evict;
mod fields;
mod fjall_checkpoint;
mod flush;
mod many;
mod row;
mod scan;
mod snapshot;
mod store;

pub use checkpoint::{Checkpoint, FlushChunk, MemoryCheckpoint, RowVisitor};
pub use cold_read::{ColdRead, ColdRows};
pub use entity_rows::{EntityRange, EntityVisitor, Visit};
pub use error::StoreError;
pub use fjall_checkpoint::FjallCheckpoint;
pub use row::prefix_end;
pub use scan::{FieldRow, RowPage};
pub use snapshot::{Export, Import, ImportState, ImportStep};
pub use store::Store;
