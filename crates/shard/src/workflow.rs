//! One workflow: long-running code whose every result is journalled, so that it goes on after a
//! crash, a restart or a deployment as if nothing had been.
//!
//! Its code runs as one frame, outside any transaction. Whatever it awaits is an *operation*; the
//! result of each is first a row of the journal, then given to the code, in the order of the
//! rows. Going on after a restart is therefore the same as going on at all: the code runs from its
//! beginning, asks for the same operations, and is given the same results in the same order.
//!
//! What the code of a step asks for is numbered by itself, below the step: a run that knows the
//! step's result does not run its code, and must count as one that did.
//!
//! This file is the workflow by itself; `workflows.rs` and `steps.rs` do what it asks for.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use millrace_api::RecordOperation;
use millrace_base::{Error, ErrorCode, Lsn, UnixMillis, Value, fingerprint, limits, shard_of_key};
use millrace_format::{JournalRow, StepKind, WorkflowRecord};
use millrace_func::{
    FetchRequest, Frame, HandlerId, HandlerKind, Host, Limits, LogLevel, Message, NestedCall, Offload, OperationId,
    ScanRequest, StepStart,
};

use crate::host::{check_callee, check_input, may_fetch, refused};
use crate::outgoing::{Outgoing, signal_target};
use crate::records::record_call;
use crate::request::{InvocationId, Sequence};
use crate::world::World;

/// What a workflow asked for and has not got.
pub(crate) struct Open {
    pub kind: StepKind,
    pub name: String,
    pub work: Work,
    pub attempts: u32,
    /// Of a call: it may take effect, or may have done so.
    pub is_under_way: bool,
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
    /// Of one that is asleep: `rows` are all of its journal, and its code can begin.
    pub is_rewound: bool,
    /// What it asks for first may have been begun before the shard was started.
    pub may_have_called: bool,
    /// Rows the code has yet to be given, in order.
    pub rows: VecDeque<JournalRow>,
    /// What it has sent, by operation: not to be sent again.
    pub sent: BTreeMap<u32, JournalRow>,
    pub row_count: u32,
    asked: u32,
    /// The step whose code runs.
    scope: Option<u32>,
    inner: BTreeMap<u32, Inner>,
    /// Rows that are yet to be given and that it was given before.
    replayed_left: usize,
    /// Where the code left the path it took before. It may have caught the error.
    pub diverged: Option<Error>,
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
    /// What has to be durable before it may call another shard, which has a log of its own: the
    /// newest entry that, if it were lost, might come out otherwise.
    pub must_be_durable: Lsn,
    /// The newest entry that would come out the same, but at another time.
    time_lsn: Lsn,
    has_seen_time: Cell<bool>,
}

/// What is known of the code of one step.
#[derive(Default)]
struct Inner {
    asked: u32,
    now: UnixMillis,
}

/// Operations of a step's code have this bit, the step's number and their own below it.
const INNER: u32 = 1 << 31;
const INNER_BITS: u32 = 17;

/// Rows of one journal at most: operations, compensations, and what steps asked for.
pub(crate) const JOURNAL_ROWS: usize = 4 * limits::WORKFLOW_OPERATIONS as usize;

/// The step whose code asked for an operation, if it was one's.
pub(crate) fn step_of(operation: u32) -> Option<u32> {
    (operation & INNER != 0).then_some((operation & !INNER) >> INNER_BITS)
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
            is_rewound: true,
            may_have_called: false,
            rows: VecDeque::new(),
            sent: BTreeMap::new(),
            row_count: 0,
            asked: 0,
            scope: None,
            inner: BTreeMap::new(),
            replayed_left: 0,
            diverged: None,
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
            must_be_durable: Lsn::ZERO,
            time_lsn: Lsn::ZERO,
            has_seen_time: Cell::new(false),
        }
    }

    /// Forgets where the code was: it is to run again from its beginning over `rows`.
    pub(crate) fn rewind(&mut self, mut rows: Vec<JournalRow>) {
        self.row_count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let is_step = |row: &&JournalRow| row.kind == StepKind::Step;
        let ended: BTreeSet<u32> = rows.iter().filter(is_step).map(|row| row.operation).collect();
        rows.retain(|row| step_of(row.operation).is_none_or(|step| !ended.contains(&step)));
        let is_sent = |row: &JournalRow| matches!(row.kind, StepKind::Send | StepKind::Signal);
        let (sent, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_sent);
        self.replayed_left = rows.len();
        self.rows = rows.into();
        self.sent = sent.into_iter().map(|row| (row.operation, row)).collect();
        (self.asked, self.random_index, self.now) = (0, 0, self.record.began);
        self.inner.clear();
        self.open.clear();
        self.fresh.clear();
        self.compensations.clear();
        self.failed_compensations = 0;
        self.ending = None;
        self.is_asleep = true;
        self.is_rewound = true;
    }

    /// The next row is being given to it: its time goes on.
    pub(crate) fn passes(&mut self, row: &JournalRow) {
        self.replayed_left = self.replayed_left.saturating_sub(1);
        let now = match step_of(row.operation) {
            // Whether a step's code runs again must make no difference to the others' time.
            Some(step) => &mut self.inner.entry(step).or_default().now,
            None => &mut self.now,
        };
        *now = row.ended.max(*now);
    }

    /// An entry with its newest row has been made. `is_repeatable`: if it were lost, it would be
    /// made again with the same result.
    pub(crate) fn noted(&mut self, lsn: Lsn, is_repeatable: bool) {
        self.journal_lsn = lsn;
        *(if is_repeatable { &mut self.time_lsn } else { &mut self.must_be_durable }) = lsn;
    }

    /// The time its code sees.
    fn time(&self) -> UnixMillis {
        self.has_seen_time.set(true);
        let inner = self.scope.and_then(|step| self.inner.get(&step)).map(|inner| inner.now);
        self.now.max(inner.unwrap_or_default())
    }

    /// A turn of its code begins, with what is the workflow's own.
    pub(crate) fn begin_turn(&mut self) {
        self.scope = None;
    }

    /// A turn has ended: if it looked at the time, then what follows depends on that, too.
    pub(crate) fn end_turn(&mut self) {
        if self.has_seen_time.take() {
            self.must_be_durable = self.must_be_durable.max(self.time_lsn);
        }
    }

    /// The number of the next operation.
    ///
    /// # Errors
    /// `operation-limit`.
    fn next_operation(&self) -> Result<u32, Error> {
        let (asked, rows) = match self.scope {
            None => (self.asked, 0),
            Some(step) => (self.inner.get(&step).map_or(0, |inner| inner.asked), self.row_count),
        };
        if asked >= limits::WORKFLOW_OPERATIONS || rows >= 2 * limits::WORKFLOW_OPERATIONS {
            let message = format!("more than {} operations in one workflow", limits::WORKFLOW_OPERATIONS);
            return Err(Error::new(ErrorCode::OperationLimit, message));
        }
        Ok(self.scope.map_or(asked + 1, |step| INNER | step << INNER_BITS | (asked + 1)))
    }

    fn count_operation(&mut self) {
        match self.scope {
            None => self.asked += 1,
            Some(step) => self.inner.entry(step).or_default().asked += 1,
        }
    }

    /// Asks for an operation.
    ///
    /// # Errors
    /// `operation-limit`.
    fn ask(&mut self, kind: StepKind, name: String, work: Work) -> Result<u32, Error> {
        let operation = self.next_operation()?;
        self.count_operation();
        self.open.insert(operation, Open { kind, name, work, attempts: 0, is_under_way: false });
        self.fresh.push(operation);
        Ok(operation)
    }

    /// Asks for the next compensation. What is to be undone is undone whatever the code has used up.
    pub(crate) fn ask_compensation(&mut self, name: String, call: NestedCall) {
        self.asked += 1;
        let (kind, work) = (StepKind::Compensation, Work::Call(call));
        self.open.insert(self.asked, Open { kind, name, work, attempts: 0, is_under_way: false });
        self.fresh.push(self.asked);
    }

    /// Whether its code has asked for an operation, in this run.
    pub(crate) fn has_asked(&self, operation: u32) -> bool {
        step_of(operation).is_some() || operation <= self.asked
    }

    /// What happened already of the operation that is being asked for, or an error that says where
    /// the code left the path it took before.
    fn known(&mut self, kind: StepKind, name: &str) -> Result<bool, Error> {
        let operation = self.next_operation()?;
        let row = self.rows.iter().find(|row| row.operation == operation && row.kind != StepKind::Cancel);
        match row.or_else(|| self.sent.get(&operation)) {
            None => Ok(false),
            Some(row) if row.kind == kind && row.name == name => Ok(true),
            Some(row) => {
                let error = diverged(row, &format!("{} {name:?}", kind.as_str()));
                self.diverged = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Whether nothing but time or a signal makes it go on.
    pub(crate) fn is_idle(&self) -> bool {
        let waits = |open: &Open| matches!(open.work, Work::Sleep(_) | Work::Wait(_));
        self.ending.is_none() && self.rows.is_empty() && !self.open.is_empty() && self.open.values().all(waits)
    }

    /// Whether it is to be cancelled now: a call that may have taken effect ends first.
    pub(crate) fn is_to_be_cancelled(&self) -> bool {
        let may_be_made = |operation: &u32| {
            self.may_have_called && self.open.get(operation).is_some_and(|open| matches!(open.work, Work::Call(_)))
        };
        self.record.is_cancelled
            && self.ending.is_none()
            && self.rows.is_empty()
            && !self.open.values().any(|open| open.is_under_way)
            && !self.fresh.iter().any(may_be_made)
    }

    /// Whether nothing of it is left to do but to note how it ended.
    pub(crate) fn is_over(&self) -> bool {
        self.ending.is_some() && self.open.is_empty() && self.rows.is_empty() && self.compensations.is_empty()
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
        self.world.entropy.draw_keyed(self.random_key(b"workflow", 0), index)
    }

    fn random_key(&self, what: &[u8], operation: u32) -> u64 {
        let InvocationId { shard, sequence } = self.workflow.id;
        fingerprint(&[what, &shard.0.to_be_bytes(), &sequence.encode(), &operation.to_be_bytes()])
    }

    fn ask(&mut self, kind: StepKind, name: String, work: Work) -> Result<OperationId, Error> {
        self.workflow.known(kind, &name)?;
        self.workflow.ask(kind, name, work).map(OperationId)
    }

    /// An operation that has no result to wait for: done at the end of the turn, once.
    fn ask_outgoing(&mut self, kind: StepKind, name: String, outgoing: Outgoing) -> Result<(), Error> {
        let is_sent = self.workflow.known(kind, &name)?;
        let operation = self.workflow.next_operation()?;
        self.workflow.count_operation();
        if !is_sent {
            self.workflow.outgoing.push((operation, name, outgoing));
        }
        Ok(())
    }

    /// What a step's code does is not seen when its result is known.
    fn only_outside_steps(&self, what: &str) -> Result<(), Error> {
        match self.workflow.scope {
            None => Ok(()),
            Some(_) => Err(refused(&format!("ctx.{what} is for the workflow itself, not for the code of a step"))),
        }
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

    fn keys(&mut self, _: u16, _: &[u8], _: Option<&[u8]>, _: usize) -> Result<Vec<Vec<u8>>, Error> {
        only_through_handlers()
    }

    fn record(&mut self, type_name: &str, id: &[u8], operation: &RecordOperation<'_>) -> Result<OperationId, Error> {
        let key = if operation.is_about_type() { self.workflow.record.key.clone() } else { id.to_vec() };
        let call = record_call(self.workflow.handler.program, type_name, key, operation, self.world)?;
        self.call(call)
    }

    fn call(&mut self, call: NestedCall) -> Result<OperationId, Error> {
        check_callee(&call, &self.workflow.limits, self.world)?;
        let name = target_name(call.handler, &call.key, self.world);
        self.ask(StepKind::Call, name, Work::Call(call))
    }

    fn send(&mut self, message: Message) -> Result<Option<String>, Error> {
        check_input(&message.key, &message.input, &self.workflow.limits)?;
        let name = target_name(message.handler, &message.key, self.world);
        let is_workflow = self.world.catalog.kind(message.handler) == HandlerKind::Workflow;
        let key = self.random_key(b"started", self.workflow.next_operation()?);
        let bits = [0, 1].map(|index| self.world.entropy.draw_keyed(key, index));
        let sequence = is_workflow.then(|| Sequence::drawn(bits));
        let shard = shard_of_key(&message.key, self.shard_count);
        self.ask_outgoing(StepKind::Send, name, Outgoing::Message(message, sequence))?;
        Ok(sequence.map(|sequence| InvocationId { shard, sequence }.to_string()))
    }

    fn signal(&mut self, invocation: &str, name: &str, payload: Bytes) -> Result<(), Error> {
        let to = signal_target(invocation, self.shard_count)?;
        check_input(name.as_bytes(), &payload, &self.workflow.limits)?;
        let signal = Outgoing::Signal { to, name: name.to_owned(), payload };
        self.ask_outgoing(StepKind::Signal, name.to_owned(), signal)
    }

    fn offload(&mut self, work: Offload) -> Result<OperationId, Error> {
        self.ask(StepKind::Hash, String::new(), Work::Hash(work))
    }

    fn fetch(&mut self, request: FetchRequest) -> Result<OperationId, Error> {
        may_fetch(self.workflow.handler.program, &request, self.world)?;
        let name = format!("{} {}", request.method, request.url);
        self.ask(StepKind::Fetch, name, Work::Fetch(request))
    }

    fn sleep(&mut self, delay_ms: u64) -> Result<OperationId, Error> {
        let until = self.workflow.time().plus(delay_ms);
        self.ask(StepKind::Sleep, format!("{delay_ms} ms"), Work::Sleep(until))
    }

    fn wait(&mut self, name: &str, timeout_ms: Option<u64>) -> Result<OperationId, Error> {
        let until = timeout_ms.map(|timeout_ms| self.workflow.time().plus(timeout_ms));
        self.ask(StepKind::Wait, name.to_owned(), Work::Wait(until))
    }

    fn begin_step(&mut self, name: &str) -> Result<StepStart, Error> {
        self.only_outside_steps("step")?;
        let is_known = self.workflow.known(StepKind::Step, name)?;
        let work = if is_known { Work::Known } else { Work::Step };
        let operation = OperationId(self.workflow.ask(StepKind::Step, name.to_owned(), work)?);
        Ok(if is_known { StepStart::Known(operation) } else { StepStart::Run(operation) })
    }

    fn end_step(&mut self, operation: OperationId, result: Result<Bytes, Error>) -> Result<(), Error> {
        self.workflow.ended_steps.push((operation.0, result));
        Ok(())
    }

    fn within_step(&mut self, step: Option<OperationId>) {
        self.workflow.scope = step.map(|step| step.0);
    }

    fn compensate(&mut self, call: NestedCall) -> Result<(), Error> {
        self.only_outside_steps("compensate")?;
        check_callee(&call, &self.workflow.limits, self.world)?;
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
        self.workflow.time()
    }

    fn random(&mut self) -> u64 {
        self.draw()
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        // What it logs on a path it has gone before was logged then.
        if self.workflow.replayed_left == 0 {
            let record = &self.workflow.record;
            self.world.outputs.log(&record.app, &record.service, level, line);
        }
    }
}
