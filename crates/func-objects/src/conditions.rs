//! Conditions of reads, copies and writes (`If-Match` and its relatives).
//!
//! The order of reads is that of RFC 9110, section 13.2.2, as S3 documents it: an ETag that is named counts more than a
//! time. Must not know how versions are kept.

use millrace_api::objects::{ReadConditions, Refusal, WriteConditions};

/// What conditions are compared with: an object's current version, or the version that was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Present<'a> {
    /// Without quotes.
    pub etag: &'a str,
    /// Unix milliseconds. HTTP names whole seconds, so only these are compared.
    pub modified_ms: u64,
    /// The content's bytes.
    pub size_bytes: u64,
}

const fn seconds(time_ms: u64) -> u64 {
    time_ms / 1000
}

fn names(etags: &[String], etag: &str) -> bool {
    etags.iter().any(|one| one == "*" || one == etag)
}

/// Whether a version may be read.
///
/// # Errors
/// `PreconditionFailed`, or `NotModified` where the client has it already.
pub fn check_read(conditions: &ReadConditions, present: Present<'_>) -> Result<(), Refusal> {
    let is_after = |limit_ms: u64| seconds(present.modified_ms) > seconds(limit_ms);
    if !conditions.if_match.is_empty() {
        if !names(&conditions.if_match, present.etag) {
            return Err(Refusal::PreconditionFailed);
        }
    } else if conditions.if_unmodified_since_ms.is_some_and(is_after) {
        return Err(Refusal::PreconditionFailed);
    }
    if !conditions.if_none_match.is_empty() {
        if names(&conditions.if_none_match, present.etag) {
            return Err(Refusal::NotModified);
        }
    } else if conditions.if_modified_since_ms.is_some_and(|limit_ms| !is_after(limit_ms)) {
        return Err(Refusal::NotModified);
    }
    Ok(())
}

/// Whether a version may be copied. A copy has nothing to answer `NotModified` with.
///
/// # Errors
/// `PreconditionFailed`.
pub fn check_source(conditions: &ReadConditions, present: Present<'_>) -> Result<(), Refusal> {
    check_read(conditions, present).map_err(|_| Refusal::PreconditionFailed)
}

/// Whether an object may be written over what is there: a current version that is not a delete marker, or nothing.
///
/// # Errors
/// `NoSuchKey` where `If-Match` finds nothing, `PreconditionFailed`.
pub fn check_write(conditions: &WriteConditions, present: Option<Present<'_>>) -> Result<(), Refusal> {
    let Some(present) = present else {
        return if conditions.if_match.is_empty() { Ok(()) } else { Err(Refusal::NoSuchKey) };
    };
    let is_match = conditions.if_match.is_empty() || names(&conditions.if_match, present.etag);
    let is_refused = names(&conditions.if_none_match, present.etag);
    if is_match && !is_refused { Ok(()) } else { Err(Refusal::PreconditionFailed) }
}

/// Whether what is there may be deleted. Nothing there is what the caller wants, so every condition holds.
///
/// # Errors
/// `PreconditionFailed`.
pub fn check_delete(conditions: &WriteConditions, present: Option<Present<'_>>) -> Result<(), Refusal> {
    let Some(present) = present else { return Ok(()) };
    check_write(conditions, Some(present))?;
    let has_size = conditions.if_match_size_bytes.is_none_or(|size_bytes| size_bytes == present.size_bytes);
    let has_time =
        conditions.if_match_modified_ms.is_none_or(|time_ms| seconds(time_ms) == seconds(present.modified_ms));
    if has_size && has_time { Ok(()) } else { Err(Refusal::PreconditionFailed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Outcome = Result<(), Refusal>;
    type Read = (&'static str, &'static str, Option<u64>, Option<u64>, Outcome);

    const NOW: Present<'_> = Present { etag: "e", modified_ms: 5_500, size_bytes: 3 };

    fn etags(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn reads_follow_the_table() {
        use Refusal::{NotModified, PreconditionFailed};
        // If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since, what comes of a read.
        let table: &[Read] = &[
            ("", "", None, None, Ok(())),
            ("e", "", None, None, Ok(())),
            ("x e", "", None, None, Ok(())),
            ("*", "", None, None, Ok(())),
            ("x", "", None, None, Err(PreconditionFailed)),
            ("", "x", None, None, Ok(())),
            ("", "e", None, None, Err(NotModified)),
            ("", "x e", None, None, Err(NotModified)),
            ("", "*", None, None, Err(NotModified)),
            ("", "", Some(4_999), None, Ok(())),
            ("", "", Some(5_000), None, Err(NotModified)),
            ("", "", Some(9_000), None, Err(NotModified)),
            ("", "", None, Some(4_000), Err(PreconditionFailed)),
            ("", "", None, Some(5_000), Ok(())),
            ("", "", None, Some(9_000), Ok(())),
            // An ETag that is named counts more than a time.
            ("e", "", None, Some(4_000), Ok(())),
            ("x", "", None, Some(9_000), Err(PreconditionFailed)),
            ("", "x", Some(9_000), None, Ok(())),
            ("", "e", Some(4_000), None, Err(NotModified)),
            // The first that fails is told.
            ("x", "e", None, None, Err(PreconditionFailed)),
            ("e", "e", None, None, Err(NotModified)),
        ];
        for (if_match, if_none_match, since, unless, expected) in table {
            let conditions = ReadConditions {
                if_match: etags(if_match),
                if_none_match: etags(if_none_match),
                if_modified_since_ms: *since,
                if_unmodified_since_ms: *unless,
                ..ReadConditions::default()
            };
            assert_eq!(check_read(&conditions, NOW), *expected, "{conditions:?}");
            let of_copy = expected.map_err(|_| PreconditionFailed);
            assert_eq!(check_source(&conditions, NOW), of_copy, "{conditions:?}");
        }
    }

    #[test]
    fn writes_follow_the_table() {
        use Refusal::{NoSuchKey, PreconditionFailed};
        // If-Match, If-None-Match; over an object, over nothing.
        let table: &[(&str, &str, Outcome, Outcome)] = &[
            ("", "", Ok(()), Ok(())),
            ("e", "", Ok(()), Err(NoSuchKey)),
            ("*", "", Ok(()), Err(NoSuchKey)),
            ("x", "", Err(PreconditionFailed), Err(NoSuchKey)),
            ("", "*", Err(PreconditionFailed), Ok(())),
            ("", "e", Err(PreconditionFailed), Ok(())),
            ("", "x", Ok(()), Ok(())),
            ("e", "*", Err(PreconditionFailed), Err(NoSuchKey)),
        ];
        for (if_match, if_none_match, over, fresh) in table {
            let conditions = WriteConditions {
                if_match: etags(if_match),
                if_none_match: etags(if_none_match),
                ..WriteConditions::default()
            };
            assert_eq!(check_write(&conditions, Some(NOW)), *over, "{conditions:?}");
            assert_eq!(check_write(&conditions, None), *fresh, "{conditions:?}");
            assert_eq!(check_delete(&conditions, Some(NOW)), *over, "{conditions:?}");
            assert_eq!(check_delete(&conditions, None), Ok(()), "{conditions:?}");
        }
    }

    #[test]
    fn deletions_compare_size_and_time_too() {
        for (size_bytes, modified_ms, holds) in [
            (None, None, true),
            (Some(3), None, true),
            (Some(4), None, false),
            (None, Some(5_000), true),
            (None, Some(6_000), false),
            (Some(3), Some(6_000), false),
        ] {
            let conditions = WriteConditions {
                if_match_size_bytes: size_bytes,
                if_match_modified_ms: modified_ms,
                ..WriteConditions::default()
            };
            assert_eq!(check_delete(&conditions, Some(NOW)).is_ok(), holds, "{conditions:?}");
            assert_eq!(check_delete(&conditions, None), Ok(()));
        }
    }
}
