//! What a shard does for its workflows: runs them, does what they ask for, journals what comes of
//! it, and takes them up again after a start.
//!
//! The result of an operation becomes a row of the journal before the code sees it: of a call in
//! the very entry that commits it, or, where another shard commits it alone, in the entry that
//! follows; of anything else in an entry of its own. The code goes on before that entry is
//! durable, because whatever it does next comes later in the same log; only what leaves the node
//! (a fetch) waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, Lsn, TransactionId, UnixMillis, Value, ValueKind, limits, shard_of_key};
use millrace_format::{JournalRow, MessageRecord, Outcome, OutcomeResult, StepKind, WorkflowRecord, Write};
use millrace_func::{Engine, NestedCall, OperationId, Output, Start, Step};

use crate::commit::decode_failed;
use crate::held::Leaving;
use crate::host::store_failed;
use crate::outcomes::{invocation_field, service_fingerprint};
use crate::outgoing::Outgoing;
use crate::peer::{PeerBody, PeerMessage};
use crate::request::{InvocationId, OffloadTicket, Origin, RequestInfo, Sequence, Token};
use crate::retry::retry_wait_ms;
use crate::shard::Shard;
use crate::transaction::{Parent, PendingCall, Role, Transaction};
use crate::workflow::{Open, Work, Workflow, WorkflowHost, diverged, target_name};
use crate::world::World;

/// Tried again while the disk is full.
const FULL_DISK_RETRY_MS: u64 = 1_000;

/// What a shard knows of its workflows.
#[derive(Default)]
pub(crate) struct Workflows {
    pub(crate) live: BTreeMap<Sequence, Workflow>,
    runnable: VecDeque<Sequence>,
    /// When sleeps and waits end and retries are due, by operation.
    timers: BTreeSet<(UnixMillis, Sequence, u32)>,
    /// Fetches that wait until what they follow from is durable.
    fetches: VecDeque<(Lsn, Sequence, u32)>,
    by_nonce: BTreeMap<u64, Sequence>,
    /// How many have their code in memory.
    awake: usize,
    /// After a start: the last one taken up, or that all have been.
    taken_up: Option<Sequence>,
    has_taken_up_all: bool,
}

impl Workflows {
    pub(crate) fn next_due(&self) -> Option<UnixMillis> {
        if !self.has_taken_up_all || !self.runnable.is_empty() {
            return Some(UnixMillis(0));
        }
        self.timers.first().map(|(due, _, _)| *due)
    }

    /// Whether something of `program` is under way.
    pub(crate) fn need(&self, program: millrace_func::Program) -> bool {
        self.live.values().any(|workflow| workflow.handler.program == program)
    }

    /// Workflows that have not ended.
    pub(crate) fn count(&self) -> usize {
        self.live.len()
    }
}

/// Errors after which a call is made again instead of being the workflow's.
fn is_passing(code: ErrorCode) -> bool {
    code.is_retryable() || code == ErrorCode::WaitLimit
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
        let fingerprint = service_fingerprint(&message.app, &message.service);
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
        if !message.keeps_outcome {
            let pending = Outcome { expires: UnixMillis(0), fingerprint, result: OutcomeResult::Pending };
            writes.push(self.outcome_write(&invocation_field(id), &pending));
        }
        self.append(writes, world);
        let limits = world.limits(handler.program);
        let name = InvocationId { shard: self.options.shard, sequence: id };
        self.workflows.live.insert(id, Workflow::new(name, record, handler, limits));
        self.workflows.runnable.push_back(id);
    }

    /// The id of what a message starts.
    pub(crate) fn invocation_of(&self, field: &[u8], message: &MessageRecord) -> Sequence {
        let own = message.invocation.map(|(_, lsn, index)| Sequence { lsn, index });
        own.or_else(|| Sequence::decode(field.get(8..)?)).unwrap_or_default()
    }

    fn workflow_write(&self, id: Sequence, record: &WorkflowRecord) -> Write {
        let entity =
            if record.has_ended { &self.bookkeeping.ended_workflows } else { &self.bookkeeping.workflows }.clone();
        let value = Some(Value::new(ValueKind::Bytes, &record.encode()));
        Write { entity, field: id.encode()[..].into(), value }
    }

    /// Runs what timers and results have made runnable, and after a start takes up more. Says
    /// whether it did anything.
    pub(crate) fn run_workflows(&mut self, world: &mut World<'_>) -> bool {
        if world.is_read_only {
            return false;
        }
        if !self.workflows.has_taken_up_all {
            self.take_up_workflows(world);
        }
        let mut has_run = false;
        while let Some((due, id, operation)) = self.workflows.timers.first().copied() {
            if due > world.now {
                break;
            }
            self.workflows.timers.pop_first();
            self.timer_ended(id, operation, world);
            has_run = true;
        }
        for _ in 0..self.workflows.runnable.len() {
            if let Some(id) = self.workflows.runnable.pop_front() {
                self.advance_workflow(id, world);
                has_run = true;
            }
        }
        has_run
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
            let (Some(id), Ok(record)) = (Sequence::decode(&field), WorkflowRecord::decode(value.content())) else {
                tracing::error!(shard = self.options.shard.0, "a workflow's row cannot be read and is left alone");
                continue;
            };
            self.workflows.taken_up = Some(id);
            if !self.workflows.live.contains_key(&id) {
                self.take_up(id, record, world);
            }
        }
    }

    fn take_up(&mut self, id: Sequence, record: WorkflowRecord, world: &mut World<'_>) {
        let WorkflowRecord { version, app, service, handler, .. } = &record;
        let found = world.catalog.find_version(app, *version, service, handler);
        let handler = match found.or_else(|| world.catalog.find(app, service, handler).ok()) {
            Some(handler) => handler,
            None => {
                // Without its app it stays where it is, until a start finds the app again.
                tracing::warn!(app, service, handler, "a workflow waits for its app to be deployed");
                return;
            }
        };
        let limits = world.limits(handler.program);
        let name = InvocationId { shard: self.options.shard, sequence: id };
        let mut workflow = Workflow::new(name, record, handler, limits);
        match self.journal(id) {
            Ok(rows) => workflow.rewind(rows),
            Err(error) => {
                tracing::error!(%error, invocation = %name, "a workflow's journal cannot be read");
                return;
            }
        }
        self.workflows.live.insert(id, workflow);
        self.workflows.runnable.push_back(id);
    }

    /// All rows of a workflow's journal.
    pub(crate) fn journal(&mut self, id: Sequence) -> Result<Vec<JournalRow>, Error> {
        let limit = 2 * limits::WORKFLOW_OPERATIONS as usize;
        let rows = self.store.scan_fields(&self.bookkeeping.journal, &id.encode(), None, limit);
        let rows = rows.map_err(|error| store_failed(&error))?;
        let decode = |(_, value): (Box<[u8]>, Value)| JournalRow::decode(value.content());
        rows.into_iter().map(decode).collect::<Result<_, _>>().map_err(|error| decode_failed(&error))
    }

    /// Lets a workflow's code run for as long as there are rows to give it.
    fn advance_workflow(&mut self, id: Sequence, world: &mut World<'_>) {
        let Some(mut workflow) = self.workflows.live.remove(&id) else {
            return;
        };
        if workflow.is_asleep && workflow.ending.is_none() {
            self.wake_workflow(&mut workflow, world);
        }
        while self.settle_turn(&mut workflow, world) {
            let Some(row) = workflow.rows.pop_front() else {
                break;
            };
            workflow.passes(&row);
            self.give_row(&mut workflow, row, world);
        }
        let has_ended = workflow.ending.is_some() && workflow.open.is_empty() && workflow.rows.is_empty();
        if has_ended && workflow.compensations.is_empty() {
            return self.end_workflow(workflow, world);
        }
        if workflow.frame.is_some() && workflow.is_idle() && self.workflows.awake > limits::WORKFLOWS_AWAKE {
            self.put_to_sleep(&mut workflow, world);
        }
        let fresh = std::mem::take(&mut workflow.fresh);
        let wants_cancel = workflow.record.is_cancelled && workflow.ending.is_none() && !workflow.has_open_call();
        self.workflows.live.insert(id, workflow);
        for operation in fresh {
            self.start_operation(id, operation, world);
        }
        if wants_cancel {
            self.note_cancel(id, world);
        }
    }

    fn wake_workflow(&mut self, workflow: &mut Workflow, world: &mut World<'_>) {
        workflow.is_asleep = false;
        workflow.nonce = world.take_nonce();
        self.workflows.by_nonce.insert(workflow.nonce, workflow.id.sequence);
        self.workflows.awake += 1;
        let frame = world.frames.take();
        workflow.frame = Some(frame);
        let (key, input) = (workflow.record.key.clone(), workflow.record.input.clone());
        let start = Start::Handler { id: workflow.handler, key: &key, input: &input };
        self.workflow_turn(workflow, world, |engine, host| engine.start(frame, start, host));
    }

    /// Its code leaves memory; it comes back when there is something for it.
    fn put_to_sleep(&mut self, workflow: &mut Workflow, world: &mut World<'_>) {
        self.drop_workflow_frame(workflow, world);
        workflow.is_asleep = true;
    }

    fn drop_workflow_frame(&mut self, workflow: &mut Workflow, world: &mut World<'_>) {
        if let Some(frame) = workflow.frame.take() {
            world.engine.cancel(frame);
            self.forget_frame(workflow, frame, world);
        }
    }

    fn forget_frame(&mut self, workflow: &Workflow, frame: millrace_func::Frame, world: &mut World<'_>) {
        world.frames.give_back(frame);
        self.workflows.by_nonce.remove(&workflow.nonce);
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
        let step = run(engine, &mut WorkflowHost { workflow, world, shard_count });
        let Step::Done(result) = step else {
            return;
        };
        if let Some(frame) = workflow.frame.take() {
            self.forget_frame(workflow, frame, world);
        }
        let result = result.and_then(|output| match output {
            Output::Value(json) => Ok(json),
            Output::Response(_) => Err(Error::new(ErrorCode::Internal, "a workflow answered as a route")),
        });
        // What it started and did not wait for is nobody's any more.
        workflow.open.clear();
        workflow.fresh.clear();
        self.begin_ending(workflow, result, world);
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
        if let Some(call) = workflow.compensations.pop() {
            let name = target_name(call.handler, &call.key, world);
            // The limit on operations was checked when it was registered.
            let asked = workflow.ask(StepKind::Compensation, name, Work::Call(call));
            debug_assert!(asked.is_ok(), "compensations are within the limit on operations");
        }
    }

    /// Journals what the last turn did: ended steps, messages. Says whether it could.
    fn settle_turn(&mut self, workflow: &mut Workflow, world: &mut World<'_>) -> bool {
        if world.is_read_only && !(workflow.outgoing.is_empty() && workflow.ended_steps.is_empty()) {
            let retry = world.now.plus(FULL_DISK_RETRY_MS);
            self.workflows.timers.insert((retry, workflow.id.sequence, 0));
            return false;
        }
        let mut writes = Vec::new();
        for (operation, name, outgoing) in std::mem::take(&mut workflow.outgoing) {
            let kind = if let Outgoing::Signal { .. } = outgoing { StepKind::Signal } else { StepKind::Send };
            let record = outgoing.record(&workflow.record.app, self.options.shard_count, world);
            let ended = world.now;
            let row = JournalRow { kind, operation, ended, name, result: Ok(Bytes::from_static(b"null")) };
            writes.push(self.row_write(workflow, &row));
            self.add_records(record.into_iter().collect(), &mut writes);
        }
        let mut given = Vec::new();
        for (operation, result) in std::mem::take(&mut workflow.ended_steps) {
            let name = workflow.open.get(&operation).map(|open| open.name.clone()).unwrap_or_default();
            let row = JournalRow { kind: StepKind::Step, operation, ended: world.now, name, result };
            writes.push(self.row_write(workflow, &row));
            given.push(row);
        }
        if !writes.is_empty() {
            workflow.journal_lsn = self.append(writes, world);
            workflow.rows.extend(given);
        }
        true
    }

    /// The write of a workflow's next row.
    fn row_write(&self, workflow: &mut Workflow, row: &JournalRow) -> Write {
        let field = journal_field(workflow.id.sequence, workflow.row_count).into();
        workflow.row_count += 1;
        let value = Some(Value::new(ValueKind::Bytes, &row.encode()));
        Write { entity: self.bookkeeping.journal.clone(), field, value }
    }

    fn give_row(&mut self, workflow: &mut Workflow, row: JournalRow, world: &mut World<'_>) {
        if row.kind == StepKind::Cancel {
            self.drop_workflow_frame(workflow, world);
            workflow.open.clear();
            workflow.fresh.clear();
            let error = Error::new(ErrorCode::Cancelled, "the workflow was cancelled");
            return self.begin_ending(workflow, Err(error), world);
        }
        let Some(open) = workflow.open.remove(&row.operation) else {
            if workflow.ending.is_none() {
                let error = diverged(&row, "not asked for");
                self.diverges(workflow, error, world);
            }
            return;
        };
        workflow.fresh.retain(|operation| *operation != row.operation);
        if open.kind != row.kind || open.name != row.name {
            let error = diverged(&row, &format!("{} {:?}", open.kind.as_str(), open.name));
            return self.diverges(workflow, error, world);
        }
        if row.kind == StepKind::Compensation {
            workflow.failed_compensations += u32::from(row.result.is_err());
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
        workflow.open.clear();
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
        let Some(open) = workflow.open.get(&operation).filter(|_| !is_known) else {
            return;
        };
        match &open.work {
            Work::Call(call) => {
                let call = call.clone();
                self.start_step(id, operation, call, world);
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
                self.workflows.fetches.push_back((workflow.journal_lsn, id, operation));
                self.start_fetches(world);
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

    /// Sends the requests whose reasons are durable.
    pub(crate) fn start_fetches(&mut self, world: &mut World<'_>) {
        while let Some((lsn, id, operation)) = self.workflows.fetches.front().copied() {
            if lsn > self.durable {
                return;
            }
            self.workflows.fetches.pop_front();
            let open = self.workflows.live.get(&id).and_then(|workflow| workflow.open.get(&operation));
            if let Some(Open { work: Work::Fetch(request), .. }) = open {
                let mut request = request.clone();
                add_idempotency_key(&mut request.headers, self.options.shard, id, operation);
                let ticket = self.workflow_ticket(id, operation);
                world.outputs.fetch(ticket, request);
            }
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
            _ => self.workflows.runnable.push_back(id),
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
            let retry = world.now.plus(FULL_DISK_RETRY_MS);
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
            workflow.journal_lsn = self.append(writes, world);
            self.row_made(&mut workflow, row);
        }
        self.workflows.live.insert(id, workflow);
    }

    /// A row has been journalled: the code is given it when its turn comes.
    fn row_made(&mut self, workflow: &mut Workflow, row: JournalRow) {
        if workflow.is_asleep {
            match self.journal(workflow.id.sequence) {
                Ok(rows) => workflow.rewind(rows),
                Err(error) => {
                    tracing::error!(%error, invocation = %workflow.id, "a workflow's journal cannot be read");
                    return;
                }
            }
        } else {
            workflow.rows.push_back(row);
        }
        self.workflows.runnable.push_back(workflow.id.sequence);
    }

    /// Makes a workflow's call, as a transaction of its own.
    fn start_step(&mut self, workflow: Sequence, operation: u32, call: NestedCall, world: &mut World<'_>) {
        let info =
            RequestInfo { token: Token(u64::MAX), time: world.now, nonce: world.take_nonce(), idempotency_key: None };
        // The workflow's own code is as old as it is; what it calls is what everybody calls.
        let mut call = call;
        if let Some((app, service, handler)) = world.catalog.names(call.handler)
            && let Ok(current) = world.catalog.find(app.as_str(), service.as_str(), handler.as_str())
        {
            call.handler = current;
        }
        let to = shard_of_key(&call.key, self.options.shard_count);
        let entity = world.catalog.entity(call.handler, &call.key);
        let kind = world.catalog.kind(call.handler);
        let origin = Origin::Step { workflow, operation, call, info };
        if to != self.options.shard {
            return self.run_step_away(origin, Role::Alone, world);
        }
        match entity {
            Some(entity) if self.parks(&origin, &entity, kind, world) => {}
            Some(entity) => self.run_root(origin, (entity, kind), Vec::new(), Role::Alone, world),
            None => {
                let error = Error::new(ErrorCode::UnknownHandler, "the callee's app version is gone");
                self.fail_origin(origin, error, world);
            }
        }
    }

    /// Makes a workflow's call to another shard.
    pub(crate) fn run_step_away(&mut self, origin: Origin, role: Role, world: &mut World<'_>) {
        let Origin::Step { call, .. } = &origin else {
            return;
        };
        let (call, program) = (call.clone(), call.handler.program);
        let to = shard_of_key(&call.key, self.options.shard_count);
        let mut transaction = Transaction::new(origin, program, world.limits(program));
        transaction.takes_locks = true;
        transaction.role = role;
        let pending = PendingCall { parent: Parent::Nobody, owner: None, depth: 0, call };
        self.call_away(&mut transaction, to, pending, world);
        self.drive(transaction, world);
    }

    /// Adds the row of a workflow's call that is being committed to the commit's own entry.
    pub(crate) fn add_step(
        &mut self,
        transaction: &Transaction,
        output: &Output,
        writes: &mut Vec<Write>,
        world: &World<'_>,
    ) -> Option<JournalRow> {
        let Origin::Step { workflow: id, operation, .. } = &transaction.origin else {
            return None;
        };
        let mut workflow = self.workflows.live.remove(id)?;
        let result = Ok(if let Output::Value(json) = output { json.clone() } else { Bytes::new() });
        let open = workflow.open.get(operation).map(|open| (open.kind, open.name.clone()));
        let row = open.map(|(kind, name)| JournalRow { kind, operation: *operation, ended: world.now, name, result });
        writes.extend(row.as_ref().map(|row| self.row_write(&mut workflow, row)));
        self.workflows.live.insert(*id, workflow);
        row
    }

    /// The entry with a call's row is made: whoever else keeps the result need not any longer,
    /// once the entry is durable.
    pub(crate) fn step_committed(
        &mut self,
        transaction: &Transaction,
        row: JournalRow,
        lsn: Lsn,
        world: &mut World<'_>,
    ) {
        let Origin::Step { workflow: id, call, .. } = &transaction.origin else {
            return;
        };
        let (own, to) = (self.options.shard, shard_of_key(&call.key, self.options.shard_count));
        if to != own
            && let Some(field) = transaction.origin.once_field(own)
        {
            let about = TransactionId { home: own, incarnation: self.options.incarnation, number: 0 };
            let message = PeerMessage { from: own, transaction: about, body: PeerBody::Forget(field) };
            self.held.release(Leaving::Peer(to, message), lsn, self.durable, world.outputs);
        }
        if let Some(mut workflow) = self.workflows.live.remove(id) {
            workflow.journal_lsn = lsn;
            self.row_made(&mut workflow, row);
            self.workflows.live.insert(*id, workflow);
        }
    }

    /// A workflow's call did not take effect: made again if that may help, or the workflow's.
    pub(crate) fn step_failed(&mut self, id: Sequence, operation: u32, error: Error, world: &mut World<'_>) {
        let attempts = self.workflows.live.get_mut(&id).and_then(|workflow| {
            let open = workflow.open.get_mut(&operation)?;
            open.attempts += 1;
            let is_compensation = open.kind == StepKind::Compensation;
            let goes_on = is_compensation && open.attempts < limits::MESSAGE_ATTEMPTS;
            (is_passing(error.code) || (goes_on && error.code != ErrorCode::Aborted)).then_some(open.attempts)
        });
        match attempts {
            Some(attempts) => {
                let retry = world.now.plus(retry_wait_ms(attempts));
                self.workflows.timers.insert((retry, id, operation));
            }
            None => self.operation_ended(id, operation, Err(error), Vec::new(), world),
        }
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
            workflow.journal_lsn = self.append(vec![write], world);
            self.row_made(&mut workflow, row);
        }
        self.workflows.live.insert(id, workflow);
    }

    /// Somebody wants a workflow cancelled; the entry after which that is certain.
    ///
    /// # Errors
    /// `unknown-invocation`; `read-only`.
    pub(crate) fn want_cancelled(&mut self, id: Sequence, world: &mut World<'_>) -> Result<Lsn, Error> {
        let Some(workflow) = self.workflows.live.get_mut(&id) else {
            return self.outcome(&invocation_field(id)).and_then(|found| {
                found.map(|_| Lsn::ZERO).ok_or_else(|| Error::new(ErrorCode::UnknownInvocation, "no such workflow"))
            });
        };
        if workflow.record.is_cancelled {
            return Ok(self.store.lsn());
        }
        if world.is_read_only {
            return Err(crate::commit::read_only());
        }
        workflow.record.is_cancelled = true;
        let record = workflow.record.clone();
        let write = self.workflow_write(id, &record);
        let lsn = self.append(vec![write], world);
        self.wake_for_cancel(id);
        Ok(lsn)
    }

    fn wake_for_cancel(&mut self, id: Sequence) {
        if let Some(mut workflow) = self.workflows.live.remove(&id) {
            if workflow.is_asleep
                && let Ok(rows) = self.journal(id)
            {
                workflow.rewind(rows);
            }
            self.workflows.live.insert(id, workflow);
        }
        self.workflows.runnable.push_back(id);
    }

    /// A workflow has ended, compensated as far as it could be.
    fn end_workflow(&mut self, mut workflow: Workflow, world: &mut World<'_>) {
        let id = workflow.id.sequence;
        let result = match workflow.ending.take() {
            Some(Ok(output)) => OutcomeResult::Value(output),
            Some(Err(mut error)) => {
                if workflow.failed_compensations > 0 {
                    let failed = workflow.failed_compensations;
                    error.message =
                        format!("{} ({failed} of its compensations failed: see its journal)", error.message);
                }
                OutcomeResult::Error(error)
            }
            None => return,
        };
        let fingerprint = service_fingerprint(&workflow.record.app, &workflow.record.service);
        let expires = world.now.plus(self.options.retention_ms);
        workflow.record.has_ended = true;
        let mut writes = vec![
            Write { entity: self.bookkeeping.workflows.clone(), field: id.encode()[..].into(), value: None },
            self.workflow_write(id, &workflow.record),
            self.outcome_write(&invocation_field(id), &Outcome { expires, fingerprint, result }),
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
    }
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
