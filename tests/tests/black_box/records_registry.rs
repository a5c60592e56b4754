//! The Schema Registry's URLs as its clients use them, and the edges of the record URLs. The test checks which
//! requests are refused, and with which status. Many changes of schemas at once all happen.

use base64::Engine as _;
use millrace_tests::{Reply, Server, ServerOptions, assert_problem, basic, millrace};
use serde_json::{Value, json};

const KIND: &str = "application/vnd.schemaregistry.v1+json";

fn server() -> Server {
    Server::start(ServerOptions::examples(&[]))
}

fn record(fields: &str) -> String {
    format!(r#"{{"type":"record","name":"R","fields":[{fields}]}}"#)
}

fn field(name: &str) -> String {
    format!(r#"{{"name":"{name}","type":"int","default":0}}"#)
}

fn send(server: &Server, request: &str, body: &Value) -> Reply {
    let (method, path) = request.split_once(' ').expect("a method and a path");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.request(method, path, &[], body.as_bytes())
}

fn get(server: &Server, path: &str) -> Value {
    let reply = send(server, &format!("GET {path}"), &Value::Null);
    assert_eq!((reply.status, reply.header("content-type")), (200, Some(KIND)), "{path}: {}", reply.text());
    reply.json()
}

fn register(server: &Server, subject: &str, schema: &str) -> u64 {
    let reply = send(server, &format!("POST /subjects/{subject}/versions"), &json!({ "schema": schema }));
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["id"].as_u64().expect("an id")
}

/// The registry's own form of an error, for every URL of the registry.
fn assert_refused(reply: &Reply, status: u16, number: u32) {
    let body = reply.json();
    assert_eq!((reply.status, &body["error_code"]), (status, &json!(number)), "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some(KIND), "{}", reply.text());
    assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{}", reply.text());
}

#[test]
fn a_far_imported_id_does_not_exhaust_the_ids() {
    let server = server();
    assert_eq!(send(&server, "PUT /mode?force=true", &json!({ "mode": "IMPORT" })).status, 200);
    let import = |subject: &str, schema: &str, id: u64, version: u64| {
        let body = json!({ "schema": schema, "id": id, "version": version });
        send(&server, &format!("POST /subjects/{subject}/versions"), &body)
    };
    assert_eq!(import("a", &record(""), 100_001, 1).status, 200);
    for far in [2_147_483_647_u64, 2_147_483_648, 4_294_967_295, 1 << 30] {
        assert_refused(&import("b", &record(&field("x")), far, 1), 422, 422);
    }
    assert_refused(&import("b", &record(&field("x")), 7, 2_147_483_647), 422, 42202);
    assert_eq!(send(&server, "PUT /mode", &json!({ "mode": "READWRITE" })).status, 200);
    let next = register(&server, "c", &record(&field("y")));
    assert_eq!(next, 100_002, "behind everything that was imported");
}

#[test]
fn sixty_four_changes_at_once_all_happen() {
    let server = server();
    std::thread::scope(|scope| {
        for number in 0..64 {
            let server = &server;
            scope.spawn(move || {
                let schema = record(&field(&format!("f{number}")));
                let reply = if number % 2 == 0 {
                    server.request("PUT", &format!("/schemas/t{number}"), &[], schema.as_bytes())
                } else {
                    let body = json!({ "schema": schema }).to_string();
                    server.request("POST", &format!("/subjects/s{number}/versions"), &[], body.as_bytes())
                };
                assert!([200, 201].contains(&reply.status), "{number}: {} {}", reply.status, reply.text());
            });
        }
    });
    let subjects = get(&server, "/subjects");
    assert_eq!(subjects.as_array().map(Vec::len), Some(64));
    let all = get(&server, "/schemas?latestOnly=true");
    let mut ids: Vec<u64> = all.as_array().expect("a list").iter().filter_map(|one| one["id"].as_u64()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 64, "ids are unique");
}

#[test]
fn every_list_has_pages() {
    let server = server();
    for number in 0..5 {
        register(
            &server,
            "many",
            &record(&(0..=number).map(|n| field(&format!("f{n}"))).collect::<Vec<_>>().join(",")),
        );
        register(&server, &format!("s{number}"), &record(""));
    }
    let id = register(&server, "s0", &record(""));
    for (path, whole) in [
        ("/subjects/many/versions?", json!([1, 2, 3, 4, 5])),
        ("/subjects?subjectPrefix=s&", json!(["s0", "s1", "s2", "s3", "s4"])),
        (&format!("/schemas/ids/{id}/subjects?"), json!(["s0", "s1", "s2", "s3", "s4"])),
    ] {
        let whole = whole.as_array().expect("a list").clone();
        assert_eq!(get(&server, path), json!(whole), "{path}");
        for (offset, limit) in [(0, 2), (1, 1), (3, 100), (5, 1), (9, 9), (2, 0)] {
            let part: Vec<&Value> = whole.iter().skip(offset).take(limit).collect();
            assert_eq!(get(&server, &format!("{path}offset={offset}&limit={limit}")), json!(part), "{path}");
        }
        assert_eq!(get(&server, &format!("{path}limit=-1&offset=-1")), json!(whole), "negative numbers ask for all");
        let wrong = send(&server, &format!("GET {path}limit=few"), &Value::Null);
        assert_refused(&wrong, 400, 400);
    }
    let page = get(&server, "/schemas?subjectPrefix=s&offset=1&limit=2");
    assert_eq!((&page[0]["subject"], &page[1]["subject"], page.get(2)), (&json!("s1"), &json!("s2"), None));
    let versions = get(&server, &format!("/schemas/ids/{id}/versions?offset=4"));
    assert_eq!(versions, json!([{ "subject": "s4", "version": 1 }]));
    let versions = get(&server, &format!("/schemas/ids/{id}/versions?subject=s2"));
    assert_eq!(versions, json!([{ "subject": "s2", "version": 1 }]));
    assert_eq!(get(&server, &format!("/schemas/ids/{id}/subjects?subject=s2")), json!(["s2"]));
    send(&server, "DELETE /subjects/many/versions/2", &Value::Null);
    assert_eq!(get(&server, "/subjects/many/versions?deletedOnly=true"), json!([2]));
    assert_eq!(get(&server, "/subjects/many/versions?deleted=true&limit=2"), json!([1, 2]));
}

#[test]
fn what_a_client_asks_first_is_there() {
    let server = server();
    let root = server.request("GET", "/", &[], b"");
    assert_eq!((root.status, root.header("content-type")), (200, Some(KIND)));
    assert_eq!(root.json()["openapi"], "/openapi.json");
    assert_eq!(server.request("HEAD", "/", &[], b"").status, 200);
    assert_eq!(get(&server, "/contexts"), json!(["."]));
    assert!(get(&server, "/v1/metadata/id")["scope"]["clusters"].is_object());
    assert!(get(&server, "/v1/metadata/version")["version"].is_string());
    assert_eq!(get(&server, "/schemas/types"), json!(["AVRO"]));
}

#[test]
fn errors_at_the_registrys_urls_have_its_form() {
    let server = server();
    register(&server, "s", &record(""));
    let none = Value::Null;
    for (request, status, number) in [
        ("GET /subjects/s/nothing", 404, 40400),
        ("GET /subjects/s/versions/1/nothing", 404, 40400),
        ("GET /schemas/ids/1/nothing", 404, 40400),
        ("GET /config/s/nothing", 404, 40400),
        ("GET /compatibility/s", 404, 40400),
        ("PUT /subjects/s", 405, 40501),
        ("POST /schemas/ids/1", 405, 40501),
        ("PATCH /config", 405, 40501),
        ("DELETE /compatibility/subjects/s/versions", 405, 40501),
    ] {
        let reply = send(&server, request, &none);
        assert_refused(&reply, status, number);
        assert_eq!(reply.header("allow").is_some(), status == 405, "{request}");
    }
    for kind in ["text/xml", "text/plain", "avro/binary"] {
        let kind = format!("Content-Type: {kind}");
        for request in ["/subjects/s/versions", "/subjects/s", "/compatibility/subjects/s/versions/latest"] {
            assert_refused(&server.request("POST", request, &[&kind], b"{\"schema\":\"{}\"}"), 415, 41501);
        }
        assert_refused(&server.request("PUT", "/config", &[&kind], b"{\"compatibility\":\"NONE\"}"), 415, 41501);
    }
    let long = vec![b' '; 9 << 20];
    assert_refused(&server.request("POST", "/subjects/s/versions", &[], &long), 413, 41301);
    // Other URLs answer with problem documents.
    assert_problem(&send(&server, "GET /schemas/a/b/c", &none), 404, "unknown-route");
    assert_problem(&send(&server, "PATCH /schemas/a", &none), 405, "method-not-allowed");
}

#[test]
fn a_key_may_be_the_password_at_the_registrys_urls_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys.json");
    let keys = keys.to_str().expect("text");
    let made = millrace(&["keys", "--keys", keys, "add", "ci", "--role", "deploy"]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    let key = made.out.trim().to_owned();
    let server = Server::start(ServerOptions::examples(&[]).with(&["--keys", keys]));
    let ask =
        |method: &str, path: &str, header: &str, body: &str| server.request(method, path, &[header], body.as_bytes());
    let schema = json!({ "schema": record("") }).to_string();
    for user in ["anybody", "ci", ""] {
        let header = basic(user, &key);
        assert_eq!(ask("GET", "/subjects", &header, "").status, 200, "{user:?}");
        assert_eq!(ask("POST", "/subjects/s/versions", &header, &schema).status, 200);
        assert_eq!(ask("GET", "/schemas?latestOnly=true", &header, "").status, 200);
        assert_eq!(ask("GET", "/config", &header, "").status, 200);
    }
    let header = basic("ci", &key);
    for path in ["/schemas", "/schemas/s", "/records/s", "/records/s/1", "/apps", "/invocations", "/state/a/b"] {
        assert_problem(&ask("GET", path, &header, ""), 401, "unauthorized");
    }
    assert_problem(&ask("PUT", "/schemas/t", &header, &record("")), 401, "unauthorized");
    let forged = format!("{}x", &key[..key.len() - 1]);
    let base64 = |text: &[u8]| base64::engine::general_purpose::STANDARD.encode(text);
    for header in [
        "X-None: 1".to_owned(),
        basic("ci", &forged),
        basic(&key, ""),
        "Authorization: Basic".to_owned(),
        "Authorization: Basic ".to_owned(),
        "Authorization: Basic !!!".to_owned(),
        format!("Authorization: Basic {}", base64(b"no colon")),
        format!("Authorization: Basic {}", base64(&[b':', 0xff, 0xfe])),
        format!("Authorization: Basic {}", base64(&vec![b'a'; 8000])),
        format!("Authorization: Basic {}", base64(format!("{key}:x").as_bytes())),
        format!("Authorization: Bearer {}", base64(format!("ci:{key}").as_bytes())),
    ] {
        let reply = ask("GET", "/subjects", &header, "");
        assert_refused(&reply, 401, 40101);
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"), "a browser is not to keep a password");
    }
    let reading = millrace(&["keys", "--keys", keys, "add", "reader", "--role", "call:records/x"]);
    assert_eq!(reading.code, Some(0), "{}", reading.err);
    millrace_tests::wait_until("the key is known", || {
        ask("GET", "/subjects", &basic("x", reading.out.trim()), "").status == 200
    });
    assert_refused(&ask("POST", "/subjects/s/versions", &basic("x", reading.out.trim()), &schema), 403, 40301);
}

#[test]
fn what_no_form_fits_is_not_acceptable() {
    let server = server();
    assert_eq!(server.request("PUT", "/schemas/t", &[], record(&field("a")).as_bytes()).status, 201);
    assert_eq!(server.request("PUT", "/records/t/1", &[], b"{}").status, 201);
    let ask = |path: &str, accept: &str| server.request("GET", path, &[&format!("Accept: {accept}")], b"");
    for accept in ["text/plain", "application/json;q=0", "image/png, text/html;q=0.3"] {
        for path in ["/records/t/1", "/records/t/1?path=.a", "/records/t"] {
            assert_problem(&ask(path, accept), 406, "not-acceptable");
        }
    }
    assert_problem(&ask("/records/t/1?path=.a", "avro/binary"), 406, "not-acceptable");
    assert_problem(&ask("/records/t", "avro/binary"), 406, "not-acceptable");
    for accept in ["text/plain, */*;q=0.1", "application/*", "*/*", "", "text/html, *; q=.2", "application/json"] {
        assert_eq!(ask("/records/t/1", accept).status, 200, "{accept}");
    }
    let mixed = ask("/records/t/1?path=.a", "avro/binary, application/json;q=0.5");
    assert_eq!((mixed.status, mixed.header("content-type")), (200, Some("application/json")));
    // A write without a body in its reply cannot be refused for `Accept`.
    assert_eq!(server.request("PUT", "/records/t/1", &["Accept: text/plain"], b"{}").status, 200);
    let wanted = ["Accept: text/plain", "Prefer: return=representation"];
    let before = server.get("/records/t/1");
    assert_problem(&server.request("PUT", "/records/t/1", &wanted, b"{\"a\":7}"), 406, "not-acceptable");
    assert_eq!(server.get("/records/t/1"), before, "and nothing was written");
}

#[test]
fn text_is_no_form_of_a_record() {
    let server = server();
    assert_eq!(server.request("PUT", "/schemas/t", &[], record(&field("a")).as_bytes()).status, 201);
    let plain = &["Content-Type: text/plain;charset=UTF-8"];
    for (method, path, body) in [
        ("PUT", "/records/t/1", "{}"),
        ("PATCH", "/records/t/1", "[]"),
        ("POST", "/records/t/batch", "{\"ids\":[]}"),
        ("PUT", "/schemas/t", "{\"ttl_ms\":5}"),
    ] {
        assert_problem(&server.request(method, path, plain, body.as_bytes()), 415, "unsupported-media-type");
    }
}

#[test]
fn small_mistakes_are_told() {
    let server = server();
    assert_eq!(server.request("PUT", "/schemas/t", &[], record(&field("a")).as_bytes()).status, 201);
    assert_eq!(server.request("PUT", "/records/t/1", &[], b"{}").status, 201);
    for path in ["/records/t?p.x=1", "/records/t?p.x=1&order=.a", "/records/t/1?p.x=1"] {
        assert_problem(&server.request("GET", path, &[], b""), 400, "bad-request");
    }
    for path in ["/t/get/", "/records/t/"] {
        let empty = server.request("GET", path, &[], b"");
        assert_problem(&empty, 400, "bad-request");
        assert!(empty.text().contains("id") && empty.text().contains("empty"), "{path}: {}", empty.text());
    }
    assert_problem(&server.request("POST", "/t/put/", &[], b"{}"), 400, "bad-request");
    assert_problem(&server.request("GET", "/t/delscript/a/none", &[], b""), 404, "unknown-handler");
    for path in ["/t/get/1?timeout=5", "/t/get/1/a?timeout=5"] {
        assert_eq!(server.request("GET", path, &[], b"").status, 200, "{path}");
    }
    for (path, body) in [
        ("/t/put/1?timeout=5", "{}"),
        ("/t/put/1/a?timeout=5", "1"),
        ("/t/select/1?timeout=5", ".a"),
        ("/t/update/1?timeout=5", ".a\n2"),
    ] {
        assert_eq!(server.request("POST", path, &[], body.as_bytes()).status, 200, "{path}");
    }
    assert_problem(&server.request("GET", "/t/get/1?timeout=soon", &[], b""), 400, "bad-request");
    let twice = server.request("PUT", "/records/t/1", &[], br#"{"a":1,"a":2}"#);
    assert_problem(&twice, 422, "wrong-type");
    assert!(twice.text().contains("twice"), "{}", twice.text());
    for name in ["types", "ids", "subjects", "contexts"] {
        let body = record("");
        let reserved = server.request("PUT", &format!("/records/{name}/1"), &[], body.as_bytes());
        assert_problem(&reserved, 400, "bad-request");
        for word in ["contexts", "ids", "subjects", "types"] {
            assert!(reserved.text().contains(word), "{name}: {}", reserved.text());
        }
    }
}

#[test]
fn the_field_that_is_too_large_is_named() {
    let server = server();
    let schema = record(r#"{"name":"s","type":"string"},{"name":"by","type":"bytes"},{"name":"n","type":"int"}"#);
    assert_eq!(server.request("PUT", "/schemas/t", &[], schema.as_bytes()).status, 201);
    let long = "x".repeat(2 << 20);
    for body in [format!(r#"{{"s":"{long}"}}"#), format!(r#"{{"n":1,"s":"{long}"}}"#)] {
        let large = server.request("PUT", "/records/t/1", &[], body.as_bytes());
        assert_problem(&large, 413, "too-large");
        assert!(large.json()["detail"].as_str().is_some_and(|detail| detail.starts_with(".s:")), "{}", large.text());
    }
}

#[test]
fn a_time_to_live_has_an_end() {
    let server = server();
    assert_eq!(server.request("PUT", "/schemas/t", &[], record(&field("a")).as_bytes()).status, 201);
    for ttl in ["18446744073709551615", "9223372036854775807", "18446744073709551616", "8640000000000000"] {
        let path = format!("/records/t/1?ttl_ms={ttl}");
        assert_problem(&server.request("PUT", &path, &[], b"{}"), 400, "bad-request");
        let header = format!("Millrace-TTL: {ttl}");
        assert_problem(&server.request("PUT", "/records/t/1", &[&header], b"{}"), 400, "bad-request");
        let change = format!("{{\"ttl_ms\":{ttl}}}");
        assert_problem(&server.request("PUT", "/schemas/t", &[], change.as_bytes()), 400, "bad-request");
    }
    assert_problem(&server.request("GET", "/records/t/1", &[], b""), 404, "unknown-record");
    let year = 1000_u64 * 365 * 86_400_000;
    let long = server.request("PUT", &format!("/records/t/1?ttl_ms={year}"), &[], b"{}");
    assert_eq!(long.status, 201, "a thousand years: {}", long.text());
    assert_eq!(server.request("GET", "/records/t/1", &[], b"").status, 200);
}

#[test]
fn a_type_is_put_with_a_short_answer_or_only_tried() {
    let server = server();
    let put = |path: &str, headers: &[&str], schema: &str| server.request("PUT", path, headers, schema.as_bytes());
    let (one, two) = (record(&field("a")), record(&format!("{},{}", field("a"), field("b"))));
    let tried = put("/schemas/t?dry_run=true", &[], &one);
    assert_eq!((tried.status, &tried.json()["version"], &tried.json()["schema_id"]), (200, &json!(1), &json!(1)));
    assert_problem(&server.request("GET", "/schemas/t", &[], b""), 404, "unknown-type");
    let minimal = &["Prefer: return=minimal"];
    let made = put("/schemas/t", minimal, &one);
    assert_eq!((made.status, made.body.len()), (201, 0));
    assert_eq!(made.header("preference-applied"), Some("return=minimal"));
    let tried = put("/schemas/t?dry_run", &[], &two);
    assert_eq!((tried.status, &tried.json()["version"], &tried.json()["schema_id"]), (200, &json!(2), &json!(2)));
    let incompatible = record(r#"{"name":"c","type":"int"}"#);
    for path in ["/schemas/t?dry_run=1", "/schemas/t"] {
        let refused = put(path, &[], &incompatible);
        assert_problem(&refused, 409, "incompatible-schema");
        assert!(refused.json()["payload"]["messages"].is_array(), "{}", refused.text());
    }
    assert_problem(&put("/schemas/t?dry_run=maybe", &[], &two), 400, "bad-request");
    assert_eq!(server.get("/schemas/t")["version"], 1, "trying changes nothing");
    let changed = put("/schemas/t?dry_run=false", minimal, &two);
    assert_eq!((changed.status, changed.body.len()), (204, 0), "{}", changed.text());
    assert_eq!(server.get("/schemas/t")["version"], 2);
}

#[test]
fn a_logical_type_does_not_become_another_one() {
    let server = server();
    let of = |logical: &str| record(&format!(r#"{{"name":"at","type":{{"type":"long","logicalType":"{logical}"}}}}"#));
    let put = |schema: &str| server.request("PUT", "/schemas/t", &[], schema.as_bytes());
    assert_eq!(put(&of("timestamp-millis")).status, 201);
    let refused = put(&of("timestamp-micros"));
    assert_problem(&refused, 409, "incompatible-schema");
    assert_eq!(
        refused.json()["detail"],
        "the schema is not BACKWARD compatible with subject \"t\": the new schema cannot read version 1: .at: the \
         writer's long (timestamp-millis) cannot be read as long (timestamp-micros): its values would mean something \
         else",
    );
    assert_eq!(put(&of("of-our-own")).status, 200, "it may be dropped");
    let refused = put(&record(r#"{"name":"age","type":"int"}"#));
    // As docs/errors/incompatible-schema.md shows it.
    assert_eq!(
        refused.json()["detail"],
        "the schema is not BACKWARD compatible with subject \"t\": the new schema cannot read version 2: .age: the \
         writer has no such field, and the reader no default for it",
    );
}

#[test]
fn a_subject_is_deleted_softly_first_and_a_type_by_its_own_url() {
    let server = server();
    let none = Value::Null;
    register(&server, "s", &record(""));
    assert_refused(&send(&server, "DELETE /subjects/s?permanent=true", &none), 404, 40405);
    assert_eq!(send(&server, "DELETE /subjects/s", &none).json(), json!([1]));
    assert_refused(&send(&server, "DELETE /subjects/s", &none), 404, 40404);
    assert_eq!(get(&server, "/subjects?deletedOnly=true"), json!(["s"]));
    assert_eq!(send(&server, "DELETE /subjects/s?permanent=true", &none).json(), json!([1]));
    assert_refused(&send(&server, "DELETE /subjects/s", &none), 404, 40401);
    assert_eq!(server.request("PUT", "/schemas/t", &[], record(&field("a")).as_bytes()).status, 201);
    assert_refused(&send(&server, "DELETE /subjects/t", &none), 422, 42205);
    assert_refused(&send(&server, "DELETE /subjects/t/versions/1", &none), 422, 42205);
    assert_eq!(server.request("DELETE", "/schemas/t", &[], b"").status, 204);
    assert_eq!(send(&server, "DELETE /subjects/t?permanent=true", &none).json(), json!([1]));
}

#[test]
fn hostile_bodies_are_refused_and_harm_nobody() {
    let server = server();
    let post = |path: &str, body: &[u8]| server.request("POST", path, &[], body);
    let nested = |depth: usize| format!("{}\"int\"{}", r#"{"type":"array","items":"#.repeat(depth), "}".repeat(depth));
    let schema = |text: &str| json!({ "schema": text }).to_string().into_bytes();
    for body in [&b""[..], b"{", b"[]", b"null", b"\"x\"", b"\xff\xfe", b"{\"schema\":1}", b"{\"schema\":null}"] {
        assert_refused(&post("/subjects/s/versions", body), 400, 400);
    }
    let deep = "[".repeat(200_000);
    assert_refused(&post("/subjects/s/versions", deep.as_bytes()), 400, 400);
    for text in [&*nested(100), &nested(5000), &"[".repeat(100_000), "{\"type\":\"record\"}", ""] {
        let reply = post("/subjects/s/versions", &schema(text));
        assert!(reply.status == 422 && reply.json()["error_code"] == 42201 || reply.status == 200, "{}", reply.text());
    }
    // A chain of references, each to the one before. It is refused quickly where it becomes too long.
    let mut longest = 0;
    for number in 0..150 {
        let (fields, references) = match number {
            0 => (String::new(), json!([])),
            _ => {
                let before = format!("C{}", number - 1);
                let references = json!([{ "name": before, "subject": before, "version": 1 }]);
                (format!(r#"{{"name":"f","type":"{before}"}}"#), references)
            }
        };
        let text = format!(r#"{{"type":"record","name":"C{number}","fields":[{fields}]}}"#);
        let body = json!({ "schema": text, "references": references }).to_string();
        let reply = post(&format!("/subjects/C{number}/versions"), body.as_bytes());
        match reply.status {
            200 => longest = number,
            _ => {
                assert_refused(&reply, 422, 42201);
                break;
            }
        }
    }
    assert!((50..149).contains(&longest), "{longest}");
    let many: Vec<Value> =
        (0..1000).map(|n| json!({ "name": format!("C{n}"), "subject": "C0", "version": 1 })).collect();
    let body = json!({ "schema": "\"int\"", "references": many }).to_string();
    assert_refused(&post("/subjects/many/versions", body.as_bytes()), 422, 42201);
    assert_eq!(get(&server, "/subjects?subjectPrefix=C0"), json!(["C0"]));
}
