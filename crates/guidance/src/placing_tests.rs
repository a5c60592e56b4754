//! Leaders and owners on a clock that the test moves: who holds which log, while nodes come and go.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::document::{Guidance, NodeEntry};
use crate::leader::{Audience, Leader, Timing};
use crate::placing::{MetaStep, meta_step};
use crate::status::{Held, Opened, Status};

const MS: u64 = 1_000_000;

/// A cluster whose owners change the set of a log by one node a step.
struct Cluster {
    now_ns: u64,
    leader: Leader,
    guidance: Guidance,
    speaking: BTreeSet<u16>,
    /// Who counts in each shard's log in truth, and how often that has changed.
    held: Vec<(BTreeSet<u16>, u64)>,
    /// Shards with a body that no node can read: newcomers lack it, so the owners change nothing.
    unreadable: BTreeSet<u16>,
}

impl Cluster {
    fn new(nodes: u16, shards: u16, replicas: u16) -> Self {
        let entries = (1..=nodes).map(|node| (node, NodeEntry::default())).collect();
        let guidance = Guidance::first(entries, shards, replicas);
        let held = guidance.shards.iter().map(|place| (place.replicas.iter().copied().collect(), 0)).collect();
        Self {
            now_ns: 0,
            leader: Leader::new(1, Timing::default(), 0, Audience::default()),
            guidance,
            speaking: (1..=nodes).collect(),
            held,
            unreadable: BTreeSet::new(),
        }
    }

    /// Node `n` stands in the rack that `racks` has at `n - 1`.
    fn in_racks(racks: &[&str], shards: u16, replicas: u16) -> Self {
        let mut cluster = Self::new(u16::try_from(racks.len()).expect("few"), shards, replicas);
        for (entry, rack) in cluster.guidance.nodes.values_mut().zip(racks) {
            entry.rack = (*rack).to_owned();
        }
        cluster
    }

    fn join(&mut self, node: u16) {
        self.join_in(node, "");
    }

    fn join_in(&mut self, node: u16, rack: &str) {
        self.guidance.nodes.insert(node, NodeEntry { rack: rack.to_owned(), ..NodeEntry::default() });
        self.speaking.insert(node);
    }

    /// In how many racks the log of each shard is, the fewest of them.
    fn fewest_racks(&self) -> usize {
        let racks = |held: &BTreeSet<u16>| {
            let racks: BTreeSet<&str> = held.iter().map(|node| self.guidance.nodes[node].rack.as_str()).collect();
            racks.len()
        };
        self.held.iter().map(|(held, _)| racks(held)).min().unwrap_or(0)
    }

    fn drain(&mut self, node: u16) {
        self.guidance.nodes.get_mut(&node).expect("a node").is_draining = true;
    }

    /// What the owner of a shard does in a step: one node comes, else one that is not its own goes.
    fn change(&mut self, shard: usize) {
        let place = &self.guidance.shards[shard];
        let (held, agreed) = &mut self.held[shard];
        let wanted: BTreeSet<u16> = place.holders().iter().copied().collect();
        let living = held.iter().filter(|node| self.speaking.contains(node)).count();
        let is_unreadable = self.unreadable.iter().any(|one| usize::from(*one) == shard);
        if is_unreadable || !self.speaking.contains(&place.owner) || living * 2 <= held.len() {
            return;
        }
        let coming = wanted.difference(held).copied().find(|node| self.speaking.contains(node));
        let going = held.difference(&wanted).copied().find(|node| *node != place.owner);
        match (coming, going) {
            (Some(node), _) => drop(held.insert(node)),
            (None, Some(node)) if wanted.is_subset(held) => drop(held.remove(&node)),
            _ => return,
        }
        *agreed += 1;
    }

    fn step(&mut self) {
        self.now_ns += 100 * MS;
        (0..self.held.len()).for_each(|shard| self.change(shard));
        for node in self.speaking.clone() {
            let mut status =
                Status { incarnation: 1, guidance_epoch: self.guidance.epoch, is_caught_up: true, ..Status::default() };
            for (shard, place) in (0u16..).zip(&self.guidance.shards).filter(|(_, place)| place.next == node) {
                status.opened.push(Opened { shard, epoch: place.epoch + 1 });
            }
            for (shard, place) in (0u16..).zip(&self.guidance.shards).filter(|(_, place)| place.owner == node) {
                let (held, agreed) = &self.held[usize::from(shard)];
                if *agreed > place.agreed {
                    let replicas = held.iter().copied().collect();
                    status.held.push(Held { shard, epoch: place.epoch, agreed: *agreed, replicas });
                }
            }
            for shard in self.unreadable.iter().copied() {
                let place = &self.guidance.shards[usize::from(shard)];
                if place.wanted.contains(&node) && !place.replicas.contains(&node) {
                    status.unreadable.push(shard);
                }
            }
            self.leader.audience().heard(self.now_ns, node, status);
        }
        if let Some(next) = self.leader.decide(self.now_ns, &self.guidance) {
            assert_eq!(Guidance::decode(&next.encode()).as_ref(), Ok(&next));
            let moves = |(shard, place): &(u16, &crate::ShardPlacement)| {
                !place.wanted.is_empty() && !self.unreadable.contains(shard)
            };
            let moving = (0..).zip(&next.shards).filter(moves).count();
            assert!(moving <= 4, "{moving} logs move at once");
            let keeps = |place: &crate::ShardPlacement| place.next == 0 || place.holders().contains(&place.next);
            assert!(next.shards.iter().all(keeps), "an heir keeps the log");
            self.guidance = next;
        }
    }

    fn run_ms(&mut self, ms: u64) {
        (0..ms / 100).for_each(|_| self.step());
    }

    fn holds(&self) -> Vec<usize> {
        let holds = |node| self.held.iter().filter(|(held, _)| held.contains(node)).count();
        self.guidance.nodes.keys().map(holds).collect()
    }

    fn owns(&self) -> Vec<usize> {
        self.guidance.nodes.keys().map(|node| self.guidance.owned_by(*node)).collect()
    }

    fn is_settled(&self) -> bool {
        let is_said = |(place, (held, _)): (&crate::ShardPlacement, &(BTreeSet<u16>, u64))| {
            place.wanted.is_empty() && place.replicas.iter().eq(held)
        };
        self.guidance.shards.iter().zip(&self.held).all(is_said)
    }
}

/// Else it counts no more when its time comes, cannot own the shard, and the shard goes to and fro.
#[test]
fn a_shard_is_not_handed_to_a_node_that_is_to_lose_its_log() {
    let mut cluster = Cluster::new(4, 1, 3);
    cluster.run_ms(1_000);
    let place = cluster.guidance.shards[0].clone();
    let others: Vec<u16> = place.replicas.iter().copied().filter(|node| *node != place.owner).collect();
    let free = (1..=4).find(|node| !place.replicas.contains(node)).expect("one of four");
    let mut wanted = vec![place.owner, others[0], free];
    wanted.sort_unstable();
    cluster.guidance.shards[0].wanted = wanted;
    // Nobody but the one that is to lose the log both stays and has it.
    cluster.drain(place.owner);
    cluster.drain(others[0]);
    cluster.step();
    assert_eq!(cluster.guidance.shards[0].next, 0);
    cluster.run_ms(20_000);
    assert!(cluster.guidance.shards[0].owner == free || cluster.guidance.shards[0].owner == others[1]);
}

#[test]
fn a_cluster_of_five_holds_each_shard_on_three_and_all_is_even_at_once() {
    let mut cluster = Cluster::new(5, 20, 3);
    let before = cluster.guidance.shards.clone();
    cluster.run_ms(20_000);
    assert_eq!(cluster.holds(), [12; 5]);
    assert_eq!(cluster.owns(), [4; 5]);
    let replicas =
        |shards: &[crate::ShardPlacement]| shards.iter().map(|place| place.replicas.clone()).collect::<Vec<_>>();
    assert_eq!(replicas(&before), replicas(&cluster.guidance.shards), "nothing had to move");
}

#[test]
fn a_node_that_joins_gets_its_share_and_one_that_drains_loses_all() {
    let mut cluster = Cluster::new(3, 16, 3);
    cluster.run_ms(5_000);
    cluster.join(4);
    cluster.run_ms(60_000);
    assert_eq!((cluster.holds(), cluster.owns()), (vec![12; 4], vec![4; 4]));
    assert!(cluster.is_settled());
    cluster.drain(2);
    cluster.run_ms(60_000);
    assert_eq!(cluster.holds(), [16, 0, 16, 16]);
    assert_eq!(cluster.owns()[1], 0);
    assert!(cluster.is_settled());
}

/// As many as may move at a time, and one more: they do not take up the places of those that can.
#[test]
fn shards_with_bodies_that_nobody_can_read_hold_up_no_other_shard() {
    let mut cluster = Cluster::new(4, 16, 3);
    cluster.run_ms(5_000);
    let held = |cluster: &Cluster| -> BTreeSet<u16> {
        (0..).zip(&cluster.held).filter(|(_, (held, _))| held.contains(&2)).map(|(shard, _)| shard).collect()
    };
    cluster.unreadable = held(&cluster).into_iter().take(5).collect();
    cluster.drain(2);
    cluster.run_ms(60_000);
    assert_eq!(held(&cluster), cluster.unreadable);
    assert_eq!(cluster.owns()[1], 0);
    // Their objects are deleted, one after the other.
    while cluster.unreadable.pop_first().is_some() {
        cluster.run_ms(15_000);
    }
    assert_eq!(held(&cluster), BTreeSet::new());
    assert!(cluster.is_settled());
}

#[test]
fn each_log_is_in_as_many_racks_as_there_are_and_nodes_hold_as_many_as_racks_allow() {
    let mut cluster = Cluster::in_racks(&["a", "a", "b", "b", "c", "c"], 24, 3);
    cluster.run_ms(60_000);
    assert_eq!((cluster.fewest_racks(), cluster.holds()), (3, vec![12; 6]));
    assert!(cluster.is_settled());
    // One rack has a single node, which holds everything then. The others share the rest evenly.
    let mut cluster = Cluster::in_racks(&["a", "b", "b", "b", "c", "c", "c"], 24, 3);
    cluster.run_ms(90_000);
    assert_eq!((cluster.fewest_racks(), cluster.holds()), (3, vec![24, 8, 8, 8, 8, 8, 8]));
    let mut cluster = Cluster::in_racks(&["a", "a", "a", "b"], 8, 3);
    cluster.run_ms(60_000);
    assert_eq!(cluster.fewest_racks(), 2, "there are no more");
    assert!(cluster.is_settled());
}

#[test]
fn logs_move_to_a_rack_that_comes_and_out_of_one_that_goes() {
    let mut cluster = Cluster::in_racks(&["a", "a", "b"], 12, 3);
    cluster.run_ms(5_000);
    assert_eq!(cluster.fewest_racks(), 2);
    cluster.join_in(4, "c");
    cluster.run_ms(60_000);
    assert_eq!(cluster.fewest_racks(), 3);
    assert_eq!(cluster.holds(), [6, 6, 12, 12]);
    cluster.join_in(5, "d");
    cluster.run_ms(60_000);
    assert_eq!(cluster.fewest_racks(), 3);
    cluster.drain(3);
    cluster.run_ms(60_000);
    assert_eq!((cluster.holds()[2], cluster.fewest_racks()), (0, 3));
    assert!(cluster.is_settled());
}

#[test]
fn a_node_that_never_came_gets_nothing() {
    let mut cluster = Cluster::new(3, 8, 3);
    cluster.run_ms(5_000);
    cluster.join(4);
    cluster.speaking.remove(&4);
    cluster.run_ms(20_000);
    assert_eq!(cluster.holds(), [8, 8, 8, 0]);
}

#[test]
fn three_nodes_keep_what_one_that_drains_holds() {
    let mut cluster = Cluster::new(3, 8, 3);
    cluster.run_ms(5_000);
    cluster.drain(3);
    cluster.run_ms(20_000);
    assert_eq!(cluster.holds(), [8, 8, 8], "two are too few");
    assert_eq!(cluster.owns()[2], 0);
}

#[test]
fn a_dead_node_that_drains_is_replaced() {
    let mut cluster = Cluster::new(4, 8, 3);
    cluster.run_ms(5_000);
    cluster.speaking.remove(&3);
    cluster.run_ms(5_000);
    let before = cluster.holds();
    assert!(before[2] > 0, "it may come back");
    cluster.drain(3);
    cluster.run_ms(30_000);
    assert_eq!(cluster.holds()[2], 0);
    assert!(cluster.is_settled());
}

#[test]
fn a_cluster_where_every_node_holds_everything_stays_so() {
    let mut cluster = Cluster::new(4, 6, 0);
    cluster.run_ms(20_000);
    assert_eq!(cluster.holds(), [6; 4]);
}

#[test]
fn the_meta_shard_is_on_all_nodes_and_counts_on_a_few_that_stay() {
    let mut cluster = Cluster::new(3, 4, 3);
    cluster.run_ms(1_000);
    let (mut voters, mut learners) = (BTreeSet::from([1, 2, 3]), BTreeSet::new());
    let settle = |guidance: &Guidance, voters: &mut BTreeSet<u16>, learners: &mut BTreeSet<u16>| {
        for _ in 0..50 {
            match meta_step(guidance, voters, learners) {
                Some(MetaStep::Add(node)) => assert!(learners.insert(node) && !voters.contains(&node)),
                Some(MetaStep::Promote(node)) => assert!(learners.remove(&node) && voters.insert(node)),
                Some(MetaStep::Remove(node)) => assert!(learners.remove(&node) || voters.remove(&node)),
                None => return,
            }
            assert!(voters.len() >= 3);
        }
        panic!("it never ends: {voters:?} {learners:?}");
    };
    settle(&cluster.guidance, &mut voters, &mut learners);
    assert_eq!((voters.len(), learners.len()), (3, 0));
    cluster.join(4);
    cluster.run_ms(1_000);
    settle(&cluster.guidance, &mut voters, &mut learners);
    assert_eq!((voters.clone(), learners.clone()), (BTreeSet::from([1, 2, 3]), BTreeSet::from([4])));
    for node in 5..=7 {
        cluster.join(node);
    }
    cluster.run_ms(1_000);
    settle(&cluster.guidance, &mut voters, &mut learners);
    assert_eq!((voters.len(), learners.len()), (5, 2));
    cluster.drain(1);
    cluster.drain(2);
    settle(&cluster.guidance, &mut voters, &mut learners);
    assert_eq!((voters.clone(), learners.clone()), (BTreeSet::from([3, 4, 5, 6, 7]), BTreeSet::from([1, 2])));
    cluster.guidance.nodes.remove(&1);
    settle(&cluster.guidance, &mut voters, &mut learners);
    assert_eq!(learners, BTreeSet::from([2]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever happens to nodes: at the end each shard is on as many nodes as it should be, and all is even.
    #[test]
    fn any_history_ends_evenly(events in prop::collection::vec((0u8..5, 1u16..=6, 1u64..40), 1..25)) {
        let mut cluster = Cluster::new(4, 9, 3);
        cluster.run_ms(1_000);
        for (kind, node, ticks) in events {
            let is_member = cluster.guidance.nodes.contains_key(&node);
            match kind {
                0 if cluster.speaking.len() > 3 => { cluster.speaking.remove(&node); }
                1 if is_member => { cluster.speaking.insert(node); }
                2 if !is_member => cluster.join(node),
                3 if is_member => cluster.guidance.nodes.get_mut(&node).expect("a node").is_draining ^= true,
                4 => cluster.leader = Leader::new(1, Timing::default(), cluster.now_ns, Audience::default()),
                _ => {}
            }
            cluster.run_ms(ticks * 100);
        }
        for node in cluster.guidance.nodes.keys().copied().collect::<Vec<_>>() {
            cluster.speaking.insert(node);
            cluster.guidance.nodes.get_mut(&node).expect("a node").is_draining = false;
        }
        cluster.run_ms(120_000);
        prop_assert!(cluster.is_settled());
        prop_assert!(cluster.held.iter().all(|(held, _)| held.len() == 3), "{:?}", cluster.held);
        let (holds, owns) = (cluster.holds(), cluster.owns());
        let spread = |of: &[usize]| of.iter().max().expect("some") - of.iter().min().expect("some");
        prop_assert!(spread(&holds) <= 1, "{holds:?}");
        prop_assert!(spread(&owns) <= 2, "{owns:?}");
    }
}
