//! Many seeds, one after the other; and the trace of one.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::happened::Happened;
use crate::world::{Failure, Plan, Summary, World};

/// A seed that found something.
#[derive(Clone, Debug)]
pub struct Found {
    pub seed: u64,
    pub what: String,
}

/// What the seeds did, together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub seeds: u64,
    pub operations: usize,
    pub acknowledged: usize,
    pub judged: usize,
    pub restarts: usize,
    pub disk_operations: u64,
    pub happened: Happened,
    /// In how many runs each thing happened.
    pub runs_with: Happened,
}

impl fmt::Display for Totals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} seeds: {} operations, {} of them acknowledged, {} in histories judged sound, {} starts, {} disk operations",
            self.seeds, self.operations, self.acknowledged, self.judged, self.restarts, self.disk_operations
        )
    }
}

impl Totals {
    fn add(&mut self, summary: &Summary) {
        self.seeds += 1;
        self.operations += summary.operations;
        self.acknowledged += summary.acknowledged;
        self.judged += summary.judged;
        self.restarts += summary.restarts;
        self.disk_operations += summary.disk_operations;
        self.happened.add(&summary.happened);
        self.runs_with.add_run(&summary.happened);
    }
}

/// Runs a plan; a broken assertion anywhere in it is a failure like any other.
///
/// # Errors
/// What it found wrong.
pub fn run_one(plan: Plan) -> Result<Summary, Failure> {
    match catch_unwind(AssertUnwindSafe(|| World::run(plan))) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(Failure { what: format!("panic: {}", text.unwrap_or_default()), trace: Vec::new() })
        }
    }
}

/// Runs `count` seeds from `first` on, up to the first that fails.
pub fn run(first: u64, count: u64, plan: &dyn Fn(u64) -> Plan, totals: &mut Totals) -> Option<Found> {
    for seed in first..first + count {
        match run_one(plan(seed)) {
            Ok(summary) => totals.add(&summary),
            Err(failure) => {
                totals.seeds += 1;
                return Some(Found { seed, what: failure.what });
            }
        }
    }
    None
}

/// Runs a plan once more and returns what happened, line by line.
#[must_use]
pub fn trace(plan: Plan) -> String {
    let traced = crate::world::trace(Plan { is_traced: true, ..plan });
    traced.join("\n")
}
