//! A node that was appointed and is not the owner yet. It gathers promises, takes the highest log among them, and then leads.

use std::collections::{BTreeMap, BTreeSet};

use millrace_base::Lsn;

use crate::event::Command;
use crate::ids::{EntryId, Epoch, NodeId, Promised};
use crate::input_context::InputContext;
use crate::message::{LogEntry, Message};
use crate::replica_set::ReplicaSet;
use crate::settings::Bug;

/// What a voter promised with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Answer {
    pub last: EntryId,
    pub set_lsn: Lsn,
    pub set: ReplicaSet,
}

/// The state of a takeover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Candidate {
    asked: BTreeSet<NodeId>,
    answers: BTreeMap<NodeId, Answer>,
    /// Whose log is being taken, and its last entry.
    source: Option<(NodeId, EntryId)>,
}

/// How a takeover stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takeover {
    GoesOn,
    /// This node leads now.
    Leads,
    /// That node has to be appointed.
    Fails(NodeId),
}

impl Candidate {
    /// Promises itself the epoch.
    pub fn begin(context: &mut InputContext<'_>, epoch: Epoch) -> Self {
        let me = context.core.me;
        context.promise(Promised { epoch, to: me });
        Self::default()
    }

    /// A voter has promised.
    pub fn promised(&mut self, context: &mut InputContext<'_>, from: NodeId, epoch: Epoch, answer: Answer) -> Takeover {
        if epoch == context.core.promised.epoch && self.source.is_none() {
            self.answers.insert(from, answer);
        }
        self.proceed(context)
    }

    /// Something that the takeover waited for may have happened.
    pub fn proceed(&mut self, context: &mut InputContext<'_>) -> Takeover {
        let core = &*context.core;
        if self.source.is_some() || !core.is_promise_durable() {
            return Takeover::GoesOn;
        }
        let me = core.me;
        if core.log.is_all_durable() && core.has_lease_ended(me, context.now_ns) {
            let (set_lsn, set) = core.log.newest_set().clone();
            self.answers.insert(me, Answer { last: core.log.last(), set_lsn, set });
        }
        self.ask(context, &context.core.log.set().clone());
        let Some((best, answer)) = self.best(context) else { return Takeover::GoesOn };
        self.ask(context, &answer.set);
        let has_majority = answer.set.has_majority(|node| self.answers.contains_key(&node));
        let has_majority = has_majority || context.core.has_planted(Bug::LeadAlone);
        if !has_majority || !self.answers.contains_key(&me) {
            return Takeover::GoesOn;
        }
        if !answer.set.is_voter(me) {
            // The owner that began to remove this node, or this node itself, did not live to see it committed.
            let voters = self.answers.iter().filter(|(node, _)| answer.set.is_voter(**node));
            let highest = voters.max_by_key(|(_, answer)| answer.last).map(|(node, _)| *node);
            let instead = highest.unwrap_or(best);
            context.out.push(Command::AppointInstead { best: instead });
            return Takeover::Fails(instead);
        }
        if answer.last == context.core.log.last() || context.core.has_planted(Bug::KeepOwnLog) {
            return Takeover::Leads;
        }
        self.source = Some((best, answer.last));
        self.fetch(context);
        Takeover::GoesOn
    }

    /// The answer with the highest log. Among equals this node's own.
    fn best(&self, context: &InputContext<'_>) -> Option<(NodeId, Answer)> {
        let best = self.answers.iter().max_by_key(|(node, answer)| (answer.last, **node == context.core.me));
        best.map(|(node, answer)| (*node, answer.clone()))
    }

    /// Asks those of the voters who were not asked yet.
    fn ask(&mut self, context: &mut InputContext<'_>, set: &ReplicaSet) {
        let (epoch, me) = (context.core.promised.epoch, context.core.me);
        for node in set.voters().filter(|node| *node != me) {
            if self.asked.insert(node) {
                context.send(node, Message::PromiseRequest { epoch });
            }
        }
    }

    fn fetch(&self, context: &mut InputContext<'_>) {
        if let Some((source, _)) = self.source {
            let (epoch, after) = (context.core.promised.epoch, context.core.log.last());
            context.send(source, Message::Fetch { epoch, after });
        }
    }

    /// A part of the log to take has come.
    pub fn entries(
        &mut self,
        context: &mut InputContext<'_>,
        from: NodeId,
        epoch: Epoch,
        prev: EntryId,
        entries: &[LogEntry],
    ) -> Takeover {
        let Some((source, target)) = self.source else { return Takeover::GoesOn };
        if source != from || epoch != context.core.promised.epoch {
            return Takeover::GoesOn;
        }
        if !context.core.holds(prev) {
            let after = context.core.log.meet(prev);
            context.send(from, Message::Fetch { epoch, after });
            return Takeover::GoesOn;
        }
        if context.adopt(prev, entries).is_none() {
            return Takeover::GoesOn;
        }
        let is_whole = context.core.log.last() == target;
        if is_whole {
            return Takeover::Leads;
        }
        if !entries.is_empty() {
            self.fetch(context);
        }
        Takeover::GoesOn
    }

    /// The log to take begins after this one ends.
    pub fn trimmed(&self, context: &mut InputContext<'_>, from: NodeId, epoch: Epoch) -> Takeover {
        match self.source {
            Some((best, _)) if best == from && epoch == context.core.promised.epoch => {
                context.out.push(Command::AppointInstead { best });
                Takeover::Fails(best)
            }
            _ => Takeover::GoesOn,
        }
    }

    /// Time has passed: what got no answer is asked again.
    pub fn tick(&mut self, context: &mut InputContext<'_>) -> Takeover {
        self.asked.retain(|node| self.answers.contains_key(node));
        self.fetch(context);
        self.proceed(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::log_view::LogView;
    use crate::message::Message;
    use crate::replica::{Recovered, Replica};
    use crate::settings::Settings;

    /// Node 3 was removed and does not know it. It says who should be appointed for as long as it is.
    #[test]
    fn a_candidate_that_does_not_count_any_more_says_so_again_and_again() {
        let set = |nodes: &[u16]| ReplicaSet::of(nodes.iter().copied().map(NodeId));
        let log = LogView::new(EntryId::ZERO, Lsn::ZERO, set(&[1, 2, 3]));
        let recovered = Recovered { promised: Promised::default(), log, is_whole: true };
        let settings = Settings { lease_ns: 0, ..Settings::default() };
        let mut replica = Replica::start(NodeId(3), settings, 0, 1, recovered);
        let said = |replica: &mut Replica, event| {
            let mut out = Vec::new();
            replica.handle(1, event, &mut out);
            out
        };
        let epoch = Epoch(5);
        said(&mut replica, Event::Appoint { epoch });
        said(&mut replica, Event::Written { up_to: 1 });
        let mut out = Vec::new();
        for from in [1, 2] {
            let last = EntryId::new(Epoch(4), Lsn(9));
            let message = Message::Promise { epoch, last, set_lsn: Lsn(8), set: set(&[1, 2]) };
            out = said(&mut replica, Event::Received { from: NodeId(from), message });
        }
        let instead = |out: &[Command]| out.iter().any(|command| matches!(command, Command::AppointInstead { .. }));
        assert!(instead(&out), "{out:?}");
        let again = said(&mut replica, Event::Appoint { epoch });
        assert!(instead(&again) && again.len() == 1, "not that the epoch is taken: {again:?}");
        let next = said(&mut replica, Event::Appoint { epoch: Epoch(6) });
        assert!(next.iter().any(|command| matches!(command, Command::Write { .. })), "it stands again: {next:?}");
    }
}
