//! A replica that is not the owner: follower, learner, deposed owner. It takes the owner's entries, says what it has on its
//! disk, and promises.

use millrace_base::Lsn;

use crate::event::{Command, Write};
use crate::ids::{EntryId, Epoch, NodeId, Promised};
use crate::input_context::InputContext;
use crate::message::{LogEntry, Message};
use crate::replica_set::ReplicaSet;
use crate::settings::Bug;

/// What a follower knows of its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Following {
    /// Whether the owner of the promised epoch was heard.
    has_owner: bool,
    /// Up to here this log equals that owner's.
    matched: Lsn,
    /// The last round heard.
    round: u64,
    /// Position and round of the last acknowledgement.
    acked: (Lsn, u64),
    /// An acknowledgement waits for the promise to be durable.
    owes_ack: bool,
    /// The candidate of the promised epoch waits for the promise.
    owes_promise: bool,
    /// This replica may have acknowledged entries that it lacks. It promises nothing before it holds this one.
    target: Option<EntryId>,
    /// This node was a candidate of the promised epoch, and that one should have been.
    instead: Option<NodeId>,
}

/// An append without its epoch.
pub(crate) struct Append<'a> {
    pub round: u64,
    pub asks_lease: bool,
    pub committed: Lsn,
    pub prev: EntryId,
    pub entries: &'a [LogEntry],
}

impl Following {
    /// A follower that has lost entries, up to `target` at most.
    pub fn up_to(target: EntryId) -> Self {
        Self { target: Some(target), ..Self::default() }
    }

    /// A follower that could not become the owner of the promised epoch: `instead` can.
    pub fn failed(instead: NodeId) -> Self {
        Self { instead: Some(instead), ..Self::default() }
    }

    /// Who should have been appointed to the promised epoch.
    pub fn instead(&self) -> Option<NodeId> {
        self.instead
    }

    /// Whether this replica has yet to catch up before it promises anything.
    pub fn is_incomplete(&self) -> bool {
        self.target.is_some()
    }

    /// Up to here this log equals that of the owner of the promised epoch.
    pub fn matched(&self) -> Lsn {
        self.matched
    }

    /// Whether this log equals the owner's up to some entry.
    pub fn has_met_owner(&self) -> bool {
        self.has_owner && self.matched > Lsn::ZERO && !self.is_incomplete()
    }

    fn enter(&mut self, context: &mut InputContext<'_>, promised: Promised) {
        if promised != context.core.promised {
            context.promise(promised);
            *self = Self { target: self.target, ..Self::default() };
        }
    }

    /// The owner of `epoch` sends entries, or a heartbeat.
    pub fn append(&mut self, context: &mut InputContext<'_>, from: NodeId, epoch: Epoch, append: &Append<'_>) {
        if !context.admits_owner(from, epoch) {
            return;
        }
        self.enter(context, Promised { epoch, to: from });
        context.hear_owner(from, append.asks_lease);
        self.has_owner = true;
        self.round = self.round.max(append.round);
        self.take(context, from, epoch, append);
        // Whoever hears of it may take the log at once. What was written just now has to come before that.
        if !append.asks_lease && context.core.settings.lease_ns > 0 {
            context.out.push(Command::Released { epoch });
        }
    }

    /// Takes what the owner sends, if it follows what this log has.
    fn take(&mut self, context: &mut InputContext<'_>, from: NodeId, epoch: Epoch, append: &Append<'_>) {
        if !context.core.holds(append.prev) {
            let have = context.core.log.meet(append.prev);
            if context.core.is_promise_durable() {
                context.send(from, Message::Lacks { epoch, round: self.round, have });
            }
            if context.core.has_planted(Bug::AckUnmatched) {
                self.ack(context, true);
            }
            return;
        }
        let Some((equal, is_changed)) = context.adopt(append.prev, append.entries) else { return };
        self.matched = self.matched.max(equal);
        context.commit(append.committed.min(self.matched).min(context.core.log.last().lsn));
        self.ack(context, !is_changed);
    }

    /// A snapshot has arrived, and is installed, durably.
    pub fn snapshot(&mut self, context: &mut InputContext<'_>, from: NodeId, snapshot: Message) {
        let Message::Snapshot { epoch, round, at, set_lsn, set } = snapshot else { return };
        if !context.admits_owner(from, epoch) {
            return;
        }
        self.enter(context, Promised { epoch, to: from });
        self.has_owner = true;
        self.round = self.round.max(round);
        if set_lsn > at.lsn {
            context.broken("a snapshot's replica set comes after it");
            return;
        }
        if at.lsn > context.core.log.committed() {
            context.core.log.reset(at, set_lsn, set.clone());
            let number = context.core.log.write_entries();
            context.out.push(Command::Write { number, write: Write::Reset { at, set_lsn, set } });
            context.out.push(Command::Committed { lsn: at.lsn });
        }
        self.matched = self.matched.max(at.lsn);
        self.ack(context, true);
    }

    /// Says what is durable, if there is news or `is_due`.
    fn ack(&mut self, context: &mut InputContext<'_>, is_due: bool) {
        let core = &*context.core;
        if !core.is_promise_durable() {
            self.owes_ack |= is_due;
            return;
        }
        let mut durable = self.matched.min(core.log.durable());
        if core.has_planted(Bug::AckBeforeDurable) {
            durable = self.matched;
        } else if core.has_planted(Bug::AckUnmatched) {
            durable = core.log.durable();
        }
        if is_due || self.owes_ack || (durable, self.round) > self.acked {
            self.owes_ack = false;
            self.acked = (durable, self.round);
            let Promised { epoch, to } = core.promised;
            context.send(to, Message::Ack { epoch, round: self.round, durable });
        }
        self.catch_up(context);
    }

    fn catch_up(&mut self, context: &mut InputContext<'_>) {
        let log = &context.core.log;
        let equal = log.id_at(self.matched.min(log.durable()));
        if self.target.is_some_and(|target| equal.is_some_and(|id| id >= target)) {
            self.target = None;
            context.out.push(Command::Whole);
        }
    }

    /// Somebody was appointed to `epoch`.
    pub fn promise_request(&mut self, context: &mut InputContext<'_>, from: NodeId, epoch: Epoch) {
        if self.is_incomplete() || !context.admits_candidate(from, epoch) {
            return;
        }
        self.enter(context, Promised { epoch, to: from });
        self.owes_promise = true;
        self.try_promise(context);
    }

    /// Answers the candidate once the promise is durable and no lease of another owner runs.
    fn try_promise(&mut self, context: &mut InputContext<'_>) {
        let core = &*context.core;
        let Promised { epoch, to } = core.promised;
        let is_ready =
            core.is_promise_durable() && core.log.is_all_durable() && core.has_lease_ended(to, context.now_ns);
        if self.owes_promise && is_ready {
            self.owes_promise = false;
            let (set_lsn, set) = core.log.newest_set().clone();
            let last = core.log.last();
            context.send(to, Message::Promise { epoch, last, set_lsn, set });
        }
    }

    /// The candidate of the promised epoch wants this log.
    pub fn fetch(&mut self, context: &mut InputContext<'_>, from: NodeId, epoch: Epoch, after: EntryId) {
        if !context.admits_candidate(from, epoch)
            || epoch != context.core.promised.epoch
            || !context.core.is_promise_durable()
        {
            return;
        }
        let log = &context.core.log;
        let prev = log.meet(after);
        if prev.lsn < log.base().lsn {
            context.send(from, Message::Trimmed { epoch });
        } else if prev == log.last() {
            context.send(from, Message::Entries { epoch, prev, entries: Vec::new() });
        } else {
            let bytes = context.core.settings.message.0;
            context.out.push(Command::ReadLog { to: from, after: prev, bytes });
        }
    }

    /// What the candidate wanted has been read.
    pub fn log_read(&self, context: &mut InputContext<'_>, to: NodeId, after: EntryId, entries: Vec<LogEntry>) {
        let promised = context.core.promised;
        if promised.to == to && context.core.log.holds(after) {
            context.send(to, Message::Entries { epoch: promised.epoch, prev: after, entries });
        }
    }

    /// More is durable.
    pub fn written(&mut self, context: &mut InputContext<'_>) {
        if self.has_owner {
            self.ack(context, false);
        }
        self.try_promise(context);
    }

    /// Time has passed.
    pub fn tick(&mut self, context: &mut InputContext<'_>) {
        context.note_committed();
        self.try_promise(context);
    }
}

/// Says whether a replica would promise that epoch. It would if it hears no owner. Whose log is higher does not matter: who
/// leads takes the highest.
pub(crate) fn pre_vote(context: &mut InputContext<'_>, from: NodeId, epoch: Epoch, may_grant: bool) {
    let core = &*context.core;
    let is_silent = context.now_ns >= core.heard_ns.saturating_add(core.settings.silence_ns);
    let is_granted = may_grant && is_silent && epoch > core.promised.epoch;
    context.send(from, Message::PreVoteReply { epoch, is_granted });
}

/// What a replica tells another that has lost entries.
pub(crate) fn resync(context: &mut InputContext<'_>, from: NodeId, nonce: u64, is_owner: bool) {
    let core = &*context.core;
    let set: ReplicaSet = core.log.set().clone();
    let owner_last = is_owner.then_some(core.log.last());
    context.send(from, Message::ResyncAnswer { nonce, promised: core.promised, owner_last, set });
}

#[cfg(test)]
mod tests {
    use crate::event::Event;
    use crate::log_view::LogView;
    use crate::replica::{Recovered, Replica};
    use crate::settings::Settings;

    use super::*;

    #[test]
    fn an_owner_that_gives_up_its_lease_is_heard_and_one_that_asks_for_it_is_not_said_to_have() {
        let set = ReplicaSet::of([1, 2, 3].map(NodeId));
        let log = LogView::new(EntryId::ZERO, Lsn::ZERO, set);
        let recovered = Recovered { promised: Promised::default(), log, is_whole: true };
        let mut replica = Replica::start(NodeId(2), Settings::default(), 0, 1, recovered);
        for asks_lease in [true, false, true] {
            let (epoch, prev) = (Epoch(4), EntryId::ZERO);
            let message =
                Message::Append { epoch, round: 1, asks_lease, committed: Lsn::ZERO, prev, entries: Vec::new() };
            let mut out = Vec::new();
            replica.handle(1, Event::Received { from: NodeId(1), message }, &mut out);
            assert_eq!(out.contains(&Command::Released { epoch }), !asks_lease, "{out:?}");
        }
        // Whoever hears of it may take the log at once: its promise has to come behind these entries.
        let (epoch, prev) = (Epoch(4), EntryId::ZERO);
        let (kind, bytes) = (crate::message::EntryKind::Data, bytes::Bytes::new());
        let entry = |lsn| LogEntry { id: EntryId::new(epoch, Lsn(lsn)), kind, bytes: bytes.clone() };
        let entries = vec![entry(1), entry(2)];
        let message = Message::Append { epoch, round: 2, asks_lease: false, committed: Lsn(1), prev, entries };
        let mut out = Vec::new();
        replica.handle(2, Event::Received { from: NodeId(1), message }, &mut out);
        assert!(out.iter().any(|command| matches!(command, Command::Write { .. })), "{out:?}");
        assert_eq!(out.last(), Some(&Command::Released { epoch }), "{out:?}");
    }
}
