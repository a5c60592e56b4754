//! With a full disk nothing changes, reads go on, and everything goes on when space returns.

use crate::*;

#[test]
fn writes_are_refused_and_reads_are_not() {
    let mut rig = Rig::new(1);
    rig.run("counter", "c", s().add("n", 1));
    let kept = rig.run_keyed("counter", "c", s().add("n", 1), "k");
    rig.make_durable();
    let entries = rig.log.len();
    rig.core.is_read_only = true;
    let refused = [
        rig.run("counter", "c", s().add("n", 1)),
        rig.run("counter", "c", s().send(run("note", "x", s()), 0)),
        rig.run_keyed("counter", "c", s().get("n"), "new"),
        rig.run_keyed("counter", "c", s().abort("no"), "new"),
        rig.send(("counter", "c", "run"), s().add("n", 1), 0, None),
        rig.route(s().call(run("counter", "c", s().add("n", 1))), Some("r")),
    ];
    for token in refused {
        assert_eq!(rig.error(token), ErrorCode::ReadOnly);
    }
    let query = rig.read("counter", "c", s().get("n"));
    let unchanged = rig.run("counter", "c", s().get("n"));
    let aborted = rig.run("counter", "c", s().abort("no"));
    let repeated = rig.run_keyed("counter", "c", s().add("n", 1), "k");
    assert_eq!((rig.value(query), rig.value(unchanged), rig.error(aborted)), (json!(2), json!(2), ErrorCode::Aborted));
    assert_eq!(rig.value(repeated), rig.value(kept));
    rig.tick(120_000);
    assert_eq!(rig.log.len(), entries, "nothing is written, not even housekeeping");
    rig.core.is_read_only = false;
    let again = rig.run("counter", "c", s().add("n", 1));
    rig.make_durable();
    assert_eq!(rig.value(again), json!(3));
    rig.assert_at_rest();
}

#[test]
fn messages_wait_for_space_and_nobody_is_kept_busy() {
    let mut rig = Rig::new(2);
    let (here, there) = (rig.key_in(0, "a"), rig.key_in(1, "b"));
    let due_soon =
        s().send(run("note", &here, s().add("n", 1).hash()), 10).send(run("note", &there, s().add("n", 1)), 10);
    rig.run("note", &here, due_soon);
    rig.make_durable();
    rig.tick(10);
    rig.core.is_read_only = true;
    rig.run_to_rest();
    rig.tick(1_000);
    rig.run_to_rest();
    assert_eq!((rig.field("note", &here, "n"), rig.field("note", &there, "n")), (Json::Null, Json::Null));
    assert_eq!(rig.core.with(ShardId(0), |shard, _| shard.next_due()), None, "a driver would spin");
    rig.core.is_read_only = false;
    rig.tick(1_000);
    rig.run_to_rest();
    rig.tick(1_000);
    rig.run_to_rest();
    assert_eq!((rig.field("note", &here, "n"), rig.field("note", &there, "n")), (json!(1), json!(1)));
    assert_eq!(rig.bookkeeping_rows("dead"), 0);
    rig.assert_at_rest();
}
