//! One workflow: long-running code whose every result is journalled, so that it goes on after a
//! crash, a restart or a deployment as if nothing had been.
//!
//! Its code runs as one frame, outside any transaction. Whatever it awaits is an *operation*; the
//! result of each is first a row of the journal, then given to the code, in the order of the
//! rows. Going on after a restart is therefore the same as going on at all: the code runs from its
//! beginning, asks for the same operations, and is given the same results in the same order.
//!
//! This file is the workflow by itself; `workflows.rs` does what it asks for.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, Lsn, UnixMillis, Value, fingerprint, limits, shard_of_key};
use millrace_format::{JournalRow, StepKind, WorkflowRecord};
use millrace_func::{
    FetchRequest, Frame, HandlerId, HandlerKind, Host, Limits, LogLevel, Message, NestedCall, Offload, OperationId,
    ScanRequest, StepStart,
};

use crate::host::{check_key, refused};
use crate::outgoing::{Outgoing, signal_target};
use crate::request::{InvocationId, Sequence};
use crate::world::World;

/// What a workflow asked for and has not got.
pub(crate) struct Open {
    pub kind: StepKind,
    pub name: String,
    pub work: Work,
    pub attempts: u32,
}

/// What is to be done for an operation.
pub(crate) enum Work {
    Call(NestedCall),
    /// The code does it.
    Step,
    Sleep(UnixMillis),
    Wait(Option<UnixMillis>),
    Fetch(FetchRequest),
    Hash(Offload),
    /// Nothing: its result is journalled already.
    Known,
}

/// One workflow.
pub(crate) struct Workflow {
    pub id: InvocationId,
    pub record: WorkflowRecord,
    pub handler: HandlerId,
    pub limits: Limits,
    /// Names this run of it to whoever works for it outside.
    pub nonce: u64,
    pub frame: Option<Frame>,
    /// Its code is not in memory, or has yet to begin.
    pub is_asleep: bool,
    /// Rows the code has yet to be given, in order.
    pub rows: VecDeque<JournalRow>,
    /// What it has sent, by operation: not to be sent again.
    pub sent: BTreeMap<u32, JournalRow>,
    pub row_count: u32,
    asked: u32,
    pub open: BTreeMap<u32, Open>,
    /// Operations asked for since they were last looked at.
    pub fresh: Vec<u32>,
    pub outgoing: Vec<(u32, String, Outgoing)>,
    pub ended_steps: Vec<(u32, Result<Bytes, Error>)>,
    /// Its time: when what it knows last ended.
    now: UnixMillis,
    random_index: u32,
    pub compensations: Vec<NestedCall>,
    /// How it ends, once its compensations have run.
    pub ending: Option<Result<Bytes, Error>>,
    pub failed_compensations: u32,
    /// The entry of its newest row.
    pub journal_lsn: Lsn,
}

impl Workflow {
    pub(crate) fn new(id: InvocationId, record: WorkflowRecord, handler: HandlerId, limits: Limits) -> Self {
        let now = record.began;
        Self {
            id,
            record,
            handler,
            limits,
            nonce: 0,
            frame: None,
            is_asleep: true,
            rows: VecDeque::new(),
            sent: BTreeMap::new(),
            row_count: 0,
            asked: 0,
            open: BTreeMap::new(),
            fresh: Vec::new(),
            outgoing: Vec::new(),
            ended_steps: Vec::new(),
            now,
            random_index: 0,
            compensations: Vec::new(),
            ending: None,
            failed_compensations: 0,
            journal_lsn: Lsn::ZERO,
        }
    }

    /// Forgets where the code was: it is to run again from its beginning over `rows`.
    pub(crate) fn rewind(&mut self, rows: Vec<JournalRow>) {
        self.row_count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let is_sent = |row: &JournalRow| matches!(row.kind, StepKind::Send | StepKind::Signal);
        let (sent, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_sent);
        self.rows = rows.into();
        self.sent = sent.into_iter().map(|row| (row.operation, row)).collect();
        (self.asked, self.random_index, self.now) = (0, 0, self.record.began);
        self.open.clear();
        self.fresh.clear();
        self.compensations.clear();
        self.failed_compensations = 0;
        self.ending = None;
        self.is_asleep = true;
    }

    /// The next row is being given to it: its time goes on.
    pub(crate) fn passes(&mut self, row: &JournalRow) {
        self.now = self.now.max(row.ended);
    }

    /// Asks for an operation.
    ///
    /// # Errors
    /// `operation-limit`.
    pub(crate) fn ask(&mut self, kind: StepKind, name: String, work: Work) -> Result<u32, Error> {
        if self.asked >= limits::WORKFLOW_OPERATIONS {
            let message = format!("more than {} operations in one workflow", limits::WORKFLOW_OPERATIONS);
            return Err(Error::new(ErrorCode::OperationLimit, message));
        }
        self.asked += 1;
        self.open.insert(self.asked, Open { kind, name, work, attempts: 0 });
        self.fresh.push(self.asked);
        Ok(self.asked)
    }

    /// What happened already of an operation that is being asked for, or an error that says where
    /// the code left the path it took before.
    fn known(&self, operation: u32, kind: StepKind, name: &str) -> Result<bool, Error> {
        let row = self.rows.iter().find(|row| row.operation == operation && row.kind != StepKind::Cancel);
        match row.or_else(|| self.sent.get(&operation)) {
            None => Ok(false),
            Some(row) if row.kind == kind && row.name == name => Ok(true),
            Some(row) => Err(diverged(row, &format!("{} {name:?}", kind.as_str()))),
        }
    }

    /// Whether nothing but time or a signal makes it go on.
    pub(crate) fn is_idle(&self) -> bool {
        let waits = |open: &Open| matches!(open.work, Work::Sleep(_) | Work::Wait(_));
        self.ending.is_none() && self.rows.is_empty() && !self.open.is_empty() && self.open.values().all(waits)
    }

    /// Whether a call of it is under way.
    pub(crate) fn has_open_call(&self) -> bool {
        self.open.values().any(|open| matches!(open.work, Work::Call(_)))
    }

    /// What it waits for, for people.
    pub(crate) fn waits_for(&self) -> Vec<String> {
        self.open.values().map(|open| format!("{} {}", open.kind.as_str(), open.name)).collect()
    }
}

/// The code asked for something else than when it ran before.
pub(crate) fn diverged(row: &JournalRow, asked: &str) -> Error {
    let message = format!(
        "operation {} of the workflow was {} {:?} when it ran before, and is {asked} now: its code must ask for the \
         same operations in the same order",
        row.operation,
        row.kind.as_str(),
        row.name
    );
    Error::new(ErrorCode::Diverged, message)
}

/// The world as a workflow's code sees it during one turn.
pub(crate) struct WorkflowHost<'a, 'w> {
    pub workflow: &'a mut Workflow,
    pub world: &'a mut World<'w>,
    pub shard_count: u16,
}

fn only_through_handlers<T>() -> Result<T, Error> {
    Err(refused("a workflow changes state through the handlers it calls"))
}

/// Names what a call runs, in journals.
pub(crate) fn target_name(handler: HandlerId, key: &[u8], world: &World<'_>) -> String {
    match world.catalog.names(handler) {
        Some((_, service, handler)) => format!("{service}/{}/{handler}", String::from_utf8_lossy(key)),
        None => String::from_utf8_lossy(key).into_owned(),
    }
}

impl WorkflowHost<'_, '_> {
    /// Random bits that are the same whenever the workflow runs again.
    fn draw(&mut self) -> u64 {
        let index = self.workflow.random_index;
        self.workflow.random_index = index.wrapping_add(1);
        let InvocationId { shard, sequence } = self.workflow.id;
        let key = fingerprint(&[b"workflow", &shard.0.to_be_bytes(), &sequence.encode()]);
        self.world.entropy.draw_keyed(key, index)
    }

    fn ask(&mut self, kind: StepKind, name: String, work: Work) -> Result<OperationId, Error> {
        self.workflow.known(self.workflow.asked + 1, kind, &name)?;
        self.workflow.ask(kind, name, work).map(OperationId)
    }

    /// An operation that has no result to wait for: done at the end of the turn, once.
    fn ask_outgoing(&mut self, kind: StepKind, name: String, outgoing: Outgoing) -> Result<(), Error> {
        let is_sent = self.workflow.known(self.workflow.asked + 1, kind, &name)?;
        let operation = self.workflow.ask(kind, name.clone(), Work::Known)?;
        self.workflow.open.remove(&operation);
        self.workflow.fresh.retain(|fresh| *fresh != operation);
        if !is_sent {
            self.workflow.outgoing.push((operation, name, outgoing));
        }
        Ok(())
    }

    fn check_input(&self, key: &[u8], input: &Bytes) -> Result<(), Error> {
        check_key(key)?;
        if input.len() > self.workflow.limits.input_bytes {
            let message = format!("the input is over {} bytes", self.workflow.limits.input_bytes);
            return Err(Error::new(ErrorCode::SizeLimit, message));
        }
        Ok(())
    }

    fn check_callee(&self, call: &NestedCall) -> Result<(), Error> {
        if self.world.catalog.kind(call.handler) == HandlerKind::Workflow {
            return Err(refused("a workflow is not called but started: use ctx.send"));
        }
        self.check_input(&call.key, &call.input)
    }
}

impl Host for WorkflowHost<'_, '_> {
    fn get(&mut self, _field: &[u8]) -> Result<Option<&Value>, Error> {
        only_through_handlers()
    }

    fn set(&mut self, _field: &[u8], _value: Value) -> Result<(), Error> {
        only_through_handlers()
    }

    fn delete(&mut self, _field: &[u8]) -> Result<bool, Error> {
        only_through_handlers()
    }

    fn scan(&mut self, _request: &ScanRequest) -> Result<Vec<(Vec<u8>, Value)>, Error> {
        only_through_handlers()
    }

    fn call(&mut self, call: NestedCall) -> Result<OperationId, Error> {
        self.check_callee(&call)?;
        let name = target_name(call.handler, &call.key, self.world);
        self.ask(StepKind::Call, name, Work::Call(call))
    }

    fn send(&mut self, message: Message) -> Result<Option<String>, Error> {
        self.check_input(&message.key, &message.input)?;
        let name = target_name(message.handler, &message.key, self.world);
        let is_workflow = self.world.catalog.kind(message.handler) == HandlerKind::Workflow;
        let sequence = is_workflow.then(|| Sequence::drawn([self.draw(), self.draw()]));
        let shard = shard_of_key(&message.key, self.shard_count);
        self.ask_outgoing(StepKind::Send, name, Outgoing::Message(message, sequence))?;
        Ok(sequence.map(|sequence| InvocationId { shard, sequence }.to_string()))
    }

    fn signal(&mut self, invocation: &str, name: &str, payload: Bytes) -> Result<(), Error> {
        let to = signal_target(invocation, self.shard_count)?;
        self.check_input(name.as_bytes(), &payload)?;
        let signal = Outgoing::Signal { to, name: name.to_owned(), payload };
        self.ask_outgoing(StepKind::Signal, name.to_owned(), signal)
    }

    fn offload(&mut self, work: Offload) -> Result<OperationId, Error> {
        self.ask(StepKind::Hash, String::new(), Work::Hash(work))
    }

    fn fetch(&mut self, request: FetchRequest) -> Result<OperationId, Error> {
        may_fetch(self.workflow.handler, &request, self.world)?;
        let name = format!("{} {}", request.method, request.url);
        self.ask(StepKind::Fetch, name, Work::Fetch(request))
    }

    fn sleep(&mut self, delay_ms: u64) -> Result<OperationId, Error> {
        let until = self.workflow.now.plus(delay_ms);
        self.ask(StepKind::Sleep, format!("{delay_ms} ms"), Work::Sleep(until))
    }

    fn wait(&mut self, name: &str, timeout_ms: Option<u64>) -> Result<OperationId, Error> {
        let until = timeout_ms.map(|timeout_ms| self.workflow.now.plus(timeout_ms));
        self.ask(StepKind::Wait, name.to_owned(), Work::Wait(until))
    }

    fn begin_step(&mut self, name: &str) -> Result<StepStart, Error> {
        let is_known = self.workflow.known(self.workflow.asked + 1, StepKind::Step, name)?;
        let work = if is_known { Work::Known } else { Work::Step };
        let operation = OperationId(self.workflow.ask(StepKind::Step, name.to_owned(), work)?);
        Ok(if is_known { StepStart::Known(operation) } else { StepStart::Run(operation) })
    }

    fn end_step(&mut self, operation: OperationId, result: Result<Bytes, Error>) -> Result<(), Error> {
        self.workflow.ended_steps.push((operation.0, result));
        Ok(())
    }

    fn compensate(&mut self, call: NestedCall) -> Result<(), Error> {
        self.check_callee(&call)?;
        if self.workflow.compensations.len() >= limits::WORKFLOW_OPERATIONS as usize {
            return Err(Error::new(ErrorCode::OperationLimit, "too many compensations in one workflow"));
        }
        self.workflow.compensations.push(call);
        Ok(())
    }

    fn invocation(&self) -> Option<String> {
        Some(self.workflow.id.to_string())
    }

    fn now(&self) -> UnixMillis {
        self.workflow.now
    }

    fn random(&mut self) -> u64 {
        self.draw()
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        // What it logs on a path it has gone before was logged then.
        if self.workflow.rows.is_empty() {
            let record = &self.workflow.record;
            self.world.outputs.log(&record.app, &record.service, level, line);
        }
    }
}

/// Whether a handler's app may make a request to the outside.
pub(crate) fn may_fetch(handler: HandlerId, request: &FetchRequest, world: &World<'_>) -> Result<(), Error> {
    match world.catalog.program(handler.program) {
        Some(loaded) => loaded.fetch.allows(&request.url),
        None => Err(Error::new(ErrorCode::FetchRefused, "the app is not loaded any more")),
    }
}
