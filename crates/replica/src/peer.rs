//! What the owner knows of one other replica, and the entries that it keeps in memory for those a little behind.

use std::collections::VecDeque;

use millrace_base::Lsn;

use crate::ids::EntryId;
use crate::message::LogEntry;

/// How the owner sends to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sending {
    /// Where the logs meet is not known: one message at a time.
    Probing,
    /// As much as the window allows.
    Streaming,
    /// It needs a snapshot, which is on its way.
    Snapshot,
}

/// One replica as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub sending: Sending,
    /// Entries are being read from the log for it.
    pub is_reading: bool,
    /// The next entry to send.
    pub next: Lsn,
    /// Everything up to here is on its disk, as here.
    pub matched: Lsn,
    /// The last round that it answered.
    pub round: u64,
    /// The last round of an acknowledgement.
    pub acked_round: u64,
    /// Until when its lease lasts, by the owner's clock.
    pub lease_until_ns: u64,
    /// It is a learner, and that it has caught up was said.
    pub has_caught_up: bool,
    /// Last entry and bytes of each message with entries on its way.
    in_flight: VecDeque<(Lsn, usize, usize)>,
}

impl Peer {
    /// A replica that probably has everything before `next`.
    pub fn new(next: Lsn) -> Self {
        Self {
            sending: Sending::Probing,
            is_reading: false,
            next,
            matched: Lsn::ZERO,
            round: 0,
            acked_round: 0,
            lease_until_ns: 0,
            has_caught_up: false,
            in_flight: VecDeque::new(),
        }
    }

    /// The position before the next entry to send.
    pub fn before_next(&self) -> Lsn {
        Lsn(self.next.0.saturating_sub(1))
    }

    /// Whether another message with entries may leave.
    pub fn has_room(&self, window: (usize, usize)) -> bool {
        let (bytes, entries) = self.in_flight.iter().fold((0, 0), |sum, (_, b, e)| (sum.0 + b, sum.1 + e));
        match self.sending {
            Sending::Probing => self.in_flight.is_empty(),
            Sending::Streaming => bytes < window.0 && entries < window.1,
            Sending::Snapshot => false,
        }
    }

    /// Notes that these entries have left.
    pub fn sent(&mut self, entries: &[LogEntry]) {
        if let Some(last) = entries.last() {
            let bytes = entries.iter().map(|entry| entry.bytes.len()).sum();
            self.in_flight.push_back((last.id.lsn, bytes, entries.len()));
            self.next = last.id.lsn.next();
        }
    }

    /// It has acknowledged. `base` is where this log begins.
    pub fn acked(&mut self, durable: Lsn, base: Lsn) {
        self.matched = self.matched.max(durable);
        while self.in_flight.front().is_some_and(|(last, ..)| *last <= self.matched) {
            self.in_flight.pop_front();
        }
        if self.sending != Sending::Snapshot || self.matched >= base {
            self.next = self.next.max(self.matched.next());
            self.sending = Sending::Streaming;
        }
    }

    /// Its log meets this one at `at`. Says whether anything has to be sent again.
    pub fn rewind(&mut self, at: Lsn) -> bool {
        let is_on_its_way = self.sending == Sending::Probing && !self.in_flight.is_empty() && self.before_probe() == at;
        if self.sending == Sending::Snapshot || is_on_its_way {
            return false;
        }
        self.forget_sent();
        self.next = at.next();
        self.sending = Sending::Probing;
        true
    }

    fn before_probe(&self) -> Lsn {
        let entries: u64 = self.in_flight.iter().map(|(_, _, entries)| *entries as u64).sum();
        Lsn(self.before_next().0.saturating_sub(entries))
    }

    /// What is on its way counts as lost.
    pub fn forget_sent(&mut self) {
        self.in_flight.clear();
    }

    /// Begins again after what it has surely, unless a snapshot is on its way.
    pub fn start_over(&mut self) {
        if self.sending != Sending::Snapshot {
            self.forget_sent();
            self.next = self.matched.next();
            self.sending = Sending::Probing;
        }
    }

    /// Sends what was on its way in a probe again.
    pub fn repeat_probe(&mut self) {
        if self.sending == Sending::Probing {
            self.next = self.before_probe().next();
            self.forget_sent();
        }
    }
}

/// The newest entries, within a limit of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Cache {
    entries: VecDeque<LogEntry>,
    bytes: usize,
}

/// What an entry costs in memory beside its payload.
const ENTRY_OVERHEAD_BYTES: usize = size_of::<LogEntry>();

impl Cache {
    /// Keeps an entry, and forgets the oldest ones over the limit.
    pub fn push(&mut self, entry: LogEntry, limit_bytes: usize) {
        self.bytes += entry.bytes.len() + ENTRY_OVERHEAD_BYTES;
        self.entries.push_back(entry);
        while self.bytes > limit_bytes && self.entries.len() > 1 {
            if let Some(oldest) = self.entries.pop_front() {
                self.bytes -= oldest.bytes.len() + ENTRY_OVERHEAD_BYTES;
            }
        }
    }

    /// Bytes of the kept entries after that position.
    pub fn bytes_after(&self, position: Lsn) -> u64 {
        self.entries
            .iter()
            .rev()
            .take_while(|entry| entry.id.lsn > position)
            .map(|entry| entry.bytes.len() as u64)
            .sum()
    }

    /// Entries after `after`: one at least, and more within a message's limits. `None` if the first is not kept.
    pub fn after(&self, after: EntryId, limits: (usize, usize)) -> Option<Vec<LogEntry>> {
        let first = self.entries.front()?.id.lsn;
        let skipped = usize::try_from(after.lsn.next().0.checked_sub(first.0)?).ok()?;
        let mut bytes = 0;
        let taken: Vec<LogEntry> = self
            .entries
            .iter()
            .skip(skipped)
            .take(limits.1)
            .enumerate()
            .take_while(|(index, entry)| {
                bytes += entry.bytes.len();
                *index == 0 || bytes <= limits.0
            })
            .map(|(_, entry)| entry.clone())
            .collect();
        (!taken.is_empty()).then_some(taken)
    }
}
