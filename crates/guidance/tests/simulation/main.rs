//! Whole clusters of guidance: several nodes, each of which may lead, over links that fail.
//!
//! The leader of each node is the one that ships. The logs of shards and of the meta shard are models: what counts is who has
//! promised which epoch, and who counts among the replicas. `crates/replica` and the simulation of clusters have the rest.
//!
//! Promises: whatever happens, an epoch of a shard has one owner, and who owns a shard holds its log. Once all is well again,
//! each shard is served, and lies on as many nodes as are wanted and on none that is to go. Then nothing moves any more.

mod cluster;
mod logs;
mod node;

use cluster::{Cluster, Event};
use proptest::prelude::*;

fn event() -> impl Strategy<Value = Event> {
    let node = 0..12_usize;
    prop_oneof![
        4 => node.clone().prop_map(Event::Kill),
        4 => node.clone().prop_map(Event::Start),
        2 => any::<u8>().prop_map(Event::Split),
        2 => Just(Event::Heal),
        2 => node.clone().prop_map(Event::Deafen),
        2 => node.clone().prop_map(Event::Drain),
        1 => node.clone().prop_map(Event::Stay),
        2 => Just(Event::Join),
        2 => node.clone().prop_map(Event::Remove),
        1 => node.clone().prop_map(Event::Leave),
        1 => node.prop_map(Event::DoNotLeave),
        1 => (0..8_usize, any::<bool>()).prop_map(|(shard, is_poisoned)| Event::Break(shard, is_poisoned)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    #[test]
    fn whatever_happens_a_cluster_comes_to_rest_and_serves_all(
        nodes in 3..=5_u16,
        shards in 1..=8_u16,
        seed in 1..u64::MAX,
        events in prop::collection::vec((0..4_000_u64, event()), 0..30),
    ) {
        let mut cluster = Cluster::new(nodes, shards, seed);
        cluster.run_ms(3_000);
        for (pause_ms, event) in events {
            cluster.happens(event);
            cluster.run_ms(pause_ms);
        }
        cluster.is_well();
        cluster.comes_to_rest();
    }
}
