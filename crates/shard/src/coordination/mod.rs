//! The coordinator's part in a transaction over several shards: it passes calls on, and decides.
//!
//! Commit is two-phase with presumed abort. Participants vote once they have run and are durable;
//! the coordinator's entry that holds its own writes, the reply and the messages also holds the
//! *decision*, and is what commits the transaction. Nothing is noted of a transaction that
//! aborts: whoever asks for one that the coordinator does not know is told so. A decision is deleted
//! when every participant has confirmed that it has applied its prepared writes durably. The tables of
//! states are in `docs/internals/transactions.md`.
//!
//! [`Coordination`] is one attempt of a transaction as its coordinator sees it. It says what
//! a participant's message means as a value, and the shard does that. [`Coordinator`] is what
//! a shard remembers of all of them (`coordinator.rs`).

mod coordinator;
mod participant;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_base::{EntityKey, Error, ShardId, TransactionId};
use millrace_func::Output;

use crate::context::Context;
use crate::peer::{
    Begin, CallNumber, FromParticipation, PeerBody, PeerCall, PeerMessage, ToCoordinator, ToParticipation,
};
pub(crate) use coordinator::Coordinator;
pub(crate) use participant::Vote;
use participant::{Fate, Participant};

/// One attempt of a transaction, as its coordinator sees it.
pub(crate) struct Coordination {
    id: TransactionId,
    participants: BTreeMap<ShardId, Participant>,
    calls: BTreeMap<CallNumber, PassedOn>,
    open_calls: usize,
    /// Participants' answers that some calls have been taken back, still to come.
    taking_back: usize,
    /// Who waits for them, once for each call it wanted taken back.
    wanted_back: Vec<ShardId>,
    ending: Option<Ending>,
    /// Nobody writes anything.
    is_query: bool,
    /// It has asked a decision back that it had delegated: it decides this attempt no more.
    is_recalled: bool,
}

/// A call that the coordinator knows of: its own, or one it passes on.
struct PassedOn {
    to: ShardId,
    /// `None` for the coordinator's own.
    from: Option<ShardId>,
    /// It has not ended, or something it has started has not.
    is_open: bool,
    /// Its end is not the end of what it has started.
    lingers: bool,
    is_taken_back: bool,
}

/// How the transaction ends once everybody has voted.
pub(crate) enum Ending {
    Commit { output: Output, is_delegated: bool },
    Fail(Error),
}

/// What a participant's message means here.
pub(crate) enum Heard {
    /// Nothing more is to be done.
    NothingToDo,
    /// A participant calls an entity of another shard, or of this one: see [`Coordination::pass_on`].
    Call(PeerCall),
    /// The participant has used so much CPU time.
    Spent(u64),
    /// A call that was made from here has ended.
    Ended(CallNumber, Result<Bytes, Error>),
    /// A participant wants the effects of a call taken back: see [`Coordination::take_back`]. Then it
    /// is to be looked whether everything [`Coordination::is_taken_back`].
    TakeBack(CallNumber),
    /// Something has been taken back. It is to be looked whether everything [`Coordination::is_taken_back`].
    TakenBack,
    /// The attempt has to start again, when this entity of that shard is free.
    Died(ShardId, EntityKey, bool),
    /// The transaction has failed.
    Failed(Error),
    /// A participant has committed alone, and keeps the result.
    Committed,
    /// A participant can never commit this attempt, which has to start again.
    Lost,
}

/// Where the effects of a call are that are to be taken back.
pub(crate) enum Effects {
    /// In this shard.
    Here,
    /// In another shard, which has been told.
    Elsewhere,
    /// Nowhere any more: the call has failed, or is being taken back already.
    Gone,
}

impl Coordination {
    fn new(id: TransactionId) -> Self {
        Self {
            id,
            participants: BTreeMap::new(),
            calls: BTreeMap::new(),
            open_calls: 0,
            taking_back: 0,
            wanted_back: Vec::new(),
            ending: None,
            is_query: false,
            is_recalled: false,
        }
    }

    /// Names the attempt among shards.
    pub(crate) fn id(&self) -> TransactionId {
        self.id
    }

    fn tell(&mut self, to: ShardId, message: ToParticipation, context: &mut Context<'_>) {
        let participant = self.participants.entry(to).or_default();
        participant.said += 1;
        let body = PeerBody::ToParticipation(participant.said, message);
        self.send(to, body, context);
    }

    fn send(&self, to: ShardId, body: PeerBody, context: &mut Context<'_>) {
        context.outputs.peer(to, PeerMessage { from: self.id.coordinator, transaction: self.id, body });
    }

    /// Tells a participant that it is over, and nothing it has yet to apply will be.
    pub(crate) fn end_at(&self, to: ShardId, context: &mut Context<'_>) {
        self.send(to, PeerBody::Abort { is_answered: false, heard: None }, context);
    }

    /// Gives up this attempt everywhere else.
    fn abandon(&self, context: &mut Context<'_>) {
        for (shard, participant) in &self.participants {
            if participant.vote != Some(Vote::Gone) {
                self.end_at(*shard, context);
            }
        }
    }

    /// Asks for the decision back that another shard has not made in time. A shard that has made one says so;
    /// one that has not answers that it has failed.
    pub(crate) fn recall(&mut self, context: &mut Context<'_>) {
        self.is_recalled = true;
        for shard in self.participants.keys() {
            self.send(*shard, PeerBody::Recall, context);
        }
    }

    /// The shard of a participant was `opened` anew: what it had in memory of this attempt is gone. `None`: what was under way
    /// to that shard, and from there, does not arrive. Says whether the attempt has to start again.
    pub(crate) fn loses(&mut self, shard: ShardId, opened: Option<u64>, context: &mut Context<'_>) -> bool {
        let Some(participant) = self.participants.get(&shard) else {
            return false;
        };
        let is_lost = participant.fate(opened) == Fate::IsLost;
        if is_lost && self.is_delegated() {
            self.recall(context);
            return false;
        }
        is_lost
    }

    /// A participant says that it has committed alone. It need not say so any longer.
    pub(crate) fn heard_alone(&mut self, from: ShardId) -> bool {
        let is_awaited = self.is_delegated() && !self.has_voted(from);
        if is_awaited {
            self.vote(from, Vote::Gone);
        }
        is_awaited
    }

    /// Has a participant hold an entity before the transaction starts (again).
    pub(crate) fn reserve(
        &mut self,
        to: ShardId,
        begin: Begin,
        (entity, is_exclusive): (EntityKey, bool),
        context: &mut Context<'_>,
    ) {
        self.tell(to, ToParticipation::Reserve { begin, entity, is_exclusive }, context);
    }

    /// Makes a call of this shard's own to an entity of another one.
    pub(crate) fn call(&mut self, to: ShardId, begin: Begin, call: PeerCall, context: &mut Context<'_>) {
        self.open(call.number, None, to);
        self.tell(to, ToParticipation::Call(begin, call), context);
    }

    /// Passes a participant's call on to the shard of its entity. It comes back if that is this one.
    pub(crate) fn pass_on(
        &mut self,
        from: ShardId,
        to: ShardId,
        begin: Begin,
        call: PeerCall,
        context: &mut Context<'_>,
    ) -> Option<PeerCall> {
        self.open(call.number, Some(from), to);
        if to == self.id.coordinator {
            return Some(call);
        }
        self.tell(to, ToParticipation::Call(begin, call), context);
        None
    }

    /// Refuses a participant's call.
    pub(crate) fn refuse(&mut self, from: ShardId, number: CallNumber, error: Error, context: &mut Context<'_>) {
        self.tell(from, ToParticipation::Result(number, Err(error)), context);
    }

    fn open(&mut self, number: CallNumber, from: Option<ShardId>, to: ShardId) {
        self.open_calls += 1;
        self.calls.insert(number, PassedOn { to, from, is_open: true, lingers: false, is_taken_back: false });
    }

    fn close(&mut self, number: CallNumber) {
        if let Some(call) = self.calls.get_mut(&number)
            && std::mem::take(&mut call.is_open)
        {
            self.open_calls -= 1;
        }
    }

    /// Tells the participant that made a call to this shard what it gave.
    ///
    /// # Panics
    /// When no participant made that call.
    pub(crate) fn answer(&mut self, number: CallNumber, result: Result<Bytes, Error>, context: &mut Context<'_>) {
        self.close(number);
        let from = self.calls.get(&number).and_then(|call| call.from);
        let from = from.expect("a call that is answered to another shard came from one");
        self.tell(from, ToParticipation::Result(number, result), context);
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

    /// Who has cast that vote.
    pub(crate) fn voted(&self, vote: Vote) -> impl Iterator<Item = ShardId> {
        self.participants.iter().filter(move |(_, one)| one.vote == Some(vote)).map(|(shard, _)| *shard)
    }

    /// Has the effects of a call taken back whose caller has failed since.
    pub(crate) fn take_back(&mut self, number: CallNumber, context: &mut Context<'_>) -> Effects {
        self.close(number);
        let Some(call) = self.calls.get_mut(&number).filter(|call| !call.is_taken_back) else {
            return Effects::Gone;
        };
        call.is_taken_back = true;
        let to = call.to;
        if to == self.id.coordinator {
            return Effects::Here;
        }
        self.taking_back += 1;
        self.tell(to, ToParticipation::TakeBack(number), context);
        Effects::Elsewhere
    }

    /// Whether nothing is being taken back elsewhere. Then whoever waits for that is told.
    pub(crate) fn is_taken_back(&mut self, context: &mut Context<'_>) -> bool {
        if self.taking_back > 0 {
            return false;
        }
        for shard in std::mem::take(&mut self.wanted_back) {
            self.tell(shard, ToParticipation::TakenBack, context);
        }
        true
    }

    /// Whether something is being taken back elsewhere: until then nothing goes on here.
    pub(crate) fn is_taking_back(&self) -> bool {
        self.taking_back > 0
    }

    /// Takes in what a participant says. What can be acted on now comes out of [`Coordination::next`]. Says at once
    /// what counts although it comes from a participation that is not listened to.
    pub(crate) fn hear(&mut self, from: ShardId, number: u32, said: FromParticipation) -> Option<Heard> {
        if self.is_failing() {
            return None; // It means nothing any more.
        }
        let is_ending = self.is_ending();
        // A shard that was not asked for anything has nothing to say: its message is about another attempt.
        let end_of_another = self.participants.get_mut(&from)?.hear(number, said);
        // Once votes are asked for, the participation that is listened to has answered everything.
        match end_of_another.filter(|_| !is_ending)? {
            ToCoordinator::Died { entity, is_exclusive } => Some(Heard::Died(from, entity, is_exclusive)),
            ToCoordinator::Failed(error) => Some(Heard::Failed(error)),
            _ => None,
        }
    }

    /// What a participant has said that can be acted on now, in order.
    pub(crate) fn next(&mut self, from: ShardId) -> Option<ToCoordinator> {
        self.participants.get_mut(&from)?.heard.next()
    }

    /// What a participant's message means here.
    pub(crate) fn act_on(&mut self, from: ShardId, message: ToCoordinator, context: &mut Context<'_>) -> Heard {
        match message {
            ToCoordinator::Call(call) => return Heard::Call(call),
            ToCoordinator::Spent(cpu_ns) => return Heard::Spent(cpu_ns),
            ToCoordinator::Result(number, result) => return self.passed_back(number, result, context),
            ToCoordinator::Lingers(number) => {
                if let Some(call) = self.calls.get_mut(&number) {
                    call.lingers = true;
                }
            }
            ToCoordinator::Over(number) => self.close(number),
            ToCoordinator::TakeBack(number) => {
                self.wanted_back.push(from);
                return Heard::TakeBack(number);
            }
            ToCoordinator::TakenBack => {
                self.taking_back = self.taking_back.saturating_sub(1);
                return Heard::TakenBack;
            }
            ToCoordinator::Died { entity, is_exclusive } => {
                self.vote(from, Vote::Gone);
                return Heard::Died(from, entity, is_exclusive);
            }
            ToCoordinator::Failed(error) => return self.failed(from, error),
            ToCoordinator::Prepared if self.is_recalled => return Heard::Lost,
            ToCoordinator::Prepared => self.vote(from, Vote::Prepared),
            ToCoordinator::ReadOnly { has_let_go: false, hold_ms } => {
                self.vote(from, Vote::ReadOnly);
                if let Some(participant) = self.participants.get_mut(&from) {
                    participant.hold_ms = hold_ms;
                }
            }
            ToCoordinator::ReadOnly { has_let_go: true, .. } => self.vote(from, Vote::Gone),
            ToCoordinator::Committed => {
                self.vote(from, Vote::Gone);
                if context.rows.options().hold_ms.is_some() {
                    self.send(from, PeerBody::Heard, context);
                }
                return Heard::Committed;
            }
            // Heard while the transaction was parked, or doubled.
            ToCoordinator::Reserved => {}
        }
        Heard::NothingToDo
    }

    /// A call to another shard has ended: its caller is here, or is told.
    fn passed_back(&mut self, number: CallNumber, result: Result<Bytes, Error>, context: &mut Context<'_>) -> Heard {
        if self.calls.get(&number).is_some_and(|call| !call.lingers) {
            self.close(number);
        }
        let Some(call) = self.calls.get(&number).filter(|call| !call.is_taken_back) else {
            return Heard::NothingToDo; // It was taken back while it ran: nobody waits for its result.
        };
        let from = call.from;
        if result.is_err() {
            // Who failed has taken its effects back itself.
            self.calls.remove(&number);
        }
        match from {
            Some(shard) => {
                self.tell(shard, ToParticipation::Result(number, result), context);
                Heard::NothingToDo
            }
            None => Heard::Ended(number, result),
        }
    }

    /// A participant has failed, or its shard has stopped. Says whether that fails the transaction.
    pub(crate) fn failed(&mut self, from: ShardId, error: Error) -> Heard {
        if self.has_voted(from) {
            return Heard::NothingToDo; // Its vote stands: what it has prepared is durable.
        }
        self.vote(from, Vote::Gone);
        match &mut self.ending {
            // What it has read there may be behind the first error, and may not be durable.
            Some(Ending::Fail(first)) => {
                *first = error;
                Heard::NothingToDo
            }
            _ => Heard::Failed(error),
        }
    }

    /// A participant confirms that it has ended. That is its vote, once it was told to. One whose decision was asked back
    /// has not committed and never will.
    pub(crate) fn heard_ended(&mut self, from: ShardId) -> Heard {
        if self.is_recalled && !self.has_voted(from) {
            return Heard::Lost;
        }
        if self.is_failing() {
            self.vote(from, Vote::Gone);
        }
        Heard::NothingToDo
    }

    /// Everything has run: asks every participant to make its prepared writes durable. `may_delegate`: if there is only
    /// one participant, it may decide alone.
    pub(crate) fn ask_for_votes(
        &mut self,
        result: Result<Output, Error>,
        (may_delegate, is_query): (bool, bool),
        context: &mut Context<'_>,
    ) {
        let shards: Vec<ShardId> = self.participants.keys().copied().collect();
        let is_delegated = may_delegate && shards.len() == 1;
        self.is_query = is_query;
        for shard in shards {
            match &result {
                Ok(_) => self.ask_for_vote(shard, is_delegated, context),
                Err(_) => {
                    let heard = self.participants.get(&shard).and_then(|participant| participant.incarnation);
                    self.send(shard, PeerBody::Abort { is_answered: true, heard }, context);
                }
            }
        }
        self.ending = Some(match result {
            Ok(output) => Ending::Commit { output, is_delegated },
            Err(error) => Ending::Fail(error),
        });
    }

    fn ask_for_vote(&mut self, shard: ShardId, is_delegated: bool, context: &mut Context<'_>) {
        let participant = self.participants.entry(shard).or_default();
        participant.asked_ms = context.monotonic_ms;
        let (participation_id, is_query) = (participant.id.unwrap_or_default(), self.is_query);
        let hold_ms = context.rows.options().hold_ms.filter(|_| is_delegated);
        self.tell(shard, ToParticipation::Prepare { participation_id, is_delegated, hold_ms, is_query }, context);
    }

    /// A vote that was asked for is void: something has failed since.
    pub(crate) fn resume(&mut self) {
        self.ending = None;
    }

    /// How the transaction ends, once everybody has voted.
    pub(crate) fn take_ending(&mut self, context: &mut Context<'_>) -> Option<Ending> {
        if self.participants.values().any(|participant| participant.vote.is_none()) {
            return None;
        }
        if !self.is_failing() && self.ask_again(context) {
            return None;
        }
        self.ending.take()
    }

    /// Asks those again whose votes have lapsed. Says whether there are any.
    fn ask_again(&mut self, context: &mut Context<'_>) -> bool {
        let has_lapsed = |one: &Participant| one.has_lapsed(context.monotonic_ms);
        let lapsed: Vec<ShardId> =
            self.participants.iter().filter(|(_, one)| has_lapsed(one)).map(|(shard, _)| *shard).collect();
        for shard in &lapsed {
            if let Some(participant) = self.participants.get_mut(shard) {
                participant.vote = None;
            }
            self.ask_for_vote(*shard, false, context);
        }
        !lapsed.is_empty()
    }
}
