//! One thing that a workflow has done. The rows are in the order in which these things ended. They let the workflow go
//! on after a restart as if there had been none. Stored as a field of the shard's bookkeeping entity `journal`, under
//! the invocation's position and a 4-byte big-endian number, from 0.
//!
//! ```text
//! journal row (version 1)
//! offset  bytes  meaning
//!  0      1      version = 1
//!  1      1      kind: 1 call, 2 step, 3 sleep, 4 fetch, 5 wait, 6 hash, 7 send, 8 signal,
//!                9 cancel, 10 compensation, 11 result
//!  2      4      operation: its number among those the workflow asked for, little-endian
//!  6      8      ended at, Unix milliseconds, little-endian
//! 14      …      text name
//!  …      1      1 = it failed
//!  …      …      error (see invocation_result.rs), or rest: JSON text
//! text = 4-byte little-endian length, then UTF-8
//! ```

use bytes::Bytes;
use millrace_base::{Error, UnixMillis};

use crate::DecodeError;
use crate::fields::{FieldReader, put_error, put_text};

const VERSION: u8 = 1;

/// What a workflow did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum StepKind {
    /// A call, as a transaction of its own.
    Call = 1,
    /// Code whose result is stored.
    Step = 2,
    /// A sleep.
    Sleep = 3,
    /// A request to a server outside.
    Fetch = 4,
    /// A wait for a signal, which it took, or for which it waited too long.
    Wait = 5,
    /// A password hash.
    Hash = 6,
    /// A message that it sent.
    Send = 7,
    /// A signal that it sent.
    Signal = 8,
    /// The workflow was cancelled.
    Cancel = 9,
    /// A call that undoes what an earlier one did.
    Compensation = 10,
    /// The result of another workflow, for which it waited.
    Result = 11,
}

impl StepKind {
    const ALL: [StepKind; 11] = [
        StepKind::Call,
        StepKind::Step,
        StepKind::Sleep,
        StepKind::Fetch,
        StepKind::Wait,
        StepKind::Hash,
        StepKind::Send,
        StepKind::Signal,
        StepKind::Cancel,
        StepKind::Compensation,
        StepKind::Result,
    ];

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// The text that users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            StepKind::Call => "call",
            StepKind::Step => "step",
            StepKind::Sleep => "sleep",
            StepKind::Fetch => "fetch",
            StepKind::Wait => "wait",
            StepKind::Hash => "hash",
            StepKind::Send => "send",
            StepKind::Signal => "signal",
            StepKind::Cancel => "cancel",
            StepKind::Compensation => "compensation",
            StepKind::Result => "result",
        }
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRow {
    /// What was done.
    pub kind: StepKind,
    /// Its number, in the order in which the code asked.
    pub operation: u32,
    /// When it ended.
    pub ended: UnixMillis,
    /// The target of a call, a step's or signal's name, or a URL.
    pub name: String,
    /// JSON text, or why it failed.
    pub result: Result<Bytes, Error>,
}

impl JournalRow {
    /// The stored bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.extend_from_slice(&[VERSION, self.kind as u8]);
        out.extend_from_slice(&self.operation.to_le_bytes());
        out.extend_from_slice(&self.ended.0.to_le_bytes());
        put_text(&mut out, &self.name);
        out.push(u8::from(self.result.is_err()));
        match &self.result {
            Ok(json) => out.extend_from_slice(json),
            Err(error) => put_error(&mut out, error),
        }
        out
    }

    /// Reads stored bytes.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not a row of a known version and kind.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::new(bytes);
        let [version, kind] = reader.array()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let kind = StepKind::from_byte(kind).ok_or(DecodeError::Kind(kind))?;
        let operation = reader.u32()?;
        let ended = UnixMillis(reader.u64()?);
        let name = reader.text()?;
        let [has_failed] = reader.array()?;
        let result = match has_failed {
            0 => Ok(Bytes::copy_from_slice(reader.rest())),
            _ => Err(reader.error()?),
        };
        reader.end()?;
        Ok(Self { kind, operation, ended, name, result })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_base::ErrorCode;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_round_trip(kind in 1_u8..=10, operation in any::<u32>(), ended in any::<u64>(), fails in any::<bool>()) {
            let kind = StepKind::from_byte(kind).expect("a kind");
            let result =
                if fails { Err(Error::new(ErrorCode::Aborted, "no")) } else { Ok(Bytes::from_static(b"[1]")) };
            let row = JournalRow { kind, operation, ended: UnixMillis(ended), name: kind.as_str().into(), result };
            prop_assert_eq!(JournalRow::decode(&row.encode()), Ok(row));
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = JournalRow::decode(&bytes);
        }
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let row = JournalRow {
            kind: StepKind::Wait,
            operation: 2,
            ended: UnixMillis(3),
            name: "go".into(),
            result: Ok(Bytes::from_static(b"1")),
        };
        assert_eq!(row.encode(), b"\x01\x05\x02\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0go\x001");
        let failed = JournalRow { result: Err(Error::new(ErrorCode::Aborted, "no")), ..row };
        assert_eq!(
            failed.encode(),
            b"\x01\x05\x02\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0go\x01\x07\0\0\0aborted\x02\0\0\0no\0\0\0\0\0"
        );
    }
}
