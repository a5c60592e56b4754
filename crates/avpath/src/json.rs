//! The JSON of values, where an evaluation needs it.

use millrace_avro::{JsonForm, Malformed, Missing, NodeId, Reader, Schema, from_json, to_json, write_long};
use serde_json::Value;

/// A value as a tree.
pub(crate) fn tree(schema: &Schema, node: NodeId, bytes: &[u8]) -> Result<Value, Malformed> {
    let mut text = Vec::new();
    to_json(schema, node, bytes, JsonForm::Plain, &mut text)?;
    // The text was written just now. A reader may refuse only its depth, and values do not nest so deep.
    Ok(serde_json::from_slice(&text).unwrap_or_default())
}

/// The text of a value that is text in JSON. For other values, their JSON.
pub(crate) fn text(schema: &Schema, node: NodeId, bytes: &[u8]) -> Result<String, Malformed> {
    Ok(match tree(schema, node, bytes)? {
        Value::String(text) => text,
        other => other.to_string(),
    })
}

/// The number of a text that is a date, a time or a timestamp.
pub(crate) fn moment(schema: &Schema, node: NodeId, text: &str) -> Option<i64> {
    let json = Value::from(text).to_string();
    let mut bytes = Vec::new();
    from_json(schema, node, json.as_bytes(), JsonForm::Plain, Missing::Default, &mut bytes).ok()?;
    Reader::new(&bytes).long().ok()
}

pub(crate) fn moment_text(schema: &Schema, node: NodeId, moment: i64) -> Result<String, Malformed> {
    let mut bytes = Vec::new();
    write_long(&mut bytes, moment);
    text(schema, node, &bytes)
}
