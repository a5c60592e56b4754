//! What this core knows of the cluster's guidance: who owns which shard.

use std::collections::{BTreeMap, BTreeSet};

use millrace_base::ShardId;
use millrace_replica::{Epoch, NodeId};

/// Who owns a shard, as far as is known here.
struct Guided {
    epoch: Epoch,
    owner: NodeId,
    /// The nodes that are to hold its log.
    replicas: BTreeSet<NodeId>,
    /// Who owns it in the next epoch, once the owner has let go of it.
    heir: Option<NodeId>,
}

/// Where a shard is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// On this node.
    Here,
    /// On another one.
    There(NodeId),
    /// Nobody has said yet.
    Unknown,
}

/// See the module's documentation.
pub(crate) struct Guide {
    me: NodeId,
    guided: BTreeMap<ShardId, Guided>,
    /// The last opening of each shard that was heard of.
    opened: BTreeMap<ShardId, Epoch>,
    /// The last epoch in which the owner of each shard has let go of it.
    let_go: BTreeMap<ShardId, Epoch>,
    /// Nodes that there is a link to, or was.
    known: BTreeSet<NodeId>,
}

impl Guide {
    pub(crate) fn new(me: NodeId) -> Self {
        let (opened, let_go) = (BTreeMap::new(), BTreeMap::new());
        Self { me, guided: BTreeMap::new(), opened, let_go, known: BTreeSet::new() }
    }

    /// This node.
    pub(crate) fn me(&self) -> NodeId {
        self.me
    }

    pub(crate) fn whereabouts(&self, shard: ShardId) -> Whereabouts {
        match self.guided.get(&shard) {
            Some(guided) if guided.owner == self.me => Whereabouts::Here,
            Some(guided) => Whereabouts::There(guided.owner),
            None => Whereabouts::Unknown,
        }
    }

    /// Whether a shard has been opened as `incarnation`, and this core does not know yet where.
    pub(crate) fn is_behind(&self, shard: ShardId, incarnation: u64) -> bool {
        self.guided.get(&shard).is_some_and(|guided| guided.epoch.0 < incarnation)
    }

    /// Takes news of a shard, unless newer ones were heard before. Says whether it took them. Without replicas the known ones
    /// stay.
    pub(crate) fn hear(&mut self, shard: ShardId, owner: NodeId, epoch: Epoch, replicas: Option<&[NodeId]>) -> bool {
        let known = self.guided.get(&shard);
        if known.is_some_and(|known| known.epoch > epoch || (known.epoch == epoch && replicas.is_none())) {
            return false;
        }
        let replicas = match replicas {
            Some(replicas) => replicas.iter().copied().collect(),
            None => self.guided.remove(&shard).map(|known| known.replicas).unwrap_or_default(),
        };
        self.guided.insert(shard, Guided { epoch, owner, replicas, heir: None });
        true
    }

    /// Guidance has said of an epoch who is to own the shard after it.
    pub(crate) fn hear_heir(&mut self, shard: ShardId, epoch: Epoch, heir: Option<NodeId>) {
        if let Some(guided) = self.guided.get_mut(&shard).filter(|guided| guided.epoch == epoch) {
            guided.heir = heir;
        }
    }

    /// The epoch in which this node owns the shard, if it is to let go of it.
    pub(crate) fn handing_on(&self, shard: ShardId) -> Option<Epoch> {
        let is_to_go = |guided: &&Guided| guided.owner == self.me && guided.heir.is_some_and(|heir| heir != self.me);
        self.guided.get(&shard).filter(is_to_go).map(|guided| guided.epoch)
    }

    /// The owner of a shard has let go of it in that epoch, for good. Guidance may say only later who is the heir.
    pub(crate) fn hear_let_go(&mut self, shard: ShardId, epoch: Epoch) {
        let last = self.let_go.entry(shard).or_default();
        *last = epoch.max(*last);
    }

    /// The epoch in which this node is to take a shard now: it is the heir, and the owner has let go.
    pub(crate) fn inherited(&self, shard: ShardId) -> Option<Epoch> {
        let guided = self.guided.get(&shard).filter(|guided| guided.heir == Some(self.me))?;
        (self.let_go.get(&shard) == Some(&guided.epoch)).then_some(Epoch(guided.epoch.0 + 1))
    }

    /// A shard was opened. Says whether that is news: late news of an earlier opening is none.
    pub(crate) fn hear_opened(&mut self, shard: ShardId, epoch: Epoch) -> bool {
        let last = self.opened.entry(shard).or_default();
        let is_news = *last < epoch;
        *last = epoch.max(*last);
        is_news
    }

    /// The shards that this node is to own, and their epochs.
    pub(crate) fn own(&self) -> Vec<(ShardId, Epoch)> {
        let own = self.guided.iter().filter(|(_, guided)| guided.owner == self.me);
        own.map(|(shard, guided)| (*shard, guided.epoch)).collect()
    }

    /// The shards that this node owns, and the nodes that are to hold their logs. None are known before guidance says so.
    pub(crate) fn held_by(&self) -> Vec<(ShardId, BTreeSet<NodeId>)> {
        let own = self.guided.iter().filter(|(_, guided)| guided.owner == self.me && !guided.replicas.is_empty());
        own.map(|(shard, guided)| (*shard, guided.replicas.clone())).collect()
    }

    /// The nodes that are to hold a shard's log, as far as is known.
    pub(crate) fn replicas(&self, shard: ShardId) -> impl Iterator<Item = NodeId> {
        self.guided.get(&shard).into_iter().flat_map(|guided| guided.replicas.iter().copied())
    }

    /// The shards of these nodes.
    pub(crate) fn owned_by(&self, is_meant: impl Fn(NodeId) -> bool) -> BTreeSet<ShardId> {
        self.guided.iter().filter(|(_, guided)| is_meant(guided.owner)).map(|(shard, _)| *shard).collect()
    }

    /// There is another node.
    pub(crate) fn meet(&mut self, node: NodeId) {
        self.known.insert(node);
    }

    /// All nodes that there are, but for this one.
    pub(crate) fn others(&self) -> BTreeSet<NodeId> {
        let all = self.guided.values().flat_map(|guided| guided.replicas.iter().chain([&guided.owner]));
        all.chain(&self.known).copied().filter(|node| *node != self.me).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_news_change_nothing() {
        let [me, other] = [NodeId(1), NodeId(2)];
        let mut guide = Guide::new(me);
        assert_eq!(guide.whereabouts(ShardId(0)), Whereabouts::Unknown);
        assert!(guide.hear(ShardId(0), other, Epoch(3), Some(&[me, other, NodeId(3)])));
        assert!(!guide.hear(ShardId(0), me, Epoch(2), Some(&[me])));
        assert_eq!(guide.whereabouts(ShardId(0)), Whereabouts::There(other));
        assert!(guide.is_behind(ShardId(0), 4) && !guide.is_behind(ShardId(0), 3));
        assert!(guide.hear(ShardId(0), me, Epoch(4), None), "an opening says who the owner is, too");
        assert_eq!(guide.own(), [(ShardId(0), Epoch(4))]);
        assert_eq!(guide.others(), BTreeSet::from([other, NodeId(3)]));
        guide.meet(NodeId(4));
        assert!(guide.others().contains(&NodeId(4)), "it owns nothing, and may have asked something");
        guide.hear_heir(ShardId(0), Epoch(3), Some(other));
        assert_eq!(guide.handing_on(ShardId(0)), None, "that was of an earlier epoch");
        guide.hear_heir(ShardId(0), Epoch(4), Some(other));
        assert_eq!(guide.handing_on(ShardId(0)), Some(Epoch(4)));
        guide.hear_let_go(ShardId(0), Epoch(4));
        assert_eq!(guide.inherited(ShardId(0)), None, "another node is the heir");
        assert!(guide.hear_opened(ShardId(0), Epoch(4)));
        assert!(!guide.hear_opened(ShardId(0), Epoch(4)) && !guide.hear_opened(ShardId(0), Epoch(3)));
    }

    #[test]
    fn an_heir_takes_the_shard_whatever_it_hears_first() {
        let [me, other] = [NodeId(1), NodeId(2)];
        for hears_guidance_first in [true, false] {
            let mut guide = Guide::new(me);
            let guidance = |guide: &mut Guide, epoch| {
                guide.hear(ShardId(0), other, epoch, Some(&[me, other, NodeId(3)]));
                guide.hear_heir(ShardId(0), epoch, Some(me));
            };
            if hears_guidance_first {
                guidance(&mut guide, Epoch(3));
                assert_eq!(guide.inherited(ShardId(0)), None, "its owner serves it");
                guide.hear_let_go(ShardId(0), Epoch(3));
            } else {
                guide.hear_let_go(ShardId(0), Epoch(3));
                assert_eq!(guide.inherited(ShardId(0)), None, "nobody has named the heir");
                guidance(&mut guide, Epoch(3));
            }
            assert_eq!(guide.inherited(ShardId(0)), Some(Epoch(4)));
            guidance(&mut guide, Epoch(5));
            assert_eq!(guide.inherited(ShardId(0)), None, "that owner has not let go");
        }
    }
}
