//! Every operation, and every way to get one wrong.

use crate::support;

use crate::support::{Client, Server, patient};
use millrace_base::{ErrorCode, limits};
use serde_json::json;
use std::sync::atomic::Ordering;

fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, path, *content).expect("in memory");
    }
    builder.into_inner().expect("in memory")
}

#[test]
fn a_call_takes_json_and_returns_json() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let reply = client.ask("POST /call/counter/alice/echo", b"{\"a\": 1}");
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    assert_eq!(reply.body, b"{\"a\": 1}");
    assert_eq!(client.ask("POST /call/counter/alice/echo", b"").body, b"null");
    let reply = client.ask("POST /apps/shop/call/cart/a%2Fb%00%ff/show\nidempotency-key: k-1", b"1");
    let shown = json!({"app": "shop", "service": "cart", "key": [97, 47, 98, 0, 255], "idempotency_key": "k-1", "input_bytes": 1});
    assert_eq!(reply.json(), shown);
    let chunked = b"POST /call/c/k/show HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n";
    client.send(chunked);
    assert_eq!(client.read_reply(true).json()["input_bytes"], 5);
}

/// RFC 9112, 6.1 and 7. What is framed in a way that others may read otherwise is answered, and is the connection's last.
#[test]
fn a_body_comes_in_chunks_once_or_not_at_all() {
    let server = Server::start(patient());
    for coding in ["chunked, chunked", "gzip, chunked", "identity, chunked", "chunked\r\ntransfer-encoding: chunked"] {
        let mut client = server.connect();
        let head = format!("POST /call/c/k/show HTTP/1.1\r\nhost: x\r\ntransfer-encoding: {coding}\r\n\r\n");
        client.send(format!("{head}3\r\n[1]\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"));
        let reply = client.read_reply(true);
        assert_eq!((reply.status, reply.header("connection")), (400, Some("close")), "{coding}: {reply:?}");
        assert_eq!(client.read_to_end(), b"", "{coding}: nothing behind it is answered");
    }
    let mut client = server.connect();
    client.send("POST /call/c/k/show HTTP/1.1\r\nhost: x\r\ntransfer-encoding: Chunked \r\n\r\n3\r\n[1]\r\n0\r\n\r\n");
    assert_eq!(client.read_reply(true).status, 200);
    assert_eq!(server.backend.shared.calls.load(std::sync::atomic::Ordering::SeqCst), 1, "only the last took effect");
}

#[test]
fn a_call_that_is_wrong_says_what_is_wrong() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let aborted = client.ask("POST /call/account/a/abort", b"").assert_problem("aborted");
    assert_eq!((&aborted["detail"], &aborted["payload"]), (&json!("insufficient funds"), &json!({"balance": 3})));
    let long_key = format!("POST /call/c/{}/echo", "k".repeat(limits::KEY_BYTES + 1));
    let long_idempotency = format!("POST /call/c/k/echo\nidempotency-key: {}", "k".repeat(256));
    for request in [
        "POST /call/c/%zz/echo",
        "POST /call/c//echo",
        "POST /call/c/k/%ff",
        &long_key,
        &long_idempotency,
        "POST /call/c/k/echo\nidempotency-key: a b",
        "POST /call/c/k/echo\nidempotency-key: \u{e4}",
        "POST /call/c/k/echo\nidempotency-key: a\nidempotency-key: b",
        "POST /call/c/k/echo\nidempotency-key: a\nidempotency-key: a",
        "POST /send/c/k/echo\nidempotency-key: a\nidempotency-key: b",
        "PATCH /user/a/c\nidempotency-key: a\nidempotency-key: b",
        "POST /send/c/k/echo?delay_ms=soon",
        "POST /send/c/k/echo?delay=5",
        "POST /send/c/k/echo?id=",
        "POST /send/c/k/echo?id=a%20b",
        "POST /send/c/k/echo?id=inv_0",
        "POST /send/c/k/echo?id=a&id=a",
        "POST /apps/shop/send/c/k/echo?delay_ms=5&dealy_ms=6",
        "POST /call/c/k/echo?delay_ms=5",
        "GET /state/c/k?field=f",
        "GET /apps?apps=shop",
        "GET /invocations/inv?after=x",
        "GET /state/c/%f",
        "PUT /apps/1shop",
    ] {
        client.ask(request, b"").assert_problem("bad-request");
    }
    client.ask("POST /call/c/k/nothing", b"").assert_problem("unknown-handler");
    assert_eq!(server.backend.shared.calls.load(Ordering::SeqCst), 2, "what is malformed reaches no handler");
}

#[test]
fn every_error_code_has_its_status_and_headers() {
    let server = Server::start(patient());
    let mut client = server.connect();
    for code in ErrorCode::all() {
        // Some of them end the connection.
        let reply = server.ask(&format!("POST /call/c/k/error-{}", code.as_str()), b"");
        reply.assert_problem(code.as_str());
        let page = client.ask(&format!("GET {}", reply.json()["type"].as_str().expect("text")), b"");
        assert_eq!(page.status, 200);
        assert!(page.header("content-type").expect("a type").starts_with("text/markdown"));
    }
    client.ask("GET /errors/no-such-code", b"").assert_problem("unknown-route");
}

#[test]
fn a_send_is_accepted_and_can_be_followed() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let reply = client.ask("POST /send/mail/bob/deliver?delay_ms=1500\nidempotency-key: k", b"{}");
    assert_eq!(reply.status, 202);
    assert_eq!(reply.json(), json!({"id": "deliver/1500 k"}));
    assert_eq!(reply.header("location"), Some("/invocations/deliver%2F1500%20k"));
    assert_eq!(client.ask("POST /apps/a/send/mail/bob/deliver", b"").json(), json!({"id": "deliver/0 -"}));
    assert_eq!(client.ask("POST /send/mail/bob/deliver?id=order-17", b"").json(), json!({"id": "order-17"}));
    let done = client.ask("GET /invocations/done", b"");
    assert_eq!(done.json(), json!({"id": "done", "status": "succeeded", "output": [1, 2]}));
    let failed = client.ask("GET /invocations/failed", b"").json();
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("aborted")));
    assert_eq!(client.ask("GET /invocations/pending", b"").json(), json!({"id": "pending", "status": "pending"}));
    client.ask("GET /invocations/other", b"").assert_problem("unknown-invocation");
}

#[test]
fn state_is_read_whole_or_by_field() {
    let server = Server::start(patient());
    let mut client = server.connect();
    assert_eq!(client.ask("GET /state/account/%00", b"").json(), json!({"app": null, "key": [0]}));
    assert_eq!(client.ask("GET /apps/bank/state/account/a", b"").json(), json!({"app": "bank", "key": [97]}));
    let page = client.ask("GET /state/account/a?prefix=f&after=f%2F&limit=2", b"").json();
    assert_eq!(page, "Page { prefix: [102], after: Some([102, 47]), limit: 2 }");
    for bad in ["limit=0", "limit=1001", "after=", "after=%f", "limit=1&limit=2"] {
        client.ask(&format!("GET /state/account/a?{bad}"), b"").assert_problem("bad-request");
    }
    let field = client.ask("GET /state/account/a/json", b"");
    assert_eq!((field.header("content-type"), &field.body[..]), (Some("application/json"), &b"17"[..]));
    let field = client.ask("GET /apps/bank/state/account/a/bytes%2F", b"");
    assert_eq!((field.header("content-type"), &field.body[..]), (Some("application/octet-stream"), &b"\x00\xff"[..]));
    client.ask("GET /state/account/a/other", b"").assert_problem("unknown-state");
}

#[test]
fn an_app_is_listed_with_its_versions_if_it_is_asked_for() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let main = json!({"name": "main", "version": "0000000000000003", "services": []});
    assert_eq!(client.ask("GET /apps", b"").json(), json!([main]));
    let version = |is_deployed: bool, version: &str, workflows: u64| json!({"version": version, "is_deployed": is_deployed, "workflows": workflows, "transactions": 0});
    let versions = json!([version(true, "0000000000000003", 0), version(false, "0000000000000002", 7)]);
    let listed = json!([{"name": "main", "version": "0000000000000003", "services": [], "versions": versions}]);
    assert_eq!(client.ask("GET /apps?app=main", b"").json(), listed);
    // One that was removed: something still runs in it.
    assert_eq!(client.ask("GET /apps?app=gone", b"").json()[0]["versions"], versions);
    client.ask("GET /apps?app=missing", b"").assert_problem("unknown-app");
    client.ask("GET /apps?app=1st", b"").assert_problem("bad-request");
}

#[test]
fn an_app_route_gets_the_whole_request() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let reply = client.ask("PATCH /user/a%20b/c?x=%31&y\nx-test: 1\nidempotency-key: k", b"hello");
    assert_eq!((reply.status, reply.header("x-route")), (200, Some("yes")));
    let expected = json!({
        "app": null, "service": "user", "method": "PATCH", "path": "/a%20b/c", "query": "x=%31&y", "x-test": "1",
        "authorization": null, "headers": 4, "body": "hello", "idempotency_key": "k",
    });
    assert_eq!(reply.json(), expected);
    let reply = client.ask("GET /apps/shop/user\nauthorization: Basic dTpw", b"").json();
    assert_eq!((&reply["app"], &reply["path"], &reply["query"]), (&json!("shop"), &json!("/"), &json!(null)));
    assert_eq!(reply["authorization"], "Basic dTpw");
    let head = client.ask("HEAD /user/x", b"");
    assert!(head.status == 200 && head.header("content-length").is_some_and(|length| length != "0"));
    assert_eq!(client.ask("OPTIONS /user/x", b"").json()["method"], "OPTIONS", "a service may answer CORS itself");
}

#[test]
fn a_routes_reply_cannot_break_the_connection() {
    let server = Server::start(patient());
    let mut client = server.connect();
    for path in ["/bad-header", "/bad-value", "/bad-status"] {
        client.ask(&format!("GET /user{path}"), b"").assert_problem("internal");
    }
    client.ask("GET /user/many-headers", b"").assert_problem("size-limit");
    let reply = client.ask("GET /user/own-framing", b"");
    assert_eq!(
        (reply.header("content-length"), reply.header("connection"), &reply.body[..]),
        (Some("2"), None, &b"hi"[..])
    );
    let both: Vec<_> = reply.headers.iter().filter(|(name, _)| name == "x-a").collect();
    assert_eq!(both.len(), 2, "a header may occur twice");
    client.ask("GET /user/missing", b"").assert_problem("unknown-route");
    let refused = client.ask("POST /user/only-get", b"");
    refused.assert_problem("method-not-allowed");
    assert_eq!(refused.header("allow"), Some("GET"));
}

#[test]
fn what_is_not_there_is_404_and_reserved_names_are_no_services() {
    let server = Server::start(patient());
    let mut client = server.connect();
    for path in
        ["//", "/call/a/b", "/c%61ll/a/b/echo", "/schemas/x/y", "/apps/a/send/x", "/favicon.ico", "/apps/", "/state"]
    {
        client.ask(&format!("POST {path}"), b"").assert_problem("unknown-route");
    }
}

#[test]
fn wrong_methods_name_the_right_ones() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let reply = client.ask("GET /call/a/b/c", b"");
    reply.assert_problem("method-not-allowed");
    assert_eq!(reply.header("allow"), Some("POST, OPTIONS"));
    let reply = client.ask("OPTIONS /apps/a", b"");
    assert_eq!((reply.status, reply.header("allow")), (204, Some("PUT, DELETE, OPTIONS")));
    assert_eq!(client.ask("OPTIONS *", b"").status, 204);
    let head = client.ask("HEAD /state/a/b", b"");
    assert_eq!((head.status, head.header("content-length")), (200, Some("23")));
    assert_eq!(client.ask("GET /healthz", b"").status, 200, "a HEAD's reply has no body");
}

#[test]
fn a_deployment_is_answered_with_what_is_to_be_known_of_it() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let archive = tar_of(&[("account.ts", b"export default 1")]);
    assert_eq!(client.ask("PUT /apps/bank", &archive).json().get("warnings"), None, "where there are none");
    let second = client.ask("PUT /apps/second", &archive);
    let warned = json!({
        "name": "second", "version": "0000000000000abc", "services": [],
        "warnings": [
            "from now on calls have to name an app, as in /apps/bank/…: the apps bank, second all have a service \"account\"",
        ],
    });
    assert_eq!((second.status, second.json()), (201, warned));
}

#[test]
fn an_app_is_deployed_listed_and_removed() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let archive = tar_of(&[("account.ts", b"export default 1"), ("lib/money.ts", &[b'x'; 100_000])]);
    let first = client.ask("PUT /apps/bank", &archive);
    assert_eq!((first.status, &first.json()["version"]), (201, &json!("0000000000000abc")));
    assert_eq!(client.ask("PUT /apps/bank", &archive).status, 200);
    let deployed = server.backend.shared.deployed.lock().expect("no panic").clone();
    assert_eq!(deployed[0].1[1].path, "lib/money.ts");
    assert_eq!(deployed[0].1[1].content.len(), 100_000);
    assert_eq!(client.ask("GET /apps", b"").json()[0]["name"], "main");
    assert_eq!(client.ask("DELETE /apps/bank", b"").status, 204);
    client.ask("DELETE /apps/missing", b"").assert_problem("unknown-app");
    client.ask("PUT /apps/bank", b"not a tar").assert_problem("bad-request");
    client.ask("PUT /apps/bank", b"").assert_problem("bad-request");
    client.ask("PUT /apps/bank", &tar_of(&[])).assert_problem("app-refused");
    assert_eq!(server.backend.shared.deployed.lock().expect("no panic").len(), 2);
}

#[test]
fn health_follows_the_node() {
    let server = Server::start(patient());
    let mut client = server.connect();
    assert_eq!(client.ask("GET /healthz", b"").body, b"ok\n");
    assert_eq!(client.ask("GET /readyz", b"").status, 200);
    server.backend.shared.is_read_only.store(true, Ordering::SeqCst);
    assert_eq!(client.ask("GET /healthz", b"").status, 200);
    client.ask("GET /readyz", b"").assert_problem("read-only");
    server.backend.shared.is_down.store(true, Ordering::SeqCst);
    client.ask("GET /healthz", b"").assert_problem("shutting-down");
    client.ask("GET /readyz", b"").assert_problem("shutting-down");
}

#[test]
fn metrics_count_what_happened() {
    let server = Server::start(patient());
    let mut client = server.connect();
    for _ in 0..3 {
        client.ask("POST /call/c/k/echo", b"1");
    }
    client.ask("POST /call/c/k/abort", b"");
    client.ask("GET /nothing.html", b"");
    let reply = client.ask("GET /metrics", b"");
    assert!(reply.header("content-type").expect("a type").starts_with("application/openmetrics-text"));
    let text = String::from_utf8(reply.body).expect("text");
    for line in [
        "millrace_http_requests_total{operation=\"call\",status=\"2xx\"} 3",
        "millrace_http_requests_total{operation=\"call\",status=\"4xx\"} 1",
        "millrace_http_requests_total{operation=\"none\",status=\"4xx\"} 1",
        "millrace_http_request_duration_seconds_count{operation=\"call\"} 4",
        "millrace_http_request_duration_seconds_bucket{le=\"+Inf\",operation=\"call\"} 4",
        "millrace_http_connections_total 1",
        "millrace_http_connections_open 1",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(server.metric("millrace_http_received_bytes_total") > 100.0);
    assert!(server.metric("millrace_http_sent_bytes_total") > 100.0);
    drop(client);
    support::wait_until(|| server.metric("millrace_http_connections_open") == 0.0, || "still open".to_owned());
}

#[test]
fn malformed_http_is_refused_and_the_server_lives_on() {
    let server = Server::start(patient());
    for bytes in [
        &b"\x00\x01\x02\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"POST /call/a/b/echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n12",
        b"POST /call/a/b/echo HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"GET /records/person?where=.age>60 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /records/person?where=.name==\"a\" HTTP/1.1\r\nhost: x\r\n\r\n",
    ] {
        let mut client = server.connect();
        client.send(bytes);
        let reply = client.read_reply(true);
        reply.assert_problem("bad-request");
        assert_eq!(reply.header("connection"), Some("close"), "{}", bytes.escape_ascii());
        assert!(client.read_to_end().is_empty());
    }
    assert_eq!(server.ask("GET /healthz", b"").status, 200);
    assert_eq!(server.backend.shared.calls.load(Ordering::SeqCst), 0);
    // The parts of the test client itself.
    assert!(Client::request("GET /", b"").ends_with(b"\r\n\r\n"));
}
