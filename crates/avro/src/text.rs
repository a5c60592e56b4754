//! Strings of JSON.

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Whether one of eight bytes is `"`, `\` or a control character. Exact for the first such byte
/// and everything before it, which is all that is asked.
#[inline]
fn needs_escape(chunk: [u8; 8]) -> bool {
    let word = u64::from_le_bytes(chunk);
    let is_zero = |bits: u64| bits.wrapping_sub(LOW) & !bits & HIGH;
    let controls = word.wrapping_sub(LOW * 0x20) & !word & HIGH;
    (controls | is_zero(word ^ (LOW * u64::from(b'"'))) | is_zero(word ^ (LOW * u64::from(b'\\')))) != 0
}

#[inline]
fn is_plain(byte: u8) -> bool {
    byte >= 0x20 && byte != b'"' && byte != b'\\'
}

/// How many bytes from `start` on can stand in a JSON string as they are, at least up to the next
/// that cannot; bytes above 0x7f can.
#[inline]
pub(crate) fn plain_run(bytes: &[u8], start: usize) -> usize {
    let mut end = start;
    while let Some(chunk) = bytes.get(end..).and_then(|rest| rest.first_chunk::<8>()) {
        if needs_escape(*chunk) {
            break;
        }
        end += 8;
    }
    while bytes.get(end).is_some_and(|byte| is_plain(*byte)) {
        end += 1;
    }
    end - start
}

/// Whether all bytes are ASCII and can stand in a JSON string as they are.
#[inline]
pub(crate) fn is_plain_ascii(bytes: &[u8]) -> bool {
    let is_good = |chunk: &[u8; 8]| u64::from_le_bytes(*chunk) & HIGH == 0 && !needs_escape(*chunk);
    let (chunks, rest) = bytes.as_chunks::<8>();
    match bytes.last_chunk::<8>() {
        // The last eight overlap those before.
        Some(last) => chunks.iter().all(is_good) && is_good(last),
        None => rest.iter().all(|byte| byte.is_ascii() && is_plain(*byte)),
    }
}

/// Writes a string with its quotes.
#[inline]
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut start = 0;
    loop {
        let run = plain_run(bytes, start);
        out.extend_from_slice(&bytes[start..start + run]);
        start += run;
        let Some(byte) = bytes.get(start) else { break };
        write_escape(out, *byte);
        start += 1;
    }
    out.push(b'"');
}

/// Writes bytes as the characters U+0000 to U+00FF, as the specification's JSON encoding has them.
pub(crate) fn write_code_points(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for &byte in bytes {
        match byte {
            0x80.. => out.extend_from_slice(&[0xc0 | byte >> 6, 0x80 | byte & 0x3f]),
            _ if is_plain(byte) => out.push(byte),
            _ => write_escape(out, byte),
        }
    }
    out.push(b'"');
}

fn write_escape(out: &mut Vec<u8>, byte: u8) {
    match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        0x08 => out.extend_from_slice(b"\\b"),
        0x0c => out.extend_from_slice(b"\\f"),
        _ => {
            let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble & 15)];
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte)]);
        }
    }
}
