//! Over HTTP/2 many exchanges share a connection, and one that ends badly takes none with it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use millrace_base::{ByteBudget, limits};
use millrace_fetch::{Failure, HttpFetcher, Options, Roots};
use millrace_func::{FetchRequest, FetchResponse};
use rcgen::{CertificateParams, KeyPair};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::support::{Counts, Server, get};
use crate::tls::acceptor;

/// Answers with what it was asked; `/delay/N` after N ms, `/headers/N` with N headers.
async fn respond(request: Request<Incoming>, counts: Arc<Counts>) -> Result<Response<Full<Bytes>>, Infallible> {
    counts.requests.fetch_add(1, Ordering::SeqCst);
    assert_eq!(request.version(), Version::HTTP_2);
    let said = format!("{} {} {:?}", request.method(), request.uri(), request.headers().get("host"));
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let number = || path.rsplit('/').next().and_then(|text| text.parse().ok()).unwrap_or(0);
    if path.starts_with("/delay/") {
        sleep(Duration::from_millis(number())).await;
    }
    let mut response = Response::builder();
    if path.starts_with("/headers/") {
        for index in 0..number() {
            response = response.header(format!("x-{index}"), "x");
        }
    }
    let text = if path == "/body" { body } else { Bytes::from(said) };
    Ok(response.body(Full::new(text)).expect("valid"))
}

struct Server2 {
    address: SocketAddr,
    counts: Arc<Counts>,
    listening: AbortHandle,
}

impl Drop for Server2 {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Server2 {
    /// A server that lets so many streams run at once. Its connections end after `lives`.
    async fn start(streams: u32, lives: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let counts = Arc::<Counts>::default();
        let shared = Arc::clone(&counts);
        let listening = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("accepts");
                let counts = Arc::clone(&shared);
                tokio::spawn(async move {
                    counts.accepted.fetch_add(1, Ordering::SeqCst);
                    counts.open.fetch_add(1, Ordering::SeqCst);
                    let of_requests = Arc::clone(&counts);
                    let service = service_fn(move |request| respond(request, Arc::clone(&of_requests)));
                    let mut builder = http2::Builder::new(TokioExecutor::new());
                    let connection =
                        builder.max_concurrent_streams(streams).serve_connection(TokioIo::new(stream), service);
                    let _ended = tokio::time::timeout(lives, connection).await;
                    counts.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, counts, listening: listening.abort_handle() }
    }

    fn get(&self, path: &str) -> FetchRequest {
        get(&format!("http://{}{path}", self.address))
    }
}

const LONG: Duration = Duration::from_secs(600);

fn fetcher() -> HttpFetcher {
    HttpFetcher::new(&Options { idle_ms: 60_000, ..Options::default() })
}

fn spawn(fetcher: &HttpFetcher, request: FetchRequest) -> tokio::task::JoinHandle<Result<FetchResponse, Failure>> {
    let fetcher = fetcher.clone();
    tokio::spawn(async move { fetcher.exchange(request, true, &ByteBudget::unlimited()).await })
}

async fn all(fetcher: &HttpFetcher, count: usize, request: &FetchRequest) {
    let fetches: Vec<_> = (0..count).map(|_| spawn(fetcher, request.clone())).collect();
    for fetched in fetches {
        assert_eq!(fetched.await.expect("no panic").expect("an answer").status, 200);
    }
}

#[tokio::test]
async fn requests_share_one_connection() {
    let (server, fetcher) = (Server2::start(200, LONG).await, fetcher());
    all(&fetcher, 80, &server.get("/delay/50")).await;
    assert_eq!((server.counts.requests(), server.counts.accepted()), (80, 1));
    let body = Bytes::from(vec![b'x'; 3 << 20]);
    let request =
        FetchRequest { method: "POST".to_owned(), body: body.clone(), response_bytes: 4 << 20, ..server.get("/body") };
    assert_eq!(fetcher.exchange(request, true, &ByteBudget::unlimited()).await.expect("an answer").body, body);
    let said = fetcher.exchange(server.get("/a?b=c"), true, &ByteBudget::unlimited()).await.expect("an answer").body;
    assert_eq!(said, format!("GET http://{}/a?b=c None", server.address));
    assert_eq!(server.counts.accepted(), 1);
}

#[tokio::test]
async fn more_requests_than_a_connection_takes_get_another_or_wait() {
    let (server, fetcher) = (Server2::start(200, LONG).await, fetcher());
    all(&fetcher, 250, &server.get("/delay/300")).await;
    assert_eq!(server.counts.accepted(), 3);
    let narrow = Server2::start(2, LONG).await;
    all(&fetcher, 20, &narrow.get("/delay/5")).await;
    assert_eq!((narrow.counts.requests(), narrow.counts.accepted()), (20, 1));
}

#[tokio::test]
async fn a_connection_has_fewer_requests_than_servers_allow() {
    let (server, fetcher) = (Server2::start(200, LONG).await, fetcher());
    for _ in 0..=limits::FETCH_HTTP2_REQUESTS / 50 {
        all(&fetcher, 50, &server.get("/")).await;
    }
    assert_eq!(server.counts.accepted(), 2);
    server.counts.until("the first one closed", |counts| counts.open() == 1).await;
}

#[tokio::test]
async fn an_exchange_that_is_given_up_ends_no_other() {
    let (server, fetcher) = (Server2::start(200, LONG).await, fetcher());
    let other = spawn(&fetcher, server.get("/delay/300"));
    let given_up = spawn(&fetcher, server.get("/delay/60000"));
    server.counts.until("both began", |counts| counts.requests() == 2).await;
    given_up.abort();
    assert_eq!(other.await.expect("no panic").expect("an answer").status, 200);
    all(&fetcher, 1, &server.get("/")).await;
    assert_eq!(server.counts.accepted(), 1);
}

#[tokio::test]
async fn after_an_exchange_that_was_late_others_take_a_new_connection() {
    let (server, fetcher) = (Server2::start(200, LONG).await, fetcher());
    let other = spawn(&fetcher, server.get("/delay/500"));
    let late = FetchRequest { timeout_ms: 100, ..server.get("/delay/60000") };
    assert!(fetcher.exchange(late, true, &ByteBudget::unlimited()).await.expect_err("late").is_late);
    all(&fetcher, 1, &server.get("/")).await;
    assert_eq!(server.counts.accepted(), 2);
    assert_eq!(other.await.expect("no panic").expect("an answer").status, 200);
    server.counts.until("the old connection closed after its last stream", |counts| counts.open() == 1).await;
}

#[tokio::test]
async fn a_connection_that_dies_ends_its_own_exchanges_only() {
    let (server, fetcher) = (Server2::start(200, Duration::from_millis(300)).await, fetcher());
    let lost: Vec<_> = (0..10).map(|_| spawn(&fetcher, server.get("/delay/60000"))).collect();
    for lost in lost {
        let failure = lost.await.expect("no panic").expect_err("lost");
        assert!(!failure.is_late && !failure.is_unsent, "{failure:?}");
    }
    all(&fetcher, 5, &server.get("/")).await;
    assert_eq!(server.counts.accepted(), 2);
}

#[tokio::test]
async fn idle_connections_are_closed_and_give_way() {
    let (server, other) = (Server2::start(200, LONG).await, Server2::start(200, LONG).await);
    let brief = HttpFetcher::new(&Options { idle_ms: 50, ..Options::default() });
    all(&brief, 3, &server.get("/")).await;
    server.counts.until("the idle connection closed", |counts| counts.open() == 0).await;
    let one = HttpFetcher::new(&Options { connections: 1, idle_ms: 60_000, ..Options::default() });
    for _ in 0..3 {
        all(&one, 1, &server.get("/")).await;
        all(&one, 1, &other.get("/")).await;
    }
    assert_eq!(other.counts.accepted(), 3);
    drop(one);
    other.counts.until("the fetcher's end closed the last", |counts| counts.open() == 0).await;
}

#[tokio::test]
async fn what_a_server_sends_is_bounded() {
    let (server, fetcher) = (Server2::start(200, LONG).await, fetcher());
    for path in ["/headers/200", "/headers/20000"] {
        assert!(!fetcher.exchange(server.get(path), true, &ByteBudget::unlimited()).await.expect_err(path).is_unsent);
    }
    let small = FetchRequest { response_bytes: 3, ..server.get("/") };
    let failure = fetcher.exchange(small, true, &ByteBudget::unlimited()).await.expect_err("too large");
    assert!(failure.error.message.contains("more than 3 bytes"), "{failure:?}");
    all(&fetcher, 1, &server.get("/headers/20")).await;
}

#[tokio::test]
async fn a_server_of_http1_is_no_server_of_http2() {
    let (server, fetcher) = (Server::start().await, fetcher());
    let request = FetchRequest { timeout_ms: 1_000, ..server.get("/echo") };
    fetcher.exchange(request, true, &ByteBudget::unlimited()).await.expect_err("another protocol");
    assert_eq!(
        fetcher.exchange(server.get("/echo"), false, &ByteBudget::unlimited()).await.expect("an answer").status,
        200
    );
}

#[tokio::test]
async fn over_tls_the_server_chooses_if_it_is_asked() {
    let key = KeyPair::generate().expect("a key");
    let own = CertificateParams::new(vec!["localhost".to_owned()]).and_then(|params| params.self_signed(&key));
    let own = own.expect("valid").der().clone();
    let acceptor = acceptor(vec![own.clone()], &key);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let counts = Arc::<Counts>::default();
    let shared = Arc::clone(&counts);
    let listening = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("accepts");
            let (counts, acceptor) = (Arc::clone(&shared), acceptor.clone());
            tokio::spawn(async move {
                counts.accepted.fetch_add(1, Ordering::SeqCst);
                let Ok(stream) = acceptor.accept(stream).await else { return };
                if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                    return;
                }
                let service = service_fn(move |request| respond(request, Arc::clone(&counts)));
                let builder = http2::Builder::new(TokioExecutor::new());
                let _ended = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    let roots = Roots::Only(vec![own]);
    let offers = HttpFetcher::new(&Options { offers_http2: true, roots: roots.clone(), ..Options::default() });
    let url = format!("https://localhost:{port}/a");
    let fetches = (0..40).map(|_| (offers.clone(), get(&url)));
    let fetches: Vec<_> = fetches
        .map(|(offers, request)| {
            tokio::spawn(async move { offers.exchange(request, false, &ByteBudget::unlimited()).await })
        })
        .collect();
    for fetched in fetches {
        let said = fetched.await.expect("no panic").expect("an answer").body;
        assert_eq!(said, format!("GET {url} None"));
    }
    assert_eq!((counts.requests(), counts.accepted()), (40, 1));
    // It waits for the body's end, so it answers no stream.
    let both_ways = offers.open(FetchRequest { timeout_ms: 500, ..get(&url) }, false).await;
    let failure = both_ways.map(|_| ()).expect_err("no answer");
    assert!(failure.is_late && !failure.is_unsent, "{failure:?}");
    let does_not = HttpFetcher::new(&Options { roots, ..Options::default() });
    does_not.exchange(get(&url), false, &ByteBudget::unlimited()).await.expect_err("it speaks HTTP/1.1 only");
    assert_eq!(counts.requests(), 41);
    listening.abort();
}
