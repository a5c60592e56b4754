//! The keys of a service in a shard: what is committed and what the transaction has written, in
//! pages, and never before what they tell is durable.

use std::collections::VecDeque;

use millrace_shard::PeerBody;

use crate::*;

/// The number of the service `note`.
const NOTE: u16 = 2;

/// The keys that a query is given.
fn keys(rig: &mut Rig, prefix: &str, after: Option<&str>, limit: usize) -> Json {
    let token = rig.read("account", "a", s().keys(NOTE, prefix, after, limit));
    rig.make_durable();
    rig.value(token)
}

fn noted(rig: &mut Rig, keys: &[&str]) {
    for key in keys {
        rig.run("note", key, s().set("x", 1));
    }
}

#[test]
fn they_are_of_one_service_in_order_and_in_pages() {
    let mut rig = Rig::new(1);
    noted(&mut rig, &["c", "a1", "a", "b"]);
    rig.run("counter", "z", s().set("x", 1));
    rig.add_records();
    let other = rig.run("account", "a", s().record("write", "note", "r", s().set("x", 1)));
    rig.make_durable();
    assert_eq!(rig.value(other), json!(1));
    assert_eq!(keys(&mut rig, "", None, 100), json!(["a", "a1", "b", "c"]));
    assert_eq!(keys(&mut rig, "", None, 2), json!(["a", "a1"]));
    assert_eq!(keys(&mut rig, "", Some("a1"), 2), json!(["b", "c"]));
    assert_eq!(keys(&mut rig, "a", Some("a"), 2), json!(["a1"]));
    assert_eq!(keys(&mut rig, "b", Some("a"), 2), json!(["b"]));
    assert_eq!(keys(&mut rig, "", Some("c"), 2), json!([]));
    assert_eq!(keys(&mut rig, "", None, 0), json!([]));
    rig.assert_at_rest();
}

#[test]
fn they_are_of_one_shard() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    noted(&mut rig, &[&here, &there]);
    let token = rig.read("account", &there, s().keys(NOTE, "", None, 100));
    rig.make_durable();
    assert_eq!(rig.value(token), json!([there]));
}

#[test]
fn a_transaction_sees_what_it_has_written_itself() {
    let mut rig = Rig::new(1);
    noted(&mut rig, &["a", "b", "c"]);
    rig.run("note", "c", s().set("y", 1));
    let gone = |key: &str| run("note", key, s().delete("x"));
    let script = s().call(gone("a")).call(gone("c")).call(run("note", "d", s().set("x", 1)));
    let script = script.call(run("note", "e", s().set("x", 1).delete("x"))).keys(NOTE, "", None, 100);
    let token = rig.run("account", "a", script);
    let script = s().call(run("note", "b", s().delete("x"))).keys(NOTE, "", None, 2);
    let page = rig.run("account", "a", script);
    rig.make_durable();
    assert_eq!(rig.value(token), json!(["b", "c", "d"]), "c has another field");
    assert_eq!(rig.value(page), json!(["c", "d"]), "a page is full although one of it is gone");
    assert_eq!(keys(&mut rig, "", None, 100), json!(["c", "d"]));
}

#[test]
fn what_a_transaction_has_deleted_counts_for_no_bound_of_bytes() {
    for is_flushed in [false, true] {
        let mut rig = Rig::new(1);
        let large = "x".repeat(1_000_000);
        for number in 10..50 {
            rig.run("note", "a", s().set(&number.to_string(), large.as_str()));
        }
        if is_flushed {
            rig.checkpoint();
            rig.crash();
        }
        let most = (10..48).fold(s(), |script, number| script.delete(&number.to_string()));
        let script = most.clone().set("10", 1).scan("", 2).keep().scan("4", 5).keep().delete("10");
        let script = script.keys(NOTE, "", None, 10).keep().kept();
        let token = rig.run("note", "a", script);
        rig.make_durable();
        let (first, last) = (json!(["10", 1]), [json!(["48", large]), json!(["49", large])]);
        assert_eq!(rig.value(token), json!([[first, last[0]], last, ["a"]]));
    }
    let mut rig = Rig::new(1);
    for number in 10..50 {
        rig.run("note", "a", s().set(&number.to_string(), "x".repeat(1_000_000)));
    }
    let all = rig.run("note", "a", s().delete("10").scan("", 100));
    rig.make_durable();
    assert_eq!(rig.error(all), ErrorCode::SizeLimit, "what is there has too many");
}

#[test]
fn what_they_tell_is_durable_first() {
    let mut rig = Rig::new(1);
    noted(&mut rig, &["a", "c"]);
    rig.make_durable();
    rig.run("note", "a", s().delete("x"));
    let after_a = rig.read("account", "q", s().keys(NOTE, "", Some("a"), 100));
    assert_eq!(rig.value(after_a), json!(["c"]), "what was deleted lies before the page");
    let all = rig.read("account", "q", s().keys(NOTE, "", None, 100));
    assert!(rig.reply(all).is_none(), "it saw a deletion that may be lost");
    rig.make_durable();
    assert_eq!(rig.value(all), json!(["c"]));
    rig.run("note", "d", s().set("x", 1));
    let page = rig.read("account", "q", s().keys(NOTE, "", None, 1));
    assert_eq!(rig.value(page), json!(["c"]), "what was made lies behind the page");
    let all = rig.read("account", "q", s().keys(NOTE, "", None, 100));
    assert!(rig.reply(all).is_none(), "it saw what may be lost");
    rig.make_durable();
    assert_eq!(rig.value(all), json!(["c", "d"]));
    rig.assert_at_rest();
}

#[test]
fn a_commit_that_the_shard_has_yet_to_hear_of_counts() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let made = rig.run("note", &here, s().set("x", 1).call(run("note", &there, s().set("x", 1))));
    let mut withheld = VecDeque::new();
    for _ in 0..20 {
        rig.make_durable();
        let (taken, left): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut rig.peers).into_iter().partition(|(_, message)| message.body == PeerBody::Commit);
        rig.peers = left;
        withheld.extend(taken);
        rig.carry_peers();
    }
    assert!(
        rig.reply(made).is_some_and(Result::is_ok) && !withheld.is_empty(),
        "answered before the other shard knows"
    );
    let script = s().keys(NOTE, "", None, 100).call(read("note", &there, s().get("x")));
    let names = rig.read("account", &there, s().keys(NOTE, "", None, 100));
    let value = rig.read("account", &there, script);
    rig.make_durable();
    assert_eq!(rig.value(names), json!([there]));
    assert!(rig.reply(value).is_none(), "whoever looks closer waits for the outcome");
    rig.peers.extend(withheld);
    rig.settle();
    assert_eq!(rig.value(value), json!(1));
    rig.assert_at_rest();
}

#[test]
fn they_are_for_who_has_a_shard() {
    let mut rig = Rig::new(1);
    let route = rig.route(s().keys(NOTE, "", None, 1), None);
    assert_eq!(rig.error(route), ErrorCode::FunctionFailed);
    let unknown = rig.read("account", "a", s().keys(99, "", None, 1));
    assert_eq!(rig.error(unknown), ErrorCode::UnknownService);
    let id = rig.flow("a", s().keys(NOTE, "", None, 1));
    rig.run_to_rest();
    assert_eq!(rig.failures(id)[0].error.code, ErrorCode::FunctionFailed);
}
