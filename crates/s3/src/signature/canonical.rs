//! The text that a Version 4 signature covers.

use sha2::{Digest as _, Sha256};

use super::{Request, hex};

/// Decodes `%XX`. A `%` that no two hexadecimal digits follow stays.
#[must_use]
pub fn decode(text: &str, plus_is_space: bool) -> Vec<u8> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8);
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(high << 4 | low);
                at += 2;
            }
            (b'+', ..) if plus_is_space => decoded.push(b' '),
            (byte, ..) => decoded.push(byte),
        }
        at += 1;
    }
    decoded
}

/// Encodes as signatures do: all but letters, digits, `-`, `.`, `_` and `~`; in paths, `/` stays too.
pub fn encode(bytes: &[u8], keeps_slash: bool, into: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => into.push(char::from(*byte)),
            b'/' if keeps_slash => into.push('/'),
            _ => {
                into.push('%');
                into.push(char::from(DIGITS[usize::from(byte >> 4)]));
                into.push(char::from(DIGITS[usize::from(byte & 15)]));
            }
        }
    }
}

/// The query, sorted and encoded anew, without the signature itself.
#[must_use]
pub fn query(raw: &str) -> String {
    let encoded = |text: &str| {
        let mut encoded = String::with_capacity(text.len());
        encode(&decode(text, true), false, &mut encoded);
        encoded
    };
    let pieces = raw.split('&').filter(|piece| !piece.is_empty());
    let split = pieces.map(|piece| piece.split_once('=').unwrap_or((piece, "")));
    let mut pairs: Vec<_> = split.map(|(name, value)| (encoded(name), encoded(value))).collect();
    pairs.retain(|(name, _)| name != "X-Amz-Signature");
    pairs.sort();
    let joined: Vec<_> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    joined.join("&")
}

/// The text, for these signed headers and this form of the body.
#[must_use]
pub fn request(request: &Request<'_>, signed_headers: &[&str], payload: &str) -> Vec<u8> {
    let mut text = String::with_capacity(512);
    text.push_str(request.method);
    text.push('\n');
    encode(&decode(request.path, false), true, &mut text);
    text.push('\n');
    text.push_str(&query(request.query));
    text.push('\n');
    let mut bytes = text.into_bytes();
    for name in signed_headers {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b':');
        push_values(request, name, &mut bytes);
        bytes.push(b'\n');
    }
    bytes.push(b'\n');
    bytes.extend_from_slice(signed_headers.join(";").as_bytes());
    bytes.push(b'\n');
    bytes.extend_from_slice(payload.as_bytes());
    bytes
}

pub(super) fn push_values(request: &Request<'_>, name: &str, into: &mut Vec<u8>) {
    if name == "host" {
        return into.extend_from_slice(request.host.trim().as_bytes());
    }
    for (index, (_, value)) in request.headers.iter().filter(|(own, _)| *own == name).enumerate() {
        if index > 0 {
            into.push(b',');
        }
        let mut words = value.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
        into.extend_from_slice(words.next().unwrap_or_default());
        for word in words {
            into.push(b' ');
            into.extend_from_slice(word);
        }
    }
}

/// What is signed in the end.
#[must_use]
pub fn string_to_sign(timestamp: &str, scope: &str, canonical: &[u8]) -> String {
    format!("AWS4-HMAC-SHA256\n{timestamp}\n{scope}\n{}", hex::encode(&Sha256::digest(canonical)))
}
