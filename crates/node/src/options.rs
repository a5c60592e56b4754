//! What a node is started with.

use std::path::PathBuf;
use std::sync::Arc;

use millrace_base::limits;
use millrace_driver::FlushPolicy;
use millrace_func::{Fetcher, NoWorkers, Workers};
use millrace_io::TestClock;

use crate::cluster::ClusterOptions;

/// What an acknowledged effect survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// A power cut: every batch is synced before it is acknowledged.
    #[default]
    Fsync,
    /// The process being killed, but not a power cut, which loses what the kernel had not written.
    Os,
    /// Nothing but a clean stop: there is no log. For caches and tests.
    None,
}

/// How a node runs. [`NodeOptions::new`] gives the defaults.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The data directory; created if it is not there.
    pub data: PathBuf,
    /// Threads that run shards and connections.
    pub cores: usize,
    /// Shards of a new data directory; an existing one keeps its own and refuses another number.
    pub shards: Option<u16>,
    /// Memory for entities, over all cores.
    pub memory_bytes: usize,
    /// What an acknowledged effect survives.
    pub durability: Durability,
    /// How long results of idempotency keys and sent invocations are kept.
    pub retention_ms: u64,
    /// How long a request may wait for its core before new ones are refused.
    pub queue_ms: u64,
    /// Keep objects, though the data directory has none yet.
    pub keeps_objects: bool,
    /// The cluster that this node is one of.
    pub cluster: Option<ClusterOptions>,
    /// When checkpoints are written.
    pub flush: FlushPolicy,
    /// Log that a node of a cluster keeps for nodes that were away for a while.
    pub kept_log_bytes: u64,
    /// Print each call with its time and result on standard output, for development.
    pub prints_calls: bool,
    /// A clock that tests move ahead, instead of the machine's. Not in a cluster, whose nodes have to agree on how time passes.
    pub test_clock: Option<Arc<TestClock>>,
}

/// Who talks to what is outside the node, for the functions on it.
#[derive(Clone)]
pub struct Outside {
    /// To servers.
    pub fetcher: Arc<dyn Fetcher>,
    /// To the processes of users that run handlers.
    pub workers: Arc<dyn Workers>,
}

/// A node without workers.
impl<F: Fetcher + 'static> From<Arc<F>> for Outside {
    fn from(fetcher: Arc<F>) -> Self {
        Self { fetcher, workers: Arc::new(NoWorkers) }
    }
}

/// Shards of a new data directory when nothing else is said: enough to spread over any machine's
/// cores, few enough that each flush and log segment concerns many entities.
pub const DEFAULT_SHARDS: u16 = 64;

impl NodeOptions {
    /// The defaults over `data`: every processor, 1 GiB for entities, `fsync`.
    #[must_use]
    pub fn new(data: PathBuf) -> Self {
        Self {
            data,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            shards: None,
            memory_bytes: 1 << 30,
            durability: Durability::Fsync,
            retention_ms: limits::IDEMPOTENCY_RETENTION_MS,
            queue_ms: limits::QUEUE_MS,
            keeps_objects: false,
            cluster: None,
            flush: FlushPolicy::default(),
            kept_log_bytes: limits::KEPT_LOG_BYTES,
            prints_calls: false,
            test_clock: None,
        }
    }
}
