//! The counts of one thread between two whole seconds.

use hdrhistogram::Histogram;

use super::expectation::Verdict;
use super::report::ErrorCounts;

/// Latencies are kept in nanoseconds from 0.1 µs to an hour, with three digits.
const LOWEST_NS: u64 = 100;
const HIGHEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// Which part of the run a slice belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Period {
    WarmUp(u32),
    Measured(u32),
    /// After the end: replies to requests sent before it.
    Drain,
}

/// Ways a request can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Connect,
    Reset,
    Closed,
    Timeout,
    Malformed,
}

/// The counts of one thread in one period.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    pub right: u64,
    pub shed: u64,
    /// Replies after the end of an open loop.
    pub late: u64,
    pub errors: ErrorCounts,
    /// Connections made again after the server closed them between requests.
    pub reconnects: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Answers by status; few different ones.
    pub statuses: Vec<(u16, u64)>,
    /// Latencies of right replies.
    pub latency: Histogram<u64>,
    /// Open loop, at the end: requests that were never sent, or never answered.
    pub unsent: u64,
    pub unanswered: u64,
    /// The first thing that went wrong, for a person.
    pub first_error: Option<String>,
}

impl Slice {
    pub(super) fn new() -> Self {
        let latency = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS)
            .expect("the bounds are constants that a histogram accepts");
        Self {
            right: 0,
            shed: 0,
            late: 0,
            errors: ErrorCounts::default(),
            reconnects: 0,
            bytes_read: 0,
            bytes_written: 0,
            statuses: Vec::new(),
            latency,
            unsent: 0,
            unanswered: 0,
            first_error: None,
        }
    }

    /// Takes the counts and leaves an empty slice.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new())
    }

    pub(super) fn record(&mut self, verdict: Verdict, status: u16, latency_ns: u64) {
        match self.statuses.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += 1,
            None => self.statuses.push((status, 1)),
        }
        match verdict {
            Verdict::Right => {
                self.right += 1;
                self.latency.saturating_record(latency_ns);
            }
            Verdict::Shed => self.shed += 1,
            Verdict::WrongStatus => self.errors.status += 1,
            Verdict::WrongBody => self.errors.body += 1,
        }
    }

    pub(super) fn fail(&mut self, failure: Failure, requests: u64) {
        let count = match failure {
            Failure::Connect => &mut self.errors.connect,
            Failure::Reset => &mut self.errors.reset,
            Failure::Closed => &mut self.errors.closed,
            Failure::Timeout => &mut self.errors.timeout,
            Failure::Malformed => &mut self.errors.malformed,
        };
        *count += requests.max(1);
    }

    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.first_error.is_none() {
            self.first_error = Some(text());
        }
    }

    /// Replies of any kind.
    pub(super) fn answered(&self) -> u64 {
        self.right + self.shed + self.errors.status + self.errors.body
    }

    pub(super) fn add(&mut self, other: &Slice) {
        self.right += other.right;
        self.shed += other.shed;
        self.errors.add(&other.errors);
        self.reconnects += other.reconnects;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        for (status, count) in &other.statuses {
            match self.statuses.iter_mut().find(|(known, _)| known == status) {
                Some((_, known)) => *known += count,
                None => self.statuses.push((*status, *count)),
            }
        }
        self.latency.add(&other.latency).expect("all histograms have the same bounds");
        self.unsent += other.unsent;
        self.unanswered += other.unanswered;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
    }

    /// Adds replies after the end. They count for latency and errors, not for the rate.
    pub(super) fn add_late(&mut self, late: &Slice) {
        let (right, shed) = (self.right, self.shed);
        let (read, written) = (self.bytes_read, self.bytes_written);
        self.add(late);
        self.late += late.right + late.shed;
        (self.right, self.shed) = (right, shed);
        (self.bytes_read, self.bytes_written) = (read, written);
    }
}
