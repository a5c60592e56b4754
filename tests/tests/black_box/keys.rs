//! Permissions. Keys are on by default where strangers could connect, and roles allow what they say. A revoked key
//! stops working while the server runs.

use std::path::Path;

use millrace_tests::worker::DialledWorker;
use millrace_tests::{Reply, Server, ServerOptions, TestApp, assert_problem, basic, millrace, wait_until};
use serde_json::json;

/// Makes a key in a key file and returns it.
fn add(keys: &Path, id: &str, roles: &[&str]) -> String {
    let mut arguments = vec!["keys", "--keys", keys.to_str().expect("text"), "add", id];
    roles.iter().for_each(|role| arguments.extend(["--role", role]));
    let output = millrace(&arguments);
    assert_eq!(output.code, Some(0), "{}", output.err);
    let key = output.out.trim().to_owned();
    assert!(key.starts_with(&format!("mr_{id}_")) && key.len() > 40, "{key}");
    key
}

fn change(keys: &Path, arguments: &[&str]) {
    let output = millrace(&[&["keys", "--keys", keys.to_str().expect("text")], arguments].concat());
    assert_eq!(output.code, Some(0), "{}", output.err);
}

struct Guarded {
    server: Server,
    folder: tempfile::TempDir,
}

impl Guarded {
    fn keys(&self) -> std::path::PathBuf {
        self.folder.path().join("keys.json")
    }

    fn request(&self, method: &str, path: &str, key: &str, body: &[u8]) -> Reply {
        let header = format!("Authorization: Bearer {key}");
        self.server.request(method, path, &[&header], body)
    }
}

fn guarded(make: impl FnOnce(&Path)) -> Guarded {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys.json");
    make(&keys);
    let options = ServerOptions::examples(&["counter", "login"]).with(&["--keys", keys.to_str().expect("text")]);
    Guarded { server: Server::start(options), folder }
}

#[test]
fn other_addresses_than_loopback_need_keys() {
    let mut options = ServerOptions::examples(&["counter"]);
    let address = format!("0.0.0.0:{}", millrace_tests::free_address().port());
    options.address = Some(address.parse().expect("an address"));
    let errors = Server::refuses(options.clone());
    assert!(errors.contains(&address) && errors.contains("keys"), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys.json");
    std::fs::write(&keys, "{}").expect("written");
    let with_none = options.clone().with(&["--keys", keys.to_str().expect("text")]);
    let errors = Server::refuses(with_none);
    assert!(errors.contains("key"), "{errors}");
    let key = add(&keys, "one", &["admin"]);
    let server = Server::start(options.with(&["--keys", keys.to_str().expect("text")]));
    assert_problem(&server.call("counter/k/add", "1"), 401, "unauthorized");
    // An error does not tell what exists either.
    for path in ["nothing/k/add", "counter/k/nothing"] {
        assert_problem(&server.call(path, "1"), 401, "unauthorized");
    }
    for path in ["/nothing/x", "/apps/nothing/x/y", "/state/nothing/k", "/records/nothing/1", "/invocations/nothing"] {
        assert_problem(&server.request("GET", path, &[], b""), 401, "unauthorized");
    }
    // A client of the Schema Registry sends its key as a password, and accepts a 404 for anything this registry does
    // not have.
    let known = server.request("GET", "/associations/x", &[&basic("anybody", &key)], b"");
    assert_problem(&known, 404, "unknown-service");
    let unknown = server.request("GET", "/associations/x", &[&basic("anybody", "mr_wrong")], b"");
    assert_problem(&unknown, 401, "unauthorized");
    let header = format!("Authorization: Bearer {key}");
    assert_eq!(server.request("POST", "/call/counter/k/add", &[&header], b"1").status, 200);
}

#[test]
fn each_role_allows_what_it_says_and_nothing_else() {
    let mut made = Vec::new();
    let guarded = guarded(|keys| {
        made.push(add(keys, "root", &["admin"]));
        made.push(add(keys, "ci", &["deploy"]));
        made.push(add(keys, "one", &["call:counter/counter"]));
        made.push(add(keys, "app", &["call:login/*"]));
        made.push(add(keys, "all", &["call:*"]));
    });
    let app =
        TestApp::with("x.ts", "import { service } from 'millrace'; export default service({ y: () => 1 });").tar();
    let id =
        guarded.request("POST", "/send/counter/k/add", &made[0], b"0").json()["id"].as_str().expect("an id").to_owned();
    let invocation = format!("/invocations/{id}");
    // Method, path, body, and the statuses for the keys admin, deploy, one service, one app, all apps.
    type Row<'a> = (&'a str, &'a str, &'a [u8], [u16; 5]);
    let rows: [Row<'_>; 15] = [
        ("POST", "/call/counter/k/add", b"1", [200, 403, 200, 403, 200]),
        ("POST", "/send/counter/k/add", b"1", [202, 403, 202, 403, 202]),
        ("GET", "/state/counter/k", b"", [200, 403, 200, 403, 200]),
        ("GET", &invocation, b"", [200, 404, 200, 404, 200]),
        (
            "POST",
            "/call/user/ada/import",
            br#"{"scheme":"sha1","salt":"","hash":"0000000000000000000000000000000000000000"}"#,
            [200, 403, 403, 200, 200],
        ),
        ("GET", "/metrics", b"", [200, 403, 403, 403, 403]),
        ("GET", "/apps", b"", [200, 200, 403, 403, 403]),
        ("PUT", "/apps/x", &app, [201, 200, 403, 403, 403]),
        ("DELETE", "/apps/nothing", b"", [404, 404, 403, 403, 403]),
        ("POST", "/cluster/nodes", br#"{"http":"127.0.0.1:1","peer":"127.0.0.1:2"}"#, [404, 403, 403, 403, 403]),
        ("DELETE", "/cluster/nodes/2", b"", [404, 403, 403, 403, 403]),
        ("GET", "/dead-letters", b"", [200; 5]),
        ("GET", "/invocations", b"", [200; 5]),
        ("GET", "/schedules", b"", [200; 5]),
        ("GET", "/healthz", b"", [200; 5]),
    ];
    for (method, path, body, statuses) in rows {
        for (key, status) in made.iter().zip(statuses) {
            let reply = guarded.request(method, path, key, body);
            assert_eq!(reply.status, status, "{method} {path} with {key:.8}: {}", reply.text());
            if status == 403 {
                assert_problem(&reply, 403, "forbidden");
                let wanted = if path.starts_with("/state") { "the role read:" } else { "the role " };
                let wanted =
                    if path.starts_with("/call") || path.starts_with("/send") { "the role call:" } else { wanted };
                assert!(reply.text().contains(wanted), "{method} {path}: {}", reply.text());
            }
        }
        if path != "/healthz" {
            let reply = guarded.server.request(method, path, &[], body);
            assert!([401, 404].contains(&reply.status), "{method} {path} without a key: {}", reply.text());
            assert!(reply.status == 404 || reply.header("www-authenticate") == Some("Bearer"));
        }
        let tail = &made[0][..made[0].len() - 1];
        for wrong in
            [format!("{tail}{}", if made[0].ends_with('A') { 'B' } else { 'A' }), "mr_root_".into(), "not there".into()]
        {
            let reply = guarded.request(method, path, &wrong, body);
            assert!(path == "/healthz" || reply.status == 401, "{method} {path}: {}", reply.text());
        }
    }
}

#[test]
fn a_schedule_is_seen_by_who_may_call_its_service() {
    let mut made = Vec::new();
    let guarded = guarded(|keys| {
        for (id, role) in [
            ("root", "admin"),
            ("all", "call:*"),
            ("app", "call:bells/*"),
            ("service", "call:bells/bells"),
            ("beside", "call:bells/other"),
            ("reader", "read:bells/bells"),
            ("ci", "deploy"),
            ("other", "call:counter/*"),
        ] {
            made.push((add(keys, id, &[role]), ["root", "all", "app", "service"].contains(&id)));
        }
    });
    let app = TestApp::with(
        "bells.ts",
        "import { service } from 'millrace';
         export default service({ ring() {} });
         export const schedules = { hourly: { cron: '@hourly', key: 'tower', handler: 'ring' } };",
    );
    assert_eq!(guarded.request("PUT", "/apps/bells", &made[0].0, &app.tar()).status, 201);
    for (key, sees_it) in made {
        for path in ["/schedules", "/schedules?app=bells&service=bells&limit=1"] {
            let reply = guarded.request("GET", path, &key, b"");
            assert_eq!(reply.json()["schedules"].as_array().map(Vec::len), Some(usize::from(sees_it)), "{key:.12}");
            assert_eq!(reply.text().contains("hourly"), sees_it, "{key:.12}");
        }
    }
    assert_problem(&guarded.server.request("GET", "/schedules", &[], b""), 401, "unauthorized");
}

#[test]
fn secrets_are_hashed_at_rest_and_the_file_is_private() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys.json");
    let key = add(&keys, "one", &["admin"]);
    let secret = key.rsplit('_').next().expect("a secret");
    let text = std::fs::read_to_string(&keys).expect("written");
    assert!(!text.contains(secret), "the secret is in the file");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&keys).expect("there"));
    assert_eq!(mode & 0o077, 0, "others may read it: {mode:o}");
    let file = keys.to_str().expect("text");
    let list = millrace(&["keys", "--keys", file, "list"]);
    assert!(list.out.contains("one") && list.out.contains("admin"), "{}", list.out);
    for arguments in [
        &["add", "one", "--role", "admin"][..],
        &["add", "A B", "--role", "admin"],
        &["add", "two", "--role", "king"],
        &["remove", "none"],
    ] {
        let output = millrace(&[&["keys", "--keys", file], arguments].concat());
        assert_ne!(output.code, Some(0), "{arguments:?}");
        assert!(!output.err.is_empty() && !output.err.contains("panicked"), "{}", output.err);
    }
    assert_eq!(std::fs::read_to_string(&keys).expect("there"), text, "a refused change changed something");
}

#[test]
fn a_revoked_key_stops_working_and_a_broken_file_changes_nothing() {
    let mut made = Vec::new();
    let guarded = guarded(|keys| {
        made.push(add(keys, "kept", &["call:*"]));
        made.push(add(keys, "revoked", &["call:*"]));
    });
    let status = |key: &str| guarded.request("POST", "/call/counter/k/value", key, b"").status;
    assert_eq!((status(&made[0]), status(&made[1])), (200, 200));
    change(&guarded.keys(), &["remove", "revoked"]);
    wait_until("the server notices", || status(&made[1]) == 401);
    assert_eq!(status(&made[0]), 200);
    let late = add(&guarded.keys(), "late", &["call:*"]);
    wait_until("the server notices", || status(&late) == 200);
    std::fs::write(guarded.keys(), "{ not a key file").expect("written");
    wait_until("the server tells", || guarded.server.errors().contains("keys.json"));
    assert_eq!((status(&made[0]), status(&late), status(&made[1])), (200, 200, 401));
}

#[test]
fn the_anonymous_role_opens_what_it_names() {
    let guarded = guarded(|keys| {
        add(keys, "root", &["admin"]);
        change(keys, &["anonymous", "--role", "call:login/user"]);
    });
    let body = br#"{"username":"ada","password":"correct horse"}"#;
    let server = &guarded.server;
    assert_eq!(server.request("POST", "/user/register", &[], body).status, 201);
    // The app's own use of Authorization is left to the app.
    let login = server.request("GET", "/user/login", &[&basic("ada", "correct horse")], b"");
    assert_eq!((login.status, login.text().as_str()), (200, "ok"));
    assert_eq!(server.request("GET", "/user/login", &[&basic("ada", "wrong")], b"").status, 401);
    assert_problem(&server.call("counter/k/add", "1"), 401, "unauthorized");
    assert_problem(&server.request("GET", "/metrics", &[], b""), 401, "unauthorized");
    change(&guarded.keys(), &["anonymous"]);
    wait_until("the server notices", || server.request("GET", "/user/login", &[], b"").code() == "unauthorized");
}

#[test]
fn a_key_of_a_worker_takes_no_app_away() {
    let mut made = Vec::new();
    let guarded = guarded(|keys| {
        made.push(add(keys, "any", &["worker"]));
        made.push(add(keys, "bank", &["worker:bank"]));
        made.push(add(keys, "root", &["admin"]));
    });
    let (any, bank, root) = (&made[0], &made[1], &made[2]);
    let dial = |app: &str, key: &str| {
        let app = format!("millrace-app: {app}");
        let headers = ["connection: upgrade", "upgrade: millrace-worker", "millrace-worker-protocol: 1", &app];
        let key = format!("authorization: Bearer {key}");
        guarded.server.request("GET", "/workers/connect", &[&headers[..], &[&key]].concat(), b"")
    };
    // An app in the server, with its state.
    assert_eq!(guarded.request("POST", "/call/counter/k/add", root, b"3").status, 200);
    for (app, key, needs) in
        [("counter", any, "deploy"), ("counter", bank, "worker:counter"), ("other", bank, "worker:other")]
    {
        let refused = dial(app, key);
        assert_problem(&refused, 403, "forbidden");
        assert!(refused.text().contains(needs), "{}", refused.text());
    }
    assert_eq!(guarded.request("POST", "/call/counter/k/add", root, b"1").json(), 4);
    // Apps of workers are for whoever has the role for them.
    let services = json!([{ "name": "account", "handlers": [{ "name": "get", "kind": "query" }] }]);
    for key in [bank, any] {
        let (_worker, ready) =
            DialledWorker::connect_as(guarded.server.address(), ("bank", Some(key)), services.clone(), |_| {
                Ok(json!(1))
            });
        assert!(ready.is_ok(), "{ready:?}");
    }
    // A key that is removed ends the connection that it has opened.
    let (_worker, ready) =
        DialledWorker::connect_as(guarded.server.address(), ("bank", Some(bank)), services, |_| Ok(json!(1)));
    assert!(ready.is_ok(), "{ready:?}");
    let get = || guarded.request("POST", "/call/account/a/get", root, b"null");
    wait_until("it serves", || get().status == 200);
    change(&guarded.keys(), &["remove", "bank"]);
    wait_until("its worker is gone", || get().code() == "worker-unavailable");
}

#[test]
fn schemas_of_workers_are_shown_to_those_who_may_see_the_service() {
    let mut keys = Vec::new();
    let guarded = guarded(|file| {
        let roles =
            [("call", "call:bank/account"), ("read", "read:bank/*"), ("deploy", "deploy"), ("other", "call:shop/*")];
        keys = roles.map(|(id, role)| add(file, id, &[role])).to_vec();
        keys.push(add(file, "dials", &["worker"]));
    });
    let seat = json!({ "$ref": "#/$defs/Seat", "$defs": { "Seat": { "type": "object" } } });
    let deposit = json!({ "name": "deposit", "kind": "transaction", "input": seat, "output": { "type": "integer" } });
    let services = json!([{ "name": "account", "handlers": [deposit] }]);
    let dialled =
        DialledWorker::connect_as(guarded.server.address(), ("bank", Some(&keys[4])), services, |_| Ok(json!(1)));
    assert!(dialled.1.is_ok(), "{:?}", dialled.1);
    let seen = |headers: &[&str]| {
        let document = guarded.server.request("GET", "/openapi.json", headers, b"").json();
        assert!(
            document["paths"]["/call/{service}/{key}/{handler}"].is_object(),
            "the contract is there for everybody"
        );
        let has_schema = document["components"]["schemas"]["bank.account.deposit.input"].is_object();
        assert_eq!(document["paths"]["/call/account/{key}/deposit"].is_object(), has_schema);
        has_schema
    };
    let with = |key: &str| seen(&[&format!("Authorization: Bearer {key}")]);
    assert_eq!(keys.iter().map(|key| with(key)).collect::<Vec<_>>(), [true, true, true, false, false]);
    assert!(!seen(&[]) && !with("mr_nobody_knows"));
}

/// A page may have its own name lead to this machine, and would read what only this machine's user may.
#[test]
fn schemas_of_workers_are_not_shown_to_pages_of_strangers() {
    let server = Server::start(ServerOptions::examples(&[]));
    let services = json!([{ "name": "account", "handlers": [{ "name": "show", "kind": "query", "output": {} }] }]);
    let _dialled = DialledWorker::connect(server.address(), "bank", services, |_| Ok(json!(1)));
    let seen = |headers: &[&str]| {
        let document = server.request("GET", "/openapi.json", headers, b"").json();
        document["paths"]["/call/account/{key}/show"].is_object()
    };
    assert!(seen(&[]));
    assert!(!seen(&["Origin: https://stranger.example"]));
}
