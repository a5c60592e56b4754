//! One shard as a pure state machine: requests, messages, finished operations, "durable up to
//! LSN" and the time go in; entries to append, replies to release, messages to deliver and work
//! to run elsewhere come out.
//!
//! The way of a call: [`Shard::invoke`] looks for a stored outcome (`outcomes.rs`), takes the
//! entity (`locks.rs`), runs the function in turns (`run.rs`) against the store through
//! `host.rs`, and commits its write set as one entry (`commit.rs`), whose reply leaves once the
//! entry is durable (`held.rs`). A route begins without a shard (`unbound.rs`) and is adopted
//! by the shard of the first entity it calls. A call to an entity of another shard makes that
//! shard a participant (`peer.rs`, `coordinator.rs`, `branch.rs`). Workflows run beside all that,
//! from a journal (`workflow.rs`, `workflows.rs`, `waiting.rs`, `signals.rs`), and schedules put messages into the
//! inbox (`schedules.rs`).
//!
//! Promises: same inputs in the same order give the same outputs. A transaction's effects reach
//! the store and the log together, in one entry, or not at all. No reply leaves before everything
//! it depends on is durable. Must not do I/O, read clocks, draw randomness, or be async; what it
//! needs of the world it is handed in [`World`].

mod branch;
mod commit;
mod coordinator;
mod direct;
mod failures;
mod held;
mod host;
mod inbox;
mod letters;
mod locks;
mod outbox;
mod outcomes;
mod outgoing;
mod participant;
mod peer;
mod records;
mod request;
mod retry;
mod run;
mod schedules;
mod shard;
mod signals;
mod steps;
mod transaction;
mod unbound;
mod waiting;
mod workflow;
mod workflows;
mod world;

pub use failures::WORKFLOW_ENDS;
pub use letters::workflow_versions;
pub use outcomes::{OutcomeNames, service_fingerprint};
pub use peer::{Begin, CallNumber, FromBranch, PeerBody, PeerCall, PeerMessage, ToBranch, ToHome};
pub use request::{
    DEAD_LETTER_PREFIX, Delivery, InvocationId, Invoke, ListedWorkflow, OffloadTicket, Reply, RequestInfo, RouteCall,
    Sequence, Token, WorkflowView, dead_letter_id,
};
pub use schedules::AskedSchedule;
pub use shard::{Shard, ShardOptions};
pub use unbound::{Unbound, UnboundStep};
pub use world::{Entropy, FrameIds, Outputs, World};
