//! Results as rows of a summary.

use millrace_loadgen::ServerUse;

use crate::cells::{CellResult, Measured};
use crate::contest::{ContestResult, Judgement};
use crate::extra::ExtraResult;
use crate::summary::{FSYNC, Row};

/// Server CPU time over all answers, in user code and in the kernel.
pub const SERVER_CPU: (&str, &str) = ("server_cpu", "µs/request");
/// The part of [`SERVER_CPU`] in user code. The kernel's part differs more between CPUs.
pub const USER_CPU: (&str, &str) = ("user_cpu", "µs/request");
/// Right replies.
pub const RATE: (&str, &str) = ("rate", "requests/s");

fn user_cpu(used: &ServerUse) -> f64 {
    used.cpu_us_per_request * used.user_us as f64 / (used.user_us + used.system_us).max(1) as f64
}

/// What each side did, in the order the sides first ran.
#[must_use]
pub fn of_sides(cell: &str, runs: &[Measured]) -> Vec<Row> {
    sides(runs).into_iter().flat_map(|side| of_side(cell, side, runs)).collect()
}

fn sides(runs: &[Measured]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        if !names.contains(&run.side.as_str()) {
            names.push(&run.side);
        }
    }
    names
}

fn of_side(cell: &str, side: &str, runs: &[Measured]) -> Vec<Row> {
    let of_side: Vec<&Measured> = runs.iter().filter(|run| run.side == side).collect();
    let figure = |name: (&str, &str), value: &dyn Fn(&Measured) -> f64| {
        Row::figure(cell, side, name, &of_side.iter().map(|run| value(run)).collect::<Vec<_>>())
    };
    let mut rows = vec![figure(RATE, &|run| run.report.rate)];
    if of_side.iter().all(|run| run.report.server.is_some()) {
        let mut server = |name, value: &dyn Fn(&ServerUse) -> f64| {
            rows.push(figure(name, &|run| run.report.server.as_ref().map_or(0.0, value)));
        };
        server(SERVER_CPU, &|used| used.cpu_us_per_request);
        server(USER_CPU, &user_cpu);
    }
    rows.push(figure(("p50", "µs"), &|run| run.report.latency.p50_us));
    rows.push(figure(("p99", "µs"), &|run| run.report.latency.p99_us));
    if of_side.iter().all(|run| run.report.rate_wanted.is_some()) {
        rows.push(figure(("offered", "requests/s"), &|run| run.report.rate_wanted.unwrap_or_default()));
        rows.push(figure(("answered 503", "requests/s"), &|run| run.report.shed as f64 / run.report.duration_s));
        rows.push(figure(("never sent", "requests"), &|run| run.report.unsent as f64));
    }
    rows.push(figure(FSYNC, &|run| run.fsync_us));
    rows
}

fn judged(row: Row, aim: &str, is_met: bool, problem: Option<&str>) -> Row {
    let verdict = match (problem, is_met) {
        (Some(why), _) => why.replace('\n', " "),
        (None, true) => "met".to_owned(),
        (None, false) => "lost".to_owned(),
    };
    Row { aim: aim.to_owned(), verdict, ..row }
}

/// A comparison of functions.
#[must_use]
pub fn of_cell(cell: &CellResult) -> Vec<Row> {
    let CellResult { id, title, aim, compared, ratios, is_met, problem, runs, .. } = cell;
    let row = Row::figure(id, compared, (title, "×"), if problem.is_none() { ratios } else { &[] });
    let mut rows = vec![judged(row, aim, *is_met, problem.as_deref())];
    rows.extend(of_sides(id, runs));
    rows
}

/// A figure without a rival.
#[must_use]
pub fn of_extra(extra: &ExtraResult) -> Row {
    let ExtraResult { id, title, aim, measured, value, unit, is_met, is_measured } = extra;
    let values: &[f64] = if *is_measured { &[*value] } else { &[] };
    let row = Row::figure(id, "", (title, unit), values);
    judged(row, aim, *is_met, (!is_measured).then_some(measured))
}

/// What came of an aim of `cell`.
#[must_use]
pub fn of_judgement(cell: &str, judgement: &Judgement) -> Row {
    let Judgement { title, aim, measured, unit, values, compared, is_met, is_measured } = judgement;
    let row = Row::figure(cell, compared, (title, unit), values);
    judged(row, aim, *is_met, (!is_measured).then_some(measured))
}

/// A contest: its aims, then its sides.
#[must_use]
pub fn of_contest(contest: &ContestResult) -> Vec<Row> {
    let ContestResult { id, judgements, runs, figures, .. } = contest;
    let mut rows: Vec<Row> = judgements.iter().map(|judgement| of_judgement(id, judgement)).collect();
    rows.extend(of_sides(id, runs));
    rows.extend(figures.iter().map(|figure| Row::figure(id, "", (&figure.name, &figure.unit), &figure.values)));
    rows
}
