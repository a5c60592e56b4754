//! The rows of workflows: what each is, and its journal.
//!
//! A workflow that has ended moves to another entity. A scan of those that have not ended then steps
//! over none of them.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use millrace_base::{EntityKey, Error, Value, ValueKind, limits};
use millrace_format::{JournalRow, WorkflowRecord, Write};
use millrace_store::{Store, StoreError};

use crate::context::{Rows, decode_failed, store_failed};
use crate::request::Sequence;

#[cfg(test)]
mod tests;

/// Rows of one journal at most: operations, compensations, and what steps asked for.
pub(crate) const JOURNAL_ROWS: usize = 4 * limits::WORKFLOW_OPERATIONS as usize;

/// The row of a workflow that has not ended; what of it cannot be read is missing.
type LiveRow = (Option<Sequence>, Option<WorkflowRecord>);

/// Workflows and their journals.
pub(crate) struct Journals {
    /// Field: invocation; value: `format::WorkflowRecord`.
    live: EntityKey,
    /// The same of those that have ended, for as long as their result is kept.
    ended: EntityKey,
    /// Field: invocation ‖ number; value: `format::JournalRow`.
    journal: EntityKey,
}

/// The app versions, by name and fingerprint, that workflows of a shard run in. For drivers, which
/// have to load them before the shard starts.
///
/// # Errors
/// [`StoreError`] when the rows cannot be read.
pub fn workflow_versions(store: &mut Store) -> Result<BTreeSet<(String, u64)>, StoreError> {
    let mut versions = BTreeSet::new();
    store.visit_fields(&Journals::new().live, b"", limits::PART, &mut |_, value| {
        if let Ok(record) = WorkflowRecord::decode(value.content()) {
            versions.insert((record.app, record.version));
        }
        ControlFlow::Continue(())
    })?;
    Ok(versions)
}

fn decode_record(value: &Value) -> Result<WorkflowRecord, Error> {
    WorkflowRecord::decode(value.content()).map_err(|error| decode_failed(&error))
}

impl Journals {
    pub(crate) fn new() -> Self {
        Self {
            live: EntityKey::internal("workflow", b""),
            ended: EntityKey::internal("ended", b""),
            journal: EntityKey::internal("journal", b""),
        }
    }

    /// The write of what a workflow is.
    pub(crate) fn record_write(&self, id: Sequence, record: &WorkflowRecord) -> Write {
        let entity = if record.has_ended { &self.ended } else { &self.live }.clone();
        let value = Some(Value::new(ValueKind::Bytes, &record.encode()));
        Write { entity, field: id.encode()[..].into(), value }
    }

    /// The write after which a workflow is not among those that have not ended.
    pub(crate) fn live_deletion(&self, id: Sequence) -> Write {
        Write { entity: self.live.clone(), field: id.encode()[..].into(), value: None }
    }

    /// The write after which a workflow is not among those that have ended.
    pub(crate) fn ended_deletion(&self, id: Sequence) -> Write {
        Write { entity: self.ended.clone(), field: id.encode()[..].into(), value: None }
    }

    /// The write of the `number`-th row of a journal.
    pub(crate) fn row_write(&self, id: Sequence, number: u32, row: &JournalRow) -> Write {
        let field = [&id.encode()[..], &number.to_be_bytes()].concat().into();
        let value = Some(Value::new(ValueKind::Bytes, &row.encode()));
        Write { entity: self.journal.clone(), field, value }
    }

    /// A workflow that has not ended.
    ///
    /// # Errors
    /// When its row cannot be read.
    pub(crate) fn live(&self, id: Sequence, rows: &mut Rows) -> Result<Option<WorkflowRecord>, Error> {
        let found = rows.store().get(&self.live, &id.encode()).map_err(|error| store_failed(&error))?;
        found.map(decode_record).transpose()
    }

    /// A workflow, whether or not it has ended.
    ///
    /// # Errors
    /// When its row cannot be read.
    pub(crate) fn record(&self, id: Sequence, rows: &mut Rows) -> Result<Option<WorkflowRecord>, Error> {
        let live = self.live(id, rows)?;
        if live.is_some() {
            return Ok(live);
        }
        let found = rows.store().get(&self.ended, &id.encode()).map_err(|error| store_failed(&error))?;
        found.map(decode_record).transpose()
    }

    /// All rows of a workflow's journal.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn journal(&self, id: Sequence, rows: &mut Rows) -> Result<Vec<JournalRow>, Error> {
        Ok(self.numbered_journal(id, rows)?.into_iter().map(|(_, row)| row).collect())
    }

    /// The same with the number of each row. One that was restarted from a step has gaps.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn numbered_journal(&self, id: Sequence, rows: &mut Rows) -> Result<Vec<(u32, JournalRow)>, Error> {
        let found = rows.store().scan_fields(&self.journal, &id.encode(), None, JOURNAL_ROWS);
        let found = found.map_err(|error| store_failed(&error))?;
        let decode = |(field, value): (Box<[u8]>, Value)| {
            let number = field.last_chunk().map_or(0, |number| u32::from_be_bytes(*number));
            Ok((number, JournalRow::decode(value.content()).map_err(|error| decode_failed(&error))?))
        };
        found.into_iter().map(decode).collect()
    }

    /// The write that deletes the `number`-th row of a journal.
    pub(crate) fn row_deletion(&self, id: Sequence, number: u32) -> Write {
        let field = [&id.encode()[..], &number.to_be_bytes()].concat().into();
        Write { entity: self.journal.clone(), field, value: None }
    }

    /// Workflows that have not ended, behind `after`. A row that cannot be read has no record.
    ///
    /// # Errors
    /// When the rows cannot be read.
    pub(crate) fn live_after(
        &self,
        after: Option<Sequence>,
        limit: usize,
        rows: &mut Rows,
    ) -> Result<Vec<LiveRow>, StoreError> {
        let after = after.map(Sequence::encode);
        let after = after.as_ref().map(|bytes| &bytes[..]);
        let found = rows.store().scan_fields(&self.live, b"", after, limit)?;
        let decode = |(field, value): (Box<[u8]>, Value)| {
            (Sequence::decode(&field), WorkflowRecord::decode(value.content()).ok())
        };
        Ok(found.into_iter().map(decode).collect())
    }

    /// Workflows that have ended, behind `after`; and whether there are more, because these have many bytes.
    ///
    /// # Errors
    /// When the rows cannot be read.
    pub(crate) fn ended_after(
        &self,
        after: Option<Sequence>,
        limit: usize,
        rows: &mut Rows,
    ) -> Result<(Vec<(Sequence, WorkflowRecord)>, bool), Error> {
        let after = after.map(Sequence::encode);
        let after = after.as_ref().map(|bytes| &bytes[..]);
        let found = rows.store().scan_fields_within(&self.ended, b"", after, limit, limits::SCAN_BYTES);
        let (found, is_large) = found.map_err(|error| store_failed(&error))?;
        let is_cut = is_large && !found.is_empty();
        let decode = |(field, value): (Box<[u8]>, Value)| {
            Ok((Sequence::decode(&field).unwrap_or_default(), decode_record(&value)?))
        };
        Ok((found.into_iter().map(decode).collect::<Result<_, Error>>()?, is_cut))
    }

    /// The writes that delete a workflow whose result has expired, with its journal.
    pub(crate) fn add_deletions(&self, id: Sequence, writes: &mut Vec<Write>, rows: &mut Rows) {
        if !matches!(rows.store().get(&self.ended, &id.encode()), Ok(Some(_))) {
            return; // The invocation was not a workflow.
        }
        writes.push(self.ended_deletion(id));
        let found = rows.store().scan_fields(&self.journal, &id.encode(), None, JOURNAL_ROWS).unwrap_or_default();
        writes.extend(found.into_iter().map(|(field, _)| Write { entity: self.journal.clone(), field, value: None }));
    }
}
