//! A message: a call that happens later, exactly once. Stored in the sender's outbox and in the
//! receiver's inbox.
//!
//! ```text
//! message (version 1)
//! offset  bytes  meaning
//!  0      1      version = 1
//!  1      1      flags: bit 0 = its result is kept for `GET /invocations/{id}`, bit 1 = it has an
//!                invocation id of its own, bit 2 = it is a signal to the workflow of that id,
//!                bit 3 = it was a dead letter before, bit 4 = its caller chose the id of the workflow as a text
//!  2      4      attempts made so far, little-endian
//!  6      8      due, Unix milliseconds, little-endian; 0, on the way to another shard: at once
//! 14      …      if bit 1: 2 shard, 8 LSN, 2 index of the invocation
//!  …      …      if bit 4: text id
//!  …      …      text app, text service, text handler, 4-byte length + key, rest: JSON input
//!                (of a signal: app of the sender, nothing, the signal's name, nothing, payload)
//! text = 4-byte little-endian length, then UTF-8
//! ```

use std::ops::Range;

use bytes::Bytes;
use millrace_base::{Lsn, ShardId, UnixMillis};

use crate::DecodeError;
use crate::fields::{FieldReader, put_bytes, put_text};

const VERSION: u8 = 1;
const KEEPS_INVOCATION_RESULT: u8 = 1;
const HAS_INVOCATION: u8 = 2;
const IS_SIGNAL: u8 = 4;
const WAS_SET_ASIDE: u8 = 8;
const HAS_CHOSEN_ID: u8 = 16;

/// Where the due time is.
const DUE: Range<usize> = 6..14;

/// The parts of an invocation's id: shard, LSN, index.
pub type Position = (ShardId, Lsn, u16);

/// A call to make later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRecord {
    /// Whether a client may ask for its result.
    pub keeps_invocation_result: bool,
    /// The id of the invocation that it starts, if the sender chose that id. For a signal: the workflow that it is for.
    pub invocation: Option<Position>,
    /// The text that `invocation` was made of, if the caller chose one.
    pub chosen_id: Option<String>,
    /// Whether it is a signal.
    pub is_signal: bool,
    /// Whether it was a dead letter that an operator had tried again. Unless it succeeds, it becomes a dead letter once
    /// more.
    pub was_set_aside: bool,
    /// How often it was tried.
    pub attempts: u32,
    /// It does not run before this time.
    pub due: UnixMillis,
    /// The app, by name: a message outlives the version that sent it.
    pub app: String,
    /// The service.
    pub service: String,
    /// The handler.
    pub handler: String,
    /// The entity's key.
    pub key: Vec<u8>,
    /// JSON text.
    pub input: Bytes,
}

impl MessageRecord {
    /// The stored bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.input.len());
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let flags = flag(self.keeps_invocation_result, KEEPS_INVOCATION_RESULT)
            | flag(self.invocation.is_some(), HAS_INVOCATION)
            | flag(self.is_signal, IS_SIGNAL)
            | flag(self.was_set_aside, WAS_SET_ASIDE)
            | flag(self.chosen_id.is_some(), HAS_CHOSEN_ID);
        out.extend_from_slice(&[VERSION, flags]);
        out.extend_from_slice(&self.attempts.to_le_bytes());
        out.extend_from_slice(&self.due.0.to_le_bytes());
        if let Some((shard, lsn, index)) = self.invocation {
            out.extend_from_slice(&shard.0.to_le_bytes());
            out.extend_from_slice(&lsn.0.to_le_bytes());
            out.extend_from_slice(&index.to_le_bytes());
        }
        self.chosen_id.iter().for_each(|id| put_text(&mut out, id));
        put_text(&mut out, &self.app);
        put_text(&mut out, &self.service);
        put_text(&mut out, &self.handler);
        put_bytes(&mut out, &self.key);
        out.extend_from_slice(&self.input);
        out
    }

    /// The stored bytes with another due time, which `change` makes of theirs. Bytes of other versions stay as they are.
    #[must_use]
    pub fn with_due(bytes: &[u8], change: impl FnOnce(UnixMillis) -> UnixMillis) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let is_known = bytes.first() == Some(&VERSION);
        if let Some(due) = bytes.get_mut(DUE).and_then(|due| due.first_chunk_mut::<8>()).filter(|_| is_known) {
            *due = change(UnixMillis(u64::from_le_bytes(*due))).0.to_le_bytes();
        }
        bytes
    }

    /// Reads stored bytes.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not a message of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::new(bytes);
        let [version, flags] = reader.array()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        if flags & !(KEEPS_INVOCATION_RESULT | HAS_INVOCATION | IS_SIGNAL | WAS_SET_ASIDE | HAS_CHOSEN_ID) != 0 {
            return Err(DecodeError::Kind(flags));
        }
        let attempts = reader.u32()?;
        let due = UnixMillis(reader.u64()?);
        let invocation = match flags & HAS_INVOCATION {
            0 => None,
            _ => Some((ShardId(reader.u16()?), Lsn(reader.u64()?), reader.u16()?)),
        };
        Ok(Self {
            keeps_invocation_result: flags & KEEPS_INVOCATION_RESULT != 0,
            attempts,
            due,
            invocation,
            chosen_id: (flags & HAS_CHOSEN_ID != 0).then(|| reader.text()).transpose()?,
            is_signal: flags & IS_SIGNAL != 0,
            was_set_aside: flags & WAS_SET_ASIDE != 0,
            app: reader.text()?,
            service: reader.text()?,
            handler: reader.text()?,
            key: reader.bytes()?.to_vec(),
            input: Bytes::copy_from_slice(reader.rest()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_round_trip(
            keeps_invocation_result in any::<bool>(), chosen_id in proptest::option::of(".{0,5}"), is_signal in any::<bool>(), was_set_aside in any::<bool>(), lsn in proptest::option::of(any::<u64>()), attempts in any::<u32>(), due in any::<u64>(), app in ".{0,5}",
            key in proptest::collection::vec(any::<u8>(), 0..9), input in proptest::collection::vec(any::<u8>(), 0..9),
        ) {
            let message = MessageRecord {
                keeps_invocation_result, chosen_id, is_signal, was_set_aside, invocation: lsn.map(|lsn| (ShardId(7), Lsn(lsn), 9)), attempts, due: UnixMillis(due), app, service: "s".into(), handler: "h".into(), key,
                input: input.into(),
            };
            prop_assert_eq!(MessageRecord::decode(&message.encode()), Ok(message.clone()));
            let changed = MessageRecord::with_due(&message.encode(), |due| UnixMillis(due.0 / 2));
            prop_assert_eq!(changed, MessageRecord { due: UnixMillis(due / 2), ..message }.encode());
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = MessageRecord::decode(&bytes);
        }
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let message = MessageRecord {
            keeps_invocation_result: true,
            invocation: None,
            chosen_id: None,
            is_signal: false,
            was_set_aside: false,
            attempts: 2,
            due: UnixMillis(3),
            app: "a".into(),
            service: "s".into(),
            handler: "h".into(),
            key: vec![9],
            input: Bytes::from_static(b"null"),
        };
        let golden = b"\x01\x01\x02\0\0\0\x03\0\0\0\0\0\0\0\x01\0\0\0a\x01\0\0\0s\x01\0\0\0h\x01\0\0\0\x09null";
        assert_eq!(message.encode(), golden);
        let signal = MessageRecord { invocation: Some((ShardId(1), Lsn(2), 3)), is_signal: true, ..message };
        let golden = b"\x01\x07\x02\0\0\0\x03\0\0\0\0\0\0\0\x01\0\x02\0\0\0\0\0\0\0\x03\0\x01\0\0\0a\x01\0\0\0s\x01\0\0\0h\x01\0\0\0\x09null";
        assert_eq!(signal.encode(), golden);
        let start = MessageRecord { chosen_id: Some("o1".into()), is_signal: false, ..signal };
        let golden = b"\x01\x13\x02\0\0\0\x03\0\0\0\0\0\0\0\x01\0\x02\0\0\0\0\0\0\0\x03\0\x02\0\0\0o1\x01\0\0\0a\x01\0\0\0s\x01\0\0\0h\x01\0\0\0\x09null";
        assert_eq!(start.encode(), golden);
    }
}
