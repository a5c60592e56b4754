//! Calls between shards, and what participants say to this shard as their coordinator.

use millrace_base::{EntityKey, Error, ErrorCode, ShardId, TransactionId, limits};
use millrace_func::{HandlerKind, Output, Program};

use super::origin::Origin;
use super::start::deadline_ms;
use super::transaction::{Action, AwayCall, Parent, PendingCall, Transaction};
use super::{Execution, ExecutionContext, Parked, Role, Suspended};
use crate::coordination::{Coordination, Effects, Ending, Heard, Vote};
use crate::peer::{Begin, FromParticipation, PeerCall, ToCoordinator};
use crate::world::World;

/// The random bits of participations come from indices that the coordinator's own functions never reach.
const SEED_INDEX: u32 = 1 << 31;

/// Whether an attempt goes on.
enum Fate {
    GoesOn,
    /// It has to start again, when this entity of that shard is free.
    Died(ShardId, EntityKey, bool),
    /// It can never be committed, and has to start again.
    IsLost,
}

/// What a participant is told of a transaction.
pub(super) fn begin(origin: &Origin, program: Program, to: ShardId, world: &World<'_>) -> Begin {
    let index = SEED_INDEX + u32::from(to.0);
    let seed = match origin.route_key() {
        Some(key) => world.entropy.draw_keyed(key, index),
        None => world.entropy.draw(origin.nonce(), index),
    };
    Begin { program, time: origin.time(), age: origin.age(), seed }
}

impl Execution {
    /// Makes a call to an entity of another shard, or asks the coordinator to.
    pub(super) fn call_away(
        &mut self,
        role: &mut Role,
        transaction: &mut Transaction,
        to: ShardId,
        pending: PendingCall,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        if matches!(pending.parent, Parent::Shard(_)) {
            let error = Error::new(ErrorCode::Internal, "a call came to a shard that does not own its entity");
            return transaction.ready.push_back(Action::answer(pending.parent, Err(error)));
        }
        let number = context.world.take_nonce();
        let awaited_by = Some(pending.parent);
        transaction.away.push(AwayCall { number, owner: pending.owner, awaited_by });
        transaction.writes_away |= context.world.catalog.kind(pending.call.handler) == HandlerKind::Transaction;
        transaction.is_spread = true;
        let once = transaction.origin.once_field(context.rows.shard());
        let callers = transaction.callers_away(&pending, context.world.catalog);
        let call = PeerCall { number, depth: pending.depth, call: pending.call, once, callers };
        self.make_call_away(role, transaction, (to, call), context);
    }

    /// Everything has run: asks every participant to make its prepared writes durable. The transaction goes
    /// on when all of them have answered.
    pub(super) fn ask_for_votes(
        &mut self,
        mut coordination: Box<Coordination>,
        mut transaction: Box<Transaction>,
        result: Result<Output, Error>,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        // What a workflow's call gives is journalled here, but kept over there as well.
        let is_bare = !transaction.has_effects() && transaction.origin.idempotency_key().is_none();
        // What it has read here may have gone into what the other shard writes: that must not
        // survive a crash which this does not.
        let has_durable_reads = self.read_lsn(&transaction, context) <= context.rows.durable();
        let is_recorded_here = match transaction.origin {
            Origin::Message { .. } => true,
            // One that has run here runs here again after a crash, perhaps otherwise.
            Origin::WorkflowCall { .. } => !transaction.touched.is_empty(),
            _ => false,
        };
        let may_delegate = is_bare && has_durable_reads && !is_recorded_here;
        let is_query = transaction.is_query();
        let has_failed = result.is_err();
        coordination.ask_for_votes(result, (may_delegate, is_query), &mut context.context());
        let (role, nonce) = (Role::Coordinator(coordination), transaction.nonce());
        if has_failed {
            transaction.takes_locks = true;
            transaction.drop_activations(context.world);
            self.give_up_locks(&transaction);
            transaction.clear();
            let deadline_ms = deadline_ms(&transaction.origin, context.world);
            self.suspended.insert(nonce, Suspended { role, transaction, deadline_ms });
        } else {
            self.suspend(role, transaction, context);
            for entity in self.suspended.get(&nonce).into_iter().flat_map(|one| &one.transaction.held) {
                self.locks.mark_wants_nothing(entity, nonce);
            }
        }
    }

    /// Starts a transaction again once it holds an entity of another shard.
    fn park_away(
        &mut self,
        origin: Origin,
        program: Program,
        (to, entity, is_exclusive): (ShardId, EntityKey, bool),
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let nonce = origin.nonce();
        let begin = begin(&origin, program, to, context.world);
        let mut coordination = self.coordinator.begin(nonce, context.rows);
        coordination.reserve(to, begin, (entity.clone(), is_exclusive), &mut context.context());
        let deadline_ms = deadline_ms(&origin, context.world);
        let away = Some(coordination);
        self.parked.insert(nonce, Parked { origin, entity, is_exclusive, deadline_ms, away });
    }

    /// A suspended transaction that this shard coordinates.
    ///
    /// # Panics
    /// When it is not there, or is not coordinated here: it could never end.
    pub(super) fn take_coordinated(&mut self, nonce: u64) -> (Box<Coordination>, Box<Transaction>, u64) {
        let is_coordinated = |one: &mut Suspended| one.role.coordination().is_some();
        let is_there = self.suspended.get_mut(&nonce).is_some_and(is_coordinated);
        assert!(is_there, "a live transaction over several shards is parked, or suspended with its coordination");
        let Suspended { role, transaction, deadline_ms } =
            self.suspended.remove(&nonce).expect("it has just been seen");
        (role.into_coordination().expect("it has just been seen"), transaction, deadline_ms)
    }

    /// A participant says something to the coordinator.
    pub(super) fn coordinator_heard(
        &mut self,
        from: ShardId,
        id: TransactionId,
        (number, said): (u32, FromParticipation),
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let Some(nonce) = self.coordinator.nonce_of(id, context.rows) else {
            return; // Late: the attempt has ended, or was one of an earlier start.
        };
        if let Some(parked) = self.parked.remove(&nonce) {
            return self.parked_heard(parked, from, (number, said), context);
        }
        let (mut coordination, mut transaction, deadline_ms) = self.take_coordinated(nonce);
        match coordination.hear(from, number, said) {
            Some(Heard::Died(shard, entity, is_exclusive)) => {
                return self.start_again_at(coordination, transaction, (shard, entity, is_exclusive), context);
            }
            Some(Heard::Failed(error)) => transaction.result = Some(Err(error)),
            _ => {}
        }
        while let Some(message) = coordination.next(from) {
            match act_on(&mut coordination, &mut transaction, (from, message), context) {
                Fate::GoesOn => {}
                Fate::Died(shard, entity, is_exclusive) => {
                    return self.start_again_at(coordination, transaction, (shard, entity, is_exclusive), context);
                }
                Fate::IsLost => return self.loses_attempt(&coordination, transaction, context),
            }
        }
        self.go_on(coordination, transaction, deadline_ms, context);
    }

    /// Runs what can be run, or ends what has been voted on.
    pub(super) fn go_on(
        &mut self,
        mut coordination: Box<Coordination>,
        transaction: Box<Transaction>,
        deadline_ms: u64,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        if matches!(transaction.result, Some(Err(_))) || !coordination.is_ending() {
            coordination.resume();
            return self.drive(Role::Coordinator(coordination), transaction, context);
        }
        match coordination.take_ending(&mut context.context()) {
            Some(ending) => self.conclude(&coordination, transaction, ending, context),
            None => {
                let role = Role::Coordinator(coordination);
                self.suspended.insert(transaction.nonce(), Suspended { role, transaction, deadline_ms });
            }
        }
    }

    fn parked_heard(
        &mut self,
        mut parked: Parked,
        from: ShardId,
        (number, said): (u32, FromParticipation),
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let next = parked.away.as_mut().and_then(|coordination| {
            coordination.hear(from, number, said);
            coordination.next(from)
        });
        match next {
            Some(ToCoordinator::Reserved) => self.unpark_away(parked, context),
            Some(ToCoordinator::Failed(error)) => self.give_up_parked(parked, error, context),
            _ => {
                self.parked.insert(parked.origin.nonce(), parked);
            }
        }
    }

    /// Ends a transaction that never got to start.
    pub(super) fn give_up_parked(&mut self, parked: Parked, error: Error, context: &mut ExecutionContext<'_, '_>) {
        match &parked.away {
            Some(coordination) => self.coordinator.abandon(coordination, &mut context.context()),
            None => self.give_up_held(parked.origin.nonce(), [&parked.entity]),
        }
        self.fail_origin(parked.origin, error, context);
    }

    /// Another shard holds the entity that a transaction queued for.
    ///
    /// # Panics
    /// When no other shard was asked to.
    fn unpark_away(&mut self, parked: Parked, context: &mut ExecutionContext<'_, '_>) {
        let coordination = parked.away.expect("the shard that answers was asked");
        if let Err(role) = self.starts_again(parked.origin, Vec::new(), Role::Coordinator(coordination), context) {
            self.abandon(role, context);
        }
    }

    fn start_again_at(
        &mut self,
        coordination: Box<Coordination>,
        transaction: Box<Transaction>,
        place: (ShardId, EntityKey, bool),
        context: &mut ExecutionContext<'_, '_>,
    ) {
        transaction.drop_activations(context.world);
        self.give_up_locks(&transaction);
        self.coordinator.abandon(&coordination, &mut context.context());
        let program = transaction.program;
        self.park_away(transaction.into_origin(), program, place, context);
    }

    /// Everybody has voted.
    fn conclude(
        &mut self,
        coordination: &Coordination,
        transaction: Box<Transaction>,
        ending: Ending,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        self.give_up_locks(&transaction);
        self.coordinator.end(coordination);
        let prepared: Vec<ShardId> = coordination.voted(Vote::Prepared).collect();
        match ending {
            Ending::Fail(error) => self.roll_back(transaction, error, context),
            Ending::Commit { output, .. } => {
                let decision = (!prepared.is_empty()).then_some((coordination.id(), &prepared[..]));
                let is_committed = self.commit(transaction, output, decision, context);
                let are_over = prepared.iter().copied().filter(|_| !is_committed);
                for shard in are_over.chain(coordination.voted(Vote::ReadOnly)) {
                    coordination.end_at(shard, &mut context.context());
                }
            }
        }
    }

    /// A participant has no part in a transaction any more.
    pub(super) fn coordinator_heard_ended(
        &mut self,
        from: ShardId,
        id: TransactionId,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        if self.coordinator.confirmed(from, id) {
            return;
        }
        if let Some(nonce) = self.coordinator.nonce_of(id, context.rows)
            && !self.parked.contains_key(&nonce)
        {
            let (mut coordination, transaction, deadline_ms) = self.take_coordinated(nonce);
            if let Heard::Lost = coordination.heard_ended(from) {
                return self.loses_attempt(&coordination, transaction, context);
            }
            self.go_on(coordination, transaction, deadline_ms, context);
        }
    }

    /// A participant's part is lost.
    pub(super) fn coordinator_heard_lost(
        &mut self,
        from: ShardId,
        id: TransactionId,
        error: Error,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let Some(nonce) = self.coordinator.nonce_of(id, context.rows) else {
            return; // Late: the attempt has ended, or was one of an earlier start.
        };
        if let Some(parked) = self.parked.remove(&nonce) {
            return self.give_up_parked(parked, error, context);
        }
        let (mut coordination, mut transaction, deadline_ms) = self.take_coordinated(nonce);
        if let Heard::Failed(error) = coordination.failed(from, error) {
            transaction.result = Some(Err(error));
        }
        self.go_on(coordination, transaction, deadline_ms, context);
    }

    /// Asks for decisions back that other shards have not made in time.
    pub(super) fn recall_delegated(&mut self, context: &mut ExecutionContext<'_, '_>) {
        let now_ms = context.world.monotonic_ms;
        for suspended in self.suspended.values_mut().filter(|suspended| suspended.deadline_ms <= now_ms) {
            if let Some(coordination) = suspended.role.coordination().filter(|one| one.is_delegated()) {
                coordination.recall(&mut context.context());
            }
        }
    }
}

/// Does what a participant's message means.
fn act_on(
    coordination: &mut Coordination,
    transaction: &mut Transaction,
    (from, message): (ShardId, ToCoordinator),
    context: &mut ExecutionContext<'_, '_>,
) -> Fate {
    match coordination.act_on(from, message, &mut context.context()) {
        Heard::NothingToDo => {}
        Heard::Spent(cpu_ns) => transaction.cpu.add(cpu_ns),
        Heard::Call(call) => pass_on(coordination, transaction, from, call, context),
        Heard::Ended(number, result) => transaction.away_ended(number, result),
        Heard::TakeBack(number) => {
            transaction.to_take_back.push(number);
            take_back(coordination, transaction, context);
            if coordination.is_taking_back() {
                transaction.put_off();
            }
            if coordination.is_taken_back(&mut context.context()) {
                transaction.take_up();
            }
        }
        Heard::TakenBack => {
            if coordination.is_taken_back(&mut context.context()) {
                transaction.take_up();
            }
        }
        Heard::Died(shard, entity, is_exclusive) => return Fate::Died(shard, entity, is_exclusive),
        Heard::Failed(error) => transaction.result = Some(Err(error)),
        Heard::Committed => transaction.is_kept_away = true,
        Heard::Lost => return Fate::IsLost,
    }
    Fate::GoesOn
}

/// Passes a participant's call on, or runs it if its entity is here.
fn pass_on(
    coordination: &mut Coordination,
    transaction: &mut Transaction,
    from: ShardId,
    call: PeerCall,
    context: &mut ExecutionContext<'_, '_>,
) {
    let to = context.rows.shard_of(&call.call.key);
    transaction.call_count += 1;
    transaction.writes_away |= context.world.catalog.kind(call.call.handler) == HandlerKind::Transaction;
    if transaction.call_count > limits::CALLS_PER_TRANSACTION {
        let message = format!("more than {} calls in one transaction", limits::CALLS_PER_TRANSACTION);
        let error = Error::new(ErrorCode::OperationLimit, message);
        return coordination.refuse(from, call.number, error, &mut context.context());
    }
    let begin = begin(&transaction.origin, transaction.program, to, context.world);
    if let Some(call) = coordination.pass_on(from, to, begin, call, &mut context.context()) {
        transaction.note_callers(&call);
        let PeerCall { number, depth, call, .. } = call;
        let parent = Parent::Shard(number);
        transaction.ready.push_back(Action::Call(PendingCall::new(parent, Some(number), depth, call)));
    }
}

/// Takes back what calls did whose callers have failed since, here or there.
pub(super) fn take_back(
    coordination: &mut Coordination,
    transaction: &mut Transaction,
    context: &mut ExecutionContext<'_, '_>,
) {
    while let Some(number) = transaction.to_take_back.pop() {
        if let Effects::Here = coordination.take_back(number, &mut context.context()) {
            transaction.take_up();
            transaction.fail(number, context.world);
        }
    }
}
