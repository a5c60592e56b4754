//! A shard whose log has failed answers everything with that, and changes nothing any more.

use crate::*;
use millrace_shard::Input;

#[test]
fn everything_that_waits_is_answered_and_nothing_runs() {
    let mut rig = Rig::new(1);
    let held = rig.run("counter", "c", s().add("n", 1));
    let suspended = rig.run("counter", "d", s().add("n", 1).hash());
    let parked = rig.run("counter", "d", s().add("n", 1));
    rig.send(("counter", "e", "run"), s().add("n", 1).hash(), 0, None);
    rig.core.give(ShardId(0), Input::Stop("the disk failed".to_owned()));
    rig.tick(0);
    for token in [held, suspended, parked] {
        assert_eq!(rig.error(token), ErrorCode::ShardStopped);
    }
    let entries = rig.log.len();
    while !rig.offloads.is_empty() {
        rig.finish_offload();
    }
    let after = [
        rig.run("counter", "c", s().add("n", 1)),
        rig.read("counter", "c", s().get("n")),
        rig.state("counter", "c", None),
        rig.send(("counter", "c", "run"), s(), 0, None),
        rig.route(s().call(run("counter", "c", s().add("n", 1))), None),
    ];
    for token in after {
        assert_eq!(rig.error(token), ErrorCode::ShardStopped);
    }
    rig.tick(100_000);
    assert_eq!(rig.log.len(), entries);
    assert_eq!(rig.core.with(ShardId(0), |shard, _| shard.next_due()), None);
    rig.assert_at_rest();
}
