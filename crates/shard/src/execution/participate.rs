//! What a coordinator says to this shard as a participant.

use millrace_base::{EntityKey, Error, ErrorCode, Lsn, TransactionId, limits};
use millrace_format::{InvocationResult, Prepared, ResultState, Write};

use super::origin::{Begun, Origin};
use super::transaction::{Action, Parent, PendingCall, Transaction};
use super::{Execution, ExecutionContext, Parked, Role, Suspended};
use crate::context::read_only;
use crate::locks::{Grant, Waiter};
use crate::participation::{FirstMessage, ID_INDEX, Participation, Told, Undecided, VoteRequest, entities_of};
use crate::peer::{Begin, Ordered, PeerBody, PeerCall, ToCoordinator, ToParticipation};

/// A participation that begins, and the transaction of what runs of it here.
fn begin_participation(
    id: TransactionId,
    begin: Begin,
    nonce: u64,
    heard: Ordered<ToParticipation>,
    context: &ExecutionContext<'_, '_>,
) -> (Box<Participation>, Box<Transaction>) {
    let begun = Begun { time: begin.time, began_ms: context.world.monotonic_ms, nonce };
    let origin = Origin::Participation { id, begin, begun };
    let mut transaction = Transaction::new(origin, begin.program, context.world.limits(begin.program));
    transaction.takes_locks = true;
    transaction.is_spread = true;
    let drawn = context.world.entropy.draw(nonce, ID_INDEX);
    (Participation::new(id, drawn, context.rows.shard(), heard), transaction)
}

/// Tells the coordinator what the participation has used of CPU time, before it may go on for that.
pub(super) fn report_spent(
    participation: &mut Participation,
    transaction: &mut Transaction,
    context: &mut ExecutionContext<'_, '_>,
) {
    if let Some(cpu_ns) = transaction.cpu.report() {
        participation.spent(cpu_ns, &mut context.context());
    }
}

/// A call is to run, unless it is one that has taken effect before.
fn take_call(
    participation: &mut Participation,
    transaction: &mut Transaction,
    call: PeerCall,
    context: &mut ExecutionContext<'_, '_>,
) {
    if let Some(field) = &call.once {
        let kept = context.books.results.get(field, context.rows);
        if let Ok(Some(InvocationResult { result: ResultState::Value(output), .. })) = kept {
            transaction.newest_read = transaction.newest_read.max(context.books.results.lsn(context.rows));
            return transaction.ready.push_back(Action::Answer(call.number, Ok(output)));
        }
        participation.keep_at(call.number, field.clone());
    }
    transaction.note_callers(&call);
    let parent = Parent::Shard(call.number);
    let pending = PendingCall::new(parent, Some(call.number), call.depth, call.call);
    transaction.ready.push_back(Action::Call(pending));
}

/// Makes prepared writes, together with what ends or records them.
fn apply(prepared: Prepared, beside: impl IntoIterator<Item = Write>, context: &mut ExecutionContext<'_, '_>) -> Lsn {
    let mut writes = prepared.writes;
    context.books.add_messages(prepared.messages, &mut writes, context.world.now, context.rows);
    writes.extend(beside);
    context.append(writes)
}

impl Execution {
    /// The coordinator says something to its participant here.
    ///
    /// # Panics
    /// When the participation it means is live and neither here nor queued for its first entity.
    pub(super) fn participant_told(
        &mut self,
        id: TransactionId,
        number: u32,
        message: ToParticipation,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        if let Some(nonce) = self.participations.nonce_of(id) {
            if self.parked.contains_key(&nonce) {
                return; // A second copy: the coordinator says nothing new before the first entity is held.
            }
            let (mut participation, transaction) = self.take_participating(nonce);
            participation.hear(number, message);
            return self.participate(participation, transaction, context);
        }
        match self.participations.first_message(id, number, message) {
            FirstMessage::Reserve(begin, entity, is_exclusive) => {
                self.reserve(id, begin, (entity, is_exclusive), context);
            }
            FirstMessage::Call(begin, call, heard) => {
                let nonce = context.world.take_nonce();
                self.participations.begin(id, nonce);
                let (mut participation, mut transaction) = begin_participation(id, begin, nonce, heard, context);
                take_call(&mut participation, &mut transaction, call, context);
                self.participate(participation, transaction, context);
            }
            FirstMessage::None => {}
        }
    }

    /// A suspended transaction in which this shard participates.
    ///
    /// # Panics
    /// When it is not there, or this shard does not participate: its coordinator would wait for ever.
    fn take_participating(&mut self, nonce: u64) -> (Box<Participation>, Box<Transaction>) {
        let participates = |one: &mut Suspended| one.role.participation().is_some();
        let is_there = self.suspended.get_mut(&nonce).is_some_and(participates);
        assert!(is_there, "a live participation is parked, or suspended with its transaction");
        let Suspended { role, transaction, .. } = self.suspended.remove(&nonce).expect("it has just been seen");
        (role.into_participation().expect("it has just been seen"), transaction)
    }

    /// Holds an entity for a transaction that is to start when it has it.
    fn reserve(
        &mut self,
        id: TransactionId,
        begin: Begin,
        (entity, is_exclusive): (EntityKey, bool),
        context: &mut ExecutionContext<'_, '_>,
    ) {
        if self.locks.queued(&entity) >= limits::ENTITY_QUEUE {
            let error = Error::new(ErrorCode::Overloaded, "too many calls wait for an entity");
            let message = context.rows.about(id, PeerBody::Lost(error));
            return context.world.outputs.peer(id.coordinator, message);
        }
        let nonce = context.world.take_nonce();
        self.participations.begin(id, nonce);
        if self.locks.check(&entity, nonce, begin.age, is_exclusive, false) == Grant::Free {
            self.reserved((id, begin, nonce), entity, is_exclusive, context);
        } else {
            self.locks.queue(&entity, Waiter::new(nonce, begin.age, is_exclusive));
            let begun = Begun { time: begin.time, began_ms: context.world.monotonic_ms, nonce };
            let origin = Origin::Participation { id, begin, begun };
            let deadline_ms = u64::MAX;
            self.parked.insert(nonce, Parked { origin, entity, is_exclusive, deadline_ms, away: None });
        }
    }

    /// The entity that a participation was to hold first is free.
    pub(super) fn reserved(
        &mut self,
        (id, begin, nonce): (TransactionId, Begin, u64),
        entity: EntityKey,
        is_exclusive: bool,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        self.locks.take(&entity, nonce, begin.age, is_exclusive);
        let heard = Ordered::after_first();
        let (mut participation, mut transaction) = begin_participation(id, begin, nonce, heard, context);
        transaction.held.push(entity);
        participation.reserved(&mut context.context());
        self.participate(participation, transaction, context);
    }

    /// Does what the coordinator has said, and goes on.
    fn participate(
        &mut self,
        mut participation: Box<Participation>,
        mut transaction: Box<Transaction>,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        while let Some(message) = participation.next() {
            match participation.act_on(message) {
                Told::NothingToDo => {}
                Told::Call(call) => take_call(&mut participation, &mut transaction, call, context),
                Told::Ended(number, result) => transaction.away_ended(number, result),
                Told::TakenBack => transaction.take_up(),
                Told::TakeBack(number) => {
                    transaction.take_up();
                    transaction.fail(number, context.world);
                    // Some of them may have waited behind what has ended just now.
                    transaction.take_up_put_aside();
                    while let Some(number) = transaction.to_take_back.pop() {
                        participation.take_back(number, &mut context.context());
                    }
                    if participation.is_taking_back() {
                        transaction.put_off();
                    }
                    participation.taken_back(&mut context.context());
                }
            }
        }
        self.drive(Role::Participant(participation), transaction, context);
    }

    /// Nothing of a participation can go on now: prepares it if it was asked to and is at rest, or keeps
    /// it, with everything it has touched.
    pub(super) fn rest(
        &mut self,
        mut participation: Box<Participation>,
        transaction: Box<Transaction>,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        if participation.is_lingering() && !transaction.is_put_off() {
            participation.report_over(|number| transaction.runs_for(number), &mut context.context());
        }
        match participation.vote_request() {
            Some(request) if transaction.is_quiet() => {
                if has_taken_effect(&participation, context) {
                    let message = "the call has taken effect meanwhile: made again, it is answered with the result";
                    let error = Error::new(ErrorCode::Overloaded, message);
                    self.fail_participation(participation, &transaction, error, context);
                } else if transaction.has_effects() {
                    self.prepare(participation, transaction, request, context);
                } else {
                    self.vote_read_only(participation, transaction, request.lets_go(), context);
                }
            }
            _ => self.suspend(Role::Participant(participation), transaction, context),
        }
    }

    /// Votes for a participation that has only read. What it has read stays held until the decision, unless
    /// nobody writes anything. Let go of earlier, it could be written and answered while a query elsewhere still
    /// sees the state before this transaction.
    fn vote_read_only(
        &mut self,
        mut participation: Box<Participation>,
        transaction: Box<Transaction>,
        has_let_go: bool,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let read_lsn = self.read_lsn(&transaction, context);
        let (id, vote) = (participation.transaction(), participation.vote_read_only(has_let_go, context.rows));
        if has_let_go {
            self.participations.end(id);
            self.give_up_locks(&transaction);
        } else {
            for entity in &transaction.held {
                self.locks.mark_wants_nothing(entity, transaction.nonce());
            }
            let (role, deadline_ms) = (Role::Participant(participation), u64::MAX);
            self.suspended.insert(transaction.nonce(), Suspended { role, transaction, deadline_ms });
        }
        context.context().tell(id.coordinator, vote, read_lsn);
    }

    fn prepare(
        &mut self,
        mut participation: Box<Participation>,
        mut transaction: Box<Transaction>,
        request: VoteRequest,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let (id, nonce) = (participation.transaction(), transaction.nonce());
        self.participations.end(id);
        if context.world.is_read_only {
            let read_lsn = self.read_lsn(&transaction, context);
            self.give_up_locks(&transaction);
            let vote = participation.message(ToCoordinator::Failed(read_only()), context.rows);
            return context.context().tell(id.coordinator, vote, read_lsn);
        }
        let writes = transaction.take_writes();
        let messages = super::commit::message_records(&transaction, context);
        let mut prepared = Prepared { writes, messages, reads: Vec::new() };
        if participation.may_commit_alone(request, context.world.monotonic_ms) {
            self.give_up_locks(&transaction);
            return self.commit_alone(participation, prepared, context);
        }
        if context.rows.options().hold_ms.is_some() {
            let written = entities_of(&prepared);
            prepared.reads = transaction.held.iter().filter(|entity| !written.contains(entity)).cloned().collect();
        }
        let row = self.participations.row(id, &prepared);
        // The log must never hold two rows that write one entity: a restart holds what they write.
        self.participations.delete_leftover_rows(&mut context.context());
        let lsn = context.append(vec![row]);
        let mut held = std::mem::take(&mut transaction.held);
        for entity in entities_of(&prepared) {
            self.locks.hold(&entity, nonce, transaction.age(), true);
            self.locks.mark_prepared(&entity);
            held.push(entity);
        }
        held.sort();
        held.dedup();
        self.participations.prepared(id, Undecided::new(nonce, held, prepared));
        let vote = participation.message(ToCoordinator::Prepared, context.rows);
        context.context().tell_in_log_order(id.coordinator, vote, lsn);
    }

    /// Commits a transaction in which nobody else has anything to write.
    fn commit_alone(
        &mut self,
        mut participation: Box<Participation>,
        prepared: Prepared,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let id = participation.transaction();
        // The result of a workflow's call is kept until the workflow has noted it.
        let kept = participation.take_kept().map(|(field, output)| {
            let expires = context.world.now.plus(limits::ONCE_RETENTION_MS);
            let result = ResultState::Value(output);
            context.books.results.write(field, &InvocationResult { expires, fingerprint: 0, result })
        });
        let alone = context.rows.options().hold_ms.map(|_| self.participations.alone().row(id));
        let is_noted = alone.is_some();
        let lsn = apply(prepared, kept.into_iter().chain(alone), context);
        if is_noted {
            self.participations.alone().committed(id, lsn);
        }
        let vote = participation.message(ToCoordinator::Committed, context.rows);
        context.context().tell(id.coordinator, vote, lsn);
    }

    /// Deletes results that workflows have noted.
    pub(super) fn forget_kept(&mut self, context: &mut ExecutionContext<'_, '_>) {
        if !context.world.is_read_only {
            let fields = self.participations.take_forgotten().into_iter();
            let writes = fields.map(|field| context.books.results.deletion(field)).collect();
            context.context().append_any(writes);
        }
    }

    /// The transaction is committed.
    pub(super) fn participant_told_commit(&mut self, id: TransactionId, context: &mut ExecutionContext<'_, '_>) {
        if context.world.is_read_only && self.participations.is_undecided(id) {
            return; // Told again, until there is space.
        }
        if let Some((undecided, row)) = self.participations.committed(id) {
            let (prepared, nonce, held) = undecided.into_parts();
            apply(prepared, Some(row), context);
            self.give_up_held(nonce, &held);
        }
        // Begun by a second copy of a message, after what it should have begun had ended.
        if let Some((_, transaction)) = self.end_participation(id) {
            transaction.drop_activations(context.world);
        }
        // If it was applied before, that may not be durable yet.
        let (lsn, durable) = (context.rows.lsn(), context.rows.durable_towards(id.coordinator));
        confirm_end(id, if lsn <= durable { Lsn::ZERO } else { lsn }, context);
    }

    /// The transaction is aborted.
    pub(super) fn participant_told_abort(
        &mut self,
        id: TransactionId,
        (is_answered, heard): (bool, Option<u64>),
        context: &mut ExecutionContext<'_, '_>,
    ) {
        // What the coordinator has heard may be lost with the shard's memory, and must not be told to anybody.
        let is_of_earlier = heard.is_some_and(|incarnation| incarnation != context.rows.options().incarnation);
        // What it may have read, if it has ended by itself, is not known any more: some of all.
        let mut depends_on = context.rows.lsn();
        self.participations.forget_unbegun(id);
        if let Some((mut participation, transaction)) = self.end_participation(id) {
            depends_on = self.read_lsn(&transaction, context);
            transaction.drop_activations(context.world);
            if !is_answered {
                participation.given_up(&mut context.context());
            }
        } else if let Some(undecided) = self.participations.aborted(id) {
            let (_, nonce, held) = undecided.into_parts();
            self.give_up_held(nonce, &held);
            self.participations.delete_leftover_rows(&mut context.context());
        }
        if is_answered && !is_of_earlier {
            confirm_end(id, depends_on, context);
        }
    }

    /// The coordinator asks a decision back that it has delegated.
    pub(super) fn participant_told_recall(&mut self, id: TransactionId, context: &mut ExecutionContext<'_, '_>) {
        let fails_alone = context.rows.options().hold_ms.is_some();
        if let Some(lsn) = self.participations.alone().entry_of(id) {
            let message = context.rows.about(id, PeerBody::CommittedAlone);
            return context.context().tell(id.coordinator, message, lsn);
        }
        if let Some((mut participation, transaction)) = self.end_participation(id) {
            transaction.drop_activations(context.world);
            if !fails_alone {
                participation.given_up(&mut context.context());
            }
        }
        // A coordinator that asks a decision back does not decide that itself, whatever is prepared here.
        if fails_alone {
            confirm_end(id, Lsn::ZERO, context);
        }
    }

    /// Ends a participation that runs, waits or queues for its first entity, and lets go of all it holds.
    /// Comes back if it had begun.
    pub(super) fn end_participation(&mut self, id: TransactionId) -> Option<(Box<Participation>, Box<Transaction>)> {
        let nonce = self.participations.nonce_of(id)?;
        if let Some(parked) = self.parked.remove(&nonce) {
            self.participations.end(id);
            self.give_up_held(nonce, [&parked.entity]);
            return None;
        }
        let (participation, transaction) = self.take_participating(nonce);
        self.participations.end(id);
        self.give_up_locks(&transaction);
        Some((participation, transaction))
    }

    /// A call failed that nobody awaited: the whole transaction has failed.
    pub(super) fn fail_participation(
        &mut self,
        mut participation: Box<Participation>,
        transaction: &Transaction,
        error: Error,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let read_lsn = self.read_lsn(transaction, context);
        transaction.drop_activations(context.world);
        self.give_up_locks(transaction);
        let (id, message) =
            (participation.transaction(), participation.message(ToCoordinator::Failed(error), context.rows));
        self.participations.end(id);
        context.context().tell(id.coordinator, message, read_lsn);
    }
}

/// Whether a workflow's call has been committed by another participation while this one ran: the workflow's shard was
/// opened anew, and has made the call again before the first one was over.
fn has_taken_effect(participation: &Participation, context: &mut ExecutionContext<'_, '_>) -> bool {
    let ExecutionContext { books, rows, .. } = context;
    participation.kept_at().is_some_and(|field| !matches!(books.results.get(field, rows), Ok(None)))
}

fn confirm_end(id: TransactionId, depends_on: Lsn, context: &mut ExecutionContext<'_, '_>) {
    let message = context.rows.about(id, PeerBody::Ended);
    context.context().tell(id.coordinator, message, depends_on);
}
