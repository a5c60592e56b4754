//! What a shard is told once.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_base::{ShardId, limits};

use crate::results::ResultNames;

/// What a shard is told once.
#[derive(Clone, Debug)]
pub struct ShardOptions {
    /// Which shard it is.
    pub shard: ShardId,
    /// How many shards the data directory has.
    pub shard_count: u16,
    /// How long results of invocations are kept.
    pub retention_ms: u64,
    /// How results are named. The names stay the same as long as any result is kept, or what was done would be done
    /// again.
    pub result_names: ResultNames,
    /// Names this opening of the shard. No other opening of it, on whatever node, may have the same one: it keeps the ids of
    /// its transactions apart from theirs.
    pub incarnation: u64,
    /// The shards that write to the same log, this one included. Such a log is recovered up to some
    /// entry and no further. So an entry of theirs that comes after one of this shard's is not durable
    /// without it. Shards that fail alone have no mates.
    pub log_mates: Arc<BTreeSet<ShardId>>,
    /// `None`: all shards that this one talks to fail together with it. `Some`: each of them may fail alone. Then this shard
    /// promises others that what it holds locked stays unwritten for so long, even if it fails and is opened again. All
    /// shards that talk to each other must have the same value.
    pub hold_ms: Option<u64>,
    /// `durability = "none"`: an entry counts as durable as soon as it is made.
    pub is_durable_at_once: bool,
}

impl ShardOptions {
    /// For how long nothing that this shard has held locked may be written after it is gone. The clocks of two machines do not
    /// run at the same rate.
    #[must_use]
    pub fn held_ms(&self) -> Option<u64> {
        self.hold_ms.map(|hold_ms| hold_ms.saturating_add(hold_ms / limits::CLOCK_RATE_SHARE + 1))
    }
}
