//! The results of a run: a document for programs (JSON), a table for spreadsheets (CSV), lines for a person, and plots.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::counts::{Counts, Times};
use super::plan::{Cell, Operation, size_text};
use crate::plot::{LATENCY, Line, Panel, RATE, draw};
use crate::report::{ErrorCounts, duration_text};

/// A cell on a server in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The server's name.
    pub server: String,
    /// What was done.
    #[serde(flatten)]
    pub cell: Cell,
    /// From 0.
    pub round: usize,
    /// From the start of the measurement to the last reply.
    pub duration_s: f64,
    /// Right replies.
    pub requests: u64,
    /// Right replies a second.
    pub requests_per_s: f64,
    /// Bytes of objects a second, in millions.
    pub megabytes_per_s: f64,
    /// From the start of a request to the first byte of its reply.
    pub first_byte: Times,
    /// From the start of a request to the last byte of its reply.
    pub total: Times,
    /// Replies after 35 to 50 ms, where delayed acknowledgements put them.
    pub delayed_acks: u64,
    /// Connections that the server closed between requests.
    pub reconnects: u64,
    /// Requests that went wrong.
    pub errors: ErrorCounts,
    /// The first thing that went wrong.
    pub first_error: Option<String>,
}

/// All results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The same seed gives the same bodies and keys.
    pub seed: u64,
    /// In the order of the run.
    pub rows: Vec<Row>,
}

impl Row {
    pub(super) fn new(server: &str, cell: Cell, round: usize, duration: Duration, counts: &Counts) -> Self {
        let duration_s = duration.as_secs_f64().max(1e-9);
        let digits = |value: f64| (value * 1000.0).round() / 1000.0;
        Self {
            server: server.to_owned(),
            cell,
            round,
            duration_s: digits(duration_s),
            requests: counts.right,
            requests_per_s: digits(counts.right as f64 / duration_s),
            megabytes_per_s: digits(counts.bytes as f64 / duration_s / 1e6),
            first_byte: Times::of(&counts.first_byte),
            total: Times::of(&counts.total),
            delayed_acks: counts.delayed_acks,
            reconnects: counts.reconnects,
            errors: counts.errors.clone(),
            first_error: counts.first_error.clone(),
        }
    }

    /// A line for a person.
    #[must_use]
    pub fn line(&self) -> String {
        let Cell { operation, size, clients, writers } = self.cell;
        let writers = writers.map(|(count, size)| format!("  beside {count} writers of {}", size_text(size)));
        let mut line = format!(
            "{:<12} {:<14} {:>7} {clients:>4} clients {:>10.1}/s {:>9.2} MB/s  first byte {:>9} p99 {:>9}  total {:>9} p99 {:>9}{}",
            self.server,
            operation.name(),
            size_text(size),
            self.requests_per_s,
            self.megabytes_per_s,
            duration_text(self.first_byte.mean_us),
            duration_text(self.first_byte.p99_us),
            duration_text(self.total.mean_us),
            duration_text(self.total.p99_us),
            writers.unwrap_or_default()
        );
        if let Some(error) = &self.first_error {
            // Writing to a String cannot fail.
            let _ = write!(line, "\n  {} errors, the first: {error}", self.errors.total());
        }
        line
    }
}

impl Report {
    /// Whether every reply was right.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.rows.iter().all(|row| row.errors.total() == 0 && row.requests > 0)
    }

    /// A line a row, times in microseconds.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut csv =
            "server,operation,size_bytes,clients,writers,writer_size_bytes,round,duration_s,requests,requests_per_s,\
                       megabytes_per_s,first_byte_mean_us,first_byte_p50_us,first_byte_p99_us,first_byte_p99_9_us,\
                       total_mean_us,total_p50_us,total_p99_us,total_p99_9_us,delayed_acks,reconnects,errors\n"
                .to_owned();
        for row in &self.rows {
            let Cell { operation, size, clients, writers } = row.cell;
            let (writers, writer_size) = writers.unwrap_or_default();
            let times =
                |times: &Times| format!("{},{},{},{}", times.mean_us, times.p50_us, times.p99_us, times.p99_9_us);
            // Names of servers come from the command line.
            let server = row.server.replace([',', '"', '\n'], " ");
            let _ = writeln!(
                csv,
                "{server},{},{size},{clients},{writers},{writer_size},{},{},{},{},{},{},{},{},{},{}",
                operation.name(),
                row.round,
                row.duration_s,
                row.requests,
                row.requests_per_s,
                row.megabytes_per_s,
                times(&row.first_byte),
                times(&row.total),
                row.delayed_acks,
                row.reconnects,
                row.errors.total()
            );
        }
        csv
    }

    /// For each operation the name of a file and its plot: a panel a size, a line a server, a point for each number of
    /// clients.
    #[must_use]
    pub fn plots(&self) -> Vec<(String, String)> {
        let operations: BTreeSet<Operation> = self.rows.iter().map(|row| row.cell.operation).collect();
        let plot = |operation: &Operation| {
            let rows = || self.rows.iter().filter(|row| row.cell.operation == *operation && row.cell.writers.is_none());
            let sizes: BTreeSet<u64> = rows().map(|row| row.cell.size).collect();
            let panels: Vec<Panel> = sizes.into_iter().map(|size| self.panel(*operation, size)).collect();
            let title = format!("{}: total p99 against throughput", operation.name());
            (format!("s3-{}.svg", operation.name()), draw(&title, &panels))
        };
        operations.iter().map(plot).collect()
    }

    fn panel(&self, operation: Operation, size: u64) -> Panel {
        let rows = || {
            let is_in =
                |row: &&Row| row.cell.operation == operation && row.cell.size == size && row.cell.writers.is_none();
            self.rows.iter().filter(is_in)
        };
        let mut servers: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !servers.contains(&row.server.as_str()) {
                servers.push(&row.server);
            }
        }
        let line = |server: &&str| {
            let clients: BTreeSet<usize> = rows().map(|row| row.cell.clients).collect();
            let point = |clients: usize| {
                let of = |value: &dyn Fn(&Row) -> f64| {
                    let fitting = rows().filter(|row| row.server == *server && row.cell.clients == clients);
                    median(fitting.map(value).collect())
                };
                Some((of(&|row| row.requests_per_s)?, of(&|row| row.total.p99_us)?))
            };
            Line { name: (*server).to_owned(), points: clients.into_iter().filter_map(point).collect() }
        };
        let title = format!("{} {}", operation.name(), size_text(size));
        Panel::new(title, (RATE, LATENCY), servers.iter().map(line).collect())
    }
}

/// The median; nothing of nothing.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}
