//! What one schema makes of another's value, computed naively: on trees, from the JSON of both schemas, pair by pair.
//! It follows the specification and the choices that `resolve.rs` lists.

use super::edits::kind_of;
use millrace_avro::{Reader, write_bytes, write_length, write_long};
use serde_json::Value;
use std::collections::BTreeMap;

/// A value as a tree.
#[derive(Clone, Debug)]
pub enum Datum {
    Null,
    Boolean(bool),
    Number(i64),
    Float(f32),
    Double(f64),
    Bytes(Vec<u8>),
    Text(String),
    Fixed(Vec<u8>),
    Symbol(usize, String),
    Items(Vec<Datum>),
    Entries(Vec<(String, Datum)>),
    Fields(Vec<(String, Datum)>),
    Branch(usize, Box<Datum>),
}

/// Why a value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The writer's type is never read as the reader's.
    OtherType(String, String),
    OtherName,
    OtherSize,
    /// The logical types say that the same number stands for something else.
    OtherMeaning,
    OtherScale,
    /// More digits than the reader's decimal has.
    TooManyDigits,
    NoSymbol,
    /// None of the reader's branches takes the writer's type.
    NoBranch(String),
    NoDefault,
    NotUtf8,
}

impl Refusal {
    /// Whether it depends on the value alone, so that the schemas do not tell.
    pub fn is_of_the_value(&self) -> bool {
        matches!(self, Self::NotUtf8 | Self::TooManyDigits)
    }
}

/// A schema and its named types.
pub struct Side<'s> {
    root: &'s Value,
    named: BTreeMap<String, Of<'s>>,
}

/// A type in its place, with the names around it.
#[derive(Clone, Debug)]
struct Of<'s> {
    json: &'s Value,
    name: String,
    /// The namespace for the types within it.
    namespace: String,
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

impl<'s> Side<'s> {
    pub fn new(root: &'s Value) -> Self {
        let mut side = Self { root, named: BTreeMap::new() };
        side.define(root, "");
        side
    }

    fn define(&mut self, json: &'s Value, namespace: &str) {
        // A name defines nothing, and may lead back.
        if json.is_string() {
            return;
        }
        let of = self.of(json, namespace);
        if json.get("name").is_some() {
            self.named.insert(of.name.clone(), of.clone());
        }
        for part in of.parts() {
            self.define(part, &of.namespace);
        }
    }

    /// A type, or the type for which a name stands.
    fn of(&self, json: &'s Value, namespace: &str) -> Of<'s> {
        if let Some(name) = json.as_str()
            && let Some(known) = self.named.get(&full_name(name, namespace))
        {
            return known.clone();
        }
        let (name, namespace) = match json.get("name").and_then(Value::as_str) {
            Some(name) => {
                let name = full_name(name, namespace);
                let namespace = name.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
                (name, namespace)
            }
            None => (String::new(), namespace.to_owned()),
        };
        Of { json, name, namespace }
    }

    fn part(&self, of: &Of<'s>, json: &'s Value) -> Of<'s> {
        self.of(json, &of.namespace)
    }

    fn root(&self) -> Of<'s> {
        self.of(self.root, "")
    }

    pub fn decode(&self, bytes: &[u8]) -> Datum {
        self.read(&self.root(), &mut Reader::new(bytes))
    }

    fn read(&self, of: &Of<'s>, reader: &mut Reader<'_>) -> Datum {
        match of.kind() {
            "null" => Datum::Null,
            "boolean" => Datum::Boolean(reader.boolean().unwrap()),
            "int" | "long" => Datum::Number(reader.long().unwrap()),
            "float" => Datum::Float(reader.float().unwrap()),
            "double" => Datum::Double(reader.double().unwrap()),
            "bytes" => Datum::Bytes(reader.bytes().unwrap().to_vec()),
            "string" => Datum::Text(reader.string().unwrap().to_owned()),
            "fixed" => Datum::Fixed(reader.fixed(of.size()).unwrap().to_vec()),
            "enum" => {
                let index = reader.long().unwrap() as usize;
                Datum::Symbol(index, of.list("symbols")[index].as_str().unwrap().to_owned())
            }
            "union" => {
                let index = reader.long().unwrap() as usize;
                let branch = self.part(of, &of.json[index]);
                Datum::Branch(index, Box::new(self.read(&branch, reader)))
            }
            "array" => {
                let item = self.part(of, &of.json["items"]);
                Datum::Items(blocks(reader, |reader| self.read(&item, reader)))
            }
            "map" => {
                let value = self.part(of, &of.json["values"]);
                Datum::Entries(blocks(reader, |reader| {
                    (reader.string().unwrap().to_owned(), self.read(&value, reader))
                }))
            }
            _ => {
                let fields = of.list("fields").iter();
                Datum::Fields(
                    fields
                        .map(|field| (text(&field["name"]), self.read(&self.part(of, &field["type"]), reader)))
                        .collect(),
                )
            }
        }
    }

    /// A field's default.
    fn default(&self, of: &Of<'s>, json: &Value) -> Option<Datum> {
        Some(match (of.kind(), json) {
            ("null", Value::Null) => Datum::Null,
            ("boolean", Value::Bool(is_true)) => Datum::Boolean(*is_true),
            ("int", Value::Number(number)) => Datum::Number(i32::try_from(number.as_i64()?).ok()?.into()),
            ("long", Value::Number(number)) => Datum::Number(number.as_i64()?),
            ("float", Value::Number(number)) => Datum::Float(number.as_f64()? as f32),
            ("double", Value::Number(number)) => Datum::Double(number.as_f64()?),
            ("string", Value::String(text)) => Datum::Text(text.clone()),
            ("bytes", Value::String(text)) => {
                let bytes = code_points(text)?;
                Datum::Bytes(if of.decimal().is_some() { shortest(&bytes) } else { bytes })
            }
            ("fixed", Value::String(text)) => Datum::Fixed(code_points(text).filter(|bytes| bytes.len() == of.size())?),
            ("enum", Value::String(text)) => Datum::Symbol(of.symbol(text)?, text.clone()),
            ("array", Value::Array(items)) => {
                let item = self.part(of, &of.json["items"]);
                Datum::Items(items.iter().map(|json| self.default(&item, json)).collect::<Option<_>>()?)
            }
            ("map", Value::Object(entries)) => {
                let value = self.part(of, &of.json["values"]);
                let entries = entries.iter().map(|(key, json)| Some((key.clone(), self.default(&value, json)?)));
                Datum::Entries(entries.collect::<Option<_>>()?)
            }
            ("union", _) => {
                let mut branches = of.json.as_array()?.iter().enumerate();
                branches.find_map(|(index, branch)| {
                    Some(Datum::Branch(index, Box::new(self.default(&self.part(of, branch), json)?)))
                })?
            }
            ("record", Value::Object(members)) => {
                let fields = of.list("fields").iter().map(|field| {
                    let json = members.get(field["name"].as_str()?).or(field.get("default"))?;
                    Some((text(&field["name"]), self.default(&self.part(of, &field["type"]), json)?))
                });
                Datum::Fields(fields.collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }
}

fn blocks<T>(reader: &mut Reader<'_>, mut read: impl FnMut(&mut Reader<'_>) -> T) -> Vec<T> {
    let mut items = Vec::new();
    loop {
        let count = reader.long().unwrap();
        if count == 0 {
            return items;
        }
        items.extend((0..count).map(|_| read(reader)));
    }
}

fn text(json: &Value) -> String {
    json.as_str().unwrap().to_owned()
}

fn code_points(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|letter| u8::try_from(u32::from(letter)).ok()).collect()
}

/// A number without the bytes that only repeat its sign.
fn shortest(bytes: &[u8]) -> Vec<u8> {
    let number = number(bytes).to_be_bytes();
    let fits = |count: usize| self::number(&number[16 - count..]) == self::number(bytes);
    let count = (1..=16).find(|count| fits(*count)).unwrap();
    number[16 - count..].to_vec()
}

fn number(bytes: &[u8]) -> i128 {
    let sign = if bytes.first().is_some_and(|byte| *byte >= 128) { -1 } else { 0 };
    bytes.iter().fold(sign, |number, byte| number << 8 | i128::from(*byte))
}

/// Which logical types each type may have.
const LOGICAL: [(&str, &[&str]); 5] = [
    ("int", &["date", "time-millis"]),
    (
        "long",
        &[
            "time-micros",
            "timestamp-millis",
            "timestamp-micros",
            "timestamp-nanos",
            "local-timestamp-millis",
            "local-timestamp-micros",
            "local-timestamp-nanos",
        ],
    ),
    ("string", &["uuid"]),
    ("bytes", &["decimal"]),
    ("fixed", &["decimal", "uuid", "duration"]),
];

impl<'s> Of<'s> {
    fn kind(&self) -> &'s str {
        kind_of(self.json)
    }

    fn parts(&self) -> Vec<&'s Value> {
        match self.kind() {
            "union" => self.json.as_array().unwrap().iter().collect(),
            "array" => vec![&self.json["items"]],
            "map" => vec![&self.json["values"]],
            "record" => self.list("fields").iter().map(|field| &field["type"]).collect(),
            _ => Vec::new(),
        }
    }

    fn list(&self, member: &str) -> &'s [Value] {
        self.json[member].as_array().unwrap()
    }

    fn size(&self) -> usize {
        self.json["size"].as_u64().unwrap() as usize
    }

    fn symbol(&self, symbol: &str) -> Option<usize> {
        self.list("symbols").iter().position(|known| known == symbol)
    }

    fn is_alias(&self, name: &str) -> bool {
        let aliases = self.json.get("aliases").and_then(Value::as_array);
        aliases.into_iter().flatten().any(|alias| full_name(alias.as_str().unwrap(), &self.namespace) == name)
    }

    fn logical(&self) -> Option<&'s str> {
        let logical = self.json.get("logicalType")?.as_str()?;
        let (_, known) = LOGICAL.iter().find(|(kind, _)| *kind == self.kind())?;
        let is_fine = match (self.kind(), logical) {
            ("fixed", "uuid") => self.size() == 16,
            ("fixed", "duration") => self.size() == 12,
            // All numbers of so many digits must fit.
            ("fixed", "decimal") => {
                self.size() > 0 && 10_i128.pow(self.digits("precision")) <= 1_i128 << (8 * self.size().min(15) - 1)
            }
            _ => known.contains(&logical),
        };
        is_fine.then_some(logical)
    }

    fn digits(&self, member: &str) -> u32 {
        self.json[member].as_u64().unwrap() as u32
    }

    /// Precision and scale.
    fn decimal(&self) -> Option<(u32, u32)> {
        (self.logical() == Some("decimal")).then(|| (self.digits("precision"), self.digits("scale")))
    }
}

/// How well the reader's type suits the writer's: the name, an alias, the name without its namespace, a promotion.
fn suits(writer: &Of<'_>, reader: &Of<'_>) -> Result<u8, Refusal> {
    let other_type = || Refusal::OtherType(writer.kind().to_owned(), reader.kind().to_owned());
    match (writer.kind(), reader.kind()) {
        ("fixed", "fixed") if writer.size() != reader.size() => Err(Refusal::OtherSize),
        ("record", "record") | ("enum", "enum") | ("fixed", "fixed") => {
            if writer.name == reader.name {
                Ok(3)
            } else if reader.is_alias(&writer.name) {
                Ok(2)
            } else if short(&writer.name) == short(&reader.name) {
                Ok(1)
            } else {
                Err(Refusal::OtherName)
            }
        }
        (old, new) if old == new => Ok(3),
        ("int", "long" | "float" | "double")
        | ("long", "float" | "double")
        | ("float", "double")
        | ("string", "bytes")
        | ("bytes", "string") => Ok(0),
        _ => Err(other_type()),
    }
}

pub struct Model<'s> {
    pub writer: Side<'s>,
    pub reader: Side<'s>,
}

impl<'s> Model<'s> {
    pub fn resolve(&self, value: Datum) -> Result<Datum, Refusal> {
        self.value(&self.writer.root(), &self.reader.root(), value)
    }

    fn value(&self, old: &Of<'s>, new: &Of<'s>, value: Datum) -> Result<Datum, Refusal> {
        if let Datum::Branch(index, value) = value {
            return self.value(&self.writer.part(old, &old.json[index]), new, *value);
        }
        if let Some(branches) = new.json.as_array() {
            let branches = branches.iter().map(|branch| self.reader.part(new, branch)).enumerate();
            let fitting = branches.filter_map(|(index, branch)| Some((suits(old, &branch).ok()?, index, branch)));
            // Of the best the first.
            let best = fitting.min_by_key(|(suits, index, _)| (std::cmp::Reverse(*suits), *index));
            let (_, index, branch) = best.ok_or_else(|| Refusal::NoBranch(old.kind().to_owned()))?;
            return Ok(Datum::Branch(index, Box::new(self.value(old, &branch, value)?)));
        }
        suits(old, new)?;
        let is_recoded = matches!((old.kind(), new.kind()), ("string", "bytes") | ("bytes", "string"));
        match (old.logical(), new.logical()) {
            (Some(one), Some(other)) if one != other => return Err(Refusal::OtherMeaning),
            // A UUID is text either way.
            (Some(one), None) | (None, Some(one)) if is_recoded && one != "uuid" => return Err(Refusal::OtherMeaning),
            _ => (),
        }
        self.plain(old, new, value)
    }

    fn plain(&self, old: &Of<'s>, new: &Of<'s>, value: Datum) -> Result<Datum, Refusal> {
        Ok(match (value, new.kind()) {
            (Datum::Number(number), "float") => Datum::Float(number as f32),
            (Datum::Number(number), "double") => Datum::Double(number as f64),
            (Datum::Float(number), "double") => Datum::Double(number.into()),
            (Datum::Bytes(bytes), "string") => Datum::Text(String::from_utf8(bytes).map_err(|_| Refusal::NotUtf8)?),
            (Datum::Text(text), "bytes") => Datum::Bytes(text.into_bytes()),
            (Datum::Bytes(bytes), _) => Datum::Bytes(decimal(old, new, bytes)?),
            (Datum::Fixed(bytes), _) => {
                decimal(old, new, bytes.clone())?;
                Datum::Fixed(bytes)
            }
            (Datum::Symbol(_, symbol), _) => {
                let default = new.json.get("default").and_then(Value::as_str);
                let symbol = if new.symbol(&symbol).is_some() { &symbol } else { default.ok_or(Refusal::NoSymbol)? };
                Datum::Symbol(new.symbol(symbol).unwrap(), symbol.to_owned())
            }
            (Datum::Items(items), _) => {
                let (old, new) = (self.writer.part(old, &old.json["items"]), self.reader.part(new, &new.json["items"]));
                Datum::Items(items.into_iter().map(|item| self.value(&old, &new, item)).collect::<Result<_, _>>()?)
            }
            (Datum::Entries(entries), _) => {
                let (old, new) =
                    (self.writer.part(old, &old.json["values"]), self.reader.part(new, &new.json["values"]));
                let entries = entries.into_iter().map(|(key, value)| Ok((key, self.value(&old, &new, value)?)));
                Datum::Entries(entries.collect::<Result<_, _>>()?)
            }
            (Datum::Fields(fields), _) => Datum::Fields(self.fields(old, new, fields)?),
            (value, _) => value,
        })
    }

    /// Each of the reader's fields takes the first of the writer's that has its name or an alias of it. It does not
    /// take one that an earlier field has taken.
    fn fields(
        &self,
        old: &Of<'s>,
        new: &Of<'s>,
        fields: Vec<(String, Datum)>,
    ) -> Result<Vec<(String, Datum)>, Refusal> {
        let mut left: Vec<_> = fields.into_iter().zip(old.list("fields")).map(Some).collect();
        let resolved = new.list("fields").iter().map(|field| {
            let name = text(&field["name"]);
            let aliases = field.get("aliases").and_then(Value::as_array).into_iter().flatten().map(text);
            let mut names = std::iter::once(name.clone()).chain(aliases);
            let of = self.reader.part(new, &field["type"]);
            let is_called = |item: &&mut Option<((String, Datum), _)>, name: &str| {
                item.as_ref().is_some_and(|item| item.0.0 == name)
            };
            let found = names.find_map(|name| left.iter_mut().find(|item| is_called(item, &name))?.take());
            let value = match (found, field.get("default")) {
                (Some(((_, value), known)), _) => self.value(&self.writer.part(old, &known["type"]), &of, value)?,
                (None, Some(json)) => self.reader.default(&of, json).expect("a default that was accepted"),
                (None, None) => return Err(Refusal::NoDefault),
            };
            Ok((name, value))
        });
        resolved.collect()
    }
}

/// A value that becomes bytes, or stays bytes: perhaps a number, which has to fit.
fn decimal(old: &Of<'_>, new: &Of<'_>, bytes: Vec<u8>) -> Result<Vec<u8>, Refusal> {
    let Some((precision, scale)) = new.decimal() else { return Ok(bytes) };
    if old.decimal().is_some_and(|(_, old)| old != scale) {
        return Err(Refusal::OtherScale);
    }
    let is_checked = old.decimal().is_none_or(|(old, _)| old > precision);
    if is_checked && number(&bytes).unsigned_abs() >= 10_u128.pow(precision) {
        return Err(Refusal::TooManyDigits);
    }
    Ok(if is_checked { shortest(&bytes) } else { bytes })
}

/// The canonical encoding.
pub fn encode(value: &Datum, out: &mut Vec<u8>) {
    match value {
        Datum::Null => (),
        Datum::Boolean(is_true) => out.push(u8::from(*is_true)),
        Datum::Number(number) => write_long(out, *number),
        Datum::Float(number) => out.extend(number.to_le_bytes()),
        Datum::Double(number) => out.extend(number.to_le_bytes()),
        Datum::Bytes(bytes) => write_bytes(out, bytes),
        Datum::Text(text) => write_bytes(out, text.as_bytes()),
        Datum::Fixed(bytes) => out.extend(bytes),
        Datum::Symbol(index, _) => write_length(out, *index),
        Datum::Branch(index, value) => {
            write_length(out, *index);
            encode(value, out);
        }
        Datum::Items(items) => {
            if !items.is_empty() {
                write_length(out, items.len());
                items.iter().for_each(|item| encode(item, out));
            }
            out.push(0);
        }
        Datum::Entries(entries) => {
            if !entries.is_empty() {
                write_length(out, entries.len());
                for (key, value) in entries {
                    write_bytes(out, key.as_bytes());
                    encode(value, out);
                }
            }
            out.push(0);
        }
        Datum::Fields(fields) => fields.iter().for_each(|(_, value)| encode(value, out)),
    }
}
