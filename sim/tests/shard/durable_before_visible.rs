//! No reply, and nothing another client can see, depends on an effect that a power cut could
//! still undo.

use crate::*;

#[test]
fn a_reply_waits_for_its_entry() {
    let mut rig = Rig::new(1);
    let token = rig.run("counter", "c", s().add("n", 1));
    assert!(rig.reply(token).is_none());
    rig.crash();
    assert_eq!(rig.field("counter", "c", "n"), Json::Null);
    let token = rig.run("counter", "c", s().add("n", 1));
    rig.make_durable();
    assert_eq!(rig.value(token), json!(1));
    rig.crash();
    assert_eq!(rig.field("counter", "c", "n"), json!(1));
}

#[test]
fn what_reads_an_effect_waits_for_it_and_nothing_else_does() {
    let mut rig = Rig::new(1);
    rig.run("counter", "c", s().add("n", 1));
    let query = rig.read("counter", "c", s().get("n"));
    let state = rig.state("counter", "c", Some("n"));
    let all = rig.state("counter", "c", None);
    let nested = rig.read("note", "x", s().call(read("counter", "c", s().get("n"))));
    let failed = rig.run("counter", "c", s().get("n").fail("saw it"));
    let aborted = rig.run("counter", "c", s().get("n").abort("saw it"));
    let unchanged = rig.run("counter", "c", s().get("n"));
    let other = rig.read("counter", "d", s().get("n"));
    for token in [query, state, all, nested, failed, aborted, unchanged] {
        assert!(rig.reply(token).is_none(), "{token:?} saw what may be lost");
    }
    assert_eq!(rig.value(other), Json::Null);
    rig.make_durable();
    assert_eq!((rig.value(query), rig.error(failed)), (json!(1), ErrorCode::FunctionFailed));
    rig.assert_at_rest();
}

#[test]
fn replies_come_in_the_order_of_what_they_wait_for() {
    let mut rig = Rig::new(1);
    let tokens: Vec<_> = (0..4).map(|_| rig.run("counter", "c", s().add("n", 1))).collect();
    rig.core.give(ShardId(0), millrace_shard::Input::Durable(millrace_base::Lsn(2)));
    rig.make_durable();
    let values: Vec<Json> = tokens.into_iter().map(|token| rig.value(token)).collect();
    assert_eq!(values, [1, 2, 3, 4]);
}

#[test]
fn a_message_leaves_and_is_acknowledged_only_when_it_is_durable() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    rig.run("note", &here, s().send(run("note", &there, s().add("n", 1)), 0));
    rig.tick(1_000);
    assert!(rig.deliveries.is_empty(), "not before the sender's entry is durable");
    rig.make_durable();
    let (to, delivery) = rig.deliveries.pop_front().expect("sent");
    rig.deliver(to, delivery);
    assert!(rig.acknowledgements.is_empty(), "not before the receiver's entry is durable");
    rig.make_durable();
    assert_eq!(rig.acknowledgements.len(), 1);
}

#[test]
fn an_invocation_is_known_only_when_it_is_durable() {
    let mut rig = Rig::new(1);
    let sent = rig.send(("counter", "c", "run"), s().add("n", 1), 0, None);
    assert!(rig.reply(sent).is_none());
    rig.make_durable();
    let id = rig.sent(sent);
    let asked = rig.invocation(id);
    assert!(rig.reply(asked).is_some(), "its outcome is durable by now");
}

#[test]
fn without_a_log_everything_counts_at_once() {
    let mut rig = Rig::new(2);
    rig.options.is_durable_at_once = true;
    rig.crash();
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let token = rig.run("note", &here, s().send(run("note", &there, s().add("n", 1)), 0).returns("ok"));
    assert_eq!(rig.value(token), json!("ok"));
    assert_eq!(rig.deliveries.len(), 1, "messages do not wait for a disk that is never asked");
}
