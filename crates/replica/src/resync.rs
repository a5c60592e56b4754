//! A replica whose log may lack entries that it has acknowledged, or a promise that it has made. Before it takes part, it
//! learns from the others what it may have said.
//!
//! It asks all others. It waits for an owner's answer, and for those of a majority that knows no higher epoch. Whatever promise
//! this replica may have forgotten was one of a majority with it, so one of those who answer has made it, too. It promises
//! that owner's epoch. Whatever entry it may have acknowledged is in the owner's log, up to the last one there. Until it holds
//! that one it promises nothing more.

use std::collections::{BTreeMap, BTreeSet};

use crate::following::Following;
use crate::ids::{EntryId, NodeId, Promised};
use crate::input_context::InputContext;
use crate::message::Message;
use crate::replica_set::ReplicaSet;

/// What another replica knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Knowledge {
    pub promised: Promised,
    pub owner_last: Option<EntryId>,
    pub set: ReplicaSet,
}

/// The state of asking.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Resync {
    nonce: u64,
    answers: BTreeMap<NodeId, Knowledge>,
}

impl Resync {
    /// Nobody was asked yet.
    pub fn new(nonce: u64) -> Self {
        Self { nonce, answers: BTreeMap::new() }
    }

    /// Asks everybody known.
    pub fn ask(&self, context: &mut InputContext<'_>) {
        let sets = self.answers.values().map(|answer| &answer.set).chain([context.core.log.set()]);
        let known: BTreeSet<NodeId> = sets.flat_map(ReplicaSet::members).collect();
        let me = context.core.me;
        for node in known.into_iter().filter(|node| *node != me) {
            context.send(node, Message::Resync { nonce: self.nonce });
        }
    }

    /// Somebody has answered. Gives back the follower that this replica is now, if it knows enough.
    pub fn answered(
        &mut self,
        context: &mut InputContext<'_>,
        from: NodeId,
        nonce: u64,
        knowledge: Knowledge,
    ) -> Option<Following> {
        if nonce != self.nonce {
            return None;
        }
        self.answers.insert(from, knowledge);
        let (promised, target) = self.owner(context.core.me)?;
        if promised.epoch < context.core.promised.epoch {
            return None;
        }
        if promised.epoch > context.core.promised.epoch {
            context.promise(promised);
        }
        Some(Following::up_to(target))
    }

    /// The owner that a majority of the others knows no higher epoch than, and the last entry of its log. Who is no voter of its
    /// replica set may have promised what it likes.
    fn owner(&self, me: NodeId) -> Option<(Promised, EntryId)> {
        self.answers.values().find_map(|owner| {
            let target = owner.owner_last?;
            let epoch = |node: NodeId| self.answers.get(&node).map(|answer| answer.promised.epoch);
            let others: Vec<_> = owner.set.voters().filter(|node| *node != me).filter_map(epoch).collect();
            let is_highest = others.iter().all(|epoch| *epoch <= owner.promised.epoch);
            (is_highest && others.len() >= owner.set.majority()).then_some((owner.promised, target))
        })
    }
}
