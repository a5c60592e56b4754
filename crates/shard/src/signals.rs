//! Signals to workflows: rows that wait until the workflow asks for one of their name.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, Lsn, Value, ValueKind, limits};
use millrace_format::{MessageRecord, SignalRecord, Write};

use crate::host::store_failed;
use crate::request::{Reply, Sequence, Token};
use crate::shard::Shard;
use crate::workflow::Work;
use crate::workflows::{Standing, not_begun, unknown_workflow};
use crate::world::World;

impl Shard {
    /// A signal has come as a message.
    pub(crate) fn signal_arrived(&mut self, field: &[u8], message: MessageRecord, world: &mut World<'_>) {
        let id = self.invocation_of(field, &message);
        let mut writes = Vec::new();
        self.message_done(field, &mut writes);
        match self.standing(id) {
            Ok(Standing::Live | Standing::Stored(_) | Standing::Pending(_)) if self.may_signal(id, &message.app) => {
                if self.has_many_signals(id).unwrap_or(true) {
                    return self.message_failed(field, too_many(), world);
                }
                writes.push(self.signal_write(id, message.handler, message.input));
                self.append(writes, world);
                self.look_for_signal(id, world);
            }
            // It has overtaken what starts the workflow: tried again, if that may be.
            Ok(Standing::Unknown) => self.message_failed(field, unknown_workflow(), world),
            Ok(Standing::Called) => self.message_failed(field, not_begun(), world),
            Ok(_) => {
                self.append(writes, world);
            }
            Err(error) => self.message_failed(field, error, world),
        }
    }

    /// Whether a workflow is of the app that signals it.
    fn may_signal(&mut self, id: Sequence, app: &str) -> bool {
        let live = self.workflows.live.get(&id).map(|workflow| workflow.record.app == app);
        live.unwrap_or_else(|| match self.standing(id) {
            Ok(Standing::Stored(record)) => record.app == app,
            Ok(Standing::Pending(message)) => message.app == app,
            _ => false,
        })
    }

    fn has_many_signals(&mut self, id: Sequence) -> Result<bool, Error> {
        let most = limits::SIGNALS_PER_WORKFLOW;
        let waiting = self.store.scan_fields(&self.bookkeeping.signals, &id.encode(), None, most);
        let waiting = waiting.map_err(|error| store_failed(&error))?;
        let waiting_bytes: usize = waiting.iter().map(|(_, value)| value.content().len()).sum();
        Ok(waiting.len() >= most || waiting_bytes >= limits::SIGNAL_BYTES_PER_WORKFLOW)
    }

    /// Somebody outside sends a signal.
    ///
    /// # Errors
    /// `unknown-invocation`, `read-only`, `overloaded` (also for a call that was sent and has
    /// not ended), `idempotency-mismatch`, `workflow-ended`.
    pub(crate) fn accept_signal(
        &mut self,
        id: Sequence,
        name: &str,
        payload: &Bytes,
        idempotency_key: Option<&str>,
        world: &mut World<'_>,
    ) -> Result<Lsn, Error> {
        let key = idempotency_key.map(|key| self.options.outcome_names.of_signal(id, name, payload, key));
        if let Some(key) = &key
            && let Some(kept) = self.kept_reply(key, world.now)
        {
            return kept.map(|_| self.store.entity_lsn(&self.bookkeeping.outcomes));
        }
        match self.standing(id)? {
            Standing::Live | Standing::Stored(_) | Standing::Pending(_) => {}
            Standing::Called => return Err(not_begun()),
            Standing::Ended => {
                let message = "the workflow has ended: it takes no more signals";
                return Err(Error::new(ErrorCode::WorkflowEnded, message));
            }
            Standing::Unknown => return Err(unknown_workflow()),
        }
        if world.is_read_only {
            return Err(crate::commit::read_only());
        }
        if self.has_many_signals(id)? {
            return Err(too_many());
        }
        let mut writes = vec![self.signal_write(id, name.to_owned(), payload.clone())];
        if let Some(key) = key {
            writes.push(self.signalled_write(key, world));
        }
        let lsn = self.append(writes, world);
        self.look_for_signal(id, world);
        Ok(lsn)
    }

    fn signal_write(&self, id: Sequence, name: String, payload: Bytes) -> Write {
        // The entry that brings it is its place among the workflow's signals.
        let place = Sequence { lsn: self.store.lsn().next(), index: 0 };
        let record = SignalRecord { name, payload };
        Write {
            entity: self.bookkeeping.signals.clone(),
            field: [id.encode(), place.encode()].concat().into(),
            value: Some(Value::new(ValueKind::Bytes, &record.encode())),
        }
    }

    /// A signal has come for a workflow: gives it to the operation that has waited longest for it.
    fn look_for_signal(&mut self, id: Sequence, world: &mut World<'_>) {
        let waiting: Vec<u32> = self.workflows.live.get(&id).map_or_else(Vec::new, |workflow| {
            let waits = |(operation, open): (&u32, &crate::workflow::Open)| {
                matches!(open.work, Work::Wait(_)).then_some(*operation)
            };
            workflow.open.iter().filter_map(waits).collect()
        });
        for operation in waiting {
            self.take_signal(id, operation, world);
        }
    }

    /// Gives the first waiting signal of the name that an operation waits for to that operation.
    pub(crate) fn take_signal(&mut self, id: Sequence, operation: u32, world: &mut World<'_>) {
        if world.is_read_only {
            return; // Looked for again when the workflow's timers end, or another signal comes.
        }
        let Some(workflow) = self.workflows.live.get(&id) else {
            return;
        };
        let is_given = workflow.rows.iter().any(|row| row.operation == operation);
        let Some(name) = workflow.open.get(&operation).filter(|_| !is_given).map(|open| open.name.clone()) else {
            return;
        };
        let rows =
            self.store.scan_fields(&self.bookkeeping.signals, &id.encode(), None, 2 * limits::SIGNALS_PER_WORKFLOW);
        let Ok(rows) = rows else {
            return;
        };
        let found = rows.into_iter().find_map(|(field, value)| {
            SignalRecord::decode(value.content())
                .ok()
                .filter(|signal| signal.name == name)
                .map(|signal| (field, signal))
        });
        if let Some((field, signal)) = found {
            let taken = Write { entity: self.bookkeeping.signals.clone(), field, value: None };
            self.operation_ended(id, operation, Ok(signal.payload), vec![taken], world);
        }
    }

    /// Signals that a workflow which has ended never took.
    pub(crate) fn add_signal_deletions(&mut self, id: Sequence, writes: &mut Vec<Write>) {
        let entity = self.bookkeeping.signals.clone();
        let rows = self.store.scan_fields(&entity, &id.encode(), None, 2 * limits::SIGNALS_PER_WORKFLOW);
        let fields = rows.unwrap_or_default().into_iter().map(|(field, _)| field);
        writes.extend(fields.map(|field| Write { entity: entity.clone(), field, value: None }));
    }

    /// Sends a signal to a workflow; answered once it is durable.
    pub fn signal(
        &mut self,
        token: Token,
        id: Sequence,
        (name, payload): (&str, &Bytes),
        idempotency_key: Option<&str>,
        world: &mut World<'_>,
    ) {
        if self.refuses(token, world) {
            return;
        }
        let accepted = self.accept_signal(id, name, payload, idempotency_key, world);
        let depends_on = match &accepted {
            Ok(lsn) => *lsn,
            // That it has ended may not be durable yet.
            Err(error) if error.code == ErrorCode::WorkflowEnded => self.store.entity_lsn(&self.bookkeeping.outcomes),
            Err(_) => Lsn::ZERO,
        };
        self.reply_when_durable(token, accepted.map(|_| Reply::Done), depends_on, world);
        self.settle(world);
    }

    /// Cancels a workflow; answered once the wish is durable.
    pub fn cancel(&mut self, token: Token, id: Sequence, world: &mut World<'_>) {
        if self.refuses(token, world) {
            return;
        }
        let wanted = self.want_cancelled(id, world);
        self.answer_done(token, wanted, world);
        self.settle(world);
    }
}

fn too_many() -> Error {
    Error::new(ErrorCode::Overloaded, "too many signals wait for this workflow")
}
