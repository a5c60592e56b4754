//! The contests: what runs beside what, and what is aimed at.

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
        title: "Reading a record".to_owned(),
        note: "`GET /personinfo/get/1?benchmark_only=10240`, as the old server was measured, and `GET /records/personinfo/{id}` with \
               an id drawn by the load generator; 10,240 records, put there before. The responder ignores its input and answers `ok`, where a \
               record is 78 bytes of JSON, and natively has an `ETag`."
            .to_owned(),
        sides: vec![
            side("classic GET", NODE, records(Target::Classic), CLASSIC),
            side("native GET", NODE, records(Target::Native), CLASSIC),
            side("bare epoll responder", Kind::Limit, records(Target::Limit), CLASSIC),
        ],
        aims: vec![
            aim("classic GET of one of 10,240 records, server CPU against the bare responder", Figure::Cpu, 1.6, (0, 2)),
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
        title: "Writing a record".to_owned(),
        note: "Durable (`fsync`), on one core, one of 100,000 keys, all as likely. Records are there before; each put is a whole record with \
               another age, each update sets the age alone. The counter is `POST /call/counter/{key}/add`."
            .to_owned(),
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
    let (id, title, request, rest, command) = match work {
        Work::Get => (
            "rival-get",
            "Reading a record beside PostgreSQL and MongoDB",
            "`GET /records/personinfo/{id}`",
            "`GET` of the row by its `id`",
            "`find` by `_id`",
        ),
        Work::Put => (
            "rival-put",
            "Putting a record beside PostgreSQL and MongoDB",
            "`PUT /records/personinfo/{id}` of a whole record",
            "`PUT` of the whole column of a row that is there",
            "`update` of the whole document, with `upsert`",
        ),
        Work::Update => (
            "rival-update",
            "Updating one path beside PostgreSQL and MongoDB",
            "`PATCH /records/personinfo/{id}` with `[{\"op\":\"set\",\"path\":\".age\",\"value\":…}]`",
            "`PATCH` of a view of the one field, which sets its path",
            "`update` with `{\"$set\": {\"age\": …}}`",
        ),
    };
    let records = |target| Records { target, work, count: KEYS };
    let what = match work {
        Work::Get => "get",
        Work::Put => "put",
        Work::Update => "update of one path",
    };
    let against =
        |rival: &str, second| aim(&format!("{what}, throughput against {rival}"), Figure::Rate, 5.0, (0, second));
    Contest {
        id: id.to_owned(),
        title: title.to_owned(),
        note: format!(
            "{request}, one of 100,000 records. All have a write on disk (`fsync`) before they answer. Each has one CPU for all its \
             processes. PostgreSQL has a `jsonb` column, and before it two fronts in turn. pREST is one that anybody can install: {rest}; see \
             `bench/rivals/prest-records`. The other was written for this comparison and does nothing but run one prepared, pipelined \
             statement a request, with the same requests as Millrace; see `bench/rivals/postgres-records`. MongoDB is asked in its own \
             protocol: {command}, writes with `j: true`, which has them in the journal on disk; see `bench/rivals/mongodb-records`."
        ),
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
