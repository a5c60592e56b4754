//! What people look at and look after: workflows, their journals, and dead letters.

use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};

use millrace_base::{Error, ErrorCode, Lsn, UnixMillis, Value, ValueKind, limits};
use millrace_format::{DeadLetterRecord, MessageRecord, Outcome, OutcomeResult, WorkflowRecord, Write};
use millrace_store::{Store, StoreError};

use crate::commit::{decode_failed, read_only};
use crate::host::store_failed;
use crate::inbox::inbox_field;
use crate::outcomes::{invocation_field, service_fingerprint};
use crate::outgoing::shard_of_record;
use crate::request::{Bookkeeping, InvocationId, ListedWorkflow, Reply, Sequence, Token, WorkflowView, dead_letter_id};
use crate::shard::Shard;
use crate::waiting::stranded_for;
use crate::workflow::JOURNAL_ROWS;
use crate::world::World;

/// Workflows looked at in one input of a list.
const LISTED_AT_ONCE: usize = 100;

/// The app versions, by name and fingerprint, that workflows of a shard run in. For drivers, which
/// have to load them before the shard starts.
///
/// # Errors
/// [`StoreError`] when the rows cannot be read.
pub fn workflow_versions(store: &mut Store) -> Result<BTreeSet<(String, u64)>, StoreError> {
    let mut versions = BTreeSet::new();
    store.visit_fields(&Bookkeeping::new().workflows, b"", limits::PART, &mut |_, value| {
        if let Ok(record) = WorkflowRecord::decode(value.content()) {
            versions.insert((record.app, record.version));
        }
        ControlFlow::Continue(())
    })?;
    Ok(versions)
}

/// A workflow in a list; when it is to begin, if it has yet to.
type Row = (Sequence, WorkflowRecord, Option<UnixMillis>);

/// A dead letter by the field it is kept under.
type Letter = (Box<[u8]>, DeadLetterRecord);

impl Shard {
    /// What the workflows that have not ended wait for, one line each, for people.
    #[must_use]
    pub fn workflows_wait_for(&self) -> Vec<String> {
        let line =
            |workflow: &crate::workflow::Workflow| format!("{}: {}", workflow.id, workflow.waits_for().join(", "));
        self.workflows.live.values().map(line).collect()
    }

    /// What is known of a workflow, with its journal only if asked for; `None` for an invocation that is none.
    pub(crate) fn workflow_view(&mut self, id: Sequence, has_journal: bool) -> Result<Option<WorkflowView>, Error> {
        let entities = [&self.bookkeeping.workflows, &self.bookkeeping.ended_workflows];
        let mut found = None;
        for entity in entities {
            let value = self.store.get(entity, &id.encode()).map_err(|error| store_failed(&error))?;
            found = found.or(value.cloned());
        }
        let Some(value) = found else {
            let view =
                |(record, due)| WorkflowView { record, due: Some(due), journal: Vec::new(), waits_for: Vec::new() };
            return Ok(self.pending_record(id)?.map(view));
        };
        let record = WorkflowRecord::decode(value.content()).map_err(|error| decode_failed(&error))?;
        let journal = if has_journal { self.journal(id)? } else { Vec::new() };
        let waits_for = match (self.workflows.live.get(&id), self.waiting.stranded_record(id)) {
            (Some(workflow), _) => workflow.waits_for(),
            (None, Some(stranded)) => vec![stranded_for(stranded)],
            (None, None) => Vec::new(),
        };
        Ok(Some(WorkflowView { record, due: None, journal, waits_for }))
    }

    /// Workflows after `after`, a bounded number of them, those that have not ended first, or only
    /// those. Whether the last one of a page has ended says where the next page begins.
    pub fn list_workflows(
        &mut self,
        token: Token,
        after: Option<(bool, Sequence)>,
        (limit, is_live_only): (usize, bool),
        world: &mut World<'_>,
    ) {
        if self.refuses(token, world) {
            return;
        }
        let result = self.workflow_rows(after, limit.min(LISTED_AT_ONCE), is_live_only);
        let result = result.and_then(|(rows, has_more)| {
            let with_outcome = |(id, record, due): (Sequence, WorkflowRecord, Option<UnixMillis>)| {
                let outcome = self.outcome(&invocation_field(id))?.unwrap_or_else(|| Outcome {
                    expires: UnixMillis(0),
                    fingerprint: service_fingerprint(&record.app, &record.service),
                    result: OutcomeResult::Pending,
                });
                Ok(ListedWorkflow { id, record, due, outcome })
            };
            let (mut items, mut size_bytes, count) = (Vec::new(), 0, rows.len());
            for item in rows.into_iter().map(with_outcome) {
                let item = item?;
                size_bytes += item.size_bytes();
                items.push(item);
                // The outputs are in memory at once, too.
                if size_bytes > limits::PAGE_BYTES {
                    break;
                }
            }
            let has_more = has_more || items.len() < count;
            Ok(Reply::Workflows(items, has_more))
        });
        let depends_on = self.store.entity_lsn(&self.bookkeeping.outcomes);
        self.reply_when_durable(token, result, depends_on, world);
    }

    /// Those that have not ended come from memory: their rows come and go, and a scan steps over
    /// every one that has gone.
    fn workflow_rows(
        &mut self,
        after: Option<(bool, Sequence)>,
        limit: usize,
        is_live_only: bool,
    ) -> Result<(Vec<Row>, bool), Error> {
        let (skips_live, after) = match after {
            Some((has_ended, id)) => (has_ended, Some(id)),
            None => (false, None),
        };
        let (mut rows, mut is_cut) = (Vec::new(), false);
        if !skips_live {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            (rows, is_cut) = self.unended_rows(from, limit + 1)?;
        }
        if rows.len() <= limit && !is_cut && !is_live_only {
            let after = after.filter(|_| skips_live).map(Sequence::encode);
            let after = after.as_ref().map(|bytes| &bytes[..]);
            let left = limit + 1 - rows.len();
            let ended = &self.bookkeeping.ended_workflows;
            let found = self.store.scan_fields_within(ended, b"", after, left, limits::SCAN_BYTES);
            let (found, is_large) = found.map_err(|error| store_failed(&error))?;
            is_cut = is_large && !found.is_empty();
            for (field, value) in found {
                let record = WorkflowRecord::decode(value.content()).map_err(|error| decode_failed(&error))?;
                rows.push((Sequence::decode(&field).unwrap_or_default(), record, None));
            }
        }
        let has_more = rows.len() > limit || is_cut;
        rows.truncate(limit);
        Ok((rows, has_more))
    }

    /// Those that have not ended; and whether there are more, as these have many bytes.
    fn unended_rows(&mut self, after: Bound<Sequence>, limit: usize) -> Result<(Vec<Row>, bool), Error> {
        let live = self.workflows.live.range((after, Bound::Unbounded)).take(limit);
        let mut known: Vec<(Sequence, Option<WorkflowRecord>)> =
            live.map(|(id, workflow)| (*id, Some(workflow.record.clone()))).collect();
        known.extend(self.stranded_after(after, limit).into_iter().map(|(id, record)| (id, Some(record))));
        known.extend(self.pending_after(after, limit).into_iter().map(|id| (id, None)));
        known.sort_by_key(|(id, _)| *id);
        known.truncate(limit);
        let (mut rows, mut read_bytes, count) = (Vec::new(), 0, known.len());
        for (index, (id, record)) in known.into_iter().enumerate() {
            match record {
                Some(record) => rows.push((id, record, None)),
                // Only these are not in memory anyway.
                None => {
                    let pending = self.pending_record(id)?;
                    read_bytes += pending.as_ref().map_or(0, |(record, _)| record.input.len());
                    rows.extend(pending.map(|(record, due)| (id, record, Some(due))));
                }
            }
            if read_bytes > limits::PAGE_BYTES {
                return Ok((rows, index + 1 < count));
            }
        }
        Ok((rows, false))
    }

    /// The row and the journal of a workflow whose outcome has expired.
    pub(crate) fn add_workflow_deletions(&mut self, id: Sequence, writes: &mut Vec<Write>) {
        let ended = self.bookkeeping.ended_workflows.clone();
        if !matches!(self.store.get(&ended, &id.encode()), Ok(Some(_))) {
            return;
        }
        writes.push(Write { entity: ended, field: id.encode()[..].into(), value: None });
        let journal = self.bookkeeping.journal.clone();
        let rows = self.store.scan_fields(&journal, &id.encode(), None, JOURNAL_ROWS).unwrap_or_default();
        writes.extend(rows.into_iter().map(|(field, _)| Write { entity: journal.clone(), field, value: None }));
    }

    /// Messages and compensations that failed too often and wait for somebody.
    #[must_use]
    pub fn dead_letters(&self) -> usize {
        self.dead_letters
    }

    /// Attempts to run messages and compensations that failed, since the start.
    #[must_use]
    pub fn failed_attempts(&self) -> u64 {
        self.failures.count()
    }

    /// Counts what an earlier run of the shard left.
    pub(crate) fn count_dead_letters(&mut self) -> Result<(), StoreError> {
        let count = &mut self.dead_letters;
        self.store.visit_fields(&self.bookkeeping.dead, b"", limits::PART, &mut |_, _| {
            *count += 1;
            ControlFlow::Continue(())
        })
    }

    /// A line for an attempt that failed, unless there were many of late.
    pub(crate) fn tell_of_failure(&mut self, id: Sequence, message: &MessageRecord, error: &Error, world: &World<'_>) {
        if let Some(left_out) = self.failures.note(world.now) {
            let MessageRecord { app, service, handler, attempts, .. } = message;
            let (invocation, key) = (self.invocation_id(id), String::from_utf8_lossy(&message.key));
            let key = &*key;
            tracing::warn!(
                %invocation, app, service, key, handler, attempts, %error, left_out,
                "an attempt to run a message failed"
            );
        }
    }

    /// Sets a message aside that failed for good, and says so. `what` it is, and of which invocation;
    /// its place is the dead letter's. The write must be made.
    pub(crate) fn set_aside(
        &mut self,
        (id, place): (Sequence, Sequence),
        message: &MessageRecord,
        error: &Error,
        what: &'static str,
    ) -> Write {
        let MessageRecord { app, service, handler, attempts, .. } = message;
        let (invocation, key) = (self.invocation_id(id), String::from_utf8_lossy(&message.key));
        let (key, dead_letter) = (&*key, dead_letter_id(self.options.shard, &place.encode()));
        tracing::error!(
            dead_letter, %invocation, app, service, key, handler, attempts, %error,
            "{what} failed for good and went to the dead letters"
        );
        self.dead_letter_write(&place.encode(), &DeadLetterRecord::encode(error, message))
    }

    pub(crate) fn invocation_id(&self, sequence: Sequence) -> InvocationId {
        InvocationId { shard: self.options.shard, sequence }
    }

    /// The write of a dead letter. It must be made.
    pub(crate) fn dead_letter_write(&mut self, field: &[u8], letter: &[u8]) -> Write {
        self.dead_letters += 1;
        let value = Some(Value::new(ValueKind::Bytes, letter));
        Write { entity: self.bookkeeping.dead.clone(), field: field.into(), value }
    }

    /// Dead letters after `after`.
    pub fn list_dead_letters(&mut self, token: Token, after: Option<&[u8]>, limit: usize, world: &mut World<'_>) {
        if self.refuses(token, world) {
            return;
        }
        let result = self.letters_after(after, limit).map_err(|error| store_failed(&error));
        let result = result.map(|(letters, has_more)| Reply::DeadLetters(letters, has_more));
        let depends_on = self.store.entity_lsn(&self.bookkeeping.dead);
        self.reply_when_durable(token, result, depends_on, world);
    }

    /// A page of dead letters, and whether there are more. It has one at least if there is one: the next page begins
    /// behind the last.
    fn letters_after(&mut self, after: Option<&[u8]>, limit: usize) -> Result<(Vec<Letter>, bool), StoreError> {
        let mut after: Option<Box<[u8]>> = after.map(Into::into);
        loop {
            let dead = &self.bookkeeping.dead;
            let (mut rows, is_cut) =
                self.store.scan_fields_within(dead, b"", after.as_deref(), limit + 1, limits::SCAN_BYTES)?;
            let has_more = rows.len() > limit || is_cut;
            rows.truncate(limit);
            after = rows.last().map(|(field, _)| field.clone());
            // What cannot be read as a message of this version cannot be shown or run either.
            let letter =
                |(field, value): (Box<[u8]>, Value)| Some((field, DeadLetterRecord::decode(value.content()).ok()?));
            let letters: Vec<Letter> = rows.into_iter().filter_map(letter).collect();
            if !letters.is_empty() || !has_more || after.is_none() {
                return Ok((letters, has_more));
            }
        }
    }

    /// Drops a dead letter, or has it tried again from its first attempt.
    pub fn end_dead_letter(&mut self, token: Token, field: &[u8], is_retried: bool, world: &mut World<'_>) {
        if self.refuses(token, world) {
            return;
        }
        let ended = self.dead_letter(field).and_then(|letter| {
            if world.is_read_only { Err(read_only()) } else { Ok(self.write_end(field, letter, is_retried, world)) }
        });
        self.answer_done(token, ended, world);
        self.settle(world);
    }

    /// A dead letter, to find out whose it is.
    pub fn read_dead_letter(&mut self, token: Token, field: &[u8], world: &mut World<'_>) {
        if self.refuses(token, world) {
            return;
        }
        let letter = self.dead_letter(field).map(|letter| Reply::DeadLetters(vec![(field.into(), letter)], false));
        let depends_on = self.store.entity_lsn(&self.bookkeeping.dead);
        self.reply_when_durable(token, letter, depends_on, world);
    }

    fn dead_letter(&mut self, field: &[u8]) -> Result<DeadLetterRecord, Error> {
        let found = self.store.get(&self.bookkeeping.dead, field).map_err(|error| store_failed(&error))?;
        let unknown = || Error::new(ErrorCode::UnknownInvocation, "no such dead letter");
        DeadLetterRecord::decode(found.ok_or_else(unknown)?.content()).map_err(|error| decode_failed(&error))
    }

    fn write_end(&mut self, field: &[u8], letter: DeadLetterRecord, is_retried: bool, world: &mut World<'_>) -> Lsn {
        self.dead_letters = self.dead_letters.saturating_sub(1);
        let mut writes = vec![Write { entity: self.bookkeeping.dead.clone(), field: field.into(), value: None }];
        if is_retried {
            let mut message = letter.message;
            if let Some(program) = world.catalog.current(&message.app) {
                message.input = world.engine.begun_again(program, &message.service, message.input);
            }
            (message.attempts, message.due, message.was_set_aside) = (0, world.now, true);
            if let Some(id) = Sequence::decode(field).filter(|_| message.keeps_outcome) {
                // Whoever sent it knows it by the place it had.
                message.invocation.get_or_insert((self.options.shard, id.lsn, id.index));
            }
            let sequence = Sequence { lsn: self.store.lsn().next(), index: 0 };
            let to = shard_of_record(&message, self.options.shard_count);
            if to == self.options.shard {
                let field = inbox_field(message.due, sequence);
                writes.push(self.inbox_write(&field, &message));
                self.add_start_again(&field, &message, &mut writes, world);
            } else {
                // A compensation waits where its workflow is.
                writes.push(self.outbox_write(to, sequence, &message));
            }
        }
        self.append(writes, world)
    }
}
