//! Messages that are to run here, and how each takes effect exactly once.
//!
//! The entry that puts a message of another shard's outbox into the inbox also notes the message's sequence, so
//! that a second delivery is recognised; the entry that runs it also deletes it. Every step is thus one entry, and repeating
//! any of them after a crash changes nothing.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, Lsn, ShardId, UnixMillis};
use millrace_format::{FailureRecord, MessageRecord, ResultState, StepKind, WorkflowRecord, Write};

use super::{Bookkeeping, invocation_of, not_begun, record_of};
use crate::context::{Context, Rows, read_only};
use crate::inbox::{inbox_field, sequence_of};
use crate::request::{Delivery, InvocationId, Sequence};
use crate::world::World;

/// Whether a message that failed has nothing left to do, as the service or handler that it was for is gone.
fn is_gone(message: &MessageRecord, error: &Error, world: &World<'_>) -> bool {
    // Most errors are others, and most of these those of functions, whose services are there.
    matches!(error.code, ErrorCode::UnknownService | ErrorCode::UnknownHandler)
        && world
            .catalog
            .current(&message.app)
            .is_some_and(|program| world.engine.drops(program, &message.service, &message.handler))
}

/// The failure as the engine of the message's app has it noted.
fn failure_of(message: &MessageRecord, error: Error, world: &World<'_>) -> Error {
    match world.catalog.current(&message.app) {
        Some(program) => world.engine.failure_of(program, &message.service, &message.handler, error),
        None => error,
    }
}

/// What is noted of a message that failed and is tried again.
fn failure_of_message(message: &MessageRecord, error: &Error, now: UnixMillis) -> FailureRecord {
    let MessageRecord { service, key, handler, attempts, due, .. } = message;
    FailureRecord {
        kind: Some(StepKind::Send),
        operation: 0,
        attempts: *attempts,
        failed: now,
        next_try: Some(*due),
        name: format!("{service}/{}/{handler}", String::from_utf8_lossy(key)),
        error: Error { detail: None, ..error.clone() },
    }
}

/// Whether a message that failed would fail each time.
fn is_hopeless(message: &MessageRecord, id: Sequence, error: &Error) -> bool {
    match error.code {
        // Calls that nest too deeply do so each time.
        ErrorCode::Aborted | ErrorCode::DepthLimit => true,
        // A workflow whose id neither its sender drew nor a caller chose was known from the moment it had it.
        ErrorCode::UnknownInvocation => message.is_signal && !id.may_be_early(),
        _ => false,
    }
}

impl Bookkeeping {
    /// A message of another shard has arrived, perhaps not for the first time.
    pub(crate) fn deliver(&mut self, delivery: Delivery, context: &mut Context<'_>) {
        if context.is_read_only {
            return; // Not acknowledged, so it comes again.
        }
        let Delivery { from, sequence, after, message } = delivery;
        if self.inbox.is_new(from, (sequence, after), context) {
            let lsn = self.accept(from, sequence, &message, context);
            self.inbox.received(from, sequence, lsn);
        }
        self.inbox.release_acknowledgements(context);
    }

    fn accept(&mut self, from: ShardId, sequence: Sequence, message: &Bytes, context: &mut Context<'_>) -> Lsn {
        let mut writes = vec![self.inbox.received_write(from, sequence)];
        match MessageRecord::decode(message) {
            Ok(mut record) => {
                let own = Sequence { lsn: context.rows.next_lsn(), index: 0 };
                // The sender says when by the machine's time, or zero for at once.
                let is_due = record.due == UnixMillis(0);
                let by_own_time = record.due.plus(context.rows.clock().lead_ms());
                record.due = if is_due { context.now } else { by_own_time };
                self.take_in(own, &record, &mut writes, context.now, context.rows);
            }
            Err(error) => {
                tracing::error!(%error, from = from.0, "a message cannot be read; it is kept in the dead letters");
                let field = [&from.0.to_be_bytes()[..], &sequence.encode()].concat();
                writes.push(self.dead_letters.write(&field, message));
            }
        }
        context.append(writes)
    }

    /// A message's effects are being committed: its row goes in the same entry.
    pub(crate) fn message_done(&mut self, field: &[u8], message: &MessageRecord, writes: &mut Vec<Write>) {
        let id = invocation_of(field, message);
        self.inbox.ended(field, true);
        writes.extend(self.failure_deletion(field, message.attempts));
        writes.extend(self.starts.end(id, field));
        writes.push(self.inbox.deletion(field));
    }

    /// The write after which nothing is known of how a message failed. It was tried so often.
    fn failure_deletion(&mut self, field: &[u8], attempts: u32) -> Option<Write> {
        sequence_of(field).filter(|_| attempts > 0).map(|place| self.failed.message_deletion(place))
    }

    /// Keeps what became of a message, if somebody may ask for it.
    pub(crate) fn add_message_result(
        &mut self,
        field: &[u8],
        message: &MessageRecord,
        result: ResultState,
        writes: &mut Vec<Write>,
        now: UnixMillis,
    ) {
        let id = invocation_of(field, message);
        if message.keeps_invocation_result || self.starts.is_at(id, field) {
            writes.push(self.results.keep_invocation(id, (&message.app, &message.service), result, now));
        }
    }

    /// A message did not take effect: an abort is final, and so is what the engine drops; what nests too deeply
    /// goes to the dead letters, anything else is tried again later, and after too many attempts goes there too.
    pub(crate) fn message_failed(&mut self, field: &[u8], error: Error, rows: &mut Rows, world: &mut World<'_>) {
        self.inbox.ended(field, !world.is_read_only);
        if world.is_read_only {
            // Nothing can be noted now; it stays as it is and runs when writing is possible.
            return self.inbox.put_back(field);
        }
        let Ok(mut message) = self.inbox.message(field, rows) else {
            tracing::error!(shard = rows.shard().0, "an inbox row cannot be read and is left alone");
            return; // Nobody knows whom to answer; the row is tried again after a restart.
        };
        message.attempts += 1;
        let error = failure_of(&message, error, world);
        let mut writes = vec![self.inbox.deletion(field)];
        // It may have been sent in a version that this core does not serve yet, but will in a moment.
        let is_gone = is_gone(&message, &error, world);
        let is_dropped = is_gone && message.attempts > 1;
        let sequence = sequence_of(field).unwrap_or_default();
        let id = invocation_of(field, &message);
        let invocation = InvocationId { shard: rows.shard(), sequence: id };
        let policy = world.catalog.retry_policy(&message.app, &message.service, &message.handler);
        let pause_ms = policy.next_pause_ms(message.attempts);
        let pause_ms = pause_ms.filter(|_| !is_dropped && !is_hopeless(&message, id, &error));
        // An abort is the receiver's answer; but who had a dead letter tried again still needs it.
        let is_answer = error.code == ErrorCode::Aborted && !message.was_set_aside;
        let is_start = self.starts.is_at(id, field);
        let mut context = rows.context(world);
        if is_dropped {
            let MessageRecord { app, service, handler, .. } = &message;
            tracing::debug!(app, service, handler, "a message was dropped: what it was for is gone");
        } else if !is_gone && !is_answer {
            self.failures.attempt_failed(invocation, &message, &error, context.now);
        }
        if let Some(pause_ms) = pause_ms {
            message.due = context.now.plus(pause_ms);
            writes.push(self.failed.message_write(sequence, &failure_of_message(&message, &error, context.now)));
            let field = inbox_field(message.due, sequence);
            writes.push(self.inbox.write(&field, &message));
            if is_start {
                writes.push(self.starts.write(id, &field));
            }
        } else {
            writes.extend(self.failure_deletion(field, message.attempts - 1));
            if is_start {
                writes.extend(self.starts.end(id, field));
                self.give_up_start(id, message.clone(), error.clone(), &mut writes, &mut context);
            } else {
                let result = ResultState::Error(error.clone());
                self.add_message_result(field, &message, result, &mut writes, context.now);
            }
            if !is_answer && !is_dropped {
                writes.push(self.set_aside((invocation, sequence), &message, &error, "a message"));
            }
        }
        context.append(writes);
    }

    /// The message that starts a workflow which has yet to begin.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn start_message(&mut self, id: Sequence, rows: &mut Rows) -> Result<Option<MessageRecord>, Error> {
        self.starts.field(id).map(|field| self.inbox.message(field, rows)).transpose()
    }

    /// A workflow that has yet to begin as its record will be, and when it is due.
    ///
    /// # Errors
    /// When its message cannot be read.
    pub(crate) fn start_record(
        &mut self,
        id: Sequence,
        rows: &mut Rows,
    ) -> Result<Option<(WorkflowRecord, UnixMillis)>, Error> {
        Ok(self.start_message(id, rows)?.map(|message| {
            let due = message.due;
            (record_of(message), due)
        }))
    }

    /// A workflow that has yet to begin is not to: there is nothing to compensate.
    ///
    /// # Errors
    /// `read-only`; `overloaded` for one that has become something else than a workflow by a
    /// deployment, and is under way.
    pub(crate) fn cancel_start(
        &mut self,
        id: Sequence,
        message: MessageRecord,
        context: &mut Context<'_>,
    ) -> Result<Lsn, Error> {
        if context.is_read_only {
            return Err(read_only());
        }
        let field: Box<[u8]> = self.starts.field(id).ok_or_else(not_begun)?.into();
        if !self.inbox.forget(&field) {
            return Err(not_begun());
        }
        let mut writes = Vec::new();
        self.message_done(&field, &message, &mut writes);
        let error = Error::new(ErrorCode::Cancelled, "the workflow was cancelled before it began");
        self.give_up_start(id, message, error, &mut writes, context);
        Ok(context.append(writes))
    }

    /// A workflow that never began is listed among those that have ended. Signals for it go.
    pub(super) fn give_up_start(
        &mut self,
        id: Sequence,
        message: MessageRecord,
        error: Error,
        writes: &mut Vec<Write>,
        context: &mut Context<'_>,
    ) {
        self.failures.count_end(Some(&error));
        let service = (&*message.app, &*message.service);
        writes.push(self.results.keep_invocation(id, service, ResultState::Error(error), context.now));
        let record = WorkflowRecord { has_ended: true, ..record_of(message) };
        writes.push(self.journals.record_write(id, &record));
        writes.extend(self.signals.deletions(id, context.rows));
    }
}
