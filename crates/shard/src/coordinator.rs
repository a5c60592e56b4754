//! The home's part in a transaction over several shards: it passes calls on, starts the
//! transaction again when a branch has to give way, and decides.
//!
//! Commit is two-phase with presumed abort. Participants vote once they have run and are durable;
//! the home's entry that holds its own writes, the reply and the messages also holds the
//! *decision*, and is what commits the transaction. Nothing is noted of a transaction that
//! aborts: whoever asks for one that the home does not know is told so. A decision is deleted
//! when every participant has confirmed that it has applied its part durably. The tables of
//! states are in `docs/internals/transactions.md`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use millrace_base::{
    EntityKey, Error, ErrorCode, Lsn, ShardId, TransactionId, UnixMillis, Value, ValueKind, limits, shard_of_key,
};
use millrace_format::{Decision, Write};
use millrace_func::{HandlerKind, Output, Program};
use millrace_store::StoreError;

use crate::held::Leaving;
use crate::participant::{Participant, Vote};
use crate::peer::{Begin, CallNumber, FromBranch, PeerBody, PeerCall, PeerMessage, ToBranch, ToHome};
use crate::request::Origin;
use crate::shard::{Parked, Shard, Suspended};
use crate::transaction::{Action, AwayCall, Parent, PendingCall, Role, Transaction};
use crate::world::World;

/// The random bits of branches come from indices that the home's own functions never reach.
const SEED_INDEX: u32 = 1 << 31;

/// Decisions deleted in one entry.
const FORGET_AT_ONCE: usize = 1024;

/// What the home knows of one run of a transaction.
pub(crate) struct Coordination {
    pub id: TransactionId,
    participants: BTreeMap<ShardId, Participant>,
    calls: BTreeMap<CallNumber, PassedOn>,
    open_calls: usize,
    /// Participants' answers that some calls have been taken back, still to come.
    pub taking_back: usize,
    /// Who waits for them, once for each call it wanted taken back.
    wanted_back: Vec<ShardId>,
    /// What is to be done here when nothing is being taken back.
    pub deferred: VecDeque<Action>,
    ending: Option<Ending>,
}

/// A call that the home knows of: its own, or one it passes on.
struct PassedOn {
    to: ShardId,
    /// `None` for the home's own.
    from: Option<ShardId>,
    /// It has not ended, or something it has started has not.
    is_open: bool,
    /// Its end is not the end of what it has started.
    lingers: bool,
    is_taken_back: bool,
}

impl PassedOn {
    fn new(from: Option<ShardId>, to: ShardId) -> Self {
        Self { to, from, is_open: true, lingers: false, is_taken_back: false }
    }
}

/// How the transaction ends once everybody has voted.
enum Ending {
    Commit { output: Output, is_delegated: bool },
    Fail(Error),
}

/// A commit that somebody has yet to confirm.
pub(crate) struct Decided {
    lsn: Lsn,
    waiting: BTreeSet<ShardId>,
    /// Made since the last tick: its participants have hardly had the time to answer.
    is_new: bool,
}

/// What a home remembers beside the transactions that run.
#[derive(Default)]
pub(crate) struct Homes {
    numbered: u64,
    /// The nonce of each live transaction over several shards.
    live: BTreeMap<u64, u64>,
    decisions: BTreeMap<TransactionId, Decided>,
    /// Confirmed by everybody; their rows can go.
    confirmed: Vec<TransactionId>,
}

impl Homes {
    /// Commits not confirmed yet, as after a start.
    pub(crate) fn recover(&mut self, rows: Vec<(Box<[u8]>, Value)>) -> Result<(), StoreError> {
        for (field, value) in rows {
            let id = TransactionId::from_bytes(&field);
            let decision = Decision::decode(value.content());
            let (Some(id), Ok(decision)) = (id, decision) else {
                return Err(StoreError::Corrupt("a decision's row cannot be read".to_owned()));
            };
            let waiting = decision.participants.into_iter().collect();
            self.decisions.insert(id, Decided { lsn: Lsn::ZERO, waiting, is_new: false });
        }
        Ok(())
    }

    /// Decisions that somebody has yet to confirm.
    pub(crate) fn unconfirmed(&self) -> usize {
        self.decisions.len()
    }
}

impl Coordination {
    fn tell(&mut self, to: ShardId, message: ToBranch, world: &mut World<'_>) {
        let participant = self.participants.entry(to).or_default();
        participant.said += 1;
        let body = PeerBody::ToBranch(participant.said, message);
        self.send(to, body, world);
    }

    fn send(&self, to: ShardId, body: PeerBody, world: &mut World<'_>) {
        world.outputs.peer(to, PeerMessage { from: self.id.home, transaction: self.id, body });
    }

    /// Whether some other shard has yet to do something before the transaction can end.
    pub(crate) fn is_waiting(&self) -> bool {
        self.open_calls > 0 || self.taking_back > 0
    }

    pub(crate) fn has_participants(&self) -> bool {
        !self.participants.is_empty()
    }

    /// Whether it has told everybody that it is aborted. What a participant says then, except that
    /// it has ended, means nothing any more.
    fn is_failing(&self) -> bool {
        matches!(self.ending, Some(Ending::Fail(_)))
    }

    /// Whether it has asked for votes.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether the decision is another shard's: nobody here can say any more that it is aborted.
    pub(crate) fn is_delegated(&self) -> bool {
        matches!(self.ending, Some(Ending::Commit { is_delegated: true, .. }))
    }

    fn vote(&mut self, from: ShardId, vote: Vote) {
        if let Some(participant) = self.participants.get_mut(&from) {
            participant.vote.get_or_insert(vote);
        }
    }

    fn has_voted(&self, shard: ShardId) -> bool {
        self.participants.get(&shard).is_none_or(|participant| participant.vote.is_some())
    }

    fn close(&mut self, number: CallNumber) {
        if let Some(call) = self.calls.get_mut(&number)
            && std::mem::take(&mut call.is_open)
        {
            self.open_calls -= 1;
        }
    }
}

/// What a participant's message means for the whole transaction.
enum Heard {
    GoOn,
    /// It has to start again, when this entity of that shard is free.
    Died(ShardId, EntityKey, bool),
}

impl Shard {
    fn new_coordination(&mut self, nonce: u64) -> Box<Coordination> {
        self.homes.numbered += 1;
        let number = self.homes.numbered;
        self.homes.live.insert(number, nonce);
        let id = TransactionId { home: self.options.shard, incarnation: self.options.incarnation, number };
        Box::new(Coordination {
            id,
            participants: BTreeMap::new(),
            calls: BTreeMap::new(),
            open_calls: 0,
            taking_back: 0,
            wanted_back: Vec::new(),
            deferred: VecDeque::new(),
            ending: None,
        })
    }

    /// Makes a call to an entity of another shard, or asks the home to.
    pub(crate) fn call_away(
        &mut self,
        transaction: &mut Transaction,
        to: ShardId,
        pending: PendingCall,
        world: &mut World<'_>,
    ) {
        if matches!(pending.parent, Parent::Shard(_)) {
            let error = Error::new(ErrorCode::Internal, "a call came to a shard that does not own its entity");
            return transaction.ready.push_back(Action::answer(pending.parent, Err(error)));
        }
        let number = world.take_nonce();
        let awaited_by = Some(pending.parent);
        transaction.away.push(AwayCall { number, owner: pending.owner, awaited_by });
        transaction.writes_away |= world.catalog.kind(pending.call.handler) == HandlerKind::Transaction;
        let once = transaction.origin.once_field(self.options.shard);
        let call = PeerCall { number, depth: pending.depth, call: pending.call, once };
        if let Role::Branch(branch) = &mut transaction.role {
            return branch.tell(ToHome::Call(call), world);
        }
        if matches!(transaction.role, Role::Alone) {
            transaction.role = Role::Home(self.new_coordination(transaction.nonce()));
        }
        let begin = begin(&transaction.origin, transaction.program, to, world);
        if let Role::Home(home) = &mut transaction.role {
            home.open_calls += 1;
            home.calls.insert(number, PassedOn::new(None, to));
            home.tell(to, ToBranch::Call(begin, call), world);
        }
    }

    /// Tells another shard what its call to this one gave.
    pub(crate) fn answer_away(
        &mut self,
        transaction: &mut Transaction,
        number: CallNumber,
        result: Result<Bytes, Error>,
        world: &mut World<'_>,
    ) {
        let lingers = result.is_ok() && transaction.runs_for(number);
        match &mut transaction.role {
            Role::Branch(branch) => {
                if lingers {
                    branch.lingers(number, world);
                }
                branch.answer(number, result, world);
            }
            Role::Home(home) => {
                home.close(number);
                if let Some(from) = home.calls.get(&number).and_then(|call| call.from) {
                    home.tell(from, ToBranch::Result(number, result), world);
                }
            }
            Role::Alone => {}
        }
    }

    /// Has other shards take back what calls did whose callers have failed since. Until they have,
    /// nothing goes on here: who caught the failure must not see what is being taken back.
    pub(crate) fn take_back_away(&mut self, transaction: &mut Transaction, world: &mut World<'_>) {
        while let Some(number) = transaction.to_take_back.pop() {
            match &mut transaction.role {
                Role::Branch(branch) => {
                    branch.taking_back += 1;
                    branch.tell(ToHome::TakeBack(number), world);
                }
                Role::Home(home) => {
                    home.close(number);
                    let (own, call) = (home.id.home, home.calls.get_mut(&number));
                    let Some(call) = call.filter(|call| !call.is_taken_back) else {
                        continue;
                    };
                    call.is_taken_back = true;
                    let to = call.to;
                    if to == own {
                        transaction.take_up();
                        transaction.fail(number, world);
                    } else {
                        home.taking_back += 1;
                        home.tell(to, ToBranch::TakeBack(number), world);
                    }
                }
                Role::Alone => {}
            }
        }
        transaction.put_off();
    }

    /// Everything has run: asks every participant to make its part durable. The transaction goes
    /// on when all of them have answered.
    pub(crate) fn ask_for_votes(
        &mut self,
        mut transaction: Box<Transaction>,
        result: Result<Output, Error>,
        world: &mut World<'_>,
    ) {
        // What a workflow's call gives is journalled here, but kept over there as well.
        let is_bare = !transaction.has_effects() && transaction.origin.info().idempotency_key.is_none();
        // What it has read here may have gone into what the other shard writes: that must not
        // survive a crash which this does not.
        let has_durable_reads = self.read_lsn(&transaction) <= self.durable;
        let is_noted_here = match transaction.origin {
            Origin::Message { .. } => true,
            // One that has run here runs here again after a crash, perhaps otherwise.
            Origin::Step { .. } => !transaction.touched.is_empty(),
            _ => false,
        };
        let may_delegate = is_bare && has_durable_reads && !is_noted_here;
        let is_query = transaction.is_query();
        let Role::Home(home) = &mut transaction.role else {
            return;
        };
        let shards: Vec<ShardId> = home.participants.keys().copied().collect();
        let is_delegated = may_delegate && shards.len() == 1;
        for shard in shards {
            match &result {
                Ok(_) => {
                    let life = home.participants.get(&shard).and_then(|participant| participant.life);
                    let life = life.unwrap_or_default();
                    home.tell(shard, ToBranch::Prepare { life, is_delegated, is_query }, world);
                }
                Err(_) => home.send(shard, PeerBody::Abort { is_answered: true }, world),
            }
        }
        match result {
            Ok(output) => {
                home.ending = Some(Ending::Commit { output, is_delegated });
                let nonce = transaction.nonce();
                self.suspend(transaction, world);
                for entity in self.suspended.get(&nonce).into_iter().flat_map(|one| &one.transaction.held) {
                    self.locks.mark_wants_nothing(entity, nonce);
                }
            }
            Err(error) => {
                home.ending = Some(Ending::Fail(error));
                transaction.takes_locks = true;
                self.end_frames(&mut transaction, world);
                let deadline = Self::deadline(&transaction.origin, world);
                self.suspended.insert(transaction.nonce(), Suspended { transaction, deadline });
            }
        }
    }

    /// Nothing of the transaction runs any more, and it holds nothing.
    fn end_frames(&mut self, transaction: &mut Transaction, world: &mut World<'_>) {
        self.drop_frames(transaction, world);
        self.give_up_locks(transaction);
        transaction.frames.clear();
        transaction.ready.clear();
        transaction.outside.clear();
        transaction.blocked.clear();
        transaction.held.clear();
    }

    /// Gives up this run of a transaction everywhere else.
    pub(crate) fn abandon(&mut self, home: &Coordination, world: &mut World<'_>) {
        self.homes.live.remove(&home.id.number);
        for (shard, participant) in &home.participants {
            if participant.vote != Some(Vote::Gone) {
                home.send(*shard, PeerBody::Abort { is_answered: false }, world);
            }
        }
    }

    /// Starts a transaction again once it holds `entity` of another shard.
    fn park_away(
        &mut self,
        origin: Origin,
        program: Program,
        (to, entity, is_exclusive): (ShardId, EntityKey, bool),
        world: &mut World<'_>,
    ) {
        let nonce = origin.info().nonce;
        let begin = begin(&origin, program, to, world);
        let mut home = self.new_coordination(nonce);
        home.tell(to, ToBranch::Reserve { begin, entity: entity.clone(), is_exclusive }, world);
        let deadline = Self::deadline(&origin, world);
        self.parked.insert(nonce, Parked { origin, entity, is_exclusive, deadline, away: Some(home) });
    }

    /// A participant says something to the home.
    pub(crate) fn home_heard(
        &mut self,
        from: ShardId,
        id: TransactionId,
        number: u32,
        said: FromBranch,
        world: &mut World<'_>,
    ) {
        let Some(nonce) = self.live_nonce(id) else {
            return;
        };
        if let Some(parked) = self.parked.remove(&nonce) {
            return self.parked_heard(parked, from, number, said, world);
        }
        let Some(Suspended { mut transaction, deadline }) = self.suspended.remove(&nonce) else {
            return;
        };
        if let Role::Home(home) = &mut transaction.role
            && !home.is_failing()
            && let Some(participant) = home.participants.get_mut(&from)
        {
            let end_of_another = participant.hear(number, said);
            // Once votes are asked for, the branch that is listened to has answered everything.
            match end_of_another.filter(|_| !home.is_ending()) {
                Some(ToHome::Died { entity, is_exclusive }) => {
                    return self.start_again_at(transaction, (from, entity, is_exclusive), world);
                }
                Some(ToHome::Failed(error)) => transaction.result = Some(Err(error)),
                _ => {}
            }
        }
        while let Role::Home(home) = &mut transaction.role
            && let Some(message) = home.participants.get_mut(&from).and_then(|participant| participant.heard.next())
        {
            if let Heard::Died(shard, entity, is_exclusive) = self.act_on(&mut transaction, from, message, world) {
                return self.start_again_at(transaction, (shard, entity, is_exclusive), world);
            }
        }
        self.go_on(transaction, deadline, world);
    }

    fn live_nonce(&self, id: TransactionId) -> Option<u64> {
        let is_own = id.home == self.options.shard && id.incarnation == self.options.incarnation;
        is_own.then(|| self.homes.live.get(&id.number).copied()).flatten()
    }

    /// Runs what can be run, or ends what has been voted on.
    fn go_on(&mut self, mut transaction: Box<Transaction>, deadline: UnixMillis, world: &mut World<'_>) {
        let Role::Home(home) = &mut transaction.role else {
            return self.drive(transaction, world);
        };
        if matches!(transaction.result, Some(Err(_))) || home.ending.is_none() {
            // A vote that was asked for meanwhile is void.
            home.ending = None;
            return self.drive(transaction, world);
        }
        let is_decided = home.participants.values().all(|participant| participant.vote.is_some());
        match home.ending.take() {
            Some(ending) if is_decided => self.conclude(transaction, ending, world),
            ending => {
                home.ending = ending;
                self.suspended.insert(transaction.nonce(), Suspended { transaction, deadline });
            }
        }
    }

    fn parked_heard(
        &mut self,
        mut parked: Parked,
        from: ShardId,
        number: u32,
        said: FromBranch,
        world: &mut World<'_>,
    ) {
        let next = parked.away.as_mut().and_then(|home| {
            let participant = home.participants.get_mut(&from)?;
            participant.hear(number, said);
            participant.heard.next()
        });
        match next {
            Some(ToHome::Reserved) => self.unpark_away(parked, world),
            Some(ToHome::Failed(error)) => self.give_up_parked(parked, error, world),
            _ => {
                self.parked.insert(parked.origin.info().nonce, parked);
            }
        }
    }

    /// Ends a transaction that never got to start.
    pub(crate) fn give_up_parked(&mut self, parked: Parked, error: Error, world: &mut World<'_>) {
        match &parked.away {
            Some(home) => self.abandon(home, world),
            None => {
                self.give_up_held(parked.origin.info().nonce, [&parked.entity]);
            }
        }
        self.fail_origin(parked.origin, error, world);
    }

    fn unpark_away(&mut self, mut parked: Parked, world: &mut World<'_>) {
        let Some(home) = parked.away.take() else {
            return;
        };
        if let Err(Role::Home(home)) = self.starts_again(parked.origin, Vec::new(), Role::Home(home), world) {
            self.abandon(&home, world);
        }
    }

    fn start_again_at(
        &mut self,
        mut transaction: Box<Transaction>,
        place: (ShardId, EntityKey, bool),
        world: &mut World<'_>,
    ) {
        self.drop_frames(&transaction, world);
        self.give_up_locks(&transaction);
        if let Role::Home(home) = std::mem::replace(&mut transaction.role, Role::Alone) {
            self.abandon(&home, world);
        }
        let program = transaction.program;
        self.park_away(transaction.into_origin(), program, place, world);
    }

    fn act_on(
        &mut self,
        transaction: &mut Transaction,
        from: ShardId,
        message: ToHome,
        world: &mut World<'_>,
    ) -> Heard {
        match message {
            ToHome::Call(call) => self.pass_on(transaction, from, call, world),
            ToHome::Result(number, result) => passed_back(transaction, number, result, world),
            ToHome::Lingers(number) => linger(transaction, number),
            ToHome::Over(number) => {
                if let Role::Home(home) = &mut transaction.role {
                    home.close(number);
                }
            }
            ToHome::TakeBack(number) => {
                if let Role::Home(home) = &mut transaction.role {
                    home.wanted_back.push(from);
                }
                transaction.to_take_back.push(number);
                self.take_back_away(transaction, world);
                taken_back(transaction, world);
            }
            ToHome::TakenBack => {
                if let Role::Home(home) = &mut transaction.role {
                    home.taking_back = home.taking_back.saturating_sub(1);
                }
                taken_back(transaction, world);
            }
            ToHome::Died { entity, is_exclusive } => {
                vote(transaction, from, Vote::Gone);
                return Heard::Died(from, entity, is_exclusive);
            }
            ToHome::Failed(error) => participant_failed(transaction, from, error),
            ToHome::Prepared => vote(transaction, from, Vote::Prepared),
            ToHome::ReadOnly { has_let_go: false } => vote(transaction, from, Vote::ReadOnly),
            ToHome::ReadOnly { has_let_go: true } => vote(transaction, from, Vote::Gone),
            ToHome::Committed => {
                transaction.is_kept_away = true;
                vote(transaction, from, Vote::Gone);
            }
            // Heard while parked, or doubled.
            ToHome::Reserved => {}
        }
        Heard::GoOn
    }

    fn pass_on(&mut self, transaction: &mut Transaction, from: ShardId, call: PeerCall, world: &mut World<'_>) {
        let number = call.number;
        let to = shard_of_key(&call.call.key, self.options.shard_count);
        transaction.call_count += 1;
        transaction.writes_away |= world.catalog.kind(call.call.handler) == HandlerKind::Transaction;
        let is_too_many = transaction.call_count > limits::CALLS_PER_TRANSACTION;
        let begin = begin(&transaction.origin, transaction.program, to, world);
        let Role::Home(home) = &mut transaction.role else {
            return;
        };
        if is_too_many {
            let message = format!("more than {} calls in one transaction", limits::CALLS_PER_TRANSACTION);
            let error = Error::new(ErrorCode::OperationLimit, message);
            return home.tell(from, ToBranch::Result(number, Err(error)), world);
        }
        home.open_calls += 1;
        home.calls.insert(number, PassedOn::new(Some(from), to));
        if to == home.id.home {
            let PeerCall { depth, call, .. } = call;
            let parent = Parent::Shard(number);
            transaction.ready.push_back(Action::Call(PendingCall { parent, owner: Some(number), depth, call }));
        } else {
            home.tell(to, ToBranch::Call(begin, call), world);
        }
    }

    /// Everybody has voted.
    fn conclude(&mut self, mut transaction: Box<Transaction>, ending: Ending, world: &mut World<'_>) {
        self.give_up_locks(&transaction);
        let Role::Home(home) = std::mem::replace(&mut transaction.role, Role::Alone) else {
            return;
        };
        self.homes.live.remove(&home.id.number);
        let voted = |vote: Vote| {
            let is_it = move |(_, participant): &(&ShardId, &Participant)| participant.vote == Some(vote);
            home.participants.iter().filter(is_it).map(|(shard, _)| *shard)
        };
        let prepared: Vec<ShardId> = voted(Vote::Prepared).collect();
        match ending {
            Ending::Fail(error) => self.roll_back(transaction, error, world),
            Ending::Commit { output, .. } => {
                let decision = (!prepared.is_empty()).then_some((home.id, &prepared[..]));
                let is_committed = self.commit(transaction, output, decision, world);
                let are_over = prepared.iter().copied().filter(|_| !is_committed).chain(voted(Vote::ReadOnly));
                for shard in are_over {
                    home.send(shard, PeerBody::Abort { is_answered: false }, world);
                }
            }
        }
    }

    /// The write that commits a transaction over several shards.
    pub(crate) fn decision_write(&self, id: TransactionId, participants: &[ShardId]) -> Write {
        let decision = Decision { participants: participants.to_vec() };
        Write {
            entity: self.bookkeeping.decisions.clone(),
            field: id.to_bytes()[..].into(),
            value: Some(Value::new(ValueKind::Bytes, &decision.encode())),
        }
    }

    /// A decision is in the log: tells the participants once it is durable.
    pub(crate) fn decided(&mut self, id: TransactionId, participants: &[ShardId], lsn: Lsn, world: &mut World<'_>) {
        let waiting = participants.iter().copied().collect();
        self.homes.decisions.insert(id, Decided { lsn, waiting, is_new: true });
        for shard in participants {
            let message = self.about(id, PeerBody::Commit);
            let durable = self.durable_towards(*shard);
            self.held.release(Leaving::Peer(*shard, message), lsn, durable, world.outputs);
        }
    }

    /// A participant has no part in a transaction any more.
    pub(crate) fn home_heard_ended(&mut self, from: ShardId, id: TransactionId, world: &mut World<'_>) {
        if let Some(decided) = self.homes.decisions.get_mut(&id) {
            decided.waiting.remove(&from);
            if decided.waiting.is_empty() {
                self.homes.decisions.remove(&id);
                self.homes.confirmed.push(id);
            }
        } else if let Some(nonce) = self.live_nonce(id)
            && let Some(Suspended { mut transaction, deadline }) = self.suspended.remove(&nonce)
        {
            if let Role::Home(home) = &mut transaction.role
                && home.is_failing()
            {
                home.vote(from, Vote::Gone);
            }
            self.go_on(transaction, deadline, world);
        }
    }

    /// A participant's part is lost.
    pub(crate) fn home_heard_lost(&mut self, from: ShardId, id: TransactionId, error: Error, world: &mut World<'_>) {
        let Some(nonce) = self.live_nonce(id) else {
            return;
        };
        if let Some(parked) = self.parked.remove(&nonce) {
            return self.give_up_parked(parked, error, world);
        }
        if let Some(Suspended { mut transaction, deadline }) = self.suspended.remove(&nonce) {
            participant_failed(&mut transaction, from, error);
            self.go_on(transaction, deadline, world);
        }
    }

    /// A participant asks what has become of a transaction. One that neither runs nor is
    /// committed is aborted, and nobody can commit it any more.
    pub(crate) fn home_heard_inquiry(&mut self, from: ShardId, id: TransactionId, world: &mut World<'_>) {
        let body = match self.homes.decisions.get(&id) {
            Some(decided) if decided.lsn <= self.durable => PeerBody::Commit,
            Some(_) => return,
            None if self.live_nonce(id).is_some() => return,
            None => PeerBody::Abort { is_answered: false },
        };
        world.outputs.peer(from, self.about(id, body));
    }

    /// Tells participants again that have not confirmed, and forgets what all have confirmed.
    pub(crate) fn look_after_decisions(&mut self, world: &mut World<'_>) {
        self.recall_delegated(world);
        let own = self.options.shard;
        for (id, decided) in &mut self.homes.decisions {
            if decided.lsn > self.durable || std::mem::take(&mut decided.is_new) {
                continue;
            }
            for shard in &decided.waiting {
                world.outputs.peer(*shard, PeerMessage { from: own, transaction: *id, body: PeerBody::Commit });
            }
        }
        if !world.is_read_only {
            self.forget_confirmed(world);
        }
    }

    /// Asks for decisions back that other shards have not made in time. Who has made one says so;
    /// who has not answers that it has failed.
    fn recall_delegated(&self, world: &mut World<'_>) {
        let now = world.now;
        for suspended in self.suspended.values().filter(|suspended| suspended.deadline <= now) {
            if let Role::Home(home) = &suspended.transaction.role
                && home.is_delegated()
            {
                for shard in home.participants.keys() {
                    home.send(*shard, PeerBody::Abort { is_answered: false }, world);
                }
            }
        }
    }

    /// Deletes the decisions that everybody has confirmed.
    fn forget_confirmed(&mut self, world: &mut World<'_>) {
        while !self.homes.confirmed.is_empty() {
            let count = self.homes.confirmed.len().min(FORGET_AT_ONCE);
            let entity = self.bookkeeping.decisions.clone();
            let write =
                |id: TransactionId| Write { entity: entity.clone(), field: id.to_bytes()[..].into(), value: None };
            let writes: Vec<Write> = self.homes.confirmed.drain(..count).map(write).collect();
            self.append(writes, world);
        }
    }
}

/// A participant has failed, or its shard has stopped.
fn participant_failed(transaction: &mut Transaction, from: ShardId, error: Error) {
    if let Role::Home(home) = &mut transaction.role
        && !home.has_voted(from)
    {
        home.vote(from, Vote::Gone);
        match &mut home.ending {
            // What it has read there may be behind the first error, and may not be durable.
            Some(Ending::Fail(first)) => *first = error,
            _ => transaction.result = Some(Err(error)),
        }
    }
}

fn linger(transaction: &mut Transaction, number: CallNumber) {
    if let Role::Home(home) = &mut transaction.role
        && let Some(call) = home.calls.get_mut(&number)
    {
        call.lingers = true;
    }
}

/// Lets everybody go on once nothing is being taken back any more.
fn taken_back(transaction: &mut Transaction, world: &mut World<'_>) {
    let Role::Home(home) = &mut transaction.role else {
        return;
    };
    if home.taking_back == 0 {
        for shard in std::mem::take(&mut home.wanted_back) {
            home.tell(shard, ToBranch::TakenBack, world);
        }
        transaction.take_up();
    }
}

fn vote(transaction: &mut Transaction, from: ShardId, vote: Vote) {
    if let Role::Home(home) = &mut transaction.role {
        home.vote(from, vote);
    }
}

/// A call to another shard has ended: resumes whoever awaits it, or passes the result on.
fn passed_back(transaction: &mut Transaction, number: CallNumber, result: Result<Bytes, Error>, world: &mut World<'_>) {
    let Role::Home(home) = &mut transaction.role else {
        return;
    };
    if home.calls.get(&number).is_some_and(|call| !call.lingers) {
        home.close(number);
    }
    let Some(call) = home.calls.get(&number).filter(|call| !call.is_taken_back) else {
        return;
    };
    let from = call.from;
    if result.is_err() {
        // Who failed has taken its effects back itself.
        home.calls.remove(&number);
    }
    match from {
        Some(shard) => home.tell(shard, ToBranch::Result(number, result), world),
        None => transaction.away_ended(number, result),
    }
}

/// What a participant is told of a transaction.
fn begin(origin: &Origin, program: Program, to: ShardId, world: &World<'_>) -> Begin {
    let index = SEED_INDEX + u32::from(to.0);
    let seed = match origin.route_key() {
        Some(key) => world.entropy.draw_keyed(key, index),
        None => world.entropy.draw(origin.info().nonce, index),
    };
    Begin { program, time: origin.info().time, age: origin.age(), seed }
}
