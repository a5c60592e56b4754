//! Transactions that wait for an entity's rows, which memory does not hold and which are read beside the shard.
//!
//! One that has yet to start waits with its origin. One in the middle is suspended, and the call that is for the entity is
//! put aside. Neither holds the entity meanwhile: it looks at the locks when the rows are there. Each waits once. If the rows
//! do not count by then, or memory has let go of them again, the shard reads them itself. To wait once more could go on for
//! ever. The blocks that they are in were read a moment ago, so that is quick.
//!
//! Those that come for the same entity meanwhile wait for the same read, and go on in the order in which they came. Whoever
//! comes when the rows are in memory does not wait for those that came before: what is under way together has no order.

use std::collections::{BTreeMap, VecDeque};

use millrace_base::{EntityKey, Error, ErrorCode, limits};
use millrace_func::HandlerKind;
use millrace_store::ColdRows;

use super::answers::answers_from_result;
use super::origin::Origin;
use super::start::root_call;
use super::transaction::PendingCall;
use super::{Execution, ExecutionContext, Role, Suspended};

/// Who waits for rows.
enum Waiting {
    /// A transaction that has yet to start.
    Start(Box<Origin>),
    /// A suspended one, by its nonce.
    Call(u64),
}

/// Who waited for one entity may be many. So many go on within one input; others have a turn before the rest.
const WARM_PER_INPUT: usize = 32;

/// Entities that are being read, and who waits for each.
#[derive(Default)]
pub(super) struct ColdEntities {
    waiting: BTreeMap<EntityKey, Vec<Waiting>>,
    /// Those whose rows are there, in the order in which they go on.
    warm: VecDeque<(EntityKey, Waiting)>,
    starts: usize,
}

impl ColdEntities {
    fn is_read(&self, entity: &EntityKey) -> bool {
        self.waiting.contains_key(entity)
    }

    /// The rows of an entity are there.
    fn warm(&mut self, entity: &EntityKey) {
        let waiting = self.waiting.remove(entity).unwrap_or_default();
        self.warm.extend(waiting.into_iter().map(|one| (entity.clone(), one)));
    }

    fn next_warm(&mut self) -> Option<(EntityKey, Waiting)> {
        let next = self.warm.pop_front()?;
        self.starts -= usize::from(matches!(next.1, Waiting::Start(_)));
        Some(next)
    }

    /// Whether somebody can go on at once.
    pub(super) fn goes_on(&self) -> bool {
        !self.warm.is_empty()
    }

    /// How many transactions wait that have yet to start.
    pub(super) fn starts(&self) -> usize {
        self.starts
    }

    /// Transactions that have yet to start.
    pub(super) fn origins(&self) -> impl Iterator<Item = &Origin> {
        let waiting = self.waiting.values().flatten().chain(self.warm.iter().map(|(_, one)| one));
        waiting.filter_map(|one| match one {
            Waiting::Start(origin) => Some(&**origin),
            Waiting::Call(_) => None,
        })
    }

    /// The same, when nobody waits any more.
    pub(super) fn into_origins(self) -> impl Iterator<Item = Origin> {
        let waiting = self.waiting.into_values().flatten().chain(self.warm.into_iter().map(|(_, one)| one));
        waiting.filter_map(|one| match one {
            Waiting::Start(origin) => Some(*origin),
            Waiting::Call(_) => None,
        })
    }
}

impl Execution {
    /// The transaction, if it can start. `None`: it starts once the rows of its entity are in memory, or has been refused.
    pub(super) fn with_rows(
        &mut self,
        origin: Origin,
        entity: &EntityKey,
        context: &mut ExecutionContext<'_, '_>,
    ) -> Option<Origin> {
        if !context.rows.is_cold(entity) {
            return Some(origin);
        }
        if self.cold.starts >= limits::COLD_STARTS {
            if matches!(origin, Origin::Call(..)) {
                let error =
                    Error::new(ErrorCode::Overloaded, "too many calls wait for entities that are read from the disk");
                self.fail_origin(origin, error, context);
                return None;
            }
            return Some(origin);
        }
        if !self.is_being_read(entity, context) {
            return Some(origin);
        }
        self.cold.starts += 1;
        self.cold.waiting.entry(entity.clone()).or_default().push(Waiting::Start(Box::new(origin)));
        None
    }

    /// Whether a transaction's call has to wait for the rows of its entity: the transaction is told when they are there.
    pub(super) fn waits_for_rows(
        &mut self,
        entity: &EntityKey,
        (pending, nonce): (&mut PendingCall, u64),
        context: &mut ExecutionContext<'_, '_>,
    ) -> bool {
        let has_waited = pending.waits_for_rows && !self.cold.is_read(entity);
        pending.waits_for_rows = !has_waited && context.rows.is_cold(entity) && self.is_being_read(entity, context);
        if pending.waits_for_rows {
            let waiting = self.cold.waiting.entry(entity.clone()).or_default();
            if !waiting.iter().any(|one| matches!(one, Waiting::Call(other) if *other == nonce)) {
                waiting.push(Waiting::Call(nonce));
            }
        }
        pending.waits_for_rows
    }

    /// Whether the rows of a cold entity are being read, or have to be. Not if they could be read at once.
    fn is_being_read(&self, entity: &EntityKey, context: &mut ExecutionContext<'_, '_>) -> bool {
        if self.cold.is_read(entity) {
            return true;
        }
        let Some(read) = context.rows.store().cold_read(entity.clone()) else { return false };
        let Some(rows) = context.world.outputs.read_rows(read) else { return true };
        context.rows.store().take_rows(rows);
        false
    }

    /// Rows that were read beside the shard are there: who waits for them goes on.
    pub(crate) fn rows_read(&mut self, rows: ColdRows, context: &mut ExecutionContext<'_, '_>) {
        self.cold.warm(rows.of().1);
        context.rows.store().take_rows(rows);
        self.go_on_warm(context);
    }

    /// Some of those go on whose rows are there.
    pub(crate) fn go_on_warm(&mut self, context: &mut ExecutionContext<'_, '_>) {
        for _ in 0..WARM_PER_INPUT {
            match self.cold.next_warm() {
                Some((entity, Waiting::Start(origin))) => self.start_warm(*origin, &entity, context),
                Some((_, Waiting::Call(nonce))) => self.go_on_with_rows(nonce, context),
                None => return,
            }
        }
        if self.cold.goes_on() {
            context.world.outputs.goes_on(context.rows.shard());
        }
    }

    /// Starts what has waited as it would have started then: it may have to wait for the entity now.
    fn start_warm(&mut self, origin: Origin, entity: &EntityKey, context: &mut ExecutionContext<'_, '_>) {
        if let Origin::Read { to, fields, .. } = origin {
            return self.read_warm_state(to, entity, fields, context);
        }
        let has_waited_ms = context.world.monotonic_ms.saturating_sub(origin.began_ms());
        if matches!(origin, Origin::Call(..)) && has_waited_ms > limits::QUEUE_MS {
            let error = Error::new(ErrorCode::Overloaded, "the disk is slow: the call waited too long for its entity");
            return self.fail_origin(origin, error, context);
        }
        let kind = match root_call(&origin, context) {
            Ok(call) => context.world.catalog.kind(call.handler),
            Err(error) => return self.fail_origin(origin, error, context),
        };
        if self.parks(&origin, entity, kind, context)
            || kind == HandlerKind::Transaction && answers_from_result(&origin, context)
        {
            return;
        }
        self.run_root(origin, (entity.clone(), kind), Vec::new(), Role::Alone, context);
    }

    fn go_on_with_rows(&mut self, nonce: u64, context: &mut ExecutionContext<'_, '_>) {
        // It may have failed meanwhile, or what made the call may have.
        let waits = |one: &mut Suspended| one.transaction.waits_for_rows();
        if self.suspended.get_mut(&nonce).is_some_and(waits)
            && let Some(Suspended { role, mut transaction, .. }) = self.suspended.remove(&nonce)
        {
            transaction.take_up_put_aside();
            self.drive(role, transaction, context);
        }
    }
}
