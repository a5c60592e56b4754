//! Tests: documents have the bytes of the specification, and no bytes break the reader.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn render(document: &DocumentTemplate) -> Vec<u8> {
    let mut out = b"before".to_vec();
    let mut scope = Scope::new(1, 0, 1);
    scope.next_request();
    document.render(&mut scope, &mut Vec::new(), &mut out);
    out.split_off(6)
}

fn encode(json: &str) -> Vec<u8> {
    let document = DocumentTemplate::compile(json).unwrap();
    assert!(document.is_literal(), "{json}");
    render(&document)
}

/// The examples of the specification, bsonspec.org.
#[test]
fn the_examples_of_the_specification_have_its_bytes() {
    assert_eq!(encode(r#"{"hello":"world"}"#), b"\x16\0\0\0\x02hello\0\x06\0\0\0world\0\0");
    let expected = b"\x31\0\0\0\x04BSON\0\x26\0\0\0\x020\0\x08\0\0\0awesome\0\x011\0\x33\x33\x33\x33\x33\x33\x14\x40\x102\0\xc2\x07\0\0\0\0";
    assert_eq!(encode(r#"{"BSON": ["awesome", 5.05, 1986]}"#), expected);
    assert_eq!(encode("{}"), b"\x05\0\0\0\0");
}

#[test]
fn every_type_has_its_bytes_and_fields_keep_their_order() {
    let json = r#"{"z":null,"b":true,"a":{"c":2147483648,"$numberInt":"1"},"n":{"$numberInt":"61"},"y":-1}"#;
    let expected = [
        &b"\x3F\0\0\0\x0Az\0\x08b\0\x01\x03a\0"[..],
        b"\x22\0\0\0\x12c\0\0\0\0\x80\0\0\0\0\x02$numberInt\0\x02\0\0\x001\0\0",
        b"\x10n\0\x3D\0\0\0\x10y\0\xFF\xFF\xFF\xFF\0",
    ];
    assert_eq!(encode(json), expected.concat());
}

#[test]
fn lengths_follow_the_template_parts() {
    let json = r#"{"q":{"_id":"{{k=seq:99}}"},"u":[{"$set":{"age":{"$numberInt":"{{$k}}"}}}]}"#;
    // A recalled text may be anything, so it is not a number.
    let error = DocumentTemplate::compile(json).unwrap_err().to_string();
    assert!(error.contains("more than digits"), "{error}");
    let json = r#"{"q":{"_id":"k{{seq:99}}"},"u":[{"$set":{"age":{"$numberInt":"{{uniform:7:8}}"}}}],"m":false}"#;
    let document = DocumentTemplate::compile(json).unwrap();
    assert!(!document.is_literal());
    let expected = encode(r#"{"q":{"_id":"k99"},"u":[{"$set":{"age":7}}],"m":false}"#);
    assert_eq!(render(&document), expected);
    let document = DocumentTemplate::compile(r#"{"n":{"$numberInt":"9{{uniform:9999999999:10000000000}}"}}"#).unwrap();
    assert_eq!(render(&document), encode(r#"{"n":2147483647}"#));
}

#[test]
fn what_is_no_document_is_refused() {
    let deep = "[".repeat(200);
    for (json, words) in [
        ("", "EOF"),
        ("[]", "not an object"),
        (r#"{"a\u0000":1}"#, "holds a NUL"),
        (r#"{"a":18446744073709551615}"#, "too large"),
        (r#"{"a":"{{nope}}"}"#, "the value of \"a\": at byte 0"),
        (r#"{"a":{"$numberInt":"-1"}}"#, "more than digits"),
        (r#"{"a":{"$numberInt":""}}"#, "more than digits"),
        (&format!(r#"{{"a":{deep}"#), "recursion"),
        (&format!(r#"{{"a":"{}"}}"#, "x".repeat(JSON_BYTES)), "longer than"),
    ] {
        let error = DocumentTemplate::compile(json).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn documents_are_decoded_to_what_they_were_written_as() {
    let json = r#"{"ok":1.0,"n":3,"long":5000000000,"name":"é\u0000","list":[null,true,{"x":[]}],"empty":{}}"#;
    assert_eq!(decode(&encode(json), 0), Ok(serde_json::from_str(json).unwrap()));
    let date = b"\x10\0\0\0\x09t\0\0\0\0\0\0\0\0\0\0";
    assert!(decode(date, 0).is_err());
    let mut deep = vec![5, 0, 0, 0, 0];
    for _ in 0..=DEPTH {
        let length = (deep.len() + 8) as u32;
        deep = [&length.to_le_bytes()[..], b"\x03a\0", &deep, &[0]].concat();
    }
    assert_eq!(decode(&deep, 0), Err(ParseError("documents nest too deeply")));
}

#[test]
fn broken_documents_are_errors() {
    for bytes in [
        &b""[..],
        b"\x05\0\0\0",
        b"\x06\0\0\0\0",
        b"\x05\0\0\0\x01",
        b"\xFF\xFF\xFF\xFF\0",
        b"\x07\0\0\0\x0Aa\0",
        b"\x09\0\0\0\x10a\0\0\0",
        b"\x0C\0\0\0\x02a\0\0\0\0\0\0",
        b"\x0D\0\0\0\x02a\0\x01\0\0\0x\0",
        b"\x0C\0\0\0\x02a\0\xFF\xFF\xFF\xFF\0",
        b"\x0C\0\0\0\x03a\0\x04\0\0\0\0",
        b"\x08\0\0\0\x7Fa\0\0",
    ] {
        let walk = || -> Result<(), ParseError> {
            let mut elements = Elements::of(bytes)?;
            while elements.next()?.is_some() {}
            Ok(())
        };
        assert!(walk().is_err(), "{bytes:?}");
    }
}

#[test]
fn numbers_are_numbers_whatever_their_type() {
    for (json, expected) in [
        (r#"{"n":1}"#, json!(1)),
        (r#"{"n":1.0}"#, json!(1)),
        (r#"{"n":5000000000}"#, json!(5_000_000_000_u64)),
        (r#"{"n":true}"#, json!(1)),
        (r#"{"n":0.5}"#, json!(null)),
        (r#"{"n":"1"}"#, json!(null)),
    ] {
        let document = encode(json);
        let element = Elements::of(&document).unwrap().next().unwrap().unwrap();
        assert_eq!(json!(element.integer()), expected, "{json}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(kinds in prop::collection::vec((0u8..20, prop::collection::vec(0u8..20, 0..12)), 0..6)) {
        let mut document = vec![0; 4];
        for (kind, bytes) in kinds {
            document.push(kind);
            document.extend_from_slice(b"a\0");
            document.extend(bytes);
        }
        document.push(0);
        put_length(&mut document, 0, 0);
        drop(decode(&document, 0));
    }

    #[test]
    fn any_text_comes_back(text in "[^{]{0,40}", number in any::<i64>()) {
        let json = json!({"t": text, "n": number});
        prop_assert_eq!(decode(&encode(&json.to_string()), 0), Ok(json));
    }
}
