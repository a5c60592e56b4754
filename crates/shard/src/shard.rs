//! The shard itself: its state, and the inputs that are not about running functions.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use millrace_base::{EntityKey, Error, ErrorCode, Lsn, ShardId, UnixMillis, limits};
use millrace_format::OutcomeResult;
use millrace_func::{HandlerKind, Program};
use millrace_store::Store;

use crate::host::{check_idempotency_key, check_key, store_failed};
use crate::inbox::{Inbox, Outbox};
use crate::locks::{Grant, Locks, Waiter};
use crate::outcomes::invocation_field;
use crate::replies::Replies;
use crate::request::{Bookkeeping, Invoke, OffloadTicket, Origin, Reply, Sequence, Token};
use crate::transaction::{Action, Transaction};
use crate::world::World;

/// What a shard is told once.
#[derive(Clone, Debug)]
pub struct ShardOptions {
    /// Which shard it is.
    pub shard: ShardId,
    /// How many shards the data directory has.
    pub shard_count: u16,
    /// How long outcomes are kept.
    pub retention_ms: u64,
    /// `durability = "none"`: an entry counts as durable as soon as it is made.
    pub is_durable_at_once: bool,
}

/// A transaction in the middle: it awaits something outside, or an entity.
pub(crate) struct Suspended {
    pub transaction: Transaction,
    /// When it has waited too long.
    pub deadline: UnixMillis,
}

/// A transaction yet to start (again), queued for its first entity.
pub(crate) struct Parked {
    pub origin: Origin,
    pub entity: EntityKey,
    pub is_exclusive: bool,
    pub deadline: UnixMillis,
}

/// One partition of all entities, as a state machine. See the crate's documentation.
pub struct Shard {
    pub(crate) options: ShardOptions,
    pub(crate) store: Store,
    pub(crate) bookkeeping: Bookkeeping,
    pub(crate) locks: Locks,
    pub(crate) suspended: BTreeMap<u64, Suspended>,
    pub(crate) parked: BTreeMap<u64, Parked>,
    /// Entities whose queue may have become runnable.
    pub(crate) freed: VecDeque<EntityKey>,
    pub(crate) replies: Replies,
    pub(crate) durable: Lsn,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    pub(crate) outcomes_added: usize,
    pub(crate) sweep_after: Option<Box<[u8]>>,
    /// Why the shard stopped, once it has.
    stopped: Option<Error>,
}

impl Shard {
    /// A shard over a recovered store: everything in it counts as durable, because recovery has
    /// synced the log. Call [`Shard::tick`] next: it starts what the last run left in the inbox.
    #[must_use]
    pub fn new(options: ShardOptions, store: Store) -> Self {
        let durable = store.lsn();
        Self {
            options,
            store,
            bookkeeping: Bookkeeping::new(),
            locks: Locks::default(),
            suspended: BTreeMap::new(),
            parked: BTreeMap::new(),
            freed: VecDeque::new(),
            replies: Replies::default(),
            durable,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            outcomes_added: 0,
            sweep_after: None,
            stopped: None,
        }
    }

    /// Which shard this is.
    #[must_use]
    pub fn id(&self) -> ShardId {
        self.options.shard
    }

    /// The shard's state, for flushing, eviction and figures. The driver must not write to it.
    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Everything up to here is durable.
    #[must_use]
    pub fn durable_lsn(&self) -> Lsn {
        self.durable
    }

    /// Transactions that wait in the middle or for their first entity.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.suspended.len() + self.parked.len()
    }

    /// Replies that wait for the log.
    #[must_use]
    pub fn held_replies(&self) -> usize {
        self.replies.len()
    }

    /// Entities held by suspended transactions, or queued for.
    #[must_use]
    pub fn locked_entities(&self) -> usize {
        self.locks.len()
    }

    /// Whether the shard has stopped for good.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Runs a handler as one transaction. The reply comes through `Outputs::reply`, perhaps later.
    pub fn invoke(&mut self, invoke: Invoke, world: &mut World<'_>) {
        if self.refuses(invoke.info.token, world) {
            return;
        }
        self.begin_call(invoke, world);
        self.settle(world);
    }

    /// Starts a call, or parks it behind a suspended transaction.
    pub(crate) fn begin_call(&mut self, invoke: Invoke, world: &mut World<'_>) {
        let token = invoke.info.token;
        let (entity, kind) = match self.check_call(&invoke, world) {
            Ok(checked) => checked,
            Err(error) => return world.outputs.reply(token, Err(error)),
        };
        let origin = Origin::Call(invoke);
        if kind == HandlerKind::Transaction && self.parks(&origin, &entity, world) {
            return;
        }
        if kind == HandlerKind::Transaction && self.answers_from_outcome(&origin, world) {
            return;
        }
        self.run_root(origin, entity, kind, Vec::new(), world);
    }

    fn check_call(&self, invoke: &Invoke, world: &World<'_>) -> Result<(EntityKey, HandlerKind), Error> {
        check_key(&invoke.key)?;
        check_idempotency_key(&invoke.info)?;
        let unknown = || Error::new(ErrorCode::UnknownHandler, "the handler's app version is gone");
        let loaded = world.catalog.program(invoke.handler.program).ok_or_else(unknown)?;
        if invoke.input.len() > loaded.limits.input_bytes {
            let message =
                format!("the input has {} bytes; {} are allowed", invoke.input.len(), loaded.limits.input_bytes);
            return Err(Error::new(ErrorCode::TooLarge, message));
        }
        let entity = world.catalog.entity(invoke.handler, &invoke.key).ok_or_else(unknown)?;
        Ok((entity, world.catalog.kind(invoke.handler)))
    }

    /// Parks a transaction that has yet to start if its entity is taken. Says whether it did.
    pub(crate) fn parks(&mut self, origin: &Origin, entity: &EntityKey, world: &mut World<'_>) -> bool {
        if self.locks.is_empty() {
            return false;
        }
        let info = origin.info();
        if self.locks.check(entity, info.nonce, info.age(), true, false) == Grant::Free {
            return false;
        }
        if self.locks.queued(entity) >= limits::ENTITY_QUEUE {
            let error = Error::new(ErrorCode::Overloaded, "too many calls wait for this entity");
            self.fail_origin(origin.clone(), error, world);
            return true;
        }
        self.park(origin.clone(), entity.clone(), true, world);
        true
    }

    /// Queues a transaction for `entity`, to be started (again) when it is free.
    pub(crate) fn park(&mut self, origin: Origin, entity: EntityKey, is_exclusive: bool, world: &World<'_>) {
        let (nonce, age) = (origin.info().nonce, origin.info().age());
        self.locks.queue(&entity, Waiter { nonce, age, is_exclusive });
        let wait_ms = match &origin {
            Origin::Call(invoke) => world.limits(invoke.handler.program).wait_ms,
            Origin::Route(call) => world.limits(call.route.id.program).wait_ms,
            Origin::Message { .. } => limits::CALL_WAIT_MS,
        };
        let deadline = origin.info().time.plus(wait_ms);
        self.parked.insert(nonce, Parked { origin, entity, is_exclusive, deadline });
    }

    /// Answers a request that took effect before with its first reply. Says whether it did.
    pub(crate) fn answers_from_outcome(&mut self, origin: &Origin, world: &mut World<'_>) -> bool {
        let Some(key) = self.outcome_key(origin, world) else {
            return false;
        };
        let Some(result) = self.kept_reply(&key, world.now) else {
            return false;
        };
        // The outcome may be younger than the last durable entry; so must its second sending be.
        let depends_on = self.store.entity_lsn(&self.bookkeeping.outcomes);
        self.replies.release(origin.info().token, result, depends_on, self.durable, world.outputs);
        true
    }

    /// Refuses a request if the shard has stopped.
    fn refuses(&mut self, token: Token, world: &mut World<'_>) -> bool {
        if let Some(error) = &self.stopped {
            world.outputs.reply(token, Err(error.clone()));
        }
        self.stopped.is_some()
    }

    /// Work that was offloaded has ended.
    pub fn complete(&mut self, ticket: OffloadTicket, result: Result<Bytes, Error>, world: &mut World<'_>) {
        let OffloadTicket { nonce, instance, operation, .. } = ticket;
        // A frame that was given up meanwhile, or an invocation that started again, waits no more.
        let is_awaited = |suspended: &Suspended| suspended.transaction.outside.contains(&(instance, operation));
        if self.suspended.get(&nonce).is_some_and(is_awaited)
            && let Some(Suspended { mut transaction, .. }) = self.suspended.remove(&nonce)
        {
            transaction.outside.retain(|open| *open != (instance, operation));
            transaction.ready.push_back(Action::Resume { frame: instance, operation, result });
            self.drive(transaction, world);
        }
        self.settle(world);
    }

    /// Everything up to `lsn` is durable: releases what waited for it.
    ///
    /// # Panics
    /// When `lsn` is not an entry of this shard: the driver mixed up two logs.
    pub fn durable(&mut self, lsn: Lsn, world: &mut World<'_>) {
        assert!(lsn <= self.store.lsn(), "nothing is durable before it is made");
        self.durable = self.durable.max(lsn);
        self.replies.durable(self.durable, world.outputs);
        self.release_acknowledgements(world);
        self.deliver_outbox(world);
    }

    /// Time has passed: starts what is due, gives up what waited too long, collects outcomes.
    /// To be called about once a second, and at [`Shard::next_due`].
    pub fn tick(&mut self, world: &mut World<'_>) {
        if self.stopped.is_some() {
            return;
        }
        self.give_up_late(world);
        self.collect_outcomes(world);
        self.forget_acknowledged(world);
        self.deliver_outbox(world);
        self.settle(world);
    }

    /// Starts what is due, and nothing else that [`Shard::tick`] does.
    pub fn run_due(&mut self, world: &mut World<'_>) {
        if self.stopped.is_none() {
            self.settle(world);
        }
    }

    fn give_up_late(&mut self, world: &mut World<'_>) {
        let late = |deadline: UnixMillis| deadline <= world.now;
        let parked: Vec<u64> = self.parked.iter().filter(|(_, p)| late(p.deadline)).map(|(nonce, _)| *nonce).collect();
        let suspended: Vec<u64> =
            self.suspended.iter().filter(|(_, s)| late(s.deadline)).map(|(nonce, _)| *nonce).collect();
        let error =
            || Error::new(ErrorCode::WaitLimit, "the call waited too long for what it awaits; nothing took effect");
        for nonce in parked {
            if let Some(parked) = self.parked.remove(&nonce) {
                self.locks.release(&parked.entity, nonce);
                self.freed.push_back(parked.entity);
                self.fail_origin(parked.origin, error(), world);
            }
        }
        for nonce in suspended {
            if let Some(suspended) = self.suspended.remove(&nonce) {
                self.finish(suspended.transaction, Err(error()), world);
            }
        }
    }

    /// Answers what never started, or can never go on, with an error.
    pub(crate) fn fail_origin(&mut self, origin: Origin, error: Error, world: &mut World<'_>) {
        match origin {
            Origin::Message { field, .. } => self.message_failed(&field, error, world),
            Origin::Call(Invoke { info, .. }) => world.outputs.reply(info.token, Err(error)),
            Origin::Route(call) => world.outputs.reply(call.info.token, Err(error)),
        }
    }

    /// When [`Shard::tick`] should be called next at the latest, for a message that will be due.
    #[must_use]
    pub fn next_due(&self) -> Option<UnixMillis> {
        if self.is_stopped() { None } else { self.inbox.next_due() }
    }

    /// What became of a sent invocation.
    pub fn read_invocation(&mut self, token: Token, sequence: Sequence, world: &mut World<'_>) {
        if self.refuses(token, world) {
            return;
        }
        let result = self.outcome(&invocation_field(sequence)).and_then(|found| {
            found
                .filter(|outcome| outcome.expires > world.now || outcome.result == OutcomeResult::Pending)
                .map(Reply::Outcome)
                .ok_or_else(|| Error::new(ErrorCode::UnknownInvocation, "no such invocation, or its outcome expired"))
        });
        let depends_on = self.store.entity_lsn(&self.bookkeeping.outcomes);
        self.replies.release(token, result, depends_on, self.durable, world.outputs);
    }

    /// The committed state of an entity: all its fields, or one.
    pub fn read_state(&mut self, token: Token, entity: &EntityKey, field: Option<&[u8]>, world: &mut World<'_>) {
        if self.refuses(token, world) {
            return;
        }
        let absent = |what: &str| Error::new(ErrorCode::UnknownState, format!("there is no such {what}"));
        let result = match field {
            Some(field) => match self.store.get(entity, field) {
                Ok(Some(value)) => Ok(Reply::Field(value.clone())),
                Ok(None) => Err(absent("field")),
                Err(error) => Err(store_failed(&error)),
            },
            None => match self.store.scan_fields_within(entity, b"", None, limits::SCAN_ROWS + 1, limits::SCAN_BYTES) {
                Ok((fields, is_cut)) if is_cut || fields.len() > limits::SCAN_ROWS => Err(Error::new(
                    ErrorCode::BadRequest,
                    format!(
                        "the entity has more than {} fields or {} bytes: read its fields one by one",
                        limits::SCAN_ROWS,
                        limits::SCAN_BYTES
                    ),
                )),
                Ok((fields, _)) if fields.is_empty() => Err(absent("entity")),
                Ok((fields, _)) => Ok(Reply::Fields(fields)),
                Err(error) => Err(store_failed(&error)),
            },
        };
        let depends_on = self.store.entity_lsn(entity);
        self.replies.release(token, result, depends_on, self.durable, world.outputs);
    }

    /// Enqueues a call to run after `delay_ms`; the reply is its invocation id.
    pub fn send(&mut self, invoke: Invoke, delay_ms: u64, world: &mut World<'_>) {
        if self.refuses(invoke.info.token, world) {
            return;
        }
        let token = invoke.info.token;
        let checked = self
            .check_call(&invoke, world)
            .and_then(|checked| if world.is_read_only { Err(crate::commit::read_only()) } else { Ok(checked) });
        match checked {
            Ok((entity, _)) => self.accept_send(&invoke, &entity, delay_ms, world),
            Err(error) => world.outputs.reply(token, Err(error)),
        }
        self.settle(world);
    }

    /// Stops the shard for good: its log can no longer be trusted. Everything that waits is
    /// answered; what was not yet acknowledged may or may not be in the log after a restart.
    pub fn stop(&mut self, reason: &str, world: &mut World<'_>) {
        let message = format!(
            "the shard stopped: {reason}; calls not yet answered may or may not have taken effect, \
             repeat them with their Idempotency-Key after a restart"
        );
        let error = Error::new(ErrorCode::ShardStopped, message);
        self.stopped = Some(error.clone());
        self.replies.fail(&error, world.outputs);
        self.locks = Locks::default();
        self.freed.clear();
        for (_, parked) in std::mem::take(&mut self.parked) {
            if !matches!(parked.origin, Origin::Message { .. }) {
                self.fail_origin(parked.origin, error.clone(), world);
            }
        }
        for (_, suspended) in std::mem::take(&mut self.suspended) {
            let transaction = suspended.transaction;
            self.drop_frames(&transaction, world);
            if !matches!(transaction.origin, Origin::Message { .. }) {
                self.fail_origin(transaction.origin, error.clone(), world);
            }
        }
    }

    /// Drops every live frame of a transaction that will not go on.
    pub(crate) fn drop_frames(&self, transaction: &Transaction, world: &mut World<'_>) {
        for state in &transaction.frames {
            world.engine.cancel(state.frame);
            world.frames.give_back(state.frame);
        }
    }

    /// Whether anything of `program` is still parked here and will need it.
    #[must_use]
    pub fn needs_program(&self, program: Program) -> bool {
        let of = |origin: &Origin| match origin {
            Origin::Call(invoke) => invoke.handler.program == program,
            Origin::Route(call) => call.route.id.program == program,
            Origin::Message { .. } => false,
        };
        self.parked.values().any(|parked| of(&parked.origin))
            || self.suspended.values().any(|suspended| suspended.transaction.program == program)
    }

    /// Runs everything that this input made runnable, but of the messages that are due a bounded
    /// number only: messages that send messages would keep the core for ever. The rest is due at
    /// once, as [`Shard::next_due`] says.
    pub(crate) fn settle(&mut self, world: &mut World<'_>) {
        let mut messages = limits::MESSAGES_PER_INPUT;
        loop {
            while let Some(entity) = self.freed.pop_front() {
                self.wake(&entity, world);
            }
            if !self.start_due_message(&mut messages, world) && self.freed.is_empty() {
                break;
            }
        }
        if self.options.is_durable_at_once {
            self.deliver_outbox(world);
        }
    }

    /// Goes on with whoever is first in the queue of `entity`, and with those behind that may go
    /// on beside it. Each may change what the next one may do.
    fn wake(&mut self, entity: &EntityKey, world: &mut World<'_>) {
        while let Some(nonce) = self.locks.runnable(entity) {
            if let Some(parked) = self.parked.remove(&nonce) {
                self.unpark(parked, world);
            } else if let Some(suspended) = self.suspended.remove(&nonce) {
                self.unblock(suspended.transaction, entity, world);
            } else {
                self.locks.release(entity, nonce);
            }
        }
    }

    fn unpark(&mut self, parked: Parked, world: &mut World<'_>) {
        let Parked { origin, entity, is_exclusive, .. } = parked;
        let (nonce, age) = (origin.info().nonce, origin.info().age());
        if let Origin::Route(call) = origin {
            // It has to find its way here again from the beginning.
            self.locks.release(&entity, nonce);
            world.outputs.run_route_again(call);
            return;
        }
        // Held from here on, so that nobody who queues behind comes first.
        self.locks.take(&entity, nonce, age, is_exclusive);
        if !self.starts_again(origin, &entity, world) {
            self.locks.release(&entity, nonce);
            self.freed.push_back(entity);
        }
    }

    /// Starts a transaction again that holds `entity`. Says whether it did: if not, because it has
    /// been answered or has parked once more, it has no more use for `entity`.
    fn starts_again(&mut self, origin: Origin, entity: &EntityKey, world: &mut World<'_>) -> bool {
        let root = match &origin {
            Origin::Call(invoke) => self.check_call(invoke, world),
            Origin::Message { field, .. } => self.message_target(field, world),
            Origin::Route(_) => Err(Error::new(ErrorCode::Internal, "routes start outside the shard")),
        };
        let (own, kind) = match root {
            Ok(root) => root,
            Err(error) => {
                self.fail_origin(origin, error, world);
                return false;
            }
        };
        let is_exclusive = kind == HandlerKind::Transaction;
        let info = origin.info();
        if self.locks.check(&own, info.nonce, info.age(), is_exclusive, true) != Grant::Free {
            // It died for another entity than its own, and somebody has taken its own meanwhile.
            self.park(origin, own, is_exclusive, world);
            return false;
        }
        if is_exclusive && self.answers_from_outcome(&origin, world) {
            return false;
        }
        self.run_root(origin, own, kind, vec![entity.clone()], world);
        true
    }
}
