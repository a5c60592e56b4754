//! What comes from other nodes, on its way to the core that it is for. Called from the thread of the links.

use std::sync::Arc;

use bytes::Bytes;
use millrace_base::ShardId;
use millrace_driver::{CoreMessage, Frame, SnapshotPart, TransferJob};
use millrace_guidance::Guidance;
use millrace_peers::{Handler, Lane, LinkEvent};
use millrace_replica::NodeId;

use super::standstill;
use super::wire::For;
use super::{Cluster, Heard, Proposal, Word};
use crate::backup;
use crate::core::{NodeMessage, Shared};

/// Where links put what they bring.
#[derive(Clone)]
pub(crate) struct Inbound {
    shared: Arc<Shared>,
    cluster: Arc<Cluster>,
}

impl Inbound {
    pub(crate) fn new(shared: Arc<Shared>, cluster: Arc<Cluster>) -> Self {
        Self { shared, cluster }
    }

    /// Before the first link: no other node can be reached.
    pub(crate) fn begin(&self) {
        for other in self.cluster.others(&Guidance::default()) {
            self.tell_cores(|| NodeMessage::PeerLink { node: other.node, is_up: false });
        }
    }

    fn tell_cores(&self, message: impl Fn() -> NodeMessage) {
        for core in 0..self.shared.cores.len() {
            self.shared.send(core, message());
        }
    }

    /// Hands on a word. `None`: it contradicts itself.
    fn word(&self, from: NodeId, word: Word) -> Option<()> {
        match word {
            Word::Replica(shard, message) => {
                self.shared.send(self.shared.core_of(shard), NodeMessage::Replica { shard, from, message });
            }
            Word::Frame(cores, Frame::Message(message)) => return self.message(from, cores, message),
            Word::Frame(_, Frame::Mail(mail)) => {
                self.shared.post(self.shared.core_of(mail.shard()), mail);
            }
            Word::Snapshot(shard, transfer, part) => self.snapshot(from, shard, transfer, part),
            Word::Status(status) => self.cluster.heard(from, Heard::Status(Box::new(status))),
            Word::Change(number, change) => self.cluster.proposed(Proposal { from: (from, number), change }),
            Word::Answer(number, result) => self.cluster.answered(number, result),
            Word::Still(number, word) => standstill::heard(&self.shared, &self.cluster, from, number, word),
            Word::Copy(number, word) => backup::heard(&self.shared, &self.cluster, from, number, word),
            Word::Body(name, question, word) => {
                if let Some(carrier) = &self.shared.carrier {
                    carrier.heard(from, name, question, word);
                }
            }
        }
        Some(())
    }

    /// The core decides about an offer, as it has to let go of the shard's state. The rest concerns the flusher alone.
    fn snapshot(&self, from: NodeId, shard: ShardId, transfer: u64, part: SnapshotPart) {
        if shard.0 > self.shared.shard_count() {
            return;
        }
        match part {
            SnapshotPart::Offer { at } => {
                let offered = NodeMessage::Offered { shard, from, transfer, at };
                self.shared.send(self.shared.core_of(shard), offered);
            }
            part => self.shared.flusher.snapshot(TransferJob::Heard { from, shard, transfer, part }),
        }
    }

    fn message(&self, sender: NodeId, cores: For, message: CoreMessage) -> Option<()> {
        let core = match (&message, cores) {
            // Else its reply would go to somebody who has not asked.
            (CoreMessage::Request { from, .. }, _) if from.node != sender => return None,
            (CoreMessage::Request { job, .. }, For::Shard) => job.shard().map_or(0, |shard| self.shared.core_of(shard)),
            (CoreMessage::Peer { to, .. } | CoreMessage::Detour { to, .. }, _) => self.shared.core_of(*to),
            (_, For::Core(core)) => usize::from(core),
            (_, For::Every) => {
                for core in 0..self.shared.cores.len() {
                    self.shared.send(core, NodeMessage::OfCore(message.clone()));
                }
                return Some(());
            }
            (_, For::Shard) => return None,
        };
        (core < self.shared.cores.len()).then(|| {
            self.shared.send(core, NodeMessage::OfCore(message));
        })
    }
}

impl Handler for Inbound {
    fn received(&self, from: NodeId, _lane: Lane, message: Bytes) {
        let handed = Word::decode(&message).and_then(|word| self.word(from, word));
        if handed.is_none() {
            tracing::warn!(node = from.0, bytes = message.len(), "another node said something that is not understood");
        }
    }

    fn settled(&self, _from: NodeId) {}

    fn changed(&self, node: NodeId, event: LinkEvent) {
        match event {
            LinkEvent::Up { .. } => {
                self.tell_cores(|| NodeMessage::PeerLink { node, is_up: true });
                if let Some(carrier) = &self.shared.carrier {
                    carrier.look();
                }
            }
            LinkEvent::Down => {
                self.cluster.heard(node, Heard::Unlinked);
                self.tell_cores(|| NodeMessage::PeerLink { node, is_up: false });
            }
            LinkEvent::Restarted { .. } => {
                self.cluster.heard(node, Heard::Unlinked);
                self.tell_cores(|| NodeMessage::PeerRestarted { node });
            }
            LinkEvent::Removed => self.cluster.told_removed(node, self.shared.clock.monotonic_ns()),
        }
    }
}
