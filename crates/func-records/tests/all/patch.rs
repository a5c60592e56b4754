//! Several operations in one update, on random records, against the model of single ones. Each operation works on what
//! those before it have left. If one fails, nothing has changed at all.

#[path = "../../../avpath/tests/all/model/tree.rs"]
mod tree;

use crate::common::World;
use millrace_api::PathOperationKind as Kind;
use millrace_base::ErrorCode;
use proptest::prelude::*;
use serde_json::{Value, json};
use tree::{
    Condition, Edit, PathStep, Type, ValueLocation, cases, edits, fitting, guided, path_text, paths, select, update,
};

#[derive(Clone, Debug)]
enum Operation {
    Change(Vec<PathStep>, Edit),
    Test(Vec<PathStep>, Option<Value>),
}

/// Why the model stops.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    NoMatch,
    TestFailed,
    /// The place or the value does not allow it.
    Misfit,
}

fn operation(of: Type) -> impl Strategy<Value = Operation> {
    let seeds = prop::collection::vec(any::<u16>(), 1..5);
    (seeds, paths(1), prop::bool::weighted(0.9), edits()).prop_flat_map(move |(seeds, free, is_guided, edit)| {
        let (path, target) = if is_guided { guided(&of, &seeds) } else { (free, of.clone()) };
        let (tested, changed) = (path.clone(), path);
        let change = prop_oneof![1 => Just(edit), 20 => fitting(&target)];
        prop_oneof![
            1 => prop::option::of(target.value()).prop_map(move |value| Operation::Test(tested.clone(), value)),
            6 => change.prop_map(move |edit| Operation::Change(changed.clone(), edit)),
        ]
    })
}

/// Half of them without the operations that fail, because of several random ones nearly always one fails.
fn patches() -> impl Strategy<Value = (Type, Value, Vec<Operation>)> {
    let drawn = cases().prop_flat_map(|(of, value)| {
        let operations = prop::collection::vec(operation(of.clone()), 1..10);
        (Just(of), Just(value), operations, any::<bool>())
    });
    drawn.prop_map(|(of, value, mut operations, fails)| {
        let mut now = value.clone();
        let mut is_first = true;
        operations.retain(|operation| {
            let is_known = std::mem::take(&mut is_first) || !of.has_maps() || !depends_on_order(operation.path());
            let after = operation.step(&of, &now);
            let is_kept = is_known && (fails || after.is_ok());
            now = after.map_or_else(|_| now.clone(), |(after, _)| after);
            is_kept
        });
        (of, value, operations)
    })
}

/// Whether the order of entries decides what a path selects. A record keeps its entries in the order in which they
/// came. The model sorts them, so from the second operation on it does not know that order.
fn depends_on_order(path: &[PathStep]) -> bool {
    let cuts = path.windows(2).any(|pair| {
        matches!(pair[0], PathStep::Filter(_))
            && matches!(pair[1], PathStep::All | PathStep::At(_) | PathStep::Slice(..))
    });
    cuts || path.iter().any(|step| match step {
        PathStep::Filter(condition) => takes_first(condition),
        PathStep::Either(a, b) => depends_on_order(a) || depends_on_order(b),
        _ => false,
    })
}

/// Whether a condition looks at the first of several values, or has a path that depends on their order.
fn takes_first(condition: &Condition) -> bool {
    match condition {
        Condition::Sum(..) => true,
        Condition::Exists(path) | Condition::Compare(path, ..) => depends_on_order(path),
        Condition::Both(a, _, b) => depends_on_order(a) || depends_on_order(b),
        Condition::Not(inner) => takes_first(inner),
        Condition::And(a, b) | Condition::Or(a, b) => takes_first(a) || takes_first(b),
    }
}

impl Operation {
    fn path(&self) -> &[PathStep] {
        let (Self::Change(path, _) | Self::Test(path, _)) = self;
        path
    }

    fn step(&self, of: &Type, value: &Value) -> Result<(Value, usize), Failure> {
        let root = ValueLocation { of, value: value.clone(), way: Vec::new() };
        match self {
            Self::Change(path, edit) => match update(path, &root, edit).ok_or(Failure::Misfit)? {
                (_, 0) => Err(Failure::NoMatch),
                changed => Ok(changed),
            },
            Self::Test(path, expected) => {
                let mut found = select(path, &root);
                let is_other = |place: &ValueLocation<'_>| {
                    expected.as_ref().is_some_and(|value| place.of.accept(value).as_ref() != Some(&place.value))
                };
                if found.is_empty() || found.iter().any(is_other) {
                    return Err(Failure::TestFailed);
                }
                found.sort_by(|a, b| a.way.cmp(&b.way));
                found.dedup_by(|a, b| a.way == b.way);
                Ok((value.clone(), found.len()))
            }
        }
    }

    /// The operation as in a patch.
    fn written(&self) -> (Kind, String, Option<String>) {
        let (path, kind, value) = match self {
            Self::Test(path, value) => (path, Kind::Test, value.clone()),
            Self::Change(path, edit) => {
                let (kind, value) = match edit {
                    Edit::Set(value) => (Kind::Set, Some(value.clone())),
                    Edit::Insert(value) => (Kind::Insert, Some(value.clone())),
                    Edit::InsertAll(value) => (Kind::InsertAll, Some(value.clone())),
                    Edit::AppendUnique(value) => (Kind::AppendUnique, Some(value.clone())),
                    Edit::Increment(by) => (Kind::Increment, Some(json!(by))),
                    Edit::Delete => (Kind::Delete, None),
                    Edit::Clear => (Kind::Clear, None),
                };
                (path, kind, value)
            }
        };
        (kind, path_text(path), value.map(|value| value.to_string()))
    }
}

/// The record and the number of places after all of them, or the first that fails.
fn patched(of: &Type, value: &Value, operations: &[Operation]) -> Result<(Value, usize), (usize, Failure)> {
    let first = (value.clone(), 0);
    operations.iter().enumerate().try_fold(first, |(value, matched), (index, operation)| {
        let (value, more) = operation.step(of, &value).map_err(|failure| (index, failure))?;
        Ok((value, matched + more))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, max_global_rejects: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_patch_does_all_that_the_model_does_or_nothing((of, value, operations) in patches()) {
        prop_assume!(!operations.is_empty());
        let mut world = World::with("t", json!({ "schema": of.schema(&mut 0), "changes": {} }));
        world.put("1", &value.to_string()).expect("puts");
        let (stored, messages) = (world.stored.clone(), world.messages.len());
        let expected = patched(&of, &value, &operations);
        let written: Vec<_> = operations.iter().map(Operation::written).collect();
        let patch: Vec<_> = written.iter().map(|(kind, path, value)| (*kind, path.as_str(), value.as_deref())).collect();
        let found = world.patch("1", &patch);
        let shown = format!("{value} {written:?}: {expected:?}");
        match (&expected, found) {
            (Ok((after, matched)), Ok(reply)) => {
                let record: Value = serde_json::from_str(&world.get("1").expect("it is there")).expect("JSON");
                prop_assert_eq!((&record, reply.matched as usize), (after, *matched), "{}", shown);
                world.check_changes();
            }
            (Err((index, failure)), Err(error)) => {
                let known = match error.code {
                    ErrorCode::NoMatch => Failure::NoMatch,
                    ErrorCode::TestFailed => Failure::TestFailed,
                    _ => Failure::Misfit,
                };
                prop_assert_eq!(&known, failure, "{} but {}", shown, error);
                let place = format!("operation {}: ", index + 1);
                prop_assert!(operations.len() == 1 || error.message.starts_with(&place), "{} but {}", shown, error);
                prop_assert_eq!(&world.stored, &stored, "{}", shown);
                prop_assert_eq!(world.messages.len(), messages, "{}", shown);
            }
            (_, found) => prop_assert!(false, "{} but {:?}", shown, found),
        }
    }
}

#[test]
fn an_index_after_a_filter_follows_the_order_in_which_entries_came() {
    let lists = json!({ "type": "map", "values": { "type": "array", "items": "long" } });
    let schema = json!({ "type": "record", "name": "r", "fields": [{ "name": "a", "type": lists }] });
    let mut world = World::with("t", json!({ "schema": schema, "changes": {} }));
    world.put("1", r#"{"a":{}}"#).expect("puts");
    let patch = [
        (Kind::Insert, ".a", Some(r#"{"b":[1]}"#)),
        (Kind::Insert, ".a", Some(r#"{"a":[2]}"#)),
        (Kind::Clear, ".a{!(. == 7)}[1]", None),
    ];
    world.patch("1", &patch).expect("patches");
    let record: Value = serde_json::from_str(&world.get("1").expect("it is there")).expect("JSON");
    assert_eq!(record, json!({ "a": { "b": [1], "a": [] } }));
}
