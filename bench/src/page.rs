//! Pages for a person: a text with places for figures, filled from a summary.
//!
//! | place | becomes |
//! |---|---|
//! | `{{table}}` | all comparisons that have an aim |
//! | `{{repeat}}` | the runs with their commands |
//! | `{{met}}`, `{{aims}}` | the number of aims that are met, and of all aims |
//! | `{{cpu CELL}}` | the CPU of a comparison |
//! | `{{aim CELL | N}}` | the figure of a comparison's N-th aim |
//! | `{{side CELL | SIDE | METRIC}}` | a figure of one side |
//!
//! The last three may end with `@ MAKER`, such as `@ intel`. Without it, the first CPU of the file counts.

use crate::Outcome;
use crate::contest::digits;
use crate::rows::{SERVER_CPU, USER_CPU};
use crate::summary::{Row, Suite, Summary};

/// Fills the places of `template`.
///
/// # Errors
/// A place of another form.
pub fn render(template: &str, summary: &Summary) -> Outcome<String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (place, after) = after.split_once("}}").ok_or("a place is not closed")?;
        text.push_str(before);
        text.push_str(&fill(place, summary).ok_or_else(|| format!("no such place: {place}"))?);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

fn fill(place: &str, summary: &Summary) -> Option<String> {
    let (place, maker) = place.split_once(" @ ").unwrap_or((place, ""));
    let (kind, names) = place.split_once(' ').unwrap_or((place, ""));
    let names: Vec<&str> = names.split(" | ").collect();
    let judged = || summary.rows.iter().filter(|row| row.is_judged());
    let is_of = |row: &&Row, cell: &str| row.cell == cell && row.suite.contains(maker);
    match (kind, names.as_slice()) {
        ("table", [""]) => Some(table(summary)),
        ("repeat", [""]) => Some(repeat(summary)),
        ("met", [""]) => Some(judged().filter(|row| row.verdict == "met").count().to_string()),
        ("aims", [""]) => Some(judged().count().to_string()),
        ("cpu", [cell]) => {
            let row = summary.rows.iter().find(|row| is_of(row, cell));
            Some(row.map_or(MISSING.to_owned(), |row| cpu(summary, row)))
        }
        ("aim", [cell, number]) => {
            let number: usize = number.parse().ok()?;
            Some(spoken(judged().filter(|row| is_of(row, cell)).nth(number.checked_sub(1)?)))
        }
        ("side", [cell, side, metric]) => {
            let is_it = |row: &&Row| is_of(row, cell) && row.side == *side && row.metric == *metric;
            Some(spoken(summary.rows.iter().find(is_it)))
        }
        _ => None,
    }
}

/// Stands for a missing figure.
const MISSING: &str = "—";

/// A figure within a sentence.
fn spoken(row: Option<&Row>) -> String {
    let Some(value) = row.and_then(|row| row.median) else { return MISSING.to_owned() };
    match value.abs() {
        size if size >= 1000.0 => grouped((value / 100.0).round() * 100.0),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `97,900`
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn cpu(summary: &Summary, row: &Row) -> String {
    let name = summary.suite(row).map(|suite| suite.fact("cpu")).unwrap_or_default();
    name.replace("(R)", "").replace(" Processor", "")
}

fn table(summary: &Summary) -> String {
    let mut lines = vec![
        "| comparison | aim | measured: median (lowest to highest round) | server CPU, µs a request (in user mode) | CPU | |"
            .to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(summary.rows.iter().filter(|row| row.is_judged()).map(|row| table_row(summary, row)));
    lines.join("\n")
}

fn table_row(summary: &Summary, row: &Row) -> String {
    let Row { metric, unit, median, low, high, rounds, aim, verdict, .. } = row;
    let measured = match (median, low, high) {
        (Some(median), Some(low), Some(high)) if *rounds > 1 => {
            format!("{} {unit} ({} to {})", digits(*median), digits(*low), digits(*high))
        }
        (Some(median), ..) => format!("{} {unit}", digits(*median)),
        _ => verdict.clone(),
    };
    let verdict = match (median, verdict.as_str()) {
        (None, _) => MISSING,
        (_, "lost") => "**lost**",
        (_, verdict) => verdict,
    };
    let cells = [metric.as_str(), aim, &measured, &server_cpu(summary, row), &cpu(summary, row), verdict];
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace(['|', '\n'], " ")).collect();
    format!("| {} |", cells.join(" | "))
}

/// The CPU of both sides of a comparison; empty if one side has no CPU figure.
fn server_cpu(summary: &Summary, row: &Row) -> String {
    let of = |side: &str, metric: &str| {
        let is_it =
            |one: &&Row| one.suite == row.suite && one.cell == row.cell && one.side == side && one.metric == metric;
        summary.rows.iter().find(is_it)?.median
    };
    let both = |side: &str| Some(format!("{} ({})", short(of(side, SERVER_CPU.0)?), short(of(side, USER_CPU.0)?)));
    let Some((first, second)) = row.side.split_once(" / ") else { return String::new() };
    match (both(first), both(second)) {
        (Some(first), Some(second)) => format!("{first} / {second}"),
        _ => String::new(),
    }
}

fn short(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn repeat(summary: &Summary) -> String {
    summary.suites.iter().map(suite_line).collect::<Vec<_>>().join("\n")
}

fn suite_line(suite: &Suite) -> String {
    let known = |text: &str, value: &str| (!value.is_empty()).then(|| text.replace("{}", value));
    let facts = [
        known("{}", &format!("{}, {}", suite.fact("cpu"), suite.fact("machine"))),
        known("commit {}", suite.fact("commit")),
        known("durability {}", suite.fact("durability")),
        known("4 KiB and `fdatasync` take {} µs", suite.fact("fsync_us")),
        known("{}", suite.fact("length")),
        known("beside {}", suite.fact("rivals")),
    ];
    let command = known("`{}`", suite.fact("command")).unwrap_or_default();
    format!("- {command}: {}.", facts.into_iter().flatten().collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        let facts = |cpu: &str| vec![("cpu".to_owned(), cpu.to_owned()), ("command".to_owned(), "run".to_owned())];
        let suite = |name: &str, cpu| Suite { name: name.to_owned(), facts: facts(cpu) };
        let row = |suite: &str, side, metric, values: &[f64], aim: &str| Row {
            suite: suite.to_owned(),
            aim: aim.to_owned(),
            verdict: if aim.is_empty() { "" } else { "lost" }.to_owned(),
            ..Row::figure("cell", side, metric, values)
        };
        let rows = vec![
            row("p-amd", "a / b", ("title", "×"), &[1.5, 2.0, 3.0], "≤ 1 ×"),
            row("p-amd", "a", SERVER_CPU, &[10.0], ""),
            row("p-amd", "a", USER_CPU, &[4.0], ""),
            row("p-amd", "b", SERVER_CPU, &[5.0], ""),
            row("p-amd", "b", USER_CPU, &[0.5], ""),
            row("p-intel", "a", ("rate", "requests/s"), &[98_765.4], ""),
        ];
        Summary { suites: vec![suite("p-amd", "AMD EPYC"), suite("p-intel", "Intel(R) Xeon(R) Processor")], rows }
    }

    #[test]
    fn places_are_filled_and_unknown_ones_refused() {
        let page = |template| render(template, &summary());
        let text = page("{{aim cell | 1}} on {{cpu cell}}, {{side cell | a | rate @ intel}} on {{cpu cell @ intel}}");
        assert_eq!(text, Ok("2.00 on AMD EPYC, 98,800 on Intel Xeon".to_owned()));
        assert_eq!(page("{{met}} of {{aims}}; {{aim other | 1}}{{aim cell | 2}}"), Ok("0 of 1; ——".to_owned()));
        for template in ["{{what}}", "{{aim cell}}", "{{aim cell | x}}", "{{side cell | a}}", "{{table"] {
            assert!(page(template).is_err(), "{template}");
        }
    }

    #[test]
    fn lost_rows_and_the_cpu_of_both_sides_are_in_the_table() {
        let text = render("{{table}}", &summary()).unwrap();
        let row = "| title | ≤ 1 × | 2.000 × (1.500 to 3.000) | 10.0 (4.0) / 5.0 (0.5) | AMD EPYC | **lost** |";
        assert_eq!(text.lines().last(), Some(row));
        let mut missing = summary();
        let first = &mut missing.rows[0];
        (first.median, first.low, first.high, first.rounds) = (None, None, None, 0);
        first.verdict = "not measured: no | disk".to_owned();
        let text = render("{{table}}", &missing).unwrap();
        assert!(text.contains("| ≤ 1 × | not measured: no   disk | 10.0 (4.0) / 5.0 (0.5) | AMD EPYC | — |"), "{text}");
    }
}
