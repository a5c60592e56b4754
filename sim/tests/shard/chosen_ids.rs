//! A workflow whose caller chose its id starts once, and is found by it. Others wait for its outcome.

use millrace_base::limits;
use millrace_shard::Reply;
use millrace_shard::question::{EndDeadLetter, ListDeadLetters};

use crate::*;

fn counted() -> Script {
    s().call(run("counter", "c", s().add("n", 1))).returns("done")
}

fn kept_for(shard_count: u16, retention_ms: u64) -> Rig {
    let mut rig = Rig::new(shard_count);
    rig.options.retention_ms = retention_ms;
    rig.crash();
    rig
}

fn kept_for_long() -> Rig {
    kept_for(3, 24 * 3_600_000)
}

fn counter(rig: &mut Rig) -> Json {
    rig.field("counter", "c", "n")
}

/// What a workflow got that did this.
fn result_of(rig: &mut Rig, script: Script) -> ResultState {
    let id = rig.flow("asks", script);
    rig.settle();
    rig.invocation_result(id)
}

fn code(result: &ResultState) -> ErrorCode {
    match result {
        ResultState::Error(error) => error.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_starts_once_whoever_starts_it() {
    let mut rig = kept_for_long();
    for crashes in [false, true] {
        for _ in 0..2 {
            let token = rig.start_as("order-17", "a", &counted());
            rig.make_durable();
            assert_eq!(rig.sent(token), rig.chosen("order-17"));
        }
        // From every shard, and twice in one transaction.
        for shard in 0..3 {
            let key = rig.key_in(shard, "k");
            let start = flow("note", "a", counted());
            let token = rig.run("note", &key, s().send_as(start.clone(), "order-17").send_as(start, "order-17"));
            rig.settle();
            assert_eq!(rig.value(token), json!("order-17"), "a handler is told the id that it chose");
        }
        assert_eq!(counter(&mut rig), json!(1));
        let id = rig.chosen("order-17");
        assert_eq!(rig.output(id), json!("done"));
        assert_eq!(rig.view(id).record.chosen_id.as_deref(), Some("order-17"));
        if crashes {
            rig.crash();
        }
    }
    rig.assert_no_leftovers();
}

#[test]
fn two_starts_of_one_transaction_are_one() {
    let mut rig = kept_for_long();
    let start = flow("note", "a", counted());
    rig.run("note", "k", s().send_as(start.clone(), "order-17").send_as(start, "order-17"));
    rig.settle();
    assert_eq!(counter(&mut rig), json!(1));
    let other = flow("note", "a", s());
    rig.run("note", "k", s().send_as(flow("note", "a", counted()), "second").send_as(other, "second"));
    rig.settle();
    assert_eq!(counter(&mut rig), json!(2));
    let shard = rig.chosen("second").shard.0;
    assert_eq!(rig.dead_letters(shard), 1);
    rig.assert_no_leftovers();
}

#[test]
fn another_workflow_does_not_get_the_id() {
    let mut rig = kept_for_long();
    let id = rig.chosen("order-17");
    // Before it has begun, while it runs, and when it has ended.
    let waits = s().wait("go", None);
    rig.start_as("order-17", "a", &waits);
    for _ in 0..2 {
        for (key, script) in [("b", waits.clone()), ("a", counted())] {
            let token = rig.start_as("order-17", key, &script);
            rig.make_durable();
            assert_eq!(rig.error(token), ErrorCode::IdempotencyMismatch);
        }
        rig.signal(id, "go", "1", None);
        rig.settle();
    }
    assert_eq!(rig.output(id), json!(1));
    rig.run("note", "k", s().send_as(flow("note", "a", counted()), "order-17"));
    rig.settle();
    assert_eq!((counter(&mut rig), rig.dead_letters(id.shard.0)), (Json::Null, 1), "its sender did not wait");
    // To try again helps once the id is free.
    let token = rig.ask(id.shard, ListDeadLetters { after: None, limit: 10 });
    rig.make_durable();
    let Some(Ok(Reply::DeadLetters(found, false))) = rig.reply(token).cloned() else { panic!("a list") };
    let retry = |rig: &mut Rig| rig.ask(id.shard, EndDeadLetter { field: found[0].0.clone(), is_retried: true });
    let token = retry(&mut rig);
    rig.make_durable();
    assert_eq!(rig.error(token), ErrorCode::IdempotencyMismatch);
    rig.tick(25 * 3_600_000);
    rig.settle();
    retry(&mut rig);
    rig.settle();
    assert_eq!((counter(&mut rig), rig.dead_letters(id.shard.0)), (json!(1), 0));
    assert_eq!(rig.output(id), json!("done"));
    rig.assert_no_leftovers();
}

#[test]
fn only_workflows_have_ids_of_ones_own_and_only_good_ones() {
    let mut rig = kept_for_long();
    let token = rig.run("note", "k", s().send_as(run("counter", "c", s().add("n", 1)), "order-17"));
    rig.settle();
    assert_eq!(rig.error(token), ErrorCode::FunctionFailed);
    for bad in ["", "a b", "inv_000000000000000000010000", &"x".repeat(limits::CHOSEN_ID_BYTES + 1)] {
        let token = rig.run("note", "k", s().send_as(flow("note", "a", counted()), bad));
        rig.settle();
        assert_eq!(rig.error(token), ErrorCode::BadRequest, "{bad}");
    }
    assert_eq!(counter(&mut rig), Json::Null);
}

/// Another shard may have kept what it did for the one before, because word of its end was lost.
#[test]
fn an_id_is_free_once_its_result_has_expired_and_all_is_done_anew() {
    for shard in 0..3 {
        let mut rig = kept_for(3, 60_000);
        let (own, id) = (rig.key_in(shard, "c"), rig.key_in(0, "order-"));
        let count = s().call(run("counter", &own, s().add("n", 1))).random();
        let mut drawn = Vec::new();
        for number in 1..=3 {
            rig.start_as(&id, "a", &count);
            for _ in 0..20 {
                // Nobody hears that a kept result is not needed any more.
                rig.make_durable();
                while rig.carry_peer() {}
            }
            rig.crash();
            rig.settle();
            let chosen = rig.chosen(&id);
            drawn.push(rig.output(chosen));
            assert_eq!(rig.field("counter", &own, "n"), json!(number), "shard {shard}");
            rig.tick(61_000);
        }
        drawn.dedup();
        assert_eq!(drawn.len(), 3, "each draws its own random numbers");
    }
}

#[test]
fn whoever_waits_gets_the_result_from_any_shard() {
    for shard in 0..3 {
        let mut rig = kept_for_long();
        let id = rig.key_in(shard, "order-");
        let chosen = rig.chosen(&id);
        let waiting = rig.flow("asks", s().result(Some(&id), None));
        rig.settle();
        assert_eq!(rig.invocation_result(waiting), ResultState::Pending, "nobody has started it");
        rig.start_as(&id, "a", &s().wait("go", None));
        rig.tick(60_000);
        rig.settle();
        assert_eq!(rig.view(waiting).waits_for, [format!("result {id}")]);
        rig.crash();
        rig.settle();
        rig.signal(chosen, "go", "7", None);
        rig.settle();
        rig.tick(60_000);
        rig.settle();
        assert_eq!((rig.output(chosen), rig.output(waiting)), (json!(7), json!(7)));
        assert_eq!(result_of(&mut rig, s().result(Some(&id), None)), ResultState::Value("7".into()), "it has ended");
        rig.assert_no_leftovers();
    }
}

#[test]
fn it_is_told_at_once_when_the_other_one_ends() {
    for shard in 0..3 {
        let mut rig = kept_for_long();
        let key = rig.key_in(shard, "b");
        let waiting = rig.flow("asks", s().send(flow("note", &key, s().wait("go", None)), 0).result(None, None));
        rig.settle();
        let asked = rig.noted(waiting);
        assert_eq!(asked.len(), 1, "{asked:?}");
        let of = rig.listed(shard, 10, true).into_iter().map(|row| row.0).find(|id| *id != waiting).expect("the child");
        rig.signal(of, "go", "8", None);
        rig.run_to_rest();
        assert_eq!(rig.output(waiting), json!(8), "no time has passed");
        rig.assert_no_leftovers();
    }
}

#[test]
fn the_failure_of_another_workflow_is_thrown() {
    let mut rig = kept_for_long();
    for shard in 0..3 {
        let ids: Vec<_> = ["aborts-", "cancelled-", "killed-"].iter().map(|name| rig.key_in(shard, name)).collect();
        rig.start_as(&ids[0], "a", &s().abort("no"));
        for id in &ids[1..] {
            rig.start_as(id, "a", &s().wait("go", None));
        }
        rig.settle();
        let (cancelled, killed) = (rig.chosen(&ids[1]), rig.chosen(&ids[2]));
        rig.cancel(cancelled);
        rig.kill(killed);
        rig.settle();
        for (id, wanted) in ids.iter().zip([ErrorCode::Aborted, ErrorCode::WorkflowEnded, ErrorCode::WorkflowEnded]) {
            let result = result_of(&mut rig, s().result(Some(id), None));
            assert_eq!(code(&result), wanted, "{id}");
            assert_eq!(result_of(&mut rig, s().try_result(Some(id), None)), ResultState::Value("null".into()));
        }
    }
    rig.assert_no_leftovers();
}

#[test]
fn it_waits_no_longer_than_it_wants_nor_for_what_nobody_starts() {
    for shard in 0..3 {
        let mut rig = kept_for_long();
        let id = rig.key_in(shard, "order-");
        let limited = rig.flow("asks", s().result(Some(&id), Some(5_000)));
        let patient = rig.flow("asks", s().result(Some(&id), None));
        let never = InvocationId { shard: ShardId(shard), sequence: Default::default() }.to_string();
        assert_eq!(code(&result_of(&mut rig, s().result(Some(&never), None))), ErrorCode::UnknownInvocation);
        for _ in 0..19 {
            rig.tick(limits::RESULT_UNKNOWN_MS / 20);
            rig.settle();
        }
        assert_eq!(code(&rig.invocation_result(limited)), ErrorCode::WaitLimit);
        assert_eq!(rig.invocation_result(patient), ResultState::Pending);
        rig.tick(90_000);
        rig.settle();
        assert_eq!(code(&rig.invocation_result(patient)), ErrorCode::UnknownInvocation);
        rig.assert_no_leftovers();
    }
}

#[test]
fn transactions_do_not_wait_and_nobody_waits_for_itself() {
    let mut rig = kept_for_long();
    let token = rig.run("note", "k", s().result(Some("order-17"), None));
    rig.settle();
    assert_eq!(rig.error(token), ErrorCode::FunctionFailed);
    let token = rig.start_as("order-17", "a", &s().result(Some("order-17"), None));
    rig.settle();
    let id = rig.sent(token);
    assert!(rig.failures(id)[0].error.message.contains("its own result"), "{:?}", rig.failures(id));
    rig.cancel(id);
    rig.settle();
    rig.assert_no_leftovers();
}
