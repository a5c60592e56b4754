//! Our encoding, canonical form, fingerprint and resolution, compared with those of the Apache library.
//!
//! The library is not asked where it differs from the specification. It does not look for a reader's branch of the
//! writer's own type before others. It has its own JSON, which is not the specification's encoding. To it, a `duration`
//! must be a fixed, where the specification ignores a misplaced one. It leaves `{"type":"int"}` in the canonical form
//! of an int that had a logical type. It takes a default of `bytes` for UTF-8, not for code points. So the types here
//! have no logical types, unions are resolved only to themselves, and defaults of bytes are ASCII. The test `evolution`
//! compares refusals, with all types.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(deprecated, reason = "what replaces these functions has more settings and does the same")]

use crate::common::*;
use apache_avro::rabin::Rabin;
use millrace_avro::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn theirs(json: &Value) -> Option<apache_avro::Schema> {
    apache_avro::Schema::parse_str(&json.to_string()).ok()
}

/// A record with these fields, each with this default.
fn record(fields: &[(usize, Value, Option<Value>)]) -> Value {
    let field = |(number, of, default): &(usize, Value, Option<Value>)| match default {
        Some(default) => json!({"name":format!("g{number}"),"type":of,"default":default}),
        None => json!({"name":format!("g{number}"),"type":of}),
    };
    json!({"type":"record","name":"Top","fields":fields.iter().map(field).collect::<Vec<_>>()})
}

fn scalar() -> impl Strategy<Value = (Value, Value)> {
    prop::sample::select(vec![
        (json!("int"), json!(-3)),
        (json!("long"), json!(1_099_511_627_776_i64)),
        (json!("float"), json!(1.5)),
        (json!("double"), json!(0.1)),
        (json!("string"), json!("é\"")),
        (json!("bytes"), json!("ab\u{0}")),
        (json!("boolean"), json!(true)),
        (json!({"type":"array","items":"int"}), json!([1, 2])),
        (json!({"type":"map","values":"double"}), json!({"a":0.5})),
        (json!({"type":"enum","name":"En","symbols":["A","B","C"]}), json!("B")),
        (json!({"type":"enum","name":"En","symbols":["C","A"],"default":"C"}), json!("A")),
        (json!(["null", "string"]), json!(null)),
        (json!({"type":"fixed","name":"Fx","size":2}), json!("ab")),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn encodings_agree(of in plain_type(), entropy in entropy()) {
        let json = schema_of(&of);
        let ours = parsed(&json);
        let Some(theirs) = theirs(&json) else { return Err(TestCaseError::reject("not a schema to them")) };
        let bytes = value_of(&ours, &entropy);
        let mut rest = &bytes[..];
        let value = apache_avro::from_avro_datum(&theirs, &mut rest, None).unwrap();
        prop_assert!(rest.is_empty());
        let again = apache_avro::to_avro_datum(&theirs, value).unwrap();
        // Their maps are in the order of a hash table.
        prop_assert_eq!(again.len(), bytes.len());
        if !json.to_string().contains("\"map\"") {
            prop_assert_eq!(again, bytes);
        } else {
            prop_assert_eq!(canonicalise(&ours, ours.root(), &again), Ok(again.clone()));
        }
    }

    #[test]
    fn canonical_forms_and_fingerprints_agree(of in plain_type()) {
        let json = schema_of(&of);
        let ours = parsed(&json);
        let Some(theirs) = theirs(&json) else { return Err(TestCaseError::reject("not a schema to them")) };
        prop_assert_eq!(ours.canonical_form(), theirs.canonical_form());
        prop_assert_eq!(ours.fingerprint().to_le_bytes().to_vec(), theirs.fingerprint::<Rabin>().bytes);
        let again = Schema::parse(&ours.canonical_form(), &[]).unwrap();
        prop_assert_eq!(again.canonical_form(), ours.canonical_form());
    }

    #[test]
    fn resolutions_agree(
        old in prop::collection::btree_map(0_usize..5, scalar(), 0..5),
        new in prop::collection::vec((0_usize..5, scalar(), any::<bool>()), 0..5),
        entropy in entropy(),
    ) {
        let named = |json: &Value| json.get("name").is_some();
        let old: Vec<_> = old.into_iter().map(|(number, (of, _))| (number, of, None)).collect();
        let mut seen = std::collections::BTreeSet::new();
        let new: Vec<_> = new
            .into_iter()
            .filter(|(number, ..)| seen.insert(*number))
            .map(|(number, (of, default), has_default)| (number, of, has_default.then_some(default)))
            .collect();
        // A name is defined once in a schema.
        prop_assume!(old.iter().filter(|field| named(&field.1)).count() <= 1);
        prop_assume!(new.iter().filter(|field| named(&field.1)).count() <= 1);
        let (old, new) = (record(&old), record(&new));
        let (our_old, our_new) = (parsed(&old), parsed(&new));
        let bytes = value_of(&our_old, &entropy);
        let (their_old, their_new) = (theirs(&old).unwrap(), theirs(&new).unwrap());
        let value = apache_avro::from_avro_datum(&their_old, &mut &bytes[..], None).unwrap();
        let their_result = value.resolve(&their_new).ok().and_then(|value| apache_avro::to_avro_datum(&their_new, value).ok());
        let mut out = Vec::new();
        let our_result = Resolution::new(&our_old, &our_new).ok().and_then(|plan| plan.apply(&bytes, &mut out).ok());
        if our_result.is_some() {
            // The specification allows this and the library does not do it: nothing here.
            let their_result = their_result.map(|bytes| canonicalise(&our_new, our_new.root(), &bytes).unwrap());
            if !new.to_string().contains("\"map\"") {
                prop_assert_eq!(their_result, Some(out), "{} {}", old, new);
            }
        }
    }
}
