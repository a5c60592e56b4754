//! Both directions at once: what is sent and what comes do not wait for each other, and neither piles up.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use millrace_base::ByteBudget;
use millrace_fetch::{Duplex, HttpFetcher, NO_STREAM_CONNECTION, Options};
use millrace_func::FetchRequest;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::support::get;

/// What came of the streams.
#[derive(Default)]
struct Outcomes {
    connections: AtomicUsize,
    ended: AtomicUsize,
    reset: AtomicUsize,
    sent_bytes: AtomicUsize,
}

/// The answer of a path.
enum Answer {
    /// Gives back what comes, and ends when it ends.
    Echo(Incoming),
    /// As many bytes as are taken.
    Endless,
    /// Reads nothing, says nothing and does not end.
    Deaf(#[expect(dead_code, reason = "it is held, and not read")] Incoming),
    /// Gives back one part, and ends by itself.
    Once(Option<Incoming>),
}

struct Answering {
    answer: Answer,
    outcomes: Arc<Outcomes>,
    has_ended: bool,
}

impl Drop for Answering {
    fn drop(&mut self) {
        let is_reset = matches!(self.answer, Answer::Echo(_)) && !self.has_ended;
        self.outcomes.reset.fetch_add(usize::from(is_reset), Ordering::SeqCst);
    }
}

impl Body for Answering {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let outcomes = Arc::clone(&self.outcomes);
        match &mut self.answer {
            Answer::Echo(body) => match std::task::ready!(Pin::new(body).poll_frame(context)) {
                Some(Ok(frame)) => Poll::Ready(Some(Ok(frame))),
                Some(Err(_)) => Poll::Ready(None),
                None => {
                    self.has_ended = true;
                    outcomes.ended.fetch_add(1, Ordering::SeqCst);
                    Poll::Ready(None)
                }
            },
            Answer::Endless => {
                outcomes.sent_bytes.fetch_add(1000, Ordering::SeqCst);
                Poll::Ready(Some(Ok(Frame::data(vec![b'x'; 1000].into()))))
            }
            Answer::Deaf(_) => Poll::Pending,
            Answer::Once(body) => {
                let Some(own) = body else { return Poll::Ready(None) };
                let frame = std::task::ready!(Pin::new(own).poll_frame(context));
                let mut rest = body.take().expect("it is here");
                tokio::spawn(async move {
                    while let Some(Ok(_)) = rest.frame().await {}
                    outcomes.ended.fetch_add(usize::from(rest.is_end_stream()), Ordering::SeqCst);
                });
                Poll::Ready(frame.and_then(Result::ok).map(Ok))
            }
        }
    }
}

async fn respond(request: Request<Incoming>, outcomes: Arc<Outcomes>) -> Result<Response<Answering>, Infallible> {
    let path = request.uri().path().to_owned();
    if path == "/late" {
        sleep(Duration::from_secs(60)).await;
    }
    let body = request.into_body();
    let answer = match path.as_str() {
        "/endless" => Answer::Endless,
        "/deaf" => Answer::Deaf(body),
        "/once" => Answer::Once(Some(body)),
        _ => Answer::Echo(body),
    };
    let status = if path == "/refused" { 403 } else { 200 };
    Ok(Response::builder().status(status).body(Answering { answer, outcomes, has_ended: false }).expect("valid"))
}

struct Server {
    address: SocketAddr,
    outcomes: Arc<Outcomes>,
    listening: AbortHandle,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let outcomes = Arc::<Outcomes>::default();
        let shared = Arc::clone(&outcomes);
        let listening = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("accepts");
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let outcomes = Arc::clone(&shared);
                let service = service_fn(move |request| respond(request, Arc::clone(&outcomes)));
                let serving = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
                tokio::spawn(serving);
            }
        });
        Self { address, outcomes, listening: listening.abort_handle() }
    }

    fn post(&self, path: &str, body: &'static str) -> FetchRequest {
        let (method, body) = ("POST".to_owned(), Bytes::from_static(body.as_bytes()));
        FetchRequest { method, body, ..get(&format!("http://{}{path}", self.address)) }
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Outcomes) -> bool) {
        for _ in 0..500 {
            if is_so(&self.outcomes) {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("not within 5 s: {what}");
    }
}

fn fetcher() -> HttpFetcher {
    HttpFetcher::new(&Options { idle_ms: 60_000, ..Options::default() })
}

async fn open(fetcher: &HttpFetcher, request: FetchRequest) -> Duplex {
    fetcher.open(request, true).await.expect("it begins")
}

async fn next(duplex: &mut Duplex) -> Bytes {
    let came = timeout(Duration::from_secs(5), duplex.next()).await.expect("in time");
    came.expect("more").expect("not broken off")
}

#[tokio::test]
async fn each_part_is_answered_before_the_next_is_sent_and_streams_share_a_connection() {
    let (server, fetcher) = (Server::start().await, fetcher());
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(open(&fetcher, server.post("/echo", "one")).await);
    }
    for stream in &mut streams {
        assert_eq!((stream.status(), next(stream).await), (200, Bytes::from_static(b"one")));
    }
    for stream in &mut streams {
        stream.send(Bytes::from_static(b"two"));
        assert_eq!(next(stream).await, "two");
    }
    for stream in streams {
        stream.end().await;
    }
    let ends = |outcomes: &Outcomes| (outcomes.ended.load(Ordering::SeqCst), outcomes.reset.load(Ordering::SeqCst));
    assert_eq!((ends(&server.outcomes), server.outcomes.connections.load(Ordering::SeqCst)), ((20, 0), 1));
}

/// A handler that waits on its stream may wait for something that needs a connection.
#[tokio::test]
async fn connections_with_streams_take_none_from_others() {
    let (first, second) = (Server::start().await, Server::start().await);
    let options = Options { connections: 1, stream_connections: 1, idle_ms: 60_000, ..Options::default() };
    let fetcher = HttpFetcher::new(&options);
    let mut waits = open(&fetcher, first.post("/echo", "one")).await;
    let budget = ByteBudget::unlimited();
    let other = fetcher.exchange(second.post("/echo", "other"), true, &budget);
    assert_eq!(timeout(Duration::from_secs(5), other).await.expect("at once").expect("answered").body, "other");

    let refused = fetcher.open(second.post("/echo", "two"), true).await.err().expect("no room");
    assert!(refused.is_unsent && !refused.is_late, "{refused:?}");
    assert!(refused.error.message.ends_with(NO_STREAM_CONNECTION), "{refused:?}");
    assert_eq!(next(&mut waits).await, "one");
    // More streams of the connection that there is.
    drop(open(&fetcher, first.post("/echo", "three")).await);
    waits.end().await;
    // Its connection has no streams any more, and gives way.
    let mut now = open(&fetcher, second.post("/echo", "two")).await;
    assert_eq!(next(&mut now).await, "two");
}

#[tokio::test]
async fn a_server_that_ends_first_costs_neither_a_reset_nor_the_connection() {
    let (server, fetcher) = (Server::start().await, fetcher());
    let kept = open(&fetcher, server.post("/echo", "one")).await;
    for _ in 0..50 {
        let mut once = open(&fetcher, server.post("/once", "one")).await;
        assert_eq!(next(&mut once).await, "one");
        once.end().await;
    }
    assert_eq!(kept.status(), 200);
    server.until("all ended in order", |outcomes| outcomes.ended.load(Ordering::SeqCst) == 50).await;
    assert_eq!(server.outcomes.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_was_sent_right_before_the_end_does_not_cost_the_connection() {
    let (server, fetcher) = (Server::start().await, fetcher());
    let kept = open(&fetcher, server.post("/echo", "one")).await;
    for _ in 0..20 {
        let mut stream = open(&fetcher, server.post("/echo", "one")).await;
        assert_eq!(next(&mut stream).await, "one");
        stream.send(Bytes::from_static(b"a ping"));
        stream.end().await;
    }
    assert_eq!(kept.status(), 200);
    assert_eq!(server.outcomes.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn one_that_is_dropped_is_reset_and_takes_no_other_with_it() {
    let (server, fetcher) = (Server::start().await, fetcher());
    let mut other = open(&fetcher, server.post("/echo", "one")).await;
    assert_eq!(next(&mut other).await, "one");
    let mut dropped = open(&fetcher, server.post("/echo", "one")).await;
    assert_eq!(next(&mut dropped).await, "one");
    drop(dropped);
    server.until("it was reset", |outcomes| outcomes.reset.load(Ordering::SeqCst) == 1).await;
    other.send(Bytes::from_static(b"two"));
    assert_eq!(next(&mut other).await, "two");
    open(&fetcher, server.post("/echo", "one")).await.end().await;
    assert_eq!(server.outcomes.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_server_that_does_not_read_costs_its_connection_once_it_is_given_up() {
    let (server, fetcher) = (Server::start().await, fetcher());
    let mut other = open(&fetcher, server.post("/echo", "one")).await;
    let deaf = open(&fetcher, server.post("/deaf", "one")).await;
    for _ in 0..4 {
        deaf.send(vec![b'x'; 1 << 20].into());
    }
    sleep(Duration::from_millis(200)).await;
    assert!(deaf.has_unsent(), "what is not read is not taken");
    drop(deaf);
    assert_eq!(next(&mut other).await, "one", "others of the connection go on");
    let fresh = open(&fetcher, server.post("/echo", "one")).await;
    assert_ne!(fresh.connection(), other.connection());
    assert_eq!(server.outcomes.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn what_is_not_read_is_not_fetched() {
    let (server, fetcher) = (Server::start().await, fetcher());
    let mut endless = open(&fetcher, server.post("/endless", "one")).await;
    sleep(Duration::from_millis(300)).await;
    let sent_bytes = server.outcomes.sent_bytes.load(Ordering::SeqCst);
    assert!(sent_bytes < 2 << 20, "{sent_bytes} bytes were taken ahead");
    for _ in 0..100 {
        next(&mut endless).await;
    }
    server.until("reading makes room", |outcomes| outcomes.sent_bytes.load(Ordering::SeqCst) > sent_bytes).await;
}

#[tokio::test]
async fn a_response_that_never_ends_is_given_up() {
    let (server, fetcher) = (Server::start().await, fetcher());
    for (path, within) in [("/deaf", 900..3_000), ("/endless", 0..900)] {
        let began = Instant::now();
        open(&fetcher, server.post(path, "one")).await.end().await;
        let took_ms = began.elapsed().as_millis();
        assert!(within.contains(&took_ms), "{path}: {took_ms} ms");
    }
}

#[tokio::test]
async fn a_stream_that_does_not_begin_has_a_time_limit() {
    let (server, fetcher) = (Server::start().await, fetcher());
    let request = FetchRequest { timeout_ms: 200, ..server.post("/late", "one") };
    let failure = fetcher.open(request, true).await.map(|_| ()).expect_err("late");
    assert!(failure.is_late && !failure.is_unsent, "{failure:?}");
    let refused = open(&fetcher, server.post("/refused", "why")).await;
    assert_eq!(refused.status(), 403);
    assert_eq!(server.outcomes.connections.load(Ordering::SeqCst), 2, "nobody may be there any more");
}

#[tokio::test]
async fn a_server_of_http1_is_sent_nothing() {
    let (server, fetcher) = (crate::support::Server::start().await, fetcher());
    let request = FetchRequest { timeout_ms: 1_000, ..server.get("/echo") };
    let failure = fetcher.open(request, false).await.map(|_| ()).expect_err("another protocol");
    assert!(failure.is_unsent && failure.error.message.contains("HTTP/1.1"), "{failure:?}");
    assert_eq!(server.counts.requests(), 0);
}
