//! Decimals: whole numbers with a scale, exact within 128 bits.

use std::cmp::Ordering;
use std::fmt;

/// `unscaled` · 10^-`scale`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decimal {
    pub unscaled: i128,
    pub scale: u32,
}

impl Decimal {
    /// From two's complement, the highest byte first. `None` beyond 128 bits.
    pub(crate) fn from_bytes(bytes: &[u8], scale: u32) -> Option<Self> {
        let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
        let fill = if negative { 0xff } else { 0 };
        let excess = bytes.len().saturating_sub(16);
        let (high, low) = bytes.split_at(excess);
        let mut wide = [fill; 16];
        wide[16 - low.len()..].copy_from_slice(low);
        let unscaled = i128::from_be_bytes(wide);
        let fits = high.iter().all(|byte| *byte == fill) && (unscaled < 0) == negative;
        fits.then_some(Self { unscaled, scale })
    }

    /// The same number with another scale that is not smaller.
    fn rescaled(self, scale: u32) -> Option<i128> {
        10i128.checked_pow(scale.checked_sub(self.scale)?)?.checked_mul(self.unscaled)
    }

    pub(crate) fn to_f64(self) -> f64 {
        // Correct to the last bit. A division would not be, beyond 2^53.
        format!("{}e-{}", self.unscaled, self.scale).parse().unwrap_or(f64::NAN)
    }

    pub(crate) fn compare(self, other: Self) -> Option<Ordering> {
        let scale = self.scale.max(other.scale);
        match (self.rescaled(scale), other.rescaled(scale)) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => self.to_f64().partial_cmp(&other.to_f64()),
        }
    }

    /// From a plain decimal number such as `-12.50`. `None` for other texts and beyond 128 bits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = whole.strip_prefix('-').unwrap_or(whole);
        let is_number =
            !digits.is_empty() && [digits, fraction].iter().all(|part| part.bytes().all(|b| b.is_ascii_digit()));
        if !is_number || text.ends_with('.') {
            return None;
        }
        let unscaled = format!("{whole}{fraction}").parse().ok()?;
        Some(Self { unscaled, scale: u32::try_from(fraction.len()).ok()? })
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.unscaled < 0 { "-" } else { "" };
        let scale = self.scale as usize;
        let digits = format!("{:0>width$}", self.unscaled.unsigned_abs(), width = scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        let point = if scale > 0 { "." } else { "" };
        write!(formatter, "{sign}{whole}{point}{fraction}")
    }
}

/// A decimal beyond 128 bits, rounded.
pub(crate) fn wide_to_f64(bytes: &[u8], scale: u32) -> f64 {
    let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let offset = if negative { -1.0 } else { 0.0 };
    let sum = bytes.iter().fold(offset, |sum, byte| sum * 256.0 + f64::from(*byte));
    sum / 10f64.powf(scale.into())
}

impl From<i64> for Decimal {
    fn from(number: i64) -> Self {
        Self { unscaled: number.into(), scale: 0 }
    }
}

/// Which is greater, without any rounding.
pub(crate) fn compare_integer_f64(integer: i64, float: f64) -> Option<Ordering> {
    /// 2^63, exactly.
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if float.is_nan() {
        None
    } else if float >= BEYOND {
        Some(Ordering::Less)
    } else if float < -BEYOND {
        Some(Ordering::Greater)
    } else {
        #[allow(clippy::cast_possible_truncation, reason = "in range, and the fraction is looked at apart")]
        let whole = float.trunc() as i64;
        Some(integer.cmp(&whole).then_with(|| 0.0.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal)))
    }
}
