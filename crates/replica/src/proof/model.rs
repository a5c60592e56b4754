//! An exhaustive search: from a cluster with a serving owner, everything that may happen next, in every order, within small
//! bounds. A message that is never delivered is a lost one, and any message may be delivered before any other.

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::world::{Letter, Shared, World, fingerprint, id};
use crate::event::Event;
use crate::ids::{Epoch, NodeId};
use crate::replica_set::Change;
use crate::settings::{Bug, Settings};

/// What may still happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Budget {
    /// Nodes that are appointed, in this order.
    appoints: Vec<u16>,
    /// Who writes and who reads, in this order, if it serves.
    submits: Vec<u16>,
    reads: Vec<u16>,
    /// Time passes, and every node hears of it.
    passes: usize,
    /// A node stops, loses what has not reached its disk, and starts again.
    crashes: usize,
    /// A message arrives twice.
    duplicates: usize,
    /// A message is lost that others of its link overtake. Only where links keep the order.
    drops: usize,
    changes: Vec<Change>,
    handovers: usize,
}

/// One of the small worlds.
struct Scenario {
    name: &'static str,
    nodes: (u16, u16),
    leases: bool,
    /// Writes reach the disk one by one, at any time; else at once.
    has_slow_disks: bool,
    /// Messages of one link arrive in their order, as over one connection; else in any order.
    is_ordered: bool,
    /// Node 1 has written an entry that nobody else has, and nobody will get by itself.
    has_lost_write: bool,
    budget: Budget,
    /// More of everything, for long runs.
    large: Budget,
}

const HEARTBEAT: u64 = 100;
/// How much time passes at once: a lease outlasts one pass, and not two.
const PASS: u64 = 150;

fn settings(leases: bool) -> Settings {
    Settings {
        heartbeat_ns: HEARTBEAT,
        lease_ns: if leases { 2 * HEARTBEAT } else { 0 },
        silence_ns: 2 * HEARTBEAT,
        message: (1 << 10, 1),
        ..Settings::default()
    }
}

/// A world with nothing on its way, in which node 1 serves in epoch 1 and one write was acknowledged.
fn begin(scenario: &Scenario, planted: Option<Bug>) -> World {
    let (count, voters) = scenario.nodes;
    let mut world = World::new(count, voters, settings(scenario.leases));
    world.now = 100 * HEARTBEAT;
    world.is_synced_at_once = true;
    world.handle(id(1), Event::Appoint { epoch: Epoch(1) });
    settle(&mut world);
    world.submit(id(1));
    world.handle(id(1), Event::RoundEnded);
    settle(&mut world);
    assert!(world.is_serving(id(1)) && world.checker.acknowledged.0 == 2, "the world begins well");
    if scenario.has_lost_write {
        world.submit(id(1));
        world.handle(id(1), Event::RoundEnded);
        world.letters.clear();
    }
    world.is_synced_at_once = !scenario.has_slow_disks;
    if let Some(bug) = planted {
        world.plant(bug);
    }
    world
}

/// Delivers everything, in order.
fn settle(world: &mut World) {
    while !world.letters.is_empty() {
        let letter = world.letters.remove(0);
        world.deliver(&letter);
    }
}

/// Everything that may happen next.
fn successors(world: &World, budget: &Budget, is_ordered: bool, mut visit: impl FnMut(World, Budget)) {
    for index in 0..world.letters.len() {
        let link = |letter: &Letter| (letter.from, letter.to);
        if is_ordered && world.letters[..index].iter().any(|before| link(before) == link(&world.letters[index])) {
            continue;
        }
        if is_ordered && budget.drops > 0 {
            let mut next = world.clone();
            next.letters.remove(index);
            visit(next, Budget { drops: budget.drops - 1, ..budget.clone() });
        }
        let mut next = world.clone();
        let letter = next.letters.remove(index);
        next.deliver(&letter);
        if budget.duplicates > 0 {
            let mut twice = next.clone();
            twice.letters.push(letter);
            visit(twice, Budget { duplicates: budget.duplicates - 1, ..budget.clone() });
        }
        visit(next, budget.clone());
    }
    if let [first, rest @ ..] = &budget.appoints[..] {
        let mut next = world.clone();
        let epoch = Epoch(100 - rest.len() as u64);
        next.handle(id(*first), Event::Appoint { epoch });
        visit(next, Budget { appoints: rest.to_vec(), ..budget.clone() });
    }
    if let [first, rest @ ..] = &budget.changes[..]
        && let Some(owner) = world.nodes.keys().find(|node| world.may_change(**node, *first))
    {
        let mut next = world.clone();
        next.change(*owner, *first);
        visit(next, Budget { changes: rest.to_vec(), ..budget.clone() });
    }
    if budget.passes > 0 {
        let mut next = world.clone();
        next.now += PASS;
        for node in world.nodes.keys() {
            next.tick(*node, None);
        }
        visit(next, Budget { passes: budget.passes - 1, ..budget.clone() });
    }
    for node in world.nodes.keys() {
        at_node(world, budget, *node, &mut visit);
    }
}

/// What is left of a plan if it is this node's turn.
fn after(plan: &[u16], node: NodeId) -> Option<Vec<u16>> {
    plan.split_first().filter(|(first, _)| id(**first) == node).map(|(_, rest)| rest.to_vec())
}

fn at_node(world: &World, budget: &Budget, node: NodeId, visit: &mut impl FnMut(World, Budget)) {
    if world.is_serving(node) {
        if let Some(submits) = after(&budget.submits, node) {
            let mut next = world.clone();
            next.submit(node);
            next.handle(node, Event::RoundEnded);
            visit(next, Budget { submits, ..budget.clone() });
        }
        if let Some(reads) = after(&budget.reads, node) {
            let mut next = world.clone();
            next.read(node);
            visit(next, Budget { reads, ..budget.clone() });
        }
        if budget.handovers > 0 {
            let mut next = world.clone();
            next.handle(node, Event::HandOver);
            visit(next, Budget { handovers: budget.handovers - 1, ..budget.clone() });
        }
    }
    let unsynced = world.node(node).unsynced.len();
    if unsynced > 0 {
        let mut next = world.clone();
        next.sync(node, 1);
        visit(next, budget.clone());
    }
    if budget.crashes > 0 && (unsynced > 0 || !world.is_synced_at_once) {
        let mut next = world.clone();
        next.crash(node, 0);
        next.start(node);
        visit(next, Budget { crashes: budget.crashes - 1, ..budget.clone() });
    }
}

/// How a search ended.
struct Found {
    states: usize,
    broken: Option<String>,
    is_complete: bool,
}

/// Visits every state once, up to `limit` of them.
fn search(world: World, budget: Budget, is_ordered: bool, limit: usize) -> Found {
    let mut visited = HashSet::with_hasher(FixedState::default());
    let mut stack = vec![(world, budget)];
    while let Some((world, budget)) = stack.pop() {
        if world.checker.broken.is_some() {
            return Found { states: visited.len(), broken: world.checker.broken, is_complete: false };
        }
        if visited.len() >= limit {
            return Found { states: visited.len(), broken: None, is_complete: false };
        }
        successors(&world, &budget, is_ordered, |mut next, budget| {
            for node in next.nodes.keys().copied().collect::<Vec<_>>() {
                next.reopen(node);
            }
            next.forget_the_void();
            if is_ordered {
                next.letters.sort_by_key(|letter| (letter.from, letter.to));
            } else {
                // What is on its way is a set: the order in which it was sent says nothing.
                next.letters.sort_by_key(Shared::fingerprint);
                next.letters.dedup_by_key(|letter| letter.fingerprint());
            }
            if visited.insert(fingerprint(&(&next, &budget))) {
                stack.push((next, budget));
            }
        });
    }
    Found { states: visited.len(), broken: None, is_complete: true }
}

fn scenarios() -> Vec<Scenario> {
    [takeovers(), others()].into_iter().flatten().collect()
}

fn takeovers() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "takeover, reads confirmed by rounds",
            nodes: (3, 3),
            leases: false,
            has_slow_disks: false,
            is_ordered: false,
            has_lost_write: false,
            budget: Budget { appoints: vec![2], submits: vec![2], reads: vec![1], ..Budget::default() },
            large: Budget {
                appoints: vec![2, 3],
                submits: vec![2, 3],
                reads: vec![1, 2],
                duplicates: 1,
                ..Budget::default()
            },
        },
        Scenario {
            name: "takeover, leases",
            nodes: (3, 3),
            leases: true,
            has_slow_disks: false,
            is_ordered: true,
            has_lost_write: false,
            budget: Budget { appoints: vec![2], submits: vec![2], reads: vec![1], passes: 2, ..Budget::default() },
            large: Budget {
                appoints: vec![2],
                submits: vec![1, 2],
                reads: vec![1, 1],
                passes: 3,
                handovers: 1,
                ..Budget::default()
            },
        },
    ]
}

fn others() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "crashes that lose what is not durable",
            nodes: (3, 3),
            leases: false,
            has_slow_disks: true,
            is_ordered: false,
            has_lost_write: false,
            budget: Budget { appoints: vec![2], submits: vec![1], crashes: 1, ..Budget::default() },
            large: Budget { appoints: vec![2, 3], submits: vec![1], crashes: 2, ..Budget::default() },
        },
        Scenario {
            name: "one epoch after the other",
            nodes: (3, 3),
            leases: false,
            has_slow_disks: false,
            is_ordered: true,
            has_lost_write: true,
            budget: Budget { appoints: vec![2, 1, 2], drops: 2, ..Budget::default() },
            large: Budget { appoints: vec![2, 1, 2], drops: 3, duplicates: 1, ..Budget::default() },
        },
        Scenario {
            name: "changes of the replica set",
            nodes: (4, 3),
            leases: false,
            has_slow_disks: false,
            is_ordered: false,
            has_lost_write: false,
            budget: Budget {
                appoints: vec![2],
                changes: vec![Change::Remove(id(3))],
                submits: vec![1],
                ..Budget::default()
            },
            large: Budget {
                appoints: vec![2, 1],
                changes: vec![Change::Remove(id(3)), Change::AddLearner(id(4)), Change::Promote(id(4))],
                submits: vec![2],
                ..Budget::default()
            },
        },
    ]
}

/// `MILLRACE_MODEL_STATES`: search the large bounds, up to so many states.
#[allow(clippy::disallowed_methods, reason = "the size of a test is chosen by who runs it")]
fn large_limit() -> Option<usize> {
    std::env::var("MILLRACE_MODEL_STATES").ok().and_then(|states| states.parse().ok())
}

#[test]
fn within_small_bounds_nothing_that_may_happen_breaks_a_promise() {
    for scenario in scenarios() {
        let (budget, limit) = match large_limit() {
            Some(limit) => (scenario.large.clone(), limit),
            // The scenario of epochs is larger: its search ends here, and is not exhaustive.
            None => (scenario.budget.clone(), 300_000),
        };
        let found = search(begin(&scenario, None), budget, scenario.is_ordered, limit);
        println!("{}: {} states, complete: {}", scenario.name, found.states, found.is_complete);
        assert_eq!(found.broken, None, "{}", scenario.name);
    }
}

/// What breaks with the bug in the scenario of that name, within so many states.
pub(super) fn found_by_search(bug: Bug, name: &str, limit: usize) -> Option<String> {
    let scenario = scenarios().into_iter().find(|scenario| scenario.name == name).expect("a scenario of that name");
    search(begin(&scenario, Some(bug)), scenario.budget.clone(), scenario.is_ordered, limit).broken
}
