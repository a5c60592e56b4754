//! A workflow begins again, because somebody wants it to: from its beginning, or from the first step of a name.
//!
//! One entry does it: what the journal is to forget goes, and the row is among those of workflows that have not ended. The
//! code then runs over what is left of the journal, as after a crash. From the first operation that is asked for anew, a
//! new *run* counts. So nothing that was kept or drawn for the earlier run is taken for an answer.

use millrace_base::{Error, ErrorCode, Lsn, limits};
use millrace_format::{JournalRow, ResultState, StepKind, WorkflowRecord, WorkflowRun, Write};

use super::workflow::{Open, Work, step_of};
use super::{Standing, WorkflowContext, Workflows, unknown_workflow};
use crate::context::read_only;
use crate::failures::FAILURES;
use crate::request::Sequence;
use crate::results::invocation_field;

impl Workflows {
    /// A workflow that has ended, or is paused, begins again: from the first step named `from`, or from its beginning.
    ///
    /// # Errors
    /// `unknown-invocation`; `workflow-running` for one that goes on by itself; `bad-request` when it cannot begin there;
    /// `unknown-handler` when its code is not deployed; `read-only`.
    pub(super) fn restart(
        &mut self,
        id: Sequence,
        (from, on_newest): (Option<&str>, bool),
        context: &mut WorkflowContext<'_, '_>,
    ) -> Result<Lsn, Error> {
        let mut record = self.restartable(id, context)?;
        if context.world.is_read_only {
            return Err(read_only());
        }
        let rows = context.books.journals.numbered_journal(id, context.rows)?;
        let failures = context.books.failed.of(id, FAILURES, context.rows)?;
        let first = match from {
            None => 0,
            Some(name) => {
                let failed = failures.iter().filter(|failure| failure.kind.is_some());
                let failed = failed.map(|failure| (failure.operation, failure.name.as_str()));
                first_of(name, rows.iter().map(|(_, row)| row), failed)?
            }
        };
        begin_run(&mut record, first, context.world.now.0)?;
        (record.has_ended, record.is_cancelled) = (false, false);
        if first == 0 {
            record.began = context.world.now;
        }
        set_version(&mut record, on_newest, context)?;
        let mut writes: Vec<Write> =
            failures.iter().map(|failure| context.books.failed.deletion(id, failure.operation)).collect();
        let dropped = rows.iter().filter(|(_, row)| !is_before(row, first));
        writes.extend(dropped.map(|(number, _)| context.books.journals.row_deletion(id, *number)));
        writes.push(context.books.journals.ended_deletion(id));
        writes.push(context.books.journals.record_write(id, &record));
        writes.push(context.books.results.keep_pending(id, &record.app, &record.service));
        self.forget_run(id, context);
        let lsn = context.append(writes);
        self.take_up(id, record, context);
        if let Some(workflow) = self.live.get_mut(&id) {
            // What it does from here on must not outlast a restart that is lost.
            workflow.journalled(lsn, false);
        }
        Ok(lsn)
    }

    /// What a workflow is that may begin again.
    fn restartable(&mut self, id: Sequence, context: &mut WorkflowContext<'_, '_>) -> Result<WorkflowRecord, Error> {
        let record = match self.standing(id, context)? {
            Standing::Live => self.paused_record(id)?,
            Standing::Stored(_) => return Err(goes_on("it has yet to be taken up, or waits for its code")),
            Standing::Pending(_) => return Err(goes_on("it has yet to begin")),
            Standing::Called => return Err(goes_on("it is a message that is under way")),
            Standing::Ended => ended_record(id, context)?,
            Standing::Unknown => return Err(unknown_workflow()),
        };
        // The call of the earlier run would be taken for one of the next.
        match self.calls_under_way.contains_key(&id) {
            true => {
                Err(Error::new(ErrorCode::WorkflowRunning, "a call of it has yet to end: try again a little later"))
            }
            false => Ok(record),
        }
    }

    /// What a workflow in memory is, if it is paused and nothing of it is under way.
    fn paused_record(&self, id: Sequence) -> Result<WorkflowRecord, Error> {
        let workflow = self.live.get(&id).ok_or_else(unknown_workflow)?;
        let is_paused = workflow.failures.values().any(|failure| failure.next_try.is_none());
        let is_work = |open: &Open| open.is_under_way || matches!(open.work, Work::Fetch(_) | Work::Hash(_));
        let goes_on_by_itself = workflow.open.values().any(is_work) || workflow.is_exchanging();
        let is_ending = workflow.ending.is_some() || workflow.record.is_cancelled;
        match is_paused && !goes_on_by_itself && !is_ending {
            true => Ok(workflow.record.clone()),
            false => Err(goes_on("it runs")),
        }
    }

    /// Nothing is left in memory of the run that is over.
    fn forget_run(&mut self, id: Sequence, context: &mut WorkflowContext<'_, '_>) {
        if let Some(mut workflow) = self.live.remove(&id) {
            self.drop_activation(&mut workflow, context);
            self.by_nonce.remove(&workflow.nonce);
        }
        // They would begin operations of the next run that have the same numbers.
        self.timers.retain(|(_, of, _)| *of != id);
        self.waiting.retain(|(_, of, _)| *of != id);
        self.calls.retain(|(of, _)| *of != id);
    }
}

fn ended_record(id: Sequence, context: &mut WorkflowContext<'_, '_>) -> Result<WorkflowRecord, Error> {
    let WorkflowContext { rows, books, world } = context;
    let kept = books.results.get(&invocation_field(id), rows)?;
    let is_kept = kept.is_some_and(|kept| kept.result != ResultState::Pending && kept.expires > world.now);
    let record = books.journals.record(id, rows)?.filter(|_| is_kept);
    record.ok_or_else(unknown_workflow)
}

/// The version that it is to run in: its own as long as that is loaded. It is noted, so that it stays the same.
fn set_version(
    record: &mut WorkflowRecord,
    on_newest: bool,
    context: &mut WorkflowContext<'_, '_>,
) -> Result<(), Error> {
    let catalog = context.world.catalog;
    let WorkflowRecord { version, app, service, handler, .. } = &*record;
    if !on_newest && catalog.is_missing(app, *version) {
        let message = "the version of the app that it began in could not be loaded: restart it in the newest version";
        return Err(Error::new(ErrorCode::UnknownHandler, message));
    }
    if on_newest || catalog.find_version(app, *version, service, handler).is_none() {
        let newest = catalog.find(app, service, handler)?;
        record.version = catalog.program(newest.program).map_or(0, |loaded| loaded.version);
    }
    Ok(())
}

/// Whether a row is of an operation below `first`, or of the code of such a step.
fn is_before(row: &JournalRow, first: u32) -> bool {
    row.kind != StepKind::Cancel && step_of(row.operation).unwrap_or(row.operation) < first
}

/// The first operation of a name, among those that have ended and those that failed.
fn first_of<'a>(
    name: &str,
    rows: impl Iterator<Item = &'a JournalRow> + Clone,
    failed: impl Iterator<Item = (u32, &'a str)>,
) -> Result<u32, Error> {
    let refused = |message: String| Err(Error::new(ErrorCode::BadRequest, message));
    if rows.clone().any(|row| row.kind == StepKind::Compensation) {
        let message =
            "its compensations have run, so what its journal tells of is undone: restart it from the beginning";
        return refused(message.to_owned());
    }
    let ended = rows.filter(|row| row.kind != StepKind::Cancel).map(|row| (row.operation, row.name.as_str()));
    let named = ended.chain(failed).filter(|(operation, own)| *own == name && step_of(*operation).is_none());
    match named.map(|(operation, _)| operation).min() {
        Some(operation) => Ok(operation),
        None => refused(format!("its journal has no step {name:?}: `GET /invocations/{{id}}` shows the names")),
    }
}

/// From the operation `first` on, a new run counts.
fn begin_run(record: &mut WorkflowRecord, first: u32, now: u64) -> Result<(), Error> {
    let last = record.runs.iter().map(|run| run.number).max().unwrap_or(0);
    record.runs.retain(|run| run.first_operation < first);
    if record.runs.len() >= limits::WORKFLOW_RUNS {
        let message =
            format!("it has been restarted from {} steps: restart it from the beginning", limits::WORKFLOW_RUNS);
        return Err(Error::new(ErrorCode::BadRequest, message));
    }
    // Greater than any before it, however the clock goes.
    record.runs.push(WorkflowRun { first_operation: first, number: now.max(last + 1) });
    Ok(())
}

fn goes_on(why: &str) -> Error {
    let message = format!("{why}: cancel or kill the workflow first, or wait for its end");
    Error::new(ErrorCode::WorkflowRunning, message)
}
