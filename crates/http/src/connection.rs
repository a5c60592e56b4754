//! One connection: its clock, its orders, and the way from its first byte to its end.
//!
//! A connection that waits for its first byte, or has been idle for a while, is *parked*: it holds
//! a socket and this module's few hundred bytes, no HTTP buffers. Its first bytes tell HTTP/2 from
//! HTTP/1, once; an idle HTTP/1 connection goes back to being parked.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use millrace_base::{Error, ErrorCode};
use tokio::io::ReadBuf;

use crate::backend::Backend;
use crate::body::{self, ReplyBody, RequestBody, Unsent};
use crate::framing::{Check, Http1, Http2, Refusal};
use crate::handle::{Session, handle};
use crate::io::{Io, LINGER_BYTES};
use crate::local::Local;
use crate::metrics::Timeout;
use crate::operations::Kind;
use crate::plain;
use crate::problem;
use crate::status::status_of;

/// What a connection is told from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// End now: it took too long.
    Close(Timeout),
    /// End now: the server does.
    Abort,
    /// Answer what has arrived, then end.
    Drain,
    /// Give the buffers back.
    Park,
    /// Only be polled: a body is late, or the client did not take a reply.
    Look,
}

impl Order {
    /// The more an order changes, the higher.
    fn rank(self) -> u8 {
        match self {
            Order::Look => 0,
            Order::Park => 1,
            Order::Drain => 2,
            Order::Close(_) => 3,
            Order::Abort => 4,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No request is being read, run or answered.
    Idle,
    /// The first bytes of a request are there, its headers not all (HTTP/1 only).
    Head,
    /// At least one request is with the node, or its body on the way.
    Busy,
}

/// What the sweep and the connection's own task know about it.
pub(crate) struct ConnectionState {
    pub(crate) local: Rc<Local>,
    is_http2: Cell<bool>,
    is_parked: Cell<bool>,
    phase: Cell<Phase>,
    /// The tick at which the phase began.
    since: Cell<u32>,
    requests: Cell<u32>,
    /// Streams of events among them.
    streams: Cell<u32>,
    /// The client does not take what we send.
    is_blocked: Cell<bool>,
    /// The tick at which the reply was ready (HTTP/2: at which the connection became blocked), and
    /// what has been sent since then.
    reply_since: Cell<u32>,
    reply_sent: Cell<u64>,
    /// The tick at which something was sent last.
    sent_at: Cell<u32>,
    /// The tick at which reading the body began, what has come since then, and when the last of it
    /// came (HTTP/1 only).
    body_since: Cell<Option<u32>>,
    body_received: Cell<u64>,
    body_received_at: Cell<u32>,
    /// Replies the client has not taken (HTTP/2 only).
    unsent: RefCell<Vec<Arc<Unsent>>>,
    /// A reply waits for the end of the round.
    is_departing: Cell<bool>,
    /// What the client did not take of it when it was sent.
    unsent_replies: RefCell<Bytes>,
    order: Cell<Option<Order>>,
    waker: RefCell<Option<Waker>>,
    /// What was wrong with bytes that came for hyper.
    refusal: RefCell<Option<Box<Refusal>>>,
    /// hyper wants more than what came before these.
    is_refusal_reached: Cell<bool>,
    /// Whether closing drops what the kernel still holds for the client.
    pub(crate) discards_unsent: Cell<bool>,
}

impl ConnectionState {
    pub(crate) fn new(local: Rc<Local>) -> Self {
        let tick = local.tick();
        Self {
            local,
            is_http2: Cell::new(false),
            is_parked: Cell::new(false),
            phase: Cell::new(Phase::Idle),
            since: Cell::new(tick),
            requests: Cell::new(0),
            streams: Cell::new(0),
            is_blocked: Cell::new(false),
            reply_since: Cell::new(tick),
            reply_sent: Cell::new(0),
            sent_at: Cell::new(tick),
            body_since: Cell::new(None),
            body_received: Cell::new(0),
            body_received_at: Cell::new(tick),
            unsent: RefCell::new(Vec::new()),
            is_departing: Cell::new(false),
            unsent_replies: RefCell::new(Bytes::new()),
            order: Cell::new(None),
            waker: RefCell::new(None),
            refusal: RefCell::new(None),
            is_refusal_reached: Cell::new(false),
            discards_unsent: Cell::new(false),
        }
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2.get()
    }

    /// Gives an order; the connection's task obeys at its next poll, which this causes.
    pub(crate) fn give(&self, order: Order) {
        // What was not obeyed yet must not be overtaken by something milder.
        if self.order.get().is_none_or(|earlier| earlier.rank() <= order.rank()) {
            self.order.set(Some(order));
        }
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn obey(&self, context: &mut Context<'_>) -> Option<Order> {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => *waker = Some(context.waker().clone()),
        }
        self.order.take()
    }

    /// What should happen to the connection at `tick`.
    pub(crate) fn inspect(&self, tick: u32) -> Option<Order> {
        let ticks = &self.local.ticks;
        let age = |since: u32| tick.wrapping_sub(since);
        let phase = self.phase.get();
        let is_writing = self.is_blocked.get() && (phase != Phase::Busy || self.writes_while_busy());
        // The kernel takes the first megabytes at once, so what was sent says little by itself: a
        // client must also go on taking.
        let is_late = || {
            let allowed = ticks.write.saturating_add(ticks.bought_by(self.reply_sent.get()));
            age(self.sent_at.get()).min(age(self.reply_since.get())) > ticks.write
                || age(self.reply_since.get()) > allowed
        };
        if (is_writing && is_late()) || (self.is_http2() && self.has_overdue_reply(tick)) {
            return Some(Order::Close(Timeout::Write));
        }
        let age = age(self.since.get());
        match phase {
            Phase::Head if age > ticks.headers => Some(Order::Close(Timeout::Headers)),
            Phase::Idle if is_writing => None,
            Phase::Idle if age > ticks.idle => Some(Order::Close(Timeout::Idle)),
            Phase::Idle if age > ticks.park && !self.is_parked.get() && !self.is_http2() => Some(Order::Park),
            Phase::Busy if self.is_body_late() => Some(Order::Look),
            _ => None,
        }
    }

    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(self.local.tick());
    }

    /// From now on it is the client's time that passes.
    pub(crate) fn time_begins(&self) {
        self.since.set(self.local.tick());
    }

    /// Whether a request has begun that nobody has seen yet (HTTP/1 only).
    #[inline]
    pub(crate) fn is_reading_head(&self) -> bool {
        self.phase.get() == Phase::Head
    }

    /// Whether an HTTP/1 request is being answered.
    #[inline]
    pub(crate) fn is_answering(&self) -> bool {
        self.phase.get() == Phase::Busy && !self.is_http2()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.phase.get() == Phase::Idle && !self.is_blocked.get() && !self.is_departing.get()
    }

    #[inline]
    pub(crate) fn received(&self, bytes: usize) {
        self.local.metrics.received_bytes.add(bytes as u64);
        if self.phase.get() == Phase::Idle && !self.is_http2() {
            self.enter(Phase::Head);
        }
    }

    #[inline]
    pub(crate) fn sent(&self, bytes: usize) {
        self.local.metrics.sent_bytes.add(bytes as u64);
        self.reply_sent.set(self.reply_sent.get() + bytes as u64);
        self.sent_at.set(self.local.tick());
    }

    pub(crate) fn write_blocked(&self) {
        if !self.is_blocked.replace(true) && self.writes_while_busy() {
            self.reply_since.set(self.local.tick());
            self.reply_sent.set(0);
        }
    }

    #[inline]
    pub(crate) fn write_finished(&self) {
        if !self.is_owing() && self.is_blocked.replace(false) && self.phase.get() == Phase::Idle {
            self.since.set(self.local.tick());
        }
    }

    #[inline]
    pub(crate) fn is_departing(&self) -> bool {
        self.is_departing.get()
    }

    #[inline]
    pub(crate) fn departs(&self, is_departing: bool) {
        self.is_departing.set(is_departing);
    }

    /// Whether the client has not taken all of a reply that was sent.
    #[inline]
    pub(crate) fn is_owing(&self) -> bool {
        !self.unsent_replies.borrow().is_empty()
    }

    /// Keeps what the client does not take, for the connection's task to send.
    pub(crate) fn owe(&self, rest: &[u8]) {
        self.put_back_unsent_replies(Bytes::copy_from_slice(rest));
        self.write_blocked();
        self.give(Order::Look);
    }

    pub(crate) fn take_unsent_replies(&self) -> Bytes {
        self.unsent_replies.take()
    }

    pub(crate) fn put_back_unsent_replies(&self, unsent_replies: Bytes) {
        *self.unsent_replies.borrow_mut() = unsent_replies;
    }

    /// Whether there may be something to write before the last request is answered.
    fn writes_while_busy(&self) -> bool {
        self.is_http2() || self.streams.get() > 0
    }

    /// A stream of events begins: its request is not answered before it ends.
    pub(crate) fn stream_begins(&self) {
        self.streams.set(self.streams.get() + 1);
        self.requests.set(self.requests.get() + 1);
        self.phase.set(Phase::Busy);
    }

    pub(crate) fn stream_ends(&self) {
        self.streams.set(self.streams.get() - 1);
        self.request_ends();
    }

    /// A request's headers are there; it ends when the guard is dropped.
    pub(crate) fn request_begins(&self) -> InFlight<'_> {
        self.requests.set(self.requests.get() + 1);
        self.phase.set(Phase::Busy);
        InFlight(self)
    }

    fn request_ends(&self) {
        self.requests.set(self.requests.get() - 1);
        if self.requests.get() == 0 {
            self.enter(Phase::Idle);
            if !self.is_http2() {
                self.reply_since.set(self.local.tick());
                self.reply_sent.set(0);
            }
        }
    }

    /// There are bytes of a request that nobody has looked at.
    pub(crate) fn head_begins(&self) {
        if self.phase.get() == Phase::Idle {
            self.enter(Phase::Head);
        }
    }

    /// A request's headers are there, its body is not, and nobody has been told (HTTP/1 only).
    pub(crate) fn body_awaited(&self) {
        self.phase.set(Phase::Busy);
        self.body_begins();
    }

    pub(crate) fn body_begins(&self) {
        if !self.is_http2() {
            self.body_since.set(Some(self.local.tick()));
            self.body_received.set(0);
            self.body_received_at.set(self.local.tick());
        }
    }

    pub(crate) fn body_received(&self, total_bytes: u64) {
        self.body_received.set(total_bytes);
        self.body_received_at.set(self.local.tick());
    }

    pub(crate) fn body_ends(&self) {
        self.body_since.set(None);
    }

    pub(crate) fn is_body_late(&self) -> bool {
        let Some(since) = self.body_since.get() else {
            return false;
        };
        let ticks = &self.local.ticks;
        let age = |since: u32| self.local.tick().wrapping_sub(since);
        let allowed = ticks.body.saturating_add(ticks.bought_by(self.body_received.get()));
        age(self.body_received_at.get()) > ticks.body || age(since) > allowed
    }

    /// Nothing more is read, because of what came.
    pub(crate) fn refuse(&self, refusal: Refusal) {
        *self.refusal.borrow_mut() = Some(Box::new(refusal));
    }

    /// For whoever wants to read: whether nothing more is read, and then whether a body is the reason.
    pub(crate) fn refusal_is_reached(&self) -> Option<bool> {
        let is_in_body = self.refusal.borrow().as_ref().map(|refusal| refusal.is_in_body)?;
        self.is_refusal_reached.set(true);
        Some(is_in_body)
    }

    /// Whether all is answered that came before what was refused.
    fn is_refusal_due(&self) -> bool {
        self.is_refusal_reached.get() && self.requests.get() == 0 && !self.is_blocked.get()
    }

    /// What was wrong with a body.
    pub(crate) fn refused_body(&self) -> Option<Error> {
        let refusal = self.refusal.borrow();
        refusal.as_ref().filter(|refusal| refusal.is_in_body).map(|refusal| refusal.error.clone())
    }

    /// Watches over a reply that HTTP/2's flow control may hold back for ever.
    pub(crate) fn watch_reply(&self, body: &mut ReplyBody) {
        if body.len() == 0 {
            return;
        }
        body.watch(self.unsent(body.len()));
    }

    /// Watches over a part of a stream in the same way.
    pub(crate) fn watch(&self, bytes: Bytes) -> Bytes {
        let unsent = self.unsent(bytes.len());
        body::watched(bytes, unsent)
    }

    fn unsent(&self, bytes: usize) -> Arc<Unsent> {
        let ticks = &self.local.ticks;
        let allowed = ticks.write.saturating_add(ticks.bought_by(bytes as u64));
        let unsent = Unsent::new(self.local.tick().wrapping_add(allowed));
        let mut replies = self.unsent.borrow_mut();
        // Live ones are as few as streams; the rest is cleared before it adds up.
        if replies.len() >= 256 {
            replies.retain(|reply| !reply.is_gone());
        }
        replies.push(Arc::clone(&unsent));
        unsent
    }

    fn has_overdue_reply(&self, tick: u32) -> bool {
        let mut replies = self.unsent.borrow_mut();
        replies.retain(|reply| !reply.is_gone());
        replies.iter().any(|reply| tick.wrapping_sub(reply.deadline) < u32::MAX / 2)
    }

    /// Counts and prepares an end ordered by the sweep.
    pub(crate) fn close(&self, timeout: Timeout) {
        self.local.metrics.count_timeout(timeout);
        self.discards_unsent.set(timeout == Timeout::Write);
    }
}

/// A request being answered.
pub(crate) struct InFlight<'a>(&'a ConnectionState);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.request_ends();
    }
}

/// What an HTTP/2 connection begins with (RFC 9113, 3.4). No HTTP/1 request does.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes read while it is not clear yet which protocol is spoken, or after an idle time.
const FIRST_READ_BYTES: usize = 256;

/// Serves a connection until it ends. `is_http2` is what ALPN found, where there is TLS.
pub(crate) async fn run<B: Backend>(mut io: Io, mut is_http2: Option<bool>, session: Session<B>) {
    loop {
        if is_http2 != Some(true) {
            if io.prefix.is_empty() && !read_first(&mut io).await {
                return;
            }
            // Boxed, as all that follows, so that a parked connection does not carry the room for it.
            match Box::pin(plain::run(&mut io, &session, &mut is_http2)).await {
                plain::End::Closed => return,
                plain::End::Idle => continue,
                plain::End::Other => {}
            }
        }
        if is_http2.is_none() {
            is_http2 = begins_http2(&mut io).await;
        }
        match is_http2 {
            None => return,
            Some(true) => {
                io.state.is_http2.set(true);
                io.state.enter(Phase::Idle);
                return Box::pin(run_http2(io, service(session))).await;
            }
            Some(false) => match Box::pin(run_http1(io, service(session.clone()))).await {
                Some(parked) => io = parked,
                None => return,
            },
        }
    }
}

/// What hyper hands requests to.
fn service<B: Backend>(
    session: Session<B>,
) -> impl Service<Request<Incoming>, Response = Response<ReplyBody>, Error = Infallible> + Clone {
    service_fn(move |request: Request<Incoming>| {
        let session = session.clone();
        let mut request = request.map(RequestBody::Arriving);
        // A block that only borrows what it owns: an `async fn` would hold its arguments twice.
        async move { Ok(handle(&session, &mut request).await) }
    })
}

/// Waits for bytes and appends them to the prefix; false when the connection ends instead.
async fn read_first(io: &mut Io) -> bool {
    io.state.is_parked.set(io.prefix.is_empty());
    let read = poll_fn(|context| {
        match io.state.obey(context) {
            Some(Order::Close(timeout)) => {
                io.state.close(timeout);
                return Poll::Ready(None);
            }
            Some(Order::Drain | Order::Abort) => return Poll::Ready(None),
            Some(Order::Park | Order::Look) | None => {}
        }
        let mut bytes = [0; FIRST_READ_BYTES];
        let mut buffer = ReadBuf::new(&mut bytes);
        match io.stream.poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                Poll::Ready(Some(Bytes::copy_from_slice(buffer.filled())))
            }
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    io.state.is_parked.set(false);
    let Some(bytes) = read else {
        return false;
    };
    io.state.received(bytes.len());
    io.prefix = if io.prefix.is_empty() {
        bytes
    } else {
        let mut both = BytesMut::from(&io.prefix[..]);
        both.extend_from_slice(&bytes);
        both.freeze()
    };
    true
}

/// Whether the connection begins with HTTP/2's preface; `None` when it ends before that is clear.
async fn begins_http2(io: &mut Io) -> Option<bool> {
    loop {
        let length = io.prefix.len().min(PREFACE.len());
        if io.prefix[..length] != PREFACE[..length] {
            return Some(false);
        }
        if length == PREFACE.len() {
            return Some(true);
        }
        if !read_first(io).await {
            return None;
        }
    }
}

/// Bytes hyper may buffer for one HTTP/1 connection, in each direction: the hard bound of headers
/// that trickle in, and the room a reply's chunk goes through.
const BUFFER_BYTES: usize = 64 << 10;

/// Runs HTTP/1 until the connection ends (`None`) or should be parked.
async fn run_http1<S>(mut io: Io, service: S) -> Option<Io>
where
    S: Service<Request<Incoming>, Response = Response<ReplyBody>, Error = Infallible> + 'static,
{
    let state = Rc::clone(&io.state);
    let limits = &state.local.front.options.limits;
    io.check_with(Check::Http1(Http1::new(limits.body_bytes.max(limits.archive_bytes) as u64)));
    let mut builder = http1::Builder::new();
    // The sweep watches the time; see `local`. And where it can, `Io` watches for clients that leave: hyper
    // would get ready to read, with another buffer, before it begins a request.
    builder.header_read_timeout(None).max_buf_size(BUFFER_BYTES).half_close(io.stream.can_tell_who_leaves());
    let mut connection = builder.serve_connection(io, service);
    let order = poll_fn(|context| {
        let order = state.obey(context);
        match order {
            Some(Order::Close(_) | Order::Abort) => return Poll::Ready(order),
            Some(Order::Park) if state.is_idle() => return Poll::Ready(order),
            _ => {}
        }
        if let Poll::Ready(result) = Pin::new(&mut connection).poll(context) {
            if result.is_err() {
                state.local.metrics.connection_errors.increment();
            }
            return Poll::Ready(result.is_err().then_some(Order::Abort));
        }
        if state.is_refusal_due() {
            return Poll::Ready(None);
        }
        if order == Some(Order::Drain) {
            // After the poll: a request that has arrived is answered, and only then is the end.
            Pin::new(&mut connection).graceful_shutdown();
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
    let parts = connection.into_parts();
    let mut io = parts.io;
    if matches!(order, None | Some(Order::Abort))
        && let Some(refusal) = state.refusal.take()
    {
        state.local.metrics.connection_errors.increment();
        // The request whose body it is has been answered: only the end is to be told.
        let words = if refusal.is_in_body { Vec::new() } else { problem::raw_reply(&refusal.error) };
        say(&mut io, &words).await;
        linger(&mut io).await;
        return None;
    }
    match order {
        // The last reply has left, with the end mark behind it; a body may still be coming.
        None => linger(&mut io).await,
        Some(Order::Park) => {
            // Empty, unless the beginning of a request came behind the last one.
            if !parts.read_buf.is_empty() {
                state.enter(Phase::Head);
                io.prefix = parts.read_buf;
            }
            return Some(io);
        }
        Some(Order::Close(timeout)) => close_late(&mut io, timeout).await,
        Some(Order::Abort | Order::Drain | Order::Look) => {}
    }
    None
}

/// Ends an HTTP/1 connection that took too long, and says so where somebody may listen.
pub(crate) async fn close_late(io: &mut Io, timeout: Timeout) {
    io.state.close(timeout);
    let late = |what| problem::raw_reply(&Error::new(ErrorCode::RequestTimeout, what));
    match timeout {
        Timeout::Headers => say(io, &late("the request's headers did not arrive in time")).await,
        Timeout::Body => {
            io.state.local.metrics.count_request(Kind::None, status_of(ErrorCode::RequestTimeout).as_u16(), 0);
            say(io, &late("the request's body did not arrive in time")).await;
        }
        Timeout::Idle => say(io, b"").await,
        _ => {}
    }
}

/// Sends last words and the end mark, without waiting for a client that does not listen.
pub(crate) async fn say(io: &mut Io, words: &[u8]) {
    poll_fn(|context| {
        if !words.is_empty() && !matches!(io.stream.poll_write(context, words), Poll::Ready(Ok(_))) {
            return Poll::Ready(());
        }
        let _ = io.stream.poll_flush(context);
        let _ = io.stream.poll_shutdown(context);
        Poll::Ready(())
    })
    .await;
}

/// Passes over what a client goes on sending after its last reply: with that unread, the kernel would take back what the
/// client has not read of the reply. Ends with the client, or when it has been told long enough.
pub(crate) async fn linger(io: &mut Io) {
    // Of the orders, all but to look and to drain end this; the first that is sure to come is to park.
    io.state.enter(Phase::Idle);
    let mut left_bytes = LINGER_BYTES;
    poll_fn(|context| {
        if !matches!(io.state.obey(context), None | Some(Order::Look | Order::Drain)) {
            return Poll::Ready(());
        }
        while left_bytes > 0 {
            let buffers = &mut *io.state.local.buffers.borrow_mut();
            let mut buffer = ReadBuf::new(&mut buffers.read);
            match io.stream.poll_read(context, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    left_bytes = left_bytes.saturating_sub(buffer.filled().len());
                }
                Poll::Ready(_) => break,
            }
        }
        Poll::Ready(())
    })
    .await;
}

/// Runs HTTP/2 until the connection ends.
async fn run_http2<S>(mut io: Io, service: S)
where
    S: Service<Request<Incoming>, Response = Response<ReplyBody>, Error = Infallible> + 'static,
{
    let state = Rc::clone(&io.state);
    let limits = &state.local.front.options.limits;
    // Names and values count in HTTP/2 with 32 bytes each on top (RFC 9113, 6.5.2).
    let header_list_bytes = limits.header_bytes + limits.headers * 32;
    io.check_with(Check::Http2(Http2::new(header_list_bytes, state.local.now_ms())));
    let mut builder = http2::Builder::new(LocalExecutor);
    builder
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(header_list_bytes).unwrap_or(u32::MAX))
        .max_send_buf_size(BUFFER_BYTES);
    let mut connection = builder.serve_connection(io, service);
    let mut is_leaving = false;
    poll_fn(|context| {
        match state.obey(context) {
            // Idle: say so first, and close at the next sweep that finds it idle still.
            Some(Order::Close(Timeout::Idle)) if !is_leaving => {
                state.local.metrics.count_timeout(Timeout::Idle);
                is_leaving = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            Some(Order::Close(Timeout::Idle) | Order::Abort) => return Poll::Ready(()),
            Some(Order::Close(timeout)) => {
                state.close(timeout);
                return Poll::Ready(());
            }
            Some(Order::Drain) => {
                is_leaving = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            Some(Order::Park | Order::Look) | None => {}
        }
        let result = std::task::ready!(Pin::new(&mut connection).poll(context));
        if result.is_err() {
            state.local.metrics.connection_errors.increment();
        }
        Poll::Ready(())
    })
    .await;
}

/// Runs HTTP/2's streams on the core that accepted their connection.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Front, Options};
    use prometheus_client::registry::Registry;

    /// A connection that is to be parked and hears of the drain in one turn, in either order, drains.
    #[test]
    fn an_order_is_not_overtaken_by_a_milder_one() {
        let front = Front::new(Options::default(), Registry::default()).expect("no files to read");
        let state = ConnectionState::new(Local::new(front));
        let orders = [Order::Look, Order::Park, Order::Drain, Order::Close(Timeout::Idle), Order::Abort];
        for (index, milder) in orders.into_iter().enumerate() {
            for stronger in &orders[index..] {
                for (first, second) in [(milder, *stronger), (*stronger, milder)] {
                    state.give(first);
                    state.give(second);
                    assert_eq!(state.order.take(), Some(*stronger), "{first:?}, then {second:?}");
                }
            }
        }
    }
}
