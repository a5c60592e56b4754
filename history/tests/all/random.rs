//! A serial execution is accepted, however its operations overlap. With one mutation planted it is rejected.

use crate::common::{Plan, Rng, Workload, generate};
use millrace_history::{Access, AnomalyKind, Found, History, Operation, Outcome, Value, verdict};
use proptest::prelude::*;

const WORKLOADS: [Workload; 6] = [
    Workload::Lists,
    Workload::Registers,
    Workload::RegisterTransactions,
    Workload::Bank,
    Workload::BankReplies,
    Workload::Counters,
];

fn plan(workload: Workload) -> impl Strategy<Value = Plan> {
    (1..200usize, 1..6u64, 0..12u64, 0..20u64, 0..10u64, prop_oneof![Just(0u64), 5..50u64]).prop_map(
        move |(operations, keys, concurrency, failed_percent, unknown_percent, rotate)| Plan {
            workload,
            operations,
            keys,
            concurrency,
            failed_percent,
            unknown_percent,
            rotate,
        },
    )
}

/// Places where a mutation may be planted: an operation and a step.
type MutationPoint = (usize, usize);

fn lists_read(history: &History) -> Vec<(MutationPoint, String, Vec<Value>)> {
    let mut reads = Vec::new();
    for operation in &history.operations {
        for (at, (step, found)) in operation.results().enumerate() {
            if let (Access::ReadList(key), Some(Found::List(list))) = (step, found) {
                reads.push(((operation.id, at), key.clone(), list.clone()));
            }
        }
    }
    reads
}

fn put(history: &mut History, (id, at): MutationPoint, found: Found) {
    if let Outcome::Ok(all) = &mut history.operations[id].outcome {
        all[at] = found;
    }
}

fn appender<'h>(history: &'h History, key: &str, value: &Value) -> &'h Operation {
    let is_it = |step: &Access| matches!(step, Access::Append(name, other) if name == key && other == value);
    history.operations.iter().find(|operation| operation.steps.iter().any(is_it)).expect("somebody appended it")
}

fn is_before(first: &Operation, second: &Operation) -> bool {
    first.effect_by().is_some_and(|end| end < second.begin)
}

/// One element is missing from the end of a read that began after the append was acknowledged.
fn plant_stale_read(history: &mut History, rng: &mut Rng) -> bool {
    let mut candidates = lists_read(history);
    candidates.retain(|((id, _), key, list)| {
        list.last().is_some_and(|last| is_before(appender(history, key, last), &history.operations[*id]))
    });
    if candidates.is_empty() {
        return false;
    }
    let (place, _, mut list) = candidates.swap_remove(rng.below(candidates.len() as u64) as usize);
    list.pop();
    put(history, place, Found::List(list));
    true
}

/// An acknowledged append is in no read, though one began later.
fn plant_lost_append(history: &mut History, rng: &mut Rng) -> bool {
    let reads = lists_read(history);
    let mut candidates = Vec::new();
    for ((id, _), key, list) in &reads {
        let reader = &history.operations[*id];
        candidates.extend(
            list.iter().filter(|value| is_before(appender(history, key, value), reader)).map(|value| (key, value)),
        );
    }
    if candidates.is_empty() {
        return false;
    }
    let (key, value) = candidates[rng.below(candidates.len() as u64) as usize];
    for (place, name, list) in reads.iter().filter(|(_, name, _)| name == key) {
        let _ = name;
        put(history, *place, Found::List(list.iter().filter(|other| *other != value).cloned().collect()));
    }
    true
}

/// Two elements change places in one read, though another read, or time, says otherwise.
fn plant_swapped_order(history: &mut History, rng: &mut Rng) -> bool {
    let reads = lists_read(history);
    let mut candidates = Vec::new();
    for (place, key, list) in &reads {
        for (at, pair) in list.windows(2).enumerate() {
            let is_in_time = is_before(appender(history, key, &pair[0]), appender(history, key, &pair[1]));
            let is_seen = reads.iter().any(|(other, name, list)| other != place && name == key && list.len() > at + 1);
            if is_in_time || is_seen {
                candidates.push((*place, list, at));
            }
        }
    }
    if candidates.is_empty() {
        return false;
    }
    let (place, list, at) = candidates[rng.below(candidates.len() as u64) as usize];
    let mut list = list.clone();
    list.swap(at, at + 1);
    put(history, place, Found::List(list));
    true
}

/// A read sees a value that a failed operation appended.
fn plant_dirty_read(history: &mut History, rng: &mut Rng) -> bool {
    let reads = lists_read(history);
    let mut candidates = Vec::new();
    for operation in history.operations.iter().filter(|operation| operation.is_failed()) {
        for step in &operation.steps {
            if let Access::Append(key, value) = step {
                candidates.extend(reads.iter().filter(|(_, name, _)| name == key).map(|read| (read, value.clone())));
            }
        }
    }
    if candidates.is_empty() {
        return false;
    }
    let ((place, _, list), value) = candidates.swap_remove(rng.below(candidates.len() as u64) as usize);
    let mut list = list.clone();
    list.insert(rng.below(list.len() as u64 + 1) as usize, value);
    put(history, *place, Found::List(list));
    true
}

/// An append took effect twice.
fn plant_duplicate(history: &mut History, rng: &mut Rng) -> bool {
    let mut candidates = lists_read(history);
    candidates.retain(|(_, _, list)| !list.is_empty());
    if candidates.is_empty() {
        return false;
    }
    let (place, _, mut list) = candidates.swap_remove(rng.below(candidates.len() as u64) as usize);
    let again = list[rng.below(list.len() as u64) as usize].clone();
    list.push(again);
    put(history, place, Found::List(list));
    true
}

/// A read of a register finds a value that was overwritten before the read began.
fn plant_stale_register(history: &mut History, rng: &mut Rng) -> bool {
    let mut candidates = Vec::new();
    for reader in &history.operations {
        for (at, (step, found)) in reader.results().enumerate() {
            let (Access::Read(key), Some(Found::Value(Some(_)))) = (step, found) else {
                continue;
            };
            let writes = |operation: &Operation| {
                operation.steps.iter().any(|step| matches!(step, Access::Write(name, _) if name == key))
            };
            let writers: Vec<&Operation> = history
                .operations
                .iter()
                .filter(|operation| writes(operation) && is_before(operation, reader))
                .collect();
            for old in &writers {
                if writers.iter().any(|new| is_before(old, new)) {
                    let value = old.steps.iter().rev().find_map(|step| match step {
                        Access::Write(name, value) if name == key => Some(value.clone()),
                        _ => None,
                    });
                    candidates.push(((reader.id, at), Found::Value(value)));
                }
            }
        }
    }
    if candidates.is_empty() {
        return false;
    }
    let (place, found) = candidates.swap_remove(rng.below(candidates.len() as u64) as usize);
    put(history, place, found);
    true
}

/// A reading of the bank has a coin in the wrong account.
fn plant_moved_coin(history: &mut History, rng: &mut Rng) -> bool {
    // If there are unknown transfers, one of them may explain a wrong reading.
    if history.operations.iter().any(Operation::is_unknown) {
        return false;
    }
    let reads = history.operations.iter().filter(|operation| {
        let is_alone = |other: &&Operation| {
            other.id == operation.id
                || !other.steps.iter().any(|step| matches!(step, Access::Transfer { .. }))
                || !other.is_ok()
                || is_before(other, operation)
                || is_before(operation, other)
        };
        operation.steps == [Access::Balances]
            && operation.is_ok()
            && history.operations.iter().all(|other| is_alone(&other))
    });
    let reads: Vec<usize> = reads.map(|operation| operation.id).collect();
    if reads.is_empty() {
        return false;
    }
    let id = reads[rng.below(reads.len() as u64) as usize];
    let Outcome::Ok(found) = &mut history.operations[id].outcome else {
        return false;
    };
    let Found::Balances(balances) = &mut found[0] else {
        return false;
    };
    let Some(rich) = balances.iter().find(|(_, balance)| **balance > 0).map(|(key, _)| key.clone()) else {
        return false;
    };
    let other = balances.keys().find(|key| **key != rich).cloned().expect("two accounts");
    *balances.get_mut(&rich).expect("it is there") -= 1;
    *balances.get_mut(&other).expect("it is there") += 1;
    true
}

/// A retried increment counts twice: every later reply is one more.
fn plant_double_increment(history: &mut History, rng: &mut Rng) -> bool {
    if history.operations.iter().any(Operation::is_unknown) {
        return false;
    }
    let mut candidates = Vec::new();
    for operation in &history.operations {
        for (step, found) in operation.results() {
            if let (Access::Increment(key), Some(Found::Number(before))) = (step, found) {
                candidates.push((key.clone(), *before));
            }
        }
    }
    if candidates.is_empty() {
        return false;
    }
    let (key, from) = candidates.swap_remove(rng.below(candidates.len() as u64) as usize);
    for operation in &mut history.operations {
        let Outcome::Ok(found) = &mut operation.outcome else { continue };
        for (step, found) in operation.steps.iter().zip(found) {
            match (step, found) {
                (Access::Increment(name), Found::Number(before)) if *name == key && *before > from => *before += 1,
                (Access::Count(name), Found::Number(count)) if *name == key && *count > from => *count += 1,
                _ => {}
            }
        }
    }
    for fact in &mut history.facts {
        if let millrace_history::Fact::Counters(counters) = fact {
            *counters.entry(key.clone()).or_default() += 1;
        }
    }
    true
}

type Plant = fn(&mut History, &mut Rng) -> bool;

const PLANTS: [(Workload, &str, Plant); 8] = [
    (Workload::Lists, "stale read", plant_stale_read),
    (Workload::Lists, "lost append", plant_lost_append),
    (Workload::Lists, "swapped order", plant_swapped_order),
    (Workload::Lists, "dirty read", plant_dirty_read),
    (Workload::Lists, "duplicate", plant_duplicate),
    (Workload::Registers, "stale register", plant_stale_register),
    (Workload::Bank, "moved coin", plant_moved_coin),
    (Workload::Counters, "double increment", plant_double_increment),
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn serial_executions_are_accepted(
        plan in prop::sample::select(WORKLOADS.to_vec()).prop_flat_map(plan),
        seed in any::<u64>(),
    ) {
        let verdict = verdict(&generate(&plan, seed));
        // A bank may be too much work, and then says so. No other checker may.
        let is_hard = matches!(plan.workload, Workload::Bank | Workload::BankReplies);
        let is_undecided = verdict.anomaly().is_some_and(|anomaly| anomaly.kind == AnomalyKind::Undecided);
        prop_assert!(verdict.is_sound() || (is_hard && is_undecided), "{plan:?}: {verdict}");
    }

    #[test]
    fn kept_histories_are_read_back(
        plan in prop::sample::select(WORKLOADS.to_vec()).prop_flat_map(plan),
        seed in any::<u64>(),
    ) {
        let history = generate(&plan, seed);
        let mut lines = Vec::new();
        history.write_lines(&mut lines).expect("memory takes it");
        prop_assert_eq!(History::read_lines(lines.as_slice()).expect("it is one"), history);
    }
}

#[test]
fn planted_mutations_are_rejected() {
    for (workload, name, plant) in PLANTS {
        let mut planted = 0;
        for seed in 0..600 {
            let mut rng = Rng(seed);
            let is_quiet = matches!(workload, Workload::Bank | Workload::Counters);
            let plan = Plan {
                workload,
                operations: 20 + rng.below(150) as usize,
                keys: 1 + rng.below(5),
                concurrency: rng.below(9),
                failed_percent: 10,
                unknown_percent: if is_quiet { 0 } else { rng.below(10) },
                rotate: 0,
            };
            let mut history = generate(&plan, seed);
            if !plant(&mut history, &mut rng) {
                continue;
            }
            planted += 1;
            let verdict = verdict(&history);
            let anomaly = verdict.anomaly().unwrap_or_else(|| panic!("seed {seed}: {name} passes"));
            assert_ne!(anomaly.kind, AnomalyKind::Undecided, "seed {seed}: {name}: {anomaly}");
            assert_ne!(anomaly.kind, AnomalyKind::Malformed, "seed {seed}: {name}: {anomaly}");
        }
        assert!(planted > 100, "{name} was planted only {planted} times");
    }
}
