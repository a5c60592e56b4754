//! Signals to workflows: rows that wait until the workflow asks for one of their name.

use bytes::Bytes;
use millrace_base::{EntityKey, Error, Value, ValueKind, limits};
use millrace_format::{SignalRecord, Write};

use crate::context::{Rows, store_failed};
use crate::request::Sequence;

#[cfg(test)]
mod tests;

/// Signals of one workflow looked at: those that came before the limit was checked may be over it.
const LOOKED_AT: usize = 2 * limits::SIGNALS_PER_WORKFLOW;

/// The signals that wait.
pub(crate) struct Signals {
    /// Field: invocation ‖ arrival; value: `format::SignalRecord`.
    entity: EntityKey,
}

impl Signals {
    pub(crate) fn new() -> Self {
        Self { entity: EntityKey::internal("signal", b"") }
    }

    /// Whether as many signals wait for a workflow as may.
    ///
    /// # Errors
    /// When the rows cannot be read.
    pub(crate) fn is_full(&self, id: Sequence, rows: &mut Rows) -> Result<bool, Error> {
        let most = limits::SIGNALS_PER_WORKFLOW;
        let waiting = rows.store().scan_fields(&self.entity, &id.encode(), None, most);
        let waiting = waiting.map_err(|error| store_failed(&error))?;
        let waiting_bytes: usize = waiting.iter().map(|(_, value)| value.content().len()).sum();
        Ok(waiting.len() >= most || waiting_bytes >= limits::SIGNAL_BYTES_PER_WORKFLOW)
    }

    /// The write of a signal. It is to be in the next entry, which is its place among the workflow's signals.
    pub(crate) fn write(&self, id: Sequence, name: String, payload: Bytes, rows: &Rows) -> Write {
        let place = Sequence { lsn: rows.next_lsn(), index: 0 };
        let record = SignalRecord { name, payload };
        Write {
            entity: self.entity.clone(),
            field: [id.encode(), place.encode()].concat().into(),
            value: Some(Value::new(ValueKind::Bytes, &record.encode())),
        }
    }

    /// The payload of the first signal of that name, and the write that takes it. `None` also if the rows cannot be
    /// read now: the workflow asks again when another signal comes or its timer ends.
    pub(crate) fn first(&self, id: Sequence, name: &str, rows: &mut Rows) -> Option<(Bytes, Write)> {
        let found = rows.store().scan_fields(&self.entity, &id.encode(), None, LOOKED_AT).ok()?;
        found.into_iter().find_map(|(field, value)| {
            let signal = SignalRecord::decode(value.content()).ok().filter(|signal| signal.name == name)?;
            Some((signal.payload, Write { entity: self.entity.clone(), field, value: None }))
        })
    }

    /// The writes that drop what a workflow which has ended never took.
    pub(crate) fn deletions(&self, id: Sequence, rows: &mut Rows) -> impl Iterator<Item = Write> {
        let found = rows.store().scan_fields(&self.entity, &id.encode(), None, LOOKED_AT).unwrap_or_default();
        let entity = self.entity.clone();
        found.into_iter().map(move |(field, _)| Write { entity: entity.clone(), field, value: None })
    }
}
