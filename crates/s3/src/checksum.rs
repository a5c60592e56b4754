//! Checksums and digests as clients write them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_api::objects::{Checksum, ChecksumAlgorithm, ChecksumKind};
use millrace_checksum::length_bytes;

use crate::algorithm;
use crate::error::{Code, S3Error};

/// Reads `x-amz-checksum-type`.
///
/// # Errors
///
/// If it is neither of the two.
pub fn kind(text: &str) -> Result<ChecksumKind, S3Error> {
    algorithm::kind_by_name(text)
        .ok_or_else(|| S3Error::new(Code::InvalidRequest, "Value for x-amz-checksum-type header is invalid."))
}

/// Reads `x-amz-sdk-checksum-algorithm` or `x-amz-checksum-algorithm`.
///
/// # Errors
///
/// If there is no such algorithm.
pub fn algorithm(text: &str) -> Result<ChecksumAlgorithm, S3Error> {
    algorithm::by_name(text).ok_or_else(|| {
        S3Error::new(
            Code::InvalidRequest,
            "Checksum algorithm provided is unsupported. Please try again with any of the valid types.",
        )
    })
}

/// Reads `x-amz-trailer`: the one checksum that it announces.
///
/// # Errors
///
/// If it announces anything else.
pub fn trailer(text: &str) -> Result<ChecksumAlgorithm, S3Error> {
    algorithm::by_header(&text.trim().to_ascii_lowercase()).ok_or_else(|| {
        S3Error::new(Code::InvalidRequest, "The value specified in the x-amz-trailer header is not supported")
    })
}

/// Reads a value, as headers, trailers and documents have it.
///
/// # Errors
///
/// As for [`value`].
pub fn read(algorithm: ChecksumAlgorithm, text: &str) -> Result<Checksum, S3Error> {
    let (value, parts) = value(algorithm, text)?;
    let kind = if parts.is_some() { ChecksumKind::Composite } else { ChecksumKind::FullObject };
    Ok(Checksum { algorithm, kind, value })
}

/// Reads a value, with the number of parts that stands behind a composite one.
///
/// # Errors
///
/// `InvalidRequest` if it cannot be a value of this algorithm. `BadDigest` if it is base64 that lacks characters: that is
/// the beginning of a value, and no content has it.
pub fn value(algorithm: ChecksumAlgorithm, text: &str) -> Result<(Vec<u8>, Option<u16>), S3Error> {
    let names = algorithm::names(algorithm);
    let invalid = || S3Error::new(Code::InvalidRequest, format!("Value for {} header is invalid.", names.header));
    // A hyphen is not in this base64 alphabet.
    let (encoded, parts) = match text.split_once('-') {
        Some((encoded, count)) => (encoded, Some(part_count(count).ok_or_else(invalid)?)),
        None => (text, None),
    };
    let is_cut =
        || !encoded.is_empty() && encoded.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte));
    let bytes = STANDARD.decode(encoded).map_err(|_| match is_cut() {
        true => S3Error::new(Code::BadDigest, format!("The {} you specified is cut off.", names.name)),
        false => invalid(),
    })?;
    if bytes.len() == length_bytes(algorithm) { Ok((bytes, parts)) } else { Err(invalid()) }
}

fn part_count(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|count| digits && (1..=10_000).contains(count))
}

/// Writes a value.
#[must_use]
pub fn text(value: &[u8], parts: Option<u16>) -> String {
    let encoded = STANDARD.encode(value);
    parts.map_or(encoded.clone(), |count| format!("{encoded}-{count}"))
}

/// Reads `Content-MD5`.
///
/// # Errors
///
/// `InvalidDigest` if it is not 16 bytes in base64.
pub fn content_md5(text: &str) -> Result<[u8; 16], S3Error> {
    let bytes = STANDARD.decode(text.trim()).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| S3Error::new(Code::InvalidDigest, "The Content-MD5 you specified was invalid."))
}
