//! Logical types: which of them a schema's object names.

use crate::calendar;
use crate::schema::{Kind, Logical, Node};
use serde_json::{Map, Value};

/// Digits that a decimal may have. The time to turn bytes into digits grows with the square of their number.
pub(crate) const DECIMAL_DIGITS: u32 = 1000;

/// The logical type that `object` gives to a type of this kind. Types that the specification does not know, or does not
/// allow there, are ignored, as it demands.
pub(crate) fn of(kind: &Kind, object: &Map<String, Value>) -> Result<Option<Logical>, String> {
    let Some(name) = object.get("logicalType").and_then(Value::as_str) else { return Ok(None) };
    Ok(Some(match (kind, name) {
        (Kind::Bytes | Kind::Fixed { .. }, "decimal") => return decimal(kind, object),
        (Kind::String | Kind::Fixed { size: 16, .. }, "uuid") => Logical::Uuid,
        (Kind::Int, "date") => Logical::Date,
        (Kind::Int, "time-millis") => Logical::TimeMillis,
        (Kind::Long, "time-micros") => Logical::TimeMicros,
        (Kind::Long, "timestamp-millis") => Logical::TimestampMillis,
        (Kind::Long, "timestamp-micros") => Logical::TimestampMicros,
        (Kind::Long, "timestamp-nanos") => Logical::TimestampNanos,
        (Kind::Long, "local-timestamp-millis") => Logical::LocalTimestampMillis,
        (Kind::Long, "local-timestamp-micros") => Logical::LocalTimestampMicros,
        (Kind::Long, "local-timestamp-nanos") => Logical::LocalTimestampNanos,
        (Kind::Fixed { size: 12, .. }, "duration") => Logical::Duration,
        _ => return Ok(None),
    }))
}

impl Logical {
    /// Its name in the specification.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Decimal { .. } => "decimal",
            Self::Uuid => "uuid",
            Self::Date => "date",
            Self::TimeMillis => "time-millis",
            Self::TimeMicros => "time-micros",
            Self::TimestampMillis => "timestamp-millis",
            Self::TimestampMicros => "timestamp-micros",
            Self::TimestampNanos => "timestamp-nanos",
            Self::LocalTimestampMillis => "local-timestamp-millis",
            Self::LocalTimestampMicros => "local-timestamp-micros",
            Self::LocalTimestampNanos => "local-timestamp-nanos",
            Self::Duration => "duration",
        }
    }

    /// Whether an `int` or a `long` of this type may be that number: a time of day lies within a day.
    #[must_use]
    pub fn allows(self, number: i64) -> bool {
        calendar::has_text(self, number)
    }
}

/// Whether a value written as one type may be read as the other. The types below allow it already. A value must never
/// silently change its meaning. So a logical type may be added or dropped, but not replaced by another one. Between
/// text and bytes it may not even be added or dropped: the promotion there changes what is written and not only how it
/// is shown. A UUID is text either way. Decimals are compared elsewhere.
pub(crate) fn keeps_meaning(writer: &Node, reader: &Node) -> bool {
    let is_recoded = matches!((&writer.kind, &reader.kind), (Kind::String, Kind::Bytes) | (Kind::Bytes, Kind::String));
    match (writer.logical, reader.logical) {
        (Some(old), Some(new)) => std::mem::discriminant(&old) == std::mem::discriminant(&new),
        (Some(one), None) | (None, Some(one)) => !is_recoded || one == Logical::Uuid,
        (None, None) => true,
    }
}

fn decimal(kind: &Kind, object: &Map<String, Value>) -> Result<Option<Logical>, String> {
    let number = |key, otherwise| match object.get(key) {
        None => Some(otherwise),
        Some(value) => value.as_u64(),
    };
    let (Some(precision), Some(scale)) = (number("precision", 0), number("scale", 0)) else { return Ok(None) };
    let most = match kind {
        Kind::Fixed { size, .. } => digits_in(*size),
        _ => u64::MAX,
    };
    if precision == 0 || scale > precision || precision > most {
        return Ok(None);
    }
    match (u32::try_from(precision), u32::try_from(scale)) {
        (Ok(precision @ ..=DECIMAL_DIGITS), Ok(scale)) => Ok(Some(Logical::Decimal { precision, scale })),
        _ => Err(format!("a decimal has at most {DECIMAL_DIGITS} digits")),
    }
}

/// The most decimal digits of which every number fits so many bytes in two's complement: ⌊log₁₀(2^(8n−1) − 1)⌋. No
/// power of two above 1 is a power of ten, so the −1 never matters.
fn digits_in(size: usize) -> u64 {
    let bits = (size as u64 * 8).saturating_sub(1);
    // log₁₀ 2, to more digits than the largest size needs.
    u64::try_from(u128::from(bits) * 301_029_995_663_981_195 / 1_000_000_000_000_000_000).unwrap_or(0)
}
