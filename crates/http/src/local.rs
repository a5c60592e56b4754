//! What the connections of one core share, and the sweep that ends those that take too long.
//!
//! Time is counted in ticks of the sweep. A request, or a byte, is stamped with the tick it came
//! in, which costs a store; the sweep compares stamps with limits a few times a second. So no
//! request arms a timer.

use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use millrace_access::Access;
use millrace_records::Records;
use slab::Slab;
use tokio::sync::Notify;

use crate::connection::{ConnectionState, Order};
use crate::cors::Cors;
use crate::front::Front;
use crate::metrics::CoreMetrics;
use crate::origin::Guard;
use crate::plain::{Buffers, ReplyBatch};

/// Bytes that buy a transfer another second: slower clients than 16 KiB/s are not worth what their
/// request holds.
pub(crate) const BYTES_PER_SECOND: u64 = 16 << 10;

/// Ticks without another connection being parked before memory is given back.
const RELEASE_TICKS: u32 = 4;

/// As long as every date in the format of RFC 9110, 5.6.7.
const DATE_BYTES: usize = 29;

fn date() -> [u8; DATE_BYTES] {
    let text = httpdate::fmt_http_date(SystemTime::now());
    // Of another length are only years that have other than four digits.
    text.as_bytes().try_into().unwrap_or(*b"Thu, 01 Jan 1970 00:00:00 GMT")
}

/// Timeouts in ticks.
pub(crate) struct Ticks {
    pub(crate) length: Duration,
    pub(crate) headers: u32,
    pub(crate) body: u32,
    pub(crate) write: u32,
    pub(crate) idle: u32,
    pub(crate) park: u32,
}

impl Ticks {
    fn new(front: &Front) -> Self {
        let timeouts = &front.options.timeouts;
        let shortest =
            [timeouts.headers, timeouts.body, timeouts.write, timeouts.idle, timeouts.park].into_iter().min();
        let length = (shortest.unwrap_or_default() / 4).clamp(Duration::from_millis(5), Duration::from_secs(1));
        let ticks = |timeout: Duration| {
            let count = timeout.as_nanos().div_ceil(length.as_nanos());
            // One more, because the first tick may come right after the stamp.
            u32::try_from(count).unwrap_or(u32::MAX - 1) + 1
        };
        Self {
            length,
            headers: ticks(timeouts.headers),
            body: ticks(timeouts.body),
            write: ticks(timeouts.write),
            idle: ticks(timeouts.idle),
            park: ticks(timeouts.park),
        }
    }

    /// How many more ticks a transfer of `bytes` gets.
    pub(crate) fn bought_by(&self, bytes: u64) -> u32 {
        let milliseconds = (bytes / BYTES_PER_SECOND).saturating_mul(1000);
        u32::try_from(milliseconds / (self.length.as_millis().max(1) as u64)).unwrap_or(u32::MAX)
    }
}

/// One core's part of the front.
pub(crate) struct Local {
    pub(crate) front: Arc<Front>,
    pub(crate) metrics: Arc<CoreMetrics>,
    pub(crate) access: Access,
    /// There while there are no keys.
    pub(crate) guard: Option<Guard>,
    pub(crate) cors: Cors,
    pub(crate) ticks: Ticks,
    pub(crate) records: Records,
    pub(crate) buffers: RefCell<Buffers>,
    reply_batch: RefCell<ReplyBatch>,
    has_reply_batch: Notify,
    /// When the last request was answered, in nanoseconds.
    answered_ns: Cell<u64>,
    date: Cell<[u8; DATE_BYTES]>,
    tick: Cell<u32>,
    connections: RefCell<Slab<Rc<ConnectionState>>>,
    buffered_bytes: Cell<usize>,
    is_draining: Cell<bool>,
    is_empty: Notify,
    /// When to tell the allocator that buffers were given back.
    release_at: Cell<Option<u32>>,
}

impl Local {
    pub(crate) fn new(front: Arc<Front>) -> Rc<Self> {
        Rc::new(Self {
            metrics: front.core_metrics(),
            access: Access::new(front.keyring().map(Arc::as_ref)),
            guard: front
                .keyring()
                .is_none()
                .then(|| Guard::new(&front.options.allowed_hosts, &front.options.cors_origins)),
            cors: Cors::new(&front.options.cors_origins),
            ticks: Ticks::new(&front),
            records: Records::new(front.turns.clone()),
            buffers: RefCell::new(Buffers::new()),
            reply_batch: RefCell::default(),
            has_reply_batch: Notify::new(),
            answered_ns: Cell::new(0),
            date: Cell::new(date()),
            tick: Cell::new(0),
            connections: RefCell::new(Slab::new()),
            buffered_bytes: Cell::new(0),
            is_draining: Cell::new(false),
            is_empty: Notify::new(),
            release_at: Cell::new(None),
            front,
        })
    }

    /// Now, in ticks.
    #[inline]
    pub(crate) fn tick(&self) -> u32 {
        self.tick.get()
    }

    /// Milliseconds since the first tick.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::from(self.tick()) * self.ticks.length.as_millis() as u64
    }

    /// An empty map of headers that was used a moment ago, if there is one.
    pub(crate) fn take_map(&self) -> HeaderMap {
        self.buffers.borrow_mut().take_map()
    }

    /// A map of headers that is done with.
    pub(crate) fn put_back(&self, map: HeaderMap) {
        self.buffers.borrow_mut().put_back(map);
    }

    /// A request begins now. Replies that have waited long enough leave before.
    pub(crate) fn begins(&self, now_ns: u64) {
        self.reply_batch.borrow_mut().leave_in_time(now_ns);
    }

    /// A request was answered now.
    pub(crate) fn answered(&self, now_ns: u64) {
        self.answered_ns.set(now_ns);
    }

    /// Has a reply leave at the end of the round.
    ///
    /// # Safety
    /// `socket` is open until [`Local::depart`] has been called.
    pub(crate) unsafe fn depart_later(&self, socket: RawFd, state: &Rc<ConnectionState>, reply: &[u8]) {
        // SAFETY: by contract.
        let is_first = unsafe { self.reply_batch.borrow_mut().add(socket, state, reply, self.answered_ns.get()) };
        if is_first {
            self.has_reply_batch.notify_one();
        }
    }

    /// Sends the replies that wait for the end of the round.
    pub(crate) fn depart(&self) {
        self.reply_batch.borrow_mut().leave();
    }

    /// Has replies leave at the end of each round: this is visited after all that were ready when the first was made.
    pub(crate) async fn depart_each_round(&self) {
        loop {
            self.has_reply_batch.notified().await;
            self.depart();
        }
    }

    /// Now, as the header `Date` says it; as late as the last sweep.
    #[inline]
    pub(crate) fn date(&self) -> [u8; DATE_BYTES] {
        self.date.get()
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.connections.borrow().len()
    }

    pub(crate) fn register(self: &Rc<Self>) -> Registration {
        let state = Rc::new(ConnectionState::new(Rc::clone(self)));
        if self.is_draining.get() {
            state.give(Order::Drain);
        }
        let index = self.connections.borrow_mut().insert(Rc::clone(&state));
        self.metrics.connections.increment();
        self.metrics.connections_open.increment();
        Registration { state, index }
    }

    /// Advances time by one tick and ends what has taken too long.
    pub(crate) fn sweep(&self) {
        let tick = self.tick.get().wrapping_add(1);
        self.tick.set(tick);
        self.date.set(date());
        let mut is_parking = false;
        for (_, state) in self.connections.borrow().iter() {
            if let Some(order) = state.inspect(tick) {
                is_parking |= order == Order::Park;
                state.give(order);
            }
        }
        self.release(tick, is_parking);
    }

    /// Lets the allocator give memory back once the parking has come to a rest, so that this costs
    /// once for many connections.
    fn release(&self, tick: u32, is_parking: bool) {
        let Some(release_memory) = self.front.options.release_memory else {
            return;
        };
        if is_parking {
            self.release_at.set(Some(tick.wrapping_add(RELEASE_TICKS)));
        } else if self.release_at.get() == Some(tick) {
            self.release_at.set(None);
            release_memory();
        }
    }

    /// Tells every connection to end once its requests are answered, and those to come.
    pub(crate) fn drain(&self) {
        self.is_draining.set(true);
        self.give_all(|| Order::Drain);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.get()
    }

    pub(crate) fn give_all(&self, order: impl Fn() -> Order) {
        self.connections.borrow().iter().for_each(|(_, state)| state.give(order()));
    }

    /// Waits until no connection is left.
    pub(crate) async fn emptied(&self) {
        while self.connection_count() > 0 {
            self.is_empty.notified().await;
        }
    }

    /// Claims room for `bytes` of a slow body or reply; `None` when the core has none left.
    pub(crate) fn reserve(self: &Rc<Self>, bytes: usize) -> Option<Reservation> {
        let mut reservation = Reservation { local: Rc::clone(self), bytes: 0 };
        reservation.grow_to(bytes).then_some(reservation)
    }
}

/// Room in [`crate::Limits::buffered_bytes`], given back when dropped.
pub(crate) struct Reservation {
    local: Rc<Local>,
    bytes: usize,
}

impl Reservation {
    /// Makes it `bytes` large, if it was smaller; says whether there is room for that.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let total = self.local.buffered_bytes.get().saturating_add(more);
        let fits = total <= self.local.front.options.limits.buffered_bytes;
        if fits {
            self.local.buffered_bytes.set(total);
            self.bytes += more;
        }
        fits
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.local.buffered_bytes.set(self.local.buffered_bytes.get() - self.bytes);
    }
}

/// A connection's place in its core's list, given back when dropped.
pub(crate) struct Registration {
    pub(crate) state: Rc<ConnectionState>,
    index: usize,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let local = &self.state.local;
        drop(local.connections.borrow_mut().try_remove(self.index));
        local.metrics.connections_open.decrement();
        if local.connection_count() == 0 {
            local.is_empty.notify_waiters();
            local.is_empty.notify_one();
        }
    }
}
