//! Running a transaction: turn after turn until it ends or has to wait.
//!
//! A nested call never re-enters the engine: the caller's turn ends waiting, the callee runs as
//! a frame of its own, and its result resumes the caller. All of that happens within one input
//! of the shard unless something outside is awaited, so most transactions are never suspended
//! and never hold a lock.

use std::collections::BTreeSet;

use bytes::Bytes;
use millrace_base::{EntityKey, Error, ErrorCode, UnixMillis};
use millrace_func::{Frame, HandlerId, HandlerKind, NestedCall, OperationId, Output, Start, Step};

use crate::host::{Home, TurnHost};
use crate::locks::{Grant, Waiter};
use crate::request::Origin;
use crate::shard::{Shard, Suspended};
use crate::transaction::{Action, Transaction};
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
    /// already, because it queued for them.
    pub(crate) fn run_root(
        &mut self,
        origin: Origin,
        entity: EntityKey,
        kind: HandlerKind,
        held: Vec<EntityKey>,
        world: &mut World<'_>,
    ) {
        let call = match self.root_call(&origin, world) {
            Ok(call) => call,
            Err(error) => {
                self.give_up_held(origin.info().nonce, held);
                return self.fail_origin(origin, error, world);
            }
        };
        let program = call.handler.program;
        let mut transaction = Transaction::new(origin, program, world.limits(program));
        transaction.takes_locks = !held.is_empty();
        transaction.held = held;
        let touched = transaction.touch(entity, kind == HandlerKind::Transaction);
        let frame = world.frames.take();
        transaction.add_frame(frame, Some(touched), kind, None);
        let start = Start::Handler { id: call.handler, key: &call.key, input: &call.input };
        let step = self.turn(&mut transaction, frame, world, |engine, host| engine.start(frame, start, host));
        self.stepped(&mut transaction, frame, step, world);
        self.drive(transaction, None, world);
    }

    /// What the root of a transaction runs: handler, key and input.
    fn root_call(&mut self, origin: &Origin, world: &World<'_>) -> Result<NestedCall, Error> {
        match origin {
            Origin::Call(invoke) => {
                Ok(NestedCall { handler: invoke.handler, key: invoke.key.to_vec(), input: invoke.input.clone() })
            }
            Origin::Message { field, .. } => self.message_call(field, world),
            Origin::Route(_) => Err(Error::new(ErrorCode::Internal, "a route is not a call")),
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
        let home = Some(Home { shard: self.options.shard, store: &mut self.store });
        let mut host = TurnHost { home, shard_count, transaction, world, frame };
        run(engine, &mut host)
    }

    /// Takes note of how a turn of `frame` ended.
    pub(crate) fn stepped(&mut self, transaction: &mut Transaction, frame: Frame, step: Step, world: &mut World<'_>) {
        transaction.stepped(frame, step, world);
    }

    /// Runs a transaction until it ends or waits for something outside this input.
    pub(crate) fn drive(&mut self, mut transaction: Transaction, deadline: Option<UnixMillis>, world: &mut World<'_>) {
        loop {
            if matches!(transaction.result, Some(Err(_))) {
                break;
            }
            let Some(action) = transaction.ready.pop_front() else {
                break;
            };
            let next = match action {
                Action::Call { caller, operation, call } => {
                    self.start_nested(&mut transaction, caller, operation, call, world)
                }
                Action::Resume { frame, operation, result } => {
                    self.resume(&mut transaction, frame, operation, result, world);
                    Next::GoOn
                }
            };
            if let Next::Die(entity, is_exclusive) = next {
                return self.die(transaction, entity, is_exclusive, world);
            }
        }
        let is_waiting = transaction.outside_operations > 0 || !transaction.blocked.is_empty();
        match transaction.result.take() {
            Some(Err(error)) => self.finish(transaction, Err(error), world),
            Some(Ok(output)) if !is_waiting && transaction.frames.is_empty() => {
                self.finish(transaction, Ok(output), world);
            }
            result => {
                transaction.result = result;
                if is_waiting {
                    self.suspend(transaction, deadline, world);
                } else {
                    // An engine reports a stalled frame itself; reaching this is its bug.
                    let error = Error::new(ErrorCode::Stalled, "the call awaits something that can never happen");
                    self.finish(transaction, Err(error), world);
                }
            }
        }
    }

    fn resume(
        &mut self,
        transaction: &mut Transaction,
        frame: Frame,
        operation: OperationId,
        result: Result<Bytes, Error>,
        world: &mut World<'_>,
    ) {
        let Some(state) = transaction.frame_mut(frame) else {
            // The caller returned without awaiting the call. Its success is fine; its failure
            // fails the transaction, because nobody saw it.
            if let Err(error) = result {
                transaction.result = Some(Err(error));
            }
            return;
        };
        state.open_operations -= 1;
        let step = self.turn(transaction, frame, world, |engine, host| engine.resume(frame, operation, result, host));
        self.stepped(transaction, frame, step, world);
    }

    fn start_nested(
        &mut self,
        transaction: &mut Transaction,
        caller: Frame,
        operation: OperationId,
        call: NestedCall,
        world: &mut World<'_>,
    ) -> Next {
        let Some(entity) = world.catalog.entity(call.handler, &call.key) else {
            let error = Error::new(ErrorCode::UnknownHandler, "the callee's app version is gone");
            transaction.ready.push_back(Action::Resume { frame: caller, operation, result: Err(error) });
            return Next::GoOn;
        };
        let kind = world.catalog.kind(call.handler);
        let is_exclusive = kind == HandlerKind::Transaction;
        if !self.locks.is_empty() && (is_exclusive || transaction.needs_locks()) {
            let (nonce, age) = (transaction.nonce(), transaction.age());
            let holds_any = !transaction.touched.is_empty();
            match self.locks.check(&entity, nonce, age, is_exclusive, holds_any) {
                Grant::Free => {}
                Grant::Wait => {
                    self.locks.queue(&entity, Waiter { nonce, age, is_exclusive });
                    transaction.blocked.push((entity, Action::Call { caller, operation, call }));
                    return Next::GoOn;
                }
                Grant::Die => return Next::Die(entity, is_exclusive),
            }
        }
        self.run_nested(transaction, entity, kind, (caller, operation), &call, world);
        Next::GoOn
    }

    fn run_nested(
        &mut self,
        transaction: &mut Transaction,
        entity: EntityKey,
        kind: HandlerKind,
        parent: (Frame, OperationId),
        call: &NestedCall,
        world: &mut World<'_>,
    ) {
        let touched = transaction.touch(entity, kind == HandlerKind::Transaction);
        let frame = world.frames.take();
        transaction.add_frame(frame, Some(touched), kind, Some(parent));
        let id: HandlerId = call.handler;
        let start = Start::Handler { id, key: &call.key, input: &call.input };
        let step = self.turn(transaction, frame, world, |engine, host| engine.start(frame, start, host));
        self.stepped(transaction, frame, step, world);
    }

    /// Gives up everything and queues for `entity` to start again.
    fn die(&mut self, transaction: Transaction, entity: EntityKey, is_exclusive: bool, world: &mut World<'_>) {
        self.drop_frames(&transaction, world);
        self.give_up_locks(&transaction);
        self.park(transaction.origin, entity, is_exclusive, world);
    }

    /// Keeps a transaction that waits, holding everything it has touched.
    fn suspend(&mut self, mut transaction: Transaction, deadline: Option<UnixMillis>, world: &mut World<'_>) {
        let (nonce, age) = (transaction.nonce(), transaction.age());
        let waits_for: BTreeSet<&EntityKey> = transaction.blocked.iter().map(|(entity, _)| entity).collect();
        let mut to_hold = Vec::new();
        for touched in &transaction.touched {
            if waits_for.contains(&touched.entity) && !transaction.held.contains(&touched.entity) {
                continue;
            }
            // A query that ran without locks may have read beside a suspended writer. Waiting in
            // the middle would let it see two different states: it starts again, with locks.
            if !self.locks.is_empty() && self.locks.conflicts(&touched.entity, nonce, touched.is_exclusive) {
                let (entity, is_exclusive) = (touched.entity.clone(), touched.is_exclusive);
                return self.die(transaction, entity, is_exclusive, world);
            }
            to_hold.push((touched.entity.clone(), touched.is_exclusive));
        }
        for (entity, is_exclusive) in to_hold {
            self.locks.hold(&entity, nonce, age, is_exclusive);
            if !transaction.held.contains(&entity) {
                transaction.held.push(entity);
            }
        }
        transaction.takes_locks = true;
        let deadline = deadline.unwrap_or_else(|| world.now.plus(transaction.limits.wait_ms));
        self.suspended.insert(nonce, Suspended { transaction, deadline });
    }

    /// An entity that a suspended transaction queued for is free.
    pub(crate) fn unblock(&mut self, suspended: Suspended, entity: &EntityKey, world: &mut World<'_>) {
        let Suspended { mut transaction, deadline } = suspended;
        let (nonce, age) = (transaction.nonce(), transaction.age());
        let (unblocked, blocked) =
            std::mem::take(&mut transaction.blocked).into_iter().partition(|(waited, _)| waited == entity);
        transaction.blocked = blocked;
        let unblocked: Vec<(EntityKey, Action)> = unblocked;
        let is_exclusive = unblocked.iter().any(|(_, action)| match action {
            Action::Call { call, .. } => world.catalog.kind(call.handler) == HandlerKind::Transaction,
            Action::Resume { .. } => false,
        });
        self.locks.hold(entity, nonce, age, is_exclusive);
        if !transaction.held.contains(entity) {
            transaction.held.push(entity.clone());
        }
        transaction.ready.extend(unblocked.into_iter().map(|(_, action)| action));
        self.drive(transaction, Some(deadline), world);
    }

    /// Lets go of everything a transaction holds or queues for.
    pub(crate) fn give_up_locks(&mut self, transaction: &Transaction) {
        let nonce = transaction.nonce();
        for (entity, _) in &transaction.blocked {
            self.locks.release(entity, nonce);
            self.freed.push_back(entity.clone());
        }
        self.give_up_held(nonce, transaction.held.iter().cloned());
    }

    fn give_up_held(&mut self, nonce: u64, held: impl IntoIterator<Item = EntityKey>) {
        for entity in held {
            self.locks.release(&entity, nonce);
            self.freed.push_back(entity);
        }
    }
}

impl Transaction {
    /// Takes note of how a turn of `frame` ended: a finished frame resumes its parent, or gives
    /// the transaction its result.
    pub(crate) fn stepped(&mut self, frame: Frame, step: Step, world: &mut World<'_>) {
        let Step::Done(result) = step else {
            return;
        };
        world.frames.give_back(frame);
        let Some(ended) = self.end_frame(frame, result.is_ok()) else {
            return;
        };
        let Some((parent, operation)) = ended.parent else {
            self.result = Some(result);
            return;
        };
        let result = result.and_then(|output| match output {
            Output::Value(json) => Ok(json),
            Output::Response(_) => Err(Error::new(ErrorCode::Internal, "a handler answered as a route")),
        });
        self.ready.push_back(Action::Resume { frame: parent, operation, result });
    }
}
