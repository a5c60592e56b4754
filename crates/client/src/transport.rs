//! One request over one kept-alive connection: a small pool over hyper's connection type.
//!
//! Promises: a reply is whole and bounded, or an error that says whether the request may have
//! reached the server. Knows nothing of the contract's paths and of retries.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout_at;

use crate::ClientError;

/// Connections kept for the next request. Enough for a program with a few callers; a load
/// generator has its own engine.
const IDLE_CONNECTIONS: usize = 16;

/// Bytes of one reply's body: far above the server's own limits, far below what hurts.
const REPLY_BYTES: usize = 64 << 20;

type Sender = SendRequest<Full<Bytes>>;

/// A whole reply.
pub(crate) struct Reply {
    pub status: u16,
    pub content_type: String,
    /// `Retry-After`, if the server sent one in seconds.
    pub retry_after: Option<Duration>,
    pub body: Bytes,
}

/// Where the server is, and the connections kept open to it.
pub(crate) struct Transport {
    host: String,
    port: u16,
    authority: HeaderValue,
    idle: Mutex<Vec<Sender>>,
}

impl Transport {
    /// `base_url` is `http://host[:port]`, without a path.
    pub(crate) fn new(base_url: &str) -> Result<Self, ClientError> {
        let refuse = |why: &str| ClientError::BadRequest(format!("cannot use {base_url:?} as the server's URL: {why}"));
        let uri: Uri = base_url.parse().map_err(|error| refuse(&format!("{error}")))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(refuse("this client speaks plain http only")),
            _ => return Err(refuse("it must look like http://host:port")),
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(refuse("it must not have a path"));
        }
        let authority = uri.authority().ok_or_else(|| refuse("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(refuse("it must not hold a user name; use an API key"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let value = HeaderValue::from_str(authority.as_str()).map_err(|error| refuse(&format!("{error}")))?;
        Ok(Self { host, port: authority.port_u16().unwrap_or(80), authority: value, idle: Mutex::new(Vec::new()) })
    }

    /// Sends one request; `deadline` bounds connecting, sending and the whole reply.
    pub(crate) async fn exchange(
        &self,
        mut request: Request<Full<Bytes>>,
        deadline: tokio::time::Instant,
        limit: Duration,
    ) -> Result<Reply, ClientError> {
        request.headers_mut().insert(HOST, self.authority.clone());
        match timeout_at(deadline, self.exchange_unbounded(request)).await {
            Ok(result) => result,
            Err(_) => Err(ClientError::Timeout(limit)),
        }
    }

    async fn exchange_unbounded(&self, mut request: Request<Full<Bytes>>) -> Result<Reply, ClientError> {
        // A kept connection may have been closed by the server meanwhile. hyper gives the
        // request back when not a byte of it was sent; then the next connection takes it.
        while let Some(mut sender) = self.take_idle() {
            match sender.try_send_request(request).await {
                Ok(response) => return self.finish(sender, response).await,
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(ClientError::Interrupted(error.into_error().to_string())),
                },
            }
        }
        let mut sender = self.connect().await?;
        let response =
            sender.send_request(request).await.map_err(|error| ClientError::Interrupted(describe(&error)))?;
        self.finish(sender, response).await
    }

    fn take_idle(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while let Some(sender) = idle.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    async fn connect(&self) -> Result<Sender, ClientError> {
        let failed = |error: &dyn std::fmt::Display| {
            ClientError::Connect(format!("cannot connect to {}:{}: {error}", self.host, self.port))
        };
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        // The task ends with the connection; its error reaches the request through `sender`.
        drop(tokio::spawn(connection));
        Ok(sender)
    }

    async fn finish(&self, sender: Sender, response: Response<hyper::body::Incoming>) -> Result<Reply, ClientError> {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, REPLY_BYTES)
            .collect()
            .await
            .map_err(|error| ClientError::Interrupted(format!("while reading the reply: {error}")))?
            .to_bytes();
        let text = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let reply = Reply {
            status: head.status.as_u16(),
            content_type: text(hyper::header::CONTENT_TYPE).unwrap_or_default().to_owned(),
            retry_after: text(RETRY_AFTER).and_then(|value| value.parse().ok()).map(Duration::from_secs),
            body,
        };
        self.keep(sender);
        Ok(reply)
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !sender.is_closed() && idle.len() < IDLE_CONNECTIONS {
            idle.push(sender);
        }
    }
}

/// hyper's errors name only the phase; the cause is in the source.
fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
