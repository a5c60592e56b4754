//! Pieces of payloads. Integers are big-endian, as on the wire.

use bytes::Bytes;
use millrace_base::{Value, ValueKind};

use super::WorkerFrameError;

/// A field's value, or a handler's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameValue {
    /// JSON text.
    Json(Bytes),
    /// Raw bytes.
    Raw(Bytes),
}

impl FrameValue {
    /// The JSON text, or the bytes.
    #[must_use]
    pub fn content(&self) -> &Bytes {
        match self {
            Self::Json(content) | Self::Raw(content) => content,
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Json(_) => 0,
            Self::Raw(_) => 1,
        }
    }

    /// As it is stored.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Self::Json(content) => Value::new(ValueKind::Json, content),
            Self::Raw(content) => Value::new(ValueKind::Bytes, content),
        }
    }

    /// A stored value.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        let content = Bytes::copy_from_slice(value.content());
        match value.kind() {
            ValueKind::Json => Self::Json(content),
            ValueKind::Bytes => Self::Raw(content),
        }
    }
}

/// An error on the wire. Its code is a text, because workers may be newer or wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameError {
    /// The code's text.
    pub code: String,
    /// What happened, for a person.
    pub message: String,
    /// JSON text, or nothing.
    pub detail: Bytes,
}

/// What became of an operation.
pub type FrameResult = Result<FrameValue, FrameError>;

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

pub(super) fn put_length(out: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).expect("limits keep frames below 4 GiB");
    out.extend_from_slice(&length.to_be_bytes());
}

pub(super) fn put_value(out: &mut Vec<u8>, value: &FrameValue) {
    out.push(value.kind());
    put_bytes(out, value.content());
}

pub(super) fn put_error(out: &mut Vec<u8>, error: &FrameError) {
    put_bytes(out, error.code.as_bytes());
    put_bytes(out, error.message.as_bytes());
    put_bytes(out, &error.detail);
}

pub(super) fn put_result(out: &mut Vec<u8>, result: &FrameResult) {
    match result {
        Ok(value) => {
            out.push(0);
            put_value(out, value);
        }
        Err(error) => {
            out.push(1);
            put_error(out, error);
        }
    }
}

/// Takes pieces off the front of a payload, which they share the memory of.
pub(super) struct PayloadReader {
    rest: Bytes,
}

impl PayloadReader {
    pub(super) fn new(payload: Bytes) -> Self {
        Self { rest: payload }
    }

    fn take(&mut self, length: usize) -> Result<Bytes, WorkerFrameError> {
        if length > self.rest.len() {
            return Err(WorkerFrameError::Length);
        }
        Ok(self.rest.split_to(length))
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WorkerFrameError> {
        let taken = self.take(N)?;
        <[u8; N]>::try_from(&taken[..]).map_err(|_| WorkerFrameError::Length)
    }

    pub(super) fn byte(&mut self) -> Result<u8, WorkerFrameError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    pub(super) fn u32(&mut self) -> Result<u32, WorkerFrameError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, WorkerFrameError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, WorkerFrameError> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    pub(super) fn text(&mut self) -> Result<String, WorkerFrameError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(&bytes).map(str::to_owned).map_err(|_| WorkerFrameError::Text)
    }

    pub(super) fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, WorkerFrameError>,
    ) -> Result<Option<T>, WorkerFrameError> {
        match self.byte()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            form => Err(WorkerFrameError::Form(form)),
        }
    }

    pub(super) fn value(&mut self) -> Result<FrameValue, WorkerFrameError> {
        match self.byte()? {
            0 => self.bytes().map(FrameValue::Json),
            1 => self.bytes().map(FrameValue::Raw),
            form => Err(WorkerFrameError::Form(form)),
        }
    }

    pub(super) fn error(&mut self) -> Result<FrameError, WorkerFrameError> {
        Ok(FrameError { code: self.text()?, message: self.text()?, detail: self.bytes()? })
    }

    pub(super) fn result(&mut self) -> Result<FrameResult, WorkerFrameError> {
        match self.byte()? {
            0 => self.value().map(Ok),
            1 => self.error().map(Err),
            form => Err(WorkerFrameError::Form(form)),
        }
    }

    /// A count of pieces, each of which has at least `least_bytes`.
    pub(super) fn count(&mut self, least_bytes: usize) -> Result<usize, WorkerFrameError> {
        let count = self.u32()? as usize;
        if count > self.rest.len() / least_bytes { Err(WorkerFrameError::Length) } else { Ok(count) }
    }

    pub(super) fn end(&self) -> Result<(), WorkerFrameError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WorkerFrameError::Length) }
    }
}
