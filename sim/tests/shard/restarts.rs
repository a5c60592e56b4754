//! A workflow that has ended, or is paused, begins again: from its beginning, or from a step.

use crate::*;

fn kept_for_long(shard_count: u16) -> Rig {
    let mut rig = Rig::new(shard_count);
    rig.options.retention_ms = 24 * 3_600_000;
    rig.crash();
    rig
}

fn add(key: &str) -> Callee {
    run("counter", key, s().add("n", 1))
}

fn counted(rig: &mut Rig, key: &str) -> i64 {
    rig.field("counter", key, "n").as_i64().unwrap_or(0)
}

/// Restarts one, and lets it run.
fn restarted(rig: &mut Rig, id: InvocationId, from: Option<&str>) {
    let token = rig.restart(id, from, false);
    rig.settle();
    assert!(matches!(rig.reply(token), Some(Ok(_))), "{:?}", rig.reply(token));
}

fn refusal(rig: &mut Rig, id: InvocationId, from: Option<&str>) -> ErrorCode {
    let token = rig.restart(id, from, false);
    rig.settle();
    rig.error(token)
}

#[test]
fn whatever_became_of_it_it_does_all_of_it_again() {
    for shard in 0..3 {
        let mut rig = kept_for_long(3);
        let key = rig.key_in(shard, "k");
        for (how, ending) in ["returns", "aborts", "cancelled", "killed"].into_iter().enumerate() {
            let key = format!("{key}-{how}");
            let script = s().call(add(&key)).random().keep();
            let script = match ending {
                "returns" => script.kept(),
                "aborts" => script.abort("no"),
                _ => script.wait("go", None),
            };
            let id = rig.flow("asks", script);
            for run in 1..=3 {
                rig.settle();
                match ending {
                    "cancelled" => drop(rig.cancel(id)),
                    "killed" => drop(rig.kill(id)),
                    _ => {}
                }
                rig.settle();
                assert_ne!(rig.invocation_result(id), ResultState::Pending, "{ending}");
                assert_eq!(counted(&mut rig, &key), run, "{ending}");
                let calls = rig.noted(id).iter().filter(|row| row.0 == StepKind::Call).count();
                assert_eq!(calls, 1, "the journal is that of the last run");
                if run == 2 {
                    rig.crash();
                    rig.settle();
                }
                if run < 3 {
                    restarted(&mut rig, id, None);
                }
            }
        }
        rig.assert_no_leftovers();
    }
}

/// The call of a workflow that was killed is a transaction, and ends. It must not become a row of the next run.
#[test]
fn one_whose_call_is_under_way_waits_for_its_end() {
    for shard in 0..2 {
        let mut rig = kept_for_long(2);
        let key = rig.key_in(shard, "k");
        let slow = run("counter", &key, s().hash().add("n", 1).get("n"));
        let id = rig.flow("asks", s().call(slow).step("pick", 1));
        while rig.carry_peer() {}
        rig.kill(id);
        rig.make_durable();
        assert!(matches!(rig.invocation_result(id), ResultState::Error(_)));
        let token = rig.restart(id, None, false);
        rig.make_durable();
        assert_eq!(rig.error(token), ErrorCode::WorkflowRunning);
        rig.settle();
        assert_eq!(counted(&mut rig, &key), 1, "it was killed while its call ran");
        restarted(&mut rig, id, None);
        let calls: Vec<_> = rig.noted(id).into_iter().filter(|row| row.0 == StepKind::Call).map(|row| row.3).collect();
        assert_eq!(calls, [Ok("2".into())]);
        assert_eq!(counted(&mut rig, &key), 2);
        rig.assert_at_rest();
    }
}

#[test]
fn what_was_undone_is_done_again_and_no_answer_of_the_first_run_counts() {
    for shard in 0..3 {
        let mut rig = kept_for_long(3);
        let key = rig.key_in(shard, "k");
        let undo = run("counter", &key, s().at_least("n", 1).add("n", -1).add("undone", 1));
        let stock = run("counter", "stock", s().at_least("n", 1));
        let id = rig.flow("asks", s().compensate(undo).call(add(&key)).call(stock).returns("done"));
        rig.settle();
        assert_eq!((counted(&mut rig, &key), rig.field("counter", &key, "undone")), (0, json!(1)));
        assert_eq!(refusal(&mut rig, id, Some("counter/stock/run")), ErrorCode::BadRequest, "its journal is undone");
        rig.run("counter", "stock", s().set("n", 1));
        restarted(&mut rig, id, None);
        assert_eq!(rig.output(id), json!("done"));
        assert_eq!((counted(&mut rig, &key), rig.field("counter", &key, "undone")), (1, json!(1)));
        rig.assert_no_leftovers();
    }
}

#[test]
fn from_a_step_the_journal_before_it_stays() {
    for shard in 0..3 {
        let mut rig = kept_for_long(3);
        let (before, behind) = (rig.key_in(shard, "before"), rig.key_in(shard, "behind"));
        let child = |name: &str| flow("note", name, s().call(run("counter", "children", s().add(name, 1))));
        let script = s()
            .random()
            .keep()
            .call(add(&before))
            .send(child("early"), 0)
            .step("pick", 7)
            .send(child("late"), 0)
            .random()
            .keep()
            .call(add(&behind))
            .call(run("counter", "stock", s().at_least("n", 1)))
            .kept();
        let id = rig.flow("asks", script);
        rig.settle();
        assert!(matches!(rig.invocation_result(id), ResultState::Error(_)));
        for run in 2..=4 {
            if run == 4 {
                rig.run("counter", "stock", s().set("n", 1));
            }
            restarted(&mut rig, id, Some("pick"));
            assert_eq!((counted(&mut rig, &before), counted(&mut rig, &behind)), (1, run));
            let children = ["early", "late"].map(|name| rig.field("counter", "children", name));
            assert_eq!(children, [json!(1), json!(run)], "each run behind the step starts children of its own");
            rig.crash();
            rig.settle();
        }
        let output = rig.output(id);
        restarted(&mut rig, id, Some("pick"));
        let again = rig.output(id);
        assert_eq!(output[0], again[0], "what was drawn before the step stays");
        assert_ne!(output[1], again[1]);
        assert_eq!(refusal(&mut rig, id, Some("no such step")), ErrorCode::BadRequest);
        rig.assert_no_leftovers();
    }
}

#[test]
fn one_that_is_paused_begins_again_and_others_are_refused() {
    let mut rig = kept_for_long(2);
    let missing = InvocationId { shard: ShardId(0), sequence: Default::default() };
    assert_eq!(refusal(&mut rig, missing, None), ErrorCode::UnknownInvocation);
    let token = rig.send(("note", "a", "flow"), s(), 60_000, None);
    rig.make_durable();
    let pending = rig.sent(token);
    assert_eq!(refusal(&mut rig, pending, None), ErrorCode::WorkflowRunning);
    let waiting = rig.flow("a", s().wait("go", None));
    assert_eq!(refusal(&mut rig, waiting, None), ErrorCode::WorkflowRunning);
    let fails = run("counter", "gate", s().get("n").when(Json::Null, s().fail("closed")));
    for from in [None, Some("flaky")] {
        let script = s().call(add("paused")).retry(Some(1), 10).flaky_step("flaky", "seen").retry(Some(1), 10);
        let id = rig.flow("a", script.call(fails.clone()).returns(9));
        rig.settle();
        assert_eq!(rig.failures(id).len(), 1, "{:?}", rig.failures(id));
        rig.crash();
        rig.settle();
        let before = counted(&mut rig, "paused");
        restarted(&mut rig, id, from);
        assert_eq!(counted(&mut rig, "paused"), before + i64::from(from.is_none()));
        rig.run("counter", "gate", s().set("n", 1));
        rig.settle();
        if !rig.failures(id).is_empty() {
            restarted(&mut rig, id, None);
        }
        assert_eq!(rig.output(id), json!(9));
        rig.run("counter", "gate", s().delete("n"));
    }
    rig.cancel(waiting);
    rig.cancel(pending);
    rig.assert_no_leftovers();
}

/// A restart is one entry: it is there after a crash, or it is not.
#[test]
fn a_crash_in_the_middle_leaves_it_restarted_or_not() {
    let (mut lost, mut kept) = (0, 0);
    for shard in 0..3 {
        for crash_at in 0..40 {
            let mut rig = kept_for_long(3);
            let key = rig.key_in(shard, "k");
            let id = rig.flow("asks", s().call(add(&key)).step("pick", 1).call(add(&key)).sleep(5).call(add(&key)));
            for _ in 0..4 {
                rig.tick(5);
                rig.settle();
            }
            let from = (crash_at % 2 == 1).then_some("pick");
            let token = rig.restart(id, from, false);
            for _ in 0..crash_at / 2 {
                rig.run_due();
                if !rig.carry_peer() {
                    rig.make_durable_in(ShardId(crash_at % 3));
                    rig.tick(1);
                }
            }
            let is_answered = rig.reply(token).is_some();
            rig.crash();
            for _ in 0..4 {
                rig.tick(5);
                rig.settle();
            }
            let again = if from.is_some() { 2 } else { 3 };
            let found = counted(&mut rig, &key);
            assert!(found == 3 + again || (found == 3 && !is_answered), "shard {shard}, {crash_at}: {found}");
            *(if found == 3 { &mut lost } else { &mut kept }) += 1;
            rig.assert_no_leftovers();
        }
    }
    assert!(lost > 5 && kept > 5, "{lost} lost, {kept} kept");
}
