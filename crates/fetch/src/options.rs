//! What an operator may set.

use millrace_base::limits;
use rustls_pki_types::CertificateDer;

/// How the fetcher behaves. The defaults come from `millrace_base::limits`, which gives the reasons.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections open at once, idle ones included. Exchanges at once have the same bound. At least 1.
    pub connections: usize,
    /// Connections that carry, or have carried, exchanges in both directions at once. They are counted apart: such an exchange
    /// lasts, and what it waits for may need a connection.
    pub stream_connections: usize,
    /// Idle connections that one core keeps for one server, while no fetch waits for a turn.
    pub idle_per_host: usize,
    /// How long an idle connection is kept.
    pub idle_ms: u64,
    /// Names that are resolved at once. At least 1.
    pub lookups: usize,
    /// Whether servers that are reached over TLS may choose HTTP/2.
    pub offers_http2: bool,
    /// The authorities from which a server's certificate must come.
    pub roots: Roots,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: limits::FETCH_CONNECTIONS,
            stream_connections: limits::FETCH_CONNECTIONS,
            idle_per_host: limits::FETCH_IDLE_PER_HOST,
            idle_ms: limits::FETCH_IDLE_MS,
            lookups: limits::FETCH_LOOKUPS,
            offers_http2: false,
            roots: Roots::System,
        }
    }
}

/// Certificate authorities.
#[derive(Clone, Debug)]
pub enum Roots {
    /// Those that the operating system trusts, or the file or folder that `SSL_CERT_FILE` or `SSL_CERT_DIR` names. They
    /// are read when the first `https` URL is fetched.
    System,
    /// These.
    Only(Vec<CertificateDer<'static>>),
}
