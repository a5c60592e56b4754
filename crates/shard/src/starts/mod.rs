//! Workflows that have yet to begin.
//!
//! The message that starts a workflow waits in the inbox until it is due. From the entry on that
//! brings it, a row under the invocation's id says where it is; so the workflow is seen, signalled
//! and cancelled before its time. The row goes in the entry that begins the workflow or gives it up.

use std::collections::BTreeMap;
use std::ops::Bound;

use millrace_base::{EntityKey, Value, ValueKind};
use millrace_format::Write;
use millrace_store::StoreError;

use crate::context::Rows;
use crate::request::Sequence;

#[cfg(test)]
mod tests;

/// Where in the inbox the messages are that start workflows.
pub(crate) struct Starts {
    /// Field: invocation; value: the inbox field of its message.
    entity: EntityKey,
    fields: BTreeMap<Sequence, Box<[u8]>>,
}

impl Starts {
    /// Takes over what an earlier run of the shard left.
    ///
    /// # Errors
    /// [`StoreError`] when the rows cannot be read.
    pub(crate) fn recover(rows: &mut Rows) -> Result<Self, StoreError> {
        let entity = EntityKey::internal("pending", b"");
        let found = rows.store().scan_fields(&entity, b"", None, usize::MAX)?;
        let decode = |(id, value): (Box<[u8]>, Value)| Sequence::decode(&id).map(|id| (id, Box::from(value.content())));
        Ok(Self { entity, fields: found.into_iter().filter_map(decode).collect() })
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether the message at `field` of the inbox starts the workflow `id`.
    pub(crate) fn is_at(&self, id: Sequence, field: &[u8]) -> bool {
        self.fields.get(&id).is_some_and(|own| **own == *field)
    }

    /// Where the message is that starts the workflow `id`.
    pub(crate) fn field(&self, id: Sequence) -> Option<&[u8]> {
        self.fields.get(&id).map(|field| &**field)
    }

    /// The write that says where the message is which starts `id`. It must be made.
    pub(crate) fn write(&mut self, id: Sequence, field: &[u8]) -> Write {
        self.fields.insert(id, field.into());
        let value = Some(Value::new(ValueKind::Bytes, field));
        Write { entity: self.entity.clone(), field: id.encode()[..].into(), value }
    }

    /// The message at `field` leaves the inbox. The write that is to be made, if it starts `id`.
    pub(crate) fn end(&mut self, id: Sequence, field: &[u8]) -> Option<Write> {
        self.is_at(id, field).then(|| {
            self.fields.remove(&id);
            Write { entity: self.entity.clone(), field: id.encode()[..].into(), value: None }
        })
    }

    /// Those after `after`, at most so many.
    pub(crate) fn after(&self, after: Bound<Sequence>, limit: usize) -> impl Iterator<Item = Sequence> {
        self.fields.range((after, Bound::Unbounded)).take(limit).map(|(id, _)| *id)
    }
}
