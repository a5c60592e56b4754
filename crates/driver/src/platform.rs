//! What a core needs of the machine around it.

use std::task::Waker;

use millrace_base::{Lsn, ShardId};
use millrace_format::Entry;
use millrace_func::{FetchRequest, Offload, Program, WorkerTurn};
use millrace_io::Net;
use millrace_log::Batch;
use millrace_shard::OffloadTicket;
use millrace_store::FlushChunk;

use crate::message::{CoreMessage, ShardMail};

/// Somebody who waits for a reply or for an admission.
pub trait Waiter: Clone {
    /// What was waited for is there.
    fn wake(self);

    /// Whether waking either wakes the same one.
    fn will_wake(&self, other: &Self) -> bool;
}

impl Waiter for Waker {
    fn wake(self) {
        Waker::wake(self);
    }

    fn will_wake(&self, other: &Self) -> bool {
        Waker::will_wake(self, other)
    }
}

/// The machine around one core: clock, network, log, and everything that runs beside the core.
///
/// Nothing here may call back into the core. What comes of a call comes later, as an input of the core: the table in
/// `docs/internals/driver.md` says which.
pub trait Platform: Net<CoreMessage> + Net<ShardMail> {
    /// Whom replies and admissions wake.
    type Waiter: Waiter;

    /// The time of day, in milliseconds since 1970. It may be set back.
    fn now_ms(&self) -> u64;

    /// A clock that only goes forward, in nanoseconds.
    fn monotonic_ns(&self) -> u64;

    /// Asks for a call of `Core::end_round` after the inputs that are ready now.
    fn wake(&self);

    /// Adds an entry to the batch that is being filled.
    fn append(&mut self, batch: &mut Batch, entry: &Entry<'_>) {
        batch.push(entry);
    }

    /// Makes a batch durable; `Core::committed` is told of it. At most one batch of a core is under way.
    fn commit(&mut self, batch: Batch);

    /// Does slow work; its result goes to `Core::offloaded`.
    fn offload(&mut self, ticket: OffloadTicket, work: Offload);

    /// Sends a request to a server outside; its response goes to `Core::offloaded`.
    fn fetch(&mut self, ticket: OffloadTicket, request: FetchRequest);

    /// Sends frames to a worker; its turn goes to `Core::exchanged`.
    fn exchange(&mut self, ticket: OffloadTicket, turn: WorkerTurn);

    /// Writes a chunk to the checkpoint; `Core::flushed` is told of it.
    fn write_chunk(&mut self, shard: ShardId, chunk: FlushChunk);

    /// A shard's checkpoint covers its log up to `lsn`: that part of the log may go.
    fn checkpointed(&mut self, shard: ShardId, lsn: Lsn);

    /// Bytes of the log that wait for checkpoints.
    fn closed_log_bytes(&self) -> u64;

    /// Programs were unloaded: what was kept for their sake may go.
    fn unloaded(&mut self, programs: &[Program]);

    /// Nothing in `shard` refers to the body of this number any more, and that is durable.
    fn release_body(&mut self, _shard: ShardId, _number: u64) {}

    /// One more shard has stopped for good. `broken` says why, if an invariant of it broke; else the log has failed.
    fn shard_stopped(&mut self, broken: Option<&str>);

    /// The core refuses writes from now on, or takes them again.
    fn read_only_changed(&mut self, is_read_only: bool);

    /// Whether the simulator has planted this bug. A platform that does not say so has none: the compiler drops the bug's
    /// code then.
    #[inline]
    fn has_planted(&self, _bug: DriverBug) -> bool {
        false
    }
}

/// Bugs that only the simulator plants, to see its checkers find them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverBug {
    /// The queue runs a request that it has refused for waiting too long.
    RunRefusedRequest,
    /// When a batch is durable, the entries that were made meanwhile count as durable too.
    CountNewEntriesAsDurable,
    /// An acknowledgement of some messages is carried as one of all messages.
    AcknowledgeTooMuch,
}
