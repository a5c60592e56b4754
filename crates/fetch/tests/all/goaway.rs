//! A server that ends: what it has not begun goes to the next connection, and what it has begun is lost with its own.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use millrace_base::ByteBudget;
use millrace_fetch::{Failure, HttpFetcher, Options};
use millrace_func::FetchRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::support::{PATIENCE, get};

const PREFACE_BYTES: usize = 24;
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
/// Nothing of stream 1 was done, or of any.
const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Stream 1 goes on.
const GOAWAY_BEHIND: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
/// `RST_STREAM` of stream 1 with `REFUSED_STREAM`, and with `CANCEL`.
const REFUSED: [u8; 13] = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 7];
const CANCELLED: [u8; 13] = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8];

/// A server whose first connections answer a request with these bytes and end. Later ones give the request's body back.
struct Ending {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    listening: AbortHandle,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Ending {
    async fn start(answer: &'static [u8], how_often: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let connections = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&connections);
        let listening = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("accepts");
                if count.fetch_add(1, Ordering::SeqCst) < how_often {
                    tokio::spawn(end_at_first_request(stream, answer));
                } else {
                    let serving = http2::Builder::new(TokioExecutor::new());
                    tokio::spawn(serving.serve_connection(TokioIo::new(stream), service_fn(echo)));
                }
            }
        });
        Self { address, connections, listening: listening.abort_handle() }
    }

    fn post(&self) -> FetchRequest {
        let (method, body) = ("POST".to_owned(), Bytes::from_static(b"said"));
        FetchRequest { method, body, ..get(&format!("http://{}/", self.address)) }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// The first part of the request's body: a stream's does not end.
async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let part = request.into_body().frame().await.and_then(Result::ok).and_then(|frame| frame.into_data().ok());
    Ok(Response::new(Full::new(part.unwrap_or_default())))
}

async fn end_at_first_request(mut stream: TcpStream, answer: &[u8]) -> std::io::Result<()> {
    const HEADERS: u8 = 1;
    stream.read_exact(&mut [0; PREFACE_BYTES]).await?;
    stream.write_all(&SETTINGS).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [a, b, c, kind, ..] = head;
        stream.read_exact(&mut vec![0; u32::from_be_bytes([0, a, b, c]) as usize]).await?;
        if kind == HEADERS {
            break;
        }
    }
    stream.write_all(answer).await?;
    // As long as a client might wait for more: the connection itself says nothing of the request.
    let mut rest = Vec::new();
    let _ = timeout(Duration::from_millis(200), stream.read_to_end(&mut rest)).await;
    Ok(())
}

/// What a request and a stream get.
async fn both(server: &Ending, fetcher: &HttpFetcher, is_stream: bool) -> Result<Bytes, Failure> {
    let asked = async {
        if is_stream {
            let mut duplex = fetcher.open(server.post(), true).await?;
            return Ok(duplex.next().await.expect("an answer").expect("whole"));
        }
        fetcher.exchange(server.post(), true, &ByteBudget::unlimited()).await.map(|response| response.body)
    };
    timeout(PATIENCE, asked).await.expect("long before its own time is over")
}

#[tokio::test]
async fn what_a_server_has_not_begun_goes_to_the_next_connection() {
    for (name, answer) in [("GOAWAY", &GOAWAY[..]), ("REFUSED_STREAM", &REFUSED)] {
        for is_stream in [false, true] {
            let (server, fetcher) = (Ending::start(answer, 1).await, HttpFetcher::new(&Options::default()));
            let said = both(&server, &fetcher, is_stream).await;
            assert_eq!(said.expect(name), "said", "{name}, stream: {is_stream}");
            assert_eq!(server.connections(), 2);
        }
    }
}

#[tokio::test]
async fn a_server_that_always_ends_before_a_request_is_not_there() {
    for is_stream in [false, true] {
        let (server, fetcher) = (Ending::start(&GOAWAY, usize::MAX).await, HttpFetcher::new(&Options::default()));
        let failure = both(&server, &fetcher, is_stream).await.expect_err("nobody takes it");
        assert!(failure.is_unsent && !failure.is_late, "{failure:?}");
        assert_eq!(server.connections(), 3);
    }
}

#[tokio::test]
async fn what_a_server_has_begun_is_lost_with_its_connection() {
    for answer in [&GOAWAY_BEHIND[..], &CANCELLED] {
        for is_stream in [false, true] {
            let (server, fetcher) = (Ending::start(answer, 1).await, HttpFetcher::new(&Options::default()));
            let failure = both(&server, &fetcher, is_stream).await.expect_err("it may have been done");
            assert!(!failure.is_unsent && !failure.is_late, "{failure:?}");
            sleep(Duration::from_millis(50)).await;
            assert_eq!(server.connections(), 1, "it is not sent again");
        }
    }
}
