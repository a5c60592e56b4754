//! The field `r` of a record: the schema of its value, when it expires, the value.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, 1. |
//! | varint | registry id of the schema. |
//! | 1 | flags: 1 = expires, 2 = a timer is under way, 4 = a write said when it expires, or that it does not. |
//! | varint | when it expires, Unix ms (flag 1). |
//! | varint | the time of the earliest timer under way (flag 2). |
//! | rest | the value, canonical Avro binary. |

use millrace_base::{Error, ErrorCode, UnixMillis, Value, ValueKind};

/// The field's name.
pub(crate) const FIELD: &[u8] = b"r";

const VERSION: u8 = 1;
const EXPIRES: u8 = 1;
const HAS_TIMER: u8 = 2;
const IS_SAID: u8 = 4;

/// A record as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored<'a> {
    pub schema_id: u32,
    pub expires_ms: Option<u64>,
    /// Whether a write set it. Otherwise it comes from the type's time to live, which begins anew with each write.
    pub is_said: bool,
    pub timer_ms: Option<u64>,
    pub value: &'a [u8],
}

#[cold]
fn malformed() -> Error {
    Error::new(ErrorCode::Internal, "a stored record cannot be read: its first bytes are not those of a record")
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for index in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if index == 9 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7F) << (7 * index);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn write_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

impl<'a> Stored<'a> {
    /// Reads a field's value.
    ///
    /// # Errors
    /// `internal`: only this crate writes such values.
    #[inline]
    pub(crate) fn read(value: &'a Value) -> Result<Self, Error> {
        Self::parse(value.content()).ok_or_else(malformed)
    }

    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (&version, mut rest) = bytes.split_first()?;
        if version != VERSION {
            return None;
        }
        let schema_id = u32::try_from(varint(&mut rest)?).ok()?;
        let (&flags, after) = rest.split_first()?;
        rest = after;
        if flags & !(EXPIRES | HAS_TIMER | IS_SAID) != 0 {
            return None;
        }
        let expires_ms = if flags & EXPIRES != 0 { Some(varint(&mut rest)?) } else { None };
        let timer_ms = if flags & HAS_TIMER != 0 { Some(varint(&mut rest)?) } else { None };
        Some(Self { schema_id, expires_ms, is_said: flags & IS_SAID != 0, timer_ms, value: rest })
    }

    /// The field's value.
    pub(crate) fn write(&self) -> Value {
        // The longest head: version, id, flags and two times.
        const HEAD_BYTES: usize = 1 + 5 + 1 + 10 + 10;
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.value.len());
        bytes.push(VERSION);
        write_varint(&mut bytes, u64::from(self.schema_id));
        bytes.push(
            u8::from(self.expires_ms.is_some()) * EXPIRES
                + u8::from(self.timer_ms.is_some()) * HAS_TIMER
                + u8::from(self.is_said) * IS_SAID,
        );
        for time in [self.expires_ms, self.timer_ms].into_iter().flatten() {
            write_varint(&mut bytes, time);
        }
        bytes.extend_from_slice(self.value);
        Value::new(ValueKind::Bytes, &bytes)
    }

    /// Whether it counts as absent, although its timer has not come yet.
    #[inline]
    pub(crate) fn is_expired(&self, now: UnixMillis) -> bool {
        self.expires_ms.is_some_and(|expires| expires <= now.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_is_stored_as_documented() {
        let stored =
            Stored { schema_id: 300, expires_ms: Some(128), is_said: false, timer_ms: Some(5), value: b"\x02a" };
        let value = stored.write();
        assert_eq!(value.content(), b"\x01\xac\x02\x03\x80\x01\x05\x02a");
        assert_eq!(Stored::read(&value), Ok(stored));
        let stored = Stored { schema_id: 1, expires_ms: None, is_said: false, timer_ms: None, value: b"" };
        assert_eq!(stored.write().content(), b"\x01\x01\0");
    }

    #[test]
    fn it_expires_at_the_very_millisecond() {
        let stored = Stored { schema_id: 1, expires_ms: Some(10), is_said: true, timer_ms: None, value: b"" };
        assert!(!stored.is_expired(UnixMillis(9)));
        assert!(stored.is_expired(UnixMillis(10)));
    }

    proptest! {
        #[test]
        fn other_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
            let value = Value::new(ValueKind::Bytes, &bytes);
            if let Ok(stored) = Stored::read(&value) {
                let again = stored.write();
                prop_assert_eq!(Stored::read(&again), Ok(stored));
            }
        }
    }
}
