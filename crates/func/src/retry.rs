//! When something that failed is tried again.

use millrace_base::limits;

/// How often something that fails is tried, and with which pauses. Pure: the same attempt waits the same time wherever
/// it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How often it is tried in all; `None` is without end.
    pub attempts: Option<u32>,
    /// The pause after the first attempt. Each further one is twice as long as the one before it.
    pub first_ms: u64,
    /// The longest pause.
    pub longest_ms: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: Some(limits::RETRY_ATTEMPTS),
            first_ms: limits::RETRY_FIRST_MS,
            longest_ms: limits::RETRY_LONGEST_MS,
        }
    }
}

impl RetryPolicy {
    /// The pause after the `attempts`-th failure.
    #[must_use]
    pub fn pause_ms(&self, attempts: u32) -> u64 {
        let doublings = attempts.saturating_sub(1).min(63);
        let is_too_long = self.first_ms > self.longest_ms >> doublings;
        if is_too_long { self.longest_ms } else { self.first_ms << doublings }
    }

    /// The same; `None` if that was the last attempt.
    #[must_use]
    pub fn next_pause_ms(&self, attempts: u32) -> Option<u64> {
        self.attempts.is_none_or(|most| attempts < most).then(|| self.pause_ms(attempts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_end_with_the_attempts() {
        let policy = RetryPolicy::default();
        let pauses: Vec<_> = (1..=17).map(|attempts| policy.next_pause_ms(attempts)).collect();
        let doubled = (0..10).map(|doublings| Some(100 << doublings));
        let expected: Vec<_> = doubled.chain([Some(60_000); 5]).chain([None; 2]).collect();
        assert_eq!(pauses, expected);
        let endless = RetryPolicy { attempts: None, first_ms: 0, ..policy };
        assert_eq!((endless.next_pause_ms(u32::MAX), endless.next_pause_ms(1)), (Some(0), Some(0)));
        let odd = RetryPolicy { first_ms: u64::MAX, longest_ms: u64::MAX, ..policy };
        assert_eq!((odd.pause_ms(1), odd.pause_ms(70)), (u64::MAX, u64::MAX));
        assert_eq!(RetryPolicy { first_ms: 9, longest_ms: 5, ..policy }.pause_ms(1), 5);
    }
}
