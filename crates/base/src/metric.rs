//! Numbers that a core counts while it works, and that another thread reads now and then.
//!
//! Each metric has one writer: the core that owns it. So an update is a relaxed load and a relaxed store. They cost
//! what plain memory costs: no lock, no read-modify-write, no shared cache line. Readers (a scrape) may run on any
//! thread. They see every value some time after it was written, and may see one metric newer than another. Two writers
//! at once would lose counts, but never add any. The exporter sums the metrics of all cores.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `amount`; wraps around after 2^64.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// Adds one.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// The present value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that grows and shrinks.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// A gauge at zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Replaces the value.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Adds one.
    #[inline]
    pub fn increment(&self) {
        self.set(self.get().saturating_add(1));
    }

    /// Takes one away, but not below zero.
    #[inline]
    pub fn decrement(&self) {
        self.set(self.get().saturating_sub(1));
    }

    /// The present value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Each power of two is cut into 2^2 buckets of equal width. So a bucket is at most a quarter wider than the values in
/// it. A quantile read from it is at most 25 % too high.
const SUB_BITS: u32 = 2;
const SUB_COUNT: usize = 1 << SUB_BITS;

/// Buckets of a [`Histogram`]: enough for every `u64`.
pub const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB_COUNT;

/// The distribution of whole numbers (nanoseconds, bytes, sizes) in log-linear buckets.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU64; BUCKETS]>,
    sum: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram: 2 KiB.
    #[must_use]
    pub fn new() -> Self {
        Self { buckets: Box::new([const { AtomicU64::new(0) }; BUCKETS]), sum: AtomicU64::new(0) }
    }

    /// Counts `value`.
    #[inline]
    pub fn record(&self, value: u64) {
        let bucket = &self.buckets[bucket_of(value)];
        bucket.store(bucket.load(Relaxed).wrapping_add(1), Relaxed);
        self.sum.store(self.sum.load(Relaxed).wrapping_add(value), Relaxed);
    }

    /// Adds the counts so far to `snapshot`.
    pub fn add_to(&self, snapshot: &mut HistogramSnapshot) {
        for (sum, bucket) in snapshot.counts.iter_mut().zip(self.buckets.iter()) {
            *sum = sum.wrapping_add(bucket.load(Relaxed));
        }
        snapshot.sum = snapshot.sum.wrapping_add(self.sum.load(Relaxed));
    }
}

/// The counts of one or several [`Histogram`]s at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    counts: Box<[u64; BUCKETS]>,
    sum: u64,
}

impl Default for HistogramSnapshot {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), sum: 0 }
    }
}

/// Bounds of exported buckets: powers of two nanoseconds, from about 1 µs to about 17 s.
const EXPORTED_EXPONENTS: std::ops::RangeInclusive<u32> = 10..=34;

impl HistogramSnapshot {
    /// How many values were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// The sum of all values, modulo 2^64.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// (largest value of the bucket, values in it), in order, empty buckets included.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().enumerate().map(|(index, count)| (upper_bound(index), *count))
    }

    /// How many values are at most `bound`. `bound` should be one less than a power of two. For other bounds, a bucket
    /// with values on both sides counts as above.
    #[must_use]
    pub fn count_up_to(&self, bound: u64) -> u64 {
        self.buckets().take_while(|(upper, _)| *upper <= bound).map(|(_, count)| count).sum()
    }

    /// The buckets of times in nanoseconds, as a scrape shows them: (bound in seconds, values in the bucket). The finer
    /// ones stay inside: 26 lines are enough for a scrape.
    #[must_use]
    pub fn exported_seconds(&self) -> Vec<(f64, u64)> {
        let mut buckets = Vec::with_capacity(EXPORTED_EXPONENTS.count() + 1);
        let mut below = 0;
        for exponent in EXPORTED_EXPONENTS {
            let bound = 1u64 << exponent;
            let up_to = self.count_up_to(bound - 1);
            buckets.push((bound as f64 / 1e9, up_to - below));
            below = up_to;
        }
        buckets.push((f64::INFINITY, self.count() - below));
        buckets
    }

    /// An upper bound, at most 25 % too high, of the value below which the share `quantile` (0 to 1) of all values
    /// lies. 0 if there are no values.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> u64 {
        let total = self.count();
        if total == 0 {
            return 0;
        }
        let wanted = ((total as f64) * quantile.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0u64;
        for (upper, count) in self.buckets() {
            seen = seen.saturating_add(count);
            if seen >= wanted {
                return upper;
            }
        }
        u64::MAX
    }
}

#[inline]
fn bucket_of(value: u64) -> usize {
    if value < SUB_COUNT as u64 {
        return value as usize;
    }
    let exponent = 63 - value.leading_zeros();
    let sub = (value >> (exponent - SUB_BITS)) as usize & (SUB_COUNT - 1);
    (exponent - SUB_BITS + 1) as usize * SUB_COUNT + sub
}

/// The largest value that falls into the bucket.
fn upper_bound(index: usize) -> u64 {
    if index < SUB_COUNT {
        return index as u64;
    }
    let shift = (index / SUB_COUNT - 1) as u32;
    let start = ((SUB_COUNT + index % SUB_COUNT) as u64) << shift;
    start + ((1u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_bucket_ends_where_the_next_begins() {
        for index in 0..BUCKETS {
            let upper = upper_bound(index);
            assert_eq!(bucket_of(upper), index);
            if index + 1 < BUCKETS {
                assert_eq!(bucket_of(upper + 1), index + 1);
            } else {
                assert_eq!(upper, u64::MAX);
            }
        }
    }

    #[test]
    fn quantiles_are_at_most_a_quarter_too_high() {
        let histogram = Histogram::new();
        for value in 1..=1000 {
            histogram.record(value);
        }
        let mut snapshot = HistogramSnapshot::default();
        histogram.add_to(&mut snapshot);
        assert_eq!(snapshot.count(), 1000);
        assert_eq!(snapshot.sum(), 500_500);
        assert_eq!(snapshot.count_up_to(511), 511);
        for (quantile, exact) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let read = snapshot.quantile(quantile);
            assert!(read >= exact && read <= exact * 5 / 4, "{quantile}: {read}");
        }
        histogram.add_to(&mut snapshot);
        assert_eq!(snapshot.count(), 2000, "snapshots add up over cores");
    }

    #[test]
    fn counters_and_gauges_count() {
        let (counter, gauge) = (Counter::new(), Gauge::new());
        counter.add(5);
        counter.increment();
        gauge.decrement();
        gauge.increment();
        assert_eq!((counter.get(), gauge.get()), (6, 1));
        assert_eq!(HistogramSnapshot::default().quantile(0.5), 0);
    }

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket(value in any::<u64>()) {
            let index = bucket_of(value);
            prop_assert!(value <= upper_bound(index));
            prop_assert!(index == 0 || value > upper_bound(index - 1));
        }
    }
}
