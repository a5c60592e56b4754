//! Whose workers are where, and what is under way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use millrace_base::{Error, ErrorCode, limits};
use millrace_fetch::HttpFetcher;
use millrace_func::{
    AttemptToken, Exchanging, Program, WorkerAddress, WorkerDocument, WorkerDoor, WorkerTurn, Workers,
};
use tokio::sync::oneshot;

use crate::deployment::{Deployment, DeploymentName, WorkerUrl};
use crate::line::{Line, Lines};
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
    /// Workers that have dialled in, whether they serve or not.
    doors: Mutex<Vec<Weak<Line>>>,
    /// Those that serve.
    lines: Mutex<BTreeMap<DeploymentName, Lines>>,
}

impl HttpWorkers {
    /// Without any workers.
    #[must_use]
    pub fn new(fetcher: HttpFetcher) -> Self {
        let shared = Shared {
            fetcher,
            served: RwLock::default(),
            under_way: Mutex::default(),
            doors: Mutex::default(),
            lines: Mutex::default(),
        };
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

    fn lines(&self) -> MutexGuard<'_, BTreeMap<DeploymentName, Lines>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deployment(&self, program: Program) -> Result<Arc<Deployment>, Error> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        let gone = || Error::new(ErrorCode::WorkerUnavailable, "the app's version is not loaded any more");
        served.get(&program).map(|served| Arc::clone(&served.deployment)).ok_or_else(gone)
    }
}

impl Workers for HttpWorkers {
    fn serve(&self, program: Program, app: &str, document: &WorkerDocument) {
        let mut served = self.shared.served.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Served { deployment: Arc::new(Deployment::new(app, document)), cores: 0 };
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
                let line = shared
                    .lines()
                    .get_mut(&deployment.name)
                    .and_then(|lines| lines.find(turn.attempt, turn.start_bytes > 0));
                let nobody = || Error::new(ErrorCode::WorkerUnavailable, "no worker of the app is connected");
                let line = line.ok_or_else(nobody)?;
                drop(under_way);
                return line.exchange(turn).await;
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

    fn cancel(&self, program: Program, attempt: AttemptToken) {
        if let Some(given_up) = self.shared.under_way().remove(&attempt) {
            // One that has just ended hears nothing any more.
            let _ = given_up.send(());
            return;
        }
        let Ok(deployment) = self.shared.deployment(program) else { return };
        if let Some(lines) = self.shared.lines().get(&deployment.name) {
            lines.cancel(attempt);
        }
    }

    fn dial_in(&self) -> Arc<dyn WorkerDoor> {
        let line = Arc::<Line>::default();
        let mut doors = self.shared.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors.retain(|door| door.strong_count() > 0);
        doors.push(Arc::downgrade(&line));
        line
    }

    fn serve_by(&self, app: &str, document: &WorkerDocument, door: &Arc<dyn WorkerDoor>) {
        let doors = self.shared.doors.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |line: &Arc<Line>| std::ptr::addr_eq(Arc::as_ptr(line), Arc::as_ptr(door));
        if let Some(line) = doors.iter().filter_map(Weak::upgrade).find(is_it) {
            self.shared.lines().entry((app.to_owned(), document.to_json())).or_default().add(line);
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
