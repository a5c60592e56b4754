//! A refused request has an error of its own, which says what to do, and it changes nothing: not the records and
//! their tags, not the schema, not what indexes find, and not what watchers and triggers are told.

use millrace_tests::{Reply, Server, ServerOptions, assert_problem, wait_until};
use serde_json::{Value, json};

fn fields(fields: &Value) -> Value {
    json!({ "type": "record", "name": "Item", "fields": fields })
}

fn item_schema() -> Value {
    fields(&json!([
        { "name": "name", "type": "string", "default": "" },
        { "name": "count", "type": "int", "default": 0 },
        { "name": "tags", "type": { "type": "array", "items": "string" }, "default": [] },
        { "name": "size", "type": ["null", "long"], "default": null },
        { "name": "box", "type": { "type": "record", "name": "Box", "fields": [{ "name": "wide", "type": "int" }] } },
    ]))
}

/// The name "ab", count 3, the tag "x", no size, a box 5 wide.
const BINARY: &[u8] = b"\x04ab\x06\x02\x02x\x00\x00\x0a";

/// A node with a few records that are indexed and watched. A trigger counts their changes.
struct Node {
    server: Server,
    /// A tag that no record has any more.
    stale: String,
}

impl Node {
    fn start() -> Self {
        let server = Server::start(ServerOptions::examples(&[]));
        let node = Self { server, stale: String::new() };
        let schema = json!({ "type": "record", "name": "Log", "fields": [{ "name": "n", "type": "int" }] });
        assert_eq!(node.json("PUT", "/schemas/log", &json!({ "schema": schema, "create": "touch" })).status, 201);
        let count = "return ctx.record('log', ctx.key).patch([{ op: 'increment', path: '.n', value: 1 }]);";
        let indexes = ["name", "count"].map(|name| json!({ "name": name, "path": format!(".{name}") }));
        let triggers = json!([{ "name": "counts", "path": ".", "source": count }]);
        let settings = json!({ "schema": item_schema(), "changes": {}, "triggers": triggers, "indexes": indexes });
        assert_eq!(node.json("PUT", "/schemas/item", &settings).status, 201);
        for (id, count) in [("a", 1), ("b", 2), ("c", 3)] {
            let body = json!({ "name": id, "count": count, "tags": ["x"] });
            assert_eq!(node.json("PUT", &format!("/records/item/{id}"), &body).status, 201);
        }
        let tag = |reply: Reply| reply.header("etag").expect("a tag").to_owned();
        let stale = tag(node.server.request("GET", "/records/item/a", &[], b""));
        let keyed = node.send(
            "PATCH",
            "/records/item/a",
            &["Idempotency-Key: used"],
            br#"[{"op":"set","path":".count","value":7}]"#,
        );
        assert_eq!(keyed.status, 200, "{}", keyed.text());
        wait_until("the triggers have run", || {
            node.counted() == [("a", 2), ("b", 1), ("c", 1)].map(|(id, n)| (id.into(), n))
        });
        Self { stale, ..node }
    }

    fn send(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Reply {
        self.server.request(method, path, headers, body)
    }

    fn json(&self, method: &str, path: &str, body: &Value) -> Reply {
        self.send(method, path, &[], body.to_string().as_bytes())
    }

    /// How often each record has changed, as far as the trigger has been told.
    fn counted(&self) -> Vec<(String, u64)> {
        let page = self.server.get("/records/log");
        let records = page["records"].as_array().expect("records").iter();
        records
            .map(|one| (one["id"].as_str().expect("an id").to_owned(), one["record"]["n"].as_u64().expect("n")))
            .collect()
    }

    /// Everything that a client can see.
    fn state(&self) -> Vec<Value> {
        let record = self.send("GET", "/records/item/a", &[], b"");
        let (tag, expires) = (record.header("etag").map(str::to_owned), record.header("millrace-expires"));
        let mut state = vec![json!([record.json(), tag, expires, record.header("millrace-schema-id")])];
        for query in ["order=.count", "order=-.name", "where=.count%3E1%26%26.count%3C9", "where=.name%3D%3D%3D%22a%22"]
        {
            let plan = self.server.get(&format!("/records/item?explain=true&{query}"));
            assert_eq!(plan["plan"], "index", "{query}: {plan}");
            state.push(self.server.get(&format!("/records/item?{query}")));
        }
        for path in [
            "/schemas",
            "/schemas/item",
            "/subjects?deleted=true",
            "/subjects/item/versions",
            "/config",
            "/records/item",
            "/records/item/changes",
            "/dead-letters",
        ] {
            state.push(self.server.get(path));
        }
        state.push(json!(self.counted()));
        state
    }

    /// Each request is refused, and nothing of it is visible.
    fn refuses(&self, mistakes: Vec<Mistake>) {
        let before = self.state();
        for Mistake { request, headers, body, status, code } in mistakes {
            let (method, path) = request.split_once(' ').expect("a method and a path");
            let reply = self.send(method, path, &headers, &body);
            if path.starts_with("/subjects") {
                assert_eq!(
                    (reply.status, reply.json()["error_code"].to_string()),
                    (status, code.to_owned()),
                    "{}",
                    reply.text()
                );
            } else {
                assert_problem(&reply, status, code);
            }
            let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
            for (before, after) in before.iter().zip(self.state()) {
                assert_eq!(*before, after, "after {request} {headers:?} {shown}");
            }
        }
        // The next request is the next change, and the only one that the trigger is told of.
        let told = before.last().expect("what the trigger counted")[0][1].as_u64();
        assert_eq!(self.json("PUT", "/records/item/a", &json!({ "name": "next" })).status, 200);
        wait_until("the trigger has run", || self.counted()[0].1 > told.unwrap_or_default());
        assert_eq!(Some(self.counted()[0].1), told.map(|told| told + 1));
        let sequences = |page: &Value| -> Vec<u64> {
            let changes = page["changes"].as_array().expect("changes").iter();
            changes.filter(|change| change["id"] == "a").filter_map(|change| change["sequence"].as_u64()).collect()
        };
        let told = sequences(&self.server.get("/records/item/changes"));
        assert_eq!(told, (1..=told.len() as u64).collect::<Vec<_>>(), "a gap where something was refused");
    }
}

struct Mistake {
    request: &'static str,
    headers: Vec<&'static str>,
    body: Vec<u8>,
    status: u16,
    code: &'static str,
}

fn mistake(request: &'static str, body: impl Into<Vec<u8>>, status: u16, code: &'static str) -> Mistake {
    Mistake { request, headers: Vec::new(), body: body.into(), status, code }
}

fn json_mistake(request: &'static str, body: &Value, status: u16, code: &'static str) -> Mistake {
    mistake(request, body.to_string(), status, code)
}

fn with(header: &'static str, mistake: Mistake) -> Mistake {
    Mistake { headers: vec![header], ..mistake }
}

#[test]
fn a_record_that_does_not_fit_changes_nothing() {
    const PUT: &str = "PUT /records/item/a";
    let node = Node::start();
    let mut mistakes: Vec<Mistake> = [
        (json!({ "name": "x", "height": 1 }), 422, "unknown-field"),
        (json!({ "box": { "high": 1 } }), 422, "unknown-field"),
        (json!({ "name": 7 }), 422, "wrong-type"),
        (json!({ "name": "x", "count": 3_000_000_000_u64 }), 422, "wrong-type"),
        (json!({ "name": "x".repeat((1 << 20) - 40) }), 413, "too-large"),
        (json!({ "name": "x".repeat(2 << 20) }), 413, "too-large"),
        (json!({ "tags": vec!["x"; 700_000] }), 413, "too-large"),
        (json!({ "name": "x".repeat(5 << 20) }), 413, "too-large"),
    ]
    .iter()
    .map(|(body, status, code)| json_mistake(PUT, body, *status, code))
    .collect();
    mistakes.extend([
        mistake(PUT, "{\"name\"", 400, "invalid-input"),
        mistake(PUT, r#"{"count":1,"count":2}"#, 422, "wrong-type"),
        with("Content-Type: application/avro+json", mistake(PUT, r#"{"size":5}"#, 422, "wrong-type")),
        with("Content-Type: text/xml", mistake(PUT, "<a/>", 415, "unsupported-media-type")),
        with("If-Match: \"0000000000000000\"", mistake(PUT, "{}", 412, "precondition-failed")),
        with("If-None-Match: *", mistake(PUT, "{}", 412, "precondition-failed")),
        with("Millrace-TTL: soon", mistake(PUT, "{}", 400, "bad-request")),
        with("Idempotency-Key: used", mistake(PUT, "{}", 422, "idempotency-mismatch")),
        mistake("PUT /records/item/none", r#"{"name":7}"#, 422, "wrong-type"),
        with("If-Match: *", mistake("PUT /records/item/none", "{}", 412, "precondition-failed")),
        mistake("PUT /records/nothing/a", "{}", 404, "unknown-type"),
        mistake("PUT /records/item/a?prity=1", "{}", 400, "bad-request"),
        mistake("DELETE /records/item/none", "", 404, "unknown-record"),
        with("If-Match: \"0000000000000000\"", mistake("DELETE /records/item/a", "", 412, "precondition-failed")),
        mistake("POST /item/put/a", r#"{"height":1}"#, 422, "unknown-field"),
        mistake("POST /item/put/a/count", "\"x\"", 422, "wrong-type"),
    ]);
    node.refuses(mistakes);
    let stale = format!("If-Match: {}", node.stale);
    assert_problem(&node.send("PUT", "/records/item/a", &[&stale], b"{}"), 412, "precondition-failed");
}

#[test]
fn bytes_that_are_no_record_change_nothing() {
    let node = Node::start();
    // Lengths as Avro writes them: twice the number, seven bits a byte.
    let named = |length: usize| {
        let mut zigzag = 2 * length;
        let mut bytes = Vec::new();
        while zigzag >= 0x80 {
            bytes.push(zigzag as u8 | 0x80);
            zigzag >>= 7;
        }
        bytes.push(zigzag as u8);
        bytes.extend(std::iter::repeat_n(b'x', length));
        bytes.extend(&BINARY[3..]);
        bytes
    };
    // 1 MiB, less the bytes that stand before the stored value. Three bytes are the name's length.
    let longest = (1 << 20) - 64 - 3 - (BINARY.len() - 3);
    let binary = |body: &[u8], status, code| {
        with("Content-Type: avro/binary", mistake("PUT /records/item/a", body, status, code))
    };
    let mut mistakes = vec![
        binary(b"", 422, "wrong-type"),
        binary(&BINARY[..BINARY.len() - 1], 422, "wrong-type"),
        binary(&[BINARY, b"\x00"].concat(), 422, "wrong-type"),
        binary(b"\x02\xff\x06\x00\x00\x0a", 422, "wrong-type"),
        binary(&named(longest + 1), 413, "too-large"),
        binary(&named(1 << 20), 413, "too-large"),
        binary(&named(3 << 20), 413, "too-large"),
        binary(&named(5 << 20), 413, "too-large"),
    ];
    for (header, status, code) in [
        ("Millrace-Schema-Id: 4000000000", 404, "unknown-schema"),
        ("Millrace-Schema-Id: 1", 404, "unknown-schema"),
        ("Millrace-Schema-Id: latest", 400, "bad-request"),
    ] {
        let mut mistake = binary(BINARY, status, code);
        mistake.headers.push(header);
        mistakes.push(mistake);
    }
    node.refuses(mistakes);
    let put = |body: &[u8]| node.send("PUT", "/records/item/a", &["Content-Type: avro/binary"], body).status;
    assert_eq!((put(BINARY), put(&named(longest))), (200, 200), "what the others are but for their mistakes");
}

#[test]
fn a_patch_happens_whole_or_not_at_all() {
    const PATCH: &str = "PATCH /records/item/a";
    let node = Node::start();
    let long = "x".repeat(600_000);
    let mut mistakes: Vec<Mistake> = [
        (json!({ "op": "test", "path": ".name", "value": "nut" }), 409, "test-failed"),
        (json!({ "op": "set", "path": ".count", "value": "x" }), 422, "wrong-type"),
        (json!({ "op": "set", "path": ".box", "value": { "high": 1 } }), 422, "unknown-field"),
        (json!({ "op": "set", "path": ".height", "value": 1 }), 404, "no-match"),
        (json!({ "op": "set", "path": ".tags[9]", "value": "x" }), 404, "no-match"),
        (json!({ "op": "set", "path": ".tags[", "value": "x" }), 400, "invalid-path"),
        (json!({ "op": "set", "path": ".count{. == $x}", "value": 1 }), 400, "invalid-path"),
        (json!({ "op": "increment", "path": ".count", "value": 2_147_483_647 }), 422, "wrong-type"),
        (json!({ "op": "delete", "path": ".count" }), 422, "wrong-type"),
        (json!({ "op": "explode", "path": ".count" }), 400, "bad-request"),
        (json!({ "op": "set", "path": ".name", "value": "x".repeat((1 << 20) - 40) }), 413, "too-large"),
        (json!({ "op": "set", "path": ".name", "value": "x".repeat(2 << 20) }), 413, "too-large"),
        (json!({ "op": "set", "path": ".name", "value": "x".repeat(5 << 20) }), 413, "too-large"),
        (json!({ "op": "insert-all", "path": ".tags", "value": [long, long] }), 413, "too-large"),
    ]
    .iter()
    .map(|(last, status, code)| {
        let first = json!({ "op": "increment", "path": ".count", "value": 1 });
        json_mistake(PATCH, &json!([first, last]), *status, code)
    })
    .collect();
    // Each of them fits alone.
    let grown = json!([
        { "op": "set", "path": ".name", "value": long },
        { "op": "insert", "path": ".tags", "value": long },
    ]);
    let one = json!({ "op": "increment", "path": ".count", "value": 1 });
    mistakes.extend([
        json_mistake(PATCH, &grown, 413, "too-large"),
        json_mistake(PATCH, &json!(vec![&one; 1_001]), 400, "bad-request"),
        json_mistake(PATCH, &json!([]), 400, "bad-request"),
        json_mistake(PATCH, &json!({ "count": 9 }), 400, "bad-request"),
        json_mistake("PATCH /records/item/none", &json!([one]), 404, "unknown-record"),
        with("Content-Type: text/plain", json_mistake(PATCH, &json!([one]), 415, "unsupported-media-type")),
        with("If-Match: \"0000000000000000\"", json_mistake(PATCH, &json!([one]), 412, "precondition-failed")),
        mistake("POST /item/update/a", ".count\n\"x\"", 422, "wrong-type"),
        mistake("POST /item/insert/a", ".name\n1", 422, "wrong-type"),
        mistake("POST /item/delete/a", ".tags[9]", 404, "no-match"),
        mistake("POST /item/clear/a", ".tags[", 400, "invalid-path"),
    ]);
    node.refuses(mistakes);
}

#[test]
fn a_value_that_does_not_fit_is_named_with_the_path_it_is_for() {
    let node = Node::start();
    for (operation, detail) in [
        (json!({ "op": "set", "path": ".count", "value": "x" }), "the value for .count: \"x\" is not an int"),
        (json!({ "op": "set", "path": ".box.wide", "value": "x" }), "the value for .box.wide: \"x\" is not an int"),
        (
            json!({ "op": "set", "path": ".box", "value": { "wide": "x" } }),
            "the value for .box: .wide: \"x\" is not an int",
        ),
        (
            json!({ "op": "set", "path": ".box", "value": { "high": 1 } }),
            "the value for .box: there is no field \"high\"",
        ),
        (json!({ "op": "insert", "path": ".tags", "value": 7 }), "the value for .tags: 7 is not a string"),
    ] {
        let reply = node.json("PATCH", "/records/item/a", &json!([operation]));
        assert_eq!((reply.status, &reply.json()["detail"]), (422, &json!(detail)));
    }
}

#[test]
fn a_type_that_may_not_be_so_stays_as_it_is() {
    const PUT: &str = "PUT /schemas/item";
    let node = Node::start();
    let narrower = fields(&json!([{ "name": "name", "type": "string" }, { "name": "owner", "type": "string" }]));
    let refused = node.json("PUT", "/schemas/item", &json!({ "schema": narrower }));
    assert!(refused.json()["detail"].as_str().is_some_and(|text| text.contains("owner")), "{}", refused.text());
    // The rest of the settings and a valid schema come with it. None of that is taken either.
    let mut wider = item_schema();
    wider["fields"].as_array_mut().expect("fields").push(json!({ "name": "new", "type": "int", "default": 0 }));
    let rest = json!({
        "schema": wider, "compatibility": "FULL_TRANSITIVE", "create": "touch", "ttl_ms": 60_000, "changes": null,
        "indexes": [], "triggers": [],
    });
    let settings = |wrong: Value| {
        let mut settings = rest.clone();
        settings.as_object_mut().expect("an object").extend(wrong.as_object().expect("an object").clone());
        settings
    };
    let mut mistakes: Vec<Mistake> = [
        (json!({ "schema": narrower }), 409, "incompatible-schema"),
        (json!({ "schema": { "type": "recrod" } }), 422, "invalid-schema"),
        (json!({ "schema": "int" }), 409, "incompatible-schema"),
        (json!({ "compatibility": "SOME" }), 400, "bad-request"),
        (json!({ "create": "maybe" }), 400, "bad-request"),
        (json!({ "ttl_ms": -1 }), 400, "bad-request"),
        (json!({ "colour": "red" }), 400, "bad-request"),
        (json!({ "changes": { "retention": 5 } }), 400, "bad-request"),
        (json!({ "indexes": [{ "name": "size", "path": ".size[" }] }), 400, "bad-request"),
        (json!({ "indexes": [{ "name": "box", "path": ".box" }] }), 400, "bad-request"),
        (json!({ "triggers": [{ "name": "t", "path": ".", "source": "this is not (" }] }), 422, "app-refused"),
        (json!({ "triggers": [{ "name": "t", "path": ".[", "source": "" }] }), 400, "bad-request"),
    ]
    .into_iter()
    .map(|(wrong, status, code)| json_mistake(PUT, &settings(wrong), status, code))
    .collect();
    let schema = |schema: &Value| json!({ "schema": schema.to_string() });
    mistakes.extend([
        mistake(PUT, "{", 400, "invalid-input"),
        json_mistake("PUT /schemas/other", &json!({ "schema": { "type": "recrod" } }), 422, "invalid-schema"),
        mistake("PUT /schemas/it.em", item_schema().to_string(), 400, "bad-request"),
        mistake("DELETE /schemas/item", "", 409, "type-in-use"),
        mistake("GET /delschema/item", "", 409, "type-in-use"),
        mistake("DELETE /schemas/nothing", "", 404, "unknown-type"),
        mistake("GET /schemas/nothing", "", 404, "unknown-type"),
        mistake("POST /putschema/item", "{\"type\":\"recrod\"}", 422, "invalid-schema"),
        mistake("POST /item/putscript/count/t", "this is not (", 422, "app-refused"),
        mistake("GET /item/delscript/count/none", "", 404, "unknown-handler"),
        mistake("DELETE /subjects/item", "", 422, "42205"),
        mistake("DELETE /subjects/item/versions/1", "", 422, "42205"),
        json_mistake("POST /subjects/item/versions", &schema(&narrower), 409, "409"),
        json_mistake("POST /subjects/item/versions", &schema(&json!({ "type": "recrod" })), 422, "42201"),
        mistake("GET /records/item?where=.count%3E%3E1", "", 400, "invalid-path"),
    ]);
    node.refuses(mistakes);
    for id in ["a", "b", "c"] {
        assert_eq!(node.send("DELETE", &format!("/records/item/{id}"), &[], b"").status, 204);
    }
    assert_eq!(node.send("DELETE", "/schemas/item", &[], b"").status, 204);
    assert_problem(&node.send("GET", "/records/item/a", &[], b""), 404, "unknown-type");
}
