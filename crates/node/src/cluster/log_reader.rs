//! Reads the log of replicas while the node runs: for peers that lack entries, and for a shard whose state is read again.
//! Called from the flusher's thread, which may wait for the disk.

use std::sync::Arc;

use millrace_base::limits::APPEND_ENTRIES;
use millrace_base::{Lsn, ShardId};
use millrace_io::{Random, RealRandom};
use millrace_replica::{EntryId, LogEntry};
use millrace_shard::open_store;
use millrace_store::Store;

use super::records::entry_of;
use super::replay_one;
use crate::core::Shared;

/// Bytes read at once when a state is read again.
const REOPEN_BYTES: usize = 1 << 20;

/// What tells the entries of a log from others that were cut off.
pub(crate) struct Runs {
    /// The first entry of each epoch, ascending.
    pub runs: Vec<(u64, Lsn)>,
    /// The last entry.
    pub last: Lsn,
}

/// Entries after one that the log holds, as many as fit in `bytes` and in a message, and at least one. None, if they cannot
/// be read.
pub(crate) fn entries(shared: &Shared, shard: ShardId, after: EntryId, runs: &Runs, bytes: usize) -> Vec<LogEntry> {
    let bounds = (bytes, APPEND_ENTRIES);
    match shared.log_reader.read_after(shard, (after.epoch.0, after.lsn), runs.last, &runs.runs, bounds) {
        Ok(entries) => entries.into_iter().map(entry_of).collect(),
        Err(error) => {
            tracing::warn!(shard = shard.0, %error, "entries for another node could not be read");
            Vec::new()
        }
    }
}

/// A shard's state with everything up to an entry that is committed and durable here.
///
/// # Errors
/// Why it cannot be read.
pub(crate) fn reopen(shared: &Shared, shard: ShardId, runs: &Runs, up_to: Lsn) -> Result<Store, String> {
    let mut store =
        open_store(shard, Arc::clone(&shared.checkpoint), RealRandom.next_u64()).map_err(|error| error.to_string())?;
    while store.lsn() < up_to {
        let after = store.lsn();
        let epoch = runs.runs.iter().rev().find(|(_, first)| *first <= after).map_or(0, |(epoch, _)| *epoch);
        let entries =
            shared.log_reader.read_after(shard, (epoch, after), up_to, &runs.runs, (REOPEN_BYTES, usize::MAX));
        for entry in &entries.map_err(|error| error.to_string())? {
            replay_one(&mut store, entry.as_ref()).map_err(|error| error.to_string())?;
        }
        if store.lsn() == after {
            return Err(format!("the log lacks entry {} of shard {}", after.next().0, shard.0));
        }
    }
    Ok(store)
}
