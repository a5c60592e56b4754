//! The entities of a service in a shard, as engines of built-in apps ask for them.

use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;

use millrace_base::{EntityKey, Lsn, Name};
use millrace_func::{EntityRows, EntityScan, EntityVisitor, ScanRequest, Visit};
use millrace_store::{EntityRange, FieldRow, StoreError, prefix_end};

use super::host::{OwnShard, Row, merged_scan};
use super::transaction::Transaction;

/// Which keys are asked for.
pub(super) struct KeyRange<'a> {
    pub app: &'a Name,
    pub service: &'a Name,
    pub prefix: &'a [u8],
    pub after: Option<&'a [u8]>,
    pub limit: usize,
}

/// The keys that `Host::keys` gives, and the newest entry they depend on.
pub(crate) fn entity_keys(
    own: &mut OwnShard<'_>,
    transaction: &Transaction,
    range: &KeyRange<'_>,
) -> Result<(Vec<Vec<u8>>, Lsn), StoreError> {
    let prefix = EntityKey::scan_prefix(range.app.as_str(), range.service.as_str(), range.prefix);
    let from = match range.after {
        None => Vec::new(),
        // The rows of an entity, and nothing else, begin with its key. Nothing is behind a key of 0xFF bytes only, and
        // no key is one: it ends with its terminator.
        Some(after) => {
            let after = EntityKey::new(range.app, range.service, after);
            prefix_end(after.as_bytes()).unwrap_or_else(|| after.as_bytes().to_vec())
        }
    };
    let is_wanted = |entity: &EntityKey| entity.as_bytes().starts_with(&prefix) && entity.as_bytes() >= &from[..];
    let mut known: BTreeMap<EntityKey, bool> = BTreeMap::new();
    // What is locked for a commit this shard has yet to hear of may be committed, and answered.
    for entity in own.participations.undecided_writes().filter(|entity| is_wanted(entity)) {
        known.insert(entity.clone(), true);
    }
    let written = transaction.touched.iter().filter(|touched| !touched.writes.is_empty() && is_wanted(&touched.entity));
    for touched in written {
        let any = ScanRequest { limit: 1, ..ScanRequest::default() };
        let (rows, _) = merged_scan(own.store, touched, &any, 1)?;
        known.insert(touched.entity.clone(), !rows.is_empty());
    }
    // Each entity that this transaction has emptied hides one that the store gives.
    let emptied = known.values().filter(|is_there| !**is_there).count();
    let asked = range.limit + emptied;
    let (stored, seen) = own.store.scan_entities_from(&prefix, &from, asked)?;
    for entity in stored {
        known.entry(entity).or_insert(true);
    }
    let keys = known.into_iter().filter(|(_, is_there)| *is_there).map(|(entity, _)| entity.parts().key);
    Ok((keys.take(range.limit).collect(), seen))
}

/// What `Host::visit_entities` gives to `visit`, and the newest entry it depends on.
pub(crate) fn visit_rows(
    own: &mut OwnShard<'_>,
    transaction: &Transaction,
    (app, service): (&Name, &Name),
    scan: &EntityScan,
    visit: &mut EntityVisitor<'_>,
) -> Result<Lsn, StoreError> {
    let encoded = |key: &[u8]| EntityKey::scan_prefix(app.as_str(), service.as_str(), key);
    let (prefix, from) = (encoded(&scan.prefix), encoded(&scan.from));
    let first = EntityKey::new(app, service, &scan.from);
    let range = EntityRange {
        prefix: &prefix,
        from: &from,
        behind: (!scan.behind_field.is_empty()).then_some((&first, &scan.behind_field)),
        field: &scan.field,
        is_prefix: scan.is_prefix,
        fields_limit: scan.fields_limit,
    };
    let written = written_rows(own, transaction, &range)?;
    let mut merge = Merge { written: written.into_iter().peekable(), wanted_from: from.clone(), visit };
    let mut is_over = false;
    let seen = own.store.visit_entities(&range, &mut |entity, fields| {
        let next = merge.stored(entity, fields, encoded);
        is_over = next == millrace_store::Visit::Stop;
        next
    })?;
    if !is_over {
        merge.written_before(None, encoded);
    }
    Ok(seen)
}

/// The rows of entities that the transaction has written itself. One that has none left hides what is stored.
fn written_rows(
    own: &mut OwnShard<'_>,
    transaction: &Transaction,
    range: &EntityRange<'_>,
) -> Result<BTreeMap<EntityKey, Vec<Row>>, StoreError> {
    let is_in_range = |key: &EntityKey| key.as_bytes().starts_with(range.prefix) && key.as_bytes() >= range.from;
    let mut written = BTreeMap::new();
    for touched in transaction.touched.iter().filter(|touched| !touched.writes.is_empty()) {
        if !is_in_range(&touched.entity) {
            continue;
        }
        let after = range.behind.filter(|(entity, _)| **entity == touched.entity).map(|(_, field)| field.to_vec());
        let request = ScanRequest { prefix: range.field.to_vec(), after, limit: range.fields_limit };
        let (mut rows, _) = merged_scan(own.store, touched, &request, range.fields_limit)?;
        if !range.is_prefix {
            rows.retain(|(field, _)| field == range.field);
        }
        written.insert(touched.entity.clone(), rows);
    }
    Ok(written)
}

/// Puts what a transaction has written over what is stored.
struct Merge<'v> {
    written: Peekable<btree_map::IntoIter<EntityKey, Vec<Row>>>,
    wanted_from: Vec<u8>,
    visit: &'v mut EntityVisitor<'v>,
}

impl Merge<'_> {
    /// Takes a stored entity.
    fn stored(
        &mut self,
        entity: EntityKey,
        fields: Vec<FieldRow>,
        encoded: impl Fn(&[u8]) -> Vec<u8>,
    ) -> millrace_store::Visit {
        if self.written_before(Some(&entity), &encoded) {
            return millrace_store::Visit::Stop;
        }
        let is_written = self.written.next_if(|(written, _)| *written == entity);
        let rows = match is_written {
            Some((_, rows)) => rows,
            None => fields.into_iter().map(|(name, value)| (name.into_vec(), value)).collect(),
        };
        if self.give(&entity, rows, &encoded) {
            return millrace_store::Visit::Stop;
        }
        if self.wanted_from.as_slice() > entity.as_bytes() {
            return millrace_store::Visit::Seek(self.wanted_from.clone());
        }
        millrace_store::Visit::Next
    }

    /// Gives what was written before this entity, or all. Says whether that is enough.
    fn written_before(&mut self, entity: Option<&EntityKey>, encoded: impl Fn(&[u8]) -> Vec<u8>) -> bool {
        while let Some((written, rows)) =
            self.written.next_if(|(written, _)| entity.is_none_or(|entity| written < entity))
        {
            if self.give(&written, rows, &encoded) {
                return true;
            }
        }
        false
    }

    fn give(&mut self, entity: &EntityKey, fields: Vec<Row>, encoded: impl Fn(&[u8]) -> Vec<u8>) -> bool {
        if fields.is_empty() || *entity.as_bytes() < *self.wanted_from {
            return false;
        }
        match (self.visit)(EntityRows { key: entity.parts().key, fields }) {
            Visit::Next => false,
            Visit::Seek(to) => {
                self.wanted_from = encoded(&to).max(std::mem::take(&mut self.wanted_from));
                false
            }
            Visit::Stop => true,
        }
    }
}
