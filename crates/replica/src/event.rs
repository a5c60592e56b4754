//! What goes into a replica and what comes out.

use bytes::Bytes;
use millrace_base::Lsn;

use crate::ids::{EntryId, Epoch, NodeId, Promised};
use crate::message::{LogEntry, Message};
use crate::replica_set::{Change, ReplicaSet};

/// One input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A message came from a peer whose identity is proved.
    Received {
        /// Who sent it.
        from: NodeId,
        /// What it says.
        message: Message,
    },
    /// The owner's shard made an entry. It is sent when the round ends.
    Submit {
        /// The position after the last one.
        lsn: Lsn,
        /// Its payload.
        bytes: Bytes,
    },
    /// The round of the core ends: what was submitted leaves.
    RoundEnded,
    /// All writes up to this number are durable.
    Written {
        /// The number that came with the write.
        up_to: u64,
    },
    /// Time has passed. Comes at least each [`crate::Settings::heartbeat_ns`].
    Tick,
    /// This node is to own the shard in this epoch. Repeated while that is so.
    Appoint {
        /// An epoch that no other node was ever appointed to.
        epoch: Epoch,
    },
    /// Another node is to take over soon: the owner gives up its lease and takes no more entries.
    HandOver,
    /// The replica set is to change by an entry at the owner.
    ChangeSet {
        /// The position after the last one.
        lsn: Lsn,
        /// One step.
        change: Change,
    },
    /// Entries that [`Command::ReadLog`] asked for.
    LogRead {
        /// For whom.
        to: NodeId,
        /// The entry before the first.
        after: EntryId,
        /// Entries without gaps, at least one.
        entries: Vec<LogEntry>,
    },
    /// A snapshot has been carried to a replica; all but its last message.
    SnapshotShipped {
        /// To whom.
        to: NodeId,
        /// Everything up to here is in it. Committed, and not below what [`Command::ShipSnapshot`] asked for.
        at: Lsn,
    },
    /// A snapshot could not be carried.
    SnapshotFailed {
        /// To whom.
        to: NodeId,
    },
    /// The log holds entries up to here no more: a checkpoint does.
    Trim {
        /// At most the committed position.
        up_to: Lsn,
    },
    /// The shard of a deposed owner has been forgotten, and is ready to be opened again.
    Reopened,
}

/// One output. Commands are obeyed in their order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Send a message. It may get lost.
    Send {
        /// To whom.
        to: NodeId,
        /// What.
        message: Message,
    },
    /// Write to the shard's log. [`Event::Written`] says when it is durable. Writes become durable in the order of their
    /// numbers.
    Write {
        /// One more than the last.
        number: u64,
        /// What.
        write: Write,
    },
    /// All entries up to here are committed.
    Committed {
        /// The position.
        lsn: Lsn,
    },
    /// Reads that waited for this round may ask again whether they may leave.
    Confirmed {
        /// The round.
        round: u64,
    },
    /// This node owns the shard: open it from the checkpoint and the log, all of which is committed.
    Serve {
        /// The epoch.
        epoch: Epoch,
        /// The last entry: the next one has the next LSN.
        last: Lsn,
    },
    /// This node no longer owns the shard. Nothing of what waits may be answered as done. The shard in memory may hold
    /// entries that will never be: forget it, then say [`Event::Reopened`].
    GiveUp {
        /// The epoch that ended for this node.
        epoch: Epoch,
    },
    /// The owner of that epoch gives nothing on its lease any more: whoever is to own the shard next may take it.
    Released {
        /// The owner's epoch.
        epoch: Epoch,
    },
    /// Read entries for a peer, as many as fit in `bytes` and at least one.
    ReadLog {
        /// For whom.
        to: NodeId,
        /// The entry before the first.
        after: EntryId,
        /// How much.
        bytes: usize,
    },
    /// Carry a snapshot to a replica.
    ShipSnapshot {
        /// To whom.
        to: NodeId,
        /// It has to hold everything up to here.
        at_least: Lsn,
    },
    /// A learner has caught up: it may be promoted.
    CaughtUp {
        /// Which.
        learner: NodeId,
    },
    /// The appointment cannot be followed: a higher epoch, or this one, was promised already.
    EpochTaken {
        /// What was promised.
        promised: Promised,
    },
    /// The appointment cannot be followed: this node lacks entries that `best` has in its checkpoint only.
    AppointInstead {
        /// Who should be appointed.
        best: NodeId,
    },
    /// This replica held less than it had acknowledged, and holds everything again: clear the mark on the disk.
    Whole,
    /// The shard's log contradicts what is committed. Stop the shard: going on would spread the damage.
    Broken {
        /// What contradicts.
        reason: &'static str,
    },
}

/// A write to the shard's log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// Entries after the last one.
    Append(Vec<LogEntry>),
    /// Entries after this position are cut off.
    Cut {
        /// The last one that stays.
        after: Lsn,
    },
    /// A promise.
    Promise(Promised),
    /// All entries up to here are committed. A start may apply them.
    CommitNote(Lsn),
    /// The log begins anew after a snapshot.
    Reset {
        /// The last entry that the snapshot reflects.
        at: EntryId,
        /// Where the replica set in force there stands.
        set_lsn: Lsn,
        /// The replica set in force there.
        set: ReplicaSet,
    },
}
