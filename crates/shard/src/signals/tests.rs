//! Signals alone: taken by name, in their order, and not too many.

use super::*;
use crate::testing::{Bench, sequence};

fn add(signals: &Signals, bench: &mut Bench, id: Sequence, name: &str, payload: &'static str) {
    let write = signals.write(id, name.to_owned(), Bytes::from_static(payload.as_bytes()), &bench.rows);
    bench.context().append(vec![write]);
}

#[test]
fn the_first_of_a_name_is_taken_and_what_is_left_goes_with_the_workflow() {
    let (signals, mut bench) = (Signals::new(), Bench::new(1));
    let (id, other) = (sequence(1, 0), sequence(1, 1));
    for (name, payload) in [("go", "1"), ("stop", "2"), ("go", "3")] {
        add(&signals, &mut bench, id, name, payload);
    }
    add(&signals, &mut bench, other, "go", "4");
    for expected in ["1", "3"] {
        let (payload, taken) = signals.first(id, "go", &mut bench.rows).expect("one waits");
        assert_eq!(payload, expected);
        bench.context().append(vec![taken]);
    }
    assert!(signals.first(id, "go", &mut bench.rows).is_none());
    let writes: Vec<Write> = signals.deletions(id, &mut bench.rows).collect();
    assert_eq!(writes.len(), 1);
    bench.context().append(writes);
    assert!(signals.first(id, "stop", &mut bench.rows).is_none());
    assert!(signals.first(other, "go", &mut bench.rows).is_some());
}

#[test]
fn so_many_wait_for_one_workflow() {
    let (signals, mut bench) = (Signals::new(), Bench::new(1));
    let id = sequence(1, 0);
    for _ in 0..limits::SIGNALS_PER_WORKFLOW {
        assert!(!signals.is_full(id, &mut bench.rows).expect("it is read"));
        add(&signals, &mut bench, id, "go", "1");
    }
    assert!(signals.is_full(id, &mut bench.rows).expect("it is read"));
    assert!(!signals.is_full(sequence(2, 0), &mut bench.rows).expect("it is read"));
}
