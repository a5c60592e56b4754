//! Which nodes hold the logs of which shards: each shard's on as many as are wanted, none on a node that is to go, in as many
//! racks as may be, and evenly.
//!
//! A shard's owner changes who holds its log, one node at a time. It says what it has come to, and that is in the guidance then.

use std::collections::BTreeSet;

use crate::document::{Guidance, ShardPlacement};
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
/// Shards that are `stuck` do not change their nodes for now: they hold up no other one, and do not move for balance.
pub(crate) fn place(next: &mut Guidance, is_quiet: bool, stuck: &BTreeSet<usize>) {
    for shard in 0..next.shards.len() {
        let place = &next.shards[shard];
        let is_lost = |node: &u16| !place.replicas.contains(node) && !may_hold(next, *node);
        if place.wanted.iter().any(is_lost) {
            // Its owner lets go of the learner, and another one is found.
            next.shards[shard].wanted.clear();
        }
    }
    let is_moving = |(shard, place): &(usize, &ShardPlacement)| !place.wanted.is_empty() && !stuck.contains(shard);
    let mut moving = next.shards.iter().enumerate().filter(is_moving).count();
    for shard in 0..next.shards.len() {
        if moving >= MOVES {
            return;
        }
        if let Some(wanted) = mended(next, &next.shards[shard]) {
            next.shards[shard].wanted = wanted;
            moving += usize::from(!stuck.contains(&shard));
        }
    }
    while is_quiet && moving < MOVES && (spread(next, stuck) || balance(next, stuck)) {
        moving += 1;
    }
}

/// How many of these nodes stand in a rack in which an earlier one does. What balance does never raises it, and what
/// [`spread`] does lowers it. So they come to an end.
fn doubled(next: &Guidance, nodes: impl Iterator<Item = u16>) -> usize {
    let mut racks = BTreeSet::new();
    let rack = |node: u16| next.nodes.get(&node).map(|entry| entry.rack.as_str()).filter(|rack| !rack.is_empty());
    nodes.filter_map(rack).filter(|rack| !racks.insert(*rack)).count()
}

/// The holders of a shard's log after a move.
fn moved(place: &ShardPlacement, from: u16, to: u16) -> impl Iterator<Item = u16> {
    place.replicas.iter().copied().filter(move |node| *node != from).chain([to])
}

/// Has one log move out of a rack that holds it twice, into one that does not hold it.
fn spread(next: &mut Guidance, stuck: &BTreeSet<usize>) -> bool {
    if next.replicas == 0 {
        return false;
    }
    for shard in 0..next.shards.len() {
        let place = &next.shards[shard];
        let before = doubled(next, place.replicas.iter().copied());
        if before == 0 || !may_change(place) || place.owner == 0 || stuck.contains(&shard) {
            continue;
        }
        let free = || next.nodes.keys().copied().filter(|node| may_hold(next, *node) && !place.concerns(*node));
        let moves = place.replicas.iter().flat_map(|from| free().map(|to| (*from, to)));
        let better = moves.filter(|(from, to)| doubled(next, moved(place, *from, *to)) < before);
        // One that the node merely holds moves without a pause.
        let best = better.min_by_key(|(from, to)| (place.owner == *from, next.held_by(*to), *to, *from));
        if let Some((from, to)) = best {
            let wanted: BTreeSet<u16> = moved(place, from, to).collect();
            next.shards[shard].wanted = wanted.into_iter().collect();
            return true;
        }
    }
    false
}

/// Whether a node may get logs: it has begun, it lives, and it stays.
fn may_hold(next: &Guidance, node: u16) -> bool {
    next.nodes.get(&node).is_some_and(|entry| entry.is_alive && !entry.is_draining && entry.incarnation > 0)
}

/// Whether it may be said anew who is to hold a shard's log. Not while it moves, nor while the shard is handed on: the heir has to
/// count when its time comes.
fn may_change(place: &ShardPlacement) -> bool {
    place.wanted.is_empty() && place.next == 0
}

/// Who should hold a shard's log that some should not, or too few or too many do.
fn mended(next: &Guidance, place: &ShardPlacement) -> Option<Vec<u16>> {
    if !may_change(place) || !next.is_alive(place.owner) {
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

/// The node that should get a shard's log next: one in a rack that does not hold it, if there is any, that holds the fewest.
fn freest(next: &Guidance, place: &ShardPlacement) -> Option<u16> {
    let is_staying = |node: &u16| next.nodes.get(node).is_some_and(|entry| !entry.is_draining);
    let with = |node: u16| place.replicas.iter().copied().filter(is_staying).chain([node]);
    let free = next.nodes.keys().copied().filter(|node| may_hold(next, *node) && !place.concerns(*node));
    free.min_by_key(|node| (doubled(next, with(*node)), next.held_by(*node), *node))
}

/// Has one log move from a node that holds many to one that holds fewer: from the fullest to the emptiest, if racks let it.
fn balance(next: &mut Guidance, stuck: &BTreeSet<usize>) -> bool {
    let mut held: Vec<(usize, u16)> =
        next.nodes.keys().filter(|node| may_hold(next, **node)).map(|node| (next.held_by(*node), *node)).collect();
    held.sort_unstable();
    if next.replicas == 0 {
        return false;
    }
    let fuller = |fewest: usize| held.iter().rev().take_while(move |(most, _)| *most >= fewest + 2);
    let pairs = held.iter().flat_map(|(fewest, to)| fuller(*fewest).map(|(_, from)| (*from, *to)));
    let found = pairs.into_iter().find_map(|(from, to)| Some((movable(next, (from, to), stuck)?, from, to)));
    let Some((shard, from, to)) = found else { return false };
    let wanted: BTreeSet<u16> = moved(&next.shards[shard], from, to).collect();
    next.shards[shard].wanted = wanted.into_iter().collect();
    true
}

/// A shard whose log may move from a node to another one, and no rack holds it more often then.
fn movable(next: &Guidance, (from, to): (u16, u16), stuck: &BTreeSet<usize>) -> Option<usize> {
    let can_move = |(shard, place): &(usize, &ShardPlacement)| {
        may_change(place)
            && !stuck.contains(shard)
            && place.owner != 0
            && place.replicas.contains(&from)
            && !place.replicas.contains(&to)
            && doubled(next, moved(place, from, to)) <= doubled(next, place.replicas.iter().copied())
    };
    // One that the node merely holds moves without a pause.
    let (shard, _) = next.shards.iter().enumerate().filter(can_move).min_by_key(|(_, place)| place.owner == from)?;
    Some(shard)
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
    let with = |node: u16| voters.iter().copied().filter(|voter| Some(voter) != leaving).chain([node]);
    let free = learners.iter().filter(|node| may_hold(guidance, **node));
    let free = free.min_by_key(|node| (doubled(guidance, with(**node)), **node));
    match (leaving, free) {
        (_, Some(free)) if voters.len() < wanted + usize::from(leaving.is_some()) => Some(MetaStep::Promote(*free)),
        (Some(leaving), _) if voters.len() > 3 => Some(MetaStep::Remove(*leaving)),
        _ => None,
    }
}
