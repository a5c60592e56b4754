//! Bugs planted on purpose. Each of these is found by the search or by a random run.
//!
//! Simulated clusters find [`Bug::LeaseFromReceipt`], [`Bug::LeadAlone`] and [`Bug::WaitForAll`] (`sim/tests/cluster.rs`). The search
//! of leases finds the first of these after 1.2 million states if time passes three times. Nothing finds
//! [`Bug::CommitOldEpoch`] yet within what a test may cost.

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
        (Bug::TakePartIncomplete, 45),
        (Bug::AckUnmatched, 1683),
    ];
    for (bug, seed) in bugs {
        assert!(found_by_run(bug, seed).is_some(), "{bug:?} is not found by the run of seed {seed}");
    }
}

#[test]
fn the_search_finds_planted_bugs() {
    let bugs = [
        (Bug::LateConfirmation, "takeover, reads confirmed by rounds", "answers a read"),
        (Bug::PromiseWithinLease, "takeover, leases", "answers a read"),
        (Bug::ServeBeforeStart, "one epoch after the other", "serves without the committed"),
    ];
    for (bug, scenario, what) in bugs {
        let found = found_by_search(bug, scenario, 400_000);
        assert!(found.as_ref().is_some_and(|found| found.contains(what)), "{bug:?}: {found:?}");
    }
}
