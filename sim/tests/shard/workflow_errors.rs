//! What fails of a workflow is tried again, and nothing is compensated before somebody wants it. After the last attempt the
//! workflow waits for somebody. Whatever is tried again, each step takes effect once.

use millrace_base::{Error, limits};
use millrace_shard::Reply;

use crate::*;

/// Shards that keep results for longer than the attempts take.
fn patient(shards: u16) -> Rig {
    let mut rig = Rig::new(shards);
    rig.options.retention_ms = 24 * 3_600_000;
    rig.crash();
    rig
}

/// A call that fails while the gate is closed.
fn gated(key: &str) -> Callee {
    let gate = read("counter", "gate", s().get("n").when(Json::Null, s().fail("closed")));
    run("counter", key, s().add("n", 1).call(gate))
}

fn open_gate(rig: &mut Rig) {
    rig.run("counter", "gate", s().set("n", 1));
    rig.run_to_rest();
}

fn undo(key: &str) -> Callee {
    run("counter", key, s().add("undone", 1))
}

fn add(key: &str) -> Callee {
    run("counter", key, s().add("n", 1))
}

fn count(rig: &mut Rig, key: &str, field: &str) -> i64 {
    rig.field("counter", key, field).as_i64().unwrap_or(0)
}

fn error_of(rig: &mut Rig, id: InvocationId) -> ErrorCode {
    match rig.invocation_result(id) {
        ResultState::Error(error) => error.code,
        other => panic!("{id} has {other:?}"),
    }
}

/// Lets so much time pass that whatever is tried again is.
fn wait(rig: &mut Rig, times: u32) {
    for _ in 0..times {
        rig.tick(60_000);
        rig.run_to_rest();
    }
}

/// The attempts of what failed, and whether each is tried again.
fn attempts(rig: &mut Rig, id: InvocationId) -> Vec<(u32, bool)> {
    rig.failures(id).iter().map(|failure| (failure.attempts, failure.next_try.is_some())).collect()
}

#[test]
fn a_call_that_fails_is_made_again_and_nothing_is_compensated() {
    for shard in [0, 1] {
        let mut rig = patient(2);
        let (here, key) = (rig.key_in(0, "a"), rig.key_in(shard, "c"));
        let id = rig.flow(&here, s().compensate(undo(&key)).call(gated(&key)).returns("done"));
        rig.run_to_rest();
        let failure = rig.failures(id).remove(0);
        assert_eq!((failure.operation, failure.attempts, failure.error.code), (1, 1, ErrorCode::FunctionFailed));
        assert_eq!((failure.kind, failure.name), (Some(StepKind::Call), format!("counter/{key}/run")));
        assert_eq!(failure.next_try, Some(failure.failed.plus(limits::RETRY_FIRST_MS)));
        wait(&mut rig, 3);
        assert_eq!(attempts(&mut rig, id), [(4, true)]);
        open_gate(&mut rig);
        wait(&mut rig, 1);
        assert_eq!((rig.output(id), count(&mut rig, &key, "n")), (json!("done"), 1));
        assert_eq!((count(&mut rig, &key, "undone"), rig.noted(id).len()), (0, 1));
        rig.assert_no_leftovers();
    }
}

#[test]
fn a_refusal_is_the_workflows_at_once() {
    let mut rig = patient(1);
    let id = rig.flow("w", s().compensate(undo("c")).call(run("counter", "c", s().abort("no"))));
    assert_eq!((error_of(&mut rig, id), count(&mut rig, "c", "undone")), (ErrorCode::Aborted, 1));
    let id = rig.flow("w", s().compensate(undo("c")).abort_step("no"));
    assert_eq!((error_of(&mut rig, id), count(&mut rig, "c", "undone")), (ErrorCode::Aborted, 2));
    rig.assert_no_leftovers();
}

#[test]
fn after_the_last_attempt_it_waits_for_somebody_over_restarts_and_goes_on_when_resumed() {
    let mut rig = patient(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "c"));
    let script = s().call(add(&here)).compensate(undo(&here)).call(gated(&there)).call(add(&here));
    let id = rig.flow(&here, script);
    rig.run_to_rest();
    wait(&mut rig, 5);
    rig.crash();
    wait(&mut rig, 5);
    let (seen, is_tried) = attempts(&mut rig, id)[0];
    assert!(is_tried && (10..=12).contains(&seen), "the count goes on after a restart: {seen}");
    wait(&mut rig, 10);
    assert_eq!(attempts(&mut rig, id), [(limits::RETRY_ATTEMPTS, false)]);
    open_gate(&mut rig);
    for _ in 0..2 {
        rig.crash();
        wait(&mut rig, 3);
        assert_eq!(attempts(&mut rig, id), [(limits::RETRY_ATTEMPTS, false)], "nobody has resumed it");
    }
    assert_eq!((count(&mut rig, &there, "n"), count(&mut rig, &here, "undone")), (0, 0));
    let token = rig.resume(id);
    rig.run_to_rest();
    assert_eq!(rig.reply(token), Some(&Ok(Reply::Done)));
    assert_eq!((rig.output(id), count(&mut rig, &here, "n"), count(&mut rig, &there, "n")), (json!(2), 2, 1));
    rig.assert_no_leftovers();
    let token = rig.resume(id);
    rig.make_durable();
    assert_eq!(rig.error(token), ErrorCode::WorkflowEnded);
}

#[test]
fn code_of_a_step_that_fails_runs_again_and_what_came_before_it_happens_once() {
    for is_crashed in [false, true] {
        let mut rig = patient(2);
        let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
        let script = s()
            .compensate(undo(&here))
            .call(add(&here))
            .send(add(&there), 0)
            .step("drawn", 7)
            .flaky_step("flaky", "1")
            .flaky_step("again", "2")
            .call(add(&there));
        let id = rig.flow(&here, script);
        rig.make_durable();
        let failure = rig.failures(id).remove(0);
        assert_eq!((failure.kind, failure.name.as_str()), (Some(StepKind::Step), "flaky"));
        if is_crashed {
            rig.crash();
        }
        wait(&mut rig, 4);
        assert_eq!(rig.output(id), json!(2));
        assert_eq!((count(&mut rig, &here, "n"), count(&mut rig, &there, "n")), (1, 2));
        assert_eq!(count(&mut rig, &here, "undone"), 0);
        rig.assert_no_leftovers();
    }
}

#[test]
fn a_workflows_own_code_begins_again_over_its_journal() {
    let mut rig = patient(1);
    // The first time that the code comes by, it fails.
    let script = s().compensate(undo("a")).call(add("a")).unless_again("seen", s().fail("not yet"));
    let id = rig.flow("a", script.clone());
    rig.make_durable();
    assert_eq!(rig.output(id), json!(1), "nothing fails if the code has not come by");
    let script = s().compensate(undo("a")).call(add("a")).unless_again("seen", s().fail("not now"));
    let id = rig.flow("a", script);
    rig.make_durable();
    let failure = rig.failures(id).remove(0);
    assert_eq!((failure.operation, failure.kind, failure.attempts), (0, None, 1));
    wait(&mut rig, 20);
    assert_eq!(attempts(&mut rig, id), [(limits::RETRY_ATTEMPTS, false)]);
    rig.crash();
    rig.settle();
    assert_eq!(attempts(&mut rig, id), [(limits::RETRY_ATTEMPTS, false)]);
    assert_eq!((count(&mut rig, "a", "n"), count(&mut rig, "a", "undone")), (2, 0));
    // Resumed, it is tried as often again.
    rig.resume(id);
    rig.run_to_rest();
    assert_eq!(attempts(&mut rig, id), [(1, true)]);
    rig.cancel(id);
    rig.run_to_rest();
    assert_eq!(error_of(&mut rig, id), ErrorCode::Cancelled);
    assert_eq!((count(&mut rig, "a", "n"), count(&mut rig, "a", "undone")), (2, 1));
    rig.assert_no_leftovers();
}

#[test]
fn what_was_paused_or_is_tried_again_is_cancelled_with_its_compensations_and_killed_without() {
    for (times, is_crashed) in [(1, false), (20, false), (1, true), (20, true)] {
        for failing in [s().call(gated("c")), s().fail_step("no"), s().fail("no")] {
            let mut rig = patient(1);
            let script = s().call(add("a")).compensate(undo("a")).join(failing);
            let (cancelled, killed) = (rig.flow("a", script.clone()), rig.flow("a", script));
            wait(&mut rig, times);
            if is_crashed {
                rig.crash();
                rig.settle();
            }
            assert_eq!(rig.failures(cancelled).len(), 1);
            let token = rig.kill(killed);
            rig.make_durable();
            assert_eq!(rig.reply(token), Some(&Ok(Reply::Done)));
            assert_eq!((error_of(&mut rig, killed), count(&mut rig, "a", "undone")), (ErrorCode::Cancelled, 0));
            rig.cancel(cancelled);
            rig.run_to_rest();
            wait(&mut rig, 2);
            assert_eq!((error_of(&mut rig, cancelled), count(&mut rig, "a", "undone")), (ErrorCode::Cancelled, 1));
            assert_eq!((count(&mut rig, "a", "n"), count(&mut rig, "c", "n")), (2, 0));
            rig.assert_no_leftovers();
        }
    }
}

#[test]
fn one_that_has_yet_to_begin_is_killed_and_one_that_ended_stays_as_it_is() {
    let mut rig = patient(1);
    let token = rig.send(("note", "w", "flow"), s().call(add("a")), 10_000, None);
    rig.make_durable();
    let later = rig.sent(token);
    let token = rig.resume(later);
    rig.make_durable();
    assert_eq!(rig.error(token), ErrorCode::Overloaded, "nothing has failed yet");
    rig.kill(later);
    rig.make_durable();
    assert_eq!(error_of(&mut rig, later), ErrorCode::Cancelled);
    let ended = rig.flow("w", s().call(add("a")));
    let token = rig.kill(ended);
    rig.make_durable();
    assert_eq!(rig.reply(token), Some(&Ok(Reply::Done)));
    assert_eq!(rig.output(ended), json!(1));
    rig.tick(20_000);
    assert_eq!(count(&mut rig, "a", "n"), 1);
    rig.assert_no_leftovers();
}

#[test]
fn what_is_under_way_when_code_fails_happens_once() {
    for shard in [0, 1] {
        let mut rig = patient(2);
        let (here, key) = (rig.key_in(0, "a"), rig.key_in(shard, "c"));
        // Calls take their time beside a step that fails at once.
        let slow = run("counter", &key, s().hash().add("n", 1));
        let script = s().start(slow.clone()).start(slow.clone()).flaky_step("flaky", "1").call(slow);
        let id = rig.flow(&here, script);
        rig.carry_peers();
        rig.make_durable();
        assert_eq!(rig.failures(id).len(), 1);
        wait(&mut rig, 3);
        assert_eq!(rig.output(id), json!(3));
        assert_eq!(count(&mut rig, &key, "n"), 3);
        rig.assert_no_leftovers();
    }
}

#[test]
fn a_call_that_waits_for_its_next_attempt_does_not_hold_up_a_step() {
    let mut rig = patient(1);
    let script = s().start(gated("c")).step("one", 1).call(add("d")).flaky_step("flaky", "1").call(add("d"));
    let id = rig.flow("w", script);
    wait(&mut rig, 20);
    assert_eq!(count(&mut rig, "d", "n"), 2, "its other branch has gone on");
    assert_eq!(attempts(&mut rig, id), [(limits::RETRY_ATTEMPTS, false)], "and waits for the call");
    open_gate(&mut rig);
    rig.resume(id);
    rig.run_to_rest();
    assert_eq!((rig.output(id), count(&mut rig, "c", "n")), (json!(2), 1));
    rig.assert_no_leftovers();
}

#[test]
fn messages_of_a_turn_that_fails_do_not_leave() {
    let mut rig = patient(1);
    let script = s().unless_again("first", s().send(add("a"), 0).step("x", 1)).send(add("a"), 0).fail("no");
    let id = rig.flow("w", script);
    rig.run_to_rest();
    assert_eq!(count(&mut rig, "a", "n"), 0);
    wait(&mut rig, 1);
    rig.output(id);
    assert_eq!(count(&mut rig, "a", "n"), 1, "that of the second attempt");
    rig.assert_no_leftovers();
}

#[test]
fn an_error_that_the_journal_gave_is_the_workflows() {
    let mut rig = patient(1);
    let id = rig.flow("w", s().compensate(undo("c")).hash());
    let ticket = rig.offloads.pop_front().expect("it waits for a hash");
    rig.finish(ticket, Err(Error::new(ErrorCode::FunctionFailed, "as rows of earlier versions say")));
    rig.make_durable();
    assert_eq!((error_of(&mut rig, id), count(&mut rig, "c", "undone")), (ErrorCode::FunctionFailed, 1));
    rig.assert_no_leftovers();
}

#[test]
fn a_call_and_a_step_are_tried_as_their_author_says() {
    for failing in [s().retry(Some(3), 500).call(gated("c")), s().retry(Some(3), 500).fail_step("no")] {
        let mut rig = patient(1);
        let id = rig.flow("w", failing);
        for seen in 1..=3 {
            assert_eq!(attempts(&mut rig, id), [(seen, seen < 3)]);
            rig.tick(499);
            rig.make_durable();
            assert_eq!(attempts(&mut rig, id), [(seen, seen < 3)], "not before its time");
            rig.tick(1);
            rig.make_durable();
        }
    }
    let mut rig = patient(1);
    let id = rig.flow("w", s().retry(None, 1_000).call(gated("c")));
    wait(&mut rig, 50);
    assert_eq!(attempts(&mut rig, id), [(51, true)], "without end");
    open_gate(&mut rig);
    wait(&mut rig, 1);
    assert_eq!(count(&mut rig, "c", "n"), 1);
    let told = rig.run("note", "x", s().retry(None, 1).call(add("c")));
    assert_eq!(rig.error(told), ErrorCode::FunctionFailed, "the errors of a transaction reach its caller");
}

#[test]
fn what_was_given_up_goes_on_after_a_deployment_if_its_app_wants_that() {
    for wants in [false, true] {
        let mut rig = patient(1);
        let id = rig.flow("w", s().call(gated("c")));
        rig.send(("counter", "m", "run"), s().fail("no"), 0, None);
        rig.make_durable();
        wait(&mut rig, 20);
        assert_eq!((attempts(&mut rig, id), rig.dead_letters(0)), (vec![(limits::RETRY_ATTEMPTS, false)], 1));
        open_gate(&mut rig);
        rig.deploy_with(|app| app.retry.resume_on_deploy = wants);
        rig.tick(1_000);
        rig.run_to_rest();
        assert_eq!((count(&mut rig, "c", "n"), rig.dead_letters(0)), if wants { (1, 0) } else { (0, 1) });
        assert_eq!(rig.bookkeeping_rows("failing"), usize::from(wants), "its attempts begin anew");
    }
}

#[test]
fn attempts_are_listed_and_listed_ones_that_wait_are_told_apart() {
    let mut rig = patient(1);
    let id = rig.flow("w", s().call(gated("c")));
    rig.flow("x", s().wait("go", None));
    wait(&mut rig, 20);
    let listed = rig.listed_failures(0);
    assert_eq!(listed.len(), 2);
    let of = |wanted: InvocationId| listed.iter().find(|(id, _)| *id == wanted).expect("listed");
    assert_eq!(of(id).1[0].attempts, limits::RETRY_ATTEMPTS);
    assert!(listed.iter().all(|(other, failures)| *other == id || failures.is_empty()));
}
