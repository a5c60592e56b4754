//! Which core has which shard.

use millrace_base::ShardId;

/// The table shard → core. It is made once, when a node starts, and passed to whoever needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The core of each shard, by the shard's number.
    cores: Box<[u16]>,
    core_count: usize,
}

impl Placement {
    /// Deals the shards out to the cores in turn, so that core *n* has shard *n* if there is one.
    ///
    /// # Panics
    /// When there is no core, or more than 65,536.
    #[must_use]
    pub fn in_turn(shard_count: u16, core_count: usize) -> Self {
        let last = core_count.checked_sub(1).and_then(|last| u16::try_from(last).ok());
        let last = last.expect("a node has 1 to 65,536 cores");
        let cores = (0..=last).cycle().take(usize::from(shard_count)).collect();
        Self { cores, core_count }
    }

    /// The core of a shard. A shard that does not exist counts as core 0's, which then finds that it has none.
    #[must_use]
    pub fn core_of(&self, shard: ShardId) -> usize {
        self.cores.get(usize::from(shard.0)).copied().map_or(0, usize::from)
    }

    /// The shards of a core, in the order of their numbers.
    pub fn shards_of(&self, core: usize) -> impl Iterator<Item = ShardId> + '_ {
        self.shards().filter(move |shard| self.core_of(*shard) == core)
    }

    /// All shards, in the order of their numbers.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.shard_count()).map(ShardId)
    }

    /// How many shards there are.
    #[must_use]
    pub fn shard_count(&self) -> u16 {
        u16::try_from(self.cores.len()).expect("it was made from a u16")
    }

    /// How many cores there are.
    #[must_use]
    pub fn core_count(&self) -> usize {
        self.core_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_has_one_core_and_cores_differ_by_one_shard_at_most() {
        for (shards, cores) in [(1, 1), (5, 2), (64, 3), (2, 4)] {
            let placement = Placement::in_turn(shards, cores);
            let counts: Vec<usize> = (0..cores).map(|core| placement.shards_of(core).count()).collect();
            assert_eq!(counts.iter().sum::<usize>(), usize::from(shards));
            assert!(counts.iter().max().expect("a core") - counts.iter().min().expect("a core") <= 1, "{counts:?}");
            assert!(placement.shards().all(|shard| placement.core_of(shard) == usize::from(shard.0) % cores));
        }
        assert_eq!(Placement::in_turn(2, 2).core_of(ShardId(9)), 0);
    }
}
