//! A hundred thousand operations are judged in seconds, sound or not.
//!
//! The limits are generous, because the machines that run tests share their cores.

use std::time::{Duration, Instant};

use crate::common::{Plan, Workload, generate};
use millrace_history::{Found, History, Outcome, verdict};

const LIMIT: Duration = Duration::from_secs(5);

fn plan(workload: Workload, concurrency: u64) -> Plan {
    let keys = if workload == Workload::RegisterTransactions { 4 } else { 10 };
    Plan { workload, operations: 100_000, keys, concurrency, failed_percent: 5, unknown_percent: 0, rotate: 1_000 }
}

fn judged(history: &History, name: &str) -> bool {
    let begin = Instant::now();
    let verdict = verdict(history);
    let elapsed = begin.elapsed();
    println!("{name}: {elapsed:.2?}: {}", verdict.to_string().chars().take(300).collect::<String>());
    assert!(elapsed < LIMIT, "{name} took {elapsed:?}");
    verdict.is_sound()
}

#[test]
fn sound_histories() {
    for (workload, concurrency, unknown_percent) in [
        (Workload::Lists, 10, 0),
        (Workload::Lists, 64, 2),
        (Workload::Lists, 1_024, 2),
        (Workload::Registers, 64, 2),
        (Workload::RegisterTransactions, 64, 2),
        (Workload::Counters, 64, 2),
        (Workload::Bank, 10, 0),
        (Workload::Bank, 20, 0),
        (Workload::BankReplies, 10, 0),
    ] {
        let plan = Plan { unknown_percent, ..plan(workload, concurrency) };
        let name = format!("{workload:?}, {concurrency} at once, {unknown_percent} % unknown");
        assert!(judged(&generate(&plan, 1), &name), "{name}");
    }
}

#[test]
fn one_stale_read_in_the_middle() {
    let mut history = generate(&plan(Workload::Lists, 64), 1);
    let mut is_planted = false;
    for operation in &mut history.operations[60_000..] {
        if let Outcome::Ok(found) = &mut operation.outcome
            && let [Found::List(list)] = found.as_mut_slice()
            && list.len() > 60
        {
            // Sixty elements ago is long ago.
            list.truncate(list.len() - 60);
            is_planted = true;
            break;
        }
    }
    assert!(is_planted);
    assert!(!judged(&history, "a stale read"));
}

#[test]
fn every_read_a_little_stale() {
    let mut history = generate(&plan(Workload::Lists, 64), 1);
    for operation in &mut history.operations {
        if let Outcome::Ok(found) = &mut operation.outcome
            && let [Found::List(list)] = found.as_mut_slice()
        {
            list.truncate(list.len().saturating_sub(8));
        }
    }
    assert!(!judged(&history, "stale reads everywhere"));
}
