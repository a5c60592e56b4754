//! How this node's part of the replication is, for `/metrics`.
//!
//! Promises: the labels are the numbers of nodes, 64 at most. A node that stands alone shows the same names, at zero.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_base::ShardId;
use millrace_base::metric::Counter;
use millrace_guidance::Guidance;
use millrace_replica::{Epoch, NodeId};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::Cluster;
use crate::core::Core;

/// What the replicas of one core are, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Figures {
    /// Shards that are served here.
    served: u64,
    /// Those of them of which it is not certain at this moment that this node still owns them.
    unleased: u64,
    /// Shards that this node owns and does not serve yet.
    unserved: u64,
    highest_epoch: u64,
    guidance_epoch: u64,
    leads: bool,
    /// What the replicas on each other node lack: entries, and bytes.
    lags: BTreeMap<u16, (u64, u64)>,
}

impl Figures {
    fn add(&mut self, other: &Self) {
        self.served += other.served;
        self.unleased += other.unleased;
        self.unserved += other.unserved;
        self.highest_epoch = self.highest_epoch.max(other.highest_epoch);
        self.guidance_epoch = self.guidance_epoch.max(other.guidance_epoch);
        self.leads |= other.leads;
        for (node, (entries, bytes)) in &other.lags {
            self.note_lag(*node, *entries, *bytes);
        }
    }

    fn note_lag(&mut self, node: u16, entries: u64, bytes: u64) {
        let sum = self.lags.entry(node).or_default();
        *sum = (sum.0 + entries, sum.1 + bytes);
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct ReplicationMetrics {
    cores: Mutex<BTreeMap<usize, Figures>>,
    /// By core: the guidance that it followed when its figures were noted last.
    followed: Mutex<BTreeMap<usize, Arc<Guidance>>>,
    failovers: Counter,
    // The flusher alone writes these.
    pub snapshots_sent: Counter,
    pub snapshot_sent_bytes: Counter,
    pub snapshot_received_bytes: Counter,
}

impl ReplicationMetrics {
    fn note(&self, core: usize, figures: Figures) {
        self.cores.lock().unwrap_or_else(PoisonError::into_inner).insert(core, figures);
    }

    /// Counts the failovers since the core's figures were noted last: shards of `guidance` that fit, by their numbers.
    fn note_failovers(&self, core: usize, guidance: &Arc<Guidance>, me: u16, fits: impl Fn(usize) -> bool) {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = followed.insert(core, Arc::clone(guidance)) {
            self.failovers.add(failovers(&earlier, guidance, me, fits));
        }
    }

    fn sum(&self) -> Figures {
        let mut sum = Figures::default();
        self.cores.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(|core| sum.add(core));
        sum
    }

    pub(crate) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let sum = self.sum();
        for (name, help, value) in [
            ("millrace_shards_served", "Shards that this node serves", sum.served),
            ("millrace_shards_unleased", "Shards that this node serves without a lease at this moment", sum.unleased),
            ("millrace_shards_unserved", "Shards that this node owns and does not serve yet", sum.unserved),
            ("millrace_highest_epoch", "The highest epoch of a shard that this node serves", sum.highest_epoch),
            ("millrace_guidance_epoch", "The guidance that this node follows", sum.guidance_epoch),
            ("millrace_leads_guidance", "1 if this node leads the guidance", u64::from(sum.leads)),
        ] {
            let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            metric.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        type Of = fn(&(u64, u64)) -> u64;
        let lags: [(&str, &str, Of); 2] = [
            (
                "millrace_replication_lag_entries",
                "Entries of shards served here that a node has not acknowledged",
                |lag| lag.0,
            ),
            ("millrace_replication_lag_bytes", "Their bytes, as far as they are in memory", |lag| lag.1),
        ];
        for (name, help, of) in lags {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (node, lag) in &sum.lags {
                let metric = ConstGauge::new(i64::try_from(of(lag)).unwrap_or(i64::MAX));
                metric.encode(family.encode_family(&[("node", node.to_string())])?)?;
            }
        }
        for (name, help, counter) in [
            ("millrace_failovers", "Shards taken from an owner that was lost or had restarted", &self.failovers),
            ("millrace_snapshots_sent", "Shards whose rows were carried to another node", &self.snapshots_sent),
            ("millrace_snapshot_sent_bytes", "Bytes of rows carried to other nodes", &self.snapshot_sent_bytes),
            ("millrace_snapshot_received_bytes", "Bytes of rows from other nodes", &self.snapshot_received_bytes),
        ] {
            let metric = ConstCounter::new(counter.get());
            metric.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }
}

/// How many shards that fit this node has got from an owner that was lost, or has lost its memory, since `earlier`.
fn failovers(earlier: &Guidance, guidance: &Guidance, me: u16, fits: impl Fn(usize) -> bool) -> u64 {
    let is_lost = |owner: u16| {
        let incarnation = |guidance: &Guidance| guidance.nodes.get(&owner).map(|entry| entry.incarnation);
        let is_alive = guidance.nodes.get(&owner).is_some_and(|entry| entry.is_alive);
        !is_alive || incarnation(earlier) != incarnation(guidance)
    };
    let shards = earlier.shards.iter().zip(&guidance.shards).enumerate();
    let taken = shards.filter(|(shard, (before, now))| {
        let is_taken = now.owner == me && ![0, me].contains(&before.owner);
        is_taken && is_lost(before.owner) && fits(*shard)
    });
    taken.count() as u64
}

impl Cluster {
    /// Notes how the replicas of a core are. The meta shard does not count among the shards.
    pub(crate) fn note_figures(&self, core: &mut Core) {
        let (guidance, me) = (self.guidance(), self.me());
        let shared = std::sync::Arc::clone(&core.platform.shared);
        let leads = self.leader() == Some(me);
        let mut figures = Figures { guidance_epoch: guidance.epoch, leads, ..Figures::default() };
        let index = core.index();
        let is_own = |shard: usize| u16::try_from(shard).is_ok_and(|shard| shared.core_of(ShardId(shard)) == index);
        shared.replication.note_failovers(index, &guidance, me.0, is_own);
        for shard in (0..shared.shard_count()).map(ShardId).filter(|shard| shared.core_of(*shard) == index) {
            let place = guidance.shards.get(usize::from(shard.0)).filter(|place| place.owner == me.0);
            let serving = core.serving(shard);
            figures.unserved += u64::from(place.is_some_and(|place| serving < Some(Epoch(place.epoch))));
            let Some(epoch) = serving else { continue };
            figures.served += 1;
            figures.unleased += u64::from(!core.holds_lease(shard));
            figures.highest_epoch = figures.highest_epoch.max(epoch.0);
            for lag in core.replica(shard).map(|replica| replica.lags()).unwrap_or_default() {
                let NodeId(node) = lag.node;
                figures.note_lag(node, lag.entries, lag.bytes);
            }
        }
        shared.replication.note(index, figures);
    }
}

#[cfg(test)]
mod tests {
    use millrace_guidance::{NodeEntry, ShardPlacement};

    use super::*;

    #[test]
    fn a_shard_that_comes_from_a_lost_owner_is_a_failover_and_one_that_is_handed_on_is_none() {
        let guidance = |owners: &[u16], alive: &[u16], incarnation: u64| {
            let entry =
                |node| (node, NodeEntry { is_alive: alive.contains(&node), incarnation, ..NodeEntry::default() });
            let nodes = [1, 2, 3].map(entry).into();
            let shards =
                owners.iter().map(|owner| ShardPlacement { owner: *owner, ..ShardPlacement::default() }).collect();
            Arc::new(Guidance { nodes, shards, ..Guidance::default() })
        };
        let metrics = ReplicationMetrics::default();
        for (owners, alive, incarnation, expected) in [
            // What it hears first is no news.
            ([1, 2, 3, 0], &[1, 2, 3][..], 1, 0),
            ([1, 2, 3, 1], &[1, 2, 3], 1, 0),
            // Handed on by node 2, which lives.
            ([1, 1, 3, 1], &[1, 2, 3], 1, 0),
            // Node 3 is lost, and another core has its own shards.
            ([1, 1, 1, 1], &[1, 2], 1, 1),
            ([3, 2, 1, 1], &[1, 2, 3], 1, 1),
            // Both have lost their memory. The second shard is another core's.
            ([1, 1, 1, 1], &[1, 2, 3], 2, 2),
        ] {
            metrics.note_failovers(0, &guidance(&owners, alive, incarnation), 1, |shard| shard != 1);
            assert_eq!(metrics.failovers.get(), expected, "{owners:?} {alive:?}");
        }
    }

    #[test]
    fn the_cores_of_a_node_are_summed_by_follower() {
        let metrics = ReplicationMetrics::default();
        let figures = |lag: (u64, u64), epoch| Figures {
            served: 2,
            unleased: 1,
            highest_epoch: epoch,
            lags: BTreeMap::from([(2, lag), (3, (0, 0))]),
            ..Figures::default()
        };
        metrics.note(0, figures((5, 50), 7));
        metrics.note(1, figures((6, 60), 9));
        metrics.note(1, figures((1, 10), 8));
        let sum = metrics.sum();
        assert_eq!((sum.served, sum.unleased, sum.highest_epoch), (4, 2, 8), "a core's last figures count");
        assert_eq!(sum.lags, BTreeMap::from([(2, (6, 60)), (3, (0, 0))]));
    }
}
