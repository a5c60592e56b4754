//! The log: what makes an entry durable, and what brings it back.
//!
//! One *stream* per core and start of the node interleaves the entries of that core's shards, so
//! one fsync serves them all. A stream is a row of *segment* files; a segment is a row of
//! *batches*, each one write and one fsync. The bytes are in `docs/internals/format.md`, the
//! decisions of recovery in `docs/internals/recovery.md`.
//!
//! ```text
//! core: Batch::push ──submit──▶ Committer (thread) ──▶ Writer ──▶ Disk
//! start: recover ──entries above each shard's checkpoint──▶ store
//! store: checkpoint done ──▶ Segments::delete_covered
//! ```
//!
//! Promises: what [`Writer::append`] returned for is delivered by [`recover`] after any crash, in
//! order, once, unless a checkpoint covers it; what cannot be delivered is an error, never a gap;
//! nothing is delivered that was not pushed. Must not know functions, replies or replication, and
//! outside [`Committer`] starts no thread and waits for no clock.

mod batch;
mod committer;
mod decision;
mod error;
mod inspect;
mod layout;
mod listed;
mod positions;
mod recover;
mod repair;
mod scan;
mod segment_reader;
mod segments;
mod spare;
mod writer;

pub use batch::Batch;
pub use committer::{Committed, Committer};
pub use error::{Damage, DamageKind, LogError, RecoverError};
pub use inspect::{LogReport, SegmentReport, StreamReport, inspect};
pub use positions::ShardRange;
pub use recover::{Recovered, Tail, recover};
pub use repair::{RepairError, RepairReport, repair};
pub use scan::EntryPlace;
pub use segments::{Deleted, Segments};
pub use spare::Job;
pub use writer::{AppendReport, Durability, Environment, Space, Writer, WriterOptions};
