//! What the cells are judged by. A judgement compares medians of one run.

use millrace_loadgen::s3::{Operation, Row, size_text};

use super::{FEW_AND_MANY, FILES, KB, LARGE_CLIENTS, LISTING, MB, OURS, UPLOADS, WRITING};
use crate::machine::median;

/// One aim and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Aim {
    /// What is measured.
    pub what: String,
    /// What it should be.
    pub aim: String,
    /// What it was; nothing if a side was not measured.
    pub measured: Option<f64>,
    /// Whether the aim is reached.
    pub is_met: bool,
}

/// How a figure is judged.
#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// Rivals by the least ratio of small reads, and of small writes. MinIO syncs the object's file before it replies;
/// versitygw syncs nothing (their READMEs say how that was seen).
const RIVALS: [(&str, f64, f64); 2] = [("minio", 5.0, 3.0), ("versitygw", 2.5, 1.0)];

/// Rows of a run, looked up by cell.
pub(super) struct Rows<'a>(pub(super) &'a [Row]);

impl Rows<'_> {
    pub(super) fn median(
        &self,
        (server, operation, size, clients, is_beside): (&str, Operation, u64, usize, bool),
        value: fn(&Row) -> f64,
    ) -> Option<f64> {
        let fits = |row: &&Row| {
            row.server == server
                && (row.cell.operation, row.cell.size, row.cell.clients) == (operation, size, clients)
                && row.cell.writers.is_some() == is_beside
                && row.errors.total() == 0
        };
        let values: Vec<f64> = self.0.iter().filter(fits).map(value).collect();
        (!values.is_empty()).then(|| median(&values))
    }

    pub(super) fn ratio(&self, rival: &str, cell: (Operation, u64, usize), value: fn(&Row) -> f64) -> Option<f64> {
        let of = |server| self.median((server, cell.0, cell.1, cell.2, false), value);
        Some(of(OURS)? / of(rival)?)
    }
}

fn rate(row: &Row) -> f64 {
    row.requests_per_s
}

fn p99(row: &Row) -> f64 {
    row.total.p99_us
}

/// Judges the rows of a run.
#[must_use]
pub fn aims(rows: &[Row]) -> Vec<Aim> {
    let rows = Rows(rows);
    let mut aims = Vec::new();
    let mut judge = |what: String, unit: &str, bound: Bound, measured: Option<f64>| {
        let (aim, is_met) = match bound {
            Bound::AtLeast(least) => (format!("≥ {least}{unit}"), measured.is_some_and(|value| value >= least)),
            Bound::AtMost(most) => (format!("≤ {most}{unit}"), measured.is_some_and(|value| value <= most)),
        };
        aims.push(Aim { what, aim, measured, is_met });
    };
    let small = rows.median((OURS, Operation::Get, KB, FEW_AND_MANY[1], false), rate);
    judge("GET 1 KB, 20 clients".to_owned(), "/s", Bound::AtLeast(50_000.0), small);
    for (rival, reads, writes) in RIVALS {
        for clients in FEW_AND_MANY {
            let cell = (Operation::Get, KB, clients);
            let name = format!("GET 1 KB, {clients} clients");
            judge(format!("{name}, over {rival}"), " ×", Bound::AtLeast(reads), rows.ratio(rival, cell, rate));
            judge(format!("{name}, p99 over {rival}'s"), " ×", Bound::AtMost(1.0), rows.ratio(rival, cell, p99));
        }
        for size in [KB, 16 * KB] {
            let what = format!("PUT {}, {WRITING} clients, over {rival}", size_text(size));
            judge(what, " ×", Bound::AtLeast(writes), rows.ratio(rival, (Operation::Put, size, WRITING), rate));
        }
    }
    for operation in [Operation::Get, Operation::Put] {
        for size in [MB, 16 * MB, 256 * MB] {
            let what = format!("{} {}, over minio", operation.name().to_uppercase(), size_text(size));
            let cell = (operation, size, LARGE_CLIENTS);
            judge(what, " ×", Bound::AtLeast(1.2), rows.ratio("minio", cell, rate));
        }
    }
    for size in [MB, 16 * MB, 256 * MB] {
        let cell = (Operation::Get, size, LARGE_CLIENTS);
        judge(
            format!("GET {}, over {FILES}", size_text(size)),
            " ×",
            Bound::AtLeast(0.6),
            rows.ratio(FILES, cell, rate),
        );
    }
    let many = FEW_AND_MANY[1];
    let of = |is_beside| rows.median((OURS, Operation::Get, KB, many, is_beside), p99);
    let what = format!("GET 1 KB, p99 beside {} uploads of {}, over idle", UPLOADS.0, size_text(UPLOADS.1));
    judge(what, " ×", Bound::AtMost(3.0), of(true).and_then(|beside| Some(beside / of(false)?)));
    for operation in [Operation::List, Operation::ListDelimiter] {
        let listed = rows.median((OURS, operation, 0, LISTING, false), |row| row.total.p99_us / 1000.0);
        judge(format!("{}, p99", operation.name()), " ms", Bound::AtMost(15.0), listed);
    }
    // Without delayed acknowledgements no small read takes 35 to 50 ms.
    let is_small_read = |row: &&Row| {
        row.server == OURS && row.cell.operation == Operation::Get && row.cell.size == KB && row.cell.writers.is_none()
    };
    let delayed: Vec<f64> = rows.0.iter().filter(is_small_read).map(|row| row.delayed_acks as f64).collect();
    let delayed = (!delayed.is_empty()).then(|| delayed.iter().sum());
    judge("small reads that take 35 to 50 ms".to_owned(), "", Bound::AtMost(0.0), delayed);
    aims
}

/// The aims as a table in Markdown.
#[must_use]
pub fn table(aims: &[Aim]) -> String {
    let mut table = "| what | aim | measured | |\n|---|---|---|---|\n".to_owned();
    for Aim { what, aim, measured, is_met } in aims {
        let (measured, verdict) = match measured {
            Some(value) => (format!("{value:.2}"), if *is_met { "met" } else { "lost" }),
            None => (String::new(), "not measured"),
        };
        table.push_str(&format!("| {what} | {aim} | {measured} | {verdict} |\n"));
    }
    table
}

#[cfg(test)]
mod tests {
    use millrace_loadgen::s3::{Cell, Times};

    use super::*;

    fn row(server: &str, rate: f64, p99_us: f64) -> Row {
        Row {
            server: server.to_owned(),
            cell: Cell::new(Operation::Get, KB, 20),
            round: 0,
            duration_s: 1.0,
            requests: rate as u64,
            requests_per_s: rate,
            megabytes_per_s: 1.0,
            first_byte: Times::default(),
            total: Times { p99_us, ..Times::default() },
            delayed_acks: 0,
            reconnects: 0,
            errors: Default::default(),
            first_error: None,
        }
    }

    #[test]
    fn aims_are_judged_by_medians_and_sides_that_are_missing_are_not_met() {
        let ours = [60_000.0, 10.0, 61_000.0].map(|rate| row(OURS, rate, 100.0));
        let rows = [&ours[..], &[row("minio", 20_000.0, 200.0)]].concat();
        let aims = aims(&rows);
        let found = |what: &str| aims.iter().find(|aim| aim.what == what).expect("an aim");
        assert!(found("GET 1 KB, 20 clients").is_met);
        let over = found("GET 1 KB, 20 clients, over minio");
        assert_eq!((over.measured, over.is_met), (Some(3.0), false));
        assert_eq!(found("GET 1 KB, 20 clients, p99 over minio's").measured, Some(0.5));
        assert!(!found("GET 1 KB, 20 clients, over versitygw").is_met);
        assert!(table(&aims).contains("| GET 1 KB, 20 clients, over minio | ≥ 5 × | 3.00 | lost |\n"));
        assert!(table(&aims).contains("over versitygw | ≥ 2.5 × |  | not measured |\n"));
    }

    #[test]
    fn a_cell_with_errors_does_not_count() {
        let mut wrong = row(OURS, 60_000.0, 100.0);
        wrong.errors.body = 1;
        assert_eq!(aims(&[wrong])[0].measured, None);
    }
}
