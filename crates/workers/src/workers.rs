//! Whose workers are where, and what is under way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use millrace_base::{Error, ErrorCode, limits};
use millrace_fetch::HttpFetcher;
use millrace_func::{AttemptToken, Exchanging, Program, WorkerAddress, WorkerDocument, WorkerTurn, Workers};
use tokio::sync::oneshot;

use crate::deployment::{Deployment, WorkerUrl};
use crate::request::{TURN_BYTES, WorkerRequest, ask};

/// How long a worker may take to say what it serves.
const DISCOVERY_MS: u64 = 5_000;

/// A program's workers, and how many cores have the program.
struct Served {
    deployment: Arc<Deployment>,
    cores: usize,
}

/// Talks to workers over HTTP. Clones share everything.
#[derive(Clone)]
pub struct HttpWorkers {
    shared: Arc<Shared>,
}

struct Shared {
    fetcher: HttpFetcher,
    served: RwLock<BTreeMap<Program, Served>>,
    /// What gives an attempt up that is under way.
    under_way: Mutex<BTreeMap<AttemptToken, oneshot::Sender<()>>>,
}

impl HttpWorkers {
    /// Without any workers.
    #[must_use]
    pub fn new(fetcher: HttpFetcher) -> Self {
        let shared = Shared { fetcher, served: RwLock::default(), under_way: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }
}

/// Takes an attempt out of those under way, however it ends.
struct UnderWay {
    shared: Arc<Shared>,
    attempt: AttemptToken,
}

impl UnderWay {
    fn begin(shared: &Arc<Shared>, attempt: AttemptToken) -> (Self, oneshot::Receiver<()>) {
        let (sender, given_up) = oneshot::channel();
        shared.under_way().insert(attempt, sender);
        (Self { shared: Arc::clone(shared), attempt }, given_up)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.shared.under_way().remove(&self.attempt);
    }
}

impl Shared {
    fn under_way(&self) -> MutexGuard<'_, BTreeMap<AttemptToken, oneshot::Sender<()>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deployment(&self, program: Program) -> Result<Arc<Deployment>, Error> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        let gone = || Error::new(ErrorCode::WorkerUnavailable, "the app's version is not loaded any more");
        served.get(&program).map(|served| Arc::clone(&served.deployment)).ok_or_else(gone)
    }
}

impl Workers for HttpWorkers {
    fn serve(&self, program: Program, _app: &str, document: &WorkerDocument) {
        let mut served = self.shared.served.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Served { deployment: Arc::new(Deployment::new(document)), cores: 0 };
        served.entry(program).or_insert_with(new).cores += 1;
    }

    fn forget(&self, program: Program) {
        let mut served = self.shared.served.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = served.get_mut(&program) {
            known.cores -= 1;
            if known.cores == 0 {
                served.remove(&program);
            }
        }
    }

    fn exchange(&self, turn: WorkerTurn) -> Exchanging {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let deployment = shared.deployment(turn.program)?;
            let (under_way, given_up) = UnderWay::begin(&shared, turn.attempt);
            let Some(url) = &deployment.url else {
                return Err(Error::new(ErrorCode::WorkerUnavailable, "no worker of the app is connected"));
            };
            let request = WorkerRequest {
                method: "POST",
                path: "/invoke",
                attempt: turn.attempt,
                body: turn.content,
                secret: deployment.secret.as_deref(),
                timeout_ms: turn.timeout_ms,
                response_bytes: TURN_BYTES,
            };
            let result = tokio::select! {
                result = ask(&shared.fetcher, url, request) => result,
                _ = given_up => Err(Error::new(ErrorCode::WorkerFailed, "the attempt was given up")),
            };
            drop(under_way);
            result
        })
    }

    fn cancel(&self, _program: Program, attempt: AttemptToken) {
        if let Some(given_up) = self.shared.under_way().remove(&attempt) {
            // One that has just ended hears nothing any more.
            let _ = given_up.send(());
        }
    }

    fn discover(&self, address: &WorkerAddress, secret: Option<&str>) -> Exchanging {
        let (shared, address, secret) = (Arc::clone(&self.shared), address.clone(), secret.map(str::to_owned));
        Box::pin(async move {
            let WorkerAddress::Url(url) = &address else {
                return Err(Error::new(ErrorCode::AppRefused, "a worker that dials in says itself what it serves"));
            };
            let url = WorkerUrl::parse(url)?;
            let request = WorkerRequest {
                method: "GET",
                path: "/discovery",
                attempt: [0; 16],
                body: bytes::Bytes::new(),
                secret: secret.as_deref(),
                timeout_ms: DISCOVERY_MS,
                response_bytes: limits::WORKER_DISCOVERY_BYTES,
            };
            ask(&shared.fetcher, &url, request).await
        })
    }
}
