//! A workflow under way, or ended and not yet forgotten. Stored as a field of the shard's bookkeeping entity
//! `workflow`, under its invocation's position. The entity `journal` has what it has done, the entity `outcome` its
//! result.
//!
//! ```text
//! workflow (version 1)
//! offset  bytes  meaning
//!  0      1      version = 1
//!  1      1      flags: bit 0 = it has ended, bit 1 = its cancellation was asked for, bit 2 = its caller chose its id,
//!                bit 3 = it has runs
//!  2      8      began at, Unix milliseconds, little-endian
//! 10      8      fingerprint of the app version it runs in, little-endian
//! 18      …      if bit 2: text id
//!  …      …      if bit 3: 1 how many runs, then of each: 4 first operation, 8 number, both little-endian
//!  …      …      text app, text service, text handler, 4-byte length + key, rest: JSON input
//! text = 4-byte little-endian length, then UTF-8
//! ```

use bytes::Bytes;
use millrace_base::UnixMillis;

use crate::DecodeError;
use crate::fields::{FieldReader, put_bytes, put_text};

const VERSION: u8 = 1;
const HAS_ENDED: u8 = 1;
const IS_CANCELLED: u8 = 2;
const HAS_CHOSEN_ID: u8 = 4;
const HAS_RUNS: u8 = 8;

/// A part of a workflow's journal that one run of it made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkflowRun {
    /// The first operation that the run asked for.
    pub first_operation: u32,
    /// Tells the run from all others under the same id. What is kept elsewhere for an operation has this in its name.
    pub number: u64,
}

/// A workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowRecord {
    /// Whether it has ended. Its invocation result says how.
    pub has_ended: bool,
    /// Whether it is to be cancelled.
    pub is_cancelled: bool,
    /// When it began.
    pub began: UnixMillis,
    /// The id that its caller chose.
    pub chosen_id: Option<String>,
    /// By first operation. What comes before the first one here is of the run 0.
    pub runs: Vec<WorkflowRun>,
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
        let chosen = if self.chosen_id.is_some() { HAS_CHOSEN_ID } else { 0 };
        let has_runs = if self.runs.is_empty() { 0 } else { HAS_RUNS };
        out.extend_from_slice(&[VERSION, ended | cancelled | chosen | has_runs]);
        out.extend_from_slice(&self.began.0.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        self.chosen_id.iter().for_each(|id| put_text(&mut out, id));
        if !self.runs.is_empty() {
            out.push(u8::try_from(self.runs.len()).expect("a workflow has few runs"));
        }
        for run in &self.runs {
            out.extend_from_slice(&run.first_operation.to_le_bytes());
            out.extend_from_slice(&run.number.to_le_bytes());
        }
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
        if flags & !(HAS_ENDED | IS_CANCELLED | HAS_CHOSEN_ID | HAS_RUNS) != 0 {
            return Err(DecodeError::Kind(flags));
        }
        let (began, version) = (UnixMillis(reader.u64()?), reader.u64()?);
        let chosen_id = (flags & HAS_CHOSEN_ID != 0).then(|| reader.text()).transpose()?;
        let [run_count] = if flags & HAS_RUNS == 0 { [0] } else { reader.array()? };
        let mut run = || Ok(WorkflowRun { first_operation: reader.u32()?, number: reader.u64()? });
        let runs = (0..run_count).map(|_| run()).collect::<Result<_, DecodeError>>()?;
        Ok(Self {
            has_ended: flags & HAS_ENDED != 0,
            is_cancelled: flags & IS_CANCELLED != 0,
            began,
            chosen_id,
            runs,
            version,
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
            chosen_id: None,
            runs: Vec::new(),
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
        fn workflows_round_trip(
            has_ended in any::<bool>(), is_cancelled in any::<bool>(), chosen_id in proptest::option::of(".{0,5}"),
            runs in proptest::collection::vec(any::<(u32, u64)>(), 0..4),
        ) {
            let runs = runs.into_iter().map(|(first_operation, number)| WorkflowRun { first_operation, number }).collect();
            let record = WorkflowRecord { chosen_id, runs, ..record(has_ended, is_cancelled, b"[1]") };
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
        let runs = vec![WorkflowRun { first_operation: 5, number: 6 }];
        let chosen = WorkflowRecord { chosen_id: Some("o1".into()), runs, ..record(false, false, b"null") };
        let golden = b"\x01\x0c\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x02\0\0\0o1\x01\x05\0\0\0\x06\0\0\0\0\0\0\0\x01\0\0\0a\x01\0\0\0s\x01\0\0\0h\x01\0\0\0\x09null";
        assert_eq!(chosen.encode(), golden);
    }
}
