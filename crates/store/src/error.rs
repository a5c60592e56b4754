//! What can go wrong below the shard.

use std::fmt;

use millrace_base::{Lsn, ShardId};

/// Why the store could not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The checkpoint's disk is full. Nothing was lost; the same write may succeed later.
    DiskFull(String),
    /// The checkpoint could not be read or written.
    Checkpoint(String),
    /// Bytes in the checkpoint or in a log entry are not what this version writes.
    Corrupt(String),
    /// A log entry is not the next one.
    OutOfOrder {
        /// The LSN that should come next.
        expected: Lsn,
        /// The entry's LSN.
        found: Lsn,
    },
    /// A log entry belongs to another shard.
    WrongShard {
        /// This store's shard.
        expected: ShardId,
        /// The entry's shard.
        found: ShardId,
    },
}

impl fmt::Display for StoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::DiskFull(what) => write!(formatter, "the checkpoint's disk is full: {what}"),
            StoreError::Checkpoint(what) => write!(formatter, "the checkpoint failed: {what}"),
            StoreError::Corrupt(what) => write!(formatter, "the state on disk is damaged: {what}"),
            StoreError::OutOfOrder { expected, found } => {
                write!(formatter, "log entry {found} came where {expected} was due")
            }
            StoreError::WrongShard { expected, found } => {
                write!(formatter, "a log entry of shard {found} came to shard {expected}")
            }
        }
    }
}

impl std::error::Error for StoreError {}
