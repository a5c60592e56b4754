//! A workflow of nine steps, one at a time: what it costs in syncs, and how long it takes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::cells::Rounds;
use crate::contest::{ContestResult, Judgement, Origin, digits};
use crate::machine::median;
use crate::server::{Kind, Server, Setup};
use crate::transactions::workload::{get, metric};
use crate::{Outcome, fsync, small};

/// Names it on the command line.
pub const ID: &str = "workflow";

/// Workflows of a round.
const WORKFLOWS: usize = 100;
const STEPS: f64 = 9.0;
/// Syncs of a workflow: one and a half for each step.
const SYNCS: f64 = 13.5;
/// What the steps sum up to: each adds its number to an entity that is new.
const OUTPUT: u64 = 45;
const WAIT: Duration = Duration::from_secs(10);
/// Between two looks whether it has ended.
const PAUSE: Duration = Duration::from_micros(200);
/// Until the server has put in order what workflows have left.
const REST: Duration = Duration::from_millis(500);

const NOTE: &str = "`bench/apps/nine`: nine calls, one after the other, each a transaction on an entity that in general lives on another shard. \
     One workflow at a time, durable, on one core. Syncs are those of the server's log, by its own count, half a second \
     of putting in order at the end included. Time is from sending the request that starts it until it is seen to have ended.";

/// All rounds.
#[must_use]
pub fn measure(setup: &Setup, rounds: &Rounds, origin: &Origin) -> ContestResult {
    let title = "workflow of nine steps at low load, syncs";
    let aim = format!("≤ {SYNCS}");
    let mut syncs = Vec::new();
    let mut remarks = Vec::new();
    let mut problem = None;
    for round in 0..rounds.count {
        match measure_round(setup) {
            Ok((count, remark)) => {
                eprintln!("{ID} {}/{}: {count:.2} syncs; {remark}", round + 1, rounds.count);
                syncs.push(count);
                remarks.push(remark);
            }
            Err(error) => {
                eprintln!("{ID}: {error}");
                problem = Some(error);
                break;
            }
        }
    }
    let judgement = match &problem {
        Some(why) => Judgement::missing(title, aim, why),
        None => Judgement::new(title, aim, "syncs", syncs, |count| count <= SYNCS),
    };
    ContestResult {
        id: ID.to_owned(),
        title: "Workflow of nine steps".to_owned(),
        note: NOTE.to_owned(),
        origin: origin.clone(),
        judgements: vec![judgement],
        runs: Vec::new(),
        remarks: remarks.into_iter().chain(problem).collect(),
    }
}

fn measure_round(setup: &Setup) -> Outcome<(f64, String)> {
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
    let count = (syncs(server.address)? - before) / WORKFLOWS as f64;
    server.stop()?;
    times_us.sort_by(f64::total_cmp);
    let (middle, tail) = (median(&times_us), times_us[times_us.len() * 99 / 100]);
    let remark = format!(
        "{} syncs a step; a workflow took {} ms at the median, {} ms at the 99th percentile; a sync of the disk {fsync_us:.0} µs.",
        digits(count / STEPS),
        digits(middle / 1000.0),
        digits(tail / 1000.0),
    );
    Ok((count, remark))
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

/// How often the server's log was synced.
fn syncs(address: SocketAddr) -> Outcome<f64> {
    metric(address, "millrace_fsync_seconds_count")
}
