//! What an operator may set, and what can be wrong with it.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use millrace_base::limits;

/// How the front behaves.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Bounds on sizes and counts.
    pub limits: Limits,
    /// Bounds on time.
    pub timeouts: Timeouts,
    /// The key file; `None` lets everybody do everything, which [`crate::check_listener`] allows on
    /// loopback only.
    pub keys: Option<PathBuf>,
    /// While there are no keys: names, beside localhost, under which the listener may be asked and
    /// whose web pages may ask it. Without scheme and port.
    pub allowed_hosts: Vec<String>,
    /// Origins whose web pages may use the listener and read replies, as `https://shop.test`; `*`, which takes keys, for
    /// all.
    pub cors_origins: Vec<String>,
    /// Serve TLS (and only TLS).
    pub tls: Option<TlsFiles>,
    /// Called on the core's thread some time after connections there gave their buffers back. The allocator can then
    /// give the memory on to the system. Some allocators do so only when they are used again or asked to.
    pub release_memory: Option<fn()>,
}

/// PEM files of a TLS listener. They may be replaced while the server runs.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate chain, leaf first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Bounds on sizes and counts.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request body, deployments aside.
    pub body_bytes: usize,
    /// Bytes of an app's archive.
    pub archive_bytes: usize,
    /// Bytes of a request's line and headers.
    pub header_bytes: usize,
    /// Headers of a request.
    pub headers: usize,
    /// Open connections of one listener, that is of one core. More are answered 503 and closed.
    pub connections: usize,
    /// Concurrent requests of one HTTP/2 connection.
    pub streams: u32,
    /// Bytes that request bodies still arriving, and large replies still leaving, may hold on one
    /// core, all connections together. Past it new ones are answered 503.
    pub buffered_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: limits::INPUT_BYTES,
            archive_bytes: limits::APP_BYTES + limits::APP_ARCHIVE_OVERHEAD_BYTES,
            header_bytes: limits::HTTP_HEADER_BYTES,
            headers: limits::HTTP_HEADERS,
            connections: 65_536,
            streams: 128,
            buffered_bytes: 256 << 20,
        }
    }
}

/// Bounds on time. A sweep over all connections checks all bounds but the handshake's and the drain's. So a connection
/// may live longer than its bound: by up to a quarter of the smallest of them, and by a second at most. In return no
/// request pays for a timer.
#[derive(Clone, Debug)]
pub struct Timeouts {
    /// From the first byte of a request to the last of its headers.
    pub headers: Duration,
    /// For a request body; a body that keeps arriving gets more time, a second for every 16 KiB.
    pub body: Duration,
    /// For a client to take a reply; the same extension holds.
    pub write: Duration,
    /// For a connection without a request.
    pub idle: Duration,
    /// After which an idle HTTP/1 connection gives its buffers back. Costs nothing but a few
    /// allocations when its next request comes.
    pub park: Duration,
    /// For a TLS handshake.
    pub handshake: Duration,
    /// For requests in flight once the server is told to stop.
    pub drain: Duration,
    /// Between looks at the key file and the TLS files.
    pub reload: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            headers: Duration::from_secs(10),
            body: Duration::from_secs(30),
            write: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            park: Duration::from_secs(2),
            handshake: Duration::from_secs(10),
            drain: Duration::from_secs(30),
            reload: Duration::from_secs(2),
        }
    }
}

/// Why the front cannot start, or cannot take over changed files.
#[derive(Debug)]
pub enum StartError {
    /// The address is not loopback and there is no key.
    KeysNeeded(SocketAddr),
    /// Somebody listens there already.
    AddressInUse(SocketAddr),
    /// The address cannot be listened on.
    Bind(SocketAddr, std::io::Error),
    /// One of [`Options::allowed_hosts`] is no host name.
    AllowedHost(String),
    /// One of [`Options::cors_origins`] is no origin.
    CorsOrigin(String),
    /// Pages of all origins may use a listener that asks for no keys.
    CorsWithoutKeys,
    /// The key file cannot be used.
    Keys(millrace_access::KeyError),
    /// The TLS files cannot be used: path and reason.
    Tls(PathBuf, String),
}

impl fmt::Display for StartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeysNeeded(address) => {
                write!(formatter, "{address} can be reached by others, so API keys are needed, and there are none")
            }
            Self::AddressInUse(address) => {
                write!(formatter, "{address} is taken: another process listens there; choose another port")
            }
            Self::Bind(address, error) => write!(formatter, "cannot listen on {address}: {error}"),
            Self::AllowedHost(name) => {
                write!(
                    formatter,
                    "allowed hosts: {name:?} is no host name: write it without scheme and port, as shop.test"
                )
            }
            Self::CorsOrigin(origin) => {
                write!(
                    formatter,
                    "CORS origins: {origin:?} is no origin: write scheme, host and port as browsers do, as https://shop.test \
                     or http://localhost:5173, or * for all"
                )
            }
            Self::CorsWithoutKeys => formatter.write_str(
                "CORS origins: * lets every page of the web use this node, so API keys are needed: make one with `millrace \
                 keys`, or name the origins",
            ),
            Self::Keys(error) => error.fmt(formatter),
            Self::Tls(path, reason) => write!(formatter, "TLS file {}: {reason}", path.display()),
        }
    }
}

impl std::error::Error for StartError {}
