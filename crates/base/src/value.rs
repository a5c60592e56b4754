//! A field's value: bytes with one kind byte in front, the same in memory, in the log and in the
//! checkpoint.

use std::fmt;

/// How the edge reads a value's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// UTF-8 JSON text. `ctx.set` stores it for everything but binary data.
    Json,
    /// Raw bytes. `ctx.set` stores them for a `Uint8Array` or `ArrayBuffer`.
    Bytes,
}

const JSON: u8 = 0;
const BYTES: u8 = 1;

/// One field's value. Byte 0 is the kind (0 JSON, 1 bytes), the rest is the content.
#[derive(Clone, PartialEq, Eq)]
pub struct Value(Box<[u8]>);

impl Value {
    /// A value of `kind` with `content`. JSON content must be valid JSON text; the edge that made it has checked that.
    #[must_use]
    pub fn new(kind: ValueKind, content: &[u8]) -> Self {
        Self::written(kind, content.len(), |bytes| bytes.extend_from_slice(content))
    }

    /// A value whose content `put` appends; it has about `content_bytes` bytes.
    #[must_use]
    pub fn written(kind: ValueKind, content_bytes: usize, put: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut bytes = Vec::with_capacity(content_bytes + 1);
        bytes.push(match kind {
            ValueKind::Json => JSON,
            ValueKind::Bytes => BYTES,
        });
        put(&mut bytes);
        Self(bytes.into_boxed_slice())
    }

    /// A JSON value from its text.
    #[must_use]
    pub fn json(text: &str) -> Self {
        Self::new(ValueKind::Json, text.as_bytes())
    }

    /// Reads a value as encoded in a log entry or checkpoint row. `None` for an empty text or an
    /// unknown kind.
    #[must_use]
    pub fn from_encoded(encoded: &[u8]) -> Option<Self> {
        match encoded.first()? {
            &JSON | &BYTES => Some(Self(encoded.into())),
            _ => None,
        }
    }

    /// Kind byte and content.
    #[must_use]
    pub fn encoded(&self) -> &[u8] {
        &self.0
    }

    /// How to read [`Value::content`].
    #[must_use]
    pub fn kind(&self) -> ValueKind {
        if self.0[0] == JSON { ValueKind::Json } else { ValueKind::Bytes }
    }

    /// The bytes without the kind.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.0[1..]
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}({})", self.kind(), String::from_utf8_lossy(self.content()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_round_trip_and_unknown_ones_are_refused() {
        for kind in [ValueKind::Json, ValueKind::Bytes] {
            let value = Value::new(kind, b"17");
            let back = Value::from_encoded(value.encoded()).expect("a known kind");
            assert_eq!((back.kind(), back.content()), (kind, &b"17"[..]));
        }
        assert_eq!(Value::from_encoded(b""), None);
        assert_eq!(Value::from_encoded(b"\x02x"), None);
    }
}
