//! All nodes of the cluster stand still for a moment, and one of them takes a backup of what it has.
//!
//! 1. The node asks all others to stand still, and does so itself. Each answers which shards it owns, and where their logs end.
//! 2. The node waits until its own disk has all of that. Then its logs are those of all shards at one moment. Other nodes do the
//!    same for the shards that it does not hold.
//! 3. They take the backup's moment, and the node tells all to go on.
//!
//! Promises: nobody stands still for longer than [`STILL`], whoever fails; a backup counts only if all stood still at its moment.
//! Must not know what a backup is. `docs/internals/backup.md` has the argument.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use millrace_base::ShardId;
use millrace_driver::Standing;
use millrace_guidance::{COPIES_LEVEL, KEPT_BODIES_LEVEL, ShardPlacement};
use millrace_peers::Lane;
use millrace_replica::NodeId;

use super::{Cluster, Unreadable, Word, locked};
use crate::core::{NodeMessage, Shared, Still};

/// A node goes on by itself after this time.
const STILL: Duration = Duration::from_millis(1_500);

/// By then all must be done, counted from before the first node stood still. So nobody has gone on, though clocks differ.
pub(crate) const DONE: Duration = Duration::from_millis(1_000);

/// For how long nodes that stood still keep bodies of objects that nothing refers to any more. The node that takes the backup gets
/// what it lacks meanwhile.
const BODIES_KEPT: Duration = Duration::from_secs(60);

/// By then it must have them, counted from before the first node stood still.
const BODIES_GOT: Duration = Duration::from_secs(50);

/// How long this node may lack bodies before all stand still.
const BODIES_CAUGHT_UP: Duration = Duration::from_secs(30);

/// How often is looked whether this node has everything.
const LOOK: Duration = Duration::from_millis(2);

/// What nodes say to each other about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StillWord {
    /// Stand still.
    Stand,
    /// The sender stands still, and owns these. After [`StillWord::GoOn`]: it has stood still, and keeps what a backup may want.
    Standing(Vec<Standing>),
    /// It does not: it stands still for somebody else, or has gone on before.
    Busy,
    /// Go on, and say whether you have stood still until then. Asked again, a process says the same.
    GoOn,
}

/// This node's part.
#[derive(Default)]
pub(crate) struct Stillness {
    last: AtomicU64,
    /// For whom this node stands still, under which number, and since when.
    asker: Mutex<Option<(NodeId, u64, Instant)>>,
    /// For whom it has stood still last, to the end.
    ended: Mutex<Option<(NodeId, u64)>>,
    /// Where answers go, and under which number they were asked for.
    answers: Mutex<Option<(u64, Answers)>>,
}

impl Stillness {
    /// Where answers come under this number from now on.
    fn listen(&self, number: u64) -> mpsc::Receiver<(NodeId, Option<Vec<Standing>>)> {
        let (sender, answers) = mpsc::channel();
        *locked(&self.answers) = Some((number, sender));
        answers
    }
}

/// Nothing: the node stands still for somebody else.
type Answers = mpsc::Sender<(NodeId, Option<Vec<Standing>>)>;

fn failed(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why.into())
}

/// Who has stood still, and since when.
pub(crate) struct Stood {
    number: u64,
    since: Instant,
    others: BTreeSet<NodeId>,
}

impl Stood {
    /// Waits until this node has all bodies of objects that entries in front of the moment name. Nodes that stood still keep them
    /// for that long. Gives those that no node can read.
    ///
    /// # Errors
    /// Some are not to be had at this moment.
    pub(crate) fn get_bodies(&self, shared: &Shared) -> io::Result<Vec<Unreadable>> {
        let Some(cluster) = shared.carrier.as_ref().and(shared.cluster.as_ref()) else { return Ok(Vec::new()) };
        let is_asked = |node: &&u16| **node == cluster.me().0 || self.others.contains(&NodeId(**node));
        // A body that an entry names is on a majority of the nodes that hold the shard.
        let guidance = cluster.guidance();
        let too_few =
            |place: &ShardPlacement| place.replicas.iter().filter(is_asked).count() * 2 <= place.replicas.len();
        if guidance.shards.iter().any(too_few) {
            return Err(failed("too few nodes are alive that may have contents of objects; try again"));
        }
        get_bodies_of(shared, &self.others, self.left())
    }

    /// How long bodies may be got.
    pub(crate) fn left(&self) -> Duration {
        BODIES_GOT.saturating_sub(self.since.elapsed())
    }

    /// The other nodes that have stood still.
    pub(crate) fn others(&self) -> &BTreeSet<NodeId> {
        &self.others
    }

    /// Waits until all others have said that they have kept bodies until now.
    ///
    /// # Errors
    /// One has not: it has started anew meanwhile.
    pub(crate) fn have_kept_bodies(&self, shared: &Shared) -> io::Result<()> {
        let Some(cluster) = shared.carrier.as_ref().and(shared.cluster.as_ref()) else { return Ok(()) };
        let answers = cluster.stillness.listen(self.number);
        for node in &self.others {
            cluster.send(*node, Lane::Core, &Word::Still(self.number, StillWord::GoOn));
        }
        let stood = all_have_stood(&answers, &self.others, || self.left().min(DONE));
        *locked(&cluster.stillness.answers) = None;
        stood
    }
}

impl Cluster {
    /// Whether every node that stands still keeps bodies for whoever takes the backup.
    pub(crate) fn all_keep_bodies(&self) -> bool {
        self.level_of_all.load(Ordering::Acquire) >= KEPT_BODIES_LEVEL
    }

    /// Whether every node copies what it has for a backup that another one takes.
    pub(crate) fn all_make_copies(&self) -> bool {
        self.level_of_all.load(Ordering::Acquire) >= COPIES_LEVEL
    }
}

/// Waits until this node has all bodies that these nodes have of its shards. Gives those that none of them can read.
///
/// # Errors
/// Some are not to be had in that time.
pub(crate) fn get_bodies_of(
    shared: &Shared,
    nodes: &BTreeSet<NodeId>,
    at_most: Duration,
) -> io::Result<Vec<Unreadable>> {
    let Some(carrier) = &shared.carrier else { return Ok(Vec::new()) };
    let late = || failed("this node could not get all contents of objects in time; try again");
    carrier.get_all_of(nodes, at_most).ok_or_else(late)
}

/// Has this node get what it lacks, so that little is left at the moment. What is left then is got afterwards.
pub(crate) fn get_bodies_before(shared: &Shared) {
    if let (Some(carrier), Some(cluster)) = (&shared.carrier, &shared.cluster) {
        carrier.get_all_of(&others_alive(cluster), BODIES_CAUGHT_UP);
    }
}

pub(crate) fn others_alive(cluster: &Cluster) -> BTreeSet<NodeId> {
    let guidance = cluster.guidance();
    let alive = guidance.nodes.iter().filter(|(_, entry)| entry.is_alive).map(|(node, _)| NodeId(*node));
    alive.filter(|node| *node != cluster.me()).collect()
}

/// All nodes stand still while this lives.
pub(crate) struct Standstill<'a> {
    shared: &'a Arc<Shared>,
    cluster: &'a Cluster,
    number: u64,
    since: Instant,
    others: BTreeSet<NodeId>,
    standing: Vec<Standing>,
}

impl<'a> Standstill<'a> {
    /// Has all nodes stand still, and asks where all shards are.
    ///
    /// # Errors
    /// Who does not answer, or what is not served at this moment. All go on then.
    pub(crate) fn begin(shared: &'a Arc<Shared>, cluster: &'a Cluster) -> io::Result<Self> {
        let (me, others) = (cluster.me(), others_alive(cluster));
        let number = cluster.stillness.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, answers) = mpsc::channel();
        *locked(&cluster.stillness.answers) = Some((number, sender.clone()));
        let mut standstill = Self { shared, cluster, number, since: Instant::now(), others, standing: Vec::new() };
        for node in &standstill.others {
            cluster.send(*node, Lane::Core, &Word::Still(number, StillWord::Stand));
        }
        let _ = sender.send((me, stand(shared, cluster, (me, number))));
        standstill.standing = standstill.collect(&answers)?;
        Ok(standstill)
    }

    /// Where these shards are.
    pub(crate) fn standing_of(&self, shards: &BTreeSet<ShardId>) -> Vec<Standing> {
        self.standing.iter().filter(|standing| shards.contains(&standing.shard)).copied().collect()
    }

    /// Waits until this node has on its disk all that the others have of these shards.
    ///
    /// # Errors
    /// It does not have that in time.
    pub(crate) fn wait_for(&self, shards: &BTreeSet<ShardId>) -> io::Result<()> {
        wait_until_here(self.shared, self.standing_of(shards), || self.left())
    }

    /// How long all may stand still.
    pub(crate) fn left(&self) -> Duration {
        DONE.saturating_sub(self.since.elapsed())
    }

    /// Where all shards are.
    fn collect(&self, answers: &mpsc::Receiver<(NodeId, Option<Vec<Standing>>)>) -> io::Result<Vec<Standing>> {
        let mut silent = self.others.clone();
        silent.insert(self.cluster.me());
        let mut newest: BTreeMap<ShardId, Standing> = BTreeMap::new();
        while let Some(first) = silent.first().copied() {
            match answers.recv_timeout(self.left()) {
                Ok((node, Some(standing))) => {
                    silent.remove(&node);
                    for one in standing {
                        let known = newest.entry(one.shard).or_insert(one);
                        // Two may own it while it moves. What the earlier one adds is never committed.
                        if known.epoch < one.epoch {
                            *known = one;
                        }
                    }
                }
                Ok((node, None)) => return Err(failed(format!("node {node} takes part in another backup; try again"))),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err(failed(format!("node {first} has not answered in time; try again")));
                }
            }
        }
        // The last one is that of the guidance.
        match (0..=self.shared.shard_count()).map(ShardId).find(|shard| !newest.contains_key(shard)) {
            Some(shard) => Err(failed(format!("nobody serves shard {shard} at this moment; try again"))),
            None => Ok(newest.into_values().collect()),
        }
    }

    /// The moment was taken: all go on.
    ///
    /// # Errors
    /// Somebody has gone on before, or has started anew meanwhile.
    pub(crate) fn end(self) -> io::Result<Stood> {
        let answers = self.cluster.stillness.listen(self.number);
        self.tell_to_go_on();
        all_have_stood(&answers, &self.others, || self.left())?;
        Ok(Stood { number: self.number, since: self.since, others: self.others.clone() })
    }

    fn tell_to_go_on(&self) {
        for node in &self.others {
            self.cluster.send(*node, Lane::Core, &Word::Still(self.number, StillWord::GoOn));
        }
        go_on(self.shared, self.cluster, (self.cluster.me(), self.number));
    }
}

impl Drop for Standstill<'_> {
    fn drop(&mut self) {
        *locked(&self.cluster.stillness.answers) = None;
        self.tell_to_go_on();
    }
}

/// Waits until this node has on its disk all that these owners had.
///
/// # Errors
/// It does not have that in time.
pub(crate) fn wait_until_here(shared: &Shared, standing: Vec<Standing>, left: impl Fn() -> Duration) -> io::Result<()> {
    let standing = Arc::new(standing);
    loop {
        let (sender, answers) = mpsc::channel();
        for core in 0..shared.cores.len() {
            let (standing, answer) = (Arc::clone(&standing), sender.clone());
            shared.send(core, NodeMessage::Still(Still::HoldsAll { standing, answer }));
        }
        drop(sender);
        let answered: Vec<bool> =
            std::iter::from_fn(|| answers.recv_timeout(left()).ok()).take(shared.cores.len()).collect();
        if answered.len() == shared.cores.len() && answered.iter().all(|holds| *holds) {
            return Ok(());
        }
        if left().is_zero() {
            return Err(failed("this node lacks too much of what the others have; try again"));
        }
        std::thread::sleep(LOOK);
    }
}

/// Has this node stand still. `None`: it does so for somebody else.
fn stand(shared: &Arc<Shared>, cluster: &Cluster, (asker, number): (NodeId, u64)) -> Option<Vec<Standing>> {
    {
        let mut known = locked(&cluster.stillness.asker);
        if known.is_some_and(|(.., since)| since.elapsed() < STILL) {
            return None;
        }
        *known = Some((asker, number, Instant::now()));
    }
    if let Some(bodies) = &shared.bodies {
        bodies.keep_for(BODIES_KEPT);
    }
    let (sender, answers) = mpsc::channel();
    for core in 0..shared.cores.len() {
        shared.send(core, NodeMessage::Still(Still::Stand { for_ns: STILL.as_nanos() as u64, answer: sender.clone() }));
    }
    let mut standing = Vec::new();
    for _ in 0..shared.cores.len() {
        standing.extend(answers.recv_timeout(DONE).ok()?);
    }
    Some(standing)
}

/// Waits until all of these have said that they have stood still.
///
/// # Errors
/// One has not, or does not say so in time.
fn all_have_stood(
    answers: &mpsc::Receiver<(NodeId, Option<Vec<Standing>>)>,
    others: &BTreeSet<NodeId>,
    left: impl Fn() -> Duration,
) -> io::Result<()> {
    let mut silent = others.clone();
    while let Some(first) = silent.first().copied() {
        match answers.recv_timeout(left()) {
            Ok((node, Some(_))) => drop(silent.remove(&node)),
            Ok((node, None)) => return Err(failed(format!("node {node} has not stood still; try again"))),
            Err(_) => return Err(failed(format!("node {first} may not have stood still; try again"))),
        }
    }
    Ok(())
}

/// Has this node go on. Says whether it has stood still until then, for this asker.
fn go_on(shared: &Shared, cluster: &Cluster, (asker, number): (NodeId, u64)) -> bool {
    let mut known = locked(&cluster.stillness.asker);
    let Some((.., since)) = known.take_if(|(of, under, _)| (*of, *under) == (asker, number)) else {
        return *locked(&cluster.stillness.ended) == Some((asker, number));
    };
    for core in 0..shared.cores.len() {
        shared.send(core, NodeMessage::Still(Still::GoOn));
    }
    let has_stood = since.elapsed() < STILL;
    *locked(&cluster.stillness.ended) = has_stood.then_some((asker, number));
    has_stood
}

/// Another node says something about it. Called from the thread of the links, which must not wait.
pub(super) fn heard(shared: &Arc<Shared>, cluster: &Arc<Cluster>, from: NodeId, number: u64, word: StillWord) {
    match word {
        StillWord::Stand => {
            let (shared, cluster) = (Arc::clone(shared), Arc::clone(cluster));
            let answer = move || {
                let word = stand(&shared, &cluster, (from, number)).map_or(StillWord::Busy, StillWord::Standing);
                cluster.send(from, Lane::Core, &Word::Still(number, word));
            };
            if let Err(error) = std::thread::Builder::new().name("standstill".to_owned()).spawn(answer) {
                tracing::warn!(%error, "this node cannot stand still for another one's backup");
            }
        }
        StillWord::Standing(standing) => answered(cluster, from, number, Some(standing)),
        StillWord::Busy => answered(cluster, from, number, None),
        StillWord::GoOn => {
            let has_stood = go_on(shared, cluster, (from, number));
            let word = if has_stood { StillWord::Standing(Vec::new()) } else { StillWord::Busy };
            cluster.send(from, Lane::Core, &Word::Still(number, word));
        }
    }
}

fn answered(cluster: &Cluster, from: NodeId, number: u64, standing: Option<Vec<Standing>>) {
    if let Some((asked, answers)) = &*locked(&cluster.stillness.answers)
        && *asked == number
    {
        // Whoever asked may have given up.
        let _ = answers.send((from, standing));
    }
}
