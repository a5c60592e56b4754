//! Bytes on disk and wire: what a log entry and a batch of them look like, with versions and
//! golden vectors. The byte tables are in `docs/internals/format.md`.
//!
//! Promises: decoding any bytes returns a value or an error, never panics, and never allocates
//! more than the input justifies. Must not hold policy: when to write, sync, keep or delete.

mod entry;
mod fields;
mod message;
mod outcome;

pub use entry::{DecodeError, Entry, EntryRef, Write, WriteRef};
pub use message::MessageRecord;
pub use outcome::{Outcome, OutcomeResult};
