//! `/schemas/…` and the Schema Registry's URLs.

use std::sync::atomic::Ordering;

use crate::support::{Client, Reply, Server, patient};
use base64::Engine as _;
use millrace_access::KeyFile;
use millrace_api::Role;
use millrace_http::Options;
use serde_json::{Value, json};

fn record(fields: &str) -> String {
    format!(r#"{{"type": "record", "name": "P", "fields": [{fields}]}}"#)
}

const NAME: &str = r#"{"name": "name", "type": "string", "default": ""}"#;
const AGE: &str = r#"{"name": "age", "type": "int"}"#;

#[test]
fn a_type_is_made_changed_shown_and_deleted() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let made = client.ask("PUT /schemas/person", record(NAME).as_bytes());
    assert_eq!((made.status, made.header("content-type")), (201, Some("application/json")));
    let shown = made.json();
    assert_eq!((&shown["type"], &shown["version"], &shown["schema_id"]), (&json!("person"), &json!(1), &json!(1)));
    assert_eq!((&shown["create"], &shown["compatibility"]), (&json!("explicit"), &json!("BACKWARD")));
    assert_eq!(shown["schema"]["fields"][0]["name"], "name");
    let change = format!(
        r#"{{"schema": {}, "compatibility": "FULL", "create": "touch", "ttl_ms": 5000,
            "indexes": [{{"name": "by-name", "path": ".name"}}], "changes": {{"retention_ms": 1000}}}}"#,
        record(&format!("{NAME}, {}", AGE.replace('}', r#", "default": 0}"#)))
    );
    let changed = client.ask("PUT /schemas/person", change.as_bytes());
    assert_eq!(changed.status, 200);
    let shown = client.ask("GET /schemas/person", b"").json();
    let mut asked = changed.json();
    asked["index_progress"] = json!({});
    assert_eq!(shown, asked, "a change answers what is asked for later, but for what goes on meanwhile");
    assert_eq!(
        (&shown["version"], &shown["ttl_ms"], &shown["compatibility"]),
        (&json!(2), &json!(5000), &json!("FULL"))
    );
    assert_eq!(shown["versions"].as_array().map(Vec::len), Some(2));
    assert_eq!(shown["indexes"][0]["path"], ".name");
    let list = client.ask("GET /schemas", b"").json();
    assert_eq!((&list["types"][0]["type"], list["types"][0].get("versions")), (&json!("person"), None));
    let tried = client.ask("PUT /schemas/person?dry_run=true", b"{\"ttl_ms\": 6000}");
    assert_eq!((tried.status, &tried.json()["ttl_ms"]), (200, &json!(6000)));
    assert_eq!(client.ask("GET /schemas/person", b"").json(), shown, "nothing was changed");
    let short = client.ask("PUT /schemas/person\nprefer: return=minimal", b"{\"ttl_ms\": 6000}");
    assert_eq!((short.status, short.header("preference-applied")), (204, Some("return=minimal")));
    server.asked();
    assert_eq!(client.ask("POST /schemas/person/sweep", b"").status, 202);
    assert_eq!(server.asked_one(), "sweep person");
    assert_eq!(client.ask("DELETE /schemas/person", b"").status, 204);
    client.ask("GET /schemas/person", b"").assert_problem("unknown-type");
    client.ask("DELETE /schemas/person", b"").assert_problem("unknown-type");
}

#[test]
fn what_cannot_be_a_type_changes_nothing() {
    let server = Server::start(patient());
    let mut client = server.connect();
    assert_eq!(client.ask("PUT /schemas/used", record(NAME).as_bytes()).status, 201);
    let before = client.ask("GET /schemas/used", b"").json();
    let incompatible = client.ask("PUT /schemas/used", record(AGE).as_bytes());
    let document = incompatible.assert_problem("incompatible-schema");
    assert!(document["payload"]["messages"].is_array(), "{document}");
    for (body, code) in [
        ("", "invalid-input"),
        ("{\"type\":", "invalid-input"),
        ("{\"type\":\"nothing\"}", "invalid-schema"),
        ("{\"create\":\"never\"}", "bad-request"),
        ("{\"schemas\":1}", "bad-request"),
        ("{\"ttl_ms\":0}", "bad-request"),
    ] {
        client.ask("PUT /schemas/used", body.as_bytes()).assert_problem(code);
    }
    client.ask("PUT /schemas/plain", b"\"string\"").assert_problem("invalid-schema");
    client.ask("PUT /schemas/used?x=1", record(NAME).as_bytes()).assert_problem("bad-request");
    client.ask("PUT /schemas/used\ncontent-type: avro/binary", b"x").assert_problem("unsupported-media-type");
    for name in ["types", "ids", "a--b", "1a"] {
        client.ask(&format!("PUT /schemas/{name}"), record(NAME).as_bytes());
    }
    client.ask("DELETE /schemas/used", b"").assert_problem("type-in-use");
    client.ask("GET /delschema/used", b"").assert_problem("type-in-use");
    assert_eq!(client.ask("GET /schemas/used", b"").json(), before);
    assert_eq!(client.ask("GET /schemas", b"").json()["types"].as_array().map(Vec::len), Some(1));
    assert_eq!(client.ask("DELETE /schemas/used?force", b"").status, 204);
}

#[test]
fn changes_that_meet_are_both_made() {
    let server = Server::start(patient());
    let conflicts = &server.backend.shared.records.conflicts;
    conflicts.store(3, Ordering::SeqCst);
    assert_eq!(server.ask("PUT /schemas/person", record(NAME).as_bytes()).status, 201);
    assert_eq!(conflicts.load(Ordering::SeqCst), 0);
    conflicts.store(1000, Ordering::SeqCst);
    let never =
        server.ask("PUT /schemas/person", record(&format!("{NAME},{NAME}").replacen("name\",", "n\",", 1)).as_bytes());
    assert!(never.status == 503 || never.status == 422, "{never:?}");
    conflicts.store(0, Ordering::SeqCst);
    let version = server.backend.shared.records.app.lock().expect("no panic").0;
    assert_eq!(server.ask("PUT /schemas/person", record(NAME).as_bytes()).status, 200);
    let after = server.backend.shared.records.app.lock().expect("no panic").0;
    assert_eq!(after, version, "what changes nothing is not deployed");
}

const KIND: &str = "application/vnd.schemaregistry.v1+json";

/// Asks as clients of the Schema Registry do, and checks that the reply is of its kind.
fn ask(client: &mut Client, request: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let reply = client.ask(&format!("{request}\naccept: {KIND}\ncontent-type: {KIND}"), body.as_bytes());
    assert_eq!(reply.header("content-type"), Some(KIND), "{request}: {reply:?}");
    (reply.status, reply.json())
}

fn assert_error((status, body): (u16, Value), code: u32) {
    let expected = if code < 1000 { code } else { code / 100 };
    assert_eq!((u32::from(status), &body["error_code"]), (expected, &json!(code)), "{body}");
    assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()));
}

#[test]
fn a_registry_client_registers_and_reads() {
    let server = Server::start(patient());
    let client = &mut server.connect();
    let (text, none) = (record(NAME), Value::Null);
    let schema = json!({ "schema": text, "schemaType": "AVRO" });
    let subject = "/subjects/orders%2Fa-value";
    assert_eq!(ask(client, &format!("POST {subject}/versions?normalize=False"), &schema), (200, json!({ "id": 1 })));
    assert_eq!(ask(client, &format!("POST {subject}/versions"), &schema), (200, json!({ "id": 1 })));
    let version = json!({ "subject": "orders/a-value", "version": 1, "id": 1, "schema": text });
    assert_eq!(ask(client, &format!("POST {subject}?normalize=False&deleted=False"), &schema), (200, version.clone()));
    for number in ["1", "latest", "-1"] {
        assert_eq!(ask(client, &format!("GET {subject}/versions/{number}"), &none), (200, version.clone()));
    }
    assert_eq!(ask(client, "GET /subjects", &none), (200, json!(["orders/a-value"])));
    assert_eq!(ask(client, "GET /subjects?subjectPrefix=x", &none), (200, json!([])));
    assert_eq!(ask(client, &format!("GET {subject}/versions"), &none), (200, json!([1])));
    assert_eq!(
        ask(client, "GET /schemas/ids/1?fetchMaxId=true&subject=x", &none),
        (200, json!({ "schema": text, "maxId": 1 }))
    );
    let raw: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(ask(client, "GET /schemas/ids/1/schema", &none), (200, raw.clone()));
    assert_eq!(ask(client, &format!("GET {subject}/versions/1/schema"), &none), (200, raw));
    let place = json!([{ "subject": "orders/a-value", "version": 1 }]);
    assert_eq!(ask(client, "GET /schemas/ids/1/versions", &none), (200, place));
    assert_eq!(ask(client, "GET /schemas/ids/1/subjects", &none), (200, json!(["orders/a-value"])));
    assert_eq!(ask(client, "GET /schemas/types", &none), (200, json!(["AVRO"])));
    assert_eq!(ask(client, "GET /schemas?latestOnly=true", &none), (200, json!([version])));
    assert_eq!(ask(client, &format!("GET {subject}/versions/1/referencedby"), &none), (200, json!([])));
    assert_eq!(ask(client, &format!("DELETE {subject}/versions/1"), &none), (200, json!(1)));
    assert_eq!(ask(client, "GET /subjects?deleted=true", &none), (200, json!(["orders/a-value"])));
    assert_eq!(ask(client, &format!("DELETE {subject}?permanent=true"), &none), (200, json!([1])));
    assert_error(ask(client, "GET /schemas/ids/1", &none), 40403);
}

#[test]
fn a_registry_client_sets_rules() {
    let server = Server::start(patient());
    let client = &mut server.connect();
    let none = Value::Null;
    assert_eq!(ask(client, "GET /config", &none), (200, json!({ "compatibilityLevel": "BACKWARD" })));
    assert_eq!(
        ask(client, "PUT /config", &json!({ "compatibility": "full" })),
        (200, json!({ "compatibility": "FULL" }))
    );
    assert_error(ask(client, "GET /config/s", &none), 40408);
    let global = ask(client, "GET /config/s?defaultToGlobal=true", &none);
    assert_eq!(global, (200, json!({ "compatibilityLevel": "FULL" })));
    let set = ask(client, "PUT /config/s", &json!({ "compatibility": "NONE" }));
    assert_eq!(set, (200, json!({ "compatibility": "NONE" })));
    assert_eq!(ask(client, "DELETE /config/s", &none), (200, json!({ "compatibilityLevel": "NONE" })));
    assert_error(ask(client, "DELETE /config/s", &none), 40408);
    assert_error(ask(client, "PUT /config", &json!({ "compatibility": "SOME" })), 42203);
    assert_eq!(ask(client, "GET /mode", &none), (200, json!({ "mode": "READWRITE" })));
    assert_error(ask(client, "GET /mode/s", &none), 40409);
    assert_eq!(ask(client, "PUT /mode/s", &json!({ "mode": "READONLY" })), (200, json!({ "mode": "READONLY" })));
    let schema = json!({ "schema": record(NAME) });
    assert_error(ask(client, "POST /subjects/s/versions", &schema), 42205);
    assert_eq!(ask(client, "DELETE /mode/s", &none), (200, json!({ "mode": "READONLY" })));
    assert_error(ask(client, "PUT /mode", &json!({ "mode": "SOME" })), 42204);
    assert_eq!(ask(client, "POST /subjects/s/versions", &schema).0, 200);
    let other = json!({ "schema": record(AGE) });
    assert_error(ask(client, "POST /subjects/s/versions", &other), 409);
    let check = "POST /compatibility/subjects/s/versions";
    assert_eq!(ask(client, &format!("{check}/latest"), &schema), (200, json!({ "is_compatible": true })));
    let (status, verbose) = ask(client, &format!("{check}?verbose=true"), &other);
    assert_eq!((status, &verbose["is_compatible"]), (200, &json!(false)));
    assert!(verbose["messages"].as_array().is_some_and(|messages| !messages.is_empty()));
}

#[test]
fn lists_have_pages_and_unrouted_urls_the_registrys_errors() {
    let server = Server::start(patient());
    let client = &mut server.connect();
    let none = Value::Null;
    for name in ["a", "b", "c"] {
        assert_eq!(ask(client, &format!("POST /subjects/{name}/versions"), &json!({ "schema": record(NAME) })).0, 200);
    }
    assert_eq!(ask(client, "GET /subjects?offset=1&limit=1", &none), (200, json!(["b"])));
    assert_eq!(ask(client, "GET /subjects/a/versions?offset=1", &none), (200, json!([])));
    assert_eq!(ask(client, "GET /schemas/ids/1/subjects?limit=2", &none), (200, json!(["a", "b"])));
    let place = json!([{ "subject": "c", "version": 1 }]);
    assert_eq!(ask(client, "GET /schemas/ids/1/versions?subject=c", &none), (200, place));
    assert_eq!(ask(client, "GET /subjects/a/versions/1/referencedby?limit=0", &none), (200, json!([])));
    assert_error(ask(client, "GET /subjects/a/versions?limit=x", &none), 400);
    assert!(ask(client, "GET /", &none).1.is_object(), "clients ask for it to see whether anybody is there");
    assert_eq!(client.ask("GET /contexts", b"").json()["service"], "contexts", "a service of that name goes before");
    for (request, number) in [
        ("GET /subjects/a/b", 40400),
        ("GET /schemas/ids/1/x", 40400),
        ("PUT /subjects", 40501),
        ("POST /schemas/types", 40501),
    ] {
        assert_error(ask(client, request, &none), number);
    }
    let kind = "text/xml";
    let reply = client.ask(&format!("POST /subjects/a\ncontent-type: {kind}"), b"{}");
    assert_eq!((reply.status, &reply.json()["error_code"]), (415, &json!(41501)));
    client.ask("GET /schemas/a/b/c", b"").assert_problem("unknown-route");
}

#[test]
fn a_registry_client_gets_its_own_errors() {
    let server = Server::start(patient());
    let client = &mut server.connect();
    let none = Value::Null;
    assert_eq!(ask(client, "POST /subjects/s/versions", &json!({ "schema": record(NAME) })).0, 200);
    for (request, body, code) in [
        ("GET /subjects/x/versions", &none, 40401),
        ("GET /subjects/s/versions/9", &none, 40402),
        ("GET /subjects/s/versions/0", &none, 42202),
        ("GET /schemas/ids/9", &none, 40403),
        ("GET /schemas/ids/x", &none, 40403),
        ("POST /subjects/s", &json!({ "schema": record(AGE) }), 40403),
        ("POST /subjects/s/versions", &json!({ "schema": "{" }), 42201),
        ("POST /subjects/s/versions", &json!({ "schema": "x", "schemaType": "PROTOBUF" }), 42201),
        ("POST /subjects/s/versions", &json!({ "schemas": 1 }), 400),
        ("DELETE /subjects/s?permanent=true", &none, 40405),
        ("DELETE /subjects/s/versions/1?permanent=true", &none, 40407),
        ("GET /subjects?deleted=maybe", &none, 400),
    ] {
        assert_error(ask(client, request, body), code);
    }
}

#[test]
fn who_may_do_what() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    let mut file = KeyFile::default();
    let mut add = |name: &str, role: &str| {
        file.add(name, &[name.len() as u8; 32], &[Role::parse(role).expect("a role")], 0).expect("new")
    };
    let (caller, other, deployer) = (add("a", "call:records/person"), add("bb", "call:bank/x"), add("ccc", "deploy"));
    file.save(&path).expect("saved");
    let server = Server::start(Options { keys: Some(path), ..patient() });
    let ask = |request: &str, token: &str, body: &str| -> Reply {
        let header = if token.is_empty() { String::new() } else { format!("\nauthorization: Bearer {token}") };
        server.ask(&format!("{request}{header}"), body.as_bytes())
    };
    let schema = record(NAME);
    ask("PUT /schemas/person", &caller, &schema).assert_problem("forbidden");
    assert_eq!(ask("PUT /schemas/person", &deployer, &schema).status, 201);
    for token in [&caller, &other, &deployer] {
        assert_eq!(ask("GET /schemas/person", token, "").status, 200, "any key reads schemas");
        assert_eq!(ask("GET /subjects", token, "").status, 200);
    }
    ask("GET /schemas/person", "", "").assert_problem("unauthorized");
    assert_eq!(ask("GET /subjects", "", "").json()["error_code"], 40101);
    let body = json!({ "schema": schema }).to_string();
    assert_eq!(ask("POST /subjects/s/versions", &caller, &body).json()["error_code"], 40301);
    assert_eq!(ask("GET /records/person/1", &caller, "").status, 200);
    ask("GET /records/person/1", &other, "").assert_problem("forbidden");
    ask("GET /records/person/1", "", "").assert_problem("unauthorized");
    ask("POST /schemas/person/sweep", &caller, "").assert_problem("forbidden");
    ask("DELETE /schemas/person", &caller, "").assert_problem("forbidden");
    assert_eq!(ask("GET /ping", "", "").body, b"pong");
    let basic = |request: &str, credentials: &[u8]| {
        let credentials = base64::engine::general_purpose::STANDARD.encode(credentials);
        server.ask(&format!("{request}\nauthorization: Basic {credentials}"), b"")
    };
    let password = format!("anybody:{deployer}");
    for request in ["GET /subjects", "GET /config", "GET /schemas?limit=1", "DELETE /config/person"] {
        assert_ne!(basic(request, password.as_bytes()).status, 401, "{request}");
    }
    for request in
        ["GET /schemas/person", "GET /schemas", "GET /records/person/1", "GET /apps", "DELETE /schemas/person"]
    {
        basic(request, password.as_bytes()).assert_problem("unauthorized");
    }
    for wrong in [&b""[..], b"x", b":", b"\xff:\xfe", b"a:mr_", b"a:mr_ccc_", format!("{deployer}:").as_bytes()] {
        assert_eq!(basic("GET /subjects", wrong).json()["error_code"], 40101);
    }
    let reply = server.ask("GET /subjects\nauthorization: Basic %%%", b"");
    assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")));
}
