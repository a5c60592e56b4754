//! The normal text of a schema: equal for equal schemas, different for different ones.

use super::*;

fn normal(text: &str) -> String {
    normal_text(text).expect("a schema")
}

#[test]
fn texts_of_one_schema_have_one_normal_form() {
    let same = [
        (r#""string""#, r#"{ "type" : "string" }"#),
        (r#"int"#, r#""int""#),
        (r#"{"type":"fixed","name":"F","size":4}"#, r#"{"size":4,"name":"F","type":"fixed"}"#),
        (r#"{"type":"fixed","name":"a.F","size":4}"#, r#"{"type":"fixed","name":"F","namespace":"a","size":4}"#),
        (r#"{"type":"fixed","name":"a.F","namespace":"b","size":4}"#, r#"{"type":"fixed","name":"a.F","size":4}"#),
        (r#"{"type":"array","items":"int"}"#, r#"{"items":{"type":"int"},"type":"array"}"#),
        (
            r#"{"type":"record","name":"a.R","fields":[{"name":"x","type":["null","R"],"default":null}]}"#,
            r#"{"type":"record","name":"R","namespace":"a","aliases":[],"fields":[
                {"name":"x","default":null,"order":"ascending","aliases":[],"type":["null",{"type":"a.R"}]}]}"#,
        ),
        (
            r#"{"type":"record","name":"a.R","fields":[{"name":"x","type":{"type":"enum","name":"E","symbols":["A"]}}]}"#,
            r#"{"type":"record","name":"a.R","fields":[{"name":"x","type":{"type":"enum","name":"a.E","symbols":["A"]}}]}"#,
        ),
    ];
    for (a, b) in same {
        assert_eq!(normal(a), normal(b), "{a}");
        assert_eq!(normal(&normal(a)), normal(a), "{a}");
    }
}

#[test]
fn texts_of_different_schemas_have_different_normal_forms() {
    let field = |inside: &str| format!(r#"{{"type":"record","name":"R","fields":[{{"name":"x",{inside}}}]}}"#);
    let different = [
        field(r#""type":"int""#),
        field(r#""type":"int","default":0"#),
        field(r#""type":"int","default":1"#),
        field(r#""type":"int","doc":"d""#),
        field(r#""type":"int","order":"descending""#),
        field(r#""type":"int","aliases":["y"]"#),
        field(r#""type":"int","unit":"s""#),
        field(r#""type":{"type":"int","logicalType":"date"}"#),
        field(r#""type":["null","int"]"#),
        field(r#""type":["int","null"]"#),
        field(r#""type":"R""#),
        field(r#""type":{"type":"fixed","name":"F","size":1}"#),
        field(r#""type":{"type":"fixed","name":"F","size":2}"#),
        r#"{"type":"record","name":"a.R","fields":[{"name":"x","type":{"type":"fixed","name":"F","size":1}}]}"#.into(),
        r#"{"type":"record","name":"a.R","fields":[{"name":"x","type":{"type":"fixed","name":"F","namespace":"","size":1}}]}"#
            .into(),
    ];
    for (index, a) in different.iter().enumerate() {
        for b in &different[..index] {
            assert_ne!(normal(a), normal(b));
        }
    }
}

#[test]
fn one_type_is_picked_out_of_several() {
    let file = r#"[
        {"type":"enum","name":"Color","namespace":"p","symbols":["RED"]},
        {"type":"record","name":"Wheel","namespace":"p","fields":[
            {"name":"size","type":{"type":"fixed","name":"Size","size":2}},{"name":"color","type":"Color"}]},
        {"type":"record","name":"Car","namespace":"q","fields":[
            {"name":"wheels","type":{"type":"array","items":"p.Wheel"}},
            {"name":"spare","type":["null","p.Wheel","p.Size"]},
            {"name":"color","type":"p.Color"},
            {"name":"other","type":"x.Unknown"},
            {"name":"tows","type":["null","Car"]}]}]"#;
    let car = pick(file, "q.Car").expect("a file").expect("another text");
    let expected = concat!(
        r#"{"fields":[{"name":"wheels","type":{"items":{"fields":["#,
        r#"{"name":"size","type":{"name":"p.Size","size":2,"type":"fixed"}},"#,
        r#"{"name":"color","type":{"name":"p.Color","symbols":["RED"],"type":"enum"}}],"#,
        r#""name":"p.Wheel","type":"record"},"type":"array"}},"#,
        r#"{"name":"spare","type":["null","p.Wheel","p.Size"]},"#,
        r#"{"name":"color","type":"p.Color"},{"name":"other","type":"x.Unknown"},"#,
        r#"{"name":"tows","type":["null","q.Car"]}],"name":"q.Car","type":"record"}"#,
    );
    assert_eq!(car, expected);
    // A type within another one.
    let size = r#"{"name":"p.Size","size":2,"type":"fixed"}"#;
    assert_eq!(pick(file, "p.Size"), Ok(Some(size.to_owned())));
    // The text is the type.
    assert_eq!(pick(size, "p.Size"), Ok(None));
    assert!(pick(file, "p.Car").is_err());
    assert!(pick(size, "Size").is_err());
    assert!(pick("{", "Size").is_err());
}

#[test]
fn a_type_without_namespace_stays_one_where_it_is_moved() {
    let file = r#"[{"type":"fixed","name":"F","size":1},
        {"type":"record","name":"a.R","fields":[{"name":"f","type":["null","a.G"]}]},
        {"type":"record","name":"a.G","fields":[{"name":"f","type":{"type":"F"}}]},
        {"type":"record","name":"S","fields":[{"name":"f","type":"F"}]}]"#;
    let picked = pick(file, "S").expect("a file").expect("another text");
    assert_eq!(
        picked,
        r#"{"fields":[{"name":"f","type":{"name":"F","namespace":"","size":1,"type":"fixed"}}],"name":"S","type":"record"}"#
    );
}

#[test]
fn what_would_grow_without_bound_is_refused() {
    // Each type uses the next one twice. If a type were written out more than once, the text would double with each
    // type. Nesting is bounded.
    let chain = |length: usize| {
        let types: Vec<String> = (0..length)
            .map(|n| {
                let next = n + 1;
                format!(
                    r#"{{"type":"record","name":"R{n}","fields":[{{"name":"a","type":"R{next}"}},{{"name":"b","type":"R{next}"}}]}}"#
                )
            })
            .collect();
        format!(r#"[{}, {{"type":"fixed","name":"R{length}","size":1}}]"#, types.join(","))
    };
    assert!(pick(&chain(20), "R0").is_ok());
    assert!(pick(&chain(500), "R0").is_err());
    // A long namespace, used over and over.
    let uses = vec![r#""F""#; 5000].join(",");
    let namespace = "n".repeat(10_000);
    let long = format!(r#"[{{"type":"fixed","name":"{namespace}.F","size":1}},[{uses}]]"#);
    assert!(normal_text(&long).is_ok());
    let long = format!(r#"{{"type":"record","name":"{namespace}.R","fields":[{{"name":"f","type":[{uses}]}}]}}"#);
    assert!(normal_text(&long).is_err());
    assert!(normal_text(&"[".repeat(100_000)).is_err());
}
