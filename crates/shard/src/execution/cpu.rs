//! How much CPU time a transaction has used here.
//!
//! The engine says what each turn used; the shard reads no clock. The sum bounds the whole transaction, and tells when it
//! has to let others have a turn. A participant counts what runs of it in its shard, and reports that to the coordinator,
//! which counts it all.

use millrace_base::limits;

/// A participant keeps to itself what is less. A hundredth of the usual limit, and far more than most handlers use.
const REPORTED_NS: u64 = 1_000_000;

/// CPU time of one transaction, or of what runs of it in one shard.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    /// All of it that is known here.
    spent_ns: u64,
    /// Since the transaction last waited or let others have a turn.
    slice_ns: u64,
    /// Of what ran here, what the coordinator has not heard of.
    unreported_ns: u64,
    /// Whether it waits only for the others to have a turn.
    pub has_yielded: bool,
}

impl Cpu {
    /// All of it that is known here.
    pub(crate) fn spent_ns(&self) -> u64 {
        self.spent_ns
    }

    /// A turn of the transaction has ended here.
    pub(crate) fn spend(&mut self, turn_ns: u64) {
        self.add(turn_ns);
        self.slice_ns = self.slice_ns.saturating_add(turn_ns);
        self.unreported_ns = self.unreported_ns.saturating_add(turn_ns);
    }

    /// A participant has used that much.
    pub(crate) fn add(&mut self, elsewhere_ns: u64) {
        self.spent_ns = self.spent_ns.saturating_add(elsewhere_ns);
    }

    /// What the coordinator has to hear, if it is enough to be worth a message.
    pub(crate) fn report(&mut self) -> Option<u64> {
        (self.unreported_ns >= REPORTED_NS).then(|| std::mem::take(&mut self.unreported_ns))
    }

    /// Whether others should have a turn before it goes on.
    pub(crate) fn is_slice_over(&self) -> bool {
        self.slice_ns >= limits::CPU_SLICE_NS
    }

    /// It waits: what it does next is another slice.
    pub(crate) fn end_slice(&mut self) {
        self.slice_ns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_counts_what_is_known_and_the_report_what_is_new() {
        let mut cpu = Cpu::default();
        cpu.spend(REPORTED_NS - 1);
        assert_eq!(cpu.report(), None, "too little to be told");
        cpu.spend(1);
        assert_eq!((cpu.spent_ns(), cpu.report(), cpu.report()), (REPORTED_NS, Some(REPORTED_NS), None));
        cpu.add(REPORTED_NS);
        assert_eq!((cpu.spent_ns(), cpu.report()), (2 * REPORTED_NS, None), "what others used is not its own");
        cpu.spend(u64::MAX);
        assert_eq!(cpu.spent_ns(), u64::MAX);
    }

    #[test]
    fn a_slice_is_what_ran_here_since_it_waited() {
        let mut cpu = Cpu::default();
        cpu.add(limits::CPU_SLICE_NS);
        cpu.spend(limits::CPU_SLICE_NS - 1);
        assert!(!cpu.is_slice_over());
        cpu.spend(1);
        assert!(cpu.is_slice_over());
        cpu.end_slice();
        assert!(!cpu.is_slice_over());
    }
}
