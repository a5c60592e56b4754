//! Ten hot accounts under three times the load they can take.

use std::time::Duration;

use millrace_client::bench::{Plan, Report, run};

use crate::Outcome;
use crate::cells::{Measured, Rounds};
use crate::contest::{ContestResult, Contestant, Judgement, Origin, digits, one_line};
use crate::fsync;
use crate::server::{Server, Setup};
use crate::transactions::workload::{App, Workload, metric};

/// Names it on the command line.
pub const ID: &str = "hot";

/// The peak is the best of these.
const CLOSED: [usize; 4] = [16, 64, 256, 1024];
/// Far more than run at a time, and not so many that connections would be what is measured.
const OPEN: usize = 4096;
const OVERLOAD: f64 = 3.0;
/// Of a closed loop: in the open one, most of the time is waited for a free connection.
const TAIL_S: f64 = 1.0;

/// As the server names it. Runs that are not measured count, too, so it tells a little too much.
const RESTARTS: &str = "millrace_transaction_restarts_total";

const NOTE: &str = "Transfers of 1 between two of ten accounts at random, in one transaction, durable. The peak is the highest \
     throughput of closed loops over 16 to 1,024 connections; then three times as much is offered to the same server, as an open \
     loop over 4,096 connections. 503 is an answer that tells to come later, and counts neither as done nor as an abort. The \
     latency of the open loop counts from when each should have been sent, and most of it is waited for a free connection. \
     At the end the accounts hold what they held at first.";

const TITLES: [&str; 4] = [
    "ten hot accounts at three times the load, throughput against the peak",
    "ten hot accounts, aborts visible to users",
    "ten hot accounts, errors but 503",
    "ten hot accounts, closed loop over 1,024 connections, p99",
];

struct Round {
    /// The best closed loop.
    peak: Report,
    /// The widest closed loop.
    crowd: Report,
    overload: Report,
    /// Starts of transactions that had to give way, over all transfers of the round.
    restarts: f64,
    runs: Vec<Measured>,
}

/// All rounds.
#[must_use]
pub fn measure(setup: &Setup, rounds: &Rounds, origin: &Origin) -> ContestResult {
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
    let remarks = done.iter().map(remark).chain(problem.clone()).collect();
    ContestResult {
        id: ID.to_owned(),
        title: "Ten hot accounts".to_owned(),
        note: NOTE.to_owned(),
        origin: origin.clone(),
        judgements: judge(&done, problem.as_deref()),
        runs: done.into_iter().flat_map(|round| round.runs).collect(),
        remarks,
    }
}

fn remark(round: &Round) -> String {
    let Report { rate_wanted, rate, shed, statuses, latency, duration_s, .. } = &round.overload;
    let shed_rate = *shed as f64 / duration_s;
    format!(
        "Offered {:.0} a second: {rate:.0} done, {shed_rate:.0} answered with 503, {} never sent; slowest {} s; statuses \
         {statuses:?}. The server ran {} transactions again for each 100 transfers of the round.",
        rate_wanted.unwrap_or_default(),
        round.overload.unsent,
        digits(latency.max_us / 1e6),
        digits(round.restarts * 100.0),
    )
}

fn status(report: &Report, is_meant: impl Fn(u16) -> bool) -> u64 {
    report.statuses.iter().filter(|(status, _)| is_meant(*status)).map(|(_, count)| count).sum()
}

fn judge(done: &[Round], problem: Option<&str>) -> Vec<Judgement> {
    let aims = ["≥ 0.9 ×".to_owned(), "0".to_owned(), "0".to_owned(), format!("≤ {} s", digits(TAIL_S))];
    if let Some(why) = problem {
        return TITLES.iter().zip(aims).map(|(title, aim)| Judgement::missing(title, aim, why)).collect();
    }
    let all = |value: &dyn Fn(&Round) -> f64| done.iter().map(value).collect::<Vec<f64>>();
    let both = |value: &dyn Fn(&Report) -> u64| all(&|round| (value(&round.peak) + value(&round.overload)) as f64);
    let [rate, aborts, errors, tail] = aims;
    vec![
        Judgement::new(TITLES[0], rate, "×", all(&|round| round.overload.rate / round.peak.rate), |ratio| {
            ratio >= 0.9
        }),
        Judgement::new(TITLES[1], aborts, "replies", both(&|report| status(report, |code| code == 409)), |count| {
            count == 0.0
        }),
        Judgement::new(TITLES[2], errors, "requests", both(&|report| report.errors.total()), |count| count == 0.0),
        Judgement::new(TITLES[3], tail, "s", all(&|round| round.crowd.latency.p99_us / 1e6), |s| s <= TAIL_S),
    ]
}

fn measure_round(setup: &Setup, rounds: &Rounds, round: usize) -> Outcome<Round> {
    let side = Contestant::millrace("transfers", "fsync", Workload::new(App::Hot, true), OPEN);
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
    let peak = closed.into_iter().max_by(|one, other| one.rate.total_cmp(&other.rate)).ok_or("there is no peak")?;
    let offered = Plan { rate: Some(peak.rate * OVERLOAD), ..plan(&side, &server, setup, rounds.duration * 2)? };
    let overload = load("open, three times the peak".to_owned(), &offered)?;
    side.workload.audit(server.address)?;
    let transfers: u64 = runs.iter().map(|run| run.report.requests).sum();
    let restarts = metric(server.address, RESTARTS)? / transfers.max(1) as f64;
    server.stop()?;
    Ok(Round { peak, crowd, overload, restarts, runs })
}

fn plan(side: &Contestant, server: &Server, setup: &Setup, duration: Duration) -> Outcome<Plan> {
    let mut plan = side.plan(server, setup, duration, Duration::from_millis(500))?;
    plan.expectation.shed = vec![503];
    Ok(plan)
}
