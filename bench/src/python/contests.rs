//! The contests of Python workers: their sides and aims.

use std::rc::Rc;

use super::workload::{Requests, Social, Unaudited};
use crate::cells::{Measured, Rounds};
use crate::contest::{Contest, ContestResult, Contestant, Figure, Judgement, Load, Order, aim};
use crate::server::{Kind, PythonSide, Setup};
use crate::transactions::workload::{App, Workload};

/// Names the first comparison on the command line.
pub const OWN: &str = "own-entity";

/// Requests a second where both sides get as many, so that both share syncs and wake-ups alike.
const EQUAL_RATE: f64 = 1000.0;
/// Connections of that load, and of those that find a capacity.
const MANY: usize = 64;
/// CPU that a remote call may cost the server more than the same call in the store.
const MORE_CPU_US: f64 = 40.0;

const MANY_COUNTERS: &str = "/call/counter/k{{uniform:0:100000}}/add";
const ONE_COUNTER: &str = "/call/counter/visits/add";

fn python(side: &'static str, app: &'static str, processes: usize) -> PythonSide {
    PythonSide { side, app, processes, counted: "all", durability: "fsync" }
}

fn side(name: &str, kind: PythonSide, workload: Rc<dyn Load>, connections: usize) -> Contestant {
    Contestant { name: name.to_owned(), kind: Kind::Python(kind), workload, connections, cpus: None }
}

/// All contests but the first, in the order they are published.
#[must_use]
pub fn contests() -> Vec<Contest> {
    let mut all = vec![worker(), counter(), hotel(1), hotel(4), hot()];
    all.extend(["single", "chain", "tree", "hotel", "media", "social"].map(guarantees));
    all
}

/// The server's CPU for a handler on its own entity: in a worker, and in the store.
#[must_use]
pub fn own_entity(setup: &Setup, rounds: &Rounds) -> ContestResult {
    let requests = || Rc::new(Requests { rate: Some(EQUAL_RATE), ..Requests::counter(MANY_COUNTERS) });
    let remote = |name: &str, side_name| {
        side(name, PythonSide { counted: "node", ..python(side_name, "counter", 1) }, requests(), MANY)
    };
    let contest = Contest {
        id: OWN.to_owned(),
        sides: vec![
            remote("in a worker that is dialled", "millrace"),
            remote("in a worker that dials in", "dialled"),
            Contestant {
                name: "in the store".to_owned(),
                kind: Kind::Millrace { app: "counter", durability: "fsync", cores: 1 },
                workload: requests(),
                connections: MANY,
                cpus: None,
            },
        ],
        aims: Vec::new(),
        order: Order::Alone,
    };
    // The kernel counts CPU in steps of 10 ms, so a small figure needs a longer look.
    let mut result = contest.run(setup, &Rounds { duration: rounds.duration * 3, ..*rounds });
    result.judgements =
        [0, 1].map(|first| more_cpu(&contest.sides[first].name, &contest.sides[2].name, &result)).into();
    result
}

fn more_cpu(first: &str, second: &str, result: &ContestResult) -> Judgement {
    let cpu = |run: &Measured| run.report.server.as_ref().map(|used| used.cpu_us_per_request);
    let of =
        |side: &str, round: usize| result.runs.iter().find(|run| run.side == side && run.round == round).and_then(cpu);
    let rounds = result.runs.iter().map(|run| run.round).max().map_or(0, |last| last + 1);
    let values: Vec<f64> = (0..rounds).filter_map(|round| Some(of(first, round)? - of(second, round)?)).collect();
    let title = format!("server CPU of a handler on its own entity {first}, more than {second}");
    let mut judgement =
        Judgement::new(&title, format!("≤ {MORE_CPU_US} µs"), "µs", values, |middle| middle <= MORE_CPU_US);
    judgement.compared = format!("{first} / {second}");
    judgement.is_measured = !judgement.values.is_empty();
    if !judgement.is_measured {
        judgement.measured = format!("not measured: {}", result.remarks.join("; "));
    }
    judgement
}

/// The worker's own CPU for it.
fn worker() -> Contest {
    let requests = || Rc::new(Requests::counter(MANY_COUNTERS));
    let counted = PythonSide { counted: "worker", ..python("millrace", "counter", 1) };
    Contest {
        id: "worker".to_owned(),
        sides: vec![
            side("a worker under uvicorn", counted, requests(), MANY),
            side("bare uvicorn", python("bare", "counter", 1), requests(), MANY),
        ],
        aims: vec![aim(
            "CPU of a worker for a handler on its own entity, against uvicorn with a bare ASGI function",
            Figure::Cpu,
            2.0,
            (0, 1),
        )],
        order: Order::Alone,
    }
}

fn counter() -> Contest {
    let requests = |path| Rc::new(Requests::counter(path).keyed());
    let against = |name: &str, second| {
        aim(&format!("durable counter, one client, p50 against {name}"), Figure::Median, 1.0 / 3.0, (0, second))
    };
    Contest {
        id: "counter".to_owned(),
        sides: vec![
            side("Millrace", python("millrace", "counter", 1), requests(ONE_COUNTER), 1),
            side("Restate", python("restate", "", 1), requests("/counter/visits/add"), 1),
            side("DBOS", python("dbos", "", 1), requests(ONE_COUNTER), 1),
            side("Millrace, workers dial in", python("dialled", "counter", 1), requests(ONE_COUNTER), 1),
        ],
        aims: vec![against("Restate", 1), against("DBOS with PostgreSQL", 2)],
        order: Order::Alone,
    }
}

fn hotel(processes: usize) -> Contest {
    let workload = || Rc::new(Workload::new(App::Hotel, true).keyed());
    let one = |name: &str, side_name, app| side(name, python(side_name, app, processes), workload(), MANY);
    let s = if processes == 1 { "" } else { "es" };
    let against = |name: &str, times, second| {
        let title = format!("hotel reservation, {processes} worker process{s}, throughput against {name}");
        aim(&title, Figure::Rate, times, (0, second))
    };
    Contest {
        id: format!("hotel-{processes}"),
        sides: vec![
            one("Millrace", "millrace", "hotel"),
            one("Restate", "restate", ""),
            one("DBOS", "dbos", ""),
            one("FastAPI + asyncpg", "asyncpg", ""),
            one("Millrace, workers dial in", "dialled", "hotel"),
        ],
        aims: vec![
            against("Restate", 5.0, 1),
            against("DBOS with PostgreSQL", 3.0, 2),
            against("FastAPI with asyncpg", 1.5, 3),
        ],
        order: Order::Alone,
    }
}

/// Everybody wants the same entity.
fn hot() -> Contest {
    let requests = |path| Rc::new(Requests::counter(path));
    Contest {
        id: "hot".to_owned(),
        sides: vec![
            side("Millrace", python("millrace", "counter", 1), requests(ONE_COUNTER), MANY),
            side("Restate", python("restate", "", 1), requests("/counter/visits/add"), MANY),
            side("Millrace, workers dial in", python("dialled", "counter", 1), requests(ONE_COUNTER), MANY),
        ],
        aims: Vec::new(),
        order: Order::Alone,
    }
}

/// All guarantees beside parts of them, and beside the same handlers with their state in Redis.
fn guarantees(app: &'static str) -> Contest {
    let workload = |is_keyed, is_spread| -> Rc<dyn Load> {
        let of = |app| Rc::new(Workload { is_keyed, ..Workload::new(app, is_spread) });
        match app {
            "single" => of(App::Single),
            "chain" => of(App::Chain),
            "tree" => of(App::Tree),
            "hotel" => of(App::Hotel),
            "media" => of(App::Media),
            _ => Rc::new(Social::new(is_keyed)),
        }
    };
    let ours = |name: &str, durability, is_keyed, is_spread| {
        let kind = PythonSide { durability, ..python("millrace", app, 1) };
        side(name, kind, workload(is_keyed, is_spread), MANY)
    };
    let none = Rc::new(Unaudited(workload(false, true)));
    Contest {
        id: format!("guarantees-{app}"),
        sides: vec![
            ours("all", "fsync", true, true),
            ours("exactly once", "fsync", true, false),
            ours("transactions", "none", false, true),
            side("none: uvicorn and Redis", python("redis", app, 1), none, MANY),
        ],
        aims: vec![aim(
            &format!("{app}: all guarantees against none, the same handlers under uvicorn with Redis"),
            Figure::Rate,
            0.7,
            (0, 3),
        )],
        order: Order::Alone,
    }
}
