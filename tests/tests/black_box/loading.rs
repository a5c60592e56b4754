//! Loading an app is the node's work, not a call's. `limits.cpu_ms` bounds handlers and routes. If it bounded loading
//! too, a restart with a deployed app would depend on how busy the machine is.

use millrace_tests::{Reply, Server, ServerOptions, TestApp, assert_problem, wait_until};

/// The top level makes a table, which takes some milliseconds. The calls take no time.
const SOURCE: &str = "
import { service, query } from 'millrace';
const table = Array.from({ length: 60_000 }, (_, n) => Math.sqrt(n));
export default service({ root: query((_ctx, n: number) => table[n]) });
";

#[test]
fn an_app_with_a_tight_cpu_limit_loads_at_every_start() {
    let app = TestApp::with("tight.ts", SOURCE).and("millrace.toml", "[limits]\ncpu_ms = 2\n");
    let mut server = Server::start(ServerOptions::examples(&[]));
    let reply = app.deploy(&server, "tight");
    assert_eq!(reply.status, 201, "{}", reply.text());
    for _ in 0..3 {
        server.kill();
        server.restart();
        assert_eq!(server.value("tight/k/root", "1024"), 32);
    }
}

/// Like an app that was deployed: the node finds it in its data directory when it starts.
fn keep(server: &Server, name: &str, app: &TestApp) {
    std::fs::write(server.data().join("apps").join(format!("{name}.tar")), app.tar()).expect("written");
    server.list_changed_files();
}

const QUICK: &str = "
import { service, query } from 'millrace';
export default service({ value: query(() => 1) });
";

/// Some seconds of CPU time.
const SLOW: &str = "
import { service, query } from 'millrace';
let sum = 0;
for (let n = 0; n < 250_000_000; n++) sum += n;
export default service({ value: query(() => 2) });
";

fn call(server: &Server, app: &str) -> Reply {
    server.request("POST", &format!("/apps/{app}/call/zz/k/value"), &[], b"")
}

fn one_core() -> Server {
    let mut options = ServerOptions::examples(&["counter"]);
    options.set("--cores", "1");
    Server::start(options)
}

/// An app that loaded in time when it was deployed may need a little more at a restart.
#[test]
fn an_app_that_was_accepted_may_take_longer_to_load_than_a_new_one() {
    let mut server = one_core();
    let slow = TestApp::with("zz.ts", SLOW);
    let refused = slow.deploy(&server, "slow");
    assert_problem(&refused, 422, "app-refused");
    assert!(refused.text().contains("used more than 2000 ms of CPU time"), "{}", refused.text());
    assert_eq!(TestApp::with("zz.ts", QUICK).deploy(&server, "slow").status, 201);
    assert!(server.stop());
    keep(&server, "slow", &slow);
    server.restart();
    assert_eq!(server.value("zz/k/value", ""), 2);
}

#[test]
fn an_app_that_cannot_be_loaded_any_more_keeps_no_node_from_starting() {
    let mut server = one_core();
    let app = TestApp::with("zz.ts", QUICK);
    for name in ["broken", "other"] {
        assert_eq!(app.deploy(&server, name).status, 201);
    }
    assert!(server.stop());
    keep(&server, "broken", &TestApp::with("zz.ts", "throw new Error('not today');"));
    server.restart();
    assert_eq!(server.value("counter/k/add", "1"), 1);
    assert_eq!(call(&server, "other").text(), "1");
    wait_until("the log tells of it", || server.errors().contains("not today"));
    let errors = server.errors();
    let line = errors.lines().find(|line| line.contains("not today")).expect("found above");
    for part in ["ERROR", "app=\"broken\"", "zz.ts:1", "deploy it again", "DELETE /apps/broken"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let reply = call(&server, "broken");
    assert_problem(&reply, 404, "unknown-app");
    assert!(reply.text().contains("could not be loaded when the server started: zz.ts:1"), "{}", reply.text());
    // Nobody knows which services it had.
    let reply = server.call("yy/k/value", "");
    assert_problem(&reply, 404, "unknown-service");
    assert!(reply.text().contains("not looked at: broken"), "{}", reply.text());
    assert_eq!(app.deploy(&server, "broken").status, 201);
    assert_eq!(call(&server, "broken").text(), "1");

    assert!(server.stop());
    keep(&server, "broken", &TestApp::with("zz.ts", "throw new Error('nor tomorrow');"));
    server.restart();
    let remove = || server.request("DELETE", "/apps/broken", &[], b"");
    assert_eq!(remove().status, 204);
    assert_problem(&remove(), 404, "unknown-app");
    assert!(call(&server, "broken").text().contains("no app"), "nobody wants it any more");
    assert!(server.stop());
    server.restart();
    assert_eq!(server.value("zz/k/value", ""), 1);
}

/// The operator is there to mend it.
#[test]
fn an_app_named_on_the_command_line_has_to_load() {
    let folder = tempfile::tempdir().expect("a folder");
    let app = folder.path().join("given");
    TestApp::with("zz.ts", "throw new Error('not today');").write(&app);
    let errors = Server::refuses(ServerOptions { apps: vec![app], ..ServerOptions::default() });
    assert!(errors.contains("app given: zz.ts:1") && errors.contains("not today"), "{errors}");
}
