//! Strings of JSON.

use millrace_base::json::{is_plain, needs_escape};

/// How many bytes from `start` on can stand in a JSON string as they are, at least up to the next that cannot. Bytes
/// above 0x7f can.
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

/// Writes bytes as the characters U+0000 to U+00FF, as in the specification's JSON encoding.
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
