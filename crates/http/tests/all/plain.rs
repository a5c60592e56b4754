//! Plain requests are answered as hyper would: the same request is sent twice, once with a header that means nothing
//! but makes it another's.

use crate::support;

use std::net::Shutdown;
use std::sync::MutexGuard;
use std::time::Duration;

use crate::support::backend::MockAdmissions;
use crate::support::{Client, Reply, Server, patient};
use millrace_http::Options;

/// Upgrades are hyper's, and this one is none that anybody knows.
const NOT_PLAIN: &str = "\nupgrade: nothing";

/// All of a reply but when it was sent. The order of headers means nothing.
fn comparable(reply: Reply) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let mut headers = reply.headers;
    let date = headers.iter().position(|(name, _)| name == "date").expect("a date");
    headers.remove(date);
    headers.sort();
    (reply.status, headers, reply.body)
}

#[test]
fn replies_are_those_of_hyper() {
    let server = Server::start(Options::default());
    for (head, body) in [
        ("GET /healthz", ""),
        ("GET /", ""),
        ("GET /nothing/here", ""),
        ("GET /call/c/k/echo", ""),
        ("OPTIONS /call/c/k/echo", ""),
        ("DELETE /apps/shop", ""),
        ("POST /call/c/k/echo", "[1,2]"),
        ("POST /call/c/k/echo\nconnection: close", "3"),
        ("POST /call/c/k/echo\nconnection: keep-alive", "3"),
        ("POST /call/c/k/echo\nhost: elsewhere.example", "3"),
        ("POST /call/c/k/show\nidempotency-key: a-key", "{}"),
        ("POST /call/c/k/show\nidempotency-key:", "{}"),
        ("POST /call/c/k/show\nidempotency-key: a\nidempotency-key: b", "{}"),
        ("POST /call/c/k/abort", "1"),
        ("POST /call/c/k/error-overloaded", "1"),
        ("POST /call/c/k/error-too-large", "1"),
        ("POST /call/c/k/large", "0"),
        ("POST /call/c/k/large", "16384"),
        ("POST /call/c/k/large", "16385"),
        ("POST /call/c/k/large", "3000000"),
        ("POST /call/c/%ff/echo", "1"),
        ("GET /user/anything?a=b&c", ""),
    ] {
        let plain = server.connect().ask(head, body.as_bytes());
        let other = server.connect().ask(&format!("{head}{NOT_PLAIN}"), body.as_bytes());
        assert_eq!(comparable(plain), comparable(other), "{head} {body}");
    }
}

/// A connection may go back and forth, and nothing is lost where it does.
#[test]
fn requests_of_both_kinds_share_a_connection() {
    let mut options = patient();
    options.timeouts.park = Duration::from_millis(10);
    let server = Server::start(options);
    let mut client = server.connect();
    for round in 0..3 {
        let mut burst = Vec::new();
        for (index, more) in ["", NOT_PLAIN, "", ""].into_iter().enumerate() {
            let head = format!("POST /call/c/k/echo{more}");
            burst.extend(Client::request(&head, (10 * round + index).to_string().as_bytes()));
        }
        client.send(&burst);
        for index in 0..4 {
            assert_eq!(client.read_reply(true).body, (10 * round + index).to_string().as_bytes());
        }
        // Until hyper gives it back.
        std::thread::sleep(Duration::from_millis(60));
    }
    assert_eq!(server.metric("millrace_http_connections_total"), 1.0);
}

#[test]
fn a_body_larger_than_is_plain_arrives_whole() {
    let server = Server::start(patient());
    let mut client = server.connect();
    for bytes in [16_000, 16_384, 17_000, 1_000_000, 5] {
        let body = vec![b'7'; bytes];
        assert_eq!(client.ask("POST /call/c/k/echo", &body).body, body, "{bytes}");
    }
}

/// A server, and a connection of it whose request the node has and does not answer yet.
fn one_that_is_answered() -> (Server, Client) {
    let server = Server::start(patient());
    let mut client = server.connect();
    client.send(Client::request("POST /call/c/k/wait", b"1"));
    server.wait_for_metric("millrace_http_received_bytes_total", 1.0);
    (server, client)
}

#[test]
fn what_is_sent_ahead_is_answered_after_what_came_first() {
    let (server, mut client) = one_that_is_answered();
    let ahead = Client::request("POST /call/c/k/echo", b"[2]");
    client.send(&ahead[..20]);
    client.send(&ahead[20..]);
    server.backend.shared.gate.notify_one();
    assert_eq!(client.read_reply(true).body, b"\"waited\"");
    assert_eq!(client.read_reply(true).body, b"[2]");
}

#[test]
fn a_client_that_sent_ahead_and_leaves_takes_its_request_along() {
    let (server, mut client) = one_that_is_answered();
    let received = || server.metric("millrace_http_received_bytes_total");
    let first = received();
    client.send(b"\r\n");
    support::wait_until(|| received() == first + 2.0, || "what is sent ahead is not read".to_owned());
    drop(client);
    let open = || server.metric("millrace_http_connections_open");
    support::wait_until(|| open() == 0.0, || "the request goes on".to_owned());
    server.wait_for_metric("millrace_http_connection_errors_total", 1.0);
}

/// Else whatever stands between would take the second protocol for the first one's bytes.
#[test]
fn a_connection_speaks_one_protocol() {
    let server = Server::start(patient());
    let mut client = server.connect();
    client.send(b"GET /healthz HTTP/1.1\r\nhost: test\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    assert_eq!(client.read_reply(true).body, b"ok\n");
    let rest = String::from_utf8(client.read_to_end()).expect("no HTTP/2");
    assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 400 "), "{rest}");
}

#[test]
fn a_refusal_does_not_depend_on_how_a_request_came() {
    let server = Server::start(patient());
    let bytes = b"POST /<> HTTP/1.1\r\nhost: test\r\ncontent-length: 3\r\n\r\nabc";
    for cut in [bytes.len() - 3, bytes.len() - 1, bytes.len()] {
        let mut client = server.connect();
        client.stream.get_ref().set_nodelay(true).expect("settable");
        client.send(&bytes[..cut]);
        std::thread::sleep(Duration::from_millis(20));
        client.send(&bytes[cut..]);
        let reply = client.read_reply(true);
        assert_eq!(reply.status, 400);
        reply.assert_problem("bad-request");
    }
}

#[test]
fn a_body_that_ends_early_is_told_so() {
    let server = Server::start(patient());
    let mut client = server.connect();
    client.send(b"POST /call/c/k/echo HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\n[1,");
    client.stream.get_ref().shutdown(Shutdown::Write).expect("connected");
    client.read_reply(true).assert_problem("bad-request");
    assert!(client.read_to_end().is_empty());
}

#[test]
fn a_body_that_is_late_is_told_so_and_counted() {
    let mut options = patient();
    options.timeouts.body = Duration::from_millis(40);
    let server = Server::start(options);
    let mut client = server.connect();
    client.send(b"POST /call/c/k/echo HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\n[1,");
    client.read_reply(true).assert_problem("request-timeout");
    assert!(client.read_to_end().is_empty());
    assert_eq!(server.metric("millrace_http_requests_total{operation=\"none\",status=\"4xx\"}"), 1.0);
}

/// The kernel takes back what a client has not read once we close with something unread of it.
#[test]
fn a_last_reply_arrives_whole_whatever_the_client_goes_on_sending() {
    let server = Server::start(patient());
    for _ in 0..5 {
        let mut client = server.connect();
        client.send(Client::request("POST /call/c/k/large\nconnection: close", b"1500000"));
        std::thread::sleep(Duration::from_millis(2));
        client.send(b"\r\n");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(client.read_reply(true).body.len(), 1_500_000);
        assert!(client.read_to_end().is_empty());
    }
}

/// A server, and a connection of it with a request that the node has no time for.
fn one_that_waits(options: Options, handler: &str) -> (Server, Client) {
    let server = Server::start(options);
    let mut client = server.connect();
    assert_eq!(client.ask("POST /call/c/k/echo", b"1").status, 200);
    admissions(&server).is_busy = true;
    client.send(Client::request(&format!("POST /call/c/k/{handler}"), b"2"));
    wait_until_held(&server, 1);
    (server, client)
}

fn admissions(server: &Server) -> MutexGuard<'_, MockAdmissions> {
    server.backend.shared.admissions.lock().expect("no panic")
}

fn wait_until_held(server: &Server, count: u64) {
    let held = || admissions(server).held;
    support::wait_until(|| held() == count, || format!("{} wait, not {count}", held()));
}

#[test]
fn what_the_node_has_no_time_for_stays_unread() {
    let (server, mut client) = one_that_waits(patient(), "echo");
    let received = || server.metric("millrace_http_received_bytes_total");
    let before = received();
    assert_eq!(before, Client::request("POST /call/c/k/echo", b"1").len() as f64);
    admissions(&server).call_all();
    assert_eq!(client.read_reply(true).body, b"2");
    assert_eq!(received(), 2.0 * before);
    wait_until_held(&server, 0);
}

/// Nor does the sweep take its connection for one at rest.
#[test]
fn a_request_that_waits_unread_is_none_of_an_idle_client() {
    let mut options = patient();
    (options.timeouts.park, options.timeouts.idle) = (Duration::from_millis(50), Duration::from_millis(200));
    let (server, mut client) = one_that_waits(options, "echo");
    let received = || server.metric("millrace_http_received_bytes_total");
    let before = received();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(received(), before);
    admissions(&server).call_all();
    assert_eq!(client.read_reply(true).body, b"2");
}

#[test]
fn a_client_that_leaves_gives_its_admission_back() {
    let (server, client) = one_that_waits(patient(), "echo");
    drop(client);
    admissions(&server).call_all();
    wait_until_held(&server, 0);
    let open = || server.metric("millrace_http_connections_open");
    support::wait_until(|| open() == 0.0, || "the connection stays".to_owned());
}

/// And it waits no more: others that are called would otherwise be fewer until it is answered.
#[test]
fn a_drain_answers_what_waits_unread() {
    let (mut server, mut client) = one_that_waits(patient(), "wait");
    server.stop();
    wait_until_held(&server, 0);
    server.backend.shared.gate.notify_one();
    let reply = client.read_reply(true);
    assert_eq!((reply.body.as_slice(), reply.header("connection")), (b"\"waited\"".as_slice(), Some("close")));
    assert!(client.read_to_end().is_empty());
    server.join();
}

#[test]
fn who_asks_nothing_waits_for_nothing() {
    let (server, mut client) = one_that_is_answered();
    admissions(&server).is_busy = true;
    server.backend.shared.gate.notify_one();
    assert_eq!(client.read_reply(true).status, 200);
    let mut other = server.connect();
    other.send(Client::request("POST /call/c/k/echo", b"2"));
    wait_until_held(&server, 1);
    admissions(&server).call_all();
    assert_eq!(other.read_reply(true).body, b"2");
}
