//! What all cases use: signed requests, attempt tokens, the worker's own document.

use std::cell::{Cell, OnceCell};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use millrace_base::hex;
use millrace_format::worker::AttemptToken;
use millrace_func::{Discovery, OLDEST_WORKER_PROTOCOL, WorkerMode, WorkerService, sha256};
use millrace_workers::{Signed, Signer};

use crate::transport::{Ask, Reply, Talk, Transport};

/// How long a request may be under way, as the server has it.
const EXPIRES_AFTER_S: u64 = 60;

/// The service of the check handlers.
pub(crate) const SERVICE: &str = "check";

/// A worker that is being checked.
pub struct Bench<'t> {
    transport: &'t dyn Transport,
    signer: Option<Signer>,
    discovered: OnceCell<Result<Discovery, String>>,
    streams: OnceCell<bool>,
    /// Another run's attempts must not be taken for this one's.
    run: [u8; 32],
    attempts: Cell<u64>,
}

/// What a request says of itself. A case changes what it wants to be wrong.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    pub version: Option<String>,
    pub attempt: Option<String>,
    pub expires: Option<String>,
    pub signature: Option<String>,
    /// It is of the mode `stream`, or offers it.
    pub is_stream: bool,
}

impl Envelope {
    fn headers(self) -> Vec<(String, String)> {
        let named = [
            ("millrace-worker-mode", self.is_stream.then(|| "stream".to_owned())),
            ("millrace-worker-protocol", self.version),
            ("millrace-attempt", self.attempt),
            ("millrace-expires", self.expires),
            ("millrace-signature", self.signature),
        ];
        named.into_iter().filter_map(|(name, value)| value.map(|value| (name.to_owned(), value))).collect()
    }
}

/// Seconds since 1970.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl<'t> Bench<'t> {
    /// Checks a worker that verifies what this signs, or nothing.
    #[must_use]
    pub fn new(transport: &'t dyn Transport, signer: Option<Signer>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let run = sha256(format!("{now} {}", std::process::id()).as_bytes());
        Self { transport, signer, discovered: OnceCell::new(), streams: OnceCell::new(), run, attempts: Cell::new(0) }
    }

    pub(crate) fn signer(&self) -> Option<&Signer> {
        self.signer.as_ref()
    }

    /// A token that no attempt had before.
    pub(crate) fn token(&self) -> AttemptToken {
        self.attempts.set(self.attempts.get() + 1);
        let drawn = sha256(&[&self.run[..], &self.attempts.get().to_be_bytes()].concat());
        let mut token = [0; 16];
        token.copy_from_slice(&drawn[..16]);
        token
    }

    /// The version of the protocol that the worker is spoken to in.
    pub(crate) fn version(&self) -> u32 {
        self.document().map_or(OLDEST_WORKER_PROTOCOL, Discovery::version)
    }

    /// The whole path of something below the worker's URL.
    pub(crate) fn path(&self, path: &str) -> String {
        format!("{}{path}", self.transport.base_path())
    }

    /// The envelope of a request that is as it should be.
    pub(crate) fn envelope(&self, method: &str, path: &str, attempt: AttemptToken, body: &[u8]) -> Envelope {
        let path = self.path(path);
        let expires = now_s() + EXPIRES_AFTER_S;
        let signed = Signed { method, path: &path, expires, attempt, body };
        let signature = self.signer().map(|signer| signer.sign(&signed));
        // Only what comes before the document is of the oldest version.
        let version = if method == "GET" { OLDEST_WORKER_PROTOCOL } else { self.version() };
        Envelope {
            version: Some(version.to_string()),
            attempt: Some(hex(&attempt)),
            expires: signature.is_some().then(|| expires.to_string()),
            signature,
            is_stream: false,
        }
    }

    /// `POST /invoke` as the server begins a stream. `start` is what is signed.
    pub(crate) fn begin(&self, attempt: AttemptToken, start: &[u8]) -> Envelope {
        Envelope { is_stream: true, ..self.envelope("POST", "/invoke", attempt, start) }
    }

    /// Opens a stream whose request begins with these bytes.
    pub(crate) fn open(&self, envelope: Envelope, body: Bytes) -> Result<Box<dyn Talk + '_>, String> {
        self.transport.open(Ask { method: "POST", path: "/invoke".to_owned(), headers: envelope.headers(), body })
    }

    /// Whether the worker takes the server's offer of the mode `stream`.
    pub(crate) fn has_streams(&self) -> bool {
        let asked = || {
            let envelope = Envelope { is_stream: true, ..self.envelope("GET", "/discovery", [0; 16], b"") };
            let reply = self.ask("GET", "/discovery", envelope, Bytes::new()).ok()?;
            Some(Discovery::from_json(&reply.body).ok()?.mode == WorkerMode::Stream)
        };
        *self.streams.get_or_init(|| self.transport.has_streams() && asked() == Some(true))
    }

    pub(crate) fn ask(
        &self,
        method: &'static str,
        path: &str,
        envelope: Envelope,
        body: Bytes,
    ) -> Result<Reply, String> {
        self.transport.ask(Ask { method, path: path.to_owned(), headers: envelope.headers(), body })
    }

    /// `POST /invoke` as the server sends it.
    pub(crate) fn invoke(&self, attempt: AttemptToken, body: Vec<u8>) -> Result<Reply, String> {
        let envelope = self.envelope("POST", "/invoke", attempt, &body);
        self.ask("POST", "/invoke", envelope, body.into())
    }

    /// `GET /discovery` as the server sends it.
    pub(crate) fn discover(&self) -> Result<Reply, String> {
        self.ask("GET", "/discovery", self.envelope("GET", "/discovery", [0; 16], b""), Bytes::new())
    }

    /// The discovery document, as the server reads it.
    pub(crate) fn document(&self) -> Result<&Discovery, String> {
        let read = || {
            let reply = self.discover()?;
            if reply.status != 200 {
                return Err(format!("GET /discovery gives status {}", reply.status));
            }
            Discovery::from_json(&reply.body).map_err(|error| format!("GET /discovery: {error}"))
        };
        self.discovered.get_or_init(read).as_ref().map_err(Clone::clone)
    }

    /// The service of the check handlers.
    pub(crate) fn service(&self) -> Result<&WorkerService, String> {
        let missing = || format!("the worker does not serve {SERVICE}");
        self.document()?.services.iter().find(|service| service.name == SERVICE).ok_or_else(missing)
    }
}
