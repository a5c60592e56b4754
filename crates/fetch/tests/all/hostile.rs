//! Whatever a server does, a fetch ends in time, within its memory, and with an error that says what was wrong.

use crate::support;

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, Server, answer, failure};
use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_fetch::{HttpFetcher, Options};
use millrace_func::{FetchRequest, FetchResponse, Fetcher};
use proptest::prelude::*;

fn fetcher() -> HttpFetcher {
    HttpFetcher::new(&Options::default())
}

#[tokio::test]
async fn broken_responses_are_errors() {
    let (server, fetcher) = (Server::start().await, fetcher());
    for (path, part) in [
        ("/close", "connection closed"),
        ("/garbage", "invalid HTTP"),
        ("/http2", "invalid HTTP"),
        ("/switch", "another protocol"),
        ("/breaks", "the response broke off"),
        ("/breaks-chunked", "the response broke off"),
        ("/wrong-length", "content-length"),
        ("/two-lengths", "content-length"),
        ("/wrong-chunk", "the response broke off"),
        ("/huge-chunk", "the response broke off"),
    ] {
        let message = failure(&fetcher, server.get(path)).await;
        assert!(message.contains(part), "{path}: {message}");
        assert!(message.starts_with(&format!("GET http://{}: ", server.address)), "{message}");
    }
    assert_eq!(answer(&fetcher, server.get("/echo")).await.status, 200, "the fetcher is none the worse");
}

#[tokio::test]
async fn endless_responses_end_at_a_limit() {
    let (server, fetcher) = (Server::start().await, fetcher());
    for (path, part) in [
        ("/endless", "more than 1048576 bytes"),
        ("/endless-old", "more than 1048576 bytes"),
        ("/endless-length", "more than 1048576 bytes"),
        ("/endless-header", "too large"),
        ("/endless-headers", "too large"),
        ("/endless-status", "too large"),
        ("/endless-chunk-size", "not finished within 2000 ms"),
        ("/endless-extension", "broke off"),
        ("/endless-trailers", "broke off"),
        ("/endless-continue", "not finished within 2000 ms"),
    ] {
        let message = failure(&fetcher, FetchRequest { timeout_ms: 2000, ..server.get(path) }).await;
        assert!(message.contains(part), "{path}: {message}");
    }
    server.counts.until("all connections closed", |counts| counts.open() == 0).await;
}

#[tokio::test]
async fn slow_responses_end_at_the_time_limit() {
    let (server, fetcher) = (Server::start().await, fetcher());
    for (path, part) in [
        ("/silent", "waiting for the response to begin"),
        ("/delay/60000", "waiting for the response to begin"),
        ("/drip-header", "waiting for the response to begin"),
        ("/drip", "reading the response's body"),
        ("/stops", "reading the response's body"),
    ] {
        let began = Instant::now();
        let message = failure(&fetcher, FetchRequest { timeout_ms: 150, ..server.get(path) }).await;
        let took = began.elapsed();
        assert!(message.contains("within 150 ms") && message.contains(part), "{path}: {message}");
        assert!(took >= Duration::from_millis(150) && took < Duration::from_secs(5), "{path}: {took:?}");
    }
    failure(&fetcher, FetchRequest { timeout_ms: 0, ..server.get("/delay/60000") }).await;
    server.counts.until("all connections closed", |counts| counts.open() == 0).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let message = failure(&fetcher(), support::get(&format!("http://{address}/?token=secret"))).await;
    assert!(message.contains("cannot connect") && !message.contains("secret"), "{message}");
    let request = FetchRequest { timeout_ms: 5_000, ..support::get("http://no-such-host.invalid/") };
    let message = failure(&fetcher(), request).await;
    assert!(message.contains("cannot be resolved") || message.contains("while connecting"), "{message}");
}

/// The answer does not wait until the request is sent, and the rest of the request is not sent.
#[tokio::test]
async fn an_answer_before_the_request_is_read_counts() {
    let server = Server::start().await;
    let size_bytes = 64 << 20;
    let body = Bytes::from(vec![b'x'; size_bytes]);
    let request = FetchRequest { method: "POST".to_owned(), body, ..server.get("/answer-early") };
    let response = tokio::time::timeout(PATIENCE, answer(&fetcher(), request)).await.expect("ends");
    assert_eq!((response.status, &*response.body), (413, &b"no"[..]));
    server.counts.until("the rest came", |counts| counts.late_requests.load(Ordering::SeqCst) == 1).await;
    assert!(server.counts.late_bytes.load(Ordering::SeqCst) < size_bytes);
}

#[test]
fn without_a_runtime_it_is_an_error() {
    let mut fetching = pin!(fetcher().fetch(support::get("http://127.0.0.1:9/")));
    match fetching.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(error)) => assert_eq!(error.code, ErrorCode::FetchFailed),
        other => panic!("{other:?}"),
    }
}

fn on_a_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

/// Bytes that look like a response, and some that do not.
fn response_bytes() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::sample::select(vec![
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.0 304 \r\n",
        "HTTP/1.1 999 x\r\n",
        "content-length: 3\r\n",
        "content-length: 18446744073709551615\r\n",
        "content-length: 18446744073709551616\r\n",
        "transfer-encoding: chunked\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "connection: upgrade\r\nupgrade: h2c\r\n",
        "x: \r\n y\r\n",
        "\r\n",
        "abc",
        "3\r\nabc\r\n",
        "0\r\n\r\n",
        "ffffffffffffffff\r\n",
        "\0",
    ]);
    let likely = prop::collection::vec(pieces, 0..8).prop_map(|pieces| pieces.concat().into_bytes());
    prop_oneof![4 => likely, 1 => prop::collection::vec(any::<u8>(), 0..64)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_end_in_an_answer_or_an_error(bytes in response_bytes()) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let fetched: Result<FetchResponse, Error> = on_a_runtime(async {
            let server = Server::start().await;
            tokio::time::timeout(PATIENCE, fetcher().fetch(server.get(&format!("/raw-{hex}")))).await.expect("ends")
        });
        match fetched {
            Ok(response) => prop_assert!((100..1000).contains(&response.status) && response.body.len() <= bytes.len()),
            Err(error) => prop_assert_eq!(error.code, ErrorCode::FetchFailed),
        }
    }
}
