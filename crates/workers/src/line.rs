//! A worker that has dialled in: frames of many attempts over one connection.
//!
//! The front moves bytes, [`Line`] keeps who waits for what. Attempts have stream numbers, which are never used again. A
//! connection that breaks the protocol, or says nothing while an attempt runs, loses all of its attempts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use millrace_base::{Error, ErrorCode, limits};
use millrace_format::worker::{
    FrameError, FrameHeader, ServerFrame, WORKER_FRAME_HEADER_BYTES, WorkerFrame, ends_turn, is_heartbeat, set_stream,
};
use millrace_func::{AttemptToken, WorkerDoor, WorkerLine, WorkerTurn};
use tokio::sync::oneshot;

/// A worker that says nothing for so long while it has attempts has lost them.
const SILENCE: Duration = Duration::from_secs(1);

/// How often a worker with attempts is asked whether it is there.
const ASKED_EVERY: Duration = Duration::from_millis(250);

/// One attempt on the line.
struct Stream {
    number: u32,
    turn: Vec<u8>,
    waits: Option<oneshot::Sender<Result<Bytes, Error>>>,
}

#[derive(Default)]
struct State {
    received: BytesMut,
    to_send: VecDeque<Bytes>,
    sender: Option<Waker>,
    hello: Option<Result<Bytes, Error>>,
    has_hello: bool,
    hello_waker: Option<Waker>,
    attempts: BTreeMap<AttemptToken, Stream>,
    by_stream: BTreeMap<u32, AttemptToken>,
    last_stream: u32,
    heard: Option<Instant>,
    /// Nothing more is sent after what is to be sent already.
    is_ending: bool,
    is_closed: bool,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Line {
    state: Mutex<State>,
}

fn lost(what: &str) -> Error {
    Error::new(ErrorCode::WorkerFailed, format!("the worker that dialled in: {what}"))
}

impl State {
    fn send(&mut self, frames: Bytes) {
        self.to_send.push_back(frames);
        if let Some(waker) = self.sender.take() {
            waker.wake();
        }
    }

    fn send_frame(&mut self, stream: u32, frame: &ServerFrame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        set_stream(&mut bytes, 0, stream);
        self.send(bytes.into());
    }

    /// Whoever waits for the worker hears that it is gone.
    fn lose_all(&mut self, what: &str) {
        self.by_stream.clear();
        for (_, stream) in std::mem::take(&mut self.attempts) {
            if let Some(waits) = stream.waits {
                let _ = waits.send(Err(lost(what)));
            }
        }
        if !self.has_hello {
            self.hello = Some(Err(lost(what)));
            self.has_hello = true;
            self.hello_waker.take().into_iter().for_each(Waker::wake);
        }
    }

    fn end(&mut self, what: &str) {
        self.lose_all(what);
        (self.is_ending, self.is_closed) = (true, true);
        if let Some(waker) = self.sender.take() {
            waker.wake();
        }
    }

    fn take(&mut self, header: FrameHeader, whole: Bytes) -> Result<(), Error> {
        let broken = |what: String| lost(&format!("it broke the protocol: {what}"));
        if !self.has_hello {
            let frame = WorkerFrame::decode(header, whole.slice(WORKER_FRAME_HEADER_BYTES..));
            return match frame {
                Ok(WorkerFrame::Hello { discovery }) => {
                    (self.hello, self.has_hello) = (Some(Ok(discovery)), true);
                    self.hello_waker.take().into_iter().for_each(Waker::wake);
                    Ok(())
                }
                Ok(_) => Err(broken("its first frame is not HELLO".to_owned())),
                Err(error) => Err(broken(error.to_string())),
            };
        }
        if is_heartbeat(header.kind) {
            return Ok(());
        }
        let attempt = self.by_stream.get(&header.stream).copied();
        let Some(stream) = attempt.and_then(|attempt| self.attempts.get_mut(&attempt)) else {
            // Of an attempt that has been given up: it changes nothing.
            return if header.stream == 0 { Err(broken("a frame of no attempt".to_owned())) } else { Ok(()) };
        };
        if stream.turn.len() + whole.len() > limits::WORKER_ATTEMPT_BYTES {
            return Err(broken("a turn is too large".to_owned()));
        }
        stream.turn.extend_from_slice(&whole);
        if ends_turn(header.kind)
            && let Some(waits) = stream.waits.take()
        {
            let _ = waits.send(Ok(std::mem::take(&mut stream.turn).into()));
        }
        Ok(())
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attempts under way.
    pub(crate) fn load(&self) -> usize {
        self.lock().attempts.len()
    }

    /// Sends a turn, and gives the worker's.
    pub(crate) async fn exchange(&self, turn: WorkerTurn) -> Result<Bytes, Error> {
        let WorkerTurn { attempt, content, start_bytes, timeout_ms, .. } = turn;
        let mut answered = self.begin(attempt, &content, start_bytes > 0)?;
        let deadline = tokio::time::Instant::now() + Duration::from_millis(timeout_ms);
        loop {
            let tick = tokio::time::Instant::now() + ASKED_EVERY;
            match tokio::time::timeout_at(tick.min(deadline), &mut answered).await {
                Ok(Ok(result)) => {
                    self.leave_if_over(attempt, &result);
                    return result;
                }
                Ok(Err(_)) => return Err(lost("the attempt was given up")),
                Err(_) if tokio::time::Instant::now() >= deadline => {
                    self.cancel(attempt);
                    let message = format!("the worker that dialled in: not ended within {timeout_ms} ms");
                    return Err(Error::new(ErrorCode::WorkerTimeout, message));
                }
                Err(_) => self.look_after(),
            }
        }
    }

    fn begin(
        &self,
        attempt: AttemptToken,
        content: &Bytes,
        is_first: bool,
    ) -> Result<oneshot::Receiver<Result<Bytes, Error>>, Error> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Error::new(ErrorCode::WorkerUnavailable, "the worker that dialled in has gone"));
        }
        if state.attempts.is_empty() {
            state.heard = Some(Instant::now());
        }
        let (waits, answered) = oneshot::channel();
        if is_first {
            state.last_stream += 1;
            let number = state.last_stream;
            state.by_stream.insert(number, attempt);
            state.attempts.insert(attempt, Stream { number, turn: Vec::new(), waits: None });
        }
        let stream = state.attempts.get_mut(&attempt).ok_or_else(|| lost("the attempt has ended"))?;
        stream.waits = Some(waits);
        let mut frames = content.to_vec();
        let number = stream.number;
        let mut at = 0;
        while let Ok(Some(header)) = FrameHeader::read(&frames[at..]) {
            set_stream(&mut frames, at, number);
            at += header.frame_bytes();
        }
        state.send(frames.into());
        Ok(answered)
    }

    /// A turn that does not end with SUSPEND was the attempt's last.
    fn leave_if_over(&self, attempt: AttemptToken, result: &Result<Bytes, Error>) {
        let goes_on = result.as_ref().is_ok_and(|turn| last_kind(turn) == Some(SUSPEND));
        if !goes_on {
            let mut state = self.lock();
            if let Some(stream) = state.attempts.remove(&attempt) {
                state.by_stream.remove(&stream.number);
            }
        }
    }

    fn look_after(&self) {
        let mut state = self.lock();
        if state.heard.is_some_and(|heard| heard.elapsed() > SILENCE) {
            return state.end("it says nothing any more");
        }
        state.send_frame(0, &ServerFrame::Ping);
    }

    /// Nobody waits for the attempt any more. Says whether it was here.
    pub(crate) fn cancel(&self, attempt: AttemptToken) -> bool {
        let mut state = self.lock();
        let Some(stream) = state.attempts.remove(&attempt) else { return false };
        state.by_stream.remove(&stream.number);
        let error = FrameError {
            code: ErrorCode::Cancelled.as_str().to_owned(),
            message: "nothing of the attempt counts".to_owned(),
            detail: Bytes::new(),
        };
        state.send_frame(stream.number, &ServerFrame::Cancel(error));
        true
    }
}

const SUSPEND: u8 = 0x32;

/// The type of a turn's last frame.
fn last_kind(turn: &Bytes) -> Option<u8> {
    let (mut at, mut kind) = (0, None);
    while let Ok(Some(header)) = FrameHeader::read(turn.get(at..)?) {
        kind = Some(header.kind).filter(|kind| !is_heartbeat(*kind)).or(kind);
        at += header.frame_bytes();
    }
    kind
}

impl WorkerLine for Line {
    fn receive(&self, bytes: &[u8]) -> Result<(), Error> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(lost("the connection has ended"));
        }
        state.heard = Some(Instant::now());
        state.received.extend_from_slice(bytes);
        loop {
            let header = match FrameHeader::read(&state.received) {
                Ok(Some(header)) if header.frame_bytes() <= state.received.len() => header,
                Ok(_) => return Ok(()),
                Err(error) => {
                    let error = lost(&format!("it broke the protocol: {error}"));
                    state.end(&error.message);
                    return Err(error);
                }
            };
            let whole = state.received.split_to(header.frame_bytes()).freeze();
            if let Err(error) = state.take(header, whole) {
                state.end(&error.message);
                return Err(error);
            }
        }
    }

    fn poll_send(&self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.lock();
        match state.to_send.pop_front() {
            Some(bytes) => Poll::Ready(Some(bytes)),
            None if state.is_ending => Poll::Ready(None),
            None => {
                state.sender = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn close(&self) {
        self.lock().end("its connection has closed");
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
        !self.lock().is_closed
    }

    fn ready(&self, deployment: &str) {
        self.lock().send_frame(0, &ServerFrame::Ready(deployment.to_owned()));
    }

    fn refuse(&self, error: Error) {
        let mut state = self.lock();
        let detail = error.detail.map(Bytes::from).unwrap_or_default();
        let error = FrameError { code: error.code.as_str().to_owned(), message: error.message, detail };
        state.send_frame(0, &ServerFrame::Cancel(error));
        state.end("it was refused");
    }
}

/// The lines that serve one app as one document has it.
#[derive(Default)]
pub(crate) struct Lines {
    lines: Vec<Arc<Line>>,
}

impl Lines {
    pub(crate) fn add(&mut self, line: Arc<Line>) {
        self.lines.retain(|line| line.is_open());
        self.lines.push(line);
    }

    /// The line that has the attempt, or for a new one that with the fewest.
    pub(crate) fn find(&mut self, attempt: AttemptToken, is_first: bool) -> Option<Arc<Line>> {
        self.lines.retain(|line| line.is_open());
        if is_first {
            return self.lines.iter().min_by_key(|line| line.load()).cloned();
        }
        self.lines.iter().find(|line| line.lock().attempts.contains_key(&attempt)).cloned()
    }

    /// How many there are.
    pub(crate) fn open(&self) -> usize {
        self.lines.iter().filter(|line| line.is_open()).count()
    }

    pub(crate) fn cancel(&self, attempt: AttemptToken) {
        self.lines.iter().any(|line| line.cancel(attempt));
    }
}
