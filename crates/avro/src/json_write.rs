//! From encoded values to JSON, in one pass.
//!
//! Plain JSON is for people. It has unions without branch names wherever reading the text gives the same branch back
//! (else `{"branch":value}`). Decimals, dates, times and UUIDs are text, bytes are base64, and durations
//! `{"months","days","millis"}`. Avro JSON is the specification's encoding. In both, numbers that JSON does not have
//! are the texts `"NaN"`, `"Infinity"` and `"-Infinity"`.

use crate::binary::{Reader, TOO_DEEP};
use crate::calendar;
use crate::decimal;
use crate::error::Malformed;
use crate::schema::{Field, Kind, Logical, NodeId, Schema};
use crate::shape::{Class, Shape, UnionShape};
use crate::text::{write_code_points, write_string};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use millrace_base::json::is_plain_ascii;
use millrace_base::limits;

/// How values are written in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonForm {
    /// For people.
    #[default]
    Plain,
    /// As the Avro specification defines it.
    Avro,
}

/// Appends a value as JSON. Fields come in the schema's order, entries of maps in their own.
///
/// # Errors
/// If the bytes are not a value of the node, or go on behind it, or the text takes more than
/// [`limits::RECORD_JSON_BYTES`]. Throw away what was appended.
pub fn to_json(
    schema: &Schema,
    node: NodeId,
    bytes: &[u8],
    form: JsonForm,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let most = out.len() + limits::RECORD_JSON_BYTES;
    let mut writer = Writer { schema, reader: Reader::new(bytes), out, most };
    match form {
        JsonForm::Plain => writer.value::<true>(node, 0)?,
        JsonForm::Avro => writer.value::<false>(node, 0)?,
    }
    if writer.reader.is_at_end() { Ok(()) } else { writer.reader.malformed("the bytes go on behind the value") }
}

struct Writer<'s, 'b, 'o> {
    schema: &'s Schema,
    reader: Reader<'b>,
    out: &'o mut Vec<u8>,
    /// Bytes that `out` may have.
    most: usize,
}

impl Writer<'_, '_, '_> {
    fn value<const PLAIN: bool>(&mut self, id: NodeId, depth: usize) -> Result<(), Malformed> {
        let schema = self.schema;
        let node = schema.node(id);
        if PLAIN && node.logical.is_some() {
            return self.logical(&node.kind, node.logical);
        }
        match &node.kind {
            Kind::Null => self.out.extend_from_slice(b"null"),
            Kind::Boolean => {
                let text: &[u8] = if self.reader.boolean()? { b"true" } else { b"false" };
                self.out.extend_from_slice(text);
            }
            Kind::Int => {
                let number = self.reader.int()?;
                self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            }
            Kind::Long => {
                let number = self.reader.long()?;
                self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            }
            Kind::Float => {
                let number = self.reader.float()?;
                self.float(number);
            }
            Kind::Double => {
                let number = self.reader.double()?;
                self.float(number);
            }
            Kind::Bytes => {
                let bytes = self.reader.bytes()?;
                self.binary::<PLAIN>(bytes);
            }
            Kind::Fixed { size, .. } => {
                let bytes = self.reader.fixed(*size)?;
                self.binary::<PLAIN>(bytes);
            }
            Kind::String => {
                let bytes = self.reader.bytes()?;
                self.string(bytes)?;
            }
            Kind::Enum { symbols, .. } => {
                let index = self.reader.index(symbols.len())?;
                if let Shape::Enum { quoted, .. } = schema.shape_of(id) {
                    self.out.extend_from_slice(&quoted[index]);
                }
            }
            Kind::Record { fields, .. } => self.record::<PLAIN>(id, fields, depth)?,
            Kind::Union(branches) => self.union::<PLAIN>(id, branches, depth)?,
            Kind::Array(item) => {
                self.items(b'[', depth, |writer| writer.value::<PLAIN>(*item, depth + 1))?;
                self.out.push(b']');
            }
            Kind::Map(value) => {
                self.items(b'{', depth, |writer| {
                    let key = writer.reader.bytes()?;
                    writer.string(key)?;
                    writer.out.push(b':');
                    writer.value::<PLAIN>(*value, depth + 1)
                })?;
                self.out.push(b'}');
            }
        }
        Ok(())
    }

    #[inline]
    fn string(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        // Most strings are short and need no escape. One look shows that they are ASCII, and so UTF-8.
        if is_plain_ascii(bytes) {
            self.out.reserve(bytes.len() + 2);
            self.out.push(b'"');
            self.out.extend_from_slice(bytes);
            self.out.push(b'"');
            return Ok(());
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                write_string(self.out, text);
                Ok(())
            }
            Err(_) => self.reader.malformed("a string is not UTF-8"),
        }
    }

    #[inline]
    fn record<const PLAIN: bool>(&mut self, id: NodeId, fields: &[Field], depth: usize) -> Result<(), Malformed> {
        self.check(depth)?;
        let Shape::Record { openings, .. } = self.schema.shape_of(id) else { return Ok(()) };
        for (field, opening) in fields.iter().zip(openings) {
            self.out.extend_from_slice(opening);
            self.value::<PLAIN>(field.node, depth + 1)?;
        }
        self.out.extend_from_slice(if fields.is_empty() { b"{}" } else { b"}" });
        Ok(())
    }

    /// Checks whether there may be a container at this depth, and more text.
    #[inline]
    fn check(&self, depth: usize) -> Result<(), Malformed> {
        if depth >= limits::VALUE_DEPTH {
            return self.reader.malformed(TOO_DEEP);
        }
        if self.out.len() > self.most {
            return self.reader.malformed("the value is too large as JSON");
        }
        Ok(())
    }

    #[inline]
    fn items(
        &mut self,
        opening: u8,
        depth: usize,
        mut item: impl FnMut(&mut Self) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        self.out.push(opening);
        let mut is_first = true;
        loop {
            let count = self.reader.block()?;
            if count == 0 {
                return self.check(depth);
            }
            for _ in 0..count {
                self.check(depth)?;
                if !is_first {
                    self.out.push(b',');
                }
                is_first = false;
                item(self)?;
            }
        }
    }

    fn union<const PLAIN: bool>(&mut self, id: NodeId, branches: &[NodeId], depth: usize) -> Result<(), Malformed> {
        let schema = self.schema;
        let index = self.reader.index(branches.len())?;
        let node = branches[index];
        let Shape::Union(shape) = schema.shape_of(id) else { return Ok(()) };
        let is_bare = matches!(schema.kind(node), Kind::Null) || PLAIN && self.is_clear(shape, index, node)?;
        if is_bare {
            return self.value::<PLAIN>(node, depth);
        }
        self.out.extend_from_slice(&shape.tags[index]);
        self.value::<PLAIN>(node, depth)?;
        self.out.push(b'}');
        Ok(())
    }

    /// Whether the next value, of this branch, is read as this branch without its name.
    fn is_clear(&self, shape: &UnionShape, index: usize, node: NodeId) -> Result<bool, Malformed> {
        let class = self.class(node)?;
        let is_first = shape.candidates[class as usize].first().is_some_and(|first| *first as usize == index);
        if !is_first || shape.looks_named[index] {
            return Ok(false);
        }
        if !matches!(self.schema.kind(node), Kind::Map(_)) {
            return Ok(true);
        }
        // A map of one entry, which might be taken for a name and a value.
        let mut ahead = self.reader.clone();
        if ahead.block()? == 0 {
            return Ok(true);
        }
        let key = ahead.string()?;
        Ok(!shape.tags.iter().any(|tag| tag[2..tag.len() - 2] == *key.as_bytes()))
    }

    fn class(&self, node: NodeId) -> Result<Class, Malformed> {
        let node = self.schema.node(node);
        Ok(match &node.kind {
            Kind::Null => Class::Null,
            Kind::Boolean => Class::Boolean,
            Kind::Int | Kind::Long => match node.logical {
                Some(logical) if calendar::has_text(logical, self.reader.clone().long()?) => Class::String,
                _ => Class::Integer,
            },
            Kind::Float if !self.reader.clone().float()?.is_finite() => Class::String,
            Kind::Double if !self.reader.clone().double()?.is_finite() => Class::String,
            Kind::Float | Kind::Double => Class::Number,
            Kind::Fixed { .. } if node.logical == Some(Logical::Duration) => Class::Object,
            Kind::Bytes | Kind::String | Kind::Enum { .. } | Kind::Fixed { .. } => Class::String,
            Kind::Array(_) => Class::Array,
            Kind::Map(_) | Kind::Record { .. } | Kind::Union(_) => Class::Object,
        })
    }

    /// The shortest digits that are read as the same number, always with a point or an exponent.
    #[inline]
    fn float(&mut self, number: impl zmij::Float + Into<f64> + Copy) {
        let wide: f64 = number.into();
        let text: &[u8] = match wide {
            _ if wide.is_finite() => {
                return self.out.extend_from_slice(zmij::Buffer::new().format_finite(number).as_bytes());
            }
            f64::INFINITY => b"\"Infinity\"",
            f64::NEG_INFINITY => b"\"-Infinity\"",
            _ => b"\"NaN\"",
        };
        self.out.extend_from_slice(text);
    }

    fn binary<const PLAIN: bool>(&mut self, bytes: &[u8]) {
        if !PLAIN {
            return write_code_points(self.out, bytes);
        }
        self.out.push(b'"');
        let start = self.out.len();
        let size = base64::encoded_len(bytes.len(), true).unwrap_or(0);
        self.out.resize(start + size, 0);
        BASE64.encode_slice(bytes, &mut self.out[start..]).expect("as much room as it says it needs");
        self.out.push(b'"');
    }

    fn logical(&mut self, kind: &Kind, logical: Option<Logical>) -> Result<(), Malformed> {
        match (kind, logical) {
            (Kind::Int | Kind::Long, Some(logical)) => {
                let number = match kind {
                    Kind::Int => self.reader.int()?.into(),
                    _ => self.reader.long()?,
                };
                if calendar::has_text(logical, number) {
                    self.out.push(b'"');
                    calendar::write(self.out, logical, number);
                    self.out.push(b'"');
                } else {
                    self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
                }
            }
            (Kind::Bytes, Some(Logical::Decimal { scale, .. })) => {
                let bytes = self.reader.bytes()?;
                return self.decimal(bytes, scale);
            }
            (Kind::Fixed { size, .. }, Some(Logical::Decimal { scale, .. })) => {
                let bytes = self.reader.fixed(*size)?;
                return self.decimal(bytes, scale);
            }
            (Kind::Fixed { .. }, Some(Logical::Uuid)) => {
                let bytes = self.reader.fixed(16)?;
                write_uuid(self.out, bytes);
            }
            (Kind::Fixed { .. }, Some(Logical::Duration)) => {
                for name in ["{\"months\":", ",\"days\":", ",\"millis\":"] {
                    let bytes = self.reader.fixed(4)?;
                    let number = bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                    self.out.extend_from_slice(name.as_bytes());
                    self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
                }
                self.out.push(b'}');
            }
            // A UUID that is a string is already what people write.
            _ => {
                let bytes = self.reader.bytes()?;
                self.string(bytes)?;
            }
        }
        Ok(())
    }

    fn decimal(&mut self, bytes: &[u8], scale: u32) -> Result<(), Malformed> {
        self.out.push(b'"');
        if !decimal::write(self.out, bytes, scale) {
            return self.reader.malformed("a decimal has too many digits");
        }
        self.out.push(b'"');
        Ok(())
    }
}

fn write_uuid(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble & 15)];
        out.extend_from_slice(&[digit(byte >> 4), digit(*byte)]);
    }
    out.push(b'"');
}
