//! What a query's predicate says about indexes: ranges of order keys that hold every record for which the predicate
//! holds. The predicate is tested again for each of these records, so a range may be wider than its demand.

use millrace_avpath::{Comparator, Comparison};
use millrace_avro::{Kind, Logical, NodeId, Schema, order_key_of_json};
use millrace_base::Error;
use serde_json::Value;

use crate::program::{Index, RecordType};
use crate::rows::{ORDER_KEY_BYTES, successor};
use crate::values::{NULL_KEY, Parameters, Predicate};
use crate::wire::Range;

/// Ranges, the most promising first, and why there are no others.
pub(crate) struct Plan {
    pub ranges: Vec<Range>,
    pub why_not: Vec<String>,
}

/// The scalar types that a simple path leads to in a schema, without `null`.
pub(crate) fn leaves(schema: &Schema, path: &str) -> Option<Vec<NodeId>> {
    let types_of = |node: NodeId| -> Vec<NodeId> {
        match schema.kind(node) {
            Kind::Union(branches) => branches.to_vec(),
            _ => vec![node],
        }
    };
    let mut nodes = types_of(schema.root());
    let mut rest = path;
    while !rest.is_empty() {
        let mut next: Vec<NodeId> = Vec::new();
        let name = if let Some(after) = rest.strip_prefix("[*]") {
            rest = after;
            None
        } else {
            let (name, after) = name_of(rest.strip_prefix('.')?)?;
            rest = after;
            Some(name)
        };
        for node in nodes {
            let inner = match (&name, schema.kind(node)) {
                (Some(name), Kind::Record { fields, .. }) => {
                    fields.iter().find(|field| *field.name == **name).map(|field| field.node)
                }
                (None, Kind::Array(items)) => Some(*items),
                _ => None,
            };
            next.extend(inner.into_iter().flat_map(types_of));
        }
        nodes = next;
    }
    let is_composite =
        |node: &NodeId| matches!(schema.kind(*node), Kind::Record { .. } | Kind::Array(_) | Kind::Map(_));
    nodes.retain(|node| !matches!(schema.kind(*node), Kind::Null));
    (!nodes.is_empty() && !nodes.iter().any(is_composite)).then_some(nodes)
}

/// A field's name at the beginning of a path's text, and the text behind it.
fn name_of(text: &str) -> Option<(String, &str)> {
    if text.starts_with('"') {
        let mut parsed = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let name = parsed.next()?.ok()?;
        return Some((name, &text[parsed.byte_offset()..]));
    }
    let end = text.find(['.', '[']).unwrap_or(text.len());
    (end > 0).then(|| (text[..end].to_owned(), &text[end..]))
}

pub(crate) fn plan(of: &RecordType, predicate: &Predicate, parameters: &Parameters) -> Result<Plan, Error> {
    let mut plan = Plan { ranges: Vec::new(), why_not: Vec::new() };
    let comparisons = predicate.comparisons(parameters)?;
    if comparisons.is_empty() {
        plan.why_not.push("the predicate compares no simple path with a value at its top".to_owned());
    }
    for comparison in &comparisons {
        let mut reasons = Vec::new();
        let mut has_index = false;
        for (at, index) in of.indexes.iter().enumerate() {
            if !is_about(index, comparison) {
                continue;
            }
            has_index = true;
            match range(&of.schema, at, index, comparison) {
                Ok(range) => add(&mut plan.ranges, index, range),
                Err(why) => {
                    reasons.push(format!("{} does not use the index {:?}: {why}", text(comparison), index.name))
                }
            }
        }
        if !has_index {
            plan.why_not.push(format!("there is no index on {}", comparison.path));
        }
        plan.why_not.extend(reasons);
    }
    // The sort is stable: otherwise they are in the order of the predicate.
    plan.ranges.sort_by_key(|range| (!range.is_equality, range.demands.len() < 2));
    Ok(plan)
}

fn is_about(index: &Index, comparison: &Comparison) -> bool {
    let text = index.path.text();
    text == comparison.path || text.strip_suffix("[*]") == Some(&comparison.path)
}

fn text(comparison: &Comparison) -> String {
    let value = comparison.values.first().map_or_else(String::new, Value::to_string);
    format!("{} {} {value}", comparison.path, comparison.comparator.symbol())
}

/// Two demands on the one value at a path are one range. If there are several values, different ones may meet the
/// demands.
fn add(ranges: &mut Vec<Range>, index: &Index, new: Range) {
    match ranges.iter_mut().find(|known| index.is_single && known.index == new.index) {
        None => ranges.push(new),
        Some(known) => {
            if new.low > known.low {
                known.low = new.low;
            }
            known.high = match (known.high.take(), new.high) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            known.is_equality |= new.is_equality;
            known.demands.extend(new.demands);
        }
    }
}

/// The order keys of an index that may meet a demand.
fn range(schema: &Schema, at: usize, index: &Index, comparison: &Comparison) -> Result<Range, &'static str> {
    use Comparator as C;
    let leaves = leaves(schema, index.path.text()).unwrap_or_default();
    let [leaf] = leaves[..] else {
        return Err("values of several types may be there");
    };
    let [value] = &comparison.values[..] else {
        return Err("it compares with several values");
    };
    let key = key(schema, leaf, index, comparison.comparator, value)?;
    // Only values of the same type compare.
    let (tag, after_tag) = (vec![key[0]], successor(&key[..1]));
    let after = successor(&key);
    let (low, high) = match comparison.comparator {
        C::Equal | C::Same | C::StartsWith | C::StartsWithExactly => (key.clone(), after),
        C::Less | C::LessOrEqual => (tag, after),
        C::Greater | C::GreaterOrEqual => (key.clone(), after_tag),
        _ => return Err("an index does not help with this operator"),
    };
    let is_equality = matches!(comparison.comparator, C::Equal | C::Same) && key.len() < ORDER_KEY_BYTES;
    Ok(Range { index: at, low, high, is_equality, demands: vec![text(comparison)] })
}

/// Whether a text has the form in which UUIDs are written. Such texts are in the order of their bytes.
fn is_uuid_as_written(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
}

/// The key of a literal, if comparing keys gives the same as comparing values.
fn key(
    schema: &Schema,
    leaf: NodeId,
    index: &Index,
    comparator: Comparator,
    value: &Value,
) -> Result<Vec<u8>, &'static str> {
    use Comparator as C;
    let is_equality = matches!(comparator, C::Equal | C::Same);
    let is_beginning = matches!(comparator, C::StartsWith | C::StartsWithExactly);
    let node = schema.node(leaf);
    let mut value = value.clone();
    match (&node.kind, node.logical, &value) {
        (_, _, Value::Null) if is_equality => return Ok(NULL_KEY.to_vec()),
        (Kind::String, _, Value::String(_)) => match comparator {
            C::Equal | C::StartsWith if !index.ignore_case => {
                return Err(
                    "the operator ignores case, the index does not; use === or ^==, or an index with ignore_case",
                );
            }
            C::Less | C::LessOrEqual | C::Greater | C::GreaterOrEqual if index.ignore_case => {
                return Err("the operator heeds case, the index does not");
            }
            _ => {}
        },
        (Kind::Enum { symbols, .. }, _, Value::String(text)) if comparator == C::Equal => {
            let mut same = symbols.iter().filter(|symbol| symbol.eq_ignore_ascii_case(text));
            match (same.next(), same.next()) {
                (Some(symbol), None) if text.is_ascii() => value = Value::from(&**symbol),
                _ => return Err("not exactly one symbol is equal to it"),
            }
        }
        (Kind::Enum { .. }, _, Value::String(_)) if comparator != C::StartsWith => {}
        (Kind::Boolean, _, Value::Bool(_)) if !is_beginning => {}
        (Kind::Float, _, Value::Number(number)) if !is_beginning => {
            // Numbers are rounded as the field is before they are compared with it.
            let nearest = number.as_f64().map(|number| f64::from(number as f32));
            value = nearest.and_then(serde_json::Number::from_f64).map(Value::Number).ok_or("it is too large")?;
        }
        (Kind::Int | Kind::Long | Kind::Double, _, Value::Number(_)) if !is_beginning => {}
        (_, Some(Logical::Decimal { .. }), Value::Number(number)) if !is_beginning && !number.is_f64() => {}
        (Kind::Int | Kind::Long, Some(_), Value::String(_)) if !is_beginning => {}
        // In either case of letters it stands for the same bytes.
        (Kind::Fixed { .. }, Some(Logical::Uuid), Value::String(_)) if is_equality => {}
        (Kind::Fixed { .. }, Some(Logical::Uuid), Value::String(text)) => {
            if is_beginning || !is_uuid_as_written(text) {
                return Err("in an order with UUIDs stand whole ones only, in lower case");
            }
        }
        (Kind::Bytes | Kind::Fixed { .. }, None, Value::String(_)) => {
            if comparator != C::Same {
                return Err(
                    "bytes compare as their base64, which sorts otherwise and means other bytes in another case; \
                            use ===",
                );
            }
        }
        _ => return Err("the value is of another type than what is indexed"),
    }
    let mut key = Vec::new();
    if !order_key_of_json(schema, leaf, &value, index.ignore_case, &mut key) {
        return Err("the value has no place in an order");
    }
    if is_beginning {
        // Texts end with two NULs.
        key.truncate(key.len() - 2);
    }
    key.truncate(ORDER_KEY_BYTES);
    Ok(key)
}
