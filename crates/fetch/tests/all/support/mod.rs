//! A server that behaves as the path of a request says, and what tests ask of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_fetch::HttpFetcher;
use millrace_func::{FetchRequest, FetchResponse, Fetcher};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// How long a test waits for something that must happen; far longer than it takes.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What one server or several have seen.
#[derive(Default)]
pub struct Counts {
    pub accepted: AtomicUsize,
    pub open: AtomicUsize,
    pub most_open: AtomicUsize,
    pub requests: AtomicUsize,
    /// Bytes of the bodies of requests that were answered early.
    pub late_bytes: AtomicUsize,
    pub late_requests: AtomicUsize,
}

impl Counts {
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub fn most_open(&self) -> usize {
        self.most_open.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let wait = async {
            while !holds(self) {
                sleep(Duration::from_millis(2)).await;
            }
        };
        assert!(timeout(PATIENCE, wait).await.is_ok(), "it never came to: {what}");
    }
}

/// A server on a port of its own. It ends with the test.
pub struct Server {
    pub address: SocketAddr,
    pub counts: Arc<Counts>,
    listening: AbortHandle,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Server {
    pub async fn start() -> Self {
        Self::with(Arc::default(), None).await
    }

    pub async fn with(counts: Arc<Counts>, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::clone(&counts);
        let listening = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("accepts");
                stream.set_nodelay(true).expect("a TCP socket");
                let (counts, tls) = (Arc::clone(&shared), tls.clone());
                tokio::spawn(async move {
                    counts.accepted.fetch_add(1, Ordering::SeqCst);
                    let open = counts.open.fetch_add(1, Ordering::SeqCst) + 1;
                    counts.most_open.fetch_max(open, Ordering::SeqCst);
                    match tls {
                        None => serve(stream, &counts).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &counts).await;
                            }
                        }
                    }
                    counts.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, counts, listening: listening.abort_handle() }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn get(&self, path: &str) -> FetchRequest {
        get(&self.url(path))
    }
}

pub fn get(url: &str) -> FetchRequest {
    FetchRequest {
        method: "GET".to_owned(),
        url: url.to_owned(),
        headers: Vec::new(),
        body: Bytes::new(),
        timeout_ms: 10_000,
        response_bytes: 1 << 20,
        retries: 3,
    }
}

pub async fn answer(fetcher: &HttpFetcher, request: FetchRequest) -> FetchResponse {
    let url = request.url.clone();
    fetcher.fetch(request).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

pub async fn failure(fetcher: &HttpFetcher, request: FetchRequest) -> String {
    let url = request.url.clone();
    let fetched = timeout(PATIENCE, fetcher.fetch(request)).await;
    let error: Error = fetched.expect("ends by itself").expect_err(&url);
    assert_eq!(error.code, ErrorCode::FetchFailed, "{url}: {error}");
    error.message
}

struct Received {
    head: String,
    path: String,
    body: Vec<u8>,
}

/// One request, or `None` if the client has closed the connection.
async fn receive<S: AsyncRead + Unpin>(stream: &mut S) -> Option<Received> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(position) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break position + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    if path == "/answer-early" {
        return Some(Received { head, path, body: Vec::new() });
    }
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    while bytes.len() < head_end + length.unwrap_or(0) {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some(Received { head, path, body: bytes.split_off(head_end) })
}

/// Answers requests until one of them, or the client, ends the connection.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, counts: &Counts) {
    while let Some(request) = receive(&mut stream).await {
        counts.requests.fetch_add(1, Ordering::SeqCst);
        if respond(&mut stream, &request, counts).await != Ok(true) {
            break;
        }
    }
}

fn with_body(status: &str, body: &[u8]) -> Vec<u8> {
    let mut response = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    response.extend_from_slice(body);
    response
}

/// Says whether the connection goes on; `Err` if the client has closed it.
async fn respond<S>(stream: &mut S, request: &Received, counts: &Counts) -> Result<bool, ()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (path, argument) = match request.path[1..].split_once('/') {
        Some((path, argument)) => (path, argument),
        None => (request.path[1..].split('?').next().unwrap_or_default(), ""),
    };
    let number = || argument.parse::<usize>().expect("a number");
    let mut goes_on = true;
    let response = match path {
        "echo" => with_body("200 OK", &[request.head.as_bytes(), &request.body].concat()),
        "delay" => {
            // Until the client gives up, if that is earlier.
            let mut byte = [0];
            tokio::select! {
                () = sleep(Duration::from_millis(number() as u64)) => with_body("200 OK", b"late"),
                _ = stream.read(&mut byte) => return Ok(false),
            }
        }
        "status" => with_body(argument, b"a body"),
        "bytes" => with_body("200 OK", &vec![b'x'; number()]),
        "redirect" => b"HTTP/1.1 302 Found\r\nlocation: /echo\r\ncontent-length: 0\r\n\r\n".to_vec(),
        "empty" => format!("HTTP/1.1 {argument}\r\netag: x\r\n\r\n").into_bytes(),
        "head" => b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n".to_vec(),
        "early-hints" => [b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", &*with_body("200 OK", b"ok")].concat(),
        "chunked" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-One: \xc3\xa4\r\nX-Bytes: \xff\r\n\r\n\
              3;extension=1\r\nabc\r\n0a\r\n0123456789\r\n0\r\nx-trailer: y\r\n\r\n"
            .to_vec(),
        "old" => {
            goes_on = false;
            b"HTTP/1.0 200 OK\r\n\r\nuntil the end".to_vec()
        }
        "last" => {
            goes_on = false;
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok".to_vec()
        }
        // It promises to go on, and does not.
        "stale" => {
            goes_on = false;
            with_body("200 OK", b"ok")
        }
        "stale-soon" => {
            stream.write_all(&with_body("200 OK", b"ok")).await.map_err(drop)?;
            sleep(Duration::from_millis(number() as u64)).await;
            return Ok(false);
        }
        "surplus" => [with_body("200 OK", b"ok"), with_body("200 OK", b"of somebody else")].concat(),
        "answer-early" => {
            stream.write_all(&with_body("413 Too Large", b"no")).await.map_err(drop)?;
            sleep(Duration::from_millis(200)).await;
            let mut bytes = vec![0; 1 << 16];
            while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                counts.late_bytes.fetch_add(count, Ordering::SeqCst);
            }
            counts.late_requests.fetch_add(1, Ordering::SeqCst);
            return Ok(false);
        }
        _ => return misbehave(stream, path).await,
    };
    stream.write_all(&response).await.map_err(drop)?;
    stream.flush().await.map_err(drop)?;
    Ok(goes_on)
}

/// What no proper server does.
async fn misbehave<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, path: &str) -> Result<bool, ()> {
    const OK: &str = "HTTP/1.1 200 OK\r\n";
    if let Some(text) = path.strip_prefix("raw-") {
        let bytes: Vec<u8> = text
            .as_bytes()
            .chunks(2)
            .map(|two| u8::from_str_radix(str::from_utf8(two).expect("hex"), 16).expect("hex"))
            .collect();
        stream.write_all(&bytes).await.map_err(drop)?;
        return Ok(false);
    }
    let (start, repeated, pause_ms) = match path {
        "close" => return Ok(false),
        "silent" => (String::new(), String::new(), 10),
        "garbage" => ("\0\u{1}garbage\r\n\r\n\r\n".to_owned(), String::new(), 10),
        "http2" => ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), String::new(), 10),
        "switch" => (
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n".to_owned(),
            String::new(),
            10,
        ),
        "endless" => {
            (format!("{OK}transfer-encoding: chunked\r\n\r\n"), format!("1000\r\n{}\r\n", "x".repeat(4096)), 0)
        }
        "endless-old" => (format!("{OK}connection: close\r\n\r\n"), "x".repeat(4096), 0),
        "endless-length" => (format!("{OK}content-length: 1000000000000\r\n\r\n"), "x".repeat(4096), 0),
        "endless-chunk-size" => (format!("{OK}transfer-encoding: chunked\r\n\r\n"), "0".repeat(4096), 0),
        "endless-extension" => (format!("{OK}transfer-encoding: chunked\r\n\r\n1;"), "x".repeat(4096), 0),
        "endless-trailers" => (format!("{OK}transfer-encoding: chunked\r\n\r\n0\r\n"), "a: b\r\n".repeat(512), 0),
        "endless-header" => (format!("{OK}x: "), "x".repeat(4096), 0),
        "endless-headers" => (OK.to_owned(), "a: b\r\n".repeat(512), 0),
        "endless-status" => ("HTTP/1.1 200 ".to_owned(), "x".repeat(4096), 0),
        "endless-continue" => (String::new(), "HTTP/1.1 100 Continue\r\n\r\n".repeat(64), 0),
        "drip" => (format!("{OK}content-length: 1000\r\n\r\n"), "x".to_owned(), 10),
        "drip-header" => (format!("{OK}x: "), "x".to_owned(), 10),
        "stops" => (format!("{OK}content-length: 10\r\n\r\nabc"), String::new(), 10),
        "wrong-length" => (format!("{OK}content-length: -1\r\n\r\n"), String::new(), 10),
        "two-lengths" => (format!("{OK}content-length: 1\r\ncontent-length: 2\r\n\r\nab"), String::new(), 10),
        "wrong-chunk" => (format!("{OK}transfer-encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n"), String::new(), 10),
        "huge-chunk" => (format!("{OK}transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\nab"), String::new(), 10),
        "breaks" => {
            stream.write_all(format!("{OK}content-length: 10\r\n\r\nabc").as_bytes()).await.map_err(drop)?;
            return Ok(false);
        }
        "breaks-chunked" => {
            stream
                .write_all(format!("{OK}transfer-encoding: chunked\r\n\r\n5\r\nab").as_bytes())
                .await
                .map_err(drop)?;
            return Ok(false);
        }
        _ => panic!("no behaviour is called {path}"),
    };
    stream.write_all(start.as_bytes()).await.map_err(drop)?;
    loop {
        stream.write_all(repeated.as_bytes()).await.map_err(drop)?;
        stream.flush().await.map_err(drop)?;
        // Without a pause, a client that reads on gets as much as it takes.
        if repeated.is_empty() {
            let mut byte = [0];
            let read = stream.read(&mut byte).await;
            return if read.is_ok_and(|count| count > 0) { Ok(true) } else { Err(()) };
        }
        sleep(Duration::from_millis(pause_ms)).await;
    }
}
