//! One operation of a built-in app: found, authorised, and run as one call of one of its handlers.
//!
//! It does not know what operations mean. For each built-in app one file implements [`BuiltIn`] and translates requests to
//! [`Operation`]s: `records` for records.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use millrace_api::{Begun, Principal};
use millrace_base::{Error, IdempotencyKey, shard_of_key};
use millrace_driver::{Call, FastRead};
use millrace_func::{Answer, Catalog, HandlerId};
use millrace_shard::Invoke;

use crate::backend::{CoreHandle, authorise, catalog, info};
use crate::core::{Core, handler_metric};
use crate::watch::{CallWatch, WatchedCall, ended, prints_calls};

/// A built-in app.
pub(crate) trait BuiltIn {
    /// What its operations give.
    type Reply: WatchedCall + 'static;

    /// Its name. Roles name it as they name users' apps.
    const NAME: &'static str;

    /// A handler of one of its services.
    ///
    /// # Errors
    /// In the app's own terms: when there is no such service.
    fn find(catalog: &Catalog, service: &str, handler: &str) -> Result<HandlerId, Error>;

    /// The reply that a handler's answer is.
    ///
    /// # Errors
    /// `internal` when the answer cannot be read.
    fn reply(answer: Answer) -> Result<Self::Reply, Error>;
}

/// What a front asks of a built-in app.
pub(crate) struct Operation<'a> {
    pub service: &'a str,
    pub handler: &'static str,
    pub key: OperationKey<'a>,
    pub input: Bytes,
    /// Whether the role to read suffices.
    pub is_read: bool,
    pub idempotency_key: Option<IdempotencyKey<&'a str>>,
}

/// Where an operation runs.
#[derive(Clone, Copy)]
pub(crate) enum OperationKey<'a> {
    /// In the shard of this key.
    Of(&'a [u8]),
    /// In any shard: at best in one of the core that has the request.
    Anywhere,
}

impl<'a> OperationKey<'a> {
    fn bytes(self, core: &Core) -> Cow<'a, [u8]> {
        match self {
            OperationKey::Of(key) => Cow::Borrowed(key),
            OperationKey::Anywhere => own_key(core),
        }
    }
}

/// A key that is placed on this core, if the core has a shard; in a cluster, at best one that this node owns.
fn own_key(core: &Core) -> Cow<'static, [u8]> {
    let keys = &core.platform.shared.shard_keys;
    let placed = || core.placement().shards_of(core.index());
    let is_cluster = core.platform.is_in_cluster();
    let owned = is_cluster.then(|| placed().find(|shard| core.serving(*shard).is_some())).flatten();
    let own = owned.or_else(|| placed().next()).and_then(|shard| keys.get(usize::from(shard.0)));
    own.or(keys.first()).map_or(Cow::Borrowed(b"0"), |key| Cow::Owned(key.clone()))
}

/// An operation in one line.
fn shown(app: &str, operation: &Operation<'_>) -> String {
    let key = if let OperationKey::Of(key) = operation.key { String::from_utf8_lossy(key) } else { Cow::Borrowed("") };
    format!("{app} {}/{key} {}", operation.service, operation.handler)
}

impl CoreHandle {
    /// Runs an operation of the built-in app `A` as one transaction. A read is answered at once where its shard can do so.
    pub(crate) fn operate<A: BuiltIn>(&self, principal: &Principal, operation: &Operation<'_>) -> Begun<A::Reply> {
        self.begin_operation::<A>(principal, operation).unwrap_or_else(|error| Begun::Ended(Err(error)))
    }

    fn begin_operation<A: BuiltIn>(
        &self,
        principal: &Principal,
        operation: &Operation<'_>,
    ) -> Result<Begun<A::Reply>, Error> {
        let mut core = self.core().borrow_mut();
        let arrival = core.enter();
        let began_ns = arrival.now_ns;
        authorise(principal, (A::NAME, operation.service), operation.is_read)?;
        let handler = A::find(catalog(&core)?, operation.service, operation.handler)?;
        let key = operation.key.bytes(&core);
        let shard = shard_of_key(&key, core.placement().shard_count());
        let fast_read = FastRead { handler, shard, key: &key, input: &operation.input };
        if operation.idempotency_key.is_none()
            && let Some(answer) = core.fast_read(fast_read, arrival)
        {
            let metric = handler_metric(&core, handler).map(Arc::as_ref);
            let result = answer.and_then(A::reply);
            ended(&core, (metric, began_ns), &result, || shown(A::NAME, operation));
            return Ok(Begun::Ended(result));
        }
        let watch = CallWatch {
            metric: handler_metric(&core, handler).cloned(),
            began_ns,
            shown: prints_calls(&core).then(|| shown(A::NAME, operation)),
        };
        let info = info(&mut core, operation.idempotency_key.map(IdempotencyKey::kept));
        let invoke = Invoke { info, handler, key: key.into(), input: operation.input.clone() };
        let started = core.request(Call { shard, invoke }, arrival);
        Ok(self.watched(&core, started, watch, |output| A::reply(Answer::Value(output))))
    }
}
