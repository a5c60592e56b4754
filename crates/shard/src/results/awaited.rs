//! Who waits for the results of workflows.
//!
//! This is in memory only, and may be forgotten: whoever waits asks again.

use std::collections::{BTreeMap, BTreeSet};

use millrace_base::{ShardId, limits};

use crate::request::Sequence;

/// Who waits: an operation of a workflow of some shard.
pub(crate) type Waiter = (ShardId, Sequence, u32);

/// Who waits for the results of workflows of this shard.
#[derive(Default)]
pub(super) struct AwaitedResults {
    waiters: BTreeMap<Sequence, BTreeSet<Waiter>>,
    count: usize,
    /// Those that have ended and were waited for.
    ended: Vec<Sequence>,
}

impl AwaitedResults {
    /// `waiter` waits for the end of `of`.
    pub(super) fn add(&mut self, of: Sequence, waiter: Waiter) {
        if self.count < limits::RESULT_WAITERS && self.waiters.entry(of).or_default().insert(waiter) {
            self.count += 1;
        }
    }

    pub(super) fn ended(&mut self, id: Sequence) {
        if self.waiters.contains_key(&id) {
            self.ended.push(id);
        }
    }

    /// The next workflow that has ended, and who waited for it.
    pub(super) fn next(&mut self) -> Option<(Sequence, BTreeSet<Waiter>)> {
        let id = self.ended.pop()?;
        let waiters = self.waiters.remove(&id).unwrap_or_default();
        self.count -= waiters.len();
        Some((id, waiters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(operation: u32) -> Waiter {
        (ShardId(1), Sequence::default(), operation)
    }

    #[test]
    fn whoever_waits_is_told_once_and_no_more_wait_than_may() {
        let [awaited, other] = [1, 2].map(|index| Sequence { index, ..Sequence::default() });
        let mut waiting = AwaitedResults::default();
        for operation in [1, 2, 1] {
            waiting.add(awaited, waiter(operation));
        }
        waiting.ended(other);
        assert_eq!(waiting.next(), None, "nobody waits for that one");
        waiting.ended(awaited);
        waiting.ended(awaited);
        assert_eq!(waiting.next(), Some((awaited, [waiter(1), waiter(2)].into())));
        assert_eq!(waiting.next(), Some((awaited, BTreeSet::new())));
        assert_eq!((waiting.next(), waiting.count), (None, 0));
        for operation in 0..=limits::RESULT_WAITERS as u32 {
            waiting.add(other, waiter(operation));
        }
        assert_eq!(waiting.count, limits::RESULT_WAITERS);
    }
}
