//! Who may begin on the workers of a program: slots, and whether a worker is there at all.
//!
//! A root transaction takes a slot before it takes a lock. Its nested calls take none, so no call waits for its caller. The
//! breaker opens when nobody listens, or after some attempts in a row were lost. While it is open nothing begins, and a
//! probe asks for the discovery document. Once that is answered, one transaction at a time tries, until a turn comes back.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_base::{Error, ErrorCode, limits};
use millrace_func::{Concurrency, WorkerSlot};
use tokio::sync::oneshot;

/// Attempts lost in a row, without one turn between them, after which nothing begins for a while.
const LOST_IN_A_ROW: u32 = 5;

/// The wait before the first probe, and the longest.
const FIRST_PROBE_MS: u64 = 100;
const LONGEST_PROBE_MS: u64 = 2_000;

/// Whether transactions begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Breaker {
    /// They do.
    Closed { lost: u32 },
    /// They do not; a probe is under way.
    Open { wait_ms: u64 },
    /// One at a time does. The next wait, should that one be lost.
    Trial { wait_ms: u64 },
}

/// How an exchange with a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With a turn.
    Turn,
    /// Nobody took the request.
    Unsent,
    /// It was lost in the middle.
    Lost,
    /// The handler's time was over. That says nothing of the worker: a slow handler must not keep others from it.
    Late,
}

/// Where a waiting request is told of its slot, or why it gets none.
type Grant = oneshot::Sender<Result<WorkerSlot, Error>>;

struct Waiting {
    service: u16,
    grant: Grant,
}

struct State {
    breaker: Breaker,
    /// What went wrong last, for those who are refused.
    last_error: String,
    /// The workers: how many nodes each serves, this one included.
    workers: Vec<usize>,
    taken: usize,
    taken_by: Vec<usize>,
    waiting: VecDeque<Waiting>,
}

/// The gate of one program.
pub(crate) struct Gate {
    limits: Concurrency,
    state: Mutex<State>,
}

/// A slot that is taken. Dropped, it goes to who waits for it.
struct Taken {
    gate: Arc<Gate>,
    service: u16,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.taken -= 1;
        if let Some(taken) = state.taken_by.get_mut(usize::from(self.service)) {
            *taken -= 1;
        }
        Gate::grant(&self.gate, state);
    }
}

/// What became of a request for a slot.
pub(crate) enum Entered {
    Now(WorkerSlot),
    Waits(oneshot::Receiver<Result<WorkerSlot, Error>>),
}

/// Nobody is there who could run a call.
pub(crate) fn nobody_connected() -> Error {
    unavailable("no worker of this version of the app is connected to this node".to_owned())
}

fn unavailable(message: String) -> Error {
    Error::new(ErrorCode::WorkerUnavailable, message)
}

impl State {
    fn limit(&self, limits: &Concurrency) -> usize {
        // Other nodes have the rest of what it runs at once.
        let part = |nodes: &usize| (limits.of_worker / (*nodes).max(1)).max(1);
        let all = self.workers.iter().map(part).fold(0, usize::saturating_add);
        match self.breaker {
            Breaker::Closed { .. } => all,
            Breaker::Trial { .. } => all.min(1),
            Breaker::Open { .. } => 0,
        }
    }

    fn has_room(&self, limits: &Concurrency, service: u16) -> bool {
        let index = usize::from(service);
        let of_service = limits.of_services.get(index).copied().flatten().unwrap_or(usize::MAX);
        let taken_by = self.taken_by.get(index).copied().unwrap_or(0);
        self.taken < self.limit(limits) && taken_by < of_service
    }

    /// Why nothing begins now, whoever waits.
    fn refusal(&self) -> Option<Error> {
        if self.workers.is_empty() {
            return Some(nobody_connected());
        }
        let is_open = matches!(self.breaker, Breaker::Open { .. });
        is_open.then(|| unavailable(format!("{}; it is asked again and again whether it is back", self.last_error)))
    }
}

impl Gate {
    /// A gate in front of workers: how many nodes each serves.
    pub(crate) fn new(limits: Concurrency, workers: Vec<usize>) -> Self {
        let state = State {
            breaker: Breaker::Closed { lost: 0 },
            last_error: String::new(),
            workers,
            taken: 0,
            taken_by: vec![0; limits.of_services.len()],
            waiting: VecDeque::new(),
        };
        Self { limits, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(gate: &Arc<Self>, state: &mut State, service: u16) -> WorkerSlot {
        state.taken += 1;
        if let Some(taken) = state.taken_by.get_mut(usize::from(service)) {
            *taken += 1;
        }
        WorkerSlot::new(Arc::new(Taken { gate: Arc::clone(gate), service }))
    }

    /// Gives free slots to those that wait, in their order. One whose service is full lets those of others pass.
    fn grant(gate: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut granted = Vec::new();
        let mut at = 0;
        while at < state.waiting.len() && state.taken < state.limit(&gate.limits) {
            let service = state.waiting[at].service;
            if state.waiting[at].grant.is_closed() {
                state.waiting.remove(at);
            } else if state.has_room(&gate.limits, service) {
                let slot = Self::take(gate, &mut state, service);
                granted.extend(state.waiting.remove(at).map(|waiting| (waiting.grant, slot)));
            } else {
                at += 1;
            }
        }
        drop(state);
        // A receiver that has gone meanwhile gives its slot back, which takes the lock again.
        for (grant, slot) in granted {
            let _ = grant.send(Ok(slot));
        }
    }

    /// A slot at once, or a place in the queue.
    ///
    /// # Errors
    /// `worker-unavailable`: no worker is there, or too many wait.
    pub(crate) fn enter(gate: &Arc<Self>, service: u16) -> Result<Entered, Error> {
        let mut state = gate.lock();
        if let Some(error) = state.refusal() {
            return Err(error);
        }
        if state.has_room(&gate.limits, service) {
            return Ok(Entered::Now(Self::take(gate, &mut state, service)));
        }
        if state.waiting.len() >= limits::WORKER_WAITING {
            state.waiting.retain(|waiting| !waiting.grant.is_closed());
        }
        if state.waiting.len() >= limits::WORKER_WAITING {
            return Err(unavailable(format!("all slots are taken, and {} requests wait", limits::WORKER_WAITING)));
        }
        let (grant, granted) = oneshot::channel();
        state.waiting.push_back(Waiting { service, grant });
        Ok(Entered::Waits(granted))
    }

    /// A slot, if one is free now.
    pub(crate) fn try_enter(gate: &Arc<Self>, service: u16) -> Option<WorkerSlot> {
        let mut state = gate.lock();
        let is_free = state.refusal().is_none() && state.has_room(&gate.limits, service);
        is_free.then(|| Self::take(gate, &mut state, service))
    }

    /// Which workers there are now: how many nodes each serves.
    pub(crate) fn set_workers(gate: &Arc<Self>, workers: Vec<usize>) {
        let mut state = gate.lock();
        state.workers = workers;
        Self::look_again(gate, state);
    }

    /// Something changed: those that wait get slots, or hear that there are none.
    fn look_again(gate: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let Some(error) = state.refusal() else {
            return Self::grant(gate, state);
        };
        let refused = std::mem::take(&mut state.waiting);
        drop(state);
        for waiting in refused {
            let _ = waiting.grant.send(Err(error.clone()));
        }
    }

    /// An exchange has ended. Says whether the worker is to be probed from now on.
    pub(crate) fn ended(gate: &Arc<Self>, ended: Ended, error: &str) -> bool {
        let mut state = gate.lock();
        let breaker = match (ended, state.breaker) {
            (Ended::Turn, _) => Breaker::Closed { lost: 0 },
            (Ended::Late, before) => before,
            (_, open @ Breaker::Open { .. }) => open,
            (_, Breaker::Trial { wait_ms }) => Breaker::Open { wait_ms: (wait_ms * 2).min(LONGEST_PROBE_MS) },
            (Ended::Lost, Breaker::Closed { lost }) if lost + 1 < LOST_IN_A_ROW => Breaker::Closed { lost: lost + 1 },
            (_, Breaker::Closed { .. }) => Breaker::Open { wait_ms: FIRST_PROBE_MS },
        };
        let was = std::mem::replace(&mut state.breaker, breaker);
        if ended != Ended::Turn {
            error.clone_into(&mut state.last_error);
        }
        let has_opened = matches!(breaker, Breaker::Open { .. }) && !matches!(was, Breaker::Open { .. });
        if has_opened || matches!(breaker, Breaker::Closed { .. }) && !matches!(was, Breaker::Closed { .. }) {
            Self::look_again(gate, state);
        }
        has_opened
    }

    /// How long to wait until the next probe. `None`: none is needed any more.
    pub(crate) fn probe_wait(&self) -> Option<Duration> {
        match self.lock().breaker {
            Breaker::Open { wait_ms } => Some(Duration::from_millis(wait_ms)),
            Breaker::Closed { .. } | Breaker::Trial { .. } => None,
        }
    }

    /// What a probe found.
    pub(crate) fn probed(gate: &Arc<Self>, is_there: bool) {
        let mut state = gate.lock();
        if let Breaker::Open { wait_ms } = state.breaker {
            state.breaker = match is_there {
                true => Breaker::Trial { wait_ms },
                false => Breaker::Open { wait_ms: (wait_ms * 2).min(LONGEST_PROBE_MS) },
            };
            Self::look_again(gate, state);
        }
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
