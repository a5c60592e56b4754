//! A route before it has a shard.
//!
//! A route has no entity, so it starts on the core that accepted the request, without a shard.
//! Its first `ctx.call` names an entity; that entity's shard coordinates the route's
//! transaction, which it adopts. A coordinator on another core means that the route starts again there:
//! up to then it has changed nothing, and it sees the same time and the same random bits.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, ShardId, UnixMillis, shard_of_key};
use millrace_func::{ActivationId, HandlerKind, OperationId, Program, RouteReply, Start};

use super::answers::{answers_from_result, route_scope};
use super::commit::as_reply;
use super::host::TurnHost;
use super::origin::Origin;
use super::transaction::Transaction;
use super::{Execution, ExecutionContext, Role};
use crate::request::{OffloadTicket, Reply, RouteCall, Token};
use crate::typed_reply::ReplyTo;
use crate::world::World;

/// A route that runs, or waits, and has called no entity yet.
pub struct UnplacedRoute {
    transaction: Box<Transaction>,
    shard_count: u16,
}

/// Where a route stands after a turn.
pub enum UnplacedStep {
    /// It ended without touching any entity.
    Done(Token, Result<Reply, Error>),
    /// It awaits offloaded work.
    Waiting(UnplacedRoute),
    /// It goes on in this shard: `Input::Adopt` there, or, on another core, begin again.
    Coordinator(UnplacedRoute, ShardId),
}

impl UnplacedRoute {
    /// Begins a route.
    pub fn start(to: ReplyTo<RouteReply>, call: RouteCall, shard_count: u16, world: &mut World<'_>) -> UnplacedStep {
        let program = call.route.id.program;
        let limits = world.limits(program);
        if call.body.len() > limits.input_bytes {
            let message = format!("the body has {} bytes; {} are allowed", call.body.len(), limits.input_bytes);
            return UnplacedStep::Done(to.token(), Err(Error::new(ErrorCode::TooLarge, message)));
        }
        let mut transaction = Transaction::new(Origin::Route(to, call.clone()), program, limits);
        let activation = transaction.add_root(None, HandlerKind::Transaction, world);
        let start = Start::Route { id: call.route.id, request: call.request() };
        let engine = world.engine;
        let mut host = TurnHost { own: None, shard_count, transaction: &mut transaction, world, activation };
        let step = engine.start(activation, start, &mut host);
        transaction.stepped(activation, step, world);
        Self { transaction, shard_count }.next()
    }

    /// Whether it waits for this. A ticket that it does not wait for is of an earlier run of the
    /// same route, and is to be dropped.
    #[must_use]
    pub fn awaits(&self, ticket: &OffloadTicket) -> bool {
        self.transaction.outside.contains(&(ticket.instance, ticket.operation))
    }

    /// Work it awaited has ended. To be called for tickets that it [`Unbound::awaits`] only.
    pub fn complete(
        mut self,
        activation: ActivationId,
        operation: OperationId,
        result: Result<Bytes, Error>,
        world: &mut World<'_>,
    ) -> UnplacedStep {
        let instance = self.transaction.activation(activation).map(|state| state.instance);
        let is_open = |open: &(u64, OperationId)| Some(open.0) == instance && open.1 == operation;
        if let Some(index) = self.transaction.outside.iter().position(is_open) {
            self.transaction.outside.swap_remove(index);
            let engine = world.engine;
            let transaction = &mut self.transaction;
            let mut host = TurnHost { own: None, shard_count: self.shard_count, transaction, world, activation };
            let step = engine.resume(activation, operation, result, &mut host);
            self.transaction.stepped(activation, step, world);
        }
        self.next()
    }

    fn next(mut self) -> UnplacedStep {
        if let Some(Err(error)) = self.transaction.result {
            self.transaction.result = None;
            let token = self.token();
            return UnplacedStep::Done(token, Err(error));
        }
        let called = self.transaction.first_call();
        let sent = self.transaction.messages.first().map(|outgoing| outgoing.shard(self.shard_count));
        let has_ended = self.transaction.result.is_some();
        let called = called.map(|call| shard_of_key(&call.key, self.shard_count));
        if let Some(coordinator) = called.or(sent.filter(|_| has_ended)) {
            return UnplacedStep::Coordinator(self, coordinator);
        }
        match self.transaction.result.take() {
            Some(Ok(output)) => UnplacedStep::Done(self.token(), Ok(as_reply(output))),
            _ => UnplacedStep::Waiting(self),
        }
    }

    /// The invocation's nonce, under which offloaded work reports back.
    #[must_use]
    pub fn nonce(&self) -> u64 {
        self.transaction.nonce()
    }

    /// Who waits for its reply.
    #[must_use]
    pub fn token(&self) -> Token {
        self.transaction.origin.token().expect("whoever sent the route waits for its reply")
    }

    /// The app version it runs in.
    #[must_use]
    pub fn program(&self) -> Program {
        self.transaction.program
    }

    /// Its `ctx.now()`.
    #[must_use]
    pub fn time(&self) -> UnixMillis {
        self.transaction.origin.time()
    }

    /// What the monotonic clock showed then.
    #[must_use]
    pub fn began_ms(&self) -> u64 {
        self.transaction.origin.began_ms()
    }

    /// How long it may wait in all.
    #[must_use]
    pub fn wait_ms(&self) -> u64 {
        self.transaction.limits.wait_ms
    }

    /// The shard that it was to go on in has stopped: gives up the run.
    pub(crate) fn refuse_stopped(self, world: &mut World<'_>) {
        let error = Error::new(ErrorCode::ShardStopped, "the shard has stopped; restart the node");
        world.outputs.reply(self.token(), Err(error));
        self.transaction.drop_activations(world);
    }

    /// Whether it waits for offloaded work whose tickets name no shard.
    #[must_use]
    pub fn awaits_offload(&self) -> bool {
        !self.transaction.outside.is_empty()
    }

    /// Gives up the run; what it takes to begin again comes back.
    pub fn cancel(self, world: &mut World<'_>) -> Option<(ReplyTo<RouteReply>, RouteCall)> {
        self.transaction.drop_activations(world);
        match self.transaction.origin {
            Origin::Route(to, call) => Some((to, call)),
            _ => None,
        }
    }
}

/// Finds out whose the route's idempotency key is. This is done once: later attempts keep what the first one found.
/// Code that does not do the same twice could find something else, and the first reply must be found all the same.
fn find_scope(transaction: &mut Transaction, world: &World<'_>) -> Result<(), Error> {
    if transaction.origin.idempotency_key().is_none() {
        return Ok(());
    }
    let gone = || Error::new(ErrorCode::UnknownHandler, "the callee's app version is gone");
    let scope = route_scope(transaction, world).ok_or_else(gone)?;
    if let Origin::Route(_, call) = &mut transaction.origin {
        call.scope = Some(scope);
    }
    Ok(())
}

impl Execution {
    /// Takes over a route whose first call is for an entity of this shard.
    pub(crate) fn adopt(&mut self, unplaced: UnplacedRoute, context: &mut ExecutionContext<'_, '_>) {
        let token = unplaced.token();
        let mut transaction = unplaced.transaction;
        if let Err(error) = find_scope(&mut transaction, context.world) {
            context.world.outputs.reply(token, Err(error));
            transaction.drop_activations(context.world);
        } else if answers_from_result(&transaction.origin, context) {
            transaction.drop_activations(context.world);
        } else {
            self.drive(Role::Alone, transaction, context);
        }
    }
}
