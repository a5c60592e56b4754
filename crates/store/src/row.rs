//! Row keys of the checkpoint: `shard (2 bytes, big-endian) ‖ encoded entity key ‖ field`.
//!
//! No entity key is a prefix of another. So a row key is unambiguous, and row order is the order of (shard, entity,
//! field).

use millrace_base::{EntityKey, ShardId, UnixMillis, Value, ValueKind};

use crate::StoreError;

pub(crate) const SHARD_BYTES: usize = 2;

/// The row of `field` of `entity`. With an empty field: the first bytes of all its rows.
pub(crate) fn row_key(shard: ShardId, entity: &[u8], field: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(SHARD_BYTES + entity.len() + field.len());
    row.extend_from_slice(&shard.0.to_be_bytes());
    row.extend_from_slice(entity);
    row.extend_from_slice(field);
    row
}

/// The entity of the row that says how late it was in the shard when it was flushed. No store holds it in memory: a flush
/// writes it, and opening a store reads it. As a row it goes along with snapshots and backups.
pub(crate) fn time_entity() -> EntityKey {
    EntityKey::internal("clock", b"")
}

/// Its only field.
pub(crate) const TIME_FIELD: &[u8] = b"time";

/// The row's key.
pub(crate) fn time_row(shard: ShardId) -> Vec<u8> {
    row_key(shard, time_entity().as_bytes(), TIME_FIELD)
}

/// The row's value.
pub(crate) fn encode_time(time: UnixMillis) -> Value {
    Value::new(ValueKind::Bytes, &time.0.to_le_bytes())
}

/// Reads it back.
///
/// # Errors
/// [`StoreError::Corrupt`] for other bytes.
pub(crate) fn decode_time(value: &[u8]) -> Result<UnixMillis, StoreError> {
    let value = Value::from_encoded(value);
    let bytes = value.as_ref().and_then(|value| <[u8; 8]>::try_from(value.content()).ok());
    let damaged = || StoreError::Corrupt("the checkpoint row of a shard's time is not 8 bytes".to_owned());
    bytes.map(|bytes| UnixMillis(u64::from_le_bytes(bytes))).ok_or_else(damaged)
}

/// The least byte string above every string that starts with `prefix`; `None` if there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The least byte string above `bytes`.
pub(crate) fn successor(bytes: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(bytes.len() + 1);
    next.extend_from_slice(bytes);
    next.push(0);
    next
}

/// The encoded entity key at the start of `row`.
pub(crate) fn entity_of(row: &[u8]) -> Option<EntityKey> {
    EntityKey::split_from(row.get(SHARD_BYTES..)?).map(|(entity, _)| entity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_tight() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xFF\xFF"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xFF"), None);
        assert_eq!(prefix_end(b""), None);
    }

    #[test]
    fn rows_sort_by_shard_then_entity_then_field() {
        let entity = |key: &[u8]| EntityKey::internal("e", key);
        let rows = [
            row_key(ShardId(1), entity(b"a").as_bytes(), b"z"),
            row_key(ShardId(1), entity(b"ab").as_bytes(), b""),
            row_key(ShardId(1), entity(b"ab").as_bytes(), b"a"),
            row_key(ShardId(256), entity(b"a").as_bytes(), b""),
        ];
        assert!(rows.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(entity_of(&rows[2]), Some(entity(b"ab")));
    }
}
