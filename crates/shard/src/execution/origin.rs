//! What a transaction is started from.

use bytes::Bytes;
use millrace_api::StateFields;
use millrace_base::{IdempotencyKey, ShardId, TransactionId, UnixMillis};
use millrace_func::{NestedCall, Program, RouteReply, WorkerSlot, sha256};

use crate::locks::Age;
use crate::peer::Begin;
use crate::request::{Invoke, OperationOf, RouteCall, Token};
use crate::typed_reply::{EntityState, ReplyTo};

/// When a transaction began that no request began, and what names it.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    pub time: UnixMillis,
    /// The same by the monotonic clock of this machine.
    pub began_ms: u64,
    /// Unique among the invocations of the node's process.
    pub nonce: u64,
}

/// What a transaction was started from, to answer it or to start it again.
#[derive(Clone)]
pub(super) enum Origin {
    /// A front's call, and who waits for its reply.
    Call(ReplyTo<Bytes>, Invoke),
    /// A front's route, and who waits for its reply.
    Route(ReplyTo<RouteReply>, RouteCall),
    /// A message of this shard's inbox, by its field there.
    Message {
        /// The inbox field.
        field: Box<[u8]>,
        /// When it was started.
        begun: Begun,
        /// Its place on a worker.
        slot: WorkerSlot,
    },
    /// A call that a workflow of this shard makes, as a transaction of its own.
    WorkflowCall {
        /// The workflow, and which of its operations.
        asked: OperationOf,
        /// What to run.
        call: NestedCall,
        /// When it was started.
        begun: Begun,
        /// Its place on a worker.
        slot: WorkerSlot,
    },
    /// Part of another shard's transaction.
    Participation {
        /// Which transaction.
        id: TransactionId,
        /// What its coordinator says of it.
        begin: Begin,
        /// The transaction's time; a nonce of this shard's own.
        begun: Begun,
    },
    /// Somebody reads committed state.
    Read {
        /// Who asks.
        to: ReplyTo<EntityState>,
        /// When.
        begun: Begun,
        /// Which fields.
        fields: StateFields,
    },
}

impl Origin {
    /// What the random bits of a route with an idempotency key depend on, instead of its nonce:
    /// everything that makes it the same request, the caller's credentials included.
    pub(crate) fn route_key(&self) -> Option<u64> {
        let Origin::Route(_, call) = self else {
            return None;
        };
        let key = call.info.idempotency_key.as_ref()?.as_str();
        let mut text = Vec::new();
        for part in [key.as_bytes(), call.method.as_bytes(), call.path.as_bytes()].into_iter().chain(call.content()) {
            text.extend_from_slice(&(part.len() as u64).to_le_bytes());
            text.extend_from_slice(part);
        }
        sha256(&text).first_chunk().map(|bits| u64::from_le_bytes(*bits))
    }

    /// The app version that it runs in, where that is settled before it begins.
    pub(crate) fn program(&self) -> Option<Program> {
        match self {
            Origin::Call(_, invoke) => Some(invoke.handler.program),
            Origin::Route(_, call) => Some(call.route.id.program),
            Origin::Participation { begin, .. } => Some(begin.program),
            Origin::WorkflowCall { call, .. } => Some(call.handler.program),
            Origin::Message { .. } | Origin::Read { .. } => None,
        }
    }

    /// When it began, and what names it.
    fn begun(&self) -> Begun {
        match self {
            Origin::Call(_, Invoke { info, .. }) | Origin::Route(_, RouteCall { info, .. }) => {
                Begun { time: info.time, began_ms: info.began_ms, nonce: info.nonce }
            }
            Origin::Message { begun, .. }
            | Origin::WorkflowCall { begun, .. }
            | Origin::Participation { begun, .. }
            | Origin::Read { begun, .. } => *begun,
        }
    }

    /// Its `ctx.now()`.
    pub(crate) fn time(&self) -> UnixMillis {
        self.begun().time
    }

    /// When it began, by the monotonic clock.
    pub(crate) fn began_ms(&self) -> u64 {
        self.begun().began_ms
    }

    /// Names it within the node's process.
    pub(crate) fn nonce(&self) -> u64 {
        self.begun().nonce
    }

    /// Its place in the order of transactions: lower is older.
    pub(crate) fn age(&self) -> Age {
        match self {
            Origin::Participation { begin, .. } => begin.age,
            _ => (self.time().0, self.nonce()),
        }
    }

    /// Whom to answer; nobody waits for a message, a workflow's call or a participation.
    pub(crate) fn token(&self) -> Option<Token> {
        match self {
            Origin::Call(to, _) => Some(to.token()),
            Origin::Route(to, _) => Some(to.token()),
            Origin::Read { to, .. } => Some(to.token()),
            Origin::Message { .. } | Origin::WorkflowCall { .. } | Origin::Participation { .. } => None,
        }
    }

    /// What makes it take effect once.
    pub(crate) fn idempotency_key(&self) -> Option<&str> {
        match self {
            Origin::Call(_, Invoke { info, .. }) | Origin::Route(_, RouteCall { info, .. }) => {
                info.idempotency_key.as_ref().map(IdempotencyKey::as_str)
            }
            Origin::Message { .. }
            | Origin::WorkflowCall { .. }
            | Origin::Participation { .. }
            | Origin::Read { .. } => None,
        }
    }

    /// Where another shard keeps the result of a workflow's call.
    pub(crate) fn once_field(&self, shard: ShardId) -> Option<Box<[u8]>> {
        match self {
            Origin::WorkflowCall { asked, .. } => Some(asked.once_field(shard)),
            _ => None,
        }
    }
}
