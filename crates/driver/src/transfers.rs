//! Carries the rows of a shard to a node that lacks entries which the log does not hold any more.
//!
//! The owner's node offers a snapshot. The other node asks for one part after the other, each again until it comes, so that a
//! link may break meanwhile. The replica's own message `Snapshot` ends the transfer: only with that the rows count. All of it
//! runs beside the cores, in order with the chunks that are written to the checkpoint.
//!
//! Promises: at most one part of each transfer is in memory; at most [`OUTGOING`] transfers leave a node at a time; what was
//! not installed whole is never read as rows of a shard.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use millrace_base::{Lsn, ShardId, limits};
use millrace_format::ReplicaRecord;
use millrace_replica::{Message, NodeId};
use millrace_shard::{empty_store, open_store};
use millrace_store::{Checkpoint, Export, Import, Store, StoreError};

use crate::core::Core;
use crate::platform::{DriverBug, Platform};

/// Transfers that leave this node at a time. Others wait.
const OUTGOING: usize = 4;

/// How often a part is asked for again.
const ASK_AGAIN_NS: u64 = 300_000_000;

/// After so long without a word a transfer is given up.
const SILENT_NS: u64 = 10_000_000_000;

/// How long the log behind a snapshot stays after it was carried, so that entries can follow.
const PINNED_NS: u64 = 30_000_000_000;

/// What is said about a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant says what its fields are")]
pub enum SnapshotPart {
    /// The sender has rows that hold everything up to an entry.
    Offer { at: Lsn },
    /// The receiver wants the part of this number. Behind the end: it has everything.
    Wanted { number: u32 },
    /// The receiver does not want it.
    Refused,
    /// Rows.
    Rows { number: u32, rows: Bytes },
    /// No more rows come.
    End { number: u32 },
}

/// What becomes of a snapshot of a shard's rows.
#[allow(missing_docs, reason = "each variant says what its fields are")]
pub enum SnapshotNews {
    /// It could not be carried to a peer.
    Failed { shard: ShardId, to: NodeId },
    /// It was carried to a peer, and holds everything up to an entry.
    Shipped { shard: ShardId, to: NodeId, at: Lsn },
    /// The one that a peer has offered is installed, and its replica has said this.
    Installed { shard: ShardId, from: NodeId, message: Message, store: Box<Store> },
    /// The one that a peer has offered did not come whole: the shard is empty here.
    NotInstalled { shard: ShardId, store: Box<Store> },
    /// The shard's rows can be neither read nor written.
    Broken { shard: ShardId, reason: String },
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Bytes of rows have left.
    Sent(usize),
    /// Bytes of rows have come.
    Received(usize),
    /// A whole snapshot has left.
    Whole,
}

/// What transfers need of the node around them.
pub trait Carrier {
    /// Where rows are.
    fn checkpoint(&self) -> Arc<dyn Checkpoint>;

    /// A clock that only goes forward, in nanoseconds.
    fn monotonic_ns(&self) -> u64;

    /// Random bits.
    fn draw(&self) -> u64;

    /// Says something about a transfer to another node. It may get lost.
    fn say(&self, to: NodeId, shard: ShardId, transfer: u64, part: SnapshotPart);

    /// Tells a core what has become of a snapshot.
    fn tell(&self, core: usize, news: SnapshotNews);

    /// The checkpoint's rows of a shard are at another entry from now on.
    fn now_at(&self, _shard: ShardId, _lsn: Lsn) {}

    /// Counts.
    fn note(&self, _moved: Moved) {}

    /// The most bytes of one part, if its first row is no larger.
    fn part_bytes(&self) -> usize {
        limits::SNAPSHOT_PART_BYTES
    }

    /// Whether the simulator has planted this bug.
    fn has_planted(&self, _bug: DriverBug) -> bool {
        false
    }
}

/// What transfers are asked for.
#[allow(missing_docs, reason = "each variant says what its fields are")]
pub enum TransferJob {
    /// Carry a shard's rows to another node.
    Ship { core: usize, shard: ShardId, to: NodeId, at_least: Lsn },
    /// The core has let go of the shard's state: replace it by what that node offers.
    Install { core: usize, shard: ShardId, from: NodeId, transfer: u64, at: Lsn },
    /// Another node says something about a transfer.
    Heard { from: NodeId, shard: ShardId, transfer: u64, part: SnapshotPart },
    /// The owner's replica says that all is carried.
    Finish { shard: ShardId, from: NodeId, message: Message },
    /// A replica holds everything again that it had acknowledged.
    Whole { shard: ShardId },
    /// The core has let go of the state of a shard that this node holds no more: empty it.
    Forget { core: usize, shard: ShardId },
}

/// A transfer to another node.
struct Outgoing {
    core: usize,
    transfer: u64,
    export: Export,
    /// The entry up to which it holds everything.
    at: Lsn,
    /// The number of the next part.
    next: u32,
    /// The part before it, in case it was lost.
    last: SnapshotPart,
    heard_ns: u64,
}

/// A transfer from another node.
struct Incoming {
    core: usize,
    from: NodeId,
    transfer: u64,
    at: Lsn,
    import: Import,
    /// The number of the next part.
    next: u32,
    is_complete: bool,
    heard_ns: u64,
    asked_ns: u64,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Transfers {
    outgoing: BTreeMap<(NodeId, ShardId), Outgoing>,
    waiting: VecDeque<(usize, ShardId, NodeId, Lsn)>,
    incoming: BTreeMap<ShardId, Incoming>,
    /// Logs that stay, from which entry on and until when.
    pinned: Vec<(ShardId, Lsn, u64)>,
}

impl Transfers {
    /// Whether time has to pass for something.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !(self.outgoing.is_empty() && self.waiting.is_empty() && self.incoming.is_empty())
    }

    /// How many leave this node, and how many come.
    #[must_use]
    pub fn under_way(&self) -> (usize, usize) {
        (self.outgoing.len(), self.incoming.len())
    }

    /// Up to where the log of a shard may go for the sake of snapshots. Time alone lets go of what was carried: nobody ticks
    /// where no transfer is under way.
    #[must_use]
    pub fn floor(&self, shard: ShardId, now_ns: u64) -> Lsn {
        let under_way = self.outgoing.iter().filter(|((_, of), _)| *of == shard).map(|(_, outgoing)| outgoing.at);
        let is_pinned = |(of, _, until_ns): &&(ShardId, Lsn, u64)| *of == shard && now_ns < *until_ns;
        let pinned = self.pinned.iter().filter(is_pinned).map(|(_, lsn, _)| *lsn);
        under_way.chain(pinned).min().unwrap_or(Lsn(u64::MAX))
    }

    /// Does a job, in order with the chunks that are written to the checkpoint.
    pub fn handle(&mut self, carrier: &impl Carrier, job: TransferJob) {
        match job {
            TransferJob::Ship { core, shard, to, at_least } => {
                self.waiting.retain(|(_, waiting, node, _)| (*waiting, *node) != (shard, to));
                self.waiting.push_back((core, shard, to, at_least));
                self.ship_next(carrier);
            }
            TransferJob::Install { core, shard, from, transfer, at } => {
                self.install(carrier, (core, shard), (from, transfer, at))
            }
            TransferJob::Heard { from, shard, transfer, part } => match part {
                SnapshotPart::Offer { .. } => {}
                SnapshotPart::Wanted { number } => self.send_part(carrier, (from, shard), transfer, number),
                SnapshotPart::Refused => self.refused(carrier, (from, shard), transfer),
                SnapshotPart::Rows { .. } | SnapshotPart::End { .. } => {
                    self.take_part(carrier, (from, shard), transfer, part)
                }
            },
            TransferJob::Finish { shard, from, message } => self.finish(carrier, shard, from, message),
            TransferJob::Whole { shard } => end_reset(carrier, shard),
            TransferJob::Forget { core, shard } => {
                self.incoming.remove(&shard);
                begin_empty(carrier, core, shard);
            }
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, carrier: &impl Carrier) {
        let now_ns = carrier.monotonic_ns();
        self.pinned.retain(|(.., until_ns)| now_ns < *until_ns);
        let is_silent = |heard_ns: u64| now_ns >= heard_ns.saturating_add(SILENT_NS);
        let silent = self.outgoing.iter().filter(|(_, outgoing)| is_silent(outgoing.heard_ns)).map(|(key, _)| *key);
        for key in silent.collect::<Vec<_>>() {
            self.end(carrier, key, None);
        }
        let silent = self.incoming.iter().filter(|(_, incoming)| is_silent(incoming.heard_ns)).map(|(shard, _)| *shard);
        for shard in silent.collect::<Vec<_>>() {
            self.abort(carrier, shard, "the other node has fallen silent");
        }
        for (shard, incoming) in &mut self.incoming {
            if now_ns >= incoming.asked_ns.saturating_add(ASK_AGAIN_NS) {
                ask(carrier, *shard, incoming);
            }
        }
    }

    /// Begins transfers that wait, as many as there may be.
    fn ship_next(&mut self, carrier: &impl Carrier) {
        while self.outgoing.len() < OUTGOING
            && let Some((core, shard, to, at_least)) = self.waiting.pop_front()
        {
            let export = match Export::begin(carrier.checkpoint(), shard) {
                // Else the checkpoint is not as far yet: the replica asks again.
                Ok(export) if export.lsn() >= at_least => export,
                Ok(_) => {
                    carrier.tell(core, SnapshotNews::Failed { shard, to });
                    continue;
                }
                Err(error) => {
                    tracing::warn!(shard = shard.0, node = to.0, %error, "a shard's rows cannot be carried to another node");
                    carrier.tell(core, SnapshotNews::Failed { shard, to });
                    continue;
                }
            };
            let is_ahead = carrier.has_planted(DriverBug::SnapshotAhead);
            let (transfer, at) = (carrier.draw(), if is_ahead { export.lsn().next() } else { export.lsn() });
            tracing::info!(shard = shard.0, node = to.0, at = at.0, "carries a shard's rows to another node");
            let offer = SnapshotPart::Offer { at };
            carrier.say(to, shard, transfer, offer.clone());
            let heard_ns = carrier.monotonic_ns();
            self.outgoing.insert((to, shard), Outgoing { core, transfer, export, at, next: 0, last: offer, heard_ns });
        }
    }

    fn send_part(&mut self, carrier: &impl Carrier, key: (NodeId, ShardId), transfer: u64, number: u32) {
        let Some(outgoing) = self.outgoing.get_mut(&key).filter(|outgoing| outgoing.transfer == transfer) else {
            return;
        };
        outgoing.heard_ns = carrier.monotonic_ns();
        if number.checked_add(1) == Some(outgoing.next) {
            return carrier.say(key.0, key.1, transfer, outgoing.last.clone());
        }
        if number != outgoing.next {
            return;
        }
        if matches!(outgoing.last, SnapshotPart::End { .. }) {
            let at = outgoing.at;
            return self.end(carrier, key, Some(at));
        }
        let part = match outgoing.export.next_chunk(carrier.part_bytes()) {
            Ok(Some(rows)) => SnapshotPart::Rows { number, rows: rows.into() },
            Ok(None) => SnapshotPart::End { number },
            Err(error) => {
                tracing::warn!(shard = key.1.0, %error, "a shard's rows cannot be read for another node");
                return self.end(carrier, key, None);
            }
        };
        if let SnapshotPart::Rows { rows, .. } = &part {
            carrier.note(Moved::Sent(rows.len()));
        }
        carrier.say(key.0, key.1, transfer, part.clone());
        (outgoing.next, outgoing.last) = (number + 1, part);
    }

    fn refused(&mut self, carrier: &impl Carrier, key: (NodeId, ShardId), transfer: u64) {
        if self.outgoing.get(&key).is_some_and(|outgoing| outgoing.transfer == transfer) {
            self.end(carrier, key, None);
        }
    }

    /// A transfer to another node has ended: all is carried up to an entry, or it is given up.
    fn end(&mut self, carrier: &impl Carrier, key: (NodeId, ShardId), at: Option<Lsn>) {
        let Some(outgoing) = self.outgoing.remove(&key) else { return };
        let (to, shard) = key;
        let news = match at {
            Some(at) => {
                carrier.note(Moved::Whole);
                let until_ns = carrier.monotonic_ns().saturating_add(PINNED_NS);
                self.pinned.push((shard, at, until_ns));
                SnapshotNews::Shipped { shard, to, at }
            }
            None => SnapshotNews::Failed { shard, to },
        };
        carrier.tell(outgoing.core, news);
        self.ship_next(carrier);
    }

    fn install(
        &mut self,
        carrier: &impl Carrier,
        (core, shard): (usize, ShardId),
        (from, transfer, at): (NodeId, u64, Lsn),
    ) {
        self.incoming.remove(&shard);
        let now_ns = carrier.monotonic_ns();
        // From here until the end a start finds that the rows are those of no position.
        match Import::begin(carrier.checkpoint(), shard) {
            Ok(import) => {
                tracing::info!(shard = shard.0, node = from.0, at = at.0, "gets a shard's rows from another node");
                let mut incoming = Incoming {
                    core,
                    from,
                    transfer,
                    at,
                    import,
                    next: 0,
                    is_complete: false,
                    heard_ns: now_ns,
                    asked_ns: now_ns,
                };
                ask(carrier, shard, &mut incoming);
                self.incoming.insert(shard, incoming);
            }
            Err(error) => give_up(carrier, (core, shard), &error),
        }
    }

    fn take_part(
        &mut self,
        carrier: &impl Carrier,
        (from, shard): (NodeId, ShardId),
        transfer: u64,
        part: SnapshotPart,
    ) {
        let is_meant = |incoming: &&mut Incoming| (incoming.from, incoming.transfer) == (from, transfer);
        let Some(incoming) = self.incoming.get_mut(&shard).filter(is_meant) else { return };
        let is_next = part.number() == Some(incoming.next) || carrier.has_planted(DriverBug::CountPartTwice);
        if !is_next || incoming.is_complete {
            return;
        }
        match part {
            SnapshotPart::Rows { rows, .. } => match incoming.import.add(&rows) {
                Ok(()) => carrier.note(Moved::Received(rows.len())),
                Err(error @ StoreError::Corrupt(_)) => return self.abort(carrier, shard, &error.to_string()),
                Err(error) => {
                    // It is asked for again, and the disk may have space by then.
                    return tracing::warn!(shard = shard.0, %error, "rows of another node could not be written");
                }
            },
            _ => incoming.is_complete = true,
        }
        incoming.heard_ns = carrier.monotonic_ns();
        incoming.next += 1;
        ask(carrier, shard, incoming);
    }

    fn finish(&mut self, carrier: &impl Carrier, shard: ShardId, from: NodeId, message: Message) {
        let Message::Snapshot { at, set_lsn, ref set, .. } = message else { return };
        let is_this = |incoming: &Incoming| incoming.is_complete && (incoming.from, incoming.at) == (from, at.lsn);
        if !self.incoming.get(&shard).is_some_and(is_this) {
            return;
        }
        let Some(Incoming { core, import, .. }) = self.incoming.remove(&shard) else { return };
        let set = set.encode();
        let reset = ReplicaRecord::Reset { at_epoch: at.epoch.0, at_lsn: at.lsn, set_lsn, set: &set };
        let mut note = Vec::new();
        reset.encode(shard, &mut note);
        let open = || {
            import.finish(at.lsn, &note)?;
            open_store(shard, carrier.checkpoint(), carrier.draw())
        };
        match open() {
            Ok(store) => {
                carrier.now_at(shard, at.lsn);
                let store = Box::new(store);
                carrier.tell(core, SnapshotNews::Installed { shard, from, message, store });
            }
            Err(error) => give_up(carrier, (core, shard), &error),
        }
    }

    /// A transfer from another node will not end: what has come is thrown away.
    fn abort(&mut self, carrier: &impl Carrier, shard: ShardId, reason: &str) {
        let Some(Incoming { core, .. }) = self.incoming.remove(&shard) else { return };
        tracing::warn!(shard = shard.0, reason, "a shard's rows have not come whole from another node");
        begin_empty(carrier, core, shard);
    }
}

/// Empties a shard, and has its replica begin anew.
fn begin_empty(carrier: &impl Carrier, core: usize, shard: ShardId) {
    match emptied(carrier, shard) {
        Ok(store) => carrier.tell(core, SnapshotNews::NotInstalled { shard, store: Box::new(store) }),
        Err(error) => give_up(carrier, (core, shard), &error),
    }
}

/// The state of a shard without rows, which the next snapshot will replace.
fn emptied(carrier: &impl Carrier, shard: ShardId) -> Result<Store, StoreError> {
    carrier.now_at(shard, Lsn::ZERO);
    empty_store(&carrier.checkpoint(), shard, carrier.draw())
}

/// The checkpoint fails: the shard's replica takes part no more.
fn give_up(carrier: &impl Carrier, (core, shard): (usize, ShardId), error: &StoreError) {
    let reason = format!("its rows could not be replaced: {error}");
    carrier.tell(core, SnapshotNews::Broken { shard, reason });
}

/// The rows of a shard that had lost everything are whole again, without a snapshot: entries from the first on have come.
fn end_reset(carrier: &impl Carrier, shard: ShardId) {
    if let Err(error) = Import::end_empty(&*carrier.checkpoint(), shard) {
        tracing::warn!(shard = shard.0, %error, "the next start will read the shard's rows from another node once more");
    }
}

fn ask(carrier: &impl Carrier, shard: ShardId, incoming: &mut Incoming) {
    incoming.asked_ns = carrier.monotonic_ns();
    carrier.say(incoming.from, shard, incoming.transfer, SnapshotPart::Wanted { number: incoming.next });
}

impl SnapshotPart {
    fn number(&self) -> Option<u32> {
        match self {
            SnapshotPart::Rows { number, .. } | SnapshotPart::End { number } | SnapshotPart::Wanted { number } => {
                Some(*number)
            }
            SnapshotPart::Offer { .. } | SnapshotPart::Refused => None,
        }
    }
}

impl<P: Platform> Core<P> {
    /// Another node offers a shard's rows. They are taken if the replica here lacks them: then the state is given up, and
    /// this says what the transfers are asked for.
    pub fn snapshot_offered(
        &mut self,
        shard: ShardId,
        (from, transfer, at): (NodeId, u64, Lsn),
    ) -> Option<TransferJob> {
        let core = self.index();
        self.begin_install(shard, at).then_some(TransferJob::Install { core, shard, from, transfer, at })
    }

    /// Hears what has become of a snapshot. `nonce`: names this process's replica, should it begin anew.
    pub fn hear_of_snapshot(&mut self, news: SnapshotNews, nonce: u64) {
        match news {
            SnapshotNews::Failed { shard, to } => self.snapshot_failed(shard, to),
            SnapshotNews::Shipped { shard, to, at } => self.snapshot_shipped(shard, to, at),
            SnapshotNews::Installed { shard, from, message, store } => {
                self.snapshot_installed(shard, from, message, *store);
            }
            SnapshotNews::NotInstalled { shard, store } => self.install_failed(shard, *store, nonce),
            SnapshotNews::Broken { shard, reason } => self.stop_replica(shard, &reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing else is under way, so nobody ticks. The log of a whole core stayed for ever.
    #[test]
    fn the_log_behind_a_snapshot_that_has_left_goes_after_a_while() {
        let (shard, at) = (ShardId(3), Lsn(7));
        let transfers = Transfers { pinned: vec![(shard, at, PINNED_NS)], ..Transfers::default() };
        assert!(!transfers.is_busy());
        assert_eq!(transfers.floor(shard, PINNED_NS - 1), at);
        assert_eq!(transfers.floor(ShardId(4), 0), Lsn(u64::MAX));
        assert_eq!(transfers.floor(shard, PINNED_NS), Lsn(u64::MAX));
    }
}
