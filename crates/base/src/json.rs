//! Which bytes of a text can stand in a JSON string as they are.

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Whether one of eight bytes is `"`, `\` or a control character.
#[inline]
#[must_use]
pub fn needs_escape(chunk: [u8; 8]) -> bool {
    let word = u64::from_le_bytes(chunk);
    // Exact up to the first such byte. The callers ask for no more.
    let is_zero = |bits: u64| bits.wrapping_sub(LOW) & !bits & HIGH;
    let controls = word.wrapping_sub(LOW * 0x20) & !word & HIGH;
    (controls | is_zero(word ^ (LOW * u64::from(b'"'))) | is_zero(word ^ (LOW * u64::from(b'\\')))) != 0
}

/// Whether a byte is neither `"`, nor `\`, nor a control character.
#[inline]
#[must_use]
pub fn is_plain(byte: u8) -> bool {
    byte >= 0x20 && byte != b'"' && byte != b'\\'
}

/// Whether all bytes are ASCII and none needs an escape. This holds for most strings.
#[inline]
#[must_use]
pub fn is_plain_ascii(bytes: &[u8]) -> bool {
    let is_good = |chunk: &[u8; 8]| u64::from_le_bytes(*chunk) & HIGH == 0 && !needs_escape(*chunk);
    match bytes.last_chunk::<8>() {
        // The last eight may overlap those before.
        Some(last) => bytes.as_chunks::<8>().0.iter().all(is_good) && is_good(last),
        None => bytes.iter().all(|byte| byte.is_ascii() && is_plain(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_anywhere_is_found() {
        for length in 0..30 {
            let good = vec![b'~'; length];
            assert!(is_plain_ascii(&good), "{length}");
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut text = good.clone();
                    text[at] = byte;
                    assert_eq!(is_plain_ascii(&text), byte < 0x80 && is_plain(byte), "{byte} at {at} of {length}");
                }
            }
        }
    }
}
