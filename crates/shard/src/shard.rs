//! The shard itself: a table of its parts. It takes an input and hands it to the part that it is for.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use bytes::Bytes;
use millrace_api::{Intervention, StateFields};
use millrace_base::{EntityKey, Error, Lsn, Name, ShardId, UnixMillis};
use millrace_format::DeadLetterRecord;
use millrace_func::{Answer, HandlerId, Program};
use millrace_store::{Store, StoreError};

use crate::bookkeeping::Bookkeeping;
use crate::context::{Rows, stopped_for};
use crate::deployed::Deployed;
use crate::execution::{Execution, ExecutionContext, UnplacedRoute};
use crate::failures::WORKFLOW_ENDS;
use crate::options::ShardOptions;
use crate::peer::PeerMessage;
use crate::request::{Delivery, Invoke, ListedWorkflow, OffloadTicket, Sequence, Token};
use crate::schedules::AskedSchedule;
use crate::typed_reply::{DeadLetter, EntityState, FoundInvocation, Listed, ReplyTo};
use crate::workflows::{WorkflowContext, Workflows};
use crate::world::World;

/// One partition of all entities, as a state machine. See the crate's documentation.
pub struct Shard {
    rows: Rows,
    books: Bookkeeping,
    workflows: Workflows,
    execution: Execution,
    deployed: Deployed,
    /// Why the shard stopped, once it has.
    stopped: Option<Error>,
}

impl Shard {
    /// A shard over a recovered store: everything in it counts as durable, because recovery has
    /// synced the log. Call [`Shard::tick`] next: it starts what the last run left in the inbox.
    ///
    /// # Errors
    /// [`StoreError`] when the rows of transactions over several shards cannot be read.
    pub fn new(options: ShardOptions, store: Store) -> Result<Self, StoreError> {
        let mut rows = Rows::new(options, store);
        let execution = Execution::recover(&mut rows)?;
        let books = Bookkeeping::recover(&mut rows)?;
        Ok(Self {
            rows,
            books,
            workflows: Workflows::default(),
            execution,
            deployed: Deployed::default(),
            stopped: None,
        })
    }

    /// Which shard this is.
    #[must_use]
    pub fn id(&self) -> ShardId {
        self.rows.shard()
    }

    /// The shard's state, for flushing, eviction and figures. The driver must not write to it.
    pub fn store(&mut self) -> &mut Store {
        self.rows.store()
    }

    /// The log takes its next position for an entry that changes no row, and that the shard has not made.
    ///
    /// # Errors
    /// None at present: writing needs no read.
    pub fn pass_over(&mut self) -> Result<(), StoreError> {
        let next = self.rows.next_lsn();
        self.rows.store().apply(next, [])
    }

    /// Everything up to here is durable.
    #[must_use]
    pub fn durable_lsn(&self) -> Lsn {
        self.rows.durable()
    }

    /// Transactions that wait in the middle or for their first entity.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.execution.waiting()
    }

    /// Replies that wait for the log.
    #[must_use]
    pub fn held_replies(&self) -> usize {
        self.rows.held()
    }

    /// Entities held by suspended transactions, or queued for.
    #[must_use]
    pub fn locked_entities(&self) -> usize {
        self.execution.locked_entities()
    }

    /// Workflows that have begun and not ended.
    #[must_use]
    pub fn workflows(&self) -> usize {
        self.workflows.count()
    }

    /// Workflows that have yet to begin.
    #[must_use]
    pub fn pending_workflows(&self) -> usize {
        self.books.starts.len()
    }

    /// What the workflows that have not ended wait for, one line each, for people.
    #[must_use]
    pub fn workflows_wait_for(&self) -> Vec<String> {
        self.workflows.waits_for()
    }

    /// The app versions of workflows that no loaded program runs; `None` while it is not known which these are.
    #[must_use]
    pub fn versions_waited_for(&self) -> Option<BTreeSet<(Name, u64)>> {
        self.workflows.versions_waited_for()
    }

    /// How many workflows have ended since the start, by [`WORKFLOW_ENDS`].
    #[must_use]
    pub fn ended_workflows(&self) -> [u64; WORKFLOW_ENDS.len()] {
        self.books.failures.ended_workflows()
    }

    /// Messages and compensations that failed too often and wait for somebody.
    #[must_use]
    pub fn dead_letters(&self) -> usize {
        self.books.dead_letters.len()
    }

    /// Attempts to run messages, and calls and code of workflows, that failed since the start.
    #[must_use]
    pub fn failed_attempts(&self) -> u64 {
        self.books.failures.attempts()
    }

    /// Transactions over several shards that are decided or prepared here, and have not ended everywhere.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.execution.unfinished()
    }

    /// How often a transaction had to start again because an older one held what it wanted.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.execution.restarts()
    }

    /// Whether the shard has stopped for good.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Whether anything of `program` is still parked here and will need it.
    #[must_use]
    pub fn needs_program(&self, program: Program) -> bool {
        self.execution.needs(program) || self.workflows.need(program)
    }

    /// When [`Shard::tick`] should be called next at the latest, for a message that will be due.
    #[must_use]
    pub fn next_due(&self) -> Option<UnixMillis> {
        let (message, workflow) = (self.books.inbox.next_due(), self.workflows.next_due());
        let due = message.into_iter().chain(workflow).chain(self.execution.next_due());
        if self.is_stopped() { None } else { due.min() }
    }

    /// Refuses a request if the shard has stopped.
    fn refuses(&self, token: Token, world: &mut World<'_>) -> bool {
        if let Some(error) = &self.stopped {
            world.outputs.reply(token, Err(error.clone()));
        }
        self.stopped.is_some()
    }

    /// The transactions, and what they are handed.
    fn for_execution<'a, 'w>(&'a mut self, world: &'a mut World<'w>) -> (&'a mut Execution, ExecutionContext<'a, 'w>) {
        let Self { rows, books, workflows, execution, .. } = self;
        (execution, ExecutionContext { rows, books, workflows, world })
    }

    /// The workflows, and what they are handed.
    fn for_workflows<'a, 'w>(&'a mut self, world: &'a mut World<'w>) -> (&'a mut Workflows, WorkflowContext<'a, 'w>) {
        let Self { rows, books, workflows, .. } = self;
        (workflows, WorkflowContext { rows, books, world })
    }

    /// Runs a handler as one transaction. The reply comes through `Outputs::reply`, perhaps later.
    pub fn invoke(&mut self, invoke: Invoke, world: &mut World<'_>) {
        if !self.refuses(invoke.info.token, world) {
            let (execution, mut context) = self.for_execution(world);
            execution.begin_call(invoke, &mut context);
            self.settle(world);
        }
    }

    /// Answers a query without an idempotency key at once. `None`: hand it to [`Shard::invoke`].
    pub fn fast_read(
        &mut self,
        query: HandlerId,
        key: &[u8],
        input: &[u8],
        world: &mut World<'_>,
    ) -> Option<Result<Answer, Error>> {
        if self.is_stopped() { None } else { self.execution.fast_read(query, key, input, &mut self.rows, world) }
    }

    /// Takes over a route whose first call is for an entity of this shard.
    pub fn adopt(&mut self, unplaced: UnplacedRoute, world: &mut World<'_>) {
        if self.is_stopped() {
            return unplaced.refuse_stopped(world);
        }
        let (execution, mut context) = self.for_execution(world);
        execution.adopt(unplaced, &mut context);
        self.settle(world);
    }

    /// Enqueues a call to run after `delay_ms`; the reply is its invocation id.
    pub fn send(&mut self, invoke: Invoke, delay_ms: u64, world: &mut World<'_>) {
        if !self.refuses(invoke.info.token, world) {
            let (execution, mut context) = self.for_execution(world);
            execution.accept_send(&invoke, delay_ms, &mut context);
            self.settle(world);
        }
    }

    /// Sends a signal to a workflow; answered once it is durable.
    pub fn signal(
        &mut self,
        to: ReplyTo<()>,
        id: Sequence,
        signal: (&str, &Bytes),
        idempotency_key: Option<&str>,
        world: &mut World<'_>,
    ) {
        if !self.refuses(to.token(), world) {
            let (workflows, mut context) = self.for_workflows(world);
            workflows.signal(to, id, signal, idempotency_key, &mut context);
            self.settle(world);
        }
    }

    /// Somebody steps in on a workflow; answered once that is durable.
    pub fn intervene(&mut self, to: ReplyTo<()>, id: Sequence, intervention: Intervention, world: &mut World<'_>) {
        if !self.refuses(to.token(), world) {
            let (workflows, mut context) = self.for_workflows(world);
            workflows.intervene(to, id, intervention, &mut context);
            self.settle(world);
        }
    }

    /// Work that was offloaded has ended.
    pub fn complete(&mut self, ticket: OffloadTicket, result: Result<Bytes, Error>, world: &mut World<'_>) {
        if !self.is_stopped() {
            let (execution, mut context) = self.for_execution(world);
            execution.complete(&ticket, result, &mut context);
            self.settle(world);
        }
    }

    /// Everything up to `lsn`, which is an entry of this shard, is durable: releases what waited for it.
    pub fn durable(&mut self, lsn: Lsn, world: &mut World<'_>) {
        self.rows.advance_durable(lsn, world.outputs);
        self.books.inbox.release_acknowledgements(&mut self.rows.context(world));
        self.books.outbox.deliver(&mut self.rows.context(world));
        let (workflows, mut context) = self.for_workflows(world);
        workflows.start_waiting(&mut context);
        let (execution, mut context) = self.for_execution(world);
        execution.make_calls(&mut context);
    }

    /// A message from another shard has arrived, perhaps not for the first time.
    pub fn deliver(&mut self, delivery: Delivery, world: &mut World<'_>) {
        if !self.is_stopped() && !world.is_read_only {
            self.books.deliver(delivery, &mut self.rows.context(world));
            self.settle(world);
        } // Otherwise it is not acknowledged, so it comes again.
    }

    /// The receiver `from` has durably taken everything up to `sequence`.
    pub fn acknowledged(&mut self, from: ShardId, sequence: Sequence, world: &mut World<'_>) {
        self.books.outbox.acknowledged(from, sequence, &mut self.rows.context(world));
    }

    /// Another shard says something about a transaction they both take part in.
    pub fn peer(&mut self, message: PeerMessage, world: &mut World<'_>) {
        let stopped = self.stopped.clone();
        let (execution, mut context) = self.for_execution(world);
        match stopped {
            Some(error) => execution.refuse_peer(message, error, &mut context),
            None => {
                execution.hear_peer(message, &mut context);
                self.settle(world);
            }
        }
    }

    /// `other`, another shard, was lost and is open again, as `incarnation`. To be told where shards fail alone, once for
    /// each opening, in their order.
    pub fn peer_opened(&mut self, other: ShardId, incarnation: u64, world: &mut World<'_>) {
        if !self.is_stopped() {
            let (execution, mut context) = self.for_execution(world);
            execution.peer_opened(other, incarnation, &mut context);
            self.settle(world);
        }
    }

    /// Whether the shard looks at the monotonic clock.
    #[must_use]
    pub fn reads_monotonic_clock(&self) -> bool {
        self.rows.options().hold_ms.is_some()
    }

    /// Time has passed: starts what is due, gives up what waited too long, collects results.
    /// To be called about once a second, and at [`Shard::next_due`].
    pub fn tick(&mut self, world: &mut World<'_>) {
        if self.is_stopped() {
            return;
        }
        let (execution, mut context) = self.for_execution(world);
        execution.tick(&mut context);
        execution.go_on_yielded(&mut context);
        if !world.is_read_only {
            self.books.run_schedules(world.catalog, &mut self.rows.context(world));
            let (workflows, mut context) = self.for_workflows(world);
            workflows.take_up_stranded(&mut context);
            self.go_on_deployed(world);
            self.books.collect_results(&mut self.rows.context(world));
        }
        self.books.outbox.forget_acknowledged(&mut self.rows.context(world));
        self.books.outbox.deliver(&mut self.rows.context(world));
        self.settle(world);
    }

    /// What was given up goes on in apps that want it, as other versions of these are deployed.
    fn go_on_deployed(&mut self, world: &mut World<'_>) {
        let deployed = self.deployed.resumed(world.catalog);
        if !deployed.is_empty() {
            let (workflows, mut context) = self.for_workflows(world);
            workflows.resume_deployed(&deployed, &mut context);
            self.books.retry_deployed(&deployed, &mut self.rows, world);
        }
    }

    /// Goes on with what had to let others have a turn.
    fn go_on_yielded(&mut self, world: &mut World<'_>) {
        if !self.is_stopped() {
            let (execution, mut context) = self.for_execution(world);
            execution.go_on_yielded(&mut context);
        }
    }

    /// Starts what is due, and nothing else that [`Shard::tick`] does.
    pub fn run_due(&mut self, world: &mut World<'_>) {
        self.go_on_yielded(world);
        self.settle(world);
    }

    /// What became of a sent invocation; of a workflow also what it has done, with its journal if asked for.
    pub fn read_invocation(
        &mut self,
        to: ReplyTo<FoundInvocation>,
        sequence: Sequence,
        has_journal: bool,
        world: &mut World<'_>,
    ) {
        if !self.refuses(to.token(), world) {
            let (workflows, mut context) = self.for_workflows(world);
            workflows.answer_invocation(to, sequence, has_journal, &mut context);
        }
    }

    /// Workflows after `after`, a bounded number, those that have not ended first, or only those. Whether the last
    /// one of a page has ended says where the next page begins.
    pub fn list_workflows(
        &mut self,
        to: ReplyTo<Listed<ListedWorkflow>>,
        after: Option<(bool, Sequence)>,
        page: (usize, bool),
        world: &mut World<'_>,
    ) {
        if !self.refuses(to.token(), world) {
            let (workflows, mut context) = self.for_workflows(world);
            workflows.answer_list(to, after, page, &mut context);
        }
    }

    /// Dead letters after `after`.
    pub fn list_dead_letters(
        &mut self,
        to: ReplyTo<Listed<DeadLetter>>,
        after: Option<&[u8]>,
        limit: usize,
        world: &mut World<'_>,
    ) {
        if !self.refuses(to.token(), world) {
            self.books.dead_letters.answer_page(to, after, limit, &mut self.rows.context(world));
        }
    }

    /// Messages that failed and wait for their next attempt, after `after`, as the dead letters that they may become.
    pub fn list_failing_messages(
        &mut self,
        to: ReplyTo<Listed<DeadLetter>>,
        after: Option<&[u8]>,
        limit: usize,
        world: &mut World<'_>,
    ) {
        if !self.refuses(to.token(), world) {
            self.books.answer_failing(to, after, limit, &mut self.rows.context(world));
        }
    }

    /// A dead letter, or a message that may become one, to find out whose it is.
    pub fn read_dead_letter(&mut self, to: ReplyTo<Box<DeadLetterRecord>>, field: &[u8], world: &mut World<'_>) {
        if !self.refuses(to.token(), world) {
            self.books.answer_dead_letter(to, field, &mut self.rows.context(world));
        }
    }

    /// Drops a dead letter or a message that failed and waits, or has it tried again from its first attempt.
    pub fn end_dead_letter(&mut self, to: ReplyTo<()>, field: &[u8], is_retried: bool, world: &mut World<'_>) {
        if !self.refuses(to.token(), world) {
            let ended = self.books.end_dead_letter(field, is_retried, &mut self.rows, world);
            self.rows.context(world).answer_done(to, ended);
            self.settle(world);
        }
    }

    /// When schedules of this shard are due next. A time that has passed is called as soon as the shard can write.
    pub fn list_schedules(
        &mut self,
        to: ReplyTo<Vec<Option<UnixMillis>>>,
        asked: &[AskedSchedule],
        world: &mut World<'_>,
    ) {
        if !self.refuses(to.token(), world) {
            self.books.schedules.answer_due(to, asked, &mut self.rows.context(world));
        }
    }

    /// The committed state of an entity.
    pub fn read_state(
        &mut self,
        to: ReplyTo<EntityState>,
        entity: &EntityKey,
        fields: StateFields,
        world: &mut World<'_>,
    ) {
        if !self.refuses(to.token(), world) {
            let (execution, mut context) = self.for_execution(world);
            execution.read_state(to, entity, fields, &mut context);
        }
    }

    /// Whether any entity of a service is here, or may come of what is under way.
    pub fn has_entities(&mut self, to: ReplyTo<bool>, app: &str, service: &str, world: &mut World<'_>) {
        if !self.refuses(to.token(), world) {
            self.execution.has_entities(to, app, service, &mut self.rows.context(world));
        }
    }

    /// Stops the shard for good: its log can no longer be trusted. Everything that waits is answered.
    pub fn stop(&mut self, reason: &str, world: &mut World<'_>) {
        let error = stopped_for(reason);
        self.stopped = Some(error.clone());
        self.rows.fail_held(&error, world.outputs);
        self.workflows.stop(world);
        let (execution, mut context) = self.for_execution(world);
        execution.stop(&error, &mut context);
    }

    /// The shard is not this core's any more, or its memory is lost: ends what it had the engine run. Nobody is told
    /// anything, since nothing is known of what became of it.
    pub fn give_up(mut self, world: &mut World<'_>) {
        self.workflows.stop(world);
        self.execution.give_up(world);
    }

    /// Runs what this input made runnable, a bounded amount. The rest is due at once, as [`Shard::next_due`] says.
    fn settle(&mut self, world: &mut World<'_>) {
        if self.is_stopped() {
            return;
        }
        let (execution, mut context) = self.for_execution(world);
        execution.settle(&mut context);
        if self.rows.options().is_durable_at_once {
            self.books.outbox.deliver(&mut self.rows.context(world));
        }
    }
}
