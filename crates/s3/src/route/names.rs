//! Which names buckets and objects can have.

use std::net::Ipv4Addr;

use crate::error::{Code, S3Error};

/// Bytes of a key, as S3 documents it.
const KEY_BYTES: usize = 1024;

const FORBIDDEN_STARTS: [&str; 3] = ["xn--", "sthree-", "amzn-s3-demo-"];
const FORBIDDEN_ENDS: [&str; 5] = ["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"];

/// Refuses what cannot name a bucket.
///
/// # Errors
/// `InvalidBucketName`.
pub fn check_bucket_name(name: &str) -> Result<(), S3Error> {
    let is_edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_valid = (3..=63).contains(&name.len())
        && name.bytes().all(|byte| is_edge(byte) || byte == b'.' || byte == b'-')
        && name.bytes().next().is_some_and(is_edge)
        && name.bytes().last().is_some_and(is_edge)
        && !name.contains("..")
        && name.parse::<Ipv4Addr>().is_err()
        && !FORBIDDEN_STARTS.iter().any(|start| name.starts_with(start))
        && !FORBIDDEN_ENDS.iter().any(|end| name.ends_with(end));
    let message = "The specified bucket is not valid. A name has 3 to 63 lower-case letters, digits, dots and hyphens. It \
                   begins and ends with a letter or a digit, and is no IP address.";
    if is_valid { Ok(()) } else { Err(S3Error::new(Code::InvalidBucketName, message)) }
}

/// Refuses what cannot name an object.
///
/// # Errors
/// `KeyTooLongError`; `InvalidURI` for a zero byte, which separates keys from uploads inside.
pub fn check_key(key: &str) -> Result<(), S3Error> {
    if key.len() > KEY_BYTES {
        return Err(S3Error::new(Code::KeyTooLong, "Your key is too long"));
    }
    if key.contains('\0') {
        return Err(S3Error::new(Code::InvalidUri, "A key cannot contain a zero byte."));
    }
    Ok(())
}
