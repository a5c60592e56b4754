//! Promise 8: clear. Every error of the HTTP contract can be reached, and has its status, its stable code, a sentence
//! and a page. Everything that the contract names exists.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use millrace_tests::{Server, ServerOptions, TestApp, assert_problem, millrace, repository, wait_until};
use serde_json::Value;

fn server() -> Server {
    Server::start(ServerOptions::examples(&["counter", "login", "bank"]))
}

#[test]
fn what_does_not_exist_is_named() {
    let server = server();
    assert_eq!(server.value("counter/k/add", "3"), 3);
    for (method, path, code) in [
        ("POST", "/apps/none/call/counter/k/add", "unknown-app"),
        ("GET", "/apps/none/state/counter/k", "unknown-app"),
        ("GET", "/apps/none/counter/x", "unknown-app"),
        ("DELETE", "/apps/none", "unknown-app"),
        ("POST", "/call/none/k/add", "unknown-service"),
        ("POST", "/send/none/k/add", "unknown-service"),
        ("GET", "/state/none/k", "unknown-service"),
        ("GET", "/none/x", "unknown-service"),
        ("POST", "/apps/bank/call/counter/k/add", "unknown-service"),
        ("POST", "/call/counter/k/none", "unknown-handler"),
        ("POST", "/send/counter/k/none", "unknown-handler"),
        ("GET", "/counter/none", "unknown-route"),
        ("GET", "/user/none", "unknown-route"),
        ("GET", "//", "unknown-route"),
        ("POST", "/call/counter/k", "unknown-route"),
        ("POST", "/call/counter/k/add/more", "unknown-route"),
        ("GET", "/errors/none", "unknown-route"),
        ("GET", "/state/counter/none", "unknown-state"),
        ("GET", "/state/counter/k/none", "unknown-state"),
        ("GET", "/invocations/none", "unknown-invocation"),
        ("GET", "/invocations/3-999999", "unknown-invocation"),
        ("GET", "/invocations/99999-1", "unknown-invocation"),
    ] {
        let reply = server.request(method, path, &[], b"null");
        assert_problem(&reply, 404, code);
    }
    assert_eq!(server.value("counter/k/value", ""), 3);
}

#[test]
fn every_error_has_a_page_on_the_server_and_in_the_docs() {
    let server = server();
    let folder = repository().join("docs/errors");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the pages") {
        let path = entry.expect("a page").path();
        if path.file_name().is_some_and(|name| name == "README.md") {
            continue;
        }
        let code = path.file_stem().and_then(|stem| stem.to_str()).expect("a code").to_owned();
        let page = server.request("GET", &format!("/errors/{code}"), &[], b"");
        assert_eq!(page.status, 200, "{code}");
        assert!(page.header("content-type").is_some_and(|kind| kind.starts_with("text/markdown")), "{code}");
        assert!(page.text().contains("## What to do"), "{code}");
        assert_eq!(page.text(), std::fs::read_to_string(&path).expect("read"), "{code}");
        count += 1;
    }
    assert!(count >= 30, "{count} pages");
}

#[test]
fn a_wrong_method_names_the_right_ones() {
    let server = server();
    for (method, path, allow) in [
        ("GET", "/call/counter/k/add", "POST, OPTIONS"),
        ("POST", "/apps/x", "PUT, DELETE, OPTIONS"),
        ("DELETE", "/state/counter/k", "GET, HEAD, OPTIONS"),
        ("PUT", "/healthz", "GET, HEAD, OPTIONS"),
        ("PATCH", "/metrics", "GET, HEAD, OPTIONS"),
    ] {
        let reply = server.request(method, path, &[], b"");
        assert_problem(&reply, 405, "method-not-allowed");
        assert_eq!(reply.header("allow"), Some(allow), "{method} {path}");
        let options = server.request("OPTIONS", path, &[], b"");
        assert_eq!((options.status, options.header("allow")), (204, Some(allow)), "{path}");
    }
}

#[test]
fn a_wrong_method_on_a_route_names_the_right_ones() {
    let server = server();
    let reply = server.request("DELETE", "/user/login", &[], b"");
    assert_problem(&reply, 405, "method-not-allowed");
    let allow = reply.header("allow").unwrap_or_default();
    assert!(allow.split(", ").any(|method| method == "GET"), "Allow: {allow:?}");
}

#[test]
fn bad_requests_are_told_what_is_wrong_and_change_nothing() {
    let server = server();
    for input in ["{", "[1", "abc", "'1'", "1,2", "\u{1}"] {
        assert_problem(&server.call("counter/k/add", input), 400, "invalid-input");
    }
    for path in [
        "/call/counter/%/add".to_owned(),
        "/call/counter/%zz/add".to_owned(),
        "/call/counter//add".to_owned(),
        format!("/call/counter/{}/add", "k".repeat(1025)),
        "/call/counter/k/%ff".to_owned(),
        "/send/counter/k/add?delay_ms=-1".to_owned(),
        "/send/counter/k/add?delay_ms=1&delay_ms=2".to_owned(),
        "/send/counter/k/add?delay_ms=315360000001".to_owned(),
        "/send/counter/k/add?delay_ms=99999999999999999999".to_owned(),
    ] {
        assert_problem(&server.request("POST", &path, &[], b"1"), 400, "bad-request");
    }
    let long = format!("Idempotency-Key: {}", "k".repeat(256));
    for header in [long.as_str(), "Idempotency-Key:", "Idempotency-Key: a b", "Idempotency-Key: \u{e4}"] {
        assert_problem(&server.request("POST", "/call/counter/k/add", &[header], b"1"), 400, "bad-request");
        assert_problem(&server.request("POST", "/send/counter/k/add", &[header], b"1"), 400, "bad-request");
        assert_problem(&server.request("GET", "/user/login", &[header], b""), 400, "bad-request");
    }
    // The server would silently ignore one of two.
    let two = ["Idempotency-Key: a", "idempotency-key: b"];
    assert_problem(&server.request("POST", "/call/counter/k/add", &two, b"1"), 400, "bad-request");
    assert_problem(&server.request("POST", "/user/register", &two, b"{}"), 400, "bad-request");
    let body = vec![b' '; (4 << 20) + 1];
    assert_problem(&server.request("POST", "/call/counter/k/add", &[], &body), 413, "too-large");
    let header = format!("X-Long: {}", "x".repeat(17 << 10));
    assert_problem(&server.request("POST", "/call/counter/k/add", &[&header], b"1"), 431, "headers-too-large");
    let many: Vec<String> = (0..70).map(|number| format!("X-{number}: 1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_problem(&server.request("POST", "/call/counter/k/add", &many, b"1"), 431, "headers-too-large");
    assert_eq!(server.value("counter/k/value", ""), 0);
    assert_problem(&server.request("GET", "/state/counter/k", &[], b""), 404, "unknown-state");
}

#[test]
fn bytes_that_are_no_http_get_400_and_harm_nobody() {
    let server = server();
    for bytes in [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"GET\r\n\r\n", b"\0\0\0\0\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"]
    {
        let mut stream = TcpStream::connect(server.address()).expect("accepted");
        stream.write_all(bytes).expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("shut");
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        let text = String::from_utf8_lossy(&reply);
        assert!(reply.is_empty() || text.starts_with("HTTP/1.1 400") || text.starts_with("HTTP/1.1 505"), "{text}");
    }
    assert_eq!(server.value("counter/k/value", ""), 0);
}

#[test]
fn an_idempotency_key_belongs_to_one_request() {
    let server = server();
    let keyed = |path: &str, body: &[u8]| server.request("POST", path, &["Idempotency-Key: once"], body);
    for _ in 0..3 {
        assert_eq!(keyed("/call/counter/k/add", b"5").text(), "5");
    }
    assert_problem(&keyed("/call/counter/k/add", b"6"), 422, "idempotency-mismatch");
    assert_problem(&keyed("/send/counter/k/add", b"5"), 422, "idempotency-mismatch");
    // A query changes nothing, so a key means nothing to it.
    assert_eq!(keyed("/call/counter/k/value", b"null").text(), "5");
    assert_eq!(keyed("/call/account/k/deposit", b"5").text(), "5");
    assert_problem(&keyed("/call/account/k/withdraw", b"5"), 422, "idempotency-mismatch");
    assert_eq!(server.value("account/k/withdraw", "5"), 0);
    // An abort is an answer and is repeated like one, even if the call would succeed by now.
    let withdraw = || {
        let header = ["Idempotency-Key: withdraw"];
        server.request("POST", "/call/account/k/withdraw", &header, b"10")
    };
    assert_problem(&withdraw(), 409, "aborted");
    assert_eq!(server.value("account/k/deposit", "100"), 100);
    let again = withdraw();
    assert_problem(&again, 409, "aborted");
    assert_eq!(again.json()["payload"], serde_json::json!({ "balance": 0 }));
    // The key of a sent call names one invocation, however often the call is sent.
    let send = || server.request("POST", "/send/counter/s/add", &["Idempotency-Key: sent"], b"1");
    let (first, second) = (send(), send());
    assert_eq!((first.status, first.text()), (202, second.text()));
    // Routes take keys as well.
    let register = || {
        let body = br#"{"username":"ada","password":"correct horse"}"#;
        server.request("POST", "/user/register", &["Idempotency-Key: ada"], body)
    };
    assert_eq!((register().status, register().status), (201, 201));
    assert_eq!(server.value("counter/k/value", ""), 5);
}

#[test]
fn options_on_a_route_without_one_names_its_methods() {
    let server = server();
    let reply = server.request("OPTIONS", "/user/login", &[], b"");
    let allow = reply.header("allow").unwrap_or_default();
    assert!(allow.split(", ").any(|method| method == "GET"), "{} Allow: {allow:?}", reply.status);
}

#[test]
fn head_is_get_without_its_body() {
    let server = server();
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/apps", "/errors/internal"] {
        let reply = server.request("HEAD", path, &[], b"");
        assert_eq!((reply.status, reply.body.len()), (200, 0), "{path}");
    }
    assert_eq!(server.value("counter/k/add", "1"), 1);
    let mut connection = server.connect();
    let head = connection.request("HEAD", "/state/counter/k/value", &[], b"").expect("a reply");
    assert_eq!((head.status, head.header("content-length")), (200, Some("1")));
    let head = connection.request("HEAD", "/user/login", &[], b"").expect("a reply");
    assert_eq!(head.status, 401);
    let get = connection.request("GET", "/state/counter/k/value", &[], b"").expect("the connection is usable");
    assert_eq!(get.text(), "1");
}

#[test]
fn the_contract_is_valid_json_and_names_every_operation() {
    let server = server();
    let document = server.request("GET", "/openapi.json", &[], b"").json();
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")), "{document}");
    let guide = std::fs::read_to_string(repository().join("docs/guide/http.md")).expect("the guide");
    let table = guide.split("<!-- end of operations -->").next().unwrap_or_default();
    let mut rows = 0;
    for row in table.lines().filter_map(|line| line.strip_prefix("| ")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let (method, path) = (cells[0].to_ascii_lowercase(), cells[1].trim_matches('`'));
        if !path.starts_with('/') {
            continue;
        }
        let method = if method == "any" { "get" } else { &method };
        assert!(document["paths"][path][method].is_object(), "no {method} {path}");
        rows += 1;
    }
    assert!(rows >= 19, "{rows} rows");
}

/// The samples of a scrape, by name and labels. The function also checks the format.
fn samples(text: &str) -> HashMap<String, f64> {
    assert!(text.ends_with("# EOF\n"), "no end mark");
    let mut typed = std::collections::HashSet::new();
    let mut samples = HashMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(typed.insert(rest.split(' ').next().unwrap_or_default().to_owned()), "typed twice: {line}");
        } else if !line.starts_with('#') {
            let (sample, value) = line.rsplit_once(' ').expect("a sample");
            let name = sample.split('{').next().unwrap_or_default();
            let suffixes = ["_total", "_bucket", "_count", "_sum", ""];
            let is_typed =
                suffixes.iter().any(|suffix| name.strip_suffix(suffix).is_some_and(|name| typed.contains(name)));
            assert!(is_typed, "no type: {line}");
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
            assert!(samples.insert(sample.to_owned(), value).is_none(), "twice: {sample}");
        }
    }
    samples
}

#[test]
fn metrics_parse_and_move() {
    let server = server();
    let scrape = || server.request("GET", "/metrics", &[], b"");
    let before = samples(&scrape().text());
    for _ in 0..10 {
        assert_eq!(server.call("counter/k/add", "1").status, 200);
    }
    assert_eq!(server.call("counter/k/add", "\"x\"").status, 409);
    let reply = scrape();
    assert!(reply.header("content-type").is_some_and(|kind| kind.starts_with("application/openmetrics-text")));
    let after = samples(&reply.text());
    let moved = |name: &str| after.get(name).copied().unwrap_or(0.0) - before.get(name).copied().unwrap_or(0.0);
    assert_eq!(moved("millrace_log_entries_total"), 10.0);
    assert_eq!(moved("millrace_http_request_duration_seconds_count{operation=\"call\"}"), 11.0);
    assert_eq!(moved("millrace_http_requests_total{operation=\"call\",status=\"2xx\"}"), 10.0);
    assert_eq!(moved("millrace_http_requests_total{operation=\"call\",status=\"4xx\"}"), 1.0);
    let handler = "{app=\"counter\",service=\"counter\",handler=\"add\"}";
    assert_eq!(moved(&format!("millrace_handler_seconds_count{handler}")), 11.0);
    assert_eq!(moved(&format!("millrace_handler_errors_total{handler}")), 1.0);
    assert!(moved("millrace_fsync_seconds_count") >= 10.0 && moved("millrace_log_bytes_total") > 0.0);
    for name in [
        "millrace_group_size_count",
        "millrace_queued_requests",
        "millrace_resident_bytes",
        "millrace_limit_kills_cpu_total",
    ] {
        assert!(after.contains_key(name), "no {name}");
    }
}

#[test]
fn health_and_readiness_are_plain() {
    let server = server();
    for path in ["/healthz", "/readyz"] {
        let reply = server.request("GET", path, &[], b"");
        assert_eq!((reply.status, reply.text().as_str()), (200, "ok\n"));
    }
}

#[test]
fn state_is_read_as_json_and_as_bytes() {
    let server = server();
    let source = "import { service } from 'millrace';
        export default service({ put(ctx) {
          ctx.set('bytes', new Uint8Array([0, 1, 254, 255]));
          ctx.set('text', 'ü\\n\"'); ctx.set('object', { a: [1, null] }); ctx.set('a/b', 0); } });";
    assert_eq!(TestApp::with("blob.ts", source).deploy(&server, "blob").status, 201);
    assert_eq!(server.value("blob/%2F%00%FF/put", ""), Value::Null);
    let state = |field: &str| server.request("GET", &format!("/state/blob/%2F%00%FF{field}"), &[], b"");
    let bytes = state("/bytes");
    assert_eq!(bytes.header("content-type"), Some("application/octet-stream"));
    assert_eq!(bytes.body, [0, 1, 254, 255]);
    assert_eq!(state("/text").json(), "ü\n\"");
    assert_eq!(state("/a%2Fb").json(), 0);
    let all = state("");
    assert_eq!(all.header("content-type"), Some("application/json"));
    let expected = serde_json::json!({
        "a/b": 0, "bytes": { "base64": "AAH+/w==" }, "object": { "a": [1, null] }, "text": "ü\n\"",
    });
    assert_eq!(all.json(), expected);
}

#[test]
fn a_large_state_is_read_in_pages() {
    let server = server();
    let source = "import { service } from 'millrace';
        export default service({ fill(ctx, [from, to]) { for (let i = from; i < to; i++) ctx.set(`f/${i}`, i); ctx.set('g', 0); } });";
    assert_eq!(TestApp::with("large.ts", source).deploy(&server, "large").status, 201);
    for from in [0, 5000, 10_000] {
        assert_eq!(server.value("large/k/fill", &format!("[{from}, {}]", from + 5000)), Value::Null);
    }
    let refused = server.request("GET", "/state/large/k", &[], b"");
    assert_problem(&refused, 400, "bad-request");
    assert!(refused.text().contains("?limit=1000&after="), "{}", refused.text());
    let (mut found, mut after) = (std::collections::BTreeMap::new(), String::new());
    loop {
        let page = server.get(&format!("/state/large/k?prefix=f%2F&limit=1000{after}"));
        let Value::Object(fields) = page else { panic!("{page}") };
        assert!(fields.len() <= 1000, "{}", fields.len());
        let Some(last) = fields.keys().max() else { break };
        after = format!("&after={}", last.replace('/', "%2F"));
        for (name, value) in fields {
            assert_eq!(found.insert(name, value), None, "twice");
        }
    }
    let expected = (0..15_000).map(|number| (format!("f/{number}"), Value::from(number)));
    assert_eq!(found, expected.collect());
    assert_eq!(server.get("/state/large/k?limit=1&after=f%2F9999"), serde_json::json!({ "g": 0 }));
    assert_eq!(server.get("/state/large/nobody?limit=5"), serde_json::json!({}));
}

#[test]
fn a_sent_call_is_pending_then_succeeds_or_fails() {
    let server = server();
    let send = |path: &str, body: &[u8]| server.request("POST", &format!("/send/{path}"), &[], body);
    let sent = send("counter/late/add?delay_ms=1500", b"7");
    assert_eq!(sent.status, 202);
    let id = sent.json()["id"].as_str().expect("an id").to_owned();
    let place = format!("/invocations/{id}");
    assert_eq!(sent.header("location"), Some(place.as_str()));
    let status = || server.request("GET", &place, &[], b"").json();
    assert_eq!(status(), serde_json::json!({ "id": id, "status": "pending" }));
    assert_eq!(server.value("counter/late/value", ""), 0);
    wait_until("the call has run", || status()["status"] == "succeeded");
    assert_eq!(status(), serde_json::json!({ "id": id, "status": "succeeded", "output": 7 }));
    assert_eq!(server.value("counter/late/value", ""), 7);
    let failing = send("account/poor/withdraw", b"5").json()["id"].as_str().expect("an id").to_owned();
    let status = || server.request("GET", &format!("/invocations/{failing}"), &[], b"").json();
    wait_until("the call has failed", || status()["status"] == "failed");
    assert_eq!((&status()["error"]["code"], &status()["error"]["status"]), (&"aborted".into(), &409.into()));
    assert_eq!(status()["error"]["payload"], serde_json::json!({ "balance": 0 }));
}

/// Input that no handler could ever take is refused while its sender still listens.
#[test]
fn a_sent_call_with_bad_input_is_refused_at_once() {
    let server = server();
    for input in ["{", "abc"] {
        let reply = server.request("POST", "/send/counter/k/add", &[], input.as_bytes());
        assert_problem(&reply, 400, "invalid-input");
    }
}

#[test]
fn calls_to_other_shards_join_the_transaction() {
    let server = server();
    let _ = server.value("account/ada/deposit", "10");
    let transfer = |to: usize, amount: u64| {
        let input = serde_json::json!({ "to": format!("bob{to}"), "amount": amount }).to_string();
        server.call("account/ada/transfer", &input)
    };
    // The accounts of about ten of 64 shards.
    for to in 0..10 {
        assert_eq!(transfer(to, 1).status, 200, "to bob{to}");
    }
    assert_problem(&transfer(0, 1), 409, "aborted");
    for to in 0..10 {
        assert_eq!(server.value(&format!("account/bob{to}/balance"), ""), 1);
    }
    assert_eq!(server.value("account/ada/balance", ""), 0);
}

#[test]
fn types_are_written_for_editors() {
    let types = millrace(&["types", "--out", "-"]);
    assert_eq!(types.code, Some(0));
    for word in ["declare module \"millrace\"", "service", "query", "Abort"] {
        assert!(types.out.contains(word), "no {word}");
    }
}
