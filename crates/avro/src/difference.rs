//! Finds where two values of one schema differ.

use crate::binary::Reader;
use crate::error::Malformed;
use crate::path::{push_field, push_index, push_key};
use crate::schema::{Kind, NodeId, Schema};
use std::collections::BTreeMap;
use std::ops::Range;

/// What happened at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The place has another value.
    Set,
    /// An element, an entry, or the whole value is new.
    Insert,
    /// An element, an entry, or the whole value is gone.
    Delete,
}

/// One place where two values differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// `.emails[1]`, `.devApps("a").n`; `.` for the whole. For a deleted element, where it was.
    pub path: String,
    /// What happened there.
    pub kind: DifferenceKind,
    /// The value after: its node, and where its bytes lie in those given. None if deleted.
    pub after: Option<(NodeId, Range<usize>)>,
    /// The value before, likewise. None if inserted.
    pub before: Option<(NodeId, Range<usize>)>,
}

/// The smallest places where two canonical values of the schema differ. There are none if the bytes are equal. For
/// arrays, it leaves out the elements that both begin and end with, and compares those between by their places. It
/// reports more than `limit` places as one change of the whole.
#[must_use]
pub fn difference(schema: &Schema, before: Option<&[u8]>, after: Option<&[u8]>, limit: usize) -> Vec<Difference> {
    let whole = |kind| Difference {
        path: ".".to_owned(),
        kind,
        after: after.map(|bytes| (schema.root(), 0..bytes.len())),
        before: before.map(|bytes| (schema.root(), 0..bytes.len())),
    };
    match (before, after) {
        (None, None) => Vec::new(),
        (None, Some(_)) => vec![whole(DifferenceKind::Insert)],
        (Some(_), None) => vec![whole(DifferenceKind::Delete)],
        (Some(old), Some(new)) => {
            let mut search = Search {
                schema,
                old: Reader::new(old),
                new: Reader::new(new),
                path: String::new(),
                found: Vec::new(),
                limit,
            };
            match search.value(schema.root()) {
                Ok(()) => search.found,
                // Bytes that are not a value differ as a whole.
                Err(_) => vec![whole(DifferenceKind::Set)],
            }
        }
    }
}

struct Search<'s, 'b> {
    schema: &'s Schema,
    old: Reader<'b>,
    new: Reader<'b>,
    path: String,
    found: Vec<Difference>,
    limit: usize,
}

/// An element or entry: its key, and where its value lies.
type Parts<'b> = Vec<(&'b str, Range<usize>)>;

impl<'b> Search<'_, 'b> {
    fn tell(
        &mut self,
        node: NodeId,
        kind: DifferenceKind,
        before: Option<Range<usize>>,
        after: Option<Range<usize>>,
    ) -> Result<(), Malformed> {
        if self.found.len() >= self.limit {
            return self.new.malformed("too many differences");
        }
        let path = if self.path.is_empty() { ".".to_owned() } else { self.path.clone() };
        let (before, after) = (before.map(|range| (node, range)), after.map(|range| (node, range)));
        self.found.push(Difference { path, kind, after, before });
        Ok(())
    }

    /// Runs `tell` with a step more in the path.
    fn below(
        &mut self,
        step: impl FnOnce(&mut String),
        tell: impl FnOnce(&mut Self) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let length = self.path.len();
        step(&mut self.path);
        let told = tell(self);
        self.path.truncate(length);
        told
    }

    /// Compares the values before both cursors, and moves behind them.
    fn value(&mut self, node: NodeId) -> Result<(), Malformed> {
        let (mut old_end, mut new_end) = (self.old.clone(), self.new.clone());
        old_end.skip(self.schema, node)?;
        new_end.skip(self.schema, node)?;
        let old = self.old.position()..old_end.position();
        let new = self.new.position()..new_end.position();
        if old_end.since(old.start) != new_end.since(new.start) {
            self.changed(node, old, new)?;
        }
        (self.old, self.new) = (old_end, new_end);
        Ok(())
    }

    fn changed(&mut self, node: NodeId, old: Range<usize>, new: Range<usize>) -> Result<(), Malformed> {
        let schema = self.schema;
        match schema.kind(node) {
            Kind::Record { fields, .. } => {
                for field in fields {
                    self.below(|path| push_field(path, &field.name), |search| search.value(field.node))?;
                }
                Ok(())
            }
            Kind::Union(branches) => {
                let (from, to) = (self.old.index(branches.len())?, self.new.index(branches.len())?);
                if from == to {
                    return self.value(branches[to]);
                }
                self.tell(node, DifferenceKind::Set, Some(old), Some(new))
            }
            Kind::Array(item) => self.elements(*item),
            Kind::Map(value) => self.entries(*value),
            _ => self.tell(node, DifferenceKind::Set, Some(old), Some(new)),
        }
    }

    fn parts(schema: &Schema, reader: &mut Reader<'b>, node: NodeId, is_map: bool) -> Result<Parts<'b>, Malformed> {
        let mut parts = Vec::new();
        loop {
            let count = reader.block()?;
            if count == 0 {
                return Ok(parts);
            }
            for _ in 0..count {
                let key = if is_map { reader.string()? } else { "" };
                let start = reader.position();
                reader.skip(schema, node)?;
                // Parts without bytes are all equal, so there is no need for more of them than a record has.
                if parts.len() > millrace_base::limits::RECORD_BYTES {
                    return reader.malformed("too many elements");
                }
                parts.push((key, start..reader.position()));
            }
        }
    }

    fn at(reader: &Reader<'b>, range: &Range<usize>) -> Reader<'b> {
        reader.moved_to(range.start)
    }

    fn both(&mut self, node: NodeId, old: &Range<usize>, new: &Range<usize>) -> Result<(), Malformed> {
        (self.old, self.new) = (Self::at(&self.old, old), Self::at(&self.new, new));
        self.value(node)
    }

    fn elements(&mut self, item: NodeId) -> Result<(), Malformed> {
        let old = Self::parts(self.schema, &mut self.old, item, false)?;
        let new = Self::parts(self.schema, &mut self.new, item, false)?;
        let (old_bytes, new_bytes) = (self.old.moved_to(0).rest(), self.new.moved_to(0).rest());
        let is_equal = |old: &(_, Range<usize>), new: &(_, Range<usize>)| {
            old_bytes.get(old.1.clone()) == new_bytes.get(new.1.clone())
        };
        let start = old.iter().zip(&new).take_while(|(old, new)| is_equal(old, new)).count();
        let (old_rest, new_rest) = (&old[start..], &new[start..]);
        let end = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| is_equal(old, new)).count();
        let old_middle = &old_rest[..old_rest.len() - end];
        let new_middle = &new_rest[..new_rest.len() - end];
        for index in 0..old_middle.len().max(new_middle.len()) {
            let step = |path: &mut String| push_index(path, start + index);
            self.below(step, |search| match (old_middle.get(index), new_middle.get(index)) {
                (Some((_, old)), Some((_, new))) => search.both(item, old, new),
                (None, Some((_, new))) => search.tell(item, DifferenceKind::Insert, None, Some(new.clone())),
                (Some((_, old)), None) => search.tell(item, DifferenceKind::Delete, Some(old.clone()), None),
                (None, None) => Ok(()),
            })?;
        }
        Ok(())
    }

    /// In the order of the new entries. The deleted ones follow, in their own order.
    fn entries(&mut self, value: NodeId) -> Result<(), Malformed> {
        let old = Self::parts(self.schema, &mut self.old, value, true)?;
        let new = Self::parts(self.schema, &mut self.new, value, true)?;
        let mut by_key: BTreeMap<&str, &Range<usize>> = old.iter().map(|(key, range)| (*key, range)).collect();
        let told = self.found.len();
        for (key, new) in &new {
            let old = by_key.remove(key);
            self.below(
                |path| push_key(path, key),
                |search| match old {
                    Some(old) => search.both(value, old, new),
                    None => search.tell(value, DifferenceKind::Insert, None, Some(new.clone())),
                },
            )?;
        }
        for (key, old) in old.iter().filter(|(key, _)| by_key.contains_key(key)) {
            self.below(
                |path| push_key(path, key),
                |search| search.tell(value, DifferenceKind::Delete, Some(old.clone()), None),
            )?;
        }
        // The same entries in another order: no entry differs, and yet the map's bytes do.
        if self.found.len() == told {
            return self.new.malformed("only the order differs");
        }
        Ok(())
    }
}
