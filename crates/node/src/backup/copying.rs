//! This node copies what it has for a backup that another one takes: [`super::copies`] has the steps.
//!
//! Promises: at most one copy at a time, and none beside a backup of this node's own; what it holds is let go when the other node
//! says so, or says nothing for [`SILENCE`].

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use millrace_base::limits;
use millrace_peers::Lane;
use millrace_replica::NodeId;

use super::Turn;
use super::capture::{Capture, Held, Moment};
use super::send::{PIECES_AHEAD, send};
use crate::cluster::{Cluster, CopyStep, CopyWord, DONE, Word, get_bodies_of, wait_until_here};
use crate::core::Shared;

/// A node that says nothing for so long wants no copy any more. Whoever reads the backup may be slow.
pub(super) const SILENCE: Duration = Duration::from_secs(100);

/// How long this node may get bodies that it lacks: not longer than the others keep them.
const BODIES_GOT: Duration = Duration::from_secs(45);

/// Where answers go, and under which number they were asked for.
pub(super) type Answers = (u64, Sender<(NodeId, CopyWord)>);

/// This node's part in backups of others, and theirs in its own.
#[derive(Default)]
pub(crate) struct Copying {
    answers: Mutex<Option<Answers>>,
    /// For whom this node copies, and under which number.
    serving: Mutex<Option<(NodeId, u64, Sender<CopyWord>)>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change under these locks is a single replacement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Copying {
    /// Where answers come from now on.
    pub(super) fn listen(&self, answers: Option<Answers>) {
        *locked(&self.answers) = answers;
    }
}

/// Another node says something about a copy. Called from the thread of the links, which must not wait.
pub(crate) fn heard(shared: &Arc<Shared>, cluster: &Arc<Cluster>, from: NodeId, number: u64, word: CopyWord) {
    if word.is_answer() {
        if let Some((_, answers)) = locked(&cluster.copying.answers).as_ref().filter(|(asked, _)| *asked == number) {
            // Whoever asked may have given up.
            let _ = answers.send((from, word));
        }
        return;
    }
    let mut serving = locked(&cluster.copying.serving);
    if let Some((_, _, inbox)) = serving.as_ref().filter(|(asker, of, _)| (*asker, *of) == (from, number)) {
        // It has ended if nobody hears. Then it has said so.
        let _ = inbox.send(word);
        return;
    }
    match word {
        CopyWord::Hold => {
            let (sender, inbox) = mpsc::channel();
            let _ = sender.send(word);
            let before = serving.replace((from, number, sender));
            // It was for a process that has ended, if it was for the same node. Its thread finds that nobody says anything more.
            drop(before);
            let (shared, cluster) = (Arc::clone(shared), Arc::clone(cluster));
            let copying = move || serve(&shared, &cluster, (from, number), &inbox);
            if let Err(error) = std::thread::Builder::new().name("copy".to_owned()).spawn(copying) {
                tracing::warn!(%error, "this node cannot copy what it has for another one's backup");
            }
        }
        CopyWord::Forget | CopyWord::Stay => {}
        _ => {
            let word = CopyWord::Failed("it does not copy anything for this backup any more".to_owned());
            cluster.send(from, Lane::Core, &Word::Copy(number, word));
        }
    }
}

fn serve(shared: &Arc<Shared>, cluster: &Cluster, (asker, number): (NodeId, u64), inbox: &Receiver<CopyWord>) {
    if let Err(reason) = answer_all(shared, inbox, |word| say(cluster, (asker, number), word)) {
        say(cluster, (asker, number), CopyWord::Failed(reason));
    }
    // What comes from now on is told that there is no copy.
    locked(&cluster.copying.serving).take_if(|(node, of, _)| (*node, *of) == (asker, number));
}

/// Until the other node wants nothing more.
fn answer_all(shared: &Arc<Shared>, inbox: &Receiver<CopyWord>, say: impl Fn(CopyWord)) -> Result<(), String> {
    let turn = Turn::take(shared).map_err(|error| error.message)?;
    let mut copy = Copy { shared, stage: Stage::Begun, turn: Some(turn) };
    while let Ok(word) = inbox.recv_timeout(SILENCE)
        && word != CopyWord::Forget
    {
        let answer = copy.answer(word).map_err(|error| error.to_string())?;
        answer.into_iter().for_each(&say);
    }
    Ok(())
}

fn say(cluster: &Cluster, (asker, number): (NodeId, u64), word: CopyWord) {
    let lane = if matches!(word, CopyWord::Piece(..)) { Lane::Mail } else { Lane::Core };
    cluster.send(asker, lane, &Word::Copy(number, word));
}

enum Stage {
    Begun,
    Held(Held),
    Taken(Box<(Held, Moment)>),
    Sending(Archive),
}

/// An archive on its way to the other node.
struct Archive {
    pieces: tokio::sync::mpsc::Receiver<Bytes>,
    /// The piece that was given last, in case it was lost, and the number of the next one.
    last: Bytes,
    next: u32,
}

/// A copy that is being made.
struct Copy<'a> {
    shared: &'a Arc<Shared>,
    stage: Stage,
    /// It goes to the thread that sends.
    turn: Option<Turn>,
}

impl Copy<'_> {
    /// Does what is asked for, unless it is done. `None`: there is no answer to it.
    fn answer(&mut self, word: CopyWord) -> io::Result<Option<CopyWord>> {
        let step = match word {
            CopyWord::Hold => CopyStep::Hold,
            CopyWord::Take(_) => CopyStep::Take,
            CopyWord::Complete(_) => CopyStep::Complete,
            CopyWord::Give(number) => return self.give(number).map(Some),
            _ => return Ok(None),
        };
        let stage = std::mem::replace(&mut self.stage, Stage::Begun);
        self.stage = match (stage, word) {
            (Stage::Begun, CopyWord::Hold) => Stage::Held(Held::begin(self.shared)?),
            (Stage::Held(held), CopyWord::Take(standing)) => {
                let until = Instant::now() + DONE;
                wait_until_here(self.shared, standing, || until.saturating_duration_since(Instant::now()))?;
                let moment = held.take_moment(self.shared)?;
                Stage::Taken(Box::new((held, moment)))
            }
            (Stage::Taken(taken), CopyWord::Complete(nodes)) => {
                let (held, moment) = *taken;
                let unreadable = get_bodies_of(self.shared, &nodes.into_iter().collect(), BODIES_GOT)?;
                Stage::Sending(self.begin_to_send(held.capture(self.shared, (moment, unreadable), 0)?)?)
            }
            (Stage::Begun, _) | (Stage::Held(_), CopyWord::Complete(_)) => {
                return Err(io::Error::other("it was asked for steps of a copy in another order"));
            }
            // It is done already.
            (stage, _) => stage,
        };
        Ok(Some(CopyWord::Done(step)))
    }

    fn begin_to_send(&mut self, capture: Capture) -> io::Result<Archive> {
        let (sender, pieces) = tokio::sync::mpsc::channel(PIECES_AHEAD);
        let (shared, turn) = (Arc::clone(self.shared), self.turn.take());
        std::thread::Builder::new().name("copy-out".to_owned()).spawn(move || {
            send(&shared, (capture, None), sender);
            drop(turn);
        })?;
        Ok(Archive { pieces, last: Bytes::new(), next: 0 })
    }

    fn give(&mut self, number: u32) -> io::Result<CopyWord> {
        let Stage::Sending(archive) = &mut self.stage else {
            return Err(io::Error::other("it was asked for a piece of a copy that it has not made"));
        };
        if number == archive.next {
            let mut piece = BytesMut::new();
            while piece.len() < limits::SNAPSHOT_PART_BYTES
                && let Some(some) = archive.pieces.blocking_recv()
            {
                piece.extend_from_slice(&some);
            }
            (archive.last, archive.next) = (piece.freeze(), number + 1);
        } else if number.checked_add(1) != Some(archive.next) {
            return Err(io::Error::other("it was asked for a piece of a copy that it has given before"));
        }
        Ok(CopyWord::Piece(number, archive.last.clone()))
    }
}
