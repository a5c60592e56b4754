//! A query that is answered without a transaction sees and tells what one would, or is not answered.

use crate::*;
use millrace_shard::Input;

fn ask(rig: &mut Rig, key: &str) -> Option<Json> {
    let found = rig.fast_read(("note", key, "read"), &s().get("n"))?;
    Some(serde_json::from_slice(&found.expect("a field can be read")).expect("outputs are JSON"))
}

#[test]
fn it_tells_nothing_that_may_be_lost() {
    let mut rig = Rig::new(1);
    rig.run("note", "a", s().add("n", 1));
    assert_eq!(ask(&mut rig, "a"), None);
    assert_eq!(ask(&mut rig, "b"), Some(Json::Null), "nobody has written that");
    rig.make_durable();
    assert_eq!(ask(&mut rig, "a"), Some(json!(1)));
}

#[test]
fn it_does_not_overlook_what_is_prepared() {
    let mut rig = Rig::new(2);
    let (a, b) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    rig.run("note", &a, s().add("n", 1).call(run("note", &b, s().add("n", 1))));
    while rig.core.shards[&ShardId(1)].figures().unfinished == 0 {
        assert!(rig.carry_peer(), "the other shard is asked to prepare");
    }
    rig.make_durable_in(ShardId(1));
    assert_eq!(ask(&mut rig, &b), None, "its home may have committed");
    rig.settle();
    assert_eq!((ask(&mut rig, &a), ask(&mut rig, &b)), (Some(json!(1)), Some(json!(1))));
    rig.assert_at_rest();
}

#[test]
fn it_sees_what_is_committed_and_waits_for_nobody_who_may_yet_write() {
    let mut rig = Rig::new(1);
    rig.run("note", "a", s().add("n", 1).hash());
    assert_eq!(ask(&mut rig, "a"), Some(Json::Null));
    rig.settle();
    assert_eq!(ask(&mut rig, "a"), Some(json!(1)));
    rig.assert_at_rest();
}

#[test]
fn only_queries_of_sound_shards_are_answered() {
    let mut rig = Rig::new(1);
    assert!(rig.fast_read(("note", "a", "run"), &s().get("n")).is_none(), "that may write");
    assert!(rig.fast_read(("note", "", "read"), &s().get("n")).is_none(), "no entity has that key");
    rig.core.give(ShardId(0), Input::Stop("the disk failed".to_owned()));
    assert_eq!(ask(&mut rig, "a"), None);
}
