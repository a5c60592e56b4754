//! Ordered scans that merge the rows in memory with those of the checkpoint.

use std::ops::{Bound, ControlFlow};

use millrace_base::{EntityKey, Lsn, Value};

use crate::append_only_map::Held;
use crate::fields::Fields;
use crate::row::{SHARD_BYTES, entity_of, prefix_end, row_key, successor};
use crate::store::{Residency, damaged_row, upper};
use crate::{RowVisitor, Store, StoreError};

/// Rows of one entity that a scan of entities steps over before it seeks to the next entity. A seek costs about as much
/// as this many steps.
pub(crate) const STEPS_BEFORE_SEEK: usize = 8;

/// A scan that stepped over so many hidden rows is worth remembering.
const STEPS_WORTH_A_HOLE: usize = 16;

/// A field's name and value.
pub type FieldRow = (Box<[u8]>, Value);

/// Some of an entity's rows, as its fields are now.
#[derive(Debug, Default)]
pub struct RowPage {
    /// The fields that are not deleted.
    pub fields: Vec<FieldRow>,
    /// The last row looked at, unless there are no more.
    pub last: Option<Box<[u8]>>,
}

/// What one pass over an entity's rows found.
struct Rows {
    found: Vec<FieldRow>,
    hidden: usize,
}

/// How much one scan may gather. The bound that is reached first ends it.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

/// Bytes of a row's name and value.
fn row_bytes(name: &[u8], value: &[u8]) -> usize {
    name.len() + value.len()
}

impl Store {
    /// Up to `limit` fields of `entity` in order: those that start with `prefix` and come after `after`.
    ///
    /// # Errors
    /// [`StoreError`] if the checkpoint had to be read and could not be.
    pub fn scan_fields(
        &mut self,
        entity: &EntityKey,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<FieldRow>, StoreError> {
        let bounds = Bounds { rows: limit, bytes: usize::MAX };
        self.scan_within(entity, prefix, after, bounds).map(|(rows, _)| rows)
    }

    /// As [`Store::scan_fields`], but ends once it has gathered more than `max_bytes`. Says whether it did, because
    /// then fields may be missing.
    ///
    /// # Errors
    /// As for [`Store::scan_fields`].
    pub fn scan_fields_within(
        &mut self,
        entity: &EntityKey,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
        max_bytes: usize,
    ) -> Result<(Vec<FieldRow>, bool), StoreError> {
        self.scan_within(entity, prefix, after, Bounds { rows: limit, bytes: max_bytes })
    }

    /// Gives the fields of `entity` that start with `prefix` to `visit`, in order, until it breaks off. Few are in
    /// memory at a time: parts of `part_rows` or a little more than `part_bytes`.
    ///
    /// # Errors
    /// As for [`Store::scan_fields`].
    pub fn visit_fields(
        &mut self,
        entity: &EntityKey,
        prefix: &[u8],
        (part_rows, part_bytes): (usize, usize),
        visit: &mut dyn FnMut(&[u8], &Value) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut after: Option<Box<[u8]>> = None;
        loop {
            let (rows, is_cut) = self.scan_fields_within(entity, prefix, after.as_deref(), part_rows, part_bytes)?;
            for (name, value) in &rows {
                if visit(name, value).is_break() {
                    return Ok(());
                }
            }
            let is_last = rows.len() < part_rows && !is_cut;
            after = match rows.into_iter().next_back() {
                Some((name, _)) if !is_last => Some(name),
                _ => return Ok(()),
            };
        }
    }

    fn scan_within(
        &mut self,
        entity: &EntityKey,
        prefix: &[u8],
        after: Option<&[u8]>,
        bounds: Bounds,
    ) -> Result<(Vec<FieldRow>, bool), StoreError> {
        let Some(index) = self.touch(entity.as_bytes()) else { return Ok((Vec::new(), false)) };
        if bounds.rows == 0 {
            return Ok((Vec::new(), false));
        }
        if self.entities[index].residency == Residency::Unknown {
            self.load(index)?;
        }
        let low = low_bound(prefix, after);
        let high = prefix_end(prefix);
        let rows = match self.entities[index].residency {
            Residency::Partial => self.read_rows(index, &low, high.as_deref(), bounds)?,
            Residency::Complete | Residency::Unknown => Rows { found: Vec::new(), hidden: 0 },
        };
        let entity = &mut self.entities[index];
        let live = entity.fields.live_range(&low, high.as_deref());
        let (merged, is_cut) = merge(rows.found, live, bounds);
        if entity.residency == Residency::Partial {
            let first = merged.first().map(|(name, _)| name.clone());
            remember_hole(&mut entity.fields, low, first.or(high.map(Into::into)), rows.hidden);
        }
        Ok((merged, is_cut))
    }

    /// Up to `limit` rows of a large entity for which memory holds neither a value nor a tombstone.
    fn read_rows(&self, index: u32, low: &[u8], high: Option<&[u8]>, bounds: Bounds) -> Result<Rows, StoreError> {
        let entity = &self.entities[index];
        let mut rows = Rows { found: Vec::new(), hidden: 0 };
        let mut from = low;
        if let Fields::Many(many) = &entity.fields
            && let Some(hole) = many.hole.as_ref().filter(|hole| hole.contains(low))
        {
            match &hole.end {
                Some(end) => from = end,
                None => return Ok(rows),
            }
        }
        let prefix = row_key(self.shard, &entity.key, b"");
        let from = row_key(self.shard, &entity.key, from);
        let to = match high {
            Some(high) => Some(row_key(self.shard, &entity.key, high)),
            None => prefix_end(&prefix),
        };
        let (mut damaged, mut gathered_bytes) = (None, 0);
        self.checkpoint.scan(Bound::Included(&from), upper(to.as_deref()), &mut |row, encoded| {
            let name = row.get(prefix.len()..).unwrap_or_default();
            match entity.fields.held(name) {
                Held::Missing => match Value::from_encoded(encoded) {
                    // Only found rows count. Then the bounds are reached among them, and nothing behind the last row
                    // looked at is needed.
                    Some(value) => {
                        gathered_bytes += row_bytes(name, encoded);
                        rows.found.push((name.into(), value));
                    }
                    None => damaged = Some(damaged_row(row)),
                },
                // The first row for which memory has a newer value ends a hole like any other.
                Held::Live(_) => {}
                Held::Dead => rows.hidden += 1,
            }
            let is_enough = rows.found.len() >= bounds.rows || gathered_bytes > bounds.bytes;
            if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        damaged.map_or(Ok(rows), Err)
    }

    /// Gives the records of the append-only map `entity` that memory holds to `visit`, in the order of writes, with
    /// encoded values. It begins where the last visit ended, and gives at most `limit` records. If `visit` breaks at a
    /// record, the next visit begins with it. It does not see records that were evicted, or that lay in the checkpoint
    /// at the start: see [`Store::scan_rows`].
    pub fn visit_append_only_map(&mut self, entity: &EntityKey, limit: usize, visit: &mut RowVisitor<'_>) {
        if let Some(index) = self.find(entity.as_bytes())
            && let Fields::AppendOnlyMap(append_only_map) = &mut self.entities[index].fields
        {
            append_only_map.visit(limit, visit);
        }
    }

    /// The fields of `entity` among up to `limit` of its rows in the checkpoint, in order, behind `after`, with their
    /// present values. Also where to go on, unless those were the last. Fields that no flush has written yet are not
    /// among them.
    ///
    /// # Errors
    /// [`StoreError`] if the checkpoint cannot be read.
    pub fn scan_rows(&self, entity: &EntityKey, after: Option<&[u8]>, limit: usize) -> Result<RowPage, StoreError> {
        let (mut page, mut count) = (RowPage::default(), 0);
        if self.checkpoint_empty || limit == 0 {
            return Ok(page);
        }
        let held = self.find(entity.as_bytes()).map(|index| &self.entities[index].fields);
        let prefix = row_key(self.shard, entity.as_bytes(), b"");
        let from = row_key(self.shard, entity.as_bytes(), &low_bound(b"", after));
        let to = prefix_end(&prefix);
        let mut damaged = None;
        self.checkpoint.scan(Bound::Included(&from), upper(to.as_deref()), &mut |row, encoded| {
            let name = row.get(prefix.len()..).unwrap_or_default();
            let current = match held.map_or(Held::Missing, |fields| fields.held(name)) {
                Held::Live(newer) => Some(newer),
                Held::Missing => Some(encoded),
                Held::Dead => None,
            };
            match current.map(Value::from_encoded) {
                Some(Some(value)) => page.fields.push((name.into(), value)),
                Some(None) => damaged = Some(damaged_row(row)),
                None => {}
            }
            count += 1;
            if count < limit {
                return ControlFlow::Continue(());
            }
            page.last = Some(name.into());
            ControlFlow::Break(())
        })?;
        damaged.map_or(Ok(page), Err)
    }

    /// Up to `limit` entities in order that have a field. Their key starts with `prefix` (see
    /// [`EntityKey::scan_prefix`]) and comes after `after`.
    ///
    /// # Errors
    /// [`StoreError`] if the checkpoint had to be read and could not be.
    pub fn scan_entities(
        &mut self,
        prefix: &[u8],
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<Vec<EntityKey>, StoreError> {
        self.scan_entities_seen(prefix, after, limit).map(|(found, _)| found)
    }

    /// As [`Store::scan_entities`], with the LSN that a reply must wait for if it depends on the answer. That is the
    /// LSN of the newest write, deletions included, to any entity in the range looked at.
    ///
    /// # Errors
    /// As for [`Store::scan_entities`].
    pub fn scan_entities_seen(
        &mut self,
        prefix: &[u8],
        after: Option<&EntityKey>,
        limit: usize,
    ) -> Result<(Vec<EntityKey>, Lsn), StoreError> {
        // Not the successor of the key itself: the rows of `after` begin with it.
        let from = after.and_then(|after| prefix_end(after.as_bytes()));
        self.scan_entities_from(prefix, from.as_deref().unwrap_or_default(), limit)
    }

    /// As [`Store::scan_entities_seen`], from the first entity on whose encoded key is not before `from`. Whoever passes
    /// over many entities with a common beginning gives what comes behind that: one seek leads there.
    ///
    /// # Errors
    /// As for [`Store::scan_entities`].
    pub fn scan_entities_from(
        &mut self,
        prefix: &[u8],
        from: &[u8],
        limit: usize,
    ) -> Result<(Vec<EntityKey>, Lsn), StoreError> {
        if limit == 0 {
            return Ok((Vec::new(), Lsn::ZERO));
        }
        let low = if from > prefix { from.to_vec() } else { prefix.to_vec() };
        let high = prefix_end(prefix);
        let mut written: Vec<(EntityKey, Lsn, bool)> = Vec::new();
        let mut live = 0;
        let below_high = |key: &[u8]| high.as_deref().is_none_or(|high| key < high);
        let key_of = |index: u32| &*self.entities[index].key;
        for index in self.dirty.from(&low, key_of).take_while(|index| below_high(key_of(*index))) {
            let Some((key, _)) = EntityKey::split_from(key_of(index)) else { continue };
            let is_live = self.is_live(index)?;
            live += usize::from(is_live);
            written.push((key, self.entities[index].last_write, is_live));
            if live >= limit {
                break;
            }
        }
        // Entities behind the last one that was asked for cannot be on the page.
        let high = match written.last() {
            Some((last, ..)) if live >= limit => Some(last.as_bytes().to_vec()),
            _ => high,
        };
        let clean = if self.checkpoint_empty { Vec::new() } else { self.clean_entities(&low, high.as_deref(), limit)? };
        Ok(merge_entities(clean, written, limit))
    }

    /// Up to `limit` entities with a row, except the dirty ones, whose rows do not decide.
    fn clean_entities(&self, low: &[u8], high: Option<&[u8]>, limit: usize) -> Result<Vec<EntityKey>, StoreError> {
        let mut found: Vec<EntityKey> = Vec::new();
        let mut from = row_key(self.shard, low, b"");
        let to = match high {
            Some(high) => Some(row_key(self.shard, high, b"")),
            None => prefix_end(&self.shard.0.to_be_bytes()),
        };
        loop {
            let mut current: Option<EntityKey> = None;
            let mut steps = 0;
            let mut seek = false;
            let mut damaged = None;
            self.checkpoint.scan(Bound::Included(&from), upper(to.as_deref()), &mut |row, _| {
                let key = row.get(SHARD_BYTES..).unwrap_or_default();
                if current.as_ref().is_some_and(|current| key.starts_with(current.as_bytes())) {
                    steps += 1;
                    seek = steps >= STEPS_BEFORE_SEEK;
                    return if seek { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
                }
                let Some(entity) = entity_of(row) else {
                    damaged = Some(damaged_row(row));
                    return ControlFlow::Break(());
                };
                if self.entity_lsn(&entity) == Lsn::ZERO {
                    found.push(entity.clone());
                }
                (current, steps) = (Some(entity), 0);
                if found.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if let Some(error) = damaged {
                return Err(error);
            }
            match (seek, &current) {
                (true, Some(current)) => match prefix_end(&row_key(self.shard, current.as_bytes(), b"")) {
                    Some(next) => from = next,
                    None => return Ok(found),
                },
                _ => return Ok(found),
            }
        }
    }

    /// Whether a dirty entity has any field.
    fn is_live(&self, index: u32) -> Result<bool, StoreError> {
        let entity = &self.entities[index];
        if entity.fields.has_live() {
            return Ok(true);
        }
        match entity.residency {
            Residency::Complete => Ok(false),
            Residency::Partial | Residency::Unknown => {
                Ok(!self.read_rows(index, b"", None, Bounds { rows: 1, bytes: usize::MAX })?.found.is_empty())
            }
        }
    }
}

/// The first `limit` of the clean entities and the live ones of those written, and the newest write up to the last of
/// them.
fn merge_entities(clean: Vec<EntityKey>, written: Vec<(EntityKey, Lsn, bool)>, limit: usize) -> (Vec<EntityKey>, Lsn) {
    let (mut found, mut seen) = (Vec::new(), Lsn::ZERO);
    let mut clean = clean.into_iter().peekable();
    let mut written = written.into_iter().peekable();
    while found.len() < limit {
        let take_clean = match (clean.peek(), written.peek()) {
            (Some(clean), Some((written, ..))) => clean < written,
            (clean, _) => clean.is_some(),
        };
        if take_clean {
            found.extend(clean.next());
            continue;
        }
        let Some((key, lsn, is_live)) = written.next() else { break };
        seen = seen.max(lsn);
        if is_live {
            found.push(key);
        }
    }
    (found, seen)
}

fn low_bound(prefix: &[u8], after: Option<&[u8]>) -> Vec<u8> {
    match after {
        Some(after) if after >= prefix => successor(after),
        _ => prefix.to_vec(),
    }
}

/// The first `limit` of two sorted streams without common names.
pub(crate) fn merge<'a>(
    rows: Vec<FieldRow>,
    live: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    bounds: Bounds,
) -> (Vec<FieldRow>, bool) {
    let mut rows = rows.into_iter().peekable();
    let mut live = live.take(bounds.rows).peekable();
    let mut merged: Vec<FieldRow> = Vec::new();
    let mut bytes = 0;
    while merged.len() < bounds.rows && bytes <= bounds.bytes {
        let take_row = match (rows.peek(), live.peek()) {
            (Some((row, _)), Some((name, _))) => &**row < *name,
            (row, _) => row.is_some(),
        };
        let next = if take_row {
            rows.next()
        } else {
            live.next().and_then(|(name, encoded)| Some((name.into(), Value::from_encoded(encoded)?)))
        };
        let Some((name, value)) = next else { break };
        bytes += row_bytes(&name, value.encoded());
        merged.push((name, value));
    }
    (merged, bytes > bounds.bytes)
}

/// Remembers that nothing lies from `low` to `end`. A scan that started inside the known hole widens it. Another scan
/// replaces it only if it had much to step over. Otherwise a reader that pages through the entity would displace what
/// the reader of the head needs.
fn remember_hole(fields: &mut Fields, low: Vec<u8>, end: Option<Box<[u8]>>, hidden: usize) {
    let Fields::Many(many) = fields else { return };
    match &mut many.hole {
        Some(hole) if hole.contains(&low) => {
            // The hole is only ever widened, because a limited prefix may end before the hole does.
            let wider = match (&hole.end, &end) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(old), Some(new)) => new > old,
            };
            if wider {
                hole.end = end;
            }
        }
        Some(hole) if hole.end.as_deref() == Some(&low) && hidden > 0 => hole.end = end,
        Some(_) if hidden < STEPS_WORTH_A_HOLE => {}
        _ => many.set_hole(low.into(), end),
    }
}
