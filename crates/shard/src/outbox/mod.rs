//! Messages on their way to other shards.
//!
//! A message to another shard is a row here, written in its sender's entry. It is carried over, in order, until the
//! receiver acknowledges that it lies durably in its inbox; then the row goes.
//!
//! Promises: what is carried over is durable. What is on the way and not acknowledged is in memory. It is bounded: in
//! messages for each receiver, and in bytes for all of them. A receiver may not answer, because its disk is full or it has
//! stopped. Then it gets one message again, less and less often, and keeps nothing from the others.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use millrace_base::{EntityKey, ShardId, UnixMillis, Value, ValueKind, limits};
use millrace_format::{MessageRecord, Write};

use crate::context::{Context, Rows};
use crate::request::{Delivery, Sequence};

#[cfg(test)]
mod tests;

/// How long a receiver may say nothing before it gets the first message again.
const SILENCE_MS: u64 = 1_000;

/// What that grows to by doubling.
const LONGEST_SILENCE_MS: u64 = 16_000;

/// What a message on the way takes beside its content, in the queue of the receiver's core.
const OVERHEAD_BYTES: usize = 256;

/// What is on its way to other shards.
pub(crate) struct Outbox {
    /// Field: receiver ‖ sequence; value: `format::MessageRecord`.
    entity: EntityKey,
    channels: BTreeMap<ShardId, Channel>,
    /// The receiver that was served last: the next one after it has its turn.
    served: Option<ShardId>,
    /// Of all messages on the way to receivers that answer.
    on_the_way_bytes: usize,
    is_loaded: bool,
}

#[derive(Default)]
struct Channel {
    /// Delivered up to here since the start.
    delivered: Sequence,
    /// Acknowledged up to here; rows up to here can be deleted.
    acknowledged: Sequence,
    /// Rows up to here have been deleted.
    forgotten: Sequence,
    on_the_way: usize,
    /// Of these, as far as they count for the outbox.
    on_the_way_bytes: usize,
    has_more: bool,
    /// When something was sent or acknowledged last.
    heard_ms: u64,
    /// How often nothing has been heard for too long since then.
    silences: u32,
}

impl Channel {
    fn silence_ms(&self) -> u64 {
        (SILENCE_MS << self.silences.min(16)).min(LONGEST_SILENCE_MS)
    }
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self {
            entity: EntityKey::internal("outbox", b""),
            channels: BTreeMap::new(),
            served: None,
            on_the_way_bytes: 0,
            is_loaded: false,
        }
    }

    fn added(&mut self, to: ShardId) {
        self.channels.entry(to).or_default().has_more = true;
    }

    /// The write of a message to `to`. It must be made.
    pub(crate) fn write(&mut self, to: ShardId, sequence: Sequence, record: &MessageRecord) -> Write {
        self.added(to);
        let value = Some(Value::new(ValueKind::Bytes, &record.encode()));
        Write { entity: self.entity.clone(), field: outbox_field(to, sequence).into(), value }
    }

    /// Receivers that something can be carried to now, in their turn.
    fn ready(&self) -> Vec<ShardId> {
        let is_ready = |channel: &Channel| channel.has_more && channel.on_the_way == 0;
        let mut ready: Vec<ShardId> =
            self.channels.iter().filter(|(_, channel)| is_ready(channel)).map(|(to, _)| *to).collect();
        let first = ready.partition_point(|to| self.served.is_some_and(|served| *to <= served));
        ready.rotate_left(first);
        ready
    }

    /// The receiver `from` has durably taken everything up to `sequence`.
    pub(crate) fn acknowledged(&mut self, from: ShardId, sequence: Sequence, context: &mut Context<'_>) {
        let channel = self.channels.entry(from).or_default();
        if sequence > channel.acknowledged {
            channel.acknowledged = sequence;
            channel.heard_ms = context.monotonic_ms;
            channel.silences = 0;
        }
        if channel.delivered <= channel.acknowledged {
            channel.on_the_way = 0;
            self.on_the_way_bytes -= std::mem::take(&mut channel.on_the_way_bytes);
        }
        self.deliver(context);
    }

    /// Carries over what is durable, within the bounds.
    pub(crate) fn deliver(&mut self, context: &mut Context<'_>) {
        self.load(context.rows);
        let most_bytes = limits::DELIVERY_BYTES / usize::from(context.rows.options().shard_count.max(1));
        for to in self.ready() {
            let room_bytes = most_bytes.saturating_sub(self.on_the_way_bytes);
            if room_bytes == 0 {
                return;
            }
            self.deliver_to(to, room_bytes, context);
        }
    }

    /// After a start every receiver may have rows waiting for it.
    fn load(&mut self, rows: &mut Rows) {
        let mut after: Option<Vec<u8>> = None;
        while !self.is_loaded {
            // What cannot be read now is read by the next attempt.
            let Ok(rows) = rows.store().scan_fields(&self.entity, b"", after.as_deref(), 1) else {
                return;
            };
            let Some(to) = rows.first().and_then(|(field, _)| field.first_chunk::<2>().copied()) else {
                self.is_loaded = true;
                return;
            };
            self.added(ShardId(u16::from_be_bytes(to)));
            after = Some([&to[..], &[0xFF; 16]].concat());
        }
    }

    /// Carries over some of the messages to one receiver: one at least, and then, if it answers, what fits into `room_bytes`.
    fn deliver_to(&mut self, to: ShardId, room_bytes: usize, context: &mut Context<'_>) {
        let prefix = to.0.to_be_bytes();
        let channel = self.channels.entry(to).or_default();
        let is_silent = channel.silences > 0;
        let room_bytes = if is_silent { 0 } else { room_bytes };
        // Rows leave the outbox only when they have arrived, so whatever was before the first one
        // has arrived.
        let mut after = channel.delivered.max(channel.acknowledged);
        let from = outbox_field(to, after);
        let window = limits::DELIVERY_WINDOW;
        let found = context.rows.store().scan_fields_within(&self.entity, &prefix, Some(&from), window, room_bytes);
        let Ok((rows, _)) = found else {
            return; // What cannot be read now is read by the next attempt.
        };
        let (own, durable) = (context.rows.shard(), context.rows.durable());
        channel.has_more = !rows.is_empty();
        let mut sent_bytes = 0;
        for (field, value) in rows {
            let Some(sequence) = field.get(2..).and_then(Sequence::decode) else {
                continue; // Not a row that any version writes: nobody could acknowledge it.
            };
            if sequence.lsn > durable || sent_bytes > room_bytes {
                break;
            }
            sent_bytes += value.content().len() + OVERHEAD_BYTES;
            channel.delivered = sequence;
            channel.on_the_way += 1;
            let message = as_another_gets_it(value.content(), (context.now, context.rows.clock().lead_ms()));
            context.outputs.deliver(to, Delivery { from: own, sequence, after, message });
            after = sequence;
        }
        if sent_bytes > 0 {
            channel.heard_ms = context.monotonic_ms;
            self.served = Some(to);
        }
        if !is_silent {
            channel.on_the_way_bytes += sent_bytes;
            self.on_the_way_bytes += sent_bytes;
        }
    }

    /// Deletes outbox rows that were acknowledged, and has what a receiver is silent about sent again.
    pub(crate) fn forget_acknowledged(&mut self, context: &mut Context<'_>) {
        let mut done = Vec::new();
        for (to, channel) in &mut self.channels {
            if channel.on_the_way > 0 && context.monotonic_ms.saturating_sub(channel.heard_ms) >= channel.silence_ms() {
                channel.silences += 1;
                channel.delivered = channel.acknowledged;
                channel.on_the_way = 0;
                channel.has_more = true;
                self.on_the_way_bytes -= std::mem::take(&mut channel.on_the_way_bytes);
            }
            if channel.acknowledged > channel.forgotten && !context.is_read_only {
                done.push((*to, channel.acknowledged));
            }
        }
        let mut writes = Vec::new();
        for (to, acknowledged) in done {
            let (fields, is_all) = self.arrived_rows(to, acknowledged, context.rows);
            if is_all && let Some(channel) = self.channels.get_mut(&to) {
                channel.forgotten = acknowledged;
            }
            let entity = &self.entity;
            writes.extend(fields.into_iter().map(|field| Write { entity: entity.clone(), field, value: None }));
        }
        context.append_any(writes);
    }

    /// Rows for `to` up to `acknowledged`, a bounded number; says whether these are all.
    fn arrived_rows(&self, to: ShardId, acknowledged: Sequence, rows: &mut Rows) -> (Vec<Box<[u8]>>, bool) {
        let prefix = to.0.to_be_bytes();
        let is_done =
            |field: &[u8]| field.get(2..).and_then(Sequence::decode).is_some_and(|sequence| sequence <= acknowledged);
        let (mut fields, mut is_all): (Vec<Box<[u8]>>, bool) = (Vec::new(), true);
        let visited = rows.store().visit_fields(&self.entity, &prefix, limits::PART, &mut |field, _| {
            if !is_done(field) {
                return ControlFlow::Break(());
            }
            if fields.len() == limits::SCAN_ROWS {
                is_all = false;
                return ControlFlow::Break(());
            }
            fields.push(field.into());
            ControlFlow::Continue(())
        });
        (fields, is_all && visited.is_ok())
    }
}

/// A message as another shard gets it. What is due by the sender's time is due at once, which zero says: the receiver's may be
/// behind. What is due later is due by the machine's time, of which the sender's may be ahead.
fn as_another_gets_it(message: &[u8], (now, lead_ms): (UnixMillis, u64)) -> Bytes {
    let change = |due: UnixMillis| if due <= now { UnixMillis(0) } else { UnixMillis(due.0.saturating_sub(lead_ms)) };
    MessageRecord::with_due(message, change).into()
}

fn outbox_field(to: ShardId, sequence: Sequence) -> Vec<u8> {
    [&to.0.to_be_bytes()[..], &sequence.encode()].concat()
}
