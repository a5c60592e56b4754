//! The comparisons of functions: their sides, the figure that decides, and the aim.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use millrace_loadgen::{Expectation, HttpRequest, Plan, Report, RequestTemplate, run};
use serde::{Deserialize, Serialize};

use crate::graph::PEOPLE;
use crate::machine::median;
use crate::server::{Kind, PASSWORD, Server, Setup, USER, store_program};
use crate::{Outcome, fsync};

/// Which figure of two sides is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Server CPU per request: first side over second, at most the aim.
    Cpu,
    /// Right replies a second: first side over second, at least the aim.
    Rate,
    /// Right replies a second: the lowest of all sides over the highest, at least the aim.
    Spread,
}

/// The requests of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// `GET /user/login`, Basic auth.
    LoginRoute,
    /// `POST /call/user/{name}/check`: the same work as the route's, in one synchronous handler.
    LoginCall,
    /// The login function in the store.
    LoginLua,
    /// `POST /call/counter/{key}/add`, one of 100,000 keys.
    CounterAdd,
    /// `INCR`, one of 100,000 keys.
    StoreIncrement,
    /// `POST /call/friends/all/walk`, from one of all people.
    GraphWalk,
}

/// One server under one load.
#[derive(Clone, Debug)]
pub struct Side {
    /// Its name in tables.
    pub name: String,
    /// The server.
    pub kind: Kind,
    /// The requests.
    pub work: Work,
    /// Connections of the load generator.
    pub connections: usize,
    /// Requests in flight on each connection (HTTP/1.1 pipelining).
    pub in_flight: usize,
}

/// One comparison.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Names it on the command line.
    pub id: &'static str,
    /// Names it in tables.
    pub title: &'static str,
    /// The figure that decides.
    pub figure: Figure,
    /// The bound of the ratio; see [`Figure`].
    pub aim: f64,
    /// The sides: two, or more for [`Figure::Spread`].
    pub sides: Vec<Side>,
}

/// Number and length of rounds.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// Rounds.
    pub count: usize,
    /// How long each side is measured in a round.
    pub duration: Duration,
    /// How long each side runs before that.
    pub warm_up: Duration,
}

/// One side in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// The side's name.
    pub side: String,
    /// Counted from 0.
    pub round: usize,
    /// The cost of 4 KiB and `fdatasync` on the data folder's disk just before.
    pub fsync_us: f64,
    /// The load generator's report.
    pub report: Report,
}

/// The result of a comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CellResult {
    /// Names it on the command line.
    pub id: String,
    /// Names it in tables.
    pub title: String,
    /// The bound of the ratio; see [`Figure`].
    pub aim: String,
    /// `A / B`, where two sides are compared.
    #[serde(default)]
    pub compared: String,
    /// First side over second, per round.
    pub ratios: Vec<f64>,
    /// The median of the ratios.
    pub ratio: f64,
    /// Whether the median meets the aim.
    pub is_met: bool,
    /// The reason if there is no figure.
    pub problem: Option<String>,
    /// Every side of every round.
    pub runs: Vec<Measured>,
    /// Further lines for a person.
    #[serde(default)]
    pub remarks: Vec<String>,
}

fn millrace(app: &'static str, durability: &'static str) -> Kind {
    Kind::Millrace { app, durability, cores: 1 }
}

fn side(name: impl Into<String>, kind: Kind, work: Work, connections: usize) -> Side {
    Side { name: name.into(), kind, work, connections, in_flight: 1 }
}

/// The same work over few and many connections. The first comparison has one request in flight on each connection. The
/// second has at least a hundred over all, so that no round trip limits few connections.
fn cells_of_connections() -> [Cell; 2] {
    let over = |name: String, connections, in_flight| {
        let side = side(name, millrace("login", "fsync"), Work::LoginRoute, connections);
        Side { in_flight, ..side }
    };
    let cell = |id, title, sides| Cell { id, title, figure: Figure::Spread, aim: 0.75, sides };
    [
        cell(
            "login-connections",
            "login (GET route), throughput over 1 to 10,000 connections",
            [1, 10, 100, 1000, 10_000].map(|count| over(format!("Millrace, {count} connections"), count, 1)).to_vec(),
        ),
        cell(
            "login-in-flight",
            "login (GET route), throughput over 1 to 10,000 connections, at least 100 requests in flight",
            [(1, 100), (10, 10), (100, 1), (1000, 1), (10_000, 1)]
                .map(|(count, each)| {
                    over(format!("Millrace, {count} connections, {each} in flight on each"), count, each)
                })
                .to_vec(),
        ),
    ]
}

/// Many reads of state in one call.
fn cell_of_a_walk() -> Cell {
    Cell {
        id: "graph-walk",
        title: "a walk over a graph (45 lists read in a call), throughput against Node.js with a Map",
        figure: Figure::Rate,
        aim: 0.5,
        sides: vec![
            side("Millrace walk", millrace("friends", "fsync"), Work::GraphWalk, 100),
            side("Node.js with a Map", Kind::NodeMap, Work::GraphWalk, 100),
        ],
    }
}

/// All comparisons of functions, in the order they are published.
#[must_use]
pub fn function_cells() -> Vec<Cell> {
    let login = || side("Millrace login route", millrace("login", "fsync"), Work::LoginRoute, 100);
    let store = store_program().trim_end_matches("-server");
    let limit = |work| side("bare epoll responder", Kind::Limit, work, 100);
    let add = |durability| {
        side(format!("Millrace add, {durability}"), millrace("counter", durability), Work::CounterAdd, 1024)
    };
    let cell = |id, title, figure, aim, sides| Cell { id, title, figure, aim, sides };
    let mut cells = vec![
        cell(
            "login-limit",
            "login (GET route), server CPU against the bare responder",
            Figure::Cpu,
            1.8,
            vec![login(), limit(Work::LoginRoute)],
        ),
        cell(
            "login-call-limit",
            "login (POST /call), server CPU against the bare responder",
            Figure::Cpu,
            1.6,
            vec![side("Millrace login call", millrace("login", "fsync"), Work::LoginCall, 100), limit(Work::LoginCall)],
        ),
        cell(
            "login-express",
            "login (GET route), server CPU against Express and its store",
            Figure::Cpu,
            1.0 / 12.0,
            vec![login(), side(format!("Express + {store}"), Kind::Express, Work::LoginRoute, 100)],
        ),
        cell(
            "login-lua",
            "login (GET route), server CPU against the store's Lua function over RESP",
            Figure::Cpu,
            1.0,
            vec![
                login(),
                side(format!("{store} Lua function"), Kind::Store { is_durable: false }, Work::LoginLua, 100),
            ],
        ),
        cell(
            "counter-durability",
            "durable counter, throughput against the same without a log",
            Figure::Rate,
            0.6,
            vec![add("fsync"), add("none")],
        ),
        cell(
            "counter-increment",
            "durable counter, server CPU against INCR with appendfsync always",
            Figure::Cpu,
            1.25,
            vec![
                add("fsync"),
                side(format!("{store} INCR"), Kind::Store { is_durable: true }, Work::StoreIncrement, 1024),
            ],
        ),
    ];
    cells.push(cell_of_a_walk());
    cells.extend(cells_of_connections());
    cells
}

/// The rivals alone, at the same loads. This checks the machine.
#[must_use]
pub fn rival_cells() -> Vec<Cell> {
    let store = store_program().trim_end_matches("-server");
    vec![Cell {
        id: "rivals",
        title: "the rivals alone",
        figure: Figure::Spread,
        aim: 0.0,
        sides: vec![
            side("bare epoll responder", Kind::Limit, Work::LoginRoute, 100),
            side("bare epoll responder, 10,000 connections", Kind::Limit, Work::LoginRoute, 10_000),
            side(format!("Express + {store}"), Kind::Express, Work::LoginRoute, 100),
            side(format!("{store} Lua function"), Kind::Store { is_durable: false }, Work::LoginLua, 100),
            side(format!("{store} INCR, fsync"), Kind::Store { is_durable: true }, Work::StoreIncrement, 1024),
        ],
    }]
}

impl Side {
    fn plan(&self, server: &Server, setup: &Setup, rounds: &Rounds) -> Outcome<Plan> {
        let base = format!("http://{}", server.address);
        let credentials = STANDARD.encode(format!("{USER}:{PASSWORD}"));
        let basic = [format!("Authorization: Basic {credentials}")];
        let user = format!("user:{USER}");
        let http = |method, path: &str, headers: &[String], body| {
            let url = format!("{base}{path}");
            RequestTemplate::http(&HttpRequest { method, url: &url, headers, body }).map(|parts| parts.0)
        };
        let (request, body) = match self.work {
            Work::LoginRoute => (http("GET", "/user/login", &basic, None), Some("ok")),
            Work::LoginCall => {
                // The responder ignores its input and answers without JSON's quotes.
                let expected = if self.kind == Kind::Limit { "ok" } else { "\"ok\"" };
                // `check` is the synchronous handler that the route calls.
                let password = format!("\"{PASSWORD}\"");
                (http("POST", &format!("/call/user/{USER}/check"), &[], Some(&password)), Some(expected))
            }
            Work::LoginLua => (RequestTemplate::resp(&["FCALL", "login", "1", &user, PASSWORD]), Some("ok")),
            Work::CounterAdd => (http("POST", "/call/counter/k{{uniform:0:100000}}/add", &[], Some("1")), None),
            Work::GraphWalk => {
                let start = format!("{{{{uniform:0:{PEOPLE}}}}}");
                (http("POST", "/call/friends/all/walk", &[], Some(&start)), None)
            }
            Work::StoreIncrement => (RequestTemplate::resp(&["INCR", "k{{uniform:0:100000}}"]), None),
        };
        let mut plan = Plan::new(&self.name, server.address, request.map_err(|error| error.to_string())?);
        plan.expectation = Expectation {
            statuses: vec![200],
            body: body.map(|body| body.as_bytes().to_vec()),
            ..Expectation::default()
        };
        plan.connections = self.connections;
        plan.pipeline = self.in_flight;
        plan.duration = rounds.duration;
        plan.warm_up = rounds.warm_up;
        plan.timeout = Duration::from_secs(30);
        plan.cpus.clone_from(&setup.load_cpus);
        plan.server_pids = server.pids();
        Ok(plan)
    }

    /// Starts the server, loads it, stops it.
    ///
    /// # Errors
    /// If any step fails, or any reply is wrong.
    pub fn measure(&self, setup: &Setup, rounds: &Rounds, round: usize) -> Outcome<Measured> {
        let named = |error: String| format!("{}: {error}", self.name);
        let fsync_us = fsync::cost_us(&setup.data)?;
        let server = Server::start(&self.kind, setup).map_err(named)?;
        let plan = self.plan(&server, setup, rounds).map_err(named)?;
        let report = run(&plan, &mut |_| {}).map_err(|error| named(error.to_string()))?;
        server.stop().map_err(named)?;
        if !report.is_clean() {
            let first = report.first_error.clone().unwrap_or_else(|| "no replies".to_owned());
            return Err(named(format!("{} errors, the first: {first}", report.errors.total())));
        }
        Ok(Measured { side: self.name.clone(), round, fsync_us, report })
    }
}

impl Cell {
    /// All rounds, the sides in turn. The first side of one round is the last of the next.
    #[must_use]
    pub fn run(&self, setup: &Setup, rounds: &Rounds) -> CellResult {
        let mut runs = Vec::new();
        let mut problem = None;
        'rounds: for round in 0..rounds.count {
            for index in 0..self.sides.len() {
                let side = &self.sides[(index + round) % self.sides.len()];
                eprint!("{} {}/{} {}: ", self.id, round + 1, rounds.count, side.name);
                match side.measure(setup, rounds, round) {
                    Ok(measured) => {
                        eprintln!("{}", one_line(&measured));
                        runs.push(measured);
                    }
                    Err(error) => {
                        eprintln!("{error}");
                        problem = Some(error);
                        break 'rounds;
                    }
                }
            }
        }
        self.judge(runs, problem)
    }

    fn judge(&self, runs: Vec<Measured>, problem: Option<String>) -> CellResult {
        let count = runs.iter().map(|run| run.round + 1).max().unwrap_or(0);
        let ratios: Vec<f64> = (0..count).filter_map(|round| self.ratio(&runs, round)).collect();
        let ratio = median(&ratios);
        let (is_met, aim) = match self.figure {
            Figure::Cpu => (ratio <= self.aim, format!("CPU ≤ {:.3} ×", self.aim)),
            Figure::Rate => (ratio >= self.aim, format!("throughput ≥ {:.2} ×", self.aim)),
            Figure::Spread => (ratio >= self.aim, format!("lowest ≥ {:.2} × highest", self.aim)),
        };
        let is_met = is_met && problem.is_none() && !ratios.is_empty();
        let (id, title) = (self.id.to_owned(), self.title.to_owned());
        let compared = match self.figure {
            Figure::Cpu | Figure::Rate => format!("{} / {}", self.sides[0].name, self.sides[1].name),
            Figure::Spread => String::new(),
        };
        CellResult { id, title, aim, compared, ratios, ratio, is_met, problem, runs, remarks: Vec::new() }
    }

    /// One round's ratio; `None` if the round lacks a side.
    fn ratio(&self, runs: &[Measured], round: usize) -> Option<f64> {
        let of = |side: &Side| runs.iter().find(|run| run.round == round && run.side == side.name);
        let all: Option<Vec<&Measured>> = self.sides.iter().map(of).collect();
        let all = all?;
        let cpu = |run: &Measured| run.report.server.as_ref().map(|used| used.cpu_us_per_request);
        match self.figure {
            Figure::Cpu => Some(cpu(all[0])? / cpu(all[1])?),
            Figure::Rate => Some(all[0].report.rate / all[1].report.rate),
            Figure::Spread => {
                let rates = all.iter().map(|run| run.report.rate);
                Some(rates.clone().fold(f64::MAX, f64::min) / rates.fold(0.0, f64::max))
            }
        }
    }
}

/// Progress for a waiting person.
pub(crate) fn one_line(measured: &Measured) -> String {
    let report = &measured.report;
    let cpu = report.server.as_ref().map_or(0.0, |used| used.cpu_us_per_request);
    let (rate, p99) = (report.rate, report.latency.p99_us);
    format!("{rate:.0}/s, {cpu:.2} µs CPU a request, p99 {p99:.0} µs, fsync {:.0} µs", measured.fsync_us)
}
