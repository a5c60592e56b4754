//! What failed of an invocation and is to be tried again, or waits for somebody. Stored as a field of the shard's
//! bookkeeping entity `failure`, under the invocation's position and the operation, 4 bytes big-endian. The row goes
//! when what it is about has ended.
//!
//! ```text
//! failure (version 1)
//! offset  bytes  meaning
//!  0      1      version = 1
//!  1      1      what failed: a journal row's kind (see journal.rs), 0 = the code of the workflow itself
//!  2      4      operation: its number among those the workflow asked for, little-endian; 0 = the code itself
//!  6      4      attempts made so far, little-endian
//! 10      8      the last one failed at, Unix milliseconds, little-endian
//! 18      1      1 = it is tried again, 0 = it waits for somebody
//! 19      8      the next try is at, Unix milliseconds, little-endian
//! 27      …      text name, error of the last attempt (see invocation_result.rs)
//! text = 4-byte little-endian length, then UTF-8
//! ```

use millrace_base::{Error, UnixMillis};

use crate::fields::{FieldReader, put_error, put_text};
use crate::{DecodeError, StepKind};

const VERSION: u8 = 1;

/// Something that failed, and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureRecord {
    /// What failed; `None` is the code of the workflow itself.
    pub kind: Option<StepKind>,
    /// Its number, in the order in which the code asked; 0 is the code itself.
    pub operation: u32,
    /// How often it was tried.
    pub attempts: u32,
    /// When the last attempt failed.
    pub failed: UnixMillis,
    /// When it is tried again; `None` if it waits for somebody.
    pub next_try: Option<UnixMillis>,
    /// The target of a call or a step's name.
    pub name: String,
    /// Why the last attempt failed.
    pub error: Error,
}

impl FailureRecord {
    /// The stored bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.extend_from_slice(&[VERSION, self.kind.map_or(0, |kind| kind as u8)]);
        out.extend_from_slice(&self.operation.to_le_bytes());
        out.extend_from_slice(&self.attempts.to_le_bytes());
        out.extend_from_slice(&self.failed.0.to_le_bytes());
        out.push(u8::from(self.next_try.is_some()));
        out.extend_from_slice(&self.next_try.unwrap_or_default().0.to_le_bytes());
        put_text(&mut out, &self.name);
        put_error(&mut out, &self.error);
        out
    }

    /// Reads stored bytes.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not a failure of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::new(bytes);
        reader.version(VERSION)?;
        let [kind] = reader.array()?;
        let kind = match kind {
            0 => None,
            byte => Some(StepKind::from_byte(byte).ok_or(DecodeError::Kind(byte))?),
        };
        let (operation, attempts, failed) = (reader.u32()?, reader.u32()?, UnixMillis(reader.u64()?));
        let [is_tried] = reader.array()?;
        let next_try = UnixMillis(reader.u64()?);
        let next_try = match is_tried {
            0 => None,
            1 => Some(next_try),
            other => return Err(DecodeError::Kind(other)),
        };
        let record = Self { kind, operation, attempts, failed, next_try, name: reader.text()?, error: reader.error()? };
        reader.end()?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_base::ErrorCode;
    use proptest::prelude::*;

    fn record(kind: Option<StepKind>, next_try: Option<u64>) -> FailureRecord {
        FailureRecord {
            kind,
            operation: 2,
            attempts: 3,
            failed: UnixMillis(4),
            next_try: next_try.map(UnixMillis),
            name: "n".into(),
            error: Error::new(ErrorCode::FunctionFailed, "no"),
        }
    }

    proptest! {
        #[test]
        fn failures_round_trip(kind in 0u8..=10, next_try in proptest::option::of(any::<u64>())) {
            let record = record(StepKind::from_byte(kind), next_try);
            prop_assert_eq!(FailureRecord::decode(&record.encode()), Ok(record));
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = FailureRecord::decode(&bytes);
        }
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let end = b"\x01\0\0\0n\x0f\0\0\0function-failed\x02\0\0\0no\0\0\0\0\0";
        let begin = b"\x01\x01\x02\0\0\0\x03\0\0\0\x04\0\0\0\0\0\0\0\x01\x05\0\0\0\0\0\0\0";
        assert_eq!(record(Some(StepKind::Call), Some(5)).encode(), [&begin[..], end].concat());
        let begin = b"\x01\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(record(None, None).encode(), [&begin[..], end].concat());
    }
}
