//! The login of users who live in somebody else's database (`examples/login`, `/user/mongo_login`). The test's
//! gateway answers as the gateway of `examples/login/outside` says it does, on a port of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_tests::{
    Answer, Outside, ReceivedRequest, Reply, Server, ServerOptions, TestApp, assert_problem, basic, free_address,
    repository,
};
use serde_json::json;

/// The address where the example looks for its gateway.
const DOCUMENTED: &str = "127.0.0.1:8090";

/// The user of the outside example with the hash that its database computes, and a user whose name and password have
/// other letters. Each is a percent-encoded name and hex SHA-1(password + salt).
const SALT: &str = "0123456789abcdef";
const USERS: [(&str, &str); 2] =
    [("alice", "275ffc7165607334ee9f2279840fbf9ea947c2bb"), ("Zo%C3%AB", "f241c6fb96424b10fc57db46ab904b6235025a3b")];

/// Answers like `gateway.lua`: no user or one user, or 503 while the database does not answer.
fn users(request: &ReceivedRequest, is_down: &AtomicBool) -> Answer {
    if is_down.load(Ordering::SeqCst) {
        return Answer::json(503, r#"{"message":"the database does not answer"}"#.into());
    }
    let Some(name) = request.path.strip_prefix("/users?username=eq.") else {
        return Answer::json(404, r#"{"message":"only /users is served"}"#.into());
    };
    let found = USERS.iter().find(|(known, _)| *known == name);
    let rows = found.map(|(name, hash)| json!({ "username": name, "salt": SALT, "hash": hash }));
    Answer::json(200, json!(rows.as_slice()).to_string())
}

struct Gateway {
    outside: Outside,
    is_down: Arc<AtomicBool>,
}

impl Gateway {
    fn start_at(address: SocketAddr) -> Self {
        let is_down = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&is_down);
        let outside = Outside::answering(address, move |request, _| Some(users(request, &shared)));
        Self { outside, is_down }
    }
}

/// Serves the example, which reaches this gateway instead of the documented one.
fn start(gateway: SocketAddr) -> Server {
    let read = |file: &str| {
        let text = std::fs::read_to_string(repository().join("examples/login").join(file)).expect(file);
        assert!(text.contains(DOCUMENTED), "{file} names no gateway");
        text.replace(DOCUMENTED, &gateway.to_string())
    };
    let app = TestApp::with("user.ts", &read("user.ts")).and("millrace.toml", &read("millrace.toml"));
    let server = Server::start(ServerOptions::examples(&[]));
    let reply = app.deploy(&server, "login");
    assert_eq!(reply.status, 201, "{}", reply.text());
    server
}

fn login(server: &Server, user: &str, password: &str) -> Reply {
    server.request("GET", "/user/mongo_login", &[&basic(user, password)], b"")
}

fn assert_refused(reply: &Reply) {
    assert_eq!((reply.status, reply.text().as_str()), (401, "unauthorized\n"));
    assert!(reply.header("www-authenticate").is_some_and(|realm| realm.starts_with("Basic ")), "no realm");
}

#[test]
fn outside_users_log_in_with_their_password_only() {
    let address = free_address();
    let gateway = Gateway::start_at(address);
    let server = start(address);
    for (user, password) in [("alice", "correct horse"), ("Zoë", "pässwörd")] {
        let reply = login(&server, user, password);
        assert_eq!((reply.status, reply.text().as_str()), (200, "ok"), "{user}");
        for wrong in ["", "wrong", &format!("{password} "), &format!("{password}{SALT}")] {
            assert_refused(&login(&server, user, wrong));
        }
    }
    for unknown in ["nobody", "ALICE", "alice'", "alice&username=eq.x", "eq.alice", "../alice"] {
        assert_refused(&login(&server, unknown, "correct horse"));
    }
    let asked = gateway.outside.asked();
    assert!(asked.iter().all(|one| one.method == "GET" && !one.headers.contains_key("authorization")), "{asked:?}");
    assert_eq!(asked.last().expect("one").path, "/users?username=eq...%2Falice", "a name leads elsewhere");
}

#[test]
fn without_credentials_nobody_is_asked() {
    let address = free_address();
    let gateway = Gateway::start_at(address);
    let server = start(address);
    for header in ["Accept: */*", "Authorization: Basic !!!", "Authorization: Basic", &basic("", "x")] {
        assert_refused(&server.request("GET", "/user/mongo_login", &[header], b""));
    }
    assert!(gateway.outside.asked().is_empty());
}

#[test]
fn while_the_database_or_its_gateway_is_down_the_answer_is_502_and_own_users_log_in() {
    let address = free_address();
    let server = start(address);
    let body = json!({ "username": "alice", "password": "own" }).to_string();
    assert_eq!(server.request("POST", "/user/register", &[], body.as_bytes()).status, 201);

    let nobody = login(&server, "alice", "correct horse");
    assert_problem(&nobody, 502, "fetch-failed");
    let own = server.request("GET", "/user/login", &[&basic("alice", "own")], b"");
    assert_eq!((own.status, own.text().as_str()), (200, "ok"));

    let gateway = Gateway::start_at(address);
    assert_eq!(login(&server, "alice", "correct horse").status, 200, "the gateway has come");
    gateway.is_down.store(true, Ordering::SeqCst);
    let down = login(&server, "alice", "correct horse");
    assert_eq!((down.status, down.text().as_str()), (502, "the user database does not answer\n"));
    assert_eq!(login(&server, "alice", "wrong").status, 502, "nobody can tell");
    gateway.is_down.store(false, Ordering::SeqCst);
    assert_eq!(login(&server, "alice", "correct horse").status, 200, "the database is back");
    // The two kinds of users do not mix.
    assert_refused(&login(&server, "alice", "own"));
    assert_refused(&server.request("GET", "/user/login", &[&basic("alice", "correct horse")], b""));
}
