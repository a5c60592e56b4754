//! The contests of transactions: their sides and aims.

use std::rc::Rc;

use crate::contest::{Contest, Contestant, Figure, Order, aim};
use crate::server::Kind;
use crate::transactions::workload::{App, Workload};

/// Connections of the contests between our own sides.
const MANY: usize = 1024;
/// Connections of the contest with rivals.
const HOTEL: usize = 64;
/// Connections where only the CPU decides.
const ENOUGH: usize = 256;
/// The CPUs of a server on two cores. The load generator has to share the second.
const BOTH: &str = "0-1";

/// All contests, in the order they are published.
#[must_use]
pub fn contests() -> Vec<Contest> {
    let mut all = vec![key(), one_core(), two_cores(), hotel()];
    all.extend([App::Single, App::Chain, App::Tree, App::Hotel, App::Media].map(guarantees));
    all
}

fn key() -> Contest {
    let counter = Workload::new(App::Counter, false);
    Contest {
        id: "key".to_owned(),
        sides: vec![
            Contestant::millrace("with a key", "fsync", counter.keyed(), MANY),
            Contestant::millrace("without", "fsync", counter, MANY),
        ],
        aims: vec![
            aim("durable counter, CPU a request with a key against without", Figure::Cpu, 1.1, (0, 1)),
            aim("durable counter, throughput with a key against without", Figure::Rate, 0.9, (0, 1)),
        ],
        order: Order::Turns,
    }
}

fn one_core() -> Contest {
    let side = |name: &str, app, is_spread| Contestant::millrace(name, "fsync", Workload::new(app, is_spread), MANY);
    Contest {
        id: "shards".to_owned(),
        sides: vec![
            side("single", App::Single, false),
            side("chain, one shard", App::Chain, false),
            side("chain, three shards", App::Chain, true),
            side("tree, two shards", App::Tree, true),
        ],
        aims: vec![
            aim("chain of three on one shard, throughput against the single counter", Figure::Rate, 0.6, (1, 0)),
            aim("chain of three on three shards of one core, against the single counter", Figure::Rate, 0.25, (2, 0)),
            aim("tree over two shards of one core, against the single counter", Figure::Rate, 0.25, (3, 0)),
        ],
        order: Order::Alone,
    }
}

fn two_cores() -> Contest {
    let side = |name: &str, app, is_spread| {
        let workload = Workload::new(app, is_spread);
        let kind = Kind::Millrace { app: workload.folder(), durability: "fsync", cores: 2 };
        Contestant { name: name.to_owned(), kind, workload: Rc::new(workload), connections: MANY, cpus: Some(BOTH) }
    };
    Contest {
        id: "cores".to_owned(),
        sides: vec![
            side("single, 2 cores", App::Single, false),
            side("chain, three shards, 2 cores", App::Chain, true),
            side("tree, two shards, 2 cores", App::Tree, true),
        ],
        aims: vec![
            aim("chain of three on different cores, throughput against the single counter", Figure::Rate, 0.25, (1, 0)),
            aim("tree over two shards on different cores, against the single counter", Figure::Rate, 0.25, (2, 0)),
        ],
        order: Order::Alone,
    }
}

fn hotel() -> Contest {
    let workload = Workload::new(App::Hotel, true);
    let rival = |name: &str, folder| Contestant {
        name: name.to_owned(),
        kind: Kind::Rival { folder },
        workload: Rc::new(workload),
        connections: HOTEL,
        cpus: None,
    };
    let mut aims = Vec::new();
    for (at, name, times) in [(1, "Restate", 10.0), (2, "Express + PostgreSQL", 5.0)] {
        aims.push(aim(&format!("hotel reservation, throughput against {name}"), Figure::Rate, times, (0, at)));
        aims.push(aim(&format!("hotel reservation, p50 against {name}"), Figure::Median, 1.0, (0, at)));
        aims.push(aim(&format!("hotel reservation, p99 against {name}"), Figure::Tail, 1.0, (0, at)));
    }
    Contest {
        id: "hotel".to_owned(),
        sides: vec![
            Contestant::millrace("Millrace", "fsync", workload, HOTEL),
            rival("Restate", "restate-hotel"),
            rival("Express + PostgreSQL", "express-hotel"),
        ],
        aims,
        order: Order::Alone,
    }
}

/// All guarantees against none, without waiting for a disk. Placement is not a guarantee, but `all` of the matrix places
/// entities on separate shards. So both are compared at equal placement, and across.
fn guarantees(app: App) -> Contest {
    let name = Workload::new(app, false).folder();
    let all = |title, is_spread| Contestant::millrace(title, "os", Workload::new(app, is_spread).keyed(), ENOUGH);
    let none = |title, is_spread| Contestant::millrace(title, "none", Workload::new(app, is_spread), ENOUGH);
    let mut sides = vec![all("all, one shard", false), none("none, one shard", false)];
    let mut aims =
        vec![aim(&format!("{name}: all guarantees against none, both on one shard"), Figure::Rate, 0.7, (0, 1))];
    if app != App::Single {
        sides.extend([all("all, own shards", true), none("none, own shards", true)]);
        let title = format!("{name}: all guarantees against none, both on shards of their own");
        aims.push(aim(&title, Figure::Rate, 0.7, (2, 3)));
        let title = format!("{name}: all guarantees on shards of their own against none on one shard");
        aims.push(aim(&title, Figure::Rate, 0.7, (2, 1)));
    }
    Contest { id: format!("guarantees-{name}"), sides, aims, order: Order::Alone }
}
