//! Checks whether index rows and changes agree with the records, computed from the records' JSON.

use std::collections::{BTreeMap, BTreeSet};

use millrace_api::{Form, RecordOperation};
use millrace_base::{ErrorCode, shard_of_key};
use serde_json::Value;

use super::{SHARDS, World, text};

/// The values that a simple path leads to in JSON.
fn at<'a>(json: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut values = vec![json];
    for step in path.trim_start_matches('.').split('.') {
        let (name, is_each) = step.strip_suffix("[*]").map_or((step, false), |name| (name, true));
        values = values.into_iter().filter_map(|value| value.get(name)).collect();
        if is_each {
            values = values.into_iter().flat_map(|value| value.as_array().into_iter().flatten()).collect();
        }
    }
    values
}

impl World {
    /// Every stored record as JSON, by id. An expired one is `None`.
    pub fn records(&mut self, type_name: &str) -> BTreeMap<Vec<u8>, Option<Value>> {
        let ids: BTreeSet<Vec<u8>> =
            self.stored.keys().filter(|place| place.0 == type_name).map(|place| place.1.clone()).collect();
        let mut records = BTreeMap::new();
        for id in ids {
            let json = match self.run(type_name, &id, &RecordOperation::Get { form: Form::Json }) {
                Ok(reply) => Some(serde_json::from_str(&text(reply)).expect("JSON")),
                Err(error) if error.code == ErrorCode::UnknownRecord => None,
                Err(error) => panic!("{id:?}: {error}"),
            };
            records.insert(id, json);
        }
        records
    }

    /// Checks that index rows are exactly those of the records. Expired records have to be swept away first, because
    /// their values cannot be seen.
    pub fn check_rows(&mut self, type_name: &str) {
        let records = self.records(type_name);
        let registry = self.registry.clone();
        let of = registry.record_type(type_name).expect("a type");
        let schema = of.schema.schema();
        let mut expected = BTreeSet::new();
        for index in of.indexes() {
            for (id, json) in &records {
                let json = json.as_ref().expect("no record has expired");
                let found = at(json, &index.settings.path);
                let nothing = [&Value::Null];
                let is_single = !index.settings.path.contains('[');
                let found = if found.is_empty() && is_single { &nothing[..] } else { &found };
                for value in found {
                    let mut row = vec![b'i'];
                    row.extend_from_slice(&index.number.to_be_bytes());
                    let node = schema.root();
                    let fold = index.settings.ignore_case;
                    assert!(millrace_avro::order_key_of_json(schema, node, value, fold, &mut row));
                    // No id of the tests contains a NUL.
                    row.extend_from_slice(id);
                    row.extend_from_slice(&[0, 1]);
                    row.extend_from_slice(&(id.len() as u16 + 2).to_be_bytes());
                    expected.insert((shard_of_key(id, SHARDS), row));
                }
            }
        }
        let rows: BTreeSet<_> = self.shard_fields(type_name, b'i').into_iter().collect();
        let missing: Vec<_> = expected.difference(&rows).collect();
        let left_over: Vec<_> = rows.difference(&expected).collect();
        assert!(missing.is_empty() && left_over.is_empty(), "missing {missing:?}, left over {left_over:?}");
    }

    /// Checks that the changes since the beginning lead to the records of the type `t`.
    pub fn check_changes(&mut self) {
        let (mut built, mut cursor) = (BTreeMap::new(), String::new());
        loop {
            let (changes, next) = self.changes(&cursor, 7).expect("changes");
            if changes.is_empty() {
                break;
            }
            for change in changes {
                let id = change["id"].as_str().expect("an id").as_bytes().to_vec();
                match change["kind"].as_str().expect("a kind") {
                    "create" => assert!(built.insert(id, change["record"].clone()).is_none(), "{change}"),
                    "update" => assert!(built.insert(id, change["record"].clone()).is_some(), "{change}"),
                    "delete" | "expire" => assert!(built.remove(&id).is_some(), "{change}"),
                    other => panic!("{other}"),
                }
            }
            cursor = next;
        }
        let records = self.records("t");
        let records: BTreeMap<_, _> = records.into_iter().filter_map(|(id, json)| Some((id, json?))).collect();
        assert_eq!(built, records);
    }
}
