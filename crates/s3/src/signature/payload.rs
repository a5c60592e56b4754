//! What a signature says about the body: `x-amz-content-sha256`.

use super::hex;
use crate::error::{Code, S3Error};

/// What was signed about the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Its SHA-256.
    Sha256([u8; 32]),
    /// Nothing.
    Unsigned,
    /// It comes in chunks.
    Chunked {
        /// Whether each chunk has a signature.
        is_signed: bool,
        /// Whether headers follow the last one.
        has_trailer: bool,
    },
}

impl Payload {
    /// Reads the header's value.
    ///
    /// # Errors
    ///
    /// If it is none of the forms that S3 documents.
    pub fn parse(text: &str) -> Result<Self, S3Error> {
        match text {
            "UNSIGNED-PAYLOAD" => Ok(Self::Unsigned),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => Ok(Self::Chunked { is_signed: true, has_trailer: false }),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => Ok(Self::Chunked { is_signed: true, has_trailer: true }),
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Ok(Self::Chunked { is_signed: false, has_trailer: true }),
            _ if text.starts_with("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD") => {
                Err(S3Error::new(Code::NotImplemented, "Signatures with asymmetric keys are not implemented."))
            }
            _ => hex::decode_32(text).map(Self::Sha256).ok_or_else(|| {
                let message =
                    "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, a STREAMING- form, or a valid sha256 value.";
                S3Error::new(Code::InvalidArgument, message)
            }),
        }
    }
}
