//! Which nodes hold the logs of which shards: each shard's on as many as are wanted, none on a node that is to go, and evenly.
//!
//! A shard's owner changes who holds its log, one node at a time. It says what it has come to, and that is in the guidance then.

use std::collections::BTreeSet;

use crate::document::{Guidance, Place};
use crate::status::Held;

/// Shards whose logs move at a time. As many snapshots leave a node at once.
const MOVES: usize = 4;

/// Nodes that count in the meta shard, in a cluster that has so many. The others copy it.
const META_VOTERS: usize = 5;

/// Takes what an owner says of its replicas.
pub(crate) fn note_held(next: &mut Guidance, node: u16, held: &Held) {
    let is_known = held.replicas.iter().all(|replica| next.nodes.contains_key(replica));
    let Some(place) = next.shards.get_mut(usize::from(held.shard)) else { return };
    // The owner always counts, so that guidance never names one that does not hold the log.
    let is_current = (place.owner, place.epoch) == (node, held.epoch) && held.replicas.contains(&node);
    // Nor does the heir go before it has got the shard.
    let has_heir = place.next == 0 || held.replicas.contains(&place.next);
    if is_current && is_known && has_heir && held.agreed > place.agreed {
        place.replicas.clone_from(&held.replicas);
        place.agreed = held.agreed;
    }
    if place.wanted == place.replicas {
        place.wanted.clear();
    }
}

/// Says which logs are to move, as many as may at a time. `is_quiet`: nothing else happens, so that there is time for balance.
pub(crate) fn place(next: &mut Guidance, is_quiet: bool) {
    for shard in 0..next.shards.len() {
        let place = &next.shards[shard];
        let is_lost = |node: &u16| !place.replicas.contains(node) && !may_hold(next, *node);
        if place.wanted.iter().any(is_lost) {
            // Its owner lets go of the learner, and another one is found.
            next.shards[shard].wanted.clear();
        }
    }
    let mut moving = next.shards.iter().filter(|place| !place.wanted.is_empty()).count();
    for shard in 0..next.shards.len() {
        if moving >= MOVES {
            return;
        }
        if let Some(wanted) = mended(next, &next.shards[shard]) {
            next.shards[shard].wanted = wanted;
            moving += 1;
        }
    }
    while is_quiet && moving < MOVES && balance(next) {
        moving += 1;
    }
}

/// Whether a node may get logs: it has begun, it lives, and it stays.
fn may_hold(next: &Guidance, node: u16) -> bool {
    next.nodes.get(&node).is_some_and(|entry| entry.is_alive && !entry.is_draining && entry.incarnation > 0)
}

/// Who should hold a shard's log that some should not, or too few or too many do.
fn mended(next: &Guidance, place: &Place) -> Option<Vec<u16>> {
    if !place.wanted.is_empty() || !next.is_alive(place.owner) {
        return None;
    }
    let mut wanted: BTreeSet<u16> = place.replicas.iter().copied().collect();
    let is_leaving = |node: &u16| next.nodes.get(node).is_none_or(|entry| entry.is_draining);
    let leaving = place.replicas.iter().copied().find(is_leaving);
    let most = next.replica_count().min(next.nodes.len());
    match (leaving, freest(next, place)) {
        (Some(leaving), Some(free)) => {
            wanted.remove(&leaving);
            wanted.insert(free);
        }
        // A majority of the others has to be left.
        (Some(leaving), None) if wanted.len() > 3 => drop(wanted.remove(&leaving)),
        (None, Some(free)) if next.replicas > 0 && wanted.len() < most => drop(wanted.insert(free)),
        (None, _) if next.replicas > 0 && wanted.len() > most => {
            let others = place.replicas.iter().copied().filter(|node| *node != place.owner);
            wanted.remove(&others.max_by_key(|node| (next.held_by(*node), *node))?);
        }
        _ => return None,
    }
    Some(wanted.into_iter().collect())
}

/// The node that should get a shard's log next: that which holds the fewest.
fn freest(next: &Guidance, place: &Place) -> Option<u16> {
    let free = next.nodes.keys().copied().filter(|node| may_hold(next, *node) && !place.concerns(*node));
    free.min_by_key(|node| (next.held_by(*node), *node))
}

/// Has one log move from the node that holds the most to the one that holds the fewest.
fn balance(next: &mut Guidance) -> bool {
    let held: Vec<(usize, u16)> =
        next.nodes.keys().filter(|node| may_hold(next, **node)).map(|node| (next.held_by(*node), *node)).collect();
    let (Some(&(most, from)), Some(&(fewest, to))) = (held.iter().max(), held.iter().min()) else { return false };
    if next.replicas == 0 || most < fewest + 2 {
        return false;
    }
    let is_owned = |place: &Place| place.owner == from;
    let can_move = |place: &&mut Place| {
        place.wanted.is_empty() && place.owner != 0 && place.replicas.contains(&from) && !place.replicas.contains(&to)
    };
    // One that the node merely holds moves without a pause.
    let Some(place) = next.shards.iter_mut().filter(can_move).min_by_key(|place| is_owned(place)) else { return false };
    let staying = place.replicas.iter().copied().filter(|node| *node != from);
    let wanted: BTreeSet<u16> = staying.chain([to]).collect();
    place.wanted = wanted.into_iter().collect();
    true
}

/// One step of the meta shard's replica set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaStep {
    /// The node begins to copy it.
    Add(u16),
    /// The node counts from now on.
    Promote(u16),
    /// The node holds it no more, or begins to copy it anew.
    Remove(u16),
}

/// How the set of nodes that hold the meta shard should change: all nodes hold it, and a few that stay count.
#[must_use]
pub fn meta_step(guidance: &Guidance, voters: &BTreeSet<u16>, learners: &BTreeSet<u16>) -> Option<MetaStep> {
    let is_member = |node: &u16| guidance.nodes.contains_key(node);
    if let Some(gone) = learners.iter().find(|node| !is_member(node)) {
        return Some(MetaStep::Remove(*gone));
    }
    let all = guidance.nodes.keys();
    if let Some(new) = all.clone().find(|node| !voters.contains(node) && !learners.contains(node)) {
        return Some(MetaStep::Add(*new));
    }
    let leaving = voters.iter().find(|node| guidance.nodes.get(node).is_none_or(|entry| entry.is_draining));
    let staying = all.filter(|node| may_hold(guidance, **node)).count();
    let wanted = if staying >= META_VOTERS { META_VOTERS } else { 3 };
    let free = learners.iter().find(|node| may_hold(guidance, **node));
    match (leaving, free) {
        (_, Some(free)) if voters.len() < wanted + usize::from(leaving.is_some()) => Some(MetaStep::Promote(*free)),
        (Some(leaving), _) if voters.len() > 3 => Some(MetaStep::Remove(*leaving)),
        _ => None,
    }
}
