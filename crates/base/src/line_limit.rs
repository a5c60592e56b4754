//! How many lines of one kind may come into the log.
//!
//! What fails once often fails a thousand times, and an attacker may cause it on purpose. A reader of the log needs to
//! see the failure and its reason, but not a log full of them. So a limit lets some lines through in a window of time,
//! and counts the lines that it holds back.

/// At most so many lines in a window, which begins with its first line.
#[derive(Clone, Debug)]
pub struct LineLimit {
    lines: u32,
    /// In the unit of the times given to [`LineLimit::take`].
    window: u64,
    began: Option<u64>,
    said: u32,
    unsaid: u64,
}

impl LineLimit {
    /// Allows `lines` in each `window`, which is in the unit of the times given later.
    #[must_use]
    pub const fn new(lines: u32, window: u64) -> Self {
        Self { lines, window, began: None, said: 0, unsaid: 0 }
    }

    /// Call this when there is a line to write. `Some` says to write it, and how many lines before it were held back.
    pub fn take(&mut self, now: u64) -> Option<u64> {
        // The clock may also be set back.
        let is_within = |began: u64| now >= began && now - began < self.window;
        if !self.began.is_some_and(is_within) {
            (self.began, self.said) = (Some(now), 0);
        }
        if self.said >= self.lines {
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
    fn a_line_a_window_and_how_many_it_stands_for() {
        const WINDOW: u64 = 1_000_000_000;
        let mut limit = LineLimit::new(1, WINDOW);
        assert_eq!(limit.take(5), Some(0));
        for later in 1..=3 {
            assert_eq!(limit.take(5 + later * WINDOW / 4), None);
        }
        assert_eq!(limit.take(5 + WINDOW), Some(3));
        assert_eq!(limit.take(6 + WINDOW), None);
        assert_eq!(limit.take(6 + 9 * WINDOW), Some(1));
    }
}
