//! What a node that is to be emptied knows of its cluster. Once it is empty it asks others for everything, so it must know who
//! they are: those that it was made with may be gone. The node does not run meanwhile.

use std::path::Path;

use millrace_base::ShardId;
use millrace_guidance::Guidance;
use millrace_replica::NodeId;

use super::lost::are_too_few_left;
use super::rescue::{MEMORY_BYTES, newest_guidance};
use super::{ClusterOptions, Member};
use crate::directory::DataDirectory;
use crate::node::StartError;
use crate::options::NodeOptions;
use crate::recovery::recover;

/// A cluster, as one of its nodes has heard of it last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownCluster {
    /// Its nodes, ascending.
    pub nodes: Vec<Member>,
    /// Shards that would be lost with this node, because the other nodes that hold them are no majority.
    pub last_copies: Vec<ShardId>,
}

/// Reads what a node that does not run knows of its cluster. `None` if it has not followed it yet, or was emptied.
///
/// # Errors
/// The directory is in use, or what is in it cannot be read.
pub fn known_cluster(path: &Path, cluster: ClusterOptions) -> Result<Option<KnownCluster>, StartError> {
    let me = cluster.node;
    let mut directory = DataDirectory::open(path, None).map_err(StartError::Directory)?;
    let options =
        NodeOptions { cluster: Some(cluster), memory_bytes: MEMORY_BYTES, ..NodeOptions::new(path.to_owned()) };
    let mut recovery = recover(&options, &mut directory)?;
    let guidance = newest_guidance(&mut recovery, ShardId(directory.shard_count()))?;
    Ok(guidance.map(|guidance| known(&guidance, me)))
}

fn known(guidance: &Guidance, me: NodeId) -> KnownCluster {
    let member = |(node, entry): (&u16, &millrace_guidance::NodeEntry)| Member {
        node: NodeId(*node),
        http: entry.http.clone(),
        peer: entry.peer.clone(),
        rack: entry.rack.clone(),
    };
    let is_last = |replicas: &[u16]| replicas.contains(&me.0) && are_too_few_left(replicas.len(), 1);
    let shards = (0_u16..).map(ShardId).zip(&guidance.shards);
    let last_copies = shards.filter(|(_, place)| is_last(&place.replicas)).map(|(shard, _)| shard).collect();
    KnownCluster { nodes: guidance.nodes.iter().map(member).collect(), last_copies }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_guidance::{NodeEntry, ShardPlacement};

    #[test]
    fn a_shard_is_lost_with_a_node_if_the_others_are_no_majority() {
        let mut guidance = Guidance::default();
        guidance.nodes.insert(4, NodeEntry { peer: "four:7000".to_owned(), ..NodeEntry::default() });
        let places = [&[1][..], &[1, 4], &[1, 4, 5], &[4], &[4, 5]];
        guidance.shards =
            places.map(|replicas| ShardPlacement { replicas: replicas.to_vec(), ..ShardPlacement::default() }).to_vec();
        let known = known(&guidance, NodeId(1));
        assert_eq!(known.last_copies, [ShardId(0), ShardId(1)]);
        assert_eq!(known.nodes[0].peer, "four:7000");
    }
}
