//! What one client, or all clients of a cell, counted.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::connection::Reply;
use crate::measure::Failure;
use crate::report::ErrorCounts;

/// Times are kept in nanoseconds from 0.1 µs to an hour, with three digits.
const LOWEST_NS: u64 = 100;
const HIGHEST_NS: u64 = 3_600_000_000_000;

/// Where a delayed acknowledgement of the kernel puts a reply: 40 ms, and what the rest of the request takes.
const DELAYED_ACK_NS: std::ops::Range<u64> = 35_000_000..50_000_000;

pub(super) struct Counts {
    pub right: u64,
    pub errors: ErrorCounts,
    /// Of objects, in the direction of the operation.
    pub bytes: u64,
    pub delayed_acks: u64,
    pub reconnects: u64,
    pub first_byte: Histogram<u64>,
    pub total: Histogram<u64>,
    pub first_error: Option<String>,
}

/// Times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// The mean.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// 99 of 100 were at most this long.
    pub p99_us: f64,
    /// 999 of 1000 were at most this long.
    pub p99_9_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Times {
    pub(super) fn of(histogram: &Histogram<u64>) -> Self {
        let us = |ns: f64| ns.round() / 1000.0;
        let at = |quantile| us(histogram.value_at_quantile(quantile) as f64);
        if histogram.is_empty() {
            return Self::default();
        }
        Self { mean_us: us(histogram.mean()), p50_us: at(0.5), p99_us: at(0.99), p99_9_us: at(0.999), max_us: at(1.0) }
    }
}

impl Counts {
    pub(super) fn new() -> Self {
        let histogram =
            || Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, 3).expect("constants that a histogram accepts");
        Self {
            right: 0,
            errors: ErrorCounts::default(),
            bytes: 0,
            delayed_acks: 0,
            reconnects: 0,
            first_byte: histogram(),
            total: histogram(),
            first_error: None,
        }
    }

    pub(super) fn record(&mut self, reply: &Reply, bytes: u64) {
        let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let total = ns(reply.total);
        self.right += 1;
        self.bytes += bytes;
        self.delayed_acks += u64::from(DELAYED_ACK_NS.contains(&total));
        self.first_byte.saturating_record(ns(reply.first_byte));
        self.total.saturating_record(total);
    }

    pub(super) fn fail(&mut self, wrong: Wrong) {
        let errors = &mut self.errors;
        let count = match wrong.kind {
            Kind::Failed(Failure::Connect) => &mut errors.connect,
            Kind::Failed(Failure::Reset) => &mut errors.reset,
            Kind::Failed(Failure::Closed) => &mut errors.closed,
            Kind::Failed(Failure::Timeout) => &mut errors.timeout,
            Kind::Failed(Failure::Malformed) => &mut errors.malformed,
            Kind::Status => &mut errors.status,
            Kind::Body => &mut errors.body,
        };
        *count += 1;
        self.first_error.get_or_insert(wrong.text);
    }

    pub(super) fn add(&mut self, other: Counts) {
        self.right += other.right;
        self.errors.add(&other.errors);
        self.bytes += other.bytes;
        self.delayed_acks += other.delayed_acks;
        self.reconnects += other.reconnects;
        self.first_byte.add(&other.first_byte).expect("all histograms have the same bounds");
        self.total.add(&other.total).expect("all histograms have the same bounds");
        self.first_error = self.first_error.take().or(other.first_error);
    }
}

/// How a request went wrong.
pub(super) enum Kind {
    Failed(Failure),
    Status,
    Body,
}

/// A request that went wrong.
pub(super) struct Wrong {
    pub kind: Kind,
    /// For a person.
    pub text: String,
}
