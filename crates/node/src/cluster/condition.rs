//! What the leader hears of this node's replicas.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use millrace_base::ShardId;
use millrace_guidance::{Held, Obstacle, Opened};
use millrace_replica::{Epoch, NodeId};

use super::lost::LostData;
use super::{Cluster, locked};

/// Why an appointment cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hindrance {
    /// A replica has promised this epoch, or a higher one, to somebody else.
    EpochTaken(Epoch),
    /// This node has entries that the appointed one cannot get any more.
    AppointInstead(NodeId),
}

/// What one core says of its replicas.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    pub is_caught_up: bool,
    /// Shards that it was appointed to and does not serve yet.
    pub unserved: Vec<(ShardId, Epoch)>,
    /// Shards that it serves and whose logs other nodes hold than guidance says.
    pub held: Vec<Held>,
    /// Shards that it serves in a later epoch than guidance says.
    pub opened: Vec<Opened>,
    pub lost: LostData,
    /// Shards that broke here.
    pub stopped: Vec<u16>,
}

/// What all cores together say.
pub(super) struct Said {
    pub is_caught_up: bool,
    pub obstacles: Vec<Obstacle>,
    pub held: Vec<Held>,
    pub opened: Vec<Opened>,
    pub lost: LostData,
    pub stopped: Vec<u16>,
}

impl Cluster {
    /// Whether the replicas of all cores have caught up, and what keeps this node from following its appointments.
    pub(super) fn condition(&self) -> Said {
        let cores = locked(&self.cores);
        let mut known = locked(&self.hindrances);
        let unserved: BTreeMap<ShardId, Epoch> =
            cores.values().flat_map(|core| core.unserved.iter().copied()).collect();
        known.retain(|shard, _| unserved.contains_key(shard));
        let obstacle = |(shard, epoch): (&ShardId, &Epoch)| {
            let (promised, best) = match known.get(shard) {
                Some(Hindrance::EpochTaken(promised)) => (promised.0, 0),
                Some(Hindrance::AppointInstead(best)) => (0, best.0),
                None => (0, 0),
            };
            Obstacle { shard: shard.0, epoch: epoch.0, promised, best }
        };
        let has_bodies = !self.lacks_bodies.load(Ordering::Acquire);
        let is_caught_up = has_bodies && !cores.is_empty() && cores.values().all(|core| core.is_caught_up);
        let held = cores.values().flat_map(|core| core.held.iter().cloned()).collect();
        let opened = cores.values().flat_map(|core| core.opened.iter().copied()).collect();
        let obstacles = unserved.iter().map(obstacle).collect();
        drop(known);
        drop(cores);
        Said { is_caught_up, obstacles, held, opened, lost: self.lost_here(), stopped: self.stopped_here() }
    }
}
