//! Bodies of requests: whole, or in parts while the exchange is under way.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

/// Resets the stream: the request's body is never whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BrokenOff;

impl std::fmt::Display for BrokenOff {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the exchange was given up")
    }
}

impl std::error::Error for BrokenOff {}

impl From<Infallible> for BrokenOff {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    BrokenOff,
}

#[derive(Debug, Default)]
struct State {
    parts: VecDeque<Bytes>,
    end: Option<End>,
    /// Of the task that sends.
    waker: Option<Waker>,
    /// That task has sent all parts that it took. While it waits until the server reads on, it has not.
    has_sent: bool,
}

/// The parts of a body that its connection has not taken yet. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    state: Arc<Mutex<State>>,
}

impl Parts {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, part: Bytes) {
        let mut state = self.lock();
        if state.end.is_none() {
            state.parts.push_back(part);
            state.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Whether a part waits for the connection.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.lock().parts.is_empty()
    }

    /// No more parts come.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.end.get_or_insert(End::Whole);
        state.waker.take().into_iter().for_each(Waker::wake);
    }

    /// Whether all parts have been sent. The end may not have been.
    pub(crate) fn are_sent(&self) -> bool {
        let state = self.lock();
        state.parts.is_empty() && state.has_sent
    }

    /// Nobody wants the exchange any more. Says whether the task that sends will hear of it: one that waits until the
    /// server reads on will not.
    #[must_use]
    pub(crate) fn break_off(&self) -> bool {
        let mut state = self.lock();
        state.parts.clear();
        state.end = Some(End::BrokenOff);
        state.waker.take().into_iter().for_each(Waker::wake);
        state.has_sent
    }
}

/// The body of a request over HTTP/2.
#[derive(Clone, Debug)]
pub(crate) enum Outgoing {
    Whole(Full<Bytes>),
    Parts(Parts),
}

impl Outgoing {
    /// A body that was whole.
    pub(crate) fn into_whole(self) -> Full<Bytes> {
        match self {
            Self::Whole(body) => body,
            Self::Parts(_) => Full::default(),
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let parts = match self.get_mut() {
            Self::Whole(body) => {
                let polled = Pin::new(body).poll_frame(context);
                return polled.map(|frame| frame.map(|frame| frame.map_err(BrokenOff::from)));
            }
            Self::Parts(parts) => parts,
        };
        let mut state = parts.lock();
        match (state.parts.pop_front(), state.end) {
            (Some(part), _) => {
                state.has_sent = false;
                Poll::Ready(Some(Ok(Frame::data(part))))
            }
            (None, None) => {
                state.has_sent = true;
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
            (None, Some(end)) => {
                state.has_sent = true;
                Poll::Ready((end == End::BrokenOff).then_some(Err(BrokenOff)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Parts(parts) => {
                let mut state = parts.lock();
                let is_end = state.parts.is_empty() && state.end == Some(End::Whole);
                // The task that sends gives the end along with the last part then, and does not come back.
                state.has_sent |= is_end;
                is_end
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Parts(_) => SizeHint::default(),
        }
    }
}
