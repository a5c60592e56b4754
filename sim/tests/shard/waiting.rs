//! A workflow is there from the moment it is started, whether or not it can run: it is seen, signalled
//! and cancelled before it begins, and while its code is not deployed.

use millrace_base::UnixMillis;
use millrace_shard::Input;
use millrace_shard::question::EndDeadLetter;

use crate::*;

/// Notes that it has begun, then takes signals and notes each.
fn taker(signals: usize) -> Script {
    let script = s().call(run("counter", "begun", s().add("n", 1)));
    (0..signals).fold(script, |script, _| script.wait("go", None).call(run("counter", "taken", s().add("n", 1))))
}

/// Starts one that is to begin in a minute.
fn delayed(rig: &mut Rig, script: Script) -> InvocationId {
    let token = rig.send(("note", "a", "flow"), script, 60_000, None);
    rig.make_durable();
    rig.sent(token)
}

fn done(rig: &mut Rig, token: millrace_shard::Token) {
    rig.make_durable();
    assert!(matches!(rig.reply(token), Some(Ok(_))), "{:?}", rig.reply(token));
}

fn kept_for_long(shard_count: u16) -> Rig {
    let mut rig = Rig::new(shard_count);
    rig.options.retention_ms = 24 * 3_600_000;
    rig.crash();
    rig
}

#[test]
fn one_that_has_yet_to_begin_is_seen_and_listed() {
    for crashes in [false, true] {
        let mut rig = kept_for_long(1);
        let began = rig.core.now;
        let running = rig.flow("b", s().wait("go", None));
        let pending = delayed(&mut rig, taker(0));
        if crashes {
            rig.crash();
        }
        let view = rig.view(pending);
        assert_eq!((view.due, view.record.began), (Some(began.plus(60_000)), UnixMillis(0)));
        assert_eq!((view.record.service.as_str(), &*view.record.key), ("note", &b"a"[..]));
        for page in [1, 10] {
            let listed: Vec<_> = rig.listed(0, page, true).into_iter().map(|row| (row.0, row.1)).collect();
            assert_eq!(listed, [(running, true), (pending, false)]);
        }
        rig.tick(60_000);
        assert_eq!(rig.view(pending).due, None);
        assert_eq!(rig.field("counter", "begun", "n"), json!(1));
        assert!(matches!(rig.invocation_result(pending), ResultState::Value(_)));
        rig.cancel(running);
        rig.assert_no_leftovers();
    }
}

#[test]
fn signals_that_come_before_it_begins_are_kept() {
    let mut rig = kept_for_long(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let token = rig.send(("note", &here, "flow"), taker(2), 60_000, None);
    rig.make_durable();
    let id = rig.sent(token);
    let early = rig.signal(id, "go", "1", Some("k"));
    assert!(rig.reply(early).is_none(), "not before it is durable");
    done(&mut rig, early);
    // And one from a handler of another shard.
    rig.run("note", &there, s().signal(Some(&id.to_string()), "go", 2));
    rig.run_to_rest();
    assert_eq!(rig.bookkeeping_rows("signal"), 2);
    assert_eq!(rig.bookkeeping_rows("inbox"), 1, "the signal does not wait in line");
    rig.crash();
    rig.tick(60_000);
    rig.run_to_rest();
    assert!(matches!(rig.invocation_result(id), ResultState::Value(_)));
    assert_eq!(rig.field("counter", "taken", "n"), json!(2));
    rig.settle();
    rig.assert_no_leftovers();
}

#[test]
fn one_that_is_cancelled_before_its_time_never_begins() {
    for crashes in [false, true] {
        let mut rig = kept_for_long(1);
        let id = delayed(&mut rig, taker(1).compensate(run("counter", "undone", s().add("n", 1))));
        let signal = rig.signal(id, "go", "1", None);
        done(&mut rig, signal);
        let cancelled = rig.cancel(id);
        assert!(rig.reply(cancelled).is_none(), "not before it is durable");
        done(&mut rig, cancelled);
        if crashes {
            rig.crash();
        }
        let again = rig.cancel(id);
        done(&mut rig, again);
        rig.tick(60_000);
        rig.run_to_rest();
        assert!(matches!(rig.invocation_result(id), ResultState::Error(error) if error.code == ErrorCode::Cancelled));
        assert!(rig.view(id).record.has_ended && rig.view(id).journal.is_empty());
        assert_eq!(rig.listed(0, 10, true), []);
        assert_eq!(rig.listed(0, 10, false).len(), 1);
        assert_eq!(rig.field("counter", "begun", "n"), Json::Null);
        assert_eq!(rig.field("counter", "undone", "n"), Json::Null);
        rig.assert_no_leftovers();
        for _ in 0..3 {
            rig.tick(24 * 3_600_000);
            rig.make_durable();
        }
        assert_eq!((rig.bookkeeping_rows("ended"), rig.bookkeeping_rows("outcome")), (0, 0));
    }
}

#[test]
fn a_cancel_that_is_lost_in_a_crash_was_not_answered() {
    let mut rig = kept_for_long(1);
    let id = delayed(&mut rig, taker(0));
    let token = rig.cancel(id);
    assert!(rig.reply(token).is_none());
    rig.crash();
    rig.tick(60_000);
    rig.make_durable();
    assert_eq!(rig.field("counter", "begun", "n"), json!(1));
    rig.assert_no_leftovers();
}

#[test]
fn one_that_a_handler_starts_later_is_there_as_well() {
    for is_away in [false, true] {
        let mut rig = kept_for_long(2);
        let (here, there) = (rig.key_in(0, "a"), rig.key_in(u16::from(is_away), "b"));
        let token = rig.run("note", &here, s().send(flow("note", &there, taker(1)), 60_000));
        rig.run_to_rest();
        let id = InvocationId::parse(rig.value(token).as_str().expect("an id"), 2).expect("an id");
        rig.crash();
        assert!(rig.view(id).due.is_some());
        assert_eq!(rig.invocation_result(id), ResultState::Pending);
        let signal = rig.signal(id, "go", "1", None);
        done(&mut rig, signal);
        rig.tick(60_000);
        rig.run_to_rest();
        assert!(matches!(rig.invocation_result(id), ResultState::Value(_)));
        let second = rig.run("note", &here, s().send(flow("note", &there, taker(1)), 60_000));
        rig.run_to_rest();
        let id = InvocationId::parse(rig.value(second).as_str().expect("an id"), 2).expect("an id");
        let cancelled = rig.cancel(id);
        done(&mut rig, cancelled);
        rig.tick(60_000);
        rig.run_to_rest();
        assert!(matches!(rig.invocation_result(id), ResultState::Error(error) if error.code == ErrorCode::Cancelled));
        assert_eq!(rig.field("counter", "begun", "n"), json!(1));
        rig.settle();
        rig.assert_no_leftovers();
    }
}

#[test]
fn one_whose_app_is_gone_when_it_is_due_is_tried_again_and_may_be_cancelled() {
    let mut rig = kept_for_long(1);
    let (first, second) = (delayed(&mut rig, taker(0)), delayed(&mut rig, taker(0)));
    rig.is_appless = true;
    rig.crash();
    rig.tick(60_000);
    rig.make_durable();
    rig.crash();
    assert!(rig.view(first).due > Some(rig.core.now), "its next attempt");
    let cancelled = rig.cancel(second);
    done(&mut rig, cancelled);
    rig.deploy();
    rig.tick(60_000);
    rig.run_to_rest();
    assert!(matches!(rig.invocation_result(first), ResultState::Value(_)));
    assert_eq!(rig.field("counter", "begun", "n"), json!(1));
    rig.assert_no_leftovers();
}

#[test]
fn one_that_cannot_begin_for_good_has_failed_and_begins_when_it_is_tried_again() {
    let mut rig = kept_for_long(1);
    let id = delayed(&mut rig, taker(0));
    rig.undeploy();
    for _ in 0..20 {
        rig.tick(60_000);
    }
    rig.make_durable();
    assert!(matches!(rig.invocation_result(id), ResultState::Error(_)));
    assert_eq!(rig.listed(0, 10, false).len(), 1);
    rig.deploy();
    let (field, _) = rig.rows(0, "dead").remove(0);
    let token = millrace_shard::Token(1 << 60);
    rig.core.is_read_only = true;
    rig.core.give(ShardId(0), Input::Ask(token, EndDeadLetter { field: field.clone(), is_retried: true }.into()));
    rig.make_durable();
    assert_eq!(rig.listed(0, 10, true), [], "nothing has happened: the disk was full");
    rig.core.is_read_only = false;
    let token = millrace_shard::Token((1 << 60) + 1);
    rig.core.give(ShardId(0), Input::Ask(token, EndDeadLetter { field: field.clone(), is_retried: true }.into()));
    rig.make_durable();
    assert!(matches!(rig.invocation_result(id), ResultState::Value(_)));
    assert_eq!(rig.listed(0, 10, false).len(), 1, "once");
    assert_eq!(rig.field("counter", "begun", "n"), json!(1));
    rig.assert_no_leftovers();
}

#[test]
fn a_stranded_one_is_listed_and_goes_on_when_its_app_is_deployed_again() {
    let mut rig = kept_for_long(1);
    let ids: Vec<_> = (0..30).map(|_| rig.flow("a", taker(2))).collect();
    let first = rig.signal(ids[0], "go", "1", None);
    done(&mut rig, first);
    rig.is_appless = true;
    rig.crash();
    rig.run_to_rest();
    let listed: Vec<_> = rig.listed(0, 7, true).into_iter().map(|row| (row.0, row.1)).collect();
    assert_eq!(listed, ids.iter().map(|id| (*id, true)).collect::<Vec<_>>());
    assert!(rig.view(ids[0]).waits_for.concat().contains("deployment"), "{:?}", rig.view(ids[0]).waits_for);
    let signal = rig.signal(ids[0], "go", "2", None);
    done(&mut rig, signal);
    let cancelled = rig.cancel(ids[1]);
    done(&mut rig, cancelled);
    rig.tick(1_000);
    rig.deploy();
    rig.tick(1_000);
    rig.run_to_rest();
    assert!(matches!(rig.invocation_result(ids[0]), ResultState::Value(_)));
    assert!(matches!(rig.invocation_result(ids[1]), ResultState::Error(error) if error.code == ErrorCode::Cancelled));
    for id in &ids[2..] {
        assert_eq!(rig.view(*id).waits_for, ["wait go"]);
        rig.cancel(*id);
    }
    assert_eq!(rig.field("counter", "begun", "n"), json!(30));
    assert_eq!(rig.field("counter", "taken", "n"), json!(2));
    rig.assert_no_leftovers();
}

#[test]
fn lists_of_large_workflows_come_in_pages_of_so_many_bytes() {
    let mut rig = Rig::new(1);
    rig.run("note", "big", s().set("x", "x".repeat(1_000_000)));
    let ended: Vec<_> = (0..40).map(|_| rig.flow("a", s().call(read("note", "big", s().get("x"))))).collect();
    rig.run_to_rest();
    let large = s().returns("x".repeat(3_900_000));
    let pending: Vec<_> = (0..10).map(|_| rig.send(("note", "a", "flow"), large.clone(), 60_000, None)).collect();
    rig.make_durable();
    let pending: Vec<_> = pending.into_iter().map(|token| rig.sent(token)).collect();
    let listed: Vec<_> = rig.listed(0, 100, false).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(listed, [pending, ended].concat(), "each once");
}
