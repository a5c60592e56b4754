//! Keep-alive, pipelining, parking, draining, HTTP/2.

use crate::support;

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{Client, PATIENCE, Server, patient};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use millrace_http::Options;

#[test]
fn a_connection_serves_many_requests() {
    let server = Server::start(patient());
    let mut client = server.connect();
    for index in 0..100 {
        let body = index.to_string();
        assert_eq!(client.ask("POST /call/c/k/echo", body.as_bytes()).body, body.as_bytes());
    }
    let last = client.ask("POST /call/c/k/echo\nconnection: close", b"1");
    assert_eq!(last.header("connection"), Some("close"));
    assert!(client.read_to_end().is_empty());
    assert_eq!(server.metric("millrace_http_connections_total"), 1.0);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::start(patient());
    let mut client = server.connect();
    let mut burst = Vec::new();
    for index in 0..100 {
        burst.extend(Client::request("POST /call/c/k/echo", index.to_string().as_bytes()));
    }
    // Cut in the middle of a request, to find what is lost between two reads.
    let cut = burst.len() / 2 + 7;
    client.send(&burst[..cut]);
    for index in 0..20 {
        assert_eq!(client.read_reply(true).body, index.to_string().as_bytes());
    }
    client.send(&burst[cut..]);
    for index in 20..100 {
        assert_eq!(client.read_reply(true).body, index.to_string().as_bytes());
    }
}

#[test]
fn a_request_may_arrive_byte_by_byte() {
    let server = Server::start(patient());
    let mut client = server.connect();
    client.stream.get_ref().set_nodelay(true).expect("settable");
    for _ in 0..2 {
        for byte in Client::request("POST /call/c/k/echo", b"[1,2]") {
            client.send([byte]);
        }
        assert_eq!(client.read_reply(true).body, b"[1,2]");
    }
}

#[test]
fn a_parked_connection_goes_on_where_it_was() {
    let mut options = patient();
    options.timeouts.park = Duration::from_millis(10);
    let server = Server::start(options);
    let mut client = server.connect();
    for round in 0..3 {
        // The second half of a request comes long after the connection was parked, and so does the
        // next request after this one.
        let bytes = Client::request("POST /call/c/k/echo", b"[1]");
        client.send(&bytes[..round + 1]);
        std::thread::sleep(Duration::from_millis(60));
        client.send(&bytes[round + 1..]);
        assert_eq!(client.read_reply(true).body, b"[1]");
        std::thread::sleep(Duration::from_millis(60));
    }
    let mut both = Client::request("POST /call/c/k/echo", b"[1]");
    let second = Client::request("POST /call/c/k/echo", b"[2]");
    both.extend_from_slice(&second[..10]);
    client.send(&both);
    assert_eq!(client.read_reply(true).body, b"[1]");
    std::thread::sleep(Duration::from_millis(60));
    client.send(&second[10..]);
    assert_eq!(client.read_reply(true).body, b"[2]");
    assert_eq!(server.metric("millrace_http_connections_total"), 1.0);
}

static RELEASES: AtomicU64 = AtomicU64::new(0);

#[test]
fn memory_is_released_after_connections_were_parked() {
    let release = || {
        RELEASES.fetch_add(1, Ordering::SeqCst);
    };
    let mut options = Options { release_memory: Some(release), ..patient() };
    options.timeouts.park = Duration::from_millis(10);
    let server = Server::start(options);
    let mut clients: Vec<Client> = (0..10).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.ask("GET /healthz", b"").status, 200));
    support::wait_until(|| RELEASES.load(Ordering::SeqCst) > 0, || "nothing was released".to_owned());
    clients.iter_mut().for_each(|client| assert_eq!(client.ask("GET /healthz", b"").status, 200));
}

#[test]
fn every_accepted_socket_has_nodelay() {
    // Made without `millrace_http::bind`, so that nothing is inherited from the listener.
    let server = Server::start_on(TcpListener::bind("127.0.0.1:0").expect("a free port"), patient());
    let mut clients: Vec<Client> = (0..5).map(|_| server.connect()).collect();
    let ours: Vec<_> = clients.iter().map(|client| client.stream.get_ref().local_addr().expect("connected")).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.ask("GET /healthz", b"").status, 200));
    // Other tests open and close descriptors meanwhile, so that a look may come between.
    let count = || accepted(&ours).into_iter().filter(|has_nodelay| *has_nodelay).count();
    support::wait_until(|| count() == ours.len(), || format!("TCP_NODELAY, one a socket: {:?}", accepted(&ours)));
}

/// Whether each socket of this process whose peer is one of these has `TCP_NODELAY`.
fn accepted(peers: &[SocketAddr]) -> Vec<bool> {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("Linux");
    let numbers = descriptors.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers
        .filter_map(|descriptor| {
            // SAFETY: only asks the kernel about the descriptor, which fails if it is gone or no socket.
            let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
            let socket = socket2::SockRef::from(&borrowed);
            let peer = socket.peer_addr().ok()?.as_socket()?;
            if peers.contains(&peer) { socket.tcp_nodelay().ok() } else { None }
        })
        .collect()
}

#[test]
fn a_client_that_leaves_takes_its_request_along() {
    let server = Server::start(patient());
    let mut client = server.connect();
    client.send(Client::request("POST /call/c/k/wait", b""));
    wait_for_call(&server);
    client.stream.get_ref().shutdown(Shutdown::Both).expect("open");
    support::wait_until(|| server.metric("millrace_http_connections_open") == 0.0, || "still open".to_owned());
}

fn wait_for_call(server: &Server) {
    let shared = &server.backend.shared;
    support::wait_until(|| shared.calls.load(Ordering::SeqCst) > 0, || "no call".to_owned());
}

#[test]
fn a_drain_answers_what_arrived_and_closes_what_is_idle() {
    let mut server = Server::start(patient());
    let (mut busy, mut idle, mut silent) = (server.connect(), server.connect(), server.connect());
    assert_eq!(idle.ask("GET /healthz", b"").status, 200);
    busy.send(Client::request("POST /call/c/k/wait", b""));
    wait_for_call(&server);
    server.stop();
    assert!(idle.read_to_end().is_empty());
    assert!(silent.read_to_end().is_empty());
    support::wait_until(|| TcpStream::connect(server.address).is_err(), || "still listening".to_owned());
    server.backend.shared.gate.notify_one();
    let reply = busy.read_reply(true);
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert!(busy.read_to_end().is_empty());
    server.join();
}

#[test]
fn a_drain_does_not_wait_for_ever() {
    let mut options = patient();
    options.timeouts.drain = Duration::from_millis(50);
    let mut server = Server::start(options);
    let mut stuck = server.connect();
    stuck.send(Client::request("POST /call/c/k/wait", b""));
    wait_for_call(&server);
    server.join();
    assert!(stuck.read_to_end().is_empty());
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("in time") })
}

type Sender = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

async fn http2(server: &Server) -> (Sender, tokio::task::JoinHandle<hyper::Result<()>>) {
    let stream = tokio::net::TcpStream::connect(server.address).await.expect("connected");
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    (sender, tokio::spawn(connection))
}

async fn post(sender: &mut Sender, path: &str, body: impl Into<Bytes>) -> (u16, Bytes) {
    let request = http::Request::post(format!("http://test{path}")).body(Full::new(body.into())).expect("a request");
    let response = sender.send_request(request).await.expect("a reply");
    let status = response.status().as_u16();
    (status, response.into_body().collect().await.expect("a body").to_bytes())
}

#[test]
fn http2_is_spoken_on_the_same_port() {
    let server = Server::start(patient());
    block_on(async {
        let (mut sender, _connection) = http2(&server).await;
        let mut both = sender.clone();
        let waiting = tokio::spawn(async move { post(&mut both, "/call/c/k/wait", "").await });
        assert_eq!(post(&mut sender, "/call/c/k/echo", "[1]").await, (200, Bytes::from("[1]")));
        assert_eq!(post(&mut sender, "/call/c/k/abort", "").await.0, 409);
        let large = post(&mut sender, "/call/c/k/large", "3000000").await;
        assert_eq!((large.0, large.1.len()), (200, 3_000_000));
        let whole = vec![b'1'; 1_000_000];
        assert!(post(&mut sender, "/call/c/k/show", whole).await.1.ends_with(b"\"service\":\"c\"}"));
        server.backend.shared.gate.notify_one();
        assert_eq!(waiting.await.expect("no panic").1, "\"waited\"", "a slow request does not hold up the others");
    });
    assert_eq!(server.metric("millrace_http_connections_total"), 1.0);
}

/// RFC 9110, 9.3.2: the headers of a GET, and no body, which over HTTP/2 would be a protocol error.
#[test]
fn a_head_over_http2_has_no_body() {
    let server = Server::start(patient());
    block_on(async {
        let (mut sender, _connection) = http2(&server).await;
        for (path, length) in [("/healthz", Some("3")), ("/user/x", None), ("/call/nothing", None)] {
            let ask = |method: &str| {
                let request = http::Request::builder().method(method).uri(format!("http://test{path}"));
                request.body(Full::new(Bytes::new())).expect("a request")
            };
            let response = sender.send_request(ask("HEAD")).await.expect("a reply");
            let (head, body) = response.into_parts();
            assert_eq!(body.collect().await.expect("no error of the protocol").to_bytes(), Bytes::new(), "{path}");
            let got = sender.send_request(ask("GET")).await.expect("a reply");
            assert_eq!(head.status, got.status());
            let length_of = |headers: &http::HeaderMap| headers.get("content-length").cloned();
            assert_eq!(length_of(&head.headers), length_of(got.headers()), "{path}");
            assert!(length.is_none_or(|length| head.headers["content-length"] == length), "{path}: {head:?}");
        }
    });
}

/// Some clients take a stream that is reset for a reply that never came, though the reset says that nothing is wrong.
#[test]
fn an_http2_request_that_is_refused_early_is_read_to_its_end() {
    const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let server = Server::start(patient());
    let mut client = Client::new(TcpStream::connect(server.address).expect("connected"));
    let mut frames_until_ping = |sent: &[u8]| {
        client.send([sent, PING].concat());
        let mut seen = Vec::new();
        loop {
            let mut head = [0; 9];
            std::io::Read::read_exact(&mut client.stream, &mut head).expect("a frame");
            let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            std::io::Read::read_exact(&mut client.stream, &mut payload).expect("its payload");
            match (head[3], head[4]) {
                (6, 1) => return seen,
                (kind, flags) => seen.push((kind, flags & 1)),
            }
        }
    };
    let path = b"/call/nothing";
    let mut head = vec![0x83, 0x86, 0x01, 4];
    head.extend_from_slice(b"test");
    head.extend_from_slice(&[0x04, path.len() as u8]);
    head.extend_from_slice(path);
    let mut first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    first.extend_from_slice(&[0, 0, head.len() as u8, 1, 4, 0, 0, 0, 1]);
    first.extend_from_slice(&head);
    frames_until_ping(&first);
    let mut seen = frames_until_ping(b"\0\0\x01\0\x01\0\0\0\x011");
    while !seen.contains(&(0, 1)) {
        seen.extend(frames_until_ping(b""));
    }
    let kinds: Vec<u8> = seen.iter().map(|(kind, _)| *kind).collect();
    assert!(kinds.contains(&1), "the reply's head: {seen:?}");
    assert!(!kinds.contains(&3), "no reset: {seen:?}");
    assert!(!frames_until_ping(b"").iter().any(|(kind, _)| *kind == 3), "nor later");
}

#[test]
fn http2s_preface_may_arrive_in_pieces() {
    let server = Server::start(patient());
    let mut stream = TcpStream::connect(server.address).expect("connected");
    stream.set_nodelay(true).expect("settable");
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" {
        stream.write_all(&[*byte]).expect("sent");
    }
    let mut client = Client::new(stream);
    let mut frame = [0; 9];
    std::io::Read::read_exact(&mut client.stream, &mut frame).expect("a frame");
    assert_eq!(frame[3], 4, "the server's settings");
    let mut other = server.connect();
    other.send("PRI * HTTP/1.1\r\nhost: h\r\n\r\n");
    assert_eq!(other.read_reply(true).status, 404, "only like the preface");
}

#[test]
fn http2_is_drained() {
    let mut server = Server::start(patient());
    block_on(async {
        let (mut sender, connection) = http2(&server).await;
        let waiting = tokio::spawn(async move { post(&mut sender, "/call/c/k/wait", "").await });
        server.backend.shared.began.notified().await;
        server.stop();
        server.backend.shared.gate.notify_one();
        assert_eq!(waiting.await.expect("no panic").0, 200);
        connection.await.expect("no panic").expect("closed in order");
    });
    server.join();
}

#[test]
fn an_idle_http2_connection_is_closed() {
    let mut options = patient();
    options.timeouts.idle = Duration::from_millis(50);
    let server = Server::start(options);
    block_on(async {
        let (mut sender, connection) = http2(&server).await;
        assert_eq!(post(&mut sender, "/call/c/k/echo", "1").await.0, 200);
        connection.await.expect("no panic").expect("closed in order");
    });
}

#[test]
fn an_http2_client_that_takes_nothing_is_closed() {
    let mut options = patient();
    options.timeouts.write = Duration::from_millis(50);
    let server = Server::start(options);
    let mut stream = TcpStream::connect(server.address).expect("connected");
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // SETTINGS with an initial window of 1 byte.
    bytes.extend_from_slice(b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x01");
    // GET /openapi.json: `:method GET`, `:scheme http`, then literals for `:path` and `:authority`.
    let mut headers = b"\x82\x86\x04\x0d/openapi.json\x01\x04test".to_vec();
    let mut frame = vec![0, 0, headers.len() as u8, 1, 5, 0, 0, 0, 1];
    frame.append(&mut headers);
    bytes.extend_from_slice(&frame);
    stream.write_all(&bytes).expect("sent");
    server.wait_for_metric("millrace_http_timeouts_total{phase=\"write\"}", 1.0);
    support::wait_until(|| server.metric("millrace_http_connections_open") == 0.0, || "still open".to_owned());
}

#[test]
fn an_http2_body_that_trickles_is_timed_out() {
    let mut options = patient();
    options.timeouts.body = Duration::from_millis(50);
    let server = Server::start(options);
    block_on(async {
        let stream = tokio::net::TcpStream::connect(server.address).await.expect("connected");
        let io = TokioIo::new(stream);
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake::<_, _, Endless>(TokioExecutor::new(), io).await.expect("HTTP/2");
        tokio::spawn(connection);
        let request = http::Request::post("http://test/call/c/k/echo").body(Endless).expect("a request");
        assert_eq!(sender.send_request(request).await.expect("a reply").status(), 408);
    });
}

/// A body of which nothing ever comes.
struct Endless;

impl hyper::body::Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}
