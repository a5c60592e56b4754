//! Opens a connection: name → address → socket → TLS → HTTP/1.1 or HTTP/2.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use millrace_base::limits;
use millrace_func::{FetchHost, FetchOrigin};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::frames::Counted;
use crate::outgoing::Outgoing;
use crate::pool::{Key, Pool, Protocol};
use crate::shares::Shares;
use crate::{Options, Roots, tls};

/// How many addresses of one name are tried.
const ADDRESSES: usize = 8;

/// How long one address may stay silent before the next one is tried.
const ADDRESS_TRY: Duration = Duration::from_secs(2);

/// How often a PING asks whether the peer of an HTTP/2 connection with streams is there, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_secs(10);

/// Ends a task with its owner.
pub(crate) struct Aborted(pub(crate) AbortHandle);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One connection over HTTP/1.1; dropping it closes it.
pub(crate) struct Connection {
    pub(crate) sender: http1::SendRequest<Full<Bytes>>,
    _driver: Aborted,
}

/// One connection over HTTP/2; dropping it closes it.
pub(crate) struct Connection2 {
    pub(crate) sender: http2::SendRequest<Outgoing>,
    pub(crate) socket: Arc<Socket>,
    _driver: Aborted,
}

/// What the socket of an HTTP/2 connection counts for, until it is closed.
pub(crate) struct Socket {
    permit: Mutex<OwnedSemaphorePermit>,
    is_for_streams: AtomicBool,
}

impl Socket {
    fn new(permit: OwnedSemaphorePermit) -> Self {
        Self { permit: Mutex::new(permit), is_for_streams: AtomicBool::new(false) }
    }

    /// Whether it is counted among those with exchanges in both directions at once.
    pub(crate) fn is_for_streams(&self) -> bool {
        self.is_for_streams.load(Ordering::Acquire)
    }

    fn count_for_streams(&self, permit: OwnedSemaphorePermit) {
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
        self.is_for_streams.store(true, Ordering::Release);
    }
}

/// Why an exchange in both directions at once finds no connection, though its server may be there. Errors that say so end with it.
pub const NO_STREAM_CONNECTION: &str = "this node has as many connections with streams as it may have";

/// What a server speaks on a new connection.
pub(crate) enum Opened {
    Http1(Connection),
    Http2(Connection2),
}

/// Opens connections, no more than allowed.
pub(crate) struct Connector {
    /// One permit for each socket. It is given back when the socket is closed.
    sockets: Arc<Semaphore>,
    /// The same for connections with streams that hold no turn.
    stream_sockets: Arc<Semaphore>,
    lookups: Arc<Semaphore>,
    roots: Roots,
    offers_http2: bool,
    tls: OnceCell<TlsConnector>,
}

impl Connector {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            sockets: Arc::new(Semaphore::new(options.connections.max(1))),
            stream_sockets: Arc::new(Semaphore::new(options.stream_connections.max(1))),
            lookups: Arc::new(Semaphore::new(options.lookups.max(1))),
            roots: options.roots.clone(),
            offers_http2: options.offers_http2,
            tls: OnceCell::new(),
        }
    }

    /// Whether connections to this server may be HTTP/2.
    pub(crate) fn may_be_http2(&self, key: &Key) -> bool {
        key.protocol == Protocol::Http2 || key.origin.is_tls && self.offers_http2
    }

    /// Opens a connection. The caller holds a turn, and there are as many turns as sockets. So if all sockets are
    /// taken, at least one of them is idle or already closing.
    pub(crate) async fn connect(&self, key: &Key, pool: &Pool, shares: &Shares) -> Result<Opened, String> {
        let origin = &key.origin;
        let sockets = Arc::clone(&self.sockets);
        let permit = match sockets.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                if pool.take_oldest().is_none() {
                    shares.close_idle(false);
                }
                sockets.acquire_owned().await.map_err(|error| error.to_string())?
            }
        };
        let stream = self.open_socket(origin).await?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        if !origin.is_tls {
            return match key.protocol {
                Protocol::Http2 => start_http2(stream, permit).await,
                Protocol::Negotiated => start(stream, permit).await,
            };
        }
        let name = tls::server_name(&origin.host)?;
        let connected = self.tls().await?.connect(name, stream).await;
        let stream = connected.map_err(|error| format!("no TLS connection: {error}"))?;
        match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => start_http2(stream, permit).await,
            _ => start(stream, permit).await,
        }
    }

    /// Counts a connection among those with streams from now on. Its socket makes room for exchanges with a turn.
    pub(crate) async fn count_for_streams(&self, socket: &Socket, shares: &Shares) -> Result<(), String> {
        if socket.is_for_streams() {
            return Ok(());
        }
        let sockets = Arc::clone(&self.stream_sockets);
        let permit = match sockets.clone().try_acquire_owned() {
            Ok(permit) => permit,
            // It is given back once the idle one has closed.
            Err(_) if shares.close_idle(true) => sockets.acquire_owned().await.map_err(|error| error.to_string())?,
            // Those that have the others may last for minutes.
            Err(_) => return Err(NO_STREAM_CONNECTION.to_owned()),
        };
        socket.count_for_streams(permit);
        Ok(())
    }

    async fn tls(&self) -> Result<&TlsConnector, String> {
        let load = async || {
            let (roots, offers_http2) = (self.roots.clone(), self.offers_http2);
            tokio::task::spawn_blocking(move || tls::load(&roots, offers_http2))
                .await
                .map_err(|error| error.to_string())?
        };
        self.tls.get_or_try_init(load).await
    }

    async fn open_socket(&self, origin: &FetchOrigin) -> Result<TcpStream, String> {
        let addresses = match &origin.host {
            FetchHost::Address(address) => vec![SocketAddr::new(*address, origin.port)],
            FetchHost::Name(name) => self.resolve(name.clone(), origin.port).await?,
        };
        let mut reason = "the name has no address".to_owned();
        for (index, address) in addresses.iter().enumerate() {
            let opening = TcpStream::connect(address);
            let opened = if index + 1 == addresses.len() {
                opening.await
            } else {
                timeout(ADDRESS_TRY, opening).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
            };
            match opened {
                Ok(stream) => return Ok(stream),
                Err(error) => reason = error.to_string(),
            }
        }
        Err(format!("cannot connect: {reason}"))
    }

    /// Asks the system's resolver, on a thread. The permit stays with the thread, which goes on even if nobody waits
    /// for it any more.
    async fn resolve(&self, name: String, port: u16) -> Result<Vec<SocketAddr>, String> {
        let permit = Arc::clone(&self.lookups).acquire_owned().await.map_err(|error| error.to_string())?;
        let lookup = move || {
            let found = (name.as_str(), port).to_socket_addrs().map(|found| found.take(ADDRESSES).collect());
            drop(permit);
            found
        };
        let found = tokio::task::spawn_blocking(lookup).await.map_err(|error| error.to_string())?;
        found.map_err(|error| format!("the name cannot be resolved: {error}"))
    }
}

async fn start<S>(stream: S, permit: OwnedSemaphorePermit) -> Result<Opened, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::Builder::new()
        .max_headers(limits::FETCH_RESPONSE_HEADERS)
        .max_buf_size(limits::FETCH_RESPONSE_HEADER_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    Ok(Opened::Http1(Connection { sender, _driver: drive(connection, permit) }))
}

/// Drives a connection until it ends, and keeps its permit for so long.
fn drive(
    connection: impl Future<Output = Result<(), hyper::Error>> + Send + 'static,
    permit: impl Send + 'static,
) -> Aborted {
    let driver = tokio::spawn(async move {
        // The exchanges get its error through their sender. On an idle connection it is not an error.
        let _ended = connection.await;
        drop(permit);
    });
    Aborted(driver.abort_handle())
}

/// The peer may push nothing. Its header lists and frames have limits, a window bounds what it sends unread, and a budget the
/// frames that carry nothing.
async fn start_http2<S>(stream: S, permit: OwnedSemaphorePermit) -> Result<Opened, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        // Until the peer has said how many streams it takes, one is open. It would refuse those beyond.
        .initial_max_send_streams(1)
        // A peer that is gone without a word is noticed before a request runs out of time.
        .keep_alive_interval(Some(PING_EVERY))
        .keep_alive_timeout(PING_EVERY)
        .max_header_list_size(u32::try_from(limits::FETCH_RESPONSE_HEADER_BYTES).unwrap_or(u32::MAX))
        .initial_stream_window_size(limits::FETCH_HTTP2_STREAM_WINDOW)
        .initial_connection_window_size(limits::FETCH_HTTP2_CONNECTION_WINDOW)
        .handshake(TokioIo::new(Counted::new(stream)))
        .await
        .map_err(|error| error.to_string())?;
    let socket = Arc::new(Socket::new(permit));
    Ok(Opened::Http2(Connection2 { sender, socket: Arc::clone(&socket), _driver: drive(connection, socket) }))
}
