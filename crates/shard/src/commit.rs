//! The end of a transaction: its write set becomes one entry, or nothing happened.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, Lsn, UnixMillis, Value, ValueKind, shard_of_key};
use millrace_format::{DecodeError, Entry, MessageRecord, Outcome, OutcomeResult, Write};
use millrace_func::{Message, Output};

use crate::inbox::{inbox_field, outbox_field};
use crate::outcomes::{call_key, invocation_field, service_fingerprint};
use crate::request::{InvocationId, Invoke, Origin, Reply, Sequence};
use crate::shard::Shard;
use crate::transaction::Transaction;
use crate::world::World;

pub(crate) fn decode_failed(error: &DecodeError) -> Error {
    Error::new(ErrorCode::Internal, format!("the shard's bookkeeping cannot be read: {error}"))
}

pub(crate) fn read_only() -> Error {
    Error::new(ErrorCode::ReadOnly, "the disk is full: reads go on, writes are refused until space returns")
}

impl Shard {
    /// Ends a transaction: commits what it did, or nothing, and answers.
    pub(crate) fn finish(&mut self, transaction: Transaction, result: Result<Output, Error>, world: &mut World<'_>) {
        self.drop_frames(&transaction, world);
        self.give_up_locks(&transaction);
        match result {
            Ok(output) => self.commit(transaction, output, world),
            Err(error) => self.roll_back(transaction, error, world),
        }
    }

    fn commit(&mut self, mut transaction: Transaction, output: Output, world: &mut World<'_>) {
        // Nothing keeps two sendings of a route from running side by side, as its entity does for
        // a call: whoever comes second did nothing, and answers what the first did.
        if matches!(transaction.origin, Origin::Route(_)) && self.answers_from_outcome(&transaction.origin, world) {
            return;
        }
        let reads_depend_on = self.read_lsn(&transaction);
        let is_message = matches!(transaction.origin, Origin::Message { .. });
        let is_recorded = transaction.origin.info().idempotency_key.is_some() && !transaction.is_query();
        let changes = transaction.has_effects() || is_message || is_recorded;
        if changes && world.is_read_only {
            return self.refuse(transaction.origin, read_only(), reads_depend_on, world);
        }
        let mut writes = Vec::with_capacity(transaction.write_count + 2);
        for touched in &mut transaction.touched {
            for (field, value) in std::mem::take(&mut touched.writes) {
                writes.push(Write { entity: touched.entity.clone(), field, value });
            }
        }
        self.add_messages(&transaction.messages, &mut writes, world);
        // A keyed call that changed nothing is recorded only when others might have to be kept
        // from taking effect under its key: a query never is.
        self.add_outcome(&transaction, || output_outcome(&output), &mut writes, world);
        if let Origin::Message { field, .. } = &transaction.origin {
            self.message_done(field, &mut writes);
        }
        let depends_on = if writes.is_empty() { reads_depend_on } else { self.append(writes, world) };
        let reply = match output {
            Output::Value(json) => Reply::Value(json),
            Output::Response(reply) => Reply::Route(reply),
        };
        if !is_message {
            let token = transaction.origin.info().token;
            self.replies.release(token, Ok(reply), depends_on, self.durable, world.outputs);
        }
    }

    fn roll_back(&mut self, transaction: Transaction, error: Error, world: &mut World<'_>) {
        let mut depends_on = self.read_lsn(&transaction);
        // An abort is the function's answer, so a repeated request gets it again. Any other
        // error says nothing about what the function would answer next time. What became of a
        // message is noted where its row is deleted.
        let is_answer = error.code == ErrorCode::Aborted && !matches!(transaction.origin, Origin::Message { .. });
        if is_answer {
            if matches!(transaction.origin, Origin::Route(_)) && self.answers_from_outcome(&transaction.origin, world) {
                return;
            }
            let mut writes = Vec::new();
            self.add_outcome(&transaction, || OutcomeResult::Error(error.clone()), &mut writes, world);
            if !writes.is_empty() {
                if world.is_read_only {
                    return self.refuse(transaction.origin, read_only(), depends_on, world);
                }
                depends_on = self.append(writes, world);
            }
        }
        self.refuse(transaction.origin, error, depends_on, world);
    }

    fn refuse(&mut self, origin: Origin, error: Error, depends_on: Lsn, world: &mut World<'_>) {
        match origin {
            Origin::Message { field, .. } => self.message_failed(&field, error, world),
            Origin::Call(Invoke { info, .. }) => {
                self.replies.release(info.token, Err(error), depends_on, self.durable, world.outputs);
            }
            Origin::Route(call) => {
                self.replies.release(call.info.token, Err(error), depends_on, self.durable, world.outputs);
            }
        }
    }

    /// The newest entry whose effects the transaction may have seen.
    fn read_lsn(&self, transaction: &Transaction) -> Lsn {
        if self.durable == self.store.lsn() {
            return Lsn::ZERO;
        }
        let newest = |lsn: Lsn, touched: &crate::transaction::Touched| lsn.max(self.store.entity_lsn(&touched.entity));
        transaction.touched.iter().fold(Lsn::ZERO, newest)
    }

    /// `result` is asked for only if it is kept: most calls carry no key.
    fn add_outcome(
        &mut self,
        transaction: &Transaction,
        result: impl FnOnce() -> OutcomeResult,
        writes: &mut Vec<Write>,
        world: &World<'_>,
    ) {
        if let Some(key) = self.outcome_key(&transaction.origin, world) {
            if transaction.is_query() && writes.is_empty() {
                return;
            }
            let expires = world.now.plus(self.options.retention_ms);
            let outcome = Outcome { expires, fingerprint: key.fingerprint, result: result() };
            writes.push(self.outcome_write(&key.field, &outcome));
            return;
        }
        if let Origin::Message { field, .. } = &transaction.origin {
            self.add_invocation_outcome(field, result(), writes, world);
        }
    }

    /// Messages to this shard go straight to its inbox, others to the outbox; either way in the
    /// transaction's own entry.
    fn add_messages(&mut self, messages: &[Message], writes: &mut Vec<Write>, world: &World<'_>) {
        let lsn = self.store.lsn().next();
        for (index, message) in (0u16..).zip(messages) {
            let Some((app, service, handler)) = world.catalog.names(message.handler) else {
                continue;
            };
            let due = world.now.plus(message.delay_ms);
            let record = MessageRecord {
                keeps_outcome: false,
                attempts: 0,
                due,
                app: app.to_string(),
                service: service.to_string(),
                handler: handler.to_string(),
                key: message.key.clone(),
                input: message.input.clone(),
            };
            let to = shard_of_key(&message.key, self.options.shard_count);
            let sequence = Sequence { lsn, index };
            if to == self.options.shard {
                writes.push(self.inbox_write(&inbox_field(due, sequence), &record));
            } else {
                self.outbox.added(to);
                let value = Some(Value::new(ValueKind::Bytes, &record.encode()));
                let field = outbox_field(to, sequence).into();
                writes.push(Write { entity: self.bookkeeping.outbox.clone(), field, value });
            }
        }
    }

    /// Accepts a front's send: into the inbox, with a pending outcome somebody can ask for.
    pub(crate) fn accept_send(
        &mut self,
        invoke: &Invoke,
        entity: &millrace_base::EntityKey,
        delay_ms: u64,
        world: &mut World<'_>,
    ) {
        let Some((app, service, handler)) = world.catalog.names(invoke.handler) else {
            let error = Error::new(ErrorCode::UnknownHandler, "the handler's app version is gone");
            return world.outputs.reply(invoke.info.token, Err(error));
        };
        let key = invoke
            .info
            .idempotency_key
            .as_deref()
            .map(|key| call_key(entity, handler.as_str(), &invoke.input, key, b"send"));
        if let Some(key) = &key
            && let Some(result) = self.kept_reply(key, world.now)
        {
            let depends_on = self.store.entity_lsn(&self.bookkeeping.outcomes);
            return self.replies.release(invoke.info.token, result, depends_on, self.durable, world.outputs);
        }
        let due = world.now.plus(delay_ms);
        let record = MessageRecord {
            keeps_outcome: true,
            attempts: 0,
            due,
            app: app.to_string(),
            service: service.to_string(),
            handler: handler.to_string(),
            key: invoke.key.to_vec(),
            input: invoke.input.clone(),
        };
        let sequence = Sequence { lsn: self.store.lsn().next(), index: 0 };
        let pending = |result, expires, fingerprint| Outcome { expires, fingerprint, result };
        let mut writes = vec![
            self.inbox_write(&inbox_field(due, sequence), &record),
            self.outcome_write(
                &invocation_field(sequence),
                &pending(OutcomeResult::Pending, UnixMillis(0), service_fingerprint(app.as_str(), service.as_str())),
            ),
        ];
        if let Some(key) = key {
            let sent = OutcomeResult::Sent(sequence.lsn, sequence.index);
            let outcome = pending(sent, world.now.plus(self.options.retention_ms), key.fingerprint);
            writes.push(self.outcome_write(&key.field, &outcome));
        }
        let lsn = self.append(writes, world);
        let reply = Reply::Sent(InvocationId { shard: self.options.shard, sequence });
        self.replies.release(invoke.info.token, Ok(reply), lsn, self.durable, world.outputs);
    }

    /// Makes `writes` the shard's next entry: in the log's hands and in the store, together.
    ///
    /// # Panics
    /// When the store cannot apply them: it would then contradict the log. The driver stops the
    /// shard; a restart recovers it from the log.
    pub(crate) fn append(&mut self, writes: Vec<Write>, world: &mut World<'_>) -> Lsn {
        let lsn = self.store.lsn().next();
        let entry = Entry { shard: self.options.shard, lsn, time: world.now, writes: &writes };
        world.outputs.append(&entry);
        self.store.apply(lsn, writes).expect("the store applies what the log has taken");
        if self.options.is_durable_at_once {
            self.durable = lsn;
        }
        lsn
    }
}

/// What is kept of a success.
fn output_outcome(output: &Output) -> OutcomeResult {
    match output {
        Output::Value(json) => OutcomeResult::Value(json.clone()),
        Output::Response(reply) => {
            OutcomeResult::Reply { status: reply.status, headers: reply.headers.clone(), body: reply.body.clone() }
        }
    }
}

/// `null`, for inputs that are empty.
pub(crate) fn input_or_null(input: &Bytes) -> Bytes {
    if input.is_empty() { Bytes::from_static(b"null") } else { input.clone() }
}
