//! Asks a worker that was lost whether it is back.

use std::sync::Weak;

use bytes::Bytes;
use millrace_base::{ByteBudget, Error, limits};
use millrace_fetch::HttpFetcher;
use millrace_func::{OLDEST_WORKER_PROTOCOL, WorkerMode};

use crate::deployment::{Deployment, WorkerUrl};
use crate::gate::Gate;
use crate::request::{WorkerRequest, ask};
use crate::signature::Signer;

/// How long a worker may take to say what it serves.
pub(crate) const DISCOVERY_MS: u64 = 5_000;

/// Asks a worker for its discovery document.
///
/// # Errors
/// As for [`ask`].
pub(crate) async fn discovery_of(
    fetcher: &HttpFetcher,
    url: &WorkerUrl,
    signer: Option<&Signer>,
) -> Result<Bytes, Error> {
    let request = WorkerRequest {
        method: "GET",
        path: "/discovery",
        protocol: OLDEST_WORKER_PROTOCOL,
        attempt: [0; 16],
        body: Bytes::new(),
        signed_bytes: 0,
        // A worker offered a stream over HTTP/2 may choose either mode.
        mode: if url.may_be_http2() { WorkerMode::Stream } else { WorkerMode::RequestReply },
        signer,
        timeout_ms: DISCOVERY_MS,
        response_bytes: limits::WORKER_DISCOVERY_BYTES,
        budget: &ByteBudget::unlimited(),
    };
    ask(fetcher, url, request).await
}

/// Probes until the worker answers or its program is gone.
pub(crate) async fn probe(fetcher: HttpFetcher, deployment: Weak<Deployment>, gate: Weak<Gate>) {
    loop {
        let Some(wait) = gate.upgrade().and_then(|gate| gate.probe_wait()) else { return };
        tokio::time::sleep(wait).await;
        let (Some(deployment), Some(gate)) = (deployment.upgrade(), gate.upgrade()) else { return };
        let Some(url) = &deployment.url else { return };
        let found = discovery_of(&fetcher, url, deployment.signer.as_ref()).await;
        Gate::probed(&gate, found.is_ok());
    }
}
