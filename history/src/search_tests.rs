//! The search agrees with trying every order, on small histories of one register.

use proptest::prelude::*;

use crate::{Access, AnomalyKind, Found, History, register};

#[derive(Clone, Debug)]
struct Small {
    is_write: bool,
    value: i64,
    begin: u64,
    length: u64,
    is_unknown: bool,
}

fn small() -> impl Strategy<Value = Small> {
    (any::<bool>(), 0..3i64, 0..8u64, 0..5u64, prop::bool::weighted(0.2))
        .prop_map(|(is_write, value, begin, length, is_unknown)| Small { is_write, value, begin, length, is_unknown })
}

fn history_of(operations: &[Small]) -> History {
    let mut history = History::new();
    for (process, operation) in operations.iter().enumerate() {
        let step = if operation.is_write { Access::write("x", operation.value) } else { Access::read("x") };
        let id = history.invoke(process as u64, [step], operation.begin);
        let found = match (operation.is_write, operation.value) {
            (true, _) => Found::Done,
            (false, 0) => Found::Value(None),
            (false, value) => Found::value(value),
        };
        let end = operation.begin + operation.length;
        if operation.is_unknown { history.unknown(id, "lost", end) } else { history.ok(id, [found], end) }
    }
    history
}

/// Tries every order of every subset that keeps the acknowledged ones.
fn is_explained(operations: &[Small], is_done: &mut [bool], value: i64) -> bool {
    let left = |is_done: &[bool]| (0..operations.len()).filter(|&at| !is_done[at]).collect::<Vec<_>>();
    let open = left(is_done);
    if open.iter().all(|&at| operations[at].is_unknown) {
        return true;
    }
    for &at in &open {
        let operation = &operations[at];
        let waits = |&other: &usize| {
            let other = &operations[other];
            !other.is_unknown && other.begin + other.length < operation.begin
        };
        if open.iter().any(waits) {
            continue;
        }
        // Reads show the value 0 as "nothing" only at first, so a write of 0 is kept apart.
        let written = if operation.value == 0 { 100 } else { operation.value };
        let next = if operation.is_write { written } else { value };
        if !operation.is_write && !operation.is_unknown && operation.value != value {
            continue;
        }
        is_done[at] = true;
        let explained = is_explained(operations, is_done, next);
        is_done[at] = false;
        if explained {
            return true;
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn agrees_with_trying_everything(operations in prop::collection::vec(small(), 1..7)) {
        let expected = is_explained(&operations, &mut vec![false; operations.len()], 0);
        let found = register::check(&history_of(&operations));
        prop_assert_eq!(found.is_ok(), expected, "{:?}", found);
    }
}

#[test]
fn running_out_of_work_is_no_pass() {
    let mut history = History::new();
    for process in 0..20 {
        let id = history.invoke(process, [Access::write("x", process as i64 % 2)], 0);
        history.ok(id, [Found::Done], 100);
    }
    let anomaly = register::check_within(&history, 5).expect_err("too little work");
    assert_eq!(anomaly.kind, AnomalyKind::Undecided);
    assert!(anomaly.to_string().contains("gave up after 5 steps"), "{anomaly}");
    assert_eq!(register::check(&history), Ok(()));
}
