//! A failing callee that its caller catches takes back its own effects and those of everything it started. It does so
//! in every shard, and before its caller goes on. What nobody awaits still belongs to the transaction.

use std::collections::BTreeMap;

use millrace_sim::random::Rng;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use crate::*;

fn add() -> Script {
    s().add("n", 1)
}

/// Keys in three shards.
fn keys(rig: &Rig) -> [String; 3] {
    [0, 1, 2].map(|shard| rig.key_in(shard, "k"))
}

#[test]
fn a_caught_failure_is_gone_before_its_caller_goes_on() {
    // The failing callee is in the caller's shard or not, has called to another one and from there
    // to a third or back; the caller then looks at what that has changed.
    for failing_in in 0..3 {
        for over in 0..3 {
            for back_in in 0..3 {
                let mut rig = Rig::new(3);
                let caller = rig.key_in(0, "caller");
                let (failing, over) = (rig.key_in(failing_in, "failing"), rig.key_in(over, "over"));
                let back = rig.key_in(back_in, "back");
                let callee = run("note", &over, add().call(run("note", &back, add())));
                let failing = run("note", &failing, add().call(callee).fail("no"));
                let looks = [&over, &back].map(|key| run("note", key, s().get("n")));
                let token = rig.run("note", &caller, s().try_call(failing).all(looks));
                rig.run_to_rest();
                assert_eq!(rig.value(token), json!([null, null]), "{failing_in} {over} {back_in}");
                rig.assert_at_rest();
            }
        }
    }
}

#[test]
fn a_participation_that_caught_a_failure_sees_nothing_of_it_either() {
    let mut rig = Rig::new(3);
    let [a, b, c] = keys(&rig);
    let inner = run("note", &c, add().call(run("note", &b, add())).call(run("note", &a, add())));
    let catches = s().try_call(run("note", &b, s().call(inner).fail("no"))).get("n");
    let token = rig.run("note", &a, s().call(run("note", &b, catches)));
    rig.run_to_rest();
    assert_eq!(rig.value(token), Json::Null);
    assert!([&a, &b, &c].iter().all(|key| rig.field("note", key, "n").is_null()));
    rig.assert_at_rest();
}

#[test]
fn a_call_nobody_awaits_may_call_on_when_its_caller_has_answered() {
    for to in 0..3 {
        let mut rig = Rig::new(3);
        let [a, b, _] = keys(&rig);
        let (slow, last) = (rig.key_in(1, "slow"), rig.key_in(to, "last"));
        let later = run("note", &slow, s().hash().call(run("note", &last, add())));
        let token = rig.run("note", &a, add().call(run("note", &b, add().start(later))).returns("ok"));
        rig.run_to_rest();
        assert_eq!(rig.value(token), json!("ok"), "calls on to shard {to}");
        for key in [&a, &b, &last] {
            assert_eq!(rig.field("note", key, "n"), json!(1), "calls on to shard {to}");
        }
        rig.assert_at_rest();
    }
}

#[test]
fn a_call_nobody_awaits_that_fails_late_fails_everything() {
    for to in 0..3 {
        let mut rig = Rig::new(3);
        let [a, b, _] = keys(&rig);
        let (slow, last) = (rig.key_in(1, "slow"), rig.key_in(to, "last"));
        let later = run("note", &slow, s().hash().call(run("note", &last, add().hash().fail("unseen"))));
        let token = rig.run("note", &a, add().call(run("note", &b, add().start(later))).returns("ok"));
        rig.run_to_rest();
        assert_eq!(rig.error(token), ErrorCode::FunctionFailed, "fails in shard {to}");
        for key in [&a, &b, &last] {
            assert_eq!(rig.field("note", key, "n"), Json::Null, "fails in shard {to}");
        }
        rig.assert_at_rest();
    }
}

#[test]
fn a_transaction_that_has_failed_answers_its_error_at_once_whatever_its_participations_still_call() {
    let mut rig = Rig::new(3);
    let [a, b, c] = keys(&rig);
    let beside = rig.key_in(0, "beside");
    let slow = run("note", &b, s().hash().call(run("note", &c, add())));
    let failing = run("note", &beside, s().hash().fail("no"));
    let token = rig.run("note", &a, s().all([slow, failing]));
    rig.carry_peers();
    assert_eq!(rig.offloads.len(), 2);
    rig.finish_offload();
    rig.finish_offload();
    rig.run_to_rest();
    assert_eq!(rig.error(token), ErrorCode::FunctionFailed);
    rig.assert_at_rest();
}

/// A step of a random script. Whether it succeeds does not depend on any state, what runs side by
/// side writes different fields, and all it does is to add: so what it leaves does not depend on the order in which
/// things happen.
#[derive(Clone, Debug)]
enum ScriptStep {
    Add(u8, i64),
    Hash,
    Fail,
    Call(u8, Vec<ScriptStep>),
    Try(u8, Vec<ScriptStep>),
    All(Vec<(u8, Vec<ScriptStep>)>),
    Start(u8, Vec<ScriptStep>),
}

fn steps() -> impl Strategy<Value = Vec<ScriptStep>> {
    let leaf = prop_oneof![
        6 => (0u8..2, -3i64..4).prop_map(|(field, n)| ScriptStep::Add(field, n)),
        1 => Just(ScriptStep::Hash),
        1 => Just(ScriptStep::Fail),
    ];
    let step = leaf.prop_recursive(4, 40, 4, |inner| {
        let body = proptest::collection::vec(inner, 0..5);
        prop_oneof![
            2 => (0u8..6, body.clone()).prop_map(|(entity, steps)| ScriptStep::Call(entity, steps)),
            3 => (0u8..6, body.clone()).prop_map(|(entity, steps)| ScriptStep::Try(entity, steps)),
            1 => proptest::collection::vec((0u8..6, body.clone()), 1..4).prop_map(ScriptStep::All),
            1 => (0u8..6, body).prop_map(|(entity, steps)| ScriptStep::Start(entity, never_failing(steps))),
        ]
    });
    proptest::collection::vec(step, 0..8)
}

/// When the failure of what nobody awaits is noticed depends on the order: so it does not fail.
fn never_failing(steps: Vec<ScriptStep>) -> Vec<ScriptStep> {
    let kept = steps.into_iter().filter(|step| !matches!(step, ScriptStep::Fail));
    kept.map(|step| match step {
        ScriptStep::Call(entity, steps) => ScriptStep::Call(entity, never_failing(steps)),
        ScriptStep::Start(entity, steps) => ScriptStep::Start(entity, never_failing(steps)),
        ScriptStep::All(calls) => {
            ScriptStep::All(calls.into_iter().map(|(entity, steps)| (entity, never_failing(steps))).collect())
        }
        other => other,
    })
    .collect()
}

const ROOT: StepPosition<'static> = StepPosition { path: "", way: "" };

struct World {
    keys: Vec<String>,
}

/// Where a step stands: what its fields begin with, and the way to it from the root, which no
/// other step has.
#[derive(Clone, Copy)]
struct StepPosition<'a> {
    path: &'a str,
    way: &'a str,
}

impl World {
    fn script(&self, steps: &[ScriptStep], place: StepPosition<'_>) -> Script {
        steps.iter().enumerate().fold(s(), |script, (position, step)| {
            let callee = |(entity, steps): (&u8, &[ScriptStep]), path: Option<usize>| {
                let way = format!("{}{position}.{}.", place.way, path.unwrap_or_default());
                let path = if path.is_some() { &way } else { place.path };
                run("note", &self.keys[usize::from(*entity)], self.script(steps, StepPosition { path, way: &way }))
            };
            match step {
                ScriptStep::Add(field, n) => script.add(&format!("{}{field}", place.path), *n),
                ScriptStep::Hash => script.hash(),
                ScriptStep::Fail => script.fail("no"),
                ScriptStep::Call(entity, steps) => script.call(callee((entity, steps), None)),
                ScriptStep::Try(entity, steps) => script.try_call(callee((entity, steps), None)),
                ScriptStep::Start(entity, steps) => script.start(callee((entity, steps), Some(0))),
                ScriptStep::All(calls) => {
                    let calls = calls.iter().enumerate();
                    script.all(calls.map(|(index, (entity, steps))| callee((entity, steps), Some(index))))
                }
            }
        })
    }
}

type State = BTreeMap<(u8, String), i64>;

/// What the steps do to the state, one after the other; false if they fail.
fn model(state: &mut State, entity: u8, place: StepPosition<'_>, steps: &[ScriptStep]) -> bool {
    steps.iter().enumerate().all(|(position, step)| {
        let mut call = |callee: u8, steps: &[ScriptStep], path: Option<usize>| {
            let way = format!("{}{position}.{}.", place.way, path.unwrap_or_default());
            let path = if path.is_some() { &way } else { place.path };
            let before = state.clone();
            let succeeds = model(state, callee, StepPosition { path, way: &way }, steps);
            if !succeeds {
                *state = before;
            }
            succeeds
        };
        match step {
            ScriptStep::Call(callee, steps) => call(*callee, steps, None),
            ScriptStep::Try(callee, steps) => {
                call(*callee, steps, None);
                true
            }
            ScriptStep::Start(callee, steps) => call(*callee, steps, Some(0)),
            ScriptStep::All(calls) => {
                calls.iter().enumerate().all(|(index, (callee, steps))| call(*callee, steps, Some(index)))
            }
            ScriptStep::Add(field, n) => {
                *state.entry((entity, format!("{}{field}", place.path))).or_default() += n;
                true
            }
            ScriptStep::Hash => true,
            ScriptStep::Fail => false,
        }
    })
}

/// Lets everything happen in random order, messages doubled now and then, until nothing is left.
fn random_rest(rig: &mut Rig, rng: &mut Rng) {
    for _ in 0..100_000 {
        match rng.below(8) {
            0 => rig.make_durable_in(ShardId(u16::try_from(rng.below(3)).expect("small"))),
            1 if !rig.offloads.is_empty() => {
                let ticket = rig.offloads.remove(rng.index(rig.offloads.len())).expect("within");
                rig.finish(ticket, Ok("null".into()));
            }
            _ if !rig.peers.is_empty() => {
                let index = rng.index(rig.peers.len().min(4));
                let (to, message) = rig.peers.remove(index).expect("within");
                if rng.chance(1, 20) {
                    let at = rng.index(rig.peers.len() + 1);
                    rig.peers.insert(at, (to, message.clone()));
                }
                rig.peer(to, message);
            }
            _ if rig.offloads.is_empty() => {
                rig.make_durable();
                if rig.peers.is_empty() {
                    return;
                }
            }
            _ => {}
        }
    }
    panic!("it never comes to rest");
}

/// Runs the calls, one after the other or all at once, and compares with the model.
fn does_what_the_model_says(calls: &[(u8, Vec<ScriptStep>)], is_concurrent: bool, seed: u64) -> TestCaseResult {
    let mut rng = Rng::new(seed);
    let mut rig = Rig::new(3);
    let world = World { keys: (0..6).map(|index| rig.key_in(index % 3, &format!("k{index}"))).collect() };
    let mut expected = State::new();
    let mut tokens = Vec::new();
    for (entity, steps) in calls {
        let token = rig.run("note", &world.keys[usize::from(*entity)], world.script(steps, ROOT));
        if !is_concurrent {
            random_rest(&mut rig, &mut rng);
        }
        let mut after = expected.clone();
        let succeeds = model(&mut after, *entity, ROOT, steps);
        tokens.push((token, succeeds));
        if succeeds {
            expected = after;
        }
    }
    random_rest(&mut rig, &mut rng);
    // A second copy of a message may hold an entity until its coordinator is asked.
    for _ in 0..20 {
        rig.tick(1);
        random_rest(&mut rig, &mut rng);
    }
    for (token, succeeds) in tokens {
        prop_assert!(rig.reply(token).is_some(), "it was never answered");
        prop_assert_eq!(rig.reply(token).is_some_and(Result::is_ok), succeeds, "{:?}", rig.reply(token));
    }
    prop_assert_eq!(rig.bookkeeping_rows("prepared") + rig.bookkeeping_rows("decision"), 0);
    rig.crash();
    for ((entity, field), value) in expected {
        let found = rig.field("note", &world.keys[usize::from(entity)], &field).as_i64();
        prop_assert_eq!(found, Some(value), "{}.{}", entity, field);
    }
    rig.assert_at_rest();
    Ok(())
}

#[test]
fn a_call_that_dies_beside_one_that_is_begun_again_is_answered() {
    // What the property below once found.
    let all = ScriptStep::All(vec![(4, vec![]), (1, vec![])]);
    let calls =
        [(1, vec![ScriptStep::Call(2, vec![])]), (5, vec![ScriptStep::Try(5, vec![ScriptStep::Try(0, vec![]), all])])];
    does_what_the_model_says(&calls, true, 11_741_896_164_355_384_945).expect("as the model says");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_nesting_over_shards_does_what_the_model_says(
        calls in proptest::collection::vec((0u8..6, steps()), 1..5),
        is_concurrent in any::<bool>(),
        seed in any::<u64>(),
    ) {
        does_what_the_model_says(&calls, is_concurrent, seed)?;
    }
}
