//! Time.

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
}
