//! This node as one of a cluster.
//!
//! The meta shard's state is what the cluster agrees on. One task on core 0, the [`guide`], follows it: it loads the apps that are
//! deployed, and tells every core who owns which shard. On the node that owns the meta shard it also decides what comes next
//! ([`millrace_guidance::Leader`]). `docs/internals/guidance.md` has the rules.
//!
//! Promises: apps are loaded before the shards that may run them are taken; guidance is told to each core in the order of
//! its epochs; a request that comes from another node runs once. Must not know how frames travel: that is the crate `peers`.

mod bodies;
mod body_word;
mod catalogue;
mod condition;
mod copy_word;
mod dialled;
mod emptying;
mod figures;
mod founding;
mod guide;
mod holding;
mod inbound;
mod leaving;
mod loading;
pub(crate) mod log_reader;
mod lost;
mod majority;
mod merging;
mod nodes;
pub(crate) mod records;
mod replacing;
mod rescue;
mod rows;
pub(crate) mod snapshots;
mod standstill;
mod start;
mod stopped;
mod sweeping;
mod tables;
mod versions;
mod view;
mod whole;
mod wire;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use millrace_api::{MAJORITY_LOST, REMOVED};
use millrace_base::{Error, ErrorCode, Name, ShardId, limits};
use millrace_guidance::{CALLERS_LEVEL, Dialled, FEATURE_LEVEL, Guidance, Status, Unneeded};
use millrace_log::{Batch, RecoveredReplica};
use millrace_peers::{ClusterId, Identity, Lane, Links, PeerAddress, SendError};
use millrace_replica::{Epoch, NodeId, Replica, RoleName};
use tokio::sync::{Notify, oneshot};

pub(crate) use bodies::{Carrier, UNSETTLED, Unreadable};
pub(crate) use body_word::BodyWord;
pub(crate) use catalogue::{deploy, remove};
pub(crate) use condition::{Condition, Hindrance};
pub(crate) use copy_word::{CopyStep, CopyWord};
pub use emptying::{KnownCluster, known_cluster};
pub(crate) use figures::ReplicationMetrics;
pub use founding::{FoundError, Founded, found};
pub(crate) use guide::guide;
pub(crate) use lost::LostData;
pub(crate) use nodes::change_nodes;
pub(crate) use replacing::replace;
pub use rescue::{Kept, RescueError, rescue};
pub(crate) use standstill::{
    DONE, Standstill, StillWord, Stillness, Stood, get_bodies_before, get_bodies_of, others_alive, wait_until_here,
};
pub(crate) use start::{hosted, link, next_incarnation, replay, replay_one};
pub use tables::Tables;
pub(crate) use tables::serve as serve_tables;
pub(crate) use versions::watch as watch_versions;
pub(crate) use wire::{For, Word};

use crate::backup::Copying;

/// A node of the cluster, as it is known before anything is agreed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id, from 1.
    pub node: NodeId,
    /// Where it serves clients: host and port.
    pub http: String,
    /// Where it hears other nodes: host and port.
    pub peer: String,
    /// What fails together with it; empty if nothing else does.
    pub rack: String,
}

/// How a node takes part in a cluster.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The cluster.
    pub id: ClusterId,
    /// What this node proves itself with.
    pub identity: Identity,
    /// This node's id.
    pub node: NodeId,
    /// All nodes that are known when this one is made, this one included, by id.
    pub members: Vec<Member>,
    /// Whether this node came to a cluster that was there already. Else the members are those that the cluster began with.
    pub has_joined: bool,
    /// How many of those hold each shard. 0: all.
    pub replicas: u16,
    /// What the nodes hold together beside shards and apps.
    pub tables: Arc<Tables>,
}

/// The links, once this node has begun to listen, and whom they are to reach. The guide may read that first: a start finds the
/// guidance of an earlier run.
#[derive(Default)]
struct Linking {
    links: Option<Links>,
    peers: Option<Vec<PeerAddress>>,
    /// No node that is gone has a higher number.
    last_removed: NodeId,
}

/// What all cores of this node share of the cluster.
pub(crate) struct Cluster {
    pub options: ClusterOptions,
    /// This start of the node.
    pub incarnation: u64,
    /// The node's directory was emptied: what its replicas have said is not known here.
    pub is_emptied: bool,
    linking: RwLock<Linking>,
    guidance: RwLock<Arc<Guidance>>,
    /// Those that count in the meta shard, as its replica here knows. None before it knows any.
    voters: RwLock<Vec<NodeId>>,
    /// The guidance that all cores were told.
    followed_epoch: AtomicU64,
    /// What each other node has said of itself last, since this node has started.
    others: Mutex<BTreeMap<NodeId, Other>>,
    /// Since it has started, this node has heard of the newest guidance, and follows it.
    is_current: AtomicBool,
    /// The owner of the meta shard, as this node knows it. 0 is nobody.
    leader: AtomicU16,
    meta_role: Mutex<(RoleName, Epoch)>,
    /// What each core says of its replicas.
    cores: Mutex<BTreeMap<usize, Condition>>,
    /// Why appointments cannot be followed, as replicas have said last.
    hindrances: Mutex<BTreeMap<ShardId, Hindrance>>,
    /// What other nodes said of themselves last.
    heard: Mutex<Vec<(NodeId, Heard)>>,
    /// Replicas whose part of the log on disk has something that does not count any more: their part of the new stream begins
    /// with a reset.
    resets: Mutex<BTreeMap<ShardId, RecoveredReplica>>,
    /// Requests of other nodes and of this one to whoever leads.
    proposals: Mutex<Vec<Proposal>>,
    /// Who waits for the answer of the leader, by number.
    asked: Mutex<GuidanceRequests>,
    /// For what is loaded and does not serve yet, by the number of its deployment: the services that go with it.
    going: Mutex<BTreeMap<u32, Vec<Name>>>,
    /// Other nodes may have bodies of objects that this one lacks.
    lacks_bodies: AtomicBool,
    /// The last guidance that all nodes followed when nothing was under way on this one.
    quiet_epoch: AtomicU64,
    whole: whole::Whole,
    pub(crate) stillness: Stillness,
    pub(crate) copying: Copying,
    /// What the cluster uses, if that is more than this build knows; else 0.
    used_level: AtomicU32,
    /// What all nodes know, as guidance has said last.
    level_of_all: AtomicU32,
    /// This node was removed from the cluster.
    is_removed: AtomicBool,
    /// Since when one node says so, and a majority does not. 0: it is not so. The highest number: that was told.
    disputed_ns: AtomicU64,
    /// This node is about to stop.
    pub is_leaving: AtomicBool,
    /// What this node's shards need no more of the versions that guidance keeps.
    unneeded: Mutex<Unneeded>,
    /// The others wait to hear how this node is now.
    has_news: AtomicBool,
    /// There is something for the guide to do.
    pub wake: Notify,
}

/// Whom the leader owes an answer, by number, and the last number.
#[derive(Default)]
struct GuidanceRequests {
    last: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Result<u64, Error>>>,
}

/// What came from another node, or about it.
pub(crate) enum Heard {
    Status(Box<Status>),
    /// Its connection was closed, or its process is another one.
    Unlinked,
}

/// What another node has said of itself.
#[derive(Clone, Debug)]
struct Other {
    /// The guidance that it follows.
    follows: u64,
    /// When it said so, in monotonic nanoseconds of this node.
    heard_ns: u64,
    /// It is about to stop.
    is_leaving: bool,
    /// The last guidance that all nodes followed when nothing was under way there.
    quiet_epoch: u64,
    lost: LostData,
    /// Shards that broke there.
    stopped: Vec<u16>,
    /// Versions of workers that are connected there.
    dialled: Vec<Dialled>,
}

/// A change of the guidance that somebody wants.
pub(crate) struct Proposal {
    /// Who wants it, and under which number that node waits for the answer.
    pub from: (NodeId, u64),
    pub change: Change,
}

/// A change of the guidance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Deploy an app: its name and a tar of its files. Its content still has to be `expected`, if that is named; none is the
    /// content of an app that is not there.
    Deploy { app: String, expected: Option<String>, tar: Bytes },
    /// Send no more requests to an app.
    Remove { app: String },
    /// Have a node's shards moved away, or no longer.
    Drain { node: NodeId, is_draining: bool },
    /// There is one more node, which has yet to be started.
    AddNode { http: String, peer: String, rack: String },
    /// A node that holds nothing is none of the cluster any more.
    RemoveNode { node: NodeId },
    /// Have all nodes load what may replace an app whose content still is `expected`. It does not serve yet.
    Prepare { app: String, expected: String, tar: Bytes },
    /// What was loaded serves from now on, or is forgotten.
    Settle { app: String, deployment: u32, is_taken: bool },
    /// Replace a table that still has the version `before`; 0 is that of a table that is not there.
    Table { name: String, before: u64, bytes: Bytes },
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change under these locks is a single push, insert or take.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    pub(crate) fn new(options: ClusterOptions, incarnation: u64, is_emptied: bool) -> Self {
        Self {
            options,
            incarnation,
            is_emptied,
            linking: RwLock::default(),
            guidance: RwLock::default(),
            voters: RwLock::default(),
            followed_epoch: AtomicU64::new(0),
            others: Mutex::default(),
            is_current: AtomicBool::new(false),
            leader: AtomicU16::new(0),
            cores: Mutex::default(),
            hindrances: Mutex::default(),
            meta_role: Mutex::new((RoleName::Follower, Epoch::NONE)),
            heard: Mutex::default(),
            resets: Mutex::default(),
            proposals: Mutex::default(),
            asked: Mutex::default(),
            going: Mutex::default(),
            lacks_bodies: AtomicBool::new(false),
            quiet_epoch: AtomicU64::new(0),
            whole: whole::Whole::default(),
            stillness: Stillness::default(),
            copying: Copying::default(),
            used_level: AtomicU32::new(0),
            level_of_all: AtomicU32::new(0),
            is_removed: AtomicBool::new(false),
            disputed_ns: AtomicU64::new(0),
            is_leaving: AtomicBool::new(false),
            unneeded: Mutex::default(),
            has_news: AtomicBool::new(false),
            wake: Notify::new(),
        }
    }

    /// This node.
    pub(crate) fn me(&self) -> NodeId {
        self.options.node
    }

    /// The guidance that this node follows.
    pub(crate) fn guidance(&self) -> Arc<Guidance> {
        Arc::clone(&self.guidance.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_guidance(&self, guidance: Arc<Guidance>) {
        self.whole.follow(&guidance);
        self.followed_epoch.store(guidance.epoch, Ordering::Release);
        *self.guidance.write().unwrap_or_else(PoisonError::into_inner) = guidance;
    }

    /// Whether this node knows who owns what, and has loaded what is deployed, or did at some time since it has started.
    pub(crate) fn is_guided(&self) -> bool {
        self.is_current.load(Ordering::Acquire)
    }

    /// Refuses whoever asks for what this node may not know yet: it has just started.
    ///
    /// # Errors
    /// `overloaded`; `node-removed`, for ever; `majority-lost`.
    pub(crate) fn check_guided(&self) -> Result<(), Error> {
        if self.is_removed() {
            return Err(Error::new(ErrorCode::NodeRemoved, REMOVED));
        }
        if self.is_guided() {
            return Ok(());
        }
        if let Some(error) = self.too_old() {
            return Err(error);
        }
        if self.is_guidance_lost() {
            return Err(Error::new(ErrorCode::MajorityLost, MAJORITY_LOST));
        }
        let message = "this node has started and does not follow the cluster yet, for which it has to hear a majority of the \
                       nodes; nothing happened: try again";
        Err(Error::new(ErrorCode::Overloaded, message))
    }

    /// Another node says that this one was removed. A node that hears a majority knows better.
    pub(crate) fn told_removed(&self, by: NodeId, now_ns: u64) {
        if !self.hears_majority(now_ns) {
            return self.note_removed();
        }
        // Those that have yet to hear of a removal are heard for a moment.
        let since_ns = match self.disputed_ns.compare_exchange(0, now_ns, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => now_ns,
            Err(since_ns) => since_ns,
        };
        if now_ns >= since_ns.saturating_add(DISPUTE_NS)
            && self.disputed_ns.swap(u64::MAX, Ordering::AcqRel) != u64::MAX
        {
            tracing::error!(
                node = by.0,
                "a node says that this one was removed, and a majority says that it was not: was that node rescued while \
                 others ran? stop it"
            );
        }
    }

    /// Another node, or guidance, says that this node was removed. No number is given twice, so it stays so.
    pub(crate) fn note_removed(&self) {
        if !self.is_removed.swap(true, Ordering::AcqRel) {
            tracing::error!(node = self.me().0, "{REMOVED}");
        }
    }

    /// All nodes know as much, and this one too.
    fn note_level_of_all(&self, feature_level: u32) {
        self.level_of_all.store(feature_level, Ordering::Release);
    }

    /// The cluster uses what this build does not know.
    fn note_too_old(&self, used: u32) {
        if self.used_level.swap(used, Ordering::AcqRel) != used {
            tracing::error!("{}", too_old(used).message);
        }
    }

    /// Why this build cannot take part, if it is too old.
    pub(crate) fn too_old(&self) -> Option<Error> {
        let used = self.used_level.load(Ordering::Acquire);
        (used > 0).then(|| too_old(used))
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    /// Whether this node has heard another one lately.
    pub(crate) fn hears(&self, node: NodeId, now_ns: u64) -> bool {
        let is_late = |other: &Other| now_ns >= other.heard_ns.saturating_add(limits::UNREACHED_MS * 1_000_000);
        node == self.me() || locked(&self.others).get(&node).is_some_and(|other| !is_late(other))
    }

    pub(super) fn set_voters(&self, voters: impl Iterator<Item = NodeId>) {
        *self.voters.write().unwrap_or_else(PoisonError::into_inner) = voters.collect();
    }

    /// Those that decide about the guidance.
    fn voters(&self) -> Vec<NodeId> {
        let voters = self.voters.read().unwrap_or_else(PoisonError::into_inner);
        if voters.is_empty() { self.options.members.iter().map(|member| member.node).collect() } else { voters.clone() }
    }

    /// Whether a majority of those that decide about the guidance is among these.
    fn is_majority(&self, is_in: impl Fn(NodeId) -> bool) -> bool {
        let all = self.voters();
        all.iter().filter(|node| is_in(**node)).count() * 2 > all.len()
    }

    /// Whether this node hears a majority of those that decide about the guidance; it may be one of them.
    pub(crate) fn hears_majority(&self, now_ns: u64) -> bool {
        self.is_majority(|node| self.hears(node, now_ns) && !self.has_lost_guidance(node))
    }

    /// Notes when this node follows what a majority has told it, once it does.
    fn note_current(&self) {
        let followed = self.followed_epoch.load(Ordering::Acquire);
        if followed == 0 || self.is_guided() {
            return;
        }
        let others = locked(&self.others);
        let knows = |node: NodeId| match others.get(&node) {
            Some(other) => !other.lost.guidance,
            None => node == self.me(),
        };
        let is_majority = self.is_majority(knows);
        if is_majority && others.values().all(|other| other.follows <= followed) {
            self.is_current.store(true, Ordering::Release);
        }
    }

    /// Sets who the other nodes are, and which number a node that is gone has at most.
    pub(super) fn set_others(&self, others: &[PeerAddress], last_removed: NodeId) {
        let mut linking = self.linking.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(links) = &linking.links {
            links.set_peers(others);
            links.set_last_removed(last_removed);
        }
        linking.peers = Some(others.to_vec());
        linking.last_removed = last_removed;
    }

    pub(crate) fn connect(&self, links: Links) {
        let mut linking = self.linking.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(others) = &linking.peers {
            links.set_peers(others);
        }
        links.set_last_removed(linking.last_removed);
        linking.links = Some(links);
    }

    /// Sends a word to another node. Says whether it was taken.
    pub(crate) fn send(&self, to: NodeId, lane: Lane, word: &Word) -> bool {
        self.with_links(|links| links.send(to, lane, self.encode(word)))
    }

    /// Lets a word to another node wait for the next [`Cluster::flush`]. Says whether it was taken.
    pub(crate) fn queue(&self, to: NodeId, lane: Lane, word: &Word) -> bool {
        self.with_links(|links| links.queue(to, lane, self.encode(word)))
    }

    /// The bytes of a word, as the oldest of the nodes understands it.
    fn encode(&self, word: &Word) -> Bytes {
        if let Word::Frame(to, frame) = word
            && self.level_of_all.load(Ordering::Acquire) < CALLERS_LEVEL
            && let Some(frame) = frame.without_callers()
        {
            return Word::Frame(*to, frame).encode();
        }
        word.encode()
    }

    /// Writes what waits for the node, on this thread.
    pub(crate) fn flush(&self, to: NodeId) {
        self.with_links(|links| {
            links.flush(to);
            Ok(())
        });
    }

    fn with_links(&self, say: impl FnOnce(&Links) -> Result<(), SendError>) -> bool {
        let linking = self.linking.read().unwrap_or_else(PoisonError::into_inner);
        let said = linking.links.as_ref().map(say);
        if let Some(Err(error)) = &said {
            tracing::debug!(%error, "a message to another node was dropped");
        }
        matches!(said, Some(Ok(())))
    }

    /// Ends the links. What was not written is lost, as if the node had been killed.
    pub(crate) fn disconnect(&self) {
        let links = self.linking.write().unwrap_or_else(PoisonError::into_inner).links.take();
        if let Some(links) = links {
            links.stop();
        }
    }

    /// The owner of the meta shard, if this node knows one.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        let leader = self.leader.load(Ordering::Relaxed);
        (leader != 0).then_some(NodeId(leader))
    }

    fn set_leader(&self, leader: NodeId) {
        self.leader.store(leader.0, Ordering::Relaxed);
    }

    fn note_other(&self, node: NodeId, status: &Status, heard_ns: u64) {
        let Status { guidance_epoch: follows, is_leaving, quiet_epoch, .. } = *status;
        let lost = LostData { guidance: status.is_resyncing, shards: status.resyncing.clone() };
        let (stopped, dialled) = (status.stopped.clone(), status.dialled.clone());
        let other = Other { follows, heard_ns, is_leaving, quiet_epoch, lost, stopped, dialled };
        locked(&self.others).insert(node, other);
        self.whole.note_other(node, status);
    }

    /// A core says how its replicas are.
    pub(crate) fn note_condition(&self, core: usize, condition: Condition) {
        locked(&self.cores).insert(core, condition);
    }

    /// Has this node say at once how it is.
    pub(crate) fn speak_soon(&self) {
        self.has_news.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    pub(crate) fn hindered(&self, shard: ShardId, hindrance: Hindrance) {
        locked(&self.hindrances).insert(shard, hindrance);
    }

    /// What this node's replica of the meta shard is now.
    pub(crate) fn meta_role(&self) -> (RoleName, Epoch) {
        *locked(&self.meta_role)
    }

    pub(crate) fn set_meta_role(&self, role: RoleName, epoch: Epoch) {
        *locked(&self.meta_role) = (role, epoch);
        self.wake.notify_one();
    }

    pub(crate) fn heard(&self, node: NodeId, what: Heard) {
        locked(&self.heard).push((node, what));
        self.wake.notify_one();
    }

    pub(crate) fn proposed(&self, proposal: Proposal) {
        locked(&self.proposals).push(proposal);
        self.wake.notify_one();
    }

    /// The leader has answered what this node asked.
    pub(crate) fn answered(&self, number: u64, result: Result<u64, Error>) {
        if let Some(done) = locked(&self.asked).waiting.remove(&number) {
            // Whoever asked may have gone.
            let _ = done.send(result);
        }
    }

    /// Notes what a replica's part of the new stream has to begin with.
    fn begin_anew(&self, shard: ShardId, found: RecoveredReplica) {
        if found.needs_reset {
            locked(&self.resets).insert(shard, found);
        }
    }

    /// Adds what a start has to know of a replica beside its entries.
    pub(crate) fn write_base(&self, batch: &mut Batch, shard: ShardId, replica: &Replica) {
        if let Some(found) = locked(&self.resets).remove(&shard) {
            found.opening().iter().for_each(|record| batch.push_record(shard, record));
        }
        records::push_base(batch, shard, replica);
    }

    /// A number under which an answer of the leader is awaited.
    pub(crate) fn ask(&self) -> (u64, oneshot::Receiver<Result<u64, Error>>) {
        let (done, answer) = oneshot::channel();
        let mut asked = locked(&self.asked);
        asked.last += 1;
        let number = asked.last;
        asked.waiting.insert(number, done);
        (number, answer)
    }

    /// Nobody waits for that answer any more.
    pub(crate) fn forget(&self, number: u64) {
        locked(&self.asked).waiting.remove(&number);
    }
}

/// For how long one node may say that this one was removed while a majority speaks with it. Then something is wrong.
const DISPUTE_NS: u64 = 5_000_000_000;

fn too_old(used: u32) -> Error {
    let message = format!(
        "this node's version is too old for its cluster, which uses feature level {used}, and it knows {FEATURE_LEVEL}: install \
         the version of the others"
    );
    Error::new(ErrorCode::NotYetSupported, message)
}

/// The answer to a change of the catalogue while nobody leads.
pub(crate) fn no_leader() -> Error {
    let message = "the cluster has no leader at this moment: a majority of its nodes is needed; try again";
    Error::new(ErrorCode::Overloaded, message)
}
