//! One log entry: the write set of one atomic commit.
//!
//! A transaction leaves only writes to fields of entities behind: user state, the reply stored under its idempotency
//! key, messages in the outbox, the receiver's progress. So one entry is durable, atomic, exactly-once and an outbox at
//! the same time. Replay only applies writes.
//!
//! ```text
//! entry body (version 1)
//! offset  bytes  meaning
//!  0      1      version = 1
//!  1      1      kind = 0 (write set)
//!  2      2      shard, little-endian
//!  4      8      LSN, little-endian
//! 12      8      time, Unix milliseconds, little-endian
//! 20      4      number of writes, little-endian
//! 24      …      writes, each:
//!                2  entity key length, 2  field length, 4  value length + 1, or 0 for a deletion
//!                then entity key (see base::EntityKey), field, value (kind byte + content)
//! ```

use std::fmt;

use millrace_base::{EntityKey, Lsn, ShardId, UnixMillis, Value};

use crate::fields::FieldReader;

pub(crate) const VERSION: u8 = 1;
const KIND_WRITE_SET: u8 = 0;
const WRITE_HEAD_BYTES: usize = 8;

/// One write: a field's new value, or its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Whose field.
    pub entity: EntityKey,
    /// The field's name.
    pub field: Box<[u8]>,
    /// The new value; `None` deletes the field.
    pub value: Option<Value>,
}

/// A write in the form that it has in an encoded entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRef<'a> {
    /// Encoded [`EntityKey`].
    pub entity: &'a [u8],
    /// The field's name.
    pub field: &'a [u8],
    /// Encoded [`Value`]; `None` deletes the field.
    pub value: Option<&'a [u8]>,
}

impl WriteRef<'_> {
    /// An owned copy. `None` if this version does not know the key or the value.
    #[must_use]
    pub fn to_write(&self) -> Option<Write> {
        let (entity, rest) = EntityKey::split_from(self.entity)?;
        let value = match self.value {
            Some(encoded) => Some(Value::from_encoded(encoded)?),
            None => None,
        };
        rest.is_empty().then(|| Write { entity, field: self.field.into(), value })
    }
}

/// An entry to encode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The shard whose log it belongs to.
    pub shard: ShardId,
    /// Its position there.
    pub lsn: Lsn,
    /// When it was made.
    pub time: UnixMillis,
    /// What it changes.
    pub writes: &'a [Write],
}

impl Entry<'_> {
    /// Appends the encoded body to `out`.
    ///
    /// # Panics
    /// If a key, field or value is longer than its length field can say. Limits far below that are checked where they
    /// enter.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, KIND_WRITE_SET]);
        out.extend_from_slice(&self.shard.0.to_le_bytes());
        out.extend_from_slice(&self.lsn.0.to_le_bytes());
        out.extend_from_slice(&self.time.0.to_le_bytes());
        put_writes(out, self.writes);
    }
}

/// Appends the number of writes and the writes themselves.
pub(crate) fn put_writes(out: &mut Vec<u8>, writes: &[Write]) {
    out.extend_from_slice(&length_u32(writes.len()).to_le_bytes());
    for write in writes {
        let entity = write.entity.as_bytes();
        let value = write.value.as_ref().map(Value::encoded);
        out.extend_from_slice(&length_u16(entity.len()).to_le_bytes());
        out.extend_from_slice(&length_u16(write.field.len()).to_le_bytes());
        let value_length = value.map_or(0, |value| length_u32(value.len() + 1));
        out.extend_from_slice(&value_length.to_le_bytes());
        out.extend_from_slice(entity);
        out.extend_from_slice(&write.field);
        out.extend_from_slice(value.unwrap_or_default());
    }
}

fn length_u32(length: usize) -> u32 {
    u32::try_from(length).expect("limits keep lengths below 4 GiB")
}

fn length_u16(length: usize) -> u16 {
    u16::try_from(length).expect("limits keep keys and fields below 64 KiB")
}

/// Why bytes are not an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end before the structure does, or go on after it.
    Length,
    /// A version this build does not know.
    Version(u8),
    /// A kind this build does not know.
    Kind(u8),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Length => formatter.write_str("lengths inside the entry contradict its size"),
            DecodeError::Version(version) => write!(formatter, "entry version {version} is not known to this build"),
            DecodeError::Kind(kind) => write!(formatter, "entry kind {kind} is not known to this build"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// A decoded entry that borrows the bytes it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The shard whose log it belongs to.
    pub shard: ShardId,
    /// Its position there.
    pub lsn: Lsn,
    /// When it was made.
    pub time: UnixMillis,
    /// What it changes, in order.
    pub writes: Vec<WriteRef<'a>>,
}

impl<'a> EntryRef<'a> {
    /// Reads an encoded body.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes are not exactly one entry of a known version and kind.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::new(bytes);
        let [version, kind] = reader.array()?;
        check_version(version, kind)?;
        let shard = ShardId(reader.u16()?);
        let lsn = Lsn(reader.u64()?);
        let time = UnixMillis(reader.u64()?);
        let writes = read_writes(&mut reader)?;
        reader.end()?;
        Ok(Self { shard, lsn, time, writes })
    }
}

/// Refuses a version or kind that this build cannot read.
pub(crate) fn check_version(version: u8, kind: u8) -> Result<(), DecodeError> {
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    if kind != KIND_WRITE_SET {
        return Err(DecodeError::Kind(kind));
    }
    Ok(())
}

/// Reads what [`put_writes`] wrote.
pub(crate) fn read_writes<'a>(reader: &mut FieldReader<'a>) -> Result<Vec<WriteRef<'a>>, DecodeError> {
    let count = reader.u32()? as usize;
    // A write takes at least its head. So a count that the bytes cannot hold is refused before any allocation for it.
    if count > reader.left() / WRITE_HEAD_BYTES {
        return Err(DecodeError::Length);
    }
    let mut writes = Vec::with_capacity(count);
    for _ in 0..count {
        writes.push(read_write(reader)?);
    }
    Ok(writes)
}

fn read_write<'a>(reader: &mut FieldReader<'a>) -> Result<WriteRef<'a>, DecodeError> {
    let entity_length = usize::from(reader.u16()?);
    let field_length = usize::from(reader.u16()?);
    let value_length = reader.u32()? as usize;
    let entity = reader.take(entity_length)?;
    let field = reader.take(field_length)?;
    let value = match value_length {
        0 => None,
        length => Some(reader.take(length - 1)?),
    };
    Ok(WriteRef { entity, field, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn write() -> impl Strategy<Value = Write> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..12);
        (bytes(), bytes(), proptest::option::of(bytes())).prop_map(|(key, field, value)| Write {
            entity: EntityKey::internal("outcome", &key),
            field: field.into(),
            value: value.map(|content| Value::new(millrace_base::ValueKind::Bytes, &content)),
        })
    }

    proptest! {
        #[test]
        fn entries_round_trip(writes in proptest::collection::vec(write(), 0..6), lsn in any::<u64>()) {
            let entry = Entry { shard: ShardId(7), lsn: Lsn(lsn), time: UnixMillis(3), writes: &writes };
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            let back = EntryRef::decode(&bytes).expect("just encoded");
            prop_assert_eq!((back.shard, back.lsn, back.time), (entry.shard, entry.lsn, entry.time));
            let owned: Vec<_> = back.writes.iter().map(|write| write.to_write().expect("known")).collect();
            prop_assert_eq!(owned, writes);
            for cut in 0..bytes.len() {
                prop_assert!(EntryRef::decode(&bytes[..cut]).is_err());
            }
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = EntryRef::decode(&bytes);
        }
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let writes = [
            Write { entity: EntityKey::internal("c", b"k"), field: (*b"n").into(), value: Some(Value::json("1")) },
            Write { entity: EntityKey::internal("c", b"k"), field: (*b"m").into(), value: None },
        ];
        let entry = Entry { shard: ShardId(2), lsn: Lsn(3), time: UnixMillis(4), writes: &writes };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        let golden = b"\x01\x00\x02\x00\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x02\0\0\0\
            \x06\0\x01\0\x03\0\0\0\0c\0k\0\x01n\x001\
            \x06\0\x01\0\0\0\0\0\0c\0k\0\x01m";
        assert_eq!(bytes, golden);
    }
}
