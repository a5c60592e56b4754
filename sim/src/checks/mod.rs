//! What the state must be: one property a file, each a function of what clients know and what the state is. `judge`
//! decides whether the replies to clients fit together.

mod acknowledged;
mod atomic;
mod bank;
mod counters;
pub mod damage;
mod messages;
mod replay;
pub mod schedules;
mod workflows;

pub use replay::Entries;

use std::collections::{BTreeMap, BTreeSet};

use millrace_base::{EntityKey, Name, ShardId, Value, shard_of_key};
use millrace_format::Prepared;
use millrace_store::Store;

use crate::ledger::Ledger;
use crate::node::Node;
use crate::rig::APP;

/// The states of all shards.
pub trait States {
    /// The state of a shard.
    ///
    /// # Panics
    /// When nobody has it.
    fn store(&mut self, shard: ShardId) -> &mut Store;
}

impl States for Node {
    fn store(&mut self, shard: ShardId) -> &mut Store {
        Node::store(self, shard)
    }
}

/// The input of the checkers.
pub struct View<'a, S> {
    pub ledger: &'a Ledger,
    pub states: &'a mut S,
    pub shard_count: u16,
    /// Nothing is under way any more: every message has arrived.
    pub is_final: bool,
    /// Prepared writes of transactions that are committed, which shards have not applied yet.
    committed: BTreeMap<(EntityKey, Vec<u8>), Option<Value>>,
}

impl<'a, S: States> View<'a, S> {
    /// Looks at all shards.
    pub fn new(ledger: &'a Ledger, states: &'a mut S, shard_count: u16, is_final: bool) -> Self {
        let mut committed = BTreeMap::new();
        let mut rows = |shard: u16, entity: &'static str| {
            let entity = EntityKey::internal(entity, b"");
            states.store(ShardId(shard)).scan_fields(&entity, b"", None, usize::MAX).expect("the store reads")
        };
        let decided: BTreeSet<Box<[u8]>> =
            (0..shard_count).flat_map(|shard| rows(shard, "decision")).map(|(id, _)| id).collect();
        for (id, value) in (0..shard_count).flat_map(|shard| rows(shard, "prepared")).collect::<Vec<_>>() {
            if decided.contains(&id) {
                let part = Prepared::decode(value.content()).expect("rows can be read");
                let writes = part.writes.into_iter();
                committed.extend(writes.map(|write| ((write.entity, write.field.into_vec()), write.value)));
            }
        }
        Self { ledger, states, shard_count, is_final, committed }
    }
}

impl<S: States> View<'_, S> {
    /// The rows of a bookkeeping entity of a shard.
    pub fn rows(&mut self, shard: ShardId, entity: &'static str) -> Vec<(Box<[u8]>, Value)> {
        let entity = EntityKey::internal(entity, b"");
        self.states.store(shard).scan_fields(&entity, b"", None, usize::MAX).expect("the store reads")
    }

    /// A number in the state, or zero where there is none.
    pub fn number(&mut self, service: &str, key: &str, field: &str) -> i64 {
        let name = |text: &str| Name::new(text).expect("a name");
        let entity = EntityKey::new(&name(APP), &name(service), key.as_bytes());
        let shard: ShardId = shard_of_key(key.as_bytes(), self.shard_count);
        let committed = self.committed.get(&(entity.clone(), field.as_bytes().to_vec())).cloned();
        let found = committed.unwrap_or_else(|| {
            self.states.store(shard).get(&entity, field.as_bytes()).expect("the store reads").cloned()
        });
        found.and_then(|value| serde_json::from_slice(value.content()).ok()).unwrap_or(0)
    }
}

type Check<S> = fn(&mut View<'_, S>) -> Result<(), String>;

/// Checks what the operations of clients must have made of the state, whenever only timers and messages are under way.
///
/// # Errors
/// The property that does not hold, and where.
pub fn check_operations<S: States>(view: &mut View<'_, S>) -> Result<(), String> {
    let checks: [(&str, Check<S>); 6] = [
        ("acknowledged effects are all there, refused ones are not", acknowledged::check),
        ("operations take effect as a whole", atomic::check),
        ("counters are the sum of their increments", counters::check),
        ("no money is made or lost", bank::check),
        ("messages arrive exactly once", messages::check),
        ("workflows do each step once, and end", workflows::check),
    ];
    for (property, check) in checks {
        check(view).map_err(|what| format!("{property}: {what}"))?;
    }
    Ok(())
}

/// Checks everything that must hold at a node. `is_started`: every shard has just been started.
///
/// # Errors
/// The property that does not hold, and where.
pub fn check_all(view: &mut View<'_, Node>, entries: &Entries, is_started: bool) -> Result<(), String> {
    replay::check(view, entries).map_err(|what| format!("the state is what its entries make: {what}"))?;
    check_operations(view)?;
    let schedules = schedules::check(view, entries, is_started);
    schedules.map_err(|what| format!("schedules are called at their times, and once: {what}"))
}
