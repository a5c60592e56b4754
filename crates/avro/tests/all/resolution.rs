//! What one schema makes of another's values, which changes are compatible, and where values differ.

#![allow(clippy::unwrap_used, reason = "tests")]

use millrace_avro::*;

fn schema(text: &str) -> Schema {
    Schema::parse(text, &[]).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn record(fields: &str) -> String {
    format!(r#"{{"type":"record","name":"R","fields":[{fields}]}}"#)
}

/// Plain JSON written with one schema, as another one reads it.
fn resolved(old: &str, new: &str, json: &str) -> Result<String, String> {
    let (old, new) = (schema(old), schema(new));
    let (mut bytes, mut out, mut text) = (Vec::new(), Vec::new(), Vec::new());
    from_json(&old, old.root(), json.as_bytes(), JsonForm::Plain, Missing::Refuse, &mut bytes).unwrap();
    let resolution = Resolution::new(&old, &new).map_err(|error| error.to_string())?;
    resolution.apply(&bytes, &mut out).map_err(|error| error.to_string())?;
    to_json(&new, new.root(), &out, JsonForm::Plain, &mut text).unwrap();
    Ok(String::from_utf8(text).unwrap())
}

#[test]
fn values_are_resolved_as_specified() {
    let recursive =
        |more: &str| record(&format!(r#"{{"name":"v","type":"int"}},{more}{{"name":"next","type":["null","R"]}}"#));
    for (old, new, json, expected) in [
        (r#""int""#.to_owned(), r#""double""#.to_owned(), "7", "7.0"),
        (r#""long""#.to_owned(), r#""float""#.to_owned(), "7", "7.0"),
        (r#""float""#.to_owned(), r#""double""#.to_owned(), "0.5", "0.5"),
        (r#""string""#.to_owned(), r#""bytes""#.to_owned(), r#""ab""#, r#""YWI=""#),
        (r#""bytes""#.to_owned(), r#""string""#.to_owned(), r#""YWI=""#, r#""ab""#),
        (r#""int""#.to_owned(), r#"["string","double","int"]"#.to_owned(), "7", "7"),
        (r#""int""#.to_owned(), r#"["string","double"]"#.to_owned(), "7", "7.0"),
        (r#"["int","long"]"#.to_owned(), r#""long""#.to_owned(), "7", "7"),
        (r#"["null","int"]"#.to_owned(), r#"["int","null"]"#.to_owned(), "7", "7"),
        (r#"{"type":"array","items":"int"}"#.to_owned(), r#"{"type":"array","items":"double"}"#.to_owned(), "[1,2]", "[1.0,2.0]"),
        (r#"{"type":"map","values":"int"}"#.to_owned(), r#"{"type":"map","values":"double"}"#.to_owned(), r#"{"a":1}"#, r#"{"a":1.0}"#),
        (record(r#"{"name":"a","type":"int"},{"name":"b","type":"string"},{"name":"c","type":"int"}"#),
            record(r#"{"name":"c","type":"long"},{"name":"n","type":"int","default":9},{"name":"a","type":"int"}"#),
            r#"{"a":1,"b":"x","c":3}"#, r#"{"c":3,"n":9,"a":1}"#),
        (record(r#"{"name":"a","type":"int"}"#),
            r#"{"type":"record","name":"x.New","aliases":["R"],"fields":[{"name":"z","type":"int","aliases":["q","a"]}]}"#.to_owned().replace("\"R\"", "\"x.R\"").replace("x.New", "x.R"),
            r#"{"a":1}"#, r#"{"z":1}"#),
        (r#"{"type":"enum","name":"E","symbols":["a","b"]}"#.to_owned(),
            r#"{"type":"enum","name":"E","symbols":["c","a"],"default":"c"}"#.to_owned(), r#""b""#, r#""c""#),
        (recursive(""), recursive(r#"{"name":"w","type":"int","default":5},"#),
            r#"{"v":1,"next":{"v":2,"next":null}}"#, r#"{"v":1,"w":5,"next":{"v":2,"w":5,"next":null}}"#),
    ] {
        assert_eq!(resolved(&old, &new, json).as_deref(), Ok(expected), "{old} -> {new}");
        assert_eq!(check_readable(&schema(&old), &schema(&new)), Ok(()), "{old} -> {new}");
    }
}

#[test]
fn what_cannot_be_read_is_named_with_its_place() {
    let numbers = r#"{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}"#;
    for (old, new, path, message) in [
        (r#""long""#.to_owned(), r#""int""#.to_owned(), ".", "the writer's long cannot be read as int"),
        (record(""), record(r#"{"name":"a","type":"int"}"#), ".a", "no default"),
        (
            record(r#"{"name":"a","type":{"type":"array","items":"double"}}"#),
            record(r#"{"name":"a","type":{"type":"array","items":"float"}}"#),
            ".a[*]",
            "double cannot be read as float",
        ),
        (
            record(r#"{"name":"a","type":{"type":"map","values":["null","int"]}}"#),
            record(r#"{"name":"a","type":{"type":"map","values":["null","string"]}}"#),
            r#".a("*")"#,
            "no branch for the writer's int",
        ),
        (
            r#"{"type":"enum","name":"E","symbols":["a","b","c"]}"#.to_owned(),
            r#"{"type":"enum","name":"E","symbols":["a"]}"#.to_owned(),
            ".",
            "no symbol \"b\" and 1 more",
        ),
        (
            r#"{"type":"fixed","name":"F","size":2}"#.to_owned(),
            r#"{"type":"fixed","name":"F","size":3}"#.to_owned(),
            ".",
            "2 bytes, the reader's 3",
        ),
        (
            record(""),
            r#"{"type":"record","name":"Other","fields":[]}"#.to_owned(),
            ".",
            "the writer's R cannot be read as Other",
        ),
        (r#"["null","int"]"#.to_owned(), r#""int""#.to_owned(), ".", "the writer's null cannot be read as int"),
        (
            numbers.to_owned(),
            numbers.replace("\"scale\":2", "\"scale\":3"),
            ".",
            "2 digits behind the point, the reader's 3",
        ),
        (numbers.to_owned(), numbers.replace("\"precision\":9", "\"precision\":8"), ".", "9 digits, the reader's 8"),
    ] {
        let failures = check_readable(&schema(&old), &schema(&new)).unwrap_err();
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert_eq!(failures[0].path, path, "{failures:?}");
        assert!(failures[0].message.contains(message), "{failures:?}");
    }
    // If some values can be read, those are.
    assert_eq!(resolved(r#"["null","int"]"#, r#""int""#, "3").as_deref(), Ok("3"));
    assert!(resolved(r#"["null","int"]"#, r#""int""#, "null").is_err());
    assert!(resolved(r#"{"type":"array","items":"long"}"#, r#"{"type":"array","items":"int"}"#, "[]").is_ok());
    let error =
        resolved(&record(r#"{"name":"a","type":"long"}"#), &record(r#"{"name":"a","type":"int"}"#), r#"{"a":1}"#);
    assert!(error.unwrap_err().starts_with(".a: "));
}

fn differences(of: &str, before: &str, after: &str, limit: usize) -> Vec<String> {
    let schema = schema(of);
    let encode = |json: &str| {
        let mut out = Vec::new();
        from_json(&schema, schema.root(), json.as_bytes(), JsonForm::Plain, Missing::Default, &mut out).unwrap();
        out
    };
    let (before, after) = (encode(before), encode(after));
    let text = |place: &Option<(NodeId, std::ops::Range<usize>)>, bytes: &[u8]| {
        let mut out = Vec::new();
        if let Some((node, range)) = place {
            to_json(&schema, *node, &bytes[range.clone()], JsonForm::Plain, &mut out).unwrap();
        }
        String::from_utf8(out).unwrap()
    };
    let found = difference(&schema, Some(&before), Some(&after), limit);
    let told = found
        .iter()
        .map(|one| format!("{} {:?} {}>{}", one.path, one.kind, text(&one.before, &before), text(&one.after, &after)));
    told.collect()
}

#[test]
fn differences_are_the_smallest_changed_places() {
    let of = record(
        r#"{"name":"n","type":"int"},{"name":"o","type":["null","int"]},{"name":"l","type":{"type":"array","items":{"type":"record","name":"I","fields":[{"name":"x","type":"int"},{"name":"y","type":"int"}]}}},
        {"name":"m","type":{"type":"map","values":"int"}}"#,
    );
    let before = r#"{"n":1,"o":null,"l":[{"x":1},{"x":2},{"x":3}],"m":{"a":1,"b":2}}"#;
    assert!(differences(&of, before, before, 9).is_empty());
    for (after, expected) in [
        (r#"{"n":2,"o":5,"l":[{"x":1},{"x":2},{"x":3}],"m":{"a":1,"b":2}}"#, vec![".n Set 1>2", ".o Set null>5"]),
        (r#"{"n":1,"l":[{"x":1},{"x":2,"y":9},{"x":3}],"m":{"a":1,"b":2}}"#, vec![".l[1].y Set 0>9"]),
        (r#"{"n":1,"l":[{"x":1},{"x":3}],"m":{"a":1,"b":2}}"#, vec![r#".l[1] Delete {"x":2,"y":0}>"#]),
        (r#"{"n":1,"l":[{"x":8},{"x":1},{"x":2},{"x":3}],"m":{"a":1,"b":2}}"#, vec![r#".l[0] Insert >{"x":8,"y":0}"#]),
        (
            r#"{"n":1,"l":[{"x":1},{"x":2},{"x":3}],"m":{"c":3,"b":4}}"#,
            vec![r#".m("c") Insert >3"#, r#".m("b") Set 2>4"#, r#".m("a") Delete 1>"#],
        ),
    ] {
        assert_eq!(differences(&of, before, after, 9), expected);
    }
    let many = differences(&of, before, r#"{"n":2,"o":5}"#, 2);
    assert!(many.len() == 1 && many[0].starts_with(". Set "), "{many:?}");
    let plain = schema(r#""int""#);
    assert_eq!(difference(&plain, None, Some(&[2]), 1)[0].kind, DifferenceKind::Insert);
    assert_eq!(difference(&plain, Some(&[2]), None, 1)[0].kind, DifferenceKind::Delete);
    assert!(difference(&plain, None, None, 1).is_empty());
}
