//! Random values of random schemas. Every form leads back to the same bytes. Bytes and texts of strangers lead to
//! values or errors.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::*;
use millrace_avro::*;
use proptest::prelude::*;

fn to_text(schema: &Schema, bytes: &[u8], form: JsonForm) -> String {
    let mut out = Vec::new();
    to_json(schema, schema.root(), bytes, form, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn from_text(schema: &Schema, json: &str, form: JsonForm) -> Result<Vec<u8>, ValueError> {
    let mut out = Vec::new();
    from_json(schema, schema.root(), json.as_bytes(), form, Missing::Refuse, &mut out).map(|()| out)
}

/// All operations on bytes that may not be a value.
fn use_bytes(schema: &Schema, bytes: &[u8]) {
    let root = schema.root();
    let mut out = Vec::new();
    let _ = skip(schema, root, bytes);
    let _ = to_json(schema, root, bytes, JsonForm::Avro, &mut out);
    let _ = order_key(schema, root, bytes, true, &mut out);
    let _ = difference(schema, Some(bytes), Some(&[0, 0, 0]), 10);
    let _ = Resolution::new(schema, schema).unwrap().apply(bytes, &mut out);
    if let Ok(canonical) = canonicalise(schema, root, bytes) {
        assert_eq!(canonicalise(schema, root, &canonical).as_deref(), Ok(&canonical[..]));
        assert_eq!(skip(schema, root, &canonical), Ok(canonical.len()));
        let text = to_text(schema, &canonical, JsonForm::Plain);
        assert_eq!(from_text(schema, &text, JsonForm::Plain).as_deref(), Ok(&canonical[..]), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn values_come_back_from_both_forms_of_json(of in any_type(), entropy in entropy()) {
        let schema = parsed(&schema_of(&of));
        let bytes = value_of(&schema, &entropy);
        prop_assert_eq!(skip(&schema, schema.root(), &bytes), Ok(bytes.len()));
        prop_assert_eq!(canonicalise(&schema, schema.root(), &bytes), Ok(bytes.clone()));
        for form in [JsonForm::Plain, JsonForm::Avro] {
            let text = to_text(&schema, &bytes, form);
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(from_text(&schema, &text, form), Ok(bytes.clone()), "{}", text);
            // Other spaces and, if the map sorts, another order of members.
            let pretty = serde_json::to_string_pretty(&json).unwrap();
            let again = from_text(&schema, &pretty, form).unwrap();
            prop_assert_eq!(again.len(), bytes.len(), "{}", pretty);
        }
    }

    #[test]
    fn no_bytes_do_harm(of in any_type(), bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        use_bytes(&parsed(&schema_of(&of)), &bytes);
    }

    #[test]
    fn no_damaged_value_does_harm(of in any_type(), entropy in entropy(), at in any::<prop::sample::Index>(), byte: u8) {
        let schema = parsed(&schema_of(&of));
        let mut bytes = value_of(&schema, &entropy);
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            let cut = &bytes[..at];
            prop_assert!(skip(&schema, schema.root(), cut).is_err());
            prop_assert!(canonicalise(&schema, schema.root(), cut).is_err());
            bytes[at] = byte;
        }
        use_bytes(&schema, &bytes);
    }

    #[test]
    fn no_text_does_harm(of in any_type(), entropy in entropy(), at in any::<prop::sample::Index>(), letter in "[\\[\\]{}\",:0-9a-e.\\\\ -]{0,3}") {
        let schema = parsed(&schema_of(&of));
        let text = to_text(&schema, &value_of(&schema, &entropy), JsonForm::Plain);
        let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
        let place = places[at.index(places.len())];
        let next = place + text[place..].chars().next().map_or(0, char::len_utf8);
        for damaged in [format!("{}{letter}{}", &text[..place], &text[next..]), text[..place].to_owned()] {
            for form in [JsonForm::Plain, JsonForm::Avro] {
                if let Ok(bytes) = from_text(&schema, &damaged, form) {
                    prop_assert_eq!(canonicalise(&schema, schema.root(), &bytes), Ok(bytes.clone()));
                    prop_assert!(serde_json::from_str::<serde_json::Value>(&damaged).is_ok(), "{}", damaged);
                }
            }
        }
    }

    #[test]
    fn a_schema_reads_its_own_values_as_they_are(of in any_type(), entropy in entropy()) {
        let schema = parsed(&schema_of(&of));
        let bytes = value_of(&schema, &entropy);
        prop_assert_eq!(check_readable(&schema, &schema), Ok(()));
        let resolution = Resolution::new(&schema, &schema).unwrap();
        let mut out = Vec::new();
        resolution.apply(&bytes, &mut out).unwrap();
        prop_assert_eq!(out, bytes);
    }

    #[test]
    fn zero_values_are_values(of in any_type()) {
        let schema = parsed(&schema_of(&of));
        let bytes = schema.default_value().unwrap();
        prop_assert_eq!(canonicalise(&schema, schema.root(), &bytes), Ok(bytes.clone()));
    }

    #[test]
    fn what_another_schema_reads_is_a_value_of_it(old in any_type(), new in any_type(), entropy in entropy()) {
        let (old, new) = (parsed(&schema_of(&old)), parsed(&schema_of(&new)));
        let bytes = value_of(&old, &entropy);
        let readable = check_readable(&old, &new);
        match Resolution::new(&old, &new) {
            Ok(resolution) => {
                let mut out = Vec::new();
                match resolution.apply(&bytes, &mut out) {
                    // A value that was not a UUID or a time of day does not become one.
                    Ok(()) => prop_assert_eq!(canonicalise_stored(&new, new.root(), &out).unwrap().0, out),
                    // Bytes that become a string or a decimal must be one.
                    Err(error) => prop_assert!(readable.is_err() || error.message.contains("UTF-8") || error.message.contains("digits"), "{error}"),
                }
            }
            Err(_) => prop_assert!(readable.is_err()),
        }
    }

    #[test]
    fn values_differ_where_their_bytes_do(of in any_type(), one in entropy(), other in entropy()) {
        let schema = parsed(&schema_of(&of));
        let (before, after) = (value_of(&schema, &one), value_of(&schema, &other));
        let found = difference(&schema, Some(&before), Some(&after), 1000);
        prop_assert_eq!(found.is_empty(), before == after);
        for Difference { kind, before: old, after: new, .. } in found {
            prop_assert_eq!(old.is_some(), kind != DifferenceKind::Insert);
            prop_assert_eq!(new.is_some(), kind != DifferenceKind::Delete);
            for (place, bytes) in [(old, &before), (new, &after)] {
                if let Some((node, range)) = place {
                    prop_assert_eq!(skip(&schema, node, &bytes[range.clone()]), Ok(range.len()));
                }
            }
        }
    }
}
