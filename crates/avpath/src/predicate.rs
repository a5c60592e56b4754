//! Whether an expression holds for a value, and what its parts give.

use std::borrow::Cow;
use std::cmp::Ordering;

use millrace_avro::{Kind, Logical, NodeId, Reader};
use smallvec::SmallVec;

use crate::EvaluationError;
use crate::decimal::Decimal;
use crate::evaluate::{Machine, Single, ValueLocation};
use crate::json;
use crate::syntax::{Arithmetic, Comparator, Expression, Operator, Steps};
use crate::value::{Value, Values, compare_numbers, equal_folded, fold, nanoseconds, read_number};
use millrace_base::limits;

type Evaluate<T> = Result<T, EvaluationError>;

/// Steps that it takes to write a number, or to read or write the text of a date or a time.
const NUMBER_STEPS: usize = 10;
const MOMENT_STEPS: usize = 30;

impl<'v> Machine<'v> {
    /// Whether the expression holds. A path holds if it gives anything but `null` and `false`. A comparison holds if it
    /// is true of any two values of its sides. Other values hold as in JavaScript.
    pub(crate) fn holds(&mut self, expression: &'v Expression, here: ValueLocation) -> Evaluate<bool> {
        match expression {
            Expression::Not(operand) => Ok(!self.holds(operand, here)?),
            Expression::And(operands) => {
                for operand in operands {
                    if !self.holds(operand, here)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Expression::Or(operands) => {
                for operand in operands {
                    if self.holds(operand, here)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Expression::Path(path) => {
                self.charge(1)?;
                Ok(self.path_values(path, here)?.all().iter().any(Value::is_there))
            }
            Expression::Parameter(_) => {
                let values = self.values(expression, here)?;
                Ok(values.all().iter().any(Value::is_there))
            }
            Expression::Chain(left, rest) if let [(Operator::Compare(comparator), right)] = &**rest => {
                // A query spends nearly all its time here, much of it in moving values. So this case is handled apart.
                if let (Expression::Path(path), Expression::Literal(literal)) = (&**left, right) {
                    self.charge(2)?;
                    let left = self.path_values(path, here)?;
                    return self.any(*comparator, left.all(), &[literal.value()]);
                }
                let (left, right) = (self.values(left, here)?, self.values(right, here)?);
                self.any(*comparator, left.all(), right.all())
            }
            _ => Ok(self.values(expression, here)?.all().first().is_some_and(Value::is_truthy)),
        }
    }

    fn values(&mut self, expression: &'v Expression, here: ValueLocation) -> Evaluate<Values<'v>> {
        self.charge(1)?;
        Ok(match expression {
            Expression::Literal(literal) => Values::One(literal.value()),
            Expression::Parameter(number) => self.parameter(*number)?,
            Expression::Path(path) => self.path_values(path, here)?,
            Expression::Negate(operand) => {
                let values = self.values(operand, here)?;
                let number = values.all().first().and_then(Value::number);
                number.map_or(Values::None, |number| Values::One(number.negated().value()))
            }
            Expression::Not(_) | Expression::And(_) | Expression::Or(_) => {
                Values::One(Value::Boolean(self.holds(expression, here)?))
            }
            Expression::Chain(first, rest) => {
                let mut left = self.values(first, here)?;
                for (operator, operand) in rest {
                    let right = self.values(operand, here)?;
                    left = match operator {
                        Operator::Compare(comparator) => {
                            Values::One(Value::Boolean(self.any(*comparator, left.all(), right.all())?))
                        }
                        Operator::Calculate(arithmetic) => {
                            self.charge(calculation_steps(left.all()) + calculation_steps(right.all()))?;
                            calculate(*arithmetic, left.all(), right.all())
                        }
                    };
                }
                left
            }
        })
    }

    /// A parameter that is an array stands for each of its elements.
    fn parameter(&mut self, number: u32) -> Evaluate<Values<'v>> {
        Ok(match self.parameters.get(number as usize) {
            Some(serde_json::Value::Array(items)) => {
                self.charge(items.len())?;
                Values::Many(items.iter().map(Value::from_json).collect())
            }
            Some(json) => Values::One(Value::from_json(json)),
            None => Values::None,
        })
    }

    /// An array that a path gives stands for each of its elements.
    #[inline]
    fn path_values(&mut self, path: &'v Steps, here: ValueLocation) -> Evaluate<Values<'v>> {
        let here = if path.from_root { self.root() } else { here };
        let (found, rest) = self.lead(&path.steps, here)?;
        let places = match found {
            Single::Absent => return Ok(Values::None),
            Single::One(place) => {
                let (node, start) = self.resolve(place)?;
                if !matches!(self.schema.kind(node), Kind::Array(_)) {
                    return Ok(Values::One(self.value(node, start, place)?));
                }
                SmallVec::from_iter([place])
            }
            Single::Many(place) => self.fan_out(rest, place)?,
        };
        let mut values = Vec::new();
        for place in places {
            let (node, start) = self.resolve(place)?;
            let Kind::Array(item) = self.schema.kind(node) else {
                self.charge(2)?;
                values.push(self.value(node, start, place)?);
                continue;
            };
            let mut items = self.items(*item, false, start)?;
            while let Some((_, place)) = self.next_item(&mut items)? {
                if values.len() >= 10 * limits::PATH_MATCHES {
                    return Err(EvaluationError::TooManyMatches);
                }
                // For its place in the list, which is larger than the value.
                self.charge(1)?;
                let (node, start) = self.resolve(place)?;
                values.push(self.value(node, start, place)?);
            }
        }
        Ok(Values::Many(values))
    }

    #[inline]
    fn value(&mut self, node: NodeId, start: u32, place: ValueLocation) -> Evaluate<Value<'v>> {
        self.charge(1)?;
        let mut reader = Reader::at(self.record, start as usize);
        let logical = self.schema.node(node).logical;
        Ok(match (self.schema.kind(node), logical) {
            (Kind::Null, _) => Value::Null,
            (Kind::Boolean, _) => Value::Boolean(reader.boolean()?),
            (Kind::Int | Kind::Long, None) => Value::Integer(reader.long()?),
            (Kind::Int | Kind::Long, Some(logical)) => Value::Moment(node, logical, reader.long()?),
            (Kind::Float, _) => Value::Single(reader.float()?),
            (Kind::Double, _) => Value::Float(reader.double()?),
            (Kind::String, _) => Value::Text(Cow::Borrowed(reader.string()?)),
            (Kind::Enum { symbols, .. }, _) => Value::Text(Cow::Borrowed(&symbols[reader.index(symbols.len())?])),
            (Kind::Bytes, Some(Logical::Decimal { scale, .. })) => decimal(reader.bytes()?, scale),
            (Kind::Fixed { size, .. }, Some(Logical::Decimal { scale, .. })) => decimal(reader.fixed(*size)?, scale),
            // Its JSON is an object.
            (Kind::Fixed { .. }, Some(Logical::Duration)) => Value::Whole(ValueLocation { node, start, ..place }),
            (Kind::Bytes | Kind::Fixed { .. }, _) => {
                let bytes = self.range(ValueLocation { node, start, ..place })?;
                self.charge(bytes.len() / 4)?;
                Value::Text(Cow::Owned(json::text(self.schema, node, &self.record[bytes])?))
            }
            _ => Value::Whole(ValueLocation { node, start, ..place }),
        })
    }

    /// Whether the comparison is true of any two values.
    #[inline]
    fn any(&mut self, comparator: Comparator, left: &[Value<'v>], right: &[Value<'v>]) -> Evaluate<bool> {
        for a in left {
            for b in right {
                self.charge(1 + (a.text_bytes() + b.text_bytes()) / 16)?;
                if self.compare(comparator, a, b)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn compare(&mut self, comparator: Comparator, a: &Value<'v>, b: &Value<'v>) -> Evaluate<bool> {
        use Comparator as C;
        Ok(match comparator {
            C::Equal => self.equal(a, b, false)?,
            C::NotEqual => !self.equal(a, b, false)?,
            C::Same => self.equal(a, b, true)?,
            C::NotSame => !self.equal(a, b, true)?,
            C::Less => self.order(a, b, false)?.is_some_and(Ordering::is_lt),
            C::LessOrEqual => self.order(a, b, false)?.is_some_and(Ordering::is_le),
            C::Greater => self.order(a, b, false)?.is_some_and(Ordering::is_gt),
            C::GreaterOrEqual => self.order(a, b, false)?.is_some_and(Ordering::is_ge),
            C::StartsWith | C::EndsWith | C::Contains => match (self.text(a, false)?, self.text(b, false)?) {
                (Some(a), Some(b)) => {
                    self.charge_folding(&a, &b)?;
                    has_folded(comparator, &a, &b)
                }
                _ => false,
            },
            C::StartsWithExactly | C::EndsWithExactly | C::ContainsExactly => {
                match (self.text(a, true)?, self.text(b, true)?) {
                    (Some(a), Some(b)) => has(comparator, &a, &b),
                    _ => false,
                }
            }
        })
    }

    fn equal(&mut self, a: &Value<'v>, b: &Value<'v>, is_exact: bool) -> Evaluate<bool> {
        Ok(match (a, b) {
            (Value::Text(a), Value::Text(b)) if is_exact => a == b,
            (Value::Text(a), Value::Text(b)) => {
                if !a.is_ascii() {
                    self.charge_folding(a, b)?;
                }
                equal_folded(a, b)
            }
            (Value::Whole(_) | Value::Json(_), Value::Whole(_) | Value::Json(_)) => self.equal_json(a, b)?,
            _ => self.order(a, b, is_exact)?.is_some_and(Ordering::is_eq),
        })
    }

    /// Removing case takes longer than comparing: it needs memory, and some texts go character by character.
    fn charge_folding(&mut self, a: &str, b: &str) -> Evaluate<()> {
        match (a.is_ascii() && b.is_ascii(), a.len() <= SHORT) {
            (true, true) => self.charge(1),
            (true, false) => self.charge(4 + (a.len() + b.len()) / 8),
            (false, _) => self.charge(4 + (a.len() + b.len()) / 2),
        }
    }

    /// `None` if the two are of kinds that do not compare.
    fn order(&mut self, a: &Value<'v>, b: &Value<'v>, is_exact: bool) -> Evaluate<Option<Ordering>> {
        Ok(match (a, b) {
            (Value::Integer(a), Value::Integer(b)) => Some(a.cmp(b)),
            (Value::Text(a), Value::Text(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
            (Value::Null, Value::Null) => Some(Ordering::Equal),
            (Value::Boolean(a), Value::Boolean(b)) => Some(a.cmp(b)),
            (Value::Moment(_, first, a), Value::Moment(_, second, b)) => {
                match (nanoseconds(*first, *a), nanoseconds(*second, *b)) {
                    (Some(a), Some(b)) => Some(a.cmp(&b)),
                    (None, None) if first == second => Some(a.cmp(b)),
                    _ => None,
                }
            }
            (Value::Moment(node, _, moment), Value::Text(text)) => self.compare_moment(*node, *moment, text)?,
            (Value::Text(_), Value::Moment(..) | Value::Decimal(_)) => {
                self.order(b, a, is_exact)?.map(Ordering::reverse)
            }
            (Value::Decimal(decimal), Value::Text(text)) => {
                Decimal::parse(text).and_then(|other| decimal.compare(other))
            }
            (number, Value::Text(text)) if !is_exact => {
                read_number(text).and_then(|other| compare_numbers(number, &other))
            }
            (Value::Text(text), number) if !is_exact => {
                read_number(text).and_then(|first| compare_numbers(&first, number))
            }
            _ => compare_numbers(a, b),
        })
    }

    /// Compares with the text as the moment's type reads it, or as a number.
    fn compare_moment(&mut self, node: NodeId, moment: i64, text: &str) -> Evaluate<Option<Ordering>> {
        self.charge(MOMENT_STEPS)?;
        if let Some(other) = json::moment(self.schema, node, text) {
            return Ok(Some(moment.cmp(&other)));
        }
        Ok(None)
    }

    /// The value as text: what has quotes in JSON. If not exact, numbers and booleans too.
    fn text<'t>(&mut self, value: &'t Value<'v>, is_exact: bool) -> Evaluate<Option<Cow<'t, str>>> {
        if !is_exact || matches!(value, Value::Decimal(_)) {
            self.charge(if matches!(value, Value::Text(_) | Value::Boolean(_)) { 0 } else { NUMBER_STEPS })?;
        }
        Ok(match value {
            Value::Text(text) => Some(Cow::Borrowed(text)),
            Value::Moment(node, _, moment) => {
                self.charge(MOMENT_STEPS)?;
                Some(Cow::Owned(json::moment_text(self.schema, *node, *moment)?))
            }
            Value::Decimal(decimal) => Some(Cow::Owned(decimal.to_string())),
            Value::Integer(value) if !is_exact => Some(Cow::Owned(value.to_string())),
            Value::Single(value) if !is_exact => Some(Cow::Owned(value.to_string())),
            Value::Float(value) if !is_exact => Some(Cow::Owned(value.to_string())),
            Value::Boolean(value) if !is_exact => Some(Cow::Borrowed(if *value { "true" } else { "false" })),
            _ => None,
        })
    }

    fn equal_json(&mut self, a: &Value<'v>, b: &Value<'v>) -> Evaluate<bool> {
        if let (Value::Whole(a), Value::Whole(b)) = (a, b)
            && a.node == b.node
        {
            let (first, second) = (self.range(*a)?, self.range(*b)?);
            self.charge(first.len() / 16)?;
            return Ok(self.record[first] == self.record[second]);
        }
        Ok(self.json(a)? == self.json(b)?)
    }

    fn json(&mut self, value: &Value<'v>) -> Evaluate<Option<Cow<'v, serde_json::Value>>> {
        Ok(match value {
            Value::Json(json) => Some(Cow::Borrowed(*json)),
            Value::Whole(place) => {
                let range = self.range(*place)?;
                self.charge(range.len())?;
                Some(Cow::Owned(json::tree(self.schema, place.node, &self.record[range])?))
            }
            _ => None,
        })
    }
}

fn decimal<'v>(bytes: &[u8], scale: u32) -> Value<'v> {
    match Decimal::from_bytes(bytes, scale) {
        Some(decimal) => Value::Decimal(decimal),
        None => Value::Float(crate::decimal::wide_to_f64(bytes, scale)),
    }
}

/// A float takes part in a calculation as the number that its text is.
fn calculation_steps(values: &[Value<'_>]) -> usize {
    if matches!(values.first(), Some(Value::Single(_))) { NUMBER_STEPS } else { 0 }
}

/// Calculates with the first value of each side. The result is absent if one of them is absent or not a number.
fn calculate<'v>(operator: Arithmetic, left: &[Value<'v>], right: &[Value<'v>]) -> Values<'v> {
    let number = |values: &[Value<'v>]| values.first().and_then(Value::number);
    match (number(left), number(right)) {
        (Some(a), Some(b)) => Values::One(a.calculate(operator, b).value()),
        _ => Values::None,
    }
}

/// The longest text in which another one is searched by comparing it at each place. For longer texts, the search time
/// does not grow with the other text, and both are copied for it.
const SHORT: usize = 32;

/// The same, without case.
fn has_folded(comparator: Comparator, text: &str, part: &str) -> bool {
    if (text.len() > SHORT && comparator == Comparator::Contains) || !text.is_ascii() || !part.is_ascii() {
        return has(comparator, &fold(text), &fold(part));
    }
    let (text, part) = (text.as_bytes(), part.as_bytes());
    let is_at = |start: usize| text[start..start + part.len()].eq_ignore_ascii_case(part);
    let (Some(last), Some(first)) = (text.len().checked_sub(part.len()), part.first()) else {
        return text.len() >= part.len();
    };
    match comparator {
        Comparator::StartsWith => is_at(0),
        Comparator::EndsWith => is_at(last),
        _ => (0..=last).any(|start| text[start].eq_ignore_ascii_case(first) && is_at(start)),
    }
}

fn has(comparator: Comparator, text: &str, part: &str) -> bool {
    match comparator {
        Comparator::StartsWith | Comparator::StartsWithExactly => text.starts_with(part),
        Comparator::EndsWith | Comparator::EndsWithExactly => text.ends_with(part),
        _ => text.contains(part),
    }
}
