//! Decimals: big-endian two's complement of the value without its point, and text.

use crate::logical::DECIMAL_DIGITS;
use num_bigint::BigInt;

/// Bytes that a decimal's number may have: those of the longest, and one more for the sign.
const MOST_BYTES: usize = DECIMAL_DIGITS as usize * 5 / 12 + 1;

/// The number, if it is not far too long for any decimal.
pub(crate) fn number_of(bytes: &[u8]) -> Option<BigInt> {
    let bytes = shortest(bytes);
    (bytes.len() <= MOST_BYTES).then(|| BigInt::from_signed_bytes_be(bytes))
}

/// The canonical bytes of a number: as few as possible, one byte for zero.
pub(crate) fn shortest(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let [first, second, ..] = rest
        && (*first == 0 && *second < 0x80 || *first == 0xff && *second >= 0x80)
    {
        rest = &rest[1..];
    }
    if rest.is_empty() { &[0] } else { rest }
}

/// The digits of a number and whether it is negative. The usual length needs no long arithmetic.
fn with_digits<T>(bytes: &[u8], then: impl FnOnce(bool, &[u8]) -> T) -> Option<T> {
    let bytes = shortest(bytes);
    if bytes.len() <= 16 {
        let filler = if bytes[0] >= 0x80 { 0xff } else { 0 };
        let mut padded = [filler; 16];
        padded[16 - bytes.len()..].copy_from_slice(bytes);
        let number = i128::from_be_bytes(padded);
        return Some(then(number < 0, itoa::Buffer::new().format(number.unsigned_abs()).as_bytes()));
    }
    let text = number_of(bytes)?.to_string();
    let digits = text.strip_prefix('-').unwrap_or(&text);
    Some(then(text.len() > digits.len(), digits.as_bytes()))
}

/// Whether the number has at most so many digits.
pub(crate) fn fits(bytes: &[u8], precision: u32) -> bool {
    with_digits(bytes, |_, digits| digits.len() <= precision as usize || digits == b"0") == Some(true)
}

/// Writes the text, with exactly `scale` digits behind the point. False if the number is far too long.
pub(crate) fn write(out: &mut Vec<u8>, bytes: &[u8], scale: u32) -> bool {
    let scale = scale as usize;
    let written = with_digits(bytes, |is_negative, digits| {
        if is_negative {
            out.push(b'-');
        }
        let (whole, fraction) = digits.split_at(digits.len().saturating_sub(scale));
        out.extend_from_slice(if whole.is_empty() { b"0" } else { whole });
        if scale > 0 {
            out.push(b'.');
            out.resize(out.len() + scale - fraction.len(), b'0');
            out.extend_from_slice(fraction);
        }
    });
    written.is_some()
}

/// The canonical bytes of a text such as `-12.34` or `1.2e3`. `None` if it is not a number, or its digits do not fit.
pub(crate) fn read(text: &str, precision: u32, scale: u32) -> Option<Vec<u8>> {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (plain, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((plain, exponent)) => (plain, exponent.parse::<i32>().ok()?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    if whole.is_empty()
        || plain.ends_with('.')
        || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    // The value is `digits` × 10^(shift − scale).
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some(vec![0]);
    }
    let dropped = i64::try_from(digits.len() - significant.len()).ok()?;
    let shift = i64::from(exponent) - i64::try_from(fraction.len()).ok()? + dropped + i64::from(scale);
    let zeros = usize::try_from(shift).ok()?;
    if significant.len().checked_add(zeros)? > precision as usize {
        return None;
    }
    let number = format!("{}{significant}{}", if is_negative { "-" } else { "" }, "0".repeat(zeros));
    Some(match number.parse::<i128>() {
        Ok(number) => shortest(&number.to_be_bytes()).to_vec(),
        Err(_) => shortest(&number.parse::<BigInt>().ok()?.to_signed_bytes_be()).to_vec(),
    })
}

/// The same number in so many bytes, if they are enough.
pub(crate) fn widened(bytes: &[u8], size: usize) -> Option<Vec<u8>> {
    let bytes = shortest(bytes);
    let filler = if bytes[0] >= 0x80 { 0xff } else { 0 };
    // Zero is the one number that needs no byte at all.
    let bytes = if size == 0 && bytes == [0] { &[] } else { bytes };
    let mut wide = vec![filler; size.checked_sub(bytes.len())?];
    wide.extend_from_slice(bytes);
    Some(wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8], scale: u32) -> String {
        let mut out = Vec::new();
        assert!(write(&mut out, bytes, scale));
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn texts_and_bytes_agree() {
        for (bytes, scale, expected) in [
            (&[0][..], 2, "0.00"),
            (&[0x04, 0xd2], 2, "12.34"),
            (&[0xfb, 0x2e], 2, "-12.34"),
            (&[0xff], 3, "-0.001"),
            (&[0x7f], 0, "127"),
            (&[0, 0, 0x80], 0, "128"),
            (&[], 0, "0"),
        ] {
            assert_eq!(text(bytes, scale), expected);
            assert_eq!(read(expected, 10, scale).as_deref(), Some(shortest(bytes)), "{expected}");
        }
        let long = "9".repeat(1000);
        let bytes = read(&long, 1000, 0).expect("fits");
        assert_eq!(text(&bytes, 0), long);
        assert!(bytes.len() < MOST_BYTES && fits(&bytes, 1000) && !fits(&bytes, 999));
    }

    #[test]
    fn texts_are_read_exactly_or_not_at_all() {
        assert_eq!(read("1.2e3", 5, 0), Some(vec![4, 176]));
        assert_eq!(read("0.10", 2, 1), Some(vec![1]));
        assert_eq!(read("-0", 2, 1), Some(vec![0]));
        for wrong in
            ["", "-", ".", "1.", ".5", "1.23", "+1", "1e", "1e99999999999", "1e2000000000", "0x1", "--1", "1000"]
        {
            assert_eq!(read(wrong, 3, 1), None, "{wrong}");
        }
    }
}
