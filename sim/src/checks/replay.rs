//! The state of every shard is what its entries make: all entries up to its LSN, in order, and nothing else. That LSN
//! is not before any LSN that counted as durable.

use std::collections::BTreeMap;

use millrace_base::{EntityKey, Lsn, ShardId, Value};

use super::View;
use crate::core::LoggedEntry;
use crate::node::Node;

/// Every entry that the shards made and that no crash has undone.
#[derive(Default)]
pub struct Entries {
    entries: BTreeMap<ShardId, Vec<LoggedEntry>>,
    durable: BTreeMap<ShardId, Lsn>,
}

impl Entries {
    /// Notes an entry that a shard made.
    ///
    /// # Errors
    /// When the entry is not the next one, or of an earlier time than the one before.
    pub fn made(&mut self, entry: LoggedEntry) -> Result<(), String> {
        let entries = self.entries.entry(entry.shard).or_default();
        if entry.lsn.0 != entries.len() as u64 + 1 {
            return Err(format!("shard {} made LSN {} after {}", entry.shard, entry.lsn, entries.len()));
        }
        // The machine's clock is set back now and then.
        if let Some(last) = entries.last().filter(|last| last.time > entry.time) {
            let (shard, lsn) = (entry.shard, entry.lsn);
            return Err(format!("shard {shard} made LSN {lsn} of {:?} after one of {:?}", entry.time, last.time));
        }
        entries.push(entry);
        Ok(())
    }

    /// Notes what counts as durable.
    pub fn note_durable(&mut self, shard: ShardId, lsn: Lsn) {
        let durable = self.durable.entry(shard).or_default();
        *durable = lsn.max(*durable);
    }

    /// Notes that a shard was lost alone, and what is left of it.
    ///
    /// # Errors
    /// When it lost something durable.
    pub fn lost_alone(&mut self, shard: ShardId, lsn: Lsn) -> Result<(), String> {
        let entries = self.entries.entry(shard).or_default();
        let durable = self.durable.get(&shard).copied().unwrap_or_default();
        if lsn < durable {
            return Err(format!("shard {shard} was lost alone, and LSN {lsn} is left of {durable} that was durable"));
        }
        entries.truncate(usize::try_from(lsn.0).unwrap_or(usize::MAX));
        Ok(())
    }

    /// Notes that a node has recovered. What it lost never happened.
    ///
    /// # Errors
    /// When it lost something durable, or has more than was ever made.
    pub fn recovered(&mut self, node: &Node, shard_count: u16) -> Result<(), String> {
        for shard in (0..shard_count).map(ShardId) {
            let lsn = node.recovered_lsn(shard);
            let entries = self.entries.entry(shard).or_default();
            let durable = self.durable.get(&shard).copied().unwrap_or_default();
            if lsn < durable {
                return Err(format!("shard {shard} came back at LSN {lsn}, {durable} was durable"));
            }
            let length = usize::try_from(lsn.0).unwrap_or(usize::MAX);
            if length > entries.len() {
                return Err(format!("shard {shard} came back at LSN {lsn}, it made {} entries only", entries.len()));
            }
            entries.truncate(length);
        }
        Ok(())
    }

    /// The entries of a shard, in order.
    pub fn of(&self, shard: ShardId) -> impl Iterator<Item = &LoggedEntry> {
        self.entries.get(&shard).into_iter().flatten()
    }

    fn state(&self, shard: ShardId) -> BTreeMap<(EntityKey, Box<[u8]>), Value> {
        let mut state = BTreeMap::new();
        for write in self.of(shard).flat_map(|entry| &entry.writes) {
            let row = (write.entity.clone(), write.field.clone());
            match &write.value {
                Some(value) => drop(state.insert(row, value.clone())),
                None => drop(state.remove(&row)),
            }
        }
        state
    }
}

pub fn check(view: &mut View<'_, Node>, entries: &Entries) -> Result<(), String> {
    for shard in (0..view.shard_count).map(ShardId) {
        let expected = entries.state(shard);
        let store = view.states.store(shard);
        let mut found = BTreeMap::new();
        let entities = store.scan_entities(b"", None, usize::MAX).map_err(|error| error.to_string())?;
        // A flush writes the shard's time, and no entry does.
        let is_made = |entity: &EntityKey| !entity.is_internal() || entity.parts().service != "clock";
        for entity in entities.into_iter().filter(is_made) {
            for (field, value) in store.scan_fields(&entity, b"", None, 100_000).map_err(|error| error.to_string())? {
                found.insert((entity.clone(), field), value);
            }
        }
        if found != expected {
            let missing = expected.iter().find(|(row, value)| found.get(*row) != Some(value));
            let extra = found.iter().find(|(row, _)| !expected.contains_key(*row));
            return Err(format!("shard {shard}: expected and not there {missing:?}; there and not expected {extra:?}"));
        }
    }
    Ok(())
}
