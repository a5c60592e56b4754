//! Running a transaction: turn after turn until it ends or has to wait.
//!
//! A nested call never re-enters the engine: the caller's turn ends waiting, the callee runs as
//! an activation of its own, and its result resumes the caller. All of that happens within one input
//! of the shard unless something outside is awaited. So most transactions are never suspended
//! and never hold a lock.

use bytes::Bytes;
use millrace_base::{EntityKey, Error, ErrorCode};
use millrace_func::{ActivationId, Engine, HandlerKind, NestedCall, OperationId, Output, Start, TurnResult};

use super::host::{OwnShard, TurnHost};
use super::lost::begins_again;
use super::start::deadline_ms;
use super::transaction::{Action, Instance, PendingCall, Transaction};
use super::{Execution, ExecutionContext, Role, Suspended};
use crate::locks::{Grant, Waiter};
use crate::request::OffloadTicket;

/// How a turn of the loop left the transaction.
enum Next {
    /// Look at the next action.
    GoOn,
    /// It lost the race for this entity and starts again when that is free.
    Die(EntityKey, bool),
}

impl Execution {
    /// Gives an activation a turn.
    pub(super) fn turn(
        &mut self,
        transaction: &mut Transaction,
        activation: ActivationId,
        context: &mut ExecutionContext<'_, '_>,
        run: impl FnOnce(&dyn Engine, &mut TurnHost<'_, '_>) -> TurnResult,
    ) -> TurnResult {
        let ExecutionContext { rows, world, .. } = context;
        let (engine, shard_count) = (world.engine, rows.options().shard_count);
        let own = OwnShard { shard: rows.shard(), store: rows.store(), participations: &self.participations };
        let mut host = TurnHost { own: Some(own), shard_count, transaction, world, activation };
        run(engine, &mut host)
    }

    /// Work outside has ended that a transaction or a workflow waits for.
    pub(crate) fn complete(
        &mut self,
        ticket: &OffloadTicket,
        result: Result<Bytes, Error>,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let OffloadTicket { nonce, instance, operation, .. } = *ticket;
        // An activation that was given up meanwhile, or an invocation that started again, waits no more.
        let is_awaited = |suspended: &Suspended| suspended.transaction.outside.contains(&(instance, operation));
        if self.suspended.get(&nonce).is_some_and(is_awaited)
            && let Some(Suspended { role, mut transaction, .. }) = self.suspended.remove(&nonce)
        {
            transaction.outside.retain(|open| *open != (instance, operation));
            transaction.ready.push_back(Action::Resume { activation: instance, operation, result });
            self.drive(role, transaction, context);
        } else {
            let (workflows, mut context) = context.workflows();
            workflows.work_ended(ticket, result, &mut context);
        }
    }

    /// Runs a transaction until it ends or waits for something outside this input.
    pub(super) fn drive(
        &mut self,
        mut role: Role,
        mut transaction: Box<Transaction>,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        transaction.cpu.has_yielded = false;
        loop {
            if !transaction.unwanted.is_empty() {
                self.leave_queues(&mut transaction);
            }
            role.take_back(&mut transaction, context);
            if matches!(transaction.result, Some(Err(_))) {
                break;
            }
            let has_turn_next = matches!(transaction.ready.front(), Some(Action::Call(_) | Action::Resume { .. }));
            if has_turn_next && transaction.cpu.is_slice_over() {
                transaction.cpu.has_yielded = true;
                break;
            }
            let Some(action) = transaction.ready.pop_front() else {
                break;
            };
            let next = match action {
                Action::Call(call) => self.start_nested(&mut role, &mut transaction, call, context),
                Action::Resume { activation, operation, result } => {
                    self.resume(&mut transaction, activation, operation, result, context);
                    Next::GoOn
                }
                Action::End(result) => {
                    transaction.result = Some(result.map(Output::Value));
                    Next::GoOn
                }
                Action::Answer(number, result) => {
                    role.answer(&mut transaction, number, result, context);
                    Next::GoOn
                }
            };
            if let Next::Die(entity, is_exclusive) = next {
                return self.die(role, transaction, (entity, is_exclusive), context);
            }
        }
        self.pause(role, transaction, context);
    }

    /// Nothing of a transaction can go on in this input: ends it if it has run, or keeps it.
    fn pause(&mut self, role: Role, mut transaction: Box<Transaction>, context: &mut ExecutionContext<'_, '_>) {
        let is_waiting = transaction.cpu.has_yielded
            || !transaction.outside.is_empty()
            || !transaction.blocked.is_empty()
            || transaction.waits_for_rows()
            || transaction.awaits_away()
            || role.is_waiting();
        match (role, transaction.result.take()) {
            (role, Some(Err(error)))
                if role.may_begin_again() && begins_again(&transaction, &error, context.world).is_some() =>
            {
                self.begin_again_later(role, transaction, error, context);
            }
            (role, Some(Err(error))) => self.finish(role, transaction, Err(error), context),
            (Role::Participant(participation), result) => {
                transaction.result = result;
                self.rest(participation, transaction, context);
            }
            (role, Some(Ok(output))) if !is_waiting && transaction.activations.is_empty() => {
                self.finish(role, transaction, Ok(output), context);
            }
            (role, result) if is_waiting => {
                transaction.result = result;
                self.suspend(role, transaction, context);
            }
            (role, _) => {
                // An engine reports a stalled activation itself; reaching this is its bug.
                let error = Error::new(ErrorCode::Stalled, "the call awaits something that can never happen");
                self.finish(role, transaction, Err(error), context);
            }
        }
    }

    /// Goes on with the transaction that first let others have a turn. Says so to the driver while there are more.
    pub(crate) fn go_on_yielded(&mut self, context: &mut ExecutionContext<'_, '_>) {
        self.go_on_warm(context);
        let has_yielded = |one: &mut Suspended| one.transaction.cpu.has_yielded;
        while let Some(nonce) = self.yielded.pop_front() {
            if self.suspended.get_mut(&nonce).is_some_and(has_yielded)
                && let Some(Suspended { role, transaction, .. }) = self.suspended.remove(&nonce)
            {
                self.drive(role, transaction, context);
                break;
            }
        }
        if !self.yielded.is_empty() {
            context.world.outputs.goes_on(context.rows.shard());
        }
    }

    /// Notes that a transaction has let others have a turn.
    fn note_yielded(&mut self, transaction: &mut Transaction, context: &mut ExecutionContext<'_, '_>) {
        transaction.cpu.end_slice();
        if transaction.cpu.has_yielded {
            self.yielded.push_back(transaction.nonce());
            context.world.outputs.goes_on(context.rows.shard());
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
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let Some(activation) = transaction.live_activation(instance) else {
            // The caller has ended before the call, which its result may have begun while it was written. Its success
            // is fine; its failure fails the transaction, because nobody saw it.
            if let Err(error) = result {
                transaction.result = Some(Err(error));
            }
            return;
        };
        let step = self
            .turn(transaction, activation, context, |engine, host| engine.resume(activation, operation, result, host));
        transaction.stepped(activation, step, context.world);
    }

    fn start_nested(
        &mut self,
        role: &mut Role,
        transaction: &mut Transaction,
        mut pending: PendingCall,
        context: &mut ExecutionContext<'_, '_>,
    ) -> Next {
        if let Some(own) = transaction.unlocked() {
            // It read its entity and holds nothing: what it reads from here on would be of another time.
            self.freed.push_back(own.clone());
            return Next::Die(own, false);
        }
        let Some(entity) = context.world.catalog.entity(pending.call.handler, &pending.call.key) else {
            let result = Err(Error::new(ErrorCode::UnknownHandler, "the callee's app version is gone"));
            transaction.ready.push_back(Action::answer(pending.parent, result));
            return Next::GoOn;
        };
        if let Some(first) = queues_behind_older(transaction) {
            if first == entity {
                let is_exclusive = context.world.catalog.kind(pending.call.handler) == HandlerKind::Transaction;
                let (nonce, age) = (transaction.nonce(), transaction.age());
                self.locks.queue(&entity, Waiter::new(nonce, age, is_exclusive));
            }
            transaction.blocked.push((first, pending));
            return Next::GoOn;
        }
        let to = context.rows.shard_of(&pending.call.key);
        if to != context.rows.shard() {
            self.call_away(role, transaction, to, pending, context);
            return Next::GoOn;
        }
        if transaction.waits_behind_own(&entity, &pending) {
            transaction.put_aside.push(PendingCall { waits_for_rows: false, ..pending });
            return Next::GoOn;
        }
        let kind = context.world.catalog.kind(pending.call.handler);
        let is_exclusive = kind == HandlerKind::Transaction;
        let heeds_locks = is_exclusive || transaction.needs_locks() || self.locks.is_prepared(&entity);
        if !self.locks.is_empty() && heeds_locks {
            let (nonce, age) = (transaction.nonce(), transaction.age());
            let may_block_others = transaction.may_block_others();
            match self.locks.check(&entity, nonce, age, is_exclusive, may_block_others) {
                Grant::Free => {}
                Grant::Wait => {
                    transaction.may_wait_for_older = !may_block_others;
                    let waiter = Waiter::new(nonce, age, is_exclusive).holding(may_block_others);
                    self.locks.queue(&entity, waiter);
                    transaction.blocked.push((entity, pending));
                    return Next::GoOn;
                }
                Grant::Die => return Next::Die(entity, is_exclusive),
            }
        }
        if self.waits_for_rows(&entity, (&mut pending, transaction.nonce()), context) {
            transaction.put_aside.push(pending);
            return Next::GoOn;
        }
        let touched = transaction.touch(entity, is_exclusive);
        let activation = transaction.add_callee(touched, kind, &pending, context.world);
        let NestedCall { handler: id, key, input } = &pending.call;
        let start = Start::Handler { id: *id, key, input };
        let step = self.turn(transaction, activation, context, |engine, host| engine.start(activation, start, host));
        transaction.stepped(activation, step, context.world);
        Next::GoOn
    }

    /// Gives up everything and queues for an entity to start again.
    fn die(
        &mut self,
        role: Role,
        transaction: Box<Transaction>,
        (entity, is_exclusive): (EntityKey, bool),
        context: &mut ExecutionContext<'_, '_>,
    ) {
        transaction.drop_activations(context.world);
        self.give_up_locks(&transaction);
        self.restarts += 1;
        if let Role::Participant(mut participation) = role {
            self.participations.end(participation.transaction());
            return participation.died(entity, is_exclusive, &mut context.context());
        }
        self.abandon(role, context);
        self.park(transaction.into_origin(), entity, is_exclusive, context.world);
    }

    /// Keeps a transaction that waits, holding everything it has touched.
    pub(super) fn suspend(
        &mut self,
        role: Role,
        mut transaction: Box<Transaction>,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let (nonce, age) = (transaction.nonce(), transaction.age());
        self.note_yielded(&mut transaction, context);
        if transaction.is_unlocked && role.is_alone() {
            let deadline_ms = deadline_ms(&transaction.origin, context.world);
            self.suspended.insert(nonce, Suspended { role, transaction, deadline_ms });
            return;
        }
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
                let entity = (taken.entity.clone(), taken.is_exclusive);
                return self.die(role, transaction, entity, context);
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
        let deadline_ms = deadline_ms(&transaction.origin, context.world);
        self.suspended.insert(nonce, Suspended { role, transaction, deadline_ms });
    }

    /// An entity that a suspended transaction queued for is free.
    pub(super) fn unblock(
        &mut self,
        role: Role,
        mut transaction: Box<Transaction>,
        entity: &EntityKey,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let (nonce, age) = (transaction.nonce(), transaction.age());
        let (unblocked, blocked) =
            std::mem::take(&mut transaction.blocked).into_iter().partition(|(waited, _)| waited == entity);
        transaction.blocked = blocked;
        let unblocked: Vec<(EntityKey, PendingCall)> = unblocked;
        // Among them are calls of other entities, which were put off until it holds this one.
        let is_exclusive = unblocked.iter().any(|(_, PendingCall { call, .. })| {
            context.world.catalog.kind(call.handler) == HandlerKind::Transaction
                && context.world.catalog.entity(call.handler, &call.key).is_some_and(|wanted| wanted == *entity)
        });
        self.locks.take(entity, nonce, age, is_exclusive);
        if !transaction.held.contains(entity) {
            transaction.held.push(entity.clone());
        }
        transaction.ready.extend(unblocked.into_iter().map(|(_, call)| Action::Call(call)));
        self.drive(role, transaction, context);
    }
}

/// Who holds nothing may queue behind an older transaction, which might otherwise wait for it in
/// turn. So it must not get hold of anything else meanwhile, as a parallel call would: that is put off
/// until it has what it queues for, which is this.
fn queues_behind_older(transaction: &Transaction) -> Option<EntityKey> {
    let first = transaction.blocked.first().filter(|_| transaction.may_wait_for_older);
    first.map(|(entity, _)| entity.clone())
}
