//! A scan over entities that gives fields of each: one pass over the checkpoint's rows, merged with what memory knows
//! better, that passes over what nobody wants.

use std::ops::{Bound, ControlFlow};

use millrace_base::{EntityKey, Lsn, Value};

use crate::append_only_map::Held;
use crate::row::{SHARD_BYTES, entity_of, prefix_end, row_key, successor};
use crate::scan::{Bounds, FieldRow, STEPS_BEFORE_SEEK, merge};
use crate::store::{Residency, damaged_row, upper};
use crate::{Store, StoreError};

/// Which entities a scan visits, and what it gives of each.
#[derive(Clone, Copy, Debug)]
pub struct EntityRange<'a> {
    /// Only entities whose encoded keys begin like this: see [`EntityKey::scan_prefix`].
    pub prefix: &'a [u8],
    /// No entity whose encoded key is before this.
    pub from: &'a [u8],
    /// Of this entity, only fields behind this name.
    pub behind: Option<(&'a EntityKey, &'a [u8])>,
    /// The field to give of each entity, or how the names of those to give begin.
    pub field: &'a [u8],
    /// Whether `field` is how names begin.
    pub is_prefix: bool,
    /// At most so many fields of an entity.
    pub fields_limit: usize,
}

/// What a visitor wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visit {
    /// The next entity.
    Next,
    /// The first entity whose key is not before this one.
    Seek(Vec<u8>),
    /// No more.
    Stop,
}

/// Gets one entity after another, with the fields that were asked for: at least one.
pub type EntityVisitor<'a> = dyn FnMut(EntityKey, Vec<FieldRow>) -> Visit + 'a;

/// An entity whose rows are being passed over.
struct Current {
    entity: EntityKey,
    /// Where memory has it, if it is dirty. The rows of the others are as memory has them.
    dirty: Option<u32>,
    /// The first name that is wanted.
    low: Vec<u8>,
    found: Vec<FieldRow>,
}

/// One pass over a range.
struct Pass<'s, 'v> {
    store: &'s Store,
    range: EntityRange<'s>,
    /// Behind the range.
    high: Option<Vec<u8>>,
    /// The next dirty entity of the range, and those behind it.
    dirty: Option<u32>,
    dirty_behind: Box<dyn Iterator<Item = u32> + 's>,
    current: Option<Current>,
    /// No entity before this is wanted.
    skip_to: Vec<u8>,
    /// Rows that were passed over since one was wanted.
    steps: usize,
    /// How many are passed over before a seek to what the visitor wants. Once such a seek was needed, the next one is
    /// not waited for: keys with a common beginning are mostly as many.
    patience: usize,
    seen: Lsn,
    is_over: bool,
    visit: &'v mut EntityVisitor<'v>,
}

impl Store {
    /// Gives entities in order to `visit` until it stops: those of `range` that have a field that is asked for.
    ///
    /// Returns the LSN that a reply must wait for if it depends on the answer: that of the newest write, deletions
    /// included, to any entity that was passed.
    ///
    /// # Errors
    /// [`StoreError`] if the checkpoint had to be read and could not be.
    pub fn visit_entities(&self, range: &EntityRange<'_>, visit: &mut EntityVisitor<'_>) -> Result<Lsn, StoreError> {
        let start = range.from.max(range.prefix).to_vec();
        let high = prefix_end(range.prefix);
        let mut pass = Pass {
            store: self,
            range: *range,
            high,
            dirty: None,
            dirty_behind: Box::new(std::iter::empty()),
            current: None,
            skip_to: start.clone(),
            steps: 0,
            patience: STEPS_BEFORE_SEEK,
            seen: Lsn::ZERO,
            is_over: range.fields_limit == 0,
            visit,
        };
        pass.seek_dirty(&start);
        let mut from = Some(row_key(self.shard, &start, b""));
        // Each round is one seek.
        while let Some(row) = from.filter(|_| !pass.is_over) {
            from = pass.scan(&row)?;
        }
        Ok(pass.seen)
    }
}

impl Pass<'_, '_> {
    /// Goes to the first dirty entity of the range whose key is not before this.
    fn seek_dirty(&mut self, low: &[u8]) {
        let store = self.store;
        self.dirty_behind = Box::new(store.dirty.from(low, move |index| &*store.entities[index].key));
        self.next_dirty();
    }

    /// Goes to the dirty entity behind the present one. A look-up for each costs a list of entities in memory more.
    fn next_dirty(&mut self) {
        let (store, high) = (self.store, self.high.as_deref());
        let is_within = |index: &u32| high.is_none_or(|high| &*store.entities[*index].key < high);
        self.dirty = self.dirty_behind.next().filter(is_within);
    }

    /// Passes over the rows from this one on. Says where to seek to; `None`: all is done.
    fn scan(&mut self, from: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let store = self.store;
        let to = match &self.high {
            Some(high) => Some(row_key(store.shard, high, b"")),
            None => prefix_end(&store.shard.0.to_be_bytes()),
        };
        let mut seek = Ok(None);
        if !store.checkpoint_empty {
            store.checkpoint.scan(Bound::Included(from), upper(to.as_deref()), &mut |row, encoded| {
                seek = self.row(row, encoded);
                let goes_on = matches!(seek, Ok(None)) && !self.is_over;
                if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        let seek = seek?;
        if seek.is_none() {
            self.finish();
            self.finish_dirty(None);
        }
        Ok(seek)
    }

    /// Takes a row. Says where to seek to, if not to the next row.
    fn row(&mut self, row: &[u8], encoded: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let key = row.get(SHARD_BYTES..).unwrap_or_default();
        if let Some(current) = &self.current {
            if let Some(name) = key.strip_prefix(current.entity.as_bytes()) {
                return self.field(name, row, encoded);
            }
            self.finish();
        }
        if self.is_over || self.is_skipped(key) {
            return Ok(self.step_to_wanted());
        }
        let entity = entity_of(row).ok_or_else(|| damaged_row(row))?;
        self.finish_dirty(Some(&entity));
        if self.is_over || self.is_skipped(key) {
            return Ok(self.step_to_wanted());
        }
        let dirty = self.dirty.filter(|index| *self.store.entities[*index].key == *entity.as_bytes());
        if let Some(index) = dirty {
            self.pass_dirty(index);
        }
        let low = self.low_of(&entity);
        let name_at = entity.as_bytes().len();
        self.current = Some(Current { entity, dirty, low, found: Vec::new() });
        self.steps = 0;
        self.field(key.get(name_at..).unwrap_or_default(), row, encoded)
    }

    fn is_skipped(&self, key: &[u8]) -> bool {
        key < &self.skip_to[..]
    }

    fn step_to_wanted(&mut self) -> Option<Vec<u8>> {
        self.steps += 1;
        (!self.is_over && self.steps >= self.patience).then(|| {
            self.steps = 0;
            self.patience = 1;
            row_key(self.store.shard, &self.skip_to, b"")
        })
    }

    /// The first name that is wanted of an entity.
    fn low_of(&self, entity: &EntityKey) -> Vec<u8> {
        match self.range.behind {
            Some((behind, name)) if behind == entity && name >= self.range.field => successor(name),
            _ => self.range.field.to_vec(),
        }
    }

    fn is_wanted(&self, name: &[u8]) -> bool {
        if self.range.is_prefix { name.starts_with(self.range.field) } else { name == self.range.field }
    }

    /// Takes a row of the current entity.
    fn field(&mut self, name: &[u8], row: &[u8], encoded: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let is_wanted = self.is_wanted(name);
        let Some(current) = &mut self.current else { return Ok(None) };
        if is_wanted && name >= &current.low[..] && current.found.len() < self.range.fields_limit {
            let memory = current.dirty.map(|index| &self.store.entities[index]);
            // What memory does not hold of a dirty entity is as the checkpoint has it, unless memory holds all of it.
            let is_unknown = memory.is_none_or(|entity| {
                entity.residency != Residency::Complete && entity.fields.held(name) == Held::Missing
            });
            if is_unknown {
                let value = Value::from_encoded(encoded).ok_or_else(|| damaged_row(row))?;
                current.found.push((name.into(), value));
                self.steps = 0;
                return Ok(None);
            }
        }
        self.steps += 1;
        if self.steps < STEPS_BEFORE_SEEK {
            return Ok(None);
        }
        self.steps = 0;
        if name < &current.low[..] {
            return Ok(Some(row_key(self.store.shard, current.entity.as_bytes(), &current.low)));
        }
        // A deleted field may have others behind it that are wanted.
        if is_wanted && current.found.len() < self.range.fields_limit {
            return Ok(None);
        }
        let end = prefix_end(current.entity.as_bytes());
        self.finish();
        let end = end.filter(|_| !self.is_over);
        Ok(end.map(|end| row_key(self.store.shard, end.max(self.skip_to.clone()).as_slice(), b"")))
    }

    /// Ends the current entity.
    fn finish(&mut self) {
        if let Some(current) = self.current.take() {
            self.give(current);
        }
    }

    /// Gives the dirty entities before this one: the checkpoint has no rows of them.
    fn finish_dirty(&mut self, before: Option<&EntityKey>) {
        while let Some(index) = self.dirty.filter(|_| !self.is_over) {
            let key = &self.store.entities[index].key;
            if before.is_some_and(|before| **key >= *before.as_bytes()) {
                return;
            }
            self.pass_dirty(index);
            if let Some((entity, _)) = EntityKey::split_from(key) {
                let low = self.low_of(&entity);
                self.give(Current { entity, dirty: Some(index), low, found: Vec::new() });
            }
        }
    }

    fn pass_dirty(&mut self, index: u32) {
        let entity = &self.store.entities[index];
        self.seen = self.seen.max(entity.last_write);
        self.next_dirty();
    }

    /// Gives an entity to the visitor, if it has a field that is asked for.
    fn give(&mut self, current: Current) {
        let Current { entity, dirty, low, found } = current;
        let fields = match dirty {
            None => found,
            Some(index) => {
                let field = self.range.field;
                let high = if self.range.is_prefix { prefix_end(field) } else { Some(successor(field)) };
                let live = self.store.entities[index].fields.live_range(&low, high.as_deref());
                merge(found, live, Bounds { rows: self.range.fields_limit, bytes: usize::MAX }).0
            }
        };
        if fields.is_empty() {
            return;
        }
        match (self.visit)(entity, fields) {
            Visit::Next => {}
            Visit::Stop => self.is_over = true,
            Visit::Seek(to) => {
                let is_behind = self.dirty.is_some_and(|index| *self.store.entities[index].key < *to);
                if is_behind {
                    self.seek_dirty(&to);
                }
                self.skip_to = self.skip_to.as_slice().max(&to).to_vec();
            }
        }
    }
}
