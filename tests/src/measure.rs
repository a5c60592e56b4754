//! Latencies, and sizes of tests that the environment may change.

use std::ops::Add;
use std::path::Path;
use std::time::Duration;

/// The latencies of requests.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// Adds one latency.
    pub fn add(&mut self, latency: Duration) {
        self.0.push(latency);
    }

    /// Adds the latencies of another thread.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.extend_from_slice(&other.0);
    }

    /// The number of latencies.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The latency that `fraction` of the requests did not exceed.
    #[must_use]
    pub fn quantile(&self, fraction: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let index = (sorted.len() as f64 * fraction).ceil() as usize;
        sorted.get(index.saturating_sub(1)).copied().unwrap_or_default()
    }
}

/// The share of the CPUs that some threads got.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuUse {
    /// How long the threads ran.
    pub ran: Duration,
    /// How long the threads could have run while others had their CPU.
    pub waited: Duration,
}

impl CpuUse {
    /// The share of one thread so far, or `None` once it has ended.
    ///
    /// # Panics
    /// When the kernel does not say.
    pub(crate) fn of_thread(folder: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(folder.join("schedstat")).ok()?;
        let mut numbers = text.split_whitespace().map(|number| number.parse().map(Duration::from_nanos));
        let mut next = || numbers.next().expect("a number").expect("nanoseconds");
        Some(Self { ran: next(), waited: next() })
    }

    /// The share of the calling thread so far.
    ///
    /// # Panics
    /// When the kernel does not say.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self::of_thread(Path::new("/proc/thread-self")).expect("it runs")
    }

    /// The share since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { ran: self.ran.saturating_sub(earlier.ran), waited: self.waited.saturating_sub(earlier.waited) }
    }

    /// The factor by which the work took longer than on CPUs of its own. It shows what the machine is short of. Work
    /// that takes too much CPU time by itself does not make it greater.
    #[must_use]
    pub fn stretch(self) -> f64 {
        if self.ran.is_zero() { 1.0 } else { 1.0 + self.waited.as_secs_f64() / self.ran.as_secs_f64() }
    }
}

impl Add for CpuUse {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { ran: self.ran + other.ran, waited: self.waited + other.waited }
    }
}

/// A number from the environment, or the number for a normal run.
///
/// # Panics
/// When the variable is not a number.
#[must_use]
pub fn number_from_env(name: &str, normal: usize) -> usize {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => normal,
    }
}
