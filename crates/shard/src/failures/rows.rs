//! The rows of what failed and is to be tried again, or waits for somebody: of workflows, and of messages.
//!
//! Every write of such a row is made here, so here is known how many there are.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use millrace_base::{EntityKey, Error, Lsn, Value, ValueKind, limits};
use millrace_format::{FailureRecord, Write};
use millrace_store::StoreError;

use crate::context::{Rows, decode_failed, store_failed};
use crate::request::Sequence;

/// Failures of one invocation at most: each is of an operation that is open.
pub(crate) const FAILURES: usize = 4 * millrace_base::limits::WORKFLOW_OPERATIONS as usize;

/// What failed of each invocation.
pub(crate) struct FailureRows {
    /// Field: invocation ‖ operation; value: `format::FailureRecord`.
    entity: EntityKey,
    /// Field: place of a message; value: `format::FailureRecord`.
    messages: EntityKey,
    /// The operations of each workflow that wait for somebody.
    paused: BTreeMap<Sequence, BTreeSet<u32>>,
    /// The places of messages that failed and are tried again.
    failing: BTreeSet<Sequence>,
}

fn field(id: Sequence, operation: u32) -> Box<[u8]> {
    [&id.encode()[..], &operation.to_be_bytes()].concat().into()
}

impl FailureRows {
    /// Counts what an earlier run of the shard left.
    ///
    /// # Errors
    /// [`StoreError`] when the rows cannot be read.
    pub(crate) fn recover(rows: &mut Rows) -> Result<Self, StoreError> {
        let mut found = Self {
            entity: EntityKey::internal("failure", b""),
            messages: EntityKey::internal("failing", b""),
            paused: BTreeMap::new(),
            failing: BTreeSet::new(),
        };
        let (entity, messages) = (found.entity.clone(), found.messages.clone());
        rows.store().visit_fields(&entity, b"", limits::PART, &mut |field, value| {
            let id = field.first_chunk::<10>().and_then(|id| Sequence::decode(id));
            if let (Some(id), Ok(failure)) = (id, FailureRecord::decode(value.content())) {
                found.note(id, &failure);
            }
            ControlFlow::Continue(())
        })?;
        rows.store().visit_fields(&messages, b"", limits::PART, &mut |field, _| {
            found.failing.extend(Sequence::decode(field));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Workflows of which something waits for somebody.
    pub(crate) fn paused_workflows(&self) -> usize {
        self.paused.len()
    }

    /// Messages that failed and are tried again.
    pub(crate) fn failing_messages(&self) -> usize {
        self.failing.len()
    }

    fn note(&mut self, id: Sequence, failure: &FailureRecord) {
        match failure.next_try {
            None => drop(self.paused.entry(id).or_default().insert(failure.operation)),
            Some(_) => self.forget(id, failure.operation),
        }
    }

    fn forget(&mut self, id: Sequence, operation: u32) {
        if let Some(operations) = self.paused.get_mut(&id) {
            operations.remove(&operation);
            if operations.is_empty() {
                self.paused.remove(&id);
            }
        }
    }

    /// The write of a failure. It must be made.
    pub(crate) fn write(&mut self, id: Sequence, failure: &FailureRecord) -> Write {
        self.note(id, failure);
        let value = Some(Value::new(ValueKind::Bytes, &failure.encode()));
        Write { entity: self.entity.clone(), field: field(id, failure.operation), value }
    }

    /// The write after which nothing is known of a failure. It must be made.
    pub(crate) fn deletion(&mut self, id: Sequence, operation: u32) -> Write {
        self.forget(id, operation);
        Write { entity: self.entity.clone(), field: field(id, operation), value: None }
    }

    /// The failures of an invocation, in the order of the operations, so many at most.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn of(&self, id: Sequence, limit: usize, rows: &mut Rows) -> Result<Vec<FailureRecord>, Error> {
        let found = rows.store().scan_fields(&self.entity, &id.encode(), None, limit);
        let found = found.map_err(|error| store_failed(&error))?;
        let decode = |(_, value): (Box<[u8]>, Value)| FailureRecord::decode(value.content());
        found.into_iter().map(decode).collect::<Result<_, _>>().map_err(|error| decode_failed(&error))
    }

    /// The newest entry that wrote a failure.
    pub(crate) fn lsn(&self, rows: &Rows) -> Lsn {
        rows.entity_lsn(&self.entity).max(rows.entity_lsn(&self.messages))
    }

    /// The write of the failure of the message at `place`. It must be made.
    pub(crate) fn message_write(&mut self, place: Sequence, failure: &FailureRecord) -> Write {
        self.failing.insert(place);
        let value = Some(Value::new(ValueKind::Bytes, &failure.encode()));
        Write { entity: self.messages.clone(), field: place.encode()[..].into(), value }
    }

    /// The write after which a message has not failed. It must be made.
    pub(crate) fn message_deletion(&mut self, place: Sequence) -> Write {
        self.failing.remove(&place);
        Write { entity: self.messages.clone(), field: place.encode()[..].into(), value: None }
    }

    /// How the message at `place` failed, if it did.
    ///
    /// # Errors
    /// When that cannot be read.
    pub(crate) fn of_message(&self, place: Sequence, rows: &mut Rows) -> Result<Option<FailureRecord>, Error> {
        let found = rows.store().get(&self.messages, &place.encode()).map_err(|error| store_failed(&error))?;
        found.map(|value| FailureRecord::decode(value.content()).map_err(|error| decode_failed(&error))).transpose()
    }

    /// The places of some messages that failed, behind `after`, and when each is tried again; and whether there are more.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn messages_after(
        &self,
        after: Option<&[u8]>,
        limit: usize,
        rows: &mut Rows,
    ) -> Result<(Vec<(Sequence, FailureRecord)>, bool), Error> {
        let found = rows.store().scan_fields(&self.messages, b"", after, limit + 1);
        let mut found = found.map_err(|error| store_failed(&error))?;
        let has_more = found.len() > limit;
        found.truncate(limit);
        let decode = |(field, value): (Box<[u8]>, Value)| {
            let failure = FailureRecord::decode(value.content()).map_err(|error| decode_failed(&error))?;
            Ok((Sequence::decode(&field).unwrap_or_default(), failure))
        };
        Ok((found.into_iter().map(decode).collect::<Result<_, Error>>()?, has_more))
    }
}
