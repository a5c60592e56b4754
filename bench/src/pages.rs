//! The published pages: what is in them, and in which order.

use std::path::Path;

use serde::Serialize;

use crate::bars::{self, Bar, Group};
use crate::cells::function_cells;
use crate::extra::extras;
use crate::load::load_cells;
use crate::page::render;
use crate::plot::{Line, Panel};
use crate::rows::{RATE, SERVER_CPU, USER_CPU};
use crate::summary::{Row, Suite, Summary};
use crate::transactions::matrix::{self, CONFIGURATIONS, SHARES};
use crate::{Outcome, plot, python, records, replication, transactions};

/// One page with its results.
pub struct Page {
    /// Names its files.
    pub name: &'static str,
    template: &'static str,
    cells: fn() -> Vec<String>,
    plot: fn(&Summary) -> String,
}

/// Functions beside their rivals.
pub const FUNCTIONS: Page = Page {
    name: "functions",
    template: include_str!("../pages/functions.template"),
    cells: function_ids,
    plot: functions_plot,
};

/// Transactions over services.
pub const TRANSACTIONS: Page = Page {
    name: "transactions",
    template: include_str!("../pages/transactions.template"),
    cells: transactions::ids,
    plot: transactions_plot,
};

/// Typed records.
pub const RECORDS: Page = Page {
    name: "records",
    template: include_str!("../pages/records.template"),
    cells: records::ids,
    plot: records_plot,
};

/// Handlers in Python processes.
pub const PYTHON: Page =
    Page { name: "python", template: include_str!("../pages/python.template"), cells: python::ids, plot: python_plot };

/// A cluster beside one node and beside etcd.
pub const REPLICATION: Page = Page {
    name: "replication",
    template: include_str!("../pages/replication.template"),
    cells: replication::ids,
    plot: replication_plot,
};

impl Page {
    /// Puts rows of a run in place of earlier ones in `folder`, and makes page and plot anew.
    ///
    /// # Errors
    /// Results in the folder that cannot be read, or a folder that cannot be written.
    pub fn publish(&self, folder: &Path, suite: Suite, rows: Vec<Row>) -> Outcome<()> {
        let mut summary = Summary::published(folder, self.name)?;
        summary.replace(suite, rows, &(self.cells)());
        let plots = folder.join("plots");
        let failed = |error: std::io::Error| format!("cannot write results to {}: {error}", folder.display());
        std::fs::create_dir_all(&plots).map_err(failed)?;
        std::fs::write(folder.join(format!("{}.csv", self.name)), summary.csv()?).map_err(failed)?;
        std::fs::write(folder.join(format!("{}.md", self.name)), self.markdown(&summary)?).map_err(failed)?;
        std::fs::write(plots.join(format!("{}.svg", self.name)), (self.plot)(&summary)).map_err(failed)
    }

    /// The page's text.
    ///
    /// # Errors
    /// A place in its template that cannot be filled.
    pub fn markdown(&self, summary: &Summary) -> Outcome<String> {
        render(self.template, summary)
    }
}

/// Writes all of a result to `folder`, for whoever wants more than medians. It is not committed.
///
/// # Errors
/// If the folder cannot be written.
pub fn write_raw(folder: &Path, name: &str, result: &impl Serialize) -> Outcome<()> {
    let failed = |error: std::io::Error| format!("cannot write raw results to {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    let json = serde_json::to_string_pretty(result).map_err(|error| error.to_string())?;
    std::fs::write(folder.join(format!("{name}.json")), json + "\n").map_err(failed)
}

fn function_ids() -> Vec<String> {
    let cells = function_cells().into_iter().map(|cell| cell.id);
    let loads = load_cells().into_iter().map(|cell| cell.id);
    let extras = extras().into_iter().map(|extra| extra.id);
    cells.chain(loads).chain(extras).map(str::to_owned).collect()
}

/// The median of a side's figure; 0 if there is none.
fn figure(summary: &Summary, cell: &str, side: &str, metric: &str) -> f64 {
    let is_it = |row: &&Row| row.cell == cell && row.side == side && row.metric == metric;
    summary.rows.iter().find(is_it).and_then(|row| row.median).unwrap_or_default()
}

fn sides<'a>(summary: &'a Summary, cell: &str) -> Vec<&'a str> {
    let of_cell = summary.rows.iter().filter(|row| row.cell == cell && row.metric == RATE.0);
    let mut names: Vec<&str> = Vec::new();
    for row in of_cell {
        if !names.contains(&row.side.as_str()) {
            names.push(&row.side);
        }
    }
    names
}

/// Server CPU, in user mode and in the kernel.
fn functions_plot(summary: &Summary) -> String {
    let bars = |cells: &[&str]| {
        let mut bars: Vec<Bar> = Vec::new();
        for cell in cells {
            for side in sides(summary, cell) {
                let all = figure(summary, cell, side, SERVER_CPU.0);
                let user = figure(summary, cell, side, USER_CPU.0);
                if bars.iter().all(|bar| bar.name != side) {
                    bars.push(Bar { name: side.to_owned(), parts: vec![user, all - user] });
                }
            }
        }
        bars
    };
    let group = |title: &str, cells: &[&str]| Group { title: title.to_owned(), bars: bars(cells) };
    let groups = [
        group("login: server CPU, µs a request", &["login-call-limit", "login-limit", "login-lua"]),
        group("login beside Express: server CPU, µs a request", &["login-express"]),
        group("durable counter: server CPU, µs a request", &["counter-increment"]),
    ];
    bars::draw("Server CPU of a request", &["user mode", "kernel"], &groups)
}

fn records_plot(summary: &Summary) -> String {
    let group = |title: &str, cell: &str| {
        let bar = |side: &str| Bar { name: side.to_owned(), parts: vec![figure(summary, cell, side, RATE.0)] };
        Group {
            title: format!("{title}: requests a second"),
            bars: sides(summary, cell).into_iter().map(bar).collect(),
        }
    };
    let groups = [group("get", "rival-get"), group("put", "rival-put"), group("update of one path", "rival-update")];
    bars::draw("Typed records beside PostgreSQL and MongoDB", &[], &groups)
}

fn python_plot(summary: &Summary) -> String {
    let group = |title: &str, cell: &str, metric: &str| {
        let bar = |side: &str| Bar { name: side.to_owned(), parts: vec![figure(summary, cell, side, metric)] };
        Group { title: title.to_owned(), bars: sides(summary, cell).into_iter().map(bar).collect() }
    };
    let groups = [
        group("hotel, one worker process: reservations a second", "hotel-1", RATE.0),
        group("hotel, four worker processes: reservations a second", "hotel-4", RATE.0),
        group("durable counter, one client: median latency, µs", "counter", "p50"),
        group("one hot entity, 64 clients: calls a second", "hot", RATE.0),
    ];
    bars::draw("Handlers in Python beside rivals", &[], &groups)
}

fn replication_plot(summary: &Summary) -> String {
    let group = |title: &str, cell: &str, metric: &str| {
        let bar = |side: &str| Bar { name: side.to_owned(), parts: vec![figure(summary, cell, side, metric)] };
        Group { title: title.to_owned(), bars: sides(summary, cell).into_iter().map(bar).collect() }
    };
    let groups = [
        group("read of 1 KB, 1 client: median latency, µs", "read-1", "p50"),
        group("write of 1 KB with fsync, 1 client: median latency, µs", "write-1", "p50"),
        group("write of 1 KB with fsync, 64 clients: median latency, µs", "write-64", "p50"),
        group("durable writes of 1 KB, 512 clients: writes a second", "etcd", RATE.0),
    ];
    bars::draw("Three nodes beside one, and beside etcd", &[], &groups)
}

/// The example that the plot shows.
const PLOTTED: &str = "hotel";

fn transactions_plot(summary: &Summary) -> String {
    let cell = matrix::id(PLOTTED);
    let line = |configuration: &str, latency: &str| {
        let of = |metric: &str, share: f64| figure(summary, &cell, configuration, &matrix::metric(metric, share));
        let points = SHARES.iter().map(|share| (of(RATE.0, *share), of(latency, *share)));
        Line { name: configuration.to_owned(), points: points.collect() }
    };
    let panel = |title: &str, latency: &str| {
        let lines = CONFIGURATIONS.iter().map(|one| line(one.name, latency)).collect();
        Panel::new(format!("{PLOTTED}: {title}"), (plot::RATE, plot::LATENCY), lines)
    };
    let panels = [panel("median latency", "p50"), panel("99th percentile", "p99")];
    plot::draw(&format!("{PLOTTED}: latency against throughput"), &panels)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks")
    }

    fn read(name: &str) -> String {
        std::fs::read_to_string(folder().join(name)).expect(name)
    }

    #[test]
    fn committed_pages_and_plots_are_made_of_the_committed_figures() {
        for page in [FUNCTIONS, TRANSACTIONS, RECORDS, PYTHON, REPLICATION] {
            let name = page.name;
            let text = read(&format!("{name}.csv"));
            let summary = Summary::parse(&text).expect(name);
            assert_eq!(summary.csv().as_ref(), Ok(&text), "{name}.csv");
            assert_eq!(page.markdown(&summary).as_ref(), Ok(&read(&format!("{name}.md"))), "{name}.md");
            assert_eq!((page.plot)(&summary), read(&format!("plots/{name}.svg")), "{name}.svg");
        }
    }

    #[test]
    fn a_page_without_results_says_so_and_has_no_figure() {
        let text = REPLICATION.markdown(&Summary::default()).expect("a page");
        assert!(
            text.contains("0 of 0 aims are met") && text.contains("make — durable writes of 1 KB a second"),
            "{text}"
        );
        assert!((REPLICATION.plot)(&Summary::default()).starts_with("<svg"));
    }

    #[test]
    fn committed_results_are_few() {
        let names = std::fs::read_dir(folder()).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        assert!(names.iter().all(|name| !name.ends_with(".json")), "raw results belong in target/: {names:?}");
        let lines: usize =
            names.iter().filter(|name| name.ends_with(".csv")).map(|name| read(name).lines().count()).sum();
        assert!((500..2000).contains(&lines), "{lines} lines");
    }
}
