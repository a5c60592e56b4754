//! Leaders on a clock that the test moves.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::document::{Guidance, NodeEntry};
use crate::leader::{Leader, Timing};
use crate::status::{Obstacle, Status};

const MS: u64 = 1_000_000;

/// A cluster of which the test says who is heard.
struct Cluster {
    now_ns: u64,
    leader: Leader,
    guidance: Guidance,
    /// Incarnation of each node that speaks.
    speaking: BTreeMap<u16, u64>,
    obstacles: BTreeMap<u16, Vec<Obstacle>>,
    /// Each epoch of each shard, and its owner.
    reigns: BTreeMap<(usize, u64), u16>,
}

impl Cluster {
    fn new(nodes: u16, shards: u16) -> Self {
        let entries = (1..=nodes).map(|node| (node, NodeEntry::default())).collect();
        Self {
            now_ns: 0,
            leader: Leader::new(1, Timing::default(), 0),
            guidance: Guidance::first(entries, shards, 0),
            speaking: (1..=nodes).map(|node| (node, 1)).collect(),
            obstacles: BTreeMap::new(),
            reigns: BTreeMap::new(),
        }
    }

    fn step(&mut self) {
        self.now_ns += 100 * MS;
        for (node, incarnation) in &self.speaking {
            let status = Status {
                incarnation: *incarnation,
                guidance_epoch: self.guidance.epoch,
                last_deployment: 0,
                is_caught_up: true,
                obstacles: self.obstacles.get(node).cloned().unwrap_or_default(),
                held: Vec::new(),
            };
            self.leader.heard(self.now_ns, *node, status);
        }
        if let Some(next) = self.leader.decide(self.now_ns, &self.guidance) {
            assert_eq!(next.epoch, self.guidance.epoch + 1);
            for (index, (before, after)) in self.guidance.shards.iter().zip(&next.shards).enumerate() {
                assert!(after.epoch >= before.epoch, "epochs only rise");
                assert!(after.epoch > before.epoch || after.owner == before.owner, "another owner, another epoch");
                let owner = *self.reigns.entry((index, after.epoch)).or_insert(after.owner);
                assert_eq!(owner, after.owner, "one owner in each epoch");
            }
            assert_eq!(Guidance::decode(&next.encode()).as_ref(), Ok(&next));
            self.guidance = next;
        }
    }

    fn run_ms(&mut self, ms: u64) {
        (0..ms / 100).for_each(|_| self.step());
    }

    fn counts(&self) -> Vec<usize> {
        self.guidance.nodes.keys().map(|node| self.guidance.owned_by(*node)).collect()
    }
}

#[test]
fn the_first_owners_are_dealt_out_evenly_once_all_nodes_are_there() {
    let mut cluster = Cluster::new(3, 8);
    cluster.speaking.remove(&3);
    cluster.run_ms(1_000);
    assert_eq!(cluster.guidance.epoch, 0, "it waits");
    cluster.speaking.insert(3, 1);
    cluster.run_ms(200);
    assert_eq!(cluster.counts(), [3, 3, 2]);
}

#[test]
fn it_begins_with_a_majority_after_a_while_and_not_without() {
    let mut cluster = Cluster::new(3, 8);
    cluster.speaking = BTreeMap::from([(1, 1)]);
    cluster.run_ms(5_000);
    assert_eq!(cluster.guidance.epoch, 0);
    cluster.speaking.insert(2, 1);
    cluster.run_ms(200);
    assert_eq!(cluster.counts(), [4, 4, 0]);
}

#[test]
fn a_dead_nodes_shards_go_to_the_others_and_come_back_one_by_one() {
    let mut cluster = Cluster::new(3, 9);
    cluster.run_ms(1_000);
    assert_eq!(cluster.counts(), [3, 3, 3]);
    let before = cluster.guidance.clone();
    cluster.speaking.remove(&2);
    cluster.run_ms(500);
    assert_eq!(cluster.guidance.shards, before.shards, "not yet dead");
    cluster.run_ms(300);
    assert_eq!(cluster.counts(), [5, 0, 4]);
    for (before, after) in before.shards.iter().zip(&cluster.guidance.shards) {
        assert_eq!(before.owner != 2, before == after, "shards of others do not notice");
    }
    cluster.speaking.insert(2, 2);
    cluster.run_ms(1_000);
    assert_eq!(cluster.counts(), [5, 0, 4], "it has to be there for a while");
    cluster.run_ms(6_000);
    assert_eq!(cluster.counts(), [3, 3, 3]);
}

#[test]
fn a_closed_connection_makes_it_quick() {
    let mut cluster = Cluster::new(3, 3);
    cluster.run_ms(1_000);
    cluster.speaking.remove(&3);
    cluster.leader.unlinked(3);
    cluster.run_ms(200);
    assert_eq!(cluster.guidance.owned_by(3), 0);
}

#[test]
fn a_node_that_started_anew_owns_its_shards_in_new_epochs() {
    let mut cluster = Cluster::new(3, 3);
    cluster.run_ms(1_000);
    let before = cluster.guidance.clone();
    cluster.speaking.insert(2, 99);
    cluster.run_ms(100);
    for (before, after) in before.shards.iter().zip(&cluster.guidance.shards) {
        assert_eq!(after.owner, before.owner);
        assert_eq!(after.epoch, before.epoch + u64::from(before.owner == 2));
    }
}

#[test]
fn an_appointment_that_cannot_be_followed_is_replaced() {
    let obstacle = |cluster: &Cluster, promised, best| {
        let index = cluster.guidance.shards.iter().position(|place| place.owner == 2).expect("it owns one");
        let shard = u16::try_from(index).expect("few shards");
        (index, Obstacle { shard, epoch: cluster.guidance.shards[index].epoch, promised, best })
    };
    let mut cluster = Cluster::new(3, 3);
    cluster.run_ms(1_000);
    let (index, taken) = obstacle(&cluster, 7, 0);
    cluster.obstacles.insert(2, vec![taken]);
    cluster.step();
    assert_eq!((cluster.guidance.shards[index].owner, cluster.guidance.shards[index].epoch), (2, 8));
    let (index, behind) = obstacle(&cluster, 0, 3);
    cluster.obstacles.insert(2, vec![behind]);
    cluster.step();
    assert_eq!((cluster.guidance.shards[index].owner, cluster.guidance.shards[index].epoch), (3, 9));
    cluster.obstacles.clear();
    cluster.run_ms(10_000);
    let (index, stuck) = obstacle(&cluster, 0, 0);
    let before = cluster.guidance.shards[index].clone();
    cluster.obstacles.insert(2, vec![stuck]);
    cluster.run_ms(1_500);
    assert_eq!(cluster.guidance.shards[index], before, "it may take a moment");
    cluster.run_ms(1_000);
    assert_ne!(cluster.guidance.shards[index].owner, 2);
}

#[test]
fn a_node_that_drains_keeps_its_shards_until_others_can_have_them() {
    let mut cluster = Cluster::new(3, 6);
    cluster.run_ms(1_000);
    cluster.guidance.nodes.get_mut(&3).expect("a node").is_draining = true;
    cluster.run_ms(100);
    assert_eq!(cluster.counts(), [3, 3, 0]);
    cluster.run_ms(10_000);
    assert_eq!(cluster.counts(), [3, 3, 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is heard of nodes: each epoch has one owner, who is a replica; and at rest all is even.
    #[test]
    fn any_history_ends_evenly(events in prop::collection::vec((0u8..4, 1u16..=3, 1u64..8), 1..60)) {
        let mut cluster = Cluster::new(3, 7);
        for (kind, node, ticks) in events {
            match kind {
                0 => { cluster.speaking.remove(&node); }
                1 => { cluster.speaking.insert(node, cluster.now_ns); }
                2 => cluster.leader.unlinked(node),
                _ => cluster.leader = Leader::new(1, Timing::default(), cluster.now_ns),
            }
            cluster.run_ms(ticks * 100);
        }
        cluster.speaking = (1..=3).map(|node| (node, cluster.now_ns)).collect();
        cluster.run_ms(20_000);
        let counts = cluster.counts();
        prop_assert_eq!(counts.iter().sum::<usize>(), 7);
        prop_assert!(counts.iter().max().expect("three") - counts.iter().min().expect("three") <= 1, "{:?}", counts);
    }
}
