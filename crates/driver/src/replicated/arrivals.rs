//! What has come for shards that are not here yet, or that nobody knows where they are. It waits for a bounded time.

use std::collections::VecDeque;

use millrace_base::{ShardId, limits};
use millrace_shard::{PeerMessage, Token};

use crate::message::{Job, ShardMail};

/// What has come.
pub(crate) enum What {
    Request { job: Job, token: Token, since_ns: u64 },
    Peer(PeerMessage),
    Mail(ShardMail),
}

/// One of those that wait.
pub(crate) struct Arrived {
    /// The shard it is for; `None` for a route, which finds out when it runs.
    pub shard: Option<ShardId>,
    /// When it has waited too long.
    pub until_ns: u64,
    pub what: What,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Arrivals {
    waiting: VecDeque<Arrived>,
}

impl Arrivals {
    /// Gives it back if too much waits already.
    pub(crate) fn push(&mut self, arrived: Arrived) -> Option<Arrived> {
        if self.waiting.len() >= limits::ARRIVALS {
            return Some(arrived);
        }
        self.waiting.push_back(arrived);
        None
    }

    /// Those for a shard, or all, in their order.
    pub(crate) fn take(&mut self, shard: Option<ShardId>) -> Vec<Arrived> {
        let is_meant = |arrived: &Arrived| shard.is_none() || arrived.shard.is_none() || arrived.shard == shard;
        let (taken, left) = std::mem::take(&mut self.waiting).into_iter().partition(is_meant);
        self.waiting = left;
        Vec::from(taken)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
