//! Keys sort like the values they stand for, whatever types numbers have.

#![allow(clippy::unwrap_used, reason = "tests")]

use millrace_avro::*;
use proptest::prelude::*;
use serde_json::json;
use std::cmp::Ordering;

fn schema(text: &str) -> Schema {
    Schema::parse(text, &[]).unwrap()
}

/// The key of a value given in plain JSON. Its literal must have the same key.
fn key(schema: &Schema, json: &serde_json::Value, fold_case: bool) -> Vec<u8> {
    let (mut bytes, mut key, mut literal) = (Vec::new(), Vec::new(), Vec::new());
    let text = json.to_string();
    from_json(schema, schema.root(), text.as_bytes(), JsonForm::Plain, Missing::Refuse, &mut bytes).unwrap();
    assert!(order_key(schema, schema.root(), &bytes, fold_case, &mut key));
    assert!(order_key_of_json(schema, schema.root(), json, fold_case, &mut literal));
    assert_eq!(key, literal, "{json}");
    key
}

const DECIMAL: &str = r#"{"type":"bytes","logicalType":"decimal","precision":40,"scale":4}"#;

/// Compares an integer with a double by the integers next to the double.
fn compare(integer: i64, double: f64) -> Ordering {
    if double >= 9.3e18 {
        return Ordering::Less;
    }
    if double <= -9.3e18 {
        return Ordering::Greater;
    }
    let floor = double.floor();
    i128::from(integer).cmp(&(floor as i128)).then(if double > floor { Ordering::Less } else { Ordering::Equal })
}

fn integers() -> impl Strategy<Value = i64> {
    prop_oneof![
        any::<i64>(),
        -1000_i64..1000,
        (0_u32..63, -3_i64..3).prop_map(|(shift, more)| (1_i64 << shift) + more),
        (0_u32..63, -3_i64..3).prop_map(|(shift, more)| -(1_i64 << shift) + more),
        any::<i64>().prop_map(|number| (number as f64) as i64),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn integers_sort_among_each_other_and_among_doubles(one in integers(), other in integers(), double in prop_oneof![any::<f64>(), integers().prop_map(|n| n as f64), (-1000_i32..1000).prop_map(|n| f64::from(n) / 8.0)]) {
        let long = schema(r#""long""#);
        let (one_key, other_key) = (key(&long, &json!(one), false), key(&long, &json!(other), false));
        prop_assert_eq!(one_key.cmp(&other_key), one.cmp(&other));
        if double.is_finite() {
            let double_key = key(&schema(r#""double""#), &json!(double), false);
            prop_assert_eq!(one_key.cmp(&double_key), compare(one, double), "{} {}", one, double);
        }
    }

    #[test]
    fn decimals_sort_by_value_and_among_integers(one in any::<i64>(), shift in 0_u32..63, more in -20_i64..20, integer in integers()) {
        let decimal = schema(DECIMAL);
        let text = |scaled: i128| json!(format!("{}{}.{:04}", if scaled < 0 { "-" } else { "" }, scaled.unsigned_abs() / 10_000, scaled.unsigned_abs() % 10_000));
        let first = i128::from(one >> shift);
        let second = first + i128::from(more);
        let (first_key, second_key) = (key(&decimal, &text(first), false), key(&decimal, &text(second), false));
        prop_assert_eq!(first_key.cmp(&second_key), first.cmp(&second));
        let large = i128::from(integer) * 10_000 + i128::from(more);
        let integer_key = key(&schema(r#""long""#), &json!(integer), false);
        prop_assert_eq!(key(&decimal, &text(large), false).cmp(&integer_key), large.cmp(&(i128::from(integer) * 10_000)));
    }

    #[test]
    fn texts_sort_by_their_bytes_and_no_key_begins_another(one in "[a-c\u{0}\u{1}é]{0,4}", other in "[a-c\u{0}\u{1}é]{0,4}") {
        let string = schema(r#""string""#);
        let (one_key, other_key) = (key(&string, &json!(one), false), key(&string, &json!(other), false));
        prop_assert_eq!(one_key.cmp(&other_key), one.cmp(&other));
        prop_assert!(one == other || !other_key.starts_with(&one_key));
    }
}

#[test]
fn values_of_all_types_have_their_place() {
    let union = schema(
        r#"["null","boolean","int","double","string",{"type":"enum","name":"E","symbols":["zz"]},"bytes",{"type":"array","items":"int"}]"#,
    );
    let branch = |branch: u8, rest: &[u8]| {
        let mut key = Vec::new();
        let bytes = [&[branch << 1], rest].concat();
        order_key(&union, union.root(), &bytes, false, &mut key).then_some(key)
    };
    let sorted = [
        branch(0, &[]),
        branch(1, &[0]),
        branch(1, &[1]),
        branch(3, &f64::NEG_INFINITY.to_le_bytes()),
        branch(2, &[1]),
        branch(2, &[0]),
        branch(3, &0.5_f64.to_le_bytes()),
        branch(2, &[2]),
        branch(3, &f64::INFINITY.to_le_bytes()),
        branch(3, &f64::NAN.to_le_bytes()),
        branch(4, &[2, b'A']),
        branch(5, &[0]),
        branch(6, &[2, 0]),
    ];
    assert!(sorted.iter().all(Option::is_some) && sorted.is_sorted_by(|one, other| one < other), "{sorted:?}");
    assert_eq!(branch(3, &(-0.0_f64).to_le_bytes()), branch(2, &[0]));
    assert_eq!((branch(7, &[0]), branch(9, &[]), branch(4, &[2])), (None, None, None));
}

#[test]
fn literals_stand_for_what_the_type_makes_of_them() {
    let date = schema(r#"["null",{"type":"int","logicalType":"date"}]"#);
    let number = key(&schema(r#""int""#), &json!(1), false);
    assert_eq!(key(&date, &json!("1970-01-02"), false), number);
    assert_eq!(key(&schema(DECIMAL), &json!("1.0000"), false), number);
    assert_eq!(key(&schema(DECIMAL), &json!(1.5), false), key(&schema(r#""double""#), &json!(1.5), false));
    assert_eq!(
        key(&schema(r#""float""#), &json!(0.1), false),
        key(&schema(r#""double""#), &json!(0.1_f32 as f64), false)
    );
    let string = schema(r#""string""#);
    assert_eq!(key(&string, &json!("ÀB"), true), key(&string, &json!("àb"), true));
    assert_ne!(key(&string, &json!("ÀB"), false), key(&string, &json!("àb"), false));
    let mut out = Vec::new();
    assert!(!order_key_of_json(&string, string.root(), &json!([]), false, &mut out) && out.is_empty());
}
