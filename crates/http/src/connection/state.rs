//! What the sweep and a connection's own task know about the connection: its phase, its clocks, its orders.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use millrace_base::Error;

use super::worker::DialledWorker;
use crate::body::{self, ReplyBody, Unsent};
use crate::framing::Refusal;
use crate::local::Local;
use crate::metrics::Timeout;

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
pub(crate) enum Phase {
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
    pub(super) is_http2: Cell<bool>,
    pub(super) is_parked: Cell<bool>,
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
    pub(super) refusal: RefCell<Option<Box<Refusal>>>,
    /// It is a worker's, once the reply that says so has left.
    line: RefCell<Option<DialledWorker>>,
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
            line: RefCell::new(None),
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

    pub(super) fn enter(&self, phase: Phase) {
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

    /// Behind the reply under way the connection is a worker's.
    pub(crate) fn becomes(&self, worker: DialledWorker) {
        self.line.replace(Some(worker));
    }

    /// The worker, if the connection has become one's.
    pub(super) fn take_line(&self) -> Option<DialledWorker> {
        self.line.take()
    }

    /// Whether the socket goes on after the last reply.
    pub(crate) fn has_line(&self) -> bool {
        self.line.borrow().is_some()
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
    pub(super) fn is_refusal_due(&self) -> bool {
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
