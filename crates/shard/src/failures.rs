//! What a shard says of messages that fail: a line for each attempt, but a bounded number of lines.
//!
//! A handler that always fails is tried sixteen times for each of its messages. Whoever reads the
//! log wants to see that and why, and not have it full of that.

use millrace_base::UnixMillis;

/// Lines in one [`WINDOW_MS`] at most; a node has many shards.
const LINES: u32 = 10;

const WINDOW_MS: u64 = 10_000;

/// Failed attempts, and which of them are told of.
#[derive(Default)]
pub(crate) struct Failures {
    count: u64,
    window_began: UnixMillis,
    said: u32,
    unsaid: u64,
}

impl Failures {
    /// Failed attempts since the start.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Another attempt has failed. If it is to be told of: how many before it were not.
    pub(crate) fn note(&mut self, now: UnixMillis) -> Option<u64> {
        self.count += 1;
        // The clock may be set back, too.
        if now < self.window_began || now >= self.window_began.plus(WINDOW_MS) {
            (self.window_began, self.said) = (now, 0);
        }
        if self.said >= LINES {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_told_of_and_the_others_counted() {
        let mut failures = Failures::default();
        let begin = UnixMillis(1_000_000);
        let told =
            |failures: &mut Failures, now, number| (0..number).filter_map(|_| failures.note(now)).collect::<Vec<_>>();
        assert_eq!(told(&mut failures, begin, 25), [0; LINES as usize]);
        assert_eq!(told(&mut failures, begin.plus(WINDOW_MS - 1), 5), [0; 0]);
        assert_eq!(told(&mut failures, begin.plus(WINDOW_MS), 2), [20, 0]);
        assert_eq!(told(&mut failures, begin, 1), [0], "a clock that was set back silences nobody");
        assert_eq!(failures.count(), 33);
    }
}
