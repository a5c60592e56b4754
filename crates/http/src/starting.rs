//! Answers for whoever connects while the node starts.
//!
//! The node has its addresses before it has recovered, so that a taken one is found at once. Connections would
//! wait in the accept queues until then. A thread accepts them instead, and turns each away. It ends when the
//! node serves. It knows no keys, no paths and no cores: nothing that a starting node may not have yet.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use millrace_access::Shared;
use millrace_base::{Error, ErrorCode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::connection::PREFACE;
use crate::io::LINGER_BYTES;
use crate::problem;

/// A start that is shorter than this turns nobody away: clients wait for it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Connections that are answered at a time. More are turned away unheard.
const CONNECTIONS: usize = 256;

/// How long a client may take for the handshake of TLS and the head of its request.
const HEAD: Duration = Duration::from_secs(1);

/// How long a client may take to read its reply, while it perhaps still sends.
const LAST: Duration = Duration::from_secs(1);

/// How long accepting rests after it has failed.
const PAUSE: Duration = Duration::from_millis(20);

/// Bytes of a head. Whoever sends a longer one is answered without its end.
const HEAD_BYTES: usize = 16 << 10;

/// What a client hears who begins with HTTP/2 and no TLS: empty settings, then GOAWAY without any stream that was
/// looked at. So it may send all of its requests again.
const GOAWAY: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// An address that is listened at before the node serves there.
pub struct Entrance<'a> {
    /// Its listeners.
    pub listeners: &'a [TcpListener],
    /// Of TLS, without an offer of HTTP/2.
    pub tls: Option<Arc<Shared<Arc<ServerConfig>>>>,
    /// What each request is answered: a whole reply of HTTP/1.1, after which the connection is closed.
    pub reply: Vec<u8>,
}

/// What the HTTP front answers while the node starts.
#[must_use]
pub fn starting_reply() -> Vec<u8> {
    problem::raw_reply(&Error::new(ErrorCode::ShuttingDown, "the node is starting: it reads its log"))
}

/// Turns clients away until the node serves. Dropped, it ends as by [`Starting::end`].
pub struct Starting(Mutex<Option<Running>>);

struct Running {
    end: watch::Sender<bool>,
    /// Closed once nothing is accepted any more.
    accepts: Receiver<Infallible>,
}

impl Starting {
    /// Begins to answer at these entrances, unless [`Starting::end`] comes soon.
    ///
    /// # Errors
    /// A listener cannot be shared, or no thread can be started.
    pub fn begin(entrances: Vec<Entrance<'_>>) -> io::Result<Self> {
        let mut doors = Vec::new();
        for Entrance { listeners, tls, reply } in entrances {
            let reply = Arc::<[u8]>::from(reply);
            for listener in listeners {
                let listener = listener.try_clone()?;
                listener.set_nonblocking(true)?;
                doors.push((listener, Door { tls: tls.clone(), reply: Arc::clone(&reply) }));
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ((end, ends), (accepting, accepts)) = (watch::channel(false), mpsc::channel());
        let run = move || runtime.block_on(answer_until(doors, ends, accepting));
        thread::Builder::new().name("starting".to_owned()).spawn(run)?;
        Ok(Self(Mutex::new(Some(Running { end, accepts }))))
    }

    /// Leaves the listeners to the fronts. Once this returns, no further connection is turned away. Those that were
    /// accepted get their answer. Later calls do nothing.
    pub fn end(&self) {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Running { end, accepts }) = running.take() {
            end.send_replace(true);
            // Nothing is ever sent: it ends when the other side is gone.
            let _ = accepts.recv();
        }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.end();
    }
}

/// How the clients of one listener are answered.
#[derive(Clone)]
struct Door {
    tls: Option<Arc<Shared<Arc<ServerConfig>>>>,
    reply: Arc<[u8]>,
}

async fn answer_until(doors: Vec<(TcpListener, Door)>, ends: watch::Receiver<bool>, accepting: Sender<Infallible>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    if timeout(PATIENCE, ended(ends.clone())).await.is_err() {
        let tasks: Vec<_> = doors
            .into_iter()
            .map(|(listener, door)| tokio::spawn(accept_until(listener, door, Arc::clone(&room), ends.clone())))
            .collect();
        for task in tasks {
            // One that panicked has dropped its listener, too.
            let _ = task.await;
        }
    } else {
        drop(doors);
    }
    drop(accepting);
    // Those that were accepted are answered. Each ends by itself.
    let _ = room.acquire_many(u32::try_from(CONNECTIONS).unwrap_or(u32::MAX)).await;
}

/// Ready once the fronts take over. If nobody is there any more to say so, the start has failed.
async fn ended(mut ends: watch::Receiver<bool>) {
    let _ = ends.wait_for(|is_over| *is_over).await;
}

async fn accept_until(listener: TcpListener, door: Door, room: Arc<Semaphore>, ends: watch::Receiver<bool>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!(%error, "connections wait until the node has started"),
    };
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => admit(stream, door.clone(), &room),
                Err(_) => sleep(PAUSE).await,
            }
        }
    };
    tokio::select! {
        biased;
        () = ended(ends) => {}
        () = accept => {}
    }
}

fn admit(stream: TcpStream, door: Door, room: &Arc<Semaphore>) {
    // Without it, the reply waits for the client's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    match Arc::clone(room).try_acquire_owned() {
        Ok(permit) => drop(tokio::spawn(answer(stream, door, permit))),
        Err(_) if door.tls.is_none() => drop(stream.try_write(&door.reply)),
        Err(_) => {}
    }
}

async fn answer(mut stream: TcpStream, door: Door, _permit: OwnedSemaphorePermit) {
    match &door.tls {
        None => turn_away(&mut stream, &door.reply).await,
        Some(config) => {
            let acceptor = TlsAcceptor::from(Arc::clone(&*config.load()));
            if let Ok(Ok(mut stream)) = timeout(HEAD, acceptor.accept(stream)).await {
                turn_away(&mut stream, &door.reply).await;
            }
        }
    }
}

async fn turn_away<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, reply: &[u8]) {
    let Ok(Some(head)) = timeout(HEAD, head(stream)).await else { return };
    let _ = timeout(LAST, async {
        if stream.write_all(words(&head, reply)).await.is_err() || stream.shutdown().await.is_err() {
            return;
        }
        // What is not read would have the kernel take the reply back.
        let _ = tokio::io::copy(&mut stream.take(LINGER_BYTES as u64), &mut tokio::io::sink()).await;
    })
    .await;
}

/// Reads a request's head, or as much of it as is looked at. `None` if there is no request.
async fn head<S: AsyncRead + Unpin>(stream: &mut S) -> Option<Vec<u8>> {
    let mut head = Vec::with_capacity(1 << 10);
    while head.len() < HEAD_BYTES && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

/// The reply that a request gets which begins so.
fn words<'a>(head: &[u8], reply: &'a [u8]) -> &'a [u8] {
    if PREFACE.starts_with(&head[..head.len().min(PREFACE.len())]) {
        return GOAWAY;
    }
    let is_head = head.starts_with(b"HEAD ");
    let end = reply.windows(4).position(|end| end == b"\r\n\r\n").filter(|_| is_head);
    end.map_or(reply, |end| &reply[..end + 4])
}
