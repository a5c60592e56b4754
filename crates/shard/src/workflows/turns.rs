//! Runs the code of workflows: turn after turn, for as long as there are rows to give it.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, limits};
use millrace_format::{JournalRow, MessageRecord, ResultState, StepKind, Write};
use millrace_func::{ActivationId, Engine, OperationId, Output, Start, TurnResult};

use super::exchanges::Exchange;
use super::failing::end_record;
use super::host::WorkflowHost;
use super::workflow::{Open, Work, Workflow, diverged, step_of, target_name};
use super::{AGAIN, RETRY_MS, WorkflowContext, Workflows};
use crate::outgoing::Outgoing;
use crate::request::Sequence;

/// What one turn did, until it is an entry.
#[derive(Default)]
struct Done {
    writes: Vec<Write>,
    messages: Vec<MessageRecord>,
    size_bytes: usize,
}

impl Workflows {
    /// Lets a workflow's code run for as long as there are rows to give it.
    pub(super) fn advance(&mut self, id: Sequence, context: &mut WorkflowContext<'_, '_>) {
        let Some(mut workflow) = self.live.remove(&id) else {
            return; // It has ended since it was queued.
        };
        if workflow.on_worker.is_lost && !self.may_begin_again(&mut workflow, context) {
            self.live.insert(id, workflow);
            return;
        }
        if workflow.is_asleep && !self.wake(&mut workflow, context) {
            self.timers.insert((context.world.now.plus(RETRY_MS), id, AGAIN));
            self.live.insert(id, workflow);
            return;
        }
        for _ in 0..limits::WORKFLOW_TURNS {
            self.note_turn(&mut workflow, context);
            if self.give_turn(&mut workflow, context) {
                continue;
            }
            if workflow.is_exchanging() || workflow.on_worker.is_lost {
                break;
            }
            let Some(row) = workflow.rows.pop_front() else {
                break;
            };
            workflow.passes(&row);
            self.give_row(&mut workflow, row, context);
            if context.world.is_input_large() {
                break;
            }
        }
        self.note_turn(&mut workflow, context);
        if workflow.is_over() {
            return self.end(workflow, context);
        }
        if workflow.on_worker.is_lost {
            self.live.insert(id, workflow);
            return;
        }
        self.note_progress(&mut workflow, context);
        if !workflow.rows.is_empty() && !workflow.is_exchanging() {
            self.runnable.push_back(id);
        }
        if workflow.activation.is_some() && workflow.is_idle() && self.awake > limits::WORKFLOWS_AWAKE {
            self.put_to_sleep(&mut workflow, context);
        }
        if workflow.is_to_be_cancelled() {
            self.live.insert(id, workflow);
            return self.note_cancel(id, context);
        }
        workflow.may_have_called &= !workflow.rows.is_empty() || workflow.is_exchanging();
        let fresh = std::mem::take(&mut workflow.fresh);
        self.live.insert(id, workflow);
        for operation in fresh {
            self.start_operation(id, operation, context);
        }
    }

    /// Journals what the last turn did. If it had the code of a step fail, the workflow's code begins again.
    fn note_turn(&mut self, workflow: &mut Workflow, context: &mut WorkflowContext<'_, '_>) {
        let failed = workflow.take_failed_step();
        journal_turn(workflow, context);
        if let Some(failed) = failed {
            self.step_failed(workflow, failed, context);
        }
    }

    /// Begins its code, over its journal. Says whether it could.
    fn wake(&mut self, workflow: &mut Workflow, context: &mut WorkflowContext<'_, '_>) -> bool {
        if !workflow.is_rewound {
            match context.books.journals.numbered_journal(workflow.id.sequence, context.rows) {
                Ok(rows) => workflow.rewind(rows),
                Err(error) => {
                    tracing::error!(%error, invocation = %workflow.id, "a workflow's journal cannot be read");
                    return false;
                }
            }
        }
        workflow.is_asleep = false;
        workflow.on_worker.exchange = Exchange::None;
        workflow.nonce = context.world.take_nonce();
        self.by_nonce.insert(workflow.nonce, workflow.id.sequence);
        self.awake += 1;
        let activation = context.world.activations.take();
        workflow.activation = Some(activation);
        let (key, input) = (workflow.record.key.clone(), workflow.record.input.clone());
        let start = Start::Handler { id: workflow.handler, key: &key, input: &input };
        self.turn(workflow, context, |engine, host| engine.start(activation, start, host));
        true
    }

    /// Its code leaves memory; it comes back when there is something for it.
    fn put_to_sleep(&mut self, workflow: &mut Workflow, context: &mut WorkflowContext<'_, '_>) {
        self.drop_activation(workflow, context);
        (workflow.is_asleep, workflow.is_rewound) = (true, false);
    }

    pub(super) fn drop_activation(&mut self, workflow: &mut Workflow, context: &mut WorkflowContext<'_, '_>) {
        if let Some(activation) = workflow.activation.take() {
            context.world.engine.cancel(activation);
            self.by_nonce.remove(&workflow.nonce);
            self.forget_activation(activation, context);
        }
    }

    /// What a workflow whose code has ended waits for outside still finds it.
    pub(super) fn forget_activation(&mut self, activation: ActivationId, context: &mut WorkflowContext<'_, '_>) {
        context.world.activations.give_back(activation);
        self.awake -= 1;
    }

    pub(super) fn turn(
        &mut self,
        workflow: &mut Workflow,
        context: &mut WorkflowContext<'_, '_>,
        run: impl FnOnce(&dyn Engine, &mut WorkflowHost<'_, '_>) -> TurnResult,
    ) {
        let engine = context.world.engine;
        let shard_count = context.rows.options().shard_count;
        workflow.begin_turn();
        let step = run(engine, &mut WorkflowHost { workflow, world: context.world, shard_count });
        workflow.end_turn();
        let diverged = workflow.diverged.take();
        let TurnResult::Done(result) = step else {
            return diverged.into_iter().for_each(|error| self.diverges(workflow, error, context));
        };
        if let Some(activation) = workflow.activation.take() {
            self.forget_activation(activation, context);
        }
        if let Some(error) = diverged {
            return self.diverges(workflow, error, context);
        }
        match &result {
            Err(error) if error.code.is_lost_attempt() => return self.lose(workflow, error, context),
            Err(error) if error.code == ErrorCode::Diverged => {
                return self.diverges(workflow, error.clone(), context);
            }
            Err(error) if self.code_failed(workflow, error, context) => return,
            _ => {}
        }
        let result = result.and_then(|output| match output {
            Output::Value(json) => Ok(json),
            Output::Response(_) => Err(Error::new(ErrorCode::Internal, "a workflow answered as a route")),
        });
        if workflow.is_being_cancelled() {
            // That waited for the worker's turn. It was noted before the end that the turn brings, so it counts.
            workflow.rows.retain(|row| row.kind != StepKind::Cancel);
            return self.cancel(workflow, context);
        }
        // Calls and fetches that it has begun are made all the same, also when it has thrown: whether they
        // were could not be told after a crash, and what compensates them must come after them.
        self.clear_open(workflow, |open| matches!(open.work, Work::Call(_) | Work::Fetch(_)));
        begin_ending(workflow, result, context);
    }

    /// Forgets what it asked for, but for what is kept.
    fn clear_open(&mut self, workflow: &mut Workflow, keeps: impl Fn(&Open) -> bool) {
        let id = workflow.id.sequence;
        let timers = &mut self.timers;
        workflow.open.retain(|operation, open| {
            let is_kept = keeps(open);
            if let (false, Some(until)) = (is_kept, open.work.until()) {
                timers.remove(&(until, id, *operation));
            }
            is_kept
        });
        let open = &workflow.open;
        workflow.fresh.retain(|operation| open.contains_key(operation));
    }

    /// It is cancelled: what it has done is compensated. Nothing is under way, see [`Workflow::is_to_be_cancelled`].
    fn cancel(&mut self, workflow: &mut Workflow, context: &WorkflowContext<'_, '_>) {
        self.clear_open(workflow, |_| false);
        let error = Error::new(ErrorCode::Cancelled, "the workflow was cancelled");
        begin_ending(workflow, Err(error), context);
    }

    /// Gives the code the next row of its journal.
    fn give_row(&mut self, workflow: &mut Workflow, row: JournalRow, context: &mut WorkflowContext<'_, '_>) {
        if row.kind == StepKind::Cancel {
            self.drop_activation(workflow, context);
            return self.cancel(workflow, context);
        }
        let is_compensation = row.kind == StepKind::Compensation && workflow.ending.is_some();
        if is_compensation && !workflow.open.contains_key(&row.operation) {
            // It was noted when fetches were not waited for.
            self.clear_open(workflow, |open| !matches!(open.work, Work::Fetch(_)));
            next_compensation(workflow, context);
        }
        let Some(open) = workflow.open.remove(&row.operation) else {
            let is_left = workflow.ending.is_some() && workflow.has_asked(row.operation);
            // What a step's code asks for may change until the step has ended.
            if !is_left && step_of(row.operation).is_none() {
                let error = diverged(&row, "not asked for");
                self.diverges(workflow, error, context);
            }
            return;
        };
        if let Some(until) = open.work.until() {
            self.timers.remove(&(until, workflow.id.sequence, row.operation));
        }
        workflow.fresh.retain(|operation| *operation != row.operation);
        if open.kind != row.kind || open.name != row.name {
            let error = diverged(&row, &format!("{} {:?}", open.kind.as_str(), open.name));
            return self.diverges(workflow, error, context);
        }
        if workflow.may_have_called && row.result.is_ok() {
            // Whether the other shard has heard of it is not known after a start.
            if let Work::Call(call) = &open.work {
                let durable = millrace_base::Lsn::ZERO;
                super::calls::give_up_kept(workflow.operation_of(row.operation), &call.key, durable, context);
            }
        }
        if workflow.ending.is_some() {
            let has_failed = row.kind == StepKind::Compensation && row.result.is_err();
            workflow.failed_compensations += u32::from(has_failed);
            return next_compensation(workflow, context);
        }
        let Some(activation) = workflow.activation else {
            return; // Its code has failed, and the workflow only waits to be cancelled.
        };
        let operation = OperationId(row.operation);
        self.turn(workflow, context, |engine, host| engine.resume(activation, operation, row.result, host));
    }

    /// What its code would compensate is as doubtful as the rest of it: it only ends.
    fn diverges(&mut self, workflow: &mut Workflow, error: Error, context: &mut WorkflowContext<'_, '_>) {
        self.give_up(workflow, error, context);
    }

    /// It ends, and nothing is compensated.
    pub(super) fn give_up(&mut self, workflow: &mut Workflow, error: Error, context: &mut WorkflowContext<'_, '_>) {
        self.drop_activation(workflow, context);
        self.clear_open(workflow, |_| false);
        workflow.outgoing.clear();
        workflow.ended_steps.clear();
        workflow.rows.clear();
        workflow.compensations.clear();
        workflow.ending = Some(Err(error));
    }

    /// A workflow has ended, compensated as far as it could be.
    ///
    /// # Panics
    /// When it has no result.
    pub(super) fn end(&mut self, mut workflow: Workflow, context: &mut WorkflowContext<'_, '_>) {
        let id = workflow.id.sequence;
        self.by_nonce.remove(&workflow.nonce);
        let result = match workflow.ending.take().expect("a workflow that is over has a result") {
            Ok(output) => ResultState::Value(output),
            Err(mut error) => {
                if workflow.failed_compensations > 0 {
                    let failed = workflow.failed_compensations;
                    error.message = format!(
                        "{} ({failed} of its compensations failed: see its journal and the dead letters)",
                        error.message
                    );
                }
                ResultState::Error(error)
            }
        };
        let beside = workflow.forgive(context);
        end_record(id, workflow.record, result, beside, context);
    }
}

/// Its code has ended: what it has done stays, or is compensated, the last first.
fn begin_ending(workflow: &mut Workflow, result: Result<Bytes, Error>, context: &WorkflowContext<'_, '_>) {
    if result.is_ok() {
        workflow.compensations.clear();
    }
    workflow.ending = Some(result);
    next_compensation(workflow, context);
}

fn next_compensation(workflow: &mut Workflow, context: &WorkflowContext<'_, '_>) {
    if !workflow.open.is_empty() {
        return; // What is under way comes first.
    }
    if let Some(call) = workflow.compensations.pop() {
        let name = target_name(call.handler, &call.key, context.world);
        workflow.ask_compensation(name, call);
    }
}

/// Journals what the last turn did: ended steps, messages.
fn journal_turn(workflow: &mut Workflow, context: &mut WorkflowContext<'_, '_>) {
    let mut done = Done::default();
    for (operation, name, outgoing) in std::mem::take(&mut workflow.outgoing) {
        let kind = if let Outgoing::Signal { .. } = outgoing { StepKind::Signal } else { StepKind::Send };
        let record = outgoing.record(&workflow.record.app, context.world);
        done.size_bytes += record.as_ref().map_or(0, |record| record.input.len());
        let ended = context.world.now;
        let row = JournalRow { kind, operation, ended, name, result: Ok(Bytes::from_static(b"null")) };
        done.writes.push(workflow.next_row_write(&row, &context.books.journals));
        done.messages.extend(record);
        append_part(workflow, &mut done, context);
    }
    for (operation, result) in std::mem::take(&mut workflow.ended_steps) {
        let name = workflow.open.get(&operation).map(|open| open.name.clone()).unwrap_or_default();
        done.size_bytes += result.as_ref().map_or(0, Bytes::len);
        let row = JournalRow { kind: StepKind::Step, operation, ended: context.world.now, name, result };
        done.writes.push(workflow.next_row_write(&row, &context.books.journals));
        done.writes.extend(workflow.forgive_one(operation, context));
        workflow.rows.push_back(row);
        append_part(workflow, &mut done, context);
    }
    done.size_bytes = limits::ENTRY_BYTES;
    append_part(workflow, &mut done, context);
}

/// Makes what a turn did an entry as soon as it is large enough. Each part stands by itself: a
/// message and the row that says it was sent are never in two.
fn append_part(workflow: &mut Workflow, done: &mut Done, context: &mut WorkflowContext<'_, '_>) {
    let is_large = done.size_bytes >= limits::ENTRY_BYTES / 4 || done.writes.len() >= limits::MESSAGES_PER_CALL;
    if !done.writes.is_empty() && is_large {
        let Done { mut writes, messages, .. } = std::mem::take(done);
        context.books.add_messages(messages, &mut writes, context.world.now, context.rows);
        let lsn = context.append(writes);
        workflow.journalled(lsn, false);
    }
}
