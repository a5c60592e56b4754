//! Clients of a node that has its address and does not serve yet.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_http::{Entrance, Front, Options, Starting, bind_all, starting_reply};
use prometheus_client::registry::Registry;

use crate::auth::{ask_tls, tls_connect, tls_in, write_certificate};
use crate::support::{Client, PATIENCE, Server, patient};

fn listeners() -> Vec<TcpListener> {
    bind_all(([127, 0, 0, 1], 0).into(), 2).expect("free ports")
}

fn begin(listeners: &[TcpListener]) -> Starting {
    Starting::begin(vec![Entrance { listeners, tls: None, reply: starting_reply() }]).expect("begun")
}

fn connect(listeners: &[TcpListener]) -> Client {
    Client::new(TcpStream::connect(listeners[0].local_addr().expect("bound")).expect("connected"))
}

#[test]
fn whoever_connects_is_told_that_the_node_starts_and_the_connection_ends() {
    let listeners = listeners();
    let _starting = begin(&listeners);
    let mut fastest = PATIENCE;
    // The kernel spreads connections over the listeners of the cores.
    for request in ["POST /call/c/k/echo", "GET /readyz", "GET /healthz", "GET /cluster"].repeat(5) {
        let mut client = connect(&listeners);
        let began = Instant::now();
        let reply = client.ask(request, b"");
        fastest = fastest.min(began.elapsed());
        let detail = reply.assert_problem("shutting-down")["detail"].to_string();
        assert!(detail.contains("starting"), "{detail}");
        assert_eq!((reply.header("connection"), reply.header("retry-after")), (Some("close"), Some("1")));
        assert!(client.read_to_end().is_empty());
    }
    assert!(fastest < Duration::from_millis(100), "{fastest:?}");
    let mut client = connect(&listeners);
    assert_eq!(client.ask("HEAD /healthz", b"").status, 503);
    assert!(client.read_to_end().is_empty(), "a reply to HEAD has no body");
}

/// The client writes all of the body before it reads.
#[test]
fn the_answer_to_a_large_request_arrives() {
    let listeners = listeners();
    let _starting = begin(&listeners);
    let mut client = connect(&listeners);
    client.ask("PUT /apps/large", &vec![b'x'; 8 << 20]).assert_problem("shutting-down");
}

#[test]
fn a_short_start_turns_nobody_away() {
    let mut listeners = listeners();
    listeners.truncate(1);
    let starting = begin(&listeners);
    let mut client = connect(&listeners);
    client.send(Client::request("POST /call/c/k/echo", b"1"));
    starting.end();
    let _server = Server::start_on(listeners.remove(0), patient());
    assert_eq!(client.read_reply(true).body, b"1");
}

#[test]
fn connections_after_the_end_are_the_fronts() {
    let mut listeners = listeners();
    listeners.truncate(1);
    let starting = begin(&listeners);
    connect(&listeners).ask("GET /healthz", b"").assert_problem("shutting-down");
    let silent = connect(&listeners);
    let began = Instant::now();
    starting.end();
    assert!(began.elapsed() < Duration::from_millis(500), "a client that says nothing held it up");
    let mut waiting = connect(&listeners);
    waiting.send(Client::request("POST /call/c/k/echo", b"1"));
    let _server = Server::start_on(listeners.remove(0), patient());
    assert_eq!(waiting.read_reply(true).body, b"1");
    drop(silent);
}

#[test]
fn a_crowd_that_says_nothing_keeps_nobody_from_an_answer() {
    let listeners = listeners();
    let _starting = begin(&listeners);
    let _crowd: Vec<Client> = (0..400).map(|_| connect(&listeners)).collect();
    let began = Instant::now();
    // It may have to be turned away unheard, and a reset takes the reply along then.
    let mut client = connect(&listeners);
    let told = String::from_utf8(client.read_to_end()).expect("text");
    assert!(told.starts_with("HTTP/1.1 503 ") || told.is_empty(), "{told}");
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
}

#[test]
fn http2_without_tls_is_told_to_go_away_and_try_again() {
    let listeners = listeners();
    let _starting = begin(&listeners);
    let mut client = connect(&listeners);
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    let told = client.read_to_end();
    assert_eq!((told.len(), told[3], told[12]), (26, 4, 7), "settings, and that no stream was looked at");
}

#[test]
fn a_client_with_tls_gets_its_handshake_and_then_the_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = tls_in(folder.path());
    let certificate = write_certificate(&files);
    let front = Front::new(Options { tls: Some(files), ..patient() }, Registry::default()).expect("usable options");
    let listeners = listeners();
    let entrance = Entrance { listeners: &listeners, tls: front.tls_http1(), reply: starting_reply() };
    let _starting = Arc::new(Starting::begin(vec![entrance]).expect("begun"));
    let address = listeners[0].local_addr().expect("bound");
    let mut stream = tls_connect(address, &certificate, &[b"h2", b"http/1.1"]).expect("a handshake");
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    let answer = ask_tls(&mut stream, b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(answer.starts_with(b"HTTP/1.1 503 "), "{}", String::from_utf8_lossy(&answer));
}
