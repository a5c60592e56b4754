//! Models of replicated logs: who counts, and which epoch each replica has promised. What a majority has promised is committed.

use std::collections::{BTreeMap, BTreeSet};

/// One run of a node: its number and its incarnation.
pub type Run = (u16, u64);

/// The log of one shard.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub voters: BTreeSet<u16>,
    /// A node that copies the log, and from when on it may count.
    pub learner: Option<(u16, u64)>,
    /// The epoch that each replica has promised, and to whom.
    promised: BTreeMap<u16, (u64, Run)>,
    /// Counts the changes of the replica set.
    pub agreed: u64,
}

impl Log {
    pub fn of(voters: impl IntoIterator<Item = u16>) -> Self {
        Self { voters: voters.into_iter().collect(), agreed: 1, ..Self::default() }
    }

    fn has_promised(&self, node: u16) -> u64 {
        self.promised.get(&node).map_or(0, |(epoch, _)| *epoch)
    }

    fn is_majority(&self, nodes: usize) -> bool {
        nodes * 2 > self.voters.len()
    }

    /// The highest epoch that somebody among `reached` has promised to another run.
    pub fn highest(&self, reached: &BTreeSet<u16>, run: Run) -> u64 {
        let promised = self.voters.intersection(reached).filter_map(|node| self.promised.get(node));
        promised.filter(|(_, other)| *other != run).map(|(epoch, _)| *epoch).max().unwrap_or_default()
    }

    /// Whether a majority is among `reached`, and none of it has promised this epoch or a higher one to another run: it promises
    /// this one.
    pub fn promise(&mut self, reached: &BTreeSet<u16>, epoch: u64, run: Run) -> bool {
        let reached: BTreeSet<u16> = self.voters.intersection(reached).copied().collect();
        if !self.is_majority(reached.len()) || self.highest(&reached, run) >= epoch {
            return false;
        }
        self.promised.extend(reached.into_iter().map(|node| (node, (epoch, run))));
        true
    }

    /// Whether the owner of an epoch can commit: it reaches a majority that has promised nothing higher.
    pub fn commits(&self, reached: &BTreeSet<u16>, epoch: u64) -> bool {
        let willing = self.voters.intersection(reached).filter(|node| self.has_promised(**node) <= epoch).count();
        self.is_majority(willing)
    }

    /// Whether no owner of this epoch can commit any more.
    pub fn is_past(&self, epoch: u64) -> bool {
        let later = self.voters.iter().filter(|node| self.has_promised(**node) > epoch).count();
        !self.is_majority(self.voters.len() - later)
    }

    /// The owner of an epoch has one more node count.
    pub fn count(&mut self, node: u16, epoch: u64, run: Run) {
        self.voters.insert(node);
        self.promised.insert(node, (epoch, run));
        self.agreed += 1;
    }

    /// The owner has a node count no more.
    pub fn let_go(&mut self, node: u16) {
        self.voters.remove(&node);
        self.promised.remove(&node);
        self.agreed += 1;
    }
}
