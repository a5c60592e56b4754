//! The activations of a transaction, the calls among them, and what is to be done next.

use bytes::Bytes;
use millrace_base::{Error, Value};
use millrace_func::{ActivationId, HandlerKind, NestedCall, OperationId, Program};

use crate::peer::CallNumber;

/// Names one activation. Unlike the engine's numbers it is never used again. So nothing that
/// comes late, such as the result of offloaded work, reaches a later user of the activation's number.
pub(super) type Instance = u64;

/// Who waits for the result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parent {
    /// An activation of this shard, for an operation of it.
    ActivationId(Instance, OperationId),
    /// Another shard, which made this call.
    Shard(CallNumber),
    /// Nobody: what it gives is what the transaction gives. A workflow's call has no other activation.
    Nobody,
}

/// Whose failure takes something back. It is an activation of this shard, by its instance. Or it is an activation of
/// another shard that is answerable for a call from there, by the call's number. Both are nonces, so they never
/// meet.
pub(super) type Owner = u64;

/// A call that this shard's part of the transaction made to another shard.
pub(super) struct AwayCall {
    pub number: CallNumber,
    pub owner: Option<Owner>,
    /// Who is resumed with its result; `None` once it has ended.
    pub awaited_by: Option<Parent>,
}

/// One running handler or route of the transaction.
pub(super) struct Activation {
    pub activation: ActivationId,
    pub instance: Instance,
    /// The app version it runs in: the caller's, but for operations of built-in apps.
    pub program: Program,
    /// Index into `Transaction::touched`; a route has no entity.
    pub entity: Option<usize>,
    pub kind: HandlerKind,
    /// Who is told its result; the root has none.
    pub parent: Option<Parent>,
    /// Whose failure takes it down: its parent, or, once that has ended before it, the parent's own
    /// owner. Nobody but the transaction if `None`.
    pub owner: Option<Owner>,
    pub depth: usize,
    pub next_operation: u32,
    /// It runs on a worker, which knows its entity as it was at the start.
    pub is_on_worker: bool,
}

/// How to take one buffered change back, if the activation that owns it fails.
pub(super) enum Undo {
    Write { touched: usize, field: Box<[u8]>, before: Option<Option<Value>> },
    Message,
    ReleasedBody,
}

/// A call that has yet to start.
pub(super) struct PendingCall {
    pub parent: Parent,
    pub owner: Option<Owner>,
    /// How deep the callee will be.
    pub depth: usize,
    pub call: NestedCall,
    /// It waits for the rows of its entity, or has waited for them.
    pub waits_for_rows: bool,
}

impl PendingCall {
    pub(crate) fn new(parent: Parent, owner: Option<Owner>, depth: usize, call: NestedCall) -> Self {
        Self { parent, owner, depth, call, waits_for_rows: false }
    }
}

/// What the transaction does next.
pub(super) enum Action {
    /// Start the callee of an operation.
    Call(PendingCall),
    /// Go on with an activation.
    Resume { activation: Instance, operation: OperationId, result: Result<Bytes, Error> },
    /// Tell another shard what its call gave.
    Answer(CallNumber, Result<Bytes, Error>),
    /// The transaction has its result.
    End(Result<Bytes, Error>),
}

impl Action {
    /// Tells whoever waits for a call what it gave.
    pub(crate) fn answer(parent: Parent, result: Result<Bytes, Error>) -> Self {
        match parent {
            Parent::ActivationId(activation, operation) => Action::Resume { activation, operation, result },
            Parent::Shard(number) => Action::Answer(number, result),
            Parent::Nobody => Action::End(result),
        }
    }
}
