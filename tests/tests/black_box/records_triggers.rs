//! Triggers that run in a transaction and pass a limit roll it back as a whole. Triggers that run after the commit
//! and fail are tried again, whatever the failure. Then they wait among the dead letters. Runs of triggers that are
//! gone end. A clock that the test moves makes the minutes between the attempts moments.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millrace_tests::{
    Connection, MovedClock, Reply, Server, ServerOptions, StopOnDrop, TestApp, assert_problem, wait_until,
};
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

    /// All of it on one core, so that a call that waits for the core waits for each run of a trigger.
    fn start_on_one_core() -> Option<Self> {
        let mut node = Self::start()?;
        assert!(node.server.stop());
        node.server.options().set("--cores", "1");
        node.server.restart();
        Some(node)
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

/// The dead letter of a trigger. It names the trigger and its type, and has had all its attempts.
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
        // Nobody awaits the result, so the failure ends the transaction outside the trigger.
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
    // The cause of their failure is gone, and each of them has its effect once.
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
        // The place as the author knows it: the second line of the source.
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

/// A type with one record, whose trigger writes to `other` and sends to a listener before it does more. Also
/// everything that is visible of it.
struct Guarded {
    server: Server,
}

impl Guarded {
    fn start() -> Self {
        let server = Server::start(ServerOptions::examples(&[]));
        let listener = "import { service, query } from 'millrace';
            export default service({
              tell(ctx) { ctx.set('told', (ctx.get('told') ?? 0) + 1); },
              told: query((ctx) => ctx.get('told') ?? 0),
            });";
        assert_eq!(TestApp::with("listener.ts", listener).deploy(&server, "listener").status, 201);
        let guarded = Self { server };
        for name in ["item", "other"] {
            guarded.put_type(name, &json!([]));
        }
        let add = json!([{ "op": "increment", "path": ".count", "value": 7 }]);
        assert_eq!(guarded.send("PATCH", "/records/item/a", &add).status, 200);
        guarded
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Reply {
        self.server.request(method, path, &[], body.to_string().as_bytes())
    }

    fn put_type(&self, name: &str, triggers: &Value) {
        let schema = json!({ "type": "record", "name": "Item", "fields": [{ "name": "count", "type": "long" }] });
        let indexes = json!([{ "name": "count", "path": ".count" }]);
        let settings =
            json!({ "schema": schema, "create": "touch", "changes": {}, "triggers": triggers, "indexes": indexes });
        let reply = self.send("PUT", &format!("/schemas/{name}"), &settings);
        assert!([200, 201].contains(&reply.status), "{name}: {}", reply.text());
    }

    /// The other effects of the trigger are rolled back with it.
    fn guard(&self, body: &str) {
        let source = format!(
            "const add = [{{ op: 'increment', path: '.count', value: 1 }}];
             ctx.set('runs', (ctx.get('runs') ?? 0) + 1);
             ctx.send('listener/listener', 'all', 'tell');
             {body}"
        );
        self.put_type("item", &json!([trigger("guard", "before", &source)]));
    }

    fn state(&self) -> Vec<Value> {
        let mut state = Vec::new();
        for name in ["item", "other"] {
            for path in ["?order=.count", "?order=-.count", "/changes"] {
                state.push(self.server.get(&format!("/records/{name}{path}")));
            }
        }
        let tag = self.server.request("GET", "/records/item/a", &[], b"").header("etag").map(str::to_owned);
        state.extend([json!(tag), self.server.value("listener/all/told", ""), self.server.get("/dead-letters")]);
        state
    }

    /// Changing a record, making one and deleting one end with the code, and nothing has happened.
    fn refuses(&self, status: u16, code: &str) {
        let before = self.state();
        let add = json!([{ "op": "increment", "path": ".count", "value": 1 }]);
        for (method, path, body) in [
            ("PATCH", "/records/item/a", add),
            ("PUT", "/records/item/new", json!({ "count": 2 })),
            ("DELETE", "/records/item/a", Value::Null),
        ] {
            let reply = self.send(method, path, &body);
            assert_problem(&reply, status, code);
            let detail = reply.json()["detail"].as_str().expect("a detail").to_owned();
            assert!(detail.starts_with("trigger \"guard\" of the type \"item\": "), "{detail}");
            assert_eq!(self.state(), before, "{method} {path}: {code}");
        }
    }

    /// Without the trigger all of it can be written, and nothing comes late.
    fn is_free(&self) {
        let before = self.state();
        self.put_type("item", &json!([]));
        for name in ["item", "other"] {
            for id in ["a", "b", "new"] {
                let reply = self.send("PUT", &format!("/records/{name}/{id}"), &json!({ "count": 100 }));
                assert!([200, 201].contains(&reply.status), "{}", reply.text());
            }
        }
        let sequences = |name: &str| -> Vec<Value> {
            let page = self.server.get(&format!("/records/{name}/changes"));
            let changes = page["changes"].as_array().expect("changes").iter();
            changes
                .filter(|change| change["id"] == "a")
                .map(|change| json!([change["kind"], change["record"]]))
                .collect()
        };
        let of = |kind: &str, count: i64| json!([kind, { "count": count }]);
        assert_eq!(sequences("item"), [of("create", 7), of("update", 100)]);
        assert_eq!(sequences("other"), [of("create", 100)]);
        assert_eq!(self.server.value("listener/all/told", ""), before[before.len() - 2], "told of what never was");
    }
}

#[test]
fn errors_of_limits_name_the_trigger_and_take_back_all_it_did() {
    let guarded = Guarded::start();
    for (body, status, code) in [
        ("for (;;) {}", 500, "cpu-limit"),
        ("try { for (;;) {} } catch { return; }", 500, "cpu-limit"),
        ("new ArrayBuffer(1 << 30);", 500, "memory-limit"),
        ("try { new ArrayBuffer(1 << 30); } catch { return; }", 500, "memory-limit"),
        ("const f = () => 1 + f(); f();", 500, "stack-limit"),
        ("for (let n = 0; n <= 10_000; n++) ctx.set(`n${n}`, n);", 500, "operation-limit"),
        ("for (let n = 0; n <= 1_024; n++) ctx.send('listener/listener', 'all', 'tell');", 500, "operation-limit"),
        (
            "await Promise.all([...Array(1_100).keys()].map((n) => ctx.record('other', `${n}`).get()));",
            500,
            "operation-limit",
        ),
        ("ctx.set('long', 'x'.repeat(2 << 20));", 500, "size-limit"),
        ("await new Promise(() => {});", 500, "stalled"),
        ("throw new Error('no');", 500, "function-failed"),
    ] {
        guarded.guard(&format!("await ctx.record('other', ctx.key).patch(add);\n{body}"));
        guarded.refuses(status, code);
    }
    guarded.is_free();
}

#[test]
fn triggers_in_a_circle_end_at_the_depth_of_calls_and_leave_nothing() {
    let guarded = Guarded::start();
    for circle in [
        // It writes its own record.
        "await ctx.record('item', ctx.key).patch(add);",
        // Two records of two shards.
        "await ctx.record('item', ctx.key === 'a' ? 'b' : 'a').patch(add);",
        // Further and further.
        "await ctx.record('item', ctx.key + '.').put({ count: 1 });",
        // Nobody waits for the next trigger's work.
        "ctx.record('item', ctx.key === 'a' ? 'b' : 'a').patch(add);",
        // By way of another type's trigger.
        "await ctx.record('other', ctx.key).patch(add);",
    ] {
        let back = "await ctx.record('item', ctx.key).patch([{ op: 'increment', path: '.count', value: 1 }]);";
        guarded.put_type("other", &json!([trigger("back", "before", back)]));
        guarded.guard(circle);
        let before = guarded.state();
        for (method, path, body) in [
            ("PATCH", "/records/item/a", json!([{ "op": "increment", "path": ".count", "value": 1 }])),
            ("PUT", "/records/item/new", json!({ "count": 2 })),
            ("DELETE", "/records/item/a", Value::Null),
        ] {
            let reply = guarded.send(method, path, &body);
            assert_problem(&reply, 500, "depth-limit");
            assert_eq!(guarded.state(), before, "{method} {path}: {circle}");
        }
    }
    guarded.put_type("other", &json!([]));
    guarded.is_free();
}

#[test]
fn triggers_after_the_commit_that_lead_to_each_other_end_among_the_dead_letters() {
    let node = Guarded::start();
    let other = |name: &str| {
        format!(
            "if (record) return ctx.record('{name}', ctx.key).patch([{{ op: 'increment', path: '.count', value: 1 }}]);"
        )
    };
    node.put_type("item", &json!([trigger("there", "after", &other("other"))]));
    node.put_type("other", &json!([trigger("back", "after", &other("item"))]));
    assert_eq!(node.send("PUT", "/records/item/x", &json!({ "count": 0 })).status, 201);
    let letters = || node.server.dead_letters();
    wait_until("they are stopped", || letters().len() == 1);
    let letter = letters()[0].to_string();
    assert!(letter.contains("depth-limit") && letter.contains("_there"), "{letter}");
    let count = |name: &str| node.server.get(&format!("/records/{name}/x"))["count"].clone();
    assert_eq!((count("item"), count("other")), (json!(8), json!(8)), "sixteen, by turns");
    // A write by a client begins a new chain.
    assert_eq!(node.send("PUT", "/records/other/y", &json!({ "count": 0 })).status, 201);
    wait_until("both are stopped", || letters().len() == 2);
    // A retried message begins a chain of its own, which ends where a person has broken the circle.
    node.put_type("other", &json!([]));
    let letters = letters();
    let first = letters.iter().find(|letter| letter["key"] == "x").expect("it waits");
    let id = first["id"].as_str().expect("an id");
    assert_eq!(node.send("POST", &format!("/dead-letters/{id}/retry"), &Value::Null).status, 202);
    wait_until("it has run", || count("other") == json!(9));
    assert_eq!(node.server.dead_letters().len(), 1);
}

/// Reads of the server's only core, one after the other, until the work beside them is done. Returns the longest.
fn longest_read(node: &mut Node, work: impl FnOnce(&mut Node)) -> Duration {
    let (address, is_done) = (node.server.address(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let done = StopOnDrop(&is_done);
        let reader = scope.spawn(|| {
            let mut connection = Connection::open(address).expect("the server accepts");
            let (mut longest, mut reads) = (Duration::ZERO, 0);
            while !is_done.load(Ordering::Relaxed) || reads == 0 {
                let start = Instant::now();
                let path = format!("/records/quiet/{}", reads % 40);
                assert_eq!(connection.request("GET", &path, &[], b"").expect("a reply").status, 200);
                (longest, reads) = (longest.max(start.elapsed()), reads + 1);
                std::thread::sleep(Duration::from_millis(2));
            }
            longest
        });
        work(node);
        drop(done);
        reader.join().expect("reads")
    })
}

#[test]
fn one_that_never_ends_becomes_a_dead_letter_while_others_are_served() {
    let Some(mut node) = Node::start_on_one_core() else { return };
    node.put_type("quiet", &json!([]));
    node.put_type("sum", &json!([]));
    let add = "await ctx.record('sum', 'all').patch([{ op: 'increment', path: '.count', value: record.count }]);";
    let spins = trigger("spins", "after", &format!("{add}\nfor (;;) {{}}"));
    let grows = trigger("grows", "after", &format!("{add}\nnew ArrayBuffer(1 << 30);"));
    node.put_type("item", &json!([spins, grows]));
    let mut letters = Vec::new();
    let longest = longest_read(&mut node, |node| {
        // The change has happened, whatever becomes of the triggers.
        assert_eq!(node.add("item/a", 1).status, 200);
        letters = node.wait_for_letters(2);
    });
    // Each attempt may take 100 ms of the core, and no read waits for more than a few attempts.
    assert!(longest < Duration::from_secs(3), "a read took {longest:?}");
    println!("the longest read beside endless triggers took {longest:?}");
    let of = |letters: &[Value], name: &str| {
        let found = letters.iter().find(|letter| letter["handler"] == format!("_{name}"));
        found.unwrap_or_else(|| panic!("none of {name}: {letters:#?}")).clone()
    };
    for (name, code) in [("spins", "cpu-limit"), ("grows", "memory-limit")] {
        let letter = of(&letters, name);
        assert_eq!(letter_of(std::slice::from_ref(&letter), "item", name)["error"]["code"], code);
    }
    assert_eq!((node.count("item/a"), node.count("sum/all")), (json!(1), json!(0)));

    // Retried as it is, it is there again. Dropped, it is gone. Corrected, it runs.
    node.retry(&of(&letters, "spins"));
    wait_until("it is taken up", || node.letters().len() == 1);
    let letters = node.wait_for_letters(2);
    let dropped = format!("/dead-letters/{}", of(&letters, "grows")["id"].as_str().expect("an id"));
    assert_eq!(node.send("DELETE", &dropped, &Value::Null).status, 204);
    assert_problem(&node.send("DELETE", &dropped, &Value::Null), 404, "unknown-invocation");
    assert_problem(&node.send("POST", &format!("{dropped}/retry"), &Value::Null), 404, "unknown-invocation");
    node.server.kill();
    node.server.restart();
    let kept = node.letters();
    assert_eq!((kept.len(), of(&kept, "spins")), (1, of(&letters, "spins")));
    node.put_type("item", &json!([trigger("spins", "after", add), trigger("grows", "after", add)]));
    node.retry(&kept[0]);
    wait_until("it has run", || node.count("sum/all") == 1);
    node.server.kill();
    node.server.restart();
    assert_eq!((node.letters(), node.count("sum/all")), (Vec::new(), json!(1)), "the dropped one does not run");
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
    // The calls of the vetoed trigger are rolled back with it.
    let told = json!([
        [{ "path": ".", "kind": "insert", "value": { "count": 1, "tags": ["x", "y"] } }],
        [{ "path": ".count", "kind": "set", "value": 2 }, { "path": ".tags[2]", "kind": "insert", "value": "z" }],
        [{ "path": ".tags[0]", "kind": "delete", "value": null }],
    ]);
    assert_eq!(notes("before"), told);
    wait_until("each change was told once after it", || notes("after") == told);
}
