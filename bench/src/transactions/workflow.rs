//! A workflow of nine steps, one at a time: its syncs and its duration.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::cells::Rounds;
use crate::contest::{ContestResult, FigureRounds, Judgement, digits};
use crate::machine::median;
use crate::server::{Kind, Server, Setup};
use crate::summary::FSYNC;
use crate::transactions::workload::{get, metric};
use crate::{Outcome, fsync, small};

/// Names it on the command line.
pub const ID: &str = "workflow";

/// Workflows of a round.
const WORKFLOWS: usize = 100;
const STEPS: f64 = 9.0;
/// Syncs of a workflow: one and a half for each step.
const SYNCS: f64 = 13.5;
/// The output: each step adds its number to a new entity.
const OUTPUT: u64 = 45;
const WAIT: Duration = Duration::from_secs(10);
/// Pause between two polls.
const PAUSE: Duration = Duration::from_micros(200);
/// Time for the server to clean up after workflows.
const REST: Duration = Duration::from_millis(500);

/// All rounds.
#[must_use]
pub fn measure(setup: &Setup, rounds: &Rounds) -> ContestResult {
    let title = "workflow of nine steps at low load, syncs";
    let aim = format!("≤ {SYNCS}");
    let mut done: Vec<Round> = Vec::new();
    let mut problem = None;
    for round in 0..rounds.count {
        match measure_round(setup) {
            Ok(one) => {
                eprintln!("{ID} {}/{}: {}", round + 1, rounds.count, one.line());
                done.push(one);
            }
            Err(error) => {
                eprintln!("{ID}: {error}");
                problem = Some(error);
                break;
            }
        }
    }
    let all = |value: fn(&Round) -> f64| done.iter().map(value).collect::<Vec<f64>>();
    let figure = |(name, unit): (&str, &str), value| FigureRounds {
        name: name.to_owned(),
        unit: unit.to_owned(),
        values: all(value),
    };
    let figures = vec![
        figure(("p50", "µs"), |round| round.middle_us),
        figure(("p99", "µs"), |round| round.tail_us),
        figure(FSYNC, |round| round.fsync_us),
    ];
    let judgement = match &problem {
        Some(why) => Judgement::missing(title, aim, why),
        None => Judgement::new(title, aim, "syncs", all(|round| round.syncs), |count| count <= SYNCS),
    };
    ContestResult {
        id: ID.to_owned(),
        judgements: vec![judgement],
        runs: Vec::new(),
        figures,
        remarks: problem.into_iter().collect(),
    }
}

/// The result of one round.
struct Round {
    /// Syncs of a workflow.
    syncs: f64,
    /// Median time from sending the start request until a poll sees the end.
    middle_us: f64,
    /// The 99th percentile of the same.
    tail_us: f64,
    /// The cost of a sync of the disk.
    fsync_us: f64,
}

impl Round {
    fn line(&self) -> String {
        let Self { syncs, middle_us, tail_us, fsync_us } = self;
        let (each, middle, tail) = (digits(syncs / STEPS), digits(middle_us / 1000.0), digits(tail_us / 1000.0));
        format!("{each} syncs a step, p50 {middle} ms, p99 {tail} ms, fsync {fsync_us:.0} µs")
    }
}

fn measure_round(setup: &Setup) -> Outcome<Round> {
    let fsync_us = fsync::cost_us(&setup.data)?;
    let server = Server::start(&Kind::Millrace { app: "nine", durability: "fsync", cores: 1 }, setup)?;
    run_one(server.address, "warm")?;
    std::thread::sleep(REST);
    let before = syncs(server.address)?;
    let mut times_us = Vec::with_capacity(WORKFLOWS);
    for number in 0..WORKFLOWS {
        times_us.push(run_one(server.address, &format!("w{number}"))?.as_secs_f64() * 1e6);
    }
    std::thread::sleep(REST);
    let syncs = (syncs(server.address)? - before) / WORKFLOWS as f64;
    server.stop()?;
    times_us.sort_by(f64::total_cmp);
    let (middle_us, tail_us) = (median(&times_us), times_us[times_us.len() * 99 / 100]);
    Ok(Round { syncs, middle_us, tail_us, fsync_us })
}

fn run_one(address: SocketAddr, key: &str) -> Outcome<Duration> {
    let start = Instant::now();
    let (status, body) = small::http(address, "POST", &format!("/send/nine/{key}/run"), "null")?;
    let reply: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    let Some(id) = reply["id"].as_str().filter(|_| status == 202) else {
        return Err(format!("starting a workflow gave {status}: {body}"));
    };
    loop {
        let view = get(address, &format!("/invocations/{id}"))?;
        let time = start.elapsed();
        match view["status"].as_str() {
            Some("succeeded") if view["output"] == OUTPUT => return Ok(time),
            Some("pending" | "running") if time < WAIT => std::thread::sleep(PAUSE),
            _ => return Err(format!("a workflow came to {view} after {time:?}")),
        }
    }
}

/// The number of syncs of the server's log.
fn syncs(address: SocketAddr) -> Outcome<f64> {
    metric(address, "millrace_fsync_seconds_count")
}
