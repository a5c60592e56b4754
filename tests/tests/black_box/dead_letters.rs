//! Messages that fail too often become dead letters. They hold up nobody and survive restarts. An operator can look
//! at them, retry them and drop them, one or many at a time. The attempts take minutes; a clock that the test moves
//! makes them moments.

use std::collections::BTreeSet;
use std::time::Duration;

use millrace_tests::{
    Answer, MovedClock, Output, Outside, ReceivedRequest, Server, ServerOptions, TestApp, assert_problem, free_address,
    millrace, wait_until,
};
use serde_json::{Value, json};

/// Delivers the items it knows. The good version knows all of them.
fn mail(is_fixed: bool) -> TestApp {
    let source = format!(
        "import {{ service, query, Abort }} from 'millrace';
         export default service({{
           deliver(ctx, what) {{
             ctx.set('tried', what);
             if (what === 'refused') throw new Abort('no thanks');
             if (!{is_fixed} && what !== 'good') throw new Error(`no address for ${{what}}`);
             ctx.set('got', [...(ctx.get('got') ?? []), what]);
           }},
           forward(ctx, [to, what]) {{ ctx.send('mail', to, 'deliver', what); }},
           got: query((ctx) => ctx.get('got') ?? []),
         }});"
    );
    TestApp::with("mail.ts", &source)
}

struct Post {
    server: Server,
    clock: MovedClock,
}

impl Post {
    fn start() -> Option<Self> {
        let clock = MovedClock::new()?;
        let mut options = ServerOptions::examples(&[]);
        clock.give(&mut options);
        let server = Server::start(options);
        assert_eq!(mail(false).deploy(&server, "post").status, 201);
        Some(Self { server, clock })
    }

    fn letters(&self) -> Vec<Value> {
        self.server.dead_letters()
    }

    fn got(&self, key: &str) -> Value {
        self.server.value(&format!("mail/{key}/got"), "")
    }

    fn wait_for_letters(&mut self, count: usize) -> Vec<Value> {
        self.clock.wait_for_dead_letters(&self.server, count)
    }

    fn end(&self, method: &str, path: &str) -> u16 {
        self.server.request(method, path, &[], b"").status
    }
}

fn id(letter: &Value) -> &str {
    letter["id"].as_str().expect("an id")
}

#[test]
fn a_message_that_always_fails_is_kept_and_holds_up_nobody() {
    let Some(mut post) = Post::start() else { return };
    let invocation = post.server.send("mail/ann/deliver", "\"sent\"");
    assert_eq!(post.server.call("mail/bob/forward", r#"["ann","forwarded"]"#).status, 200);
    assert_eq!(post.server.call("mail/bob/forward", r#"["ann","good"]"#).status, 200);
    let refused = post.server.send("mail/ann/deliver", "\"refused\"");
    // The messages behind it do not wait for its attempts.
    wait_until("the good one has arrived", || post.got("ann") == json!(["good"]));
    let ended = post.server.ended(&refused);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("aborted")), "{ended}");
    assert!(post.letters().is_empty(), "{:?}", post.letters());
    wait_until("the others are counted", || post.server.metric("millrace_failed_attempts_total") > 0.0);
    let told = post.server.errors();
    assert!(!told.contains("no thanks"), "an answer is no failure: {told}");

    post.server.kill();
    post.server.restart();
    let letters = post.wait_for_letters(2);
    assert_eq!(letters.len(), 2, "{letters:#?}");
    for letter in &letters {
        assert_eq!(
            (&letter["app"], &letter["service"], &letter["key"]),
            (&json!("post"), &json!("mail"), &json!("ann"))
        );
        assert_eq!((&letter["handler"], &letter["attempts"]), (&json!("deliver"), &json!(16)), "{letter}");
        let what = letter["input"].as_str().expect("text");
        assert!(["sent", "forwarded"].contains(&what), "{letter}");
        assert_eq!(letter["error"]["code"], "function-failed");
        let detail = letter["error"]["detail"].as_str().expect("a detail");
        assert!(detail.contains(&format!("no address for {what}")), "{letter}");
    }
    let ended = post.server.get(&format!("/invocations/{invocation}"));
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("function-failed")), "{ended}");
    assert_eq!(post.got("ann"), json!(["good"]));
    let told = || post.server.errors().matches("an attempt to run a message failed").count();
    assert!((1..=32).contains(&told()), "{} lines for 32 attempts at most", told());
    let errors = post.server.errors();
    assert!(errors.contains("no address for") && !errors.contains("no thanks"), "{errors}");
    let lines = |what: &str| errors.lines().filter(|line| line.contains(what)).map(str::to_owned).collect::<Vec<_>>();
    let told = lines("an attempt to run a message failed");
    assert!(
        told.iter().all(|line| line.contains("ann")) && told.iter().any(|line| line.contains(&invocation)),
        "{told:?}"
    );
    let told = lines("went to the dead letters");
    for letter in &letters {
        assert!(told.iter().any(|line| line.contains(id(letter)) && line.contains("ann")), "{letter}: {told:?}");
    }
    wait_until("they are counted", || post.server.metric("millrace_dead_letters") == 2.0);
    // The attempts before the restart are not counted any more.
    assert!((10.0..=32.0).contains(&post.server.metric("millrace_failed_attempts_total")));
    let tried = post.server.request("GET", "/state/mail/ann/tried", &[], b"");
    assert_eq!(tried.json(), "good", "an attempt that failed has left something");
}

#[test]
fn dead_letters_are_tried_again_or_dropped_once() {
    let Some(mut post) = Post::start() else { return };
    let invocation = post.server.send("mail/ann/deliver", "\"one\"");
    for (key, what) in [("ann", "two"), ("bob", "three"), ("eve", "four")] {
        let input = json!([key, what]).to_string();
        assert_eq!(post.server.call("mail/clerk/forward", &input).status, 200);
    }
    let letters = post.wait_for_letters(4);
    // Page by page they are the same.
    let (mut paged, mut after) = (Vec::new(), String::new());
    loop {
        let page = post.server.get(&format!("/dead-letters?limit=1{after}"));
        paged.extend(page["dead_letters"].as_array().expect("a list").iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(paged, letters);
    for after in ["0000.zz", "0000.0", "what"] {
        assert_problem(
            &post.server.request("GET", &format!("/dead-letters?after={after}"), &[], b""),
            400,
            "bad-request",
        );
    }
    post.server.kill();
    post.server.restart();
    assert_eq!(post.letters(), letters, "after a restart");

    let of = |what: &str| letters.iter().find(|letter| letter["input"] == what).map(id).expect("it is dead");
    // Without a correction it becomes a dead letter again, after all attempts.
    assert_eq!(post.end("POST", &format!("/dead-letters/{}/retry", of("three"))), 202);
    assert_eq!(post.letters().len(), 3);
    let again = post.wait_for_letters(4);
    let three = again.iter().find(|letter| letter["input"] == "three").expect("dead again");
    assert_eq!(three["attempts"], 16);

    assert_eq!(post.end("DELETE", &format!("/dead-letters/{}", of("four"))), 204);
    assert_eq!(mail(true).deploy(&post.server, "post").status, 200);
    for what in ["one", "two"] {
        assert_eq!(post.end("POST", &format!("/dead-letters/{}/retry", of(what))), 202);
    }
    assert_eq!(post.end("POST", &format!("/dead-letters/{}/retry", id(three))), 202);
    wait_until("all are delivered", || {
        post.got("bob") == json!(["three"]) && post.got("ann").as_array().is_some_and(|got| got.len() == 2)
    });
    assert_eq!(post.server.ended(&invocation)["status"], "succeeded");
    assert!(post.letters().is_empty());
    for (method, path) in [("POST", "/retry"), ("DELETE", "")] {
        let path = format!("/dead-letters/{}{path}", of("one"));
        assert_problem(&post.server.request(method, &path, &[], b""), 404, "unknown-invocation");
    }
    post.server.kill();
    post.server.restart();
    assert_eq!(
        (post.got("ann").as_array().map(Vec::len), post.got("bob"), post.got("eve")),
        (Some(2), json!(["three"]), json!([]))
    );
    assert!(post.letters().is_empty());
}

#[test]
fn outcomes_of_keys_are_kept_as_long_as_they_are_promised_and_not_for_ever() {
    let Some(mut clock) = MovedClock::new() else { return };
    let mut options = ServerOptions::examples(&["counter"]);
    options.set("--retention-hours", "2");
    clock.give(&mut options);
    let mut server = Server::start(options);
    let add = |server: &Server| server.request("POST", "/call/counter/k/add", &["Idempotency-Key: once"], b"1").json();
    assert_eq!(add(&server), 1);
    clock.forward(Duration::from_secs(119 * 60));
    assert_eq!(add(&server), 1);
    server.kill();
    server.restart();
    assert_eq!(add(&server), 1);
    clock.forward(Duration::from_secs(2 * 60));
    wait_until("the key is forgotten", || add(&server) == 2);
}

/// Compensations that are refused become dead letters at once, again and again, until somebody mends the app.
fn undoing(service: &str, is_fixed: bool) -> TestApp {
    let source = format!(
        "import {{ service, query, workflow, Abort }} from 'millrace';
         const undo = (ctx) => {{
           if (!{is_fixed}) throw new Abort('not yet');
           ctx.set('undone', (ctx.get('undone') ?? 0) + 1);
         }};
         export default service({{
           fail: workflow(async (ctx, [handler, count]) => {{
             for (let i = 0; i < count; i++) ctx.compensate('{service}', `${{ctx.key}}-${{i}}`, handler, null);
             throw new Abort('in vain');
           }}),
           refund: undo,
           release: undo,
           undone: query((ctx) => ctx.get('undone') ?? 0),
         }});"
    );
    TestApp::with(&format!("{service}.ts"), &source)
}

/// Makes dead letters to `count` keys of a service: `{key}-0` and so on.
fn fail(server: &Server, service: &str, key: &str, handler: &str, count: usize) {
    let id = server.send(&format!("{service}/{key}/fail"), &json!([handler, count]).to_string());
    let told = server.ended(&id)["error"]["detail"].to_string();
    assert!(told.contains(&format!("in vain ({count} of its compensations failed")), "{told}");
}

fn command(url: &str, arguments: &[&str]) -> Output {
    millrace(&[&["dead-letters", "--url", url], arguments].concat())
}

/// Runs a command that has to succeed. Returns its output.
fn done(server: &Server, arguments: &[&str]) -> String {
    let output = command(&server.url(), arguments);
    assert_eq!((output.code, output.err.as_str()), (Some(0), ""), "{arguments:?}: {}", output.out);
    output.out
}

#[test]
fn all_are_retried_though_they_come_back_meanwhile() {
    let server = Server::start(ServerOptions::examples(&[]));
    assert_eq!(undoing("room", false).deploy(&server, "trips").status, 201);
    // More than a page holds, so that the next page is read while the first letters could come back.
    let (workflows, each) = (11, 100);
    let count = workflows * each;
    for workflow in 0..workflows {
        fail(&server, "room", &format!("w{workflow}"), "release", each);
    }
    // The metric may lag behind. A retried letter is not in the list any more.
    let waiting = || {
        let first = server.get("/dead-letters?limit=1000");
        let next = first["next"].as_str().map(|next| server.get(&format!("/dead-letters?limit=1000&after={next}")));
        [Some(first), next]
            .iter()
            .flatten()
            .filter_map(|page| page["dead_letters"].as_array())
            .map(Vec::len)
            .sum::<usize>()
    };
    assert_eq!(waiting(), count);
    let retried = format!("{count} will be tried again, 0 gone meanwhile, 0 failed\n");
    assert_eq!(done(&server, &["--retry-all"]), retried);
    wait_until("all of them are back", || waiting() == count);

    assert_eq!(undoing("room", true).deploy(&server, "trips").status, 200);
    assert_eq!(done(&server, &["--retry-all"]), retried);
    for key in (0..workflows).flat_map(|workflow| (0..each).map(move |i| format!("w{workflow}-{i}"))) {
        let undone = || server.value(&format!("room/{key}/undone"), "");
        wait_until(&format!("{key} is undone"), || undone() != 0);
        assert_eq!(undone(), 1, "{key}");
    }
    assert_eq!(waiting(), 0);
    assert_eq!(done(&server, &["--retry-all"]), "0 will be tried again, 0 gone meanwhile, 0 failed\n");
}

#[test]
fn some_are_listed_retried_or_dropped_by_app_service_and_handler() {
    let server = Server::start(ServerOptions::examples(&[]));
    for (app, service) in [("trips", "room"), ("shop", "mail"), ("shop2", "fax")] {
        assert_eq!(undoing(service, false).deploy(&server, app).status, 201);
        fail(&server, service, "a", "refund", 2);
        fail(&server, service, "b", "release", 3);
    }
    let left = || {
        let member = |letter: &Value, name: &str| letter[name].as_str().expect("text").to_owned();
        let letters = server.dead_letters();
        let shown = letters.iter().map(|letter| format!("{}/{}", member(letter, "service"), member(letter, "handler")));
        let mut shown = shown.collect::<Vec<_>>();
        shown.sort();
        shown
    };
    wait_until("all of them wait", || left().len() == 15);
    let all = left();
    // A filtered list is never empty while matching letters are left, however short its pages are.
    let page = command(&server.url(), &["--service", "fax", "--handler", "refund", "--limit", "1", "--json"]);
    let page: Value = serde_json::from_str(&page.out).expect("JSON");
    assert_eq!(
        (&page["dead_letters"][0]["service"], &page["dead_letters"][0]["handler"]),
        (&json!("fax"), &json!("refund"))
    );
    assert_eq!(done(&server, &["--app", "none", "--limit", "1"]), "no dead letters\n");

    assert_eq!(undoing("room", true).deploy(&server, "trips").status, 200);
    let one = done(&server, &["--retry-all", "--service", "room", "--handler", "refund"]);
    assert_eq!(one, "2 will be tried again, 0 gone meanwhile, 0 failed\n");
    wait_until("they are undone", || {
        server.value("room/a-0/undone", "") == 1 && server.value("room/a-1/undone", "") == 1
    });
    let without = |gone: &[&str]| all.iter().filter(|one| !gone.contains(&one.as_str())).cloned().collect::<Vec<_>>();
    assert_eq!(left(), without(&["room/refund"]));

    let shop = done(&server, &["--drop-all", "--app", "shop"]);
    assert_eq!(shop, "5 dropped, 0 gone meanwhile, 0 failed\n");
    assert_eq!(left(), without(&["room/refund", "mail/refund", "mail/release"]));

    let careless = command(&server.url(), &["--drop-all"]);
    assert!(careless.code == Some(2) && careless.err.contains("--yes"), "{careless:?}");
    assert_eq!(left().len(), 8);
    assert_eq!(done(&server, &["--drop-all", "--yes"]), "8 dropped, 0 gone meanwhile, 0 failed\n");
    assert!(left().is_empty());
}

/// A page of a list: these letters, which differ only in their ids.
fn list(ids: &[&str], next: Option<&str>) -> Answer {
    let letter = |id: &&str| json!({"id": id, "app": "a", "service": "s", "key": "k", "handler": "h", "attempts": 16});
    let letters: Vec<Value> = ids.iter().map(letter).collect();
    Answer::json(200, json!({"dead_letters": letters, "next": next}).to_string())
}

fn problem(status: u16, code: &str) -> Answer {
    Answer::json(status.into(), json!({"status": status, "code": code, "detail": format!("said {code}")}).to_string())
}

/// Two pages with `repeated` on both, like a letter that came back while the pages were read.
fn listed(asked: &ReceivedRequest) -> Option<Answer> {
    match (asked.method.as_str(), asked.path.contains("after=second")) {
        ("GET", false) => Some(list(&["a", "bad", "repeated"], Some("second"))),
        ("GET", true) => Some(list(&["repeated", "gone", "worse", "z"], None)),
        _ => None,
    }
}

#[test]
fn each_is_asked_for_once_and_what_became_of_it_is_told() {
    for (arguments, method, suffix, what) in [
        (&["--retry-all"][..], "POST", "/retry", "will be tried again"),
        (&["--drop-all", "--yes"], "DELETE", "", "dropped"),
    ] {
        let server = Outside::answering(free_address(), |asked, _| {
            listed(asked).or_else(|| match asked.path.split('/').nth(2) {
                Some("gone") => Some(problem(404, "unknown-invocation")),
                Some("bad") => Some(problem(503, "read-only")),
                Some("worse") => Some(problem(500, "internal")),
                _ => Some(Answer::json(202, String::new())),
            })
        });
        let output = command(&server.url(), arguments);
        assert_eq!(output.code, Some(1), "{output:?}");
        assert_eq!(output.out, format!("3 {what}, 1 gone meanwhile, 2 failed\n"));
        for needed in ["bad: read-only (503): said read-only\n", "worse: internal (500): said internal\n"] {
            assert!(output.err.contains(needed), "{}", output.err);
        }
        assert!(!output.err.contains("gone"), "{}", output.err);

        let asked = server.asked();
        let (lists, others) = asked.split_at(2);
        assert!(lists.iter().all(|one| one.method == "GET"), "one was touched before all were listed: {asked:?}");
        let paths: Vec<&str> = others.iter().map(|one| one.path.as_str()).collect();
        let wanted = ["a", "bad", "repeated", "gone", "worse", "z"].map(|id| format!("/dead-letters/{id}{suffix}"));
        assert_eq!(paths.len(), wanted.len(), "{paths:?}");
        assert_eq!(paths.into_iter().collect::<BTreeSet<_>>(), wanted.iter().map(String::as_str).collect());
        assert!(others.iter().all(|one| one.method == method), "{asked:?}");
    }
}

#[test]
fn a_node_that_gives_no_answer_is_asked_no_more() {
    // Nobody answers the second request for a letter. It may have taken effect, so it is not repeated.
    let server = Outside::answering(free_address(), |asked, _| {
        listed(asked).or_else(|| asked.path.contains("/a/").then(|| Answer::json(202, String::new())))
    });
    let output = command(&server.url(), &["--retry-all"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert_eq!(output.out, "1 will be tried again, 0 gone meanwhile, 1 failed, 4 not asked for\n");
    assert!(output.err.contains("bad: the connection broke"), "{}", output.err);
    assert_eq!(server.asked().len(), 4, "{:?}", server.asked());

    // If not all letters can be listed, none is touched.
    let server = Outside::answering(free_address(), |asked, _| match asked.path.contains("after") {
        false => listed(asked),
        true => Some(problem(503, "overloaded")),
    });
    let output = command(&server.url(), &["--drop-all", "--service", "s"]);
    assert_eq!((output.code, output.out.as_str()), (Some(1), ""), "{output:?}");
    assert!(output.err.contains("said overloaded"), "{}", output.err);
    assert!(server.asked().iter().all(|one| one.method == "GET"), "{:?}", server.asked());
}
