//! The page for a person.

use crate::contest::digits;
use crate::table::circumstances;
use crate::transactions::document::{Document, Matrix};
use crate::transactions::matrix::CONFIGURATIONS;

/// All of it.
#[must_use]
pub fn markdown(document: &Document) -> String {
    let mut lines = vec![
        "# Transactions over services".to_owned(),
        String::new(),
        "Every reply was checked, and after each run the state was audited: hotels, flights and orders agree, both counters of the".to_owned(),
        "tree are equal, each review is in three places, the accounts hold what they held. Server and load generator have CPUs of their".to_owned(),
        "own but where it says otherwise. `make bench-transactions` repeats it.".to_owned(),
    ];
    match &document.table {
        Some(table) => table.lines(&mut lines),
        None => lines.push("\nThe comparisons were not measured yet.".to_owned()),
    }
    match &document.matrix {
        Some(matrix) => matrix_lines(matrix, &mut lines),
        None => lines.push("\nThe matrix was not measured yet.".to_owned()),
    }
    lines.join("\n") + "\n"
}

fn matrix_lines(matrix: &Matrix, lines: &mut Vec<String>) {
    lines.push("\n## Latency against throughput\n".to_owned());
    circumstances(&matrix.circumstances, lines);
    lines.push(
        "\nEach cell is a fresh server on one core. A closed loop over 256 connections finds its capacity; then an open loop over 1,024 \
         connections offers 10, 25, 50, 75, 90, 100 and 120 % of it, and latency counts from when each request should have been sent. \
         All rates are in [transactions.csv](transactions.csv).\n\n\
         What a configuration switches off. A handler is always a transaction, alone on its entities and rolled back when it throws: \
         that cannot be switched off. What can be is what makes it last, what makes it happen once, and what it costs when its entities lie apart.\n\n\
         | configuration | is |\n|---|---|"
            .to_owned(),
    );
    lines.extend(CONFIGURATIONS.iter().map(|one| format!("| {} | {} |", one.name, one.meaning)));
    lines.push(
        "\n`single` touches one entity, so that its `transactions` is its `nothing durable`, and its `all` its `exactly once`. A review of \
         `media` lies in a place chosen by its id, so that a compose spans two shards where the others span one. Of `hotel`, \
         100 hotels and 100 flights, in ten groups; of `media`, 100 users and 1,000 movies; otherwise 100,000 keys, all as likely.\n"
            .to_owned(),
    );
    let names: Vec<&str> = CONFIGURATIONS.iter().map(|one| one.name).collect();
    lines.push("Capacity, requests a second (server CPU a request, µs):\n".to_owned());
    lines.push(format!("| | {} | all / nothing durable |", names.join(" | ")));
    lines.push(format!("|---|{}--:|", "--:|".repeat(names.len())));
    for app in matrix.apps() {
        let capacity = |name: &str| matrix.cell(app, name).map_or(0.0, |cell| cell.capacity);
        let shown = |name: &&str| match matrix.cell(app, name) {
            Some(cell) if cell.capacity > 0.0 => format!("{:.0} ({})", cell.capacity, digits(cell.cpu_us)),
            _ => "—".to_owned(),
        };
        let cells: Vec<String> = names.iter().map(shown).collect();
        let (all, none) = (capacity("all"), capacity("nothing durable"));
        let ratio = if none > 0.0 { digits(all / none) } else { "—".to_owned() };
        lines.push(format!("| {app} | {} | {ratio} |", cells.join(" | ")));
    }
    latency_lines(matrix, &names, lines);
    for app in matrix.apps() {
        lines.push(format!("\n![{app}: latency against throughput](plots/transactions-{app}.svg)"));
    }
    let problems = matrix.cells.iter().filter_map(|cell| {
        let problem = cell.problem.as_ref()?.replace('\n', " ");
        Some(format!("- {}, {}: {problem}", cell.app, cell.configuration))
    });
    let problems: Vec<String> = problems.collect();
    if !problems.is_empty() {
        lines.push("\nNot as it should be:\n".to_owned());
        lines.extend(problems);
    }
}

fn latency_lines(matrix: &Matrix, names: &[&str], lines: &mut Vec<String>) {
    lines.push("\nLatency at half the capacity, p50 / p99, ms:\n".to_owned());
    lines.push(format!("| | {} |", names.join(" | ")));
    lines.push(format!("|---|{}", "--:|".repeat(names.len())));
    for app in matrix.apps() {
        let shown = |name: &&str| {
            let points = matrix.cell(app, name).map(|cell| cell.points.as_slice()).unwrap_or_default();
            let half = points.iter().find(|point| (point.share - 0.5).abs() < 1e-9);
            half.map_or("—".to_owned(), |point| {
                format!("{} / {}", digits(point.p50_us / 1e3), digits(point.p99_us / 1e3))
            })
        };
        let cells: Vec<String> = names.iter().map(shown).collect();
        lines.push(format!("| {app} | {} |", cells.join(" | ")));
    }
}
