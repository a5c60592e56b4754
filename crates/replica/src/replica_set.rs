//! The nodes that hold a shard's log, and how that set changes: one node at a time, by an entry.
//!
//! ```text
//! replica set (the payload of an entry of kind 2)
//! offset  bytes  meaning
//!  0      1      version = 1
//!  1      1      number of voters
//!  2      1      number of learners
//!  3      …      voters, then learners, each 2 bytes, little-endian, ascending
//! ```

use std::collections::BTreeSet;

use millrace_base::limits::{CLUSTER_NODES, REPLICAS};
use millrace_format::DecodeError;

use crate::ids::NodeId;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 3;

/// Who holds a shard's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaSet {
    voters: BTreeSet<NodeId>,
    learners: BTreeSet<NodeId>,
}

/// One step from a replica set to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The node begins to copy the log. It does not count.
    AddLearner(NodeId),
    /// A learner counts from now on.
    Promote(NodeId),
    /// The node is neither voter nor learner from now on.
    Remove(NodeId),
}

impl ReplicaSet {
    /// A set of voters without learners.
    #[must_use]
    pub fn of(voters: impl IntoIterator<Item = NodeId>) -> Self {
        Self { voters: voters.into_iter().collect(), learners: BTreeSet::new() }
    }

    /// A set in which nobody counts, so that it decides nothing: what a node knows that has never heard of the log.
    #[must_use]
    pub fn of_learners(learners: impl IntoIterator<Item = NodeId>) -> Self {
        Self { voters: BTreeSet::new(), learners: learners.into_iter().collect() }
    }

    /// Those whose acknowledgements, promises and leases count.
    pub fn voters(&self) -> impl Iterator<Item = NodeId> {
        self.voters.iter().copied()
    }

    /// Everybody who gets the log.
    pub fn members(&self) -> impl Iterator<Item = NodeId> {
        self.voters.iter().chain(&self.learners).copied()
    }

    /// Whether the node counts.
    #[must_use]
    pub fn is_voter(&self, node: NodeId) -> bool {
        self.voters.contains(&node)
    }

    /// Whether the node copies the log and does not count.
    #[must_use]
    pub fn is_learner(&self, node: NodeId) -> bool {
        self.learners.contains(&node)
    }

    /// The next step to a set of these voters without learners, at their owner `me`. First, learners go that are not wanted.
    /// Then others come, one after the other. At last those go that are too many. The owner itself stays: another one has
    /// to own the shard before.
    #[must_use]
    pub fn step_to(&self, wanted: &BTreeSet<NodeId>, me: NodeId) -> Option<Change> {
        if let Some(idle) = self.learners.difference(wanted).next() {
            return Some(Change::Remove(*idle));
        }
        if let Some(coming) = wanted.difference(&self.voters).next() {
            let is_learner = self.learners.contains(coming);
            return Some(if is_learner { Change::Promote(*coming) } else { Change::AddLearner(*coming) });
        }
        self.voters.difference(wanted).find(|node| **node != me).map(|going| Change::Remove(*going))
    }

    /// How many voters are more than half of them. One of nobody, so that nobody is never a majority.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    /// Whether `is_in` holds for a majority of the voters.
    pub(crate) fn has_majority(&self, is_in: impl Fn(NodeId) -> bool) -> bool {
        self.voters().filter(|node| is_in(*node)).count() >= self.majority()
    }

    /// The highest value that a majority of the voters has reached. `None` without voters.
    pub(crate) fn reached<T: Ord + Copy>(&self, value: impl Fn(NodeId) -> T) -> Option<T> {
        let mut values: Vec<T> = self.voters().map(value).collect();
        values.sort_unstable_by(|a, b| b.cmp(a));
        values.get(self.majority() - 1).copied()
    }

    /// The set after `change`. `None` where it changes nothing that can be changed: a node that is there already, a
    /// promotion of a node that is not a learner, the last voter, more nodes than the limit.
    #[must_use]
    pub fn after(&self, change: Change) -> Option<Self> {
        let mut next = self.clone();
        let is_changed = match change {
            Change::AddLearner(node) => !self.is_voter(node) && next.learners.insert(node),
            Change::Promote(node) => next.learners.remove(&node) && next.voters.insert(node),
            Change::Remove(node) => next.learners.remove(&node) || next.voters.remove(&node),
        };
        let is_bounded = next.voters.len() <= REPLICAS && next.learners.len() <= CLUSTER_NODES;
        (is_changed && is_bounded && !next.voters.is_empty()).then_some(next)
    }

    /// The bytes of an entry's payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let count =
            |nodes: &BTreeSet<NodeId>| u8::try_from(nodes.len()).expect("a set holds no more than there are nodes");
        out.extend_from_slice(&[VERSION, count(&self.voters), count(&self.learners)]);
        for node in self.members() {
            out.extend_from_slice(&node.0.to_le_bytes());
        }
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not exactly one replica set of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match Self::take(bytes)? {
            (set, []) => Ok(set),
            _ => Err(DecodeError::Length),
        }
    }

    /// Reads a set from the front of `bytes`, and gives the rest back.
    pub(crate) fn take(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let (&[version, voters, learners], rest) =
            bytes.split_first_chunk::<HEAD_BYTES>().ok_or(DecodeError::Length)?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        if usize::from(voters) > REPLICAS || usize::from(learners) > CLUSTER_NODES {
            return Err(DecodeError::Length);
        }
        let (voters, rest) = take_nodes(usize::from(voters), rest)?;
        let (learners, rest) = take_nodes(usize::from(learners), rest)?;
        if !voters.is_disjoint(&learners) {
            return Err(DecodeError::Length);
        }
        Ok((Self { voters, learners }, rest))
    }
}

/// Nodes in ascending order, so that each set has one encoding.
fn take_nodes(count: usize, bytes: &[u8]) -> Result<(BTreeSet<NodeId>, &[u8]), DecodeError> {
    let (taken, rest) = bytes.split_at_checked(2 * count).ok_or(DecodeError::Length)?;
    let nodes: Vec<NodeId> = taken.as_chunks::<2>().0.iter().map(|pair| NodeId(u16::from_le_bytes(*pair))).collect();
    if !nodes.is_sorted_by(|a, b| a < b) {
        return Err(DecodeError::Length);
    }
    Ok((nodes.into_iter().collect(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(voters: &[u16]) -> ReplicaSet {
        ReplicaSet::of(voters.iter().copied().map(NodeId))
    }

    #[test]
    fn any_two_majorities_of_sets_one_step_apart_overlap() {
        for size in 1..=5u16 {
            let nodes: Vec<u16> = (1..=size).collect();
            let set = set(&nodes);
            let grown = set.after(Change::AddLearner(NodeId(9))).and_then(|set| set.after(Change::Promote(NodeId(9))));
            for other in [Some(set.clone()), grown, set.after(Change::Remove(NodeId(1)))].into_iter().flatten() {
                let union = set.voters().chain(other.voters()).collect::<BTreeSet<_>>().len();
                assert!(set.majority() + other.majority() > union, "{set:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_set_gets_to_another_one_step_by_step_and_never_loses_its_owner() {
        let nodes = |numbers: &[u16]| numbers.iter().copied().map(NodeId).collect::<BTreeSet<_>>();
        let walk = |mut set: ReplicaSet, wanted: &[u16], me: u16| {
            let mut steps = 0;
            while let Some(change) = set.step_to(&nodes(wanted), NodeId(me)) {
                set = set.after(change).expect("a context that changes something");
                assert!(set.is_voter(NodeId(me)) && set.voters().count() >= 3, "{set:?}");
                steps += 1;
                assert!(steps < 20);
            }
            set
        };
        assert_eq!(walk(set(&[1, 2, 3]), &[1, 2, 3], 1), set(&[1, 2, 3]));
        assert_eq!(walk(set(&[1, 2, 3]), &[1, 4, 5], 1), set(&[1, 4, 5]));
        assert_eq!(walk(set(&[1, 2, 3]), &[4, 5, 6], 1), set(&[1, 4, 5, 6]), "the owner goes last, and not by itself");
        let idle = set(&[1, 2, 3]).after(Change::AddLearner(NodeId(9))).expect("a learner");
        assert_eq!(idle.step_to(&nodes(&[1, 2, 4]), NodeId(1)), Some(Change::Remove(NodeId(9))));
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let set = set(&[1, 0x0203]).after(Change::AddLearner(NodeId(2))).expect("a new learner");
        let golden = b"\x01\x02\x01\x01\0\x03\x02\x02\0";
        assert_eq!(set.encode(), golden);
        assert_eq!(ReplicaSet::decode(golden), Ok(set));
        for cut in 0..golden.len() {
            assert!(ReplicaSet::decode(&golden[..cut]).is_err());
        }
        assert!(ReplicaSet::decode(b"\x01\x02\0\x02\0\x01\0").is_err(), "not in order");
    }

    #[test]
    fn a_step_that_changes_nothing_is_refused() {
        let set = set(&[1]);
        assert_eq!(set.after(Change::AddLearner(NodeId(1))), None);
        assert_eq!(set.after(Change::Promote(NodeId(2))), None);
        assert_eq!(set.after(Change::Remove(NodeId(2))), None);
        assert_eq!(set.after(Change::Remove(NodeId(1))), None, "the last voter");
    }
}
