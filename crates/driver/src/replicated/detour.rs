//! Two nodes do not hear each other, and a third one hears both: what their shards say to each other goes through it.
//!
//! Only messages about transactions and news of openings take detours: these may come late, twice and out of order. What was
//! on its way when the link went down is held up with the link. So each shard hears when a detour begins, and transactions
//! over it begin again.

use std::collections::BTreeSet;

use millrace_base::ShardId;
use millrace_replica::NodeId;
use millrace_shard::{Input, PeerMessage};

use super::Whereabouts;
use crate::core::Core;
use crate::message::{CoreMessage, Destination};
use crate::platform::{DriverBug, Platform};

impl<P: Platform> Core<P> {
    /// Another node that hears the owner of a shard. The owner hears a majority of the shard's replicas, so some of these do.
    fn third(&self, owner: NodeId, shard: ShardId) -> Option<NodeId> {
        let replicated = self.replicated.as_ref().filter(|replicated| replicated.reach.is_by_detour(owner))?;
        let is_third = |node: &NodeId| {
            let is_other = *node != owner && *node != replicated.guide.me();
            is_other && replicated.reach.is_linked(*node) && !replicated.reach.is_by_detour(*node)
        };
        replicated.guide.replicas(shard).find(is_third)
    }

    /// Sends a message about a transaction to the node of its shard. So many nodes may pass it on.
    pub(crate) fn send_peer_to_node(&mut self, node: NodeId, (to, message): (ShardId, PeerMessage), nodes_left: u8) {
        let third = self.third(node, to).filter(|_| nodes_left > 0);
        let (next, message) = match third {
            Some(third) => (third, CoreMessage::Detour { node, nodes_left: nodes_left - 1, to, message }),
            // If nobody hears that node, the message waits for the link.
            None => (node, CoreMessage::Peer { to, message }),
        };
        if third.is_some() {
            self.metrics.detours.increment();
        }
        self.platform.send_node(next, Destination::Shard(to), message);
    }

    /// A message has come by detour: for this node, or to be passed on.
    pub(crate) fn pass_detour(&mut self, node: NodeId, nodes_left: u8, (to, message): (ShardId, PeerMessage)) {
        if node != self.address().node {
            return self.send_on(node, nodes_left, (to, message));
        }
        self.hears_by_detour(message.from);
        self.accept_peer(to, message);
    }

    /// The node of that shard does not hear this one: what is said to it takes a detour, too.
    fn hears_by_detour(&mut self, from: ShardId) {
        let Some(replicated) = &mut self.replicated else { return };
        if let Whereabouts::There(node) = replicated.guide.whereabouts(from) {
            replicated.reach.is_deaf(node);
            self.take_detours();
        }
    }

    fn send_on(&mut self, node: NodeId, nodes_left: u8, (to, message): (ShardId, PeerMessage)) {
        let third = self.third(node, to).filter(|_| nodes_left > 0);
        let nodes_left = nodes_left.saturating_sub(1);
        let detour = CoreMessage::Detour { node, nodes_left, to, message };
        self.platform.send_node(third.unwrap_or(node), Destination::Shard(to), detour);
    }

    /// Looks which nodes are reached by others now. If there is one more, what is lost with its link is made good.
    pub(crate) fn take_detours(&mut self) {
        if self.replicated.as_mut().is_some_and(|replicated| replicated.reach.note_detours()) {
            self.detours_again();
        }
    }

    /// What was on its way to nodes that are reached by others may be lost, and so may be what came from there.
    pub(crate) fn detours_again(&mut self) {
        let Some(replicated) = self.replicated.as_ref().filter(|replicated| replicated.reach.has_detours()) else {
            return;
        };
        let is_meant = |node| replicated.reach.is_by_detour(node);
        let shards: BTreeSet<ShardId> = replicated.guide.owned_by(is_meant);
        let nodes: Vec<NodeId> = replicated.guide.others().into_iter().filter(|node| is_meant(*node)).collect();
        if self.platform.has_planted(DriverBug::DetourUntold) {
            return;
        }
        self.read_clock();
        for shard in self.local_shards() {
            for node in &nodes {
                self.announce_by_detour(*node, shard);
            }
            self.give(shard, Input::Detour(shards.clone()));
            self.handle_events();
        }
    }

    /// A node that is reached by others hears from them that a shard is open here.
    pub(crate) fn announce_by_detour(&mut self, node: NodeId, shard: ShardId) {
        let Some(replicated) = self.replicated.as_ref().filter(|replicated| replicated.reach.is_by_detour(node)) else {
            return;
        };
        let Some(epoch) = self.serving(shard) else { return };
        let owner = replicated.guide.me();
        let hears = |third: &NodeId| *third != node && *third != owner && replicated.reach.is_linked(*third);
        let thirds: Vec<NodeId> = replicated.guide.replicas(shard).filter(hears).collect();
        for third in thirds {
            let opened = CoreMessage::OpenedDetour { node, shard, epoch, owner };
            self.platform.send_node(third, Destination::Core(0), opened);
        }
    }
}
