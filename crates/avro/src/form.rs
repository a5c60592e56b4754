//! A schema's Parsing Canonical Form and its fingerprint.

use crate::parse::branch_name;
use crate::schema::{Kind, NodeId, Schema};
use std::collections::BTreeSet;

impl Schema {
    /// The schema as text in Parsing Canonical Form: only what matters for reading values, always written the same way.
    #[must_use]
    pub fn canonical_form(&self) -> String {
        let mut form = Form { schema: self, defined: BTreeSet::new(), text: String::new() };
        // The parts left to write, the next one last. Types can follow each other in longer chains than recursion
        // could.
        let mut rest = vec![Part::Node(self.root)];
        while let Some(part) = rest.pop() {
            match part {
                Part::Node(node) => form.node(node, &mut rest),
                Part::Text(text) => form.text.push_str(text),
                Part::Field(name) => {
                    form.text.push_str("{\"name\":\"");
                    form.text.push_str(name);
                    form.text.push_str("\",\"type\":");
                }
            }
        }
        form.text
    }

    /// The fingerprint CRC-64-AVRO of the canonical form.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.canonical_form().bytes().fold(EMPTY, |fingerprint, byte| {
            fingerprint >> 8 ^ TABLE[((fingerprint ^ u64::from(byte)) & 0xff) as usize]
        })
    }
}

/// The polynomial, which is also the fingerprint of the empty text.
const EMPTY: u64 = 0xc15d_213a_a4d7_a795;

const TABLE: [u64; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut bits = index as u64;
        let mut round = 0;
        while round < 8 {
            bits = bits >> 1 ^ (EMPTY & 0_u64.wrapping_sub(bits & 1));
            round += 1;
        }
        table[index] = bits;
        index += 1;
    }
    table
};

enum Part<'s> {
    Node(NodeId),
    Text(&'static str),
    Field(&'s str),
}

struct Form<'s> {
    schema: &'s Schema,
    defined: BTreeSet<NodeId>,
    text: String,
}

impl<'s> Form<'s> {
    fn quoted(&mut self, text: &str) {
        self.text.push('"');
        self.text.push_str(text);
        self.text.push('"');
    }

    fn node(&mut self, id: NodeId, rest: &mut Vec<Part<'s>>) {
        let kind = self.schema.kind(id);
        match kind {
            Kind::Record { .. } | Kind::Enum { .. } | Kind::Fixed { .. } if !self.defined.insert(id) => {
                self.quoted(branch_name(kind));
            }
            Kind::Array(item) => {
                self.text.push_str("{\"type\":\"array\",\"items\":");
                rest.extend([Part::Text("}"), Part::Node(*item)]);
            }
            Kind::Map(value) => {
                self.text.push_str("{\"type\":\"map\",\"values\":");
                rest.extend([Part::Text("}"), Part::Node(*value)]);
            }
            Kind::Union(branches) => {
                self.text.push('[');
                rest.push(Part::Text("]"));
                for (index, branch) in branches.iter().enumerate().rev() {
                    rest.push(Part::Node(*branch));
                    if index > 0 {
                        rest.push(Part::Text(","));
                    }
                }
            }
            Kind::Record { name, fields } => {
                self.text.push_str("{\"name\":");
                self.quoted(&name.0);
                self.text.push_str(",\"type\":\"record\",\"fields\":[");
                rest.push(Part::Text("]}"));
                for (index, field) in fields.iter().enumerate().rev() {
                    rest.extend([Part::Text("}"), Part::Node(field.node), Part::Field(&field.name)]);
                    if index > 0 {
                        rest.push(Part::Text(","));
                    }
                }
            }
            Kind::Enum { name, symbols, .. } => {
                self.text.push_str("{\"name\":");
                self.quoted(&name.0);
                self.text.push_str(",\"type\":\"enum\",\"symbols\":[");
                for (index, symbol) in symbols.iter().enumerate() {
                    if index > 0 {
                        self.text.push(',');
                    }
                    self.quoted(symbol);
                }
                self.text.push_str("]}");
            }
            Kind::Fixed { name, size } => {
                self.text.push_str("{\"name\":");
                self.quoted(&name.0);
                self.text.push_str(",\"type\":\"fixed\",\"size\":");
                self.text.push_str(itoa::Buffer::new().format(*size));
                self.text.push('}');
            }
            primitive => self.quoted(branch_name(primitive)),
        }
    }
}
