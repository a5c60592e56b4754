//! What this node holds: how far its replicas are, who else holds the logs that it owns, and what it is to forget.

use millrace_base::{Lsn, ShardId};
use millrace_driver::TransferJob;
use millrace_guidance::{Guidance, Held, Opened};
use millrace_replica::{Epoch, Replica, RoleName};

use super::{Cluster, Condition};
use crate::core::Core;

/// Entries that a replica may lack and still count as caught up.
const CAUGHT_UP_ENTRIES: u64 = 128;

/// The shards of a core, the meta shard too.
fn shards_of(core: &Core) -> impl Iterator<Item = ShardId> {
    let shared = &core.platform.shared;
    (0..=shared.shard_count()).map(ShardId).filter(|shard| shared.core_of(*shard) == core.index())
}

impl Cluster {
    /// How the replicas of a core are.
    pub(crate) fn condition_of(&self, core: &Core) -> Condition {
        let now_ns = core.platform.shared.clock.monotonic_ns();
        let guidance = self.guidance();
        let mut condition = Condition { is_caught_up: true, ..Condition::default() };
        for shard in shards_of(core) {
            let place = guidance.shards.get(usize::from(shard.0));
            if core.has_stopped(shard) && shard.0 != core.platform.shared.shard_count() {
                condition.stopped.push(shard.0);
            }
            let Some(replica) = core.replica(shard) else {
                let own = place.filter(|place| place.owner == self.me().0 && core.has_stopped(shard));
                condition.unserved.extend(own.map(|place| (shard, Epoch(place.epoch))));
                continue;
            };
            let is_meta = shard.0 == core.platform.shared.shard_count();
            if is_meta || place.is_some_and(|place| place.replicas.contains(&self.me().0)) {
                condition.is_caught_up &= is_near(replica, is_meta, now_ns);
            }
            if replica.role() == RoleName::Resyncing {
                if is_meta {
                    condition.lost.guidance = true;
                } else if place.is_none_or(|place| place.replicas.contains(&self.me().0)) {
                    condition.lost.shards.push(shard.0);
                }
            }
            if let Some((serving, place)) = core.serving(shard).zip(place)
                && serving.0 > place.epoch
            {
                condition.opened.push(Opened { shard: shard.0, epoch: serving.0 });
            }
            let Some(place) = place.filter(|place| place.owner == self.me().0) else { continue };
            if core.serving(shard) == Some(Epoch(place.epoch)) {
                condition.held.extend(held_by_others(&guidance, shard, replica));
            } else {
                condition.unserved.push((shard, Epoch(place.epoch)));
            }
        }
        condition
    }

    /// Empties the state of one shard that this node holds no more, if there is one.
    pub(crate) fn forget_one(&self, core: &mut Core) {
        let guidance = self.guidance();
        let shards: Vec<ShardId> = shards_of(core).collect();
        for shard in shards {
            let Some(place) = guidance.shards.get(usize::from(shard.0)) else { continue };
            if place.agreed > 0 && !place.concerns(self.me().0) && core.begin_forget(shard, Lsn(place.agreed)) {
                tracing::info!(shard = shard.0, "this node holds the shard no more: its rows go");
                let job = TransferJob::Forget { core: core.index(), shard };
                return core.platform.shared.flusher.snapshot(job);
            }
        }
    }
}

/// Whether a replica lacks little of what its owner has committed.
fn is_near(replica: &Replica, is_meta: bool, now_ns: u64) -> bool {
    let log = replica.log();
    let lacks = log.committed().0.saturating_sub(log.durable().0);
    let follows = lacks <= CAUGHT_UP_ENTRIES && replica.has_met_owner() && replica.has_heard_owner(now_ns);
    match replica.role() {
        RoleName::Owner => replica.is_serving(),
        RoleName::Follower => follows,
        // All nodes copy the meta shard, and count in it or not.
        RoleName::Learner => is_meta && follows,
        _ => false,
    }
}

/// Who holds the log of a shard that is owned here, if guidance does not know it yet.
fn held_by_others(guidance: &Guidance, shard: ShardId, replica: &Replica) -> Option<Held> {
    let place = guidance.shards.get(usize::from(shard.0))?;
    let (agreed, set) = replica.log().committed_set();
    let replicas = set.voters().map(|node| node.0).collect();
    (agreed.0 > place.agreed).then_some(Held { shard: shard.0, epoch: place.epoch, agreed: agreed.0, replicas })
}
