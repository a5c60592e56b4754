//! Ten hot accounts under three times the load they can take.

use std::time::Duration;

use millrace_loadgen::{Plan, Report, run};

use crate::Outcome;
use crate::cells::{Measured, Rounds};
use crate::contest::{ContestResult, Contestant, Judgement, digits, one_line};
use crate::fsync;
use crate::server::{Server, Setup};
use crate::transactions::workload::{App, Workload, metric};

/// Names it on the command line.
pub const ID: &str = "hot";

/// The peak is at one of these.
const CLOSED: [usize; 4] = [16, 64, 256, 1024];
/// The usual number of connections, and four times as many. With so many, the cost of each connection is part of the
/// figure.
const OPEN: [usize; 2] = [1024, 4096];
const OVERLOAD: f64 = 3.0;
/// The aim holds for a closed loop. In the open loop, most of the latency is the wait for a free connection.
const TAIL_S: f64 = 1.0;

/// The server's metric. It counts the warm-up as well, so it is a little too high.
const RESTARTS: &str = "millrace_transaction_restarts_total";

const TITLES: [&str; 5] = [
    "ten hot accounts at three times the load over 1,024 connections, throughput against the peak",
    "ten hot accounts at three times the load over 4,096 connections, throughput against the peak",
    "ten hot accounts, aborts visible to users",
    "ten hot accounts, errors but 503",
    "ten hot accounts, closed loop over 1,024 connections, p99",
];

struct Round {
    /// Closed loops at the peak. The loop that found the peak is not among them, because the best of many is biased.
    peaks: Vec<Report>,
    /// The closed loop with most connections.
    crowd: Report,
    /// In the order of [`OPEN`].
    overloads: Vec<Report>,
    /// Restarted transactions for each transfer of the round.
    restarts: f64,
    runs: Vec<Measured>,
}

/// All rounds.
#[must_use]
pub fn measure(setup: &Setup, rounds: &Rounds) -> ContestResult {
    let mut done = Vec::new();
    let mut problem = None;
    for round in 0..rounds.count {
        match measure_round(setup, rounds, round) {
            Ok(one) => done.push(one),
            Err(error) => {
                eprintln!("{ID}: {error}");
                problem = Some(error);
                break;
            }
        }
    }
    let remarks = done.iter().flat_map(Round::remarks).chain(problem.clone()).collect();
    ContestResult {
        id: ID.to_owned(),
        judgements: judge(&done, problem.as_deref()),
        runs: done.into_iter().flat_map(|round| round.runs).collect(),
        figures: Vec::new(),
        remarks,
    }
}

impl Round {
    /// Transfers a second.
    fn peak(&self) -> f64 {
        self.peaks.iter().map(|report| report.rate).sum::<f64>() / self.peaks.len() as f64
    }

    /// The sum over the loads in which nothing may fail.
    fn count(&self, value: &dyn Fn(&Report) -> u64) -> f64 {
        self.peaks.iter().chain(&self.overloads).map(value).sum::<u64>() as f64
    }

    fn remarks(&self) -> Vec<String> {
        let restarts = digits(self.restarts * 100.0);
        let again = format!("The server ran {restarts} transactions again for each 100 transfers of the round.");
        self.overloads.iter().map(overload_remark).chain([again]).collect()
    }
}

fn overload_remark(overload: &Report) -> String {
    let Report { rate_wanted, rate, shed, statuses, latency, duration_s, connections, unsent, .. } = overload;
    let shed_rate = *shed as f64 / duration_s;
    format!(
        "Offered {:.0} a second over {connections} connections: {rate:.0} done, {shed_rate:.0} answered with 503, {unsent} \
         never sent; slowest {} s; statuses {statuses:?}.",
        rate_wanted.unwrap_or_default(),
        digits(latency.max_us / 1e6),
    )
}

fn status(report: &Report, is_meant: impl Fn(u16) -> bool) -> u64 {
    report.statuses.iter().filter(|(status, _)| is_meant(*status)).map(|(_, count)| count).sum()
}

fn judge(done: &[Round], problem: Option<&str>) -> Vec<Judgement> {
    let rate = || "≥ 0.9 ×".to_owned();
    let aims = [rate(), rate(), "0".to_owned(), "0".to_owned(), format!("≤ {} s", digits(TAIL_S))];
    if let Some(why) = problem {
        return TITLES.iter().zip(aims).map(|(title, aim)| Judgement::missing(title, aim, why)).collect();
    }
    let all = |value: &dyn Fn(&Round) -> f64| done.iter().map(value).collect::<Vec<f64>>();
    let share = |index: usize| all(&|round| round.overloads[index].rate / round.peak());
    let [few, many, aborts, errors, tail] = aims;
    let aborted = all(&|round| round.count(&|report| status(report, |code| code == 409)));
    let failed = all(&|round| round.count(&|report| report.errors.total()));
    vec![
        Judgement::new(TITLES[0], few, "×", share(0), |ratio| ratio >= 0.9),
        Judgement::new(TITLES[1], many, "×", share(1), |ratio| ratio >= 0.9),
        Judgement::new(TITLES[2], aborts, "replies", aborted, |count| count == 0.0),
        Judgement::new(TITLES[3], errors, "requests", failed, |count| count == 0.0),
        Judgement::new(TITLES[4], tail, "s", all(&|round| round.crowd.latency.p99_us / 1e6), |s| s <= TAIL_S),
    ]
}

fn measure_round(setup: &Setup, rounds: &Rounds, round: usize) -> Outcome<Round> {
    let side = Contestant::millrace("transfers", "fsync", Workload::new(App::Hot, true), OPEN[0]);
    let fsync_us = fsync::cost_us(&setup.data)?;
    let server = side.open(setup)?;
    let mut runs = Vec::new();
    let mut load = |name: String, plan: &Plan| -> Outcome<Report> {
        let report = run(plan, &mut |_| {}).map_err(|error| error.to_string())?;
        let measured = Measured { side: name, round, fsync_us, report: report.clone() };
        eprintln!("{ID} {}/{} {}: {}", round + 1, rounds.count, measured.side, one_line(&measured));
        runs.push(measured);
        Ok(report)
    };
    let mut closed = Vec::new();
    for connections in CLOSED {
        let plan = Plan { connections, ..plan(&side, &server, setup, rounds.duration)? };
        closed.push(load(format!("closed, {connections} connections"), &plan)?);
    }
    let crowd = closed.last().cloned().ok_or("there is no closed loop")?;
    let best = closed.into_iter().max_by(|one, other| one.rate.total_cmp(&other.rate)).ok_or("there is no peak")?;
    let (mut peaks, mut overloads) = (Vec::new(), Vec::new());
    for step in 0..=OPEN.len() {
        let again = Plan { connections: best.connections, ..plan(&side, &server, setup, rounds.duration)? };
        peaks.push(load(format!("closed again, {} connections", best.connections), &again)?);
        if let Some(&connections) = OPEN.get(step) {
            let rate = Some(best.rate * OVERLOAD);
            let offered = Plan { rate, connections, ..plan(&side, &server, setup, rounds.duration)? };
            overloads.push(load(format!("open, three times the peak, {connections} connections"), &offered)?);
        }
    }
    side.workload.audit(server.address)?;
    let transfers: u64 = runs.iter().map(|run| run.report.requests).sum();
    let restarts = metric(server.address, RESTARTS)? / transfers.max(1) as f64;
    server.stop()?;
    Ok(Round { peaks, crowd, overloads, restarts, runs })
}

fn plan(side: &Contestant, server: &Server, setup: &Setup, duration: Duration) -> Outcome<Plan> {
    let mut plan = side.plan(server, setup, duration, Duration::from_millis(500))?;
    plan.expectation.shed = vec![503];
    Ok(plan)
}
