//! Running a transaction: turn after turn until it ends or has to wait.
//!
//! A nested call never re-enters the engine: the caller's turn ends waiting, the callee runs as
//! a frame of its own, and its result resumes the caller. All of that happens within one input
//! of the shard unless something outside is awaited, so most transactions are never suspended
//! and never hold a lock.

use bytes::Bytes;
use millrace_base::{EntityKey, Error, ErrorCode, shard_of_key};
use millrace_func::{Frame, HandlerKind, NestedCall, OperationId, Output, Start, Step};

use crate::host::{Home, TurnHost};
use crate::locks::{Grant, Waiter};
use crate::request::{Origin, RouteCall};
use crate::shard::{Shard, Suspended};
use crate::transaction::{Action, Instance, PendingCall, Role, Transaction};
use crate::world::World;

/// How a turn of the loop left the transaction.
enum Next {
    /// Look at the next action.
    GoOn,
    /// It lost the race for this entity and starts again when that is free.
    Die(EntityKey, bool),
}

impl Shard {
    /// Starts a transaction whose root is a handler on `entity`. `held` are entities it holds
    /// already, because it queued for them, and `role` says what it holds in other shards.
    pub(crate) fn run_root(
        &mut self,
        origin: Origin,
        (entity, kind): (EntityKey, HandlerKind),
        held: Vec<EntityKey>,
        role: Role,
        world: &mut World<'_>,
    ) {
        let call = match self.root_call(&origin, world) {
            Ok(call) => call,
            Err(error) => {
                self.give_up_held(origin.info().nonce, &held);
                if let Role::Home(home) = role {
                    self.abandon(&home, world);
                }
                return self.fail_origin(origin, error, world);
            }
        };
        let program = call.handler.program;
        let mut transaction = Transaction::new(origin, program, world.limits(program));
        transaction.takes_locks = !held.is_empty() || !matches!(role, Role::Alone);
        transaction.held = held;
        transaction.role = role;
        let touched = transaction.touch(entity, kind == HandlerKind::Transaction);
        let frame = transaction.add_root(Some(touched), kind, world);
        let start = Start::Handler { id: call.handler, key: &call.key, input: &call.input };
        let step = self.turn(&mut transaction, frame, world, |engine, host| engine.start(frame, start, host));
        transaction.stepped(frame, step, world);
        self.drive(transaction, world);
    }

    /// Starts a route again that holds what it lost the race for. It runs here from its beginning,
    /// wherever its first call goes this time.
    pub(crate) fn run_route_again(&mut self, call: RouteCall, held: Vec<EntityKey>, role: Role, world: &mut World<'_>) {
        let program = call.route.id.program;
        let mut transaction = Transaction::new(Origin::Route(call.clone()), program, world.limits(program));
        transaction.takes_locks = true;
        transaction.held = held;
        transaction.role = role;
        let frame = transaction.add_root(None, HandlerKind::Transaction, world);
        let start = Start::Route { id: call.route.id, request: call.request() };
        let step = self.turn(&mut transaction, frame, world, |engine, host| engine.start(frame, start, host));
        transaction.stepped(frame, step, world);
        self.drive(transaction, world);
    }

    /// What the root of a transaction runs: handler, key and input.
    fn root_call(&mut self, origin: &Origin, world: &World<'_>) -> Result<NestedCall, Error> {
        match origin {
            Origin::Call(invoke) => {
                Ok(NestedCall { handler: invoke.handler, key: invoke.key.to_vec(), input: invoke.input.clone() })
            }
            Origin::Message { field, .. } => self.message_call(field, world),
            Origin::Step { call, .. } => Ok(call.clone()),
            _ => Err(Error::new(ErrorCode::Internal, "only calls and messages run a handler")),
        }
    }

    fn turn(
        &mut self,
        transaction: &mut Transaction,
        frame: Frame,
        world: &mut World<'_>,
        run: impl FnOnce(&dyn millrace_func::Engine, &mut TurnHost<'_, '_>) -> Step,
    ) -> Step {
        let engine = world.engine;
        let shard_count = self.options.shard_count;
        let home = Some(Home { shard: self.options.shard, store: &mut self.store, branches: &self.branches });
        let mut host = TurnHost { home, shard_count, transaction, world, frame };
        run(engine, &mut host)
    }

    /// Runs a transaction until it ends or waits for something outside this input.
    pub(crate) fn drive(&mut self, mut transaction: Box<Transaction>, world: &mut World<'_>) {
        loop {
            if !transaction.unwanted.is_empty() {
                self.leave_queues(&mut transaction);
            }
            self.take_back_away(&mut transaction, world);
            if matches!(transaction.result, Some(Err(_))) {
                break;
            }
            let Some(action) = transaction.ready.pop_front() else {
                break;
            };
            let next = match action {
                Action::Call(call) => self.start_nested(&mut transaction, call, world),
                Action::Resume { frame, operation, result } => {
                    self.resume(&mut transaction, frame, operation, result, world);
                    Next::GoOn
                }
                Action::End(result) => {
                    transaction.result = Some(result.map(Output::Value));
                    Next::GoOn
                }
                Action::Answer(number, result) => {
                    self.answer_away(&mut transaction, number, result, world);
                    Next::GoOn
                }
            };
            if let Next::Die(entity, is_exclusive) = next {
                return self.die(transaction, entity, is_exclusive, world);
            }
        }
        self.pause(transaction, world);
    }

    /// Nothing of a transaction can go on in this input: ends it if it has run, or keeps it.
    fn pause(&mut self, mut transaction: Box<Transaction>, world: &mut World<'_>) {
        let is_waiting_here = !transaction.outside.is_empty() || !transaction.blocked.is_empty();
        let is_waiting = is_waiting_here
            || transaction.awaits_away()
            || matches!(&transaction.role, Role::Home(home) if home.is_waiting());
        match transaction.result.take() {
            Some(Err(error)) => self.finish(transaction, Err(error), world),
            _ if matches!(transaction.role, Role::Branch(_)) => self.rest_branch(transaction, world),
            Some(Ok(output)) if !is_waiting && transaction.frames.is_empty() => {
                self.finish(transaction, Ok(output), world);
            }
            result => {
                transaction.result = result;
                if is_waiting {
                    self.suspend(transaction, world);
                } else {
                    // An engine reports a stalled frame itself; reaching this is its bug.
                    let error = Error::new(ErrorCode::Stalled, "the call awaits something that can never happen");
                    self.finish(transaction, Err(error), world);
                }
            }
        }
    }

    /// Leaves the queues it stood in for calls that will not be made any more.
    fn leave_queues(&mut self, transaction: &mut Transaction) {
        for entity in std::mem::take(&mut transaction.unwanted) {
            if !transaction.blocked.iter().any(|(wanted, _)| *wanted == entity) {
                self.locks.leave_queue(&entity, transaction.nonce());
                self.freed.push_back(entity);
            }
        }
    }

    fn resume(
        &mut self,
        transaction: &mut Transaction,
        instance: Instance,
        operation: OperationId,
        result: Result<Bytes, Error>,
        world: &mut World<'_>,
    ) {
        let Some(frame) = transaction.live_frame(instance) else {
            // The caller has ended before the call, which its result may have begun while it was written. Its success
            // is fine; its failure fails the transaction, because nobody saw it.
            if let Err(error) = result {
                transaction.result = Some(Err(error));
            }
            return;
        };
        let step = self.turn(transaction, frame, world, |engine, host| engine.resume(frame, operation, result, host));
        transaction.stepped(frame, step, world);
    }

    fn start_nested(&mut self, transaction: &mut Transaction, pending: PendingCall, world: &mut World<'_>) -> Next {
        let Some(entity) = world.catalog.entity(pending.call.handler, &pending.call.key) else {
            let result = Err(Error::new(ErrorCode::UnknownHandler, "the callee's app version is gone"));
            transaction.ready.push_back(Action::answer(pending.parent, result));
            return Next::GoOn;
        };
        if let Some(first) = queues_behind_older(transaction) {
            if first == entity {
                let is_exclusive = world.catalog.kind(pending.call.handler) == HandlerKind::Transaction;
                let (nonce, age) = (transaction.nonce(), transaction.age());
                self.locks.queue(&entity, Waiter { nonce, age, is_exclusive, holds_any: false });
            }
            transaction.blocked.push((first, pending));
            return Next::GoOn;
        }
        let to = shard_of_key(&pending.call.key, self.options.shard_count);
        if to != self.options.shard {
            self.call_away(transaction, to, pending, world);
            return Next::GoOn;
        }
        let kind = world.catalog.kind(pending.call.handler);
        let is_exclusive = kind == HandlerKind::Transaction;
        let heeds_locks = is_exclusive || transaction.needs_locks() || self.locks.is_prepared(&entity);
        if !self.locks.is_empty() && heeds_locks {
            let (nonce, age) = (transaction.nonce(), transaction.age());
            let may_block_others = transaction.may_block_others();
            match self.locks.check(&entity, nonce, age, is_exclusive, may_block_others) {
                Grant::Free => {}
                Grant::Wait => {
                    transaction.may_wait_for_older = !may_block_others;
                    let waiter = Waiter { nonce, age, is_exclusive, holds_any: may_block_others };
                    self.locks.queue(&entity, waiter);
                    transaction.blocked.push((entity, pending));
                    return Next::GoOn;
                }
                Grant::Die => return Next::Die(entity, is_exclusive),
            }
        }
        let touched = transaction.touch(entity, is_exclusive);
        let frame = transaction.add_callee(touched, kind, &pending, world);
        let NestedCall { handler: id, key, input } = &pending.call;
        let start = Start::Handler { id: *id, key, input };
        let step = self.turn(transaction, frame, world, |engine, host| engine.start(frame, start, host));
        transaction.stepped(frame, step, world);
        Next::GoOn
    }

    /// Gives up everything and queues for `entity` to start again.
    fn die(&mut self, transaction: Box<Transaction>, entity: EntityKey, is_exclusive: bool, world: &mut World<'_>) {
        self.drop_frames(&transaction, world);
        self.give_up_locks(&transaction);
        self.restarts += 1;
        let mut transaction = transaction;
        match std::mem::replace(&mut transaction.role, Role::Alone) {
            Role::Branch(mut branch) => return self.branch_dies(&mut branch, entity, is_exclusive, world),
            Role::Home(home) => self.abandon(&home, world),
            Role::Alone => {}
        }
        self.park(transaction.into_origin(), entity, is_exclusive, world);
    }

    /// Keeps a transaction that waits, holding everything it has touched.
    pub(crate) fn suspend(&mut self, mut transaction: Box<Transaction>, world: &mut World<'_>) {
        let (nonce, age) = (transaction.nonce(), transaction.age());
        if !self.locks.is_empty() {
            // A query that ran without locks may have read beside a suspended writer. Waiting in
            // the middle, for that entity or for anything else, would let it see two different
            // states: it starts again, with locks.
            let taken = transaction.touched.iter().find(|touched| {
                touched.held_alone.is_none()
                    && !transaction.held.contains(&touched.entity)
                    && self.locks.check(&touched.entity, nonce, age, touched.is_exclusive, true) != Grant::Free
            });
            if let Some(taken) = taken {
                let (entity, is_exclusive) = (taken.entity.clone(), taken.is_exclusive);
                return self.die(transaction, entity, is_exclusive, world);
            }
        }
        for touched in transaction.touched.iter_mut().filter(|one| one.held_alone != Some(one.is_exclusive)) {
            self.locks.hold(&touched.entity, nonce, age, touched.is_exclusive);
            let was_held = touched.held_alone.replace(touched.is_exclusive).is_some();
            if !was_held && !transaction.held.contains(&touched.entity) {
                transaction.held.push(touched.entity.clone());
            }
        }
        transaction.takes_locks = true;
        let deadline = Self::deadline(&transaction.origin, world);
        self.suspended.insert(nonce, Suspended { transaction, deadline });
    }

    /// An entity that a suspended transaction queued for is free.
    pub(crate) fn unblock(&mut self, mut transaction: Box<Transaction>, entity: &EntityKey, world: &mut World<'_>) {
        let (nonce, age) = (transaction.nonce(), transaction.age());
        let (unblocked, blocked) =
            std::mem::take(&mut transaction.blocked).into_iter().partition(|(waited, _)| waited == entity);
        transaction.blocked = blocked;
        let unblocked: Vec<(EntityKey, PendingCall)> = unblocked;
        // Among them are calls of other entities, which were put off until it holds this one.
        let is_exclusive = unblocked.iter().any(|(_, PendingCall { call, .. })| {
            world.catalog.kind(call.handler) == HandlerKind::Transaction
                && world.catalog.entity(call.handler, &call.key).is_some_and(|wanted| wanted == *entity)
        });
        self.locks.take(entity, nonce, age, is_exclusive);
        if !transaction.held.contains(entity) {
            transaction.held.push(entity.clone());
        }
        transaction.ready.extend(unblocked.into_iter().map(|(_, call)| Action::Call(call)));
        self.drive(transaction, world);
    }

    /// Lets go of everything a transaction holds or queues for.
    pub(crate) fn give_up_locks(&mut self, transaction: &Transaction) {
        let nonce = transaction.nonce();
        self.give_up_held(nonce, transaction.blocked.iter().map(|(entity, _)| entity));
        self.give_up_held(nonce, &transaction.held);
    }

    pub(crate) fn give_up_held<'a>(&mut self, nonce: u64, held: impl IntoIterator<Item = &'a EntityKey>) {
        for entity in held {
            if self.locks.release(entity, nonce) {
                self.freed.push_back(entity.clone());
            }
        }
    }
}

/// Who holds nothing may queue behind an older transaction, which might otherwise wait for it in
/// turn. So it must not get hold of anything else meanwhile, as a parallel call would: that is put off
/// until it has what it queues for, which is this.
fn queues_behind_older(transaction: &Transaction) -> Option<EntityKey> {
    let first = transaction.blocked.first().filter(|_| transaction.may_wait_for_older);
    first.map(|(entity, _)| entity.clone())
}
