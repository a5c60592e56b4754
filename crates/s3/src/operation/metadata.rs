//! Metadata of users. HTTP headers are ASCII; other characters travel as RFC 2047 has it, as S3 documents.

use std::fmt::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;

use crate::error::{Code, S3Error};
use crate::limits;

const PREFIX: &str = "x-amz-meta-";

/// What `x-amz-meta-…` headers say, without that prefix. Headers of one name are joined.
///
/// # Errors
/// `MetadataTooLarge` beyond 2 KB.
pub fn from_headers(headers: &HeaderMap) -> Result<Vec<(String, String)>, S3Error> {
    let mut metadata: Vec<(String, String)> = Vec::new();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix(PREFIX) else { continue };
        let value = decode_metadata(value.as_bytes());
        match metadata.iter_mut().find(|(known, _)| known == name) {
            Some((_, earlier)) => {
                let _ = write!(earlier, ",{value}");
            }
            None => metadata.push((name.to_owned(), value)),
        }
    }
    check_size(&metadata)?;
    Ok(metadata)
}

/// Refuses more than S3 allows.
///
/// # Errors
/// `MetadataTooLarge`.
pub fn check_size(metadata: &[(String, String)]) -> Result<(), S3Error> {
    let size_bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size_bytes <= limits::METADATA_BYTES {
        return Ok(());
    }
    Err(S3Error::new(Code::MetadataTooLarge, "Your metadata headers exceed the maximum allowed metadata size")
        .with("Size", size_bytes.to_string())
        .with("MaxSizeAllowed", limits::METADATA_BYTES.to_string()))
}

/// The value of a header: encoded words are decoded, and bytes that are no UTF-8 are Latin-1, as HTTP had it.
#[must_use]
pub fn decode_metadata(bytes: &[u8]) -> String {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.trim().to_owned(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect::<String>().trim().to_owned(),
    };
    if !text.contains("=?") {
        return text;
    }
    let words: Vec<Option<String>> = text.split(' ').map(decode_word).collect();
    if words.iter().all(Option::is_some) {
        return words.into_iter().flatten().collect();
    }
    text.split(' ').map(|word| decode_word(word).unwrap_or_else(|| word.to_owned())).collect::<Vec<_>>().join(" ")
}

/// `=?UTF-8?B?…?=` or `=?UTF-8?Q?…?=`.
fn decode_word(word: &str) -> Option<String> {
    let mut parts = word.strip_prefix("=?")?.strip_suffix("?=")?.splitn(3, '?');
    let (charset, encoding, text) = (parts.next()?, parts.next()?, parts.next()?);
    let bytes = match encoding {
        "B" | "b" => STANDARD.decode(text).ok()?,
        "Q" | "q" => decode_quoted(text)?,
        _ => return None,
    };
    if charset.eq_ignore_ascii_case("utf-8") {
        return String::from_utf8(bytes).ok();
    }
    charset.eq_ignore_ascii_case("iso-8859-1").then(|| bytes.iter().map(|byte| char::from(*byte)).collect())
}

fn decode_quoted(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'_' => bytes.push(b' '),
            b'=' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &rest[2..];
            }
            _ => bytes.push(*first),
        }
    }
    Some(bytes)
}

/// As a header's value. What a header cannot have becomes an encoded word.
#[must_use]
pub fn encode_metadata(value: &str) -> String {
    if value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return value.to_owned();
    }
    format!("=?UTF-8?B?{}?=", STANDARD.encode(value))
}
