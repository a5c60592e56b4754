//! Bugs planted on purpose, to see the checkers find them.
//!
//! All but the driver's lie in the simulator's own wrappers around the disk, the log, the checkpoint and the network. The
//! driver asks its platform whether one of its bugs is planted. The real platform has none, so the compiler drops their code.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use millrace_base::{ShardId, TransactionId, Value, ValueKind};
use millrace_driver::DriverBug;
use millrace_format::{Decision, Prepared, Write};
use millrace_io::{DirectoryEntry, Disk, DiskFile};
use millrace_shard::{PeerBody, PeerMessage};

use crate::core::LoggedEntry;
use crate::named::named;

named! {
    /// A bug to plant.
    pub enum PlantedBug {
        /// The log's fsync does nothing and succeeds.
        AcknowledgeBeforeFsync = "acknowledge-before-fsync",
        /// A failed fsync is tried again, and the second one succeeds.
        RetryFailedFsync = "retry-failed-fsync",
        /// Names of log files are never synced.
        SkipDirectorySync = "skip-directory-sync",
        /// Replies leave when their entry is made.
        ReplyBeforeDurable = "reply-before-durable",
        /// Replies leave one batch too early.
        ReplyAtWrongLsn = "reply-at-wrong-lsn",
        /// Only the first half of a transaction's writes reaches the log.
        ApplyHalfAnEntry = "apply-half-an-entry",
        /// The reply kept under an idempotency key is not logged.
        DropInvocationResult = "drop-outcome",
        /// What has arrived from another shard is not logged.
        DropReceived = "drop-received",
        /// The reply kept under an idempotency key, which ends duplicates, is logged in the next entry and
        /// not in that of the effect.
        DedupAfterEffect = "dedup-after-effect",
        /// The end of a message's row in the inbox is not logged.
        KeepInboxRow = "keep-inbox-row",
        /// Chunks are flushed before the log that they reflect is durable.
        FlushBeforeDurable = "flush-before-durable",
        /// A chunk is confirmed and never written.
        ConfirmUnwrittenChunk = "confirm-unwritten-chunk",
        /// Segments are deleted that no checkpoint covers.
        DeleteTooEarly = "delete-too-early",
        /// A batch that found the disk full is given up, and counts as written.
        ForgetBatchWhenFull = "forget-batch-when-full",
        /// A message is acknowledged to its sender when it is handed over.
        AcknowledgeOnDelivery = "acknowledge-on-delivery",
        /// That a transaction over several shards is committed is not logged.
        ForgetDecision = "forget-decision",
        /// Participants apply their prepared writes and let go of their locks once the decision is made, and not once
        /// it is durable.
        ReleaseBeforeDurable = "release-before-durable",
        /// What a shard is prepared to commit is not logged.
        ForgetPrepared = "forget-prepared",
        /// A commit is confirmed and not applied.
        ConfirmUnappliedCommit = "confirm-unapplied-commit",
        /// Who asks about an undecided transaction is told that it is aborted.
        AbortInDoubt = "abort-in-doubt",
        /// What a participant has committed alone is not noted.
        ForgetDelegated = "forget-delegated",
        /// What a participant has only read is not noted beside its prepared writes.
        ForgetPreparedReads = "forget-prepared-reads",
        /// All openings of a shard have one incarnation.
        ReuseIncarnation = "reuse-incarnation",
        /// All cores count from the same nonce.
        ShareNonces = "share-nonces",
        /// Nobody is told that a shard was opened again.
        OpeningUntold = "opening-untold",
        /// A row of a workflow's journal is logged in another one's place.
        JournalOutOfOrder = "journal-out-of-order",
        /// That a workflow has done something is logged without what it did.
        NoteBeforeEffect = "note-before-effect",
        /// What a workflow does is logged without that it was done.
        NoteAfterEffect = "note-after-effect",
        /// A shard does not log the result that it keeps of a workflow's call.
        ForgetKeptResult = "forget-kept-result",
        /// The replies kept under idempotency keys are kept for an hour, and not for a day.
        ForgetKeysTooEarly = "forget-keys-too-early",
        /// They are kept for weeks: who uses a key again is refused.
        KeepKeysTooLong = "keep-keys-too-long",
        /// A damaged log is taken for empty from the damage on.
        IgnoreDamage = "ignore-damage",
        /// The queue runs a request that it has refused for waiting too long.
        RunRefusedRequest = "run-refused-request",
        /// When a batch is durable, the entries that were made meanwhile count as durable too.
        CountNewEntriesAsDurable = "count-new-entries-as-durable",
        /// An acknowledgement of some messages is carried as one of all messages.
        AcknowledgeTooMuch = "acknowledge-too-much",
        /// What a worker says in an attempt that was voided counts for the attempt that was made instead.
        OldAttemptIsAnswer = "old-attempt-is-answer",
        /// Writes of a voided attempt count with the next one at the entity.
        KeepVoidWrites = "keep-void-writes",
        /// An OUTPUT that comes twice counts twice, with what was written before it.
        OutputCountsTwice = "output-counts-twice",
        /// A worker that says nothing keeps its attempts.
        SilenceIsIgnored = "silence-is-ignored",
    }
}

impl PlantedBug {
    /// The bug of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|bug| bug.name() == name)
    }

    /// Whether it shows only where handlers run in workers.
    #[must_use]
    pub fn is_of_workers(self) -> bool {
        matches!(
            self,
            PlantedBug::OldAttemptIsAnswer
                | PlantedBug::KeepVoidWrites
                | PlantedBug::OutputCountsTwice
                | PlantedBug::SilenceIsIgnored
        )
    }

    /// The bug of the driver that this is, if it is one.
    #[must_use]
    pub fn of_driver(self) -> Option<DriverBug> {
        match self {
            PlantedBug::RunRefusedRequest => Some(DriverBug::RunRefusedRequest),
            PlantedBug::CountNewEntriesAsDurable => Some(DriverBug::CountNewEntriesAsDurable),
            PlantedBug::AcknowledgeTooMuch => Some(DriverBug::AcknowledgeTooMuch),
            _ => None,
        }
    }

    /// What reaches the log of an entry.
    #[must_use]
    pub fn log(bug: Option<PlantedBug>, entry: &LoggedEntry) -> LoggedEntry {
        let mut logged = entry.clone();
        let drop_internal = |logged: &mut LoggedEntry, service: &str, is_deletion: bool| {
            let is_it = |write: &Write| {
                write.entity.is_internal()
                    && write.entity.parts().service == service
                    && write.value.is_none() == is_deletion
            };
            logged.writes.retain(|write| !is_it(write));
        };
        match bug {
            Some(PlantedBug::ApplyHalfAnEntry) => {
                let user: Vec<bool> = logged.writes.iter().map(|write| !write.entity.is_internal()).collect();
                if user.iter().filter(|is_user| **is_user).count() > 2 {
                    logged.writes.truncate(2);
                }
            }
            Some(PlantedBug::JournalOutOfOrder) => {
                for write in logged.writes.iter_mut().filter(|write| is_bookkeeping(write, "journal")) {
                    if let Some(last) = write.field.last_mut().filter(|_| write.value.is_some()) {
                        *last ^= 1;
                    }
                }
            }
            Some(PlantedBug::NoteBeforeEffect)
                if logged.writes.iter().any(|write| is_bookkeeping(write, "journal")) =>
            {
                logged.writes.retain(|write| write.entity.is_internal());
            }
            Some(PlantedBug::NoteAfterEffect) => drop_internal(&mut logged, "journal", false),
            Some(PlantedBug::ForgetKeptResult) => {
                let is_kept = |write: &Write| is_bookkeeping(write, "outcome") && write.field.first() == Some(&b's');
                logged.writes.retain(|write| !(is_kept(write) && write.value.is_some()));
            }
            Some(PlantedBug::DropInvocationResult) => drop_internal(&mut logged, "outcome", false),
            Some(PlantedBug::DropReceived) => drop_internal(&mut logged, "received", false),
            Some(PlantedBug::ForgetDecision) => drop_internal(&mut logged, "decision", false),
            Some(PlantedBug::ForgetDelegated) => drop_internal(&mut logged, "delegated", false),
            Some(PlantedBug::ForgetPreparedReads) => {
                for write in logged.writes.iter_mut().filter(|write| is_bookkeeping(write, "prepared")) {
                    let prepared = write.value.as_ref().and_then(|value| Prepared::decode(value.content()).ok());
                    if let Some(prepared) = prepared {
                        let bytes = Prepared { reads: Vec::new(), ..prepared }.encode();
                        write.value = Some(Value::new(ValueKind::Bytes, &bytes));
                    }
                }
            }
            Some(PlantedBug::ForgetPrepared) => drop_internal(&mut logged, "prepared", false),
            Some(PlantedBug::KeepInboxRow) => drop_internal(&mut logged, "inbox", true),
            _ => {}
        }
        logged
    }

    /// What participants are told too early: when the entry with the decision is made.
    #[must_use]
    pub fn early_commits(bug: Option<PlantedBug>, entry: &LoggedEntry) -> Vec<(ShardId, PeerMessage)> {
        let mut told = Vec::new();
        if bug != Some(PlantedBug::ReleaseBeforeDurable) {
            return told;
        }
        for write in entry.writes.iter().filter(|write| is_bookkeeping(write, "decision")) {
            let id = TransactionId::from_bytes(&write.field);
            let decision = write.value.as_ref().and_then(|value| Decision::decode(value.content()).ok());
            if let (Some(transaction), Some(decision)) = (id, decision) {
                let message = PeerMessage { from: entry.shard, transaction, body: PeerBody::Commit };
                told.extend(decision.participants.into_iter().map(|participant| (participant, message.clone())));
            }
        }
        told
    }
}

/// Writes that are logged one entry too late.
#[derive(Default)]
pub struct Late(BTreeMap<ShardId, Vec<Write>>);

impl Late {
    /// What reaches the log of an entry.
    #[must_use]
    pub fn log(&mut self, bug: Option<PlantedBug>, entry: &LoggedEntry) -> LoggedEntry {
        let mut logged = PlantedBug::log(bug, entry);
        if bug == Some(PlantedBug::DedupAfterEffect) {
            let is_kept = |write: &mut Write| is_bookkeeping(write, "outcome") && write.value.is_some();
            let late = logged.writes.extract_if(.., is_kept).collect();
            logged.writes.extend(self.0.insert(entry.shard, late).unwrap_or_default());
        }
        logged
    }
}

fn is_bookkeeping(write: &Write, service: &str) -> bool {
    write.entity.is_internal() && write.entity.parts().service == service
}

/// A disk with a bug in how the log uses it.
pub struct BuggyDisk {
    pub disk: Arc<dyn Disk>,
    pub bug: Option<PlantedBug>,
}

struct BuggyFile {
    file: Arc<dyn DiskFile>,
    bug: Option<PlantedBug>,
}

impl BuggyDisk {
    fn wrap(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(BuggyFile { file, bug: self.bug })
    }
}

impl Disk for BuggyDisk {
    fn create_directory(&self, path: &str) -> io::Result<()> {
        self.disk.create_directory(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<DirectoryEntry>> {
        self.disk.list(path)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(self.disk.open(path)?))
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(self.disk.create(path)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        if self.bug == Some(PlantedBug::SkipDirectorySync) { Ok(()) } else { self.disk.sync_directory(path) }
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn available_bytes(&self) -> io::Result<u64> {
        self.disk.available_bytes()
    }
}

impl DiskFile for BuggyFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.bug {
            Some(PlantedBug::AcknowledgeBeforeFsync) => Ok(()),
            Some(PlantedBug::RetryFailedFsync) => self.file.sync_data().or_else(|_| self.file.sync_data()),
            _ => self.file.sync_data(),
        }
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.allocate(offset, length)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}
