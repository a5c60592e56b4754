//! The simulated time.

use std::sync::atomic::{AtomicU64, Ordering};

use millrace_io::Clock;

/// A clock that the simulator moves.
#[derive(Debug, Default)]
pub struct SimClock {
    now_ms: AtomicU64,
    passed_ms: AtomicU64,
    /// No shard shows a later time.
    latest_ms: AtomicU64,
}

impl SimClock {
    /// A clock that shows `now_ms`.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        let at = || AtomicU64::new(now_ms);
        Self { now_ms: at(), passed_ms: at(), latest_ms: at() }
    }

    /// Moves it forward.
    pub fn advance(&self, milliseconds: u64) {
        self.now_ms.fetch_add(milliseconds, Ordering::Relaxed);
        self.passed_ms.fetch_add(milliseconds, Ordering::Relaxed);
        // Where this clock was set back, a shard's goes on at half its pace.
        self.latest_ms.fetch_add(milliseconds / 2 + 1, Ordering::Relaxed);
        self.latest_ms.fetch_max(self.now(), Ordering::Relaxed);
    }

    /// Somebody corrects it: it shows a later time.
    pub fn set_forward(&self, milliseconds: u64) {
        self.now_ms.fetch_add(milliseconds, Ordering::Relaxed);
        self.latest_ms.fetch_max(self.now(), Ordering::Relaxed);
    }

    /// The latest time that any shard may show.
    #[must_use]
    pub fn latest(&self) -> u64 {
        self.latest_ms.load(Ordering::Relaxed)
    }

    /// Somebody corrects it: it shows an earlier time.
    pub fn set_back(&self, milliseconds: u64) {
        self.now_ms.fetch_sub(milliseconds, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    fn monotonic_ns(&self) -> u64 {
        self.passed_ms.load(Ordering::Relaxed) * 1_000_000
    }
}
