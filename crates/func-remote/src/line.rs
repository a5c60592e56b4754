//! The server's end of a connection with a worker: frames of attempts, without the connection.
//!
//! Whoever has the connection gives the bytes that come, and the time, and carries away the bytes that are to go. On a
//! connection that a worker has made, attempts have stream numbers, which are never used again. A stream of HTTP/2 is a line
//! of its own, and carries one attempt. A connection that breaks the protocol, or says nothing while an attempt runs, loses
//! all of its attempts.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use millrace_base::{BudgetBuffer, ByteBudget, Error, ErrorCode, HeldBytes, limits};
use millrace_format::worker::{
    FrameHeader, ServerFrame, WORKER_FRAME_HEADER_BYTES, WorkerFrame, WorkerFrameError, drains, ends_turn,
    is_heartbeat, set_stream, suspends,
};
use millrace_func::AttemptToken;

use crate::attempt::as_frame_error;

/// A worker that says nothing for so long while it has attempts has lost them.
pub const SILENCE_MS: u64 = 1_000;

/// How often a worker with attempts is asked whether it is there: [`Line::look_after`].
pub const ASKED_EVERY_MS: u64 = 250;

/// What the worker has said: its discovery document, or how an attempt's turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// HELLO, or that none will come. Said once.
    Hello(Result<Bytes, Error>),
    /// A turn that is awaited has come as a whole, or never will.
    Turn(AttemptToken, Result<Bytes, Error>),
}

/// One attempt on the line.
struct Stream {
    number: u32,
    /// What has come of a turn that has not ended.
    turn: BudgetBuffer,
    /// Turns that have come before they were awaited, and whether the attempt goes on after each.
    turns: VecDeque<(Bytes, bool)>,
    /// What these have, and what counts for it.
    kept_bytes: usize,
    kept: HeldBytes,
    is_awaited: bool,
}

/// What a turn that is kept takes beside its bytes.
const KEPT_TURN_BYTES: usize = 256;

impl Stream {
    fn new(number: u32, budget: &ByteBudget) -> Self {
        let (turn, kept) = (budget.buffer(), budget.hold());
        Self { number, turn, turns: VecDeque::new(), kept_bytes: 0, kept, is_awaited: false }
    }

    /// Keeps a turn until it is awaited. Says whether there is room for it.
    fn keep(&mut self, turn: (Bytes, bool)) -> bool {
        self.kept_bytes += turn.0.len() + KEPT_TURN_BYTES;
        self.turns.push_back(turn);
        // One that is awaited goes on at once.
        self.is_awaited || self.kept.grow_to(self.kept_bytes)
    }
}

/// See the module's documentation.
pub struct Line {
    /// Whose it is, for errors.
    name: Cow<'static, str>,
    /// It carries one attempt, without a number.
    is_of_one: bool,
    received: BytesMut,
    to_send: VecDeque<Bytes>,
    said: VecDeque<Said>,
    has_hello: bool,
    attempts: BTreeMap<AttemptToken, Stream>,
    by_stream: BTreeMap<u32, AttemptToken>,
    last_stream: u32,
    heard_ms: u64,
    has_ended: bool,
    /// The deployment that its worker serves, once it does.
    deployment: String,
    /// Its worker is about to stop.
    is_draining: bool,
    budget: ByteBudget,
    /// Of a line of one attempt: what the frame counts that has come in part. Those that dial in are fewer than attempts.
    partial: Option<HeldBytes>,
}

/// Why an attempt is lost whose bytes the app's budget does not have. Errors that say so end with it.
pub const NO_ROOM: &str = "the turns of its app that are held together are too large";

impl Default for Line {
    /// The line of a worker that has dialled in.
    fn default() -> Self {
        Self::new("the worker that dialled in".into(), false)
    }
}

impl Line {
    fn new(name: Cow<'static, str>, is_of_one: bool) -> Self {
        Self {
            name,
            is_of_one,
            received: BytesMut::new(),
            to_send: VecDeque::new(),
            said: VecDeque::new(),
            // A worker that is dialled has said before what it serves.
            has_hello: is_of_one,
            attempts: BTreeMap::new(),
            by_stream: BTreeMap::new(),
            last_stream: 0,
            heard_ms: 0,
            has_ended: false,
            deployment: String::new(),
            is_draining: false,
            budget: ByteBudget::unlimited(),
            partial: None,
        }
    }

    /// The line of one attempt, on a stream to a worker of this name.
    #[must_use]
    pub fn of_one(name: String) -> Self {
        Self::new(name.into(), true)
    }

    fn lost(&self, what: &str) -> Error {
        Error::new(ErrorCode::WorkerFailed, format!("{}: {what}", self.name))
    }

    /// The turns of attempts that begin from now on count for this budget.
    pub fn count_for(&mut self, budget: ByteBudget) {
        self.budget = budget;
    }

    /// Whether the connection goes on. Once it does not, what [`Line::next_to_send`] still gives is the last.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.has_ended
    }

    /// Whether its worker is about to stop: it wants no attempts but those that the ones it has wait for.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// How many attempts it has.
    #[must_use]
    pub fn load(&self) -> usize {
        self.attempts.len()
    }

    /// Whether the attempt is on this line.
    #[must_use]
    pub fn has(&self, attempt: AttemptToken) -> bool {
        self.attempts.contains_key(&attempt)
    }

    /// Whether a turn of any of them is awaited.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.attempts.values().any(|stream| stream.is_awaited)
    }

    /// Bytes for the worker.
    pub fn next_to_send(&mut self) -> Option<Bytes> {
        self.to_send.pop_front()
    }

    /// Whether there are any.
    #[must_use]
    pub fn has_to_send(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// What the worker has said since.
    pub fn next_said(&mut self) -> Option<Said> {
        self.said.pop_front()
    }

    fn send(&mut self, stream: u32, frame: &ServerFrame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        set_stream(&mut bytes, 0, stream);
        self.to_send.push_back(bytes.into());
    }

    /// The connection has ended, or is to end: all attempts are lost.
    pub fn end(&mut self, what: &str) {
        self.has_ended = true;
        self.by_stream.clear();
        let error = self.lost(what);
        for (attempt, stream) in std::mem::take(&mut self.attempts) {
            if stream.is_awaited {
                self.said.push_back(Said::Turn(attempt, Err(error.clone())));
            }
        }
        if !std::mem::replace(&mut self.has_hello, true) {
            self.said.push_back(Said::Hello(Err(error)));
        }
    }

    /// Takes bytes that have come.
    ///
    /// # Errors
    /// They break the protocol, and the connection is to end; or it has ended before.
    pub fn receive(&mut self, bytes: &[u8], now_ms: u64) -> Result<(), Error> {
        if self.has_ended {
            return Err(self.lost("the connection has ended"));
        }
        self.heard_ms = now_ms;
        if !self.has_room_for(bytes.len()) {
            self.end(NO_ROOM);
            return Err(self.lost(NO_ROOM));
        }
        self.received.extend_from_slice(bytes);
        let taken = self.take_all();
        if self.received.is_empty() {
            self.partial = None;
        }
        taken.map_err(|what| {
            let what = format!("it broke the protocol: {what}");
            self.end(&what);
            self.lost(&what)
        })
    }

    /// Whether a line of one attempt may hold so much more of a frame that has not come as a whole.
    fn has_room_for(&mut self, bytes: usize) -> bool {
        let budget = &self.budget;
        let partial = || budget.hold();
        !self.is_of_one || self.partial.get_or_insert_with(partial).grow_to(self.received.len() + bytes)
    }

    /// Takes the frames that have come as a whole.
    fn take_all(&mut self) -> Result<(), String> {
        loop {
            let header = match FrameHeader::read(&self.received) {
                Ok(Some(header)) if header.frame_bytes() <= self.received.len() => header,
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            };
            let whole = self.received.split_to(header.frame_bytes()).freeze();
            self.take(header, whole)?;
        }
    }

    fn take(&mut self, header: FrameHeader, whole: Bytes) -> Result<(), String> {
        if !self.has_hello {
            return match WorkerFrame::decode(header, whole.slice(WORKER_FRAME_HEADER_BYTES..)) {
                Ok(WorkerFrame::Hello { discovery }) => {
                    self.has_hello = true;
                    self.said.push_back(Said::Hello(Ok(discovery)));
                    Ok(())
                }
                Ok(_) => Err("its first frame is not HELLO".to_owned()),
                Err(error) => Err(error.to_string()),
            };
        }
        if is_heartbeat(header.kind) {
            return Ok(());
        }
        if drains(header.kind) && header.stream == 0 && !self.is_of_one {
            return self.drain(header, whole).map_err(|error| error.to_string());
        }
        let attempt = self.by_stream.get(&header.stream).copied();
        let Some((attempt, stream)) = attempt.and_then(|attempt| Some((attempt, self.attempts.get_mut(&attempt)?)))
        else {
            // Of an attempt that has been given up: it changes nothing.
            return if header.stream == 0 { Err("a frame of no attempt".to_owned()) } else { Ok(()) };
        };
        if stream.kept_bytes + stream.turn.size_bytes() + whole.len() > limits::WORKER_ATTEMPT_BYTES {
            return Err("a turn is too large".to_owned());
        }
        if !stream.turn.extend(&whole) {
            self.give_up(attempt, self.lost(NO_ROOM));
            return Ok(());
        }
        if ends_turn(header.kind) {
            let turn = std::mem::replace(&mut stream.turn, self.budget.buffer()).freeze();
            if !stream.keep((turn, suspends(header.kind))) {
                self.give_up(attempt, self.lost(NO_ROOM));
            }
            self.say_next(attempt);
        }
        Ok(())
    }

    /// The worker is about to stop. It is answered, so that it knows that nothing is on its way to it.
    fn drain(&mut self, header: FrameHeader, whole: Bytes) -> Result<(), WorkerFrameError> {
        WorkerFrame::decode(header, whole.slice(WORKER_FRAME_HEADER_BYTES..))?;
        if !std::mem::replace(&mut self.is_draining, true) {
            let deployment = std::mem::take(&mut self.deployment);
            self.send(0, &ServerFrame::Ready(deployment));
        }
        Ok(())
    }

    /// Says the next turn of an attempt, if it has come and is awaited.
    fn say_next(&mut self, attempt: AttemptToken) {
        let Some(stream) = self.attempts.get_mut(&attempt).filter(|stream| stream.is_awaited) else { return };
        let Some((turn, goes_on)) = stream.turns.pop_front() else { return };
        stream.is_awaited = false;
        stream.kept_bytes -= turn.len() + KEPT_TURN_BYTES;
        if stream.turns.is_empty() {
            stream.kept = self.budget.hold();
        }
        self.said.push_back(Said::Turn(attempt, Ok(turn)));
        if !goes_on {
            self.remove(attempt);
        }
    }

    /// Loses one attempt, and tells its worker.
    fn give_up(&mut self, attempt: AttemptToken, why: Error) {
        if self.attempts.get(&attempt).is_some_and(|stream| stream.is_awaited) {
            self.said.push_back(Said::Turn(attempt, Err(why)));
        }
        self.cancel(attempt);
    }

    fn remove(&mut self, attempt: AttemptToken) -> Option<Stream> {
        let stream = self.attempts.remove(&attempt)?;
        self.by_stream.remove(&stream.number);
        Some(stream)
    }

    /// Sends frames of an attempt, whose turn is awaited from now on. `is_first`: the attempt begins. Without frames, the worker
    /// has got them before, and its turn may have come.
    ///
    /// # Errors
    /// The connection has ended, or the attempt has.
    pub fn begin(&mut self, attempt: AttemptToken, content: &Bytes, is_first: bool, now_ms: u64) -> Result<(), Error> {
        // What one of its attempts waits for may run here as well. Without any, its worker goes.
        let is_leaving = self.is_draining && is_first && self.attempts.is_empty();
        if self.has_ended || is_leaving {
            return Err(Error::new(ErrorCode::WorkerUnavailable, format!("{} has gone", self.name)));
        }
        // Nobody is asked whether it is there while nothing is awaited of it, so it has said nothing. That is no silence.
        if !self.is_awaited() {
            self.heard_ms = now_ms;
        }
        if is_first {
            self.last_stream += u32::from(!self.is_of_one);
            let number = self.last_stream;
            self.by_stream.insert(number, attempt);
            self.attempts.insert(attempt, Stream::new(number, &self.budget));
        }
        let Some(stream) = self.attempts.get_mut(&attempt) else {
            return Err(self.lost("the attempt has ended"));
        };
        stream.is_awaited = true;
        if !content.is_empty() {
            self.to_send.push_back(if self.is_of_one { content.clone() } else { numbered(content, stream.number) });
        }
        self.say_next(attempt);
        Ok(())
    }

    /// Asks whether the worker is there, or ends the connection of one that has said nothing for too long. To be called
    /// every [`ASKED_EVERY_MS`] while a turn is awaited.
    pub fn look_after(&mut self, now_ms: u64) {
        if self.has_ended {
            return;
        }
        if now_ms.saturating_sub(self.heard_ms) > SILENCE_MS {
            return self.end("it says nothing any more");
        }
        self.send(0, &ServerFrame::Ping);
    }

    /// Nobody waits for the attempt any more. Says whether it was here.
    pub fn cancel(&mut self, attempt: AttemptToken) -> bool {
        let Some(stream) = self.remove(attempt) else { return false };
        let error = Error::new(ErrorCode::Cancelled, "nothing of the attempt counts");
        self.send(stream.number, &ServerFrame::Cancel(as_frame_error(error)));
        true
    }

    /// The worker serves this deployment from now on.
    pub fn ready(&mut self, deployment: &str) {
        deployment.clone_into(&mut self.deployment);
        self.send(0, &ServerFrame::Ready(deployment.to_owned()));
    }

    /// The worker does not serve: it is told why, and the connection is to end.
    pub fn refuse(&mut self, error: Error) {
        self.send(0, &ServerFrame::Cancel(as_frame_error(error)));
        self.end("it was refused");
    }
}

/// The same frames on a stream of this number.
fn numbered(content: &[u8], number: u32) -> Bytes {
    let mut frames = content.to_vec();
    let mut at = 0;
    while let Ok(Some(header)) = FrameHeader::read(&frames[at..]) {
        set_stream(&mut frames, at, number);
        at += header.frame_bytes();
    }
    frames.into()
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
