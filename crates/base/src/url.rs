//! The strict reader of percent-encoded text (RFC 3986, 2.1). It allocates no more than the input's size.

use std::borrow::Cow;

use crate::{Error, ErrorCode};

fn refused(message: &str) -> Error {
    Error::new(ErrorCode::BadRequest, message)
}

/// Decodes one path segment (or any other percent-encoded text) to bytes. Copies only if there is something to decode.
///
/// # Errors
/// `bad-request` for a `%` that is not followed by two hexadecimal digits.
pub fn decode(text: &str) -> Result<Cow<'_, [u8]>, Error> {
    let bytes = text.as_bytes();
    let Some(first) = bytes.iter().position(|byte| *byte == b'%') else {
        return Ok(Cow::Borrowed(bytes));
    };
    let mut decoded = Vec::with_capacity(bytes.len());
    decoded.extend_from_slice(&bytes[..first]);
    let mut rest = bytes[first..].iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            decoded.push(*byte);
            continue;
        }
        match (rest.next().and_then(hex_digit), rest.next().and_then(hex_digit)) {
            (Some(high), Some(low)) => decoded.push(high << 4 | low),
            _ => return Err(refused("the URL holds a % that is not followed by two hexadecimal digits")),
        }
    }
    Ok(Cow::Owned(decoded))
}

fn hex_digit(byte: &u8) -> Option<u8> {
    (*byte as char).to_digit(16).map(|digit| digit as u8)
}

/// Decodes a path segment that must be text, such as a service's name.
///
/// # Errors
/// As [`decode`], and for bytes that are not UTF-8.
pub fn decode_text(text: &str) -> Result<Cow<'_, str>, Error> {
    match decode(text)? {
        Cow::Borrowed(_) => Ok(Cow::Borrowed(text)),
        Cow::Owned(bytes) => match String::from_utf8(bytes) {
            Ok(decoded) => Ok(Cow::Owned(decoded)),
            Err(_) => Err(refused("a name in the URL is not UTF-8")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_encoded_right_is_decoded() {
        assert!(matches!(decode_text("a+b"), Ok(Cow::Borrowed("a+b"))));
        assert_eq!(decode_text("a%2Fb%c3%bc").expect("text"), "a/b\u{fc}");
        assert_eq!(*decode("%00%fF").expect("bytes"), [0, 0xff]);
        for text in ["%", "%2", "%zz", "%+1", "a%2", "%ff"] {
            assert_eq!(decode_text(text).expect_err(text).code, ErrorCode::BadRequest);
        }
    }
}
