//! Answers a request that took effect before with its first reply.

use millrace_base::EntityKey;
use millrace_base::fingerprint;

use super::ExecutionContext;
use super::origin::Origin;
use super::transaction::Transaction;
use crate::outgoing::Outgoing;
use crate::request::RouteCall;
use crate::results::{ResultKey, entity_scope, workflow_scope};
use crate::world::World;

/// Whose a route's key is: what it calls first, or sends to first if it calls nothing.
pub(super) fn route_scope(transaction: &Transaction, world: &World<'_>) -> Option<Box<[u8]>> {
    let entity = match (transaction.first_call(), transaction.messages.first()) {
        (Some(call), _) => world.catalog.entity(call.handler, &call.key),
        (None, Some(Outgoing::Message(message, _))) => world.catalog.entity(message.handler, &message.key),
        (None, Some(Outgoing::Signal { to, .. })) => return Some(workflow_scope(to.sequence)),
        (None, None) => None,
    };
    entity.map(|entity| entity_scope(&entity))
}

/// The number of parts keeps it apart from those of calls and signals. The path begins behind the service.
fn route_fingerprint(app: &str, service: &str, call: &RouteCall) -> u64 {
    let [query, body, authorization, cookie] = call.content();
    let (method, path) = (call.method.as_bytes(), call.path.as_bytes());
    fingerprint(&[b"route", app.as_bytes(), service.as_bytes(), method, path, query, body, authorization, cookie])
}

/// App and service of a route.
fn route_names<'w>(call: &RouteCall, world: &World<'w>) -> Option<(&'w str, &'w str)> {
    let loaded = world.catalog.program(call.route.id.program)?;
    let service = loaded.services.get(usize::from(call.route.id.service))?;
    Some((loaded.app.as_str(), service.name.as_str()))
}

/// Answers a transaction that has run from what another request has left under its key since it was looked
/// up. Says whether it did: then nothing of it may take effect. One that was never suspended has been alone
/// since then. The lock of its entity keeps no other away that was sent, or whose first call was a query or
/// has yet to come.
pub(super) fn is_answered_meanwhile(transaction: &Transaction, context: &mut ExecutionContext<'_, '_>) -> bool {
    let may_be = transaction.takes_locks && !transaction.is_always_query();
    may_be && answers_from_result(&transaction.origin, context)
}

/// Answers a request that took effect before with its first reply. Says whether it did.
pub(super) fn answers_from_result(origin: &Origin, context: &mut ExecutionContext<'_, '_>) -> bool {
    result_key(origin, context).is_some_and(|key| answers_under(key, origin, context))
}

/// As [`answers_from_result`], for a call of `entity`.
pub(super) fn answers_call(origin: &Origin, entity: &EntityKey, context: &mut ExecutionContext<'_, '_>) -> bool {
    let Origin::Call(_, call) = origin else { return false };
    let key = call.info.idempotency_key.as_ref().and_then(|key| {
        let (_, _, handler) = context.world.catalog.names(call.handler)?;
        Some(context.books.results.names().of_call(entity, handler.as_str(), &call.input, key.as_str(), b"call"))
    });
    key.is_some_and(|key| answers_under(key, origin, context))
}

fn answers_under(key: ResultKey, origin: &Origin, context: &mut ExecutionContext<'_, '_>) -> bool {
    let Some(result) = context.books.results.kept_reply(&key, context.world.now, context.rows) else {
        context.books.results.remember(origin.nonce(), key);
        return false;
    };
    // The result may be younger than the last durable entry; so must its second sending be.
    let depends_on = context.books.results.lsn(context.rows);
    let token = origin.token().expect("whoever sends an idempotency key waits for the reply");
    context.context().reply(token, result, depends_on);
    true
}

/// Where the result of a request is kept; `None` when it carries no idempotency key.
pub(super) fn result_key(origin: &Origin, context: &ExecutionContext<'_, '_>) -> Option<ResultKey> {
    let key = origin.idempotency_key()?;
    let (names, catalog) = (context.books.results.names(), context.world.catalog);
    match origin {
        Origin::Call(_, invoke) => {
            let (_, _, handler) = catalog.names(invoke.handler)?;
            let entity = catalog.entity(invoke.handler, &invoke.key)?;
            Some(names.of_call(&entity, handler.as_str(), &invoke.input, key, b"call"))
        }
        Origin::Route(_, call) => {
            let (app, service) = route_names(call, context.world)?;
            Some(names.of_route(call.scope.as_deref()?, key, route_fingerprint(app, service, call)))
        }
        Origin::Message { .. } | Origin::WorkflowCall { .. } | Origin::Participation { .. } | Origin::Read { .. } => {
            None
        }
    }
}
