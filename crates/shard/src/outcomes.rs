//! Outcomes kept under idempotency keys and invocation ids: lookup, and collection once expired.
//!
//! An outcome is a field of one bookkeeping entity, written in the entry of the effect itself, so
//! effect and outcome are durable together or not at all. Collection sweeps the fields in order,
//! a bounded number each tick and always faster than they are added, and deletes the expired ones
//! in an entry of its own; an expired outcome that is still there is treated as absent.

use millrace_base::{EntityKey, Error, ErrorCode, UnixMillis, Value, ValueKind, fingerprint, limits};
use millrace_format::{Outcome, OutcomeResult, Write};

use crate::commit::decode_failed;
use crate::host::store_failed;
use crate::request::{InvocationId, Origin, Reply, RouteCall, Sequence};
use crate::shard::Shard;
use crate::world::World;

/// Outcomes looked at in one sweep when none were added.
const SWEEP_ROWS: usize = 256;

/// Where a request's outcome is kept, and what tells it from another request under that key.
pub(crate) struct OutcomeKey {
    pub field: Vec<u8>,
    pub fingerprint: u64,
}

/// The outcome field of an invocation that was sent.
pub(crate) fn invocation_field(sequence: Sequence) -> Vec<u8> {
    [&b"i"[..], &sequence.encode()].concat()
}

/// Kept with an invocation's outcome, so that the node can tell who may read it.
#[must_use]
pub fn service_fingerprint(app: &str, service: &str) -> u64 {
    fingerprint(&[app.as_bytes(), service.as_bytes()])
}

/// A call's key is scoped to its entity, so that no key of one entity can hide another's.
pub(crate) fn call_key(entity: &EntityKey, handler: &str, input: &[u8], key: &str, verb: &[u8]) -> OutcomeKey {
    OutcomeKey {
        field: [b"k", entity.as_bytes(), key.as_bytes()].concat(),
        fingerprint: fingerprint(&[verb, handler.as_bytes(), input]),
    }
}

/// A signal's key is scoped to its workflow.
pub(crate) fn signal_key(id: Sequence, name: &str, payload: &[u8], key: &str) -> OutcomeKey {
    OutcomeKey {
        field: [&b"g"[..], &id.encode(), key.as_bytes()].concat(),
        fingerprint: fingerprint(&[name.as_bytes(), payload]),
    }
}

fn route_fingerprint(call: &RouteCall) -> u64 {
    let [query, body, authorization, cookie] = call.content();
    fingerprint(&[call.method.as_bytes(), call.path.as_bytes(), query, body, authorization, cookie])
}

fn route_key(app: &str, service: &str, call: &RouteCall, key: &str) -> OutcomeKey {
    OutcomeKey {
        field: [b"r", app.as_bytes(), b"\0", service.as_bytes(), b"\0", key.as_bytes()].concat(),
        fingerprint: route_fingerprint(call),
    }
}

impl Shard {
    /// Where the outcome of a request is kept; `None` when it carries no idempotency key.
    pub(crate) fn outcome_key(&self, origin: &Origin, world: &World<'_>) -> Option<OutcomeKey> {
        let key = origin.info().idempotency_key.as_deref()?;
        match origin {
            Origin::Call(invoke) => {
                let (_, _, handler) = world.catalog.names(invoke.handler)?;
                let entity = world.catalog.entity(invoke.handler, &invoke.key)?;
                Some(call_key(&entity, handler.as_str(), &invoke.input, key, b"call"))
            }
            Origin::Route(call) => {
                let loaded = world.catalog.program(call.route.id.program)?;
                let service = loaded.services.get(usize::from(call.route.id.service))?;
                Some(route_key(loaded.app.as_str(), service.name.as_str(), call, key))
            }
            Origin::Message { .. } | Origin::Step { .. } | Origin::Branch { .. } | Origin::Read { .. } => None,
        }
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
            let message =
                "this Idempotency-Key came before with another handler or body: use a new key for a new request";
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

    pub(crate) fn outcome_write(&mut self, field: &[u8], outcome: &Outcome) -> Write {
        self.outcomes_added += 1;
        Write {
            entity: self.bookkeeping.outcomes.clone(),
            field: field.into(),
            value: Some(Value::new(ValueKind::Bytes, &outcome.encode())),
        }
    }

    /// That a signal was taken under its key.
    pub(crate) fn signalled_write(&mut self, key: &OutcomeKey, world: &World<'_>) -> Write {
        let expires = world.now.plus(self.options.retention_ms);
        let result = OutcomeResult::Value(bytes::Bytes::from_static(b"null"));
        self.outcome_write(&key.field, &Outcome { expires, fingerprint: key.fingerprint, result })
    }

    /// Deletes some of the expired outcomes, and what belongs to those of workflows.
    pub(crate) fn collect_outcomes(&mut self, world: &mut World<'_>) {
        if world.is_read_only {
            return;
        }
        let rows = (SWEEP_ROWS + 2 * self.outcomes_added).min(limits::SCAN_ROWS);
        self.outcomes_added = self.outcomes_added.saturating_sub(rows / 2);
        let after = self.sweep_after.take();
        let Ok(found) = self.store.scan_fields(&self.bookkeeping.outcomes, b"", after.as_deref(), rows) else {
            return;
        };
        if found.len() == rows {
            self.sweep_after = found.last().map(|(field, _)| field.clone());
        }
        let is_expired = |value: &Value| match Outcome::decode(value.content()) {
            Ok(outcome) => outcome.expires <= world.now && outcome.result != OutcomeResult::Pending,
            Err(_) => false,
        };
        let expired: Vec<Box<[u8]>> =
            found.into_iter().filter(|(_, value)| is_expired(value)).map(|(field, _)| field).collect();
        let (mut writes, mut deleted) = (Vec::new(), None);
        for field in expired {
            if writes.len() >= limits::WRITES_PER_CALL {
                // The journals of these workflows fill an entry: the next sweep goes on from here.
                self.sweep_after = deleted;
                break;
            }
            deleted = Some(field.clone());
            if let Some(id) = field.strip_prefix(b"i").and_then(Sequence::decode) {
                self.add_workflow_deletions(id, &mut writes);
            }
            writes.push(Write { entity: self.bookkeeping.outcomes.clone(), field, value: None });
        }
        if !writes.is_empty() {
            self.append(writes, world);
        }
    }
}
