//! A body on its way in: hashed and written by the pool, piece by piece, while the next piece comes.
//!
//! At most two pieces of a body are in memory: the one that is being written and the one that comes. Whoever writes
//! faster than the disk takes waits.

use bytes::Bytes;
use millrace_api::objects::{BodyDigests, BodyWrite, BodyWritten, WrittenBody};
use millrace_base::{Error, limits};
use millrace_blobs::{BodyWriter, Unsettled, Written};
use millrace_checksum::Hasher;

use super::errors::body_failed;
use super::store::Store;

/// Bytes that are hashed and written at a time. Enough that handing them over costs little beside; few enough that a
/// thousand bodies at once fit in memory.
const PIECE_BYTES: usize = 256 << 10;

/// What a job of the pool takes along and brings back.
struct Work {
    writer: BodyWriter,
    hasher: Hasher,
}

/// See the module's documentation.
pub struct BodyIn {
    store: Store,
    /// `None` while a job has it, and at the end.
    work: Option<Work>,
    hasher: Option<Hasher>,
}
