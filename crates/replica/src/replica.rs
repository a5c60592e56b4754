//! One replica of one shard: which role it has, and which role answers which event.

use millrace_base::Lsn;

use crate::candidate::{Answer, Candidate, Takeover};
use crate::event::{Command, Event};
use crate::following::{self, Append, Following};
use crate::ids::{Epoch, NodeId, Promised};
use crate::input_context::{Core, Grant, InputContext};
use crate::log_view::LogView;
use crate::message::Message;
use crate::owner::{Lag, Owner, Reign};
use crate::replica_set::Change;
use crate::resync::{Knowledge, Resync};
use crate::settings::{Bug, Settings};
use crate::shard_log::{Leaving, Proof, ReadTicket};

/// What a start finds on the disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recovered {
    /// The last promise in the log.
    pub promised: Promised,
    /// The log.
    pub log: LogView,
    /// `false` if the log may lack an entry that was acknowledged or a promise that was made.
    pub is_whole: bool,
}

/// The name of a role, for operators and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoleName {
    /// Takes the owner's entries, counts.
    Follower,
    /// Takes the owner's entries, does not count.
    Learner,
    /// Was the owner, and has to forget the shard in memory.
    Deposed,
    /// Is about to be the owner.
    Candidate,
    /// Owns the shard.
    Owner,
    /// May lack what it has acknowledged.
    Resyncing,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    Following(Following),
    Deposed(Following),
    Candidate(Candidate),
    Owner(Box<Owner>),
    Resyncing(Resync),
}

/// One replica of one shard. Events go in, commands come out, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica {
    core: Core,
    role: Role,
}

impl Replica {
    /// A replica as recovery has found it. `nonce` is drawn at each start.
    #[must_use]
    pub fn start(me: NodeId, settings: Settings, now_ns: u64, nonce: u64, recovered: Recovered) -> Self {
        // The last run may have granted a lease, to whom nobody knows.
        let until_ns = now_ns.saturating_add(settings.grant_ns());
        let grant = (settings.lease_ns > 0).then_some(Grant { to: None, until_ns });
        let is_whole = recovered.is_whole || settings.planted == Some(Bug::TakePartIncomplete);
        let role = if is_whole { Role::Following(Following::default()) } else { Role::Resyncing(Resync::new(nonce)) };
        let core = Core {
            me,
            settings,
            promised: recovered.promised,
            durable_promise: recovered.promised,
            seen: recovered.promised.epoch,
            grant,
            heard_ns: now_ns,
            noted: recovered.log.committed(),
            log: recovered.log,
        };
        Self { core, role }
    }

    /// Takes one event. `now_ns` is a monotonic clock whose rate may be off by
    /// [`Settings::clock_error_percent`]. It never goes back.
    pub fn handle(&mut self, now_ns: u64, event: Event, out: &mut Vec<Command>) {
        let Self { core, role } = self;
        let context = &mut InputContext { core, now_ns, out };
        let next = match event {
            Event::Received { from, message } => {
                (from != context.core.me).then(|| role.receive(context, from, message)).flatten()
            }
            Event::Written { up_to } => {
                if let Some(promised) = context.core.log.written(up_to) {
                    context.core.durable_promise = promised;
                }
                role.written(context)
            }
            Event::Tick => role.tick(context),
            Event::Appoint { epoch } => role.appoint(context, epoch),
            Event::Trim { up_to } => {
                context.core.log.trim(up_to);
                None
            }
            Event::LogRead { to, after, mut entries } => {
                // Whoever has read them has counted their bytes. A message of more entries would be refused.
                entries.truncate(context.core.settings.message.1);
                match role {
                    Role::Owner(owner) => owner.log_read(context, to, after, entries),
                    Role::Following(following) | Role::Deposed(following) => {
                        following.log_read(context, to, after, entries);
                    }
                    Role::Candidate(_) | Role::Resyncing(_) => {}
                }
                None
            }
            Event::Reopened => match role {
                Role::Deposed(following) => Some(Role::Following(std::mem::take(following))),
                _ => None,
            },
            owners => {
                if let Role::Owner(owner) = role {
                    owner_event(owner, context, owners);
                }
                None
            }
        };
        if let Some(next) = next {
            *role = next;
        }
    }

    /// Replies wait for proof that this node is the owner.
    pub fn confirm(&mut self, now_ns: u64, out: &mut Vec<Command>) {
        if let Role::Owner(owner) = &mut self.role {
            owner.confirm(&mut InputContext { core: &mut self.core, now_ns, out });
        }
    }

    /// What a read that runs now has to show when its reply leaves. `None`: this node does not serve.
    #[must_use]
    pub fn read_ticket(&self) -> Option<ReadTicket> {
        match &self.role {
            Role::Owner(owner) if owner.is_serving() => Some(owner.read_ticket(&self.core)),
            _ => None,
        }
    }

    /// Whether a reply that depends on everything up to `lsn` may leave at this moment.
    #[must_use]
    pub fn may_leave(&self, now_ns: u64, lsn: Lsn, proof: Proof) -> Leaving {
        match &self.role {
            Role::Owner(owner) => owner.may_leave(&self.core, now_ns, lsn, proof),
            _ => Leaving::Never,
        }
    }

    /// Whether the replica set may take this step now.
    #[must_use]
    pub fn may_change(&self, change: Change) -> bool {
        match &self.role {
            Role::Owner(owner) => owner.may_change(&self.core, change),
            _ => false,
        }
    }

    /// Everything up to here is durable at all replicas that the owner knows. Others keep what they like.
    #[must_use]
    pub fn retention_floor(&self) -> Lsn {
        match &self.role {
            Role::Owner(owner) => owner.retention_floor(),
            _ => Lsn(u64::MAX),
        }
    }

    /// The role.
    #[must_use]
    pub fn role(&self) -> RoleName {
        match &self.role {
            Role::Following(_) if self.core.log.set().is_voter(self.core.me) => RoleName::Follower,
            Role::Following(_) => RoleName::Learner,
            Role::Deposed(_) => RoleName::Deposed,
            Role::Candidate(_) => RoleName::Candidate,
            Role::Owner(_) => RoleName::Owner,
            Role::Resyncing(_) => RoleName::Resyncing,
        }
    }

    /// Whether it holds everything that it has acknowledged, as far as it knows.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        match &self.role {
            Role::Following(following) | Role::Deposed(following) => !following.is_incomplete(),
            Role::Candidate(_) | Role::Owner(_) => true,
            Role::Resyncing(_) => false,
        }
    }

    /// Whether its log has met that of the present owner, so that it says how much it lacks.
    #[must_use]
    pub fn has_met_owner(&self) -> bool {
        match &self.role {
            Role::Following(following) => following.has_met_owner(),
            Role::Owner(owner) => owner.is_serving(),
            Role::Deposed(_) | Role::Candidate(_) | Role::Resyncing(_) => false,
        }
    }

    /// Whether it has on its disk what the owner of that epoch has, up to an entry.
    #[must_use]
    pub fn holds_of(&self, epoch: Epoch, lsn: Lsn) -> bool {
        let is_there = self.core.promised.epoch == epoch && self.core.log.durable() >= lsn;
        is_there
            && match &self.role {
                Role::Following(following) => following.matched() >= lsn,
                Role::Owner(_) => true,
                Role::Deposed(_) | Role::Candidate(_) | Role::Resyncing(_) => false,
            }
    }

    /// Whether entries may be submitted.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        matches!(&self.role, Role::Owner(owner) if owner.is_serving())
    }

    /// What the other replicas lack. Only an owner knows.
    #[must_use]
    pub fn lags(&self) -> Vec<Lag> {
        match &self.role {
            Role::Owner(owner) => owner.lags(&self.core),
            _ => Vec::new(),
        }
    }

    /// This node.
    #[must_use]
    pub fn me(&self) -> NodeId {
        self.core.me
    }

    /// The numbers that it goes by.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.core.settings
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &LogView {
        &self.core.log
    }

    /// The highest promise.
    #[must_use]
    pub fn promised(&self) -> Promised {
        self.core.promised
    }

    /// Plants a bug in a running replica.
    #[cfg(test)]
    pub(crate) fn plant(&mut self, bug: Bug) {
        self.core.settings.planted = Some(bug);
    }

    /// Whether an owner was heard so lately that nobody should stand against it.
    #[must_use]
    pub fn has_heard_owner(&self, now_ns: u64) -> bool {
        now_ns < self.core.heard_ns.saturating_add(self.core.settings.silence_ns)
    }

    /// When an owner was last heard.
    pub(crate) fn heard_ns(&self) -> u64 {
        self.core.heard_ns
    }

    /// Whether this replica may try to become the owner by itself.
    pub(crate) fn may_nominate(&self) -> bool {
        let is_free = match &self.role {
            Role::Following(following) => !following.is_incomplete(),
            Role::Candidate(_) => true,
            Role::Deposed(_) | Role::Owner(_) | Role::Resyncing(_) => false,
        };
        is_free && self.core.log.set().is_voter(self.core.me)
    }

    /// An epoch that is higher than all that this replica has heard of.
    pub(crate) fn next_epoch(&self) -> Epoch {
        Epoch(self.core.seen.0.saturating_add(1))
    }
}

/// Events that concern an owner only.
fn owner_event(owner: &mut Owner, context: &mut InputContext<'_>, event: Event) {
    match event {
        Event::Submit { lsn, bytes } => owner.submit(context, lsn, bytes),
        Event::RoundEnded => owner.flush(context),
        Event::HandOver => owner.release(context),
        Event::ChangeSet { lsn, change } => owner.change_set(context, lsn, change),
        Event::SnapshotShipped { to, at } => owner.snapshot_shipped(context, to, at),
        Event::SnapshotFailed { to } => owner.snapshot_failed(to),
        _ => {}
    }
}

impl Role {
    /// Takes a message. Gives back the next role, if it changes.
    fn receive(&mut self, context: &mut InputContext<'_>, from: NodeId, message: Message) -> Option<Role> {
        if let Message::Refusal { promised } = &message {
            context.core.seen = context.core.seen.max(promised.epoch);
        }
        match self {
            Role::Following(following) | Role::Deposed(following) => {
                follow(following, context, from, message);
                None
            }
            Role::Candidate(candidate) => stand(candidate, context, from, message),
            Role::Owner(owner) => own(owner, context, from, message),
            Role::Resyncing(resync) => match message {
                Message::ResyncAnswer { nonce, promised, owner_last, set } => {
                    resync.answered(context, from, nonce, Knowledge { promised, owner_last, set }).map(Role::Following)
                }
                _ => None,
            },
        }
    }

    fn written(&mut self, context: &mut InputContext<'_>) -> Option<Role> {
        match self {
            Role::Following(following) | Role::Deposed(following) => {
                following.written(context);
                None
            }
            Role::Candidate(candidate) => after(candidate.proceed(context), context),
            Role::Owner(owner) => match owner.advance(context) {
                Reign::GoesOn => None,
                Reign::Ended => Some(give_up(context)),
            },
            Role::Resyncing(_) => None,
        }
    }

    fn tick(&mut self, context: &mut InputContext<'_>) -> Option<Role> {
        match self {
            Role::Following(following) | Role::Deposed(following) => {
                following.tick(context);
                None
            }
            Role::Candidate(candidate) => after(candidate.tick(context), context),
            Role::Owner(owner) => {
                owner.tick(context);
                None
            }
            Role::Resyncing(resync) => {
                resync.ask(context);
                None
            }
        }
    }

    /// This node is to own the shard in `epoch`.
    fn appoint(&mut self, context: &mut InputContext<'_>, epoch: Epoch) -> Option<Role> {
        let promised = context.core.promised;
        match self {
            Role::Owner(_) | Role::Candidate(_) if promised == (Promised { epoch, to: context.core.me }) => None,
            Role::Deposed(_) | Role::Resyncing(_) => None,
            Role::Following(following) if following.is_incomplete() => None,
            Role::Following(following) if promised.epoch == epoch && following.instead().is_some() => {
                // Said again, or whoever appoints would take the epoch for taken, and appoint this node in the next.
                context.out.extend(following.instead().map(|best| Command::AppointInstead { best }));
                None
            }
            _ if epoch <= promised.epoch => {
                // An epoch that this node has begun once is not begun again: it would make other entries of the same names.
                context.out.push(Command::EpochTaken { promised });
                None
            }
            Role::Owner(_) => Some(give_up(context)),
            Role::Following(_) | Role::Candidate(_) => Some(Role::Candidate(Candidate::begin(context, epoch))),
        }
    }
}

/// The role after a step of a takeover, if it changes.
fn after(takeover: Takeover, context: &mut InputContext<'_>) -> Option<Role> {
    match takeover {
        Takeover::GoesOn => None,
        Takeover::Leads => Some(Role::Owner(Box::new(Owner::begin(context)))),
        Takeover::Fails(instead) => Some(Role::Following(Following::failed(instead))),
    }
}

/// The reign is over: the shard in memory may hold what will never be.
fn give_up(context: &mut InputContext<'_>) -> Role {
    context.out.push(Command::GiveUp { epoch: context.core.promised.epoch });
    Role::Deposed(Following::default())
}

/// A follower, learner or deposed owner takes a message.
fn follow(following: &mut Following, context: &mut InputContext<'_>, from: NodeId, message: Message) {
    match message {
        Message::Append { epoch, round, asks_lease, committed, prev, entries } => {
            following.append(context, from, epoch, &Append { round, asks_lease, committed, prev, entries: &entries });
        }
        Message::Snapshot { .. } => following.snapshot(context, from, message),
        Message::PromiseRequest { epoch } => following.promise_request(context, from, epoch),
        Message::Fetch { epoch, after } => following.fetch(context, from, epoch, after),
        Message::PreVote { epoch } => {
            following::pre_vote(context, from, epoch, !following.is_incomplete());
        }
        Message::Resync { nonce } => following::resync(context, from, nonce, false),
        Message::Ack { .. }
        | Message::Lacks { .. }
        | Message::Refusal { .. }
        | Message::Promise { .. }
        | Message::Entries { .. }
        | Message::Trimmed { .. }
        | Message::PreVoteReply { .. }
        | Message::ResyncAnswer { .. } => {}
    }
}

/// A candidate takes a message.
fn stand(candidate: &mut Candidate, context: &mut InputContext<'_>, from: NodeId, message: Message) -> Option<Role> {
    let mine = context.core.promised;
    match message {
        Message::Append { epoch, .. } | Message::Snapshot { epoch, .. } | Message::PromiseRequest { epoch } => {
            // An owner of the same epoch has won it: two nodes nominated themselves to it.
            let is_owner = !matches!(message, Message::PromiseRequest { .. });
            if epoch > mine.epoch || epoch == mine.epoch && is_owner {
                let mut following = Following::default();
                follow(&mut following, context, from, message);
                return Some(Role::Following(following));
            }
            context.refuse(from);
        }
        Message::Refusal { promised } if promised.epoch >= mine.epoch && promised != mine => {
            context.out.push(Command::EpochTaken { promised });
            return Some(Role::Following(Following::default()));
        }
        Message::Promise { epoch, last, set_lsn, set } => {
            let takeover = candidate.promised(context, from, epoch, Answer { last, set_lsn, set });
            return after(takeover, context);
        }
        Message::Entries { epoch, prev, entries } => {
            let takeover = candidate.entries(context, from, epoch, prev, &entries);
            return after(takeover, context);
        }
        Message::Trimmed { epoch } => {
            let takeover = candidate.trimmed(context, from, epoch);
            return after(takeover, context);
        }
        Message::PreVote { epoch } => following::pre_vote(context, from, epoch, true),
        Message::Resync { nonce } => following::resync(context, from, nonce, false),
        Message::Ack { .. }
        | Message::Lacks { .. }
        | Message::Refusal { .. }
        | Message::Fetch { .. }
        | Message::PreVoteReply { .. }
        | Message::ResyncAnswer { .. } => {}
    }
    None
}

/// An owner takes a message.
fn own(owner: &mut Owner, context: &mut InputContext<'_>, from: NodeId, message: Message) -> Option<Role> {
    let mine = context.core.promised.epoch;
    let serves_on = context.core.has_planted(Bug::ServeDeposed);
    match message {
        Message::Append { epoch, .. } | Message::Snapshot { epoch, .. } | Message::PromiseRequest { epoch } => {
            if epoch > mine && !serves_on {
                let Role::Deposed(mut following) = give_up(context) else { return None };
                follow(&mut following, context, from, message);
                return Some(Role::Deposed(following));
            }
            if epoch == mine && !matches!(message, Message::PromiseRequest { .. }) {
                context.broken("another node owns the epoch of this owner");
            } else if !serves_on {
                context.refuse(from);
            }
        }
        Message::Refusal { promised } if promised.epoch > mine && !serves_on => return Some(give_up(context)),
        Message::Ack { epoch, round, durable } if epoch == mine => {
            if owner.acked(context, from, round, durable) == Reign::Ended {
                return Some(give_up(context));
            }
        }
        Message::Lacks { epoch, round, have } if epoch == mine => owner.lacks(context, from, round, have),
        Message::PreVote { epoch } => following::pre_vote(context, from, epoch, false),
        Message::Resync { nonce } => following::resync(context, from, nonce, true),
        Message::Ack { .. }
        | Message::Lacks { .. }
        | Message::Refusal { .. }
        | Message::Promise { .. }
        | Message::Fetch { .. }
        | Message::Entries { .. }
        | Message::Trimmed { .. }
        | Message::PreVoteReply { .. }
        | Message::ResyncAnswer { .. } => {}
    }
    None
}
