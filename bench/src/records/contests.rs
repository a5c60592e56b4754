//! The contests of records: their sides and aims.

use std::rc::Rc;

use super::workload::{BENCHMARKED, KEYS, Records, Target, Work};
use crate::contest::{Contest, Contestant, Figure, Order, aim};
use crate::server::Kind;
use crate::transactions::workload::{App, Workload};

/// Connections of the old server's own figures.
const CLASSIC: usize = 100;
/// Connections of the contests with the durable counter.
const MANY: usize = 1024;
/// Connections of the contests with rivals.
const RIVALS: usize = 64;

const NODE: Kind = Kind::Records { durability: "fsync", cores: 1, memory_mib: None };

fn side(name: &str, kind: Kind, workload: Records, connections: usize) -> Contestant {
    Contestant { name: name.to_owned(), kind, workload: Rc::new(workload), connections, cpus: None }
}

fn rival(folder: &'static str) -> Kind {
    Kind::Rival { folder }
}

/// All contests, in the order they are published.
#[must_use]
pub fn contests() -> Vec<Contest> {
    let mut all = vec![read(), write()];
    all.extend([Work::Get, Work::Put, Work::Update].map(rivals));
    all
}

fn read() -> Contest {
    let records = |target| Records { target, work: Work::Get, count: BENCHMARKED };
    Contest {
        id: "get".to_owned(),
        sides: vec![
            side("classic GET", NODE, records(Target::Classic), CLASSIC),
            side("native GET", NODE, records(Target::Native), CLASSIC),
            side("bare epoll responder", Kind::Limit, records(Target::Limit), CLASSIC),
        ],
        aims: vec![
            aim(
                "classic GET of one of 10,240 records, server CPU against the bare responder",
                Figure::Cpu,
                1.6,
                (0, 2),
            ),
            aim("native GET of one of 10,240 records, server CPU against the bare responder", Figure::Cpu, 1.6, (1, 2)),
        ],
        order: Order::Alone,
    }
}

fn write() -> Contest {
    let records = |target, work| Records { target, work, count: KEYS };
    let counter = Workload::new(App::Counter, false);
    let against = |title: &str, first| {
        aim(&format!("{title}, durable, throughput against the durable counter"), Figure::Rate, 0.85, (first, 4))
    };
    Contest {
        id: "write".to_owned(),
        sides: vec![
            side("native PUT", NODE, records(Target::Native, Work::Put), MANY),
            side("native PATCH of one field", NODE, records(Target::Native, Work::Update), MANY),
            side("classic put", NODE, records(Target::Classic, Work::Put), MANY),
            side("classic update of one field", NODE, records(Target::Classic, Work::Update), MANY),
            Contestant::millrace("durable counter", "fsync", counter, MANY),
        ],
        aims: vec![
            against("native PUT", 0),
            against("native PATCH of one field", 1),
            against("classic put", 2),
            against("classic update of one field", 3),
        ],
        order: Order::Alone,
    }
}

fn rivals(work: Work) -> Contest {
    let records = |target| Records { target, work, count: KEYS };
    let (id, what) = match work {
        Work::Get => ("rival-get", "get"),
        Work::Put => ("rival-put", "put"),
        Work::Update => ("rival-update", "update of one path"),
    };
    let against =
        |rival: &str, second| aim(&format!("{what}, throughput against {rival}"), Figure::Rate, 5.0, (0, second));
    Contest {
        id: id.to_owned(),
        sides: vec![
            side("Millrace", NODE, records(Target::Native), RIVALS),
            side("PostgreSQL JSONB behind pREST", rival("prest-records"), records(Target::Prest), RIVALS),
            side(
                "PostgreSQL JSONB behind a front of our own",
                rival("postgres-records"),
                records(Target::Postgres),
                RIVALS,
            ),
            side("MongoDB", rival("mongodb-records"), records(Target::Mongo), RIVALS),
        ],
        aims: vec![
            against("PostgreSQL JSONB behind pREST", 1),
            against("PostgreSQL JSONB behind a front written for this comparison", 2),
            against("MongoDB", 3),
        ],
        order: Order::Alone,
    }
}
