//! Server-sent events, and backups: replies that go on as long as somebody reads.
//!
//! Promises: a reader costs one page of events at most, and less while it does not read; nothing is
//! asked of the node before the last page has left. A stream ends when the server drains, when its
//! reader is too slow for the connection's timeouts, or with an event that says why.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use millrace_base::{Error, ErrorCode, limits};
use millrace_records::{ChangeStream, error_event};
use tokio::time::{Instant, sleep};

use crate::body::{LARGE_BYTES, ReplyBody};
use crate::connection::ConnectionState;
use crate::local::Reservation;
use crate::problem;
use millrace_api::{BackupPieces, Records};

/// How long after nothing was new it is looked for again: at first, and at most. Twice as long each
/// time, so a stream that rests costs two looks a second.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How often something is sent in any case, so that whoever stands between does not hang up.
const HEARTBEAT: Duration = Duration::from_secs(15);
const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// What a look at every shard may cost of a core: each stream waits so long for every other one of its core
/// between two looks. One stream alone hears of a change at once, a few hundred take a fifth of the core.
const PAUSE_PER_STREAM: Duration = Duration::from_millis(1);

/// Where backups are asked for.
pub(crate) const BACKUP_PATH: &str = "/backup";

/// The next bytes of a stream, and what comes after them.
struct Next(Pin<Box<dyn Future<Output = Option<Part>>>>);

type Part = (Bytes, Next);

/// A stream of events as a part of a reply's body.
pub(crate) struct Events {
    next: Option<Next>,
    guard: StreamGuard,
    reservation: Option<Reservation>,
}

/// A stream's place among those that the core serves.
pub(crate) struct StreamGuard(Rc<ConnectionState>);

impl StreamGuard {
    fn new(state: &Rc<ConnectionState>) -> Result<Self, Error> {
        let metrics = &state.local.metrics;
        if metrics.event_streams.get() >= limits::EVENT_STREAMS {
            let message = "as many readers of changes as a core may serve are there already; try again, or read pages";
            return Err(Error::new(ErrorCode::Overloaded, message));
        }
        metrics.event_streams.increment();
        state.stream_begins();
        Ok(Self(Rc::clone(state)))
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.local.metrics.event_streams.decrement();
        self.0.stream_ends();
    }
}

/// Begins to answer with events. What is wrong with the request shows in the first page already.
pub(crate) async fn begin<B: Records>(
    state: &Rc<ConnectionState>,
    mut stream: ChangeStream<B>,
    is_head: bool,
) -> Result<Response<ReplyBody>, Error> {
    let guard = StreamGuard::new(state)?;
    let first = stream.first().await?;
    let body = if is_head {
        ReplyBody::new(Bytes::new())
    } else {
        let rest = next(Rc::clone(state), stream);
        let whole = Next(Box::pin(async move { Some((first, rest)) }));
        ReplyBody::events(Box::new(Events { next: Some(whole), guard, reservation: None }))
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    *response.headers_mut() = HeaderMap::from_iter([
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ]);
    Ok(response)
}

/// Answers with a backup. Its pieces are small enough to need no room of their own.
pub(crate) fn backup(state: &Rc<ConnectionState>, pieces: Box<dyn BackupPieces>) -> Result<Response<ReplyBody>, Error> {
    let guard = StreamGuard::new(state)?;
    let events = Events { next: Some(next_piece(pieces)), guard, reservation: None };
    let mut response = Response::new(ReplyBody::events(Box::new(events)));
    *response.headers_mut() = HeaderMap::from_iter([
        (header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ]);
    Ok(response)
}

fn next_piece(mut pieces: Box<dyn BackupPieces>) -> Next {
    Next(Box::pin(async move {
        let bytes = poll_fn(|context| pieces.poll_next(context)).await?;
        Some((bytes, next_piece(pieces)))
    }))
}

fn next<B: Records>(state: Rc<ConnectionState>, mut stream: ChangeStream<B>) -> Next {
    Next(Box::pin(async move {
        let began = Instant::now();
        let others = state.local.metrics.event_streams.get().saturating_sub(1);
        let share = PAUSE_PER_STREAM * u32::try_from(others).unwrap_or(u32::MAX);
        let mut pause = SHORTEST_PAUSE.max(share);
        if !share.is_zero() {
            sleep(share).await;
        }
        while !state.local.is_draining() {
            match stream.next().await {
                Ok(Some(events)) => return Some((events, next(state, stream))),
                // Passes by itself: the reader waits, as for a change.
                Err(error) if error.code.is_retryable() => pause = LONGEST_PAUSE,
                Err(error) => return Some((error_event(&problem::problem_json(&error)), end())),
                Ok(None) => {}
            }
            if began.elapsed() >= HEARTBEAT {
                return Some((COMMENT, next(state, stream)));
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE.max(share));
        }
        None
    }))
}

fn end() -> Next {
    Next(Box::pin(std::future::ready(None)))
}

impl Events {
    /// The next bytes; `None` ends the reply.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let state = &self.guard.0;
        self.reservation = None;
        let Some(next) = self.next.as_mut().filter(|_| !state.local.is_draining()) else {
            return Poll::Ready(None);
        };
        let Some((bytes, next)) = std::task::ready!(next.0.as_mut().poll(context)) else {
            self.next = None;
            return Poll::Ready(None);
        };
        self.next = Some(next);
        if bytes.len() > LARGE_BYTES {
            self.reservation = state.local.reserve(bytes.len());
            if self.reservation.is_none() {
                // Its reader comes back with the last id it saw.
                self.next = None;
                return Poll::Ready(None);
            }
        }
        let bytes = if state.is_http2() { state.watch(bytes) } else { bytes };
        Poll::Ready(Some(bytes))
    }
}
