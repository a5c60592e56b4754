//! What a replicated shard has said and may not leave yet.
//!
//! A shard speaks only for as long as its node owns it. If the lease holds at the moment at which the shard says something,
//! that leaves at once. Otherwise it waits until a round that began later is confirmed, and so does all that is said behind it.
//! Once a shard is handed on, nothing that it says leaves: what it holds locked from then on nobody may count on.

use std::collections::VecDeque;

use millrace_base::{Error, Lsn, ShardId};
use millrace_replica::{Leaving, Proof, Replica, ShardLog};
use millrace_shard::{PeerMessage, Reply, Token};

use crate::message::ShardMail;

/// One thing that a shard says to somebody outside.
pub(crate) enum Said {
    Reply(Token, Result<Reply, Error>),
    Mail(ShardMail),
    Peer(ShardId, PeerMessage),
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Gate {
    waiting: VecDeque<(Proof, Said)>,
    /// Something has begun to wait since a round was asked for.
    wants_round: bool,
    is_shut: bool,
}

/// Whether what rests on this proof may leave. What a shard says is committed when it says it, so nothing else counts.
fn may_leave(replica: &Replica, now_ns: u64, proof: Proof) -> Leaving {
    replica.may_leave(now_ns, Lsn::ZERO, proof)
}

impl Gate {
    /// Gives it back if it may leave now.
    pub(crate) fn pass(&mut self, replica: &Replica, now_ns: u64, said: Said) -> Option<Said> {
        if self.is_shut {
            return None;
        }
        let proof = replica.read_proof();
        if self.waiting.is_empty() && may_leave(replica, now_ns, proof) == Leaving::Now {
            return Some(said);
        }
        self.waiting.push_back((proof, said));
        self.wants_round = true;
        None
    }

    /// The next that may leave now. What will never leave is dropped.
    pub(crate) fn next(&mut self, replica: &Replica, now_ns: u64) -> Option<Said> {
        while let Some((proof, _)) = self.waiting.front() {
            match may_leave(replica, now_ns, *proof) {
                Leaving::Now => return self.waiting.pop_front().map(|(_, said)| said),
                Leaving::Never => drop(self.waiting.pop_front()),
                Leaving::AfterCommit | Leaving::AfterConfirmation => return None,
            }
        }
        None
    }

    /// Whether a round has to be asked for.
    pub(crate) fn wants_round(&self) -> bool {
        self.wants_round
    }

    /// The same, asked once.
    pub(crate) fn takes_round(&mut self) -> bool {
        std::mem::take(&mut self.wants_round)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// What the shard says from now on is dropped.
    pub(crate) fn shut(&mut self) {
        self.is_shut = true;
    }

    /// Nothing of it leaves any more.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }
}
