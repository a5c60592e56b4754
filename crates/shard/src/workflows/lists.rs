//! What people look at: one workflow with its journal, and lists of workflows.

use std::collections::BTreeMap;
use std::ops::Bound;

use millrace_base::{Error, ErrorCode, UnixMillis, limits};
use millrace_format::{FailureRecord, InvocationResult, ResultState, WorkflowRecord};

use super::stranded::stranded_for;
use super::{WorkflowContext, Workflows};
use crate::context::store_failed;
use crate::request::{ListedWorkflow, Sequence, WorkflowView};
use crate::results::{invocation_field, service_fingerprint};
use crate::typed_reply::{FoundInvocation, Listed, ReplyTo};

/// Workflows looked at in one input of a list.
const LISTED_AT_ONCE: usize = 100;

/// Failures shown of one workflow. Those of operations that it asked for first come first.
const SHOWN_FAILURES: usize = 10;

/// A workflow in a list; when it is to begin, if it has yet to.
type Row = (Sequence, WorkflowRecord, Option<UnixMillis>);

impl Workflows {
    /// Answers what became of a sent invocation; of a workflow also what it has done, with its journal if asked for.
    pub(crate) fn answer_invocation(
        &mut self,
        to: ReplyTo<FoundInvocation>,
        id: Sequence,
        has_journal: bool,
        context: &mut WorkflowContext<'_, '_>,
    ) {
        let now = context.world.now;
        let found = context.books.results.get(&invocation_field(id), context.rows);
        let result = found.and_then(|found| {
            let unknown = || Error::new(ErrorCode::UnknownInvocation, "no such invocation, or its outcome expired");
            let is_there = |invocation_result: &InvocationResult| {
                invocation_result.expires > now || invocation_result.result == ResultState::Pending
            };
            let invocation_result = found.filter(is_there).ok_or_else(unknown)?;
            let workflow = self.view(id, has_journal, context)?.map(Box::new);
            let failures = self.failures_of(id, context)?;
            Ok(FoundInvocation { result: invocation_result, workflow, failures })
        });
        let depends_on = context.books.results.lsn(context.rows).max(context.books.failed.lsn(context.rows));
        context.context().answer(to, result, depends_on);
    }

    /// What of a workflow failed and has not ended.
    fn failures_of(&self, id: Sequence, context: &mut WorkflowContext<'_, '_>) -> Result<Vec<FailureRecord>, Error> {
        if let Some(workflow) = self.live.get(&id) {
            return Ok(workflow.told_failures().take(SHOWN_FAILURES).cloned().collect());
        }
        match context.books.failure_of_sent(id, context.rows)? {
            Some(failure) => Ok(vec![failure]),
            None => context.books.failed.of(id, SHOWN_FAILURES, context.rows),
        }
    }

    /// Answers a page of workflows.
    pub(crate) fn answer_list(
        &mut self,
        to: ReplyTo<Listed<ListedWorkflow>>,
        after: Option<(bool, Sequence)>,
        (limit, is_live_only): (usize, bool),
        context: &mut WorkflowContext<'_, '_>,
    ) {
        let listed = self.list(after, limit, is_live_only, context);
        let depends_on = context.books.results.lsn(context.rows).max(context.books.failed.lsn(context.rows));
        context.context().answer(to, listed, depends_on);
    }

    /// What is known of a workflow, with its journal only if asked for; `None` for an invocation that is none.
    ///
    /// # Errors
    /// When its rows cannot be read.
    fn view(
        &mut self,
        id: Sequence,
        has_journal: bool,
        context: &mut WorkflowContext<'_, '_>,
    ) -> Result<Option<WorkflowView>, Error> {
        let WorkflowContext { rows, books, .. } = context;
        let Some(record) = books.journals.record(id, rows)? else {
            let view =
                |(record, due)| WorkflowView { record, due: Some(due), journal: Vec::new(), waits_for: Vec::new() };
            return Ok(books.start_record(id, rows)?.map(view));
        };
        let journal = if has_journal { books.journals.journal(id, rows)? } else { Vec::new() };
        let waits_for = match (self.live.get(&id), self.stranded.get(id)) {
            (Some(workflow), _) => workflow.waits_for(),
            (None, Some(stranded)) => vec![stranded_for(stranded)],
            (None, None) => Vec::new(),
        };
        Ok(Some(WorkflowView { record, due: None, journal, waits_for }))
    }

    /// Workflows after `after`, a bounded number of them, those that have not ended first, or only
    /// those; and whether there are more. Whether the last one of a page has ended says where the next page begins.
    ///
    /// # Errors
    /// When rows cannot be read.
    fn list(
        &mut self,
        after: Option<(bool, Sequence)>,
        limit: usize,
        is_live_only: bool,
        context: &mut WorkflowContext<'_, '_>,
    ) -> Result<Listed<ListedWorkflow>, Error> {
        let (rows, has_more) = self.list_rows(after, limit.min(LISTED_AT_ONCE), is_live_only, context)?;
        let (mut items, mut size_bytes, count) = (Vec::new(), 0, rows.len());
        for (id, record, due) in rows {
            let invocation_result =
                context.books.results.get(&invocation_field(id), context.rows)?.unwrap_or_else(|| InvocationResult {
                    expires: UnixMillis(0),
                    fingerprint: service_fingerprint(&record.app, &record.service),
                    result: ResultState::Pending,
                });
            let failures = if record.has_ended { Vec::new() } else { self.failures_of(id, context)? };
            let item = ListedWorkflow { id, record, due, invocation_result, failures };
            size_bytes += item.size_bytes();
            items.push(item);
            // The outputs are in memory at once, too.
            if size_bytes > limits::PAGE_BYTES {
                break;
            }
        }
        let has_more = has_more || items.len() < count;
        Ok(Listed { items, has_more })
    }

    /// Those that have not ended come from memory: their rows come and go, and a scan steps over
    /// every one that has gone.
    pub(super) fn list_rows(
        &mut self,
        after: Option<(bool, Sequence)>,
        limit: usize,
        is_live_only: bool,
        context: &mut WorkflowContext<'_, '_>,
    ) -> Result<(Vec<Row>, bool), Error> {
        let (skips_live, after) = match after {
            Some((has_ended, id)) => (has_ended, Some(id)),
            None => (false, None),
        };
        let (mut rows, mut is_cut) = (Vec::new(), false);
        if !skips_live {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            (rows, is_cut) = self.unended_rows(from, limit + 1, context)?;
        }
        if rows.len() <= limit && !is_cut && !is_live_only {
            let after = after.filter(|_| skips_live);
            let left = limit + 1 - rows.len();
            let (ended, is_large) = context.books.journals.ended_after(after, left, context.rows)?;
            is_cut = is_large;
            rows.extend(ended.into_iter().map(|(id, record)| (id, record, None)));
        }
        let has_more = rows.len() > limit || is_cut;
        rows.truncate(limit);
        Ok((rows, has_more))
    }

    /// Those that have not ended; and whether there are more, as these have many bytes.
    fn unended_rows(
        &mut self,
        after: Bound<Sequence>,
        limit: usize,
        context: &mut WorkflowContext<'_, '_>,
    ) -> Result<(Vec<Row>, bool), Error> {
        let live = self.live.range((after, Bound::Unbounded)).take(limit);
        let mut known: BTreeMap<Sequence, Option<WorkflowRecord>> =
            live.map(|(id, workflow)| (*id, Some(workflow.record.clone()))).collect();
        known.extend(self.stranded.after(after, limit).map(|(id, record)| (id, Some(record))));
        for id in context.books.starts.after(after, limit) {
            known.entry(id).or_insert(None);
        }
        let is_part = self.add_stored(after, &mut known, context)?;
        let has_more = is_part || known.len() > limit;
        let known = known.into_iter().take(limit);
        let (mut rows, mut read_bytes) = (Vec::new(), 0);
        let mut known = known.peekable();
        while let Some((id, record)) = known.next() {
            match record {
                Some(record) => rows.push((id, record, None)),
                // Only these are not in memory anyway.
                None => {
                    let start = context.books.start_record(id, context.rows)?;
                    read_bytes += start.as_ref().map_or(0, |(record, _)| record.input.len());
                    rows.extend(start.map(|(record, due)| (id, record, Some(due))));
                }
            }
            if read_bytes > limits::PAGE_BYTES {
                return Ok((rows, has_more || known.peek().is_some()));
            }
        }
        Ok((rows, has_more))
    }

    /// Adds those that have yet to be taken up after a start. If there are many, only the first, and what lies behind
    /// these is left out of `known`. Says whether that is so.
    fn add_stored(
        &self,
        after: Bound<Sequence>,
        known: &mut BTreeMap<Sequence, Option<WorkflowRecord>>,
        context: &mut WorkflowContext<'_, '_>,
    ) -> Result<bool, Error> {
        if self.has_taken_up_all {
            return Ok(false);
        }
        let after = match after {
            Bound::Excluded(id) => self.taken_up.max(Some(id)),
            _ => self.taken_up,
        };
        let limit = limits::WORKFLOWS_PER_INPUT;
        let found = context.books.journals.live_after(after, limit, context.rows);
        let found = found.map_err(|error| store_failed(&error))?;
        let last = found.iter().rev().find_map(|(id, _)| *id).filter(|_| found.len() == limit);
        if let Some(last) = last {
            known.retain(|id, _| *id <= last);
        }
        // One that somebody has restarted is in memory already, newer.
        for (id, record) in found.into_iter().filter_map(|(id, record)| Some((id?, record?))) {
            known.entry(id).or_insert(Some(record));
        }
        Ok(last.is_some())
    }
}
