//! A worker that has dialled in: who waits for what of it.
//!
//! The front moves bytes, [`millrace_func_remote::Line`] knows what they say.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millrace_base::{ByteBudget, Error, ErrorCode};
use millrace_func::{AttemptToken, WorkerDoor, WorkerLine, WorkerTurn, connections};
use millrace_func_remote::{ASKED_EVERY_MS, Line as Frames, Said};
use tokio::sync::oneshot;

use crate::request::turns_budget;

/// How often a worker with attempts is asked whether it is there.
const ASKED_EVERY: Duration = Duration::from_millis(ASKED_EVERY_MS);

#[derive(Default)]
struct State {
    frames: Frames,
    waits: BTreeMap<AttemptToken, oneshot::Sender<Result<Bytes, Error>>>,
    sender: Option<Waker>,
    hello: Option<Result<Bytes, Error>>,
    hello_waker: Option<Waker>,
    /// As it has said with HELLO.
    connections: usize,
}

/// See the module's documentation.
pub(crate) struct Line {
    began: Instant,
    state: Mutex<State>,
}

impl Default for Line {
    fn default() -> Self {
        Self { began: Instant::now(), state: Mutex::default() }
    }
}

impl State {
    /// Tells those who wait what has come, and wakes whoever sends.
    fn settle(&mut self) {
        while let Some(said) = self.frames.next_said() {
            match said {
                Said::Hello(hello) => {
                    self.connections = hello.as_ref().map_or(1, |hello| connections(hello));
                    self.hello = Some(hello);
                    self.hello_waker.take().into_iter().for_each(Waker::wake);
                }
                Said::Turn(attempt, turn) => {
                    if let Some(waits) = self.waits.remove(&attempt) {
                        let _ = waits.send(turn);
                    }
                }
            }
        }
        if (self.frames.has_to_send() || !self.frames.is_open())
            && let Some(waker) = self.sender.take()
        {
            waker.wake();
        }
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to the line, and what follows of it.
    fn act<T>(&self, action: impl FnOnce(&mut State, u64) -> T) -> T {
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut state = self.lock();
        let done = action(&mut state, now_ms);
        state.settle();
        done
    }

    /// How little it should get another attempt: its worker is about to stop, or it has many. `None`: none at all.
    fn reluctance(&self) -> Option<(bool, usize)> {
        let state = self.lock();
        let (is_draining, load) = (state.frames.is_draining(), state.frames.load());
        (!is_draining || load > 0).then_some((is_draining, load))
    }

    /// Whether its worker takes root transactions.
    fn serves(&self) -> bool {
        let state = self.lock();
        state.frames.is_open() && !state.frames.is_draining()
    }

    /// Sends a turn, and gives the worker's.
    pub(crate) async fn exchange(&self, turn: WorkerTurn) -> Result<Bytes, Error> {
        let WorkerTurn { attempt, content, start_bytes, timeout_ms, .. } = turn;
        let mut answered = self.act(|state, now_ms| {
            state.frames.begin(attempt, &content, start_bytes > 0, now_ms)?;
            let (waits, answered) = oneshot::channel();
            state.waits.insert(attempt, waits);
            Ok::<_, Error>(answered)
        })?;
        let deadline = tokio::time::Instant::now() + Duration::from_millis(timeout_ms);
        loop {
            let tick = tokio::time::Instant::now() + ASKED_EVERY;
            match tokio::time::timeout_at(tick.min(deadline), &mut answered).await {
                Ok(Ok(result)) => return result,
                Ok(Err(_)) => {
                    let what = "the worker that dialled in: the attempt was given up";
                    return Err(Error::new(ErrorCode::WorkerFailed, what));
                }
                Err(_) if tokio::time::Instant::now() >= deadline => {
                    self.cancel(attempt);
                    let message = format!("the worker that dialled in: not ended within {timeout_ms} ms");
                    return Err(Error::new(ErrorCode::WorkerTimeout, message));
                }
                Err(_) => self.act(|state, now_ms| state.frames.look_after(now_ms)),
            }
        }
    }

    /// Nobody waits for the attempt any more. Says whether it was here.
    pub(crate) fn cancel(&self, attempt: AttemptToken) -> bool {
        self.act(|state, _| {
            state.waits.remove(&attempt);
            state.frames.cancel(attempt)
        })
    }
}

impl WorkerLine for Line {
    fn receive(&self, bytes: &[u8]) -> Result<(), Error> {
        self.act(|state, now_ms| state.frames.receive(bytes, now_ms))
    }

    fn poll_send(&self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.lock();
        match state.frames.next_to_send() {
            Some(bytes) => Poll::Ready(Some(bytes)),
            None if !state.frames.is_open() => Poll::Ready(None),
            None => {
                state.sender = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn close(&self) {
        self.act(|state, _| state.frames.end("its connection has closed"));
    }
}

impl WorkerDoor for Line {
    fn poll_hello(&self, context: &mut Context<'_>) -> Poll<Result<Bytes, Error>> {
        let mut state = self.lock();
        match state.hello.take() {
            Some(hello) => Poll::Ready(hello),
            None => {
                state.hello_waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_open(&self) -> bool {
        self.lock().frames.is_open()
    }

    fn ready(&self, deployment: &str) {
        self.act(|state, _| state.frames.ready(deployment));
    }

    fn refuse(&self, error: Error) {
        self.act(|state, _| state.frames.refuse(error));
    }
}

/// The lines that serve one app as one document has it.
pub(crate) struct Lines {
    lines: Vec<Arc<Line>>,
    /// What their turns count for.
    budget: ByteBudget,
}

impl Default for Lines {
    fn default() -> Self {
        Self { lines: Vec::new(), budget: turns_budget() }
    }
}

impl Lines {
    pub(crate) fn add(&mut self, line: Arc<Line>) {
        self.lines.retain(|line| line.is_open());
        line.lock().frames.count_for(self.budget.clone());
        self.lines.push(line);
    }

    /// The line that has the attempt. For a new one that with the fewest, of workers that go on if there are any.
    pub(crate) fn find(&mut self, attempt: AttemptToken, is_first: bool) -> Option<Arc<Line>> {
        self.lines.retain(|line| line.is_open());
        if is_first {
            let takes = self.lines.iter().filter_map(|line| Some((line.reluctance()?, line)));
            return takes.min_by_key(|(reluctance, _)| *reluctance).map(|(_, line)| Arc::clone(line));
        }
        self.lines.iter().find(|line| line.lock().frames.has(attempt)).cloned()
    }

    /// Whether there is any.
    pub(crate) fn is_open(&self) -> bool {
        self.lines.iter().any(|line| line.is_open())
    }

    /// For each worker that takes root transactions, how many connections it has: one to each node that it serves.
    pub(crate) fn connections(&self) -> Vec<usize> {
        let serving = self.lines.iter().filter(|line| line.serves());
        serving.map(|line| line.lock().connections).collect()
    }

    /// Says whether it was on one of them.
    pub(crate) fn cancel(&self, attempt: AttemptToken) -> bool {
        self.lines.iter().any(|line| line.cancel(attempt))
    }
}
