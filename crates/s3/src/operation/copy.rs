//! Copies: what is copied, and what of it.

use millrace_api::objects::CopyInput;
use percent_encoding::percent_decode_str;

use super::Head;
use crate::error::{Code, S3Error};
use crate::route::{check_bucket_name, check_key};

/// What is copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: String,
    /// The version, if one is named.
    pub version: Option<String>,
}

impl Source {
    /// As policies may ask about it. The directive is empty if the request has none.
    #[must_use]
    pub fn input(&self, metadata_directive: &str) -> CopyInput {
        CopyInput {
            source: format!("{}/{}", self.bucket, self.key),
            version: self.version.clone(),
            metadata_directive: metadata_directive.to_owned(),
        }
    }
}

/// Reads `x-amz-copy-source`: `[/]bucket/key[?versionId=…]`, percent-encoded.
///
/// # Errors
/// `InvalidArgument`; `InvalidBucketName`, `KeyTooLongError`.
pub fn source(head: &Head<'_>) -> Result<Source, S3Error> {
    let text = head.header("x-amz-copy-source")?.unwrap_or_default();
    let (path, version) = match text.rsplit_once("?versionId=") {
        Some((path, version)) => (path, Some(version)),
        None => (text, None),
    };
    let invalid = || {
        S3Error::new(
            Code::InvalidArgument,
            "Copy Source must mention the source bucket and key: sourcebucket/sourcekey",
        )
        .with("ArgumentName", "x-amz-copy-source")
        .with("ArgumentValue", text)
    };
    if path.starts_with("arn:") {
        return Err(S3Error::new(Code::NotImplemented, "Access points are not implemented."));
    }
    let path = percent_decode_str(path).decode_utf8().map_err(|_| invalid())?;
    let path = path.strip_prefix('/').unwrap_or(&path);
    let (bucket, key) = path.split_once('/').filter(|(_, key)| !key.is_empty()).ok_or_else(invalid)?;
    check_bucket_name(bucket)?;
    check_key(key)?;
    let version = match version {
        Some("") => return Err(S3Error::new(Code::InvalidArgument, "Version id cannot be the empty string")),
        Some(version) => Some(percent_decode_str(version).decode_utf8().map_err(|_| invalid())?.into_owned()),
        None => None,
    };
    Ok(Source { bucket: bucket.to_owned(), key: key.to_owned(), version })
}

/// Whether a request says anything of a source.
#[must_use]
pub fn has_conditions(head: &Head<'_>) -> bool {
    head.headers.keys().any(|name| name.as_str().starts_with("x-amz-copy-source"))
}

/// Reads `x-amz-copy-source-range`: `bytes=first-last` and nothing else.
///
/// # Errors
/// `InvalidArgument`.
pub fn range(head: &Head<'_>) -> Result<Option<std::ops::Range<u64>>, S3Error> {
    let Some(text) = head.header("x-amz-copy-source-range")? else { return Ok(None) };
    let range = text.strip_prefix("bytes=").and_then(|range| range.split_once('-')).and_then(|(first, last)| {
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then(|| last.checked_add(1).map(|end| first..end)).flatten()
    });
    match range {
        Some(range) => Ok(Some(range)),
        None => Err(S3Error::new(
            Code::InvalidArgument,
            "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the \
             zero-based offsets of the first and last bytes to copy",
        )
        .with("ArgumentName", "x-amz-copy-source-range")
        .with("ArgumentValue", text)),
    }
}

/// Whether a directive says that the request's own values count, and not the source's.
///
/// # Errors
/// `InvalidArgument` for another value.
pub fn replaces(head: &Head<'_>, name: &str) -> Result<bool, S3Error> {
    match head.header(name)? {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(value) => Err(S3Error::new(Code::InvalidArgument, "Unknown directive.")
            .with("ArgumentName", name)
            .with("ArgumentValue", value)),
    }
}
