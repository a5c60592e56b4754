//! A message that fails too often is set aside, where it can be seen, tried again and dropped.

use bytes::Bytes;
use millrace_base::Lsn;
use millrace_shard::Input;
use millrace_shard::question::{EndDeadLetter, ListDeadLetters, ListFailingMessages};
use millrace_shard::{Delivery, Reply, Sequence, Token};

use crate::*;

fn fail_for_good(rig: &mut Rig) {
    for _ in 0..20 {
        rig.tick(60_000);
    }
    rig.make_durable();
}

fn dead_letters(rig: &mut Rig, shard: u16, after: Option<&[u8]>, limit: usize) -> (Vec<Box<[u8]>>, bool) {
    let token = Token(1 << 60 | rig.replies.len() as u64);
    let asked = ListDeadLetters { after: after.map(Into::into), limit };
    rig.core.give(ShardId(shard), Input::Ask(token, asked.into()));
    rig.make_durable();
    match rig.reply(token) {
        Some(Ok(Reply::DeadLetters(dead_letters, has_more))) => {
            for (_, dead_letter) in dead_letters {
                let error = dead_letter.error.as_ref().expect("noted");
                assert_eq!((error.code, dead_letter.message.attempts), (ErrorCode::FunctionFailed, 16));
            }
            (dead_letters.iter().map(|(field, _)| field.clone()).collect(), *has_more)
        }
        other => panic!("{other:?}"),
    }
}

fn end(rig: &mut Rig, field: &[u8], is_retried: bool) -> Token {
    let token = Token(1 << 61 | rig.replies.len() as u64);
    let asked = EndDeadLetter { field: field.into(), is_retried };
    rig.core.give(ShardId(0), Input::Ask(token, asked.into()));
    assert!(!matches!(rig.reply(token), Some(Ok(_))), "not before it is durable");
    rig.make_durable();
    token
}

/// Fails while the entity does not hold enough.
fn needs_enough() -> Script {
    s().get("n").call(read("counter", "gate", s().get("n").when(Json::Null, s().fail("closed")))).add("n", 1)
}

/// Messages that failed and wait, each with how often it was tried.
fn waiting(rig: &mut Rig) -> Vec<(Box<[u8]>, u32)> {
    let token = Token(1 << 59 | rig.replies.len() as u64);
    let asked = ListFailingMessages { after: None, limit: 100 };
    rig.core.give(ShardId(0), Input::Ask(token, asked.into()));
    rig.make_durable();
    match rig.reply(token) {
        Some(Ok(Reply::DeadLetters(dead_letters, false))) => {
            dead_letters.iter().map(|(field, dead_letter)| (field.clone(), dead_letter.message.attempts)).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_is_seen_from_its_first_failure_on_and_cancelled_or_tried_at_once() {
    for is_crashed in [false, true] {
        let mut rig = Rig::new(1);
        rig.options.retention_ms = 24 * 3_600_000;
        rig.crash();
        let sent = ["a", "b", "c"].map(|key| rig.send(("note", key, "run"), needs_enough(), 0, None));
        rig.run("note", "x", s().send(run("note", "d", needs_enough()), 0));
        rig.make_durable();
        let [cancelled, retried, kept] = sent.map(|token| rig.sent(token));
        assert_eq!(waiting(&mut rig).iter().map(|(_, attempts)| *attempts).collect::<Vec<_>>(), [1; 4]);
        rig.tick(60_000);
        if is_crashed {
            rig.make_durable();
            rig.crash();
        }
        let seen = rig.failures(kept).remove(0);
        assert_eq!((seen.kind, seen.attempts, seen.error.code), (Some(StepKind::Send), 2, ErrorCode::FunctionFailed));
        assert_eq!(seen.name, "note/c/run");
        let token = rig.cancel(cancelled);
        rig.make_durable();
        assert_eq!(rig.reply(token), Some(&Ok(Reply::Done)));
        assert!(
            matches!(rig.invocation_result(cancelled), ResultState::Error(error) if error.code == ErrorCode::Cancelled)
        );
        // The last one has no id that its sender knows, but is in the list.
        let listed = waiting(&mut rig);
        assert_eq!(listed.len(), 3);
        let token = end(&mut rig, &listed[2].0, false);
        assert_eq!(rig.reply(token), Some(&Ok(Reply::Done)));
        rig.run("counter", "gate", s().set("n", 1));
        let token = end(&mut rig, &retried.sequence.encode(), true);
        assert_eq!(rig.reply(token), Some(&Ok(Reply::Done)));
        rig.make_durable();
        assert_eq!(rig.field("note", "b", "n"), json!(1), "at once");
        assert_eq!(rig.field("note", "c", "n"), Json::Null, "its time has not come");
        rig.tick(60_000);
        rig.make_durable();
        let noted = ["a", "b", "c", "d"].map(|key| rig.field("note", key, "n"));
        assert_eq!(noted, [Json::Null, json!(1), json!(1), Json::Null]);
        assert_eq!((waiting(&mut rig).len(), rig.bookkeeping_rows("failing"), rig.dead_letters(0)), (0, 0, 0));
        rig.assert_no_leftovers();
    }
}

#[test]
fn dead_letters_are_listed_tried_again_and_dropped() {
    let mut rig = Rig::new(1);
    rig.options.retention_ms = 24 * 3_600_000;
    rig.crash();
    let sent: Vec<_> = (0..5).map(|_| rig.send(("note", "b", "run"), needs_enough(), 0, None)).collect();
    rig.make_durable();
    let ids: Vec<_> = sent.into_iter().map(|token| rig.sent(token)).collect();
    fail_for_good(&mut rig);
    assert_eq!(
        rig.core.with(ShardId(0), |shard, _| (shard.figures().dead_letters, shard.figures().failed_attempts)),
        (5, 5 * 16)
    );
    let (first, has_more) = dead_letters(&mut rig, 0, None, 3);
    assert_eq!((first.len(), has_more), (3, true));
    let (rest, has_more) = dead_letters(&mut rig, 0, first.last().map(|field| &**field), 3);
    assert_eq!((rest.len(), has_more), (2, false));
    rig.run("counter", "gate", s().set("n", 1));
    for field in &first {
        let token = end(&mut rig, field, true);
        assert_eq!(rig.reply(token), Some(&Ok(Reply::Done)));
    }
    rig.crash();
    assert_eq!(rig.dead_letters(0), 2);
    rig.run_to_rest();
    assert_eq!(rig.field("note", "b", "n"), json!(3), "each of them once");
    for field in &rest {
        end(&mut rig, field, false);
    }
    assert_eq!((rig.bookkeeping_rows("dead"), rig.bookkeeping_rows("inbox"), rig.dead_letters(0)), (0, 0, 0));
    let done = ids.iter().filter(|id| matches!(rig.invocation_result(**id), ResultState::Value(_))).count();
    assert_eq!(done, 3, "who sent them finds the new outcome under the old id");
    rig.assert_at_rest();
}

#[test]
fn a_list_of_large_dead_letters_ends_early_and_says_so() {
    let mut rig = Rig::new(1);
    let large = "x".repeat(1_000_000);
    for _ in 0..40 {
        rig.send(("note", "b", "run"), s().set("text", large.as_str()).fail("no"), 0, None);
    }
    rig.make_durable();
    fail_for_good(&mut rig);
    rig.checkpoint();
    rig.crash();
    assert_eq!(rig.dead_letters(0), 40, "counted in parts at the start");
    let (mut listed, mut pages, mut has_more) = (Vec::<Box<[u8]>>::new(), 0, true);
    while has_more {
        let after = listed.last().cloned();
        let (page, more) = dead_letters(&mut rig, 0, after.as_deref(), 1000);
        assert!((1..=17).contains(&page.len()), "{} of a megabyte each", page.len());
        listed.extend(page);
        (pages, has_more) = (pages + 1, more);
    }
    assert!(listed.is_sorted() && listed.len() == 40 && pages == 3, "{} in {pages}", listed.len());
}

#[test]
fn one_that_is_tried_again_and_refused_is_a_dead_letter_once_more() {
    let mut rig = Rig::new(1);
    let gate = s().get("n").when(Json::Null, s().fail("closed")).when(json!(1), s().abort("no"));
    rig.send(("note", "b", "run"), s().call(read("counter", "gate", gate)).add("n", 1), 0, None);
    fail_for_good(&mut rig);
    for (open, left) in [(1, 1), (2, 0)] {
        let (field, _) = rig.rows(0, "dead").pop().expect("one");
        rig.run("counter", "gate", s().set("n", open));
        end(&mut rig, &field, true);
        rig.crash();
        rig.run_to_rest();
        assert_eq!(rig.dead_letters(0), left, "gate {open}");
    }
    assert_eq!(rig.field("note", "b", "n"), json!(1));
    rig.assert_at_rest();
}

#[test]
fn a_dead_letter_is_ended_once() {
    let mut rig = Rig::new(1);
    rig.send(("note", "b", "run"), s().add("n", 1).fail("always"), 0, None);
    fail_for_good(&mut rig);
    let (fields, _) = dead_letters(&mut rig, 0, None, 9);
    end(&mut rig, &fields[0], true);
    let again = end(&mut rig, &fields[0], true);
    assert_eq!(rig.error(again), ErrorCode::UnknownInvocation);
    fail_for_good(&mut rig);
    let (fields, _) = dead_letters(&mut rig, 0, None, 9);
    assert_eq!(fields.len(), 1, "it failed sixteen times more and is back");
    end(&mut rig, &fields[0], false);
    let again = end(&mut rig, &fields[0], false);
    assert_eq!(rig.error(again), ErrorCode::UnknownInvocation);
    assert_eq!(rig.bookkeeping_rows("dead"), 0);
}

#[test]
fn nothing_is_ended_while_the_disk_is_full() {
    let mut rig = Rig::new(1);
    rig.send(("note", "b", "run"), s().fail("always"), 0, None);
    fail_for_good(&mut rig);
    let (fields, _) = dead_letters(&mut rig, 0, None, 9);
    rig.core.is_read_only = true;
    let refused = end(&mut rig, &fields[0], true);
    assert_eq!(rig.error(refused), ErrorCode::ReadOnly);
    assert_eq!(dead_letters(&mut rig, 0, None, 9).0.len(), 1, "reading goes on");
}

#[test]
fn a_message_from_another_shard_that_fails_for_good_stays_where_it_arrived() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    rig.run("note", &here, s().send(run("note", &there, s().fail("always")), 0));
    rig.run_to_rest();
    fail_for_good(&mut rig);
    assert_eq!((dead_letters(&mut rig, 0, None, 9).0.len(), dead_letters(&mut rig, 1, None, 9).0.len()), (0, 1));
    assert_eq!((rig.dead_letters(0), rig.dead_letters(1)), (0, 1));
}

#[test]
fn a_compensation_of_another_shard_s_entity_that_is_tried_again_runs_there() {
    let mut rig = Rig::new(2);
    let far = rig.key_in(1, "far");
    let undo = s().at_least("enough", 1).add("undone", 1);
    let script = s().compensate(run("counter", &far, undo)).abort_step("no");
    let workflow = rig.key_in(0, "w");
    let id = rig.flow(&workflow, script);
    rig.run_to_rest();
    assert_eq!(id.shard, ShardId(0));
    assert_eq!((rig.dead_letters(0), rig.dead_letters(1)), (1, 0), "it waits where the workflow is");
    rig.run("counter", &far, s().set("enough", 1));
    rig.make_durable();
    let (field, _) = rig.rows(0, "dead").remove(0);
    let token = end(&mut rig, &field, true);
    assert_eq!(rig.reply(token), Some(&Ok(Reply::Done)));
    rig.crash();
    rig.run_to_rest();
    assert_eq!(rig.field("counter", &far, "undone"), json!(1));
    assert_eq!((rig.dead_letters(0), rig.dead_letters(1)), (0, 0));
    rig.assert_no_leftovers();
}

#[test]
fn what_cannot_be_read_hides_no_dead_letter_behind_it() {
    let mut rig = Rig::new(2);
    let there = rig.key_in(0, "b");
    // Its place lies before those of the others.
    for index in 0..3 {
        let sequence = Sequence { lsn: Lsn(1), index: index + 1 };
        let after = Sequence { lsn: Lsn(u64::from(index != 0)), index };
        let message = Bytes::from_static(b"of another version");
        rig.deliver(ShardId(0), Delivery { from: ShardId(0), sequence, after, message });
    }
    for _ in 0..3 {
        rig.send(("note", &there, "run"), s().fail("always"), 0, None);
    }
    fail_for_good(&mut rig);
    assert_eq!(rig.dead_letters(0), 6);
    for limit in 1..5 {
        let (mut found, mut after) = (0, None);
        loop {
            let (page, has_more) = dead_letters(&mut rig, 0, after.as_deref(), limit);
            assert!(!has_more || !page.is_empty(), "who has no last one cannot go on behind it");
            (found, after) = (found + page.len(), page.last().cloned());
            if !has_more {
                break;
            }
        }
        assert_eq!(found, 3, "in pages of {limit}");
    }
}
