//! One workflow: long-running code whose every result is journalled, so that it goes on after a
//! crash, a restart or a deployment as if nothing had been.
//!
//! Its code runs as one activation, outside any transaction. Whatever it awaits is an *operation*; the
//! result of each is first a row of the journal, then given to the code, in the order of the
//! rows. Going on after a restart is therefore the same as going on at all: the code runs from its
//! beginning, asks for the same operations, and is given the same results in the same order.
//!
//! What the code of a step asks for is numbered by itself, below the step: a run that knows the
//! step's result does not run its code, and must count as one that did.
//!
//! This file is the workflow by itself.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, Lsn, UnixMillis, limits};
use millrace_format::{FailureRecord, JournalRow, StepKind, WorkflowRecord, Write};
use millrace_func::{ActivationId, FetchRequest, HandlerId, Limits, NestedCall, Offload, RetryOptions};

use super::awaiting::Awaited;
use super::exchanges::OnWorker;
use crate::journals::Journals;
use crate::outgoing::Outgoing;
use crate::request::{InvocationId, OperationOf};
use crate::world::World;

/// What a workflow asked for and has not got.
pub(super) struct Open {
    pub kind: StepKind,
    pub name: String,
    pub work: Work,
    /// How it is tried again, as far as its code says.
    pub retry: Option<RetryOptions>,
    pub attempts: u32,
    /// Of a call: it failed, and is made again then.
    pub retry_at: Option<UnixMillis>,
    /// Of a call: it may take effect, or may have done so.
    pub is_under_way: bool,
}

impl Open {
    fn new(kind: StepKind, name: String, work: Work) -> Self {
        Self { kind, name, work, retry: None, attempts: 0, retry_at: None, is_under_way: false }
    }
}

/// What is to be done for an operation.
pub(super) enum Work {
    Call(NestedCall),
    /// The code does it.
    Step,
    Sleep(UnixMillis),
    Wait(Option<UnixMillis>),
    Result(Awaited),
    Fetch(FetchRequest),
    Hash(Offload),
    /// Nothing: its result is journalled already.
    Known,
}

impl Work {
    /// When it ends if nothing else ends it.
    pub(super) fn until(&self) -> Option<UnixMillis> {
        match self {
            Work::Sleep(until) => Some(*until),
            Work::Wait(until) | Work::Result(Awaited { until, .. }) => *until,
            _ => None,
        }
    }
}

/// One workflow.
pub(super) struct Workflow {
    pub id: InvocationId,
    pub record: WorkflowRecord,
    pub handler: HandlerId,
    pub limits: Limits,
    /// Names this run of it to whoever works for it outside.
    pub nonce: u64,
    pub activation: Option<ActivationId>,
    /// Its code is not in memory, or has yet to begin.
    pub is_asleep: bool,
    /// Of one that is asleep: `rows` are all of its journal, and its code can begin.
    pub is_rewound: bool,
    /// How it stands with the worker that runs its code.
    pub on_worker: OnWorker,
    /// What it asks for first may have been begun before the shard was started.
    pub may_have_called: bool,
    /// Rows the code has yet to be given, in order.
    pub rows: VecDeque<JournalRow>,
    /// What it has sent, by operation: not to be sent again.
    pub sent: BTreeMap<u32, JournalRow>,
    pub row_count: u32,
    asked: u32,
    /// The step whose code runs.
    pub scope: Option<u32>,
    inner: BTreeMap<u32, Inner>,
    /// Rows that are yet to be given and that it was given before.
    pub replayed_left: usize,
    /// Where the code left the path it took before. It may have caught the error.
    pub diverged: Option<Error>,
    pub open: BTreeMap<u32, Open>,
    /// What of it failed and has not ended, by operation.
    pub failures: BTreeMap<u32, FailureRecord>,
    /// How what it asks for next is tried again.
    pub next_retry: Option<RetryOptions>,
    /// Codes of errors that its code was given in this run.
    given_errors: Vec<ErrorCode>,
    /// Operations asked for since they were last looked at.
    pub fresh: Vec<u32>,
    pub outgoing: Vec<(u32, String, Outgoing)>,
    pub ended_steps: Vec<(u32, Result<Bytes, Error>)>,
    /// Its time: when what it knows last ended.
    now: UnixMillis,
    pub random_index: u32,
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

/// The step whose code asked for an operation, if it was one's.
pub(super) fn step_of(operation: u32) -> Option<u32> {
    (operation & INNER != 0).then_some((operation & !INNER) >> INNER_BITS)
}

impl Workflow {
    pub(super) fn new(id: InvocationId, record: WorkflowRecord, handler: HandlerId, limits: Limits) -> Self {
        let now = record.began;
        Self {
            id,
            record,
            handler,
            limits,
            nonce: 0,
            activation: None,
            is_asleep: true,
            is_rewound: true,
            on_worker: OnWorker::default(),
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
            failures: BTreeMap::new(),
            next_retry: None,
            given_errors: Vec::new(),
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
    pub(super) fn rewind(&mut self, rows: Vec<(u32, JournalRow)>) {
        self.row_count = rows.last().map_or(0, |(number, _)| number + 1);
        let mut rows: Vec<JournalRow> = rows.into_iter().map(|(_, row)| row).collect();
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
        self.given_errors.clear();
        self.open.clear();
        self.fresh.clear();
        self.compensations.clear();
        self.failed_compensations = 0;
        self.ending = None;
        self.is_asleep = true;
        self.is_rewound = true;
    }

    /// The next row is being given to it: its time goes on.
    pub(super) fn passes(&mut self, row: &JournalRow) {
        self.replayed_left = self.replayed_left.saturating_sub(1);
        let now = match step_of(row.operation) {
            // Whether a step's code runs again must make no difference to the others' time.
            Some(step) => &mut self.inner.entry(step).or_default().now,
            None => &mut self.now,
        };
        *now = row.ended.max(*now);
        if let Err(error) = &row.result
            && !self.was_given(error.code)
        {
            self.given_errors.push(error.code);
        }
    }

    /// Whether a row has given its code such an error.
    pub(super) fn was_given(&self, code: ErrorCode) -> bool {
        self.given_errors.contains(&code)
    }

    /// An entry with its newest row has been made. `is_repeatable`: if it were lost, it would be
    /// made again with the same result.
    pub(super) fn journalled(&mut self, lsn: Lsn, is_repeatable: bool) {
        self.journal_lsn = lsn;
        *(if is_repeatable { &mut self.time_lsn } else { &mut self.must_be_durable }) = lsn;
    }

    /// The time its code sees.
    pub(super) fn time(&self) -> UnixMillis {
        self.has_seen_time.set(true);
        let inner = self.scope.and_then(|step| self.inner.get(&step)).map(|inner| inner.now);
        self.now.max(inner.unwrap_or_default())
    }

    /// A turn of its code begins, with what is the workflow's own.
    pub(super) fn begin_turn(&mut self) {
        self.scope = None;
        self.next_retry = None;
    }

    /// A turn has ended: if it looked at the time, then what follows depends on that, too.
    pub(super) fn end_turn(&mut self) {
        if self.has_seen_time.take() {
            self.must_be_durable = self.must_be_durable.max(self.time_lsn);
        }
    }

    /// The number of the next operation.
    ///
    /// # Errors
    /// `operation-limit`.
    pub(super) fn next_operation(&self) -> Result<u32, Error> {
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

    pub(super) fn count_operation(&mut self) {
        match self.scope {
            None => self.asked += 1,
            Some(step) => self.inner.entry(step).or_default().asked += 1,
        }
    }

    /// Asks for an operation.
    ///
    /// # Errors
    /// `operation-limit`.
    pub(super) fn ask(&mut self, kind: StepKind, name: String, work: Work) -> Result<u32, Error> {
        let operation = self.next_operation()?;
        self.count_operation();
        let open = Open { retry: self.next_retry.take(), ..Open::new(kind, name, work) };
        self.open.insert(operation, open);
        self.fresh.push(operation);
        Ok(operation)
    }

    /// The run that asks, or asked, for an operation.
    pub(super) fn run_of(&self, operation: u32) -> u64 {
        let operation = step_of(operation).unwrap_or(operation);
        let earlier = self.record.runs.iter().rev().find(|run| run.first_operation <= operation);
        earlier.map_or(0, |run| run.number)
    }

    /// The run that the code is in: that of what it asks for next.
    pub(super) fn upcoming_run(&self) -> u64 {
        self.run_of(self.scope.unwrap_or(self.asked + 1))
    }

    pub(super) fn operation_of(&self, operation: u32) -> OperationOf {
        OperationOf { workflow: self.id.sequence, operation, run: self.run_of(operation) }
    }

    /// Asks for the next compensation. What is to be undone is undone whatever the code has used up.
    pub(super) fn ask_compensation(&mut self, name: String, call: NestedCall) {
        self.asked += 1;
        let (kind, work) = (StepKind::Compensation, Work::Call(call));
        self.open.insert(self.asked, Open::new(kind, name, work));
        self.fresh.push(self.asked);
    }

    /// Whether its code has asked for an operation, in this run.
    pub(super) fn has_asked(&self, operation: u32) -> bool {
        step_of(operation).is_some() || operation <= self.asked
    }

    /// What happened already of the operation that is being asked for, or an error that says where
    /// the code left the path it took before.
    pub(super) fn known(&mut self, kind: StepKind, name: &str) -> Result<bool, Error> {
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

    /// The write of its next row.
    pub(super) fn next_row_write(&mut self, row: &JournalRow, journals: &Journals) -> Write {
        self.row_count += 1;
        journals.row_write(self.id.sequence, self.row_count - 1, row)
    }

    /// Whether nothing but time or a signal makes it go on.
    pub(super) fn is_idle(&self) -> bool {
        let waits = |open: &Open| matches!(open.work, Work::Sleep(_) | Work::Wait(_) | Work::Result(_));
        let may_sleep = self.ending.is_none() && self.rows.is_empty() && !self.is_exchanging();
        may_sleep && !self.open.is_empty() && self.open.values().all(waits)
    }

    /// Whether it is noted that it is cancelled, and what was noted before is yet to be given to its code. What its code
    /// asks for meanwhile is not done any more: it would be done while what it has done is compensated.
    pub(super) fn is_being_cancelled(&self) -> bool {
        self.rows.iter().any(|row| row.kind == StepKind::Cancel)
    }

    /// Whether it is to be cancelled now: a call that may have taken effect ends first.
    pub(super) fn is_to_be_cancelled(&self) -> bool {
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
    pub(super) fn is_over(&self) -> bool {
        self.ending.is_some() && self.open.is_empty() && self.rows.is_empty() && self.compensations.is_empty()
    }

    /// What it waits for, for people.
    pub(super) fn waits_for(&self) -> Vec<String> {
        self.open.values().map(|open| format!("{} {}", open.kind.as_str(), open.name)).collect()
    }
}

/// The code asked for something else than when it ran before.
pub(super) fn diverged(row: &JournalRow, asked: &str) -> Error {
    let message = format!(
        "operation {} of the workflow was {} {:?} when it ran before, and is {asked} now: its code must ask for the \
         same operations in the same order",
        row.operation,
        row.kind.as_str(),
        row.name
    );
    Error::new(ErrorCode::Diverged, message)
}

/// Names what a call runs, in journals.
pub(super) fn target_name(handler: HandlerId, key: &[u8], world: &World<'_>) -> String {
    match world.catalog.names(handler) {
        Some((_, service, handler)) => format!("{service}/{}/{handler}", String::from_utf8_lossy(key)),
        None => String::from_utf8_lossy(key).into_owned(),
    }
}
