//! Values as predicates see them, and how they compare.

use std::borrow::Cow;
use std::cmp::Ordering;

use millrace_avro::{Logical, NodeId, folded};

use crate::decimal::{Decimal, compare_integer_f64};
use crate::evaluate::ValueLocation;
use crate::syntax::{Arithmetic, Literal};

/// What an operand gives: nothing if it is absent, several values if a path matches several.
pub(crate) enum Values<'v> {
    None,
    One(Value<'v>),
    Many(Vec<Value<'v>>),
}

impl<'v> Values<'v> {
    pub(crate) fn all(&self) -> &[Value<'v>] {
        match self {
            Self::None => &[],
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Value<'v> {
    Null,
    Boolean(bool),
    Integer(i64),
    /// An Avro `float`. Other numbers are rounded to a float before the comparison, so that `.ratio == 0.1` means what
    /// it seems to.
    Single(f32),
    Float(f64),
    Decimal(Decimal),
    Text(Cow<'v, str>),
    /// A date, a time or a timestamp: a number whose JSON is text.
    Moment(NodeId, Logical, i64),
    /// A record, an array or a map.
    Whole(ValueLocation),
    /// An object or an array of a parameter.
    Json(&'v serde_json::Value),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Integer(i64),
    Float(f64),
}

impl<'v> Value<'v> {
    pub(crate) fn from_json(json: &'v serde_json::Value) -> Self {
        match json {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Boolean(*value),
            serde_json::Value::Number(number) => match number.as_i64() {
                Some(integer) => Self::Integer(integer),
                None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => Self::Text(Cow::Borrowed(text)),
            _ => Self::Json(json),
        }
    }

    /// Whether a path that gives it holds.
    pub(crate) fn is_there(&self) -> bool {
        !matches!(self, Self::Null | Self::Boolean(false))
    }

    /// As in JavaScript, for an expression that is not a path.
    pub(crate) fn is_truthy(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Boolean(value) => *value,
            Self::Integer(value) => *value != 0,
            Self::Single(value) => *value != 0.0 && !value.is_nan(),
            Self::Float(value) => *value != 0.0 && !value.is_nan(),
            Self::Text(text) => !text.is_empty(),
            Self::Decimal(decimal) => decimal.unscaled != 0,
            Self::Moment(..) | Self::Whole(_) | Self::Json(_) => true,
        }
    }

    /// As a number to calculate with.
    pub(crate) fn number(&self) -> Option<Number> {
        match self {
            Self::Integer(value) | Self::Moment(_, _, value) => Some(Number::Integer(*value)),
            Self::Float(value) => Some(Number::Float(*value)),
            // The number that its text is: 0.1, not 0.10000000149.
            Self::Single(value) => value.to_string().parse().ok().map(Number::Float),
            Self::Decimal(Decimal { unscaled, scale: 0 }) if i64::try_from(*unscaled).is_ok() => {
                i64::try_from(*unscaled).ok().map(Number::Integer)
            }
            Self::Decimal(decimal) => Some(Number::Float(decimal.to_f64())),
            _ => None,
        }
    }

    /// Bytes of text in it. They are the cost of a comparison.
    pub(crate) fn text_bytes(&self) -> usize {
        if let Self::Text(text) = self { text.len() } else { 0 }
    }
}

impl Literal {
    pub(crate) fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Boolean(value) => Value::Boolean(*value),
            Self::Integer(value) => Value::Integer(*value),
            Self::Float(value) => Value::Float(*value),
            Self::Text(text) => Value::Text(Cow::Borrowed(text)),
        }
    }
}

impl Number {
    pub(crate) fn value<'v>(self) -> Value<'v> {
        match self {
            Self::Integer(value) => Value::Integer(value),
            Self::Float(value) => Value::Float(value),
        }
    }

    fn to_f64(self) -> f64 {
        match self {
            #[allow(clippy::cast_precision_loss, reason = "calculating with mixed numbers is done in floats")]
            Self::Integer(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    pub(crate) fn negated(self) -> Self {
        match self {
            Self::Integer(value) => value.checked_neg().map_or(Self::Float(-self.to_f64()), Self::Integer),
            Self::Float(value) => Self::Float(-value),
        }
    }

    /// Exact between whole numbers as long as the result has 64 bits; otherwise in floats.
    pub(crate) fn calculate(self, operator: Arithmetic, other: Self) -> Self {
        if let (Self::Integer(a), Self::Integer(b)) = (self, other) {
            let exact = match operator {
                Arithmetic::Add => a.checked_add(b),
                Arithmetic::Subtract => a.checked_sub(b),
                Arithmetic::Multiply => a.checked_mul(b),
                Arithmetic::Divide if b != 0 && a.checked_rem(b) == Some(0) => a.checked_div(b),
                Arithmetic::Divide => None,
                Arithmetic::Remainder => a.checked_rem(b),
            };
            if let Some(exact) = exact {
                return Self::Integer(exact);
            }
        }
        let (a, b) = (self.to_f64(), other.to_f64());
        Self::Float(match operator {
            Arithmetic::Add => a + b,
            Arithmetic::Subtract => a - b,
            Arithmetic::Multiply => a * b,
            Arithmetic::Divide => a / b,
            Arithmetic::Remainder => a % b,
        })
    }
}

/// How two numbers compare; `None` if one of them is not a number.
pub(crate) fn compare_numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    use Value::{Decimal as Exact, Float, Integer, Moment, Single};
    match (a, b) {
        (Integer(a) | Moment(_, _, a), Integer(b) | Moment(_, _, b)) => Some(a.cmp(b)),
        (Integer(a) | Moment(_, _, a), Float(b)) => compare_integer_f64(*a, *b),
        (Float(a), Float(b)) => a.partial_cmp(b),
        (Single(a), Single(b)) => a.partial_cmp(b),
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "see `Value::Single`")]
        (Single(a), Float(b)) => a.partial_cmp(&(*b as f32)),
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "see `Value::Single`")]
        (Single(a), Integer(b) | Moment(_, _, b)) => a.partial_cmp(&(*b as f32)),
        #[allow(clippy::cast_possible_truncation, reason = "see `Value::Single`")]
        (Single(a), Exact(b)) => a.partial_cmp(&(b.to_f64() as f32)),
        (Exact(a), Exact(b)) => a.compare(*b),
        (Exact(a), Integer(b) | Moment(_, _, b)) => a.compare((*b).into()),
        (Exact(a), Float(b)) => a.to_f64().partial_cmp(b),
        // The same with sides exchanged.
        (Float(_), Integer(_) | Moment(..))
        | (Integer(_) | Moment(..) | Float(_), Single(_) | Exact(_))
        | (Exact(_), Single(_)) => compare_numbers(b, a).map(Ordering::reverse),
        _ => None,
    }
}

/// The number that a text is, as JSON would read it.
pub(crate) fn read_number(text: &str) -> Option<Value<'static>> {
    let text = text.trim();
    let is_number = text.strip_prefix('-').unwrap_or(text).starts_with(|c: char| c.is_ascii_digit());
    if !is_number {
        return None;
    }
    text.parse().map(Value::Integer).or_else(|_| text.parse().map(Value::Float)).ok()
}

/// Removes case: each character's own lower case, whatever stands around it.
pub(crate) fn fold(text: &str) -> String {
    if text.is_ascii() { text.to_ascii_lowercase() } else { folded(text).collect() }
}

pub(crate) fn equal_folded(a: &str, b: &str) -> bool {
    if a.is_ascii() && b.is_ascii() {
        return a.eq_ignore_ascii_case(b);
    }
    folded(a).eq(folded(b))
}

/// Nanoseconds since 1970 of a point in time, so that any two compare; `None` for times of day.
pub(crate) fn nanoseconds(logical: Logical, number: i64) -> Option<i128> {
    let unit = match logical {
        Logical::Date => 86_400_000_000_000,
        Logical::TimestampMillis | Logical::LocalTimestampMillis => 1_000_000,
        Logical::TimestampMicros | Logical::LocalTimestampMicros => 1_000,
        Logical::TimestampNanos | Logical::LocalTimestampNanos => 1,
        _ => return None,
    };
    Some(i128::from(number) * unit)
}
