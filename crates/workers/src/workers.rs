//! Whose workers are where, and what is under way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, limits};
use millrace_fetch::HttpFetcher;
use millrace_func::{
    AttemptToken, Concurrency, Entering, Exchanging, Program, RequestSigning, WorkerAddress, WorkerDocument,
    WorkerDoor, WorkerMode, WorkerSlot, WorkerTurn, Workers,
};
use tokio::sync::oneshot;

use crate::deployment::{Deployment, DeploymentName, WorkerUrl};
use crate::gate::{Ended, Entered, Gate, nobody_connected};
use crate::line::{Line, Lines};
use crate::probe::{discovery_of, probe};
use crate::request::{TURN_BYTES, WorkerRequest, ask, lost, open};
use crate::signature::SigningKeys;
use crate::stream::Stream;

/// A program's workers, and how many cores have the program.
struct Served {
    deployment: Arc<Deployment>,
    gate: Arc<Gate>,
    cores: usize,
}

/// Talks to workers over HTTP. Clones share everything.
#[derive(Clone)]
pub struct HttpWorkers {
    shared: Arc<Shared>,
}

struct Shared {
    fetcher: HttpFetcher,
    keys: SigningKeys,
    served: RwLock<BTreeMap<Program, Served>>,
    /// What gives an attempt up that is under way.
    under_way: Mutex<BTreeMap<AttemptToken, oneshot::Sender<()>>>,
    cancelled: Mutex<Cancelled>,
    /// Attempts on streams of their own, between two turns, and whose they are.
    streams: Mutex<BTreeMap<AttemptToken, (Program, Stream)>>,
    /// Workers that have dialled in, whether they serve or not.
    doors: Mutex<Vec<Weak<Line>>>,
    /// Those that serve.
    lines: Mutex<BTreeMap<DeploymentName, Lines>>,
}

impl HttpWorkers {
    /// Without any workers. Requests are signed with these keys, where an app asks for it.
    #[must_use]
    pub fn new(fetcher: HttpFetcher, keys: SigningKeys) -> Self {
        let shared = Shared {
            fetcher,
            keys,
            served: RwLock::default(),
            under_way: Mutex::default(),
            cancelled: Mutex::default(),
            streams: Mutex::default(),
            doors: Mutex::default(),
            lines: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }
}

/// Attempts that were given up and that nothing was known of: a core may give one up before the exchange that it has asked for
/// begins. The last of them are remembered.
#[derive(Default)]
struct Cancelled {
    attempts: BTreeSet<AttemptToken>,
    in_order: VecDeque<AttemptToken>,
}

impl Cancelled {
    /// More than a core asks for in one round.
    const REMEMBERED: usize = 1024;

    fn note(&mut self, attempt: AttemptToken) {
        if self.attempts.insert(attempt) {
            self.in_order.push_back(attempt);
        }
        if self.in_order.len() > Self::REMEMBERED
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.attempts.remove(&oldest);
        }
    }

    fn take(&mut self, attempt: AttemptToken) -> bool {
        self.attempts.remove(&attempt)
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
        if shared.cancelled().take(attempt) {
            let _ = sender.send(());
        } else {
            shared.under_way().insert(attempt, sender);
        }
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

    fn cancelled(&self) -> MutexGuard<'_, Cancelled> {
        self.cancelled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<AttemptToken, (Program, Stream)>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lines(&self) -> MutexGuard<'_, BTreeMap<DeploymentName, Lines>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn served(&self, program: Program) -> Result<(Arc<Deployment>, Arc<Gate>), Error> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        let gone = || Error::new(ErrorCode::WorkerUnavailable, "the app's version is not loaded any more");
        let known = served.get(&program).ok_or_else(gone)?;
        Ok((Arc::clone(&known.deployment), Arc::clone(&known.gate)))
    }

    /// The workers that a deployment has now: how many nodes each serves.
    fn workers(&self, deployment: &Deployment) -> Vec<usize> {
        match deployment.url {
            Some(_) => vec![1],
            None => self.lines().get(&deployment.name).map_or_else(Vec::new, Lines::connections),
        }
    }

    /// Tells the gate which workers have dialled in.
    fn count(&self, deployment: &Deployment, gate: &Arc<Gate>) {
        if deployment.url.is_none() {
            Gate::set_workers(gate, self.workers(deployment));
        }
    }

    /// Waits for a slot, but not longer than it may.
    async fn enter(&self, program: Program, service: u16, wait_ms: u64) -> Result<WorkerSlot, Error> {
        let (deployment, gate) = self.served(program)?;
        self.count(&deployment, &gate);
        let granted = match Gate::enter(&gate, service)? {
            Entered::Now(slot) => return Ok(slot),
            Entered::Waits(granted) => granted,
        };
        match tokio::time::timeout(Duration::from_millis(wait_ms), granted).await {
            Ok(Ok(slot)) => slot,
            Ok(Err(_)) => Err(Error::new(ErrorCode::WorkerUnavailable, "the app's version is not loaded any more")),
            Err(_) => {
                let message = format!("the workers of the app are busy: no slot was free within {wait_ms} ms");
                Err(Error::new(ErrorCode::WorkerUnavailable, message))
            }
        }
    }

    /// Exchanges a turn, if its attempt has not been given up. `under_way` is what says so.
    async fn exchange(
        self: &Arc<Self>,
        deployment: &Deployment,
        turn: WorkerTurn,
        (under_way, mut given_up): (UnderWay, oneshot::Receiver<()>),
    ) -> Result<Bytes, Error> {
        if given_up.try_recv().is_ok() {
            return Err(given_up_error());
        }
        let Some(url) = &deployment.url else {
            let line =
                self.lines().get_mut(&deployment.name).and_then(|lines| lines.find(turn.attempt, turn.start_bytes > 0));
            let line = line.ok_or_else(nobody_connected)?;
            drop(under_way);
            return line.exchange(turn).await;
        };
        let exchange = async {
            if turn.is_request {
                let request = invoke(deployment, &turn, WorkerMode::RequestReply);
                return ask(&self.fetcher, url, request).await;
            }
            self.exchange_on_stream(deployment, url, &turn).await
        };
        // Its end counts for nothing, if it comes at the same time.
        tokio::select! {
            biased;
            Ok(()) = given_up => Err(given_up_error()),
            result = exchange => result,
        }
    }

    /// One turn of an attempt that has a stream of its own.
    async fn exchange_on_stream(
        &self,
        deployment: &Deployment,
        url: &WorkerUrl,
        turn: &WorkerTurn,
    ) -> Result<Bytes, Error> {
        let deadline = Instant::now() + Duration::from_millis(turn.timeout_ms);
        let mut stream = if turn.start_bytes > 0 {
            let duplex = open(&self.fetcher, url, invoke(deployment, turn, WorkerMode::Stream)).await?;
            Stream::begun(url, turn.attempt, &turn.content, (duplex, &deployment.budget))?
        } else {
            let known = self.streams().remove(&turn.attempt);
            let (_, mut stream) = known.ok_or_else(|| lost(ErrorCode::WorkerFailed, url, "the attempt has ended"))?;
            stream.send(turn.attempt, &turn.content)?;
            stream
        };
        let left_ms = deadline.saturating_duration_since(Instant::now()).as_millis();
        let said = stream.turn(url, u64::try_from(left_ms).unwrap_or(u64::MAX)).await?;
        if stream.goes_on() {
            // Whoever gives it up takes it out of those under way first, and then from here.
            let under_way = self.under_way();
            if under_way.contains_key(&turn.attempt) {
                self.streams().insert(turn.attempt, (turn.program, stream));
            }
        } else {
            tokio::spawn(stream.end());
        }
        Ok(said)
    }

    /// Takes note of how an exchange ended.
    fn ended(&self, deployment: &Arc<Deployment>, gate: &Arc<Gate>, result: &Result<Bytes, Error>) {
        if deployment.url.is_none() {
            return self.count(deployment, gate);
        }
        let (ended, what) = match result {
            Ok(_) => (Ended::Turn, ""),
            Err(error) if *error == given_up_error() || is_without_room(error) => return,
            Err(error) if error.code == ErrorCode::WorkerUnavailable => (Ended::Unsent, error.message.as_str()),
            Err(error) if error.code == ErrorCode::WorkerTimeout => (Ended::Late, error.message.as_str()),
            Err(error) => (Ended::Lost, error.message.as_str()),
        };
        if Gate::ended(gate, ended, what) {
            tokio::spawn(probe(self.fetcher.clone(), Arc::downgrade(deployment), Arc::downgrade(gate)));
        }
    }
}

/// The request that brings a turn, or begins a stream with it.
fn invoke<'a>(deployment: &'a Deployment, turn: &WorkerTurn, mode: WorkerMode) -> WorkerRequest<'a> {
    WorkerRequest {
        method: "POST",
        path: "/invoke",
        protocol: deployment.protocol,
        attempt: turn.attempt,
        body: turn.content.clone(),
        signed_bytes: if mode == WorkerMode::Stream { turn.start_bytes } else { turn.content.len() },
        mode,
        signer: deployment.signer.as_ref(),
        timeout_ms: turn.timeout_ms,
        response_bytes: TURN_BYTES,
        budget: &deployment.budget,
    }
}

/// Whether it says nothing of the worker: this node had no room for its answer, or no connection for its stream.
fn is_without_room(error: &Error) -> bool {
    [millrace_fetch::NO_ROOM, millrace_fetch::NO_STREAM_CONNECTION, millrace_func_remote::NO_ROOM]
        .iter()
        .any(|reason| error.message.ends_with(reason))
}

fn given_up_error() -> Error {
    Error::new(ErrorCode::WorkerFailed, "the attempt was given up")
}

impl Workers for HttpWorkers {
    fn serve(&self, program: Program, app: &str, document: &WorkerDocument, concurrency: Concurrency) {
        let mut served = self.shared.served.write().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let deployment = Arc::new(Deployment::new(app, document, &self.shared.keys));
            let gate = Arc::new(Gate::new(concurrency, self.shared.workers(&deployment)));
            Served { deployment, gate, cores: 0 }
        };
        served.entry(program).or_insert_with(new).cores += 1;
    }

    fn forget(&self, program: Program) {
        let mut served = self.shared.served.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = served.get_mut(&program) {
            known.cores -= 1;
            if known.cores == 0 {
                served.remove(&program);
                // No core goes on with what it had under way.
                self.shared.streams().retain(|_, (of, _)| *of != program);
            }
        }
    }

    fn enter(&self, program: Program, service: u16) -> Entering {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { shared.enter(program, service, limits::WORKER_WAIT_MS).await })
    }

    fn try_enter(&self, program: Program, service: u16) -> Option<WorkerSlot> {
        let (deployment, gate) = self.shared.served(program).ok()?;
        self.shared.count(&deployment, &gate);
        Gate::try_enter(&gate, service)
    }

    fn exchange(&self, mut turn: WorkerTurn) -> Exchanging {
        let shared = Arc::clone(&self.shared);
        // At once, so that it can be given up from now on.
        let under_way = UnderWay::begin(&shared, turn.attempt);
        Box::pin(async move {
            let began = Instant::now();
            let slot = match turn.slot {
                Some(service) => shared.enter(turn.program, service, turn.timeout_ms).await?,
                None => WorkerSlot::default(),
            };
            let waited_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            turn.timeout_ms = turn.timeout_ms.saturating_sub(waited_ms).max(1);
            let (deployment, gate) = shared.served(turn.program)?;
            let result = shared.exchange(&deployment, turn, under_way).await;
            shared.ended(&deployment, &gate, &result);
            drop(slot);
            result
        })
    }

    fn cancel(&self, program: Program, attempt: AttemptToken) {
        let given_up = self.shared.under_way().remove(&attempt);
        let stream = self.shared.streams().remove(&attempt);
        let is_known = given_up.is_some() || stream.is_some();
        if let Some(given_up) = given_up {
            // One that has just ended hears nothing any more.
            let _ = given_up.send(());
        }
        if is_known {
            return;
        }
        let Ok((deployment, _)) = self.shared.served(program) else { return };
        let is_on_a_line = self.shared.lines().get(&deployment.name).is_some_and(|lines| lines.cancel(attempt));
        if !is_on_a_line {
            self.shared.cancelled().note(attempt);
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
            self.shared.lines().entry((app.to_owned(), document.version())).or_default().add(line);
        }
    }

    fn has_dialled(&self, app: &str, version: u64) -> bool {
        self.shared.lines().get(&(app.to_owned(), version)).is_some_and(Lines::is_open)
    }

    fn dialled(&self) -> Vec<(String, u64)> {
        let mut lines = self.shared.lines();
        // What was connected once is not kept for ever.
        lines.retain(|_, lines| lines.is_open());
        lines.keys().cloned().collect()
    }

    fn discover(&self, app: &str, address: &WorkerAddress, signing: &RequestSigning) -> Exchanging {
        let (shared, address) = (Arc::clone(&self.shared), address.clone());
        let signer = shared.keys.signer(app, signing);
        Box::pin(async move {
            let WorkerAddress::Url(url) = &address else {
                return Err(Error::new(ErrorCode::AppRefused, "a worker that dials in says itself what it serves"));
            };
            let url = WorkerUrl::parse(url)?;
            discovery_of(&shared.fetcher, &url, signer.as_ref()).await
        })
    }

    fn public_key(&self, app: &str) -> Option<String> {
        self.shared.keys.of_app(app).public_key()
    }
}

#[cfg(test)]
mod tests {
    use millrace_fetch::Options;

    use super::*;

    #[test]
    fn an_attempt_that_is_given_up_before_it_begins_does_not_begin() {
        let workers = HttpWorkers::new(HttpFetcher::new(&Options::default()), SigningKeys::derived_from([0; 32]));
        let deployment =
            br#"{"address":{"url":"http://127.0.0.1:1"},"discovery":{"protocol":{"min":1,"max":1},"services":[]}}"#;
        let document = WorkerDocument::from_json(deployment).expect("valid");
        workers.serve(Program(1), "bank", &document, Concurrency { of_worker: 1, of_services: vec![] });
        workers.cancel(Program(1), [1; 16]);
        let (_held, mut given_up) = UnderWay::begin(&workers.shared, [1; 16]);
        assert_eq!(given_up.try_recv(), Ok(()));
        let (_other, mut goes_on) = UnderWay::begin(&workers.shared, [2; 16]);
        assert!(goes_on.try_recv().is_err());
        workers.cancel(Program(1), [2; 16]);
        assert_eq!(goes_on.try_recv(), Ok(()));
        let (_again, mut once) = UnderWay::begin(&workers.shared, [1; 16]);
        assert!(once.try_recv().is_err(), "it is remembered for one beginning");
    }

    #[test]
    fn few_of_those_given_up_are_remembered() {
        let mut cancelled = Cancelled::default();
        let attempt = |number: usize| {
            let mut attempt = [0; 16];
            attempt[..8].copy_from_slice(&number.to_be_bytes());
            attempt
        };
        (0..3 * Cancelled::REMEMBERED).for_each(|number| cancelled.note(attempt(number)));
        assert_eq!(
            (cancelled.attempts.len(), cancelled.in_order.len()),
            (Cancelled::REMEMBERED, Cancelled::REMEMBERED)
        );
        assert!(!cancelled.take(attempt(0)) && cancelled.take(attempt(3 * Cancelled::REMEMBERED - 1)));
    }
}
