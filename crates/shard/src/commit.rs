//! The end of a transaction: its write set becomes one entry, or nothing happened.

use bytes::Bytes;
use millrace_base::{EntityKey, Error, ErrorCode, Lsn, ShardId, TransactionId, Value, ValueKind};
use millrace_format::{DecodeError, Entry, MessageRecord, Outcome, OutcomeResult, Write};
use millrace_func::{HandlerKind, Output};

use crate::held::Leaving;
use crate::inbox::inbox_field;
use crate::outbox::outbox_field;
use crate::outcomes::OutcomeKey;
use crate::outgoing::{Outgoing, shard_of_record};
use crate::request::{InvocationId, Invoke, Origin, Reply, Sequence, Token};
use crate::shard::Shard;
use crate::transaction::{Role, Transaction};
use crate::world::World;

pub(crate) fn decode_failed(error: &DecodeError) -> Error {
    Error::new(ErrorCode::Internal, format!("the shard's bookkeeping cannot be read: {error}"))
}

pub(crate) fn read_only() -> Error {
    Error::new(ErrorCode::ReadOnly, "the disk is full: reads go on, writes are refused until space returns")
}

impl Shard {
    /// Ends a transaction: commits what it did, or nothing, and answers.
    pub(crate) fn finish(
        &mut self,
        transaction: Box<Transaction>,
        result: Result<Output, Error>,
        world: &mut World<'_>,
    ) {
        match (&transaction.role, result) {
            (Role::Home(home), result) if home.has_participants() => self.ask_for_votes(transaction, result, world),
            (Role::Branch(_), Err(error)) => self.fail_branch(transaction, error, world),
            (_, result) => {
                self.drop_frames(&transaction, world);
                self.give_up_locks(&transaction);
                match result {
                    Ok(output) => {
                        self.commit(transaction, output, None, world);
                    }
                    Err(error) => self.roll_back(transaction, error, world),
                }
            }
        }
    }

    /// Makes what a transaction did one entry, together with the `decision` that commits it in other
    /// shards, if it has prepared parts there. Says whether it did; if not, it has been answered.
    pub(crate) fn commit(
        &mut self,
        mut transaction: Box<Transaction>,
        output: Output,
        decision: Option<(TransactionId, &[ShardId])>,
        world: &mut World<'_>,
    ) -> bool {
        // Nothing keeps two sendings of a route from running side by side, as its entity does for
        // a call: whoever comes second did nothing, and answers what the first did.
        if self.is_answered_meanwhile(&transaction, world) {
            return false;
        }
        let is_message = matches!(transaction.origin, Origin::Message { .. });
        let is_recorded = transaction.origin.info().idempotency_key.is_some() && !transaction.is_always_query();
        let is_step = matches!(transaction.origin, Origin::Step { .. });
        let changes = transaction.has_effects() || is_message || is_step || is_recorded || decision.is_some();
        if changes && world.is_read_only {
            let depends_on = self.read_lsn(&transaction);
            self.refuse(transaction.origin, read_only(), depends_on, world);
            return false;
        }
        let mut writes = transaction.take_writes();
        let messages = self.message_records(&transaction, world);
        self.add_records(messages, &mut writes);
        if let Some((id, participants)) = decision {
            writes.push(self.decision_write(id, participants));
        }
        // A keyed call that changed nothing is recorded only when others might have to be kept
        // from taking effect under its key: a call of a query never is.
        self.add_outcome(&transaction, || output_outcome(&output), &mut writes, world);
        if let Origin::Message { field, .. } = &transaction.origin {
            self.message_done(field, &mut writes);
        }
        let row = self.add_step(&transaction, &output, &mut writes, world);
        // An entry comes after all that was read here.
        let depends_on = if writes.is_empty() { self.read_lsn(&transaction) } else { self.append(writes, world) };
        if let Some(row) = row {
            self.step_committed(&transaction, row, depends_on, world);
        }
        if let Some((id, participants)) = decision {
            self.decided(id, participants, depends_on, world);
        }
        let reply = match output {
            Output::Value(json) => Reply::Value(json),
            Output::Response(reply) => Reply::Route(reply),
        };
        if let Some(token) = transaction.origin.token() {
            self.reply_when_durable(token, Ok(reply), depends_on, world);
        }
        true
    }

    pub(crate) fn roll_back(&mut self, transaction: Box<Transaction>, error: Error, world: &mut World<'_>) {
        let mut depends_on = self.read_lsn(&transaction);
        // An abort is the function's answer, so a repeated request gets it again. Any other
        // error says nothing about what the function would answer next time. What became of a
        // message is noted where its row is deleted.
        let is_answer = error.code == ErrorCode::Aborted && !matches!(transaction.origin, Origin::Message { .. });
        if is_answer {
            if self.is_answered_meanwhile(&transaction, world) {
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
            Origin::Step { workflow, operation, .. } => self.step_failed(workflow, operation, error, world),
            origin => {
                if let Some(token) = origin.token() {
                    self.reply_when_durable(token, Err(error), depends_on, world);
                }
            }
        }
    }

    /// Answers a request once everything up to `depends_on` is durable.
    pub(crate) fn reply_when_durable(
        &mut self,
        token: Token,
        result: Result<Reply, Error>,
        depends_on: Lsn,
        world: &mut World<'_>,
    ) {
        self.held.release(Leaving::Reply(token, result), depends_on, self.durable, world.outputs);
    }

    /// The newest entry whose effects the transaction may have seen.
    pub(crate) fn read_lsn(&self, transaction: &Transaction) -> Lsn {
        if self.durable == self.store.lsn() {
            return Lsn::ZERO;
        }
        let newest = |lsn: Lsn, touched: &crate::transaction::Touched| lsn.max(self.store.entity_lsn(&touched.entity));
        transaction.touched.iter().fold(transaction.seen, newest)
    }

    /// `result` is asked for only if it is kept: most calls carry no key.
    fn add_outcome(
        &mut self,
        transaction: &Transaction,
        result: impl FnOnce() -> OutcomeResult,
        writes: &mut Vec<Write>,
        world: &World<'_>,
    ) {
        if let Some(key) = self.known_outcome_key(&transaction.origin, world) {
            if transaction.is_always_query() && writes.is_empty() {
                return;
            }
            let expires = world.now.plus(self.options.retention_ms);
            let outcome = Outcome { expires, fingerprint: key.fingerprint, result: result() };
            writes.push(self.outcome_write(key.field, &outcome));
            return;
        }
        if let Origin::Message { field, .. } = &transaction.origin {
            self.add_invocation_outcome(field, result(), writes, world);
        }
    }

    /// Messages as they are stored.
    pub(crate) fn message_records(&self, transaction: &Transaction, world: &World<'_>) -> Vec<MessageRecord> {
        let app = world.catalog.program(transaction.program).map_or("", |loaded| loaded.app.as_str());
        let record = |outgoing: &Outgoing| outgoing.record(app, self.options.shard_count, world);
        transaction.messages.iter().filter_map(record).collect()
    }

    /// Messages to this shard go straight to its inbox, others to the outbox; either way in the
    /// next entry, which `writes` will be.
    pub(crate) fn add_records(&mut self, records: Vec<MessageRecord>, writes: &mut Vec<Write>) {
        let lsn = self.store.lsn().next();
        for (index, record) in (0u16..).zip(records) {
            let to = shard_of_record(&record, self.options.shard_count);
            let sequence = Sequence { lsn, index };
            if to == self.options.shard {
                let field = inbox_field(record.due, sequence);
                writes.push(self.inbox_write(&field, &record));
                self.add_start(&field, &record, writes);
            } else {
                writes.push(self.outbox_write(to, sequence, &record));
            }
        }
    }

    pub(crate) fn outbox_write(&mut self, to: ShardId, sequence: Sequence, record: &MessageRecord) -> Write {
        self.outbox.added(to);
        let value = Some(Value::new(ValueKind::Bytes, &record.encode()));
        Write { entity: self.bookkeeping.outbox.clone(), field: outbox_field(to, sequence).into(), value }
    }

    /// Accepts a front's send: into the inbox, with a pending outcome somebody can ask for.
    pub(crate) fn accept_send(
        &mut self,
        invoke: &Invoke,
        (entity, kind): &(EntityKey, HandlerKind),
        delay_ms: u64,
        world: &mut World<'_>,
    ) {
        let Some((app, service, handler)) = world.catalog.names(invoke.handler) else {
            let error = Error::new(ErrorCode::UnknownHandler, "the handler's app version is gone");
            return world.outputs.reply(invoke.info.token, Err(error));
        };
        // What is sent later is another request than what is sent now.
        let verb = if delay_ms == 0 { "send".to_owned() } else { format!("send {delay_ms}") };
        let key = invoke.info.idempotency_key.as_deref();
        let names = self.options.outcome_names;
        let key = key.map(|key| names.of_call(entity, handler.as_str(), &invoke.input, key, verb.as_bytes()));
        if let Some(key) = &key
            && let Some(result) = self.kept_reply(key, world.now)
        {
            let depends_on = self.store.entity_lsn(&self.bookkeeping.outcomes);
            return self.reply_when_durable(invoke.info.token, result, depends_on, world);
        }
        let due = world.now.plus(delay_ms);
        let record = MessageRecord {
            keeps_outcome: true,
            invocation: None,
            is_signal: false,
            was_set_aside: false,
            attempts: 0,
            due,
            app: app.to_string(),
            service: service.to_string(),
            handler: handler.to_string(),
            key: invoke.key.to_vec(),
            input: invoke.input.clone(),
        };
        let sequence = Sequence { lsn: self.store.lsn().next(), index: 0 };
        let field = inbox_field(due, sequence);
        let mut writes = vec![
            self.inbox_write(&field, &record),
            self.pending_outcome_write(sequence, app.as_str(), service.as_str()),
        ];
        if *kind == HandlerKind::Workflow {
            self.add_pending(sequence, &field, &mut writes);
        }
        if let Some(OutcomeKey { field, fingerprint }) = key {
            let result = OutcomeResult::Sent(sequence.lsn, sequence.index);
            let outcome = Outcome { expires: world.now.plus(self.options.retention_ms), fingerprint, result };
            writes.push(self.outcome_write(field, &outcome));
        }
        let lsn = self.append(writes, world);
        let reply = Reply::Sent(InvocationId { shard: self.options.shard, sequence });
        self.reply_when_durable(invoke.info.token, Ok(reply), lsn, world);
    }

    /// Makes `writes` the shard's next entry: in the log's hands and in the store, together.
    ///
    /// # Panics
    /// When the store cannot apply them: it would then contradict the log. The driver stops the
    /// shard; a restart recovers it from the log.
    pub(crate) fn append(&mut self, writes: Vec<Write>, world: &mut World<'_>) -> Lsn {
        let lsn = self.store.lsn().next();
        let entry = Entry { shard: self.options.shard, lsn, time: world.now, writes: &writes };
        let written = |write: &Write| write.field.len() + write.value.as_ref().map_or(0, |value| value.content().len());
        world.written_bytes += writes.iter().map(written).sum::<usize>();
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
