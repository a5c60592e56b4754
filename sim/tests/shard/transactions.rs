//! Whatever transactions over several shards do, they end within their limits and leave nothing held. That they
//! happen as a whole or not at all is in `cuts`, what each step of them does in `transaction_states`.

use millrace_func::Limits;

use crate::*;

fn add() -> Script {
    s().add("n", 1)
}

/// Keys in three shards.
fn keys(rig: &Rig) -> [String; 3] {
    [0, 1, 2].map(|shard| rig.key_in(shard, "k"))
}

#[test]
fn work_that_never_ends_is_given_up_in_every_shard_when_time_is_up() {
    for kind in 0..5 {
        let mut rig = Rig::new(3);
        let [a, b, c] = keys(&rig);
        let never = match kind {
            0 => s().call(run("note", &b, add().hash())),
            1 => add().call(run("note", &b, add())).hash(),
            2 => add().call(run("note", &b, add().call(run("note", &c, add().hash())))),
            // Its call has ended, and its work has not: nobody but the other shard could commit it.
            3 => s().call(run("note", &b, add().start_hash())),
            _ => add().call(run("note", &b, add().start_hash())).call(run("note", &c, add())),
        };
        let token = rig.run("note", &a, never);
        let behind = rig.run("note", &b, s().add("m", 1));
        let rest = |rig: &mut Rig| {
            for _ in 0..20 {
                rig.carry_peers();
                rig.make_durable();
            }
        };
        rest(&mut rig);
        assert!(rig.reply(token).is_none());
        for _ in 0..4 {
            rig.tick(5_000);
            rest(&mut rig);
        }
        assert_eq!(rig.error(token), ErrorCode::WaitLimit, "kind {kind}");
        assert!(rig.reply(behind).is_some(), "kind {kind}");
        rig.assert_at_rest();
        while !rig.offloads.is_empty() {
            rig.finish_offload();
        }
        rig.settle();
        for key in [&a, &b, &c] {
            assert_eq!(rig.field("note", key, "n"), Json::Null, "kind {kind}");
        }
        rig.assert_at_rest();
    }
}

#[test]
fn a_transaction_that_opens_too_many_entities_is_refused_and_lets_go() {
    let mut rig = Rig::new(3);
    let root = rig.key_in(0, "root");
    let calls = |from: usize| (from..from + 900).map(|index| run("note", &format!("k{index}"), s()));
    let group = |index: usize| run("note", &format!("g{index}"), s().all(calls(index * 900)));
    let token = rig.run("note", &root, (0..40).fold(s(), |script, index| script.call(group(index))));
    let begun = std::time::Instant::now();
    while rig.carry_peer() {}
    println!("refused after {:?}", begun.elapsed());
    rig.settle();
    assert_eq!(rig.error(token), ErrorCode::OperationLimit);
    rig.assert_at_rest();
}

#[test]
fn a_cycle_of_calls_over_shards_ends_at_the_depth_limit() {
    let limits = Limits { call_depth: 8, ..Limits::default() };
    let mut rig = Rig::with_limits(3, limits);
    let keys = keys(&rig);
    let cycle =
        |depth: usize| (1..depth).rev().fold(add(), |inner, index| add().call(run("note", &keys[index % 3], inner)));
    let token = rig.run("note", &keys[0], cycle(20));
    rig.settle();
    assert_eq!(rig.error(token), ErrorCode::DepthLimit);
    assert!(keys.iter().all(|key| rig.field("note", key, "n").is_null()));
    let caught = (1..8).rev().fold(s().try_call(run("note", &keys[0], cycle(9))), |inner, index| {
        add().call(run("note", &keys[index % 3], inner))
    });
    let token = rig.run("note", &keys[0], caught);
    rig.settle();
    assert!(rig.reply(token).is_some_and(Result::is_ok), "what is caught is only taken back");
    rig.assert_at_rest();
}
