//! Users of S3 over the API: who may manage them, what is answered, and that a core's view follows.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use millrace_access::{DataKey, KeyFile, StoreError, UserStore, Users};
use millrace_api::Role;
use millrace_http::Options;

use crate::support::{Server, patient};

/// Keeps the table in memory, while there is room.
#[derive(Clone, Default)]
struct Memory {
    bytes: Arc<Mutex<Option<Vec<u8>>>>,
    is_full: Arc<AtomicBool>,
}

impl UserStore for Memory {
    fn read(&self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.bytes.lock().expect("whole").clone())
    }

    fn replace(&self, _: u64, bytes: &[u8]) -> Result<(), StoreError> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::StorageFull).into());
        }
        *self.bytes.lock().expect("whole") = Some(bytes.to_vec());
        Ok(())
    }

    fn data_key(&self) -> Result<DataKey, StoreError> {
        Ok(DataKey::derive(&[7; 32]))
    }
}

fn server_with_users(options: Options) -> (Server, Arc<Users>, Memory) {
    let store = Memory::default();
    let next = AtomicU8::new(1);
    let fill = move |bytes: &mut [u8]| bytes.fill(next.fetch_add(1, Ordering::Relaxed));
    let users = Users::open(store.clone(), fill).expect("empty");
    let server = Server::start(options);
    server.front.manage_users(Arc::clone(&users));
    (server, users, store)
}

#[test]
fn a_user_is_made_listed_and_removed() {
    let (server, users, _) = server_with_users(patient());
    let view = users.view();
    let body = br#"{"name":"Ann B.","email":"ann@example.com"}"#;
    let made = server.ask("POST /s3/users", body);
    assert_eq!(made.status, 201);
    assert_eq!(made.header("cache-control"), Some("no-store"));
    let made = made.json();
    let text = |name: &str| made[name].as_str().expect("text").to_owned();
    assert_eq!((text("display_name"), text("email")), ("Ann B.".to_owned(), "ann@example.com".to_owned()));
    assert_eq!((text("id").len(), text("access_key").len(), text("secret_key").len()), (64, 20, 40));
    assert_eq!(made.as_object().expect("an object").len(), 5);
    let found = view.find(&text("access_key")).expect("every core sees it at once");
    assert_eq!(*found.secret, *text("secret_key"));
    let listed = server.ask("GET /s3/users", b"");
    assert_eq!(listed.status, 200);
    assert!(!String::from_utf8_lossy(&listed.body).contains(&text("secret_key")));
    assert_eq!(listed.json()["users"][0]["keys"][0]["status"], "active");
    let chosen = br#"{"name":"bob","access_key":"0555b35654ad1656d804","secret_key":"h7GhxuBLTrlhVUyxSPUKUV8r/2EI4ngqJxD7iBdBYLhwluN30JaT3Q=="}"#;
    let chosen = server.ask("POST /s3/users", chosen).json();
    assert_eq!((chosen["access_key"].as_str(), chosen["email"].as_str()), (Some("0555b35654ad1656d804"), Some("")));
    assert_eq!(server.ask("DELETE /s3/users/Ann%20B.", b"").status, 204);
    assert!(view.find(&text("access_key")).is_none());
    server.ask(&format!("DELETE /s3/users/{}", text("id")), b"").assert_problem("object-refused");
    let id = chosen["id"].as_str().expect("text");
    assert_eq!(server.ask(&format!("DELETE /s3/users/{id}"), b"").status, 204);
    assert_eq!(server.ask("GET /s3/users", b"").json(), serde_json::json!({ "users": [] }));
}

#[test]
fn keys_are_made_listed_and_revoked() {
    let (server, users, _) = server_with_users(patient());
    server.ask("POST /s3/users", br#"{"name":"ann","access_key":"FIRST","secret_key":"12345678"}"#);
    let second = server.ask("POST /s3/users/ann/keys", b"");
    assert_eq!((second.status, second.header("cache-control")), (201, Some("no-store")));
    let second = second.json()["access_key"].as_str().expect("text").to_owned();
    let full = server.ask("POST /s3/users/ann/keys", b"{}");
    full.assert_problem("object-refused");
    assert_eq!(full.json()["payload"]["code"], "LimitExceeded");
    assert_eq!(server.ask("DELETE /s3/users/ann/keys/FIRST", b"").status, 204);
    assert!(users.view().find("FIRST").is_none() && users.view().find(&second).is_some());
    let keys = server.ask("GET /s3/users/ann/keys", b"").json();
    assert_eq!((&keys["keys"][0]["status"], &keys["keys"][1]["status"]), (&"revoked".into(), &"active".into()));
    let taken = server.ask("POST /s3/users/ann/keys", br#"{"access_key":"FIRST","secret_key":"12345678"}"#);
    assert_eq!(taken.json()["payload"]["code"], "EntityAlreadyExists");
    for unknown in ["GET /s3/users/bob/keys", "DELETE /s3/users/bob", "DELETE /s3/users/ann/keys/OTHER"] {
        assert_eq!(server.ask(unknown, b"").json()["payload"]["code"], "NoSuchEntity", "{unknown}");
    }
}

#[test]
fn what_is_malformed_or_cannot_be_kept_is_refused() {
    let (server, users, store) = server_with_users(patient());
    for (body, code) in [
        (&b""[..], "invalid-input"),
        (b"{", "invalid-input"),
        (b"[]", "bad-request"),
        (b"{}", "bad-request"),
        (br#"{"name":7}"#, "bad-request"),
        (br#"{"name":""}"#, "bad-request"),
        (br#"{"name":"a","more":1}"#, "bad-request"),
        (br#"{"name":"a","email":"b"}"#, "bad-request"),
        (br#"{"name":"a","access_key":"KEY"}"#, "bad-request"),
        (br#"{"name":"a","access_key":"A/B","secret_key":"12345678"}"#, "bad-request"),
    ] {
        server.ask("POST /s3/users", body).assert_problem(code);
    }
    server.ask("DELETE /s3/users/a%FF", b"").assert_problem("bad-request");
    server.ask("GET /s3/users?limit=1", b"").assert_problem("bad-request");
    server.ask("PUT /s3/users", b"").assert_problem("method-not-allowed");
    server.ask("GET /s3/nothing", b"").assert_problem("unknown-route");
    store.is_full.store(true, Ordering::Relaxed);
    server.ask("POST /s3/users", br#"{"name":"ann"}"#).assert_problem("read-only");
    assert!(users.list().is_empty());
    let without = Server::start(patient());
    without.ask("GET /s3/users", b"").assert_problem("not-yet-supported");
}

#[test]
fn only_administrators_manage_users() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    let mut file = KeyFile::default();
    let role = |text: &str| [Role::parse(text).expect("a role")];
    let admin = file.add("root", &[1; 32], &role("admin"), 0).expect("new");
    let others = [
        file.add("ci", &[2; 32], &role("deploy"), 0).expect("new"),
        file.add("app", &[3; 32], &role("call:*"), 0).expect("new"),
    ];
    file.save(&path).expect("saved");
    let (server, users, _) = server_with_users(Options { keys: Some(path), ..patient() });
    let (secret, body) = ("12345678", br#"{"name":"ann","access_key":"FIRST","secret_key":"12345678"}"#);
    let operations = [
        ("POST /s3/users", &body[..]),
        ("GET /s3/users", b""),
        ("DELETE /s3/users/ann", b""),
        ("POST /s3/users/ann/keys", b""),
        ("GET /s3/users/ann/keys", b""),
        ("DELETE /s3/users/ann/keys/FIRST", b""),
    ];
    for (request, body) in operations {
        server.ask(request, body).assert_problem("unauthorized");
        for token in &others {
            server.ask(&format!("{request}\nauthorization: Bearer {token}"), body).assert_problem("forbidden");
        }
    }
    assert!(users.list().is_empty());
    let made = server.ask(&format!("POST /s3/users\nauthorization: Bearer {admin}"), body);
    assert_eq!((made.status, made.json()["secret_key"].as_str()), (201, Some(secret)));
}

#[test]
fn buckets_are_listed_measured_and_bounded() {
    let (server, _, _) = server_with_users(patient());
    let ann = server.ask("POST /s3/users", br#"{"name":"ann"}"#).json();
    let id = ann["id"].as_str().expect("text");
    let bucket =
        |name| serde_json::json!({ "name": name, "owner": id, "owner_name": "ann", "created_ms": 7, "app": "shop" });
    let listed = server.ask("GET /s3/buckets", b"").json();
    assert_eq!(listed, serde_json::json!({ "buckets": [bucket("a"), bucket("b")] }));
    let expected = serde_json::json!({
        "name": "photos", "owner": "id", "created_ms": 7, "objects": 3, "size_bytes": 30, "quota_bytes": 100,
        "app": "shop", "slices": 4,
    });
    assert_eq!(server.ask("GET /s3/buckets/photos", b"").json(), expected);
    for (request, body) in [
        ("GET /s3/buckets/missing", &b""[..]),
        ("PUT /s3/buckets/missing/quota", br#"{"quota_bytes":5}"#),
        ("PUT /s3/buckets/missing/app", br#"{"app":null}"#),
        ("PUT /s3/buckets/missing/slices", br#"{"slices":2}"#),
    ] {
        let answer = server.ask(request, body);
        assert_eq!(answer.status, 404, "{request}");
        answer.assert_problem("unknown-state");
    }
    for body in [&br#"{"quota_bytes":5}"#[..], br#"{"quota_bytes":null}"#] {
        assert_eq!(server.ask("PUT /s3/buckets/photos/quota", body).status, 204);
    }
    for body in [&br#"{"app":"shop"}"#[..], br#"{"app":null}"#] {
        assert_eq!(server.ask("PUT /s3/buckets/photos/app", body).status, 204);
    }
    for body in ["", "{}", r#"{"app":5}"#] {
        server.ask("PUT /s3/buckets/photos/app", body.as_bytes()).assert_problem("bad-request");
    }
    assert_eq!(server.ask("PUT /s3/buckets/photos/slices", br#"{"slices":4}"#).status, 204);
    for body in ["", "{}", r#"{"slices":-1}"#, r#"{"slices":null}"#, r#"{"slices":100000}"#] {
        server.ask("PUT /s3/buckets/photos/slices", body.as_bytes()).assert_problem("bad-request");
    }
    for body in ["", "{}", "5", r#"{"quota_bytes":-1}"#, r#"{"quota_bytes":1.5}"#, r#"{"quota":1}"#] {
        server.ask("PUT /s3/buckets/photos/quota", body.as_bytes()).assert_problem("bad-request");
    }
}
