//! What a stranger sends, or does not read, is bounded in bytes and time.

use crate::support;

use std::io::Read;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{Client, Server, patient};
use millrace_http::{Options, Timeouts};

const SHORT: Duration = Duration::from_millis(60);

fn with_timeouts(change: impl FnOnce(&mut Timeouts)) -> Options {
    let mut options = patient();
    change(&mut options.timeouts);
    options
}

#[test]
fn a_body_over_the_limit_is_refused_announced_or_not() {
    let mut options = patient();
    options.limits.body_bytes = 100_000;
    let server = Server::start(options);
    let most = vec![b'1'; 100_000];
    assert_eq!(server.ask("POST /call/c/k/show", &most).json()["input_bytes"], 100_000);
    let mut client = server.connect();
    client.send("POST /call/c/k/show HTTP/1.1\r\nhost: x\r\ncontent-length: 100001\r\n\r\n");
    let refused = client.read_reply(true);
    refused.assert_problem("too-large");
    assert_eq!(refused.header("connection"), Some("close"));
    for size in [100_001, 60_000] {
        let mut client = server.connect();
        client.send("POST /call/c/k/show HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
        for _ in 0..2 {
            client.send(format!("{size:x}\r\n{}\r\n", "1".repeat(size)));
            if size > 100_000 {
                break;
            }
        }
        client.read_reply(true).assert_problem("too-large");
    }
    let mut client = server.connect();
    client.send("PUT /apps/a HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n");
    client.read_reply(true).assert_problem("too-large");
}

#[test]
fn expect_continue_is_honoured_and_saves_a_refused_body() {
    let mut options = patient();
    options.limits.body_bytes = 10;
    let server = Server::start(options);
    let mut client = server.connect();
    client.send("POST /call/c/k/echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n");
    assert_eq!(client.read_reply(true).status, 100);
    client.send("12");
    assert_eq!(client.read_reply(true).body, b"12");
    client.send("POST /call/c/k/echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 20\r\n\r\n");
    client.read_reply(true).assert_problem("too-large");
}

#[test]
fn headers_are_bounded_in_number_and_size() {
    let server = Server::start(patient());
    let ask = |headers: &str| server.ask(&format!("GET /user/x\n{headers}"), b"");
    let count = |number: usize| (0..number).map(|index| format!("x-{index}: 1\n")).collect::<String>();
    assert_eq!(ask(&count(60)).status, 200);
    ask(&count(70)).assert_problem("headers-too-large");
    // Beyond what is parsed at all.
    ask(&count(200)).assert_problem("headers-too-large");
    assert_eq!(ask(&format!("x: {}", "y".repeat(15_000))).status, 200);
    ask(&format!("x: {}", "y".repeat(17_000))).assert_problem("headers-too-large");
    let mut client = server.connect();
    client.send(format!("GET /user/{} HTTP/1.1\r\nhost: x\r\n\r\n", "p".repeat(17_000)));
    client.read_reply(true).assert_problem("headers-too-large");
    let mut client = server.connect();
    client.send(format!("GET /user/x HTTP/1.1\r\nx: {}", "y".repeat(64 << 10)));
    // Headers without end fill a bounded buffer.
    client.read_reply(true).assert_problem("headers-too-large");
}

#[test]
fn headers_that_trickle_are_timed_out() {
    let server = Server::start(with_timeouts(|timeouts| timeouts.headers = SHORT));
    for beginning in ["G", "GET /user/x HTTP/1.1\r\nhost: x\r\nx-slow: "] {
        let mut client = server.connect();
        client.send(beginning);
        client.read_reply(true).assert_problem("request-timeout");
        assert!(client.read_to_end().is_empty());
    }
    let mut client = server.connect();
    assert_eq!(client.ask("GET /healthz", b"").status, 200);
    client.send("GET /user/x HT");
    client.read_reply(true).assert_problem("request-timeout");
    assert!(server.metric("millrace_http_timeouts_total{phase=\"headers\"}") >= 3.0);
}

#[test]
fn a_body_that_trickles_is_timed_out() {
    let server = Server::start(with_timeouts(|timeouts| timeouts.body = SHORT));
    for beginning in ["", "1", "12345"] {
        let mut client = server.connect();
        client.send("POST /call/c/k/echo HTTP/1.1\r\nhost: x\r\ncontent-length: 6\r\n\r\n");
        client.send(beginning);
        client.read_reply(true).assert_problem("request-timeout");
        assert!(client.read_to_end().is_empty());
    }
    assert_eq!(server.backend.shared.calls.load(Ordering::SeqCst), 0, "no half request runs");
    assert_eq!(server.metric("millrace_http_timeouts_total{phase=\"body\"}"), 3.0);
}

#[test]
fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let server = Server::start(with_timeouts(|timeouts| timeouts.idle = SHORT));
    let mut busy = server.connect();
    busy.send(Client::request("POST /call/c/k/wait", b""));
    let mut silent = server.connect();
    assert!(silent.read_to_end().is_empty());
    let mut used = server.connect();
    assert_eq!(used.ask("GET /healthz", b"").status, 200);
    assert!(used.read_to_end().is_empty());
    server.wait_for_metric("millrace_http_timeouts_total{phase=\"idle\"}", 2.0);
    server.backend.shared.gate.notify_one();
    assert_eq!(busy.read_reply(true).body, b"\"waited\"");
}

#[test]
fn a_client_that_does_not_read_is_closed() {
    let server = Server::start(with_timeouts(|timeouts| timeouts.write = SHORT));
    let mut client = server.connect();
    // More than two sockets' buffers hold.
    client.send(Client::request("POST /call/c/k/large", b"50000000"));
    server.wait_for_metric("millrace_http_timeouts_total{phase=\"write\"}", 1.0);
    support::wait_until(|| server.metric("millrace_http_connections_open") == 0.0, || "still open".to_owned());
    let mut rest = Vec::new();
    let end = client.stream.read_to_end(&mut rest);
    assert!(end.is_err() && rest.len() < 50_000_000, "reset, with what was unsent dropped");
}

#[test]
fn a_client_that_pipelines_and_does_not_read_is_held_back() {
    let server = Server::start(with_timeouts(|timeouts| timeouts.write = SHORT));
    let mut client = server.connect();
    let request = Client::request("POST /call/c/k/large", b"1000000");
    let mut stream = client.stream.get_ref().try_clone().expect("cloned");
    let writer = std::thread::spawn(move || {
        use std::io::Write;
        // Ends when the server closes the connection.
        (0..100_000).take_while(|_| stream.write_all(&request).is_ok()).count()
    });
    server.wait_for_metric("millrace_http_timeouts_total{phase=\"write\"}", 1.0);
    assert!(server.backend.shared.calls.load(Ordering::SeqCst) < 200, "requests are not run ahead of the client");
    let mut rest = Vec::new();
    let _ = client.stream.read_to_end(&mut rest);
    assert!(writer.join().expect("no panic") < 100_000);
}

#[test]
fn large_replies_and_bodies_share_a_bounded_room() {
    let mut options = patient();
    options.limits.buffered_bytes = 1_000_000;
    let server = Server::start(options);
    let mut slow = server.connect();
    slow.send(Client::request("POST /call/c/k/large", b"900000"));
    // Its reply fits; one that alone is larger than the room never does.
    assert_eq!(slow.read_reply(true).body.len(), 900_000);
    server.ask("POST /call/c/k/large", b"1100000").assert_problem("overloaded");
    let mut client = server.connect();
    client.send("POST /call/c/k/show HTTP/1.1\r\nhost: x\r\ncontent-length: 4000000\r\n\r\n");
    client.send(vec![b'1'; 4_000_000]);
    client.read_reply(true).assert_problem("overloaded");
    drop(slow);
    server.wait_for_metric("millrace_http_connections_total", 3.0);
    assert_eq!(server.ask("POST /call/c/k/large", b"900000").status, 200, "room is given back");
}

#[test]
fn who_sends_a_refused_body_to_its_end_before_it_reads_is_told() {
    let server = Server::start(patient());
    // The first is plain to read, the second is left to the library.
    for encoding in ["content-length: 20000000", "content-length: 20000000\r\nconnection: upgrade"] {
        let mut client = server.connect();
        client.send(format!("POST /call/c/k/show HTTP/1.1\r\nhost: x\r\n{encoding}\r\n\r\n"));
        client.send(vec![b'1'; 20_000_000]);
        client.read_reply(true).assert_problem("too-large");
        assert!(client.read_to_end().is_empty());
    }
    support::wait_until(|| server.metric("millrace_http_connections_open") == 0.0, || "still open".to_owned());
}

#[test]
fn connections_over_the_limit_are_told_so_and_closed() {
    let mut options = patient();
    options.limits.connections = 2;
    let server = Server::start(options);
    let (mut first, mut second) = (server.connect(), server.connect());
    assert_eq!(first.ask("GET /healthz", b"").status, 200);
    assert_eq!(second.ask("GET /healthz", b"").status, 200);
    let mut third = server.connect();
    third.read_reply(true).assert_problem("overloaded");
    assert!(third.read_to_end().is_empty());
    assert_eq!(server.metric("millrace_http_connections_shed_total"), 1.0);
    drop(first);
    support::wait_until(|| server.metric("millrace_http_connections_open") == 1.0, || "still open".to_owned());
    assert_eq!(server.ask("GET /healthz", b"").status, 200);
}

#[test]
fn who_is_refused_before_the_body_is_read_may_go_on_or_is_told_that_the_connection_closes() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let head =
        |length| format!("POST /send/c/k/echo?delay_ms=x HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    client.send(head(4));
    client.send("1234");
    let refused = client.read_reply(true);
    refused.assert_problem("bad-request");
    assert_eq!(refused.header("connection"), None);
    assert_eq!(client.ask("POST /call/c/k/echo", b"1").body, b"1");
    client.send(head(1 << 20));
    let refused = client.read_reply(true);
    refused.assert_problem("bad-request");
    assert_eq!(refused.header("connection"), Some("close"));
}
