//! Bytes on disk and wire: what a log entry and a batch of them look like, with versions and golden vectors.
//! `docs/internals/format.md` has the byte tables.
//!
//! Promises: decoding any bytes returns a value or an error, never panics, and never allocates more than the input
//! justifies. Must not hold policy: when to write, sync, keep or delete.

mod checksum;
mod dead_letter;
mod decision;
mod entry;
mod failure;
mod fields;
mod frame;
mod invocation_result;
mod journal;
mod message;
mod prepared;
mod replica_record;
mod schedule;
mod segment;
mod signal;
pub mod worker;
mod workflow;

pub use checksum::crc32c;
pub use dead_letter::DeadLetterRecord;
pub use decision::Decision;
pub use entry::{DecodeError, Entry, EntryRef, Write, WriteRef};
pub use failure::FailureRecord;
pub use frame::{FRAME_HEADER_BYTES, bind_frames, encode_body_frame, encode_frame, encode_record_frame, read_frame};
pub use invocation_result::{InvocationResult, ResultState};
pub use journal::{JournalRow, StepKind};
pub use message::{MessageRecord, Position};
pub use prepared::Prepared;
pub use replica_record::{BodyHead, BodyKind, ReplicaEntryKind, ReplicaRecord, body_head};
pub use schedule::ScheduleRecord;
pub use segment::{
    BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentHeaderError,
};
pub use signal::SignalRecord;
pub use workflow::{WorkflowRecord, WorkflowRun};
