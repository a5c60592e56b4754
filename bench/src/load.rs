//! Comparisons of loads: three times the peak of a node, and the load generator beside wrk.

use std::process::Command;
use std::time::Duration;

use millrace_loadgen::{Expectation, HttpRequest, LatencySummary, Plan, Report, RequestTemplate, run};

use crate::cells::{CellResult, Measured, Rounds, one_line};
use crate::machine::median;
use crate::server::{Kind, Server, Setup};
use crate::{Outcome, fsync};

/// The runs of a round, and a remark.
type Round = (Vec<Measured>, String);

/// A cell by its id.
pub struct LoadCell {
    /// Names it on the command line.
    pub id: &'static str,
    title: &'static str,
    aim: &'static str,
    measure: fn(&Setup, &Rounds, usize) -> Outcome<Round>,
    /// A round's ratio, and whether the round meets the aim.
    judge: fn(&[&Measured]) -> Option<(f64, bool)>,
}

/// All of them, in the order they are published.
#[must_use]
pub fn load_cells() -> Vec<LoadCell> {
    vec![
        LoadCell {
            id: "overload",
            title: "calls of 0.2 ms at three times the peak, throughput against the peak",
            aim: "throughput ≥ 0.90 ×, nothing unsent",
            measure: overload,
            judge: judge_overload,
        },
        LoadCell {
            id: "wrk",
            title: "the load generator against wrk, on the bare responder",
            aim: "rate within 10 %, median latency within 20 %",
            measure: beside_wrk,
            judge: judge_wrk,
        },
    ]
}

impl LoadCell {
    /// All rounds. The median of the ratios is the figure. The aim is met if most rounds meet it.
    #[must_use]
    pub fn run(&self, setup: &Setup, rounds: &Rounds) -> CellResult {
        let (mut runs, mut remarks, mut problem) = (Vec::new(), Vec::new(), None);
        for round in 0..rounds.count {
            eprintln!("{} {}/{}:", self.id, round + 1, rounds.count);
            match (self.measure)(setup, rounds, round) {
                Ok((measured, remark)) => {
                    measured.iter().for_each(|one| eprintln!("  {}: {}", one.side, one_line(one)));
                    eprintln!("  {remark}");
                    runs.extend(measured);
                    remarks.push(remark);
                }
                Err(error) => {
                    eprintln!("  {error}");
                    problem = Some(error);
                    break;
                }
            }
        }
        let of_round = |round| runs.iter().filter(|run: &&Measured| run.round == round).collect::<Vec<_>>();
        let judged: Vec<(f64, bool)> = (0..rounds.count).filter_map(|round| (self.judge)(&of_round(round))).collect();
        let ratios: Vec<f64> = judged.iter().map(|(ratio, _)| *ratio).collect();
        let met_count = judged.iter().filter(|(_, is_met)| *is_met).count();
        CellResult {
            id: self.id.to_owned(),
            title: self.title.to_owned(),
            aim: self.aim.to_owned(),
            compared: String::new(),
            ratio: median(&ratios),
            is_met: problem.is_none() && 2 * met_count > judged.len(),
            ratios,
            problem,
            runs,
            remarks,
        }
    }
}

/// Work of one call. One CPU cannot send three times as many cheap calls as another one answers. Of these calls it can.
const SPIN_MS: &str = "0.2";

const PEAK_CONNECTIONS: usize = 64;

/// Enough for the calls that wait, at most half a second each, and for the calls that are refused.
const OVERLOAD_CONNECTIONS: usize = 8192;

const OVERLOAD: f64 = 3.0;

/// The peak, then three times the peak on the same server, then the peak again.
fn overload(setup: &Setup, rounds: &Rounds, round: usize) -> Outcome<Round> {
    let fsync_us = fsync::cost_us(&setup.data)?;
    let server = Server::start(&Kind::Millrace { app: "synthetic", durability: "fsync", cores: 1 }, setup)?;
    let mut runs: Vec<Measured> = Vec::new();
    let mut load = |side: &str, connections: usize, rate: Option<f64>| -> Outcome<Report> {
        let url = format!("http://{}/call/synthetic/k{{{{uniform:0:1000}}}}/spin", server.address);
        let mut plan = plan(side, setup, rounds, &server, ("POST", &url, Some(SPIN_MS)), SPIN_MS)?;
        plan.expectation.shed = vec![503];
        (plan.connections, plan.rate) = (connections, rate);
        let report = clean(run(&plan, &mut |_| {}).map_err(|error| error.to_string())?)?;
        runs.push(Measured { side: side.to_owned(), round, fsync_us, report: report.clone() });
        Ok(report)
    };
    let peak = load("closed loop", PEAK_CONNECTIONS, None)?;
    let over = load("open loop, three times the peak", OVERLOAD_CONNECTIONS, Some(peak.rate * OVERLOAD))?;
    load("closed loop", PEAK_CONNECTIONS, None)?;
    server.stop()?;
    let remark = format!(
        "Offered {:.0} a second: {:.0} done, p99 of these {:.0} ms, {:.0} answered with 503, {} in all never sent.",
        over.rate_wanted.unwrap_or_default(),
        over.rate,
        over.latency.p99_us / 1000.0,
        over.shed as f64 / over.duration_s,
        over.unsent
    );
    Ok((runs, remark))
}

fn judge_overload(runs: &[&Measured]) -> Option<(f64, bool)> {
    let [before, over, after] = runs else { return None };
    let ratio = over.report.rate / f64::midpoint(before.report.rate, after.report.rate);
    Some((ratio, ratio >= 0.9 && over.report.unsent == 0))
}

const WRK_CONNECTIONS: usize = 100;

/// Both on the same CPU, one after the other, on one server.
fn beside_wrk(setup: &Setup, rounds: &Rounds, round: usize) -> Outcome<Round> {
    let fsync_us = fsync::cost_us(&setup.data)?;
    let server = Server::start(&Kind::Limit, setup)?;
    let url = format!("http://{}/user/login", server.address);
    let mut plan = plan("millrace bench", setup, rounds, &server, ("GET", &url, None), "ok")?;
    plan.connections = WRK_CONNECTIONS;
    let ours = || clean(run(&plan, &mut |_| {}).map_err(|error| error.to_string())?);
    // The first load generator of one round is the last of the next.
    let (ours, theirs) = if round.is_multiple_of(2) {
        let ours = ours()?;
        (ours, wrk(setup, rounds, &url)?)
    } else {
        let theirs = wrk(setup, rounds, &url)?;
        (ours()?, theirs)
    };
    server.stop()?;
    let ratio = |value: fn(&Report) -> f64| value(&ours) / value(&theirs);
    let remark = format!(
        "Of wrk's: rate {:.3} ×, p50 {:.3} ×, p99 {:.3} ×.",
        ratio(|report| report.rate),
        ratio(|report| report.latency.p50_us),
        ratio(|report| report.latency.p99_us)
    );
    let measured = |side: &str, report| Measured { side: side.to_owned(), round, fsync_us, report };
    Ok((vec![measured("millrace bench", ours), measured("wrk", theirs)], remark))
}

fn judge_wrk(runs: &[&Measured]) -> Option<(f64, bool)> {
    let [ours, theirs] = runs else { return None };
    let rate = ours.report.rate / theirs.report.rate;
    let p50 = ours.report.latency.p50_us / theirs.report.latency.p50_us;
    Some((rate, (0.9..=1.1).contains(&rate) && (0.8..=1.2).contains(&p50)))
}

fn plan(
    name: &str,
    setup: &Setup,
    rounds: &Rounds,
    server: &Server,
    (method, url, body): (&str, &str, Option<&str>),
    expected: &str,
) -> Outcome<Plan> {
    let request = RequestTemplate::http(&HttpRequest { method, url, headers: &[], body });
    let (request, ..) = request.map_err(|error| error.to_string())?;
    let mut plan = Plan::new(name, server.address, request);
    plan.expectation =
        Expectation { statuses: vec![200], body: Some(expected.as_bytes().to_vec()), ..Expectation::default() };
    (plan.duration, plan.warm_up) = (rounds.duration, rounds.warm_up);
    plan.timeout = Duration::from_secs(30);
    plan.cpus.clone_from(&setup.load_cpus);
    plan.server_pids = server.pids();
    Ok(plan)
}

fn clean(report: Report) -> Outcome<Report> {
    if report.is_clean() {
        return Ok(report);
    }
    let first = report.first_error.unwrap_or_else(|| "no replies".to_owned());
    Err(format!("{} errors, the first: {first}", report.errors.total()))
}

/// The report of wrk, with the figures that wrk prints.
fn wrk(setup: &Setup, rounds: &Rounds, url: &str) -> Outcome<Report> {
    let cpus: Vec<String> = setup.load_cpus.iter().map(ToString::to_string).collect();
    let duration_s = rounds.duration.as_secs();
    let mut command = Command::new("taskset");
    command.args(["-c", &cpus.join(","), "wrk", "-t1", "-c", &WRK_CONNECTIONS.to_string()]);
    let output = command.args(["-d", &format!("{duration_s}s"), "--latency", url]).output();
    let output = output.map_err(|error| format!("cannot run wrk: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || text.contains("Non-2xx") || text.contains("Socket errors") {
        return Err(format!("wrk failed: {text}{}", String::from_utf8_lossy(&output.stderr)));
    }
    report_of_wrk(&text, url, duration_s as f64).ok_or_else(|| format!("cannot read what wrk printed: {text}"))
}

fn report_of_wrk(text: &str, url: &str, duration_s: f64) -> Option<Report> {
    let line = text.lines().find(|line| line.contains("requests in "))?;
    let requests: u64 = line.split_whitespace().next()?.parse().ok()?;
    let rate = text.split_once("Requests/sec:")?.1.split_whitespace().next()?.parse().ok()?;
    let quantile = |name: &str| microseconds(text.split_once(name)?.1.split_whitespace().next()?);
    let (p50_us, p90_us, p99_us) = (quantile("50% ")?, quantile("90% ")?, quantile("99% ")?);
    Some(Report {
        target: format!("wrk {url}"),
        r#loop: "closed".to_owned(),
        rate_wanted: None,
        connections: WRK_CONNECTIONS,
        threads: 1,
        pipeline: 1,
        warm_up_s: 0.0,
        duration_s,
        seed: 0,
        requests,
        rate,
        shed: 0,
        errors: Default::default(),
        first_error: None,
        reconnects: 0,
        statuses: Vec::new(),
        bytes_read: 0,
        bytes_written: 0,
        latency: LatencySummary { p50_us, p90_us, p99_us, ..LatencySummary::default() },
        late: 0,
        unanswered: 0,
        unsent: 0,
        server: None,
        generator: None,
        seconds: Vec::new(),
    })
}

/// "504.00us", "7.80ms" or "1.02s".
fn microseconds(text: &str) -> Option<f64> {
    let end = text.find(|char: char| !char.is_ascii_digit() && char != '.')?;
    let number: f64 = text[..end].parse().ok()?;
    match &text[end..] {
        "us" => Some(number),
        "ms" => Some(number * 1e3),
        "s" => Some(number * 1e6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_prints_is_read() {
        let text = "Running 4s test @ http://127.0.0.1:1/\n  1 threads and 100 connections\n  Thread Stats   Avg      Stdev     Max   +/- Stdev\n    \
                    Latency   517.64us  187.05us   7.09ms   97.02%\n    Req/Sec   191.01k     5.20k  199.61k    75.00%\n  Latency Distribution\n     \
                    50%  504.00us\n     75%  548.00us\n     90%    1.50ms\n     99%    1.02s\n  412377 requests in 4.00s, 48.37MB read\n\
                    Requests/sec: 103094.25\nTransfer/sec:     12.09MB\n";
        let report = report_of_wrk(text, "", 4.0).unwrap();
        assert_eq!((report.requests, report.rate), (412_377, 103_094.25));
        let LatencySummary { p50_us, p90_us, p99_us, .. } = report.latency;
        assert_eq!((p50_us, p90_us, p99_us), (504.0, 1500.0, 1_020_000.0));
        assert!(report_of_wrk("nothing", "", 4.0).is_none());
    }
}
