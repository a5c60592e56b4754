//! Queries that are answered within the input that asks, without a transaction: those that need
//! nothing but fields of their own entity. They keep what a transaction that only reads keeps: they
//! see committed state, wait for the decision on what is prepared, and never tell anything that a
//! crash could still take back.

use millrace_base::{EntityKey, Error, UnixMillis, Value};
use millrace_func::{Answer, HandlerId, HandlerKind, Reader};
use millrace_store::Store;

use crate::host::{check_key, store_failed};
use crate::shard::Shard;
use crate::world::World;

/// The committed fields of one entity.
struct Committed<'a> {
    store: &'a mut Store,
    entity: &'a EntityKey,
    now: UnixMillis,
}

impl Reader for Committed<'_> {
    fn now(&self) -> UnixMillis {
        self.now
    }

    fn get(&mut self, field: &[u8]) -> Result<Option<&Value>, Error> {
        self.store.get(self.entity, field).map_err(|error| store_failed(&error))
    }
}

impl Shard {
    /// Answers a query without an idempotency key at once. `None` where that takes more than a look,
    /// or would have to wait or to be refused: hand it to [`Shard::invoke`] then.
    pub fn read_at_once(
        &mut self,
        query: HandlerId,
        key: &[u8],
        input: &[u8],
        world: &mut World<'_>,
    ) -> Option<Result<Answer, Error>> {
        let (loaded, service, kind) = world.catalog.of_handler(query)?;
        if self.is_stopped() || kind != HandlerKind::Query || check_key(key).is_err() {
            return None;
        }
        if input.len() > loaded.limits.input_bytes {
            return None;
        }
        let entity = EntityKey::new(&loaded.app, &service.name, key);
        // What is prepared may have been seen committed elsewhere.
        if self.locks.is_prepared(&entity) {
            return None;
        }
        // The reply would tell what a crash could take back.
        if self.durable != self.store.lsn() && self.store.entity_lsn(&entity) > self.durable {
            return None;
        }
        let mut reader = Committed { store: &mut self.store, entity: &entity, now: world.now };
        world.engine.answer(query, input, &mut reader)
    }
}
