//! Reads committed state, without a transaction.
//!
//! They keep what a transaction that only reads keeps: they see committed state, wait for the
//! decision on what is prepared, and never tell anything that a crash could still take back.

use millrace_api::StateFields;
use millrace_base::{EntityKey, Error, ErrorCode, Lsn, UnixMillis, Value, limits};
use millrace_func::{Answer, HandlerId, HandlerKind, Loaded, Reader};

use super::origin::Origin;
use super::start::begun;
use super::{Execution, ExecutionContext};
use crate::checks::check_key;
use crate::context::{Context, Rows, store_failed};
use crate::locks::Locks;
use crate::typed_reply::{EntityState, ReplyTo};
use crate::world::World;

/// The committed fields of one entity, and of those beside it.
struct Committed<'a> {
    rows: &'a mut Rows,
    locks: &'a Locks,
    loaded: &'a Loaded,
    key: &'a [u8],
    entity: &'a EntityKey,
    now: UnixMillis,
}

/// Whether an entity's present fields can be told at once.
fn can_tell(locks: &Locks, rows: &Rows, entity: &EntityKey) -> bool {
    // What is prepared may have been seen committed elsewhere.
    !locks.is_prepared(entity)
        // The reply would tell what a crash could take back.
        && (rows.durable() == rows.lsn() || rows.entity_lsn(entity) <= rows.durable())
}

impl Reader for Committed<'_> {
    fn now(&self) -> UnixMillis {
        self.now
    }

    fn get(&mut self, field: &[u8]) -> Result<Option<&Value>, Error> {
        self.rows.store().get(self.entity, field).map_err(|error| store_failed(&error))
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    fn get_beside(&mut self, service: u16, key: &[u8], field: &[u8]) -> Result<Option<Option<Value>>, Error> {
        let is_here = self.rows.shard_of(key) == self.rows.shard();
        let Some(service) = self.loaded.services.get(usize::from(service)).filter(|_| is_here) else {
            return Ok(None);
        };
        let entity = EntityKey::new(&self.loaded.app, &service.name, key);
        if !can_tell(self.locks, self.rows, &entity) {
            return Ok(None);
        }
        let found = self.rows.store().get(&entity, field).map_err(|error| store_failed(&error))?;
        Ok(Some(found.cloned()))
    }
}

impl Execution {
    /// Answers a query without an idempotency key within the input that asks: one that needs nothing but fields of
    /// its own entity. `None` where that takes more than a look, or would have to wait or to be refused.
    pub(crate) fn fast_read(
        &self,
        query: HandlerId,
        key: &[u8],
        input: &[u8],
        rows: &mut Rows,
        world: &mut World<'_>,
    ) -> Option<Result<Answer, Error>> {
        let (loaded, service, kind) = world.catalog.of_handler(query)?;
        if kind != HandlerKind::Query
            || check_key(key, loaded.limits.key_bytes).is_err()
            || input.len() > loaded.limits.input_bytes
        {
            return None;
        }
        let entity = EntityKey::new(&loaded.app, &service.name, key);
        if rows.is_cold(&entity) || !can_tell(&self.locks, rows, &entity) {
            return None;
        }
        let mut reader = Committed { rows, locks: &self.locks, loaded, key, entity: &entity, now: world.now };
        world.engine.answer(query, input, &mut reader)
    }

    /// Answers the committed state of an entity.
    pub(crate) fn read_state(
        &mut self,
        to: ReplyTo<EntityState>,
        entity: &EntityKey,
        fields: StateFields,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        if !context.rows.is_cold(entity) {
            return self.read_warm_state(to, entity, fields, context);
        }
        let origin = Origin::Read { to, begun: begun(context.world), fields };
        if let Some(Origin::Read { to, fields, .. }) = self.with_rows(origin, entity, context) {
            self.read_warm_state(to, entity, fields, context);
        }
    }

    /// The same once memory has the entity.
    pub(super) fn read_warm_state(
        &mut self,
        to: ReplyTo<EntityState>,
        entity: &EntityKey,
        fields: StateFields,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        if self.locks.is_prepared(entity) {
            let begun = begun(context.world);
            let origin = Origin::Read { to, begun, fields };
            return self.park(origin, entity.clone(), false, context.world);
        }
        answer_read(to, entity, &fields, &mut context.context());
    }

    /// Answers whether any entity of a service is here, or may come of what is under way. What has
    /// written one and has not ended holds it.
    pub(crate) fn has_entities(&mut self, to: ReplyTo<bool>, app: &str, service: &str, context: &mut Context<'_>) {
        let prefix = EntityKey::scan_prefix(app, service, b"");
        let is_of_it = |entity: &EntityKey| entity.as_bytes().starts_with(&prefix);
        let is_under_way = self.participations.undecided_writes().chain(self.locks.held_alone()).any(is_of_it);
        let (any, seen) = match context.rows.store().scan_entities_seen(&prefix, None, 1) {
            Ok((found, seen)) => (Ok(is_under_way || !found.is_empty()), seen),
            Err(error) => (Err(store_failed(&error)), Lsn::ZERO),
        };
        context.answer(to, any, seen);
    }
}

pub(super) fn answer_read(
    to: ReplyTo<EntityState>,
    entity: &EntityKey,
    fields: &StateFields,
    context: &mut Context<'_>,
) {
    let result = state(entity, fields, context.rows);
    let depends_on = context.rows.entity_lsn(entity);
    context.answer(to, result, depends_on);
}

fn state(entity: &EntityKey, fields: &StateFields, rows: &mut Rows) -> Result<EntityState, Error> {
    let absent = |what: &str| Error::new(ErrorCode::UnknownState, format!("there is no such {what}"));
    let mut scan = |prefix: &[u8], after: Option<&[u8]>, limit| {
        let found = rows.store().scan_fields_within(entity, prefix, after, limit, limits::SCAN_BYTES);
        found.map_err(|error| store_failed(&error))
    };
    match fields {
        StateFields::One(field) => match rows.store().get(entity, field) {
            Ok(Some(value)) => Ok(EntityState::Field(value.clone())),
            Ok(None) => Err(absent("field")),
            Err(error) => Err(store_failed(&error)),
        },
        StateFields::Page { prefix, after, limit } => scan(prefix, after.as_deref(), (*limit).min(limits::SCAN_ROWS))
            .map(|(fields, _)| EntityState::Fields(fields)),
        StateFields::All => match scan(b"", None, limits::SCAN_ROWS + 1)? {
            (fields, is_cut) if is_cut || fields.len() > limits::SCAN_ROWS => {
                let message = format!(
                    "the entity has more than {} fields or {} bytes: read them in pages, \
                     ?limit=1000 and then ?limit=1000&after=FIELD with the last one's name",
                    limits::SCAN_ROWS,
                    limits::SCAN_BYTES
                );
                Err(Error::new(ErrorCode::BadRequest, message))
            }
            (fields, _) if fields.is_empty() => Err(absent("entity")),
            (fields, _) => Ok(EntityState::Fields(fields)),
        },
    }
}
