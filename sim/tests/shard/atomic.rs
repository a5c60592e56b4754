//! A handler's effects happen together or not at all; a failing nested call that its caller
//! catches takes back its own effects and those of everything it started, and nothing else.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::*;

#[test]
fn a_thrown_error_rolls_back_every_entity() {
    let mut rig = Rig::new(1);
    let script = s().set("x", 1).call(run("note", "b", s().set("y", 1))).send(run("note", "c", s().set("z", 1)), 0);
    let failed = rig.run("account", "a", script.clone().fail("no"));
    rig.run_to_rest();
    assert_eq!(rig.error(failed), ErrorCode::FunctionFailed);
    assert!(rig.log.is_empty(), "nothing is logged");
    let done = rig.run("account", "a", script.returns("ok"));
    rig.run_to_rest();
    assert_eq!(rig.value(done), json!("ok"));
    assert_eq!(rig.log[0].writes.len(), 3, "all of it is one entry");
    assert_eq!((rig.field("note", "b", "y"), rig.field("note", "c", "z")), (json!(1), json!(1)));
    rig.assert_at_rest();
}

#[test]
fn a_caught_failure_is_rolled_back_alone() {
    let mut rig = Rig::new(1);
    let inner = s()
        .set("y", 1)
        .call(run("note", "c", s().set("z", 1)))
        .call(run("account", "a", s().set("x", 5)))
        .send(run("note", "lost", s().set("n", 1)), 0)
        .fail("inner");
    let script = s()
        .set("x", 1)
        .send(run("note", "m1", s().set("n", 1)), 0)
        .try_call(run("note", "b", inner))
        .send(run("note", "m2", s().set("n", 2)), 0)
        .get("x");
    let token = rig.run("account", "a", script);
    rig.run_to_rest();
    assert_eq!(rig.value(token), json!(1), "the caller's own write is back");
    assert_eq!((rig.field("note", "b", "y"), rig.field("note", "c", "z")), (Json::Null, Json::Null));
    assert_eq!((rig.field("note", "m1", "n"), rig.field("note", "m2", "n")), (json!(1), json!(2)));
    assert_eq!(rig.field("note", "lost", "n"), Json::Null);
    rig.assert_at_rest();
}

#[test]
fn a_siblings_newer_write_survives_and_restores_what_was_before() {
    let mut rig = Rig::new(1);
    let fails_late = run("account", "a", s().set("f", "first").hash().fail("late"));
    let writes_after = run("account", "a", s().set("f", "second"));
    rig.run("account", "a", s().set("f", "zero").settle([fails_late.clone(), writes_after]));
    rig.run_to_rest();
    assert_eq!(rig.field("account", "a", "f"), json!("second"));
    let fails_too = run("account", "a", s().set("f", "second").hash().fail("later"));
    rig.run("account", "b", s().call(run("account", "a", s().set("f", "zero"))).settle([fails_late, fails_too]));
    rig.run_to_rest();
    assert_eq!(rig.field("account", "a", "f"), json!("zero"));
    rig.assert_at_rest();
}

#[test]
fn what_a_failed_activation_started_never_takes_effect() {
    let slow = || run("note", "slow", s().set("before", 1).hash().set("after", 1));
    let failing = [
        s().all([slow(), run("note", "d", s().fail("no"))]),
        s().start(slow()).fail("no"),
        s().start(run("note", "e", s().call(slow()))).fail("no"),
        s().call(run("note", "f", s().start(slow()))).hash().fail("no"),
        s().start_hash().start(slow()).start(slow()).fail("no"),
    ];
    for script in failing {
        let mut rig = Rig::new(1);
        let token = rig.run("account", "a", s().try_call(run("note", "b", script)).hash().set("done", 1).returns("ok"));
        rig.run_to_rest();
        assert_eq!(rig.value(token), json!("ok"));
        assert_eq!(rig.field("note", "slow", "before"), Json::Null);
        assert_eq!(rig.field("note", "slow", "after"), Json::Null);
        assert_eq!(rig.field("account", "a", "done"), json!(1));
        rig.assert_at_rest();
    }
}

#[test]
fn a_call_nobody_awaits_is_part_of_the_transaction() {
    let mut rig = Rig::new(1);
    let slow = |end: Script| run("note", "slow", end.hash().set("n", 1));
    let token = rig.run("account", "a", s().start(slow(s())).set("x", 1).returns("ok"));
    rig.make_durable();
    assert!(rig.reply(token).is_none() && rig.log.is_empty(), "it commits when all of it has ended");
    rig.run_to_rest();
    assert_eq!((rig.value(token), rig.log[0].writes.len()), (json!("ok"), 2));
    let failing = run("note", "slow", s().hash().set("n", 2).fail("unseen"));
    let token = rig.run("account", "a", s().start(failing).set("x", 2));
    rig.run_to_rest();
    assert_eq!(rig.error(token), ErrorCode::FunctionFailed, "a failure nobody saw fails everything");
    assert_eq!(rig.field("account", "a", "x"), json!(1));
    rig.assert_at_rest();
}

#[test]
fn a_late_result_never_reaches_a_later_user_of_the_activation_number() {
    let mut rig = Rig::new(1);
    // The callee ends with a hash under way; the next callee gets its activation number and waits too.
    let leaves_work = run("note", "b", s().start_hash());
    let waits = run("note", "c", s().hash().hash().set("n", 1));
    let token = rig.run("account", "a", s().call(leaves_work).call(waits).returns("ok"));
    rig.run_to_rest();
    assert_eq!(rig.value(token), json!("ok"));
    rig.assert_at_rest();
}

/// A step of a random script, run by the shard and by the model below.
#[derive(Clone, Debug)]
enum ScriptStep {
    Add(u8, i64),
    Delete(u8),
    Hash,
    Call(u8, Vec<ScriptStep>),
    Try(u8, Vec<ScriptStep>),
    Fail,
}

fn steps() -> impl Strategy<Value = Vec<ScriptStep>> {
    let leaf = prop_oneof![
        4 => (0u8..3, -3i64..4).prop_map(|(field, n)| ScriptStep::Add(field, n)),
        1 => (0u8..3).prop_map(ScriptStep::Delete),
        1 => Just(ScriptStep::Hash),
        1 => Just(ScriptStep::Fail),
    ];
    let step = leaf.prop_recursive(4, 40, 5, |inner| {
        let body = proptest::collection::vec(inner, 0..5);
        prop_oneof![
            (0u8..3, body.clone()).prop_map(|(entity, steps)| ScriptStep::Call(entity, steps)),
            (0u8..3, body).prop_map(|(entity, steps)| ScriptStep::Try(entity, steps)),
        ]
    });
    proptest::collection::vec(step, 0..8)
}

fn script_of(steps: &[ScriptStep]) -> Script {
    steps.iter().fold(s(), |script, step| match step {
        ScriptStep::Add(field, n) => script.add(&field.to_string(), *n),
        ScriptStep::Delete(field) => script.delete(&field.to_string()),
        ScriptStep::Hash => script.hash(),
        ScriptStep::Call(entity, steps) => script.call(run("note", &entity.to_string(), script_of(steps))),
        ScriptStep::Try(entity, steps) => script.try_call(run("note", &entity.to_string(), script_of(steps))),
        ScriptStep::Fail => script.fail("no"),
    })
}

type State = BTreeMap<(u8, u8), i64>;

/// What the steps do to the state of `entity`; false if they fail.
fn model(state: &mut State, entity: u8, steps: &[ScriptStep]) -> bool {
    for step in steps {
        match step {
            ScriptStep::Add(field, n) => *state.entry((entity, *field)).or_default() += n,
            ScriptStep::Delete(field) => drop(state.remove(&(entity, *field))),
            ScriptStep::Hash => {}
            ScriptStep::Fail => return false,
            ScriptStep::Call(callee, steps) => {
                if !model(state, *callee, steps) {
                    return false;
                }
            }
            ScriptStep::Try(callee, steps) => {
                let before = state.clone();
                if !model(state, *callee, steps) {
                    *state = before;
                }
            }
        }
    }
    true
}

proptest! {
    #[test]
    fn any_nesting_does_what_the_model_says(calls in proptest::collection::vec((0u8..3, steps()), 1..5)) {
        let mut rig = Rig::new(1);
        let mut expected = State::new();
        for (entity, steps) in calls {
            let token = rig.run("note", &entity.to_string(), script_of(&steps));
            rig.run_to_rest();
            let mut after = expected.clone();
            let succeeds = model(&mut after, entity, &steps);
            prop_assert_eq!(rig.reply(token).expect("answered").is_ok(), succeeds);
            if succeeds {
                expected = after;
            }
        }
        rig.crash();
        for entity in 0..3 {
            for field in 0..3 {
                let found = rig.field("note", &entity.to_string(), &field.to_string()).as_i64();
                prop_assert_eq!(found, expected.get(&(entity, field)).copied());
            }
        }
        rig.assert_at_rest();
    }
}
