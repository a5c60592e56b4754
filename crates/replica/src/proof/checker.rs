//! The promises, and what they are checked against: everything that ever happened in one world.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_base::Lsn;

use super::disk::Disk;
use crate::ids::{EntryId, Epoch, NodeId};
use crate::message::{LogEntry, Message};
use crate::shard_log::{Leaving, Proof};

/// A request of a client that waits at its owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    /// The last entry that it wrote or saw.
    pub saw: EntryId,
    pub proof: Proof,
    /// The last write that had been acknowledged, to anybody, when a read began.
    pub floor: Lsn,
}

/// What has happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Checker {
    /// Every committed entry, from position 1.
    committed: Vec<LogEntry>,
    /// What every entry that ever was followed, and its payload.
    made: BTreeMap<EntryId, (EntryId, Bytes)>,
    served: BTreeMap<Epoch, NodeId>,
    /// The highest epoch in which a node has promised or acknowledged anything.
    spoke: BTreeMap<NodeId, Epoch>,
    /// The highest acknowledged write.
    pub acknowledged: Lsn,
    /// The first broken promise.
    pub broken: Option<String>,
}

impl Checker {
    fn claim(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.broken.is_none() {
            self.broken = Some(what());
        }
    }

    pub fn committed(&self) -> Lsn {
        Lsn(self.committed.len() as u64)
    }

    /// Logs match: an entry of one name has one payload and one predecessor, wherever it is.
    pub fn appended(&mut self, before: EntryId, entries: &[LogEntry]) {
        let mut prev = before;
        for entry in entries {
            let made = self.made.entry(entry.id).or_insert_with(|| (prev, entry.bytes.clone())).clone();
            let is_same = made == (prev, entry.bytes.clone());
            self.claim(is_same, || format!("two entries of one name: {:?} after {prev:?}, once {made:?}", entry.id));
            prev = entry.id;
        }
    }

    /// What is committed is never lost or changed: every node that calls entries committed has the same.
    pub fn commits(&mut self, node: NodeId, image: &Disk, upto: Lsn) {
        for lsn in image.base.lsn.0 + 1..=upto.0 {
            let Some(entry) = image.entry(Lsn(lsn)).cloned() else {
                self.claim(false, || format!("node {node} calls {lsn} committed and does not have it"));
                return;
            };
            match usize::try_from(lsn - 1).ok().and_then(|index| self.committed.get(index)).cloned() {
                Some(known) => self.claim(known == entry, || {
                    format!("node {node} calls {:?} committed, which was {:?}", entry.id, known.id)
                }),
                None => {
                    let follows = self.committed() == Lsn(lsn - 1);
                    self.claim(follows, || format!("node {node} calls {lsn} committed before what precedes it"));
                    self.committed.push(entry);
                }
            }
        }
    }

    /// One owner at most acts in each epoch, and what it acts on holds everything committed.
    pub fn serves(&mut self, node: NodeId, epoch: Epoch, image: &Disk) {
        let owner = *self.served.entry(epoch).or_insert(node);
        self.claim(owner == node, || format!("nodes {owner} and {node} serve in epoch {epoch}"));
        // An owner that learns late that its epoch has begun may find a later epoch's entries committed.
        let before = self.committed.iter().rev().find(|entry| entry.id.epoch < epoch).cloned();
        let holds = before
            .as_ref()
            .is_none_or(|entry| entry.id.lsn <= image.base.lsn || image.entry(entry.id.lsn) == Some(entry));
        self.claim(holds, || format!("node {node} serves without the committed {:?}", before.map(|entry| entry.id)));
    }

    /// A node says nothing in an epoch below one that it has promised, and acknowledges only what its disk holds.
    pub fn says(&mut self, node: NodeId, message: &Message, disk: &Disk) {
        let epoch = match message {
            Message::Ack { epoch, durable, .. } => {
                let last = disk.last().lsn;
                self.claim(*durable <= last, || format!("node {node} acknowledges {durable}, its disk ends at {last}"));
                *epoch
            }
            Message::Promise { epoch, .. } => *epoch,
            _ => return,
        };
        let spoke = self.spoke.entry(node).or_default();
        let before = *spoke;
        *spoke = before.max(epoch);
        self.claim(epoch >= before, || format!("node {node} speaks in epoch {epoch} after {before}"));
        self.claim(disk.promised.epoch >= epoch, || {
            format!("node {node} speaks in epoch {epoch} before it is durable")
        });
    }

    /// Nodes refuse a message of more entries than this: what is sent in it never comes.
    pub fn fits(&mut self, node: NodeId, message: &Message, most: usize) {
        if let Message::Append { entries, .. } | Message::Entries { entries, .. } = message {
            self.claim(entries.len() <= most, || format!("node {node} sends {} entries at once", entries.len()));
        }
    }

    /// Replies leave in the right order: a write when it is committed for ever, a read if it saw all that was acknowledged
    /// before it began.
    pub fn leaves(&mut self, node: NodeId, waiting: &Waiting, leaving: Leaving) {
        if leaving != Leaving::Now {
            return;
        }
        let saw = waiting.saw;
        let known = usize::try_from(saw.lsn.0).ok().and_then(|lsn| self.committed.get(lsn.checked_sub(1)?)).cloned();
        let is_committed = known.as_ref().is_some_and(|entry| entry.id == saw);
        self.claim(is_committed, || {
            format!("node {node} answers with {saw:?}; committed is {:?}", known.map(|e| e.id))
        });
        match waiting.proof {
            Proof::Entry { .. } => self.acknowledged = self.acknowledged.max(saw.lsn),
            Proof::Read(_) => self.claim(saw.lsn >= waiting.floor, || {
                format!("node {node} answers a read with {}, after {} was acknowledged", saw.lsn, waiting.floor)
            }),
        }
    }
}
