//! Strict readers of what arrives inside a URL or a header: keys and queries. None of them panics or allocates beyond the input's size.

use std::borrow::Cow;

pub use millrace_base::url::{decode, decode_text};
use millrace_base::{Error, ErrorCode, limits};

/// A `bad-request`.
pub(crate) fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::BadRequest, message)
}

/// Decodes an entity's key.
///
/// # Errors
/// As [`decode`], and for a key that is empty or longer than [`limits::KEY_BYTES`].
pub fn decode_key(text: &str) -> Result<Cow<'_, [u8]>, Error> {
    bounded(decode(text)?, "key", limits::KEY_BYTES)
}

/// Checks that `bytes` are there and not too many.
///
/// # Errors
/// `bad-request`.
pub fn bounded<'a>(bytes: Cow<'a, [u8]>, what: &str, limit: usize) -> Result<Cow<'a, [u8]>, Error> {
    if bytes.is_empty() {
        return Err(refused(format!("the {what} in the URL is empty")));
    }
    if bytes.len() > limit {
        return Err(refused(format!("the {what} is {} bytes long; at most {limit} are allowed", bytes.len())));
    }
    Ok(bytes)
}

/// Whether a text is a number of digits and nothing else.
#[must_use]
pub fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The parameters of a query, still encoded.
pub(crate) fn pairs(query: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = query.unwrap_or_default();
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let (pair, others) = cut(rest, b'&');
            rest = others;
            if !pair.is_empty() {
                return Some(cut(pair, b'='));
            }
        }
        None
    })
}

/// What comes before the first `mark`, and what after it. Parameters are short: a plain loop is
/// quicker than a searcher.
fn cut(text: &str, mark: u8) -> (&str, &str) {
    debug_assert!(mark.is_ascii(), "so that both parts are text");
    match text.bytes().position(|byte| byte == mark) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, ""),
    }
}

/// The error for a parameter that an operation does not know: passed over, a misspelt condition
/// would change or show what nobody asked for.
pub(crate) fn unknown(name: &str) -> Error {
    let shown: String = name.chars().take(100).collect();
    refused(format!("the query parameter {shown:?} means nothing here; see /openapi.json"))
}

/// Checks that a query is empty.
pub(crate) fn no_parameters(query: Option<&str>) -> Result<(), Error> {
    pairs(query).next().map_or(Ok(()), |(name, _)| Err(unknown(name)))
}

/// Keeps a parameter's value, which may be there once.
pub(crate) fn once<T>(slot: &mut Option<T>, name: &str, value: T) -> Result<(), Error> {
    if slot.replace(value).is_some() {
        return Err(refused(format!("the query parameter {name} occurs twice")));
    }
    Ok(())
}

/// Decodes a query's value as forms and client libraries encode it: `+` is a space.
pub(crate) fn form_text(value: &str) -> Result<Cow<'_, str>, Error> {
    if !value.contains('+') {
        return decode_text(value);
    }
    Ok(Cow::Owned(decode_text(&value.replace('+', " "))?.into_owned()))
}

/// Reads `true`, `1` or nothing, as in `?force`, and `false` or `0`.
pub(crate) fn flag(name: &str, value: &str) -> Result<bool, Error> {
    // Python's clients write True and False.
    match value {
        "" | "1" | "true" | "True" => Ok(true),
        "0" | "false" | "False" => Ok(false),
        _ => Err(refused(format!("{name} is true or false"))),
    }
}

/// Reads a whole number.
pub(crate) fn number(name: &str, value: &str) -> Result<u64, Error> {
    let number = if is_digits(value) { value.parse().ok() } else { None };
    number.ok_or_else(|| refused(format!("{name} must be a whole number, such as {name}=100")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_forms_write_it() {
        let read: Vec<_> = pairs(Some("a=1&&b&c=x=y")).collect();
        assert_eq!(read, [("a", "1"), ("b", ""), ("c", "x=y")]);
        assert_eq!(form_text(".age+%3E+6%2B1"), Ok(Cow::Borrowed(".age > 6+1")));
        assert!(matches!(form_text("a%20b"), Ok(Cow::Owned(_))) && matches!(form_text("ab"), Ok(Cow::Borrowed(_))));
        assert!(form_text("+%zz").is_err() && form_text("%ff").is_err());
        assert_eq!((flag("x", ""), flag("x", "True"), flag("x", "0")), (Ok(true), Ok(true), Ok(false)));
        assert!(flag("x", "yes").is_err());
        assert_eq!(number("n", "12"), Ok(12));
        assert!(number("n", "").is_err() && number("n", "+1").is_err() && number("n", &"9".repeat(30)).is_err());
        assert_eq!(no_parameters(Some("&")), Ok(()));
        assert!(no_parameters(Some("x")).expect_err("unknown").message.contains("\"x\""));
        let mut slot = None;
        assert!(once(&mut slot, "a", 1).is_ok() && once(&mut slot, "a", 1).is_err());
    }
}
