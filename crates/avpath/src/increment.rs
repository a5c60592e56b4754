//! Adds to an encoded number.

use millrace_avro::{JsonForm, Kind, Logical, Missing, NodeId, Reader, Schema, from_json, write_bytes, write_long};
use serde_json::Value;

use crate::UpdateError;
use crate::decimal::Decimal;

/// Whether values of the node can be added to.
pub(crate) fn is_number(schema: &Schema, node: NodeId) -> bool {
    match schema.kind(node) {
        Kind::Int | Kind::Long | Kind::Float | Kind::Double => true,
        _ => matches!(schema.node(node).logical, Some(Logical::Decimal { .. })),
    }
}

/// Writes the sum of the number `before` and a JSON number.
pub(crate) fn increment(
    schema: &Schema,
    node: NodeId,
    before: &[u8],
    value: &str,
    out: &mut Vec<u8>,
) -> Result<(), UpdateError> {
    let mut reader = Reader::new(before);
    match (schema.kind(node), schema.node(node).logical) {
        (Kind::Int, _) => {
            let sum = reader.long()?.checked_add(whole(value)?);
            let sum = sum.and_then(|sum| i32::try_from(sum).ok()).ok_or_else(|| beyond("an int"))?;
            check_time_of_day(schema, node, sum.into())?;
            write_long(out, sum.into());
        }
        (Kind::Long, _) => {
            let sum = reader.long()?.checked_add(whole(value)?).ok_or_else(|| beyond("a long"))?;
            check_time_of_day(schema, node, sum)?;
            write_long(out, sum);
        }
        (Kind::Float, _) => {
            #[allow(clippy::cast_possible_truncation, reason = "rounded as any float is")]
            let sum = (f64::from(reader.float()?) + float(value)?) as f32;
            let sum = Some(sum).filter(|sum| sum.is_finite()).ok_or_else(|| beyond("a float"))?;
            out.extend_from_slice(&sum.to_le_bytes());
        }
        (Kind::Double, _) => {
            let sum = reader.double()? + float(value)?;
            let sum = Some(sum).filter(|sum| sum.is_finite()).ok_or_else(|| beyond("a double"))?;
            out.extend_from_slice(&sum.to_le_bytes());
        }
        (Kind::Bytes, Some(Logical::Decimal { precision, scale })) => {
            let added = encoded(schema, node, value)?;
            let sum = sum(reader.bytes()?, Reader::new(&added).bytes()?, precision, scale)?;
            let bytes = sum.to_be_bytes();
            write_bytes(out, shortest(&bytes));
        }
        (Kind::Fixed { size, .. }, Some(Logical::Decimal { precision, scale })) => {
            let sum = sum(before, &encoded(schema, node, value)?, precision, scale)?;
            let (bytes, fill) = (sum.to_be_bytes(), if sum < 0 { 0xff } else { 0 });
            let bytes = shortest(&bytes);
            let missing = size.checked_sub(bytes.len()).ok_or_else(|| beyond("the decimal"))?;
            out.extend(std::iter::repeat_n(fill, missing));
            out.extend_from_slice(bytes);
        }
        _ => return Err(UpdateError::WrongTarget("incrementing is for numbers".to_owned())),
    }
    Ok(())
}

/// Of the logical types of whole numbers only times of day are bounded.
fn check_time_of_day(schema: &Schema, node: NodeId, sum: i64) -> Result<(), UpdateError> {
    let is_allowed = schema.node(node).logical.is_none_or(|logical| logical.allows(sum));
    if is_allowed { Ok(()) } else { Err(beyond("a time of day")) }
}

fn beyond(what: &str) -> UpdateError {
    UpdateError::WrongValue(format!("the sum is beyond what {what} can hold"))
}

fn number(value: &str) -> Result<Value, UpdateError> {
    serde_json::from_str(value).map_err(|error| UpdateError::WrongValue(format!("not a JSON number: {error}")))
}

fn whole(value: &str) -> Result<i64, UpdateError> {
    let number = number(value)?.as_i64();
    number
        .ok_or_else(|| UpdateError::WrongValue("a whole number is incremented by a whole number of 64 bits".to_owned()))
}

fn float(value: &str) -> Result<f64, UpdateError> {
    let number = number(value)?.as_f64();
    number.ok_or_else(|| UpdateError::WrongValue("a number is incremented by a number".to_owned()))
}

/// A decimal is read as one that is stored, so it has its digits and no more.
fn encoded(schema: &Schema, node: NodeId, value: &str) -> Result<Vec<u8>, UpdateError> {
    let mut bytes = Vec::new();
    from_json(schema, node, value.as_bytes(), JsonForm::Plain, Missing::Default, &mut bytes)?;
    Ok(bytes)
}

fn sum(a: &[u8], b: &[u8], precision: u32, scale: u32) -> Result<i128, UpdateError> {
    let unscaled = |bytes| Decimal::from_bytes(bytes, scale).map(|decimal| decimal.unscaled);
    let sum = unscaled(a).zip(unscaled(b)).and_then(|(a, b)| a.checked_add(b)).ok_or_else(|| beyond("128 bits"))?;
    let digits = sum.unsigned_abs().checked_ilog10().unwrap_or(0) + 1;
    if digits > precision { Err(beyond("the decimal")) } else { Ok(sum) }
}

/// Without the redundant bytes at the front; at least one byte is left.
fn shortest(bytes: &[u8; 16]) -> &[u8] {
    let says_nothing = |pair: &[u8]| matches!((pair[0], pair[1]), (0, 0..=0x7f) | (0xff, 0x80..=0xff));
    &bytes[bytes.windows(2).take_while(|pair| says_nothing(pair)).count()..]
}
