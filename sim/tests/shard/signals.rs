//! Each signal that was accepted is taken once, in order, whenever it comes.

use crate::*;

/// Takes signals of one name, and notes each on an entity.
fn taker(count: usize) -> Script {
    (0..count).fold(s(), |script, _| script.wait("go", None).call(run("counter", "taken", s().add("n", 1))))
}

#[test]
fn signals_are_taken_in_order_however_early_they_come() {
    let mut rig = Rig::new(1);
    let id = rig.flow("a", s().sleep(1_000).wait("other", None).wait("go", None).wait("go", None));
    for (name, payload) in [("go", "1"), ("go", "2"), ("other", "3")] {
        let token = rig.signal(id, name, payload, None);
        assert!(rig.reply(token).is_none(), "not before it is durable");
        rig.make_durable();
        assert!(matches!(rig.reply(token), Some(Ok(_))));
    }
    rig.crash();
    rig.tick(1_000);
    assert_eq!(rig.output(id), json!(2));
    let results: Vec<_> = rig.noted(id).into_iter().map(|row| row.3.expect("all well")).collect();
    assert_eq!(results, ["null", "3", "1", "2"]);
    rig.assert_no_leftovers();
}

#[test]
fn a_signal_under_a_key_counts_once() {
    let mut rig = Rig::new(1);
    let id = rig.flow("a", taker(2));
    for _ in 0..3 {
        rig.signal(id, "go", "1", Some("k"));
        rig.make_durable();
    }
    assert_eq!(rig.field("counter", "taken", "n"), json!(1));
    let other = rig.signal(id, "go", "2", Some("k"));
    rig.make_durable();
    assert_eq!(rig.error(other), ErrorCode::IdempotencyMismatch);
    rig.signal(id, "go", "1", None);
    rig.make_durable();
    assert_eq!(rig.field("counter", "taken", "n"), json!(2));
}

#[test]
fn a_route_that_only_signals_shares_the_keys_of_the_workflow() {
    for shards in [1, 2] {
        let mut rig = Rig::new(shards);
        let id = rig.flow("a", taker(3));
        let script = s().signal(Some(&id.to_string()), "go", Json::Null);
        let first = rig.route(script.clone(), Some("k"));
        rig.run_to_rest();
        let signalled = rig.signal(id, "go", "null", Some("k"));
        let again = rig.route(script, Some("k"));
        rig.run_to_rest();
        assert_eq!(rig.error(signalled), ErrorCode::IdempotencyMismatch);
        assert_eq!(rig.reply(again), rig.reply(first));
        assert_eq!(rig.field("counter", "taken", "n"), json!(1));
    }
}

#[test]
fn a_signal_to_what_has_ended_and_to_the_unknown_is_refused() {
    let mut rig = Rig::new(1);
    let id = rig.flow("a", s().returns(1));
    let late = rig.signal(id, "go", "1", None);
    assert_eq!(rig.error(late), ErrorCode::WorkflowEnded);
    let unknown = InvocationId { sequence: millrace_shard::Sequence { lsn: millrace_base::Lsn(999), index: 0 }, ..id };
    let token = rig.signal(unknown, "go", "1", None);
    assert_eq!(rig.error(token), ErrorCode::UnknownInvocation);
    rig.assert_no_leftovers();
}

#[test]
fn that_a_workflow_has_ended_is_not_told_before_it_is_durable() {
    let mut rig = Rig::new(1);
    let id = rig.flow("a", s().wait("go", None));
    rig.signal(id, "go", "1", None);
    rig.run_due();
    let late = rig.signal(id, "go", "2", None);
    assert!(rig.reply(late).is_none(), "the end may be undone, and the signal with it");
}

#[test]
fn a_signal_right_after_a_start_is_not_lost() {
    // More workflows than are taken up in one input.
    let mut rig = Rig::new(1);
    let ids: Vec<_> = (0..200).map(|_| rig.flow("a", taker(1))).collect();
    rig.is_unstarted = true;
    rig.crash();
    for id in &ids {
        let token = rig.signal(*id, "go", "1", None);
        assert!(!matches!(rig.reply(token), Some(Err(_))));
    }
    rig.make_durable();
    for _ in 0..3 {
        rig.tick(1_000);
        rig.make_durable();
    }
    assert_eq!(rig.field("counter", "taken", "n"), json!(200));
    rig.assert_no_leftovers();
}

#[test]
fn a_signal_and_a_timeout_in_the_same_instant_give_one_of_them() {
    for is_signal_first in [false, true] {
        let mut rig = Rig::new(1);
        let id = rig.flow("a", s().try_wait("go", 1_000).try_wait("go", 1_000));
        if is_signal_first {
            rig.core.now = rig.core.now.plus(1_000);
            rig.signal(id, "go", "7", None);
            rig.tick(0);
        } else {
            rig.tick(1_000);
            rig.signal(id, "go", "7", None);
        }
        rig.make_durable();
        rig.tick(1_000);
        let results: Vec<bool> = rig.noted(id).into_iter().map(|row| row.3.is_ok()).collect();
        assert_eq!(results, [is_signal_first, !is_signal_first], "the signal is taken once, by the one or the other");
        rig.assert_no_leftovers();
    }
}

#[test]
fn parallel_waits_of_one_name_take_one_signal_each() {
    let mut rig = Rig::new(1);
    let id = rig.flow("a", s().both(s().wait("go", None).wait("go", None).wait("no", None)));
    for payload in ["1", "2"] {
        rig.signal(id, "go", payload, None);
    }
    rig.signal(id, "no", "3", None);
    rig.make_durable();
    assert_eq!(rig.output(id), json!([1, 2, 3]));
    rig.assert_no_leftovers();
}

#[test]
fn transactions_and_workflows_signal_exactly_once_and_only_if_they_commit() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let id = rig.flow(&there, taker(5));
    let text = id.to_string();
    let signal = |payload: i64| s().signal(Some(&text), "go", payload);
    rig.run("note", &here, signal(1).signal(Some(&text), "go", 2));
    rig.run("note", &here, signal(8).fail("no"));
    rig.flow(&here, signal(3).signal(Some(&text), "go", 4));
    for _ in 0..3 {
        rig.run_to_rest();
        rig.crash();
        rig.tick(1_000);
    }
    rig.run_to_rest();
    let taken: Vec<_> = rig.noted(id).into_iter().filter(|row| row.0 == StepKind::Wait).map(|row| row.3).collect();
    assert_eq!(taken, ["1", "2", "3", "4"].map(|payload| Ok(payload.into())));
    assert_eq!(rig.bookkeeping_rows("dead"), 0);
}

#[test]
fn a_message_with_a_signal_for_nobody_ends_in_the_dead_letters() {
    let mut rig = Rig::new(1);
    let known = rig.flow("a", s().returns(1));
    let unknown =
        InvocationId { sequence: millrace_shard::Sequence { lsn: millrace_base::Lsn(999), index: 0 }, ..known };
    rig.run("note", "b", s().signal(Some(&unknown.to_string()), "go", 1).signal(Some(&known.to_string()), "go", 1));
    rig.tick(0);
    // Whoever has an id that its workflow's shard chose has it from a workflow that was there.
    assert_eq!((rig.bookkeeping_rows("dead"), rig.bookkeeping_rows("inbox")), (1, 0));
    let drawn = millrace_base::Lsn(1 << 63 | 999);
    let unknown = InvocationId { sequence: millrace_shard::Sequence { lsn: drawn, index: 0 }, ..known };
    rig.run("note", "b", s().signal(Some(&unknown.to_string()), "go", 1));
    rig.tick(0);
    assert_eq!((rig.bookkeeping_rows("dead"), rig.bookkeeping_rows("inbox")), (1, 1), "what starts it may come yet");
    for _ in 0..20 {
        rig.tick(60_000 - 1);
    }
    assert_eq!((rig.bookkeeping_rows("dead"), rig.bookkeeping_rows("inbox")), (2, 0));
}

#[test]
fn no_more_signals_wait_than_a_workflow_may_have() {
    let mut rig = Rig::new(1);
    let id = rig.flow("a", s().sleep(3_600_000).wait("last", None));
    for _ in 0..999 {
        rig.signal(id, "other", "1", None);
    }
    rig.signal(id, "last", "2", None);
    let refused = rig.signal(id, "other", "1", None);
    assert_eq!(rig.error(refused), ErrorCode::Overloaded);
    let text = id.to_string();
    rig.run("note", "b", (0..900).fold(s(), |script, _| script.signal(Some(&text), "other", 1)));
    rig.make_durable();
    assert_eq!(rig.bookkeeping_rows("signal"), 1_000);
    rig.tick(3_600_000);
    rig.make_durable();
    assert_eq!(rig.output(id), json!(2), "found among all the others");
    rig.tick(60_000);
    rig.make_durable();
    assert_eq!(rig.bookkeeping_rows("signal"), 0);
}

#[test]
fn what_a_workflow_that_sleeps_is_sent_wakes_it_once() {
    let mut rig = Rig::new(1);
    let count = millrace_base::limits::WORKFLOWS_AWAKE + 20;
    let ids: Vec<_> = (0..count)
        .map(|_| {
            rig.flow(
                "a",
                s().call(run("counter", "begun", s().add("n", 1)))
                    .both(s().wait("a", None).wait("b", Some(5_000)))
                    .call(run("counter", "c", s().add("n", 1))),
            )
        })
        .collect();
    assert!(rig.core.activations.live() <= count - 10, "some have left memory");
    for id in &ids {
        rig.signal(*id, "a", "1", None);
    }
    rig.make_durable();
    for id in ids.iter().skip(10) {
        rig.signal(*id, "b", "2", None);
    }
    rig.make_durable();
    for _ in 0..10 {
        rig.tick(1_000);
        rig.make_durable();
    }
    assert_eq!(rig.field("counter", "begun", "n"), json!(count));
    assert_eq!(rig.field("counter", "c", "n"), json!(count));
    rig.assert_no_leftovers();
}

/// A new signal, and a workflow that waits, looks through all that wait.
#[test]
fn signals_that_wait_have_a_bounded_size_together() {
    let mut rig = Rig::new(1);
    let id = rig.flow("a", s().sleep(1_000).wait("go", None));
    let payload = format!("\"{}\"", "x".repeat(4 << 20));
    let room = millrace_base::limits::SIGNAL_BYTES_PER_WORKFLOW / payload.len() + 1;
    for _ in 0..room {
        let token = rig.signal(id, "go", &payload, None);
        rig.make_durable();
        assert!(matches!(rig.reply(token), Some(Ok(_))));
    }
    let refused = rig.signal(id, "go", "1", None);
    rig.make_durable();
    assert_eq!(rig.error(refused), ErrorCode::Overloaded);
}
