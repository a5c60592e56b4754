//! One shard as a pure state machine: requests, messages, finished operations, "durable up to
//! LSN" and the time go in; entries to append, replies to release, messages to deliver and work
//! to run elsewhere come out.
//!
//! [`Shard`] is a table of parts. It takes an input and hands it to the part that it is for. Each part is
//! a folder: a type with private fields, and the unit tests of that part alone.
//!
//! | part | keeps |
//! |---|---|
//! | `context` | the shard's rows, its place in the log, the outputs that wait for the log; what every part is handed |
//! | `execution` | transactions that run, wait or queue; starts them, runs them in turns, commits them |
//! | `locks` | which entities suspended transactions hold, and who queues for them |
//! | `coordination` | attempts and decisions of transactions over several shards that began here |
//! | `participation` | parts in transactions that began in other shards |
//! | `workflows` | long-running code, run from a journal |
//! | `journals`, `signals`, `starts` | rows of workflows; signals that wait; workflows that have yet to begin |
//! | `inbox`, `outbox`, `dead_letters` | messages that are to run here, that leave, that failed for good |
//! | `results` | what requests under idempotency keys and sent invocations have given |
//! | `schedules` | calls that services declare to be made again and again |
//! | `failures` | counts and log lines of what fails |
//! | `bookkeeping` | the parts of the last five rows; what takes rows of several of them in one entry |
//!
//! A call takes this way. [`Shard::handle`] gets [`Input::Invoke`] and looks for a kept result and takes the entity
//! (`execution/start.rs`). The handler runs in turns (`execution/run.rs`) and sees the store through
//! `execution/host.rs`. Its write set becomes one entry (`execution/commit.rs`). The reply leaves once that
//! entry is durable (`context/held.rs`). A route begins without a shard (`execution/unplaced.rs`), and the
//! shard of the first entity it calls adopts it.
//!
//! Promises: same inputs in the same order give the same outputs. A transaction's effects reach
//! the store and the log together, in one entry, or not at all. No reply leaves before everything
//! it depends on is durable. Must not do I/O, read clocks, draw randomness, or be async; what it
//! needs of the world it is handed in [`World`].

mod bookkeeping;
mod built_in;
mod checks;
mod clock;
mod context;
mod coordination;
mod dead_letters;
mod deployed;
mod execution;
mod failures;
mod figures;
mod inbox;
mod input;
mod journals;
mod locks;
mod options;
mod outbox;
mod outgoing;
mod participation;
mod peer;
pub mod question;
mod request;
mod results;
mod retry;
mod schedules;
mod shard;
mod signals;
mod starts;
#[cfg(test)]
mod testing;
mod typed_reply;
mod workflows;
mod world;

pub use clock::ShardClock;
pub use execution::{UnplacedRoute, UnplacedStep};
pub use failures::WORKFLOW_ENDS;
pub use figures::Figures;
pub use input::Input;
pub use journals::workflow_versions;
pub use options::ShardOptions;
pub use peer::{
    AwaitedResult, Begin, CallNumber, FromParticipation, PeerBody, PeerCall, PeerMessage, ResultQuestion,
    ToCoordinator, ToParticipation,
};
pub use question::AskedSchedule;
pub use request::{
    DEAD_LETTER_PREFIX, Delivery, InvocationId, Invoke, ListedWorkflow, OffloadTicket, Reply, RequestInfo, RouteCall,
    Sequence, Token, WorkflowView, dead_letter_id,
};
pub use results::{ResultNames, empty_store, open_store, service_fingerprint};
pub use shard::Shard;
pub use typed_reply::{DeadLetter, EntityState, FoundInvocation, Listed, ReplyTo, TypedReply};
pub use world::{ActivationIds, Entropy, Outputs, World};
