//! One core's listener: accepting, shedding, draining.

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use millrace_access::Cached;
use millrace_base::{Error, ErrorCode};
use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio_rustls::TlsAcceptor;

use crate::backend::Backend;
use crate::connection::{self, Order};
use crate::front::Front;
use crate::handle::Session;
use crate::io::{Io, Stream};
use crate::local::{Local, Registration};
use crate::metrics::Timeout;
use crate::problem;

/// How long accepting rests when the process has no descriptors or memory left.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(20);

/// Connections turned away between two such rests.
const SHED_PER_PAUSE: usize = 64;

/// How long connections that were told to abort get to do so.
const ABORT_WAIT: Duration = Duration::from_secs(1);

/// Serves one listener on the current core until `shutdown` is ready, then drains: stops accepting,
/// answers what has arrived, closes what is idle, and gives the rest
/// [`crate::Timeouts::drain`] to finish. Must run inside a `LocalSet`.
///
/// # Errors
/// When the listener cannot be used at all. Failing accepts are waited out instead.
pub async fn serve<B: Backend>(
    listener: std::net::TcpListener,
    backend: B,
    front: Arc<Front>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let local = Local::new(Arc::clone(&front));
    let sweep = spawn_local(sweep(Rc::clone(&local)));
    let departing = {
        let local = Rc::clone(&local);
        spawn_local(async move { local.depart_each_round().await })
    };
    let watch = front.claim_watch().then(|| spawn_local(watch(Arc::clone(&front))));
    let mut acceptor = Acceptor {
        backend: Rc::new(backend),
        tls: front.tls.clone().map(Cached::new),
        local: Rc::clone(&local),
        reserve: reserve(),
        is_exhausted: false,
    };
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => acceptor.admit(stream),
                Err(error) => tokio::select! {
                    () = acceptor.recover(&listener, &error) => {}
                    () = &mut shutdown => break,
                },
            },
        }
    }
    drop(listener);
    drain(&local).await;
    sweep.abort();
    departing.abort();
    if let Some(watch) = watch {
        watch.abort();
    }
    Ok(())
}

async fn sweep(local: Rc<Local>) {
    let mut interval = tokio::time::interval(local.ticks.length);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        local.sweep();
    }
}

/// Looks after changed key and TLS files.
async fn watch(front: Arc<Front>) {
    loop {
        tokio::time::sleep(front.options().timeouts.reload).await;
        let front = Arc::clone(&front);
        // On a thread of its own, because a disk may take its time. It panics only if reading
        // does, and then the old files stay in force.
        let _ = tokio::task::spawn_blocking(move || front.reload_changed()).await;
    }
}

async fn drain(local: &Rc<Local>) {
    local.drain();
    if tokio::time::timeout(local.front.options.timeouts.drain, local.emptied()).await.is_ok() {
        return;
    }
    tracing::warn!(connections = local.connection_count(), "requests did not finish in time; closing them");
    local.give_all(|| Order::Abort);
    let _ = tokio::time::timeout(ABORT_WAIT, local.emptied()).await;
}

/// A descriptor kept in reserve, so that one connection can be turned away when there is none
/// left. Having none (it is opened again at the next burst) only means that clients wait longer.
fn reserve() -> Option<File> {
    File::open("/dev/null").ok()
}

struct Acceptor<B> {
    backend: Rc<B>,
    tls: Option<Cached<Arc<tokio_rustls::rustls::ServerConfig>>>,
    local: Rc<Local>,
    reserve: Option<File>,
    is_exhausted: bool,
}

/// What a failed accept means.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// The connection was gone before it was accepted.
    Passing,
    /// The process or the machine has no descriptors or memory left.
    Exhausted,
    /// Anything else; waited out as well, because a server that exits serves nobody.
    Other,
}

fn classify(error: &io::Error) -> Failure {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::CONNRESET | Errno::AGAIN) => Failure::Passing,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => Failure::Exhausted,
        _ => Failure::Other,
    }
}

impl<B: Backend> Acceptor<B> {
    fn admit(&mut self, stream: TcpStream) {
        if std::mem::take(&mut self.is_exhausted) {
            tracing::info!("accepting connections again");
        }
        // Without it, small replies wait for the client's delayed acknowledgement. Fails only on a
        // socket that is gone, which the first read notices.
        let _ = stream.set_nodelay(true);
        if self.local.connection_count() >= self.local.front.options.limits.connections {
            self.turn_away(&stream);
            return;
        }
        let registration = self.local.register();
        let session = Session { backend: Rc::clone(&self.backend), state: Rc::clone(&registration.state) };
        match &self.tls {
            None => spawn_local(run(registration, session, Stream::Plain(stream), None)),
            Some(config) => {
                let acceptor = TlsAcceptor::from(Arc::clone(&**config.get()));
                spawn_local(run_tls(registration, session, stream, acceptor))
            }
        };
    }

    fn turn_away(&self, stream: &TcpStream) {
        self.local.metrics.connections_shed.increment();
        if self.tls.is_none() {
            let error = Error::new(ErrorCode::Overloaded, "the server has as many connections as it may have");
            // As much as fits into the socket's buffer, which is all of it for a new connection.
            let _ = stream.try_write(&problem::raw_reply(&error));
        }
    }

    async fn recover(&mut self, listener: &TcpListener, error: &io::Error) {
        let failure = classify(error);
        if failure == Failure::Passing {
            return;
        }
        self.local.metrics.accept_failures.increment();
        if !std::mem::replace(&mut self.is_exhausted, true) {
            let open = self.local.connection_count();
            tracing::error!(%error, open, "cannot accept connections; turning them away until it works again");
        }
        if failure == Failure::Exhausted {
            self.shed(listener).await;
        }
        tokio::time::sleep(EXHAUSTED_PAUSE).await;
    }

    /// Spends the reserve on accepting waiting clients just to close their connections: they learn
    /// at once that they have to try elsewhere or later.
    async fn shed(&mut self, listener: &TcpListener) {
        for _ in 0..SHED_PER_PAUSE {
            if self.reserve.take().is_none() {
                self.reserve = reserve();
                return;
            }
            let accepted = poll_fn(|context| match listener.poll_accept(context) {
                Poll::Ready(Ok((stream, _))) => Poll::Ready(Some(stream)),
                Poll::Ready(Err(_)) | Poll::Pending => Poll::Ready(None),
            })
            .await;
            let is_done = accepted.is_none();
            if let Some(stream) = accepted {
                self.turn_away(&stream);
            }
            self.reserve = reserve();
            if is_done {
                return;
            }
        }
    }
}

async fn run<B: Backend>(registration: Registration, session: Session<B>, stream: Stream, is_http2: Option<bool>) {
    let io = Io::new(stream, Rc::clone(&registration.state));
    connection::run(io, is_http2, session).await;
}

async fn run_tls<B: Backend>(
    registration: Registration,
    session: Session<B>,
    stream: TcpStream,
    acceptor: TlsAcceptor,
) {
    let local = Rc::clone(&registration.state.local);
    let accepting = async move {
        if speaks_plain_http(&stream).await {
            refuse_plain_http(&stream);
            return Err(io::Error::other("the client speaks HTTP without TLS"));
        }
        acceptor.accept(stream).await
    };
    // Boxed: a handshake's future is large and soon gone.
    let handshake = Box::pin(tokio::time::timeout(local.front.options.timeouts.handshake, accepting));
    match handshake.await {
        Ok(Ok(stream)) => {
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            run(registration, session, Stream::Tls(Box::new(stream)), Some(is_http2)).await;
        }
        Ok(Err(error)) => {
            local.metrics.connection_errors.increment();
            tracing::debug!(%error, "TLS handshake failed");
        }
        Err(_) => local.metrics.count_timeout(Timeout::Handshake),
    }
}

/// Whether a client begins as no handshake does: with the first letter of a method.
async fn speaks_plain_http(stream: &TcpStream) -> bool {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1)) && first[0].is_ascii_uppercase()
}

/// Says what is wrong in words that the client can read. Without it, clients show bytes of TLS or a broken connection.
fn refuse_plain_http(stream: &TcpStream) {
    // What is not read would reset the connection, and the reply with it.
    let _ = stream.try_read(&mut vec![0; 16 << 10]);
    let error = Error::new(ErrorCode::BadRequest, "this port speaks TLS: use https:// and not http://");
    let _ = stream.try_write(&problem::raw_reply(&error));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_accepts_are_told_apart() {
        for (errno, failure) in [
            (Errno::CONNABORTED, Failure::Passing),
            (Errno::MFILE, Failure::Exhausted),
            (Errno::NFILE, Failure::Exhausted),
            (Errno::NOMEM, Failure::Exhausted),
            (Errno::NOBUFS, Failure::Exhausted),
            (Errno::PERM, Failure::Other),
        ] {
            assert_eq!(classify(&io::Error::from_raw_os_error(errno.raw_os_error())), failure);
        }
    }
}
