//! Messages as bytes. The byte tables are in `docs/internals/replication.md`.
//!
//! Promises: what is encoded decodes to the same; decoding any bytes gives a message or an error, never panics, and allocates
//! no more than the bytes justify. An entry's bytes are not copied. Each message has one encoding.

use bytes::{Buf, Bytes};
use millrace_base::limits::{APPEND_ENTRIES, ENTRY_BYTES};
use millrace_base::{Lsn, ShardId};
use millrace_format::DecodeError;

use crate::ids::{EntryId, Epoch, NodeId, Promised};
use crate::message::{EntryKind, LogEntry, Message};
use crate::replica_set::ReplicaSet;

const VERSION: u8 = 1;
const ENTRY_HEAD_BYTES: usize = 13;

impl Message {
    /// The number of this kind of message.
    #[must_use]
    pub fn kind(&self) -> u8 {
        match self {
            Message::Append { .. } => 1,
            Message::Ack { .. } => 2,
            Message::Lacks { .. } => 3,
            Message::Refusal { .. } => 4,
            Message::PromiseRequest { .. } => 5,
            Message::Promise { .. } => 6,
            Message::Fetch { .. } => 7,
            Message::Entries { .. } => 8,
            Message::Trimmed { .. } => 9,
            Message::Snapshot { .. } => 10,
            Message::PreVote { .. } => 11,
            Message::PreVoteReply { .. } => 12,
            Message::Resync { .. } => 13,
            Message::ResyncAnswer { .. } => 14,
        }
    }

    /// Appends the message about `shard` to `out`.
    ///
    /// # Panics
    /// If the entries of the message do not follow `prev` without gaps, or an entry is longer than
    /// [`ENTRY_BYTES`]. What replicas make does and is not.
    pub fn encode(&self, shard: ShardId, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, self.kind()]);
        out.extend_from_slice(&shard.0.to_le_bytes());
        match self {
            Message::Append { epoch, round, asks_lease, committed, prev, entries } => {
                put(out, &[epoch.0, *round]);
                out.push(u8::from(*asks_lease));
                put(out, &[committed.0]);
                put_entries(out, *prev, entries);
            }
            Message::Ack { epoch, round, durable } => put(out, &[epoch.0, *round, durable.0]),
            Message::Lacks { epoch, round, have } => put(out, &[epoch.0, *round, have.epoch.0, have.lsn.0]),
            Message::Refusal { promised } => put_promised(out, *promised),
            Message::PromiseRequest { epoch } | Message::Trimmed { epoch } | Message::PreVote { epoch } => {
                put(out, &[epoch.0]);
            }
            Message::Promise { epoch, last, set_lsn, set } => {
                put(out, &[epoch.0, last.epoch.0, last.lsn.0, set_lsn.0]);
                set.put(out);
            }
            Message::Fetch { epoch, after } => put(out, &[epoch.0, after.epoch.0, after.lsn.0]),
            Message::Entries { epoch, prev, entries } => {
                put(out, &[epoch.0]);
                put_entries(out, *prev, entries);
            }
            Message::Snapshot { epoch, round, at, set_lsn, set } => {
                put(out, &[epoch.0, *round, at.epoch.0, at.lsn.0, set_lsn.0]);
                set.put(out);
            }
            Message::PreVoteReply { epoch, is_granted } => {
                put(out, &[epoch.0]);
                out.push(u8::from(*is_granted));
            }
            Message::Resync { nonce } => put(out, &[*nonce]),
            Message::ResyncAnswer { nonce, promised, owner_last, set } => {
                put(out, &[*nonce]);
                put_promised(out, *promised);
                out.push(u8::from(owner_last.is_some()));
                if let Some(last) = owner_last {
                    put(out, &[last.epoch.0, last.lsn.0]);
                }
                set.put(out);
            }
        }
    }

    /// Reads a message and the shard that it is about.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not exactly one message of a known version and kind.
    pub fn decode(bytes: &Bytes) -> Result<(ShardId, Self), DecodeError> {
        let mut reader = Reader(bytes.clone());
        match reader.byte()? {
            VERSION => {}
            other => return Err(DecodeError::Version(other)),
        }
        let kind = reader.byte()?;
        let shard = ShardId(reader.u16()?);
        let message = reader.message(kind)?;
        if reader.0.is_empty() { Ok((shard, message)) } else { Err(DecodeError::Length) }
    }
}

fn put(out: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn put_promised(out: &mut Vec<u8>, promised: Promised) {
    put(out, &[promised.epoch.0]);
    out.extend_from_slice(&promised.to.0.to_le_bytes());
}

fn put_entries(out: &mut Vec<u8>, prev: EntryId, entries: &[LogEntry]) {
    put(out, &[prev.epoch.0, prev.lsn.0]);
    let count = u32::try_from(entries.len()).expect("a message holds no more than APPEND_ENTRIES");
    out.extend_from_slice(&count.to_le_bytes());
    let mut lsn = prev.lsn;
    for entry in entries {
        lsn = lsn.next();
        assert!(entry.id.lsn == lsn && entry.bytes.len() <= ENTRY_BYTES, "entries have no gaps and are within limits");
        let length = u32::try_from(entry.bytes.len()).expect("within ENTRY_BYTES");
        put(out, &[entry.id.epoch.0]);
        out.push(entry.kind as u8);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&entry.bytes);
    }
}

/// Takes pieces off the front of a message.
struct Reader(Bytes);

impl Reader {
    fn byte(&mut self) -> Result<u8, DecodeError> {
        self.0.try_get_u8().map_err(|_| DecodeError::Length)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.0.try_get_u16_le().map_err(|_| DecodeError::Length)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.0.try_get_u32_le().map_err(|_| DecodeError::Length)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.0.try_get_u64_le().map_err(|_| DecodeError::Length)
    }

    fn is(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::Kind(other)),
        }
    }

    /// An epoch or a position. The highest number is neither, so that each has a next one.
    fn number(&mut self) -> Result<u64, DecodeError> {
        self.u64().and_then(|number| if number == u64::MAX { Err(DecodeError::Length) } else { Ok(number) })
    }

    fn epoch(&mut self) -> Result<Epoch, DecodeError> {
        self.number().map(Epoch)
    }

    fn lsn(&mut self) -> Result<Lsn, DecodeError> {
        self.number().map(Lsn)
    }

    fn id(&mut self) -> Result<EntryId, DecodeError> {
        Ok(EntryId { epoch: self.epoch()?, lsn: self.lsn()? })
    }

    fn promised(&mut self) -> Result<Promised, DecodeError> {
        Ok(Promised { epoch: self.epoch()?, to: NodeId(self.u16()?) })
    }

    fn set(&mut self) -> Result<ReplicaSet, DecodeError> {
        let (set, rest) = ReplicaSet::take(&self.0)?;
        let taken = self.0.len() - rest.len();
        self.0.advance(taken);
        Ok(set)
    }

    fn entries(&mut self) -> Result<(EntryId, Vec<LogEntry>), DecodeError> {
        let prev = self.id()?;
        let count = self.u32()? as usize;
        // An entry takes at least its head. So a count that the bytes cannot hold is refused before any allocation for it.
        if count > APPEND_ENTRIES || count > self.0.len() / ENTRY_HEAD_BYTES {
            return Err(DecodeError::Length);
        }
        let mut entries = Vec::with_capacity(count);
        let mut lsn = prev.lsn.0;
        for _ in 0..count {
            lsn = lsn.checked_add(1).filter(|lsn| *lsn < u64::MAX).ok_or(DecodeError::Length)?;
            entries.push(self.entry(Lsn(lsn))?);
        }
        Ok((prev, entries))
    }

    fn entry(&mut self, lsn: Lsn) -> Result<LogEntry, DecodeError> {
        let id = EntryId::new(self.epoch()?, lsn);
        let kind = match self.byte()? {
            0 => EntryKind::Data,
            1 => EntryKind::EpochStart,
            2 => EntryKind::ReplicaSet,
            other => return Err(DecodeError::Kind(other)),
        };
        let length = self.u32()? as usize;
        if length > ENTRY_BYTES || length > self.0.len() {
            return Err(DecodeError::Length);
        }
        Ok(LogEntry { id, kind, bytes: self.0.split_to(length) })
    }

    fn message(&mut self, kind: u8) -> Result<Message, DecodeError> {
        Ok(match kind {
            1 => {
                let (epoch, round, asks_lease, committed) = (self.epoch()?, self.u64()?, self.is()?, self.lsn()?);
                let (prev, entries) = self.entries()?;
                Message::Append { epoch, round, asks_lease, committed, prev, entries }
            }
            2 => Message::Ack { epoch: self.epoch()?, round: self.u64()?, durable: self.lsn()? },
            3 => Message::Lacks { epoch: self.epoch()?, round: self.u64()?, have: self.id()? },
            4 => Message::Refusal { promised: self.promised()? },
            5 => Message::PromiseRequest { epoch: self.epoch()? },
            6 => Message::Promise { epoch: self.epoch()?, last: self.id()?, set_lsn: self.lsn()?, set: self.set()? },
            7 => Message::Fetch { epoch: self.epoch()?, after: self.id()? },
            8 => {
                let epoch = self.epoch()?;
                let (prev, entries) = self.entries()?;
                Message::Entries { epoch, prev, entries }
            }
            9 => Message::Trimmed { epoch: self.epoch()? },
            10 => Message::Snapshot {
                epoch: self.epoch()?,
                round: self.u64()?,
                at: self.id()?,
                set_lsn: self.lsn()?,
                set: self.set()?,
            },
            11 => Message::PreVote { epoch: self.epoch()? },
            12 => Message::PreVoteReply { epoch: self.epoch()?, is_granted: self.is()? },
            13 => Message::Resync { nonce: self.u64()? },
            14 => {
                let (nonce, promised) = (self.u64()?, self.promised()?);
                let owner_last = if self.is()? { Some(self.id()?) } else { None };
                Message::ResyncAnswer { nonce, promised, owner_last, set: self.set()? }
            }
            other => return Err(DecodeError::Kind(other)),
        })
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
