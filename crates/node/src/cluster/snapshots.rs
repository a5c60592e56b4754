//! What the transfers of shards' rows find at a node: its checkpoint, its clock, and the way to its cores and to other nodes.
//! They run on the flusher's thread, behind the chunks that were handed to the checkpoint before.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millrace_base::{Lsn, ShardId};
use millrace_driver::{Carrier, Moved, SnapshotNews, SnapshotPart};
use millrace_io::{Random, RealRandom};
use millrace_peers::Lane;
use millrace_replica::NodeId;
use millrace_store::Checkpoint;

use super::Word;
use crate::core::{NodeMessage, Shared};

/// How often the transfers are to hear that time has passed while there are any.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

impl Carrier for Shared {
    fn checkpoint(&self) -> Arc<dyn Checkpoint> {
        Arc::clone(&self.checkpoint)
    }

    fn monotonic_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    fn draw(&self) -> u64 {
        RealRandom.next_u64()
    }

    /// Mail waits for everything else. What gets lost is asked for again.
    fn say(&self, to: NodeId, shard: ShardId, transfer: u64, part: SnapshotPart) {
        if let Some(cluster) = &self.cluster {
            cluster.send(to, Lane::Mail, &Word::Snapshot(shard, transfer, part));
        }
    }

    fn tell(&self, core: usize, news: SnapshotNews) {
        self.send(core, NodeMessage::Snapshot(news));
    }

    fn now_at(&self, shard: ShardId, lsn: Lsn) {
        if let Some(known) = self.checkpointed.get(usize::from(shard.0)) {
            known.store(lsn.0, Ordering::Release);
        }
    }

    fn note(&self, moved: Moved) {
        match moved {
            Moved::Sent(bytes) => self.replication.snapshot_sent_bytes.add(bytes as u64),
            Moved::Received(bytes) => self.replication.snapshot_received_bytes.add(bytes as u64),
            Moved::Whole => self.replication.snapshots_sent.increment(),
        }
    }
}
