//! The shards of this core stand still for a moment, so that a backup sees all nodes of a cluster at one moment.
//!
//! What shards make meanwhile waits before their replicas: it is in no log, nobody has acknowledged it, and nothing that another
//! shard does rests on it. All else goes on. After a while the core goes on by itself.

use std::collections::VecDeque;

use bytes::Bytes;
use millrace_base::{Lsn, ShardId};
use millrace_replica::{Epoch, ShardLog};

use super::Seat;
use crate::core::Core;
use crate::platform::{DriverBug, Platform};

/// Entries of a shard that wait, in order.
pub(crate) type Held = VecDeque<(Lsn, Bytes)>;

/// A shard that is open here, and where its log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The shard.
    pub shard: ShardId,
    /// The epoch in which it is open.
    pub epoch: Epoch,
    /// Its last entry, committed or not.
    pub last: Lsn,
}

impl<P: Platform> Core<P> {
    /// Has no shard of this core add an entry for so long, or until [`Core::go_on`]. Gives the shards that are open here.
    pub fn stand_still(&mut self, for_ns: u64) -> Vec<Standing> {
        let now_ns = self.platform.monotonic_ns();
        let is_planted = self.platform.has_planted(DriverBug::AddWhileStill);
        let Some(replicated) = &mut self.replicated else { return Vec::new() };
        replicated.still_until_ns = Some(now_ns.saturating_add(for_ns));
        let mut standing = Vec::new();
        for (shard, seat) in &mut replicated.seats {
            // Nothing of other shards rests on one that runs no functions.
            if seat.options.is_some() && !is_planted {
                seat.held.get_or_insert_default();
            }
            if let Some(epoch) = seat.serving {
                standing.push(Standing { shard: *shard, epoch, last: seat.replica.log().last().lsn });
            }
        }
        standing
    }

    /// What has waited goes to the replicas.
    pub fn go_on(&mut self) {
        let Some(replicated) = self.replicated.as_mut().filter(|replicated| replicated.still_until_ns.is_some()) else {
            return;
        };
        replicated.still_until_ns = None;
        let shards: Vec<ShardId> = replicated.seats.keys().copied().collect();
        for shard in shards {
            // What the shard makes meanwhile comes behind what has waited.
            while let Some((lsn, bytes)) = self.seat(shard).and_then(Seat::next_held) {
                self.drive(shard, |seat, now_ns, out| seat.replica.submit(now_ns, lsn, bytes, out));
            }
        }
        self.platform.wake();
    }

    /// Goes on if that is due.
    pub(crate) fn look_whether_still(&mut self) {
        let now_ns = self.platform.monotonic_ns();
        let until_ns = self.replicated.as_ref().and_then(|replicated| replicated.still_until_ns);
        if until_ns.is_some_and(|until_ns| now_ns >= until_ns) {
            self.go_on();
        }
    }

    /// Whether the replica of each of these shards has on its disk all that its owner had. Only those that this core hosts are
    /// looked at.
    #[must_use]
    pub fn holds_all(&self, standing: &[Standing]) -> bool {
        standing.iter().all(|Standing { shard, epoch, last }| {
            self.replica(*shard).is_none_or(|replica| replica.holds_of(*epoch, *last))
        })
    }
}

impl Seat {
    /// The next entry that waits. After the last one none waits any more.
    fn next_held(&mut self) -> Option<(Lsn, Bytes)> {
        let next = self.held.as_mut()?.pop_front();
        if next.is_none() {
            self.held = None;
        }
        next
    }
}
