//! A simulated cluster: several nodes with the shipped driver in its replicated mode, the network between them, and faults.
//! Guidance is played by the harness: an oracle that gives new epochs.
//!
//! The log of a core is a list of records of which a first part is durable. `docs/internals/simulation.md` has the rest.

mod backup;
mod carrier;
mod clients;
mod faults;
mod flows;
mod links;
mod node;
mod oracle;
mod owners;
mod platform;
mod world;

use std::collections::BTreeMap;
use std::fmt;

use millrace_driver::DriverBug;

use crate::named::named;

pub use world::{About, Plan, World};

named! {
    /// A bug to plant in every node of a cluster.
    pub enum ClusterBug {
        /// Replies leave without a look at the lease.
        ReplyWithoutLease = "reply-without-lease",
        /// A shard hears that an entry is durable before a majority has it.
        DurableBeforeQuorum = "durable-before-quorum",
        /// Followers apply what is not committed.
        ApplyUncommitted = "apply-uncommitted",
        /// The shard of a deposed owner is opened again with all that it had made.
        KeepMemory = "keep-memory",
        /// A request that goes back as not here runs all the same.
        RunNotHere = "run-not-here",
        /// Nobody hears that a shard was opened again.
        OpeningUntold = "opening-untold",
        /// No shard hears that what it says to others takes another way from now on.
        DetourUntold = "detour-untold",
        /// A request that waits for the next owner of its shard runs at this one all the same.
        RunHandedOn = "run-handed-on",
        /// What a shard says to one that its node does not know yet is lost.
        ForgetForUnknown = "forget-for-unknown",
        /// A reply of another node goes to another request that waits for one.
        MisdirectReplies = "misdirect-replies",
        /// An owner leads without the promises of a majority.
        LeadAlone = "lead-alone",
        /// An entry is committed only when all voters have it.
        WaitForAll = "wait-for-all",
        /// A shard is handed on with what it has locked.
        HandOnLocked = "hand-on-locked",
        /// A shard that was let go of speaks on.
        SpeakHandedOn = "speak-handed-on",
        /// Shards that stand still add entries all the same.
        AddWhileStill = "add-while-still",
        /// A node is copied before it has all that the others have.
        CopyTooEarly = "copy-too-early",
        /// Shards have the time of the node that they are on, though they have used a later one.
        UnclampedTime = "unclamped-time",
        /// An acknowledgement of some messages is carried as one of all messages.
        AcknowledgeTooMuch = "acknowledge-too-much",
        /// A part of a snapshot that comes twice counts as the one after it, too.
        CountPartTwice = "count-part-twice",
        /// A snapshot counts as one that holds an entry more than it does.
        SnapshotAhead = "snapshot-ahead",
        /// A lease runs from the receipt of its grant.
        LeaseFromReceipt = "lease-from-receipt",
        /// An entry of an earlier epoch is committed because a majority holds it.
        CommitOldEpoch = "commit-old-epoch",
    }
}

impl ClusterBug {
    /// The bug of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|bug| bug.name() == name)
    }

    pub(crate) fn of_driver(self) -> Option<DriverBug> {
        match self {
            ClusterBug::ReplyWithoutLease => Some(DriverBug::ReplyWithoutLease),
            ClusterBug::DurableBeforeQuorum => Some(DriverBug::DurableBeforeQuorum),
            ClusterBug::ApplyUncommitted => Some(DriverBug::ApplyUncommitted),
            ClusterBug::KeepMemory => Some(DriverBug::KeepMemory),
            ClusterBug::RunNotHere => Some(DriverBug::RunNotHere),
            ClusterBug::OpeningUntold => Some(DriverBug::OpeningUntold),
            ClusterBug::DetourUntold => Some(DriverBug::DetourUntold),
            ClusterBug::RunHandedOn => Some(DriverBug::RunHandedOn),
            ClusterBug::HandOnLocked => Some(DriverBug::HandOnLocked),
            ClusterBug::SpeakHandedOn => Some(DriverBug::SpeakHandedOn),
            ClusterBug::AddWhileStill => Some(DriverBug::AddWhileStill),
            ClusterBug::MisdirectReplies => Some(DriverBug::MisdirectReplies),
            ClusterBug::ForgetForUnknown => Some(DriverBug::ForgetForUnknown),
            ClusterBug::AcknowledgeTooMuch => Some(DriverBug::AcknowledgeTooMuch),
            ClusterBug::UnclampedTime => Some(DriverBug::UnclampedTime),
            ClusterBug::CountPartTwice => Some(DriverBug::CountPartTwice),
            ClusterBug::SnapshotAhead => Some(DriverBug::SnapshotAhead),
            ClusterBug::CopyTooEarly
            | ClusterBug::LeaseFromReceipt
            | ClusterBug::CommitOldEpoch
            | ClusterBug::LeadAlone
            | ClusterBug::WaitForAll => None,
        }
    }

    fn of_replica(self) -> Option<millrace_replica::Bug> {
        match self {
            ClusterBug::LeaseFromReceipt => Some(millrace_replica::Bug::LeaseFromReceipt),
            ClusterBug::CommitOldEpoch => Some(millrace_replica::Bug::CommitOldEpoch),
            ClusterBug::LeadAlone => Some(millrace_replica::Bug::LeadAlone),
            ClusterBug::WaitForAll => Some(millrace_replica::Bug::WaitForAll),
            _ => None,
        }
    }
}

/// How often each thing has happened, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// Something has happened so many times.
    pub fn note(&mut self, what: &'static str, times: u64) {
        *self.0.entry(what).or_default() += times;
    }

    /// How often it has happened.
    #[must_use]
    pub fn times(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    /// Adds another run's, and in how many runs each has happened.
    pub fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, times)| self.note(what, *times));
    }

    /// Notes each thing once that has happened in a run.
    pub fn add_run(&mut self, other: &Self) {
        other.0.iter().filter(|(_, times)| **times > 0).for_each(|(what, _)| self.note(what, 1));
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(|(what, times)| format!("{what} {times}")).collect();
        formatter.write_str(&lines.join(", "))
    }
}
