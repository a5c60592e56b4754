//! Every operation on one record, as callers see it.

use crate::common::{SHARDS, UNTOUCHED, World, patch, person, put, text};
use millrace_api::{
    Condition, Form, PathOperation, PathOperationKind as Kind, RecordChange, RecordOperation, RecordWrite, Ttl,
};
use millrace_base::{ErrorCode, limits};
use serde_json::json;

fn touch() -> World {
    World::with("t", json!({ "schema": person(), "create": "touch" }))
}

fn explicit() -> World {
    World::with("t", json!({ "schema": person() }))
}

const BOND: &str = r#"{"name":"James Bond","age":60,"gender":"Male","emails":["a","b"]}"#;

#[test]
fn an_untouched_record_reads_as_its_defaults_and_is_not_written() {
    let mut world = touch();
    let stored = world.stored.len();
    assert_eq!(world.get("1").as_deref(), Ok(UNTOUCHED));
    assert_eq!(world.select("1", ".age").as_deref(), Ok("[0]"));
    assert_eq!(world.stored.len(), stored);
    let reply = world.set("1", ".", r#"{"name":"James Bond","age":60}"#).expect("updates");
    assert_eq!((reply.matched, reply.created), (1, true));
    assert_eq!(world.get("1").as_deref(), Ok(r#"{"name":"James Bond","age":60,"gender":"Unknown","emails":[]}"#));
    let field = RecordOperation::GetField { field: "name", form: Form::Json };
    assert_eq!(world.run("t", b"1", &field).map(text).as_deref(), Ok("\"James Bond\""));
}

#[test]
fn an_untouched_record_that_stays_as_it_is_stays_untouched() {
    let mut world = touch();
    let stored = world.stored.clone();
    let reply = world.set("1", ".age", "0").expect("updates");
    assert_eq!((reply.matched, reply.created, reply.tag.is_some()), (1, false, true));
    assert_eq!(world.stored, stored);
    // A put makes the record.
    assert!(world.put("1", "{}").expect("puts").created);
    assert_ne!(world.stored, stored);
    assert!(!world.put("1", "{}").expect("puts").created);
}

#[test]
fn explicit_records_are_there_once_they_are_put() {
    let mut world = explicit();
    for error in [
        world.get("1").expect_err("absent"),
        world.set("1", ".age", "1").expect_err("absent"),
        world.delete("1").expect_err("absent"),
        world.select("1", ".age").expect_err("absent"),
    ] {
        assert_eq!(error.code, ErrorCode::UnknownRecord);
    }
    assert!(world.put("1", BOND).expect("puts").created);
    assert_eq!(world.get("1").as_deref(), Ok(BOND));
    assert!(!world.put("1", "{}").expect("puts").created);
    assert_eq!(world.get("1").as_deref(), Ok(UNTOUCHED));
    world.delete("1").expect("deletes");
    assert_eq!(world.get("1").expect_err("gone").code, ErrorCode::UnknownRecord);
}

#[test]
fn forms_are_told_apart() {
    let schema = json!({ "type": "record", "name": "R", "fields": [
        { "name": "u", "type": ["null", "long"], "default": null },
        { "name": "b", "type": "bytes" },
    ]});
    let mut world = World::with("t", json!({ "schema": schema }));
    world.put("1", r#"{"u":5,"b":"AQI="}"#).expect("puts");
    let mut get = |form| world.run("t", b"1", &RecordOperation::Get { form }).expect("reads").body;
    assert_eq!(&get(Form::Json)[..], br#"{"u":5,"b":"AQI="}"#);
    assert_eq!(&get(Form::AvroJson)[..], br#"{"u":{"long":5},"b":"\u0001\u0002"}"#);
    let binary = get(Form::Binary);
    assert_eq!(&binary[..], b"\x02\x0a\x04\x01\x02");
    let change = RecordChange::Put { form: Form::Binary, value: &binary };
    let reply = world.write("2", RecordWrite { change, answer: Some(Form::Json), ..RecordWrite::default() });
    assert_eq!(reply.map(text).as_deref(), Ok(r#"{"u":5,"b":"AQI="}"#));
    for value in [&b""[..], b"\x02", b"\x09\x00", &[&binary[..], b"x"].concat()] {
        let change = RecordChange::Put { form: Form::Binary, value };
        let error = world.write("3", RecordWrite { change, ..RecordWrite::default() }).expect_err("no value");
        assert_eq!(error.code, ErrorCode::WrongType, "{error}");
    }
}

#[test]
fn fields_are_replaced_by_name() {
    let mut world = touch();
    let mut put_field = |id: &str, field: &str, json: &str| {
        let change = RecordChange::PutField { field: field.into(), form: Form::Json, value: json.as_bytes() };
        world.write(id, RecordWrite { change, answer: Some(Form::Json), ..RecordWrite::default() }).map(text)
    };
    assert_eq!(
        put_field("1", "emails", r#"["x"]"#).as_deref(),
        Ok(r#"{"name":"","age":0,"gender":"Unknown","emails":["x"]}"#)
    );
    assert!(put_field("1", "name", "\"N\"").expect("puts").contains(r#""name":"N","age":0"#));
    let error = put_field("1", "agee", "1").expect_err("no such field");
    assert_eq!(error.code, ErrorCode::UnknownField);
    assert!(error.message.contains("\"agee\"") && error.message.contains("name, age, gender, emails"), "{error}");
    let error = put_field("1", "age", "\"x\"").expect_err("no int");
    assert_eq!(error.code, ErrorCode::WrongType);
    assert!(error.message.contains("\"age\""), "{error}");
}

#[test]
fn a_patch_is_all_or_nothing() {
    let mut world = touch();
    world.put("1", BOND).expect("puts");
    let reply = world
        .patch(
            "1",
            &[
                (Kind::Test, ".age", Some("60")),
                (Kind::Increment, ".age", Some("2")),
                (Kind::Insert, ".emails", Some("\"c\"")),
                (Kind::AppendUnique, ".emails", Some("\"a\"")),
                (Kind::Delete, ".emails[0]", None),
            ],
        )
        .expect("patches");
    assert_eq!(reply.matched, 5);
    let after = r#"{"name":"James Bond","age":62,"gender":"Male","emails":["b","c"]}"#;
    assert_eq!(world.get("1").as_deref(), Ok(after));
    for (operation, code, part) in [
        ((Kind::Test, ".age", Some("60")), ErrorCode::TestFailed, "operation 2: .age is not 60"),
        ((Kind::Test, ".emails[7]", None), ErrorCode::TestFailed, "matches nothing"),
        ((Kind::Delete, ".emails[7]", None), ErrorCode::NoMatch, "operation 2: .emails[7] matches nothing"),
        ((Kind::Set, ".age", Some("\"x\"")), ErrorCode::WrongType, "operation 2: "),
        ((Kind::Set, ".nope", Some("1")), ErrorCode::NoMatch, ".nope"),
        ((Kind::Set, ".age", None), ErrorCode::InvalidInput, "needs a value"),
        ((Kind::Set, ".age[", Some("1")), ErrorCode::InvalidPath, ".age["),
        ((Kind::Set, ".age", Some("{")), ErrorCode::InvalidInput, ""),
        ((Kind::Set, ".", Some(r#"{"agee":1}"#)), ErrorCode::UnknownField, "agee"),
    ] {
        let error = world.patch("1", &[(Kind::Clear, ".emails", None), operation]).expect_err("fails");
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains(part), "{error}");
        assert_eq!(world.get("1").as_deref(), Ok(after));
    }
    assert_eq!(world.patch("1", &[]).expect_err("empty").code, ErrorCode::BadRequest);
    let many = vec![(Kind::Increment, ".age", Some("1")); limits::PATCH_OPERATIONS + 1];
    assert_eq!(world.patch("1", &many).expect_err("too many").code, ErrorCode::BadRequest);
}

#[test]
fn parameters_are_bound() {
    let mut world = touch();
    world.put("1", BOND).expect("puts");
    let operations = vec![PathOperation { kind: Kind::Delete, path: ".emails{. == $gone}".into(), value: None }];
    let change = RecordChange::Patch { operations, parameters: r#"{"gone":"a"}"# };
    world.write("1", RecordWrite { change: change.clone(), ..RecordWrite::default() }).expect("patches");
    assert_eq!(world.select("1", ".emails").as_deref(), Ok(r#"[["b"]]"#));
    let RecordChange::Patch { operations, .. } = change else { unreachable!() };
    let change = RecordChange::Patch { operations, parameters: "" };
    let error = world.write("1", RecordWrite { change, ..RecordWrite::default() }).expect_err("unbound");
    assert_eq!(error.code, ErrorCode::InvalidPath);
    assert!(error.message.contains("$gone"), "{error}");
}

#[test]
fn conditions_are_judged_even_if_nothing_changes() {
    let mut world = explicit();
    let write = |condition| RecordWrite { change: put(BOND), condition, ..RecordWrite::default() };
    let failed = |result: Result<_, millrace_base::Error>| {
        assert_eq!(
            result.map(|_: millrace_api::RecordReply| ()).expect_err("fails").code,
            ErrorCode::PreconditionFailed
        );
    };
    failed(world.write("1", write(Condition::Match(vec![]))));
    failed(world.write("1", write(Condition::Match(vec![1]))));
    let tag = world.write("1", write(Condition::NoneMatch(vec![]))).expect("creates").tag.expect("a tag");
    failed(world.write("1", write(Condition::NoneMatch(vec![]))));
    failed(world.write("1", write(Condition::NoneMatch(vec![1, tag]))));
    failed(world.write("1", write(Condition::Match(vec![1]))));
    for condition in [Condition::Match(vec![1, tag]), Condition::Match(vec![]), Condition::NoneMatch(vec![1])] {
        let reply = world.write("1", write(condition)).expect("holds");
        assert_eq!((reply.tag, reply.created), (Some(tag), false));
        assert_eq!(world.last_writes, 0, "what changes nothing writes nothing");
    }
    let delete = RecordWrite { condition: Condition::Match(vec![tag]), ..RecordWrite::default() };
    world.write("1", delete.clone()).expect("deletes");
    failed(world.write("1", delete));
}

#[test]
fn what_a_reader_got_of_an_untouched_record_is_a_condition_for_it() {
    let mut world = touch();
    let tag = world.run("t", b"1", &RecordOperation::Get { form: Form::Json }).expect("reads").tag.expect("a tag");
    let write = |condition| RecordWrite {
        change: patch(&[(Kind::Increment, ".age", Some("1"))]),
        condition,
        ..RecordWrite::default()
    };
    let error = world.write("1", write(Condition::Match(vec![tag + 1]))).expect_err("another");
    assert_eq!(error.code, ErrorCode::PreconditionFailed);
    world.write("1", write(Condition::Match(vec![tag]))).expect("as it was read");
    let error = world.write("1", write(Condition::Match(vec![tag]))).expect_err("changed");
    assert_eq!(error.code, ErrorCode::PreconditionFailed);
    world.write("2", write(Condition::NoneMatch(vec![]))).expect("is not stored");
}

#[test]
fn equal_content_has_equal_tags() {
    let mut world = touch();
    let first = world.put("1", BOND).expect("puts").tag;
    assert_eq!(world.put("2", BOND).expect("puts").tag, first);
    assert_ne!(world.set("2", ".age", "61").expect("updates").tag, first);
    assert_eq!(world.set("2", ".age", "60").expect("updates").tag, first);
    assert_eq!(world.run("t", b"2", &RecordOperation::Get { form: Form::Binary }).expect("reads").tag, first);
}

#[test]
fn what_is_too_large_is_refused() {
    let mut world = touch();
    let large = format!(r#"{{"name":"{}"}}"#, "x".repeat(limits::RECORD_BYTES - 80));
    world.put("1", &large).expect("just fits");
    let larger = format!(r#"{{"name":"{}"}}"#, "x".repeat(limits::RECORD_BYTES - 20));
    assert_eq!(world.put("1", &larger).expect_err("too large").code, ErrorCode::TooLarge);
    let emails = format!("[{}\"\"]", "\"xxxxxxxxxxxxxxxxxxxxxxxx\",".repeat(40));
    let error = world.patch("1", &[(Kind::InsertAll, ".emails", Some(&emails))]).expect_err("too large");
    assert_eq!(error.code, ErrorCode::TooLarge);
    let id = "x".repeat(600);
    assert_eq!(world.put(&id, BOND).expect_err("too long an id").code, ErrorCode::TooLarge);
}

#[test]
fn many_records_come_in_one_reply() {
    let mut world = explicit();
    for number in 0..200 {
        world.put(&number.to_string(), &format!(r#"{{"age":{number}}}"#)).expect("puts");
    }
    for is_reversed in [false, true] {
        world.is_reversed = is_reversed;
        let ids: Vec<String> = (0..300).map(|number| (number * 2 % 301).to_string()).collect();
        let ids: Vec<&[u8]> = ids.iter().map(String::as_bytes).collect();
        let reply =
            world.run("t", b"0", &RecordOperation::GetMany { ids: ids.clone(), form: Form::Json }).expect("reads");
        let body: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
        let records = body["records"].as_array().expect("an array");
        assert_eq!((records.len(), reply.matched), (300, 200));
        for (id, record) in ids.iter().zip(records) {
            let id = std::str::from_utf8(id).expect("UTF-8");
            assert_eq!(record["id"], id);
            if id.parse::<u32>().expect("a number") < 200 {
                assert_eq!(record["record"]["age"].to_string(), id);
                assert_eq!(record["etag"].as_str().map(str::len), Some(16));
            } else {
                assert_eq!(record["error"]["code"], "unknown-record");
            }
        }
    }
    let binary = RecordOperation::GetMany { ids: vec![b"1"], form: Form::Binary };
    assert_eq!(world.run("t", b"0", &binary).expect_err("JSON only").code, ErrorCode::UnsupportedMediaType);
    let ids = vec![&b"1"[..]; limits::BATCH_RECORDS + 1];
    let many = RecordOperation::GetMany { ids, form: Form::Json };
    assert_eq!(world.run("t", b"0", &many).expect_err("too many").code, ErrorCode::TooLarge);
    let odd = RecordOperation::GetMany { ids: vec![b"\xff\x00"], form: Form::Json };
    let body = text(world.run("t", b"0", &odd).expect("reads"));
    assert!(body.starts_with(r#"{"records":[{"id_base64":"/wA=","error":"#), "{body}");
}

#[test]
fn selecting_tells_how_much_it_matched() {
    let mut world = touch();
    world.put("1", BOND).expect("puts");
    for (path, json, matched) in [
        (".age", "[60]", 1),
        (".emails[*]", r#"["a","b"]"#, 2),
        (".nonExist", "[]", 0),
        ("(.age|.name)", r#"[60,"James Bond"]"#, 2),
    ] {
        let reply =
            world.run("t", b"1", &RecordOperation::Select { path, parameters: "", form: Form::Json }).expect(path);
        assert_eq!(reply.matched, matched);
        assert_eq!(text(reply), json);
    }
    let error = world.select("1", ".age[").expect_err("no path");
    assert_eq!(error.code, ErrorCode::InvalidPath);
    assert!(error.message.contains("column 6"), "{error}");
}

#[test]
fn nobody_but_operations_is_understood() {
    let mut world = touch();
    let read = world.find("t", "_read").expect("a handler");
    for input in [&b""[..], b"null", b"\xff", b"\xff\x07", b"\x01\x63", b"\x02\x00"] {
        assert_eq!(world.transaction(read, b"1", input).expect_err("no operation").code, ErrorCode::Internal);
    }
    let write = RecordOperation::Write(RecordWrite { ttl: Some(Ttl::Forever), ..RecordWrite::default() });
    assert_eq!(world.transaction(read, b"1", &write.to_bytes()).expect_err("a write").code, ErrorCode::Internal);
    assert_eq!(SHARDS, 3);
}
