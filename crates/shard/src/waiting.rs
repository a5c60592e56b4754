//! Workflows that do not run, but are there: those that have yet to begin, and those whose code is
//! not deployed.
//!
//! The message that starts a workflow waits in the inbox until it is due. From the entry on that
//! brings it, a row under the invocation's id says where it is; so the workflow is seen, signalled
//! and cancelled before its time. The row goes in the entry that begins the workflow or gives it up.
//!
//! A workflow whose handler is not deployed when it is to be taken up again is *stranded*: it
//! keeps its rows, is listed, and is taken up once its handler is deployed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use millrace_base::{Error, ErrorCode, Lsn, Name, UnixMillis, Value, ValueKind};
use millrace_format::{MessageRecord, Outcome, OutcomeResult, WorkflowRecord, Write};
use millrace_func::{HandlerId, HandlerKind, Program};
use millrace_store::StoreError;

use crate::commit::read_only;
use crate::outcomes::{invocation_field, service_fingerprint};
use crate::request::Sequence;
use crate::shard::Shard;
use crate::workflows::not_begun;
use crate::world::World;

/// Stranded workflows taken up in one tick. They run as their turns come.
const TAKEN_UP_AT_ONCE: usize = 1_000;

/// What a shard knows of workflows that do not run.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Where in the inbox the messages are that start workflows.
    pending: BTreeMap<Sequence, Box<[u8]>>,
    /// Begun, and without their code.
    stranded: BTreeMap<Sequence, WorkflowRecord>,
    /// What was deployed when the stranded ones were last looked at.
    looked_at: Vec<(Name, Program)>,
}

impl Waiting {
    /// Workflows that have yet to begin.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Workflows whose code is not deployed.
    pub(crate) fn stranded(&self) -> usize {
        self.stranded.len()
    }

    /// Whether none is pending.
    pub(crate) fn is_none_pending(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether the message at `field` of the inbox starts the workflow `id`.
    pub(crate) fn is_pending(&self, id: Sequence, field: &[u8]) -> bool {
        self.pending.get(&id).is_some_and(|own| **own == *field)
    }

    /// The stranded workflow of that id.
    pub(crate) fn stranded_record(&mut self, id: Sequence) -> Option<&mut WorkflowRecord> {
        self.stranded.get_mut(&id)
    }

    /// A workflow's code is not deployed. Says whether that is news: many of one kind come in a row.
    pub(crate) fn strand(&mut self, id: Sequence, record: WorkflowRecord) -> bool {
        let names = |record: &WorkflowRecord| (record.app.clone(), record.service.clone(), record.handler.clone());
        let is_news = self.stranded.last_key_value().is_none_or(|(_, last)| names(last) != names(&record));
        self.stranded.insert(id, record);
        is_news
    }
}

/// What a workflow will be, as far as its message says.
fn record_of(message: MessageRecord) -> WorkflowRecord {
    WorkflowRecord {
        has_ended: false,
        is_cancelled: false,
        began: UnixMillis(0),
        version: 0,
        app: message.app,
        service: message.service,
        handler: message.handler,
        key: message.key,
        input: message.input,
    }
}

/// What a workflow runs in: its own version where that is loaded, otherwise the one served now; none while its own is kept and
/// could not be loaded, as it may be the next time.
pub(crate) fn code_of(record: &WorkflowRecord, world: &World<'_>) -> Option<HandlerId> {
    let WorkflowRecord { version, app, service, handler, .. } = record;
    let own = world.catalog.find_version(app, *version, service, handler);
    if own.is_none() && world.catalog.is_missing(app, *version) {
        return None;
    }
    own.or_else(|| world.catalog.find(app, service, handler).ok())
}

/// What a stranded workflow waits for, for people.
pub(crate) fn stranded_for(record: &WorkflowRecord) -> String {
    format!("the deployment of {}/{}/{}", record.app, record.service, record.handler)
}

impl Shard {
    /// The app versions of workflows that no loaded program runs; `None` while it is not known which these are.
    pub fn versions_waited_for(&self) -> Option<BTreeSet<(Name, u64)>> {
        let of = |record: &WorkflowRecord| Some((Name::new(&record.app).ok()?, record.version));
        self.workflows.has_taken_up_all().then(|| self.waiting.stranded.values().filter_map(of).collect())
    }

    /// Takes over what an earlier run of the shard left.
    pub(crate) fn recover_pending(&mut self) -> Result<(), StoreError> {
        let rows = self.store.scan_fields(&self.bookkeeping.pending, b"", None, usize::MAX)?;
        let decode = |(id, value): (Box<[u8]>, Value)| Sequence::decode(&id).map(|id| (id, Box::from(value.content())));
        self.waiting.pending = rows.into_iter().filter_map(decode).collect();
        Ok(())
    }

    /// Workflows that have yet to begin.
    #[must_use]
    pub fn pending_workflows(&self) -> usize {
        self.waiting.pending()
    }

    /// The message that starts the workflow `id` is put into the inbox at `field`.
    pub(crate) fn add_pending(&mut self, id: Sequence, field: &[u8], writes: &mut Vec<Write>) {
        self.waiting.pending.insert(id, field.into());
        let value = Some(Value::new(ValueKind::Bytes, field));
        writes.push(Write { entity: self.bookkeeping.pending.clone(), field: id.encode()[..].into(), value });
    }

    /// That an invocation has no outcome yet.
    pub(crate) fn pending_outcome_write(&mut self, id: Sequence, app: &str, service: &str) -> Write {
        let fingerprint = service_fingerprint(app, service);
        let outcome = Outcome { expires: UnixMillis(0), fingerprint, result: OutcomeResult::Pending };
        self.outcome_write(invocation_field(id), &outcome)
    }

    /// The message at `field` leaves the inbox: if it starts a workflow, that is pending no more.
    pub(crate) fn end_pending(&mut self, id: Sequence, field: &[u8], writes: &mut Vec<Write>) {
        if self.waiting.is_pending(id, field) {
            self.waiting.pending.remove(&id);
            let entity = self.bookkeeping.pending.clone();
            writes.push(Write { entity, field: id.encode()[..].into(), value: None });
        }
    }

    /// The message that starts a pending workflow.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn pending_message(&mut self, id: Sequence) -> Result<Option<MessageRecord>, Error> {
        let field = self.waiting.pending.get(&id).cloned();
        field.map(|field| self.message(&field)).transpose()
    }

    /// A pending workflow as its record will be, and when it is due.
    ///
    /// # Errors
    /// When its message cannot be read.
    pub(crate) fn pending_record(&mut self, id: Sequence) -> Result<Option<(WorkflowRecord, UnixMillis)>, Error> {
        Ok(self.pending_message(id)?.map(|message| {
            let due = message.due;
            (record_of(message), due)
        }))
    }

    /// Pending workflows after `after`, at most so many.
    pub(crate) fn pending_after(&self, after: Bound<Sequence>, limit: usize) -> Vec<Sequence> {
        let range = self.waiting.pending.range((after, Bound::Unbounded));
        range.take(limit).map(|(id, _)| *id).collect()
    }

    /// Stranded workflows after `after`, at most so many.
    pub(crate) fn stranded_after(&self, after: Bound<Sequence>, limit: usize) -> Vec<(Sequence, WorkflowRecord)> {
        let range = self.waiting.stranded.range((after, Bound::Unbounded));
        range.take(limit).map(|(id, record)| (*id, record.clone())).collect()
    }

    /// A pending workflow is not to begin: there is nothing to compensate.
    ///
    /// # Errors
    /// `read-only`; `overloaded` for one that has become something else than a workflow by a
    /// deployment, and is under way.
    pub(crate) fn cancel_pending(
        &mut self,
        id: Sequence,
        message: MessageRecord,
        world: &mut World<'_>,
    ) -> Result<Lsn, Error> {
        if world.is_read_only {
            return Err(read_only());
        }
        let field = self.waiting.pending.get(&id).cloned().ok_or_else(not_begun)?;
        if !self.inbox.forget(&field) {
            return Err(not_begun());
        }
        let mut writes = Vec::new();
        self.message_done(&field, &mut writes);
        let error = Error::new(ErrorCode::Cancelled, "the workflow was cancelled before it began");
        self.give_up_pending(id, message, error, &mut writes, world);
        Ok(self.append(writes, world))
    }

    /// A workflow that never began is listed among those that have ended. Signals for it go.
    pub(crate) fn give_up_pending(
        &mut self,
        id: Sequence,
        message: MessageRecord,
        error: Error,
        writes: &mut Vec<Write>,
        world: &World<'_>,
    ) {
        self.count_end(Some(&error));
        let fingerprint = service_fingerprint(&message.app, &message.service);
        let expires = world.now.plus(self.options.retention_ms);
        let outcome = Outcome { expires, fingerprint, result: OutcomeResult::Error(error) };
        writes.push(self.outcome_write(invocation_field(id), &outcome));
        let record = WorkflowRecord { has_ended: true, ..record_of(message) };
        writes.push(self.workflow_write(id, &record));
        self.add_signal_deletions(id, writes);
    }

    /// A dead letter goes back to the inbox. If it starts a workflow, that is pending as before.
    pub(crate) fn add_start_again(
        &mut self,
        field: &[u8],
        message: &MessageRecord,
        writes: &mut Vec<Write>,
        world: &World<'_>,
    ) {
        let handler = world.catalog.find(&message.app, &message.service, &message.handler);
        let is_start = handler.is_ok_and(|handler| world.catalog.kind(handler) == HandlerKind::Workflow);
        if is_start && !message.is_signal {
            let id = self.invocation_of(field, message);
            self.add_pending(id, field, writes);
            let ended = self.bookkeeping.ended_workflows.clone();
            writes.push(Write { entity: ended, field: id.encode()[..].into(), value: None });
            writes.push(self.pending_outcome_write(id, &message.app, &message.service));
        }
    }

    /// Takes up stranded workflows whose handlers have been deployed since they were last looked at.
    pub(crate) fn take_up_stranded(&mut self, world: &mut World<'_>) {
        if self.waiting.stranded.is_empty() || world.is_read_only {
            return;
        }
        let deployed: Vec<(Name, Program)> =
            world.catalog.apps().map(|(name, program)| (name.clone(), program)).collect();
        if deployed == self.waiting.looked_at {
            return;
        }
        let has_code = |(_, record): &(&Sequence, &WorkflowRecord)| code_of(record, world).is_some();
        let stranded = self.waiting.stranded.iter();
        let found: Vec<Sequence> = stranded.filter(has_code).take(TAKEN_UP_AT_ONCE).map(|(id, _)| *id).collect();
        if found.len() < TAKEN_UP_AT_ONCE {
            self.waiting.looked_at = deployed;
        }
        for id in found {
            if let Some(record) = self.waiting.stranded.remove(&id) {
                self.take_up(id, record, world);
            }
        }
    }
}
