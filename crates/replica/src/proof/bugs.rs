//! Bugs planted on purpose. Each of these is found by the search or by a random run.
//!
//! Not found yet within what a test may cost: [`Bug::CommitOldEpoch`], [`Bug::LeaseFromReceipt`],
//! [`Bug::PromiseWithinLease`], [`Bug::ServeBeforeStart`].

use super::model::found_by_search;
use super::simulation::found_by_run;
use crate::settings::Bug;

#[test]
fn random_runs_find_planted_bugs() {
    let bugs = [
        (Bug::ForgetPromise, 0),
        (Bug::AckBeforeDurable, 0),
        (Bug::IgnoreLacks, 0),
        (Bug::ServeDeposed, 0),
        (Bug::KeepOwnLog, 3),
        (Bug::TakePartIncomplete, 22),
        (Bug::AckUnmatched, 673),
    ];
    for (bug, seed) in bugs {
        assert!(found_by_run(bug, seed).is_some(), "{bug:?} is not found by the run of seed {seed}");
    }
}

#[test]
fn the_search_finds_a_late_confirmation() {
    let found = found_by_search(Bug::LateConfirmation, 50_000);
    assert!(found.is_some_and(|(_, _, what)| what.contains("answers a read")));
}
