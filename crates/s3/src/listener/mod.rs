//! One core's listener: accepting, TLS, HTTP/1.1 by hyper, draining.
//!
//! HTTP/2 is not offered: S3 clients do not use it.

mod io;

use std::cell::Cell;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use millrace_access::Cached;
use millrace_api::objects::{BodyRead, Objects};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::front::{Front, Options, Peer};
use crate::limits;
use crate::metrics::CoreMetrics;
use crate::users::Users;
use io::Watched;

/// How long accepting rests when the process has no descriptors or memory left.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(20);

/// What a client hears for whom there is no room.
const TURNED_AWAY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: application/xml\r\ncontent-length: 105\r\n\r\n\
    <Error><Code>SlowDown</Code><Message>The server has as many connections as it may have.</Message></Error>";

/// What a client hears, whatever it asks for, while the node starts.
pub const STARTING: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: application/xml\r\ncontent-length: 88\r\n\r\n\
    <Error><Code>ServiceUnavailable</Code><Message>The server is starting.</Message></Error>";

/// How often a drain looks whether all connections have ended.
const DRAIN_LOOK: Duration = Duration::from_millis(5);

/// Serves a listener on the current core until `shutdown` is ready, then drains: stops accepting, answers what has
/// arrived, and gives the rest [`crate::front::Timeouts::drain`] to finish. Must run inside a `LocalSet`.
///
/// # Errors
/// When the listener cannot be used at all. Failing accepts are waited out instead.
pub async fn serve<B, U>(
    listener: std::net::TcpListener,
    backend: B,
    users: U,
    options: Arc<Options>,
    shutdown: impl Future<Output = ()>,
) -> std::io::Result<()>
where
    B: Objects,
    B::BodyRead: BodyRead + Unpin,
    U: Users,
{
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let (drain, _) = watch::channel(false);
    let core = Core {
        tls: options.tls.clone().map(Cached::new),
        front: Front::new(backend, users, Arc::clone(&options)),
        options: Arc::clone(&options),
        open: Rc::new(Cell::new(0)),
        drain,
    };
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => core.admit(stream, address),
                Err(error) => {
                    core.front.metrics().accept_failures.increment();
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(EXHAUSTED_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    core.drain.send_replace(true);
    let emptied = async {
        while core.open.get() > 0 {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    };
    if tokio::time::timeout(options.timeouts.drain, emptied).await.is_err() {
        tracing::warn!(connections = core.open.get(), "requests did not finish in time; closing them");
    }
    Ok(())
}

struct Core<B, U> {
    front: Rc<Front<B, U>>,
    options: Arc<Options>,
    tls: Option<Cached<Arc<ServerConfig>>>,
    open: Rc<Cell<usize>>,
    drain: watch::Sender<bool>,
}

/// Counts a connection as long as it is open.
struct Open(Rc<Cell<usize>>, Arc<CoreMetrics>);

impl Open {
    fn new(open: &Rc<Cell<usize>>, metrics: &Arc<CoreMetrics>) -> Self {
        open.set(open.get() + 1);
        metrics.connections_open.set(open.get() as u64);
        Self(Rc::clone(open), Arc::clone(metrics))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
        self.1.connections_open.set(self.0.get() as u64);
    }
}

impl<B, U> Core<B, U>
where
    B: Objects,
    B::BodyRead: BodyRead + Unpin,
    U: Users,
{
    fn admit(&self, stream: TcpStream, address: SocketAddr) {
        // Without it, small replies wait for the client's delayed acknowledgement. Fails only on a socket that is gone,
        // which the first read notices.
        let _ = stream.set_nodelay(true);
        let metrics = Arc::clone(self.front.metrics());
        if self.open.get() >= self.options.connections {
            metrics.connections_shed.increment();
            if self.tls.is_none() {
                // As much as fits into the socket's buffer, which is all of it for a new connection.
                let _ = stream.try_write(TURNED_AWAY);
            }
            return;
        }
        metrics.connections.increment();
        let open = Open::new(&self.open, &metrics);
        let front = Rc::clone(&self.front);
        let timeouts = self.options.timeouts;
        let drain = self.drain.subscribe();
        let peer = Peer { address: Some(address.ip()), is_encrypted: self.tls.is_some() };
        match &self.tls {
            None => {
                spawn_local(async move {
                    run(Watched::new(stream, timeouts.write_stall, metrics), front, peer, timeouts.head, drain).await;
                    drop(open);
                });
            }
            Some(config) => {
                let acceptor = TlsAcceptor::from(Arc::clone(&**config.get()));
                spawn_local(async move {
                    // Boxed: a handshake's future is large and soon gone.
                    let handshake = Box::pin(tokio::time::timeout(timeouts.handshake, acceptor.accept(stream)));
                    if let Ok(Ok(stream)) = handshake.await {
                        run(Watched::new(stream, timeouts.write_stall, metrics), front, peer, timeouts.head, drain)
                            .await;
                    }
                    drop(open);
                });
            }
        }
    }
}

async fn run<S, B, U>(
    stream: Watched<S>,
    front: Rc<Front<B, U>>,
    peer: Peer,
    head_timeout: Duration,
    mut drain: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    B: Objects,
    B::BodyRead: BodyRead + Unpin,
    U: Users,
{
    let errors = Arc::clone(front.metrics());
    let service = service_fn(move |request| {
        let front = Rc::clone(&front);
        async move { Ok::<_, std::convert::Infallible>(front.answer(request, peer).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_buf_size(limits::HEAD_BYTES)
        .max_headers(limits::HEADERS)
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let result = tokio::select! {
        result = &mut connection => result,
        _ = drain.wait_for(|is_draining| *is_draining) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        errors.connection_errors.increment();
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_without_a_front_has_the_length_that_it_says() {
        for reply in [TURNED_AWAY, STARTING] {
            let text = std::str::from_utf8(reply).expect("text");
            let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
            assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
        }
    }
}
