//! Bodies: a request's, collected within limits of size and time, and a reply's.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use millrace_base::{Error, ErrorCode};
use tokio::time::Instant;

use crate::connection::ConnectionState;
use crate::events::Events;
use crate::local::{BYTES_PER_SECOND, Reservation};
use crate::metrics::Timeout;

/// A request's body.
pub(crate) enum RequestBody {
    /// There already.
    Whole(Bytes),
    /// Read from the connection as it comes.
    Arriving(Incoming),
}

impl RequestBody {
    /// Whether nothing of it is left to be read from the connection.
    pub(crate) fn has_arrived(&self) -> bool {
        match self {
            RequestBody::Whole(_) => true,
            RequestBody::Arriving(body) => body.is_end_stream(),
        }
    }
}

/// Collects a request's body.
///
/// # Errors
/// `too-large` beyond `limit_bytes`, `request-timeout` for one that arrives too slowly, `overloaded`
/// when slow bodies fill the core's share, `bad-request` for one that is cut short.
pub(crate) async fn collect(
    body: &mut RequestBody,
    state: &ConnectionState,
    limit_bytes: usize,
) -> Result<Bytes, Error> {
    let body = match body {
        RequestBody::Whole(bytes) if bytes.len() > limit_bytes => return Err(too_large(limit_bytes)),
        RequestBody::Whole(bytes) => return Ok(std::mem::take(bytes)),
        RequestBody::Arriving(body) => body,
    };
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    // What is announced as too large is refused before a byte of it is read.
    if body.size_hint().lower() > limit_bytes as u64 {
        return Err(too_large(limit_bytes));
    }
    let mut reader = BodyReader::new(body, state);
    let Some(first) = reader.next().await? else {
        return Ok(Bytes::new());
    };
    if reader.body.is_end_stream() {
        return if first.len() <= limit_bytes { Ok(first) } else { Err(too_large(limit_bytes)) };
    }
    // Boxed: most bodies come in one piece, and do not pay for the room this needs.
    Box::pin(reader.collect_rest(first, limit_bytes)).await
}

fn too_large(limit_bytes: usize) -> Error {
    Error::new(ErrorCode::TooLarge, format!("the request's body is larger than {limit_bytes} bytes"))
}

struct BodyReader<'a> {
    body: &'a mut Incoming,
    state: &'a ConnectionState,
    received_bytes: u64,
    /// HTTP/2 has many bodies on one connection, so each has a timer; an HTTP/1 connection's only
    /// body is watched by the sweep. The timer is made when the body first lets us wait.
    timer: Option<BodyTimer>,
}

struct BodyTimer {
    started: Instant,
    progressed: Instant,
    progressed_bytes: u64,
    sleep: Pin<Box<tokio::time::Sleep>>,
}

impl<'a> BodyReader<'a> {
    fn new(body: &'a mut Incoming, state: &'a ConnectionState) -> Self {
        state.body_begins();
        Self { body, state, received_bytes: 0, timer: None }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            match poll_fn(|context| self.poll_frame(context)).await? {
                None => return Ok(None),
                // Trailers are passed over.
                Some(frame) => {
                    if let Ok(data) = frame.into_data() {
                        self.received_bytes += data.len() as u64;
                        self.state.body_received(self.received_bytes);
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, Error>> {
        match Pin::new(&mut *self.body).poll_frame(context) {
            Poll::Ready(None) => Poll::Ready(Ok(None)),
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Ok(Some(frame))),
            Poll::Ready(Some(Err(error))) => {
                let unread =
                    || Error::new(ErrorCode::BadRequest, format!("the request's body cannot be read: {error}"));
                Poll::Ready(Err(self.state.refused_body().unwrap_or_else(unread)))
            }
            Poll::Pending => {
                if self.is_too_slow(context) {
                    self.state.local.metrics.count_timeout(Timeout::Body);
                    let message = "the request's body did not arrive in time";
                    return Poll::Ready(Err(Error::new(ErrorCode::RequestTimeout, message)));
                }
                Poll::Pending
            }
        }
    }

    fn is_too_slow(&mut self, context: &mut Context<'_>) -> bool {
        if !self.state.is_http2() {
            return self.state.is_body_late();
        }
        let patience = self.state.local.front.options.timeouts.body;
        let timer = self.timer.get_or_insert_with(|| {
            let now = Instant::now();
            let sleep = Box::pin(tokio::time::sleep_until(now + patience));
            BodyTimer { started: now, progressed: now, progressed_bytes: 0, sleep }
        });
        while timer.sleep.as_mut().poll(context).is_ready() {
            // What arrived since the timer was set may have bought more time.
            let now = Instant::now();
            if timer.progressed_bytes < self.received_bytes {
                (timer.progressed, timer.progressed_bytes) = (now, self.received_bytes);
            }
            let bought = Duration::from_secs(self.received_bytes / BYTES_PER_SECOND);
            let deadline = (timer.progressed + patience).min(timer.started + patience + bought);
            if deadline <= now {
                return true;
            }
            timer.sleep.as_mut().reset(deadline);
        }
        false
    }

    async fn collect_rest(&mut self, first: Bytes, limit_bytes: usize) -> Result<Bytes, Error> {
        let overloaded = || Error::new(ErrorCode::Overloaded, "too many large requests are arriving; try again");
        let mut reservation = self.state.local.reserve(first.len()).ok_or_else(overloaded)?;
        let mut whole = BytesMut::from(first);
        while let Some(data) = self.next().await? {
            if whole.len() + data.len() > limit_bytes {
                return Err(too_large(limit_bytes));
            }
            // The buffer doubles when it grows; what is announced but not sent costs nothing.
            if !reservation.grow_to((whole.len() + data.len()).saturating_mul(2)) {
                return Err(overloaded());
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole.freeze())
    }
}

impl Drop for BodyReader<'_> {
    fn drop(&mut self) {
        self.state.body_ends();
    }
}

/// Bytes handed to hyper at once, where a reply goes through it. It stops asking while more than its own bound is unsent, so a
/// client that does not read leaves the rest here.
const CHUNK_BYTES: usize = 32 << 10;

/// Replies above this count against [`crate::Limits::buffered_bytes`].
pub(crate) const LARGE_BYTES: usize = 64 << 10;

/// A reply's body.
pub(crate) struct ReplyBody {
    rest: Bytes,
    reservation: Option<Reservation>,
    /// What comes after `rest`, where the reply goes on for as long as somebody reads.
    events: Option<Box<Events>>,
}

impl ReplyBody {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self { rest: bytes, reservation: None, events: None }
    }

    pub(crate) fn events(events: Box<Events>) -> Self {
        Self { events: Some(events), ..Self::new(Bytes::new()) }
    }

    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    /// All of it, where it has an end.
    pub(crate) fn take_bytes(&mut self) -> Bytes {
        debug_assert!(self.events.is_none(), "a stream has no length");
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn hold(&mut self, reservation: Reservation) {
        self.reservation = Some(reservation);
    }

    /// Makes the body tell `unsent` when its last byte has left, or has been given up.
    pub(crate) fn watch(&mut self, unsent: Arc<Unsent>) {
        let bytes = std::mem::take(&mut self.rest);
        self.rest = watched(bytes, unsent);
    }
}

/// Bytes that tell `unsent` when the last of them is gone.
pub(crate) fn watched(bytes: Bytes, unsent: Arc<Unsent>) -> Bytes {
    Bytes::from_owner(Watched { bytes, unsent })
}

/// A reply that an HTTP/2 client has not taken yet.
pub(crate) struct Unsent {
    /// The tick at which the connection is ended if the reply is still here.
    pub(crate) deadline: u32,
    is_gone: AtomicBool,
}

impl Unsent {
    pub(crate) fn new(deadline: u32) -> Arc<Self> {
        Arc::new(Self { deadline, is_gone: AtomicBool::new(false) })
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

struct Watched {
    bytes: Bytes,
    unsent: Arc<Unsent>,
}

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.unsent.is_gone.store(true, Ordering::Relaxed);
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            let Some(events) = &mut this.events else {
                return Poll::Ready(None);
            };
            match std::task::ready!(events.poll_next(context)) {
                Some(bytes) => this.rest = bytes,
                None => {
                    this.events = None;
                    return Poll::Ready(None);
                }
            }
        }
        let chunk = if this.rest.len() <= CHUNK_BYTES {
            std::mem::take(&mut this.rest)
        } else {
            this.rest.split_to(CHUNK_BYTES)
        };
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.events.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.events.is_some() {
            return SizeHint::new();
        }
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
