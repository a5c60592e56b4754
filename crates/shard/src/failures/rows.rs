//! The rows of what failed and is to be tried again, or waits for somebody.

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
}

fn field(id: Sequence, operation: u32) -> Box<[u8]> {
    [&id.encode()[..], &operation.to_be_bytes()].concat().into()
}

impl FailureRows {
    pub(crate) fn new() -> Self {
        Self { entity: EntityKey::internal("failure", b"") }
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
        rows.entity_lsn(&self.entity)
    }
}
