//! Bytes as text, for ids and digests.

/// Lower-case hexadecimal text of `bytes`.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| DIGITS[usize::from(nibble & 15)];
    let mut text = vec![0; bytes.len() * 2];
    for (pair, byte) in text.as_chunks_mut().0.iter_mut().zip(bytes) {
        *pair = [digit(byte >> 4), digit(*byte)];
    }
    String::from_utf8(text).expect("digits are ASCII")
}
