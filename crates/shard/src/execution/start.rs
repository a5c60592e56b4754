//! Starts what comes in: calls, messages, calls of workflows, routes that have found their shard; and starts
//! again what has lost the race for an entity.

use bytes::Bytes;
use millrace_base::{EntityKey, Error, ErrorCode, limits};
use millrace_format::MessageRecord;
use millrace_func::{Catalog, HandlerKind, NestedCall, RouteReply, Start, WorkerSlot};

use super::answers::{answers_call, answers_from_result};
use super::commit::input_or_null;
use super::origin::{Begun, Origin};
use super::reads::answer_read;
use super::transaction::{Parent, PendingCall, Transaction};
use super::{Execution, ExecutionContext, Parked, Role};
use crate::bookkeeping::SendTarget;
use crate::checks::{check_request, refused};
use crate::context::read_only;
use crate::locks::{Grant, Waiter};
use crate::request::{InvocationId, Invoke, OperationOf, RouteCall};
use crate::typed_reply::ReplyTo;
use crate::world::World;

/// The entity that a call is for, and what runs there.
///
/// # Errors
/// `bad-request`, `too-large`, `unknown-handler`.
fn check_call(invoke: &Invoke, catalog: &Catalog) -> Result<(EntityKey, HandlerKind), Error> {
    let unknown = || Error::new(ErrorCode::UnknownHandler, "the handler's app version is gone");
    let loaded = catalog.program(invoke.handler.program).ok_or_else(unknown)?;
    check_request(&invoke.key, &invoke.input, &loaded.limits)?;
    let entity = catalog.entity(invoke.handler, &invoke.key).ok_or_else(unknown)?;
    Ok((entity, catalog.kind(invoke.handler)))
}

/// What a request sends to.
///
/// # Errors
/// As for [`check_call`].
fn send_target<'a>(invoke: &Invoke, catalog: &'a Catalog) -> Result<SendTarget<'a>, Error> {
    let (entity, kind) = check_call(invoke, catalog)?;
    let unknown = || Error::new(ErrorCode::UnknownHandler, "the handler's app version is gone");
    let names = catalog.names(invoke.handler).ok_or_else(unknown)?;
    Ok(SendTarget { entity, kind, names })
}

/// The entity that a message is for, and what runs there.
///
/// # Errors
/// When the app does not serve it.
fn target_of(message: &MessageRecord, catalog: &Catalog) -> Result<(EntityKey, HandlerKind), Error> {
    let handler = catalog.find(&message.app, &message.service, &message.handler)?;
    let entity = catalog.entity(handler, &message.key);
    let entity = entity.ok_or_else(|| Error::new(ErrorCode::UnknownHandler, "the handler is not loaded"))?;
    Ok((entity, catalog.kind(handler)))
}

/// When a request has waited too long, by the monotonic clock. A participation waits for as long as its coordinator wants.
pub(super) fn deadline_ms(origin: &Origin, world: &World<'_>) -> u64 {
    let wait_ms = match origin {
        Origin::Call(_, invoke) => world.limits(invoke.handler.program).wait_ms,
        Origin::Route(_, call) => world.limits(call.route.id.program).wait_ms,
        Origin::WorkflowCall { call, .. } => world.limits(call.handler.program).wait_ms,
        Origin::Message { .. } | Origin::Read { .. } => limits::CALL_WAIT_MS,
        Origin::Participation { .. } => return u64::MAX,
    };
    origin.began_ms().saturating_add(wait_ms)
}

/// A transaction begins that no request began.
pub(super) fn begun(world: &mut World<'_>) -> Begun {
    Begun { time: world.now, began_ms: world.monotonic_ms, nonce: world.take_nonce() }
}

impl Execution {
    /// Starts a call, or parks it behind a suspended transaction.
    pub(crate) fn begin_call(
        &mut self,
        to: ReplyTo<Bytes>,
        mut invoke: Invoke,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        invoke.info.time = context.rows.clock().time_of(invoke.info.time, invoke.info.began_ms);
        let token = to.token();
        let (entity, kind) = match check_call(&invoke, context.world.catalog) {
            Ok((_, HandlerKind::Workflow)) => {
                let message = "a workflow is not called but started: send it instead";
                return context.world.outputs.reply(token, Err(Error::new(ErrorCode::BadRequest, message)));
            }
            Ok(checked) => checked,
            Err(error) => return context.world.outputs.reply(token, Err(error)),
        };
        let origin = Origin::Call(to, invoke);
        if self.parks(&origin, &entity, kind, context) {
            return;
        }
        if kind == HandlerKind::Transaction && answers_call(&origin, &entity, context) {
            return;
        }
        let Some(origin) = self.with_rows(origin, &entity, context) else { return };
        self.run_root(origin, (entity, kind), Vec::new(), Role::Alone, context);
    }

    /// Accepts a front's send: its message goes into the inbox.
    pub(crate) fn accept_send(
        &self,
        to: ReplyTo<InvocationId>,
        invoke: &Invoke,
        delay_ms: u64,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let target = send_target(invoke, context.world.catalog);
        let is_read_only = context.world.is_read_only;
        match target.and_then(|target| if is_read_only { Err(read_only()) } else { Ok(target) }) {
            Ok(target) => {
                let ExecutionContext { rows, books, world, .. } = context;
                books.accept_send(to, (invoke, delay_ms), &target, &mut rows.context(world));
            }
            Err(error) => context.world.outputs.reply(to.token(), Err(error)),
        }
    }

    /// Runs everything that the input made runnable: whoever queued for an entity that was freed, workflows, and messages
    /// that are due. Of these two a bounded number only: messages that send messages would keep the core for ever.
    pub(crate) fn settle(&mut self, context: &mut ExecutionContext<'_, '_>) {
        let (mut messages, mut workflows) = (limits::MESSAGES_PER_INPUT, limits::WORKFLOWS_PER_INPUT);
        self.look_at_gate(context);
        loop {
            self.wake_freed(context);
            self.begin_lost_again(context);
            self.look_for_slots(context);
            let has_run = self.run_workflows(&mut workflows, context);
            if !self.start_message(&mut messages, context) && !has_run && self.freed.is_empty() {
                break;
            }
        }
    }

    /// Runs workflows that can go on, and makes their calls. Says whether any ran.
    fn run_workflows(&mut self, budget: &mut usize, context: &mut ExecutionContext<'_, '_>) -> bool {
        let had = *budget;
        loop {
            let (workflows, mut of_workflows) = context.workflows();
            if !workflows.run(budget, &mut of_workflows) {
                return *budget < had;
            }
            self.make_calls(context);
        }
    }

    /// Starts the next message that is due, if `budget` allows. Says whether it did.
    fn start_message(&mut self, budget: &mut usize, context: &mut ExecutionContext<'_, '_>) -> bool {
        context.books.inbox.set_paused(context.world.is_read_only);
        if *budget == 0 || context.world.is_behind {
            return false;
        }
        let Some(field) = context.books.inbox.start_next(&mut context.rows.context(context.world)) else {
            return false;
        };
        *budget -= 1;
        match root_of_message(&field, context) {
            Ok(Some(root)) if context.books.inbox.has_turn(&field, &root.0) => {
                let origin = Origin::Message { field, begun: begun(context.world), slot: WorkerSlot::default() };
                if let Some(origin) = self.with_slot(origin, context)
                    && !self.parks(&origin, &root.0, root.1, context)
                    && let Some(origin) = self.with_rows(origin, &root.0, context)
                {
                    self.run_root(origin, root, Vec::new(), Role::Alone, context);
                }
            }
            Ok(_) => {}
            Err(error) => context.books.message_failed(&field, error, context.rows, context.world),
        }
        true
    }

    /// Makes the calls that workflows want made.
    pub(crate) fn make_calls(&mut self, context: &mut ExecutionContext<'_, '_>) {
        loop {
            let (workflows, mut of_workflows) = context.workflows();
            let Some(call) = workflows.next_call(&mut of_workflows) else {
                break;
            };
            self.begin_workflow_call(call, context);
        }
    }

    /// Makes a workflow's call, as a transaction of its own.
    fn begin_workflow_call(
        &mut self,
        (asked, call): (OperationOf, NestedCall),
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let begun = begun(context.world);
        let kind = context.world.catalog.kind(call.handler);
        let entity = context.world.catalog.entity(call.handler, &call.key);
        let away = (context.rows.shard_of(&call.key) != context.rows.shard()).then(|| call.clone());
        let origin = Origin::WorkflowCall { asked, call, begun, slot: WorkerSlot::default() };
        if kind == HandlerKind::Workflow {
            let error = refused("the newest version of the callee is a workflow: it is not called but started");
            return self.fail_origin(origin, error, context);
        }
        let Some(origin) = self.with_slot(origin, context) else { return };
        if let Some(call) = away {
            return self.run_call_away(origin, call, Vec::new(), Role::Alone, context);
        }
        match entity {
            Some(entity) if self.parks(&origin, &entity, kind, context) => {}
            Some(entity) => {
                if let Some(origin) = self.with_rows(origin, &entity, context) {
                    self.run_root(origin, (entity, kind), Vec::new(), Role::Alone, context);
                }
            }
            None => {
                let error = Error::new(ErrorCode::UnknownHandler, "the callee's app version is gone");
                self.fail_origin(origin, error, context);
            }
        }
    }

    /// Makes a workflow's call to another shard. `held` are entities of this shard that it holds
    /// already: it came back to one when it was made before, and queued for it.
    fn run_call_away(
        &mut self,
        origin: Origin,
        call: NestedCall,
        held: Vec<EntityKey>,
        mut role: Role,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let program = call.handler.program;
        let to = context.rows.shard_of(&call.key);
        let mut transaction = Transaction::new(origin, program, context.world.limits(program));
        transaction.takes_locks = true;
        transaction.held = held;
        transaction.is_spread = !role.is_alone();
        let pending = PendingCall::new(Parent::Nobody, None, 0, call);
        self.call_away(&mut role, &mut transaction, to, pending, context);
        self.drive(role, transaction, context);
    }

    /// Parks a transaction that has yet to start if its entity is taken. Says whether it did.
    /// A query overlooks who may yet change the entity, but not who may have changed it already.
    pub(super) fn parks(
        &mut self,
        origin: &Origin,
        entity: &EntityKey,
        kind: HandlerKind,
        context: &mut ExecutionContext<'_, '_>,
    ) -> bool {
        let is_exclusive = kind == HandlerKind::Transaction;
        if self.locks.is_empty() || !(is_exclusive || self.locks.is_prepared(entity)) {
            return false;
        }
        if self.locks.check(entity, origin.nonce(), origin.age(), is_exclusive, false) == Grant::Free {
            return false;
        }
        if self.locks.queued(entity) >= limits::ENTITY_QUEUE {
            let error = Error::new(ErrorCode::Overloaded, "too many calls wait for this entity");
            self.fail_origin(origin.clone(), error, context);
            return true;
        }
        self.park(origin.clone(), entity.clone(), is_exclusive, context.world);
        true
    }

    /// Queues a transaction for `entity`, to be started (again) when it is free.
    pub(super) fn park(&mut self, origin: Origin, entity: EntityKey, is_exclusive: bool, world: &World<'_>) {
        let (nonce, age) = (origin.nonce(), origin.age());
        self.locks.queue(&entity, Waiter::new(nonce, age, is_exclusive));
        let deadline_ms = deadline_ms(&origin, world);
        self.parked.insert(nonce, Parked { origin, entity, is_exclusive, deadline_ms, away: None });
    }

    /// The entity that a parked transaction queued for is free.
    pub(super) fn unpark(&mut self, parked: Parked, context: &mut ExecutionContext<'_, '_>) {
        let Parked { origin, entity, is_exclusive, .. } = parked;
        let (nonce, age) = (origin.nonce(), origin.age());
        match origin {
            Origin::Read { to, fields, .. } => {
                self.give_up_held(nonce, [&entity]);
                answer_read(to, &entity, &fields, &mut context.context());
            }
            Origin::Participation { id, begin, begun } => {
                self.reserved((id, begin, begun.nonce), entity, is_exclusive, context);
            }
            origin => {
                // Held from here on, so that nobody who queues behind comes first.
                self.locks.take(&entity, nonce, age, is_exclusive);
                if self.starts_again(origin, vec![entity.clone()], Role::Alone, context).is_err() {
                    self.give_up_held(nonce, [&entity]);
                }
            }
        }
    }

    /// Starts a transaction again that holds `held`, and in other shards what `role` says.
    ///
    /// # Errors
    /// The role, when it did not start: it has been answered or has parked once more, and has no
    /// more use for what it held.
    ///
    /// # Panics
    /// When it is a read or a participation: neither gives way.
    pub(super) fn starts_again(
        &mut self,
        origin: Origin,
        held: Vec<EntityKey>,
        role: Role,
        context: &mut ExecutionContext<'_, '_>,
    ) -> Result<(), Role> {
        let catalog = context.world.catalog;
        let root = match &origin {
            Origin::Call(_, invoke) => check_call(invoke, catalog),
            Origin::Message { field, .. } => {
                context.books.inbox.message(field, context.rows).and_then(|message| target_of(&message, catalog))
            }
            Origin::WorkflowCall { call, .. } => {
                if context.rows.shard_of(&call.key) != context.rows.shard() {
                    let call = call.clone();
                    self.run_call_away(origin, call, held, role, context);
                    return Ok(());
                }
                let entity = catalog.entity(call.handler, &call.key);
                let kind = catalog.kind(call.handler);
                let gone = || Error::new(ErrorCode::UnknownHandler, "the callee's app version is gone");
                entity.map(|entity| (entity, kind)).ok_or_else(gone)
            }
            Origin::Route(..) if answers_from_result(&origin, context) => return Err(role),
            Origin::Route(to, call) => {
                self.run_route_again(*to, call.clone(), held, role, context);
                return Ok(());
            }
            Origin::Participation { .. } | Origin::Read { .. } => {
                unreachable!("only calls, messages and routes start again")
            }
        };
        let (own, kind) = match root {
            Ok(root) => root,
            Err(error) => {
                self.fail_origin(origin, error, context);
                return Err(role);
            }
        };
        let is_exclusive = kind == HandlerKind::Transaction;
        if self.locks.check(&own, origin.nonce(), origin.age(), is_exclusive, true) != Grant::Free {
            // It died for another entity than its own, and somebody has taken its own meanwhile.
            self.park(origin, own, is_exclusive, context.world);
            return Err(role);
        }
        if is_exclusive && answers_from_result(&origin, context) {
            return Err(role);
        }
        self.run_root(origin, (own, kind), held, role, context);
        Ok(())
    }

    /// Starts a transaction whose root is a handler on `entity`. `held` are entities it holds
    /// already, because it queued for them, and `role` says what it holds in other shards.
    pub(super) fn run_root(
        &mut self,
        origin: Origin,
        (entity, kind): (EntityKey, HandlerKind),
        held: Vec<EntityKey>,
        role: Role,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let call = match root_call(&origin, context) {
            Ok(call) => call,
            Err(error) => {
                self.give_up_held(origin.nonce(), &held);
                self.abandon(role, context);
                return self.fail_origin(origin, error, context);
            }
        };
        let program = call.handler.program;
        let mut transaction = Transaction::new(origin, program, context.world.limits(program));
        transaction.is_spread = !role.is_alone();
        transaction.takes_locks = !held.is_empty() || transaction.is_spread;
        transaction.held = held;
        let touched = transaction.touch(entity, kind == HandlerKind::Transaction);
        let activation = transaction.add_root(Some(touched), kind, context.world);
        let start = Start::Handler { id: call.handler, key: &call.key, input: &call.input };
        let step =
            self.turn(&mut transaction, activation, context, |engine, host| engine.start(activation, start, host));
        transaction.stepped(activation, step, context.world);
        self.drive(role, transaction, context);
    }

    /// Starts a route again that holds what it lost the race for. It runs here from its beginning,
    /// wherever its first call goes this time.
    fn run_route_again(
        &mut self,
        to: ReplyTo<RouteReply>,
        call: RouteCall,
        held: Vec<EntityKey>,
        role: Role,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let program = call.route.id.program;
        let limits = context.world.limits(program);
        let mut transaction = Transaction::new(Origin::Route(to, call.clone()), program, limits);
        transaction.takes_locks = true;
        transaction.is_spread = !role.is_alone();
        transaction.held = held;
        let activation = transaction.add_root(None, HandlerKind::Transaction, context.world);
        let start = Start::Route { id: call.route.id, request: call.request() };
        let step =
            self.turn(&mut transaction, activation, context, |engine, host| engine.start(activation, start, host));
        transaction.stepped(activation, step, context.world);
        self.drive(role, transaction, context);
    }
}

/// What a message of the inbox runs, and on which entity. `None`: it is a signal, or begins a workflow, and is done.
///
/// # Errors
/// When it cannot be read, or its app does not serve it.
fn root_of_message(
    field: &[u8],
    context: &mut ExecutionContext<'_, '_>,
) -> Result<Option<(EntityKey, HandlerKind)>, Error> {
    let message = context.books.inbox.message(field, context.rows)?;
    let root = if message.is_signal { None } else { Some(target_of(&message, context.world.catalog)?) };
    let (workflows, mut of_workflows) = context.workflows();
    match root {
        None => workflows.signal_arrived(field, message, &mut of_workflows),
        Some((_, HandlerKind::Workflow)) => workflows.begin(field, message, &mut of_workflows),
        root => return Ok(root),
    }
    Ok(None)
}

/// What the root of a transaction runs: handler, key and input.
///
/// # Errors
/// When a message cannot be read, or its app does not serve it.
///
/// # Panics
/// When nothing runs for it: routes, participations and reads have no such root.
pub(super) fn root_call(origin: &Origin, context: &mut ExecutionContext<'_, '_>) -> Result<NestedCall, Error> {
    match origin {
        Origin::Call(_, invoke) => {
            Ok(NestedCall { handler: invoke.handler, key: invoke.key.to_vec(), input: invoke.input.clone() })
        }
        Origin::Message { field, .. } => {
            let message = context.books.inbox.message(field, context.rows)?;
            let handler = context.world.catalog.find(&message.app, &message.service, &message.handler)?;
            Ok(NestedCall { handler, key: message.key, input: input_or_null(&message.input) })
        }
        Origin::WorkflowCall { call, .. } => Ok(call.clone()),
        Origin::Route(..) | Origin::Participation { .. } | Origin::Read { .. } => {
            unreachable!("only calls and messages run a handler as their root")
        }
    }
}
