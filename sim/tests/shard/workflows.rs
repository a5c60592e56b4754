//! A workflow goes on to its end whatever happens; each of its steps happens once, and what has
//! to be undone is. Crashes at every entry are in `workflow_crashes.rs`.

use millrace_base::{Error, UnixMillis, limits};
use millrace_func::Limits;
use millrace_shard::Input;
use millrace_shard::Token;
use millrace_shard::question::EndDeadLetter;
use millrace_sim::rig::APP;

use crate::*;

fn add(key: &str) -> Callee {
    run("counter", key, s().add("n", 1))
}

fn count(rig: &mut Rig, key: &str) -> i64 {
    rig.field("counter", key, "n").as_i64().unwrap_or(0)
}

fn error_of(rig: &mut Rig, id: InvocationId) -> Error {
    match rig.invocation_result(id) {
        ResultState::Error(error) => error,
        other => panic!("{id} has {other:?}"),
    }
}

fn is_pending(rig: &mut Rig, id: InvocationId) -> bool {
    rig.invocation_result(id) == ResultState::Pending
}

#[test]
fn what_it_does_is_noted_in_order_and_its_invocation_result_kept() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let script =
        s().call(add(&here)).step("pick", 7).call(add(&there)).sleep(1_000).call(read("counter", &there, s().get("n")));
    let id = rig.flow(&here, script);
    rig.run_to_rest();
    assert!(is_pending(&mut rig, id));
    assert_eq!(rig.view(id).waits_for, ["sleep 1000 ms"]);
    rig.tick(1_000);
    rig.run_to_rest();
    assert_eq!(rig.output(id), json!(1));
    let kinds: Vec<StepKind> = rig.noted(id).into_iter().map(|row| row.0).collect();
    assert_eq!(kinds, [StepKind::Call, StepKind::Step, StepKind::Call, StepKind::Sleep, StepKind::Call]);
    rig.assert_no_leftovers();
}

#[test]
fn a_call_here_costs_one_entry() {
    let mut rig = Rig::new(1);
    rig.flow("a", (0..9).fold(s(), |script, _| script.call(add("c"))));
    // Accepted, begun, nine calls, ended.
    assert_eq!(rig.log.len(), 12);
}

#[test]
fn nothing_is_kept_when_its_invocation_result_has_expired() {
    let mut rig = Rig::new(2);
    let there = rig.key_in(1, "b");
    let here = rig.key_in(0, "a");
    let id = rig.flow(&here, s().call(add(&there)).step("x", 1).wait("go", None));
    rig.signal(id, "go", "1", None);
    rig.signal(id, "more", "1", None);
    rig.run_to_rest();
    assert_eq!((rig.bookkeeping_rows("ended"), rig.bookkeeping_rows("journal")), (1, 3));
    for _ in 0..3 {
        rig.tick(60_000);
        rig.run_to_rest();
    }
    for entity in ["workflow", "ended", "journal", "signal", "outcome"] {
        assert_eq!(rig.bookkeeping_rows(entity), 0, "{entity}");
    }
}

#[test]
fn long_journals_are_deleted_in_entries_of_bounded_size() {
    let mut rig = Rig::new(1);
    for _ in 0..6 {
        rig.flow("w", (0..5_000).fold(s(), |script, _| script.step("x", 1)));
    }
    for _ in 0..6 {
        rig.tick(60_000);
        rig.make_durable();
    }
    let most = rig.log.iter().map(|entry| entry.writes.len()).max();
    assert!(most.is_some_and(|most| most < 15_100), "{most:?} writes in one entry");
    assert_eq!((rig.bookkeeping_rows("journal"), rig.bookkeeping_rows("outcome")), (0, 0));
}

#[test]
fn messages_of_one_turn_are_all_sent_once() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let send = |script: Script, key: &str| script.send(add(key), 0);
    let script = [&here, &there, &here, &there, &here].into_iter().fold(s(), |script, key| send(script, key));
    let id = rig.flow(&here, script.step("x", 1).sleep(1_000).send(add(&there), 0));
    for _ in 0..3 {
        rig.run_to_rest();
        rig.crash();
        rig.tick(1_000);
    }
    rig.run_to_rest();
    rig.output(id);
    assert_eq!((count(&mut rig, &here), count(&mut rig, &there)), (3, 3));
    rig.tick(1_000);
    rig.run_to_rest();
    rig.assert_no_leftovers();
}

#[test]
fn a_workflow_starts_workflows_and_knows_their_ids() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let child = s().wait("go", None).call(add(&there));
    let script = s()
        .send(flow("note", &there, child.clone()), 0)
        .send(flow("note", &there, child), 0)
        .sleep(1_000)
        .signal(None, "go", 1)
        .id();
    let id = rig.flow(&here, script);
    for _ in 0..4 {
        rig.run_to_rest();
        rig.crash();
        rig.tick(1_000);
    }
    rig.run_to_rest();
    assert_eq!(rig.output(id), json!(id.to_string()));
    assert_eq!(count(&mut rig, &there), 1, "the second one was signalled, once");
    assert_eq!((rig.bookkeeping_rows("workflow"), rig.bookkeeping_rows("ended")), (1, 2));
}

#[test]
fn time_and_random_numbers_are_the_same_in_every_run() {
    let script = |rig: &Rig| {
        let there = rig.key_in(1, "b");
        let note = |script: Script| script.sleep(500);
        note(s().now()).random().step("x", 1).call(add(&there)).now().sleep(700).random()
    };
    let mut undisturbed = Rig::new(2);
    let first = script(&undisturbed);
    let here = undisturbed.key_in(0, "a");
    let run = |rig: &mut Rig, crashes: bool| {
        let id = rig.flow(&here, first.clone());
        for _ in 0..30 {
            rig.run_to_rest();
            rig.tick(100);
            if crashes {
                rig.run_to_rest();
                rig.crash();
            }
        }
        (id, rig.output(id))
    };
    let (expected, found) = (run(&mut undisturbed, false), run(&mut Rig::new(2), true));
    assert_eq!(expected, found);
}

#[test]
fn time_going_backwards_changes_nothing() {
    let mut rig = Rig::new(1);
    let id = rig.flow("a", s().sleep(1_000).call(add("c")).sleep(1_000).now());
    let began = rig.core.now;
    rig.tick(1_000);
    rig.make_durable();
    rig.core.now = UnixMillis(began.0 - 500_000);
    rig.crash();
    rig.tick(0);
    rig.core.now = UnixMillis(began.0 + 1_999);
    rig.tick(0);
    assert!(is_pending(&mut rig, id));
    rig.tick(1);
    rig.make_durable();
    assert_eq!((rig.output(id), count(&mut rig, "c")), (json!(began.0 + 2_000), 1));
}

#[test]
fn a_call_that_fails_for_now_is_made_again() {
    let mut rig = Rig::with_limits(2, Limits { wait_ms: 2_000, ..Limits::default() });
    for shard in [0, 1] {
        let (here, key) = (rig.key_in(0, "a"), rig.key_in(shard, "c"));
        // Somebody holds the entity for longer than the call may wait.
        rig.run("counter", &key, s().add("held", 1).hash());
        let id = rig.flow(&here, s().call(add(&key)));
        for _ in 0..4 {
            rig.make_durable();
            rig.carry_peers();
            rig.tick(1_000);
        }
        rig.run_to_rest();
        for _ in 0..10 {
            rig.tick(1_000);
            rig.run_to_rest();
        }
        assert_eq!((rig.output(id), count(&mut rig, &key)), (json!(1), 1));
        rig.assert_no_leftovers();
    }
}

#[test]
fn a_call_that_comes_back_here_and_has_to_wait_leaves_no_lock() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    // Somebody older holds what the call comes back to, so the call starts again when that is free.
    rig.run("counter", &here, s().add("held", 1).hash());
    let id = rig.flow(&here, s().call(run("counter", &there, s().add("n", 1).call(add(&here)))));
    rig.run_to_rest();
    assert_eq!((rig.output(id), count(&mut rig, &here), count(&mut rig, &there)), (json!(1), 1, 1));
    rig.assert_no_leftovers();
    let after = rig.run("counter", &here, s().add("n", 1));
    rig.make_durable();
    assert_eq!(rig.value(after), json!(2));
}

#[test]
fn an_abort_is_the_workflows_and_what_was_done_is_compensated_the_last_first() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let undo = |key: &str, by: i64| run("counter", key, s().at_least("n", 1).set("undone", by));
    let script = s()
        .compensate(undo(&here, 1))
        .call(add(&here))
        .compensate(undo(&there, 2))
        .call(add(&there))
        .call(run("counter", &here, s().add("n", 5).abort("no")));
    let id = rig.flow(&here, script);
    rig.run_to_rest();
    assert_eq!(error_of(&mut rig, id).code, ErrorCode::Aborted);
    let kinds: Vec<_> = rig.noted(id).into_iter().map(|row| (row.0, row.2)).collect();
    let of = |key: &str| format!("counter/{key}/run");
    let compensated = [(StepKind::Compensation, of(&there)), (StepKind::Compensation, of(&here))];
    assert_eq!(kinds[3..], compensated);
    assert_eq!((rig.field("counter", &here, "undone"), rig.field("counter", &there, "undone")), (json!(1), json!(2)));
    rig.assert_no_leftovers();
}

#[test]
fn a_compensation_comes_after_the_calls_that_still_run() {
    // One of two parallel calls aborts at once, the other one takes its time.
    for shard in [0, 1] {
        let mut rig = Rig::new(2);
        let (here, key) = (rig.key_in(0, "a"), rig.key_in(shard, "c"));
        let slow = run("counter", &key, s().hash().set("n", "done"));
        let undo = run("counter", &key, s().set("n", "undone"));
        let id = rig.flow(&here, s().compensate(undo).all([slow, run("note", &here, s().abort("no"))]));
        rig.carry_peers();
        rig.make_durable();
        rig.crash();
        rig.run_to_rest();
        assert_eq!(error_of(&mut rig, id).code, ErrorCode::Aborted);
        assert_eq!(rig.field("counter", &key, "n"), json!("undone"));
        rig.assert_no_leftovers();
    }
}

#[test]
fn what_nobody_waits_for_happens_before_the_end() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let slow = |key: &str| run("counter", key, s().hash().add("n", 1));
    let id = rig
        .flow(&here, s().start(slow(&here)).start(slow(&there)).start(run("note", &here, s().abort("no"))).returns(1));
    assert!(is_pending(&mut rig, id));
    rig.crash();
    rig.run_to_rest();
    assert_eq!((rig.output(id), count(&mut rig, &here), count(&mut rig, &there)), (json!(1), 1, 1));
    rig.assert_no_leftovers();
}

#[test]
fn what_was_started_is_done_before_the_end_and_what_follows_from_it() {
    for is_crashed in [false, true] {
        let mut rig = Rig::new(2);
        let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
        let id = rig.flow(&here, s().beside(s().fetch("x"), Some(add(&there))).returns(1));
        assert!(is_pending(&mut rig, id));
        rig.make_durable();
        assert_eq!(rig.fetches.len(), 1, "it is sent though nobody awaits it");
        if is_crashed {
            rig.crash();
        }
        rig.run_to_rest();
        assert_eq!((rig.output(id), count(&mut rig, &there)), (json!(1), 1));
        let kinds: Vec<_> = rig.noted(id).into_iter().map(|row| row.0).collect();
        assert_eq!(kinds, [StepKind::Fetch, StepKind::Call]);
        rig.assert_no_leftovers();
    }
}

#[test]
fn a_sleep_that_nobody_awaits_keeps_nothing() {
    let mut rig = Rig::new(1);
    let id = rig.flow("a", s().beside(s().sleep(1_000), Some(add("c"))).race(s().sleep(1).wait("x", None)).returns(1));
    rig.tick(1);
    rig.make_durable();
    assert_eq!((rig.output(id), rig.noted(id).len()), (json!(1), 1));
    rig.assert_no_leftovers();
}

#[test]
fn one_that_only_waits_for_what_it_started_can_be_cancelled() {
    let mut rig = Rig::new(1);
    let undo = run("counter", "c", s().add("undone", 1));
    let id = rig.flow("a", s().compensate(undo).beside(s().fetch("x"), Some(add("c"))).returns(1));
    rig.make_durable();
    rig.cancel(id);
    rig.make_durable();
    assert_eq!(error_of(&mut rig, id).code, ErrorCode::Cancelled);
    rig.run_to_rest();
    assert_eq!((rig.field("counter", "c", "undone"), rig.field("counter", "c", "n")), (json!(1), Json::Null));
    rig.assert_no_leftovers();
}

#[test]
fn a_compensation_comes_after_the_requests_that_are_under_way() {
    let mut rig = Rig::new(1);
    let undo = run("counter", "c", s().add("undone", 1));
    let id = rig.flow("a", s().compensate(undo).beside(s().fetch("x"), Some(add("c"))).abort("no"));
    rig.make_durable();
    rig.tick(1_000);
    assert!(is_pending(&mut rig, id));
    assert_eq!((rig.fetches.len(), rig.field("counter", "c", "undone")), (1, Json::Null));
    rig.run_to_rest();
    assert_eq!(error_of(&mut rig, id).code, ErrorCode::Aborted);
    let kinds: Vec<_> = rig.noted(id).into_iter().map(|row| row.0).collect();
    assert_eq!(kinds, [StepKind::Fetch, StepKind::Compensation], "and its code does not go on");
    rig.assert_no_leftovers();
}

#[test]
fn a_journal_of_when_requests_were_not_waited_for_is_followed() {
    // The first run leaves the journal that there was then: the number of the request is not in it.
    let mut rig = Rig::new(1);
    let undo = |script: Script| run("counter", "c", script.add("undone", 1));
    let script = s()
        .compensate(undo(s().hash()))
        .compensate(undo(s()))
        .unless_again("then", s().beside(s().fetch("x"), None).abort("no"))
        .beside(s().wait("never", None), None)
        .abort("no");
    let id = rig.flow("a", script);
    rig.make_durable();
    assert_eq!(rig.field("counter", "c", "undone"), json!(1));
    rig.crash();
    rig.run_to_rest();
    assert_eq!(error_of(&mut rig, id).code, ErrorCode::Aborted);
    assert_eq!((rig.field("counter", "c", "undone"), rig.fetches.len()), (json!(2), 0));
    rig.assert_no_leftovers();
}

#[test]
fn a_compensation_that_fails_is_tried_again_and_then_told_of() {
    let mut rig = Rig::new(1);
    rig.options.retention_ms = 24 * 3_600_000;
    rig.crash();
    let gate = read("counter", "gate", s().get("n").when(Json::Null, s().fail("closed")));
    let undo = |key: &str| run("counter", key, s().call(gate.clone()).add("undone", 1));
    let script = s().compensate(undo("a")).compensate(run("note", "x", s().abort("never"))).abort_step("no");
    let id = rig.flow("w", script.clone());
    rig.tick(3_000);
    assert!(is_pending(&mut rig, id));
    rig.run("counter", "gate", s().set("n", 1));
    rig.tick(60_000);
    assert_eq!(rig.field("counter", "a", "undone"), json!(1));
    let told = error_of(&mut rig, id);
    assert!(told.message.contains("1 of its compensations failed"), "{told}");
    rig.run("counter", "gate", s().delete("n"));
    let id = rig.flow("w", script);
    for _ in 0..40 {
        rig.tick(30_000);
    }
    assert!(error_of(&mut rig, id).message.contains("2 of its compensations failed"));
    rig.assert_no_leftovers();
    // They wait among the dead letters, where they can be made again.
    assert_eq!(rig.dead_letters(0), 3);
    rig.crash();
    assert_eq!(rig.dead_letters(0), 3, "one of the first workflow, two of the second");
    rig.run("counter", "gate", s().set("n", 1));
    for (index, (field, _)) in rig.rows(0, "dead").into_iter().enumerate() {
        let token = Token(1 << 60 | index as u64);
        rig.core.give(ShardId(0), Input::Ask(token, EndDeadLetter { field: field.clone(), is_retried: true }.into()));
    }
    rig.make_durable();
    assert_eq!(rig.field("counter", "a", "undone"), json!(2), "once for each workflow");
    assert_eq!((rig.dead_letters(0), rig.bookkeeping_rows("dead")), (2, 2), "what is refused again waits again");
    rig.assert_no_leftovers();
}

#[test]
fn too_many_operations_are_refused_and_compensated() {
    let mut rig = Rig::new(1);
    let script = s().compensate(run("counter", "c", s().add("undone", 1)));
    let id = rig.flow("w", (0..=limits::WORKFLOW_OPERATIONS).fold(script, |script, _| script.step("x", 1)));
    assert_eq!(error_of(&mut rig, id).code, ErrorCode::OperationLimit);
    assert_eq!(rig.field("counter", "c", "undone"), json!(1));
    assert_eq!(rig.bookkeeping_rows("journal"), 10_001);
}

#[test]
fn one_workflow_does_not_keep_the_core() {
    let mut rig = Rig::new(1);
    let script = (0..3_000)
        .fold(s(), |script, number| if number % 2 == 0 { script.step("x", 1) } else { script.call(add("c")) });
    rig.send(("note", "w", "flow"), script, 0, None);
    let mut most = 0;
    for _ in 0..10_000 {
        let before = rig.log.len();
        rig.core.give(ShardId(0), Input::RunDue);
        rig.log.append(&mut rig.core.collected.entries);
        most = most.max(rig.log.len() - before);
    }
    assert!(most <= limits::WORKFLOWS_PER_INPUT * limits::WORKFLOW_TURNS, "{most} entries in one input");
    rig.make_durable();
    assert_eq!(count(&mut rig, "c"), 1_500);
}

#[test]
fn a_cancelled_workflow_ends_and_is_compensated() {
    let compensated = || s().compensate(run("counter", "c", s().add("undone", 1)));
    let waits = [
        s().sleep(3_600_000),
        s().wait("never", None),
        s().fetch("x"),
        s().hash(),
        s().both(s().sleep(1).sleep(3_600_000)),
        s().call_in_step("x", run("counter", "c", s().fail("no"))),
    ];
    for (number, wait) in waits.into_iter().enumerate() {
        for crashes in [false, true] {
            let mut rig = Rig::new(1);
            let id = rig.flow("w", compensated().call(add("c")).try_wait("a while", 10_000).call(add("c")).fetch("y"));
            let other = rig.flow("w", compensated().call(add("c")));
            rig.output(other);
            let third = rig.flow("w", compensated().call(add("d")).when(1, wait.clone()).call(add("never")));
            let token = rig.cancel(third);
            let token_of_first = rig.cancel(id);
            assert!(rig.reply(token_of_first).is_none(), "not before it is durable");
            rig.make_durable();
            assert_eq!(rig.reply(token), Some(&Ok(millrace_shard::Reply::Done)));
            assert!(rig.reply(token_of_first).is_some());
            if crashes {
                rig.crash();
            }
            rig.run_to_rest();
            let code = error_of(&mut rig, third).code;
            assert!(matches!(code, ErrorCode::Cancelled | ErrorCode::FunctionFailed), "{number}: {code:?}");
            assert_eq!(error_of(&mut rig, id).code, ErrorCode::Cancelled);
            assert_eq!(rig.field("counter", "c", "undone"), json!(2), "{number}, {crashes}");
            assert_eq!(count(&mut rig, "never"), 0);
            let again = rig.cancel(id);
            assert!(matches!(rig.reply(again), Some(Ok(_))), "what has ended cannot be cancelled, which is fine");
            rig.tick(20_000);
            rig.run_to_rest();
            rig.assert_no_leftovers();
        }
    }
}

#[test]
fn a_call_under_way_ends_before_a_cancel_and_nothing_follows_it() {
    for shard in [0, 1] {
        for crashes in [false, true] {
            let mut rig = Rig::new(2);
            let (here, key) = (rig.key_in(0, "a"), rig.key_in(shard, "c"));
            let slow = run("counter", &key, s().hash().add("n", 1));
            let undo = run("counter", &key, s().at_least("n", 1).add("n", -1));
            let id = rig.flow(
                &here,
                s().compensate(undo).call(slow).call(add(&key)).call(add(&key)).step("x", 1).call(add(&key)),
            );
            rig.carry_peers();
            rig.cancel(id);
            rig.make_durable();
            assert!(is_pending(&mut rig, id), "the call ends first");
            if crashes {
                rig.crash();
            }
            rig.run_to_rest();
            assert_eq!(error_of(&mut rig, id).code, ErrorCode::Cancelled);
            let kinds: Vec<_> = rig.noted(id).into_iter().map(|row| row.0).collect();
            assert_eq!(kinds, [StepKind::Call, StepKind::Cancel, StepKind::Compensation]);
            assert_eq!(count(&mut rig, &key), 0);
            rig.assert_no_leftovers();
        }
    }
}

#[test]
fn a_call_that_never_succeeds_does_not_keep_a_workflow_from_being_cancelled() {
    let mut rig = Rig::with_limits(1, Limits { wait_ms: 1_000, ..Limits::default() });
    let id = rig.flow("a", s().call(run("counter", "c", s().hash().add("n", 1))));
    rig.offloads.clear(); // The hash never ends, so the call waits too long.
    rig.tick(1_000);
    rig.cancel(id);
    rig.make_durable();
    assert_eq!(error_of(&mut rig, id).code, ErrorCode::Cancelled);
    rig.tick(60_000);
    assert_eq!(count(&mut rig, "c"), 0);
    rig.assert_no_leftovers();
}

#[test]
fn a_cancel_does_not_stop_compensations_or_what_has_succeeded() {
    let mut rig = Rig::new(1);
    let undo = run("counter", "c", s().hash().add("undone", 1));
    let id = rig.flow("w", s().compensate(undo.clone()).compensate(undo).abort_step("no"));
    rig.cancel(id);
    rig.make_durable();
    rig.crash();
    rig.run_to_rest();
    assert_eq!(error_of(&mut rig, id).code, ErrorCode::Aborted);
    assert_eq!(rig.field("counter", "c", "undone"), json!(2));
    rig.assert_no_leftovers();
}

#[test]
fn a_workflow_that_was_put_to_sleep_does_nothing_twice() {
    let mut rig = Rig::new(1);
    let most = limits::WORKFLOWS_AWAKE + 40;
    // A wait whose time runs out long after its signal came, and while the code is not in memory.
    let script = s().call(add("c")).wait("go", Some(10_000)).sleep(60_000).call(add("d"));
    let ids: Vec<_> = (0..most).map(|_| rig.flow("w", script.clone())).collect();
    for id in &ids {
        rig.signal(*id, "go", "1", None);
    }
    rig.make_durable();
    assert!(rig.core.activations.live() <= limits::WORKFLOWS_AWAKE + 1, "{} in memory", rig.core.activations.live());
    let turns = rig.core.engine.turns();
    rig.tick(20_000);
    assert_eq!(rig.core.engine.turns(), turns, "nobody was woken for nothing");
    rig.tick(40_000);
    rig.make_durable();
    assert_eq!((count(&mut rig, "c"), count(&mut rig, "d")), (most as i64, most as i64));
    rig.assert_no_leftovers();
}

#[test]
fn one_that_sleeps_can_be_cancelled() {
    let mut rig = Rig::new(1);
    let script = s().compensate(run("counter", "c", s().add("n", -1))).call(add("c")).sleep(60_000).call(add("d"));
    let ids: Vec<_> = (0..limits::WORKFLOWS_AWAKE + 40).map(|_| rig.flow("w", script.clone())).collect();
    for id in &ids {
        rig.cancel(*id);
    }
    rig.make_durable();
    rig.tick(60_000);
    rig.make_durable();
    assert_eq!((count(&mut rig, "c"), count(&mut rig, "d")), (0, 0));
    rig.assert_no_leftovers();
}

#[test]
fn thousands_are_taken_up_a_few_at_a_time() {
    let mut rig = Rig::new(1);
    rig.options.retention_ms = 3_600_000;
    rig.crash();
    for _ in 0..2_000 {
        rig.flow("w", s().call(add("c")).sleep(60_000).call(add("d")));
    }
    rig.is_unstarted = true;
    rig.crash();
    rig.core.give(ShardId(0), Input::Tick);
    assert!(rig.core.engine.turns() <= 200, "{} turns in the first input", rig.core.engine.turns());
    let due = rig.core.with(ShardId(0), |shard, _| shard.next_due());
    assert!(due.is_some_and(|due| due <= rig.core.now), "the others follow at once");
    rig.run_due();
    rig.tick(60_000);
    rig.make_durable();
    assert_eq!((count(&mut rig, "c"), count(&mut rig, "d")), (2_000, 2_000));
    assert_eq!(rig.bookkeeping_rows("ended"), 2_000);
    rig.assert_no_leftovers();
}

#[test]
fn a_request_outside_leaves_only_when_what_led_to_it_is_durable() {
    let mut rig = Rig::new(1);
    rig.send(
        ("note", "w", "flow"),
        s().fetch("first").step("x", 1).fetch("second").call(add("c")).fetch("third"),
        0,
        None,
    );
    for number in 0..3 {
        rig.run_due();
        assert_eq!(rig.fetches.len(), number, "nothing is durable");
        let made = rig.log.last().expect("entries").lsn;
        rig.make_durable();
        assert_eq!(rig.fetches.len(), number + 1);
        assert!(rig.fetches[number].0 >= made);
        rig.finish_offload();
    }
    rig.make_durable();
    assert_eq!(count(&mut rig, "c"), 1);
    rig.assert_no_leftovers();
}

#[test]
fn a_request_is_sent_again_under_its_key_and_a_refusal_is_the_workflows() {
    let mut rig = Rig::new(1);
    let id = rig.flow("w", s().try_fetch("x").fetch("y"));
    rig.crash();
    for _ in 0..3 {
        rig.make_durable();
        let ticket = rig.offloads.pop_front().expect("it is under way");
        rig.finish(ticket, Err(Error::new(ErrorCode::FetchFailed, "no answer")));
        rig.tick(1_000);
    }
    rig.make_durable();
    let ticket = rig.offloads.pop_front().expect("the next one");
    rig.finish(ticket, Err(Error::new(ErrorCode::FetchRefused, "no")));
    rig.make_durable();
    let keys: Vec<_> = rig.fetches.iter().map(|(_, request)| request.headers.clone()).collect();
    let key = |operation: u32| vec![("idempotency-key".to_owned(), format!("{id}-{operation}"))];
    assert_eq!(keys, [key(1), key(1), key(1), key(1), key(2)]);
    assert_eq!(error_of(&mut rig, id).code, ErrorCode::FetchRefused);
    rig.assert_no_leftovers();
}

#[test]
fn the_old_version_goes_on_and_calls_the_new_one() {
    let mut rig = Rig::new(1);
    let script = s().sleep(1_000).call(run("note", "x", s().program_here())).program();
    let id = rig.flow("w", script.clone());
    let (engine, catalog) = (&rig.core.engine, &mut rig.core.catalog);
    let new = engine.add_version(catalog, APP, Limits::default(), 2);
    let is_needed = |rig: &mut Rig, program: u32| {
        rig.core.with(ShardId(0), |shard, _| shard.needs_program(millrace_func::Program(program)))
    };
    assert!(is_needed(&mut rig, 1) && !is_needed(&mut rig, new.0));
    rig.tick(1_000);
    rig.make_durable();
    assert_eq!(rig.output(id), json!(1), "its own code is the old one");
    assert_eq!(rig.noted(id)[1].3, Ok(new.0.to_string().into()), "what it calls is the new one");
    assert!(!is_needed(&mut rig, 1));
    let id = rig.flow("w", script);
    rig.tick(1_000);
    rig.make_durable();
    assert_eq!(rig.output(id), json!(new.0));
}

#[test]
fn code_that_takes_another_path_is_told_where() {
    let lost = [
        ("another name", s().call(add("b"))),
        ("another kind", s().step("x", 1)),
        ("less", s().returns(1)),
        ("caught", s().try_call(add("b")).returns(1)),
    ];
    for (what, other) in lost {
        let mut rig = Rig::new(1);
        let undo = run("counter", "c", s().add("undone", 1));
        let id = rig
            .flow("w", s().compensate(undo).step("before", 1).unless_again("here", other).call(add("c")).sleep(1_000));
        rig.crash();
        rig.tick(1_000);
        rig.make_durable();
        let error = error_of(&mut rig, id);
        assert_eq!(error.code, ErrorCode::Diverged, "{what}: {error}");
        assert!(error.message.contains("operation 2") && error.message.contains("counter/c/run"), "{what}: {error}");
        assert_eq!(rig.field("counter", "c", "undone"), Json::Null, "nobody knows what to undo");
    }
}

#[test]
fn what_a_steps_code_calls_is_done_once_and_not_counted_as_the_workflows() {
    for shard in [0, 1] {
        let mut rig = Rig::new(2);
        let (here, key) = (rig.key_in(0, "a"), rig.key_in(shard, "c"));
        let inner = run("counter", &key, s().hash().add("n", 1));
        let id = rig.flow(
            &here,
            s().call_in_step("one", inner.clone()).call_in_step("two", inner).sleep(1_000).call(add(&key)),
        );
        for _ in 0..6 {
            rig.run_to_rest();
            rig.crash();
        }
        rig.run_to_rest();
        rig.tick(1_000);
        rig.run_to_rest();
        assert_eq!((rig.output(id), count(&mut rig, &key)), (json!(3), 3));
        let numbers: Vec<_> = rig.noted(id).into_iter().map(|row| row.1).filter(|number| *number < 1_000).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        rig.assert_at_rest();
    }
}

#[test]
fn a_full_disk_only_delays_it() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let script =
        s().call(add(&here)).call(add(&there)).step("x", 1).hash().try_wait("go", 100).send(add(&there), 0).sleep(100);
    let id = rig.flow(&here, script);
    for round in 0..40 {
        rig.core.is_read_only = round % 3 != 0;
        rig.run_to_rest();
        rig.tick(700);
        let now = rig.core.now;
        let due = rig.core.with(id.shard, |shard, _| shard.next_due());
        assert!(!rig.core.is_read_only || due.is_none_or(|due| due > now), "a driver would never come to rest");
    }
    rig.core.is_read_only = false;
    rig.run_to_rest();
    rig.output(id);
    assert_eq!((count(&mut rig, &here), count(&mut rig, &there)), (1, 2));
    rig.tick(1_000);
    rig.run_to_rest();
    rig.assert_no_leftovers();
}

#[test]
fn a_stopped_shard_lets_go_of_everything() {
    let mut rig = Rig::new(1);
    for script in
        [s().sleep(1_000), s().hash(), s().call(run("counter", "c", s().hash())), s().fetch("x"), s().wait("a", None)]
    {
        rig.flow("w", script);
    }
    rig.stop(ShardId(0));
    assert_eq!((rig.core.activations.live(), rig.core.engine.waiting_activations()), (0, 0));
    while !rig.offloads.is_empty() {
        rig.finish_offload();
    }
    rig.tick(60_000);
    assert_eq!(rig.core.with(ShardId(0), |shard, _| shard.next_due()), None);
}

#[test]
fn what_an_app_may_not_reach_it_does_not_reach() {
    let mut rig = Rig::new(1);
    for refused in
        [s().get("x"), s().set("x", 1), s().call(flow("note", "x", s())), s().call_in_step("s", flow("note", "x", s()))]
    {
        let id = rig.flow("w", refused);
        assert_eq!(rig.failures(id)[0].error.code, ErrorCode::FunctionFailed);
        rig.kill(id);
    }
    for outside in [s().sleep(1), s().wait("x", None), s().step("x", 1), s().fetch("x"), s().compensate(add("c"))] {
        let token = rig.run("note", "x", outside);
        assert_eq!(rig.error(token), ErrorCode::FunctionFailed, "only workflows may");
    }
    rig.assert_no_leftovers();
}
