//! `/records/…`: every operation, its headers and its errors.

use crate::support::records::TAG;
use crate::support::{Reply, Server, patient};
use serde_json::json;

/// The name of the operation that the backend was asked for, `Get` of `Get { … }`.
fn has_all(line: &str, words: &[&str]) {
    for word in words {
        assert!(line.contains(word), "{word} is not in {line}");
    }
}

fn text(reply: &Reply) -> &str {
    std::str::from_utf8(&reply.body).expect("text")
}

#[test]
fn a_record_is_read_in_the_form_that_is_wanted() {
    let server = Server::start(patient());
    let mut client = server.connect();
    for (accept, kind, form) in [
        ("", "application/json", "Json"),
        ("\naccept: */*", "application/json", "Json"),
        ("\naccept: application/avro+json", "application/avro+json", "AvroJson"),
        ("\naccept: avro/binary, */*;q=0.1", "avro/binary", "Binary"),
    ] {
        let reply = client.ask(&format!("GET /records/personinfo/1{accept}"), b"");
        assert_eq!((reply.status, reply.header("content-type")), (200, Some(kind)), "{accept}");
        assert_eq!((reply.header("etag"), reply.header("millrace-schema-id")), (Some(TAG), Some("7")));
        assert_eq!(reply.header("millrace-expires"), None);
        assert_eq!(server.asked_one(), format!("personinfo 1 Get {{ form: {form} }} -"));
    }
    let mortal = client.ask("GET /records/personinfo/mortal", b"");
    assert_eq!(mortal.header("millrace-expires"), Some("1900000000000"));
    let head = client.ask("HEAD /records/personinfo/1", b"");
    assert_eq!((head.status, head.header("etag"), head.header("content-length")), (200, Some(TAG), Some("19")));
    server.asked();
    client.ask("GET /records/personinfo/a%2Fb%ff", b"");
    assert!(server.asked_one().starts_with("personinfo a/b\\xff Get"), "any bytes are an id");
    client.ask("GET /records/personinfo/%63hanges", b"");
    assert!(server.asked_one().starts_with("personinfo changes Get"), "one of this name is reached when encoded");
}

#[test]
fn reading_again_costs_no_body_while_nothing_changed() {
    let server = Server::start(patient());
    let mut client = server.connect();
    for listed in [TAG, "*", "\"x\", W/\"00000000000012ab\""] {
        let same = client.ask(&format!("GET /records/personinfo/1\nif-none-match: {listed}"), b"");
        assert_eq!((same.status, same.header("etag"), &same.body[..]), (304, Some(TAG), &b""[..]), "{listed}");
    }
    let other = client.ask("GET /records/personinfo/1\nif-none-match: \"0000000000000001\"", b"");
    assert_eq!((other.status, text(&other)), (200, "{\"name\":\"\",\"age\":0}"));
    let gone = client.ask("GET /records/personinfo/1\nif-match: \"0000000000000001\"", b"");
    gone.assert_problem("precondition-failed");
    client.ask("GET /records/personinfo/1\nif-match: 1", b"").assert_problem("bad-request");
}

#[test]
fn a_path_selects_parts() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let reply = client.ask("GET /records/personinfo/1?path=.emails%5B*%5D%7B.==%24e%7D&p.e=%22a%22", b"");
    assert_eq!((reply.status, text(&reply), reply.header("millrace-matched")), (200, "[1,2]", Some("2")));
    let asked = server.asked_one();
    has_all(&asked, &["Select", ".emails[*]{.==$e}", r#"parameters: "{\"e\":\"a\"}""#]);
    for bad in ["p.e=1", "paths=.a", "path=.a&path=.b", "path=%zz"] {
        client.ask(&format!("GET /records/personinfo/1?{bad}"), b"").assert_problem("bad-request");
    }
    client.ask("GET /records/personinfo/1?path=.a&p.x=James", b"").assert_problem("invalid-input");
    client.ask("GET /records/personinfo/1?path=.a\naccept: avro/binary", b"").assert_problem("not-acceptable");
    let long = format!("GET /records/personinfo/1?path={}", "a".repeat(4097));
    client.ask(&long, b"").assert_problem("invalid-path");
    assert!(server.asked().is_empty(), "what is malformed reaches no record");
}

#[test]
fn a_record_is_put_under_conditions_and_for_a_time() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let made = client.ask("PUT /records/personinfo/new1\nif-none-match: *\nmillrace-ttl: 60000", b"{\"age\":1}");
    assert_eq!((made.status, made.header("etag"), &made.body[..]), (201, Some(TAG), &b""[..]));
    assert_eq!(made.header("content-type"), None);
    let asked = server.asked_one();
    has_all(&asked, &["Put { form: Json", "NoneMatch([])", "Milliseconds(60000)", "answer: None"]);
    let request = format!("PUT /records/personinfo/1?ttl_ms=never\nif-match: {TAG}\nidempotency-key: k-1");
    let put = client.ask(&format!("{request}\ncontent-type: avro/binary\nprefer: return=representation"), b"\x00\x02");
    assert_eq!((put.status, text(&put)), (200, "{\"name\":\"\",\"age\":0}"));
    assert_eq!(put.header("preference-applied"), Some("return=representation"));
    let asked = server.asked_one();
    has_all(&asked, &["form: Binary", "Match([4779])", "Forever", "answer: Some(Json)"]);
    assert!(asked.ends_with(" k-1"), "{asked}");
    let form = "PUT /records/personinfo/1\ncontent-type: application/avro+json\naccept: avro/binary";
    let binary = client.ask(&format!("{form}\nprefer: return=representation"), b"{}");
    assert_eq!((binary.header("content-type"), &binary.body[..]), (Some("avro/binary"), &b"\x00\x02"[..]));
    has_all(&server.asked_one(), &["form: AvroJson", "answer: Some(Binary)"]);
}

#[test]
fn a_put_that_is_wrong_says_what_is_wrong() {
    let server = Server::start(patient());
    let mut client = server.connect();
    for bad in [
        "?ttl=5",
        "?ttl_ms=0",
        "?ttl_ms=1s",
        "?ttl_ms=5\nmillrace-ttl: 5",
        "\nmillrace-ttl: soon",
        "\nif-match: *\nif-none-match: *",
        "\nif-match: abc",
        "\nidempotency-key: a b",
        "\nidempotency-key: a\nidempotency-key: a",
    ] {
        client.ask(&format!("PUT /records/personinfo/1{bad}"), b"{}").assert_problem("bad-request");
    }
    let xml = client.ask("PUT /records/personinfo/1\ncontent-type: application/xml", b"<a/>");
    xml.assert_problem("unsupported-media-type");
    let never = client.ask("PUT /records/personinfo/1\nif-match: \"other\"", b"{}");
    never.assert_problem("precondition-failed");
    for bad in ["PUT /records/1x/1", "PUT /records/a--b/1", "PUT /records/personinfo/", "GET /records/types/1"] {
        client.ask(bad, b"").assert_problem("bad-request");
    }
    assert!(server.asked().is_empty(), "what is malformed reaches no record");
    client.ask("GET /records/none/1", b"").assert_problem("unknown-type");
    client.ask("GET /records/personinfo/missing", b"").assert_problem("unknown-record");
    let wrong = client.ask("POST /records/personinfo/1", b"");
    wrong.assert_problem("method-not-allowed");
    assert_eq!(wrong.header("allow"), Some("GET, HEAD, PUT, PATCH, DELETE, OPTIONS"));
    client.ask("GET /records", b"").assert_problem("unknown-route");
}

#[test]
fn a_patch_is_several_operations() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let list = br#"[{"op":"increment","path":".age","value":1},{"op":"test","path":".name"}]"#;
    let reply = client.ask("PATCH /records/personinfo/1\nidempotency-key: k", list);
    assert_eq!((reply.status, reply.header("millrace-matched"), &reply.body[..]), (200, Some("2"), &b""[..]));
    let asked = server.asked_one();
    has_all(&asked, &["Patch", "Increment", "path: \".age\"", "Some(\"1\")", "Test", "value: None"]);
    let whole = br#"{"operations":[{"op":"set","path":".{.a==$x}","value":null}],"parameters":{"x":1}}"#;
    let reply = client.ask("PATCH /records/personinfo/1\nprefer: return=representation", whole);
    assert_eq!(text(&reply), "{\"name\":\"\",\"age\":0}");
    has_all(&server.asked_one(), &["Set", "Some(\"null\")", r#"parameters: "{\"x\":1}""#]);
    let none = client.ask("PATCH /records/personinfo/1", br#"[{"op":"clear","path":".nothing"}]"#);
    none.assert_problem("no-match");
    assert_eq!(none.header("millrace-matched"), Some("0"));
    client.ask("PATCH /records/personinfo/1", b"[").assert_problem("invalid-input");
    client.ask("PATCH /records/personinfo/1", b"[]").assert_problem("bad-request");
    let avro = client.ask("PATCH /records/personinfo/1\ncontent-type: avro/binary", list);
    avro.assert_problem("unsupported-media-type");
}

#[test]
fn a_record_is_deleted() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let gone = client.ask(&format!("DELETE /records/personinfo/1\nif-match: {TAG}\nidempotency-key: k"), b"");
    assert_eq!((gone.status, gone.header("etag")), (204, None));
    has_all(&server.asked_one(), &["Delete", "Match([4779])", " k"]);
    client.ask("DELETE /records/personinfo/missing", b"").assert_problem("unknown-record");
    let late = client.ask("DELETE /records/personinfo/1\nif-match: \"0000000000000009\"", b"");
    late.assert_problem("precondition-failed");
    client.ask("DELETE /records/personinfo/1?ttl_ms=1", b"").assert_problem("bad-request");
    let shown = client.ask("DELETE /records/personinfo/1\nprefer: return=representation\naccept: text/plain", b"");
    assert_eq!(shown.status, 204, "what is deleted is not shown, in whatever form");
}

#[test]
fn many_records_are_listed_found_and_read_at_once() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let page = client.ask("GET /records/personinfo", b"");
    assert_eq!(
        (page.status, page.header("content-type"), text(&page)),
        (200, Some("application/json"), "{\"records\":[]}")
    );
    has_all(&server.asked_one(), &["personinfo - Find", "predicate: \"\"", "limit: 50", "ids_only: false"]);
    let query = "where=.age+%3E+$a&p.a=60&order=-.age&prefix=a&cursor=c&limit=3&ids_only=true&explain";
    client.ask(&format!("GET /records/personinfo?{query}\naccept: application/avro+json"), b"");
    let asked = server.asked_one();
    has_all(&asked, &["\".age > $a\"", "{\\\"a\\\":60}", "\"-.age\"", "prefix: [97]", "cursor: \"c\"", "limit: 3"]);
    has_all(&asked, &["ids_only: true", "form: AvroJson", "explain: true"]);
    for bad in ["limit=0", "limit=1001", "wher=.a", "ids_only=maybe", "limit=1&limit=2"] {
        client.ask(&format!("GET /records/personinfo?{bad}"), b"").assert_problem("bad-request");
    }
    client.ask("GET /records/personinfo\naccept: avro/binary", b"").assert_problem("not-acceptable");
    client.ask("GET /records/personinfo/changes\naccept: text/plain", b"").assert_problem("not-acceptable");
    let batch = client.ask("POST /records/personinfo/batch", br#"{"ids":["a",{"base64":"/w=="}]}"#);
    assert_eq!((batch.status, text(&batch)), (200, "[]"));
    has_all(&server.asked_one(), &["GetMany { ids: [[97], [255]], form: Json }"]);
    client.ask("POST /records/personinfo/batch", b"{\"ids\":[7]}").assert_problem("bad-request");
    client.ask("POST /records/personinfo/batch", b"").assert_problem("invalid-input");
    client.ask("GET /records/personinfo/batch", b"");
    assert!(server.asked_one().starts_with("personinfo batch Get"), "a record may have this id");
}

#[test]
fn changes_come_as_pages() {
    let server = Server::start(patient());
    let mut client = server.connect();
    server
        .backend
        .shared
        .records
        .changes
        .lock()
        .expect("no panic")
        .extend(["{\"n\":0}", "{\"n\":1}"].map(str::to_owned));
    let page = client.ask("GET /records/personinfo/changes?limit=1", b"");
    assert_eq!((page.status, page.json()), (200, json!({"changes": [{"n": 0}], "cursor": "1"})));
    let page = client.ask("GET /records/personinfo/changes?cursor=1", b"");
    assert_eq!(page.json(), json!({"changes": [{"n": 1}], "cursor": "2"}));
    client.ask("GET /records/personinfo/changes?cursor=x", b"").assert_problem("bad-request");
    client.ask("GET /records/personinfo/changes?after=1", b"").assert_problem("bad-request");
}
