//! A participant's part in a transaction over several shards.
//!
//! A branch runs what the home asks for, holds the entities it touches, and waits. Asked to
//! prepare, it writes what it would change as one row of its own, which makes it able to commit
//! whatever happens; from then on only the home can end it, and nobody reads what it has locked.
//! Told to commit, it applies the row and deletes it in one entry.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_base::{EntityKey, Error, ErrorCode, Lsn, ShardId, TransactionId, UnixMillis, Value, ValueKind, limits};
use millrace_format::{Outcome, OutcomeResult, Prepared, Write};
use millrace_store::StoreError;

use crate::commit::read_only;
use crate::held::Leaving;
use crate::locks::{Grant, Waiter};
use crate::peer::{Begin, CallNumber, Ordered, PeerBody, PeerCall, PeerMessage, ToBranch, ToHome};
use crate::request::{Origin, RequestInfo, Token};
use crate::shard::{Parked, Shard, Suspended};
use crate::transaction::{Action, Parent, PendingCall, Role, Transaction};
use crate::world::World;

/// Transactions of which only later messages have come so far. More are dropped: they fail by
/// their deadline.
const UNBEGUN: usize = 1024;

/// A branch that runs or waits.
pub(crate) struct Branch {
    id: TransactionId,
    shard: ShardId,
    heard: Ordered<ToBranch>,
    said: u32,
    /// The home has asked it to prepare; whether it is to commit at once.
    prepare: Option<bool>,
    /// The call of a workflow, where its result is kept, and the result.
    once: Option<(CallNumber, Box<[u8]>, Option<Bytes>)>,
}

impl Branch {
    pub(crate) fn tell(&mut self, message: ToHome, world: &mut World<'_>) {
        let message = self.message(message);
        world.outputs.peer(self.id.home, message);
    }

    /// A call has ended: its result goes to the home, and is kept if it is a workflow's.
    pub(crate) fn answer(&mut self, number: CallNumber, result: Result<Bytes, Error>, world: &mut World<'_>) {
        if let (Some((call, _, kept)), Ok(output)) = (&mut self.once, &result)
            && *call == number
        {
            *kept = Some(output.clone());
        }
        self.tell(ToHome::Result(number, result), world);
    }

    fn message(&mut self, message: ToHome) -> PeerMessage {
        self.said += 1;
        PeerMessage { from: self.shard, transaction: self.id, body: PeerBody::ToHome(self.said, message) }
    }
}

/// A part that is durable, or about to be, and not decided.
struct Undecided {
    /// Holds the locks.
    nonce: u64,
    entities: Vec<EntityKey>,
    part: Prepared,
}

/// What a participant remembers.
#[derive(Default)]
pub(crate) struct Branches {
    /// The nonce of each branch that runs, waits, or queues for its first entity.
    live: BTreeMap<TransactionId, u64>,
    undecided: BTreeMap<TransactionId, Undecided>,
    unbegun: BTreeMap<TransactionId, Ordered<ToBranch>>,
    /// Kept results that are not needed any more.
    forgotten: Vec<Box<[u8]>>,
    /// Aborted while the disk was full: their rows are to be deleted.
    leftover_rows: Vec<TransactionId>,
}

impl Branches {
    /// Parts whose transactions are not decided yet, as far as this shard knows.
    pub(crate) fn undecided(&self) -> usize {
        self.undecided.len()
    }
}

impl Transaction {
    /// A call to another shard has ended: resumes who awaits it.
    pub(crate) fn away_ended(&mut self, number: CallNumber, result: Result<Bytes, Error>) {
        let Some(index) = self.away.iter().position(|call| call.number == number) else {
            return; // Taken back meanwhile.
        };
        let awaited_by = self.away[index].awaited_by.take();
        if result.is_err() {
            self.away.remove(index);
        }
        if let Some(parent) = awaited_by {
            self.ready.push_back(Action::answer(parent, result));
        }
    }
}

impl Shard {
    /// Takes up the parts that were not decided when the last run ended. Their entities are held
    /// before anything else can run.
    pub(crate) fn recover_branches(&mut self, rows: Vec<(Box<[u8]>, Value)>) -> Result<(), StoreError> {
        for (index, (field, value)) in (0u64..).zip(rows) {
            let (Some(id), Ok(part)) = (TransactionId::from_bytes(&field), Prepared::decode(value.content())) else {
                return Err(StoreError::Corrupt("a prepared transaction's row cannot be read".to_owned()));
            };
            // Drivers count nonces from below.
            let nonce = u64::MAX - index;
            let entities = entities_of(&part);
            for entity in &entities {
                self.locks.hold(entity, nonce, (0, 0), true);
                self.locks.mark_prepared(entity);
            }
            self.branches.undecided.insert(id, Undecided { nonce, entities, part });
        }
        Ok(())
    }

    /// The home says something to its branch here.
    pub(crate) fn branch_heard(&mut self, id: TransactionId, number: u32, message: ToBranch, world: &mut World<'_>) {
        if let Some(nonce) = self.branches.live.get(&id) {
            if let Some(Suspended { mut transaction, .. }) = self.suspended.remove(nonce) {
                if let Role::Branch(branch) = &mut transaction.role {
                    branch.heard.add(number, message);
                }
                self.branch_goes_on(transaction, world);
            }
            return; // Queued for its first entity: the home says nothing new before it has that.
        }
        let is_known = self.branches.undecided.contains_key(&id);
        let is_full = self.branches.unbegun.len() >= UNBEGUN && number != 1;
        if is_known || is_full {
            return;
        }
        let mut heard = self.branches.unbegun.remove(&id).unwrap_or_default();
        heard.add(number, message);
        match heard.next() {
            Some(ToBranch::Reserve { begin, entity, is_exclusive }) => {
                self.reserve(id, begin, (entity, is_exclusive), world);
            }
            Some(ToBranch::Call(begin, call)) => {
                let mut transaction = self.begin_branch(id, begin, world);
                self.take_call(&mut transaction, call);
                if let Role::Branch(branch) = &mut transaction.role {
                    branch.heard = heard;
                }
                self.branch_goes_on(transaction, world);
            }
            // It begins with neither: a late message of a transaction that has ended here.
            Some(_) => {}
            None => {
                self.branches.unbegun.insert(id, heard);
            }
        }
    }

    fn begin_branch(&mut self, id: TransactionId, begin: Begin, world: &mut World<'_>) -> Transaction {
        let nonce = world.take_nonce();
        self.branches.live.insert(id, nonce);
        self.new_branch(branch_origin(id, begin, nonce), begin, id, world)
    }

    /// A call is to run, unless it is one that has taken effect before.
    fn take_call(&mut self, transaction: &mut Transaction, call: PeerCall) {
        if let Some(field) = &call.once
            && let Role::Branch(branch) = &mut transaction.role
        {
            branch.once = Some((call.number, field.clone(), None));
            if let Ok(Some(Outcome { result: OutcomeResult::Value(output), .. })) = self.outcome(field) {
                transaction.seen = transaction.seen.max(self.store.entity_lsn(&self.bookkeeping.outcomes));
                transaction.ready.push_back(Action::Answer(call.number, Ok(output)));
                return;
            }
        }
        transaction.ready.push_back(pending(call));
    }

    fn new_branch(&self, origin: Origin, begin: Begin, id: TransactionId, world: &World<'_>) -> Transaction {
        let mut transaction = Transaction::new(origin, begin.program, world.limits(begin.program));
        transaction.takes_locks = true;
        let branch =
            Branch { id, shard: self.options.shard, heard: Ordered::default(), said: 0, prepare: None, once: None };
        transaction.role = Role::Branch(Box::new(branch));
        transaction
    }

    /// Holds an entity for a transaction that is to start when it has it.
    fn reserve(
        &mut self,
        id: TransactionId,
        begin: Begin,
        (entity, is_exclusive): (EntityKey, bool),
        world: &mut World<'_>,
    ) {
        if self.locks.queued(&entity) >= limits::ENTITY_QUEUE {
            let error = Error::new(ErrorCode::Overloaded, "too many calls wait for an entity");
            let message = PeerMessage { from: self.options.shard, transaction: id, body: PeerBody::Lost(error) };
            return world.outputs.peer(id.home, message);
        }
        let nonce = world.take_nonce();
        self.branches.live.insert(id, nonce);
        let origin = branch_origin(id, begin, nonce);
        if self.locks.check(&entity, nonce, begin.age, is_exclusive, false) == Grant::Free {
            self.reserved(origin, entity, is_exclusive, world);
        } else {
            self.locks.queue(&entity, Waiter { nonce, age: begin.age, is_exclusive });
            let deadline = UnixMillis(u64::MAX);
            self.parked.insert(nonce, Parked { origin, entity, is_exclusive, deadline, away: None });
        }
    }

    /// The entity that a branch was to hold first is free.
    pub(crate) fn reserved(&mut self, origin: Origin, entity: EntityKey, is_exclusive: bool, world: &mut World<'_>) {
        let Origin::Branch { id, begin, .. } = origin else {
            return;
        };
        let nonce = origin.info().nonce;
        self.locks.take(&entity, nonce, begin.age, is_exclusive);
        let mut transaction = self.new_branch(origin, begin, id, world);
        transaction.held.push(entity);
        if let Role::Branch(branch) = &mut transaction.role {
            branch.heard = Ordered::after_first();
            branch.tell(ToHome::Reserved, world);
        }
        self.branch_goes_on(transaction, world);
    }

    fn branch_goes_on(&mut self, mut transaction: Transaction, world: &mut World<'_>) {
        while let Role::Branch(branch) = &mut transaction.role
            && let Some(message) = branch.heard.next()
        {
            match message {
                ToBranch::Call(_, call) => self.take_call(&mut transaction, call),
                ToBranch::Result(number, result) => transaction.away_ended(number, result),
                ToBranch::TakeBack(number) => {
                    transaction.fail(number, world);
                    self.take_back_away(&mut transaction, world);
                    if let Role::Branch(branch) = &mut transaction.role {
                        branch.tell(ToHome::TakenBack, world);
                    }
                }
                ToBranch::Prepare { is_delegated } => branch.prepare = Some(is_delegated),
                ToBranch::Reserve { .. } => {}
            }
        }
        self.drive(transaction, world);
    }

    /// Nothing of a branch can go on now: prepares it if it was asked to and is at rest, or keeps
    /// it, with everything it has touched.
    pub(crate) fn rest_branch(&mut self, transaction: Transaction, world: &mut World<'_>) {
        let Role::Branch(branch) = &transaction.role else {
            return;
        };
        match branch.prepare {
            Some(is_delegated) if transaction.is_quiet() => self.prepare(transaction, is_delegated, world),
            _ => self.suspend(transaction, world),
        }
    }

    fn prepare(&mut self, mut transaction: Transaction, is_delegated: bool, world: &mut World<'_>) {
        let Role::Branch(mut branch) = std::mem::replace(&mut transaction.role, Role::Alone) else {
            return;
        };
        let (id, nonce) = (branch.id, transaction.nonce());
        self.branches.live.remove(&id);
        let read_lsn = self.read_lsn(&transaction);
        if !transaction.has_effects() {
            self.give_up_locks(&transaction);
            let vote = branch.message(ToHome::ReadOnly);
            return self.held.release(Leaving::Peer(id.home, vote), read_lsn, self.durable, world.outputs);
        }
        if world.is_read_only {
            self.give_up_locks(&transaction);
            let vote = branch.message(ToHome::Failed(read_only()));
            return self.held.release(Leaving::Peer(id.home, vote), read_lsn, self.durable, world.outputs);
        }
        let writes = transaction.take_writes();
        let messages = self.message_records(&transaction, world);
        let part = Prepared { writes, messages };
        if is_delegated {
            self.give_up_locks(&transaction);
            let kept = branch.once.take().and_then(|(_, field, output)| Some((field, output?)));
            let kept = kept.map(|(field, output)| self.once_write(&field, output, world));
            let lsn = self.apply_part(part, kept, world);
            let vote = branch.message(ToHome::Committed);
            return self.held.release(Leaving::Peer(id.home, vote), lsn, self.durable, world.outputs);
        }
        let row = Write {
            entity: self.bookkeeping.prepared.clone(),
            field: id.to_bytes()[..].into(),
            value: Some(Value::new(ValueKind::Bytes, &part.encode())),
        };
        let lsn = self.append(vec![row], world);
        let entities = entities_of(&part);
        for entity in &entities {
            self.locks.hold(entity, nonce, transaction.age(), true);
            self.locks.mark_prepared(entity);
        }
        // What it has only read nobody needs to wait for any more.
        transaction.held.retain(|entity| !entities.contains(entity));
        self.give_up_locks(&transaction);
        self.branches.undecided.insert(id, Undecided { nonce, entities, part });
        let vote = branch.message(ToHome::Prepared);
        self.held.release(Leaving::Peer(id.home, vote), lsn, self.durable, world.outputs);
    }

    /// Applies a part, together with what ends or records it.
    fn apply_part(&mut self, part: Prepared, beside: Option<Write>, world: &mut World<'_>) -> Lsn {
        let mut writes = part.writes;
        self.add_records(part.messages, &mut writes);
        writes.extend(beside);
        self.append(writes, world)
    }

    /// Keeps the result of a workflow's call until the workflow has noted it.
    fn once_write(&mut self, field: &[u8], output: Bytes, world: &World<'_>) -> Write {
        let expires = world.now.plus(limits::ONCE_RETENTION_MS);
        self.outcome_write(field, &Outcome { expires, fingerprint: 0, result: OutcomeResult::Value(output) })
    }

    /// A workflow has noted the result of its call.
    pub(crate) fn branch_heard_forget(&mut self, field: Box<[u8]>) {
        self.branches.forgotten.push(field);
    }

    /// Deletes results that workflows have noted.
    pub(crate) fn forget_noted(&mut self, world: &mut World<'_>) {
        if world.is_read_only || self.branches.forgotten.is_empty() {
            return;
        }
        let entity = self.bookkeeping.outcomes.clone();
        let fields = std::mem::take(&mut self.branches.forgotten).into_iter();
        let writes = fields.map(|field| Write { entity: entity.clone(), field, value: None }).collect();
        self.append(writes, world);
    }

    fn row_deletion(&self, id: TransactionId) -> Write {
        Write { entity: self.bookkeeping.prepared.clone(), field: id.to_bytes()[..].into(), value: None }
    }

    /// The transaction is committed.
    pub(crate) fn branch_heard_commit(&mut self, id: TransactionId, world: &mut World<'_>) {
        if world.is_read_only && self.branches.undecided.contains_key(&id) {
            return; // Told again, until there is space.
        }
        if let Some(undecided) = self.branches.undecided.remove(&id) {
            let row = self.row_deletion(id);
            self.apply_part(undecided.part, Some(row), world);
            self.give_up_held(undecided.nonce, undecided.entities);
        }
        // If it was applied before, that may not be durable yet.
        let lsn = self.store.lsn();
        self.confirm_end(id, lsn, world);
    }

    fn confirm_end(&mut self, id: TransactionId, depends_on: Lsn, world: &mut World<'_>) {
        let message = PeerMessage { from: self.options.shard, transaction: id, body: PeerBody::Ended };
        self.held.release(Leaving::Peer(id.home, message), depends_on, self.durable, world.outputs);
    }

    /// The transaction is aborted.
    pub(crate) fn branch_heard_abort(&mut self, id: TransactionId, is_answered: bool, world: &mut World<'_>) {
        let mut depends_on = Lsn::ZERO;
        self.branches.unbegun.remove(&id);
        if let Some(nonce) = self.branches.live.remove(&id) {
            if let Some(parked) = self.parked.remove(&nonce) {
                self.locks.release(&parked.entity, nonce);
                self.freed.push_back(parked.entity);
            } else if let Some(Suspended { transaction, .. }) = self.suspended.remove(&nonce) {
                depends_on = self.read_lsn(&transaction);
                self.drop_frames(&transaction, world);
                self.give_up_locks(&transaction);
            }
        } else if let Some(undecided) = self.branches.undecided.remove(&id) {
            depends_on = self.store.lsn();
            self.give_up_held(undecided.nonce, undecided.entities);
            self.branches.leftover_rows.push(id);
            self.delete_leftover_rows(world);
        }
        if is_answered {
            self.confirm_end(id, depends_on, world);
        }
    }

    /// Deletes the rows of aborted parts. A row that stays over a restart is asked about again.
    pub(crate) fn delete_leftover_rows(&mut self, world: &mut World<'_>) {
        if !world.is_read_only && !self.branches.leftover_rows.is_empty() {
            let ids = std::mem::take(&mut self.branches.leftover_rows);
            let writes = ids.into_iter().map(|id| self.row_deletion(id)).collect();
            self.append(writes, world);
        }
    }

    /// A call failed that nobody awaited: the whole transaction has failed.
    pub(crate) fn fail_branch(&mut self, mut transaction: Transaction, error: Error, world: &mut World<'_>) {
        let read_lsn = self.read_lsn(&transaction);
        self.drop_frames(&transaction, world);
        self.give_up_locks(&transaction);
        if let Role::Branch(branch) = &mut transaction.role {
            let (id, message) = (branch.id, branch.message(ToHome::Failed(error)));
            self.branches.live.remove(&id);
            self.held.release(Leaving::Peer(id.home, message), read_lsn, self.durable, world.outputs);
        }
    }

    /// A branch lost the race for an entity: its transaction starts again.
    pub(crate) fn branch_dies(
        &mut self,
        branch: &mut Branch,
        entity: EntityKey,
        is_exclusive: bool,
        world: &mut World<'_>,
    ) {
        self.branches.live.remove(&branch.id);
        branch.tell(ToHome::Died { entity, is_exclusive }, world);
    }

    /// Asks the homes of what has been here for a while whether it is still wanted: a home that
    /// was restarted has forgotten what it had not decided.
    pub(crate) fn inquire(&mut self, world: &mut World<'_>) {
        let from = self.options.shard;
        for id in self.branches.live.keys().chain(self.branches.undecided.keys()) {
            world.outputs.peer(id.home, PeerMessage { from, transaction: *id, body: PeerBody::Inquire });
        }
        self.branches.unbegun.clear();
    }

    /// The shard has stopped: whoever waits for it need not wait any longer.
    pub(crate) fn report_lost(&mut self, error: &Error, world: &mut World<'_>) {
        let branches = std::mem::take(&mut self.branches);
        for id in branches.live.into_keys().chain(branches.undecided.into_keys()) {
            let body = PeerBody::Lost(error.clone());
            world.outputs.peer(id.home, PeerMessage { from: self.options.shard, transaction: id, body });
        }
    }
}

fn branch_origin(id: TransactionId, begin: Begin, nonce: u64) -> Origin {
    let info = RequestInfo { token: Token(u64::MAX), time: begin.time, nonce, idempotency_key: None };
    Origin::Branch { id, begin, info }
}

fn pending(call: PeerCall) -> Action {
    let parent = Parent::Shard(call.number);
    Action::Call(PendingCall { parent, owner: Some(call.number), depth: call.depth, call: call.call })
}

/// The entities a part writes, each once.
fn entities_of(part: &Prepared) -> Vec<EntityKey> {
    let mut entities: Vec<EntityKey> = part.writes.iter().map(|write| write.entity.clone()).collect();
    entities.sort();
    entities.dedup();
    entities
}
