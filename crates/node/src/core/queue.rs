//! What waits for its core: requests that were read, and the admissions of those that were not.
//!
//! Promises: the oldest first, whichever it is, and an age counts from when the node noticed the request, not from when it
//! was read or passed on. Must not know what requests ask for.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use millrace_api::Admission;
use millrace_base::limits;
use millrace_shard::Token;

use crate::core::Job;
use crate::core::admissions::Admissions;

/// How long the core works before it looks for new input.
pub(crate) const ROUND_NS: u64 = 2_000_000;

/// Requests that are read though they have to wait. Read, a request costs its connection one visit less; but when it
/// runs, what was read is no longer in the core's cache if many were read meanwhile. Measured with all of them busy,
/// against no bound, 256 to 1,024: at 1,000 connections logins take 12 % less CPU with up to 800 and no less with 1,024;
/// durable calls take some 5 % more with up to 512 and no more from 800. At 4,096, reads of records take 28 % less, logins
/// and durable calls 10 to 20 %, with any of them.
const READ_AHEAD: usize = 800;

/// A request that was read.
pub(crate) struct Queued {
    /// The monotonic nanosecond since which it waits.
    pub since_ns: u64,
    pub job: Job,
    pub token: Token,
}

pub(crate) struct Queue {
    read: VecDeque<Queued>,
    unread: Admissions,
    /// How long a request may wait.
    longest_ns: u64,
    /// When the present round began; `None` before its first request.
    round_began_ns: Option<u64>,
    /// Since when the request waits that is being read, if it had to.
    called_since_ns: Option<u64>,
}

impl Queue {
    pub(crate) fn new(longest_ms: u64) -> Self {
        Self {
            read: VecDeque::new(),
            unread: Admissions::default(),
            longest_ns: longest_ms.saturating_mul(1_000_000),
            round_began_ns: None,
            called_since_ns: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.read.len() + self.unread.len()
    }

    /// How many of them were read.
    pub(crate) fn read_count(&self) -> usize {
        self.read.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.read.is_empty() && self.unread.is_empty()
    }

    pub(crate) fn begin_round(&mut self, now_ns: u64) -> bool {
        let is_first = self.round_began_ns.is_none();
        self.round_began_ns.get_or_insert(now_ns);
        is_first
    }

    pub(crate) fn end_round(&mut self) {
        self.round_began_ns = None;
        self.called_since_ns = None;
    }

    /// Whether the request that is handed over now had to wait before it was read.
    pub(crate) fn is_called(&self) -> bool {
        self.called_since_ns.is_some()
    }

    /// Since when it had to, told once.
    pub(crate) fn take_called_since_ns(&mut self) -> Option<u64> {
        self.called_since_ns.take()
    }

    /// Whether a request may run as it comes: the round is not over, and nobody waits that came before it.
    pub(crate) fn has_turn(&self, is_called: bool, now_ns: u64) -> bool {
        let round_began_ns = self.round_began_ns.unwrap_or(now_ns);
        self.read.is_empty() && (is_called || self.unread.is_empty()) && now_ns - round_began_ns < ROUND_NS
    }

    /// Whether a request that waits since then has waited for too long.
    pub(crate) fn is_late(&self, since_ns: u64, now_ns: u64) -> bool {
        now_ns.saturating_sub(since_ns) > self.longest_ns
    }

    /// Since when the oldest waits, with one more that waits since `since_ns`.
    pub(crate) fn oldest_ns(&self, since_ns: u64) -> u64 {
        let read_ns = self.read.front().map_or(since_ns, |queued| queued.since_ns);
        since_ns.min(read_ns).min(self.unread.since_ns().unwrap_or(since_ns))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.read.len() >= limits::QUEUE_REQUESTS
    }

    pub(crate) fn push(&mut self, queued: Queued) {
        let index = self.read.partition_point(|other| other.since_ns <= queued.since_ns);
        self.read.insert(index, queued);
    }

    /// The oldest request that was read. Those that wait unread for longer are called first, as many as may be.
    pub(crate) fn pop(&mut self) -> Option<Queued> {
        let read_ns = self.read.front().map_or(u64::MAX, |queued| queued.since_ns);
        while self.unread.since_ns().is_some_and(|since_ns| since_ns < read_ns) && self.unread.call() {}
        self.read.pop_front()
    }

    /// Waits until a request that has come should be read; see [`millrace_api::Backend::poll_admission`]. `now_ns` is asked
    /// for only where it matters.
    pub(crate) fn poll_admission(
        &mut self,
        admission: &mut Option<Admission>,
        context: &Context<'_>,
        now_ns: impl FnOnce() -> u64,
    ) -> Poll<()> {
        self.called_since_ns = None;
        if let Some(waiting) = admission {
            ready!(self.unread.poll(waiting, context));
            self.called_since_ns = Some(waiting.since_ns);
            *admission = None;
            return Poll::Ready(());
        }
        if self.unread.is_empty() && self.read.len() < READ_AHEAD {
            return Poll::Ready(());
        }
        let now_ns = now_ns();
        if self.is_late(self.oldest_ns(now_ns), now_ns) {
            // To be refused, which it should hear at once.
            return Poll::Ready(());
        }
        *admission = Some(self.unread.ask(now_ns, context));
        Poll::Pending
    }

    pub(crate) fn withdraw(&mut self, admission: &Admission) {
        self.unread.withdraw(admission);
    }
}
