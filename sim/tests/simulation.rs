//! The whole node under faults: seeds find nothing, every bug planted on purpose is found, and
//! a crash at each single operation of the disk loses nothing.

use millrace_sim::bugs::PlantedBug;
use millrace_sim::runner::{self, Totals};
use millrace_sim::world::{Plan, trace};

/// Seeds of one test run, less than a minute on one core; `cargo run --release -p millrace-sim -- --seeds N`
/// runs more.
const SEEDS: u64 = 10_000;

/// Seeds within which each planted bug must be found; those that clients can notice, also by what clients saw.
const SEEDS_FOR_A_BUG: u64 = 500;

/// Bugs that clients can notice, without anybody looking at the state.
const NOTICED_BY_CLIENTS: [PlantedBug; 8] = [
    PlantedBug::ReplyBeforeDurable,
    PlantedBug::DropOutcome,
    PlantedBug::DedupAfterEffect,
    PlantedBug::ForgetDecision,
    PlantedBug::ForgetPrepared,
    PlantedBug::ReleaseBeforeDurable,
    PlantedBug::ConfirmUnappliedCommit,
    PlantedBug::AbortInDoubt,
];

#[test]
fn no_seed_breaks_a_promise() {
    let mut totals = Totals::default();
    let found = runner::run(1, SEEDS, &Plan::new, &mut totals);
    assert!(found.is_none(), "{found:?}");
    // A simulator in which nothing happens finds nothing.
    println!("{totals}");
    assert!(totals.acknowledged as u64 > 20 * SEEDS && totals.restarts as u64 > 2 * SEEDS, "{totals}");
    assert!(totals.judged as u64 > 20 * SEEDS, "{totals}");
}

#[test]
fn every_planted_bug_is_found() {
    // The broken assertions that some bugs lead to are found as well; their messages are noise.
    std::panic::set_hook(Box::new(|_| {}));
    let is_missed = |bug: &&PlantedBug| {
        let plan = |seed| Plan { bug: Some(**bug), ..Plan::new(seed) };
        runner::run(1, SEEDS_FOR_A_BUG, &plan, &mut Totals::default()).is_none()
    };
    let missed: Vec<&str> = PlantedBug::ALL.iter().filter(is_missed).map(|bug| bug.name()).collect();
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn what_clients_saw_gives_bugs_away_by_itself() {
    std::panic::set_hook(Box::new(|_| {}));
    let is_noticed = |bug: PlantedBug, seed| {
        let plan = Plan { bug: Some(bug), is_black_box: true, ..Plan::new(seed) };
        runner::run_one(plan).is_err_and(|failure| failure.what.starts_with("what clients saw"))
    };
    let first = |bug: &PlantedBug| (1..=SEEDS_FOR_A_BUG).find(|seed| is_noticed(*bug, *seed));
    let found: Vec<_> = NOTICED_BY_CLIENTS.iter().map(|bug| (bug.name(), first(bug))).collect();
    let _ = std::panic::take_hook();
    println!("first seed of each: {found:?}");
    assert!(found.iter().all(|(_, seed)| seed.is_some()), "not found: {found:?}");
}

#[test]
fn a_crash_at_every_operation_of_the_disk_loses_nothing() {
    for seed in 1..4 {
        let plan = |crash_at| Plan { steps: 60, crash_at, ..Plan::new(seed) };
        let whole = runner::run_one(plan(Some(u64::MAX))).expect("without a crash");
        assert!(whole.disk_operations > 50, "{whole:?}");
        for operation in 1..=whole.disk_operations {
            if let Err(failure) = runner::run_one(plan(Some(operation))) {
                panic!("seed {seed}, crash at operation {operation}: {}", failure.what);
            }
        }
    }
}

#[test]
fn a_seed_replays_exactly() {
    for seed in [7, 77, 777] {
        let first = trace(Plan::new(seed));
        assert!(first.len() > 100);
        assert_eq!(first, trace(Plan::new(seed)));
    }
}
