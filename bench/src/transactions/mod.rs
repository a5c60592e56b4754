//! Measures transactions: beside each other and beside rivals (`contests`), under overload (`hot`), as workflows
//! (`workflow`), and as latency against throughput in all configurations (`matrix`).
//!
//! Promises: those of the crate. After each run the state is audited, and a run that lost or doubled anything has no
//! figure.

pub mod contests;
pub mod hot;
pub mod matrix;
pub mod workflow;
pub mod workload;

use crate::cells::Rounds;
use crate::contest::ContestResult;
use crate::server::Setup;

/// A comparison, ready to run.
pub type Measure = Box<dyn Fn(&Setup, &Rounds) -> ContestResult>;

/// All comparisons by their ids, in the order they are published.
#[must_use]
pub fn comparisons() -> Vec<(String, Measure)> {
    let mut all: Vec<(String, Measure)> = Vec::new();
    for contest in contests::contests() {
        all.push((contest.id.clone(), Box::new(move |setup, rounds| contest.run(setup, rounds))));
    }
    // Behind the comparisons of shards and cores, before the rivals.
    all.insert(3, (hot::ID.to_owned(), Box::new(hot::measure)));
    all.insert(5, (workflow::ID.to_owned(), Box::new(workflow::measure)));
    all
}

/// The cells of a summary, in the order they are published.
#[must_use]
pub fn ids() -> Vec<String> {
    let matrix = matrix::APPS.iter().map(|app| matrix::id(workload::Workload::new(*app, false).folder()));
    comparisons().into_iter().map(|(id, _)| id).chain(matrix).collect()
}
