//! What leaves the shard only once everything it depends on is durable: replies to requests, and
//! votes and confirmations to other shards, and news of bodies that nothing refers to any more.

use std::collections::VecDeque;

use millrace_base::{Error, Lsn, ShardId};

use crate::peer::{PeerBody, PeerMessage};
use crate::request::{Reply, Token};
use crate::world::Outputs;

/// Something that leaves.
pub(crate) enum Leaving {
    Reply(Token, Result<Reply, Error>),
    Peer(ShardId, PeerMessage),
    ReleasedBody(u64),
}

impl Leaving {
    fn leave(self, shard: ShardId, outputs: &mut dyn Outputs) {
        match self {
            Leaving::Reply(token, result) => outputs.reply(token, result),
            Leaving::Peer(to, message) => outputs.peer(to, message),
            Leaving::ReleasedBody(number) => outputs.release_body(shard, number),
        }
    }
}

/// What waits, in the order of the entries it depends on.
pub(crate) struct Held {
    shard: ShardId,
    held: VecDeque<(Lsn, Leaving)>,
}

impl Held {
    /// Nothing waits in this shard.
    pub(crate) fn new(shard: ShardId) -> Self {
        Self { shard, held: VecDeque::new() }
    }

    /// Lets something leave now if what it depends on is durable, or keeps it until it is.
    pub(crate) fn release(&mut self, leaving: Leaving, depends_on: Lsn, durable: Lsn, outputs: &mut dyn Outputs) {
        if depends_on <= durable {
            return leaving.leave(self.shard, outputs);
        }
        let at = self.held.partition_point(|(lsn, _)| *lsn <= depends_on);
        self.held.insert(at, (depends_on, leaving));
    }

    /// Lets everything leave that depends on nothing after `durable`.
    pub(crate) fn durable(&mut self, durable: Lsn, outputs: &mut dyn Outputs) {
        while self.held.front().is_some_and(|(lsn, _)| *lsn <= durable) {
            if let Some((_, leaving)) = self.held.pop_front() {
                leaving.leave(self.shard, outputs);
            }
        }
    }

    /// Answers everybody who still waits with `error`: whether it took effect is unknown. Only
    /// that a transaction is committed nobody is told, and nobody waits for.
    pub(crate) fn fail(&mut self, error: &Error, outputs: &mut dyn Outputs) {
        for (_, leaving) in self.held.drain(..) {
            match leaving {
                Leaving::Reply(token, _) => outputs.reply(token, Err(error.clone())),
                // Whether the entry is in the log nobody knows now: a later look at all bodies finds out.
                Leaving::ReleasedBody(_) => {}
                Leaving::Peer(_, PeerMessage { body: PeerBody::Commit, .. }) => {}
                Leaving::Peer(to, message) => {
                    outputs.peer(to, PeerMessage { body: PeerBody::Lost(error.clone()), ..message });
                }
            }
        }
    }

    /// How much waits.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}
