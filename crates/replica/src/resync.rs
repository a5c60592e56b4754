//! A replica whose log may lack entries that it has acknowledged, or a promise that it has made. Before it takes part, it
//! learns from the others what it may have said.
//!
//! It asks all others, and waits for a majority's answers and for that of the owner of the highest promised epoch. Whatever
//! promise this replica may have forgotten was one of a majority with it, so one of those who answer has made it, too. It
//! promises that epoch. Whatever entry it may have acknowledged is in the owner's log, up to the last one there. Until it holds
//! that one it promises nothing more.

use std::collections::{BTreeMap, BTreeSet};

use crate::following::Following;
use crate::ids::{EntryId, NodeId, Promised};
use crate::message::Message;
use crate::replica_set::ReplicaSet;
use crate::step::Step;

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
    pub fn ask(&self, step: &mut Step<'_>) {
        let sets = self.answers.values().map(|answer| &answer.set).chain([step.core.log.set()]);
        let known: BTreeSet<NodeId> = sets.flat_map(ReplicaSet::members).collect();
        let me = step.core.me;
        for node in known.into_iter().filter(|node| *node != me) {
            step.send(node, Message::Resync { nonce: self.nonce });
        }
    }

    /// Somebody has answered. Gives back the follower that this replica is now, if it knows enough.
    pub fn answered(
        &mut self,
        step: &mut Step<'_>,
        from: NodeId,
        nonce: u64,
        knowledge: Knowledge,
    ) -> Option<Following> {
        if nonce != self.nonce {
            return None;
        }
        self.answers.insert(from, knowledge);
        let promised = self.answers.values().map(|answer| answer.promised).max()?;
        let owner = self.answers.get(&promised.to).filter(|answer| answer.promised == promised)?;
        let target = owner.owner_last?;
        let others = owner.set.voters().filter(|node| *node != step.core.me && self.answers.contains_key(node));
        if others.count() < owner.set.majority() || promised.epoch < step.core.promised.epoch {
            return None;
        }
        if promised.epoch > step.core.promised.epoch {
            step.promise(promised);
        }
        Some(Following::up_to(target))
    }
}
