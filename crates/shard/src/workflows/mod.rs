//! What a shard does for its workflows: runs them, does what they ask for, journals what comes of
//! it, and takes them up again after a start.
//!
//! The result of an operation becomes a row of the journal before the code sees it: of a call in
//! the very entry that commits it, or, where another shard commits it alone, in the entry that
//! follows; of anything else in an entry of its own. The code goes on before that entry is
//! durable, because whatever it does next comes later in the same log. What does not waits: a
//! fetch, and a call to another shard, unless all that is not durable yet would come out the same
//! if it were lost.
//!
//! `workflow.rs` is one workflow by itself, `host.rs` the world as its code sees it. `turns.rs` runs the code, or
//! `exchanges.rs` does where a worker runs it. `operations.rs` does what the code asks for. `calls.rs` keeps track of
//! its calls, `signalled.rs` of its signals, and `awaiting.rs` of other workflows that it waits for. `failing.rs` tries again
//! what failed, `restart.rs` begins anew. `stranded.rs` holds workflows whose code is not deployed.

mod awaiting;
mod calls;
mod exchanges;
mod failing;
mod host;
mod lists;
mod operations;
mod restart;
mod signalled;
mod stranded;
#[cfg(test)]
mod tests;
mod turns;
mod workflow;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use millrace_base::{Error, ErrorCode, Lsn, Name, UnixMillis, limits};
use millrace_format::{InvocationResult, MessageRecord, ResultState, WorkflowRecord, WorkflowRun, Write};
use millrace_func::{HandlerId, Program};

use crate::bookkeeping::{Bookkeeping, invocation_of};
use crate::context::{Context, Rows};
use crate::request::{InvocationId, Sequence};
use crate::results::invocation_field;
use crate::world::World;
pub(crate) use calls::CommittedCall;
use stranded::{Stranded, code_of};
use workflow::{Open, Work, Workflow};

/// The operation of timers that make a workflow go on, whatever it waits for.
const AGAIN: u32 = 0;

/// Tried again while the disk is full, or cannot be read.
const RETRY_MS: u64 = 1_000;

/// What workflows are handed: the shard's rows and bookkeeping, and the world.
pub(crate) struct WorkflowContext<'a, 'w> {
    pub rows: &'a mut Rows,
    pub books: &'a mut Bookkeeping,
    pub world: &'a mut World<'w>,
}

impl WorkflowContext<'_, '_> {
    /// The context of the parts below.
    pub(crate) fn context(&mut self) -> Context<'_> {
        self.rows.context(self.world)
    }

    fn append(&mut self, writes: Vec<Write>) -> Lsn {
        self.context().append(writes)
    }

    fn message_failed(&mut self, field: &[u8], error: Error) {
        self.books.message_failed(field, error, self.rows, self.world);
    }

    fn invocation(&self, id: Sequence) -> InvocationId {
        InvocationId { shard: self.rows.shard(), sequence: id }
    }
}

/// The workflows of a shard.
#[derive(Default)]
pub(crate) struct Workflows {
    live: BTreeMap<Sequence, Workflow>,
    runnable: VecDeque<Sequence>,
    /// When sleeps and waits end and retries are due, by operation.
    timers: BTreeSet<(UnixMillis, Sequence, u32)>,
    /// Fetches and calls to other shards that wait until what they follow from is durable.
    waiting: BTreeSet<(Lsn, Sequence, u32)>,
    /// Calls that are to be made now: the shard asks for them by [`Workflows::next_call`].
    calls: VecDeque<(Sequence, u32)>,
    /// How many calls of each are transactions that have not ended. A workflow may have ended before its calls.
    calls_under_way: BTreeMap<Sequence, u32>,
    by_nonce: BTreeMap<u64, Sequence>,
    stranded: Stranded,
    /// How many have their code in memory.
    awake: usize,
    /// After a start: the last one taken up, or that all have been.
    taken_up: Option<Sequence>,
    has_taken_up_all: bool,
    /// Nothing could go on when it was last tried: the disk was full.
    is_paused: bool,
}

/// How a workflow stands.
enum Standing {
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
    /// When one can go on next.
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
    pub(crate) fn need(&self, program: Program) -> bool {
        if !self.has_taken_up_all {
            return true;
        }
        let calls = |open: &Open| matches!(&open.work, Work::Call(call) if call.handler.program == program);
        self.live.values().any(|workflow| workflow.handler.program == program || workflow.open.values().any(calls))
    }

    /// Workflows that have begun and not ended.
    pub(crate) fn count(&self) -> usize {
        self.live.len() + self.stranded.len()
    }

    /// What those in memory wait for, one line each, for people.
    pub(crate) fn waits_for(&self) -> Vec<String> {
        self.live.values().map(|workflow| format!("{}: {}", workflow.id, workflow.waits_for().join(", "))).collect()
    }

    /// The app versions of workflows that no loaded program runs; `None` while it is not known which these are.
    pub(crate) fn versions_waited_for(&self) -> Option<BTreeSet<(Name, u64)>> {
        self.has_taken_up_all.then(|| self.stranded.versions())
    }

    /// A message starts a workflow: its row takes the place of the message's.
    pub(crate) fn begin(&mut self, field: &[u8], message: MessageRecord, context: &mut WorkflowContext<'_, '_>) {
        let handler = match context.world.catalog.find(&message.app, &message.service, &message.handler) {
            Ok(handler) => handler,
            Err(error) => return context.message_failed(field, error),
        };
        let id = invocation_of(field, &message);
        let version = context.world.catalog.program(handler.program).map_or(0, |loaded| loaded.version);
        let kept = context.books.results.get(&invocation_field(id), context.rows);
        let has_result = matches!(kept, Ok(Some(InvocationResult { result: ResultState::Pending, .. })));
        let mut writes = Vec::with_capacity(3);
        context.books.message_done(field, &message, &mut writes);
        let record = WorkflowRecord {
            has_ended: false,
            is_cancelled: false,
            began: context.world.now,
            // Another workflow may have had the id before, and what was kept for that one may still be there.
            runs: message.chosen_id.iter().map(|_| first_run(context.world.now)).collect(),
            chosen_id: message.chosen_id,
            version,
            app: message.app,
            service: message.service,
            handler: message.handler,
            key: message.key,
            input: message.input,
        };
        writes.push(context.books.journals.record_write(id, &record));
        if !has_result {
            writes.push(context.books.results.keep_pending(id, &record.app, &record.service));
        }
        let lsn = context.append(writes);
        let mut workflow = new_workflow(id, record, handler, context);
        workflow.journalled(lsn, false);
        self.live.insert(id, workflow);
        self.runnable.push_back(id);
    }

    /// Runs what timers and results have made runnable, and after a start takes up more. Ends early when there is a call
    /// to be made. Says whether there is. `budget` is how many may go on in one input: a workflow that is
    /// always given its next result at once would keep the core for ever.
    pub(crate) fn run(&mut self, budget: &mut usize, context: &mut WorkflowContext<'_, '_>) -> bool {
        self.is_paused = context.world.is_read_only;
        if context.world.is_read_only || context.world.is_behind {
            return false;
        }
        if !self.has_taken_up_all {
            self.take_up_more(context);
        }
        self.tell_awaited(context);
        while *budget > 0
            && !context.world.is_input_large()
            && let Some(id) = self.runnable.pop_front()
        {
            *budget -= 1;
            self.advance(id, context);
            if !self.calls.is_empty() {
                return true;
            }
        }
        while *budget > 0
            && let Some((due, id, operation)) = self.timers.first().copied()
            && due <= context.world.now
        {
            *budget -= 1;
            self.timers.pop_first();
            self.timer_ended(id, operation, context);
            if !self.calls.is_empty() {
                return true;
            }
        }
        false
    }

    /// Takes up workflows that an earlier run of the shard left.
    fn take_up_more(&mut self, context: &mut WorkflowContext<'_, '_>) {
        let limit = limits::WORKFLOWS_PER_INPUT;
        let Ok(found) = context.books.journals.live_after(self.taken_up, limit, context.rows) else {
            return; // What cannot be read now is read by the next input.
        };
        self.has_taken_up_all = found.len() < limit;
        for (id, record) in found {
            self.taken_up = id.or(self.taken_up);
            let (Some(id), Some(record)) = (id, record) else {
                tracing::error!(shard = context.rows.shard().0, "a workflow's row cannot be read and is left alone");
                continue;
            };
            if !self.live.contains_key(&id) {
                self.take_up(id, record, context);
            }
        }
    }

    fn take_up(&mut self, id: Sequence, record: WorkflowRecord, context: &mut WorkflowContext<'_, '_>) {
        let Some(handler) = code_of(&record, context.world) else {
            return self.stranded.add(id, record);
        };
        let mut workflow = new_workflow(id, record, handler, context);
        (workflow.is_rewound, workflow.may_have_called) = (false, true);
        self.recall_failures(&mut workflow, context);
        self.live.insert(id, workflow);
        self.runnable.push_back(id);
    }

    /// Takes up workflows whose handlers have been deployed since they were last looked at.
    pub(crate) fn take_up_stranded(&mut self, context: &mut WorkflowContext<'_, '_>) {
        if context.world.is_read_only {
            return; // Looked at again when there is space.
        }
        for (id, record) in self.stranded.deployed(context.world) {
            self.take_up(id, record, context);
        }
    }

    /// How a workflow stands.
    ///
    /// # Errors
    /// When its rows cannot be read.
    fn standing(&mut self, id: Sequence, context: &mut WorkflowContext<'_, '_>) -> Result<Standing, Error> {
        let WorkflowContext { rows, books, .. } = context;
        if self.live.contains_key(&id) {
            return Ok(Standing::Live);
        }
        if let Some(record) = books.journals.live(id, rows)? {
            return Ok(Standing::Stored(record));
        }
        if let Some(message) = books.start_message(id, rows)? {
            return Ok(Standing::Pending(Box::new(message)));
        }
        Ok(match books.results.get(&invocation_field(id), rows)? {
            None => Standing::Unknown,
            Some(InvocationResult { result: ResultState::Pending, .. }) => Standing::Called,
            Some(_) => Standing::Ended,
        })
    }

    /// The shard has stopped: every activation of a workflow is dropped, and nothing is left to do.
    pub(crate) fn stop(&mut self, world: &mut World<'_>) {
        for (_, mut workflow) in std::mem::take(self).live {
            if let Some(activation) = workflow.activation.take() {
                world.engine.cancel(activation);
                world.activations.give_back(activation);
            }
        }
        self.has_taken_up_all = true;
    }
}

fn new_workflow(
    id: Sequence,
    record: WorkflowRecord,
    handler: HandlerId,
    context: &WorkflowContext<'_, '_>,
) -> Workflow {
    Workflow::new(context.invocation(id), record, handler, context.world.limits(handler.program))
}

fn first_run(now: UnixMillis) -> WorkflowRun {
    WorkflowRun { first_operation: 0, number: now.0 }
}

fn unknown_workflow() -> Error {
    Error::new(ErrorCode::UnknownInvocation, "no such workflow, or its outcome expired")
}
