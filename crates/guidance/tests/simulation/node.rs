//! One node: what it follows, what it serves, what it has heard of the others, and whether it leads.

use std::collections::{BTreeMap, BTreeSet};

use millrace_guidance::{Audience, FEATURE_LEVEL, Guidance, Held, Leader, Obstacle, Opened, Status};

use crate::logs::Log;

/// A shard that is being opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    pub epoch: u64,
    pub due_ns: u64,
    /// What a replica has promised that is higher.
    pub promised: u64,
}

/// This node believes that it leads.
#[derive(Debug)]
pub struct Reign {
    pub epoch: u64,
    pub leader: Leader,
    /// What it has proposed, and when that is committed if it can be.
    pub proposed: Option<(Guidance, u64)>,
}

#[derive(Debug, Default)]
pub struct Node {
    pub is_up: bool,
    pub is_leaving: bool,
    /// Until when it hears no status of others.
    pub deaf_until_ns: u64,
    pub incarnation: u64,
    pub since_ns: u64,
    /// How much of the meta shard's log it follows.
    pub follows: usize,
    /// When it follows all that is committed now.
    pub follows_at_ns: u64,
    pub audience: Audience,
    pub reign: Option<Reign>,
    /// The shards that it serves, by epoch.
    pub open: BTreeMap<usize, u64>,
    pub opening: BTreeMap<usize, Opening>,
    /// When it hands a shard of this epoch on.
    pub handing: BTreeMap<(usize, u64), u64>,
    pub stopped: BTreeSet<u16>,
}

impl Node {
    pub fn start(&mut self, now_ns: u64) {
        let incarnation = self.incarnation + 1;
        *self = Self { is_up: true, incarnation, since_ns: now_ns, ..Self::default() };
    }

    pub fn kill(&mut self) {
        *self = Self { incarnation: self.incarnation, ..Self::default() };
    }

    /// What it says of itself.
    pub fn status(&self, me: u16, now_ns: u64, followed: &Guidance, logs: &[Log]) -> Status {
        let places = || (0_u16..).zip(&followed.shards);
        let open = |shard: u16| self.open.get(&usize::from(shard)).copied();
        let appointed = places().filter(|(_, place)| place.owner == me);
        let unserved = appointed.filter(|(shard, place)| open(*shard).is_none_or(|epoch| epoch < place.epoch));
        let obstacle = |(shard, place): (u16, &millrace_guidance::ShardPlacement)| {
            let opening = self.opening.get(&usize::from(shard)).filter(|opening| opening.epoch == place.epoch);
            let promised = opening.map_or(0, |opening| opening.promised);
            Obstacle { shard, epoch: place.epoch, promised, best: 0 }
        };
        let served = || places().filter_map(|(shard, place)| Some((shard, place, open(shard)?)));
        let held = served().filter(|(_, place, epoch)| *epoch == place.epoch && place.owner == me).filter_map(
            |(shard, place, epoch)| {
                let log = &logs[usize::from(shard)];
                let replicas: Vec<u16> = log.voters.iter().copied().collect();
                (replicas != place.replicas).then_some(Held { shard, epoch, agreed: log.agreed, replicas })
            },
        );
        let opened = served().filter(|(_, place, epoch)| *epoch > place.epoch);
        Status {
            incarnation: self.incarnation,
            feature_level: FEATURE_LEVEL,
            guidance_epoch: followed.epoch,
            is_caught_up: now_ns >= self.since_ns + 300_000_000,
            obstacles: unserved.map(obstacle).collect(),
            held: held.collect(),
            opened: opened.map(|(shard, _, epoch)| Opened { shard, epoch }).collect(),
            stopped: self.stopped.iter().copied().collect(),
            is_leaving: self.is_leaving,
            ..Status::default()
        }
    }
}
