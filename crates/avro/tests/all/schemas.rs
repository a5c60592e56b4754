//! Which texts are schemas, and what they compile to.

#![allow(clippy::unwrap_used, reason = "tests")]

use millrace_avro::*;

fn refused(text: &str) -> String {
    match Schema::parse(text, &[]) {
        Ok(_) => panic!("{text}"),
        Err(error) => error.message,
    }
}

fn plain(schema: &Schema, node: NodeId, bytes: &[u8]) -> String {
    let mut out = Vec::new();
    to_json(schema, node, bytes, JsonForm::Plain, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn default_of(text: &str) -> String {
    let schema = Schema::parse(text, &[]).unwrap_or_else(|error| panic!("{error}: {text}"));
    plain(&schema, schema.root(), &schema.default_value().unwrap())
}

#[test]
fn wrong_schemas_are_refused_with_the_place() {
    let field = |of: &str| format!(r#"{{"type":"record","name":"n.A","fields":[{{"name":"f","type":{of}}}]}}"#);
    for (text, expected) in [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("7", "a schema is"),
        (r#""strin""#, "no type \"strin\""),
        ("{}", "\"type\" is missing"),
        (r#"{"type":"record","name":"A"}"#, "A: the array \"fields\""),
        (r#"{"type":"record","fields":[]}"#, "\"name\" is missing"),
        (r#"{"type":"record","name":"1A","fields":[]}"#, "\"1A\" is not a name"),
        (r#"{"type":"record","name":"a..B","fields":[]}"#, "is not a name"),
        (r#"{"type":"record","name":"a.int","fields":[]}"#, "primitive"),
        (r#"{"type":"record","name":"A","fields":[{"type":"int"}]}"#, "field 0 has no name"),
        (r#"{"type":"record","name":"A","fields":[{"name":"x-y","type":"int"}]}"#, "\"x-y\" is not a name"),
        (r#"{"type":"record","name":"A","fields":[{"name":"x"}]}"#, "A.x: the member \"type\""),
        (r#"{"type":"record","name":"A","fields":[{"name":"x","type":"int"},{"name":"x","type":"int"}]}"#, "twice"),
        (&field(r#"{"type":"array","items":"nope"}"#), "n.A.f.items: there is no type \"nope\""),
        (&field(r#"["int",["null"]]"#), "n.A.f.branch 1: a union holds no unions"),
        (&field(r#"["int","int"]"#), "two branches \"int\""),
        (&field(r#"[{"type":"array","items":"int"},{"type":"array","items":"long"}]"#), "two branches \"array\""),
        (&field("[]"), "without branches"),
        (&field(r#""A""#), "the record holds itself"),
        (&field(r#"{"type":"record","name":"A","fields":[]}"#), "defined twice"),
        (r#"{"type":"enum","name":"E","symbols":[]}"#, "without symbols"),
        (r#"{"type":"enum","name":"E","symbols":["a","a"]}"#, "E: the symbol \"a\" is there twice"),
        (r#"{"type":"enum","name":"E","symbols":["a b"]}"#, "is not a name"),
        (r#"{"type":"enum","name":"E","symbols":["a"],"default":"b"}"#, "the default \"b\""),
        (r#"{"type":"fixed","name":"F","size":-1}"#, "\"size\""),
        (r#"{"type":"fixed","name":"F","size":99999999999}"#, "at most"),
        (
            r#"[{"type":"record","name":"A","fields":[{"name":"b","type":["A"]}]},"int"]"#,
            "no value of this type ever ends",
        ),
        (r#"{"type":"bytes","logicalType":"decimal","precision":2000}"#, "at most 1000 digits"),
    ] {
        let message = refused(text);
        assert!(message.contains(expected), "{text}: {message}");
    }
    for (of, default, expected) in [
        (r#""int""#, "1.5", "1.5 is not an int"),
        (r#""int""#, "2147483648", "is not an int"),
        (r#""long""#, "9223372036854775808", "is not a long"),
        (r#""string""#, "null", "null is not a string"),
        (r#""bytes""#, "\"€\"", "U+00FF"),
        (r#"{"type":"fixed","name":"F","size":2}"#, "\"a\"", "this size"),
        (r#"{"type":"enum","name":"E","symbols":["a"]}"#, "\"b\"", "a symbol"),
        (r#"["null","int"]"#, "\"x\"", "any branch"),
        (r#"{"type":"record","name":"B","fields":[{"name":"x","type":"int"}]}"#, "{}", "the field \"x\" is missing"),
    ] {
        let text =
            format!(r#"{{"type":"record","name":"A","fields":[{{"name":"f","type":{of},"default":{default}}}]}}"#);
        let message = refused(&text);
        assert!(message.starts_with("A.f: ") && message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn schemas_that_would_take_for_ever_are_refused() {
    // Each record holds the next one twice: 2⁴⁰ fields.
    let mut inner = "\"null\"".to_owned();
    for level in 0..40 {
        inner = format!(
            r#"{{"type":"record","name":"R{level}","fields":[{{"name":"a","type":{inner}}},{{"name":"b","type":{}}}]}}"#,
            if level == 0 { "\"null\"".to_owned() } else { format!("\"R{}\"", level - 1) }
        );
    }
    assert!(refused(&inner).contains("too large"), "{}", refused(&inner));
    let nested = format!("{}\"int\"{}", r#"{"type":"array","items":"#.repeat(1000), "}".repeat(1000));
    assert!(refused(&nested).contains("is not JSON"));
    let many: Vec<String> = (0..11_000).map(|n| format!(r#"{{"type":"fixed","name":"F{n}","size":1}}"#)).collect();
    assert!(refused(&format!("[{}]", many.join(","))).contains("bytes"));
    // A default that holds itself.
    let endless = r#"{"type":"record","name":"A","fields":[{"name":"a","type":["A","null"],"default":{}}]}"#;
    assert!(refused(endless).contains("default"), "{}", refused(endless));
    // References that refer to each other in a long chain.
    let chain: Vec<String> = (0..2000)
        .map(|n| format!(r#"{{"type":"record","name":"R{n}","fields":[{{"name":"x","type":["null","R{}"]}}]}}"#, n + 1))
        .collect();
    let references: Vec<&str> = chain.iter().map(String::as_str).collect();
    let error = Schema::parse(r#""R0""#, &references).unwrap_err();
    assert!(error.message.contains("deep"), "{error}");
    // A long chain of types in a text that is not deep: nothing that follows recurses over it.
    let chain: Vec<String> = (1..3000)
        .map(|n| format!(r#"{{"type":"record","name":"R{n}","fields":[{{"name":"x","type":["null","R{}"]}}]}}"#, n - 1))
        .collect();
    let text = format!(r#"[{{"type":"record","name":"R0","fields":[]}},{}]"#, chain.join(","));
    let schema = Schema::parse_named(&text, &[], "R2999").unwrap();
    assert!(schema.canonical_form().len() > 100_000);
    assert_eq!(check_readable(&schema, &schema), Ok(()));
    assert!(Resolution::new(&schema, &schema).unwrap().is_identity());
}

#[test]
fn untouched_records_consist_of_defaults_and_zeros() {
    let person = r#"{"type":"record","name":"PersonInfo","fields":[{"name":"name","type":"string"},{"name":"age","type":"int"},
        {"name":"gender","type":{"type":"enum","name":"Gender","symbols":["Unknown","Female","Male"]}},
        {"name":"emails","type":{"type":"array","items":"string"}}]}"#;
    assert_eq!(default_of(person), r#"{"name":"","age":0,"gender":"Unknown","emails":[]}"#);
    let all = r#"{"type":"record","name":"A","fields":[
        {"name":"n","type":["string","null"]},{"name":"u","type":["int","string"]},{"name":"f","type":"float"},
        {"name":"d","type":"double","default":-1},{"name":"m","type":{"type":"map","values":"int"},"default":{"b":2}},
        {"name":"x","type":{"type":"fixed","name":"X","size":2}},{"name":"y","type":"bytes","default":"\u00ff"},
        {"name":"r","type":{"type":"record","name":"B","fields":[{"name":"t","type":"boolean","default":true},{"name":"z","type":"null"}]}},
        {"name":"e","type":["null","B"],"default":{"z":null}},
        {"name":"p","type":{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}},
        {"name":"w","type":{"type":"int","logicalType":"date"},"default":1},
        {"name":"l","type":["A","int"]}]}"#;
    assert_eq!(
        default_of(all),
        concat!(
            r#"{"n":null,"u":0,"f":0.0,"d":-1.0,"m":{"b":2},"x":"AAA=","y":"/w==","r":{"t":true,"z":null},"#,
            r#""e":{"t":true,"z":null},"p":"0.00","w":"1970-01-02","l":0}"#
        )
    );
}

#[test]
fn types_of_references_are_found_in_any_order() {
    let line = r#"{"type":"record","name":"shop.Line","fields":[{"name":"price","type":"Price"}]}"#;
    let price =
        r#"{"type":"record","name":"Price","namespace":"shop","fields":[{"name":"cents","type":"long","default":5}]}"#;
    let order = r#"{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"lines","type":{"type":"array","items":"Line"}},{"name":"sum","type":"shop.Price"}]}"#;
    for references in [[line, price], [price, line]] {
        let schema = Schema::parse(order, &references).unwrap();
        assert_eq!(
            plain(&schema, schema.root(), &schema.default_value().unwrap()),
            r#"{"lines":[],"sum":{"cents":5}}"#
        );
    }
    assert!(Schema::parse(order, &[line]).unwrap_err().message.contains("no type \"Price\""));
    // A registry's text may be just a name.
    assert!(Schema::parse("shop.Price", &[price]).is_ok());
    let union = format!("[{price},{line}]");
    assert_eq!(
        Schema::parse_named(&union, &[], "shop.Line").unwrap(),
        Schema::parse_named(&union, &[], "shop.Line").unwrap()
    );
    assert!(Schema::parse_named(&union, &[], "Line").is_err());
    assert!(
        matches!(Schema::parse(&union, &[]).unwrap(), schema if matches!(schema.kind(schema.root()), Kind::Union(_)))
    );
}

#[test]
fn names_aliases_and_nested_types_are_as_specified() {
    let schema = Schema::parse(
        r#"{"type":"record","name":"A","namespace":"x.y","aliases":["Old","z.Older"],"fields":[
            {"name":"a","type":{"type":{"type":"string"}},"aliases":["b"]},
            {"name":"e","type":{"type":"enum","name":"other.E","symbols":["q"]}},
            {"name":"f","type":{"type":"fixed","name":"F","size":12,"logicalType":"duration"}},
            {"name":"g","type":{"type":"string","logicalType":"date"}},
            {"name":"h","type":{"type":"bytes","logicalType":"decimal","precision":2,"scale":3}},
            {"name":"again","type":["null","A"]}]}"#,
        &[],
    )
    .unwrap();
    let node = schema.node(schema.root());
    assert_eq!(node.aliases.iter().map(|name| &*name.0).collect::<Vec<_>>(), ["x.y.Old", "z.Older"]);
    let Kind::Record { name, fields } = &node.kind else { panic!() };
    assert_eq!((&*name.0, name.short()), ("x.y.A", "A"));
    assert_eq!(&*fields[0].aliases[0], "b");
    assert_eq!(schema.kind(fields[0].node), &Kind::String);
    assert!(matches!(schema.kind(fields[1].node), Kind::Enum { name, .. } if &*name.0 == "other.E"));
    assert_eq!(schema.node(fields[2].node).logical, Some(Logical::Duration));
    // Misplaced or wrong logical types are ignored.
    assert_eq!(schema.node(fields[3].node).logical, None);
    assert_eq!(schema.node(fields[4].node).logical, None);
    assert!(matches!(schema.kind(fields[5].node), Kind::Union(branches) if branches[1] == schema.root()));
    assert_eq!((schema.find(schema.root(), "h"), schema.find(schema.root(), "b")), (Some(4), None));
}

#[test]
fn fingerprints_are_those_of_the_specification() {
    // From the Avro project's table of test cases.
    for (text, fingerprint) in [
        (r#""null""#, 7_195_948_357_588_979_594_i64),
        (r#""boolean""#, -6_970_731_678_124_411_036),
        (r#""int""#, 8_247_732_601_305_521_295),
        (r#"{"type":"string"}"#, -8_142_146_995_180_207_161),
    ] {
        let schema = Schema::parse(text, &[]).unwrap();
        assert_eq!(schema.fingerprint().cast_signed(), fingerprint, "{text}");
    }
}
