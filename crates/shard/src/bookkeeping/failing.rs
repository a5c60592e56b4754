//! Messages that failed and wait for their next attempt: seen, tried at once, and cancelled.

use millrace_base::{Error, ErrorCode, Lsn, limits};
use millrace_format::{DeadLetterRecord, FailureRecord, MessageRecord, ResultState, Write};

use super::{Bookkeeping, invocation_of, not_begun};
use crate::context::{Context, Rows, read_only};
use crate::inbox::{inbox_field, sequence_of};
use crate::request::Sequence;
use crate::typed_reply::{DeadLetter, Listed, ReplyTo};

impl Bookkeeping {
    /// How the message failed that starts a workflow, or is a call that was sent.
    ///
    /// # Errors
    /// When that cannot be read.
    pub(crate) fn failure_of_sent(&self, id: Sequence, rows: &mut Rows) -> Result<Option<FailureRecord>, Error> {
        let place = self.starts.field(id).and_then(sequence_of).unwrap_or(id);
        self.failed.of_message(place, rows)
    }

    /// The message at `place`, which failed and waits; its field in the inbox.
    ///
    /// # Errors
    /// When it cannot be read.
    fn failing(&self, place: Sequence, rows: &mut Rows) -> Result<Option<(Vec<u8>, DeadLetterRecord)>, Error> {
        let Some(FailureRecord { next_try: Some(due), error, .. }) = self.failed.of_message(place, rows)? else {
            return Ok(None);
        };
        let field = inbox_field(due, place);
        let message = self.inbox.message(&field, rows)?;
        Ok(Some((field, DeadLetterRecord { error: Some(error), message })))
    }

    /// A message that is a dead letter, or on its way to be one.
    ///
    /// # Errors
    /// `unknown-invocation` when there is none at `field`.
    fn dead_letter(&self, field: &[u8], rows: &mut Rows) -> Result<DeadLetterRecord, Error> {
        let found = self.dead_letters.get(field, rows);
        if !matches!(&found, Err(error) if error.code == ErrorCode::UnknownInvocation) {
            return found;
        }
        match Sequence::decode(field).map(|place| self.failing(place, rows)).transpose()?.flatten() {
            Some((_, dead_letter)) => Ok(dead_letter),
            None => found,
        }
    }

    /// Answers a dead letter, or what is on its way to be one, to find out whose it is.
    pub(crate) fn answer_dead_letter(
        &self,
        to: ReplyTo<Box<DeadLetterRecord>>,
        field: &[u8],
        context: &mut Context<'_>,
    ) {
        let dead_letter = self.dead_letter(field, context.rows).map(Box::new);
        let depends_on = self.dead_letters.lsn(context.rows).max(self.failed.lsn(context.rows));
        context.answer(to, dead_letter, depends_on);
    }

    /// Answers a page of messages that failed and wait.
    pub(crate) fn answer_failing(
        &self,
        to: ReplyTo<Listed<DeadLetter>>,
        after: Option<&[u8]>,
        limit: usize,
        context: &mut Context<'_>,
    ) {
        let page = self.failing_page(after, limit, context.rows);
        let depends_on = self.failed.lsn(context.rows);
        context.answer(to, page, depends_on);
    }

    fn failing_page(&self, after: Option<&[u8]>, limit: usize, rows: &mut Rows) -> Result<Listed<DeadLetter>, Error> {
        let (found, mut has_more) = self.failed.messages_after(after, limit, rows)?;
        let (mut items, mut size_bytes) = (Vec::new(), 0);
        for (place, _) in found {
            if size_bytes > limits::PAGE_BYTES {
                has_more = true;
                break;
            }
            // One that cannot be read cannot be shown or run either.
            if let Ok(Some((_, dead_letter))) = self.failing(place, rows) {
                size_bytes += dead_letter.message.input.len();
                items.push((place.encode()[..].into(), dead_letter));
            }
        }
        Ok(Listed { items, has_more })
    }

    /// A message that failed and waits is tried now, from its first attempt, or never again. `None`: there is none.
    ///
    /// # Errors
    /// `read-only`; `overloaded` while it runs.
    pub(crate) fn end_failing(
        &mut self,
        place: Sequence,
        is_retried: bool,
        context: &mut Context<'_>,
    ) -> Result<Option<Lsn>, Error> {
        let Some((field, DeadLetterRecord { mut message, .. })) = self.failing(place, context.rows)? else {
            return Ok(None);
        };
        if context.is_read_only {
            return Err(read_only());
        }
        if !self.inbox.forget(&field) {
            return Err(not_begun());
        }
        let mut writes = Vec::new();
        if is_retried {
            let id = invocation_of(&field, &message);
            let is_start = self.starts.is_at(id, &field);
            writes.extend([self.inbox.deletion(&field), self.failed.message_deletion(place)]);
            (message.attempts, message.due) = (0, context.now);
            let field = inbox_field(message.due, place);
            writes.push(self.inbox.write(&field, &message));
            if is_start {
                writes.push(self.starts.write(id, &field));
            }
        } else {
            self.cancel_failing(&field, message, &mut writes, context);
        }
        Ok(Some(context.append(writes)))
    }

    fn cancel_failing(
        &mut self,
        field: &[u8],
        message: MessageRecord,
        writes: &mut Vec<Write>,
        context: &mut Context<'_>,
    ) {
        let error = Error::new(ErrorCode::Cancelled, "the message was cancelled while it waited to be tried again");
        let id = invocation_of(field, &message);
        let is_start = self.starts.is_at(id, field);
        if !is_start {
            self.add_message_result(field, &message, ResultState::Error(error.clone()), writes, context.now);
        }
        self.message_done(field, &message, writes);
        if is_start {
            self.give_up_start(id, message, error, writes, context);
        }
    }
}
