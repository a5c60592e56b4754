//! What a log holds of a replicated shard: entries with their epochs, and what the replica has promised and learned.
//!
//! Such a record is the body of an entry frame, as a write set is in the log of a single node. A log holds bodies of one
//! of the two versions only.
//!
//! ```text
//! record (version 2)
//! offset  bytes  meaning
//!  0      1      version = 2
//!  1      1      kind
//!  2      2      shard
//!  4      …      by kind:
//!                1 entry        LSN 8, epoch 8, kind of entry 1, its bytes
//!                2 promise      epoch 8, node 2
//!                3 commit note  LSN 8
//!                4 cut          LSN 8 of the last entry that stays
//!                5 reset        LSN 8, epoch 8, LSN of the set 8, the set
//!                6 base         LSN 8, epoch 8, promised epoch 8, promised node 2, committed 8, flags 1,
//!                               LSN of the set 8, the set
//! ```
//!
//! All numbers are little-endian. What a set of replicas looks like is the concern of `replica`.

use millrace_base::{Lsn, ShardId};

use crate::DecodeError;
use crate::entry::VERSION as WRITE_SET_VERSION;
use crate::fields::FieldReader;

const VERSION: u8 = 2;
const KIND_ENTRY: u8 = 1;
const KIND_PROMISE: u8 = 2;
const KIND_COMMIT_NOTE: u8 = 3;
const KIND_CUT: u8 = 4;
const KIND_RESET: u8 = 5;
const KIND_BASE: u8 = 6;
const FLAG_INCOMPLETE: u8 = 1;

/// What the bytes of a replicated entry are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplicaEntryKind {
    /// A write set: see [`crate::Entry`].
    Data,
    /// The first entry of an epoch. It has no bytes.
    EpochStart,
    /// The replica set from here on.
    ReplicaSet,
}

impl ReplicaEntryKind {
    fn code(self) -> u8 {
        match self {
            ReplicaEntryKind::Data => 0,
            ReplicaEntryKind::EpochStart => 1,
            ReplicaEntryKind::ReplicaSet => 2,
        }
    }

    fn of(code: u8) -> Result<Self, DecodeError> {
        match code {
            0 => Ok(ReplicaEntryKind::Data),
            1 => Ok(ReplicaEntryKind::EpochStart),
            2 => Ok(ReplicaEntryKind::ReplicaSet),
            other => Err(DecodeError::Kind(other)),
        }
    }
}

/// One record of a replicated shard. Recovery reads a shard's records in order; each one changes what it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaRecord<'a> {
    /// An entry, one after the last.
    Entry {
        /// The epoch whose owner made it.
        epoch: u64,
        /// Its position.
        lsn: Lsn,
        /// What its bytes are.
        kind: ReplicaEntryKind,
        /// Its payload.
        bytes: &'a [u8],
    },
    /// From now on the replica refuses everything of lower epochs.
    Promise {
        /// The epoch.
        epoch: u64,
        /// Its only owner.
        node: u16,
    },
    /// All entries up to here are committed.
    CommitNote {
        /// The position.
        lsn: Lsn,
    },
    /// Entries after this position do not count any more.
    Cut {
        /// The last one that stays.
        after: Lsn,
    },
    /// The log begins anew behind a snapshot. Nothing before it counts any more, except the promise.
    Reset {
        /// The epoch of the last entry in the snapshot.
        at_epoch: u64,
        /// Its position.
        at_lsn: Lsn,
        /// Where the replica set in force there stands.
        set_lsn: Lsn,
        /// The replica set in force there.
        set: &'a [u8],
    },
    /// Everything that earlier records said, and where the entries begin that can still be read.
    Base {
        /// The promised epoch.
        promised_epoch: u64,
        /// Its owner.
        promised_node: u16,
        /// The epoch of the entry before the first that can be read.
        base_epoch: u64,
        /// Its position.
        base_lsn: Lsn,
        /// Where the newest committed replica set stands.
        set_lsn: Lsn,
        /// The newest committed replica set.
        set: &'a [u8],
        /// All entries up to here are committed.
        committed: Lsn,
        /// `false` while the log may lack an entry that it has acknowledged.
        is_whole: bool,
    },
}

impl<'a> ReplicaRecord<'a> {
    /// Appends the record of `shard` to `out`.
    pub fn encode(&self, shard: ShardId, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, self.code()]);
        out.extend_from_slice(&shard.0.to_le_bytes());
        let mut put = |number: u64| out.extend_from_slice(&number.to_le_bytes());
        match *self {
            ReplicaRecord::Entry { epoch, lsn, kind, bytes } => {
                put(lsn.0);
                put(epoch);
                out.push(kind.code());
                out.extend_from_slice(bytes);
            }
            ReplicaRecord::Promise { epoch, node } => {
                put(epoch);
                out.extend_from_slice(&node.to_le_bytes());
            }
            ReplicaRecord::CommitNote { lsn } => put(lsn.0),
            ReplicaRecord::Cut { after } => put(after.0),
            ReplicaRecord::Reset { at_epoch, at_lsn, set_lsn, set } => {
                put(at_lsn.0);
                put(at_epoch);
                put(set_lsn.0);
                out.extend_from_slice(set);
            }
            ReplicaRecord::Base {
                promised_epoch,
                promised_node,
                base_epoch,
                base_lsn,
                set_lsn,
                set,
                committed,
                is_whole,
            } => {
                put(base_lsn.0);
                put(base_epoch);
                put(promised_epoch);
                out.extend_from_slice(&promised_node.to_le_bytes());
                out.extend_from_slice(&committed.0.to_le_bytes());
                out.push(if is_whole { 0 } else { FLAG_INCOMPLETE });
                out.extend_from_slice(&set_lsn.0.to_le_bytes());
                out.extend_from_slice(set);
            }
        }
    }

    fn code(&self) -> u8 {
        match self {
            ReplicaRecord::Entry { .. } => KIND_ENTRY,
            ReplicaRecord::Promise { .. } => KIND_PROMISE,
            ReplicaRecord::CommitNote { .. } => KIND_COMMIT_NOTE,
            ReplicaRecord::Cut { .. } => KIND_CUT,
            ReplicaRecord::Reset { .. } => KIND_RESET,
            ReplicaRecord::Base { .. } => KIND_BASE,
        }
    }

    /// Reads an encoded record.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not exactly one record of a known version and kind.
    pub fn decode(bytes: &'a [u8]) -> Result<(ShardId, Self), DecodeError> {
        let mut reader = FieldReader::new(bytes);
        reader.version(VERSION)?;
        let [code] = reader.array()?;
        let shard = ShardId(reader.u16()?);
        let record = match code {
            KIND_ENTRY => {
                let (lsn, epoch) = (Lsn(reader.u64()?), reader.u64()?);
                let [kind] = reader.array()?;
                ReplicaRecord::Entry { epoch, lsn, kind: ReplicaEntryKind::of(kind)?, bytes: reader.rest() }
            }
            KIND_PROMISE => ReplicaRecord::Promise { epoch: reader.u64()?, node: reader.u16()? },
            KIND_COMMIT_NOTE => ReplicaRecord::CommitNote { lsn: Lsn(reader.u64()?) },
            KIND_CUT => ReplicaRecord::Cut { after: Lsn(reader.u64()?) },
            KIND_RESET => {
                let (at_lsn, at_epoch, set_lsn) = (Lsn(reader.u64()?), reader.u64()?, Lsn(reader.u64()?));
                ReplicaRecord::Reset { at_epoch, at_lsn, set_lsn, set: reader.rest() }
            }
            KIND_BASE => read_base(&mut reader)?,
            other => return Err(DecodeError::Kind(other)),
        };
        reader.end()?;
        Ok((shard, record))
    }
}

fn read_base<'a>(reader: &mut FieldReader<'a>) -> Result<ReplicaRecord<'a>, DecodeError> {
    let (base_lsn, base_epoch) = (Lsn(reader.u64()?), reader.u64()?);
    let (promised_epoch, promised_node) = (reader.u64()?, reader.u16()?);
    let committed = Lsn(reader.u64()?);
    let [flags] = reader.array()?;
    if flags & !FLAG_INCOMPLETE != 0 {
        return Err(DecodeError::Kind(flags));
    }
    let set_lsn = Lsn(reader.u64()?);
    let (is_whole, set) = (flags == 0, reader.rest());
    Ok(ReplicaRecord::Base { promised_epoch, promised_node, base_epoch, base_lsn, set_lsn, set, committed, is_whole })
}

/// What a body is, as far as its first bytes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// An entry of a single node: see [`crate::EntryRef`].
    WriteSet,
    /// [`ReplicaRecord::Entry`].
    ReplicaEntry,
    /// [`ReplicaRecord::Base`].
    ReplicaBase,
    /// Another [`ReplicaRecord`].
    ReplicaState,
}

/// The beginning of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyHead {
    /// The shard in whose log it is.
    pub shard: ShardId,
    /// What it is.
    pub kind: BodyKind,
    /// The position of an entry, or the base's position. Zero for what has none.
    pub lsn: Lsn,
}

/// Reads the beginning of a body of either version, without decoding the rest.
///
/// # Errors
/// As [`crate::EntryRef::decode`] and [`ReplicaRecord::decode`], for this part.
pub fn body_head(body: &[u8]) -> Result<BodyHead, DecodeError> {
    let head: &[u8; 12] = body.first_chunk().ok_or(DecodeError::Length)?;
    let [version, code, shard_low, shard_high, lsn @ ..] = *head;
    let (shard, lsn) = (ShardId(u16::from_le_bytes([shard_low, shard_high])), Lsn(u64::from_le_bytes(lsn)));
    if version == WRITE_SET_VERSION {
        crate::entry::check_version(version, code)?;
        return Ok(BodyHead { shard, kind: BodyKind::WriteSet, lsn });
    }
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let (kind, lsn) = match code {
        KIND_ENTRY => (BodyKind::ReplicaEntry, lsn),
        KIND_BASE => (BodyKind::ReplicaBase, lsn),
        KIND_PROMISE..=KIND_RESET => (BodyKind::ReplicaState, Lsn::ZERO),
        other => return Err(DecodeError::Kind(other)),
    };
    Ok(BodyHead { shard, kind, lsn })
}

#[cfg(test)]
#[path = "replica_record_tests.rs"]
mod tests;
