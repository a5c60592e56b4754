//! What has come for shards that are not here yet, and what goes to shards of which nobody knows where they are. It waits for
//! a bounded time.

use std::collections::VecDeque;

use millrace_base::{ShardId, limits};
use millrace_shard::{PeerMessage, Token};

use crate::message::{Job, ShardMail};

/// What has come.
pub(crate) enum What {
    Request {
        job: Job,
        token: Token,
        since_ns: u64,
    },
    /// Another shard says something to one of this core.
    Peer(PeerMessage),
    /// A shard of this core says something to another shard.
    Said(PeerMessage),
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

    /// Those for a shard or from one, or all, in their order.
    pub(crate) fn take(&mut self, shard: Option<ShardId>) -> Vec<Arrived> {
        let is_from = |what: &What| matches!(what, What::Peer(message) if Some(message.from) == shard);
        let is_meant = |arrived: &Arrived| {
            shard.is_none() || arrived.shard.is_none() || arrived.shard == shard || is_from(&arrived.what)
        };
        let (taken, left) = std::mem::take(&mut self.waiting).into_iter().partition(is_meant);
        self.waiting = left;
        Vec::from(taken)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use millrace_base::TransactionId;
    use millrace_shard::PeerBody;

    use super::*;

    #[test]
    fn a_message_waits_for_news_of_its_shard_and_of_the_one_that_says_it() {
        let [to, from, other] = [ShardId(1), ShardId(2), ShardId(3)];
        let transaction = TransactionId { coordinator: from, incarnation: 4, number: 1 };
        for (news, is_taken) in [(to, true), (from, true), (other, false)] {
            let mut arrivals = Arrivals::default();
            let what = What::Peer(PeerMessage { from, transaction, body: PeerBody::Commit });
            assert!(arrivals.push(Arrived { shard: Some(to), until_ns: 1, what }).is_none());
            assert_eq!(arrivals.take(Some(news)).len(), usize::from(is_taken));
            assert_eq!(arrivals.is_empty(), is_taken);
        }
    }
}
