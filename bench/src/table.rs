//! Comparisons as they are published: a table of what was aimed at, and a table for each contest.

use serde::{Deserialize, Serialize};

use crate::cells::Measured;
use crate::contest::{ContestResult, Judgement};
use crate::machine::{Machine, median};
use crate::publish::side_rows;

/// How a part was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Circumstances {
    /// What to run to repeat it.
    pub command: String,
    /// Where it ran.
    pub machine: Machine,
    /// Rounds of each comparison.
    pub rounds: usize,
    /// Seconds measured per side and round, or per rate; 0 where no time was given.
    pub seconds: f64,
    /// Versions of what it was compared with.
    pub rivals: Vec<String>,
    /// What else ran: the load average of the minute before.
    #[serde(default)]
    pub load_before: f64,
}

/// The comparisons.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Table {
    /// Of the last run.
    pub circumstances: Circumstances,
    /// In the order they are published.
    pub contests: Vec<ContestResult>,
}

/// The head of a table of judgements.
pub(crate) const JUDGEMENTS: &str = "\n| comparison | aim | measured | |\n|---|---|---|---|";

/// One row of it.
pub(crate) fn judgement_row(judgement: &Judgement) -> String {
    let verdict = match (judgement.is_measured, judgement.is_met) {
        (false, _) => "—",
        (true, true) => "met",
        (true, false) => "**lost**",
    };
    format!("| {} | {} | {} | {verdict} |", judgement.title, judgement.aim, judgement.measured)
}

impl Table {
    /// `earlier` with a contest in place of an earlier run of it; `order` are the ids as published.
    #[must_use]
    pub fn with(earlier: Option<Self>, circumstances: &Circumstances, result: ContestResult, order: &[String]) -> Self {
        let mut contests = earlier.map(|table| table.contests).unwrap_or_default();
        contests.retain(|one| one.id != result.id && order.contains(&one.id));
        contests.push(result);
        contests.sort_by_key(|one| order.iter().position(|id| *id == one.id));
        Self { circumstances: circumstances.clone(), contests }
    }

    /// All of it, for the page.
    pub(crate) fn lines(&self, lines: &mut Vec<String>) {
        lines.extend(
            [
                "\n## Comparisons\n",
                "Ratios are taken within each round, the sides in alternation, and their median is told.\n",
            ]
            .map(str::to_owned),
        );
        circumstances(&self.circumstances, lines);
        let runs = || self.contests.iter().flat_map(|contest| &contest.runs);
        let fsyncs: Vec<f64> = runs().map(|run: &Measured| run.fsync_us).collect();
        lines.push(format!("- 4 KiB overwrite and fdatasync, median over the run: {:.0} µs", median(&fsyncs)));
        lines.push(JUDGEMENTS.to_owned());
        lines.extend(self.contests.iter().flat_map(|contest| &contest.judgements).map(judgement_row));
        for contest in &self.contests {
            contest_lines(contest, &self.circumstances, lines);
        }
    }
}

/// How a part was measured, as a list.
pub(crate) fn circumstances(circumstances: &Circumstances, lines: &mut Vec<String>) {
    let Circumstances { command, machine, rounds, seconds, rivals, load_before } = circumstances;
    let Machine { cpu, cores, memory_bytes, kernel, commit, is_modified } = machine;
    let modified = if *is_modified { ", with changes" } else { "" };
    lines.push(format!("- command: `{command}`"));
    lines.push(format!("- machine: {cpu}, {cores} cores, {} GiB, Linux {kernel}", memory_bytes >> 30));
    lines.push(format!("- load average of the minute before: {load_before:.2}"));
    lines.push(format!("- commit: {commit}{modified}"));
    if !rivals.is_empty() {
        lines.push(format!("- compared with: {}", rivals.join("; ")));
    }
    match rounds {
        0 => lines.push(format!("- {seconds} s per rate")),
        rounds if *seconds > 0.0 => lines.push(format!("- {rounds} rounds of {seconds} s per side")),
        // Measured once, or by programs that choose their own times.
        1 => {}
        rounds => lines.push(format!("- {rounds} rounds")),
    }
}

fn contest_lines(contest: &ContestResult, last: &Circumstances, lines: &mut Vec<String>) {
    lines.push(format!("\n### {}\n\n{}", contest.title, contest.note));
    if contest.origin.command != last.command || contest.origin.commit != last.machine.commit {
        lines.push(format!("Measured by `{}` at commit {}.", contest.origin.command, contest.origin.commit));
    }
    if !contest.runs.is_empty() {
        lines.push("\n| side | connections | requests/s | server CPU µs/request | switches/request | p50 µs | p99 µs | p99.9 µs | fsync µs |".to_owned());
        lines.push("|---|--:|--:|--:|--:|--:|--:|--:|--:|".to_owned());
        lines.extend(side_rows(&contest.runs));
    }
    if !contest.remarks.is_empty() {
        lines.push(String::new());
        lines.extend(contest.remarks.iter().map(|remark| format!("- {}", remark.replace('\n', " "))));
    }
}
