//! Messages that fail too often become dead letters: they hold up nobody, survive restarts, and can be
//! looked at, tried again and dropped. The attempts take minutes; a clock that the test moves makes
//! them moments.

use std::time::Duration;

use millrace_tests::{MovedClock, Server, ServerOptions, TestApp, assert_problem, wait_until};
use serde_json::{Value, json};

/// Delivers what it knows how to; the good version knows everything.
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
    // Those behind it do not wait for its attempts.
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
    post.server.kill();
    post.server.restart();
    assert_eq!(post.letters(), letters, "after a restart");

    let of = |what: &str| letters.iter().find(|letter| letter["input"] == what).map(id).expect("it is dead");
    // Without a correction it dies again, after all attempts.
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
