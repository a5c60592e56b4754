//! The matrix: latency against throughput for every example in every configuration.

use std::time::Duration;

use millrace_loadgen::{Plan, Report, run};
use serde::{Deserialize, Serialize};

use crate::contest::Contestant;
use crate::rows::{RATE, SERVER_CPU};
use crate::server::Setup;
use crate::summary::{FSYNC, Row};
use crate::transactions::workload::{App, Workload};
use crate::{Outcome, fsync};

/// The guarantees of one configuration.
#[derive(Clone, Copy, Debug)]
pub struct Configuration {
    /// Names it in tables and plots.
    pub name: &'static str,
    /// The value of `--durability`.
    pub durability: &'static str,
    /// Each request has an idempotency key.
    pub is_keyed: bool,
    /// Each entity of a request is on its own shard.
    pub is_spread: bool,
    /// The request goes to `echo`.
    pub is_echo: bool,
}

const fn configuration(name: &'static str, durability: &'static str, is_keyed: bool, is_spread: bool) -> Configuration {
    Configuration { name, durability, is_keyed, is_spread, is_echo: false }
}

/// All configurations, from the least to the most. The page says what each of them means.
pub const CONFIGURATIONS: [Configuration; 6] = [
    Configuration { is_echo: true, ..configuration("echo", "fsync", false, false) },
    configuration("nothing durable", "none", false, false),
    configuration("durable", "fsync", false, false),
    configuration("exactly once", "fsync", true, false),
    configuration("transactions", "none", false, true),
    configuration("all", "fsync", true, true),
];

/// The examples.
pub const APPS: [App; 5] = [App::Single, App::Chain, App::Tree, App::Hotel, App::Media];

/// Offered load as shares of the capacity.
pub const SHARES: [f64; 7] = [0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.2];

/// Connections that find the capacity, in a closed loop.
const CLOSED: usize = 256;
/// Connections of the open loop.
const OPEN: usize = 1024;

/// One rate in one cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// The example.
    pub app: String,
    /// The configuration's name.
    pub configuration: String,
    /// The share of the capacity.
    pub share: f64,
    /// Requests a second that were due.
    pub offered: f64,
    /// Right replies a second.
    pub achieved: f64,
    /// Replies with 503 a second.
    pub shed: f64,
    /// Failed requests.
    pub errors: u64,
    /// Latency of right replies, from the time at which each request was due.
    pub p50_us: f64,
    /// See `p50_us`.
    pub p99_us: f64,
    /// See `p50_us`.
    pub p99_9_us: f64,
    /// The server's CPU time over all answers.
    pub cpu_us: f64,
    /// The cost of 4 KiB and `fdatasync` on the disk just before the cell.
    pub fsync_us: f64,
}

/// One example in one configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MatrixCell {
    /// The example.
    pub app: String,
    /// The configuration's name.
    pub configuration: String,
    /// Right replies a second in a closed loop.
    pub capacity: f64,
    /// The server's CPU time a request in it.
    pub cpu_us: f64,
    /// The reason if the cell is incomplete.
    pub problem: Option<String>,
    /// By rising rate.
    pub points: Vec<Point>,
}

/// The cell of an example in a summary.
#[must_use]
pub fn id(app: &str) -> String {
    format!("matrix-{app}")
}

/// The name of a figure at a share of the capacity.
#[must_use]
pub fn metric(figure: &str, share: f64) -> String {
    format!("{figure} at {share}")
}

/// The rows of a summary: capacity, then throughput and latency at each rate; errors and 503 where there are some.
#[must_use]
pub fn rows(cell: &MatrixCell) -> Vec<Row> {
    let MatrixCell { app, configuration, capacity, cpu_us, problem, points } = cell;
    let row = |name: &str, unit: &str, value: f64| Row::figure(&id(app), configuration, (name, unit), &[value]);
    let mut rows = vec![row("capacity", RATE.1, *capacity), row(SERVER_CPU.0, SERVER_CPU.1, *cpu_us)];
    for Point { share, achieved, shed, errors, p50_us, p99_us, .. } in points {
        let mut at = |figure: &str, unit: &str, value: f64| rows.push(row(&metric(figure, *share), unit, value));
        at(RATE.0, RATE.1, *achieved);
        at("p50", "µs", *p50_us);
        at("p99", "µs", *p99_us);
        if *shed > 0.0 {
            at("answered 503", RATE.1, *shed);
        }
        if *errors > 0 {
            at("errors", "requests", *errors as f64);
        }
    }
    rows.extend(points.first().map(|point| row(FSYNC.0, FSYNC.1, point.fsync_us)));
    if let Some(problem) = problem {
        let title = format!("{app}, {configuration}: throughput and latency");
        let row = Row::figure(&id(app), configuration, (&title, ""), &[]);
        rows.push(Row { aim: "no errors".to_owned(), verdict: problem.replace('\n', " "), ..row });
    }
    rows
}

/// How long each rate runs.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Measured.
    pub duration: Duration,
    /// Before that.
    pub warm_up: Duration,
}

/// One cell: a fresh server, its capacity, then all rates on it.
#[must_use]
pub fn measure(app: App, configuration: &Configuration, setup: &Setup, times: Times) -> MatrixCell {
    let Configuration { name, durability, is_keyed, is_spread, is_echo, .. } = *configuration;
    let workload = Workload { app, is_echo, is_keyed, is_spread };
    let app = Workload { is_echo: false, ..workload }.folder();
    let side = Contestant::millrace(&format!("{app}, {name}"), durability, workload, CLOSED);
    let mut cell = MatrixCell {
        app: app.to_owned(),
        configuration: name.to_owned(),
        capacity: 0.0,
        cpu_us: 0.0,
        problem: None,
        points: Vec::new(),
    };
    if let Err(error) = fill(&mut cell, &side, setup, times) {
        eprintln!("{app}, {name}: {error}");
        cell.problem = Some(error);
    }
    cell
}

fn fill(cell: &mut MatrixCell, side: &Contestant, setup: &Setup, times: Times) -> Outcome<()> {
    let fsync_us = fsync::cost_us(&setup.data)?;
    let server = side.open(setup)?;
    let plan = || side.plan(&server, setup, times.duration, times.warm_up);
    let load = |plan: &Plan| run(plan, &mut |_| {}).map_err(|error| error.to_string());
    let report = load(&plan()?)?;
    if !report.is_clean() {
        return Err(report.first_error.unwrap_or_else(|| "no replies".to_owned()));
    }
    cell.capacity = report.rate;
    cell.cpu_us = cpu_us(&report);
    for share in SHARES {
        let mut plan = Plan { rate: Some(cell.capacity * share), connections: OPEN, ..plan()? };
        plan.expectation.shed = vec![503];
        let report = load(&plan)?;
        if report.errors.total() > 0 {
            let first = report.first_error.clone().unwrap_or_default();
            cell.problem = Some(format!("{} errors at {share} of the capacity: {first}", report.errors.total()));
        }
        cell.points.push(point(cell, share, fsync_us, &report));
    }
    eprintln!("{}: {:.0}/s, {:.2} µs CPU a request, fsync {fsync_us:.0} µs", side.name, cell.capacity, cell.cpu_us);
    side.workload.audit(server.address).map_err(|error| format!("the audit failed: {error}"))?;
    server.stop()
}

fn cpu_us(report: &Report) -> f64 {
    report.server.as_ref().map_or(0.0, |used| used.cpu_us_per_request)
}

fn point(cell: &MatrixCell, share: f64, fsync_us: f64, report: &Report) -> Point {
    Point {
        app: cell.app.clone(),
        configuration: cell.configuration.clone(),
        share,
        offered: report.rate_wanted.unwrap_or_default(),
        achieved: report.rate,
        shed: report.shed as f64 / report.duration_s,
        errors: report.errors.total(),
        p50_us: report.latency.p50_us,
        p99_us: report.latency.p99_us,
        p99_9_us: report.latency.p99_9_us,
        cpu_us: cpu_us(report),
        fsync_us,
    }
}
