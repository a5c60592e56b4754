//! What comes to a workflow from others: signals, and the wish that it is cancelled.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, IdempotencyKey, Lsn};
use millrace_format::{JournalRow, MessageRecord, ResultState, StepKind};

use super::workflow::{Open, Work};
use super::{Standing, WorkflowContext, Workflows, unknown_workflow};
use crate::bookkeeping::{invocation_of, not_begun};
use crate::context::read_only;
use crate::request::Sequence;
use crate::typed_reply::ReplyTo;

impl Workflows {
    /// A signal has come as a message.
    pub(crate) fn signal_arrived(
        &mut self,
        field: &[u8],
        message: MessageRecord,
        context: &mut WorkflowContext<'_, '_>,
    ) {
        let id = invocation_of(field, &message);
        let mut writes = Vec::new();
        context.books.message_done(field, &message, &mut writes);
        let standing = self.standing(id, context);
        let may_signal = match &standing {
            Ok(Standing::Live) => self.live.get(&id).is_some_and(|workflow| workflow.record.app == message.app),
            Ok(Standing::Stored(record)) => record.app == message.app,
            Ok(Standing::Pending(start)) => start.app == message.app,
            _ => false,
        };
        match standing {
            Ok(Standing::Live | Standing::Stored(_) | Standing::Pending(_)) if may_signal => {
                if context.books.signals.is_full(id, context.rows).unwrap_or(true) {
                    return context.message_failed(field, too_many());
                }
                writes.push(context.books.signals.write(id, message.handler, message.input, context.rows));
                context.append(writes);
                self.look_for_signal(id, context);
            }
            // It has overtaken what starts the workflow: tried again, if that may be.
            Ok(Standing::Unknown) => context.message_failed(field, unknown_workflow()),
            Ok(Standing::Called) => context.message_failed(field, not_begun()),
            Ok(_) => {
                context.append(writes);
            }
            Err(error) => context.message_failed(field, error),
        }
    }

    /// Somebody outside sends a signal.
    ///
    /// # Errors
    /// `unknown-invocation`, `read-only`, `overloaded` (also for a call that was sent and has
    /// not ended), `idempotency-mismatch`, `workflow-ended`.
    fn accept_signal(
        &mut self,
        id: Sequence,
        (name, payload): (&str, &Bytes),
        idempotency_key: Option<&IdempotencyKey>,
        context: &mut WorkflowContext<'_, '_>,
    ) -> Result<Lsn, Error> {
        let names = context.books.results.names();
        let key = idempotency_key.map(|key| names.of_signal(id, name, payload, key.as_str()));
        if let Some(key) = &key
            && let Some(kept) = context.books.results.kept_reply(key, context.world.now, context.rows)
        {
            return kept.map(|_| context.books.results.lsn(context.rows));
        }
        match self.standing(id, context)? {
            Standing::Live | Standing::Stored(_) | Standing::Pending(_) => {}
            Standing::Called => return Err(not_begun()),
            Standing::Ended => {
                let message = "the workflow has ended: it takes no more signals";
                return Err(Error::new(ErrorCode::WorkflowEnded, message));
            }
            Standing::Unknown => return Err(unknown_workflow()),
        }
        if context.world.is_read_only {
            return Err(read_only());
        }
        if context.books.signals.is_full(id, context.rows)? {
            return Err(too_many());
        }
        let mut writes = vec![context.books.signals.write(id, name.to_owned(), payload.clone(), context.rows)];
        if let Some(key) = key {
            let result = ResultState::Value(Bytes::from_static(b"null"));
            writes.push(context.books.results.keep(key, result, context.world.now));
        }
        let lsn = context.append(writes);
        self.look_for_signal(id, context);
        Ok(lsn)
    }

    /// Takes a signal from outside. It is answered once it is durable.
    pub(crate) fn signal(
        &mut self,
        to: ReplyTo<()>,
        id: Sequence,
        signal: (&str, &Bytes),
        idempotency_key: Option<&IdempotencyKey>,
        context: &mut WorkflowContext<'_, '_>,
    ) {
        let accepted = self.accept_signal(id, signal, idempotency_key, context);
        let depends_on = match &accepted {
            Ok(lsn) => *lsn,
            // That it has ended may not be durable yet.
            Err(error) if error.code == ErrorCode::WorkflowEnded => context.books.results.lsn(context.rows),
            Err(_) => Lsn::ZERO,
        };
        context.context().answer(to, accepted.map(|_| ()), depends_on);
    }

    /// A signal has come for a workflow: gives it to the operation that has waited longest for it.
    fn look_for_signal(&mut self, id: Sequence, context: &mut WorkflowContext<'_, '_>) {
        let waiting: Vec<u32> = self.live.get(&id).map_or_else(Vec::new, |workflow| {
            let waits = |(operation, open): (&u32, &Open)| matches!(open.work, Work::Wait(_)).then_some(*operation);
            workflow.open.iter().filter_map(waits).collect()
        });
        for operation in waiting {
            self.take_signal(id, operation, context);
        }
    }

    /// Gives the first waiting signal of the name that an operation waits for to that operation.
    pub(super) fn take_signal(&mut self, id: Sequence, operation: u32, context: &mut WorkflowContext<'_, '_>) {
        if context.world.is_read_only {
            return; // Looked for again when the workflow's timers end, or another signal comes.
        }
        let Some(workflow) = self.live.get(&id) else {
            return; // It has ended with the signal before this one.
        };
        let is_given = workflow.rows.iter().any(|row| row.operation == operation);
        let Some(name) = workflow.open.get(&operation).filter(|_| !is_given).map(|open| open.name.clone()) else {
            return; // It has its signal already.
        };
        if let Some((payload, taken)) = context.books.signals.first(id, &name, context.rows) {
            self.operation_ended(id, operation, Ok(payload), vec![taken], context);
        }
    }

    /// Notes in the journal of a workflow that it is cancelled.
    pub(super) fn note_cancel(&mut self, id: Sequence, context: &mut WorkflowContext<'_, '_>) {
        let Some(mut workflow) = self.live.remove(&id) else {
            return; // It has ended meanwhile.
        };
        let is_noted = workflow.is_being_cancelled();
        if !context.world.is_read_only && !is_noted {
            let row = JournalRow {
                kind: StepKind::Cancel,
                operation: 0,
                ended: context.world.now,
                name: String::new(),
                result: Ok(Bytes::from_static(b"null")),
            };
            let mut writes = vec![workflow.next_row_write(&row, &context.books.journals)];
            writes.extend(workflow.forgive(context));
            let lsn = context.append(writes);
            workflow.journalled(lsn, false);
            self.row_made(&mut workflow, row);
        }
        self.live.insert(id, workflow);
    }

    /// Somebody wants a workflow cancelled; the entry after which that is certain.
    ///
    /// # Errors
    /// `unknown-invocation`; `read-only`.
    ///
    /// # Panics
    /// When a workflow that is in memory is not.
    pub(super) fn want_cancelled(&mut self, id: Sequence, context: &mut WorkflowContext<'_, '_>) -> Result<Lsn, Error> {
        let mut record = match self.standing(id, context)? {
            Standing::Stored(record) => record,
            Standing::Live => self.live.get(&id).expect("it stands as one in memory").record.clone(),
            Standing::Pending(message) => {
                return context.books.cancel_start(id, *message, &mut context.rows.context(context.world));
            }
            Standing::Called => {
                let ended = context.books.end_failing(id, false, &mut context.rows.context(context.world))?;
                return ended.ok_or_else(not_begun);
            }
            // That it has ended may not be durable yet.
            Standing::Ended => return Ok(context.books.results.lsn(context.rows)),
            Standing::Unknown => return Err(unknown_workflow()),
        };
        if record.is_cancelled {
            return Ok(context.rows.lsn());
        }
        if context.world.is_read_only {
            return Err(read_only());
        }
        record.is_cancelled = true;
        let write = context.books.journals.record_write(id, &record);
        let lsn = context.append(vec![write]);
        if let Some(workflow) = self.live.get_mut(&id) {
            workflow.record = record;
            self.runnable.push_back(id);
        } else if let Some(stranded) = self.stranded.get(id) {
            *stranded = record;
        }
        Ok(lsn)
    }
}

fn too_many() -> Error {
    Error::new(ErrorCode::Overloaded, "too many signals wait for this workflow")
}
