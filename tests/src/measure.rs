//! Latencies, and sizes of tests that the environment may change.

use std::time::Duration;

/// How long requests took.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// Adds one.
    pub fn add(&mut self, latency: Duration) {
        self.0.push(latency);
    }

    /// Adds those of another thread.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.extend_from_slice(&other.0);
    }

    /// How many there are.
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

/// A number from the environment, or the one for a normal run.
///
/// # Panics
/// When the variable holds no number.
#[must_use]
pub fn number_from_env(name: &str, normal: usize) -> usize {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => normal,
    }
}
