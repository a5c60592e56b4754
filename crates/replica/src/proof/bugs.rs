//! Bugs planted on purpose. Each is found by the search or by a random run.

use super::model::found_by_search;
use super::simulation::found_by_run;
use crate::settings::Bug;

#[test]
#[ignore = "explores"]
fn explore() {
    for bug in [Bug::CommitOldEpoch, Bug::LeaseFromReceipt, Bug::ServeBeforeStart, Bug::PromiseWithinLease] {
        let began = std::time::Instant::now();
        println!("{bug:?} {:?} {:?}", found_by_search(bug, 5_000_000), began.elapsed());
    }
}
