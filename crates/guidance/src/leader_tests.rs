//! Leaders on a clock that the test moves.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::document::{Guidance, NodeEntry, ShardPlacement};
use crate::leader::{Audience, Leader, Timing};
use crate::status::{Obstacle, Opened, Status};

const MS: u64 = 1_000_000;

/// A cluster of which the test says who is heard.
struct Cluster {
    now_ns: u64,
    leader: Leader,
    guidance: Guidance,
    /// Incarnation of each node that speaks.
    speaking: BTreeMap<u16, u64>,
    obstacles: BTreeMap<u16, Vec<Obstacle>>,
    /// Shards that broke at a node.
    stopped: BTreeMap<u16, Vec<u16>>,
    /// Nodes that are about to stop.
    leaving: BTreeSet<u16>,
    /// What nodes know that do not know level 3.
    levels: BTreeMap<u16, u32>,
    /// Whether owners hand on what they should.
    hands_on: bool,
    /// Each epoch of each shard, and its owner.
    reigns: BTreeMap<(usize, u64), u16>,
}

impl Cluster {
    fn new(nodes: u16, shards: u16) -> Self {
        let entries = (1..=nodes).map(|node| (node, NodeEntry::default())).collect();
        Self {
            now_ns: 0,
            leader: Leader::new(1, Timing::default(), 0, Audience::default()),
            guidance: Guidance::first(entries, shards, 0),
            speaking: (1..=nodes).map(|node| (node, 1)).collect(),
            obstacles: BTreeMap::new(),
            stopped: BTreeMap::new(),
            leaving: BTreeSet::new(),
            levels: BTreeMap::new(),
            hands_on: true,
            reigns: BTreeMap::new(),
        }
    }

    /// What a node was handed, as the next status says it.
    fn opened_by(&self, node: u16) -> Vec<Opened> {
        let is_its = |place: &(u16, &ShardPlacement)| {
            self.hands_on && place.1.next == node && self.speaking.contains_key(&place.1.owner)
        };
        let places = (0u16..).zip(&self.guidance.shards);
        places.filter(is_its).map(|(shard, place)| Opened { shard, epoch: place.epoch + 1 }).collect()
    }

    fn step(&mut self) {
        self.now_ns += 100 * MS;
        for (node, incarnation) in &self.speaking {
            let status = Status {
                incarnation: *incarnation,
                feature_level: self.levels.get(node).copied().unwrap_or(3),
                guidance_epoch: self.guidance.epoch,
                last_deployment: 0,
                is_caught_up: true,
                obstacles: self.obstacles.get(node).cloned().unwrap_or_default(),
                stopped: self.stopped.get(node).cloned().unwrap_or_default(),
                held: Vec::new(),
                opened: self.opened_by(*node),
                quiet_epoch: 0,
                is_leaving: self.leaving.contains(node),
                ..Status::default()
            };
            self.leader.audience().heard(self.now_ns, *node, status);
        }
        if let Some(next) = self.leader.decide(self.now_ns, &self.guidance) {
            assert_eq!(next.epoch, self.guidance.epoch + 1);
            for (index, (before, after)) in self.guidance.shards.iter().zip(&next.shards).enumerate() {
                assert!(after.epoch >= before.epoch, "epochs only rise");
                assert!(after.epoch > before.epoch || after.owner == before.owner, "another owner, another epoch");
                for (epoch, owner) in [(after.epoch, after.owner), (after.epoch + 1, after.next)] {
                    if owner != 0 {
                        let first = *self.reigns.entry((index, epoch)).or_insert(owner);
                        assert_eq!(first, owner, "one owner in each epoch");
                    }
                }
            }
            assert_eq!(Guidance::decode(&next.encode()).as_ref(), Ok(&next));
            self.guidance = next;
        }
    }

    /// The first shard that a node owns.
    fn first_of(&self, node: u16) -> usize {
        self.guidance.shards.iter().position(|place| place.owner == node).expect("it owns one")
    }

    /// The owner of a shard says that it does not serve it in its epoch. That is all that anybody says.
    fn cannot_serve(&mut self, at: usize) {
        let (shard, place) = (u16::try_from(at).expect("few"), &self.guidance.shards[at]);
        let obstacle = Obstacle { shard, epoch: place.epoch, promised: 0, best: 0 };
        self.obstacles = BTreeMap::from([(place.owner, vec![obstacle])]);
    }

    fn run_ms(&mut self, ms: u64) {
        (0..ms / 100).for_each(|_| self.step());
    }

    fn counts(&self) -> Vec<usize> {
        self.guidance.nodes.keys().map(|node| self.guidance.owned_by(*node)).collect()
    }
}

#[test]
fn a_new_leader_knows_already_that_the_one_before_is_gone() {
    let mut cluster = Cluster::new(3, 6);
    for _ in 0..60 {
        cluster.step();
    }
    assert!(cluster.guidance.shards.iter().any(|place| place.owner == 1));

    // Node 2 has heard both others, and then the connection to node 1 was closed.
    let (guidance_epoch, feature_level) = (cluster.guidance.epoch, cluster.guidance.feature_level);
    let status = Status { is_caught_up: true, guidance_epoch, feature_level, ..Status::default() };
    let mut audience = Audience::default();
    audience.heard(cluster.now_ns, 1, status.clone());
    audience.unlinked(1);
    cluster.now_ns += 300 * MS;
    audience.heard(cluster.now_ns, 3, status.clone());

    let mut leader = Leader::new(2, Timing::default(), cluster.now_ns, audience);
    leader.audience().heard(cluster.now_ns, 2, status);
    let next = leader.decide(cluster.now_ns, &cluster.guidance).expect("something to decide");
    assert!(!next.nodes[&1].is_alive && next.nodes[&3].is_alive);
    assert!(next.shards.iter().all(|place| place.owner != 1), "its shards have owners at once");
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
    cluster.leader.audience().unlinked(3);
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
        let index = cluster.first_of(2);
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
fn a_shard_that_broke_goes_to_another_node_and_to_no_third_one() {
    let mut cluster = Cluster::new(5, 5);
    cluster.run_ms(3_000);
    // It cannot serve the shard in this epoch, as it broke there.
    let breaks = |cluster: &mut Cluster| {
        let owner = cluster.guidance.shards[2].owner;
        cluster.cannot_serve(2);
        cluster.stopped.insert(owner, vec![2]);
        cluster.run_ms(200);
        (owner, cluster.guidance.shards[2].owner)
    };
    let (first, second) = breaks(&mut cluster);
    assert_ne!(first, second, "another one has it at once");
    cluster.run_ms(20_000);
    assert_eq!(cluster.guidance.shards[2].owner, second, "balance does not bring it back");
    let (_, third) = breaks(&mut cluster);
    assert_eq!(third, second);
    cluster.run_ms(20_000);
    assert_eq!(cluster.guidance.shards[2].owner, second, "it stays where it is");
    let broke_at = |node: u16| cluster.stopped.contains_key(&node);
    assert!(cluster.guidance.shards[2].is_quarantined(broke_at));

    // Somebody has mended the program of the node, and started it.
    *cluster.speaking.get_mut(&second).expect("it speaks") += 1;
    cluster.stopped.remove(&second);
    cluster.obstacles.clear();
    cluster.run_ms(200);
    assert_eq!(cluster.guidance.shards[2].owner, second, "it may try again");
}

#[test]
fn a_node_that_drains_keeps_its_shards_until_others_can_have_them() {
    let mut cluster = Cluster::new(3, 6);
    cluster.run_ms(1_000);
    cluster.guidance.nodes.get_mut(&3).expect("a node").is_draining = true;
    cluster.run_ms(100);
    assert_eq!(cluster.counts(), [3, 3, 0]);
    assert!(cluster.guidance.shards.iter().any(|place| place.owner == 3 && place.next != 0), "it hands them on");
    cluster.run_ms(100);
    assert!(cluster.guidance.shards.iter().all(|place| place.owner != 3 && place.next == 0));
    cluster.run_ms(10_000);
    assert_eq!(cluster.counts(), [3, 3, 0]);
}

#[test]
fn a_node_that_is_about_to_stop_hands_its_shards_on_and_gets_them_back() {
    let mut cluster = Cluster::new(3, 6);
    cluster.run_ms(1_000);
    cluster.leaving.insert(2);
    cluster.run_ms(300);
    assert_eq!(cluster.counts(), [3, 0, 3]);
    assert!(!cluster.guidance.nodes[&2].is_draining, "it comes back");
    cluster.leaving.clear();
    cluster.speaking.insert(2, 7);
    cluster.run_ms(10_000);
    assert_eq!(cluster.counts(), [2, 2, 2]);
}

#[test]
fn what_is_not_handed_on_goes_back_to_its_owner_in_an_epoch_of_its_own() {
    let mut cluster = Cluster::new(3, 3);
    cluster.run_ms(1_000);
    cluster.hands_on = false;
    cluster.leaving.insert(2);
    cluster.step();
    let index = cluster.first_of(2);
    let before = cluster.guidance.shards[index].clone();
    assert_ne!(before.next, 0);
    cluster.leaving.clear();
    cluster.run_ms(3_000);
    let after = &cluster.guidance.shards[index];
    assert_eq!((after.owner, after.next, after.epoch), (2, 0, before.epoch + 2), "the next one is the heir's for ever");
}

/// It cannot hand on what it does not serve: it got the shard back every two seconds, and nobody ever served it.
#[test]
fn a_shard_that_broke_at_a_node_that_goes_is_served_elsewhere() {
    let mut cluster = Cluster::new(3, 3);
    cluster.run_ms(1_000);
    cluster.hands_on = false;
    let at = cluster.first_of(2);
    cluster.cannot_serve(at);
    cluster.stopped.insert(2, vec![u16::try_from(at).expect("few")]);
    cluster.leaving.insert(2);
    cluster.run_ms(200);
    let after = &cluster.guidance.shards[at];
    assert!(after.owner != 2 && after.next == 0, "{after:?}");
}

/// All others that hold its log are to go as well.
#[test]
fn a_shard_without_an_owner_goes_to_a_node_that_is_to_go_if_no_other_is_left() {
    let mut cluster = Cluster::new(3, 3);
    cluster.run_ms(1_000);
    let at = cluster.first_of(2);
    cluster.leaving.extend([1, 3]);
    cluster.speaking.remove(&2);
    cluster.run_ms(1_000);
    assert_ne!(cluster.guidance.shards[at].owner, 2);
}

/// An owner that cannot serve for another reason cannot hand on either.
#[test]
fn an_heir_gets_what_its_owner_does_not_serve() {
    let mut cluster = Cluster::new(3, 3);
    cluster.run_ms(1_000);
    cluster.hands_on = false;
    let at = cluster.first_of(2);
    let epoch = cluster.guidance.shards[at].epoch;
    cluster.cannot_serve(at);
    cluster.leaving.insert(2);
    cluster.step();
    let heir = cluster.guidance.shards[at].next;
    assert_ne!(heir, 0);
    cluster.run_ms(3_000);
    let after = &cluster.guidance.shards[at];
    assert_eq!((after.owner, after.next, after.epoch), (heir, 0, epoch + 2));
}

#[test]
fn an_owner_that_dies_while_it_hands_on_is_replaced() {
    let mut cluster = Cluster::new(3, 3);
    cluster.run_ms(1_000);
    cluster.hands_on = false;
    cluster.leaving.insert(2);
    cluster.step();
    let index = cluster.first_of(2);
    let epoch = cluster.guidance.shards[index].epoch;
    cluster.speaking.remove(&2);
    cluster.run_ms(1_000);
    let after = &cluster.guidance.shards[index];
    assert!(after.owner != 2 && after.next == 0 && after.epoch >= epoch + 2);
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
                2 => cluster.leader.audience().unlinked(node),
                _ => cluster.leader = Leader::new(1, Timing::default(), cluster.now_ns, Audience::default()),
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

#[test]
fn a_cluster_uses_what_its_earliest_node_knows_and_takes_nobody_who_knows_less() {
    let mut cluster = Cluster::new(3, 6);
    cluster.levels.insert(2, 2);
    cluster.run_ms(1_000);
    assert_eq!(cluster.guidance.feature_level, 2);
    assert_eq!(cluster.guidance.nodes[&1].feature_level, 3);
    // A node that is away may come back as it was.
    cluster.speaking.remove(&2);
    cluster.run_ms(2_000);
    assert_eq!(cluster.guidance.feature_level, 2, "it counts while it is away");
    cluster.levels.remove(&2);
    cluster.speaking.insert(2, 2);
    cluster.run_ms(2_000);
    assert_eq!(cluster.guidance.feature_level, 3, "the last one has a new version");
    cluster.levels.insert(3, 2);
    cluster.speaking.insert(3, 2);
    cluster.run_ms(2_000);
    assert_eq!(cluster.guidance.feature_level, 3, "it never goes down");
    assert!(!cluster.guidance.is_alive(3), "a node of an earlier version takes no part");
    assert_eq!(cluster.guidance.owned_by(3), 0);
    assert!(cluster.guidance.admits_level(3) && !cluster.guidance.admits_level(2));
}
