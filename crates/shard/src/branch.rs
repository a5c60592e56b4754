//! A participant's part in a transaction over several shards.
//!
//! A branch runs what the home asks for, holds the entities it touches, and waits. Asked to
//! prepare, it writes what it would change as one row of its own, which makes it able to commit
//! whatever happens; from then on only the home can end it, and nobody reads what it has locked.
//! Told to commit, it applies the row and deletes it in one entry.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use millrace_base::{EntityKey, Error, ErrorCode, Lsn, ShardId, TransactionId, UnixMillis, Value, ValueKind, limits};
use millrace_format::{Outcome, OutcomeResult, Prepared, Write};
use millrace_store::StoreError;

use crate::commit::read_only;
use crate::held::Leaving;
use crate::locks::{Grant, Waiter};
use crate::peer::{Begin, CallNumber, FromBranch, Ordered, PeerBody, PeerCall, PeerMessage, ToBranch, ToHome};
use crate::request::{Origin, RequestInfo, Token};
use crate::shard::{Parked, Shard, Suspended};
use crate::transaction::{Action, Parent, PendingCall, Role, Transaction};
use crate::world::World;

/// Transactions of which only later messages have come so far. More are dropped: they fail by
/// their deadline.
const UNBEGUN: usize = 1024;

/// Lives are drawn at an index that no function's random bits come from.
const LIFE_INDEX: u32 = u32::MAX;

/// A branch that runs or waits.
pub(crate) struct Branch {
    id: TransactionId,
    life: u64,
    shard: ShardId,
    heard: Ordered<ToBranch>,
    said: u32,
    /// Calls that have been answered while something they started still ran.
    lingering: Vec<CallNumber>,
    /// What it wanted taken back elsewhere and may still stand there.
    pub taking_back: usize,
    /// What is to be done when nothing is being taken back.
    pub deferred: VecDeque<Action>,
    stage: Stage,
    /// The call of a workflow, where its result is kept, and the result.
    once: Option<(CallNumber, Box<[u8]>, Option<Bytes>)>,
}

/// How near its end a branch is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Runs,
    /// Prepares as soon as nothing of it runs.
    Asked {
        is_delegated: bool,
        is_query: bool,
    },
    /// Has only read, has said so, and holds what it has read.
    Voted,
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
        let said = FromBranch { life: self.life, message };
        PeerMessage { from: self.shard, transaction: self.id, body: PeerBody::ToHome(self.said, said) }
    }

    /// Tells that a call which is answered next has not come to rest.
    pub(crate) fn lingers(&mut self, number: CallNumber, world: &mut World<'_>) {
        self.lingering.push(number);
        self.tell(ToHome::Lingers(number), world);
    }
}

/// A part that is durable, or about to be, and not decided.
struct Undecided {
    /// Holds the locks.
    nonce: u64,
    held: Vec<EntityKey>,
    part: Prepared,
}

/// What a participant remembers.
#[derive(Default)]
pub(crate) struct Branches {
    /// The nonce of each branch that runs, waits, or queues for its first entity.
    live: BTreeMap<TransactionId, u64>,
    undecided: BTreeMap<TransactionId, Undecided>,
    unbegun: BTreeMap<TransactionId, Unbegun>,
    /// Kept results that are not needed any more.
    forgotten: Vec<Box<[u8]>>,
    /// Aborted while the disk was full: their rows are to be deleted.
    leftover_rows: Vec<TransactionId>,
}

#[derive(Default)]
struct Unbegun {
    heard: Ordered<ToBranch>,
    /// It came before the last tick.
    is_old: bool,
}

impl Branches {
    /// Parts whose transactions are not decided yet, as far as this shard knows.
    pub(crate) fn undecided(&self) -> usize {
        self.undecided.len()
    }

    /// The entities that such parts will have written, if they are committed.
    pub(crate) fn undecided_writes(&self) -> impl Iterator<Item = &EntityKey> {
        let writes = self.undecided.values().flat_map(|undecided| &undecided.part.writes);
        writes.filter(|write| write.value.is_some()).map(|write| &write.entity)
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

    /// Whether something that `owner` is answerable for runs here, or waits to.
    pub(crate) fn runs_for(&self, owner: CallNumber) -> bool {
        let is_for = |action: &Action| matches!(action, Action::Call(call) if call.owner == Some(owner));
        self.frames.iter().any(|state| state.owner == Some(owner))
            || self.blocked.iter().any(|(_, call)| call.owner == Some(owner))
            || self.ready.iter().any(is_for)
    }

    /// Puts off whatever is ready while something is being taken back elsewhere.
    pub(crate) fn put_off(&mut self) {
        let (is_waiting, deferred) = match &mut self.role {
            Role::Alone => return,
            Role::Home(home) => (home.taking_back > 0, &mut home.deferred),
            Role::Branch(branch) => (branch.taking_back > 0, &mut branch.deferred),
        };
        if is_waiting {
            deferred.append(&mut self.ready);
        }
    }

    /// Takes up again what was put off.
    pub(crate) fn take_up(&mut self) {
        let deferred = match &mut self.role {
            Role::Alone => return,
            Role::Home(home) => &mut home.deferred,
            Role::Branch(branch) => &mut branch.deferred,
        };
        deferred.append(&mut self.ready);
        std::mem::swap(deferred, &mut self.ready);
    }

    /// Says which calls have come to rest that had not when they were answered.
    fn report_over(&mut self, world: &mut World<'_>) {
        let Role::Branch(branch) = &mut self.role else {
            return;
        };
        if branch.lingering.is_empty() || !branch.deferred.is_empty() {
            return;
        }
        let (lingering, over) =
            std::mem::take(&mut branch.lingering).into_iter().partition(|number| self.runs_for(*number));
        let over: Vec<CallNumber> = over;
        if let Role::Branch(branch) = &mut self.role {
            branch.lingering = lingering;
            for number in over {
                branch.tell(ToHome::Over(number), world);
            }
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
            let held = entities_of(&part);
            for entity in &held {
                self.locks.hold(entity, nonce, (0, 0), true);
                self.locks.mark_prepared(entity);
            }
            self.branches.undecided.insert(id, Undecided { nonce, held, part });
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
        let Unbegun { mut heard, is_old } = self.branches.unbegun.remove(&id).unwrap_or_default();
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
                self.branches.unbegun.insert(id, Unbegun { heard, is_old });
            }
        }
    }

    fn begin_branch(&mut self, id: TransactionId, begin: Begin, world: &mut World<'_>) -> Box<Transaction> {
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

    fn new_branch(&self, origin: Origin, begin: Begin, id: TransactionId, world: &World<'_>) -> Box<Transaction> {
        let mut transaction = Transaction::new(origin, begin.program, world.limits(begin.program));
        transaction.takes_locks = true;
        transaction.role = Role::Branch(Box::new(Branch {
            id,
            life: world.entropy.draw(transaction.nonce(), LIFE_INDEX),
            shard: self.options.shard,
            heard: Ordered::default(),
            said: 0,
            lingering: Vec::new(),
            taking_back: 0,
            deferred: VecDeque::new(),
            stage: Stage::Runs,
            once: None,
        }));
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
            return world.outputs.peer(id.home, self.about(id, PeerBody::Lost(error)));
        }
        let nonce = world.take_nonce();
        self.branches.live.insert(id, nonce);
        let origin = branch_origin(id, begin, nonce);
        if self.locks.check(&entity, nonce, begin.age, is_exclusive, false) == Grant::Free {
            self.reserved(origin, entity, is_exclusive, world);
        } else {
            self.locks.queue(&entity, Waiter { nonce, age: begin.age, is_exclusive, holds_any: false });
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

    fn branch_goes_on(&mut self, mut transaction: Box<Transaction>, world: &mut World<'_>) {
        while let Role::Branch(branch) = &mut transaction.role
            && let Some(message) = branch.heard.next()
        {
            match message {
                ToBranch::Call(_, call) => self.take_call(&mut transaction, call),
                ToBranch::Result(number, result) => transaction.away_ended(number, result),
                ToBranch::TakenBack => {
                    branch.taking_back = branch.taking_back.saturating_sub(1);
                    if branch.taking_back == 0 {
                        transaction.take_up();
                    }
                }
                ToBranch::TakeBack(number) => {
                    transaction.take_up();
                    transaction.fail(number, world);
                    self.take_back_away(&mut transaction, world);
                    if let Role::Branch(branch) = &mut transaction.role {
                        branch.tell(ToHome::TakenBack, world);
                    }
                }
                ToBranch::Prepare { life, is_delegated, is_query } if life == branch.life => {
                    branch.stage = Stage::Asked { is_delegated, is_query };
                }
                // It means another branch, which has ended: this one was begun by a second copy.
                ToBranch::Prepare { .. } => {}
                ToBranch::Reserve { .. } => {}
            }
        }
        self.drive(transaction, world);
    }

    /// Nothing of a branch can go on now: prepares it if it was asked to and is at rest, or keeps
    /// it, with everything it has touched.
    pub(crate) fn rest_branch(&mut self, mut transaction: Box<Transaction>, world: &mut World<'_>) {
        transaction.report_over(world);
        let Role::Branch(branch) = &transaction.role else {
            return;
        };
        match branch.stage {
            Stage::Asked { is_delegated, is_query } if transaction.is_quiet() => {
                if transaction.has_effects() {
                    self.prepare(transaction, is_delegated, world);
                } else {
                    self.vote_read_only(transaction, is_delegated || is_query, world);
                }
            }
            _ => self.suspend(transaction, world),
        }
    }

    /// Votes for a part that has only read. What it has read stays held until the decision, unless
    /// nobody writes anything: a transaction that wrote what this one has read, and was answered,
    /// would else come before a query that still sees what this one is about to change elsewhere.
    fn vote_read_only(&mut self, mut transaction: Box<Transaction>, has_let_go: bool, world: &mut World<'_>) {
        let read_lsn = self.read_lsn(&transaction);
        let Role::Branch(branch) = &mut transaction.role else {
            return;
        };
        branch.stage = Stage::Voted;
        let (id, vote) = (branch.id, branch.message(ToHome::ReadOnly { has_let_go }));
        if has_let_go {
            self.branches.live.remove(&id);
            self.give_up_locks(&transaction);
        } else {
            for entity in &transaction.held {
                self.locks.mark_wants_nothing(entity, transaction.nonce());
            }
            let deadline = UnixMillis(u64::MAX);
            self.suspended.insert(transaction.nonce(), Suspended { transaction, deadline });
        }
        self.held.release(Leaving::Peer(id.home, vote), read_lsn, self.durable, world.outputs);
    }

    fn prepare(&mut self, mut transaction: Box<Transaction>, is_delegated: bool, world: &mut World<'_>) {
        let Role::Branch(mut branch) = std::mem::replace(&mut transaction.role, Role::Alone) else {
            return;
        };
        let (id, nonce) = (branch.id, transaction.nonce());
        self.branches.live.remove(&id);
        if world.is_read_only {
            let read_lsn = self.read_lsn(&transaction);
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
            let kept = kept.map(|(field, output)| self.once_write(field, output, world));
            let lsn = self.apply_part(part, kept, world);
            let vote = branch.message(ToHome::Committed);
            return self.held.release(Leaving::Peer(id.home, vote), lsn, self.durable, world.outputs);
        }
        let row = Write {
            entity: self.bookkeeping.prepared.clone(),
            field: id.to_bytes()[..].into(),
            value: Some(Value::new(ValueKind::Bytes, &part.encode())),
        };
        // The log must never hold two rows that write one entity: a restart holds what they write.
        self.delete_leftover_rows(world);
        let lsn = self.append(vec![row], world);
        let mut held = std::mem::take(&mut transaction.held);
        for entity in entities_of(&part) {
            self.locks.hold(&entity, nonce, transaction.age(), true);
            self.locks.mark_prepared(&entity);
            held.push(entity);
        }
        held.sort();
        held.dedup();
        self.branches.undecided.insert(id, Undecided { nonce, held, part });
        let vote = branch.message(ToHome::Prepared);
        let durable = self.durable_towards(id.home);
        self.held.release(Leaving::Peer(id.home, vote), lsn, durable, world.outputs);
    }

    /// Applies a part, together with what ends or records it.
    fn apply_part(&mut self, part: Prepared, beside: Option<Write>, world: &mut World<'_>) -> Lsn {
        let mut writes = part.writes;
        self.add_records(part.messages, &mut writes);
        writes.extend(beside);
        self.append(writes, world)
    }

    /// Keeps the result of a workflow's call until the workflow has noted it.
    fn once_write(&mut self, field: Box<[u8]>, output: Bytes, world: &World<'_>) -> Write {
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
            self.give_up_held(undecided.nonce, &undecided.held);
        }
        // Begun by a second copy of a message, after what it should have begun had ended.
        if let Some(transaction) = self.end_branch(id) {
            self.drop_frames(&transaction, world);
        }
        // If it was applied before, that may not be durable yet.
        let (lsn, durable) = (self.store.lsn(), self.durable_towards(id.home));
        self.confirm_end(id, if lsn <= durable { Lsn::ZERO } else { lsn }, world);
    }

    fn confirm_end(&mut self, id: TransactionId, depends_on: Lsn, world: &mut World<'_>) {
        let message = self.about(id, PeerBody::Ended);
        self.held.release(Leaving::Peer(id.home, message), depends_on, self.durable, world.outputs);
    }

    /// The transaction is aborted.
    pub(crate) fn branch_heard_abort(&mut self, id: TransactionId, is_answered: bool, world: &mut World<'_>) {
        // What it may have read, if it has ended by itself, is not known any more: some of all.
        let mut depends_on = self.store.lsn();
        self.branches.unbegun.remove(&id);
        if let Some(mut transaction) = self.end_branch(id) {
            depends_on = self.read_lsn(&transaction);
            self.drop_frames(&transaction, world);
            if let Role::Branch(branch) = &mut transaction.role
                && !is_answered
                && branch.stage != Stage::Voted
            {
                // A home that has delegated the decision waits, however late it is.
                let error = Error::new(ErrorCode::WaitLimit, "the call waited too long; nothing took effect");
                branch.tell(ToHome::Failed(error), world);
            }
        } else if let Some(undecided) = self.branches.undecided.remove(&id) {
            self.give_up_held(undecided.nonce, &undecided.held);
            self.branches.leftover_rows.push(id);
            self.delete_leftover_rows(world);
        }
        if is_answered {
            self.confirm_end(id, depends_on, world);
        }
    }

    /// Ends a branch that runs, waits or queues for its first entity, and lets go of all it holds.
    /// Comes back if it had begun.
    fn end_branch(&mut self, id: TransactionId) -> Option<Box<Transaction>> {
        let nonce = self.branches.live.remove(&id)?;
        if let Some(parked) = self.parked.remove(&nonce) {
            self.give_up_held(nonce, [&parked.entity]);
        }
        let Suspended { transaction, .. } = self.suspended.remove(&nonce)?;
        self.give_up_locks(&transaction);
        Some(transaction)
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
    pub(crate) fn fail_branch(&mut self, mut transaction: Box<Transaction>, error: Error, world: &mut World<'_>) {
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
        for id in self.branches.live.keys().chain(self.branches.undecided.keys()) {
            world.outputs.peer(id.home, self.about(*id, PeerBody::Inquire));
        }
        self.branches.unbegun.retain(|_, unbegun| !std::mem::replace(&mut unbegun.is_old, true));
    }

    /// The shard has stopped: whoever waits for it need not wait any longer.
    pub(crate) fn report_lost(&mut self, error: &Error, world: &mut World<'_>) {
        let branches = std::mem::take(&mut self.branches);
        for id in branches.live.into_keys().chain(branches.undecided.into_keys()) {
            world.outputs.peer(id.home, self.about(id, PeerBody::Lost(error.clone())));
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
