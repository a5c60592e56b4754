//! What a core needs of the machine around it.

use std::collections::BTreeSet;
use std::task::Waker;

use millrace_base::{Lsn, ShardId};
use millrace_format::Entry;
use millrace_func::{FetchRequest, Offload, Program, WorkerTurn};
use millrace_io::Net;
use millrace_log::Batch;
use millrace_replica::{EntryId, Epoch, Message, NodeId, Promised, Replica, RoleName, Write};
use millrace_shard::OffloadTicket;
use millrace_store::{ColdRead, FlushChunk};

use crate::message::{CoreMessage, Destination, ShardMail};
use crate::replicated::ALONE;

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

    /// Reads rows beside the core; what comes of it goes to `Core::rows_read`, once for each.
    fn read_rows(&mut self, read: ColdRead);

    /// Writes a chunk to the checkpoint; `Core::flushed` is told of it.
    fn write_chunk(&mut self, shard: ShardId, chunk: FlushChunk);

    /// A shard's checkpoint covers its log up to `lsn`: that part of the log may go.
    fn checkpointed(&mut self, shard: ShardId, lsn: Lsn);

    /// Whether these nodes have what the entries of a shard name and its log does not hold. Until they do, none of them newly
    /// counts in the shard, and no other one leaves it.
    fn have_bodies(&self, _shard: ShardId, _nodes: &BTreeSet<NodeId>) -> bool {
        true
    }

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

    /// This node's number in its cluster. A node that stands alone has none, and is asked for nothing of what follows.
    fn node(&self) -> NodeId {
        ALONE
    }

    /// Sends a message to another node: once, and in the order of sending, as long as that node's process lives. Says whether
    /// this node still sends.
    fn send_node(&mut self, _to: NodeId, _destination: Destination, _message: CoreMessage) -> bool {
        false
    }

    /// Sends mail to the core of its shard on another node. It may get lost.
    fn send_node_mail(&mut self, _to: NodeId, _mail: ShardMail) {}

    /// Sends a message to the replica of a shard on another node. It may get lost.
    fn send_replica(&mut self, _to: NodeId, _shard: ShardId, _message: Message) {}

    /// Adds a write of a replica to the batch that is being filled. Writes of one shard stay in their order.
    fn write_replica(&mut self, _batch: &mut Batch, _shard: ShardId, _write: &Write) {}

    /// Adds to the batch what a start has to know of a replica beside its entries: its promise, and where its log begins.
    fn write_base(&mut self, _batch: &mut Batch, _shard: ShardId, _replica: &Replica) {}

    /// Reads entries of a shard's log, as many as fit in `bytes` and at least one; they go to `Core::log_read`.
    fn read_log(&mut self, _shard: ShardId, _to: NodeId, _after: EntryId, _bytes: usize) {}

    /// Opens the state of a shard again, from its checkpoint and its log up to exactly `up_to`; it goes to `Core::reopened`.
    /// Chunks of the shard that are on their way to the checkpoint are written, or given up, and told of before that.
    fn reopen(&mut self, _shard: ShardId, _up_to: Lsn) {}

    /// Carries the shard's rows to another node, at some entry that is committed and not before `at_least`;
    /// `Core::snapshot_shipped` or `Core::snapshot_failed` is told of it.
    fn ship_snapshot(&mut self, _shard: ShardId, _to: NodeId, _at_least: Lsn) {}

    /// Rows of a shard that runs no functions changed: everything up to here is committed, and durable here.
    fn applied(&mut self, _shard: ShardId, _lsn: Lsn) {}

    /// What a replica of this core is now, in the epoch that it has promised. An owner is one whose shard is open.
    fn role_changed(&mut self, _shard: ShardId, _role: RoleName, _epoch: Epoch) {}

    /// This node cannot own the shard in the epoch that guidance has given it: guidance has to give it a higher one than this.
    fn epoch_taken(&mut self, _shard: ShardId, _promised: Promised) {}

    /// This node cannot own the shard, as it lacks entries: guidance should appoint that one.
    fn appoint_instead(&mut self, _shard: ShardId, _best: NodeId) {}

    /// A learner has caught up: it may be made a voter.
    fn caught_up(&mut self, _shard: ShardId, _learner: NodeId) {}

    /// A replica that might have lacked entries holds everything again: the mark that it did not may go.
    fn whole(&mut self, _shard: ShardId) {}

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
    /// Replies leave without a look at the lease.
    ReplyWithoutLease,
    /// A shard hears that an entry is durable before a majority has it.
    DurableBeforeQuorum,
    /// A follower applies what is not committed.
    ApplyUncommitted,
    /// The shard of a deposed owner is opened again with all that it had made.
    KeepMemory,
    /// A request that goes back as not here runs all the same.
    RunNotHere,
    /// Nobody hears that a shard was opened again.
    OpeningUntold,
    /// No shard hears that a detour begins.
    DetourUntold,
    /// A request that waits for the next owner of its shard runs at this one all the same.
    RunHandedOn,
    /// What a shard says to one that its node does not know yet is lost.
    ForgetForUnknown,
    /// A reply of another node goes to another request that waits for one.
    MisdirectReplies,
    /// A shard is handed on with what it has locked.
    HandOnLocked,
    /// A shard that was let go of speaks on.
    SpeakHandedOn,
    /// Shards have the time of the machine that they are on, though they have used a later one.
    UnclampedTime,
    /// A shard that stands still adds entries all the same.
    AddWhileStill,
    /// A part of a snapshot that comes twice counts as the one after it, too.
    CountPartTwice,
    /// A snapshot counts as one that holds an entry more than it does.
    SnapshotAhead,
}
