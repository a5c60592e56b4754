//! The shard itself: a table of its parts. It takes an input and hands it to the part that it is for.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use millrace_base::{Error, Lsn, Name, ShardId, UnixMillis};
use millrace_func::{Answer, HandlerId, Program};
use millrace_store::{Store, StoreError};

use crate::bookkeeping::Bookkeeping;
use crate::context::{Rows, stopped_for};
use crate::deployed::Deployed;
use crate::execution::{Execution, ExecutionContext};
use crate::figures::Figures;
use crate::input::Input;
use crate::options::ShardOptions;
use crate::question::{Ask, Question};
use crate::request::Token;
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
    /// synced the log. Give it an [`Input::Tick`] next: that starts what the last run left in the inbox.
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

    /// Which opening of the shard this is. In a cluster: in which epoch.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.rows.options().incarnation
    }

    /// What it holds and has counted.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures {
            waiting: self.execution.waiting(),
            held_replies: self.rows.held(),
            locked_entities: self.execution.locked_entities(),
            unfinished: self.execution.unfinished(),
            workflows: self.workflows.count(),
            pending_workflows: self.books.starts.len(),
            paused_workflows: self.books.failed.paused_workflows(),
            failing_messages: self.books.failed.failing_messages(),
            dead_letters: self.books.dead_letters.len(),
            ended_workflows: self.books.failures.ended_workflows(),
            failed_attempts: self.books.failures.attempts(),
            restarts: self.execution.restarts(),
        }
    }

    /// What the workflows that have not ended wait for, one line each, for people.
    #[must_use]
    pub fn workflows_wait_for(&self) -> Vec<String> {
        self.workflows.waits_for()
    }

    /// The app versions of workflows that no loaded program runs; `None` while it is not known which these are. A shard that
    /// has stopped has forgotten its workflows, and the next start finds them again.
    #[must_use]
    pub fn versions_waited_for(&self) -> Option<BTreeSet<(Name, u64)>> {
        if self.is_stopped() { None } else { self.workflows.versions_waited_for() }
    }

    /// Whether the shard has stopped for good.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Whether anything of `program` is still parked here and will need it.
    #[must_use]
    pub fn needs_program(&self, program: Program) -> bool {
        self.execution.count_in(program) > 0 || self.workflows.need(program)
    }

    /// How many transactions wait here that run in `program`, or are about to.
    #[must_use]
    pub fn transactions_in(&self, program: Program) -> usize {
        self.execution.count_in(program)
    }

    /// Whether [`Input::RunDue`] has anything to do when the machine's two clocks show this.
    #[must_use]
    pub fn is_due(&self, machine: UnixMillis, monotonic_ms: u64) -> bool {
        let is_timer_due = || self.next_due().is_some_and(|due| due <= self.rows.clock().at(machine, monotonic_ms));
        let is_wait_over = || self.execution.next_due_ms().is_some_and(|due_ms| due_ms <= monotonic_ms);
        !self.is_stopped() && (is_wait_over() || is_timer_due())
    }

    /// When the next message or workflow is due, by the shard's time. Zero: something is to be done at once.
    #[must_use]
    pub fn next_due(&self) -> Option<UnixMillis> {
        let (message, workflow) = (self.books.inbox.next_due(), self.workflows.next_due());
        let at_once = self.execution.next_due_ms().filter(|due_ms| *due_ms == 0).map(UnixMillis);
        let due = message.into_iter().chain(workflow).chain(at_once);
        if self.is_stopped() { None } else { due.min() }
    }

    /// The shard's time when the machine's two clocks show this: what [`World::now`] is to be. It never goes back.
    pub fn look_at_clock(&mut self, machine: UnixMillis, monotonic_ms: u64) -> UnixMillis {
        self.rows.clock_mut().look(machine, monotonic_ms)
    }

    /// By how much the shard's time is ahead of the machine's clock when the machine's two clocks show this.
    #[must_use]
    pub fn clock_lead_ms(&self, machine: UnixMillis, monotonic_ms: u64) -> u64 {
        self.rows.clock().lead_at_ms(machine, monotonic_ms)
    }

    /// The time here of a request that began when the machine's clocks showed this: no time that the shard has left behind.
    #[must_use]
    pub fn time_of(&self, machine: UnixMillis, began_ms: u64) -> UnixMillis {
        self.rows.clock().time_of(machine, began_ms)
    }

    /// The transactions, and what they are handed.
    fn for_execution<'a, 'w>(&'a mut self, world: &'a mut World<'w>) -> (&'a mut Execution, ExecutionContext<'a, 'w>) {
        let Self { rows, books, workflows, execution, .. } = self;
        (execution, ExecutionContext { rows, books, workflows, world })
    }

    /// Whether nothing is locked here. If it says nothing more from now on, its next opening may write at once.
    #[must_use]
    pub fn holds_nothing(&self) -> bool {
        self.execution.holds_nothing()
    }

    /// The opening before this one held nothing when it ended: this one writes at once. To be called before any input.
    pub fn inherits_nothing(&mut self) {
        self.execution.open_gate();
    }

    /// Whether the shard looks at the monotonic clock.
    #[must_use]
    pub fn reads_monotonic_clock(&self) -> bool {
        self.rows.options().hold_ms.is_some()
    }

    /// Answers a query without an idempotency key at once. `None`: hand it to [`Shard::handle`].
    pub fn fast_read(
        &mut self,
        query: HandlerId,
        key: &[u8],
        input: &[u8],
        world: &mut World<'_>,
    ) -> Option<Result<Answer, Error>> {
        if self.is_stopped() { None } else { self.execution.fast_read(query, key, input, &mut self.rows, world) }
    }

    /// Takes an input, and runs what it made runnable, a bounded amount. The rest is due at once, as [`Shard::is_due`] says.
    pub fn handle(&mut self, input: Input, world: &mut World<'_>) {
        match (input, &self.stopped) {
            (Input::Durable(lsn), _) => self.durable(lsn, world),
            (Input::Acknowledged { from, sequence }, _) => {
                self.books.outbox.acknowledged(from, sequence, &mut self.rows.context(world));
            }
            (Input::Stop(reason), _) => self.stop(&reason, world),
            (input, Some(error)) => {
                let error = error.clone();
                self.refuse(input, error, world);
            }
            (input, None) => {
                if self.begin(input, world) {
                    self.settle(world);
                }
            }
        }
    }

    /// Hands an input to the part that it is for. Says whether it may have made anything runnable.
    fn begin(&mut self, input: Input, world: &mut World<'_>) -> bool {
        let (execution, mut context) = self.for_execution(world);
        match input {
            Input::Invoke(to, invoke) => execution.begin_call(to, invoke, &mut context),
            Input::Send(to, invoke, delay_ms) => execution.accept_send(to, &invoke, delay_ms, &mut context),
            Input::Adopt(unplaced) => execution.adopt(unplaced, &mut context),
            Input::Complete(ticket, result) => execution.complete(&ticket, result, &mut context),
            Input::Rows(rows) => execution.rows_read(rows, &mut context),
            Input::Peer(message) => execution.hear_peer(message, &mut context),
            Input::PeerOpened { shard, incarnation } => execution.peer_opened(shard, incarnation, &mut context),
            Input::Detour(shards) => execution.takes_detour(&shards, &mut context),
            Input::RunDue => execution.go_on_yielded(&mut context),
            // It is not acknowledged, so it comes again.
            Input::Deliver(_) if context.world.is_read_only => return false,
            Input::Deliver(delivery) => self.books.deliver(delivery, &mut self.rows.context(world)),
            Input::Tick => self.tick(world),
            Input::Ask(token, question) => {
                let may_write = question.may_write();
                self.answer(question, token, world);
                return may_write;
            }
            Input::Durable(_) | Input::Acknowledged { .. } | Input::Stop(_) => return false,
        }
        true
    }

    fn answer(&mut self, question: Question, token: Token, world: &mut World<'_>) {
        let Self { rows, books, workflows, execution, .. } = self;
        match question {
            Question::ReadInvocation(asked) => {
                let mut context = WorkflowContext { rows, books, world };
                workflows.answer_invocation(asked.asker(token), asked.sequence, asked.has_journal, &mut context);
            }
            Question::ListWorkflows(asked) => {
                let (page, mut context) = ((asked.limit, asked.is_live_only), WorkflowContext { rows, books, world });
                workflows.answer_list(asked.asker(token), asked.after, page, &mut context);
            }
            Question::Signal(asked) => {
                let (signal, key) = ((&*asked.name, &asked.payload), asked.idempotency_key.as_ref());
                let mut context = WorkflowContext { rows, books, world };
                workflows.signal(asked.asker(token), asked.sequence, signal, key, &mut context);
            }
            Question::Intervene(asked) => {
                let mut context = WorkflowContext { rows, books, world };
                workflows.intervene(asked.asker(token), asked.sequence, asked.intervention, &mut context);
            }
            Question::ReadState(asked) => {
                let mut context = ExecutionContext { rows, books, workflows, world };
                execution.read_state(asked.asker(token), &asked.entity, asked.fields, &mut context);
            }
            Question::HasEntities(asked) => {
                let to = asked.asker(token);
                execution.has_entities(to, &asked.app, &asked.service, &mut rows.context(world));
            }
            Question::ListDeadLetters(asked) => {
                let (to, after) = (asked.asker(token), asked.after.as_deref());
                books.dead_letters.answer_page(to, after, asked.limit, &mut rows.context(world));
            }
            Question::ListFailingMessages(asked) => {
                let (to, after) = (asked.asker(token), asked.after.as_deref());
                books.answer_failing(to, after, asked.limit, &mut rows.context(world));
            }
            Question::ReadDeadLetter(asked) => {
                books.answer_dead_letter(asked.asker(token), &asked.field, &mut rows.context(world));
            }
            Question::EndDeadLetter(asked) => {
                let ended = books.end_dead_letter(&asked.field, asked.is_retried, rows, world);
                rows.context(world).answer_done(asked.asker(token), ended);
            }
            Question::StartWorkflow(asked) => {
                books.start_workflow(asked.asker(token), asked, world.catalog, &mut rows.context(world));
            }
            Question::ListSchedules(asked) => {
                books.schedules.answer_due(asked.asker(token), &asked.asked, &mut rows.context(world));
            }
        }
    }

    /// The shard has stopped. What nobody waits for comes again after a restart.
    fn refuse(&mut self, input: Input, error: Error, world: &mut World<'_>) {
        match input {
            Input::Invoke(to, _) => world.outputs.reply(to.token(), Err(error)),
            Input::Send(to, ..) => world.outputs.reply(to.token(), Err(error)),
            Input::Ask(token, _) => world.outputs.reply(token, Err(error)),
            Input::Adopt(unplaced) => unplaced.refuse_stopped(world),
            Input::Peer(message) => {
                let (execution, mut context) = self.for_execution(world);
                execution.refuse_peer(message, error, &mut context);
            }
            _ => {}
        }
    }

    fn durable(&mut self, lsn: Lsn, world: &mut World<'_>) {
        self.rows.advance_durable(lsn, world.outputs);
        self.books.inbox.release_acknowledgements(&mut self.rows.context(world));
        self.books.outbox.deliver(&mut self.rows.context(world));
        let (execution, mut context) = self.for_execution(world);
        let (workflows, mut of_workflows) = context.workflows();
        workflows.start_waiting(&mut of_workflows);
        execution.make_calls(&mut context);
    }

    fn tick(&mut self, world: &mut World<'_>) {
        let (execution, mut context) = self.for_execution(world);
        execution.tick(&mut context);
        execution.go_on_yielded(&mut context);
        if !world.is_read_only {
            self.books.run_schedules(world.catalog, &mut self.rows.context(world));
            let Self { rows, books, workflows, deployed, .. } = self;
            workflows.take_up_stranded(&mut WorkflowContext { rows, books, world });
            // What was given up goes on in apps that want it, as other versions of these are deployed.
            let deployed = deployed.resumed(world.catalog);
            if !deployed.is_empty() {
                workflows.resume_deployed(&deployed, &mut WorkflowContext { rows, books, world });
                books.retry_deployed(&deployed, rows, world);
            }
            books.collect_results(&mut rows.context(world));
        }
        self.books.outbox.forget_acknowledged(&mut self.rows.context(world));
        self.books.outbox.deliver(&mut self.rows.context(world));
    }

    fn stop(&mut self, reason: &str, world: &mut World<'_>) {
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

    fn settle(&mut self, world: &mut World<'_>) {
        let (execution, mut context) = self.for_execution(world);
        execution.settle(&mut context);
        if self.rows.options().is_durable_at_once {
            self.books.outbox.deliver(&mut self.rows.context(world));
        }
    }
}
