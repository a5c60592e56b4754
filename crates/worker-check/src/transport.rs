//! Requests to the worker.

use std::time::Duration;

use bytes::Bytes;
use millrace_base::{ByteBudget, limits};
use millrace_fetch::{Duplex, HttpFetcher, Options};
use millrace_func::{FetchRequest, FetchTarget, worker_http_url, worker_may_be_http2};
use tokio::time::timeout;

/// A case asks for nothing that takes longer.
const TIMEOUT_MS: u64 = 5_000;

/// A request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Upper-case method.
    pub method: &'static str,
    /// Below the worker's URL.
    pub path: String,
    /// Names are in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// `content-type`, or nothing.
    pub content_type: String,
    /// The body.
    pub body: Bytes,
}

/// What carries requests to a worker.
pub trait Transport {
    /// Sends a request.
    ///
    /// # Errors
    /// Why there is no reply.
    fn ask(&self, ask: Ask) -> Result<Reply, String>;

    /// Whether requests are HTTP/2, or may be, so that a worker may serve the mode `stream`.
    fn has_streams(&self) -> bool {
        false
    }

    /// Sends a request whose body goes on, and waits until the response begins.
    ///
    /// # Errors
    /// Why there is none.
    fn open(&self, _ask: Ask) -> Result<Box<dyn Talk + '_>, String> {
        Err("there are no streams here".to_owned())
    }

    /// What stands before the paths of requests, in the worker's URL.
    fn base_path(&self) -> &str;
}

/// A stream: both bodies go on.
pub trait Talk {
    /// The response's status.
    fn status(&self) -> u16;

    /// Sends more of the request's body.
    fn send(&mut self, part: Bytes);

    /// Ends the request's body.
    fn finish(&mut self);

    /// More of the response's body; `None` at its end.
    ///
    /// # Errors
    /// It broke off, or nothing came in time.
    fn next(&mut self) -> Result<Option<Bytes>, String>;
}

/// Requests over HTTP, one at a time.
pub struct HttpTransport {
    runtime: tokio::runtime::Runtime,
    fetcher: HttpFetcher,
    url: String,
    is_http2: bool,
    base_path: String,
}

impl HttpTransport {
    /// Requests below `url`, which is what a deployment may have.
    ///
    /// # Errors
    /// It is not a URL; or the system gives no sockets.
    pub fn new(url: &str) -> Result<Self, String> {
        let (url, is_http2) = worker_http_url(url.trim_end_matches('/'));
        let url = url.into_owned();
        let target = FetchTarget::parse(&url).map_err(|error| error.message.to_string())?;
        let base_path = target.path_and_query().trim_end_matches('/').to_owned();
        let options = Options { offers_http2: true, ..Options::default() };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        Ok(Self { runtime, fetcher: HttpFetcher::new(&options), url, is_http2, base_path })
    }
}

impl HttpTransport {
    fn request(&self, ask: Ask) -> FetchRequest {
        FetchRequest {
            method: ask.method.to_owned(),
            url: format!("{}{}", self.url, ask.path),
            headers: ask.headers,
            body: ask.body,
            timeout_ms: TIMEOUT_MS,
            response_bytes: limits::WORKER_ATTEMPT_BYTES,
            retries: 0,
        }
    }
}

/// A stream over HTTP/2.
struct HttpTalk<'t> {
    runtime: &'t tokio::runtime::Runtime,
    duplex: Duplex,
}

impl Talk for HttpTalk<'_> {
    fn status(&self) -> u16 {
        self.duplex.status()
    }

    fn send(&mut self, part: Bytes) {
        self.duplex.send(part);
    }

    fn finish(&mut self) {
        self.duplex.finish();
    }

    fn next(&mut self) -> Result<Option<Bytes>, String> {
        let limit = Duration::from_millis(TIMEOUT_MS);
        let came = self.runtime.block_on(async { timeout(limit, self.duplex.next()).await });
        came.map_err(|_| format!("nothing came within {TIMEOUT_MS} ms"))?.transpose()
    }
}

impl Transport for HttpTransport {
    fn has_streams(&self) -> bool {
        self.is_http2 || worker_may_be_http2(&self.url)
    }

    fn open(&self, ask: Ask) -> Result<Box<dyn Talk + '_>, String> {
        let opened = self.runtime.block_on(self.fetcher.open(self.request(ask), self.is_http2));
        let duplex = opened.map_err(|failure| failure.error.message.to_string())?;
        Ok(Box::new(HttpTalk { runtime: &self.runtime, duplex }))
    }

    fn ask(&self, ask: Ask) -> Result<Reply, String> {
        let request = self.request(ask);
        let budget = ByteBudget::unlimited();
        let response = self.runtime.block_on(self.fetcher.exchange(request, self.is_http2, &budget));
        let response = response.map_err(|failure| failure.error.message.to_string())?;
        let content_type = response.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let content_type = content_type.map(|(_, value)| value.clone()).unwrap_or_default();
        Ok(Reply { status: response.status, content_type, body: response.body })
    }

    fn base_path(&self) -> &str {
        &self.base_path
    }
}
