//! A message that failed too often. Stored as a field of the shard's bookkeeping entity `dead`.
//!
//! ```text
//! dead letter (version 2; version 1 was the message alone)
//! offset  bytes  meaning
//!  0      1      version = 2
//!  1      …      error of the last attempt (see invocation_result.rs), rest: message (see message.rs)
//! ```

use millrace_base::Error;

use crate::fields::{FieldReader, put_error};
use crate::{DecodeError, MessageRecord};

const VERSION: u8 = 2;
const VERSION_WITHOUT_ERROR: u8 = 1;

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterRecord {
    /// Why the last attempt failed, if that was stored.
    pub error: Option<Error>,
    /// The message.
    pub message: MessageRecord,
}

impl DeadLetterRecord {
    /// The stored bytes of a message that failed with `error`.
    #[must_use]
    pub fn encode(error: &Error, message: &MessageRecord) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_error(&mut out, error);
        out.extend_from_slice(&message.encode());
        out
    }

    /// Reads stored bytes.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not a dead letter of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::new(bytes);
        let [version] = reader.array()?;
        match version {
            VERSION => {
                let error = reader.error()?;
                Ok(Self { error: Some(error), message: MessageRecord::decode(reader.rest())? })
            }
            VERSION_WITHOUT_ERROR => Ok(Self { error: None, message: MessageRecord::decode(bytes)? }),
            other => Err(DecodeError::Version(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use millrace_base::{ErrorCode, UnixMillis};
    use proptest::prelude::*;

    fn message() -> MessageRecord {
        MessageRecord {
            keeps_invocation_result: false,
            invocation: None,
            chosen_id: None,
            is_signal: false,
            was_set_aside: false,
            attempts: 16,
            due: UnixMillis(3),
            app: "a".into(),
            service: "s".into(),
            handler: "h".into(),
            key: vec![9],
            input: Bytes::from_static(b"null"),
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = DeadLetterRecord::decode(&bytes);
        }
    }

    #[test]
    fn both_versions_are_read() {
        let error = Error::new(ErrorCode::Aborted, "no");
        let bytes = DeadLetterRecord::encode(&error, &message());
        assert!(bytes.starts_with(b"\x02\x07\0\0\0aborted\x02\0\0\0no\0\0\0\0\0\x01\0\x10\0\0\0\x03"), "{bytes:?}");
        assert_eq!(DeadLetterRecord::decode(&bytes), Ok(DeadLetterRecord { error: Some(error), message: message() }));
        let old = message().encode();
        assert_eq!(DeadLetterRecord::decode(&old), Ok(DeadLetterRecord { error: None, message: message() }));
    }
}
