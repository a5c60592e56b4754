//! Records whose schema uses types of other subjects, directly and through those. They are written, changed, found
//! and read in every form. They follow new versions of the types they refer to. A type that is in use is not deleted.

use millrace_tests::{Reply, Server, ServerOptions, assert_problem, wait_until};
use serde_json::{Value, json};

fn send(server: &Server, method: &str, path: &str, body: &Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.request(method, path, &[], body.as_bytes())
}

/// The subject that the places refer to. It is not a type.
fn country() -> Value {
    json!({ "type": "enum", "name": "Country", "namespace": "geo", "symbols": ["DE", "IT"] })
}

fn place(more: &[Value]) -> Value {
    let mut fields = vec![
        json!({ "name": "city", "type": "string" }),
        json!({ "name": "code", "type": ["null", "int"], "default": null }),
        json!({ "name": "country", "type": "geo.Country" }),
    ];
    fields.extend(more.iter().cloned());
    let schema = json!({ "type": "record", "name": "Place", "namespace": "geo", "fields": fields });
    json!({ "schema": schema, "references": [{ "name": "geo.Country", "subject": "country", "version": 1 }] })
}

/// A person whose homes are of a version of the places.
fn person(version: u32) -> Value {
    let schema = json!({ "type": "record", "name": "Person", "fields": [
        { "name": "name", "type": "string" },
        { "name": "home", "type": "geo.Place" },
        { "name": "others", "type": { "type": "array", "items": "geo.Place" } },
    ]});
    json!({ "schema": schema, "references": [{ "name": "geo.Place", "subject": "place", "version": version }] })
}

/// A type of persons. It keeps changes, and an index finds persons by their cities.
fn start() -> Server {
    let server = Server::start(ServerOptions::examples(&[]));
    let country = json!({ "schema": country().to_string() });
    assert_eq!(send(&server, "POST", "/subjects/country/versions", &country).status, 200);
    let made = send(&server, "PUT", "/schemas/place", &place(&[]));
    assert_eq!(made.status, 201, "{}", made.text());
    let mut settings = person(1);
    settings["indexes"] =
        json!([{ "name": "city", "path": ".home.city" }, { "name": "cities", "path": ".others[*].city" }]);
    settings["changes"] = json!({});
    let made = send(&server, "PUT", "/schemas/person", &settings);
    assert_eq!(made.status, 201, "{}", made.text());
    server
}

/// The ids that a query finds, which an index serves.
fn found(server: &Server, query: &str) -> Vec<String> {
    let query: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let plan = server.get(&format!("/records/person?explain=true&where={query}"));
    assert_eq!(plan["plan"], "index", "{plan}");
    let page = server.get(&format!("/records/person?limit=1000&where={query}"));
    assert_eq!(page["cursor"], Value::Null, "{page}");
    let records = page["records"].as_array().expect("records").iter();
    records.map(|record| record["id"].as_str().expect("an id").to_owned()).collect()
}

const BINARY: [&str; 2] = ["Content-Type: avro/binary", "Accept: avro/binary"];

/// Ann of Ulm, who was in Rome, as Avro writes her.
const ANN: &[u8] = b"\x06Ann\x06Ulm\x02\x0e\x00\x02\x06Rom\x00\x02\x00";

fn ann() -> Value {
    json!({
        "name": "Ann",
        "home": { "city": "Ulm", "code": 7, "country": "DE" },
        "others": [{ "city": "Rom", "code": null, "country": "IT" }],
    })
}

#[test]
fn records_of_several_subjects_schemas_are_as_any_others() {
    let server = start();
    let put = send(&server, "PUT", "/records/person/a", &json!({ "name": "Ann", "home": { "city": "Ulm" } }));
    assert_eq!(put.status, 201, "{}", put.text());
    let home = json!({ "city": "Ulm", "code": null, "country": "DE" });
    assert_eq!(server.get("/records/person/a"), json!({ "name": "Ann", "home": home, "others": [] }));
    let patch = json!([
        { "op": "set", "path": ".home.code", "value": 7 },
        { "op": "insert", "path": ".others", "value": { "city": "Rom", "country": "IT" } },
    ]);
    let patched = send(&server, "PATCH", "/records/person/a", &patch);
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(server.get("/records/person/a"), ann());
    let before = server.request("GET", "/records/person/a", &BINARY[1..], b"");
    assert_eq!(&*before.body, ANN);
    let tagged = server.request("GET", "/records/person/a", &["Accept: application/avro+json"], b"");
    assert_eq!(tagged.json()["home"], json!({ "city": "Ulm", "code": { "int": 7 }, "country": "DE" }));

    // A value that does not fit the referenced type does not fit.
    for (path, value, status, code) in [
        (".home.country", json!("FR"), 422, "wrong-type"),
        (".home", json!({ "street": "x" }), 422, "unknown-field"),
        (".home.street", json!("x"), 404, "no-match"),
    ] {
        let patch = json!([{ "op": "set", "path": path, "value": value }]);
        assert_problem(&send(&server, "PATCH", "/records/person/a", &patch), status, code);
    }
    let cut = server.request("PUT", "/records/person/a", &BINARY[..1], &ANN[..ANN.len() - 2]);
    assert_problem(&cut, 422, "wrong-type");
    let after = server.request("GET", "/records/person/a", &BINARY[1..], b"");
    assert_eq!((after.header("etag"), &after.body), (before.header("etag"), &before.body));

    assert_eq!(server.request("PUT", "/records/person/b", &BINARY[..1], ANN).status, 201);
    assert_eq!(server.get("/records/person/b"), ann());
    assert_eq!(send(&server, "PUT", "/records/person/c", &json!({ "home": { "city": "Rom" } })).status, 201);
    assert_eq!(found(&server, r#".home.city === "Ulm""#), ["a", "b"]);
    assert_eq!(found(&server, r#".others[*].city === "Rom""#), ["a", "b"]);
    assert_eq!(found(&server, r#".home.city === "Rom" && .home.country === "DE""#), ["c"]);
    let changes = server.get("/records/person/changes");
    let of_a: Vec<&Value> =
        changes["changes"].as_array().expect("changes").iter().filter(|change| change["id"] == "a").collect();
    assert_eq!((of_a.len(), &of_a[1]["record"]), (2, &ann()));
    assert_eq!(of_a[1]["changes"][0], json!({ "path": ".home.code", "kind": "set", "value": 7 }));
}

#[test]
fn a_new_version_of_what_is_referred_to_is_followed_once_the_type_refers_to_it() {
    let mut server = start();
    for id in 0..100 {
        assert_eq!(server.request("PUT", &format!("/records/person/{id}"), &BINARY[..1], ANN).status, 201);
    }
    let old_id = server.get("/schemas/person")["schema_id"].clone();
    // Existing records and new ones are of the version that the type refers to.
    let since = json!({ "name": "since", "type": "long", "default": 1900 });
    assert_eq!(send(&server, "PUT", "/schemas/place", &place(std::slice::from_ref(&since))).status, 200);
    assert_eq!(send(&server, "PUT", "/records/person/100", &ann()).status, 201);
    assert_eq!((server.get("/records/person/7"), server.get("/records/person/100")), (ann(), ann()));

    let mut settings = person(2);
    settings["indexes"] = json!([{ "name": "city", "path": ".home.city" }, { "name": "since", "path": ".home.since" }]);
    let changed = send(&server, "PUT", "/schemas/person", &settings);
    assert_eq!((changed.status, &changed.json()["version"]), (200, &json!(2)), "{}", changed.text());
    let mut newer = ann();
    newer["home"]["since"] = json!(1900);
    newer["others"][0]["since"] = json!(1900);
    assert_eq!(server.get("/records/person/7"), newer);
    // Bytes of an older schema are brought to the new version if the request names that schema.
    let named = format!("Millrace-Schema-Id: {old_id}");
    assert_eq!(server.request("PUT", "/records/person/8", &[BINARY[0], &named], ANN).status, 200);
    assert_eq!(server.get("/records/person/8"), newer);
    assert_problem(&server.request("PUT", "/records/person/8", &BINARY[..1], ANN), 422, "wrong-type");
    let is_swept = |server: &Server| {
        let progress = server.get("/schemas/person")["sweep_progress"].clone();
        progress["shards"].as_u64() > Some(0) && progress["complete_shards"] == progress["shards"]
    };
    wait_until("all are written with the new version", || is_swept(&server));
    assert_eq!(found(&server, ".home.since === 1900").len(), 101);
    // Neither a sweep nor a write of the same value is a change.
    let changes = server.get("/records/person/changes?limit=1000");
    assert_eq!(changes["changes"].as_array().map(Vec::len), Some(101));

    // A crash comes right after the next version. Each record is of that version at once, whatever schema it was
    // written with.
    let more = [since, json!({ "name": "size", "type": "int", "default": 3 })];
    assert_eq!(send(&server, "PUT", "/schemas/place", &place(&more)).status, 200);
    let changed = send(&server, "PUT", "/schemas/person", &person(3));
    server.kill();
    assert_eq!(changed.status, 200, "{}", changed.text());
    server.restart();
    newer["home"]["size"] = json!(3);
    newer["others"][0]["size"] = json!(3);
    for id in 0..=100 {
        assert_eq!(server.get(&format!("/records/person/{id}")), newer, "{id}");
    }
    let patch = json!([{ "op": "increment", "path": ".others[0].size", "value": 1 }]);
    assert_eq!(send(&server, "PATCH", "/records/person/7", &patch).status, 200);
    newer["others"][0]["size"] = json!(4);
    assert_eq!(server.get("/records/person/7"), newer);
    assert_eq!(found(&server, r#".home.city === "Ulm" && .home.size === 3"#).len(), 101);
    assert_eq!(found(&server, ".home.since === 1900 && .others[0].size === 4"), ["7"]);
}

#[test]
fn what_is_referred_to_is_not_deleted() {
    let server = start();
    assert_eq!(send(&server, "PUT", "/records/person/a", &ann()).status, 201);
    let two = place(&[json!({ "name": "since", "type": "long", "default": 0 })]);
    assert_eq!(send(&server, "PUT", "/schemas/place", &two).status, 200);
    let none = Value::Null;
    let refused = |method: &str, path: &str| {
        let reply = send(&server, method, path, &none);
        if path.starts_with("/subjects") {
            assert_eq!((reply.status, &reply.json()["error_code"]), (422, &json!(42206)), "{path}: {}", reply.text());
        } else {
            assert_problem(&reply, 409, "type-in-use");
        }
        for word in ["person", "refers to it"] {
            assert!(reply.text().contains(word) || path.contains("country"), "{path}: {}", reply.text());
        }
    };
    let before = (server.get("/schemas"), server.get("/subjects/place/versions"));
    for (method, path) in [
        ("DELETE", "/schemas/place"),
        ("DELETE", "/schemas/place?force=true"),
        ("GET", "/delschema/place"),
        ("GET", "/delschema/place?force=true"),
        ("DELETE", "/subjects/place/versions/1"),
        ("DELETE", "/subjects/country/versions/1"),
        ("DELETE", "/subjects/country"),
    ] {
        refused(method, path);
    }
    assert_eq!((server.get("/schemas"), server.get("/subjects/place/versions")), before);
    assert_eq!(server.get("/records/person/a"), ann());
    // Nothing refers to the second version.
    assert_eq!(send(&server, "DELETE", "/subjects/place/versions/2", &none).status, 200);
    let late = send(&server, "PUT", "/schemas/person", &person(2));
    assert_problem(&late, 422, "invalid-schema");
    assert_eq!(server.get("/schemas/person")["version"], 1);

    // Step by step all of it is deleted, in the order of its use.
    assert_eq!(send(&server, "DELETE", "/records/person/a", &none).status, 204);
    assert_eq!(send(&server, "DELETE", "/schemas/person", &none).status, 204);
    assert_eq!(send(&server, "DELETE", "/schemas/place", &none).status, 204);
    assert_eq!(send(&server, "DELETE", "/subjects/country", &none).status, 200);
    // A softly deleted schema is read by its id, and so is what it refers to.
    refused("DELETE", "/subjects/place?permanent=true");
    for subject in ["person", "place", "country"] {
        assert_eq!(send(&server, "DELETE", &format!("/subjects/{subject}?permanent=true"), &none).status, 200);
    }
    assert_eq!(server.get("/subjects?deleted=true"), json!([]));
}
