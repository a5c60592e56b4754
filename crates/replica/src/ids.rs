//! What names a node, a reign and an entry.

use std::fmt;

use millrace_base::Lsn;

/// One node of a cluster. A node that lost its identity gets another number, never its old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// The number of one reign over a shard. Each epoch has one owner at most. [`Epoch::NONE`] is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Before the first epoch.
    pub const NONE: Epoch = Epoch(0);
}

impl fmt::Display for Epoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// Names one entry of a shard for ever: the epoch whose owner made it, and its LSN. Two logs that hold entries of the same
/// id hold the same entries up to there. The order is epoch first, then LSN: the log with the higher last id is the one to
/// adopt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// The epoch whose owner made the entry.
    pub epoch: Epoch,
    /// Its position.
    pub lsn: Lsn,
}

impl EntryId {
    /// Before the first entry. Every log holds it.
    pub const ZERO: EntryId = EntryId { epoch: Epoch::NONE, lsn: Lsn::ZERO };

    /// The entry at this position that the owner of `epoch` made.
    #[must_use]
    pub fn new(epoch: Epoch, lsn: Lsn) -> Self {
        Self { epoch, lsn }
    }
}

/// The highest epoch that a replica has promised, and the node that owns it. It refuses everything of lower epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Promised {
    /// The epoch.
    pub epoch: Epoch,
    /// Its only owner.
    pub to: NodeId,
}
