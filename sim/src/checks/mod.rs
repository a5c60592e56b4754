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

use crate::ledger::Ledger;
use crate::node::Node;
use crate::rig::APP;

/// The input of the checkers.
pub struct View<'a> {
    pub ledger: &'a Ledger,
    pub node: &'a mut Node,
    pub entries: &'a Entries,
    pub shard_count: u16,
    /// Nothing is under way any more: every message has arrived.
    pub is_final: bool,
    /// Nothing that is due can be overdue: every shard has just been started.
    pub is_started: bool,
    /// Prepared writes of transactions that are committed, which shards have not applied yet.
    committed: BTreeMap<(EntityKey, Vec<u8>), Option<Value>>,
}

impl<'a> View<'a> {
    /// Looks at a node.
    pub fn new(ledger: &'a Ledger, node: &'a mut Node, entries: &'a Entries, shard_count: u16, is_final: bool) -> Self {
        let mut committed = BTreeMap::new();
        let mut rows = |shard: u16, entity: &'static str| {
            let entity = EntityKey::internal(entity, b"");
            node.store(ShardId(shard)).scan_fields(&entity, b"", None, usize::MAX).expect("the store reads")
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
        Self { ledger, node, entries, shard_count, is_final, is_started: true, committed }
    }
}

impl View<'_> {
    /// The rows of a bookkeeping entity of a shard.
    pub fn rows(&mut self, shard: ShardId, entity: &'static str) -> Vec<(Box<[u8]>, Value)> {
        let entity = EntityKey::internal(entity, b"");
        self.node.store(shard).scan_fields(&entity, b"", None, usize::MAX).expect("the store reads")
    }

    /// A number in the state, or zero where there is none.
    pub fn number(&mut self, service: &str, key: &str, field: &str) -> i64 {
        let name = |text: &str| Name::new(text).expect("a name");
        let entity = EntityKey::new(&name(APP), &name(service), key.as_bytes());
        let shard: ShardId = shard_of_key(key.as_bytes(), self.shard_count);
        let committed = self.committed.get(&(entity.clone(), field.as_bytes().to_vec())).cloned();
        let found = committed.unwrap_or_else(|| {
            self.node.store(shard).get(&entity, field.as_bytes()).expect("the store reads").cloned()
        });
        found.and_then(|value| serde_json::from_slice(value.content()).ok()).unwrap_or(0)
    }
}

type Check = fn(&mut View<'_>) -> Result<(), String>;

/// Checks everything that must hold whenever only timers and messages are under way.
///
/// # Errors
/// The property that does not hold, and where.
pub fn check_all(view: &mut View<'_>) -> Result<(), String> {
    let checks: [(&str, Check); 8] = [
        ("the state is what its entries make", replay::check),
        ("acknowledged effects are all there, refused ones are not", acknowledged::check),
        ("operations take effect as a whole", atomic::check),
        ("counters are the sum of their increments", counters::check),
        ("no money is made or lost", bank::check),
        ("messages arrive exactly once", messages::check),
        ("schedules are called at their times, and once", schedules::check),
        ("workflows do each step once, and end", workflows::check),
    ];
    for (property, check) in checks {
        check(view).map_err(|what| format!("{property}: {what}"))?;
    }
    Ok(())
}
