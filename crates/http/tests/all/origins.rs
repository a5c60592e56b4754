//! Without keys, no stranger's web page gets to use the node through a browser on its machine.

use crate::support::{Reply, Server, patient};
use millrace_access::KeyFile;
use millrace_api::Role;
use millrace_http::{Front, Options, StartError};
use prometheus_client::registry::Registry;
use std::sync::atomic::Ordering;

/// Sends a call with exactly these headers.
fn ask(server: &Server, line: &str, headers: &str) -> Reply {
    let mut client = server.connect();
    client.send(format!("{line} HTTP/1.1\r\n{headers}content-length: 1\r\n\r\n1"));
    client.read_reply(true)
}

const CALL: &str = "POST /call/c/k/echo";

#[test]
fn a_simple_post_from_a_strangers_page_is_refused() {
    let server = Server::start(patient());
    let own = format!("host: {}\r\n", server.address);
    for origin in ["http://evil.test", "https://evil.test:8080", "null", "http://6.6.6.6"] {
        let refused = ask(&server, CALL, &format!("{own}origin: {origin}\r\n"));
        let document = refused.assert_problem("forbidden");
        assert!(document["detail"].as_str().is_some_and(|detail| detail.contains(origin)), "{document}");
    }
    assert_eq!(server.backend.shared.calls.load(Ordering::SeqCst), 0, "nothing took effect");
    let here = format!("http://{}", server.address);
    for origin in [here.as_str(), "http://localhost:5173", "http://test", "http://[::1]:1"] {
        assert_eq!(ask(&server, CALL, &format!("{own}origin: {origin}\r\n")).status, 200, "{origin}");
    }
    assert_eq!(ask(&server, CALL, &own).status, 200, "curl sends no Origin");
}

#[test]
fn what_a_strangers_page_loads_or_leads_to_changes_nothing() {
    let server = Server::start(patient());
    let ask = |path: &str, headers: &str| {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nhost: {}\r\n{headers}\r\n", server.address));
        client.read_reply(true)
    };
    let image = "sec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\nsec-fetch-dest: image\r\n";
    let link = "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\n";
    for path in ["/delschema/personinfo?force=true", "/personinfo/delscript/age/check"] {
        ask(path, image).assert_problem("forbidden");
        ask(path, link).assert_problem("forbidden");
        assert_ne!(ask(path, "sec-fetch-site: same-origin\r\nsec-fetch-mode: navigate\r\n").status, 403, "{path}");
    }
    ask("/user/x", image).assert_problem("forbidden");
    assert_eq!(ask("/user/x", link).status, 200, "somebody follows a link");
    assert_eq!(ask("/user/x", "sec-fetch-site: none\r\n").status, 200, "somebody types the address");
}

#[test]
fn a_name_that_was_rebound_to_loopback_is_refused() {
    let server = Server::start(patient());
    for line in [CALL, "GET /state/a/b", "GET /user/x", "GET /apps", "GET /metrics", "PUT /apps/a"] {
        let refused = ask(&server, line, "host: evil.test:8080\r\norigin: http://evil.test:8080\r\n");
        let document = refused.assert_problem("forbidden");
        assert!(document["detail"].as_str().is_some_and(|detail| detail.contains("--allowed-hosts")), "{document}");
        ask(&server, line, "host: evil.test:8080\r\n").assert_problem("forbidden");
    }
    let absolute = "POST http://evil.test/call/c/k/echo";
    ask(&server, absolute, "host: localhost\r\n").assert_problem("forbidden");
    assert_eq!(server.backend.shared.calls.load(Ordering::SeqCst), 0);
    for host in ["localhost", "127.0.0.1:8080", "[::1]:8080", "TEST:8080"] {
        assert_eq!(ask(&server, CALL, &format!("host: {host}\r\n")).status, 200, "{host}");
    }
    assert_eq!(ask(&server, "GET /healthz", "host: balancer.test\r\n").status, 200, "harmless, and asked by machines");
}

/// RFC 9112, 3.2. Of two, a proxy in front may have gone by the other.
#[test]
fn a_request_has_one_host() {
    let server = Server::start(patient());
    for line in [CALL, "GET /healthz", "GET /nowhere", "POST /healthz"] {
        for headers in ["", "host: localhost\r\nhost: localhost\r\n", "host: localhost\r\nHOST: evil.test\r\n"] {
            ask(&server, line, headers).assert_problem("bad-request");
        }
    }
    assert_eq!(server.backend.shared.calls.load(Ordering::SeqCst), 0, "nothing took effect");
    let mut client = server.connect();
    client.send(format!("{CALL} HTTP/1.0\r\ncontent-length: 1\r\n\r\n1"));
    assert_eq!(client.read_reply(true).status, 200, "HTTP/1.0 knew none");
}

#[test]
fn with_keys_a_page_has_none_and_no_host_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    let mut file = KeyFile::default();
    let token = file.add("root", &[1; 32], &[Role::parse("admin").expect("a role")], 0).expect("new");
    file.save(&path).expect("saved");
    let server = Server::start(Options { keys: Some(path), ..patient() });
    let headers = "host: shop.example\r\norigin: https://www.example\r\n";
    ask(&server, CALL, headers).assert_problem("unauthorized");
    assert_eq!(ask(&server, CALL, &format!("{headers}authorization: Bearer {token}\r\n")).status, 200);
}

#[test]
fn an_allowed_host_that_is_none_stops_the_start() {
    for wrong in ["http://shop.test", "shop.test:80", "*", ""] {
        let options = Options { allowed_hosts: vec!["ok.test".to_owned(), wrong.to_owned()], ..Options::default() };
        let error = Front::new(options, Registry::default()).expect_err(wrong);
        assert!(matches!(&error, StartError::AllowedHost(name) if name == wrong), "{error}");
        assert!(error.to_string().contains(&format!("{wrong:?}")));
    }
}
