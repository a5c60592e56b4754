//! What an operator may set.

use millrace_base::limits;
use rustls_pki_types::CertificateDer;

/// How the fetcher behaves. The defaults are from `millrace_base::limits`, which gives the reasons.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections open at once, idle ones included, and so exchanges at once. At least 1.
    pub connections: usize,
    /// Idle connections kept for one server by one core, while no fetch waits for a turn.
    pub idle_per_host: usize,
    /// How long an idle connection is kept.
    pub idle_ms: u64,
    /// Names being resolved at once. At least 1.
    pub lookups: usize,
    /// Whom a server's certificate must come from.
    pub roots: Roots,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: limits::FETCH_CONNECTIONS,
            idle_per_host: limits::FETCH_IDLE_PER_HOST,
            idle_ms: limits::FETCH_IDLE_MS,
            lookups: limits::FETCH_LOOKUPS,
            roots: Roots::System,
        }
    }
}

/// Certificate authorities.
#[derive(Clone, Debug)]
pub enum Roots {
    /// Those the operating system trusts, or the file or folder that `SSL_CERT_FILE` or
    /// `SSL_CERT_DIR` names. Read when the first `https` URL is fetched.
    System,
    /// These.
    Only(Vec<CertificateDer<'static>>),
}
