//! JSON of every type, in both forms, and refused JSON.

#![allow(clippy::unwrap_used, reason = "tests")]

use millrace_avro::ValueErrorKind::*;
use millrace_avro::*;

fn schema(text: &str) -> Schema {
    Schema::parse(text, &[]).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn read(schema: &Schema, json: &str, form: JsonForm) -> Result<Vec<u8>, ValueError> {
    let mut out = Vec::new();
    from_json(schema, schema.root(), json.as_bytes(), form, Missing::Refuse, &mut out).map(|()| out)
}

fn write(schema: &Schema, bytes: &[u8], form: JsonForm) -> String {
    let mut out = Vec::new();
    to_json(schema, schema.root(), bytes, form, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Reads plain JSON, and says how both forms write it.
fn both(of: &str, json: &str) -> (String, String) {
    let schema = schema(of);
    let bytes = read(&schema, json, JsonForm::Plain).unwrap_or_else(|error| panic!("{error}: {json}"));
    (write(&schema, &bytes, JsonForm::Plain), write(&schema, &bytes, JsonForm::Avro))
}

const PERSON: &str = r#"{"type":"record","name":"PersonInfo","fields":[{"name":"name","type":"string"},{"name":"age","type":"int"},
    {"name":"gender","type":{"type":"enum","name":"Gender","symbols":["Unknown","Female","Male"]},"default":"Unknown"},
    {"name":"emails","type":{"type":"array","items":"string"},"default":[]}]}"#;

/// A schema, JSON that is read, and how plain and Avro JSON write it.
type Forms = (&'static str, &'static str, &'static str, &'static str);

const PRIMITIVES: &[Forms] = &[
    (r#""null""#, "null", "null", "null"),
    (r#""boolean""#, " true ", "true", "true"),
    (r#""int""#, "-2147483648", "-2147483648", "-2147483648"),
    (r#""long""#, "9223372036854775807", "9223372036854775807", "9223372036854775807"),
    (r#""float""#, "0.1", "0.1", "0.1"),
    (r#""float""#, r#""NaN""#, r#""NaN""#, r#""NaN""#),
    (r#""float""#, r#""Infinity""#, r#""Infinity""#, r#""Infinity""#),
    (r#""float""#, r#""-Infinity""#, r#""-Infinity""#, r#""-Infinity""#),
    (r#""double""#, "5", "5.0", "5.0"),
    (r#""double""#, "-0.0", "-0.0", "-0.0"),
    (r#""double""#, "1e300", "1e+300", "1e+300"),
    (r#""double""#, r#""NaN""#, r#""NaN""#, r#""NaN""#),
    (r#""double""#, r#""Infinity""#, r#""Infinity""#, r#""Infinity""#),
    (r#""double""#, r#""-Infinity""#, r#""-Infinity""#, r#""-Infinity""#),
    (r#""string""#, r#""a\u00e9\ud83d\ude00\/\n\u0001""#, r#""aé😀/\n\u0001""#, r#""aé😀/\n\u0001""#),
    (r#""bytes""#, r#""/wA=""#, r#""/wA=""#, r#""ÿ\u0000""#),
    (r#""bytes""#, r#""_wA""#, r#""/wA=""#, r#""ÿ\u0000""#),
];

const COMPOSITES: &[Forms] = &[
    (r#"{"type":"fixed","name":"F","size":2}"#, r#""YWI=""#, r#""YWI=""#, r#""ab""#),
    (r#"{"type":"enum","name":"E","symbols":["A","B"]}"#, r#""B""#, r#""B""#, r#""B""#),
    (r#"{"type":"array","items":"long"}"#, "[ 1, -2 ]", "[1,-2]", "[1,-2]"),
    (r#"{"type":"array","items":{"type":"array","items":"int"}}"#, "[[],[7]]", "[[],[7]]", "[[],[7]]"),
    (r#"{"type":"map","values":"int"}"#, r#"{"b":1,"a":2}"#, r#"{"b":1,"a":2}"#, r#"{"b":1,"a":2}"#),
    (
        r#"{"type":"map","values":{"type":"array","items":"bytes"}}"#,
        r#"{"":[],"é":["YWI="]}"#,
        r#"{"":[],"é":["YWI="]}"#,
        r#"{"":[],"é":["ab"]}"#,
    ),
    (
        r#"{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"record","name":"I","fields":[
            {"name":"x","type":"int"},{"name":"y","type":["null","string"]}]}},{"name":"b","type":"I"}]}"#,
        r#"{"b":{"y":"t","x":2},"a":{"x":1,"y":null}}"#,
        r#"{"a":{"x":1,"y":null},"b":{"x":2,"y":"t"}}"#,
        r#"{"a":{"x":1,"y":null},"b":{"x":2,"y":{"string":"t"}}}"#,
    ),
    (
        r#"{"type":"record","name":"n.List","fields":[{"name":"v","type":"int"},{"name":"next","type":["null","List"]}]}"#,
        r#"{"v":1,"next":{"v":2,"next":null}}"#,
        r#"{"v":1,"next":{"v":2,"next":null}}"#,
        r#"{"v":1,"next":{"n.List":{"v":2,"next":null}}}"#,
    ),
    (
        r#"{"type":"record","name":"Tree","fields":[{"name":"below","type":{"type":"map","values":"Tree"}}]}"#,
        r#"{"below":{"a":{"below":{}},"b":{"below":{"c":{"below":{}}}}}}"#,
        r#"{"below":{"a":{"below":{}},"b":{"below":{"c":{"below":{}}}}}}"#,
        r#"{"below":{"a":{"below":{}},"b":{"below":{"c":{"below":{}}}}}}"#,
    ),
];

const MOMENTS: &[Forms] = &[
    (r#"{"type":"int","logicalType":"date"}"#, r#""2024-02-29""#, r#""2024-02-29""#, "19782"),
    (r#"{"type":"int","logicalType":"date"}"#, "-1", r#""1969-12-31""#, "-1"),
    (r#"{"type":"int","logicalType":"time-millis"}"#, r#""01:02:03""#, r#""01:02:03.000""#, "3723000"),
    (r#"{"type":"long","logicalType":"time-micros"}"#, r#""23:59:59.999999""#, r#""23:59:59.999999""#, "86399999999"),
    (r#"{"type":"long","logicalType":"timestamp-millis"}"#, "0", r#""1970-01-01T00:00:00.000Z""#, "0"),
    (
        r#"{"type":"long","logicalType":"timestamp-millis"}"#,
        r#""2024-02-29T13:00:00.5+01:00""#,
        r#""2024-02-29T12:00:00.500Z""#,
        "1709208000500",
    ),
    (
        r#"{"type":"long","logicalType":"timestamp-micros"}"#,
        r#""2024-02-29T12:00:00.000001Z""#,
        r#""2024-02-29T12:00:00.000001Z""#,
        "1709208000000001",
    ),
    (r#"{"type":"long","logicalType":"timestamp-nanos"}"#, "-1", r#""1969-12-31T23:59:59.999999999Z""#, "-1"),
    (
        r#"{"type":"long","logicalType":"local-timestamp-millis"}"#,
        r#""2024-02-29T12:00:00""#,
        r#""2024-02-29T12:00:00.000""#,
        "1709208000000",
    ),
    (
        r#"{"type":"long","logicalType":"local-timestamp-micros"}"#,
        r#""1970-01-01T00:00:00.5""#,
        r#""1970-01-01T00:00:00.500000""#,
        "500000",
    ),
    (
        r#"{"type":"long","logicalType":"local-timestamp-nanos"}"#,
        r#""2024-02-29T12:00:00.000000001""#,
        r#""2024-02-29T12:00:00.000000001""#,
        "1709208000000000001",
    ),
];

const OTHER_LOGICAL: &[Forms] = &[
    (r#"{"type":"bytes","logicalType":"decimal","precision":6,"scale":2}"#, "12.3", r#""12.30""#, r#""\u0004Î""#),
    (
        r#"{"type":"fixed","name":"D","size":2,"logicalType":"decimal","precision":4,"scale":2}"#,
        r#""-0.01""#,
        r#""-0.01""#,
        r#""ÿÿ""#,
    ),
    (
        r#"{"type":"string","logicalType":"uuid"}"#,
        r#""550e8400-E29B-41d4-a716-446655440000""#,
        r#""550e8400-E29B-41d4-a716-446655440000""#,
        r#""550e8400-E29B-41d4-a716-446655440000""#,
    ),
    (
        r#"{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}"#,
        r#""41424344-4142-4142-4142-414243444546""#,
        r#""41424344-4142-4142-4142-414243444546""#,
        r#""ABCDABABABABCDEF""#,
    ),
    (
        r#"{"type":"fixed","name":"P","size":12,"logicalType":"duration"}"#,
        r#"{"days":98,"months":97}"#,
        r#"{"months":97,"days":98,"millis":0}"#,
        r#""a\u0000\u0000\u0000b\u0000\u0000\u0000\u0000\u0000\u0000\u0000""#,
    ),
];

#[test]
fn every_type_has_its_two_forms() {
    for (of, json, plain, avro) in [PRIMITIVES, COMPOSITES, MOMENTS, OTHER_LOGICAL].concat() {
        let (found_plain, found_avro) = both(of, json);
        assert_eq!((&*found_plain, &*found_avro), (plain, avro), "{of}");
        let schema = schema(of);
        let bytes = read(&schema, json, JsonForm::Plain).unwrap();
        assert_eq!(read(&schema, plain, JsonForm::Plain), Ok(bytes.clone()));
        assert_eq!(read(&schema, avro, JsonForm::Avro), Ok(bytes));
    }
}

#[test]
fn unions_are_named_only_where_they_must_be() {
    let record =
        r#"{"type":"record","name":"n.R","fields":[{"name":"x","type":"int"},{"name":"y","type":"int","default":0}]}"#;
    let single = r#"{"type":"record","name":"S","fields":[{"name":"string","type":"int"}]}"#;
    let timestamp = r#"{"type":"long","logicalType":"timestamp-millis"}"#;
    for (of, json, plain, avro) in [
        (r#"["null","string"]"#.to_owned(), "null", "null", "null"),
        (r#"["null","string"]"#.to_owned(), r#""a""#, r#""a""#, r#"{"string":"a"}"#),
        (r#"["null","string"]"#.to_owned(), r#"{"string":"a"}"#, r#""a""#, r#"{"string":"a"}"#),
        (r#"["int","long"]"#.to_owned(), "1", "1", r#"{"int":1}"#),
        (r#"["int","long"]"#.to_owned(), "3000000000", r#"{"long":3000000000}"#, r#"{"long":3000000000}"#),
        (r#"["int","double"]"#.to_owned(), "1.0", "1.0", r#"{"double":1.0}"#),
        (r#"["double","string"]"#.to_owned(), r#""NaN""#, r#""NaN""#, r#"{"string":"NaN"}"#),
        (r#"["double","string"]"#.to_owned(), r#"{"double":"NaN"}"#, r#"{"double":"NaN"}"#, r#"{"double":"NaN"}"#),
        (format!(r#"["null",{timestamp}]"#), "0", r#""1970-01-01T00:00:00.000Z""#, r#"{"long":0}"#),
        (format!(r#"[{timestamp},"string"]"#), r#""a""#, r#"{"string":"a"}"#, r#"{"string":"a"}"#),
        (format!(r#"["null",{record}]"#), r#"{"x":1}"#, r#"{"x":1,"y":0}"#, r#"{"n.R":{"x":1,"y":0}}"#),
        (format!(r#"["string",{single}]"#), r#"{"S":{"string":1}}"#, r#"{"S":{"string":1}}"#, r#"{"S":{"string":1}}"#),
        (
            r#"["string",{"type":"map","values":"int"}]"#.to_owned(),
            r#"{"map":{"string":1}}"#,
            r#"{"map":{"string":1}}"#,
            r#"{"map":{"string":1}}"#,
        ),
        (
            r#"["null",{"type":"map","values":"int"}]"#.to_owned(),
            r#"{"a":1,"map":2}"#,
            r#"{"a":1,"map":2}"#,
            r#"{"map":{"a":1,"map":2}}"#,
        ),
    ] {
        assert_eq!(both(&of, json), (plain.to_owned(), avro.to_owned()), "{of} {json}");
    }
}

#[test]
fn members_come_in_any_order_and_missing_ones_from_defaults() {
    let schema = schema(PERSON);
    let expected = read(&schema, r#"{"name":"a","age":1,"gender":"Male","emails":["x"]}"#, JsonForm::Plain).unwrap();
    for json in [
        r#"{"emails":["x"],"gender":"Male","age":1,"name":"a"}"#,
        r#"{"name":"a","emails" : ["x"],"gender":"Male","age":1}"#,
        r#"{"\u006eame":"a","gender":"Male","age":1,"emails":["x"]}"#,
    ] {
        assert_eq!(read(&schema, json, JsonForm::Plain).as_ref(), Ok(&expected), "{json}");
    }
    let mut out = Vec::new();
    from_json(&schema, schema.root(), b"{\"age\":60}", JsonForm::Plain, Missing::Default, &mut out).unwrap();
    assert_eq!(write(&schema, &out, JsonForm::Plain), r#"{"name":"","age":60,"gender":"Unknown","emails":[]}"#);
    let mut merged = Vec::new();
    let json = br#"{"emails":["y"],"name":"b"}"#;
    merge_json(&schema, schema.root(), &expected, json, JsonForm::Plain, Missing::Refuse, &mut merged).unwrap();
    assert_eq!(write(&schema, &merged, JsonForm::Plain), r#"{"name":"b","age":1,"gender":"Male","emails":["y"]}"#);
}

#[test]
fn wrong_values_are_refused_each_with_its_kind_and_place() {
    let schema = schema(PERSON);
    let deep = schema_of_lists();
    for (json, kind, path) in [
        ("", NotJson, "."),
        ("{", NotJson, "."),
        (r#"{"name":"a","age":1}x"#, NotJson, "."),
        (r#"{"name":"a","age":01}"#, NotJson, ".age"),
        (r#"{"name":"a","age":1,}"#, NotJson, "."),
        (r#"{"name":"\ud800","age":1}"#, NotJson, ".name"),
        ("{\"name\":\"\u{1}\",\"age\":1}", NotJson, ".name"),
        (r#"{"name":tru,"age":1}"#, NotJson, ".name"),
        ("[]", WrongType, "."),
        (r#"{"name":"a","age":1.5}"#, WrongType, ".age"),
        (r#"{"name":"a","age":3000000000}"#, WrongType, ".age"),
        (r#"{"name":7,"age":1}"#, WrongType, ".name"),
        (r#"{"name":"a","age":1,"gender":"Other"}"#, WrongType, ".gender"),
        (r#"{"name":"a","age":1,"emails":["a",null]}"#, WrongType, ".emails[1]"),
        (r#"{"name":"a","age":1,"extra":[{"]"]}"#, UnknownField, "."),
        (r#"{"name":"a","age":1,"age":2}"#, WrongType, ".age"),
        (r#"{"age":1,"name":"a","age":2}"#, WrongType, ".age"),
        (r#"{"name":"a"}"#, MissingField, ".age"),
    ] {
        let error = read(&schema, json, JsonForm::Plain).unwrap_err();
        assert_eq!((error.kind, &*error.path), (kind, path), "{json}: {error}");
    }
    let nested = |depth: usize| format!("{}{}", r#"{"l":["#.repeat(depth), "]}".repeat(depth));
    assert!(read(&deep, &nested(32), JsonForm::Plain).is_ok());
    assert_eq!(read(&deep, &nested(33), JsonForm::Plain).unwrap_err().kind, TooDeep);
    assert_eq!(read(&deep, &"[".repeat(1 << 20), JsonForm::Plain).unwrap_err().kind, NotJson);
    let large = format!("\"{}\"", "a".repeat(1 << 20));
    assert_eq!(read(&self::schema(r#""string""#), &large, JsonForm::Plain).unwrap_err().kind, TooLarge);
    let nulls = format!("[{}null]", "null,".repeat(100_000));
    assert_eq!(
        read(&self::schema(r#"{"type":"array","items":"null"}"#), &nulls, JsonForm::Plain).unwrap_err().kind,
        TooLarge
    );
    let twice =
        read(&self::schema(r#"{"type":"map","values":"int"}"#), r#"{"a":1,"a":2}"#, JsonForm::Plain).unwrap_err();
    assert_eq!((twice.kind, &*twice.path), (WrongType, r#"("a")"#));
    let long = "a".repeat(1 << 20);
    for large in [format!(r#"{{"name":"{long}","age":1}}"#), format!(r#"{{"age":1,"name":"{long}"}}"#)] {
        let error = read(&schema, &large, JsonForm::Plain).unwrap_err();
        assert_eq!((error.kind, &*error.path), (TooLarge, ".name"), "the field that is too large");
    }
    let untagged = read(&self::schema(r#"["null","int"]"#), "1", JsonForm::Avro).unwrap_err();
    assert_eq!(untagged.kind, WrongType);
}

#[test]
fn an_enum_says_what_it_takes_as_long_as_that_is_short() {
    let long = "x".repeat(41);
    let many: Vec<String> = (0..12).map(|number| format!("s{number}")).collect();
    for (symbols, expected) in [
        (vec!["a", "b"], "\"z\" is not a symbol of E: a, b"),
        (
            many.iter().map(String::as_str).collect(),
            "\"z\" is not a symbol of E: s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 and 2 more",
        ),
        (vec!["a", &long, "b"], "\"z\" is not a symbol of E: a and 2 more"),
        (vec![&*long], "\"z\" is not a symbol of E"),
    ] {
        let schema = schema(&serde_json::json!({ "type": "enum", "name": "E", "symbols": symbols }).to_string());
        assert_eq!(read(&schema, "\"z\"", JsonForm::Plain).unwrap_err().message, expected);
    }
}

fn schema_of_lists() -> Schema {
    schema(r#"{"type":"record","name":"L","fields":[{"name":"l","type":{"type":"array","items":"L"}}]}"#)
}

#[test]
fn bytes_of_strangers_are_checked_and_made_canonical() {
    let array = schema(r#"{"type":"array","items":"int"}"#);
    let root = array.root();
    // Two blocks, one with its length, and a number longer than it needs to be.
    let canonical = canonicalise(&array, root, &[1, 2, 2, 2, 0x84, 0, 0]).unwrap();
    assert_eq!(canonical, [4, 2, 4, 0]);
    assert_eq!(skip(&array, root, &[1, 2, 2, 2, 0x84, 0, 0]), Ok(7));
    for (of, bytes, path) in [
        (r#"{"type":"array","items":"string"}"#, &[4, 0, 2, 0xff, 0][..], "[1]"),
        (r#"{"type":"map","values":"int"}"#, &[4, 2, b'a', 2, 2, b'a', 4, 0], "(\"a\")"),
        (r#"{"type":"array","items":"long"}"#, &[1, 6, 2, 2, 0x84, 0, 0], "."),
        (r#""boolean""#, &[2], "."),
        (r#"["null","int"]"#, &[4], "."),
        (r#""int""#, &[2, 0], "."),
        (r#""int""#, &[0x80, 0x80, 0x80, 0x80, 0x80, 1], "."),
        (r#""bytes""#, &[3, 0], "."),
        (r#"{"type":"bytes","logicalType":"decimal","precision":1}"#, &[2, 10], "."),
        (r#"{"type":"array","items":"null"}"#, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0], "."),
    ] {
        let schema = schema(of);
        let error = canonicalise(&schema, schema.root(), bytes).unwrap_err();
        assert!(error.path == path || error.kind == TooLarge, "{of}: {error}");
    }
    let decimal = schema(r#"{"type":"bytes","logicalType":"decimal","precision":3}"#);
    assert_eq!(canonicalise(&decimal, decimal.root(), &[6, 0, 0, 5]).unwrap(), [2, 5]);
}

const LOGICAL: &str = r#"{"type":"record","name":"L","fields":[
    {"name":"id","type":{"type":"string","logicalType":"uuid"}},{"name":"at","type":["null",{"type":"int","logicalType":"time-millis"}]},
    {"name":"fine","type":{"type":"array","items":{"type":"long","logicalType":"time-micros"}}}]}"#;

const NIL: &str = "00000000-0000-0000-0000-000000000000";

#[test]
fn what_logical_types_do_not_allow_is_refused_with_its_place() {
    let schema = schema(LOGICAL);
    let record = |id: &str, at: &str, fine: &str| format!(r#"{{"id":{id},"at":{at},"fine":[{fine}]}}"#);
    let nil = format!("{NIL:?}");
    assert!(read(&schema, &record(&nil, "86399999", "0,86399999999"), JsonForm::Plain).is_ok());
    for (json, place) in [
        (record(r#""""#, "null", ""), ".id"),
        (record(r#""any text""#, "null", ""), ".id"),
        (record("7", "null", ""), ".id"),
        (record(r#""{550e8400-e29b-41d4-a716-446655440000}""#, "null", ""), ".id"),
        (record(r#""550e8400e29b41d4a716446655440000""#, "null", ""), ".id"),
        (record(r#""550e8400-e29b-41d4-a716-44665544000g""#, "null", ""), ".id"),
        (record(&nil, "86400000", ""), ".at"),
        (record(&nil, "-1", ""), ".at"),
        (record(&nil, "null", "0,86400000000"), ".fine[1]"),
    ] {
        let error = read(&schema, &json, JsonForm::Plain).unwrap_err();
        assert_eq!((error.kind, &*error.path), (WrongType, place), "{json}: {error}");
    }
    let tagged = format!(r#"{{"id":"{NIL}","at":{{"int":86400000}},"fine":[]}}"#);
    assert!(read(&schema, &tagged, JsonForm::Avro).is_err());
}

#[test]
fn binary_is_checked_too_and_what_is_stored_stays_readable() {
    let schema = schema(LOGICAL);
    let encode = |id: &str, at: i64, fine: i64| {
        let mut out = Vec::new();
        write_bytes(&mut out, id.as_bytes());
        for number in [1, at, 1, fine, 0] {
            write_long(&mut out, number);
        }
        out
    };
    let good = encode(NIL, 86_399_999, 0);
    assert_eq!(canonicalise(&schema, schema.root(), &good), Ok(good));
    for (id, at, fine, place) in
        [("", 0, 0, ".id"), ("any text", 0, 0, ".id"), (NIL, 86_400_000, 0, ".at"), (NIL, 0, -1, ".fine[0]")]
    {
        let bytes = encode(id, at, fine);
        let error = canonicalise(&schema, schema.root(), &bytes).unwrap_err();
        assert_eq!((error.kind, &*error.path), (Malformed, place), "{error}");
        assert_eq!(canonicalise_stored(&schema, schema.root(), &bytes), Ok((bytes.clone(), 6)));
        let (at, fine) = if id == NIL { (at, fine) } else { (0, 0) };
        let json = write(&schema, &bytes, JsonForm::Plain);
        let number = |number: i64, text: &str| if number == 0 { format!("{text:?}") } else { number.to_string() };
        let (at, fine) = (number(at, "00:00:00.000"), number(fine, "00:00:00.000000"));
        assert_eq!(json, format!(r#"{{"id":"{id}","at":{at},"fine":[{fine}]}}"#));
    }
}

#[test]
fn the_zero_value_is_one_that_can_be_written() {
    let schema = schema(LOGICAL);
    let zero = schema.default_value().unwrap();
    assert_eq!(canonicalise(&schema, schema.root(), &zero).as_ref(), Ok(&zero));
    assert_eq!(write(&schema, &zero, JsonForm::Plain), format!(r#"{{"id":"{NIL}","at":null,"fine":[]}}"#));
}

#[test]
fn members_in_another_order_are_json_too() {
    let schema = schema(PERSON);
    let of_age = |age: &str| {
        read(&schema, &format!(r#"{{"emails":[],"gender":"Male","name":"a","age":{age}}}"#), JsonForm::Plain)
    };
    assert!(of_age("-1").is_ok() && of_age(" 7 ").is_ok());
    for wrong in ["-1\u{7}", "-1abc", "1.", "01", "true7", "nul", "-"] {
        let error = of_age(wrong).unwrap_err();
        assert!(matches!(error.kind, NotJson | WrongType), "{wrong}: {error}");
    }
}
