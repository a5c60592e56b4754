//! The calls of workflows: each is a transaction of its own, and its result a row of the journal.
//!
//! A call to an entity of this shard commits in one entry with its row, so both are there or
//! neither is. A call that another shard commits alone leaves its result there, under the
//! workflow and the operation, in the entry that commits it: made again, it takes that result
//! instead of effect. Once the row here is durable, the kept result is given up.
//!
//! This part says which calls are to be made, and is told what came of each; it does not make them.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, Lsn, TransactionId, limits};
use millrace_format::{JournalRow, MessageRecord, StepKind, Write};
use millrace_func::NestedCall;

use super::workflow::Work;
use super::{WorkflowCall, WorkflowContext, Workflows};
use crate::peer::PeerBody;
use crate::request::{Sequence, once_field};
use crate::retry::retry_wait_ms;
use crate::world::World;

/// Errors after which a call is made again instead of being the workflow's.
fn is_passing(code: ErrorCode) -> bool {
    code.is_retryable() || code == ErrorCode::WaitLimit
}

/// A workflow's call that commits, and where it commits.
pub(crate) struct CommittedCall<'a> {
    pub workflow: Sequence,
    pub operation: u32,
    /// The key of the entity it is made to.
    pub key: &'a [u8],
    /// Another shard has committed it alone, and keeps its result.
    pub is_kept_away: bool,
}

impl Workflows {
    /// The next call that is to be made now. One that another shard may commit waits until what it follows from
    /// cannot be lost without what comes of it.
    pub(crate) fn next_call(&mut self, context: &mut WorkflowContext<'_, '_>) -> Option<WorkflowCall> {
        while let Some((id, operation)) = self.calls.pop_front() {
            let Some(workflow) = self.live.get_mut(&id) else {
                continue; // It has ended since it asked.
            };
            let must_be_durable = workflow.must_be_durable;
            if let Some(open) = workflow.open.get_mut(&operation)
                && let Work::Call(call) = &open.work
            {
                let to = context.rows.shard_of(&call.key);
                if to != context.rows.shard() && must_be_durable > context.rows.durable_towards(to) {
                    self.waiting.insert((must_be_durable, id, operation));
                    continue;
                }
                open.is_under_way = true;
                return Some(WorkflowCall { workflow: id, operation, call: newest(call.clone(), context.world) });
            }
        }
        None
    }

    /// Adds the row of a workflow's call that is being committed to the commit's own entry. There is none if the workflow
    /// does not wait for the call any more.
    pub(crate) fn add_call_row(
        &mut self,
        call: &CommittedCall<'_>,
        output: Bytes,
        writes: &mut Vec<Write>,
        context: &mut WorkflowContext<'_, '_>,
    ) -> Option<JournalRow> {
        let workflow = self.live.get_mut(&call.workflow)?;
        let open = workflow.open.get(&call.operation)?;
        let (kind, name, operation) = (open.kind, open.name.clone(), call.operation);
        let row = JournalRow { kind, operation, ended: context.world.now, name, result: Ok(output) };
        writes.push(workflow.next_row_write(&row, &context.books.journals));
        Some(row)
    }

    /// The entry with a call's row is made: whoever else keeps the result need not any longer,
    /// once the entry is durable.
    ///
    /// # Panics
    /// When the workflow is not there that the row was made for in the same input.
    pub(crate) fn call_committed(
        &mut self,
        call: &CommittedCall<'_>,
        row: JournalRow,
        lsn: Lsn,
        context: &mut WorkflowContext<'_, '_>,
    ) {
        give_up_kept(call.workflow, row.operation, call.key, lsn, context);
        let mut workflow = self.live.remove(&call.workflow).expect("the workflow whose journal got a row is there");
        // Made again, the call would find the result that the other shard keeps. Beside other
        // operations the order in which they end might be another one.
        let is_repeatable = call.is_kept_away && workflow.open.len() == 1;
        workflow.journalled(lsn, is_repeatable);
        self.row_made(&mut workflow, row);
        self.live.insert(call.workflow, workflow);
    }

    /// A workflow's call did not take effect: made again if that may help, or the workflow's.
    pub(crate) fn call_failed(
        &mut self,
        id: Sequence,
        operation: u32,
        error: Error,
        context: &mut WorkflowContext<'_, '_>,
    ) {
        let Some(workflow) = self.live.get_mut(&id) else {
            return; // It strayed from its journal and has ended while the call ran.
        };
        let is_cancelled = workflow.record.is_cancelled;
        let Some(open) = workflow.open.get_mut(&operation) else {
            return; // It does not wait for the call any more.
        };
        open.attempts += 1;
        // A shard that has stopped may have made it.
        open.is_under_way = error.code == ErrorCode::ShardStopped;
        let attempts = open.attempts;
        let is_compensation = open.kind == StepKind::Compensation;
        let call = if let (true, Work::Call(call)) = (is_compensation, &open.work) { Some(call.clone()) } else { None };
        let message = call.and_then(|call| as_message(call, attempts, context.world));
        let invocation = context.invocation(id);
        if let Some(message) = &message {
            context.books.failures.attempt_failed(invocation, message, &error, context.world.now);
        }
        let is_tried = is_compensation && attempts < limits::MESSAGE_ATTEMPTS;
        if is_passing(error.code) || (is_tried && error.code != ErrorCode::Aborted) {
            let retry = context.world.now.plus(retry_wait_ms(attempts));
            self.timers.insert((retry, id, operation));
            if is_cancelled {
                self.runnable.push_back(id);
            }
        } else {
            // While the disk is full the operation does not end, and is tried again.
            let message = message.filter(|_| !context.world.is_read_only);
            // A compensation that failed for good waits among the dead letters, where somebody can have it made again.
            let place = Sequence { lsn: context.rows.next_lsn(), index: 0 };
            let dead_letter =
                message.map(|message| context.books.set_aside((invocation, place), &message, &error, "a compensation"));
            self.operation_ended(id, operation, Err(error), dead_letter.into_iter().collect(), context);
        }
    }
}

/// The workflow's own code is as old as it is; what it calls is what everybody calls.
fn newest(mut call: NestedCall, world: &World<'_>) -> NestedCall {
    if let Some((app, service, handler)) = world.catalog.names(call.handler)
        && let Ok(current) = world.catalog.find(app.as_str(), service.as_str(), handler.as_str())
    {
        call.handler = current;
    }
    call
}

/// Lets another shard delete the result that it may keep of a call, once `lsn` is durable.
pub(super) fn give_up_kept(id: Sequence, operation: u32, key: &[u8], lsn: Lsn, context: &mut WorkflowContext<'_, '_>) {
    let (own, to) = (context.rows.shard(), context.rows.shard_of(key));
    if to != own {
        let about = TransactionId { coordinator: own, incarnation: context.rows.options().incarnation, number: 0 };
        let message = context.rows.about(about, PeerBody::Forget(once_field(own, id, operation)));
        context.context().tell(to, message, lsn);
    }
}

/// A compensation as a message that makes the same call.
fn as_message(call: NestedCall, attempts: u32, world: &World<'_>) -> Option<MessageRecord> {
    let (app, service, handler) = world.catalog.names(call.handler)?;
    Some(MessageRecord {
        keeps_invocation_result: false,
        invocation: None,
        is_signal: false,
        was_set_aside: false,
        attempts,
        due: world.now,
        app: app.to_string(),
        service: service.to_string(),
        handler: handler.to_string(),
        key: call.key,
        input: call.input,
    })
}
