//! What threads say to a core.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use millrace_base::{Error, Lsn, Name, ShardId};
use millrace_driver::{Carrier, CoreMessage, CoreVersions, SnapshotNews, SnapshotPart, Standing, TransferJob};
use millrace_func::App;
use millrace_io::{Random, RealRandom};
use millrace_log::Committed;
use millrace_replica::{EntryId, Epoch, LogEntry, Message, NodeId, Replica};
use millrace_shard::OffloadTicket;
use millrace_store::{ColdRows, FlushChunk, Store};
use tokio::sync::oneshot;

use crate::cluster::log_reader::Runs;
use crate::core::{Core, activate, load, miss};
use crate::flusher::{ReadJob, ReopenJob};

/// One message to a core.
pub(crate) enum NodeMessage {
    /// Another core says something.
    OfCore(CoreMessage),
    /// A peer's replica of a shard says something.
    Replica { shard: ShardId, from: NodeId, message: Message },
    /// Read entries of a shard's log for a peer.
    ReadLog { shard: ShardId, to: NodeId, after: EntryId, bytes: usize },
    /// Read a shard's state again, up to an entry.
    Reopen { shard: ShardId, up_to: Lsn },
    /// A shard's log is not needed up to an entry.
    Trim { shard: ShardId, up_to: Lsn },
    /// Entries of a shard's log were read for a peer.
    LogRead { shard: ShardId, to: NodeId, after: EntryId, entries: Vec<LogEntry> },
    /// A shard's state was read again.
    Reopened { shard: ShardId, store: Result<Box<Store>, String> },
    /// What has become of a snapshot.
    Snapshot(SnapshotNews),
    /// A peer offers a snapshot.
    Offered { shard: ShardId, from: NodeId, transfer: u64, at: Lsn },
    /// Guidance says who owns a shard, who is to have it next, and which nodes hold its log.
    Guided { shard: ShardId, owner: (NodeId, Option<NodeId>), epoch: Epoch, replicas: Vec<NodeId> },
    /// A node is gone.
    PeerLost { node: NodeId },
    /// A node has started anew.
    PeerRestarted { node: NodeId },
    /// The link to a node is up, or down.
    PeerLink { node: NodeId, is_up: bool },
    /// Offloaded work has ended.
    Offloaded { ticket: OffloadTicket, result: Result<Bytes, Error> },
    /// A worker has had its turn.
    Exchanged { ticket: OffloadTicket, result: Result<Bytes, Error> },
    /// Rows were read beside the core.
    RowsRead(ColdRows),
    /// A backup of the cluster is taken.
    Still(Still),
    /// The committer's news.
    Committed(Committed),
    /// The flusher has written a chunk, or failed to.
    Flushed { shard: ShardId, chunk: FlushChunk, result: Result<(), String> },
    /// Load an app, without sending requests to it yet.
    Prepare { deployment: u32, app: Arc<App>, done: oneshot::Sender<Result<(), Error>> },
    /// Close the services that go with what a loaded app replaces. Answers which.
    Close { deployment: u32, done: oneshot::Sender<Vec<Name>> },
    /// Send requests to a loaded app. Answers the services that have to be swept now.
    Activate { deployment: u32, done: oneshot::Sender<Vec<Name>> },
    /// Is anything under way that began before this was asked?
    IsQuiet { done: oneshot::Sender<bool> },
    /// Nothing is under way that began before this deployment served: what it replaced may be unloaded.
    Settle { deployment: u32 },
    /// How many bytes do the programs hold that were replaced and are still loaded?
    ReplacedBytes { done: oneshot::Sender<usize> },
    /// How many transactions run in each version of this app?
    TransactionsByVersion { app: Arc<str>, done: oneshot::Sender<Vec<(u64, usize)>> },
    /// Which versions of apps are needed? Answers nothing where that is not known yet.
    Versions { done: oneshot::Sender<Option<CoreVersions>> },
    /// A version of an app is kept for workflows.
    ForWorkflows(ForWorkflows),
    /// Forget an app that was loaded but will not be activated.
    Discard { deployment: u32 },
    /// Send no more requests to an app.
    Remove { app: String, done: oneshot::Sender<bool> },
}

/// What a core does about versions that are kept for workflows.
pub(crate) enum ForWorkflows {
    /// These stay loaded, though nothing here runs in them.
    Keep { deployments: BTreeSet<u32> },
    /// A version was loaded. No requests are sent to it.
    Loaded { deployment: u32 },
    /// A version could not be loaded. Its workflows wait.
    Missed { deployment: u32, app: Arc<App>, error: Error },
}

/// What a core does while a backup of the cluster is taken.
pub(crate) enum Still {
    /// Have no shard add an entry for so long, or until told to go on. Answers where the logs of open shards end.
    Stand {
        for_ns: u64,
        answer: mpsc::Sender<Vec<Standing>>,
    },
    GoOn,
    /// Are these logs, where this core hosts them, on the disk up to there?
    HoldsAll {
        standing: Arc<Vec<Standing>>,
        answer: mpsc::Sender<bool>,
    },
}

/// Gives a message to its core. Where nobody waits for an answer any more, the node is stopping.
pub(crate) fn handle(core: &mut Core, message: NodeMessage) {
    match message {
        NodeMessage::OfCore(message) => core.handle(message),
        // The rows that it is about have to be installed first.
        NodeMessage::Replica { shard, from, message: message @ Message::Snapshot { .. } } => {
            core.platform.shared.flusher.snapshot(TransferJob::Finish { shard, from, message });
        }
        NodeMessage::Replica { shard, from, message } => core.receive(shard, from, message),
        NodeMessage::ReadLog { shard, to, after, bytes } => {
            let runs = runs_of(core, shard);
            let job = ReadJob { core: core.index(), shard, to, after, runs, bytes };
            core.platform.shared.flusher.read_log(job);
        }
        NodeMessage::Reopen { shard, up_to } => {
            let runs = runs_of(core, shard);
            core.platform.shared.flusher.reopen(ReopenJob { core: core.index(), shard, runs, up_to });
        }
        NodeMessage::Trim { shard, up_to } => {
            core.trimmed(shard, up_to);
        }
        NodeMessage::LogRead { shard, to, after, entries } => core.log_read(shard, to, after, entries),
        NodeMessage::Reopened { shard, store } => match store {
            Ok(store) => core.reopened(shard, *store),
            Err(reason) => core.reopen_failed(shard, &reason),
        },
        NodeMessage::Snapshot(news) => handle_snapshot(core, news),
        NodeMessage::Offered { shard, from, transfer, at } => offered(core, shard, (from, transfer, at)),
        NodeMessage::Guided { shard, owner, epoch, replicas } => core.guided(shard, owner, epoch, &replicas),
        NodeMessage::PeerLost { node } => core.peer_lost(node),
        NodeMessage::PeerRestarted { node } => core.peer_restarted(node),
        NodeMessage::PeerLink { node, is_up: true } => core.peer_linked(node),
        NodeMessage::PeerLink { node, is_up: false } => core.peer_unlinked(node),
        NodeMessage::Offloaded { ticket, result } => core.offloaded(ticket, result),
        NodeMessage::Exchanged { ticket, result } => core.exchanged(ticket, result),
        NodeMessage::RowsRead(rows) => core.rows_read(rows),
        NodeMessage::Still(still) => handle_still(core, still),
        NodeMessage::Committed(news) => {
            let has_segment_begun = matches!(&news, Committed::Durable { report, .. } if report.began_segment && core.platform.is_in_cluster());
            core.committed(news);
            if has_segment_begun {
                core.segment_began();
            }
        }
        NodeMessage::Flushed { shard, chunk, result } => core.flushed(shard, &chunk, result),
        NodeMessage::Prepare { deployment, app, done } => {
            let _ = done.send(load(core, deployment, &app));
        }
        NodeMessage::Close { deployment, done } => {
            let _ = done.send(core.close(deployment));
        }
        NodeMessage::Activate { deployment, done } => {
            let _ = done.send(begin_to_serve(core, deployment));
        }
        NodeMessage::IsQuiet { done } => drop(done.send(core.is_quiet())),
        NodeMessage::Settle { deployment } => core.settle(deployment),
        NodeMessage::ReplacedBytes { done } => drop(done.send(core.replaced_bytes())),
        NodeMessage::TransactionsByVersion { app, done } => drop(done.send(core.transactions_by_version(&app))),
        NodeMessage::Versions { done } => {
            let _ = done.send(core.versions());
        }
        NodeMessage::ForWorkflows(message) => handle_for_workflows(core, message),
        NodeMessage::Discard { deployment } => {
            let program = core.discard(deployment);
            core.platform.forget(program.as_slice());
        }
        NodeMessage::Remove { app, done } => {
            let _ = done.send(core.remove(&app));
        }
    }
}

/// Gives what the deployment has changed, as [`activate`].
fn begin_to_serve(core: &mut Core, deployment: u32) -> Vec<Name> {
    let changed = activate(core, deployment);
    core.see_deployed();
    changed
}

fn handle_for_workflows(core: &mut Core, message: ForWorkflows) {
    match message {
        ForWorkflows::Keep { deployments } => core.keep_loaded(&deployments),
        ForWorkflows::Loaded { deployment } => core.load_for_workflows(deployment),
        ForWorkflows::Missed { deployment, app, error } => miss(core, deployment, &app, false, &error),
    }
}

/// Whoever asked may have given up.
fn handle_still(core: &mut Core, still: Still) {
    match still {
        Still::Stand { for_ns, answer } => drop(answer.send(core.stand_still(for_ns))),
        Still::GoOn => core.go_on(),
        Still::HoldsAll { standing, answer } => drop(answer.send(core.holds_all(&standing))),
    }
}

/// What has become of a snapshot, to another node or from one.
fn handle_snapshot(core: &mut Core, news: SnapshotNews) {
    let emptied = match &news {
        SnapshotNews::NotInstalled { shard, .. } => Some(*shard),
        _ => None,
    };
    core.hear_of_snapshot(news, RealRandom.next_u64());
    emptied.into_iter().for_each(|shard| core.platform.shared.note_emptied(shard, true));
}

/// Another node offers a shard's rows: they are taken if the replica here lacks them.
fn offered(core: &mut Core, shard: ShardId, (from, transfer, at): (NodeId, u64, Lsn)) {
    let wanted = core.snapshot_offered(shard, (from, transfer, at));
    let shared = &core.platform.shared;
    match wanted {
        Some(job) => shared.flusher.snapshot(job),
        None => shared.say(from, shard, transfer, SnapshotPart::Refused),
    }
}

/// What tells the entries of a shard's log here from others.
fn runs_of(core: &Core, shard: ShardId) -> Runs {
    match core.replica(shard).map(Replica::log) {
        Some(log) => Runs { runs: log.runs().map(|id| (id.epoch.0, id.lsn)).collect(), last: log.last().lsn },
        None => Runs { runs: Vec::new(), last: Lsn::ZERO },
    }
}
