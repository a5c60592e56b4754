//! Whether rows that memory lacks are read on the core, or by a pool beside it.
//!
//! A read that finds its blocks in a cache takes some 10 µs, and the way to the pool and back takes 20. So the core reads by
//! itself as long as that is quick ([`Pace`]). A core that creates entities looks for rows that are not there, and would
//! take twice as long for each with the pool. The shard knows who waits for what.

use millrace_shard::Input;
use millrace_store::{ColdRead, ColdRows};

use crate::core::Core;
use crate::platform::Platform;

/// Reads of the core itself that take longer than this on average are slow: a disk takes twice as long for one block.
const SLOW_NS: u64 = 50_000;

/// What a read counts at most. One that took longer may have waited for the CPU, as happens to one read of many where other
/// programs want it, too.
const LONGEST_NS: u64 = 8 * SLOW_NS;

/// For how long the pool reads then, before the core tries again. So one slow read a second holds it.
const POOL_NS: u64 = 1_000_000_000;

/// How quick the core's own reads are.
struct Pace {
    average_ns: u64,
    pool_until_ns: u64,
}

impl Default for Pace {
    /// The first read decides.
    fn default() -> Self {
        Self { average_ns: SLOW_NS, pool_until_ns: 0 }
    }
}

impl Pace {
    fn is_slow(&self, now_ns: u64) -> bool {
        now_ns < self.pool_until_ns
    }

    fn took(&mut self, duration_ns: u64, now_ns: u64) {
        self.average_ns = self.average_ns - self.average_ns / 16 + duration_ns.min(LONGEST_NS) / 16;
        if self.average_ns > SLOW_NS {
            *self = Self { average_ns: SLOW_NS, pool_until_ns: now_ns + POOL_NS };
        }
    }
}

/// The reads that a core has made beside it.
#[derive(Default)]
pub(crate) struct ColdReads {
    under_way: usize,
    pace: Pace,
}

impl ColdReads {
    pub(crate) fn is_empty(&self) -> bool {
        self.under_way == 0
    }

    /// Reads rows if that is quick, or has the pool read them.
    pub(crate) fn read(&mut self, read: ColdRead, platform: &mut impl Platform) -> Option<ColdRows> {
        let began_ns = platform.monotonic_ns();
        if self.pace.is_slow(began_ns) {
            self.under_way += 1;
            platform.read_rows(read);
            return None;
        }
        let rows = read.read();
        let now_ns = platform.monotonic_ns();
        self.pace.took(now_ns.saturating_sub(began_ns), now_ns);
        Some(rows)
    }
}

impl<P: Platform> Core<P> {
    /// What [`Platform::read_rows`] was to read is there. If its shard is not here any more, nobody waits for it.
    pub fn rows_read(&mut self, rows: ColdRows) {
        self.begin_round();
        self.read_clock();
        self.cold_reads.under_way -= 1;
        self.give(rows.of().0, Input::Rows(rows));
        self.handle_events();
        self.platform.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_reads_while_that_is_quick_and_tries_again_after_a_while() {
        let mut pace = Pace::default();
        assert!(!pace.is_slow(0), "the first read decides");
        for _ in 0..1000 {
            pace.took(10_000, 1);
        }
        assert!(!pace.is_slow(1));
        pace.took(20_000_000, 1);
        assert!(!pace.is_slow(1), "one that waits for its turn on the CPU decides nothing");
        for _ in 0..10 {
            pace.took(150_000, 2);
        }
        assert!(pace.is_slow(3) && pace.is_slow(2 + POOL_NS - 1));
        assert!(!pace.is_slow(2 + POOL_NS));
        pace.took(100_000, 2 + POOL_NS);
        assert!(pace.is_slow(2 + POOL_NS), "one read tells that it is slow yet");
    }
}
