//! Transactions: each runs in turns until it ends or has to wait, and ends as one entry or as nothing.
//!
//! `start.rs` starts what comes in, `run.rs` runs it, `commit.rs` ends it. `host.rs` is the world as
//! a handler sees it, `answers.rs` what was answered before. `lost.rs` begins again what a worker has lost, `slots.rs`
//! lets what runs there begin. `cold.rs` lets it wait for rows from the disk.
//! `coordinate.rs` and `participate.rs` do what messages of other shards mean, as [`crate::coordination`] and
//! [`crate::participation`] say it.
//! `opened.rs` says what it means that another shard was opened anew, `gate.rs` when this one may write after it was.
//! `reads.rs` reads committed state beside all that, and `unplaced.rs` runs routes before they have a shard.

mod activations;
mod answers;
mod cold;
mod commit;
mod coordinate;
mod cpu;
mod gate;
mod host;
mod keys;
#[cfg(test)]
mod late_votes_tests;
mod lost;
mod on_worker;
mod opened;
mod origin;
mod participate;
mod reads;
mod role;
mod run;
mod slots;
mod start;
#[cfg(test)]
mod tests;
mod transaction;
mod unplaced;

use std::collections::{BTreeMap, VecDeque};

use millrace_base::{EntityKey, Error, ErrorCode, Lsn};
use millrace_format::Write;
use millrace_func::Program;
use millrace_store::StoreError;

use crate::bookkeeping::Bookkeeping;
use crate::context::{Context, Rows};
use crate::coordination::{Coordination, Coordinator};
use crate::locks::Locks;
use crate::participation::Participations;
use crate::peer::{PeerBody, PeerMessage};
use crate::workflows::{WorkflowContext, Workflows};
use crate::world::World;
use cold::ColdEntities;
use gate::Gate;
use lost::LostTransactions;
use origin::Origin;
use role::Role;
use slots::WithoutSlot;
use transaction::Transaction;
pub use unplaced::{UnplacedRoute, UnplacedStep};

/// What transactions are handed: the shard's rows, bookkeeping and workflows, and the world.
pub(crate) struct ExecutionContext<'a, 'w> {
    pub rows: &'a mut Rows,
    pub books: &'a mut Bookkeeping,
    pub workflows: &'a mut Workflows,
    pub world: &'a mut World<'w>,
}

impl<'w> ExecutionContext<'_, 'w> {
    /// The context of the parts below.
    fn context(&mut self) -> Context<'_> {
        self.rows.context(self.world)
    }

    /// The workflows, and what they are handed.
    pub(crate) fn workflows(&mut self) -> (&mut Workflows, WorkflowContext<'_, 'w>) {
        (self.workflows, WorkflowContext { rows: self.rows, books: self.books, world: self.world })
    }

    fn append(&mut self, writes: Vec<Write>) -> Lsn {
        self.context().append(writes)
    }
}

/// A transaction in the middle: it awaits something outside, or an entity.
struct Suspended {
    role: Role,
    transaction: Box<Transaction>,
    /// When it has waited too long, by the monotonic clock.
    deadline_ms: u64,
}

/// A transaction yet to start (again), queued for its first entity.
struct Parked {
    origin: Origin,
    entity: EntityKey,
    is_exclusive: bool,
    deadline_ms: u64,
    /// The entity is another shard's, which has been asked to hold it.
    away: Option<Box<Coordination>>,
}

/// The transactions of a shard.
pub(crate) struct Execution {
    locks: Locks,
    gate: Gate,
    suspended: BTreeMap<u64, Suspended>,
    parked: BTreeMap<u64, Parked>,
    /// Those whose attempt on a worker was lost, and that begin again.
    lost: LostTransactions,
    /// Those that have no slot on a worker yet.
    without_slot: WithoutSlot,
    /// Those whose rows are being read.
    cold: ColdEntities,
    /// Those that let others have a turn, in order. What has gone on meanwhile, or ended, is passed over.
    yielded: VecDeque<u64>,
    /// Entities whose queue may have become runnable.
    freed: VecDeque<EntityKey>,
    coordinator: Coordinator,
    participations: Participations,
    restarts: u64,
}

impl Execution {
    /// Takes over what the last run of the shard had prepared or decided.
    ///
    /// # Errors
    /// [`StoreError`] when the rows cannot be read.
    pub(crate) fn recover(rows: &mut Rows) -> Result<Self, StoreError> {
        let participations = Participations::recover(rows)?;
        let mut locks = Locks::default();
        for (entity, nonce, is_written) in participations.held() {
            locks.hold(entity, nonce, (0, 0), is_written);
            if is_written {
                locks.mark_prepared(entity);
            }
        }
        let gate = Gate::new(rows);
        if !gate.is_open() {
            locks.shut();
        }
        Ok(Self {
            locks,
            gate,
            suspended: BTreeMap::new(),
            parked: BTreeMap::new(),
            lost: LostTransactions::new(),
            without_slot: WithoutSlot::new(),
            cold: ColdEntities::default(),
            yielded: VecDeque::new(),
            freed: VecDeque::new(),
            coordinator: Coordinator::recover(rows)?,
            participations,
            restarts: 0,
        })
    }

    /// When the next transaction that waits for a time may go on. That is when the shard may write, when another
    /// attempt on a worker is due, or when a slot there is looked for. A transaction that only let others have a turn
    /// first may go on at any time. By the monotonic clock; 0: now.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        let lost = self.lost.first_key_value().map(|((due, _), _)| *due);
        let without_slot = self.without_slot.first_key_value().map(|((due, _), _)| *due);
        let yielded = (!self.yielded.is_empty() || self.cold.goes_on()).then_some(0);
        self.gate.next_due_ms().into_iter().chain(lost).chain(without_slot).chain(yielded).min()
    }

    /// Transactions that wait in the middle or for their first entity.
    pub(crate) fn waiting(&self) -> usize {
        self.suspended.len() + self.parked.len() + self.lost.len() + self.without_slot.len() + self.cold.starts()
    }

    /// Entities held by suspended transactions, or queued for.
    pub(crate) fn locked_entities(&self) -> usize {
        self.locks.len()
    }

    /// Transactions over several shards that are decided or prepared here, and not yet ended everywhere.
    pub(crate) fn unfinished(&self) -> usize {
        self.coordinator.unconfirmed() + self.participations.unfinished()
    }

    /// How often a transaction had to start again because an older one held what it wanted.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// How many of those that wait here run in `program`, or will need it.
    pub(crate) fn count_in(&self, program: Program) -> usize {
        let parked = self.parked.values().map(|parked| &parked.origin);
        let origins = parked.chain(self.lost.values().map(|lost| &lost.origin)).chain(self.without_slot.values());
        let origins = origins.chain(self.cold.origins());
        origins.filter(|origin| origin.program() == Some(program)).count()
            + self.suspended.values().filter(|suspended| suspended.transaction.needs_program(program)).count()
    }

    /// Goes on with whoever queues for an entity that was freed.
    fn wake_freed(&mut self, context: &mut ExecutionContext<'_, '_>) {
        while let Some(entity) = self.freed.pop_front() {
            self.wake(&entity, context);
        }
    }

    /// Goes on with whoever is first in the queue of `entity`, and with those behind that may go
    /// on beside it. Each may change what the next one may do.
    ///
    /// # Panics
    /// When somebody queues who neither waits to start nor is suspended: nobody would ever come behind.
    fn wake(&mut self, entity: &EntityKey, context: &mut ExecutionContext<'_, '_>) {
        while let Some(nonce) = self.locks.runnable(entity) {
            if let Some(parked) = self.parked.remove(&nonce) {
                self.unpark(parked, context);
            } else if let Some(Suspended { role, transaction, .. }) = self.suspended.remove(&nonce) {
                self.unblock(role, transaction, entity, context);
            } else {
                unreachable!("whoever queues for an entity waits to start, or is suspended");
            }
        }
    }

    /// Time has passed: gives up what waited too long, and looks after what other shards have to hear.
    pub(crate) fn tick(&mut self, context: &mut ExecutionContext<'_, '_>) {
        self.give_up_late(context);
        self.recall_delegated(context);
        self.coordinator.look_after_decisions(&mut context.context());
        self.participations.delete_leftover_rows(&mut context.context());
        self.participations.inquire(&mut context.context());
        self.participations.alone().look_after(&mut context.context());
        self.forget_kept(context);
    }

    fn give_up_late(&mut self, context: &mut ExecutionContext<'_, '_>) {
        let now_ms = context.world.monotonic_ms;
        let late = |deadline_ms: u64| deadline_ms <= now_ms;
        let parked: Vec<u64> =
            self.parked.iter().filter(|(_, p)| late(p.deadline_ms)).map(|(nonce, _)| *nonce).collect();
        let suspended: Vec<u64> =
            self.suspended.iter().filter(|(_, s)| late(s.deadline_ms)).map(|(nonce, _)| *nonce).collect();
        for nonce in parked {
            if let Some(parked) = self.parked.remove(&nonce) {
                self.give_up_parked(parked, waited_too_long(), context);
            }
        }
        for nonce in suspended {
            if let Some(suspended) = self.suspended.remove(&nonce) {
                self.give_up_suspended(suspended, waited_too_long(), context);
            }
        }
    }

    fn give_up_suspended(&mut self, suspended: Suspended, error: Error, context: &mut ExecutionContext<'_, '_>) {
        let Suspended { role, transaction, deadline_ms } = suspended;
        match role {
            // Another shard may have committed it already: only that one can say.
            Role::Coordinator(coordination) if coordination.is_delegated() => {
                let role = Role::Coordinator(coordination);
                self.suspended.insert(transaction.nonce(), Suspended { role, transaction, deadline_ms });
            }
            Role::Coordinator(coordination) if coordination.is_ending() => {
                self.coordinator.abandon(&coordination, &mut context.context());
                self.give_up_locks(&transaction);
                self.roll_back(transaction, error, context);
            }
            role => self.finish(role, transaction, Err(error), context),
        }
    }

    /// Answers what never started, or can never go on, with an error.
    fn fail_origin(&mut self, origin: Origin, error: Error, context: &mut ExecutionContext<'_, '_>) {
        match origin {
            Origin::Message { field, .. } => {
                context.books.message_failed(&field, error, context.rows, context.world);
            }
            Origin::WorkflowCall { asked, .. } => {
                let (workflows, mut context) = context.workflows();
                workflows.call_failed(asked.workflow, asked.operation, error, &mut context);
            }
            origin => {
                if let Some(token) = origin.token() {
                    context.world.outputs.reply(token, Err(error));
                }
            }
        }
    }

    /// Another shard says something about a transaction they both take part in.
    pub(crate) fn hear_peer(&mut self, message: PeerMessage, context: &mut ExecutionContext<'_, '_>) {
        let PeerMessage { from, transaction: id, body } = message;
        match body {
            PeerBody::ToParticipation(number, message) => self.participant_told(id, number, message, context),
            PeerBody::ToCoordinator(number, said) => self.coordinator_heard(from, id, (number, said), context),
            PeerBody::Commit => self.participant_told_commit(id, context),
            PeerBody::Abort { is_answered, heard } => self.participant_told_abort(id, (is_answered, heard), context),
            PeerBody::Ended => self.coordinator_heard_ended(from, id, context),
            PeerBody::Inquire => self.coordinator.answer_inquiry(from, id, &mut context.context()),
            PeerBody::Lost(error) => self.coordinator_heard_lost(from, id, error, context),
            PeerBody::Forget(field) => self.participations.forget_kept(field),
            PeerBody::Recall => self.participant_told_recall(id, context),
            PeerBody::CommittedAlone => self.coordinator_heard_alone(from, id, context),
            PeerBody::Heard => self.participations.alone().heard(id),
            PeerBody::AwaitResult(question) => {
                let (workflows, mut context) = context.workflows();
                workflows.result_wanted(from, question, &mut context);
            }
            PeerBody::AwaitedResult(awaited) => {
                let (workflows, mut context) = context.workflows();
                workflows.awaited_came(from, awaited, &mut context);
            }
        }
    }

    /// As [`Execution::hear_peer`], once the shard has stopped. Nothing here runs any more; whoever waits for it is told.
    /// A commit is told again after a restart.
    pub(crate) fn refuse_peer(&mut self, message: PeerMessage, error: Error, context: &mut ExecutionContext<'_, '_>) {
        let PeerMessage { from, transaction: id, body } = message;
        match body {
            PeerBody::ToParticipation(..) | PeerBody::Abort { is_answered: true, .. } => {
                let message = context.rows.about(id, PeerBody::Lost(error));
                context.world.outputs.peer(from, message);
            }
            PeerBody::Inquire => self.coordinator.answer_inquiry(from, id, &mut context.context()),
            _ => {}
        }
    }

    /// The shard has stopped: everything that waits is answered with `error`.
    pub(crate) fn stop(&mut self, error: &Error, context: &mut ExecutionContext<'_, '_>) {
        self.locks = Locks::default();
        self.freed.clear();
        self.yielded.clear();
        self.participations.report_lost(error, &mut context.context());
        for (_, parked) in std::mem::take(&mut self.parked) {
            self.stop_one(parked.origin, parked.away, error, context);
        }
        for (_, lost) in std::mem::take(&mut self.lost) {
            self.stop_one(lost.origin, None, error, context);
        }
        let without_slot = std::mem::take(&mut self.without_slot).into_values();
        for origin in without_slot.chain(std::mem::take(&mut self.cold).into_origins()) {
            self.stop_one(origin, None, error, context);
        }
        for (_, suspended) in std::mem::take(&mut self.suspended) {
            let Suspended { role, transaction, .. } = suspended;
            transaction.drop_activations(context.world);
            self.stop_one(transaction.origin, role.into_coordination(), error, context);
        }
    }

    /// The shard's memory is given up: ends what runs.
    pub(crate) fn give_up(&self, world: &mut World<'_>) {
        for suspended in self.suspended.values() {
            suspended.transaction.drop_activations(world);
        }
    }

    /// Nothing that still runs is decided, and a stopped shard decides nothing any more.
    fn stop_one(
        &mut self,
        origin: Origin,
        coordination: Option<Box<Coordination>>,
        error: &Error,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        if let Some(coordination) = coordination {
            self.coordinator.abandon(&coordination, &mut context.context());
        }
        if let Some(token) = origin.token() {
            context.world.outputs.reply(token, Err(error.clone()));
        }
    }

    /// Lets go of everything a transaction holds or queues for.
    fn give_up_locks(&mut self, transaction: &Transaction) {
        let nonce = transaction.nonce();
        self.give_up_held(nonce, transaction.blocked.iter().map(|(entity, _)| entity));
        self.give_up_held(nonce, &transaction.held);
    }

    fn give_up_held<'a>(&mut self, nonce: u64, held: impl IntoIterator<Item = &'a EntityKey>) {
        for entity in held {
            if self.locks.release(entity, nonce) {
                self.freed.push_back(entity.clone());
            }
        }
    }
}

fn waited_too_long() -> Error {
    Error::new(ErrorCode::WaitLimit, "the call waited too long for what it awaits; nothing took effect")
}

#[cfg(test)]
impl Execution {
    /// Plants a state that cannot be: suspended transactions are gone, but other shards know of them.
    pub(crate) fn plant_lost(&mut self) {
        self.suspended.clear();
    }

    /// Plants a state that cannot be: suspended transactions have forgotten what part they have.
    pub(crate) fn plant_roleless(&mut self) {
        self.suspended.values_mut().for_each(|suspended| suspended.role = Role::Alone);
    }
}
