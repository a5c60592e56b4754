//! A signal that has arrived at a workflow, which has not taken it yet. Stored as a field of the shard's bookkeeping
//! entity `signal`, under the invocation's position and the position of its arrival.
//!
//! ```text
//! signal (version 1)
//! offset  bytes  meaning
//!  0      1      version = 1
//!  1      …      text name (4-byte little-endian length, then UTF-8), rest: JSON payload
//! ```

use bytes::Bytes;

use crate::DecodeError;
use crate::fields::{FieldReader, put_text};

const VERSION: u8 = 1;

/// A signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalRecord {
    /// The name that a workflow waits for.
    pub name: String,
    /// JSON text.
    pub payload: Bytes,
}

impl SignalRecord {
    /// The stored bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_text(&mut out, &self.name);
        out.extend_from_slice(&self.payload);
        out
    }

    /// Reads stored bytes.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not a signal of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::new(bytes);
        reader.version(VERSION)?;
        Ok(Self { name: reader.text()?, payload: Bytes::copy_from_slice(reader.rest()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn signals_round_trip(name in ".{0,9}") {
            let signal = SignalRecord { name, payload: Bytes::from_static(b"[1]") };
            prop_assert_eq!(SignalRecord::decode(&signal.encode()), Ok(signal));
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..32)) {
            let _ = SignalRecord::decode(&bytes);
        }
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let signal = SignalRecord { name: "go".into(), payload: Bytes::from_static(b"1") };
        assert_eq!(signal.encode(), b"\x01\x02\0\0\0go1");
    }
}
