//! `docs/benchmarks/objects.md` and its figures, written from one run.

use std::fmt::Write as _;

use millrace_loadgen::s3::{Cell, Operation, Report, Row, size_text};

use super::aims::Rows;
use super::{Aim, KB, LARGE_CLIENTS, MB, OURS, WRITING, table};
use crate::machine::{Machine, median};

/// How a run was made.
pub struct Run<'a> {
    /// What was typed.
    pub command: String,
    /// Where.
    pub machine: &'a Machine,
    /// The load average before.
    pub load_before: f64,
    /// Of Millrace.
    pub durability: &'a str,
    /// Rounds and seconds of each.
    pub rounds: (usize, f64),
}

const TEMPLATE: &str = include_str!("../../pages/objects.template");

/// The page.
#[must_use]
pub fn page(run: &Run<'_>, report: &Report, aims: &[Aim]) -> String {
    let Run { command, machine, load_before, durability, rounds: (rounds, seconds) } = run;
    let met = aims.iter().filter(|aim| aim.is_met).count();
    let gib = machine.memory_bytes >> 30;
    let run = format!(
        "- `{command}`: {}, {} cores, {gib} GiB, Linux {}, load {load_before:.2}; commit {}; durability \
         {durability}; {rounds} rounds, {seconds} s for each side and round.",
        machine.cpu, machine.cores, machine.kernel, machine.commit
    );
    TEMPLATE
        .replace("{{findings}}", &findings(report))
        .replace("{{met}}", &met.to_string())
        .replace("{{aims}}", &aims.len().to_string())
        .replace("{{table}}", table(aims).replace("| lost |", "| **lost** |").trim_end())
        .replace("{{repeat}}", &run)
}

/// A line for each kind of request: how many, and how many times as many as the rivals.
fn findings(report: &Report) -> String {
    let rows = Rows(&report.rows);
    let mut text = String::new();
    for (operation, size, clients) in [
        (Operation::Get, KB, 1),
        (Operation::Get, KB, 20),
        (Operation::Put, KB, WRITING),
        (Operation::Put, 16 * KB, WRITING),
        (Operation::Get, 16 * MB, LARGE_CLIENTS),
        (Operation::Put, 16 * MB, LARGE_CLIENTS),
    ] {
        let cell = (operation, size, clients);
        let rate = |row: &Row| row.requests_per_s;
        let Some(ours) = rows.median((OURS, operation, size, clients, false), rate) else { continue };
        let beside = ["minio", "versitygw"].into_iter().filter_map(|rival| {
            let name = if rival == "minio" { "MinIO" } else { rival };
            Some(format!("{:.2} times {name}'s", rows.ratio(rival, cell, rate)?))
        });
        let beside = beside.collect::<Vec<_>>().join(" and ");
        let (name, size) = (operation.name().to_uppercase(), size_text(size));
        let rate = if ours >= 1000.0 { format!("{ours:.0}") } else { format!("{ours:.1}") };
        let clients = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
        // Writing to a String cannot fail.
        let _ = write!(text, "- {name} of {size}, {clients}: {rate} a second");
        let _ = if beside.is_empty() { writeln!(text, ".") } else { writeln!(text, ", {beside}.") };
    }
    text.trim_end().to_owned()
}

/// The median of each cell on each server, a line each. Times are in microseconds.
#[must_use]
pub fn medians(report: &Report) -> String {
    let mut csv =
        "server,operation,size_bytes,clients,writers,writer_size_bytes,rounds,requests_per_s,megabytes_per_s,\
                   first_byte_p50_us,first_byte_p99_us,total_p50_us,total_p99_us,total_p99_9_us,delayed_acks,errors\n"
            .to_owned();
    let mut done: Vec<(&str, Cell)> = Vec::new();
    for first in &report.rows {
        let key = (first.server.as_str(), first.cell);
        if done.contains(&key) {
            continue;
        }
        done.push(key);
        let rows: Vec<&Row> = report.rows.iter().filter(|row| (row.server.as_str(), row.cell) == key).collect();
        let of = |value: fn(&Row) -> f64| median(&rows.iter().map(|row| value(row)).collect::<Vec<_>>());
        let Cell { operation, size, clients, writers } = first.cell;
        let (writers, writer_size) = writers.unwrap_or_default();
        let _ = writeln!(
            csv,
            "{},{},{size},{clients},{writers},{writer_size},{},{:.1},{:.2},{:.0},{:.0},{:.0},{:.0},{:.0},{},{}",
            first.server,
            operation.name(),
            rows.len(),
            of(|row| row.requests_per_s),
            of(|row| row.megabytes_per_s),
            of(|row| row.first_byte.p50_us),
            of(|row| row.first_byte.p99_us),
            of(|row| row.total.p50_us),
            of(|row| row.total.p99_us),
            of(|row| row.total.p99_9_us),
            rows.iter().map(|row| row.delayed_acks).sum::<u64>(),
            rows.iter().map(|row| row.errors.total()).sum::<u64>(),
        );
    }
    csv
}
