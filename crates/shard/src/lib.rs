//! One shard as a pure state machine: requests, messages, finished operations, "durable up to
//! LSN" and the time go in; entries to append, replies to release, messages to deliver and work
//! to run elsewhere come out.
//!
//! The way of a call: [`Shard::invoke`] looks for a stored outcome (`outcomes.rs`), takes the
//! entity (`locks.rs`), runs the function in turns (`run.rs`) against the store through
//! `host.rs`, and commits its write set as one entry (`commit.rs`), whose reply leaves once the
//! entry is durable (`replies.rs`). A route begins without a shard (`unbound.rs`) and is adopted
//! by the shard of the first entity it calls.
//!
//! Promises: same inputs in the same order give the same outputs. A transaction's effects reach
//! the store and the log together, in one entry, or not at all. No reply leaves before everything
//! it depends on is durable. Must not do I/O, read clocks, draw randomness, or be async; what it
//! needs of the world it is handed in [`World`].

mod commit;
mod host;
mod inbox;
mod locks;
mod outcomes;
mod replies;
mod request;
mod run;
mod shard;
mod transaction;
mod unbound;
mod world;

pub use outcomes::service_fingerprint;
pub use request::{Delivery, InvocationId, Invoke, OffloadTicket, Reply, RequestInfo, RouteCall, Sequence, Token};
pub use shard::{Shard, ShardOptions};
pub use unbound::{Unbound, UnboundStep};
pub use world::{Entropy, FrameIds, Outputs, World};
