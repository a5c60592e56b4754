//! Carries the rows of a shard to a node that lacks entries which the log does not hold any more.
//!
//! The owner's node offers a snapshot. The other node asks for one part after the other, each again until it comes, so that a
//! link may break meanwhile. The replica's own message `Snapshot` ends the transfer: only with that the rows count. All of it
//! runs on the flusher's thread, behind the chunks that were handed to the checkpoint before.
//!
//! Promises: at most one part of each transfer is in memory; at most [`OUTGOING`] transfers leave a node at a time; what was
//! not installed whole is never read as rows of a shard.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use millrace_base::{Lsn, ShardId, limits};
use millrace_format::ReplicaRecord;
use millrace_io::{Random, RealRandom};
use millrace_peers::Lane;
use millrace_replica::{Message, NodeId};
use millrace_shard::{empty_store, open_store};
use millrace_store::{Export, Import, Store, StoreError};

use super::Word;
use super::wire::Part;
use crate::core::{NodeMessage, Shared, SnapshotNews};

/// Transfers that leave this node at a time. Others wait.
const OUTGOING: usize = 4;

/// How often a part is asked for again, and how often the flusher looks.
const ASK_AGAIN_NS: u64 = 300_000_000;

/// After so long without a word a transfer is given up.
const SILENT_NS: u64 = 10_000_000_000;

/// How long the log behind a snapshot stays after it was carried, so that entries can follow.
const PINNED_NS: u64 = 30_000_000_000;

/// How often [`Snapshots::tick`] is to be called while [`Snapshots::is_busy`].
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// What the flusher's thread is asked for.
pub(crate) enum Job {
    /// Carry a shard's rows to another node.
    Ship { core: usize, shard: ShardId, to: NodeId, at_least: Lsn },
    /// The core has let go of the shard's state: replace it by what that node offers.
    Install { core: usize, shard: ShardId, from: NodeId, transfer: u64, at: Lsn },
    /// Another node says something about a transfer.
    Heard { from: NodeId, shard: ShardId, transfer: u64, part: Part },
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
    /// The number of the next part.
    next: u32,
    /// The part before it, in case it was lost.
    last: Part,
    heard_ns: u64,
}

/// A transfer from another node.
struct Incoming {
    core: usize,
    from: NodeId,
    transfer: u64,
    at: Lsn,
    /// `None` while the checkpoint cannot be written.
    import: Import,
    /// The number of the next part.
    next: u32,
    is_complete: bool,
    heard_ns: u64,
    asked_ns: u64,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Snapshots {
    outgoing: BTreeMap<(NodeId, ShardId), Outgoing>,
    waiting: VecDeque<(usize, ShardId, NodeId, Lsn)>,
    incoming: BTreeMap<ShardId, Incoming>,
    /// Logs that stay, from which entry on and until when.
    pinned: Vec<(ShardId, Lsn, u64)>,
}

impl Snapshots {
    pub(crate) fn is_busy(&self) -> bool {
        !(self.outgoing.is_empty() && self.waiting.is_empty() && self.incoming.is_empty())
    }

    /// Up to where the log of a shard may go for the sake of snapshots.
    pub(crate) fn floor(&self, shard: ShardId) -> Lsn {
        let under_way =
            self.outgoing.iter().filter(|((_, of), _)| *of == shard).map(|(_, outgoing)| outgoing.export.lsn());
        let pinned = self.pinned.iter().filter(|(of, ..)| *of == shard).map(|(_, lsn, _)| *lsn);
        under_way.chain(pinned).min().unwrap_or(Lsn(u64::MAX))
    }

    pub(crate) fn handle(&mut self, shared: &Shared, job: Job) {
        match job {
            Job::Ship { core, shard, to, at_least } => {
                self.waiting.retain(|(_, waiting, node, _)| (*waiting, *node) != (shard, to));
                self.waiting.push_back((core, shard, to, at_least));
                self.ship_next(shared);
            }
            Job::Install { core, shard, from, transfer, at } => {
                self.install(shared, (core, shard), (from, transfer, at))
            }
            Job::Heard { from, shard, transfer, part } => match part {
                Part::Offer { .. } => {}
                Part::Wanted { number } => self.send_part(shared, (from, shard), transfer, number),
                Part::Refused => self.refused(shared, (from, shard), transfer),
                Part::Rows { .. } | Part::End { .. } => self.take_part(shared, (from, shard), transfer, part),
            },
            Job::Finish { shard, from, message } => self.finish(shared, shard, from, message),
            Job::Whole { shard } => end_reset(shared, shard),
            Job::Forget { core, shard } => {
                self.incoming.remove(&shard);
                begin_empty(shared, core, shard);
            }
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, shared: &Shared) {
        let now_ns = shared.clock.monotonic_ns();
        self.pinned.retain(|(.., until_ns)| now_ns < *until_ns);
        let is_silent = |heard_ns: u64| now_ns >= heard_ns.saturating_add(SILENT_NS);
        let silent = self.outgoing.iter().filter(|(_, outgoing)| is_silent(outgoing.heard_ns)).map(|(key, _)| *key);
        for key in silent.collect::<Vec<_>>() {
            self.end(shared, key, None);
        }
        let silent = self.incoming.iter().filter(|(_, incoming)| is_silent(incoming.heard_ns)).map(|(shard, _)| *shard);
        for shard in silent.collect::<Vec<_>>() {
            self.abort(shared, shard, "the other node has fallen silent");
        }
        for (shard, incoming) in &mut self.incoming {
            if now_ns >= incoming.asked_ns.saturating_add(ASK_AGAIN_NS) {
                ask(shared, *shard, incoming);
            }
        }
    }

    /// Begins transfers that wait, as many as there may be.
    fn ship_next(&mut self, shared: &Shared) {
        while self.outgoing.len() < OUTGOING
            && let Some((core, shard, to, at_least)) = self.waiting.pop_front()
        {
            let export = match Export::begin(Arc::clone(&shared.checkpoint), shard) {
                // Else the checkpoint is not as far yet: the replica asks again.
                Ok(export) if export.lsn() >= at_least => export,
                Ok(_) => {
                    tell(shared, core, SnapshotNews::Failed { shard, to });
                    continue;
                }
                Err(error) => {
                    tracing::warn!(shard = shard.0, node = to.0, %error, "a shard's rows cannot be carried to another node");
                    tell(shared, core, SnapshotNews::Failed { shard, to });
                    continue;
                }
            };
            let (transfer, at) = (RealRandom.next_u64(), export.lsn());
            tracing::info!(shard = shard.0, node = to.0, at = at.0, "carries a shard's rows to another node");
            let offer = Part::Offer { at };
            say(shared, to, shard, transfer, &offer);
            let heard_ns = shared.clock.monotonic_ns();
            self.outgoing.insert((to, shard), Outgoing { core, transfer, export, next: 0, last: offer, heard_ns });
        }
    }

    fn send_part(&mut self, shared: &Shared, key: (NodeId, ShardId), transfer: u64, number: u32) {
        let Some(outgoing) = self.outgoing.get_mut(&key).filter(|outgoing| outgoing.transfer == transfer) else {
            return;
        };
        outgoing.heard_ns = shared.clock.monotonic_ns();
        if number.checked_add(1) == Some(outgoing.next) {
            return say(shared, key.0, key.1, transfer, &outgoing.last);
        }
        if number != outgoing.next {
            return;
        }
        if matches!(outgoing.last, Part::End { .. }) {
            let at = outgoing.export.lsn();
            return self.end(shared, key, Some(at));
        }
        let part = match outgoing.export.next_chunk(limits::SNAPSHOT_PART_BYTES) {
            Ok(Some(rows)) => Part::rows(number, rows.into()),
            Ok(None) => Part::End { number },
            Err(error) => {
                tracing::warn!(shard = key.1.0, %error, "a shard's rows cannot be read for another node");
                return self.end(shared, key, None);
            }
        };
        if let Part::Rows { rows, .. } = &part {
            shared.replication.snapshot_sent_bytes.add(rows.len() as u64);
        }
        say(shared, key.0, key.1, transfer, &part);
        (outgoing.next, outgoing.last) = (number + 1, part);
    }

    fn refused(&mut self, shared: &Shared, key: (NodeId, ShardId), transfer: u64) {
        if self.outgoing.get(&key).is_some_and(|outgoing| outgoing.transfer == transfer) {
            self.end(shared, key, None);
        }
    }

    /// A transfer to another node has ended: all is carried up to an entry, or it is given up.
    fn end(&mut self, shared: &Shared, key: (NodeId, ShardId), at: Option<Lsn>) {
        let Some(outgoing) = self.outgoing.remove(&key) else { return };
        let (to, shard) = key;
        let news = match at {
            Some(at) => {
                shared.replication.snapshots_sent.increment();
                let until_ns = shared.clock.monotonic_ns().saturating_add(PINNED_NS);
                self.pinned.push((shard, at, until_ns));
                SnapshotNews::Shipped { shard, to, at }
            }
            None => SnapshotNews::Failed { shard, to },
        };
        tell(shared, outgoing.core, news);
        self.ship_next(shared);
    }

    fn install(&mut self, shared: &Shared, (core, shard): (usize, ShardId), (from, transfer, at): (NodeId, u64, Lsn)) {
        self.incoming.remove(&shard);
        let now_ns = shared.clock.monotonic_ns();
        // From here until the end a start finds that the rows are those of no position.
        match Import::begin(Arc::clone(&shared.checkpoint), shard) {
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
                ask(shared, shard, &mut incoming);
                self.incoming.insert(shard, incoming);
            }
            Err(error) => give_up(shared, (core, shard), &error),
        }
    }

    fn take_part(&mut self, shared: &Shared, (from, shard): (NodeId, ShardId), transfer: u64, part: Part) {
        let is_meant = |incoming: &&mut Incoming| (incoming.from, incoming.transfer) == (from, transfer);
        let Some(incoming) = self.incoming.get_mut(&shard).filter(is_meant) else { return };
        if part.number() != Some(incoming.next) || incoming.is_complete {
            return;
        }
        match part {
            Part::Rows { rows, .. } => match incoming.import.add(&rows) {
                Ok(()) => shared.replication.snapshot_received_bytes.add(rows.len() as u64),
                Err(error @ StoreError::Corrupt(_)) => return self.abort(shared, shard, &error.to_string()),
                Err(error) => {
                    // It is asked for again, and the disk may have space by then.
                    return tracing::warn!(shard = shard.0, %error, "rows of another node could not be written");
                }
            },
            _ => incoming.is_complete = true,
        }
        incoming.heard_ns = shared.clock.monotonic_ns();
        incoming.next += 1;
        ask(shared, shard, incoming);
    }

    fn finish(&mut self, shared: &Shared, shard: ShardId, from: NodeId, message: Message) {
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
            open_store(shard, Arc::clone(&shared.checkpoint), RealRandom.next_u64())
        };
        match open() {
            Ok(store) => {
                if let Some(known) = shared.checkpointed.get(usize::from(shard.0)) {
                    known.store(at.lsn.0, Ordering::Release);
                }
                let store = Box::new(store);
                tell(shared, core, SnapshotNews::Installed { shard, from, message, store });
            }
            Err(error) => give_up(shared, (core, shard), &error),
        }
    }

    /// A transfer from another node will not end: what has come is thrown away.
    fn abort(&mut self, shared: &Shared, shard: ShardId, reason: &str) {
        let Some(Incoming { core, .. }) = self.incoming.remove(&shard) else { return };
        tracing::warn!(shard = shard.0, reason, "a shard's rows have not come whole from another node");
        begin_empty(shared, core, shard);
    }
}

/// Empties a shard, and has its replica begin anew.
fn begin_empty(shared: &Shared, core: usize, shard: ShardId) {
    match emptied(shared, shard) {
        Ok(store) => tell(shared, core, SnapshotNews::NotInstalled { shard, store: Box::new(store) }),
        Err(error) => give_up(shared, (core, shard), &error),
    }
}

/// The state of a shard without rows, which the next snapshot will replace.
pub(crate) fn emptied(shared: &Shared, shard: ShardId) -> Result<Store, StoreError> {
    if let Some(known) = shared.checkpointed.get(usize::from(shard.0)) {
        known.store(0, Ordering::Release);
    }
    empty_store(&shared.checkpoint, shard, RealRandom.next_u64())
}

/// The checkpoint fails: the shard's replica takes part no more.
fn give_up(shared: &Shared, (core, shard): (usize, ShardId), error: &StoreError) {
    let reason = format!("its rows could not be replaced: {error}");
    tell(shared, core, SnapshotNews::Broken { shard, reason });
}

/// The rows of a shard that had lost everything are whole again, without a snapshot: entries from the first on have come.
fn end_reset(shared: &Shared, shard: ShardId) {
    if let Err(error) = Import::end_empty(&*shared.checkpoint, shard) {
        tracing::warn!(shard = shard.0, %error, "the next start will read the shard's rows from another node once more");
    }
}

fn tell(shared: &Shared, core: usize, news: SnapshotNews) {
    shared.send(core, NodeMessage::Snapshot(news));
}

fn ask(shared: &Shared, shard: ShardId, incoming: &mut Incoming) {
    incoming.asked_ns = shared.clock.monotonic_ns();
    say(shared, incoming.from, shard, incoming.transfer, &Part::Wanted { number: incoming.next });
}

/// Mail waits for everything else. What gets lost is asked for again.
pub(crate) fn say(shared: &Shared, to: NodeId, shard: ShardId, transfer: u64, part: &Part) {
    if let Some(cluster) = &shared.cluster {
        cluster.send(to, Lane::Mail, &Word::Snapshot(shard, transfer, part.clone()));
    }
}

/// The bytes of a part and their check.
impl Part {
    fn rows(number: u32, rows: Bytes) -> Self {
        Part::Rows { number, rows }
    }

    fn number(&self) -> Option<u32> {
        match self {
            Part::Rows { number, .. } | Part::End { number } | Part::Wanted { number } => Some(*number),
            Part::Offer { .. } | Part::Refused => None,
        }
    }
}
