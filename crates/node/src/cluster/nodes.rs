//! Which nodes the cluster has: they are asked for here, and decided by whoever leads.

use bytes::Bytes;
use millrace_api::NodeChange;
use millrace_base::{Error, ErrorCode};
use millrace_guidance::Guidance;
use millrace_peers::{PeerAddress, check_address};
use millrace_replica::NodeId;
use serde_json::json;

use super::catalogue::{ask_leader, check};
use super::{Change, Cluster};
use crate::core::Shared;

/// Changes which nodes there are. Gives what is to be known about it, as JSON.
///
/// # Errors
/// `bad-request` for what cannot be; `overloaded` without a leader.
pub(crate) async fn change_nodes(shared: &Shared, cluster: &Cluster, change: NodeChange) -> Result<Bytes, Error> {
    check(shared, cluster)?;
    let change = match change {
        NodeChange::Add { http, peer, rack } => {
            for address in [&http, &peer] {
                check_address(address).map_err(|what| Error::new(ErrorCode::BadRequest, what))?;
            }
            let node = ask_leader(cluster, Change::AddNode { http, peer, rack }).await?;
            let (id, shards) = (cluster.options.id.to_string(), shared.shard_count());
            return Ok(Bytes::from(json!({ "node": node, "cluster": id, "shards": shards }).to_string()));
        }
        NodeChange::Drain(node) => Change::Drain { node: NodeId(node), is_draining: true },
        NodeChange::Keep(node) => Change::Drain { node: NodeId(node), is_draining: false },
        NodeChange::Remove(node) => Change::RemoveNode { node: NodeId(node) },
    };
    ask_leader(cluster, change).await.map(|_| Bytes::new())
}

impl Cluster {
    /// The other nodes and where they hear this one: those of the guidance, or those that the node was made with. What it was
    /// made with says how they are reached from here.
    pub(super) fn others(&self, guidance: &Guidance) -> Vec<PeerAddress> {
        let members = &self.options.members;
        let made_with = |node: u16| members.iter().find(|member| member.node.0 == node).map(|member| &member.peer);
        let nodes: Vec<(u16, &String)> = if guidance.nodes.is_empty() {
            members.iter().map(|member| (member.node.0, &member.peer)).collect()
        } else {
            guidance.nodes.iter().map(|(node, entry)| (*node, made_with(*node).unwrap_or(&entry.peer))).collect()
        };
        let others = nodes.into_iter().filter(|(node, _)| *node != self.me().0);
        others.map(|(node, address)| PeerAddress { node: NodeId(node), address: address.clone() }).collect()
    }
}
