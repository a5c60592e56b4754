//! The calls of workflows: each is a transaction of its own, and its result a row of the journal.
//!
//! A call to an entity of this shard commits in one entry with its row, so both are there or
//! neither is. A call that another shard commits alone leaves its result there, under the
//! workflow and the operation, in the entry that commits it: made again, it takes that result
//! instead of effect. Once the row here is durable, the kept result is given up.
//!
//! This part says which calls are to be made, and is told what came of each; it does not make them.

use std::collections::btree_map::Entry;

use bytes::Bytes;
use millrace_base::{Lsn, TransactionId};
use millrace_format::{JournalRow, MessageRecord, Write};
use millrace_func::NestedCall;

use super::workflow::Work;
use super::{WorkflowContext, Workflows};
use crate::peer::PeerBody;
use crate::request::{OperationOf, Sequence};
use crate::world::World;

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
    /// The next call that is to be made now, as a transaction of its own, and who asked for it. One that another shard may
    /// commit waits until what it follows from cannot be lost without what comes of it.
    pub(crate) fn next_call(&mut self, context: &mut WorkflowContext<'_, '_>) -> Option<(OperationOf, NestedCall)> {
        while let Some((id, operation)) = self.calls.pop_front() {
            let Some(workflow) = self.live.get_mut(&id).filter(|workflow| !workflow.is_being_cancelled()) else {
                continue; // It has ended since it asked, or will.
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
                *self.calls_under_way.entry(id).or_default() += 1;
                let call = newest(call.clone(), context.world);
                return Some((workflow.operation_of(operation), call));
            }
        }
        None
    }

    /// The transaction of a workflow's call has ended.
    pub(super) fn call_ended(&mut self, id: Sequence) {
        if let Entry::Occupied(mut count) = self.calls_under_way.entry(id) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
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
        self.call_ended(call.workflow);
        let workflow = self.live.get_mut(&call.workflow)?;
        let open = workflow.open.get(&call.operation)?;
        let (kind, name, operation) = (open.kind, open.name.clone(), call.operation);
        let row = JournalRow { kind, operation, ended: context.world.now, name, result: Ok(output) };
        writes.push(workflow.next_row_write(&row, &context.books.journals));
        writes.extend(workflow.forgive_one(operation, context));
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
        let mut workflow = self.live.remove(&call.workflow).expect("the workflow whose journal got a row is there");
        give_up_kept(workflow.operation_of(row.operation), call.key, lsn, context);
        // Made again, the call would find the result that the other shard keeps. Beside other
        // operations the order in which they end might be another one.
        let is_repeatable = call.is_kept_away && workflow.open.len() == 1;
        workflow.journalled(lsn, is_repeatable);
        self.row_made(&mut workflow, row);
        self.live.insert(call.workflow, workflow);
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
pub(super) fn give_up_kept(kept: OperationOf, key: &[u8], lsn: Lsn, context: &mut WorkflowContext<'_, '_>) {
    let (own, to) = (context.rows.shard(), context.rows.shard_of(key));
    if to != own {
        let about = TransactionId { coordinator: own, incarnation: context.rows.options().incarnation, number: 0 };
        let message = context.rows.about(about, PeerBody::Forget(kept.once_field(own)));
        context.context().tell(to, message, lsn);
    }
}

/// A compensation as a message that makes the same call.
pub(super) fn as_message(call: NestedCall, attempts: u32, world: &World<'_>) -> Option<MessageRecord> {
    let (app, service, handler) = world.catalog.names(call.handler)?;
    Some(MessageRecord {
        keeps_invocation_result: false,
        invocation: None,
        chosen_id: None,
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
