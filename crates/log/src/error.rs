//! What can go wrong with a log.

use std::fmt;
use std::io;

use millrace_base::{Lsn, ShardId};
use millrace_format::DecodeError;

/// Why an append did not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogError {
    /// The disk is full. Nothing of the batch is acknowledged or lost. The same batch may be appended again later.
    OutOfSpace,
    /// A write or an fsync failed. Nobody knows what is on disk until a restart reads it back. The stream takes no more
    /// batches.
    Failed(String),
}

impl fmt::Display for LogError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::OutOfSpace => formatter.write_str("the disk is full: the log cannot grow until space returns"),
            LogError::Failed(what) => {
                write!(formatter, "the log stopped after a failed write and needs a restart: {what}")
            }
        }
    }
}

impl std::error::Error for LogError {}

/// Acknowledged bytes that differ from what was written, and their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file, relative to the data directory.
    pub file: String,
    /// The byte offset in it.
    pub offset: u64,
    /// What is wrong there.
    pub kind: DamageKind,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// The segment's header cannot be read.
    SegmentHeader,
    /// The file holds another segment than its name says: files have changed their names.
    OtherSegment {
        /// The stream of the segment that it holds.
        stream: u64,
        /// The number of the segment that it holds.
        number: u64,
    },
    /// The segment before this one is missing.
    MissingSegment(u64),
    /// The manifest lists this file, and it is missing.
    Missing,
    /// This segment holds batches, and the manifest does not list it: the manifest is older than the log.
    NotListed,
    /// The manifest knows that the stream was closed later than where it ends here.
    ClosedLater,
    /// The stream was synced, and the checkpoint holds a later entry of this shard than the stream does.
    TailLost {
        /// The shard.
        shard: ShardId,
        /// The last LSN that is here.
        last: Lsn,
        /// What the checkpoint holds.
        checkpoint: Lsn,
    },
    /// No batch can be read here, though later ones were written after it was durable.
    Batch,
    /// An entry of this batch has a wrong checksum, but later batches were written after it was durable.
    Entry,
    /// The stream ends here without its closing batch, but it had one.
    CutShort,
    /// Entries of a shard are missing.
    Gap {
        /// The shard.
        shard: ShardId,
        /// The LSN that should be here.
        expected: Lsn,
        /// The LSN that is here.
        found: Lsn,
    },
    /// An entry repeats or precedes an earlier one.
    Order {
        /// The shard.
        shard: ShardId,
        /// The highest LSN before.
        after: Lsn,
        /// The LSN that is here.
        found: Lsn,
    },
    /// An entry of a replicated shard is of an epoch that cannot be at its place.
    Epoch {
        /// The shard.
        shard: ShardId,
        /// The entry.
        lsn: Lsn,
        /// The epoch that is known here, or that of the entry before.
        expected: u64,
        /// The epoch that is here.
        found: u64,
    },
    /// Committed entries of a replicated shard are cut off.
    CommittedCut {
        /// The shard.
        shard: ShardId,
        /// Entries up to here are committed.
        committed: Lsn,
        /// Entries after this one are cut off.
        after: Lsn,
    },
    /// The log of a replicated shard begins behind what the checkpoint holds.
    RowsMissing {
        /// The shard.
        shard: ShardId,
        /// The entry before the first in the log.
        base: Lsn,
        /// What the checkpoint holds.
        checkpoint: Lsn,
    },
}

impl fmt::Display for DamageKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DamageKind::SegmentHeader => formatter.write_str("the segment's header cannot be read"),
            DamageKind::OtherSegment { stream, number } => write!(
                formatter,
                "the file holds segment {number} of stream {stream}: give the files of the log their names back"
            ),
            DamageKind::MissingSegment(number) => write!(formatter, "segment {number} of this stream is missing"),
            DamageKind::Missing => formatter.write_str("the file is missing, though the manifest lists it"),
            DamageKind::NotListed => formatter
                .write_str("the segment holds batches, and the manifest does not list it: manifest is an older file"),
            DamageKind::ClosedLater => {
                formatter.write_str("the stream ends here, and the manifest knows that it was closed later")
            }
            DamageKind::TailLost { shard, last, checkpoint } => write!(
                formatter,
                "the stream ends here with LSN {last} of shard {shard}, and the checkpoint holds LSN {checkpoint}, \
                 which was synced to this stream before"
            ),
            DamageKind::Batch => formatter.write_str("a batch is unreadable, and acknowledged batches follow it"),
            DamageKind::Entry => {
                formatter.write_str("an entry has a wrong checksum, and acknowledged batches follow it")
            }
            DamageKind::CutShort => formatter.write_str("the stream ends here without its closing batch"),
            DamageKind::Gap { shard, expected, found } => {
                write!(formatter, "entries of shard {shard} are missing: LSN {expected} expected, {found} found")
            }
            DamageKind::Order { shard, after, found } => {
                write!(formatter, "entries of shard {shard} are out of order: LSN {found} comes after {after}")
            }
            DamageKind::Epoch { shard, lsn, expected, found } => {
                write!(formatter, "LSN {lsn} of shard {shard} is of epoch {found}, and epoch {expected} is known here")
            }
            DamageKind::CommittedCut { shard, committed, after } => write!(
                formatter,
                "entries of shard {shard} after LSN {after} are cut off, and those up to {committed} are committed"
            ),
            DamageKind::RowsMissing { shard, base, checkpoint } => write!(
                formatter,
                "the log of shard {shard} begins after LSN {base}, and the checkpoint holds LSN {checkpoint} only"
            ),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at byte {}: {}", self.file, self.offset, self.kind)
    }
}

/// Why a log was not recovered. Nothing was changed on disk, except after `Io`.
#[derive(Debug)]
pub enum RecoverError {
    /// Acknowledged entries are damaged or missing.
    Damaged(Damage),
    /// Acknowledged entries of replicated shards are damaged or missing, in the middle of the log.
    ReplicasDamaged(Damage),
    /// It is the log of a node of a cluster, or that of a single node, and the start is one of the other kind.
    OtherMode {
        /// The file, relative to the data directory.
        file: String,
        /// The byte offset in it.
        offset: u64,
        /// Whether the log is that of a node of a cluster.
        is_replicated: bool,
    },
    /// Intact bytes of a format that this build does not know.
    Unknown {
        /// The file, relative to the data directory.
        file: String,
        /// The byte offset in it.
        offset: u64,
        /// What is not known.
        what: String,
    },
    /// A repair was interrupted between its two last steps. Running it again finishes it.
    RepairUnfinished {
        /// The directory that should take its place.
        directory: String,
    },
    /// A file could not be read, written or synced.
    Io {
        /// The file or directory, relative to the data directory.
        file: String,
        /// Why.
        error: io::Error,
    },
}

impl RecoverError {
    pub(crate) fn io(file: &str) -> impl FnOnce(io::Error) -> RecoverError + '_ {
        move |error| RecoverError::Io { file: file.to_owned(), error }
    }

    pub(crate) fn undecodable(file: &str, offset: u64, error: &DecodeError) -> RecoverError {
        RecoverError::Unknown { file: file.to_owned(), offset, what: error.to_string() }
    }
}

impl fmt::Display for RecoverError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoverError::Damaged(damage) => write!(
                formatter,
                "the log is damaged: {damage}. Nothing was changed. `millrace inspect` shows what is there; \
                 `millrace repair --accept-loss` keeps what precedes the damage and sets the rest aside"
            ),
            RecoverError::ReplicasDamaged(damage) => write!(
                formatter,
                "the log is damaged: {damage}. Nothing was changed. `millrace inspect` shows what is there. The other \
                 nodes hold what is missing here: take this node out of the cluster, set its data directory aside, and \
                 let it join again with a new one"
            ),
            RecoverError::OtherMode { file, offset, is_replicated: true } => write!(
                formatter,
                "{file} at byte {offset}: this is the log of a node of a cluster; start it with \
                 `millrace serve --cluster-data`"
            ),
            RecoverError::OtherMode { file, offset, is_replicated: false } => write!(
                formatter,
                "{file} at byte {offset}: this is the log of a single node, not of a node of a cluster; start it with \
                 `millrace serve --data`"
            ),
            RecoverError::Unknown { file, offset, what } => {
                write!(formatter, "{file} at byte {offset}: {what}; it was written by a newer version")
            }
            RecoverError::RepairUnfinished { directory } => {
                write!(formatter, "{directory}: a repair was interrupted; `millrace repair --accept-loss` finishes it")
            }
            RecoverError::Io { file, error } => write!(formatter, "{file}: {error}"),
        }
    }
}

impl std::error::Error for RecoverError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RecoverError::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}
