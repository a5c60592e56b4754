//! The thread that writes checkpoints and deletes the log they cover.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use millrace_base::{Lsn, ShardId};
use millrace_driver::{TransferJob, Transfers};
use millrace_replica::{EntryId, NodeId};
use millrace_store::{FlushChunk, StoreError};

use crate::cluster::log_reader::{self, Runs};
use crate::cluster::snapshots;
use crate::core::{NodeMessage, Shared};
use crate::options::Durability;

/// A chunk to write for one shard of one core.
pub(crate) struct FlushJob {
    pub core: usize,
    pub shard: ShardId,
    pub chunk: FlushChunk,
}

/// Entries of a shard's log to read for a peer.
pub(crate) struct ReadJob {
    pub core: usize,
    pub shard: ShardId,
    pub to: NodeId,
    pub after: EntryId,
    pub runs: Runs,
    pub bytes: usize,
}

/// A shard's state to read again, up to an entry.
pub(crate) struct ReopenJob {
    pub core: usize,
    pub shard: ShardId,
    pub runs: Runs,
    pub up_to: Lsn,
}

enum Command {
    Write(FlushJob),
    ReadLog(ReadJob),
    Reopen(ReopenJob),
    Snapshot(TransferJob),
    TruncateLog,
    /// Do this while nobody writes the checkpoint.
    Pause(Box<dyn FnOnce() + Send>),
    /// Answer once everything before this is done.
    Sync(Sender<()>),
    Stop,
}

/// The flusher as cores see it.
#[derive(Clone)]
pub(crate) struct FlusherHandle {
    sender: Sender<Command>,
}

impl FlusherHandle {
    /// Writes a chunk; the answer comes as `NodeMessage::Flushed`.
    pub(crate) fn write(&self, job: FlushJob) {
        self.send(Command::Write(job));
    }

    /// Reads entries; they come as `NodeMessage::LogRead`.
    pub(crate) fn read_log(&self, job: ReadJob) {
        self.send(Command::ReadLog(job));
    }

    /// Reads a shard's state again, up to an entry; it comes as `NodeMessage::Reopened`. It comes after the news of chunks
    /// that were handed over before.
    pub(crate) fn reopen(&self, job: ReopenJob) {
        self.send(Command::Reopen(job));
    }

    /// Carries a snapshot, or installs one. It comes behind chunks that were handed over before.
    pub(crate) fn snapshot(&self, job: TransferJob) {
        self.send(Command::Snapshot(job));
    }

    /// Deletes what the checkpoints cover by now.
    pub(crate) fn truncate_log(&self) {
        self.send(Command::TruncateLog);
    }

    /// Waits until everything handed over so far has been written.
    pub(crate) fn sync(&self) {
        let (done, answer) = channel();
        self.send(Command::Sync(done));
        // An error means that the flusher has ended, so that nothing is being written either.
        let _ = answer.recv();
    }

    /// Does this between two writes of the checkpoint.
    pub(crate) fn pause(&self, work: impl FnOnce() + Send + 'static) {
        self.send(Command::Pause(Box::new(work)));
    }

    fn send(&self, command: Command) {
        if self.sender.send(command).is_err() {
            tracing::debug!("the flusher has stopped already");
        }
    }
}

/// What the flusher's thread is started with, once the rest of the node is there.
pub(crate) struct Flusher {
    receiver: Receiver<Command>,
}

impl Flusher {
    pub(crate) fn new() -> (FlusherHandle, Flusher) {
        let (sender, receiver) = channel();
        (FlusherHandle { sender }, Flusher { receiver })
    }

    /// Starts the thread; [`stop`] ends it.
    pub(crate) fn start(self, shared: Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("flusher".to_owned()).spawn(move || self.run(&shared))
    }

    fn run(self, shared: &Shared) {
        let mut snapshots = Transfers::default();
        loop {
            let received = if snapshots.is_busy() {
                self.receiver.recv_timeout(snapshots::LOOK)
            } else {
                self.receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            if snapshots.is_busy() {
                snapshots.tick(shared);
            }
            let command = match received {
                Ok(command) => command,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            match command {
                Command::Snapshot(job) => snapshots.handle(shared, job),
                Command::Write(FlushJob { core, shard, chunk }) => {
                    let result = write(shared, shard, &chunk);
                    shared.send(core, NodeMessage::Flushed { shard, chunk, result });
                }
                Command::ReadLog(ReadJob { core, shard, to, after, runs, bytes }) => {
                    let entries = log_reader::entries(shared, shard, after, &runs, bytes);
                    shared.send(core, NodeMessage::LogRead { shard, to, after, entries });
                }
                Command::Reopen(ReopenJob { core, shard, runs, up_to }) => {
                    let store = log_reader::reopen(shared, shard, &runs, up_to).map(Box::new);
                    shared.send(core, NodeMessage::Reopened { shard, store });
                }
                Command::TruncateLog => {
                    if let Err(error) = truncate(shared, &snapshots) {
                        tracing::warn!(%error, "log segments that are no longer needed could not be deleted yet");
                    }
                }
                Command::Pause(work) => work(),
                Command::Sync(done) => {
                    let _ = done.send(());
                }
                Command::Stop => return,
            }
        }
    }
}

fn truncate(shared: &Shared, snapshots: &Transfers) -> Result<(), StoreError> {
    let mark = shared.checkpoint.mark()?;
    let now_ns = shared.clock.monotonic_ns();
    let covered = |shard| shared.checkpointed_lsn(shard).min(snapshots.floor(shard, now_ns));
    let deleted = if shared.cluster.is_some() {
        // First replicas forget what is in these segments; once they have said so in the log, the segments go.
        let limit = |shard| (!shared.is_emptied(shard)).then(|| covered(shard));
        for (shard, up_to) in shared.segments.trims(&limit, shared.options.kept_log_bytes) {
            shared.send(shared.core_of(shard), NodeMessage::Trim { shard, up_to });
        }
        shared.segments.delete_behind_bases(&limit, shared.options.kept_log_bytes, mark)
    } else {
        shared.segments.delete_covered(&covered, mark)
    };
    deleted.map(|_| ()).map_err(|error| StoreError::Checkpoint(error.to_string()))
}

/// Writes a chunk. A panic of the checkpoint's library is a failed write like any other.
fn write(shared: &Shared, shard: ShardId, chunk: &FlushChunk) -> Result<(), String> {
    // With `durability = "os"` the log may be behind on the disk; the checkpoint must not be ahead
    // of it, or a power cut would leave half a transaction that nothing can complete.
    if shared.options.durability == Durability::Os {
        let data = File::open(&shared.options.data).map_err(|error| error.to_string())?;
        rustix::fs::syncfs(&data).map_err(|error| error.to_string())?;
    }
    let written = catch_unwind(AssertUnwindSafe(|| shared.checkpoint.write(shard, chunk)));
    match written {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("the checkpoint's library panicked".to_owned()),
    }
}

/// Ends the flusher after what it has been given.
pub(crate) fn stop(handle: &FlusherHandle, thread: JoinHandle<()>) {
    handle.send(Command::Stop);
    if thread.join().is_err() {
        tracing::error!("the flusher's thread panicked");
    }
}
