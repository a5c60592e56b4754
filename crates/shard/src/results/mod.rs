//! Results of invocations, kept under idempotency keys and invocation ids.
//!
//! A result is a field of one bookkeeping entity, written in the entry of the effect itself. So
//! effect and result are durable together or not at all. An expired result counts as absent. It is
//! deleted in an entry of its own (`collect.rs`).

mod awaited;
mod collect;
mod names;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_base::{EntityKey, Error, ErrorCode, Lsn, ShardId, UnixMillis, fingerprint};
use millrace_format::{InvocationResult, ResultState, Write};
use millrace_func::RouteReply;
use millrace_store::{Checkpoint, Import, Store, StoreError};

use crate::context::{Rows, decode_failed, store_failed};
use crate::request::{InvocationId, Reply, Sequence};
use awaited::AwaitedResults;
pub(crate) use awaited::Waiter;
use collect::Sweep;
pub use names::ResultNames;
pub(crate) use names::{ResultKey, entity_scope, workflow_scope};

/// The results that a shard keeps.
pub(crate) struct Results {
    /// Field: scoped idempotency key, or invocation id; value: `format::Outcome`.
    entity: EntityKey,
    names: ResultNames,
    retention_ms: u64,
    /// The key of the transaction that was last looked up and not found: mostly it is the one that
    /// commits next.
    last_key: Option<(u64, ResultKey)>,
    /// Written, and not yet made up for by looking at as many twice.
    added: usize,
    /// Found expired, and left over because an entry was full.
    left_over: Vec<Box<[u8]>>,
    sweep: Sweep,
    awaited: AwaitedResults,
}

/// The field of the result of an invocation that was sent.
pub(crate) fn invocation_field(sequence: Sequence) -> Box<[u8]> {
    [&b"i"[..], &sequence.encode()].concat().into()
}

/// The entity whose fields are a shard's invocation results.
fn entity() -> EntityKey {
    EntityKey::internal("outcome", b"")
}

/// Opens the store of a shard, as [`Store::open`] does, for a shard to live in. It says which entity is append-only.
///
/// # Errors
/// Those of [`Store::open`].
pub fn open_store(shard: ShardId, checkpoint: Arc<dyn Checkpoint>, hash_seed: u64) -> Result<Store, StoreError> {
    Ok(Store::open(shard, checkpoint, hash_seed)?.with_append_only(&entity()))
}

/// Empties a shard, as [`Import::empty`] does, and opens its store.
///
/// # Errors
/// Those of [`Import::empty`].
pub fn empty_store(checkpoint: &Arc<dyn Checkpoint>, shard: ShardId, hash_seed: u64) -> Result<Store, StoreError> {
    Ok(Import::empty(checkpoint, shard, hash_seed)?.with_append_only(&entity()))
}

/// Kept with an invocation's result, so that the node can tell who may read it.
#[must_use]
pub fn service_fingerprint(app: &str, service: &str) -> u64 {
    fingerprint(&[app.as_bytes(), service.as_bytes()])
}

impl Results {
    pub(crate) fn new(names: ResultNames, retention_ms: u64) -> Self {
        Self {
            entity: entity(),
            names,
            retention_ms,
            last_key: None,
            added: 0,
            left_over: Vec::new(),
            sweep: Sweep::default(),
            awaited: AwaitedResults::default(),
        }
    }

    /// How results under idempotency keys are named.
    pub(crate) fn names(&self) -> ResultNames {
        self.names
    }

    /// The newest entry that changed a result.
    pub(crate) fn lsn(&self, rows: &Rows) -> Lsn {
        rows.entity_lsn(&self.entity)
    }

    /// The result at `field`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn get(&self, field: &[u8], rows: &mut Rows) -> Result<Option<InvocationResult>, Error> {
        let found = rows.store().get(&self.entity, field).map_err(|error| store_failed(&error))?;
        found.map(|value| InvocationResult::decode(value.content()).map_err(|error| decode_failed(&error))).transpose()
    }

    /// The reply kept under `key`, if the request took effect before.
    pub(crate) fn kept_reply(&self, key: &ResultKey, now: UnixMillis, rows: &mut Rows) -> Option<Result<Reply, Error>> {
        let invocation_result = match self.get(&key.field, rows) {
            Ok(invocation_result) => invocation_result?,
            Err(error) => return Some(Err(error)),
        };
        if invocation_result.expires <= now {
            return None;
        }
        if invocation_result.fingerprint != key.fingerprint {
            let message = "this Idempotency-Key came before with another handler, path or body (to a route, also another query, \
                 Authorization or Cookie): use a new key for a new request";
            return Some(Err(Error::new(ErrorCode::IdempotencyMismatch, message)));
        }
        Some(match invocation_result.result {
            ResultState::Value(output) => Ok(Reply::Value(output)),
            ResultState::Reply { status, headers, body } => Ok(Reply::Route(RouteReply { status, headers, body })),
            ResultState::Error(error) => Err(error),
            ResultState::Sent(lsn, index) => {
                Ok(Reply::Sent(InvocationId { shard: rows.shard(), sequence: Sequence { lsn, index } }))
            }
            ResultState::Pending => return None,
        })
    }

    /// The write of a result. It must be made.
    pub(crate) fn write(&mut self, field: Box<[u8]>, invocation_result: &InvocationResult) -> Write {
        self.added += 1;
        Write { entity: self.entity.clone(), field, value: Some(invocation_result.to_value()) }
    }

    /// The write that deletes a result.
    pub(crate) fn deletion(&self, field: Box<[u8]>) -> Write {
        Write { entity: self.entity.clone(), field, value: None }
    }

    /// The write of what a request under `key` is answered from now on. It must be made.
    pub(crate) fn keep(&mut self, key: ResultKey, result: ResultState, now: UnixMillis) -> Write {
        let expires = now.plus(self.retention_ms);
        self.write(key.field, &InvocationResult { expires, fingerprint: key.fingerprint, result })
    }

    /// The write of what became of an invocation. It must be made.
    pub(crate) fn keep_invocation(
        &mut self,
        id: Sequence,
        (app, service): (&str, &str),
        result: ResultState,
        now: UnixMillis,
    ) -> Write {
        self.awaited.ended(id);
        let key = ResultKey { field: invocation_field(id), fingerprint: service_fingerprint(app, service) };
        self.keep(key, result, now)
    }

    /// The write that says that an invocation has no result yet. It must be made.
    pub(crate) fn keep_pending(&mut self, id: Sequence, app: &str, service: &str) -> Write {
        let fingerprint = service_fingerprint(app, service);
        let invocation_result = InvocationResult { expires: UnixMillis(0), fingerprint, result: ResultState::Pending };
        self.write(invocation_field(id), &invocation_result)
    }

    /// `waiter` is to be told how the invocation `of` ends.
    pub(crate) fn wait_for(&mut self, of: Sequence, waiter: Waiter) {
        self.awaited.add(of, waiter);
    }

    /// The next invocation that has ended, and who waited for it.
    pub(crate) fn next_awaited(&mut self) -> Option<(Sequence, BTreeSet<Waiter>)> {
        self.awaited.next()
    }

    /// Remembers under what key the result of a transaction will be kept.
    pub(crate) fn remember(&mut self, nonce: u64, key: ResultKey) {
        self.last_key = Some((nonce, key));
    }

    /// What was remembered last, if it is of this transaction.
    pub(crate) fn remembered(&mut self, nonce: u64) -> Option<ResultKey> {
        self.last_key.take().filter(|(of, _)| *of == nonce).map(|(_, key)| key)
    }
}
