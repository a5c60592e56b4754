//! Which bucket and object a request is about.

use percent_encoding::percent_decode_str;

use super::names::{check_bucket_name, check_key};
use crate::error::{Code, S3Error};

/// The path of `WriteGetObjectResponse`, an operation without a bucket. No bucket has such a name.
const OBJECT_LAMBDA: &str = "WriteGetObjectResponse";

/// A bucket and a key, decoded; empty where none is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The bucket.
    pub bucket: String,
    /// The key. It is never normalised: `..` and `//` are part of it.
    pub key: String,
    /// The bucket came from the host.
    pub is_virtual_host: bool,
}

/// Finds them in the host, if it is under one of our domains, or else in the path.
///
/// # Errors
/// `InvalidURI`, `InvalidBucketName`, `KeyTooLongError`.
pub fn target(host: &str, domains: &[String], path: &str) -> Result<Target, S3Error> {
    let path = path.strip_prefix('/').ok_or(Code::InvalidUri)?;
    if let Some(bucket) = bucket_of_host(host, domains) {
        check_bucket_name(&bucket)?;
        return Ok(Target { bucket, key: decode_key(path)?, is_virtual_host: true });
    }
    if path.is_empty() {
        return Ok(Target::default());
    }
    if path == OBJECT_LAMBDA {
        return Err(S3Error::new(Code::NotImplemented, "Object Lambda is not implemented."));
    }
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    let bucket = decode(bucket)?;
    check_bucket_name(&bucket)?;
    Ok(Target { bucket, key: decode_key(key)?, is_virtual_host: false })
}

fn bucket_of_host(host: &str, domains: &[String]) -> Option<String> {
    let host = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let host = host.to_ascii_lowercase();
    domains.iter().find_map(|domain| {
        let bucket = host.strip_suffix(domain.as_str())?.strip_suffix('.')?;
        (!bucket.is_empty()).then(|| bucket.to_owned())
    })
}

fn decode_key(raw: &str) -> Result<String, S3Error> {
    let key = decode(raw)?;
    check_key(&key)?;
    Ok(key)
}

/// In a path, `+` is itself.
fn decode(raw: &str) -> Result<String, S3Error> {
    match percent_decode_str(raw).decode_utf8() {
        Ok(decoded) => Ok(decoded.into_owned()),
        Err(_) => Err(S3Error::new(Code::InvalidUri, "Couldn't parse the specified URI.")),
    }
}
