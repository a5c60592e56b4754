//! Triggers that run after the commit and fail, whatever they fail with, are tried again and then wait among
//! the dead letters; those of triggers that are gone are over. A clock that the test moves makes the
//! minutes between the attempts moments.

use millrace_tests::{MovedClock, Reply, Server, ServerOptions, TestApp, assert_problem, wait_until};
use serde_json::{Value, json};

struct Node {
    server: Server,
    clock: MovedClock,
}

impl Node {
    fn start() -> Option<Self> {
        let clock = MovedClock::new()?;
        let mut options = ServerOptions::examples(&[]);
        clock.give(&mut options);
        Some(Self { server: Server::start(options), clock })
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Reply {
        self.server.request(method, path, &[], body.to_string().as_bytes())
    }

    /// Makes a type of one number, or changes its triggers.
    fn put_type(&self, name: &str, triggers: &Value) {
        let fields = json!([{ "name": "count", "type": "long", "default": 0 }]);
        let schema = json!({ "type": "record", "name": "Item", "fields": fields });
        let settings = json!({ "schema": schema, "create": "touch", "triggers": triggers });
        let reply = self.send("PUT", &format!("/schemas/{name}"), &settings);
        assert!([200, 201].contains(&reply.status), "{name}: {}", reply.text());
    }

    fn add(&self, record: &str, number: i64) -> Reply {
        self.send(
            "PATCH",
            &format!("/records/{record}"),
            &json!([{ "op": "increment", "path": ".count", "value": number }]),
        )
    }

    fn count(&self, record: &str) -> Value {
        self.server.get(&format!("/records/{record}"))["count"].clone()
    }

    fn letters(&self) -> Vec<Value> {
        self.server.dead_letters()
    }

    fn wait_for_letters(&mut self, count: usize) -> Vec<Value> {
        self.clock.wait_for_dead_letters(&self.server, count)
    }

    fn retry(&self, letter: &Value) {
        let id = letter["id"].as_str().expect("an id");
        assert_eq!(self.send("POST", &format!("/dead-letters/{id}/retry"), &Value::Null).status, 202);
    }
}

fn trigger(name: &str, when: &str, source: &str) -> Value {
    json!({ "name": name, "path": ".count", "when": when, "source": source })
}

/// The letter of a trigger, which names it and its type, and has had all its attempts.
fn letter_of<'a>(letters: &'a [Value], type_name: &str, name: &str) -> &'a Value {
    let of = |letter: &&Value| letter["service"].as_str() == Some(&format!("{type_name}--triggers"));
    let letter = letters.iter().find(of).unwrap_or_else(|| panic!("none of {type_name}: {letters:#?}"));
    assert_eq!((&letter["handler"], &letter["attempts"]), (&json!(format!("_{name}")), &json!(16)), "{letter}");
    let detail = letter["error"]["detail"].as_str().expect("a detail");
    assert!(detail.starts_with(&format!("trigger {name:?} of the type {type_name:?}: ")), "{detail}");
    letter
}

const PATCH_FLOOR: &str = "ctx.record('floor', ctx.key).patch([{ op: 'increment', path: '.count', value: -1 }])";

#[test]
fn one_that_aborts_after_the_commit_is_tried_again_and_not_forgotten() {
    let Some(mut node) = Node::start() else { return };
    let guard = "import { Abort } from 'millrace';
        export default (ctx, { record }) => { if (record?.count < 0) throw new Abort('too low'); };";
    node.put_type("floor", &json!([trigger("guard", "before", guard)]));
    let source =
        |body: &str| format!("import {{ Abort }} from 'millrace';\nexport default async (ctx) => {{ {body} }};");
    for (name, body) in [
        ("direct", "throw new Abort('never');".to_owned()),
        ("nested", format!("await {PATCH_FLOOR};")),
        // Nobody sees what comes of it, so it fails the transaction past the trigger.
        ("loose", format!("{PATCH_FLOOR};")),
    ] {
        node.put_type(name, &json!([trigger("last", "after", &source(&body))]));
        assert_eq!(node.add(&format!("{name}/a"), 1).status, 200);
    }
    let letters = node.wait_for_letters(3);
    for (name, why) in [("direct", "never"), ("nested", "too low"), ("loose", "too low")] {
        let error = &letter_of(&letters, name, "last")["error"];
        assert_eq!(error["code"], "function-failed", "{error}");
        assert!(error["detail"].as_str().is_some_and(|detail| detail.contains(why)), "{error}");
    }
    assert_eq!(letters.len(), 3, "{letters:#?}");
    assert_eq!(node.count("floor/a"), 0);
    assert_problem(&node.add("floor/a", -1), 409, "aborted");
    // What kept them from their end is gone, and each of them has its effect, once.
    assert_eq!(node.add("floor/a", 5).status, 200);
    for name in ["nested", "loose"] {
        node.retry(letter_of(&letters, name, "last"));
    }
    wait_until("they have run", || node.count("floor/a") == 3);
    assert_eq!(node.letters().len(), 1);
}

#[test]
fn one_that_throws_becomes_a_dead_letter_and_works_once_it_is_corrected() {
    let Some(mut node) = Node::start() else { return };
    node.put_type("sum", &json!([]));
    let add = "await ctx.record('sum', 'all').patch([{ op: 'increment', path: '.count', value: record.count }]);";
    node.put_type("item", &json!([trigger("adds", "after", &format!("{add}\nthrow new Error('not today');"))]));
    for (id, number) in [("a", 1), ("b", 10)] {
        assert_eq!(node.add(&format!("item/{id}"), number).status, 200);
    }
    let letters = node.wait_for_letters(2);
    for letter in &letters {
        let error = &letter_of(std::slice::from_ref(letter), "item", "adds")["error"];
        assert_eq!(error["code"], "function-failed");
        let detail = error["detail"].as_str().expect("a detail");
        // As the author knows the place: the second line of the source.
        assert!(detail.contains("not today") && detail.contains("triggers/item/adds.js:2:"), "{detail}");
    }
    assert_eq!(node.count("sum/all"), 0, "an attempt that failed has left something");
    node.server.kill();
    node.server.restart();
    assert_eq!(node.letters(), letters, "after a restart");
    node.put_type("item", &json!([trigger("adds", "after", add)]));
    for letter in &letters {
        node.retry(letter);
    }
    wait_until("both have run", || node.count("sum/all") == 11);
    assert!(node.letters().is_empty());
    node.server.kill();
    node.server.restart();
    assert_eq!((node.count("sum/all"), node.letters()), (json!(11), Vec::new()));
}

#[test]
fn runs_of_a_trigger_that_is_gone_are_over() {
    let Some(mut node) = Node::start() else { return };
    let [fails, other] = ["fails", "other"].map(|name| trigger(name, "after", "throw new Error('no');"));
    node.put_type("one", &json!([fails]));
    node.put_type("two", &json!([fails, other]));
    node.put_type("gone", &json!([fails]));
    for name in ["one", "two", "gone"] {
        assert_eq!(node.add(&format!("{name}/a"), 1).status, 200);
    }
    wait_until("each has failed", || node.server.metric("millrace_failed_attempts_total") >= 4.0);
    node.put_type("one", &json!([]));
    node.put_type("two", &json!([other]));
    assert_eq!(node.send("DELETE", "/schemas/gone?force=true", &Value::Null).status, 204);
    let letters = node.wait_for_letters(1);
    assert_eq!(letters.len(), 1, "{letters:#?}");
    letter_of(&letters, "two", "other");
    let told = node.server.errors();
    assert!(!told.contains("unknown-handler") && !told.contains("unknown-service"), "{told}");
}

#[test]
fn errors_of_limits_name_the_trigger() {
    let server = Server::start(ServerOptions::examples(&[]));
    let fields = json!([{ "name": "count", "type": "long", "default": 0 }]);
    let schema = json!({ "type": "record", "name": "Item", "fields": fields });
    for (name, source, status, code) in [
        ("spins", "for (;;) {}", 500, "cpu-limit"),
        ("grows", "new ArrayBuffer(1 << 30);", 500, "memory-limit"),
        ("nests", "const f = () => 1 + f(); f();", 500, "stack-limit"),
    ] {
        let settings = json!({ "schema": schema, "triggers": [trigger("guard", "before", source)] });
        let made = server.request("PUT", &format!("/schemas/{name}"), &[], settings.to_string().as_bytes());
        assert_eq!(made.status, 201, "{}", made.text());
        let reply = server.request("PUT", &format!("/records/{name}/a"), &[], b"{}");
        assert_problem(&reply, status, code);
        let detail = reply.json()["detail"].as_str().expect("a detail").to_owned();
        assert!(detail.starts_with(&format!("trigger \"guard\" of the type {name:?}: ")), "{detail}");
    }
}

#[test]
fn what_a_trigger_calls_goes_with_a_veto_and_is_told_every_change() {
    let server = Server::start(ServerOptions::examples(&[]));
    let book = "import { service, query } from 'millrace';
        export default service({
          note(ctx, changes) { ctx.set('notes', [...(ctx.get('notes') ?? []), changes]); },
          notes: query((ctx) => ctx.get('notes') ?? []),
        });";
    assert_eq!(TestApp::with("book.ts", book).deploy(&server, "books").status, 201);
    let before = "import { Abort } from 'millrace';
        export default async (ctx, { record, changes }) => {
          await ctx.call('books/book', 'before', 'note', changes);
          if (record?.count > 10) throw new Abort('too many');
        };";
    let after = "export default (ctx, { changes }) => ctx.call('books/book', 'after', 'note', changes);";
    let schema = json!({ "type": "record", "name": "Item", "fields": [
        { "name": "count", "type": "long", "default": 0 },
        { "name": "tags", "type": { "type": "array", "items": "string" }, "default": [] },
    ]});
    let triggers = json!([
        { "name": "first", "path": ".", "when": "before", "source": before },
        { "name": "last", "path": ".", "when": "after", "source": after },
    ]);
    let send = |method: &str, path: &str, body: &Value| server.request(method, path, &[], body.to_string().as_bytes());
    let settings = json!({ "schema": schema, "create": "explicit", "triggers": triggers });
    assert_eq!(send("PUT", "/schemas/item", &settings).status, 201);
    let notes = |key: &str| server.value(&format!("book/{key}/notes"), "");

    assert_eq!(send("PUT", "/records/item/a", &json!({ "count": 1, "tags": ["x", "y"] })).status, 201);
    let several = json!([
        { "op": "set", "path": ".count", "value": 2 },
        { "op": "insert", "path": ".tags", "value": "z" },
    ]);
    assert_eq!(send("PATCH", "/records/item/a", &several).status, 200);
    assert_eq!(send("PATCH", "/records/item/a", &json!([{ "op": "delete", "path": ".tags[0]" }])).status, 200);
    let veto = json!([{ "op": "set", "path": ".count", "value": 11 }]);
    assert_problem(&send("PATCH", "/records/item/a", &veto), 409, "aborted");
    assert_eq!(server.get("/records/item/a"), json!({ "count": 2, "tags": ["y", "z"] }));
    // What the vetoed one called is gone with it.
    let told = json!([
        [{ "path": ".", "kind": "insert", "value": { "count": 1, "tags": ["x", "y"] } }],
        [{ "path": ".count", "kind": "set", "value": 2 }, { "path": ".tags[2]", "kind": "insert", "value": "z" }],
        [{ "path": ".tags[0]", "kind": "delete", "value": null }],
    ]);
    assert_eq!(notes("before"), told);
    wait_until("each change was told once after it", || notes("after") == told);
}
