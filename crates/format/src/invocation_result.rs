//! The result of an invocation: the reply kept under an idempotency key, and the state of an invocation that was sent.
//! Stored as a field of the shard's bookkeeping entity `outcome`.
//!
//! ```text
//! invocation result (version 1)
//! offset  bytes  meaning
//!  0      1      version = 1
//!  1      1      kind: 0 pending, 1 value, 2 route reply, 3 error, 4 sent
//!  2      8      expires at, Unix milliseconds, little-endian (0 while pending: never)
//! 10      8      fingerprint of the request, little-endian
//! 18      …      by kind
//!                1: JSON text
//!                2: 2 status, 2 header count, headers (each: text name, text value), rest: body
//!                3: error
//!                4: 8 LSN, 2 index of the invocation
//! text = 4-byte little-endian length, then UTF-8
//! error = text code, text message, 1 has detail, text detail
//! ```

use bytes::Bytes;
use millrace_base::{Error, Lsn, UnixMillis, Value, ValueKind};

use crate::DecodeError;
use crate::fields::{FieldReader, put_error, put_text};

const VERSION: u8 = 1;
const PENDING: u8 = 0;
/// Bytes before the part that depends on the kind.
const HEAD_BYTES: usize = 18;

/// An invocation result with its expiry and fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvocationResult {
    /// When it may be forgotten. Zero means: not before it is replaced.
    pub expires: UnixMillis,
    /// Tells a repeated request from another one under the same key.
    pub fingerprint: u64,
    /// The result.
    pub result: ResultState,
}

/// The result of an invocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultState {
    /// Not run yet.
    Pending,
    /// A handler's output.
    Value(Bytes),
    /// A route's reply.
    Reply {
        /// HTTP status.
        status: u16,
        /// Names and values.
        headers: Vec<(String, String)>,
        /// Body.
        body: Bytes,
    },
    /// Refused; nothing took effect.
    Error(Error),
    /// Enqueued as this invocation.
    Sent(Lsn, u16),
}

impl InvocationResult {
    /// The stored bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        self.put(&mut out);
        out
    }

    /// The stored value.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let content_bytes = match &self.result {
            ResultState::Value(output) => HEAD_BYTES + output.len(),
            _ => 64,
        };
        Value::written(ValueKind::Bytes, content_bytes, |out| self.put(out))
    }

    fn put(&self, out: &mut Vec<u8>) {
        let kind = match &self.result {
            ResultState::Pending => PENDING,
            ResultState::Value(_) => 1,
            ResultState::Reply { .. } => 2,
            ResultState::Error(_) => 3,
            ResultState::Sent(..) => 4,
        };
        out.extend_from_slice(&[VERSION, kind]);
        out.extend_from_slice(&self.expires.0.to_le_bytes());
        out.extend_from_slice(&self.fingerprint.to_le_bytes());
        match &self.result {
            ResultState::Pending => {}
            ResultState::Value(output) => out.extend_from_slice(output),
            ResultState::Reply { status, headers, body } => {
                out.extend_from_slice(&status.to_le_bytes());
                let count = u16::try_from(headers.len()).expect("the engine bounds the headers of a reply");
                out.extend_from_slice(&count.to_le_bytes());
                for (name, value) in headers {
                    put_text(out, name);
                    put_text(out, value);
                }
                out.extend_from_slice(body);
            }
            ResultState::Error(error) => put_error(out, error),
            ResultState::Sent(lsn, index) => {
                out.extend_from_slice(&lsn.0.to_le_bytes());
                out.extend_from_slice(&index.to_le_bytes());
            }
        }
    }

    /// When the invocation result in stored bytes may be forgotten; `None` while it is pending. Reads no more than
    /// that.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not an invocation result of a known version.
    pub fn expiry(bytes: &[u8]) -> Result<Option<UnixMillis>, DecodeError> {
        let mut reader = FieldReader::new(bytes);
        let [version, kind] = reader.array()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let expires = UnixMillis(reader.u64()?);
        Ok((kind != PENDING).then_some(expires))
    }

    /// Reads stored bytes.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not an invocation result of a known version and kind.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::new(bytes);
        let [version, kind] = reader.array()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let expires = UnixMillis(reader.u64()?);
        let fingerprint = reader.u64()?;
        let result = match kind {
            PENDING => ResultState::Pending,
            1 => ResultState::Value(Bytes::copy_from_slice(reader.rest())),
            2 => {
                let status = reader.u16()?;
                let count = reader.u16()?;
                let mut headers = Vec::new();
                for _ in 0..count {
                    headers.push((reader.text()?, reader.text()?));
                }
                ResultState::Reply { status, headers, body: Bytes::copy_from_slice(reader.rest()) }
            }
            3 => ResultState::Error(reader.error()?),
            4 => ResultState::Sent(Lsn(reader.u64()?), reader.u16()?),
            other => return Err(DecodeError::Kind(other)),
        };
        reader.end()?;
        Ok(Self { expires, fingerprint, result })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_base::ErrorCode;
    use proptest::prelude::*;

    fn result() -> impl Strategy<Value = ResultState> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..9).prop_map(Bytes::from);
        prop_oneof![
            Just(ResultState::Pending),
            bytes().prop_map(ResultState::Value),
            (200u16..600, proptest::collection::vec((".{0,4}", ".{0,4}"), 0..3), bytes())
                .prop_map(|(status, headers, body)| ResultState::Reply { status, headers, body }),
            (".{0,9}", proptest::option::of(".{0,9}")).prop_map(|(message, detail)| ResultState::Error(Error {
                code: ErrorCode::Aborted,
                message,
                detail
            })),
            (any::<u64>(), any::<u16>()).prop_map(|(lsn, index)| ResultState::Sent(Lsn(lsn), index)),
        ]
    }

    proptest! {
        #[test]
        fn invocation_results_round_trip(result in result(), expires in any::<u64>(), fingerprint in any::<u64>()) {
            let invocation_result = InvocationResult { expires: UnixMillis(expires), fingerprint, result };
            let stored = invocation_result.to_value();
            prop_assert_eq!(stored.content(), invocation_result.encode());
            let is_pending = invocation_result.result == ResultState::Pending;
            prop_assert_eq!(InvocationResult::expiry(stored.content()), Ok((!is_pending).then_some(invocation_result.expires)));
            prop_assert_eq!(InvocationResult::decode(stored.content()), Ok(invocation_result));
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = (InvocationResult::decode(&bytes), InvocationResult::expiry(&bytes));
        }
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let error = Error { code: ErrorCode::Aborted, message: "no".into(), detail: None };
        let invocation_result =
            InvocationResult { expires: UnixMillis(1), fingerprint: 2, result: ResultState::Error(error) };
        let golden = b"\x01\x03\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\
            \x07\0\0\0aborted\x02\0\0\0no\0\0\0\0\0";
        assert_eq!(invocation_result.encode(), golden);
    }
}
