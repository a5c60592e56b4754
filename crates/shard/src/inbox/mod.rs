//! Messages that are to run here, by due time, and which of them run.
//!
//! Every message is a row. Memory holds the earliest of the rows, and the order among those that
//! run for the same entity. Another part runs a message; its row goes in the entry that does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use millrace_base::{EntityKey, Error, ErrorCode, Lsn, ShardId, UnixMillis, Value, ValueKind, limits};
use millrace_format::{MessageRecord, Write};

use crate::context::{Context, Rows, decode_failed, store_failed};
use crate::request::Sequence;

#[cfg(test)]
mod tests;

/// Inbox fields kept in memory at once; the rest stays in the store until these have run.
const WINDOW_ROWS: usize = 4096;

/// What is to run here, by due time.
pub(crate) struct Inbox {
    /// Field: due ‖ sequence; value: `format::MessageRecord`.
    entity: EntityKey,
    /// Field: sender; value: the last sequence that arrived from it.
    received: EntityKey,
    /// The earliest fields, in order; all of them if `is_complete`.
    waiting: BTreeSet<Box<[u8]>>,
    is_complete: bool,
    /// What was started and has not ended, each with its receiver where that is known.
    running: BTreeMap<Box<[u8]>, Option<EntityKey>>,
    /// The running messages of each receiver, in their order: the first one runs, the others wait for its end. A
    /// transaction that gives way lets go of its entities, so the locks would let the next one pass.
    receivers: BTreeMap<EntityKey, VecDeque<Box<[u8]>>>,
    /// Messages whose turn has come.
    next: VecDeque<Box<[u8]>>,
    /// Nothing could be started when it was last tried, whatever is due.
    is_paused: bool,
    /// What has arrived from each sender and is not yet acknowledged, with the entry that holds it.
    acknowledgements: BTreeMap<ShardId, (Sequence, Lsn)>,
}

/// Due time, then place: byte order is the order to run in.
pub(crate) fn inbox_field(due: UnixMillis, sequence: Sequence) -> Vec<u8> {
    [&due.0.to_be_bytes()[..], &sequence.encode()].concat()
}

fn due_of(field: &[u8]) -> Option<UnixMillis> {
    field.first_chunk::<8>().map(|due| UnixMillis(u64::from_be_bytes(*due)))
}

/// The place of a message in the log, by its field.
pub(crate) fn sequence_of(field: &[u8]) -> Option<Sequence> {
    Sequence::decode(field.get(8..)?)
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            entity: EntityKey::internal("inbox", b""),
            received: EntityKey::internal("received", b""),
            waiting: BTreeSet::new(),
            is_complete: false,
            running: BTreeMap::new(),
            receivers: BTreeMap::new(),
            next: VecDeque::new(),
            is_paused: false,
            acknowledgements: BTreeMap::new(),
        }
    }

    /// When the next message can be started.
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

    /// The write of a message that comes in. It must be made.
    pub(crate) fn write(&mut self, field: &[u8], record: &MessageRecord) -> Write {
        self.add(field);
        let value = Some(Value::new(ValueKind::Bytes, &record.encode()));
        Write { entity: self.entity.clone(), field: field.into(), value }
    }

    /// The write of a message that goes.
    pub(crate) fn deletion(&self, field: &[u8]) -> Write {
        Write { entity: self.entity.clone(), field: field.into(), value: None }
    }

    /// A message.
    ///
    /// # Errors
    /// When its row is gone or cannot be read.
    pub(crate) fn message(&self, field: &[u8], rows: &mut Rows) -> Result<MessageRecord, Error> {
        let found = rows.store().get(&self.entity, field).map_err(|error| store_failed(&error))?;
        let value = found.ok_or_else(|| Error::new(ErrorCode::Internal, "the message is gone from the inbox"))?;
        MessageRecord::decode(value.content()).map_err(|error| decode_failed(&error))
    }

    /// A message that does not run is not to be started. Says whether it does not run.
    pub(crate) fn forget(&mut self, field: &[u8]) -> bool {
        self.waiting.remove(field);
        !self.running.contains_key(field)
    }

    /// A message is to be started again, when there is something that lets it run.
    pub(crate) fn put_back(&mut self, field: &[u8]) {
        self.waiting.insert(field.into());
    }

    /// Says whether a message that was started may run, and has it wait for its turn if not.
    pub(crate) fn has_turn(&mut self, field: &[u8], receiver: &EntityKey) -> bool {
        if let Some(known @ None) = self.running.get_mut(field) {
            *known = Some(receiver.clone());
            self.receivers.entry(receiver.clone()).or_default().push_back(field.into());
        }
        self.receivers.get(receiver).and_then(VecDeque::front).is_some_and(|first| **first == *field)
    }

    /// A running message has ended, or is to be started again: then those behind it wait for that.
    ///
    /// # Panics
    /// When the message has a receiver in whose line it does not stand.
    pub(crate) fn ended(&mut self, field: &[u8], is_over: bool) {
        // A message of a workflow or a signal, or one that never found its receiver, stands in no line.
        let Some(Some(receiver)) = self.running.remove(field) else {
            return;
        };
        let mut line = self.receivers.remove(&receiver).expect("a message that found its receiver stands in its line");
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

    /// Whether nothing can be started now, whatever is due.
    pub(crate) fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// The next message to start. It counts as running.
    pub(crate) fn start_next(&mut self, context: &mut Context<'_>) -> Option<Box<[u8]>> {
        if self.is_paused {
            return None;
        }
        if let Some(field) = self.next.pop_front() {
            return Some(field);
        }
        if self.running.len() >= limits::RUNNING_MESSAGES {
            return None;
        }
        self.load(context.rows);
        if self.waiting.first().and_then(|first| due_of(first)).is_some_and(|due| due > context.now) {
            return None;
        }
        let field = self.waiting.pop_first()?;
        self.running.insert(field.clone(), None);
        Some(field)
    }

    fn load(&mut self, rows: &mut Rows) {
        let mut after: Option<Box<[u8]>> = None;
        // A few large ones are a part, and all of them may run already: then nobody would look behind them.
        while !self.is_complete && self.waiting.is_empty() {
            let found =
                rows.store().scan_fields_within(&self.entity, b"", after.as_deref(), WINDOW_ROWS, limits::SCAN_BYTES);
            let Ok((found, is_cut)) = found else {
                return; // What cannot be read now is read by the next input.
            };
            self.is_complete = found.len() < WINDOW_ROWS && !is_cut;
            after = found.last().map(|(field, _)| field.clone());
            let running = &self.running;
            let waiting = found.into_iter().map(|(field, _)| field).filter(|field| !running.contains_key(field));
            self.waiting.extend(waiting);
        }
    }

    /// Says whether what comes from another shard is new, and the next one after what has arrived. What is not new is
    /// acknowledged again; what comes before its time comes again.
    pub(crate) fn is_new(
        &mut self,
        from: ShardId,
        (sequence, after): (Sequence, Sequence),
        context: &mut Context<'_>,
    ) -> bool {
        let arrived = match context.rows.store().get(&self.received, &from.0.to_be_bytes()) {
            Ok(found) => found.and_then(|value| Sequence::decode(value.content())).unwrap_or_default(),
            Err(_) => return false, // Not acknowledged, so it comes again.
        };
        if sequence <= arrived {
            let lsn = context.rows.entity_lsn(&self.received);
            self.acknowledgements.insert(from, (arrived, lsn));
            return false;
        }
        after <= arrived
    }

    /// The write that says how far `from` has come.
    pub(crate) fn received_write(&self, from: ShardId, sequence: Sequence) -> Write {
        Write {
            entity: self.received.clone(),
            field: from.0.to_be_bytes()[..].into(),
            value: Some(Value::new(ValueKind::Bytes, &sequence.encode())),
        }
    }

    /// A delivery is in the entry `lsn`: its sender is told once that is durable.
    pub(crate) fn received(&mut self, from: ShardId, sequence: Sequence, lsn: Lsn) {
        self.acknowledgements.insert(from, (sequence, lsn));
    }

    /// Acknowledges what has durably arrived.
    pub(crate) fn release_acknowledgements(&mut self, context: &mut Context<'_>) {
        let (own, durable) = (context.rows.shard(), context.rows.durable());
        self.acknowledgements.retain(|to, (sequence, lsn)| {
            let is_durable = *lsn <= durable;
            if is_durable {
                context.outputs.acknowledge(*to, own, *sequence);
            }
            !is_durable
        });
    }
}
