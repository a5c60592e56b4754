//! What waits for its core: requests that were read, and the admissions of those that were not.
//!
//! Promises: the oldest request runs first. A request's age counts from when the node noticed it, not from when it was read
//! or passed on. Must not know what requests ask for.

use std::collections::VecDeque;

use millrace_api::Admission;
use millrace_base::limits;
use millrace_shard::Token;

use crate::admissions::Admissions;
use crate::message::Job;
use crate::platform::Waiter;

/// How long the core works before it looks for new input.
pub(crate) const ROUND_NS: u64 = 2_000_000;

/// Requests that are read though they have to wait. A request that was read costs its connection one visit less. But if
/// many are read meanwhile, what was read has left the core's cache when the request runs. Measured with 1,000 busy
/// connections against no bound: logins take 12 % less CPU with bounds up to 800, and no less with 1,024. Durable calls
/// take 5 % more with bounds up to 512, and no more from 800. With 4,096 connections every bound from 256 to 1,024
/// saves 28 % for reads of records. For logins and durable calls it saves 10 to 20 %.
pub const READ_AHEAD: usize = 800;

/// When a request came.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The monotonic nanosecond at which it is handed over.
    pub now_ns: u64,
    /// Since when it waited before it was read, if it had to: it was called, and nobody comes before it.
    pub called_since_ns: Option<u64>,
}

impl Arrival {
    /// Since when it waits.
    pub(crate) fn since_ns(self) -> u64 {
        self.called_since_ns.unwrap_or(self.now_ns)
    }
}

/// A request that was read.
pub(crate) struct Queued {
    /// The monotonic nanosecond since which it waits.
    pub since_ns: u64,
    pub job: Job,
    pub token: Token,
}

pub(crate) struct Queue<W> {
    read: VecDeque<Queued>,
    unread: Admissions<W>,
    /// Requests that are read though they have to wait.
    read_ahead: usize,
    /// How long a request may wait.
    longest_ns: u64,
    /// When the present round began; `None` before its first request.
    round_began_ns: Option<u64>,
    /// Since when the request waits that is being read, if it had to.
    called_since_ns: Option<u64>,
}

impl<W: Waiter> Queue<W> {
    pub(crate) fn new(longest_ms: u64, read_ahead: usize) -> Self {
        Self {
            read: VecDeque::new(),
            unread: Admissions::default(),
            read_ahead,
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

    /// Since when the request that is handed over now waited before it was read, if it had to. Told once.
    pub(crate) fn take_called_since_ns(&mut self) -> Option<u64> {
        self.called_since_ns.take()
    }

    /// Whether a request may run as it comes: the round is not over, and nobody waits that came before it.
    pub(crate) fn has_turn(&self, arrival: Arrival) -> bool {
        let Arrival { now_ns, called_since_ns } = arrival;
        let round_began_ns = self.round_began_ns.unwrap_or(now_ns);
        let is_first = called_since_ns.is_some() || self.unread.is_empty();
        self.read.is_empty() && is_first && now_ns - round_began_ns < ROUND_NS
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

    /// Whether a request that has come should be read now; else `waiter` is woken when it should. `now_ns` is asked for only
    /// where it matters.
    pub(crate) fn is_admitted(
        &mut self,
        admission: &mut Option<Admission>,
        waiter: &W,
        now_ns: impl FnOnce() -> u64,
    ) -> bool {
        self.called_since_ns = None;
        if let Some(waiting) = admission {
            if !self.unread.is_called(waiting, waiter) {
                return false;
            }
            self.called_since_ns = Some(waiting.since_ns);
            *admission = None;
            return true;
        }
        if self.unread.is_empty() && self.read.len() < self.read_ahead {
            return true;
        }
        let now_ns = now_ns();
        if self.is_late(self.oldest_ns(now_ns), now_ns) {
            // It will be refused, and should hear so at once.
            return true;
        }
        *admission = Some(self.unread.ask(now_ns, waiter));
        false
    }

    pub(crate) fn withdraw(&mut self, admission: &Admission) {
        self.unread.withdraw(admission);
    }
}
