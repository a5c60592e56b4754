//! What of a workflow fails and is tried again: its calls, the code of its steps, and its own code.
//!
//! A call that failed is made again. Code that failed is not resumed: the workflow's code begins again over its journal, as
//! after a restart, and comes by the same place. A failure is a row until what it is about has ended, so attempts
//! are counted over restarts. After the last attempt the workflow is *paused* there: it waits for somebody.

use std::collections::BTreeSet;

use millrace_api::Intervention;
use millrace_base::{Error, ErrorCode, Lsn, Name, UnixMillis, limits};
use millrace_format::{FailureRecord, MessageRecord, ResultState, StepKind, WorkflowRecord, Write};
use millrace_func::RetryPolicy;

use super::workflow::{Open, Work, Workflow, step_of};
use super::{AGAIN, RETRY_MS, Standing, WorkflowContext, Workflows, unknown_workflow};
use crate::bookkeeping::not_begun;
use crate::context::read_only;
use crate::failures::FAILURES;
use crate::request::Sequence;
use crate::retry::{Fate, fate_of_call, fate_of_code, passing_wait_ms};
use crate::typed_reply::ReplyTo;

/// The operation that stands for the workflow's own code.
pub(super) const CODE: u32 = 0;

/// What failed.
struct Failed {
    operation: u32,
    /// `None` is the workflow's own code.
    kind: Option<StepKind>,
    name: String,
    policy: RetryPolicy,
}

/// How a workflow's own code is tried again.
fn own_policy(workflow: &Workflow, context: &WorkflowContext<'_, '_>) -> RetryPolicy {
    let WorkflowRecord { app, service, handler, .. } = &workflow.record;
    context.world.catalog.retry_policy(app, service, handler)
}

/// How something that a workflow has asked for is tried again.
fn policy_of(open: &Open, workflow: &Workflow, context: &WorkflowContext<'_, '_>) -> RetryPolicy {
    let policy = match &open.work {
        Work::Call(call) => match context.world.catalog.names(call.handler) {
            Some((app, service, handler)) => {
                context.world.catalog.retry_policy(app.as_str(), service.as_str(), handler.as_str())
            }
            None => RetryPolicy::default(),
        },
        _ => own_policy(workflow, context),
    };
    open.retry.map_or(policy, |options| options.over(policy))
}

fn is_of_code(failure: &FailureRecord) -> bool {
    matches!(failure.kind, None | Some(StepKind::Step))
}

impl Workflow {
    /// Whether its code has yet to come past where it failed.
    pub(super) fn has_failed_code(&self) -> bool {
        self.failures.values().any(is_of_code)
    }

    /// Whether its code, which failed, is not to begin again now; until when, if not until somebody wants it to. One that is
    /// to be cancelled runs once more, as what is to be undone is in its code.
    pub(super) fn rest(&self, now: UnixMillis) -> Option<Option<UnixMillis>> {
        if self.record.is_cancelled {
            return None;
        }
        let mut of_code = self.failures.values().filter(|failure| is_of_code(failure));
        if of_code.clone().any(|failure| failure.next_try.is_none()) {
            return Some(None);
        }
        of_code.find_map(|failure| failure.next_try.filter(|due| *due > now)).map(Some)
    }

    /// Whether its code, which failed, is to run only for what is to be undone.
    fn only_ends(&self) -> bool {
        self.record.is_cancelled || self.is_being_cancelled()
    }

    /// What becomes of its code, or of a step's, that ended with an error. What the journal gave it would give again.
    fn fate(&self, error: &Error) -> Fate {
        // Earlier versions did not try again: they compensated.
        let compensates = self.rows.front().is_some_and(|row| row.kind == StepKind::Compensation);
        if self.was_given(error.code) || compensates { Fate::Terminal } else { fate_of_code(error.code) }
    }

    /// Takes out what ended in the last turn with an error after which it is tried again: the first such step.
    /// Messages that its code has sent in that turn do not leave.
    pub(super) fn take_failed_step(&mut self) -> Option<(u32, Error)> {
        if self.ending.is_some() {
            return None;
        }
        let (mut failed, mut ended) = (Vec::new(), Vec::new());
        for (operation, result) in std::mem::take(&mut self.ended_steps) {
            let is_failed = result.as_ref().err().is_some_and(|error| self.fate(error) != Fate::Terminal);
            if is_failed { &mut failed } else { &mut ended }.push((operation, result));
        }
        self.ended_steps = ended;
        self.outgoing.retain(|(operation, ..)| {
            step_of(*operation).is_none_or(|step| !failed.iter().any(|(failed, _)| *failed == step))
        });
        let (operation, result) = failed.into_iter().next()?;
        result.err().map(|error| (operation, error)).filter(|_| !self.only_ends())
    }

    /// Forgets all failures. The writes must be made.
    pub(super) fn forgive(&mut self, context: &mut WorkflowContext<'_, '_>) -> Vec<Write> {
        let id = self.id.sequence;
        let failures = std::mem::take(&mut self.failures);
        failures.into_keys().map(|operation| context.books.failed.deletion(id, operation)).collect()
    }

    /// An operation has ended: forgets that it failed. The write must be made.
    pub(super) fn forgive_one(&mut self, operation: u32, context: &mut WorkflowContext<'_, '_>) -> Option<Write> {
        let id = self.id.sequence;
        self.failures.remove(&operation).map(|_| context.books.failed.deletion(id, operation))
    }
}

/// Notes an attempt that failed. Says when the next one is; `None` if there is none.
fn note_failure(
    workflow: &mut Workflow,
    failed: Failed,
    error: Error,
    context: &mut WorkflowContext<'_, '_>,
) -> Option<UnixMillis> {
    let Failed { operation, kind, name, policy } = failed;
    let now = context.world.now;
    if context.world.is_read_only {
        return Some(now.plus(RETRY_MS)); // It counts once it can be noted.
    }
    let attempts = workflow.failures.get(&operation).map_or(0, |failure| failure.attempts).saturating_add(1);
    let next_try = policy.next_pause_ms(attempts).map(|pause_ms| now.plus(pause_ms));
    let error = Error { detail: None, ..error };
    let failure = FailureRecord { kind, operation, attempts, failed: now, next_try, name, error };
    // A compensation that failed for good becomes a dead letter instead.
    if next_try.is_some() || kind != Some(StepKind::Compensation) {
        context.books.failures.work_failed(workflow.id, &workflow.record, &failure);
        let write = context.books.failed.write(workflow.id.sequence, &failure);
        context.append(vec![write]);
        workflow.failures.insert(operation, failure);
    }
    next_try
}

impl Workflows {
    /// The workflow's own code has ended with an error. Says whether it is to begin again.
    pub(super) fn code_failed(
        &mut self,
        workflow: &mut Workflow,
        error: &Error,
        context: &mut WorkflowContext<'_, '_>,
    ) -> bool {
        if workflow.fate(error) == Fate::Terminal {
            return false;
        }
        if workflow.only_ends() {
            workflow.outgoing.clear();
            workflow.ended_steps.clear();
            for operation in std::mem::take(&mut workflow.fresh) {
                workflow.open.remove(&operation);
            }
            let rows = workflow.rows.iter();
            let before = rows.take_while(|row| row.kind != StepKind::Cancel).count();
            workflow.rows.drain(..before);
            return true;
        }
        let policy = own_policy(workflow, context);
        let failed = Failed { operation: CODE, kind: None, name: String::new(), policy };
        self.begin_again(workflow, failed, error.clone(), context);
        true
    }

    /// The code of a step has ended with an error: the workflow's code begins again, and comes by the step.
    pub(super) fn step_failed(
        &mut self,
        workflow: &mut Workflow,
        (operation, error): (u32, Error),
        context: &mut WorkflowContext<'_, '_>,
    ) {
        let Some(open) = workflow.open.get(&operation) else {
            return; // Nobody waits for it any more.
        };
        let (kind, name, policy) = (Some(StepKind::Step), open.name.clone(), policy_of(open, workflow, context));
        self.begin_again(workflow, Failed { operation, kind, name, policy }, error, context);
    }

    fn begin_again(
        &mut self,
        workflow: &mut Workflow,
        failed: Failed,
        error: Error,
        context: &mut WorkflowContext<'_, '_>,
    ) {
        self.forget_attempt(workflow, context);
        if let Some(due) = note_failure(workflow, failed, error, context) {
            self.timers.insert((due, workflow.id.sequence, AGAIN));
        }
    }

    /// The code has come past where it failed, if it did: then that is forgotten.
    pub(super) fn note_progress(&mut self, workflow: &mut Workflow, context: &mut WorkflowContext<'_, '_>) {
        let runs = workflow.activation.is_some() && workflow.rows.is_empty() && !workflow.is_exchanging();
        if runs
            && !context.world.is_read_only
            && let Some(write) = workflow.forgive_one(CODE, context)
        {
            context.append(vec![write]);
        }
    }

    /// A workflow's call did not take effect: made again if that may help, or the workflow's.
    pub(crate) fn call_failed(
        &mut self,
        id: Sequence,
        operation: u32,
        error: Error,
        context: &mut WorkflowContext<'_, '_>,
    ) {
        self.call_ended(id);
        let Some(mut workflow) = self.live.remove(&id) else {
            return; // It strayed from its journal and has ended while the call ran.
        };
        let Some(open) = workflow.open.get_mut(&operation) else {
            self.live.insert(id, workflow);
            return; // It does not wait for the call any more.
        };
        open.attempts += 1;
        // A shard that has stopped may have made it.
        open.is_under_way = error.code == ErrorCode::ShardStopped;
        let (attempts, kind, name) = (open.attempts, open.kind, open.name.clone());
        let policy = workflow.open.get(&operation).map(|open| policy_of(open, &workflow, context)).unwrap_or_default();
        let is_compensation = kind == StepKind::Compensation;
        let fate = match fate_of_call(error.code) {
            // Whoever refused the compensation, its handler did not: what it undoes is still to be undone.
            Fate::Terminal if is_compensation && error.code != ErrorCode::Aborted => Fate::Retried,
            fate => fate,
        };
        let retry_at = match fate {
            Fate::Passing => Some(context.world.now.plus(passing_wait_ms(error.code, attempts))),
            Fate::Retried => {
                let failed = Failed { operation, kind: Some(kind), name, policy };
                note_failure(&mut workflow, failed, error.clone(), context)
            }
            Fate::Terminal => None,
        };
        // Other calls wait for somebody.
        let is_over = fate == Fate::Terminal || (is_compensation && retry_at.is_none());
        if let Some(open) = workflow.open.get_mut(&operation) {
            open.retry_at = retry_at;
        }
        self.timers.extend(retry_at.map(|due| (due, id, operation)));
        if workflow.record.is_cancelled {
            self.runnable.push_back(id);
        }
        let attempts = workflow.failures.get(&operation).map_or(attempts, |failure| failure.attempts.saturating_add(1));
        let message = match workflow.open.get(&operation).map(|open| &open.work) {
            Some(Work::Call(call)) if is_over && is_compensation => {
                super::calls::as_message(call.clone(), attempts, context.world)
            }
            _ => None,
        };
        self.live.insert(id, workflow);
        if is_over {
            self.call_is_over(id, operation, (error, message), context);
        }
    }

    /// A call has failed for good. A compensation waits among the dead letters, where somebody can have it made again.
    fn call_is_over(
        &mut self,
        id: Sequence,
        operation: u32,
        (error, message): (Error, Option<MessageRecord>),
        context: &mut WorkflowContext<'_, '_>,
    ) {
        // While the disk is full the operation does not end, and is tried again.
        let message = message.filter(|_| !context.world.is_read_only);
        let place = Sequence { lsn: context.rows.next_lsn(), index: 0 };
        let invocation = context.invocation(id);
        let dead_letter =
            message.map(|message| context.books.set_aside((invocation, place), &message, &error, "a compensation"));
        self.operation_ended(id, operation, Err(error), dead_letter.into_iter().collect(), context);
    }

    /// Takes over what failed in an earlier run of the shard.
    pub(super) fn recall_failures(&mut self, workflow: &mut Workflow, context: &mut WorkflowContext<'_, '_>) {
        let id = workflow.id;
        match context.books.failed.of(id.sequence, FAILURES, context.rows) {
            Ok(failures) => {
                workflow.failures = failures.into_iter().map(|failure| (failure.operation, failure)).collect();
                workflow.on_worker.is_lost = workflow.has_failed_code();
            }
            Err(error) => tracing::error!(%error, invocation = %id, "what failed of a workflow cannot be read"),
        }
    }

    /// Somebody steps in. It is answered once that is durable.
    pub(crate) fn intervene(
        &mut self,
        to: ReplyTo<()>,
        id: Sequence,
        intervention: Intervention,
        context: &mut WorkflowContext<'_, '_>,
    ) {
        let done = match intervention {
            Intervention::Cancel => self.want_cancelled(id, context),
            Intervention::Resume => self.resume(id, context),
            Intervention::Kill => self.kill(id, context),
            Intervention::Restart { from, on_newest } => self.restart(id, (from.as_deref(), on_newest), context),
        };
        context.context().answer_done(to, done);
    }

    /// What failed of a workflow is tried again now, from the first attempt.
    ///
    /// # Errors
    /// `unknown-invocation`, `overloaded` for one that has yet to begin, `workflow-ended`, `read-only`.
    fn resume(&mut self, id: Sequence, context: &mut WorkflowContext<'_, '_>) -> Result<Lsn, Error> {
        match self.standing(id, context)? {
            Standing::Live => {}
            Standing::Stored(_) => {
                // It has yet to be taken up, or waits for its code: it goes on when it has that.
                let failures = context.books.failed.of(id, FAILURES, context.rows)?;
                let forgive = |failure: FailureRecord| context.books.failed.deletion(id, failure.operation);
                let writes: Vec<Write> = failures.into_iter().map(forgive).collect();
                return append_some(writes, context);
            }
            Standing::Pending(_) | Standing::Called => return Err(not_begun()),
            Standing::Ended => return Err(has_ended()),
            Standing::Unknown => return Err(unknown_workflow()),
        }
        let Some(mut workflow) = self.live.remove(&id) else { return Err(unknown_workflow()) };
        if context.world.is_read_only && !workflow.failures.is_empty() {
            self.live.insert(id, workflow);
            return Err(read_only());
        }
        let operations: Vec<u32> = workflow.failures.keys().copied().collect();
        let writes = workflow.forgive(context);
        let lsn = append_some(writes, context);
        let mut calls = Vec::new();
        for operation in operations {
            let Some(open) = workflow.open.get_mut(&operation) else { continue };
            if matches!(open.work, Work::Call(_)) && !open.is_under_way {
                if let Some(due) = open.retry_at.take() {
                    self.timers.remove(&(due, id, operation));
                }
                calls.push(operation);
            }
        }
        self.live.insert(id, workflow);
        for operation in calls {
            self.start_operation(id, operation, context);
        }
        self.runnable.push_back(id);
        lsn
    }

    /// Paused workflows of apps that want it go on, as other versions of these are deployed.
    pub(crate) fn resume_deployed(&mut self, deployed: &BTreeSet<Name>, context: &mut WorkflowContext<'_, '_>) {
        let is_paused = |workflow: &Workflow| workflow.failures.values().any(|failure| failure.next_try.is_none());
        let is_meant = |(_, workflow): &(&Sequence, &Workflow)| {
            is_paused(workflow) && deployed.iter().any(|app| app.as_str() == workflow.record.app)
        };
        let found = self.live.iter().filter(is_meant).map(|(id, _)| *id).take(limits::RESUMED_ON_DEPLOY);
        for id in found.collect::<Vec<_>>() {
            if let Err(error) = self.resume(id, context) {
                tracing::warn!(invocation = %context.invocation(id), %error, "a workflow does not go on after a deployment");
            }
        }
    }

    /// A workflow ends here and now, and nothing is undone.
    ///
    /// # Errors
    /// `unknown-invocation`, `overloaded` for a call that was sent and has not ended, `read-only`.
    fn kill(&mut self, id: Sequence, context: &mut WorkflowContext<'_, '_>) -> Result<Lsn, Error> {
        let standing = self.standing(id, context)?;
        if context.world.is_read_only && !matches!(standing, Standing::Ended | Standing::Unknown) {
            return Err(read_only());
        }
        match standing {
            Standing::Live => {}
            Standing::Stored(record) => {
                self.stranded.forget(id);
                let failures = context.books.failed.of(id, FAILURES, context.rows)?;
                let forgive = |failure: FailureRecord| context.books.failed.deletion(id, failure.operation);
                let writes: Vec<Write> = failures.into_iter().map(forgive).collect();
                return Ok(end_record(id, record, ResultState::Error(killed()), writes, context));
            }
            Standing::Pending(message) => {
                return context.books.cancel_start(id, *message, &mut context.rows.context(context.world));
            }
            Standing::Called => return Err(not_begun()),
            // That it has ended may not be durable yet.
            Standing::Ended => return Ok(context.books.results.lsn(context.rows)),
            Standing::Unknown => return Err(unknown_workflow()),
        }
        let Some(mut workflow) = self.live.remove(&id) else { return Err(unknown_workflow()) };
        self.give_up(&mut workflow, killed(), context);
        self.end(workflow, context);
        Ok(context.rows.lsn())
    }
}

/// The entry that ends a workflow, with `beside`.
pub(super) fn end_record(
    id: Sequence,
    mut record: WorkflowRecord,
    result: ResultState,
    beside: Vec<Write>,
    context: &mut WorkflowContext<'_, '_>,
) -> Lsn {
    let invocation = context.invocation(id);
    let WorkflowContext { rows, books, world } = context;
    books.failures.workflow_ended(invocation, &record, &result, world.now);
    record.has_ended = true;
    let service = (&*record.app, &*record.service);
    let mut writes = beside;
    writes.extend([
        books.journals.live_deletion(id),
        books.journals.record_write(id, &record),
        books.results.keep_invocation(id, service, result, world.now),
    ]);
    writes.extend(books.signals.deletions(id, rows));
    context.append(writes)
}

/// Makes `writes` an entry, if there are any.
///
/// # Errors
/// `read-only`.
fn append_some(writes: Vec<Write>, context: &mut WorkflowContext<'_, '_>) -> Result<Lsn, Error> {
    match writes.is_empty() {
        true => Ok(context.rows.lsn()),
        false if context.world.is_read_only => Err(read_only()),
        false => Ok(context.append(writes)),
    }
}

fn killed() -> Error {
    Error::new(ErrorCode::Cancelled, "the workflow was killed: nothing it had done was compensated")
}

fn has_ended() -> Error {
    Error::new(ErrorCode::WorkflowEnded, "the workflow has ended: there is nothing to resume")
}
