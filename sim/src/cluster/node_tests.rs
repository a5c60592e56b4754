//! A shard without functions, as a cluster keeps its guidance in: the node makes its entries.

use millrace_base::{EntityKey, Value};
use millrace_format::{EntryRef, Write};
use millrace_replica::EntryKind;

use super::*;
use crate::cluster::platform::NodeClock;

const SHARD: ShardId = ShardId(0);
const ME: NodeId = NodeId(1);

struct Leader {
    node: Node,
    shared: Shared,
    rng: Rng,
}

impl Leader {
    fn new(ahead_ms: u64) -> Self {
        let mut rng = Rng::new(1);
        let links = Links::new(&[ME], Rng::new(rng.draw()));
        let sets = vec![ReplicaSet::of([ME])];
        let shared = Shared { now: Now::default(), links, sets, shard_count: 1, bug: None };
        let node = Node::new(ME, NodeClock { rate: 1_000, ahead_ms });
        let mut leader = Self { node, shared, rng };
        leader.start();
        leader
    }

    fn start(&mut self) {
        self.node.start(&self.shared, &mut self.rng);
        let hosted = Hosted { options: None, ..self.node.recover(SHARD, &self.shared, &mut self.rng) };
        self.core().host(hosted);
    }

    fn core(&mut self) -> &mut Core<ClusterPlatform> {
        self.node.core_of(SHARD).expect("it runs")
    }

    fn pass(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 10 {
            self.shared.now.set(self.shared.now.get() + 10_000_000);
            self.node.tick();
            self.node.work(&mut self.rng, false);
        }
    }

    /// Makes an entry once it leads, and waits until that is committed.
    fn propose(&mut self) {
        let field: Box<[u8]> = (*b"epoch").into();
        let write = Write { entity: EntityKey::internal("test", b"guidance"), field, value: Some(Value::json("1")) };
        let made = (0..1_000).find_map(|_| {
            self.pass(10);
            self.core().propose(SHARD, std::slice::from_ref(&write)).ok()
        });
        let lsn = made.expect("it leads before long");
        self.pass(50);
        assert!(self.core().hosted_store(SHARD).is_some_and(|store| store.lsn() >= lsn), "it is not committed");
    }

    /// The times of its entries, from when it began.
    fn times(&mut self) -> Vec<u64> {
        let entries = self.node.entries(SHARD).into_iter().filter(|entry| entry.kind == EntryKind::Data);
        entries.map(|entry| EntryRef::decode(&entry.bytes).expect("entries decode").time.0).collect()
    }
}

#[test]
fn the_time_of_guidance_never_goes_back_on_a_clock_that_was_set_back() {
    let mut leader = Leader::new(60_000);
    leader.propose();
    leader.core().platform.clock.ahead_ms = 0;
    leader.propose();
    leader.propose();
    let times = leader.times();
    assert_eq!(times.len(), 3);
    assert!(times.is_sorted(), "{times:?}");
    assert!(times[1] < times[2], "it goes on meanwhile: {times:?}");
}

#[test]
fn the_time_of_guidance_never_goes_back_when_the_next_leaders_clock_is_behind() {
    let mut leader = Leader::new(60_000);
    leader.node.trims = false;
    leader.propose();
    leader.node.crash(&mut leader.rng);
    leader.node.clock.ahead_ms = 0;
    leader.start();
    leader.propose();
    let times = leader.times();
    assert_eq!(times.len(), 2);
    assert!(times.is_sorted(), "{times:?}");
}
