//! What a shard is given, one input after another.

use std::collections::BTreeSet;

use bytes::Bytes;
use millrace_base::{Error, Lsn, ShardId};
use millrace_store::ColdRows;

use crate::execution::UnplacedRoute;
use crate::peer::PeerMessage;
use crate::question::Question;
use crate::request::{Delivery, InvocationId, Invoke, OffloadTicket, Sequence, Token};
use crate::typed_reply::ReplyTo;

/// An input of a shard. Replies come through `Outputs::reply`, perhaps later.
pub enum Input {
    /// Run a handler as one transaction.
    Invoke(ReplyTo<Bytes>, Invoke),
    /// Enqueue a call, to run after so many milliseconds. The reply is its invocation id.
    Send(ReplyTo<InvocationId>, Invoke, u64),
    /// Answer a question to whoever waits under the token for the reply that [`Ask`](crate::question::Ask) names.
    Ask(Token, Question),
    /// Take over a route whose first call is for an entity of this shard.
    Adopt(UnplacedRoute),
    /// Work that was offloaded has ended.
    Complete(OffloadTicket, Result<Bytes, Error>),
    /// Rows that were read beside the shard.
    Rows(ColdRows),
    /// Everything up to this entry of the shard is durable: release what waited for it.
    Durable(Lsn),
    /// A message from another shard has arrived, perhaps not for the first time.
    Deliver(Delivery),
    /// A receiver has durably taken everything up to a place in this shard's log.
    Acknowledged {
        /// The receiver.
        from: ShardId,
        /// The place.
        sequence: Sequence,
    },
    /// Another shard says something about a transaction they both take part in.
    Peer(PeerMessage),
    /// Another shard was lost and is open again. To be told where shards fail alone, once for each opening, in their order.
    PeerOpened {
        /// The other shard.
        shard: ShardId,
        /// Names its new opening.
        incarnation: u64,
    },
    /// What was said to these other shards, and by them, may not arrive for long. Later messages take another way. To be told
    /// where shards fail alone.
    Detour(BTreeSet<ShardId>),
    /// Time has passed: start what is due, give up what waited too long, collect results. To come about once a second, and
    /// when [`Shard::is_due`](crate::Shard::is_due) says so.
    Tick,
    /// Start what is due, and nothing else that a tick does.
    RunDue,
    /// Stop for good, for this reason: the log can no longer be trusted. Everything that waits is answered.
    Stop(String),
}
