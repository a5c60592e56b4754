//! Results as files: everything in JSON, the essence as a table in Markdown.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::cells::{CellResult, Measured};
use crate::extra::ExtraResult;
use crate::machine::{Machine, median};

/// One run of a program with everything that is needed to repeat it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Publication {
    /// The page's heading.
    pub title: String,
    /// What to run to repeat it.
    pub command: String,
    /// Where it ran.
    pub machine: Machine,
    /// Versions of what it was compared with.
    pub rivals: Vec<String>,
    /// Median over the runs.
    pub fsync_us: f64,
    /// Rounds of each comparison.
    pub rounds: usize,
    /// Seconds measured per side and round.
    pub duration_s: f64,
    /// The comparisons.
    pub cells: Vec<CellResult>,
    /// What was measured without a rival.
    pub extras: Vec<ExtraResult>,
}

impl Publication {
    /// Writes `{name}.json` and `{name}.md` into `folder`.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn write(&self, folder: &Path, name: &str) -> Outcome<()> {
        let failed = |error: std::io::Error| format!("cannot write results to {}: {error}", folder.display());
        std::fs::create_dir_all(folder).map_err(failed)?;
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        std::fs::write(folder.join(format!("{name}.json")), json + "\n").map_err(failed)?;
        std::fs::write(folder.join(format!("{name}.md")), self.markdown()).map_err(failed)
    }

    /// The page for a person.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n", self.title);
        let Machine { cpu, cores, memory_bytes, kernel, commit, is_modified } = &self.machine;
        let modified = if *is_modified { ", with changes" } else { "" };
        let mut line = |value: String| {
            text.push_str(&value);
            text.push('\n');
        };
        line("Ratios are taken within each round, the sides in alternation, and their median is told.".to_owned());
        line("Every reply was checked. Server and load generator have CPUs of their own.\n".to_owned());
        line(format!("- command: `{}`", self.command));
        line(format!("- machine: {cpu}, {cores} cores, {} GiB, Linux {kernel}", memory_bytes >> 30));
        line(format!("- commit: {commit}{modified}"));
        line(format!("- compared with: {}", self.rivals.join("; ")));
        line(format!("- 4 KiB overwrite and fdatasync, median over the run: {:.0} µs", self.fsync_us));
        line(format!("- {} rounds of {} s per side\n", self.rounds, self.duration_s));
        line("| comparison | aim | measured | |".to_owned());
        line("|---|---|---|---|".to_owned());
        for cell in &self.cells {
            let CellResult { title, aim, ratio, ratios, .. } = cell;
            let (low, high) = range(ratios);
            let measured = match &cell.problem {
                Some(problem) => format!("not measured: {}", problem.replace(['|', '\n'], " ")),
                None => format!("{ratio:.3} × ({low:.3} to {high:.3})"),
            };
            line(format!("| {title} | {aim} | {measured} | {} |", verdict(cell.is_met, cell.problem.is_some())));
        }
        for extra in &self.extras {
            let ExtraResult { title, aim, measured, is_met, is_measured, .. } = extra;
            line(format!("| {title} | {aim} | {measured} | {} |", verdict(*is_met, !is_measured)));
        }
        for cell in self.cells.iter().filter(|cell| !cell.runs.is_empty()) {
            line(format!("\n## {}\n", cell.title));
            line("| side | connections | requests/s | server CPU µs/request | switches/request | p50 µs | p99 µs | p99.9 µs | fsync µs |".to_owned());
            line("|---|--:|--:|--:|--:|--:|--:|--:|--:|".to_owned());
            for row in side_rows(&cell.runs) {
                line(row);
            }
            if !cell.remarks.is_empty() {
                line(String::new());
            }
            for remark in &cell.remarks {
                line(format!("- {remark}"));
            }
        }
        text
    }
}

fn verdict(is_met: bool, is_missing: bool) -> &'static str {
    match (is_missing, is_met) {
        (true, _) => "—",
        (_, true) => "met",
        (_, false) => "**lost**",
    }
}

fn range(values: &[f64]) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    (values.iter().copied().fold(f64::MAX, f64::min), values.iter().copied().fold(0.0, f64::max))
}

/// One row per side, in the order the sides first ran; medians over the rounds.
pub(crate) fn side_rows(runs: &[Measured]) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        if !names.contains(&run.side.as_str()) {
            names.push(&run.side);
        }
    }
    let row = |name: &&str| {
        let of_side: Vec<&Measured> = runs.iter().filter(|run| run.side == **name).collect();
        let middle =
            |value: &dyn Fn(&Measured) -> f64| median(&of_side.iter().map(|run| value(run)).collect::<Vec<_>>());
        let server = |value: &dyn Fn(&millrace_client::bench::ServerUse) -> f64| {
            middle(&|run| run.report.server.as_ref().map_or(0.0, value))
        };
        format!(
            "| {name} | {} | {:.0} | {:.2} | {:.3} | {:.0} | {:.0} | {:.0} | {:.0} |",
            of_side[0].report.connections,
            middle(&|run| run.report.rate),
            server(&|used| used.cpu_us_per_request),
            server(&|used| used.switches_per_request),
            middle(&|run| run.report.latency.p50_us),
            middle(&|run| run.report.latency.p99_us),
            middle(&|run| run.report.latency.p99_9_us),
            middle(&|run| run.fsync_us),
        )
    };
    names.iter().map(row).collect()
}
