//! Messages that are to run here, and how each takes effect exactly once.
//!
//! The entry that puts a message of another shard's [`outbox`](crate::outbox) into the inbox also notes the message's sequence, so
//! that a second delivery is recognised; the entry that runs it also deletes it. Every step is thus one entry, and repeating
//! any of them after a crash changes nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use millrace_base::{EntityKey, Error, ErrorCode, Lsn, ShardId, UnixMillis, Value, ValueKind, limits};
use millrace_format::{MessageRecord, Outcome, OutcomeResult, Write};
use millrace_func::{HandlerKind, NestedCall};

use crate::commit::{decode_failed, input_or_null};
use crate::host::store_failed;
use crate::outcomes::{invocation_field, service_fingerprint};
use crate::records::failure_of;
use crate::request::{Delivery, Origin, RequestInfo, Sequence, Token};
use crate::retry::retry_wait_ms;
use crate::shard::Shard;
use crate::transaction::Role;
use crate::world::World;

/// Inbox fields kept in memory at once; the rest stays in the store until these have run.
const WINDOW_ROWS: usize = 4096;

/// What is to run here, by due time.
#[derive(Default)]
pub(crate) struct Inbox {
    /// The earliest fields, in order; all of them if `is_complete`.
    waiting: BTreeSet<Box<[u8]>>,
    is_complete: bool,
    /// What was started and has not ended, each with its receiver where that is known.
    running: BTreeMap<Box<[u8]>, Option<EntityKey>>,
    /// The running messages of each receiver, in their order: the first one runs, the others wait for its end. A
    /// transaction that gives way lets go of its entities, so the locks would let the next one pass.
    receivers: BTreeMap<EntityKey, VecDeque<Box<[u8]>>>,
    /// Those whose turn has come.
    next: VecDeque<Box<[u8]>>,
    /// Nothing could be started when it was last tried, whatever is due.
    is_paused: bool,
    acknowledgements: BTreeMap<ShardId, (Sequence, Lsn)>,
}

impl Inbox {
    pub(crate) fn next_due(&self) -> Option<UnixMillis> {
        if !self.is_paused && !self.next.is_empty() {
            return Some(UnixMillis(0));
        }
        if self.is_paused || self.running.len() >= limits::RUNNING_MESSAGES {
            return None;
        }
        if !self.is_complete && self.waiting.is_empty() {
            return Some(UnixMillis(0));
        }
        self.waiting.first().and_then(|field| due_of(field))
    }

    fn add(&mut self, field: &[u8]) {
        let is_within = self.is_complete || self.waiting.last().is_some_and(|last| field < &**last);
        if is_within {
            self.waiting.insert(field.into());
        }
        if self.waiting.len() > 2 * WINDOW_ROWS {
            self.waiting.pop_last();
            self.is_complete = false;
        }
    }

    /// A message that does not run is not to be started. Says whether it does not run.
    pub(crate) fn forget(&mut self, field: &[u8]) -> bool {
        self.waiting.remove(field);
        !self.running.contains_key(field)
    }

    /// Says whether a message that was started may run, and has it wait for its turn if not.
    fn has_turn(&mut self, field: &[u8], receiver: &EntityKey) -> bool {
        if let Some(known @ None) = self.running.get_mut(field) {
            *known = Some(receiver.clone());
            self.receivers.entry(receiver.clone()).or_default().push_back(field.into());
        }
        self.receivers.get(receiver).and_then(VecDeque::front).is_some_and(|first| **first == *field)
    }

    /// A running message has ended, or is to be started again: then those behind it wait for that.
    fn ended(&mut self, field: &[u8], is_over: bool) {
        let Some(Some(receiver)) = self.running.remove(field) else {
            return;
        };
        let Some(mut line) = self.receivers.remove(&receiver) else {
            return;
        };
        line.retain(|other| **other != *field);
        if !is_over {
            for field in line {
                self.running.remove(&field);
                self.waiting.insert(field);
            }
        } else if let Some(next) = line.front() {
            self.next.push_back(next.clone());
            self.receivers.insert(receiver, line);
        }
    }
}

/// Due time, then place: byte order is the order to run in.
pub(crate) fn inbox_field(due: UnixMillis, sequence: Sequence) -> Vec<u8> {
    [&due.0.to_be_bytes()[..], &sequence.encode()].concat()
}

fn due_of(field: &[u8]) -> Option<UnixMillis> {
    field.first_chunk::<8>().map(|due| UnixMillis(u64::from_be_bytes(*due)))
}

fn sequence_of(field: &[u8]) -> Option<Sequence> {
    Sequence::decode(field.get(8..)?)
}

/// The entity that a message is for, and what runs there.
fn target_of(message: &MessageRecord, world: &World<'_>) -> Result<(EntityKey, HandlerKind), Error> {
    let handler = world.catalog.find(&message.app, &message.service, &message.handler)?;
    let entity = world.catalog.entity(handler, &message.key);
    let entity = entity.ok_or_else(|| Error::new(ErrorCode::UnknownHandler, "the handler is not loaded"))?;
    Ok((entity, world.catalog.kind(handler)))
}

/// Whether a message that failed has nothing left to do, as the service or handler that it was for is gone.
fn is_gone(message: &MessageRecord, error: &Error, world: &World<'_>) -> bool {
    // Most errors are others, and most of these those of functions, whose services are there.
    matches!(error.code, ErrorCode::UnknownService | ErrorCode::UnknownHandler)
        && world
            .catalog
            .current(&message.app)
            .is_some_and(|program| world.engine.drops(program, &message.service, &message.handler))
}

/// Whether a message that failed would fail each time.
fn is_hopeless(message: &MessageRecord, id: Sequence, error: &Error) -> bool {
    match error.code {
        // Calls that nest too deeply do so each time.
        ErrorCode::Aborted | ErrorCode::DepthLimit => true,
        // A workflow whose id its sender did not choose was known from the moment it had it.
        ErrorCode::UnknownInvocation => message.is_signal && !id.is_drawn(),
        _ => false,
    }
}

impl Shard {
    pub(crate) fn inbox_write(&mut self, field: &[u8], record: &MessageRecord) -> Write {
        self.inbox.add(field);
        let value = Some(Value::new(ValueKind::Bytes, &record.encode()));
        Write { entity: self.bookkeeping.inbox.clone(), field: field.into(), value }
    }

    /// Starts the first message that is due, if `budget` allows. Says whether it did.
    pub(crate) fn start_due_message(&mut self, budget: &mut usize, world: &mut World<'_>) -> bool {
        self.inbox.is_paused = world.is_read_only || self.is_stopped();
        if self.inbox.is_paused || world.is_behind || *budget == 0 {
            return false;
        }
        if let Some(field) = self.inbox.next.pop_front() {
            *budget -= 1;
            self.start_message(field, world);
            return true;
        }
        if self.inbox.running.len() >= limits::RUNNING_MESSAGES {
            return false;
        }
        self.load_inbox();
        let Some(first) = self.inbox.waiting.first() else {
            return false;
        };
        if due_of(first).is_some_and(|due| due > world.now) {
            return false;
        }
        let Some(field) = self.inbox.waiting.pop_first() else {
            return false;
        };
        *budget -= 1;
        self.inbox.running.insert(field.clone(), None);
        self.start_message(field, world);
        true
    }

    fn load_inbox(&mut self) {
        let mut after: Option<Box<[u8]>> = None;
        // A few large ones are a part, and all of them may run already: then nobody would look behind them.
        while !self.inbox.is_complete && self.inbox.waiting.is_empty() {
            let (inbox, from) = (&self.bookkeeping.inbox, after.as_deref());
            let found = self.store.scan_fields_within(inbox, b"", from, WINDOW_ROWS, limits::SCAN_BYTES);
            let Ok((rows, is_cut)) = found else {
                return;
            };
            self.inbox.is_complete = rows.len() < WINDOW_ROWS && !is_cut;
            after = rows.last().map(|(field, _)| field.clone());
            let running = &self.inbox.running;
            let waiting = rows.into_iter().map(|(field, _)| field).filter(|field| !running.contains_key(field));
            self.inbox.waiting.extend(waiting);
        }
    }

    fn start_message(&mut self, field: Box<[u8]>, world: &mut World<'_>) {
        let message = match self.message(&field) {
            Ok(message) if message.is_signal => return self.signal_arrived(&field, message, world),
            Ok(message) => message,
            Err(error) => return self.message_failed(&field, error, world),
        };
        let (entity, kind) = match target_of(&message, world) {
            Ok((_, HandlerKind::Workflow)) => return self.begin_workflow(&field, message, world),
            Ok(root) => root,
            Err(error) => return self.message_failed(&field, error, world),
        };
        if !self.inbox.has_turn(&field, &entity) {
            return;
        }
        let nonce = world.take_nonce();
        let info = RequestInfo { token: Token(u64::MAX), time: world.now, nonce, idempotency_key: None };
        let origin = Origin::Message { field, info };
        if !self.parks(&origin, &entity, kind, world) {
            self.run_root(origin, (entity, kind), Vec::new(), Role::Alone, world);
        }
    }

    pub(crate) fn message(&mut self, field: &[u8]) -> Result<MessageRecord, Error> {
        let found = self.store.get(&self.bookkeeping.inbox, field).map_err(|error| store_failed(&error))?;
        let value = found.ok_or_else(|| Error::new(ErrorCode::Internal, "the message is gone from the inbox"))?;
        MessageRecord::decode(value.content()).map_err(|error| decode_failed(&error))
    }

    /// The entity a message is for, and whether it may be written.
    pub(crate) fn message_target(
        &mut self,
        field: &[u8],
        world: &World<'_>,
    ) -> Result<(EntityKey, HandlerKind), Error> {
        target_of(&self.message(field)?, world)
    }

    /// What a message asks to run.
    pub(crate) fn message_call(&mut self, field: &[u8], world: &World<'_>) -> Result<NestedCall, Error> {
        let message = self.message(field)?;
        let handler = world.catalog.find(&message.app, &message.service, &message.handler)?;
        Ok(NestedCall { handler, key: message.key, input: input_or_null(&message.input) })
    }

    /// A message's effects are being committed: its row goes in the same entry.
    pub(crate) fn message_done(&mut self, field: &[u8], writes: &mut Vec<Write>) {
        self.inbox.ended(field, true);
        if !self.waiting.is_none_pending()
            && let Ok(message) = self.message(field)
        {
            self.end_pending(self.invocation_of(field, &message), field, writes);
        }
        writes.push(Write { entity: self.bookkeeping.inbox.clone(), field: field.into(), value: None });
    }

    /// A message that another handler sent comes into the inbox: if it starts a workflow, that is
    /// there from now on.
    pub(crate) fn add_start(&mut self, field: &[u8], message: &MessageRecord, writes: &mut Vec<Write>) {
        if message.invocation.is_some() && !message.is_signal {
            let id = self.invocation_of(field, message);
            self.add_pending(id, field, writes);
            writes.push(self.pending_outcome_write(id, &message.app, &message.service));
        }
    }

    pub(crate) fn add_invocation_outcome(
        &mut self,
        field: &[u8],
        result: OutcomeResult,
        writes: &mut Vec<Write>,
        world: &World<'_>,
    ) {
        let Ok(message) = self.message(field) else {
            return;
        };
        let sequence = self.invocation_of(field, &message);
        if message.keeps_outcome || self.waiting.is_pending(sequence, field) {
            let expires = world.now.plus(self.options.retention_ms);
            let fingerprint = service_fingerprint(&message.app, &message.service);
            let outcome = Outcome { expires, fingerprint, result };
            writes.push(self.outcome_write(invocation_field(sequence), &outcome));
        }
    }

    /// A message did not take effect: an abort is final, and so is what the engine drops; what nests too deeply
    /// goes to the dead letters, anything else is tried again later, and after too many attempts goes there too.
    pub(crate) fn message_failed(&mut self, field: &[u8], error: Error, world: &mut World<'_>) {
        self.inbox.ended(field, !world.is_read_only);
        if world.is_read_only {
            // Nothing can be noted now; it stays as it is and runs when writing is possible.
            self.inbox.waiting.insert(field.into());
            return;
        }
        let Ok(mut message) = self.message(field) else {
            tracing::error!(shard = self.options.shard.0, "an inbox row cannot be read and is left alone");
            return;
        };
        message.attempts += 1;
        let error = failure_of(&message, error);
        let mut writes = vec![Write { entity: self.bookkeeping.inbox.clone(), field: field.into(), value: None }];
        // It may have been sent in a version that this core does not serve yet, but will in a moment.
        let is_gone = is_gone(&message, &error, world);
        let is_dropped = is_gone && message.attempts > 1;
        let sequence = sequence_of(field).unwrap_or_default();
        let id = self.invocation_of(field, &message);
        let is_final = is_hopeless(&message, id, &error) || is_dropped || message.attempts >= limits::MESSAGE_ATTEMPTS;
        // An abort is the receiver's answer; but who had a dead letter tried again still needs it.
        let is_answer = error.code == ErrorCode::Aborted && !message.was_set_aside;
        let is_pending = self.waiting.is_pending(id, field);
        if is_dropped {
            let MessageRecord { app, service, handler, .. } = &message;
            tracing::debug!(app, service, handler, "a message was dropped: what it was for is gone");
        } else if !is_gone && !is_answer {
            self.tell_of_failure(id, &message, &error, world);
        }
        if is_final {
            if is_pending {
                self.end_pending(id, field, &mut writes);
                self.give_up_pending(id, message.clone(), error.clone(), &mut writes, world);
            } else {
                self.add_invocation_outcome(field, OutcomeResult::Error(error.clone()), &mut writes, world);
            }
            if !is_answer && !is_dropped {
                writes.push(self.set_aside((id, sequence), &message, &error, "a message"));
            }
        } else {
            message.due = world.now.plus(retry_wait_ms(message.attempts));
            let field = inbox_field(message.due, sequence);
            writes.push(self.inbox_write(&field, &message));
            if is_pending {
                self.add_pending(id, &field, &mut writes);
            }
        }
        self.append(writes, world);
    }

    /// A message from another shard has arrived, perhaps not for the first time.
    pub fn deliver(&mut self, delivery: Delivery, world: &mut World<'_>) {
        if self.is_stopped() || world.is_read_only {
            return; // Not acknowledged, so it comes again.
        }
        let Delivery { from, sequence, after, message } = delivery;
        let field = from.0.to_be_bytes();
        let arrived = match self.store.get(&self.bookkeeping.received, &field) {
            Ok(found) => found.and_then(|value| Sequence::decode(value.content())).unwrap_or_default(),
            Err(_) => return,
        };
        if sequence <= arrived {
            let lsn = self.store.entity_lsn(&self.bookkeeping.received);
            self.inbox.acknowledgements.insert(from, (arrived, lsn));
        } else if after <= arrived {
            self.accept_delivery(from, sequence, &message, world);
        }
        self.release_acknowledgements(world);
        self.settle(world);
    }

    fn accept_delivery(&mut self, from: ShardId, sequence: Sequence, message: &Bytes, world: &mut World<'_>) {
        let noted = Write {
            entity: self.bookkeeping.received.clone(),
            field: from.0.to_be_bytes()[..].into(),
            value: Some(Value::new(ValueKind::Bytes, &sequence.encode())),
        };
        let mut writes = vec![noted];
        match MessageRecord::decode(message) {
            Ok(record) => {
                let own = Sequence { lsn: self.store.lsn().next(), index: 0 };
                let field = inbox_field(record.due, own);
                writes.push(self.inbox_write(&field, &record));
                self.add_start(&field, &record, &mut writes);
            }
            Err(error) => {
                tracing::error!(%error, from = from.0, "a message cannot be read; it is kept in the dead letters");
                let field = [&from.0.to_be_bytes()[..], &sequence.encode()].concat();
                writes.push(self.dead_letter_write(&field, message));
            }
        }
        let lsn = self.append(writes, world);
        self.inbox.acknowledgements.insert(from, (sequence, lsn));
    }

    /// Acknowledges what has durably arrived.
    pub(crate) fn release_acknowledgements(&mut self, world: &mut World<'_>) {
        let (own, durable) = (self.options.shard, self.durable);
        self.inbox.acknowledgements.retain(|to, (sequence, lsn)| {
            let is_durable = *lsn <= durable;
            if is_durable {
                world.outputs.acknowledge(*to, own, *sequence);
            }
            !is_durable
        });
    }
}
