//! The URLs of the server before this one.

use std::collections::HashSet;

use crate::support::{Reply, Server, patient};

fn assert_ok(reply: &Reply) {
    assert_eq!((reply.status, &reply.body[..]), (200, &b"OK"[..]), "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("text/plain; charset=UTF-8"));
}

#[test]
fn records_and_fields_are_read_and_put() {
    let server = Server::start(patient());
    let mut client = server.connect();
    for path in ["/personinfo/get/1", "/personinfo/get/1/"] {
        let reply = client.ask(&format!("GET {path}"), b"");
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
        assert_eq!((&reply.body[..], reply.header("etag")), (&b"{\"name\":\"\",\"age\":0}"[..], None));
        assert_eq!(server.asked_one(), "personinfo 1 Get { form: Json } -");
    }
    assert_eq!(client.ask("GET /personinfo/get/1/name", b"").body, b"\"name\"");
    assert_eq!(server.asked_one(), "personinfo 1 GetField { field: \"name\", form: Json } -");
    assert_ok(&client.ask("POST /personinfo/put/a%2Fb\nidempotency-key: k", b"{\"age\":1}"));
    let asked = server.asked_one();
    assert!(asked.starts_with("personinfo a/b Write") && asked.contains("Put {") && asked.ends_with(" k"), "{asked}");
    assert_ok(&client.ask("POST /personinfo/put/1/age/", b"60"));
    assert!(server.asked_one().contains("PutField { field: \"age\""));
    client.ask("GET /personinfo/get/missing", b"").assert_problem("unknown-record");
    client.ask("GET /none/get/1", b"").assert_problem("unknown-type");
    client.ask("GET /personinfo/get/1?benchmark=5", b"").assert_problem("bad-request");
    for path in ["GET /personinfo/get/", "POST /personinfo/put/", "POST /personinfo/select/"] {
        let empty = client.ask(path, b"").assert_problem("bad-request");
        assert!(empty["detail"].as_str().is_some_and(|text| text.contains("id in the URL is empty")), "{empty}");
    }
    assert_eq!(client.ask("GET /personinfo/get/1?timeout=1000", b"").status, 200);
    assert_ok(&client.ask("POST /personinfo/update/1?timeout=1000", b".age\n1"));
    client.ask("POST /personinfo/update/1?timeout=soon", b".age\n1").assert_problem("bad-request");
    for header in ["if-match: \"x\"", "if-none-match: *", "millrace-ttl: 5"] {
        client.ask(&format!("POST /personinfo/put/1/age\n{header}"), b"60").assert_problem("bad-request");
    }
}

#[test]
fn a_benchmark_draws_ids() {
    let server = Server::start(patient());
    let mut client = server.connect();
    for _ in 0..200 {
        assert_eq!(client.ask("GET /personinfo/get/1?benchmark_only=10", b"").status, 200);
        assert_ok(&client.ask("POST /personinfo/put/1?benchmark_only=10", b"{}"));
    }
    let ids: HashSet<u32> =
        server.asked().iter().map(|line| line.split(' ').nth(1).expect("an id").parse().expect("a number")).collect();
    assert_eq!(ids, (1..=10).collect());
    client.ask("GET /personinfo/get/1?benchmark_only=0", b"").assert_problem("bad-request");
    client.ask("GET /personinfo/get/1?benchmark_only=x", b"").assert_problem("bad-request");
}

#[test]
fn paths_come_in_bodies() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let selected = client.ask("POST /account/select/1", b".chargeRecords[*].time\r\n");
    assert_eq!((selected.status, &selected.body[..]), (200, &b"[1,2]"[..]));
    assert!(server.asked_one().contains("Select { path: \".chargeRecords[*].time\""));
    for (operation, kind) in [("update", "Set"), ("insert", "Insert"), ("insertall", "InsertAll")] {
        for line_break in ["\n", "\r", "\r\n"] {
            let body = format!(".devApps{line_break}{{\"g\":{{}}}}");
            let reply = client.ask(&format!("POST /account/{operation}/12345"), body.as_bytes());
            assert_ok(&reply);
            assert_eq!(reply.header("millrace-matched"), Some("1"));
            let asked = server.asked_one();
            let step = format!("{{ kind: {kind}, path: \".devApps\", value: Some(\"{{\\\"g\\\":{{}}}}\") }}");
            assert!(asked.contains(&step), "{asked}");
        }
        client.ask(&format!("POST /account/{operation}/1"), b".devApps").assert_problem("bad-request");
    }
    for (operation, kind) in [("delete", "Delete"), ("clear", "Clear")] {
        assert_ok(&client.ask(&format!("POST /account/{operation}/1"), b".devApps\n"));
        let asked = server.asked_one();
        assert!(asked.contains(&format!("{{ kind: {kind}, path: \".devApps\", value: None }}")), "{asked}");
    }
    let none = client.ask("POST /account/update/1", b".nothing\n1");
    none.assert_problem("no-match");
    assert_eq!(none.header("millrace-matched"), Some("0"));
}

#[test]
fn a_service_goes_before_a_type_and_other_paths_are_no_operations() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let route = client.ask("GET /user/get/1?x=1", b"").json();
    assert_eq!((&route["service"], &route["path"], &route["query"]), (&"user".into(), &"/get/1".into(), &"x=1".into()));
    let route = client.ask("GET /apps/shop/personinfo/get/1", b"");
    route.assert_problem("unknown-service");
    client.ask("GET /personinfo/other/1", b"").assert_problem("unknown-service");
    for (request, allow) in [
        ("POST /personinfo/get/1", "GET, HEAD, OPTIONS"),
        ("PUT /personinfo/put/1/name", "POST, OPTIONS"),
        ("GET /personinfo/update/1/", "POST, OPTIONS"),
    ] {
        let wrong = client.ask(request, b"");
        wrong.assert_problem("method-not-allowed");
        assert_eq!(wrong.header("allow"), Some(allow), "{request}");
    }
    assert!(server.asked().is_empty());
}

#[test]
fn ping_answers_pong() {
    let server = Server::start(patient());
    for path in ["/ping", "/ping/"] {
        assert_eq!(server.ask(&format!("GET {path}"), b"").body, b"pong");
    }
    server.ask("GET /healthz/", b"").assert_problem("unknown-route");
}

const PERSON: &[u8] = br#"[
    {"type":"record","name":"Other","namespace":"x","fields":[]},
    {"type":"record","name":"PersonInfo","namespace":"x","fields":[{"name":"name","type":"string","default":""}]}
]"#;

#[test]
fn types_and_scripts_are_put_and_deleted() {
    let server = Server::start(patient());
    let mut client = server.connect();
    assert_ok(&client.ask("POST /putschema/personinfo/?fullname=x.PersonInfo&timeout=1000", PERSON));
    let made = client.ask("GET /schemas/personinfo", b"").json();
    assert_eq!((&made["schema"]["name"], &made["create"]), (&"x.PersonInfo".into(), &"touch".into()));
    client.ask("POST /putschema/personinfo", PERSON).assert_problem("invalid-schema");
    client.ask("POST /putschema/personinfo?name=x", PERSON).assert_problem("bad-request");
    assert_ok(&client.ask("POST /personinfo/putscript/name/log", b"ctx.log(record);"));
    let trigger = client.ask("GET /schemas/personinfo", b"").json()["triggers"][0].clone();
    let expected = serde_json::json!({"name": "log", "path": ".name", "when": "after", "source": "ctx.log(record);"});
    assert_eq!(trigger, expected);
    assert_ok(&client.ask("GET /personinfo/delscript/name/log/", b""));
    assert_eq!(client.ask("GET /schemas/personinfo", b"").json()["triggers"], serde_json::json!([]));
    client.ask("GET /personinfo/delscript/name/log", b"").assert_problem("unknown-handler");
    assert_ok(&client.ask("GET /delschema/personinfo", b""));
    client.ask("GET /delschema/personinfo", b"").assert_problem("unknown-type");
}

#[test]
fn a_get_that_changes_something_is_no_head() {
    let server = Server::start(patient());
    for path in ["/delschema/personinfo", "/personinfo/delscript/age/check"] {
        let reply = server.ask(&format!("HEAD {path}"), b"");
        assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, OPTIONS")), "{path}");
        assert_eq!(server.ask(&format!("DELETE {path}"), b"").header("allow"), Some("GET, OPTIONS"), "{path}");
    }
    let several = server.ask("POST /records/personinfo/changes", b"");
    assert_eq!(several.header("allow"), Some("GET, HEAD, PUT, PATCH, DELETE, OPTIONS"));
}
