//! The log makes entries durable and brings them back.
//!
//! Each core has one *stream* per start of the node. A stream interleaves the entries of that core's shards, so one
//! fsync serves them all. A stream is a row of *segment* files. A segment is a row of *batches*, each one write and one
//! fsync. `docs/internals/format.md` describes the bytes, `docs/internals/recovery.md` the decisions of recovery.
//!
//! ```text
//! core: Batch::push ──submit──▶ Committer (thread) ──▶ Writer ──▶ Disk
//! start: recover ──entries above each shard's checkpoint──▶ store
//! store: checkpoint done ──▶ Segments::delete_covered
//! ```
//!
//! Promises: if [`Writer::append`] returned for an entry, [`recover`] delivers it after any crash, in order and once,
//! unless a checkpoint covers it. If it cannot deliver it, it returns an error and never leaves a gap. It delivers
//! nothing that was not pushed. Must not know functions, replies or replication. Outside [`Committer`] it starts no
//! thread and waits for no clock.

mod batch;
mod committer;
mod decision;
mod error;
mod hold;
mod inspect;
mod layout;
mod listed;
mod positions;
mod reader;
mod recover;
mod repair;
mod replica_chain;
mod replicas;
mod retention;
mod scan;
mod segment_reader;
mod segments;
mod spare;
mod torn;
mod writer;

pub use batch::Batch;
pub use committer::{Committed, Committer};
pub use error::{Damage, DamageKind, LogError, RecoverError};
pub use hold::{LogHold, OpenSegment, SegmentCopy, copy_at};
pub use inspect::{LogReport, SegmentReport, StreamReport, inspect};
pub use positions::ShardRange;
pub use reader::LogReader;
pub use recover::{Recovered, Tail, recover};
pub use repair::{RepairError, RepairReport, repair};
pub use replicas::{
    RecoveredReplica, RecoveredReplicas, ReplicaEntry, ReplicaEntryRef, ShardCheckpoint, recover_replicas,
};
pub use scan::EntryPlace;
pub use segments::{Deleted, Segments};
pub use spare::Job;
pub use writer::{AppendReport, Durability, Environment, Space, Writer, WriterOptions};
