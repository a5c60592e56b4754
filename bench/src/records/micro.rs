//! The cost of paths and codecs alone. It runs the programs of their crates and reads their output.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::contest::Judgement;
use crate::rows::of_judgement;
use crate::server::Setup;
use crate::summary::Row;

/// Examples of `crates/avpath` and `crates/avro`.
const PROGRAMS: [&str; 2] = ["path_cost", "codec_cost"];

/// The aims: the line's text, the bound in ns, and a title.
const AIMS: [(&str, f64, &str); 2] = [
    ("select .address.geo.city", 1000.0, "select of a nested path"),
    ("select .orders{.amount > 50}.number", 15_000.0, "predicate over 100 array elements"),
];

/// One line of a program's output, over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The program.
    pub program: String,
    /// The operation.
    pub what: String,
    /// Nanoseconds, in each round.
    pub ns: Vec<f64>,
}

/// The result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Micro {
    /// The results for the aims.
    pub judgements: Vec<Judgement>,
    /// In the order of the output.
    pub costs: Vec<Cost>,
    /// Errors.
    pub problems: Vec<String>,
}

/// Runs both programs of `folder` in turn, `rounds` times.
#[must_use]
pub fn measure(setup: &Setup, folder: &Path, rounds: usize) -> Micro {
    let mut costs: Vec<Cost> = Vec::new();
    let mut problems = Vec::new();
    for round in 0..rounds {
        for program in PROGRAMS {
            eprintln!("micro {}/{rounds} {program}", round + 1);
            match run(setup, &folder.join(program)) {
                Ok(text) => take(&mut costs, program, &text),
                Err(error) => {
                    eprintln!("{error}");
                    problems.push(error);
                }
            }
        }
    }
    let judgements = AIMS.map(|aim| judge(&costs, aim)).to_vec();
    Micro { judgements, costs, problems }
}

fn run(setup: &Setup, program: &Path) -> Outcome<String> {
    let output = Command::new("taskset").args(["-c", &setup.server_cpus]).arg(program).output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    if !output.status.success() {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        return Err(format!("{name} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Lines are `NUMBER ns  WHAT` or `WHAT  NUMBER ns`. An indented line belongs to the last line that is not.
fn take(costs: &mut Vec<Cost>, program: &str, text: &str) {
    let mut group = String::new();
    for line in text.lines() {
        let Some((what, ns)) = cost_of(line) else {
            group = line.split(':').next().unwrap_or_default().trim().to_owned();
            continue;
        };
        let is_inside = line.starts_with("  ") && line.trim_end().ends_with(" ns");
        let what = if is_inside { format!("{group}: {what}") } else { what };
        match costs.iter_mut().find(|cost| cost.program == program && cost.what == what) {
            Some(cost) => cost.ns.push(ns),
            None => costs.push(Cost { program: program.to_owned(), what, ns: vec![ns] }),
        }
    }
}

fn cost_of(line: &str) -> Option<(String, f64)> {
    let line = line.trim();
    if let Some(before) = line.strip_suffix(" ns") {
        let (what, number) = before.rsplit_once(' ')?;
        return Some((what.trim().to_owned(), number.parse().ok()?));
    }
    let (number, what) = line.split_once(" ns ")?;
    Some((what.trim().to_owned(), number.trim().parse().ok()?))
}

fn judge(costs: &[Cost], (mark, most, title): (&str, f64, &str)) -> Judgement {
    let aim = format!("≤ {} µs", most / 1000.0);
    let is_it =
        |cost: &&Cost| cost.what == mark || cost.what.strip_prefix(mark).is_some_and(|rest| rest.starts_with(':'));
    let Some(cost) = costs.iter().find(is_it) else {
        return Judgement::missing(title, aim, &format!("no program told of `{mark}`"));
    };
    let title = format!("{title}, `{mark}`");
    let values = cost.ns.iter().map(|ns| ns / 1000.0).collect();
    Judgement::new(&title, aim, "µs", values, |us| us <= most / 1000.0)
}

/// The cell in a summary.
pub const ID: &str = "micro";

impl Micro {
    /// The rows of a summary.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let row = |cost: &Cost| Row::figure(ID, &cost.program, (&cost.what, "ns"), &cost.ns);
        self.judgements.iter().map(|one| of_judgement(ID, one)).chain(self.costs.iter().map(row)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_lines_are_read_and_rounds_gathered() {
        let paths = "a record of 99 bytes\n       412 ns  select .address.geo.city: 1\n      9000 ns  select .orders{.amount > 50}.number: 49\n";
        let codec =
            "PersonInfo: 44 bytes, 99 as JSON\n  skip            12.5 ns\norder_key of a long          3.0 ns\n";
        let mut costs = Vec::new();
        for _ in 0..2 {
            take(&mut costs, "path_cost", paths);
            take(&mut costs, "codec_cost", codec);
        }
        let told: Vec<(&str, &[f64])> = costs.iter().map(|cost| (cost.what.as_str(), cost.ns.as_slice())).collect();
        assert_eq!(
            told,
            [
                ("select .address.geo.city: 1", &[412.0, 412.0][..]),
                ("select .orders{.amount > 50}.number: 49", &[9000.0, 9000.0]),
                ("PersonInfo: skip", &[12.5, 12.5]),
                ("order_key of a long", &[3.0, 3.0]),
            ]
        );
        assert!(AIMS.iter().all(|aim| judge(&costs, *aim).is_met));
        assert!(!judge(&[], AIMS[0]).is_measured);
    }
}
