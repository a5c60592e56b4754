//! Outcomes kept under idempotency keys and invocation ids: lookup, and collection once expired.
//!
//! An outcome is a field of one bookkeeping entity, written in the entry of the effect itself, so
//! effect and outcome are durable together or not at all. Expired ones are deleted in entries of
//! their own; one that is still there is treated as absent.
//!
//! Collection looks at the oldest of those in memory, in the order they were written, and stops at
//! the first that is still wanted. What memory does not hold (it has been evicted, or was there
//! before the start) is found by a sweep over the checkpoint's rows. It begins when something may
//! have expired, and not more often than twice in a retention. Both look at a bounded number each
//! tick, and at more than are added.

use std::hash::Hasher;
use std::ops::ControlFlow;

use millrace_base::{EntityKey, Error, ErrorCode, UnixMillis, fingerprint, limits};
use millrace_format::{Outcome, OutcomeResult, Write};
use millrace_store::StoreError;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::commit::decode_failed;
use crate::host::store_failed;
use crate::outgoing::Outgoing;
use crate::request::{InvocationId, Origin, Reply, RouteCall, Sequence};
use crate::shard::Shard;
use crate::transaction::Transaction;
use crate::world::World;

/// Outcomes looked at in one tick when none were added.
const SWEEP_ROWS: usize = 256;

/// What the name of an outcome under an entity's key begins with.
const ENTITY: &[u8] = b"k";

/// The same of a workflow's, which is signalled.
const WORKFLOW: &[u8] = b"g";

/// What an [`old_route_key`] begins with, and no other.
const OLD_ROUTE: &[u8] = b"r";

/// What the hash of a name begins with.
const HASHED: u8 = b'h';

/// How outcomes under idempotency keys are named. A data directory has one way for all its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeNames {
    /// By whose key it is, and the key.
    Plain,
    /// By 128 bits of SipHash-2-4 of that, under this key. There are as many outcomes as requests of a day, each in
    /// memory, in the log and in the checkpoint, and most of one is its name. Who does not know the key cannot
    /// find two requests of one name (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012).
    Hashed([u8; 16]),
}

impl OutcomeNames {
    /// `scope` is an [`entity_scope`] or a [`workflow_scope`], in parts.
    fn name(self, scope: &[&[u8]], key: &str) -> Box<[u8]> {
        let key = key.as_bytes();
        let hash_key = match self {
            OutcomeNames::Plain => return [&scope.concat(), key].concat().into(),
            OutcomeNames::Hashed(hash_key) => hash_key,
        };
        let mut hasher = SipHasher24::new_with_key(&hash_key);
        scope.iter().for_each(|part| hasher.write(part));
        hasher.write(key);
        let mut name = [HASHED; 17];
        name[1..].copy_from_slice(&hasher.finish128().as_bytes());
        Box::new(name)
    }

    /// Calls and sends, and routes that begin with the entity, share its keys; what is asked is in the fingerprint.
    pub(crate) fn of_call(self, entity: &EntityKey, handler: &str, input: &[u8], key: &str, verb: &[u8]) -> OutcomeKey {
        OutcomeKey {
            field: self.name(&[ENTITY, entity.as_bytes()], key),
            fingerprint: fingerprint(&[verb, handler.as_bytes(), input]),
        }
    }

    /// A signal's key is scoped to its workflow.
    pub(crate) fn of_signal(self, id: Sequence, name: &str, payload: &[u8], key: &str) -> OutcomeKey {
        OutcomeKey {
            field: self.name(&[WORKFLOW, &id.encode()], key),
            fingerprint: fingerprint(&[name.as_bytes(), payload]),
        }
    }
}

/// Where a request's outcome is kept, and what tells it from another request under that key.
pub(crate) struct OutcomeKey {
    pub field: Box<[u8]>,
    pub fingerprint: u64,
}

/// What the shard remembers to look outcomes up and to collect them.
#[derive(Default)]
pub(crate) struct Outcomes {
    /// The key of the transaction that was last looked up and not found: mostly it is the one that
    /// commits next.
    last_key: Option<(u64, OutcomeKey)>,
    /// Written and not yet made up for by looking at as many twice.
    added: usize,
    /// Found expired, and left over because an entry was full.
    left_over: Vec<Box<[u8]>>,
    sweep: Sweep,
    /// There may be some of [`old_route_key`]; no more are made.
    has_old_routes: bool,
}

/// How far the sweep over the checkpoint's rows has come.
#[derive(Default)]
struct Sweep {
    is_running: bool,
    after: Option<Box<[u8]>>,
    began: UnixMillis,
    /// When the first of those seen in it, or written since it began, expires.
    first_expires: UnixMillis,
    /// The next one begins no earlier.
    next: UnixMillis,
}

/// The outcome field of an invocation that was sent.
pub(crate) fn invocation_field(sequence: Sequence) -> Box<[u8]> {
    [&b"i"[..], &sequence.encode()].concat().into()
}

/// Kept with an invocation's outcome, so that the node can tell who may read it.
#[must_use]
pub fn service_fingerprint(app: &str, service: &str) -> u64 {
    fingerprint(&[app.as_bytes(), service.as_bytes()])
}

/// What the names of keys of an entity begin with, before they are hashed. No key of one entity can hide another's, as
/// no [`EntityKey`] is the beginning of another.
fn entity_scope(entity: &EntityKey) -> Box<[u8]> {
    [ENTITY, entity.as_bytes()].concat().into()
}

/// The same of a workflow that is signalled.
fn workflow_scope(id: Sequence) -> Box<[u8]> {
    [WORKFLOW, &id.encode()].concat().into()
}

/// Whose a route's key is: what it calls first, or sends to first if it calls nothing.
pub(crate) fn route_scope(transaction: &Transaction, world: &World<'_>) -> Option<Box<[u8]>> {
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

/// Where the outcome of a route was kept when keys of routes belonged to their service, in the shard of the
/// first call.
fn old_route_key(app: &str, service: &str, call: &RouteCall, key: &str) -> OutcomeKey {
    let [query, body, authorization, cookie] = call.content();
    OutcomeKey {
        field: [OLD_ROUTE, app.as_bytes(), b"\0", service.as_bytes(), b"\0", key.as_bytes()].concat().into(),
        fingerprint: fingerprint(&[call.method.as_bytes(), call.path.as_bytes(), query, body, authorization, cookie]),
    }
}

/// App and service of a route.
fn route_names<'w>(call: &RouteCall, world: &World<'w>) -> Option<(&'w str, &'w str)> {
    let loaded = world.catalog.program(call.route.id.program)?;
    let service = loaded.services.get(usize::from(call.route.id.service))?;
    Some((loaded.app.as_str(), service.name.as_str()))
}

impl Shard {
    /// Looks whether outcomes are left of versions that kept them elsewhere.
    pub(crate) fn find_old_outcomes(&mut self) -> Result<(), StoreError> {
        self.outcomes.has_old_routes = self.store.ledger_has(&self.bookkeeping.outcomes, OLD_ROUTE)?;
        Ok(())
    }

    /// Answers a transaction that has run from what another request has left under its key since it was looked
    /// up. Says whether it did: then nothing of it may take effect. One that was never suspended has been alone
    /// since then. The lock of its entity keeps no other away that was sent, or whose first call was a query or
    /// has yet to come.
    pub(crate) fn is_answered_meanwhile(&mut self, transaction: &Transaction, world: &mut World<'_>) -> bool {
        let may_be = transaction.takes_locks && !transaction.is_always_query();
        may_be && self.answers_from_outcome(&transaction.origin, world)
    }

    /// As [`Shard::outcome_key`], for a transaction that was most likely looked up before it ran.
    pub(crate) fn known_outcome_key(&mut self, origin: &Origin, world: &World<'_>) -> Option<OutcomeKey> {
        match self.outcomes.last_key.take() {
            Some((nonce, key)) if nonce == origin.info().nonce => Some(key),
            _ => self.outcome_key(origin, world),
        }
    }

    /// Answers a request that took effect before with its first reply. Says whether it did.
    pub(crate) fn answers_from_outcome(&mut self, origin: &Origin, world: &mut World<'_>) -> bool {
        let key = self.outcome_key(origin, world);
        key.is_some_and(|key| self.answers_under(key, origin, world))
    }

    /// As [`Shard::answers_from_outcome`], for a call of `entity`.
    pub(crate) fn answers_call(&mut self, invoke: &Origin, entity: &EntityKey, world: &mut World<'_>) -> bool {
        let Origin::Call(call) = invoke else { return false };
        let key = call.info.idempotency_key.as_deref().and_then(|key| {
            let (_, _, handler) = world.catalog.names(call.handler)?;
            Some(self.options.outcome_names.of_call(entity, handler.as_str(), &call.input, key, b"call"))
        });
        key.is_some_and(|key| self.answers_under(key, invoke, world))
    }

    fn answers_under(&mut self, key: OutcomeKey, origin: &Origin, world: &mut World<'_>) -> bool {
        let kept = self.kept_by_old_version(origin, world).or_else(|| self.kept_reply(&key, world.now));
        let Some(result) = kept else {
            self.outcomes.last_key = Some((origin.info().nonce, key));
            return false;
        };
        // The outcome may be younger than the last durable entry; so must its second sending be.
        let depends_on = self.store.entity_lsn(&self.bookkeeping.outcomes);
        self.reply_when_durable(origin.info().token, result, depends_on, world);
        true
    }

    /// Where the outcome of a request is kept; `None` when it carries no idempotency key.
    pub(crate) fn outcome_key(&self, origin: &Origin, world: &World<'_>) -> Option<OutcomeKey> {
        let key = origin.info().idempotency_key.as_deref()?;
        match origin {
            Origin::Call(invoke) => {
                let (_, _, handler) = world.catalog.names(invoke.handler)?;
                let entity = world.catalog.entity(invoke.handler, &invoke.key)?;
                Some(self.options.outcome_names.of_call(&entity, handler.as_str(), &invoke.input, key, b"call"))
            }
            Origin::Route(call) => {
                let (app, service) = route_names(call, world)?;
                let field = self.options.outcome_names.name(&[call.scope.as_deref()?], key);
                Some(OutcomeKey { field, fingerprint: route_fingerprint(app, service, call) })
            }
            Origin::Message { .. } | Origin::Step { .. } | Origin::Branch { .. } | Origin::Read { .. } => None,
        }
    }

    /// The reply to a route that an earlier version has kept. Its key was the service's: another request to it
    /// is refused, as it was then, whatever it calls first. That may be needless, but does nothing twice.
    fn kept_by_old_version(&mut self, origin: &Origin, world: &World<'_>) -> Option<Result<Reply, Error>> {
        let Origin::Route(call) = origin else { return None };
        if !self.outcomes.has_old_routes {
            return None;
        }
        let (app, service) = route_names(call, world)?;
        let key = old_route_key(app, service, call, call.info.idempotency_key.as_deref()?);
        self.kept_reply(&key, world.now)
    }

    /// The reply kept under `key`, if this request took effect before.
    pub(crate) fn kept_reply(&mut self, key: &OutcomeKey, now: UnixMillis) -> Option<Result<Reply, Error>> {
        let outcome = match self.outcome(&key.field) {
            Ok(outcome) => outcome?,
            Err(error) => return Some(Err(error)),
        };
        if outcome.expires <= now {
            return None;
        }
        if outcome.fingerprint != key.fingerprint {
            let message = "this Idempotency-Key came before with another handler, path or body (to a route, also another query, \
                 Authorization or Cookie): use a new key for a new request";
            return Some(Err(Error::new(ErrorCode::IdempotencyMismatch, message)));
        }
        Some(match outcome.result {
            OutcomeResult::Value(output) => Ok(Reply::Value(output)),
            OutcomeResult::Reply { status, headers, body } => {
                Ok(Reply::Route(millrace_func::RouteReply { status, headers, body }))
            }
            OutcomeResult::Error(error) => Err(error),
            OutcomeResult::Sent(lsn, index) => {
                Ok(Reply::Sent(InvocationId { shard: self.options.shard, sequence: Sequence { lsn, index } }))
            }
            OutcomeResult::Pending => return None,
        })
    }

    pub(crate) fn outcome(&mut self, field: &[u8]) -> Result<Option<Outcome>, Error> {
        let found = self.store.get(&self.bookkeeping.outcomes, field).map_err(|error| store_failed(&error))?;
        found.map(|value| Outcome::decode(value.content()).map_err(|error| decode_failed(&error))).transpose()
    }

    pub(crate) fn outcome_write(&mut self, field: Box<[u8]>, outcome: &Outcome) -> Write {
        self.outcomes.added += 1;
        Write { entity: self.bookkeeping.outcomes.clone(), field, value: Some(outcome.to_value()) }
    }

    /// That a signal was taken under its key.
    pub(crate) fn signalled_write(&mut self, key: OutcomeKey, world: &World<'_>) -> Write {
        let expires = world.now.plus(self.options.retention_ms);
        let result = OutcomeResult::Value(bytes::Bytes::from_static(b"null"));
        let outcome = Outcome { expires, fingerprint: key.fingerprint, result };
        self.outcome_write(key.field, &outcome)
    }

    /// Deletes some of the expired outcomes, and what belongs to those of workflows.
    pub(crate) fn collect_outcomes(&mut self, world: &mut World<'_>) {
        if world.is_read_only {
            return;
        }
        let count = (SWEEP_ROWS + 2 * self.outcomes.added).min(limits::SCAN_ROWS);
        self.outcomes.added = self.outcomes.added.saturating_sub(count / 2);
        let mut expired = self.left_over_and_expired(world.now);
        if expired.is_empty() {
            expired = self.oldest_expired(count, world.now);
            self.sweep_rows(count, world.now, &mut expired);
        }
        let mut writes = Vec::new();
        let mut expired = expired.into_iter();
        // The journals of workflows may fill an entry: the rest comes with the next one.
        while writes.len() < limits::WRITES_PER_CALL {
            let Some(field) = expired.next() else { break };
            if let Some(id) = field.strip_prefix(b"i").and_then(Sequence::decode) {
                self.add_workflow_deletions(id, &mut writes);
            }
            writes.push(Write { entity: self.bookkeeping.outcomes.clone(), field, value: None });
        }
        self.outcomes.left_over = expired.collect();
        if !writes.is_empty() {
            self.append(writes, world);
        }
    }

    /// What was left over last time, without what has been written again since.
    fn left_over_and_expired(&mut self, now: UnixMillis) -> Vec<Box<[u8]>> {
        let mut left_over = std::mem::take(&mut self.outcomes.left_over);
        left_over.retain(|field| match self.outcome(field) {
            Ok(Some(outcome)) => outcome.expires <= now && outcome.result != OutcomeResult::Pending,
            Ok(None) | Err(_) => false,
        });
        left_over
    }

    /// Expired outcomes at the head of those in memory. One that is pending is written again when it
    /// is not any more; one that is kept for longer than the others is left to the sweep.
    fn oldest_expired(&mut self, count: usize, now: UnixMillis) -> Vec<Box<[u8]>> {
        let latest = now.plus(self.options.retention_ms);
        let mut expired = Vec::new();
        self.store.visit_ledger(&self.bookkeeping.outcomes, count, &mut |field, value| {
            match Expiry::of(value.get(1..).unwrap_or_default()) {
                Expiry::At(at) if at <= now => expired.push(field.into()),
                Expiry::At(at) if at <= latest => return ControlFlow::Break(()),
                Expiry::At(_) | Expiry::Unknown => {}
            }
            ControlFlow::Continue(())
        });
        expired
    }

    /// Adds the expired outcomes among the next rows of the checkpoint.
    fn sweep_rows(&mut self, count: usize, now: UnixMillis, expired: &mut Vec<Box<[u8]>>) {
        let retention_ms = self.options.retention_ms;
        let latest = now.plus(retention_ms);
        let sweep = &mut self.outcomes.sweep;
        if !sweep.is_running {
            // The clock may have been set back.
            if now < sweep.next.min(latest) {
                return;
            }
            *sweep = Sweep { is_running: true, began: now, first_expires: latest, ..Sweep::default() };
        }
        let Ok(page) = self.store.scan_rows(&self.bookkeeping.outcomes, sweep.after.as_deref(), count) else {
            return;
        };
        let in_memory = expired.len();
        for (field, value) in page.fields {
            match Expiry::of(value.content()) {
                Expiry::At(at) if at <= now => expired.push(field),
                Expiry::At(at) => sweep.first_expires = sweep.first_expires.min(at),
                Expiry::Unknown => {}
            }
        }
        if in_memory > 0 && expired.len() > in_memory {
            // Those in memory may have rows, too.
            expired.sort_unstable();
            expired.dedup();
        }
        sweep.is_running = page.last.is_some();
        sweep.after = page.last;
        sweep.next = sweep.first_expires.max(sweep.began.plus(retention_ms / 2));
    }
}

/// When an outcome may be forgotten.
enum Expiry {
    At(UnixMillis),
    /// It is pending, or cannot be read.
    Unknown,
}

impl Expiry {
    fn of(encoded: &[u8]) -> Self {
        Outcome::expiry(encoded).ok().flatten().map_or(Expiry::Unknown, Expiry::At)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_base::{Lsn, Name};

    /// As docs/internals/format.md has them: an outcome that is not found again is an effect that comes twice.
    #[test]
    fn the_fields_are_the_documented_ones() {
        let (app, service) = (Name::new("shop").expect("a name"), Name::new("cart").expect("a name"));
        let entity = EntityKey::new(&app, &service, b"k");
        let id = Sequence { lsn: Lsn(1), index: 2 };
        let plain = [&b"kshop\0cart\0k\0\x01once"[..], b"g\0\0\0\0\0\0\0\x01\0\x02once"];
        // Computed with another implementation, which gives the vectors of SipHash's authors.
        let hashed = [
            &b"h\xc8\xfc\x15\x70\x94\x95\x8b\x34\xce\x35\x6f\x83\x55\xe3\x0c\xec"[..],
            b"h\x75\x33\xb0\x41\x16\x80\x73\x22\xbb\x3f\x44\xf3\x5c\xd5\x22\xbc",
        ];
        let key = std::array::from_fn(|index| index as u8);
        for (names, [call, signal]) in [(OutcomeNames::Plain, plain), (OutcomeNames::Hashed(key), hashed)] {
            assert_eq!(*names.of_call(&entity, "add", b"1", "once", b"call").field, *call);
            assert_eq!(*names.of_call(&entity, "add", b"1", "once", b"send").field, *call);
            assert_eq!(*names.name(&[&entity_scope(&entity)], "once"), *call, "a route's");
            assert_eq!(*names.of_signal(id, "go", b"1", "once").field, *signal);
            assert_eq!(*names.name(&[&workflow_scope(id)], "once"), *signal, "a route's");
        }
        assert_eq!(*invocation_field(id), b"i\0\0\0\0\0\0\0\x01\0\x02"[..]);
    }
}
