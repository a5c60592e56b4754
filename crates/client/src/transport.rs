//! One request over one kept-alive connection, with or without TLS: a small pool over hyper's connection type.
//!
//! Promises: a reply is whole and bounded, or there is an error that says whether the request may have reached the
//! server. This module knows no paths of the contract and no retries.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};

use crate::ClientError;
use crate::client::problem_of;
use crate::tls::Tls;

/// Connections kept for the next request: enough for a program with a few callers.
const IDLE_CONNECTIONS: usize = 16;

/// Bytes of one reply's body: far above the server's limits, far below the memory of a machine.
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

/// The server's address, and the connections kept open to it.
pub(crate) struct Transport {
    host: String,
    port: u16,
    authority: HeaderValue,
    /// For `https`.
    tls: Option<Tls>,
    idle: Mutex<Vec<Sender>>,
}

impl Transport {
    /// `base_url` is `http://host[:port]` or `https://…`, without a path. `authorities` is a file of trusted ones.
    pub(crate) fn new(base_url: &str, authorities: Option<&Path>) -> Result<Self, ClientError> {
        let refuse = |why: &str| ClientError::BadRequest(format!("cannot use {base_url:?} as the server's URL: {why}"));
        let uri: Uri = base_url.parse().map_err(|error| refuse(&format!("{error}")))?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(refuse("it must look like http://host:port or https://host:port")),
        };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(refuse("it must not have a path"));
        }
        let authority = uri.authority().ok_or_else(|| refuse("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(refuse("it must not hold a user name; use an API key"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let value = HeaderValue::from_str(authority.as_str()).map_err(|error| refuse(&format!("{error}")))?;
        let tls = if is_tls { Some(Tls::new(&host, authorities)?) } else { None };
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Self { host, port, authority: value, tls, idle: Mutex::new(Vec::new()) })
    }

    /// The server's host, and its port unless it is the usual one, as in the header of requests.
    pub(crate) fn authority(&self) -> &str {
        self.authority.to_str().unwrap_or_default()
    }

    /// Whether requests leave this machine without TLS.
    pub(crate) fn can_be_overheard(&self) -> bool {
        let host = self.host.to_ascii_lowercase();
        let is_own = match host.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => host == "localhost" || host.ends_with(".localhost"),
        };
        self.tls.is_none() && !is_own
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
        // The server may have closed a kept connection meanwhile. hyper returns the request if it has sent no byte of
        // it. Then the next connection takes it.
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
        let response = sender.send_request(request).await.map_err(|error| explain(&error))?;
        self.finish(sender, response).await
    }

    /// Sends one request on a connection of its own, and gives the body of the reply as it comes. `limit` bounds the time
    /// until it begins.
    pub(crate) async fn stream(
        &self,
        mut request: Request<Full<Bytes>>,
        limit: Duration,
    ) -> Result<Incoming, ClientError> {
        request.headers_mut().insert(HOST, self.authority.clone());
        let begun = async {
            let mut sender = self.connect().await?;
            let response = sender.send_request(request).await.map_err(|error| explain(&error))?;
            if response.status().is_success() {
                return Ok(response.into_body());
            }
            let reply = self.finish(sender, response).await?;
            Err(ClientError::Problem(Box::new(problem_of(&reply))))
        };
        timeout(limit, begun).await.unwrap_or(Err(ClientError::Timeout(limit)))
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
        match &self.tls {
            None => handshake(stream).await.map_err(|error| failed(&error)),
            Some(tls) => {
                let stream = tls.connect(stream).await.map_err(|error| tls.explain(&error, &self.host, self.port))?;
                handshake(stream).await.map_err(|error| failed(&error))
            }
        }
    }

    async fn finish(&self, sender: Sender, response: Response<Incoming>) -> Result<Reply, ClientError> {
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

async fn handshake<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> hyper::Result<Sender> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The task ends with the connection; its error reaches the request through `sender`.
    drop(tokio::spawn(connection));
    Ok(sender)
}

fn explain(error: &hyper::Error) -> ClientError {
    // hyper's errors name only the phase; the cause is in the source.
    let text = match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    if error.is_parse() {
        // A node with TLS answers plain HTTP with a TLS alert, also the next time.
        return ClientError::BadReply(format!("{text}: is it a server that is asked by https://…?"));
    }
    ClientError::Interrupted(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_to_other_machines_without_tls_can_be_overheard() {
        for (url, expected) in [
            ("http://127.0.0.1:8080", false),
            ("http://127.9.9.9", false),
            ("http://[::1]:8080", false),
            ("http://[::ffff:127.0.0.1]", false),
            ("http://localhost:8080", false),
            ("http://LocalHost", false),
            ("http://shop.localhost", false),
            ("http://10.0.0.1", true),
            ("http://[::ffff:10.0.0.1]", true),
            ("http://db.example.org:8080", true),
            ("http://localhost.example.org", true),
        ] {
            let transport = Transport::new(url, None).expect(url);
            assert_eq!(transport.can_be_overheard(), expected, "{url}");
        }
    }
}
