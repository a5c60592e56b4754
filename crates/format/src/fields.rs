//! Length-prefixed pieces shared by the formats of this crate.

use millrace_base::{Error, ErrorCode};

use crate::DecodeError;

/// Appends `text` behind its 4-byte little-endian length.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

/// Appends `bytes` behind their 4-byte little-endian length.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("limits keep fields below 4 GiB");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Appends an error: code, message, whether there is a detail, detail.
pub(crate) fn put_error(out: &mut Vec<u8>, error: &Error) {
    put_text(out, error.code.as_str());
    put_text(out, &error.message);
    out.push(u8::from(error.detail.is_some()));
    put_text(out, error.detail.as_deref().unwrap_or_default());
}

/// Takes fixed-size and length-prefixed pieces off the front of a byte string.
pub(crate) struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Length)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| DecodeError::Length)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    pub(crate) fn text(&mut self) -> Result<String, DecodeError> {
        std::str::from_utf8(self.bytes()?).map(str::to_owned).map_err(|_| DecodeError::Length)
    }

    /// What [`put_error`] wrote. A code of a later version reads as `internal`.
    pub(crate) fn error(&mut self) -> Result<Error, DecodeError> {
        let code = ErrorCode::parse(&self.text()?).unwrap_or(ErrorCode::Internal);
        let message = self.text()?;
        let [has_detail] = self.array()?;
        let detail = self.text()?;
        Ok(Error { code, message, detail: (has_detail == 1).then_some(detail) })
    }

    /// Takes a version byte, and refuses any but the known one.
    pub(crate) fn version(&mut self, known: u8) -> Result<(), DecodeError> {
        let [version] = self.array()?;
        if version == known { Ok(()) } else { Err(DecodeError::Version(version)) }
    }

    /// Takes all bytes that are left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Refuses bytes behind the structure's end.
    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Length) }
    }
}
