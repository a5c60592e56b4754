//! The header `Range`.

use std::ops::Range;

/// Which bytes of a content are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of them.
    Whole,
    /// These.
    Part(Range<u64>),
    /// Some that it does not have.
    Outside,
}

/// Finds out which bytes are wanted of so many. A range that cannot be read, and more ranges than one, ask for the whole
/// content, as S3 has it.
#[must_use]
pub fn wanted(range: Option<&str>, length: u64) -> Wanted {
    let Some((first, last)) = range.and_then(one) else { return Wanted::Whole };
    match (first, last) {
        (Some(first), _) if first >= length => Wanted::Outside,
        (Some(first), last) => Wanted::Part(first..last.map_or(length, |last| last.saturating_add(1).min(length))),
        (None, Some(0)) => Wanted::Outside,
        (None, Some(_)) if length == 0 => Wanted::Outside,
        (None, Some(count)) => Wanted::Part(length.saturating_sub(count)..length),
        (None, None) => Wanted::Whole,
    }
}

/// First and last of a single range.
fn one(text: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| match text.trim() {
        "" => Some(None),
        text if text.bytes().all(|byte| byte.is_ascii_digit()) => Some(Some(text.parse().unwrap_or(u64::MAX))),
        _ => None,
    };
    let (first, last) = (number(first)?, number(last)?);
    match (first, last) {
        (Some(first), Some(last)) if first > last => None,
        _ => Some((first, last)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_documented() {
        for (text, wanted_bytes) in [
            ("bytes=0-0", Wanted::Part(0..1)),
            ("bytes=2-", Wanted::Part(2..10)),
            ("bytes=-3", Wanted::Part(7..10)),
            ("bytes=-30", Wanted::Part(0..10)),
            ("bytes=5-100", Wanted::Part(5..10)),
            ("bytes=9-99999999999999999999999", Wanted::Part(9..10)),
            ("bytes=10-", Wanted::Outside),
            ("bytes=40-50", Wanted::Outside),
            ("bytes=-0", Wanted::Outside),
            ("bytes=0-1,4-5", Wanted::Whole),
            ("bytes=5-4", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=a-b", Wanted::Whole),
            ("items=0-1", Wanted::Whole),
            ("", Wanted::Whole),
        ] {
            assert_eq!(wanted(Some(text), 10), wanted_bytes, "{text}");
        }
        assert_eq!(wanted(None, 10), Wanted::Whole);
        assert_eq!(wanted(Some("bytes=0-"), 0), Wanted::Outside);
        assert_eq!(wanted(Some("bytes=-1"), 0), Wanted::Outside);
    }
}
