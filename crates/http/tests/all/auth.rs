//! API keys and TLS, and their reload while the server runs.

use crate::support;

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{PATIENCE, Server, patient};
use millrace_access::KeyFile;
use millrace_api::Role;
use millrace_http::{Front, Options, StartError, TlsFiles};
use prometheus_client::registry::Registry;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls;

fn role(text: &str) -> Role {
    Role::parse(text).expect("a role")
}

fn with_keys(path: &Path) -> Options {
    let mut options = Options { keys: Some(path.to_owned()), ..patient() };
    options.timeouts.reload = Duration::from_millis(5);
    options
}

#[test]
fn each_key_may_do_what_its_roles_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    let mut file = KeyFile { anonymous: vec!["call:main/login".to_owned()], ..KeyFile::default() };
    let admin = file.add("root", &[1; 32], &[role("admin")], 0).expect("new");
    let caller = file.add("app", &[2; 32], &[role("call:main/counter")], 0).expect("new");
    let deployer = file.add("ci", &[3; 32], &[role("deploy")], 0).expect("new");
    file.save(&path).expect("saved");
    let server = Server::start(with_keys(&path));
    assert!(server.front.has_keys());
    let ask = |request: &str, token: &str| server.ask(&format!("{request}\nauthorization: Bearer {token}"), b"");
    assert_eq!(ask("POST /call/counter/k/echo", &caller).status, 200);
    ask("POST /call/account/k/echo", &caller).assert_problem("forbidden");
    ask("GET /state/account/k", &caller).assert_problem("forbidden");
    ask("GET /metrics", &caller).assert_problem("forbidden");
    ask("PUT /apps/x", &caller).assert_problem("forbidden");
    ask("GET /metrics", &deployer).assert_problem("forbidden");
    assert_eq!(ask("GET /apps", &deployer).status, 200);
    assert_eq!(ask("GET /metrics", &admin).status, 200);
    assert_eq!(ask("DELETE /apps/x", &admin).status, 204);
    let lower = server.ask(&format!("GET /apps\nauthorization: bearer {admin}"), b"");
    assert_eq!(lower.status, 200, "the scheme's case does not matter");
}

#[test]
fn who_brings_no_known_key_is_asked_for_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    let mut file = KeyFile { anonymous: vec!["call:main/login".to_owned()], ..KeyFile::default() };
    let token = file.add("root", &[1; 32], &[role("admin")], 0).expect("new");
    file.save(&path).expect("saved");
    let server = Server::start(with_keys(&path));
    for request in
        ["POST /call/counter/k/echo", "GET /apps", "PUT /apps/x", "GET /metrics", "GET /user/x", "GET /state/c/k"]
    {
        server.ask(request, b"").assert_problem("unauthorized");
        let forged = format!("{request}\nauthorization: Bearer {}x", &token[..token.len() - 1]);
        server.ask(&forged, b"").assert_problem("unauthorized");
    }
    server.ask("GET /apps\nauthorization: Basic dTpw", b"").assert_problem("unauthorized");
    server.ask("GET /apps\nauthorization: Bearer other", b"").assert_problem("unauthorized");
    for public in ["GET /healthz", "GET /readyz", "GET /openapi.json", "GET /errors/internal"] {
        assert_eq!(server.ask(public, b"").status, 200, "{public}");
    }
    let login = server.ask("GET /login/now\nauthorization: Basic dTpw", b"");
    assert_eq!((login.status, &login.json()["authorization"]), (200, &"Basic dTpw".into()));
    server.ask("GET /user/now\nauthorization: Basic dTpw", b"").assert_problem("unauthorized");
    let keyed = server.ask(&format!("GET /login/now\nauthorization: Bearer {token}"), b"");
    assert_eq!(keyed.status, 200);
    assert!(keyed.json()["authorization"].is_null(), "no route sees a key of the node");
    assert_eq!(server.ask("POST /call/login/k/echo", b"").status, 200);
}

#[test]
fn changed_keys_take_effect_and_broken_ones_do_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    let mut file = KeyFile::default();
    let first = file.add("first", &[1; 32], &[role("admin")], 0).expect("new");
    file.save(&path).expect("saved");
    let server = Server::start(with_keys(&path));
    let mut client = server.connect();
    let mut status = |token: &str| client.ask(&format!("GET /apps\nauthorization: Bearer {token}"), b"").status;
    assert_eq!(status(&first), 200);
    let second = file.add("second", &[2; 32], &[role("admin")], 0).expect("new");
    file.remove("first");
    file.save(&path).expect("saved");
    let deadline = std::time::Instant::now() + PATIENCE;
    while status(&second) != 200 {
        assert!(std::time::Instant::now() < deadline, "the new key is not accepted");
    }
    assert_eq!(status(&first), 401, "a removed key stops working on open connections too");
    std::fs::write(&path, "{ broken").expect("written");
    server.front.reload_changed();
    assert_eq!(status(&second), 200, "what cannot be read changes nothing");
    std::fs::remove_file(&path).expect("there");
    server.front.reload_changed();
    assert_eq!(status(&second), 200);
}

/// Writes a new self-signed certificate and its key.
pub fn write_certificate(files: &TlsFiles) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
    std::fs::write(&files.certificate, made.cert.pem()).expect("written");
    std::fs::write(&files.key, made.signing_key.serialize_pem()).expect("written");
    CertificateDer::from_pem_file(&files.certificate).expect("a certificate")
}

pub fn tls_in(folder: &Path) -> TlsFiles {
    TlsFiles { certificate: folder.join("cert.pem"), key: folder.join("key.pem") }
}

/// A blocking TLS connection that trusts one certificate.
pub fn tls_connect(
    address: SocketAddr,
    trusted: &CertificateDer<'static>,
    alpn: &[&[u8]],
) -> Result<Tls, rustls::Error> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from("localhost").expect("a name");
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name)?;
    let mut socket = TcpStream::connect(address).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("settable");
    while connection.is_handshaking() {
        if let Err(error) = connection.complete_io(&mut socket) {
            return Err(rustls::Error::General(error.to_string()));
        }
    }
    Ok(rustls::StreamOwned::new(connection, socket))
}

pub type Tls = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

pub fn ask_tls(stream: &mut Tls, request: &[u8]) -> Vec<u8> {
    use std::io::Write;
    stream.write_all(request).expect("sent");
    let mut answer = Vec::new();
    // The server's end of the connection says close_notify, or this is an error.
    stream.read_to_end(&mut answer).expect("a whole reply");
    answer
}

const CLOSING: &[u8] = b"POST /call/c/k/echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 3\r\n\r\n[1]";

#[test]
fn tls_serves_http1_and_http2_and_nothing_in_the_clear() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = tls_in(folder.path());
    let certificate = write_certificate(&files);
    let server = Server::start(Options { tls: Some(files), ..patient() });
    let mut plain = tls_connect(server.address, &certificate, &[]).expect("a handshake");
    let answer = ask_tls(&mut plain, CLOSING);
    assert!(answer.starts_with(b"HTTP/1.1 200") && answer.ends_with(b"[1]"));
    let both = tls_connect(server.address, &certificate, &[b"h2", b"http/1.1"]).expect("a handshake");
    assert_eq!(both.conn.alpn_protocol(), Some(&b"h2"[..]));
    let one = tls_connect(server.address, &certificate, &[b"http/1.1"]).expect("a handshake");
    assert_eq!(one.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(http2_over_tls(&server, &certificate));
    let mut clear = server.connect();
    clear.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
    let told = String::from_utf8(clear.read_to_end()).expect("text");
    assert!(told.starts_with("HTTP/1.1 400 ") && told.contains("https://"), "{told}");
    server.wait_for_metric("millrace_http_connection_errors_total", 1.0);
}

async fn http2_over_tls(server: &Server, trusted: &CertificateDer<'static>) {
    use http_body_util::{BodyExt, Full};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.expect("versions").with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = tokio::net::TcpStream::connect(server.address).await.expect("connected");
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = connector.connect(name, stream).await.expect("a handshake");
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.expect("HTTP/2");
    tokio::spawn(connection);
    let body = Full::new(hyper::body::Bytes::from_static(b"[2]"));
    let request = http::Request::post("https://localhost/call/c/k/echo").body(body).expect("a request");
    let response = sender.send_request(request).await.expect("a reply");
    assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), "[2]");
}

#[test]
fn a_replaced_certificate_is_used_without_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = tls_in(folder.path());
    let old = write_certificate(&files);
    let mut options = Options { tls: Some(files.clone()), ..patient() };
    options.timeouts.reload = Duration::from_millis(5);
    let server = Server::start(options);
    let mut open = tls_connect(server.address, &old, &[]).expect("a handshake");
    let new = write_certificate(&files);
    support::wait_until(
        || tls_connect(server.address, &new, &[]).is_ok(),
        || "the old certificate is still used".to_owned(),
    );
    assert!(tls_connect(server.address, &old, &[]).is_err());
    assert!(ask_tls(&mut open, CLOSING).ends_with(b"[1]"), "open connections go on");
    std::fs::write(&files.key, "no key").expect("written");
    server.front.reload_changed();
    assert!(tls_connect(server.address, &new, &[]).is_ok(), "what cannot be read changes nothing");
}

#[test]
fn a_handshake_that_does_not_come_is_timed_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = tls_in(folder.path());
    write_certificate(&files);
    let mut options = Options { tls: Some(files), ..patient() };
    options.timeouts.handshake = Duration::from_millis(30);
    let server = Server::start(options);
    let mut client = server.connect();
    client.send([22, 3, 1]);
    assert!(client.read_to_end().is_empty());
    server.wait_for_metric("millrace_http_timeouts_total{phase=\"handshake\"}", 1.0);
}

#[test]
fn files_that_cannot_be_used_stop_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = tls_in(folder.path());
    let start = |options: Options| Front::new(options, Registry::default()).expect_err("refused");
    let tls = || Options { tls: Some(files.clone()), ..Options::default() };
    assert!(matches!(start(tls()), StartError::Tls(path, _) if path == files.certificate));
    write_certificate(&files);
    let certificate = std::fs::read(&files.certificate).expect("there");
    write_certificate(&files);
    std::fs::write(&files.certificate, certificate).expect("written");
    assert!(matches!(start(tls()), StartError::Tls(path, _) if path == files.key), "a key of another certificate");
    std::fs::write(&files.certificate, "").expect("written");
    assert!(matches!(start(tls()), StartError::Tls(path, _) if path == files.certificate));
    let keys = Options { keys: Some(folder.path().join("keys.json")), ..Options::default() };
    assert!(matches!(start(keys), StartError::Keys(_)));
}
