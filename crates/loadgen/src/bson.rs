//! BSON, as far as comparisons with servers of MongoDB's protocol need it.
//!
//! Requests are written as relaxed Extended JSON. Whole numbers become 32-bit integers if they fit, otherwise 64-bit
//! ones. `{"$numberInt": "…"}` is a 32-bit integer whose text may be a template. Replies are read in place.
//!
//! Promises: fields keep their order, because the first field names a command. Lengths count the filled-in template
//! parts. Memory is bounded, and no bytes make it panic.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::codec::ParseError;
use super::plan::BenchError;
use super::template::{Compiler, Scope, Template};

const DOUBLE: u8 = 0x01;
const TEXT: u8 = 0x02;
pub(super) const DOCUMENT: u8 = 0x03;
pub(super) const ARRAY: u8 = 0x04;
const BINARY: u8 = 0x05;
const OBJECT_ID: u8 = 0x07;
const BOOLEAN: u8 = 0x08;
const DATE: u8 = 0x09;
const NULL: u8 = 0x0A;
const INT32: u8 = 0x10;
const TIMESTAMP: u8 = 0x11;
const INT64: u8 = 0x12;
const DECIMAL: u8 = 0x13;

/// In Extended JSON, a document with only this field is a number.
const NUMBER: &str = "$numberInt";

/// Bytes of a document's JSON: the servers' limit for BSON.
const JSON_BYTES: usize = 16 << 20;

/// Depth of documents inside documents; servers allow 100.
const DEPTH: usize = 100;

/// A document's length and its end.
const EMPTY_DOCUMENT: usize = 5;

/// A document whose texts and numbers may hold template parts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DocumentTemplate {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// Types, names, and values without template parts.
    Literal(Vec<u8>),
    Text(Template),
    Int32(Template),
    Document(DocumentTemplate),
}

/// JSON with its fields in their order.
enum Node {
    Null,
    Boolean(bool),
    Integer(i64),
    Double(f64),
    Text(String),
    Array(Vec<Node>),
    Document(Vec<(String, Node)>),
}

impl DocumentTemplate {
    /// Compiles a document.
    ///
    /// # Errors
    /// Names the text that is not JSON, not a document, or not a template.
    pub(super) fn compile(json: &str) -> Result<Self, BenchError> {
        if json.len() > JSON_BYTES {
            return Err(refuse(format!("it is longer than {JSON_BYTES} bytes")));
        }
        match serde_json::from_str(json) {
            Ok(Node::Document(fields)) => Self::of_fields(&mut Compiler::default(), &fields),
            Ok(_) => Err(refuse("it is not an object".to_owned())),
            Err(error) => Err(refuse(error.to_string())),
        }
    }

    fn of_fields(compiler: &mut Compiler, fields: &[(String, Node)]) -> Result<Self, BenchError> {
        let mut document = Self { parts: Vec::new() };
        for (name, node) in fields {
            document.push(compiler, name, node)?;
        }
        Ok(document)
    }

    fn push(&mut self, compiler: &mut Compiler, name: &str, node: &Node) -> Result<(), BenchError> {
        if name.contains('\0') {
            return Err(refuse(format!("the name {name:?} holds a NUL")));
        }
        let compile = |compiler: &mut Compiler, text: &str| {
            compiler.compile(text).map_err(|error| refuse(format!("the value of {name:?}: {error}")))
        };
        match node {
            Node::Null => self.element(NULL, name, &[]),
            Node::Boolean(value) => self.element(BOOLEAN, name, &[u8::from(*value)]),
            Node::Double(value) => self.element(DOUBLE, name, &value.to_le_bytes()),
            Node::Integer(value) => match i32::try_from(*value) {
                Ok(value) => self.element(INT32, name, &value.to_le_bytes()),
                Err(_) => self.element(INT64, name, &value.to_le_bytes()),
            },
            Node::Text(text) => {
                self.element(TEXT, name, &[]);
                self.part(Part::Text(compile(compiler, text)?));
            }
            Node::Document(fields) => match fields.as_slice() {
                [(key, Node::Text(number))] if key == NUMBER => {
                    let number = compile(compiler, number)?;
                    if !number.is_decimal() {
                        return Err(refuse(format!("the number {name:?} is made of more than digits")));
                    }
                    self.element(INT32, name, &[]);
                    self.part(Part::Int32(number));
                }
                fields => {
                    self.element(DOCUMENT, name, &[]);
                    self.part(Part::Document(Self::of_fields(compiler, fields)?));
                }
            },
            Node::Array(items) => {
                let mut inner = Self { parts: Vec::new() };
                for (index, item) in items.iter().enumerate() {
                    inner.push(compiler, &index.to_string(), item)?;
                }
                self.element(ARRAY, name, &[]);
                self.part(Part::Document(inner));
            }
        }
        Ok(())
    }

    fn element(&mut self, kind: u8, name: &str, value: &[u8]) {
        self.literal(&[&[kind], name.as_bytes(), &[0], value].concat());
    }

    fn literal(&mut self, bytes: &[u8]) {
        match self.parts.last_mut() {
            Some(Part::Literal(last)) => last.extend_from_slice(bytes),
            _ => self.parts.push(Part::Literal(bytes.to_vec())),
        }
    }

    /// Adds a value. A value without template parts is built now.
    fn part(&mut self, part: Part) {
        let is_fixed = match &part {
            Part::Literal(_) => true,
            Part::Text(template) | Part::Int32(template) => template.as_literal().is_some(),
            Part::Document(document) => document.is_literal(),
        };
        if is_fixed {
            let mut bytes = Vec::new();
            part.render(&mut Scope::new(0, 0, 1), &mut Vec::new(), &mut bytes);
            self.literal(&bytes);
        } else {
            self.parts.push(part);
        }
    }

    /// Whether it is always the same.
    pub(super) fn is_literal(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Literal(_)))
    }

    /// Appends the document for the scope's current request.
    pub(super) fn render(&self, scope: &mut Scope, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        for part in &self.parts {
            part.render(scope, scratch, out);
        }
        out.push(0);
        put_length(out, start, start);
    }
}

impl Part {
    fn render(&self, scope: &mut Scope, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        match self {
            Part::Literal(bytes) => out.extend_from_slice(bytes),
            Part::Text(template) => {
                let start = out.len();
                out.extend_from_slice(&[0; 4]);
                template.render(scope, out);
                out.push(0);
                put_length(out, start, start + 4);
            }
            Part::Int32(template) => {
                scratch.clear();
                template.render(scope, scratch);
                out.extend_from_slice(&number(scratch).to_le_bytes());
            }
            Part::Document(document) => document.render(scope, scratch, out),
        }
    }
}

/// Sets the length at `start`, which counts the bytes from `first` on. Templates are too small to overflow it.
pub(super) fn put_length(out: &mut [u8], start: usize, first: usize) {
    let length = out.len() - first;
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&i32::try_from(length).unwrap_or(i32::MAX).to_le_bytes());
    }
}

/// A decimal number. A number that is too large becomes the largest.
fn number(digits: &[u8]) -> i32 {
    let add = |sum: i32, digit: &u8| sum.saturating_mul(10).saturating_add(i32::from(digit.wrapping_sub(b'0')));
    digits.iter().fold(0, add)
}

fn refuse(why: String) -> BenchError {
    BenchError::Arguments(format!("the document cannot be used: {why}"))
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Boolean(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Integer(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        i64::try_from(value).map(Node::Integer).map_err(|_| E::custom(format!("{value} is too large")))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Double(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(Node::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Node, A::Error> {
        let mut all = Vec::new();
        while let Some(field) = fields.next_entry()? {
            all.push(field);
        }
        Ok(Node::Document(all))
    }
}

/// One field of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element<'a> {
    pub kind: u8,
    pub name: &'a [u8],
    /// Its bytes, with a length where the type has one.
    pub value: &'a [u8],
}

/// The fields of a document, in their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elements<'a> {
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    /// `document` is a whole document.
    pub(super) fn of(document: &'a [u8]) -> Result<Self, ParseError> {
        match document {
            [_, _, _, _, rest @ .., 0] if length_at(document)? == document.len() => Ok(Self { rest }),
            _ => Err(ParseError("a document does not end where its length says")),
        }
    }

    /// The next field; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Element<'a>>, ParseError> {
        let Some((&kind, after)) = self.rest.split_first() else { return Ok(None) };
        let end = after.iter().position(|byte| *byte == 0).ok_or(ParseError("a field's name does not end"))?;
        let (name, after) = (&after[..end], &after[end + 1..]);
        let length = match kind {
            NULL => 0,
            BOOLEAN => 1,
            INT32 => 4,
            DOUBLE | DATE | TIMESTAMP | INT64 => 8,
            OBJECT_ID => 12,
            DECIMAL => 16,
            TEXT => length_at(after)?.saturating_add(4),
            BINARY => length_at(after)?.saturating_add(5),
            DOCUMENT | ARRAY => length_at(after)?,
            _ => return Err(ParseError("a field has a type that no reply has")),
        };
        let value = after.get(..length).ok_or(ParseError("a field is longer than its document"))?;
        let is_whole = match kind {
            TEXT => length > 4 && value.ends_with(&[0]),
            DOCUMENT | ARRAY => length >= EMPTY_DOCUMENT && value.ends_with(&[0]),
            _ => true,
        };
        if !is_whole {
            return Err(ParseError("a field does not end where its length says"));
        }
        self.rest = &after[length..];
        Ok(Some(Element { kind, name, value }))
    }
}

impl<'a> Element<'a> {
    /// The value of any numeric type; `true` is 1.
    pub(super) fn integer(&self) -> Option<i64> {
        match self.kind {
            INT32 => self.value.try_into().ok().map(i32::from_le_bytes).map(i64::from),
            INT64 => self.value.try_into().ok().map(i64::from_le_bytes),
            // Counts and `ok` are small whole numbers.
            DOUBLE => {
                self.double().filter(|value| value.fract() == 0.0 && value.abs() < 1e15).map(|value| value as i64)
            }
            BOOLEAN => self.value.first().map(|byte| i64::from(*byte)),
            _ => None,
        }
    }

    fn double(&self) -> Option<f64> {
        self.value.try_into().ok().map(f64::from_le_bytes)
    }

    /// The bytes of a text; empty for anything else.
    pub(super) fn text(&self) -> &'a [u8] {
        match (self.kind, self.value) {
            (TEXT, [_, _, _, _, text @ .., 0]) => text,
            _ => &[],
        }
    }
}

/// The length at the start of `bytes`.
pub(super) fn length_at(bytes: &[u8]) -> Result<usize, ParseError> {
    let length = bytes.first_chunk().ok_or(ParseError("a length is cut off"))?;
    usize::try_from(i32::from_le_bytes(*length)).map_err(|_| ParseError("a length is negative"))
}

/// A document as JSON. `depth` counts the documents around it.
pub(super) fn decode(document: &[u8], depth: usize) -> Result<Value, ParseError> {
    let mut elements = Elements::of(document)?;
    let mut fields = Map::new();
    while let Some(element) = elements.next()? {
        fields.insert(String::from_utf8_lossy(element.name).into_owned(), decode_value(&element, depth)?);
    }
    Ok(Value::Object(fields))
}

fn decode_value(element: &Element<'_>, depth: usize) -> Result<Value, ParseError> {
    match element.kind {
        NULL => Ok(Value::Null),
        BOOLEAN => Ok(Value::Bool(element.integer() != Some(0))),
        DOUBLE => Ok(element.double().map_or(Value::Null, Value::from)),
        INT32 | INT64 => Ok(element.integer().map_or(Value::Null, Value::from)),
        TEXT => Ok(Value::String(String::from_utf8_lossy(element.text()).into_owned())),
        DOCUMENT | ARRAY if depth >= DEPTH => Err(ParseError("documents nest too deeply")),
        DOCUMENT => decode(element.value, depth + 1),
        ARRAY => {
            let mut items = Elements::of(element.value)?;
            let mut all = Vec::new();
            while let Some(item) = items.next()? {
                all.push(decode_value(&item, depth + 1)?);
            }
            Ok(Value::Array(all))
        }
        _ => Err(ParseError("a field has a type that JSON has not")),
    }
}

#[cfg(test)]
#[path = "bson_tests.rs"]
mod tests;
