//! What an edited schema makes of the values written before. The result is compared with a naive model, and with the
//! Apache library if a value is refused.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(deprecated, reason = "what replaces these functions has more settings and does the same")]

mod edits;
mod model;

use crate::common::*;
use apache_avro::schema_compatibility::{Compatibility, SchemaCompatibility};
use edits::{edited, edits, has_union};
use millrace_avro::{Resolution, Schema, check_readable};
use model::{Model, Refusal, Side, encode};
use proptest::prelude::*;
use serde_json::Value;

fn resolved(old: &Schema, new: &Schema, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let resolution = Resolution::new(old, new).ok()?;
    resolution.apply(bytes, &mut out).ok().map(|()| out)
}

/// What the model makes of it, encoded.
fn predicted(old: &Value, new: &Value, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
    let model = Model { writer: Side::new(old), reader: Side::new(new) };
    let mut out = Vec::new();
    encode(&model.resolve(model.writer.decode(bytes))?, &mut out);
    Ok(out)
}

fn theirs(json: &Value) -> Option<apache_avro::Schema> {
    apache_avro::Schema::parse_str(&json.to_string()).ok()
}

/// The facts to judge by.
struct Disagreement {
    /// Our reason.
    refusal: Refusal,
    /// One of the schemas has a union, and the Apache library says only that some values can be read.
    is_in_union: bool,
}

/// The reason, and how to recognize it.
type KnownDifference = (&'static str, fn(&Disagreement) -> bool);

/// What we refuse and the Apache library reads.
const KNOWN_DIFFERENCES: [KnownDifference; 6] = [
    (
        "of a union it may take any type that the value happens to fit: by its fields and size, not by its name; a \
         long as an int; bytes, text, symbols and fixed for each other",
        |found| found.is_in_union,
    ),
    ("it does not compare the bytes of a decimal with the reader's precision", |found| {
        found.refusal == Refusal::TooManyDigits
    }),
    ("it does not compare the sizes of decimals that are fixed", |found| {
        found.refusal == Refusal::OtherSize || found.refusal == Refusal::NoBranch("fixed".to_owned())
    }),
    ("it takes the bytes of a text for those of a decimal, and the other way round", |found| {
        matches!(found.refusal, Refusal::OtherMeaning | Refusal::OtherScale)
    }),
    ("it knows UUIDs in bytes too, and takes them in bytes, text and fixed for the same", |found| {
        match &found.refusal {
            Refusal::OtherType(old, new) => {
                [old, new].iter().all(|kind| ["bytes", "string", "fixed"].contains(&&***kind))
            }
            refusal => *refusal == Refusal::NoBranch("string".to_owned()),
        }
    }),
    ("it takes bytes that are no text for a fixed of the union", |found| found.refusal == Refusal::NotUtf8),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 8000, max_global_rejects: 8000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_edited_schema_reads_old_values_as_the_model_does(of in any_type(), edits in edits(3), entropy in entropy()) {
        let json = schema_of(&of);
        let old = parsed(&json);
        let (edited, new) = edited(&json, &edits);
        let bytes = value_of(&old, &entropy);
        let expected = predicted(&json, &edited, &bytes);
        prop_assert_eq!(resolved(&old, &new, &bytes), expected.clone().ok(), "{} -> {}: {:?}", json, edited, expected);
        // What the schemas promise holds for each value, except for what only values can tell.
        if check_readable(&old, &new).is_ok() {
            prop_assert!(expected.is_ok() || expected.is_err_and(|refusal| refusal.is_of_the_value()), "{} -> {}", json, edited);
        }
    }

    #[test]
    fn what_is_refused_is_refused_by_the_apache_library_too(of in any_type(), edits in edits(0), entropy in entropy()) {
        let json = schema_of(&of);
        let old = parsed(&json);
        let (edited, new) = edited(&json, &edits);
        let bytes = value_of(&old, &entropy);
        let Err(refusal) = predicted(&json, &edited, &bytes) else { return Ok(()) };
        prop_assert_eq!(resolved(&old, &new, &bytes), None);
        let (Some(their_old), Some(their_new)) = (theirs(&json), theirs(&edited)) else {
            return Err(TestCaseError::reject("not schemas to them"));
        };
        let promised = SchemaCompatibility::can_read(&their_old, &their_new);
        let value = apache_avro::from_avro_datum(&their_old, &mut &bytes[..], None).unwrap();
        let read = value.resolve(&their_new);
        if read.is_err() || (promised.is_err() && !refusal.is_of_the_value()) {
            return Ok(());
        }
        let has_union = has_union(&json) || has_union(&edited);
        let found = Disagreement { refusal, is_in_union: has_union && promised == Ok(Compatibility::Partial) };
        let is_known = KNOWN_DIFFERENCES.iter().any(|(_, is_it)| is_it(&found));
        prop_assert!(is_known, "{} -> {}: {:?}, but {:?}, {:?}", json, edited, found.refusal, promised, read);
    }
}
