//! A compatible change keeps the meaning of values: no logical type is read as another one.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{entropy, parsed, value_of};
use millrace_avro::*;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A type's name, as in messages: `long`, or `long (timestamp-millis)`.
fn named(name: &str) -> Value {
    let Some((kind, logical)) = name.split_once(" (") else {
        return match name {
            "fixed" => json!({ "type": "fixed", "name": "F", "size": 12 }),
            plain => json!(plain),
        };
    };
    let logical = logical.trim_end_matches(')');
    let mut json = json!({ "type": kind, "logicalType": logical });
    if kind == "fixed" {
        json["name"] = json!("F");
        json["size"] = json!(if logical == "uuid" { 16 } else { 12 });
    }
    if logical == "decimal" {
        json["precision"] = json!(20);
        json["scale"] = json!(3);
    }
    json
}

const TYPES: [&str; 24] = [
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    "fixed",
    "boolean",
    "int (date)",
    "int (time-millis)",
    "long (time-micros)",
    "long (timestamp-millis)",
    "long (timestamp-micros)",
    "long (timestamp-nanos)",
    "long (local-timestamp-millis)",
    "long (local-timestamp-micros)",
    "long (local-timestamp-nanos)",
    "bytes (decimal)",
    "fixed (decimal)",
    "fixed (duration)",
    "fixed (uuid)",
    "string (uuid)",
    // Not a known logical type there.
    "int (timestamp-millis)",
    "string (decimal)",
];

/// The types around a type, and the path to it.
fn around(place: usize, of: Value) -> (Value, &'static str) {
    match place {
        0 => (of, "."),
        1 => (json!({ "type": "array", "items": of }), "[*]"),
        2 => (json!({ "type": "record", "name": "R", "fields": [{ "name": "at", "type": of }] }), ".at"),
        3 => (
            json!({ "type": "record", "name": "R", "fields": [{ "name": "m", "type": { "type": "map", "values": of } }] }),
            ".m(\"*\")",
        ),
        _ => (json!({ "type": "record", "name": "R", "fields": [{ "name": "at", "type": ["null", of] }] }), ".at"),
    }
}

/// The logical type for which a name stands.
fn logical(name: &str) -> Option<&str> {
    let (kind, logical) = name.split_once(" (")?;
    let logical = logical.trim_end_matches(')');
    let is_known = !matches!((kind, logical), ("int", "timestamp-millis") | ("string", "decimal"));
    is_known.then_some(logical)
}

fn base(name: &str) -> &str {
    name.split(' ').next().unwrap()
}

fn text(schema: &Schema, bytes: &[u8]) -> String {
    let mut out = Vec::new();
    to_json(schema, schema.root(), bytes, JsonForm::Plain, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_logical_type_is_not_read_as_another_one() {
    for (old, new) in [
        ("string", "bytes (decimal)"),
        ("bytes (decimal)", "string"),
        ("string (uuid)", "bytes (decimal)"),
        ("bytes (decimal)", "string (uuid)"),
        ("long (timestamp-millis)", "long (timestamp-micros)"),
        ("long (timestamp-micros)", "long (timestamp-nanos)"),
        ("long (timestamp-millis)", "long (local-timestamp-millis)"),
        ("long (local-timestamp-millis)", "long (local-timestamp-micros)"),
        ("long (local-timestamp-nanos)", "long (local-timestamp-micros)"),
        ("long (time-micros)", "long (timestamp-micros)"),
        ("int (time-millis)", "long (time-micros)"),
        ("int (time-millis)", "int (date)"),
        ("int (date)", "long (timestamp-millis)"),
        ("fixed (duration)", "fixed (decimal)"),
        ("fixed (decimal)", "fixed (duration)"),
    ] {
        for place in 0..5 {
            let ((writer, path), (reader, _)) = (around(place, named(old)), around(place, named(new)));
            let (writer, reader) = (parsed(&writer), parsed(&reader));
            let failures = check_readable(&writer, &reader).expect_err(&format!("{old} as {new}, {path}"));
            assert_eq!(failures.len(), 1, "{failures:?}");
            assert_eq!(failures[0].path, path, "{failures:?}");
            let told = format!("the writer's {old} cannot be read as {new}: its values would mean something else");
            assert_eq!(failures[0].message, told);
            let entropy = [1; 40];
            let bytes = value_of(&writer, &entropy);
            // A wrong value would be worse than none.
            let read = Resolution::new(&writer, &reader)
                .map_err(|error| error.to_string())
                .and_then(|resolution| resolution.apply(&bytes, &mut Vec::new()).map_err(|error| error.to_string()));
            let error = read.expect_err(&format!("{old} as {new}, {path}"));
            assert!(error.ends_with(&told), "{error}");
        }
    }
}

#[test]
fn logical_types_come_and_go_and_the_specifications_promotions_stay() {
    for (old, new) in [
        ("long", "long (timestamp-millis)"),
        ("long (timestamp-millis)", "long"),
        ("int", "long (timestamp-millis)"),
        ("int", "int (date)"),
        ("int (date)", "int"),
        ("int (date)", "long"),
        ("int (date)", "double"),
        ("string", "string (uuid)"),
        ("string (uuid)", "string"),
        ("string (uuid)", "bytes"),
        ("bytes", "string (uuid)"),
        ("string", "bytes"),
        ("bytes", "string"),
        ("bytes", "bytes (decimal)"),
        ("bytes (decimal)", "bytes"),
        ("fixed", "fixed (duration)"),
        ("fixed (duration)", "fixed"),
        ("int (timestamp-millis)", "long (timestamp-millis)"),
        ("string (decimal)", "bytes"),
    ] {
        for place in 0..5 {
            let (writer, reader) = (around(place, named(old)).0, around(place, named(new)).0);
            assert_eq!(check_readable(&parsed(&writer), &parsed(&reader)), Ok(()), "{old} as {new}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    /// If both sides are logical, they are the same, and people read the same text before and after.
    #[test]
    fn what_is_compatible_means_the_same(
        old in prop::sample::select(TYPES.to_vec()),
        new in prop::sample::select(TYPES.to_vec()),
        place in 0_usize..5,
        entropy in entropy(),
    ) {
        let (writer, reader) = (parsed(&around(place, named(old)).0), parsed(&around(place, named(new)).0));
        let is_readable = check_readable(&writer, &reader).is_ok();
        let made = Resolution::new(&writer, &reader);
        prop_assert!(made.is_ok() || !is_readable, "whoever checks and whoever reads agree");
        let is_text = |name| matches!(base(name), "string" | "bytes");
        let means_more = |name| logical(name).is_some_and(|logical| logical != "uuid");
        if is_text(old) && is_text(new) && base(old) != base(new) && (means_more(old) || means_more(new)) {
            prop_assert!(!is_readable, "{old} as {new}");
        }
        if let (Some(before), Some(after)) = (logical(old), logical(new)) {
            prop_assert!(before == after || !is_readable, "{old} as {new}");
            if is_readable {
                let bytes = value_of(&writer, &entropy);
                let mut out = Vec::new();
                made.unwrap().apply(&bytes, &mut out).unwrap();
                prop_assert_eq!(text(&writer, &bytes), text(&reader, &out));
            }
        }
    }
}
