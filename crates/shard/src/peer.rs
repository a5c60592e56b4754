//! What shards say to each other about a transaction that touches several of them.
//!
//! The shard that started such a transaction is its *coordinator*; the others are *participants*.
//! Only coordinator and participant talk to each other. A participant that calls an entity of a third
//! shard asks the coordinator to pass the call on. So the coordinator knows every call and every participant.
//! What runs at a participant is a *participation*.
//!
//! What the two say to each other while the transaction runs is numbered, per participant and
//! direction, and taken in that order, once: the transport may delay, double and reorder. What
//! ends a transaction ([`PeerBody::Commit`] and below) is not numbered; it may come at any time,
//! any number of times, and only names the transaction.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_base::{EntityKey, Error, ShardId, TransactionId, UnixMillis};
use millrace_func::{NestedCall, Program};

use crate::request::Sequence;

/// One message between two shards about one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerMessage {
    /// Who sends it.
    pub from: ShardId,
    /// What it is about.
    pub transaction: TransactionId,
    /// What it says.
    pub body: PeerBody,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerBody {
    /// From the coordinator, the n-th to this participant, from 1.
    ToParticipation(u32, ToParticipation),
    /// From a participant, its n-th to the coordinator, from 1.
    ToCoordinator(u32, FromParticipation),
    /// From the coordinator: it is committed, durably.
    Commit,
    /// From the coordinator: the participant's part is over, and nothing it has yet to apply will be: the
    /// transaction is not committed and never will be, or has only read there. The participant
    /// answers [`PeerBody::Ended`] if `is_answered`, once what it has read is durable; if not, a
    /// participation that had not voted yet says that it has failed, to a coordinator that may still wait.
    Abort {
        /// Whether the coordinator waits for the answer.
        is_answered: bool,
        /// The opening of the participant's shard that the coordinator has heard. A later one does not know what was
        /// read, so it does not answer.
        heard: Option<u64>,
    },
    /// From a participant: it has no part in the transaction any more, and what it has read or
    /// applied is durable.
    Ended,
    /// From a participant: what has become of it?
    Inquire,
    /// From a participant: its part is lost, for this reason.
    Lost(Error),
    /// From the coordinator: the result kept at `PeerCall::once` is not needed any more.
    Forget(Box<[u8]>),
    /// From a coordinator that has delegated the decision: commit no more. The participant says
    /// [`PeerBody::CommittedAlone`] if it has committed. Where shards fail alone it says [`PeerBody::Ended`] if it
    /// has not, and never will.
    Recall,
    /// From a participant, again and again: it has committed alone, durably.
    CommittedAlone,
    /// From the coordinator: it has heard that the participant has committed alone, or does not wait for that.
    Heard,
    /// About no transaction: a workflow waits for the end of one of the receiver's. It asks again and again.
    AwaitResult(ResultQuestion),
    /// About no transaction: what the sender's workflow ended with, durably.
    AwaitedResult(AwaitedResult),
}

/// How did a workflow end?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultQuestion {
    /// The workflow that is asked about.
    pub of: Sequence,
    /// The app of the workflow that asks: others' are none of its business.
    pub app: Box<str>,
    /// The workflow that asks.
    pub asker: Sequence,
    /// The operation that waits for the answer.
    pub operation: u32,
}

/// How a workflow ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedResult {
    /// The workflow that was asked about.
    pub of: Sequence,
    /// The workflow that asked.
    pub asker: Sequence,
    /// The operation that waits.
    pub operation: u32,
    /// Its output or error; `None` if nobody has started it, and somebody yet may.
    pub result: Option<Result<Bytes, Error>>,
}

/// One call across shards. The number is unique in the node's process.
pub type CallNumber = u64;

/// A call on its way to the shard of its entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCall {
    /// Names it.
    pub number: CallNumber,
    /// How deep the callee is nested.
    pub depth: usize,
    /// What to run.
    pub call: NestedCall,
    /// Where the participant keeps the result if it commits alone, so that the call happens once
    /// however often it is made: set for the calls of workflows, which are made again after a crash.
    pub once: Option<Box<[u8]>>,
    /// The calls across shards that it is nested in, outermost first. They are told for an app on workers, where a call
    /// waits for what runs on its entity, but not for its callers. A program that does not know this tells them of none.
    pub callers: Option<Vec<CallNumber>>,
}

/// What a participant has to know to take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The app version.
    pub program: Program,
    /// Its `ctx.now()`.
    pub time: UnixMillis,
    /// Its place in the order of transactions.
    pub age: (u64, u64),
    /// What the participant's random bits depend on.
    pub seed: u64,
}

/// What a coordinator says to a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToParticipation {
    /// Hold this entity before the transaction starts (again).
    Reserve {
        /// The transaction.
        begin: Begin,
        /// Which entity.
        entity: EntityKey,
        /// Alone, or shared with others who only read.
        is_exclusive: bool,
    },
    /// Run this call.
    Call(Begin, PeerCall),
    /// The call that the participant had passed on has ended.
    Result(CallNumber, Result<Bytes, Error>),
    /// Take back what this call did, and end it if it still runs.
    TakeBack(CallNumber),
    /// What the participant wanted taken back is, everywhere.
    TakenBack,
    /// The transaction has run: make your part durable, and vote.
    Prepare {
        /// Which participation is meant: the one whose results the coordinator has used.
        participation_id: u64,
        /// Nobody else has anything to write: commit at once, the vote says so.
        is_delegated: bool,
        /// For how long what the coordinator has read stays as it is, from any moment at which the coordinator was
        /// heard. `None`: for ever. A participant that cannot commit within that time prepares instead.
        hold_ms: Option<u64>,
        /// Nobody writes anything: let go of what was read.
        is_query: bool,
    },
}

/// What a participation says to the coordinator, and which participation it is. A second copy of the message that began
/// a participation begins another one if it comes after the first has ended; its id tells them apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FromParticipation {
    /// Drawn at random by each participation.
    pub participation_id: u64,
    /// The opening of the participant's shard.
    pub incarnation: u64,
    /// What it says.
    pub message: ToCoordinator,
}

/// What a participant says to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToCoordinator {
    /// The entity asked for is held.
    Reserved,
    /// Pass this call on to the shard of its entity.
    Call(PeerCall),
    /// Something that this call has started still runs, though its result comes next.
    Lingers(CallNumber),
    /// Nothing that this call has started runs any more.
    Over(CallNumber),
    /// A call has ended.
    Result(CallNumber, Result<Bytes, Error>),
    /// What this call did, which this participant had asked for, has to be taken back. It goes on
    /// with nothing before the coordinator has answered [`ToParticipation::TakenBack`].
    TakeBack(CallNumber),
    /// What the coordinator wanted taken back is.
    TakenBack,
    /// An older transaction holds this entity: start again when it is free.
    Died {
        /// Which entity.
        entity: EntityKey,
        /// Alone, or shared with others who only read.
        is_exclusive: bool,
    },
    /// It cannot take part, or a call that nobody awaited failed: the transaction has failed.
    Failed(Error),
    /// It has a durable part to commit, and will when told so.
    Prepared,
    /// It has only read, all of it durable.
    ReadOnly {
        /// It holds nothing any more, and has no further part in the transaction.
        has_let_go: bool,
        /// For how long what it has read stays as it is, counted from when the coordinator asked. `None`: until the
        /// coordinator ends it.
        hold_ms: Option<u64>,
    },
    /// It has committed, durably, as it was asked to.
    Committed,
    /// What ran here has used so much CPU time since it last said so, in nanoseconds.
    Spent(u64),
}

/// The order of what one side says, restored by the other.
pub(crate) struct Ordered<T> {
    next: u32,
    /// The next one, if nothing has come before its time: within a node it is always so.
    due: Option<T>,
    early: BTreeMap<u32, T>,
}

/// How many messages may come before one that is late. More are dropped: the transaction then
/// fails by its deadline.
const EARLY_MESSAGES: usize = 4096;

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self { next: 1, due: None, early: BTreeMap::new() }
    }
}

impl<T> Ordered<T> {
    /// Takes a message in; what can be acted on now comes out of [`Ordered::next`].
    pub(crate) fn add(&mut self, number: u32, message: T) {
        if number == self.next && self.early.is_empty() {
            self.due.get_or_insert(message);
        } else if number >= self.next && self.early.len() < EARLY_MESSAGES {
            self.early.entry(number).or_insert(message);
        }
    }

    /// Of somebody whose first message has been taken already.
    pub(crate) fn after_first() -> Self {
        Self { next: 2, ..Self::default() }
    }

    /// The next message in order, if it is there.
    pub(crate) fn next(&mut self) -> Option<T> {
        if let Some(message) = self.due.take() {
            self.next += 1;
            return Some(message);
        }
        let message = self.early.remove(&self.next)?;
        self.next += 1;
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_order_and_once() {
        let mut ordered = Ordered::default();
        let mut taken = Vec::new();
        for number in [2, 1, 1, 4, 2, 3, 4, 5] {
            ordered.add(number, number);
            taken.extend(std::iter::from_fn(|| ordered.next()));
        }
        assert_eq!(taken, [1, 2, 3, 4, 5]);
    }
}
