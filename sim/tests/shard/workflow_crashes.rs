//! Workflows crash at every entry, with every first part left of what was written and not known to be
//! durable, whichever shards share a log; what was said before comes once more; and they end as if nothing had been.

use std::collections::{BTreeMap, VecDeque};

use millrace_sim::random::Rng;
use millrace_sim::rig_flows::Written;
use millrace_sim::rig_logs::OnItsWay;

use crate::layouts::{LAYOUTS, every_choice};
use crate::*;

const SHARDS: u16 = 3;

/// Orders of what happens.
const SEEDS: u64 = 12;

/// What is left of a run.
#[derive(Clone, Debug, PartialEq)]
struct End {
    invocation_result: ResultState,
    journal: Vec<Written>,
    fields: Vec<Json>,
}

struct Scene {
    script: Script,
    fields: Vec<(&'static str, String, &'static str)>,
    /// Signals to send once it has begun.
    signals: Vec<(&'static str, &'static str)>,
}

fn key(shard: u16) -> String {
    Rig::new(SHARDS).key_in(shard, "k")
}

fn add(shard: u16) -> Callee {
    run("counter", &key(shard), s().add("n", 1))
}

fn counters() -> Vec<(&'static str, String, &'static str)> {
    (0..SHARDS).map(|shard| ("counter", key(shard), "n")).collect()
}

/// One thing happens. What needs no disk comes first, so that as little as possible is durable;
/// `rng` says which log is the next to get to the disk, and how much of it. Says whether anything was left to do.
fn step(rig: &mut Rig, rng: &mut Rng, said: &mut Vec<OnItsWay>) -> bool {
    rig.run_due();
    if !rig.peers.is_empty() && rng.chance(7, 8) {
        let index = rng.index(rig.peers.len());
        let (to, message) = rig.peers.remove(index).expect("within");
        if rig.outlives_a_core(to, &message) {
            said.push(OnItsWay::Peer(to, message.clone()));
        }
        rig.peer(to, message);
    } else if let Some((to, delivery)) = rig.deliveries.pop_front() {
        said.push(OnItsWay::Delivery(to, delivery.clone()));
        rig.deliver(to, delivery);
    } else if let Some((to, from, last)) = rig.acknowledgements.pop_front() {
        said.push(OnItsWay::Acknowledgement(to, from, last));
        rig.acknowledge((to, from, last));
    } else if !rig.offloads.is_empty() {
        rig.finish_offload();
    } else {
        let tails = rig.tails();
        let behind: Vec<usize> = (0..tails.len()).filter(|log| tails[*log] > 0).collect();
        if behind.is_empty() {
            return false;
        }
        let log = behind[rng.index(behind.len())];
        rig.make_entries_durable(u16::try_from(log).expect("few"), 1 + rng.index(tails[log]));
    }
    true
}

/// The power goes.
#[derive(Clone, Debug)]
struct Crash {
    /// After so many things.
    at: usize,
    /// So many entries of each log's tail are there afterwards.
    kept: Vec<usize>,
    /// What was said before comes once more, while the next opening goes on.
    has_echoes: bool,
}

/// How a run ended, and the tails of the logs before each thing that happened.
struct Played {
    end: End,
    tails: Vec<Vec<usize>>,
    echoes: usize,
}

fn play(scene: &Scene, logs: &[u16], seed: u64, crash: Option<&Crash>) -> Played {
    let mut rig = Rig::with_logs(logs);
    rig.options.retention_ms = 3_600_000;
    rig.crash();
    let mut rng = Rng::new(seed);
    let (mut tails, mut said, mut echoes, mut echo_count) = (Vec::new(), Vec::new(), VecDeque::new(), 0);
    let mut token = rig.send(("note", &key(0), "flow"), scene.script.clone(), 0, Some("start"));
    let (mut id, mut signalled, mut quiet) = (None, 0, 0);
    while quiet < 12 {
        tails.push(rig.tails());
        if let Some(crash) = crash.filter(|crash| crash.at == tails.len()) {
            said.append(&mut rig.on_their_way());
            rig.crash_keeping_entries(&crash.kept);
            echoes.extend(said.drain(..).filter(|_| crash.has_echoes));
            echo_count = echoes.len();
            // Whoever is not answered asks again.
            signalled = 0;
            token = rig.send(("note", &key(0), "flow"), scene.script.clone(), 0, Some("start"));
        }
        if let Some(message) = echoes.pop_front() {
            rig.hand_over(message);
            quiet = 0;
        }
        if step(&mut rig, &mut rng, &mut said) {
            quiet = 0;
            continue;
        }
        quiet += 1;
        if id.is_none() || rig.reply(token).is_some() {
            id = Some(rig.sent(token));
        }
        if let (Some(id), Some((name, payload))) = (id, scene.signals.get(signalled)) {
            rig.signal(id, name, payload, Some(&format!("s{signalled}")));
            signalled += 1;
        }
        rig.tick(400);
    }
    let id = id.expect("it was started");
    let end = End {
        invocation_result: rig.invocation_result(id),
        journal: rig.noted(id),
        fields: scene.fields.iter().map(|(service, key, field)| rig.field(service, key, field)).collect(),
    };
    assert_ne!(end.invocation_result, ResultState::Pending, "logs {logs:?}, seed {seed}, {crash:?}");
    for entity in ["workflow", "signal", "inbox", "outbox", "prepared", "decision"] {
        assert_eq!(rig.bookkeeping_rows(entity), 0, "{entity}: logs {logs:?}, seed {seed}, {crash:?}");
    }
    if crash.is_none() {
        assert_eq!(rig.kept_results(), 0);
    }
    rig.assert_at_rest();
    Played { end, tails, echoes: echo_count }
}

/// Every crash of a scene, for each way of sharing logs and a few orders of what happens.
fn every_crash(scene: &Scene, mut check: impl FnMut(&End, &End, &str)) {
    let mut all_echoes = 0;
    for logs in LAYOUTS {
        let (mut points, mut amid_tails, mut echoes) = (0, 0, 0);
        for seed in 0..SEEDS {
            let Played { end: undisturbed, tails, .. } = play(scene, logs, seed, None);
            for (at, tails) in (1..).zip(&tails) {
                for (index, kept) in every_choice(tails).into_iter().enumerate() {
                    amid_tails += usize::from(tails.iter().zip(&kept).any(|(tail, kept)| (1..*tail).contains(kept)));
                    let crash = Crash { at, kept, has_echoes: (at + index) % 2 == 1 };
                    let played = play(scene, logs, seed, Some(&crash));
                    check(&played.end, &undisturbed, &format!("logs {logs:?}, seed {seed}, {crash:?}"));
                    (points, echoes) = (points + 1, echoes + played.echoes);
                }
            }
        }
        println!("logs {logs:?}: {points} points, {amid_tails} amid a tail, {echoes} messages of an earlier life");
        assert!(amid_tails > 30, "{logs:?}: only {amid_tails} amid a tail");
        all_echoes += echoes;
    }
    assert!(all_echoes > 1_000, "only {all_echoes} messages of an earlier life");
}

fn every_crash_ends_as_undisturbed(scene: &Scene) {
    every_crash(scene, |end, undisturbed, place| assert_eq!(end, undisturbed, "{place}"));
}

#[test]
fn a_saga_that_succeeds() {
    let script = s()
        .compensate(run("counter", &key(0), s().add("n", -1)))
        .call(add(0))
        .call(add(1))
        .step("pick", 7)
        .send(run("counter", &key(2), s().add("sent", 1)), 0)
        .call(add(2))
        .sleep(300)
        .wait("go", None)
        .call(run("counter", &key(1), s().add("n", 1).call(add(2))))
        .call(run("counter", &key(0), s().call(add(1)).call(add(1))));
    let mut fields = counters();
    fields.push(("counter", key(2), "sent"));
    let scene = Scene { script, fields, signals: vec![("go", "5")] };
    every_crash_ends_as_undisturbed(&scene);
}

#[test]
fn a_saga_that_is_compensated() {
    let undo = |shard: u16| run("counter", &key(shard), s().at_least("n", 1).add("n", -1).add("undone", 1));
    let script = s()
        .compensate(undo(0))
        .call(add(0))
        .compensate(undo(1))
        .call(add(1))
        .compensate(undo(2))
        .call(add(2))
        .call(run("counter", &key(1), s().add("n", 9).call(run("counter", &key(2), s().add("n", 9).abort("no")))));
    let mut fields = counters();
    fields.extend((0..SHARDS).map(|shard| ("counter", key(shard), "undone")));
    every_crash_ends_as_undisturbed(&Scene { script, fields, signals: Vec::new() });
}

/// What failed and was tried again leaves nothing behind, whenever the power goes.
#[test]
fn a_saga_whose_calls_and_steps_fail_at_first() {
    let second_time = |shard: u16, mark: &str| {
        let again = s().add("n", 1);
        run("counter", &key(shard), s().unless_again(mark, again).add("n", 9).fail("not yet"))
    };
    let script = s()
        .compensate(run("counter", &key(0), s().add("undone", 1)))
        .call(add(0))
        .call(second_time(1, "there"))
        .send(run("counter", &key(2), s().add("sent", 1)), 0)
        .flaky_step("pick", "at first")
        .call(second_time(0, "here"))
        .call(add(2));
    let mut fields = counters();
    fields.extend([("counter", key(2), "sent"), ("counter", key(0), "undone")]);
    every_crash_ends_as_undisturbed(&Scene { script, fields, signals: Vec::new() });
}

#[test]
fn a_workflow_that_starts_and_signals_another_one() {
    let child = s().wait("go", None).call(add(1)).wait("go", None).call(add(2));
    let script = s()
        .send(flow("note", &key(1), child), 0)
        .signal(None, "go", 1)
        .call(add(2))
        .signal(None, "go", 2)
        .call_in_step("inner", add(0));
    every_crash_ends_as_undisturbed(&Scene { script, fields: counters(), signals: Vec::new() });
}

/// Ids that callers chose: each workflow starts once, and whoever waits gets its outcome, whenever the power goes.
#[test]
fn a_workflow_that_waits_for_others_under_chosen_ids() {
    let rig = Rig::new(SHARDS);
    let id = |shard: u16| rig.key_in(shard, "order-");
    let child = |shard: u16| flow("note", &key(shard), s().call(add(shard)).call(add(2)).returns(shard));
    let fails = flow("note", &key(1), s().compensate(add(1)).call(add(1)).abort("no"));
    let script = s()
        .send_as(child(0), &id(1))
        .send_as(child(1), &id(2))
        .send_as(fails.clone(), &id(0))
        .result(Some(&id(1)), None)
        .send_as(child(0), &id(1))
        .call(add(0))
        .result(Some(&id(2)), None)
        .send_as(fails, &id(0))
        .try_result(Some(&id(0)), None)
        .call(add(1))
        .result(Some(&id(1)), None);
    every_crash_ends_as_undisturbed(&Scene { script, fields: counters(), signals: Vec::new() });
}

#[test]
fn what_nobody_awaits() {
    let script = s().call(add(0)).beside(s().fetch("x"), Some(add(1))).step("pick", 7).returns(3);
    every_crash_ends_as_undisturbed(&Scene { script, fields: counters(), signals: Vec::new() });
    let undo = run("counter", &key(2), s().add("n", 1));
    let script = s().compensate(undo).call(add(0)).beside(s().fetch("x"), Some(add(1))).abort("no");
    every_crash_ends_as_undisturbed(&Scene { script, fields: counters(), signals: Vec::new() });
}

/// Whose end comes first is not the same in every run; what the journal says is what happened.
#[test]
fn what_ran_in_parallel_happened_once_and_as_the_journal_says() {
    let marked = |shard: u16, mark: &'static str| run("counter", &key(shard), s().add(mark, 1));
    let script = s()
        .race(s().call(marked(1, "a")).call(marked(2, "b")).sleep(1))
        .when(0, s().call(marked(1, "after a")).call(marked(2, "after a too")).returns(0))
        .when(1, s().call(marked(2, "after b")).call(marked(1, "after b too")).returns(1))
        .when(2, s().call(marked(0, "after sleep")));
    let marks = [
        (1, "a"),
        (2, "b"),
        (1, "after a"),
        (2, "after a too"),
        (2, "after b"),
        (1, "after b too"),
        (0, "after sleep"),
    ];
    let fields: Vec<_> = marks.iter().map(|(shard, mark)| ("counter", key(*shard), *mark)).collect();
    let scene = Scene { script, fields, signals: Vec::new() };
    let mut ways: BTreeMap<usize, usize> = BTreeMap::new();
    every_crash(&scene, |end, _, place| {
        let done: Vec<usize> = (0..7).filter(|index| end.fields[*index] != Json::Null).collect();
        assert!(end.fields.iter().all(|field| *field == Json::Null || *field == json!(1)), "{place}: {end:?}");
        let way: &[usize] = match done.iter().find(|index| **index >= 2) {
            Some(2) => &[0, 1, 2, 3],
            Some(4) => &[0, 1, 4, 5],
            _ => &[0, 1, 6],
        };
        assert_eq!(done, way, "{place}: {end:?}");
        let calls = end.journal.iter().filter(|row| row.0 == StepKind::Call).count();
        assert_eq!(calls, done.len(), "{place}: {end:?}");
        *ways.entry(done[2]).or_default() += 1;
    });
    assert!(ways.len() >= 2, "{ways:?}");
}

#[test]
fn a_call_elsewhere_does_not_follow_from_what_may_be_lost() {
    // What the workflow reads here decides whom it calls there.
    let ways = s().hash().call(read("counter", &key(0), s().get("n"))).when(1, s().call(add(2)).returns(2));
    let script = ways.when(Json::Null, s().call(add(1)));
    for crash_at in 1..20 {
        let mut rig = Rig::new(SHARDS);
        let mut rng = Rng::new(crash_at);
        rig.send(("note", &key(0), "flow"), script.clone(), 0, None);
        rig.make_durable_in(ShardId(0));
        rig.finish_offload();
        for _ in 0..crash_at {
            // The first shard's disk is slow.
            rig.run_due();
            rig.carry_peers();
            rig.make_durable_in(ShardId(1));
            rig.make_durable_in(ShardId(2));
            if rng.chance(1, 12) {
                rig.make_durable_in(ShardId(0));
            }
        }
        rig.crash();
        rig.run("counter", &key(0), s().set("n", 1));
        rig.settle();
        let done = [1, 2].map(|shard| rig.field("counter", &key(shard), "n"));
        assert_eq!(done.iter().filter(|field| **field == json!(1)).count(), 1, "{crash_at}: {done:?}");
    }
}

#[test]
fn what_a_call_elsewhere_gives_is_waited_for_only_if_it_matters() {
    let calls = |script: Script| (0..4).fold(script, |script, _| script.call(add(1)));
    for (script, may_go_on) in [(calls(s()), true), (calls(s().call(add(1)).now()), false)] {
        let mut rig = Rig::new(SHARDS);
        rig.send(("note", &key(0), "flow"), script, 0, None);
        rig.make_durable_in(ShardId(0));
        for _ in 0..40 {
            rig.run_due();
            rig.carry_peers();
            rig.make_durable_in(ShardId(1));
        }
        let made = rig.field("counter", &key(1), "n").as_i64().unwrap_or(0);
        assert_eq!(made >= 4, may_go_on, "{made} calls while the disk of the workflow was slow");
        rig.settle();
    }
}
