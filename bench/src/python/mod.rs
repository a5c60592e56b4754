//! Measures handlers in Python processes, beside the same handlers in the store, in Redis, and beside rivals
//! (`contests`); what a worker that does nothing costs, and how soon a new one answers (`idle`).
//!
//! Promises: those of the crate. The sides are started by `bench/rivals/python/start.sh`.

pub mod contests;
pub mod idle;
pub mod workload;

use crate::cells::Rounds;
use crate::contest::ContestResult;
use crate::server::Setup;

/// A comparison, ready to run.
pub type Measure = Box<dyn Fn(&Setup, &Rounds) -> ContestResult>;

/// All comparisons by their ids, in the order they are published.
#[must_use]
pub fn comparisons() -> Vec<(String, Measure)> {
    let mut all: Vec<(String, Measure)> = vec![(contests::OWN.to_owned(), Box::new(contests::own_entity))];
    for contest in contests::contests() {
        all.push((contest.id.clone(), Box::new(move |setup, rounds| contest.run(setup, rounds))));
    }
    all.push((idle::ID.to_owned(), Box::new(idle::measure)));
    all
}

/// The cells of a summary, in the order they are published.
#[must_use]
pub fn ids() -> Vec<String> {
    comparisons().into_iter().map(|(id, _)| id).collect()
}
