//! Keys, as bytes, that sort like the values they stand for.
//!
//! | tag | value | behind it |
//! |---|---|---|
//! | 0x10 | null | nothing. |
//! | 0x20 | boolean | 0 or 1. |
//! | 0x30 | any number | the nearest `double`, so that it sorts. Then 0 if the number is below it, 1 if it is the same, 2 if it is above. If it is not the same, then its exponent and digits, so that they sort. |
//! | 0x40 | string, or an enum's symbol | its bytes, 0 as 0 255. Then 0 0. |
//! | 0x50 | bytes, fixed | the same. |
//!
//! No key is the beginning of another one. Equal numbers have equal keys whatever their types. Numbers that a `double`
//! does not tell apart (longs above 2⁵³, decimals) still sort exactly. NaN is above all numbers, and −0 is 0.

use crate::binary::Reader;
use crate::error::Malformed;
use crate::json_read::{base64_decode, read_uuid};
use crate::schema::{Kind, Logical, NodeId, Schema};
use crate::{calendar, decimal};
use num_bigint::BigInt;
use serde_json::Value;
use std::cmp::Ordering;

const NULL: u8 = 0x10;
const BOOLEAN: u8 = 0x20;
const NUMBER: u8 = 0x30;
const STRING: u8 = 0x40;
const BYTES: u8 = 0x50;

/// The letters by which texts are compared that may differ in case.
pub fn folded(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().flat_map(char::to_lowercase)
}

/// Appends the key of an encoded value. For a union, its branch's. With `fold_case`, texts and symbols lose their case.
/// False, with nothing appended, for arrays, maps, records and bytes that are not a value.
pub fn order_key(schema: &Schema, node: NodeId, bytes: &[u8], fold_case: bool, out: &mut Vec<u8>) -> bool {
    let length = out.len();
    let is_scalar = matches!(of_value(schema, node, Reader::new(bytes), fold_case, out), Ok(true));
    if !is_scalar {
        out.truncate(length);
    }
    is_scalar
}

fn of_value(
    schema: &Schema,
    id: NodeId,
    mut reader: Reader<'_>,
    fold_case: bool,
    out: &mut Vec<u8>,
) -> Result<bool, Malformed> {
    let node = schema.node(id);
    match &node.kind {
        Kind::Null => out.push(NULL),
        Kind::Boolean => out.extend([BOOLEAN, u8::from(reader.boolean()?)]),
        Kind::Int => push_integer(out, reader.int()?.into()),
        Kind::Long => push_integer(out, reader.long()?.into()),
        Kind::Float => push_double(out, reader.float()?.into()),
        Kind::Double => push_double(out, reader.double()?),
        Kind::String => push_text(out, reader.string()?, fold_case),
        Kind::Enum { symbols, .. } => push_text(out, &symbols[reader.index(symbols.len())?], fold_case),
        Kind::Bytes | Kind::Fixed { .. } => {
            let bytes = match &node.kind {
                Kind::Fixed { size, .. } => reader.fixed(*size)?,
                _ => reader.bytes()?,
            };
            return Ok(match node.logical {
                Some(Logical::Decimal { scale, .. }) => push_decimal(out, bytes, scale),
                _ => {
                    push_bytes(out, BYTES, bytes.iter().copied());
                    true
                }
            });
        }
        Kind::Union(branches) => {
            let branch = branches[reader.index(branches.len())?];
            return of_value(schema, branch, reader, fold_case, out);
        }
        Kind::Array(_) | Kind::Map(_) | Kind::Record { .. } => return Ok(false),
    }
    Ok(true)
}

/// Appends the key of the value of the node that plain JSON writes like this. JSON of another type than the node's has
/// the key of its own type, which no value of the node has. False, with nothing appended, for arrays and objects.
pub fn order_key_of_json(schema: &Schema, node: NodeId, json: &Value, fold_case: bool, out: &mut Vec<u8>) -> bool {
    match json {
        Value::Null => out.push(NULL),
        Value::Bool(is_true) => out.extend([BOOLEAN, u8::from(*is_true)]),
        Value::Number(number) => match (number.as_i128(), number.as_f64()) {
            (Some(integer), _) => push_integer(out, integer),
            (None, Some(double)) => push_number(schema, node, &number.to_string(), double, out),
            (None, None) => return false,
        },
        Value::String(text) => {
            if !push_read(schema, node, text, out) {
                push_text(out, text, fold_case);
            }
        }
        Value::Array(_) | Value::Object(_) => return false,
    }
    true
}

/// The types that a value of the node may have.
fn branches_of<'s>(schema: &'s Schema, node: &'s NodeId) -> &'s [NodeId] {
    match schema.kind(*node) {
        Kind::Union(branches) => branches,
        _ => std::slice::from_ref(node),
    }
}

/// A number with a point. For a float, the nearest one; for a decimal, exactly what is written.
fn push_number(schema: &Schema, node: NodeId, text: &str, double: f64, out: &mut Vec<u8>) {
    for branch in branches_of(schema, &node) {
        let branch = schema.node(*branch);
        match (&branch.kind, branch.logical) {
            (Kind::Double, _) => return push_double(out, double),
            (Kind::Float, _) => return push_double(out, f64::from(double as f32)),
            (_, Some(Logical::Decimal { precision, scale })) => {
                // A number with more digits than the type lies between its values.
                if let Some(bytes) = decimal::read(text, precision, scale)
                    && push_decimal(out, &bytes, scale)
                {
                    return;
                }
            }
            _ => (),
        }
    }
    push_double(out, double);
}

/// A text, read as the first type of the node for which texts stand for something else.
fn push_read(schema: &Schema, node: NodeId, text: &str, out: &mut Vec<u8>) -> bool {
    branches_of(schema, &node).iter().any(|branch| {
        let branch = schema.node(*branch);
        match (&branch.kind, branch.logical) {
            (Kind::Int | Kind::Long, Some(logical)) => {
                calendar::read(logical, text).map(|number| push_integer(out, number.into())).is_some()
            }
            (_, Some(Logical::Decimal { precision, scale })) => {
                decimal::read(text, precision, scale).is_some_and(|bytes| push_decimal(out, &bytes, scale))
            }
            (Kind::Fixed { .. }, Some(Logical::Uuid)) => {
                read_uuid(text).map(|bytes| push_bytes(out, BYTES, bytes)).is_some()
            }
            (Kind::Bytes | Kind::Fixed { .. }, None) => {
                base64_decode(text).map(|bytes| push_bytes(out, BYTES, bytes)).is_some()
            }
            (Kind::Float | Kind::Double, _) => {
                let number = match text {
                    "NaN" => f64::NAN,
                    "Infinity" => f64::INFINITY,
                    "-Infinity" => f64::NEG_INFINITY,
                    _ => return false,
                };
                push_double(out, number);
                true
            }
            _ => false,
        }
    })
}

fn push_text(out: &mut Vec<u8>, text: &str, fold_case: bool) {
    if !fold_case {
        return push_bytes(out, STRING, text.bytes());
    }
    let mut letter_bytes = [0; 4];
    out.push(STRING);
    for letter in folded(text) {
        for byte in letter.encode_utf8(&mut letter_bytes).bytes() {
            push_byte(out, byte);
        }
    }
    out.extend([0, 0]);
}

fn push_bytes(out: &mut Vec<u8>, tag: u8, bytes: impl IntoIterator<Item = u8>) {
    out.push(tag);
    bytes.into_iter().for_each(|byte| push_byte(out, byte));
    out.extend([0, 0]);
}

fn push_byte(out: &mut Vec<u8>, byte: u8) {
    out.push(byte);
    if byte == 0 {
        out.push(0xff);
    }
}

/// The tag and the double, with its bits changed so that they sort: all of them are inverted if it is negative, else
/// only the sign.
fn push_nearest(out: &mut Vec<u8>, double: f64) {
    let double = if double.is_nan() { f64::NAN } else { double + 0.0 };
    let bits = double.to_bits();
    let sorted = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    out.push(NUMBER);
    out.extend(sorted.to_be_bytes());
}

const BELOW: u8 = 0;
const EXACT: u8 = 1;
const ABOVE: u8 = 2;

fn push_double(out: &mut Vec<u8>, double: f64) {
    push_nearest(out, double);
    out.push(EXACT);
}

fn push_integer(out: &mut Vec<u8>, number: i128) {
    let double = number as f64;
    // Exact. A double made from 128 bits is within the range of 128 bits, except for the rounded maximum. That
    // saturates, and is below the double, as it should be.
    let order = number.cmp(&(double as i128));
    push_nearest(out, double);
    match order {
        Ordering::Equal => out.push(EXACT),
        order => push_digits(out, order, number < 0, &number.unsigned_abs().to_string(), 0),
    }
}

/// False if the number is far too long.
fn push_decimal(out: &mut Vec<u8>, bytes: &[u8], scale: u32) -> bool {
    let Some(number) = decimal::number_of(bytes) else { return false };
    let text = number.to_string();
    let is_negative = text.starts_with('-');
    let digits = text.trim_start_matches('-');
    // None of the correctly rounded doubles is out of order.
    let double: f64 = format!("{text}e-{scale}").parse().unwrap_or(f64::NAN);
    let order = compare(&number, scale, double);
    push_nearest(out, double);
    match order {
        Ordering::Equal => out.push(EXACT),
        order => push_digits(out, order, is_negative, digits, scale),
    }
    true
}

/// Compares `number` / 10^`scale` with a double, exactly.
fn compare(number: &BigInt, scale: u32, double: f64) -> Ordering {
    if double.is_infinite() {
        return if double > 0.0 { Ordering::Less } else { Ordering::Greater };
    }
    let bits = double.to_bits();
    let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    let mantissa = if exponent == 0 { fraction } else { fraction | 1 << 52 };
    let exponent = exponent.max(1) - 1075;
    let mut right = BigInt::from(mantissa) * BigInt::from(10).pow(scale);
    if bits >> 63 == 1 {
        right = -right;
    }
    let mut left = number.clone();
    match usize::try_from(exponent) {
        Ok(shift) => right <<= shift,
        Err(_) => left <<= exponent.unsigned_abs() as usize,
    }
    left.cmp(&right)
}

/// First, the side of the double. Then what tells numbers next to the same double apart: how many digits stand before
/// the point, and the digits, with 0 at their end. For negative numbers all bits are inverted.
fn push_digits(out: &mut Vec<u8>, side: Ordering, is_negative: bool, digits: &str, scale: u32) {
    out.push(if side == Ordering::Less { BELOW } else { ABOVE });
    let start = out.len();
    let before_point = i32::try_from(digits.len()).unwrap_or(0) - scale.cast_signed();
    // Between −1000 and 1000.
    out.extend(u16::try_from(before_point + 0x4000).unwrap_or(0).to_be_bytes());
    out.extend(digits.trim_end_matches('0').bytes());
    out.push(0);
    if is_negative {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}
