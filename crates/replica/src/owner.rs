//! The owner of an epoch: sends entries, counts who has them, and says what may leave.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_base::Lsn;

use crate::event::Command;
use crate::ids::{EntryId, Epoch, NodeId};
use crate::input_context::{Core, InputContext};
use crate::message::{EntryKind, LogEntry, Message};
use crate::peer::{Cache, Peer, Sending};
use crate::replica_set::Change;
use crate::rounds::Rounds;
use crate::settings::Bug;
use crate::shard_log::{Leaving, Proof, ReadTicket};

/// The state of a reign.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    epoch: Epoch,
    /// The entry that begins the epoch. Entries count from it on.
    start: Lsn,
    is_serving: bool,
    /// Another node is to take over: leases count no more.
    is_released: bool,
    peers: BTreeMap<NodeId, Peer>,
    rounds: Rounds,
    /// The last round that was said to be confirmed.
    confirmed: u64,
    wants_round: bool,
    cache: Cache,
}

/// What a replica lacks of its owner's log, as the owner knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The replica's node.
    pub node: NodeId,
    /// Entries that it has not acknowledged.
    pub entries: u64,
    /// Their bytes, as far as the owner holds them in memory.
    pub bytes: u64,
}

/// Whether this node is still the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reign {
    GoesOn,
    Ended,
}

impl Owner {
    /// Begins the promised epoch with its first entry.
    pub fn begin(context: &mut InputContext<'_>) -> Self {
        let (epoch, before) = (context.core.promised.epoch, context.core.log.last().lsn);
        let mut owner = Self {
            epoch,
            start: before.next(),
            is_serving: false,
            is_released: false,
            peers: BTreeMap::new(),
            rounds: Rounds::default(),
            confirmed: 0,
            wants_round: false,
            cache: Cache::default(),
        };
        owner.add(context, EntryKind::EpochStart, Bytes::new());
        owner.meet_peers(context, before);
        owner.begin_round(context);
        if context.core.has_planted(Bug::ServeBeforeStart) {
            owner.serve(context);
        }
        owner.advance(context);
        owner
    }

    /// Whether the shard may be changed.
    pub fn is_serving(&self) -> bool {
        self.is_serving
    }

    fn serve(&mut self, context: &mut InputContext<'_>) {
        self.is_serving = true;
        context.out.push(Command::Serve { epoch: self.epoch, last: context.core.log.last().lsn });
    }

    fn add(&mut self, context: &mut InputContext<'_>, kind: EntryKind, bytes: Bytes) {
        let id = EntryId::new(self.epoch, context.core.log.last().lsn.next());
        let entry = LogEntry { id, kind, bytes };
        self.cache.push(entry.clone(), context.core.settings.cache_bytes);
        context.append(entry, None);
    }

    /// Those of the replica set, no more and no less.
    fn meet_peers(&mut self, context: &InputContext<'_>, last: Lsn) {
        let set = context.core.log.set();
        self.peers.retain(|node, _| set.members().any(|member| member == *node));
        for node in set.members().filter(|node| *node != context.core.me) {
            self.peers.entry(node).or_insert_with(|| Peer::new(last.next()));
        }
    }

    /// The shard has made an entry.
    pub fn submit(&mut self, context: &mut InputContext<'_>, lsn: Lsn, bytes: Bytes) {
        if !self.is_serving || lsn != context.core.log.last().lsn.next() {
            context.broken("the shard's next entry is not the log's next");
            return;
        }
        self.add(context, EntryKind::Data, bytes);
    }

    /// What each other replica lacks.
    pub fn lags(&self, core: &Core) -> Vec<Lag> {
        let last = core.log.last().lsn;
        let lag = |(node, peer): (&NodeId, &Peer)| {
            let entries = last.0.saturating_sub(peer.matched.0);
            let bytes = if entries == 0 { 0 } else { self.cache.bytes_after(peer.matched) };
            Lag { node: *node, entries, bytes }
        };
        self.peers.iter().map(lag).collect()
    }

    /// Whether the replica set may take this step now.
    pub fn may_change(&self, core: &Core, change: Change) -> bool {
        let has_caught_up = |node| self.peers.get(&node).is_some_and(|peer| is_close(peer, core));
        let is_safe = match change {
            Change::Promote(node) => has_caught_up(node),
            Change::AddLearner(_) | Change::Remove(_) => true,
        };
        self.is_serving && is_safe && !core.log.is_set_changing() && core.log.set().after(change).is_some()
    }

    /// The replica set takes one step.
    pub fn change_set(&mut self, context: &mut InputContext<'_>, lsn: Lsn, change: Change) {
        let next = context.core.log.set().after(change);
        let (Some(set), true) = (next, self.may_change(context.core, change)) else {
            context.broken("a change of the replica set that was not asked about");
            return;
        };
        if lsn != context.core.log.last().lsn.next() {
            context.broken("the shard's next entry is not the log's next");
            return;
        }
        let entry = LogEntry {
            id: EntryId::new(self.epoch, lsn),
            kind: EntryKind::ReplicaSet,
            bytes: Bytes::from(set.encode()),
        };
        self.cache.push(entry.clone(), context.core.settings.cache_bytes);
        context.append(entry, Some(set));
        self.meet_peers(context, lsn);
    }

    /// What was submitted leaves.
    pub fn flush(&mut self, context: &mut InputContext<'_>) {
        for (node, peer) in &mut self.peers {
            let stream = Stream { epoch: self.epoch, round: self.rounds.current(), asks_lease: !self.is_released };
            stream.fill(context, *node, peer, &self.cache);
        }
    }

    /// Begins a round: everybody hears from the owner.
    fn begin_round(&mut self, context: &mut InputContext<'_>) {
        self.wants_round = false;
        self.rounds.begin(context.now_ns, context.core.settings.lease_ns);
        for (node, peer) in &mut self.peers {
            let stream = Stream { epoch: self.epoch, round: self.rounds.current(), asks_lease: !self.is_released };
            peer.repeat_probe();
            if peer.before_next() < context.core.log.base().lsn {
                // What comes before the next entry is not in the log any more. Whether what was sent has arrived nobody can ask.
                peer.start_over();
            }
            if !stream.fill(context, *node, peer, &self.cache) {
                stream.heartbeat(context, *node, peer);
            }
        }
    }

    /// Reads wait for proof that this node is the owner: a round begins, or follows the one on its way.
    pub fn confirm(&mut self, context: &mut InputContext<'_>) {
        if self.confirmed_round(context.core) == self.rounds.current() {
            self.begin_round(context);
            self.tell_confirmed(context);
        } else {
            self.wants_round = true;
        }
    }

    fn tell_confirmed(&mut self, context: &mut InputContext<'_>) {
        let round = self.confirmed_round(context.core);
        if round > self.confirmed {
            self.confirmed = round;
            context.out.push(Command::Confirmed { round });
        }
    }

    /// The last round that a majority has answered.
    fn confirmed_round(&self, core: &Core) -> u64 {
        let current = self.rounds.current();
        let answered =
            |node| if node == core.me { current } else { self.peers.get(&node).map_or(0, |peer| peer.round) };
        core.log.set().reached(answered).unwrap_or(0)
    }

    /// Whether a majority would promise nobody else anything now.
    fn holds_lease(&self, core: &Core, now_ns: u64) -> bool {
        let until_ns = |node| {
            if node == core.me { u64::MAX } else { self.peers.get(&node).map_or(0, |peer| peer.lease_until_ns) }
        };
        let has_leases = core.settings.lease_ns > 0 && !self.is_released;
        has_leases && core.log.set().reached(until_ns).is_some_and(|until_ns| now_ns < until_ns)
    }

    /// What a read that runs now has to show when its reply leaves.
    pub fn read_ticket(&self, core: &Core) -> ReadTicket {
        let current = self.rounds.current();
        let round = if core.has_planted(Bug::LateConfirmation) { current } else { current + 1 };
        ReadTicket { epoch: self.epoch, round }
    }

    /// Whether a reply that depends on everything up to `lsn` may leave at this moment.
    pub fn may_leave(&self, core: &Core, now_ns: u64, lsn: Lsn, proof: Proof) -> Leaving {
        let (Proof::Entry { epoch } | Proof::Read(ReadTicket { epoch, .. })) = proof;
        if epoch != self.epoch {
            return Leaving::Never;
        }
        if lsn > core.log.committed() || !self.is_serving {
            return Leaving::AfterCommit;
        }
        match proof {
            Proof::Entry { .. } => Leaving::Now,
            Proof::Read(_) if self.holds_lease(core, now_ns) => Leaving::Now,
            Proof::Read(ticket) if self.confirmed_round(core) >= ticket.round => Leaving::Now,
            Proof::Read(_) => Leaving::AfterConfirmation,
        }
    }

    /// A replica has everything up to `durable`.
    pub fn acked(&mut self, context: &mut InputContext<'_>, from: NodeId, round: u64, durable: Lsn) -> Reign {
        let (current, log) = (self.rounds.current(), &context.core.log);
        let Some(peer) = self.peers.get_mut(&from) else { return Reign::GoesOn };
        if round > current || durable > log.last().lsn {
            return Reign::GoesOn;
        }
        peer.acked_round = peer.acked_round.max(round);
        peer.acked(durable, log.base().lsn);
        let is_learner = log.set().is_learner(from);
        if is_learner && !peer.has_caught_up && is_close(peer, context.core) {
            peer.has_caught_up = true;
            context.out.push(Command::CaughtUp { learner: from });
        }
        self.answered(context, from, round);
        self.flush(context);
        self.advance(context)
    }

    /// A replica does not hold what it was sent the successor of.
    pub fn lacks(&mut self, context: &mut InputContext<'_>, from: NodeId, round: u64, have: EntryId) {
        let Some(peer) = self.peers.get_mut(&from).filter(|_| round <= self.rounds.current()) else { return };
        if context.core.has_planted(Bug::IgnoreLacks) {
            return;
        }
        let meets = context.core.log.meet(have).lsn;
        if meets < peer.matched {
            // Either the message is older than the acknowledgement, or the replica has lost what it had.
            if round <= peer.acked_round {
                return;
            }
            peer.matched = Lsn::ZERO;
        }
        if peer.rewind(meets) {
            let stream = Stream { epoch: self.epoch, round: self.rounds.current(), asks_lease: !self.is_released };
            stream.fill(context, from, peer, &self.cache);
        }
        self.answered(context, from, round);
    }

    /// A replica has heard this owner's round, and has promised nobody else anything when it did.
    fn answered(&mut self, context: &mut InputContext<'_>, from: NodeId, round: u64) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        peer.round = peer.round.max(round);
        let began_ns = match self.rounds.began_ns(round) {
            Some(_) if context.core.has_planted(Bug::LeaseFromReceipt) => Some(context.now_ns),
            began_ns => began_ns,
        };
        if let Some(began_ns) = began_ns {
            let until_ns = began_ns.saturating_add(context.core.settings.lease_ns);
            peer.lease_until_ns = peer.lease_until_ns.max(until_ns);
        }
        self.tell_confirmed(context);
        if self.wants_round && self.confirmed_round(context.core) == self.rounds.current() {
            self.begin_round(context);
        }
    }

    /// Counts who has what, and commits.
    pub fn advance(&mut self, context: &mut InputContext<'_>) -> Reign {
        let log = &context.core.log;
        let has = |node| {
            if node == context.core.me {
                log.durable()
            } else {
                self.peers.get(&node).map_or(Lsn::ZERO, |peer| peer.matched)
            }
        };
        let reached = if context.core.has_planted(Bug::WaitForAll) {
            log.set().voters().map(has).min()
        } else {
            log.set().reached(has)
        };
        let reached = reached.unwrap_or(Lsn::ZERO);
        // An entry of an earlier epoch that a majority holds may still be replaced. It is committed with the first of this one.
        if reached < self.start && !context.core.has_planted(Bug::CommitOldEpoch) {
            return Reign::GoesOn;
        }
        context.commit(reached);
        if !self.is_serving && context.core.log.committed() >= self.start {
            self.serve(context);
        }
        let log = &context.core.log;
        if log.set().is_voter(context.core.me) || log.is_set_changing() {
            return Reign::GoesOn;
        }
        // The others have to hear that this node is no longer one of them.
        self.begin_round(context);
        Reign::Ended
    }

    /// What was read from the log leaves.
    pub fn log_read(&mut self, context: &mut InputContext<'_>, to: NodeId, after: EntryId, entries: Vec<LogEntry>) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        peer.is_reading = false;
        let stream = Stream { epoch: self.epoch, round: self.rounds.current(), asks_lease: !self.is_released };
        if peer.before_next() == after.lsn
            && context.core.log.holds(after)
            && peer.has_room(context.core.settings.window)
        {
            stream.append(context, to, peer, after, entries);
        }
        stream.fill(context, to, peer, &self.cache);
    }

    /// A snapshot was carried; its last message follows.
    pub fn snapshot_shipped(&mut self, context: &mut InputContext<'_>, to: NodeId, at: Lsn) {
        let (set_lsn, set) = context.core.log.committed_set().clone();
        let id = context.core.log.id_at(at).filter(|id| id.lsn <= context.core.log.committed() && set_lsn <= id.lsn);
        match (self.peers.get_mut(&to), id) {
            (Some(peer), Some(at)) if peer.sending == Sending::Snapshot => {
                // If the message is lost, the next probe asks for another snapshot.
                peer.sending = Sending::Probing;
                peer.next = at.lsn.next();
                let round = self.rounds.current();
                context.send(to, Message::Snapshot { epoch: self.epoch, round, at, set_lsn, set });
            }
            _ => self.snapshot_failed(to),
        }
    }

    /// The replica is probed again, and that says whether it still needs a snapshot.
    pub fn snapshot_failed(&mut self, to: NodeId) {
        if let Some(peer) = self.peers.get_mut(&to).filter(|peer| peer.sending == Sending::Snapshot) {
            peer.sending = Sending::Probing;
        }
    }

    /// Leases count no more, and those who granted them hear it.
    pub fn release(&mut self, context: &mut InputContext<'_>) {
        if !self.is_released {
            self.is_released = true;
            self.begin_round(context);
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, context: &mut InputContext<'_>) {
        context.note_committed();
        let due_ns = self.rounds.last_began_ns().map_or(0, |began_ns| began_ns + context.core.settings.heartbeat_ns);
        if context.now_ns >= due_ns {
            self.begin_round(context);
        }
    }

    /// Everything up to here is durable at all other replicas.
    pub fn retention_floor(&self) -> Lsn {
        self.peers.values().map(|peer| peer.matched).min().unwrap_or(Lsn(u64::MAX))
    }
}

/// Whether a learner lacks so little that its promotion does not delay commits. One that needs a snapshot has to get it first:
/// its promotion could not be committed without it, and a snapshot may have to wait for what is not committed.
fn is_close(peer: &Peer, core: &Core) -> bool {
    peer.matched.0.saturating_add(core.settings.join_lag) >= core.log.committed().0
        && peer.matched >= core.log.base().lsn
        && peer.sending == Sending::Streaming
}

/// What all appends of one moment share.
#[derive(Clone, Copy)]
struct Stream {
    epoch: Epoch,
    round: u64,
    asks_lease: bool,
}

impl Stream {
    fn append(
        self,
        context: &mut InputContext<'_>,
        to: NodeId,
        peer: &mut Peer,
        prev: EntryId,
        entries: Vec<LogEntry>,
    ) {
        peer.sent(&entries);
        let committed = context.core.log.committed();
        let Stream { epoch, round, asks_lease } = self;
        let asks_lease = asks_lease && context.core.settings.lease_ns > 0;
        context.send(to, Message::Append { epoch, round, asks_lease, committed, prev, entries });
    }

    /// Sends entries for as long as the window allows. Says whether any have left.
    fn fill(self, context: &mut InputContext<'_>, to: NodeId, peer: &mut Peer, cache: &Cache) -> bool {
        let mut has_sent = false;
        while !peer.is_reading
            && peer.next <= context.core.log.last().lsn
            && peer.has_room(context.core.settings.window)
        {
            let Some(prev) =
                context.core.log.id_at(peer.before_next()).filter(|id| id.lsn >= context.core.log.base().lsn)
            else {
                peer.sending = Sending::Snapshot;
                let at_least = context.core.log.committed_set().0.max(context.core.log.base().lsn);
                context.out.push(Command::ShipSnapshot { to, at_least });
                break;
            };
            let Some(entries) = cache.after(prev, context.core.settings.message) else {
                peer.is_reading = true;
                context.out.push(Command::ReadLog { to, after: prev, bytes: context.core.settings.message.0 });
                break;
            };
            self.append(context, to, peer, prev, entries);
            has_sent = true;
        }
        has_sent
    }

    /// An append without entries. If the replica lacks what was sent before, it says so.
    fn heartbeat(self, context: &mut InputContext<'_>, to: NodeId, peer: &mut Peer) {
        let at = if peer.sending == Sending::Snapshot { Lsn::ZERO } else { peer.before_next() };
        let prev = context.core.log.id_at(at).unwrap_or(EntryId::ZERO);
        self.append(context, to, peer, prev, Vec::new());
    }
}

#[cfg(test)]
#[path = "owner_tests.rs"]
mod tests;
