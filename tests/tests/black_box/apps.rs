//! Apps side by side. They cannot see each other, a broken app never replaces a working one, and a replacement is
//! atomic for every caller.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;

use millrace_tests::{
    Entry, Server, ServerOptions, StopOnDrop, TestApp, assert_problem, millrace, repository, tar, wait_until,
};
use serde_json::json;

fn empty_server() -> Server {
    Server::start(ServerOptions::examples(&[]))
}

/// A service whose reads and routes return their version.
fn versioned(version: u64) -> TestApp {
    let source = format!(
        "import {{ service, query }} from 'millrace';
         import {{ half }} from './_half.ts';
         export default service({{
           get: query(() => {version} * half * 2),
           count(ctx) {{ const n = (ctx.get('n') ?? 0) + 1; ctx.set('n', n); return n; }},
           async nested(ctx) {{ return await ctx.call('version', ctx.key, 'get', null); }},
         }});
         export const routes = {{ 'GET /now': async (ctx) => ({{ body: await ctx.call('version', 'r', 'get', null) }}) }};"
    );
    TestApp::with("version.ts", &source).and("_half.ts", "export const half: number = 0.5;")
}

fn note(name: &str) -> TestApp {
    let source = format!(
        "import {{ service, query }} from 'millrace';
         export default service({{
           put(ctx, text: string) {{ ctx.set('text', text); return '{name}'; }},
           read: query((ctx) => ctx.get('text') ?? null),
           async other(ctx, name: string) {{ return await ctx.call(name, ctx.key, 'read', null); }},
           tell(ctx, name: string) {{ ctx.send(name, ctx.key, 'put', 'intruder'); }},
         }});
         export const routes = {{ 'GET /who': () => '{name}' }};"
    );
    TestApp::with("note.ts", &source).and(&format!("{name}_only.ts"), &source)
}

#[test]
fn apps_live_side_by_side_and_cannot_see_each_other() {
    let server = empty_server();
    for name in ["red", "blue"] {
        let reply = note(name).deploy(&server, name);
        assert_eq!(reply.status, 201, "{}", reply.text());
    }
    let tells = |line: &str| line.contains("calls have to name an app");
    wait_until("the log tells", || server.errors().lines().any(|line| tells(line) && line.contains("WARN")));
    assert!(server.errors().lines().any(|line| tells(line) && line.contains("note")), "{}", server.errors());
    let ambiguous = server.call("note/k/read", "");
    assert_problem(&ambiguous, 409, "ambiguous-service");
    for text in ["red", "blue", "/apps/"] {
        assert!(ambiguous.text().contains(text), "{}", ambiguous.text());
    }
    for path in ["/note/who", "/state/note/k", "/state/note/k/text"] {
        assert_problem(&server.request("GET", path, &[], b""), 409, "ambiguous-service");
    }
    assert_problem(&server.request("POST", "/send/note/k/put", &[], b"1"), 409, "ambiguous-service");
    for name in ["red", "blue"] {
        let call = |handler: &str, input: &str| {
            server.request("POST", &format!("/apps/{name}/call/note/k/{handler}"), &[], input.as_bytes())
        };
        assert_eq!(call("put", &format!("\"from {name}\"")).json(), name);
        assert_eq!(server.request("GET", &format!("/apps/{name}/note/who"), &[], b"").text(), name);
    }
    for name in ["red", "blue"] {
        let read = server.request("POST", &format!("/apps/{name}/call/note/k/read"), &[], b"");
        assert_eq!(read.json(), format!("from {name}"));
        let state = server.request("GET", &format!("/apps/{name}/state/note/k/text"), &[], b"");
        assert_eq!(state.json(), format!("from {name}"));
    }
    // A service that only one of the apps has is reachable by its short name, but not from the other app.
    assert_eq!(server.value("red_only/k/put", "\"mine\""), "red");
    let intruder = server.request("POST", "/apps/blue/call/note/k/other", &[], b"\"red_only\"");
    assert_problem(&intruder, 500, "function-failed");
    let told = server.request("POST", "/apps/blue/call/note/k/tell", &[], b"\"red_only\"");
    assert_problem(&told, 500, "function-failed");
    assert_eq!(server.value("red_only/k/read", ""), "mine");
    assert_problem(&server.request("POST", "/apps/blue/call/red_only/k/read", &[], b""), 404, "unknown-service");
    assert_problem(&server.request("POST", "/apps/green/call/note/k/read", &[], b""), 404, "unknown-app");
}

#[test]
fn a_broken_app_is_refused_with_its_place_and_the_old_one_serves_on() {
    let mut server = empty_server();
    assert_eq!(versioned(1).deploy(&server, "v").status, 201);
    let broken = [
        (
            "a syntax error",
            "import { service } from 'millrace';\nexport default service({ get( });\n",
            "version.ts:2:31: ",
        ),
        (
            "a bad import",
            "import { service } from 'millrace';\nimport './nowhere.ts';\nexport default service({});",
            "version.ts:2:8: ",
        ),
        ("an import from outside", "import fs from 'fs';\nexport default fs.x;", "version.ts:1:16: "),
        ("an import above the app", "import '../secret.ts';\nexport default {};", "version.ts:1:8: "),
        (
            "a throw while loading",
            "import { service } from 'millrace';\n\nthrow new Error('at load');",
            "version.ts:3:11: ",
        ),
        // A loop itself has no place. The error names the last call before it, or the function that it is in.
        ("an endless load", "const all = [1];\n  all.push(2);\nfor (;;) {}", "version.ts:2:"),
        ("a load that never ends", "await new Promise(() => {});", "version.ts: "),
        ("a bomb while loading", "const all = [];\nfor (;;) all.push('x'.repeat(1e6) + all.length);", "version.ts:2:"),
        ("no service", "export default 5;", "version.ts"),
        (
            "a misspelt export",
            "import { service } from 'millrace';\nexport default service({ get: () => 2 });\nexport const schedule = {};",
            "exports \\\"schedule\\\", which means nothing: did you mean \\\"schedules\\\"?",
        ),
        (
            "a route that looks like a pattern of another server",
            "export const routes = { 'GET /f/*': () => 1 };",
            "version: the route \\\"GET /f/*\\\" would match the text \\\"*\\\" alone: a part of a path is either text or :name",
        ),
        (
            "a type of its own where a value is needed",
            "import { service } from 'millrace';\nexport default service({ get: 5 });",
            "version.ts",
        ),
    ];
    for (what, source, place) in broken {
        let reply = TestApp::with("version.ts", source).deploy(&server, "v");
        println!("{what}: {}", reply.json()["detail"]);
        assert_problem(&reply, 422, "app-refused");
        assert!(reply.text().contains(place), "{what}: no {place} in {}", reply.text());
        assert_eq!(server.value("version/k/get", ""), 1, "after {what}");
    }
    for (path, text, place) in [
        ("millrace.toml", "[limits]\ncpu = 5\n", "millrace.toml:2:1: "),
        ("millrace.toml", "[limits]\n\ncpu_ms = 0\n", "millrace.toml:3:10: "),
        ("call.ts", "export default {};", "call.ts"),
        ("bad name.ts", "export default {};", "bad name.ts"),
        ("version.js", "export default {};", "version.js"),
    ] {
        let reply = versioned(2).and(path, text).deploy(&server, "v");
        println!("{path}: {}", reply.json()["detail"]);
        assert_problem(&reply, 422, "app-refused");
        assert!(reply.text().contains(place), "{place}: {}", reply.text());
        assert_eq!(server.value("version/k/get", ""), 1, "after {path}");
    }
    assert!(server.stop());
    server.restart();
    assert_eq!(server.value("version/k/get", ""), 1);
}

/// On the stack of a core's thread this source ended the process.
#[test]
fn a_file_of_nothing_but_nesting_ends_nothing() {
    let server = empty_server();
    assert_eq!(note("red").deploy(&server, "red").status, 201);
    let source = "import { service } from 'millrace'; export default service({ f() { return 1; } });\n";
    for (opens, middle, closes) in [("(", "1", ")"), ("[", "", "]"), ("1+", "1", ""), ("if(1);else ", ";", "")] {
        let nested = format!("{source}{}{middle}{};", opens.repeat(20_000), closes.repeat(20_000));
        for name in ["deep.ts", "deep.js"] {
            let status = TestApp::with(name, &nested).deploy(&server, "deep").status;
            assert!([200, 201, 422].contains(&status), "{opens} in {name}: {status}");
            assert_eq!(server.call("note/k/read", "").text(), "null", "after {opens} in {name}");
        }
    }
}

#[test]
fn what_was_deployed_to_an_earlier_release_does_not_stop_the_node() {
    let mut server = empty_server();
    let old = TestApp::with(
        "schedules.ts",
        "import { service } from 'millrace';
         export default service({ get: () => 7 });
         export const route = {};",
    )
    .and("files.ts", "export const routes = { 'GET /f/*': () => 'a star' };");
    assert_problem(&old.deploy(&server, "old"), 422, "app-refused");
    assert!(server.stop());
    std::fs::write(server.data().join("apps/old.tar"), old.tar()).expect("written");
    server.restart();
    assert_eq!(server.value("schedules/k/get", ""), 7);
    assert_eq!(server.request("GET", "/files/f/*", &[], b"").text(), "a star");
    assert_eq!(server.errors().matches("paths of the server's own").count(), 1, "{}", server.errors());
    assert_problem(&old.deploy(&server, "old"), 422, "app-refused");
}

#[test]
fn a_replacement_is_atomic_for_every_caller() {
    const LAST: u64 = 15;
    let server = empty_server();
    assert_eq!(versioned(1).deploy(&server, "v").status, 201);
    // These versions may answer: from the last version whose deployment was answered to the last version that was
    // sent.
    let (oldest, newest) = (AtomicU64::new(1), AtomicU64::new(1));
    let stops = AtomicBool::new(false);
    scope(|threads| {
        let stop = StopOnDrop(&stops);
        let clients: Vec<_> = (0..4u64)
            .map(|client| {
                let (server, oldest, newest, stops) = (&server, &oldest, &newest, &stops);
                threads.spawn(move || {
                    let mut connection = server.connect();
                    let mut calls = 0u64;
                    while !stops.load(Ordering::SeqCst) {
                        let (method, path) = match calls % 4 {
                            0 => ("POST", format!("/call/version/k{client}-{calls}/nested")),
                            1 => ("GET", "/version/now".to_owned()),
                            _ => ("POST", format!("/call/version/k{client}-{calls}/get")),
                        };
                        let low = oldest.load(Ordering::SeqCst);
                        let reply = connection.request(method, &path, &[], b"").expect("a reply");
                        let high = newest.load(Ordering::SeqCst);
                        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
                        let version = reply.json().as_u64().expect("a number");
                        assert!((low..=high).contains(&version), "{version} is not within {low} to {high}");
                        calls += 1;
                    }
                    calls
                })
            })
            .collect();
        let mut versions = BTreeSet::new();
        for version in 2..=LAST {
            newest.store(version, Ordering::SeqCst);
            let reply = versioned(version).deploy(&server, "v");
            assert_eq!(reply.status, 200, "{}", reply.text());
            assert!(versions.insert(reply.json()["version"].to_string()), "{}", reply.text());
            oldest.store(version, Ordering::SeqCst);
        }
        drop(stop);
        let calls: u64 = clients.into_iter().map(|client| client.join().expect("saw nothing wrong")).sum();
        println!("{calls} calls over {LAST} versions");
    });
    assert_eq!(server.value("version/k/get", ""), LAST);
}

#[test]
fn a_removed_app_is_gone_and_its_state_comes_back_with_it() {
    let mut server = empty_server();
    assert_eq!(versioned(1).deploy(&server, "v").status, 201);
    assert_eq!(server.value("version/k/count", ""), 1);
    let delete = |server: &Server| server.request("DELETE", "/apps/v", &[], b"");
    assert_eq!((delete(&server).status, delete(&server).code().as_str()), (204, "unknown-app"));
    assert_problem(&server.call("version/k/count", ""), 404, "unknown-service");
    assert_problem(&server.request("POST", "/apps/v/call/version/k/count", &[], b""), 404, "unknown-app");
    assert_eq!(server.request("GET", "/apps", &[], b"").json(), json!([]));
    server.kill();
    server.restart();
    assert_problem(&server.call("version/k/count", ""), 404, "unknown-service");
    assert!([200, 201].contains(&versioned(2).deploy(&server, "v").status));
    assert_eq!(server.value("version/k/count", ""), 2);
}

#[test]
fn the_list_of_apps_names_services_handlers_and_routes() {
    let mut server = empty_server();
    assert_eq!(versioned(1).deploy(&server, "v").status, 201);
    let list = server.request("GET", "/apps", &[], b"").json();
    assert_eq!(list[0]["name"], "v");
    let version = list[0]["version"].as_str().expect("a fingerprint").to_owned();
    assert!(version.len() == 16 && version.bytes().all(|byte| byte.is_ascii_hexdigit()), "{version}");
    let service = &list[0]["services"][0];
    assert_eq!(service["name"], "version");
    let handlers: Vec<_> = service["handlers"].as_array().expect("handlers").iter().map(|one| &one["name"]).collect();
    assert_eq!(handlers, ["count", "get", "nested"]);
    assert_eq!(service["routes"][0]["path"], "/now");
    // The version depends on the files, whatever else happens.
    assert_eq!(versioned(2).deploy(&server, "v").status, 200);
    assert_ne!(server.get("/apps")[0]["version"], version);
    let again = versioned(1).deploy(&server, "v");
    assert_eq!((again.status, &again.json()["version"]), (200, &json!(version)));
    server.kill();
    server.restart();
    assert_eq!(server.get("/apps")[0]["version"], version);
    assert_eq!(server.request("DELETE", "/apps/v", &[], b"").status, 204);
    let new = versioned(1).deploy(&server, "v");
    assert_eq!((new.status, &new.json()["version"]), (201, &json!(version)), "there was none");
}

#[test]
fn a_folder_given_at_the_start_is_served_instead_of_what_was_deployed_and_that_is_said() {
    let mut server = Server::start(ServerOptions::examples(&["counter"]));
    let folder = server.get("/apps")[0]["version"].clone();
    assert!(!server.errors().contains("the app's folder is served"), "{}", server.errors());
    assert_eq!(versioned(1).deploy(&server, "counter").status, 200);
    assert_ne!(server.get("/apps")[0]["version"], folder);
    server.kill();
    server.restart();
    assert_eq!(server.get("/apps")[0]["version"], folder);
    wait_until("it is said", || server.errors().contains("the app's folder is served"));
}

#[test]
fn archives_that_reach_outside_or_exceed_the_limits_are_refused() {
    let server = empty_server();
    let good = || Entry::file("a.ts", "import { service } from 'millrace'; export default service({ one: () => 1 });");
    let put = |body: &[u8]| server.request("PUT", "/apps/attack", &[], body);
    let attacks = [
        Entry::file("../outside.ts", ""),
        Entry::file("lib/../../outside.ts", ""),
        Entry::file("/tmp/outside.ts", ""),
        Entry::file("back\\slash.ts", ""),
        Entry::file("a.ts", "again"),
        Entry::special("link.ts", b'2', "/etc/passwd"),
        Entry::special("link.ts", b'1', "a.ts"),
        Entry::special("device", b'3', ""),
        Entry::special("pipe", b'6', ""),
    ];
    for attack in attacks {
        let reply = put(&tar(&[good(), attack.clone()]));
        println!("{:?} {}: {}", attack.path, attack.kind as char, reply.json()["detail"]);
        assert_problem(&reply, 422, "app-refused");
    }
    let many: Vec<Entry> = (0..1025).map(|number| Entry::file(&format!("_{number}.ts"), "")).collect();
    assert_problem(&put(&tar(&many)), 422, "app-refused");
    let large = [good(), Entry::file("_large.bin", vec![b'x'; (16 << 20) + 1])];
    assert_problem(&put(&tar(&large)), 422, "app-refused");
    let huge = [good(), Entry::file("_huge.bin", vec![b'x'; 21 << 20])];
    assert_problem(&put(&tar(&huge)), 413, "too-large");
    let whole = tar(&[good()]);
    for body in [&b""[..], b"not a tar", &whole[..600], &whole[..1024], b"\x1f\x8b\x08compressed"] {
        assert_problem(&put(body), 400, "bad-request");
    }
    for name in ["a%20b", "a.b", "%2e%2e", &"x".repeat(65)] {
        let reply = server.request("PUT", &format!("/apps/{name}"), &[], &whole);
        assert_problem(&reply, 400, "bad-request");
    }
    assert_eq!(server.request("GET", "/apps", &[], b"").json(), json!([]));
    let kept: Vec<_> = std::fs::read_dir(server.data().join("apps")).expect("the folder").collect();
    assert!(kept.is_empty(), "{kept:?}");
    assert_eq!(put(&whole).status, 201);
}

#[test]
fn deploy_and_call_work_from_the_shell() {
    let mut server = empty_server();
    let url = server.url();
    let bank = repository().join("examples/bank");
    let deployed = millrace(&["deploy", bank.to_str().expect("text"), "--url", &url]);
    assert_eq!(deployed.code, Some(0), "{}", deployed.err);
    let named = millrace(&["deploy", bank.to_str().expect("text"), "--name", "second", "--url", &url]);
    assert_eq!(named.code, Some(0), "{}", named.err);
    let call = |arguments: &[&str]| millrace(&[&["call"], arguments, &["--url", &url]].concat());
    let ambiguous = call(&["account/ada/deposit", "10"]);
    assert_eq!(ambiguous.code, Some(1));
    assert!(ambiguous.err.contains("ambiguous-service") && ambiguous.err.contains("second"), "{}", ambiguous.err);
    for _ in 0..2 {
        let paid = call(&["bank:account/ada/deposit", "10", "--idempotency-key", "once"]);
        assert_eq!((paid.code, paid.out.trim()), (Some(0), "10"), "{}", paid.err);
    }
    let refused = call(&["bank:account/ada/withdraw", "11"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("insufficient funds"), "{}", refused.err);
    let sent = call(&["second:account/ada/deposit", "7", "--send"]);
    assert_eq!(sent.code, Some(0), "{}", sent.err);
    wait_until("the sent call has run", || call(&["second:account/ada/balance"]).out.trim() == "7");
    server.kill();
    server.restart();
    assert_eq!(call(&["bank:account/ada/balance"]).out.trim(), "10");

    let broken = tempfile::tempdir().expect("a folder");
    TestApp::with("account.ts", "export default service({\n  x(\n").write(broken.path());
    let refused = millrace(&["deploy", broken.path().to_str().expect("text"), "--name", "bank", "--url", &url]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("account.ts:"), "{}", refused.err);
    assert_eq!(call(&["bank:account/ada/balance"]).out.trim(), "10");
    let nobody = millrace(&["call", "a/b/c", "--url", "http://127.0.0.1:1"]);
    assert_eq!(nobody.code, Some(1));
    assert!(nobody.err.contains("127.0.0.1:1"), "{}", nobody.err);
}
