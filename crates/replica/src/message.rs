//! What replicas of one shard say to each other. `docs/internals/replication.md` has the byte tables and says which role
//! answers what.

use bytes::Bytes;
use millrace_base::Lsn;

use crate::ids::{EntryId, Epoch, Promised};
use crate::replica_set::ReplicaSet;

/// What an entry's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKind {
    /// What the shard made: see `format::Entry`.
    Data,
    /// The first entry of an epoch. It has no bytes. Once it is committed, so is everything before it.
    EpochStart,
    /// The replica set from here on: see [`ReplicaSet`].
    ReplicaSet,
}

/// An entry of the log, with a handle to its bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogEntry {
    /// Its name.
    pub id: EntryId,
    /// What its bytes are.
    pub kind: EntryKind,
    /// Its payload.
    pub bytes: Bytes,
}

/// One message between two replicas of a shard. The receiver knows who sent it: connections are authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// Owner to replicas: entries after `prev`, or none: a heartbeat.
    Append {
        /// The owner's epoch.
        epoch: Epoch,
        /// The round of heartbeats in which it leaves. The answer repeats it.
        round: u64,
        /// Whether accepting it grants the owner a lease. If not, an earlier grant ends.
        asks_lease: bool,
        /// Everything up to here is committed.
        committed: Lsn,
        /// The entry before the first of `entries`.
        prev: EntryId,
        /// Entries without gaps.
        entries: Vec<LogEntry>,
    },
    /// Replica to owner: my log equals yours up to `durable`, on my disk.
    Ack {
        /// The owner's epoch.
        epoch: Epoch,
        /// The last round that the replica heard.
        round: u64,
        /// Cumulative.
        durable: Lsn,
    },
    /// Replica to owner: I do not hold the entry before yours.
    Lacks {
        /// The owner's epoch.
        epoch: Epoch,
        /// The last round that the replica heard.
        round: u64,
        /// The last entry that both logs may hold.
        have: EntryId,
    },
    /// Replica to whoever is of a lower epoch: I have promised a higher one.
    Refusal {
        /// What was promised.
        promised: Promised,
    },
    /// Candidate to voters: promise to refuse all epochs below mine.
    PromiseRequest {
        /// The candidate's epoch.
        epoch: Epoch,
    },
    /// Voter to candidate: I have promised, on my disk, and no lease that I granted another node runs.
    Promise {
        /// The candidate's epoch.
        epoch: Epoch,
        /// The last entry of the voter's log.
        last: EntryId,
        /// Where the replica set in force there stands.
        set_lsn: Lsn,
        /// The replica set in force there.
        set: ReplicaSet,
    },
    /// Candidate to the voter with the highest log: send me what comes after.
    Fetch {
        /// The candidate's epoch.
        epoch: Epoch,
        /// The last entry that both logs may hold.
        after: EntryId,
    },
    /// Voter to candidate: my log after `prev`.
    Entries {
        /// The candidate's epoch.
        epoch: Epoch,
        /// The entry before the first of `entries`.
        prev: EntryId,
        /// Entries without gaps.
        entries: Vec<LogEntry>,
    },
    /// Voter to candidate: what you ask for is only in my checkpoint.
    Trimmed {
        /// The candidate's epoch.
        epoch: Epoch,
    },
    /// Owner to replica: the snapshot that came before this message holds everything up to `at`.
    Snapshot {
        /// The owner's epoch.
        epoch: Epoch,
        /// The round of heartbeats in which it leaves.
        round: u64,
        /// The last entry that the snapshot reflects.
        at: EntryId,
        /// Where the replica set in force at `at` stands.
        set_lsn: Lsn,
        /// The replica set in force at `at`.
        set: ReplicaSet,
    },
    /// Whoever would nominate itself to voters: would you promise me this epoch?
    PreVote {
        /// The epoch that the sender would take.
        epoch: Epoch,
    },
    /// The answer to [`Message::PreVote`].
    PreVoteReply {
        /// The epoch asked about.
        epoch: Epoch,
        /// Yes or no.
        is_granted: bool,
    },
    /// A replica that may lack entries to all others: what do you know?
    Resync {
        /// Drawn at the asker's start, so that no earlier answer counts.
        nonce: u64,
    },
    /// The answer to [`Message::Resync`].
    ResyncAnswer {
        /// The asker's nonce.
        nonce: u64,
        /// The highest promise of the answerer.
        promised: Promised,
        /// The last entry of its log, if it is the owner of that epoch.
        owner_last: Option<EntryId>,
        /// The replica set in force in its log.
        set: ReplicaSet,
    },
}
