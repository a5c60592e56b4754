//! Does a worker keep the worker protocol? A list of cases against one that runs, and that serves the check handlers of
//! `docs/internals/worker-protocol.md`.
//!
//! Read in this order:
//!
//! 1. `transport`: requests.
//! 2. `bench`: signed requests, and what the worker says of itself.
//! 3. `scene`: one handler, from START to its end, as a server drives it.
//! 4. `cases`.
//!
//! Promises: a run ends, whatever the worker answers: each request has a time limit, each reply a size limit, and each
//! scene a number of turns. A worker's frames are read by the decoder that the server has. Must not know shards.

mod bench;
mod cases;
mod scene;
#[cfg(test)]
mod tests;
mod transport;

use std::time::{Duration, Instant};

pub use bench::Bench;
pub use millrace_workers::Signer;
pub use transport::{Ask, HttpTransport, Reply, Talk, Transport};

/// One thing that a worker has to do.
pub struct Case {
    /// Its group and its name, such as `frames/nothing`.
    pub name: &'static str,
    /// What a worker has to do.
    pub expected: &'static str,
    run: fn(&Bench<'_>) -> Result<(), String>,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The worker did as expected.
    Passed,
    /// It did this instead.
    Failed(String),
    /// Why the case says nothing of this worker.
    Skipped(&'static str),
}

/// A case, what became of it, and the time it took.
pub struct Outcome {
    /// Which.
    pub case: &'static Case,
    /// What became of it.
    pub verdict: Verdict,
    /// How long it took.
    pub took: Duration,
}

/// All cases, in the order in which they run.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    cases::GROUPS.iter().flat_map(|group| group.iter())
}

/// Runs the cases whose names begin with `prefix`.
#[must_use]
pub fn run(bench: &Bench<'_>, prefix: &str) -> Vec<Outcome> {
    let chosen = cases().filter(|case| case.name.starts_with(prefix));
    chosen.map(|case| outcome_of(bench, case)).collect()
}

fn outcome_of(bench: &Bench<'_>, case: &'static Case) -> Outcome {
    let started = Instant::now();
    let verdict = if case.name.starts_with(cases::SIGNED) && bench.signer().is_none() {
        Verdict::Skipped("neither a secret nor --ed25519 is given")
    } else if case.name.starts_with(cases::ON_STREAMS) && !bench.has_streams() {
        Verdict::Skipped("the worker does not take the mode stream at this URL")
    } else if cases::OF_VERSION_2.contains(&case.name) && bench.version() < 2 {
        Verdict::Skipped("the worker does not speak version 2 of the protocol")
    } else if case.name.starts_with(cases::OBJECTS.0) && bench.version() < cases::OBJECTS.1 {
        Verdict::Skipped("the worker does not speak version 4 of the protocol")
    } else {
        (case.run)(bench).map_or_else(Verdict::Failed, |()| Verdict::Passed)
    };
    Outcome { case, verdict, took: started.elapsed() }
}
