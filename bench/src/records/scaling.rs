//! Throughput by server threads, reading and writing, with and without a log.

use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::workload::{BENCHMARKED, Records, Target, Work};
use crate::cells::{Measured, Rounds};
use crate::contest::{Contestant, Judgement, one_line};
use crate::rows;
use crate::server::{Kind, Setup};
use crate::summary::Row;

/// Connections for each server thread.
const CONNECTIONS: usize = 128;
/// The aim for each thread, relative to a single thread.
const AIM: f64 = 0.8;

/// The measured combinations.
pub const LINES: [(&str, Work, &str); 4] = [
    ("GET, fsync", Work::Get, "fsync"),
    ("GET, none", Work::Get, "none"),
    ("PUT, fsync", Work::Put, "fsync"),
    ("PUT, none", Work::Put, "none"),
];

/// One combination at one number of threads in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The name in [`LINES`].
    pub line: String,
    /// Server threads.
    pub threads: usize,
    /// CPUs of the load generator alone; 0 if it shared the server's last CPU.
    pub load_cpus: usize,
    /// The figures.
    pub measured: Measured,
}

/// The result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scaling {
    /// The results for the aims.
    pub judgements: Vec<Judgement>,
    /// By round, threads and line.
    pub runs: Vec<Run>,
    /// Errors.
    pub problems: Vec<String>,
}

/// The server's CPUs, the load generator's CPUs, and how many of these the server does not use. The server gets the
/// first CPUs. The load generator gets the rest, or the last CPU if none is left.
fn places(threads: usize, cores: usize) -> (String, Vec<usize>, usize) {
    let load: Vec<usize> = (threads.min(cores - 1)..cores).collect();
    (format!("0-{}", threads - 1), load, cores - threads)
}

/// All combinations at all numbers of threads, in rounds. Every second round runs in reverse order.
#[must_use]
pub fn measure(setup: &Setup, rounds: &Rounds, cores: usize) -> Scaling {
    let mut runs = Vec::new();
    let mut problems = Vec::new();
    for round in 0..rounds.count {
        let mut points: Vec<(usize, &(&str, Work, &'static str))> =
            (1..=cores).flat_map(|threads| LINES.iter().map(move |line| (threads, line))).collect();
        if round % 2 == 1 {
            points.reverse();
        }
        for (threads, (line, work, durability)) in points {
            let (server_cpus, load_cpus, own) = places(threads, cores);
            let setup = Setup { server_cpus, load_cpus, ..setup.clone() };
            let kind = Kind::Records { durability, cores: threads, memory_mib: None };
            let workload = Rc::new(Records { target: Target::Native, work: *work, count: BENCHMARKED });
            let connections = CONNECTIONS * threads;
            let name = format!("{line}, {threads} threads");
            let side = Contestant { name, kind, workload, connections, cpus: None };
            eprint!("scaling {}/{} {}: ", round + 1, rounds.count, side.name);
            match side.measure(&setup, rounds, round) {
                Ok(measured) => {
                    eprintln!("{}", one_line(&measured));
                    runs.push(Run { line: (*line).to_owned(), threads, load_cpus: own, measured });
                }
                Err(error) => {
                    eprintln!("{error}");
                    problems.push(format!("round {}: {error}", round + 1));
                }
            }
        }
    }
    let judgements = LINES.iter().map(|(line, ..)| judge(line, &runs, rounds.count, cores)).collect();
    Scaling { judgements, runs, problems }
}

/// Judged at half of the CPUs, so that the load generator has as many as the server.
fn judge(line: &str, runs: &[Run], rounds: usize, cores: usize) -> Judgement {
    let title = format!("{line}: throughput of each of several server threads over that of one");
    let aim = format!("≥ {AIM} ×");
    let half = cores / 2;
    if half < 2 {
        return Judgement::missing(&title, aim, &format!("this machine has {cores} CPUs; 4 are needed"));
    }
    let rate = |threads, round| {
        let found = runs.iter().find(|run| run.line == line && run.threads == threads && run.measured.round == round);
        found.map(|run| run.measured.report.rate)
    };
    let ratio = |round| Some(rate(half, round)? / rate(1, round)? / half as f64);
    let ratios: Vec<f64> = (0..rounds).filter_map(ratio).collect();
    if ratios.is_empty() {
        return Judgement::missing(&title, aim, "a run failed");
    }
    Judgement::new(&format!("{title}, {half} threads"), aim, "×", ratios, |ratio| ratio >= AIM)
}

/// The cell in a summary.
pub const ID: &str = "scaling";

impl Scaling {
    /// The rows of a summary: throughput and its companions by line and number of threads.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let measured: Vec<Measured> = self.runs.iter().map(|run| run.measured.clone()).collect();
        let mut rows: Vec<Row> = self.judgements.iter().map(|judgement| rows::of_judgement(ID, judgement)).collect();
        rows.extend(rows::of_sides(ID, &measured));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_generator_keeps_cpus_of_its_own_while_there_are_any() {
        assert_eq!(places(1, 8), ("0-0".to_owned(), (1..8).collect(), 7));
        assert_eq!(places(7, 8), ("0-6".to_owned(), vec![7], 1));
        assert_eq!(places(8, 8), ("0-7".to_owned(), vec![7], 0));
    }
}
