//! Pages read what they may: preflights without a key, replies with one, and nothing for strangers.

use crate::support::{Reply, Server, patient};
use millrace_access::KeyFile;
use millrace_api::Role;
use millrace_http::{Front, Options, StartError};
use prometheus_client::registry::Registry;

const CALL: &str = "/call/c/k/echo";
const PREFLIGHT: &str =
    "access-control-request-method: POST\r\naccess-control-request-headers: authorization,content-type\r\n";

fn ask(server: &Server, line: &str, headers: &str) -> Reply {
    let mut client = server.connect();
    client.send(format!("{line} HTTP/1.1\r\nhost: {}\r\n{headers}content-length: 1\r\n\r\n1", server.address));
    client.read_reply(true)
}

/// A server with a key, and the header that has it.
fn with_keys(cors_origins: &[&str]) -> (tempfile::TempDir, Server, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    let mut file = KeyFile::default();
    let token = file.add("page", &[1; 32], &[Role::parse("call:*").expect("a role")], 0).expect("new");
    file.save(&path).expect("saved");
    let cors_origins = cors_origins.iter().map(|origin| (*origin).to_owned()).collect();
    let server = Server::start(Options { keys: Some(path), cors_origins, ..patient() });
    (folder, server, format!("authorization: Bearer {token}\r\n"))
}

fn assert_readable(reply: &Reply, origin: &str) {
    assert_eq!(reply.header("access-control-allow-origin"), Some(origin), "{reply:?}");
    assert_eq!(reply.header("vary"), Some("origin"), "{reply:?}");
    let has_credentials = reply.header("access-control-allow-credentials") == Some("true");
    assert_eq!(has_credentials, origin != "*", "cookies go only where the page is named: {reply:?}");
    assert!(reply.header("access-control-expose-headers").is_some_and(|names| names.contains("etag")), "{reply:?}");
}

fn assert_unreadable(reply: &Reply) {
    let given = reply.headers.iter().find(|(name, _)| name.starts_with("access-control-"));
    assert_eq!(given, None, "{reply:?}");
}

fn assert_preflight(reply: &Reply, origin: &str) {
    assert_eq!(reply.status, 204, "{reply:?}");
    assert_readable(reply, origin);
    assert!(reply.header("access-control-allow-methods").is_some_and(|methods| methods.contains("DELETE")));
    assert_eq!(reply.header("access-control-allow-headers"), Some("authorization,content-type"));
}

#[test]
fn pages_of_named_origins_ask_with_a_key_and_read_the_reply() {
    let (_folder, server, key) = with_keys(&["https://shop.test", "http://localhost:5173"]);
    for origin in ["https://shop.test", "http://localhost:5173"] {
        let page = format!("origin: {origin}\r\n");
        for path in [CALL, "/user/x", "/user/only-get", "/apps/a/user/x", "/records/t/1", "/apps", "/call/nothing"] {
            assert_preflight(&ask(&server, &format!("OPTIONS {path}"), &format!("{page}{PREFLIGHT}")), origin);
        }
        for (line, status) in [("POST /call/c/k/echo", 200), ("POST /user/x", 200), ("GET /call/nothing", 404)] {
            let reply = ask(&server, line, &format!("{page}{key}"));
            assert_eq!(reply.status, status);
            assert_readable(&reply, origin);
        }
        let refused = ask(&server, "POST /call/c/k/echo", &page);
        refused.assert_problem("unauthorized");
        assert_readable(&refused, origin);
    }
}

#[test]
fn pages_of_other_origins_read_nothing() {
    let (_folder, server, key) = with_keys(&["https://shop.test"]);
    for origin in ["https://evil.test", "http://shop.test", "https://shop.test.evil.test", "null", "http://localhost"] {
        let page = format!("origin: {origin}\r\n");
        assert_unreadable(&ask(&server, &format!("POST {CALL}"), &format!("{page}{key}")));
        assert_unreadable(&ask(&server, &format!("OPTIONS {CALL}"), &format!("{page}{PREFLIGHT}")));
        ask(&server, "OPTIONS /user/x", &format!("{page}{PREFLIGHT}")).assert_problem("unauthorized");
    }
    assert_unreadable(&ask(&server, &format!("POST {CALL}"), &key));
}

#[test]
fn all_origins_may_read_where_the_operator_says_so() {
    let (_folder, server, key) = with_keys(&["*"]);
    let page = "origin: https://anywhere.test\r\n";
    assert_preflight(&ask(&server, &format!("OPTIONS {CALL}"), &format!("{page}{PREFLIGHT}")), "*");
    assert_readable(&ask(&server, &format!("POST {CALL}"), &format!("{page}{key}")), "*");
}

#[test]
fn without_keys_the_pages_that_may_use_the_node_read_what_it_answers() {
    let cors_origins = vec!["https://tunnel.test".to_owned()];
    let server = Server::start(Options { cors_origins, ..patient() });
    for origin in ["http://localhost:5173", "http://127.0.0.1:3000", "https://tunnel.test"] {
        let page = format!("origin: {origin}\r\n");
        assert_preflight(&ask(&server, &format!("OPTIONS {CALL}"), &format!("{page}{PREFLIGHT}")), origin);
        let reply = ask(&server, &format!("POST {CALL}"), &page);
        assert_eq!(reply.status, 200);
        assert_readable(&reply, origin);
    }
    let page = "origin: https://evil.test\r\n";
    for line in ["POST /call/c/k/echo", "OPTIONS /user/x"] {
        let refused = ask(&server, line, &format!("{page}{PREFLIGHT}"));
        refused.assert_problem("forbidden");
        assert_unreadable(&refused);
    }
    assert_unreadable(&ask(&server, "OPTIONS /call/nothing", &format!("{page}{PREFLIGHT}")));
}

#[test]
fn an_app_that_answers_itself_is_left_alone() {
    let server = Server::start(patient());
    let page = "origin: http://localhost:5173\r\n";
    for line in ["OPTIONS /user/own-cors", "GET /user/own-cors"] {
        let reply = ask(&server, line, &format!("{page}{PREFLIGHT}"));
        assert_eq!(reply.header("access-control-allow-origin"), Some("https://own.test"));
        assert_eq!((reply.header("vary"), reply.header("access-control-max-age")), (None, Some("5")));
    }
    let plain = ask(&server, "OPTIONS /user/x", page);
    assert_eq!((plain.status, plain.header("x-route")), (200, Some("yes")), "no preflight: the app's own OPTIONS");
}

#[test]
fn origins_that_are_none_and_all_origins_without_keys_stop_the_start() {
    for wrong in ["shop.test", "https://shop.test/", ""] {
        let options = Options { cors_origins: vec!["https://ok.test".to_owned(), wrong.to_owned()], ..patient() };
        let error = Front::new(options, Registry::default()).expect_err(wrong);
        assert!(matches!(&error, StartError::CorsOrigin(origin) if origin == wrong), "{error}");
        assert!(error.to_string().contains(&format!("{wrong:?}")));
    }
    let options = Options { cors_origins: vec!["*".to_owned()], ..patient() };
    let error = Front::new(options, Registry::default()).expect_err("no keys");
    assert!(matches!(error, StartError::CorsWithoutKeys), "{error}");
}
