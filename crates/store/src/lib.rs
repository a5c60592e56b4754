//! The state of one shard: entities' fields in memory over a checkpoint on disk.
//!
//! Memory holds every write the checkpoint does not hold yet (the *overlay*: dirty fields, with
//! deletions as tombstones) and a cache of clean fields. The log is the truth: a [`Store`] that is
//! lost is its checkpoint plus the log's entries after [`Store::checkpoint_lsn`].
//!
//! Promises: reads see every applied write, whatever is flushed, in flight or evicted; nothing
//! depends on hash order; the work of one operation does not grow with the number of fields of an
//! entity; the checkpoint never holds a write that the log could lose, as long as the driver obeys
//! [`FlushChunk::needs_durable`]. Must not know the network, the log's files, or time.
//!
//! Reading order: `checkpoint` (what is below), `fields` (one entity; `many`, `ledger`), `store` (reads
//! and writes), `scan`, `flush`, `evict`. The argument why recovery is right is in `docs/internals/store.md`.

mod arena;
mod checkpoint;
mod dirty;
mod error;
mod evict;
mod fields;
mod fjall_checkpoint;
mod flush;
mod ledger;
mod many;
mod row;
mod scan;
mod store;

pub use checkpoint::{Checkpoint, FlushChunk, MemoryCheckpoint, RowVisitor};
pub use error::StoreError;
pub use fjall_checkpoint::FjallCheckpoint;
pub use scan::{FieldRow, RowPage};
pub use store::Store;
