//! The classic URLs of the old record server, as its users call them. The test sends every row of their table, and
//! every path of the language's table, over HTTP.

use millrace_tests::{Reply, Server, ServerOptions, TestApp, assert_problem};
use serde_json::{Value, json};

const PERSON_INFO: &str = r#"{
  "type": "record", "name": "PersonInfo", "namespace": "records", "fields": [
    {"name": "name", "type": "string"},
    {"name": "age", "type": "int"},
    {"name": "gender", "type": {"type": "enum", "name": "GenderType", "symbols": ["Female", "Male", "Unknown"]}, "default": "Unknown"},
    {"name": "emails", "type": {"type": "array", "items": "string"}}
  ]}"#;

/// A union file as the old server accepted it: `fullname` picks one type of it.
const ACCOUNT: &str = r#"[
  {"type": "record", "name": "ChargeRecord", "namespace": "app", "fields": [
    {"name": "time", "type": "long", "default": -1}, {"name": "amount", "type": "double", "default": 0}]},
  {"type": "record", "name": "AppInfo", "namespace": "app", "fields": [
    {"name": "numBlackApps", "type": "int", "default": 0}]},
  {"type": "record", "name": "Account", "namespace": "app", "fields": [
    {"name": "registerTime", "type": "long", "default": 0},
    {"name": "lastLoginTime", "type": "long", "default": 0},
    {"name": "id", "type": ["null", "string"], "default": null},
    {"name": "chargeRecords", "type": {"type": "array", "items": "ChargeRecord"}, "default": []},
    {"name": "devApps", "type": {"type": "map", "values": "AppInfo"}, "default": {}}]}
]"#;

fn server() -> Server {
    let server = Server::start(ServerOptions::examples(&[]));
    ok(&post(&server, "/putschema/personinfo", PERSON_INFO));
    ok(&post(&server, "/putschema/account?fullname=app.Account", ACCOUNT));
    server
}

fn post(server: &Server, path: &str, body: &str) -> Reply {
    server.request("POST", path, &[], body.as_bytes())
}

fn ok(reply: &Reply) {
    assert_eq!((reply.status, reply.text().as_str()), (200, "OK"));
}

/// The account of the path language's table, under `id`.
fn put_account(server: &Server, id: &str) {
    let account = json!({
        "registerTime": 10000, "lastLoginTime": 20000, "id": "abCd",
        "chargeRecords": [{"time": 1, "amount": 100.0}, {"time": 2, "amount": -50.0}],
        "devApps": {"a": {"numBlackApps": 1}, "b": {"numBlackApps": 2}, "c": {"numBlackApps": 3}},
    });
    ok(&post(server, &format!("/account/put/{id}"), &account.to_string()));
}

fn select(server: &Server, id: &str, path: &str) -> Value {
    let reply = post(server, &format!("/account/select/{id}"), path);
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    reply.json()
}

#[test]
fn the_example_of_the_old_server_works_as_it_did() {
    let server = server();
    assert_eq!(server.request("GET", "/ping", &[], b"").text(), "pong");
    let untouched = server.request("GET", "/personinfo/get/1", &[], b"");
    assert_eq!(untouched.text(), r#"{"name":"","age":0,"gender":"Unknown","emails":[]}"#);
    ok(&post(&server, "/personinfo/update/1", ".\n{\"name\":\"James Bond\",\"age\":60}"));
    assert_eq!(
        server.request("GET", "/personinfo/get/1/", &[], b"").text(),
        r#"{"name":"James Bond","age":60,"gender":"Unknown","emails":[]}"#
    );
    assert_eq!(server.request("GET", "/personinfo/get/1/name", &[], b"").text(), "\"James Bond\"");
    ok(&post(&server, "/account/insertall/12345", ".devApps\n{\"g\":{},\"h\":{\"numBlackApps\":10}}"));
    assert_eq!(server.get("/account/get/12345/devApps"), json!({"g": {"numBlackApps": 0}, "h": {"numBlackApps": 10}}));
}

#[test]
fn every_row_of_the_table_of_urls() {
    let server = server();
    // Each path also works with a slash behind it.
    for (id, end) in [(2, ""), (7, "/")] {
        let url = |operation: &str| format!("/personinfo/{operation}/{id}{end}");
        ok(&post(&server, &url("put"), r#"{"name":"Ann","age":7,"gender":"Female","emails":["a@x"]}"#));
        ok(&post(&server, &format!("/personinfo/put/{id}/age{end}"), "8"));
        assert_eq!(server.get(&format!("/personinfo/get/{id}/age{end}")), json!(8));
        assert_eq!(post(&server, &url("select"), ".emails[0]").text(), r#"["a@x"]"#);
        ok(&post(&server, &url("update"), ".age\r\n9"));
        ok(&post(&server, &url("update"), ".age\r10"));
        assert_eq!(server.get(&url("get"))["age"], json!(10));
        ok(&post(&server, &url("insert"), ".emails\n\"b@x\""));
        ok(&post(&server, &url("insertall"), ".emails\n[\"c@x\",\"d@x\"]"));
        assert_eq!(server.get(&format!("/personinfo/get/{id}/emails")), json!(["a@x", "b@x", "c@x", "d@x"]));
        ok(&post(&server, &url("delete"), ".emails[1]"));
        assert_eq!(server.get(&format!("/personinfo/get/{id}/emails")), json!(["a@x", "c@x", "d@x"]));
        ok(&post(&server, &url("clear"), ".emails"));
        assert_eq!(server.get(&format!("/personinfo/get/{id}/emails")), json!([]));
        ok(&post(&server, &format!("/personinfo/putscript/age/watch{end}"), "ctx.log('changed')"));
        ok(&server.request("GET", &format!("/personinfo/delscript/age/watch{end}"), &[], b""));
        ok(&post(&server, &format!("/putschema/other{id}{end}"), PERSON_INFO));
        ok(&server.request("GET", &format!("/delschema/other{id}{end}"), &[], b""));
    }
    // N: a uniform random id 1..N instead of the id in the path.
    for _ in 0..20 {
        ok(&post(
            &server,
            "/personinfo/put/1?benchmark_only=5",
            r#"{"name":"Many","age":1,"gender":"Male","emails":[]}"#,
        ));
    }
    let named = (1..=6).filter(|id| server.get(&format!("/personinfo/get/{id}/name")) == json!("Many")).count();
    assert!((2..=5).contains(&named), "{named} of 5 ids were written by 20 writes");
    assert_eq!(server.get("/personinfo/get/6/name"), json!(""));
    assert_eq!(server.request("GET", "/personinfo/get/1?benchmark_only=5", &[], b"").status, 200);
}

#[test]
fn what_failed_silently_there_is_an_error_here() {
    let server = server();
    let missed = |reply: &Reply| {
        assert_eq!((reply.status, reply.header("millrace-matched")), (404, Some("0")), "{}", reply.text());
    };
    for (operation, body) in [
        ("update", ".emails[4]\n\"x\""),
        ("insert", ".nothing\n\"x\""),
        ("insertall", ".nothing\n[\"x\"]"),
        ("delete", ".emails[4]"),
        ("clear", ".nothing"),
    ] {
        missed(&post(&server, &format!("/personinfo/{operation}/3"), body));
    }
    missed(&server.request("GET", "/personinfo/get/3/nothing", &[], b""));
    assert_eq!(server.request("GET", "/nosuchtype/get/3", &[], b"").status, 404);
    for (path, body, status) in [
        ("/personinfo/update/3", ".age\n\"old\"", 422),
        ("/personinfo/update/3", ".age[\n1", 400),
        ("/personinfo/put/3", r#"{"name":"x","height":2}"#, 422),
        ("/personinfo/put/3", "{", 400),
        ("/personinfo/insert/3", ".name\n1", 422),
    ] {
        let reply = post(&server, path, body);
        assert_eq!(reply.status, status, "{path} {body}: {}", reply.text());
        assert!(!reply.body.is_empty());
    }
    assert_eq!(
        server.request("GET", "/personinfo/get/3", &[], b"").text(),
        r#"{"name":"","age":0,"gender":"Unknown","emails":[]}"#
    );
    assert_eq!(server.request("GET", "/delschema/nosuchtype", &[], b"").status, 404);
    assert_problem(&server.request("GET", "/records/nosuchtype/1", &[], b""), 404, "unknown-type");
}

#[test]
fn every_row_of_the_table_of_paths() {
    let server = server();
    put_account(&server, "1");
    for (path, expected) in [
        (".registerTime", json!([10000])),
        ("^.id", json!(["abCd"])),
        (".nonExist", json!([])),
        ("(.registerTime|.nonExist|.id)", json!([10000, "abCd"])),
        (".chargeRecords[*].time", json!([1, 2])),
        (".chargeRecords[0].time", json!([1])),
        (".chargeRecords[-1].time", json!([2])),
        (r#".devApps("a"|"zz").numBlackApps"#, json!([1])),
        (r#".devApps(~"a.*").numBlackApps"#, json!([1])),
        (".devApps{.numBlackApps>2}.numBlackApps", json!([3])),
        (".chargeRecords{.time*100==.amount}.time", json!([1])),
        // Cases that the old implementation got wrong.
        (".chargeRecords[0:1].time", json!([1])),
        (".chargeRecords[0:9].time", json!([1, 2])),
        (".chargeRecords[7]", json!([])),
        ("..time", json!([1, 2])),
        (".chargeRecords{.amount<0}[0].time", json!([2])),
        (".chargeRecords{(.time+1)*2==6}.time", json!([2])),
        (".chargeRecords{.nothing==1}", json!([])),
        (".devApps{.numBlackApps>1}{.numBlackApps<3}.numBlackApps", json!([2])),
    ] {
        assert_eq!(select(&server, "1", path), expected, "{path}");
    }
    let folded = select(&server, "1", r#".{.id=="ABCD"}"#);
    assert_eq!(folded.as_array().map(Vec::len), Some(1), "{folded}");
    assert_eq!(select(&server, "1", r#".{.id==="ABCD"}"#), json!([]));
    for (path, body, after, expected) in [
        (".chargeRecords{.amount<0}", None, ".chargeRecords[*].time", json!([1])),
        (r#".devApps("b")"#, None, ".devApps.*.numBlackApps", json!([1, 3])),
    ] {
        let body: Option<&str> = body;
        let reply = post(&server, "/account/delete/1", &body.map_or(path.to_owned(), |body| format!("{path}\n{body}")));
        ok(&reply);
        assert_eq!(select(&server, "1", after), expected, "{path}");
    }
    // An absent key is inserted. Several entries are several.
    ok(&post(&server, "/account/update/1", ".devApps(\"z\")\n{\"numBlackApps\":26}"));
    ok(&post(&server, "/account/insertall/1", ".devApps\n{\"x\":{},\"y\":{}}"));
    assert_eq!(select(&server, "1", r#".devApps("z").numBlackApps"#), json!([26]));
    assert_eq!(select(&server, "1", r#".devApps("x"|"y").numBlackApps"#), json!([0, 0]));
}

#[test]
fn scripts_run_on_changes_of_their_field_and_go_when_deleted() {
    let server = server();
    let listener = "import { service, query } from 'millrace';
        export default service({
          saw(ctx) { ctx.set('seen', (ctx.get('seen') ?? 0) + 1); },
          seen: query((ctx) => ctx.get('seen') ?? 0),
        });";
    assert_eq!(TestApp::with("watcher.ts", listener).deploy(&server, "listener").status, 201);
    let script = "ctx.log(`changed ${changes.length}`); ctx.send('listener/watcher', ctx.key, 'saw');";
    ok(&post(&server, "/personinfo/putscript/age/watch", script));
    ok(&post(&server, "/personinfo/update/5", ".age\n1"));
    ok(&post(&server, "/personinfo/update/5", ".name\n\"not watched\""));
    ok(&post(&server, "/personinfo/update/5", ".age\n2"));
    let seen = || server.value("watcher/5/seen", "");
    millrace_tests::wait_until("both changes were seen", || seen() == json!(2));
    assert_eq!(server.request("GET", "/personinfo/delscript/age/watch", &[], b"").text(), "OK");
    ok(&post(&server, "/personinfo/update/5", ".age\n3"));
    assert_eq!(seen(), json!(2));
    assert_eq!(post(&server, "/personinfo/putscript/age/broken", "this is not (").status, 422);
}
