//! A node gets the bodies that it lacks: it was away, it has lost its data, or a message was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millrace_base::ShardId;
use millrace_blobs::BodyName;
use millrace_replica::NodeId;
use tokio::time::{sleep, timeout};

use super::pull::Came;
use super::{BodyWord, Carrier, PULLS};

/// How often all others are asked what they have, though nothing has happened.
const ROUND: Duration = Duration::from_secs(3_600);

/// How soon they are asked again if some body could not be got.
const AGAIN: Duration = Duration::from_secs(5);

/// The pause between two looks at the least.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a look waits until all nodes follow the guidance.
const FOLLOWED: Duration = Duration::from_secs(1);

/// How often it is looked whether this node follows the cluster.
const LOOK: Duration = Duration::from_millis(50);

/// A body that no node can read which has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub name: BodyName,
    /// For whom it was written, if that can be read.
    pub owner: Option<Bytes>,
}

/// Somebody waits until this node has, by then, all that these nodes have and can read.
pub(super) struct Want {
    nodes: BTreeSet<NodeId>,
    until: Instant,
    answer: mpsc::Sender<Option<Vec<Unreadable>>>,
}

/// What a look at all other nodes' bodies has found.
struct Round {
    /// This node has got all that those have that it hears, but for what they cannot read.
    is_whole: bool,
    /// It hears all that are alive.
    has_asked_all: bool,
    /// Bodies that it lacks, and that no node which has them can read.
    unreadable: BTreeSet<BodyName>,
}

/// What a look at another node's bodies has found.
struct Look {
    /// This node has all of them that the other one can read, or they are on their way.
    is_whole: bool,
    lacked: usize,
    /// Those that the other one has and cannot read.
    unreadable: Vec<BodyName>,
}

impl Carrier {
    /// Waits until this node has on its disk all that the others have of its shards, but for what they cannot read. Gives that.
    /// `None`: it does not have all in time. Not for threads of cores.
    pub(crate) fn get_all_of(&self, nodes: &BTreeSet<NodeId>, at_most: Duration) -> Option<Vec<Unreadable>> {
        let (answer, answered) = mpsc::channel();
        let want = Want { nodes: nodes.clone(), until: Instant::now() + at_most, answer };
        self.wants.send(want).ok()?;
        answered.recv_timeout(at_most).ok()?
    }

    pub(super) async fn satisfy(self: Arc<Self>, Want { nodes, until, answer }: Want) {
        let mut left: Vec<NodeId> = nodes.into_iter().collect();
        let mut unreadable = BTreeMap::new();
        while let Some(node) = left.last().copied().filter(|_| Instant::now() < until) {
            let look = self.catch_up_with(node).await;
            if look.is_whole && look.lacked == look.unreadable.len() {
                unreadable.extend(look.unreadable.into_iter().map(|name| (name, node)));
                left.pop();
            } else if self.hears(node) {
                sleep(LOOK).await;
            } else {
                break;
            }
        }
        // What one node cannot read another one could.
        unreadable.retain(|name, _| !self.store.bodies.has(*name));
        let mut found = Vec::new();
        for (name, node) in unreadable {
            found.push(Unreadable { name, owner: self.owner_at(node, name).await });
        }
        // Whoever waits may have given up.
        let _ = answer.send(left.is_empty().then_some(found));
    }

    /// For whom another node's body was written.
    async fn owner_at(&self, node: NodeId, name: BodyName) -> Option<Bytes> {
        match self.question(node, name, &BodyWord::Read { offset: 0, bytes: 0 }).await {
            Some(BodyWord::Data { owner, .. }) => Some(owner),
            _ => None,
        }
    }

    /// Runs on core 0 for as long as the node does.
    pub(crate) async fn keep_up(self: Arc<Self>) {
        while !self.cluster.is_guided() {
            sleep(LOOK).await;
        }
        loop {
            let epoch = self.followed_by_all().await;
            let look = self.catch_up().await;
            let is_whole = look.is_whole && (look.unreadable.is_empty() || self.cluster.names_unreadable());
            if is_whole {
                self.cluster.lacks_bodies.store(false, Ordering::Release);
                self.cluster.wake.notify_one();
            }
            let noted = epoch.filter(|_| is_whole && look.has_asked_all);
            if let Some(epoch) = noted {
                self.cluster.note_bodies(epoch, &look.unreadable);
            }
            sleep(PAUSE).await;
            let is_done = noted.is_some() && look.unreadable.is_empty();
            // Both are reasons to look again.
            let _ = timeout(if is_done { ROUND } else { AGAIN }, self.look.notified()).await;
        }
    }

    /// The guidance that all nodes follow, if they do soon. What is written from then on goes to the nodes that it names.
    async fn followed_by_all(&self) -> Option<u64> {
        let until = Instant::now() + FOLLOWED;
        loop {
            let epoch = self.cluster.followed_by_all();
            if epoch.is_some() || Instant::now() >= until {
                return epoch;
            }
            sleep(LOOK).await;
        }
    }

    /// Gets what others have and this node lacks. Says whether it has got all of it.
    async fn catch_up(self: &Arc<Self>) -> Round {
        let mut round = Round { is_whole: true, has_asked_all: true, unreadable: BTreeSet::new() };
        for other in self.cluster.others(&self.cluster.guidance()) {
            if self.hears(other.node) {
                let look = self.catch_up_with(other.node).await;
                round.is_whole &= look.is_whole;
                round.unreadable.extend(look.unreadable);
            } else {
                round.has_asked_all &= !self.cluster.guidance().is_alive(other.node.0);
            }
        }
        // What one node cannot read another one could.
        round.unreadable.retain(|name| !self.store.bodies.has(*name));
        round
    }

    async fn catch_up_with(self: &Arc<Self>, node: NodeId) -> Look {
        let (mut behind, mut got) = (BodyName { shard: ShardId(0), number: 0 }, 0_u64);
        let mut look = Look { is_whole: true, lacked: 0, unreadable: Vec::new() };
        loop {
            let answer = self.question(node, behind, &BodyWord::List).await;
            let Some(BodyWord::Names { has_more, names }) = answer else {
                return Look { is_whole: false, ..look };
            };
            let Some(last) = names.last() else { break };
            behind = *last;
            let lacking: Vec<BodyName> =
                names.into_iter().filter(|name| self.is_mine(*name) && !self.store.bodies.has(*name)).collect();
            look.lacked += lacking.len();
            for some in lacking.chunks(PULLS) {
                let pulls: Vec<_> = some.iter().map(|name| (*name, self.get(node, *name))).collect();
                for (name, pull) in pulls {
                    let came = pull.await.unwrap_or(Came::NotNow);
                    look.is_whole &= came != Came::NotNow;
                    got += u64::from(came == Came::Yes);
                    look.unreadable.extend((came == Came::Unreadable).then_some(name));
                }
            }
            if !has_more {
                break;
            }
        }
        if got > 0 {
            tracing::info!(node = node.0, bodies = got, "bodies of objects came from another node");
        }
        look
    }

    fn get(self: &Arc<Self>, node: NodeId, name: BodyName) -> tokio::task::JoinHandle<Came> {
        let carrier = Arc::clone(self);
        tokio::task::spawn_local(async move {
            let came = match carrier.obtain_from(node, name).await {
                // One that is on its way for somebody else is not here yet, and may not come: the next look sees.
                Came::Yes if !carrier.store.bodies.has(name) => Came::NotNow,
                came => came,
            };
            // One that the other node does not have any more was freed meanwhile.
            if came != Came::Yes && carrier.is_gone(node, name).await { Came::Yes } else { came }
        })
    }

    /// Whether another node says that it does not have a body. One that it has and cannot read is not gone.
    pub(super) async fn is_gone(&self, node: NodeId, name: BodyName) -> bool {
        let Some(number) = name.number.checked_sub(1) else { return false };
        let before = BodyName { number, ..name };
        let answer = self.question(node, before, &BodyWord::List).await;
        matches!(answer, Some(BodyWord::Names { names, .. }) if names.first() != Some(&name))
    }
}
