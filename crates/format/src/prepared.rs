//! The prepared writes of one shard in a transaction over several shards. They are durable before the transaction is
//! decided. Stored as a field of the shard's bookkeeping entity `prepared`, under the transaction's id
//! (`base::TransactionId`, which names the coordinator to ask). The shard deletes them in the entry that applies them,
//! or when the coordinator answers that the transaction is aborted.
//!
//! ```text
//! prepared writes (versions 1 and 2)
//! offset  bytes  meaning
//!  0      1      version: 2 if there are entities that were only read, else 1
//!  1      4      number of writes, little-endian
//!  5      …      writes, as in an entry
//!  …      4      number of messages, little-endian
//!  …      …      messages, each: 4-byte little-endian length, then a message (see message.rs)
//!                version 2 only:
//!  …      4      number of entities that were only read, little-endian
//!  …      …      their keys, each: 4-byte little-endian length, then an entity key
//! ```

use millrace_base::EntityKey;

use crate::entry::{put_writes, read_writes};
use crate::fields::{FieldReader, put_bytes};
use crate::{DecodeError, MessageRecord, Write};

const WITHOUT_READS: u8 = 1;
const WITH_READS: u8 = 2;
/// A message's length field and its own head.
const MESSAGE_HEAD_BYTES: usize = 18;

/// What a shard will do if the transaction commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Its write set. No entity in it is internal.
    pub writes: Vec<Write>,
    /// The messages that it sends then.
    pub messages: Vec<MessageRecord>,
    /// What the transaction has only read there, and holds until it is decided.
    pub reads: Vec<EntityKey>,
}

impl Prepared {
    /// The stored bytes.
    ///
    /// # Panics
    /// If there are 2^32 messages or entities. Limits keep their numbers far below.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![if self.reads.is_empty() { WITHOUT_READS } else { WITH_READS }];
        put_writes(&mut out, &self.writes);
        let count = u32::try_from(self.messages.len()).expect("limits keep messages far below 2^32");
        out.extend_from_slice(&count.to_le_bytes());
        for message in &self.messages {
            put_bytes(&mut out, &message.encode());
        }
        if !self.reads.is_empty() {
            let count = u32::try_from(self.reads.len()).expect("limits keep entities far below 2^32");
            out.extend_from_slice(&count.to_le_bytes());
            self.reads.iter().for_each(|entity| put_bytes(&mut out, entity.as_bytes()));
        }
        out
    }

    /// Reads stored bytes.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not of a known version, or that hold an unknown kind of key or value.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::new(bytes);
        let [version] = reader.array()?;
        if !matches!(version, WITHOUT_READS | WITH_READS) {
            return Err(DecodeError::Version(version));
        }
        let found = read_writes(&mut reader)?;
        let writes = found.iter().map(|write| write.to_write().ok_or(DecodeError::Length)).collect::<Result<_, _>>()?;
        let count = reader.u32()? as usize;
        if count > reader.left() / MESSAGE_HEAD_BYTES {
            return Err(DecodeError::Length);
        }
        let messages = (0..count).map(|_| MessageRecord::decode(reader.bytes()?)).collect::<Result<_, _>>()?;
        let reads = if version == WITH_READS { read_entities(&mut reader)? } else { Vec::new() };
        reader.end()?;
        Ok(Self { writes, messages, reads })
    }
}

fn read_entities(reader: &mut FieldReader<'_>) -> Result<Vec<EntityKey>, DecodeError> {
    let count = reader.u32()?;
    // No room is made beforehand: the bytes may hold fewer. Version 2 has at least one.
    let entities = (0..count).map(|_| match EntityKey::split_from(reader.bytes()?) {
        Some((entity, [])) => Ok(entity),
        _ => Err(DecodeError::Length),
    });
    let entities: Vec<EntityKey> = entities.collect::<Result<_, _>>()?;
    if entities.is_empty() { Err(DecodeError::Length) } else { Ok(entities) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use millrace_base::{UnixMillis, Value};
    use proptest::prelude::*;

    fn message(input: &'static [u8]) -> MessageRecord {
        MessageRecord {
            keeps_invocation_result: false,
            invocation: None,
            chosen_id: None,
            is_signal: false,
            was_set_aside: false,
            attempts: 0,
            due: UnixMillis(3),
            app: "a".into(),
            service: "s".into(),
            handler: "h".into(),
            key: vec![9],
            input: Bytes::from_static(input),
        }
    }

    fn prepared(writes: usize, messages: usize, reads: usize) -> Prepared {
        let write = |index: usize| Write {
            entity: EntityKey::internal("c", b"k"),
            field: format!("f{index}").into_bytes().into(),
            value: index.is_multiple_of(2).then(|| Value::json("1")),
        };
        let reads = (0..reads).map(|index| EntityKey::internal("c", &[index as u8])).collect();
        Prepared { writes: (0..writes).map(write).collect(), messages: vec![message(b"null"); messages], reads }
    }

    proptest! {
        #[test]
        fn parts_round_trip(writes in 0_usize..5, messages in 0_usize..4, reads in 0_usize..3) {
            let part = prepared(writes, messages, reads);
            let bytes = part.encode();
            prop_assert_eq!(Prepared::decode(&bytes), Ok(part));
            for cut in 0..bytes.len() {
                prop_assert!(Prepared::decode(&bytes[..cut]).is_err());
            }
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Prepared::decode(&bytes);
        }
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let golden = b"\x01\x01\0\0\0\x06\0\x02\0\x03\0\0\0\0c\0k\0\x01f0\x001\
            \x01\0\0\0\x26\0\0\0\x01\0\0\0\0\0\x03\0\0\0\0\0\0\0\
            \x01\0\0\0a\x01\0\0\0s\x01\0\0\0h\x01\0\0\0\x09null";
        let bytes = prepared(1, 1, 0).encode();
        assert_eq!(bytes, golden, "{:?}", bytes.escape_ascii().to_string());
        let golden = b"\x02\0\0\0\0\0\0\0\0\x01\0\0\0\x07\0\0\0\0c\0\0\xff\0\x01";
        let bytes = prepared(0, 0, 1).encode();
        assert_eq!(bytes, golden, "{:?}", bytes.escape_ascii().to_string());
    }
}
