//! Requests to the worker.

use bytes::Bytes;
use millrace_base::{ByteBudget, limits};
use millrace_fetch::{HttpFetcher, Options};
use millrace_func::{FetchRequest, FetchTarget, worker_http_url};

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

    /// What stands before the paths of requests, in the worker's URL.
    fn base_path(&self) -> &str;
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

impl Transport for HttpTransport {
    fn ask(&self, ask: Ask) -> Result<Reply, String> {
        let request = FetchRequest {
            method: ask.method.to_owned(),
            url: format!("{}{}", self.url, ask.path),
            headers: ask.headers,
            body: ask.body,
            timeout_ms: TIMEOUT_MS,
            response_bytes: limits::WORKER_ATTEMPT_BYTES,
            retries: 0,
        };
        let response = self.runtime.block_on(async {
            if self.is_http2 {
                self.fetcher.exchange_http2(request, &ByteBudget::unlimited()).await
            } else {
                self.fetcher.exchange(request, &ByteBudget::unlimited()).await
            }
        });
        let response = response.map_err(|failure| failure.error.message.to_string())?;
        let content_type = response.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let content_type = content_type.map(|(_, value)| value.clone()).unwrap_or_default();
        Ok(Reply { status: response.status, content_type, body: response.body })
    }

    fn base_path(&self) -> &str {
        &self.base_path
    }
}
