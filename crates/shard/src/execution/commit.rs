//! The end of a transaction: its write set becomes one entry, or nothing happened.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, Lsn, ShardId, TransactionId};
use millrace_format::{MessageRecord, ResultState, Write};
use millrace_func::Output;

use super::answers::{is_answered_meanwhile, result_key};
use super::origin::Origin;
use super::transaction::{Touched, Transaction};
use super::{Execution, ExecutionContext, Role};
use crate::context::read_only;
use crate::outgoing::Outgoing;
use crate::request::{OperationOf, Reply};
use crate::workflows::CommittedCall;

impl Execution {
    /// Ends a transaction: commits what it did, or nothing, and answers.
    ///
    /// # Panics
    /// When a participation has a result: nothing of it runs as a root.
    pub(super) fn finish(
        &mut self,
        role: Role,
        transaction: Box<Transaction>,
        result: Result<Output, Error>,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        match (role, result) {
            (Role::Coordinator(coordination), result) if coordination.has_participants() => {
                self.ask_for_votes(coordination, transaction, result, context);
            }
            (Role::Participant(participation), Err(error)) => {
                self.fail_participation(participation, &transaction, error, context);
            }
            (Role::Participant(_), Ok(_)) => unreachable!("a participation has no root that could give a result"),
            (Role::Alone | Role::Coordinator(_), result) => {
                transaction.drop_activations(context.world);
                self.give_up_locks(&transaction);
                match result {
                    Ok(output) => {
                        self.commit(transaction, output, None, context);
                    }
                    Err(error) => self.roll_back(transaction, error, context),
                }
            }
        }
    }

    /// Makes what a transaction did one entry, together with the `decision` that commits it in other
    /// shards, if they have prepared writes of it. Says whether it did; if not, it has been answered.
    pub(super) fn commit(
        &mut self,
        mut transaction: Box<Transaction>,
        output: Output,
        decision: Option<(TransactionId, &[ShardId])>,
        context: &mut ExecutionContext<'_, '_>,
    ) -> bool {
        // Nothing keeps two sendings of a route from running side by side, as its entity does for
        // a call: whoever comes second did nothing, and answers what the first did.
        if is_answered_meanwhile(&transaction, context) {
            return false;
        }
        let is_message = matches!(transaction.origin, Origin::Message { .. });
        let is_recorded = transaction.origin.idempotency_key().is_some() && !transaction.is_always_query();
        let is_call_of_workflow = matches!(transaction.origin, Origin::WorkflowCall { .. });
        let changes =
            transaction.has_effects() || is_message || is_call_of_workflow || is_recorded || decision.is_some();
        if changes && context.world.is_read_only {
            let depends_on = self.read_lsn(&transaction, context);
            refuse(transaction.origin, read_only(), depends_on, context);
            return false;
        }
        let message = match &transaction.origin {
            Origin::Message { field, .. } => context.books.inbox.message(field, context.rows).map(Some),
            _ => Ok(None),
        };
        let message = match message {
            Ok(message) => message,
            Err(error) => {
                let depends_on = self.read_lsn(&transaction, context);
                refuse(transaction.origin, error, depends_on, context);
                return false;
            }
        };
        let mut writes = transaction.take_writes();
        let messages = message_records(&transaction, context);
        if !messages.is_empty() {
            context.books.add_messages(messages, &mut writes, context.world.now, context.rows);
        }
        if let Some((id, participants)) = decision {
            writes.push(self.coordinator.decision_write(id, participants));
        }
        // A keyed call that changed nothing is recorded only when others might have to be kept
        // from taking effect under its key: a call of a query never is.
        add_result(&transaction, || kept_result(&output), &mut writes, context);
        if let (Origin::Message { field, .. }, Some(message)) = (&transaction.origin, message) {
            context.books.add_message_result(field, &message, kept_result(&output), &mut writes, context.world.now);
            context.books.message_done(field, &message, &mut writes);
        }
        let row = committed_call(&transaction).and_then(|call| {
            let output = if let Output::Value(json) = &output { json.clone() } else { Bytes::new() };
            let (workflows, mut context) = context.workflows();
            workflows.add_call_row(&call, output, &mut writes, &mut context)
        });
        // An entry comes after all that was read here.
        let depends_on = if writes.is_empty() { self.read_lsn(&transaction, context) } else { context.append(writes) };
        if let Some((id, participants)) = decision {
            self.coordinator.decided(id, participants, depends_on, &mut context.context());
        }
        context.context().release_bodies(&transaction.released_bodies, depends_on);
        if let (Some(call), Some(row)) = (committed_call(&transaction), row) {
            let (workflows, mut context) = context.workflows();
            workflows.call_committed(&call, row, depends_on, &mut context);
        }
        if let Some(token) = transaction.origin.token() {
            context.context().reply(token, Ok(as_reply(output)), depends_on);
        }
        true
    }

    pub(super) fn roll_back(
        &mut self,
        transaction: Box<Transaction>,
        error: Error,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let mut depends_on = self.read_lsn(&transaction, context);
        // An abort is the function's answer, so a repeated request gets it again. Any other
        // error says nothing about what the function would answer next time. What became of a
        // message is noted where its row is deleted.
        let is_answer = error.code == ErrorCode::Aborted && !matches!(transaction.origin, Origin::Message { .. });
        if is_answer {
            if is_answered_meanwhile(&transaction, context) {
                return;
            }
            let mut writes = Vec::new();
            add_result(&transaction, || ResultState::Error(error.clone()), &mut writes, context);
            if !writes.is_empty() {
                if context.world.is_read_only {
                    return refuse(transaction.origin, read_only(), depends_on, context);
                }
                depends_on = context.append(writes);
            }
        }
        refuse(transaction.origin, error, depends_on, context);
    }

    /// The newest entry whose effects the transaction may have seen.
    pub(super) fn read_lsn(&self, transaction: &Transaction, context: &ExecutionContext<'_, '_>) -> Lsn {
        let rows = &*context.rows;
        if rows.durable() == rows.lsn() {
            return Lsn::ZERO;
        }
        let newest = |lsn: Lsn, touched: &Touched| lsn.max(rows.entity_lsn(&touched.entity));
        transaction.touched.iter().fold(transaction.newest_read, newest)
    }
}

/// Answers a transaction that has run with an error.
fn refuse(origin: Origin, error: Error, depends_on: Lsn, context: &mut ExecutionContext<'_, '_>) {
    match origin {
        Origin::Message { field, .. } => context.books.message_failed(&field, error, context.rows, context.world),
        Origin::WorkflowCall { asked, .. } => {
            let (workflows, mut context) = context.workflows();
            workflows.call_failed(asked.workflow, asked.operation, error, &mut context);
        }
        origin => {
            if let Some(token) = origin.token() {
                context.context().reply(token, Err(error), depends_on);
            }
        }
    }
}

/// A workflow's call, if the transaction is one.
fn committed_call(transaction: &Transaction) -> Option<CommittedCall<'_>> {
    let Origin::WorkflowCall { asked: OperationOf { workflow, operation, .. }, call, .. } = &transaction.origin else {
        return None;
    };
    let (workflow, operation, is_kept_away) = (*workflow, *operation, transaction.is_kept_away);
    Some(CommittedCall { workflow, operation, key: &call.key, is_kept_away })
}

/// Adds what a request under an idempotency key is answered from now on. `result` is asked for only if it is kept: most calls
/// carry no key.
fn add_result(
    transaction: &Transaction,
    result: impl FnOnce() -> ResultState,
    writes: &mut Vec<Write>,
    context: &mut ExecutionContext<'_, '_>,
) {
    let origin = &transaction.origin;
    let known = context.books.results.remembered(origin.nonce());
    if let Some(key) = known.or_else(|| result_key(origin, context)) {
        if transaction.is_always_query() && writes.is_empty() {
            return;
        }
        writes.push(context.books.results.keep(key, result(), context.world.now));
    }
}

/// Messages as they are stored.
pub(super) fn message_records(transaction: &Transaction, context: &ExecutionContext<'_, '_>) -> Vec<MessageRecord> {
    let app = context.world.catalog.program(transaction.program).map_or("", |loaded| loaded.app.as_str());
    let record = |outgoing: &Outgoing| outgoing.record(app, context.world);
    transaction.messages.iter().filter_map(record).collect()
}

/// What is kept of a success.
fn kept_result(output: &Output) -> ResultState {
    match output {
        Output::Value(json) => ResultState::Value(json.clone()),
        Output::Response(reply) => {
            ResultState::Reply { status: reply.status, headers: reply.headers.clone(), body: reply.body.clone() }
        }
    }
}

/// What a request is answered with.
pub(super) fn as_reply(output: Output) -> Reply {
    match output {
        Output::Value(json) => Reply::Value(json),
        Output::Response(reply) => Reply::Route(reply),
    }
}

/// `null`, for inputs that are empty.
pub(super) fn input_or_null(input: &Bytes) -> Bytes {
    if input.is_empty() { Bytes::from_static(b"null") } else { input.clone() }
}
