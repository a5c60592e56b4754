//! What other nodes of the cluster copy for a backup that this one takes: the shards that it does not hold.
//!
//! | step | this node | each of the others |
//! |---|---|---|
//! | [`Copies::begin`] | finds nodes that hold all it lacks | holds its log and bodies, and links its checkpoint |
//! | [`Copies::begin_moment`] | all nodes stand still | takes its moment once its disk has all of the shards it was chosen for |
//! | [`Copies::get_bodies`] | all go on | gets the bodies that it lacks |
//! | [`Copies::add_to`] | reads one copy after the other | gives a piece of its archive whenever it is asked |
//!
//! Each word is said again until it is answered. The others let go of what they hold when they are told, or hear nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use millrace_backup::{ArchiveWriter, BackupError, Missing, read_archive};
use millrace_base::ShardId;
use millrace_guidance::Guidance;
use millrace_io::{Random, RealRandom};
use millrace_peers::Lane;
use millrace_replica::NodeId;

use super::NODES;
use super::copying::{Answers, SILENCE};
use crate::cluster::{Cluster, CopyStep, CopyWord, Standstill, Stood, Word, others_alive};
use crate::core::Shared;

/// How long another node may take until it holds what a copy needs. It gets bodies that it lacks first.
const HELD: Duration = Duration::from_secs(60);

/// How long a piece is waited for. The disk may be slow.
const PIECE: Duration = Duration::from_secs(60);

/// How often a word is said that has no answer; at first, if a piece is asked for.
const AGAIN: Duration = Duration::from_millis(300);

/// How often a piece is asked for at last.
const LONGEST_AGAIN: Duration = Duration::from_secs(10);

/// See the module's documentation. Dropping it lets the others go.
pub(super) struct Copies {
    cluster: Arc<Cluster>,
    number: u64,
    /// The shards that this node itself holds, that of the guidance among them.
    own: BTreeSet<ShardId>,
    /// Which shards the others are to copy. They copy what else they have, too.
    nodes: BTreeMap<NodeId, BTreeSet<ShardId>>,
    answers: mpsc::Receiver<(NodeId, CopyWord)>,
}

fn failed(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{why}; try again"))
}

impl Copies {
    /// Chooses who copies what this node does not hold, and has them hold it.
    ///
    /// # Errors
    /// No living node holds a shard.
    pub(super) fn begin(shared: &Shared, cluster: &Arc<Cluster>) -> io::Result<Self> {
        let (sender, answers) = mpsc::channel();
        let number = RealRandom.next_u64();
        let (own, nodes) = chosen(&cluster.guidance(), cluster.me(), &others_alive(cluster))
            .map_err(|shard| failed(format!("no node that is alive holds shard {shard}")))?;
        let own = own.into_iter().chain([ShardId(shared.shard_count())]).collect();
        cluster.copying.listen(Some((number, sender) as Answers));
        let copies = Self { cluster: Arc::clone(cluster), number, own, nodes, answers };
        copies.say_to_all(|_| CopyWord::Hold);
        Ok(copies)
    }

    pub(super) fn own(&self) -> &BTreeSet<ShardId> {
        &self.own
    }

    /// Itself, if any other node copies anything.
    pub(super) fn any(self) -> Option<Self> {
        (!self.nodes.is_empty()).then_some(self)
    }

    fn say(&self, node: NodeId, word: CopyWord) {
        self.cluster.send(node, Lane::Core, &Word::Copy(self.number, word));
    }

    fn say_to_all(&self, word: impl Fn(NodeId) -> CopyWord) {
        self.nodes.keys().for_each(|node| self.say(*node, word(*node)));
    }

    /// Waits until all others have done a step, and asks them again meanwhile.
    fn wait_for(
        &self,
        step: CopyStep,
        word: impl Fn(NodeId) -> CopyWord,
        left: impl Fn() -> Duration,
    ) -> io::Result<()> {
        let mut silent: BTreeSet<NodeId> = self.nodes.keys().copied().collect();
        while let Some(first) = silent.first().copied() {
            match self.answers.recv_timeout(left().min(AGAIN)) {
                Ok((node, CopyWord::Done(done))) if done == step => drop(silent.remove(&node)),
                Ok((node, CopyWord::Failed(reason))) => return Err(failed(format!("node {node}: {reason}"))),
                Ok(_) => {}
                Err(_) if left().is_zero() => {
                    return Err(failed(format!("node {first} has not copied its shards in time")));
                }
                Err(_) => silent.iter().for_each(|node| self.say(*node, word(*node))),
            }
        }
        Ok(())
    }

    /// Waits until all others hold what their copies need.
    ///
    /// # Errors
    /// One does not.
    pub(super) fn wait_until_held(&self) -> io::Result<()> {
        let until = Instant::now() + HELD;
        self.wait_for(CopyStep::Hold, |_| CopyWord::Hold, || until.saturating_duration_since(Instant::now()))
    }

    fn moment_of(&self, standstill: &Standstill<'_>, node: NodeId) -> CopyWord {
        CopyWord::Take(self.nodes.get(&node).map(|shards| standstill.standing_of(shards)).unwrap_or_default())
    }

    /// All nodes stand still: has the others take their moment.
    pub(super) fn begin_moment(&self, standstill: &Standstill<'_>) {
        self.say_to_all(|node| self.moment_of(standstill, node));
    }

    /// Waits until all others have taken their moment.
    ///
    /// # Errors
    /// One has not, in time.
    pub(super) fn wait_for_moment(&self, standstill: &Standstill<'_>) -> io::Result<()> {
        self.wait_for(CopyStep::Take, |node| self.moment_of(standstill, node), || standstill.left())
    }

    /// All nodes go on: has the others get the bodies that they lack.
    pub(super) fn get_bodies(&self, stood: &Stood) {
        self.say_to_all(|node| self.bodies_for(stood, node));
    }

    /// This node has stood still as well, and may have bodies.
    fn bodies_for(&self, stood: &Stood, node: NodeId) -> CopyWord {
        let others = stood.others().iter().copied().filter(|other| *other != node);
        CopyWord::Complete(others.chain([self.cluster.me()]).collect())
    }

    /// Waits until all others have the bodies that they lacked.
    ///
    /// # Errors
    /// One has not got them in time.
    pub(super) fn wait_for_bodies(&self, stood: &Stood) -> io::Result<()> {
        self.wait_for(CopyStep::Complete, |node| self.bodies_for(stood, node), || stood.left())
    }

    /// Adds the files of all copies to an archive, each in a folder of its own. Gives their bytes, and what is missing of the shards
    /// that they are for.
    ///
    /// # Errors
    /// A node is lost, or its copy is not whole; what the archive answers.
    pub(super) fn add_to<W: Write>(&self, archive: &mut ArchiveWriter<W>) -> io::Result<(u64, Vec<Missing>)> {
        let (mut sum, mut missing) = (0, Vec::new());
        for (node, shards) in &self.nodes {
            let folder = format!("{NODES}/{node}");
            let pieces = Pieces { copies: self, node: *node, number: 0, piece: Bytes::new(), is_over: false };
            let received = read_archive(pieces, &mut |path, bytes, content| {
                let path = format!("{folder}/{path}");
                sum += bytes;
                archive.file(&path, bytes, content).map_err(|error| BackupError::Io(path, error))
            });
            let received = received.map_err(|error| match error {
                // Its kind says whether anybody reads the archive.
                BackupError::Io(path, error) => io::Error::new(error.kind(), format!("{path}: {error}")),
                other => io::Error::other(format!("node {node}: {other}")),
            })?;
            missing.extend(received.sent.missing.into_iter().filter(|body| shards.contains(&ShardId(body.shard))));
            for empty in received.folders {
                archive.folder(&format!("{folder}/{empty}"))?;
            }
        }
        Ok((sum, missing))
    }

    /// What reminds the others, while this node sends something else, that it wants their copies.
    pub(super) fn stay_held(&self) -> StayHeld {
        let nodes = self.nodes.keys().copied().collect();
        StayHeld { cluster: Arc::clone(&self.cluster), number: self.number, nodes, last: Instant::now() }
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.cluster.copying.listen(None);
        self.say_to_all(|_| CopyWord::Forget);
    }
}

/// See [`Copies::stay_held`].
pub(super) struct StayHeld {
    cluster: Arc<Cluster>,
    number: u64,
    nodes: Vec<NodeId>,
    last: Instant,
}

impl StayHeld {
    /// To be called often.
    pub(super) fn remind(&mut self) {
        if self.last.elapsed() >= SILENCE / 20 {
            self.last = Instant::now();
            for node in &self.nodes {
                self.cluster.send(*node, Lane::Core, &Word::Copy(self.number, CopyWord::Stay));
            }
        }
    }
}

/// The archive of another node, as it comes.
struct Pieces<'a> {
    copies: &'a Copies,
    node: NodeId,
    /// Of the next piece.
    number: u32,
    piece: Bytes,
    is_over: bool,
}

impl Pieces<'_> {
    fn next(&mut self) -> io::Result<Bytes> {
        let (until, mut again) = (Instant::now() + PIECE, AGAIN);
        loop {
            self.copies.say(self.node, CopyWord::Give(self.number));
            loop {
                match self.copies.answers.recv_timeout(again) {
                    Ok((node, CopyWord::Piece(number, bytes))) if (node, number) == (self.node, self.number) => {
                        self.number += 1;
                        return Ok(bytes);
                    }
                    Ok((node, CopyWord::Failed(reason))) if node == self.node => return Err(io::Error::other(reason)),
                    Ok(_) => {}
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            // Each time it is asked for the piece is sent once more, and a slow link may have it on its way.
            again = (again * 2).min(LONGEST_AGAIN);
            if Instant::now() >= until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it has not sent the rest of its copy"));
            }
        }
    }
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() && !self.is_over {
            self.piece = self.next()?;
            self.is_over = self.piece.is_empty();
        }
        let count = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// The shards that this node holds, and of whom each other one is got: of few nodes. The shard that nobody alive holds, if there
/// is one.
#[expect(clippy::type_complexity, reason = "both halves are used once, by name")]
fn chosen(
    guidance: &Guidance,
    me: NodeId,
    alive: &BTreeSet<NodeId>,
) -> Result<(BTreeSet<ShardId>, BTreeMap<NodeId, BTreeSet<ShardId>>), ShardId> {
    let held_by = |node: NodeId| -> BTreeSet<ShardId> {
        let places = (0..).map(ShardId).zip(&guidance.shards);
        places.filter(|(_, place)| place.replicas.contains(&node.0)).map(|(shard, _)| shard).collect()
    };
    let own = held_by(me);
    let mut lacking: BTreeSet<ShardId> =
        (0..).map(ShardId).take(guidance.shards.len()).filter(|shard| !own.contains(shard)).collect();
    let held: BTreeMap<NodeId, BTreeSet<ShardId>> = alive.iter().map(|node| (*node, held_by(*node))).collect();
    let mut nodes = BTreeMap::new();
    while let Some(first) = lacking.first().copied() {
        let best = held.iter().map(|(node, held)| (&lacking & held, *node)).max_by_key(|(shards, _)| shards.len());
        let Some((shards, node)) = best.filter(|(shards, _)| !shards.is_empty()) else { return Err(first) };
        lacking.retain(|shard| !shards.contains(shard));
        nodes.insert(node, shards);
    }
    Ok((own, nodes))
}

#[cfg(test)]
mod tests {
    use millrace_guidance::ShardPlacement;

    use super::*;

    fn guidance(replicas: &[&[u16]]) -> Guidance {
        let place = |nodes: &&[u16]| ShardPlacement { replicas: nodes.to_vec(), ..ShardPlacement::default() };
        Guidance { shards: replicas.iter().map(place).collect(), ..Guidance::default() }
    }

    fn shards<const N: usize>(of: [u16; N]) -> BTreeSet<ShardId> {
        of.map(ShardId).into()
    }

    #[test]
    fn few_nodes_are_chosen_and_only_for_what_is_lacking() {
        let guidance = guidance(&[&[1, 2, 3], &[2, 3, 4], &[3, 4, 5], &[4, 5, 1], &[5, 1, 2]]);
        let alive = [2, 3, 4, 5].map(NodeId).into();
        let chosen = chosen(&guidance, NodeId(1), &alive).expect("all are held");
        assert_eq!(chosen.0, shards([0, 3, 4]));
        assert_eq!(chosen.1.len(), 1, "nodes 3 and 4 hold both: {chosen:?}");
        assert_eq!(chosen.1.into_values().next(), Some(shards([1, 2])));
    }

    #[test]
    fn a_shard_that_nobody_alive_holds_is_named() {
        let guidance = guidance(&[&[1], &[2], &[3]]);
        assert_eq!(chosen(&guidance, NodeId(1), &[NodeId(2)].into()), Err(ShardId(2)));
    }
}
