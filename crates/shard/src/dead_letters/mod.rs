//! Dead letters: messages and compensations that failed for good, kept until somebody drops them or
//! has them tried again.

use std::ops::ControlFlow;

use millrace_base::{EntityKey, Error, ErrorCode, Lsn, Value, ValueKind, limits};
use millrace_format::{DeadLetterRecord, Write};
use millrace_store::StoreError;

use crate::context::{Context, Rows, decode_failed, store_failed};
use crate::typed_reply::{DeadLetter, Listed, ReplyTo};

#[cfg(test)]
mod tests;

/// The dead letters of a shard.
pub(crate) struct DeadLetters {
    /// Field: sequence; value: `format::DeadLetterRecord`.
    entity: EntityKey,
    count: usize,
}

impl DeadLetters {
    /// Counts what an earlier run of the shard left.
    ///
    /// # Errors
    /// [`StoreError`] when the rows cannot be read.
    pub(crate) fn recover(rows: &mut Rows) -> Result<Self, StoreError> {
        let (entity, mut count) = (EntityKey::internal("dead", b""), 0);
        rows.store().visit_fields(&entity, b"", limits::PART, &mut |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(Self { entity, count })
    }

    /// How many wait for somebody.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The write of a dead letter. It must be made.
    pub(crate) fn write(&mut self, field: &[u8], dead_letter: &[u8]) -> Write {
        self.count += 1;
        let value = Some(Value::new(ValueKind::Bytes, dead_letter));
        Write { entity: self.entity.clone(), field: field.into(), value }
    }

    /// The write that drops a dead letter which is there. It must be made.
    pub(crate) fn deletion(&mut self, field: &[u8]) -> Write {
        self.count = self.count.saturating_sub(1);
        Write { entity: self.entity.clone(), field: field.into(), value: None }
    }

    /// A dead letter.
    ///
    /// # Errors
    /// `unknown-invocation` when there is none at `field`.
    pub(crate) fn get(&self, field: &[u8], rows: &mut Rows) -> Result<DeadLetterRecord, Error> {
        let found = rows.store().get(&self.entity, field).map_err(|error| store_failed(&error))?;
        let unknown = || Error::new(ErrorCode::UnknownInvocation, "no such dead letter");
        DeadLetterRecord::decode(found.ok_or_else(unknown)?.content()).map_err(|error| decode_failed(&error))
    }

    /// The newest entry that wrote a dead letter.
    pub(crate) fn lsn(&self, rows: &Rows) -> Lsn {
        rows.entity_lsn(&self.entity)
    }

    /// Answers a page of dead letters after `after`.
    pub(crate) fn answer_page(
        &self,
        to: ReplyTo<Listed<DeadLetter>>,
        after: Option<&[u8]>,
        limit: usize,
        context: &mut Context<'_>,
    ) {
        let page = self.page(after, limit, context.rows);
        let depends_on = context.rows.entity_lsn(&self.entity);
        context.answer(to, page, depends_on);
    }

    /// A page of dead letters. A page is empty only if there are no more: the
    /// next page begins behind the last dead letter of this one.
    ///
    /// # Errors
    /// When the rows cannot be read.
    pub(crate) fn page(
        &self,
        after: Option<&[u8]>,
        limit: usize,
        rows: &mut Rows,
    ) -> Result<Listed<DeadLetter>, Error> {
        let mut after: Option<Box<[u8]>> = after.map(Into::into);
        loop {
            let from = after.as_deref();
            let found = rows.store().scan_fields_within(&self.entity, b"", from, limit + 1, limits::SCAN_BYTES);
            let (mut found, is_cut) = found.map_err(|error| store_failed(&error))?;
            let has_more = found.len() > limit || is_cut;
            found.truncate(limit);
            after = found.last().map(|(field, _)| field.clone());
            // What cannot be read as a message of this version cannot be shown or run either.
            let dead_letter =
                |(field, value): (Box<[u8]>, Value)| Some((field, DeadLetterRecord::decode(value.content()).ok()?));
            let items: Vec<DeadLetter> = found.into_iter().filter_map(dead_letter).collect();
            if !items.is_empty() || !has_more || after.is_none() {
                return Ok(Listed { items, has_more });
            }
        }
    }
}
