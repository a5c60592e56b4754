//! Which schemas have values at all, and values of bearable size.

use crate::SchemaError;
use crate::parse::branch_name;
use crate::schema::{Kind, Node};
use millrace_base::limits;

/// Refuses types without finite values. Also refuses records that directly hold records too deep, or so many of them
/// that the smallest value is too large. From here on, recursion over records that hold each other directly is bounded.
pub(crate) fn check(nodes: &[Node]) -> Result<(), SchemaError> {
    let mut extents = vec![State::Unknown; nodes.len()];
    for index in 0..nodes.len() {
        extent(nodes, &mut extents, index, 0)?;
    }
    check_productive(nodes)
}

/// What the smallest value of a node takes.
#[derive(Clone, Copy)]
struct Extent {
    bytes: usize,
    /// Values in it, itself included, down to the first arrays, maps and unions.
    values: usize,
    /// How deep records hold each other directly.
    depth: usize,
}

#[derive(Clone, Copy)]
enum State {
    Unknown,
    Open,
    Known(Extent),
}

fn extent(nodes: &[Node], states: &mut [State], index: usize, depth: usize) -> Result<Extent, SchemaError> {
    let name = branch_name(&nodes[index].kind);
    let leaf = |bytes| Extent { bytes, values: 1, depth: 0 };
    let found = match (&nodes[index].kind, states[index]) {
        (_, State::Known(extent)) => return Ok(extent),
        (_, State::Open) => {
            return Err(SchemaError::new(name, "the record holds itself, so it would never end"));
        }
        (Kind::Null, _) => leaf(0),
        (Kind::Float, _) => leaf(4),
        (Kind::Double, _) => leaf(8),
        (Kind::Fixed { size, .. }, _) => leaf(*size),
        (Kind::Record { fields, .. }, _) => {
            if depth >= limits::VALUE_DEPTH {
                return Err(SchemaError::new(name, "records hold records too deep"));
            }
            states[index] = State::Open;
            let mut sum = Extent { bytes: 0, values: 1, depth: 0 };
            for field in fields {
                let inner = extent(nodes, states, field.node.0 as usize, depth + 1)?;
                sum.bytes = sum.bytes.saturating_add(inner.bytes);
                sum.values = sum.values.saturating_add(inner.values);
                sum.depth = sum.depth.max(inner.depth + 1);
            }
            sum
        }
        _ => leaf(1),
    };
    if found.bytes > limits::RECORD_BYTES || found.values > limits::RECORD_VALUES {
        return Err(SchemaError::new(name, "even the smallest value is too large"));
    }
    if found.depth > limits::VALUE_DEPTH {
        return Err(SchemaError::new(name, "records hold records too deep"));
    }
    states[index] = State::Known(found);
    Ok(found)
}

/// A union has finite values if one of its branches has. A record has them if all of its fields have. Types mostly come
/// before their parts, so a backward pass settles nearly all in the first round.
fn check_productive(nodes: &[Node]) -> Result<(), SchemaError> {
    let mut productive = vec![false; nodes.len()];
    loop {
        let mut is_changed = false;
        for (index, node) in nodes.iter().enumerate().rev() {
            let is_productive = match &node.kind {
                Kind::Union(branches) => branches.iter().any(|branch| productive[branch.0 as usize]),
                Kind::Record { fields, .. } => fields.iter().all(|field| productive[field.node.0 as usize]),
                _ => true,
            };
            is_changed |= is_productive && !productive[index];
            productive[index] |= is_productive;
        }
        if !is_changed {
            break;
        }
    }
    match productive.iter().position(|is_productive| !is_productive) {
        Some(index) => Err(SchemaError::new(branch_name(&nodes[index].kind), "no value of this type ever ends")),
        None => Ok(()),
    }
}
