//! A workflow under way, or ended and not yet forgotten. Stored as a field of the shard's bookkeeping entity
//! `workflow`, under its invocation's position. The entity `journal` has what it has done, the entity `outcome` its
//! result.
//!
//! ```text
//! workflow (version 1)
//! offset  bytes  meaning
//!  0      1      version = 1
//!  1      1      flags: bit 0 = it has ended, bit 1 = its cancellation was asked for
//!  2      8      began at, Unix milliseconds, little-endian
//! 10      8      fingerprint of the app version it runs in, little-endian
//! 18      …      text app, text service, text handler, 4-byte length + key, rest: JSON input
//! text = 4-byte little-endian length, then UTF-8
//! ```

use bytes::Bytes;
use millrace_base::UnixMillis;

use crate::DecodeError;
use crate::fields::{FieldReader, put_bytes, put_text};

const VERSION: u8 = 1;
const HAS_ENDED: u8 = 1;
const IS_CANCELLED: u8 = 2;

/// A workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowRecord {
    /// Whether it has ended. Its invocation result says how.
    pub has_ended: bool,
    /// Whether it is to be cancelled.
    pub is_cancelled: bool,
    /// When it began.
    pub began: UnixMillis,
    /// The version of the app that it runs in, to its end.
    pub version: u64,
    /// The app.
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

impl WorkflowRecord {
    /// The stored bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.input.len());
        let ended = if self.has_ended { HAS_ENDED } else { 0 };
        let cancelled = if self.is_cancelled { IS_CANCELLED } else { 0 };
        out.extend_from_slice(&[VERSION, ended | cancelled]);
        out.extend_from_slice(&self.began.0.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        put_text(&mut out, &self.app);
        put_text(&mut out, &self.service);
        put_text(&mut out, &self.handler);
        put_bytes(&mut out, &self.key);
        out.extend_from_slice(&self.input);
        out
    }

    /// Reads stored bytes.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not a workflow of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::new(bytes);
        let [version, flags] = reader.array()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        if flags & !(HAS_ENDED | IS_CANCELLED) != 0 {
            return Err(DecodeError::Kind(flags));
        }
        Ok(Self {
            has_ended: flags & HAS_ENDED != 0,
            is_cancelled: flags & IS_CANCELLED != 0,
            began: UnixMillis(reader.u64()?),
            version: reader.u64()?,
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

    fn record(has_ended: bool, is_cancelled: bool, input: &'static [u8]) -> WorkflowRecord {
        WorkflowRecord {
            has_ended,
            is_cancelled,
            began: UnixMillis(3),
            version: 4,
            app: "a".into(),
            service: "s".into(),
            handler: "h".into(),
            key: vec![9],
            input: Bytes::from_static(input),
        }
    }

    proptest! {
        #[test]
        fn workflows_round_trip(has_ended in any::<bool>(), is_cancelled in any::<bool>()) {
            let record = record(has_ended, is_cancelled, b"[1]");
            prop_assert_eq!(WorkflowRecord::decode(&record.encode()), Ok(record));
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = WorkflowRecord::decode(&bytes);
        }
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let golden = b"\x01\x02\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x01\0\0\0a\x01\0\0\0s\x01\0\0\0h\x01\0\0\0\x09null";
        assert_eq!(record(false, true, b"null").encode(), golden);
    }
}
