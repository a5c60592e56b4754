//! Does what workflows ask for, and journals what comes of it.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, ShardId};
use millrace_format::{JournalRow, Write};
use millrace_func::{ActivationId, OperationId};

use super::awaiting::Awaited;
use super::exchanges::EXCHANGE;
use super::workflow::{Work, Workflow};
use super::{AGAIN, RETRY_MS, WorkflowContext, Workflows};
use crate::request::{InvocationId, OffloadTicket, OperationOf, Sequence};
use crate::retry::retry_wait_ms;

impl Workflows {
    /// Starts what a workflow has asked for.
    pub(super) fn start_operation(&mut self, id: Sequence, operation: u32, context: &mut WorkflowContext<'_, '_>) {
        let Some(workflow) = self.live.get_mut(&id).filter(|workflow| !workflow.is_being_cancelled()) else {
            return; // It has ended since it asked, or will.
        };
        let is_known = workflow.rows.iter().any(|row| row.operation == operation);
        let (durable, journal_lsn) = (context.rows.durable(), workflow.journal_lsn);
        let Some(open) = workflow.open.get_mut(&operation).filter(|_| !is_known) else {
            return; // Its result is known, or it does not ask for it any more.
        };
        if let (Work::Call(_), Some(failure)) = (&open.work, workflow.failures.get(&operation)) {
            open.retry_at = failure.next_try.filter(|due| *due > context.world.now);
            self.timers.extend(open.retry_at.map(|due| (due, id, operation)));
            if failure.next_try.is_none() || open.retry_at.is_some() {
                return; // It is not to be made again now.
            }
            // From here on it may be made, so nothing else begins it.
            open.is_under_way = true;
        }
        open.retry_at = None;
        let Some((workflow, open)) = self.live.get(&id).and_then(|found| Some((found, found.open.get(&operation)?)))
        else {
            return;
        };
        match &open.work {
            Work::Call(_) => self.calls.push_back((id, operation)),
            Work::Sleep(until) => {
                self.timers.insert((*until, id, operation));
            }
            Work::Wait(until) => {
                if let Some(until) = *until {
                    self.timers.insert((until, id, operation));
                }
                self.take_signal(id, operation, context);
            }
            Work::Result(awaited) => {
                let awaited = *awaited;
                // What starts it may be a message of this workflow, which leaves when it is durable.
                if awaited.of.shard != context.rows.shard() && journal_lsn > durable {
                    self.waiting.insert((journal_lsn, id, operation));
                } else {
                    self.ask_result((id, operation), awaited, context);
                }
            }
            Work::Fetch(request) => {
                if journal_lsn > durable {
                    self.waiting.insert((journal_lsn, id, operation));
                } else {
                    let mut request = request.clone();
                    add_idempotency_key(&mut request.headers, context.rows.shard(), workflow.operation_of(operation));
                    context.world.outputs.fetch(ticket_of(workflow, operation), request);
                }
            }
            Work::Hash(work) => context.world.outputs.offload(ticket_of(workflow, operation), work.clone()),
            Work::Step | Work::Known => {}
        }
    }

    /// Begins what waited for its reasons to be durable.
    pub(crate) fn start_waiting(&mut self, context: &mut WorkflowContext<'_, '_>) {
        while let Some((lsn, id, operation)) = self.waiting.first().copied()
            && lsn <= context.rows.durable()
        {
            self.waiting.pop_first();
            self.start_operation(id, operation, context);
        }
    }

    /// Work outside that a workflow waits for has ended.
    pub(crate) fn work_ended(
        &mut self,
        ticket: &OffloadTicket,
        result: Result<Bytes, Error>,
        context: &mut WorkflowContext<'_, '_>,
    ) {
        if ticket.operation.0 == EXCHANGE {
            return self.turn_came(ticket, result);
        }
        let Some(id) = self.by_nonce.get(&ticket.nonce).copied() else {
            return; // Whoever began the work has been given up, or began again.
        };
        let operation = ticket.operation.0;
        let attempts = self.live.get_mut(&id).and_then(|workflow| {
            let open = workflow.open.get_mut(&operation)?;
            open.attempts += 1;
            let retries = if let Work::Fetch(request) = &open.work { request.retries } else { 0 };
            let may_retry = matches!(&result, Err(error) if error.code == ErrorCode::FetchFailed);
            (may_retry && open.attempts <= retries).then_some(open.attempts)
        });
        match attempts {
            Some(attempts) => {
                let retry = context.world.now.plus(retry_wait_ms(attempts));
                self.timers.insert((retry, id, operation));
            }
            None => self.operation_ended(id, operation, result, Vec::new(), context),
        }
    }

    /// A sleep or a wait has lasted long enough, or something is to be tried again.
    pub(super) fn timer_ended(&mut self, id: Sequence, operation: u32, context: &mut WorkflowContext<'_, '_>) {
        let Some(workflow) = self.live.get(&id) else {
            return; // It has ended before its time was over.
        };
        let now = context.world.now;
        match workflow.open.get(&operation).map(|open| (&open.work, &open.name)) {
            Some((Work::Sleep(until), _)) if *until <= now => {
                self.operation_ended(id, operation, Ok(Bytes::from_static(b"null")), Vec::new(), context);
            }
            Some((Work::Wait(Some(until)), name)) if *until <= now => {
                let error = Error::new(ErrorCode::WaitLimit, format!("no signal {name:?} came in time"));
                self.operation_ended(id, operation, Err(error), Vec::new(), context);
            }
            Some((Work::Result(Awaited { until: Some(until), .. }), name)) if *until <= now => {
                let error = Error::new(ErrorCode::WaitLimit, format!("the workflow {name:?} did not end in time"));
                self.operation_ended(id, operation, Err(error), Vec::new(), context);
            }
            Some((Work::Call(_) | Work::Fetch(_) | Work::Hash(_) | Work::Result(_), _)) => {
                self.start_operation(id, operation, context)
            }
            // One that sleeps is not woken by what it does not wait for any more.
            _ if operation == AGAIN || !workflow.is_asleep => self.runnable.push_back(id),
            _ => {}
        }
    }

    /// An operation has given something: journals it, with `beside` in the same entry.
    pub(super) fn operation_ended(
        &mut self,
        id: Sequence,
        operation: u32,
        result: Result<Bytes, Error>,
        beside: Vec<Write>,
        context: &mut WorkflowContext<'_, '_>,
    ) {
        if context.world.is_read_only {
            let retry = context.world.now.plus(RETRY_MS);
            self.timers.insert((retry, id, operation));
            return;
        }
        let Some(mut workflow) = self.live.remove(&id) else {
            return; // It has ended without it.
        };
        let is_given = workflow.rows.iter().any(|row| row.operation == operation);
        if let Some(open) = workflow.open.get(&operation).filter(|_| !is_given) {
            let row =
                JournalRow { kind: open.kind, operation, ended: context.world.now, name: open.name.clone(), result };
            let mut writes = beside;
            writes.push(workflow.next_row_write(&row, &context.books.journals));
            writes.extend(workflow.forgive_one(operation, context));
            let lsn = context.append(writes);
            workflow.journalled(lsn, false);
            self.row_made(&mut workflow, row);
        }
        self.live.insert(id, workflow);
    }

    /// A row has been journalled: the code is given it when its turn comes.
    pub(super) fn row_made(&mut self, workflow: &mut Workflow, row: JournalRow) {
        if workflow.is_asleep {
            // It is read again with the whole journal.
            workflow.open.remove(&row.operation);
        } else {
            workflow.rows.push_back(row);
        }
        self.runnable.push_back(workflow.id.sequence);
    }
}

/// Under what the result of work outside comes back.
pub(super) fn ticket_of(workflow: &Workflow, operation: u32) -> OffloadTicket {
    OffloadTicket {
        shard: Some(workflow.id.shard),
        nonce: workflow.nonce,
        activation: workflow.activation.unwrap_or(ActivationId(u32::MAX)),
        instance: workflow.nonce,
        operation: OperationId(operation),
    }
}

/// A server outside can tell a repeated request by this key, if it knows the header.
fn add_idempotency_key(headers: &mut Vec<(String, String)>, shard: ShardId, asked: OperationOf) {
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("idempotency-key")) {
        let OperationOf { workflow: sequence, operation, run } = asked;
        let run = if run == 0 { String::new() } else { format!("-{run:x}") };
        let value = format!("{}{run}-{operation}", InvocationId { shard, sequence });
        headers.push(("idempotency-key".to_owned(), value));
    }
}
