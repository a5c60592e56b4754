//! What an operator may set.

use std::sync::Arc;
use std::time::Duration;

use millrace_access::Shared;
use tokio_rustls::rustls::ServerConfig;

use crate::metrics::Metrics;

/// How the front behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The region that signatures and documents name.
    pub region: String,
    /// Domains whose subdomains are buckets, in lower case.
    pub domains: Vec<String>,
    /// Accept Version 2 signatures, which old clients make.
    pub allows_signature_version_2: bool,
    /// Take every request without asking who makes it, and believe nothing that it says of its body: for the
    /// [null store](crate::null_store).
    pub is_null_store: bool,
    /// Open connections of one listener, that is, of one core. More are closed at once.
    pub connections: usize,
    /// Bounds on time.
    pub timeouts: Timeouts,
    /// Serve TLS, and only TLS. The settings may be replaced while the server runs.
    pub tls: Option<Arc<Shared<Arc<ServerConfig>>>>,
    /// Where all cores count.
    pub metrics: Arc<Metrics>,
}

/// Bounds on time.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a TLS handshake.
    pub handshake: Duration,
    /// For a request's head to come, counted from the reply before.
    pub head: Duration,
    /// Between two pieces of a body.
    pub body_stall: Duration,
    /// For a client to take the next bytes of a reply.
    pub write_stall: Duration,
    /// For requests under way when the server ends.
    pub drain: Duration,
}

impl Default for Options {
    fn default() -> Self {
        // As many as the HTTP front's.
        const CONNECTIONS: usize = 10_000;
        Self {
            region: "us-east-1".to_owned(),
            domains: Vec::new(),
            allows_signature_version_2: false,
            is_null_store: false,
            connections: CONNECTIONS,
            timeouts: Timeouts::default(),
            tls: None,
            metrics: Arc::default(),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(60),
            body_stall: Duration::from_secs(20),
            write_stall: Duration::from_secs(60),
            drain: Duration::from_secs(10),
        }
    }
}
