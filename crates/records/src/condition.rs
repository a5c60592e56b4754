//! Entity tags: `ETag`, `If-Match`, `If-None-Match`.
//!
//! A tag names a record's content, whatever form it is answered in. So a tag got with JSON is good for a conditional
//! write in Avro.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use millrace_api::Condition;
use millrace_base::{Error, ErrorCode};

use crate::url::refused;

/// Tags one header may list: a client that knows more versions than that does not know which it has.
const TAGS: usize = 64;

/// Writes `"0123456789abcdef"`.
pub(crate) fn write_tag(tag: u64, text: &mut [u8]) -> usize {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text[0] = b'"';
    for (index, byte) in text[1..17].iter_mut().enumerate() {
        *byte = DIGITS[(tag >> (60 - 4 * index) & 15) as usize];
    }
    text[17] = b'"';
    18
}

/// What one of the two headers lists.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Tags {
    /// `*`.
    Any,
    /// Those that can be tags of ours; others match nothing.
    These(Vec<u64>),
}

impl Tags {
    /// The header's tags. Weak ones count only where `takes_weak`.
    fn of(headers: &HeaderMap, name: HeaderName, takes_weak: bool) -> Result<Option<Self>, Error> {
        let mut found: Option<Vec<u64>> = None;
        for value in headers.get_all(&name) {
            let text = value.to_str().map_err(|_| refused(format!("{name} is not text")))?;
            if text.trim() == "*" {
                return Ok(Some(Tags::Any));
            }
            let tags = found.get_or_insert_default();
            for item in text.split(',') {
                let item = item.trim();
                let (is_weak, item) = item.strip_prefix("W/").map_or((false, item), |strong| (true, strong));
                let quoted = item.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
                let inner = quoted.ok_or_else(|| refused(format!("{name} takes * or tags as ETag gives them")))?;
                if tags.len() >= TAGS {
                    return Err(refused(format!("{name} lists more than {TAGS} tags")));
                }
                if inner.len() == 16
                    && (takes_weak || !is_weak)
                    && let Ok(tag) = u64::from_str_radix(inner, 16)
                {
                    tags.push(tag);
                }
            }
        }
        Ok(found.map(Tags::These))
    }

    fn holds(&self, tag: u64) -> bool {
        match self {
            Tags::Any => true,
            Tags::These(tags) => tags.contains(&tag),
        }
    }
}

fn failed() -> Error {
    Error::new(ErrorCode::PreconditionFailed, "no tag of If-Match is the record's")
}

/// The condition of a write.
///
/// # Errors
/// `bad-request` for headers that cannot be read, and for both; `precondition-failed` where no tag
/// could ever match.
pub(crate) fn of_write(headers: &HeaderMap) -> Result<Condition, Error> {
    let wanted = Tags::of(headers, header::IF_MATCH, false)?;
    let unwanted = Tags::of(headers, header::IF_NONE_MATCH, true)?;
    match (wanted, unwanted) {
        (Some(_), Some(_)) => Err(refused("send If-Match or If-None-Match, not both")),
        (Some(Tags::Any), None) => Ok(Condition::Match(Vec::new())),
        // An empty list means "any" to the engine.
        (Some(Tags::These(tags)), None) if tags.is_empty() => Err(failed()),
        (Some(Tags::These(tags)), None) => Ok(Condition::Match(tags)),
        (None, Some(Tags::Any)) => Ok(Condition::NoneMatch(Vec::new())),
        (None, Some(Tags::These(tags))) if tags.is_empty() => Ok(Condition::None),
        (None, Some(Tags::These(tags))) => Ok(Condition::NoneMatch(tags)),
        (None, None) => Ok(Condition::None),
    }
}

/// Whether a read need not be answered with its body.
///
/// # Errors
/// `bad-request` for headers that cannot be read; `precondition-failed` where `If-Match` does not hold.
pub(crate) fn is_not_modified(headers: &HeaderMap, tag: Option<u64>) -> Result<bool, Error> {
    let Some(tag) = tag else {
        return Ok(false);
    };
    if Tags::of(headers, header::IF_MATCH, false)?.is_some_and(|tags| !tags.holds(tag)) {
        return Err(failed());
    }
    Ok(Tags::of(headers, header::IF_NONE_MATCH, true)?.is_some_and(|tags| tags.holds(tag)))
}

/// A tag as a header's value; tests compare it with what is sent.
#[must_use]
pub fn tag_value(tag: u64) -> HeaderValue {
    let mut text = [0; 18];
    let length = write_tag(tag, &mut text);
    HeaderValue::from_bytes(&text[..length]).expect("quotes and hexadecimal digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value"))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn a_tag_reads_back_as_written() {
        assert_eq!(tag_value(0x12ab), "\"00000000000012ab\"");
        for tag in [0, 1, u64::MAX] {
            let sent = headers(&[("if-match", tag_value(tag).to_str().expect("ASCII"))]);
            assert_eq!(of_write(&sent), Ok(Condition::Match(vec![tag])));
        }
    }

    #[test]
    fn conditions_of_writes() {
        let one = "\"0000000000000001\"";
        for (lines, condition) in [
            (&[][..], Condition::None),
            (&[("if-match", "*")], Condition::Match(vec![])),
            (&[("if-none-match", " * ")], Condition::NoneMatch(vec![])),
            (&[("if-none-match", "W/\"0000000000000001\", \"x\"")], Condition::NoneMatch(vec![1])),
            (&[("if-none-match", "\"abc\"")], Condition::None),
            (&[("if-match", one), ("if-match", "\"0000000000000002\"")], Condition::Match(vec![1, 2])),
        ] {
            assert_eq!(of_write(&headers(lines)), Ok(condition), "{lines:?}");
        }
        for (lines, code) in [
            (&[("if-match", "\"abc\"")][..], ErrorCode::PreconditionFailed),
            (&[("if-match", "W/\"0000000000000001\"")], ErrorCode::PreconditionFailed),
            (&[("if-match", "1")], ErrorCode::BadRequest),
            (&[("if-match", "")], ErrorCode::BadRequest),
            (&[("if-match", one), ("if-none-match", one)], ErrorCode::BadRequest),
        ] {
            assert_eq!(of_write(&headers(lines)).map_err(|error| error.code), Err(code), "{lines:?}");
        }
        let many = vec![one; TAGS + 1].join(",");
        assert!(of_write(&headers(&[("if-match", &many)])).is_err());
    }

    #[test]
    fn conditions_of_reads() {
        let one = "\"0000000000000001\"";
        assert_eq!(is_not_modified(&headers(&[("if-none-match", one)]), Some(1)), Ok(true));
        assert_eq!(is_not_modified(&headers(&[("if-none-match", one)]), Some(2)), Ok(false));
        assert_eq!(is_not_modified(&headers(&[("if-none-match", "*")]), Some(2)), Ok(true));
        assert_eq!(is_not_modified(&headers(&[("if-none-match", "*")]), None), Ok(false));
        assert_eq!(is_not_modified(&headers(&[("if-match", one)]), Some(1)), Ok(false));
        assert!(is_not_modified(&headers(&[("if-match", one)]), Some(2)).is_err());
    }
}
