//! A machine for tests of one node, where no faults are drawn.

use std::sync::Arc;

use millrace_io::Clock;
use millrace_shard::ResultNames;
use millrace_store::MemoryCheckpoint;

use super::Machine;
use crate::disk::SimDisk;
use crate::random::SimRandom;

impl Machine {
    /// An empty machine of two shards on which nothing goes wrong. Its handlers run in the node.
    #[must_use]
    pub fn quiet(clock: Arc<dyn Clock>) -> Self {
        Self {
            disk: SimDisk::new(1),
            checkpoint: Arc::new(MemoryCheckpoint::new()),
            clock,
            random: Arc::new(SimRandom::new(2)),
            shard_count: 2,
            result_names: ResultNames::Plain,
            workers: None,
            bug: None,
        }
    }
}
