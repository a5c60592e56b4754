//! Random records, paths and changes, against a model.

mod tree;

use crate::support::{Record, decode};
use millrace_avpath::{Change, Parameters, Path};
use millrace_avro::canonicalise;
use proptest::prelude::*;
use serde_json::Value;
use tree::{Edit, Type, ValueLocation, changes, path_text, select, selections, update};

fn record(of: &Type, value: &Value) -> Record {
    Record::new(&of.schema(&mut 0).to_string(), value.clone())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn selects_what_the_model_selects((of, value, path) in selections()) {
        let record = record(&of, &value);
        let root = ValueLocation { of: &of, value, way: Vec::new() };
        let expected: Value = select(&path, &root).into_iter().map(|place| place.value).collect();
        let text = path_text(&path);
        prop_assert_eq!(record.select(&text), expected, "{}", text);
        let normal = Path::parse(&text).expect("a path").text().to_owned();
        let again = Path::parse(&normal).expect("its own text");
        prop_assert_eq!(again.text(), &normal);
        prop_assert_eq!(record.select(&normal), record.select(&text), "{} {}", normal, text);
    }

    #[test]
    fn changes_what_the_model_changes((of, value, path, edit) in changes()) {
        let record = record(&of, &value);
        let root = ValueLocation { of: &of, value, way: Vec::new() };
        let text = path_text(&path);
        let json = match &edit {
            Edit::Set(value) | Edit::Insert(value) | Edit::InsertAll(value) | Edit::AppendUnique(value) => value.to_string(),
            Edit::Increment(by) => by.to_string(),
            Edit::Delete | Edit::Clear => String::new(),
        };
        let change = match &edit {
            Edit::Set(_) => Change::Set(&json),
            Edit::Insert(_) => Change::Insert(&json),
            Edit::InsertAll(_) => Change::InsertAll(&json),
            Edit::AppendUnique(_) => Change::AppendUnique(&json),
            Edit::Increment(_) => Change::Increment(&json),
            Edit::Delete => Change::Delete,
            Edit::Clear => Change::Clear,
        };
        let updated = Path::parse(&text).expect("a path").update(&record.schema, &record.bytes, Parameters::NONE, change);
        let found = updated.as_ref().ok().map(|updated| {
            (decode(&record.schema, record.schema.root(), &updated.record), updated.matched)
        });
        prop_assert_eq!(found, update(&path, &root, &edit), "{} {:?}", text, updated);
        if let Ok(updated) = updated {
            let canonical = canonicalise(&record.schema, record.schema.root(), &updated.record);
            prop_assert_eq!(canonical.as_ref(), Ok(&updated.record));
        }
    }
}
