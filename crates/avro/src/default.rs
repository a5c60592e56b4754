//! Defaults: from a schema's JSON to encoded values, and the values of records that nobody has written.

use crate::binary::{write_bytes, write_length, write_long};
use crate::decimal;
use crate::error::{SchemaError, ValueError, ValueErrorKind};
use crate::parse::RawDefaults;
use crate::schema::{Kind, Logical, NodeId, Schema};
use millrace_base::limits;
use serde_json::Value;

/// Encodes the defaults of all fields.
pub(crate) fn compile(schema: &mut Schema, defaults: &RawDefaults<'_>) -> Result<(), SchemaError> {
    let mut encoded = Vec::with_capacity(defaults.len());
    let mut encoder = Encoder { schema, defaults, steps: 0, total: 0 };
    for (&(record, field), default) in defaults {
        let Kind::Record { fields, .. } = encoder.schema.kind(record) else { continue };
        let mut out = Vec::new();
        if let Err(message) = encoder.encode(fields[field].node, default.json, &mut out, 0) {
            return Err(SchemaError::new(
                &default.path,
                format_args!("the default is not of the field's type: {message}"),
            ));
        }
        encoder.total += out.len();
        encoded.push((record, field, out.into_boxed_slice()));
    }
    for (record, field, bytes) in encoded {
        if let Kind::Record { fields, .. } = &mut schema.nodes[record.0 as usize].kind {
            fields[field].default = Some(bytes);
        }
    }
    Ok(())
}

/// Values that the defaults of one schema may have together. A default may leave out fields that have defaults, so a
/// short text can stand for many values.
const STEPS: usize = 1_000_000;

struct Encoder<'s, 'v> {
    schema: &'s Schema,
    defaults: &'s RawDefaults<'v>,
    steps: usize,
    /// Bytes of the defaults encoded before.
    total: usize,
}

impl Encoder<'_, '_> {
    fn encode(&mut self, node: NodeId, json: &Value, out: &mut Vec<u8>, depth: usize) -> Result<(), String> {
        self.steps += 1;
        if depth > 2 * limits::VALUE_DEPTH {
            return Err("it nests too deep, or never ends".to_owned());
        }
        if self.steps > STEPS || self.total + out.len() > limits::RECORD_BYTES {
            return Err("the defaults are too large".to_owned());
        }
        let wrong = |what: &str| Err(format!("{} is not {what}", shortened(json)));
        match (self.schema.kind(node), json) {
            (Kind::Null, Value::Null) => (),
            (Kind::Boolean, Value::Bool(is_true)) => out.push(u8::from(*is_true)),
            (Kind::Int, Value::Number(number)) => match number.as_i64().and_then(|number| i32::try_from(number).ok()) {
                Some(number) => write_long(out, number.into()),
                None => return wrong("an int"),
            },
            (Kind::Long, Value::Number(number)) => match number.as_i64() {
                Some(number) => write_long(out, number),
                None => return wrong("a long"),
            },
            (Kind::Float, _) => match float(json) {
                Some(number) => out.extend_from_slice(&(number as f32).to_le_bytes()),
                None => return wrong("a float"),
            },
            (Kind::Double, _) => match float(json) {
                Some(number) => out.extend_from_slice(&number.to_le_bytes()),
                None => return wrong("a double"),
            },
            (Kind::String, Value::String(text)) => write_bytes(out, text.as_bytes()),
            (Kind::Bytes, Value::String(text)) => match code_points(text) {
                Some(bytes) if matches!(self.schema.node(node).logical, Some(Logical::Decimal { .. })) => {
                    write_bytes(out, decimal::shortest(&bytes));
                }
                Some(bytes) => write_bytes(out, &bytes),
                None => return wrong("bytes: a character is above U+00FF"),
            },
            (Kind::Fixed { size, .. }, Value::String(text)) => match code_points(text) {
                Some(bytes) if bytes.len() == *size => out.extend_from_slice(&bytes),
                _ => return wrong("a fixed of this size"),
            },
            (Kind::Enum { symbols, .. }, Value::String(text)) => {
                match symbols.iter().position(|symbol| **symbol == **text) {
                    Some(index) => write_length(out, index),
                    None => return wrong("a symbol"),
                }
            }
            (Kind::Array(item), Value::Array(items)) => self.items(*item, items, out, depth)?,
            (Kind::Map(value), Value::Object(entries)) => self.entries(*value, entries, out, depth)?,
            (Kind::Union(branches), _) => self.union(branches, json, out, depth)?,
            (Kind::Record { fields, .. }, Value::Object(members)) => {
                for (index, field) in fields.iter().enumerate() {
                    let defaults = self.defaults;
                    match (members.get(&*field.name), defaults.get(&(node, index))) {
                        (Some(json), _) => self.encode(field.node, json, out, depth + 1)?,
                        (None, Some(default)) => self.encode(field.node, default.json, out, depth + 1)?,
                        (None, None) => return wrong(&format!("complete: the field {:?} is missing", &*field.name)),
                    }
                }
            }
            (kind, _) => return wrong(&format!("a {}", crate::parse::branch_name(kind))),
        }
        Ok(())
    }

    fn items(&mut self, item: NodeId, items: &[Value], out: &mut Vec<u8>, depth: usize) -> Result<(), String> {
        if !items.is_empty() {
            write_length(out, items.len());
            for json in items {
                self.encode(item, json, out, depth + 1)?;
            }
        }
        out.push(0);
        Ok(())
    }

    fn entries(
        &mut self,
        value: NodeId,
        entries: &serde_json::Map<String, Value>,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), String> {
        if !entries.is_empty() {
            write_length(out, entries.len());
            for (key, json) in entries {
                write_bytes(out, key.as_bytes());
                self.encode(value, json, out, depth + 1)?;
            }
        }
        out.push(0);
        Ok(())
    }

    /// The first branch of which it is a value, as the specification says since 1.12.
    fn union(&mut self, branches: &[NodeId], json: &Value, out: &mut Vec<u8>, depth: usize) -> Result<(), String> {
        let length = out.len();
        for (index, branch) in branches.iter().enumerate() {
            write_length(out, index);
            match self.encode(*branch, json, out, depth + 1) {
                Ok(()) => return Ok(()),
                // Another try would take the same steps again.
                Err(message) if self.steps > STEPS || branches.len() == 1 => return Err(message),
                Err(_) => out.truncate(length),
            }
        }
        Err(format!("{} is not a value of any branch", shortened(json)))
    }
}

fn float(json: &Value) -> Option<f64> {
    match json {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn code_points(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|letter| u8::try_from(u32::from(letter)).ok()).collect()
}

/// For messages.
fn shortened(json: &Value) -> String {
    let text = json.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

impl Schema {
    /// The value of a record that nobody has written: [`Schema::minimal_default`] of the root.
    ///
    /// # Errors
    /// If it is too large.
    pub fn default_value(&self) -> Result<Vec<u8>, ValueError> {
        self.minimal_default(self.root)
    }

    /// The value of a node if none is given. Fields have their defaults. A field without one has its type's zero: 0,
    /// false, "", the nil UUID, no elements, an enum's first symbol. A union has null if it allows it, else its first
    /// branch that ends.
    ///
    /// # Errors
    /// If it is too large.
    pub fn minimal_default(&self, node: NodeId) -> Result<Vec<u8>, ValueError> {
        let mut out = Vec::new();
        let mut zero = Zero { schema: self, open: Vec::new(), steps: 0 };
        if zero.write(node, &mut out) {
            return Ok(out);
        }
        let message = "the value that consists of defaults is too large".to_owned();
        Err(ValueError { kind: ValueErrorKind::TooLarge, path: ".".to_owned(), message })
    }

    /// Appends the same. False if there is no such value.
    pub(crate) fn write_minimal_default(&self, node: NodeId, out: &mut Vec<u8>) -> bool {
        Zero { schema: self, open: Vec::new(), steps: 0 }.write(node, out)
    }
}

/// The UUID that stands for none.
const NIL_UUID: &str = "00000000-0000-0000-0000-000000000000";

struct Zero<'s> {
    schema: &'s Schema,
    /// The records whose fields are being written. A branch that leads into one of them again is not taken.
    open: Vec<NodeId>,
    steps: usize,
}

impl Zero<'_> {
    fn write(&mut self, node: NodeId, out: &mut Vec<u8>) -> bool {
        self.steps += 1;
        if self.steps > 2 * limits::RECORD_VALUES || out.len() > limits::RECORD_BYTES {
            return false;
        }
        let Kind::Union(branches) = self.schema.kind(node) else { return self.write_plain(node, out) };
        let is_null = |branch: &&NodeId| matches!(self.schema.kind(**branch), Kind::Null);
        if let Some(index) = branches.iter().position(|branch| is_null(&branch)) {
            write_length(out, index);
            return true;
        }
        let length = out.len();
        branches.iter().enumerate().any(|(index, branch)| {
            out.truncate(length);
            write_length(out, index);
            self.write(*branch, out)
        })
    }

    fn write_plain(&mut self, node: NodeId, out: &mut Vec<u8>) -> bool {
        match self.schema.kind(node) {
            Kind::Null => (),
            Kind::Bytes if matches!(self.schema.node(node).logical, Some(Logical::Decimal { .. })) => {
                write_bytes(out, &[0]);
            }
            Kind::String if self.schema.node(node).logical == Some(Logical::Uuid) => {
                write_bytes(out, NIL_UUID.as_bytes());
            }
            Kind::Boolean
            | Kind::Int
            | Kind::Long
            | Kind::Bytes
            | Kind::String
            | Kind::Enum { .. }
            | Kind::Array(_)
            | Kind::Map(_)
            | Kind::Union(_) => out.push(0),
            Kind::Float => out.extend_from_slice(&[0; 4]),
            Kind::Double => out.extend_from_slice(&[0; 8]),
            Kind::Fixed { size, .. } => out.resize(out.len() + size, 0),
            Kind::Record { fields, .. } => {
                // No value deeper than that can be read again.
                if self.open.contains(&node) || self.open.len() >= limits::VALUE_DEPTH {
                    return false;
                }
                self.open.push(node);
                let is_written = fields.iter().all(|field| match &field.default {
                    Some(default) => {
                        out.extend_from_slice(default);
                        true
                    }
                    None => self.write(field.node, out),
                });
                self.open.pop();
                return is_written;
            }
        }
        true
    }
}
