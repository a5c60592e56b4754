//! The comparisons: what is started, what is asked of it, and the aims.

use super::nodes::Wanted;
use super::workload::{At, Work};
use crate::contest::{Aim, Figure, aim};

/// A server that is started, and what is measured on it.
#[derive(Clone, Debug)]
pub struct Stand {
    /// What is started.
    pub server: ServerKind,
    /// In the order of a round.
    pub tasks: Vec<Task>,
}

/// What is started.
#[derive(Clone, Copy, Debug)]
pub enum ServerKind {
    /// Nodes of Millrace.
    Nodes(Wanted),
    /// Three nodes of etcd.
    Etcd,
}

/// One side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The comparison's id.
    pub cell: &'static str,
    /// The side's name.
    pub side: &'static str,
    /// What a request does. The load generator of etcd only writes.
    pub work: Work,
    /// Which node a client asks.
    pub at: At,
    /// Clients, each with one request under way.
    pub clients: usize,
}

/// A comparison of sides that its stands measure.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Names it on the command line.
    pub id: &'static str,
    /// The sides, in the order of the aims' indexes.
    pub sides: &'static [&'static str],
    /// The aims.
    pub aims: Vec<Aim>,
    /// Ratios of two sides without an aim: name, figure, first, second.
    pub ratios: &'static [(&'static str, Figure, usize, usize)],
}

/// Comparisons that share their servers.
#[derive(Clone, Debug)]
pub struct Part {
    /// Names it on the command line.
    pub name: &'static str,
    /// The servers.
    pub stands: Vec<Stand>,
    /// What they are compared in.
    pub comparisons: Vec<Comparison>,
}

const ONE: &str = "one node";
const OWNER: &str = "three nodes, at the owner";
const FIRST: &str = "three nodes, at any node";
const OURS: &str = "Millrace, at the owner";
const OURS_ANY: &str = "Millrace, at any node";
const ETCD: &str = "etcd";
const SPREAD: &str = "three nodes";

/// The comparison that gives the CPU of followers.
pub const FOLLOWER: &str = "follower";
/// Clients of this one, and beside etcd.
const MANY: usize = 512;
/// Clients of a reservation, as beside its rivals.
const HOTEL: usize = 64;

const REPLICATED: &[&str] = &[OWNER, ONE, FIRST];
const ANY_OVER_ONE: &[(&str, Figure, usize, usize)] = &[
    ("p50, three nodes, at any node / one node", Figure::Median, 2, 1),
    ("p99, three nodes, at any node / one node", Figure::Tail, 2, 1),
];

/// All parts. `each` is the number of CPUs of a node.
#[must_use]
pub fn parts(each: usize) -> Vec<Part> {
    vec![latency(), os(), etcd(each), hotel()]
}

fn wanted(is_cluster: bool, durability: &'static str, cores: usize, work: Work) -> ServerKind {
    ServerKind::Nodes(Wanted { is_cluster, durability, cores, app: work.app() })
}

fn task(cell: &'static str, side: &'static str, (work, at, clients): (Work, At, usize)) -> Task {
    Task { cell, side, work, at, clients }
}

/// Median and tail of three nodes over one.
fn both(what: &str, bound: f64) -> Vec<Aim> {
    let titled = |figure: &str| format!("{what}, {figure} at the owner of three nodes over one node");
    vec![aim(&titled("p50"), Figure::Median, bound, (0, 1)), aim(&titled("p99"), Figure::Tail, bound, (0, 1))]
}

fn compare(id: &'static str, what: &str, bound: f64) -> Comparison {
    Comparison { id, sides: REPLICATED, aims: both(what, bound), ratios: ANY_OVER_ONE }
}

/// Reads first: writes before them would leave work that goes on beside them.
fn latency() -> Part {
    let cells = [("read-1", Work::Read, 1), ("read-64", Work::Read, 64), ("write-1", Work::Write, 1)];
    let cells = [&cells[..], &[("write-64", Work::Write, 64)]].concat();
    let (mut alone, mut cluster) = (Vec::new(), Vec::new());
    for (cell, work, clients) in cells {
        alone.push(task(cell, ONE, (work, At::Owner, clients)));
        cluster.push(task(cell, OWNER, (work, At::Owner, clients)));
        cluster.push(task(cell, FIRST, (work, At::First, clients)));
    }
    cluster.push(task(FOLLOWER, OWNER, (Work::Write, At::Owner, MANY)));
    Part {
        name: "latency",
        stands: vec![
            Stand { server: wanted(false, "fsync", 1, Work::Read), tasks: alone },
            Stand { server: wanted(true, "fsync", 1, Work::Read), tasks: cluster },
        ],
        comparisons: vec![
            compare("read-1", "read of 1 KB, 1 client", 1.15),
            compare("read-64", "read of 1 KB, 64 clients", 1.15),
            compare("write-1", "write of 1 KB with fsync, 1 client", 1.5),
            compare("write-64", "write of 1 KB with fsync, 64 clients", 1.5),
            Comparison { id: FOLLOWER, sides: &[OWNER], aims: Vec::new(), ratios: &[] },
        ],
    }
}

/// Without waiting for the disk.
fn os() -> Part {
    let cells = [("write-os-1", 1), ("write-os-64", 64)];
    let tasks = |side| cells.map(|(cell, clients)| task(cell, side, (Work::Write, At::Owner, clients))).to_vec();
    let compare = |id, what| Comparison { id, sides: &[OWNER, ONE], aims: both(what, 2.0), ratios: &[] };
    Part {
        name: "os",
        stands: vec![
            Stand { server: wanted(false, "os", 1, Work::Write), tasks: tasks(ONE) },
            Stand { server: wanted(true, "os", 1, Work::Write), tasks: tasks(OWNER) },
        ],
        comparisons: vec![
            compare("write-os-1", "write of 1 KB without fsync, 1 client"),
            compare("write-os-64", "write of 1 KB without fsync, 64 clients"),
        ],
    }
}

/// Both have the same CPUs, and as many threads as CPUs.
fn etcd(each: usize) -> Part {
    let ours = [(OURS, At::Owners), (OURS_ANY, At::All)];
    let title = |what| format!("durable writes of 1 KB on three nodes, 512 clients, {what} against etcd");
    Part {
        name: "etcd",
        stands: vec![
            Stand {
                server: wanted(true, "fsync", each, Work::Write),
                tasks: ours.map(|(side, at)| task("etcd", side, (Work::Write, at, MANY))).to_vec(),
            },
            Stand { server: ServerKind::Etcd, tasks: vec![task("etcd", ETCD, (Work::Write, At::All, MANY))] },
        ],
        comparisons: vec![Comparison {
            id: "etcd",
            sides: &[OURS, ETCD, OURS_ANY],
            aims: vec![
                aim(&title("throughput"), Figure::Rate, 5.0, (0, 1)),
                aim(&title("p99"), Figure::Tail, 1.0, (0, 1)),
            ],
            ratios: &[
                ("throughput, Millrace, at any node / etcd", Figure::Rate, 2, 1),
                ("p99, Millrace, at any node / etcd", Figure::Tail, 2, 1),
            ],
        }],
    }
}

fn hotel() -> Part {
    let cells = [("hotel", true), ("hotel-shard", false)];
    let tasks = |side, at| cells.map(|(cell, is_spread)| task(cell, side, (Work::Hotel { is_spread }, at, HOTEL)));
    // Each gets servers of its own: the names of the one are not those of the other.
    let stands = tasks(ONE, At::Owner).into_iter().map(|task| (false, task));
    let stands = stands.chain(tasks(SPREAD, At::All).into_iter().map(|task| (true, task)));
    let stand = |(is_cluster, task): (bool, Task)| Stand {
        server: wanted(is_cluster, "fsync", 1, task.work),
        tasks: vec![task],
    };
    let compare = |id| Comparison {
        id,
        sides: &[SPREAD, ONE],
        aims: Vec::new(),
        ratios: &[
            ("throughput, three nodes / one node", Figure::Rate, 0, 1),
            ("p50, three nodes / one node", Figure::Median, 0, 1),
            ("p99, three nodes / one node", Figure::Tail, 0, 1),
        ],
    };
    Part { name: "hotel", stands: stands.map(stand).collect(), comparisons: cells.map(|(id, _)| compare(id)).to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_side_of_every_comparison_is_measured_once() {
        for part in parts(4) {
            let tasks: Vec<Task> = part.stands.iter().flat_map(|stand| stand.tasks.clone()).collect();
            for comparison in &part.comparisons {
                for side in comparison.sides {
                    let of = |task: &&Task| task.cell == comparison.id && task.side == *side;
                    assert_eq!(tasks.iter().filter(of).count(), 1, "{} {side}", comparison.id);
                }
                let sides = comparison.sides.len();
                assert!(comparison.aims.iter().all(|aim| aim.first < sides && aim.second < sides));
                assert!(comparison.ratios.iter().all(|ratio| ratio.2 < sides && ratio.3 < sides));
            }
            let is_compared = |task: &Task| {
                let mut of = part.comparisons.iter().filter(|one| one.id == task.cell);
                of.any(|one| one.sides.contains(&task.side))
            };
            assert!(tasks.iter().all(is_compared), "{}", part.name);
        }
    }
}
