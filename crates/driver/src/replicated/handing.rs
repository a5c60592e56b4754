//! A shard goes from one living node to another: its owner takes no more requests, answers what it has in hand, and lets go.
//!
//! What comes meanwhile waits, and goes to the heir once that serves. The heir sees that the owner has let go, and takes the
//! shard at once: no lease is waited for.

use millrace_base::ShardId;
use millrace_replica::{Epoch, Event, NodeId, ShardLog};

use crate::core::Core;
use crate::platform::Platform;

/// An owner that is to let go answers what it has in hand for so long. Then that is given up: others wait as well.
const IN_HAND_NS: u64 = 500_000_000;

impl<P: Platform> Core<P> {
    /// Guidance has said who is to own a shard after that epoch.
    pub(crate) fn hear_heir(&mut self, shard: ShardId, epoch: Epoch, heir: Option<NodeId>) {
        let now_ns = self.platform.monotonic_ns();
        let Some(replicated) = &mut self.replicated else { return };
        replicated.guide.hear_heir(shard, epoch, heir);
        if replicated.guide.is_handing_on(shard) {
            replicated.handing.entry(shard).or_insert(now_ns);
        } else {
            replicated.handing.remove(&shard);
        }
        self.hand_on();
    }

    /// Whether a shard that is open here takes no more requests, as another node is to have it.
    pub(crate) fn is_handing_on(&self, shard: ShardId) -> bool {
        self.replicated.as_ref().is_some_and(|replicated| replicated.guide.is_handing_on(shard))
    }

    /// Lets go of shards that others are to have, once nothing is in hand.
    pub(crate) fn hand_on(&mut self) {
        let Some(replicated) = self.replicated.as_ref().filter(|replicated| !replicated.handing.is_empty()) else {
            return;
        };
        let now_ns = self.platform.monotonic_ns();
        let is_due = |(shard, since_ns): &(&ShardId, &u64)| {
            let is_open = replicated.seats.get(shard).is_some_and(|seat| seat.serving.is_some());
            let is_late = now_ns >= since_ns.saturating_add(IN_HAND_NS);
            is_open && (is_late || self.pending.unanswered_by(**shard).is_empty())
        };
        let due: Vec<ShardId> = replicated.handing.iter().filter(is_due).map(|(shard, _)| *shard).collect();
        for shard in due {
            self.drive(shard, |seat, now_ns, out| seat.replica.handle(now_ns, Event::HandOver, out));
        }
    }

    /// The owner of a shard has let go of it in that epoch: if this node is to have it, it takes it.
    pub(crate) fn take_what_is_let_go(&mut self, shard: ShardId, epoch: Epoch) {
        let Some(replicated) = &mut self.replicated else { return };
        if !replicated.guide.is_heir(shard, epoch) {
            return;
        }
        let (me, next) = (replicated.guide.me(), Epoch(epoch.0 + 1));
        if replicated.guide.hear(shard, me, next, None) {
            self.metrics.shards_received.increment();
            self.drive(shard, |seat, now_ns, out| seat.replica.fence(now_ns, next, out));
            self.arrivals_again(Some(shard));
        }
    }
}
