//! A shard goes from one living node to another: its owner takes no more requests, answers what it has in hand, and lets go.
//!
//! What comes meanwhile waits, and goes to the heir once that serves. The heir sees that the owner has let go, and takes the
//! shard at once: no lease is waited for. The heir's shard writes at once, too: whoever lets go holds nothing that others may
//! count on (`hold_ms` of [`ShardOptions`]).

use millrace_base::ShardId;
use millrace_replica::{Epoch, Event, NodeId, ShardLog};
use millrace_shard::ShardOptions;

use crate::core::Core;
use crate::platform::{DriverBug, Platform};

const MS: u64 = 1_000_000;

/// An owner that is to let go answers what it has in hand for so long. Then that is given up: others wait as well.
const IN_HAND_NS: u64 = 500 * MS;

/// How far a shard is that another node is to have.
pub(crate) struct Handing {
    epoch: Epoch,
    since_ns: u64,
    /// Since when nothing that the shard says leaves.
    shut_ns: Option<u64>,
    has_let_go: bool,
}

impl<P: Platform> Core<P> {
    /// Guidance has said who is to own a shard after that epoch.
    pub(crate) fn hear_heir(&mut self, shard: ShardId, epoch: Epoch, heir: Option<NodeId>) {
        let now_ns = self.platform.monotonic_ns();
        let Some(replicated) = &mut self.replicated else { return };
        replicated.guide.hear_heir(shard, epoch, heir);
        let epoch = replicated.guide.handing_on(shard);
        if replicated.handing.get(&shard).map(|handing| handing.epoch) != epoch {
            replicated.handing.remove(&shard);
            let handing = |epoch| Handing { epoch, since_ns: now_ns, shut_ns: None, has_let_go: false };
            replicated.handing.extend(epoch.map(|epoch| (shard, handing(epoch))));
        }
        self.hand_on();
        self.take_what_is_let_go(shard);
    }

    /// Whether a shard that is open here takes no more requests, as another node is to have it.
    pub(crate) fn is_handing_on(&self, shard: ShardId) -> bool {
        self.replicated.as_ref().is_some_and(|replicated| replicated.guide.handing_on(shard).is_some())
    }

    /// Something has changed at a shard: if another node is to have it, the end of the round looks whether it may let go.
    pub(crate) fn look_whether_due(&self, shard: ShardId) {
        let handing = self.replicated.as_ref().and_then(|replicated| replicated.handing.get(&shard));
        if handing.is_some_and(|handing| !handing.has_let_go) {
            self.platform.wake();
        }
    }

    /// Lets go of shards that others are to have, once that is due.
    pub(crate) fn hand_on(&mut self) {
        let Some(replicated) = self.replicated.as_ref().filter(|replicated| !replicated.handing.is_empty()) else {
            return;
        };
        let waits = |(_, handing): &(&ShardId, &Handing)| !handing.has_let_go;
        let shards: Vec<ShardId> = replicated.handing.iter().filter(waits).map(|(shard, _)| *shard).collect();
        shards.into_iter().for_each(|shard| self.hand_on_if_due(shard));
    }

    /// A shard is let go of when nothing is in hand and nothing is locked: then nobody counts on its memory. After a while
    /// that is not waited for. From then on the shard says nothing. What it has locked is let go of when nobody outside may
    /// count on it any more.
    fn hand_on_if_due(&mut self, shard: ShardId) {
        let now_ns = self.platform.monotonic_ns();
        let has_in_hand = !self.pending.unanswered_by(shard).is_empty();
        let holds_nothing = self.platform.has_planted(DriverBug::HandOnLocked)
            || self.shard_mut(shard).is_none_or(|shard| shard.holds_nothing());
        let speaks_on = self.platform.has_planted(DriverBug::SpeakHandedOn);
        let Some(replicated) = &mut self.replicated else { return };
        // What was said of an earlier opening does not count for a later one, nor does what is no longer so.
        let Some(epoch) = replicated.guide.handing_on(shard) else { return };
        let seat = replicated.seats.get_mut(&shard).filter(|seat| seat.serving == Some(epoch));
        let handing = replicated.handing.get_mut(&shard).filter(|handing| handing.epoch == epoch);
        let Some((seat, handing)) = seat.zip(handing) else { return };
        let is_late = now_ns >= handing.since_ns.saturating_add(IN_HAND_NS);
        if (has_in_hand || !holds_nothing) && !is_late {
            return;
        }
        if !speaks_on {
            seat.gate.shut();
        }
        let held_ms = seat.options.as_ref().and_then(ShardOptions::held_ms).unwrap_or_default();
        let held_until_ns = handing.shut_ns.get_or_insert(now_ns).saturating_add(held_ms * MS);
        if holds_nothing || now_ns >= held_until_ns {
            handing.has_let_go = true;
            self.drive(shard, |seat, now_ns, out| seat.replica.handle(now_ns, Event::HandOver, out));
        }
    }

    /// The owner of a shard has let go of it in that epoch.
    pub(crate) fn hear_let_go(&mut self, shard: ShardId, epoch: Epoch) {
        let Some(replicated) = &mut self.replicated else { return };
        replicated.guide.hear_let_go(shard, epoch);
        self.take_what_is_let_go(shard);
    }

    /// Takes a shard that this node is to have, once its owner has let go.
    fn take_what_is_let_go(&mut self, shard: ShardId) {
        let Some(replicated) = &mut self.replicated else { return };
        let Some(next) = replicated.guide.inherited(shard) else { return };
        let me = replicated.guide.me();
        if replicated.guide.hear(shard, me, next, None) {
            if let Some(seat) = replicated.seats.get_mut(&shard) {
                seat.handed = Some(next);
            }
            self.metrics.shards_received.increment();
            self.drive(shard, |seat, now_ns, out| seat.replica.fence(now_ns, next, out));
            self.arrivals_again(Some(shard));
        }
    }
}
