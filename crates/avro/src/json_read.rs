//! From JSON to encoded values, in one pass if members come in the schema's order.

use crate::binary::{write_bytes, write_length, write_long};
use crate::calendar;
use crate::canonical::{Budget, check_depth, finish_items};
use crate::decimal;
use crate::error::{ValueError, ValueErrorKind};
use crate::json_token::Cursor;
use crate::json_write::JsonForm;
use crate::parse::branch_name;
use crate::schema::{Field, FullName, Kind, Logical, Node, NodeId, Schema};
use crate::shape::{Class, Shape, UnionShape};
use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// What happens to fields that an object leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// They get their default, or else their type's zero value: see [`Schema::minimal_default`].
    Default,
    /// They get their default. A field without one is an error.
    Refuse,
}

/// Appends the canonical encoding of a JSON value.
///
/// Plain JSON is read as [`to_json`](crate::to_json) writes it. Besides, it may have unions with branch names: an
/// object of one member whose name is a branch's is one. It may have numbers for dates, times and decimals, and base64
/// of either alphabet with or without padding. A value for a union without a name belongs to the first branch that can
/// be written so. If several are strings or numbers, it belongs to the first that takes it. A member or key that occurs
/// twice is refused.
///
/// # Errors
/// The error has the place. Throw away what was appended.
pub fn from_json(
    schema: &Schema,
    node: NodeId,
    json: &[u8],
    form: JsonForm,
    missing: Missing,
    out: &mut Vec<u8>,
) -> Result<(), ValueError> {
    let cursor = Cursor::new(json)?;
    let start = out.len();
    let mut parser =
        Parser { schema, cursor, out, start, is_plain: form == JsonForm::Plain, missing, budget: Budget::default() };
    parser.value(node, 0)?;
    parser.check_size()?;
    match parser.cursor.peek() {
        None => Ok(()),
        Some(_) => parser.cursor.fail("the text goes on behind the value"),
    }
}

/// The encoding of the record `before`, with the fields replaced that a JSON object names. For a node that is not a
/// record, the encoding of the JSON value.
///
/// # Errors
/// As [`from_json`], and if `before` is not a value of the node.
pub fn merge_json(
    schema: &Schema,
    node: NodeId,
    before: &[u8],
    json: &[u8],
    form: JsonForm,
    missing: Missing,
    out: &mut Vec<u8>,
) -> Result<(), ValueError> {
    let Kind::Record { fields, .. } = schema.kind(node) else {
        return from_json(schema, node, json, form, missing, out);
    };
    let cursor = Cursor::new(json)?;
    let start = out.len();
    let mut parser =
        Parser { schema, cursor, out, start, is_plain: form == JsonForm::Plain, missing, budget: Budget::default() };
    parser.record(node, fields, Some(before), 0)?;
    parser.check_size()?;
    match parser.cursor.peek() {
        None => Ok(()),
        Some(_) => parser.cursor.fail("the text goes on behind the value"),
    }
}

struct Parser<'s, 'j, 'o> {
    schema: &'s Schema,
    cursor: Cursor<'j>,
    out: &'o mut Vec<u8>,
    /// Where in `out` the value begins.
    start: usize,
    is_plain: bool,
    missing: Missing,
    budget: Budget,
}

impl<'s, 'j> Parser<'s, 'j, '_> {
    fn check_size(&self) -> Result<(), ValueError> {
        self.budget.check_size(self.out.len() - self.start)
    }

    #[cold]
    fn wrong<T>(&self, at: &Cursor<'j>, wanted: impl std::fmt::Display) -> Result<T, ValueError> {
        let mut found = at.clone();
        let is_there = found.skip().is_ok();
        // Text that is not JSON at all is called so, wherever it stands.
        if !is_there || at.clone().class().is_err() {
            return at.fail("a value is expected");
        }
        let mut text = at.slice_to(&found).to_owned();
        if text.starts_with(['t', 'f', 'n']) && !matches!(&*text, "true" | "false" | "null") {
            return at.fail("a value is expected");
        }
        if let Some((end, _)) = text.char_indices().nth(40) {
            text.truncate(end);
            text.push('…');
        }
        Err(ValueError::new(ValueErrorKind::WrongType, format!("{text} is not {wanted}")))
    }

    fn value(&mut self, id: NodeId, depth: usize) -> Result<(), ValueError> {
        let schema = self.schema;
        let node = schema.node(id);
        self.cursor.peek();
        let at = self.cursor.clone();
        match &node.kind {
            Kind::Null if self.cursor.word("null") => self.budget.count_empty(),
            Kind::Boolean if self.cursor.word("true") => {
                self.out.push(1);
                Ok(())
            }
            Kind::Boolean if self.cursor.word("false") => {
                self.out.push(0);
                Ok(())
            }
            Kind::Null | Kind::Boolean => self.wrong(&at, article(branch_name(&node.kind))),
            Kind::Int | Kind::Long => self.integer(node, &at),
            Kind::Float | Kind::Double => self.float(&node.kind, &at),
            Kind::Bytes | Kind::Fixed { .. } if self.is_plain && node.logical.is_some() => {
                self.logical(node, &at, depth)
            }
            Kind::Bytes | Kind::Fixed { .. } => self.binary(node, &at),
            Kind::String => match self.cursor.peek() {
                Some(b'"') => {
                    let text = self.cursor.string()?;
                    if node.logical == Some(Logical::Uuid) && read_uuid(&text).is_none() {
                        return self.wrong(&at, UUID);
                    }
                    write_bytes(self.out, text.as_bytes());
                    Ok(())
                }
                _ if node.logical == Some(Logical::Uuid) => self.wrong(&at, UUID),
                _ => self.wrong(&at, "a string"),
            },
            Kind::Enum { name, symbols, .. } => {
                if self.cursor.peek() != Some(b'"') {
                    return self.wrong(&at, Symbols(name, symbols));
                }
                let symbol = self.cursor.string()?;
                match schema.find(id, &symbol) {
                    Some(index) => {
                        write_length(self.out, index);
                        Ok(())
                    }
                    None => self.wrong(&at, Symbols(name, symbols)),
                }
            }
            Kind::Record { fields, .. } => self.record(id, fields, None, depth),
            Kind::Union(branches) => self.union(id, branches, depth),
            Kind::Array(item) => self.array(*item, depth, &at),
            Kind::Map(value) => self.map(*value, depth, &at),
        }
    }

    fn integer(&mut self, node: &Node, at: &Cursor<'j>) -> Result<(), ValueError> {
        let is_int = matches!(node.kind, Kind::Int);
        let number = match (self.cursor.peek(), node.logical) {
            (Some(b'0'..=b'9' | b'-'), _) => self.cursor.number()?.parse::<i64>().ok(),
            (Some(b'"'), Some(logical)) if self.is_plain => calendar::read(logical, &self.cursor.string()?),
            _ => None,
        };
        match number {
            Some(number)
                if (!is_int || i32::try_from(number).is_ok())
                    && node.logical.is_none_or(|logical| logical.allows(number)) =>
            {
                write_long(self.out, number);
                Ok(())
            }
            _ => match node.logical.filter(|_| self.is_plain) {
                Some(logical) => self.wrong(at, format_args!("a {}", logical_name(logical))),
                None => self.wrong(at, article(branch_name(&node.kind))),
            },
        }
    }

    fn float(&mut self, kind: &Kind, at: &Cursor<'j>) -> Result<(), ValueError> {
        let is_double = matches!(kind, Kind::Double);
        let text = match self.cursor.peek() {
            Some(b'0'..=b'9' | b'-') => Cow::Borrowed(self.cursor.number()?),
            Some(b'"') => match self.cursor.string()? {
                text if matches!(&*text, "NaN" | "Infinity" | "-Infinity") => text,
                _ => return self.wrong(at, "a number"),
            },
            _ => return self.wrong(at, "a number"),
        };
        let is_finite_text = text.as_bytes().last().is_some_and(|byte| byte.is_ascii_digit());
        if is_double {
            match text.parse::<f64>() {
                Ok(number) if number.is_finite() || !is_finite_text => {
                    self.out.extend_from_slice(&number.to_le_bytes());
                }
                _ => return self.wrong(at, "within the range of a double"),
            }
        } else {
            match text.parse::<f32>() {
                Ok(number) if number.is_finite() || !is_finite_text => {
                    self.out.extend_from_slice(&number.to_le_bytes());
                }
                _ => return self.wrong(at, "within the range of a float"),
            }
        }
        Ok(())
    }

    /// `bytes` and `fixed`: base64, or as code points.
    fn binary(&mut self, node: &Node, at: &Cursor<'j>) -> Result<(), ValueError> {
        let wanted = if self.is_plain { "bytes in base64" } else { "bytes as characters up to U+00FF" };
        if self.cursor.peek() != Some(b'"') {
            return self.wrong(at, wanted);
        }
        let text = self.cursor.string()?;
        let decoded = if self.is_plain {
            base64_decode(&text)
        } else {
            text.chars().map(|letter| u8::try_from(u32::from(letter)).ok()).collect()
        };
        let Some(bytes) = decoded else { return self.wrong(at, wanted) };
        if let Some(Logical::Decimal { precision, .. }) = node.logical
            && !decimal::fits(&bytes, precision)
        {
            return self.wrong(at, format_args!("a decimal of {precision} digits"));
        }
        match node.kind {
            Kind::Fixed { size, .. } if bytes.len() != size => self.wrong(at, format_args!("{size} bytes")),
            Kind::Fixed { .. } => {
                if bytes.is_empty() {
                    self.budget.count_empty()?;
                }
                self.out.extend_from_slice(&bytes);
                Ok(())
            }
            _ if node.logical.is_some() => {
                write_bytes(self.out, decimal::shortest(&bytes));
                Ok(())
            }
            _ => {
                write_bytes(self.out, &bytes);
                Ok(())
            }
        }
    }

    /// `bytes` and `fixed` with a logical type, in plain JSON.
    fn logical(&mut self, node: &Node, at: &Cursor<'j>, depth: usize) -> Result<(), ValueError> {
        match node.logical {
            Some(Logical::Decimal { precision, scale }) => {
                let text = match self.cursor.peek() {
                    Some(b'"') => self.cursor.string()?,
                    Some(b'0'..=b'9' | b'-') => Cow::Borrowed(self.cursor.number()?),
                    _ => return self.wrong(at, "a decimal"),
                };
                let Some(bytes) = decimal::read(&text, precision, scale) else {
                    return self
                        .wrong(at, format_args!("a decimal of {precision} digits, {scale} of them behind the point"));
                };
                match node.kind {
                    Kind::Fixed { size, .. } => match decimal::widened(&bytes, size) {
                        Some(bytes) => self.out.extend_from_slice(&bytes),
                        None => return self.wrong(at, format_args!("a decimal in {size} bytes")),
                    },
                    _ => write_bytes(self.out, &bytes),
                }
                Ok(())
            }
            Some(Logical::Duration) => self.duration(at, depth),
            _ => {
                let is_string = self.cursor.peek() == Some(b'"');
                match is_string.then(|| self.cursor.string()).transpose()?.and_then(|text| read_uuid(&text)) {
                    Some(bytes) => {
                        self.out.extend_from_slice(&bytes);
                        Ok(())
                    }
                    None => self.wrong(at, UUID),
                }
            }
        }
    }

    fn duration(&mut self, at: &Cursor<'j>, depth: usize) -> Result<(), ValueError> {
        let wanted = "a duration: an object with months, days and millis";
        if self.cursor.peek() != Some(b'{') {
            return self.wrong(at, wanted);
        }
        let mut parts = [None; 3];
        self.members(depth, |parser, name| {
            let Some(index) = ["months", "days", "millis"].iter().position(|known| *known == name) else {
                return parser.unknown(&name);
            };
            parser.cursor.peek();
            let at = parser.cursor.clone();
            let number = matches!(parser.cursor.peek(), Some(b'0'..=b'9')).then(|| parser.cursor.number());
            let Some(number) = number.transpose()?.and_then(|number| number.parse::<u32>().ok()) else {
                return parser.wrong(&at, "a number of 32 bits").map_err(|error: ValueError| error.in_field(&name));
            };
            if parts[index].replace(number).is_some() {
                return parser.repeated(&name);
            }
            Ok(())
        })?;
        // A part that a duration leaves out is zero.
        for part in parts {
            self.out.extend_from_slice(&part.unwrap_or(0).to_le_bytes());
        }
        Ok(())
    }

    #[cold]
    fn unknown<T>(&self, name: &str) -> Result<T, ValueError> {
        let shown: String = name.chars().take(64).collect();
        Err(ValueError::new(ValueErrorKind::UnknownField, format!("there is no field {shown:?}")))
    }

    #[cold]
    fn repeated<T>(&self, name: &str) -> Result<T, ValueError> {
        Err(ValueError::new(ValueErrorKind::WrongType, "the field is there twice").in_field(name))
    }

    /// Calls `member` for each member of the next object, with the cursor before its value.
    fn members(
        &mut self,
        depth: usize,
        mut member: impl FnMut(&mut Self, Cow<'j, str>) -> Result<(), ValueError>,
    ) -> Result<(), ValueError> {
        check_depth(depth)?;
        self.cursor.take(b'{');
        if self.cursor.take(b'}') {
            return Ok(());
        }
        loop {
            let name = self.cursor.string()?;
            if !self.cursor.take(b':') {
                return self.cursor.fail("a colon is expected");
            }
            member(self, name)?;
            if !self.cursor.take(b',') {
                break;
            }
        }
        if self.cursor.take(b'}') { Ok(()) } else { self.cursor.fail("a comma or } is expected") }
    }

    /// Members that come in the schema's order are encoded as they come. From the first one out of order, only their
    /// places are kept. So each value is read once and passed at most once.
    fn record(
        &mut self,
        id: NodeId,
        fields: &'s [Field],
        before: Option<&[u8]>,
        depth: usize,
    ) -> Result<(), ValueError> {
        if self.cursor.peek() != Some(b'{') {
            let at = self.cursor.clone();
            return self.wrong(&at, format_args!("a {}: an object is", branch_name(self.schema.kind(id))));
        }
        let mut next = 0;
        let mut places: Vec<Option<Cursor<'j>>> = Vec::new();
        self.members(depth, |parser, name| {
            let index = match fields.get(next) {
                Some(field) if *field.name == *name => next,
                _ => match parser.schema.find(id, &name) {
                    Some(index) => index,
                    None => return parser.unknown(&name),
                },
            };
            if index == next && places.is_empty() {
                next += 1;
                // Each field has its own size limit, so that the error names the field that is too large.
                let read = parser.value(fields[index].node, depth + 1).and_then(|()| parser.check_size());
                return read.map_err(|error| error.in_field(&name));
            }
            places.resize(fields.len(), None);
            if index < next || places[index].is_some() {
                return parser.repeated(&name);
            }
            places[index] = Some(parser.cursor.clone());
            parser.cursor.skip()
        })?;
        if fields.is_empty() {
            self.budget.count_empty()?;
        }
        if next < fields.len() {
            let end = self.cursor.clone();
            self.other_fields(fields, next, &places, before, depth)?;
            self.cursor = end;
        }
        self.check_size()
    }

    /// The fields from `next` on: read at their kept places, or filled in if they are left out.
    fn other_fields(
        &mut self,
        fields: &[Field],
        next: usize,
        places: &[Option<Cursor<'j>>],
        before: Option<&[u8]>,
        depth: usize,
    ) -> Result<(), ValueError> {
        let mut old = before.map(crate::Reader::new);
        for field in &fields[..next] {
            old.as_mut().map_or(Ok(()), |old| old.skip(self.schema, field.node))?;
        }
        for (index, field) in fields.iter().enumerate().skip(next) {
            let old_value = match &mut old {
                Some(old) => {
                    let start = old.position();
                    old.skip(self.schema, field.node)?;
                    Some(old.since(start))
                }
                None => None,
            };
            match (places.get(index).and_then(Option::as_ref), old_value, &field.default) {
                (Some(place), ..) => {
                    self.cursor = place.clone();
                    let read = self.value(field.node, depth + 1).and_then(|()| self.check_size());
                    read.map_err(|error| error.in_field(&field.name))?;
                }
                (None, Some(bytes), _) => self.out.extend_from_slice(bytes),
                (None, None, default) => self.left_out(field, default.as_deref())?,
            }
        }
        Ok(())
    }

    fn left_out(&mut self, field: &Field, default: Option<&[u8]>) -> Result<(), ValueError> {
        let length = self.out.len();
        match default {
            Some(default) => self.out.extend_from_slice(default),
            None if self.missing == Missing::Refuse => {
                let message = "the field is missing, and has no default";
                return Err(ValueError::new(ValueErrorKind::MissingField, message).in_field(&field.name));
            }
            None => {
                if !self.schema.write_minimal_default(field.node, self.out) {
                    let message = "the value that consists of defaults is too large";
                    return Err(ValueError::new(ValueErrorKind::TooLarge, message).in_field(&field.name));
                }
            }
        }
        if self.out.len() == length { self.budget.count_empty() } else { Ok(()) }
    }

    fn array(&mut self, item: NodeId, depth: usize, at: &Cursor<'j>) -> Result<(), ValueError> {
        if !self.cursor.take(b'[') {
            return self.wrong(at, "an array");
        }
        check_depth(depth)?;
        let start = self.out.len();
        let mut items = 0;
        if !self.cursor.take(b']') {
            loop {
                self.value(item, depth + 1).map_err(|error| error.in_item(items))?;
                items += 1;
                self.check_size()?;
                if !self.cursor.take(b',') {
                    break;
                }
            }
            if !self.cursor.take(b']') {
                return self.cursor.fail("a comma or ] is expected");
            }
        }
        finish_items(self.out, start, items);
        Ok(())
    }

    fn map(&mut self, value: NodeId, depth: usize, at: &Cursor<'j>) -> Result<(), ValueError> {
        if self.cursor.peek() != Some(b'{') {
            return self.wrong(at, "a map: an object is");
        }
        let start = self.out.len();
        let mut keys = BTreeSet::new();
        self.members(depth, |parser, key| {
            write_bytes(parser.out, key.as_bytes());
            if keys.contains(&key) {
                let message = "the map has this key twice";
                return Err(ValueError::new(ValueErrorKind::WrongType, message).in_entry(&key));
            }
            parser.value(value, depth + 1).map_err(|error| error.in_entry(&key))?;
            keys.insert(key);
            parser.check_size()
        })?;
        finish_items(self.out, start, keys.len());
        Ok(())
    }

    fn union(&mut self, id: NodeId, branches: &[NodeId], depth: usize) -> Result<(), ValueError> {
        let schema = self.schema;
        let Shape::Union(shape) = schema.shape_of(id) else { return Ok(()) };
        let class = self.cursor.class()?;
        if class == Class::Object
            && let Some(index) = self.named_branch(shape)?
        {
            return self.named(branches, index, depth);
        }
        let at = self.cursor.clone();
        let candidates = &shape.candidates[class as usize];
        if !self.is_plain && class != Class::Null || candidates.is_empty() {
            return self.wrong(&at, self.branches(branches));
        }
        let length = self.out.len();
        for (tried, index) in candidates.iter().enumerate() {
            let node = branches[*index as usize];
            write_length(self.out, *index as usize);
            // A null counts only if it has no byte of its own.
            if matches!(schema.kind(node), Kind::Null) {
                return if self.cursor.word("null") { Ok(()) } else { self.wrong(&at, "null") };
            }
            match self.value(node, depth) {
                Ok(()) => return Ok(()),
                // Only values without parts are tried again: with objects, the time would grow exponentially with their
                // depth.
                Err(error) if tried + 1 == candidates.len() && candidates.len() > 1 && class != Class::Object => {
                    return if error.kind == ValueErrorKind::WrongType {
                        self.wrong(&at, self.branches(branches))
                    } else {
                        Err(error)
                    };
                }
                Err(error) if candidates.len() == 1 || class == Class::Object => return Err(error),
                Err(_) => {
                    self.out.truncate(length);
                    self.cursor = at.clone();
                }
            }
        }
        self.wrong(&at, self.branches(branches))
    }

    fn branches(&self, branches: &[NodeId]) -> String {
        let names: Vec<&str> = branches.iter().take(10).map(|node| branch_name(self.schema.kind(*node))).collect();
        format!("a value of the union of {}", names.join(", "))
    }

    /// The branch that the next object names: the object has one member with a branch's name.
    fn named_branch(&self, shape: &UnionShape) -> Result<Option<usize>, ValueError> {
        let mut ahead = self.cursor.clone();
        ahead.take(b'{');
        if ahead.peek() != Some(b'"') {
            return Ok(None);
        }
        let name = ahead.string()?;
        let quoted = |tag: &[u8]| tag[2..tag.len() - 2] == *name.as_bytes();
        let Some(index) = shape.tags.iter().position(|tag| quoted(tag)) else { return Ok(None) };
        if *name == *"null" || !ahead.take(b':') {
            return Ok(None);
        }
        ahead.skip()?;
        Ok(ahead.take(b'}').then_some(index))
    }

    fn named(&mut self, branches: &[NodeId], index: usize, depth: usize) -> Result<(), ValueError> {
        write_length(self.out, index);
        self.cursor.take(b'{');
        let name = self.cursor.string()?;
        self.cursor.take(b':');
        // The name is not a place of the value, so it is not in the error's path.
        self.value(branches[index], depth)?;
        if self.cursor.take(b'}') { Ok(()) } else { self.cursor.fail(&format!("a }} is expected behind {name:?}")) }
    }
}

fn article(name: &str) -> String {
    match name {
        "null" => "null".to_owned(),
        "int" => "an int".to_owned(),
        _ => format!("a {name}"),
    }
}

fn logical_name(logical: Logical) -> &'static str {
    match logical {
        Logical::Date => "date (2024-12-31)",
        Logical::TimeMillis | Logical::TimeMicros => "time (23:59:59)",
        Logical::LocalTimestampMillis | Logical::LocalTimestampMicros | Logical::LocalTimestampNanos => {
            "local timestamp (2024-12-31T23:59:59)"
        }
        Logical::TimestampMillis | Logical::TimestampMicros | Logical::TimestampNanos => {
            "timestamp (2024-12-31T23:59:59Z)"
        }
        Logical::Decimal { .. } => "decimal",
        Logical::Uuid => "UUID",
        Logical::Duration => "duration",
    }
}

/// What an enum takes, for a message: its first symbols, as long as they are short.
struct Symbols<'a>(&'a FullName, &'a [Box<str>]);

impl std::fmt::Display for Symbols<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const MOST: usize = 10;
        const MOST_BYTES: usize = 40;
        let Self(name, symbols) = self;
        write!(formatter, "a symbol of {name}")?;
        let shown = symbols.iter().take(MOST).take_while(|symbol| symbol.len() <= MOST_BYTES);
        let mut left = symbols.len();
        for symbol in shown {
            write!(formatter, "{} {symbol}", if left == symbols.len() { ":" } else { "," })?;
            left -= 1;
        }
        if left > 0 && left < symbols.len() { write!(formatter, " and {left} more") } else { Ok(()) }
    }
}

const UUID: &str = "a UUID (550e8400-e29b-41d4-a716-446655440000)";

const ANY_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::STANDARD, ANY_PADDING);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::URL_SAFE, ANY_PADDING);

/// Of either alphabet, with or without padding.
pub(crate) fn base64_decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok()
}

/// `8-4-4-4-12` hexadecimal digits of either case, as in RFC 9562. Their version and variant are not checked: the nil
/// and the maximal UUID have none.
pub(crate) fn read_uuid(text: &str) -> Option<[u8; 16]> {
    let bytes = text.as_bytes();
    if bytes.len() != 36 || [8, 13, 18, 23].iter().any(|place| bytes[*place] != b'-') {
        return None;
    }
    let mut digits = bytes.iter().filter(|byte| **byte != b'-').map(|byte| char::from(*byte).to_digit(16));
    let mut uuid = [0; 16];
    for byte in &mut uuid {
        let (high, low) = (digits.next()??, digits.next()??);
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    digits.next().is_none().then_some(uuid)
}
