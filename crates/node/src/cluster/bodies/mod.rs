//! Bodies of objects on the nodes of a cluster. An entry names a body by shard and number, and both are the same on all nodes.
//!
//! | what | who begins |
//! |---|---|
//! | a new body goes to the other replicas of its shard, before an entry may name it ([`spread`]) | the node that got it from a client |
//! | a node gets the bodies that it lacks ([`keep_up`]) | that node, when it has started, when a link is up again, once an hour |
//! | a content is read where a body of it is not ([`far`]) | the node that the client reads at |
//! | a body that nothing refers to goes everywhere | the node whose shard has ended the last reference |
//!
//! All bytes are *pulled*: who wants a body asks for one part after the other. So each node bounds what it has in memory.
//!
//! Promises: a body counts as held by a node once it is durable there; a question has an answer, or ends; no body is written
//! twice at a time. Must not know what bodies are for, or who may read them.

mod far;
mod keep_up;
mod pull;
mod spread;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use millrace_blobs::{BodyName, Unsettled};
use millrace_io::Clock;
use millrace_peers::Lane;
use millrace_replica::NodeId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};

pub(crate) use keep_up::Unreadable;
use keep_up::Want;

use super::{BodyWord, Cluster, Word, locked};
use crate::objects::BodyStore;

/// Bytes of a body that are asked for at a time.
const PART_BYTES: u64 = 512 << 10;

/// Bytes of a body that go with the question whether another node holds it. Most bodies have no more.
const FIRST_BYTES: u64 = 256 << 10;

/// Bodies that come to this node at a time.
const PULLS: usize = 8;

/// Bodies that are offered to one other node at a time.
const OFFERS: usize = 64;

/// How long an answer is waited for before the question is asked again, and how often that is.
const ANSWER: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 5;

/// How long a body stays that came from another node though nothing refers to it yet: the entry may be on its way. Longer
/// than a body may take to reach a majority, and a request to run.
pub(crate) const UNSETTLED: Duration = Duration::from_secs(3_600);

/// How often it is looked for bodies that nobody has said anything about for that long.
const LOOK_AT_UNSETTLED: Duration = Duration::from_secs(10);

/// Names that a node tells at a time.
const NAMES: usize = 1024;

/// See the module's documentation.
pub(crate) struct Carrier {
    store: Arc<BodyStore>,
    cluster: Arc<Cluster>,
    clock: Arc<dyn Clock>,
    last_question: AtomicU64,
    /// Who waits for answers, by the number of the question.
    asked: Mutex<BTreeMap<u64, UnboundedSender<BodyWord>>>,
    questions: UnboundedSender<Question>,
    heard: Mutex<Option<UnboundedReceiver<Question>>>,
    /// Who waits until this node has all that others have.
    wants: UnboundedSender<Want>,
    wanted: Mutex<Option<UnboundedReceiver<Want>>>,
    /// Bodies on their way to here.
    pulling: Mutex<BTreeSet<BodyName>>,
    /// Bodies that are damaged here and got anew.
    mending: Mutex<BTreeSet<BodyName>>,
    /// Bodies that came from other nodes, until somebody says that an entry refers to them.
    unsettled: Mutex<BTreeMap<BodyName, (Instant, Unsettled)>>,
    pulls: Arc<Semaphore>,
    offers: Mutex<BTreeMap<NodeId, Arc<Semaphore>>>,
    /// There may be bodies that this node lacks.
    look: Notify,
}

/// What another node wants.
struct Question {
    from: NodeId,
    name: BodyName,
    number: u64,
    word: BodyWord,
}

/// A question to another node. It is forgotten with this.
struct Asking<'a> {
    carrier: &'a Carrier,
    number: u64,
    answers: UnboundedReceiver<BodyWord>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        locked(&self.carrier.asked).remove(&self.number);
    }
}

impl Carrier {
    /// Until it has looked, the node may lack bodies.
    pub(crate) fn new(store: &Arc<BodyStore>, cluster: &Arc<Cluster>, clock: Arc<dyn Clock>) -> Arc<Self> {
        cluster.lacks_bodies.store(true, Ordering::Release);
        let ((questions, heard), (wants, wanted)) = (unbounded_channel(), unbounded_channel());
        Arc::new(Self {
            store: Arc::clone(store),
            cluster: Arc::clone(cluster),
            clock,
            last_question: AtomicU64::new(0),
            asked: Mutex::default(),
            questions,
            heard: Mutex::new(Some(heard)),
            wants,
            wanted: Mutex::new(Some(wanted)),
            pulling: Mutex::default(),
            mending: Mutex::default(),
            unsettled: Mutex::default(),
            pulls: Arc::new(Semaphore::new(PULLS)),
            offers: Mutex::default(),
            look: Notify::new(),
        })
    }

    /// A link is up: the other node may have bodies that this one lacks.
    pub(crate) fn look(&self) {
        self.look.notify_one();
    }

    /// Another node says something about a body. Called from the thread of the links.
    pub(crate) fn heard(&self, from: NodeId, name: BodyName, number: u64, word: BodyWord) {
        if word.is_answer() {
            if let Some(waiting) = locked(&self.asked).get(&number) {
                // Whoever asked may have gone.
                let _ = waiting.send(word);
            }
            return;
        }
        // The node is stopping, if nobody hears.
        let _ = self.questions.send(Question { from, name, number, word });
    }

    /// Answers other nodes, on core 0 for as long as the node runs.
    pub(crate) async fn serve(self: Arc<Self>) {
        let (Some(mut heard), Some(mut wanted)) = (locked(&self.heard).take(), locked(&self.wanted).take()) else {
            return;
        };
        let mut next_look = Instant::now();
        loop {
            tokio::select! {
                question = heard.recv() => match question {
                    Some(question) => self.answer(question),
                    None => return,
                },
                Some(want) = wanted.recv() => drop(tokio::task::spawn_local(Arc::clone(&self).satisfy(want))),
                () = tokio::time::sleep(ANSWER) => {}
            }
            self.store.free_kept();
            if Instant::now() >= next_look {
                next_look = Instant::now() + LOOK_AT_UNSETTLED;
                self.end_unsettled();
            }
        }
    }

    fn answer(self: &Arc<Self>, Question { from, name, number, word }: Question) {
        let carrier = Arc::clone(self);
        match word {
            BodyWord::Hold { length, owner, first } => {
                tokio::task::spawn_local(async move {
                    let answer = carrier.hold(from, name, (length, &owner), first).await;
                    carrier.say(from, name, number, answer);
                });
            }
            BodyWord::Read { offset, bytes } => {
                tokio::task::spawn_local(async move {
                    let answer = carrier.read_here(name, offset, bytes).await.unwrap_or(BodyWord::Lacks);
                    carrier.say(from, name, number, answer);
                });
            }
            BodyWord::List => {
                let (names, has_more) = self.store.bodies.names_behind(name, NAMES);
                self.say(from, name, number, BodyWord::Names { has_more, names });
            }
            BodyWord::Settled => {
                if let Some((_, unsettled)) = locked(&self.unsettled).remove(&name) {
                    unsettled.settle();
                }
            }
            BodyWord::Free => {
                drop(locked(&self.unsettled).remove(&name));
                // Its writer on this node knows better.
                if !self.store.bodies.is_unsettled(name) {
                    self.store.free(name);
                }
            }
            _ => {}
        }
    }

    /// Bodies of which nobody has said anything may be needed or not: a later look finds out.
    fn end_unsettled(&self) {
        let now = Instant::now();
        locked(&self.unsettled).retain(|_, (until, _)| *until > now);
    }

    /// Mail waits for everything else. What gets lost is asked for again.
    fn say(&self, to: NodeId, name: BodyName, number: u64, word: BodyWord) {
        self.cluster.send(to, Lane::Mail, &Word::Body(name, number, word));
    }

    /// A number under which answers are awaited.
    fn ask(&self) -> Asking<'_> {
        let (sender, answers) = unbounded_channel();
        let number = self.last_question.fetch_add(1, Ordering::Relaxed) + 1;
        locked(&self.asked).insert(number, sender);
        Asking { carrier: self, number, answers }
    }

    /// Asks another node until it answers. `None`: it does not, or cannot be heard.
    async fn question(&self, to: NodeId, name: BodyName, word: &BodyWord) -> Option<BodyWord> {
        let mut asking = self.ask();
        for _ in 0..ATTEMPTS {
            if !self.hears(to) {
                return None;
            }
            self.say(to, name, asking.number, word.clone());
            if let Ok(answer) = timeout(ANSWER, asking.answers.recv()).await {
                return answer;
            }
        }
        None
    }

    fn hears(&self, node: NodeId) -> bool {
        self.cluster.hears(node, self.clock.monotonic_ns())
    }

    /// The nodes that hold a shard, and those that are to hold it.
    fn holders(&self, name: BodyName) -> [BTreeSet<NodeId>; 2] {
        let guidance = self.cluster.guidance();
        let nodes = |nodes: &[u16]| nodes.iter().copied().map(NodeId).collect();
        let place = guidance.shards.get(usize::from(name.shard.0));
        place.map_or_else(Default::default, |place| [nodes(&place.replicas), nodes(place.holders())])
    }

    /// The other nodes that hold a shard or are to hold it.
    fn others(&self, name: BodyName) -> BTreeSet<NodeId> {
        let [mut all, wanted] = self.holders(name);
        all.extend(wanted);
        all.remove(&self.cluster.me());
        all
    }

    fn is_mine(&self, name: BodyName) -> bool {
        self.holders(name).iter().any(|nodes| nodes.contains(&self.cluster.me()))
    }

    /// Tells the other nodes what became of a body.
    fn tell(&self, name: BodyName, word: &BodyWord) {
        for node in self.others(name) {
            self.say(node, name, 0, word.clone());
        }
    }

    /// An entry refers to a body that came from here, or nobody knows.
    pub(crate) fn settled(&self, name: BodyName) {
        self.tell(name, &BodyWord::Settled);
        if !self.is_mine(name) {
            self.store.free(name);
        }
    }

    /// Nothing refers to a body any more. A node that does not hear it finds out by itself.
    pub(crate) fn freed(&self, name: BodyName) {
        self.tell(name, &BodyWord::Free);
    }

    /// Some bytes of a body that is here.
    async fn read_here(&self, name: BodyName, offset: u64, bytes: u32) -> Option<BodyWord> {
        let bodies = Arc::clone(&self.store.bodies);
        let read = self.store.pool.run(move || {
            let reader = bodies.read(name).ok()?;
            let owner = if offset == 0 { reader.owner().ok()? } else { Vec::new() };
            let length = reader.length();
            let mut piece = vec![0; u64::from(bytes).min(PART_BYTES).min(length.saturating_sub(offset)) as usize];
            reader.read_at(offset.min(length), &mut piece).ok()?;
            Some(BodyWord::Data { length, owner: owner.into(), bytes: Bytes::from(piece) })
        });
        read.await.ok()?
    }
}
