//! A thread that appends batches, so that the core that fills them never waits for the disk.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::batch::Batch;
use crate::error::LogError;
use crate::spare::Job;
use crate::writer::{AppendReport, Space, Writer};

/// How often the committer tries a full disk again. This is soon enough for a person who has just freed space.
const RETRY_MS: u64 = 200;

/// What happened to a batch, or to the disk's space.
#[derive(Debug)]
pub enum Committed {
    /// The batch is durable (as far as the log's durability goes) and comes back empty. [`Batch::committed`] tells what
    /// it held.
    Durable {
        /// The emptied batch, for reuse.
        batch: Batch,
        /// What the append did.
        report: AppendReport,
    },
    /// The disk is full. The batch stays here, and the committer tries it again by itself. `Durable` or `Failed`
    /// follows. Reported once for each batch that has to wait.
    OutOfSpace,
    /// Space became low, or there is enough again. Reported when it changes.
    Space(Space),
    /// The batch is not durable, and no later one will be: the log needs a restart. Every later batch comes back this
    /// way too.
    Failed {
        /// The batch, as submitted.
        batch: Batch,
        /// Why.
        error: LogError,
    },
}

enum Command {
    Append(Batch),
    /// A job is done; look at its result.
    Wake,
    Close,
    /// Stop at once, as a crash would.
    Stop,
}

/// The committer's handle. If it is dropped without [`Committer::close`], the committer stops without a closing batch.
/// Batches already submitted may or may not be written.
pub struct Committer {
    sender: Sender<Command>,
    thread: Option<JoinHandle<Result<(), LogError>>>,
    helper: Option<JoinHandle<()>>,
}

impl Committer {
    /// Starts the committer's thread and the thread that prepares segments. The committer's thread calls
    /// `on_committed`, in the order of the batches.
    ///
    /// # Errors
    /// If a thread cannot be started.
    #[allow(clippy::disallowed_methods, reason = "the committer exists to put a writer on a thread")]
    pub fn start(writer: Writer, on_committed: Box<dyn FnMut(Committed) + Send>) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let (jobs, job_receiver) = channel::<Job>();
        let stream = writer.stream();
        let wake = sender.clone();
        let helper = std::thread::Builder::new().name(format!("log-prepare-{stream}")).spawn(move || {
            for job in job_receiver {
                job.run();
                // The committer may be gone already; then nothing waits for this.
                let _ = wake.send(Command::Wake);
            }
        })?;
        let worker = Worker::new(writer, receiver, jobs, on_committed);
        let thread = std::thread::Builder::new().name(format!("log-commit-{stream}")).spawn(move || worker.run())?;
        Ok(Self { sender, thread: Some(thread), helper: Some(helper) })
    }

    /// Submits a batch; it comes back through the callback. This call neither waits nor takes a lock. Several batches
    /// may be on their way: they are appended in order, one at a time.
    pub fn submit(&self, batch: Batch) {
        // The thread lives as long as this handle, unless the callback panicked. Then nothing is acknowledged any more,
        // and this place can do no more about it.
        let _ = self.sender.send(Command::Append(batch));
    }

    /// Appends what was submitted, ends the stream with a closing batch and waits for the threads. Batches that still
    /// wait for space come back as failed.
    ///
    /// # Errors
    /// [`LogError`] if the stream could not be closed. A restart then recovers it as after a crash.
    pub fn close(mut self) -> Result<(), LogError> {
        self.finish(Command::Close)
    }

    fn finish(&mut self, command: Command) -> Result<(), LogError> {
        let _ = self.sender.send(command);
        let panicked = || LogError::Failed("the committer's thread panicked".to_owned());
        let result = match self.thread.take() {
            Some(thread) => thread.join().unwrap_or_else(|_| Err(panicked())),
            None => Ok(()),
        };
        if let Some(helper) = self.helper.take() {
            helper.join().map_err(|_| panicked())?;
        }
        result
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let _ = self.finish(Command::Stop);
        }
    }
}

struct Worker {
    writer: Writer,
    receiver: Receiver<Command>,
    jobs: Sender<Job>,
    on_committed: Box<dyn FnMut(Committed) + Send>,
    waiting: VecDeque<Batch>,
    /// Set while the first waiting batch has found the disk full, which has been reported. It is tried again at this
    /// time.
    retry_at_ns: Option<u64>,
    /// Earliest time for another job while space is low.
    job_at_ns: u64,
    reported: Space,
}

impl Worker {
    fn new(
        writer: Writer,
        receiver: Receiver<Command>,
        jobs: Sender<Job>,
        on_committed: Box<dyn FnMut(Committed) + Send>,
    ) -> Self {
        let waiting = VecDeque::new();
        let reported = Space::Enough;
        Self { writer, receiver, jobs, on_committed, waiting, retry_at_ns: None, job_at_ns: 0, reported }
    }

    fn now_ns(&self) -> u64 {
        self.writer.clock().monotonic_ns()
    }

    fn run(mut self) -> Result<(), LogError> {
        self.after_work();
        loop {
            match self.receive() {
                Some(Command::Append(batch)) => self.waiting.push_back(batch),
                Some(Command::Close) => return self.close(),
                Some(Command::Stop) => return Ok(()),
                Some(Command::Wake) | None => {}
            }
            if self.retry_at_ns.is_none_or(|retry_at_ns| self.now_ns() >= retry_at_ns) {
                self.append_waiting();
            }
            self.after_work();
        }
    }

    /// The next command; `None` when it is time to try a full disk again.
    fn receive(&mut self) -> Option<Command> {
        if self.retry_at_ns.is_none() && self.reported == Space::Enough {
            // Without a sender the handle is gone, and it sent `Stop` first.
            return Some(self.receiver.recv().unwrap_or(Command::Stop));
        }
        match self.receiver.recv_timeout(Duration::from_millis(RETRY_MS)) {
            Ok(command) => Some(command),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Command::Stop),
        }
    }

    fn append_waiting(&mut self) {
        while let Some(mut batch) = self.waiting.pop_front() {
            match self.writer.append(&mut batch) {
                Ok(report) => {
                    self.retry_at_ns = None;
                    (self.on_committed)(Committed::Durable { batch, report });
                }
                Err(LogError::OutOfSpace) => {
                    self.waiting.push_front(batch);
                    let is_news = self.retry_at_ns.is_none();
                    self.retry_at_ns = Some(self.now_ns() + RETRY_MS * 1_000_000);
                    if is_news {
                        (self.on_committed)(Committed::OutOfSpace);
                    }
                    return;
                }
                Err(error) => {
                    self.retry_at_ns = None;
                    (self.on_committed)(Committed::Failed { batch, error });
                }
            }
        }
    }

    fn after_work(&mut self) {
        let space = self.writer.space();
        if space != self.reported {
            self.reported = space;
            (self.on_committed)(Committed::Space(space));
        }
        if space == Space::Low {
            let now_ns = self.now_ns();
            if now_ns < self.job_at_ns {
                return;
            }
            self.job_at_ns = now_ns + RETRY_MS * 1_000_000;
        }
        while let Some(job) = self.writer.job() {
            // If the helper has panicked, its jobs stay with the writer, which does them when it must.
            let _ = self.jobs.send(job);
        }
    }

    fn close(mut self) -> Result<(), LogError> {
        self.append_waiting();
        for batch in std::mem::take(&mut self.waiting) {
            (self.on_committed)(Committed::Failed { batch, error: LogError::OutOfSpace });
        }
        self.writer.close()
    }
}
