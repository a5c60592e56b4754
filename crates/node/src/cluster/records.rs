//! What replicas write, as records of the log.

use millrace_base::ShardId;
use millrace_format::{ReplicaEntryKind, ReplicaRecord};
use millrace_log::{Batch, ReplicaEntry};
use millrace_replica::{EntryId, EntryKind, Epoch, LogEntry, Replica, Write};

/// Adds a write to a batch.
pub(crate) fn push(batch: &mut Batch, shard: ShardId, write: &Write) {
    match write {
        Write::Append(entries) => {
            for LogEntry { id, kind, bytes } in entries {
                let kind = kind_of(*kind);
                batch.push_record(shard, &ReplicaRecord::Entry { epoch: id.epoch.0, lsn: id.lsn, kind, bytes });
            }
        }
        Write::Cut { after } => batch.push_record(shard, &ReplicaRecord::Cut { after: *after }),
        Write::Promise(promised) => {
            batch.push_record(shard, &ReplicaRecord::Promise { epoch: promised.epoch.0, node: promised.to.0 });
        }
        Write::CommitNote(lsn) => batch.push_record(shard, &ReplicaRecord::CommitNote { lsn: *lsn }),
        Write::Reset { at, set_lsn, set } => {
            let set = set.encode();
            let record = ReplicaRecord::Reset { at_epoch: at.epoch.0, at_lsn: at.lsn, set_lsn: *set_lsn, set: &set };
            batch.push_record(shard, &record);
        }
    }
}

/// Adds what a start has to know of a replica beside its entries.
pub(crate) fn push_base(batch: &mut Batch, shard: ShardId, replica: &Replica) {
    let (log, promised) = (replica.log(), replica.promised());
    let (set_lsn, set) = log.committed_set();
    let set = set.encode();
    let record = ReplicaRecord::Base {
        promised_epoch: promised.epoch.0,
        promised_node: promised.to.0,
        base_epoch: log.base().epoch.0,
        base_lsn: log.base().lsn,
        set_lsn: *set_lsn,
        set: &set,
        committed: log.committed(),
        is_whole: replica.is_whole(),
    };
    batch.push_record(shard, &record);
}

fn kind_of(kind: EntryKind) -> ReplicaEntryKind {
    match kind {
        EntryKind::Data => ReplicaEntryKind::Data,
        EntryKind::EpochStart => ReplicaEntryKind::EpochStart,
        EntryKind::ReplicaSet => ReplicaEntryKind::ReplicaSet,
    }
}

/// What an entry of the log is to a replica.
pub(crate) fn kind_of_record(kind: ReplicaEntryKind) -> EntryKind {
    match kind {
        ReplicaEntryKind::Data => EntryKind::Data,
        ReplicaEntryKind::EpochStart => EntryKind::EpochStart,
        ReplicaEntryKind::ReplicaSet => EntryKind::ReplicaSet,
    }
}

/// An entry as a replica knows it.
pub(crate) fn entry_of(entry: ReplicaEntry) -> LogEntry {
    let kind = kind_of_record(entry.kind);
    LogEntry { id: EntryId::new(Epoch(entry.epoch), entry.lsn), kind, bytes: entry.bytes.into() }
}
