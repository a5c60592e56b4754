//! Tables computed once for a schema, so that walks over its values are quick.

use crate::parse::branch_name;
use crate::schema::{Kind, Logical, Node, NodeId};

/// How to move behind a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Skip {
    /// Always so many bytes.
    Fixed(usize),
    /// A number.
    Varint,
    /// A length and so many bytes.
    Sized,
    /// Blocks of items.
    Array(NodeId),
    /// Blocks of keys and values.
    Map(NodeId),
    /// The branch's index and its value.
    Union(Box<[Skip]>),
    /// These one after another. Neighbours of fixed size are one step, so that every two steps pass at least one byte.
    Record(Box<[Skip]>),
    /// As that node.
    Node(NodeId),
}

/// The steps for all nodes.
pub(crate) fn skips(nodes: &[Node]) -> Box<[Skip]> {
    let mut sizes = vec![None; nodes.len()];
    nodes.iter().enumerate().map(|(index, _)| skip_of(nodes, &mut sizes, index)).collect()
}

/// What is known of a node's size: nothing yet, no fixed one, or this.
type Size = Option<Option<usize>>;

fn skip_of(nodes: &[Node], sizes: &mut [Size], index: usize) -> Skip {
    if let Some(size) = fixed_size(nodes, sizes, index) {
        return Skip::Fixed(size);
    }
    match &nodes[index].kind {
        Kind::Bytes | Kind::String => Skip::Sized,
        Kind::Array(item) => Skip::Array(*item),
        Kind::Map(value) => Skip::Map(*value),
        Kind::Union(branches) => {
            Skip::Union(branches.iter().map(|branch| part_of(nodes, sizes, branch.0 as usize)).collect())
        }
        Kind::Record { fields, .. } => {
            let mut steps = Vec::with_capacity(fields.len());
            for field in fields {
                let node = field.node.0 as usize;
                match (fixed_size(nodes, sizes, node), steps.last_mut()) {
                    (Some(more), Some(Skip::Fixed(size))) => *size += more,
                    (Some(size), _) => steps.push(Skip::Fixed(size)),
                    (None, _) => steps.push(part_of(nodes, sizes, node)),
                }
            }
            Skip::Record(steps.into())
        }
        _ => Skip::Varint,
    }
}

/// As part of another node's steps: whole, unless it is a record, which may be recursive.
fn part_of(nodes: &[Node], sizes: &mut [Size], index: usize) -> Skip {
    match &nodes[index].kind {
        Kind::Record { .. } => match fixed_size(nodes, sizes, index) {
            Some(size) => Skip::Fixed(size),
            None => Skip::Node(NodeId(u32::try_from(index).expect("an id before"))),
        },
        _ => skip_of(nodes, sizes, index),
    }
}

/// The recursion ends, because the parser bounds records directly within records.
fn fixed_size(nodes: &[Node], sizes: &mut [Size], index: usize) -> Option<usize> {
    if let Some(size) = sizes[index] {
        return size;
    }
    let size = match &nodes[index].kind {
        Kind::Null => Some(0),
        Kind::Boolean => Some(1),
        Kind::Float => Some(4),
        Kind::Double => Some(8),
        Kind::Fixed { size, .. } => Some(*size),
        Kind::Record { fields, .. } => {
            fields.iter().try_fold(0, |sum, field| Some(sum + fixed_size(nodes, sizes, field.node.0 as usize)?))
        }
        _ => None,
    };
    sizes[index] = Some(size);
    size
}

/// What JSON needs of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Nothing.
    Plain,
    /// The text before each field's value (`{"name":`, `,"age":`), and the fields by name.
    Record { openings: Box<[Box<[u8]>]>, by_name: Box<[u32]> },
    /// Each symbol in quotes, and the symbols by name.
    Enum { quoted: Box<[Box<[u8]>]>, by_name: Box<[u32]> },
    /// See there.
    Union(Box<UnionShape>),
}

/// How unions are written without their branches' names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnionShape {
    /// `{"name":` for each branch.
    pub(crate) tags: Box<[Box<[u8]>]>,
    /// For each [`Class`], the branches to try, in this order. A value is written without a name if its branch is the
    /// first.
    pub(crate) candidates: [Box<[u32]>; CLASSES],
    /// Branches that are records of one field whose name is a branch's name. Without a name, such a record would be
    /// taken for one.
    pub(crate) looks_named: Box<[bool]>,
}

/// The classes of values that JSON tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Null,
    Boolean,
    /// A number without point and exponent.
    Integer,
    Number,
    String,
    Array,
    Object,
}

const CLASSES: usize = 7;

/// The shapes of all nodes.
pub(crate) fn shapes(nodes: &[Node]) -> Box<[Shape]> {
    nodes.iter().map(|node| shape_of(nodes, &node.kind)).collect()
}

fn sorted<'n>(names: impl Iterator<Item = &'n str>) -> Box<[u32]> {
    let mut numbered: Vec<(&str, u32)> = names.zip(0..).collect();
    numbered.sort_unstable();
    numbered.into_iter().map(|(_, index)| index).collect()
}

fn shape_of(nodes: &[Node], kind: &Kind) -> Shape {
    match kind {
        Kind::Record { fields, .. } => Shape::Record {
            openings: fields
                .iter()
                .enumerate()
                .map(|(index, field)| {
                    let opening = format!("{}\"{}\":", if index == 0 { '{' } else { ',' }, field.name);
                    opening.into_bytes().into()
                })
                .collect(),
            by_name: sorted(fields.iter().map(|field| &*field.name)),
        },
        Kind::Enum { symbols, .. } => Shape::Enum {
            quoted: symbols.iter().map(|symbol| format!("\"{symbol}\"").into_bytes().into()).collect(),
            by_name: sorted(symbols.iter().map(|symbol| &**symbol)),
        },
        Kind::Union(branches) => Shape::Union(Box::new(union_shape(nodes, branches))),
        _ => Shape::Plain,
    }
}

fn union_shape(nodes: &[Node], branches: &[NodeId]) -> UnionShape {
    let node = |branch: &NodeId| &nodes[branch.0 as usize];
    let candidates = CLASS_LIST.map(|class| {
        // In two passes: the branches that are written so come before those that are only read so.
        let claims = |wanted: bool| {
            let numbered = branches.iter().zip(0_u32..);
            numbered.filter(move |(branch, _)| claim(node(branch), class) == Some(wanted)).map(|(_, index)| index)
        };
        claims(true).chain(claims(false)).collect()
    });
    let looks_named = |branch: &NodeId| match &node(branch).kind {
        Kind::Record { fields, .. } if fields.len() == 1 => {
            branches.iter().any(|other| *branch_name(&node(other).kind) == *fields[0].name)
        }
        _ => false,
    };
    UnionShape {
        tags: branches
            .iter()
            .map(|branch| format!("{{\"{}\":", branch_name(&node(branch).kind)).into_bytes().into())
            .collect(),
        candidates,
        looks_named: branches.iter().map(looks_named).collect(),
    }
}

const CLASS_LIST: [Class; CLASSES] =
    [Class::Null, Class::Boolean, Class::Integer, Class::Number, Class::String, Class::Array, Class::Object];

/// Whether values of a node are written as this class (true), or only read from it (false).
fn claim(node: &Node, class: Class) -> Option<bool> {
    match (class, &node.kind) {
        (Class::Null, Kind::Null)
        | (Class::Boolean, Kind::Boolean)
        | (Class::Array, Kind::Array(_))
        | (Class::Object, Kind::Map(_) | Kind::Record { .. })
        | (Class::Number, Kind::Float | Kind::Double)
        | (Class::String, Kind::String | Kind::Enum { .. } | Kind::Bytes) => Some(true),
        (Class::Object, Kind::Fixed { .. }) => (node.logical == Some(Logical::Duration)).then_some(true),
        (Class::String, Kind::Fixed { .. }) => (node.logical != Some(Logical::Duration)).then_some(true),
        (Class::Integer, Kind::Int | Kind::Long) => Some(node.logical.is_none()),
        (Class::String, Kind::Int | Kind::Long) => node.logical.map(|_| true),
        (Class::Integer | Class::String, Kind::Float | Kind::Double) => Some(false),
        (Class::Integer | Class::Number, Kind::Bytes) | (Class::Integer | Class::Number, Kind::Fixed { .. }) => {
            matches!(node.logical, Some(Logical::Decimal { .. })).then_some(false)
        }
        _ => None,
    }
}
