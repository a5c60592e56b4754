//! A schema compiled for walking encoded values: nodes in one array, names resolved to indexes.

use crate::shape::{Shape, Skip};
use std::fmt;

/// A node of one [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// `namespace.name` of a record, enum or fixed; the namespace may be empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FullName(pub Box<str>);

impl FullName {
    /// The part after the last dot.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.rsplit('.').next().unwrap_or(&self.0)
    }
}

impl fmt::Display for FullName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What a node encodes. If a named type refers to itself, that is its own node's id again.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// No bytes.
    Null,
    /// One byte.
    Boolean,
    /// Zig-zag varint of 32 bits.
    Int,
    /// Zig-zag varint of 64 bits.
    Long,
    /// Four bytes, little endian.
    Float,
    /// Eight bytes, little endian.
    Double,
    /// Length and bytes.
    Bytes,
    /// Length and UTF-8.
    String,
    /// Blocks of items.
    Array(NodeId),
    /// Blocks of key and value; keys are strings.
    Map(NodeId),
    /// The branch's index and its value.
    Union(Box<[NodeId]>),
    /// The fields in order.
    Record {
        /// Its name.
        name: FullName,
        /// Its fields, in order.
        fields: Box<[Field]>,
    },
    /// The symbol's index.
    Enum {
        /// Its name.
        name: FullName,
        /// Its symbols, in order.
        symbols: Box<[Box<str>]>,
        /// The symbol that stands for unknown ones in schema resolution.
        default: Option<u32>,
    },
    /// So many bytes.
    Fixed {
        /// Its name.
        name: FullName,
        /// How many.
        size: usize,
    },
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: Box<str>,
    /// Names that writers may have used for it.
    pub aliases: Box<[Box<str>]>,
    /// Its type.
    pub node: NodeId,
    /// Its default, encoded, if the schema gives one.
    pub default: Option<Box<[u8]>>,
}

/// What a logical type says of the type below it. Unknown ones, and known ones on the wrong type, are ignored, as the
/// specification demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the specification")]
pub enum Logical {
    Decimal { precision: u32, scale: u32 },
    Uuid,
    Date,
    TimeMillis,
    TimeMicros,
    TimestampMillis,
    TimestampMicros,
    TimestampNanos,
    LocalTimestampMillis,
    LocalTimestampMicros,
    LocalTimestampNanos,
    Duration,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it encodes.
    pub kind: Kind,
    /// What that stands for.
    pub logical: Option<Logical>,
    /// Other names writers may have used for a named type.
    pub aliases: Box<[FullName]>,
}

/// A compiled schema. Every [`NodeId`] in it is in range. None leads back to itself without an array, map or union
/// between, so values are finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    pub(crate) nodes: Box<[Node]>,
    pub(crate) root: NodeId,
    /// By node.
    pub(crate) skips: Box<[Skip]>,
    /// By node.
    pub(crate) shapes: Box<[Shape]>,
}

impl Schema {
    /// The node with which values of this schema begin.
    #[must_use]
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// A node.
    ///
    /// # Panics
    /// For the id of another schema.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    #[inline]
    pub(crate) fn skip_of(&self, id: NodeId) -> &Skip {
        &self.skips[id.0 as usize]
    }

    #[inline]
    pub(crate) fn shape_of(&self, id: NodeId) -> &Shape {
        &self.shapes[id.0 as usize]
    }

    /// The index of a record's field or an enum's symbol.
    #[must_use]
    pub fn find(&self, id: NodeId, name: &str) -> Option<usize> {
        let (by_name, found) = match (self.kind(id), self.shape_of(id)) {
            (Kind::Record { fields, .. }, Shape::Record { by_name, .. }) => {
                (by_name, by_name.binary_search_by(|index| (*fields[*index as usize].name).cmp(name)))
            }
            (Kind::Enum { symbols, .. }, Shape::Enum { by_name, .. }) => {
                (by_name, by_name.binary_search_by(|index| (*symbols[*index as usize]).cmp(name)))
            }
            _ => return None,
        };
        found.ok().map(|found| by_name[found] as usize)
    }

    /// What a node encodes.
    #[must_use]
    pub fn kind(&self, id: NodeId) -> &Kind {
        &self.node(id).kind
    }
}
