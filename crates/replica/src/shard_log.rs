//! One shard's log as the core's driver sees it, whoever keeps it: this node alone, or a quorum of nodes.
//!
//! The driver hands in what the shard makes, and obeys the commands that come out. What is committed, and whether a reply may
//! leave, only the log can say. A shard does not know which kind of log it has.

use bytes::Bytes;
use millrace_base::Lsn;

use crate::event::{Command, Event, Write};
use crate::ids::{EntryId, Epoch};
use crate::message::{EntryKind, LogEntry};
use crate::replica::Replica;

/// What a read that ran in some epoch has to wait for, if no lease is held when its reply leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadTicket {
    /// The epoch in which it ran.
    pub epoch: Epoch,
    /// The first round that began after it ran.
    pub round: u64,
}

/// What a reply rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proof {
    /// An entry of its own, made in this epoch. Once it is committed nothing can undo it.
    Entry {
        /// The epoch.
        epoch: Epoch,
    },
    /// What it has read. It must be the newest: no other owner may have written meanwhile.
    Read(ReadTicket),
}

/// Whether a reply may leave at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leaving {
    /// Yes.
    Now,
    /// Ask again at the next [`Command::Committed`].
    AfterCommit,
    /// Call [`ShardLog::confirm`], and ask again at the next [`Command::Confirmed`].
    AfterConfirmation,
    /// The epoch in which it ran is over at this node. Whether it took effect this node does not know.
    Never,
}

/// The log of one shard.
pub trait ShardLog {
    /// Takes the log for this node in `epoch`: from then on no earlier owner's entry is taken. [`Command::Serve`] says when
    /// that is done. Repeated while this node is to own the shard.
    fn fence(&mut self, now_ns: u64, epoch: Epoch, out: &mut Vec<Command>);

    /// Takes the shard's next entry.
    fn submit(&mut self, now_ns: u64, lsn: Lsn, bytes: Bytes, out: &mut Vec<Command>);

    /// The round of the core ends: what was submitted leaves.
    fn end_round(&mut self, now_ns: u64, out: &mut Vec<Command>);

    /// All writes up to this number are durable at this node.
    fn written(&mut self, now_ns: u64, up_to: u64, out: &mut Vec<Command>);

    /// Everything up to here stays, whatever fails.
    fn committed(&self) -> Lsn;

    /// What the reply of a call rests on that makes an entry now.
    fn entry_proof(&self) -> Proof;

    /// What the reply of a call rests on that reads now.
    fn read_proof(&self) -> Proof;

    /// Whether a reply that depends on everything up to `lsn` may leave now. It is asked when the reply leaves, not
    /// before: time passes, and the answer changes.
    fn may_leave(&self, now_ns: u64, lsn: Lsn, proof: Proof) -> Leaving;

    /// Replies wait for [`Command::Confirmed`].
    fn confirm(&mut self, now_ns: u64, out: &mut Vec<Command>);

    /// The committed entries that can be read from the log: after the first position, up to the second.
    fn readable(&self) -> (Lsn, Lsn);

    /// A checkpoint holds everything up to `lsn`. Gives back up to where the log may be deleted.
    fn trim(&mut self, lsn: Lsn) -> Lsn;
}

impl ShardLog for Replica {
    fn fence(&mut self, now_ns: u64, epoch: Epoch, out: &mut Vec<Command>) {
        self.handle(now_ns, Event::Appoint { epoch }, out);
    }

    fn submit(&mut self, now_ns: u64, lsn: Lsn, bytes: Bytes, out: &mut Vec<Command>) {
        self.handle(now_ns, Event::Submit { lsn, bytes }, out);
    }

    fn end_round(&mut self, now_ns: u64, out: &mut Vec<Command>) {
        self.handle(now_ns, Event::RoundEnded, out);
    }

    fn written(&mut self, now_ns: u64, up_to: u64, out: &mut Vec<Command>) {
        self.handle(now_ns, Event::Written { up_to }, out);
    }

    fn committed(&self) -> Lsn {
        self.log().committed()
    }

    fn entry_proof(&self) -> Proof {
        Proof::Entry { epoch: self.promised().epoch }
    }

    fn read_proof(&self) -> Proof {
        // A replica that is not the owner serves no reads: its ticket is of an epoch without rounds, and never good.
        Proof::Read(self.read_ticket().unwrap_or(ReadTicket { epoch: Epoch::NONE, round: u64::MAX }))
    }

    fn may_leave(&self, now_ns: u64, lsn: Lsn, proof: Proof) -> Leaving {
        Replica::may_leave(self, now_ns, lsn, proof)
    }

    fn confirm(&mut self, now_ns: u64, out: &mut Vec<Command>) {
        Replica::confirm(self, now_ns, out);
    }

    fn readable(&self) -> (Lsn, Lsn) {
        (self.log().base().lsn, self.log().committed())
    }

    fn trim(&mut self, lsn: Lsn) -> Lsn {
        let lsn = lsn.min(self.retention_floor()).min(self.log().committed());
        self.handle(0, Event::Trim { up_to: lsn }, &mut Vec::new());
        self.log().base().lsn
    }
}

/// A log that only this node keeps: what is durable is committed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Single {
    base: Lsn,
    last: Lsn,
    committed: Lsn,
    writes: u64,
    /// Entries and writes have the same distance for ever: each entry is one write.
    before_first_write: Lsn,
}

impl Single {
    /// A log whose entries after `base` and up to `last` are on this node's disk.
    #[must_use]
    pub fn new(base: Lsn, last: Lsn) -> Self {
        Self { base, last, committed: last, writes: 0, before_first_write: last }
    }
}

/// There is one epoch: nobody else can take the log.
const ONLY: Epoch = Epoch(1);

impl ShardLog for Single {
    fn fence(&mut self, _now_ns: u64, _epoch: Epoch, out: &mut Vec<Command>) {
        out.push(Command::Serve { epoch: ONLY, last: self.last });
    }

    fn submit(&mut self, _now_ns: u64, lsn: Lsn, bytes: Bytes, out: &mut Vec<Command>) {
        if lsn != self.last.next() {
            out.push(Command::Broken { reason: "the shard's next entry is not the log's next" });
            return;
        }
        self.last = lsn;
        self.writes += 1;
        let entry = LogEntry { id: EntryId::new(ONLY, lsn), kind: EntryKind::Data, bytes };
        out.push(Command::Write { number: self.writes, write: Write::Append(vec![entry]) });
    }

    fn end_round(&mut self, _now_ns: u64, _out: &mut Vec<Command>) {}

    fn written(&mut self, _now_ns: u64, up_to: u64, out: &mut Vec<Command>) {
        let committed = Lsn(self.before_first_write.0 + up_to.min(self.writes));
        if committed > self.committed {
            self.committed = committed;
            out.push(Command::Committed { lsn: committed });
        }
    }

    fn committed(&self) -> Lsn {
        self.committed
    }

    fn entry_proof(&self) -> Proof {
        Proof::Entry { epoch: ONLY }
    }

    fn read_proof(&self) -> Proof {
        Proof::Read(ReadTicket { epoch: ONLY, round: 0 })
    }

    fn may_leave(&self, _now_ns: u64, lsn: Lsn, _proof: Proof) -> Leaving {
        if lsn <= self.committed { Leaving::Now } else { Leaving::AfterCommit }
    }

    fn confirm(&mut self, _now_ns: u64, _out: &mut Vec<Command>) {}

    fn readable(&self) -> (Lsn, Lsn) {
        (self.base, self.committed)
    }

    fn trim(&mut self, lsn: Lsn) -> Lsn {
        self.base = self.base.max(lsn.min(self.committed));
        self.base
    }
}
