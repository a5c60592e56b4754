//! An attempt on a stream of its own to a worker that the server dials.
//!
//! [`millrace_func_remote::Line`] knows what the frames say, as for a worker that has dialled in. Between two turns nobody reads
//! the stream: what a worker sends then waits on its side, but for the stream's window.

use std::time::Duration;

use bytes::Bytes;
use millrace_base::{ByteBudget, Error, ErrorCode};
use millrace_fetch::Duplex;
use millrace_func::AttemptToken;
use millrace_func_remote::{ASKED_EVERY_MS, Line, Said};
use tokio::time::{Instant, timeout_at};

use crate::deployment::WorkerUrl;

/// How often a worker that has the turn is asked whether it is there.
const ASKED_EVERY: Duration = Duration::from_millis(ASKED_EVERY_MS);

/// See the module's documentation. Dropped, the attempt is given up: the stream is reset.
pub(crate) struct Stream {
    frames: Line,
    duplex: Duplex,
    began: Instant,
}

fn late(url: &WorkerUrl, timeout_ms: u64) -> Error {
    let message = format!("the worker at {}: not ended within {timeout_ms} ms", url.text());
    Error::new(ErrorCode::WorkerTimeout, message)
}

impl Stream {
    /// A stream whose response has begun. Its first turn was sent when it was opened.
    ///
    /// # Errors
    /// None; as [`Line::begin`] has it.
    pub(crate) fn begun(
        url: &WorkerUrl,
        attempt: AttemptToken,
        content: &Bytes,
        (duplex, budget): (Duplex, &ByteBudget),
    ) -> Result<Self, Error> {
        let mut frames = Line::of_one(format!("the worker at {}", url.text()));
        frames.count_for(budget.clone());
        // Its silence counts from here on: what lies before, such as a proxy that starts it, says nothing of it.
        frames.begin(attempt, content, true, 0)?;
        while frames.next_to_send().is_some() {}
        Ok(Self { frames, duplex, began: Instant::now() })
    }

    /// Sends the frames of the next turn.
    ///
    /// # Errors
    /// The attempt has ended.
    pub(crate) fn send(&mut self, attempt: AttemptToken, content: &Bytes) -> Result<(), Error> {
        let now_ms = self.now_ms();
        self.frames.begin(attempt, content, false, now_ms)?;
        self.carry_away();
        Ok(())
    }

    /// The worker's turn.
    ///
    /// # Errors
    /// `worker-failed`, `worker-timeout`.
    pub(crate) async fn turn(&mut self, url: &WorkerUrl, timeout_ms: u64) -> Result<Bytes, Error> {
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        let mut tick = Instant::now() + ASKED_EVERY;
        loop {
            while let Some(said) = self.frames.next_said() {
                if let Said::Turn(_, turn) = said {
                    return turn;
                }
            }
            let came = timeout_at(tick.min(deadline), self.duplex.next()).await;
            let now_ms = self.now_ms();
            match came {
                // What breaks the protocol ends the line, which says so.
                Ok(Some(Ok(bytes))) => drop(self.frames.receive(&bytes, now_ms)),
                Ok(Some(Err(what))) => self.frames.end(&what),
                Ok(None) => self.frames.end("it ended its answer before its turn"),
                Err(_) if Instant::now() >= deadline => {
                    self.duplex.retire();
                    return Err(late(url, timeout_ms));
                }
                Err(_) => {
                    tick = Instant::now() + ASKED_EVERY;
                    self.frames.look_after(now_ms);
                    self.ask();
                }
            }
        }
    }

    /// Whether the worker's last turn has not ended the attempt.
    pub(crate) fn goes_on(&self) -> bool {
        self.frames.load() > 0
    }

    /// Ends a stream whose attempt has ended.
    pub(crate) async fn end(self) {
        self.duplex.end().await;
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn carry_away(&mut self) {
        while let Some(bytes) = self.frames.next_to_send() {
            self.duplex.send(bytes);
        }
    }

    /// Sends PING, unless the worker has not read the last one.
    fn ask(&mut self) {
        if self.duplex.has_unsent() {
            while self.frames.next_to_send().is_some() {}
        }
        self.carry_away();
    }
}
