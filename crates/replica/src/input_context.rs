//! What all roles share: the log, the promise, the lease that was granted; and one input with its outputs.

use millrace_base::Lsn;

use crate::event::{Command, Write};
use crate::ids::{EntryId, Epoch, NodeId, Promised};
use crate::log_view::LogView;
use crate::message::{EntryKind, LogEntry, Message};
use crate::replica_set::ReplicaSet;
use crate::settings::{Bug, Settings};

/// The state of a replica that outlives its roles.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Core {
    pub me: NodeId,
    pub settings: Settings,
    pub log: LogView,
    /// The highest promise, durable or not.
    pub promised: Promised,
    pub durable_promise: Promised,
    /// The lease that this replica has granted.
    pub grant: Option<Grant>,
    /// When an owner was last heard.
    pub heard_ns: u64,
    /// The highest epoch heard of, promised or not.
    pub seen: Epoch,
    /// The last commit note written.
    pub noted: Lsn,
}

/// A lease as its granter sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    /// Its holder. Nobody knows after a start whom the last one was granted to.
    pub to: Option<NodeId>,
    pub until_ns: u64,
}

impl Core {
    pub fn has_planted(&self, bug: Bug) -> bool {
        self.settings.planted == Some(bug)
    }

    /// Whether this replica may speak in the promised epoch.
    pub fn is_promise_durable(&self) -> bool {
        self.durable_promise == self.promised
    }

    /// Whether this replica may promise `candidate` an epoch now, as far as leases go.
    pub fn has_lease_ended(&self, candidate: NodeId, now_ns: u64) -> bool {
        self.has_planted(Bug::PromiseWithinLease)
            || self.grant.is_none_or(|grant| grant.to == Some(candidate) || now_ns >= grant.until_ns)
    }

    /// Whether the log holds that entry. What is committed is the same everywhere, known by name or not.
    pub fn holds(&self, id: EntryId) -> bool {
        id.lsn <= self.log.committed() || self.log.holds(id)
    }
}

/// One input: the shared state, the time, and where commands go.
pub(crate) struct InputContext<'a> {
    pub core: &'a mut Core,
    pub now_ns: u64,
    pub out: &'a mut Vec<Command>,
}

impl InputContext<'_> {
    pub fn send(&mut self, to: NodeId, message: Message) {
        self.out.push(Command::Send { to, message });
    }

    pub fn refuse(&mut self, to: NodeId) {
        let promised = self.core.promised;
        self.send(to, Message::Refusal { promised });
    }

    pub fn broken(&mut self, reason: &'static str) {
        self.out.push(Command::Broken { reason });
    }

    /// Promises an epoch. From now on lower ones are refused; nothing is said in it before it is durable.
    pub fn promise(&mut self, promised: Promised) {
        assert!(promised.epoch >= self.core.promised.epoch, "promises only rise");
        self.core.promised = promised;
        self.core.seen = self.core.seen.max(promised.epoch);
        if self.core.has_planted(Bug::ForgetPromise) {
            self.core.durable_promise = promised;
            return;
        }
        let number = self.core.log.write_promise(promised);
        self.out.push(Command::Write { number, write: Write::Promise(promised) });
    }

    /// Whether the owner of `epoch` may be listened to. Lower epochs are refused. If this replica has promised the same epoch
    /// to a candidate that lost, the owner has won it by a majority of others.
    pub fn admits_owner(&mut self, from: NodeId, epoch: Epoch) -> bool {
        let is_admitted = epoch >= self.core.promised.epoch;
        if !is_admitted {
            self.refuse(from);
        }
        is_admitted
    }

    /// Whether the candidate of `epoch` may be listened to. An epoch is promised to one candidate only.
    pub fn admits_candidate(&mut self, from: NodeId, epoch: Epoch) -> bool {
        let is_admitted = epoch > self.core.promised.epoch || self.core.promised == (Promised { epoch, to: from });
        if !is_admitted {
            self.refuse(from);
        }
        is_admitted
    }

    /// Notes that the owner was heard, and grants it a lease or ends one.
    pub fn hear_owner(&mut self, from: NodeId, asks_lease: bool) {
        let (now_ns, core) = (self.now_ns, &mut *self.core);
        core.heard_ns = now_ns;
        if asks_lease {
            let until_ns = now_ns.saturating_add(core.settings.grant_ns());
            core.grant = Some(Grant { to: Some(from), until_ns });
        } else if core.grant.is_some_and(|grant| grant.to == Some(from)) {
            core.grant = None;
        }
    }

    /// Takes entries that follow `prev`, which the log holds. What it has already is skipped; what differs is cut off first.
    /// Gives back the last position that is equal now, and whether the log has changed. `None`: they contradict the log.
    pub fn adopt(&mut self, prev: EntryId, entries: &[LogEntry]) -> Option<(Lsn, bool)> {
        let log = &self.core.log;
        let end = entries.last().map_or(prev.lsn, |entry| entry.id.lsn);
        let contradicts = |entry: &LogEntry| {
            entry.id.lsn <= log.committed() && log.id_at(entry.id.lsn).is_some_and(|known| known != entry.id)
        };
        let is_prev_known = prev == EntryId::ZERO || log.id_at(prev.lsn).is_none_or(|known| known == prev);
        if !is_prev_known || !are_in_order(prev, entries) || entries.iter().any(contradicts) {
            self.broken("entries of the owner contradict committed ones");
            return None;
        }
        let Some(first) = entries.iter().position(|entry| !self.core.holds(entry.id)) else {
            return Some((end, false));
        };
        let fresh = &entries[first..];
        let Some(sets) = fresh.iter().map(set_of).collect::<Option<Vec<_>>>() else {
            self.broken("a replica set in the log cannot be read");
            return None;
        };
        let before = Lsn(fresh[0].id.lsn.0 - 1);
        if before < self.core.log.last().lsn {
            self.core.log.cut_after(before);
            let number = self.core.log.write_other();
            self.out.push(Command::Write { number, write: Write::Cut { after: before } });
        }
        for (entry, set) in fresh.iter().zip(sets) {
            self.core.log.push(entry.id, set);
        }
        self.write_entries(fresh.to_vec());
        Some((end, true))
    }

    /// Adds an entry of this owner.
    pub fn append(&mut self, entry: LogEntry, set: Option<ReplicaSet>) {
        self.core.log.push(entry.id, set);
        self.write_entries(vec![entry]);
    }

    fn write_entries(&mut self, entries: Vec<LogEntry>) {
        let number = self.core.log.write_entries();
        self.out.push(Command::Write { number, write: Write::Append(entries) });
    }

    /// Raises the committed position.
    pub fn commit(&mut self, lsn: Lsn) {
        if self.core.log.commit(lsn) {
            self.out.push(Command::Committed { lsn });
        }
    }

    /// Writes down what is committed, if that has changed.
    pub fn note_committed(&mut self) {
        let committed = self.core.log.committed();
        if committed > self.core.noted {
            self.core.noted = committed;
            let number = self.core.log.write_other();
            self.out.push(Command::Write { number, write: Write::CommitNote(committed) });
        }
    }
}

/// Whether the entries follow `prev` and each other.
fn are_in_order(prev: EntryId, entries: &[LogEntry]) -> bool {
    let mut last = prev;
    entries.iter().all(|entry| {
        let follows = entry.id.lsn == last.lsn.next() && entry.id.epoch >= last.epoch && entry.id.epoch > Epoch::NONE;
        last = entry.id;
        follows
    })
}

/// The replica set that an entry brings, if it brings one. The outer `None`: it cannot be read.
fn set_of(entry: &LogEntry) -> Option<Option<ReplicaSet>> {
    match entry.kind {
        EntryKind::ReplicaSet => ReplicaSet::decode(&entry.bytes).ok().map(Some),
        EntryKind::Data | EntryKind::EpochStart => Some(None),
    }
}
