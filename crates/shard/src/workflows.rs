//! What a shard does for its workflows: runs them, does what they ask for, journals what comes of
//! it, and takes them up again after a start.
//!
//! The result of an operation becomes a row of the journal before the code sees it: of a call in
//! the very entry that commits it, or, where another shard commits it alone, in the entry that
//! follows; of anything else in an entry of its own. The code goes on before that entry is
//! durable, because whatever it does next comes later in the same log. What does not waits: a
//! fetch, and a call to another shard, unless all that is not durable yet would come out the same
//! if it were lost. `steps.rs` makes the calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, Lsn, UnixMillis, Value, ValueKind, limits};
use millrace_format::{JournalRow, MessageRecord, Outcome, OutcomeResult, StepKind, WorkflowRecord, Write};
use millrace_func::{Engine, OperationId, Output, Start, Step};

use crate::commit::decode_failed;
use crate::host::store_failed;
use crate::outcomes::{invocation_field, service_fingerprint};
use crate::outgoing::Outgoing;
use crate::request::{InvocationId, OffloadTicket, Sequence};
use crate::retry::retry_wait_ms;
use crate::shard::Shard;
use crate::waiting::{Waiting, code_of};
use crate::workflow::{JOURNAL_ROWS, Open, Work, Workflow, WorkflowHost, diverged, step_of, target_name};
use crate::world::World;

/// The operation of timers that make a workflow go on, whatever it waits for.
const AGAIN: u32 = 0;

/// Tried again while the disk is full, or cannot be read.
const RETRY_MS: u64 = 1_000;

/// What a shard knows of its workflows.
#[derive(Default)]
pub(crate) struct Workflows {
    pub(crate) live: BTreeMap<Sequence, Workflow>,
    pub(crate) runnable: VecDeque<Sequence>,
    /// When sleeps and waits end and retries are due, by operation.
    pub(crate) timers: BTreeSet<(UnixMillis, Sequence, u32)>,
    /// Fetches and calls to other shards that wait until what they follow from is durable.
    pub(crate) waiting: BTreeSet<(Lsn, Sequence, u32)>,
    by_nonce: BTreeMap<u64, Sequence>,
    /// How many have their code in memory.
    awake: usize,
    /// After a start: the last one taken up, or that all have been.
    taken_up: Option<Sequence>,
    has_taken_up_all: bool,
    /// Nothing could go on when it was last tried: the disk was full.
    is_paused: bool,
}

/// How a workflow stands.
pub(crate) enum Standing {
    /// It has not ended, and is in memory.
    Live,
    /// It has not ended, and is not in memory (yet, or for want of its app).
    Stored(WorkflowRecord),
    /// It has yet to begin: this message starts it.
    Pending(Box<MessageRecord>),
    /// It is a call that was sent, and has not ended.
    Called,
    Ended,
    Unknown,
}

impl Workflows {
    pub(crate) fn next_due(&self) -> Option<UnixMillis> {
        if self.is_paused {
            return None;
        }
        if !self.has_taken_up_all || !self.runnable.is_empty() {
            return Some(UnixMillis(0));
        }
        self.timers.first().map(|(due, _, _)| *due)
    }

    /// Whether something of `program` is under way, or may be: of workflows that are yet to be taken up it is not known.
    pub(crate) fn need(&self, program: millrace_func::Program) -> bool {
        if !self.has_taken_up_all {
            return true;
        }
        let calls = |open: &Open| matches!(&open.work, Work::Call(call) if call.handler.program == program);
        self.live.values().any(|workflow| workflow.handler.program == program || workflow.open.values().any(calls))
    }

    pub(crate) fn has_taken_up_all(&self) -> bool {
        self.has_taken_up_all
    }

    /// Workflows that have not ended.
    pub(crate) fn count(&self) -> usize {
        self.live.len()
    }
}

pub(crate) fn journal_field(id: Sequence, number: u32) -> Vec<u8> {
    [&id.encode()[..], &number.to_be_bytes()].concat()
}

impl Shard {
    /// A message starts a workflow: its row takes the place of the message's.
    pub(crate) fn begin_workflow(&mut self, field: &[u8], message: MessageRecord, world: &mut World<'_>) {
        let handler = match world.catalog.find(&message.app, &message.service, &message.handler) {
            Ok(handler) => handler,
            Err(error) => return self.message_failed(field, error, world),
        };
        let id = self.invocation_of(field, &message);
        let version = world.catalog.program(handler.program).map_or(0, |loaded| loaded.version);
        let kept = self.outcome(&invocation_field(id));
        let has_outcome = matches!(kept, Ok(Some(Outcome { result: OutcomeResult::Pending, .. })));
        let record = WorkflowRecord {
            has_ended: false,
            is_cancelled: false,
            began: world.now,
            version,
            app: message.app,
            service: message.service,
            handler: message.handler,
            key: message.key,
            input: message.input,
        };
        let mut writes = Vec::with_capacity(3);
        self.message_done(field, &mut writes);
        writes.push(self.workflow_write(id, &record));
        if !has_outcome {
            writes.push(self.pending_outcome_write(id, &record.app, &record.service));
        }
        let lsn = self.append(writes, world);
        let limits = world.limits(handler.program);
        let name = InvocationId { shard: self.options.shard, sequence: id };
        let mut workflow = Workflow::new(name, record, handler, limits);
        workflow.noted(lsn, false);
        self.workflows.live.insert(id, workflow);
        self.workflows.runnable.push_back(id);
    }

    /// The id of what a message starts.
    pub(crate) fn invocation_of(&self, field: &[u8], message: &MessageRecord) -> Sequence {
        let own = message.invocation.map(|(_, lsn, index)| Sequence { lsn, index });
        own.or_else(|| Sequence::decode(field.get(8..)?)).unwrap_or_default()
    }

    pub(crate) fn workflow_write(&self, id: Sequence, record: &WorkflowRecord) -> Write {
        let entity =
            if record.has_ended { &self.bookkeeping.ended_workflows } else { &self.bookkeeping.workflows }.clone();
        let value = Some(Value::new(ValueKind::Bytes, &record.encode()));
        Write { entity, field: id.encode()[..].into(), value }
    }

    /// Runs what timers and results have made runnable, and after a start takes up more. Says
    /// whether it did anything. `budget` is how many may go on in one input: a workflow that is
    /// always given its next result at once would keep the core for ever.
    pub(crate) fn run_workflows(&mut self, budget: &mut usize, world: &mut World<'_>) -> bool {
        self.workflows.is_paused = world.is_read_only;
        if world.is_read_only || world.is_behind {
            return false;
        }
        if !self.workflows.has_taken_up_all {
            self.take_up_workflows(world);
        }
        let had = *budget;
        while *budget > 0
            && !world.is_input_large()
            && let Some(id) = self.workflows.runnable.pop_front()
        {
            *budget -= 1;
            self.advance_workflow(id, world);
        }
        while *budget > 0
            && let Some((due, id, operation)) = self.workflows.timers.first().copied()
            && due <= world.now
        {
            *budget -= 1;
            self.workflows.timers.pop_first();
            self.timer_ended(id, operation, world);
        }
        *budget < had
    }

    /// Takes up workflows that an earlier run of the shard left.
    fn take_up_workflows(&mut self, world: &mut World<'_>) {
        let after = self.workflows.taken_up.map(Sequence::encode);
        let after = after.as_ref().map(|bytes| &bytes[..]);
        let rows = self.store.scan_fields(&self.bookkeeping.workflows, b"", after, limits::WORKFLOWS_PER_INPUT);
        let Ok(rows) = rows else {
            return; // Tried again by the next input.
        };
        self.workflows.has_taken_up_all = rows.len() < limits::WORKFLOWS_PER_INPUT;
        for (field, value) in rows {
            let id = Sequence::decode(&field);
            self.workflows.taken_up = id.or(self.workflows.taken_up);
            let (Some(id), Ok(record)) = (id, WorkflowRecord::decode(value.content())) else {
                tracing::error!(shard = self.options.shard.0, "a workflow's row cannot be read and is left alone");
                continue;
            };
            if !self.workflows.live.contains_key(&id) {
                self.take_up(id, record, world);
            }
        }
    }

    pub(crate) fn take_up(&mut self, id: Sequence, record: WorkflowRecord, world: &mut World<'_>) {
        let Some(handler) = code_of(&record, world) else {
            let (app, service, handler) = (record.app.clone(), record.service.clone(), record.handler.clone());
            if self.waiting.strand(id, record) {
                tracing::warn!(app, service, handler, "workflows wait for their app to be deployed");
            }
            return;
        };
        let limits = world.limits(handler.program);
        let name = InvocationId { shard: self.options.shard, sequence: id };
        let mut workflow = Workflow::new(name, record, handler, limits);
        (workflow.is_rewound, workflow.may_have_called) = (false, true);
        self.workflows.live.insert(id, workflow);
        self.workflows.runnable.push_back(id);
    }

    /// How a workflow stands.
    ///
    /// # Errors
    /// When its rows cannot be read.
    pub(crate) fn standing(&mut self, id: Sequence) -> Result<Standing, Error> {
        if self.workflows.live.contains_key(&id) {
            return Ok(Standing::Live);
        }
        let row = self.store.get(&self.bookkeeping.workflows, &id.encode()).map_err(|error| store_failed(&error))?;
        if let Some(value) = row {
            return WorkflowRecord::decode(value.content())
                .map(Standing::Stored)
                .map_err(|error| decode_failed(&error));
        }
        if let Some(message) = self.pending_message(id)? {
            return Ok(Standing::Pending(Box::new(message)));
        }
        Ok(match self.outcome(&invocation_field(id))? {
            None => Standing::Unknown,
            Some(Outcome { result: OutcomeResult::Pending, .. }) => Standing::Called,
            Some(_) => Standing::Ended,
        })
    }

    /// All rows of a workflow's journal.
    pub(crate) fn journal(&mut self, id: Sequence) -> Result<Vec<JournalRow>, Error> {
        let rows = self.store.scan_fields(&self.bookkeeping.journal, &id.encode(), None, JOURNAL_ROWS);
        let rows = rows.map_err(|error| store_failed(&error))?;
        let decode = |(_, value): (Box<[u8]>, Value)| JournalRow::decode(value.content());
        rows.into_iter().map(decode).collect::<Result<_, _>>().map_err(|error| decode_failed(&error))
    }

    /// Lets a workflow's code run for as long as there are rows to give it.
    fn advance_workflow(&mut self, id: Sequence, world: &mut World<'_>) {
        let Some(mut workflow) = self.workflows.live.remove(&id) else {
            return;
        };
        if workflow.is_asleep && !self.wake_workflow(&mut workflow, world) {
            self.workflows.timers.insert((world.now.plus(RETRY_MS), id, AGAIN));
            self.workflows.live.insert(id, workflow);
            return;
        }
        for _ in 0..limits::WORKFLOW_TURNS {
            self.settle_turn(&mut workflow, world);
            let Some(row) = workflow.rows.pop_front() else {
                break;
            };
            workflow.passes(&row);
            self.give_row(&mut workflow, row, world);
            if world.is_input_large() {
                break;
            }
        }
        self.settle_turn(&mut workflow, world);
        if workflow.is_over() {
            return self.end_workflow(workflow, world);
        }
        if !workflow.rows.is_empty() {
            self.workflows.runnable.push_back(id);
        }
        if workflow.frame.is_some() && workflow.is_idle() && self.workflows.awake > limits::WORKFLOWS_AWAKE {
            self.put_to_sleep(&mut workflow, world);
        }
        if workflow.is_to_be_cancelled() {
            self.workflows.live.insert(id, workflow);
            return self.note_cancel(id, world);
        }
        workflow.may_have_called &= !workflow.rows.is_empty();
        let fresh = std::mem::take(&mut workflow.fresh);
        self.workflows.live.insert(id, workflow);
        for operation in fresh {
            self.start_operation(id, operation, world);
        }
    }

    /// Begins its code, over its journal. Says whether it could.
    fn wake_workflow(&mut self, workflow: &mut Workflow, world: &mut World<'_>) -> bool {
        if !workflow.is_rewound {
            match self.journal(workflow.id.sequence) {
                Ok(rows) => workflow.rewind(rows),
                Err(error) => {
                    tracing::error!(%error, invocation = %workflow.id, "a workflow's journal cannot be read");
                    return false;
                }
            }
        }
        workflow.is_asleep = false;
        workflow.nonce = world.take_nonce();
        self.workflows.by_nonce.insert(workflow.nonce, workflow.id.sequence);
        self.workflows.awake += 1;
        let frame = world.frames.take();
        workflow.frame = Some(frame);
        let (key, input) = (workflow.record.key.clone(), workflow.record.input.clone());
        let start = Start::Handler { id: workflow.handler, key: &key, input: &input };
        self.workflow_turn(workflow, world, |engine, host| engine.start(frame, start, host));
        true
    }

    /// Its code leaves memory; it comes back when there is something for it.
    fn put_to_sleep(&mut self, workflow: &mut Workflow, world: &mut World<'_>) {
        self.drop_workflow_frame(workflow, world);
        (workflow.is_asleep, workflow.is_rewound) = (true, false);
    }

    fn drop_workflow_frame(&mut self, workflow: &mut Workflow, world: &mut World<'_>) {
        if let Some(frame) = workflow.frame.take() {
            world.engine.cancel(frame);
            self.workflows.by_nonce.remove(&workflow.nonce);
            self.forget_frame(frame, world);
        }
    }

    /// What a workflow whose code has ended waits for outside still finds it.
    fn forget_frame(&mut self, frame: millrace_func::Frame, world: &mut World<'_>) {
        world.frames.give_back(frame);
        self.workflows.awake -= 1;
    }

    fn workflow_turn(
        &mut self,
        workflow: &mut Workflow,
        world: &mut World<'_>,
        run: impl FnOnce(&dyn Engine, &mut WorkflowHost<'_, '_>) -> Step,
    ) {
        let engine = world.engine;
        let shard_count = self.options.shard_count;
        workflow.begin_turn();
        let step = run(engine, &mut WorkflowHost { workflow, world, shard_count });
        workflow.end_turn();
        let diverged = workflow.diverged.take();
        let Step::Done(result) = step else {
            return diverged.into_iter().for_each(|error| self.diverges(workflow, error, world));
        };
        if let Some(frame) = workflow.frame.take() {
            self.forget_frame(frame, world);
        }
        if let Some(error) = diverged {
            return self.diverges(workflow, error, world);
        }
        let result = result.and_then(|output| match output {
            Output::Value(json) => Ok(json),
            Output::Response(_) => Err(Error::new(ErrorCode::Internal, "a workflow answered as a route")),
        });
        // Calls and fetches that it has begun are made all the same, also when it has thrown: whether they
        // were could not be told after a crash, and what compensates them must come after them.
        self.clear_open(workflow, |open| matches!(open.work, Work::Call(_) | Work::Fetch(_)));
        self.begin_ending(workflow, result, world);
    }

    /// Forgets what it asked for, but for what is kept.
    fn clear_open(&mut self, workflow: &mut Workflow, keeps: impl Fn(&Open) -> bool) {
        let id = workflow.id.sequence;
        let timers = &mut self.workflows.timers;
        workflow.open.retain(|operation, open| {
            let is_kept = keeps(open);
            if let (false, Work::Sleep(until) | Work::Wait(Some(until))) = (is_kept, &open.work) {
                timers.remove(&(*until, id, *operation));
            }
            is_kept
        });
        let open = &workflow.open;
        workflow.fresh.retain(|operation| open.contains_key(operation));
    }

    /// Its code has ended: what it has done stays, or is compensated, the last first.
    fn begin_ending(&mut self, workflow: &mut Workflow, result: Result<Bytes, Error>, world: &World<'_>) {
        if result.is_ok() {
            workflow.compensations.clear();
        }
        workflow.ending = Some(result);
        self.next_compensation(workflow, world);
    }

    fn next_compensation(&mut self, workflow: &mut Workflow, world: &World<'_>) {
        if !workflow.open.is_empty() {
            return;
        }
        if let Some(call) = workflow.compensations.pop() {
            let name = target_name(call.handler, &call.key, world);
            workflow.ask_compensation(name, call);
        }
    }

    /// Journals what the last turn did: ended steps, messages.
    fn settle_turn(&mut self, workflow: &mut Workflow, world: &mut World<'_>) {
        let (mut writes, mut records, mut size_bytes) = (Vec::new(), Vec::new(), 0);
        for (operation, name, outgoing) in std::mem::take(&mut workflow.outgoing) {
            let kind = if let Outgoing::Signal { .. } = outgoing { StepKind::Signal } else { StepKind::Send };
            let record = outgoing.record(&workflow.record.app, self.options.shard_count, world);
            size_bytes += record.as_ref().map_or(0, |record| record.input.len());
            let ended = world.now;
            let row = JournalRow { kind, operation, ended, name, result: Ok(Bytes::from_static(b"null")) };
            writes.push(self.row_write(workflow, &row));
            records.extend(record);
            self.note_part(workflow, &mut size_bytes, &mut writes, &mut records, world);
        }
        for (operation, result) in std::mem::take(&mut workflow.ended_steps) {
            let name = workflow.open.get(&operation).map(|open| open.name.clone()).unwrap_or_default();
            size_bytes += result.as_ref().map_or(0, Bytes::len);
            let row = JournalRow { kind: StepKind::Step, operation, ended: world.now, name, result };
            writes.push(self.row_write(workflow, &row));
            workflow.rows.push_back(row);
            self.note_part(workflow, &mut size_bytes, &mut writes, &mut records, world);
        }
        size_bytes = limits::ENTRY_BYTES;
        self.note_part(workflow, &mut size_bytes, &mut writes, &mut records, world);
    }

    /// Makes what a turn did an entry as soon as it is large enough. Each part stands by itself: a
    /// message and the row that says it was sent are never in two.
    fn note_part(
        &mut self,
        workflow: &mut Workflow,
        size_bytes: &mut usize,
        writes: &mut Vec<Write>,
        records: &mut Vec<MessageRecord>,
        world: &mut World<'_>,
    ) {
        if !writes.is_empty() && (*size_bytes >= limits::ENTRY_BYTES / 4 || writes.len() >= limits::MESSAGES_PER_CALL) {
            self.add_records(std::mem::take(records), writes);
            let lsn = self.append(std::mem::take(writes), world);
            workflow.noted(lsn, false);
            *size_bytes = 0;
        }
    }

    /// The write of a workflow's next row.
    pub(crate) fn row_write(&self, workflow: &mut Workflow, row: &JournalRow) -> Write {
        let field = journal_field(workflow.id.sequence, workflow.row_count).into();
        workflow.row_count += 1;
        let value = Some(Value::new(ValueKind::Bytes, &row.encode()));
        Write { entity: self.bookkeeping.journal.clone(), field, value }
    }

    fn give_row(&mut self, workflow: &mut Workflow, row: JournalRow, world: &mut World<'_>) {
        if row.kind == StepKind::Cancel {
            self.drop_workflow_frame(workflow, world);
            self.clear_open(workflow, |_| false);
            let error = Error::new(ErrorCode::Cancelled, "the workflow was cancelled");
            return self.begin_ending(workflow, Err(error), world);
        }
        let is_compensation = row.kind == StepKind::Compensation && workflow.ending.is_some();
        if is_compensation && !workflow.open.contains_key(&row.operation) {
            // It was noted when fetches were not waited for.
            self.clear_open(workflow, |open| !matches!(open.work, Work::Fetch(_)));
            self.next_compensation(workflow, world);
        }
        let Some(open) = workflow.open.remove(&row.operation) else {
            let is_left = workflow.ending.is_some() && workflow.has_asked(row.operation);
            // What a step's code asks for may change until the step has ended.
            if !is_left && step_of(row.operation).is_none() {
                let error = diverged(&row, "not asked for");
                self.diverges(workflow, error, world);
            }
            return;
        };
        if let Work::Sleep(until) | Work::Wait(Some(until)) = open.work {
            self.workflows.timers.remove(&(until, workflow.id.sequence, row.operation));
        }
        workflow.fresh.retain(|operation| *operation != row.operation);
        if open.kind != row.kind || open.name != row.name {
            let error = diverged(&row, &format!("{} {:?}", open.kind.as_str(), open.name));
            return self.diverges(workflow, error, world);
        }
        if workflow.may_have_called && row.result.is_ok() {
            // Whether the other shard has heard of it is not known after a start.
            if let Work::Call(call) = &open.work {
                self.give_up_kept(workflow.id.sequence, row.operation, &call.key, Lsn::ZERO, world);
            }
        }
        if workflow.ending.is_some() {
            let has_failed = row.kind == StepKind::Compensation && row.result.is_err();
            workflow.failed_compensations += u32::from(has_failed);
            return self.next_compensation(workflow, world);
        }
        let Some(frame) = workflow.frame else {
            return;
        };
        let operation = OperationId(row.operation);
        self.workflow_turn(workflow, world, |engine, host| engine.resume(frame, operation, row.result, host));
    }

    /// What its code would compensate is as doubtful as the rest of it: it only ends.
    fn diverges(&mut self, workflow: &mut Workflow, error: Error, world: &mut World<'_>) {
        self.drop_workflow_frame(workflow, world);
        self.clear_open(workflow, |_| false);
        workflow.outgoing.clear();
        workflow.ended_steps.clear();
        workflow.rows.clear();
        workflow.compensations.clear();
        workflow.ending = Some(Err(error));
    }

    /// Starts what a workflow has asked for.
    fn start_operation(&mut self, id: Sequence, operation: u32, world: &mut World<'_>) {
        let Some(workflow) = self.workflows.live.get_mut(&id) else {
            return;
        };
        let is_known = workflow.rows.iter().any(|row| row.operation == operation);
        let (durable, journal_lsn, must_be_durable) = (self.durable, workflow.journal_lsn, workflow.must_be_durable);
        let Some(open) = workflow.open.get(&operation).filter(|_| !is_known) else {
            return;
        };
        match &open.work {
            Work::Call(call) => {
                let call = call.clone();
                self.start_call(id, operation, call, must_be_durable, world);
            }
            Work::Sleep(until) => {
                self.workflows.timers.insert((*until, id, operation));
            }
            Work::Wait(until) => {
                let until = *until;
                if let Some(until) = until {
                    self.workflows.timers.insert((until, id, operation));
                }
                self.take_signal(id, operation, world);
            }
            Work::Fetch(_) => {
                if journal_lsn > durable {
                    self.workflows.waiting.insert((journal_lsn, id, operation));
                } else {
                    self.start_fetch(id, operation, world);
                }
            }
            Work::Hash(work) => {
                let work = work.clone();
                let ticket = self.workflow_ticket(id, operation);
                world.outputs.offload(ticket, work);
            }
            Work::Step | Work::Known => {}
        }
    }

    fn workflow_ticket(&self, id: Sequence, operation: u32) -> OffloadTicket {
        let workflow = self.workflows.live.get(&id);
        OffloadTicket {
            shard: Some(self.options.shard),
            nonce: workflow.map_or(0, |workflow| workflow.nonce),
            frame: workflow.and_then(|workflow| workflow.frame).unwrap_or(millrace_func::Frame(u32::MAX)),
            instance: workflow.map_or(0, |workflow| workflow.nonce),
            operation: OperationId(operation),
        }
    }

    /// Begins what waited for its reasons to be durable.
    pub(crate) fn start_waiting(&mut self, world: &mut World<'_>) {
        while let Some((lsn, id, operation)) = self.workflows.waiting.first().copied()
            && lsn <= self.durable
        {
            self.workflows.waiting.pop_first();
            self.start_operation(id, operation, world);
        }
    }

    fn start_fetch(&mut self, id: Sequence, operation: u32, world: &mut World<'_>) {
        let open = self.workflows.live.get(&id).and_then(|workflow| workflow.open.get(&operation));
        if let Some(Open { work: Work::Fetch(request), .. }) = open {
            let mut request = request.clone();
            add_idempotency_key(&mut request.headers, self.options.shard, id, operation);
            let ticket = self.workflow_ticket(id, operation);
            world.outputs.fetch(ticket, request);
        }
    }

    /// Work outside that a workflow waits for has ended. Says whether it was a workflow's.
    pub(crate) fn workflow_work_ended(
        &mut self,
        ticket: &OffloadTicket,
        result: Result<Bytes, Error>,
        world: &mut World<'_>,
    ) -> bool {
        let Some(id) = self.workflows.by_nonce.get(&ticket.nonce).copied() else {
            return false;
        };
        let operation = ticket.operation.0;
        let attempts = self.workflows.live.get_mut(&id).and_then(|workflow| {
            let open = workflow.open.get_mut(&operation)?;
            open.attempts += 1;
            let retries = if let Work::Fetch(request) = &open.work { request.retries } else { 0 };
            let may_retry = matches!(&result, Err(error) if error.code == ErrorCode::FetchFailed);
            (may_retry && open.attempts <= retries).then_some(open.attempts)
        });
        match attempts {
            Some(attempts) => {
                let retry = world.now.plus(retry_wait_ms(attempts));
                self.workflows.timers.insert((retry, id, operation));
            }
            None => self.operation_ended(id, operation, result, Vec::new(), world),
        }
        true
    }

    /// A sleep or a wait has lasted long enough, or something is to be tried again.
    fn timer_ended(&mut self, id: Sequence, operation: u32, world: &mut World<'_>) {
        let Some(workflow) = self.workflows.live.get(&id) else {
            return;
        };
        match workflow.open.get(&operation).map(|open| (&open.work, &open.name)) {
            Some((Work::Sleep(until), _)) if *until <= world.now => {
                self.operation_ended(id, operation, Ok(Bytes::from_static(b"null")), Vec::new(), world);
            }
            Some((Work::Wait(Some(until)), name)) if *until <= world.now => {
                let error = Error::new(ErrorCode::WaitLimit, format!("no signal {name:?} came in time"));
                self.operation_ended(id, operation, Err(error), Vec::new(), world);
            }
            Some((Work::Call(_) | Work::Fetch(_) | Work::Hash(_), _)) => self.start_operation(id, operation, world),
            // One that sleeps is not woken by what it does not wait for any more.
            _ if operation == AGAIN || !workflow.is_asleep => self.workflows.runnable.push_back(id),
            _ => {}
        }
    }

    /// An operation has given something: journals it, with `beside` in the same entry.
    pub(crate) fn operation_ended(
        &mut self,
        id: Sequence,
        operation: u32,
        result: Result<Bytes, Error>,
        beside: Vec<Write>,
        world: &mut World<'_>,
    ) {
        if world.is_read_only {
            let retry = world.now.plus(RETRY_MS);
            self.workflows.timers.insert((retry, id, operation));
            return;
        }
        let Some(mut workflow) = self.workflows.live.remove(&id) else {
            return;
        };
        let is_given = workflow.rows.iter().any(|row| row.operation == operation);
        if let Some(open) = workflow.open.get(&operation).filter(|_| !is_given) {
            let row = JournalRow { kind: open.kind, operation, ended: world.now, name: open.name.clone(), result };
            let mut writes = beside;
            writes.push(self.row_write(&mut workflow, &row));
            let lsn = self.append(writes, world);
            workflow.noted(lsn, false);
            self.row_made(&mut workflow, row);
        }
        self.workflows.live.insert(id, workflow);
    }

    /// A row has been journalled: the code is given it when its turn comes.
    pub(crate) fn row_made(&mut self, workflow: &mut Workflow, row: JournalRow) {
        if workflow.is_asleep {
            // It is read again with the whole journal.
            workflow.open.remove(&row.operation);
        } else {
            workflow.rows.push_back(row);
        }
        self.workflows.runnable.push_back(workflow.id.sequence);
    }

    fn note_cancel(&mut self, id: Sequence, world: &mut World<'_>) {
        let Some(mut workflow) = self.workflows.live.remove(&id) else {
            return;
        };
        let is_noted = workflow.rows.iter().any(|row| row.kind == StepKind::Cancel);
        if !world.is_read_only && !is_noted {
            let row = JournalRow {
                kind: StepKind::Cancel,
                operation: 0,
                ended: world.now,
                name: String::new(),
                result: Ok(Bytes::from_static(b"null")),
            };
            let write = self.row_write(&mut workflow, &row);
            let lsn = self.append(vec![write], world);
            workflow.noted(lsn, false);
            self.row_made(&mut workflow, row);
        }
        self.workflows.live.insert(id, workflow);
    }

    /// Somebody wants a workflow cancelled; the entry after which that is certain.
    ///
    /// # Errors
    /// `unknown-invocation`; `read-only`.
    pub(crate) fn want_cancelled(&mut self, id: Sequence, world: &mut World<'_>) -> Result<Lsn, Error> {
        let mut record = match self.standing(id)? {
            Standing::Stored(record) => record,
            Standing::Live => match self.workflows.live.get(&id) {
                Some(workflow) => workflow.record.clone(),
                None => return Err(unknown_workflow()),
            },
            Standing::Pending(message) => return self.cancel_pending(id, *message, world),
            Standing::Called => return Err(not_begun()),
            // That it has ended may not be durable yet.
            Standing::Ended => return Ok(self.store.entity_lsn(&self.bookkeeping.outcomes)),
            Standing::Unknown => return Err(unknown_workflow()),
        };
        if record.is_cancelled {
            return Ok(self.store.lsn());
        }
        if world.is_read_only {
            return Err(crate::commit::read_only());
        }
        record.is_cancelled = true;
        let write = self.workflow_write(id, &record);
        let lsn = self.append(vec![write], world);
        if let Some(workflow) = self.workflows.live.get_mut(&id) {
            workflow.record = record;
            self.workflows.runnable.push_back(id);
        } else if let Some(stranded) = self.waiting.stranded_record(id) {
            *stranded = record;
        }
        Ok(lsn)
    }

    /// A workflow has ended, compensated as far as it could be.
    fn end_workflow(&mut self, mut workflow: Workflow, world: &mut World<'_>) {
        let id = workflow.id.sequence;
        self.workflows.by_nonce.remove(&workflow.nonce);
        let result = match workflow.ending.take() {
            Some(Ok(output)) => OutcomeResult::Value(output),
            Some(Err(mut error)) => {
                if workflow.failed_compensations > 0 {
                    let failed = workflow.failed_compensations;
                    error.message = format!(
                        "{} ({failed} of its compensations failed: see its journal and the dead letters)",
                        error.message
                    );
                }
                OutcomeResult::Error(error)
            }
            None => return,
        };
        self.tell_of_end(id, &workflow.record, &result, world);
        let fingerprint = service_fingerprint(&workflow.record.app, &workflow.record.service);
        let expires = world.now.plus(self.options.retention_ms);
        workflow.record.has_ended = true;
        let mut writes = vec![
            Write { entity: self.bookkeeping.workflows.clone(), field: id.encode()[..].into(), value: None },
            self.workflow_write(id, &workflow.record),
            self.outcome_write(invocation_field(id), &Outcome { expires, fingerprint, result }),
        ];
        self.add_signal_deletions(id, &mut writes);
        self.append(writes, world);
    }

    /// Every frame of a workflow is dropped: the shard has stopped.
    pub(crate) fn stop_workflows(&mut self, world: &mut World<'_>) {
        for (_, mut workflow) in std::mem::take(&mut self.workflows).live {
            if let Some(frame) = workflow.frame.take() {
                world.engine.cancel(frame);
                world.frames.give_back(frame);
            }
        }
        self.workflows.has_taken_up_all = true;
        self.waiting = Waiting::default();
    }
}

pub(crate) fn unknown_workflow() -> Error {
    Error::new(ErrorCode::UnknownInvocation, "no such workflow, or its outcome expired")
}

/// Nothing of it is there to be changed yet.
pub(crate) fn not_begun() -> Error {
    Error::new(ErrorCode::Overloaded, "this invocation has not begun yet: try again")
}

/// A server outside can tell a repeated request by this key, if it knows the header.
fn add_idempotency_key(
    headers: &mut Vec<(String, String)>,
    shard: millrace_base::ShardId,
    id: Sequence,
    operation: u32,
) {
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("idempotency-key")) {
        let value = format!("{}-{operation}", InvocationId { shard, sequence: id });
        headers.push(("idempotency-key".to_owned(), value));
    }
}
