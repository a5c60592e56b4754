//! The shard itself: its state, and the inputs that are not about running functions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use millrace_api::StateFields;
use millrace_base::{EntityKey, Error, ErrorCode, Lsn, ShardId, TransactionId, UnixMillis, limits, shard_of_key};
use millrace_format::{Outcome, OutcomeResult};
use millrace_func::{HandlerKind, Program};
use millrace_store::{Store, StoreError};

use crate::branch::Branches;
use crate::coordinator::{Coordination, Homes};
use crate::failures::{Ends, Failures};
use crate::held::Held;
use crate::host::{check_idempotency_key, check_key, store_failed};
use crate::inbox::Inbox;
use crate::locks::{Grant, Locks, Waiter};
use crate::outbox::Outbox;
use crate::outcomes::{OutcomeNames, Outcomes, invocation_field};
use crate::peer::{PeerBody, PeerMessage};
use crate::request::{Bookkeeping, Invoke, OffloadTicket, Origin, Reply, RequestInfo, Sequence, Token};
use crate::schedules::Schedules;
use crate::transaction::{Action, Role, Transaction};
use crate::waiting::Waiting;
use crate::workflows::Workflows;
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
    /// What they are called: the same as long as any is kept, or what was done would be done again.
    pub outcome_names: OutcomeNames,
    /// Drawn at random for this start of the shard: it keeps the ids of its transactions apart
    /// from those of every other start.
    pub incarnation: u64,
    /// The shards whose entries follow its own in one log, this one included. Such a log is
    /// recovered up to some entry and no further, so an entry of theirs that is made after one of
    /// this shard's is not durable without it.
    pub log_mates: Arc<BTreeSet<ShardId>>,
    /// `durability = "none"`: an entry counts as durable as soon as it is made.
    pub is_durable_at_once: bool,
}

/// A transaction in the middle: it awaits something outside, or an entity.
pub(crate) struct Suspended {
    pub transaction: Box<Transaction>,
    /// When it has waited too long.
    pub deadline: UnixMillis,
}

/// A transaction yet to start (again), queued for its first entity.
pub(crate) struct Parked {
    pub origin: Origin,
    pub entity: EntityKey,
    pub is_exclusive: bool,
    pub deadline: UnixMillis,
    /// The entity is another shard's, which has been asked to hold it.
    pub away: Option<Box<Coordination>>,
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
    pub(crate) held: Held,
    pub(crate) durable: Lsn,
    pub(crate) homes: Homes,
    pub(crate) branches: Branches,
    pub(crate) workflows: Workflows,
    pub(crate) waiting: Waiting,
    pub(crate) schedules: Schedules,
    pub(crate) restarts: u64,
    pub(crate) inbox: Inbox,
    pub(crate) failures: Failures,
    pub(crate) ends: Ends,
    pub(crate) dead_letters: usize,
    pub(crate) outbox: Outbox,
    pub(crate) outcomes: Outcomes,
    /// Why the shard stopped, once it has.
    stopped: Option<Error>,
}

impl Shard {
    /// A shard over a recovered store: everything in it counts as durable, because recovery has
    /// synced the log. Call [`Shard::tick`] next: it starts what the last run left in the inbox.
    ///
    /// # Errors
    /// [`StoreError`] when the rows of transactions over several shards cannot be read.
    pub fn new(options: ShardOptions, store: Store) -> Result<Self, StoreError> {
        let durable = store.lsn();
        let mut shard = Self {
            options,
            store,
            bookkeeping: Bookkeeping::new(),
            locks: Locks::default(),
            suspended: BTreeMap::new(),
            parked: BTreeMap::new(),
            freed: VecDeque::new(),
            held: Held::default(),
            durable,
            homes: Homes::default(),
            branches: Branches::default(),
            workflows: Workflows::default(),
            waiting: Waiting::default(),
            schedules: Schedules::default(),
            restarts: 0,
            inbox: Inbox::default(),
            failures: Failures::default(),
            ends: Ends::default(),
            dead_letters: 0,
            outbox: Outbox::default(),
            outcomes: Outcomes::default(),
            stopped: None,
        };
        let prepared = shard.store.scan_fields(&shard.bookkeeping.prepared, b"", None, usize::MAX)?;
        shard.recover_branches(prepared)?;
        let decisions = shard.store.scan_fields(&shard.bookkeeping.decisions, b"", None, usize::MAX)?;
        shard.homes.recover(decisions)?;
        shard.recover_pending()?;
        shard.count_dead_letters()?;
        shard.find_old_outcomes()?;
        Ok(shard)
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
        self.held.len()
    }

    /// Entities held by suspended transactions, or queued for.
    #[must_use]
    pub fn locked_entities(&self) -> usize {
        self.locks.len()
    }

    /// Workflows that have begun and not ended.
    #[must_use]
    pub fn workflows(&self) -> usize {
        self.workflows.count() + self.waiting.stranded()
    }

    /// Transactions over several shards that are decided or prepared here, and not yet ended
    /// everywhere.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.homes.unconfirmed() + self.branches.undecided()
    }

    /// How often a transaction had to start again because an older one held what it wanted.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Up to where what `shard` is told counts as durable: if the two share a log, everything. What
    /// it writes because of that comes later in the log, so it is not durable without it.
    pub(crate) fn durable_towards(&self, shard: ShardId) -> Lsn {
        if self.options.log_mates.contains(&shard) { self.store.lsn() } else { self.durable }
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
            Ok((_, HandlerKind::Workflow)) => {
                let message = "a workflow is not called but started: POST /send/{service}/{key}/{handler}";
                return world.outputs.reply(token, Err(Error::new(ErrorCode::BadRequest, message)));
            }
            Ok(checked) => checked,
            Err(error) => return world.outputs.reply(token, Err(error)),
        };
        let origin = Origin::Call(invoke);
        if self.parks(&origin, &entity, kind, world) {
            return;
        }
        if kind == HandlerKind::Transaction && self.answers_call(&origin, &entity, world) {
            return;
        }
        self.run_root(origin, (entity, kind), Vec::new(), Role::Alone, world);
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
    /// A query overlooks who may yet change the entity, but not who may have changed it already.
    pub(crate) fn parks(
        &mut self,
        origin: &Origin,
        entity: &EntityKey,
        kind: HandlerKind,
        world: &mut World<'_>,
    ) -> bool {
        let is_exclusive = kind == HandlerKind::Transaction;
        if self.locks.is_empty() || !(is_exclusive || self.locks.is_prepared(entity)) {
            return false;
        }
        if self.locks.check(entity, origin.info().nonce, origin.age(), is_exclusive, false) == Grant::Free {
            return false;
        }
        if self.locks.queued(entity) >= limits::ENTITY_QUEUE {
            let error = Error::new(ErrorCode::Overloaded, "too many calls wait for this entity");
            self.fail_origin(origin.clone(), error, world);
            return true;
        }
        self.park(origin.clone(), entity.clone(), is_exclusive, world);
        true
    }

    /// Queues a transaction for `entity`, to be started (again) when it is free.
    pub(crate) fn park(&mut self, origin: Origin, entity: EntityKey, is_exclusive: bool, world: &World<'_>) {
        let (nonce, age) = (origin.info().nonce, origin.age());
        self.locks.queue(&entity, Waiter { nonce, age, is_exclusive, holds_any: false });
        let deadline = Self::deadline(&origin, world);
        self.parked.insert(nonce, Parked { origin, entity, is_exclusive, deadline, away: None });
    }

    /// When a request has waited too long. A branch waits for as long as its home wants.
    pub(crate) fn deadline(origin: &Origin, world: &World<'_>) -> UnixMillis {
        let wait_ms = match origin {
            Origin::Call(invoke) => world.limits(invoke.handler.program).wait_ms,
            Origin::Route(call) => world.limits(call.route.id.program).wait_ms,
            Origin::Step { call, .. } => world.limits(call.handler.program).wait_ms,
            Origin::Message { .. } | Origin::Read { .. } => limits::CALL_WAIT_MS,
            Origin::Branch { .. } => return UnixMillis(u64::MAX),
        };
        origin.info().time.plus(wait_ms)
    }

    /// Refuses a request if the shard has stopped.
    pub(crate) fn refuses(&mut self, token: Token, world: &mut World<'_>) -> bool {
        if let Some(error) = &self.stopped {
            world.outputs.reply(token, Err(error.clone()));
        }
        self.stopped.is_some()
    }

    /// Work that was offloaded has ended.
    pub fn complete(&mut self, ticket: OffloadTicket, result: Result<Bytes, Error>, world: &mut World<'_>) {
        let OffloadTicket { nonce, instance, operation, .. } = ticket;
        if self.stopped.is_some() {
            return;
        }
        // A frame that was given up meanwhile, or an invocation that started again, waits no more.
        let is_awaited = |suspended: &Suspended| suspended.transaction.outside.contains(&(instance, operation));
        if self.suspended.get(&nonce).is_some_and(is_awaited)
            && let Some(Suspended { mut transaction, .. }) = self.suspended.remove(&nonce)
        {
            transaction.outside.retain(|open| *open != (instance, operation));
            transaction.ready.push_back(Action::Resume { frame: instance, operation, result });
            self.drive(transaction, world);
        } else {
            self.workflow_work_ended(&ticket, result, world);
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
        self.held.durable(self.durable, world.outputs);
        self.release_acknowledgements(world);
        self.deliver_outbox(world);
        self.start_waiting(world);
    }

    /// Time has passed: starts what is due, gives up what waited too long, collects outcomes.
    /// To be called about once a second, and at [`Shard::next_due`].
    pub fn tick(&mut self, world: &mut World<'_>) {
        if self.stopped.is_some() {
            return;
        }
        self.give_up_late(world);
        self.look_after_decisions(world);
        self.delete_leftover_rows(world);
        self.inquire(world);
        self.forget_noted(world);
        self.run_schedules(world);
        self.take_up_stranded(world);
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
                self.give_up_parked(parked, error(), world);
            }
        }
        for nonce in suspended {
            if let Some(suspended) = self.suspended.remove(&nonce) {
                self.give_up_suspended(suspended, error(), world);
            }
        }
    }

    fn give_up_suspended(&mut self, suspended: Suspended, error: Error, world: &mut World<'_>) {
        let Suspended { mut transaction, deadline } = suspended;
        match std::mem::replace(&mut transaction.role, Role::Alone) {
            // Another shard may have committed it already: only that one can say.
            Role::Home(home) if home.is_delegated() => {
                transaction.role = Role::Home(home);
                self.suspended.insert(transaction.nonce(), Suspended { transaction, deadline });
            }
            Role::Home(home) if home.is_ending() => {
                self.abandon(&home, world);
                self.give_up_locks(&transaction);
                self.roll_back(transaction, error, world);
            }
            role => {
                transaction.role = role;
                self.finish(transaction, Err(error), world);
            }
        }
    }

    /// Answers what never started, or can never go on, with an error.
    pub(crate) fn fail_origin(&mut self, origin: Origin, error: Error, world: &mut World<'_>) {
        match origin {
            Origin::Message { field, .. } => self.message_failed(&field, error, world),
            Origin::Step { workflow, operation, .. } => self.step_failed(workflow, operation, error, world),
            origin => {
                if let Some(token) = origin.token() {
                    world.outputs.reply(token, Err(error));
                }
            }
        }
    }

    /// What this shard says of a transaction when it only names it.
    pub(crate) fn about(&self, transaction: TransactionId, body: PeerBody) -> PeerMessage {
        PeerMessage { from: self.options.shard, transaction, body }
    }

    /// Another shard says something about a transaction they both take part in.
    pub fn peer(&mut self, message: PeerMessage, world: &mut World<'_>) {
        let PeerMessage { from, transaction: id, body } = message;
        if let Some(error) = &self.stopped {
            // Nothing here runs any more; whoever waits for it is told. A commit is told again
            // after a restart.
            let body = match body {
                PeerBody::ToBranch(..) | PeerBody::Abort { is_answered: true } => PeerBody::Lost(error.clone()),
                PeerBody::Inquire => return self.home_heard_inquiry(from, id, world),
                _ => return,
            };
            return world.outputs.peer(from, self.about(id, body));
        }
        match body {
            PeerBody::ToBranch(number, message) => self.branch_heard(id, number, message, world),
            PeerBody::ToHome(number, message) => self.home_heard(from, id, number, message, world),
            PeerBody::Commit => self.branch_heard_commit(id, world),
            PeerBody::Abort { is_answered } => self.branch_heard_abort(id, is_answered, world),
            PeerBody::Ended => self.home_heard_ended(from, id, world),
            PeerBody::Inquire => self.home_heard_inquiry(from, id, world),
            PeerBody::Lost(error) => self.home_heard_lost(from, id, error, world),
            PeerBody::Forget(field) => self.branch_heard_forget(field),
        }
        self.settle(world);
    }

    /// When [`Shard::tick`] should be called next at the latest, for a message that will be due.
    #[must_use]
    pub fn next_due(&self) -> Option<UnixMillis> {
        let (message, workflow) = (self.inbox.next_due(), self.workflows.next_due());
        if self.is_stopped() { None } else { message.into_iter().chain(workflow).min() }
    }

    /// Answers that something is done, once the entry that did it is durable.
    pub(crate) fn answer_done(&mut self, token: Token, done: Result<Lsn, Error>, world: &mut World<'_>) {
        let depends_on = done.as_ref().map_or(Lsn::ZERO, |lsn| *lsn);
        self.reply_when_durable(token, done.map(|_| Reply::Done), depends_on, world);
    }

    /// What became of a sent invocation; of a workflow also what it has done, with its journal if asked for.
    pub fn read_invocation(&mut self, token: Token, sequence: Sequence, has_journal: bool, world: &mut World<'_>) {
        if self.refuses(token, world) {
            return;
        }
        let result = self.outcome(&invocation_field(sequence)).and_then(|found| {
            let unknown = || Error::new(ErrorCode::UnknownInvocation, "no such invocation, or its outcome expired");
            let is_there = |outcome: &Outcome| outcome.expires > world.now || outcome.result == OutcomeResult::Pending;
            let outcome = found.filter(is_there).ok_or_else(unknown)?;
            Ok(Reply::Invocation(outcome, self.workflow_view(sequence, has_journal)?.map(Box::new)))
        });
        let depends_on = self.store.entity_lsn(&self.bookkeeping.outcomes);
        self.reply_when_durable(token, result, depends_on, world);
    }

    /// The committed state of an entity.
    pub fn read_state(&mut self, token: Token, entity: &EntityKey, fields: StateFields, world: &mut World<'_>) {
        if self.refuses(token, world) {
            return;
        }
        if self.locks.is_prepared(entity) {
            let info = RequestInfo { token, time: world.now, nonce: world.take_nonce(), idempotency_key: None };
            let origin = Origin::Read { info, fields };
            return self.park(origin, entity.clone(), false, world);
        }
        self.answer_read(token, entity, &fields, world);
    }

    fn answer_read(&mut self, token: Token, entity: &EntityKey, fields: &StateFields, world: &mut World<'_>) {
        let result = self.state(entity, fields);
        let depends_on = self.store.entity_lsn(entity);
        self.reply_when_durable(token, result, depends_on, world);
    }

    fn state(&mut self, entity: &EntityKey, fields: &StateFields) -> Result<Reply, Error> {
        let absent = |what: &str| Error::new(ErrorCode::UnknownState, format!("there is no such {what}"));
        let mut scan = |prefix: &[u8], after: Option<&[u8]>, limit| {
            let found = self.store.scan_fields_within(entity, prefix, after, limit, limits::SCAN_BYTES);
            found.map_err(|error| store_failed(&error))
        };
        match fields {
            StateFields::One(field) => match self.store.get(entity, field) {
                Ok(Some(value)) => Ok(Reply::Field(value.clone())),
                Ok(None) => Err(absent("field")),
                Err(error) => Err(store_failed(&error)),
            },
            StateFields::Page { prefix, after, limit } => {
                scan(prefix, after.as_deref(), (*limit).min(limits::SCAN_ROWS)).map(|(fields, _)| Reply::Fields(fields))
            }
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
                (fields, _) => Ok(Reply::Fields(fields)),
            },
        }
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
            Ok(target) => self.accept_send(&invoke, &target, delay_ms, world),
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
        self.held.fail(&error, world.outputs);
        self.locks = Locks::default();
        self.freed.clear();
        self.report_lost(&error, world);
        self.stop_workflows(world);
        for (_, parked) in std::mem::take(&mut self.parked) {
            self.stop_one(parked.origin, parked.away, &error, world);
        }
        for (_, suspended) in std::mem::take(&mut self.suspended) {
            let transaction = suspended.transaction;
            self.drop_frames(&transaction, world);
            let home = if let Role::Home(home) = transaction.role { Some(home) } else { None };
            self.stop_one(transaction.origin, home, &error, world);
        }
    }

    /// Nothing that still runs is decided, and a stopped shard decides nothing any more.
    fn stop_one(&mut self, origin: Origin, home: Option<Box<Coordination>>, error: &Error, world: &mut World<'_>) {
        if let Some(home) = home {
            self.abandon(&home, world);
        }
        if let Some(token) = origin.token() {
            world.outputs.reply(token, Err(error.clone()));
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
            Origin::Branch { begin, .. } => begin.program == program,
            Origin::Step { call, .. } => call.handler.program == program,
            Origin::Message { .. } | Origin::Read { .. } => false,
        };
        self.parked.values().any(|parked| of(&parked.origin))
            || self.suspended.values().any(|suspended| suspended.transaction.needs_program(program))
            || self.workflows.need(program)
    }

    /// Runs everything that this input made runnable, but of the messages that are due a bounded
    /// number only: messages that send messages would keep the core for ever. The rest is due at
    /// once, as [`Shard::next_due`] says.
    pub(crate) fn settle(&mut self, world: &mut World<'_>) {
        let (mut messages, mut workflows) = (limits::MESSAGES_PER_INPUT, limits::WORKFLOWS_PER_INPUT);
        loop {
            while let Some(entity) = self.freed.pop_front() {
                self.wake(&entity, world);
            }
            let has_run = self.run_workflows(&mut workflows, world);
            if !self.start_due_message(&mut messages, world) && !has_run && self.freed.is_empty() {
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
        let (nonce, age) = (origin.info().nonce, origin.age());
        if let Origin::Read { info, fields } = &origin {
            self.give_up_held(nonce, [&entity]);
            return self.answer_read(info.token, &entity, fields, world);
        }
        if let Origin::Branch { .. } = origin {
            return self.reserved(origin, entity, is_exclusive, world);
        }
        // Held from here on, so that nobody who queues behind comes first.
        self.locks.take(&entity, nonce, age, is_exclusive);
        if self.starts_again(origin, vec![entity.clone()], Role::Alone, world).is_err() {
            self.give_up_held(nonce, [&entity]);
        }
    }

    /// Starts a transaction again that holds `held`, and in other shards what `role` says.
    ///
    /// # Errors
    /// The role, when it did not start: it has been answered or has parked once more, and has no
    /// more use for what it held.
    pub(crate) fn starts_again(
        &mut self,
        origin: Origin,
        held: Vec<EntityKey>,
        role: Role,
        world: &mut World<'_>,
    ) -> Result<(), Role> {
        let root = match &origin {
            Origin::Call(invoke) => self.check_call(invoke, world),
            Origin::Message { field, .. } => self.message_target(field, world),
            Origin::Step { call, .. } => {
                if shard_of_key(&call.key, self.options.shard_count) != self.options.shard {
                    self.run_step_away(origin, held, role, world);
                    return Ok(());
                }
                let entity = world.catalog.entity(call.handler, &call.key);
                let kind = world.catalog.kind(call.handler);
                let gone = || Error::new(ErrorCode::UnknownHandler, "the callee's app version is gone");
                entity.map(|entity| (entity, kind)).ok_or_else(gone)
            }
            Origin::Route(call) => {
                if self.answers_from_outcome(&origin, world) {
                    return Err(role);
                }
                self.run_route_again(call.clone(), held, role, world);
                return Ok(());
            }
            _ => Err(Error::new(ErrorCode::Internal, "only calls, messages and routes start again")),
        };
        let (own, kind) = match root {
            Ok(root) => root,
            Err(error) => {
                self.fail_origin(origin, error, world);
                return Err(role);
            }
        };
        let is_exclusive = kind == HandlerKind::Transaction;
        if self.locks.check(&own, origin.info().nonce, origin.age(), is_exclusive, true) != Grant::Free {
            // It died for another entity than its own, and somebody has taken its own meanwhile.
            self.park(origin, own, is_exclusive, world);
            return Err(role);
        }
        if is_exclusive && self.answers_from_outcome(&origin, world) {
            return Err(role);
        }
        self.run_root(origin, (own, kind), held, role, world);
        Ok(())
    }
}
