//! Which shards some part of a log holds, and their first and last LSNs there.

use millrace_base::{Lsn, ShardId};

/// A shard's entries in some part of a log: the lowest and the highest LSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardRange {
    /// The shard.
    pub shard: ShardId,
    /// Its lowest LSN there.
    pub first: Lsn,
    /// Its highest LSN there.
    pub last: Lsn,
}

/// The newest base of each replicated shard in some part of a log: the position before the first entry that it says can
/// be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bases(Vec<(ShardId, Lsn)>);

impl Bases {
    pub(crate) fn note(&mut self, shard: ShardId, base: Lsn) {
        match self.0.iter_mut().find(|(known, _)| *known == shard) {
            Some(known) => known.1 = base,
            None => self.0.push((shard, base)),
        }
    }

    pub(crate) fn merge(&mut self, other: &Bases) {
        for (shard, base) in other.iter() {
            self.note(shard, base);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ShardId, Lsn)> {
        self.0.iter().copied()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The ranges of all shards that occur, in order of first occurrence. Adding an entry is one array access. Clearing
/// costs only the shards that occurred.
#[derive(Clone, Debug, Default)]
pub(crate) struct Positions {
    /// By shard: one more than its index in `ranges`, or 0.
    slots: Vec<u32>,
    ranges: Vec<ShardRange>,
}

impl Positions {
    pub(crate) fn note(&mut self, shard: ShardId, lsn: Lsn) {
        self.widen(ShardRange { shard, first: lsn, last: lsn });
    }

    /// The shard occurs, without an entry.
    pub(crate) fn touch(&mut self, shard: ShardId) {
        self.widen(ShardRange { shard, first: Lsn(u64::MAX), last: Lsn::ZERO });
    }

    fn widen(&mut self, range: ShardRange) {
        let index = usize::from(range.shard.0);
        if index >= self.slots.len() {
            self.slots.resize(index + 1, 0);
        }
        match self.slots[index] {
            0 => {
                self.ranges.push(range);
                // One range a shard, and shards are u16.
                self.slots[index] = self.ranges.len() as u32;
            }
            slot => {
                let known = &mut self.ranges[slot as usize - 1];
                known.first = known.first.min(range.first);
                known.last = known.last.max(range.last);
            }
        }
    }

    pub(crate) fn merge(&mut self, other: &Positions) {
        for range in &other.ranges {
            self.widen(*range);
        }
    }

    pub(crate) fn clear(&mut self) {
        for range in self.ranges.drain(..) {
            self.slots[usize::from(range.shard.0)] = 0;
        }
    }

    pub(crate) fn ranges(&self) -> &[ShardRange] {
        &self.ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_widen_and_are_forgotten() {
        let mut positions = Positions::default();
        for (shard, lsn) in [(7, 3), (0, 9), (7, 4)] {
            positions.note(ShardId(shard), Lsn(lsn));
        }
        let range = |shard, first, last| ShardRange { shard: ShardId(shard), first: Lsn(first), last: Lsn(last) };
        assert_eq!(positions.ranges(), [range(7, 3, 4), range(0, 9, 9)]);
        let mut all = Positions::default();
        all.note(ShardId(0), Lsn(12));
        all.merge(&positions);
        assert_eq!(all.ranges(), [range(0, 9, 12), range(7, 3, 4)]);
        positions.clear();
        positions.touch(ShardId(7));
        positions.note(ShardId(7), Lsn(5));
        assert_eq!(positions.ranges(), [range(7, 5, 5)]);
    }
}
