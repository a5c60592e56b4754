//! A participant's part in a transaction over several shards.
//!
//! A participation runs what the coordinator asks for, holds the entities it touches, and waits. Asked to
//! prepare, it writes what it would change as one row of its own, which makes it able to commit
//! whatever happens; from then on only the coordinator can end it, and nobody reads what it has locked.
//! Told to commit, it applies the row and deletes it in one entry.
//!
//! [`Participation`] is one of them, as long as it runs: it says what the coordinator's message means
//! as a value, and the shard does that. [`Participations`] is what a shard remembers of all of them
//! (`participations.rs`).

mod alone;
mod participations;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use millrace_base::{EntityKey, Error, ErrorCode, ShardId, TransactionId};

use crate::context::{Context, Rows};
use crate::peer::{
    CallNumber, FromParticipation, Ordered, PeerBody, PeerCall, PeerMessage, ToCoordinator, ToParticipation,
};
pub(crate) use participations::{FirstMessage, Participations, Undecided, entities_of};

/// Ids are drawn at an index that no function's random bits come from.
pub(crate) const ID_INDEX: u32 = u32::MAX;

/// A participation that runs or waits.
pub(crate) struct Participation {
    transaction: TransactionId,
    /// Drawn at random: a second copy of the message that began it begins another one.
    id: u64,
    shard: ShardId,
    heard: Ordered<ToParticipation>,
    said: u32,
    /// Calls that have been answered while something they started still ran.
    lingering: Vec<CallNumber>,
    /// What it wanted taken back elsewhere and may still stand there.
    taking_back: usize,
    stage: Stage,
    /// The call of a workflow, where its result is kept, and the result.
    once: Option<Once>,
    /// When it answered a call last, on the monotonic clock. The coordinator has heard that before it asks for votes.
    answered_ms: u64,
}

/// A call that takes effect once however often it is made.
struct Once {
    number: CallNumber,
    /// Where its result is kept.
    field: Box<[u8]>,
    output: Option<Bytes>,
}

/// What a participant is asked when it is to vote.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct VoteRequest {
    /// Nobody else has anything to write: it commits at once.
    is_delegated: bool,
    /// For how long what the coordinator has read stays as it is.
    hold_ms: Option<u64>,
    /// Nobody writes anything: it lets go of what was read.
    is_query: bool,
}

impl VoteRequest {
    /// Whether what was only read is let go of with the vote.
    pub(crate) fn lets_go(self) -> bool {
        self.is_delegated || self.is_query
    }
}

/// How near its end a participation is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Runs,
    /// Prepares as soon as nothing of it runs.
    ToVote(VoteRequest),
    /// Has only read, has said so, and holds what it has read.
    Voted,
}

/// What the coordinator's message means here.
pub(crate) enum Told {
    /// Nothing more is to be done.
    NothingToDo,
    /// A call is to run.
    Call(PeerCall),
    /// A call that was made from here has ended.
    Ended(CallNumber, Result<Bytes, Error>),
    /// The effects of a call are to be taken back, and the coordinator told: [`Participation::taken_back`].
    TakeBack(CallNumber),
    /// Nothing is being taken back elsewhere any more.
    TakenBack,
}

impl Participation {
    pub(crate) fn new(
        transaction: TransactionId,
        id: u64,
        shard: ShardId,
        heard: Ordered<ToParticipation>,
    ) -> Box<Self> {
        Box::new(Self {
            transaction,
            id,
            shard,
            heard,
            said: 0,
            lingering: Vec::new(),
            taking_back: 0,
            stage: Stage::Runs,
            once: None,
            answered_ms: 0,
        })
    }

    /// The transaction it is part of.
    pub(crate) fn transaction(&self) -> TransactionId {
        self.transaction
    }

    fn tell(&mut self, message: ToCoordinator, context: &mut Context<'_>) {
        let message = self.message(message, context.rows);
        context.outputs.peer(self.transaction.coordinator, message);
    }

    /// The next message to the coordinator. It must be sent.
    pub(crate) fn message(&mut self, message: ToCoordinator, rows: &Rows) -> PeerMessage {
        self.said += 1;
        let incarnation = rows.options().incarnation;
        let said = FromParticipation { participation_id: self.id, incarnation, message };
        PeerMessage { from: self.shard, transaction: self.transaction, body: PeerBody::ToCoordinator(self.said, said) }
    }

    /// The entity that was asked for is held.
    pub(crate) fn reserved(&mut self, context: &mut Context<'_>) {
        self.tell(ToCoordinator::Reserved, context);
    }

    /// It has used so much CPU time since it last said so.
    pub(crate) fn spent(&mut self, cpu_ns: u64, context: &mut Context<'_>) {
        self.tell(ToCoordinator::Spent(cpu_ns), context);
    }

    /// Has the coordinator pass a call on.
    pub(crate) fn call(&mut self, call: PeerCall, context: &mut Context<'_>) {
        self.tell(ToCoordinator::Call(call), context);
    }

    /// Takes in what the coordinator says. What can be acted on now comes out of [`Participation::next`].
    pub(crate) fn hear(&mut self, number: u32, message: ToParticipation) {
        self.heard.add(number, message);
    }

    /// What the coordinator has said that can be acted on now, in order.
    pub(crate) fn next(&mut self) -> Option<ToParticipation> {
        self.heard.next()
    }

    /// What the coordinator's message means here.
    pub(crate) fn act_on(&mut self, message: ToParticipation) -> Told {
        match message {
            ToParticipation::Call(_, call) => Told::Call(call),
            ToParticipation::Result(number, result) => Told::Ended(number, result),
            ToParticipation::TakenBack => {
                self.taking_back = self.taking_back.saturating_sub(1);
                if self.taking_back == 0 { Told::TakenBack } else { Told::NothingToDo }
            }
            ToParticipation::TakeBack(number) => Told::TakeBack(number),
            ToParticipation::Prepare { participation_id, is_delegated, hold_ms, is_query }
                if participation_id == self.id =>
            {
                self.stage = Stage::ToVote(VoteRequest { is_delegated, hold_ms, is_query });
                Told::NothingToDo
            }
            // It means another participation, which has ended: this one was begun by a second copy.
            ToParticipation::Prepare { .. } => Told::NothingToDo,
            // A second copy of the message that began this one.
            ToParticipation::Reserve { .. } => Told::NothingToDo,
        }
    }

    /// A workflow's call is to run here: its result is kept at `field` if it commits alone.
    pub(crate) fn keep_at(&mut self, number: CallNumber, field: Box<[u8]>) {
        self.once = Some(Once { number, field, output: None });
    }

    /// Where the result of a workflow's call is kept.
    pub(crate) fn kept_at(&self) -> Option<&[u8]> {
        self.once.as_ref().map(|once| &*once.field)
    }

    /// Whether it may commit alone now. The coordinator holds what it has read for a time. After that time others may
    /// write it, and this transaction would come too late.
    pub(crate) fn may_commit_alone(&self, request: VoteRequest, now_ms: u64) -> bool {
        let is_in_time = |hold_ms| now_ms.saturating_sub(self.answered_ms) < hold_ms;
        request.is_delegated && request.hold_ms.is_none_or(is_in_time)
    }

    /// The result that is to be kept, and where.
    pub(crate) fn take_kept(&mut self) -> Option<(Box<[u8]>, Bytes)> {
        self.once.take().and_then(|Once { field, output, .. }| Some((field, output?)))
    }

    /// A call has ended: its result goes to the coordinator, and is kept if it is a workflow's. `lingers`: something that
    /// it started still runs.
    pub(crate) fn answer(
        &mut self,
        number: CallNumber,
        result: Result<Bytes, Error>,
        lingers: bool,
        context: &mut Context<'_>,
    ) {
        if lingers {
            self.lingering.push(number);
            self.tell(ToCoordinator::Lingers(number), context);
        }
        if let (Some(once), Ok(output)) = (&mut self.once, &result)
            && once.number == number
        {
            once.output = Some(output.clone());
        }
        self.answered_ms = context.monotonic_ms;
        self.tell(ToCoordinator::Result(number, result), context);
    }

    /// Says which calls have come to rest that had not when they were answered.
    pub(crate) fn report_over(&mut self, runs_for: impl Fn(CallNumber) -> bool, context: &mut Context<'_>) {
        let answered = std::mem::take(&mut self.lingering);
        let (lingering, over): (Vec<_>, Vec<_>) = answered.into_iter().partition(|number| runs_for(*number));
        self.lingering = lingering;
        for number in over {
            self.tell(ToCoordinator::Over(number), context);
        }
    }

    /// Whether a call that was answered has not come to rest.
    pub(crate) fn is_lingering(&self) -> bool {
        !self.lingering.is_empty()
    }

    /// Has the effects of a call that it made taken back elsewhere.
    pub(crate) fn take_back(&mut self, number: CallNumber, context: &mut Context<'_>) {
        self.taking_back += 1;
        self.tell(ToCoordinator::TakeBack(number), context);
    }

    /// Whether something is being taken back elsewhere: until then nothing goes on here.
    pub(crate) fn is_taking_back(&self) -> bool {
        self.taking_back > 0
    }

    /// What the coordinator wanted taken back is.
    pub(crate) fn taken_back(&mut self, context: &mut Context<'_>) {
        self.tell(ToCoordinator::TakenBack, context);
    }

    /// What it is asked, if it is to vote.
    pub(crate) fn vote_request(&self) -> Option<VoteRequest> {
        match self.stage {
            Stage::ToVote(request) => Some(request),
            Stage::Runs | Stage::Voted => None,
        }
    }

    /// The vote of one that has only read.
    pub(crate) fn vote_read_only(&mut self, has_let_go: bool, rows: &Rows) -> PeerMessage {
        self.stage = Stage::Voted;
        let hold_ms = rows.options().hold_ms.filter(|_| !has_let_go);
        self.message(ToCoordinator::ReadOnly { has_let_go, hold_ms }, rows)
    }

    /// It lost the race for an entity: its transaction starts again.
    pub(crate) fn died(&mut self, entity: EntityKey, is_exclusive: bool, context: &mut Context<'_>) {
        self.tell(ToCoordinator::Died { entity, is_exclusive }, context);
    }

    /// The transaction is given up. A coordinator that has delegated the decision waits, however late it is, unless
    /// this one has voted.
    pub(crate) fn given_up(&mut self, context: &mut Context<'_>) {
        if self.stage != Stage::Voted {
            let message = "the call waited too long; nothing took effect";
            self.tell(ToCoordinator::Failed(Error::new(ErrorCode::WaitLimit, message)), context);
        }
    }
}
