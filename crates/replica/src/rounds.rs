//! Rounds of heartbeats. An answer repeats the round that it answers. So a round that a majority has answered proves that
//! this node was the owner when the round began, and a lease runs from there.

use std::collections::VecDeque;

/// The rounds of one reign.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rounds {
    current: u64,
    /// When rounds began that may still give a lease.
    began: VecDeque<(u64, u64)>,
}

impl Rounds {
    /// The last round that has begun; 0 before the first.
    pub fn current(&self) -> u64 {
        self.current
    }

    /// Begins the next round. Rounds that began over `lease_ns` ago are forgotten.
    pub fn begin(&mut self, now_ns: u64, lease_ns: u64) {
        self.current += 1;
        while self.began.front().is_some_and(|(_, began_ns)| began_ns.saturating_add(lease_ns) <= now_ns) {
            self.began.pop_front();
        }
        self.began.push_back((self.current, now_ns));
    }

    /// When the last round began.
    pub fn last_began_ns(&self) -> Option<u64> {
        self.began.back().map(|(_, began_ns)| *began_ns)
    }

    /// When a round began, if it may still give a lease.
    pub fn began_ns(&self, round: u64) -> Option<u64> {
        self.began.iter().find(|(number, _)| *number == round).map(|(_, began_ns)| *began_ns)
    }
}
