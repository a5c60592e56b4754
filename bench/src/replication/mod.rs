//! Measures a cluster of three nodes: beside one node, and beside etcd. It also measures how soon the shards of a lost
//! node are served again.
//!
//! Promises: those of the crate. The programs that it starts are given to it, so it runs where nothing can be built. All
//! nodes are on one machine and share its disk.
//!
//! | module | holds |
//! |---|---|
//! | `places` | the CPUs of nodes and load |
//! | `nodes`, `etcd` | the servers |
//! | `workload` | what clients ask |
//! | `contests` | the comparisons |
//! | `round` | the run of a part |
//! | `failover` | a node is killed |

pub mod contests;
pub mod etcd;
pub mod failover;
pub mod nodes;
pub mod places;
pub mod round;
pub mod workload;

/// The cells of a summary, in the order they are published.
#[must_use]
pub fn ids() -> Vec<String> {
    let parts = contests::parts(1);
    let compared = parts.iter().flat_map(|part| &part.comparisons).map(|comparison| comparison.id);
    compared.chain([failover::ID]).map(str::to_owned).collect()
}
