//! Random schemas, and random values of a schema.

#![allow(clippy::unwrap_used, reason = "tests")]

use millrace_avro::{Kind, Logical, NodeId, Schema, write_bytes, write_length, write_long};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A type without its names, which it gets when it is written.
#[derive(Clone, Debug)]
pub enum Type {
    Primitive(&'static str),
    Logical(Value),
    Array(Box<Type>),
    Map(Box<Type>),
    Union(Vec<Type>),
    Record(Vec<Type>, Loop),
    Enum(usize),
    Fixed(usize, Option<Value>),
}

/// How a record holds others of its own type.
#[derive(Clone, Copy, Debug)]
pub enum Loop {
    No,
    Nullable,
    Array,
    Map,
}

pub fn any_type() -> impl Strategy<Value = Type> {
    types(true)
}

/// Without logical types, for tests that compare with software that judges them otherwise than the specification.
pub fn plain_type() -> impl Strategy<Value = Type> {
    types(false)
}

fn types(with_logical: bool) -> impl Strategy<Value = Type> {
    let primitives = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"];
    let logical = vec![
        json!({"type":"int","logicalType":"date"}),
        json!({"type":"int","logicalType":"time-millis"}),
        json!({"type":"long","logicalType":"time-micros"}),
        json!({"type":"long","logicalType":"timestamp-millis"}),
        json!({"type":"long","logicalType":"timestamp-micros"}),
        json!({"type":"long","logicalType":"timestamp-nanos"}),
        json!({"type":"long","logicalType":"local-timestamp-millis"}),
        json!({"type":"long","logicalType":"local-timestamp-micros"}),
        json!({"type":"long","logicalType":"local-timestamp-nanos"}),
        json!({"type":"bytes","logicalType":"decimal","precision":20,"scale":3}),
        json!({"type":"string","logicalType":"uuid"}),
        json!({"type":"int","logicalType":"unheard-of"}),
    ];
    let fixed_logical = vec![
        (12, json!({"logicalType":"duration"})),
        (16, json!({"logicalType":"uuid"})),
        (5, json!({"logicalType":"decimal","precision":10,"scale":2})),
    ];
    let plain_leaf = prop_oneof![
        5 => prop::sample::select(primitives.to_vec()).prop_map(Type::Primitive),
        1 => (1_usize..5).prop_map(Type::Enum),
        1 => (0_usize..4).prop_map(|size| Type::Fixed(size, None)),
    ];
    let leaf = if with_logical {
        prop_oneof![
            5 => plain_leaf,
            2 => prop::sample::select(logical).prop_map(Type::Logical),
            1 => prop::sample::select(fixed_logical).prop_map(|(size, json)| Type::Fixed(size, Some(json))),
        ]
        .boxed()
    } else {
        plain_leaf.boxed()
    };
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            1 => inner.clone().prop_map(|item| Type::Array(Box::new(item))),
            1 => inner.clone().prop_map(|value| Type::Map(Box::new(value))),
            2 => prop::collection::vec(inner.clone(), 1..5).prop_map(Type::Union),
            3 => (prop::collection::vec(inner, 0..5), loops()).prop_map(|(fields, loops)| Type::Record(fields, loops)),
        ]
    })
}

fn loops() -> impl Strategy<Value = Loop> {
    prop_oneof![3 => Just(Loop::No), 2 => Just(Loop::Nullable), 1 => Just(Loop::Array), 1 => Just(Loop::Map)]
}

/// The schema's JSON. Names are numbered. Unions lose the branches that they may not have.
pub fn schema_of(of: &Type) -> Value {
    write_type(of, &mut 0, false)
}

fn write_type(of: &Type, count: &mut usize, in_union: bool) -> Value {
    *count += 1;
    let number = *count;
    match of {
        Type::Primitive(name) => json!(name),
        Type::Logical(json) => json.clone(),
        Type::Array(item) => json!({"type":"array","items": write_type(item, count, false)}),
        Type::Map(value) => json!({"type":"map","values": write_type(value, count, false)}),
        Type::Union(_) if in_union => json!({"type":"enum","name":format!("E{number}"),"symbols":["X","Y"]}),
        Type::Union(branches) => {
            let mut seen = std::collections::BTreeSet::new();
            let branches = branches.iter().map(|branch| write_type(branch, count, true));
            Value::Array(branches.filter(|branch| seen.insert(kind_of(branch))).collect())
        }
        Type::Record(fields, loops) => {
            let name = format!("a.b.R{number}");
            let mut written: Vec<Value> = fields
                .iter()
                .enumerate()
                .map(|(index, field)| json!({"name":format!("f{index}"),"type":write_type(field, count, false)}))
                .collect();
            let again = match loops {
                Loop::No => None,
                Loop::Nullable => Some(json!(["null", name])),
                Loop::Array => Some(json!({"type":"array","items":name})),
                Loop::Map => Some(json!({"type":"map","values":name})),
            };
            written.extend(again.map(|of| json!({"name":"again","type":of})));
            json!({"type":"record","name":name,"fields":written})
        }
        Type::Enum(symbols) => {
            let symbols: Vec<String> = (0..*symbols).map(|symbol| format!("S{symbol}")).collect();
            json!({"type":"enum","name":format!("E{number}"),"symbols":symbols})
        }
        Type::Fixed(size, logical) => {
            let mut json = logical.clone().unwrap_or_else(|| json!({}));
            json["type"] = json!("fixed");
            json["name"] = json!(format!("F{number}"));
            json["size"] = json!(size);
            json
        }
    }
}

fn kind_of(json: &Value) -> String {
    json.get("name").or(json.get("type")).unwrap_or(json).to_string()
}

/// Decisions of a random value. Behind its end, all are zero.
pub struct Entropy<'e>(pub &'e [u8]);

impl Entropy<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    /// Of all sizes with equal chance, and the borders of their sizes.
    fn long(&mut self) -> i64 {
        let shift = self.below(64);
        match self.below(4) {
            0 => i64::MIN >> shift,
            1 => i64::MAX >> shift,
            _ => i64::from_le_bytes(self.array()) >> shift,
        }
    }

    fn text(&mut self) -> String {
        let letters = ['a', 'Z', '"', '\\', '\n', '\u{1}', '\u{7f}', 'é', '€', '😀', '/', 'S', '0', ' ', 'f', 'R'];
        (0..self.below(12)).map(|_| letters[self.below(letters.len())]).collect()
    }

    fn uuid(&mut self) -> String {
        let digits = u128::from_le_bytes(self.array());
        let digits = if self.byte() & 1 == 0 { format!("{digits:032x}") } else { format!("{digits:032X}") };
        [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
    }

    fn key(&mut self, index: usize) -> String {
        // Names of branches are the keys that are hardest to tell apart from them.
        let names = ["string", "int", "map", "null", "a.b.R1", "k"];
        if index == 0 { names[self.below(names.len())].to_owned() } else { format!("{}{index}", self.text()) }
    }
}

/// Appends a canonical value.
pub fn write_value(schema: &Schema, id: NodeId, entropy: &mut Entropy<'_>, depth: usize, out: &mut Vec<u8>) {
    let node = schema.node(id);
    match &node.kind {
        Kind::Null => (),
        Kind::Boolean => out.push(entropy.byte() & 1),
        Kind::Int | Kind::Long if matches!(node.logical, Some(Logical::TimeMillis | Logical::TimeMicros)) => {
            let is_fine = node.logical == Some(Logical::TimeMicros);
            write_long(out, entropy.long().rem_euclid(if is_fine { 86_400_000_000 } else { 86_400_000 }));
        }
        Kind::Int => write_long(out, entropy.long() >> 32),
        Kind::Long => write_long(out, entropy.long()),
        Kind::Float => out.extend(match entropy.below(8) {
            0 => f32::NAN.to_le_bytes(),
            1 => f32::NEG_INFINITY.to_le_bytes(),
            2 => f32::INFINITY.to_le_bytes(),
            3 => 1_f32.to_le_bytes(),
            _ => Some(f32::from_le_bytes(entropy.array())).filter(|float| !float.is_nan()).unwrap_or(0.1).to_le_bytes(),
        }),
        Kind::Double => out.extend(match entropy.below(8) {
            0 => f64::NAN.to_le_bytes(),
            1 => f64::INFINITY.to_le_bytes(),
            2 => f64::NEG_INFINITY.to_le_bytes(),
            3 => (-0.0_f64).to_le_bytes(),
            _ => Some(f64::from_le_bytes(entropy.array())).filter(|float| !float.is_nan()).unwrap_or(0.1).to_le_bytes(),
        }),
        Kind::Bytes if matches!(node.logical, Some(Logical::Decimal { .. })) => {
            let number = entropy.long().to_be_bytes();
            let mut bytes = &number[..];
            while bytes.len() > 1 && (bytes[0] == 0 && bytes[1] < 128 || bytes[0] == 255 && bytes[1] >= 128) {
                bytes = &bytes[1..];
            }
            write_bytes(out, bytes);
        }
        Kind::Bytes => write_bytes(out, &entropy.array::<7>()[..]),
        Kind::String if node.logical == Some(Logical::Uuid) => write_bytes(out, entropy.uuid().as_bytes()),
        Kind::String => write_bytes(out, entropy.text().as_bytes()),
        Kind::Fixed { size, .. } if matches!(node.logical, Some(Logical::Decimal { .. })) => {
            out.extend(&i128::from(entropy.long() >> 31).to_be_bytes()[16 - size..]);
        }
        Kind::Fixed { size, .. } => out.extend((0..*size).map(|_| entropy.byte())),
        Kind::Enum { symbols, .. } => write_length(out, entropy.below(symbols.len())),
        Kind::Union(branches) => {
            // Deep down, every branch that is not a record ends sooner.
            let ends = |branch: &NodeId| !matches!(schema.kind(*branch), Kind::Record { .. });
            let index = match branches.iter().position(ends) {
                Some(index) if depth > 20 => index,
                _ => entropy.below(branches.len()),
            };
            write_length(out, index);
            write_value(schema, branches[index], entropy, depth, out);
        }
        Kind::Array(item) => {
            let count = if depth > 20 { 0 } else { entropy.below(4) };
            write_items(out, count, |_, out| write_value(schema, *item, entropy, depth + 1, out));
        }
        Kind::Map(value) => {
            let count = if depth > 20 { 0 } else { entropy.below(4) };
            write_items(out, count, |index, out| {
                write_bytes(out, entropy.key(index).as_bytes());
                write_value(schema, *value, entropy, depth + 1, out);
            });
        }
        Kind::Record { fields, .. } => {
            for field in fields {
                write_value(schema, field.node, entropy, depth + 1, out);
            }
        }
    }
}

fn write_items(out: &mut Vec<u8>, count: usize, mut item: impl FnMut(usize, &mut Vec<u8>)) {
    if count > 0 {
        write_length(out, count);
        (0..count).for_each(|index| item(index, out));
    }
    out.push(0);
}

pub fn value_of(schema: &Schema, entropy: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_value(schema, schema.root(), &mut Entropy(entropy), 0, &mut out);
    out
}

pub fn entropy() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..300)
}

/// The schema of a text that is one.
pub fn parsed(json: &Value) -> Schema {
    match Schema::parse(&json.to_string(), &[]) {
        Ok(schema) => schema,
        Err(error) => panic!("{error}: {json}"),
    }
}
