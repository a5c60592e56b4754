//! Conditions of reads, writes and deletions.

use millrace_api::objects::{ReadConditions, WriteConditions};

use super::Head;
use super::input::OVERRIDES;
use crate::error::{Code, S3Error};
use crate::limits;
use crate::times;

/// The conditions of a read, with what is read.
///
/// # Errors
/// `InvalidArgument` for a version or part that cannot be.
pub fn read(head: &Head<'_>, is_head: bool) -> Result<ReadConditions, S3Error> {
    Ok(ReadConditions {
        version: head.version()?,
        part_number: head.part_number()?,
        if_match: etags(head, "if-match")?,
        if_none_match: etags(head, "if-none-match")?,
        if_modified_since_ms: date(head, "if-modified-since")?,
        if_unmodified_since_ms: date(head, "if-unmodified-since")?,
        is_head,
        overrides_headers: OVERRIDES.iter().any(|(name, _)| head.query.has(name)),
    })
}

/// The conditions on the source of a copy.
///
/// # Errors
/// `InvalidArgument`.
pub fn source(head: &Head<'_>, version: Option<String>) -> Result<ReadConditions, S3Error> {
    Ok(ReadConditions {
        version,
        if_match: etags(head, "x-amz-copy-source-if-match")?,
        if_none_match: etags(head, "x-amz-copy-source-if-none-match")?,
        if_modified_since_ms: date(head, "x-amz-copy-source-if-modified-since")?,
        if_unmodified_since_ms: date(head, "x-amz-copy-source-if-unmodified-since")?,
        ..ReadConditions::default()
    })
}

/// The conditions of a write.
///
/// # Errors
/// `InvalidArgument`.
pub fn write(head: &Head<'_>) -> Result<WriteConditions, S3Error> {
    Ok(WriteConditions {
        if_match: etags(head, "if-match")?,
        if_none_match: etags(head, "if-none-match")?,
        ..WriteConditions::default()
    })
}

/// The conditions of a deletion.
///
/// # Errors
/// `InvalidArgument`.
pub fn delete(head: &Head<'_>) -> Result<WriteConditions, S3Error> {
    let invalid = |name: &str| S3Error::new(Code::InvalidArgument, format!("The header {name} is not valid."));
    let size = head.header("x-amz-if-match-size")?;
    let modified = head.header("x-amz-if-match-last-modified-time")?;
    Ok(WriteConditions {
        if_match: etags(head, "if-match")?,
        if_match_size_bytes: match size {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| invalid("x-amz-if-match-size"))?),
        },
        if_match_modified_ms: match modified {
            None => None,
            Some(text) => {
                Some(times::parse_http_date(text).ok_or_else(|| invalid("x-amz-if-match-last-modified-time"))?)
            }
        },
        ..WriteConditions::default()
    })
}

/// ETags of a condition, without quotes. A weak one counts as a strong one, as S3 has it.
fn etags(head: &Head<'_>, name: &str) -> Result<Vec<String>, S3Error> {
    let Some(text) = head.header(name)? else { return Ok(Vec::new()) };
    let mut etags = Vec::new();
    for etag in text.split(',').map(str::trim).filter(|etag| !etag.is_empty()) {
        if etags.len() == limits::CONDITION_ETAGS {
            return Err(S3Error::new(Code::InvalidArgument, format!("The header {name} has too many ETags.")));
        }
        let etag = etag.strip_prefix("W/").unwrap_or(etag);
        etags.push(etag.trim_matches('"').to_owned());
    }
    Ok(etags)
}

/// A date that cannot be read is passed over, as HTTP says.
fn date(head: &Head<'_>, name: &str) -> Result<Option<u64>, S3Error> {
    Ok(head.header(name)?.and_then(times::parse_http_date))
}
