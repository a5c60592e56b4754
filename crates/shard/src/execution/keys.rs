//! The keys of a service in a shard, as the engine of records asks for them.

use std::collections::BTreeMap;

use millrace_base::{EntityKey, Lsn, Name};
use millrace_func::ScanRequest;
use millrace_store::StoreError;

use super::host::{OwnShard, merged_scan};
use super::transaction::Transaction;

/// Which keys are asked for.
pub(crate) struct KeyRange<'a> {
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
    let after = range.after.map(|after| EntityKey::new(range.app, range.service, after));
    let is_wanted = |entity: &EntityKey| {
        entity.as_bytes().starts_with(&prefix) && after.as_ref().is_none_or(|after| entity > after)
    };
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
    let (stored, seen) = own.store.scan_entities_seen(&prefix, after.as_ref(), asked)?;
    for entity in stored {
        known.entry(entity).or_insert(true);
    }
    let keys = known.into_iter().filter(|(_, is_there)| *is_there).map(|(entity, _)| entity.parts().key);
    Ok((keys.take(range.limit).collect(), seen))
}
