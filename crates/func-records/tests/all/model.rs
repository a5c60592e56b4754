//! Random operations against a map of JSON values. Index rows and changes agree with it at every point.

use std::collections::BTreeMap;

use crate::common::{World, person, put};
use millrace_api::{Form, PathOperationKind as Kind, RecordChange, RecordOperation, RecordQuery, RecordWrite, Ttl};
use proptest::prelude::*;
use serde_json::{Value, json};

#[derive(Clone, Debug)]
enum Action {
    Put(u8, i32, Vec<u8>, Option<u16>),
    PutAge(u8, i32),
    Increment(u8, i32),
    Insert(u8, u8),
    DeleteEmails(u8, u8),
    Clear(u8),
    Delete(u8),
    Pass(u16),
    Settle,
}

fn action() -> impl Strategy<Value = Action> {
    let id = || 0_u8..6;
    prop_oneof![
        (id(), -3..9, proptest::collection::vec(0_u8..4, 0..4), proptest::option::of(1_u16..500))
            .prop_map(|(id, age, emails, ttl)| Action::Put(id, age, emails, ttl)),
        (id(), -3..9).prop_map(|(id, age)| Action::PutAge(id, age)),
        (id(), -3..9).prop_map(|(id, by)| Action::Increment(id, by)),
        (id(), 0_u8..4).prop_map(|(id, email)| Action::Insert(id, email)),
        (id(), 0_u8..4).prop_map(|(id, email)| Action::DeleteEmails(id, email)),
        id().prop_map(Action::Clear),
        id().prop_map(Action::Delete),
        (0_u16..300).prop_map(Action::Pass),
        Just(Action::Settle),
    ]
}

/// Records and when they expire.
#[derive(Default)]
struct Model {
    records: BTreeMap<String, (Value, Option<u64>)>,
    is_touch: bool,
}

impl Model {
    fn forget(&mut self, now: u64) {
        self.records.retain(|_, (_, expires)| expires.is_none_or(|expires| expires > now));
    }

    /// Changes a record. Makes it first if the type makes records on touch. `None`: there is none.
    fn change(&mut self, id: &str, change: impl FnOnce(&mut Value)) -> Option<()> {
        let known = self.records.get(id).cloned();
        let is_known = known.is_some();
        let untouched = || json!({ "name": "", "age": 0, "gender": "Unknown", "emails": [] });
        let (mut value, expires) = known.or_else(|| self.is_touch.then(|| (untouched(), None)))?;
        let before = value.clone();
        change(&mut value);
        if is_known || value != before {
            self.records.insert(id.to_owned(), (value, expires));
        }
        Some(())
    }
}

fn email(number: u8) -> String {
    format!("{number}@x")
}

fn run(world: &mut World, model: &mut Model, action: Action) -> (bool, bool) {
    model.forget(world.now);
    match action {
        Action::Put(id, age, emails, ttl_ms) => {
            let id = id.to_string();
            let emails: Vec<String> = emails.into_iter().map(email).collect();
            let value = json!({ "name": "n", "age": age, "gender": "Male", "emails": emails });
            let before = model.records.get(&id).and_then(|(_, expires)| *expires);
            let ttl = ttl_ms.map(|ttl_ms| Ttl::Milliseconds(ttl_ms.into()));
            let text = value.to_string();
            let write = RecordWrite { change: put(&text), ttl, ..RecordWrite::default() };
            let created = world.write(&id, write).expect("puts").created;
            let expires = ttl_ms.map(|ttl_ms| world.now + u64::from(ttl_ms)).or(before);
            let was_there = model.records.insert(id, (value, expires)).is_some();
            (created, !was_there)
        }
        Action::PutAge(id, age) => {
            let text = age.to_string();
            let change = RecordChange::PutField { field: "age".into(), form: Form::Json, value: text.as_bytes() };
            let result = world.write(&id.to_string(), RecordWrite { change, ..RecordWrite::default() });
            (result.is_ok(), model.change(&id.to_string(), |value| value["age"] = json!(age)).is_some())
        }
        Action::Increment(id, by) => {
            let result = world.patch(&id.to_string(), &[(Kind::Increment, ".age", Some(&by.to_string()))]);
            let add =
                |value: &mut Value| value["age"] = json!(value["age"].as_i64().expect("a number") + i64::from(by));
            (result.is_ok(), model.change(&id.to_string(), add).is_some())
        }
        Action::Insert(id, number) => {
            let text = json!(email(number)).to_string();
            let result = world.patch(&id.to_string(), &[(Kind::Insert, ".emails", Some(&text))]);
            let add = |value: &mut Value| value["emails"].as_array_mut().expect("an array").push(json!(email(number)));
            (result.is_ok(), model.change(&id.to_string(), add).is_some())
        }
        Action::DeleteEmails(id, number) => {
            let path = format!(".emails{{. === \"{}\"}}", email(number));
            let result = world.patch(&id.to_string(), &[(Kind::Delete, &path, None)]);
            let mut gone = 0;
            let known = model.change(&id.to_string(), |value| {
                let emails = value["emails"].as_array_mut().expect("an array");
                gone = emails.len();
                emails.retain(|known| *known != email(number));
                gone -= emails.len();
            });
            (result.is_ok(), known.is_some() && gone > 0)
        }
        Action::Clear(id) => {
            let result = world.patch(&id.to_string(), &[(Kind::Clear, ".emails", None)]);
            (result.is_ok(), model.change(&id.to_string(), |value| value["emails"] = json!([])).is_some())
        }
        Action::Delete(id) => (world.delete(&id.to_string()).is_ok(), model.records.remove(&id.to_string()).is_some()),
        Action::Pass(ms) => {
            world.now += u64::from(ms);
            (true, true)
        }
        Action::Settle => {
            world.settle(0);
            (true, true)
        }
    }
}

fn check(world: &mut World, model: &mut Model) {
    world.settle(0);
    model.forget(world.now);
    let records: BTreeMap<String, Value> = world
        .records("t")
        .into_iter()
        .filter_map(|(id, json)| Some((String::from_utf8(id).expect("UTF-8"), json?)))
        .collect();
    let expected: BTreeMap<String, Value> =
        model.records.iter().map(|(id, (value, _))| (id.clone(), value.clone())).collect();
    assert_eq!(records, expected);
    world.check_rows("t");
    world.check_changes();
    for age in -3..9 {
        let predicate = format!(".age == {age}");
        let (ids, _) =
            world.ids(&RecordQuery { predicate: &predicate, limit: 2, ..RecordQuery::default() }).expect("finds");
        let expected: Vec<&String> =
            expected.iter().filter(|(_, value)| value["age"] == age).map(|(id, _)| id).collect();
        assert_eq!(ids.iter().collect::<Vec<_>>(), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn operations_do_what_the_model_does(is_touch: bool, actions in proptest::collection::vec(action(), 0..60)) {
        let mut world = World::with("t", json!({
            "schema": person(),
            "create": if is_touch { "touch" } else { "explicit" },
            "indexes": [
                { "name": "by_age", "path": ".age" },
                { "name": "by_email", "path": ".emails[*]" },
                { "name": "by_name", "path": ".name", "ignore_case": true },
            ],
            "changes": { "retention_ms": 1_000_000_000 },
        }));
        let mut model = Model { is_touch, ..Model::default() };
        for (step, action) in actions.into_iter().enumerate() {
            let shown = format!("{action:?}");
            let (got, expected) = run(&mut world, &mut model, action);
            prop_assert_eq!(got, expected, "{}", shown);
            if step % 8 == 7 {
                check(&mut world, &mut model);
            }
        }
        check(&mut world, &mut model);
        let one = RecordOperation::Get { form: Form::Json };
        prop_assert_eq!(world.run("t", b"never", &one).is_ok(), is_touch);
    }
}
