//! A shard's time: the machine's, but never before what the shard has used.
//!
//! The machine's clock may be set back, and after a failover the next machine's may be behind. Then the shard's time goes on
//! from what it has used, at half the machine's pace. It does so until the clock has caught up.
//! It does not stand still, or a sleep that begins meanwhile would last for all of that.

use millrace_base::UnixMillis;

/// See the module's documentation.
#[derive(Debug)]
pub struct ShardClock {
    /// What it has shown when it last agreed with the machine's clock; first, the time of the shard's last entry.
    base: UnixMillis,
    /// What the monotonic clock showed then. `None`: nobody has looked yet.
    at_ms: Option<u64>,
    /// By how much it was ahead of the machine's clock at the last look.
    lead_ms: u64,
}

impl ShardClock {
    /// A clock that shows no earlier time than this one.
    #[must_use]
    pub fn after(time: UnixMillis) -> Self {
        Self { base: time, at_ms: None, lead_ms: 0 }
    }

    /// The time, when the machine's two clocks show this.
    pub fn look(&mut self, machine: UnixMillis, monotonic_ms: u64) -> UnixMillis {
        let time = self.at(machine, monotonic_ms);
        self.lead_ms = time.0 - machine.0;
        if self.lead_ms > 0 {
            self.at_ms.get_or_insert(monotonic_ms);
        } else {
            (self.base, self.at_ms) = (machine, Some(monotonic_ms));
        }
        time
    }

    /// As [`ShardClock::look`], ahead of it.
    pub(crate) fn at(&self, machine: UnixMillis, monotonic_ms: u64) -> UnixMillis {
        let passed_ms = monotonic_ms.saturating_sub(self.at_ms.unwrap_or(monotonic_ms));
        machine.max(self.base.plus(passed_ms / 2))
    }

    /// By how much it is ahead of the machine's clock when the machine's two clocks show this.
    #[must_use]
    pub fn lead_at_ms(&self, machine: UnixMillis, monotonic_ms: u64) -> u64 {
        self.at(machine, monotonic_ms).0.saturating_sub(machine.0)
    }

    /// By how much it was ahead of the machine's clock at the last look.
    pub(crate) fn lead_ms(&self) -> u64 {
        self.lead_ms
    }

    /// The time of an invocation that began when the machine's clocks showed this. While this clock is ahead, the machine's time
    /// is one that the shard has left behind. The answer stays the same for as long as that lasts.
    pub(crate) fn time_of(&self, machine: UnixMillis, began_ms: u64) -> UnixMillis {
        if self.lead_ms > 0 { self.at(machine, began_ms) } else { machine }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_never_goes_back_and_catches_up_at_half_the_pace() {
        let mut clock = ShardClock::after(UnixMillis(10_000));
        assert_eq!(clock.look(UnixMillis(4_000), 50), UnixMillis(10_000), "the machine is six seconds behind");
        assert_eq!(clock.time_of(UnixMillis(4_000), 40), UnixMillis(10_000));
        assert_eq!(clock.look(UnixMillis(5_000), 1_050), UnixMillis(10_500));
        clock.look(UnixMillis(11_000), 7_050);
        assert_eq!(
            clock.time_of(UnixMillis(11_000), 7_050),
            UnixMillis(13_500),
            "the machine is past the time it was set back at"
        );
        assert_eq!(clock.look(UnixMillis(15_999), 12_049), UnixMillis(15_999), "it has caught up");
        assert_eq!(clock.time_of(UnixMillis(15_000), 11_050), UnixMillis(15_000), "as it came");
        assert_eq!(clock.look(UnixMillis(16_999), 13_049), UnixMillis(16_999));

        assert_eq!(
            clock.look(UnixMillis(1_000), 13_149),
            UnixMillis(17_049),
            "somebody has set the machine's clock back"
        );
        assert_eq!(clock.look(UnixMillis(1_001), 13_150), UnixMillis(17_049));
        assert_eq!(clock.look(UnixMillis(1_002), 13_151), UnixMillis(17_050));
    }

    #[test]
    fn it_says_how_far_it_is_ahead_without_a_look() {
        let mut clock = ShardClock::after(UnixMillis(10_000));
        clock.look(UnixMillis(4_000), 50);
        assert_eq!(clock.lead_at_ms(UnixMillis(4_000), 50), 6_000);
        assert_eq!(clock.lead_at_ms(UnixMillis(8_000), 4_050), 4_000);
        assert_eq!(clock.lead_at_ms(UnixMillis(16_000), 12_050), 0, "it has caught up");
        assert_eq!(clock.lead_at_ms(UnixMillis(20_000), 16_050), 0);
    }

    #[test]
    fn many_looks_do_not_hold_it_up() {
        let mut clock = ShardClock::after(UnixMillis(10_000));
        for passed_ms in 0..=1_000 {
            clock.look(UnixMillis(passed_ms), passed_ms);
        }
        assert_eq!(clock.at(UnixMillis(1_000), 1_000), UnixMillis(10_500));
    }

    #[test]
    fn a_shard_that_was_never_used_has_the_machines_time() {
        let mut clock = ShardClock::after(UnixMillis(0));
        assert_eq!(clock.look(UnixMillis(7), 1), UnixMillis(7));
        assert_eq!(clock.time_of(UnixMillis(5), 0), UnixMillis(5));
    }
}
