//! The rows of what failed and is to be tried again, or waits for somebody: of workflows, and of messages.

use millrace_base::{EntityKey, Error, Lsn, Value, ValueKind};
use millrace_format::{FailureRecord, Write};

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
}

fn field(id: Sequence, operation: u32) -> Box<[u8]> {
    [&id.encode()[..], &operation.to_be_bytes()].concat().into()
}

impl FailureRows {
    pub(crate) fn new() -> Self {
        Self { entity: EntityKey::internal("failure", b""), messages: EntityKey::internal("failing", b"") }
    }

    /// The write of a failure.
    pub(crate) fn write(&self, id: Sequence, failure: &FailureRecord) -> Write {
        let value = Some(Value::new(ValueKind::Bytes, &failure.encode()));
        Write { entity: self.entity.clone(), field: field(id, failure.operation), value }
    }

    /// The write after which nothing is known of a failure.
    pub(crate) fn deletion(&self, id: Sequence, operation: u32) -> Write {
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

    /// The write of the failure of the message at `place`.
    pub(crate) fn message_write(&self, place: Sequence, failure: &FailureRecord) -> Write {
        let value = Some(Value::new(ValueKind::Bytes, &failure.encode()));
        Write { entity: self.messages.clone(), field: place.encode()[..].into(), value }
    }

    /// The write after which a message has not failed.
    pub(crate) fn message_deletion(&self, place: Sequence) -> Write {
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
