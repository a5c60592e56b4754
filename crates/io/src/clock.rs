//! Time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// The wall clock and a clock that only moves forward.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01T00:00:00Z. May jump either way when somebody sets the clock.
    fn now(&self) -> u64;

    /// Nanoseconds since some fixed instant; never goes back. For measuring durations. It goes on while the machine sleeps: a
    /// lease must not outlive that.
    fn monotonic_ns(&self) -> u64;
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealClock;

impl Clock for RealClock {
    fn now(&self) -> u64 {
        // A clock set before 1970 reads as 1970.
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
    }

    fn monotonic_ns(&self) -> u64 {
        read_ns(ClockId::Boottime)
    }
}

/// The machine's clocks, ahead by as much as a test has asked for. Both move together, and never back.
#[derive(Debug)]
pub struct TestClock {
    ahead_ms: AtomicU64,
}

impl TestClock {
    /// The most that a clock is ahead: a hundred years.
    pub const LONGEST_MS: u64 = 100 * 365 * 24 * 60 * 60 * 1000;

    /// A clock that is ahead from the start. `None`: by too much.
    #[must_use]
    pub fn ahead_by(ahead_ms: u64) -> Option<Self> {
        (ahead_ms <= Self::LONGEST_MS).then(|| Self { ahead_ms: AtomicU64::new(ahead_ms) })
    }

    /// Moves it further ahead. Gives by how much it is ahead then; `None`, and it stays, where that would be too much.
    pub fn advance(&self, by_ms: u64) -> Option<u64> {
        let further = |ahead_ms: u64| ahead_ms.checked_add(by_ms).filter(|sum| *sum <= Self::LONGEST_MS);
        let before = self.ahead_ms.fetch_update(Ordering::AcqRel, Ordering::Acquire, further).ok()?;
        further(before)
    }

    /// By how much it is ahead.
    pub fn ahead_ms(&self) -> u64 {
        self.ahead_ms.load(Ordering::Acquire)
    }
}

impl Clock for TestClock {
    fn now(&self) -> u64 {
        RealClock.now().saturating_add(self.ahead_ms())
    }

    fn monotonic_ns(&self) -> u64 {
        RealClock.monotonic_ns().saturating_add(self.ahead_ms().saturating_mul(1_000_000))
    }
}

/// CPU time of the calling thread in nanoseconds. This is a system call. Use it where the wall clock would blame a
/// thread for the time in which it was preempted.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read_ns(ClockId::ThreadCPUTime)
}

/// Asks the system directly: a request reads the time several times, and `Instant` costs three times as much.
fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_is_in_milliseconds_and_the_other_never_goes_back() {
        let year_2020_ms = 1_577_836_800_000;
        let year_2200_ms = 7_258_118_400_000;
        assert!((year_2020_ms..year_2200_ms).contains(&RealClock.now()));
        let first = RealClock.monotonic_ns();
        assert!(RealClock.monotonic_ns() >= first);
    }

    #[test]
    fn a_test_moves_both_clocks_ahead_and_never_too_far() {
        let hour_ms = 3_600_000;
        let clock = TestClock::ahead_by(hour_ms).expect("not too far");
        assert!(clock.now() >= RealClock.now() + hour_ms - 1_000);
        let (now, monotonic_ns) = (clock.now(), clock.monotonic_ns());
        assert_eq!(clock.advance(hour_ms), Some(2 * hour_ms));
        assert!(clock.now() >= now + hour_ms);
        assert!(clock.monotonic_ns() >= monotonic_ns + hour_ms * 1_000_000);
        for too_far in [TestClock::LONGEST_MS, u64::MAX] {
            assert_eq!((clock.advance(too_far), clock.ahead_ms()), (None, 2 * hour_ms));
        }
        assert_eq!(clock.advance(TestClock::LONGEST_MS - 2 * hour_ms), Some(TestClock::LONGEST_MS));
        let before_ns = clock.monotonic_ns();
        assert!(clock.monotonic_ns() >= before_ns && before_ns < u64::MAX, "it goes on");
        assert!(TestClock::ahead_by(TestClock::LONGEST_MS + 1).is_none());
    }
}
