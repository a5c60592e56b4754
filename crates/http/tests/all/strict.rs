//! What two servers could read in two ways is refused, and so is what is too long, at once.
//!
//! Each request is sent as the first of a connection, which is looked at without hyper, and behind one that hyper answers.

use crate::support::{Client, Reply, Server, patient};

/// A request that is not plain: after it, the connection is hyper's.
const NOT_PLAIN: &str = "GET /healthz HTTP/1.1\r\nhost: x\r\nupgrade: nothing\r\n\r\n";

/// Refused in the first place, and behind a request that hyper answers, in one piece and byte by byte.
fn assert_refused(server: &Server, request: &str, code: &str) {
    let refused = |client: &mut Client| {
        let reply: Reply = client.read_reply(true);
        reply.assert_problem(code);
        assert_eq!(reply.header("connection"), Some("close"), "{request:?}");
        assert!(client.read_to_end().is_empty(), "{request:?}");
    };
    let mut client = server.connect();
    client.send(request);
    refused(&mut client);
    let mut client = server.connect();
    client.send(format!("{NOT_PLAIN}{request}"));
    assert_eq!(client.read_reply(true).status, 200, "{request:?}");
    refused(&mut client);
    let mut client = server.connect();
    client.stream.get_ref().set_nodelay(true).expect("settable");
    client.send(NOT_PLAIN);
    assert_eq!(client.read_reply(true).status, 200, "{request:?}");
    for byte in request.bytes() {
        use std::io::Write;
        // The server may have closed before the last byte.
        if client.stream.get_mut().write_all(&[byte]).is_err() {
            break;
        }
    }
    refused(&mut client);
}

#[test]
fn both_ways_to_say_a_length_are_refused() {
    let server = Server::start(patient());
    let chunks = "1\r\n1\r\n0\r\n\r\n";
    for headers in [
        "content-length: 1\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 11",
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
    ] {
        let request = format!("POST /call/c/k/echo HTTP/1.1\r\nhost: x\r\n{headers}\r\n\r\n{chunks}");
        assert_refused(&server, &request, "bad-request");
    }
    for target in ["/call/c/k/echo#x", "/call/c/k/echo?a#", "/#"] {
        assert_refused(&server, &format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n"), "bad-request");
    }
    for headers in [
        "content-length: 1\r\ncontent-length: 2",
        "content-length: 1\r\ncontent-length: 1",
        "content-length: 1, 1",
        "content-length: +1",
    ] {
        let request = format!("POST /call/c/k/echo HTTP/1.1\r\nhost: x\r\n{headers}\r\n\r\n1");
        assert_refused(&server, &request, "bad-request");
    }
    assert_eq!(server.backend.shared.calls.load(std::sync::atomic::Ordering::SeqCst), 0, "none of them ran");
}

#[test]
fn lines_that_end_with_lf_alone_are_refused() {
    let server = Server::start(patient());
    for request in [
        "GET /healthz HTTP/1.1\nhost: x\n\n",
        "GET /healthz HTTP/1.1\r\nhost: x\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: x\r\n\n",
        "GET /healthz HTTP/1.1\nhost: x\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: x\r\nx-empty:\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: x\r\nx-space: a \n\r\n",
        "\nGET /healthz HTTP/1.1\r\nhost: x\r\n\r\n",
        "POST /call/c/k/echo HTTP/1.1\nhost: x\ncontent-length: 1\n\n1",
    ] {
        assert_refused(&server, request, "bad-request");
    }
    // What they are in a body is nobody's business.
    assert_eq!(server.ask("POST /call/c/k/echo", b"[\n1\n]").body, b"[\n1\n]");
    assert_eq!(server.ask("POST /call/c/k/echo\nx-space: a \t", b"1").status, 200);
    assert_eq!(server.ask("POST /call/c/k/echo\nx-empty:", b"1").status, 200);
}

#[test]
fn too_long_a_length_is_refused_at_once() {
    let server = Server::start(patient());
    for length in ["999999999999", "18446744073709551615", "18446744073709551616", "99999999999999999999999999"] {
        // No body comes: who waits for it is not refused at once.
        for path in ["POST /call/c/k/echo", "GET /healthz", "PUT /apps/a"] {
            let request = format!("{path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
            assert_refused(&server, &request, "too-large");
        }
    }
}

/// The request has begun by then, so that its operation refuses it; the connection ends all the same.
#[test]
fn a_chunk_that_cannot_be_is_refused_at_once() {
    let server = Server::start(patient());
    for (chunk, code) in [
        ("FFFFFFFFFFFFFFFF\r\n", "too-large"),
        ("7fffffff\r\n", "too-large"),
        ("0000000000000000000000000000000000000fffffff", "too-large"),
        ("x\r\n", "bad-request"),
        ("1 \r\n1\r\n0\r\n\r\n", "bad-request"),
        ("-1\r\n", "bad-request"),
        ("1\n1\r\n0\r\n\r\n", "bad-request"),
        ("1;a\n1\r\n0\r\n\r\n", "bad-request"),
        ("1\r\n12\r\n0\r\n\r\n", "bad-request"),
        ("1\r\n1\n0\r\n\r\n", "bad-request"),
        ("1\r\n1\r\n0\r\nx: y\n\r\n", "bad-request"),
    ] {
        let head = "POST /call/c/k/echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_refused(&server, &format!("{head}{chunk}"), code);
    }
    assert_eq!(server.backend.shared.calls.load(std::sync::atomic::Ordering::SeqCst), 0, "none of them ran");
    let mut client = server.connect();
    client.send("POST /call/c/k/echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    client.send("0002 ; a=b\r\n[1\r\n1\r\n]\r\n0\r\nx-trailer: 1\r\n\r\n");
    assert_eq!(client.read_reply(true).body, b"[1]");
    assert_eq!(client.ask("POST /call/c/k/echo", b"2").body, b"2", "and the connection goes on");
}
