//! Throughput by server threads, reading and writing, with and without a log.

use std::fmt::Write as _;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::workload::{BENCHMARKED, Records, Target, Work};
use crate::cells::{Measured, Rounds};
use crate::contest::{Contestant, Judgement, one_line};
use crate::machine::median;
use crate::plot::{Axes, Line, Panel, draw};
use crate::server::{Kind, Setup};
use crate::table::Circumstances;

/// Connections for each server thread.
const CONNECTIONS: usize = 128;
/// Of the throughput of one thread, each.
const AIM: f64 = 0.8;

/// The lines of table and plot.
pub const LINES: [(&str, Work, &str); 4] = [
    ("GET, fsync", Work::Get, "fsync"),
    ("GET, none", Work::Get, "none"),
    ("PUT, fsync", Work::Put, "fsync"),
    ("PUT, none", Work::Put, "none"),
];

/// One line at one number of threads in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Of [`LINES`].
    pub line: String,
    /// Of the server.
    pub threads: usize,
    /// That the load generator had to itself; 0: it shared the last of the server's.
    pub load_cpus: usize,
    /// What was measured.
    pub measured: Measured,
}

/// All of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scaling {
    /// How it was measured.
    pub circumstances: Circumstances,
    /// What came of the aims.
    pub judgements: Vec<Judgement>,
    /// By round, threads and line.
    pub runs: Vec<Run>,
    /// What went wrong.
    pub problems: Vec<String>,
}

/// The server's CPUs and those of the load generator, and how many of these are its own. The server has
/// the first ones, the load generator what is left, or the last one if nothing is.
fn places(threads: usize, cores: usize) -> (String, Vec<usize>, usize) {
    let load: Vec<usize> = (threads.min(cores - 1)..cores).collect();
    (format!("0-{}", threads - 1), load, cores - threads)
}

/// All lines at all numbers of threads, in alternation: lines within threads within rounds, and every
/// other round the other way round.
#[must_use]
pub fn measure(setup: &Setup, rounds: &Rounds, cores: usize, circumstances: &Circumstances) -> Scaling {
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
    Scaling { circumstances: circumstances.clone(), judgements, runs, problems }
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

impl Scaling {
    fn threads(&self) -> Vec<usize> {
        let mut threads: Vec<usize> = self.runs.iter().map(|run| run.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        threads
    }

    fn runs_at<'a>(&'a self, line: &'a str, threads: usize) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.line == line && run.threads == threads)
    }

    /// Median over the rounds; nothing if none went right.
    fn rate(&self, line: &str, threads: usize) -> Option<f64> {
        let rates: Vec<f64> = self.runs_at(line, threads).map(|run| run.measured.report.rate).collect();
        (!rates.is_empty()).then(|| median(&rates))
    }

    /// The table, for the page: throughput, and in parentheses that of each thread over that of one.
    #[must_use]
    pub fn rows(&self) -> Vec<String> {
        let names: Vec<&str> = LINES.iter().map(|(line, ..)| *line).collect();
        let mut rows = vec![
            format!("| server threads | CPUs of the load generator | {} |", names.join(" | ")),
            format!("|--:|--:|{}", "--:|".repeat(names.len())),
        ];
        for threads in self.threads() {
            let own = self.runs.iter().find(|run| run.threads == threads).map_or(0, |run| run.load_cpus);
            let own = if own == 0 { "shares the last".to_owned() } else { own.to_string() };
            let mut row = format!("| {threads} | {own} |");
            for name in &names {
                let text = self.rate(name, threads).map_or("—".to_owned(), |rate| {
                    let each = self.rate(name, 1).map(|one| rate / one / threads as f64);
                    format!("{rate:.0} ({})", each.map_or("—".to_owned(), |each| format!("{each:.2}")))
                });
                // Writing to a String cannot fail.
                write!(row, " {text} |").unwrap_or_default();
            }
            rows.push(row);
        }
        rows
    }

    /// The plot.
    #[must_use]
    pub fn plot(&self) -> String {
        let line = |(name, ..): &(&str, Work, &str)| {
            let points =
                self.threads().into_iter().filter_map(|threads| Some((threads as f64, self.rate(name, threads)?)));
            Line { name: (*name).to_owned(), points: points.collect() }
        };
        let title = "Records: throughput by server threads";
        let lines = LINES.iter().map(line).collect();
        draw(title, &[Panel { title: title.to_owned(), axes: Axes::ThreadsRate, lines }])
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
