//! The keys of a service in a shard, as the engine of records asks for them.

use std::collections::BTreeMap;

use millrace_base::{EntityKey, Lsn, Name, Value};
use millrace_func::{EntityPage, EntityRows, EntityScan, ScanRequest};
use millrace_store::{StoreError, prefix_end};

use super::host::{OwnShard, merged_scan};
use super::transaction::{Touched, Transaction};

/// Which keys are asked for.
pub(crate) struct KeyRange<'a> {
    pub app: &'a Name,
    pub service: &'a Name,
    pub prefix: &'a [u8],
    pub from: From<'a>,
    pub limit: usize,
}

/// Where a range begins.
#[derive(Clone, Copy)]
pub(crate) enum From<'a> {
    /// Behind this key, or with the first.
    After(Option<&'a [u8]>),
    /// With this key, or the first behind it.
    At(&'a [u8]),
}

/// The keys that `Host::keys` gives, and the newest entry they depend on.
pub(crate) fn entity_keys(
    own: &mut OwnShard<'_>,
    transaction: &Transaction,
    range: &KeyRange<'_>,
) -> Result<(Vec<Vec<u8>>, Lsn), StoreError> {
    let prefix = EntityKey::scan_prefix(range.app.as_str(), range.service.as_str(), range.prefix);
    let from = match range.from {
        From::After(None) => Vec::new(),
        // The rows of an entity, and nothing else, begin with its key. Nothing is behind a key of 0xFF bytes only, and
        // no key is one: it ends with its terminator.
        From::After(Some(after)) => {
            let after = EntityKey::new(range.app, range.service, after);
            prefix_end(after.as_bytes()).unwrap_or_else(|| after.as_bytes().to_vec())
        }
        From::At(key) => EntityKey::scan_prefix(range.app.as_str(), range.service.as_str(), key),
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

/// What `Host::entities` gives, and the newest entry it depends on. It looks at each entity that has any field, so an
/// entity with no field that is asked for counts among those looked at, too.
pub(crate) fn entity_rows(
    own: &mut OwnShard<'_>,
    transaction: &Transaction,
    (app, service): (&Name, &Name),
    scan: &EntityScan,
) -> Result<(EntityPage, Lsn), StoreError> {
    let range = KeyRange { app, service, prefix: &scan.prefix, from: From::At(&scan.from), limit: scan.limit };
    let (keys, mut seen) = entity_keys(own, transaction, &range)?;
    let mut page = EntityPage { next: (keys.len() >= scan.limit).then(Vec::new), ..EntityPage::default() };
    let mut bytes = 0;
    for key in keys {
        if bytes > scan.max_bytes {
            page.next = Some(key);
            return Ok((page, seen));
        }
        let entity = EntityKey::new(app, service, &key);
        seen = seen.max(own.store.entity_lsn(&entity));
        let fields = rows_of(own, transaction, entity, scan)?;
        bytes += key.len() + fields.iter().map(|(name, value)| name.len() + value.content().len()).sum::<usize>();
        if let Some(next) = &mut page.next {
            // The key itself would come again; no key is between it and itself with a zero byte behind.
            next.clone_from(&key);
            next.push(0);
        }
        if !fields.is_empty() {
            page.entities.push(EntityRows { key, fields });
        }
    }
    Ok((page, seen))
}

fn rows_of(
    own: &mut OwnShard<'_>,
    transaction: &Transaction,
    entity: EntityKey,
    scan: &EntityScan,
) -> Result<Vec<(Vec<u8>, Value)>, StoreError> {
    let untouched;
    let touched = match transaction.touched.iter().find(|touched| touched.entity == entity) {
        Some(touched) => touched,
        None => {
            untouched = Touched { entity, is_exclusive: false, held_alone: None, changes: 0, writes: BTreeMap::new() };
            &untouched
        }
    };
    if scan.is_prefix {
        let request = ScanRequest { prefix: scan.field.clone(), after: None, limit: scan.fields_limit };
        return merged_scan(own.store, touched, &request, scan.fields_limit).map(|(rows, _)| rows);
    }
    let value = match touched.writes.get(&scan.field[..]) {
        Some(buffered) => buffered.clone(),
        None => own.store.get(&touched.entity, &scan.field)?.cloned(),
    };
    Ok(value.map(|value| (scan.field.clone(), value)).into_iter().collect())
}
